//! Issue templates of a repository: their paths, and the comments that they insert into issues.
//!
//! Only people with write access can change a template on the default branch. A hidden comment in an issue that equals a
//! template's comment byte by byte is therefore no message of the author.

/// Folders that contain templates, from the usual ones to those that old servers read.
pub const FOLDERS: [&str; 12] = [
    ".github/ISSUE_TEMPLATE",
    ".gitea/ISSUE_TEMPLATE",
    ".forgejo/ISSUE_TEMPLATE",
    ".github",
    ".gitea",
    ".forgejo",
    "",
    "docs",
    "ISSUE_TEMPLATE",
    "docs/ISSUE_TEMPLATE",
    ".github/issue_template",
    ".gitea/issue_template",
];

/// Whether forges offer the file as an issue template.
pub fn is_template(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
    let Some((stem, end)) = name.rsplit_once('.') else { return false };
    let is_in_folder = folder.rsplit('/').next() == Some("issue_template") && stem != "config";
    matches!(end, "md" | "yml" | "yaml") && (is_in_folder || stem == "issue_template")
}

/// Returns the comments of an issue template as they appear in an issue: with LF line ends, and without the indentation of the
/// first line.
pub fn comments(template: &str) -> Vec<String> {
    let template = template.replace("\r\n", "\n");
    let mut found = Vec::new();
    for (at, _) in template.match_indices("<!--") {
        let Some((comment, _)) = template[at + 4..].split_once("-->") else { break };
        let line = template[..at].rsplit('\n').next().unwrap_or_default();
        let indentation = line.len() - line.trim_start_matches(' ').len();
        let lines = comment.split('\n').enumerate();
        let lines = lines.map(|(number, line)| if number == 0 { line } else { without_spaces(line, indentation) });
        found.extend([comment.to_owned(), lines.collect::<Vec<_>>().join("\n")]);
    }
    found.retain(|comment| !comment.trim().is_empty());
    found.dedup();
    found
}

/// Removes up to `number` spaces from the start of a line.
fn without_spaces(line: &str, number: usize) -> &str {
    &line[line.bytes().take(number).take_while(|byte| *byte == b' ').count()..]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::domain::model::document::{Unseen, UnseenKind};
    use crate::domain::trust::sanitize::document::tests::page;
    use crate::domain::trust::sanitize::document::{read_beside, write};

    const MARKDOWN: &str = "---\nname: Bug\nabout: x\n---\n\n<!-- Please describe\n     the bug. -->\n\n## Version\n<!--version-->\n\n\
                            - Steps\n  <!-- one\n  a line -->\n";
    const FORM: &str = "name: Bug\nbody:\n  - type: textarea\n    attributes:\n      value: |\n        <!-- Please describe\n        \
                        the bug. -->\n        ## Version\n";

    fn unseen(body: &str, templates: &[&str]) -> Unseen {
        let known: HashSet<String> = templates.iter().flat_map(|template| comments(template)).collect();
        let document = read_beside(body, Some(&page(body)), &known);
        assert!(!write(&document.parts).contains("Please"), "{}", write(&document.parts));
        document.unseen
    }

    #[test]
    fn templates_are_recognized_by_their_place() {
        for path in [
            ".github/ISSUE_TEMPLATE/bug.md",
            ".github/ISSUE_TEMPLATE/bug.yml",
            ".gitea/issue_template/bug.yaml",
            "ISSUE_TEMPLATE.md",
            "docs/issue_template.md",
            ".github/Issue_Template.yml",
        ] {
            assert!(is_template(path), "{path}");
        }
        for path in [
            ".github/ISSUE_TEMPLATE/config.yml",
            ".github/ISSUE_TEMPLATE/logo.png",
            ".github/PULL_REQUEST_TEMPLATE.md",
            "README.md",
            "docs/issue_template/sub/x.md",
            "issue_template",
        ] {
            assert!(!is_template(path), "{path}");
        }
        assert!(FOLDERS.iter().all(|folder| is_template(&format!("{folder}/issue_template.md"))));
    }

    #[test]
    fn template_comments_differ_from_other_comments() {
        let filled = MARKDOWN.split_once("---\n\n").expect("a body").1;
        for body in [filled.to_owned(), filled.replace('\n', "\r\n"), format!("It broke.\n\n{filled}")] {
            let unseen = unseen(&body, &[MARKDOWN]);
            assert_eq!((unseen.counts.get(&UnseenKind::TemplateComment), unseen.hidden()), (Some(&3), 3), "{unseen:?}");
            assert!(!unseen.has_foreign() && unseen.excerpts.is_empty(), "{unseen:?}");
        }
        let of_form = "<!-- Please describe\nthe bug. -->\n## Version\n";
        assert!(!unseen(of_form, &[FORM]).has_foreign());
        // Changed, added, or hidden by other means.
        for body in [
            filled.replace("Please", "please"),
            filled.replace("bug.", "bug. "),
            filled.replace("<!--version-->", "<!--version x-->"),
            format!("{filled}<!-- more -->"),
            format!("{filled}<div hidden>more</div>"),
            format!("{filled}<!--version--"),
            of_form.to_owned(),
        ] {
            assert!(unseen(&body, &[MARKDOWN]).has_foreign(), "{body}");
        }
        assert!(unseen(filled, &[]).has_foreign() && unseen(filled, &[FORM]).has_foreign());
    }
}
