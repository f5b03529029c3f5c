//! Second opinions: another backend reads finished work before it is handed over.

use fake_forge::Dialect;
use ralph_bot::config::Config;
use ralph_bot::domain::loops::{Loop, LoopState};
use ralph_bot::domain::model::ids::Money;
use ralph_bot::domain::model::opinion::OpinionEnd;
use ralph_bot::domain::supervision::oversight::AuditEvent;
use ralph_bot::store::{Store, audit, calls};

use crate::harness::service::{Service, stop, was_killed};
use crate::harness::{Setup, World, on_one_forge, story};

on_one_forge!(
    findings_lead_to_one_iteration_and_the_rest_is_listed,
    useless_opinion_is_reported_and_the_loop_continues,
    reviewer_that_never_answers_is_stopped,
    opinion_over_the_budget_is_not_requested,
    cost_of_an_opinion_is_charged_to_the_loop,
    restart_keeps_opinions_and_charges_a_stored_one_once,
    loop_does_not_wait_for_a_limited_reviewer,
    missing_reviewer_is_reported,
    reviewer_cannot_change_the_work,
    repository_can_switch_second_opinions_off,
    iteration_that_breaks_the_work_is_undone_before_handover,
);

/// Agent that solves the task, and implements a remark.
const AGENT: &str = "prompt=$(cat)\necho 42 >answer.txt\ncase $prompt in *'add a note'*) echo noted >note.txt;; esac\n";

/// Reviewer that requests a note, and then reports a minor finding.
const PICKY: &str = r#"prompt=$(cat)
echo asked >>"$ASKED"
case $prompt in
  *note.txt*) echo 'Here: {"verdict":"changes","summary":"Fine now.","findings":[{"file":"note.txt","line":1,"severity":"minor","text":"The note is short; see @mona and <b>#7</b>."}]}';;
  *) echo '{"verdict":"changes","summary":"A note is missing.","findings":[{"file":"answer.txt","line":1,"severity":"major","text":"please add a note about the answer"}]}';;
esac
"#;

/// Returns the configuration of a reviewer that runs a shell script.
fn reviewer(script: &str) -> String {
    let command = serde_json::to_string(&["/bin/sh", "-c", script]).expect("a list");
    format!(
        "  judge: {{ type: script, command: {command}, roles: [reviewer] }}\nreview: {{ backend: judge }}\n\
         limits: {{ comments_per_hour: 1000, comments_per_day: 1000 }}\n"
    )
}

fn asked(folder: &tempfile::TempDir) -> usize {
    std::fs::read_to_string(folder.path().join("asked")).unwrap_or_default().lines().count()
}

/// Returns the script with a file that counts its runs.
fn counted(script: &str, folder: &tempfile::TempDir) -> String {
    format!("ASKED={}\n{script}", folder.path().join("asked").display())
}

fn missing(done: &Loop) -> &str {
    match done.supervision.opinions.last.as_ref().map(|last| &last.end) {
        Some(OpinionEnd::Missing(why)) => why,
        other => panic!("there is one: {other:?}"),
    }
}

/// Asserts that a loop is ready without a second opinion, and that the reason is shown.
async fn is_ready_without(world: &World, done: &Loop, says: &str) {
    assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 1), "{}", done.why);
    assert!(missing(done).contains(says), "{}", missing(done));
    let pull = world.the_pull().await;
    assert!(!world.is_draft(&pull));
    assert!(pull.body.contains("No second opinion: "), "{}", pull.body);
    assert!(world.bot_commented("No second opinion: "), "{:?}", world.bot_comments());
    let id = done.id.clone();
    let trail = world.engine().store.read(move |c| audit::trail(c, &id)).await.expect("a trail");
    let told: Vec<_> = trail.iter().filter(|line| line.entry.event == AuditEvent::SecondOpinion).collect();
    assert!(told.len() == 1 && told[0].entry.reason.starts_with("no second opinion: "), "{told:?}");
}

async fn findings_lead_to_one_iteration_and_the_rest_is_listed(dialect: Dialect) {
    let folder = tempfile::tempdir().expect("a folder");
    let setup = Setup::new(dialect).config(&reviewer(&counted(PICKY, &folder))).agent(AGENT);
    story(setup, async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 2), "{}", done.why);
        assert_eq!((asked(&folder), done.branch.verified.as_ref()), (2, done.branch.head.as_ref()));
        let prompt = world.prompt(2).await;
        let remark = prompt.split_once("\n# Second opinion\n").expect("a section").1;
        assert!(remark.contains("remark of judge on answer.txt:1") && remark.contains("please add a note"), "{prompt}");
        assert_eq!(world.file(&done.branch.name, "note.txt").await.as_deref(), Some("noted\n"));
        let pull = world.the_pull().await;
        assert!(!world.is_draft(&pull));
        for part in [
            "### Second opinion",
            "judge read the change",
            "Iteration 2 addressed its earlier findings.",
            "`note.txt:1`",
            "The note is short",
        ] {
            assert!(pull.body.contains(part), "{part}: {}", pull.body);
        }
        // A model's text mentions no account and closes no issue.
        assert!(!pull.body.contains("see @mona") && !pull.body.contains("<b>"), "{}", pull.body);
        assert!(world.bot_commented("Second opinion of judge: 1 finding"), "{:?}", world.bot_comments());
        let id = done.id.clone();
        let booked = world.engine().store.read(move |c| calls::of_loop(c, &id)).await.expect("calls");
        let purposes: Vec<_> = booked.iter().map(|call| (call.purpose.as_str(), call.backend.as_str())).collect();
        let opinion = ("second_opinion", "judge");
        assert_eq!(purposes.iter().filter(|one| **one == opinion).count(), 2, "{purposes:?}");
    })
    .await;
}

