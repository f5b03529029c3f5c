//! Refusals of providers: the next backend takes over, all wait together, and budgets and rules are enforced.

use std::time::Duration;

use fake_forge::Dialect;
use ralph_bot::config::Config;
use ralph_bot::domain::knowledge::session::{EventKind, Hit, SessionQuery};
use ralph_bot::domain::loops::{LoopState, LoopStep};
use ralph_bot::domain::model::ids::Money;
use ralph_bot::domain::providers::backends::{ClaimedState, CooldownReason, DisabledFor};
use ralph_bot::store::{calls, session};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::service::{Service, stop};
use crate::harness::{Setup, World, on_one_forge, parts, prepared_story, story};

on_one_forge!(
    files_are_searchable_by_path,
    session_continues_until_full,
    resumed_session_gets_attempts_summaries_and_warnings,
    refused_run_continues_on_next_backend,
    declined_task_goes_to_the_next_backend,
    crashed_or_hanging_backend_is_replaced_by_next,
    missing_model_falls_back_to_next_backend,
    unavailable_scheduled_backend_falls_back,
    loop_waits_while_all_backends_cool_down,
    enabled_backend_continues_waiting_loops_of_a_running_service,
    logged_out_backend_needs_a_person,
    schedule_rule_pauses_the_loop,
    daily_budget_is_not_exceeded,
    spent_daily_budget_resumes_next_day,
    long_wait_is_reported_once,
    model_change_and_retry_start_new_session,
    model_rules_override_control,
    lost_session_costs_no_iteration,
    overlong_session_costs_no_iteration,
    usage_is_shown_in_metrics_and_pull_request,
    estimated_cost_is_marked,
    prompts_are_stored_with_their_turns,
    session_events_are_searchable,
    oversized_prompt_is_passed_as_file,
    run_over_budget_is_stopped,
    changes_of_refused_run_are_kept_after_tool_use,
    agent_queries_session_memory,
    denied_tools_are_named_once,
);

/// Output of Claude Code when its provider refuses it.
const REFUSED: &str = r#"{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"API Error: Request rejected (429) · rate limit exceeded, try again in 90s","duration_ms":5,"num_turns":1,"session_id":"s"}"#;
/// Output of Claude Code with an invalid key.
const NO_LOGIN: &str = r#"{"type":"result","subtype":"success","is_error":true,"api_error_status":401,"result":"Failed to authenticate. API Error: 401 invalid x-api-key","duration_ms":5,"num_turns":1,"session_id":"s"}"#;
/// Output of Claude Code after a successful run.
const WORKED: &str = r#"{"type":"result","subtype":"success","is_error":false,"terminal_reason":"completed","result":"done","total_cost_usd":0.25,"duration_ms":5,"num_turns":1,"session_id":"s","usage":{"input_tokens":10,"output_tokens":5}}"#;

/// Agent with the output format of Claude Code that was denied a tool in each iteration.
async fn denied_tools_are_named_once(dialect: Dialect) {
    let denied = WORKED.replace(
        "\"usage\"",
        "\"permission_denials\":[{\"tool_name\":\"Bash\",\"tool_use_id\":\"t\",\"tool_input\":{}}],\"usage\"",
    );
    let script = printing(&denied, "echo 4$RALPH_ITERATION >answer.txt").replace("exit 1", "exit 0");
    let command = serde_json::to_string(&["/bin/sh", "-c", &script, "claude"]).expect("a list");
    let config =
        format!("  claude: {{ enabled: true, command: {command} }}\npriority: {{ agent: [claude] }}\n{LIMITS}");
    story(Setup::new(dialect).config(&config), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 2), "{}", done.why);
        let comments = world.bot_comments();
        let named: Vec<&String> =
            comments.iter().filter(|text| text.contains("permissions denied tools: `Bash`")).collect();
        assert_eq!(named.len(), 1, "{comments:#?}");
        assert!(named[0].contains("Iteration 1 of 10"), "{}", named[0]);
    })
    .await;
}

fn printing(line: &str, before: &str) -> String {
    format!("{before}\ncat >/dev/null\nprintf '%s\\n' '{line}'\nexit 1")
}

/// Backend with the output format of Claude Code that prints a line.
fn claude(line: &str) -> String {
    let command = serde_json::to_string(&["/bin/sh", "-c", &printing(line, ""), "claude"]).expect("a list");
    format!("  claude: {{ enabled: true, command: {command} }}\n")
}

const LIMITS: &str = "limits: { comments_per_hour: 1000, comments_per_day: 1000 }\n";

async fn refused_run_continues_on_next_backend(dialect: Dialect) {
    let config = format!("{}priority: {{ agent: [claude, mine] }}\n{LIMITS}", claude(REFUSED));
    story(Setup::new(dialect).config(&config).agent("echo 42 >answer.txt\n"), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 1), "{}", done.why);
        let served = &done.iterations[0].served;
        assert_eq!(served.backend, "mine");
        assert!(served.switched.iter().any(|text| text.contains("claude was left")), "{:?}", served.switched);
        let known = world.engine().store.read(calls::state).await.expect("a state");
        // Only its run says so, and the backend is kept from this loop alone.
        let claude = &known.backends["claude"];
        let claim = claude.claims.of(done.id.as_str(), world.clock.now()).map(|claim| claim.state);
        assert_eq!(claim, Some(ClaimedState::Parked(CooldownReason::Rate)), "{claude:?}");
        assert!(claude.is_active(), "{claude:?}");
        let id = done.id.clone();
        let booked = world.engine().store.read(move |c| calls::of_loop(c, &id)).await.expect("calls");
        let outcomes: Vec<_> = booked.iter().map(|call| (call.backend.as_str(), call.outcome.as_deref())).collect();
        assert_eq!(outcomes, [("claude", Some("limited")), ("mine", Some("finished"))]);
        // Rules see no error: the run that did the work had none.
        let facts = done.rule_facts("mine", world.clock.now());
        assert_eq!((facts.last_error, facts.consec_errors, facts.error_count), (None, 0, 0));
    })
    .await;
}

/// Output of Claude Code when its provider declines the task.
const DECLINED: &str = r#"{"type":"result","subtype":"success","is_error":true,"api_error_status":null,"result":"API Error: Claude Code is unable to respond to this request, which appears to violate our Usage Policy (https://www.anthropic.com/legal/aup).","duration_ms":5,"num_turns":1,"session_id":"s"}"#;

