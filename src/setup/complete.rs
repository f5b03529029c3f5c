//! Creates and tests everything that the service needs on a forge: webhooks, labels, the OAuth client for logins.
//!
//! All steps can be repeated; correct objects are not changed.

use std::collections::HashMap;
use std::future::IntoFuture as _;
use std::sync::Arc;
use std::time::Duration;

use ralph_types::failure::Failure;
use secrecy::SecretString;
use tokio::sync::Notify;

use super::delivery_routes::DeliveryRoutes;
use super::{SetupReport, StepState};
use crate::app;
use crate::clock::Clock;
use crate::config::login_clients::{self, LoginClientConfig};
use crate::config::webhook_secrets::{self, ExistingSecret};
use crate::config::{Config, ForgeAuth, ForgeConfig, ForgeKind};
use crate::domain::model::ids::RepoId;
use crate::engine::label_specs;
use crate::forge::{Forge, Repository};
use crate::http::{self, Hook, HttpState};
use crate::store::{Store, inbox};
use crate::telemetry::Metrics;

/// Maximum time for a test delivery to arrive.
pub const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);
/// Manifest of the GitHub App, with placeholder addresses.
const MANIFEST: &str = include_str!("../../app-manifest.yml");

/// Result of creating webhooks.
#[derive(Debug, PartialEq, Eq)]
pub struct WebhookSetup {
    /// One line per repository, and advice after a failure.
    pub lines: Vec<String>,
    /// Whether every test delivery arrived.
    pub good: bool,
}

/// Options of [`complete`].
#[derive(Clone, Copy)]
pub struct CompleteOptions<'a> {
    /// Repositories, `owner/name`.
    pub repositories: &'a [String],
    /// Maximum time until a test delivery arrives.
    pub patience: Duration,
    /// Routes at the service's address, if a server already listens there; otherwise `None`.
    pub routes: Option<&'a DeliveryRoutes>,
}

