//! Actions on pull requests, reviews, statuses and check runs.

use super::{
    Access, FakeCheckRun, FakeComment, FakeEventKind, FakeIssue, FakePull, FakeReaction, FakeRefusal, FakeReview,
    FakeState, FakeStatus, MergeRecord, OpKind, PullFacts,
};
use crate::git::MergeMethod;
use ralph_types::ids::ReviewVerdict;
use ralph_types::ids::{CommentId, Number, RepoId, Sha, Timestamp, UserId};

/// Number of reads after a push during which the forge is still checking a pull request's mergeability.
const READS_WHILE_CHECKING: u32 = 1;

/// Pull request to create.
#[derive(Debug, Clone)]
pub struct PullDraft {
    /// Title of the pull request.
    pub title: String,
    /// Body of the pull request.
    pub body: String,
    /// Head branch.
    pub head: String,
    /// Base branch.
    pub base: String,
    /// Whether to create it as a draft.
    pub draft: bool,
}

/// Review to submit.
#[derive(Debug, Clone)]
pub struct ReviewDraft {
    /// Verdict of the review.
    pub verdict: ReviewVerdict,
    /// Text of the review.
    pub body: String,
    /// Comments on lines: file, line in the new file, text.
    pub remarks: Vec<(String, u64, String)>,
}

/// Commit status to set.
#[derive(Debug, Clone)]
pub struct StatusDraft {
    /// Name of the check.
    pub context: String,
    /// `pending`, `success`, `failure`, `error`.
    pub state: String,
    /// Description in one line.
    pub description: String,
    /// Web address.
    pub target_url: String,
}

/// Comment on a line.
#[derive(Debug, Clone)]
pub struct FakeReviewComment {
    /// Id within the forge.
    pub id: CommentId,
    /// File.
    pub path: String,
    /// Line in the new file.
    pub line: u64,
    /// Text of the comment.
    pub body: String,
    /// Author of the comment: the review's author, except for replies.
    pub author: Option<UserId>,
    /// Comment to which this comment replies; `None` for the first comment in a thread.
    pub reply_to: Option<CommentId>,
    /// Reactions, oldest first.
    pub reactions: Vec<FakeReaction>,
    /// Whether the thread is resolved; only used in a thread's first comment.
    pub resolved: bool,
    /// Time of the draft, which can be long before the review is submitted.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
}

impl FakeReviewComment {
    /// Converts to a comment of the conversation.
    pub fn as_comment(&self) -> FakeComment {
        FakeComment {
            id: self.id,
            author: self.author,
            body: self.body.clone(),
            created_at: self.created_at,
            updated_at: self.updated_at,
            reactions: Vec::new(),
            minimized: None,
        }
    }
}

impl FakeState {
    /// Returns a pull request and its issue.
    pub fn pull(&self, repo: RepoId, number: Number) -> Result<(&FakeIssue, &FakePull), FakeRefusal> {
        let issue = self.issue(repo, number)?;
        let pull = issue.pull.as_ref();
        pull.map(|pull| (issue, pull)).ok_or_else(|| FakeRefusal::NotFound(format!("pull request {number}")))
    }

    /// Returns the mutable data of a pull request.
    pub fn pull_mut(&mut self, repo: RepoId, number: Number) -> Result<&mut FakePull, FakeRefusal> {
        let pull = self.issue_mut(repo, number)?.pull.as_mut();
        pull.ok_or_else(|| FakeRefusal::NotFound(format!("pull request {number}")))
    }

    /// Returns the mutable data of a pull request without updating its time of change; `None` if it does not exist.
    pub fn pull_of(&mut self, repo: RepoId, number: Number) -> Option<&mut FakePull> {
        self.repos.get_mut(&repo)?.issues.get_mut(&number)?.pull.as_mut()
    }

    /// Returns all pull requests, newest first.
    pub fn pulls(&self, repo: RepoId) -> Vec<(&FakeIssue, &FakePull)> {
        let Ok(repo) = self.repo(repo) else { return Vec::new() };
        repo.issues.values().rev().filter_map(|issue| issue.pull.as_ref().map(|pull| (issue, pull))).collect()
    }

