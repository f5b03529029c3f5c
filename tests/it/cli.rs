//! The command line: the real binary in a folder, with and without configuration.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use ralph_bot::clock::Clock;
use ralph_bot::domain::knowledge::memory::{MemorySettings, Reflection, ReflectionOutcome, remembered};
use ralph_bot::domain::knowledge::session::{SessionTurn, TurnRole};
use ralph_bot::domain::loops::{LoopStart, LoopTask, RunOptions, TaskText};
use ralph_bot::domain::model::ids::IssueRef;
use ralph_bot::domain::model::ids::{
    AccountKind, ForgeName, LoopId, Money, Number, RepoId, RepoRef, Timestamp, User, UserId,
};
use ralph_bot::domain::trust::policy::Policy;
use ralph_bot::process::{Masker, SandboxTier};
use ralph_bot::store::access_audit::{self, AccessRequest, AccessVia};
use ralph_bot::store::{Store, loops, memory, session};
use serde_json::Value;
use tokio::process::Command;

use crate::harness::parts::command;
use crate::harness::sandbox;

const FILE: &str =
    "forges: [{ name: work, kind: gitea, url: 'http://127.0.0.1:9', token_env: T, webhook_secret_env: S }]
sandbox: { required: none }
backends: { mine: { type: script, command: [sh, -c, 'echo 42 >answer.txt'] } }
";

fn ralph(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = command(env!("CARGO_BIN_EXE_ralph-bot"));
    command.current_dir(folder).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", folder);
    command.args(arguments);
    command
}

async fn run(command: &mut Command) -> Output {
    command.output().await.expect("it starts")
}

fn utf8(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("ralph-control.yaml"), FILE).expect("written");
    folder
}

/// The service does not start on a read-only disk, and reports the path.
/// See docs/research/faults.md#d4.
#[tokio::test]
async fn read_only_disk_is_reported_by_path() {
    if sandbox().await.tier != SandboxTier::A {
        return;
    }
    let folder = folder();
    let file = folder.path().join("ralph-control.yaml");
    let secret = "a-webhook-secret-that-is-long-enough";
    std::fs::write(&file, format!("{FILE}data_dir: data\nserver: {{ listen: '127.0.0.1:0' }}\n")).expect("written");
    for there_is_one in [false, true] {
        if there_is_one {
            std::fs::create_dir(folder.path().join("data")).expect("a folder");
            drop(Store::open(&folder.path().join("data/ralph.db")).expect("a database"));
        }
        let mut command = command("bwrap");
        command.current_dir(folder.path()).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.env("HOME", folder.path()).env("T", "token").env("S", secret);
        command.args(["--ro-bind", "/", "/", "--proc", "/proc", "--die-with-parent", "--"]);
        command.arg(env!("CARGO_BIN_EXE_ralph-bot")).arg("serve").kill_on_drop(true);
        let ended = tokio::time::timeout(Duration::from_secs(30), run(&mut command)).await.expect("it ends by itself");
        let output_text = utf8(&ended.stderr);
        assert!(!ended.status.success(), "{output_text}");
        assert!(
            output_text.contains("data") && output_text.to_lowercase().contains("read-only"),
            "{there_is_one}: {output_text}"
        );
    }
}

/// Every `ralph-bot …` in the table of docs/reference/command-line.md exists, with each of its subcommands.
#[tokio::test]
async fn documented_commands_and_files_exist() {
    let folder = tempfile::tempdir().expect("a folder");
    // A bar within a cell is escaped.
    let page = include_str!("../../docs/reference/command-line.md").replace("\\|", "|");
    let cells =
        page.lines().filter(|line| line.starts_with("| `ralph-bot ")).filter_map(|line| line.split(" | ").next());
    let named: Vec<&str> =
        cells.flat_map(|cell| cell.split('`').filter(|part| part.starts_with("ralph-bot "))).collect();
    assert!(named.len() > 10, "{named:?}");
    for usage in named {
        let mut words = usage.split_whitespace().skip(1);
        let command = words.next().expect("a command");
        let choices = words.next().and_then(|word| word.strip_prefix('[')?.strip_suffix(']')).unwrap_or_default();
        for choice in choices.split('|') {
            // The choice is a subcommand or a value.
            let given: Vec<&str> = [command, choice, "--help"].into_iter().filter(|word| !word.is_empty()).collect();
            let output = run(&mut ralph(folder.path(), &given)).await;
            assert!(output.status.success(), "{usage}: {given:?}: {}", utf8(&output.stderr));
            let help = utf8(&output.stdout);
            assert!(help.contains(&format!("ralph-bot {command}")), "{given:?}: {help}");
            let option = choice.starts_with("--") && help.contains(choice);
            let there = choice.is_empty() || option || help.contains(&format!("ralph-bot {command} {choice}"));
            assert!(there || help.contains(&format!("- {choice}:")), "{given:?}: {help}");
        }
    }
}

