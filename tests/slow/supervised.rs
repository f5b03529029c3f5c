//! Loops that make no progress or regress: detected, redirected, restored, paused, escalated, and completed after a person's
//! guidance.

use std::collections::BTreeSet;
use std::time::Duration;

use fake_forge::Dialect;
use ralph_bot::domain::loops::{Loop, LoopState};
use ralph_bot::domain::supervision::oversight::{AuditEvent, DetectionKind, DirectiveLevel, InterventionLevel};
use ralph_bot::store::audit;

use crate::harness::service::{Service, stop, was_killed};
use crate::harness::{Setup, World, on_one_forge, story};

on_one_forge!(
    stuck_loop_is_redirected_paused_and_guided,
    control_values_are_shown_to_people,
    loop_of_ten_iterations_asks_before_its_limit,
    switched_off_oversight_detects_nothing,
    critical_detection_redirects_if_pauses_are_disabled,
    paused_loop_runs_no_agent_after_crashes,
    crash_after_pause_starts_no_agent,
    crash_after_end_starts_no_agent,
    pending_guidance_survives_restart,
    escalation_is_extended_and_reminded_once,
    manually_closed_escalation_stays_closed,
    best_iteration_is_restored,
    concurrent_answers_are_applied_once,
    answer_after_the_end_is_rejected,
    thresholds_merge_operator_and_repository_files,
    hopeless_loop_ends,
    steady_loop_with_one_check_triggers_nothing,
    steady_loop_without_test_counts_triggers_nothing,
    escalation_contains_the_report_of_the_agent,
    default_loop_is_summarized_at_half_of_its_limit,
    drop_of_printed_coverage_is_detected,
);

const MANY: &str = "limits: { iterations: 30, comments_per_hour: 1000, comments_per_day: 1000 }";
/// Agent that makes no progress until its prompt contains the answer.
const STUCK: &str =
    "case \"$(cat)\" in *'forty two'*) echo 42 >answer.txt ;; *) echo \"$RALPH_ITERATION wrong\" >answer.txt ;; esac\n";

fn stuck(dialect: Dialect) -> Setup {
    Setup::new(dialect).agent(STUCK).config(MANY)
}

fn levels(current: &Loop) -> BTreeSet<InterventionLevel> {
    let judged = current.iterations.iter().filter_map(|iteration| iteration.judged.as_ref());
    judged.flat_map(|judged| &judged.found).map(|found| found.level).collect()
}

async fn trail(world: &World) -> Vec<AuditEvent> {
    let id = world.the_loop().await.id;
    let lines = world.engine().store.read(move |c| audit::trail(c, &id)).await.expect("the trail");
    lines.into_iter().map(|line| line.entry.event).collect()
}

async fn stuck_loop_is_redirected_paused_and_guided(dialect: Dialect) {
    story(stuck(dialect), async |world| {
        let stopped = world.run().await;
        assert_eq!(stopped.state, LoopState::Paused, "{}", stopped.why);
        assert!(
            levels(&stopped).is_superset(&[InterventionLevel::Redirect, InterventionLevel::Pause].into()),
            "{:?}",
            levels(&stopped)
        );
        // The order was in a prompt, with its evidence, once.
        let prompts = world.prompts().await;
        let ordered: Vec<_> = prompts.iter().filter(|prompt| prompt.contains("\nOVERRIDE: ")).collect();
        assert!(!ordered.is_empty() && ordered.len() < prompts.len(), "{} of {}", ordered.len(), prompts.len());
        assert!(ordered[0].contains("the answer is # wrong"), "{}", ordered[0]);
        assert!(ordered[0].contains("# Approach"), "{}", ordered[0]);
        // People see it where they look.
        let [escalation] = world.escalations()[..] else { panic!("one escalation: {:?}", world.escalations()) };
        insta::assert_snapshot!("stuck_loop_is_paused", world.conversation());
        // The pause is escalated once, and nothing runs.
        world.advance(Duration::from_secs(3600)).await;
        assert_eq!((world.prompts().await.len(), world.escalations().len()), (prompts.len(), 1));

        let answer = "/ralph resume It is forty two.";
        world.forge.comment(&world.maintainer, world.repo, escalation, answer).await.expect("answered");
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert!(world.prompts().await.last().is_some_and(|prompt| prompt.contains("It is forty two.")));
        assert!(world.escalations().is_empty(), "the escalation is still open");
        insta::assert_snapshot!("stuck_loop_is_resumed", world.conversation());
        let events = trail(world).await;
        for event in [AuditEvent::Intervened, AuditEvent::Escalated, AuditEvent::Resumed] {
            assert!(events.contains(&event), "{event:?}: {events:?}");
        }
        for sql in ["DELETE FROM audit", "UPDATE audit SET entry = '{}'"] {
            let refused = world.engine().store.write(move |c| Ok(c.execute(sql, [])?)).await;
            assert!(refused.is_err(), "{sql}");
        }
        assert_eq!(trail(world).await, events);
    })
    .await;
}

