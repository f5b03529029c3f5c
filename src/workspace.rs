//! Mirrors, work trees, snapshots, pushes: git without trust in what an agent left.
