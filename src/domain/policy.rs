//! Settings that decisions depend on.
