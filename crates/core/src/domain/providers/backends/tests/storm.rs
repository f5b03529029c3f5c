//! Simulation of some hours: fifty loops use three backends with many limits, and are compared with loops that know the real
//! state.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::*;

const LOOPS: usize = 50;
/// Iterations that each loop needs.
const ITERATIONS: u32 = 30;
/// Time from the start of a call until the backend refuses it or starts to answer, in milliseconds.
const REFUSES_MS: i64 = 3_000;
const ANSWERS_MS: i64 = 8_000;

/// Actual behavior of a provider.
struct Provider {
    /// Maximum number of calls within a minute; a refusal states the end of the minute.
    rate: usize,
    /// Maximum number of calls within five hours; a refusal states their end.
    quota: usize,
    /// Periods of overload (without a known end) and of outage (calls fail after a while).
    overloads: Vec<(Timestamp, Timestamp)>,
    outages: Vec<(Timestamp, Timestamp)>,
    taken: Vec<Timestamp>,
}

enum ProviderReply {
    Serves,
    Refuses(LimitKind, Option<Timestamp>),
    Breaks,
}

impl Provider {
    fn within(&self, from: Timestamp) -> usize {
        self.taken.len() - self.taken.partition_point(|at| *at < from)
    }

    fn answer(&self, now: Timestamp) -> ProviderReply {
        let in_one = |of: &[(Timestamp, Timestamp)]| of.iter().any(|(from, to)| (*from..*to).contains(&now));
        let period = |length: i64| Timestamp(START.0 + now.since(START) / length * length);
        let (minute, five) = (period(MINUTE), period(5 * HOUR));
        if in_one(&self.outages) {
            ProviderReply::Breaks
        } else if in_one(&self.overloads) {
            ProviderReply::Refuses(LimitKind::Overload, None)
        } else if self.within(five) >= self.quota {
            ProviderReply::Refuses(LimitKind::Quota, Some(five.plus_ms(5 * HOUR)))
        } else if self.within(minute) >= self.rate {
            ProviderReply::Refuses(LimitKind::Rate, Some(minute.plus_ms(MINUTE)))
        } else {
            ProviderReply::Serves
        }
    }
}

