//! Environment of a run: folders, environment variables and sandbox; the same for every agent.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

use super::{AgentRun, BackendSetup};
use crate::domain::trust::egress::Target;
use crate::process::sandbox::{SandboxView, ScratchHome, tool_environment};
use crate::process::{Masker, Sandbox, private};

/// `PATH` if none is configured.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Port of HTTPS.
const HTTPS: u16 = 443;
/// Name of the report's file.
pub(super) const REPORT: &str = "report.json";
/// Environment variable with the time zone.
const TIME_ZONE: &str = "TZ";
/// Time between SIGTERM and SIGKILL.
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// Returns the path of the report that a run with this scratch folder writes.
pub(super) fn report_path(scratch: &Path) -> PathBuf {
    scratch.join("report").join(REPORT)
}

/// Returns the home of an agent whose run has this scratch folder.
pub fn home_path(scratch: &Path) -> PathBuf {
    scratch.join("home")
}

/// Folders of one attempt, below its scratch folder.
pub(super) struct RunFolders {
    /// Home of the agent.
    pub(super) home: PathBuf,
    /// Folder for temporary files.
    pub(super) temporary: PathBuf,
    /// Folder of the report. An agent in a sandbox can write only here and to `home`.
    pub(super) report: PathBuf,
    /// File that contains the prompt.
    pub(super) prompt: PathBuf,
}

impl RunFolders {
    /// Creates the folders with mode 0700, after removing the folders of an earlier attempt.
    pub(super) fn prepare(run: &AgentRun) -> io::Result<Self> {
        let folders = Self {
            home: home_path(&run.scratch),
            temporary: run.scratch.join("tmp"),
            report: run.scratch.join("report"),
            prompt: run.scratch.join("prompt.md"),
        };
        private::create_folder(&run.scratch)?;
        let home = Some(&folders.home).filter(|_| !run.home_prepared);
        for folder in home.into_iter().chain([&folders.temporary, &folders.report]) {
            match fs::symlink_metadata(folder) {
                Ok(found) if found.is_dir() => fs::remove_dir_all(folder)?,
                Ok(_) => fs::remove_file(folder)?,
                Err(_) => {}
            }
            private::create_folder(folder)?;
        }
        match fs::remove_file(&folders.prompt) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => private::write(&folders.prompt, &run.prompt)?,
        }
        Ok(folders)
    }

    /// Creates files in the home: relative path and content. Files get mode 0600, folders 0700.
    pub(super) fn write(&self, files: Vec<(&'static str, String)>) -> io::Result<()> {
        for (path, text) in files {
            let file = self.home.join(path);
            let folder = file.parent().unwrap_or(&self.home);
            private::create_folder(folder)?;
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file)?.write_all(text.as_bytes())?;
        }
        Ok(())
    }

    /// Returns the sandbox of the run. `servers` are the servers that the agent must be able to reach.
    pub(super) fn sandbox(&self, run: &AgentRun, settings: &BackendSetup, servers: Vec<Target>) -> Sandbox {
        if !run.sandboxed {
            return Sandbox::None;
        }
        let mut read_only = run.read_only.clone();
        read_only.extend(settings.tools.iter().filter(|tool| tool.exists()).cloned());
        read_only.push(self.prompt.clone());
        read_only.extend(run.mcp_config.clone());
        let mut writable = vec![self.report.clone()];
        if run.purpose.changes_tree() { &mut writable } else { &mut read_only }.insert(0, run.tree.clone());
        Sandbox::of(SandboxView {
            writable,
            read_only,
            home: ScratchHome::Folder(self.home.clone()),
            network: run.network.clone().with(servers),
            settings: run.sandbox.clone(),
        })
    }

    /// Returns the environment variables with the prefix `RALPH_`, which every agent gets.
    pub(super) fn variables(&self, run: &AgentRun, model: &str) -> Vec<(OsString, OsString)> {
        [
            ("RALPH_PROMPT_FILE", self.prompt.clone().into_os_string()),
            ("RALPH_REPORT", self.report.join(REPORT).into_os_string()),
            ("RALPH_RUN", run.purpose.name().into()),
            ("RALPH_LOOP", run.loop_id.clone().into()),
            ("RALPH_ITERATION", run.iteration.to_string().into()),
            ("RALPH_MODEL", model.into()),
        ]
        .map(|(name, value)| (name.into(), value))
        .into()
    }
}