async fn declined_task_goes_to_the_next_backend(dialect: Dialect) {
    let config = format!("{}priority: {{ agent: [claude, mine] }}\n{LIMITS}", claude(DECLINED));
    story(Setup::new(dialect).config(&config).agent("echo 42 >answer.txt\n"), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 1), "{}", done.why);
        let served = &done.iterations[0].served;
        assert_eq!(served.backend, "mine");
        let left = "claude was left, refused by its usage policy";
        assert!(served.switched.iter().any(|text| text.starts_with(left)), "{:?}", served.switched);
        let known = world.engine().store.read(calls::state).await.expect("a state");
        let claude = &known.backends["claude"];
        assert!(claude.is_active() && claude.claims.refusals.is_empty(), "{claude:?}");
    })
    .await;
    story(Setup::new(dialect).config(&config), async |world| {
        world.comment("/ralph run --backend claude").await;
        world.settle().await;
        let paused = world.the_loop().await;
        assert_eq!((paused.state, paused.spent.iterations), (LoopState::Paused, 0), "{}", paused.why);
        assert!(paused.why.contains("refused by its usage policy"), "{}", paused.why);
    })
    .await;
}

async fn crashed_or_hanging_backend_is_replaced_by_next(dialect: Dialect) {
    for broken in ["exit 7", "sleep 600"] {
        let command = serde_json::to_string(&["/bin/sh", "-c", broken]).expect("a list");
        let config = format!(
            "  bad: {{ type: script, command: {command} }}\npriority: {{ agent: [bad, mine] }}\nlimits: {{ agent_idle: 1s, comments_per_hour: 1000, comments_per_day: 1000 }}\n"
        );
        story(Setup::new(dialect).config(&config), async |world| {
            let done = world.run().await;
            let served: Vec<_> = done.iterations.iter().map(|i| i.served.backend.as_str()).collect();
            assert_eq!((done.state, served), (LoopState::Review, vec!["bad", "mine"]), "{broken}: {}", done.why);
        })
        .await;
    }
}

/// Output of Claude Code when its provider lacks the model.
const NO_MODEL: &str = r#"{"type":"result","subtype":"success","is_error":true,"api_error_status":404,"result":"API Error: 404 {\"type\":\"error\",\"error\":{\"type\":\"not_found_error\",\"message\":\"model: gone\"}}","duration_ms":5,"num_turns":1,"session_id":"s"}"#;

async fn missing_model_falls_back_to_next_backend(dialect: Dialect) {
    let script = format!(
        "cat >/dev/null\ncase \"$*\" in *'--model gone'*) echo '{NO_MODEL}'; exit 1;; esac\necho 42 >answer.txt\necho '{WORKED}'"
    );
    let command = serde_json::to_string(&["/bin/sh", "-c", &script, "claude"]).expect("a list");
    let config = format!(
        "  claude: {{ enabled: true, command: {command}, models: {{ default: gone, cheap: here }} }}\npriority: {{ agent: [claude] }}\n{LIMITS}"
    );
    story(Setup::new(dialect).config(&config), async |world| {
        world.comment("/ralph run --backend claude").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 1), "{}", done.why);
        assert_eq!(done.iterations[0].served.model.as_deref(), Some("here"));
        let id = done.id.clone();
        let booked = world.engine().store.read(move |c| calls::of_loop(c, &id)).await.expect("calls");
        let models: Vec<_> = booked.iter().map(|call| call.model.as_deref()).collect();
        assert_eq!(models, [Some("gone"), Some("here")]);
    })
    .await;
}

async fn unavailable_scheduled_backend_falls_back(dialect: Dialect) {
    let schedule = "schedule: [{ trigger: { at_iteration: 1 }, action: switch_backend, backend: claude }]\n";
    let config = format!("{}{schedule}{LIMITS}priority: {{ agent: [mine, claude] }}\n", claude(REFUSED));
    story(
        Setup::new(dialect)
            .config(&config)
            .agent("echo $RALPH_ITERATION >answer.txt\n[ $RALPH_ITERATION = 3 ] && echo 42 >answer.txt\ntrue\n"),
        async |world| {
            let done = world.run().await;
            assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 3), "{}", done.why);
            let second = &done.iterations[1].served;
            assert_eq!(second.backend, "mine");
            assert!(second.switched.iter().any(|text| text.contains("claude was left")), "{:?}", second.switched);
        },
    )
    .await;
}

/// See docs/research/faults.md#a12.
async fn loop_waits_while_all_backends_cool_down(dialect: Dialect) {
    let with_agent = |world: &mut World| {
        let agent = world.folder.path().join("agent.sh");
        world.setup.config = format!(
            "  claude: {{ enabled: true, command: [\"/bin/sh\", \"{}\", \"claude\"] }}\npriority: {{ agent: [claude] }}\n{LIMITS}",
            agent.display()
        );
    };
    prepared_story(Setup::new(dialect).agent(&printing(REFUSED, "")), with_agent, async |world| {
        world.comment("/ralph run --backend claude").await;
        world.settle().await;
        let waiting = world.the_loop().await;
        assert_eq!((waiting.state, waiting.spent.iterations), (LoopState::Waiting, 0), "{}", waiting.why);
        insta::assert_snapshot!("waiting_for_a_provider", world.conversation());
        // After a restart the loop still waits, and no provider is called.
        world.restart().await;
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Waiting);
        world.write_agent(&printing(WORKED, "echo 42 >answer.txt").replace("exit 1", "exit 0"));
        world.advance(Duration::from_secs(180)).await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 1), "{}", done.why);
        assert_eq!(done.spent.cost, Money::from_usd(0.25));
    })
    .await;
}

async fn logged_out_backend_needs_a_person(dialect: Dialect) {
    let config = format!("{}priority: {{ agent: [claude, mine] }}\n{LIMITS}", claude(NO_LOGIN));
    story(Setup::new(dialect).config(&config).agent("echo 42 >answer.txt\n"), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 1), "{}", done.why);
        let known = world.engine().store.read(calls::state).await.expect("a state");
        let claude = &known.backends["claude"];
        let claim = claude.claims.of(done.id.as_str(), world.clock.now()).map(|claim| claim.state);
        assert_eq!(claim, Some(ClaimedState::Disabled(DisabledFor::Auth)), "{claude:?}");
        assert!(claude.is_active(), "{claude:?}");
    })
    .await;
}

