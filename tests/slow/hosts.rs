//! Several hosts on one PostgreSQL: services with separate data folders, which share only the database and the forge.

use std::path::PathBuf;

use fake_forge::{Dialect, FakeFault};
use ralph_bot::domain::loops::{Loop, LoopState, LoopStep};
use ralph_bot::store::test_server::{PostgresServer, settings};
use ralph_bot::store::{Store, hosts, loop_files};
use rustix::process::Signal;
use test_support::free_port;
use tokio::process::Child;

use crate::harness::parts::{command, output};
use crate::harness::service::{Service, signal, stop};
use crate::harness::{Setup, UpdateMode, on_one_forge};

on_one_forge!(
    another_host_resumes_the_session_of_a_killed_host,
    commit_that_was_not_pushed_arrives_on_another_host,
    loop_names_the_lost_host_with_its_only_commit,
    files_of_a_run_are_committed_on_the_host_that_has_them,
    drained_host_finishes_its_iteration_and_another_one_continues,
    work_waits_for_a_host_with_its_labels,
);

/// Key of the agent's model, which only the configuration of a host has.
const MODEL_KEY: &str = "sk-ant-key-of-the-hosts-story-0123456789";

/// Service whose processes use a server of PostgreSQL, and its log of runs.
pub struct HostStory {
    pub service: Service,
    pub server: PostgresServer,
    runs: PathBuf,
}

impl HostStory {
    /// Creates a world with an agent of the type `claude`, which `in_iteration` extends; `None` without PostgreSQL. Each run
    /// writes a line with its iteration, whether it resumes a session, and the number of turns in the session's file.
    pub async fn new(dialect: Dialect, in_iteration: &str) -> Option<Self> {
        let server = PostgresServer::start()?;
        let mut setup = Setup::new(dialect);
        setup.updates = UpdateMode::Poll;
        setup.env.push(("ANTHROPIC_API_KEY", MODEL_KEY.to_owned()));
        setup.config = format!(
            "database: {}\npriority: {{ agent: [claude] }}\nlimits: {{ comments_per_hour: 1000, comments_per_day: 1000 }}\n",
            server.address()
        );
        let service = Service::new(setup, false).await;
        let folder = service.world.folder.path();
        let runs = folder.join("runs");
        let agent = format!(
            "runs={runs}\nsession=$HOME/.claude/projects/tree/one.jsonl\n\
             case \" $* \" in *' --resume one '*) resumes=yes;; *) resumes=no;; esac\n\
             turns=$(cat \"$session\" 2>/dev/null | wc -l)\n\
             echo \"$RALPH_ITERATION $resumes $turns\" >>\"$runs\"\n\
             {in_iteration}\n\
             mkdir -p \"${{session%/*}}\"; echo turn >>\"$session\"\n\
             echo \"$RALPH_ITERATION\" >>notes.txt\n\
             if [ \"$RALPH_ITERATION\" -ge 2 ]; then echo 42 >answer.txt; fi\n\
             echo '{{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"one\",\"model\":\"claude-x\"}}'\n\
             echo '{{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"session_id\":\"one\",\"result\":\"Done.\",\
             \"num_turns\":1,\"total_cost_usd\":0.01,\"usage\":{{\"input_tokens\":10,\"output_tokens\":5}}}}'\n",
            runs = runs.display()
        );
        service.world.write_agent(&agent);
        let file = folder.join("ralph-control.yaml");
        let backend = format!(
            "backends:\n  claude: {{ command: [\"/bin/sh\", \"{}\"], env: [ANTHROPIC_API_KEY] }}\n",
            folder.join("agent.sh").display()
        );
        let text = std::fs::read_to_string(&file).expect("the operator's file");
        std::fs::write(&file, text.replace("backends:\n", &backend)).expect("written");
        Some(Self { service, server, runs })
    }