/// Status comment, audit trail and metrics contain alarms, gains and profile changes with their reasons.
async fn control_values_are_shown_to_people(dialect: Dialect) {
    story(stuck(dialect), async |world| {
        let stopped = world.run().await;
        assert_eq!(stopped.state, LoopState::Paused, "{}", stopped.why);
        let status = world.bot_comments().into_iter().find(|text| text.contains("Control signal: ")).expect("a status");
        for words in [" (P) ", "gains kp ", "Alarm: stuck_loop (critical, since iteration ", "Supervision: paused, "] {
            assert!(status.contains(words), "{words}: {status}");
        }
        let id = stopped.id.clone();
        let trail = world.engine().store.read(move |c| audit::trail(c, &id)).await.expect("the trail");
        let reasons: Vec<&str> = trail.iter().map(|line| line.entry.reason.as_str()).collect();
        for words in ["alarm stuck_loop (", "gain profile standard -> "] {
            assert!(reasons.iter().any(|reason| reason.starts_with(words)), "{words}: {reasons:#?}");
        }
        let metrics = world.engine().context.metrics.encode();
        for line in [
            "ralph_detections_total{kind=\"stuck\",severity=\"high\"}",
            "ralph_interventions_total{level=\"pause\",kind=\"stuck\"} 1",
            "ralph_alarms_total{kind=\"stuck_loop\",severity=",
            "ralph_iterations_total{outcome=\"complete\"} 0",
            "ralph_escalations_total{cause=\"stuck\",level=\"critical\"} 1",
            "ralph_control_signal_count",
            "ralph_control_term_count{term=\"i\"}",
            "ralph_control_gain_count{gain=\"kp\"}",
            "ralph_profile_changes_total{from=\"standard\",to=\"",
            "ralph_iteration_health_total{health=\"warning\"}",
        ] {
            assert!(metrics.contains(line), "{line}: {metrics}");
        }
        let incomplete = format!("ralph_iterations_total{{outcome=\"incomplete\"}} {}\n", stopped.spent.iterations);
        assert!(metrics.contains(&incomplete), "{incomplete}: {metrics}");
    })
    .await;
}

/// With the default limit a hopeless loop asks a person before the limit ends it.
async fn loop_of_ten_iterations_asks_before_its_limit(dialect: Dialect) {
    let limits = "limits: { comments_per_hour: 1000, comments_per_day: 1000 }\noversight: { stuck: { standstill_chance: 0, no_progress_iterations: 100 } }";
    story(Setup::new(dialect).agent(STUCK).config(limits), async |world| {
        let stopped = world.run().await;
        assert_eq!(stopped.limits.iterations.count(), Some(10));
        assert_eq!(stopped.state, LoopState::Paused, "{}", stopped.why);
        assert!(stopped.spent.iterations < 10, "{} after {} iterations", stopped.why, stopped.spent.iterations);
    })
    .await;
}

