//! Polling: turns changes in a forge's lists into deliveries like a webhook's. An action of a person becomes a
//! delivery under its natural key and is confirmed like any other. The current states of a loop's issue and pull
//! request are queried separately.
//!
//! The lists are requested from the time of the newest change that was seen, by the forge's clock and with an overlap.
//! The request stays the same until something changes, so a forge with ETags answers 304. Changes that are seen again
//! are recognized by their keys.

use std::collections::HashSet;

use super::intake::pulls::{belongs, in_review};
use super::reconcile::LOOK_BACK_MS;
use crate::domain::loops::{Loop, command};
use crate::domain::model::event::{CommentSnapshot, ForgeEvent, IssueSnapshot, ReviewVerdict, names_label};
use crate::domain::model::ids::{Number, RepoRef, Timestamp, UserId};
use crate::engine::forges::account::ForgeAccount;
use crate::engine::intake::{IntakeError, text_hash};
use crate::engine::reconcile::Reconciler;
use crate::forge::{ForgeErrorKind, Polling};
use crate::store::inbox::{self, Body, POLLED, StoredDelivery};
use crate::store::{StoreError, forge_state, installation, loops};

/// Minimum age of a change that polling reports if webhooks are received too, in milliseconds. The webhook's delivery
/// is preferred, because it contains more.
const DELIVERY_MS: i64 = 10_000;
/// Difference between clocks above which a stored time is not used, in milliseconds.
const CLOCKS_MS: i64 = 2 * 3_600_000;

/// A change that polling found.
struct PolledChange {
    /// Natural key, unique within the forge.
    key: String,
    event: ForgeEvent,
}

/// Scope of polling a repository.
struct PollScope<'a> {
    account: &'a ForgeAccount,
    repo: &'a RepoRef,
    own: UserId,
    /// Time of the earliest change that is reported.
    since: Timestamp,
    /// Time of the latest change that is reported.
    until: Timestamp,
    /// Open loops of the repository.
    open: Vec<Loop>,
}

impl PollScope<'_> {
    fn covers(&self, at: Timestamp) -> bool {
        self.since <= at && at <= self.until
    }

    fn loop_of_pull(&self, number: Number) -> Option<&Loop> {
        self.open.iter().find(|current| current.pull.opened.as_ref().is_some_and(|pull| pull.number == number))
    }
}

/// Times at which a repository was polled and checked.
struct PollTimes {
    /// Time of the newest known change; `None` before the first poll.
    seen: Option<Timestamp>,
    /// Time of the last check by the reconciler without polling.
    looked_at: Option<Timestamp>,
}

