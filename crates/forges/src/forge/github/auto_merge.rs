//! Automatic merging of pull requests by GitHub (auto-merge), which is available only in GraphQL.

use async_trait::async_trait;
use http::Method;
use ralph_types::failure::Failure;
use serde::Deserialize;
use serde_json::{Value, json};

use super::GitHub;
use super::client::ApiCall;
use crate::domain::loops::MergeAnswer;
use crate::domain::model::ids::{Number, RepoRef, Sha};
use crate::forge::http::error;
use crate::forge::{AutoMerge, ForgeError, ForgeErrorKind, ForgeResult};

/// Query for the settings of a repository and the state of a pull request.
const SETTINGS: &str = "query($owner: String!, $name: String!, $number: Int!) { repository(owner: $owner, name: $name) { \
    autoMergeAllowed viewerDefaultMergeMethod mergeCommitAllowed squashMergeAllowed rebaseMergeAllowed \
    pullRequest(number: $number) { id headRefOid merged autoMergeRequest { enabledAt } } } }";
/// Query that checks whether GitHub will still merge a pull request, and returns the last event that ended it.
const STILL_MERGES: &str = "query($owner: String!, $name: String!, $number: Int!) { repository(owner: $owner, name: $name) { \
    pullRequest(number: $number) { merged isInMergeQueue autoMergeRequest { enabledAt } \
    timelineItems(last: 1, itemTypes: [AUTO_MERGE_DISABLED_EVENT, REMOVED_FROM_MERGE_QUEUE_EVENT]) { nodes { __typename \
    ... on AutoMergeDisabledEvent { actor { login } reason } \
    ... on RemovedFromMergeQueueEvent { actor { login } reason } } } } } }";
/// Mutation that enables auto-merge for a commit.
const ENABLE: &str = "mutation($id: ID!, $method: PullRequestMergeMethod!, $head: GitObjectID!) { \
    enablePullRequestAutoMerge(input: { pullRequestId: $id, mergeMethod: $method, expectedHeadOid: $head }) { \
    pullRequest { id } } }";
/// Mutation that disables auto-merge.
const DISABLE: &str =
    "mutation($id: ID!) { disablePullRequestAutoMerge(input: { pullRequestId: $id }) { pullRequest { id } } }";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MergeSettings {
    auto_merge_allowed: bool,
    viewer_default_merge_method: String,
    merge_commit_allowed: bool,
    squash_merge_allowed: bool,
    rebase_merge_allowed: bool,
    pull_request: MergeablePull,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MergeablePull {
    id: String,
    head_ref_oid: String,
    merged: bool,
    auto_merge_request: Option<Value>,
}

impl MergeSettings {
    /// Returns the account's last used merge method if the repository allows it, otherwise the first allowed one;
    /// `None` if none is allowed.
    fn method(&self) -> Option<&str> {
        let allowed = [
            ("MERGE", self.merge_commit_allowed),
            ("SQUASH", self.squash_merge_allowed),
            ("REBASE", self.rebase_merge_allowed),
        ];
        let mut allowed = allowed.into_iter().filter(|(_, allowed)| *allowed).map(|(name, _)| name);
        let first = allowed.clone().next();
        allowed.find(|name| *name == self.viewer_default_merge_method).or(first)
    }
}

/// State of a pull request for which the service requested a merge.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OrderedPull {
    merged: bool,
    is_in_merge_queue: bool,
    auto_merge_request: Option<Value>,
    timeline_items: MergeEnds,
}

#[derive(Deserialize)]
struct MergeEnds {
    nodes: Vec<Option<MergeEnd>>,
}

/// Event that ended auto-merge or removed the pull request from the merge queue.
#[derive(Deserialize)]
struct MergeEnd {
    #[serde(rename = "__typename")]
    kind: String,
    actor: Option<MergeEnder>,
    reason: Option<String>,
}

#[derive(Deserialize)]
struct MergeEnder {
    login: String,
}

impl OrderedPull {
    /// Returns the reason why GitHub no longer merges the pull request, as a sentence without a full stop; `None` if
    /// it will merge or has merged it.
    fn left(self) -> Option<String> {
        if self.merged || self.is_in_merge_queue || self.auto_merge_request.is_some() {
            return None;
        }
        let Some(end) = self.timeline_items.nodes.into_iter().flatten().next_back() else {
            return Some("GitHub no longer merges it by itself".to_owned());
        };
        let who = end.actor.map_or_else(|| "GitHub".to_owned(), |actor| actor.login);
        let what = match end.kind.as_str() {
            "RemovedFromMergeQueueEvent" => "removed it from the merge queue",
            _ => "disabled auto-merge",
        };
        let reason = end.reason.filter(|reason| !reason.trim().is_empty());
        let reason = reason.map_or_else(String::new, |reason| format!(" ({})", reason.trim().trim_end_matches('.')));
        Some(format!("{who} {what}{reason}"))
    }
}

