//! Finding about the backend that gives second opinions: whether it supports them, and whether its model is from
//! another vendor.

use super::finding::CheckFinding;
use crate::agent::presets;
use crate::config::{BackendConfig, Config};
use crate::domain::providers::backends::BackendRole;

/// Name of the finding.
const NAME: &str = "second opinion";

/// Checks the backend of `review`; `None` if there is none.
pub(super) fn finding(config: &Config) -> Option<CheckFinding> {
    let review = config.review()?;
    let name = &review.backend;
    let Some(reviewer) = config.backends.get(name) else {
        let detail = format!("the backend `{name}` is not enabled, so there will be no second opinions");
        return Some(CheckFinding::warn(NAME, detail, "enable it in `backends`, or remove `review`"));
    };
    let choice = config.backends_settings();
    let of_agents = choice.in_order(BackendRole::Agent);
    let agents = of_agents.into_iter().filter_map(|agent| Some((agent, config.backends.get(agent)?)));
    let same = |(agent, backend): &(&str, &BackendConfig)| {
        *agent == name.as_str()
            || vendor(name, reviewer).is_some_and(|one| vendor(agent, backend).as_ref() == Some(&one))
    };
    let fix =
        "name a backend of another vendor in `review.backend`, with `roles: [reviewer]` if it is to do nothing else";
    Some(match agents.clone().find(same) {
        Some((agent, _)) if agent == name.as_str() && agents.count() == 1 => {
            CheckFinding::warn(NAME, format!("`{name}` reads its own work, because no other backend runs agents"), fix)
        }
        Some((agent, _)) if agent == name.as_str() => {
            CheckFinding::warn(NAME, format!("`{name}` also runs agents, so it can read its own work"), fix)
        }
        Some((agent, _)) => {
            let detail = format!("`{name}` and `{agent}` have models of the same vendor, which make the same mistakes");
            CheckFinding::warn(NAME, detail, fix)
        }
        None => CheckFinding::ok(NAME, format!("`{name}` reads finished work")),
    })
}

/// Returns the domain of a backend's models; `None` if it is unknown or there are several.
fn vendor(name: &str, backend: &BackendConfig) -> Option<String> {
    if let Some(host) = backend.url.as_ref().and_then(|url| url.host_str()) {
        return Some(domain(host));
    }
    if backend.settings.kind.is_some() || presets::is_of_any_vendor(name) {
        return None;
    }
    let mut domains: Vec<String> = presets::model_hosts(name).iter().map(|host| domain(host)).collect();
    domains.dedup();
    // The first host serves the API, the others serve logins.
    domains.into_iter().next()
}

/// Returns the last two labels of a host name; an IP address is returned unchanged.
fn domain(host: &str) -> String {
    if host.parse::<std::net::IpAddr>().is_ok() || host.starts_with('[') {
        return host.to_owned();
    }
    let labels: Vec<&str> = host.rsplitn(3, '.').collect();
    labels.into_iter().take(2).rev().collect::<Vec<_>>().join(".").to_lowercase()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::cli::check::FindingStatus;
    use crate::config::Env;

    fn checked(backends: &str, review: &str) -> Option<CheckFinding> {
        let text = format!(
            "forges:\n  - {{ name: forge, kind: github, token_env: T, webhook_secret_env: S }}\nbackends: {{ {backends} }}\n{review}\n"
        );
        let env = Env::of([("T", "a-token"), ("S", "a-webhook-secret-of-the-tests-0123456789")]);
        let config = Config::parse(Path::new("ralph-control.yaml"), &text, &env);
        finding(&config.unwrap_or_else(|problems| panic!("{problems}")))
    }

    #[test]
    fn vendor_of_a_second_opinion_is_compared_with_the_vendor_of_the_agent() {
        let api =
            "judge: { type: api, url: 'https://api.anthropic.com', models: { default: claude-x }, roles: [reviewer] }";
        let local = "judge: { type: api, url: 'http://127.0.0.1:1', models: { default: x } }";
        for (backends, review, says) in [
            ("claude: {}".to_owned(), "", None),
            ("claude: {}, codex: {}".to_owned(), "review: { backend: codex, when: never }", None),
            ("claude: {}, codex: {}".to_owned(), "review: { backend: codex }", Some("`codex` also runs agents")),
            (
                "claude: {}, codex: { roles: [reviewer] }".to_owned(),
                "review: { backend: codex }",
                Some("reads finished work"),
            ),
            ("claude: {}".to_owned(), "review: { backend: claude }", Some("reads its own work")),
            (format!("claude: {{}}, {api}"), "review: { backend: judge }", Some("same vendor")),
            (format!("claude: {{}}, {local}"), "review: { backend: judge }", Some("reads finished work")),
            ("claude: {}, codex: { enabled: false }".to_owned(), "review: { backend: codex }", Some("is not enabled")),
        ] {
            let found = checked(&backends, review);
            assert_eq!(found.is_some(), says.is_some(), "{backends} {review}: {found:?}");
            let Some((found, says)) = found.zip(says) else { continue };
            assert!(found.detail.contains(says), "{backends} {review}: {found:?}");
            let is_fine = says == "reads finished work";
            assert_eq!(found.status, if is_fine { FindingStatus::Ok } else { FindingStatus::Warn }, "{found:?}");
        }
    }

    #[test]
    fn domains_are_the_last_two_labels() {
        for (host, expected) in [
            ("api.anthropic.com", "anthropic.com"),
            ("API.OpenAI.com", "openai.com"),
            ("localhost", "localhost"),
            ("10.0.0.1", "10.0.0.1"),
        ] {
            assert_eq!(domain(host), expected);
        }
    }
}
