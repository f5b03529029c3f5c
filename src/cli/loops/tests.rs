//! `loops` on real databases, with and without a service that processes the commands.

use super::details::{opinion_lines, opinions};
use super::*;
use crate::domain::lifecycle::samples;
use crate::domain::loops::WorkOutcome;
use crate::domain::loops::{
    ControlFigures, Guidance, GuidanceSource, KeptAlarm, LoopStart, LoopState, LoopTask, PlanApproval, PlanRun,
    Planning, ProposedPlan, ServedBy, TaskText,
};
use crate::domain::model::ids::IssueRef;
use crate::domain::model::ids::{AccountKind, ForgeName, Number, RepoId, RepoRef, Sha, Timestamp, User, UserId};
use crate::domain::model::opinion::{
    OpinionAnswer, OpinionEnd, OpinionFinding, OpinionRun, OpinionSeverity, OpinionVerdict,
};
use crate::domain::model::plan::TaskPlan;
use crate::domain::supervision::control::{AlarmKind, AlarmSeverity, Gains, ProfileTransition, Terms};
use crate::domain::trust::policy::Policy;
use crate::store::loops::LogLine;
use crate::store::memory::StepMemory;

fn user(id: i64, login: &str) -> User {
    User { id: UserId(id), login: login.into(), kind: AccountKind::User }
}

fn start(number: u64) -> LoopStart {
    let repo = RepoRef { forge: ForgeName::new("work"), id: RepoId(7), owner: "team".into(), name: "app".into() };
    LoopStart {
        request: String::new(),
        existing: None,
        id: LoopId::from_parts(Number(number), 0),
        place: IssueRef { repo, issue: Number(number) },
        by: user(5, "alice"),
        task: LoopTask {
            text: TaskText::new("Fix\u{1b}[2J it", "", None),
            url: "https://git.example.org/team/app/issues/1".into(),
            hash: "0".repeat(64),
            author: None,
            author_trusted: true,
            unconfirmed_editor: None,
            edited_after: false,
            labels: Vec::new(),
        },
        options: RunOptions::default(),
        policy: Policy::default(),
        plan: None,
        comment: None,
        hidden_removed: 0,
        round: 1,
    }
}

struct LoopsSetup {
    _folder: tempfile::TempDir,
    path: std::path::PathBuf,
    own: Store,
}

/// Creates a service's database with one queued loop, `r-1-aaaaaa`.
async fn setup() -> LoopsSetup {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ralph.db");
    let own = Store::open(&path).expect("opened");
    let now = Clock::System.now();
    assert!(own.write(move |c| loops::begin(c, start(1), "first", now)).await.expect("written"));
    LoopsSetup { _folder: folder, path, own }
}

fn args(line: &str) -> LoopsArgs {
    #[derive(clap::Parser)]
    struct LoopsLine {
        #[command(flatten)]
        args: LoopsArgs,
    }
    <LoopsLine as clap::Parser>::try_parse_from(std::iter::once("x").chain(line.split(' '))).expect("arguments").args
}

async fn run(store: &Store, line: &str, patience: Duration) -> CliResult {
    LoopsShell { store, agents: vec!["mine".into()], json: true, clock: Clock::System, reply_timeout: patience }
        .run(&args(line))
        .await
}

