//! Tests of forges, repositories, CI, teams, database, channels and sandbox.

use std::path::Path;

use super::*;
use crate::cli::check::FindingStatus;
use crate::config::ForgeKind;
use crate::domain::knowledge::memory::{MemorySettings, remembered};
use crate::domain::model::ids::{AccountKind, ForgeName, LoopId, RepoId, RepoRef, Timestamp};
use crate::process::{EscapeTest, Masker};
use crate::store::inbox::{Body, StoredDelivery};
use fake_forge::{Access, Dialect, FakeForge};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn config(folder: &Path, url: &str, token: &str) -> (Config, Env) {
    config_with(folder, url, token, "")
}

fn config_with(folder: &Path, url: &str, token: &str, more: &str) -> (Config, Env) {
    config_of("gitea", folder, url, token, more)
}

fn config_of(kind: &str, folder: &Path, url: &str, token: &str, more: &str) -> (Config, Env) {
    let env = Env::of([("T", token), ("S", SECRET), ("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/")]);
    let text = format!(
        "forges: [{{ name: work, kind: {kind}, url: '{url}', token_env: T, webhook_secret_env: S }}]
sandbox: {{ required: none }}
backends:
  there: {{ type: script, command: [sh] }}
  gone: {{ type: script, command: [no-such-program-here] }}
{more}
"
    );
    (Config::parse(&folder.join("ralph-control.yaml"), &text, &env).expect("valid"), env)
}

fn of<'a>(findings: &'a [CheckFinding], name: &str) -> &'a CheckFinding {
    findings.iter().find(|f| f.name == name).unwrap_or_else(|| panic!("{name} in {findings:?}"))
}

#[tokio::test]
async fn forge_account_and_permissions_are_checked() {
    let folder = tempfile::tempdir().expect("a folder");
    let forge = FakeForge::start(Dialect::Gitea, Clock::System).await.expect("a forge");
    let (owner, bot) = (forge.add_user("team", AccountKind::User), forge.add_user("ralph", AccountKind::User));
    let repo = forge.create_repo(&owner.login, "app", &[("a", "b", false)]).await.expect("a repository");
    forge.grant(repo, &bot, Access::Read).expect("granted");
    let (config, env) = config(folder.path(), forge.url().as_str(), &forge.token_for(&bot));

    let findings = look(&config, &env).await;
    let account = of(&findings, "forge work");
    assert!(account.status == FindingStatus::Ok && account.detail.ends_with("signed in as ralph"), "{account:?}");
    let permission = of(&findings, "repositories of work");
    assert!(permission.status == FindingStatus::Fail && permission.fix.contains("administrator"), "{permission:?}");
    assert_eq!(of(&findings, "webhook of work").status, FindingStatus::Warn);
    assert_eq!(of(&findings, "backend gone").status, FindingStatus::Fail);
    assert_eq!(of(&findings, "sandbox").status, FindingStatus::Warn);
    assert!(of(&findings, "database").detail.starts_with("does not exist yet"));
    assert!(!config.data_dir.exists(), "looking makes nothing");

    // Write access is not enough there: the service has to query the permission of each sender.
    forge.grant(repo, &bot, Access::Write).expect("granted");
    let findings = look(&config, &env).await;
    let permission = of(&findings, "repositories of work");
    assert!(permission.status == FindingStatus::Fail && permission.detail.contains("(write)"), "{permission:?}");

    forge.grant(repo, &bot, Access::Admin).expect("granted");
    std::fs::create_dir(&config.data_dir).expect("made");
    let store = Store::open(&config.data_dir.join("ralph.db")).expect("opened");
    let forge_name = ForgeName::new("work");
    let row = StoredDelivery { forge: forge_name, delivery: "1".into(), event: "ping".into(), body: Body::pack(b"") };
    store.write(move |c| inbox::insert(c, &row, Clock::System.now())).await.expect("stored");
    let findings = look(&config, &env).await;
    for name in ["repositories of work", "webhook of work", "database", "memory"] {
        assert_eq!(of(&findings, name).status, FindingStatus::Ok, "{:?}", of(&findings, name));
    }
    assert!(forge.ops().iter().all(|op| !format!("{op:?}").contains("Label")), "nothing is written");
}

