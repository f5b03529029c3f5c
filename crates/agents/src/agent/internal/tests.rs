//! Whole runs: real commands in real trees, with a model that follows a script.

use std::collections::VecDeque;
use std::fs;
use std::sync::Mutex;

use serde_json::{Value, json};

use super::*;
use crate::agent::{AgentStatus, BackendKind, RunImages, RunPurpose};
use crate::domain::model::ids::Timestamp;
use crate::domain::providers::backends::WireName;
use crate::domain::providers::chat::{ChatMessage, ModelStop, ModelTurn, ToolCall, ToolResult};
use crate::domain::providers::limit::LimitSignals;
use crate::process::sandbox::SandboxSettings;
use crate::process::{Cookie, ProbeSettings, probe_sandbox, survivors};
use crate::provider::tests::stub::{Stub, StubReply};
use crate::provider::{ApiClient, ApiSettings};

const SECRET: &str = "swordfish-77";
const NOW: Timestamp = Timestamp(1_700_000_000_000);

type StubAnswer = Result<ChatAnswer, CallError>;

/// A tree, an operator's folder, a scratch folder, and the requests to the model.
struct InternalFixture {
    root: tempfile::TempDir,
    asked: Arc<Mutex<Vec<ChatRequest>>>,
    bounds: InternalAgentLimits,
    commands_outside: bool,
    takes_images: bool,
}

impl InternalFixture {
    fn new() -> Self {
        let bounds = InternalAgentLimits { retry: Duration::from_millis(1), ..InternalAgentLimits::default() };
        let place = Self {
            root: tempfile::tempdir().unwrap(),
            asked: Arc::default(),
            bounds,
            commands_outside: true,
            takes_images: true,
        };
        for folder in ["config", "tree", "scratch"] {
            fs::create_dir(place.at(folder)).unwrap();
        }
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.path().canonicalize().unwrap().join(name)
    }

