//! Real scripts as agents.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::agent::{BackendKind, ResumedSession, RunImages, RunPurpose, build};
use crate::domain::model::ids::{Money, Timestamp};
use crate::domain::providers::limit::{LimitKind, classify};
use crate::process::sandbox::SandboxSettings;
use crate::process::{Cookie, ProbeSettings, probe_sandbox, survivors};

/// An operator's folder with a script in it, a tree and a scratch folder.
struct CommandFixture {
    root: tempfile::TempDir,
}

impl CommandFixture {
    fn new(script: &str) -> Self {
        let place = Self { root: tempfile::tempdir().unwrap() };
        for folder in ["config", "tree", "scratch"] {
            fs::create_dir(place.at(folder)).unwrap();
        }
        fs::write(place.at("config/agent.sh"), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(place.at("config/agent.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.path().canonicalize().unwrap().join(name)
    }

    fn settings(&self, kind: BackendKind) -> BackendSetup {
        let mut settings = BackendSetup::new(kind, self.at("config"), "/usr/bin:/bin");
        settings.config.command = vec!["./agent.sh".into()];
        settings.env = vec![("MODEL_KEY".into(), "swordfish-77".into())];
        settings.models = [("small".to_owned(), "vendor-small-1".to_owned())].into();
        settings
    }

    fn run(&self) -> AgentRun {
        AgentRun {
            prompt: "do the thing\n".into(),
            tree: self.at("tree"),
            purpose: RunPurpose::Iteration,
            read_only: Vec::new(),
            scratch: self.at("scratch/attempt"),
            loop_id: "L7".into(),
            iteration: 3,
            model: Some("small".into()),
            wall: Duration::from_secs(30),
            idle: Duration::from_secs(30),
            max_turns: None,
            max_cost: None,
            session: None,
            keep: None,
            mcp_config: None,
            tools: None,
            images: Default::default(),
            home_prepared: false,
            cookie: Cookie::new("agent-test", &uuid::Uuid::now_v7().simple().to_string(), 1),
            sandboxed: false,
            sandbox: SandboxSettings::default(),
            network: crate::process::sandbox::Network::None,
            guard: None,
        }
    }
}

/// Returns a session without files.
fn resumed(id: &str, place: &CommandFixture) -> ResumedSession {
    let files = place.at("kept");
    fs::create_dir_all(&files).unwrap();
    ResumedSession { id: id.into(), files, account: Cumulative::default() }
}

async fn outcome(settings: BackendSetup, run: AgentRun) -> (AgentOutcome, Vec<AgentEvent>) {
    let backend = build("mine", settings).unwrap();
    let mut events = Vec::new();
    let outcome = backend.run(run, &CancellationToken::new(), &mut |event| events.push(event)).await;
    (outcome, events)
}

const REPORTING: &str = r#"cat >prompt-seen; cat "$RALPH_PROMPT_FILE" >>prompt-seen
echo "$RALPH_LOOP $RALPH_ITERATION $RALPH_MODEL ${RALPH_COOKIE%%-*} $LANG"
echo "key is $MODEL_KEY" >&2
echo x >"$HOME/made" && echo x >"$TMPDIR/made" && pwd
printf '{"summary":"used %s","completion_percentage":40}' "$MODEL_KEY" >"$RALPH_REPORT""#;

#[tokio::test]
async fn script_gets_prompt_and_environment_and_is_parsed() {
    let place = CommandFixture::new(REPORTING);
    let (outcome, events) = outcome(place.settings(BackendKind::Script), place.run()).await;
    assert_eq!(outcome.status, AgentStatus::Finished, "{outcome:?}");
    let tree = place.at("tree");
    let first = "L7 3 vendor-small-1 agent C.UTF-8";
    assert_eq!(outcome.final_message, format!("{first}\n{}", tree.display()));
    assert!(outcome.output.ends_with("--- standard error ---\nkey is ***\n"), "{}", outcome.output);
    assert_eq!(fs::read_to_string(tree.join("prompt-seen")).unwrap(), "do the thing\ndo the thing\n");
    let report = outcome.report.unwrap();
    assert_eq!((report.summary.as_str(), report.completion_percentage), ("used ***", Some(40.0)));
    assert!(events.contains(&AgentEvent::Text { text: first.into() }), "{events:?}");
    assert!(events.contains(&AgentEvent::Text { text: "key is ***".into() }), "{events:?}");
}

/// Times in the output of an agent have a known time zone.
#[tokio::test]
async fn time_zone_of_the_agent_is_set_and_recorded() {
    let place = CommandFixture::new("echo $TZ; date -d @1769599920 '+try again at %b %dth, %Y %I:%M %p.'; exit 1");
    let now = Timestamp(1_769_500_000_000);
    let read = async |zone: Option<&str>| {
        let mut settings = place.settings(BackendKind::Script);
        settings.env.extend(zone.map(|zone| ("TZ".to_owned(), zone.into())));
        let (outcome, _) = outcome(settings, place.run()).await;
        let mut signals = outcome.signals.clone();
        // A limit in the provider's own words.
        signals.messages = vec![format!("You've hit your usage limit. {}", outcome.final_message)];
        (outcome.final_message, classify(&signals, now).and_then(|limit| limit.until))
    };
    // A time without seconds means the end of its minute.
    for (zone, printed) in [
        (None, "UTC\ntry again at Jan 28th, 2026 11:32 AM."),
        (Some("America/New_York"), "America/New_York\ntry again at Jan 28th, 2026 06:32 AM."),
    ] {
        assert_eq!(read(zone).await, (printed.to_owned(), Some(Timestamp(1_769_599_980_000))), "{zone:?}");
    }
}

/// See docs/research/threats.md#i4.
#[tokio::test]
async fn placeholders_in_args_are_replaced_and_stdin_can_be_empty() {
    let place = CommandFixture::new("printf '%s|' \"$@\"; cat; cat \"$3\"; echo '{\"summary\":\"s\"}' >\"$4\"");
    let mut settings = place.settings(BackendKind::Script);
    settings.config.args =
        ["--model={model}", "{prompt}", "{prompt_file}", "{report}", "{other}"].map(str::to_owned).into();
    settings.prompt_on_stdin = false;
    let (outcome, _) = outcome(settings, place.run()).await;
    let scratch = place.at("scratch/attempt").display().to_string();
    assert_eq!(
        outcome.output,
        format!(
            "--model=vendor-small-1|do the thing\n|{scratch}/prompt.md|{scratch}/report/report.json|{{other}}|do the thing\n"
        )
    );
    assert_eq!(outcome.report.map(|report| report.summary), Some("s".to_owned()));
}

#[tokio::test]
async fn script_works_in_the_sandbox() {
    let probe = probe_sandbox(&ProbeSettings { folder: std::env::temp_dir(), ..ProbeSettings::default() }).await;
    if let Err(reason) = &probe.bubblewrap {
        skipped_tests::skip(&format!("bubblewrap does not work here: {reason}"));
        return;
    }
    let private = "cat \"$0\" >/dev/null && ls /etc/shadow ../config ../scratch/attempt 2>/dev/null; ls -A ..";
    let place = CommandFixture::new(&format!("{REPORTING}\n{private}"));
    fs::write(place.at("config/secrets"), "x").unwrap();
    let run = AgentRun { sandboxed: true, ..place.run() };
    let (outcome, _) = outcome(place.settings(BackendKind::Script), run).await;
    assert_eq!(outcome.status, AgentStatus::Finished, "{outcome:?}");
    assert_eq!(outcome.report.unwrap().completion_percentage, Some(40.0));
    let listed: Vec<&str> = outcome.final_message.lines().skip(2).collect();
    let expected = "../config:|agent.sh||../scratch/attempt:|home|prompt.md|report|config|scratch|tree"
        .split('|')
        .collect::<Vec<_>>();
    assert_eq!(listed, expected);
}

#[tokio::test]
async fn planner_writes_only_its_report_in_the_sandbox() {
    let probe = probe_sandbox(&ProbeSettings { folder: std::env::temp_dir(), ..ProbeSettings::default() }).await;
    if let Err(reason) = &probe.bubblewrap {
        skipped_tests::skip(&format!("bubblewrap does not work here: {reason}"));
        return;
    }
    let writes = "for path in new known/file; do (echo x >$path) 2>/dev/null && echo wrote $path; done
rm -r known 2>/dev/null && echo removed; mv known other 2>/dev/null && echo moved; chmod 777 known 2>/dev/null && echo changed
cat known/file; echo \"$RALPH_RUN\"; echo '{\"plan\": {\"summary\": \"s\", \"steps\": [\"a\"]}}' >\"$RALPH_REPORT\"";
    let place = CommandFixture::new(writes);
    fs::create_dir(place.at("tree/known")).unwrap();
    fs::write(place.at("tree/known/file"), "41\n").unwrap();
    let run = AgentRun { sandboxed: true, purpose: RunPurpose::Plan, ..place.run() };
    let (planned, _) = outcome(place.settings(BackendKind::Script), run).await;
    assert_eq!(planned.final_message, "41\nplan", "{planned:?}");
    assert_eq!(planned.report.and_then(|report| report.plan).unwrap().steps, ["a"]);
    let run = AgentRun { sandboxed: true, purpose: RunPurpose::Question, ..place.run() };
    let (answered, _) = outcome(place.settings(BackendKind::Script), run).await;
    assert_eq!(answered.final_message, "41\nquestion", "{answered:?}");
    let run = AgentRun { sandboxed: true, ..place.run() };
    let (worked, _) = outcome(place.settings(BackendKind::Script), run).await;
    assert!(worked.final_message.starts_with("wrote new\nwrote known/file\nremoved"), "{}", worked.final_message);
}

/// See docs/research/threats.md#g18.
#[tokio::test]
async fn files_of_an_earlier_attempt_are_removed() {
    let place = CommandFixture::new("ls -A \"$HOME\" \"$(dirname \"$RALPH_REPORT\")\" | grep -v :");
    let attempt = place.at("scratch/attempt");
    fs::create_dir_all(attempt.join("report")).unwrap();
    fs::write(attempt.join("report/report.json"), "{}").unwrap();
    std::os::unix::fs::symlink(place.at("config"), attempt.join("home")).unwrap();
    let (outcome, _) = outcome(place.settings(BackendKind::Script), place.run()).await;
    assert_eq!((outcome.final_message.as_str(), outcome.report, outcome.report_problem), ("", None, None));
    assert!(place.at("config/agent.sh").is_file());
}

/// See docs/research/faults.md#a5.
#[tokio::test]
async fn status_follows_from_the_end_of_the_process() {
    let stuck = "trap '' TERM; while :; do sleep 300; done";
    let failed = |reason: &str| AgentStatus::Failed { reason: reason.into() };
    for (script, idle, wall, expected) in [
        ("exit 3", 30_000, 30_000, failed("it exited with 3")),
        ("echo 'no such model' >&2; exit 1", 30_000, 30_000, failed("it exited with 1: no such model")),
        ("kill -SEGV $$", 30_000, 30_000, failed("it was killed by signal 11")),
        ("sleep 300", 200, 30_000, AgentStatus::TimedOut { what: "it printed nothing for 0.2 s".into() }),
        ("sleep 300", 30_000, 200, AgentStatus::TimedOut { what: "it ran for longer than 0.2 s".into() }),
    ] {
        let place = CommandFixture::new(script);
        let run = AgentRun { idle: Duration::from_millis(idle), wall: Duration::from_millis(wall), ..place.run() };
        let (outcome, _) = outcome(place.settings(BackendKind::Script), run).await;
        assert_eq!(outcome.status, expected, "{script}");
    }
    let place = CommandFixture::new(&format!("setsid sleep 300 & {}", stuck.replace("trap '' TERM;", "")));
    let (run, cancel) = (place.run(), CancellationToken::new());
    let cookie = run.cookie.clone();
    cancel.cancel();
    let backend = build("mine", place.settings(BackendKind::Script)).unwrap();
    let outcome = backend.run(run, &cancel, &mut |_| ()).await;
    assert_eq!(outcome.status, AgentStatus::Cancelled);
    assert_eq!(survivors(cookie.as_str()), vec![]);
}

/// See docs/research/faults.md#a6.
#[tokio::test]
async fn removed_program_is_unavailable() {
    let place = CommandFixture::new("true");
    let backend = build("mine", place.settings(BackendKind::Script)).unwrap();
    fs::remove_file(place.at("config/agent.sh")).unwrap();
    let outcome = backend.run(place.run(), &CancellationToken::new(), &mut |_| ()).await;
    assert!(matches!(outcome.status, AgentStatus::Unavailable { .. }), "{outcome:?}");
}

#[test]
fn invalid_setups_are_refused_with_reason() {
    let place = CommandFixture::new("true");
    let with = |kind: BackendKind, command: &[&str]| {
        let mut settings = place.settings(kind);
        settings.config.command = command.iter().map(|c| (*c).to_owned()).collect();
        build("mine", settings).err().map(|error| format!("{error:#}")).unwrap_or_default()
    };
    for (kind, command, words) in [
        (BackendKind::Script, vec![], "`command` is missing"),
        (BackendKind::Script, vec!["./gone.sh"], "there is no program"),
        (BackendKind::Script, vec!["agent.sh"], "there is no program"),
        (BackendKind::Script, vec!["."], "there is no program"),
        (BackendKind::Script, vec!["./"], "cannot be executed"),
        (BackendKind::Preset("codecs".into()), vec![], "available: claude"),
    ] {
        let error = with(kind, &command);
        assert!(error.starts_with("backend mine: ") && error.contains(words), "{command:?}: {error}");
    }
    assert_eq!(with(BackendKind::Script, &["./agent.sh", "x"]), "");
}

#[tokio::test]
async fn claude_gets_its_arguments_and_is_parsed() {
    let place = CommandFixture::new(
        r#"case $1 in --version) echo "2.1.197 (Claude Code)"; exit;; esac
           printf '%s\n' "$@" >arguments; env | sort >environment
           echo '{"type":"result","subtype":"success","is_error":false,"result":"done","total_cost_usd":0.5,"session_id":"s"}'"#,
    );
    let mut settings = place.settings(BackendKind::Preset("claude".into()));
    settings.config.args = vec!["--max-turns".into(), "5".into()];
    assert_eq!(build("c", settings.clone()).unwrap().probe().await.unwrap(), "2.1.197 (Claude Code)");

    let run = AgentRun { max_cost: Some(Money(1_250_000)), ..place.run() };
    let (done, _) = outcome(settings, run).await;
    assert_eq!((done.status, done.cost), (AgentStatus::Finished, Some(Money(500_000))));
    assert_eq!((done.final_message.as_str(), done.session.as_deref()), ("done", Some("s")));
    let arguments = fs::read_to_string(place.at("tree/arguments")).unwrap().replace('\n', " ");
    assert_eq!(
        arguments,
        "-p --output-format stream-json --verbose --permission-mode acceptEdits --strict-mcp-config --setting-sources user \
         --model vendor-small-1 --max-budget-usd 1.250000 --max-turns 5 "
    );
    let environment = fs::read_to_string(place.at("tree/environment")).unwrap();
    for expected in ["DISABLE_AUTOUPDATER=1", "MODEL_KEY=swordfish-77", "CLAUDE_CODE_MAX_RETRIES=3"] {
        assert!(environment.lines().any(|line| line == expected), "{expected}");
    }
    assert!(!environment.contains("IS_SANDBOX"), "it is not shut in");
}

/// Imitates sessions of Claude Code: reports the cost of the whole session and leaves other files in its home.
const SESSIONS: &str = r#"
    printf '%s\n' "$@" >arguments
    session="$HOME/.claude/projects/tree/s1.jsonl"
    [ -f "$HOME/.claude/settings.json" ] && touch poisoned
    case "$*" in *--resume*)
        [ -f "$session" ] || { echo '{"type":"result","subtype":"error_during_execution","is_error":true,"session_id":"s1","total_cost_usd":0,"usage":{},"errors":["No conversation found with session ID: s1"]}'; exit 1; };;
    esac
    mkdir -p "$HOME/.claude/projects/tree"
    echo turn >>"$session"; echo '{"hooks":{}}' >"$HOME/.claude/settings.json"
    turns=$(wc -l <"$session")
    u='"input_tokens":90,"cache_creation_input_tokens":0,"cache_read_input_tokens":10,"output_tokens":50'
    echo '{"type":"assistant","message":{"id":"m'$turns'","content":[{"type":"text","text":"done"}],"usage":{'$u'}},"session_id":"s1"}'
    echo '{"type":"result","subtype":"success","is_error":false,"result":"done","session_id":"s1","total_cost_usd":0.'$((turns * 2))',"usage":{'$u'},"modelUsage":{"m":{"inputTokens":'$((turns * 90))',"outputTokens":'$((turns * 50))',"cacheReadInputTokens":'$((turns * 10))',"contextWindow":1500}}}'
"#;

#[tokio::test]
async fn session_is_resumed_with_its_files_only() {
    let place = CommandFixture::new(SESSIONS);
    let settings = || place.settings(BackendKind::Preset("claude".into()));
    let (first_session, second_session) = (place.at("sessions/1"), place.at("sessions/2"));
    let (first, _) = outcome(settings(), AgentRun { keep: Some(first_session.clone()), ..place.run() }).await;
    assert_eq!((first.status.clone(), first.session_kept), (AgentStatus::Finished, true), "{}", first.output);
    assert_eq!((first.cost, first.tokens_in, first.tokens_out), (Some(Money(200_000)), 100, 50));
    assert_eq!((first.context_tokens, first.context_window), (Some(150), Some(1500)));
    assert!(
        first_session.join(".claude/projects/tree/s1.jsonl").is_file()
            && !first_session.join(".claude/settings.json").exists()
    );

    let session = ResumedSession { id: "s1".into(), files: first_session.clone(), account: first.account };
    let run = AgentRun { session: Some(session.clone()), keep: Some(second_session.clone()), ..place.run() };
    let (second, events) = outcome(settings(), run).await;
    assert_eq!((second.status, second.session_unknown), (AgentStatus::Finished, false), "{}", second.output);
    assert!(fs::read_to_string(place.at("tree/arguments")).unwrap().contains("--resume\ns1\n"));
    assert!(!place.at("tree/poisoned").exists(), "settings of an earlier run are not there");
    // The cost of earlier runs is not counted twice.
    assert_eq!((second.cost, second.tokens_in, second.tokens_out), (Some(Money(200_000)), 100, 50));
    assert_eq!(second.account.cost, Some(Money(400_000)));
    let used = |cost: Option<i64>| AgentEvent::Used {
        tokens_in: 100,
        tokens_out: 50,
        cache_read: 10,
        cache_write: 0,
        cost: cost.map(Money),
        model: None,
    };
    assert!(events.contains(&used(None)) && events.contains(&used(Some(200_000))), "{events:?}");
    let turns =
        |folder: &Path| fs::read_to_string(folder.join(".claude/projects/tree/s1.jsonl")).unwrap().lines().count();
    assert_eq!((turns(&first_session), turns(&second_session)), (1, 2), "what an earlier run left is as it left it");

    // Missing or unknown session: it is reported, and the run did nothing.
    fs::remove_dir_all(&second_session).unwrap();
    fs::remove_dir_all(&first_session).unwrap();
    let run = || AgentRun { session: Some(session.clone()), keep: Some(second_session.clone()), ..place.run() };
    let (run_without_session, _) = outcome(settings(), run()).await;
    assert!(
        run_without_session.session_unknown
            && !run_without_session.session_kept
            && matches!(run_without_session.status, AgentStatus::Failed { .. }),
        "{run_without_session:?}"
    );
    fs::create_dir_all(&first_session).unwrap();
    let (unknown, _) = outcome(settings(), run()).await;
    assert!(unknown.session_unknown && !unknown.session_kept, "{unknown:?}");
    assert_eq!((unknown.cost, unknown.tokens_in), (Some(Money(0)), 0));
}

#[tokio::test]
async fn failed_run_keeps_no_session_and_script_keeps_configured_files() {
    let place = CommandFixture::new(
        "mkdir -p $HOME/.mine; echo x >>$HOME/.mine/s; wc -l <$HOME/.mine/s; echo '{\"session_id\":\"a\",\"text\":\"'$1'\"}'; exit ${2:-0}",
    );
    let mut settings = place.settings(BackendKind::Script);
    settings.output = OutputFormat::named("jsonl");
    settings.config.args = vec!["is:{session}".into()];
    let keep = |name: &str| Some(place.at("sessions").join(name));
    let (plain, _) = outcome(settings.clone(), AgentRun { keep: keep("1"), ..place.run() }).await;
    assert_eq!((plain.final_message.as_str(), plain.session_kept), ("is:", true), "its name alone may do");
    assert!(!place.at("sessions/1").exists());

    settings.config.session_files = vec![".mine".into()];
    let (first, _) = outcome(settings.clone(), AgentRun { keep: keep("2"), ..place.run() }).await;
    assert!(first.session_kept && first.output.starts_with("1\n"), "{}", first.output);
    let session = ResumedSession { id: "a".into(), files: place.at("sessions/2"), account: first.account };
    settings.config.args.push("7".into());
    let (broken, _) = outcome(settings, AgentRun { session: Some(session), keep: keep("3"), ..place.run() }).await;
    assert!(broken.output.starts_with("2\n") && broken.output.contains("is:a"), "{}", broken.output);
    assert!(!broken.session_kept && !place.at("sessions/3").exists(), "{:?}", broken.status);
    assert!(!build("mine", place.settings(BackendKind::Script)).unwrap().resumes());
}

#[tokio::test]
async fn agent_that_hangs_after_its_result_is_stopped() {
    let place = CommandFixture::new(
        r#"echo '{"type":"result","subtype":"success","is_error":false,"result":"done"}'; sleep 300"#,
    );
    let run = AgentRun { idle: Duration::from_millis(200), ..place.run() };
    let (outcome, _) = outcome(place.settings(BackendKind::Preset("claude".into())), run).await;
    assert_eq!(outcome.status, AgentStatus::Finished, "{outcome:?}");
}

/// The phase ends the run long before the idle limit.
#[test]
fn agent_has_30_s_to_exit_after_its_result() {
    assert_eq!(RunPhase::Complete.longest(), Some(Duration::from_secs(30)));
    for (preset, result) in [
        ("claude", r#"{"type":"result","subtype":"success","is_error":false,"result":"done"}"#),
        ("codex", r#"{"type":"turn.completed","usage":{}}"#),
        ("gemini", r#"{"type":"result","status":"success","stats":{}}"#),
        ("opencode", r#"{"type":"step_finish","part":{"reason":"stop"}}"#),
    ] {
        let mut reader = (crate::agent::presets::find(preset).unwrap().reader)();
        let mut phase_after = |line: &str| {
            reader.line(Stream::Stdout, line, &mut |_| ());
            phase_of(reader.as_ref())
        };
        assert_ne!(phase_after(r#"{"type":"started"}"#), RunPhase::Complete, "{preset}");
        assert_eq!(phase_after(result), RunPhase::Complete, "{preset}");
    }
}

#[tokio::test]
async fn budget_of_the_agent_differs_from_the_budget_of_the_run() {
    let place = CommandFixture::new(
        r#"echo '{"type":"result","subtype":"error_max_budget_usd","is_error":true,"errors":["Reached maximum budget ($0.5)"],"total_cost_usd":0.5}'"#,
    );
    for (max_cost, is_own) in [(None, true), (Some(Money(500_000)), false), (Some(Money(5_000_000)), true)] {
        let run = AgentRun { max_cost, ..place.run() };
        let (ended, _) = outcome(place.settings(BackendKind::Preset("claude".into())), run).await;
        assert_eq!(ended.status == AgentStatus::OverBudget, !is_own, "{max_cost:?}: {:?}", ended.status);
        let kind = classify(&ended.signals, Timestamp(0)).map(|limit| limit.kind);
        assert!(!is_own || kind == Some(LimitKind::OwnBudget), "{max_cost:?}: {kind:?}");
    }
}

#[tokio::test]
async fn missing_version_is_reported() {
    let place = CommandFixture::new("echo broken >&2; exit 5");
    let backend = build("c", place.settings(BackendKind::Preset("claude".into()))).unwrap();
    assert!(backend.probe().await.unwrap_err().to_string().contains("exited with 5: broken"));
}

/// Returns a program that writes its arguments, environment and home into the tree and prints `said`.
fn telling(said: &str) -> CommandFixture {
    CommandFixture::new(&format!(
        "printf '%s\\n' \"$@\" >arguments; env | sort >environment; cat >stdin; cp -r \"$HOME\" home\nprintf '%s\\n' '{said}'"
    ))
}

/// Returns the arguments in one line, the environment, and the home folder.
async fn called(place: &CommandFixture, preset: &str, run: AgentRun) -> (AgentOutcome, String, String) {
    let mut settings = place.settings(BackendKind::Preset(preset.into()));
    settings.env.push(("OPENAI_BASE_URL".into(), "http://127.0.0.1:1/v1".into()));
    let (outcome, _) = outcome(settings, run).await;
    let read = |name: &str| fs::read_to_string(place.at("tree").join(name)).unwrap();
    (outcome, read("arguments").replace('\n', " "), read("environment"))
}

const CODEX_SAID: &str = r#"{"type":"item.completed","item":{"type":"agent_message","text":"done"}}
{"type":"turn.completed","usage":{}}"#;

#[tokio::test]
async fn codex_gets_limited_retries_and_sandbox_mode() {
    let place = telling(CODEX_SAID);
    let config = r#"{"mcpServers": {"memory": {"command": "/bin/m", "env": {"TOKEN": "t"}}}}"#;
    fs::write(place.at("config/mcp.json"), config).unwrap();
    let run = AgentRun { mcp_config: Some(place.at("config/mcp.json")), ..place.run() };
    let (done, arguments, environment) = called(&place, "codex", run).await;
    assert_eq!((done.status, done.final_message.as_str()), (AgentStatus::Finished, "done"));
    assert!(arguments.starts_with("exec --json --skip-git-repo-check -c model_provider=\"ralph\""), "{arguments}");
    for part in [
        "model_providers.ralph.request_max_retries=2",
        "model_providers.ralph.stream_max_retries=2",
        "model_providers.ralph.base_url=\"http://127.0.0.1:1/v1\"",
        "sandbox_mode=\"workspace-write\"",
        "mcp_servers.memory.command=\"/bin/m\"",
        "-m vendor-small-1",
    ] {
        assert!(arguments.contains(part), "{part}: {arguments}");
    }
    assert!(environment.contains("\nTOKEN=t\n"), "{environment}");
    assert_eq!(fs::read_to_string(place.at("tree/stdin")).unwrap(), "do the thing\n");
    let place = telling(CODEX_SAID);
    let (_, arguments, _) =
        called(&place, "codex", AgentRun { session: Some(resumed("7", &place)), ..place.run() }).await;
    assert!(arguments.starts_with("exec resume 7 --json "), "{arguments}");
}

/// See docs/research/threats.md#g18.
#[tokio::test]
async fn settings_of_agents_are_written_to_their_home() {
    let output = r#"{"type":"message","role":"assistant","content":"done"}
{"type":"result","status":"success","stats":{}}"#;
    let place = telling(output);
    let (done, arguments, environment) = called(&place, "gemini", place.run()).await;
    assert_eq!(done.status, AgentStatus::Finished, "{done:?}");
    assert!(arguments.contains("--approval-mode auto_edit"), "{arguments}");
    assert!(environment.contains("GOOGLE_GEMINI_BASE_URL=https://generativelanguage.googleapis.com"), "{environment}");
    let settings = fs::read_to_string(place.at("tree/home/.gemini/settings.json")).unwrap();
    assert!(settings.contains("\"maxAttempts\":2"), "{settings}");

    let place = telling(r#"{"type":"text","part":{"text":"done"}}"#);
    let (done, arguments, _) = called(&place, "opencode", place.run()).await;
    assert_eq!(done.status, AgentStatus::Finished, "{done:?}");
    assert!(arguments.starts_with("run --format json --print-logs"), "{arguments}");
    let settings = fs::read_to_string(place.at("tree/home/.config/opencode/opencode.json")).unwrap();
    assert!(settings.contains("\"bash\":\"deny\""), "{settings}");
}

#[tokio::test]
async fn images_are_passed_by_the_option_of_each_agent() {
    let assistant_line = "{\"role\":\"assistant\",\"content\":\"done\"}";
    for (preset, option, attaches) in [
        ("claude", "--add-dir", false),
        ("codex", "--image", true),
        ("gemini", "--include-directories", false),
        ("opencode", "--file", true),
        ("aider", "--read", true),
    ] {
        let place = telling(assistant_line);
        let folder = place.at("scratch/attempt").join("images");
        // The session was given the first one before.
        let images = RunImages { folder: Some(folder.clone()), attached: vec![folder.join("image-2.png")] };
        let (_, arguments, _) = called(&place, preset, AgentRun { images: images.clone(), ..place.run() }).await;
        let value = if attaches { folder.join("image-2.png") } else { folder.clone() };
        let wanted = format!("{option}={}", value.display());
        assert!(arguments.contains(&wanted), "{preset}: {wanted}: {arguments}");
        let given = arguments.matches(&folder.display().to_string()).count();
        assert_eq!(given, 1, "{preset}: {arguments}");
        let (_, arguments, _) = called(&place, preset, place.run()).await;
        assert!(!arguments.contains("/images"), "{preset}: {arguments}");
    }
}

#[tokio::test]
async fn setup_without_prompt_is_refused() {
    let long = "x".repeat(300_000);
    let place = telling("done");
    let (ended, arguments, _) = called(&place, "aider", AgentRun { prompt: long.clone(), ..place.run() }).await;
    assert!(arguments.contains("--message-file /"), "{arguments}");
    assert!(!matches!(ended.status, AgentStatus::Unavailable { .. }), "{ended:?}");
    assert_eq!(fs::read_to_string(place.at("scratch/attempt/prompt.md")).unwrap(), long);
    let place = telling("done");
    let mut settings = place.settings(BackendKind::Script);
    settings.config.args = vec!["{prompt}".into(), "[{session}{mcp_config}]".into()];
    outcome(settings, AgentRun { prompt: long, session: Some(resumed("s7", &place)), ..place.run() }).await;
    let arguments = fs::read_to_string(place.at("tree/arguments")).unwrap();
    assert!(arguments.starts_with("Read the file /") && arguments.ends_with("[s7]\n"), "{arguments}");

    let mut settings = place.settings(BackendKind::Preset("codex".into()));
    settings.prompt_on_stdin = false;
    assert!(build("c", settings.clone()).err().is_some_and(|said| format!("{said:#}").contains("without its prompt")));
    settings.config.args = vec!["{prompt_file}".into()];
    assert!(build("c", settings).is_ok());
}

#[tokio::test]
async fn leftover_files_are_removed_from_the_tree() {
    let place = CommandFixture::new(
        "mkdir .aider.tags.cache.v4; echo x > .aider.tags.cache.v4/a; ln -s / .aider.tags.cache.v5; echo y > made",
    );
    fs::create_dir(place.at("tree/.aider.tags.cache.v3")).unwrap();
    let (_, _) = outcome(place.settings(BackendKind::Preset("aider".into())), place.run()).await;
    let mut entries: Vec<_> = fs::read_dir(place.at("tree"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    entries.retain(|name| name.starts_with(".aider") || name == "made");
    entries.sort();
    assert_eq!(entries, [".aider.tags.cache.v3", "made"], "what was there before stays");
    assert!(std::path::Path::new("/tmp").exists(), "no link is followed");
}

/// See docs/research/threats.md#s4.
#[tokio::test]
async fn repository_cannot_redirect_a_key() {
    let place = telling("done");
    let mut settings = place.settings(BackendKind::Preset("aider".into()));
    settings.env = vec![("OPENAI_API_BASE".into(), secrecy::SecretString::from("http://models.example/v1"))];
    outcome(settings, place.run()).await;
    let arguments = fs::read_to_string(place.at("tree/arguments")).unwrap();
    for told in [
        "--set-env\nOPENAI_BASE_URL=http://models.example/v1\n",
        "--set-env\nOPENAI_API_BASE=http://models.example/v1\n",
        "--set-env\nANTHROPIC_API_BASE=https://api.anthropic.com\n",
    ] {
        assert!(arguments.contains(told), "{told}: {arguments}");
    }
}

#[tokio::test]
async fn any_command_is_parsed_in_any_format() {
    for (format, said, text) in [
        ("codex", CODEX_SAID, "done"),
        ("jsonl", r#"{"text":"done"}"#, "done"),
        ("text", "just words", "just words"),
        ("claude", r#"{"type":"result","is_error":false,"result":"done"}"#, "done"),
    ] {
        let place = telling(said);
        let mut settings = place.settings(BackendKind::Script);
        settings.output = OutputFormat::named(format);
        assert!(settings.output.is_some(), "{format}");
        let (outcome, _) = outcome(settings, place.run()).await;
        assert_eq!((outcome.status, outcome.final_message.as_str()), (AgentStatus::Finished, text), "{format}");
    }
    let place = CommandFixture::new("true");
    for format in OutputFormat::all() {
        let mut settings = place.settings(BackendKind::Script);
        settings.output = Some(format);
        let (outcome, _) = outcome(settings, place.run()).await;
        assert!(matches!(outcome.status, AgentStatus::Failed { .. }), "{format:?}: {outcome:?}");
    }
    assert!(OutputFormat::named("yaml").is_none());
}

#[tokio::test]
async fn invalid_mcp_configuration_is_reported() {
    let place = telling("done");
    let run = AgentRun { mcp_config: Some(place.at("config/none.json")), ..place.run() };
    let (outcome, _) = outcome(place.settings(BackendKind::Preset("codex".into())), run).await;
    assert!(
        matches!(&outcome.status, AgentStatus::Unavailable { reason } if reason.contains("none.json")),
        "{outcome:?}"
    );
}

/// Imitates the session file of Codex.
#[tokio::test]
async fn default_model_is_read_from_the_session() {
    let place = CommandFixture::new(
        r#"mkdir -p "$HOME/.codex/sessions/2026"
           { echo '{"type":"turn_context","payload":{"model":"gpt-5-mini"}}'
             echo '{"type":"response_item","payload":{"text":"a \"turn_context\" of {\"model\":\"x\"}"}}'
             echo '{"type":"turn_context","payload":{"model":"gpt-5"}}'; } >"$HOME/.codex/sessions/2026/one.jsonl"
           echo '{"type":"item.completed","item":{"type":"agent_message","text":"Done."}}'
           echo '{"type":"turn.completed","usage":{"input_tokens":9,"output_tokens":1}}'"#,
    );
    let settings = || place.settings(BackendKind::Preset("codex".into()));
    let (free, _) = outcome(settings(), AgentRun { model: None, ..place.run() }).await;
    assert_eq!((free.status, free.model.as_deref()), (AgentStatus::Finished, Some("gpt-5")), "{}", free.output);
    let (chosen, _) = outcome(settings(), place.run()).await;
    assert_eq!(chosen.model, None, "whoever chose it knows it");
}

/// Script of an agent that speaks ACP, up to its prompt.
const ACP_START: &str = r#"read init; echo '{"id":1,"result":{"protocolVersion":1}}'
read new; echo '{"id":2,"result":{"sessionId":"s1"}}'
read prompt; echo "$prompt" >prompt.json
"#;

#[tokio::test]
async fn acp_agent_gets_its_prompt_and_ends_when_its_input_closes() {
    let place = CommandFixture::new(&format!(
        "{ACP_START}{}",
        r#"u='{"method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"agent_message_chunk","content":{"text":"done"}}}}'
echo "$u"; echo '{"id":3,"result":{"stopReason":"end_turn"}}'; cat >rest"#
    ));
    let (outcome, events) = outcome(place.settings(BackendKind::Acp), place.run()).await;
    assert_eq!((&outcome.status, outcome.final_message.as_str()), (&AgentStatus::Finished, "done"), "{outcome:?}");
    assert!(events.contains(&AgentEvent::Session { id: "s1".into() }), "{events:?}");
    assert!(fs::read_to_string(place.at("tree/prompt.json")).unwrap().contains("do the thing"));
    assert_eq!(fs::read_to_string(place.at("tree/rest")).unwrap(), "");
}

#[tokio::test]
async fn acp_agent_is_asked_to_stop_before_it_is_killed() {
    let stops = r#"read cancel; echo "$cancel" >cancel.json; echo '{"id":3,"result":{"stopReason":"cancelled"}}'; cat"#;
    let place = CommandFixture::new(&format!("{ACP_START}echo >&2 works\n{stops}"));
    let asked = || fs::read_to_string(place.at("tree/cancel.json")).unwrap();
    let cancel = CancellationToken::new();
    let backend = build("mine", place.settings(BackendKind::Acp)).unwrap();
    let mut on_event = |event| {
        if event == (AgentEvent::Text { text: "works".into() }) {
            cancel.cancel();
        }
    };
    let ended = backend.run(place.run(), &cancel, &mut on_event).await;
    assert_eq!(ended.status, AgentStatus::Cancelled, "{ended:?}");
    assert!(asked().contains("\"session/cancel\"") && asked().contains("\"s1\""), "{}", asked());

    fs::remove_file(place.at("tree/cancel.json")).unwrap();
    let wall = Duration::from_secs(1);
    let (ended, _) = outcome(place.settings(BackendKind::Acp), AgentRun { wall, ..place.run() }).await;
    assert!(matches!(ended.status, AgentStatus::TimedOut { .. }), "{ended:?}");
    assert!(asked().contains("\"session/cancel\""), "{}", asked());
}