#[tokio::test]
async fn polled_forge_needs_no_webhook_and_reports_its_cost() {
    for (dialect, kind, per_minute) in
        [(Dialect::Gitea, "gitea", "4 requests"), (Dialect::GitHub, "github", "4 requests")]
    {
        let folder = tempfile::tempdir().expect("a folder");
        let forge = FakeForge::start(dialect, Clock::System).await.expect("a forge");
        let (owner, bot) = (forge.add_user("team", AccountKind::User), forge.add_user("ralph", AccountKind::User));
        let repo = forge.create_repo(&owner.login, "app", &[("a", "b", false)]).await.expect("a repository");
        forge.grant(repo, &bot, if kind == "gitea" { Access::Admin } else { Access::Write }).expect("granted");
        let token = forge.token_for(&bot);
        let env = Env::of([("T", token.as_str()), ("PATH", "/usr/bin:/bin"), ("HOME", "/")]);
        let text = format!(
            "forges: [{{ name: work, kind: {kind}, url: '{}', token_env: T, updates: poll }}]
sandbox: {{ required: none }}
backends: {{ there: {{ type: script, command: [sh] }} }}
",
            forge.url()
        );
        let config = Config::parse(&folder.path().join("ralph-control.yaml"), &text, &env).expect("valid");
        let findings = look(&config, &env).await;
        let cost = of(&findings, "polling of work");
        assert!(cost.status == FindingStatus::Ok && cost.detail.contains(per_minute), "{cost:?}");
        assert!(findings.iter().all(|found| !found.name.contains("webhook")), "{findings:?}");
        assert!(forge.requests().iter().all(|one| !one.path.contains("/hooks")), "webhooks need an administrator");
        let address = crate::cli::check::machine(&config).remove(0);
        assert!(address.status == FindingStatus::Ok && address.detail.starts_with("not needed"), "{address:?}");
    }
}

#[tokio::test]
async fn forge_that_is_down_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let (config, env) = config(folder.path(), "http://127.0.0.1:9", "a-token");
    let findings = look(&config, &env).await;
    let down = of(&findings, "forge work");
    assert!(down.status == FindingStatus::Fail && down.fix.contains("starts without it"), "{down:?}");
}

#[tokio::test]
async fn damaged_learnings_are_reported() {
    let store = Store::in_memory().expect("opened");
    let repo = RepoRef { forge: ForgeName::new("work"), id: RepoId(7), owner: "team".into(), name: "app".into() };
    for (damaged, rule) in ["Never touch vendor", "Run the formatter"].iter().enumerate() {
        let finding = learnings(&store).await.expect("told");
        let words = ["no damaged learnings", "1 damaged learning "][damaged];
        assert!(finding.detail.starts_with(words), "{finding:?}");
        assert_eq!(finding.status, if damaged == 0 { FindingStatus::Ok } else { FindingStatus::Warn });
        let learning = remembered(&repo, rule, &LoopId::new("r-1"), Timestamp(1));
        let id = learning.id.clone();
        let harmed = store.write(move |c| {
            memory::learn(c, &Masker::default(), learning, &MemorySettings::default(), Timestamp(1))?;
            c.execute("UPDATE learnings SET data = replace(data, 'r-1', 'r-2') WHERE learning = ?1", [&id])?;
            memory::get(c, &id, Timestamp(2))
        });
        assert_eq!(harmed.await.expect("read"), None, "its checksum is wrong");
    }
    let told = learnings(&store).await.expect("told");
    assert!(told.detail.starts_with("2 damaged learnings") && told.fix.contains("memory import"), "{told:?}");
}

#[tokio::test]
async fn write_access_is_sufficient_on_github() {
    let folder = tempfile::tempdir().expect("a folder");
    let forge = FakeForge::start(Dialect::GitHub, Clock::System).await.expect("a forge");
    let (owner, bot) = (forge.add_user("team", AccountKind::User), forge.add_user("ralph", AccountKind::User));
    let repo = forge.create_repo(&owner.login, "app", &[("a", "b", false)]).await.expect("a repository");
    for (access, outcome) in [(Access::Read, FindingStatus::Fail), (Access::Write, FindingStatus::Ok)] {
        forge.grant(repo, &bot, access).expect("granted");
        let (mut config, env) = config(folder.path(), forge.url().as_str(), &forge.token_for(&bot));
        config.forges[0].kind = ForgeKind::GitHub;
        let findings = look(&config, &env).await;
        let permission = of(&findings, "repositories of work");
        assert!(permission.status == outcome, "{permission:?}");
    }
}