impl Reconciler {
    /// Stores deliveries for the changes in a repository, and checks the loops that they concern. Returns whether the
    /// repository has an open loop. Sends two requests, one more for each loop that runs or is in review, and a few
    /// for each change.
    pub(super) async fn poll_repository(
        &self,
        account: &ForgeAccount,
        polling: &dyn Polling,
        repo: &RepoRef,
    ) -> Result<bool, IntakeError> {
        let (begun, own) = (self.context.clock.now(), account.own()?);
        let key = format!("polled/{}/{}", repo.forge, repo.id.0);
        let (times, open) = self.poll_times(repo, &key).await?;
        let oldest = open.iter().map(|current| current.created_at).min();
        let cursor = times.seen.or(times.looked_at).or(oldest).unwrap_or(begun);
        let cursor = if cursor.since(begun) > CLOCKS_MS { begun } else { cursor };
        let since = cursor.plus_ms(-LOOK_BACK_MS);
        // Keys are forgotten after the retention; older entries are not new.
        let kept = i64::try_from(self.housekeeping.keep.as_millis()).unwrap_or(i64::MAX) / 2;
        let both = self.forges.settings.updates(&repo.forge).webhooks;
        let until = if both { begun.plus_ms(-DELIVERY_MS) } else { Timestamp(i64::MAX) };
        let scope = PollScope { account, repo, own, since: since.max(begun.plus_ms(-kept)), until, open };

        let edits_are_recorded = account.forge.history().is_some_and(|history| history.records_edits());
        let keeps_texts = !both && !edits_are_recorded;
        // At first all texts are kept, so that a later edit can be recognized.
        let from = if keeps_texts && times.seen.is_none() { Timestamp(0) } else { since };
        let changed = polling.issues_changed_since(repo, from).await?;
        let comments = match polling.comments_changed_since(repo, since).await {
            // Servers that are only like the forge lack this list.
            Err(error) if error.kind == ForgeErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        let newest = changed.iter().map(|issue| issue.updated_at).max();
        let mut found = self.labels_of(&scope, &changed, times.seen.is_none()).await?;
        found.extend(self.comments_of(&scope, &changed, comments).await?);
        for issue in changed.iter().filter(|issue| issue.is_pull && issue.open) {
            found.extend(self.reviews_of(&scope, issue.number).await?);
        }
        let texts = changed.iter().filter(|issue| keeps_texts && issue.open).cloned().collect();
        let seen = newest.map_or(cursor, |newest| newest.max(cursor)).min(begun.plus_ms(CLOCKS_MS));
        // Another repository may have taken over the name; then the next time asks under the present one.
        let news = !found.is_empty() || times.seen != Some(seen);
        if news && !self.forges.is_named(account, repo).await {
            return Ok(!scope.open.is_empty());
        }
        self.take_found(repo, found, texts, (key, seen, begun)).await?;

        let numbers: HashSet<Number> = changed.iter().map(|issue| issue.number).collect();
        for current in &scope.open {
            let pull = current.pull.opened.as_ref().map(|pull| pull.number);
            let changed = numbers.contains(&current.issue.issue) || pull.is_some_and(|pull| numbers.contains(&pull));
            // A deleted issue is in no list. Loops that run are asked about at once: they cost money.
            if changed || current.state.holds_slot() && self.is_gone(account, repo, current.issue.issue).await {
                self.reconcile_loop(current.id.clone()).await?;
            }
        }
        // CI and pushes to the base are in no list of issues.
        self.intake.inspect_where(repo, false, |current| current.reads_ci() || in_review(current)).await?;
        self.context.wake.effects_queued();
        Ok(!scope.open.is_empty())
    }

    /// Whether the issue no longer exists on the forge.
    async fn is_gone(&self, account: &ForgeAccount, repo: &RepoRef, issue: Number) -> bool {
        matches!(account.forge.issue(repo, issue).await, Err(error) if error.kind == ForgeErrorKind::NotFound)
    }

    async fn poll_times(&self, repo: &RepoRef, key: &str) -> Result<(PollTimes, Vec<Loop>), IntakeError> {
        let (key, looked_at, of) = (key.to_owned(), format!("looked_at/{}/{}", repo.forge, repo.id.0), repo.clone());
        let read = self.context.store.read(move |c| {
            let time = |key: &str| {
                let text = installation::get(c, key)?;
                Ok::<_, StoreError>(text.and_then(|text| text.parse().ok()).map(Timestamp))
            };
            let times = PollTimes { seen: time(&key)?, looked_at: time(&looked_at)? };
            Ok((times, loops::open_of_repository(c, &of)?))
        });
        Ok(read.await?)
    }

    /// Stores the changes that were found, the texts of issues, and the position of polling, in one transaction.
    async fn take_found(
        &self,
        repo: &RepoRef,
        found: Vec<PolledChange>,
        texts: Vec<IssueSnapshot>,
        (key, seen, now): (String, Timestamp, Timestamp),
    ) -> Result<(), IntakeError> {
        let mut rows = Vec::new();
        for PolledChange { key, event } in found {
            let Ok(body) = serde_json::to_vec(&event) else { continue };
            let (forge, delivery, event) = (repo.forge.clone(), format!("{POLLED}{key}"), "poll".to_owned());
            rows.push(StoredDelivery { forge, delivery, event, body: Body::pack(&body) });
        }
        let repo = repo.clone();
        let stored = self.context.store.write(move |c| {
            for issue in &texts {
                let (digest, author) = (text_hash(&issue.title, &issue.body), issue.author.as_ref());
                forge_state::save_text(c, &repo, issue.number, &digest, (issue.updated_at, author))?;
            }
            let mut new = 0;
            for row in &rows {
                new += u64::from(inbox::insert(c, row, now)?);
            }
            let value = seen.0.to_string();
            if installation::get(c, &key)?.as_deref() != Some(value.as_str()) {
                installation::set(c, &key, &value)?;
            }
            Ok(new)
        });
        let new = stored.await?;
        if new > 0 {
            self.context.wake.intake.notify_one();
        }
        Ok(())
    }

    /// Returns the changes of labels that start loops. Their authors are read from the forge's history.
    async fn labels_of(
        &self,
        scope: &PollScope<'_>,
        changed: &[IssueSnapshot],
        first: bool,
    ) -> Result<Vec<PolledChange>, IntakeError> {
        let (account, repo) = (scope.account, scope.repo);
        let Some(history) = account.forge.webhooks() else { return Ok(Vec::new()) };
        let labels = self.forges.start_labels(repo);
        let mut issues: Vec<IssueSnapshot> = changed.to_vec();
        for label in labels.iter().filter(|_| first) {
            // Set before the first look.
            issues.extend(account.forge.open_issues_with_label(repo, label).await?);
        }
        issues.sort_by_key(|issue| issue.number);
        issues.dedup_by_key(|issue| issue.number);
        let mut found = Vec::new();
        for issue in issues.into_iter().filter(|issue| !issue.is_pull) {
            let (of, number) = (repo.clone(), issue.number);
            let known = self
                .context
                .store
                .read(move |c| Ok((forge_state::labels(c, &of, number)?, loops::find(c, &of, number)?)));
            let (known, found_loop) = known.await?;
            let (known, open) = (known.unwrap_or_default(), found_loop.is_some_and(|(_, _, open)| open));
            for label in &labels {
                let (has, had) = (issue.has_label(label), names_label(&known, label));
                if has == had || has && !issue.open {
                    continue;
                }
                if had && !open {
                    // There is nothing to pause; if it is set again, that is new.
                    self.keep_labels(account, repo, &issue).await?;
                    continue;
                }
                let last = history.last_label_change(repo, number, label, issue.updated_at).await?;
                // Changed again since the list was read, or not recorded yet.
                let Some(change) = last.filter(|change| change.added == has && change.at <= scope.until) else {
                    continue;
                };
                if change.by.id == scope.own && !(self.forges.settings.is_trial && change.added) {
                    self.keep_labels(account, repo, &issue).await?;
                    continue;
                }
                let key = format!("label/{}/{number}/{}", repo.id, change.id);
                let (repo, issue, label, sender) = (repo.clone(), issue.clone(), label.clone(), change.by);
                let event = match has {
                    true => ForgeEvent::Labeled { repo, issue, label, sender },
                    false => ForgeEvent::Unlabeled { repo, issue, label, sender },
                };
                found.push(PolledChange { key, event });
            }
        }
        Ok(found)
    }

    /// Stores the labels of an issue, unless the issue may belong to another repository.
    async fn keep_labels(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        issue: &IssueSnapshot,
    ) -> Result<(), IntakeError> {
        self.intake.still_named(account, repo).await?;
        let (of, number, labels, at) = (repo.clone(), issue.number, issue.labels.clone(), issue.updated_at);
        Ok(self.context.store.write(move |c| forge_state::save_labels(c, &of, number, &labels, at)).await?)
    }

    /// Returns the new comments with commands, and all new comments in the conversations of loops' pull requests.
    async fn comments_of(
        &self,
        scope: &PollScope<'_>,
        changed: &[IssueSnapshot],
        comments: Vec<(Number, CommentSnapshot)>,
    ) -> Result<Vec<PolledChange>, IntakeError> {
        let mut found = Vec::new();
        for (number, comment) in comments {
            self.comments.delete_late_duplicate(scope.account, scope.repo, &comment).await?;
            let Some(sender) = comment.author.clone().filter(|author| author.id != scope.own) else { continue };
            let concerns = scope.loop_of_pull(number).is_some() || command::is_mentioned(&comment.body);
            // The original text of an edited comment is unknown.
            if comment.edited || !scope.covers(comment.created_at) || !concerns {
                continue;
            }
            let listed = changed.iter().find(|issue| issue.number == number).cloned();
            let issue = match listed {
                Some(issue) => issue,
                None => match scope.account.forge.issue(scope.repo, number).await {
                    Err(error) if error.kind == ForgeErrorKind::NotFound => continue,
                    found => found?,
                },
            };
            let key = format!("comment/{}/{}", scope.repo.id, comment.id);
            let event = ForgeEvent::CommentCreated { repo: scope.repo.clone(), issue, comment, sender };
            found.push(PolledChange { key, event });
        }
        Ok(found)
    }

    /// Returns the new reviews of a loop's pull request, and the new comments on lines that belong to no review.
    async fn reviews_of(&self, scope: &PollScope<'_>, number: Number) -> Result<Vec<PolledChange>, IntakeError> {
        let Some(forge) = scope.account.forge.reviews().filter(|_| scope.loop_of_pull(number).is_some()) else {
            return Ok(Vec::new());
        };
        let (repo, own) = (scope.repo, scope.own);
        let mut reviews = forge.submitted_reviews(repo, number).await?;
        if reviews.is_empty() {
            return Ok(Vec::new());
        }
        reviews.retain(|review| scope.covers(review.submitted_at) && review.verdict != ReviewVerdict::Dismissed);
        reviews.retain(|review| review.author.as_ref().is_some_and(|author| author.id != own));
        let mut remarks = forge.review_comments(repo, number).await?;
        remarks.retain(|remark| scope.covers(remark.comment.created_at) && !remark.comment.edited);
        remarks.retain(|remark| {
            let by = remark.comment.author.as_ref().filter(|author| author.id != own);
            by.is_some_and(|by| !reviews.iter().any(|review| belongs(remark, review, by)))
        });
        if reviews.is_empty() && remarks.is_empty() {
            return Ok(Vec::new());
        }
        let pull = scope.account.forge.pull(repo, number).await?;
        let reviews = reviews.into_iter().filter_map(|review| {
            let key = format!("review/{}/{number}/{}", repo.id, review.id);
            let (repo, pull, id, at) = (repo.clone(), pull.clone(), Some(review.id), review.submitted_at);
            let (verdict, body, sender) = (review.verdict, review.body, review.author?);
            Some(PolledChange { key, event: ForgeEvent::ReviewSubmitted { repo, pull, id, verdict, body, sender, at } })
        });
        let remarks = remarks.into_iter().filter_map(|remark| {
            let (comment, path) = (remark.comment, Some(remark.path));
            let key = format!("remark/{}/{number}/{}", repo.id, comment.id);
            let (repo, pull, sender) = (repo.clone(), pull.clone(), comment.author.clone()?);
            Some(PolledChange { key, event: ForgeEvent::ReviewCommented { repo, pull, comment, path, sender } })
        });
        Ok(reviews.chain(remarks).collect())
    }
}
