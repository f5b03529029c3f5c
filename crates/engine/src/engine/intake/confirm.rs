//! Queries to the forge that confirm the content of a delivery.

use futures::future::{join, join3};

use crate::domain::model::event::{CommentSnapshot, IssueSnapshot, PullSnapshot};
use crate::domain::model::ids::{Number, RepoRef, Timestamp, User};
use crate::domain::trust::permit::Authorization;
use crate::engine::forges::account::ForgeAccount;
use crate::engine::forges::repository_access::RepositoryAccess;
use crate::engine::intake::pulls::Reviewed;
use crate::engine::intake::{Intake, IntakeError, Origin};
use crate::forge::{Confirmations, ForgeErrorKind, ForgeResult, LabelChange, PullReview, ReviewComment, Webhooks};
use crate::store::forge_state;

/// Wait before a delivery whose repository was renamed is processed again, in milliseconds.
const RENAMED_WAIT_MS: i64 = 1_000;

/// State of a label that starts loops on the forge, and the sender's permission.
pub(super) struct RunLabelState {
    /// The issue; `None` if it does not exist.
    pub(super) issue: Option<IssueSnapshot>,
    /// Last change of the label; `None` if it was not requested or the forge recorded none.
    pub(super) change: Option<LabelChange>,
    /// Whether the sender may start loops. Queried together with the rest; an error is only reported if the rest is
    /// confirmed.
    pub(super) permission: ForgeResult<Authorization>,
}

/// Whether two descriptions of an account are of the same account. The kind is compared as well, because other rules
/// apply to bots.
fn is_same(reported: &User, known: &User) -> bool {
    reported.id == known.id && reported.kind == known.kind
}

fn contradicted<T>(why: impl Into<String>) -> Result<T, IntakeError> {
    Err(IntakeError::Contradicted(why.into()))
}

fn not_shown<T>(why: impl Into<String>) -> Result<T, IntakeError> {
    Err(IntakeError::NotShown(why.into()))
}

impl Intake {
    /// Returns the repository of a delivery under its current name. Asks the forge if the name differs from the stored name,
    /// because a delivery could claim the name of another repository. The stored name may be outdated: see
    /// [`Intake::still_named`].
    pub(super) async fn confirmed_repository(
        &self,
        account: &ForgeAccount,
        confirmations: &dyn Webhooks,
        reported: &RepoRef,
        installation: Option<u64>,
    ) -> Result<RepoRef, IntakeError> {
        let (forge, id) = (reported.forge.clone(), reported.id);
        let known = self.context.store.read(move |c| forge_state::repository(c, &forge, id)).await?;
        let repo = match known.filter(|known| known == reported) {
            Some(known) => known,
            None => match account.forge.repository(reported).await {
                Err(error) if error.kind == ForgeErrorKind::NotFound => {
                    return contradicted(format!("{reported} is not the repository with the id {id}: {error}"));
                }
                found => {
                    let (found, now) = (found?.repo, self.context.clock.now());
                    let seen = found.clone();
                    self.context.store.write(move |c| forge_state::save_repository(c, &seen, now)).await?;
                    found
                }
            },
        };
        let Some(named) = installation else { return Ok(repo) };
        match confirmations.is_in_installation(&repo, named).await {
            Err(error) if error.kind == ForgeErrorKind::NotFound => {
                contradicted(format!("{repo} is in no installation of the App"))
            }
            found => match found? {
                true => Ok(repo),
                false => contradicted(format!("{repo} is not in the installation {named}, which the delivery names")),
            },
        }
    }

    /// Fails unless the repository with this id still has the name that was used in the requests. Otherwise another
    /// repository may have answered, and the delivery is processed again under the current name. Called after the last
    /// request and before any effect.
    pub(in crate::engine) async fn still_named(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
    ) -> Result<(), IntakeError> {
        // Boxed, because it is part of many large futures.
        let now = Box::pin(self.forges.read_by_id(account, repo)).await??.repo;
        if now == *repo {
            return Ok(());
        }
        let why = format!("{repo} is now {now}; the service repeats the request under that name");
        Err(IntakeError::Retry { after_ms: Some(RENAMED_WAIT_MS), why })
    }

