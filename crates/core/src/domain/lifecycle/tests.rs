//! Tests of the state machine: every transition, every command in every state, limits, and random sequences.

mod ci;
mod commit_status;
mod conflicts;
mod existing_pull;
mod flaky;
mod hooks;
mod judge;
mod merges;
mod plan;
mod proposed_checks;
mod pushes;
mod refusals;
mod second_opinion;
mod stopping;
mod stored_form;
mod suggestions;
mod test_guard;
mod waits;

use crate::domain::lifecycle::effect::{ChannelEffect, ForgeEffect, StoreEffect, TimerEffect, WorkEffect};
use crate::domain::loops::{CommandInput, ForgeInput, TimerInput, WorkOutcome};
use proptest::prelude::*;

use super::*;
use crate::domain::lifecycle::effect::{CheckPurpose, Mark};
use crate::domain::loops::RunOptions;
use crate::domain::loops::command::{self, LoopCommand};
use crate::domain::loops::*;
use crate::domain::model::ids::IssueRef;
use crate::domain::model::ids::{
    AccountKind, CommentId, ForgeName, LoopId, Money, Percent, RepoId, RepoRef, Sha, User, UserId,
};
use crate::domain::model::image::TaskImages;
use crate::domain::model::opinion::{OpinionEnd, OpinionRun, OpinionVerdict};
use crate::domain::model::quantity::{Duration, IterationLimit, Usd};
use crate::domain::model::task::{AgentReport, CheckOutcome, CheckReport, CheckRule, CheckSource, DiffStat};
use crate::domain::report::view::{EscalationSeverity, IterationView, View};
use crate::domain::supervision::experience::Experience;
use crate::domain::trust::policy::Policy;

fn user(login: &str) -> User {
    User { id: UserId(login.len() as i64), login: login.into(), kind: AccountKind::User }
}

fn sha(n: u64) -> Sha {
    Sha::new(format!("{n:040x}"))
}

fn report(holds: bool) -> CheckReport {
    let why = if holds { "" } else { "exited with 1" };
    CheckReport {
        outcomes: vec![CheckOutcome {
            name: "test".into(),
            command: "make test".into(),
            holds,
            why: why.into(),
            exit_code: Some(i32::from(!holds)),
            duration_ms: 10,
            output: String::new(),
            ..CheckOutcome::default()
        }],
    }
}

fn a_start(change: impl FnOnce(&mut LoopStart)) -> LoopStart {
    let repo = RepoRef { forge: ForgeName::new("f"), id: RepoId(7), owner: "acme".into(), name: "app".into() };
    let mut start = LoopStart {
        request: String::new(),
        existing: None,
        id: LoopId::new("r-42-aaaaaa"),
        place: IssueRef { repo, issue: Number(42) },
        by: user("maja"),
        task: LoopTask {
            text: TaskText::new("Fix the parser", "It is broken.", None),
            url: "https://forge.test/acme/app/issues/42".into(),
            hash: "0123456789abcdef".into(),
            author: Some(user("maja")),
            author_trusted: true,
            unconfirmed_editor: None,
            edited_after: false,
            labels: Vec::new(),
        },
        options: RunOptions { checks: vec!["make test".into()], ..RunOptions::default() },
        policy: Policy::default(),
        plan: None,
        comment: None,
        hidden_removed: 0,
        round: 1,
    };
    change(&mut start);
    start
}

/// Loop under test, with its log, its pending work and the current time.
struct LoopRun {
    current: Loop,
    effects: Vec<Effect>,
    reasons: Vec<String>,
    log: Vec<(Timestamp, LoopInput)>,
    now: Timestamp,
    commits: u64,
}

impl LoopRun {
    fn with(change: impl FnOnce(&mut LoopStart)) -> Self {
        let (first, now) = (a_start(change), Timestamp(1_000_000));
        let made = start(first.clone(), now);
        let log = vec![(now, LoopInput::Command(CommandInput::Start(Box::new(first))))];
        Self { current: made.next, effects: made.effects, reasons: made.reasons, log, now, commits: 0 }
    }

    fn new() -> Self {
        Self::with(|_| {})
    }

    fn tell(&mut self, input: impl Into<LoopInput>) -> &mut Self {
        let input = input.into();
        self.now = self.now.plus_ms(1000);
        self.log.push((self.now, input.clone()));
        let made = step(&self.current, input, self.now);
        (self.current, self.effects, self.reasons) = (made.next, made.effects, made.reasons);
        self
    }

    fn command(&mut self, command: LoopCommand) -> &mut Self {
        let comment = Some(CommentRef { on: Number(42), id: Some(CommentId(5)) });
        self.tell(CommandInput::Given { by: user("olaf"), command, comment })
    }

    fn prepared(&mut self, change: impl FnOnce(&mut PreparedTree)) -> &mut Self {
        let mut tree = PreparedTree {
            problems: None,
            base_branch: "main".into(),
            base: sha(1),
            head: self.current.branch.head.clone().unwrap_or(sha(1)),
            remote: self.current.branch.pushed.clone(),
            policy: self.current.settings.policy.clone(),
            notes: Vec::new(),
            lacks: Vec::new(),
            settings: None,
            detected: Vec::new(),
            proposes: false,
            estimates: std::collections::BTreeMap::new(),
            past: Vec::new(),
            experience: Experience::default(),
            images: TaskImages::default(),
            sandbox: "none".into(),
            proposals: Vec::new(),
        };
        change(&mut tree);
        self.tell(LoopInput::Outcome {
            ticket: self.current.run.ticket,
            outcome: WorkOutcome::Prepared { tree: Box::new(tree) },
        })
    }

    fn checked(&mut self, holds: bool) -> &mut Self {
        self.tell(LoopInput::Outcome {
            ticket: self.current.run.ticket,
            outcome: WorkOutcome::Checked { report: report(holds) },
        })
    }

    /// Returns the iteration comment among the latest effects.
    fn iteration_comment(&self) -> &IterationView {
        let iteration_view = self.effects.iter().find_map(|effect| match effect {
            Effect::Forge(ForgeEffect::Comment { view, .. }) => match &**view {
                View::Iteration(view) => Some(view),
                _ => None,
            },
            _ => None,
        });
        iteration_view.expect("a comment about the iteration")
    }

    fn agent(&mut self, end: AgentEnd) -> &mut Self {
        let run = AgentRunFacts {
            message: "did it".into(),
            cost: Some(Money(1_000_000)),
            tokens_in: 10,
            tokens_out: 5,
            tool_calls: 1,
            duration_ms: 100,
            ..AgentRunFacts::ending(end)
        };
        self.tell(LoopInput::Outcome {
            ticket: self.current.run.ticket,
            outcome: WorkOutcome::AgentEnded { run: Box::new(run) },
        })
    }

    fn committed(&mut self, change: impl FnOnce(&mut IterationChange)) -> &mut Self {
        self.commits += 1;
        let made = sha(100 + self.commits);
        let mut facts = IterationChange {
            commit: Some(made.clone()),
            tree: made,
            stat: DiffStat::default(),
            branch_stat: None,
            restored: Vec::new(),
            findings: Vec::new(),
            branch_findings: None,
            conflict_markers: Vec::new(),
            blocked: None,
            set_aside: Vec::new(),
            refused: Vec::new(),
            bytes: 0,
            binary_bytes: 0,
            objective_cosine: None,
        };
        change(&mut facts);
        self.tell(LoopInput::Outcome {
            ticket: self.current.run.ticket,
            outcome: WorkOutcome::Committed { change: Box::new(facts) },
        })
    }

    fn pushed(&mut self) -> &mut Self {
        let commit = self.current.branch.head.clone().expect("a head");
        self.tell(LoopInput::Outcome { ticket: self.current.run.ticket, outcome: WorkOutcome::Pushed { commit } })
    }

    fn working(&mut self) -> &mut Self {
        self.tell(TimerInput::SlotGranted).prepared(|_| {});
        if self.current.run.step == LoopStep::Baseline {
            self.checked(false);
        }
        self
    }

