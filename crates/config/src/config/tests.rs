//! Tests of both files: the exact message of each kind of error, overrides, secrets, and malformed text.

mod backends;
mod dashboard;
mod database;
mod key_sources;
mod thresholds;

use std::path::Path;

use proptest::prelude::*;
use secrecy::ExposeSecret;

use super::*;
use crate::domain::loops::command::TABLE;
use crate::domain::model::ids::{Money, RepoId};
use crate::domain::model::quantity::{self, IterationLimit, Usd};
use crate::domain::model::task::{CheckRule, CheckSource};
use crate::domain::supervision::oversight::{Basis, DetectionKind, InterventionLevel, OversightSettings};
use crate::domain::trust::bounds::{self, FurtherBound};
use crate::domain::trust::egress::{Egress, Hosts};
use crate::domain::trust::policy::{MinimumAccess, ProgressReport};
use crate::domain::trust::protected::ProtectedPolicy;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Sample from the documentation.
const SAMPLE: &str = r#"
server: { listen: "127.0.0.1:8080", public_url: "https://ralph.example.org" }
data_dir: ./data
forges:
  - { name: work, kind: gitea, url: "https://git.example.org", token_env: RALPH_GITEA_TOKEN, webhook_secret_env: RALPH_GITEA_SECRET }
  - { name: gh, kind: github, app_id: 12345, private_key_env: KEY, webhook_secret_env: [RALPH_GITHUB_SECRET, RALPH_GITHUB_OLD] }
repositories: ["work:team/*", "gh:acme/app"]
permissions: { command: maintain, allow: ["work:7", "gh:7"], teams: ["gh:acme/leads"], allow_bots: ["gh:9"] }
limits: { loops: 4, loops_per_repository: 1, iterations: 10, timeout: 2h, cost_usd: 10, cost_usd_per_day: 50, comments_per_day: 30 }
sandbox: { required: auto, network: [] }
backends:
  claude: { enabled: true, models: { default: sonnet } }
  mine: { type: script, command: ["./agent.sh"], roles: [agent] }
  off: { enabled: false }
control: { stuck_iterations: 4 }
oversight: {}
memory: {}
intelligence: facts
rotation: { mode: none }
schedule: []
escalation: { channels: [] }
"#;

/// Minimal file that tests extend: one forge and one backend.
const SMALL: &str = "\
forges:
  - { name: work, kind: gitea, url: 'https://git.example.org', token_env: T, webhook_secret_env: S }
backends: { claude: {} }
";

fn env() -> Env {
    Env::of([
        ("RALPH_GITEA_TOKEN", "t"),
        ("RALPH_GITEA_SECRET", SECRET),
        ("RALPH_GITHUB_SECRET", SECRET),
        ("RALPH_GITHUB_OLD", SECRET),
        ("KEY", "-----BEGIN-----\nx\n-----END-----\n"),
        ("T", "token"),
        ("S", SECRET),
        ("SHORT", "0123456789abcdef"),
        ("EMPTY", " \n"),
    ])
}

fn parse(text: &str) -> Result<Config, ConfigProblems> {
    Config::parse(Path::new("conf/ralph-control.yaml"), text, &env())
}

fn problems(text: &str) -> String {
    parse(text).expect_err("a file with mistakes").to_string()
}

/// Returns the problems of a file with one forge, whose braces contain `text`.
fn forge_problems(text: &str) -> String {
    problems(&format!("forges: [{{ {text} }}]\nbackends: {{ claude: {{}} }}\n"))
}

fn with_env(text: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigProblems> {
    let all: Vec<_> = [("T", "token"), ("S", SECRET)].iter().chain(variables).copied().collect();
    Config::parse(Path::new("ralph-control.yaml"), text, &Env::of(all))
}

fn repo(forge: &str, owner: &str, name: &str) -> RepoRef {
    RepoRef { forge: ForgeName::new(forge), id: RepoId(1), owner: owner.to_owned(), name: name.to_owned() }
}

#[test]
fn sample_file_is_parsed() {
    let config = parse(SAMPLE).expect("the sample is valid");
    assert_eq!(config.data_dir, Path::new("conf/./data"));
    assert_eq!(config.server.listen.port(), 8080);
    assert_eq!(config.forges.len(), 2);
    assert_eq!(config.forges[1].kind, ForgeKind::GitHub);
    assert_eq!(config.forges[1].url.as_str(), "https://github.com/");
    assert_eq!(config.forges[1].webhook_secrets.len(), 2);
    assert!(matches!(&config.forges[1].auth, ForgeAuth::App { id: 12345, private_key }
        if private_key.expose_secret().starts_with("-----BEGIN")));
    assert_eq!(config.backends.keys().collect::<Vec<_>>(), ["claude", "mine"]);
    assert_eq!(config.backends["mine"].settings.command, ["conf/./agent.sh"]);
    assert_eq!(config.backends["claude"].settings.models.default.as_deref(), Some("sonnet"));
    assert_eq!(config.policy(&ForgeName::new("gh")).supervision().control.stuck_iterations, 4);
    assert!(!format!("{config:?}").contains(SECRET));
}

#[test]
fn github_api_address_follows_the_server_unless_it_is_configured() {
    let of = |keys: &str| {
        let text = format!(
            "forges: [{{ name: gh, kind: github{keys}, token_env: T, webhook_secret_env: S }}]\nbackends: {{ claude: {{}} }}\n"
        );
        let config = parse(&text).unwrap_or_else(|problems| panic!("{keys}: {problems}"));
        config.forges[0].github_api().to_string()
    };
    for (keys, address) in [
        ("", "https://api.github.com/"),
        (", url: 'https://github.com'", "https://api.github.com/"),
        (", url: 'https://octo.ghe.com/'", "https://api.octo.ghe.com/"),
        (", url: 'https://git.acme.example'", "https://git.acme.example/api/v3/"),
        (", url: 'https://git.acme.example', api_url: 'https://api.acme.example/v3'", "https://api.acme.example/v3"),
        (", api_url: 'http://proxy.lan:8000/github'", "http://proxy.lan:8000/github"),
    ] {
        assert_eq!(of(keys), address, "{keys}");
    }
    let gitea = forge_problems(
        "name: g, kind: gitea, url: 'https://g.example', api_url: 'https://g.example/api', token_env: T, webhook_secret_env: S",
    );
    assert!(gitea.contains("only GitHub has a separate API address"), "{gitea}");
    let broken = forge_problems("name: g, kind: github, api_url: 'git.example', token_env: T, webhook_secret_env: S");
    assert!(broken.contains("api_url") && broken.contains("expected an address"), "{broken}");
}

#[test]
fn keys_that_cannot_sign_commits_are_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    std::fs::write(&key, "x").expect("written");
    let (key, folder) = (key.display(), folder.path().display());
    for (keys, words) in [
        ("sign: api".to_owned(), "allowed: `none`, `git`"),
        ("sign: git".to_owned(), "need `key_file`"),
        (format!("key_file: '{key}'"), "commits are not signed"),
        ("sign: git, key_file: /no/such/key".to_owned(), "no such file"),
        (format!("sign: git, key_file: '{key}', key_id: ABCDEF12"), "no other key"),
        (format!("sign: git, format: openpgp, key_file: '{key}'"), "need `key_id` and `gnupg_home`"),
        (format!("sign: git, format: openpgp, key_id: 'me', gnupg_home: '{folder}'"), "fingerprint"),
        ("sign: git, format: openpgp, key_id: ABCDEF12, gnupg_home: /no/such".to_owned(), "no such folder"),
    ] {
        let found = problems(&format!("{SAMPLE}commits: {{ {keys} }}\n"));
        assert!(found.contains("commits.") && found.contains(words), "{keys}: {found}");
    }
    let config = parse(&format!("{SAMPLE}commits: {{ sign: git, key_file: '{key}' }}\n")).expect("valid");
    assert!(config.signing.is_some());
    let hidden = config.secret_files.iter().any(|(name, _)| name == "commits.key_file");
    assert!(hidden, "agents do not see it: {:?}", config.secret_files);
}

#[test]
fn invalid_hosts_of_submodules_are_refused() {
    for host in ["https://github.com", "GitHub.com", "a b", "bot@github.com", "github.com/acme", ""] {
        let found = problems(&format!("{SAMPLE}submodules: {{ hosts: [github.com, '{host}'] }}\n"));
        assert!(found.contains("`submodules.hosts[1]`: expected a host"), "{host}: {found}");
    }
    let config = parse(&format!("{SAMPLE}submodules: {{ hosts: [github.com, 'git.lan:8443'] }}\n")).expect("valid");
    assert_eq!(config.submodule_hosts, ["github.com", "git.lan:8443"]);
}