/// Error of the setup on a forge.
#[derive(Debug, thiserror::Error)]
pub enum CompleteError {
    /// The request is impossible.
    #[error("{0:#}")]
    Usage(#[source] Failure),
    /// A step failed.
    #[error("{0:#}")]
    Failed(#[source] Failure),
}

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> CompleteError {
    CompleteError::Failed(Failure::of(error))
}

/// Creates and tests everything that the service needs on a forge: the OAuth client for logins, and labels and the
/// webhook in each repository. A step that fails does not stop the others.
///
/// # Errors
/// The forge cannot be queried, a repository is unknown, or the service's address is in use.
pub async fn complete(
    config: &Config,
    forge: &ForgeConfig,
    options: CompleteOptions<'_>,
) -> Result<SetupReport, CompleteError> {
    let mut report = SetupReport::default();
    let adapter = app::connect(forge, app::rates(config), &Clock::System).map_err(failed)?;
    let found = find(&*adapter, options.repositories).await?;
    login_client(config, forge, &*adapter, &mut report).await;
    let labels = label_specs(&config.policy(&forge.name).label_prefix);
    for repository in &found {
        let name = repository.repo.full_name();
        match adapter.refused_scopes(&repository.repo, forge.updates.webhooks).await {
            Ok(refused) => refused.iter().for_each(|phrase| {
                let fix = "give the bot's account administrator access, and its token the scopes write:repository and write:issue";
                report.add(StepState::Failed, format!("{name}: the token may not {phrase}; {fix}"));
            }),
            Err(error) => report.add(StepState::Failed, format!("{name}: {error}")),
        }
        match adapter.ensure_labels(&repository.repo, &labels).await {
            Ok(0) => report.add(StepState::Unchanged, format!("{name}: the labels exist")),
            Ok(made) => report.add(StepState::Done, format!("{name}: {made} labels were created")),
            Err(error) => report.add(StepState::Failed, format!("{name}: {error}")),
        }
    }
    if !forge.updates.webhooks {
        let words = "the service polls this forge: no webhook is needed";
        report.add(StepState::Unchanged, words);
    } else if matches!(forge.auth, ForgeAuth::App { .. }) {
        report.add(StepState::Unchanged, "the App's own webhook serves all repositories");
    } else if !found.is_empty() {
        let create =
            WebhookCreation { existing: ExistingSecret::Keep, patience: options.patience, routes: options.routes };
        let steps = create.all(config, forge, &*adapter, &found).await?;
        let unreached = steps.iter().any(is_unreached);
        report.steps.extend(steps);
        if unreached && let Some(public) = &config.server.public_url {
            report.add(StepState::Note, advice(forge, public, &hook_address(public, forge)).join("\n"));
        }
    }
    Ok(report)
}

/// Creates the OAuth client for logins, unless there is one that works.
async fn login_client(config: &Config, forge: &ForgeConfig, adapter: &dyn Forge, report: &mut SetupReport) {
    let usable = config.server.public_url.as_ref().filter(|public| matches!(public.path(), "" | "/"));
    let (Some(public), Some(login)) = (usable, adapter.login()) else { return };
    let Ok(redirect) = public.join(&format!("/login/callback/{}", forge.name)) else { return };
    let name = login_client_name(public);
    let known = forge.login.as_ref().map(|client| client.id.as_str());
    match login.find_login_client(&name, &redirect).await {
        Ok(Some(id)) if known == Some(id.as_str()) => {
            report.add(StepState::Unchanged, format!("the application \"{name}\" for logins exists"));
            return;
        }
        Ok(_) => {}
        Err(error) => {
            report.add(
                StepState::Failed,
                format!("{error}; logins need the scope `write:user`, see docs/guides/dashboard.md"),
            );
            return;
        }
    }
    if matches!(forge.auth, ForgeAuth::App { .. }) && known.is_some() {
        report.add(StepState::Unchanged, "the App's client for logins is configured");
        return;
    }
    match login.create_login_client(&name, &redirect).await {
        Ok(Some(client)) => {
            let client = LoginClientConfig { id: client.id, secret: client.secret };
            match login_clients::keep(&config.data_dir, &forge.name, &client) {
                Ok(file) => {
                    let words = format!(
                        "the application \"{name}\" for logins was created; its secret is in {}",
                        file.display()
                    );
                    report.add(StepState::Done, words);
                }
                Err(why) => report.add(StepState::Failed, format!("{why:#}")),
            }
        }
        Ok(None) => report.add(StepState::Note, "for logins to the dashboard, see `ralph-bot init --login`"),
        Err(error) => report.add(
            StepState::Failed,
            format!("{error}; logins need the scope `write:user`, see docs/guides/dashboard.md"),
        ),
    }
}

/// Returns the name of the application for logins.
pub(crate) fn login_client_name(public: &url::Url) -> String {
    format!("ralph-bot at {}", public.host_str().unwrap_or("localhost"))
}

/// Returns the address to which the webhooks of a forge send.
pub(super) fn hook_address(public: &url::Url, forge: &ForgeConfig) -> String {
    format!("{}/webhooks/{}", public.as_str().trim_end_matches('/'), forge.name)
}

/// Creates and tests a webhook for each of `repositories` (`owner/name`), each with its own secret.
///
/// # Errors
/// There is no public address, the forge reports an error, a repository is unknown, or the port is in use.
pub async fn create_webhooks(
    config: &Config,
    forge: &ForgeConfig,
    repositories: &[String],
    existing: ExistingSecret,
    patience: Duration,
) -> Result<WebhookSetup, CompleteError> {
    if !forge.updates.webhooks {
        let message = format!("the forge {} has `updates: poll`, which needs no webhook", forge.name);
        return Err(CompleteError::Usage(message.into()));
    }
    let Some(public) = &config.server.public_url else {
        let message = "webhooks need an address; set `server.public_url` in the configuration, or use --public-url";
        return Err(CompleteError::Usage(message.into()));
    };
    let url = hook_address(public, forge);
    if matches!(forge.auth, ForgeAuth::App { .. }) {
        return Ok(WebhookSetup { lines: manifest_steps(forge, public.as_str(), &url), good: true });
    }
    let adapter = app::connect(forge, app::rates(config), &Clock::System).map_err(failed)?;
    let found = find(&*adapter, repositories).await?;
    let steps = WebhookCreation { existing, patience, routes: None }.all(config, forge, &*adapter, &found).await?;
    let good = steps.iter().all(|step| step.state != StepState::Failed);
    let unreached = steps.iter().any(is_unreached);
    let mut lines: Vec<String> = steps.into_iter().map(|step| step.text).collect();
    if unreached {
        lines.extend(advice(forge, public, &url));
        let again: String = repositories.iter().map(|name| format!(" --repository {name}")).collect();
        lines.push(format!("then test again: ralph-bot init --webhook --name {}{again}", forge.name));
    }
    Ok(WebhookSetup { lines, good })
}

/// Parameters for the creation of webhooks.
struct WebhookCreation<'a> {
    existing: ExistingSecret,
    patience: Duration,
    routes: Option<&'a DeliveryRoutes>,
}

impl WebhookCreation<'_> {
    /// Creates and tests the webhooks of repositories while it listens for their deliveries.
    async fn all(
        &self,
        config: &Config,
        forge: &ForgeConfig,
        adapter: &dyn Forge,
        found: &[Repository],
    ) -> Result<Vec<super::ReportedStep>, CompleteError> {
        let Some(public) = &config.server.public_url else { return Ok(Vec::new()) };
        let known: Vec<RepoId> = forge.repository_secrets.iter().map(|of| of.repo).collect();
        let mut secrets = HashMap::new();
        for repo in found.iter().map(|found| &found.repo) {
            let kept = webhook_secrets::keep(&config.data_dir, &forge.name, repo.id, self.existing);
            secrets.insert(repo.id, kept.map_err(failed)?.secrets);
        }
        let store = Store::in_memory().map_err(failed)?;
        let arrived = Arc::new(Notify::new());
        let (wake, hook) = (arrived.clone(), Hook { of_repositories: secrets.clone(), ..app::hook(forge) });
        let wake = Arc::new(move || wake.notify_one());
        let edge = HttpState::new(store.clone(), Clock::System, vec![hook], Arc::new(Metrics::new()), wake);
        let router = http::router(Arc::new(edge));
        let (store, arrived, url) = (&store, &*arrived, hook_address(public, forge));
        let known = if self.existing == ExistingSecret::Keep { known } else { Vec::new() };
        let (secrets, patience) = (&secrets, self.patience);
        let test = WebhookTest { adapter, secrets, known: &known, url: &url, store, arrived, patience };
        let outcome = match self.routes {
            Some(routes) => {
                routes.set(Some(router));
                let outcome = test.all(found).await;
                routes.set(None);
                Ok(outcome)
            }
            None => {
                let listen = config.server.listen;
                let listener = tokio::net::TcpListener::bind(listen).await.map_err(|error| {
                    let problem = Failure::new(format!("cannot listen on {listen}")).caused_by(error);
                    failed(problem.with_hint("stop the service during the test, which needs its address"))
                })?;
                let serve = axum::serve(listener, router).into_future();
                tokio::select! {
                    outcome = test.all(found) => Ok(outcome),
                    ended = serve => Err(failed(format!("the listener for the test ended: {ended:?}"))),
                }
            }
        };
        store.close().await;
        outcome
    }
}