    /// Runs a complete iteration. Its checks pass if `holds` is true.
    fn iteration(&mut self, holds: bool) -> &mut Self {
        assert_eq!(self.current.run.step, LoopStep::Agent);
        self.agent(AgentEnd::Finished).committed(|_| {}).pushed().checked(holds)
    }

    fn in_state(state: LoopState) -> Self {
        let mut run = match state {
            LoopState::NeedsConfirm => Self::with(|s| s.task.unconfirmed_editor = Some("eve".into())),
            LoopState::NeedsCriteria => Self::with(|s| s.options.checks.clear()),
            LoopState::NeedsApproval | LoopState::NeedsAnswer => Self::with(|s| s.plan = Some(String::new())),
            LoopState::LimitReached => Self::with(|s| s.policy.limits.iterations = IterationLimit::of(1)),
            _ => Self::new(),
        };
        match state {
            LoopState::NeedsConfirm | LoopState::Queued => &mut run,
            LoopState::NeedsCriteria => run.tell(TimerInput::SlotGranted).prepared(|_| {}),
            LoopState::NeedsApproval => run.working().planned(plan::sample()),
            LoopState::NeedsAnswer => run.working().planned(plan::asking()),
            LoopState::Running => run.working(),
            LoopState::Waiting => run.working().agent(AgentEnd::Limited { until: None, reason: "quota".into() }),
            LoopState::Paused => {
                run.working().command(LoopCommand::Pause(command::Pause { now: true, reason: String::new() }))
            }
            LoopState::Review => run.working().iteration(true).checked(true),
            LoopState::LimitReached => run.working().iteration(false),
            LoopState::Failed => run.working().agent(AgentEnd::Unavailable { reason: "not there".into() }),
            LoopState::Merged => run.working().tell(ForgeInput::PullMerged),
            LoopState::Closed => run.working().tell(ForgeInput::PullClosed),
            LoopState::Aborted => run.command(LoopCommand::Abort(command::Abort { reason: String::new() })),
        };
        assert_eq!(run.current.state, state, "{:?}", run.reasons);
        run
    }

    fn is(&self, state: LoopState, step: LoopStep) {
        assert_eq!((self.current.state, self.current.run.step), (state, step), "{:?}", self.reasons);
    }

    fn has(&self, wanted: impl Fn(&Effect) -> bool) -> bool {
        self.effects.iter().any(wanted)
    }

    fn escalates(&self, wanted: &str) -> bool {
        self.has(|e| matches!(e, Effect::Forge(ForgeEffect::Escalate { cause, .. }) if cause.to_string() == wanted))
    }

    fn guidance(&self) -> Vec<&str> {
        self.current.requests.guidance.iter().map(|g| g.text.as_str()).collect()
    }
}

fn guide(text: &str) -> LoopCommand {
    LoopCommand::Guide(command::Guide { remember: false, text: text.into(), proposal: None })
}

fn resume() -> LoopCommand {
    LoopCommand::Resume(command::Resume { options: RunOptions::default(), guidance: String::new() })
}

fn resume_with(change: impl FnOnce(&mut RunOptions)) -> LoopCommand {
    let mut options = RunOptions::default();
    change(&mut options);
    LoopCommand::Resume(command::Resume { options, guidance: String::new() })
}

#[test]
fn task_runs_from_label_to_merge() {
    let mut run = LoopRun::new();
    run.is(LoopState::Queued, LoopStep::Idle);
    assert!(run.has(|e| matches!(e, Effect::Forge(ForgeEffect::StateLabel { state: Some(LoopState::Queued) }))));
    run.tell(TimerInput::SlotGranted).is(LoopState::Running, LoopStep::Prepare);
    assert!(run.has(|e| matches!(e, Effect::Timer(TimerEffect::Set { kind: TimerKind::Deadline, .. }))));
    run.prepared(|_| {}).is(LoopState::Running, LoopStep::Baseline);
    run.checked(false).is(LoopState::Running, LoopStep::Agent);
    run.agent(AgentEnd::Finished).is(LoopState::Running, LoopStep::Commit);
    run.committed(|_| {}).is(LoopState::Running, LoopStep::Push);
    run.pushed().is(LoopState::Running, LoopStep::Check);
    assert!(run.has(|e| matches!(e, Effect::Forge(ForgeEffect::Pull { ready: false, .. }))));
    run.checked(true).is(LoopState::Running, LoopStep::Verify);
    run.checked(true).is(LoopState::Review, LoopStep::Idle);
    assert_eq!(run.current.branch.verified, run.current.branch.head);
    assert!(
        run.has(|e| matches!(e, Effect::Forge(ForgeEffect::Pull { ready: true, reviewers }) if reviewers == &["maja"]))
    );
    run.tell(ForgeInput::PullMerged).is(LoopState::Merged, LoopStep::Idle);
    assert!(
        run.has(|e| matches!(e, Effect::Work(WorkEffect::Release { .. })))
            && run.has(|e| matches!(e, Effect::Forge(ForgeEffect::DropRunLabel)))
    );
    assert_eq!(replay(run.log).as_ref(), Some(&run.current));
}

#[test]
fn every_command_is_accepted_or_refused_in_every_state() {
    use LoopState::*;
    const OPEN: &[LoopState] = &[
        NeedsCriteria,
        NeedsConfirm,
        NeedsApproval,
        NeedsAnswer,
        Queued,
        Running,
        Waiting,
        Paused,
        Review,
        LimitReached,
        Failed,
    ];
    let commands: [(&str, LoopCommand, &[LoopState]); 13] = [
        (
            "run",
            LoopCommand::Run(command::Run {
                options: RunOptions {
                    checks: vec!["true".into()],
                    confirm: Some("01234567".into()),
                    ..RunOptions::default()
                },
                guidance: String::new(),
            }),
            &[NeedsCriteria, NeedsConfirm],
        ),
        ("plan", plan::wish("smaller"), &[NeedsCriteria, NeedsApproval, NeedsAnswer, Queued, Waiting, Failed]),
        ("approve", plan::approve(None, ""), &[NeedsApproval]),
        ("approve with changes", plan::approve(None, "in French"), &[NeedsApproval, NeedsAnswer]),
        ("resume", resume(), &[Paused, Failed, Waiting]),
        (
            "resume more",
            resume_with(|o| o.max_iterations = Some(IterationLimit::of(9))),
            &[Paused, Failed, Waiting, LimitReached],
        ),
        ("abort", LoopCommand::Abort(command::Abort { reason: "no".into() }), OPEN),
        (
            "pause",
            LoopCommand::Pause(command::Pause { now: true, reason: String::new() }),
            &[Queued, Running, Waiting, Paused],
        ),
        ("guide", guide("do"), OPEN),
        ("budget", LoopCommand::Budget(command::Budget { limit: Money(50_000_000) }), OPEN),
        ("iterations", LoopCommand::Iterations(command::Iterations { limit: IterationLimit::of(50) }), OPEN),
        ("status", LoopCommand::Status(command::Status), OPEN),
        ("help", LoopCommand::Help(command::Help), OPEN),
    ];
    for (name, command, allowed) in commands {
        for state in LoopState::ALL {
            let mut run = LoopRun::in_state(state);
            let before = run.current.clone();
            run.command(command.clone());
            let ok = allowed.contains(&state);
            let marked =
                |wanted| run.has(|e| matches!(e, Effect::Forge(ForgeEffect::React { mark, .. }) if *mark == wanted));
            assert_eq!((marked(Mark::Done), marked(Mark::Wrong)), (ok, !ok), "{name} in {state:?}: {:?}", run.reasons);
            // The result of the step is shown to the person who pressed a button; there is no comment to acknowledge.
            let author = user("olaf");
            let pressed = step(
                &before,
                LoopInput::Command(CommandInput::Given { by: author, command: command.clone(), comment: None }),
                run.now,
            );
            assert_eq!(pressed.refused, !ok, "{name} in {state:?}: {:?}", pressed.reasons);
            assert!(ok || !pressed.reasons[0].is_empty(), "{name} in {state:?} is refused without a reason");
            if !ok {
                assert_eq!(run.current.state, before.state, "{name} in {state:?}");
                assert_eq!(
                    (&run.current.requests.guidance, run.current.limits),
                    (&before.requests.guidance, before.limits),
                    "{name} in {state:?}"
                );
                let replied = run
                    .effects
                    .iter()
                    .any(|e| matches!(e, Effect::Forge(ForgeEffect::Comment { key, .. }) if key.starts_with("reply/")));
                assert!(replied, "{name} in {state:?} is refused without a word");
            }
            assert_eq!(replay(run.log).as_ref(), Some(&run.current), "{name} in {state:?}");
        }
    }
}

