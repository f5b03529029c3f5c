//! Text that people see on the forge, for snapshots: issues, pull requests and their comments, whole and in order.
//!
//! The text is the same in every run and on every forge: `normalized` is the only place that replaces what varies.

use fake_forge::{Dialect, FakeComment, FakeIssue};
use ralph_bot::domain::model::ids::{Number, UserId};
use regex::Regex;

use super::world::World;

/// Patterns of text that varies between runs and forges, each with its replacement.
const VARYING: &[(&str, &str)] = &[
    (r"http://127\.0\.0\.1:\d+", "https://forge"),
    // Paths of Gitea, as GitHub has them.
    (r"(https://forge/[\w./-]+)/pulls/", "$1/pull/"),
    (r"(https://forge/[\w./-]+)/src/branch/", "$1/tree/"),
    // Only the kind of a marker is shown.
    (r"<!-- ralph:1 \S+ ([\w/-]+?)(/\d+)* \S+ [0-9a-f]{32} -->", "<!-- marker: $1 -->"),
    (r"\br-(\d+)-[0-9a-z]{6}\b", "r-$1-xxxxxx"),
    (r"\[`?[0-9a-f]{7,12}`?\]\((https://forge/\S+/commit/)[0-9a-f]{40}\)", "[COMMIT](${1}COMMIT)"),
    (r"/(?:blob|src/commit)/[0-9a-f]{40}", "/blob/COMMIT"),
    (r"/commit/[0-9a-f]{40}", "/commit/COMMIT"),
    (r"--confirm [0-9a-f]{8,}", "--confirm HASH"),
    (r"ralph-bot \d+\.\d+\.\d+\S*", "ralph-bot VERSION"),
    // Checks take real time, and waits have a random part.
    (r"(?m)^(\| (?:✅|❌) \|.*\|) [^|]+ \|$", "$1 TIME |"),
    (r"in about \d+ min( \d+ s)?", "in about DURATION"),
    (r"- Sandbox: .*", "- Sandbox: SANDBOX"),
];

impl World {
    /// Text that people see: the issue of the story, then every other issue and pull request, each with its comments.
    pub fn conversation(&self) -> String {
        let mut issues: Vec<FakeIssue> =
            self.forge.with(|state| state.repo(self.repo).expect("the repository").issues.values().cloned().collect());
        issues.sort_by_key(|issue| (issue.number != self.issue, issue.number));
        let parts: Vec<String> = issues.iter().map(|issue| self.issue_text(issue)).collect();
        normalized(&parts.join("\n\n"))
    }

    /// Text of one issue or pull request with its comments.
    pub fn conversation_on(&self, number: Number) -> String {
        normalized(&self.issue_text(&self.issue_of(number)))
    }

    /// Text of the newest comment on an issue or pull request.
    pub fn newest_comment_on(&self, number: Number) -> String {
        normalized(
            self.issue_of(number)
                .comments
                .last()
                .map(|comment| self.comment_text(comment))
                .unwrap_or_default()
                .as_str(),
        )
    }

    fn issue_text(&self, issue: &FakeIssue) -> String {
        let open = if issue.open { "open" } else { "closed" };
        let (kind, state) = match &issue.pull {
            None => ("Issue", open),
            Some(pull) if pull.merged.is_some() => ("Pull request", "merged"),
            Some(_) if issue.open && self.is_draft(issue) => ("Pull request", "draft"),
            Some(_) if issue.open => ("Pull request", "ready for review"),
            Some(_) => ("Pull request", open),
        };
        // Gitea marks drafts by their title.
        let title = issue.title.trim_start_matches("WIP: ");
        let mut labels = self.forge.labels(self.repo, issue.number);
        labels.sort();
        let mut text = format!("═══ {kind} #{}: {title}\n    {state}", issue.number);
        let reviewers = issue.pull.as_ref().map_or(&[][..], |pull| &pull.requested);
        for (what, names) in
            [("labels", labels), ("assigned to", self.logins(&issue.assignees)), ("reviewers", self.logins(reviewers))]
        {
            if !names.is_empty() {
                text.push_str(&format!(" · {what}: {}", names.join(", ")));
            }
        }
        text.push_str(&format!("\n\n{}", issue.body.trim_end()));
        for comment in &issue.comments {
            text.push_str(&format!("\n\n{}", self.comment_text(comment)));
        }
        text
    }

    /// Text of a comment. A minimized one is a single line, as people see it.
    fn comment_text(&self, comment: &FakeComment) -> String {
        let author = self.logins(comment.author.as_slice()).join("");
        let summary = match self.setup.dialect {
            Dialect::GitHub => comment.minimized.as_ref().and_then(|_| comment.body.lines().next()),
            Dialect::Gitea => comment.body.strip_prefix("<details>\n<summary>").and_then(|rest| rest.split('<').next()),
        };
        if let Some(summary) = summary {
            let summary = summary.trim_start_matches("### ");
            let summary = summary.split_once(',').map_or(summary, |(start, _percent)| start);
            return format!("─── {author}, folded: {summary}");
        }
        let reactions: Vec<&str> = comment.reactions.iter().map(|reaction| reaction.content.as_str()).collect();
        let reactions = if reactions.is_empty() { String::new() } else { format!(" · {}", reactions.join(", ")) };
        format!("─── {author}{reactions}\n\n{}", comment.body.trim_end())
    }

    fn logins(&self, users: &[UserId]) -> Vec<String> {
        self.forge.with(|state| users.iter().map(|user| state.user(*user).login).collect())
    }
}

fn normalized(text: &str) -> String {
    VARYING.iter().fold(text.to_owned(), |text, (pattern, replacement)| {
        Regex::new(pattern).expect("a pattern").replace_all(&text, *replacement).into_owned()
    })
}
