//! Rules of a repository for commits and pull requests: sign-off, titles, and the template of pull requests. They are read from
//! the repository's file and from the files of other tools at the base.

use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::domain::checks::criteria::TaskType;
use crate::domain::model::ids::Number;

/// Paths of the DCO App's configuration.
pub const DCO_FILES: &[&str] = &[".github/dco.yml", ".github/dco.yaml"];
/// Paths of commitlint's configuration, in its order.
pub const COMMITLINT_FILES: &[&str] = &[
    ".commitlintrc",
    ".commitlintrc.json",
    ".commitlintrc.yaml",
    ".commitlintrc.yml",
    ".commitlintrc.js",
    ".commitlintrc.cjs",
    ".commitlintrc.mjs",
    ".commitlintrc.ts",
    ".commitlintrc.cts",
    "commitlint.config.js",
    "commitlint.config.cjs",
    "commitlint.config.mjs",
    "commitlint.config.ts",
    "commitlint.config.cts",
];
/// Paths of the template of pull requests.
pub const PULL_TEMPLATES: &[&str] = &[
    ".gitea/PULL_REQUEST_TEMPLATE.md",
    ".gitea/pull_request_template.md",
    ".forgejo/PULL_REQUEST_TEMPLATE.md",
    ".forgejo/pull_request_template.md",
    ".github/PULL_REQUEST_TEMPLATE.md",
    ".github/pull_request_template.md",
    "PULL_REQUEST_TEMPLATE.md",
    "pull_request_template.md",
    "docs/PULL_REQUEST_TEMPLATE.md",
    "docs/pull_request_template.md",
];

/// Maximum size of a template of pull requests, in characters; a longer one is not filled in.
const TEMPLATE_MAX: usize = 8_000;
/// Maximum length of a title, in characters: the header length of commitlint's common configuration.
const TITLE_MAX: usize = 100;
/// Types of the Conventional Commits configuration that most repositories extend.
const USUAL_TYPES: [&str; 11] =
    ["build", "chore", "ci", "docs", "feat", "fix", "perf", "refactor", "revert", "style", "test"];

static TYPE_LIST: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?s)type-enum['"]?\s*:\s*\[?(.*?)(?:\]\s*,?\s*\]|\n\s*['"]?[a-z]+-[a-z-]+['"]?\s*:|\z)"#)
        .expect("the pattern is constant and good")
});
static TYPE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"(?m)['"]([a-z][a-z-]*)['"]|^\s*(?:-\s*)+([a-z][a-z-]*)\s*$"#).expect("good"));
static PREFIX: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^[a-z][a-z-]*(\([^()]*\))?!?: \S").expect("good"));
static COMMENT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?s)<!--.*?-->").expect("good"));

/// Rules of a repository for commits and pull requests.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CommitRules {
    /// Whether commits have a `Signed-off-by` line; `None` if neither the repository's file nor its base states it.
    #[serde(default)]
    pub signoff: Option<bool>,
    /// Pattern of titles with `{title}`; `None` if pull requests have the titles of issues.
    #[serde(default)]
    pub title: Option<String>,
    /// Types that commitlint allows; empty if it is not configured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
    /// Template of pull requests; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub template: String,
}

impl CommitRules {
    /// Adds the rules of commitlint's configuration. The repository's file takes precedence.
    pub fn add_commitlint(&mut self, configuration: &str) {
        let listed = TYPE_LIST.captures(configuration).and_then(|found| found.get(1));
        let names = |text: &str| -> Vec<String> {
            let name =
                |found: regex::Captures<'_>| found.get(1).or_else(|| found.get(2)).map(|n| n.as_str().to_owned());
            TYPE.captures_iter(text).filter_map(name).filter(|name| name != "always" && name != "never").collect()
        };
        self.types = listed.map(|found| names(found.as_str())).unwrap_or_default();
        if self.types.is_empty() {
            self.types = USUAL_TYPES.map(str::to_owned).to_vec();
        }
        self.title.get_or_insert_with(|| "{type}: {title}".to_owned());
    }