/// Returns the configured `PATH`, or the default one.
pub(super) fn path(settings: &BackendSetup) -> OsString {
    if settings.path.is_empty() { DEFAULT_PATH.into() } else { settings.path.clone() }
}

/// Returns the environment variables that the operator passes on.
pub(super) fn passed_on(variables: &[(String, SecretString)]) -> impl Iterator<Item = (OsString, OsString)> {
    variables.iter().map(|(name, value)| (name.into(), value.expose_secret().into()))
}

/// Returns the servers that an agent needs: the servers of its model, and all servers whose addresses are in its variables.
pub(super) fn servers(variables: &[(String, SecretString)], model_hosts: &[&str]) -> Vec<Target> {
    let model_servers = model_hosts.iter().filter_map(|host| Target::parse(host, Some(HTTPS)));
    let named = variables.iter().flat_map(|(_, value)| Target::named_in(value.expose_secret()));
    model_servers.chain(named).collect()
}

/// Returns the time zone that the operator sets for an agent; `None` for UTC.
pub(super) fn zone(settings: &BackendSetup) -> Option<String> {
    let (_, zone) = settings.env.iter().find(|(name, _)| name == TIME_ZONE)?;
    Some(zone.expose_secret().trim_start_matches(':').to_owned())
}

/// Returns a masker for all secrets that must not appear in output.
pub(super) fn secrets(settings: &BackendSetup) -> Masker {
    // The time zone is not a secret, and messages about limits contain it.
    let passed_on = settings.env.iter().filter(|(name, _)| name != TIME_ZONE).map(|(_, value)| value.expose_secret());
    settings.masked.with(&Masker::new(passed_on.filter(|value| !settings.masked.knows(value))))
}

/// Returns the environment that every agent gets. The service's environment is not inherited.
pub(super) fn environment(path: &OsStr, tools: &[PathBuf], home: &Path, temporary: &Path) -> Vec<(OsString, OsString)> {
    let mut environment: Vec<(OsString, OsString)> = vec![
        ("PATH".into(), path.into()),
        ("HOME".into(), home.into()),
        ("TMPDIR".into(), temporary.into()),
        ("LANG".into(), "C.UTF-8".into()),
        // Agents print the end of a limit in local time, without the time zone.
        (TIME_ZONE.into(), "UTC".into()),
        ("TERM".into(), "dumb".into()),
        ("NO_COLOR".into(), "1".into()),
        ("CI".into(), "true".into()),
    ];
    environment.extend(tool_environment(tools));
    environment
}

/// Files that an agent's program creates at the top of a work tree and that are not part of its work.
pub(super) struct LeftoverFiles<'a> {
    tree: &'a Path,
    prefixes: &'static [&'static str],
    before: Vec<OsString>,
}

impl<'a> LeftoverFiles<'a> {
    /// Records the files that exist before the run.
    pub(super) fn before(tree: &'a Path, prefixes: &'static [&'static str]) -> Self {
        let mut leftovers = Self { tree, prefixes, before: Vec::new() };
        leftovers.before = leftovers.present();
        leftovers
    }

    fn present(&self) -> Vec<OsString> {
        if self.prefixes.is_empty() {
            return Vec::new();
        }
        let matches =
            |name: &OsString| self.prefixes.iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes()));
        let entries = fs::read_dir(self.tree).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name()).filter(matches).collect()
    }

    /// Removes the files that were created since `before`; failures are logged.
    pub(super) fn remove(self) {
        for name in self.present().into_iter().filter(|name| !self.before.contains(name)) {
            let path = self.tree.join(name);
            let is_folder = fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir());
            let removed = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            if let Err(error) = removed {
                tracing::warn!(path = %path.display(), %error, "could not remove a file that an agent left in the work tree");
            }
        }
    }
}
