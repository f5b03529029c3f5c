//! Drives the real state machine and store against the world. The seed determines the schedule and the faults.

use std::collections::{BTreeMap, BTreeSet};

use ralph_bot::domain::lifecycle;
use ralph_bot::domain::lifecycle::effect::{Effect, EffectQueue, ForgeEffect, SEEN_QUEUE, WorkEffect};
use ralph_bot::domain::loops::command::{self, LoopCommand};
use ralph_bot::domain::loops::{
    CommandInput, ForgeInput, Loop, LoopInput, LoopStart, LoopState, LoopTask, TaskText, TimerInput, WorkOutcome,
};
use ralph_bot::domain::loops::{RunOptions, TimerKind};
use ralph_bot::domain::model::ids::IssueRef;
use ralph_bot::domain::model::ids::{ForgeName, LoopId, Number, RepoId, RepoRef, Timestamp};
use ralph_bot::domain::model::quantity::{Duration, IterationLimit};
use ralph_bot::domain::trust::policy::{Policy, ProgressReport};
use ralph_bot::store::loops::Slots;
use ralph_bot::store::memory::StepMemory;
use ralph_bot::store::outbox::{self, Claimant, ClaimedEffect, EffectOutcome};
use ralph_bot::store::sql::{Connection, Row};
use ralph_bot::store::{Store, StoreError, StoreResult, forge_posts, leases, loops, timers};

use crate::rng::Rng;
use crate::script::{RunScript, ScriptEvent, input, person};
use crate::world::{SimReceipt, SimWorld, StoreState};

/// Duration of a lease, in milliseconds.
const LEASE_MS: i64 = 60_000;
/// Time before an effect with an unknown outcome is looked up, in milliseconds.
const AMBIGUITY_MS: i64 = 10_000;
/// Maximum number of steps of a run.
const MOST_STEPS: usize = 20_000;
/// Maximum number of concurrent loops.
const SLOTS: u32 = 1;

/// Rare branches that at least one of all seeds must reach.
pub const SOMETIMES: [&str; 2] = [LOST_AT_HEARTBEAT, OLD_TOKEN];
const LOST_AT_HEARTBEAT: &str = "lease lost at a heartbeat";
const OLD_TOKEN: &str = "outcome with an old token";

/// Running effect of a process.
struct RunningEffect {
    claimed: ClaimedEffect,
    owner: String,
    done: Option<SimReceipt>,
}

/// State of one run.
pub struct Sim {
    runtime: tokio::runtime::Runtime,
    store: Store,
    pub world: SimWorld,
    script: RunScript,
    rng: Rng,
    faults: bool,
    /// Whether to print each step.
    trace: bool,
    process: u32,
    flights: Vec<RunningEffect>,
    /// Effects of processes wrongly considered dead.
    zombies: Vec<RunningEffect>,
    /// Calls that reach the forge after their caller gave up, with their times.
    late: Vec<(i64, ClaimedEffect, StoreState)>,
    /// Inputs of loops, for repeated deliveries.
    told: Vec<(LoopId, String, LoopInput)>,
    /// Lost events, until the next reconciliation.
    lost: Vec<(LoopId, String, LoopInput)>,
    last: BTreeMap<LoopId, Loop>,
    round: BTreeMap<u64, u32>,
    steps: usize,
    crashes: usize,
    /// Rare branches that the run reached, of [`SOMETIMES`].
    pub reached: BTreeSet<&'static str>,
    /// Whether inputs, timers, forge effects and work may be pending; avoids queries that were empty before.
    stirred: [bool; 4],
}

impl Sim {
    pub fn new(seed: u64, faults: bool, trace: bool) -> Self {
        let script = RunScript::draw(seed);
        let differ = !script.staged;
        Self {
            runtime: tokio::runtime::Builder::new_current_thread().build().expect("a runtime"),
            store: Store::in_memory().expect("a store"),
            world: SimWorld::new(script.plans.clone(), differ),
            rng: Rng::new(seed.wrapping_mul(2) + 1),
            script,
            faults,
            trace,
            process: 1,
            flights: Vec::new(),
            zombies: Vec::new(),
            late: Vec::new(),
            told: Vec::new(),
            lost: Vec::new(),
            last: BTreeMap::new(),
            round: BTreeMap::new(),
            steps: 0,
            crashes: 0,
            reached: BTreeSet::new(),
            stirred: [true; 4],
        }
    }