/// Runs a command while a service processes inputs.
async fn run_served(setup: &LoopsSetup, beside: &Store, line: &str) -> CliResult {
    let serve = async {
        loop {
            let now = Clock::System.now();
            setup.own.write(move |c| loops::step_next(c, &[], &StepMemory::off(), now)).await.expect("a step");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        outcome = run(beside, line, REPLY_TIMEOUT) => outcome,
        () = serve => unreachable!("it never ends"),
    }
}

async fn state(setup: &LoopsSetup) -> Loop {
    setup.own.read(|c| loops::get(c, &LoopId::new("r-1-aaaaaa"))).await.expect("read").expect("a loop")
}

fn code(outcome: CliResult) -> String {
    format!("{:?}", outcome.expect("it ran"))
}

#[tokio::test(flavor = "multi_thread")]
async fn running_service_applies_pause_resume_and_abort() {
    let setup = setup().await;
    let beside = Store::attach(&setup.path).expect("attached");
    let success = format!("{:?}", ExitCode::SUCCESS);
    assert_eq!(code(run_served(&setup, &beside, "pause r-1-aaaaaa for lunch").await), success);
    let paused = state(&setup).await;
    assert_eq!((paused.state, paused.why.as_str()), (LoopState::Paused, "the operator paused it: for lunch"));

    let more = "resume r-1-aaaaaa --max-iterations 40 --timeout 90m --budget 2.5 try harder";
    assert_eq!(code(run_served(&setup, &beside, more).await), success);
    let resumed = state(&setup).await;
    assert_eq!(
        (resumed.state, resumed.people.authority),
        (LoopState::Queued, user(5, "alice")),
        "its authority stays a person"
    );
    assert_eq!((resumed.limits.iterations.count(), resumed.limits.time_ms), (Some(40), 90 * 60_000));
    assert_eq!((resumed.limits.cost, resumed.requests.guidance[0].text.as_str()), (Money(2_500_000), "try harder"));

    assert_eq!(code(run_served(&setup, &beside, "pause r-1-aaaaaa").await), success);
    for wrong in ["--backend other", "--base a..b", "--check \t"] {
        let error = run(&beside, &format!("resume r-1-aaaaaa {wrong}"), REPLY_TIMEOUT).await.expect_err(wrong);
        assert_eq!(error.exit_code(), 2, "{error}");
    }
    let other = "resume r-1-aaaaaa --check make --check ./lint --backend mine --base next";
    assert_eq!(code(run_served(&setup, &beside, other).await), success);
    let resumed = state(&setup).await;
    assert_eq!(resumed.checks.list.iter().map(|check| check.command.as_str()).collect::<Vec<_>>(), ["make", "./lint"]);
    assert_eq!(
        (resumed.settings.options.backend.as_deref(), resumed.settings.options.base.as_deref()),
        (Some("mine"), Some("next"))
    );
    assert_eq!(resumed.limits.iterations.count(), Some(40), "what is left out stays");

    assert_eq!(code(run_served(&setup, &beside, "resume r-1-aaaaaa").await), format!("{:?}", ExitCode::FAILURE));
    assert_eq!(code(run_served(&setup, &beside, "abort r-1-aaaaaa no longer needed").await), success);
    let ended = state(&setup).await;
    assert_eq!((ended.state, ended.why.as_str()), (LoopState::Aborted, "aborted by the operator: no longer needed"));
    let error = run(&beside, "resume r-1-aaaaaa", REPLY_TIMEOUT).await.expect_err("it ended");
    assert!(error.to_string().starts_with("r-1-aaaaaa is aborted; set the label again"), "{error}");
    assert_eq!(error.exit_code(), 1);
    for line in ["list", "list --all", "show r-1-aaaaaa", "show r-1-aaaaaa --audit"] {
        assert_eq!(code(run(&beside, line, REPLY_TIMEOUT).await), success, "{line}");
    }
}

#[tokio::test]
async fn command_is_queued_without_service() {
    let setup = setup().await;
    let beside = Store::attach(&setup.path).expect("attached");
    run(&beside, "pause r-1-aaaaaa", Duration::from_millis(20)).await.expect("left");
    assert_eq!(state(&setup).await.state, LoopState::Queued, "nobody took it");
    let now = Clock::System.now();
    setup.own.write(move |c| loops::step_next(c, &[], &StepMemory::off(), now)).await.expect("a step");
    assert_eq!(state(&setup).await.state, LoopState::Paused, "it waited");
}

#[tokio::test]
async fn unknown_loop_suggests_nearest_id() {
    let setup = setup().await;
    for line in ["show r-1-aaaaab", "pause r-1-aaaaab", "abort r-1-aaaaab why"] {
        let error = run(&setup.own, line, REPLY_TIMEOUT).await.expect_err("no such loop");
        assert_eq!(error.to_string(), "there is no loop r-1-aaaaab; did you mean r-1-aaaaaa?");
    }
    let error = run(&setup.own, "show zzz", REPLY_TIMEOUT).await.expect_err("no such loop");
    assert!(error.to_string().ends_with("`ralph-bot loops list --all` lists all loops"), "{error}");
}

#[test]
fn missing_configuration_or_database_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ralph-control.yaml");
    let global = Global { config: Some(file.clone()), json: false, color: crate::cli::Color::Never };
    let env = Env::of([("T", "token"), ("S", "0123456789abcdef0123456789abcdef")]);
    let error = super::run(&args("list"), &global, &env).expect_err("no configuration");
    assert_eq!(error.exit_code(), 2, "{error}");
    let text = "forges: [{ name: g, kind: github, token_env: T, webhook_secret_env: S }]
backends: { mine: { type: script, command: [sh] } }
";
    std::fs::write(&file, text).expect("written");
    let error = super::run(&args("list"), &global, &env).expect_err("no database");
    assert!(error.to_string().contains("the file does not exist; `ralph-bot serve` creates it"), "{error}");
    assert_eq!(error.exit_code(), 1);
}

