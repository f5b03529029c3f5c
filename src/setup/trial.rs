//! Trial: the service turns a labeled issue into a verified pull request, with a scripted agent instead of a model.
//!
//! The service runs with its configuration, but with the trial's own data folder, backend and repository. It may start
//! a loop for a label that it set itself, because no other account is available.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ralph_types::failure::Failure;
use serde::{Deserialize, Serialize};

use super::OperatorFileLocation;
use super::complete::hook_address;
use super::delivery_routes::DeliveryRoutes;
use crate::app::{self, Application, Options};
use crate::clock::Clock;
use crate::config::trial::TrialSettings;
use crate::config::webhook_secrets::{self, ExistingSecret};
use crate::config::{Config, ForgeAuth, ForgeConfig};
use crate::domain::loops::{Loop, LoopState};
use crate::domain::model::ids::{ForgeName, Number, RepoRef};
use crate::domain::trust::outbound::OutboundFilter;
use crate::engine::label_specs;
use crate::forge::{Forge, NewIssue, Repository};
use crate::store::loops;

/// Maximum time until a loop has started, which is long enough for a lost delivery and a few polls.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(90);
/// Maximum time until the pull request is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Polling interval for the loop's state.
const LOOK: Duration = Duration::from_millis(200);
/// Time for which the pull request's description may still be updated after the loop is ready.
const SETTLING: Duration = Duration::from_secs(30);
const AGENT: &str = include_str!("../../templates/demo/trial-agent.sh");
const ISSUE: &str = include_str!("../../templates/demo/trial-issue.md");
const TITLE: &str = "Trial of ralph-bot";
/// Name of a repository that is created for a trial.
const OWN_REPOSITORY: &str = "ralph-trial";

/// Repository of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrialRepository {
    /// Existing repository that the bot can access, `owner/name`.
    Named(String),
    /// New private repository of the bot's account.
    New,
}

impl TrialRepository {
    /// Parses `new` or `owner/name`.
    ///
    /// # Errors
    /// The text is neither.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let text = text.trim();
        match text.split_once('/') {
            _ if text == "new" => Ok(Self::New),
            Some((owner, name)) if !owner.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Self::Named(text.to_owned()))
            }
            _ => Err(Failure::new(format!("`{text}` is not a repository"))
                .with_hint("give OWNER/NAME, or `new` for a new private one")),
        }
    }
}

/// Successful trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TrialOutcome {
    /// Address of the issue.
    pub issue: String,
    /// Address of the pull request.
    pub pull: String,
    /// Number of iterations.
    pub iterations: u32,
}

/// Objects that a trial created on the forge, which are removed on request.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct TrialRecord {
    forge: ForgeName,
    repo: RepoRef,
    issue: Option<Number>,
    /// Whether the repository was created for the trial.
    own_repository: bool,
}

fn folder(config: &Config) -> PathBuf {
    config.data_dir.join("trial")
}

fn record_file(folder: &Path) -> PathBuf {
    folder.join("trial.json")
}

fn remember(folder: &Path, record: &TrialRecord) -> anyhow::Result<()> {
    use anyhow::Context as _;
    let file = record_file(folder);
    crate::process::private::write(&file, serde_json::to_string(record)?)
        .with_context(|| format!("cannot write {}", file.display()))
}

