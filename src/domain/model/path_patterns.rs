//! Glob patterns of paths.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// Compiles globs of paths from the top of the tree; `*` stays within a folder.
///
/// # Errors
/// The first that is no pattern.
pub fn path_globs<S: AsRef<str>>(globs: &[S]) -> Result<GlobSet, globset::Error> {
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        set.add(GlobBuilder::new(glob.as_ref()).literal_separator(true).build()?);
    }
    set.build()
}