    /// Adds the template of pull requests, unless it is too long.
    pub fn add_template(&mut self, template: &str) {
        if template.chars().count() <= TEMPLATE_MAX {
            self.template = COMMENT.replace_all(template, "").trim().to_owned();
        }
    }

    /// Returns the title of a commit or pull request that is about `title`. A title that has a type already is kept.
    pub fn titled(&self, title: &str, task: TaskType, issue: Number) -> String {
        let Some(pattern) = &self.title else { return title.to_owned() };
        let line = title.split_whitespace().collect::<Vec<_>>().join(" ");
        let line = line.trim_end_matches('.');
        if pattern.contains("{type}") && PREFIX.is_match(line) {
            return line.to_owned();
        }
        let line = if pattern.contains("{type}") { lower_first(line) } else { line.to_owned() };
        let frame = pattern.replace("{type}", &self.type_of(task)).replace("{issue}", &issue.to_string());
        let room = TITLE_MAX.saturating_sub(frame.replace("{title}", "").chars().count());
        let cut: String = line.chars().take(room.max(20)).collect();
        frame.replace("{title}", cut.trim_end())
    }

    /// Returns the type of a task in titles: an allowed one.
    fn type_of(&self, task: TaskType) -> String {
        let wanted: &[&str] = match task {
            TaskType::Feature => &["feat", "feature"],
            TaskType::Docs => &["docs", "doc"],
            TaskType::Refactor | TaskType::Migration => &["refactor"],
            TaskType::Coverage => &["test", "tests"],
            TaskType::Lint => &["style"],
            TaskType::Dependency => &["build", "deps"],
            TaskType::TestFix | TaskType::TypeErrors | TaskType::Other => &["fix", "bugfix"],
        };
        let is_allowed = |name: &&&str| self.types.is_empty() || self.types.iter().any(|known| known == **name);
        let chosen = wanted.iter().chain(&["chore", "fix"]).find(is_allowed).map(|name| (*name).to_owned());
        chosen.or_else(|| self.types.first().cloned()).unwrap_or_else(|| "fix".to_owned())
    }

    /// Returns the parts of the template of pull requests with the content below their headings; empty if there is none.
    pub fn template_parts(&self) -> Vec<TemplatePart> {
        let mut parts: Vec<TemplatePart> = Vec::new();
        let mut answer = TemplateAnswer::None;
        for line in self.template.lines() {
            let heading = line.starts_with('#');
            if heading || parts.is_empty() {
                answer = if heading { TemplateAnswer::of(line) } else { TemplateAnswer::None };
                parts.push(TemplatePart { text: String::new(), answer });
            }
            let Some(part) = parts.last_mut() else { continue };
            // Where an answer is given, the template's own lines for it are replaced, except lists of boxes to tick.
            if heading || answer == TemplateAnswer::None || line.trim_start().starts_with("- [") {
                part.text.push_str(line);
                part.text.push('\n');
            }
        }
        parts
    }
}

/// Part of a template of pull requests: a heading with the lines below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplatePart {
    /// Text of the template.
    pub text: String,
    /// Content to fill in below.
    pub answer: TemplateAnswer,
}

/// Content that a heading of a template asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TemplateAnswer {
    /// Information that only a person has.
    None,
    /// The change.
    What,
    /// The task.
    Why,
    /// The issue.
    Issue,
    /// The checks.
    Checks,
}

impl TemplateAnswer {
    /// Returns the content that a heading requests, by its words.
    fn of(heading: &str) -> Self {
        let heading = heading.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| heading.contains(word));
        if has(&["test", "verif", "check how", "qa"]) && !has(&["checklist"]) {
            Self::Checks
        } else if has(&["issue", "ticket", "fixes", "closes", "related"]) {
            Self::Issue
        } else if has(&["why", "motivation", "context", "background", "problem"]) {
            Self::Why
        } else if has(&["what", "summary", "description", "changes", "overview", "proposed"]) && !has(&["type of"]) {
            Self::What
        } else {
            Self::None
        }
    }
}