/// The operator's command runs in another process than the service.
async fn enabled_backend_continues_waiting_loops_of_a_running_service(dialect: Dialect) {
    let flag = tempfile::tempdir().expect("a folder");
    let refused = printing(&REFUSED.replace("try again in 90s", "try again in 5 hours"), "");
    let worked = printing(WORKED, "echo 42 >answer.txt").replace("exit 1", "exit 0");
    let script = format!("if [ -e {}/again ]; then\n{worked}\nfi\n{refused}", flag.path().display());
    let command = serde_json::to_string(&["/bin/sh", "-c", &script, "claude"]).expect("a list");
    let config =
        format!("  claude: {{ enabled: true, command: {command} }}\npriority: {{ agent: [claude] }}\n{LIMITS}");
    let service = Service::new(Setup::new(dialect).config(&config), false).await;
    let world = &service.world;
    let mut child = service.spawn("all", None);
    service.until("the service to listen", async || service.listens().await).await;
    world.comment("/ralph run --backend claude").await;
    let waiting = service.until_loop("the wait", |l| l.state == LoopState::Waiting).await;
    service.wait_until_idle().await;
    let backends = async |arguments: &[&str]| {
        let mut program = parts::command(env!("CARGO_BIN_EXE_ralph-bot"));
        program.args(["--config", "ralph-control.yaml", "backends"]).args(arguments).current_dir(world.folder.path());
        let said = parts::output(program.env_clear().envs(world.environment())).await;
        String::from_utf8_lossy(&said).into_owned()
    };
    let listed = backends(&["list"]).await;
    let row = listed.lines().find(|line| line.starts_with(waiting.id.as_str())).unwrap_or_default();
    assert!(row.contains("claude: "), "{listed}");
    std::fs::write(flag.path().join("again"), "").expect("written");
    assert!(backends(&["enable", "claude"]).await.contains("loops that wait for a backend continue now"));
    let done = service.until_loop("the review", |l| l.state == LoopState::Review).await;
    assert_eq!(done.spent.iterations, 1, "{}", done.why);
    service.wait_until_idle().await;
    assert!(stop(&mut child).await.success(), "{}", service.log());
    service.finish().await;
}

async fn schedule_rule_pauses_the_loop(dialect: Dialect) {
    let config = format!(
        "schedule:\n  - {{ trigger: {{ when: \"iteration >= 2 && completion < 0.9\" }}, action: pause, reason: have a look }}\n{LIMITS}"
    );
    let agent = "echo \"$RALPH_ITERATION\" >answer.txt\n";
    story(Setup::new(dialect).config(&config).agent(agent), async |world| {
        let stopped = world.run().await;
        assert_eq!((stopped.state, stopped.spent.iterations), (LoopState::Paused, 2), "{}", stopped.why);
        assert!(stopped.why.contains("have a look"), "{}", stopped.why);
        world.comment("/ralph abort").await;
        world.settle().await;
    })
    .await;
}

/// See docs/research/threats.md#p15.
async fn daily_budget_is_not_exceeded(dialect: Dialect) {
    let worked = printing(WORKED, "echo $RALPH_ITERATION >answer.txt").replace("exit 1", "exit 0");
    let command = serde_json::to_string(&["/bin/sh", "-c", &worked, "claude"]).expect("a list");
    let config = format!(
        "  claude: {{ enabled: true, command: {command} }}\npriority: {{ agent: [claude] }}\nlimits: {{ cost_usd: 0.6, cost_usd_per_day: 0.6, comments_per_hour: 1000, comments_per_day: 1000 }}\noversight: {{ stuck: {{ enabled: false }}, resource_burn: {{ enabled: false }} }}"
    );
    story(Setup::new(dialect).config(&config), async |world| {
        world.comment("/ralph run --backend claude").await;
        world.settle().await;
        let stopped = world.the_loop().await;
        assert_eq!(stopped.state, LoopState::LimitReached, "{}", stopped.why);
        assert_eq!(stopped.spent.cost, Money::from_usd(0.5), "{}", stopped.why);
        assert!(stopped.why.contains("$0.60") && stopped.why.contains("the next run needs about"), "{}", stopped.why);
        world.comment("/ralph abort").await;
        world.settle().await;
    })
    .await;
}

async fn estimated_cost_is_marked(dialect: Dialect) {
    let silent = WORKED.replace("\"total_cost_usd\":0.25,", "");
    let worked = printing(&silent, "echo 42 >answer.txt").replace("exit 1", "exit 0");
    let command = serde_json::to_string(&["/bin/sh", "-c", &worked, "second"]).expect("a list");
    let priced = "models: { default: small }, prices: { small: { input: 10000, output: 10000 } }";
    let config = format!(
        "  second: {{ type: script, output: claude, command: {command}, roles: [agent], {priced} }}\npriority: {{ agent: [second] }}\n{LIMITS}"
    );
    story(Setup::new(dialect).config(&config), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.cost), (LoopState::Review, Money::from_usd(0.15)), "{}", done.why);
        for text in ["second (small)", "The cost is estimated from published prices"] {
            assert!(world.bot_commented(text), "{text}: {:#?}", world.bot_comments());
        }
        let pull = world.the_pull().await;
        assert!(pull.body.contains("$0.15 (second about $0.15)"), "{}", pull.body);
    })
    .await;
}

async fn prompts_are_stored_with_their_turns(dialect: Dialect) {
    let mut setup = Setup::new(dialect);
    let token = format!("ghp_{}", "a1B2".repeat(9));
    setup.body = format!("It should be 42, says {token}.");
    story(setup, async |world| {
        let done = world.run().await;
        let (id, of) = (done.id.clone(), done.id.clone());
        let turns = world.engine().store.read(move |c| session::turns(c, &id, 1..=9)).await.expect("turns");
        assert_eq!(turns.len() as u32, done.spent.iterations);
        assert!(turns[0].prompt.contains(done.task.text.title()) && turns[0].backend == "mine", "{}", turns[0].prompt);
        // Agents find people's texts by search, without secrets.
        assert!(turns[0].prompt.contains("42, says ***") && !turns[0].prompt.contains(&token), "{}", turns[0].prompt);
        let session_query = SessionQuery { query: token, ..SessionQuery::default() };
        let found =
            world.engine().store.read(move |c| session::search(c, &of, &session_query)).await.expect("searched");
        assert!(!format!("{found:?}").contains("ghp_a1B2"), "{found:?}");
    })
    .await;
}

