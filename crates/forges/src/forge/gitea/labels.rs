//! Labels: their ids, creation without duplicates, and the label history of an issue.

use std::collections::BTreeMap;

use ::http::Method;
use serde_json::json;

use super::client::under;
use super::map::{WireIssue, WireLabel, WireTimelineEntry};
use super::{Gitea, lock, rfc3339};
use crate::domain::model::event::is_same_label;
use crate::domain::model::ids::{Number, RepoRef, Timestamp};
use crate::forge::ForgeErrorKind::{Conflict, Denied, NotFound};
use crate::forge::http::{error, json as read};
use crate::forge::{ForgeError, ForgeResult, LabelAssignment, LabelChange, LabelSpec, RecordedChanges};

impl Gitea {
    /// Creates missing labels and returns their number. Creation is serialized per repository, because the server
    /// accepts duplicate names. Duplicates of labels that the bot created are merged.
    pub(super) async fn make_labels(&self, repo: &RepoRef, labels: &[LabelSpec]) -> ForgeResult<usize> {
        let maker = lock(&self.makers).entry(repo.id).or_default().clone();
        let _one_at_a_time = maker.lock().await;
        let cached = lock(&self.labels).get(&repo.id).cloned().unwrap_or_default();
        if labels.iter().all(|label| cached.contains_key(&label.name.to_lowercase())) {
            return Ok(0);
        }
        let (own, known) = self.fetch_labels(repo).await?;
        for label in labels {
            if let Err(failure) = self.merge_duplicates(repo, label, &own).await {
                tracing::warn!(%repo, label = label.name, %failure, "could not merge duplicates of a label");
            }
        }
        let mut made = 0;
        for label in labels.iter().filter(|label| !known.contains_key(&label.name.to_lowercase())) {
            let what = format!("create the label {:?} in {repo}", label.name);
            let mut body =
                json!({ "name": label.name, "color": format!("#{}", label.color), "description": label.description });
            if label.exclusive {
                body["exclusive"] = json!(true);
            }
            match self.client.send(&what, Method::POST, &under(repo, &["labels"])?, &body).await {
                Ok(answer) => {
                    let created: WireLabel = read(&what, &answer)?;
                    let mut cache = lock(&self.labels);
                    cache.entry(repo.id).or_default().insert(created.name.to_lowercase(), created.id);
                    made += 1;
                }
                Err(ForgeError { kind: Conflict, .. }) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(made)
    }

    /// Keeps the oldest label with a name. Issues with a newer one get the oldest, and newer ones with the bot's
    /// description are deleted.
    async fn merge_duplicates(&self, repo: &RepoRef, label: &LabelSpec, own: &[WireLabel]) -> ForgeResult<()> {
        let same: Vec<&WireLabel> = own.iter().filter(|one| is_same_label(&one.name, &label.name)).collect();
        let Some(kept) = same.iter().map(|one| one.id).min() else { return Ok(()) };
        let later: Vec<i64> = same
            .iter()
            .filter(|one| one.id != kept && one.description == label.description)
            .map(|one| one.id)
            .collect();
        if later.is_empty() {
            return Ok(());
        }
        let what = format!("merge duplicates of the label {:?} in {repo}", label.name);
        // A filter by a name that two labels have finds only issues with both.
        let issues: Vec<WireIssue> = self.client.poll(&what, &under(repo, &["issues"])?, &[("state", "all")]).await?;
        let lacks = |issue: &&WireIssue| {
            let ids = issue.label_ids();
            ids.iter().any(|id| later.contains(id)) && !ids.contains(&kept)
        };
        for issue in issues.iter().filter(lacks) {
            let number = issue.number().to_string();
            let path = under(repo, &["issues", &number, "labels"])?;
            self.client.send(&what, Method::POST, &path, &json!({ "labels": [kept] })).await?;
        }
        for id in later {
            let id = id.to_string();
            match self.client.send_empty(&what, Method::DELETE, &under(repo, &["labels", &id])?).await {
                Ok(()) | Err(ForgeError { kind: NotFound, .. }) => {}
                Err(failure) => return Err(failure),
            }
        }
        lock(&self.labels).entry(repo.id).or_default().insert(label.name.to_lowercase(), kept);
        tracing::info!(%repo, label = label.name, "merged duplicates of a label");
        Ok(())
    }

    /// Returns the labels of a repository, and caches the ids of these and of its organization's labels by lower-case
    /// name. Labels of the repository take precedence; of duplicates, the oldest.
    async fn fetch_labels(&self, repo: &RepoRef) -> ForgeResult<(Vec<WireLabel>, BTreeMap<String, i64>)> {
        let what = format!("list the labels of {repo}");
        let labels: Vec<WireLabel> = self.client.list(&what, &under(repo, &["labels"])?, &[], |_| false).await?;
        let of_owner = self.client.list(&what, &["orgs", &repo.owner, "labels"], &[], |_| false).await;
        let shared: Vec<WireLabel> = match of_owner {
            // A user's repository has no organization, and the token may not permit reading one.
            Err(ForgeError { kind: NotFound | Denied, .. }) => Vec::new(),
            other => other?,
        };
        let mut known = BTreeMap::new();
        for label in &shared {
            known.insert(label.name.to_lowercase(), label.id);
        }
        let mut newest_first: Vec<&WireLabel> = labels.iter().collect();
        newest_first.sort_by_key(|label| std::cmp::Reverse(label.id));
        known.extend(newest_first.into_iter().map(|label| (label.name.to_lowercase(), label.id)));
        lock(&self.labels).insert(repo.id, known.clone());
        Ok((labels, known))
    }

    /// Returns the ids of labels by name, from the cache if it has all of them.
    pub(super) async fn label_ids(&self, repo: &RepoRef, names: &[String]) -> ForgeResult<Vec<i64>> {
        let cached = lock(&self.labels).get(&repo.id).cloned().unwrap_or_default();
        let known = match names.iter().all(|name| cached.contains_key(&name.to_lowercase())) {
            true => cached,
            false => self.fetch_labels(repo).await?.1,
        };
        names
            .iter()
            .map(|name| {
                let missing = || {
                    error(
                        NotFound,
                        &format!("find the label {name:?} in {repo}"),
                        "the label does not exist; create it",
                    )
                };
                known.get(&name.to_lowercase()).copied().ok_or_else(missing)
            })
            .collect()
    }

    /// Returns the last change of a label in an issue's timeline since a time.
    pub(super) async fn label_change_since(
        &self,
        repo: &RepoRef,
        number: Number,
        label: &str,
        since: Option<Timestamp>,
    ) -> ForgeResult<Option<LabelChange>> {
        let entries = self.timeline(repo, number, since).await?;
        Ok(entries.into_iter().filter_map(|entry| entry.change_of(label)).max_by_key(|change| change.id))
    }

    /// Returns the times of changes in an issue's timeline.
    pub(super) async fn changes_by_timeline(&self, repo: &RepoRef, number: Number) -> ForgeResult<RecordedChanges> {
        Ok(recorded(&self.timeline(repo, number, None).await?))
    }

    /// Returns the assignment of a label that is on an issue, from its timeline; `None` if the timeline contains none.
    pub(super) async fn assignment_by_timeline(
        &self,
        repo: &RepoRef,
        number: Number,
        label: &str,
    ) -> ForgeResult<Option<LabelAssignment>> {
        let entries = self.timeline(repo, number, None).await?;
        let RecordedChanges { renamed_at, last_recorded_at } = recorded(&entries);
        let last = entries.into_iter().filter_map(|entry| entry.change_of(label)).max_by_key(|change| change.id);
        let added = last.filter(|change| change.added);
        let assignment = |change: LabelChange| {
            let LabelChange { id, by, at, .. } = change;
            LabelAssignment { id, by, at, renamed_at, last_recorded_at }
        };
        Ok(added.map(assignment))
    }

    /// Returns the timeline of an issue since a time; empty if there is no such issue.
    async fn timeline(
        &self,
        repo: &RepoRef,
        of: Number,
        since: Option<Timestamp>,
    ) -> ForgeResult<Vec<WireTimelineEntry>> {
        let what = format!("read the timeline of {repo}#{of}");
        let since = since.map(rfc3339);
        let query: Vec<(&str, &str)> = since.iter().map(|since| ("since", since.as_str())).collect();
        let number = of.to_string();
        let path = under(repo, &["issues", &number, "timeline"])?;
        match self.client.filtered(&what, &path, &query).await {
            Ok(entries) => Ok(entries),
            Err(failure) => match self.missing_issue(repo, of, failure).await {
                ForgeError { kind: NotFound, .. } => Ok(Vec::new()),
                failure => Err(failure),
            },
        }
    }
}

/// Returns the times of changes in a timeline.
fn recorded(entries: &[WireTimelineEntry]) -> RecordedChanges {
    RecordedChanges {
        renamed_at: entries.iter().filter_map(WireTimelineEntry::renamed_at).max(),
        last_recorded_at: entries.iter().map(WireTimelineEntry::at).max(),
    }
}
