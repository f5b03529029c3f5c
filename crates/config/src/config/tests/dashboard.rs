//! Tests of the dashboard's and logins' keys.

use secrecy::ExposeSecret;

use super::{SMALL, forge_problems, parse, problems};
use crate::config::login_clients::{self, LoginClientConfig};
use crate::config::{Config, Env};
use crate::domain::model::ids::{ForgeName, UserId};

const FORGE: &str = "name: work, kind: gitea, url: 'https://git.example.org', token_env: T, webhook_secret_env: S";

#[test]
fn dashboard_is_on_without_a_login() {
    let config = parse(SMALL).unwrap();
    assert!(config.dashboard.enabled && config.dashboard.listen.is_none() && config.dashboard.operators.is_empty());
    assert!(config.forges[0].login.is_none());
    let operators = parse(&format!("{SMALL}dashboard: {{ operators: [7, 'work:8'] }}\n")).unwrap().dashboard.operators;
    assert_eq!(operators, [(ForgeName::new("work"), UserId(7)), (ForgeName::new("work"), UserId(8))]);
}

#[test]
fn login_has_a_client() {
    let text = format!(
        "forges: [{{ {FORGE}, login: {{ client_id: ' abc ', client_secret_env: T }} }}]\nbackends: {{ claude: {{}} }}\n"
    );
    let login = parse(&text).unwrap().forges.remove(0).login.expect("a login");
    assert_eq!((login.id.as_str(), login.secret.expose_secret()), ("abc", "token"));
}

#[test]
fn invalid_login_settings_are_reported() {
    let fault = |login: &str| forge_problems(&format!("{FORGE}, login: {{ {login} }}"));
    let table = [
        ("client_secret_env: T", "`forges[0].login`: `client_id` is missing"),
        ("client_id: a", "`forges[0].login`: no client secret; set `client_secret_env` or `client_secret_file`"),
        (
            "client_id: a, client_secret_env: T, client_secret_file: f",
            "`client_secret_env` and `client_secret_file` cannot be combined",
        ),
        ("client_id: a, client_secret_env: NONE", "environment variable NONE is not set"),
        ("client_id: a, client_secret_env: EMPTY", "environment variable EMPTY is empty"),
        ("client_idd: a", "did you mean `client_id`"),
    ];
    for (login, says) in table {
        assert!(fault(login).contains(says), "{login}: {}", fault(login));
    }
}

#[test]
fn dashboard_without_a_login_needs_a_loopback_address() {
    let of = |keys: &str| format!("{SMALL}dashboard: {{ {keys} }}\n");
    assert!(parse(&of("listen: '127.0.0.1:8081'")).is_ok() && parse(&of("listen: '[::1]:8081'")).is_ok());
    let public = problems(&of("listen: '0.0.0.0:8081'"));
    assert!(
        public.contains("`dashboard.listen`: without a login the dashboard must be at a loopback address"),
        "{public}"
    );
    assert!(parse(&of("listen: '0.0.0.0:8081', enabled: false")).is_ok());
    let wrong = problems(&of("listen: localhost, operators: [octocat]"));
    assert!(wrong.contains("`dashboard.listen`: expected an address and a port such as"), "{wrong}");
    assert!(wrong.contains("`dashboard.operators[0]`: expected the numeric id"), "{wrong}");
    let login = format!(
        "forges: [{{ {FORGE}, login: {{ client_id: a, client_secret_env: T }} }}]\nbackends: {{ claude: {{}} }}\n\
         server: {{ public_url: 'https://ralph.example.org' }}\ndashboard: {{ listen: '0.0.0.0:8081' }}\n"
    );
    assert!(parse(&login).is_ok());
    let below = problems(&login.replace("example.org'", "example.org/bot'"));
    assert!(
        below.contains("`server.public_url`: the dashboard with its login needs an address without a path"),
        "{below}"
    );
}

#[test]
fn client_of_the_data_folder_is_used_unless_the_file_names_one() {
    let folder = tempfile::tempdir().unwrap();
    let made = LoginClientConfig { id: "made".into(), secret: "kept".into() };
    login_clients::keep(&folder.path().join("data"), &ForgeName::new("work"), &made).unwrap();
    let env = Env::of([("T", "token"), ("S", super::SECRET), ("ANTHROPIC_API_KEY", "k")]);
    let id = |more: &str| {
        let text = format!("forges: [{{ {FORGE}{more} }}]\nbackends: {{ claude: {{}} }}\n");
        let config = Config::parse(&folder.path().join("ralph-control.yaml"), &text, &env).unwrap();
        config.forges[0].login.clone().map(|login| login.id)
    };
    assert_eq!(id("").as_deref(), Some("made"));
    assert_eq!(id(", login: { client_id: other, client_secret_env: T }").as_deref(), Some("other"));
}
