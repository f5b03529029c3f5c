//! Runs the service's git commands with explicit directories, their own configuration, and without exposing secrets.
//!
//! Invariants: files in a work tree cannot make these commands execute anything (no hooks, filters, fsmonitor,
//! external diff or submodules). Credentials are passed through an anonymous pipe, never in arguments, environment or
//! addresses. Only the protocol of the address is enabled.

mod sync;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio::sync::OnceCell;
use url::Url;

use super::WorkspaceError;
use super::error::is_refusal_of_token;
use super::files;
use super::git_version::{GitVersion, NEEDED_GIT};
use super::spawner::{self, GitOutput};
pub(super) use sync::SyncMethod;

/// Time limit of commands on local files.
const LOCAL_LIMIT: Duration = Duration::from_secs(300);
/// Time after which a command on a work tree is assumed to wait for a named pipe.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 5_000 });
/// Time limit of commands that use a remote; the first clone of a large repository takes minutes.
const REMOTE_LIMIT: Duration = Duration::from_secs(1800);
/// Default maximum size of a command's output, in bytes.
pub(super) const LIST_BYTES: usize = 64 << 20;
/// Maximum length of git's error message in an error, in characters.
const DETAIL_CHARACTERS: usize = 600;
/// Pause before the first retry with a token that the server may not know yet; later pauses double.
const FIRST_SETTLING_PAUSE: Duration = Duration::from_millis(250);
/// Name of the global configuration for local remotes, beside git's home.
pub(super) const FILE_REMOTES: &str = "file-remotes.gitconfig";
/// Number of times that a command can read the credential, because it may start further git processes that connect.
const CREDENTIAL_COPIES: usize = 4;
/// Credential helper that reads the inherited pipe. `read` and `printf` are shell builtins, so no process has the
/// token among its arguments.
const CREDENTIAL_SOURCE: &str = "!f() { test \"$1\" = get || return 0; IFS= read -r u <&3 && IFS= read -r p <&3 && printf 'username=%s\\npassword=%s\\n' \"$u\" \"$p\"; }; f";
/// Moves the pipe from standard input to descriptor 3 and executes git; `$0` is the file for its standard input.
const CREDENTIAL_LAUNCHER: &str = "exec 3<&0 <\"$0\" && exec \"$@\"";

/// Address and credential of a remote repository.
#[derive(Debug, Clone)]
pub struct GitUrl {
    /// `https://`, `http://` or `file://` address without user name or password.
    pub url: String,
    /// User name and token; `None` if the remote needs none.
    pub credential: Option<(String, SecretString)>,
    /// Time for which a refusal may mean that the server does not know the token yet.
    pub settling: Duration,
}

/// Validated address of a remote, with its credential.
struct Remote<'a> {
    scheme: &'static str,
    /// `scheme://host:port`, which is the scope of the credential.
    origin: String,
    credential: Option<(&'a str, &'a SecretString)>,
}

impl GitUrl {
    fn checked(&self) -> Result<Remote<'_>, WorkspaceError> {
        let bad = |reason| WorkspaceError::BadUrl { url: without_userinfo(&self.url), reason };
        let parsed = Url::parse(&self.url).map_err(|_| bad("it is not an absolute URL"))?;
        let scheme = match parsed.scheme() {
            "https" => "https",
            "http" => "http",
            "file" => "file",
            _ => return Err(bad("only https, http and file are supported")),
        };
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(bad("it contains a user name or password; give them as the credential"));
        }
        let credential = match &self.credential {
            Some((user, token)) if scheme != "file" => {
                if [user.as_str(), token.expose_secret()].iter().any(|part| part.contains(['\n', '\r', '\0'])) {
                    return Err(bad("its credential contains a line break"));
                }
                Some((user.as_str(), token))
            }
            _ => None,
        };
        Ok(Remote { scheme, origin: parsed.origin().ascii_serialization(), credential })
    }
}

fn without_userinfo(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://{rest}"),
        _ => url.to_owned(),
    }
}

/// Builder for a git command that [`Git::run`] or [`Git::ok`] executes.
pub(super) struct GitCommand<'a> {
    what: &'a str,
    git_dir: &'a Path,
    work_tree: Option<(&'a Path, &'a Path)>,
    index: Option<&'a Path>,
    access: Option<&'a GitUrl>,
    config: Vec<String>,
    synced_by_ref: bool,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    input: Vec<u8>,
    input_file: Option<&'a Path>,
    output_bytes: usize,
}