/// Returns a text whose first word starts with a lower-case letter, unless it is an acronym or a name with capitals.
fn lower_first(text: &str) -> String {
    let mut characters = text.chars();
    let Some(first) = characters.next() else { return String::new() };
    let word = characters.as_str().split(' ').next().unwrap_or_default();
    if word.chars().any(char::is_uppercase) || word.is_empty() {
        return text.to_owned();
    }
    first.to_lowercase().chain(characters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commitlint_types_are_read_from_all_formats() {
        for (text, types) in [
            ("module.exports = { extends: ['@commitlint/config-conventional'] };", USUAL_TYPES.to_vec()),
            (
                "export default { rules: { 'type-enum': [2, 'always', ['feature', 'bugfix', 'chore']], 'x-y': [0] } }",
                vec!["feature", "bugfix", "chore"],
            ),
            ("{ \"rules\": { \"type-enum\": [2, \"always\", [\"feat\", \"fix\"]] } }", vec!["feat", "fix"]),
            ("rules:\n  type-enum:\n    - 2\n    - always\n    - - feat\n      - fix\n", vec!["feat", "fix"]),
        ] {
            let mut rules = CommitRules::default();
            rules.add_commitlint(text);
            assert_eq!(rules.title.as_deref(), Some("{type}: {title}"));
            assert_eq!(rules.types, types, "{text}");
        }
    }

    #[test]
    fn titles_follow_the_pattern() {
        let rules = |title: &str, types: &[&str]| CommitRules {
            title: Some(title.to_owned()),
            types: types.iter().map(|name| (*name).to_owned()).collect(),
            ..CommitRules::default()
        };
        let usual = rules("{type}: {title}", &[]);
        for (title, task, expected) in [
            ("Add a cache.", TaskType::Feature, "feat: add a cache"),
            ("HTTP client hangs", TaskType::Other, "fix: HTTP client hangs"),
            ("docs(api): explain it", TaskType::Other, "docs(api): explain it"),
            ("Écrire la doc", TaskType::Docs, "docs: écrire la doc"),
        ] {
            assert_eq!(usual.titled(title, task, Number(7)), expected);
        }
        assert_eq!(
            rules("{type}: {title}", &["bugfix"]).titled("It hangs", TaskType::Other, Number(7)),
            "bugfix: it hangs"
        );
        assert_eq!(rules("[#{issue}] {title}", &[]).titled("It hangs.", TaskType::Other, Number(7)), "[#7] It hangs");
        assert_eq!(CommitRules::default().titled("It hangs.", TaskType::Other, Number(7)), "It hangs.");
        assert!(usual.titled(&"long ".repeat(60), TaskType::Other, Number(7)).chars().count() <= TITLE_MAX);
    }

    #[test]
    fn template_headings_are_filled_in() {
        let mut rules = CommitRules::default();
        rules.add_template(
            "<!-- Thanks! -->\n## Description\nWhat did you do?\n\n## Related issues\nFixes #\n\n## How was it tested?\n\n\
             ## Checklist\n- [ ] I read the guide\n",
        );
        let parts = rules.template_parts();
        let answers: Vec<_> =
            parts.iter().map(|part| (part.text.lines().next().unwrap_or_default(), part.answer)).collect();
        assert_eq!(
            answers,
            [
                ("## Description", TemplateAnswer::What),
                ("## Related issues", TemplateAnswer::Issue),
                ("## How was it tested?", TemplateAnswer::Checks),
                ("## Checklist", TemplateAnswer::None),
            ]
        );
        assert_eq!(parts[0].text, "## Description\n");
        assert!(parts[3].text.contains("- [ ] I read the guide"));
        assert!(CommitRules::default().template_parts().is_empty());
    }
}