/// See docs/research/threats.md#s14.
#[tokio::test]
async fn exposed_ci_secrets_are_reported_on_both_forges() {
    for (dialect, kind, folder) in
        [(Dialect::Gitea, "gitea", ".gitea/workflows"), (Dialect::GitHub, "github", ".github/workflows")]
    {
        let beside = tempfile::tempdir().expect("a folder");
        let forge = FakeForge::start(dialect, Clock::System).await.expect("a forge");
        let (owner, bot) = (forge.add_user("team", AccountKind::User), forge.add_user("ralph", AccountKind::User));
        let workflow =
            |run: &str| format!("on: [push, pull_request]\njobs: {{ one: {{ steps: [{{ run: '{run}' }}] }} }}\n");
        let (test, publish) = (workflow("cargo test"), workflow("publish ${{ secrets.REGISTRY_KEY }}"));
        let (first, second, third) =
            (format!("{folder}/test.yml"), format!("{folder}/publish.yml"), format!("{folder}/notes.md"));
        let plain = [("a", "b", false), (first.as_str(), test.as_str(), false)];
        let quiet = forge.create_repo(&owner.login, "quiet", &plain).await.expect("a repository");
        forge.grant(quiet, &bot, Access::Admin).expect("granted");
        let (mut config, env) = config(beside.path(), forge.url().as_str(), &forge.token_for(&bot));
        config.forges[0].kind = if kind == "github" { ForgeKind::GitHub } else { ForgeKind::Gitea };
        let findings = look(&config, &env).await;
        assert_eq!(of(&findings, "CI of work").status, FindingStatus::Ok, "{findings:?}");

        let notes = "publish ${{ secrets.OTHER }}";
        let files = [plain[1], (second.as_str(), publish.as_str(), false), (third.as_str(), notes, false)];
        let loud = forge.create_repo(&owner.login, "loud", &files).await.expect("a repository");
        forge.grant(loud, &bot, Access::Admin).expect("granted");
        let findings = look(&config, &env).await;
        let finding = of(&findings, "CI of team/loud");
        let says = |word: &str| finding.detail.contains(word) || finding.fix.contains(word);
        assert_eq!(finding.status, FindingStatus::Warn, "{finding:?}");
        let words = [second.as_str(), "REGISTRY_KEY", "push and pull_request", "ralph/**", "startsWith"];
        assert!(words.iter().all(|word| says(word)) && !says("OTHER"), "{finding:?}");
        assert_eq!(findings.iter().filter(|found| found.name.starts_with("CI of")).count(), 1, "{findings:?}");
    }
}

#[tokio::test]
async fn hidden_team_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let forge = FakeForge::start(Dialect::Gitea, Clock::System).await.expect("a forge");
    let (owner, bot) = (forge.add_user("acme", AccountKind::User), forge.add_user("ralph", AccountKind::User));
    let repo = forge.create_repo(&owner.login, "app", &[("a", "b", false)]).await.expect("a repository");
    forge.grant(repo, &bot, Access::Admin).expect("granted");
    for member in [&owner, &bot] {
        forge.with(|state| state.add_team_member("acme", "leads", member.id, true));
    }
    let (config, env) = config_with(
        folder.path(),
        forge.url().as_str(),
        &forge.token_for(&bot),
        "permissions: { teams: [acme/leads, acme/gone] }",
    );
    let findings = look(&config, &env).await;
    assert_eq!(of(&findings, "team acme/leads").status, FindingStatus::Ok, "{findings:?}");
    let missing = of(&findings, "team acme/gone");
    assert!(missing.status == FindingStatus::Fail && missing.detail.contains("counts as empty"), "{missing:?}");
    assert!(missing.fix.contains("member of it"), "{missing:?}");
}

