//! Actions on issues, labels and comments.

use super::{
    Access, FakeComment, FakeEventKind, FakeIssue, FakeLabel, FakePull, FakeReaction, FakeRefusal, FakeState,
    LabelRequest, OpKind, TextEdit, TitleEdit,
};
use ralph_types::ids::{CommentId, Number, RepoId, UserId};

impl FakeState {
    /// Returns an issue or pull request.
    pub fn issue(&self, repo: RepoId, number: Number) -> Result<&FakeIssue, FakeRefusal> {
        let issue = self.repo(repo)?.issues.get(&number);
        issue.ok_or_else(|| FakeRefusal::NotFound(format!("issue {number} in repository {repo}")))
    }

    /// Returns a mutable issue or pull request and updates its time of change.
    pub fn issue_mut(&mut self, repo: RepoId, number: Number) -> Result<&mut FakeIssue, FakeRefusal> {
        let now = self.clock.now();
        let issue = self.repo_mut(repo)?.issues.get_mut(&number);
        let issue = issue.ok_or_else(|| FakeRefusal::NotFound(format!("issue {number} in repository {repo}")))?;
        issue.updated_at = now;
        Ok(issue)
    }

    /// Returns the labels of an issue.
    pub fn labels_of(&self, repo: RepoId, number: Number) -> Vec<FakeLabel> {
        let (Ok(repo), Ok(issue)) = (self.repo(repo), self.issue(repo, number)) else { return Vec::new() };
        repo.labels.iter().filter(|label| issue.labels.contains(&label.id)).cloned().collect()
    }

    /// Opens an issue with labels by id.
    pub fn open_issue(
        &mut self,
        actor: UserId,
        repo: RepoId,
        title: &str,
        body: &str,
        labels: &[i64],
    ) -> Result<Number, FakeRefusal> {
        self.require_change(repo, actor, Access::Read)?;
        if title.trim().is_empty() {
            return Err(FakeRefusal::Invalid("an issue needs a title".to_owned()));
        }
        self.check_body(body)?;
        if !labels.is_empty() {
            self.require(repo, actor, self.triage_needs)?;
        }
        let number = self.insert_issue(actor, repo, title, body, None)?;
        self.log(actor, OpKind::IssueOpened, repo, Some(number), title);
        self.emit(repo, actor, FakeEventKind::IssueOpened(number));
        if !labels.is_empty() {
            self.set_labels(actor, repo, number, labels)?;
        }
        Ok(number)
    }

    /// Finds the accounts to assign to an issue; fails if one is unknown or has no write access.
    pub fn assignable(&self, repo: RepoId, logins: &[String]) -> Result<Vec<UserId>, FakeRefusal> {
        let refused = |login: &String| FakeRefusal::Invalid(format!("{login} cannot be assigned"));
        let find = |login: &String| {
            let user = self.account_named(login).ok_or_else(|| refused(login))?.user.id;
            self.require(repo, user, Access::Write).map(|()| user).map_err(|_| refused(login))
        };
        logins.iter().map(find).collect()
    }

    /// Replaces the assignees of an issue.
    pub fn assign(&mut self, repo: RepoId, number: Number, users: Vec<UserId>) -> Result<(), FakeRefusal> {
        self.issue_mut(repo, number)?.assignees = users;
        Ok(())
    }

    pub(super) fn insert_issue(
        &mut self,
        actor: UserId,
        repo: RepoId,
        title: &str,
        body: &str,
        pull: Option<FakePull>,
    ) -> Result<Number, FakeRefusal> {
        let (id, now) = (self.fresh_id(), self.clock.now());
        let entry = self.repo_mut(repo)?;
        let number = Number(entry.next_number);
        entry.next_number += 1;
        let issue = FakeIssue {
            id,
            number,
            title: title.to_owned(),
            body: body.to_owned(),
            author: Some(actor),
            labels: Vec::new(),
            assignees: Vec::new(),
            open: true,
            locked: false,
            created_at: now,
            updated_at: now,
            closed_at: None,
            comments: Vec::new(),
            reactions: Vec::new(),
            titles: Vec::new(),
            edits: Vec::new(),
            pull,
        };
        entry.issues.insert(number, issue);
        Ok(number)
    }

