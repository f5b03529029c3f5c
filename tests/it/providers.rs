//! What providers refuse: the next backend takes over, all wait together, money and rules hold.

use std::time::Duration;

use ralph_bot::domain::backends::Status;
use ralph_bot::domain::ids::Money;
use ralph_bot::domain::lifecycle::State;
use ralph_bot::fake::Dialect;
use ralph_bot::store::{calls, session};

use crate::harness::{Setup, World};
use crate::story::on_both_forges;

on_both_forges!(
    a_refused_run_goes_on_with_the_next_backend,
    where_all_are_parked_the_loop_waits_and_goes_on,
    a_backend_that_is_not_logged_in_is_left_to_people,
    a_rule_of_the_schedule_pauses,
    a_day_s_money_is_not_overspent,
    prompts_are_kept_with_their_turns,
);

/// What Claude Code prints when its provider refuses it.
const REFUSED: &str = r#"{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"API Error: Request rejected (429) · rate limit exceeded, try again in 90s","duration_ms":5,"num_turns":1,"session_id":"s"}"#;
/// What it prints with a key that is none.
const NO_LOGIN: &str = r#"{"type":"result","subtype":"success","is_error":true,"api_error_status":401,"result":"Failed to authenticate. API Error: 401 invalid x-api-key","duration_ms":5,"num_turns":1,"session_id":"s"}"#;
/// What it prints after its work.
const WORKED: &str = r#"{"type":"result","subtype":"success","is_error":false,"terminal_reason":"completed","result":"done","total_cost_usd":0.25,"duration_ms":5,"num_turns":1,"session_id":"s","usage":{"input_tokens":10,"output_tokens":5}}"#;

fn printing(line: &str, before: &str) -> String {
    format!("{before}\ncat >/dev/null\nprintf '%s\\n' '{line}'\nexit 1")
}

/// A backend in Claude Code's form that prints a line.
fn claude(line: &str) -> String {
    let command = serde_json::to_string(&["/bin/sh", "-c", &printing(line, ""), "claude"]).expect("a list");
    format!("  claude: {{ enabled: true, command: {command} }}\n")
}

const LIMITS: &str = "limits: { comments_per_hour: 1000, comments_per_day: 1000 }\n";

async fn a_refused_run_goes_on_with_the_next_backend(dialect: Dialect) {
    let config = format!("{}order: {{ agent: [claude, mine] }}\n{LIMITS}", claude(REFUSED));
    let world = World::new(Setup::new(dialect).config(&config).agent("echo 42 >answer.txt\n")).await;
    let done = world.run().await;
    assert_eq!((done.state, done.spent.iterations), (State::Review, 1), "{}", done.why);
    let served = &done.iterations[0].served;
    assert_eq!(served.backend, "mine");
    assert!(served.switched.iter().any(|text| text.contains("claude was left")), "{:?}", served.switched);
    let known = world.engine().store.read(calls::state).await.expect("a state");
    assert!(matches!(known.backends["claude"].status, Status::Parked(_)), "{:?}", known.backends["claude"]);
    let id = done.id.clone();
    let booked = world.engine().store.read(move |c| calls::of_loop(c, &id)).await.expect("calls");
    let told: Vec<_> = booked.iter().map(|call| (call.backend.as_str(), call.outcome.as_deref())).collect();
    assert_eq!(told, [("claude", Some("limited")), ("mine", Some("finished"))]);
    // The next loop does not even try it.
    world.finish().await;
}

