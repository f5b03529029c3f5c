//! Three hosts with their own addresses, processes, data folders and clocks execute loops of three agents, while hosts,
//! networks, clocks and the database fail at random times. See docs/research/faults.md#d13.

mod faults;
mod machines;
mod servers;
mod watch;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fake_forge::{Dialect, Op, OpKind, RequestRecord};
use ralph_bot::clock::Clock;
use ralph_bot::domain::loops::{Loop, LoopState};
use ralph_bot::domain::model::ids::{LoopId, Money, Timestamp};
use ralph_bot::store::{calls, loops};
use tokio::task::block_in_place;

use self::faults::Chaos;
use self::machines::{HOSTS, HostMachine, HostNetwork};
use self::servers::Servers;
use self::watch::WaitObserver;
use crate::harness::invariants::assert_invariants;
use crate::harness::parts::setting;
use crate::harness::service::Service;
use crate::harness::{Setup, UpdateMode, on_one_forge};

on_one_forge!(host_faults_neither_repeat_nor_lose_effects);

/// Number of loops that run at the same time in a long run, and in a short one.
const LOOPS: (usize, usize) = (40, 10);
/// Number of faults in a long run.
const LONG: usize = 100;
/// Number of iterations of a loop.
const ITERATIONS: u32 = 3;
/// Lease of the services: shorter than the usual one, as the times of the faults are.
const LEASE: Duration = Duration::from_secs(12);
/// Maximum time until another host continues the work of a lost one, after its lease has expired.
const TAKEOVER: Duration = Duration::from_secs(10);
/// Maximum time from the end of the last fault to the review of all loops.
const END: Duration = Duration::from_secs(420);
/// Agents, which take turns: name, seconds of a run, and its cost in dollars.
const AGENTS: [(&str, f64, f64); 3] = [("one", 0.5, 0.01), ("two", 1.0, 0.02), ("three", 1.5, 0.05)];

/// Service on several hosts.
struct ChaosStory {
    service: Service,
    watch: WaitObserver,
    folder: PathBuf,
    started: Instant,
}

impl ChaosStory {
    /// Creates a world whose forge and database have addresses in the network.
    async fn new(dialect: Dialect, network: &HostNetwork, servers: &Servers) -> Self {
        let mut setup = Setup::new(dialect);
        setup.forge_address = network.address(1);
        setup.updates = UpdateMode::Poll;
        setup.config = format!(
            "database: {}\nrotation: {{ mode: round_robin }}\nrunner: {{ slots: 40 }}\nintelligence: facts\n\
             limits: {{ loops: 1000, loops_per_repository: 1000, iterations: 50, timeout: 24h, cost_usd: 100, \
             cost_usd_per_day: 100000, comments_per_hour: 1000, comments_per_day: 1000 }}\n",
            servers.address()
        );
        let service = Service::new(setup, false).await;
        let folder = service.world.folder.path().to_owned();
        service.world.write_agent(&agent(&folder));
        let file = folder.join("ralph-control.yaml");
        let text = std::fs::read_to_string(&file).expect("the operator's file");
        let (head, rest) = text.split_once("backends:\n").expect("backends");
        let (_, tail) = rest.split_once('\n').expect("the one backend");
        let backend = |(name, seconds, cost): &(&str, f64, f64)| {
            let script = folder.join("agent.sh");
            format!(
                "  {name}: {{ type: external, output: claude, roles: [agent], command: [\"/bin/sh\", \"{}\", {name}, \"{seconds}\", \"{cost}\"] }}\n",
                script.display()
            )
        };
        let backends: String = AGENTS.iter().map(backend).collect();
        let text = format!("{head}backends:\n{backends}{tail}");
        let text = text.replace("updates: poll", "updates: poll, poll: 10s");
        // A lost call is looked up after 20 intervals, when the kernel no longer sends it.
        let text = text.replace("poll_ms: 50", "poll_ms: 300");
        assert!(text.contains("poll_ms: 300"), "{text}");
        std::fs::write(&file, text).expect("written");
        Self { service, watch: WaitObserver::new(), folder, started: Instant::now() }
    }