#[test]
fn refusal_states_valid_command() {
    for (state, command, words) in [
        (LoopState::Running, resume(), "nothing to resume"),
        (LoopState::Review, resume(), "in review"),
        (LoopState::NeedsCriteria, resume(), "`/ralph run`"),
        (LoopState::NeedsApproval, resume(), "`/ralph approve`"),
        (LoopState::NeedsAnswer, plan::approve(None, ""), "ANSWERS"),
        (LoopState::NeedsApproval, plan::approve(Some("00000000"), ""), "not the hash of the plan"),
        (
            LoopState::NeedsApproval,
            LoopCommand::Run(command::Run { options: RunOptions::default(), guidance: String::new() }),
            "`/ralph approve`",
        ),
        (LoopState::NeedsConfirm, plan::wish(""), "--confirm"),
        (LoopState::Review, plan::wish(""), "started to implement"),
        (LoopState::Running, plan::approve(None, ""), "no plan needs an approval"),
        (LoopState::LimitReached, resume(), "--max-iterations 6"),
        (LoopState::Queued, LoopCommand::Retry(command::Retry), "nothing to retry"),
        (
            LoopState::Review,
            LoopCommand::Pause(command::Pause { now: false, reason: String::new() }),
            "nothing to pause",
        ),
        (
            LoopState::Running,
            LoopCommand::Run(command::Run { options: RunOptions::default(), guidance: String::new() }),
            "`/ralph resume`",
        ),
        (
            LoopState::NeedsConfirm,
            LoopCommand::Run(command::Run { options: RunOptions::default(), guidance: String::new() }),
            "--confirm",
        ),
        (LoopState::Running, LoopCommand::Budget(command::Budget { limit: Money(0) }), "not more than"),
        (LoopState::Paused, resume_with(|o| o.base = Some("other".into())), "--base cannot change"),
        (LoopState::LimitReached, resume_with(|o| o.max_iterations = Some(IterationLimit::of(1))), "not more than"),
        (LoopState::Paused, resume_with(|o| o.timeout_s = Some(1)), "not more than"),
        (
            LoopState::Review,
            LoopCommand::Run(command::Run {
                options: RunOptions { timeout_s: Some(u64::MAX), ..RunOptions::default() },
                guidance: String::new(),
            }),
            "review",
        ),
        (LoopState::Paused, resume_with(|o| o.confirm = Some("01234567".into())), "no text to be confirmed"),
        (LoopState::Merged, resume(), "Set the label again"),
    ] {
        let mut run = LoopRun::in_state(state);
        run.command(command.clone());
        assert!(run.reasons.join(" ").contains(words), "{command:?} in {state:?}: {:?}", run.reasons);
    }
}

#[test]
fn loop_without_work_closes_at_once() {
    let mut run = LoopRun::new();
    run.tell(TimerInput::SlotGranted).prepared(|_| {}).checked(true).is(LoopState::Closed, LoopStep::Idle);
    assert_eq!(run.current.spent.iterations, 0);
}

/// Checks of the repository say nothing about the task, because a test suite also passes before a feature is added.
#[test]
fn repository_checks_that_pass_at_start_do_not_finish_the_loop() {
    fn detected() -> crate::domain::model::task::Check {
        crate::domain::checks::criteria::plain("cargo test", CheckSource::Detected)
    }
    let by_file: fn(&mut PreparedTree) = |tree| tree.policy.checks = vec![detected()];
    let by_detection: fn(&mut PreparedTree) = |tree| tree.detected = vec![detected()];
    for (from, sources) in [(CheckSource::RepositoryFile, by_file), (CheckSource::Detected, by_detection)] {
        let mut run = LoopRun::with(|start| start.options.checks.clear());
        run.tell(TimerInput::SlotGranted).prepared(sources).checked(true);
        run.is(LoopState::NeedsCriteria, LoopStep::Idle);
        assert_eq!((run.current.checks.source, run.current.spent.iterations), (Some(from), 0));
        assert!(run.current.why.contains("none shows when the task is done"), "{}", run.current.why);
        let names = |view: &View| matches!(view, View::NeedsCriteria(view) if view.holding == ["cargo test"]);
        assert!(run.has(|effect| matches!(effect, Effect::Forge(ForgeEffect::Comment { view, .. }) if names(view))));
        // Without another check they run again: somebody may have changed the base.
        run.command(LoopCommand::Run(command::Run { options: RunOptions::default(), guidance: String::new() }))
            .is(LoopState::Queued, LoopStep::Idle);
        assert!(run.reasons.join(" ").contains("--check"), "{:?}", run.reasons);
        run.tell(TimerInput::SlotGranted).prepared(sources).is(LoopState::Running, LoopStep::Baseline);
        run.checked(true).is(LoopState::NeedsCriteria, LoopStep::Idle);
        let named = RunOptions { checks: vec!["sh new.sh".into()], ..RunOptions::default() };
        run.command(LoopCommand::Run(command::Run { options: named, guidance: String::new() }));
        run.tell(TimerInput::SlotGranted).prepared(sources).is(LoopState::Running, LoopStep::Baseline);
        assert_eq!(run.current.checks.source, Some(CheckSource::Command));
        run.checked(false).is(LoopState::Running, LoopStep::Agent);
        assert_eq!(replay(run.log).as_ref(), Some(&run.current));
    }
    // Checks of the issue are of this task.
    let mut run = LoopRun::with(|start| {
        start.options.checks.clear();
        start.task.text.set_body("```ralph\nmake test\n```\n");
    });
    run.tell(TimerInput::SlotGranted).prepared(|_| {}).checked(true).is(LoopState::Closed, LoopStep::Idle);
}

#[test]
fn unconfirmed_text_never_runs() {
    let confirm = |hash: &str| {
        LoopCommand::Run(command::Run {
            options: RunOptions { confirm: Some(hash.into()), ..RunOptions::default() },
            guidance: String::new(),
        })
    };
    let mut run = LoopRun::in_state(LoopState::NeedsConfirm);
    run.tell(TimerInput::SlotGranted).command(confirm("ffffffff")).command(confirm("0123"));
    run.command(resume()).command(LoopCommand::Retry(command::Retry));
    // Taking the label off and setting it again does not avoid the question.
    run.tell(CommandInput::RunLabelRemoved { by: Some(user("olaf")) })
        .tell(CommandInput::RunLabelAdded { by: user("olaf"), plan: false });
    run.command(resume())
        .tell(ForgeInput::AuthorityLost { who: "maja".into(), hidden_teams: Vec::new() })
        .command(resume());
    run.is(LoopState::NeedsConfirm, LoopStep::Idle);
    run.command(confirm("01234567")).is(LoopState::Queued, LoopStep::Idle);
}