    fn run(&self) -> AgentRun {
        AgentRun {
            purpose: RunPurpose::Iteration,
            prompt: "mend the sum".into(),
            tree: self.at("tree"),
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

    /// Returns the agent with a model that gives these answers and then hangs.
    fn agent(&self, answers: impl IntoIterator<Item = StubAnswer>) -> Box<dyn Backend> {
        let answers = Mutex::new(answers.into_iter().collect::<VecDeque<_>>());
        let requests = Arc::clone(&self.asked);
        self.agent_on(Arc::new(move |request| {
            requests.lock().unwrap().push(request);
            let answer = answers.lock().unwrap().pop_front();
            Box::pin(async move {
                match answer {
                    Some(answer) => answer,
                    None => std::future::pending().await,
                }
            })
        }))
    }

    fn agent_on(&self, model: ModelFunction) -> Box<dyn Backend> {
        let mut settings = BackendSetup::new(BackendKind::Internal, self.at("config"), "/usr/bin:/bin");
        settings.env = vec![("MODEL_KEY".into(), SECRET.into())];
        settings.models = [("small".to_owned(), "vendor-small-1".to_owned())].into();
        let price = |model: &str, usage: &TokenUsage| (model != "free").then(|| Money(usage.total() as i64));
        let internal = InternalSettings {
            model,
            default_model: "vendor-large-1".into(),
            price: Arc::new(price),
            clock: Clock::manual(NOW),
            bounds: self.bounds.clone(),
            commands_outside: self.commands_outside,
            takes_images: self.takes_images,
        };
        build_internal("own", settings, internal).unwrap()
    }

    async fn outcome(&self, answers: impl IntoIterator<Item = StubAnswer>) -> (AgentOutcome, Vec<AgentEvent>) {
        self.outcome_of(self.agent(answers).as_ref(), self.run()).await
    }

    async fn outcome_of(&self, agent: &dyn Backend, run: AgentRun) -> (AgentOutcome, Vec<AgentEvent>) {
        let mut events = Vec::new();
        let outcome = agent.run(run, &CancellationToken::new(), &mut |event| events.push(event)).await;
        (outcome, events)
    }

    /// Returns the results of the tools in the 0-based turn `turn`.
    fn results(&self, turn: usize) -> Vec<ToolResult> {
        match self.asked.lock().unwrap()[turn + 1].messages.last() {
            Some(ChatMessage::Results(results)) => results.clone(),
            other => panic!("no results: {other:?}"),
        }
    }
}

fn answer(text: &str, calls: &[(&str, Value)], stop: ModelStop) -> StubAnswer {
    let calls = calls.iter().enumerate().map(|(number, (name, arguments))| ToolCall {
        id: format!("c{number}"),
        name: (*name).to_owned(),
        arguments: if let Value::String(text) = arguments { text.clone() } else { arguments.to_string() },
    });
    Ok(ChatAnswer {
        turn: ModelTurn { text: text.into(), calls: calls.collect(), original: Value::Null },
        stop,
        usage: Some(TokenUsage { input: 100, output: 10, cache_read: 1_000, cache_write: 0 }),
        model: "vendor-small-1".into(),
    })
}

fn says(text: &str) -> StubAnswer {
    answer(text, &[], ModelStop::End)
}

fn calls(calls: &[(&str, Value)]) -> StubAnswer {
    answer("", calls, ModelStop::Tools)
}

fn bash(command: &str) -> StubAnswer {
    calls(&[("bash", json!({"command": command}))])
}

fn refused(status: u16, code: Option<&str>, resets_at: Option<i64>) -> StubAnswer {
    let resets_at = resets_at.map(Timestamp);
    let signals =
        LimitSignals { status: Some(status), code: code.map(str::to_owned), resets_at, ..LimitSignals::default() };
    Err(CallError { signals, retryable: status >= 429, what: format!("own (host): HTTP {status}: {SECRET}") })
}

/// Finds a wrong sum, corrects it, runs the test and writes a report.
fn script() -> Vec<StubAnswer> {
    vec![
        answer("I look first.", &[("bash", json!({"command": "ls; sh test.sh"}))], ModelStop::Tools),
        calls(&[("edit", json!({"command": "view", "path": "sum.sh"}))]),
        calls(&[
            ("edit", json!({"command": "str_replace", "path": "sum.sh", "old_str": "$1 - $2", "new_str": "$1 + $2"})),
            ("bash", json!({"command": "sh test.sh && echo x >$HOME/kept && cat $HOME/kept"})),
        ]),
        bash(
            "printf '{\"summary\":\"mended with %s\",\"completion_percentage\":100}' \"$MODEL_KEY\" >\"$RALPH_REPORT\"",
        ),
        says("The sum is right now."),
    ]
}

fn broken_sum(place: &InternalFixture) {
    fs::write(place.at("tree/sum.sh"), "echo $(($1 - $2))\n").unwrap();
    fs::write(place.at("tree/test.sh"), "[ \"$(sh sum.sh 2 3)\" = 5 ] && echo good || { echo bad; exit 1; }\n")
        .unwrap();
}

#[tokio::test]
async fn small_task_is_solved() {
    let place = InternalFixture::new();
    broken_sum(&place);
    let (outcome, events) = place.outcome(script()).await;
    assert_eq!(outcome.status, AgentStatus::Finished, "{outcome:?}");
    assert_eq!(fs::read_to_string(place.at("tree/sum.sh")).unwrap(), "echo $(($1 + $2))\n");
    assert_eq!(outcome.final_message, "The sum is right now.");
    assert_eq!((outcome.tokens_in, outcome.tokens_out, outcome.cost), (5_500, 50, Some(Money(5_550))));
    assert_eq!((outcome.tool_calls, outcome.tool_errors), (5, 1));
    assert_eq!((outcome.cache_read, outcome.stop_reason.as_str(), outcome.signals.succeeded), (5_000, "end", true));
    assert!(events.contains(&AgentEvent::FileChanged { path: "sum.sh".into() }), "{events:?}");
    let report = outcome.report.unwrap();
    assert_eq!((report.summary.as_str(), report.completion_percentage), ("mended with ***", Some(100.0)));
    assert!(outcome.output.contains("sum.sh\ntest.sh\nbad\n[it exited with 1]"), "{}", outcome.output);
    assert!(!outcome.output.contains(SECRET));
    let used = |event: &AgentEvent| {
        matches!(
            event,
            AgentEvent::Used {
                tokens_in: 1_100,
                tokens_out: 10,
                cache_read: 1_000,
                cost: Some(Money(1_110)),
                model: Some(_),
                ..
            }
        )
    };
    assert!(used(&events[0]), "{:?}", events[0]);
    assert_eq!(events[1], AgentEvent::Text { text: "I look first.".into() });
    assert_eq!(events[2], AgentEvent::ToolCalled { name: "bash".into(), input: "ls; sh test.sh".into() });
    assert_eq!(events[3], AgentEvent::ToolFailed { text: "sum.sh\ntest.sh\nbad\n[it exited with 1]".into() });

    let requests = place.asked.lock().unwrap().clone();
    assert_eq!((requests.len(), requests[0].model.as_str(), requests[0].tools.len()), (5, "vendor-small-1", 2));
    assert!(requests.iter().all(|request| request.messages[0] == ChatMessage::User("mend the sum".into())));
    assert!(requests[0].system.contains(place.at("tree").to_str().unwrap()));
    assert_eq!(place.results(1)[0].text, "     1\techo $(($1 - $2))\n");
    assert_eq!(place.results(2)[1].text, "good\nx\n");
}

#[tokio::test]
async fn commands_run_in_the_sandbox() {
    let probe = probe_sandbox(&ProbeSettings { folder: std::env::temp_dir(), ..ProbeSettings::default() }).await;
    if let Err(reason) = &probe.bubblewrap {
        skipped_tests::skip(&format!("bubblewrap does not work here: {reason}"));
        return;
    }
    let place = InternalFixture::new();
    broken_sum(&place);
    fs::write(place.at("config/secrets"), "x").unwrap();
    fs::create_dir(place.at("tree/kept")).unwrap();
    let mut answers = script();
    answers.insert(4, bash("ls ../config /etc/shadow; echo x >kept/a; echo x >/tmp/gone"));
    answers.insert(5, bash("ls /tmp/gone; cat $HOME/kept"));
    let run = AgentRun { sandboxed: true, read_only: vec![place.at("tree/kept")], ..place.run() };
    let (outcome, _) = place.outcome_of(place.agent(answers).as_ref(), run).await;
    assert_eq!(outcome.status, AgentStatus::Finished, "{outcome:?}");
    assert_eq!(outcome.report.unwrap().completion_percentage, Some(100.0));
    let result = place.results(4)[0].text.clone();
    assert_eq!(result.matches("No such file").count(), 2, "{result}");
    assert!(result.contains("Read-only file system"), "{result}");
    assert!(place.results(5)[0].text.ends_with("x\n"));
    assert!(fs::read_dir(place.at("tree/kept")).unwrap().next().is_none());
    let requests = place.asked.lock().unwrap();
    assert!(requests[0].system.contains("There is no network."));
}

#[tokio::test]
async fn planning_run_edits_no_files() {
    let place = InternalFixture::new();
    let edit = ("edit", json!({"command": "create", "path": "made", "file_text": "x"}));
    let look = ("edit", json!({"command": "view", "path": "."}));
    let agent = place.agent([calls(&[edit, look]), says("x")]);
    let (outcome, _) = place.outcome_of(agent.as_ref(), AgentRun { purpose: RunPurpose::Plan, ..place.run() }).await;
    assert_eq!((outcome.status, outcome.tool_errors), (AgentStatus::Finished, 1));
    assert!(place.results(0)[0].text.contains("the files are read-only") && !place.at("tree/made").exists());
    assert!(place.asked.lock().unwrap()[0].system.contains("read-only in this run"));
}

#[tokio::test]
async fn commands_without_sandbox_need_permission() {
    let place = InternalFixture { commands_outside: false, ..InternalFixture::new() };
    let edit = ("edit", json!({"command": "create", "path": "made", "file_text": "x"}));
    let (outcome, _) = place.outcome([calls(&[("bash", json!({"command": "touch ran"})), edit]), says("x")]).await;
    assert_eq!((outcome.status, outcome.tool_errors), (AgentStatus::Finished, 1));
    assert!(place.results(0)[0].text.contains("no sandbox here"), "{:?}", place.results(0));
    assert!(place.at("tree/made").is_file() && !place.at("tree/ran").exists());
    let requests = place.asked.lock().unwrap();
    assert_eq!((requests[0].tools.len(), requests[0].tools[0].name.as_str()), (1, "edit"));
}

#[tokio::test]
async fn invalid_calls_are_answered_and_run_continues() {
    let place = InternalFixture::new();
    let (outcome, _) = place
        .outcome([
            calls(&[
                ("bash", json!("{\"command\": \"ls")),
                ("bash", json!({"script": "ls"})),
                ("python", json!({})),
                ("edit", json!({"command": "view", "path": "../config"})),
                ("edit", json!({"command": "remove", "path": "a"})),
                ("bash", json!({"command": "x".repeat(200_000)})),
                ("bash", json!({"command": "a\u{0}b"})),
                ("bash", json!({"command": "sleep 300", "timeout_seconds": 0.1})),
                ("bash", json!({"command": "kill -9 $$"})),
                ("bash", json!({"command": "seq 100000"})),
                ("bash", json!({"command": "true", "timeout_seconds": -3})),
            ]),
            says("So be it."),
        ])
        .await;
    assert_eq!((outcome.status, outcome.tool_calls, outcome.tool_errors), (AgentStatus::Finished, 11, 9));
    let results = place.results(0);
    for (number, words) in [
        (0, "the arguments of bash are invalid: EOF"),
        (1, "missing field `command`"),
        (2, "there is no tool \"python\"; the tools are bash, edit"),
        (3, "without `..`"),
        (4, "unknown variant `remove`"),
        (5, "too long"),
        (6, "NUL"),
        (7, "ended after 0.1 s; set timeout_seconds"),
        (8, "killed by signal 9"),
        (9, "bytes left out"),
        (10, "(no output)"),
    ] {
        assert!(results[number].text.contains(words), "{number}: {}", results[number].text);
        assert_eq!(results[number].failed, number < 9);
    }
    assert!(results[9].text.starts_with("1\n2\n") && results[9].text.ends_with("100000\n"));
    assert!(results[9].text.len() < 30_000);

    let many: Vec<(&str, Value)> = (0..40).map(|_| ("edit", json!({"command": "view", "path": "."}))).collect();
    let place = InternalFixture::new();
    let (outcome, _) = place.outcome([calls(&many), says("x")]).await;
    assert_eq!((outcome.tool_calls, outcome.tool_errors), (40, 8));
}

#[tokio::test]
async fn limits_end_a_run_and_usage_is_reported() {
    let endless = || (0..20).map(|_| bash("true"));
    let place = InternalFixture::new();
    let run = AgentRun { max_turns: Some(4), ..place.run() };
    let (outcome, _) = place.outcome_of(place.agent(endless()).as_ref(), run).await;
    assert_eq!((outcome.status, outcome.tool_calls), (AgentStatus::Finished, 4));
    assert_eq!(outcome.errors, ["it stopped at its limit of 4 turns"]);
    assert!(place.results(0)[0].text.contains("3 turns are left") && !place.results(1)[0].text.contains("left"));

    let place = InternalFixture::new();
    let run = AgentRun { max_cost: Some(Money(2_000)), ..place.run() };
    let (outcome, _) = place.outcome_of(place.agent(endless()).as_ref(), run).await;
    assert_eq!((outcome.status, outcome.cost, outcome.tool_calls), (AgentStatus::OverBudget, Some(Money(2_220)), 1));

    let run = AgentRun { max_cost: Some(Money(1)), ..place.run() };
    let (outcome, _) = place.outcome_of(place.agent([says("done")]).as_ref(), run).await;
    assert_eq!(outcome.status, AgentStatus::Finished, "work that is done is not thrown away");

    let mut place = InternalFixture::new();
    place.bounds.tokens = 3_000;
    let (outcome, _) = place.outcome(endless()).await;
    assert_eq!((outcome.status, outcome.tool_calls), (AgentStatus::OverBudget, 2));
    assert_eq!(outcome.errors, ["it stopped at its limit of 3000 tokens"]);

    let place = InternalFixture::new();
    let free = says("done").map(|answer| ChatAnswer { model: "free".into(), usage: None, ..answer });
    let run = AgentRun { max_cost: Some(Money(1)), model: None, ..place.run() };
    let (outcome, _) = place.outcome_of(place.agent([free]).as_ref(), run).await;
    assert_eq!((outcome.cost, outcome.tokens_out), (None, 2));
    assert!(outcome.tokens_in > 1_000, "estimated from what was sent: {}", outcome.tokens_in);
    assert_eq!(outcome.errors, ["no price is known for free: its cost is not counted"]);
    assert_eq!(place.asked.lock().unwrap()[0].model, "vendor-large-1");
}

#[tokio::test]
async fn timeout_silence_and_cancellation_end_a_run() {
    let timed_out = |what: &str| AgentStatus::TimedOut { what: what.into() };
    for (answers, wall, idle, expected) in [
        (vec![], 100, 30_000, timed_out("it ran for longer than 0.1 s")),
        (vec![], 30_000, 100, timed_out("the model sent nothing for 0.1 s")),
        (vec![bash("sleep 300")], 300, 30_000, timed_out("it ran for longer than 0.3 s")),
        (vec![bash("sleep 300"), says("x")], 30_000, 100, AgentStatus::Finished),
    ] {
        let place = InternalFixture::new();
        let run = AgentRun { wall: Duration::from_millis(wall), idle: Duration::from_millis(idle), ..place.run() };
        let (outcome, _) = place.outcome_of(place.agent(answers).as_ref(), run).await;
        assert_eq!(outcome.status, expected);
    }
    for answers in [vec![], vec![bash("setsid sleep 300 >/dev/null 2>&1 & sleep 300")]] {
        let place = InternalFixture::new();
        let (run, cancel) = (place.run(), CancellationToken::new());
        let cookie = run.cookie.clone();
        let agent = place.agent(answers);
        let mut ignore = |_| ();
        let (outcome, ()) = futures::join!(agent.run(run, &cancel, &mut ignore), async {
            while place.asked.lock().unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
            cancel.cancel();
        });
        assert_eq!(outcome.status, AgentStatus::Cancelled);
        assert_eq!(survivors(cookie.as_str()), vec![]);
    }
}

#[tokio::test]
async fn refusing_provider_is_not_a_failed_run() {
    let limited = |until_ms| AgentStatus::Limited { until_ms, reason: "own (host): HTTP 429: ***".into() };
    let soon = NOW.0 + 2;
    let later = NOW.0 + 60_000;
    for (failures, expected, retries) in [
        (vec![refused(429, None, Some(later))], limited(Some(later)), 0),
        (vec![refused(429, None, None)], limited(None), 0),
        (vec![refused(429, None, Some(soon))], AgentStatus::Finished, 1),
        (vec![refused(529, None, None), refused(529, None, None)], AgentStatus::Finished, 2),
        (
            vec![refused(529, None, None), refused(500, None, None), refused(529, None, None)],
            AgentStatus::Limited { until_ms: None, reason: "own (host): HTTP 529: ***".into() },
            2,
        ),
        (
            vec![refused(500, None, None), refused(500, None, None), refused(500, None, None)],
            AgentStatus::Limited { until_ms: None, reason: "own (host): HTTP 500: ***".into() },
            2,
        ),
        (vec![refused(401, None, None)], AgentStatus::Unavailable { reason: "own (host): HTTP 401: ***".into() }, 0),
        (
            vec![refused(429, Some("insufficient_quota"), None)],
            AgentStatus::Unavailable { reason: "own (host): HTTP 429: ***".into() },
            0,
        ),
        (vec![refused(404, None, None)], AgentStatus::Unavailable { reason: "own (host): HTTP 404: ***".into() }, 0),
        (vec![refused(200, None, None)], AgentStatus::Failed { reason: "own (host): HTTP 200: ***".into() }, 0),
        (vec![refused(400, None, None)], AgentStatus::Failed { reason: "own (host): HTTP 400: ***".into() }, 0),
    ] {
        let place = InternalFixture::new();
        let answers = std::iter::once(bash("echo x >made")).chain(failures).chain([says("done")]);
        let (outcome, events) = place.outcome(answers).await;
        assert_eq!(outcome.status, expected);
        let retried = events.iter().filter(|event| matches!(event, AgentEvent::Retried { .. })).count();
        assert_eq!((retried, outcome.errors.len()), (retries, retries));
        assert!(outcome.tokens_in >= 1_100 && outcome.cost >= Some(Money(1_110)), "what was used is told");
        assert!(place.at("tree/made").is_file());
    }
    let (outcome, _) = InternalFixture::new().outcome([refused(200, None, None)]).await;
    assert!(matches!(outcome.status, AgentStatus::Unavailable { .. }), "what comes first makes no sense: {outcome:?}");
}

#[tokio::test]
async fn long_conversation_is_shortened() {
    let long = || bash("seq 3000");
    let place = InternalFixture::new();
    let answers = [long(), long(), long(), refused(400, Some("context_length_exceeded"), None), says("done")];
    let (outcome, _) = place.outcome(answers).await;
    assert_eq!(outcome.status, AgentStatus::Finished, "{outcome:?}");
    let sizes: Vec<usize> = place.asked.lock().unwrap().iter().map(|r| context::size(&r.messages)).collect();
    assert!(sizes[4] <= sizes[3] / 2, "{sizes:?}");
    let context_refusal = || refused(400, Some("context_length_exceeded"), None);
    let (outcome, _) = InternalFixture::new().outcome([long(), context_refusal(), context_refusal()]).await;
    assert!(matches!(outcome.status, AgentStatus::Failed { .. }), "{outcome:?}");

    let mut place = InternalFixture::new();
    place.bounds = InternalAgentLimits { context_window: 8_000, answer_tokens: 1_000, ..place.bounds };
    let (outcome, _) = place.outcome((0..7).map(|_| long()).chain([says("done")])).await;
    assert_eq!(outcome.status, AgentStatus::Finished);
    let requests = place.asked.lock().unwrap();
    let most = requests.iter().map(|request| context::size(&request.messages)).max().unwrap_or(0);
    assert!(most < 45_000, "{most}");
    assert!(requests.iter().all(|request| request.messages[0] == ChatMessage::User("mend the sum".into())));
}

#[tokio::test]
async fn cut_or_empty_answer_continues_and_refusal_ends_the_run() {
    let cut = |text: &str| answer(text, &[], ModelStop::MaxTokens);
    let place = InternalFixture::new();
    let (outcome, _) = place.outcome([cut("I will"), says(""), says("done")]).await;
    assert_eq!((outcome.status, outcome.final_message.as_str()), (AgentStatus::Finished, "done"));
    let requests = place.asked.lock().unwrap().clone();
    assert!(matches!(&requests[1].messages[2], ChatMessage::User(text) if text.contains("was cut")));
    assert!(matches!(&requests[2].messages[4], ChatMessage::User(text) if text.contains("was empty")));

    let place = InternalFixture::new();
    let full = answer("I was", &[], ModelStop::ContextFull);
    let (outcome, _) = place.outcome([bash("seq 3000"), bash("seq 3000"), full, says("done")]).await;
    assert_eq!((outcome.status, outcome.final_message.as_str()), (AgentStatus::Finished, "done"));
    let sizes: Vec<usize> = place.asked.lock().unwrap().iter().map(|r| context::size(&r.messages)).collect();
    assert!(sizes[3] < sizes[2] / 2 + 200, "{sizes:?}");

    let (outcome, _) = InternalFixture::new().outcome([says(""), cut(""), says(" ")]).await;
    let reason = "the model's answers were cut or empty 3 times in a row".to_owned();
    assert_eq!(outcome.status, AgentStatus::Failed { reason });
    let (outcome, _) = InternalFixture::new().outcome([answer("I must not.", &[], ModelStop::Refused)]).await;
    assert_eq!(outcome.status, AgentStatus::Failed { reason: "the model refused to continue: I must not.".into() });
}

#[tokio::test]
async fn agent_works_over_a_real_connection() {
    let place = InternalFixture::new();
    broken_sum(&place);
    let tool = |name: &str, input: Value| {
        StubReply::json(
            json!({"model": "v", "stop_reason": "tool_use", "usage": {"input_tokens": 10, "output_tokens": 5},
            "content": [{"type": "thinking", "thinking": "", "signature": "s"},
                {"type": "tool_use", "id": "toolu_1", "name": name, "input": input}]}),
        )
    };
    let limit = r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}"#;
    let stub = Stub::start([
        tool("bash", json!({"command": "sed -i 's/ - / + /' sum.sh && sh test.sh"})),
        tool("edit", json!({"command": "create", "path": "NOTES", "file_text": "mended\n"})),
        StubReply::said("Done."),
        tool("bash", json!({"command": "true"})),
        StubReply::Whole(429, vec![("retry-after", "90".into())], limit.into()),
    ])
    .await;
    let settings = ApiSettings {
        name: "own".into(),
        url: stub.url.clone(),
        key: Some(SECRET.into()),
        wire: WireName::Messages,
        models: Default::default(),
        timeout: Duration::from_secs(10),
    };
    let client = Arc::new(ApiClient::new(settings, Clock::manual(NOW)).unwrap());
    let agent = place.agent_on(Arc::new(client.into_function()));
    let (outcome, _) = place.outcome_of(agent.as_ref(), place.run()).await;
    assert_eq!((outcome.status, outcome.final_message.as_str()), (AgentStatus::Finished, "Done."));
    assert_eq!(fs::read_to_string(place.at("tree/NOTES")).unwrap(), "mended\n");
    let requests = stub.seen();
    let returned_messages = &requests[1].body["messages"];
    assert_eq!(returned_messages[1]["content"][0], json!({"type": "thinking", "thinking": "", "signature": "s"}));
    assert_eq!(returned_messages[2]["content"][0]["content"], "good\n");
    assert_eq!(returned_messages[2]["content"][0]["cache_control"]["type"], "ephemeral");

    let (outcome, _) = place.outcome_of(agent.as_ref(), place.run()).await;
    assert!(matches!(outcome.status, AgentStatus::Limited { .. }), "{outcome:?}");
    assert_eq!((outcome.tokens_in, outcome.tokens_out, outcome.tool_calls), (10, 5, 1));
    assert_eq!(
        outcome.status,
        AgentStatus::Limited {
            until_ms: Some(NOW.0 + 90_000),
            reason: "own (127.0.0.1): HTTP 429: rate_limit_error: slow down".into(),
        }
    );
    assert_eq!((outcome.signals.status, outcome.signals.succeeded), (Some(429), false));
}

#[tokio::test]
async fn invalid_settings_are_refused() {
    let place = InternalFixture::new();
    assert!(place.agent([]).probe().await.unwrap().starts_with("internal "));
    let settings = |path: &str| BackendSetup::new(BackendKind::Internal, place.at("config"), path);
    let internal = |bounds: InternalAgentLimits| InternalSettings {
        model: Arc::new(|_| Box::pin(std::future::pending())),
        default_model: "m".into(),
        price: Arc::new(|_, _| None),
        clock: Clock::System,
        bounds,
        commands_outside: false,
        takes_images: false,
    };
    let error = build_internal("own", settings("/nowhere"), internal(InternalAgentLimits::default())).err().unwrap();
    assert!(error.to_string().contains("neither bash nor sh"), "{error}");
    let small = InternalAgentLimits { context_window: 20_000, ..InternalAgentLimits::default() };
    let error = build_internal("own", settings("/bin"), internal(small)).err().unwrap();
    assert!(error.to_string().contains("too small"), "{error}");
    assert!(crate::agent::build("own", settings("/bin")).err().unwrap().to_string().contains("needs a model"));
}

/// Tool that repeats its arguments, or fails.
#[derive(Debug)]
struct EchoTools;

#[async_trait]
impl crate::agent::RunTools for EchoTools {
    fn definitions(&self) -> Vec<crate::domain::providers::chat::ToolDefinition> {
        let parameters = json!({"type": "object"});
        vec![crate::domain::providers::chat::ToolDefinition {
            name: "memory_search".into(),
            description: "Searches.".into(),
            parameters,
        }]
    }

