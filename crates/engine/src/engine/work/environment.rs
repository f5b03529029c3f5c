//! Setup of work trees. The setup commands run at the base, where nothing is an agent's work, with the network of the package
//! registries. Their result is kept, and each work tree and each home gets a copy. Commands run again in a tree only if they write
//! other files than the kept ones, or if the branch changes a file that decides their result.

use std::path::{Path, PathBuf};

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{SETUP_TIMEOUT_S, remove_folder, small_file};
use crate::agent;
use crate::checks::{CheckRunner, ChecksError};
use crate::clock::Stopwatch;
use crate::domain::checks::criteria;
use crate::domain::checks::dependencies::{
    decisive_lines, install_commands, missing_dependency, needs_network, registries, setup_line,
};
use crate::domain::loops::Loop;
use crate::domain::model::ids::{RepoRef, Sha};
use crate::domain::model::task::{Check, CheckOutcome, CheckReport, CheckRule, CheckSource};
use crate::domain::trust::egress::{Egress, Hosts};
use crate::domain::trust::policy::Policy;
use crate::engine::receipt::EffectError;
use crate::engine::work::Verification;
use crate::process::sandbox::Network;
use crate::process::{Cookie, EgressSettings, RefusedHosts, executable, private};
use crate::workspace::{CleanCheckout, Environment, EnvironmentKey, TreeInfo};

/// Interpreters and compilers whose version determines the packages that setup commands install.
const INTERPRETERS: [&str; 8] = ["node", "python3", "cargo", "rustc", "go", "ruby", "php", "java"];

/// Loop whose trees are set up, and the commit whose dependencies are installed with network.
#[derive(Clone, Copy)]
pub(super) struct SetupContext<'a> {
    pub(super) current: &'a Loop,
    pub(super) repo: &'a RepoRef,
    pub(super) policy: &'a Policy,
    pub(super) base: &'a Sha,
    pub(super) cancel: &'a CancellationToken,
}

impl<'a> SetupContext<'a> {
    /// Returns the context of a loop that is prepared; `commit` replaces a missing base.
    pub(super) fn of(current: &'a Loop, repo: &'a RepoRef, commit: &'a Sha, cancel: &'a CancellationToken) -> Self {
        Self {
            current,
            repo,
            policy: &current.settings.policy,
            base: current.branch.base.as_ref().unwrap_or(commit),
            cancel,
        }
    }
}

impl Verification {
    /// Sets up a tree with the files of `commit`.
    ///
    /// # Errors
    /// A setup command failed, or the run was canceled.
    pub(super) async fn setup(&self, of: SetupContext<'_>, tree: &Path, commit: &Sha) -> Result<(), EffectError> {
        let SetupContext { current, policy, base, .. } = of;
        if policy.setup.is_empty() {
            return Ok(());
        }
        let key = self.environment_key(of, base).await?;
        let environment = self.environment(of, &key).await?;
        let home = self.setup_home(current);
        environment.copy_to_tree(tree, home.as_path()).await?;
        let is_same = commit == base || key == self.environment_key(of, commit).await?;
        let again = |position: &usize| !is_same || environment.repeated().contains(position);
        let commands: Vec<&String> = policy
            .setup
            .iter()
            .enumerate()
            .filter(|(position, _)| again(position))
            .map(|(_, command)| command)
            .collect();
        if commands.is_empty() {
            return Ok(());
        }
        remove_folder(&home);
        environment.copy_to_home(tree, &home, true).await?;
        let refused = RefusedHosts::default();
        let mut outcome = Ok(());
        for command in commands {
            // Code of an agent runs here, so it has only the network of agents.
            outcome = self
                .setup_command(of, (tree, home.as_path()), command, (self.programs.network(&refused), &refused))
                .await;
            if outcome.is_err() {
                break;
            }
        }
        remove_folder(&home);
        outcome
    }

    /// Returns the kept environment of a loop that is prepared; `None` if its repository has no setup commands, or if none is kept.
    pub(super) async fn kept_environment(
        &self,
        repo: &RepoRef,
        current: &Loop,
    ) -> Result<Option<Environment>, EffectError> {
        let Some(base) = current.branch.base.as_ref().filter(|_| !current.settings.policy.setup.is_empty()) else {
            return Ok(None);
        };
        let of = SetupContext::of(current, repo, base, &self.context.stopping);
        Ok(self.workspaces.environment(&self.environment_key(of, base).await?))
    }