/// See docs/research/threats.md#i2.
#[test]
fn unseen_parts_of_outsiders_need_confirmation() {
    let hidden = |trusted: bool| {
        LoopRun::with(|start| {
            start.task.author_trusted = trusted;
            start.task.text.unseen.add(crate::domain::model::document::UnseenKind::Comment, "a note");
        })
    };
    hidden(true).is(LoopState::Queued, LoopStep::Idle);
    let mut run = hidden(false);
    run.is(LoopState::NeedsConfirm, LoopStep::Idle);
    let options = RunOptions { confirm: Some("01234567".into()), ..RunOptions::default() };
    run.command(LoopCommand::Run(command::Run { options, guidance: String::new() }))
        .is(LoopState::Queued, LoopStep::Idle);
    let confirmed = LoopRun::with(|start| {
        start.task.author_trusted = false;
        start.task.text.unseen.add(crate::domain::model::document::UnseenKind::Drawn, "graph TD");
        start.options.confirm = Some("01234567".into());
    });
    assert_eq!(confirmed.current.state, LoopState::Queued);
}

#[test]
fn limit_stops_loop_until_person_raises_it() {
    let mut run = LoopRun::with(|s| s.policy.limits.iterations = IterationLimit::of(2));
    run.working().iteration(false).iteration(false).is(LoopState::LimitReached, LoopStep::Idle);
    assert!(run.escalates("limit_iterations"));
    run.command(resume_with(|o| o.max_iterations = Some(IterationLimit::of(3)))).is(LoopState::Queued, LoopStep::Idle);
    run.working().iteration(false).is(LoopState::LimitReached, LoopStep::Idle);

    let mut run = LoopRun::with(|s| s.policy.limits.cost_usd = Usd(Money(1_500_000)));
    run.working().iteration(false).iteration(false).is(LoopState::LimitReached, LoopStep::Idle);
    assert!(run.escalates("limit_money"));
    run.command(resume_with(|o| o.budget = Some(Money(9_000_000)))).working().is(LoopState::Running, LoopStep::Agent);

    let mut run = LoopRun::with(|s| s.policy.limits.timeout = Duration::seconds(60));
    run.working();
    let due = LoopInput::Timer(TimerInput::TimerDue { timer: TimerKind::Deadline });
    run.tell(due.clone()).is(LoopState::Running, LoopStep::Agent);
    assert!(
        run.has(|e| matches!(e, Effect::Timer(TimerEffect::Set { kind: TimerKind::Deadline, .. }))),
        "an early alarm is set again"
    );
    run.now = run.now.plus_ms(60_000);
    run.tell(due).is(LoopState::LimitReached, LoopStep::Idle);
    assert!(run.escalates("limit_time") && run.has(|e| matches!(e, Effect::Store(StoreEffect::CancelWork))));
}

#[test]
fn budget_set_before_preparation_is_kept() {
    let mut run = LoopRun::new();
    run.command(LoopCommand::Budget(command::Budget { limit: Money(40_000_000) })).working();
    assert_eq!(run.current.limits.cost, Money(40_000_000));
}

#[test]
fn time_counts_only_while_running() {
    let mut run = LoopRun::in_state(LoopState::Paused);
    let spent = run.current.spent.time_at(run.now);
    run.now = run.now.plus_ms(1_000_000);
    run.command(resume());
    assert_eq!(run.current.spent.time_at(run.now), spent);
}

#[test]
fn clock_stops_while_work_is_deferred() {
    let mut run = LoopRun::with(|s| s.policy.limits.timeout = Duration::seconds(60));
    run.working();
    let (began, ticket) = (run.current.spent.since.expect("it runs"), run.current.run.ticket);
    // Each input comes a second later.
    run.now = began.plus_ms(19_000);
    run.tell(LoopInput::Outcome { ticket, outcome: WorkOutcome::PutOff { until: began.plus_ms(9_000_000) } })
        .is(LoopState::Running, LoopStep::Agent);
    let late = Effect::Timer(TimerEffect::Set { kind: TimerKind::Deadline, at: began.plus_ms(9_040_000) });
    assert!(run.has(|e| *e == late), "{:?}", run.effects);
    run.now = began.plus_ms(8_000_000);
    run.tell(TimerInput::TimerDue { timer: TimerKind::Deadline }).is(LoopState::Running, LoopStep::Agent);
    assert_eq!(run.current.spent.time_at(run.now), 20_000);
    // A try that took minutes and came to nothing is part of the wait.
    run.now = began.plus_ms(9_030_000);
    run.tell(LoopInput::Outcome { ticket, outcome: WorkOutcome::PutOff { until: began.plus_ms(9_500_000) } });
    run.now = began.plus_ms(9_510_000);
    assert_eq!(run.current.spent.time_at(run.now), 30_000);
    // Another piece of work is none of it.
    run.tell(LoopInput::Outcome {
        ticket: ticket + 1,
        outcome: WorkOutcome::PutOff { until: began.plus_ms(90_000_000) },
    });
    run.now = began.plus_ms(9_540_000);
    run.tell(TimerInput::TimerDue { timer: TimerKind::Deadline }).is(LoopState::LimitReached, LoopStep::Idle);
}

#[test]
fn pause_takes_effect_once_after_the_iteration() {
    let pause = LoopCommand::Pause(command::Pause { now: false, reason: "lunch".into() });
    let mut run = LoopRun::in_state(LoopState::Running);
    run.command(pause.clone()).is(LoopState::Running, LoopStep::Agent);
    run.iteration(true).is(LoopState::Paused, LoopStep::Idle);
    assert!(run.current.why.contains("lunch"));
    // Every check held already: nothing but the fresh checkout is left to do.
    run.command(resume()).tell(TimerInput::SlotGranted).prepared(|_| {}).is(LoopState::Running, LoopStep::Verify);
    run.command(pause.clone()).checked(true).is(LoopState::Review, LoopStep::Idle);
    run.command(guide("more")).working().is(LoopState::Running, LoopStep::Agent);

    let mut run = LoopRun::in_state(LoopState::Running);
    run.command(pause).agent(AgentEnd::Limited { until: None, reason: "quota".into() });
    run.is(LoopState::Paused, LoopStep::Idle);
}

#[test]
fn guidance_survives_interrupted_run() {
    for stop in
        [LoopCommand::Pause(command::Pause { now: true, reason: String::new() }), LoopCommand::Retry(command::Retry)]
    {
        let mut run = LoopRun::new();
        run.command(guide("mind the gap")).working();
        assert!(run.guidance().is_empty(), "it is in the running iteration's prompt");
        run.command(stop.clone());
        assert_eq!(run.guidance(), ["mind the gap"], "{stop:?}");
    }
    for end in
        [AgentEnd::Unavailable { reason: "gone".into() }, AgentEnd::Limited { until: None, reason: "quota".into() }]
    {
        let mut run = LoopRun::new();
        run.command(guide("mind the gap")).working().agent(end.clone());
        assert_eq!((run.guidance(), run.current.spent.iterations), (vec!["mind the gap"], 0), "{end:?}");
    }
}

#[test]
fn guidance_during_verification_starts_iteration() {
    let mut run = LoopRun::in_state(LoopState::Running);
    run.iteration(true).is(LoopState::Running, LoopStep::Verify);
    run.command(guide("rename it")).checked(true).is(LoopState::Running, LoopStep::Agent);
    assert_eq!(run.current.iterations[1].guidance[0].text, "rename it");
}

#[test]
fn retry_discards_last_iteration() {
    let mut run = LoopRun::in_state(LoopState::Running);
    run.iteration(false).iteration(false);
    let parent = run.current.iterations[1].parent.clone();
    run.command(LoopCommand::Pause(command::Pause { now: true, reason: String::new() }));
    run.command(LoopCommand::Retry(command::Retry))
        .command(LoopCommand::Pause(command::Pause { now: true, reason: String::new() }))
        .command(LoopCommand::Retry(command::Retry));
    run.is(LoopState::Queued, LoopStep::Idle);
    assert_eq!(
        (run.current.branch.head.as_ref(), run.current.spent.iterations),
        (Some(&parent), 3),
        "nothing spent comes back"
    );
    run.working().is(LoopState::Running, LoopStep::Agent);
    assert_eq!(run.current.current().map(|i| i.number), Some(4));
}