    /// Opens a pull request; `Conflict` if an open one exists between the branches.
    pub fn open_pull(
        &mut self,
        actor: UserId,
        repo: RepoId,
        draft: &PullDraft,
        facts: PullFacts,
    ) -> Result<Number, FakeRefusal> {
        self.require_change(repo, actor, Access::Read)?;
        self.check_body(&draft.body)?;
        if draft.title.trim().is_empty() {
            return Err(FakeRefusal::Invalid("a pull request needs a title".to_owned()));
        }
        let same =
            |(issue, pull): &(&FakeIssue, &FakePull)| issue.open && pull.head == draft.head && pull.base == draft.base;
        if let Some((issue, _)) = self.pulls(repo).into_iter().find(same) {
            let text = format!("pull request #{} already exists for {} into {}", issue.number, draft.head, draft.base);
            return Err(FakeRefusal::Conflict(text));
        }
        let pull = FakePull {
            head: draft.head.clone(),
            fork: None,
            base: draft.base.clone(),
            facts,
            draft: draft.draft,
            merged: None,
            requested: Vec::new(),
            requested_teams: Vec::new(),
            reviews: Vec::new(),
            checking: 0,
            stale_mergeable: None,
            auto_merge: None,
            merge_left: None,
        };
        let number = self.insert_issue(actor, repo, &draft.title, &draft.body, Some(pull))?;
        self.log(actor, OpKind::PullOpened, repo, Some(number), format!("{} into {}", draft.head, draft.base));
        self.emit(repo, actor, FakeEventKind::PullOpened(number));
        Ok(number)
    }

    /// Returns the pull requests from a branch of a fork: base repository, number, and the copy of the branch there.
    pub fn pulls_from_fork(&self, fork: RepoId, branch: &str) -> Vec<(RepoId, Number, String)> {
        let of = |pull: &FakePull| pull.fork.as_ref().is_some_and(|from| from.repo == fork && from.branch == branch);
        let all = self.repos.values().flat_map(|entry| entry.issues.values().map(move |issue| (entry.id, issue)));
        let from =
            all.filter_map(|(repo, issue)| Some((repo, issue.number, issue.pull.as_ref().filter(|pull| of(pull))?)));
        from.map(|(repo, number, pull)| (repo, number, pull.head.clone())).collect()
    }

    /// Whether an account may push to a fork, because an open pull request from there allows edits by maintainers.
    pub fn may_edit_fork(&self, fork: RepoId, user: UserId) -> bool {
        self.repos.values().any(|entry| {
            let allows = |pull: &FakePull| pull.fork.as_ref().is_some_and(|from| from.repo == fork && from.editable);
            let open = entry.issues.values().filter(|issue| issue.open).filter_map(|issue| issue.pull.as_ref());
            self.access(entry, Some(user)) >= Access::Write && open.into_iter().any(allows)
        })
    }

    /// Counts a read of a pull request. After enough reads, the forge reports the mergeability.
    pub fn pull_was_read(&mut self, repo: RepoId, number: Number) {
        if let Some(pull) = self.pull_of(repo, number) {
            match &mut pull.stale_mergeable {
                Some((_, reads)) if *reads > 0 => *reads -= 1,
                _ => pull.checking = pull.checking.saturating_sub(1),
            }
        }
    }

    /// Updates the facts from git and emits events for new commits.
    pub fn refresh_pull(
        &mut self,
        actor: UserId,
        repo: RepoId,
        number: Number,
        facts: PullFacts,
    ) -> Result<(), FakeRefusal> {
        let stale_reads = self.stale_reads;
        let pull = self.pull_mut(repo, number)?;
        pull.stale_mergeable = pull.mergeable().map(|said| (said, stale_reads));
        pull.checking = READS_WHILE_CHECKING;
        let before = std::mem::replace(&mut pull.facts, facts);
        if before.head_sha != pull.facts.head_sha {
            self.emit(repo, actor, FakeEventKind::PullSynchronized(number, before.head_sha));
        }
        Ok(())
    }

