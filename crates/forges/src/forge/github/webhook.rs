//! Converts verified GitHub deliveries to forge-independent events, without I/O.
//!
//! The event header is not signed, so the shape of the body determines the event. A delivery with a different header
//! is rejected.

use ralph_types::failure::Failure;
use serde::Deserialize;
use serde_json::Value;

use super::wire::{self, moment};
use crate::domain::model::event::{ForgeEvent, IssueSnapshot, ReviewVerdict};
use crate::domain::model::ids::{ForgeName, RepoRef, Sha, User};
use crate::forge::{ParsedDelivery, VERIFIED_STATUS, payload};

/// Event that `parse` handles. The shape of a body determines the event.
pub(super) struct EventRow {
    /// Name in the event header.
    pub(super) name: &'static str,
    /// Whether a body has the event's shape.
    fits: fn(&DeliveryShape<'_>) -> bool,
    /// Converts a body of this shape.
    convert: fn(&ForgeName, Value) -> ParseResult,
}

/// Events that a webhook subscribes to.
const SUBSCRIBED: [EventRow; 11] = [
    EventRow {
        name: "check_run",
        fits: |shape| shape.subject == "check_run",
        convert: |forge, body| checks(forge, typed(body)?),
    },
    EventRow {
        name: "check_suite",
        fits: |shape| shape.subject == "check_suite",
        convert: |forge, body| checks(forge, typed(body)?),
    },
    EventRow {
        name: "issue_comment",
        fits: |shape| shape.subject == "issue" && shape.object("comment"),
        convert: |forge, body| issue_comment(forge, typed(body)?),
    },
    EventRow {
        name: "issues",
        fits: |shape| shape.subject == "issue" && !shape.object("comment"),
        convert: |forge, body| issues(forge, typed(body)?),
    },
    EventRow {
        name: "pull_request",
        fits: |shape| shape.subject == "pull_request" && !shape.object("review") && !shape.object("comment"),
        convert: |forge, body| pull_request(forge, typed(body)?),
    },
    EventRow {
        name: "pull_request_review",
        fits: |shape| shape.subject == "pull_request" && shape.object("review"),
        convert: |forge, body| review(forge, typed(body)?),
    },
    EventRow {
        name: "pull_request_review_comment",
        fits: |shape| shape.subject == "pull_request" && !shape.object("review") && shape.object("comment"),
        convert: |forge, body| review_comment(forge, typed(body)?),
    },
    EventRow { name: "push", fits: |shape| shape.subject == "push", convert: |forge, body| push(forge, typed(body)?) },
    EventRow {
        name: "repository",
        fits: |shape| shape.subject == "repository" && describes_only_repository(shape.body),
        convert: |forge, body| repository(forge, typed(body)?),
    },
    EventRow {
        name: "status",
        fits: |shape| shape.subject == "status",
        convert: |forge, body| status(forge, typed(body)?),
    },
    EventRow {
        name: "workflow_run",
        fits: |shape| shape.subject == "workflow_run",
        convert: |forge, body| checks(forge, typed(body)?),
    },
];

/// Events that every App receives without a subscription.
pub(super) const IMPLICIT: [EventRow; 3] = [
    EventRow {
        name: "installation",
        fits: |shape| shape.subject == "installation",
        convert: |_, body| installation("", typed(body)?),
    },
    EventRow {
        name: "installation_repositories",
        fits: |shape| shape.subject == "installation_repositories",
        convert: |_, body| installation("repositories_", typed(body)?),
    },
    EventRow {
        name: "ping",
        fits: |shape| shape.subject == "ping",
        convert: |_, _| Ok(ParsedDelivery::Ignored("ping".to_owned())),
    },
];

/// Names of the events that a webhook subscribes to.
pub(super) const SUBSCRIBED_NAMES: [&str; SUBSCRIBED.len()] = {
    let mut names = [""; SUBSCRIBED.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = SUBSCRIBED[at].name;
        at += 1;
    }
    names
};

/// Returns the rows of all handled events.
fn rows() -> impl Iterator<Item = EventRow> {
    SUBSCRIBED.into_iter().chain(IMPLICIT)
}

/// Body with its subject: the object that the event is about.
struct DeliveryShape<'a> {
    body: &'a Value,
    subject: &'static str,
}