    /// Writes a line to the log of the faults.
    fn note(&self, what: &str) {
        use std::io::Write as _;
        let file = std::fs::File::options().create(true).append(true).open(self.folder.join("faults.log"));
        let line = format!("{:.1} s, {}: {what}\n", self.started.elapsed().as_secs_f64(), Clock::System.now().0);
        file.expect("opened").write_all(line.as_bytes()).expect("written");
    }

    /// Copies the logs of faults, hosts and forge to a folder that remains, and prints its path.
    fn keep_logs(&self) {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("host_chaos");
        std::fs::create_dir_all(&kept).expect("a folder");
        let logs = std::fs::read_dir(&self.folder).expect("a folder").map(|entry| entry.expect("an entry").path());
        for log in logs.filter(|path| path.extension().is_some_and(|extension| extension == "log")) {
            std::fs::copy(&log, kept.join(log.file_name().expect("a name"))).expect("copied");
        }
        let line = |op: Op| {
            let on = op.number.map_or(String::new(), |number| format!(" #{number}"));
            format!("{}{on} {} {:?}: {:?}\n", op.at.0, op.actor.login, op.kind, op.detail)
        };
        let forge: String = self.service.world.forge.ops().into_iter().map(line).collect();
        std::fs::write(kept.join("forge.log"), forge).expect("written");
        let line = |one: RequestRecord| format!("{} {} {} {:?}\n", one.at.0, one.method, one.path, one.status);
        let requests: String = self.service.world.forge.requests().into_iter().map(line).collect();
        std::fs::write(kept.join("requests.log"), requests).expect("written");
        println!("logs: {}", kept.display());
    }

    /// Opens an issue and sets the label.
    async fn open_issue(&self, number: usize) {
        let world = &self.service.world;
        let title = format!("Answer {number} is wrong");
        let opened = world.forge.open_issue(&world.maintainer, world.repo, &title, "It should be 42.", &[]).await;
        let issue = opened.expect("an issue");
        world.forge.label(&world.maintainer, world.repo, issue, "ralph:run").await.expect("labeled");
    }

    /// Grants the accounts their requests of a new hour, because a long run needs more than 15,000.
    fn renew_quotas(&self) {
        self.service.world.forge.with(|state| state.quota.clear());
    }

    /// Returns all loops; `None` while the database does not answer.
    async fn loops(&self) -> Option<Vec<Loop>> {
        self.service.store().await?.read(|c| loops::list(c, false, 1000)).await.ok()
    }