fn recorded(folder: &Path) -> anyhow::Result<Option<TrialRecord>> {
    match std::fs::read_to_string(record_file(folder)) {
        Ok(text) => Ok(Some(serde_json::from_str(&text)?)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Finds the repository of a trial, or creates it. The second value is `true` if it was created.
async fn repository(adapter: &dyn Forge, wanted: &TrialRepository) -> anyhow::Result<(Repository, bool)> {
    let known = adapter.repositories().await?;
    let called = |name: &str| known.iter().find(|found| found.repo.full_name().eq_ignore_ascii_case(name)).cloned();
    let mut created = false;
    let found = match wanted {
        TrialRepository::Named(name) => called(name).ok_or_else(|| {
            let names: Vec<String> = known.iter().take(10).map(|found| found.repo.full_name()).collect();
            anyhow::anyhow!("the bot cannot access {name}; it can access {}", names.join(", "))
        })?,
        TrialRepository::New => {
            let own = adapter.own_account().await?;
            match (called(&format!("{}/{OWN_REPOSITORY}", own.login)), adapter.own_repositories()) {
                (Some(found), _) => found,
                (None, Some(owned)) => {
                    created = true;
                    owned.create_private_repository(OWN_REPOSITORY).await?
                }
                (None, None) => {
                    anyhow::bail!("an App cannot create repositories; create one, install the App on it, and choose it")
                }
            }
        }
    };
    anyhow::ensure!(!found.empty, "{} has no commit yet; push a first one, or choose another", found.repo.full_name());
    anyhow::ensure!(
        found.issues_enabled,
        "{} has no issues; switch them on, or choose another",
        found.repo.full_name()
    );
    Ok((found, created))
}

/// Creates the webhook of a repository, if the service needs webhooks and there is none.
async fn webhook(whole: &Config, forge: &ForgeConfig, adapter: &dyn Forge, repo: &RepoRef) -> anyhow::Result<()> {
    let is_app = matches!(forge.auth, ForgeAuth::App { .. });
    let (Some(webhooks), Some(public)) = (adapter.webhooks(), &whole.server.public_url) else { return Ok(()) };
    let is_known = forge.repository_secrets.iter().any(|of| of.repo == repo.id);
    if is_app || !forge.updates.webhooks || is_known {
        return Ok(());
    }
    let kept = webhook_secrets::keep(&whole.data_dir, &forge.name, repo.id, ExistingSecret::Keep);
    let kept = kept.map_err(|problem| anyhow::anyhow!("{problem:#}"))?;
    if let Some(secret) = kept.secrets.first() {
        webhooks.ensure_webhook(repo, &hook_address(public, forge), secret).await?;
    }
    Ok(())
}

/// Running service of a trial.
struct TrialService {
    app: Application,
    config: Config,
    _script: tempfile::TempDir,
}

/// Returns the configuration of a trial, and the folder of its script.
async fn trial_config(
    place: &OperatorFileLocation,
    whole: &Config,
    adapter: &dyn Forge,
    repo: &RepoRef,
) -> anyhow::Result<(Config, tempfile::TempDir)> {
    let script = tempfile::Builder::new().prefix("ralph-trial-").tempdir()?;
    let agent = script.path().join("agent.sh");
    std::fs::write(&agent, AGENT)?;
    let settings = TrialSettings {
        forge: adapter.name().clone(),
        repository: repo.full_name(),
        own: adapter.own_account().await?.id,
        script: agent,
        data_dir: folder(whole),
    };
    Ok((Config::for_trial(&place.file, &place.env, &settings)?, script))
}

fn options(config: &Config, listen: bool) -> Options {
    let mut options = Options { listen, is_trial: true, ..Options::of(config) };
    options.rounds.live = Duration::from_secs(10);
    options
}

/// Runs a trial: opens an issue, adds the label, and waits until its pull request is ready. `routes` receives
/// deliveries if a server already listens at the service's address. `say` is called with a line for each event.
///
/// # Errors
/// A step failed; the message names it and contains advice. Objects that were created on the forge remain until
/// [`clean_up`].
pub async fn run(
    place: &OperatorFileLocation,
    forge: &ForgeConfig,
    wanted: &TrialRepository,
    routes: Option<&DeliveryRoutes>,
    say: &(dyn Fn(String) + Send + Sync),
) -> anyhow::Result<TrialOutcome> {
    let whole = place.config()?;
    let adapter = app::connect(forge, app::rates(&whole), &Clock::System)?;
    let (found, created) = repository(&*adapter, wanted).await?;
    let repo = &found.repo;
    say(format!("The trial runs in {}.", repo.full_name()));
    let folder = folder(&whole);
    crate::process::private::create_folder(&folder)?;
    let mut record = TrialRecord {
        forge: forge.name.clone(),
        repo: repo.clone(),
        issue: None,
        // One that an earlier trial created is still a trial's.
        own_repository: created
            || recorded(&folder)?.is_some_and(|last| last.own_repository && last.repo.id == repo.id),
    };
    remember(&folder, &record)?;
    webhook(&whole, forge, &*adapter, repo).await?;
    let (config, script) = trial_config(place, &whole, &*adapter, repo).await?;
    let listen = routes.is_none() && forge.updates.webhooks;
    let app = Application::start(&config, &place.env, options(&config, listen)).await?;
    if let Some(routes) = routes {
        routes.set(Some(app::deliveries(&config, &app.engine)));
    }
    let service = TrialService { app, config, _script: script };
    let outcome = service.play(&*adapter, repo, &mut record, &folder, say).await;
    if let Some(routes) = routes {
        routes.set(None);
    }
    service.app.stop().await;
    outcome
}

impl TrialService {
    async fn play(
        &self,
        adapter: &dyn Forge,
        repo: &RepoRef,
        record: &mut TrialRecord,
        folder: &Path,
        say: &(dyn Fn(String) + Send + Sync),
    ) -> anyhow::Result<TrialOutcome> {
        let prefix = self.config.policy(adapter.name()).label_prefix;
        let file = format!("ralph-trial-{}.txt", &uuid::Uuid::new_v4().simple().to_string()[..8]);
        let outbound = OutboundFilter::default();
        let issue = NewIssue {
            title: outbound.title(TITLE),
            body: outbound.body(&ISSUE.replace("FILE", &file)),
            labels: Vec::new(),
            assignees: Vec::new(),
        };
        if self.config.forges.iter().any(|forge| forge.updates.poll.is_some()) {
            self.first_look(repo).await;
        }
        let opened = adapter.create_issue(repo, &issue).await?;
        record.issue = Some(opened.number);
        remember(folder, record)?;
        say(format!("The issue #{} is open: {}", opened.number, opened.url));
        adapter.ensure_labels(repo, &label_specs(&prefix)).await?;
        adapter.add_labels(repo, opened.number, &[format!("{prefix}run")]).await?;
        say(format!("It has the label {prefix}run."));
        let ready = self.watch(opened.number, say).await?;
        let pull = ready.pull.opened.as_ref().map(|pull| pull.url.clone()).unwrap_or_default();
        say(format!("The pull request is ready; its check passed in a fresh checkout: {pull}"));
        Ok(TrialOutcome { issue: opened.url, pull, iterations: ready.spent.iterations })
    }

    /// Waits for the first poll of the repository, because the first poll reports no changes.
    async fn first_look(&self, repo: &RepoRef) {
        let key = format!("polled/{}/{}", repo.forge, repo.id.0);
        let polled = async {
            loop {
                let key = key.clone();
                let known = self.app.engine.store.read(move |c| crate::store::installation::get(c, &key)).await;
                if matches!(known, Ok(Some(_))) {
                    return;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(30), polled).await;
    }

    async fn loop_of(&self, issue: Number) -> anyhow::Result<Option<Loop>> {
        let all = self.app.engine.store.read(|c| loops::list(c, false, 50)).await?;
        Ok(all.into_iter().find(|current| current.issue.issue == issue))
    }

    /// Watches a loop until its pull request is ready.
    async fn watch(&self, issue: Number, say: &(dyn Fn(String) + Send + Sync)) -> anyhow::Result<Loop> {
        let begun = async {
            loop {
                if let Some(current) = self.loop_of(issue).await? {
                    return anyhow::Ok(current);
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let by_webhook = self.config.forges.iter().any(|forge| forge.updates.poll.is_none());
        tokio::time::timeout(BEGIN_TIMEOUT, begun).await.map_err(|_| {
            let why = match by_webhook {
                true => "no delivery about the label arrived; test the webhook, and look at its recent deliveries on the forge",
                false => "no poll found the label; run `ralph-bot check`",
            };
            anyhow::anyhow!("no loop started within {} s: {why}", BEGIN_TIMEOUT.as_secs())
        })??;
        let mut last = None;
        let ready = async {
            loop {
                let Some(current) = self.loop_of(issue).await? else { anyhow::bail!("the loop is gone") };
                if last != Some(current.state) {
                    last = Some(current.state);
                    say(format!(
                        "State of the loop: {}, because {}.",
                        current.state.words(),
                        current.why.trim_end_matches('.')
                    ));
                }
                match current.state {
                    LoopState::Review if current.pull.opened.is_some() => return Ok(current),
                    LoopState::Queued | LoopState::Running | LoopState::Waiting | LoopState::Review => {}
                    state => anyhow::bail!("the loop is {}: {}", state.as_str(), current.why),
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let ready = tokio::time::timeout(READY_TIMEOUT, ready).await;
        let ready = ready.map_err(|_| anyhow::anyhow!("the pull request was not ready in time"))??;
        self.settle().await;
        Ok(ready)
    }

    /// Waits until all effects on the forge were executed.
    async fn settle(&self) {
        let idle = async {
            loop {
                let waiting = self.app.engine.store.read(crate::store::outbox::counts).await;
                if waiting.is_ok_and(|counts| counts.iter().map(|(_, count)| count).sum::<u64>() == 0) {
                    return;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let _ = tokio::time::timeout(SETTLING, idle).await;
    }
}

/// Removes the objects that the last trial created on the forge: closes its pull request and issue, and deletes its
/// branch, or the repository if it was created for the trial. Returns a line for each; empty if there was no trial.
/// Can be repeated.
///
/// # Errors
/// The forge cannot be queried; remaining objects stay recorded.
pub async fn clean_up(place: &OperatorFileLocation) -> anyhow::Result<Vec<String>> {
    let whole = place.config()?;
    let folder = folder(&whole);
    let Some(record) = recorded(&folder)? else { return Ok(Vec::new()) };
    let forge = whole.forge(&record.forge);
    let forge = forge.ok_or_else(|| anyhow::anyhow!("the forge {} is no longer configured", record.forge))?;
    let adapter = app::connect(forge, app::rates(&whole), &Clock::System)?;
    let mut lines = Vec::new();
    if record.own_repository
        && let Some(owned) = adapter.own_repositories()
    {
        owned.delete_repository(&record.repo).await?;
        lines.push(format!("The repository {} is deleted.", record.repo.full_name()));
    } else if let Some(issue) = record.issue {
        let (config, _script) = trial_config(place, &whole, &*adapter, &record.repo).await?;
        let engine = app::build(&config, &place.env, &options(&config, false)).await?;
        let all = engine.store.read(|c| loops::list(c, false, 50)).await?;
        for current in all.iter().filter(|current| current.issue.issue == issue) {
            if let Some(pull) = &current.pull.opened {
                adapter.set_issue_open(&record.repo, pull.number, false).await?;
                lines.push(format!("The pull request #{} is closed.", pull.number));
            }
            if engine.git.delete_branch_of(&engine.forges, current).await? {
                lines.push(format!("The branch {} is deleted.", current.branch.name));
            }
        }
        engine.store.close().await;
        adapter.set_issue_open(&record.repo, issue, false).await?;
        lines.push(format!("The issue #{issue} is closed."));
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(lines)
}

/// Whether a trial left objects on the forge.
pub(super) fn is_recorded(place: &OperatorFileLocation) -> bool {
    place.base().is_ok_and(|config| record_file(&folder(&config)).exists())
}