#[test]
fn policy_has_documented_defaults_and_accounts_of_its_forge() {
    let config = parse(SAMPLE).expect("valid");
    let policy = config.policy(&ForgeName::new("work"));
    assert_eq!(policy.allow, [UserId(7)]);
    assert!(policy.teams.is_empty());
    assert_eq!(
        config.policy(&ForgeName::new("gh")).teams,
        TeamRef::parse("acme/leads").into_iter().collect::<Vec<_>>()
    );
    assert!(policy.allow_bots.is_empty());
    assert_eq!(config.policy(&ForgeName::new("gh")).allow_bots, [UserId(9)]);
    assert_eq!(policy.floor, MinimumAccess::Maintain);
    assert_eq!(serde_json::json!(policy.thresholds), serde_json::json!({ "control": { "stuck_iterations": 4 } }));
    let mut documented = Policy { intelligence: Intelligence::Facts, ..Policy::default() };
    documented.protected.paths.extend(crate::agent::presets::protected_paths().map(str::to_owned));
    let plain = Policy { allow: vec![], floor: MinimumAccess::Write, thresholds: Default::default(), ..policy };
    assert_eq!(plain, documented);
    documented.intelligence = Intelligence::Summaries;
    assert_eq!(parse(SMALL).expect("valid").policy(&ForgeName::new("work")), documented);
}

#[test]
fn patterns_match_repositories_of_their_forge() {
    let config = parse(SAMPLE).expect("valid");
    for (repo, watched) in [
        (repo("work", "team", "app"), true),
        (repo("work", "Team", "APP"), true),
        (repo("work", "other", "app"), false),
        (repo("gh", "acme", "app"), true),
        (repo("gh", "acme", "application"), false),
        (repo("gh", "team", "app"), false),
    ] {
        assert_eq!(config.watches(&repo), watched, "{repo}");
    }
    assert!(parse(SMALL).expect("valid").watches(&repo("work", "any", "thing")));
}