/// Agent with the output format of Claude Code that edits a file, has a failed tool call, and makes no progress.
const LOST: &str = r#"cat >/dev/null
echo $RALPH_ITERATION >notes.txt
echo '{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"t","name":"Edit","input":{"file_path":"notes.txt"}},{"type":"tool_use","id":"u","name":"Bash","input":{"command":"ls /gone"}}]},"session_id":"s"}'
echo '{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":"done"},{"type":"tool_result","tool_use_id":"u","is_error":true,"content":"no such folder"}]},"session_id":"s"}'
echo '{"type":"result","subtype":"success","is_error":false,"terminal_reason":"completed","result":"looked","session_id":"s","total_cost_usd":0.01,"usage":{}}'"#;

async fn session_events_are_searchable(dialect: Dialect) {
    let command = serde_json::to_string(&["/bin/sh", "-c", LOST, "lost"]).expect("a list");
    let rules = "models: { default: small, rules: [{ when: \"iteration >= 2\", model: large }] }";
    let config = format!(
        "{}  second: {{ type: script, output: claude, command: {command}, roles: [agent], {rules} }}\npriority: {{ agent: [claude, second] }}\n{LIMITS}oversight: {{ redirects: 1 }}\n",
        claude(&REFUSED.replace("try again in 90s", "try again in 4 hours"))
    );
    story(Setup::new(dialect).config(&config), async |world| {
        world.label().await;
        world.settle_until("its checks", |l| !l.checks.list.is_empty()).await;
        let token = format!("ghp_{}", "a1B2".repeat(9));
        world.comment(&format!("/ralph guide Mind the line feed and {token}")).await;
        world.settle().await;
        let paused = world.the_loop().await;
        assert_eq!(paused.state, LoopState::Paused, "{}", paused.why);
        let found = async |kind: EventKind| {
            let (id, asked) = (paused.id.clone(), SessionQuery { event_types: vec![kind], ..SessionQuery::default() });
            let found = world.engine().store.read(move |c| session::search(c, &id, &asked)).await.expect("searched");
            format!("{found:#?}")
        };
        for (kind, words) in [
            (EventKind::ToolCall, "ls /gone"),
            (EventKind::ToolResult, "no such folder"),
            (EventKind::FileChange, "notes.txt"),
            (EventKind::BackendSwitch, "second ran; claude was left"),
            (EventKind::ModelSwitch, "second ran with large instead of small"),
            (EventKind::Check, "exit code 1: the answer is #"),
            (EventKind::Detection, "The loop is stuck"),
            (EventKind::Intervention, "REDIRECT"),
            (EventKind::Command, "mira: /ralph guide Mind the line feed and ***"),
        ] {
            let found = found(kind).await;
            assert!(found.contains(words), "{kind}: {found}");
        }
        world.comment("/ralph abort").await;
        world.settle().await;
        // The end of a loop mentions them.
        let id = paused.id.clone();
        let summary = world.engine().store.read(move |c| session::summaries(c, &id, 0)).await.expect("read").pop();
        let summary = summary.expect("a summary");
        assert!(summary.decisions.iter().any(|line| line.contains("intervention: ")), "{summary:#?}");
    })
    .await;
}

/// Agent with the output format of Claude Code that reports absolute paths, and changes other files by its shell.
const EDITS: &str = r#"cat >/dev/null
mkdir -p src/deep; echo new >src/deep/new.txt; echo changed >README.md; git rm -q --cached old.txt; rm old.txt; echo 42 >answer.txt
echo '{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"t","name":"Edit","input":{"file_path":"'$PWD'/answer.txt"}},{"type":"tool_use","id":"u","name":"Read","input":{"file_path":"'$PWD'/src/../check.sh"}}]},"session_id":"s"}'
echo '{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":"done"},{"type":"tool_result","tool_use_id":"u","content":"sh"}]},"session_id":"s"}'
echo '{"type":"result","subtype":"success","is_error":false,"terminal_reason":"completed","result":"done","session_id":"s","total_cost_usd":0.01,"usage":{}}'"#;

/// Files of the session memory are relative to the tree, and the commit's changes are known for every way of changing them.
async fn files_are_searchable_by_path(dialect: Dialect) {
    let command = serde_json::to_string(&["/bin/sh", "-c", EDITS, "edits"]).expect("a list");
    let config = format!(
        "  edits: {{ type: script, output: claude, command: {command}, roles: [agent] }}\npriority: {{ agent: [edits] }}\n{LIMITS}"
    );
    story(Setup::new(dialect).file("old.txt", "old\n").config(&config), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 1), "{} {:?}", done.why, done.iterations);
        let found = async |glob: &str| {
            let (id, asked) =
                (done.id.clone(), SessionQuery { paths: vec![glob.to_owned()], ..SessionQuery::default() });
            let found = world.engine().store.read(move |c| session::search(c, &id, &asked)).await.expect("searched");
            let of_event = |hit: &Hit| match hit {
                Hit::Event(event) => format!("{} {}: {}", event.kind, event.path.as_deref().unwrap_or("?"), event.text),
                other => panic!("no event: {other:?}"),
            };
            let mut events: Vec<String> = found.hits.iter().map(of_event).collect();
            events.sort();
            events
        };
        assert_eq!(found("src/**").await, ["file_change src/deep/new.txt: created, +1 -0"]);
        assert_eq!(found("old.txt").await, ["file_change old.txt: deleted, +0 -1"]);
        assert_eq!(found("*.md").await, ["file_change README.md: modified, +1 -1"]);
        let answer = found("answer.txt").await;
        assert!(answer.contains(&"file_change answer.txt: edited by the agent".to_owned()), "{answer:?}");
        assert!(answer.contains(&"file_change answer.txt: modified, +1 -1".to_owned()), "{answer:?}");
        assert!(answer.contains(&"tool_call answer.txt: answer.txt".to_owned()), "{answer:?}");
        assert_eq!(found("check.sh").await, ["tool_call check.sh: check.sh"]);
    })
    .await;
}

