//! Reads verified GitHub deliveries into neutral events; pure.
//!
//! The event header is not covered by the signature, so the body's shape decides what a delivery is: a header that
//! names another event than the shape is refused, whoever changed it.

use serde::Deserialize;
use serde_json::Value;

use super::wire::{self, moment};
use crate::domain::model::event::{ForgeEvent, IssueSnapshot, ReviewVerdict};
use crate::domain::model::ids::{ForgeName, RepoRef, Sha, User};
use crate::forge::{Parsed, payload};

/// Events that `parse` reads, besides those that every App gets unasked.
pub(super) const HANDLED: &[&str] = &[
    "check_run",
    "check_suite",
    "issue_comment",
    "issues",
    "pull_request",
    "pull_request_review",
    "pull_request_review_comment",
    "push",
    "repository",
    "status",
    "workflow_run",
];

/// Events that every App gets without asking for them.
pub(super) const IMPLICIT: &[&str] = &["installation", "installation_repositories", "ping"];

/// What a reader of one event makes of the body; the error is what was wrong with it.
type Outcome = Result<Parsed, String>;

/// Reads one delivery of the forge named `forge`.
pub(super) fn parse(forge: &ForgeName, event: &str, body: &[u8]) -> Parsed {
    if !HANDLED.contains(&event) && !IMPLICIT.contains(&event) {
        return Parsed::Ignored(format!("event {} is of no interest", shown(event)));
    }
    let value = match payload::guard(body) {
        Ok(value) => value,
        Err(wrong) => return Parsed::Malformed(wrong),
    };
    match shape(&value) {
        Some(found) if found == event => {}
        Some(found) => {
            return Parsed::Malformed(format!("the header says `{event}`, the body has the shape of `{found}`"));
        }
        None => return Parsed::Malformed(format!("the header says `{event}`, the body does not have its shape")),
    }
    read(forge, event, value).unwrap_or_else(|wrong| Parsed::Malformed(format!("`{event}`: {wrong}")))
}

/// A foreign word in a form that is safe in logs.
fn shown(word: &str) -> String {
    let plain: String = word.chars().take(60).map(|c| if c.is_ascii_graphic() { c } else { '?' }).collect();
    format!("`{plain}`")
}

/// Which event a body is, by the objects at its top; `None` for shapes that none of our events has.
fn shape(body: &Value) -> Option<&'static str> {
    let has = |key: &str| body.get(key).is_some_and(|value| !value.is_null());
    let object = |key: &str| body.get(key).is_some_and(Value::is_object);
    if has("deployment") || has("deployment_status") || has("workflow_job") || has("thread") {
        return None;
    }
    if object("check_run") {
        return Some("check_run");
    }
    if object("check_suite") {
        return Some("check_suite");
    }
    if object("workflow_run") {
        return Some("workflow_run");
    }
    if object("pull_request") {
        return Some(match (object("review"), object("comment")) {
            (true, _) => "pull_request_review",
            (false, true) => "pull_request_review_comment",
            (false, false) => "pull_request",
        });
    }
    if object("issue") {
        return Some(if object("comment") { "issue_comment" } else { "issues" });
    }
    if has("zen") && object("hook") {
        return Some("ping");
    }
    if has("sha") && has("context") && has("state") {
        return Some("status");
    }
    if has("ref") && has("before") && has("after") {
        return Some("push");
    }
    if object("installation") && body.get("repositories_added").is_some_and(Value::is_array) {
        return Some("installation_repositories");
    }
    if has("action") && object("repository") {
        return only_repository(body).then_some("repository");
    }
    (has("action") && body.pointer("/installation/account").is_some()).then_some("installation")
}

/// Whether nothing else is described than the repository: many events of no interest have an action and a repository
/// besides the thing that they are about, and a star that was taken back would read as a deleted repository.
fn only_repository(body: &Value) -> bool {
    const EXPECTED: &[&str] = &["repository", "sender", "organization", "enterprise", "installation", "changes"];
    let described = |(key, value): (&String, &Value)| value.is_object() && !EXPECTED.contains(&key.as_str());
    let fields = body.as_object();
    fields.is_some_and(|fields| !fields.contains_key("starred_at") && !fields.iter().any(described))
}