    /// Starts a service in all roles with its own data folder and further variables.
    pub fn spawn(&self, host: &str, env: Vec<(&'static str, String)>) -> Child {
        self.spawn_in("all", host, env)
    }

    /// Starts a process in a role, which further arguments of `serve` may follow, with its own data folder and further variables.
    pub fn spawn_in(&self, role: &str, host: &str, env: Vec<(&'static str, String)>) -> Child {
        self.service.spawn_in(role, self.environment(host).into_iter().chain(env).collect())
    }

    /// Returns the variables of a process with its own data folder.
    pub fn environment(&self, host: &str) -> [(&'static str, String); 3] {
        let data = self.service.world.folder.path().join(host);
        [
            ("RALPH_DATA_DIR", data.display().to_string()),
            ("RALPH_SERVER__LISTEN", format!("127.0.0.1:{}", free_port())),
            ("RALPH_RUNNER__NAME", host.to_owned()),
        ]
    }

    /// Runs `ralph-bot drain` with these arguments on a host; returns its output.
    pub async fn drain(&self, host: &str, args: &[&str]) -> String {
        let folder = self.service.world.folder.path();
        let mut drain = command(env!("CARGO_BIN_EXE_ralph-bot"));
        drain.arg("--config").arg(folder.join("ralph-control.yaml")).arg("drain").args(args);
        drain.current_dir(folder).env_clear().envs(self.service.world.environment());
        drain.env("RALPH_DATA_DIR", folder.join(host));
        String::from_utf8_lossy(&output(&mut drain).await).into_owned()
    }

    fn store(&self) -> Store {
        Store::attach(settings(&self.server.address())).expect("attached")
    }

    pub fn runs(&self) -> Vec<String> {
        std::fs::read_to_string(&self.runs).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Waits until the newest loop meets a condition.
    pub async fn until(&self, what: &str, holds: impl Fn(&Loop) -> bool) -> Loop {
        self.service.until_loop(what, holds).await
    }

    /// Asserts that the pull request has all iterations and that nothing is left.
    pub async fn finish(&self, done: &Loop, notes: &str) {
        let service = &self.service;
        assert_eq!(
            service.world.file(&done.branch.name, "notes.txt").await.as_deref(),
            Some(notes),
            "{}",
            service.log()
        );
        assert_eq!(service.world.file(&done.branch.name, "answer.txt").await.as_deref(), Some("42\n"));
        assert!(done.pull.opened.is_some());
        for failure in ["panicked", "could not pack", "could not save", "could not unpack"] {
            assert!(!service.has_logged(failure), "{failure}: {}", service.full_log());
        }
    }
}

/// The first host is killed in the second iteration. The second host has an empty data folder.
async fn another_host_resumes_the_session_of_a_killed_host(dialect: Dialect) {
    let wait = "if [ \"$(grep -c '^2' \"$runs\")\" = 1 ]; then sleep 600; fi";
    let Some(hosts) = HostStory::new(dialect, wait).await else { return };
    let service = &hosts.service;
    let mut first = hosts.spawn("first", Vec::new());
    service.until("the database", async || service.store().await.is_some()).await;
    service.world.label().await;
    service.until("the second iteration", async || hosts.runs().iter().any(|run| run.starts_with('2'))).await;
    signal(&first, Signal::KILL);
    first.wait().await.expect("ended");
    let mut second = hosts.spawn("second", Vec::new());
    let done = hosts.until("the review", |l| l.state == LoopState::Review).await;
    assert_eq!(hosts.runs(), ["1 no 0", "2 yes 1", "2 yes 1"], "{}", service.log());
    let attempts: Vec<u32> = done.iterations.iter().map(|iteration| iteration.attempt).collect();
    assert_eq!(attempts, [1, 2]);
    hosts.finish(&done, "1\n2\n").await;
    assert_no_secret(&hosts).await;
    assert!(stop(&mut second).await.success(), "{}", service.log());
}

/// The database contains neither the token of the forge nor the key of the model: each host reads its own configuration.
async fn assert_no_secret(hosts: &HostStory) {
    let token = hosts.service.world.forge.token_for(&hosts.service.world.bot);
    let mut dump = command("pg_dump");
    dump.arg(hosts.server.address()).env("PATH", std::env::var("PATH").unwrap_or_default());
    let dump = String::from_utf8_lossy(&output(&mut dump).await).into_owned();
    assert!(dump.contains("loop_files"), "the dump is complete");
    for secret in [token.as_str(), MODEL_KEY] {
        assert!(!dump.contains(secret), "the database contains a secret");
    }
}

/// Kills the first host when the forge has refused its first push, so that the commit is only in its data folder and in the
/// database; returns the loop. The forge then accepts pushes.
async fn killed_before_push(story: &HostStory) -> Loop {
    let service = &story.service;
    let fault = FakeFault::status(503);
    service.world.forge.faults().next(100_000, "POST", "/git-receive-pack$", fault).expect("a pattern");
    let mut first = story.spawn("first", Vec::new());
    service.until("the database", async || service.store().await.is_some()).await;
    service.world.label().await;
    let stuck = story.until("a commit that is not pushed", |l| l.run.step == LoopStep::Push).await;
    service.until("a refused push", async || service.has_logged("effect failed; the service retries it")).await;
    signal(&first, Signal::KILL);
    first.wait().await.expect("ended");
    assert_eq!(service.world.forge.branch_sha(service.world.repo, &stuck.branch.name).await, None);
    service.world.forge.faults().clear();
    stuck
}

async fn commit_that_was_not_pushed_arrives_on_another_host(dialect: Dialect) {
    let Some(story) = HostStory::new(dialect, "").await else { return };
    let service = &story.service;
    let stuck = killed_before_push(&story).await;
    let commit = stuck.iterations[0].commit.clone().expect("a commit");
    let mut second = story.spawn("second", Vec::new());
    let done = story.until("the review", |l| l.state == LoopState::Review).await;
    assert_eq!(done.iterations[0].commit.as_ref(), Some(&commit), "no iteration was repeated");
    assert_eq!(story.runs(), ["1 no 0", "2 yes 1"], "{}", service.log());
    story.finish(&done, "1\n2\n").await;
    assert!(stop(&mut second).await.success(), "{}", service.log());
}

/// The saved commits are deleted, as if they had been too large. The first host starts again and the loop continues.
async fn loop_names_the_lost_host_with_its_only_commit(dialect: Dialect) {
    let Some(story) = HostStory::new(dialect, "").await else { return };
    let service = &story.service;
    let stuck = killed_before_push(&story).await;
    story.server.run("UPDATE loop_files SET pack = NULL");
    let mut second = story.spawn("second", Vec::new());
    let failed = story.until("the failure", |l| l.state == LoopState::Failed).await;
    let commit = stuck.iterations[0].commit.as_ref().expect("a commit");
    let why = format!(
        "the loop's commit {} is neither on the forge nor in the database, but only on the host first",
        commit.short()
    );
    assert!(failed.why.contains(&why), "{}", failed.why);
    assert!(stop(&mut second).await.success(), "{}", service.log());
    let mut first = story.spawn("first", Vec::new());
    service.world.comment("/ralph resume").await;
    let done = story.until("the review", |l| l.state == LoopState::Review).await;
    assert_eq!(done.iterations[0].commit.as_ref(), Some(commit), "{}", service.log());
    story.finish(&done, "1\n2\n").await;
    assert!(stop(&mut first).await.success(), "{}", service.log());
}

/// The second host repeats the iteration of the first one, and the database twice refuses to name it as the host with the loop's
/// files. The first host, which is back and is preferred for the next step, has an older tree: a commit of it would lack the
/// second iteration.
async fn files_of_a_run_are_committed_on_the_host_that_has_them(dialect: Dialect) {
    let wait = "case \"$RALPH_ITERATION $(grep -c '^2' \"$runs\")\" in\n\
                '2 1') sleep 600;;\n\
                '2 2') while ! [ -e \"${runs%/*}/continue\" ]; do sleep 0.1; done;;\nesac";
    let Some(story) = HostStory::new(dialect, wait).await else { return };
    let service = &story.service;
    let lease = || vec![(failpoint::LEASE_VARIABLE, "6".to_owned())];
    let mut first = story.spawn("first", lease());
    service.until("the database", async || service.store().await.is_some()).await;
    service.world.label().await;
    service.until("the second iteration", async || story.runs().len() == 2).await;
    signal(&first, Signal::KILL);
    first.wait().await.expect("ended");
    story.server.run(
        "CREATE SEQUENCE refusals;
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN IF nextval('refusals') <= 2 THEN RAISE EXCEPTION 'refused'; END IF; RETURN NEW; END $$;
         CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON loop_files FOR EACH ROW EXECUTE FUNCTION refuse()",
    );
    let mut second = story.spawn("second", lease());
    service.until("the refusal", async || service.has_logged("refused")).await;
    let mut first = story.spawn("first", lease());
    let ready = async || {
        let listed = story.store().read(|c| hosts::all(c, ralph_bot::clock::Clock::System.now())).await;
        listed.expect("hosts").iter().filter(|one| one.silent_ms.is_some_and(|ms| ms < 4_000)).count() == 2
    };
    service.until("both hosts", ready).await;
    std::fs::write(service.world.folder.path().join("continue"), "").expect("written");
    let done = story.until("the review", |l| l.state == LoopState::Review).await;
    story.finish(&done, "1\n2\n").await;
    for process in [&mut first, &mut second] {
        assert!(stop(process).await.success(), "{}", service.log());
    }
}

/// `ralph-bot drain` ends once the running iteration is pushed and checked; the next one starts on the other host.
async fn drained_host_finishes_its_iteration_and_another_one_continues(dialect: Dialect) {
    let Some(hosts) = HostStory::new(dialect, "if [ \"$RALPH_ITERATION\" = 1 ]; then sleep 4; fi").await else {
        return;
    };
    let service = &hosts.service;
    let mut first = hosts.spawn("first", Vec::new());
    service.until("the database", async || service.store().await.is_some()).await;
    service.world.label().await;
    service.until("the first iteration", async || !hosts.runs().is_empty()).await;
    let mut second = hosts.spawn("second", Vec::new());
    let told = hosts.drain("first", &[]).await;
    assert!(told.starts_with("first accepts no new work\n") && told.ends_with("first has no work\n"), "{told}");
    assert_eq!(hosts.runs()[0], "1 no 0");
    let done = hosts.until("the review", |l| l.state == LoopState::Review).await;
    assert_eq!(hosts.runs(), ["1 no 0", "2 yes 1"], "{}", service.log());
    let store = hosts.store();
    let id = done.id.clone();
    let place = store.read(move |c| hosts::name_of(c, &loop_files::host(c, &id)?.unwrap_or_default())).await;
    assert_eq!(place.expect("read"), "second");
    let listed = store.read(|c| hosts::all(c, ralph_bot::clock::Clock::System.now())).await.expect("hosts");
    let states: Vec<_> = listed.iter().map(|one| (one.host.name.as_str(), one.is_draining)).collect();
    assert_eq!(states, [("first", true), ("second", false)]);
    hosts.finish(&done, "1\n2\n").await;
    for process in [&mut first, &mut second] {
        assert!(stop(process).await.success(), "{}", service.log());
    }
}

/// The repository's file requires a label that only the second host has. The first one prepares the tree and executes no check.
async fn work_waits_for_a_host_with_its_labels(dialect: Dialect) {
    let Some(hosts) = HostStory::new(dialect, "").await else { return };
    let service = &hosts.service;
    let world = &service.world;
    let places = world.folder.path().join("places");
    let run = format!("pwd >>{}; sh check.sh", places.display());
    let text = format!("checks:\n  - name: answer\n    run: {run}\nruns_on: [gpu]\n");
    let files = [(".ralph.yml", Some(text.as_str()), false)];
    world.forge.push_commit(&world.maintainer, world.repo, "main", &files, "Need a GPU").await.expect("pushed");
    let port = free_port();
    let mut first = hosts.spawn("first", vec![("RALPH_SERVER__METRICS_LISTEN", format!("127.0.0.1:{port}"))]);
    service.until("the database", async || service.store().await.is_some()).await;
    world.label().await;
    let waiting = hosts.until("the baseline", |l| l.run.step == LoopStep::Baseline).await;
    let line = format!("\nloop {}: no host has the labels gpu\n", waiting.id);
    let client = ralph_bot::net::client().no_proxy().build().expect("a client");
    let page = async |path: &str| {
        let asked = client.get(format!("http://127.0.0.1:{port}{path}")).send().await;
        asked.expect("an answer").text().await.expect("text")
    };
    service.until("the report", async || page("/readyz").await.contains(&line)).await;
    assert!(page("/metrics").await.contains("ralph_loops_without_host 1\n"));
    let drained = hosts.drain("first", &[]).await;
    assert!(drained.ends_with("first has no work\n"), "a drain does not wait for other hosts: {drained}");
    hosts.drain("first", &["--end"]).await;
    let mut second = hosts.spawn("second", vec![("RALPH_RUNNER__LABELS", "[\"gpu\", \"large\"]".to_owned())]);
    let done = hosts.until("the review", |l| l.state == LoopState::Review).await;
    assert_eq!(hosts.runs(), ["1 no 0", "2 yes 1"], "{}", service.log());
    let places = std::fs::read_to_string(places).expect("places");
    assert!(places.lines().count() > 2 && places.lines().all(|place| place.contains("/second/")), "{places}");
    assert!(!page("/readyz").await.contains("no host has"), "the wait is over");
    hosts.finish(&done, "1\n2\n").await;
    for process in [&mut first, &mut second] {
        assert!(stop(process).await.success(), "{}", service.log());
    }
}
