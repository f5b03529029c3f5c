//! Creates the OAuth client with which people log in to the dashboard.

use ralph_types::failure::Failure;

use crate::app;
use crate::cli::CliError;
use crate::clock::Clock;
use crate::config::login_clients::{self, LoginClientConfig};
use crate::config::{Config, ForgeAuth, ForgeConfig};
use crate::forge::http::RateSettings;

/// Creates the OAuth client of a forge and stores it in the data folder. On GitHub, only explains where it can be
/// created. Returns lines for the operator.
///
/// # Errors
/// There is no public address, the forge refuses, or the client cannot be stored.
pub(super) async fn create(config: &Config, forge: &ForgeConfig) -> Result<Vec<String>, CliError> {
    let Some(public) = &config.server.public_url else {
        let message = "a login needs a callback address for the forge; set `server.public_url` in the configuration";
        return Err(CliError::usage(message));
    };
    let redirect = public
        .join(&format!("/login/callback/{}", forge.name))
        .map_err(|error| CliError::failed(Failure::of(error)))?;
    let adapter = app::connect(forge, RateSettings::default(), &Clock::System)
        .map_err(|error| CliError::failed(Failure::of(error)))?;
    let Some(login) = adapter.login() else {
        return Err(CliError::failed(format!("forge {} supports no logins", forge.name)));
    };
    let name = crate::setup::login_client_name(public);
    let made = login.create_login_client(&name, &redirect).await.map_err(|error| {
        CliError::failed(Failure::of(error).with_hint(
            "the token needs the scope `write:user`, or create the application by hand, see docs/guides/dashboard.md",
        ))
    })?;
    let Some(client) = made else { return Ok(steps_on_github(forge, redirect.as_str())) };
    let client = LoginClientConfig { id: client.id, secret: client.secret };
    let file = login_clients::keep(&config.data_dir, &forge.name, &client).map_err(CliError::failed)?;
    let mut lines = vec![
        format!("{}: the application \"{name}\" has the client id {}", forge.name, client.id),
        format!("its secret is in {}; the callback address is {redirect}", file.display()),
    ];
    if forge.login.as_ref().is_some_and(|known| known.id != client.id) {
        lines.push("the configuration names another client in `login`, which is used; remove it there".to_owned());
    }
    lines.push("restart the service, then run `ralph-bot check`".to_owned());
    Ok(lines)
}

/// Returns the steps on GitHub's web pages, the only place that shows a client's secret.
fn steps_on_github(forge: &ForgeConfig, redirect: &str) -> Vec<String> {
    let web = forge.url.as_str().trim_end_matches('/');
    let variable = format!("RALPH_{}_LOGIN_SECRET", forge.name.as_str().to_uppercase().replace('-', "_"));
    let (open, enter) = match forge.auth {
        ForgeAuth::App { .. } => (
            format!(
                "1. open {web}/settings/apps (for an organization: {web}/organizations/NAME/settings/apps), and there the App"
            ),
            format!("2. enter the callback URL {redirect}"),
        ),
        ForgeAuth::Token(_) => (
            format!("1. open {web}/settings/applications/new, to make an OAuth app"),
            format!("2. enter the authorization callback URL {redirect}"),
        ),
    };
    vec![
        "GitHub shows the client's id and secret only on its own pages:".to_owned(),
        open,
        enter,
        "3. copy the client id, and generate a client secret".to_owned(),
        format!(
            "4. store the secret in the environment variable {variable}, and add to the forge in the configuration:"
        ),
        String::new(),
        format!("    login: {{ client_id: \"CLIENT ID\", client_secret_env: {variable} }}"),
        String::new(),
        "5. restart the service, then run `ralph-bot check`".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use fake_forge::{Dialect, FakeForge};
    use secrecy::ExposeSecret;

    use super::*;
    use crate::config::Env;
    use crate::domain::model::ids::AccountKind;

    fn config(folder: &Path, kind: &str, url: &str, token: &str, public: &str) -> Config {
        let env = Env::of([("T", token), ("S", "0123456789abcdef0123456789abcdef")]);
        let text = format!(
            "server: {{ {public} }}
forges: [{{ name: work, kind: {kind}, url: '{url}', token_env: T, webhook_secret_env: S }}]
backends: {{ mine: {{ type: script, command: [sh] }} }}
"
        );
        Config::parse(&folder.join("ralph-control.yaml"), &text, &env).expect("valid")
    }

    #[tokio::test]
    async fn application_is_created_once_and_gets_a_new_secret() {
        let forge = FakeForge::start(Dialect::Gitea, Clock::System).await.expect("a forge");
        let token = forge.token_for(&forge.add_user("ralph", AccountKind::User));
        let folder = tempfile::tempdir().expect("a folder");
        let parsed =
            || config(folder.path(), "gitea", forge.url().as_str(), &token, "public_url: 'https://ralph.example.org'");
        let mut secrets = Vec::new();
        for _ in 0..2 {
            let config = parsed();
            let lines = create(&config, &config.forges[0]).await.expect("made").join("\n");
            let known = parsed().forges[0].login.clone().expect("a client, without a change of the configuration");
            assert!(lines.contains(&known.id) && !lines.contains(known.secret.expose_secret()), "{lines}");
            secrets.push(known.secret.expose_secret().to_owned());
        }
        let apps = forge.with(|state| state.logins.apps.clone());
        assert_eq!(apps.len(), 1);
        assert_eq!(apps[0].redirects, ["https://ralph.example.org/login/callback/work"]);
        assert!(secrets[0] != secrets[1] && secrets[1] == apps[0].secret);
    }

    #[tokio::test]
    async fn token_without_the_scope_is_reported() {
        let forge = FakeForge::start(Dialect::Gitea, Clock::System).await.expect("a forge");
        let user = forge.add_user("ralph", AccountKind::User);
        let token = forge.with(|state| state.create_token(user.id, Some(vec!["read:user".into()])));
        let folder = tempfile::tempdir().expect("a folder");
        let config =
            config(folder.path(), "gitea", forge.url().as_str(), &token, "public_url: 'https://r.example.org'");
        let error = create(&config, &config.forges[0]).await.expect_err("refused").to_string();
        assert!(error.contains("write:user") && error.contains("docs/guides/dashboard.md"), "{error}");
        assert!(config.forges[0].login.is_none());
    }

    #[tokio::test]
    async fn steps_on_github_name_the_callback() {
        let folder = tempfile::tempdir().expect("a folder");
        let public = "public_url: 'https://r.example.org'";
        let config = config(folder.path(), "github", "https://github.com", "t", public);
        let lines = create(&config, &config.forges[0]).await.expect("told").join("\n");
        assert!(lines.contains("https://github.com/settings/applications/new"), "{lines}");
        assert!(lines.contains("https://r.example.org/login/callback/work"), "{lines}");
        assert!(lines.contains("client_secret_env: RALPH_WORK_LOGIN_SECRET"), "{lines}");
    }

    #[tokio::test]
    async fn missing_public_address_is_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = config(folder.path(), "github", "https://github.com", "t", "");
        let error = create(&config, &config.forges[0]).await.expect_err("no address").to_string();
        assert!(error.contains("server.public_url"), "{error}");
    }
}