#[tokio::test]
async fn output_contains_no_control_sequences() {
    let setup = setup().await;
    let current = state(&setup).await;
    let now = current.created_at.plus_ms(7_300_000);
    let rows = [listing::LoopRow::of(&current)];
    let record = LoopRecord { current, calls: Vec::new(), history: Vec::new(), effects: Vec::new(), trail: Vec::new() };
    let printed = text::record_text(&record, None, true, now) + &text::list(&rows, false, false, now);
    assert!(!printed.contains('\u{1b}') && printed.contains("work:team/app#1 Fix [2J it"), "{printed}");
    let row = printed.lines().last().expect("a row").split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(row, "r-1-aaaaaa queued work:team/app#1 0/10 0% $0.00 2h the loop waits for a free slot");
    assert_eq!([59_000, 60_000, 3_600_000, 172_800_000].map(text::age), ["59s", "1m", "1h", "2d"]);
}

/// A loop that made a plan and was read by another model.
fn planned_and_read(current: &mut Loop) -> OpinionRun {
    let plan = TaskPlan {
        summary: "Mend the\u{1b}[2J parser.".into(),
        steps: vec!["Handle the empty text.".into()],
        questions: vec!["Which encoding?".into()],
        ..TaskPlan::default()
    };
    let wish = Guidance {
        who: "mira".into(),
        source: GuidanceSource::Command,
        text: "small steps".into(),
        path: None,
        remember: false,
    };
    current.knowledge.planning = Some(Planning {
        wishes: vec![wish],
        runs: vec![PlanRun { served: ServedBy::default(), cost: Money(250_000) }],
        proposed: Some(ProposedPlan { number: 1, hash: plan.hash(), plan, at: Timestamp(1_000) }),
        ..Planning::default()
    });
    let finding = OpinionFinding {
        file: "src/lib.rs".into(),
        line: Some(7),
        severity: OpinionSeverity::Major,
        text: "an empty\nlist panics".into(),
    };
    let whole =
        OpinionFinding { file: String::new(), line: None, severity: OpinionSeverity::Minor, text: "long".into() };
    let answer = OpinionAnswer {
        verdict: OpinionVerdict::Changes,
        summary: "Mostly good.".into(),
        findings: vec![finding, whole],
    };
    let commit = Sha::new("abcdef1234567890abcdef1234567890abcdef12");
    let run = OpinionRun::free(commit, "judge", OpinionEnd::Answered(answer));
    OpinionRun { model: Some("m-9".into()), cost: Money(20_000), estimated: true, ..run }
}