fn read(forge: &ForgeName, event: &str, body: Value) -> Outcome {
    match event {
        "issues" => issues(forge, of(body)?),
        "issue_comment" => issue_comment(forge, of(body)?),
        "pull_request" => pull_request(forge, of(body)?),
        "pull_request_review" => review(forge, of(body)?),
        "pull_request_review_comment" => review_comment(forge, of(body)?),
        "check_run" | "check_suite" | "workflow_run" => checks(forge, of(body)?),
        "status" => status(forge, of(body)?),
        "push" => push(forge, of(body)?),
        "repository" => repository(forge, of(body)?),
        "installation" => installation("", of(body)?),
        "installation_repositories" => installation("repositories_", of(body)?),
        "ping" => Ok(Parsed::Ignored("a ping: the webhook works".to_owned())),
        _ => Ok(Parsed::Ignored(format!("event {} is of no interest", shown(event)))),
    }
}

fn of<T: serde::de::DeserializeOwned>(body: Value) -> Result<T, String> {
    serde_json::from_value(body).map_err(|error| error.to_string())
}

fn event(event: ForgeEvent) -> Outcome {
    Ok(Parsed::Event(Box::new(event)))
}

fn no_interest(action: &str) -> Outcome {
    Ok(Parsed::Ignored(format!("action {} is of no interest", shown(action))))
}

#[derive(Deserialize)]
struct IssuesBody {
    action: String,
    issue: wire::Issue,
    label: Option<wire::Label>,
    repository: wire::Repository,
    sender: wire::User,
}

fn issues(forge: &ForgeName, body: IssuesBody) -> Outcome {
    let (repo, sender) = (body.repository.reference(forge)?, body.sender.account());
    let issue = body.issue.snapshot()?;
    match body.action.as_str() {
        "opened" => event(ForgeEvent::IssueOpened { repo, issue, sender }),
        "edited" => event(ForgeEvent::IssueEdited { repo, issue, sender }),
        "closed" => event(ForgeEvent::IssueClosed { repo, issue, sender }),
        "reopened" => event(ForgeEvent::IssueReopened { repo, issue, sender }),
        "deleted" | "transferred" => event(ForgeEvent::IssueGone { repo, number: issue.number, sender }),
        "labeled" | "unlabeled" => {
            event(label_event(body.action == "labeled", body.label.and_then(wire::Label::name), repo, issue, sender))
        }
        other => no_interest(other),
    }
}

/// GitHub leaves the label out where it was deleted meanwhile; then only the set is known.
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
    issue: wire::Issue,
    comment: wire::Comment,
    repository: wire::Repository,
    sender: wire::User,
}

fn issue_comment(forge: &ForgeName, body: CommentBody) -> Outcome {
    match body.action.as_str() {
        "created" => event(ForgeEvent::CommentCreated {
            repo: body.repository.reference(forge)?,
            issue: body.issue.snapshot()?,
            comment: body.comment.snapshot()?,
            sender: body.sender.account(),
        }),
        "edited" => Ok(Parsed::Ignored("an edited comment is never a command".to_owned())),
        "deleted" => Ok(Parsed::Ignored("a deleted comment changes nothing".to_owned())),
        other => no_interest(other),
    }
}

#[derive(Deserialize)]
struct PullBody {
    action: String,
    pull_request: wire::Pull,
    repository: wire::Repository,
    sender: wire::User,
}

fn pull_request(forge: &ForgeName, body: PullBody) -> Outcome {
    match body.action.as_str() {
        "opened" | "closed" | "reopened" | "synchronize" | "ready_for_review" | "converted_to_draft" | "edited" => {
            event(ForgeEvent::PullChanged {
                repo: body.repository.reference(forge)?,
                pull: body.pull_request.snapshot()?,
                sender: body.sender.account(),
            })
        }
        other => no_interest(other),
    }
}

