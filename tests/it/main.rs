//! Stories: the real service against a forge on loopback, with real git, real processes and a real database file.

mod harness;
mod story;
