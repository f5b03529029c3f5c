//! Tests of the source's structure: directions between modules, cycles, sizes, names, docstrings, and documents that must
//! agree with it.

mod circles;
mod codes;
mod layers;
mod names;
mod papers;
mod ratchets;
mod rust_version;
mod sizes;
mod source;
mod stories;
mod wildcards;
mod words;