#[test]
fn show_prints_health_alarms_and_judgements() {
    let mut current = samples::stuck();
    let judged = current.iterations.iter_mut().rev().find_map(|one| one.judged.as_mut()).expect("judged");
    judged.control = Some(ControlFigures {
        terms: Terms { p: 0.2, i: 0.5, d: 0.2 },
        gains: Gains { kp: 0.5, ki: 0.4, kd: 0.25 },
        transition: Some(ProfileTransition {
            from: "standard".into(),
            to: "stuck".into(),
            reason: "it\u{1b}[2J stands".into(),
        }),
        alarms: vec![KeptAlarm {
            kind: AlarmKind::StuckLoop,
            severity: AlarmSeverity::Critical,
            message: "No progress in 3 iterations.".into(),
            since: 3,
            raised: true,
            acknowledged: false,
        }],
        cleared: Vec::new(),
    });
    let text = text::details(&current, current.created_at);
    for line in [
        "health      critical\n",
        "alarms      stuck_loop 1\n",
        "     critical, stable, control signal 0.90 (critical), P 0.40, I 1.20, D +0.05; 0.90 = 0.20 (P) + 0.50 (I) + 0.20 (D); stuck (kp 0.50, ki 0.40, kd 0.25)\n",
        "     profile standard -> stuck: it [2J stands\n",
        "     alarm stuck_loop (critical, since iteration 3): No progress in 3 iterations.\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let fresh = samples::fresh();
    let before = text::details(&fresh, fresh.created_at);
    assert!(!before.contains("health ") && !before.contains("alarms "), "nothing is judged yet: {before}");
}

#[tokio::test]
async fn show_prints_plan_with_state_wishes_and_approval() {
    let setup = setup().await;
    let mut current = state(&setup).await;
    assert!(!text::details(&current, current.created_at).contains("Plan:"), "no plan is wanted");
    planned_and_read(&mut current);
    let hash = current.knowledge.planning.as_ref().and_then(|p| p.proposed.clone()).expect("a plan").hash;
    let short = &hash[..8];
    let text = text::details(&current, current.created_at);
    let (_, shown) = text.split_once("\nPlan:\n").expect("a plan");
    let expected = format!(
        "  state: waits for answers: `/ralph approve {short} ANSWERS`\n  plan 1, hash {hash}, made at 1970-01-01 00:00:01Z\n  \
         summary: Mend the [2J parser.\n  question: Which encoding?\n  request of mira: small steps\n  1 run, $0.25\n\nChecks:"
    );
    assert!(shown.starts_with(&expected), "{shown}");
    let planning = current.knowledge.planning.as_mut().expect("planning");
    planning.approval = Some(PlanApproval { by: "olaf".into(), at: Timestamp(2_000), changes: "In UTF-8.".into() });
    let text = text::details(&current, current.created_at);
    assert!(text.contains("  state: approved\n"), "{text}");
    assert!(text.contains("  approved by olaf at 1970-01-01 00:00:02Z\n  changes: In UTF-8.\n"), "{text}");
    let planning = current.knowledge.planning.as_mut().expect("planning");
    (planning.proposed, planning.approval, planning.failed) = (None, None, 2);
    planning.problem = "the plan has no `steps`".into();
    assert!(text::details(&current, current.created_at).contains("  state: not made yet: the plan has no `steps`\n"));
}

#[tokio::test]
async fn show_prints_second_opinions_with_findings_and_cost() {
    let setup = setup().await;
    let mut current = state(&setup).await;
    assert_eq!(opinion_lines(&current, &opinions(&current, &[])), "");
    let run = planned_and_read(&mut current);
    let given = |run: OpinionRun| LogLine {
        seq: 1,
        at: Timestamp(3_000),
        input: LoopInput::Outcome { ticket: 1, outcome: WorkOutcome::SecondOpinionGiven { run: Box::new(run) } },
        reasons: Vec::new(),
    };
    let lost = OpinionRun { end: OpinionEnd::Lost, ..run.clone() };
    let missing = OpinionRun::free(run.commit.clone(), "judge", OpinionEnd::Missing("rate limit".into()));
    current.supervision.opinions.last = Some(missing.clone());
    current.supervision.opinions.iteration = Some(2);
    let all = opinions(&current, &[given(lost), given(run), given(missing)]);
    assert_eq!(
        opinion_lines(&current, &all),
        "\nSecond opinions:\n  1970-01-01 00:00:03Z judge (m-9) on abcdef12, about $0.02: lost, because the service stopped\n  \
         1970-01-01 00:00:03Z judge (m-9) on abcdef12, about $0.02: changes: Mostly good.\n     \
         major src/lib.rs:7: an empty list panics\n     minor long\n  \
         1970-01-01 00:00:03Z judge on abcdef12, $0.00: none: rate limit\n  findings were given to iteration 2\n"
    );
    // Logs are deleted before loops.
    let kept = opinions(&current, &[]);
    assert!(opinion_lines(&current, &kept).contains("  - judge on abcdef12, $0.00: none: rate limit\n"));
}