    /// Queries an issue, the last change of a label if `reported_at` is given, and the sender's permission.
    pub(super) async fn ask_about_label(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        (number, label): (Number, &str),
        sender: &User,
        reported_at: Option<Timestamp>,
    ) -> Result<RunLabelState, IntakeError> {
        let change = async {
            match (account.forge.webhooks(), reported_at) {
                (Some(forge), Some(near)) => forge.last_label_change(repo, number, label, near).await,
                _ => Ok(None),
            }
        };
        let permission = self.forges.permitted_now(account, repo, sender);
        let (issue, change, permission) = join3(account.forge.issue(repo, number), change, permission).await;
        let issue = match issue {
            Err(error) if error.kind == ForgeErrorKind::NotFound => None,
            found => Some(found?),
        };
        Ok(RunLabelState { issue, change: change?, permission })
    }

    /// Returns the origin of a reported change of the label if the forge confirms the change: the last change is of
    /// the same kind and by the same sender.
    pub(super) fn confirmed_change(
        &self,
        repo: &RepoRef,
        (number, label): (Number, &str),
        sender: &User,
        added: bool,
        answer: &RunLabelState,
        origin: &Origin,
    ) -> Result<Origin, IntakeError> {
        match &answer.change {
            None => not_shown(format!("the history of #{number} has no change of the label {label}")),
            Some(last) if last.added != added => {
                let last = if last.added { "added" } else { "removed" };
                not_shown(format!("by the history of #{number}, the label {label} was {last} last"))
            }
            Some(last) if !is_same(sender, &last.by) => {
                let what = if added { "added" } else { "removed" };
                contradicted(format!(
                    "the label {label} of #{number} was {what} by {} (id {}), not by {} (id {})",
                    last.by.login, last.by.id, sender.login, sender.id
                ))
            }
            Some(last) => Ok(origin.label_change(repo, number, last.id)),
        }
    }

    /// Queries a reported comment and the sender's permission, and returns both. Fails unless the forge has the comment in
    /// this conversation, by this author, with this text, and without edits.
    pub(super) async fn confirmed_comment(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        number: Number,
        comment: &CommentSnapshot,
        sender: &User,
    ) -> Result<(CommentSnapshot, Authorization), IntakeError> {
        let Some(forge) = account.forge.webhooks() else { return not_shown("the forge has no webhooks") };
        let found = forge.comment(repo, number, comment.id);
        let (found, permission) = join(found, self.forges.permitted_now(account, repo, sender)).await;
        let found = agrees(found?, number, comment, sender)?;
        Ok((found, permission?))
    }

    /// Confirms a comment on a line of a pull request in the same way, and returns the comment.
    pub(super) async fn confirmed_remark(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        number: Number,
        comment: &CommentSnapshot,
        sender: &User,
    ) -> Result<(ReviewComment, Authorization), IntakeError> {
        let Some(forge) = account.forge.webhooks() else { return not_shown("the forge has no webhooks") };
        let found = forge.review_comment(repo, number, comment.id);
        let (found, permission) = join(found, self.forges.permitted_now(account, repo, sender)).await;
        let Some(found) = found? else { return not_shown(format!("#{number} has no comment {}", comment.id)) };
        agrees(Some(found.comment.clone()), number, comment, sender)?;
        Ok((found, permission?))
    }

    /// Queries a reported review and the sender's permission. Returns the forge's review, which has this author,
    /// verdict and text.
    pub(super) async fn confirmed_review(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        number: Number,
        review: &Reviewed,
    ) -> Result<(PullReview, Authorization), IntakeError> {
        let permission = self.forges.permitted_now(account, repo, &review.sender);
        let (found, permission) = join(find_review(account, repo, number, review), permission).await;
        let Some(found) = found? else { return not_shown(format!("#{number} has no such review")) };
        if !found.author.as_ref().is_some_and(|author| is_same(&review.sender, author)) {
            return contradicted(format!("the review {} of #{number} is not by {}", found.id, review.sender.login));
        }
        if found.body.trim() != review.body.trim() || found.verdict != review.verdict {
            return contradicted(format!("the review {} of #{number} has another text or verdict", found.id));
        }
        Ok((found, permission?))
    }