/// Finds repositories by their names.
async fn find(adapter: &dyn Forge, names: &[String]) -> Result<Vec<Repository>, CompleteError> {
    let all = adapter.repositories().await.map_err(failed)?;
    let one = |name: &String| {
        let found = all.iter().find(|seen| seen.repo.full_name().eq_ignore_ascii_case(name));
        found.cloned().ok_or_else(|| {
            let seen: Vec<_> = all.iter().take(10).map(|seen| seen.repo.full_name()).collect();
            let seen = if seen.is_empty() { "none".to_owned() } else { seen.join(", ") };
            CompleteError::Usage(
                format!("the credential cannot access a repository {name}; it can access {seen}").into(),
            )
        })
    };
    names.iter().map(one).collect()
}

/// Reason why the webhook of an empty repository cannot be tested, with a remedy.
const NO_COMMIT: &str =
    "the repository has no commit that a delivery could be about; push a first one, then run this again";

struct WebhookTest<'a> {
    adapter: &'a dyn Forge,
    secrets: &'a HashMap<RepoId, Vec<SecretString>>,
    /// Repositories whose secret already existed before this setup.
    known: &'a [RepoId],
    url: &'a str,
    store: &'a Store,
    arrived: &'a Notify,
    patience: Duration,
}

impl WebhookTest<'_> {
    /// Sets up the repositories one after another. A failure does not stop the others.
    async fn all(&self, repositories: &[Repository]) -> Vec<super::ReportedStep> {
        let mut steps = Vec::new();
        for found in repositories {
            let failed = |error: anyhow::Error| (StepState::Failed, format!("{:#}", Failure::of(error)));
            let (state, words) = self.one(found).await.unwrap_or_else(failed);
            steps.push(super::ReportedStep { state, text: format!("{}: {words}", found.repo.full_name()) });
        }
        steps
    }

    async fn one(&self, found: &Repository) -> anyhow::Result<(StepState, String)> {
        let repo = &found.repo;
        let secret = self.secrets.get(&repo.id).and_then(|secrets| secrets.first());
        let secret = secret.ok_or_else(|| anyhow::anyhow!("it has no webhook secret"))?;
        let Some(webhooks) = self.adapter.webhooks() else {
            return Ok((StepState::Failed, "this forge has no webhooks".to_owned()));
        };
        // Only a delivery proves that a webhook has the known secret.
        if self.known.contains(&repo.id)
            && let Some(id) = webhooks.find_webhook(repo, self.url).await?
        {
            let before = self.received().await?;
            if webhooks.test_webhook(repo, id).await.is_ok() && self.comes_after(before).await? {
                let words = format!("webhook {id} is correct; the test delivery arrived");
                return Ok((StepState::Unchanged, words));
            }
        }
        let Some(id) = webhooks.ensure_webhook(repo, self.url, secret).await? else {
            return Ok((StepState::Unchanged, "this forge has one webhook for all repositories".to_owned()));
        };
        let before = self.received().await?;
        let tested = webhooks.test_webhook(repo, id).await;
        // Gitea has nothing to deliver then.
        if found.empty && (tested.is_err() || !self.comes_after(before).await?) {
            return Ok((StepState::Failed, format!("webhook {id} is configured, but was not tested: {NO_COMMIT}")));
        }
        if let Err(error) = tested {
            return Ok((StepState::Failed, format!("webhook {id} is configured, but was not tested ({error})")));
        }
        Ok(match self.comes_after(before).await? {
            true => (StepState::Done, format!("webhook {id} is configured; the test delivery arrived")),
            false => {
                let seconds = self.patience.as_secs();
                let words = format!("webhook {id} is configured, but no test delivery arrived within {seconds} s");
                (StepState::Failed, words)
            }
        })
    }

    /// Waits for more than `before` deliveries; returns `false` if none arrives in time.
    async fn comes_after(&self, before: u64) -> anyhow::Result<bool> {
        let more = async {
            while self.received().await? <= before {
                self.arrived.notified().await;
            }
            anyhow::Ok(())
        };
        match tokio::time::timeout(self.patience, more).await {
            Ok(came) => came.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    async fn received(&self) -> anyhow::Result<u64> {
        let counts = self.store.read(inbox::counts).await?;
        Ok(counts.iter().map(|(_, count)| count).sum())
    }
}

/// Whether a webhook failed for another reason than an empty repository, so that the server may not reach the service.
fn is_unreached(step: &super::ReportedStep) -> bool {
    step.state == StepState::Failed && !step.text.ends_with(NO_COMMIT)
}

/// Returns advice for deliveries that do not arrive.
fn advice(forge: &ForgeConfig, public: &url::Url, url: &str) -> Vec<String> {
    let host = public.host_str().unwrap_or("ADDRESS");
    let mut lines = vec![format!("make sure that {} can reach {url}", forge.url)];
    if forge.kind == ForgeKind::Gitea {
        lines.extend([
            "Gitea sends webhooks to private and local addresses only if its app.ini allows them:".to_owned(),
            String::new(),
            "    [webhook]".to_owned(),
            format!("    ALLOWED_HOST_LIST = external,{host}"),
            String::new(),
            "restart Gitea afterwards (`systemctl restart gitea`, or `docker restart CONTAINER`)".to_owned(),
        ]);
    }
    lines
}

/// Returns the steps to create the GitHub App, which is only possible on GitHub's web pages.
fn manifest_steps(forge: &ForgeConfig, public: &str, url: &str) -> Vec<String> {
    let web = forge.url.as_str().trim_end_matches('/');
    let manifest = MANIFEST.replace("https://ralph.example.org/webhooks/github", url);
    let manifest = manifest.replace("https://ralph.example.org", public.trim_end_matches('/'));
    let settings = manifest.lines().filter(|line| !line.starts_with('#')).map(|line| format!("    {line}"));
    let mut lines = vec![
        "a GitHub App has one webhook for all its repositories, in the App's settings:".to_owned(),
        format!("1. open {web}/settings/apps/new (for an organization: {web}/organizations/NAME/settings/apps/new)"),
        "2. enter these settings, and the webhook secret from the configuration:".to_owned(),
        String::new(),
    ];
    lines.extend(settings);
    lines.extend([
        String::new(),
        "3. generate a private key and store it as `private_key_file`".to_owned(),
        "4. install the App on the repositories and run `ralph-bot check`".to_owned(),
    ]);
    lines
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use secrecy::ExposeSecret;

    use super::*;
    use crate::config::Env;
    use crate::domain::model::ids::AccountKind;
    use fake_forge::{Access, Dialect, FakeForge};

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    fn config(folder: &Path, url: &str, token: &str, port: u16, public_port: u16) -> Config {
        let env = Env::of([("T", token), ("S", SECRET)]);
        let text = format!(
            "server: {{ listen: '127.0.0.1:{port}', public_url: 'http://127.0.0.1:{public_port}' }}
forges: [{{ name: work, kind: gitea, url: '{url}', token_env: T, webhook_secret_env: S }}]
backends: {{ mine: {{ type: script, command: [sh] }} }}
"
        );
        Config::parse(&folder.join("ralph-control.yaml"), &text, &env).expect("valid")
    }

    async fn forge_with_repo() -> (FakeForge, String) {
        let forge = FakeForge::start(Dialect::Gitea, Clock::System).await.expect("a forge");
        let (owner, bot) = (forge.add_user("team", AccountKind::User), forge.add_user("ralph", AccountKind::User));
        let repo = forge.create_repo(&owner.login, "app", &[("a", "b", false)]).await.expect("a repository");
        forge.grant(repo, &bot, Access::Admin).expect("granted");
        let token = forge.token_for(&bot);
        (forge, token)
    }

    #[tokio::test]
    async fn webhook_is_created_and_tested() {
        let (forge, token) = forge_with_repo().await;
        let (port, folder) = (test_support::free_port(), tempfile::tempdir().expect("a folder"));
        let config = config(folder.path(), forge.url().as_str(), &token, port, port);
        let names = ["Team/App".to_owned()];
        let outcome = create_webhooks(&config, &config.forges[0], &names, ExistingSecret::Keep, DELIVERY_TIMEOUT)
            .await
            .expect("made");
        assert!(outcome.good, "{outcome:?}");
        assert!(outcome.lines[0].ends_with("is configured; the test delivery arrived"), "{outcome:?}");
        let kept = webhook_secrets::read(&config.data_dir, &config.forges[0].name).expect("secrets");
        let hook = forge.with(|state| state.repos.values().find_map(|repo| repo.hooks.first().cloned()));
        let secret = hook.expect("a webhook").secret;
        assert!(secret != SECRET && secret == kept[0].secrets[0].expose_secret(), "the repository's own secret");
        let again =
            create_webhooks(&config, &config.forges[0], &names, ExistingSecret::Replace, DELIVERY_TIMEOUT).await;
        assert!(again.expect("made").good);
        let replaced = webhook_secrets::read(&config.data_dir, &config.forges[0].name).expect("secrets");
        assert!(replaced[0].secrets.len() == 2 && replaced[0].secrets[1].expose_secret() == secret);
    }

    /// An empty repository has no commit to send a test delivery about.
    #[tokio::test]
    async fn repository_that_cannot_be_tested_does_not_stop_the_others() {
        let (forge, token) = forge_with_repo().await;
        let bot = forge.with(|state| state.account_named("ralph").expect("the bot").user.clone());
        let empty = forge.create_repo("team", "empty", &[]).await.expect("a repository");
        forge.grant(empty, &bot, Access::Admin).expect("granted");
        let (port, folder) = (test_support::free_port(), tempfile::tempdir().expect("a folder"));
        let config = config(folder.path(), forge.url().as_str(), &token, port, port);
        let names = ["team/empty".to_owned(), "team/app".to_owned()];
        let outcome = create_webhooks(&config, &config.forges[0], &names, ExistingSecret::Keep, DELIVERY_TIMEOUT)
            .await
            .expect("made");
        assert!(!outcome.good && outcome.lines[0].contains("is configured, but was not tested"), "{outcome:?}");
        assert!(outcome.lines[0].ends_with(NO_COMMIT), "{outcome:?}");
        assert!(!outcome.lines.join("\n").contains("ALLOWED_HOST_LIST"), "the server reached the service: {outcome:?}");
        assert!(outcome.lines[1].ends_with("is configured; the test delivery arrived"), "{outcome:?}");
    }

    #[tokio::test]
    async fn missing_delivery_prints_advice() {
        let (forge, token) = forge_with_repo().await;
        let folder = tempfile::tempdir().expect("a folder");
        let config =
            config(folder.path(), forge.url().as_str(), &token, test_support::free_port(), test_support::free_port());
        let names = ["team/app".to_owned()];
        let outcome =
            create_webhooks(&config, &config.forges[0], &names, ExistingSecret::Keep, Duration::from_millis(100))
                .await
                .expect("made");
        assert!(!outcome.good, "{outcome:?}");
        let text = outcome.lines.join("\n");
        assert!(text.contains("    [webhook]\n    ALLOWED_HOST_LIST = external,127.0.0.1\n"), "{text}");
        assert!(text.ends_with("ralph-bot init --webhook --name work --repository team/app"), "{text}");
    }

    #[tokio::test]
    async fn obstacles_are_reported() {
        let (forge, token) = forge_with_repo().await;
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = taken.local_addr().expect("an address").port();
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = config(folder.path(), forge.url().as_str(), &token, port, port);
        let fails = async |config: &Config, name: &str| {
            let names = [name.to_owned()];
            create_webhooks(config, &config.forges[0], &names, ExistingSecret::Keep, DELIVERY_TIMEOUT)
                .await
                .expect_err(name)
                .to_string()
        };
        assert!(fails(&config, "team/other").await.contains("it can access team/app"));
        assert!(fails(&config, "team/app").await.contains("stop the service during the test"));
        config.server.public_url = None;
        assert!(fails(&config, "team/app").await.contains("public_url"));
    }

    #[tokio::test]
    async fn app_is_created_by_hand() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("key.pem"), "key").expect("written");
        let text = "server: { public_url: 'https://r.example.net/' }
forges: [{ name: gh, kind: github, app_id: 7, private_key_file: key.pem, webhook_secret_env: S }]
backends: { mine: { type: script, command: [sh] } }
";
        let file = folder.path().join("ralph-control.yaml");
        let config = Config::parse(&file, text, &Env::of([("S", SECRET)])).expect("valid");
        let outcome = create_webhooks(&config, &config.forges[0], &[], ExistingSecret::Keep, DELIVERY_TIMEOUT)
            .await
            .expect("told");
        let text = outcome.lines.join("\n");
        assert!(outcome.good && text.contains("https://github.com/settings/apps/new"), "{text}");
        assert!(text.contains("url: https://r.example.net/webhooks/gh\n"), "{text}");
        assert!(!text.contains("example.org"), "{text}");
    }
}