    /// Changes title and body of an issue or pull request.
    pub fn edit_issue(
        &mut self,
        actor: UserId,
        repo: RepoId,
        number: Number,
        title: Option<&str>,
        body: Option<&str>,
    ) -> Result<(), FakeRefusal> {
        self.require_own_or(actor, repo, self.issue(repo, number)?.author, Access::Write)?;
        body.map_or(Ok(()), |body| self.check_body(body))?;
        let (now, at_seq) = (self.clock.now(), self.ops.len() as u64);
        let issue = self.issue_mut(repo, number)?;
        let before = (issue.title.clone(), issue.body.clone());
        if let Some(title) = title.filter(|title| *title != issue.title) {
            let titles = (before.0.clone(), title.to_owned());
            issue.titles.push(TitleEdit { at_seq, editor: actor, at: now, titles });
            issue.title = title.to_owned();
        }
        if let Some(body) = body.filter(|body| *body != issue.body) {
            issue.edits.push(TextEdit { editor: actor, at: now, previous_body: before.1.clone() });
            issue.body = body.to_owned();
        }
        if (&issue.title, &issue.body) == (&before.0, &before.1) {
            return Ok(());
        }
        let (is_pull, detail, (title, body)) = (issue.pull.is_some(), issue.title.clone(), before);
        if detail != title {
            self.log(actor, OpKind::TitleChanged, repo, Some(number), detail.clone());
        }
        let (kind, what) = if is_pull {
            (OpKind::PullEdited, FakeEventKind::PullEdited { number, title, body })
        } else {
            (OpKind::IssueEdited, FakeEventKind::IssueEdited { number, title, body })
        };
        self.log(actor, kind, repo, Some(number), detail);
        self.emit(repo, actor, what);
        Ok(())
    }

    /// Emits the event for a changed base branch, with the previous base.
    pub fn tell_retargeted(
        &mut self,
        actor: UserId,
        repo: RepoId,
        number: Number,
        before: String,
    ) -> Result<(), FakeRefusal> {
        let title = self.issue(repo, number)?.title.clone();
        self.log(actor, OpKind::PullEdited, repo, Some(number), title);
        self.emit(repo, actor, FakeEventKind::PullRetargeted(number, before));
        Ok(())
    }

    /// Replaces the assignees of an issue as an account with write permission.
    pub fn reassign(
        &mut self,
        actor: UserId,
        repo: RepoId,
        number: Number,
        users: Vec<UserId>,
    ) -> Result<(), FakeRefusal> {
        self.require_change(repo, actor, Access::Write)?;
        self.assign(repo, number, users)?;
        self.emit(repo, actor, FakeEventKind::IssueAssigned(number));
        Ok(())
    }

    /// Closes or opens an issue or pull request; does nothing if it already has this state.
    pub fn set_open(&mut self, actor: UserId, repo: RepoId, number: Number, open: bool) -> Result<(), FakeRefusal> {
        self.require_own_or(actor, repo, self.issue(repo, number)?.author, self.triage_needs)?;
        let now = self.clock.now();
        let issue = self.issue_mut(repo, number)?;
        if issue.open == open {
            return Ok(());
        }
        if issue.pull.as_ref().is_some_and(|pull| pull.merged.is_some()) {
            return Err(FakeRefusal::Invalid("a merged pull request stays closed".to_owned()));
        }
        issue.open = open;
        issue.closed_at = (!open).then_some(now);
        let (kind, what) = match (issue.pull.is_some(), open) {
            (false, true) => (OpKind::IssueReopened, FakeEventKind::IssueReopened(number)),
            (false, false) => (OpKind::IssueClosed, FakeEventKind::IssueClosed(number)),
            (true, true) => (OpKind::PullReopened, FakeEventKind::PullReopened(number)),
            (true, false) => (OpKind::PullClosed, FakeEventKind::PullClosed(number)),
        };
        self.log(actor, kind, repo, Some(number), "");
        self.emit(repo, actor, what);
        Ok(())
    }

    /// Locks or unlocks a conversation; emits no event, like Gitea.
    pub fn set_locked(&mut self, actor: UserId, repo: RepoId, number: Number, on: bool) -> Result<(), FakeRefusal> {
        self.require_change(repo, actor, Access::Write)?;
        self.issue_mut(repo, number)?.locked = on;
        Ok(())
    }

    /// Deletes an issue.
    pub fn delete_issue(&mut self, actor: UserId, repo: RepoId, number: Number) -> Result<(), FakeRefusal> {
        self.require_change(repo, actor, Access::Admin)?;
        self.issue(repo, number)?;
        if let Some(issue) = self.repo_mut(repo)?.issues.remove(&number) {
            self.log(actor, OpKind::IssueDeleted, repo, Some(number), issue.title.clone());
            self.emit(repo, actor, FakeEventKind::IssueDeleted(Box::new(issue)));
        }
        Ok(())
    }