async fn switched_off_oversight_detects_nothing(dialect: Dialect) {
    let off = "limits: { iterations: 9, comments_per_hour: 1000, comments_per_day: 1000 }\noversight: { enabled: false }\ncontrol: { enabled: false }\nstrategy: { escalation_threshold: 12 }";
    story(Setup::new(dialect).agent(STUCK).config(off), async |world| {
        let stopped = world.run().await;
        assert_eq!((stopped.state, stopped.spent.iterations), (LoopState::LimitReached, 9), "{}", stopped.why);
        assert!(levels(&stopped).is_empty(), "{:?}", levels(&stopped));
        let judged = stopped.judged().expect("judged");
        let figures = judged.control.as_ref().expect("figures");
        assert!(figures.alarms.is_empty() && judged.signal > 0.5, "{judged:?}");
        let prompts = world.prompts().await;
        assert!(prompts.iter().all(|prompt| !prompt.contains("OVERRIDE: ") && !prompt.contains("WARNING: ")));
    })
    .await;
}

async fn critical_detection_redirects_if_pauses_are_disabled(dialect: Dialect) {
    let off = "limits: { iterations: 14, comments_per_hour: 1000, comments_per_day: 1000 }\noversight: { pause_on_critical: false }\nstrategy: { escalation_threshold: 50 }";
    story(Setup::new(dialect).agent(STUCK).config(off), async |world| {
        let stopped = world.run().await;
        let levels = levels(&stopped);
        assert!(
            levels.contains(&InterventionLevel::Redirect) && !levels.contains(&InterventionLevel::Pause),
            "{levels:?}"
        );
    })
    .await;
}

async fn paused_loop_runs_no_agent_after_crashes(dialect: Dialect) {
    story(stuck(dialect), async |world| {
        world.label().await;
        // The service ends between the decision and everything that follows from it.
        let stopped = world.settle_until("the pause", |l| l.state == LoopState::Paused).await;
        assert!(world.escalations().is_empty(), "the escalation was opened too early");
        let prompts = world.prompts().await.len();
        world.restart().await;
        world.recover().await;
        world.reconcile().await;
        world.settle().await;
        let after = world.the_loop().await;
        assert_eq!((after.state, after.spent.iterations), (LoopState::Paused, stopped.spent.iterations));
        assert_eq!(world.prompts().await.len(), prompts, "no agent ran");
        assert_eq!(world.escalations().len(), 1, "the pause was not escalated");
        assert!(after.supervision.state.is_some_and(|known| known.overseer.is_held()), "the pause is not in force");
    })
    .await;
}

async fn crash_after_pause_starts_no_agent(dialect: Dialect) {
    killed_when_held(stuck(dialect), LoopState::Paused, LoopState::Paused).await;
}

async fn crash_after_end_starts_no_agent(dialect: Dialect) {
    // The best iteration is put back before the end.
    killed_when_held(strict(dialect), LoopState::Running, LoopState::Aborted).await;
}

/// Kills the service right after it decided to pause or end the loop, which leaves it in `decided`: the next process
/// escalates and runs no agent.
async fn killed_when_held(setup: Setup, decided: LoopState, state: LoopState) {
    let service = Service::new(setup, false).await;
    let mut child = service.spawn("all", Some("held"));
    service.until("the service to listen", async || service.listens().await).await;
    service.world.label().await;
    let died = child.wait().await.expect("it is our child");
    assert!(was_killed(died), "{died}\n{}", service.log());
    let stopped = service.newest().await.expect("the loop");
    assert_eq!(stopped.state, decided, "{}", stopped.why);
    assert!(service.world.escalations().is_empty(), "the escalation was opened too early");
    let mut child = service.spawn("all", None);
    service.until("the escalation", async || service.world.escalations().len() == 1).await;
    service.wait_until_idle().await;
    let after = service.newest().await.expect("the loop");
    assert_eq!((after.state, after.spent.iterations), (state, stopped.spent.iterations));
    assert!(after.supervision.state.is_some_and(|known| known.overseer.is_held()), "the pause is not in force");
    // Each run leaves its prompt behind.
    let logs = service.world.folder.path().join("data/logs").join(stopped.id.as_str());
    let names = std::fs::read_dir(logs).expect("logs").flatten().map(|entry| entry.file_name());
    let prompts = names.filter(|name| name.to_string_lossy().ends_with(".prompt.md")).count();
    assert_eq!(prompts, stopped.spent.iterations as usize, "no agent ran after the decision\n{}", service.log());
    stop(&mut child).await;
    service.finish().await;
}

