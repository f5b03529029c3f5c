//! Documents with examples that runners execute, such as a README.

use crate::RegionKind;
use crate::scan::{FileScan, has_any, text_start};

/// Openings of examples that a runner executes.
const MARKS: [&str; 12] = [
    "```rust",
    "~~~rust",
    "```jldoctest",
    "```ocaml",
    "```elixir",
    "```pycon",
    "```doctest",
    "iex>",
    ">>> ",
    ".. doctest::",
    ".. testcode::",
    ".. testoutput::",
];

/// Parses a document. The whole document is one region, because a comment or an outer block can disable its examples.
pub(crate) fn scan(source: &str) -> FileScan {
    let mut scan = FileScan::new(source);
    let is_test = has_any(source, &MARKS);
    scan.add_inner_doc("", "", text_start(source)..source.len(), is_test);
    scan.found.iter_mut().for_each(|found| found.kind = RegionKind::Document);
    scan
}