    /// Returns the reason why the base branch's rules prevent merging a pull request; `None` if they allow it.
    pub fn unmet_rule(&self, repo: RepoId, number: Number) -> Result<Option<String>, FakeRefusal> {
        let (entry, (issue, pull)) = (self.repo(repo)?, self.pull(repo, number)?);
        let Some(rule) = entry.merge_rules.get(&pull.base) else { return Ok(None) };
        let waiting = rule.checks.iter().find(|name| self.check_of(repo, &pull.facts.head_sha, name) != Some(true));
        if let Some(name) = waiting {
            return Ok(Some(format!("Required status check \"{name}\" is expected.")));
        }
        let mut verdicts = std::collections::BTreeMap::new();
        for review in pull.reviews.iter().filter(|one| !one.pending && one.author != issue.author) {
            if review.verdict != ReviewVerdict::Commented {
                verdicts.insert(review.author, review.verdict);
            }
        }
        let approvals = verdicts.values().filter(|verdict| **verdict == ReviewVerdict::Approved).count();
        let missing = approvals < rule.approvals;
        Ok(missing.then(|| format!("At least {} approving review is required by reviewers.", rule.approvals)))
    }

    /// Returns whether the newest check or status with a name succeeded; `None` if it is missing or pending.
    fn check_of(&self, repo: RepoId, commit: &Sha, name: &str) -> Option<bool> {
        let entry = self.repo(repo).ok()?;
        let status = entry.statuses.iter().rev().find(|one| one.sha == *commit && one.context == name);
        if let Some(status) = status {
            return (status.state != "pending").then_some(status.state == "success");
        }
        let run = entry.check_runs.iter().rev().find(|one| one.sha == *commit && one.name == name)?;
        run.conclusion.as_ref().map(|conclusion| conclusion == "success")
    }

    /// Whether every check and status of a commit succeeded.
    pub fn all_checks_succeeded(&self, repo: RepoId, commit: &Sha) -> bool {
        let Ok(entry) = self.repo(repo) else { return false };
        let statuses = entry.statuses.iter().filter(|one| one.sha == *commit).map(|one| &one.context);
        let runs = entry.check_runs.iter().filter(|one| one.sha == *commit).map(|one| &one.name);
        statuses.chain(runs).all(|name| self.check_of(repo, commit, name) == Some(true))
    }

    /// Schedules a pull request's automatic merge, which happens once the base branch's rules are satisfied, or cancels it.
    pub fn set_auto_merge(
        &mut self,
        actor: UserId,
        repo: RepoId,
        number: Number,
        method: Option<MergeMethod>,
    ) -> Result<(), FakeRefusal> {
        self.require_change(repo, actor, Access::Write)?;
        let pull = self.pull_mut(repo, number)?;
        pull.auto_merge = method.map(|method| (actor, method));
        let kind = if method.is_some() { OpKind::AutoMergeEnabled } else { OpKind::AutoMergeDisabled };
        self.log(actor, kind, repo, Some(number), "");
        Ok(())
    }

    /// Ends a pull request's automatic merge: an account disables it, or removes the pull request from the merge queue.
    pub fn leave_merge(
        &mut self,
        actor: UserId,
        repo: RepoId,
        number: Number,
        queue: bool,
        reason: &str,
    ) -> Result<(), FakeRefusal> {
        self.set_auto_merge(actor, repo, number, None)?;
        self.pull_mut(repo, number)?.merge_left = Some((actor, queue, reason.to_owned()));
        self.emit(repo, actor, FakeEventKind::MergeLeft(number, queue));
        Ok(())
    }

    /// Returns the pull requests that are due for an automatic merge, with the account and method of each.
    pub fn due_auto_merges(&self) -> Vec<(RepoId, Number, UserId, MergeMethod)> {
        let mut due = Vec::new();
        for entry in self.repos.values() {
            for issue in entry.issues.values().filter(|issue| issue.open) {
                let Some((pull, (by, method))) = issue.pull.as_ref().and_then(|pull| Some((pull, pull.auto_merge?)))
                else {
                    continue;
                };
                if !pull.draft && self.unmet_rule(entry.id, issue.number) == Ok(None) {
                    due.push((entry.id, issue.number, by, method));
                }
            }
        }
        due
    }

    /// Marks a pull request as ready; does nothing if it is ready.
    pub fn set_ready(&mut self, actor: UserId, repo: RepoId, number: Number) -> Result<(), FakeRefusal> {
        self.require_own_or(actor, repo, self.issue(repo, number)?.author, Access::Write)?;
        let pull = self.pull_mut(repo, number)?;
        if std::mem::take(&mut pull.draft) {
            self.log(actor, OpKind::PullReady, repo, Some(number), "");
            self.emit(repo, actor, FakeEventKind::PullReady(number));
        }
        Ok(())
    }

