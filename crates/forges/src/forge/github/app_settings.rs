//! Settings of the App and its installations, and rules of repositories, which `ralph-bot check` compares with the
//! requirements.

use std::collections::BTreeMap;

use http::Method;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::auth::Scope;
use super::client::ApiCall;
use super::{EVENTS, GitHub, PERMISSIONS};
use crate::domain::model::ids::RepoRef;
use crate::forge::{ForgeErrorKind, ForgeResult, PushRule};

#[derive(Deserialize)]
struct AppSettings {
    #[serde(default)]
    permissions: BTreeMap<String, String>,
    #[serde(default)]
    events: Vec<String>,
    suspended_at: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct AppHook {
    url: Option<String>,
    content_type: Option<String>,
    insecure_ssl: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct BranchRule {
    #[serde(rename = "type")]
    kind: String,
}

impl AppSettings {
    /// Returns the missing permissions and events, one phrase each.
    fn missing(&self) -> Vec<String> {
        let lacks = |(name, access): &&(&str, &str)| match self.permissions.get(*name).map(String::as_str) {
            Some("write" | "admin") => false,
            held => held != Some(*access),
        };
        let permissions: Vec<String> =
            PERMISSIONS.iter().filter(lacks).map(|(name, access)| format!("{name}: {access}")).collect();
        let events: Vec<&str> =
            EVENTS.iter().filter(|event| !self.events.iter().any(|known| known == *event)).copied().collect();
        let mut missing = Vec::new();
        if !permissions.is_empty() {
            missing.push(format!("lacks the permissions {}", permissions.join(", ")));
        }
        if !events.is_empty() {
            missing.push(format!("does not subscribe to {}", events.join(", ")));
        }
        missing
    }
}

impl GitHub {
    /// Returns the problems of the App's settings.
    pub(super) async fn problems_of_app(&self, hook_url: Option<&str>) -> ForgeResult<Vec<String>> {
        let what = "read the App's settings";
        let app: AppSettings = self.client.read(&ApiCall::new(Scope::Own, Method::GET, &["app"], what)).await?;
        let mut problems = app.missing();
        let path = ["app", "hook", "config"];
        let hook = self.client.read(&ApiCall::new(Scope::Own, Method::GET, &path, "read the App's webhook")).await;
        let hook: AppHook = match hook {
            Err(failure) if failure.kind == ForgeErrorKind::NotFound => {
                problems.push("has no webhook".to_owned());
                return Ok(problems);
            }
            hook => hook?,
        };
        let address = hook.url.unwrap_or_default();
        match hook_url {
            _ if address.is_empty() => problems.push("its webhook has no address".to_owned()),
            Some(wanted) if address.trim_end_matches('/') != wanted => {
                problems.push(format!("its webhook sends to {address} instead of {wanted}"));
            }
            _ => {}
        }
        if hook.content_type.as_deref().is_some_and(|kind| kind != "json") {
            problems.push("its webhook does not send JSON".to_owned());
        }
        let unverified = hook.insecure_ssl.is_some_and(|value| value == "1" || value == 1);
        if unverified {
            problems.push("its webhook does not verify certificates".to_owned());
        }
        Ok(problems)
    }

    /// Returns the problems of the installation on a repository. Permissions that the App requests later have to be
    /// accepted in each installation.
    pub(super) async fn problems_of_installation(&self, repo: &RepoRef) -> ForgeResult<Vec<String>> {
        let path = ["repos", &repo.owner, &repo.name, "installation"];
        let what = format!("read the App's installation on {}", repo.full_name());
        let found = self.client.read(&ApiCall::new(Scope::Own, Method::GET, &path, what)).await;
        let installation: AppSettings = match found {
            Err(failure) if failure.kind == ForgeErrorKind::NotFound => return Ok(vec!["is not installed".to_owned()]),
            found => found?,
        };
        let mut problems = installation.missing();
        if installation.suspended_at.is_some() {
            problems.push("is suspended".to_owned());
        }
        Ok(problems)
    }

    /// Returns the rules that may reject a push to a branch.
    pub(super) async fn rules_for(&self, repo: &RepoRef, branch: &str) -> ForgeResult<Vec<PushRule>> {
        let path = ["rules", "branches", branch];
        let call = ApiCall::on(repo, Method::GET, &path, format!("read the rules for `{branch}` of"));
        let call = call.query(&[("per_page", "100")]);
        match self.client.pages(&call, |page: Vec<BranchRule>| page).await {
            // Servers without rulesets, and plans that do not have them.
            Err(failure) if matches!(failure.kind, ForgeErrorKind::NotFound | ForgeErrorKind::Denied) => Ok(Vec::new()),
            rules => Ok(rules?.iter().filter_map(demand).collect()),
        }
    }
}

/// Returns the requirement of a rule for a push; `None` if the bot's pushes satisfy it.
fn demand(rule: &BranchRule) -> Option<PushRule> {
    let demand = match rule.kind.as_str() {
        "creation" => "refuses new branches",
        "update" => "refuses pushes",
        "pull_request" => "demands pull requests for changes of the branch",
        "required_signatures" => "demands signed commits",
        "required_status_checks" => "demands checks before a push",
        "required_linear_history" => "refuses merge commits, which the bot needs to merge the base",
        "commit_message_pattern" => "demands messages of a pattern",
        "commit_author_email_pattern" | "committer_email_pattern" => "demands addresses of a pattern",
        "branch_name_pattern" => "demands branch names of a pattern",
        "file_path_restriction" => "refuses changes of some files",
        "file_extension_restriction" => "refuses files with some extensions",
        "max_file_path_length" | "max_file_size" => "limits files",
        "workflows" => "demands that workflows pass",
        _ => return None,
    };
    Some(PushRule { asks_for_signatures: rule.kind == "required_signatures", demand: demand.to_owned() })
}
