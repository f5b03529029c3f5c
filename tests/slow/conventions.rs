//! Repositories with dependencies and with submodules on another host, in the complete service.

use std::process::Stdio;

use fake_forge::{Dialect, FakeForge};
use ralph_bot::clock::Clock;
use ralph_bot::domain::loops::{Loop, LoopState};
use ralph_bot::domain::model::ids::AccountKind;
use ralph_bot::process::SandboxTier;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::Child;

use crate::git_faults::link_submodule;
use crate::harness::service::{Service, stop};
use crate::harness::{Setup, World, on_both_forges, on_one_forge, parts, sandbox, story};

on_both_forges!(submodules_of_a_listed_host_are_fetched_without_a_credential);

on_one_forge!(
    kept_environment_serves_later_loops_until_the_lock_file_changes,
    setup_reaches_registries_that_agents_cannot_reach,
    setup_failure_names_the_unlisted_host,
);

/// A repository with an ignored folder `node_modules` and a lock file. Agents and checks run in a sandbox, if this machine has one.
fn with_dependencies(dialect: Dialect, settings: &str) -> Setup {
    Setup::new(dialect)
        .isolated()
        .file(".gitignore", "node_modules\n")
        .file("package-lock.json", "{}\n")
        .file(".ralph.yml", &format!("{settings}checks:\n  - {{ name: answer, run: sh check.sh }}\n"))
}

/// Runs a loop on a new issue to the review.
async fn run_another(world: &World, title: &str) -> Loop {
    let opened = world.forge.open_issue(&world.maintainer, world.repo, title, "It should be 42.", &[]).await;
    let issue = opened.expect("an issue");
    world.forge.label(&world.maintainer, world.repo, issue, "ralph:run").await.expect("labeled");
    world.settle().await;
    let done = world.all_loops().await.into_iter().find(|known| known.issue.issue == issue).expect("a loop");
    assert_eq!(done.state, LoopState::Review, "{}", done.why);
    done
}

async fn file(world: &World, done: &Loop, path: &str) -> String {
    world.file(&done.branch.name, path).await.unwrap_or_else(|| panic!("{} has no {path}", done.branch.name))
}

/// Each run of the setup command creates another ID. The agent changes its copy of the result.
/// See docs/research/threats.md#g21.
async fn kept_environment_serves_later_loops_until_the_lock_file_changes(dialect: Dialect) {
    let install = "mkdir -p node_modules/p && cat /proc/sys/kernel/random/uuid >node_modules/id && echo good >node_modules/p/tool\n";
    let agent = "cp node_modules/id id.txt\nfind node_modules -type f | sort >seen.txt\ncat node_modules/p/tool >>seen.txt\n\
                 echo evil >node_modules/p/tool\necho evil >node_modules/more\necho 42 >answer.txt\n";
    let setup = with_dependencies(dialect, "setup: [sh install.sh]\n").file("install.sh", install).agent(agent);
    story(setup, async |world| {
        let first = world.run().await;
        assert_eq!((first.state, first.spent.iterations), (LoopState::Review, 1), "{}", first.why);
        let second = run_another(world, "The answer is still wrong").await;
        let id = file(world, &first, "id.txt").await;
        assert_eq!(file(world, &second, "id.txt").await, id, "the setup command ran again");
        for done in [&first, &second] {
            let seen = file(world, done, "seen.txt").await;
            assert_eq!(seen, "node_modules/id\nnode_modules/p/tool\ngood\n", "the change of another loop's agent");
        }
        let other = [("package-lock.json", Some("{ }\n"), false)];
        world.forge.push_commit(&world.maintainer, world.repo, "main", &other, "Update").await.expect("pushed");
        let third = run_another(world, "The answer is wrong after the update").await;
        assert_ne!(file(world, &third, "id.txt").await, id, "the lock file changed");
    })
    .await;
}

