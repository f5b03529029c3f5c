//! What `check` asks of others: forges, backends, the sandbox, the database. Nothing is written anywhere.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::Finding;
use crate::app::{self, Options};
use crate::clock::Clock;
use crate::config::{AgentNetwork, ChannelConfig, Config, Env, ForgeAuth, ForgeConfig, ForgeKind, SandboxRequired};
use crate::domain::model::ids::User;
use crate::domain::report::notice::level_name;
use crate::domain::trust::egress::Egress;
use crate::forge::http::RateSettings;
use crate::forge::{Forge, ForgeError, ForgeErrorKind, Permission, Repository};
use crate::process::sandbox::{SandboxProbe, SandboxTier, probe};
use crate::store::{Store, inbox, memory};

/// Longest wait for one forge.
const PATIENCE: Duration = Duration::from_secs(30);
/// Repositories whose permission is asked.
const ASKED: usize = 20;
const HOUR_MS: i64 = 3_600_000;

/// Everything that takes asking, one finding each.
pub(super) async fn look(config: &Config, env: &Env) -> Vec<Finding> {
    let mut findings = Vec::new();
    let store = database(config, &mut findings).await;
    for forge in &config.forges {
        match tokio::time::timeout(PATIENCE, ask_forge(config, forge)).await {
            Ok(found) => findings.extend(found),
            Err(_) => {
                let detail = format!("{} did not answer within {} s", forge.url, PATIENCE.as_secs());
                findings.push(Finding::fail(format!("forge {}", forge.name), detail, "look at the network between"));
            }
        }
        findings.push(webhook(forge, store.as_ref()).await);
    }
    if config.sandbox.required == SandboxRequired::None {
        let detail = "switched off; agents can read and write whatever this account can";
        findings.push(Finding::warn("sandbox", detail, "set `sandbox.required` to auto"));
    } else {
        findings.extend(sandbox(&probe().await));
        findings.extend(network(&config.sandbox.network));
    }
    findings.extend(super::backends::look(config, env).await);
    for channel in &config.channels {
        findings.push(look_up(channel).await);
    }
    if let Some(store) = store {
        store.close().await;
    }
    findings
}

/// Whether messages to a channel may go where it is; nothing is sent.
async fn look_up(channel: &ChannelConfig) -> Finding {
    let name = format!("channel {}", channel.name);
    let fix = "look at its entry in `escalation.channels`, and at the network between";
    let sender = match app::channel(channel) {
        Ok(sender) => sender,
        Err(why) => return Finding::fail(name, why, fix),
    };
    let host = sender.host();
    match tokio::time::timeout(PATIENCE, sender.addresses()).await {
        Ok(Ok(found)) => {
            let addresses: Vec<String> = found.iter().map(ToString::to_string).collect();
            let levels: Vec<&str> = channel.levels.iter().map(|level| level_name(*level)).collect();
            let (kind, addresses, levels) = (channel.kind.as_str(), addresses.join(", "), levels.join(", "));
            Finding::ok(name, format!("{kind} at {host} ({addresses}), told of {levels}; nothing was sent"))
        }
        Ok(Err(why)) => Finding::fail(name, format!("{host}: {why}"), fix),
        Err(_) => Finding::fail(name, format!("{host} was not found within {} s", PATIENCE.as_secs()), fix),
    }
}

/// The database, where it can be used.
async fn database(config: &Config, findings: &mut Vec<Finding>) -> Option<Store> {
    const NAME: &str = "database";
    let path = crate::cli::database(config);
    if !path.exists() {
        findings.push(Finding::ok(NAME, format!("none yet; `ralph-bot serve` makes {}", path.display())));
        return None;
    }
    let fix = "stop the service and restore a backup (`ralph-bot backup` makes them)";
    let store = match Store::attach(&path) {
        Ok(store) => store,
        Err(error) => {
            findings.push(Finding::fail(NAME, error.to_string(), ""));
            return None;
        }
    };
    findings.push(match store.integrity().await {
        Ok(damage) if damage.is_empty() => Finding::ok(NAME, format!("{} is sound", path.display())),
        Ok(damage) => Finding::fail(NAME, format!("{} is damaged: {}", path.display(), damage.join("; ")), fix),
        Err(error) => Finding::fail(NAME, error.to_string(), fix),
    });
    findings.extend(learnings(&store).await);
    Some(store)
}

