//! Probes the sandbox: tries to escape from it with real processes.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::running::installed_bubblewrap;
use super::sandbox::{Network, Sandbox, SandboxUser, SandboxView, ScratchHome};
use super::{COOKIE_VARIABLE, Flow, ProcessLimits, ProcessSpec, survivors};

/// Time limit of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(20);
/// Time within which processes must end with their sandbox. The kernel ends them at once, but on a busy machine seconds
/// pass until they are gone; survivors would sleep for minutes.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Level of isolation of agents and checks on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SandboxTier {
    /// No isolation.
    C,
    /// Files and network without namespaces (Landlock). Not implemented, so no machine reaches it.
    B,
    /// bubblewrap, and every attempt to escape failed.
    A,
}

impl std::fmt::Display for SandboxTier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
        })
    }
}

/// One attempt to escape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EscapeTest {
    /// Description of the attempt.
    pub name: &'static str,
    /// Whether the sandbox prevented it.
    pub held: bool,
    /// Output of the attempt if it succeeded.
    pub detail: String,
}

/// Result of the probe.
#[derive(Debug, Clone)]
pub struct SandboxProbe {
    /// Level of isolation.
    pub tier: SandboxTier,
    /// Version of bubblewrap, or the reason why it cannot be used and what to do.
    pub bubblewrap: Result<String, String>,
    /// Attempts; empty if bubblewrap does not run.
    pub escapes: Vec<EscapeTest>,
}

/// Builds a sandbox like that of an agent and tries to escape from it. Takes about a second.
/// Programs have the user `user` where the service is root. `folder` is that of the service's data, or will be; the
/// probe works in it, or in the nearest folder above that exists.
pub async fn probe_sandbox(user: SandboxUser, folder: &Path) -> SandboxProbe {
    let tried = match installed_bubblewrap().await {
        Ok(bubblewrap) => attempts(user, folder).await.map(|escapes| (bubblewrap.version.clone(), escapes)),
        Err(reason) => Err(reason),
    };
    match tried {
        Ok((version, escapes)) => {
            let tier = if escapes.iter().all(|e| e.held) { SandboxTier::A } else { SandboxTier::C };
            SandboxProbe { tier, bubblewrap: Ok(version), escapes }
        }
        Err(reason) => SandboxProbe { tier: SandboxTier::C, bubblewrap: Err(reason), escapes: Vec::new() },
    }
}

async fn attempts(user: SandboxUser, folder: &Path) -> Result<Vec<EscapeTest>, String> {
    let existing = folder.ancestors().find(|folder| folder.is_dir()).unwrap_or(folder);
    let folder = tempfile::tempdir_in(existing).map_err(|e| format!("no temporary folder for the test: {e}"))?;
    let place = EscapeSetup::new(user, &folder.path().canonicalize().map_err(|e| e.to_string())?)
        .await
        .map_err(|e| format!("preparing the test of the sandbox failed: {e}"))?;
    let mut escapes = place.inside().await?;
    escapes.push(place.survival().await?);
    Ok(escapes)
}

/// A view, and things outside of it that must not be reached.
struct EscapeSetup {
    view: SandboxView,
    tree: std::path::PathBuf,
    outside: std::path::PathBuf,
    listener: TcpListener,
    canary: String,
}

impl EscapeSetup {
    async fn new(user: SandboxUser, folder: &Path) -> std::io::Result<Self> {
        let (tree, outside) = (folder.join("tree"), folder.join("outside"));
        fs::create_dir(&tree)?;
        fs::create_dir(&outside)?;
        let canary = format!("canary-{}", uuid::Uuid::now_v7().simple());
        fs::write(outside.join("secret"), &canary)?;
        let view = SandboxView {
            writable: vec![tree.clone()],
            read_only: Vec::new(),
            home: ScratchHome::Memory,
            network: Network::None,
            user,
        };
        Ok(Self { view, tree, outside, listener: TcpListener::bind("127.0.0.1:0").await?, canary })
    }

    fn spec(&self, script: &str, sandbox: Sandbox) -> ProcessSpec {
        let mut spec = ProcessSpec::new("/bin/sh", &self.tree).args(["-c", script]).env("PATH", "/usr/bin:/bin");
        spec.sandbox = sandbox;
        spec.limits = ProcessLimits { wall: ATTEMPT_TIMEOUT, keep_bytes: 64 * 1024, ..ProcessLimits::default() };
        spec
    }

