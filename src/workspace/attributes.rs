//! Attributes of a tree for git before 2.41, which has no `--attr-source`.
//!
//! Every `.gitattributes` of the tree becomes part of one file for `core.attributesFile`, with patterns relative to the
//! top. The service's repositories are bare, so that git reads no other attributes.

/// Contents of one `.gitattributes` file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AttributesFile {
    /// Path relative to the tree, such as `src/.gitattributes`.
    pub path: String,
    /// Contents.
    pub text: String,
}

/// Joins the files of a tree into one with the same meaning: the files of deeper folders come later and take precedence.
pub(super) fn combined(mut files: Vec<AttributesFile>) -> String {
    files.sort_by_key(|file| (file.path.matches('/').count(), file.path.clone()));
    let mut combined = String::new();
    for file in &files {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for line in file.text.lines() {
            let line = if folder.is_empty() { Some(line.to_owned()) } else { below(folder, line) };
            if let Some(line) = line {
                combined.push_str(&line);
                combined.push('\n');
            }
        }
    }
    combined
}

/// Returns a line of a folder's file with its pattern relative to the top; `None` for comments, macros and patterns that
/// git ignores.
fn below(folder: &str, line: &str) -> Option<String> {
    let line = line.trim_start();
    if line.is_empty() || line.starts_with('#') || line.starts_with("[attr]") || line.starts_with('!') {
        return None;
    }
    let (pattern, attributes) = match line.strip_prefix('"') {
        Some(quoted) => {
            let end = closing_quote(quoted)?;
            (quoted.get(..end)?.to_owned(), quoted.get(end + 1..)?)
        }
        None => {
            let end = line.find([' ', '\t']).unwrap_or(line.len());
            (escaped(line.get(..end)?), line.get(end..)?)
        }
    };
    let anchored = pattern.trim_end_matches('/').contains('/');
    let pattern = pattern.trim_start_matches('/');
    let folder: String =
        folder.chars().flat_map(|c| if "*?[\\".contains(c) { vec!['\\', c] } else { vec![c] }).collect();
    let between = if anchored { "/" } else { "/**/" };
    Some(format!("\"{}{between}{pattern}\"{attributes}", escaped(&folder)))
}

/// Position of the quote that ends a quoted pattern.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escape = false;
    text.char_indices().find_map(|(at, c)| {
        let closes = c == '"' && !escape;
        escape = c == '\\' && !escape;
        closes.then_some(at)
    })
}

/// Returns a text as it stands between the quotes of a quoted pattern.
fn escaped(text: &str) -> String {
    text.chars().flat_map(|c| if "\"\\".contains(c) { vec!['\\', c] } else { vec![c] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> AttributesFile {
        AttributesFile { path: path.into(), text: text.into() }
    }

    #[test]
    fn patterns_become_relative_to_the_top() {
        let cases = [
            ("*.rs text", "\"src/**/*.rs\" text"),
            ("/a.txt -text", "\"src/a.txt\" -text"),
            ("b/c.txt eol=lf", "\"src/b/c.txt\" eol=lf"),
            ("\"with space\" binary", "\"src/**/with space\" binary"),
            ("d/ merge=union", "\"src/**/d/\" merge=union"),
        ];
        for (line, expected) in cases {
            assert_eq!(below("src", line).as_deref(), Some(expected), "{line}");
        }
        for ignored in ["", "# comment", "[attr]mine text", "!*.rs text", "\"open text"] {
            assert_eq!(below("src", ignored), None, "{ignored}");
        }
        assert_eq!(below("a*b \"c\"", "x text").as_deref(), Some("\"a\\\\*b \\\"c\\\"/**/x\" text"));
    }

    #[test]
    fn deeper_folders_take_precedence() {
        let files = vec![
            file("a/b/.gitattributes", "x -text"),
            file(".gitattributes", "[attr]m text\nx m"),
            file("a/.gitattributes", "x eol=lf"),
        ];
        assert_eq!(combined(files), "[attr]m text\nx m\n\"a/**/x\" eol=lf\n\"a/b/**/x\" -text\n");
    }
}
