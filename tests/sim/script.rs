//! Script of a run: events on issues and behavior of agents, all drawn from the seed in advance.

use ralph_bot::domain::loops::command::{self, LoopCommand};
use ralph_bot::domain::loops::{
    CiInspection, CiProgress, CommandInput, CommentRef, ForgeInput, Guidance, GuidanceSource, Loop, LoopInput,
    RunOptions,
};
use ralph_bot::domain::model::ids::{AccountKind, CommentId, Money, User, UserId};
use ralph_bot::domain::model::quantity::IterationLimit;

use crate::rng::Rng;
use crate::world::SimWorld;

/// Behavior of an agent in an iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentPlan {
    /// Changes a file; the fields state whether the checks pass in the tree and in a fresh checkout.
    Change { tree: bool, clean: bool },
    /// Changes nothing.
    Nothing,
    /// Fails after a change.
    Fail,
    /// Reaches its provider's limit, once.
    Limited,
    /// Cannot start, once.
    Unavailable,
    /// Makes a change that must not be pushed.
    Blocked,
}

/// Event caused by people or the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptEvent {
    Start,
    Guide,
    Pause { now: bool },
    Resume,
    ResumeMore,
    Abort,
    Retry,
    Budget,
    Status,
    Help,
    Review,
    CiFailed,
    Conflict,
    LabelOff,
    LabelOn,
    HumanPush,
    BranchDeleted,
    Jump,
    Permission(bool),
}

/// Script of a run.
#[derive(Debug, Clone)]
pub struct RunScript {
    /// Whether each event waits until no work is pending; faults must then not change the outcome.
    pub staged: bool,
    /// Issue and event, in order.
    pub events: Vec<(u64, ScriptEvent)>,
    /// Behavior of agents, by issue (from 1) and iteration (from 1); later iterations pass the checks.
    pub plans: Vec<Vec<AgentPlan>>,
    /// Maximum number of iterations of a loop.
    pub iterations: u32,
}

impl RunScript {
    /// Draws the script of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed.wrapping_mul(2));
        let staged = rng.chance(60);
        let issues = 1 + rng.below(2) as u64;
        let mut events: Vec<(u64, ScriptEvent)> = (1..=issues).map(|issue| (issue, ScriptEvent::Start)).collect();
        for _ in 0..2 + rng.below(6) {
            let event = *rng.pick(&[
                ScriptEvent::Guide,
                ScriptEvent::Guide,
                ScriptEvent::Pause { now: true },
                ScriptEvent::Pause { now: false },
                ScriptEvent::Resume,
                ScriptEvent::Resume,
                ScriptEvent::ResumeMore,
                ScriptEvent::Retry,
                ScriptEvent::Budget,
                ScriptEvent::Status,
                ScriptEvent::Help,
                ScriptEvent::Review,
                ScriptEvent::Review,
                ScriptEvent::CiFailed,
                ScriptEvent::Conflict,
                ScriptEvent::LabelOff,
                ScriptEvent::LabelOn,
                ScriptEvent::HumanPush,
                ScriptEvent::BranchDeleted,
                ScriptEvent::Jump,
                ScriptEvent::Permission(false),
                ScriptEvent::Permission(true),
                ScriptEvent::Start,
                ScriptEvent::Abort,
            ]);
            events.push((1 + rng.below(issues as usize) as u64, event));
        }
        let draw_plan = |rng: &mut Rng| {
            let sure = AgentPlan::Change { tree: true, clean: true };
            let plans = [
                sure,
                sure,
                sure,
                AgentPlan::Change { tree: false, clean: false },
                AgentPlan::Change { tree: false, clean: false },
                AgentPlan::Change { tree: true, clean: false },
                AgentPlan::Nothing,
                AgentPlan::Fail,
                AgentPlan::Limited,
                AgentPlan::Unavailable,
                AgentPlan::Blocked,
            ];
            (0..rng.below(5)).map(|_| *rng.pick(&plans)).collect::<Vec<_>>()
        };
        let plans = (0..issues).map(|_| draw_plan(&mut rng)).collect();
        Self { staged, events, plans, iterations: 2 + rng.below(4) as u32 }
    }
}

/// Returns a person on the forge.
pub fn person(login: &str) -> User {
    User { id: UserId(login.len() as i64), login: login.into(), kind: AccountKind::User }
}

/// Returns a loop's input for an event in the current state; `None` if the event has no effect.
pub fn input(event: ScriptEvent, sequence: u64, current: &Loop, world: &SimWorld) -> Option<LoopInput> {
    let options = RunOptions::default();
    let comment = Some(CommentRef { on: current.issue.issue, id: Some(CommentId(sequence as i64)) });
    let say = |command| Some(LoopInput::Command(CommandInput::Given { by: person("olaf"), command, comment }));
    let guidance = |source, text: String| Guidance { who: "rita".into(), source, text, path: None, remember: false };
    match event {
        ScriptEvent::Guide => say(LoopCommand::Guide(command::Guide {
            remember: false,
            text: format!("guidance {sequence}"),
            proposal: None,
        })),
        ScriptEvent::Pause { now } => say(LoopCommand::Pause(command::Pause { now, reason: String::new() })),
        ScriptEvent::Resume => {
            say(LoopCommand::Resume(command::Resume { options, guidance: format!("resumed {sequence}") }))
        }
        ScriptEvent::ResumeMore => {
            let options =
                RunOptions { max_iterations: Some(IterationLimit::of(current.spent.iterations + 2)), ..options };
            say(LoopCommand::Resume(command::Resume { options, guidance: String::new() }))
        }
        ScriptEvent::Abort => say(LoopCommand::Abort(command::Abort { reason: String::new() })),
        ScriptEvent::Retry => say(LoopCommand::Retry(command::Retry)),
        ScriptEvent::Budget => say(LoopCommand::Budget(command::Budget { limit: Money(50_000_000) })),
        ScriptEvent::Status => say(LoopCommand::Status(command::Status)),
        ScriptEvent::Help => say(LoopCommand::Help(command::Help)),
        ScriptEvent::Review => {
            let item = |n: u64| {
                let text = format!("remark {sequence}/{n}");
                (format!("review/{sequence}/{n}"), guidance(GuidanceSource::Review, text))
            };
            Some(LoopInput::Command(CommandInput::Reviewed {
                by: person("rita"),
                items: vec![item(1), item(2)],
                suggestions: Vec::new(),
            }))
        }
        ScriptEvent::CiFailed | ScriptEvent::Conflict => {
            let conflict = event == ScriptEvent::Conflict;
            let failed = if conflict { vec![] } else { vec![guidance(GuidanceSource::Ci, "it is red".into())] };
            let commit = world.branches.get(&current.branch.name)?.clone();
            Some(LoopInput::Forge(ForgeInput::Inspected(CiInspection {
                commit,
                failed,
                progress: CiProgress::default(),
                pending: 0,
                conflict,
                on_base: Vec::new(),
            })))
        }
        ScriptEvent::LabelOff => Some(LoopInput::Command(CommandInput::RunLabelRemoved { by: Some(person("olaf")) })),
        ScriptEvent::LabelOn => {
            Some(LoopInput::Command(CommandInput::RunLabelAdded { by: person("olaf"), plan: false }))
        }
        ScriptEvent::Start
        | ScriptEvent::HumanPush
        | ScriptEvent::BranchDeleted
        | ScriptEvent::Jump
        | ScriptEvent::Permission(_) => None,
    }
}
