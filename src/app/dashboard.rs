//! Address at which the dashboard and the API are served, and who can reach it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Context;
use secrecy::{ExposeSecret, SecretString};
use tokio::net::TcpListener;
use url::{Host, Url};

use crate::config::webhook_secrets::random_secret;
use crate::config::{Config, ServerConfig};
use crate::domain::report::dashboard_links::DashboardPages;
use crate::engine::Engine;
use crate::forge::login::LoginClient;
use crate::web::{AccessSettings, LiveFeed, WebAccess, WebState};

/// Address at which the dashboard is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DashboardListener {
    /// Same address as for webhooks.
    Shared,
    /// Separate address, which the operator chose.
    Chosen(SocketAddr),
    /// Default address on this machine, or another port if it is taken.
    Usual(SocketAddr),
}

/// Returns the address. Without a login, other machines can never reach the dashboard: it is neither a public address
/// nor one that a reverse proxy forwards to, which a public address in the configuration implies.
fn place(server: &ServerConfig, chosen: Option<SocketAddr>, has_login: bool) -> DashboardListener {
    if let Some(address) = chosen {
        return DashboardListener::Chosen(address);
    }
    if has_login || (server.listen.ip().is_loopback() && public_url(server).is_none()) {
        return DashboardListener::Shared;
    }
    let port = server.listen.port();
    let next = if port == 0 { 0 } else { port.wrapping_add(1) };
    DashboardListener::Usual(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), next))
}

/// Returns the public address in the configuration; `None` if it refers to this machine.
fn public_url(server: &ServerConfig) -> Option<&Url> {
    server.public_url.as_ref().filter(|url| match url.host() {
        Some(Host::Domain(name)) => name != "localhost",
        Some(Host::Ipv4(address)) => !address.is_loopback(),
        Some(Host::Ipv6(address)) => !address.is_loopback(),
        None => true,
    })
}

/// Returns the address at which the browser of the setup page will reach the dashboard, and whether the dashboard has
/// a login. The address is `None` if it is not known before the start.
pub fn address_after_setup(config: &Config) -> (Option<String>, bool) {
    let has_login = config.forges.iter().any(|forge| forge.login.is_some());
    let address = match place(&config.server, config.dashboard.listen, has_login) {
        DashboardListener::Shared => Some("/".to_owned()),
        DashboardListener::Chosen(address) => Some(format!("http://{address}/")),
        DashboardListener::Usual(_) => None,
    };
    let public = config.server.public_url.as_ref().filter(|_| has_login).map(ToString::to_string);
    (public.or(address).filter(|_| config.dashboard.enabled), has_login)
}

/// Returns the pages that comments on the forge link to; `None` if other machines cannot reach the dashboard.
pub(super) fn linked_pages(config: &Config) -> Option<DashboardPages> {
    let is_reached = config.dashboard.enabled && config.forges.iter().any(|forge| forge.login.is_some());
    public_url(&config.server).filter(|_| is_reached).map(DashboardPages::at)
}

/// Dashboard that is being served.
pub struct Dashboard {
    /// Address of the dashboard, without a path.
    pub base: Url,
    /// Token for access without a login; `None` with a login.
    pub token: Option<SecretString>,
    /// State of the dashboard's handlers.
    pub state: Arc<WebState>,
}

impl Dashboard {
    /// Returns the address for people to open. It contains the token, if there is one, so it is printed once and never
    /// logged.
    pub fn link(&self) -> SecretString {
        let mut link = self.base.clone();
        if let Some(token) = &self.token {
            link.set_path("/login");
            link.query_pairs_mut().append_pair("token", token.expose_secret());
        }
        SecretString::from(link.to_string())
    }
}