#[derive(Deserialize)]
struct ReviewBody {
    action: String,
    review: wire::Review,
    pull_request: wire::Pull,
    repository: wire::Repository,
    sender: wire::User,
}

fn review(forge: &ForgeName, body: ReviewBody) -> Outcome {
    let verdict = match body.action.as_str() {
        "submitted" => body.review.verdict().ok_or("a review of unknown state")?,
        "dismissed" => ReviewVerdict::Dismissed,
        "edited" => return Ok(Parsed::Ignored("an edited review is never a command".to_owned())),
        other => return no_interest(other),
    };
    let at = body.review.submitted_at.as_deref().or(body.pull_request.updated_at.as_deref());
    let at = moment(at.ok_or("the review has no moment")?)?;
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
    comment: wire::Comment,
    pull_request: wire::Pull,
    repository: wire::Repository,
    sender: wire::User,
}

fn review_comment(forge: &ForgeName, mut body: ReviewCommentBody) -> Outcome {
    match body.action.as_str() {
        "created" => event(ForgeEvent::ReviewCommented {
            repo: body.repository.reference(forge)?,
            pull: body.pull_request.snapshot()?,
            path: body.comment.path.take(),
            comment: body.comment.snapshot()?,
            sender: body.sender.account(),
        }),
        "edited" => Ok(Parsed::Ignored("an edited comment is never a command".to_owned())),
        "deleted" => Ok(Parsed::Ignored("a deleted comment changes nothing".to_owned())),
        other => no_interest(other),
    }
}

#[derive(Deserialize)]
struct Suite {
    head_sha: Option<String>,
    head_branch: Option<String>,
    check_suite: Option<Box<Suite>>,
}

#[derive(Deserialize)]
struct ChecksBody {
    action: String,
    #[serde(alias = "check_suite", alias = "workflow_run")]
    check_run: Suite,
    repository: wire::Repository,
}

fn checks(forge: &ForgeName, body: ChecksBody) -> Outcome {
    if body.action != "completed" {
        return no_interest(&body.action);
    }
    let run = body.check_run;
    let sha = run.head_sha.as_deref().and_then(Sha::parse).ok_or("no commit is named")?;
    let branch = run.head_branch.or_else(|| run.check_suite.and_then(|suite| suite.head_branch));
    event(ForgeEvent::ChecksChanged { repo: body.repository.reference(forge)?, sha, branch })
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
    branches: Option<Vec<StatusBranch>>,
    repository: wire::Repository,
}

/// Of the branches that hold the commit, the one whose head it is.
fn status(forge: &ForgeName, body: StatusBody) -> Outcome {
    let sha = Sha::parse(&body.sha).ok_or("no commit is named")?;
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
    repository: wire::Repository,
    sender: wire::User,
}

fn push(forge: &ForgeName, body: PushBody) -> Outcome {
    let Some(branch) = body.reference.strip_prefix("refs/heads/") else {
        return Ok(Parsed::Ignored("a push to something that is no branch".to_owned()));
    };
    let gone = body.deleted.unwrap_or(false) || body.after.bytes().all(|b| b == b'0');
    let after = match gone {
        true => None,
        false => Some(Sha::parse(&body.after).ok_or("no commit is named")?),
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
    repository: wire::Repository,
}

fn repository(forge: &ForgeName, body: RepositoryBody) -> Outcome {
    match body.action.as_str() {
        "renamed" | "transferred" | "archived" | "unarchived" | "deleted" | "publicized" | "privatized" => {}
        "edited" if body.changes.is_some_and(|changes| changes.default_branch.is_some()) => {}
        other => return no_interest(other),
    }
    event(ForgeEvent::RepositoryChanged { repo: body.repository.reference(forge)?, action: body.action })
}

#[derive(Deserialize)]
struct InstallationBody {
    action: String,
}

/// `prefix` tells `added` and `removed` of an installation's repositories from the installation's own actions.
fn installation(prefix: &str, body: InstallationBody) -> Outcome {
    event(ForgeEvent::InstallationChanged { action: format!("{prefix}{}", body.action) })
}

#[cfg(test)]
mod tests;
