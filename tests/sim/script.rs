//! What happens in a run: who says what about which issue, what the agents do, all drawn from the seed beforehand.

use ralph_bot::domain::loops::{CommentRef, Guidance, GuidanceSource, Loop, LoopInput};
use ralph_bot::domain::model::ids::{AccountKind, CommentId, Money, User, UserId};
use ralph_bot::domain::loops::command::{self, LoopCommand, RunOptions};

use crate::rng::Rng;
use crate::world::World;

/// What an agent does in an iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// Changes something; whether the checks hold in the tree, and in a fresh checkout.
    Change { tree: bool, clean: bool },
    /// Changes nothing.
    Nothing,
    /// Ends with an error, having changed something.
    Fail,
    /// Its vendor limits it, once.
    Limited,
    /// Cannot be started, once.
    Unavailable,
    /// Makes a change that may not be pushed.
    Blocked,
}

/// Something that people or the world do.
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

/// A run before it runs.
#[derive(Debug, Clone)]
pub struct Script {
    /// Whether each event waits until nothing moves any more: then faults must not change the end.
    pub staged: bool,
    /// Issue and event, in order.
    pub events: Vec<(u64, Event)>,
    /// What agents do, by issue (from 1) and iteration (from 1); a change that passes beyond.
    pub plans: Vec<Vec<Plan>>,
    /// Most iterations of a loop.
    pub iterations: u32,
}

impl Script {
    /// The script of a seed.
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

/// A person.
pub fn person(login: &str) -> User {
    User { id: UserId(login.len() as i64), login: login.into(), kind: AccountKind::User }
}

/// What a loop is told of an event, as things are now; `None` where nothing comes of it.
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