#[tokio::test]
async fn team_with_write_access_that_the_bot_cannot_see_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let forge = FakeForge::start(Dialect::Gitea, Clock::System).await.expect("a forge");
    let (owner, bot) = (forge.add_user("acme", AccountKind::User), forge.add_user("ralph", AccountKind::User));
    let member = forge.add_user("mira", AccountKind::User);
    let repo = forge.create_repo(&owner.login, "app", &[("a", "b", false)]).await.expect("a repository");
    forge.grant(repo, &bot, Access::Admin).expect("granted");
    forge.with(|state| {
        state.accounts.get_mut(&owner.id).expect("the owner").organization = true;
        for (team, of) in [("devs", member.id), ("docs", member.id), ("bots", bot.id)] {
            state.add_team_member("acme", team, of, true);
        }
        for team in state.teams.iter_mut().filter(|team| team.org == owner.id) {
            team.everywhere = true;
            team.access = if team.name == "docs" { Access::Read } else { Access::Write };
        }
    });
    let (config, env) = config(folder.path(), forge.url().as_str(), &forge.token_for(&bot));
    let findings = look(&config, &env).await;
    let hidden = of(&findings, "team acme/devs");
    assert_eq!(hidden.status, FindingStatus::Warn, "{hidden:?}");
    assert!(hidden.detail.contains("write access to acme/app") && hidden.detail.contains("cannot check"), "{hidden:?}");
    assert!(hidden.fix.contains("a member of the team or an owner") && hidden.fix.contains("`read:organization`"));
    let named = |team: &str| findings.iter().any(|finding| finding.name == format!("team acme/{team}"));
    assert!(!named("docs") && !named("bots"), "a team that only reads, and one that the bot is in: {findings:?}");

    forge.with(|state| state.add_team_member("acme", "devs", bot.id, true));
    let findings = look(&config, &env).await;
    assert!(!findings.iter().any(|finding| finding.name == "team acme/devs"), "{findings:?}");
}

#[tokio::test]
async fn unreachable_or_refusing_forge_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let forge = FakeForge::start(Dialect::Gitea, Clock::System).await.expect("a forge");
    let (config_refused, env) = config(folder.path(), forge.url().as_str(), "no-such-token");
    let findings = look(&config_refused, &env).await;
    let finding = of(&findings, "forge work");
    assert!(finding.status == FindingStatus::Fail && finding.fix.contains("credential"), "{finding:?}");

    let (config_gone, env) = config(folder.path(), "http://127.0.0.1:1", "token");
    let findings = look(&config_gone, &env).await;
    let finding = of(&findings, "forge work");
    assert!(finding.status == FindingStatus::Fail && finding.fix.contains("network"), "{finding:?}");
}

#[tokio::test]
async fn damaged_database_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let (config, _) = config(folder.path(), "http://127.0.0.1:1", "token");
    std::fs::create_dir(&config.data_dir).expect("made");
    std::fs::write(config.data_dir.join("ralph.db"), "this was a database once").expect("written");
    let mut findings = Vec::new();
    assert!(database(&config, &mut findings).await.is_none());
    assert_eq!(of(&findings, "database").status, FindingStatus::Fail);
}

#[tokio::test]
async fn channel_is_resolved_without_sending() {
    let channel = |url: &str, allow_private| ChannelConfig {
        name: "chat".into(),
        kind: crate::domain::report::notice::ChannelKind::Slack,
        url: url.to_owned().into(),
        secret: None,
        room: None,
        mail: None,
        levels: vec![crate::domain::supervision::oversight::EscalationLevel::Critical],
        allow_private,
    };
    let url = "https://localhost:1/services/hunter2";
    let (refused, allowed) = (check_channel(&channel(url, false)).await, check_channel(&channel(url, true)).await);
    assert!(refused.status == FindingStatus::Fail && refused.detail.contains("not public"), "{refused:?}");
    assert!(allowed.status == FindingStatus::Ok && allowed.detail.contains("slack at localhost"), "{allowed:?}");
    assert!(allowed.detail.contains("critical") && allowed.detail.contains("no message was sent"), "{allowed:?}");
    let nowhere = check_channel(&channel("https://nowhere.invalid/services/hunter2", false)).await;
    assert_eq!(nowhere.status, FindingStatus::Fail);
    for finding in [refused, allowed, nowhere] {
        assert!(!format!("{finding:?}").contains("hunter2"), "{finding:?}");
    }
}

