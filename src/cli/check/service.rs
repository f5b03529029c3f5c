//! Checks of the service's dependencies: forges, sandbox, database, channels. Nothing is written.

#[cfg(test)]
mod tests;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ralph_types::failure::Failure;

use super::finding::{CheckFinding, refused};
use crate::app;
use crate::clock::Clock;
use crate::config::{AgentNetwork, ChannelConfig, Config, Env, ForgeAuth, ForgeConfig, ForgeKind, SandboxRequired};
use crate::domain::model::ids::User;
use crate::domain::report::notice::level_name;
use crate::domain::trust::egress::Egress;
use crate::domain::trust::outbound::OutboundFilter;
use crate::forge::http::RateSettings;
use crate::forge::{Forge, ForgeErrorKind, Permission, Repository};
use crate::process::{SandboxProbe, SandboxTier, enforces_limits, probe_sandbox};
use crate::store::{DatabaseAddress, Store, StoreError, inbox, memory, outbox};

/// Maximum wait for one forge or channel.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of repositories whose permission is queried.
const QUERIED_MAX: usize = 20;
const HOUR_MS: i64 = 3_600_000;
/// Number of days for which refused deliveries are reported.
const REPORTED_DAYS: i64 = 7;

/// Checks all dependencies, including backends.
pub(super) async fn look(config: &Config, env: &Env) -> Vec<CheckFinding> {
    let mut findings = Vec::new();
    let store = database(config, &mut findings).await;
    for forge in &config.forges {
        match tokio::time::timeout(ANSWER_TIMEOUT, ask_forge(config, forge, store.as_ref())).await {
            Ok(found) => findings.extend(found),
            Err(_) => {
                let detail = format!("{} did not answer within {} s", forge.url, ANSWER_TIMEOUT.as_secs());
                findings.push(CheckFinding::fail(
                    format!("forge {}", forge.name),
                    detail,
                    "check the network connection",
                ));
            }
        }
        if forge.updates.webhooks {
            findings.push(webhook(forge, store.as_ref()).await);
            findings.extend(unconfirmed(forge, store.as_ref()).await);
        }
        findings.extend(super::login::look(config, forge).await);
        findings.extend(locked_out(forge, store.as_ref()).await);
    }
    findings.extend(super::login::without(config));
    findings.extend(open_folder(&config.data_dir));
    if config.sandbox.required == SandboxRequired::None {
        let detail = "disabled; agents can read and write everything that this account can";
        findings.push(CheckFinding::warn("sandbox", detail, "set `sandbox.required` to `auto`"));
    } else {
        if let Err(why) = app::check_visible(config, env) {
            findings.push(CheckFinding::fail(
                "visible folders",
                format!("{why:#}"),
                "move one of the two paths; the service does not start",
            ));
        }
        findings.extend(sandbox(&probe_sandbox(&app::probe_settings(config, env)).await, config.sandbox.required));
        findings.push(limits(enforces_limits()));
        findings.extend(network(&config.sandbox.network));
        findings.extend(shown_folders(&app::shown_folders(config, env)));
    }
    findings.extend(super::backends::look(config, env).await);
    for channel in &config.channels {
        findings.push(check_channel(channel).await);
    }
    if let Some(store) = store {
        store.close().await;
    }
    findings
}