    /// Creates a label; `Conflict` if the name is taken.
    pub fn create_label(
        &mut self,
        actor: UserId,
        repo: RepoId,
        name: &str,
        color: &str,
        description: &str,
    ) -> Result<FakeLabel, FakeRefusal> {
        self.require_change(repo, actor, Access::Write)?;
        let color = color.trim_start_matches('#').to_ascii_lowercase();
        let well_formed = color.len() == 6 && color.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !well_formed || name.is_empty() {
            return Err(FakeRefusal::Invalid(format!("label {name:?} needs a name and a color of six digits")));
        }
        if self.unique_labels && self.label_named(repo, name).is_some() {
            return Err(FakeRefusal::Conflict(format!("the label {name:?} exists already (already_exists)")));
        }
        let label = FakeLabel {
            id: self.fresh_id(),
            name: name.to_owned(),
            color,
            description: description.to_owned(),
            exclusive: false,
        };
        self.repo_mut(repo)?.labels.push(label.clone());
        self.log(actor, OpKind::LabelCreated, repo, None, name);
        Ok(label)
    }

    /// Changes a label.
    pub fn edit_label(
        &mut self,
        actor: UserId,
        repo: RepoId,
        id: i64,
        change: impl FnOnce(&mut FakeLabel),
    ) -> Result<(), FakeRefusal> {
        self.require_change(repo, actor, Access::Write)?;
        let label = self.repo_mut(repo)?.labels.iter_mut().find(|label| label.id == id);
        let label = label.ok_or_else(|| FakeRefusal::NotFound(format!("label {id}")))?;
        change(label);
        let name = label.name.clone();
        self.log(actor, OpKind::LabelEdited, repo, None, name);
        Ok(())
    }

    /// Deletes a label and removes it from all issues.
    pub fn delete_label(&mut self, actor: UserId, repo: RepoId, id: i64) -> Result<(), FakeRefusal> {
        self.require_change(repo, actor, Access::Write)?;
        let entry = self.repo_mut(repo)?;
        entry.labels.retain(|label| label.id != id);
        entry.issues.values_mut().for_each(|issue| issue.labels.retain(|label| *label != id));
        self.log(actor, OpKind::LabelEdited, repo, None, id.to_string());
        Ok(())
    }

    /// Returns a label by name, ignoring case.
    pub fn label_named(&self, repo: RepoId, name: &str) -> Option<&FakeLabel> {
        self.repo(repo).ok()?.labels.iter().find(|label| label.name.eq_ignore_ascii_case(name))
    }

    /// Replaces an issue's labels with the labels that have these ids; emits one event.
    pub fn set_labels(
        &mut self,
        actor: UserId,
        repo: RepoId,
        number: Number,
        wanted: &[i64],
    ) -> Result<(), FakeRefusal> {
        self.set_labels_by(actor, repo, number, wanted, LabelRequest::Change)
    }

    /// Same as [`Self::set_labels`], for a specific kind of request.
    pub fn set_labels_by(
        &mut self,
        actor: UserId,
        repo: RepoId,
        number: Number,
        wanted: &[i64],
        by: LabelRequest,
    ) -> Result<(), FakeRefusal> {
        self.require_change(repo, actor, self.triage_needs)?;
        let known = self.repo(repo)?.labels.clone();
        if let Some(id) = wanted.iter().find(|id| !known.iter().any(|label| label.id == **id)) {
            return Err(FakeRefusal::NotFound(format!("label {id}")));
        }
        let before = self.issue(repo, number)?.labels.clone();
        // A new exclusive label replaces the other labels in its scope.
        let scopes: Vec<&str> = known
            .iter()
            .filter(|label| wanted.contains(&label.id) && !before.contains(&label.id))
            .filter_map(FakeLabel::scope)
            .collect();
        let replaced = |id: &i64| {
            let scope = known.iter().find(|label| label.id == *id).and_then(FakeLabel::scope);
            before.contains(id) && scope.is_some_and(|scope| scopes.contains(&scope))
        };
        let wanted: &[i64] = &wanted.iter().filter(|id| !replaced(id)).copied().collect::<Vec<_>>();
        let pick = |ids: &[i64], without: &[i64]| -> Vec<FakeLabel> {
            known.iter().filter(|label| ids.contains(&label.id) && !without.contains(&label.id)).cloned().collect()
        };
        let (added, removed) = (pick(wanted, &before), pick(&before, wanted));
        if added.is_empty() && removed.is_empty() {
            return Ok(());
        }
        self.issue_mut(repo, number)?.labels = pick(wanted, &[]).iter().map(|label| label.id).collect();
        for label in &added {
            self.log(actor, OpKind::LabelAdded, repo, Some(number), label.name.clone());
        }
        for label in &removed {
            self.log(actor, OpKind::LabelRemoved, repo, Some(number), label.name.clone());
        }
        self.emit(repo, actor, FakeEventKind::LabelsChanged { number, added, removed, by });
        Ok(())
    }

