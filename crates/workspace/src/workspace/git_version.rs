//! Versions of git. `git/attributes.rs` contains everything that works differently with old versions.

/// Oldest supported version, which has `merge-tree --write-tree` and `safe.bareRepository`.
pub const NEEDED_GIT: GitVersion = GitVersion { major: 2, minor: 39, patch: 0 };

/// Version of git.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GitVersion {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

impl GitVersion {
    /// Parses the output of `git version`; `None` if it contains no version.
    pub fn parse(text: &str) -> Option<Self> {
        let numbers = text.trim().strip_prefix("git version ")?.split_whitespace().next()?;
        let mut parts = numbers.split('.').map(|part| part.parse::<u32>().ok());
        Some(Self { major: parts.next()??, minor: parts.next()??, patch: parts.next().flatten().unwrap_or(0) })
    }
}

impl std::fmt::Display for GitVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// See docs/research/threats.md#g8.
    #[test]
    fn git_versions_are_parsed() {
        for (text, expected) in [
            ("git version 2.47.3", Some((2, 47, 3))),
            ("git version 2.43.0.windows.1\n", Some((2, 43, 0))),
            ("git version 2.50", Some((2, 50, 0))),
            ("git version 2.39.5 (Apple Git-154)", Some((2, 39, 5))),
            ("git version banana", None),
            ("", None),
        ] {
            assert_eq!(GitVersion::parse(text).map(|v| (v.major, v.minor, v.patch)), expected, "{text}");
        }
        assert!(GitVersion { major: 2, minor: 38, patch: 9 } < NEEDED_GIT);
        assert!(GitVersion { major: 3, minor: 0, patch: 0 } > NEEDED_GIT);
    }
}