#[test]
fn each_sandbox_escape_attempt_is_listed() {
    let escape = |name, held| EscapeTest { name, held, detail: "seen".into(), fix: "update" };
    let mut found = SandboxProbe {
        tier: SandboxTier::C,
        bubblewrap: Ok("0.11".into()),
        escapes: vec![escape("a", true), escape("b", false)],
        landlock: Some(Err("the service is root".into())),
    };
    let required = SandboxRequired::Auto;
    let outcomes: Vec<_> = sandbox(&found, required).into_iter().map(|f| (f.name, f.status)).collect();
    let name = |name: &str| name.to_owned();
    let expected = [
        (name("sandbox"), FindingStatus::Fail),
        (name("sandbox of tier B"), FindingStatus::Warn),
        (name("sandbox: a"), FindingStatus::Ok),
        (name("sandbox: b"), FindingStatus::Fail),
    ];
    assert_eq!(outcomes, expected);
    found.bubblewrap = Err("not installed".into());
    assert_eq!(sandbox(&found, required).len(), 4);
    found = SandboxProbe { escapes: Vec::new(), landlock: None, ..found };
    assert_eq!(sandbox(&found, required).len(), 1);
}

/// The report of a weaker sandbox lists the attacks that it does not prevent.
#[test]
fn tier_b_report_depends_on_required_sandbox() {
    let escape = |name, held| EscapeTest { name, held, detail: "seen".into(), fix: "update" };
    let kernel = "read data of the kernel";
    let found = SandboxProbe {
        tier: SandboxTier::B,
        bubblewrap: Err("bubblewrap is not installed".into()),
        escapes: Vec::new(),
        landlock: Some(Ok(vec![escape("a", true), escape(kernel, false)])),
    };
    for (required, status) in [
        (SandboxRequired::Auto, FindingStatus::Warn),
        (SandboxRequired::Landlock, FindingStatus::Ok),
        (SandboxRequired::Bubblewrap, FindingStatus::Fail),
    ] {
        let findings = sandbox(&found, required);
        let outcomes: Vec<_> = findings.iter().map(|f| (f.name.as_str(), f.status)).collect();
        let expected = [
            ("sandbox", status),
            ("sandbox: left open without namespaces", FindingStatus::Warn),
            ("sandbox: a", FindingStatus::Ok),
            ("sandbox: read data of the kernel", FindingStatus::Warn),
        ];
        assert_eq!(outcomes, expected, "{required:?}");
        assert!(findings[0].detail.contains("bubblewrap is not installed"), "{findings:?}");
    }
}

#[test]
fn data_folder_open_to_others_is_reported() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    assert_eq!(open_folder(&data), None);
    crate::process::private::create_folder(&data).unwrap();
    assert_eq!(open_folder(&data), None);
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o750)).unwrap();
    let found = open_folder(&data).unwrap();
    assert_eq!(found.status, FindingStatus::Warn);
    assert!(found.detail.contains("mode 750"), "{found:?}");
}

#[test]
fn agent_network_access_is_listed() {
    let described = |hosts: &[&str]| {
        let hosts = AgentNetwork::Hosts(hosts.iter().map(|host| (*host).to_owned()).collect());
        network(&hosts).map(|finding| (finding.status, finding.detail))
    };
    let ok = |text: &str| Some((FindingStatus::Ok, text.to_owned()));
    assert_eq!(described(&[]), ok("their model only"));
    assert_eq!(described(&["a.example", "*.b.example"]), ok("their model and a.example, *.b.example"));
    let all: AgentNetwork = serde_json::from_str("\"all\"").unwrap();
    assert_eq!(network(&all).map(|finding| finding.status), Some(FindingStatus::Warn));
}