    /// Converts a pull request to a draft; does nothing if it is a draft.
    pub fn set_draft(&mut self, actor: UserId, repo: RepoId, number: Number) -> Result<(), FakeRefusal> {
        self.require_own_or(actor, repo, self.issue(repo, number)?.author, Access::Write)?;
        let pull = self.pull_mut(repo, number)?;
        if !std::mem::replace(&mut pull.draft, true) {
            self.log(actor, OpKind::PullDraft, repo, Some(number), "");
            self.emit(repo, actor, FakeEventKind::PullDraft(number));
        }
        Ok(())
    }

    /// Records a merge performed by git, and closes the issues named in its text.
    pub fn merged(&mut self, actor: UserId, repo: RepoId, number: Number, sha: Sha) -> Result<(), FakeRefusal> {
        let now = self.clock.now();
        let pull = self.pull_mut(repo, number)?;
        pull.merged = Some(MergeRecord { by: actor, at: now, sha: sha.clone() });
        let base = pull.base.clone();
        let issue = self.issue_mut(repo, number)?;
        issue.open = false;
        issue.closed_at = Some(now);
        let text = format!("{}\n{}", issue.title, issue.body);
        self.log(actor, OpKind::PullMerged, repo, Some(number), sha.as_str());
        self.emit(repo, actor, FakeEventKind::PullClosed(number));
        if base == self.repo(repo)?.default_branch {
            for closed in closed_by(&text) {
                if self.issue(repo, closed).is_ok_and(|issue| issue.open && issue.pull.is_none()) {
                    self.set_open(actor, repo, closed, false)?;
                }
            }
        }
        Ok(())
    }

    /// Requests reviews; fails for unknown accounts and for the author.
    pub fn request_reviewers(
        &mut self,
        actor: UserId,
        repo: RepoId,
        number: Number,
        logins: &[String],
    ) -> Result<Vec<UserId>, FakeRefusal> {
        let author = self.pull(repo, number)?.0.author;
        self.require_own_or(actor, repo, author, Access::Write)?;
        let mut asked = Vec::new();
        for login in logins {
            let account = self.account_named(login).ok_or_else(|| FakeRefusal::NotFound(format!("user {login}")))?;
            if Some(account.user.id) == author {
                return Err(FakeRefusal::Invalid("the author of a pull request cannot review it".to_owned()));
            }
            self.require(repo, account.user.id, Access::Read)
                .map_err(|_| FakeRefusal::Invalid(format!("{login} is no collaborator")))?;
            asked.push(account.user.id);
        }
        for user in &asked {
            let pull = self.pull_mut(repo, number)?;
            if !pull.requested.contains(user) {
                pull.requested.push(*user);
                let login = self.user(*user).login;
                self.log(actor, OpKind::ReviewRequested, repo, Some(number), login);
                self.emit(repo, actor, FakeEventKind::ReviewRequested(number, *user));
            }
        }
        Ok(asked)
    }

    /// Submits a review.
    pub fn review(
        &mut self,
        actor: UserId,
        repo: RepoId,
        number: Number,
        draft: &ReviewDraft,
    ) -> Result<i64, FakeRefusal> {
        self.require_change(repo, actor, Access::Read)?;
        self.check_body(&draft.body)?;
        let own = self.pull(repo, number)?.0.author == Some(actor);
        if own && draft.verdict != ReviewVerdict::Commented {
            return Err(FakeRefusal::Invalid("a verdict on your own pull request is not allowed".to_owned()));
        }
        if draft.verdict == ReviewVerdict::Commented && draft.body.is_empty() && draft.remarks.is_empty() {
            return Err(FakeRefusal::Invalid("a review needs a body or remarks".to_owned()));
        }
        let id = self.insert_review(actor, repo, number, draft, false)?;
        self.tell_reviewed(actor, repo, number, id)?;
        Ok(id)
    }

    /// Drafts a review, visible only to its author until it is submitted.
    pub fn draft_review(
        &mut self,
        actor: UserId,
        repo: RepoId,
        number: Number,
        draft: &ReviewDraft,
    ) -> Result<i64, FakeRefusal> {
        self.require_change(repo, actor, Access::Read)?;
        self.insert_review(actor, repo, number, draft, true)
    }

