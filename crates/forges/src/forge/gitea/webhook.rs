//! Converts verified deliveries of Gitea and Forgejo to forge-independent events, without I/O. The event header is not
//! signed, so the shape of the body determines the event.

use ralph_types::failure::Failure;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::map::{self, WireComment, WireIssue, WirePull, WireRepository, WireUser};
use crate::domain::model::event::{ForgeEvent, ReviewVerdict};
use crate::domain::model::ids::{ForgeName, RepoRef, Sha, User};
use crate::forge::ParsedDelivery;
use crate::forge::payload::parse_untrusted;

/// Fields that identify deliveries which are not used.
const UNUSED_FIELDS: [&str; 6] = ["release", "forkee", "package", "page", "workflow", "ref_type"];

/// Event that `parse` handles. The shape of a body determines the event.
struct EventShape {
    /// Description of the shape.
    shape: &'static str,
    /// Whether a body has the shape; the first row that fits is used.
    fits: fn(&GiteaDelivery) -> bool,
    /// Whether an event header belongs to the shape. Headers form families, such as `issues` and `issue_label`, or
    /// `pull_request` and `pull_request_approved`.
    header: fn(&str) -> bool,
    /// Converts a body of this shape.
    convert: fn(GiteaDelivery) -> Result<ParsedDelivery, Failure>,
    /// Events that a webhook subscribes to. `issues` and `pull_request` include comments, labels and reviews.
    subscribed: &'static [&'static str],
    /// Events that a webhook must have, as the server lists them; a name includes events for which it is a prefix.
    needed: &'static [&'static str],
}

/// Handled events. `status` is also needed if the server's version can subscribe to it.
const EVENTS: [EventShape; 9] = [
    EventShape {
        shape: "an issue",
        fits: |body| body.has("issue") && !body.has("comment") && !body.has("pull_request"),
        header: |event| event.starts_with("issue") && !event.ends_with("_comment"),
        convert: issue,
        subscribed: &["issues"],
        needed: &["issues", "issue_label"],
    },
    EventShape {
        shape: "a comment",
        fits: |body| body.has("comment") && body.has("issue"),
        header: |event| event.ends_with("_comment"),
        convert: comment,
        subscribed: &[],
        needed: &["issue_comment", "pull_request_comment"],
    },
    EventShape {
        shape: "a pull request",
        fits: |body| body.has("pull_request") && !body.has("review"),
        header: |event| event.starts_with("pull_request"),
        convert: pull,
        subscribed: &["pull_request"],
        needed: &["pull_request", "pull_request_sync"],
    },
    EventShape {
        shape: "a pull request",
        fits: |body| body.has("pull_request"),
        header: |event| event.starts_with("pull_request"),
        convert: review,
        subscribed: &[],
        needed: &["pull_request_review"],
    },
    EventShape {
        shape: "a push",
        fits: |body| body.has("after") && body.has("ref"),
        header: |event| event == "push",
        convert: push,
        subscribed: &["push"],
        needed: &["push"],
    },
    EventShape {
        shape: "a deletion",
        fits: |body| body.text("ref_type") == "branch" && body.has("pusher_type"),
        header: |_| true,
        convert: deletion,
        subscribed: &["delete"],
        needed: &[],
    },
    EventShape {
        shape: "a workflow",
        fits: |body| body.has("workflow_run") || body.has("workflow_job"),
        header: |_| true,
        convert: workflow,
        subscribed: &["workflow_run"],
        needed: &[],
    },
    EventShape {
        shape: "a status",
        fits: |body| body.has("sha") && body.has("state"),
        header: |_| true,
        convert: status,
        subscribed: &["status"],
        needed: &[],
    },
    EventShape {
        shape: "a repository",
        fits: |body| !body.action.is_empty() && !UNUSED_FIELDS.iter().any(|field| body.fields.contains_key(*field)),
        header: |_| true,
        convert: repository,
        subscribed: &["repository"],
        needed: &[],
    },
];

/// Returns the events that a webhook subscribes to.
pub(super) fn subscribed() -> Vec<&'static str> {
    EVENTS.iter().flat_map(|row| row.subscribed).copied().collect()
}

/// Returns the events that a webhook must have.
pub(super) fn needed() -> Vec<&'static str> {
    EVENTS.iter().flat_map(|row| row.needed).copied().collect()
}

/// Parses a verified body. `event` is the event header, which is used only in messages and for the family check.
pub fn parse(forge: &ForgeName, event: &str, body: &[u8]) -> ParsedDelivery {
    let payload = match parse_untrusted(body) {
        Ok(Value::Object(payload)) => payload,
        Ok(_) => return ParsedDelivery::Malformed("the body is not a JSON object".to_owned()),
        Err(wrong) => return ParsedDelivery::Malformed(format!("{wrong:#}")),
    };
    match read(forge, event, payload) {
        Ok(parsed) => parsed,
        Err(wrong) => ParsedDelivery::Malformed(format!("{} event: {wrong:#}", printable(event))),
    }
}