    async fn call(&self, name: &str, arguments: &str) -> Result<String, Failure> {
        if arguments.contains("broken") { Err("not now".into()) } else { Ok(format!("{name} {arguments}")) }
    }
}

#[tokio::test]
async fn tools_of_the_run_are_offered_and_called() {
    let place = InternalFixture::new();
    let agent = place.agent([
        calls(&[("memory_search", json!({"query": "walrus"})), ("memory_search", json!({"query": "broken"}))]),
        says("Done."),
    ]);
    let run = AgentRun { tools: Some(Arc::new(EchoTools)), ..place.run() };
    let (outcome, events) = place.outcome_of(agent.as_ref(), run).await;
    assert_eq!((outcome.status, outcome.tool_calls, outcome.tool_errors), (AgentStatus::Finished, 2, 1));
    let offered: Vec<String> = place.asked.lock().unwrap()[0].tools.iter().map(|tool| tool.name.clone()).collect();
    assert_eq!(offered, ["bash", "edit", "memory_search"]);
    let results = place.results(0);
    assert_eq!((results[0].text.as_str(), results[0].failed), ("memory_search {\"query\":\"walrus\"}", false));
    assert_eq!((results[1].text.as_str(), results[1].failed), ("not now", true));
    let called = AgentEvent::ToolCalled { name: "memory_search".into(), input: "walrus".into() };
    assert!(events.contains(&called), "{events:?}");
}

/// Returns a run with a PNG image, a file that is not an image, and a GIF image that is too large.
fn with_images(place: &InternalFixture) -> AgentRun {
    let folder = place.at("scratch/attempt/images");
    fs::create_dir_all(&folder).unwrap();
    let mut large = b"GIF89a".to_vec();
    large.resize(4_000_000, 0);
    for (name, content) in
        [("image-1.png", &b"\x89PNG\r\n\x1a\n"[..]), ("image-2.png", b"text"), ("image-3.gif", &large)]
    {
        fs::write(folder.join(name), content).unwrap();
    }
    let attached = ["image-1.png", "image-2.png", "image-3.gif"].map(|name| folder.join(name)).to_vec();
    AgentRun { images: RunImages { folder: Some(folder), attached }, ..place.run() }
}

#[tokio::test]
async fn images_are_shown_with_the_prompt_and_others_are_named() {
    let place = InternalFixture::new();
    let (outcome, _) = place.outcome_of(place.agent([bash("ls"), says("done")]).as_ref(), with_images(&place)).await;
    assert_eq!(outcome.status, AgentStatus::Finished);
    let asked = place.asked.lock().unwrap();
    assert_eq!(asked.len(), 2);
    for request in asked.iter() {
        let Some(ChatMessage::UserWithImages(text, images)) = request.messages.first() else { panic!("{request:?}") };
        assert!(
            text.starts_with("mend the sum")
                && text.contains("too large or could not be read: image-2.png, image-3.gif.")
        );
        let [image] = &images[..] else { panic!("{images:?}") };
        assert_eq!(
            (image.name.as_str(), image.data_url().as_str()),
            ("image-1.png", "data:image/png;base64,iVBORw0KGgo=")
        );
    }
}

#[tokio::test]
async fn prompt_notes_hidden_images_for_model_without_images() {
    let place = InternalFixture { takes_images: false, ..InternalFixture::new() };
    let (outcome, _) = place.outcome_of(place.agent([says("done")]).as_ref(), with_images(&place)).await;
    assert_eq!(outcome.status, AgentStatus::Finished);
    let asked = place.asked.lock().unwrap();
    let Some(ChatMessage::User(text)) = asked[0].messages.first() else { panic!("{:?}", asked[0]) };
    assert!(text.contains("your model does not accept images: image-1.png, image-2.png, image-3.gif."), "{text}");
}

#[tokio::test]
async fn refused_images_are_left_out_and_named() {
    let place = InternalFixture::new();
    let refusal = || {
        let signals = LimitSignals { status: Some(400), ..LimitSignals::default() };
        Err(CallError { signals, retryable: false, what: "own (host): HTTP 400: not a multimodal model".into() })
    };
    let (outcome, _) = place.outcome_of(place.agent([refusal(), says("done")]).as_ref(), with_images(&place)).await;
    assert_eq!(outcome.status, AgentStatus::Finished);
    {
        let asked = place.asked.lock().unwrap();
        assert!(matches!(asked[0].messages.first(), Some(ChatMessage::UserWithImages(..))));
        let Some(ChatMessage::User(text)) = asked[1].messages.first() else { panic!("{:?}", asked[1]) };
        assert!(text.contains("your model does not accept images: image-1.png"), "{text}");
    }
    // Without images, the same error ends the run.
    let (outcome, _) = place.outcome_of(place.agent([refusal()]).as_ref(), place.run()).await;
    assert!(matches!(outcome.status, AgentStatus::Failed { .. }), "{:?}", outcome.status);
}