    /// Creates a comment.
    pub fn comment(
        &mut self,
        actor: UserId,
        repo: RepoId,
        number: Number,
        body: &str,
    ) -> Result<CommentId, FakeRefusal> {
        self.require_change(repo, actor, Access::Read)?;
        if body.trim().is_empty() {
            return Err(FakeRefusal::Invalid("a comment needs a body".to_owned()));
        }
        self.check_body(body)?;
        if self.issue(repo, number)?.locked && self.require(repo, actor, Access::Write).is_err() {
            return Err(FakeRefusal::Forbidden("You cannot comment on a locked issue.".to_owned()));
        }
        let (id, now) = (CommentId(self.fresh_id()), self.clock.now());
        let comment = FakeComment {
            id,
            author: Some(actor),
            body: body.to_owned(),
            created_at: now,
            updated_at: now,
            reactions: Vec::new(),
            minimized: None,
        };
        self.issue_mut(repo, number)?.comments.push(comment);
        self.log(actor, OpKind::CommentCreated, repo, Some(number), body);
        self.emit(repo, actor, FakeEventKind::CommentCreated(number, id));
        Ok(id)
    }

    /// Returns a comment and its issue.
    pub fn find_comment(&self, repo: RepoId, id: CommentId) -> Result<(&FakeIssue, &FakeComment), FakeRefusal> {
        let all = self.repo(repo)?.issues.values();
        let mut all = all.flat_map(|issue| issue.comments.iter().map(move |comment| (issue, comment)));
        all.find(|(_, comment)| comment.id == id).ok_or_else(|| FakeRefusal::NotFound(format!("comment {id}")))
    }

    /// Returns the text of a comment on an issue or pull request, or on a line of a pull request.
    pub fn comment_body(&self, repo: RepoId, id: CommentId) -> Result<&str, FakeRefusal> {
        if let Ok((_, comment)) = self.find_comment(repo, id) {
            return Ok(&comment.body);
        }
        let reviews = self.pulls(repo).into_iter().flat_map(|(_, pull)| &pull.reviews);
        let mut remarks = reviews.flat_map(|review| &review.remarks);
        let found = remarks.find(|remark| remark.id == id).map(|remark| remark.body.as_str());
        found.ok_or_else(|| FakeRefusal::NotFound(format!("comment {id}")))
    }

    /// Whether an id belongs to a comment on a line of a pull request.
    pub fn is_remark(&self, repo: RepoId, id: CommentId) -> bool {
        self.pulls(repo)
            .iter()
            .flat_map(|(_, pull)| &pull.reviews)
            .flat_map(|review| &review.remarks)
            .any(|r| r.id == id)
    }

    /// Returns a mutable comment and the number of its issue.
    pub fn comment_mut(&mut self, repo: RepoId, id: CommentId) -> Result<(Number, &mut FakeComment), FakeRefusal> {
        let all = self.repo_mut(repo)?.issues.values_mut();
        let mut all = all.flat_map(|issue| {
            let number = issue.number;
            issue.comments.iter_mut().map(move |comment| (number, comment))
        });
        all.find(|(_, comment)| comment.id == id).ok_or_else(|| FakeRefusal::NotFound(format!("comment {id}")))
    }

    /// Replaces a comment's text.
    pub fn edit_comment(&mut self, actor: UserId, repo: RepoId, id: CommentId, body: &str) -> Result<(), FakeRefusal> {
        let author = self.find_comment(repo, id)?.1.author;
        self.require_own_or(actor, repo, author, Access::Write)?;
        self.check_body(body)?;
        let now = self.clock.now();
        let (number, comment) = self.comment_mut(repo, id)?;
        let before = std::mem::replace(&mut comment.body, body.to_owned());
        comment.updated_at = now;
        self.log(actor, OpKind::CommentEdited, repo, Some(number), body);
        if before != body {
            self.emit(repo, actor, FakeEventKind::CommentEdited(number, id, before));
        }
        Ok(())
    }