/// Opens the dashboard. `shared` is the address at which webhooks are received. Returns a listener if the dashboard
/// has a separate address.
pub(super) async fn open(
    config: &Config,
    engine: &Arc<Engine>,
    shared: SocketAddr,
) -> anyhow::Result<(Dashboard, Option<TcpListener>)> {
    let logins = config.forges.iter().filter_map(|forge| {
        let client = forge.login.as_ref()?;
        Some((forge.name.clone(), LoginClient { id: client.id.clone(), secret: client.secret.clone() }))
    });
    let logins: std::collections::HashMap<_, _> = logins.collect();
    let has_login = !logins.is_empty();
    let bind = async |address: SocketAddr| TcpListener::bind(address).await;
    let listener = match place(&config.server, config.dashboard.listen, has_login) {
        DashboardListener::Shared => None,
        DashboardListener::Chosen(address) => {
            let why =
                || format!("cannot listen on {address} for the dashboard; set `dashboard.listen` to another address");
            Some(bind(address).await.with_context(why)?)
        }
        DashboardListener::Usual(address) => {
            let other = SocketAddr::new(address.ip(), 0);
            let opened = match bind(address).await {
                Ok(listener) => Ok(listener),
                Err(_) => bind(other).await,
            };
            Some(opened.context(
                "cannot listen on 127.0.0.1 for the dashboard; set `dashboard.enabled: false` to go without",
            )?)
        }
    };
    let address = match &listener {
        Some(listener) => listener.local_addr()?,
        None => shared,
    };
    let own = Url::parse(&format!("http://{address}")).context("the dashboard's address is not valid")?;
    let public = config.server.public_url.clone().filter(|_| has_login);
    let base = public.unwrap_or(own);
    let token = if has_login {
        None
    } else {
        Some(random_secret().context("could not read random numbers from the system")?.into())
    };
    let operators = config.dashboard.operators.clone();
    let settings = AccessSettings { token: token.clone(), base: base.clone(), operators, logins };
    let access = WebAccess::new(settings).context("cannot create the HTTP client for logins")?;
    Ok((
        Dashboard {
            base,
            token,
            state: Arc::new(WebState { engine: engine.clone(), access, live: LiveFeed::default() }),
        },
        listener,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Env;

    #[test]
    fn set_up_links_to_the_dashboard_if_its_address_is_known() {
        let folder = tempfile::tempdir().expect("a folder");
        let of = |more: &str, login: &str| {
            let env = Env::of([("T", "token"), ("S", "0123456789abcdef0123456789abcdef")]);
            let text = format!(
                "forges: [{{ name: work, kind: gitea, url: 'http://127.0.0.1:9', token_env: T, webhook_secret_env: S{login} }}]
backends: {{ mine: {{ type: script, command: [sh] }} }}
{more}"
            );
            address_after_setup(&Config::parse(&folder.path().join("ralph-control.yaml"), &text, &env).expect("valid"))
        };
        let login = ", login: { client_id: c, client_secret_env: S }";
        let public = "server: { public_url: 'https://r.example.org' }";
        assert_eq!(of("", ""), (Some("/".into()), false));
        assert_eq!(of("server: { listen: '0.0.0.0:8080' }", ""), (None, false));
        assert_eq!(of("dashboard: { listen: '127.0.0.1:9000' }", ""), (Some("http://127.0.0.1:9000/".into()), false));
        assert_eq!(of(public, login), (Some("https://r.example.org/".into()), true));
        assert_eq!(of("dashboard: { enabled: false }", ""), (None, false));
    }

    /// See docs/research/threats.md#v4.
    #[test]
    fn dashboard_without_a_login_is_only_on_this_machine() {
        use DashboardListener::{Chosen, Shared, Usual};
        let at = |text: &str| -> SocketAddr { text.parse().unwrap() };
        let table = [
            ("127.0.0.1:8080", None, None, false, Shared),
            ("[::1]:8080", None, None, false, Shared),
            ("127.0.0.1:8080", Some("http://localhost:8080"), None, false, Shared),
            ("0.0.0.0:8080", None, None, false, Usual(at("127.0.0.1:8081"))),
            ("10.0.0.5:0", None, None, false, Usual(at("127.0.0.1:0"))),
            ("[::]:65535", None, None, false, Usual(at("127.0.0.1:0"))),
            // A reverse proxy forwards to it.
            ("127.0.0.1:8080", Some("https://ralph.example.org"), None, false, Usual(at("127.0.0.1:8081"))),
            ("127.0.0.1:8080", Some("https://10.0.0.5"), None, false, Usual(at("127.0.0.1:8081"))),
            ("0.0.0.0:8080", None, Some("127.0.0.1:9000"), false, Chosen(at("127.0.0.1:9000"))),
            ("0.0.0.0:8080", Some("https://ralph.example.org"), None, true, Shared),
            ("0.0.0.0:8080", None, Some("0.0.0.0:9000"), true, Chosen(at("0.0.0.0:9000"))),
        ];
        for (listen, public, chosen, has_login, expected) in table {
            let public_url = public.map(|url| Url::parse(url).unwrap());
            let server = ServerConfig { listen: at(listen), metrics_listen: None, public_url };
            assert_eq!(
                place(&server, chosen.map(at), has_login),
                expected,
                "{listen} {public:?} {chosen:?} {has_login}"
            );
        }
    }
}