/// Whether learnings were found damaged; which nobody would else notice, as loops go on without them.
async fn learnings(store: &Store) -> Option<Finding> {
    let fix = "look at the disk; `ralph-bot memory import` brings back what an earlier export has of them";
    // What cannot be read was told of the database.
    let damaged = store.read(memory::quarantined).await.ok()?;
    Some(match damaged {
        0 => Finding::ok("memory", "no learning is known to be damaged"),
        1 => Finding::warn("memory", "one learning was damaged and is set aside", fix),
        _ => Finding::warn("memory", format!("{damaged} learnings were damaged and are set aside"), fix),
    })
}

async fn ask_forge(config: &Config, forge: &ForgeConfig) -> Vec<Finding> {
    let name = format!("forge {}", forge.name);
    let options = Options { rates: RateSettings { attempts: 1, ..RateSettings::default() }, ..Options::default() };
    let adapter = match app::connect(forge, &options) {
        Ok(adapter) => adapter,
        Err(error) => return vec![Finding::fail(name, format!("{error:#}"), "mend its entry in `forges`")],
    };
    let facts = match adapter.server_info().await {
        Ok(facts) => facts,
        Err(error) => return vec![refused(name, &error)],
    };
    let own = match adapter.own_account().await {
        Ok(own) => own,
        Err(error) if forge.own_id.is_some() => {
            let detail = format!("{} at {}; its account is known by `own_id` only: {error}", facts.product, forge.url);
            return vec![Finding::warn(name, detail, "make sure that the credential is good")];
        }
        Err(error) => return vec![refused(name, &error)],
    };
    let detail = format!("{} at {}, signed in as {}", facts.product, forge.url, own.login);
    let mut findings = vec![Finding::ok(name, detail)];
    let all = match adapter.repositories().await {
        Ok(all) => all,
        Err(error) => {
            findings.push(refused(format!("repositories of {}", forge.name), &error));
            return findings;
        }
    };
    let watched: Vec<&Repository> = all.iter().filter(|r| !r.archived && config.watches(&r.repo)).collect();
    findings.push(repositories(forge, &*adapter, &own, all.len(), &watched).await);
    findings.extend(super::teams::look(config, forge, &*adapter, &watched).await);
    let (asked, prefix) = (&watched[..watched.len().min(ASKED)], config.policy(&forge.name).branch_prefix);
    findings.extend(super::ci::look(&forge.name, &*adapter, asked, &prefix).await);
    findings
}

pub(super) fn refused(name: String, error: &ForgeError) -> Finding {
    let fix = match error.kind {
        ForgeErrorKind::Unauthorized => "the credential is not good; make a new one",
        ForgeErrorKind::Denied => "the credential may not do this; give it more scopes",
        ForgeErrorKind::Transient { .. } => "look at the address in `forges`, and at the network between",
        ForgeErrorKind::RateLimited { .. } => "wait; too much was asked of it",
        ForgeErrorKind::NotFound | ForgeErrorKind::Conflict | ForgeErrorKind::Bug => {
            "look at the address and the kind in `forges`"
        }
    };
    Finding::fail(name, error.to_string(), fix)
}