async fn useless_opinion_is_reported_and_the_loop_continues(dialect: Dialect) {
    for (script, says) in [
        ("cat >/dev/null; echo 'Looks good to me, approved!'", "its answer is unusable: it contains no JSON"),
        ("cat >/dev/null; echo '{\"verdict\":\"approve\",\"summary\":\"\",\"findings\":[]}'", "its answer is unusable"),
        ("cat >/dev/null; echo '{\"verdict\":\"changes\",\"summary\":\"\",\"findings\":[]}'", "`findings` has none"),
        ("cat >/dev/null; echo broken >&2; exit 3", "broken"),
    ] {
        let setup = Setup::new(dialect).config(&reviewer(script)).agent(AGENT);
        story(setup, async |world| {
            let done = world.run().await;
            is_ready_without(world, &done, says).await;
        })
        .await;
    }
}

async fn reviewer_that_never_answers_is_stopped(dialect: Dialect) {
    let adjust: fn(&mut Config) = |config| config.policy.review.as_mut().expect("a reviewer").timeout_s = 1;
    let setup = Setup { adjust, ..Setup::new(dialect).config(&reviewer("sleep 600")).agent(AGENT) };
    story(setup, async |world| {
        let done = world.run().await;
        is_ready_without(world, &done, "longer than 1 s").await;
    })
    .await;
}

async fn loop_does_not_wait_for_a_limited_reviewer(dialect: Dialect) {
    let script = "cat >/dev/null; echo 'Error: 429 Too Many Requests: rate limit exceeded, retry after 3600 seconds' >&2; exit 1";
    let setup = Setup::new(dialect).config(&reviewer(script)).agent(AGENT);
    story(setup, async |world| {
        let done = world.run().await;
        is_ready_without(world, &done, "429").await;
    })
    .await;
}

async fn missing_reviewer_is_reported(dialect: Dialect) {
    let config = "  judge: { type: script, command: [/no/such/program], roles: [reviewer] }\nreview: { backend: judge }\n\
                  limits: { comments_per_hour: 1000, comments_per_day: 1000 }";
    story(Setup::new(dialect).config(config).agent(AGENT), async |world| {
        let done = world.run().await;
        is_ready_without(world, &done, "`judge` cannot be used here").await;
    })
    .await;
}

async fn opinion_over_the_budget_is_not_requested(dialect: Dialect) {
    let folder = tempfile::tempdir().expect("a folder");
    let script = counted(PICKY, &folder);
    let command = serde_json::to_string(&["/bin/sh", "-c", &script]).expect("a list");
    // The question alone would cost more than the loop may.
    let config = format!(
        "  judge: {{ type: script, command: {command}, roles: [reviewer], models: {{ default: dear }}, prices: {{ dear: {{ input: 9000.0, output: 9000.0 }} }} }}\n\
         review: {{ backend: judge }}\nlimits: {{ cost_usd: 5 }}"
    );
    story(Setup::new(dialect).config(&config).agent(AGENT), async |world| {
        let done = world.run().await;
        is_ready_without(world, &done, "of the loop's budget are left").await;
        assert_eq!((asked(&folder), done.spent.cost), (0, Money(0)));
    })
    .await;
}

async fn reviewer_cannot_change_the_work(dialect: Dialect) {
    let script = r#"cat >/dev/null; echo 7 >answer.txt; rm -f check.sh; echo mine >new.txt
        echo '{"verdict":"sound","summary":"Good.","findings":[]}'"#;
    let setup = Setup::new(dialect).config(&reviewer(script)).agent(AGENT).isolated();
    story(setup, async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 1), "{}", done.why);
        assert_eq!(world.file(&done.branch.name, "answer.txt").await.as_deref(), Some("42\n"));
        assert_eq!(world.file(&done.branch.name, "new.txt").await, None);
        let tree = world.tree().await;
        assert!(!tree.join("new.txt").exists() && tree.join("check.sh").exists());
        assert!(world.the_pull().await.body.contains("is not an approval"), "{}", world.the_pull().await.body);
    })
    .await;
}

