//! Documents such as a README, whose examples runners execute.

use crate::RegionKind;
use crate::scan::{FileScan, has_any, text_start};

/// Beginnings of examples that a runner executes.
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

/// Reads a document. All of it is one region, since a comment or an outer block can disable examples in it.
pub(crate) fn scan(source: &str) -> FileScan {
    let mut scan = FileScan::new(source);
    let is_test = has_any(source, &MARKS);
    scan.add_inner_doc("", "", text_start(source)..source.len(), is_test);
    scan.found.iter_mut().for_each(|found| found.kind = RegionKind::Document);
    scan
}