/// Common fields of all deliveries.
struct GiteaDelivery {
    repo: RepoRef,
    sender: User,
    action: String,
    fields: Map<String, Value>,
}

impl GiteaDelivery {
    fn has(&self, field: &str) -> bool {
        self.fields.get(field).is_some_and(|value| !value.is_null())
    }

    fn take<T: DeserializeOwned>(&mut self, field: &str) -> Result<T, Failure> {
        let value = self.fields.remove(field).ok_or_else(|| format!("the field {field} is missing"))?;
        serde_json::from_value(value).map_err(|error| Failure::new(field).caused_by(error))
    }

    fn text(&self, field: &str) -> &str {
        self.fields.get(field).and_then(Value::as_str).unwrap_or_default()
    }
}

fn read(forge: &ForgeName, event: &str, mut fields: Map<String, Value>) -> Result<ParsedDelivery, Failure> {
    let Some(repository) = fields.remove("repository").filter(|value| !value.is_null()) else {
        return Ok(ParsedDelivery::Ignored(format!("{} event without a repository", printable(event))));
    };
    let repository: WireRepository =
        serde_json::from_value(repository).map_err(|error| Failure::new("repository").caused_by(error))?;
    let repo = repository.reference(forge).ok_or("repository: id or owner is missing")?;
    let sender: Option<WireUser> = fields
        .remove("sender")
        .map_or(Ok(None), serde_json::from_value)
        .map_err(|error| Failure::new("sender").caused_by(error))?;
    let action = match fields.remove("action") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(action)) => action,
        Some(_) => return Err(Failure::new("action: not a string")),
    };
    let sender = sender.map_or_else(map::ghost, WireUser::account);
    let delivery = GiteaDelivery { repo, sender, action, fields };
    let Some(row) = EVENTS.iter().find(|row| (row.fits)(&delivery)) else {
        return Ok(ParsedDelivery::Ignored(format!("{} event is not used", printable(event))));
    };
    if !(row.header)(event) {
        return Err(Failure::new(format!("the header names another event; the body has the shape of {}", row.shape)));
    }
    (row.convert)(delivery)
}

fn deletion(delivery: GiteaDelivery) -> Result<ParsedDelivery, Failure> {
    let branch = delivery.branch()?;
    Ok(event_of(ForgeEvent::Pushed { repo: delivery.repo, branch, after: None, sender: delivery.sender }))
}

fn status(delivery: GiteaDelivery) -> Result<ParsedDelivery, Failure> {
    let sha = Sha::parse(delivery.text("sha")).ok_or("sha: not a commit id")?;
    Ok(event_of(ForgeEvent::ChecksChanged { repo: delivery.repo, sha, branch: None }))
}

fn repository(delivery: GiteaDelivery) -> Result<ParsedDelivery, Failure> {
    Ok(event_of(ForgeEvent::RepositoryChanged { repo: delivery.repo, action: delivery.action }))
}

impl GiteaDelivery {
    /// Whether the event changed the title or body of a pull request. A change of the draft prefix or of the base branch does not
    /// count.
    fn changes_text(&self) -> bool {
        let old = |field: &str| self.fields.get("changes").and_then(|changes| changes[field]["from"].as_str());
        let new_title = self.fields.get("pull_request").and_then(|pull| pull["title"].as_str()).unwrap_or_default();
        let is_renamed = old("title").is_some_and(|old| map::ready_title(old) != map::ready_title(new_title));
        (is_renamed || old("body").is_some()) && old("ref").is_none()
    }

    /// Returns the branch of a `delete` event.
    fn branch(&self) -> Result<String, Failure> {
        let name = self.text("ref");
        let branch = name.strip_prefix("refs/heads/").unwrap_or(name);
        if branch.is_empty() { Err(Failure::new("ref: empty")) } else { Ok(branch.to_owned()) }
    }
}

fn comment(mut delivery: GiteaDelivery) -> Result<ParsedDelivery, Failure> {
    if delivery.action != "created" {
        return Ok(ignored("comment", &delivery.action));
    }
    let is_pull = delivery.fields.get("is_pull") == Some(&Value::Bool(true));
    let mut issue = delivery.take::<WireIssue>("issue")?.snapshot();
    issue.is_pull |= is_pull;
    let comment = delivery.take::<WireComment>("comment")?.snapshot();
    Ok(event_of(ForgeEvent::CommentCreated { repo: delivery.repo, issue, comment, sender: delivery.sender }))
}

