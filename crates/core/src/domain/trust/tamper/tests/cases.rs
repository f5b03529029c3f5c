//! Cases of program code that neutralizes tests, and of weakened configuration: reads `tests/fixtures/tampering/cases.txt` and
//! converts the cases to diffs.
//!
//! A case starts with `=== title`. A line `file: PATH`, `new file: PATH`, `deleted file: PATH` or `renamed file: OLD => NEW` starts
//! a file, and `@@ heading` starts another hunk of it. All other lines belong to a hunk and start with a space, `+` or `-`.

/// Change that must block.
pub struct TamperCase {
    pub title: String,
    pub diff: String,
}

/// Returns the cases.
pub fn all() -> Vec<TamperCase> {
    cases(include_str!("../../../../../../../tests/fixtures/tampering/cases.txt"))
}

fn cases(text: &str) -> Vec<TamperCase> {
    let text = text.strip_prefix("=== ").expect("a case is first");
    text.split("\n=== ").map(case).collect()
}

fn case(text: &str) -> TamperCase {
    let (head, body) = text.split_once('\n').expect("a case has lines");
    TamperCase { title: head.to_owned(), diff: diff(head, body) }
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
