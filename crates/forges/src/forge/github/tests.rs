//! Tests of the GitHub adapter. Requests and responses are validated against GitHub's description.

mod app;
mod calls;
mod ci;
mod network;
mod sample;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use super::*;
use crate::domain::model::ids::{AccountKind, RepoId, UserId};
use crate::domain::trust::permit::TeamRef;
use crate::forge::contract::{ContractSpec, ContractTransport};
use crate::forge::http::{RateSettings, Transport};
use crate::forge::{
    Capabilities, Ci, Drafts, IssueHistory, Minimizing, Reaction, Reactions, RepositoryFiles, Reviews, TeamVisibility,
    Teams, Webhooks,
};

/// 2026-01-01T00:00:00Z.
const START: Timestamp = Timestamp(1_767_225_600_000);

fn repo() -> RepoRef {
    RepoRef { forge: ForgeName::new("gh"), id: RepoId(7), owner: "acme".into(), name: "app".into() }
}

fn user(id: i64, login: &str) -> User {
    User { id: UserId(id), login: login.into(), kind: AccountKind::User }
}

fn settings(auth: GitHubAuth) -> GitHubSettings {
    GitHubSettings {
        name: ForgeName::new("gh"),
        api_url: "https://api.github.test".parse().unwrap(),
        web_url: "https://github.test/".parse().unwrap(),
        auth,
        rates: RateSettings {
            mutation_interval_ms: Some(0),
            reserve: 0,
            attempts: 1,
            settling_ms: 0,
            ..RateSettings::default()
        },
    }
}

fn token_auth() -> GitHubAuth {
    GitHubAuth::Token(SecretString::from("ghp_secret".to_owned()))
}

fn app_auth() -> GitHubAuth {
    let pem = include_str!("../../../../../crates/fake-forge/src/github/app-key.pem").to_owned();
    GitHubAuth::App { app_id: 12_345, private_key_pem: SecretString::from(pem) }
}

/// Creates an adapter with a personal token, and its scripted transport.
fn with_token() -> (GitHub, Arc<ContractTransport>) {
    let transport = ContractTransport::new(ContractSpec::GitHub);
    (over(token_auth(), Clock::manual(START), transport.clone()), transport)
}

fn over(auth: GitHubAuth, clock: Clock, transport: Arc<dyn Transport>) -> GitHub {
    GitHub::with_transport(settings(auth), clock, transport).unwrap()
}

#[derive(Deserialize)]
struct Manifest {
    name: String,
    url: Url,
    hook_attributes: HookAttributes,
    public: bool,
    default_events: Vec<String>,
    default_permissions: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct HookAttributes {
    url: Url,
}

#[test]
fn manifest_requests_the_needed_permissions() {
    let text = include_str!("../../../../../app-manifest.yml");
    let manifest: Manifest = serde_saphyr::from_str(text).unwrap();
    assert_eq!(manifest.default_events, EVENTS);
    let permissions: Vec<(&str, &str)> =
        manifest.default_permissions.iter().map(|(name, access)| (name.as_str(), access.as_str())).collect();
    assert_eq!(permissions, PERMISSIONS);
    assert!(!manifest.public && !manifest.name.is_empty());
    assert_eq!(manifest.hook_attributes.url.origin(), manifest.url.origin());
    assert_eq!(manifest.hook_attributes.url.path(), "/webhooks/github", "where `init` names the forge so");
    let guide =
        include_str!("../../../../../docs/guides/install-github.md").split_whitespace().collect::<Vec<_>>().join(" ");
    let listed = guide.split_once("Events: ").and_then(|(_, rest)| rest.split_once('.')).expect("a list of events").0;
    let mut events: Vec<String> = listed.to_lowercase().split(", ").map(|event| event.replace(' ', "_")).collect();
    events.sort();
    assert_eq!(events, EVENTS, "docs/guides/install-github.md lists the same events");
    assert!(webhook::IMPLICIT.iter().all(|row| !EVENTS.contains(&row.name)));
}

/// See docs/research/threats.md#s8.
#[test]
fn debug_output_contains_no_secret() {
    for auth in [token_auth(), app_auth()] {
        let printed = format!("{:?}", settings(auth));
        assert!(!printed.contains("ghp_secret") && !printed.contains("PRIVATE KEY"), "{printed}");
    }
}

#[test]
fn invalid_private_key_is_refused() {
    let auth = GitHubAuth::App { app_id: 5, private_key_pem: SecretString::from("no key".to_owned()) };
    let transport = Arc::new(network::Unreachable);
    let Err(refused) = GitHub::with_transport(settings(auth), Clock::System, transport) else { panic!() };
    let text = refused.to_string();
    assert!(text.contains("App 5") && text.contains("download a new one") && !text.contains("no key"), "{text}");
}
