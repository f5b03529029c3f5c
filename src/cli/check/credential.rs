//! Checks that the credential has the permissions that loops need, by requests that change nothing, and that the
//! repositories' webhooks are correct.

use super::finding::{CheckFinding, refused};
use crate::config::{Config, ForgeAuth, ForgeConfig};
use crate::forge::{Forge, ForgeErrorKind, Repository};

/// Checks the credential and the webhooks in each repository. Returns one finding about missing permissions and one
/// about the webhooks.
pub(super) async fn look(
    config: &Config,
    forge: &ForgeConfig,
    adapter: &dyn Forge,
    watched: &[&Repository],
) -> Vec<CheckFinding> {
    if matches!(forge.auth, ForgeAuth::App { .. }) || watched.is_empty() {
        return Vec::new();
    }
    let mut findings = vec![scopes(forge, adapter, watched).await];
    if let Some(public) = config.server.public_url.as_ref().filter(|_| forge.updates.webhooks) {
        let url = format!("{}/webhooks/{}", public.as_str().trim_end_matches('/'), forge.name);
        findings.extend(webhooks(forge, adapter, watched, &url).await);
    }
    findings
}

async fn scopes(forge: &ForgeConfig, adapter: &dyn Forge, watched: &[&Repository]) -> CheckFinding {
    let name = format!("token of {}", forge.name);
    let mut missing = Vec::new();
    for found in watched {
        match adapter.refused_scopes(&found.repo, forge.updates.webhooks).await {
            Ok(refused) => {
                let repo = found.repo.full_name();
                missing.extend(refused.into_iter().map(|what| format!("{what} in {repo}")));
            }
            Err(error) => return refused(name, &error),
        }
    }
    match missing.is_empty() {
        true => CheckFinding::ok(name, "may make the changes that loops need; checked by requests that change nothing"),
        false => {
            let fix = "create a token with the scopes of the installation guide; a scope that only reads is not enough";
            CheckFinding::fail(name, format!("may not {}", missing.join("; may not ")), fix)
        }
    }
}

async fn webhooks(
    forge: &ForgeConfig,
    adapter: &dyn Forge,
    watched: &[&Repository],
    url: &str,
) -> Option<CheckFinding> {
    let name = format!("webhooks of {}", forge.name);
    let forge_webhooks = adapter.webhooks()?;
    let (mut wrong, mut hidden) = (Vec::new(), Vec::new());
    for found in watched {
        match forge_webhooks.webhook_problems(&found.repo, url).await {
            Ok(None) => return None,
            Ok(Some(problems)) => {
                wrong.extend(problems.into_iter().map(|problem| format!("{}: {problem}", found.repo.full_name())));
            }
            Err(error) if matches!(error.kind, ForgeErrorKind::Denied | ForgeErrorKind::NotFound) => {
                hidden.push(format!("{} ({})", found.repo.full_name(), error.detail));
            }
            Err(error) => return Some(refused(name, &error)),
        }
    }
    if !hidden.is_empty() {
        wrong.push(format!(
            "the token may not list the webhooks of {}, so their events cannot be checked",
            hidden.join(", ")
        ));
        let fix = "compare them in the repository's settings with the installation guide, or give the token the permission to \
            read webhooks (GitHub: Webhooks: read, classic tokens `read:repo_hook`; Gitea: `read:repository` of an administrator)";
        return Some(CheckFinding::warn(name, format!("{} ({url})", wrong.join("; ")), fix));
    }
    Some(match wrong.is_empty() {
        true => {
            let detail = format!("each of {} repositories sends the needed events to {url}", watched.len());
            match forge_webhooks.delivers_statuses().await {
                Err(error) => refused(name, &error),
                Ok(true) => CheckFinding::ok(name, detail),
                Ok(false) => {
                    let slower = "this version delivers no commit statuses: the service checks CI once a minute";
                    CheckFinding::ok(name, format!("{detail}; {slower}"))
                }
            }
        }
        false => {
            let fix = "repair them with `ralph-bot init --webhook --repository OWNER/NAME`";
            CheckFinding::warn(name, format!("{} ({url})", wrong.join("; ")), fix)
        }
    })
}