/// Backups and reading commands need no token.
#[tokio::test]
async fn database_commands_need_no_secrets() {
    let folder = folder();
    std::fs::create_dir(folder.path().join("data")).expect("made");
    ralph_bot::store::Store::open(&folder.path().join("data/ralph.db")).expect("a database").close().await;
    let commands: [&[&str]; 5] = [&["backup", "copy.db"], &["loops"], &["backends"], &["memory"], &["audit"]];
    for arguments in commands {
        let output = run(&mut ralph(folder.path(), arguments)).await;
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", utf8(&output.stderr));
    }
    assert!(folder.path().join("copy.db").is_file());
    let output = run(&mut ralph(folder.path(), &["serve"])).await;
    assert_eq!(output.status.code(), Some(2), "the service needs them");
    assert!(utf8(&output.stderr).contains("environment variable T is not set"), "{}", utf8(&output.stderr));
}

#[tokio::test]
async fn audit_prints_who_asked_for_which_change() {
    let folder = folder();
    std::fs::create_dir(folder.path().join("data")).expect("made");
    let store = Store::open(&folder.path().join("data/ralph.db")).expect("a database");
    let stored = store.write(|c| {
        let ann = User { id: UserId(7), login: "ann".into(), kind: AccountKind::User };
        let request = AccessRequest {
            account: Some((ForgeName::new("work"), ann)),
            from: Ipv4Addr::LOCALHOST.into(),
            via: AccessVia::PersonalToken("ci".into()),
            method: "POST".into(),
            path: "/api/v1/loops/r-1-aaaaaa/commands".into(),
        };
        let first = access_audit::begin(c, &request, Timestamp(1_800_000_000_000))?;
        access_audit::finish(c, first, 200)?;
        let operator = AccessRequest { account: None, via: AccessVia::Session, path: "/logout".into(), ..request };
        access_audit::begin(c, &operator, Timestamp(1_800_000_001_000))
    });
    assert_eq!(stored.await.expect("stored"), 2);
    store.close().await;
    let said = async |arguments: &[&str]| {
        let output = run(&mut ralph(folder.path(), arguments)).await;
        assert!(output.status.success(), "{arguments:?}: {}", utf8(&output.stderr));
        utf8(&output.stdout)
    };
    let all = said(&["audit"]).await;
    let rows: Vec<&str> = all.lines().collect();
    assert!(rows.len() == 3 && rows[1].contains("operator") && rows[1].ends_with("-       POST /logout"), "{all}");
    for part in ["2027-01-15 08:00:00Z", "work:ann (7)", "127.0.0.1", "personal token \"ci\"", "200", "r-1-aaaaaa"] {
        assert!(rows[2].contains(part), "{part}: {all}");
    }
    assert_eq!(said(&["audit", "--login", "ANN"]).await.lines().count(), 2);
    assert_eq!(said(&["audit", "--limit", "1"]).await.lines().count(), 2);
    let json = said(&["audit", "--before", "2", "--json"]).await;
    let row: Value = serde_json::from_str(json.trim()).expect("one line");
    assert_eq!((&row["login"], &row["account_id"], &row["status"]), (&"ann".into(), &7.into(), &200.into()), "{json}");
}