/// Checks that the address of a channel is allowed and resolves, and queries services that support it without sending
/// a message.
async fn check_channel(channel: &ChannelConfig) -> CheckFinding {
    let name = format!("channel {}", channel.name);
    let fix = "check its entry in `escalation.channels` and the network connection";
    let sender = match app::channel(channel, &OutboundFilter::default()) {
        Ok(sender) => sender,
        Err(why) => return CheckFinding::fail(name, format!("{why:#}"), fix),
    };
    let host = sender.host();
    match tokio::time::timeout(ANSWER_TIMEOUT, sender.addresses()).await {
        Ok(Ok(found)) => {
            let addresses: Vec<String> = found.iter().map(ToString::to_string).collect();
            let levels: Vec<&str> = channel.levels.iter().map(|level| level_name(*level)).collect();
            let (kind, addresses, levels) = (channel.kind.as_str(), addresses.join(", "), levels.join(", "));
            let place = format!("{kind} at {host} ({addresses})");
            match tokio::time::timeout(ANSWER_TIMEOUT, sender.probe(Clock::System.now())).await {
                Ok(Ok(said)) => {
                    let said = said.map(|said| format!(", {said}")).unwrap_or_default();
                    CheckFinding::ok(name, format!("{place}{said}, levels {levels}; no message was sent"))
                }
                Ok(Err(why)) => CheckFinding::fail(name, format!("{place}: {why:#}"), fix),
                Err(_) => {
                    let why = format!("{place}: no answer within {} s", ANSWER_TIMEOUT.as_secs());
                    CheckFinding::fail(name, why, fix)
                }
            }
        }
        Ok(Err(why)) => CheckFinding::fail(name, format!("{host}: {why:#}"), fix),
        Err(_) => {
            CheckFinding::fail(name, format!("{host} did not resolve within {} s", ANSWER_TIMEOUT.as_secs()), fix)
        }
    }
}

/// Opens and checks the database; `None` if it does not exist or is unusable.
async fn database(config: &Config, findings: &mut Vec<CheckFinding>) -> Option<Store> {
    const NAME: &str = "database";
    let address = match app::database::address(config) {
        Ok(address) => address,
        Err(error) => {
            findings.push(CheckFinding::fail(NAME, error.to_string(), ""));
            return None;
        }
    };
    let (path, sound) = match &address {
        DatabaseAddress::File(path) => (path.clone(), "is intact"),
        DatabaseAddress::Postgres(_) => (address.shown(), "answers"),
    };
    if matches!(&address, DatabaseAddress::File(path) if !path.exists()) {
        findings
            .push(CheckFinding::ok(NAME, format!("does not exist yet; `ralph-bot serve` creates {}", path.display())));
        return None;
    }
    let fix = "stop the service and restore a backup made with `ralph-bot backup`";
    let store = match Store::attach(address) {
        Ok(store) => store,
        Err(error @ StoreError::NotCreated { .. }) => {
            findings.push(CheckFinding::ok(NAME, error.to_string()));
            return None;
        }
        Err(error) => {
            findings.push(CheckFinding::fail(NAME, error.to_string(), ""));
            return None;
        }
    };
    if let Err(error) = app::database::check_installation(config, &store).await {
        findings.push(CheckFinding::fail(NAME, format!("{error:#}"), ""));
        return None;
    }
    findings.push(match store.integrity().await {
        Ok(damage) if damage.is_empty() => CheckFinding::ok(NAME, format!("{} {sound}", path.display())),
        Ok(damage) => CheckFinding::fail(NAME, format!("{} is damaged: {}", path.display(), damage.join("; ")), fix),
        Err(error) => CheckFinding::fail(NAME, error.to_string(), fix),
    });
    findings.extend(learnings(&store).await);
    Some(store)
}

/// Reports damaged learnings, which loops silently skip.
async fn learnings(store: &Store) -> Option<CheckFinding> {
    let fix = "check the disk; restore the learnings from an export with `ralph-bot memory import`";
    // Read errors are reported by the check of the database.
    let damaged = store.read(memory::quarantined).await.ok()?;
    Some(match damaged {
        0 => CheckFinding::ok("memory", "no damaged learnings"),
        1 => CheckFinding::warn("memory", "1 damaged learning (quarantined)", fix),
        _ => CheckFinding::warn("memory", format!("{damaged} damaged learnings (quarantined)"), fix),
    })
}

