//! Backends: what runs a coding agent and reads its output.