#[test]
fn label_removal_pauses_and_label_resumes() {
    for state in [LoopState::Queued, LoopState::Running, LoopState::Waiting, LoopState::NeedsCriteria] {
        let mut run = LoopRun::in_state(state);
        run.tell(CommandInput::RunLabelRemoved { by: Some(user("olaf")) }).is(LoopState::Paused, LoopStep::Idle);
        run.tell(CommandInput::RunLabelAdded { by: user("olaf"), plan: false }).is(LoopState::Queued, LoopStep::Idle);
    }
    for state in [LoopState::Review, LoopState::LimitReached, LoopState::Failed, LoopState::Merged] {
        let mut run = LoopRun::in_state(state);
        run.tell(CommandInput::RunLabelRemoved { by: Some(user("olaf")) })
            .tell(CommandInput::RunLabelAdded { by: user("olaf"), plan: false });
        run.is(state, LoopStep::Idle);
    }
}

#[test]
fn late_outcome_changes_only_cost() {
    let mut run = LoopRun::in_state(LoopState::Running);
    let late = run.current.run.ticket;
    run.command(LoopCommand::Pause(command::Pause { now: true, reason: String::new() }));
    let before = run.current.clone();
    run.tell(LoopInput::Outcome { ticket: late, outcome: WorkOutcome::Checked { report: report(true) } });
    run.tell(LoopInput::Outcome {
        ticket: late + 900,
        outcome: WorkOutcome::Prepared { tree: Box::new(prepared_like(&before)) },
    });
    assert_eq!((run.current.state, run.current.branch.head.clone()), (before.state, before.branch.head.clone()));
    let run_facts =
        AgentRunFacts { cost: Some(Money(7)), duration_ms: u64::MAX, ..AgentRunFacts::ending(AgentEnd::Finished) };
    run.tell(LoopInput::Outcome { ticket: late, outcome: WorkOutcome::AgentEnded { run: Box::new(run_facts) } });
    assert_eq!(run.current.spent.cost, before.spent.cost.plus(Money(7)));
    run.tell(LoopInput::Outcome { ticket: late, outcome: WorkOutcome::Pushed { commit: sha(9) } });
    assert_eq!(run.current.branch.pushed, Some(sha(9)), "a push that happened has happened");
    run.is(LoopState::Paused, LoopStep::Idle);
}

#[test]
fn cost_after_end_is_booked() {
    let mut run = LoopRun::in_state(LoopState::Running);
    run.tell(ForgeInput::PullOpened { number: Number(9), url: "u".into() });
    run.tell(ForgeInput::PullMerged).is(LoopState::Merged, LoopStep::Idle);
    let before = run.current.spent.cost;
    run.tell(LoopInput::Outcome { ticket: 0, outcome: WorkOutcome::AskedAtEnd { cost: Money(5) } })
        .is(LoopState::Merged, LoopStep::Idle);
    assert_eq!(run.current.spent.cost, before.plus(Money(5)));
    assert!(run.has(|e| *e == Effect::Forge(ForgeEffect::Status { fresh: false })), "people are told");
    assert!(run.has(|e| matches!(e, Effect::Forge(ForgeEffect::Pull { ready: false, .. }))));
    run.tell(LoopInput::Outcome { ticket: 0, outcome: WorkOutcome::AskedAtEnd { cost: Money(0) } })
        .is(LoopState::Merged, LoopStep::Idle);
    assert_eq!(run.effects, []);
    assert_eq!(replay(run.log).as_ref(), Some(&run.current));

    // A run that was stopped by the end is paid as well, and a pull request that is not there is not opened for it.
    let mut run = LoopRun::in_state(LoopState::Running);
    let late = run.current.run.ticket;
    run.command(LoopCommand::Abort(command::Abort { reason: String::new() })).is(LoopState::Aborted, LoopStep::Idle);
    let before = run.current.spent.cost;
    run.tell(LoopInput::Outcome {
        ticket: late,
        outcome: WorkOutcome::AgentLost { salvaged: None, cost: Money(7), before_start: false },
    })
    .is(LoopState::Aborted, LoopStep::Idle);
    assert_eq!(run.current.spent.cost, before.plus(Money(7)));
    assert!(run.current.pull.opened.is_none() && !run.has(|e| matches!(e, Effect::Forge(ForgeEffect::Pull { .. }))));
}

fn prepared_like(current: &Loop) -> PreparedTree {
    PreparedTree {
        problems: None,
        base_branch: "main".into(),
        base: sha(1),
        head: current.branch.head.clone().unwrap_or(sha(1)),
        remote: None,
        policy: current.settings.policy.clone(),
        notes: Vec::new(),
        lacks: Vec::new(),
        settings: None,
        detected: Vec::new(),
        proposes: false,
        estimates: std::collections::BTreeMap::new(),
        past: Vec::new(),
        experience: Experience::default(),
        images: TaskImages::default(),
        sandbox: String::new(),
        proposals: Vec::new(),
    }
}

#[test]
fn lost_agent_restarts_limited_agent_waits_and_failed_agent_is_judged() {
    let mut run = LoopRun::in_state(LoopState::Running);
    for attempt in 2..=3 {
        run.tell(LoopInput::Outcome {
            ticket: run.current.run.ticket,
            outcome: WorkOutcome::AgentLost { salvaged: Some(sha(3)), cost: Money(0), before_start: false },
        })
        .is(LoopState::Running, LoopStep::Agent);
        assert!(
            run.has(|e| matches!(e, Effect::Work(WorkEffect::Agent { iteration: 1, attempt: a, .. }) if *a == attempt))
        );
    }
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::AgentLost { salvaged: None, cost: Money(0), before_start: false },
    })
    .is(LoopState::Failed, LoopStep::Idle);
    assert_eq!(run.current.why, "iteration 1 was interrupted 3 times");

    let mut run = LoopRun::in_state(LoopState::Running);
    let mut waits = Vec::new();
    for _ in 0..3 {
        run.agent(AgentEnd::Limited { until: Some(Timestamp(1)), reason: "quota".into() })
            .is(LoopState::Waiting, LoopStep::Idle);
        let wait = run.effects.iter().find_map(|e| match e {
            Effect::Timer(TimerEffect::Set { kind: TimerKind::Reactivate, at }) => Some(at.since(run.now)),
            _ => None,
        });
        waits.extend(wait);
        run.tell(TimerInput::TimerDue { timer: TimerKind::Reactivate }).is(LoopState::Queued, LoopStep::Idle);
        run.working();
    }
    assert_eq!(waits, [60_000, 120_000, 240_000]);
    assert_eq!((run.current.spent.iterations, run.current.spent.cost), (1, Money(3_000_000)), "only money was spent");

    let mut run = LoopRun::in_state(LoopState::Running);
    for _ in 0..3 {
        run.agent(AgentEnd::Failed { reason: "boom".into() }).committed(|c| c.commit = None).checked(false);
    }
    assert_eq!(run.iteration_comment().next, "the loop ends, because the agent failed 3 times in a row.");
    run.is(LoopState::Failed, LoopStep::Idle);
    run.command(LoopCommand::Retry(command::Retry)).working().is(LoopState::Running, LoopStep::Agent);
    run.agent(AgentEnd::Failed { reason: "boom".into() }).committed(|c| c.commit = None).checked(false);
    run.is(LoopState::Running, LoopStep::Agent);
}

/// Hosts that are lost before an agent starts use up none of the attempts, but not for ever.
#[test]
fn attempts_that_are_lost_before_their_agents_start_are_bounded_separately() {
    let lose = |run: &mut LoopRun, before_start| {
        let lost = WorkOutcome::AgentLost { salvaged: None, cost: Money(0), before_start };
        run.tell(LoopInput::Outcome { ticket: run.current.run.ticket, outcome: lost });
    };
    let mut run = LoopRun::in_state(LoopState::Running);
    for before_start in [true, true, true, false, true, false] {
        lose(&mut run, before_start);
        run.is(LoopState::Running, LoopStep::Agent);
    }
    assert!(run.has(|e| matches!(e, Effect::Work(WorkEffect::Agent { iteration: 1, attempt: 7, .. }))));
    lose(&mut run, false);
    run.is(LoopState::Failed, LoopStep::Idle);
    assert_eq!(run.current.why, "iteration 1 was interrupted 3 times");

    let mut run = LoopRun::in_state(LoopState::Running);
    for attempt in 1..MAX_LOST_STARTS {
        lose(&mut run, attempt > 1);
        run.is(LoopState::Running, LoopStep::Agent);
    }
    lose(&mut run, true);
    run.is(LoopState::Failed, LoopStep::Idle);
    assert_eq!(run.current.why, "iteration 1 was interrupted 10 times, 1 of them after its agent had started");
}