/// Meaning of an error of [`ENABLE`].
#[derive(Debug, PartialEq, Eq)]
enum EnableRefusal {
    /// No requirement is pending, so GitHub expects an ordinary merge, to which its rules also apply.
    NothingToWaitFor,
    /// The pull request is changing at the moment, or a check that is not required has not succeeded.
    NotYet,
    /// Auto-merge is not allowed.
    NotAllowed,
    /// Another reason.
    Other,
}

impl EnableRefusal {
    fn of(failure: &ForgeError) -> Self {
        let text = failure.detail.to_ascii_lowercase();
        let says = |phrase: &str| text.contains(phrase);
        if says("clean status") || says("protected branch rules not configured") {
            Self::NothingToWaitFor
        } else if says("unstable status") || says("unknown status") || says("head sha") || says("expected head") {
            Self::NotYet
        } else if says("not allowed") {
            Self::NotAllowed
        } else {
            Self::Other
        }
    }
}

#[async_trait]
impl AutoMerge for GitHub {
    async fn merge_when_ready(&self, repo: &RepoRef, number: Number, head: &Sha) -> ForgeResult<MergeAnswer> {
        self.enable_auto_merge(repo, number, head).await
    }

    async fn left_merge(&self, repo: &RepoRef, number: Number) -> ForgeResult<Option<String>> {
        self.merge_ended(repo, number).await
    }

    async fn withdraw_merge(&self, repo: &RepoRef, number: Number) -> ForgeResult<()> {
        self.disable_auto_merge(repo, number).await
    }
}

impl GitHub {
    /// Enables auto-merge of a pull request for a commit. If no requirement is pending, GitHub refuses this, and the
    /// pull request is merged immediately.
    async fn enable_auto_merge(&self, repo: &RepoRef, number: Number, head: &Sha) -> ForgeResult<MergeAnswer> {
        let settings = self.merge_settings(repo, number).await?;
        let pull = &settings.pull_request;
        if pull.merged || pull.auto_merge_request.is_some() {
            return Ok(MergeAnswer::Accepted);
        }
        if pull.head_ref_oid != head.as_str() {
            return Ok(MergeAnswer::not_yet("GitHub shows another commit as the head of the pull request"));
        }
        if !settings.auto_merge_allowed {
            return Ok(not_allowed(repo));
        }
        let Some(method) = settings.method() else {
            return Ok(MergeAnswer::refused(
                format!("{} allows no merge method", repo.full_name()),
                "Allow one in the repository's settings (General, Pull Requests)",
            ));
        };
        let call = ApiCall::on(repo, Method::POST, &[], format!("enable auto-merge of #{number} of"));
        let variables = json!({ "id": pull.id, "method": method, "head": head });
        let failure = match self.client.graphql(call, ENABLE, variables).await {
            Ok(_) => return Ok(MergeAnswer::Accepted),
            Err(failure) if matches!(failure.kind, ForgeErrorKind::Conflict | ForgeErrorKind::Bug) => failure,
            Err(failure) => return Err(failure),
        };
        match EnableRefusal::of(&failure) {
            EnableRefusal::NothingToWaitFor => self.merge_now(repo, number, head, method).await,
            EnableRefusal::NotYet => Ok(MergeAnswer::not_yet(failure.detail)),
            EnableRefusal::NotAllowed => Ok(not_allowed(repo)),
            EnableRefusal::Other => Ok(MergeAnswer::refused(
                format!("GitHub refuses auto-merge ({})", failure.detail),
                "Remove the cause and comment `/ralph merge-when-ready` again, or merge it yourself",
            )),
        }
    }

