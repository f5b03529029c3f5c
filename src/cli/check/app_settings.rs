//! Checks the settings of a GitHub App, its installations, its failed deliveries, and rules that may reject the bot's
//! pushes.

use super::finding::{CheckFinding, refused};
use crate::clock::Clock;
use crate::config::{Config, ForgeAuth, ForgeConfig};
use crate::forge::{Forge, Repository};

/// Period for which failed deliveries are reported, in milliseconds.
const REPORTED_MS: i64 = 24 * 3_600_000;

/// Checks the App's settings and deliveries; returns nothing for a personal token.
pub(super) async fn look(config: &Config, forge: &ForgeConfig, adapter: &dyn Forge) -> Vec<CheckFinding> {
    if !matches!(forge.auth, ForgeAuth::App { .. }) {
        return Vec::new();
    }
    let mut findings = vec![settings(config, forge, adapter).await];
    if forge.updates.webhooks {
        findings.extend(deliveries(forge, adapter).await);
    }
    findings
}

async fn settings(config: &Config, forge: &ForgeConfig, adapter: &dyn Forge) -> CheckFinding {
    let name = format!("App of {}", forge.name);
    let public = config.server.public_url.as_ref().filter(|_| forge.updates.webhooks);
    let url = public.map(|public| format!("{}/webhooks/{}", public.as_str().trim_end_matches('/'), forge.name));
    match adapter.app_problems(url.as_deref()).await {
        Ok(problems) => match problems.unwrap_or_default() {
            none if none.is_empty() => CheckFinding::ok(name, "has the needed permissions, events and webhook"),
            problems => {
                let fix = "compare its settings with app-manifest.yml and `ralph-bot init --webhook`";
                CheckFinding::fail(name, problems.join("; "), fix)
            }
        },
        Err(error) => refused(name, &error),
    }
}

/// Checks the App's installations on repositories; returns nothing for a personal token.
pub(super) async fn installations(
    forge: &ForgeConfig,
    adapter: &dyn Forge,
    watched: &[&Repository],
) -> Option<CheckFinding> {
    if !matches!(forge.auth, ForgeAuth::App { .. }) {
        return None;
    }
    let name = format!("installations of {}", forge.name);
    let mut problems = Vec::new();
    for found in watched {
        match adapter.installation_problems(&found.repo).await {
            Ok(wrong) => problems.extend(wrong.into_iter().map(|what| format!("{}: {what}", found.repo.full_name()))),
            Err(error) => return Some(refused(name, &error)),
        }
    }
    Some(match problems.is_empty() {
        true => CheckFinding::ok(
            name,
            format!("accepted the App's permissions and events, in {} repositories", watched.len()),
        ),
        false => {
            let fix = "accept the App's new permissions, or end the suspension, in the organization's settings under Installed \
                       GitHub Apps";
            CheckFinding::fail(name, problems.join("; "), fix)
        }
    })
}

async fn deliveries(forge: &ForgeConfig, adapter: &dyn Forge) -> Option<CheckFinding> {
    let name = format!("failed deliveries of {}", forge.name);
    let attempts = match adapter.webhooks()?.attempted_deliveries(Clock::System.now().plus_ms(-REPORTED_MS)).await {
        Ok(attempts) => attempts?,
        Err(error) => return Some(refused(name, &error)),
    };
    let arrived = |delivery: &str| attempts.iter().any(|one| one.delivery == delivery && one.succeeded);
    let failed: Vec<_> = attempts.iter().filter(|one| !arrived(&one.delivery)).collect();
    let Some(newest) = failed.iter().max_by_key(|one| (one.at, one.id)) else {
        return Some(CheckFinding::ok(name, format!("none of {} in the last day", attempts.len())));
    };
    let detail =
        format!("{} attempts of the last day; the newest, of `{}`: {}", failed.len(), newest.event, newest.status);
    let fix =
        "check that GitHub reaches the service's public address; a running service requests missed deliveries again";
    Some(CheckFinding::warn(name, detail, fix))
}

/// Checks for rules that may reject pushes to the bot's branches.
pub(super) async fn rules(
    config: &Config,
    forge: &ForgeConfig,
    adapter: &dyn Forge,
    (watched, prefix): (&[&Repository], &str),
) -> Option<CheckFinding> {
    let name = format!("rules for `{prefix}**` on {}", forge.name);
    let mut found = Vec::new();
    for one in watched {
        match adapter.push_rules(&one.repo, &format!("{prefix}1-example")).await {
            Ok(rules) => {
                let unmet = rules.iter().filter(|rule| !(rule.asks_for_signatures && config.signing.is_some()));
                found.extend(unmet.map(|rule| format!("a rule of {} {}", one.repo.full_name(), rule.demand)));
            }
            Err(error) => return Some(refused(name, &error)),
        }
    }
    let fix = "exclude the bot's branches from the ruleset, or let the bot bypass it; `commits.sign` signs commits";
    (!found.is_empty()).then(|| CheckFinding::warn(name, found.join("; "), fix))
}