    /// Returns the current state of a pull request. Fails if it is neither merged nor closed although the delivery
    /// reports that.
    pub(super) async fn confirmed_pull(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        reported: &PullSnapshot,
    ) -> Result<PullSnapshot, IntakeError> {
        let number = reported.number;
        let now = match account.forge.pull(repo, number).await {
            Err(error) if error.kind == ForgeErrorKind::NotFound => {
                return not_shown(format!("there is no pull request #{number}"));
            }
            found => found?,
        };
        if reported.merged && !now.merged {
            return not_shown(format!("the pull request #{number} is not merged"));
        }
        if !reported.open && now.open {
            return not_shown(format!("the pull request #{number} is open"));
        }
        if now.open && reported.open && reported.base_branch != now.base_branch {
            return not_shown(format!("the base of #{number} is {}, not {}", now.base_branch, reported.base_branch));
        }
        Ok(now)
    }

    /// Fails unless the issue has the reported text or was changed again after the reported edit.
    pub(super) async fn edit_exists(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        reported: &IssueSnapshot,
    ) -> Result<(), IntakeError> {
        let number = reported.number;
        let now = match account.forge.issue(repo, number).await {
            Err(error) if error.kind == ForgeErrorKind::NotFound => {
                return not_shown(format!("there is no issue #{number}"));
            }
            found => found?,
        };
        let newer = now.updated_at > reported.updated_at;
        match newer || now.updated_at == reported.updated_at && now.has_text_of(reported) {
            true => Ok(()),
            false => not_shown(format!("the issue #{number} was not edited at that time, or to another text")),
        }
    }

    /// Fails if the issue exists in the repository.
    pub(super) async fn issue_is_gone(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        number: Number,
    ) -> Result<(), IntakeError> {
        match account.forge.issue(repo, number).await {
            Err(error) if error.kind == ForgeErrorKind::NotFound => {
                match self.forges.place(account, repo, true).await {
                    Ok(RepositoryAccess::Usable(_)) => Ok(()),
                    // A deleted repository or one without issues shows no comments.
                    _ => Err(error.into()),
                }
            }
            found => found.map_err(IntakeError::from).and_then(|_| not_shown(format!("the issue #{number} exists"))),
        }
    }
}

/// Returns the forge's version of a reported review, by its id. Where deliveries contain no id, it is the author's
/// review with the same text and verdict whose time is nearest to the reported one.
async fn find_review(
    account: &ForgeAccount,
    repo: &RepoRef,
    number: Number,
    review: &Reviewed,
) -> ForgeResult<Option<PullReview>> {
    let (Some(forge), Some(reviews)) = (account.forge.webhooks(), account.forge.reviews()) else { return Ok(None) };
    if let Some(id) = review.id {
        return Confirmations::review(forge, repo, number, id).await;
    }
    let mut found = reviews.submitted_reviews(repo, number).await?;
    found.retain(|known| known.author.as_ref().is_some_and(|author| author.id == review.sender.id));
    found.retain(|known| known.body.trim() == review.body.trim() && known.verdict == review.verdict);
    Ok(found.into_iter().min_by_key(|known| known.submitted_at.since(review.at).abs()))
}

fn agrees(
    found: Option<CommentSnapshot>,
    number: Number,
    reported: &CommentSnapshot,
    sender: &User,
) -> Result<CommentSnapshot, IntakeError> {
    let id = reported.id;
    let Some(found) = found else { return not_shown(format!("#{number} has no comment {id}")) };
    if !found.author.as_ref().is_some_and(|author| is_same(sender, author)) {
        return contradicted(format!("the comment {id} on #{number} is not by {} (id {})", sender.login, sender.id));
    }
    if found.edited {
        return contradicted(format!("the comment {id} on #{number} was edited"));
    }
    if found.body.trim() != reported.body.trim() {
        return contradicted(format!("the comment {id} on #{number} has another text"));
    }
    Ok(found)
}