fn rejected(run: &mut LoopRun, remote: Option<Sha>) {
    run.agent(AgentEnd::Finished).committed(|_| {});
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::PushRejected { remote, reason: "no".into(), refusal: Default::default() },
    });
}

#[test]
fn omitted_change_is_mentioned_once_and_does_not_prevent_completion() {
    let left_out = |change: &mut IterationChange| change.refused = vec!["`lib` is a submodule".into()];
    let mut run = LoopRun::in_state(LoopState::Running);
    run.agent(AgentEnd::Finished).committed(left_out).pushed().checked(true).is(LoopState::Running, LoopStep::Agent);
    let guidance = run.current.current().map(|iteration| iteration.guidance.clone()).unwrap_or_default();
    assert!(guidance.iter().any(|fact| fact.text.starts_with("`lib` is a submodule")), "{guidance:?}");
    run.agent(AgentEnd::Finished).committed(left_out).pushed().checked(true).is(LoopState::Running, LoopStep::Verify);
}

#[test]
fn commits_of_others_are_merged_not_overwritten() {
    let mut run = LoopRun::in_state(LoopState::Running);
    rejected(&mut run, Some(sha(77)));
    run.is(LoopState::Paused, LoopStep::Idle);
    assert!(run.escalates("branch_moved"));
    run.command(LoopCommand::Resume(command::Resume {
        options: RunOptions::default(),
        guidance: "keep their names".into(),
    }));
    run.working().is(LoopState::Running, LoopStep::Merge);
    let clean = LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::Merged {
            other: sha(77),
            conflicts: Vec::new(),
            cause: None,
            up_to_date: false,
            base: None,
        },
    };
    run.tell(clean).is(LoopState::Running, LoopStep::Commit);
    assert!(!run.has(|e| matches!(e, Effect::Work(WorkEffect::Agent { .. }))), "a clean merge needs no agent");
    assert_eq!(run.guidance(), ["keep their names"], "no agent has read it yet");
    run.committed(|_| {}).pushed().checked(true).is(LoopState::Running, LoopStep::Agent);
    assert_eq!(run.current.current().map(|i| i.guidance.len()), Some(1));
    assert_eq!(run.current.branch.merge, None);

    let mut run = LoopRun::in_state(LoopState::Running);
    run.iteration(false);
    let known = run.current.branch.pushed.clone();
    rejected(&mut run, known);
    run.is(LoopState::Failed, LoopStep::Idle);
    assert!(run.current.why.contains("refused"), "a branch that stands where we left it was not moved");

    let mut run = LoopRun::in_state(LoopState::Running);
    run.iteration(false);
    rejected(&mut run, None);
    run.is(LoopState::Paused, LoopStep::Idle);
    assert!(run.escalates("branch_deleted"));
    run.command(resume()).working().agent(AgentEnd::Finished).committed(|c| c.commit = None);
    run.is(LoopState::Running, LoopStep::Push);
}

#[test]
fn branch_of_others_is_not_adopted() {
    let mut run = LoopRun::new();
    run.tell(TimerInput::SlotGranted).prepared(|t| t.remote = Some(sha(66)));
    assert_eq!(run.current.branch.pushed, None);
    let mut run = LoopRun::new();
    run.tell(TimerInput::SlotGranted).prepared(|t| (t.remote, t.head) = (Some(sha(66)), sha(66)));
    assert_eq!(run.current.branch.pushed, Some(sha(66)), "the work goes on from what is there");
    // A push whose outcome was lost is known again by its commit.
    let mut run = LoopRun::in_state(LoopState::Running);
    run.agent(AgentEnd::Finished)
        .committed(|_| {})
        .command(LoopCommand::Pause(command::Pause { now: true, reason: String::new() }));
    let ours = run.current.branch.head.clone();
    run.command(resume()).tell(TimerInput::SlotGranted).prepared(|t| t.remote = ours.clone());
    assert_eq!(run.current.branch.pushed, ours);
}

#[test]
fn conflicts_reviews_and_ci_start_iterations() {
    let inspected = |run: &LoopRun, failed: usize, pending, conflict| {
        LoopInput::Forge(ForgeInput::Inspected(CiInspection {
            commit: run.current.branch.pushed.clone().expect("pushed"),
            failed: vec![
                Guidance {
                    who: String::new(),
                    source: GuidanceSource::Ci,
                    text: "red".into(),
                    path: None,
                    remember: false
                };
                failed
            ],
            progress: CiProgress::default(),
            pending,
            conflict,
            on_base: Vec::new(),
        }))
    };
    let mut run = LoopRun::in_state(LoopState::Review);
    run.tell(inspected(&run, 1, 1, false)).is(LoopState::Review, LoopStep::Idle);
    run.tell(inspected(&run, 1, 0, false)).is(LoopState::Queued, LoopStep::Idle);
    run.working().is(LoopState::Running, LoopStep::Agent);
    run.agent(AgentEnd::Finished)
        .committed(|c| c.commit = None)
        .checked(true)
        .checked(true)
        .is(LoopState::Paused, LoopStep::Idle);
    run.tell(inspected(&run, 1, 0, false)).is(LoopState::Paused, LoopStep::Idle);
    // The re-run passes: the commit is verified once more, without an iteration.
    let iterations = run.current.spent.iterations;
    run.tell(inspected(&run, 0, 0, false)).is(LoopState::Queued, LoopStep::Idle);
    run.working().checked(true).is(LoopState::Review, LoopStep::Idle);
    assert_eq!(run.current.spent.iterations, iterations);

    run.tell(inspected(&run, 0, 0, true)).is(LoopState::Queued, LoopStep::Idle);
    run.working().is(LoopState::Running, LoopStep::Merge);
    let conflict = |ticket| LoopInput::Outcome {
        ticket,
        outcome: WorkOutcome::Merged {
            other: sha(88),
            conflicts: vec!["a.rs".into()],
            cause: None,
            up_to_date: false,
            base: None,
        },
    };
    run.tell(conflict(run.current.run.ticket)).is(LoopState::Running, LoopStep::Agent);
    // The merge starts again after a wait, and this is reported once.
    run.agent(AgentEnd::Limited { until: None, reason: "quota".into() })
        .tell(TimerInput::TimerDue { timer: TimerKind::Reactivate });
    run.working().is(LoopState::Running, LoopStep::Merge);
    assert_eq!(run.current.branch.merging(), None);
    run.tell(conflict(run.current.run.ticket)).is(LoopState::Running, LoopStep::Agent);
    assert_eq!(run.current.current().map(|i| i.guidance.len()), Some(1));
    run.iteration(true).checked(true).is(LoopState::Review, LoopStep::Idle);
    assert_eq!((run.current.branch.base.clone(), run.current.branch.merge.clone()), (Some(sha(88)), None));

    let remark = Guidance {
        who: "olaf".into(),
        source: GuidanceSource::Review,
        text: "shorter".into(),
        path: None,
        remember: false,
    };
    let review = LoopInput::Command(CommandInput::Reviewed {
        by: user("olaf"),
        items: vec![("review/1".into(), remark)],
        suggestions: Vec::new(),
    });
    run.tell(review.clone()).is(LoopState::Queued, LoopStep::Idle);
    run.working().iteration(true).checked(true).is(LoopState::Review, LoopStep::Idle);
    run.tell(review).is(LoopState::Review, LoopStep::Idle);
}

