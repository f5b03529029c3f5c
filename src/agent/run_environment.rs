//! Where a run of an agent takes place: its folders, its environment, its view of the machine; the same for every agent.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

use super::{AgentRun, BackendSetup};
use crate::domain::trust::egress::Target;
use crate::process::sandbox::{SandboxView, ScratchHome, tool_environment};
use crate::process::{Masker, Sandbox};

/// `PATH` where the settings have none.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Port of the servers of models.
const HTTPS: u16 = 443;
/// File of the report in its folder.
pub(super) const REPORT: &str = "report.json";
/// Variable with the zone of the agent's clock.
const ZONE: &str = "TZ";
/// Between SIGTERM and SIGKILL.
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// The report of a run with this scratch folder.
pub(super) fn report_path(scratch: &Path) -> PathBuf {
    scratch.join("report").join(REPORT)
}

/// The folders of one attempt, under its scratch folder.
pub(super) struct RunFolders {
    pub(super) home: PathBuf,
    pub(super) temporary: PathBuf,
    /// The only one, with `home`, that an agent in a sandbox can write to.
    pub(super) report: PathBuf,
    pub(super) prompt: PathBuf,
}

impl RunFolders {
    /// Makes them, for their owner alone, and takes away what an earlier attempt left.
    pub(super) fn prepare(run: &AgentRun) -> io::Result<Self> {
        let folders = Self {
            home: run.scratch.join("home"),
            temporary: run.scratch.join("tmp"),
            report: run.scratch.join("report"),
            prompt: run.scratch.join("prompt.md"),
        };
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&run.scratch)?;
        for folder in [&folders.home, &folders.temporary, &folders.report] {
            match fs::symlink_metadata(folder) {
                Ok(found) if found.is_dir() => fs::remove_dir_all(folder)?,
                Ok(_) => fs::remove_file(folder)?,
                Err(_) => {}
            }
            builder.create(folder)?;
        }
        match fs::remove_file(&folders.prompt) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => fs::write(&folders.prompt, &run.prompt)?,
        }
        Ok(folders)
    }

    /// Writes these files into the home: path from there, and text. Each folder and file is its owner's alone.
    pub(super) fn write(&self, files: Vec<(&'static str, String)>) -> io::Result<()> {
        for (path, text) in files {
            let file = self.home.join(path);
            let folder = file.parent().unwrap_or(&self.home);
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file)?.write_all(text.as_bytes())?;
        }
        Ok(())
    }

    /// What the run can see; `servers` are those that it cannot do without.
    pub(super) fn sandbox(&self, run: &AgentRun, settings: &BackendSetup, servers: Vec<Target>) -> Sandbox {
        if !run.sandboxed {
            return Sandbox::None;
        }
        let mut read_only = run.read_only.clone();
        read_only.extend(settings.tools.iter().filter(|tool| tool.exists()).cloned());
        read_only.push(self.prompt.clone());
        read_only.extend(run.mcp_config.clone());
        Sandbox::Bubblewrap(SandboxView {
            writable: vec![run.tree.clone(), self.report.clone()],
            read_only,
            home: ScratchHome::Folder(self.home.clone()),
            network: run.network.clone().with(servers),
        })
    }

    /// What every run tells its agent.
    pub(super) fn told(&self, run: &AgentRun, model: &str) -> Vec<(OsString, OsString)> {
        [
            ("RALPH_PROMPT_FILE", self.prompt.clone().into_os_string()),
            ("RALPH_REPORT", self.report.join(REPORT).into_os_string()),
            ("RALPH_LOOP", run.loop_id.clone().into()),
            ("RALPH_ITERATION", run.iteration.to_string().into()),
            ("RALPH_MODEL", model.into()),
        ]
        .map(|(name, value)| (name.into(), value))
        .into()
    }
}

/// `PATH` as it is configured, or the usual one.
pub(super) fn path(settings: &BackendSetup) -> OsString {
    if settings.path.is_empty() { DEFAULT_PATH.into() } else { settings.path.clone() }
}

/// The operator's further variables.
pub(super) fn granted(variables: &[(String, SecretString)]) -> impl Iterator<Item = (OsString, OsString)> {
    variables.iter().map(|(name, value)| (name.into(), value.expose_secret().into()))
}

/// Servers that an agent cannot do without: those of its model, and all whose address is in its variables.
pub(super) fn servers(variables: &[(String, SecretString)], model_at: &[&str]) -> Vec<Target> {
    let of_model = model_at.iter().filter_map(|host| Target::parse(host, Some(HTTPS)));
    let named = variables.iter().flat_map(|(_, value)| Target::named_in(value.expose_secret()));
    of_model.chain(named).collect()
}

/// The zone of times that an agent prints, where the operator gives it another than UTC.
pub(super) fn zone(settings: &BackendSetup) -> Option<String> {
    let (_, zone) = settings.env.iter().find(|(name, _)| name == ZONE)?;
    Some(zone.expose_secret().trim_start_matches(':').to_owned())
}

/// What is masked in all output.
pub(super) fn secrets(settings: &BackendSetup) -> Masker {
    // A zone is no secret, and limits name it.
    let granted = settings.env.iter().filter(|(name, _)| name != ZONE).map(|(_, value)| value);
    Masker::new(granted.chain(&settings.masked).map(|value| value.expose_secret()))
}

/// What every agent has in its environment. Nothing of ours is inherited.
pub(super) fn environment(path: &OsStr, tools: &[PathBuf], home: &Path, temporary: &Path) -> Vec<(OsString, OsString)> {
    let mut environment: Vec<(OsString, OsString)> = vec![
        ("PATH".into(), path.into()),
        ("HOME".into(), home.into()),
        ("TMPDIR".into(), temporary.into()),
        ("LANG".into(), "C.UTF-8".into()),
        // Agents print when a limit ends as their clock shows it, and without its zone.
        (ZONE.into(), "UTC".into()),
        ("TERM".into(), "dumb".into()),
        ("NO_COLOR".into(), "1".into()),
        ("CI".into(), "true".into()),
    ];
    environment.extend(tool_environment(tools));
    environment
}

/// What an agent leaves for itself at the top of a tree; not what was there before it.
pub(super) struct LeftoverFiles<'a> {
    tree: &'a Path,
    beginnings: &'static [&'static str],
    before: Vec<OsString>,
}

impl<'a> LeftoverFiles<'a> {
    /// Looks what is there now.
    pub(super) fn before(tree: &'a Path, beginnings: &'static [&'static str]) -> Self {
        let mut leftovers = Self { tree, beginnings, before: Vec::new() };
        leftovers.before = leftovers.there();
        leftovers
    }

    fn there(&self) -> Vec<OsString> {
        if self.beginnings.is_empty() {
            return Vec::new();
        }
        let ours = |name: &OsString| {
            self.beginnings.iter().any(|beginning| name.as_encoded_bytes().starts_with(beginning.as_bytes()))
        };
        let entries = fs::read_dir(self.tree).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name()).filter(ours).collect()
    }

    /// Takes away what came since; what cannot be is told in the log.
    pub(super) fn clear(self) {
        for name in self.there().into_iter().filter(|name| !self.before.contains(name)) {
            let path = self.tree.join(name);
            let is_folder = fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir());
            let gone = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            if let Err(error) = gone {
                tracing::warn!(path = %path.display(), %error, "what an agent left for itself stays in the tree");
            }
        }
    }
}
