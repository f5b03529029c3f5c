//! Tests of the retry and pacing layer.