    pub fn staged(&self) -> bool {
        self.script.staged
    }

    fn note(&self, what: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>8} {}", self.world.now - 1_000_000, what());
        }
    }

    pub fn write<T: Send + 'static>(&self, work: impl FnOnce(&Connection) -> StoreResult<T> + Send + 'static) -> T {
        self.try_write(work).expect("written")
    }

    fn try_write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        self.runtime.block_on(self.store.write(work))
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.world.now)
    }

    fn owner(&self) -> String {
        format!("process-{}", self.process)
    }

    fn place(issue: u64) -> IssueRef {
        let repo =
            RepoRef { forge: ForgeName::new("f"), id: RepoId(issue as i64), owner: "acme".into(), name: "app".into() };
        IssueRef { repo, issue: Number(issue) }
    }

    /// Returns an issue's newest loop.
    pub fn newest(&self, issue: u64) -> Option<Loop> {
        let round = *self.round.get(&issue)?;
        self.write(move |c| loops::get(c, &loop_id(issue, round)))
    }

    /// Plays the complete script, then answers all waiting loops until no work is pending.
    pub fn play(&mut self) {
        let script = self.script.events.clone();
        for (sequence, (issue, event)) in script.into_iter().enumerate() {
            if self.script.staged {
                self.settle();
            } else {
                for _ in 0..self.rng.below(40) {
                    self.advance();
                }
            }
            self.happen(issue, event, sequence as u64 + 1);
        }
        self.settle();
        self.check_logs();
    }

    /// Ends all open loops like a maintainer, without further faults.
    pub fn finish(&mut self) {
        self.faults = false;
        self.world.permitted = true;
        self.reconcile();
        self.settle();
        for issue in 1..=self.script.plans.len() as u64 {
            let Some(current) = self.newest(issue).filter(|l| l.state.is_open()) else { continue };
            let resume =
                LoopCommand::Resume(command::Resume { options: RunOptions::default(), guidance: String::new() });
            let resumed =
                LoopInput::Command(CommandInput::Given { by: person("olaf"), command: resume, comment: None });
            self.tell(&current.id, format!("finish/{issue}/resume"), resumed);
            self.settle();
            let current = self.newest(issue).expect("a loop");
            let end = match current.pull.opened.is_some() && current.state == LoopState::Review {
                true => {
                    self.world
                        .pulls
                        .iter_mut()
                        .filter(|p| p.branch == current.branch.name)
                        .for_each(|p| p.open = false);
                    LoopInput::Forge(ForgeInput::PullMerged)
                }
                false => {
                    let command = LoopCommand::Abort(command::Abort { reason: String::new() });
                    LoopInput::Command(CommandInput::Given { by: person("olaf"), command, comment: None })
                }
            };
            self.tell(&current.id, format!("finish/{issue}/end"), end);
            self.settle();
        }
        self.check_logs();
    }

    fn happen(&mut self, issue: u64, event: ScriptEvent, sequence: u64) {
        self.stirred = [true; 4];
        self.note(|| format!("event {event:?} on #{issue}"));
        match event {
            ScriptEvent::Start => return self.start(issue, sequence),
            ScriptEvent::Jump => return self.jump(25 * 3_600_000),
            ScriptEvent::Permission(permitted) => return self.world.permitted = permitted,
            _ => {}
        }
        let Some(current) = self.newest(issue) else { return };
        match event {
            ScriptEvent::HumanPush => self.world.human_push(&current.branch.name),
            ScriptEvent::BranchDeleted => {
                self.world.branches.remove(&current.branch.name);
                // A person who deletes a branch discards other people's commits on it; the service must not.
                self.world.others.retain(|(branch, _)| *branch != current.branch.name);
            }
            ScriptEvent::Conflict if current.state == LoopState::Review => self.world.base_moves(),
            _ => {}
        }
        let Some(input) = input(event, sequence, &current, &self.world) else { return };
        let origin = format!("event/{sequence}");
        if self.faults && self.rng.chance(20) && !self.script.staged {
            self.note(|| format!("the delivery of {origin} is lost"));
            self.lost.push((current.id, origin, input));
        } else {
            self.tell(&current.id, origin, input);
        }
    }

    /// Renews the leases of the running effects.
    fn renew(&self, by_ms: i64) {
        let owner = self.owner();
        let now = self.now();
        let held: Vec<_> = self.flights.iter().map(|flight| (flight.claimed.lease(), flight.claimed.fence)).collect();
        self.write(move |c| leases::renew(c, &owner, &held, now, by_ms));
    }

    /// Advances the time while only heartbeats happen.
    fn jump(&mut self, ms: i64) {
        self.renew(ms + LEASE_MS);
        self.world.now += ms;
    }

    fn start(&mut self, issue: u64, sequence: u64) {
        let place = Self::place(issue);
        let round = self.round.get(&issue).copied().unwrap_or(0) + 1;
        let mut policy = Policy { progress: ProgressReport::Comments, ..Policy::default() };
        policy.limits.iterations = IterationLimit::of(self.script.iterations);
        policy.limits.timeout = Duration::seconds(30 * 24 * 3600);
        let start = LoopStart {
            request: String::new(),
            existing: None,
            id: loop_id(issue, round),
            place: place.clone(),
            by: person("maja"),
            task: LoopTask {
                text: TaskText::new("Fix the parser", "It is broken.", None),
                url: format!("https://forge.test/acme/app/issues/{issue}"),
                hash: "0123456789abcdef".into(),
                author: Some(person("maja")),
                author_trusted: true,
                unconfirmed_editor: None,
                edited_after: false,
                labels: Vec::new(),
            },
            options: RunOptions { checks: vec!["make test".into()], ..RunOptions::default() },
            policy,
            plan: None,
            comment: None,
            hidden_removed: 0,
            round,
        };
        let (now, origin) = (self.now(), format!("start/{sequence}"));
        let again = self.faults && self.rng.chance(30);
        let (first, second) = self.write(move |c| {
            let first = loops::begin(c, start.clone(), &origin, now)?;
            let other = LoopStart { id: LoopId::new(format!("{}-again", start.id)), ..start };
            Ok((first, again && loops::begin(c, other, &origin, now)?))
        });
        assert!(!second, "the same origin began two loops");
        if first {
            self.round.insert(issue, round);
            self.world.labels.entry(issue).or_default().insert("run");
        }
    }

    fn tell(&mut self, id: &LoopId, origin: String, input: LoopInput) {
        self.stirred = [true; 4];
        let (now, to, from, what) = (self.now(), id.clone(), origin.clone(), input.clone());
        assert!(self.write(move |c| loops::enqueue_input(c, &to, &from, &what, now)), "{origin} was told before");
        self.told.push((id.clone(), origin, input));
    }

    /// Repeats a delivery.
    fn repeat(&mut self) {
        if self.told.is_empty() {
            return;
        }
        let (id, origin, input) = self.rng.pick(&self.told).clone();
        let now = self.now();
        assert!(
            !self.write(move |c| loops::enqueue_input(c, &id, &origin, &input, now)),
            "a repeated origin counted twice"
        );
    }

    /// Finds lost events, in any order.
    fn reconcile(&mut self) {
        while !self.lost.is_empty() {
            let at = self.rng.below(self.lost.len());
            let (id, origin, input) = self.lost.swap_remove(at);
            self.tell(&id, origin, input);
        }
    }

    /// Steps until no work is pending or due.
    pub fn settle(&mut self) {
        loop {
            while self.advance() {}
            self.stirred = [true; 4];
            let (open, due, any_waits) = self.write(|c| {
                let waits = !loops::in_state(c, LoopState::Waiting)?.is_empty();
                Ok((outbox::counts(c)?, timers::next_due(c)?, waits))
            });
            if !open.is_empty() || !self.late.is_empty() {
                self.world.now += 2_000;
            } else if let Some(due) = due.filter(|_| any_waits) {
                self.world.now = self.world.now.max(due.0);
            } else {
                break;
            }
        }
        self.check_rest();
    }

    /// Makes one step; returns `false` if no step is possible.
    fn advance(&mut self) -> bool {
        self.steps += 1;
        assert!(self.steps < MOST_STEPS, "it never comes to rest");
        self.world.now += 200;
        while self.arrive() {}
        if self.faults {
            self.trouble();
        }
        if self.steps.is_multiple_of(16) {
            self.renew(LEASE_MS);
        }
        let offset = if self.faults { self.rng.below(5) } else { 0 };
        (0..5).any(|n| {
            let who = (n + offset) % 5;
            if who == 4 {
                return self.fly();
            }
            let moved = self.stirred[who]
                && match who {
                    0 => self.step_loop(),
                    1 => self.timers(),
                    2 => self.claim(EffectQueue::Forge, 3),
                    _ => self.claim(EffectQueue::Work, 2),
                };
            match (moved, who) {
                (false, _) => self.stirred[who] = false,
                (true, 0) => self.stirred = [true; 4],
                (true, _) => self.stirred[0] = true,
            }
            moved
        })
    }

    fn trouble(&mut self) {
        if self.rng.chance(2) && self.crashes < 6 && self.may_crash() {
            self.crash();
        }
        if self.rng.chance(2) {
            self.repeat();
        }
        if self.rng.chance(1) {
            self.reconcile();
        }
        if !self.zombies.is_empty() && self.rng.chance(20) {
            let zombie = self.zombies.swap_remove(0);
            self.zombie(zombie);
        }
    }

    /// Whether the process may crash. If faults must not change the outcome, a crash must not use up an iteration's
    /// attempts.
    fn may_crash(&self) -> bool {
        let last = |f: &RunningEffect| matches!(f.claimed.effect, Effect::Work(WorkEffect::Agent { attempt, .. }) if attempt >= 3);
        !self.script.staged || !self.flights.iter().any(last)
    }

    /// Kills the process, or wrongly considers it dead. Its running effects have happened, have not happened, or will happen
    /// later.
    fn crash(&mut self) {
        self.stirred = [true; 4];
        let dead = self.owner();
        self.crashes += 1;
        self.process += 1;
        let known_dead = self.rng.chance(50);
        self.note(|| format!("{dead} is gone, known: {known_dead}"));
        for flight in std::mem::take(&mut self.flights) {
            let begun =
                flight.done.is_none() && !(flight.claimed.lane == EffectQueue::Forge && flight.claimed.abandoned);
            if begun && flight.claimed.lane == EffectQueue::Forge {
                let known = self.known(&flight.claimed);
                match self.rng.below(3) {
                    0 => drop(self.world.talk(&flight.claimed, &known, flight.claimed.attempts > 0)),
                    1 if flight.claimed.attempts == 0 => {
                        let at = self.world.now + self.rng.below(9_000) as i64;
                        self.late.push((at, flight.claimed.clone(), known));
                    }
                    _ => {}
                }
            } else if begun && self.rng.chance(50) {
                let known = self.known(&flight.claimed);
                drop(self.world.work(&flight.claimed, &known));
            }
            if self.rng.chance(50) {
                self.zombies.push(flight);
            }
        }
        if known_dead {
            self.write(move |c| leases::end_all(c, &dead));
        } else {
            self.world.now += 1_000;
        }
    }

    /// Lets a process that was wrongly considered dead record its outcome, which counts only if no other process took over.
    fn zombie(&mut self, flight: RunningEffect) {
        let id = flight.claimed.id;
        let find = move |c: &Connection| {
            let sql = "SELECT fence, state FROM outbox WHERE id = ?1";
            let read = |r: &Row<'_>| Ok((r.get::<_, i64>(0)?, r.get::<_, String>(1)?));
            Ok(c.query_row(sql, [id], read)?)
        };
        let (fence, state) = self.write(find);
        let ours = fence == flight.claimed.fence && state == "running";
        self.note(|| format!("a late outcome of {} counts: {ours}", flight.claimed.key));
        if !ours && self.rng.chance(50) {
            self.lose_at_heartbeat(&flight);
            assert_eq!(self.write(find), (fence, state), "work under a lost lease changed its row");
            return;
        }
        let Some(receipt) = flight.done else { return };
        let recorded = self.record(flight.claimed, &flight.owner, receipt);
        match recorded {
            Ok(()) => assert!(ours, "an outcome under an old fence was taken"),
            Err(StoreError::Fenced { .. }) => {
                assert!(!ours, "an outcome under the newest fence was refused");
                self.reached.insert(OLD_TOKEN);
                assert_eq!(self.write(find), (fence, state), "a refused outcome changed its row");
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Sends a heartbeat under an old fence. The process finds its lease lost, and cannot give its work back.
    fn lose_at_heartbeat(&mut self, flight: &RunningEffect) {
        let held = vec![(flight.claimed.lease(), flight.claimed.fence)];
        let owner = flight.owner.clone();
        let now = self.now();
        let lost = self.write(move |c| leases::renew(c, &owner, &held, now, LEASE_MS));
        assert_eq!(lost, [flight.claimed.lease()], "a lease under an old fence was renewed");
        self.note(|| format!("a heartbeat finds the lease of {} lost", flight.claimed.key));
        let claimed = flight.claimed.clone();
        let owner = flight.owner.clone();
        let returned = self.try_write(move |c| outbox::reschedule(c, &claimed, &owner, now, true, "lost"));
        assert!(matches!(returned, Err(StoreError::Fenced { .. })), "work under an old fence was given back");
        self.reached.insert(LOST_AT_HEARTBEAT);
    }

    fn known(&self, claimed: &ClaimedEffect) -> StoreState {
        let (id, subject) = (claimed.loop_id.clone().expect("a loop"), claimed.subject.clone());
        let key = if claimed.key.starts_with("status") { "status".to_owned() } else { claimed.key.clone() };
        self.write(move |c| {
            Ok(StoreState {
                current: loops::get(c, &id)?,
                posted: forge_posts::get(c, &subject, &key)?,
                escalations: loops::numbers(c, &id, loops::IssueRole::Escalation)?,
            })
        })
    }

    fn step_loop(&mut self) -> bool {
        let now = self.now();
        let (decision, granted, taken) = self.write(move |c| {
            let decision = loops::step_next(c, &[], &StepMemory::default(), now)?;
            if decision.is_some() {
                return Ok((decision, false, 0));
            }
            let granted = loops::grant_slots(c, Slots { all: SLOTS, per_forge: SLOTS, per_repository: 1 }, now)?;
            let sql = "SELECT count(*) FROM loops WHERE open = 1 AND (state IN ('running', 'waiting') OR EXISTS
                (SELECT 1 FROM inputs i WHERE i.loop_id = loops.id AND i.done = 0 AND i.origin LIKE 'slot/%'))";
            Ok((None, !granted.is_empty(), c.query_row(sql, [], |r| r.get::<_, u32>(0))?))
        });
        assert!(taken <= SLOTS, "{taken} loops have a slot");
        let Some(decision) = decision else { return granted };
        let next = decision.next;
        self.note(|| {
            format!(
                "{} v{} {:?}/{:?}: {}",
                next.id,
                next.version,
                next.state,
                next.run.step,
                decision.reasons.join("; ")
            )
        });
        if let Some(before) = self.last.get(&next.id) {
            assert_eq!(next.version, before.version + 1, "a step was left out");
            assert!(next.spent.cost >= before.spent.cost && next.spent.tokens_in >= before.spent.tokens_in);
            assert!(next.spent.time_ms >= before.spent.time_ms, "time was given back");
            assert!(next.spent.iterations + 1 >= before.spent.iterations, "iterations were given back");
            assert!(before.state.is_open() || next.state == before.state, "an ended loop went on");
        }
        self.last.insert(next.id.clone(), next);
        true
    }

    fn timers(&mut self) -> bool {
        let now = self.now();
        self.write(move |c| {
            let due = timers::take_due(c, now)?;
            for (id, kind, at) in &due {
                let timer = TimerKind::parse(kind).expect("a kind of timer");
                loops::enqueue_input(
                    c,
                    id,
                    &format!("timer/{id}/{kind}/{}", at.0),
                    &LoopInput::Timer(TimerInput::TimerDue { timer }),
                    now,
                )?;
            }
            Ok(!due.is_empty())
        })
    }

    fn claim(&mut self, lane: EffectQueue, most: usize) -> bool {
        if self.flights.iter().filter(|f| f.claimed.lane == lane).count() >= most {
            return false;
        }
        let (owner, now) = (self.owner(), self.now());
        let by = Claimant::without_host(&owner);
        let taken = self.write(move |c| {
            let first = if lane == EffectQueue::Forge { SEEN_QUEUE } else { lane.as_str() };
            let first = outbox::claim(c, first, |_, _| true, &by, now, LEASE_MS)?;
            first.map_or_else(|| outbox::claim(c, lane.as_str(), |_, _| true, &by, now, LEASE_MS), |one| Ok(Some(one)))
        });
        let Some(claimed) = taken else { return false };
        self.note(|| format!("{owner} takes {} of {} on, try {}", claimed.key, claimed.subject, claimed.attempts));
        let twin =
            self.flights.iter().any(|f| f.claimed.subject == claimed.subject && f.claimed.queue == claimed.queue);
        assert!(!twin, "two effects of one loop and queue run at the same time");
        self.flights.push(RunningEffect { claimed, owner, done: None });
        true
    }

    /// Advances an effect: executes it in the world, then records it.
    fn fly(&mut self) -> bool {
        if self.flights.is_empty() {
            return false;
        }
        let at = if self.faults { self.rng.below(self.flights.len()) } else { 0 };
        let mut flight = self.flights.swap_remove(at);
        if let Some(receipt) = flight.done.take() {
            self.record(flight.claimed, &flight.owner, receipt).expect("the lease is ours");
            return true;
        }
        let claimed = &flight.claimed;
        if claimed.lane == EffectQueue::Forge && claimed.abandoned {
            self.put_back(&flight, AMBIGUITY_MS, true);
            return true;
        }
        let agent = matches!(claimed.effect, Effect::Work(WorkEffect::Agent { .. }));
        if self.faults && !agent && self.rng.chance(8) {
            return self.fail(flight);
        }
        let known = self.known(claimed);
        let receipt = match claimed.lane {
            EffectQueue::Forge => self.world.talk(claimed, &known, claimed.attempts > 0),
            EffectQueue::Work => self.world.work(claimed, &known),
            EffectQueue::Channels => unreachable!("no channel is configured"),
        };
        flight.done = Some(receipt);
        self.flights.push(flight);
        true
    }

    /// Fails a call before its effect, after its effect, or with an unknown outcome.
    fn fail(&mut self, flight: RunningEffect) -> bool {
        let (claimed, known) = (&flight.claimed, self.known(&flight.claimed));
        let first = claimed.attempts == 0;
        let harmless = matches!(claimed.effect, Effect::Forge(ForgeEffect::React { .. } | ForgeEffect::Inspect { .. }));
        let kind = self.rng.below(5);
        self.note(|| format!("{} fails, way {kind}", claimed.key));
        match kind {
            0 => self.put_back(&flight, 1_000, false),
            1 if claimed.lane == EffectQueue::Forge && first => {
                let at = self.world.now + self.rng.below(9_000) as i64;
                self.late.push((at, claimed.clone(), known));
                self.put_back(&flight, AMBIGUITY_MS, true);
            }
            2 if harmless || (!self.script.staged && claimed.effect.ticket().is_some()) => self.refuse(flight),
            3 => self.put_back(&flight, AMBIGUITY_MS, true),
            _ => {
                match claimed.lane {
                    EffectQueue::Forge => drop(self.world.talk(claimed, &known, !first)),
                    EffectQueue::Work => drop(self.world.work(claimed, &known)),
                    EffectQueue::Channels => unreachable!("no channel is configured"),
                }
                self.put_back(&flight, AMBIGUITY_MS, true);
            }
        }
        true
    }

    fn refuse(&mut self, flight: RunningEffect) {
        let RunningEffect { claimed, owner, .. } = flight;
        if let Some(ticket) = claimed.effect.ticket() {
            let input = LoopInput::Outcome {
                ticket,
                outcome: WorkOutcome::WorkFailed { reason: "refused".into(), advice: "mend it".into() },
            };
            let receipt = SimReceipt { input: Some(input), ..SimReceipt::default() };
            return self.record(claimed, &owner, receipt).expect("the lease is ours");
        }
        let now = self.now();
        self.write(move |c| outbox::finish(c, &claimed, &owner, EffectOutcome::Rejected, "no", now));
    }

    fn put_back(&mut self, flight: &RunningEffect, wait: i64, began: bool) {
        self.stirred = [true; 4];
        let (claimed, owner, at) = (flight.claimed.clone(), flight.owner.clone(), self.now().plus_ms(wait));
        self.write(move |c| outbox::reschedule(c, &claimed, &owner, at, began, "put off"));
    }

    /// Executes a call whose caller gave up, without a lookup.
    fn arrive(&mut self) -> bool {
        let Some(at) = self.late.iter().position(|(at, ..)| *at <= self.world.now) else { return false };
        let (_, claimed, known) = self.late.swap_remove(at);
        self.note(|| format!("a late call arrives: {}", claimed.key));
        drop(self.world.talk(&claimed, &known, false));
        true
    }

    fn record(&mut self, claimed: ClaimedEffect, owner: &str, receipt: SimReceipt) -> StoreResult<()> {
        self.stirred = [true; 4];
        let (owner, now, origin) = (owner.to_owned(), self.now(), format!("effect/{}/{}", claimed.id, claimed.fence));
        let SimReceipt { input, posted, number, used, stopped } = receipt;
        self.try_write(move |c| {
            let ended = if stopped { EffectOutcome::Cancelled } else { EffectOutcome::Done };
            outbox::finish(c, &claimed, &owner, ended, "", now)?;
            let id = claimed.loop_id.as_ref().expect("a loop");
            if let Some((key, what)) = &posted {
                forge_posts::put(c, &claimed.subject, key, what, &claimed.place.key(), now)?;
            }
            if let Some((number, role)) = number {
                loops::add_number(c, &claimed.place.repo, number, id, role)?;
            }
            if let Some(input) = &input {
                loops::enqueue_input(c, id, &origin, input, now)?;
            }
            Ok(())
        })?;
        self.world.used.extend(used);
        Ok(())
    }

    /// Asserts the invariants.
    fn check_rest(&self) {
        let (inputs, set_aside_inputs) = self.write(|c| {
            let set_aside_inputs: i64 = c.query_row("SELECT count(*) FROM inputs WHERE done = 2", [], |r| r.get(0))?;
            Ok((loops::has_inputs(c)?, set_aside_inputs))
        });
        assert!(!inputs && set_aside_inputs == 0, "inputs were not processed, or were set aside: {set_aside_inputs}");
        let all = self.write(|c| loops::list(c, false, 1_000));
        crate::invariants::at_rest(&self.world, &all);
    }

    /// Asserts that each loop's log reproduces its row.
    fn check_logs(&self) {
        for current in self.write(|c| loops::list(c, false, 1_000)) {
            let id = current.id.clone();
            let log = self.write(move |c| loops::history(c, &id));
            let rebuilt = lifecycle::replay(log.into_iter().map(|line| (line.at, line.input)));
            assert_eq!(rebuilt.as_ref(), Some(&current), "the log does not give the row");
        }
    }
}

/// Returns the id of an issue's nth loop.
fn loop_id(issue: u64, round: u32) -> LoopId {
    LoopId::new(format!("r-{issue}-{round}"))
}