async fn iteration_that_breaks_the_work_is_undone_before_handover(dialect: Dialect) {
    let folder = tempfile::tempdir().expect("a folder");
    let agent = "prompt=$(cat)\necho 42 >answer.txt\ncase $prompt in *'add a note'*) echo 7 >answer.txt;; esac\n";
    let config = reviewer(&counted(PICKY, &folder)).replace("limits: { ", "limits: { iterations: 2, ");
    story(Setup::new(dialect).config(&config).agent(agent), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 2), "{}", done.why);
        assert_eq!(world.file(&done.branch.name, "answer.txt").await.as_deref(), Some("42\n"));
        assert_eq!(
            (done.branch.verified.as_ref(), done.branch.pushed.as_ref()),
            (done.branch.head.as_ref(), done.branch.head.as_ref())
        );
        assert_eq!(asked(&folder), 1, "the same files are not read twice");
        let pull = world.the_pull().await;
        assert!(!world.is_draft(&pull) && pull.body.contains("please add a note about the answer"), "{}", pull.body);
    })
    .await;
}

async fn repository_can_switch_second_opinions_off(dialect: Dialect) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = "checks: [sh check.sh]\nreview: { when: never }\n";
    let setup = Setup::new(dialect).config(&reviewer(&counted(PICKY, &folder))).agent(AGENT);
    story(setup.file(".ralph.yml", file), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 1), "{}", done.why);
        assert_eq!(asked(&folder), 0);
        assert!(!world.the_pull().await.body.contains("econd opinion"));
    })
    .await;
}

/// Reviewer that finds nothing and costs $0.25.
const PAID: &str = r#"echo asked >>"$ASKED"; cat >/dev/null
printf '%s\n' '{"type":"result","subtype":"success","is_error":false,"result":"{\"verdict\":\"sound\",\"summary\":\"Good.\",\"findings\":[]}","total_cost_usd":0.25,"session_id":"s"}'"#;

/// Returns the configuration of a reviewer that reports its cost.
fn paid(folder: &tempfile::TempDir) -> String {
    reviewer(&counted(PAID, folder)).replace("type: script,", "type: script, output: claude,")
}

/// Returns the costs of the second opinions that were booked.
async fn booked(store: &Store, done: &Loop) -> Vec<Money> {
    let id = done.id.clone();
    let calls = store.read(move |c| calls::of_loop(c, &id)).await.expect("calls");
    calls.iter().filter(|call| call.purpose == "second_opinion").map(|call| call.cost).collect()
}

async fn cost_of_an_opinion_is_charged_to_the_loop(dialect: Dialect) {
    let folder = tempfile::tempdir().expect("a folder");
    story(Setup::new(dialect).config(&paid(&folder)).agent(AGENT), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, asked(&folder)), (LoopState::Review, 1), "{}", done.why);
        assert_eq!(booked(&world.engine().store, &done).await, [Money(250_000)]);
        assert_eq!((done.spent.cost, done.supervision.opinions.cost()), (Money(250_000), Money(250_000)));
        assert!(world.the_pull().await.body.contains(" · $0.25 · "), "{}", world.the_pull().await.body);
    })
    .await;
}

/// See docs/research/faults.md#k42, docs/research/faults.md#k43 and docs/research/faults.md#k44.
async fn restart_keeps_opinions_and_charges_a_stored_one_once(dialect: Dialect) {
    // An opinion that was lost with the process is requested again and reported as lost; a stored answer is not.
    for (kill, runs, lost) in [("K42", 1, true), ("K43", 2, true), ("K44", 1, false)] {
        let folder = tempfile::tempdir().expect("a folder");
        let service = Service::new(Setup::new(dialect).config(&paid(&folder)).agent(AGENT), false).await;
        let mut child = service.spawn("all", Some(kill));
        service.until("the service to listen", async || service.listens().await).await;
        service.world.label().await;
        assert!(was_killed(child.wait().await.expect("it ends")), "{}", service.log());
        let mut child = service.spawn("all", None);
        let done = service.until_loop("the review", |l| l.state == LoopState::Review && l.pull.opened.is_some()).await;
        service.wait_until_idle().await;
        stop(&mut child).await;
        assert_eq!(asked(&folder), runs, "{kill}");
        let last = done.supervision.opinions.last.as_ref().expect("an opinion");
        assert!(matches!(last.end, OpinionEnd::Answered(_)), "{kill}: {last:?}");
        assert_eq!(done.spent.iterations, 1, "{kill}");
        let store = service.store().await.expect("a database");
        let costs = booked(&store, &done).await;
        let id = done.id.clone();
        let trail = store.read(move |c| audit::trail(c, &id)).await.expect("a trail");
        store.close().await;
        let paid = costs.iter().fold(Money(0), |sum, cost| sum.plus(*cost));
        assert_eq!(
            (costs.len(), done.spent.cost, done.supervision.opinions.cost()),
            (1 + usize::from(lost), paid, paid),
            "{kill}"
        );
        assert!(lost || paid == Money(250_000), "{kill}: {paid}");
        let says_lost = trail.iter().any(|line| line.entry.reason.starts_with("the second opinion of judge was lost"));
        assert_eq!(says_lost, lost, "{kill}: {trail:?}");
        let pull = done.pull.opened.as_ref().expect("a pull request").number;
        let body = service.world.issue_of(pull).body;
        assert_eq!(body.contains("An earlier second opinion was lost"), lost, "{kill}: {body}");
        service.finish().await;
    }
}
