//! SQLite: one writer thread, a pool of readers, a file a table family.