impl<'a> DeliveryShape<'a> {
    fn of(body: &'a Value) -> Self {
        let has = |key: &str| body.get(key).is_some_and(|value| !value.is_null());
        let object = |key: &str| body.get(key).is_some_and(Value::is_object);
        let unused = ["deployment", "deployment_status", "workflow_job", "thread"];
        let objects = ["check_run", "check_suite", "workflow_run", "pull_request", "issue"];
        let subject = if unused.into_iter().any(has) {
            ""
        } else if let Some(subject) = objects.into_iter().find(|key| object(key)) {
            subject
        } else if has("zen") && object("hook") {
            "ping"
        } else if has("sha") && has("context") && has("state") {
            "status"
        } else if has("ref") && has("before") && has("after") {
            "push"
        } else if object("installation") && body.get("repositories_added").is_some_and(Value::is_array) {
            "installation_repositories"
        } else if has("action") && object("repository") {
            "repository"
        } else if has("action") && body.pointer("/installation/account").is_some() {
            "installation"
        } else {
            ""
        };
        Self { body, subject }
    }

    fn object(&self, key: &str) -> bool {
        self.body.get(key).is_some_and(Value::is_object)
    }
}

/// Parsed delivery, or a description of the problem.
type ParseResult = Result<ParsedDelivery, Failure>;

/// Parses a delivery of the forge named `forge`.
pub fn parse(forge: &ForgeName, event: &str, body: &[u8]) -> ParsedDelivery {
    if event == "merge_group" {
        return ParsedDelivery::Ignored("a merge queue tests a group of pull requests".to_owned());
    }
    let Some(row) = rows().find(|row| row.name == event) else {
        return ParsedDelivery::Ignored(format!("event {} is not used", printable(event)));
    };
    let value = match payload::parse_untrusted(body) {
        Ok(value) => value,
        Err(wrong) => return ParsedDelivery::Malformed(format!("{wrong:#}")),
    };
    let shape = DeliveryShape::of(&value);
    if !(row.fits)(&shape) {
        let other = rows().find(|row| (row.fits)(&shape));
        return ParsedDelivery::Malformed(match other {
            Some(other) => format!("the header names `{event}`, the body has the shape of `{}`", other.name),
            None => format!("the header names `{event}`, the body does not have its shape"),
        });
    }
    (row.convert)(forge, value).unwrap_or_else(|wrong| ParsedDelivery::Malformed(format!("`{event}`: {wrong:#}")))
}

/// Returns the installation that a body names; `None` if it names none.
pub(super) fn named_installation(body: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct NamedInstallation {
        id: u64,
    }
    #[derive(Deserialize)]
    struct InstallationOf {
        installation: Option<NamedInstallation>,
    }
    serde_json::from_slice::<InstallationOf>(body).ok()?.installation.map(|named| named.id)
}

/// Returns a word that is safe in logs: at most 60 ASCII characters.
fn printable(word: &str) -> String {
    let plain: String = word.chars().take(60).map(|c| if c.is_ascii_graphic() { c } else { '?' }).collect();
    format!("`{plain}`")
}

/// Whether the body describes only a repository. Many unused events consist of an action, a repository and their own
/// object. Without this check, a removed star would look like a deleted repository.
fn describes_only_repository(body: &Value) -> bool {
    const EXPECTED: &[&str] = &["repository", "sender", "organization", "enterprise", "installation", "changes"];
    let described = |(key, value): (&String, &Value)| value.is_object() && !EXPECTED.contains(&key.as_str());
    let fields = body.as_object();
    fields.is_some_and(|fields| !fields.contains_key("starred_at") && !fields.iter().any(described))
}

fn typed<T: serde::de::DeserializeOwned>(body: Value) -> Result<T, Failure> {
    serde_json::from_value(body).map_err(|error| Failure::new("a field is not valid").caused_by(error))
}

fn event(event: ForgeEvent) -> ParseResult {
    Ok(ParsedDelivery::Event(Box::new(event)))
}

fn unused_action(action: &str) -> ParseResult {
    Ok(ParsedDelivery::Ignored(format!("action {} is not used", printable(action))))
}

#[derive(Deserialize)]
struct IssuesBody {
    action: String,
    issue: wire::GitHubIssue,
    label: Option<wire::GitHubLabel>,
    repository: wire::GitHubRepository,
    sender: wire::GitHubUser,
}

fn issues(forge: &ForgeName, body: IssuesBody) -> ParseResult {
    let (repo, sender) = (body.repository.reference(forge)?, body.sender.account());
    let issue = body.issue.snapshot()?;
    match body.action.as_str() {
        "opened" => event(ForgeEvent::IssueOpened { repo, issue, sender }),
        "edited" => event(ForgeEvent::IssueEdited { repo, issue, sender }),
        "closed" => event(ForgeEvent::IssueClosed { repo, issue, sender }),
        "reopened" => event(ForgeEvent::IssueReopened { repo, issue, sender }),
        "deleted" | "transferred" => event(ForgeEvent::IssueGone { repo, number: issue.number, sender }),
        "labeled" | "unlabeled" => event(label_event(
            body.action == "labeled",
            body.label.and_then(wire::GitHubLabel::name),
            repo,
            issue,
            sender,
        )),
        other => unused_action(other),
    }
}

