//! What we may do, as data with a natural key.
