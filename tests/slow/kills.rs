//! SIGKILL of the real service at named points of a loop: after a restart the outcome is the same as without the kill.
//!
//! The points are K01 to K41 of docs/research/faults.md, by their names in the source; the points of second opinions are in `tests/it`. Some have no
//! separate point:
//! - K20: nothing is imported as a bundle; the point lies between an iteration's objects and the ref that keeps them.
//! - K31: tokens are only in memory. The invariants check after every story that none is on disk.
//! - K34: a backup runs in a separate process, which is killed: `killed_backup_leaves_no_copy`.
//! - K35: no log is rotated; the point lies in the transaction that deletes old deliveries and inputs.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;

use fake_forge::{Dialect, FakeFault, ReviewDraft};
use futures::{FutureExt, StreamExt, stream};
use ralph_bot::domain::loops::{Loop, LoopState};
use ralph_bot::domain::model::event::ReviewVerdict;
use ralph_bot::domain::model::ids::{Money, Number};
use ralph_bot::store::{Store, calls, loops};
use tokio::process::Child;
use tokio::sync::OnceCell;

use crate::harness::service::{Service, WAIT_LIMIT, lasting_once, stop, was_killed};
use crate::harness::{Setup, World, on_both_forges, on_one_forge};

/// Number of stories of a group that run concurrently.
const AT_ONCE: usize = 2;

/// Kill points, one for each start of the service; later starts have none.
type Kills = &'static [&'static str];

/// Kill points while a delivery is received.
const INTAKE: &[Kills] = &[&["K01", "K02", "K03"], &["K08", "K02:2", "K01:3"], &["K04", "K09", "K30"], &["K05", "K06"]];
/// Kill points during work in the tree.
const WORK: &[Kills] = &[
    &["K07", "K13", "K18", "K23"],
    &["K12", "K15:2", "K22", "K24"],
    &["K14", "K21", "K24:2"],
    &["K07:6", "K21:3"],
    &["K16", "K19", "K20"],
    &["K16:2", "K19", "K20:2"],
];
/// Kill points during requests to the forge.
const TALK: &[Kills] =
    &[&["K26", "K10", "K11:8", "K28b:3"], &["K25", "K10:2", "K29"], &["K27", "K29b", "K10:3"], &["K11", "K28", "K28b"]];
/// Kill points at start and stop, and a second kill during recovery from the first.
const AROUND: &[Kills] = &[
    &["K36"],
    &["K32", "K33"],
    &["K32:3", "K35"],
    &["K15", "K37"],
    &["K11", "K37"],
    &["K24", "K07"],
    &["K27", "K07:2"],
    &["K14", "K12"],
    &["K29", "K10"],
    &["K10", "K37", "K07"],
];

/// Kill points at which the disk is full for some commits instead, each group in one story.
const FILLS: &[Kills] = &[
    &["full:K01,K02,K03,K04,K05,K06,K08,K09,K30"],
    &["full:K07,K12,K13,K14,K15,K16,K18,K19,K24:2"],
    &["full:K20,K21,K22,K23,K24,K25"],
    &["full:K37b"],
    &["full:K07:6,K10,K11,K27,K28,K28b,K29,K29b"],
];

on_both_forges!(
    kills_during_intake_do_not_change_the_outcome,
    kills_during_work_do_not_change_the_outcome,
    kills_during_forge_effects_do_not_change_the_outcome,
    kills_at_start_stop_and_recovery_do_not_change_the_outcome,
);

on_one_forge!(
    full_disk_at_a_kill_point_does_not_change_the_outcome,
    killed_backup_leaves_no_copy,
    kill_at_a_renewal_repeats_the_run_once,
    kills_around_a_call_are_billed_once,
    kills_around_a_hook_repeat_it_with_its_id,
);

async fn kills_during_intake_do_not_change_the_outcome(dialect: Dialect) {
    each_kill_point_has_the_outcome_of_an_undisturbed_loop(dialect, INTAKE).await;
}

