//! What calls are made of: labels by id, pull requests as the server has them, reviewers, members of teams.

use std::collections::BTreeMap;

use ::http::Method;
use serde_json::json;

use super::client::under;
use super::map::{WireLabel, WirePull, WireTeams, WireUser};
use super::{Gitea, lock};
use crate::domain::ids::{Number, RepoRef, User};
use crate::domain::permit::Team;
use crate::forge::ForgeErrorKind::{Denied, NotFound};
use crate::forge::http::{error, json as read};
use crate::forge::{ForgeError, ForgeResult};

impl Gitea {
    /// Whether an account is a member of a team of an organisation that we see.
    pub(super) async fn member_of(&self, team: &Team, user: &User) -> ForgeResult<bool> {
        let what = format!("ask whether {} is in the team {team}", user.login);
        if user.login.is_empty() || user.id.0 <= 0 {
            return Ok(false);
        }
        let query = [("q", team.name.as_str()), ("limit", "50")];
        let found: WireTeams = match self.client.get(&what, &["orgs", &team.org, "teams", "search"], &query).await {
            Err(ForgeError { kind: NotFound, .. }) => return Ok(false),
            found => found?,
        };
        let named = found.data.into_iter().find(|known| known.name.eq_ignore_ascii_case(&team.name));
        let Some(known) = named else { return Ok(false) };
        let path = ["teams", &known.id.to_string(), "members", &user.login];
        match self.client.get::<WireUser>(&what, &path, &[]).await {
            Ok(member) => Ok(member.existing().is_some_and(|account| account.id == user.id)),
            Err(ForgeError { kind: NotFound, .. }) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Ids of the labels that can be set in a repository, its organisation's included; the repository's own win.
    pub(super) async fn fetch_labels(&self, repo: &RepoRef) -> ForgeResult<BTreeMap<String, i64>> {
        let what = format!("list the labels of {repo}");
        let own: Vec<WireLabel> = self.client.list(&what, &under(repo, &["labels"])?, &[], |_| false).await?;
        let of_owner = self.client.list(&what, &["orgs", &repo.owner, "labels"], &[], |_| false).await;
        let shared: Vec<WireLabel> = match of_owner {
            // A person's repository has no organisation; a narrow token may not read one.
            Err(ForgeError { kind: NotFound | Denied, .. }) => Vec::new(),
            other => other?,
        };
        let known: BTreeMap<String, i64> = shared.into_iter().chain(own).map(|label| (label.name, label.id)).collect();
        lock(&self.labels).insert(repo.id, known.clone());
        Ok(known)
    }

    /// Ids for names of labels, from what is remembered if that knows them all.
    pub(super) async fn label_ids(&self, repo: &RepoRef, names: &[String]) -> ForgeResult<Vec<i64>> {
        let remembered = lock(&self.labels).get(&repo.id).cloned().unwrap_or_default();
        let known = if names.iter().all(|name| remembered.contains_key(name)) {
            remembered
        } else {
            self.fetch_labels(repo).await?
        };
        names
            .iter()
            .map(|name| {
                let missing =
                    || error(NotFound, &format!("find the label {name:?} in {repo}"), "there is none; make it");
                known.get(name).copied().ok_or_else(missing)
            })
            .collect()
    }

    pub(super) async fn wire_pull(&self, repo: &RepoRef, number: Number) -> ForgeResult<WirePull> {
        let what = format!("read pull request {repo}#{number}");
        self.client.get(&what, &under(repo, &["pulls", &number.to_string()])?, &[]).await
    }

    pub(super) async fn edit_pull(
        &self,
        repo: &RepoRef,
        number: Number,
        fields: serde_json::Value,
    ) -> ForgeResult<WirePull> {
        let what = format!("edit pull request {repo}#{number}");
        let path = [String::from("pulls"), number.to_string()];
        let answer = self.client.send(&what, Method::PATCH, &under(repo, &[&path[0], &path[1]])?, &fields).await?;
        read(&what, &answer)
    }

    pub(super) async fn ask_reviewers(&self, repo: &RepoRef, number: Number, logins: &[String]) -> ForgeResult<()> {
        let what = format!("ask for a review of {repo}#{number}");
        let number = number.to_string();
        let path = under(repo, &["pulls", &number, "requested_reviewers"])?;
        self.client.send(&what, Method::POST, &path, &json!({ "reviewers": logins })).await.map(drop)
    }
}