/// All other checks accept a token with a read-only scope.
#[tokio::test]
async fn token_and_webhooks_are_verified() {
    let folder = tempfile::tempdir().expect("a folder");
    let forge = FakeForge::start(Dialect::Gitea, Clock::System).await.expect("a forge");
    let (owner, bot) = (forge.add_user("team", AccountKind::User), forge.add_user("ralph", AccountKind::User));
    let repo = forge.create_repo(&owner.login, "app", &[("a", "b", false)]).await.expect("a repository");
    forge.grant(repo, &bot, Access::Admin).expect("granted");
    let more = "server: { public_url: 'https://ralph.test' }";
    let (config, env) = config_with(folder.path(), forge.url().as_str(), &forge.token_for(&bot), more);
    let ops = forge.ops().len();

    let findings = look(&config, &env).await;
    assert_eq!(of(&findings, "token of work").status, FindingStatus::Ok, "{findings:?}");
    assert!(of(&findings, "webhooks of work").detail.contains("there is no webhook"), "{findings:?}");
    assert_eq!(forge.ops().len(), ops, "the check changed something");

    let answer = |body: &str| fake_forge::FakeFault::Respond {
        status: 403,
        headers: Vec::new(),
        body: body.into(),
        apply: false,
    };
    let readable = r#"{"message": "token does not have at least one of required scope(s), required=[write:issue]"}"#;
    forge.faults().next(1, "POST", "/app/issues$", answer(readable)).expect("a pattern");
    let url = "https://ralph.test/webhooks/work";
    forge
        .with(|state| state.add_hook(owner.id, repo, url, "s", vec!["push".into(), "status".into()], true))
        .expect("made");
    let findings = look(&config, &env).await;
    let token = of(&findings, "token of work");
    assert!(token.status == FindingStatus::Fail && token.detail.contains("required=[write:issue]"), "{token:?}");
    let hooks = of(&findings, "webhooks of work");
    assert!(hooks.detail.contains("lacks the events issues, issue_label"), "{hooks:?}");
}

/// Deliveries arrive although the token may not list the webhooks, so that is not a failure.
#[tokio::test]
async fn github_token_and_webhooks_are_verified() {
    use crate::forge::github::EVENTS;

    let folder = tempfile::tempdir().expect("a folder");
    let forge = FakeForge::start(Dialect::GitHub, Clock::System).await.expect("a forge");
    let (owner, bot) = (forge.add_user("team", AccountKind::User), forge.add_user("ralph", AccountKind::User));
    let repo = forge.create_repo(&owner.login, "app", &[("a", "b", false)]).await.expect("a repository");
    forge.grant(repo, &bot, Access::Admin).expect("granted");
    let more = "server: { public_url: 'https://ralph.test' }";
    let (config, env) = config_of("github", folder.path(), forge.url().as_str(), &forge.token_for(&bot), more);
    let ops = forge.ops().len();
    // GitHub finds the empty body invalid; the fake has no such path.
    let invalid = || fake_forge::FakeFault::status(422);
    forge.faults().next(1, "POST", "/app/git/refs$", invalid()).expect("a pattern");
    let findings = look(&config, &env).await;
    assert_eq!(of(&findings, "token of work").status, FindingStatus::Ok, "{findings:?}");
    let hooks = of(&findings, "webhooks of work");
    assert!(hooks.status == FindingStatus::Warn && hooks.detail.contains("there is no webhook"), "{hooks:?}");
    assert_eq!(forge.ops().len(), ops, "the check changed something");

    let url = "https://ralph.test/webhooks/work";
    let all = EVENTS.iter().map(|event| (*event).to_owned()).collect();
    forge.with(|state| state.add_hook(owner.id, repo, url, "s", all, true)).expect("made");
    let refused = || fake_forge::FakeFault::Respond {
        status: 403,
        headers: Vec::new(),
        body: r#"{"message": "Resource not accessible by personal access token"}"#.into(),
        apply: false,
    };
    for path in ["/app/issues$", "/app/pulls$", "/app/git/refs$"] {
        forge.faults().next(1, "POST", path, refused()).expect("a pattern");
    }
    let findings = look(&config, &env).await;
    assert_eq!(of(&findings, "webhooks of work").status, FindingStatus::Ok, "{findings:?}");
    let token = of(&findings, "token of work");
    assert_eq!(token.status, FindingStatus::Fail, "{token:?}");
    for words in
        ["may not open issues and comment", "may not open pull requests", "may not push", "Resource not accessible"]
    {
        assert!(token.detail.contains(words), "{words}: {token:?}");
    }

    forge.faults().next(1, "POST", "/app/git/refs$", invalid()).expect("a pattern");
    forge.faults().next(1, "GET", "/app/hooks$", refused()).expect("a pattern");
    let findings = look(&config, &env).await;
    let hooks = of(&findings, "webhooks of work");
    assert_eq!(hooks.status, FindingStatus::Warn, "{hooks:?}");
    assert!(
        hooks.detail.contains("the token may not list the webhooks of team/app")
            && hooks.detail.contains("cannot be checked")
    );
    assert_eq!(of(&findings, "token of work").status, FindingStatus::Ok, "{findings:?}");
}

