//! Empty git tree, which contains no attributes that could hide changes.

use crate::domain::model::ids::Sha;

/// Ids of the empty tree, with SHA-1 and SHA-256.
const EMPTY_TREES: [&str; 2] =
    ["4b825dc642cb6eb9a060e54bf8d69288fbee4904", "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321"];

/// Returns the id of the empty tree, with the same hash algorithm as `like`.
pub(super) fn empty_tree(like: &Sha) -> &'static str {
    if like.as_str().len() == EMPTY_TREES[0].len() { EMPTY_TREES[0] } else { EMPTY_TREES[1] }
}

/// Whether an id is that of the empty tree.
pub(super) fn is_empty_tree(tree: &str) -> bool {
    EMPTY_TREES.contains(&tree)
}
