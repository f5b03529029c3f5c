//! Converts paths reported by agents to paths relative to the work tree. Some agents report absolute paths, but globs are
//! relative.

/// Maximum length of a path, in bytes.
const MAX_PATH: usize = 4096;

/// Roots of a work tree: its path, and its path with resolved links if different.
#[derive(Debug, Clone, Default)]
pub struct TreeRoots(Vec<String>);

impl TreeRoots {
    /// Creates the roots of a tree; ignores paths without a component.
    pub fn new(roots: impl IntoIterator<Item = String>) -> Self {
        let mut distinct: Vec<String> = Vec::new();
        for root in roots {
            let root = root.trim_end_matches('/').to_owned();
            if !root.is_empty() && !distinct.contains(&root) {
                distinct.push(root);
            }
        }
        // Try a root within another root first.
        distinct.sort_by_key(|root| std::cmp::Reverse(root.len()));
        Self(distinct)
    }

    /// Returns a path relative to the tree, without `.` and `..`. A path outside the tree is returned unchanged.
    pub fn relative(&self, path: &str) -> String {
        let path = path.trim();
        let within = if path.starts_with('/') { self.below(path) } else { Some(path) };
        within.and_then(normalized).unwrap_or_else(|| path.to_owned())
    }

    /// Returns the path of a file in the tree if the text is exactly its absolute path.
    pub fn named(&self, text: &str) -> Option<String> {
        let text = text.trim();
        let plain = text.len() <= MAX_PATH && !text.chars().any(char::is_control);
        self.below(text).filter(|_| plain).and_then(normalized)
    }

    fn below<'a>(&self, path: &'a str) -> Option<&'a str> {
        self.0.iter().find_map(|root| path.strip_prefix(root.as_str())?.strip_prefix('/'))
    }
}

/// Resolves `.` and `..` in a path. `None` if the result is empty or outside the tree.
fn normalized(path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots() -> TreeRoots {
        TreeRoots::new(["/data/trees/r-7".to_owned(), "/mnt/big/trees/r-7/".to_owned(), String::new(), "/".to_owned()])
    }

    #[test]
    fn paths_become_relative_to_the_tree() {
        let table = [
            ("src/a.rs", "src/a.rs"),
            ("./src/a.rs", "src/a.rs"),
            ("/data/trees/r-7/src/a.rs", "src/a.rs"),
            ("/mnt/big/trees/r-7/src/../lib/./b.rs", "lib/b.rs"),
            (" /data/trees/r-7//a b.rs ", "a b.rs"),
            ("/data/trees/r-70/src/a.rs", "/data/trees/r-70/src/a.rs"),
            ("/data/trees/r-7", "/data/trees/r-7"),
            ("/data/trees/r-7/../r-8/a.rs", "/data/trees/r-7/../r-8/a.rs"),
            ("../other/a.rs", "../other/a.rs"),
            ("/etc/passwd", "/etc/passwd"),
            ("", ""),
        ];
        for (path, expected) in table {
            assert_eq!(roots().relative(path), expected, "{path}");
        }
        assert_eq!(TreeRoots::default().relative("/a/b"), "/a/b");
    }

    #[test]
    fn only_texts_that_are_one_absolute_path_name_a_file() {
        assert_eq!(roots().named("/data/trees/r-7/src/a.rs"), Some("src/a.rs".into()));
        assert_eq!(roots().named("/data/trees/r-7/a\ncat /data/trees/r-7/b"), None);
        assert_eq!(roots().named("cat /data/trees/r-7/b"), None);
        assert_eq!(roots().named("src/a.rs"), None);
        assert_eq!(roots().named(&format!("/data/trees/r-7/{}", "x".repeat(MAX_PATH))), None);
    }
}
