//! Checks that the members of `permissions.teams` can be read. A team that the credential cannot see has no members.

use super::finding::{CheckFinding, refused};
use crate::config::{Config, ForgeConfig};
use crate::forge::{Forge, Repository, TeamVisibility};

/// Checks each team of a forge.
pub(super) async fn look(
    config: &Config,
    forge: &ForgeConfig,
    adapter: &dyn Forge,
    watched: &[&Repository],
) -> Vec<CheckFinding> {
    let mut findings = Vec::new();
    for team in config.policy(&forge.name).teams {
        let name = format!("team {team}");
        // An App can read the teams of the organization that owns the repository.
        let own = watched.iter().find(|found| found.repo.owner.eq_ignore_ascii_case(&team.org));
        let Some(repository) = own.or(watched.first()) else { continue };
        let Some(teams) = adapter.teams() else {
            let fix = "remove it from `permissions.teams`";
            findings.push(CheckFinding::fail(name, "this forge has no teams; no account counts as a member", fix));
            continue;
        };
        findings.push(match teams.team_visibility(&repository.repo, &team).await {
            Ok(TeamVisibility::Visible) => CheckFinding::ok(name, "its members can be read"),
            Ok(TeamVisibility::Unknown { why }) => {
                let fix = "ask a member to comment `/ralph help`; without an answer the team is hidden";
                CheckFinding::warn(name, why, fix)
            }
            Ok(TeamVisibility::Hidden { why, fix }) => {
                CheckFinding::fail(name, format!("{why}; the team counts as empty"), fix)
            }
            Err(error) => refused(name, &error),
        });
    }
    findings
}

/// Returns the teams that have write access to a repository and whose members the bot cannot see.
pub(super) async fn hidden(adapter: &dyn Forge, asked: &[&Repository]) -> Vec<CheckFinding> {
    let Some(teams) = adapter.teams() else { return Vec::new() };
    let mut findings: Vec<CheckFinding> = Vec::new();
    for repository in asked {
        let repo = &repository.repo;
        match teams.hidden_teams(repo).await {
            Ok(unseen) => findings.extend(unseen.into_iter().map(|team| {
                let detail = format!(
                    "it has write access to {}, but its members are hidden from the bot, so the bot cannot check whether they may give commands",
                    repo.full_name()
                );
                let fix = "make the bot's account a member of the team or an owner of the organization, and give its token the scope `read:organization`";
                CheckFinding::warn(format!("team {team}"), detail, fix)
            })),
            Err(error) => findings.push(refused(format!("teams of {}", repo.full_name()), &error)),
        }
    }
    findings
}
