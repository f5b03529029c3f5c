//! Second opinions of the real programs with a scripted model.

use ralph_bot::domain::loops::LoopState;
use ralph_bot::domain::model::ids::Money;
use ralph_bot::domain::model::opinion::OpinionEnd;

use super::agents::CODEX;
use super::claude::CLAUDE;
use super::place::InstalledAgent;
use super::provider::{ModelScript, ProviderServer};
use crate::harness::stories::forge_of;
use crate::harness::{Setup, story};

/// Answer as models write it, with words around the JSON.
const ANSWER: &str = "I read the change.\n\n```json\n{\"verdict\": \"sound\", \"summary\": \"It answers.\", \"findings\": [{\"file\": \"answer.txt\", \"line\": 1, \"severity\": \"minor\", \"text\": \"A named constant would be clearer\"}]}\n```\n";

/// Asserts that a real program reads finished work, and that its answer and usage arrive.
async fn reads_the_change(agent: InstalledAgent) {
    let Some(program) = (agent.program)() else { return };
    let provider = ProviderServer::start(ModelScript::Says(ANSWER)).await;
    let command = serde_json::to_string(&program.command).expect("a list");
    let environment = (agent.environment)(&provider.url);
    let names: Vec<&str> = environment.iter().map(|(name, _)| *name).collect();
    let (preset, model) = (agent.preset, agent.model);
    let prices = format!("prices: {{ \"{model}\": {{ input: 1.0, output: 1.0 }} }}");
    let config = format!(
        "  {preset}: {{ command: {command}, env: {names:?}, models: {{ default: \"{model}\" }}, {prices}, roles: [reviewer] }}\n\
         review: {{ backend: {preset} }}\nlimits: {{ comments_per_hour: 1000, comments_per_day: 1000 }}\n"
    );
    let mut setup = Setup::new(forge_of(preset)).config(&config);
    setup.env.extend(environment);
    story(setup, async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 1), "{}", done.why);
        let last = done.supervision.opinions.last.as_ref().expect("an opinion");
        let OpinionEnd::Answered(answer) = &last.end else { panic!("{last:?}") };
        assert_eq!((answer.findings.len(), answer.findings[0].place().as_str()), (1, "answer.txt:1"));
        assert!(done.spent.cost > Money(0) && done.spent.tokens_in > 0, "{:?}", done.spent);
        let body = world.the_pull().await.body;
        assert!(body.contains("A named constant would be clearer"), "{body}");
        let asked: Vec<String> = provider.messages().iter().map(|(_, body)| body.to_string()).collect();
        let question = asked.iter().find(|body| body.contains("Review a change that a coding agent made"));
        let question = question.unwrap_or_else(|| panic!("no question: {asked:?}"));
        assert!(question.contains("-41\\n+42") && question.contains("It should be 42."), "{question}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_gives_a_second_opinion() {
    reads_the_change(CODEX).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claude_gives_a_second_opinion() {
    reads_the_change(CLAUDE).await;
}