/// See docs/reference/forges.md.
#[tokio::test]
async fn settings_of_an_app_and_rules_for_its_branches_are_checked() {
    use crate::forge::github::{EVENTS, PERMISSIONS};

    let folder = tempfile::tempdir().expect("a folder");
    let forge = FakeForge::start(Dialect::GitHub, Clock::System).await.expect("a forge");
    forge.add_user("team", AccountKind::User);
    let repo = forge.create_repo("team", "app", &[("a", "b", false)]).await.expect("a repository");
    let address = "http://127.0.0.1:9/webhooks/work";
    let made = forge.add_app("Ralph Bot", PERMISSIONS, EVENTS, address, SECRET);
    let env =
        Env::of([("S", SECRET), ("PATH", "/usr/bin:/bin"), ("HOME", "/"), ("KEY", made.private_key_pem.as_str())]);
    let text = format!(
        "server: {{ public_url: 'http://127.0.0.1:9' }}
forges: [{{ name: work, kind: github, url: '{}', app_id: {}, private_key_env: KEY, webhook_secret_env: S }}]
sandbox: {{ required: none }}
backends: {{ there: {{ type: script, command: [sh] }} }}
",
        forge.url(),
        made.app_id
    );
    let config = Config::parse(&folder.path().join("ralph-control.yaml"), &text, &env).expect("valid");
    let findings = look(&config, &env).await;
    for name in ["App of work", "installations of work", "failed deliveries of work"] {
        assert_eq!(of(&findings, name).status, FindingStatus::Ok, "{:?}", of(&findings, name));
    }
    assert!(!findings.iter().any(|found| found.name.starts_with("rules for")), "{findings:?}");

    forge.with(|state| {
        let app = state.apps.values_mut().next().expect("the App");
        app.hook.events.retain(|event| event != "issues");
        app.hook.url = "http://127.0.0.1:9/elsewhere".into();
        state.repo_mut(repo).expect("the repository").rules =
            vec!["required_signatures".into(), "non_fast_forward".into(), "pull_request".into()];
    });
    let owner = forge.add_user("team", AccountKind::User);
    forge.push_commit(&owner, repo, "main", &[("a", Some("c"), false)], "A change").await.expect("pushed");
    forge.flush().await;
    let findings = look(&config, &env).await;
    let app = of(&findings, "App of work");
    for words in ["does not subscribe to issues", "sends to http://127.0.0.1:9/elsewhere"] {
        assert!(app.status == FindingStatus::Fail && app.detail.contains(words), "{words}: {app:?}");
    }
    let installation = of(&findings, "installations of work");
    assert!(installation.detail.starts_with("team/app: does not subscribe to issues"), "{installation:?}");
    let failed = of(&findings, "failed deliveries of work");
    assert!(failed.status == FindingStatus::Warn && failed.detail.contains("`push`"), "{failed:?}");
    let rules = of(&findings, "rules for `ralph/**` on work");
    assert!(
        rules.detail.contains("demands signed commits") && rules.detail.contains("demands pull requests"),
        "{rules:?}"
    );
    assert!(!rules.detail.contains("non_fast"), "{rules:?}");

    forge.with(|state| {
        let app = state.apps.values_mut().next().expect("the App");
        app.permissions.insert("checks".into(), "read".into());
        app.permissions.remove("actions");
    });
    let findings = look(&config, &env).await;
    let app = of(&findings, "App of work");
    assert!(app.detail.contains("lacks the permissions actions: read, checks: write"), "{app:?}");
    forge.suspend(made.app_id, true);
    let problems = connect_app(&config).installation_problems(&reference(repo)).await.expect("an answer");
    assert!(problems.iter().any(|problem| problem == "is suspended"), "{problems:?}");
}

fn connect_app(config: &Config) -> std::sync::Arc<dyn Forge> {
    app::connect(&config.forges[0], RateSettings::default(), &Clock::System).expect("connected")
}

fn reference(id: RepoId) -> RepoRef {
    RepoRef { forge: ForgeName::new("work"), id, owner: "team".into(), name: "app".into() }
}
