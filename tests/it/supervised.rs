//! Loops that go wrong: noticed, told, turned, put back, held, asked about, and brought to a good end by a person's word.

use std::collections::BTreeSet;
use std::time::Duration;

use ralph_bot::domain::lifecycle::{Loop, State};
use ralph_bot::domain::oversight::{AuditEvent, Kind, Level};
use ralph_bot::fake::Dialect;
use ralph_bot::store::audit;

use crate::harness::{Setup, World};
use crate::service::{Service, stop, was_killed};
use crate::story::on_both_forges;

on_both_forges!(
    a_stuck_loop_is_turned_held_and_helped,
    a_held_loop_runs_no_agent_whatever_dies,
    a_kill_between_a_pause_and_what_follows_starts_no_agent,
    the_best_iteration_is_put_back,
    two_answers_at_once_are_one,
    an_answer_after_the_end_is_told_so,
    thresholds_come_from_both_files,
    a_loop_without_hope_ends,
    a_steady_loop_with_one_check_is_left_alone,
    a_steady_loop_whose_tests_nobody_counts_is_left_alone,
);

const MANY: &str = "limits: { iterations: 30, comments_per_hour: 1000, comments_per_day: 1000 }";
/// Gets nowhere until it is told the answer.
const STUCK: &str =
    "case \"$(cat)\" in *'forty two'*) echo 42 >answer.txt ;; *) echo \"$RALPH_ITERATION wrong\" >answer.txt ;; esac\n";

fn stuck(dialect: Dialect) -> Setup {
    Setup::new(dialect).agent(STUCK).config(MANY)
}

fn levels(current: &Loop) -> BTreeSet<Level> {
    let judged = current.iterations.iter().filter_map(|iteration| iteration.judged.as_ref());
    judged.flat_map(|judged| &judged.found).map(|found| found.level).collect()
}

async fn trail(world: &World) -> Vec<AuditEvent> {
    let id = world.the_loop().await.id;
    let lines = world.engine().store.read(move |c| audit::trail(c, &id)).await.expect("the trail");
    lines.into_iter().map(|line| line.entry.event).collect()
}

async fn a_stuck_loop_is_turned_held_and_helped(dialect: Dialect) {
    let world = World::new(stuck(dialect)).await;
    let held = world.run().await;
    assert_eq!(held.state, State::Paused, "{}", held.why);
    assert!(levels(&held).is_superset(&[Level::Redirect, Level::Pause].into()), "{:?}", levels(&held));
    // The order was in a prompt, with its evidence, once.
    let prompts = world.prompts().await;
    let ordered: Vec<_> = prompts.iter().filter(|prompt| prompt.contains("\nOVERRIDE: ")).collect();
    assert!(!ordered.is_empty() && ordered.len() < prompts.len(), "{} of {}", ordered.len(), prompts.len());
    assert!(ordered[0].contains("the answer is # wrong"), "{}", ordered[0]);
    assert!(ordered[0].contains("# How to go about it"), "{}", ordered[0]);
    // People see it where they look.
    let [escalation] = world.escalations()[..] else { panic!("one escalation: {:?}", world.escalations()) };
    let issue = world.issue_of(escalation);
    assert!(issue.title.starts_with("[ralph] CRITICAL: stuck in r-"), "{}", issue.title);
    for part in ["the answer is # wrong", "/ralph resume GUIDANCE", "### Last iterations", "### What might help"] {
        assert!(issue.body.contains(part), "{part}: {}", issue.body);
    }
    let status = world.bot_says().into_iter().find(|text| text.contains("**Course**")).expect("a status comment");
    assert!(status.contains("control signal") && status.contains("| The loop is stuck | "), "{status}");
    assert!(world.bot_says().iter().any(|text| text.contains("**Strategy**")), "{:#?}", world.bot_says());
    // Nobody is paged twice, and nothing runs.
    world.pass(Duration::from_secs(3600)).await;
    assert_eq!((world.prompts().await.len(), world.escalations().len()), (prompts.len(), 1));

    let answer = "/ralph resume It is forty two.";
    world.forge.comment(&world.maintainer, world.repo, escalation, answer).await.expect("answered");
    world.settle().await;
    let done = world.the_loop().await;
    assert_eq!(done.state, State::Review, "{}", done.why);
    assert!(world.prompts().await.last().is_some_and(|prompt| prompt.contains("It is forty two.")));
    assert!(world.escalations().is_empty(), "it closes itself");
    let events = trail(&world).await;
    for event in [AuditEvent::Intervened, AuditEvent::Escalated, AuditEvent::Resumed] {
        assert!(events.contains(&event), "{event:?}: {events:?}");
    }
    for sql in ["DELETE FROM audit", "UPDATE audit SET entry = '{}'"] {
        let refused = world.engine().store.write(move |c| Ok(c.execute(sql, [])?)).await;
        assert!(refused.is_err(), "{sql}");
    }
    assert_eq!(trail(&world).await, events);
    world.finish().await;
}

