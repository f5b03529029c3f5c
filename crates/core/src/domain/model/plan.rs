//! Plan for a task, proposed by an agent: parsing, limits, text and hash.

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Maximum number of entries in a list of the plan.
const MAX_ENTRIES: usize = 40;
/// Maximum length of an entry, in bytes.
const MAX_ENTRY: usize = 600;
/// Maximum length of the summary, in bytes.
const MAX_SUMMARY: usize = 2_000;
/// Maximum length of the plan's text, in bytes. A comment can display this length completely.
const MAX_TEXT: usize = 8_000;
/// Number of displayed hash characters, which a person types to approve a plan.
pub const SHORT_HASH: usize = 8;

/// Plan for a task. It is untrusted data until a person approves it. The approved text is exactly the displayed text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskPlan {
    /// Summary of the planned change, in a few sentences.
    pub summary: String,
    /// Steps, in order.
    pub steps: Vec<String>,
    /// Files and folders to change, from the root of the tree.
    pub files: Vec<String>,
    /// Checks that verify the result.
    pub checks: Vec<String>,
    /// Work that the plan excludes.
    pub not_doing: Vec<String>,
    /// Questions for people.
    pub questions: Vec<String>,
}

impl TaskPlan {
    /// Extracts a plan from the last message of an agent that wrote no report. Uses the message's last JSON object with the
    /// key `plan`; `None` if there is none.
    pub fn in_message(message: &str) -> Option<Self> {
        let begins = message.match_indices('{').map(|(at, _)| at).collect::<Vec<_>>();
        // A message is short, and text before the object contains few braces.
        begins.into_iter().rev().take(200).find_map(|at| {
            let mut values = serde_json::Deserializer::from_str(message.get(at..)?).into_iter::<Value>();
            let mut object = values.next()?.ok()?;
            let inner = object.get_mut("plan").map(Value::take);
            inner.is_some().then(|| serde_json::from_value(inner.unwrap_or_default()).ok()).flatten()
        })
    }

    /// Returns the plan with each text on one line, without empty and repeated entries. `prose` is applied to sentences,
    /// `literal` to files and checks.
    #[must_use]
    pub fn cleaned(&self, prose: impl Fn(&str) -> String, literal: impl Fn(&str) -> String) -> Self {
        Self {
            summary: line(&self.summary, &prose),
            steps: list(&self.steps, &prose),
            files: list(&self.files, &literal),
            checks: list(&self.checks, &literal),
            not_doing: list(&self.not_doing, &prose),
            questions: list(&self.questions, &prose),
        }
    }

    /// Returns the reason why the plan cannot be proposed, as a sentence without a full stop; `None` if the plan is valid.
    pub fn problem(&self) -> Option<String> {
        if self.summary.is_empty() {
            return Some("the plan has no `summary`".to_owned());
        }
        if self.steps.is_empty() {
            return Some("the plan has no `steps`".to_owned());
        }
        if self.summary.len() > MAX_SUMMARY {
            let length = self.summary.len();
            return Some(format!("the plan's `summary` has {length} bytes; at most {MAX_SUMMARY} are allowed"));
        }
        for (name, entries) in self.lists() {
            if entries.len() > MAX_ENTRIES {
                let count = entries.len();
                return Some(format!("the plan's `{name}` has {count} entries; at most {MAX_ENTRIES} are allowed"));
            }
            if let Some((number, entry)) = entries.iter().enumerate().find(|(_, entry)| entry.len() > MAX_ENTRY) {
                let length = entry.len();
                return Some(format!(
                    "the plan's `{name}[{number}]` has {length} bytes; at most {MAX_ENTRY} are allowed"
                ));
            }
        }
        let length = self.text().len();
        (length > MAX_TEXT).then(|| format!("the plan has {length} bytes; at most {MAX_TEXT} are allowed"))
    }

    /// Returns the text to display, to hash, and to pass to the agent.
    pub fn text(&self) -> String {
        let mut text = self.summary.clone();
        let titles = ["Steps", "Files", "Checks", "Not part of it", "Questions"];
        for (title, (_, entries)) in titles.into_iter().zip(self.lists()) {
            if entries.is_empty() {
                continue;
            }
            text.push_str(&format!("\n\n{title}:"));
            for (number, entry) in entries.iter().enumerate() {
                match title {
                    "Steps" => text.push_str(&format!("\n{}. {entry}", number + 1)),
                    _ => text.push_str(&format!("\n- {entry}")),
                }
            }
        }
        text
    }

    /// Returns the SHA-256 hash of the text, in hexadecimal.
    pub fn hash(&self) -> String {
        HEXLOWER.encode(&Sha256::digest(self.text()))
    }