    /// Submits a drafted review of the account.
    pub fn submit_review(
        &mut self,
        actor: UserId,
        repo: RepoId,
        number: Number,
        id: i64,
        verdict: ReviewVerdict,
        body: &str,
    ) -> Result<(), FakeRefusal> {
        self.require_change(repo, actor, Access::Read)?;
        let now = self.clock.now();
        let pull = self.pull_mut(repo, number)?;
        let own = |review: &&mut FakeReview| review.id == id && review.pending && review.author == Some(actor);
        let review = pull.reviews.iter_mut().find(own);
        let review = review.ok_or_else(|| FakeRefusal::NotFound(format!("drafted review {id}")))?;
        (review.pending, review.verdict, review.submitted_at) = (false, verdict, now);
        review.body = body.to_owned();
        self.tell_reviewed(actor, repo, number, id)
    }

    /// Replies to a comment on a line; the reply belongs to a separate review.
    pub fn reply(
        &mut self,
        actor: UserId,
        repo: RepoId,
        number: Number,
        to: CommentId,
        body: &str,
    ) -> Result<(i64, CommentId), FakeRefusal> {
        self.require_change(repo, actor, Access::Read)?;
        let mut remarks = self.pull(repo, number)?.1.reviews.iter().flat_map(|review| &review.remarks);
        let first = remarks.find(|remark| remark.id == to);
        let first = first.ok_or_else(|| FakeRefusal::NotFound(format!("comment {to} on a line")))?.clone();
        let remarks = vec![(first.path, first.line, body.to_owned())];
        let draft = ReviewDraft { verdict: ReviewVerdict::Commented, body: String::new(), remarks };
        let id = self.insert_review(actor, repo, number, &draft, false)?;
        let review = self.pull_mut(repo, number)?.reviews.iter_mut().find(|review| review.id == id);
        let remark = review.and_then(|review| review.remarks.first_mut());
        let remark = remark.ok_or_else(|| FakeRefusal::NotFound(format!("review {id}")))?;
        remark.reply_to = Some(first.reply_to.unwrap_or(to));
        let reply = remark.id;
        // A reply in a thread has no verdict.
        self.log(actor, OpKind::CommentCreated, repo, Some(number), body);
        self.emit(repo, actor, FakeEventKind::Reviewed(number, id));
        Ok((id, reply))
    }

    /// Returns a comment on a line with the number of its pull request.
    pub fn remark_mut(&mut self, repo: RepoId, id: CommentId) -> Result<(Number, &mut FakeReviewComment), FakeRefusal> {
        let issues = self.repo_mut(repo)?.issues.values_mut();
        let mut remarks = issues.flat_map(|issue| {
            let number = issue.number;
            let reviews = issue.pull.iter_mut().flat_map(|pull| &mut pull.reviews);
            reviews.flat_map(|review| &mut review.remarks).map(move |remark| (number, remark))
        });
        remarks.find(|(_, remark)| remark.id == id).ok_or_else(|| FakeRefusal::NotFound(format!("comment {id}")))
    }

    /// Reacts to a comment on a line; returns the reaction and whether it is new.
    pub fn react_to_remark(
        &mut self,
        actor: UserId,
        repo: RepoId,
        id: CommentId,
        content: &str,
    ) -> Result<(FakeReaction, bool), FakeRefusal> {
        self.require_reaction(actor, repo, content)?;
        let (fresh, at) = (self.fresh_id(), self.clock.now());
        let (number, remark) = self.remark_mut(repo, id)?;
        if let Some(known) = remark.reactions.iter().find(|known| known.user == actor && known.content == content) {
            return Ok((known.clone(), false));
        }
        let reaction = FakeReaction { id: fresh, user: actor, content: content.to_owned(), at };
        remark.reactions.push(reaction.clone());
        self.log(actor, OpKind::ReactionAdded, repo, Some(number), content);
        Ok((reaction, true))
    }