async fn ask_forge(config: &Config, forge: &ForgeConfig, store: Option<&Store>) -> Vec<CheckFinding> {
    let name = format!("forge {}", forge.name);
    let rates = RateSettings { attempts: 1, ..RateSettings::default() };
    let adapter = match app::connect(forge, rates, &Clock::System) {
        Ok(adapter) => adapter,
        Err(error) => {
            return vec![CheckFinding::fail(name, format!("{:#}", Failure::of(error)), "fix its entry in `forges`")];
        }
    };
    let facts = match adapter.server_info().await {
        Ok(facts) => facts,
        Err(error) => {
            let mut found = refused(name, &error);
            if matches!(error.kind, ForgeErrorKind::Transient { .. }) {
                found.fix.push_str("; the service starts without it and uses it once it answers");
            }
            return vec![found];
        }
    };
    let own = match adapter.own_account().await {
        Ok(own) => own,
        Err(error) if forge.own_id.is_some() => {
            let detail = format!("{} at {}; its account is known only by `own_id`: {error}", facts.product, forge.url);
            return vec![CheckFinding::warn(name, detail, "make sure that the credential is valid")];
        }
        Err(error) => return vec![refused(name, &error)],
    };
    let detail = format!("{} at {}, signed in as {}", facts.product, forge.url, own.login);
    let mut findings = vec![CheckFinding::ok(name, detail)];
    // Before the repositories, which cannot be listed if the App lacks permissions.
    findings.extend(super::app_settings::look(config, forge, &*adapter).await);
    let all = match adapter.repositories().await {
        Ok(all) => all,
        Err(error) => {
            findings.push(refused(format!("repositories of {}", forge.name), &error));
            return findings;
        }
    };
    let watched: Vec<&Repository> = all.iter().filter(|r| !r.archived && config.watches(&r.repo)).collect();
    findings.push(repositories(forge, &*adapter, &own, all.len(), &watched).await);
    let repos: Vec<_> = watched.iter().map(|found| found.repo.clone()).collect();
    findings.extend(super::polling::look(forge, &repos, store).await);
    findings.extend(super::teams::look(config, forge, &*adapter, &watched).await);
    let (asked, prefix) = (&watched[..watched.len().min(QUERIED_MAX)], config.policy(&forge.name).branch_prefix);
    findings.extend(super::teams::hidden(&*adapter, asked).await);
    findings.extend(super::credential::look(config, forge, &*adapter, asked).await);
    findings.extend(super::app_settings::installations(forge, &*adapter, asked).await);
    findings.extend(super::app_settings::rules(config, forge, &*adapter, (asked, prefix.as_str())).await);
    findings.extend(super::ci::look(&forge.name, &*adapter, asked, &prefix).await);
    findings
}

/// Checks that the bot can label, comment and push in the repositories among `seen` that are in `watched`.
async fn repositories(
    forge: &ForgeConfig,
    adapter: &dyn Forge,
    own: &User,
    seen: usize,
    watched: &[&Repository],
) -> CheckFinding {
    let name = format!("repositories of {}", forge.name);
    let administers = forge.kind == ForgeKind::Gitea;
    if watched.is_empty() {
        let detail = format!("the credential sees {seen}, and `repositories` names none of them");
        let access = if administers { "administrator" } else { "write" };
        let fix = format!("give the bot's account {access} access to one, or fix `repositories`");
        return CheckFinding::fail(name, detail, fix);
    }
    let count = watched.len();
    if matches!(forge.auth, ForgeAuth::App { .. }) {
        return CheckFinding::ok(name, format!("{count}; permissions are set in the App's settings"));
    }
    let needed = if administers { Permission::Admin } else { Permission::Write };
    let mut short = Vec::new();
    for found in watched.iter().take(QUERIED_MAX) {
        match adapter.permission(&found.repo, own).await {
            Ok(permission) if permission >= needed => {}
            Ok(permission) => short.push(format!("{} ({permission:?})", found.repo.full_name())),
            Err(error) => return refused(name, &error),
        }
    }
    if !short.is_empty() {
        let (what, fix) = if administers {
            let why = "Gitea and Forgejo report an account's permission only to administrators, and it is needed to accept commands";
            ("administer", format!("make it a collaborator with administrator access: {why}"))
        } else {
            ("write to", "grant write access, which labels, comments and branches need".to_owned())
        };
        let detail = format!("{} may not {what} {}", own.login, short.join(", ").to_lowercase());
        return CheckFinding::fail(name, detail, fix);
    }
    let looked = if count > QUERIED_MAX { format!("; the first {QUERIED_MAX} were checked") } else { String::new() };
    let access = if administers {
        "administrator access, which is needed to read people's permissions"
    } else {
        "write access for labels, comments and branches"
    };
    CheckFinding::ok(name, format!("{count}, with {access}{looked}"))
}