    /// Returns the plan's lists, each with its field name.
    fn lists(&self) -> [(&'static str, &[String]); 5] {
        [
            ("steps", &self.steps),
            ("files", &self.files),
            ("checks", &self.checks),
            ("not_doing", &self.not_doing),
            ("questions", &self.questions),
        ]
    }
}

/// Applies `clean` to a text and joins its lines.
fn line(text: &str, clean: &dyn Fn(&str) -> String) -> String {
    clean(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Applies `clean` to each entry. Returns the distinct non-empty entries.
fn list(entries: &[String], clean: &dyn Fn(&str) -> String) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::new();
    for entry in entries.iter().map(|entry| line(entry, clean)).filter(|entry| !entry.is_empty()) {
        if !distinct.contains(&entry) {
            distinct.push(entry);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> TaskPlan {
        let list = |entries: &[&str]| entries.iter().map(|entry| (*entry).to_owned()).collect();
        TaskPlan {
            summary: "Return an empty list.".into(),
            steps: list(&["Handle the empty text.", "Add a test."]),
            files: list(&["src/parse.py"]),
            checks: list(&["pytest -q"]),
            not_doing: list(&["No change to the lexer."]),
            questions: Vec::new(),
        }
    }

    #[test]
    fn plan_text_and_hash_depend_on_its_fields() {
        insta::assert_snapshot!(plan().text(), @r"
        Return an empty list.

        Steps:
        1. Handle the empty text.
        2. Add a test.

        Files:
        - src/parse.py

        Checks:
        - pytest -q

        Not part of it:
        - No change to the lexer.
        ");
        assert_eq!((plan().hash().len(), plan().hash()), (64, plan().hash()));
        for change in [
            |plan: &mut TaskPlan| plan.summary.push('!'),
            |plan: &mut TaskPlan| plan.steps.swap(0, 1),
            |plan: &mut TaskPlan| plan.questions.push("Which?".into()),
            |plan: &mut TaskPlan| std::mem::swap(&mut plan.files, &mut plan.checks),
        ] {
            let mut changed = plan();
            change(&mut changed);
            assert_ne!(changed.hash(), plan().hash());
        }
    }

    #[test]
    fn plan_is_found_in_a_last_message() {
        let json = serde_json::json!({ "plan": plan() }).to_string();
        for message in [
            json.clone(),
            format!("Here is it:\n```json\n{json}\n```\nDone."),
            format!("{{not json}} {json}"),
            format!("{} {json}", serde_json::json!({ "plan": TaskPlan::default() })),
        ] {
            assert_eq!(TaskPlan::in_message(&message), Some(plan()), "{message}");
        }
        for none in ["", "{", "I would change src/parse.py.", "{}", r#"{"plan": 3}"#, r#"{"plan": {"steps": 3}}"#] {
            assert_eq!(TaskPlan::in_message(none), None, "{none}");
        }
        assert_eq!(TaskPlan::in_message(&"{".repeat(100_000)), None);
    }

    #[test]
    fn cleaned_plan_has_single_lines_without_repetitions() {
        let messy = TaskPlan {
            summary: " a\n\nSteps:\n1. b ".into(),
            steps: vec!["x\ny".into(), "  ".into(), "x y".into(), "z".into()],
            ..TaskPlan::default()
        };
        let cleaned = messy.cleaned(|text| text.replace('z', "Z"), str::to_owned);
        assert_eq!(
            (cleaned.summary.as_str(), cleaned.steps),
            ("a Steps: 1. b", vec!["x y".to_owned(), "Z".to_owned()])
        );
    }

    #[test]
    fn problems_of_a_plan_name_the_field_and_the_limit() {
        let problem = |change: &dyn Fn(&mut TaskPlan)| {
            let mut changed = plan();
            change(&mut changed);
            changed.problem()
        };
        assert_eq!(problem(&|_| {}), None);
        for (change, words) in [
            (&(|plan: &mut TaskPlan| plan.summary.clear()) as &dyn Fn(&mut TaskPlan), "the plan has no `summary`"),
            (&|plan: &mut TaskPlan| plan.steps.clear(), "the plan has no `steps`"),
            (&|plan: &mut TaskPlan| plan.summary = "x".repeat(2_001), "`summary` has 2001 bytes; at most 2000"),
            (&|plan: &mut TaskPlan| plan.files = vec!["x".into(); 41], "`files` has 41 entries; at most 40"),
            (&|plan: &mut TaskPlan| plan.questions.push("x".repeat(601)), "`questions[0]` has 601 bytes; at most 600"),
            (&|plan: &mut TaskPlan| plan.checks = vec!["x".repeat(600); 40], "bytes; at most 8000"),
        ] {
            assert!(problem(change).is_some_and(|text| text.contains(words)), "{words}: {:?}", problem(change));
        }
    }
}