/// Returns the event of a label change. GitHub omits a label that was deleted in the meantime; then only the resulting
/// set of labels is known.
fn label_event(added: bool, label: Option<String>, repo: RepoRef, issue: IssueSnapshot, sender: User) -> ForgeEvent {
    match label {
        Some(label) if added => ForgeEvent::Labeled { repo, issue, label, sender },
        Some(label) => ForgeEvent::Unlabeled { repo, issue, label, sender },
        None => ForgeEvent::LabelSet { repo, issue, sender },
    }
}

#[derive(Deserialize)]
struct CommentBody {
    action: String,
    issue: wire::GitHubIssue,
    comment: wire::GitHubComment,
    repository: wire::GitHubRepository,
    sender: wire::GitHubUser,
}

fn issue_comment(forge: &ForgeName, body: CommentBody) -> ParseResult {
    match body.action.as_str() {
        "created" => event(ForgeEvent::CommentCreated {
            repo: body.repository.reference(forge)?,
            issue: body.issue.snapshot()?,
            comment: body.comment.snapshot()?,
            sender: body.sender.account(),
        }),
        "edited" => Ok(ParsedDelivery::Ignored("edited comments are not commands".to_owned())),
        "deleted" => Ok(ParsedDelivery::Ignored("deleted comments have no effect".to_owned())),
        other => unused_action(other),
    }
}

#[derive(Deserialize)]
struct PullBody {
    action: String,
    pull_request: wire::GitHubPull,
    repository: wire::GitHubRepository,
    sender: wire::GitHubUser,
}

fn pull_request(forge: &ForgeName, body: PullBody) -> ParseResult {
    match body.action.as_str() {
        "opened"
        | "closed"
        | "reopened"
        | "synchronize"
        | "ready_for_review"
        | "converted_to_draft"
        | "edited"
        | "enqueued"
        | "dequeued"
        | "auto_merge_enabled"
        | "auto_merge_disabled" => event(ForgeEvent::PullChanged {
            repo: body.repository.reference(forge)?,
            pull: body.pull_request.snapshot()?,
            sender: body.sender.account(),
        }),
        other => unused_action(other),
    }
}

#[derive(Deserialize)]
struct ReviewBody {
    action: String,
    review: wire::GitHubReview,
    pull_request: wire::GitHubPull,
    repository: wire::GitHubRepository,
    sender: wire::GitHubUser,
}

fn review(forge: &ForgeName, body: ReviewBody) -> ParseResult {
    let verdict = match body.action.as_str() {
        "submitted" => body.review.verdict().ok_or("the review has an unknown state")?,
        "dismissed" => ReviewVerdict::Dismissed,
        "edited" => return Ok(ParsedDelivery::Ignored("edited reviews are not commands".to_owned())),
        other => return unused_action(other),
    };
    let at = body.review.submitted_at.as_deref().or(body.pull_request.updated_at.as_deref());
    let at = moment(at.ok_or("the review has no time")?)?;
    event(ForgeEvent::ReviewSubmitted {
        repo: body.repository.reference(forge)?,
        pull: body.pull_request.snapshot()?,
        id: Some(body.review.id),
        verdict,
        body: body.review.body.unwrap_or_default(),
        sender: body.sender.account(),
        at,
    })
}

#[derive(Deserialize)]
struct ReviewCommentBody {
    action: String,
    comment: wire::GitHubComment,
    pull_request: wire::GitHubPull,
    repository: wire::GitHubRepository,
    sender: wire::GitHubUser,
}

fn review_comment(forge: &ForgeName, mut body: ReviewCommentBody) -> ParseResult {
    match body.action.as_str() {
        "created" => event(ForgeEvent::ReviewCommented {
            repo: body.repository.reference(forge)?,
            pull: body.pull_request.snapshot()?,
            path: body.comment.path.take(),
            comment: body.comment.snapshot()?,
            sender: body.sender.account(),
        }),
        "edited" => Ok(ParsedDelivery::Ignored("edited comments are not commands".to_owned())),
        "deleted" => Ok(ParsedDelivery::Ignored("deleted comments have no effect".to_owned())),
        other => unused_action(other),
    }
}

#[derive(Deserialize)]
struct CheckSubject {
    name: Option<String>,
    head_sha: Option<String>,
    head_branch: Option<String>,
    check_suite: Option<Box<CheckSubject>>,
}

