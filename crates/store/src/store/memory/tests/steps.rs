//! Tests that each step of a stored loop is learned from exactly once.

use super::*;
use crate::domain::knowledge::memory::{LearningKind, ReflectionOutcome};
use crate::domain::loops::command::{self, LoopCommand};
use crate::domain::loops::{
    AgentEnd, AgentRunFacts, CommandInput, ForgeInput, IterationChange, Loop, LoopInput, LoopStart, LoopState as Stage,
    LoopStep, LoopTask, PreparedTree, RunOptions, TaskText, TimerInput, WorkOutcome,
};
use crate::domain::model::ids::IssueRef;
use crate::domain::model::ids::{AccountKind, Money, Number, RepoId, Sha, User, UserId};
use crate::domain::model::task::{AgentReport, CheckOutcome, CheckReport, DiffStat, TestCounts};
use crate::domain::supervision::experience::Experience;
use crate::domain::trust::policy::Policy;
use crate::store::loops;

/// Loop in a store, with its learning settings.
struct LearningRun {
    store: Store,
    memory: StepMemory,
    id: LoopId,
    told: i64,
}

fn maja() -> User {
    User { id: UserId(7), login: "maja".into(), kind: AccountKind::User }
}

fn report(failing: u64) -> CheckReport {
    let outcome = CheckOutcome {
        name: "tests".into(),
        command: "pytest".into(),
        holds: failing == 0,
        why: String::new(),
        exit_code: None,
        duration_ms: 1,
        tests: Some(TestCounts { passing: 10 - failing, failing, skipped: 0 }),
        output: "E   ValueError: the ledger is not balanced\n".into(),
        ..CheckOutcome::default()
    };
    CheckReport { outcomes: vec![outcome] }
}

impl LearningRun {
    async fn new(store: &Store, name: &str, memory: StepMemory) -> Self {
        let id = LoopId::new(name);
        let start = LoopStart {
            request: String::new(),
            existing: None,
            id: id.clone(),
            place: IssueRef {
                repo: repository(1),
                issue: Number(name.len() as u64 * 100 + u64::from(name.as_bytes()[2])),
            },
            by: maja(),
            task: LoopTask {
                text: TaskText::new("The ledger is not balanced", "", None),
                url: String::new(),
                hash: "0123456789".into(),
                author: Some(maja()),
                author_trusted: true,
                unconfirmed_editor: None,
                edited_after: false,
                labels: vec!["test".into()],
            },
            options: RunOptions { checks: vec!["pytest".into()], ..RunOptions::default() },
            policy: Policy::default(),
            plan: None,
            comment: None,
            hidden_removed: 0,
            round: 1,
        };
        let origin = format!("start/{name}");
        assert!(store.write(move |c| loops::begin(c, start, &origin, NOW)).await.expect("begun"));
        Self { store: store.clone(), memory, id, told: 0 }
    }

    /// Passes an input to the loop and runs the step; returns the loop before and after it.
    async fn tell(&mut self, input: impl Into<LoopInput>) -> (Loop, Loop) {
        let input = input.into();
        self.told += 1;
        let (id, at, memory) = (self.id.clone(), NOW.plus_ms(self.told * 1_000), self.memory.clone());
        let origin = format!("{id}/{}", self.told);
        let stepped = self.store.write(move |c| {
            let before = loops::get(c, &id)?.expect("there");
            assert!(loops::enqueue_input(c, &id, &origin, &input, at)?);
            let after = loops::step_next(c, &[], &memory, at)?.expect("a step").next;
            // The repeated input has no effect.
            assert!(
                !loops::enqueue_input(c, &id, &origin, &input, at)? && loops::step_next(c, &[], &memory, at)?.is_none()
            );
            Ok((before, after))
        });
        stepped.await.expect("a step")
    }

    async fn now(&self) -> Loop {
        let id = self.id.clone();
        self.store.read(move |c| loops::get(c, &id)).await.expect("read").expect("there")
    }

