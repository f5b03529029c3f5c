//! Script of a run: events on issues and behaviour of agents, all drawn from the seed in advance.

use ralph_bot::domain::loops::{CommentRef, Guidance, GuidanceSource, Loop, LoopInput};
use ralph_bot::domain::model::ids::{AccountKind, CommentId, Money, User, UserId};
use ralph_bot::domain::loops::command::{self, LoopCommand, RunOptions};

use crate::rng::Rng;
use crate::world::World;

/// Behaviour of an agent in an iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// Changes a file; whether the checks pass in the tree, and in a fresh checkout.
    Change { tree: bool, clean: bool },
    /// Changes nothing.
    Nothing,
    /// Fails after a change.
    Fail,
    /// Reaches its provider's limit, once.
    Limited,
    /// Cannot be started, once.
    Unavailable,
    /// Makes a change that must not be pushed.
    Blocked,
}

/// Event caused by people or the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
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
pub struct Script {
    /// Whether each event waits until nothing is pending; then faults must not change the outcome.
    pub staged: bool,
    /// Issue and event, in order.
    pub events: Vec<(u64, Event)>,
    /// Behaviour of agents, by issue (from 1) and iteration (from 1); later iterations pass the checks.
    pub plans: Vec<Vec<Plan>>,
    /// Maximum number of iterations of a loop.
    pub iterations: u32,
}

impl Script {
    /// Draws the script of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed.wrapping_mul(2));
        let staged = rng.chance(60);
        let issues = 1 + rng.below(2) as u64;
        let mut events: Vec<(u64, Event)> = (1..=issues).map(|issue| (issue, Event::Start)).collect();
        for _ in 0..2 + rng.below(6) {
            let event = *rng.pick(&[
                Event::Guide,
                Event::Guide,
                Event::Pause { now: true },
                Event::Pause { now: false },
                Event::Resume,
                Event::Resume,
                Event::ResumeMore,
                Event::Retry,
                Event::Budget,
                Event::Status,
                Event::Help,
                Event::Review,
                Event::Review,
                Event::CiFailed,
                Event::Conflict,
                Event::LabelOff,
                Event::LabelOn,
                Event::HumanPush,
                Event::BranchDeleted,
                Event::Jump,
                Event::Permission(false),
                Event::Permission(true),
                Event::Start,
                Event::Abort,
            ]);
            events.push((1 + rng.below(issues as usize) as u64, event));
        }
        let draw_plan = |rng: &mut Rng| {
            let sure = Plan::Change { tree: true, clean: true };
            let plans = [
                sure,
                sure,
                sure,
                Plan::Change { tree: false, clean: false },
                Plan::Change { tree: false, clean: false },
                Plan::Change { tree: true, clean: false },
                Plan::Nothing,
                Plan::Fail,
                Plan::Limited,
                Plan::Unavailable,
                Plan::Blocked,
            ];
            (0..rng.below(5)).map(|_| *rng.pick(&plans)).collect::<Vec<_>>()
        };
        let plans = (0..issues).map(|_| draw_plan(&mut rng)).collect();
        Self { staged, events, plans, iterations: 2 + rng.below(4) as u32 }
    }
}

/// Person on the forge.
pub fn person(login: &str) -> User {
    User { id: UserId(login.len() as i64), login: login.into(), kind: AccountKind::User }
}

/// Input for a loop from an event in the current state; `None` if the event has no effect.
pub fn input(event: Event, sequence: u64, current: &Loop, world: &World) -> Option<LoopInput> {
    let options = RunOptions::default();
    let comment = Some(CommentRef { on: current.place.issue, id: Some(CommentId(sequence as i64)) });
    let say = |command| Some(LoopInput::Command { by: person("olaf"), command, comment });
    let guidance = |source, text: String| Guidance { who: "rita".into(), source, text, path: None, remember: false };
    match event {
        Event::Guide => say(LoopCommand::Guide(command::Guide { remember: false, text: format!("guidance {sequence}") })),
        Event::Pause { now } => say(LoopCommand::Pause(command::Pause { now, reason: String::new() })),
        Event::Resume => say(LoopCommand::Resume(command::Resume { options, guidance: format!("resumed {sequence}") })),
        Event::ResumeMore => {
            let options = RunOptions { max_iterations: Some(current.spent.iterations + 2), ..options };
            say(LoopCommand::Resume(command::Resume { options, guidance: String::new() }))
        }
        Event::Abort => say(LoopCommand::Abort(command::Abort { reason: String::new() })),
        Event::Retry => say(LoopCommand::Retry(command::Retry)),
        Event::Budget => say(LoopCommand::Budget(command::Budget { limit: Money(50_000_000) })),
        Event::Status => say(LoopCommand::Status(command::Status)),
        Event::Help => say(LoopCommand::Help(command::Help)),
        Event::Review => {
            let item = |n: u64| {
                let text = format!("remark {sequence}/{n}");
                (format!("review/{sequence}/{n}"), guidance(GuidanceSource::Review, text))
            };
            Some(LoopInput::Reviewed { by: person("rita"), items: vec![item(1), item(2)] })
        }
        Event::CiFailed | Event::Conflict => {
            let conflict = event == Event::Conflict;
            let failed = if conflict { vec![] } else { vec![guidance(GuidanceSource::Ci, "it is red".into())] };
            let commit = world.branches.get(&current.branch)?.clone();
            Some(LoopInput::Inspected { commit, failed, pending: 0, conflict })
        }
        Event::LabelOff => Some(LoopInput::RunLabelRemoved { by: Some(person("olaf")) }),
        Event::LabelOn => Some(LoopInput::RunLabelAdded { by: person("olaf") }),
        Event::Start | Event::HumanPush | Event::BranchDeleted | Event::Jump | Event::Permission(_) => None,
    }
}