    /// Creates the home of a run of an agent with the package caches of the repository; `false` if none are kept.
    pub(super) async fn prepare_home(
        &self,
        (repo, current): (&RepoRef, &Loop),
        tree: &Path,
        scratch: &Path,
    ) -> Result<bool, EffectError> {
        let Some(environment) = self.kept_environment(repo, current).await? else { return Ok(false) };
        let home = agent::home_path(scratch);
        private::create_folder(&home).map_err(|error| EffectError::Retry {
            after_ms: None,
            ambiguous: true,
            why: format!("could not create {}: {error}", home.display()),
        })?;
        environment.copy_to_home(tree, &home, false).await?;
        Ok(true)
    }

    fn setup_home(&self, current: &Loop) -> PathBuf {
        self.programs.scratch_of(&current.id, "setup")
    }

    async fn environment_key(&self, of: SetupContext<'_>, commit: &Sha) -> Result<EnvironmentKey, EffectError> {
        let programs = self.installed_programs(of.policy);
        Ok(self.workspaces.environment_key((&of.current.id, of.repo), commit, of.policy, &programs).await?)
    }

    /// Describes the programs that setup commands use, so that another version of one is another environment.
    fn installed_programs(&self, policy: &Policy) -> String {
        let path =
            self.checks.env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.clone()).unwrap_or_default();
        let first_words = policy.setup.iter().filter_map(|command| command.split_whitespace().next());
        let describe = |program: &str| {
            let file = executable(Path::new(program), Path::new("/"), &path).ok()?.canonicalize().ok()?;
            let found = std::fs::metadata(&file).ok()?;
            Some(format!("{} {} {:?};", file.display(), found.len(), found.modified().ok()))
        };
        INTERPRETERS.into_iter().chain(first_words).filter_map(describe).collect()
    }

    /// Returns the environment at the base, which is made if none is kept.
    async fn environment(&self, of: SetupContext<'_>, key: &EnvironmentKey) -> Result<Environment, EffectError> {
        let _only = tokio::select! {
            only = self.workspaces.lock_environment(key) => only,
            () = of.cancel.cancelled() => {
                return Err(EffectError::Stopped { why: "the setup was canceled".to_owned() });
            }
        };
        if let Some(known) = self.workspaces.environment(key) {
            return Ok(known);
        }
        let checkout = self.workspaces.clean_checkout(&of.current.id, of.repo, of.base).await?;
        let home = self.setup_home(of.current);
        remove_folder(&home);
        let made = self.make_environment(of, key, &checkout, &home).await;
        remove_folder(&home);
        self.workspaces.release_checkout(checkout).await?;
        made
    }

    async fn make_environment(
        &self,
        of: SetupContext<'_>,
        key: &EnvironmentKey,
        checkout: &CleanCheckout,
        home: &Path,
    ) -> Result<Environment, EffectError> {
        let (cache, refused) = (&of.policy.environment.cache, RefusedHosts::default());
        let network = self.registry_network(of, &refused).await?;
        let mut before = self.workspaces.setup_effects(checkout, cache).await?;
        let mut repeated = Vec::new();
        for (position, command) in of.policy.setup.iter().enumerate() {
            self.setup_command(of, (checkout.dir.as_path(), home), command, (network.clone(), &refused)).await?;
            let after = self.workspaces.setup_effects(checkout, cache).await?;
            if before.differ_elsewhere(&after) {
                repeated.push(position);
            }
            before = after;
        }
        Ok(self.workspaces.keep_environment(key, (checkout, home), before, repeated).await?)
    }

    /// Returns the network of setup commands at the base: the registries and the agents' hosts.
    async fn registry_network(&self, of: SetupContext<'_>, refused: &RefusedHosts) -> Result<Network, EffectError> {
        let (Egress::Only(hosts), Some(program)) =
            (&self.programs.settings.agent_egress, &self.programs.settings.program)
        else {
            return Ok(self.programs.network(refused));
        };
        let paths = self.workspaces.paths_of(of.repo, of.base).await?;
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let named = registries(of.policy.environment.network.as_deref(), &paths);
        let mut hosts = hosts.clone();
        hosts.extend(Hosts::parse(&named).map_err(|why| EffectError::Permanent { why: format!("{why:#}") })?);
        Ok(Network::Only(EgressSettings { hosts, helper: program.clone(), refused: refused.clone() }))
    }

    /// Runs a setup command.
    async fn setup_command(
        &self,
        of: SetupContext<'_>,
        (tree, home): (&Path, &Path),
        command: &str,
        (network, refused): (Network, &RefusedHosts),
    ) -> Result<(), EffectError> {
        let check = Check {
            name: "setup".to_owned(),
            command: command.to_owned(),
            rule: CheckRule::ExitCode,
            source: CheckSource::RepositoryFile,
            timeout_s: Some(SETUP_TIMEOUT_S),
            counts: None,
            junit: None,
        };
        let mut runner = self.checks.clone();
        if !matches!(runner.network, Network::Host) {
            runner.network = network;
        }
        runner.cookie = Some(Cookie::new(&self.programs.instance, of.current.id.as_str(), 0));
        let report = self.run_timed(of.current, &runner, "setup", (tree, home), &[check], of.cancel).await?;
        match report.outcomes.iter().find(|outcome| !outcome.holds) {
            None => Ok(()),
            Some(failed) => {
                Err(EffectError::Permanent { why: failure_words(failed, &refused.names(), &refused.not_public()) })
            }
        }
    }

    /// Returns the policy with detected setup commands, and a note about them, where the repository's file states none. They are used
    /// only if checks at the base lack dependencies.
    pub(super) async fn with_detected_setup(
        &self,
        of: SetupContext<'_>,
        tree: &TreeInfo,
    ) -> Result<(Policy, Option<String>), EffectError> {
        let SetupContext { current, repo, policy, cancel, .. } = of;
        let unchanged = || Ok((policy.clone(), None));
        let files = |path: &str| small_file(&tree.dir.join(path));
        let commands = install_commands(&files);
        if !policy.setup.is_empty() || !policy.detect_checks || commands.is_empty() {
            return unchanged();
        }
        let line = setup_line(&commands);
        let changed = Policy { setup: commands, ..policy.clone() };
        let of = SetupContext { policy: &changed, ..of };
        let key = self.environment_key(of, of.base).await?;
        let note = |missing: &str| {
            format!(
                "it states no `setup`, and a new work tree lacks what the checks need (`{missing}`), so this was run: add the line \
                 `{line}` to keep it"
            )
        };
        if let Some(known) = self.workspaces.detected_setup(repo).filter(|known| known["key"] == key.digest()) {
            return match known["missing"].as_str() {
                Some(missing) => Ok((changed.clone(), Some(note(missing)))),
                None => unchanged(),
            };
        }
        let given = current.settings.options.to_checks();
        let checks = match (given.is_empty(), policy.checks.is_empty()) {
            (false, _) => given,
            (true, false) => policy.checks.clone(),
            (true, true) => match criteria::detect(&files) {
                detected if detected.is_empty() => criteria::trial(criteria::propose(&files)),
                detected => detected,
            },
        };
        let view = self.workspaces.agent_view(&current.id, repo);
        let report = self
            .run_checks((repo, current), "baseline", (view.tree.as_path(), view.read_only.as_slice()), &checks, cancel)
            .await?;
        self.workspaces.reset(&current.id, repo, &tree.head).await?;
        let failed = report.outcomes.iter().filter(|outcome| !outcome.holds);
        let missing = failed.filter_map(|outcome| missing_dependency(&outcome.output)).next();
        let missing = missing.map(|line| line.chars().take(200).collect::<String>().replace('`', "'"));
        let made = match &missing {
            Some(_) => self.environment(of, &key).await.map(drop),
            None => Ok(()),
        };
        match made {
            Err(EffectError::Permanent { why }) => {
                return Ok((policy.clone(), Some(format!("it states no `setup`, and the usual one failed: {why}"))));
            }
            other => other?,
        }
        self.workspaces.store_detected_setup(repo, &json!({ "key": key.digest(), "missing": missing }))?;
        match missing {
            Some(missing) => Ok((changed.clone(), Some(note(&missing)))),
            None => unchanged(),
        }
    }

    /// Resets the tree to a commit and sets it up. This succeeded at the start of the loop, so a failure is returned as a
    /// note for the agent.
    pub(in crate::engine) async fn fresh_tree(
        &self,
        current: &Loop,
        repo: &RepoRef,
        at: &Sha,
        cancel: &CancellationToken,
    ) -> Result<Option<String>, EffectError> {
        self.workspaces.reset(&current.id, repo, at).await?;
        let tree = self.workspaces.agent_view(&current.id, repo).tree;
        match self.setup(SetupContext::of(current, repo, at, cancel), &tree, at).await {
            Err(EffectError::Permanent { why }) => Ok(Some(format!("In the work tree as it is, {why}"))),
            other => other.map(|()| None),
        }
    }

    /// Runs checks in a tree, with a new home that contains the repository's package caches.
    pub(in crate::engine) async fn run_checks(
        &self,
        (repo, current): (&RepoRef, &Loop),
        phase: &'static str,
        (tree, read_only): (&Path, &[PathBuf]),
        checks: &[Check],
        cancel: &CancellationToken,
    ) -> Result<CheckReport, EffectError> {
        let mut runner = self.checks.clone();
        runner.read_only.extend_from_slice(read_only);
        runner.cookie = Some(Cookie::new(&self.programs.instance, current.id.as_str(), 0));
        let scratch = self.programs.scratch_of(&current.id, "checks");
        if let Some(environment) = self.kept_environment(repo, current).await? {
            remove_folder(&scratch);
            environment.copy_to_home(tree, &scratch, false).await?;
        }
        let report = self.run_timed(current, &runner, phase, (tree, scratch.as_path()), checks, cancel).await;
        remove_folder(&scratch);
        report
    }

    /// Runs checks and records their time.
    async fn run_timed(
        &self,
        current: &Loop,
        runner: &CheckRunner,
        phase: &'static str,
        (tree, home): (&Path, &Path),
        checks: &[Check],
        cancel: &CancellationToken,
    ) -> Result<CheckReport, EffectError> {
        let watch = Stopwatch::start();
        let mut report = runner.run_all(tree, home, checks, cancel).await;
        if let Ok(report) = &mut report {
            current.apply_objections(report);
            self.context.metrics.check_run(phase, report.all_hold(), watch.elapsed().as_secs_f64());
        }
        report.map_err(|error| match error {
            ChecksError::Cancelled { .. } => EffectError::Stopped { why: error.to_string() },
            ChecksError::NoTree(_) | ChecksError::Scratch { .. } => {
                EffectError::Retry { after_ms: None, ambiguous: true, why: error.to_string() }
            }
            ChecksError::Start { .. } => EffectError::Permanent { why: error.to_string() },
        })
    }
}