fn issue(mut delivery: GiteaDelivery) -> Result<ParsedDelivery, Failure> {
    let issue: WireIssue = delivery.take("issue")?;
    let GiteaDelivery { repo, sender, action, .. } = delivery;
    let number = issue.number();
    let issue = issue.snapshot();
    Ok(event_of(match action.as_str() {
        "opened" => ForgeEvent::IssueOpened { repo, issue, sender },
        "edited" => ForgeEvent::IssueEdited { repo, issue, sender },
        "closed" => ForgeEvent::IssueClosed { repo, issue, sender },
        "reopened" => ForgeEvent::IssueReopened { repo, issue, sender },
        "deleted" => ForgeEvent::IssueGone { repo, number, sender },
        "label_updated" | "label_cleared" => ForgeEvent::LabelSet { repo, issue, sender },
        other => return Ok(ignored("issue", other)),
    }))
}

fn pull(mut delivery: GiteaDelivery) -> Result<ParsedDelivery, Failure> {
    match delivery.action.as_str() {
        "label_updated" | "label_cleared" => {
            let issue = delivery.take::<WirePull>("pull_request")?.issue();
            Ok(event_of(ForgeEvent::LabelSet { repo: delivery.repo, issue, sender: delivery.sender }))
        }
        "edited" if delivery.changes_text() => {
            let issue = delivery.take::<WirePull>("pull_request")?.issue();
            Ok(event_of(ForgeEvent::IssueEdited { repo: delivery.repo, issue, sender: delivery.sender }))
        }
        "opened" | "edited" | "closed" | "reopened" | "synchronized" => {
            let pull = delivery.take::<WirePull>("pull_request")?;
            let pull = pull.snapshot().ok_or("pull_request: no head commit")?;
            Ok(event_of(ForgeEvent::PullChanged { repo: delivery.repo, pull, sender: delivery.sender }))
        }
        other => Ok(ignored("pull request", other)),
    }
}

/// Type and text of a review; its author is the sender.
#[derive(Deserialize)]
struct WireVerdict {
    #[serde(rename = "type")]
    kind: String,
    content: Option<String>,
}

fn review(mut delivery: GiteaDelivery) -> Result<ParsedDelivery, Failure> {
    if delivery.action != "reviewed" {
        return Ok(ignored("review", &delivery.action));
    }
    let review: WireVerdict = delivery.take("review")?;
    // Old servers send `pull_request_approved`, newer ones `pull_request_review_approved`.
    let verdict = match review.kind.trim_start_matches("pull_request_").trim_start_matches("review_") {
        "approved" => ReviewVerdict::Approved,
        "rejected" => ReviewVerdict::ChangesRequested,
        "comment" => ReviewVerdict::Commented,
        _ => return Ok(ignored("review of type", &review.kind)),
    };
    let pull: WirePull = delivery.take("pull_request")?;
    let at = pull.updated_at();
    let pull = pull.snapshot().ok_or("pull_request: no head commit")?;
    let body = review.content.unwrap_or_default();
    let GiteaDelivery { repo, sender, .. } = delivery;
    Ok(event_of(ForgeEvent::ReviewSubmitted { repo, pull, id: None, verdict, body, sender, at }))
}

fn push(delivery: GiteaDelivery) -> Result<ParsedDelivery, Failure> {
    let Some(branch) = delivery.text("ref").strip_prefix("refs/heads/").filter(|branch| !branch.is_empty()) else {
        return Ok(ParsedDelivery::Ignored("the push is not to a branch".to_owned()));
    };
    let after = Sha::parse(delivery.text("after")).ok_or("after: not a commit id")?;
    let deleted = after.as_str().bytes().all(|b| b == b'0');
    let branch = branch.to_owned();
    let after = (!deleted).then_some(after);
    Ok(event_of(ForgeEvent::Pushed { repo: delivery.repo, branch, after, sender: delivery.sender }))
}

fn workflow(delivery: GiteaDelivery) -> Result<ParsedDelivery, Failure> {
    if delivery.action != "completed" {
        return Ok(ignored("workflow", &delivery.action));
    }
    let run = delivery.fields.get("workflow_run").filter(|run| !run.is_null());
    let run = run.or_else(|| delivery.fields.get("workflow_job"));
    let field = |name: &str| run.and_then(|run| run.get(name)).and_then(Value::as_str);
    let sha = field("head_sha").and_then(Sha::parse).ok_or("head_sha: not a commit id")?;
    let branch = field("head_branch").filter(|branch| !branch.is_empty()).map(str::to_owned);
    Ok(event_of(ForgeEvent::ChecksChanged { repo: delivery.repo, sha, branch }))
}

fn event_of(event: ForgeEvent) -> ParsedDelivery {
    ParsedDelivery::Event(Box::new(event))
}

fn ignored(what: &str, action: &str) -> ParsedDelivery {
    ParsedDelivery::Ignored(format!("{what} {:?} is not used", printable(action)))
}

/// Returns a text that is safe in logs: at most 60 characters, without control characters.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(60).collect()
}