#[derive(Deserialize)]
struct ChecksBody {
    action: String,
    #[serde(alias = "check_suite", alias = "workflow_run")]
    check_run: CheckSubject,
    repository: wire::GitHubRepository,
}

fn checks(forge: &ForgeName, body: ChecksBody) -> ParseResult {
    if body.action != "completed" {
        return unused_action(&body.action);
    }
    let run = body.check_run;
    if run.name.as_deref() == Some(VERIFIED_STATUS) {
        return own_status();
    }
    let sha = run.head_sha.as_deref().and_then(Sha::parse).ok_or("the delivery names no commit")?;
    let branch = run.head_branch.or_else(|| run.check_suite.and_then(|suite| suite.head_branch));
    if branch.as_deref().is_some_and(is_of_merge_queue) {
        return Ok(ParsedDelivery::Ignored(
            "the commit is a group of a merge queue, not a commit of a branch".to_owned(),
        ));
    }
    event(ForgeEvent::ChecksChanged { repo: body.repository.reference(forge)?, sha, branch })
}

/// Whether a branch belongs to GitHub's merge queue. CI results of such a branch do not apply to a loop's commit.
fn is_of_merge_queue(branch: &str) -> bool {
    branch.starts_with("gh-readonly-queue/")
}

fn own_status() -> ParseResult {
    Ok(ParsedDelivery::Ignored("it is the status that the bot sets".to_owned()))
}

#[derive(Deserialize)]
struct StatusBranch {
    name: String,
    commit: Option<StatusCommit>,
}

#[derive(Deserialize)]
struct StatusCommit {
    sha: Option<String>,
}

#[derive(Deserialize)]
struct StatusBody {
    sha: String,
    context: Option<String>,
    branches: Option<Vec<StatusBranch>>,
    repository: wire::GitHubRepository,
}

/// Converts a commit status. Its branch is the one whose head is the commit.
fn status(forge: &ForgeName, body: StatusBody) -> ParseResult {
    if body.context.as_deref() == Some(VERIFIED_STATUS) {
        return own_status();
    }
    let sha = Sha::parse(&body.sha).ok_or("the delivery names no commit")?;
    let is_head = |branch: &StatusBranch| {
        branch.commit.as_ref().and_then(|commit| commit.sha.as_deref()).and_then(Sha::parse).as_ref() == Some(&sha)
    };
    let branch = body.branches.unwrap_or_default().into_iter().find(is_head).map(|branch| branch.name);
    event(ForgeEvent::ChecksChanged { repo: body.repository.reference(forge)?, branch, sha })
}

#[derive(Deserialize)]
struct PushBody {
    #[serde(rename = "ref")]
    reference: String,
    after: String,
    deleted: Option<bool>,
    repository: wire::GitHubRepository,
    sender: wire::GitHubUser,
}

fn push(forge: &ForgeName, body: PushBody) -> ParseResult {
    let Some(branch) = body.reference.strip_prefix("refs/heads/").filter(|branch| !is_of_merge_queue(branch)) else {
        return Ok(ParsedDelivery::Ignored("the push is not to a branch of people".to_owned()));
    };
    let deleted = body.deleted.unwrap_or(false) || body.after.bytes().all(|b| b == b'0');
    let after = match deleted {
        true => None,
        false => Some(Sha::parse(&body.after).ok_or("the delivery names no commit")?),
    };
    event(ForgeEvent::Pushed {
        repo: body.repository.reference(forge)?,
        branch: branch.to_owned(),
        after,
        sender: body.sender.account(),
    })
}

#[derive(Deserialize)]
struct RepositoryChanges {
    default_branch: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct RepositoryBody {
    action: String,
    changes: Option<RepositoryChanges>,
    repository: wire::GitHubRepository,
}

fn repository(forge: &ForgeName, body: RepositoryBody) -> ParseResult {
    match body.action.as_str() {
        "renamed" | "transferred" | "archived" | "unarchived" | "deleted" | "publicized" | "privatized" => {}
        "edited" if body.changes.is_some_and(|changes| changes.default_branch.is_some()) => {}
        other => return unused_action(other),
    }
    event(ForgeEvent::RepositoryChanged { repo: body.repository.reference(forge)?, action: body.action })
}

#[derive(Deserialize)]
struct InstallationBody {
    action: String,
}

/// Converts a change of an installation. `prefix` distinguishes actions on the installation's repositories from
/// actions on the installation.
fn installation(prefix: &str, body: InstallationBody) -> ParseResult {
    event(ForgeEvent::InstallationChanged { action: format!("{prefix}{}", body.action) })
}

#[cfg(test)]
mod tests;