async fn kills_during_work_do_not_change_the_outcome(dialect: Dialect) {
    each_kill_point_has_the_outcome_of_an_undisturbed_loop(dialect, &share(dialect, WORK)).await;
}

async fn kills_during_forge_effects_do_not_change_the_outcome(dialect: Dialect) {
    each_kill_point_has_the_outcome_of_an_undisturbed_loop(dialect, TALK).await;
}

async fn kills_at_start_stop_and_recovery_do_not_change_the_outcome(dialect: Dialect) {
    each_kill_point_has_the_outcome_of_an_undisturbed_loop(dialect, &share(dialect, AROUND)).await;
}

/// Outcomes that cannot be stored are kept until the disk has space.
/// See docs/research/faults.md#d1.
async fn full_disk_at_a_kill_point_does_not_change_the_outcome(dialect: Dialect) {
    each_kill_point_has_the_outcome_of_an_undisturbed_loop(dialect, FILLS).await;
}

/// Returns every other story of a group, so that each runs on one of the forges. For groups whose points do not depend on the forge, or
/// lie in calls of the forge that `TALK` has on both.
fn share(dialect: Dialect, group: &[Kills]) -> Vec<Kills> {
    group.iter().skip(usize::from(dialect == Dialect::Gitea)).step_by(2).copied().collect()
}

async fn each_kill_point_has_the_outcome_of_an_undisturbed_loop(dialect: Dialect, group: &[Kills]) {
    let undisturbed = outcome_without_kills(dialect).await;
    let stories = group.iter().map(async |kills| {
        let story = async { assert_eq!(live(dialect, kills).await, *undisturbed, "killed at {kills:?}") };
        AssertUnwindSafe(story).catch_unwind().await.is_err().then_some(kills)
    });
    let outcomes: Vec<_> = stream::iter(stories).buffer_unordered(AT_ONCE).collect().await;
    let failed: Vec<_> = outcomes.into_iter().flatten().collect();
    assert!(failed.is_empty(), "{} of {} stories went wrong, see above: {failed:?}", failed.len(), group.len());
}

/// A killed backup leaves no file that could be mistaken for a copy, and the next backup is complete.
/// See docs/research/faults.md#k34.
async fn killed_backup_leaves_no_copy(dialect: Dialect) {
    let service = Service::new(setup(dialect), false).await;
    let mut child = service.spawn("all", None);
    service.until("the service to listen", async || service.listens().await).await;
    service.world.label().await;
    service.until_loop("the limit", |l| l.state == LoopState::LimitReached).await;
    let copy = service.world.folder.path().join("copy.db");
    assert!(was_killed(service.backup(&copy, Some("K34")).await), "{}", service.log());
    assert!(!copy.exists(), "a partial copy has the final name");
    assert!(service.backup(&copy, None).await.success(), "{}", service.log());
    let store = Store::open(&copy).expect("the copy opens");
    assert_eq!(store.integrity().await.expect("looked over"), Vec::<String>::new());
    let copied = store.read(|c| loops::list(c, false, 9)).await.expect("loops");
    assert_eq!(copied.iter().map(|l| l.state).collect::<Vec<_>>(), [LoopState::LimitReached]);
    assert!(!service.backup(&copy, None).await.success(), "a copy was overwritten");
    service.wait_until_idle().await;
    assert!(stop(&mut child).await.success(), "{}", service.log());
    service.finish().await;
}

/// Outcome of the story without kills.
async fn outcome_without_kills(dialect: Dialect) -> &'static VisibleOutcome {
    static GITEA: OnceCell<VisibleOutcome> = OnceCell::const_new();
    static GITHUB: OnceCell<VisibleOutcome> = OnceCell::const_new();
    let cell = if dialect == Dialect::Gitea { &GITEA } else { &GITHUB };
    cell.get_or_init(|| live(dialect, &[])).await
}