/// Shell function that prints the status line of the egress proxy's answer for a server.
const ASK: &str = "ask() { exec 9<>/dev/tcp/127.0.0.1/3128 && printf \"CONNECT $1 HTTP/1.1\\r\\n\\r\\n\" >&9 && timeout 60 head -n 1 <&9; exec 9<&-; }\n";

/// The proxy answers 200 for a server that it reached, 502 for a permitted server that does not exist, and 403 for other servers.
/// See docs/research/threats.md#s5.
async fn setup_reaches_registries_that_agents_cannot_reach(dialect: Dialect) {
    if sandbox().await.tier != SandboxTier::A {
        return;
    }
    let operators = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let operators = (operators.local_addr().expect("an address"), operators);
    let probe =
        format!("{ASK}for server in registry.invalid:443 other.invalid:443 {}; do ask $server; done", operators.0);
    let settings = "setup: ['mkdir -p node_modules && bash probe.sh >node_modules/answers']\n\
                    environment: { network: [registry.invalid] }\n";
    let mut setup = with_dependencies(dialect, settings)
        .file("probe.sh", &probe)
        .agent("cp node_modules/answers setup.txt\nbash probe.sh >agent.txt\necho 42 >answer.txt\n");
    setup.network = format!("['{}']", operators.0);
    story(setup, async |world| {
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let statuses = async |path: &str| -> Vec<String> {
            let answers = file(world, &done, path).await;
            answers.lines().map(|line| line.split(' ').nth(1).unwrap_or_default().to_owned()).collect()
        };
        assert_eq!(statuses("setup.txt").await, ["502", "403", "200"]);
        assert_eq!(statuses("agent.txt").await, ["403", "403", "200"]);
    })
    .await;
}

async fn setup_failure_names_the_unlisted_host(dialect: Dialect) {
    if sandbox().await.tier != SandboxTier::A {
        return;
    }
    let settings = "setup: [bash install.sh]\nenvironment: { network: [registry.invalid] }\n";
    let install = format!("{ASK}ask other.invalid:443 | grep -q ' 200 '\n");
    let mut setup = with_dependencies(dialect, settings).file("install.sh", &install);
    setup.network = "[]".into();
    story(setup, async |world| {
        let failed = world.run().await;
        let cause = "`other.invalid:443` was refused, which `environment.network` does not list".replace('`', "");
        let why = failed.why.replace('`', "");
        assert!(why.contains("the setup command bash install.sh failed") && why.contains(&cause), "{}", failed.why);
        assert_eq!(failed.spent.iterations, 0, "the agent ran without its dependencies");
        let [escalation] = world.escalations()[..] else { panic!("one escalation") };
        let body = world.issue_of(escalation).body;
        assert!(body.contains("other.invalid:443") && body.contains("/ralph resume"), "{body}");
    })
    .await;
}

/// Forwards TLS connections to a port of this machine, appends their requests to a file and prints its own port.
const TLS: &str = r#"
import asyncio, ssl, sys
folder, target = sys.argv[1], int(sys.argv[2])

async def pump(reader, writer, log=None):
    try:
        while data := await reader.read(65536):
            if log:
                log.write(data)
                log.flush()
            writer.write(data)
            await writer.drain()
    except (ConnectionError, ssl.SSLError):
        pass
    finally:
        writer.close()

async def serve(reader, writer):
    there, back = await asyncio.open_connection("127.0.0.1", target)
    with open(folder + "/requests", "ab") as log:
        await asyncio.gather(pump(reader, back, log), pump(there, writer))

async def main():
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder + "/cert.pem", folder + "/key.pem")
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"#;

/// Another forge behind https, and a folder with a `git` that trusts its certificate.
struct OtherHost {
    forge: FakeForge,
    folder: tempfile::TempDir,
    /// Host and port.
    name: String,
    _proxy: Child,
}