    async fn merge_now(&self, repo: &RepoRef, number: Number, head: &Sha, method: &str) -> ForgeResult<MergeAnswer> {
        let path = ["pulls", &number.to_string(), "merge"];
        let call = ApiCall::on(repo, Method::PUT, &path, format!("merge pull request #{number} of"));
        let body = json!({ "sha": head, "merge_method": method.to_ascii_lowercase() });
        match self.client.send(&call.json(body)).await {
            Ok(_) => Ok(MergeAnswer::Accepted),
            // 405: a rule is not satisfied any more; 409: the head moved.
            Err(failure) if failure.kind == ForgeErrorKind::Conflict || failure.detail.starts_with("HTTP 405") => {
                Ok(MergeAnswer::not_yet(failure.detail))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Disables auto-merge; does nothing if it is not enabled.
    async fn disable_auto_merge(&self, repo: &RepoRef, number: Number) -> ForgeResult<()> {
        let pull = self.merge_settings(repo, number).await?.pull_request;
        if pull.merged || pull.auto_merge_request.is_none() {
            return Ok(());
        }
        let call = ApiCall::on(repo, Method::POST, &[], format!("disable auto-merge of #{number} of"));
        self.client.graphql(call, DISABLE, json!({ "id": pull.id })).await.map(drop)
    }

    async fn merge_ended(&self, repo: &RepoRef, number: Number) -> ForgeResult<Option<String>> {
        let what = format!("read the requested merge of #{number} in");
        let call = ApiCall::on(repo, Method::POST, &[], &what).read_only();
        let variables = json!({ "owner": repo.owner, "name": repo.name, "number": number.0 });
        let mut data = match self.client.graphql(call, STILL_MERGES, variables).await {
            // Servers without merge queues do not know their fields.
            Err(failure) if matches!(failure.kind, ForgeErrorKind::Bug | ForgeErrorKind::NotFound) => return Ok(None),
            data => data?,
        };
        let parsed: Result<OrderedPull, _> = serde_json::from_value(data["repository"]["pullRequest"].take());
        let pull = parsed.map_err(|failure| {
            error(ForgeErrorKind::Bug, &what, Failure::new("cannot parse the response").caused_by(failure))
        })?;
        Ok(pull.left())
    }

    async fn merge_settings(&self, repo: &RepoRef, number: Number) -> ForgeResult<MergeSettings> {
        let what = format!("read the allowed merge methods of #{number} in");
        let call = ApiCall::on(repo, Method::POST, &[], &what).read_only();
        let variables = json!({ "owner": repo.owner, "name": repo.name, "number": number.0 });
        let mut data = self.client.graphql(call, SETTINGS, variables).await?;
        let parsed = serde_json::from_value(data["repository"].take());
        parsed.map_err(|failure| {
            error(ForgeErrorKind::Bug, &what, Failure::new("cannot parse the response").caused_by(failure))
        })
    }
}

fn not_allowed(repo: &RepoRef) -> MergeAnswer {
    MergeAnswer::refused(
        format!("auto-merge is not allowed in {}", repo.full_name()),
        "Allow it in the repository's settings (General, Pull Requests, Allow auto-merge) and comment \
         `/ralph merge-when-ready` again, or merge it yourself",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(default: &str, allowed: [bool; 3]) -> MergeSettings {
        MergeSettings {
            auto_merge_allowed: true,
            viewer_default_merge_method: default.into(),
            merge_commit_allowed: allowed[0],
            squash_merge_allowed: allowed[1],
            rebase_merge_allowed: allowed[2],
            pull_request: MergeablePull {
                id: "PR_1".into(),
                head_ref_oid: String::new(),
                merged: false,
                auto_merge_request: None,
            },
        }
    }

    #[test]
    fn merge_method_is_allowed_by_the_repository() {
        assert_eq!(settings("SQUASH", [true, true, true]).method(), Some("SQUASH"));
        assert_eq!(settings("MERGE", [false, true, true]).method(), Some("SQUASH"));
        assert_eq!(settings("MERGE", [false, false, true]).method(), Some("REBASE"));
        assert_eq!(settings("MERGE", [false, false, false]).method(), None);
    }

    #[test]
    fn end_of_auto_merge_is_reported_with_actor_and_reason() {
        let of = |merged: bool, queued: bool, enabled: Value, nodes: Value| {
            let pull = json!({ "merged": merged, "isInMergeQueue": queued, "autoMergeRequest": enabled,
                "timelineItems": { "nodes": nodes } });
            serde_json::from_value::<OrderedPull>(pull).expect("a pull request").left()
        };
        let enabled = || json!({ "enabledAt": "2026-01-01T00:00:00Z" });
        let end =
            |kind: &str, actor: Value, reason: Value| json!([{ "__typename": kind, "actor": actor, "reason": reason }]);
        let mira = || json!({ "login": "mira" });
        assert_eq!(of(false, false, enabled(), json!([])), None);
        assert_eq!(of(false, true, Value::Null, json!([])), None);
        assert_eq!(of(true, false, Value::Null, json!([])), None);
        let disabled = end("AutoMergeDisabledEvent", mira(), json!("Not before Monday."));
        assert_eq!(of(false, false, enabled(), disabled.clone()), None, "it was enabled again");
        let told = of(false, false, Value::Null, disabled);
        assert_eq!(told.as_deref(), Some("mira disabled auto-merge (Not before Monday)"));
        let failed = end("RemovedFromMergeQueueEvent", Value::Null, json!("failed checks"));
        let told = of(false, false, Value::Null, failed);
        assert_eq!(told.as_deref(), Some("GitHub removed it from the merge queue (failed checks)"));
        let silent = end("RemovedFromMergeQueueEvent", mira(), Value::Null);
        assert_eq!(of(false, false, Value::Null, silent).as_deref(), Some("mira removed it from the merge queue"));
        let unknown = of(false, false, Value::Null, json!([null]));
        assert_eq!(unknown.as_deref(), Some("GitHub no longer merges it by itself"));
    }

    #[test]
    fn auto_merge_refusals_are_classified_by_text() {
        let of = |text: &str| EnableRefusal::of(&error(ForgeErrorKind::Conflict, "x", format!("GraphQL: {text}")));
        assert_eq!(of("Pull request Pull request is in clean status"), EnableRefusal::NothingToWaitFor);
        let unprotected = "Pull request Protected branch rules not configured for this branch";
        assert_eq!(of(unprotected), EnableRefusal::NothingToWaitFor);
        assert_eq!(of("Pull request Pull request is in unstable status"), EnableRefusal::NotYet);
        assert_eq!(of("Pull request Auto merge is not allowed for this repository"), EnableRefusal::NotAllowed);
        assert_eq!(of("Can't enable auto-merge for this pull request."), EnableRefusal::Other);
    }
}
