//! The binary: arguments to `cli`.

fn main() {}