/// Agent with its prompt as an argument, and a task that is too long for an argument.
async fn oversized_prompt_is_passed_as_file(dialect: Dialect) {
    let script = r#"case "$1" in 'Read the file '*) ;; *) echo "$1" | head -c 99; exit 3 ;; esac
file=${1#Read the file }
grep -q 'the last words of it' "${file%% and do*}" && echo 42 >answer.txt"#;
    let command = serde_json::to_string(&["/bin/sh", "-c", script, "long"]).expect("a list");
    let backend = format!("  long: {{ type: external, command: {command}, args: ['{{prompt}}'], stdin: none }}");
    let mut setup =
        Setup::new(dialect).isolated().config(&format!("{backend}\npriority: {{ agent: [long] }}\n{LIMITS}"));
    setup.body = format!("It should be 42.\n\n{}\n\nThese are the last words of it.", "\u{6f22}".repeat(50_000));
    story(setup, async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 1), "{} {:?}", done.why, done.iterations);
    })
    .await;
}

async fn spent_daily_budget_resumes_next_day(dialect: Dialect) {
    let worked = printing(WORKED, "echo $RALPH_ITERATION >answer.txt").replace("exit 1", "exit 0");
    let command = serde_json::to_string(&["/bin/sh", "-c", &worked, "claude"]).expect("a list");
    let config = format!(
        "  claude: {{ enabled: true, command: {command} }}\npriority: {{ agent: [claude] }}\nlimits: {{ cost_usd: 0.6, cost_usd_per_day: 0.6, iterations: 3, comments_per_hour: 1000, comments_per_day: 1000 }}\noversight: {{ stuck: {{ enabled: false }}, resource_burn: {{ enabled: false }} }}"
    );
    story(Setup::new(dialect).config(&config), async |world| {
        world.comment("/ralph run --backend claude --budget 9").await;
        world.settle().await;
        let waiting = world.the_loop().await;
        assert_eq!((waiting.state, waiting.spent.iterations), (LoopState::Waiting, 2), "{}", waiting.why);
        assert!(waiting.why.contains("the service's budget for the day is $0.60"), "{}", waiting.why);
        assert!(waiting.why.contains("the wait ends at 2026-09-22 00:00 UTC"), "{}", waiting.why);
        assert!(
            world.bot_commented("Waiting until 2026-09-22 00:00 UTC") && world.bot_commented("no action is needed")
        );
        assert!(world.escalations().is_empty(), "an escalation was opened for a wait");
        assert_eq!(world.state_labels(), ["waiting"]);
        // A restart forgets nothing, and the budget is not renewed before the day is over.
        world.restart().await;
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Waiting);
        let until_midnight = 1_790_035_200_000 - world.clock.now().0;
        world.advance(Duration::from_millis(u64::try_from(until_midnight - 1_000).expect("the day is not over"))).await;
        assert_eq!(world.the_loop().await.state, LoopState::Waiting);
        world.advance(Duration::from_secs(1)).await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::LimitReached, 3), "{}", done.why);
        assert!(done.why.contains("iterations"), "{}", done.why);
        let notices = world.bot_comments().iter().filter(|text| text.contains("Waiting until")).count();
        assert_eq!(notices, 1, "{:#?}", world.bot_comments());
        world.comment("/ralph abort").await;
        world.settle().await;
    })
    .await;
}

async fn long_wait_is_reported_once(dialect: Dialect) {
    let refused = REFUSED.replace("try again in 90s", "try again in 40 minutes");
    let config = format!("{}priority: {{ agent: [claude] }}\n{LIMITS}", claude(&refused));
    story(Setup::new(dialect).config(&config), async |world| {
        let mentions = |world: &World| world.bot_comments().iter().filter(|text| text.contains("@mira")).count();
        world.comment("/ralph run --backend claude").await;
        world.settle().await;
        assert_eq!(
            (world.the_loop().await.state, mentions(world)),
            (LoopState::Waiting, 0),
            "{:#?}",
            world.bot_comments()
        );
        // The provider refuses again and again: by now more than an hour in all.
        for _ in 0..3 {
            world.advance(Duration::from_secs(45 * 60)).await;
            assert_eq!(
                (world.the_loop().await.state, mentions(world)),
                (LoopState::Waiting, 1),
                "{:#?}",
                world.bot_comments()
            );
            world.restart().await;
            world.settle().await;
        }
        assert!(world.escalations().is_empty());
        world.comment("/ralph abort").await;
        world.settle().await;
    })
    .await;
}

/// Sessions of Claude Code: each turn adds 300 tokens to a context of 1,000 and accumulates the session's cost. Its
/// arguments go to `calls` in the tree. MODE is `fill`, `forget` (the session is unknown), or `overflow` (sessions are
/// too long immediately).
const TALKS: &str = r#"
cat >/dev/null
echo "$*" | grep -q -- '--resume' && how=resumed || how=fresh
if [ $how = resumed ] && { [ MODE = forget ] || [ ! -f "$HOME/.claude/projects/x/s.jsonl" ]; }; then
  echo '{"type":"result","subtype":"error_during_execution","is_error":true,"session_id":"s","total_cost_usd":0,"usage":{},"errors":["No conversation found with session ID: s"]}'
  exit 1
fi
if [ $how = resumed ] && [ MODE = overflow ]; then
  echo '{"type":"result","subtype":"success","is_error":true,"api_error_status":400,"result":"API Error: 400 prompt is too long: 210000 tokens > 200000 maximum","session_id":"s","total_cost_usd":0,"usage":{}}'
  exit 1
fi
[ -f "$HOME/.bashrc" ] && echo poisoned >>calls
echo "$how $(echo "$*" | sed -n 's/.*--model \([a-z]*\).*/\1/p')$(echo "$*" | sed -n 's/.*--max-turns \([0-9]*\).*/ \1/p')" >>calls
mkdir -p "$HOME/.claude/projects/x"; echo turn >>"$HOME/.claude/projects/x/s.jsonl"; echo 'touch x' >"$HOME/.bashrc"
n=$(wc -l <"$HOME/.claude/projects/x/s.jsonl")
echo $RALPH_ITERATION >answer.txt
echo '{"type":"assistant","message":{"id":"m'$n'","content":[{"type":"tool_use","id":"t'$n'","name":"Edit","input":{"file_path":"answer.txt"}},{"type":"text","text":"done"}],"usage":{"input_tokens":'$((n * 300 - 50))',"output_tokens":50}},"session_id":"s"}'
echo '{"type":"result","subtype":"success","is_error":false,"terminal_reason":"completed","result":"done","total_cost_usd":0.'$((n * 2))',"session_id":"s","usage":{"input_tokens":'$((n * 300 - 50))',"output_tokens":50},"modelUsage":{"m":{"inputTokens":'$((150 * n * (n + 1) - 50 * n))',"outputTokens":'$((n * 50))',"contextWindow":1000}}}'
"#;