    /// Replies on Gitea's web page in the thread of a review's first line comment. The reply belongs to the same review, and
    /// is delivered as an ordinary comment.
    pub fn reply_on_page(
        &mut self,
        actor: UserId,
        repo: RepoId,
        number: Number,
        review: i64,
        body: &str,
    ) -> Result<CommentId, FakeRefusal> {
        self.require_change(repo, actor, Access::Read)?;
        let (id, at) = (CommentId(self.fresh_id()), self.clock.now());
        let reviews = &mut self.pull_mut(repo, number)?.reviews;
        let thread = reviews.iter_mut().find(|known| known.id == review);
        let remarks = &mut thread.ok_or_else(|| FakeRefusal::NotFound(format!("review {review}")))?.remarks;
        let first = remarks.first().cloned().ok_or_else(|| FakeRefusal::NotFound("a thread".to_owned()))?;
        let (author, reply_to, body) = (Some(actor), Some(first.id), body.to_owned());
        remarks.push(FakeReviewComment {
            id,
            body,
            author,
            reply_to,
            created_at: at,
            updated_at: at,
            reactions: Vec::new(),
            ..first
        });
        self.emit(repo, actor, FakeEventKind::Replied(number, id));
        Ok(id)
    }

    fn insert_review(
        &mut self,
        actor: UserId,
        repo: RepoId,
        number: Number,
        draft: &ReviewDraft,
        pending: bool,
    ) -> Result<i64, FakeRefusal> {
        let commit = self.pull(repo, number)?.1.facts.head_sha.clone();
        let (id, at) = (self.fresh_id(), self.clock.now());
        let mut remarks = Vec::new();
        for (path, line, body) in &draft.remarks {
            let (id, path, body) = (CommentId(self.fresh_id()), path.clone(), body.clone());
            let (author, created_at) = (Some(actor), at.plus_ms(-self.draft_age_ms));
            let (line, reply_to, updated_at) = (*line, None, created_at);
            let (reactions, resolved) = (Vec::new(), false);
            remarks.push(FakeReviewComment {
                id,
                path,
                line,
                body,
                author,
                reply_to,
                reactions,
                resolved,
                created_at,
                updated_at,
            });
        }
        let (verdict, body) = (draft.verdict, draft.body.clone());
        let pull = self.pull_mut(repo, number)?;
        pull.reviews.push(FakeReview {
            id,
            author: Some(actor),
            verdict,
            body,
            at,
            submitted_at: at,
            pending,
            commit,
            remarks,
        });
        Ok(id)
    }

    fn tell_reviewed(&mut self, actor: UserId, repo: RepoId, number: Number, id: i64) -> Result<(), FakeRefusal> {
        let keeps = self.keeps_requests;
        let pull = self.pull_mut(repo, number)?;
        pull.requested.retain(|asked| keeps || *asked != actor);
        let review = pull.reviews.iter().find(|review| review.id == id);
        let detail = review.map_or_else(String::new, |review| format!("{:?}: {}", review.verdict, review.body));
        self.log(actor, OpKind::Reviewed, repo, Some(number), detail);
        self.emit(repo, actor, FakeEventKind::Reviewed(number, id));
        Ok(())
    }

    /// Sets a commit status.
    pub fn set_status(
        &mut self,
        actor: UserId,
        repo: RepoId,
        sha: &Sha,
        draft: &StatusDraft,
    ) -> Result<FakeStatus, FakeRefusal> {
        self.require_change(repo, actor, Access::Write)?;
        if !["pending", "success", "failure", "error"].contains(&draft.state.as_str()) {
            return Err(FakeRefusal::Invalid(format!("no such state: {:?}", draft.state)));
        }
        let status = FakeStatus {
            id: self.fresh_id(),
            sha: sha.clone(),
            context: draft.context.clone(),
            state: draft.state.clone(),
            description: draft.description.clone(),
            target_url: draft.target_url.clone(),
            creator: actor,
            at: self.clock.now(),
        };
        self.repo_mut(repo)?.statuses.push(status.clone());
        self.log(actor, OpKind::StatusSet, repo, None, format!("{}: {}", draft.context, draft.state));
        self.emit(repo, actor, FakeEventKind::StatusSet(status.id));
        Ok(status)
    }

    /// Returns the newest status of each context of a commit, newest first.
    pub fn latest_statuses(&self, repo: RepoId, sha: &Sha) -> Vec<&FakeStatus> {
        let Ok(repo) = self.repo(repo) else { return Vec::new() };
        let mut latest: Vec<&FakeStatus> = Vec::new();
        for status in repo.statuses.iter().rev().filter(|status| status.sha == *sha) {
            if !latest.iter().any(|seen| seen.context == status.context) {
                latest.push(status);
            }
        }
        latest
    }