/// Checks that the forge has delivered webhooks.
async fn webhook(forge: &ForgeConfig, store: Option<&Store>) -> CheckFinding {
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
            CheckFinding::ok(name, format!("last delivery {ago}"))
        }
        None => {
            let fix = match forge.auth {
                ForgeAuth::Token(_) => "create and test one with `ralph-bot init --webhook --repository OWNER/NAME`",
                ForgeAuth::App { .. } => "compare the App's settings with `ralph-bot init --webhook`",
            };
            CheckFinding::warn(name, format!("no delivery to /webhooks/{} yet", forge.name), fix)
        }
    }
}

/// Reports deliveries of the last days that were refused because the forge did not confirm their content.
async fn unconfirmed(forge: &ForgeConfig, store: Option<&Store>) -> Option<CheckFinding> {
    let since = Clock::System.now().plus_ms(-REPORTED_DAYS * 24 * HOUR_MS);
    let forge_name = forge.name.clone();
    // Read errors are reported by the check of the database.
    let (count, newest) = store?.read(move |c| inbox::refused_since(c, &forge_name, since)).await.ok()?;
    let detail = format!(
        "{count} in {REPORTED_DAYS} days reported what {} does not have; the newest: {}",
        forge.name,
        newest.unwrap_or_default()
    );
    let fix = "a few are changes that were undone at once; if there are many, somebody knows a webhook secret: replace \
               it with `ralph-bot init --webhook --new-secret`";
    (count > 0).then(|| CheckFinding::warn(format!("deliveries of {}", forge.name), detail, fix))
}

/// Reports comments that wait for locked conversations.
async fn locked_out(forge: &ForgeConfig, store: Option<&Store>) -> Option<CheckFinding> {
    let name = forge.name.clone();
    // Read errors are reported by the check of the database.
    let (count, newest) = store?.read(move |c| outbox::locked_out(c, &name)).await.ok()?;
    let detail = format!("{count} wait for conversations that are locked; the newest: {}", newest.unwrap_or_default());
    let fix = "unlock the conversation, or give the bot write access; the service then posts the comments";
    (count > 0).then(|| CheckFinding::warn(format!("comments on {}", forge.name), detail, fix))
}

/// Reports a data folder that other users of the machine can read.
fn open_folder(folder: &Path) -> Option<CheckFinding> {
    let mode = std::fs::metadata(folder).ok()?.permissions().mode() & 0o777;
    let detail = format!("{} has mode {mode:o}: other users of this machine can read it", folder.display());
    let fix = format!("chmod 700 {}", folder.display());
    (mode & 0o077 != 0).then(|| CheckFinding::warn("data folder", detail, &fix))
}

/// Describes how the limits of runs are enforced.
fn limits(enforced: Result<(), Failure>) -> CheckFinding {
    let detail = match enforced {
        Ok(()) => "memory and processes enforced by a control group, disk space measured".to_owned(),
        Err(reason) => format!(
            "processes and the size of files enforced by the kernel; memory, processes and disk space measured twice a \
             second, because {reason:#}"
        ),
    };
    let of_user = if rustix::process::geteuid().is_root() {
        "; each run has its own kernel user"
    } else {
        "; runs have the kernel user of the service and may use a quarter of its limits, such as `fs.inotify.max_user_watches`"
    };
    CheckFinding::ok("limits of runs", detail + of_user)
}

/// Describes the hosts that agents can reach.
fn network(network: &AgentNetwork) -> Option<CheckFinding> {
    const NAME: &str = "network of agents";
    let reach = match (network, network.egress().ok()?) {
        (_, Egress::Everything) => {
            let fix = "list the required hosts in `sandbox.network`";
            let detail = "every host that this machine can reach, its loopback interface, and abstract Unix sockets of its programs";
            return Some(CheckFinding::warn(NAME, detail, fix));
        }
        (AgentNetwork::Hosts(hosts), _) if !hosts.is_empty() => format!("their model and {}", hosts.join(", ")),
        (_, Egress::Only(_)) => "their model only".to_owned(),
        (_, Egress::Nothing) => "nothing".to_owned(),
    };
    Some(CheckFinding::ok(NAME, reach))
}