fn providers(seed: u64, weather: Weather) -> BTreeMap<String, Provider> {
    let mut rng = luck(seed, "storm");
    let mut spells = |count: usize, longest: i64| -> Vec<(Timestamp, Timestamp)> {
        let spell = |rng: &mut fastrand::Rng| {
            let from = START.plus_ms(rng.i64(0..12 * HOUR));
            (from, from.plus_ms(rng.i64(MINUTE..longest)))
        };
        (0..count).map(|_| spell(&mut rng)).collect()
    };
    [("a", 12, weather.quotas[0]), ("b", 10, weather.quotas[1]), ("c", 6, weather.quotas[2])]
        .map(|(name, rate, quota)| {
            let (overloads, outages) = (spells(weather.overloads, 25 * MINUTE), spells(weather.outages, 40 * MINUTE));
            (name.to_owned(), Provider { rate, quota, overloads, outages, taken: Vec::new() })
        })
        .into()
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum StormEvent {
    Ask,
    Answered(String),
    Served(String),
    Refused(String, u8, Option<Timestamp>),
    Broke(String),
}

#[derive(Debug, Default)]
struct StormFigures {
    finished: usize,
    calls: u32,
    /// Number of calls that were refused or failed.
    wasted: u32,
    /// Number of calls that started while the state had the backend in a cooldown.
    into_parks: u32,
    parks: u32,
    /// Total minutes between a request for a call and the start of the call that was served.
    waited: f64,
    /// Total number of requests for a backend.
    asked: u32,
    /// Minutes until the last loop ended.
    end: f64,
    /// Number of changes of backend: of all loops, and the maximum of one loop.
    switches: u32,
    most_switches: u32,
    /// Minutes for which `a` was available but not called: the maximum, and the average over the times at which it became
    /// available.
    idle: f64,
    idle_mean: f64,
}

struct Storm {
    scene: BackendsFixture,
    providers: BTreeMap<String, Provider>,
    queue: BinaryHeap<Reverse<(Timestamp, usize, StormEvent)>>,
    left: Vec<u32>,
    on: Vec<Option<String>>,
    switches: Vec<u32>,
    waiting: Vec<Option<Timestamp>>,
    knows_truth: bool,
    rng: fastrand::Rng,
    figures: StormFigures,
    /// Time since which `a` has been available without being called.
    idle_since: Option<Timestamp>,
    /// Lengths of the periods in which `a` was available without being called, in minutes.
    idles: Vec<f64>,
}

impl Storm {
    fn run(seed: u64, weather: Weather, mode: RotationMode, knows_truth: bool) -> StormFigures {
        let mut settings = settings();
        settings.rotation.mode = mode;
        let mut storm = Self {
            scene: BackendsFixture::new(settings),
            providers: providers(seed, weather),
            queue: BinaryHeap::new(),
            left: vec![ITERATIONS; LOOPS],
            on: vec![None; LOOPS],
            switches: vec![0; LOOPS],
            waiting: vec![None; LOOPS],
            knows_truth,
            rng: luck(seed, "luck"),
            figures: StormFigures::default(),
            idle_since: None,
            idles: Vec::new(),
        };
        for who in 0..LOOPS {
            let now = START.plus_ms(storm.rng.i64(0..10 * MINUTE));
            storm.queue.push(Reverse((now, who, StormEvent::Ask)));
        }
        while let Some(Reverse((now, who, event))) = storm.queue.pop() {
            assert!(now < at(7 * 24 * 60), "it never ends: {:?}", storm.figures);
            storm.watch(now);
            match event {
                StormEvent::Ask => storm.ask(who, now),
                ended => storm.hear(who, ended, now),
            }
        }
        storm.figures.most_switches = storm.switches.iter().copied().max().unwrap_or(0);
        let back: Vec<f64> = storm.idles.iter().copied().filter(|idle| *idle > 0.5).collect();
        storm.figures.idle = back.iter().copied().fold(0.0, f64::max);
        storm.figures.idle_mean = back.iter().sum::<f64>() / back.len().max(1) as f64;
        storm.figures.switches = storm.switches.iter().sum();
        storm.figures
    }

    /// Records how long `a` is available without being called.
    fn watch(&mut self, now: Timestamp) {
        let serves = matches!(self.providers["a"].answer(now), ProviderReply::Serves);
        self.idle_since = if serves { self.idle_since.or(Some(now)) } else { None };
    }

    fn ask(&mut self, who: usize, now: Timestamp) {
        if self.left[who] == 0 {
            self.figures.finished += 1;
            self.figures.end = self.figures.end.max(now.since(START) as f64 / MINUTE as f64);
            return;
        }
        self.figures.asked += 1;
        self.waiting[who].get_or_insert(now);
        let choice = if self.knows_truth { self.truth(now) } else { self.choice(who, now) };
        match choice {
            Ok(backend) => self.begin(who, &backend, now),
            Err(until) => {
                assert!(until > now);
                self.queue.push(Reverse((until, who, StormEvent::Ask)));
            }
        }
    }

    fn choice(&mut self, who: usize, now: Timestamp) -> Result<String, Timestamp> {
        if self.rng.u8(..) == 0 {
            // The service starts again.
            let stored = serde_json::to_vec(&self.scene.state).unwrap();
            self.scene.state = serde_json::from_slice(&stored).unwrap();
        }
        let request = request(self.on[who].as_deref());
        match choose(&self.scene.state, &self.scene.settings, &request, self.rng.u64(..), now) {
            BackendChoice::Use { backend, .. } => Ok(backend),
            BackendChoice::Wait { until, .. } => Err(until),
            BackendChoice::Never { reasons } => panic!("{reasons:?}"),
        }
    }

    fn truth(&self, now: Timestamp) -> Result<String, Timestamp> {
        let mut until = now.plus_ms(5 * HOUR);
        for (name, provider) in &self.providers {
            match provider.answer(now) {
                ProviderReply::Serves => return Ok(name.clone()),
                ProviderReply::Refuses(_, told) => until = until.min(told.unwrap_or(now.plus_ms(20_000))),
                ProviderReply::Breaks => until = until.min(now.plus_ms(20_000)),
            }
        }
        Err(until)
    }

    fn begin(&mut self, who: usize, backend: &str, now: Timestamp) {
        let key = who.to_string();
        self.figures.calls += 1;
        if backend == "a" {
            let idle = self.idle_since.take().map_or(0, |since| now.since(since)) as f64 / MINUTE as f64;
            self.idles.push(idle);
        }
        if self.on[who].as_deref().is_some_and(|on| on != backend) {
            self.switches[who] += 1;
        }
        self.on[who] = Some(backend.to_owned());
        if !self.knows_truth {
            self.scene.start(&key, backend, now);
            self.figures.into_parks += u32::from(!self.scene.state.backends[backend].is_active());
        }
        let provider = self.providers.get_mut(backend).unwrap();
        let name = backend.to_owned();
        let mut soon = |after: i64, event: StormEvent| self.queue.push(Reverse((now.plus_ms(after), who, event)));
        match provider.answer(now) {
            ProviderReply::Serves => {
                provider.taken.push(now);
                let waited = self.waiting[who].take().map_or(0, |since| now.since(since));
                self.figures.waited += waited as f64 / MINUTE as f64;
                soon(ANSWERS_MS, StormEvent::Answered(name.clone()));
                soon(self.rng.i64(2 * MINUTE..9 * MINUTE), StormEvent::Served(name));
            }
            ProviderReply::Refuses(kind, until) => {
                let kind = [LimitKind::Rate, LimitKind::Quota, LimitKind::Overload].iter().position(|k| *k == kind);
                soon(REFUSES_MS, StormEvent::Refused(name, kind.unwrap() as u8, until));
            }
            ProviderReply::Breaks => soon(20_000, StormEvent::Broke(name)),
        }
    }

    fn hear(&mut self, who: usize, event: StormEvent, now: Timestamp) {
        let key = who.to_string();
        let changes = match &event {
            StormEvent::Answered(backend) => {
                if !self.knows_truth {
                    let call = call(&key, backend);
                    self.scene.see(BackendObservation::CallAnswered { call }, now);
                }
                return;
            }
            StormEvent::Served(backend) => {
                self.left[who] -= 1;
                if self.knows_truth { Vec::new() } else { self.scene.succeed(&key, backend, now) }
            }
            StormEvent::Refused(backend, kind, until) => {
                self.figures.wasted += 1;
                let kind = [LimitKind::Rate, LimitKind::Quota, LimitKind::Overload][usize::from(*kind)];
                self.scene.hit(&key, backend, limit(kind, *until), now)
            }
            StormEvent::Broke(backend) => {
                self.figures.wasted += 1;
                self.scene.fail(&key, backend, now)
            }
            StormEvent::Ask => Vec::new(),
        };
        let parked = changes.iter().filter(|change| matches!(change, BackendChange::Parked { .. })).count();
        self.figures.parks += u32::try_from(parked).unwrap();
        // The next iteration, or the same one on another backend, starts at once.
        self.queue.push(Reverse((now.plus_ms(200), who, StormEvent::Ask)));
    }
}

/// Severity of the limits.
#[derive(Debug, Clone, Copy)]
struct Weather {
    /// Maximum number of calls of `a`, `b` and `c` within five hours; 1,500 are needed.
    quotas: [usize; 3],
    /// Number of overloads of each provider within twelve hours, up to 25 minutes each; refusals do not state their end.
    overloads: usize,
    /// Number of outages in which calls of a provider fail, up to 40 minutes each.
    outages: usize,
}

/// All quotas are exhausted before the work is done.
const TIGHT: Weather = Weather { quotas: [350, 260, 400], overloads: 6, outages: 2 };
/// The quota of `c` is sufficient.
const AMPLE: Weather = Weather { quotas: [350, 260, 2_000], overloads: 6, outages: 2 };
/// Every refusal states the end of its limit.
const TOLD: Weather = Weather { quotas: [350, 260, 2_000], overloads: 0, outages: 0 };

#[test]
fn fifty_loops_finish_in_a_storm_of_limits() {
    // How many times as long as those who know the truth loops wait at most. With limits of unknown length it can be twice
    // as long: the back-off doubles.
    let storms = [(1, TIGHT, 1.1), (1, AMPLE, 2.5), (2, AMPLE, 2.5), (1, TOLD, 1.5)];
    for (seed, weather, longer) in storms {
        let ours = Storm::run(seed, weather, RotationMode::None, false);
        let best = Storm::run(seed, weather, RotationMode::None, true);
        println!("{seed} {weather:?}: ours {ours:?}\n  who knows the truth: {best:?}");
        assert_eq!((ours.finished, best.finished), (LOOPS, LOOPS));
        holds(&ours);
        assert!(ours.waited <= best.waited * longer && ours.end <= best.end * 1.1, "{ours:?}\n{best:?}");
        assert!(ours.idle <= 30.0 && ours.idle_mean <= 5.0, "back at the first one soon: {ours:?}");
        assert!(ours.most_switches <= ITERATIONS * 2 / 3, "no ping-pong: {ours:?}");
        assert!(ours.switches <= best.switches * 3, "no ping-pong: {ours:?} {best:?}");
    }
}

#[test]
fn other_rotations_finish_in_a_storm_of_limits() {
    for mode in [RotationMode::RoundRobin, RotationMode::TimeSliced] {
        let ours = Storm::run(3, AMPLE, mode, false);
        println!("{mode:?}: {ours:?}");
        assert_eq!(ours.finished, LOOPS);
        holds(&ours);
    }
}

fn holds(figures: &StormFigures) {
    assert_eq!(figures.into_parks, 0, "no call goes to a backend that is known to be parked");
    assert!(figures.wasted <= figures.parks * 5 / 2, "few calls are lost to a limit: {figures:?}");
    assert!(figures.parks <= 250 && figures.asked <= 25_000, "nobody spins: {figures:?}");
}