async fn pending_guidance_survives_restart(dialect: Dialect) {
    // Runs that change nothing are warned of, and then the agent is to take another approach.
    story(Setup::new(dialect).agent(":\n").config(MANY), async |world| {
        world.label().await;
        for level in [DirectiveLevel::Warning, DirectiveLevel::Override] {
            let has_directive = |l: &Loop| {
                l.supervision.course.as_ref().is_some_and(|c| c.directives.iter().any(|known| known.level == level))
            };
            let prefix = level.prefix();
            let decided = world.settle_until(prefix, has_directive).await;
            let before = world.prompts().await.len();
            // The service ends between the decision and the run whose prompt contains it.
            world.restart().await;
            world
                .settle_until("the next run", |l| l.spent.iterations > decided.spent.iterations || !has_directive(l))
                .await;
            let prompts = world.prompts().await;
            assert_eq!(prompts.len(), before + 1, "one run followed");
            let line = prompts[before].lines().find(|line| line.starts_with(prefix));
            let directives = decided.supervision.course.expect("what it is to be told").directives;
            let directive = directives.iter().find(|known| known.level == level).expect("of this level").to_string();
            assert_eq!(line, directive.lines().next(), "{}", prompts[before]);
        }
        world.settle().await;
    })
    .await;
}

async fn escalation_is_extended_and_reminded_once(dialect: Dialect) {
    story(stuck(dialect), async |world| {
        world.run().await;
        let [escalation] = world.escalations()[..] else { panic!("one escalation: {:?}", world.escalations()) };
        assert!(world.bot_comments_on(escalation).is_empty());
        // Without an answer for a day there is one reminder.
        let day = Duration::from_secs(24 * 3600);
        world.advance(day - Duration::from_secs(60)).await;
        assert!(world.bot_comments_on(escalation).is_empty(), "the reminder was posted too early");
        world.advance(Duration::from_secs(120)).await;
        insta::assert_snapshot!("reminder", world.conversation_on(escalation));
        world.advance(3 * day).await;
        assert_eq!(world.bot_comments_on(escalation).len(), 1, "once");
        // Later pauses with the same cause are added to the open escalation.
        world.comment("/ralph resume Look again.").await;
        world.stop_at("the next run", |l| l.state == LoopState::Running).await;
        assert!(world.escalations().is_empty(), "the escalation is still open");
        world.forge.reopen_issue(&world.maintainer, world.repo, escalation).await.expect("opened again");
        world.settle().await;
        let stopped = world.the_loop().await;
        assert_eq!(stopped.state, LoopState::Paused, "{}", stopped.why);
        assert_eq!(world.escalations(), [escalation], "another escalation was opened");
        let comments = world.bot_comments_on(escalation);
        let newest = comments.last().expect("a comment");
        assert!(newest.contains("is paused and needs a decision:** ") && !newest.contains("No reply"), "{comments:#?}");
    })
    .await;
}

async fn manually_closed_escalation_stays_closed(dialect: Dialect) {
    story(stuck(dialect), async |world| {
        let stopped = world.run().await;
        let [escalation] = world.escalations()[..] else { panic!("one escalation: {:?}", world.escalations()) };
        assert!(world.issue_of(escalation).body.contains("Closing this issue does not change the loop."));
        world.forge.close_issue(&world.maintainer, world.repo, escalation).await.expect("closed");
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Paused);
        world.advance(Duration::from_secs(25 * 3600)).await;
        assert!(world.escalations().is_empty(), "another one was opened");
        assert!(world.bot_comments_on(escalation).is_empty());
        // Who closed it may think that all is well: the reminder comes where the loop is at home.
        let reminders: Vec<_> =
            world.bot_comments().into_iter().filter(|text| text.contains("No reply yet. ")).collect();
        let [reminder] = &reminders[..] else { panic!("one: {:#?}", world.bot_comments()) };
        assert!(reminder.contains("/ralph resume GUIDANCE") && !reminder.contains("Closing this issue"), "{reminder}");
        world.advance(Duration::from_secs(3 * 24 * 3600)).await;
        assert!(world.escalations().is_empty());
        // Answers count there as before.
        let answer = "/ralph resume It is forty two.";
        world.forge.comment(&world.maintainer, world.repo, escalation, answer).await.expect("answered");
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.id, done.state), (stopped.id, LoopState::Review), "{}", done.why);
    })
    .await;
}

