//! What `check` finds out about the teams of `permissions.teams`: whether it can be told who is in them. A team that our
//! credential does not see has no members, and nobody is told why.

use super::Finding;
use super::service::refused;
use crate::config::{Config, ForgeConfig};
use crate::forge::{Forge, Repository, TeamVisibility};

/// One finding for each team of a forge.
pub(super) async fn look(
    config: &Config,
    forge: &ForgeConfig,
    adapter: &dyn Forge,
    watched: &[&Repository],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for team in config.policy(&forge.name).teams {
        let name = format!("team {team}");
        // An App sees the teams of the organisation whose repository it is asked in.
        let own = watched.iter().find(|found| found.repo.owner.eq_ignore_ascii_case(&team.org));
        let Some(repository) = own.or(watched.first()) else { continue };
        let Some(teams) = adapter.teams() else {
            let fix = "remove it from `permissions.teams`";
            findings.push(Finding::fail(name, "this forge has no teams; nobody counts as a member", fix));
            continue;
        };
        findings.push(match teams.team_visibility(&repository.repo, &team).await {
            Ok(TeamVisibility::Visible) => Finding::ok(name, "it can be asked who is in it"),
            Ok(TeamVisibility::Unknown { why }) => {
                let fix = "have somebody of the team say `/ralph help`: without an answer it is hidden";
                Finding::warn(name, why, fix)
            }
            Ok(TeamVisibility::Hidden { why, fix }) => {
                Finding::fail(name, format!("{why}; nobody counts as a member"), fix)
            }
            Err(error) => refused(name, &error),
        });
    }
    findings
}