    async fn ticket(&self) -> u64 {
        self.now().await.run.ticket
    }

    /// Advances the loop to the agent's first run.
    async fn begin(&mut self) {
        self.tell(TimerInput::SlotGranted).await;
        let tree = PreparedTree {
            problems: None,
            base_branch: "main".into(),
            base: Sha::new("a".repeat(40)),
            head: Sha::new("a".repeat(40)),
            remote: None,
            policy: Policy::default(),
            notes: Vec::new(),
            lacks: Vec::new(),
            settings: None,
            detected: Vec::new(),
            proposes: false,
            estimates: std::collections::BTreeMap::new(),
            past: Vec::new(),
            experience: Experience::default(),
            images: Default::default(),
            sandbox: String::new(),
            proposals: Vec::new(),
        };
        let ticket = self.ticket().await;
        self.tell(LoopInput::Outcome { ticket, outcome: WorkOutcome::Prepared { tree: Box::new(tree) } }).await;
        let ticket = self.ticket().await;
        self.tell(LoopInput::Outcome { ticket, outcome: WorkOutcome::Checked { report: report(8) } }).await;
    }

    /// Runs one iteration, including the step that judges it.
    async fn iterate(&mut self, approach: &str, failing: u64) -> (Loop, Loop) {
        assert_eq!(self.now().await.run.step, LoopStep::Agent);
        let agent_report = AgentReport { approach: approach.into(), ..AgentReport::default() };
        let run = AgentRunFacts {
            report: Some(agent_report),
            cost: Some(Money(100)),
            tokens_in: 1,
            tokens_out: 1,
            tool_calls: 1,
            tools: vec!["Read".into(), "Edit".into()],
            duration_ms: 100,
            ..AgentRunFacts::ending(AgentEnd::Finished)
        };
        let ticket = self.ticket().await;
        self.tell(LoopInput::Outcome { ticket, outcome: WorkOutcome::AgentEnded { run: Box::new(run) } }).await;
        let commit = Sha::new(format!("{:040x}", 0xabc0 + self.told));
        let change = IterationChange {
            commit: Some(commit.clone()),
            tree: commit.clone(),
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
        let ticket = self.ticket().await;
        self.tell(LoopInput::Outcome { ticket, outcome: WorkOutcome::Committed { change: Box::new(change) } }).await;
        let ticket = self.ticket().await;
        self.tell(LoopInput::Outcome { ticket, outcome: WorkOutcome::Pushed { commit } }).await;
        let ticket = self.ticket().await;
        let stepped =
            self.tell(LoopInput::Outcome { ticket, outcome: WorkOutcome::Checked { report: report(failing) } }).await;
        if failing > 0 {
            return stepped;
        }
        let ticket = self.ticket().await;
        self.tell(LoopInput::Outcome { ticket, outcome: WorkOutcome::Checked { report: report(0) } }).await
    }

    async fn reflections(&self) -> Vec<ReflectionOutcome> {
        let id = self.id.clone();
        let read = self.store.read(move |c| reflections(c, &id, 9)).await.expect("read");
        read.into_iter().map(|reflection| reflection.outcome).collect()
    }
}

async fn exported(store: &Store) -> String {
    store.read(export).await.expect("read").0
}

async fn by_line(store: &Store, line: &str) -> Option<Learning> {
    let (all, _) = store.read(|c| list(c, "", 99)).await.expect("read");
    all.into_iter().find(|learning| learning.line().contains(line))
}

#[tokio::test]
async fn learnings_of_a_step_are_stored_once() {
    let store = Store::in_memory().expect("opened");
    let mut run = LearningRun::new(&store, "r-1", StepMemory::default()).await;
    run.begin().await;
    assert_eq!(counted(&store).await, LearningCounts::default());
    let (before, after) = run.iterate("balance each entry on its own", 0).await;
    assert_eq!((after.state, run.reflections().await), (Stage::Review, vec![ReflectionOutcome::Done]));
    let strategy = by_line(&store, "balance each entry").await.expect("learnt");
    assert_eq!((strategy.state, strategy.seen, strategy.kind()), (LearningState::Candidate, 1, LearningKind::Strategy));
    assert!(matches!(&strategy.content, Content::Strategy { tools, .. } if tools == &["Read", "Edit"]), "{strategy:?}");
    let (pending, merged) = run.tell(ForgeInput::PullMerged).await;
    let strategy = by_line(&store, "balance each entry").await.expect("learnt");
    assert_eq!((strategy.state, strategy.seen, strategy.merged), (LearningState::Active, 2, true));
    assert!(by_line(&store, "(1 loops)").await.is_some(), "an estimate");
    let repo = run.now().await.issue.repo;
    let elsewhere = RepoRef { id: RepoId(repo.id.0 + 1), ..repo.clone() };
    let (own, others) = store
        .read(move |c| {
            Ok((crate::store::memory::estimates(c, &repo)?, crate::store::memory::estimates(c, &elsewhere)?))
        })
        .await
        .expect("read");
    assert_eq!(own.values().map(|estimate| estimate.samples).collect::<Vec<_>>(), [1]);
    assert!(others.is_empty(), "of another repository");
    // Run the same steps again, as after a crash or from a copy.
    let known = exported(&store).await;
    for (before, after, input) in [
        (before, after, LoopInput::Timer(TimerInput::SlotGranted)),
        (pending, merged, LoopInput::Forge(ForgeInput::PullMerged)),
    ] {
        let memory = StepMemory::default();
        let again = store.write(move |c| memory.learn_from(c, &before, &after, &input, NOW.plus_ms(99_000)));
        again.await.expect("a no-op");
    }
    assert_eq!(exported(&store).await, known);
    assert_eq!(run.reflections().await.len(), 1);
}

#[tokio::test]
async fn finished_loop_adds_experience() {
    let store = Store::in_memory().expect("opened");
    let mut run = LearningRun::new(&store, "r-1", StepMemory::default()).await;
    let repo = run.now().await.issue.repo;
    let elsewhere = RepoRef { id: RepoId(repo.id.0 + 1), ..repo.clone() };
    let known = async |of: &RepoRef| {
        let of = of.clone();
        store.read(move |c| loops::experience(c, &of)).await.expect("read")
    };
    run.begin().await;
    for failing in [6, 4, 2, 1, 0] {
        run.iterate("balance each entry on its own", failing).await;
    }
    assert!(known(&repo).await.is_empty(), "it has not ended");
    run.tell(ForgeInput::PullMerged).await;
    let experience = known(&repo).await;
    assert_eq!(experience, Experience::of([run.now().await.as_earlier()]));
    assert_eq!(experience.paces().map(|earlier| earlier.paced).collect::<Vec<_>>(), [4]);
    assert!(known(&elsewhere).await.is_empty(), "of another repository");
    store.write(|c| Ok(c.execute("UPDATE loops SET data = '{}'", [])?)).await.expect("damaged");
    assert!(known(&repo).await.is_empty(), "what cannot be read is left out");
}

#[tokio::test]
async fn disabled_memory_stores_no_learnings() {
    let store = Store::in_memory().expect("opened");
    let mut run = LearningRun::new(&store, "r-1", StepMemory::off()).await;
    run.begin().await;
    run.iterate("balance each entry on its own", 0).await;
    run.tell(ForgeInput::PullMerged).await;
    assert_eq!((counted(&store).await, run.reflections().await), (LearningCounts::default(), Vec::new()));
}

#[tokio::test]
async fn loop_that_learns_nothing_from_others_keeps_its_reflections() {
    let store = Store::in_memory().expect("opened");
    let settings = MemorySettings { across_loops: false, ..MemorySettings::default() };
    let memory = StepMemory { settings: settings.clone(), ..StepMemory::default() };
    let mut run = LearningRun::new(&store, "r-1", memory).await;
    run.begin().await;
    run.iterate("balance each entry on its own", 0).await;
    run.tell(ForgeInput::PullMerged).await;
    assert_eq!(counted(&store).await, LearningCounts::default());
    assert_eq!(run.reflections().await, [ReflectionOutcome::Done]);
    assert!(settings.enabled && !settings.learns());
}

#[tokio::test]
async fn use_of_ended_loops_is_listed_newest_first() {
    let store = Store::in_memory().expect("opened");
    let mut repo = None;
    for (name, failing) in [("r-1", vec![0]), ("r-22", vec![4, 0])] {
        let mut run = LearningRun::new(&store, name, StepMemory::default()).await;
        run.begin().await;
        for failing in failing {
            run.iterate("balance each entry on its own", failing).await;
        }
        repo = Some(run.now().await.issue.repo);
        run.tell(ForgeInput::PullMerged).await;
    }
    let repo = repo.expect("a repository");
    let ended = store.read(move |c| loops::ended(c, &repo)).await.expect("read");
    let used: Vec<_> = ended.iter().map(|ended| (ended.iterations, ended.cost)).collect();
    assert_eq!(used, [(2, Money(200)), (1, Money(100))]);
}

#[tokio::test]
async fn maintainer_rule_is_used_from_then_on() {
    let store = Store::in_memory().expect("opened");
    let masker = Masker::new(["swordfish-in-a-token"]);
    let mut run = LearningRun::new(&store, "r-1", StepMemory { masker, ..StepMemory::default() }).await;
    run.begin().await;
    let guide = |text: &str| {
        let command = LoopCommand::Guide(command::Guide { remember: true, text: text.into(), proposal: None });
        LoopInput::Command(CommandInput::Given { by: maja(), command, comment: None })
    };
    run.tell(guide("Sign entries with swordfish-in-a-token <!-- hidden -->")).await;
    let settings = MemorySettings::default;
    assert_eq!(told(&store, query(1, "anything"), settings()).await, ["Sign entries with ***"]);
    // A rule that was archived manually and then reported by another loop.
    let rule = by_line(&store, "Sign entries").await.expect("learnt");
    let id = rule.id.clone();
    store.write(move |c| set_state(c, &id, LearningState::Archived, NOW)).await.expect("archived");
    assert!(told(&store, query(1, "anything"), settings()).await.is_empty());
    let mut other = LearningRun::new(&store, "r-2", StepMemory::default()).await;
    other.tell(guide("Sign entries with ***")).await;
    assert_eq!(told(&store, query(1, "anything"), settings()).await.len(), 1);
}

#[tokio::test]
async fn learnings_of_a_prompt_are_credited() {
    let store = Store::in_memory().expect("opened");
    let [good, bad] =
        ["balance each entry on its own", "round every amount first"].map(|text| active(1, strategy(text)));
    for learning in [&good, &bad] {
        keep(&store, learning.clone()).await;
    }
    let confidence = async |learning: &Learning| {
        let id = learning.id.clone();
        store.write(move |c| get(c, &id, NOW)).await.expect("read").expect("there").confidence
    };
    let carries = async |run: &LearningRun, iteration: u32| {
        let (id, ids) = (run.id.clone(), vec![good.id.clone(), bad.id.clone()]);
        store.write(move |c| carried(c, &id, iteration, &ids, NOW)).await.expect("noted");
    };
    let mut run = LearningRun::new(&store, "r-9", StepMemory::default()).await;
    run.begin().await;
    carries(&run, 1).await;
    run.iterate("round every amount first", 8).await;
    let after_failure = (confidence(&good).await, confidence(&bad).await);
    assert_eq!(after_failure.0, 0.9, "nobody followed it");
    assert!(after_failure.1 < 0.9, "{after_failure:?}");
    carries(&run, 2).await;
    run.iterate("balance each entry on its own", 0).await;
    let after_success = confidence(&good).await;
    assert!(after_success > 0.9, "{after_success}");
    run.tell(ForgeInput::PullMerged).await;
    assert!(confidence(&good).await > after_success, "the loop's end counts as well");
    // The sample's task has another type than the learning, so measure over all types.
    let learning = Learning { task_type: TaskType::Other, ..good.clone() };
    let measured = store.read(move |c| uplift(c, &learning)).await.expect("measured");
    assert_eq!((measured.with.succeeded, measured.with.loops), (1, 1));
}

#[tokio::test]
async fn result_after_a_raised_limit_replaces_the_first() {
    let store = Store::in_memory().expect("opened");
    let outcome = |succeeded| LoopCredit {
        loop_id: LoopId::new("r-1"),
        repository: repository(1),
        task_type: TaskType::TestFix,
        succeeded,
    };
    let learning = active(1, strategy("balance each entry"));
    keep(&store, learning.clone()).await;
    let id = learning.id.clone();
    store.write(move |c| carried(c, &LoopId::new("r-1"), 1, &[id], NOW)).await.expect("noted");
    let mut rates = Vec::new();
    for succeeded in [false, false, true, true] {
        let (outcome, wanted) = (outcome(succeeded), learning.clone());
        let now = store.write(move |c| {
            credit_loop(c, &outcome, &MemorySettings::default(), NOW)?;
            let known = get(c, &wanted.id, NOW)?.expect("there");
            Ok((known.evidence.successes, known.evidence.failures, uplift(c, &known)?.with.succeeded))
        });
        rates.push(now.await.expect("credited"));
    }
    let (s, f) = (learning.evidence.successes + 0.0, 0.5);
    assert_eq!(rates, [(s, f, 0), (s, f, 0), (s + 0.5, f, 1), (s + 0.5, f, 1)]);
}

#[tokio::test]
async fn damaged_learning_does_not_fail_the_step() {
    let store = Store::in_memory().expect("opened");
    let mut run = LearningRun::new(&store, "r-1", StepMemory::default()).await;
    let learning = active(1, strategy("balance each entry on its own"));
    keep(&store, learning.clone()).await;
    run.begin().await;
    let (id, ids) = (run.id.clone(), vec![learning.id.clone()]);
    store.write(move |c| carried(c, &id, 1, &ids, NOW)).await.expect("noted");
    store
        .write(|c| Ok(c.execute("UPDATE learnings SET data = replace(data, '0.9', '0.8')", [])?))
        .await
        .expect("harmed");
    let (_, after) = run.iterate("balance each entry on its own", 0).await;
    assert_eq!(after.state, Stage::Review);
    let LearningCounts { candidates, quarantined: aside, .. } = counted(&store).await;
    assert_eq!((candidates, aside), (1, 1), "what the step teaches is learnt anew");
    assert_eq!(store.read(quarantined).await.expect("counted"), 1);
}

#[tokio::test]
async fn failed_learning_is_rolled_back_without_failing_the_step() {
    let store = Store::in_memory().expect("opened");
    let mut run = LearningRun::new(&store, "r-1", StepMemory::default()).await;
    run.begin().await;
    store.write(|c| Ok(c.execute_batch("ALTER TABLE learnings RENAME TO gone")?)).await.expect("harmed");
    let (_, after) = run.iterate("balance each entry on its own", 0).await;
    assert_eq!(after.state, Stage::Review, "{}", after.why);
    assert_eq!(run.now().await.state, Stage::Review);
    assert_eq!(run.reflections().await, [], "half of it would be a reflection");
    store.write(|c| Ok(c.execute_batch("ALTER TABLE gone RENAME TO learnings")?)).await.expect("mended");
    run.tell(ForgeInput::PullMerged).await;
    assert!(by_line(&store, "balance each entry").await.is_some(), "it learns again");
}