/// Two checks, the second of which passes at the start, and an agent that breaks it permanently after one good iteration.
fn worse(dialect: Dialect) -> Setup {
    let agent = "case $RALPH_ITERATION in\n1) echo good >work.txt ;;\n*) rm -f kept.txt; echo \"bad $RALPH_ITERATION\" >work.txt ;;\nesac\n";
    let checks = "checks:\n  - name: answer\n    run: sh check.sh\n  - name: kept\n    run: test -f kept.txt\n";
    Setup::new(dialect).agent(agent).file("kept.txt", "kept\n").file(".ralph.yml", checks).config(MANY)
}

/// The same repository with `strict_regression`, which ends the loop at the first regression.
fn strict(dialect: Dialect) -> Setup {
    let strict = format!("{MANY}\noversight: {{ strict_regression: true }}");
    Setup { config: String::new(), ..worse(dialect) }.config(&strict)
}

async fn best_iteration_is_restored(dialect: Dialect) {
    story(worse(dialect), async |world| {
        let stopped = world.run().await;
        assert_eq!(stopped.state, LoopState::Paused, "{}", stopped.why);
        assert!(stopped.why.contains("A check that passed now fails"), "{}", stopped.why);
        assert_eq!(stopped.current().and_then(|last| last.restored_to), Some(1), "{:?}", stopped.current());
        // The forge's branch has the best files, and every commit that led there.
        assert_eq!(world.file(&stopped.branch.name, "work.txt").await.as_deref(), Some("good\n"));
        assert_eq!(world.file(&stopped.branch.name, "kept.txt").await.as_deref(), Some("kept\n"));
        assert_eq!(stopped.branch.pushed, stopped.branch.head);
        let log = world.git(&["log", "--format=%s", &stopped.branch.name]);
        assert!(log.starts_with("ralph: back to the state of iteration 1\n"), "{log}");
        assert!(log.matches("ralph: iteration").count() >= 2, "{log}");
        let [escalation] = world.escalations()[..] else { panic!("one escalation: {:?}", world.escalations()) };
        assert!(world.issue_of(escalation).body.contains("the files of iteration 1, the best one, were restored"));
        world.write_agent("test -f kept.txt && echo 42 >answer.txt\n");
        world.comment("/ralph resume").await;
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review, "{}", world.the_loop().await.why);
    })
    .await;
}

async fn concurrent_answers_are_applied_once(dialect: Dialect) {
    story(stuck(dialect), async |world| {
        world.run().await;
        let [escalation] = world.escalations()[..] else { panic!("one escalation") };
        world.comment("/ralph resume It is forty two.").await;
        let answer = "/ralph resume Try forty two, please.";
        world.forge.comment(&world.maintainer, world.repo, escalation, answer).await.expect("answered");
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let resumed = trail(world).await.into_iter().filter(|event| *event == AuditEvent::Resumed).count();
        assert_eq!(resumed, 1, "the loop was resumed twice");
        let comments = [world.bot_comments(), world.bot_comments_on(escalation)].concat();
        assert!(
            comments.iter().any(|text| text.contains("there is nothing to resume")),
            "the other is told: {comments:#?}"
        );
    })
    .await;
}