#[test]
fn unknown_keys_suggest_the_nearest_key() {
    insta::assert_snapshot!(problems(&format!("{SMALL}lable_prefix: x\nserver:\n  lisen: 1\n  zzz: 2\nlimits: {{ loop: 1 }}\n")), @r"
    conf/ralph-control.yaml:4:1: unknown key `lable_prefix`; did you mean `label_prefix`?
    conf/ralph-control.yaml:6:3: unknown key `lisen` in `server`; did you mean `listen`?
    conf/ralph-control.yaml:7:3: unknown key `zzz` in `server`
    conf/ralph-control.yaml:8:11: unknown key `loop` in `limits`; did you mean `loops`?
    4 errors in the configuration; the command did not run
    ");
}

#[test]
fn wrong_types_report_the_expected_type() {
    insta::assert_snapshot!(problems(
        "server: 5\nforges: {}\nlimits:\n  loops: many\n  iterations: -1\n  timeout: soon\n  cost_usd: cheap\n  \
         comments_per_day: 1.5\nprogress: loud\nsandbox: { required: bubblwrap, network: [null, 5] }\n\
         delete_branch: yes\nintelligence: 3\n"
    ), @r"
    conf/ralph-control.yaml:1:1: `backends`: no backend with the role `agent` is enabled; add one, for example `claude: { enabled: true }`
    conf/ralph-control.yaml:1:9: `server`: expected a map, found a number
    conf/ralph-control.yaml:2:9: `forges`: expected a list, found a map
    conf/ralph-control.yaml:4:10: `limits.loops`: expected a whole number, found text
    conf/ralph-control.yaml:5:15: `limits.iterations`: expected a number of iterations such as 10, or `unlimited`
    conf/ralph-control.yaml:6:12: `limits.timeout`: expected a duration such as 90s, 30m, 2h or 1h30m, at most a year
    conf/ralph-control.yaml:7:13: `limits.cost_usd`: expected an amount in US dollars such as 10 or 2.50, from 0 to 1000000, found text
    conf/ralph-control.yaml:8:21: `limits.comments_per_day`: expected a whole number, found a fraction
    conf/ralph-control.yaml:9:11: `progress`: unknown value `loud`; allowed: `comments`, `status-only`
    conf/ralph-control.yaml:10:22: `sandbox.required`: unknown value `bubblwrap`; allowed: `auto`, `bubblewrap`, `landlock`, `none`; did you mean `bubblewrap`?
    conf/ralph-control.yaml:10:43: `sandbox.network[0]`: expected text, found nothing
    conf/ralph-control.yaml:10:49: `sandbox.network[1]`: expected text, found a number
    conf/ralph-control.yaml:11:16: `delete_branch`: expected true or false, found text
    conf/ralph-control.yaml:12:15: `intelligence`: expected text, found a number
    14 errors in the configuration; the command did not run
    ");
}

/// No file can switch off the limits of time and cost, which end an unlimited loop.
#[test]
fn unlimited_iterations_keep_the_limits_of_time_and_cost() {
    let limits = |config: Result<Config, ConfigProblems>| config.expect("valid").policy(&ForgeName::new("work")).limits;
    let unlimited = format!("{SMALL}limits: {{ iterations: unlimited }}\n");
    for read in [limits(parse(&unlimited)), limits(with_env(SMALL, &[("RALPH_LIMITS__ITERATIONS", "unlimited")]))] {
        assert_eq!(read.iterations, IterationLimit::UNLIMITED);
        assert_eq!((read.timeout, read.cost_usd), (quantity::Duration::hours(2), Usd::dollars(10)));
    }
    let without = problems(&unlimited.replace("unlimited", "unlimited, timeout: 0s, cost_usd: 0"));
    assert!(without.contains("`limits.timeout` is 0s; it must be at least 1s"), "{without}");
    assert!(without.contains("`limits.cost_usd` is "), "{without}");
    let wrong = problems(&unlimited.replace("unlimited", "endless"));
    assert!(
        wrong.contains("`limits.iterations`: expected a number of iterations such as 10, or `unlimited`"),
        "{wrong}"
    );
}

#[test]
fn all_contradictions_are_reported_together() {
    insta::assert_snapshot!(problems(
        "server: { listen: localhost, public_url: 'ftp://x', metrics_listen: '9464' }\nrepositories: ['wrk:a/b', 'a/b', 'work:[']\n\
         permissions: { allow: [octocat, 'wrk:1', 0], teams: [leads, 'wrk:acme/leads', acme/leads] }\n\
         limits: { loops: 1, loops_per_repository: 2, loops_per_forge: 3, iterations: 0, timeout: 0s, cost_usd: 60 }\n\
         label_prefix: ''\nbranch_prefix: '-x'\nchecks: { timeout: 0s }\nprotected: { paths: ['a[', ok] }\n\
         sandbox: { network: ['https://x', 'ok.example.org:443'] }\n\
         forges:\n  - { name: work, kind: gitea, url: 'https://g.example', token_env: T, webhook_secret_env: S }\n"
    ), @r"
    conf/ralph-control.yaml:1:1: `backends`: no backend with the role `agent` is enabled; add one, for example `claude: { enabled: true }`
    conf/ralph-control.yaml:1:19: `server.listen`: expected an address and a port such as 127.0.0.1:8080 or [::]:8080
    conf/ralph-control.yaml:1:42: `server.public_url`: the address must start with https:// or http://
    conf/ralph-control.yaml:1:69: `server.metrics_listen`: expected an address and a port such as 127.0.0.1:8080 or [::]:8080
    conf/ralph-control.yaml:2:16: `repositories[0]`: there is no forge named `wrk`; did you mean `work`?
    conf/ralph-control.yaml:2:27: `repositories[1]`: expected `forge:owner/name`, where owner and name may contain `*`
    conf/ralph-control.yaml:2:34: `repositories[2]`: expected `forge:owner/name`, where owner and name may contain `*`
    conf/ralph-control.yaml:3:24: `permissions.allow[0]`: expected the numeric id of an account, or `forge:id`; logins are not accepted because they can be reassigned
    conf/ralph-control.yaml:3:33: `permissions.allow[1]`: there is no forge named `wrk`; did you mean `work`?
    conf/ralph-control.yaml:3:42: `permissions.allow[2]`: expected the numeric id of an account, or `forge:id`; logins are not accepted because they can be reassigned
    conf/ralph-control.yaml:3:54: `permissions.teams[0]`: expected `organization/team`
    conf/ralph-control.yaml:3:61: `permissions.teams[1]`: there is no forge named `wrk`; did you mean `work`?
    conf/ralph-control.yaml:4:43: `limits.loops_per_repository` is 2; it must be at most `limits.loops`, which is 1
    conf/ralph-control.yaml:4:63: `limits.loops_per_forge` is 3; it must be at most `limits.loops`, which is 1
    conf/ralph-control.yaml:4:78: `limits.iterations` is 0; it must be at least 1
    conf/ralph-control.yaml:4:90: `limits.timeout` is 0s; it must be at least 1s
    conf/ralph-control.yaml:4:104: `limits.cost_usd` is $60.00; it must be at most `limits.cost_usd_per_day`, which is $50.00
    conf/ralph-control.yaml:5:15: `label_prefix`: expected 1 to 20 characters without commas, such as `ralph:`
    conf/ralph-control.yaml:6:16: `branch_prefix`: expected letters, digits and `-_./`, such as `ralph/`
    conf/ralph-control.yaml:7:20: `checks.timeout` is 0s; it must be at least 1s
    conf/ralph-control.yaml:8:22: `protected.paths[0]`: invalid pattern: unclosed character class; missing ']'
    conf/ralph-control.yaml:9:21: `sandbox.network`: `https://x` is not a host; write `example.org`, `*.example.org` or `models.lan:8080`
    22 errors in the configuration; the command did not run
    ");
}

#[test]
fn network_access_of_agents_must_be_enforceable() {
    let script = "forges:\n  - { name: work, kind: gitea, url: 'https://git.example.org', token_env: T, webhook_secret_env: S }\n\
                  backends: { mine: { type: script, command: [sh] } }\n";
    let crates = Hosts::parse(["crates.example.org"]).expect("a host");
    for (sandbox, reach) in [
        ("{}", Egress::Only(Hosts::default())),
        ("{ required: none }", Egress::Only(Hosts::default())),
        ("{ network: all }", Egress::Everything),
        ("{ network: none }", Egress::Nothing),
        ("{ network: [] }", Egress::Only(Hosts::default())),
        ("{ network: [crates.example.org] }", Egress::Only(crates)),
    ] {
        let config = parse(&format!("{script}sandbox: {sandbox}\n")).unwrap_or_else(|why| panic!("{sandbox}: {why}"));
        assert_eq!(config.sandbox.network.egress().expect(sandbox), reach, "{sandbox}");
    }
    let config = with_env(script, &[("RALPH_SANDBOX__NETWORK", "none")]).expect("valid");
    assert_eq!(config.sandbox.network.egress().expect("valid"), Egress::Nothing);
    assert!(parse(&format!("{SMALL}sandbox: {{ network: [] }}\n")).is_ok(), "the model's servers are always there");
    insta::assert_snapshot!(problems(&format!("{script}sandbox: {{ required: none, network: [] }}\n")), @r"
    conf/ralph-control.yaml:4:37: `sandbox.network`: network access cannot be limited without a sandbox; set `sandbox.required` to `auto`
    1 error in the configuration; the command did not run
    ");
    insta::assert_snapshot!(problems(&format!("{script}sandbox: {{ network: nothing }}\n")), @r"
    conf/ralph-control.yaml:4:21: `sandbox.network`: unknown value `nothing`; allowed: `all`, `none`
    1 error in the configuration; the command did not run
    ");
    insta::assert_snapshot!(problems(&format!("{script}sandbox: {{ required: none, network: none }}\n")), @r"
    conf/ralph-control.yaml:4:37: `sandbox.network`: network access cannot be limited without a sandbox; set `sandbox.required` to `auto`
    1 error in the configuration; the command did not run
    ");
    insta::assert_snapshot!(problems(&format!("{SMALL}sandbox: {{ network: none }}\n")), @r"
    conf/ralph-control.yaml:3:21: `backends.claude`: `claude` reaches its model over the network, which `sandbox.network: none` takes from it; use `[]`, which leaves it that, or an agent of `type: internal`, whose model the service asks
    1 error in the configuration; the command did not run
    ");
}

#[test]
fn custom_templates_are_read_from_their_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let texts = folder.path().join("texts");
    let write = |name: &str, text: &[u8]| {
        let path = texts.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    let parse = || {
        let file = folder.path().join("ralph-control.yaml");
        let config = Config::parse(&file, &format!("{SMALL}templates: texts\n"), &env());
        config
            .map(|config| config.templates)
            .map_err(|why| why.to_string().replace(&folder.path().display().to_string(), "DIR"))
    };
    let missing = parse().expect_err("there is no folder");
    assert!(missing.contains("4:12: `templates`: cannot read DIR/texts"), "{missing}");
    write("comment/status.md", b"Status");
    write("prompt/iteration.md", b"Prompt");
    write(".git/config", b"passed over");
    let read = [("comment/status.md", "Status"), ("prompt/iteration.md", "Prompt")];
    assert_eq!(parse().expect("read"), read.map(|(name, text)| (name.to_owned(), text.to_owned())));
    for (name, text, why) in [
        ("comment/status.txt", &b"x"[..], "is not a template; names of templates end in .md"),
        ("comment/deep/er/x.md", b"x", "is not a template"),
        ("comment/latin.md", b"\xff", "cannot read"),
        ("comment/large.md", &vec![b' '; 1 << 21], "the maximum for a template is"),
    ] {
        write(name, text);
        let problems = parse().expect_err(name);
        assert!(problems.contains("DIR/texts/comment/") && problems.contains(why), "{name}: {problems}");
        std::fs::remove_dir_all(texts.join("comment")).expect("removed");
    }
    assert!(self::parse(SMALL).expect("valid").templates.is_empty());
}

#[test]
fn empty_file_reports_required_keys() {
    insta::assert_snapshot!(problems(""), @r"
    conf/ralph-control.yaml:1:1: `forges`: at least one forge is required; `ralph-bot init` adds one
    conf/ralph-control.yaml:1:1: `backends`: no backend with the role `agent` is enabled; add one, for example `claude: { enabled: true }`
    2 errors in the configuration; the command did not run
    ");
}

#[test]
fn incomplete_forges_are_refused() {
    insta::assert_snapshot!(forge_problems(""), @r"
    conf/ralph-control.yaml:1:10: `forges[0]`: `name` is missing
    conf/ralph-control.yaml:1:10: `forges[0]`: `kind` is missing; set it to `github` or `gitea`
    conf/ralph-control.yaml:1:10: `forges[0]`: no credentials; set `token_env` or `token_file`, or `app_id` with `private_key_file`
    conf/ralph-control.yaml:1:10: `forges[0]`: no webhook secret; set `webhook_secret_env` or `webhook_secret_file`, or `updates: poll`
    4 errors in the configuration; the command did not run
    ");
    insta::assert_snapshot!(forge_problems("name: Work, kind: gitea, token_env: T, webhook_secret_env: S"), @r"
    conf/ralph-control.yaml:1:10: `forges[0]`: `url` is missing; set it to the address of the Gitea or Forgejo server
    conf/ralph-control.yaml:1:18: `forges[0].name`: expected lower-case letters, digits and hyphens, at most 40
    2 errors in the configuration; the command did not run
    ");
    insta::assert_snapshot!(forge_problems("name: gitea, kind: github, token_env: T, webhook_secret_env: S"), @r"
    conf/ralph-control.yaml:1:18: `forges[0].name`: a forge of kind github cannot be named `gitea`
    1 error in the configuration; the command did not run
    ");
    insta::assert_snapshot!(forge_problems("name: g, kind: gitlab, token_env: T, webhook_secret_env: S"), @r"
    conf/ralph-control.yaml:1:27: `forges[0].kind`: unknown value `gitlab`; allowed: `github`, `gitea`, `forgejo`; did you mean `gitea`?
    1 error in the configuration; the command did not run
    ");
    insta::assert_snapshot!(
        forge_problems("name: g, kind: github, url: 'https://me:pw@x', app_id: 1, token_env: T, webhook_secret_env: S"),
        @r"
    conf/ralph-control.yaml:1:10: `forges[0]`: `app_id` and a token cannot be combined; keep one of them
    conf/ralph-control.yaml:1:40: `forges[0].url`: the address must not contain a user or password; set `token_env` or `token_file`
    2 errors in the configuration; the command did not run
    "
    );
    insta::assert_snapshot!(forge_problems("name: g, kind: github, app_id: 1, webhook_secret_env: S"), @r"
    conf/ralph-control.yaml:1:10: `forges[0]`: `app_id` needs `private_key_file` or `private_key_env`
    1 error in the configuration; the command did not run
    ");
    insta::assert_snapshot!(forge_problems("name: g, kind: github, private_key_env: KEY, webhook_secret_env: S"), @r"
    conf/ralph-control.yaml:1:52: `forges[0].private_key_env`: a private key needs the `app_id` it belongs to
    1 error in the configuration; the command did not run
    ");
    insta::assert_snapshot!(
        forge_problems("name: g, kind: gitea, url: 'https://x', app_id: 1, private_key_env: KEY, webhook_secret_env: S"),
        @r"
    conf/ralph-control.yaml:1:10: `forges[0]`: only GitHub has Apps; use `token_env` or `token_file`
    1 error in the configuration; the command did not run
    "
    );
}

#[test]
fn duplicate_forge_names_are_refused() {
    let one = "{ name: g, kind: github, token_env: T, webhook_secret_env: S }";
    insta::assert_snapshot!(problems(&format!("forges:\n  - {one}\n  - {one}\nbackends: {{ claude: {{}} }}\n")), @r"
    conf/ralph-control.yaml:3:13: `forges[1].name`: two forges are named `g`
    1 error in the configuration; the command did not run
    ");
}

#[test]
fn secrets_in_the_file_are_refused_and_not_printed() {
    let messages =
        forge_problems("name: g, kind: github, token: hunter2, webhook_secret: hunter2, private_key: hunter2");
    assert!(!messages.contains("hunter2"));
    insta::assert_snapshot!(messages, @r"
    conf/ralph-control.yaml:1:35: `token` in `forges[0]`: secrets must not be in this file; put it into an environment variable and set `token_env` to its name, or into a file and set `token_file` to its path
    conf/ralph-control.yaml:1:51: `webhook_secret` in `forges[0]`: secrets must not be in this file; put it into an environment variable and set `webhook_secret_env` to its name, or into a file and set `webhook_secret_file` to its path
    conf/ralph-control.yaml:1:76: `private_key` in `forges[0]`: secrets must not be in this file; put it into an environment variable and set `private_key_env` to its name, or into a file and set `private_key_file` to its path
    3 errors in the configuration; the command did not run
    ");
    let messages = problems(&format!("{SMALL}limits: {{ loops: hunter2, timeout: hunter2 }}\n"));
    assert!(!messages.contains("hunter2"), "{messages}");
}

#[test]
fn invalid_secrets_are_refused() {
    let start = "name: g, kind: github,";
    insta::assert_snapshot!(forge_problems(&format!("{start} token_env: NOT_SET, webhook_secret_env: SHORT")), @r"
    conf/ralph-control.yaml:1:46: `forges[0].token_env`: environment variable NOT_SET is not set
    conf/ralph-control.yaml:1:75: `forges[0].webhook_secret_env`: the secret has 16 bytes; at least 32 are required
    2 errors in the configuration; the command did not run
    ");
    insta::assert_snapshot!(forge_problems(&format!("{start} token_env: EMPTY, webhook_secret_env: EMPTY")), @r"
    conf/ralph-control.yaml:1:46: `forges[0].token_env`: environment variable EMPTY is empty
    conf/ralph-control.yaml:1:73: `forges[0].webhook_secret_env`: environment variable EMPTY is empty
    2 errors in the configuration; the command did not run
    ");
    insta::assert_snapshot!(forge_problems(&format!("{start} token_env: T, token_file: x, webhook_secret_env: []")), @r"
    conf/ralph-control.yaml:1:10: `forges[0]`: `token_env` and `token_file` cannot be combined; keep one of them
    conf/ralph-control.yaml:1:10: `forges[0]`: no webhook secret; set `webhook_secret_env` or `webhook_secret_file`, or `updates: poll`
    2 errors in the configuration; the command did not run
    ");
    insta::assert_snapshot!(forge_problems(&format!("{start} token_file: nowhere, webhook_secret_env: S")), @r"
    conf/ralph-control.yaml:1:47: `forges[0].token_file`: cannot read file conf/nowhere: No such file or directory (os error 2)
    1 error in the configuration; the command did not run
    ");
}

/// Returns the problems of a file with one channel on the third line.
fn channel_problems(channel: &str) -> String {
    problems(&format!("{SMALL}escalation: {{ channels: [{{ {channel} }}] }}\n"))
}

#[test]
fn channels_are_parsed() {
    let text = format!(
        "{SMALL}escalation:
  remind_after: 6h
  channels:
    - {{ name: chat, kind: slack, url_env: CHAT }}
    - {{ name: duty, kind: pagerduty, secret_env: T, levels: [emergency] }}
    - {{ name: own, kind: generic, url: 'http://10.0.0.1/in', secret_env: S, levels: [warning], allow_private: true }}
"
    );
    let config = with_env(&text, &[("CHAT", "https://hooks.slack.com/services/T/B/x")]).expect("valid");
    let [chat, duty, own] = &config.channels[..] else { panic!("three channels: {:?}", config.channels) };
    use crate::domain::supervision::oversight::EscalationLevel::{Critical, Emergency, Info, Warning};
    assert_eq!((chat.levels.as_slice(), chat.allow_private), ([Info, Critical, Emergency].as_slice(), false));
    assert!(chat.url.expose_secret().ends_with("/T/B/x") && chat.secret.is_none());
    assert_eq!(duty.url.expose_secret(), "https://events.pagerduty.com/v2/enqueue");
    assert_eq!(duty.levels, [Emergency]);
    assert_eq!((own.levels.as_slice(), own.allow_private), ([Warning].as_slice(), true));
    assert_eq!(own.secret.as_ref().map(|s| s.expose_secret()), Some(SECRET));
    assert!(!format!("{:?}", config.channels).contains("services"), "addresses are not shown");
    assert_eq!(config.policy(&ForgeName::new("work")).remind_after_ms(), 6 * 3_600_000);
}

#[test]
fn incomplete_channels_are_refused() {
    insta::assert_snapshot!(channel_problems("url: x"), @r"
    conf/ralph-control.yaml:4:26: `escalation.channels[0]`: `name` is missing
    conf/ralph-control.yaml:4:26: `escalation.channels[0]`: `kind` is missing; set it to one of `slack`, `discord`, `pagerduty`, `generic`, `mail`
    2 errors in the configuration; the command did not run
    ");
    insta::assert_snapshot!(channel_problems("name: a, kind: slack"), @r"
    conf/ralph-control.yaml:4:26: `escalation.channels[0]`: no address; set `url_env` or `url_file`
    1 error in the configuration; the command did not run
    ");
    insta::assert_snapshot!(channel_problems("name: a, kind: discord, url: 'https://discord.com/api/webhooks/1/x'"), @r"
    conf/ralph-control.yaml:4:57: `escalation.channels[0].url`: the address is a secret; put it into an environment variable and set `url_env` to its name, or into a file and set `url_file` to its path
    1 error in the configuration; the command did not run
    ");
    insta::assert_snapshot!(channel_problems("name: a, kind: slack, url_env: SHORT, secret_env: S, levels: []"), @r"
    conf/ralph-control.yaml:4:59: `escalation.channels[0].url_env`: expected an address such as https://hooks.example.org/ralph
    conf/ralph-control.yaml:4:78: `escalation.channels[0].secret_env`: slack has no key besides its address; remove this one
    conf/ralph-control.yaml:4:89: `escalation.channels[0].levels`: at least one level is required
    3 errors in the configuration; the command did not run
    ");
    insta::assert_snapshot!(channel_problems("name: a, kind: pagerduty, levels: [loud, urgent]"), @r"
    conf/ralph-control.yaml:4:63: `escalation.channels[0].levels[0]`: unknown value `loud`; allowed: `info`, `warning`, `critical`, `emergency`
    conf/ralph-control.yaml:4:69: `escalation.channels[0].levels[1]`: unknown value `urgent`; allowed: `info`, `warning`, `critical`, `emergency`
    2 errors in the configuration; the command did not run
    ");
    insta::assert_snapshot!(channel_problems("name: a, kind: generic, url: 'https://a.example', secret_env: SHORT"), @r"
    conf/ralph-control.yaml:4:90: `escalation.channels[0].secret_env`: the signing key has 16 bytes; at least 32 are required
    1 error in the configuration; the command did not run
    ");
    insta::assert_snapshot!(channel_problems("name: a, kind: generic, url: 'https://a.example', url_env: T, secret: x"), @r"
    conf/ralph-control.yaml:4:90: `secret` in `escalation.channels[0]`: secrets must not be in this file; put it into an environment variable and set `secret_env` to its name, or into a file and set `secret_file` to its path
    1 error in the configuration; the command did not run
    ");
    let both = "name: a, kind: generic, url: 'https://a.example', url_env: T, secret_env: S";
    assert!(channel_problems(both).contains("`url` cannot be combined with `url_env`"));
    for (url, word) in [
        ("http://a.example", "https://"),
        ("https://127.0.0.1", "loopback"),
        ("https://0x7f.1", "loopback"),
        ("https://[::ffff:10.0.0.1]", "private"),
        ("https://169.254.169.254", "link-local"),
        ("ftp://a.example", "https://"),
        ("https://u:p@a.example", "password"),
    ] {
        let messages = channel_problems(&format!("name: a, kind: generic, url: '{url}', secret_env: S"));
        assert!(messages.contains(word) && messages.contains(":4:"), "{url}: {messages}");
    }
    let one = "{ name: a, kind: pagerduty, secret_env: T }";
    insta::assert_snapshot!(problems(&format!("{SMALL}escalation: {{ remind_after: 0, channels: [{one}, {one}] }}")), @r"
    conf/ralph-control.yaml:4:29: `escalation.remind_after` is 0s; it must be at least 1s
    conf/ralph-control.yaml:4:96: `escalation.channels[1].name`: two channels are named `a`
    2 errors in the configuration; the command did not run
    ");
}

#[cfg(feature = "mail")]
#[test]
fn channels_with_rooms_and_mail_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ralph-control.yaml");
    std::fs::write(folder.path().join("ca.pem"), "-----BEGIN CERTIFICATE-----\n").expect("written");
    let text = format!(
        "{SMALL}
escalation:
  channels:
    - {{ name: room, kind: slack, secret_env: S, room: C0123456789 }}
    - {{ name: duty, kind: pagerduty, secret_env: S }}
    - {{ name: post, kind: mail, url: 'smtps://mail.example.org', user: ralph, secret_env: S, from: 'Ralph <ralph@example.org>', to: [a@example.org, 'B <b@example.org>'], ca_file: ca.pem }}
    - {{ name: inside, kind: mail, url: 'smtp://10.0.0.1:25', starttls: false, allow_private: true, from: ralph@example.org, to: [a@example.org] }}
"
    );
    std::fs::write(&file, text).expect("written");
    let config = Config::load(&file, &env()).expect("valid");
    let [room, duty, post, inside] = &config.channels[..] else { panic!("{:?}", config.channels) };
    use crate::domain::supervision::oversight::EscalationLevel::{Critical, Emergency};
    assert_eq!((room.kind, room.room.as_deref()), (ChannelKind::SlackBot, Some("C0123456789")));
    assert_eq!(room.url.expose_secret(), "https://slack.com/api/");
    assert_eq!(duty.levels, [Critical, Emergency], "an approval pages nobody");
    let mail = post.mail.as_ref().expect("mail");
    assert_eq!((mail.user.as_deref(), mail.to.len(), mail.starttls, mail.ca.len()), (Some("ralph"), 2, true, 28));
    assert_eq!(post.secret.as_ref().map(|secret| secret.expose_secret()), Some(SECRET));
    assert!(inside.secret.is_none() && inside.mail.as_ref().is_some_and(|mail| !mail.starttls));
}

#[cfg(feature = "mail")]
#[test]
fn incomplete_rooms_and_mail_are_refused() {
    const POST: &str = "name: a, kind: mail, from: r@example.org, to: [a@example.org]";
    for (channel, word) in [
        ("name: a, kind: slack, secret_env: S", "`C0123456789`"),
        ("name: a, kind: slack, secret_env: S, room: '#general'", "expected the id of a room"),
        ("name: a, kind: slack, url_env: CHAT, room: C0123456789", "use a bot token"),
        ("name: a, kind: slack, room: C0123456789", "the bot token is missing"),
        ("name: a, kind: generic, url: 'https://a.example', secret_env: S, room: C0123456789", "has no rooms"),
        ("name: a, kind: pagerduty, secret_env: S, to: [a@example.org]", "pagerduty has no `to`"),
        ("name: a, kind: mail, url: 'smtps://m.example', to: [a@example.org]", "no sender"),
        ("name: a, kind: mail, url: 'smtps://m.example', from: r@example.org", "between one and 50 recipients"),
        (
            "name: a, kind: mail, url: 'smtps://m.example', from: nobody, to: [a@example.org]",
            ".from`: expected an address",
        ),
        (
            "name: a, kind: mail, url: 'smtps://m.example', from: r@example.org, to: ['a@example.org, b@example.org']",
            ".to[0]`",
        ),
        (
            "name: a, kind: mail, url: 'smtps://m.example', from: \"R\\r\\nBcc: x <r@example.org>\", to: [a@example.org]",
            ".from`",
        ),
        (&format!("{POST}, url: 'https://m.example'"), "expected a mail server"),
        (&format!("{POST}, url: 'smtps://u:p@m.example'"), "must not contain a user or password"),
        (&format!("{POST}, url: 'smtps://m.example/x?y'"), "must end after host and port"),
        (&format!("{POST}, url: 'smtp://m.example', starttls: false"), "not encrypted"),
        (&format!("{POST}, url: 'smtp://127.0.0.1'"), "loopback"),
        (&format!("{POST}, url: 'smtp://[::1]'"), "loopback"),
        (&format!("{POST}, url: 'smtps://m.example', user: ralph"), "the password is missing"),
        (&format!("{POST}, url: 'smtps://m.example', secret_env: S"), "a password needs `user`"),
        (&format!("{POST}, url: 'smtps://m.example', ca_file: nothing.pem"), "cannot read file"),
        (POST, "no address"),
    ] {
        let messages = channel_problems(channel);
        assert!(messages.contains(word) && messages.contains(":4:"), "{channel}: {messages}");
    }
}

#[cfg(not(feature = "mail"))]
#[test]
fn program_without_mail_refuses_a_mail_channel() {
    let messages =
        channel_problems("name: a, kind: mail, url: 'smtps://m.example', from: r@example.org, to: [a@example.org]");
    assert!(messages.contains("built without mail") && messages.contains("`--features mail`"), "{messages}");
}

#[test]
fn secret_files_are_relative_to_the_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("token"), "from-file\n").expect("written");
    let file = folder.path().join("ralph-control.yaml");
    std::fs::write(&file, SMALL.replace("token_env: T", "token_file: token")).expect("written");
    let config = Config::load(&file, &env()).expect("valid");
    let ForgeAuth::Token(token) = &config.forges[0].auth else { panic!("a token") };
    assert_eq!(token.expose_secret(), "from-file");
    assert_eq!(config.data_dir, folder.path().join("data"));
}

#[test]
fn incomplete_backends_are_refused() {
    let forge = SMALL.lines().take(2).collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!(problems(&format!(
        "{forge}\nbackends:\n  cluade: {{}}\n  mine: {{ type: script }}\n  model: {{ type: api, url: 'https://x', roles: [agent] }}\n  \
         inner: {{ type: internal }}\n  blank: {{ type: external, command: [''] }}\n  key: {{ type: api, url: 'https://x', roles: [assistant], api_key: k }}\n"
    )), @r"
    conf/ralph-control.yaml:4:11: `backends.cluade`: `cluade` is not a preset and has no `type`; did you mean `claude`?
    conf/ralph-control.yaml:5:9: `backends.mine`: `command` is missing; set it to a list of the program and its arguments
    conf/ralph-control.yaml:6:10: `backends.model`: an `api` backend cannot run agents; use `type: internal` or `roles: [assistant]`
    conf/ralph-control.yaml:6:10: `backends.model`: `models.default` is missing; an HTTP API has no default model
    conf/ralph-control.yaml:7:10: `backends.inner`: `models.default` is missing; an HTTP API has no default model
    conf/ralph-control.yaml:8:37: `backends.blank.command`: the name of the program is empty
    conf/ralph-control.yaml:9:59: `api_key` in `backends.key`: secrets must not be in this file; put it into an environment variable and set `api_key_env` to its name, or into a file and set `api_key_file` to its path
    7 errors in the configuration; the command did not run
    ");
    insta::assert_snapshot!(problems(&format!("{forge}\nbackends: {{ claude: {{ enabled: false }} }}\n")), @r"
    conf/ralph-control.yaml:3:11: `backends`: no backend with the role `agent` is enabled; add one, for example `claude: { enabled: true }`
    1 error in the configuration; the command did not run
    ");
    insta::assert_snapshot!(problems(&format!(
        "{forge}\nbackends: {{ cluade: {{}}, mine: {{ type: script }}, model: {{ type: api, url: 'https://x', roles: [agent] }}, inner: {{ type: internal }}, blank: {{ type: external, command: [''] }} }}\n"
    )), @r"
    conf/ralph-control.yaml:3:21: `backends.cluade`: `cluade` is not a preset and has no `type`; did you mean `claude`?
    conf/ralph-control.yaml:3:31: `backends.mine`: `command` is missing; set it to a list of the program and its arguments
    conf/ralph-control.yaml:3:56: `backends.model`: an `api` backend cannot run agents; use `type: internal` or `roles: [assistant]`
    conf/ralph-control.yaml:3:56: `backends.model`: `models.default` is missing; an HTTP API has no default model
    conf/ralph-control.yaml:3:112: `backends.inner`: `models.default` is missing; an HTTP API has no default model
    conf/ralph-control.yaml:3:166: `backends.blank.command`: the name of the program is empty
    6 errors in the configuration; the command did not run
    ");
}

#[test]
fn missing_file_suggests_init() {
    let error = Config::load(Path::new("/nowhere/ralph-control.yaml"), &Env::default()).expect_err("no file");
    insta::assert_snapshot!(error, @r"
    /nowhere/ralph-control.yaml: file not found; run `ralph-bot init` to create it, or set `--config` or RALPH_CONFIG to another path
    1 error in the configuration; the command did not run
    ");
}

#[test]
fn operator_file_is_found_in_documented_order() {
    let both = Env::of([("RALPH_CONFIG", "from-env.yaml")]);
    assert_eq!(operator_file(Some(Path::new("given.yaml")), &both), Path::new("given.yaml"));
    assert_eq!(operator_file(None, &both), Path::new("from-env.yaml"));
    assert_eq!(operator_file(None, &Env::of([("RALPH_CONFIG", "")])), Path::new("ralph-control.yaml"));
}

#[test]
fn variables_override_nested_values() {
    let config = with_env(
        SMALL,
        &[
            ("RALPH_DATA_DIR", "/var/lib/ralph"),
            ("RALPH_SERVER__LISTEN", "0.0.0.0:9"),
            ("RALPH_LIMITS__ITERATIONS", "3"),
            ("RALPH_LIMITS__TIMEOUT", "90m"),
            ("RALPH_LIMITS__COST_USD", "2.5"),
            ("RALPH_FORGES__WORK__URL", "https://other.example.org"),
            ("RALPH_FORGES__0__OWN_ID", "12"),
            ("RALPH_REPOSITORIES", r#"["work:a/*"]"#),
            ("RALPH_BACKENDS__CLAUDE__MODELS__DEFAULT", "123"),
            ("RALPH_BACKENDS__CODEX__ENABLED", "true"),
            ("RALPH_CONTROL__STUCK_ITERATIONS", "5"),
            ("RALPH_OVERSIGHT__STUCK__ENABLED", "false"),
            ("RALPH_PRESET", "pinned"),
            ("RALPH_PROGRESS", "status-only"),
            ("RALPH_CONFIG", "x"),
            ("RALPH_GITEA_TOKEN", "not a key"),
        ],
    )
    .expect("valid");
    assert_eq!(config.data_dir, Path::new("/var/lib/ralph"));
    assert_eq!(config.server.listen.to_string(), "0.0.0.0:9");
    assert_eq!(config.forges[0].url.as_str(), "https://other.example.org/");
    assert_eq!(config.forges[0].own_id, Some(UserId(12)));
    assert_eq!(config.repositories.len(), 1);
    assert_eq!(config.backends["claude"].settings.models.default.as_deref(), Some("123"));
    assert!(config.backends.contains_key("codex"));
    let policy = config.policy(&ForgeName::new("work"));
    let supervision = policy.supervision();
    assert_eq!((supervision.control.stuck_iterations, supervision.oversight.stuck.enabled), (5, false));
    assert_eq!(policy.thresholds["preset"], "pinned");
    assert_eq!((policy.limits.iterations.count(), policy.limits.timeout.as_seconds()), (Some(3), 5400));
    assert_eq!((policy.limits.cost_usd.0, policy.progress), (Money::from_usd(2.5), ProgressReport::StatusOnly));
}

#[test]
fn variables_can_replace_the_file() {
    let config = with_env(
        "",
        &[
            ("RALPH_FORGES__0__NAME", "work"),
            ("RALPH_FORGES__0__KIND", "github"),
            ("RALPH_FORGES__0__TOKEN_ENV", "T"),
            ("RALPH_FORGES__0__WEBHOOK_SECRET_ENV", "S"),
            ("RALPH_BACKENDS", r#"{"claude": {}}"#),
        ],
    )
    .expect("valid");
    assert_eq!(config.forges[0].name.as_str(), "work");
}

#[test]
fn invalid_variables_are_reported_by_name() {
    let wrong = with_env(
        SMALL,
        &[
            ("RALPH_SERVR__LISTEN", "x"),
            ("RALPH_SERVER__LISTN", "x"),
            ("RALPH_SERVER__LISTEN__X", "x"),
            ("RALPH_LIMITS__LOOPS", "four"),
            ("RALPH_LIMITS__ITERATIONS", "0"),
            ("RALPH_FORGES__HOME__URL", "x"),
            ("RALPH_FORGES__7__URL", "x"),
        ],
    )
    .expect_err("mistakes");
    insta::assert_snapshot!(wrong, @r"
    environment variable RALPH_FORGES__7__URL: `forges` has no item 7; the next new one is 1
    environment variable RALPH_FORGES__HOME__URL: `forges` has no item named `home`; use its name or its number, counted from 0
    environment variable RALPH_LIMITS__ITERATIONS: `limits.iterations` is 0; it must be at least 1
    environment variable RALPH_LIMITS__LOOPS: `limits.loops`: expected a whole number, found text
    environment variable RALPH_SERVER__LISTEN__X: `server.listen`: expected text, found a map
    environment variable RALPH_SERVER__LISTN: unknown key `listn` in `server`; did you mean `listen`?
    environment variable RALPH_SERVR__LISTEN: unknown key `servr`; did you mean `server`?
    7 errors in the configuration; the command did not run
    ");
}

#[test]
fn environment_debug_output_hides_values() {
    assert!(!format!("{:?}", env()).contains(SECRET));
}

#[cfg(not(feature = "embeddings"))]
#[test]
fn embedding_model_needs_the_build_feature() {
    let error = problems(&SAMPLE.replace("memory: {}", "memory: { embeddings: model }"));
    assert!(error.contains("`memory.embeddings`: this build has no embeddings; build with"), "{error}");
}

#[test]
fn reference_pages_match_the_types() {
    for (name, page) in [("configuration.md", reference::configuration()), ("thresholds.md", reference::thresholds())] {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("docs/reference").join(name);
        if Env::of_process().get("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &page).expect("written");
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(written == page, "docs/reference/{name} is out of date; run the tests with UPDATE_DOCS=1");
    }
}

#[test]
fn reference_pages_have_at_most_215_rows() {
    let pages = reference::configuration() + &reference::thresholds();
    let (_, tables) = pages.split_once("## Operator file").expect("the first table of keys");
    let rows = tables.lines().filter(|line| line.starts_with("| `")).count();
    assert!((100..=215).contains(&rows), "{rows} rows");
}

/// Asserts that a page has `table` between the markers `<!-- name -->` and `<!-- /name -->`; writes it if documentation is
/// being updated.
fn assert_table(page: &str, name: &str, table: &str) {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(page);
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
    let text = std::fs::read_to_string(&path).expect("a page");
    let (before, rest) = text.split_once(&begin).expect("the first marker");
    let (_, after) = rest.split_once(&end).expect("the second marker");
    let made = format!("{before}{begin}{table}{end}{after}");
    if Env::of_process().get("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &made).expect("written");
    }
    let written = std::fs::read_to_string(&path).expect("a page");
    assert!(written == made, "the table of {name} in {page} is out of date; run the tests with UPDATE_DOCS=1");
}

#[test]
fn security_table_matches_the_bounds_of_readers() {
    let size = |bytes: u64| match bytes {
        bytes if bytes >= 1 << 30 => format!("{} GiB", bytes >> 30),
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes => format!("{} KiB", bytes >> 10),
    };
    let further = |bound: &FurtherBound| {
        let most = if bound.is_size { size(bound.most) } else { with_separators(bound.most) };
        format!("{most} {}", bound.counted)
    };
    let rows = bounds::TABLE.iter().map(|bound| {
        let further: Vec<String> = bound.further.iter().map(further).collect();
        format!("| {} | {} | {} |\n", bound.input, size(bound.bytes), further.join(", "))
    });
    let table = format!("| bytes | maximum | further bounds |\n|---|---|---|\n{}", rows.collect::<String>());
    assert_table("docs/guides/security.md", "bounds", &table);
}

/// Returns a number with separators between thousands.
fn with_separators(number: u64) -> String {
    if number < 1_000 {
        number.to_string()
    } else {
        format!("{},{:03}", with_separators(number / 1_000), number % 1_000)
    }
}

#[test]
fn readme_table_matches_the_commands() {
    let rows: String = TABLE.iter().map(|row| format!("| `{}` | {} |\n", row.usage, row.help)).collect();
    assert_table("README.md", "commands", &format!("| command | effect |\n|---|---|\n{rows}"));
}

#[test]
fn supervision_page_matches_the_detections() {
    let row = |kind: &DetectionKind| {
        let (_, observed) = OversightSettings::default().switches(*kind);
        let levels = match kind.row().high {
            _ if observed => "LOG until `observe: false` is set",
            high => {
                let ladder = [InterventionLevel::Warn, InterventionLevel::Redirect, InterventionLevel::Pause];
                let reached = ladder
                    .iter()
                    .filter(|level| **level >= high && **level <= InterventionLevel::strongest_by(kind.row().basis()));
                &reached.map(|level| level.name()).collect::<Vec<_>>().join(", ")
            }
        };
        let signals = |basis: &Basis| {
            let of_basis = kind.row().signals.iter().filter(|(_, of)| of == basis);
            let names: Vec<String> = of_basis.map(|(name, _)| format!("`{name}`")).collect();
            (!names.is_empty()).then(|| format!("{}: {}", basis.name(), names.join(", ")))
        };
        let basis = Basis::ALL.iter().filter_map(signals).collect::<Vec<_>>().join("; ");
        let effect = match kind.row().effect {
            "" => String::new(),
            effect => format!("; {effect}"),
        };
        format!("| `{kind}` | {} | {basis} | `oversight.{kind}` | {levels}{effect} |\n", kind.row().pattern)
    };
    let rows: String = DetectionKind::ALL.iter().map(row).collect();
    let head = "| detection | pattern | basis of its signals | settings | interventions |\n|---|---|---|---|---|\n";
    assert_table("docs/guides/supervision.md", "detections", &format!("{head}{rows}"));
}

#[test]
fn thresholds_page_lists_bounds_of_every_number() {
    let page = reference::thresholds();
    let unbounded: Vec<_> =
        page.lines().filter(|line| line.contains("| whole number |") || line.contains("| number |")).collect();
    assert_eq!(unbounded, Vec::<&str>::new());
}

#[test]
fn every_key_has_a_description() {
    fn walk(schema: &serde_json::Value, path: &str, missing: &mut Vec<String>) {
        for (key, property) in schema["properties"].as_object().into_iter().flatten() {
            if property.get("description").is_none() {
                missing.push(format!("{path}.{key}"));
            }
        }
        for (name, definition) in schema["$defs"].as_object().into_iter().flatten() {
            walk(definition, name, missing);
        }
    }
    let mut missing = Vec::new();
    walk(&schema::operator(), "operator", &mut missing);
    walk(&schema::repository(), "repository", &mut missing);
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn schemas_are_valid_json_schemas() {
    let to_json = |text: &str| {
        let mut report = ProblemCollector::new("f");
        YamlNode::parse(text, &mut report).expect("readable").to_json()
    };
    let validator = jsonschema::validator_for(&schema::operator()).expect("a JSON Schema");
    assert!(validator.is_valid(&to_json(SAMPLE)));
    assert!(!validator.is_valid(&to_json("limits: { timeout: soon }")));
    let of = |iterations: &str| to_json(&SAMPLE.replace("iterations: 10,", &format!("iterations: {iterations},")));
    assert!(validator.is_valid(&of("unlimited")));
    assert!(!validator.is_valid(&of("endless")) && !validator.is_valid(&of("0")));
    let validator = jsonschema::validator_for(&schema::repository()).expect("a JSON Schema");
    assert!(validator.is_valid(&to_json(REPOSITORY)));
    assert!(!validator.is_valid(&to_json("cheks: []")));
}

/// Repository file with every key.
const REPOSITORY: &str = r#"
checks:
  - cargo test
  - npm ci && npm test
  - { name: lint, run: "cargo clippy", kind: empty_output, timeout: 5m }
  - { name: coverage, run: ./cov, kind: coverage, pattern: "([0-9.]+)%", min: 80 }
  - { name: errors, run: ./tsc, kind: count, pattern: "(\\d+) errors", at_most: 0, any_exit: true, counts: "(?P<passed>\\d+) ok", junit: "out/**/*.xml" }
setup: [npm ci]
environment: { cache: [fixtures, "packages/*/generated"], network: [npm, fixtures.example.org] }
task_type: test-fix
progress: status-only
protected: { policy: block, paths: ["deploy/**"] }
reviewers: [octocat]
base: develop
limits: { iterations: 3, timeout: 30m, cost_usd: 1.5 }
detect: false
preset: pinned
control: { stuck_iterations: 4, base_profile: cautious }
oversight: { stuck: { no_progress_iterations: 4 } }
strategy: { escalation_threshold: 9 }
"#;

fn repository_problems(text: &str) -> String {
    let problems = parse_repository(".ralph.yml", text, &Policy::default()).expect_err("a file with mistakes");
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn repository_file_is_parsed() {
    let settings = parse_repository(".ralph.yml", REPOSITORY, &Policy::default()).expect("valid");
    let names: Vec<_> = settings.checks.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["cargo test", "npm ci npm test", "lint", "coverage", "errors"]);
    assert_eq!(settings.checks[1].command, "npm ci && npm test");
    assert_eq!((settings.checks[0].timeout_s, settings.checks[2].timeout_s), (None, Some(300)));
    assert!(settings.checks.iter().all(|c| c.source == CheckSource::RepositoryFile));
    assert!(matches!(&settings.checks[3].rule, CheckRule::Coverage { min, .. } if min.0 == 80.0));
    assert!(matches!(
        &settings.checks[4].rule,
        CheckRule::Count { at_least: None, at_most: Some(0.0), any_exit: true, .. }
    ));
    assert_eq!(settings.checks[4].junit.as_deref(), Some("out/**/*.xml"));
    assert_eq!(settings.protected, Some(ProtectedPolicy::Block));
    assert_eq!(settings.environment.network, Some(vec!["npm".to_owned(), "fixtures.example.org".to_owned()]));
    let policy = Policy::default().with_repository(&settings);
    assert_eq!((policy.limits.iterations.count(), policy.limits.timeout.as_seconds()), (Some(3), 1800));
    assert_eq!(policy.base.as_deref(), Some("develop"));
    assert_eq!(parse_repository("x", "", &Policy::default()).expect("an empty file is valid"), Default::default());
}

#[test]
fn equal_commands_get_distinct_check_names() {
    let settings = parse_repository("x", "checks: [make, make, make]", &Policy::default()).expect("valid");
    assert_eq!(settings.checks.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["make", "make 2", "make 3"]);
}

#[test]
fn invalid_checks_are_reported() {
    insta::assert_snapshot!(repository_problems(
        "checks:\n  - { name: 'a; rm -rf /', run: x }\n  - { name: \"a\\nb\", run: x }\n  - { name: t, run: '' }\n  \
         - { name: t, run: x, min: 5 }\n  - ' '\n  - 7\n"
    ), @r".ralph.yml:7:5: `checks[5]`: expected text or a map, found a number");
    insta::assert_snapshot!(repository_problems(
        "checks:\n  - { name: 'a; rm -rf /', run: x }\n  - { name: \"a\\nb\", run: x }\n  - { name: t, run: '' }\n  \
         - { name: t, run: x, min: 5, timeout: 0s }\n  - ' '\n  - {}\n"
    ), @r"
    .ralph.yml:2:13: `checks[0].name`: expected 1 to 60 letters, digits, spaces and `-_./:+,=@%`
    .ralph.yml:3:13: `checks[1].name`: expected 1 to 60 letters, digits, spaces and `-_./:+,=@%`
    .ralph.yml:4:5: `checks[2]`: the command is empty
    .ralph.yml:5:13: `checks[3].name`: two checks are named `t`
    .ralph.yml:5:29: `checks[3].min`: has no effect without `kind: coverage`; remove it
    .ralph.yml:5:41: `checks[3].timeout`: must be at least 1s
    .ralph.yml:6:5: `checks[4]`: the command is empty
    .ralph.yml:7:5: `checks[5]`: the command is empty
    ");
    insta::assert_snapshot!(repository_problems(
        "checks:\n  - { run: a, kind: coverage }\n  - { run: b, kind: coverage, pattern: '(', min: 101 }\n  \
         - { run: c, kind: count, pattern: x }\n  - { run: d, kind: count, pattern: (x), at_least: 2, at_most: 1, counts: '(y)' }\n  \
         - { run: e, junit: /tmp/r.xml }\n  - { run: f, junit: 'r[.xml' }\n"
    ), @r"
    .ralph.yml:2:5: `checks[0]`: `pattern` is missing; its first group must match the number
    .ralph.yml:2:5: `checks[0]`: `min` is missing; set it to the minimum percentage
    .ralph.yml:3:40: `checks[1].pattern`: invalid regular expression
    .ralph.yml:3:50: `checks[1].min`: expected a percentage from 0 to 100
    .ralph.yml:4:5: `checks[2]`: `at_least` or `at_most` is missing
    .ralph.yml:4:37: `checks[2].pattern`: the pattern needs a group `(…)` for the number
    .ralph.yml:5:52: `checks[3].at_least`: more than `at_most`, which is 1
    .ralph.yml:5:75: `checks[3].counts`: the pattern needs a group named `passed`, `failed` or `skipped`
    .ralph.yml:6:22: `checks[4].junit`: expected a path from the root of the tree, in which `*` and `**` are allowed
    .ralph.yml:7:22: `checks[5].junit`: not a pattern: unclosed character class; missing ']'
    ");
}

#[test]
fn invalid_repository_keys_are_reported() {
    insta::assert_snapshot!(repository_problems("check: [x]\nprogres: comments\nprotected: { paths: x }\ntask_type: tests\n"), @r"
    .ralph.yml:1:1: unknown key `check`; did you mean `checks`?
    .ralph.yml:2:1: unknown key `progres`; did you mean `progress`?
    .ralph.yml:3:21: `protected.paths`: expected a list, found text
    .ralph.yml:4:12: `task_type`: unknown value `tests`; allowed: `test-fix`, `type-errors`, `lint`, `migration`, `refactor`, `coverage`, `feature`, `docs`, `dependency`, `other`; did you mean `test-fix`?
    ");
    insta::assert_snapshot!(repository_problems(
        "setup: ['']\nreviewers: ['@x', '']\nbase: '-x'\nlimits: { iterations: 0, cost_usd: 0 }\nprotected: { paths: ['{'] }\n"
    ), @r"
    .ralph.yml:1:9: `setup[0]`: the command is empty
    .ralph.yml:2:13: `reviewers[0]`: expected a login or `organization/team`, without `@`
    .ralph.yml:2:19: `reviewers[1]`: expected a login or `organization/team`, without `@`
    .ralph.yml:3:7: `base`: expected the name of a branch
    .ralph.yml:4:23: `limits.iterations` is 0; it must be at least 1
    .ralph.yml:4:36: `limits.cost_usd` is $0.00; it must be at least $0.000001
    .ralph.yml:5:22: `protected.paths[0]`: invalid pattern: unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)
    ");
    insta::assert_snapshot!(repository_problems(
        "environment: { cache: ['{', ../x, /tmp/y], network: [npmm, '10.0.0.1:80', 'https://a.example', '[::1]', a.example] }\n"
    ), @r"
    .ralph.yml:1:24: `environment.cache[0]`: invalid pattern: unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)
    .ralph.yml:1:29: `environment.cache[1]`: expected a path below the root of the tree
    .ralph.yml:1:35: `environment.cache[2]`: expected a path below the root of the tree
    .ralph.yml:1:54: `environment.network[0]`: expected a host such as `example.org`, without a port, or one of npm, pypi, cargo, go, rubygems, packagist, maven, nuget, hex, pub
    .ralph.yml:1:60: `environment.network[1]`: expected a host such as `example.org`, without a port, or one of npm, pypi, cargo, go, rubygems, packagist, maven, nuget, hex, pub
    .ralph.yml:1:75: `environment.network[2]`: expected a host such as `example.org`, without a port, or one of npm, pypi, cargo, go, rubygems, packagist, maven, nuget, hex, pub
    .ralph.yml:1:96: `environment.network[3]`: expected a host such as `example.org`, without a port, or one of npm, pypi, cargo, go, rubygems, packagist, maven, nuget, hex, pub
    ");
    insta::assert_snapshot!(repository_problems("- a\n"), @r".ralph.yml:1:1: `the file`: expected a map, found a list");
    insta::assert_snapshot!(repository_problems("a: [\n"), @r".ralph.yml:1:4: invalid YAML: unclosed bracket '['");
    insta::assert_snapshot!(repository_problems(&"#".repeat(300_000)), @r".ralph.yml: 300000 bytes; at most 262144 are allowed");
}

proptest! {
    #![proptest_config(test_support::cases(300))]

    #[test]
    fn arbitrary_text_does_not_panic(text in "\\PC{0,200}") {
        let _ = parse_repository("x", &text, &Policy::default());
        let _ = parse(&text);
    }

    #[test]
    fn arbitrary_documents_do_not_panic(text in document()) {
        if let Err(problems) = parse_repository("x", &text, &Policy::default()) {
            prop_assert!(!problems.is_empty());
            prop_assert!(problems.iter().all(|p| !p.message.is_empty()), "{:?}", problems);
            // The type accepts every document that the schema accepts.
            prop_assert!(problems.iter().all(|p| p.place != SourceLocation::File), "{}\n{:?}", text, problems);
        }
    }
}

/// Generates documents with known keys and values of every kind.
fn document() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("''".to_owned()),
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| n.to_string()),
        "[0-9]{1,4}[smhd]",
        "'[a-z(){}*. ]{0,12}'",
        prop::sample::select(vec!["exit_code", "coverage", "count", "comments", "block", "lint"])
            .prop_map(str::to_owned),
    ];
    let key = prop::sample::select(vec![
        "checks",
        "setup",
        "task_type",
        "progress",
        "protected",
        "reviewers",
        "base",
        "limits",
        "detect",
        "control",
        "oversight",
        "preset",
        "name",
        "run",
        "kind",
        "pattern",
        "min",
        "at_least",
        "timeout",
        "counts",
        "junit",
        "iterations",
        "cost_usd",
        "paths",
        "policy",
    ]);
    let value = scalar.prop_recursive(3, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(", "))),
            prop::collection::btree_map(key.clone(), inner, 0..4).prop_map(|map| {
                let entries: Vec<_> = map.iter().map(|(k, v)| format!("{k}: {v}")).collect();
                format!("{{ {} }}", entries.join(", "))
            }),
        ]
    });
    let top = prop::sample::select(vec![
        "checks",
        "setup",
        "task_type",
        "progress",
        "protected",
        "reviewers",
        "base",
        "limits",
        "detect",
        "control",
        "oversight",
        "preset",
    ]);
    prop::collection::btree_map(top, value, 0..5)
        .prop_map(|map| map.iter().map(|(k, v)| format!("{k}: {v}\n")).collect::<String>())
}

#[test]
fn updates_choose_webhooks_polling_or_both() {
    let updates = |keys: &str| {
        let text = format!("forges: [{{ name: g, kind: github, token_env: T{keys} }}]\nbackends: {{ claude: {{}} }}\n");
        let env = Env::of([("T", "token"), ("S", "0123456789abcdef0123456789abcdef")]);
        Config::parse(Path::new("ralph-control.yaml"), &text, &env).map(|config| config.forges[0].updates)
    };
    let both = |webhooks, poll: u64| ForgeUpdates { webhooks, poll: Some(Duration::from_secs(poll)) };
    assert_eq!(updates(", webhook_secret_env: S").expect("valid"), ForgeUpdates::default());
    assert_eq!(updates(", updates: poll").expect("no secret is needed"), both(false, 30));
    assert_eq!(updates(", updates: both, poll: 2m, webhook_secret_env: S").expect("valid"), both(true, 120));
    let wrong = |keys: &str| updates(keys).expect_err("invalid").to_string();
    assert!(wrong(", updates: both").contains("no webhook secret"));
    assert!(wrong(", updates: poll, poll: 9s").contains("`forges[0].poll`: must be from 10s to 1h"));
    assert!(wrong(", updates: poll, poll: 2h").contains("must be from 10s to 1h"));
    assert!(wrong(", updates: pull").contains("updates"));
}
