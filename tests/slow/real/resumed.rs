//! Requests of each real agent in its second iteration, as its model receives them: a resumed session gets only new facts, and
//! images arrive by the agent's own option.

use fake_forge::Dialect;
use ralph_bot::domain::knowledge::memory::{Content, Learning, LearningEvidence, LearningState, Source};
use ralph_bot::domain::loops::{Loop, LoopState};
use ralph_bot::domain::model::ids::LoopId;
use ralph_bot::store::memory;
use serde_json::{Value, json};

use super::agents::{AIDER, CODEX, GEMINI, KIMI, OPENCODE, QWEN};
use super::claude::CLAUDE;
use super::place::InstalledAgent;
use super::provider::{ModelScript, ProviderServer};
use crate::harness::{Setup, World, story};

/// Command of the first iteration: it changes the output of the check, and reports its approach.
const COMMAND: &str = concat!(
    "echo tried >>tries.txt; ",
    "printf '%s' '{\"summary\":\"I read the check\",\"approach\":\"guessing the answer\"}' >\"$RALPH_REPORT\""
);
/// Check that prints the number of attempts.
const CHECK: &str =
    "test \"$(cat answer.txt)\" = 42 || { echo \"wrong after $(grep -c . tries.txt) attempts\"; exit 1; }\n";
/// Checks of which the first iteration repairs one.
const CHECKS: &str = "checks:\n  - name: answer\n    run: sh check.sh\n  - name: tried\n    run: grep -q . tries.txt\n";
/// Rule that another loop learns between the two iterations.
const RULE: &str = "The walrus module has to be parsed lazily";
const GUIDANCE: &str = "The answer is in the almanac.";
/// A valid image of one pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// Agent with the model's behavior in the first iteration.
#[derive(Clone, Copy)]
struct SecondIteration {
    agent: InstalledAgent,
    /// Behavior of a model that runs a shell command and then reports completion.
    runs: fn(&str) -> ModelScript,
    /// Whether the second iteration continues the session of the first.
    resumes: bool,
    /// Whether the first iteration can write a report.
    reports: bool,
    /// Whether its model gets images with the prompt.
    attaches: bool,
}

const SHELL: SecondIteration =
    SecondIteration { agent: CLAUDE, runs: in_bash, resumes: true, reports: true, attaches: false };

fn in_bash(command: &str) -> ModelScript {
    ModelScript::Calls("Bash", json!({ "command": command, "description": "Try it" }))
}

/// Agent, settings and environment of the service.
fn setup(row: &SecondIteration, provider: &ProviderServer, dialect: Dialect) -> Option<Setup> {
    let program = (row.agent.program)()?;
    let environment = (row.agent.environment)(&provider.url);
    let backend = json!({
        "command": program.command,
        "env": environment.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        "keys": row.agent.keys.iter().map(|(key, at)| (key.to_string(), json!(at))).collect::<serde_json::Map<_, _>>(),
        "models": { "default": row.agent.model },
    });
    let config = format!(
        "  {name}: {backend}\npriority: {{ agent: [{name}] }}\nlimits: {{ iterations: 2, comments_per_hour: 1000, comments_per_day: 1000 }}",
        name = row.agent.preset,
    );
    let mut setup = Setup::new(dialect)
        .agent("exit 9\n")
        .config(&config)
        .file("tries.txt", "")
        .file("check.sh", CHECK)
        .file(".ralph.yml", CHECKS)
        .isolated();
    setup.env = environment;
    setup.read_only = program.tools.iter().map(|tool| format!(", \"{}\"", tool.display())).collect();
    Some(setup)
}

/// Writes an issue with an image.
async fn show_image(world: &World) {
    let image = data_encoding::BASE64.decode(PNG.as_bytes()).expect("base64");
    let address = world.forge.upload(&world.maintainer, world.repo, "a.png", &image).await.expect("uploaded");
    let body = format!("It should be as in ![the picture]({address}).");
    world.forge.edit_issue(&world.maintainer, world.repo, world.issue, None, Some(&body)).await.expect("edited");
}

/// Stores a learning, as another loop of the repository that ends meanwhile does.
async fn learn(world: &World) {
    let current = world.the_loop().await;
    let content = Content::Convention { rule: RULE.into(), seen_in: "a review".into() };
    let source = Source { loop_id: LoopId::new("another"), iteration: None };
    let now = world.clock.now();
    let learning = Learning::new(&current.issue.repo, current.task_type(), content, 0.9, source, now);
    let evidence = LearningEvidence { successes: 3.0, failures: 0.0 };
    let learning = Learning { state: LearningState::Active, merged: true, evidence, ..learning };
    let settings = world.engine().recall.settings.clone();
    let stored = world.engine().store.write(move |c| memory::import(c, &[learning], &settings, now)).await;
    assert_eq!(stored.expect("stored").added, 1);
}