pub(super) fn talks(mode: &str, more: &str) -> String {
    let script = TALKS.replace("MODE", mode);
    let command = serde_json::to_string(&["/bin/sh", "-c", &script, "claude"]).expect("a list");
    format!(
        "  claude: {{ enabled: true, command: {command}{more} }}\npriority: {{ agent: [claude] }}\nlimits: {{ iterations: 4, comments_per_hour: 1000, comments_per_day: 1000 }}\noversight: {{ stuck: {{ enabled: false }}, resource_burn: {{ enabled: false }} }}\n"
    )
}

/// Arguments of the agent's runs, from the file on the loop's branch.
async fn calls_of(world: &World) -> Vec<String> {
    let branch = world.the_loop().await.branch.name;
    let text = world.file(&branch, "calls").await.unwrap_or_default();
    text.lines().map(|line| line.trim().to_owned()).collect()
}

/// Attempts without a gain, the summary of iterations, and active warnings are in prompts that continue a session.
async fn resumed_session_gets_attempts_summaries_and_warnings(dialect: Dialect) {
    // The agent changes five files outside of the scope.
    let many = "for file in answer.txt answer.1 answer.2 answer.3; do echo $RALPH_ITERATION >$file; done";
    let config = talks("fill", "").replace("echo $RALPH_ITERATION >answer.txt", many);
    // A larger window, so that the session is never full.
    let config = config.replace(":1000}}}", ":9000}}}").replace("iterations: 4", "iterations: 5");
    let file = "checks: [sh check.sh]\ntask: { scope: [src/parser] }\n";
    let setup = Setup::new(dialect).file(".ralph.yml", file);
    story(setup.config(&format!("{config}memory: {{ summary_interval: 2 }}\n")), async |world| {
        world.comment("/ralph run --backend claude").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::LimitReached, 5), "{}", done.why);
        // After the redirect, the last run has a separate session.
        assert_eq!(calls_of(world).await, ["fresh", "resumed", "resumed", "resumed", "fresh"]);
        let prompts = world.prompts().await;
        let with = |text: &str| prompts.iter().map(|prompt| prompt.contains(text)).collect::<Vec<bool>>();
        assert_eq!(
            with("- Tried in iteration 1: done; still failing")[..4],
            [false, true, false, false],
            "{prompts:#?}"
        );
        assert_eq!(
            with("- Tried in iteration 2: done; still failing")[..4],
            [false, false, true, false],
            "{prompts:#?}"
        );
        assert_eq!(with("- Iterations 1 to 2: ")[..4], [false, false, true, false], "{prompts:#?}");
        let warned = with("\nWARNING: ");
        assert!(warned[3], "a resumed session was not told of the warning: {}", prompts[3]);
        let evidence = with("files outside of the task's scope were changed");
        assert!(warned.iter().zip(&evidence).all(|(warned, told)| !warned || *told), "{prompts:#?}");
    })
    .await;
}

async fn session_continues_until_full(dialect: Dialect) {
    story(Setup::new(dialect).config(&talks("fill", "")), async |world| {
        world.comment("/ralph run --backend claude").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::LimitReached, 4), "{}", done.why);
        // 30, 60, 90 percent; from 85 on a session is not resumed. Nothing else of a home lives on.
        assert_eq!(calls_of(world).await, ["fresh", "resumed", "resumed", "fresh"]);
        let served: Vec<_> = done.iterations.iter().map(|i| (i.served.resumed, i.served.context_pct)).collect();
        assert_eq!(served, [(false, Some(30.0)), (true, Some(60.0)), (true, Some(90.0)), (false, Some(30.0))]);
        assert_eq!(done.rule_facts("claude", done.updated_at).context_pct, 30.0, "rules know it");
        // The CLI adds up over a session; each iteration is charged its own cost.
        assert!(done.iterations.iter().all(|i| i.cost == Money::from_usd(0.2)), "{:?}", done.spent);
        assert_eq!((done.spent.cost, done.spent.tokens_in), (Money::from_usd(0.8), 1900));
        assert!(done.iterations.iter().all(|i| i.tools == ["Edit"]), "the tools of an iteration were not recorded");
        // A fresh session gets the whole context block, a resumed one only new facts.
        let prompts = world.prompts().await;
        let with = |text: &str| prompts.iter().map(|prompt| prompt.contains(text)).collect::<Vec<bool>>();
        assert_eq!(with("Run by claude"), [true; 4], "{prompts:#?}");
        assert_eq!(with("What is known at this moment"), [true, false, false, true]);
        assert_eq!(with("What is new since you were last told"), [false, true, true, false]);
        assert_eq!(with("- Tree: "), [true, false, false, true], "{prompts:#?}");
        assert_eq!(with("- Learned: iteration 1:"), [false, true, false, true], "{prompts:#?}");
        assert_eq!(with("- Learned: iteration 2:"), [false, false, true, true], "{prompts:#?}");
        let session_folder = world.engine().runs.folders.sessions.join(done.id.as_str());
        assert_eq!(
            std::fs::read_dir(&session_folder).expect("the session is kept").count(),
            2,
            "the newest and the one before"
        );
        world.comment("/ralph abort").await;
        world.settle().await;
        assert!(!session_folder.exists(), "nothing of it outlives the loop");
    })
    .await;
}

async fn model_change_and_retry_start_new_session(dialect: Dialect) {
    let rules = ", models: { default: small, rules: [{ when: \"context_pct >= 50\", model: large }] }";
    story(Setup::new(dialect).config(&talks("fill", rules)), async |world| {
        world.comment("/ralph run --backend claude --max-iterations 3").await;
        world.settle().await;
        assert_eq!(calls_of(world).await, ["fresh small", "resumed small", "fresh large"]);
        world.comment("/ralph resume --max-iterations 4").await;
        world.settle().await;
        assert_eq!(calls_of(world).await[3..], ["fresh small"], "the other model's session is not its own");
        world.comment("/ralph resume --max-iterations 6").await;
        let before =
            world.stop_at("the fifth iteration", |l| l.iterations.len() == 5 && l.run.step == LoopStep::Agent).await;
        assert!(
            before.agent.session.is_some_and(|session| session.model.as_deref() == Some("small")),
            "the session would not continue"
        );
        world.comment("/ralph retry").await;
        world.settle().await;
        let done = world.the_loop().await;
        let thrown: Vec<_> = done.iterations.iter().filter(|i| i.discarded).map(|i| i.number).collect();
        assert_eq!((thrown, done.iterations.len()), (vec![5], 6));
        assert!(!done.iterations[5].served.resumed, "{:?}", calls_of(world).await);
        world.comment("/ralph abort").await;
        world.settle().await;
    })
    .await;
}

