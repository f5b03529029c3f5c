//! The only spawner of processes: argument lists, limits, group kill, capped and masked output.