/// First text with these words in requests.
fn text_with(words: &str, mut requests: impl Iterator<Item = Value>) -> Option<String> {
    fn find(value: &Value, words: &str) -> Option<String> {
        match value {
            Value::String(text) => text.contains(words).then(|| text.clone()),
            Value::Array(all) => all.iter().find_map(|value| find(value, words)),
            Value::Object(all) => all.values().find_map(|value| find(value, words)),
            _ => None,
        }
    }
    requests.find_map(|request| find(&request, words))
}

/// Asserts that the model of the second iteration gets the new facts since the first.
async fn second_iteration_gets_only_new_facts(row: SecondIteration, dialect: Dialect) {
    let provider = ProviderServer::start((row.runs)(COMMAND)).await;
    let Some(setup) = setup(&row, &provider, dialect) else { return };
    story(setup, async |world| {
        show_image(world).await;
        world.settle().await;
        world.label().await;
        world.settle_until("the first run's end", |l| !l.iterations.is_empty() && l.iterations[0].agent_ms > 0).await;
        let before = provider.messages().len();
        learn(world).await;
        world.comment(&format!("/ralph guide {GUIDANCE}")).await;
        world.settle().await;
        let ended: Loop = world.the_loop().await;
        assert_eq!((ended.state, ended.iterations.len()), (LoopState::LimitReached, 2), "{}", ended.why);
        let [one, two] = &ended.iterations[..] else { panic!("two iterations: {:?}", ended.iterations) };
        for iteration in [one, two] {
            assert_eq!(iteration.agent_problem, "", "{}", iteration.message);
            assert_eq!(iteration.served.backend, row.agent.preset);
        }
        assert_eq!(two.served.resumed, row.resumes, "{:?}", two.served);

        let all = || provider.messages().into_iter().map(|(_, body)| body);
        let first = text_with("This is iteration 1 of at most 2.", all().take(before)).expect("the first prompt");
        let second = text_with("This is iteration 2 of at most 2.", all().skip(before)).expect("the second prompt");
        let is_new = |text: &str| {
            assert!(!first.contains(text), "already in the first prompt: {text}");
            assert!(second.contains(text), "{text}: {second}");
        };
        // The failing check's output, the reflection, and the guidance.
        is_new("wrong after 1 attempts");
        is_new("- Learned: ");
        is_new(GUIDANCE);
        is_new(RULE);
        if row.reports {
            is_new("guessing the answer");
        }
        if row.resumes {
            is_new("What is new since you were last told");
            // The conversation has the first prompt, too.
            let before = text_with("This is iteration 1 of at most 2.", all().skip(before));
            assert_eq!(before.as_ref(), Some(&first), "the session goes on");
        }
        // The image: as a file in both prompts, and with the first one if the agent attaches it.
        assert!(first.contains("image 1 in the issue: /"), "{first}");
        assert!(second.contains("image 1 in the issue"), "{second}");
        let images = |request: &Value| request.to_string().matches(&PNG[..40]).count();
        assert_eq!(all().take(before).any(|request| images(&request) > 0), row.attaches, "the image arrives");
        if row.resumes && row.attaches {
            let last = all().last().expect("a request");
            assert_eq!(images(&last), 1, "a resumed session is not given it again");
        }
    })
    .await;
}

/// Declares the story for agents.
macro_rules! second_iterations {
    ($($name:ident: $row:expr, $dialect:ident;)+) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            second_iteration_gets_only_new_facts($row, Dialect::$dialect).await;
        })+
    };
}

second_iterations! {
    claude_is_told_what_is_new: SHELL, GitHub;
    codex_is_told_what_is_new: SecondIteration {
        agent: CODEX,
        runs: |command| ModelScript::Calls("exec_command", json!({ "cmd": command })),
        attaches: true,
        ..SHELL
    }, Gitea;
    gemini_is_told_what_is_new: SecondIteration {
        agent: GEMINI,
        runs: |command| ModelScript::Calls("run_shell_command", json!({ "command": command })),
        ..SHELL
    }, GitHub;
    opencode_is_told_what_is_new: SecondIteration {
        agent: OPENCODE,
        runs: |command| ModelScript::Calls("bash", json!({ "command": command, "description": "Try it" })),
        attaches: true,
        ..SHELL
    }, Gitea;
    kimi_is_told_what_is_new: SecondIteration {
        agent: KIMI,
        runs: |command| ModelScript::Calls("Bash", json!({ "command": command })),
        attaches: true,
        ..SHELL
    }, GitHub;
    qwen_is_told_what_is_new: SecondIteration {
        agent: QWEN,
        runs: |command| ModelScript::Calls("run_shell_command", json!({ "command": command, "is_background": false })),
        ..SHELL
    }, Gitea;
    aider_is_told_what_is_new: SecondIteration {
        agent: AIDER,
        runs: |_| ModelScript::Says("I count the attempts.\n\ntries.txt\n```\ntried\n```\n"),
        resumes: false,
        reports: false,
        ..SHELL
    }, GitHub;
}