/// Visible outcome, without ids and times.
#[derive(Debug, PartialEq)]
struct VisibleOutcome {
    labels: Vec<String>,
    /// Kinds of the bot's comments, by issue or pull request.
    comments: BTreeMap<Number, Vec<String>>,
    /// Number, title, and whether it is open.
    issues: Vec<(Number, String, bool)>,
    reactions: Vec<String>,
    files: Vec<Option<String>>,
    commits: Vec<String>,
    iterations: u32,
}

/// Two iterations, the first of which reaches the limit, then a third, which a reviewer requests. The agent's actions depend
/// only on the tree.
fn setup(dialect: Dialect) -> Setup {
    let agent = "echo at work\n\
                 if [ \"$(cat answer.txt)\" = 42 ]; then echo done >polished.txt\n\
                 elif [ -f begun.txt ]; then echo 42 >answer.txt\n\
                 else echo begun >begun.txt; fi\n";
    let limits = "limits: { iterations: 1, comments_per_hour: 1000, comments_per_day: 1000 }";
    Setup::new(dialect).agent(agent).config(limits)
}

/// Runs the story with these kills.
async fn live(dialect: Dialect, kills: &[&str]) -> VisibleOutcome {
    let service = Service::new(setup(dialect), false).await;
    if kills.contains(&"K26") {
        // The pull request is opened, and the response is lost.
        let lost = FakeFault::after_effect(502);
        service.world.forge.faults().next(1, "POST", r"/pulls$", lost).expect("a pattern");
    }
    let mut remaining = kills.iter();
    let mut child = service.spawn("all", remaining.next().copied());
    let mut deaths = 0;
    {
        let people = people(&service);
        tokio::pin!(people);
        loop {
            tokio::select! {
                () = &mut people => break,
                status = child.wait() => {
                    let status = status.expect("it is our child");
                    assert!(was_killed(status), "{kills:?}: it ended by itself: {status}\n{}", service.log());
                    deaths += 1;
                    assert!(deaths <= kills.len(), "{kills:?}: killed more often than planned");
                    child = service.spawn("all", remaining.next().copied());
                }
                () = resend(&service) => {}
            }
        }
    }
    // The last point may lie on the way out.
    while was_killed(stop(&mut child).await) {
        deaths += 1;
        child = service.spawn("all", remaining.next().copied());
        service.until("the service to listen", async || service.listens().await).await;
        service.wait_until_idle().await;
    }
    let fills: usize =
        kills.iter().filter_map(|kill| kill.strip_prefix("full:")).map(|points| points.split(',').count()).sum();
    let filled = service.full_log().matches("the disk is full for some commits").count();
    let full = kills.iter().filter(|kill| kill.starts_with("full:")).count();
    let reached = (deaths, filled);
    assert_eq!(reached, (kills.len() - full, fills), "{kills:?}: not every point was come by\n{}", service.log());
    service.finish().await;
    seen(&service).await
}