async fn answer_after_the_end_is_rejected(dialect: Dialect) {
    story(stuck(dialect), async |world| {
        world.run().await;
        let [escalation] = world.escalations()[..] else { panic!("one escalation") };
        world.comment("/ralph abort enough").await;
        world.settle().await;
        assert!(world.escalations().is_empty());
        let prompts = world.prompts().await.len();
        world.forge.comment(&world.maintainer, world.repo, escalation, "/ralph resume").await.expect("answered");
        world.settle().await;
        let after = world.the_loop().await;
        assert_eq!((after.state, world.prompts().await.len()), (LoopState::Aborted, prompts));
        assert!(world.bot_comments_on(escalation).iter().any(|text| text.contains("has ended")));
    })
    .await;
}

async fn thresholds_merge_operator_and_repository_files(dialect: Dialect) {
    // The operator disables the detection: no escalation before the limit.
    let quiet = "limits: { iterations: 6, comments_per_hour: 1000, comments_per_day: 1000 }\noversight: { stuck: { enabled: false }, resource_burn: { enabled: false } }";
    story(Setup::new(dialect).agent(STUCK).config(quiet), async |world| {
        let stopped = world.run().await;
        assert_eq!(stopped.state, LoopState::LimitReached, "{}", stopped.why);
    })
    .await;
    // The repository makes it more patient: it is noticed later.
    let early = story(stuck(dialect), async |hasty| hasty.run().await.spent.iterations).await;
    let file = "checks:\n  - name: answer\n    run: sh check.sh\noversight: { redirects: 9, stuck: { critical_error_count: 10 } }\nstrategy: { escalation_threshold: 90 }\n";
    let limits = format!("limits: {{ iterations: {}, comments_per_hour: 1000, comments_per_day: 1000 }}", early + 1);
    story(Setup::new(dialect).agent(STUCK).file(".ralph.yml", file).config(&limits), async |patient| {
        let stopped = patient.run().await;
        assert_eq!(stopped.spent.iterations, early + 1, "{}", stopped.why);
    })
    .await;
}

async fn hopeless_loop_ends(dialect: Dialect) {
    // The state of the best iteration is to be put back for the second time, which ends the loop.
    story(strict(dialect), async |world| {
        let ended = world.run().await;
        assert_eq!(ended.state, LoopState::Aborted, "{}", ended.why);
        let found = ended.judged().and_then(|judged| judged.found.first()).map(|found| (found.kind, found.level));
        assert_eq!(found, Some((DetectionKind::Regression, InterventionLevel::Abort)));
        let [escalation] = world.escalations()[..] else { panic!("one escalation: {:?}", world.escalations()) };
        insta::assert_snapshot!("hopeless_loop", world.conversation_on(escalation));
        assert!(world.file(&ended.branch.name, "work.txt").await.is_some(), "the work is saved");
    })
    .await;
}

/// One check, in which one more test passes in each iteration.
async fn steady_loop_with_one_check_triggers_nothing(dialect: Dialect) {
    let counts = "echo 'running 7 tests'\n\
                  echo \"test result: FAILED. $n passed; $((7 - n)) failed; 0 ignored; 0 measured; 0 filtered out\"\n";
    let rows = steady(dialect, counts, 7).await;
    assert_eq!(rows, [16, 33, 50, 66, 83, 100]);
}

/// A check without test counts: only its errors show progress.
async fn steady_loop_without_test_counts_triggers_nothing(dialect: Dialect) {
    let errors = "test \"$n\" -ge 14 || echo \"error: case $(echo abcdefghijklmn | cut -c \"$n\") fails\"\n";
    let rows = steady(dialect, errors, 14).await;
    assert_eq!(rows, [[0; 12].as_slice(), &[100]].concat());
}

/// Completion percentages of a loop that adds a line in each iteration until its check passes at this number of lines.
async fn steady(dialect: Dialect, script: &str, lines: u32) -> Vec<u8> {
    let check = format!("n=$(wc -l <answer.txt)\n{script}test \"$n\" -ge {lines}\n");
    let setup = Setup::new(dialect).agent("echo another >>answer.txt\n").file("check.sh", &check);
    story(setup.config(MANY), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, lines - 1), "{}", done.why);
        assert!(world.escalations().is_empty());
        done.iterations.iter().map(|iteration| iteration.completion.whole_percent()).collect()
    })
    .await
}