#[test]
fn failure_in_fresh_checkout_prevents_review() {
    let mut run = LoopRun::in_state(LoopState::Running);
    run.iteration(true).checked(false).is(LoopState::Running, LoopStep::Agent);
    let guidance_text = &run.current.iterations[1].guidance[0].text;
    assert!(guidance_text.contains("fresh checkout") && guidance_text.contains("make test"), "{guidance_text}");
}

#[test]
fn blocked_change_waits_for_person() {
    let mut run = LoopRun::in_state(LoopState::Running);
    run.agent(AgentEnd::Finished).committed(|c| c.blocked = Some("it holds a secret".into()));
    run.is(LoopState::Paused, LoopStep::Idle);
    assert!(run.escalates("blocked_change") && !run.has(|e| matches!(e, Effect::Work(WorkEffect::Push { .. }))));
    run.command(resume()).working();
    assert!(run.current.iterations[1].guidance[0].text.contains("it holds a secret"));
    assert_eq!(run.current.iterations[1].parent, sha(1));
}

/// See docs/research/threats.md#i7.
#[test]
fn blocked_push_waits_for_person_without_restoring() {
    let mut run = LoopRun::in_state(LoopState::Running);
    run.agent(AgentEnd::Finished).committed(|_| {});
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::PushBlocked { reason: "a secret in `f`".into() },
    });
    run.is(LoopState::Paused, LoopStep::Idle);
    assert!(
        run.escalates("blocked_change")
            && !run.has(|e| matches!(e, Effect::Work(WorkEffect::Push { .. } | WorkEffect::Restore { .. })))
    );
    assert!(run.current.why.contains("a secret in `f`"));
    run.command(LoopCommand::Retry(command::Retry)).working().is(LoopState::Running, LoopStep::Agent);
    assert_eq!(run.current.branch.head, Some(sha(1)), "without the commit");
}

#[test]
fn new_checks_that_pass_lead_to_review() {
    let mut run = LoopRun::in_state(LoopState::Running);
    run.iteration(false).command(LoopCommand::Pause(command::Pause { now: true, reason: String::new() }));
    run.command(resume_with(|o| o.checks = vec!["make other".into()])).tell(TimerInput::SlotGranted).prepared(|_| {});
    run.is(LoopState::Running, LoopStep::Baseline);
    run.checked(true).is(LoopState::Running, LoopStep::Verify);
}

#[test]
fn reminder_goes_to_open_escalation() {
    let mut run = LoopRun::in_state(LoopState::LimitReached);
    assert!(run.escalates("limit_iterations"));
    run.tell(TimerInput::TimerDue { timer: TimerKind::Remind });
    assert!(run.escalates("limit_iterations"), "{:?}", run.effects);
    let reminds = |e: &Effect| matches!(e, Effect::Forge(ForgeEffect::Escalate { view, .. }) if matches!(&**view, View::Escalation(inner) if inner.severity == EscalationSeverity::Critical));
    assert!(run.has(reminds), "it stands still as before: {:?}", run.effects);
    run.command(resume_with(|o| o.max_iterations = Some(IterationLimit::of(5))));
    assert!(run.has(|e| matches!(e, Effect::Forge(ForgeEffect::CloseEscalations { .. }))));
    run.command(LoopCommand::Pause(command::Pause { now: true, reason: String::new() }))
        .tell(TimerInput::TimerDue { timer: TimerKind::Remind });
    assert!(!run.has(|e| matches!(e, Effect::Forge(ForgeEffect::Escalate { .. }))), "nobody was asked anything");
}

#[test]
fn service_failure_and_invalid_file_stop_loop() {
    let mut run = LoopRun::new();
    run.tell(TimerInput::SlotGranted);
    let broken = LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::RepositoryFileBroken {
            path: ".ralph.yml".into(),
            problems: vec![".ralph.yml:1:2: unknown key".into(), ".ralph.yml:3:1: no list".into()],
        },
    };
    run.tell(broken).is(LoopState::Paused, LoopStep::Idle);
    assert_eq!(run.current.why, "`.ralph.yml` is not valid (1:2: unknown key, and 1 more)");
    assert!(
        run.has(
            |e| matches!(e, Effect::Forge(ForgeEffect::Comment { key, .. }) if key.starts_with("repository-file/"))
        )
    );
    run.command(resume()).tell(TimerInput::SlotGranted);
    let failed = LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::WorkFailed { reason: "the disk is full".into(), advice: "free some".into() },
    };
    run.tell(failed).is(LoopState::Failed, LoopStep::Idle);
    run.command(resume()).is(LoopState::Queued, LoopStep::Idle);
    run.tell(ForgeInput::IssueEnded { how: "deleted".into() }).is(LoopState::Closed, LoopStep::Idle);
}

fn any_input() -> impl Strategy<Value = u8> {
    0u8..32
}

/// Returns an input of the kind `which`; outcomes of work mostly have the expected ticket and fit the step.
fn input_for(run: &LoopRun, which: u8, flag: bool) -> LoopInput {
    let ticket = if flag { run.current.run.ticket } else { run.current.run.ticket.saturating_sub(1) };
    let commit = run.current.branch.head.clone().unwrap_or(sha(1));
    let new = sha(1000 + run.current.version);
    let by = user("olaf");
    let command_input = |command| LoopInput::Command(CommandInput::Given { by: user("olaf"), command, comment: None });
    let agent = |end| LoopInput::Outcome {
        ticket,
        outcome: WorkOutcome::AgentEnded {
            run: Box::new(AgentRunFacts {
                cost: Some(Money(900_000)),
                tokens_in: 1,
                tokens_out: 1,
                duration_ms: 5,
                ..AgentRunFacts::ending(end)
            }),
        },
    };
    match which {
        0 | 1 => LoopInput::Timer(TimerInput::SlotGranted),
        2 => command_input(resume_with(|o| {
            o.max_iterations = Some(IterationLimit::of(run.current.spent.iterations + 3))
        })),
        3 => command_input(LoopCommand::Pause(command::Pause { now: flag, reason: String::new() })),
        4 => command_input(guide("x")),
        5 => command_input(LoopCommand::Retry(command::Retry)),
        6 if run.current.version.is_multiple_of(7) => {
            command_input(LoopCommand::Abort(command::Abort { reason: String::new() }))
        }
        7 => LoopInput::Command(CommandInput::RunLabelRemoved { by: Some(by) }),
        8 => LoopInput::Command(CommandInput::RunLabelAdded { by, plan: flag }),
        9 => LoopInput::Timer(TimerInput::TimerDue {
            timer: if flag { TimerKind::Reactivate } else { TimerKind::Remind },
        }),
        10 => LoopInput::Forge(ForgeInput::Inspected(CiInspection {
            commit,
            failed: Vec::new(),
            progress: CiProgress::default(),
            pending: 0,
            conflict: flag,
            on_base: Vec::new(),
        })),
        11 => command_input(LoopCommand::Budget(command::Budget { limit: Money(90_000_000) })),
        12 => LoopInput::Timer(TimerInput::TimerDue { timer: TimerKind::Deadline }),
        13 => LoopInput::Outcome {
            ticket,
            outcome: WorkOutcome::AgentLost { salvaged: None, cost: Money(0), before_start: false },
        },
        14 if run.current.version.is_multiple_of(3) => {
            LoopInput::Outcome { ticket, outcome: WorkOutcome::PushBlocked { reason: "a secret".into() } }
        }
        14 => LoopInput::Outcome {
            ticket,
            outcome: WorkOutcome::PushRejected {
                remote: flag.then_some(new),
                reason: "no".into(),
                refusal: Default::default(),
            },
        },
        15 => agent(AgentEnd::Limited { until: None, reason: "quota".into() }),
        16 => LoopInput::Forge(ForgeInput::AuthorityLost { who: "maja".into(), hidden_teams: Vec::new() }),
        17 => {
            LoopInput::Outcome { ticket, outcome: WorkOutcome::WorkFailed { reason: "r".into(), advice: "a".into() } }
        }
        18 if run.current.version.is_multiple_of(5) => LoopInput::Forge(ForgeInput::PullMerged),
        19 if run.current.knowledge.waiting_plan().is_some() => {
            command_input(plan::approve(run.hash().as_deref(), "x"))
        }
        20 if run.current.version.is_multiple_of(4) => command_input(plan::wish("another")),
        _ => match run.current.run.step {
            LoopStep::Prepare => LoopInput::Outcome {
                ticket,
                outcome: WorkOutcome::Prepared { tree: Box::new(prepared_like(&run.current)) },
            },
            LoopStep::Agent => agent(AgentEnd::Finished),
            LoopStep::Plan => LoopInput::Outcome {
                ticket,
                outcome: WorkOutcome::Planned {
                    run: Box::new(plan::run(
                        if which == 21 { AgentEnd::Cancelled } else { AgentEnd::Finished },
                        plan::sample(),
                    )),
                },
            },
            LoopStep::Commit => LoopInput::Outcome {
                ticket,
                outcome: WorkOutcome::Committed {
                    change: Box::new(IterationChange {
                        commit: flag.then_some(new.clone()),
                        tree: new,
                        stat: DiffStat::default(),
                        branch_stat: None,
                        restored: Vec::new(),
                        findings: Vec::new(),
                        branch_findings: None,
                        conflict_markers: Vec::new(),
                        blocked: None,
                        set_aside: Vec::new(),
                        refused: Vec::new(),
                        bytes: 0,
                        binary_bytes: 0,
                        objective_cosine: None,
                    }),
                },
            },
            LoopStep::Restore => LoopInput::Outcome {
                ticket,
                outcome: WorkOutcome::Restored { commit: flag.then_some(new), retained_as: None },
            },
            LoopStep::Push => LoopInput::Outcome { ticket, outcome: WorkOutcome::Pushed { commit } },
            LoopStep::Merge => LoopInput::Outcome {
                ticket,
                outcome: WorkOutcome::Merged {
                    other: new,
                    conflicts: if flag { vec!["a".into()] } else { Vec::new() },
                    cause: None,
                    up_to_date: which.is_multiple_of(2),
                    base: None,
                },
            },
            LoopStep::SecondOpinion => {
                let end = match which {
                    19..=21 => second_opinion::answer(OpinionVerdict::Sound, &[]),
                    22..=27 => second_opinion::answer(OpinionVerdict::Changes, &["x"]),
                    28 | 29 => OpinionEnd::Lost,
                    _ => OpinionEnd::Missing("no answer".into()),
                };
                let run = OpinionRun { cost: Money(300), ..OpinionRun::free(commit, "judge", end) };
                LoopInput::Outcome { ticket, outcome: WorkOutcome::SecondOpinionGiven { run: Box::new(run) } }
            }
            _ => LoopInput::Outcome { ticket, outcome: WorkOutcome::Checked { report: report(which % 2 == 1) } },
        },
    }
}