/// Reports unusable tools and reachable sockets in the folders that sandboxes show.
fn shown_folders(shown: &[PathBuf]) -> Vec<CheckFinding> {
    const NAME: &str = "visible folders";
    let mode = |folder: &Path| std::fs::metadata(folder).map_or(0, |found| found.permissions().mode());
    let closed = shown.iter().filter(|folder| rustix::process::geteuid().is_root() && mode(folder) & 0o005 != 0o005);
    let closed = closed.map(|folder| {
        let detail = format!("{}: only its owner may enter it, so the sandbox's user has no access", folder.display());
        CheckFinding::warn(NAME, detail, format!("if programs in it are needed: chmod o+rx {}", folder.display()))
    });
    let later = "files that only their owner may read are hidden; a Unix socket that appears in one of them during a \
                 run can be reached, because the kernel cannot forbid that by path";
    let later = (!shown.is_empty()).then(|| CheckFinding::ok(NAME, format!("{} of tools; {later}", shown.len())));
    closed.chain(later).collect()
}

/// Reports the sandbox and each attempt to escape from it.
fn sandbox(found: &SandboxProbe, required: SandboxRequired) -> Vec<CheckFinding> {
    const NAME: &str = "sandbox";
    const NO_SANDBOX: &str = "set `sandbox: { required: none }`";
    let why = || found.why_no_namespaces();
    let (whole, attempts) = match (found.tier, &found.bubblewrap, &found.landlock) {
        (SandboxTier::B, _, Some(Ok(attempts))) => {
            let detail = format!("Landlock, tier B, because of this: {}", why());
            let whole = match required {
                SandboxRequired::Landlock => CheckFinding::ok(NAME, detail),
                SandboxRequired::Bubblewrap => {
                    CheckFinding::fail(NAME, detail, "fix that, or set `sandbox.required` to `auto` or `landlock`")
                }
                SandboxRequired::Auto | SandboxRequired::None => {
                    let fix =
                        "fix that, or accept tier B for public repositories, too: `sandbox: { required: landlock }`";
                    CheckFinding::warn(NAME, format!("{detail}; no loop of a public repository runs"), fix)
                }
            };
            (vec![whole, open_in_tier_b()], attempts)
        }
        (SandboxTier::A, Ok(version), _) => {
            (vec![CheckFinding::ok(NAME, format!("bubblewrap {version}, tier A"))], &found.escapes)
        }
        (_, Ok(_), _) => {
            let fix = format!("fix the failures below, or {NO_SANDBOX}");
            (vec![CheckFinding::fail(NAME, why(), fix)], &found.escapes)
        }
        (_, Err(why), _) => {
            (vec![CheckFinding::fail(NAME, format!("{why:#}"), format!("do that, or {NO_SANDBOX}"))], &found.escapes)
        }
    };
    let without = match &found.landlock {
        Some(Err(why)) => {
            let fix = "it is needed only where bubblewrap does not work";
            Some(CheckFinding::warn("sandbox of tier B", format!("{why:#}"), fix))
        }
        _ => None,
    };
    let attempts = attempts.iter().map(|escape| {
        let name = format!("sandbox: {}", escape.name);
        if escape.held {
            CheckFinding::ok(name, "blocked")
        } else if found.tier == SandboxTier::B && escape.needs_namespaces() {
            CheckFinding::warn(name, "not blocked: it needs namespaces (tier A)", escape.fix)
        } else {
            CheckFinding::fail(name, &escape.detail, escape.fix)
        }
    });
    whole.into_iter().chain(without).chain(attempts).collect()
}

/// Reports operations that a sandbox without namespaces does not prevent although no attempt tests them, and features
/// that do not work in it.
fn open_in_tier_b() -> CheckFinding {
    let detail = "names, sizes and times of the machine's files are visible; ports of the egress proxy and of allowed servers on \
                  this machine can be reached on any host; there is no /tmp and no /dev/shm; programs cannot open servers or \
                  Unix sockets, so that agents have no session memory";
    CheckFinding::warn("sandbox: left open without namespaces", detail, "see docs/guides/security.md")
}
