//! Real programs as the assistant, with a scripted model: the question that the model receives, and the block in the agent's prompt.

use ralph_bot::domain::loops::LoopState;
use ralph_bot::domain::model::ids::Money;
use ralph_bot::store::calls;

use super::agents::{CODEX, GEMINI};
use super::claude::CLAUDE;
use super::place::InstalledAgent;
use super::provider::{ModelScript, ProviderServer};
use crate::assistants::with_long_guide;
use crate::harness::stories::forge_of;
use crate::harness::story;

/// Answer as models write it, with words around the JSON.
const ANSWER: &str =
    "Here is the block.\n\n```json\n{\"context\": \"The answer is a plain number in answer.txt.\"}\n```\n";

/// Asserts that a real program writes the context block of a loop, without access to its tree.
async fn writes_the_context(agent: InstalledAgent) {
    let Some(program) = (agent.program)() else { return };
    let provider = ProviderServer::start(ModelScript::Says(ANSWER)).await;
    let command = serde_json::to_string(&program.command).expect("a list");
    let environment = (agent.environment)(&provider.url);
    let names: Vec<&str> = environment.iter().map(|(name, _)| *name).collect();
    let (preset, model) = (agent.preset, agent.model);
    let prices = format!("prices: {{ \"{model}\": {{ input: 1.0, output: 1.0 }} }}");
    let config = format!(
        "  {preset}: {{ command: {command}, env: {names:?}, models: {{ default: \"{model}\" }}, {prices}, roles: [assistant] }}\n\
         assistant: {{ backend: {preset}, model: \"{model}\" }}\ncontext: {{ max_output_tokens: 400 }}\n\
         limits: {{ comments_per_hour: 1000, comments_per_day: 1000 }}\n"
    );
    let mut setup = with_long_guide(forge_of(preset), &config, "echo 42 >answer.txt\n");
    setup.env.extend(environment);
    story(setup, async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 1), "{}", done.why);
        assert_eq!(done.agent.assistant_failure, None);
        let asked: Vec<String> = provider.messages().iter().map(|(_, body)| body.to_string()).collect();
        let question = asked.iter().find(|body| body.contains("write a concise context block"));
        let question = question.unwrap_or_else(|| panic!("no question: {asked:?}"));
        for part in ["iteration 1 of a coding agent", "rule 7 is", "unremarkable-file-number-"] {
            assert!(question.contains(part), "{part}: {question}");
        }
        let prompts = world.prompts().await;
        let (_, block) = prompts[0].split_once("\n<ralph-context>\n").expect("a block");
        let (block, _) = block.split_once("\n</ralph-context>\n").expect("its end");
        assert!(block.contains("- Now: iteration 1 "), "{block}");
        assert!(block.contains("- The answer is a plain number in answer.txt."), "{block}");
        assert!(!block.contains("rule 7 is"), "the model's block replaces the facts: {block}");
        let id = done.id.clone();
        let booked = world.engine().store.read(move |c| calls::of_loop(c, &id)).await.expect("calls");
        let contexts: Vec<_> = booked.iter().filter(|call| call.purpose == "context").collect();
        assert!(contexts.len() == 1 && contexts[0].backend == preset, "{booked:?}");
        assert!(done.spent.cost > Money(0) && done.spent.tokens_in > 0, "{:?}", done.spent);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claude_writes_the_context() {
    writes_the_context(CLAUDE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_writes_the_context() {
    writes_the_context(CODEX).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gemini_writes_the_context() {
    writes_the_context(GEMINI).await;
}