    /// Opens issues so that `count` loops are open; never returns.
    async fn open_issues(&self, count: usize, opened: &std::sync::atomic::AtomicUsize) {
        use std::sync::atomic::Ordering::SeqCst;
        loop {
            self.renew_quotas();
            let ended = self.loops().await.map(|all| all.iter().filter(|one| one.state == LoopState::Review).count());
            while opened.load(SeqCst) < count + ended.unwrap_or_default() {
                let number = opened.load(SeqCst);
                self.open_issue(number).await;
                opened.store(number + 1, SeqCst);
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Waits until all loops are in review and nothing is pending. Resumes loops that failed because three faults interrupted the
    /// same iteration; returns the number of these failures as well.
    async fn finished(&self, opened: usize) -> EndedLoops {
        let world = &self.service.world;
        let begun = Instant::now();
        let mut failed: HashSet<String> = HashSet::new();
        let mut failures = Vec::new();
        loop {
            self.renew_quotas();
            let all = self.loops().await.unwrap_or_default();
            let open: Vec<&Loop> = all.iter().filter(|one| one.state != LoopState::Review).collect();
            if all.len() == opened && open.is_empty() && self.service.is_idle().await {
                return EndedLoops { loops: all, failures };
            }
            let is_failed = |id: &String| open.iter().any(|l| l.id.as_str() == id && l.state == LoopState::Failed);
            failed.retain(is_failed);
            for one in open.iter().filter(|one| one.state == LoopState::Failed) {
                assert!(one.why.contains("was interrupted"), "{}: {}", one.id, one.why);
                if failed.insert(one.id.as_str().to_owned()) {
                    failures.push((one.id.clone(), one.spent.iterations));
                    let comment = world.forge.comment(&world.maintainer, world.repo, one.issue.issue, "/ralph resume");
                    comment.await.expect("commented");
                }
            }
            let late: Vec<_> = open.iter().map(|l| (l.id.as_str(), l.state, l.run.step, &l.why)).collect();
            assert!(begun.elapsed() < END, "{} of {opened} loops; not in review: {late:#?}", all.len());
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Runs of agents in the order of their starts.
    fn runs(&self) -> Vec<AgentStart> {
        let text = std::fs::read_to_string(self.folder.join("runs")).expect("runs");
        text.lines().map(|line| AgentStart::parse(line).unwrap_or_else(|| panic!("{line}"))).collect()
    }

    /// Amount that the agents of each loop have spent, by the loop's id.
    fn spent(&self) -> HashMap<String, Money> {
        let text = std::fs::read_to_string(self.folder.join("spent")).expect("costs");
        text.lines().fold(HashMap::new(), |mut spent, line| {
            let (id, cost) = line.split_once(' ').expect("a loop and a cost");
            let sum = spent.entry(id.to_owned()).or_insert(Money(0));
            *sum = sum.plus(Money::from_usd(cost.parse().expect("a cost")));
            spent
        })
    }
}

impl Drop for ChaosStory {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.keep_logs();
        }
    }
}

/// Loops at the end.
struct EndedLoops {
    loops: Vec<Loop>,
    /// Loops that failed and were resumed, each time with the iteration that faults had interrupted too often.
    failures: Vec<(LoopId, u32)>,
}

impl EndedLoops {
    /// Iterations whose changes are on a loop's branch: all except the failed ones, up to the first one with the answer.
    fn kept_iterations(&self, of: &Loop) -> impl Iterator<Item = u32> {
        let kept = |iteration: u32| !self.failures.iter().any(|(id, failed)| *id == of.id && *failed == iteration);
        let last = (ITERATIONS..).find(|iteration| kept(*iteration)).expect("failures are finite");
        (1..=last).filter(move |iteration| kept(*iteration))
    }
}

/// Script of all agents, whose arguments are a name, seconds and a cost. It writes each run and each cost into files outside of
/// the data folders.
fn agent(folder: &Path) -> String {
    format!(
        "loop=${{PWD%/*}}; loop=${{loop##*/}}\nexec 3>>{at}/runs 4>>{at}/spent\n\
         echo \"$loop $RALPH_ITERATION $(date +%s%3N) $PWD\" >&3\n\
         cat >/dev/null\nsleep \"$2\"\necho \"$loop $3\" >&4\n\
         echo \"$RALPH_ITERATION\" >>notes.txt\nif [ \"$RALPH_ITERATION\" -ge {ITERATIONS} ]; then echo 42 >answer.txt; fi\n\
         echo '{{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"one\",\"model\":\"claude-x\"}}'\n\
         echo '{{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"session_id\":\"one\",\"result\":\"Done.\",\
         \"num_turns\":1,\"total_cost_usd\":'$3',\"usage\":{{\"input_tokens\":10,\"output_tokens\":5}}}}'\n",
        at = folder.display()
    )
}

/// One run of an agent.
#[derive(Debug, Clone)]
struct AgentStart {
    loop_id: String,
    iteration: u32,
    started: Timestamp,
    host: usize,
}

impl AgentStart {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(' ');
        let (loop_id, iteration, started) = (fields.next()?, fields.next()?, fields.next()?);
        let tree = fields.next()?;
        let host = (0..HOSTS).find(|host| tree.contains(&format!("/host-{host}/")))?;
        let started = Timestamp(started.parse().ok()?);
        Some(Self { loop_id: loop_id.to_owned(), iteration: iteration.parse().ok()?, started, host })
    }
}

async fn host_faults_neither_repeat_nor_lose_effects(dialect: Dialect) {
    let Some(count) = setting("RALPH_TEST_HOST_FAULTS").map(|count| count.parse::<usize>().expect("a number")) else {
        println!("not run: RALPH_TEST_HOST_FAULTS is not set");
        return;
    };
    let seed = setting("RALPH_TEST_HOST_SEED").map(|seed| seed.parse().expect("a number"));
    let seed = seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    println!("RALPH_TEST_HOST_FAULTS={count} RALPH_TEST_HOST_SEED={seed}");
    let parts = tempfile::tempdir().expect("a folder");
    let Some(network) = HostNetwork::new(parts.path()).await else { return };
    let Some(servers) = block_in_place(|| Servers::start([network.address(2), network.address(3)])) else { return };
    let story = ChaosStory::new(dialect, &network, &servers).await;
    let programs = ["this", "next"].map(|version| {
        let program = parts.path().join(format!("ralph-bot-{version}"));
        std::fs::copy(env!("CARGO_BIN_EXE_ralph-bot"), &program).expect("copied");
        program
    });
    let mut machines = Vec::new();
    for index in 0..HOSTS {
        machines.push(HostMachine::new(&network, index, &story.folder, programs.clone()).await);
    }
    let mut chaos = Chaos::new(&story, machines, servers, seed).await;
    let service = &story.service;
    service.until("the database", async || service.store().await.is_some()).await;
    let observer = tokio::spawn(story.watch.clone().observe(service.store().await.expect("a database")));
    let opened = std::sync::atomic::AtomicUsize::new(0);
    let at_once = if count >= LONG { LOOPS.0 } else { LOOPS.1 };
    tokio::select! {
        () = story.open_issues(at_once, &opened) => {}
        () = chaos.run(&story, count) => {}
    }
    let done = tokio::select! {
        done = story.finished(opened.into_inner()) => done,
        () = chaos.keep_running(&story) => unreachable!("it never returns"),
    };
    observer.abort();
    for machine in &mut chaos.machines {
        machine.stop().await;
    }
    report(&story, &chaos, &done);
    assert_outcome(&story, &chaos, &done).await;
    let is_escalation = |op: &Op| op.actor.id == service.world.bot.id && op.kind == OpKind::IssueOpened;
    let escalations = service.world.forge.ops().iter().filter(|op| is_escalation(op)).count();
    assert_eq!(escalations, done.failures.len(), "each failure has one escalation issue");
}

/// Prints the figures of a run.
fn report(story: &ChaosStory, chaos: &Chaos, done: &EndedLoops) {
    let waits = story.watch.ended();
    let longest = |of: fn(&watch::Wait) -> Duration| waits.iter().map(of).max().unwrap_or_default().as_secs_f64();
    let from = waits.iter().max_by_key(|wait| wait.total).map_or("none", |wait| wait.host.as_str());
    let mut totals: Vec<Duration> = waits.iter().map(|wait| wait.total).collect();
    totals.sort();
    let runs = story.runs().len();
    println!(
        "{} faults in {:.0} s: {:?}\n{} loops, {} failures, {runs} runs of agents, {} of them repeated\n\
         {} takeovers: median {:.1} s, longest {:.1} s (from {from}), longest with a working host {:.1} s\n\
         exits: {:?}",
        chaos.faults.len(),
        story.started.elapsed().as_secs_f64(),
        chaos.counts(),
        done.loops.len(),
        done.failures.len(),
        runs - done.loops.len() * ITERATIONS as usize,
        totals.len(),
        totals.get(totals.len() / 2).copied().unwrap_or_default().as_secs_f64(),
        longest(|wait| wait.total),
        longest(|wait| wait.avoidable),
        chaos.exits,
    );
}

async fn assert_outcome(story: &ChaosStory, chaos: &Chaos, done: &EndedLoops) {
    let service = &story.service;
    for host in &chaos.machines {
        let log = std::fs::read_to_string(story.folder.join(format!("{}.log", host.name))).expect("a log");
        assert!(!log.contains("panicked"), "{} panicked: {log}", host.name);
    }
    assert_effects(story);
    for one in &done.loops {
        let text = service.world.file(&one.branch.name, "notes.txt").await;
        let expected: String = done.kept_iterations(one).map(|iteration| format!("{iteration}\n")).collect();
        assert_eq!(text.as_deref(), Some(expected.as_str()), "{}", one.id);
        assert_eq!(service.world.file(&one.branch.name, "answer.txt").await.as_deref(), Some("42\n"), "{}", one.id);
    }
    assert_costs(story, &done.loops).await;
    assert_lost_runs(story, chaos);
    let late: Vec<_> = story.watch.ended().into_iter().filter(|wait| wait.avoidable > TAKEOVER).collect();
    assert!(late.is_empty(), "work waited although another host worked: {late:#?}");
    let store = service.store().await.expect("a database");
    assert_invariants(&service.world, &store, &service.instance().await, true).await;
}

/// Asserts that the bot changed nothing on the forge twice: comments, pull requests, branches, statuses.
fn assert_effects(story: &ChaosStory) {
    let world = &story.service.world;
    let marker = |op: &Op| op.detail.lines().rev().find(|line| line.starts_with("<!-- ralph:1 ")).map(str::to_owned);
    let kinds = [OpKind::CommentCreated, OpKind::PullOpened, OpKind::BranchPushed];
    let mut known = HashSet::new();
    for op in world.forge.ops().into_iter().filter(|op| op.actor.id == world.bot.id && kinds.contains(&op.kind)) {
        let what = marker(&op).unwrap_or_else(|| op.detail.clone());
        let number = op.number.filter(|_| op.kind == OpKind::CommentCreated);
        assert!(known.insert((op.kind, number, what)), "it happened twice: {op:#?}");
    }
    assert_eq!(world.escalations(), [], "a resumed loop has no open escalation");
    world.forge.with(|state| {
        let repo = state.repo(world.repo).expect("the repository");
        let mut last = BTreeMap::new();
        for status in &repo.statuses {
            let shown = (&status.state, &status.description, &status.target_url);
            let before = last.insert((status.sha.as_str(), &status.context), shown);
            assert_ne!(before, Some(shown), "the same status was set twice: {status:#?}");
        }
    });
}

/// Asserts that each loop's recorded cost is the sum of its calls, and at least the amount that its agents spent.
async fn assert_costs(story: &ChaosStory, done: &[Loop]) {
    let spent = story.spent();
    let store = story.service.store().await.expect("a database");
    for one in done {
        let id = one.id.clone();
        let booked = store.read(move |c| calls::of_loop(c, &id)).await.expect("calls");
        assert!(booked.iter().all(|call| call.outcome.is_some()), "a call holds money for ever: {booked:#?}");
        let sum = booked.iter().fold(Money(0), |sum, call| sum.plus(call.cost));
        assert_eq!(sum, one.spent.cost, "{}: {booked:#?}", one.id);
        let real = spent[one.id.as_str()];
        assert!(sum >= real, "{}: {sum:?} recorded, {real:?} spent: {booked:#?}", one.id);
    }
}

/// Asserts that no iteration was repeated after the next one had started, and that each repeated run has a different fault that
/// hit its host or the database.
fn assert_lost_runs(story: &ChaosStory, chaos: &Chaos) {
    let mut by_loop: BTreeMap<String, Vec<AgentStart>> = BTreeMap::new();
    for run in story.runs() {
        by_loop.entry(run.loop_id.clone()).or_default().push(run);
    }
    for (id, runs) in by_loop {
        let mut free: Vec<_> = chaos.faults.iter().collect();
        for pair in runs.windows(2) {
            let [run, next] = pair else { unreachable!("windows of two") };
            assert!(run.iteration <= next.iteration, "{id}: an earlier iteration was repeated: {runs:#?}");
            if run.iteration == next.iteration {
                let cause = free.iter().position(|fault| fault.explains(run.host, run.started, next.started));
                let cause =
                    cause.unwrap_or_else(|| panic!("{id}: no fault explains the repetition of {run:?}: {next:?}"));
                free.remove(cause);
            }
        }
    }
}