    /// Requests reviews from teams of the repository's organization that have access.
    pub fn request_teams(
        &mut self,
        actor: UserId,
        repo: RepoId,
        number: Number,
        names: &[String],
    ) -> Result<(), FakeRefusal> {
        let author = self.pull(repo, number)?.0.author;
        self.require_own_or(actor, repo, author, Access::Write)?;
        let org = self.user(self.repo(repo)?.owner).login;
        for name in names {
            let team = self.teams_of(&org).find(|team| team.name == *name && team.repos.contains(&repo));
            if team.is_none() {
                return Err(FakeRefusal::Invalid(format!("the team {name} is no collaborator")));
            }
        }
        for name in names {
            self.pull_mut(repo, number)?.requested_teams.push(name.clone());
            self.log(actor, OpKind::ReviewRequested, repo, Some(number), format!("team {name}"));
        }
        Ok(())
    }

    /// Creates a check run, or replaces the check run with the same name and commit.
    pub fn set_check_run(
        &mut self,
        actor: UserId,
        repo: RepoId,
        sha: &Sha,
        name: &str,
        outcome: Option<(&str, &str, &str)>,
    ) -> Result<i64, FakeRefusal> {
        let logged = outcome.is_some_and(|(_, _, log)| !log.is_empty());
        let workflow = logged.then(|| ("ci".to_owned(), "push".to_owned()));
        self.repo_mut(repo)?.check_runs.retain(|known| !(known.sha == *sha && known.name == name));
        self.add_check_run(actor, repo, sha, (name, workflow), outcome)
    }

    /// Adds a check run beside others with the same name. `workflow` is the workflow and event for an Actions job.
    pub fn add_check_run(
        &mut self,
        actor: UserId,
        repo: RepoId,
        sha: &Sha,
        (name, workflow): (&str, Option<(String, String)>),
        outcome: Option<(&str, &str, &str)>,
    ) -> Result<i64, FakeRefusal> {
        self.require_change(repo, actor, Access::Write)?;
        let (id, at) = (self.fresh_id(), self.clock.now());
        let (conclusion, summary, log) =
            outcome.map_or((None, "", ""), |(end, summary, log)| (Some(end), summary, log));
        let run = FakeCheckRun {
            id,
            sha: sha.clone(),
            name: name.to_owned(),
            conclusion: conclusion.map(str::to_owned),
            summary: summary.to_owned(),
            log: log.to_owned(),
            set_by: None,
            workflow,
            annotations: Vec::new(),
            at,
        };
        self.repo_mut(repo)?.check_runs.push(run);
        self.log(actor, OpKind::CheckRunSet, repo, None, format!("{name}: {}", conclusion.unwrap_or("running")));
        self.emit(repo, actor, FakeEventKind::CheckRunChanged(id));
        Ok(id)
    }

    /// Changes the conclusion and the summary of a check run.
    pub fn update_check_run(
        &mut self,
        actor: UserId,
        repo: RepoId,
        id: i64,
        conclusion: Option<&str>,
        summary: &str,
    ) -> Result<(), FakeRefusal> {
        self.require_change(repo, actor, Access::Write)?;
        let missing = || FakeRefusal::NotFound(format!("check run {id}"));
        let run = self.repo_mut(repo)?.check_runs.iter_mut().find(|run| run.id == id).ok_or_else(missing)?;
        (run.conclusion, run.summary) = (conclusion.map(str::to_owned), summary.to_owned());
        let what = format!("{}: {}", run.name, conclusion.unwrap_or("running"));
        self.log(actor, OpKind::CheckRunSet, repo, None, what);
        self.emit(repo, actor, FakeEventKind::CheckRunChanged(id));
        Ok(())
    }
}

/// Returns the numbers of the issues that a text closes by keyword (`Closes #7`).
pub(crate) fn closed_by(text: &str) -> Vec<Number> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let keyword = |word: &str| {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric()).to_ascii_lowercase();
        let known = ["close", "closes", "closed", "fix", "fixes", "fixed", "resolve", "resolves", "resolved"];
        known.contains(&word.as_str())
    };
    let number = |word: &str| {
        let digits: String = word.strip_prefix('#')?.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok().map(Number)
    };
    words.windows(2).filter(|pair| keyword(pair[0])).filter_map(|pair| number(pair[1])).collect()
}
