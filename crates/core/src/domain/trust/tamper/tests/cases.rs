//! Cases of weakened tests: reads `tests/fixtures/tampering/<language>.txt` and converts the cases to diffs.
//!
//! A case begins with `=== title | kinds`; a legitimate edit has the kinds `none`. An optional third part names a round of cases
//! that were written without knowledge of the rules, before the rules were extended by the cases that they missed; `own cases`
//! were written by the author of the rules. A line `file: PATH`, `new file: PATH`, `deleted file: PATH` or `renamed file: OLD =>
//! NEW` begins a file, and `@@ heading` begins another hunk of it. All other lines belong to a hunk and begin with a space, `+`
//! or `-`.

use crate::domain::model::task::TamperKind;

/// Case of a weakened test.
pub struct TamperCase {
    pub title: String,
    /// Kinds of findings, of which at least one must be found.
    pub kinds: Vec<TamperKind>,
    /// Round of cases that were written without knowledge of the rules; empty for cases that the rules were made for.
    pub round: String,
    pub diff: String,
}

const FILES: [(&str, &str); 9] = [
    ("Python", include_str!("../../../../../../../tests/fixtures/tampering/python.txt")),
    ("JavaScript, TypeScript", include_str!("../../../../../../../tests/fixtures/tampering/javascript.txt")),
    ("Rust", include_str!("../../../../../../../tests/fixtures/tampering/rust.txt")),
    ("Go", include_str!("../../../../../../../tests/fixtures/tampering/go.txt")),
    ("Java", include_str!("../../../../../../../tests/fixtures/tampering/java.txt")),
    ("C, C++", include_str!("../../../../../../../tests/fixtures/tampering/c_cpp.txt")),
    ("Ruby", include_str!("../../../../../../../tests/fixtures/tampering/ruby.txt")),
    ("PHP", include_str!("../../../../../../../tests/fixtures/tampering/php.txt")),
    ("shell", include_str!("../../../../../../../tests/fixtures/tampering/shell.txt")),
];

/// Returns legitimate changes of tests.
const HONEST: &str = include_str!("../../../../../../../tests/fixtures/tampering/honest_edits.txt");

/// Returns the legitimate edits.
pub fn honest() -> Vec<TamperCase> {
    cases(HONEST)
}

/// Returns the cases by language.
pub fn all() -> Vec<(&'static str, Vec<TamperCase>)> {
    FILES.iter().map(|(language, text)| (*language, cases(text))).collect()
}

fn cases(text: &str) -> Vec<TamperCase> {
    let text = text.strip_prefix("=== ").expect("a case is first");
    text.split("\n=== ").map(case).collect()
}

fn case(text: &str) -> TamperCase {
    let (head, body) = text.split_once('\n').expect("a case has lines");
    let mut parts = head.split(" | ");
    let title = parts.next().expect("a title").to_owned();
    let kinds = parts.next().unwrap_or_else(|| panic!("{title}: no kind")).split(',');
    let kind = |name: &str| serde_json::from_value(name.into()).unwrap_or_else(|_| panic!("{title}: no kind {name}"));
    let kinds = kinds.filter(|name| *name != "none").map(kind).collect();
    TamperCase { kinds, round: parts.next().unwrap_or_default().to_owned(), diff: diff(&title, body), title }
}

fn diff(title: &str, body: &str) -> String {
    let mut diff = String::new();
    let mut hunk = DraftHunk::default();
    for line in body.lines() {
        if let Some((word, path)) = line.split_once("file: ") {
            hunk.finish(&mut diff);
            hunk.next = 1;
            diff += &match word {
                "new " => format!("diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n"),
                "deleted " => {
                    format!("diff --git a/{path} b/{path}\ndeleted file mode 100644\n--- a/{path}\n+++ /dev/null\n")
                }
                "renamed " => {
                    let (old, new) = path.split_once(" => ").expect("two paths");
                    format!("diff --git a/{old} b/{new}\nsimilarity index 90%\nrename from {old}\nrename to {new}\n")
                }
                "" => format!("diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n"),
                _ => panic!("{title}: {line}"),
            };
        } else if let Some(heading) = line.strip_prefix("@@") {
            hunk.finish(&mut diff);
            heading.clone_into(&mut hunk.heading);
        } else {
            assert!(line.is_empty() || line.starts_with([' ', '+', '-']), "{title}: {line}");
            hunk.lines.push(line);
        }
    }
    hunk.finish(&mut diff);
    diff
}

/// Hunk that is being written.
#[derive(Default)]
struct DraftHunk<'a> {
    heading: String,
    lines: Vec<&'a str>,
    next: usize,
}

impl DraftHunk<'_> {
    fn finish(&mut self, diff: &mut String) {
        if !self.lines.is_empty() {
            let old = self.lines.iter().filter(|line| !line.starts_with('+')).count();
            let new = self.lines.iter().filter(|line| !line.starts_with('-')).count();
            *diff += &format!("@@ -{0},{old} +{0},{new} @@{1}\n{2}\n", self.next, self.heading, self.lines.join("\n"));
            self.next += 100;
        }
        self.lines.clear();
        self.heading.clear();
    }
}