/// A12.
async fn where_all_are_parked_the_loop_waits_and_goes_on(dialect: Dialect) {
    let mut world = World::without_service(Setup::new(dialect).agent(&printing(REFUSED, "")), false).await;
    let agent = world.folder.path().join("agent.sh");
    world.setup.config = format!(
        "  claude: {{ enabled: true, command: [\"/bin/sh\", \"{}\", \"claude\"] }}\norder: {{ agent: [claude] }}\n{LIMITS}",
        agent.display()
    );
    world.start().await;
    world.hook().await;
    world.say("/ralph run --backend claude").await;
    world.settle().await;
    let waiting = world.the_loop().await;
    assert_eq!((waiting.state, waiting.spent.iterations), (State::Waiting, 0), "{}", waiting.why);
    assert!(world.bot_said("goes on by itself"), "{:#?}", world.bot_says());
    // A restart forgets nothing: it still waits, and asks nobody.
    world.restart().await;
    world.settle().await;
    assert_eq!(world.the_loop().await.state, State::Waiting);
    world.write_agent(&printing(WORKED, "echo 42 >answer.txt").replace("exit 1", "exit 0"));
    world.pass(Duration::from_secs(180)).await;
    world.settle().await;
    let done = world.the_loop().await;
    assert_eq!((done.state, done.spent.iterations), (State::Review, 1), "{}", done.why);
    assert_eq!(done.spent.cost, Money::from_usd(0.25));
    world.finish().await;
}

async fn a_backend_that_is_not_logged_in_is_left_to_people(dialect: Dialect) {
    let config = format!("{}order: {{ agent: [claude, mine] }}\n{LIMITS}", claude(NO_LOGIN));
    let world = World::new(Setup::new(dialect).config(&config).agent("echo 42 >answer.txt\n")).await;
    let done = world.run().await;
    assert_eq!((done.state, done.spent.iterations), (State::Review, 1), "{}", done.why);
    let known = world.engine().store.read(calls::state).await.expect("a state");
    assert!(matches!(known.backends["claude"].status, Status::Disabled { .. }), "{:?}", known.backends["claude"]);
    world.finish().await;
}

async fn a_rule_of_the_schedule_pauses(dialect: Dialect) {
    let config = format!(
        "schedule:\n  - {{ trigger: {{ when: \"iteration >= 2 && completion < 0.9\" }}, action: pause, reason: have a look }}\n{LIMITS}"
    );
    let agent = "echo \"$RALPH_ITERATION\" >answer.txt\n";
    let world = World::new(Setup::new(dialect).config(&config).agent(agent)).await;
    let stopped = world.run().await;
    assert_eq!((stopped.state, stopped.spent.iterations), (State::Paused, 2), "{}", stopped.why);
    assert!(stopped.why.contains("have a look"), "{}", stopped.why);
    world.say("/ralph abort").await;
    world.settle().await;
    world.finish().await;
}

/// P15.
async fn a_day_s_money_is_not_overspent(dialect: Dialect) {
    let worked = printing(WORKED, "echo $RALPH_ITERATION >answer.txt").replace("exit 1", "exit 0");
    let command = serde_json::to_string(&["/bin/sh", "-c", &worked, "claude"]).expect("a list");
    let config = format!(
        "  claude: {{ enabled: true, command: {command} }}\norder: {{ agent: [claude] }}\nlimits: {{ cost_usd: 0.6, cost_usd_per_day: 0.6, comments_per_hour: 1000, comments_per_day: 1000 }}\noversight: {{ stuck: {{ enabled: false }}, resource_burn: {{ enabled: false }} }}"
    );
    let world = World::new(Setup::new(dialect).config(&config)).await;
    world.say("/ralph run --backend claude").await;
    world.settle().await;
    let stopped = world.the_loop().await;
    assert_eq!(stopped.state, State::LimitReached, "{}", stopped.why);
    assert_eq!(stopped.spent.cost, Money::from_usd(0.5), "{}", stopped.why);
    assert!(stopped.why.contains("$0.60") && stopped.why.contains("are needed"), "{}", stopped.why);
    world.say("/ralph abort").await;
    world.settle().await;
    world.finish().await;
}

async fn prompts_are_kept_with_their_turns(dialect: Dialect) {
    let world = World::new(Setup::new(dialect)).await;
    let done = world.run().await;
    let id = done.id.clone();
    let turns = world.engine().store.read(move |c| session::turns(c, &id, 1..=9)).await.expect("turns");
    assert_eq!(turns.len() as u32, done.spent.iterations);
    assert!(turns[0].prompt.contains(&done.task.title) && turns[0].backend == "mine", "{}", turns[0].prompt);
    world.finish().await;
}