    /// Deletes a comment.
    pub fn delete_comment(&mut self, actor: UserId, repo: RepoId, id: CommentId) -> Result<(), FakeRefusal> {
        let (issue, comment) = self.find_comment(repo, id)?;
        let (number, comment) = (issue.number, comment.clone());
        self.require_own_or(actor, repo, comment.author, Access::Write)?;
        self.issue_mut(repo, number)?.comments.retain(|kept| kept.id != id);
        self.log(actor, OpKind::CommentDeleted, repo, Some(number), comment.body.clone());
        self.emit(repo, actor, FakeEventKind::CommentDeleted(number, Box::new(comment)));
        Ok(())
    }

    /// Minimizes a comment as outdated.
    pub fn minimize(&mut self, actor: UserId, repo: RepoId, id: CommentId) -> Result<(), FakeRefusal> {
        let author = self.find_comment(repo, id)?.1.author;
        self.require_own_or(actor, repo, author, Access::Write)?;
        let (number, comment) = self.comment_mut(repo, id)?;
        comment.minimized = Some("outdated".to_owned());
        self.log(actor, OpKind::CommentMinimized, repo, Some(number), "outdated");
        Ok(())
    }

    /// Adds a reaction; returns `false` if it already exists.
    pub fn react(
        &mut self,
        actor: UserId,
        repo: RepoId,
        id: CommentId,
        content: &str,
    ) -> Result<(FakeReaction, bool), FakeRefusal> {
        self.require_reaction(actor, repo, content)?;
        if !self.unique_labels && self.remark_mut(repo, id).is_ok() {
            // Gitea has a single table of comments.
            return self.react_to_remark(actor, repo, id, content);
        }
        let (fresh, now) = (self.fresh_id(), self.clock.now());
        let (number, comment) = self.comment_mut(repo, id)?;
        if let Some(known) = comment.reactions.iter().find(|known| known.user == actor && known.content == content) {
            return Ok((known.clone(), false));
        }
        let reaction = FakeReaction { id: fresh, user: actor, content: content.to_owned(), at: now };
        comment.reactions.push(reaction.clone());
        self.log(actor, OpKind::ReactionAdded, repo, Some(number), content);
        Ok((reaction, true))
    }

    pub(super) fn require_reaction(&self, actor: UserId, repo: RepoId, content: &str) -> Result<(), FakeRefusal> {
        const KNOWN: [&str; 8] = ["+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"];
        self.require_change(repo, actor, Access::Read)?;
        match KNOWN.contains(&content) {
            true => Ok(()),
            false => Err(FakeRefusal::Invalid(format!("'{content}' is not an allowed reaction"))),
        }
    }

    /// Adds a reaction to the text of an issue; returns `false` if it already exists.
    pub fn react_to_issue(
        &mut self,
        actor: UserId,
        repo: RepoId,
        number: Number,
        content: &str,
    ) -> Result<(FakeReaction, bool), FakeRefusal> {
        self.require_reaction(actor, repo, content)?;
        let (id, at) = (self.fresh_id(), self.clock.now());
        let issue = self.issue_mut(repo, number)?;
        if let Some(known) = issue.reactions.iter().find(|known| known.user == actor && known.content == content) {
            return Ok((known.clone(), false));
        }
        let reaction = FakeReaction { id, user: actor, content: content.to_owned(), at };
        issue.reactions.push(reaction.clone());
        Ok((reaction, true))
    }

    /// Removes a reaction; does nothing if it does not exist.
    pub fn unreact(&mut self, actor: UserId, repo: RepoId, id: CommentId, content: &str) -> Result<(), FakeRefusal> {
        let (number, comment) = self.comment_mut(repo, id)?;
        comment.reactions.retain(|known| !(known.user == actor && known.content == content));
        self.log(actor, OpKind::ReactionRemoved, repo, Some(number), content);
        Ok(())
    }

    /// Fails unless the account is the author or has the permission `needed`.
    pub(super) fn require_own_or(
        &self,
        actor: UserId,
        repo: RepoId,
        author: Option<UserId>,
        needed: Access,
    ) -> Result<(), FakeRefusal> {
        self.require_change(repo, actor, if author == Some(actor) { Access::Read } else { needed })
    }

    pub(super) fn check_body(&self, body: &str) -> Result<(), FakeRefusal> {
        match self.body_limit {
            Some(limit) if body.chars().count() > limit => {
                Err(FakeRefusal::Invalid(format!("body is too long (maximum is {limit} characters)")))
            }
            _ => Ok(()),
        }
    }
}
