//! Checks of the dashboard's logins.

use std::sync::Arc;

use super::finding::CheckFinding;
use crate::app;
use crate::clock::Clock;
use crate::config::{Config, ForgeConfig};
use crate::forge::http::RateSettings;
use crate::forge::http::{ReqwestTransport, Timeouts, Transport};
use crate::forge::login::{CodeExchange, LoginClient, LoginFailure, account_of_code};

/// Code that no forge has issued. A forge that accepts the OAuth client refuses this code.
const NO_CODE: &str = "ralph-bot-check";

/// Describes a dashboard without a login; `None` if there is a login or no dashboard.
pub(super) fn without(config: &Config) -> Option<CheckFinding> {
    let none = config.dashboard.enabled && config.forges.iter().all(|forge| forge.login.is_none());
    let detail = "no login is configured: it is only on this machine, at the address that `ralph-bot serve` prints";
    none.then(|| CheckFinding::ok("dashboard", format!("{detail} (`ralph-bot init --login` makes one)")))
}

/// Checks that a forge responds to logins and accepts the OAuth client; `None` without a login.
pub(super) async fn look(config: &Config, forge: &ForgeConfig) -> Option<CheckFinding> {
    let client = forge.login.as_ref().filter(|_| config.dashboard.enabled)?;
    let name = format!("login with {}", forge.name);
    let Some(public) = &config.server.public_url else {
        let fix = "set `server.public_url` to the address at which people reach the dashboard";
        return Some(CheckFinding::warn(
            name,
            "there is no public address, so the callback address is on this machine",
            fix,
        ));
    };
    let client = LoginClient { id: client.id.clone(), secret: client.secret.clone() };
    let redirect = public.join(&format!("/login/callback/{}", forge.name)).ok()?;
    // Reported with the forge.
    let adapter = app::connect(forge, RateSettings::default(), &Clock::System).ok()?;
    let addresses = adapter.login()?.login_addresses();
    let transport: Arc<dyn Transport> = match ReqwestTransport::new(Timeouts::USUAL) {
        Ok(transport) => Arc::new(transport),
        Err(error) => return Some(CheckFinding::fail(name, error.to_string(), "")),
    };
    let exchange = CodeExchange { client: &client, redirect: &redirect, code: NO_CODE, verifier: NO_CODE };
    Some(match account_of_code(&transport, &addresses, exchange).await {
        Err(LoginFailure::Refused(_)) if public.scheme() == "https" => {
            CheckFinding::ok(name, format!("client {} is accepted; the callback address is {redirect}", client.id))
        }
        Err(LoginFailure::Refused(_)) => {
            let detail =
                format!("client {} is accepted; the callback address is {redirect} without encryption", client.id);
            CheckFinding::warn(name, detail, "use a reverse proxy with TLS")
        }
        Err(failure @ LoginFailure::Client(_)) => CheckFinding::fail(
            name,
            failure.to_string(),
            "`ralph-bot init --login` creates a client, or prints its location",
        ),
        Err(failure) => {
            CheckFinding::fail(name, failure.to_string(), "check the forge's `url` and the network connection")
        }
        Ok(_) => CheckFinding::fail(name, "the forge accepted a code that it never issued", "check the forge's `url`"),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use fake_forge::{Dialect, FakeForge};

    use super::*;
    use crate::cli::check::finding::FindingStatus;
    use crate::config::Env;

    fn config(forge: &FakeForge, kind: &str, login: &str, public: &str) -> Config {
        let env = Env::of([("T", "t"), ("S", "0123456789abcdef0123456789abcdef"), ("L", "wrong"), ("R", SECRET)]);
        let text = format!(
            "server: {{ {public} }}
forges: [{{ name: work, kind: {kind}, url: '{}', token_env: T, webhook_secret_env: S{login} }}]
backends: {{ mine: {{ type: script, command: [sh] }} }}
",
            forge.url()
        );
        Config::parse(Path::new("ralph-control.yaml"), &text, &env).unwrap_or_else(|problems| panic!("{problems}"))
    }

    const SECRET: &str = "the-secret";

    #[tokio::test]
    async fn login_client_is_verified_with_the_forge() {
        for (dialect, kind) in [(Dialect::Gitea, "gitea"), (Dialect::GitHub, "github")] {
            let forge = FakeForge::start(dialect, Clock::System).await.expect("a forge");
            let app = forge.add_login_app("ralph-bot", "https://r.example.org/login/callback/work");
            forge.with(|state| state.logins.apps[0].secret = SECRET.to_owned());
            let with =
                |secret: &str| format!(", login: {{ client_id: {}, client_secret_env: {secret} }}", app.client_id);
            let public = "public_url: 'https://r.example.org'";
            let found = async |login: &str, public: &str| {
                let config = config(&forge, kind, login, public);
                look(&config, &config.forges[0]).await
            };
            assert_eq!(found("", public).await, None);
            let good = found(&with("R"), public).await.expect("a finding");
            assert!(good.status == FindingStatus::Ok && good.detail.contains("callback/work"), "{good:?}");
            let wrong = found(&with("L"), public).await.expect("a finding");
            assert!(wrong.status == FindingStatus::Fail && wrong.fix.contains("init --login"), "{wrong:?}");
            let plain = found(&with("R"), "public_url: 'http://r.example.org'").await.expect("a finding");
            assert!(plain.status == FindingStatus::Warn && plain.detail.contains("without encryption"), "{plain:?}");
            let local = found(&with("R"), "").await.expect("a finding");
            assert!(local.status == FindingStatus::Warn && local.fix.contains("public_url"), "{local:?}");
            forge.faults().next(1, "POST", "access_token", fake_forge::FakeFault::status(502)).expect("a pattern");
            let silent = found(&with("R"), public).await.expect("a finding");
            assert!(silent.status == FindingStatus::Fail && silent.fix.contains("network"), "{silent:?}");
        }
    }

    #[tokio::test]
    async fn dashboard_without_login_is_reported() {
        let forge = FakeForge::start(Dialect::Gitea, Clock::System).await.expect("a forge");
        let told = without(&config(&forge, "gitea", "", "")).expect("a finding");
        assert!(told.status == FindingStatus::Ok && told.detail.contains("only on this machine"), "{told:?}");
        let login = ", login: { client_id: x, client_secret_env: L }";
        assert_eq!(without(&config(&forge, "gitea", login, "")), None);
    }
}
