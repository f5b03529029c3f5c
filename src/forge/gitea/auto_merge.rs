//! Merging of pull requests by Gitea and Forgejo once the checks that protection requires have succeeded.

use ::http::Method;
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::json;

use super::Gitea;
use super::client::under;
use crate::domain::loops::MergeAnswer;
use crate::domain::model::ids::{Number, RepoRef, Sha};
use crate::forge::ForgeErrorKind::{Conflict, NotFound};
use crate::forge::{AutoMerge, ForgeResult};

/// Ways to merge that a repository allows.
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
    /// Returns the default way if it is allowed, else the first that is.
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

#[async_trait]
impl AutoMerge for Gitea {
    async fn merge_when_ready(&self, repo: &RepoRef, number: Number, head: &Sha) -> ForgeResult<MergeAnswer> {
        let what = format!("read the ways to merge in {repo}");
        let styles: MergeStyles = self.client.get(&what, &under(repo, &[])?, &[]).await?;
        let Some(style) = styles.style() else {
            return Ok(MergeAnswer::refused(
                format!("{} allows no way to merge", repo.full_name()),
                "Allow one in the repository's settings (Pull Requests)",
            ));
        };
        let what = format!("let the server merge {repo}#{number}");
        let body = json!({ "Do": style, "head_commit_id": head, "merge_when_checks_succeed": true });
        let number = number.to_string();
        match self.client.send(&what, Method::POST, &under(repo, &["pulls", &number, "merge"])?, &body).await {
            Ok(_) => Ok(MergeAnswer::Accepted),
            // The only conflict that needs nothing is that it was asked to before.
            Err(failure) if failure.kind == Conflict && failure.detail.contains("already scheduled") => {
                Ok(MergeAnswer::Accepted)
            }
            Err(failure) if failure.kind == Conflict => Ok(MergeAnswer::not_yet(failure.detail)),
            Err(failure) if failure.detail.starts_with("HTTP 405") && failure.detail.contains("not allowed") => {
                Ok(MergeAnswer::refused(
                    format!("the server does not let the bot's account merge it ({})", failure.detail),
                    "Allow the account in the protection of the base branch and comment `/ralph merge-when-ready` again, or \
                     merge it yourself",
                ))
            }
            // Mergeability is still checked, reviews are missing, or the branch is out of date.
            Err(failure) if failure.detail.starts_with("HTTP 405") => Ok(MergeAnswer::not_yet(failure.detail)),
            Err(failure) => Err(failure),
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
    fn style_is_one_that_the_repository_allows() {
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