/// Database with a loop `r-1-aaaaaa`, a prompt of its second iteration, and a rule learnt ten days ago.
async fn with_a_loop(folder: &Path) {
    let now = Clock::System.now();
    let repo = RepoRef { forge: ForgeName::new("work"), id: RepoId(7), owner: "team".into(), name: "app".into() };
    let id = LoopId::from_parts(Number(1), 0);
    let start = LoopStart {
        request: String::new(),
        existing: None,
        id: id.clone(),
        place: IssueRef { repo: repo.clone(), issue: Number(1) },
        by: User { id: UserId(5), login: "alice".into(), kind: AccountKind::User },
        task: LoopTask {
            text: TaskText::new("Fix it", "", None),
            url: String::new(),
            hash: "0".repeat(64),
            author: None,
            author_trusted: true,
            unconfirmed_editor: None,
            edited_after: false,
            labels: Vec::new(),
        },
        options: RunOptions::default(),
        policy: Policy::default(),
        plan: None,
        comment: None,
        hidden_removed: 0,
        round: 1,
    };
    let turn = SessionTurn {
        iteration: 2,
        attempt: 1,
        role: TurnRole::Agent,
        prompt: "Mend\u{1b}[2J the parser".into(),
        response: "done".into(),
        backend: "mine".into(),
        model: Some("small".into()),
        tokens_in: 10,
        tokens_out: 5,
        tokens_cached: 0,
        cost: Money::from_usd(0.25),
        estimated: false,
        error: None,
        learnings: Vec::new(),
        started: Timestamp(1_790_000_000_000),
        ended: Timestamp(1_790_000_001_000),
    };
    let then = now.plus_ms(-10 * 24 * 3_600_000);
    let rule = remembered(&repo, "Never touch vendor", &id, then);
    std::fs::create_dir(folder.join("data")).expect("made");
    let store = Store::open(&folder.join("data/ralph.db")).expect("a database");
    let stored = store.write(move |c| {
        loops::begin(c, start, "first", now)?;
        session::add_turn(c, &id, &session::NewTurn::pack(turn))?;
        memory::learn(c, &Masker::default(), rule, &MemorySettings::default(), then)
    });
    stored.await.expect("written");
    store.close().await;
}