async fn a_held_loop_runs_no_agent_whatever_dies(dialect: Dialect) {
    let mut world = World::new(stuck(dialect)).await;
    world.label().await;
    // The service ends between the decision and everything that follows from it.
    let held = world.settle_until("the pause", |l| l.state == State::Paused).await;
    assert!(world.escalations().is_empty(), "nobody was told yet");
    let prompts = world.prompts().await.len();
    world.restart().await;
    world.recover().await;
    world.reconcile().await;
    world.settle().await;
    let after = world.the_loop().await;
    assert_eq!((after.state, after.spent.iterations), (State::Paused, held.spent.iterations));
    assert_eq!(world.prompts().await.len(), prompts, "no agent ran");
    assert_eq!(world.escalations().len(), 1, "people are told all the same");
    assert!(after.supervision.is_some_and(|known| known.overseer.is_held()), "still in force");
    world.finish().await;
}

async fn a_kill_between_a_pause_and_what_follows_starts_no_agent(dialect: Dialect) {
    let service = Service::new(stuck(dialect), false).await;
    let mut child = service.spawn("all", Some("held"));
    service.until("the service to listen", async || service.listens().await).await;
    service.world.label().await;
    let died = child.wait().await.expect("it is our child");
    assert!(was_killed(died), "{died}\n{}", service.log());
    let held = service.newest().await.expect("the loop");
    assert_eq!(held.state, State::Paused, "{}", held.why);
    assert!(service.world.escalations().is_empty(), "nobody was told yet");
    let mut child = service.spawn("all", None);
    service.until("the escalation", async || service.world.escalations().len() == 1).await;
    service.rest().await;
    let after = service.newest().await.expect("the loop");
    assert_eq!((after.state, after.spent.iterations), (State::Paused, held.spent.iterations));
    assert!(after.supervision.is_some_and(|known| known.overseer.is_held()), "still in force");
    // Each run leaves its prompt behind.
    let logs = service.world.folder.path().join("data/logs").join(held.id.as_str());
    let names = std::fs::read_dir(logs).expect("logs").flatten().map(|entry| entry.file_name());
    let prompts = names.filter(|name| name.to_string_lossy().ends_with(".prompt.md")).count();
    assert_eq!(prompts, held.spent.iterations as usize, "no agent ran after the decision\n{}", service.log());
    stop(&mut child).await;
    service.finish().await;
}

/// Two checks, of which the first holds before, and an agent that breaks it for good after one good iteration.
fn worse(dialect: Dialect) -> Setup {
    let agent = "case $RALPH_ITERATION in\n1) echo good >work.txt ;;\n*) rm -f kept.txt; echo \"bad $RALPH_ITERATION\" >work.txt ;;\nesac\n";
    let checks = "checks:\n  - name: answer\n    run: sh check.sh\n  - name: kept\n    run: test -f kept.txt\n";
    Setup::new(dialect).agent(agent).file("kept.txt", "kept\n").file(".ralph.yml", checks).config(MANY)
}

async fn the_best_iteration_is_put_back(dialect: Dialect) {
    let world = World::new(worse(dialect)).await;
    let held = world.run().await;
    assert_eq!(held.state, State::Paused, "{}", held.why);
    assert!(held.why.contains("What held before holds no more"), "{}", held.why);
    assert_eq!(held.current().and_then(|last| last.restored_to), Some(1), "{:?}", held.current());
    // The forge's branch has the best files, and every commit that led there.
    assert_eq!(world.file(&held.branch, "work.txt").await.as_deref(), Some("good\n"));
    assert_eq!(world.file(&held.branch, "kept.txt").await.as_deref(), Some("kept\n"));
    assert_eq!(held.pushed, held.head);
    let log = world.git(&["log", "--format=%s", &held.branch]);
    assert!(log.starts_with("ralph: back to the state of iteration 1\n"), "{log}");
    assert!(log.matches("ralph: iteration").count() >= 2, "{log}");
    let [escalation] = world.escalations()[..] else { panic!("one escalation: {:?}", world.escalations()) };
    assert!(world.issue_of(escalation).body.contains("The files of iteration 1, the best one, were put back"));
    world.write_agent("test -f kept.txt && echo 42 >answer.txt\n");
    world.say("/ralph resume").await;
    world.settle().await;
    assert_eq!(world.the_loop().await.state, State::Review, "{}", world.the_loop().await.why);
    world.finish().await;
}

async fn two_answers_at_once_are_one(dialect: Dialect) {
    let world = World::new(stuck(dialect)).await;
    world.run().await;
    let [escalation] = world.escalations()[..] else { panic!("one escalation") };
    world.say("/ralph resume It is forty two.").await;
    let answer = "/ralph resume Try forty two, please.";
    world.forge.comment(&world.maintainer, world.repo, escalation, answer).await.expect("answered");
    world.settle().await;
    let done = world.the_loop().await;
    assert_eq!(done.state, State::Review, "{}", done.why);
    let resumed = trail(&world).await.into_iter().filter(|event| *event == AuditEvent::Resumed).count();
    assert_eq!(resumed, 1, "the second found it under way");
    let says = [world.bot_says(), world.bot_says_on(escalation)].concat();
    assert!(says.iter().any(|text| text.contains("there is nothing to resume")), "the other is told: {says:#?}");
    world.finish().await;
}