async fn model_rules_override_control(dialect: Dialect) {
    let models = ", models: { default: small, strong: large, rules: [{ when: \"iteration == 4\", model: ruled }] }";
    let control = "control: { actuators: { effort: { enabled: true }, model: { enabled: true } } }\n";
    let config = talks("fill", models).replace("limits: { ", "limits: { agent_turns: 10, ") + control;
    let adjust: fn(&mut Config) = |config| {
        let actuators = &mut config.policy.thresholds["control"]["actuators"];
        actuators["model"]["strong_above"] = json!(0.5);
        actuators["cause"] = json!("signal");
    };
    story(Setup { adjust, ..Setup::new(dialect).config(&config) }, async |world| {
        world.comment("/ralph run --backend claude").await;
        world.settle().await;
        // Nothing gets better, so the signal rises, and the strong model is for twice in a row above the bound.
        assert_eq!(calls_of(world).await, ["fresh small 10", "resumed small 12", "fresh large 13", "fresh ruled 14"]);
        world.comment("/ralph abort").await;
        world.settle().await;
    })
    .await;
}

async fn lost_session_costs_no_iteration(dialect: Dialect) {
    story(Setup::new(dialect).config(&talks("forget", "")), async |world| {
        world.comment("/ralph run --backend claude --max-iterations 2").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::LimitReached, 2), "{}", done.why);
        assert_eq!(calls_of(world).await, ["fresh", "fresh"]);
        let (id, of) = (done.id.clone(), done.id.clone());
        let booked = world.engine().store.read(move |c| calls::of_loop(c, &id)).await.expect("calls");
        let outcomes: Vec<_> = booked.iter().map(|call| (call.iteration, call.outcome.as_deref())).collect();
        assert_eq!(outcomes, [(1, Some("finished")), (2, Some("ended")), (2, Some("finished"))]);
        assert!(done.iterations[1].served.switched.is_empty() && done.iterations[1].agent_problem.is_empty());
        let known = world.engine().store.read(calls::state).await.expect("a state");
        assert_eq!(known.backends["claude"].consecutive_errors, 0, "that is no error of the backend");
        // The same where the files went, as on another machine.
        let folder = world.engine().runs.folders.sessions.join(of.as_str());
        std::fs::remove_dir_all(&folder).expect("it was there");
        world.comment("/ralph resume --max-iterations 3").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.spent.iterations, done.agent.failures), (3, 0), "{}", done.why);
        assert_eq!(calls_of(world).await.len(), 3);
        world.comment("/ralph abort").await;
        world.settle().await;
    })
    .await;
}

async fn overlong_session_costs_no_iteration(dialect: Dialect) {
    story(Setup::new(dialect).config(&talks("overflow", "")), async |world| {
        world.comment("/ralph run --backend claude --max-iterations 2").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::LimitReached, 2), "{}", done.why);
        assert_eq!(calls_of(world).await, ["fresh", "fresh"]);
        let id = done.id.clone();
        let booked = world.engine().store.read(move |c| calls::of_loop(c, &id)).await.expect("calls");
        let outcomes: Vec<_> = booked.iter().map(|call| (call.iteration, call.outcome.as_deref())).collect();
        assert_eq!(outcomes, [(1, Some("finished")), (2, Some("limited")), (2, Some("finished"))]);
        let known = world.engine().store.read(calls::state).await.expect("a state");
        assert!(known.backends["claude"].is_active(), "{:?}", known.backends["claude"]);
        world.comment("/ralph abort").await;
        world.settle().await;
    })
    .await;
}

/// Metrics as a monitoring system scrapes them.
async fn scraped(world: &World) -> String {
    let address = world.app().address.expect("the service listens");
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("asked");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("answered");
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    text
}

async fn usage_is_shown_in_metrics_and_pull_request(dialect: Dialect) {
    let worked = printing(WORKED, "echo 42 >answer.txt").replace("exit 1", "exit 0");
    let command = serde_json::to_string(&["/bin/sh", "-c", &worked, "codex"]).expect("a list");
    let config = format!(
        "{}  second: {{ type: script, output: claude, command: {command}, roles: [agent] }}\npriority: {{ agent: [claude, second] }}\n{LIMITS}",
        claude(REFUSED)
    );
    story(Setup::new(dialect).config(&config), async |world| {
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let figures = scraped(world).await;
        for line in [
            "ralph_cost_usd_total{backend=\"second\",role=\"agent\"} 0.25",
            "ralph_backend_calls_total{backend=\"claude\",role=\"agent\",outcome=\"limited\"} 1",
            "ralph_backend_calls_total{backend=\"second\",role=\"agent\",outcome=\"finished\"} 1",
            "ralph_tokens_total{backend=\"second\",role=\"agent\",kind=\"input\"} 10",
            "ralph_tokens_total{backend=\"second\",role=\"agent\",kind=\"output\"} 5",
            // Only its run reported the refusal, so other loops still use it.
            "ralph_backend_state{backend=\"claude\",state=\"parked\"} 0",
            "ralph_backend_state{backend=\"claude\",state=\"active\"} 1",
            "ralph_backend_state{backend=\"second\",state=\"active\"} 1",
            "ralph_backend_state{backend=\"mine\",state=\"disabled\"} 0",
            "ralph_backend_parks_total{backend=\"claude\",reason=\"claimed\"} 1",
        ] {
            assert!(figures.lines().any(|found| found == line), "{line} is missing in\n{figures}");
        }
        assert!(!figures.contains(done.id.as_str()) && !figures.contains("mira/app"), "labels come from small sets");
        let pull = world.the_pull().await;
        assert!(pull.body.contains("$0.25"), "{}", pull.body);
        assert!(world.bot_commented("$0.25"));
    })
    .await;
}

/// Output of opencode after a step, with its cost.
const STEP: &str = r#"{"type":"step_finish","sessionID":"s","part":{"reason":"tool-calls","cost":2.5,"tokens":{"input":10,"output":5,"reasoning":0,"cache":{"read":0,"write":0}}}}"#;
/// Output of Claude Code with a message whose tokens cost 3 dollars, 600,000 of them cached.
const MESSAGE: &str = r#"{"type":"assistant","message":{"id":"m1","model":"claude-sonnet-4-5","content":[{"type":"text","text":"I look."}],"usage":{"input_tokens":940000,"cache_read_input_tokens":600000,"output_tokens":1}},"session_id":"s"}"#;