/// Whether the bot can label, comment and push where it is to work; of `seen` repositories, those that are `watched`.
async fn repositories(
    forge: &ForgeConfig,
    adapter: &dyn Forge,
    own: &User,
    seen: usize,
    watched: &[&Repository],
) -> Finding {
    let name = format!("repositories of {}", forge.name);
    let administers = forge.kind == ForgeKind::Gitea;
    if watched.is_empty() {
        let detail = format!("the credential sees {seen}, and `repositories` names none of them");
        let access = if administers { "administrator" } else { "write" };
        let fix = format!("give the bot's account {access} access to one, or mend `repositories`");
        return Finding::fail(name, detail, fix);
    }
    let count = watched.len();
    if matches!(forge.auth, ForgeAuth::App { .. }) {
        return Finding::ok(name, format!("{count}; what the App may do is part of its settings"));
    }
    let needed = if administers { Permission::Admin } else { Permission::Write };
    let mut short = Vec::new();
    for found in watched.iter().take(ASKED) {
        match adapter.permission(&found.repo, own).await {
            Ok(permission) if permission >= needed => {}
            Ok(permission) => short.push(format!("{} ({permission:?})", found.repo.full_name())),
            Err(error) => return refused(name, &error),
        }
    }
    if !short.is_empty() {
        let (what, fix) = if administers {
            let why = "Gitea and Forgejo tell nobody else what an account may do, and who may not be asked about may not command";
            ("administer", format!("make it a collaborator with administrator access: {why}"))
        } else {
            ("write to", "give it write access: it labels, comments and pushes branches".to_owned())
        };
        let detail = format!("{} may not {what} {}", own.login, short.join(", ").to_lowercase());
        return Finding::fail(name, detail, fix);
    }
    let looked = if count > ASKED { format!("; the first {ASKED} were asked") } else { String::new() };
    let access = if administers {
        "administrator access, so that people's permission can be asked"
    } else {
        "write access for labels, comments and branches"
    };
    Finding::ok(name, format!("{count}, with {access}{looked}"))
}

/// Whether deliveries of the forge have come.
async fn webhook(forge: &ForgeConfig, store: Option<&Store>) -> Finding {
    let name = format!("webhook of {}", forge.name);
    let forge_name = forge.name.clone();
    let last = match store {
        Some(store) => store.read(move |c| inbox::last_received(c, &forge_name)).await.unwrap_or_default(),
        None => None,
    };
    match last {
        Some(at) => {
            let hours = Clock::System.now().since(at) / HOUR_MS;
            let ago = if hours == 0 { "within the hour".to_owned() } else { format!("{hours} hours ago") };
            Finding::ok(name, format!("the last delivery came {ago}"))
        }
        None => {
            let fix = match forge.auth {
                ForgeAuth::Token(_) => "`ralph-bot init --webhook --repository OWNER/NAME` sets one up and tests it",
                ForgeAuth::App { .. } => "`ralph-bot init --webhook` shows what the App's settings have to say",
            };
            Finding::warn(name, format!("no delivery to /webhooks/{} has come", forge.name), fix)
        }
    }
}

/// What agents reach from within it.
fn network(network: &AgentNetwork) -> Option<Finding> {
    const NAME: &str = "network of agents";
    let reach = match (network, network.egress().ok()?) {
        (_, Egress::Everything) => {
            let fix = "list the hosts that they need in `sandbox.network`";
            return Some(Finding::warn(NAME, "everything that this machine reaches", fix));
        }
        (AgentNetwork::Hosts(hosts), _) if !hosts.is_empty() => format!("their model, and {}", hosts.join(", ")),
        (_, Egress::Only(_)) => "their model alone".to_owned(),
        (_, Egress::Nothing) => "nothing".to_owned(),
    };
    Some(Finding::ok(NAME, reach))
}

/// The sandbox, and each attempt to get out of it.
fn sandbox(found: &SandboxProbe) -> Vec<Finding> {
    const NAME: &str = "sandbox";
    let version = match &found.bubblewrap {
        Ok(version) => version,
        Err(why) => {
            let fix = "install bubblewrap and allow user namespaces, or set `sandbox: { required: none }`";
            return vec![Finding::fail(NAME, why, fix)];
        }
    };
    let whole = if found.tier == SandboxTier::A {
        Finding::ok(NAME, format!("bubblewrap {version}, tier A"))
    } else {
        let fix = "mend what fails below, or set `sandbox: { required: none }`";
        Finding::fail(NAME, format!("bubblewrap {version} does not hold here"), fix)
    };
    let attempts = found.escapes.iter().map(|escape| {
        let name = format!("sandbox: {}", escape.name);
        if escape.held { Finding::ok(name, "held") } else { Finding::fail(name, &escape.detail, "") }
    });
    std::iter::once(whole).chain(attempts).collect()
}