proptest! {
    #![proptest_config(test_support::cases(400))]
    #[test]
    fn invariants_hold_for_any_inputs(
        inputs in prop::collection::vec((any_input(), any::<bool>()), 1..120),
        reviewed in any::<bool>(),
        plans in any::<bool>(),
    ) {
        let mut run = LoopRun::with(|start| {
            start.policy.review = second_opinion::review().filter(|_| reviewed);
            start.plan = plans.then(String::new);
        });
        let mut tickets = std::collections::HashSet::new();
        for (which, flag) in inputs {
            let before = run.current.clone();
            let input = input_for(&run, which, flag || which > 20);
            run.tell(input.clone());
            let (now, next) = (run.now, &run.current);
            prop_assert!(next.spent.cost >= before.spent.cost);
            prop_assert!(next.spent.time_at(now) >= before.spent.time_at(before.updated_at));
            prop_assert_eq!(next.version, before.version + 1);
            if !before.state.is_open() {
                prop_assert_eq!(next.state, before.state);
                let paid = matches!(
                    input,
                    LoopInput::Outcome { outcome: WorkOutcome::AgentEnded { .. }, .. } | LoopInput::Outcome { outcome: WorkOutcome::Planned { .. }, .. } | LoopInput::Outcome { outcome: WorkOutcome::AgentLost { .. }, .. } | LoopInput::Outcome { outcome: WorkOutcome::SecondOpinionGiven { .. }, .. }
                );
                prop_assert!(paid || next.spent == before.spent, "{:?}", input);
                prop_assert_eq!(next.spent.iterations, before.spent.iterations);
            }
            if next.state == LoopState::Review && before.state != LoopState::Review {
                let checks_passed = matches!(&input, LoopInput::Outcome { ticket, outcome: WorkOutcome::Checked { report } } if *ticket == before.run.ticket && report.all_hold());
                let read = before.run.step == LoopStep::SecondOpinion && before.branch.verified == before.branch.head;
                prop_assert!(before.run.step == LoopStep::Verify && checks_passed || read, "review by {:?}", input);
                prop_assert_eq!(&next.branch.verified, &next.branch.head);
                prop_assert_eq!(&next.branch.pushed, &next.branch.head);
            }
            for iteration in &next.iterations {
                let recorded = iteration.record.as_ref().map_or(iteration.completion, |record| record.completion);
                prop_assert_eq!(recorded, iteration.completion);
            }
            // Without an approval, nothing is implemented.
            if next.knowledge.lacks_approval() {
                let implements = |e: &Effect| matches!(e, Effect::Work(WorkEffect::Agent { .. } | WorkEffect::Commit { .. } | WorkEffect::Push { .. }));
                prop_assert!(!run.effects.iter().any(implements), "{:?}", run.effects);
                prop_assert!(next.iterations.is_empty());
            }
            let work: Vec<_> = run.effects.iter().filter_map(Effect::ticket).collect();
            for ticket in &work {
                prop_assert!(tickets.insert(*ticket), "ticket {} twice", ticket);
            }
            prop_assert!(work.len() <= 1, "{:?}", run.effects);
            // Running means that exactly one outcome is waited for, and every other state that none is.
            prop_assert_eq!(next.state == LoopState::Running, next.run.step != LoopStep::Idle);
            if next.state == LoopState::Running {
                prop_assert!(tickets.contains(&next.run.ticket), "nobody works on {:?}", next.run.step);
            }
            if let Some(Effect::Work(WorkEffect::Check { purpose: CheckPurpose::Clean, commit, .. })) = run.effects.iter().find(|e| e.ticket().is_some()) {
                prop_assert_eq!(Some(commit), next.branch.head.as_ref());
            }
        }
        let again = replay(run.log.clone());
        prop_assert_eq!(again.as_ref(), Some(&run.current));
    }
}

#[test]
fn remembered_rule_is_also_guidance() {
    for remember in [false, true] {
        let mut run = LoopRun::in_state(LoopState::Running);
        run.command(LoopCommand::Guide(command::Guide { remember, text: "keep it pure".into(), proposal: None }));
        let [guidance] = &run.current.requests.guidance[..] else { panic!("one: {:?}", run.current.requests.guidance) };
        assert_eq!(
            (guidance.remember, guidance.text.as_str(), guidance.source),
            (remember, "keep it pure", GuidanceSource::Command)
        );
        assert_eq!(run.reasons.iter().any(|reason| reason.contains("it is remembered")), remember, "{:?}", run.reasons);
    }
    // Guidance that an older version stored has no such field.
    let old = r#"{"who":"olaf","source":"command","text":"shorter","path":null}"#;
    assert!(!serde_json::from_str::<Guidance>(old).expect("readable").remember);
}

#[test]
fn branch_name_omits_a_token_in_the_title() {
    let run = LoopRun::with(|start| {
        start.task.text = TaskText::new("Leaked ghp_abcdefghijklmnopqrstuvwxyz0123456789", "It is broken.", None);
    });
    assert_eq!(run.current.branch.name, "ralph/42-leaked");
}