/// The escalation issue contains the attempts, learnings and blockers that an agent reports.
async fn escalation_contains_the_report_of_the_agent(dialect: Dialect) {
    let report = r#"printf '{"summary": "guessed", "approach": "guess number %s", "learnings": ["The almanac is not in the tree"], "blockers": ["Nobody here has the almanac"]}' "$RALPH_ITERATION" >"$RALPH_REPORT""#;
    story(Setup::new(dialect).agent(&format!("{STUCK}{report}\n")).config(MANY), async |world| {
        let stopped = world.run().await;
        assert_eq!(stopped.state, LoopState::Paused, "{}", stopped.why);
        let [escalation] = world.escalations()[..] else { panic!("one escalation: {:?}", world.escalations()) };
        let text = world.conversation_on(escalation);
        let supervision = stopped.supervision.state.as_ref().expect("supervised");
        let way = &supervision.strategy.tried.first().expect("a way was tried").name;
        let last = format!("guess number {}", stopped.spent.iterations);
        for words in ["The almanac is not in the tree", "Blocked by: Nobody here has the almanac", way, &last] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert_eq!(text.matches("The almanac is not in the tree").count(), 1, "{text}");
        let prompt = world.prompt(2).await;
        let blockers = prompt.split("\n# Blockers\n").nth(1).unwrap_or_else(|| panic!("{prompt}"));
        assert!(blockers.contains("- Nobody here has the almanac\n"), "{blockers}");
    })
    .await;
}

/// With the defaults, the loop gets a summary, which its prompts contain.
async fn default_loop_is_summarized_at_half_of_its_limit(dialect: Dialect) {
    let off = "limits: { comments_per_hour: 1000, comments_per_day: 1000 }\noversight: { enabled: false }\ncontrol: { enabled: false }\nstrategy: { escalation_threshold: 12 }";
    story(Setup::new(dialect).agent(STUCK).config(off), async |world| {
        let stopped = world.run().await;
        assert_eq!((stopped.limits.iterations.count(), stopped.spent.iterations), (Some(10), 10), "{}", stopped.why);
        let prompts = world.prompts().await;
        let told: Vec<bool> = prompts.iter().map(|prompt| prompt.contains("Iterations 1 to 5: ")).collect();
        assert_eq!(told, [false, false, false, false, false, true, true, true, true, true], "{}", prompts[5]);
    })
    .await;
}

/// From the output of a check of another kind than coverage, over the record, to the overseer and the next prompt.
async fn drop_of_printed_coverage_is_detected(dialect: Dialect) {
    let check =
        "covered=$(cat cover.txt)\necho \"TOTAL 100 $((100 - covered)) $covered%\"\ntest \"$(cat answer.txt)\" = 42\n";
    let agent = "echo \"$RALPH_ITERATION wrong\" >answer.txt\necho $((110 - 20 * RALPH_ITERATION)) >cover.txt\n";
    let limits = "limits: { iterations: 3, comments_per_hour: 1000, comments_per_day: 1000 }";
    let setup = Setup::new(dialect).file("check.sh", check).file("cover.txt", "90\n").agent(agent).config(limits);
    story(setup, async |world| {
        let stopped = world.run().await;
        let measured: Vec<Option<f64>> =
            stopped.iterations.iter().map(|iteration| iteration.record.as_ref()?.coverage).collect();
        assert_eq!(measured[..2], [Some(90.0), Some(70.0)], "{}", stopped.why);
        let found = |at: usize| {
            let judged = stopped.iterations[at].judged.as_ref().expect("judged");
            judged.found.iter().find(|found| found.kind == DetectionKind::Regression).cloned()
        };
        assert_eq!(found(0), None);
        let regression = found(1).expect("20 points are lost");
        assert!(regression.evidence.contains("coverage"), "{regression:?}");
        let prompts = world.prompts().await;
        assert!(!prompts[1].contains("coverage") && prompts[2].contains("coverage"), "{}", prompts[2]);
    })
    .await;
}