impl<'a> GitCommand<'a> {
    /// Creates a command on the repository at `git_dir`. `what` completes the error message "git could not …".
    pub fn new(what: &'a str, git_dir: &'a Path) -> Self {
        Self {
            what,
            git_dir,
            work_tree: None,
            index: None,
            access: None,
            config: Vec::new(),
            synced_by_ref: false,
            args: Vec::new(),
            env: Vec::new(),
            input: Vec::new(),
            input_file: None,
            output_bytes: LIST_BYTES,
        }
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets the work tree and its private index.
    pub fn on_tree(mut self, tree: &'a Path, index: &'a Path) -> Self {
        self.work_tree = Some((tree, index));
        self
    }

    /// Sets the index, without a work tree.
    pub fn on_index(mut self, index: &'a Path) -> Self {
        self.index = Some(index);
        self
    }

    /// Sets the only remote that the command may access.
    pub fn remote(mut self, access: &'a GitUrl) -> Self {
        self.access = Some(access);
        self
    }

    /// Sets a configuration value for this command.
    pub fn config(mut self, entry: impl Into<String>) -> Self {
        self.config.push(entry.into());
        self
    }

    /// Lets the next update of a ref make this command's objects durable, if the file system allows it ([`SyncMethod`]).
    pub fn synced_by_ref(mut self) -> Self {
        self.synced_by_ref = true;
        self
    }

    /// Sets an environment variable for this command.
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Sets the standard input of a command that accesses no remote.
    pub fn input(mut self, bytes: Vec<u8>) -> Self {
        self.input = bytes;
        self
    }

    /// Sets a file as the standard input of a command that accesses a remote.
    pub fn input_file(mut self, path: &'a Path) -> Self {
        self.input_file = Some(path);
        self
    }

    /// Sets the maximum size of the output, in bytes. The rest is dropped, and [`GitOutput::truncated`] is set.
    pub fn output_bytes(mut self, limit: usize) -> Self {
        self.output_bytes = limit;
        self
    }
}

/// Runner of git commands.
#[derive(Debug, Clone)]
pub(super) struct Git {
    program: PathBuf,
    /// Empty folder that is git's home, so that git finds no user settings.
    home: PathBuf,
    /// Version of git, determined on first use.
    version: Arc<OnceCell<GitVersion>>,
    sync_method: SyncMethod,
}

impl Git {
    pub fn new(home: PathBuf) -> Result<Self, WorkspaceError> {
        let program = which::which("git")
            .map_err(|_| WorkspaceError::GitVersion { found: "(none)".to_owned(), needed: NEEDED_GIT.to_string() })?;
        let sync_method = SyncMethod::of(&home);
        Ok(Self { program, home, version: Arc::default(), sync_method })
    }

    /// Whether git finds another program.
    pub fn finds(&self, program: &str) -> bool {
        which::which_in(program, Some(self.search_path()), "/").is_ok()
    }

    /// Returns the `PATH` of all commands.
    fn search_path(&self) -> OsString {
        let path = OsString::from("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        match self.program.parent() {
            Some(folder) => [folder.as_os_str(), OsStr::new(":"), path.as_os_str()].into_iter().collect(),
            None => path,
        }
    }

    /// Returns the path of git.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Returns the version of the installed git.
    ///
    /// # Errors
    /// git is older than [`NEEDED_GIT`].
    pub async fn version(&self) -> Result<GitVersion, WorkspaceError> {
        self.version.get_or_try_init(|| self.read_version()).await.copied()
    }

    /// Replaces git by another program, and sets how objects reach the disk, regardless of the file system.
    #[cfg(test)]
    pub fn replace(&mut self, program: PathBuf, sync_method: SyncMethod) {
        (self.program, self.sync_method) = (program, sync_method);
    }

    async fn read_version(&self) -> Result<GitVersion, WorkspaceError> {
        let call = GitCommand::new("tell its version", &self.home);
        let answer = self.spawn(&call, None, vec!["version".into()]).await?;
        let needed = NEEDED_GIT.to_string();
        match GitVersion::parse(&answer.text()) {
            Some(version) if version >= NEEDED_GIT => Ok(version),
            Some(version) => Err(WorkspaceError::GitVersion { found: version.to_string(), needed }),
            None => Err(WorkspaceError::GitVersion { found: answer.text(), needed }),
        }
    }

