//! Sandbox of agents and checks: the shown and hidden paths, and the isolation that this machine supports.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ralph_types::failure::Failure;

use super::Options;
use crate::config::{Config, Env, SandboxRequired};
use crate::domain::trust::egress::Egress;
use crate::domain::trust::visible::{self, HiddenKind, HiddenPath};
use crate::engine::ServiceSandbox;
use crate::process::sandbox::{SandboxMechanism, SandboxSettings, tools};
use crate::process::{ProbeSettings, SandboxProbe, SandboxTier, SandboxUser, probe_sandbox};

/// Returns settings, working folder and program for the probe of the sandbox.
pub fn probe_settings(config: &Config, env: &Env) -> ProbeSettings {
    let folder = std::path::absolute(&config.data_dir).unwrap_or_else(|_| config.data_dir.clone());
    ProbeSettings {
        settings: settings(config, env),
        folder,
        program: std::env::current_exe().ok(),
        ..ProbeSettings::default()
    }
}

fn settings(config: &Config, env: &Env) -> SandboxSettings {
    SandboxSettings {
        mechanism: SandboxMechanism::Bubblewrap,
        user: SandboxUser::new(config.sandbox.user).unwrap_or_default(),
        limits: config.sandbox.limits,
        hidden: hidden(config, env).into(),
        etc: None,
        without: Vec::new(),
    }
}

/// Checks that the paths which the operator shows in sandboxes do not contain the service's own paths.
///
/// # Errors
/// The path that would have to be both shown and hidden, with advice.
pub fn check_visible(config: &Config, env: &Env) -> Result<(), Failure> {
    let (_, mut shown) = programs(env);
    shown.extend(config.sandbox.read_only.iter().map(|path| real(path)));
    visible::check(&hidden(config, env), &shown)
}

/// Returns the folders outside of the system that sandboxes show.
pub fn shown_folders(config: &Config, env: &Env) -> Vec<PathBuf> {
    let (_, mut shown) = programs(env);
    shown.extend(config.sandbox.read_only.iter().map(|path| real(path)));
    shown.retain(|path| path.is_dir() && !visible::in_system(path));
    shown.sort();
    shown.dedup();
    shown
}

/// Returns the paths that every sandbox hides: data, configuration, secrets, home.
fn hidden(config: &Config, env: &Env) -> Vec<HiddenPath> {
    let path = |name: &str, path: &Path, kind| HiddenPath { path: real(path), kind, name: format!("`{name}`") };
    let mut hidden = vec![path("data_dir", &config.data_dir, HiddenKind::Folder)];
    hidden.extend(config.file.iter().map(|file| path("--config", file, HiddenKind::File)));
    hidden.extend(config.secret_files.iter().map(|(key, file)| path(key, file, HiddenKind::File)));
    hidden.extend(env.get("HOME").map(|home| path("HOME", Path::new(home), HiddenKind::Home)));
    hidden
}

/// Returns a path with links resolved, as far as the path exists.
fn real(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let existing = absolute.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    match existing {
        Some((above, real)) => match absolute.strip_prefix(above) {
            Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
            _ => real,
        },
        None => absolute,
    }
}

/// Probes the sandbox, unless the caller has done so or the operator disabled sandboxes.
pub(super) async fn find(config: &Config, env: &Env, options: &Options) -> anyhow::Result<ServiceSandbox> {
    let probe = probe_settings(config, env);
    let settings = probe.settings.clone();
    if config.sandbox.required == SandboxRequired::None {
        let words = "none (disabled by the operator)".to_owned();
        let tier = SandboxTier::C;
        return Ok(ServiceSandbox { on: false, tier, settings, words, refusal: None, refusal_of_public: None });
    }
    check_visible(config, env)?;
    let found = match &options.sandbox {
        Some(found) => found.clone(),
        None => probe_sandbox(&probe).await,
    };
    Ok(judged(found, config.sandbox.required, settings, probe.program, network_words(config)))
}

fn network_words(config: &Config) -> &'static str {
    match egress(config) {
        Egress::Everything => "",
        Egress::Nothing => ", without network",
        Egress::Only(_) => ", network: listed hosts only",
    }
}