async fn an_answer_after_the_end_is_told_so(dialect: Dialect) {
    let world = World::new(stuck(dialect)).await;
    world.run().await;
    let [escalation] = world.escalations()[..] else { panic!("one escalation") };
    world.say("/ralph abort enough").await;
    world.settle().await;
    assert!(world.escalations().is_empty());
    let prompts = world.prompts().await.len();
    world.forge.comment(&world.maintainer, world.repo, escalation, "/ralph resume").await.expect("answered");
    world.settle().await;
    let after = world.the_loop().await;
    assert_eq!((after.state, world.prompts().await.len()), (State::Aborted, prompts));
    assert!(world.bot_says_on(escalation).iter().any(|text| text.contains("has ended")));
    world.finish().await;
}

async fn thresholds_come_from_both_files(dialect: Dialect) {
    // The operator switches the detection off: nobody is disturbed until the limit.
    let quiet = "limits: { iterations: 6, comments_per_hour: 1000, comments_per_day: 1000 }\noversight: { stuck: { enabled: false }, resource_burn: { enabled: false } }";
    let world = World::new(Setup::new(dialect).agent(STUCK).config(quiet)).await;
    let stopped = world.run().await;
    assert_eq!(stopped.state, State::LimitReached, "{}", stopped.why);
    world.finish().await;
    // The repository makes it more patient: it is noticed later.
    let hasty = World::new(stuck(dialect)).await;
    let early = hasty.run().await.spent.iterations;
    hasty.finish().await;
    let file = "checks:\n  - name: answer\n    run: sh check.sh\noversight: { climb_after: 6, stuck: { critical_error_count: 90, window: 95 } }\n";
    let patient = World::new(stuck(dialect).file(".ralph.yml", file)).await;
    let held = patient.run().await;
    assert!(held.spent.iterations > early, "{} and {early}: {}", held.spent.iterations, held.why);
    patient.finish().await;
}

async fn a_loop_without_hope_ends(dialect: Dialect) {
    // The state of the best iteration is to be put back for the second time: the design's rule ends the loop.
    let strict = format!("{MANY}\noversight: {{ strict_regression: true }}");
    let world = World::new(Setup { config: String::new(), ..worse(dialect) }.config(&strict)).await;
    let ended = world.run().await;
    assert_eq!(ended.state, State::Aborted, "{}", ended.why);
    let found = ended.judged().and_then(|judged| judged.found.first()).map(|found| (found.kind, found.level));
    assert_eq!(found, Some((Kind::Regression, Level::Abort)));
    let [escalation] = world.escalations()[..] else { panic!("one escalation: {:?}", world.escalations()) };
    assert!(world.issue_of(escalation).title.starts_with("[ralph] EMERGENCY: regression in r-"));
    assert!(world.file(&ended.branch, "work.txt").await.is_some(), "the work is saved");
    world.finish().await;
}

/// One check, of which one test more passes each time.
async fn a_steady_loop_with_one_check_is_left_alone(dialect: Dialect) {
    let counts = "echo 'running 7 tests'\n\
                  echo \"test result: FAILED. $n passed; $((7 - n)) failed; 0 ignored; 0 measured; 0 filtered out\"\n";
    let rows = steady(dialect, counts, 7).await;
    assert_eq!(rows, [16, 33, 50, 66, 83, 100]);
}

/// A check that only fails or holds: nothing shows that the loop goes on but its errors.
async fn a_steady_loop_whose_tests_nobody_counts_is_left_alone(dialect: Dialect) {
    let errors = "test \"$n\" -ge 14 || echo \"error: case $(echo abcdefghijklmn | cut -c \"$n\") fails\"\n";
    let rows = steady(dialect, errors, 14).await;
    assert_eq!(rows, [[0; 12].as_slice(), &[100]].concat());
}

/// Completion after each iteration of a loop that adds a line to its one, until there are as many as its check wants.
async fn steady(dialect: Dialect, says: &str, lines: u32) -> Vec<u8> {
    let check = format!("n=$(wc -l <answer.txt)\n{says}test \"$n\" -ge {lines}\n");
    let setup = Setup::new(dialect).agent("echo another >>answer.txt\n").file("check.sh", &check);
    let world = World::new(setup.config(MANY)).await;
    let done = world.run().await;
    assert_eq!((done.state, done.spent.iterations), (State::Review, lines - 1), "{}", done.why);
    assert!(world.escalations().is_empty());
    let rows = done.iterations.iter().map(|iteration| iteration.completion.whole_percent()).collect();
    world.finish().await;
    rows
}