    /// Runs a command and returns its result with any exit code. Retries a command that is refused with a token that
    /// the server may not know yet.
    pub async fn run(&self, call: GitCommand<'_>) -> Result<GitOutput, WorkspaceError> {
        let remote = call.access.map(GitUrl::checked).transpose()?;
        let mut args = self.base_arguments(&call, remote.as_ref());
        args.extend(call.args.iter().cloned());
        let settling = call.access.map_or(Duration::ZERO, |access| access.settling);
        let mut waited = Duration::ZERO;
        loop {
            let output = self.spawn(&call, remote.as_ref(), args.clone()).await?;
            let pause = FIRST_SETTLING_PAUSE.max(waited);
            if output.code == 0 || waited + pause > settling || !is_refusal_of_token(&output.stderr) {
                return Ok(output);
            }
            tokio::time::sleep(pause).await;
            waited += pause;
        }
    }

    /// Runs a command; fails unless its exit code is 0.
    pub async fn ok(&self, call: GitCommand<'_>) -> Result<GitOutput, WorkspaceError> {
        let (what, url) = (call.what.to_owned(), call.access.map(|access| access.url.clone()));
        let output = self.run(call).await?;
        if output.code == 0 { Ok(output) } else { Err(failure(&what, &output, url.as_deref())) }
    }

    fn environment(&self, call: &GitCommand<'_>, remote: Option<&Remote<'_>>) -> Vec<(OsString, OsString)> {
        // git on a local remote reads no other configuration of ours; its owner was checked when the repository was opened.
        let global_config = match remote {
            Some(remote) if remote.scheme == "file" => self.home.with_file_name(FILE_REMOTES).into(),
            _ => "/dev/null".into(),
        };
        let mut env: Vec<(OsString, OsString)> = vec![
            ("PATH".into(), self.search_path()),
            ("HOME".into(), self.home.clone().into()),
            ("LC_ALL".into(), "C".into()),
            ("GIT_CONFIG_NOSYSTEM".into(), "1".into()),
            ("GIT_CONFIG_GLOBAL".into(), global_config),
            ("GIT_ATTR_NOSYSTEM".into(), "1".into()),
            ("GIT_TERMINAL_PROMPT".into(), "0".into()),
            ("GIT_NO_REPLACE_OBJECTS".into(), "1".into()),
            ("GIT_LITERAL_PATHSPECS".into(), "1".into()),
            ("GIT_OPTIONAL_LOCKS".into(), "0".into()),
            ("GIT_ALLOW_PROTOCOL".into(), remote.map_or("none", |remote| remote.scheme).into()),
        ];
        if remote.is_none() {
            env.push(("GIT_NO_LAZY_FETCH".into(), "1".into()));
        }
        if let Some(index) = call.index.or(call.work_tree.map(|(_, index)| index)) {
            env.push(("GIT_INDEX_FILE".into(), index.into()));
        }
        env.extend(call.env.iter().cloned());
        env
    }

    /// Returns the arguments that precede the subcommand.
    fn base_arguments(&self, call: &GitCommand<'_>, remote: Option<&Remote<'_>>) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec![joined("--git-dir=", call.git_dir)];
        if let Some((tree, _)) = call.work_tree {
            args.push(joined("--work-tree=", tree));
        }
        let mut config: Vec<String> = SETTINGS.iter().map(|entry| (*entry).to_owned()).collect();
        if let Some(remote) = remote {
            config.push(format!("protocol.{}.allow=always", remote.scheme));
            if remote.credential.is_some() {
                config.push(format!("credential.{}.helper={CREDENTIAL_SOURCE}", remote.origin));
            }
        }
        config.push(self.sync_method.setting(call.synced_by_ref).to_owned());
        config.extend(call.config.iter().cloned());
        for entry in config {
            args.push("-c".into());
            args.push(entry.into());
        }
        args
    }

    async fn spawn(
        &self,
        call: &GitCommand<'_>,
        remote: Option<&Remote<'_>>,
        args: Vec<OsString>,
    ) -> Result<GitOutput, WorkspaceError> {
        let env = self.environment(call, remote);
        let input_file = call.input_file.unwrap_or(Path::new("/dev/null"));
        let credential = remote.and_then(|remote| remote.credential);
        let (program, args, stdin) = if credential.is_some() || call.input_file.is_some() {
            let mut launcher: Vec<OsString> = vec!["-c".into(), CREDENTIAL_LAUNCHER.into(), input_file.into()];
            launcher.push(self.program.clone().into());
            launcher.extend(args);
            (PathBuf::from("/bin/sh"), launcher, credential.map(credential_lines).unwrap_or_default())
        } else {
            (self.program.clone(), args, call.input.clone())
        };
        let limit = if remote.is_some() { REMOTE_LIMIT } else { LOCAL_LIMIT };
        let spec =
            spawner::GitProcess { program, args, cwd: self.home.clone(), env, stdin, limit, output: call.output_bytes };
        let running = std::pin::pin!(spawner::run(spec));
        let ended = match call.work_tree {
            Some((tree, _)) => until_ended(tree, running).await,
            None => running.await,
        };
        let mut output = ended.map_err(|error| match error {
            spawner::GitProcessFailure::TimedOut => {
                WorkspaceError::Timeout { what: call.what.to_owned(), seconds: limit.as_secs() }
            }
            spawner::GitProcessFailure::Io(source) => {
                WorkspaceError::Io { what: "run", path: self.program.clone(), source }
            }
        })?;
        if let Some((_, token)) = credential {
            output.stderr = redacted(output.stderr, token);
        }
        Ok(output)
    }
}

