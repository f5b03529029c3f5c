//! Glob patterns of paths.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// Compiles glob patterns for paths relative to the root of the tree. `*` does not match `/`.
///
/// # Errors
/// The first invalid pattern.
pub fn path_globs<S: AsRef<str>>(globs: &[S]) -> Result<GlobSet, globset::Error> {
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        set.add(GlobBuilder::new(glob.as_ref()).literal_separator(true).build()?);
    }
    set.build()
}