/// Cost by the agent's own figure, and by the price table before the agent reports one.
async fn run_over_budget_is_stopped(dialect: Dialect) {
    for (backend, line, cost) in [
        ("second: { type: external, output: opencode", STEP, 2_500_000),
        ("claude: { enabled: true, models: { default: our-name }", MESSAGE, 3_000_015),
    ] {
        let script =
            format!("cat >/dev/null\necho 7 >answer.txt\nprintf '%s\\n' '{line}'\nsleep 300 && echo 42 >answer.txt");
        let command = serde_json::to_string(&["/bin/sh", "-c", &script, "agent"]).expect("a list");
        let name = backend.split(':').next().expect("a name");
        let config = format!(
            "  {backend}, command: {command} }}\npriority: {{ agent: [{name}] }}\nlimits: {{ cost_usd: 2, comments_per_hour: 1000, comments_per_day: 1000 }}\n"
        );
        story(Setup::new(dialect).config(&config), async |world| {
            let stopped =
                tokio::time::timeout(Duration::from_secs(200), world.run()).await.expect("not to its own end");
            assert_eq!(stopped.state, LoopState::LimitReached, "{name}: {}", stopped.why);
            assert_eq!(
                (stopped.spent.iterations, stopped.spent.cost),
                (1, Money(cost)),
                "{name}: {:?}",
                stopped.iterations
            );
            assert_eq!(stopped.iterations[0].served.estimated, name == "claude");
            let id = stopped.id.clone();
            let booked = world.engine().store.read(move |c| calls::of_loop(c, &id)).await.expect("calls");
            assert_eq!(booked.iter().map(|call| call.cost).collect::<Vec<_>>(), [Money(cost)], "{name}: booked once");
            world.comment("/ralph abort").await;
            world.settle().await;
        })
        .await;
    }
}

/// Output of Claude Code for a tool call and its result.
fn tool(failed: bool) -> String {
    let call = r#"{"type":"assistant","message":{"id":"m1","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"x"}}]},"session_id":"s"}"#;
    let result = format!(
        r#"{{"type":"user","message":{{"content":[{{"type":"tool_result","tool_use_id":"t1","is_error":{failed},"content":"x"}}]}},"session_id":"s"}}"#
    );
    format!("\nprintf '%s\\n' '{call}' '{result}'")
}

async fn changes_of_refused_run_are_kept_after_tool_use(dialect: Dialect) {
    for (tools, kept) in [(String::new(), false), (tool(true), false), (tool(false), true)] {
        let refused = printing(REFUSED, &format!("echo half >half.txt{tools}"));
        let command = serde_json::to_string(&["/bin/sh", "-c", &refused, "claude"]).expect("a list");
        let config = format!(
            "  claude: {{ enabled: true, command: {command} }}\npriority: {{ agent: [claude, mine] }}\n{LIMITS}"
        );
        let agent = "echo 42 >answer.txt\nls >seen.txt\n\
                     grep -c 'Another agent began this iteration' \"$RALPH_PROMPT_FILE\" >told.txt\n";
        story(Setup::new(dialect).config(&config).agent(agent), async |world| {
            let done = world.run().await;
            assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 1), "{}", done.why);
            assert_eq!(done.iterations[0].served.backend, "mine");
            let observed = world.file(&done.branch.name, "seen.txt").await.expect("it looked");
            assert_eq!(observed.lines().any(|file| file == "half.txt"), kept, "{tools}: {observed}");
            assert_eq!(world.file(&done.branch.name, "half.txt").await.is_some(), kept, "{tools}");
            let announced = world.file(&done.branch.name, "told.txt").await.expect("it looked");
            assert_eq!(announced.trim(), if kept { "1" } else { "0" }, "{tools}");
        })
        .await;
    }
}

/// First run: prints a message. Later runs: search the session memory for it, with the configuration file they are given.
pub(super) const REMEMBERS: &str = r#"cat >/dev/null
if [ "$RALPH_ITERATION" = 1 ]; then echo 7 >answer.txt; echo '{"text":"The walrus sleeps.","usage":{"input_tokens":9}}'; exit 0; fi
program=$(sed 's/.*"command":"\([^"]*\)".*/\1/' "$1") socket=$(sed 's/.*"--socket","\([^"]*\)".*/\1/' "$1")
RALPH_MCP_TOKEN=$(sed 's/.*"RALPH_MCP_TOKEN":"\([^"]*\)".*/\1/' "$1"); export RALPH_MCP_TOKEN
mkfifo "$TMPDIR/in"; "$program" mcp --socket "$socket" <"$TMPDIR/in" >"$TMPDIR/out" & exec 3>"$TMPDIR/in"
printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"agent","version":"1"}}}' '{"jsonrpc":"2.0","method":"notifications/initialized"}' '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"search","arguments":{"query":"walrus","tier":"raw"}}}' >&3
for wait in $(seq 300); do grep -q '"id":2' "$TMPDIR/out" && break; sleep 0.1; done
exec 3>&-; wait; cp "$TMPDIR/out" heard.txt; echo 42 >answer.txt; echo '{"text":"done"}'"#;

async fn agent_queries_session_memory(dialect: Dialect) {
    let command = serde_json::to_string(&["/bin/sh", "-c", REMEMBERS, "agent"]).expect("a list");
    let config = format!(
        "  own: {{ type: external, output: jsonl, command: {command}, args: ['{{mcp_config}}'] }}\npriority: {{ agent: [own] }}\n{LIMITS}"
    );
    story(Setup::new(dialect).isolated().config(&config), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 2), "{}", done.why);
        let answers = world.file(&done.branch.name, "heard.txt").await.expect("it asked");
        assert!(answers.contains("The walrus sleeps.") && answers.contains("iteration 1"), "{answers}");
        // It named neither a cost nor a model for its tokens.
        let unpriced: Vec<_> = done.iterations.iter().map(|iteration| iteration.served.unpriced).collect();
        assert_eq!(unpriced, [true, false]);
        assert!(world.bot_commented("The cost is unknown"), "{:#?}", world.bot_comments());
    })
    .await;
}