/// Waits for a command on a work tree. A command that takes long may wait for a named pipe that an agent created in
/// place of one of git's settings files. Such pipes are removed, and git then reads an empty file.
async fn until_ended<T>(tree: &Path, mut running: Pin<&mut impl Future<Output = T>>) -> T {
    loop {
        match tokio::time::timeout(PATIENCE, running.as_mut()).await {
            Ok(ended) => return ended,
            Err(_) => {
                let tree = tree.to_owned();
                let _ = tokio::task::spawn_blocking(move || files::remove_pipes(&tree)).await;
            }
        }
    }
}

/// Returns the error of a failed command.
pub(super) fn failure(what: &str, output: &GitOutput, url: Option<&str>) -> WorkspaceError {
    let message = if output.stderr.trim().is_empty() { output.text() } else { output.stderr.trim().to_owned() };
    let mut detail: String = message.chars().take(DETAIL_CHARACTERS).collect();
    if detail.is_empty() {
        detail = format!("exit code {}", output.code);
    }
    WorkspaceError::from_git(what, &detail, url)
}

fn credential_lines((user, token): (&str, &SecretString)) -> Vec<u8> {
    format!("{user}\n{}\n", token.expose_secret()).repeat(CREDENTIAL_COPIES).into_bytes()
}

fn redacted(text: String, token: &SecretString) -> String {
    let token = token.expose_secret();
    if token.is_empty() { text } else { text.replace(token, "***") }
}

/// Configuration of all commands, which disables execution, conversion and implicit fetches.
const SETTINGS: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "core.quotePath=false",
    "core.logAllRefUpdates=false",
    "core.editor=false",
    "core.sshCommand=false",
    "core.checkStat=default",
    "core.trustctime=true",
    // Commits and refs survive a power failure (`SyncMethod`).
    "core.fsync=committed,reference",
    "safe.bareRepository=explicit",
    "protocol.allow=never",
    "credential.helper=",
    "credential.interactive=false",
    "transfer.fsckObjects=true",
    // Harmless errors of old tools that occur in the history of many repositories.
    "fetch.fsck.zeroPaddedFilemode=warn",
    "fetch.fsck.badTimezone=warn",
    "fetch.fsck.missingSpaceBeforeDate=warn",
    "fetch.fsck.missingSpaceBeforeEmail=warn",
    "fetch.recurseSubmodules=false",
    "push.recurseSubmodules=no",
    "submodule.recurse=false",
    "diff.ignoreSubmodules=all",
    "fetch.writeCommitGraph=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=60",
    "advice.fetchShowForcedUpdates=false",
];

fn joined(prefix: &str, path: &Path) -> OsString {
    let mut text = OsString::from(prefix);
    text.push(path);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// See docs/research/threats.md#g7, docs/research/threats.md#s7.
    #[test]
    fn only_https_http_and_file_addresses_are_accepted() {
        let check = |url: &str| {
            GitUrl { url: url.to_owned(), credential: None, settling: Duration::ZERO }
                .checked()
                .map(|remote| remote.origin)
        };
        assert_eq!(check("https://forge.example:8443/a/b.git").unwrap(), "https://forge.example:8443");
        assert!(check("file:///srv/a.git").is_ok());
        for url in ["ext::sh -c id", "ssh://host/x", "--upload-pack=id", "/srv/a.git", "git://host/x"] {
            assert!(matches!(check(url), Err(WorkspaceError::BadUrl { .. })), "{url}");
        }
        let message = check("https://bot:hunter2@forge/x").unwrap_err().to_string();
        assert!(!message.contains("hunter2"), "{message}");
    }

    #[test]
    fn multi_line_credential_is_refused() {
        let token = SecretString::from("a\nhost=evil");
        let access =
            GitUrl { url: "https://forge/x".into(), credential: Some(("bot".into(), token)), settling: Duration::ZERO };
        assert!(matches!(access.checked(), Err(WorkspaceError::BadUrl { .. })));
    }
}