    /// Runs a script in the sandbox that tries to escape, while a process outside has the canary in its environment.
    async fn inside(&self) -> Result<Vec<EscapeTest>, String> {
        let port = self.listener.local_addr().map_err(|e| e.to_string())?.port();
        let outside = self.outside.display();
        let script = format!(
            "echo ran >ran || echo no-tree\n\
             cat '{outside}/secret' 2>/dev/null\n\
             (echo x >'{outside}/written') 2>/dev/null\n\
             (echo x >/usr/ralph-escape-test) 2>/dev/null && echo wrote-system && rm -f /usr/ralph-escape-test\n\
             for f in /proc/[0-9]*/environ; do tr '\\0' '\\n' <$f; done 2>/dev/null\n\
             [ -e /etc/shadow ] && echo sees-shadow\n\
             grep -v -e lo: -e '|' /proc/net/dev | sed 's/^/interface /'\n\
             bash -c ': >/dev/tcp/127.0.0.1/{port}' 2>/dev/null && echo connected\n\
             echo end"
        );
        let in_environment = format!("environment-{}", self.canary);
        let holder = self.spec("echo up; exec sleep 60", Sandbox::None).env("PROBE_CANARY", &in_environment);
        let (stop, cancel) = (CancellationToken::new(), CancellationToken::new());
        let mut ready = Some(CancellationToken::new());
        let up = ready.clone().unwrap_or_default();
        let mut lines = |_, _: &str| {
            ready.take().inspect(CancellationToken::cancel);
            Flow::Continue
        };
        let mut holder = Box::pin(super::run(holder, &stop, Some(&mut lines)));
        tokio::select! {
            ended = &mut holder => return Err(format!("the test of the sandbox ended early: {ended:?}")),
            () = up.cancelled() => {}
        }
        let spec = self.spec(&script, Sandbox::Bubblewrap(self.view.clone()));
        let tried = super::run(spec, &cancel, None).await.map_err(|e| e.to_string())?;
        drop(holder);
        let seen = tried.stdout.text();
        let ran = self.tree.join("ran").is_file() && seen.trim_end().ends_with("end");
        if !ran {
            return Err(format!("a script in the sandbox did not run: {:?}, {}", tried.ended, tried.stderr.text()));
        }
        let sees_environment = seen.contains(&in_environment);
        let sees_files = seen.replace(&in_environment, "").contains(&self.canary) || seen.contains("sees-shadow");
        let test = |name, broken: bool| EscapeTest {
            name,
            held: !broken,
            detail: if broken { seen.replace(&self.canary, "(canary)") } else { String::new() },
        };
        let reached = tokio::time::timeout(Duration::from_millis(50), self.listener.accept()).await.is_ok();
        let written = self.outside.join("written").exists() || seen.contains("wrote-system");
        Ok(vec![
            test("read files outside the view", sees_files),
            test("write outside the tree", written),
            test("see processes outside and their environment", sees_environment),
            test("reach the network", reached || seen.contains("connected") || seen.contains("interface ")),
        ])
    }

    /// Starts a daemon inside and kills bubblewrap only; all processes must end.
    async fn survival(&self) -> Result<EscapeTest, String> {
        let script = "setsid sh -c 'sleep 300 & sleep 300' & echo up; sleep 300";
        let mut spec = self.spec(script, Sandbox::Bubblewrap(self.view.clone())).env(COOKIE_VARIABLE, &self.canary);
        spec.limits.grace = Duration::ZERO;
        let mut lines = |_, _: &str| Flow::Stop("it is up".to_owned());
        super::run(spec, &CancellationToken::new(), Some(&mut lines)).await.map_err(|e| e.to_string())?;
        let ended = tokio::time::timeout(END_TIMEOUT, async {
            while !survivors(&self.canary).is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let held = ended.await.is_ok();
        let detail = if held { String::new() } else { "processes survived their sandbox".to_owned() };
        Ok(EscapeTest { name: "outlive the sandbox", held, detail })
    }
}
