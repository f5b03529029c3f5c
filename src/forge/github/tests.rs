//! Tests of the GitHub adapter.