/// Redelivers failed deliveries while the service listens; never returns.
async fn resend(service: &Service) {
    loop {
        if service.listens().await {
            service.redeliver_failed();
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// Performs the maintainer's next action, chosen by the visible state.
async fn people(service: &Service) {
    let world = &service.world;
    service.until("the service to listen", async || service.listens().await).await;
    world.label().await;
    service.until_loop("the limit", |l| l.state == LoopState::LimitReached).await;
    service.until("the escalation", async || world.escalations().len() == 1).await;
    world.comment("/ralph resume --max-iterations 5").await;
    let done = service.until_loop("the review", |l| l.state == LoopState::Review && l.pull.opened.is_some()).await;
    let pull = done.pull.opened.expect("a pull request").number;
    let draft =
        ReviewDraft { verdict: ReviewVerdict::ChangesRequested, body: "Please polish it.".into(), remarks: Vec::new() };
    world.forge.review(&world.maintainer, world.repo, pull, &draft).await.expect("reviewed");
    service.until_loop("the next review", |l| l.state == LoopState::Review && l.spent.iterations == 3).await;
    service.wait_until_idle().await;
    world.forge.merge(&world.maintainer, world.repo, pull).await.expect("merged");
    service.until_loop("the end", |l| l.state == LoopState::Merged).await;
    service.until("the label", async || world.state_labels() == ["merged"]).await;
    // All pending events have arrived: the service may have died on the last step, together with deliveries.
    service
        .until("the last deliveries", async || {
            let resent = service.listens().await && service.redeliver_failed() == 0;
            let before = service.is_idle().await;
            world.forge.flush().await;
            resent && before && service.is_idle().await
        })
        .await;
}

async fn seen(service: &Service) -> VisibleOutcome {
    let world = &service.world;
    let issues: Vec<(Number, String, bool)> = world.forge.with(|state| {
        let repo = state.repo(world.repo).expect("the repository");
        repo.issues.values().map(|i| (i.number, i.title.clone(), i.open)).collect()
    });
    let newest = service.newest().await.expect("the loop");
    let issues: Vec<_> =
        issues.into_iter().map(|(n, title, open)| (n, title.replace(newest.id.as_str(), "LOOP"), open)).collect();
    let comments = issues.iter().map(|(number, _, _)| (*number, kinds(world, *number))).collect();
    let commands = world.comments(world.issue);
    let reacted = commands.iter().filter(|c| c.author == Some(world.maintainer.id));
    let mut reactions: Vec<String> = reacted.flat_map(|c| world.reactions(c.id)).collect();
    reactions.sort();
    let mut files = Vec::new();
    for file in ["answer.txt", "begun.txt", "polished.txt"] {
        files.push(world.file("main", file).await);
    }
    let mut labels = world.forge.labels(world.repo, world.issue);
    labels.sort();
    VisibleOutcome {
        labels,
        comments,
        issues,
        reactions,
        files,
        commits: commits(world),
        iterations: newest.spent.iterations,
    }
}

/// Kinds of the bot's comments on an issue or pull request, sorted, without counters.
fn kinds(world: &World, number: Number) -> Vec<String> {
    let texts = world.bot_comments_on(number);
    let markers = texts.iter().filter_map(|t| t.lines().rev().find_map(|l| l.strip_prefix("<!-- ralph:1 ")));
    let fields = markers.map(|m| m.split(' ').skip(1).take(2).collect::<Vec<_>>().join(" "));
    let mut kinds: Vec<String> = fields.map(|f| f.replace(|c: char| c.is_ascii_digit(), "")).collect();
    kinds.sort();
    kinds
}

/// Subjects of the commits on the main branch.
#[expect(clippy::disallowed_methods, reason = "a look at the forge from outside")]
fn commits(world: &World) -> Vec<String> {
    let mut git = std::process::Command::new("git");
    git.arg("-C").arg(world.forge.repo_path(world.repo)).args(["log", "--topo-order", "--format=%s", "main"]);
    let output = git.output().expect("git runs");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Kill points of a booked agent call: before and after it is booked, at its first output, at its first cost, at its end,
/// and before and after its cost is booked.
const CALLS: &[(Kills, f64)] = &[
    // Cost of a lost run beside the last one: nothing if the call was never booked, and the reported cost if its end was booked. Otherwise
    // at least the reserved cost, because the reported one may be incomplete and nobody counts the requests of this agent.
    (&["K15b"], 0.0),
    (&["K15c"], 0.5),
    (&["K15"], 0.5),
    (&["K16b"], 0.5),
    (&["K17"], 0.5),
    (&["K18"], 0.5),
    (&["K18b"], 0.5),
    (&["K18c"], 0.25),
    (&["K15c", "K18c"], 0.75),
    (&["K17", "K18b"], 1.0),
    // The disk is full for some commits, and the process lives.
    (&["full:K15b,K17"], 0.0),
    (&["full:K15c,K18b"], 0.0),
    (&["full:K16b,K18c"], 0.0),
];

/// Agent with the output format of Claude Code, whose run costs 0.25 dollars, which it reports a second after its first message, so that
/// both are not stored at once; records whether another run is active.
fn paid(folder: &std::path::Path) -> String {
    let at = folder.display();
    let message = r#"{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"done"}],"usage":{"input_tokens":10,"output_tokens":5}},"session_id":"s"}"#;
    let result = r#"{"type":"result","subtype":"success","is_error":false,"terminal_reason":"completed","result":"done","total_cost_usd":0.25,"session_id":"s","usage":{"input_tokens":10,"output_tokens":5}}"#;
    let script = format!(
        "cat >/dev/null; exec 9>{at}/lock; flock -n 9 || touch {at}/twice; echo 42 >answer.txt; printf '%s\\n' '{message}'; sleep 1; printf '%s\\n' '{result}'"
    );
    let command = serde_json::to_string(&["/bin/sh", "-c", &script, "claude"]).expect("a list");
    let limits = "limits: { comments_per_hour: 1000, comments_per_day: 1000 }";
    format!("  claude: {{ enabled: true, command: {command} }}\norder: {{ agent: [claude] }}\n{limits}")
}

async fn kills_around_a_call_are_billed_once(dialect: Dialect) {
    let stories = CALLS.iter().map(async |(kills, lost)| {
        let story = async { pays_once(dialect, kills, *lost).await };
        AssertUnwindSafe(story).catch_unwind().await.is_err().then_some(kills)
    });
    let outcomes: Vec<_> = stream::iter(stories).buffer_unordered(AT_ONCE).collect().await;
    let failed: Vec<_> = outcomes.into_iter().flatten().collect();
    assert!(failed.is_empty(), "{} of {} stories went wrong, see above: {failed:?}", failed.len(), CALLS.len());
}

/// Labels an issue, restarts the service after each kill point, and returns the loop, at review after one iteration, with the
/// running service.
async fn review_through_kills(service: &Service, kills: &[&str]) -> (Loop, Child) {
    let mut remaining = kills.iter();
    let mut child = service.spawn("all", remaining.next().copied());
    service.until("the service to listen", async || service.listens().await).await;
    service.world.label().await;
    for _ in kills.iter().filter(|kill| !kill.starts_with("full:")) {
        let ended = tokio::time::timeout(WAIT_LIMIT, child.wait()).await;
        let status = ended.unwrap_or_else(|_| panic!("{kills:?}: it was never killed\n{}", service.log()));
        let status = status.expect("it is our child");
        assert!(was_killed(status), "{kills:?}: it ended by itself: {status}\n{}", service.log());
        child = service.spawn("all", remaining.next().copied());
    }
    service.until("the service to listen", async || service.listens().await).await;
    service.redeliver_failed();
    let done = service.until_loop("the review", |l| l.state == LoopState::Review && l.pull.opened.is_some()).await;
    service.wait_until_idle().await;
    assert_eq!(done.spent.iterations, 1, "{kills:?}");
    (done, child)
}

/// After kills in its first iteration a loop completes, each call is settled once, and the loop's cost is their sum.
async fn pays_once(dialect: Dialect, kills: &[&str], lost: f64) {
    let beside = tempfile::tempdir().expect("a folder");
    let service = Service::new(Setup::new(dialect).config(&paid(beside.path())), false).await;
    let (done, mut child) = review_through_kills(&service, kills).await;
    let id = done.id.clone();
    let store = service.store().await.expect("a database");
    let (booked, known) = store.read(move |c| Ok((calls::of_loop(c, &id)?, calls::state(c)?))).await.expect("calls");
    assert!(booked.iter().all(|call| call.outcome.is_some()), "{kills:?}: a call holds money for ever: {booked:#?}");
    assert_eq!(
        booked.iter().filter(|call| call.outcome.as_deref() == Some("finished")).count(),
        1 + usize::from(kills.contains(&"K18c")),
        "{kills:?}: {booked:#?}"
    );
    let cost = booked.iter().fold(Money(0), |sum, call| sum.plus(call.cost));
    assert_eq!((cost, done.spent.cost), (Money::from_usd(0.25 + lost), cost), "{kills:?}: {booked:#?}");
    assert!(known.backends["claude"].in_flight.is_empty(), "{kills:?}: {known:?}");
    assert_eq!(known.backends["claude"].reserved(), Money(0));
    assert!(!beside.path().join("twice").exists(), "{kills:?}: two agents ran at the same time");
    assert!(!was_killed(stop(&mut child).await));
    service.finish().await;
}

/// The first run lasts until a lease is renewed, which is why the point is always reached.
/// See docs/research/faults.md#k38.
async fn kill_at_a_renewal_repeats_the_run_once(dialect: Dialect) {
    let service = Service::new(Setup::new(dialect), false).await;
    let runs = service.world.folder.path().join("runs");
    service.world.write_agent(&lasting_once(&runs));
    let (done, mut child) = review_through_kills(&service, &["K38"]).await;
    assert_eq!(done.iterations.iter().map(|iteration| iteration.attempt).collect::<Vec<_>>(), [2], "{}", service.log());
    assert_eq!(std::fs::read_to_string(&runs).expect("runs").lines().count(), 2);
    assert!(stop(&mut child).await.success(), "{}", service.log());
    service.finish().await;
}

/// Kill points around the runs of hooks: those before the agent, before the review and after the end.
const HOOKS: &[Kills] = &[&["K40", "K41"], &["K41", "K40:2"], &["K41:2", "K41:2"], &["K40:3"], &["K41:3"]];

/// See docs/research/faults.md#k40 and docs/research/faults.md#k41.
async fn kills_around_a_hook_repeat_it_with_its_id(dialect: Dialect) {
    let undisturbed = hook_runs(dialect, &[]).await;
    let events: Vec<&str> = undisturbed.iter().filter_map(|run| run.split('/').nth(1)).collect();
    assert_eq!(events, ["before_agent", "before_ready", "after_end"], "{undisturbed:?}");
    let stories = HOOKS.iter().map(async |kills| {
        let story = async {
            let runs = hook_runs(dialect, kills).await;
            let mut occasions = runs.clone();
            occasions.dedup();
            // How many inputs a loop has had at its end depends on when the forge was asked about CI.
            let events = |runs: &[String]| -> Vec<String> {
                runs.iter().filter_map(|run| run.split('/').nth(1).map(str::to_owned)).collect()
            };
            assert_eq!(events(&occasions), events(&undisturbed), "killed at {kills:?}: {runs:?}");
            let ended = kills.iter().filter(|kill| kill.starts_with("K41")).count();
            assert_eq!(runs.len() - occasions.len(), ended, "{kills:?}: one run was repeated each: {runs:?}");
        };
        AssertUnwindSafe(story).catch_unwind().await.is_err().then_some(kills)
    });
    let outcomes: Vec<_> = stream::iter(stories).buffer_unordered(AT_ONCE).collect().await;
    let failed: Vec<_> = outcomes.into_iter().flatten().collect();
    assert!(failed.is_empty(), "{} of {} stories went wrong, see above: {failed:?}", failed.len(), HOOKS.len());
}

/// Ids of the runs of hooks of a loop whose service is killed at these points, in order.
async fn hook_runs(dialect: Dialect, kills: &[&str]) -> Vec<String> {
    let beside = tempfile::tempdir().expect("a folder");
    let file = beside.path().join("runs");
    let script = format!(
        r#"(cat; echo) | sed -n 's/.*"run":"\([^"]*\)".*/\1/p' >>{}; echo '{{"verdict":"continue"}}'"#,
        file.display()
    );
    let command = serde_json::to_string(&["/bin/sh", "-c", &script]).expect("a list");
    let hook = format!("[{{ name: gate, command: {command}, sandbox: false }}]");
    let config = format!("hooks: {{ before_agent: {hook}, before_ready: {hook}, after_end: {hook} }}");
    let agent = "cat >/dev/null\necho 42 >answer.txt\n";
    let service = Service::new(Setup::new(dialect).agent(agent).config(&config), false).await;
    let (_, mut child) = review_through_kills(&service, kills).await;
    assert!(!was_killed(stop(&mut child).await));
    let runs = std::fs::read_to_string(&file).expect("hooks ran").lines().map(str::to_owned).collect();
    service.finish().await;
    runs
}