/// Selects the isolation mechanism by the result of the probe, and determines the repositories for which it is
/// insufficient.
fn judged(
    found: SandboxProbe,
    required: SandboxRequired,
    mut settings: SandboxSettings,
    program: Option<PathBuf>,
    network: &str,
) -> ServiceSandbox {
    let tier = found.tier;
    match (tier, program) {
        (SandboxTier::A, _) => {
            let version = found.bubblewrap.unwrap_or_default();
            let words = format!("bubblewrap {version} (tier A){network}");
            ServiceSandbox { on: true, tier, settings, words, refusal: None, refusal_of_public: None }
        }
        (SandboxTier::B, Some(program)) if required != SandboxRequired::Bubblewrap => {
            settings.mechanism = SandboxMechanism::Landlock(program);
            let why = found.why_no_namespaces();
            tracing::warn!(why, "programs are confined without namespaces (tier B)");
            let refusal_of_public = (required == SandboxRequired::Auto).then(|| {
                format!(
                    "this repository is public, which needs the sandbox of tier A, and this machine has that of tier B ({why}); \
                     `ralph-bot check` prints details; to accept tier B, set `sandbox: {{ required: landlock }}`"
                )
            });
            let words = format!("Landlock (tier B){network}");
            ServiceSandbox { on: true, tier, settings, words, refusal: None, refusal_of_public }
        }
        _ => {
            let why = found.why_no_namespaces();
            let fix = match tier {
                SandboxTier::B => {
                    "tier B would work: `sandbox: { required: auto }` accepts it for private repositories"
                }
                _ => "`ralph-bot check` tests it again; without one, set `sandbox: { required: none }`",
            };
            tracing::error!(why, fix, "there is no sandbox; no loop will run");
            let refusal = Some(format!("there is no sandbox ({why}); {fix}"));
            let words = "none".to_owned();
            ServiceSandbox { on: true, tier: SandboxTier::C, settings, words, refusal, refusal_of_public: None }
        }
    }
}

/// Returns the permitted network destinations of agents; none if the list is invalid, which validation reports.
pub(super) fn egress(config: &Config) -> Egress {
    config.sandbox.network.egress().unwrap_or(Egress::Nothing)
}

/// Returns the search path for programs, and the tool folders that agents and checks may read. The folders are
/// searched only once per process for a search path and a home, because this takes milliseconds.
pub(super) fn programs(env: &Env) -> (OsString, Vec<PathBuf>) {
    type Found = ((OsString, PathBuf), Vec<PathBuf>);
    static LAST: Mutex<Option<Found>> = Mutex::new(None);
    let path = OsString::from(env.get("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin"));
    let place = (path.clone(), PathBuf::from(env.get("HOME").unwrap_or("/")));
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let known = last.take().filter(|(known, _)| *known == place);
    let (_, tools) = last.insert(known.unwrap_or_else(|| {
        let found = tools(&place.0, &place.1);
        (place, found)
    }));
    (path, tools.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weaker_tier_is_used_only_where_it_is_accepted() {
        let probe = |tier| SandboxProbe {
            tier,
            bubblewrap: if tier == SandboxTier::A { Ok("0.11".into()) } else { Err("no namespaces".into()) },
            escapes: Vec::new(),
            landlock: None,
        };
        let found = |tier, required| {
            judged(probe(tier), required, SandboxSettings::default(), Some("/bin/ralph-bot".into()), "")
        };
        let landlock = SandboxMechanism::Landlock("/bin/ralph-bot".into());
        for (tier, required, expected, refused, public_refused) in [
            (SandboxTier::A, SandboxRequired::Auto, SandboxTier::A, false, false),
            (SandboxTier::A, SandboxRequired::Landlock, SandboxTier::A, false, false),
            (SandboxTier::B, SandboxRequired::Auto, SandboxTier::B, false, true),
            (SandboxTier::B, SandboxRequired::Landlock, SandboxTier::B, false, false),
            (SandboxTier::B, SandboxRequired::Bubblewrap, SandboxTier::C, true, false),
            (SandboxTier::C, SandboxRequired::Auto, SandboxTier::C, true, false),
            (SandboxTier::C, SandboxRequired::Landlock, SandboxTier::C, true, false),
        ] {
            let found = found(tier, required);
            assert!(found.on, "a sandbox is never left out silently");
            assert_eq!(found.tier, expected, "{tier} {required:?}");
            assert_eq!(found.refusal.is_some(), refused, "{tier} {required:?}: {:?}", found.refusal);
            assert_eq!(found.refusal_of_public.is_some(), public_refused, "{tier} {required:?}");
            assert_eq!(found.settings.mechanism == landlock, expected == SandboxTier::B, "{tier} {required:?}");
        }
        let unknown = judged(probe(SandboxTier::B), SandboxRequired::Auto, SandboxSettings::default(), None, "");
        assert!(unknown.refusal.is_some(), "there is no program to confine others");
    }
}
