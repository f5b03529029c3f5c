//! Automatic merging of pull requests by Gitea and Forgejo, as soon as the checks that branch protection requires have
//! succeeded.

use ::http::Method;
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::json;

use super::Gitea;
use super::client::under;
use crate::domain::loops::MergeAnswer;
use crate::domain::model::ids::{Number, RepoRef, Sha};
use crate::forge::ForgeErrorKind::{Conflict, NotFound};
use crate::forge::{AutoMerge, ForgeError, ForgeResult};

/// Merge styles that a repository allows.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MergeStyles {
    default_merge_style: String,
    allow_merge_commits: bool,
    allow_squash_merge: bool,
    allow_rebase: bool,
    allow_rebase_explicit: bool,
    allow_fast_forward_only_merge: bool,
}

impl MergeStyles {
    /// Returns the default style if it is allowed, otherwise the first allowed one; `None` if none is allowed.
    fn style(&self) -> Option<&'static str> {
        let all = [
            ("merge", self.allow_merge_commits),
            ("squash", self.allow_squash_merge),
            ("rebase", self.allow_rebase),
            ("rebase-merge", self.allow_rebase_explicit),
            ("fast-forward-only", self.allow_fast_forward_only_merge),
        ];
        let mut allowed = all.into_iter().filter(|(_, allowed)| *allowed).map(|(name, _)| name);
        let first = allowed.clone().next();
        allowed.find(|name| *name == self.default_merge_style).or(first)
    }
}

impl Gitea {
    /// Asks the server to merge a pull request with a style, either immediately or as soon as its checks have
    /// succeeded.
    async fn send_merge(
        &self,
        repo: &RepoRef,
        number: Number,
        head: &Sha,
        style: &str,
        when_checks_succeed: bool,
    ) -> ForgeResult<()> {
        let what = format!("let the server merge {repo}#{number}");
        let mut body = json!({ "Do": style, "head_commit_id": head });
        if when_checks_succeed {
            body["merge_when_checks_succeed"] = json!(true);
        }
        let number = number.to_string();
        let path = under(repo, &["pulls", &number, "merge"])?;
        self.client.send(&what, Method::POST, &path, &body).await.map(drop)
    }

    /// Merges a pull request whose automatic merge the server may have lost. The server's rules apply to this merge as
    /// well. If they are not satisfied yet, an automatic merge is scheduled again, which makes the server check the
    /// rules again.
    async fn merge_again(&self, repo: &RepoRef, number: Number, head: &Sha, style: &str) -> ForgeResult<MergeAnswer> {
        self.withdraw_merge(repo, number).await?;
        match self.send_merge(repo, number, head, style, false).await {
            Ok(()) => return Ok(MergeAnswer::Accepted),
            Err(failure) if failure.detail.starts_with("HTTP 405") => {
                tracing::info!(%repo, %number, detail = failure.detail, "scheduling an automatic merge again");
            }
            Err(failure) => return not_scheduled(failure),
        }
        match self.send_merge(repo, number, head, style, true).await {
            Ok(()) => Ok(MergeAnswer::MayForget),
            Err(failure) => not_scheduled(failure),
        }
    }
}

/// Converts a refused merge to an answer; returns other failures as errors.
fn not_scheduled(failure: ForgeError) -> ForgeResult<MergeAnswer> {
    if failure.kind == Conflict {
        return Ok(MergeAnswer::not_yet(failure.detail));
    }
    if !failure.detail.starts_with("HTTP 405") {
        return Err(failure);
    }
    if failure.detail.contains("not allowed") {
        return Ok(MergeAnswer::refused(
            format!("the server does not let the bot's account merge it ({})", failure.detail),
            "Allow the account in the protection of the base branch and comment `/ralph merge-when-ready` again, or merge it \
             yourself",
        ));
    }
    // Mergeability is still checked, reviews are missing, or the branch is out of date.
    Ok(MergeAnswer::not_yet(failure.detail))
}

#[async_trait]
impl AutoMerge for Gitea {
    async fn merge_when_ready(&self, repo: &RepoRef, number: Number, head: &Sha) -> ForgeResult<MergeAnswer> {
        let what = format!("read the merge methods of {repo}");
        let styles: MergeStyles = self.client.get(&what, &under(repo, &[])?, &[]).await?;
        let Some(style) = styles.style() else {
            return Ok(MergeAnswer::refused(
                format!("{} allows no merge method", repo.full_name()),
                "Allow one in the repository's settings (Pull Requests)",
            ));
        };
        let accepted = match self.probed().await?.forgets_merges {
            true => MergeAnswer::MayForget,
            false => MergeAnswer::Accepted,
        };
        match self.send_merge(repo, number, head, style, true).await {
            Ok(()) => Ok(accepted),
            // The only conflict that needs nothing is that it was asked to before.
            Err(failure) if failure.kind == Conflict && failure.detail.contains("already scheduled") => {
                match accepted {
                    MergeAnswer::MayForget => self.merge_again(repo, number, head, style).await,
                    accepted => Ok(accepted),
                }
            }
            Err(failure) => not_scheduled(failure),
        }
    }

    async fn left_merge(&self, _: &RepoRef, _: Number) -> ForgeResult<Option<String>> {
        // The server's API does not show scheduled merges.
        Ok(None)
    }

    async fn withdraw_merge(&self, repo: &RepoRef, number: Number) -> ForgeResult<()> {
        let what = format!("take back the merge of {repo}#{number}");
        let number = number.to_string();
        match self.client.send_empty(&what, Method::DELETE, &under(repo, &["pulls", &number, "merge"])?).await {
            Err(failure) if failure.kind != NotFound => Err(failure),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_style_is_allowed_by_the_repository() {
        let style = |default: &str, merge, squash| {
            let default_merge_style = default.to_owned();
            let styles = MergeStyles {
                default_merge_style,
                allow_merge_commits: merge,
                allow_squash_merge: squash,
                ..MergeStyles::default()
            };
            styles.style()
        };
        assert_eq!(style("squash", true, true), Some("squash"));
        assert_eq!(style("merge", false, true), Some("squash"));
        assert_eq!(style("", true, false), Some("merge"));
        assert_eq!(style("merge", false, false), None);
    }
}