impl OtherHost {
    /// Starts the forge; `None` if a part is missing, which is reported.
    async fn start(dialect: Dialect) -> Option<Self> {
        let python = parts::program(&["python3"], "install Python 3")?;
        let git = parts::program(&["git"], "install git")?;
        let folder = tempfile::tempdir().expect("a folder");
        parts::certificates(folder.path()).await?;
        let forge = FakeForge::start(dialect, Clock::System).await.expect("the forge starts");
        forge.add_user("tools", AccountKind::User);
        let port = forge.url().port().expect("a port").to_string();
        let mut proxy = parts::command(python);
        proxy.args(["-c", TLS]).arg(folder.path()).arg(port).stdout(Stdio::piped());
        let mut proxy = proxy.spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(proxy.stdout.take().expect("a pipe")).read_line(&mut line).await.expect("a port");
        let (bin, ca) = (folder.path().join("bin"), folder.path().join("ca.pem"));
        std::fs::create_dir(&bin).expect("a folder");
        let trusting = format!("#!/bin/sh\nGIT_SSL_CAINFO='{}' exec '{}' \"$@\"\n", ca.display(), git.display());
        std::fs::write(bin.join("git"), trusting).expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(bin.join("git"), mode).expect("executable");
        Some(Self { forge, folder, name: format!("localhost:{}", line.trim()), _proxy: proxy })
    }

    /// Requests that it got, as text.
    fn requests(&self) -> String {
        let bytes = std::fs::read(self.folder.path().join("requests")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// The other host asks for a credential when the private submodule is fetched.
async fn submodules_of_a_listed_host_are_fetched_without_a_credential(dialect: Dialect) {
    let Some(other) = OtherHost::start(dialect).await else { return };
    let public = other.forge.create_repo("tools", "lib", &[("lib.txt", "one\n", false)]).await.expect("a repository");
    let private =
        other.forge.create_repo("tools", "inner", &[("inner.txt", "one\n", false)]).await.expect("a repository");
    other.forge.with(|state| state.repo_mut(private).expect("the repository").private = true);
    let module = |name: &str, host: &str| {
        format!("[submodule \"{name}\"]\n\tpath = {name}\n\turl = https://{host}/tools/{name}.git\n")
    };
    let modules = [module("lib", &other.name), module("inner", &other.name), module("far", "far.invalid")].concat();
    let agent = "cat lib/lib.txt >seen.txt\nls -A inner far >>seen.txt\necho 42 >answer.txt\n";
    let mut setup = Setup::new(dialect)
        .file(".gitmodules", &modules)
        .agent(agent)
        .config(&format!("submodules: {{ hosts: ['{}'] }}", other.name));
    let path = std::env::var("PATH").unwrap_or_default();
    setup.env.push(("PATH", format!("{}:{path}", other.folder.path().join("bin").display())));
    let service = Service::new(setup, false).await;
    let world = &service.world;
    for (name, repo) in [("lib", public), ("inner", private), ("far", private)] {
        let tip = other.forge.branch_sha(repo, "main").await.expect("a commit");
        link_submodule(world, name, tip.as_str());
    }
    let mut child = service.spawn("all", None);
    service.until("the service to listen", async || service.listens().await).await;
    world.label().await;
    let done = service.until_loop("the review", |l| l.state == LoopState::Review).await;
    service.wait_until_idle().await;
    assert_eq!(file(world, &done, "seen.txt").await, "one\nfar:\n\ninner:\n");
    let status = world.bot_comments().first().cloned().expect("the status");
    for sentence in [
        "The submodule `inner` is empty: the bot cannot fetch its commit",
        "The submodule `far` is empty: its host is neither the repository's nor in `submodules.hosts`",
    ] {
        assert!(status.contains(sentence), "`{sentence}` is missing: {status}");
    }
    let requests = other.requests();
    for name in ["lib", "inner"] {
        assert!(requests.contains(&format!("GET /tools/{name}.git/info/refs")), "{requests}");
    }
    assert!(!requests.to_lowercase().contains("authorization"), "the other host got a credential: {requests}");
    assert!(stop(&mut child).await.success(), "{}", service.log());
    service.finish().await;
}