/// Describes the failure of a setup command: the lines of its output that state the cause, and whether it lacked the network.
/// `not_public` lists the `refused` servers that `environment.network` allows, but whose address is not public.
fn failure_words(failed: &CheckOutcome, refused: &[String], not_public: &[String]) -> String {
    let cause = decisive_lines(&failed.output).join(" / ");
    let network = if !not_public.is_empty() {
        let names = not_public.join(", ");
        format!(
            "; {names} was refused because its address is not public: the operator lists it with its port in `sandbox.network`"
        )
    } else if !refused.is_empty() {
        format!("; {} was refused, which `environment.network` does not list", refused.join(", "))
    } else if needs_network(&failed.output).is_some() {
        "; it reaches only the package registries and the hosts in `environment.network`".to_owned()
    } else {
        String::new()
    };
    format!("the setup command `{}` failed ({}): {cause}{network}", failed.command, failed.why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_names_the_cause_and_the_refused_hosts() {
        let output =
            "fetching\nerror: Could not resolve host: git.example.org\nmake: *** [deps] Error 1\nbye\n".to_owned();
        let failed =
            CheckOutcome { command: "make deps".into(), why: "exit code 2".into(), output, ..CheckOutcome::default() };
        assert_eq!(
            failure_words(&failed, &[], &[]),
            "the setup command `make deps` failed (exit code 2): error: Could not resolve host: git.example.org / make: *** [deps] \
             Error 1; it reaches only the package registries and the hosts in `environment.network`"
        );
        let refused = ["git.example.org:443".to_owned()];
        let end =
            |not_public: &[String]| failure_words(&failed, &refused, not_public).split("; ").nth(1).map(str::to_owned);
        assert_eq!(
            end(&[]).as_deref(),
            Some("git.example.org:443 was refused, which `environment.network` does not list")
        );
        assert_eq!(
            end(&refused).as_deref(),
            Some(
                "git.example.org:443 was refused because its address is not public: the operator lists it with its port in \
                 `sandbox.network`"
            )
        );
    }
}