#[tokio::test]
async fn prompts_of_an_iteration_are_printed() {
    let folder = folder();
    with_a_loop(folder.path()).await;
    let show = |iteration: &'static str, more: &'static [&'static str]| {
        let arguments: Vec<_> =
            ["loops", "show", "r-1-aaaaaa", "--prompt", iteration].iter().chain(more).copied().collect();
        ralph(folder.path(), &arguments)
    };
    let output = run(&mut show("2", &[])).await;
    let output_text = utf8(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", utf8(&output.stderr));
    assert!(
        output_text.starts_with("agent of mine (small), attempt 1, 2026-09-21")
            && output_text.ends_with("the parser\n"),
        "{output_text}"
    );
    assert!(output_text.contains("\n\nMend") && !output_text.contains('\u{1b}'), "{output_text}");
    let output = run(&mut show("2", &["--json"])).await;
    let turns: Value = serde_json::from_str(&utf8(&output.stdout)).expect("JSON");
    assert_eq!(
        (turns[0]["prompt"].as_str(), turns[0]["cost"].as_i64()),
        (Some("Mend\u{1b}[2J the parser"), Some(250_000))
    );
    assert_eq!(turns.as_array().map(Vec::len), Some(1), "{turns}");
    let output = run(&mut show("7", &[])).await;
    let why = utf8(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{}", utf8(&output.stdout));
    assert!(why.contains("no prompt of iteration 7 is stored; the loop is at iteration 0"), "{why}");
}

#[tokio::test]
async fn reflections_of_a_loop_are_printed() {
    let folder = folder();
    with_a_loop(folder.path()).await;
    let id = LoopId::from_parts(Number(1), 0);
    let store = Store::attach(&folder.path().join("data/ralph.db")).expect("a database");
    for iteration in 1..=2 {
        let reflection = Reflection {
            iteration,
            approach: format!("way {iteration}\u{1b}[2J of \n parsing"),
            failed: "the check `test`".into(),
            why: "the error is the same".into(),
            next: "read the lexer".into(),
            outcome: ReflectionOutcome::Same,
            edited_by: None,
        };
        let of = id.clone();
        let added = store.write(move |c| memory::add_reflection(c, &Masker::default(), &of, &reflection, Timestamp(1)));
        added.await.expect("stored");
    }
    store.close().await;
    let list = async |arguments: &[&str]| {
        let output = run(&mut ralph(folder.path(), &[&["memory", "reflections"], arguments].concat())).await;
        (output.status.code(), utf8(&output.stdout), utf8(&output.stderr))
    };
    let (code, text, errors) = list(&["r-1-aaaaaa"]).await;
    assert_eq!(code, Some(0), "{errors}");
    let one = |number: u32| {
        format!(
            "iteration {number}: way {number}[2J of parsing\n  failed: the check `test`\n  why: the error is the same\n  next: read the lexer\n"
        )
    };
    assert_eq!(text.replace(" [2J", "[2J"), one(1) + &one(2));
    let (_, newest, _) = list(&["r-1-aaaaaa", "--limit", "1", "--json"]).await;
    let newest: Value = serde_json::from_str(&newest).expect("JSON");
    assert_eq!((newest.as_array().map(Vec::len), newest[0]["iteration"].as_u64()), (Some(1), Some(2)), "{newest}");
    let (code, _, errors) = list(&["r-9-zzzzzz"]).await;
    assert!(code == Some(1) && errors.contains("there is no loop r-9-zzzzzz"), "{errors}");
}

#[tokio::test]
async fn learnings_are_listed_and_searched_by_their_kind() {
    let folder = folder();
    with_a_loop(folder.path()).await;
    let memory = async |arguments: &[&str]| {
        let output = run(&mut ralph(folder.path(), &[&["memory"], arguments].concat())).await;
        (output.status.code(), utf8(&output.stdout), utf8(&output.stderr))
    };
    for (arguments, shown) in [
        (["show", "--kind", "convention"], true),
        (["show", "--kind", "strategy"], false),
        (["show", "--repository", "team/app"], true),
        (["show", "--repository", "team/lib"], false),
    ] {
        let (code, text, errors) = memory(&arguments).await;
        assert_eq!(code, Some(0), "{errors}");
        assert!(text.contains("by kind: 1 convention\n") && text.contains("by task type: 1 "), "{text}");
        assert_eq!(text.contains("Never touch vendor"), shown, "{arguments:?}: {text}");
    }
    let (_, found, _) = memory(&["search", "vendor", "--kind", "convention"]).await;
    assert!(found.contains("Never touch vendor"), "{found}");
    let (_, none, _) = memory(&["search", "vendor", "--kind", "antipattern"]).await;
    assert!(none.contains("no results") && !none.contains("Never touch vendor"), "{none}");
    let (_, list, _) = memory(&["show", "--kind", "strategy", "--json"]).await;
    let list: Value = serde_json::from_str(&list).expect("JSON");
    assert_eq!(
        (list["by_kind"][0]["kind"].as_str(), list["by_kind"][0]["count"].as_u64()),
        (Some("convention"), Some(1))
    );
    assert_eq!(list["learnings"].as_array().map(Vec::len), Some(0), "{list}");
    let (code, _, errors) = memory(&["show", "--kind", "rule"]).await;
    assert!(code == Some(2) && errors.contains("strategy, antipattern, estimate, convention"), "{code:?}: {errors}");
}

#[tokio::test]
async fn learning_confidence_is_the_same_in_every_output() {
    let folder = folder();
    with_a_loop(folder.path()).await;
    let output = run(&mut ralph(folder.path(), &["memory", "--json"])).await;
    let list: Value = serde_json::from_str(&utf8(&output.stdout)).expect("JSON");
    let confidence = list["learnings"][0]["confidence"].as_f64().expect("a figure");
    let id = list["learnings"][0]["id"].as_str().expect("an id");
    let one = utf8(&run(&mut ralph(folder.path(), &["memory", "show", id])).await.stdout);
    let table = utf8(&run(&mut ralph(folder.path(), &["memory"])).await.stdout);
    let figure = format!("{confidence:.2}");
    assert!(confidence > 0.8, "{confidence}");
    assert!(one.contains(&format!("confidence {figure}")) && table.contains(&figure), "{one}{table}");
}

/// `check` prints machine-readable lines for every problem.
#[tokio::test]
async fn configuration_errors_are_printed_as_json_lines() {
    let folder = folder();
    let file = folder.path().join("ralph-control.yaml");
    std::fs::write(&file, format!("{FILE}limit: {{}}\n")).expect("written");
    let output = run(ralph(folder.path(), &["check", "--json"]).env("T", "token")).await;
    assert_eq!(output.status.code(), Some(2), "{}", utf8(&output.stderr));
    let lines: Vec<Value> =
        utf8(&output.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines.iter().all(|line| line["name"] == "configuration" && line["outcome"] == "fail"), "{lines:?}");
    assert!(lines[1]["detail"].as_str().is_some_and(|text| text.ends_with("did you mean `limits`?")), "{lines:?}");
}

/// Old versions of git have vulnerabilities that the service cannot work around.
/// See docs/research/threats.md#g8.
#[tokio::test]
async fn old_git_is_refused() {
    let folder = folder();
    let git = folder.path().join("git");
    std::fs::write(&git, "#!/bin/sh\necho git version 2.38.1\n").expect("written");
    std::fs::set_permissions(&git, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("made executable");
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    let secret = "0123456789abcdef0123456789abcdef";
    let mut command = ralph(folder.path(), &["serve"]);
    let forge = "[{ \"name\": \"work\", \"kind\": \"gitea\", \"url\": \"http://127.0.0.1:9\", \"token_env\": \"T\", \
                 \"webhook_secret_env\": \"S\", \"own_id\": 1 }]";
    command.env("RALPH_FORGES", forge).env("RALPH_SERVER__LISTEN", "127.0.0.1:0");
    let output = run(command.env("PATH", &path).env("T", "token").env("S", secret)).await;
    assert_eq!(output.status.code(), Some(1), "{}", utf8(&output.stderr));
    let why = "git 2.38.1 cannot be used, 2.39.0 or later is needed";
    assert!(utf8(&output.stderr).contains(why), "{}", utf8(&output.stderr));
    let checked = run(ralph(folder.path(), &["check"]).env("PATH", &path).env("T", "token").env("S", secret)).await;
    let lines = utf8(&checked.stdout);
    assert!(lines.contains(&format!("FAIL git: {why}; install git 2.39.0 or newer")), "{lines}");
}

/// Colors are used on terminals, or if they are requested.
#[tokio::test]
async fn no_color_disables_colors() {
    let folder = tempfile::tempdir().expect("a folder");
    let binary = env!("CARGO_BIN_EXE_ralph-bot");
    for (variable, option, colored) in [(None, "", true), (Some("1"), "", false), (None, "--color never", false)] {
        let mut command = command("script");
        command.current_dir(folder.path()).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.env("HOME", folder.path()).env("TERM", "xterm").envs(variable.map(|value| ("NO_COLOR", value)));
        command.args(["-qec", &format!("{binary} {option} loops"), "/dev/null"]);
        let output_text = utf8(&run(&mut command).await.stdout);
        assert!(output_text.contains("ralph-control.yaml"), "{output_text}");
        assert_eq!(output_text.contains('\u{1b}'), colored, "{variable:?} {option}: {output_text:?}");
    }
    let piped = run(&mut ralph(folder.path(), &["loops"])).await;
    assert!(!utf8(&piped.stderr).contains('\u{1b}') && !piped.status.success());
}

/// The demo plays the story of the README and leaves nothing behind.
#[tokio::test]
async fn demo_shows_redirect_pause_and_guidance() {
    let folder = tempfile::tempdir().expect("a folder");
    let temporary = folder.path().join("tmp");
    std::fs::create_dir(&temporary).expect("made");
    let mut command = ralph(folder.path(), &["demo", "--exit", "--fast", "--json"]);
    command.env("TMPDIR", &temporary).kill_on_drop(true);
    let ended = tokio::time::timeout(Duration::from_secs(300), run(&mut command)).await.expect("it ends by itself");
    let output_text = utf8(&ended.stdout);
    assert!(ended.status.success(), "{output_text}\n{}", utf8(&ended.stderr));
    let lines: Vec<Value> = output_text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let text = |line: &Value| line["text"].as_str().unwrap_or_default().to_owned();
    let first = |what: &str, holds: &dyn Fn(&Value) -> bool| {
        lines.iter().position(holds).unwrap_or_else(|| panic!("{what}: {output_text}"))
    };
    let worse = regex::Regex::new(r"\*\*(\d+) %\*\* \(was (\d+) %\)").expect("a pattern");
    let worsens = |line: &Value| {
        worse.captures(&text(line)).is_some_and(|found| {
            let percent = |at: usize| found[at].parse::<u32>().expect("a number");
            line["event"] == "comment" && percent(1) < percent(2)
        })
    };
    let done = |level: &'static str| move |line: &Value| text(line).contains(&format!("| {level} |"));
    let is = |key: &'static str, value: &'static str| move |line: &Value| line[key] == value;
    let answered = first("an answer", &is("event", "answered"));
    let before = [
        first("an iteration that is worse", &worsens),
        first("a warning", &done("WARN")),
        first("another approach", &done("REDIRECT")),
        first("a pause", &is("state", "paused")),
        first("an escalation", &is("event", "escalated")),
    ];
    assert!(before.iter().all(|at| *at < answered), "{before:?}, {answered}: {output_text}");
    let last = lines.last().expect("a line");
    assert!(last["state"] == "review" && last["pull"].as_str().is_some_and(|url| url.contains("/pulls/")), "{last}");
    let remaining: Vec<_> =
        std::fs::read_dir(&temporary).expect("a folder").flatten().map(|entry| entry.path()).collect();
    assert!(remaining.is_empty(), "{remaining:?}");
}
