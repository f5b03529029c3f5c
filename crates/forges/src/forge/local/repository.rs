//! The user's repository: git commands on it, and problems that would make a run fail, found before the run costs anything.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ralph_types::failure::Failure;
use tokio_util::sync::CancellationToken;

use super::Local;
use crate::domain::model::authorship::CommitAuthor;
use crate::process::{self, ProcessLimits, ProcessSpec};

/// Time limit of git commands on the repository.
const GIT_LIMIT: Duration = Duration::from_secs(30);
/// Hooks that run when a branch is pushed to the repository.
const HOOKS: [&str; 3] = ["pre-receive", "update", "reference-transaction"];

/// Runs git on the user's repository and returns its output.
///
/// # Errors
/// The line of git's message that states the cause, and advice if git gives any.
pub(super) async fn git(dir: &Path, path: &OsString, home: &str, args: &[&str]) -> Result<String, Failure> {
    let mut spec = ProcessSpec::new("git", dir).args(args.iter().copied()).env("PATH", path).env("HOME", home);
    spec = spec.env("LC_ALL", "C").env("GIT_OPTIONAL_LOCKS", "0");
    spec.limits = ProcessLimits { wall: GIT_LIMIT, ..ProcessLimits::default() };
    let finished = process::run(spec, &CancellationToken::new(), None)
        .await
        .map_err(|error| Failure::new("could not run git").caused_by(error))?;
    if finished.success() {
        return Ok(finished.stdout.text().trim_end().to_owned());
    }
    Err(cause(&finished.stderr.text()).into())
}

/// Returns the lines of git's error message that state the cause and the advice.
fn cause(message: &str) -> String {
    let lines = || message.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_cause = |line: &&str| ["fatal:", "error:", "remote:"].iter().any(|start| line.starts_with(start));
    let mut parts: Vec<&str> = lines().filter(is_cause).collect();
    parts.extend(lines().find(|line| line.starts_with("git config --global --add safe.directory")));
    match parts.as_slice() {
        [] => lines().next_back().unwrap_or("git failed without a message").to_owned(),
        parts => parts.join("; "),
    }
}

/// Checked-out branch and git directory of a folder.
pub(super) struct OpenedRepository {
    pub(super) git_dir: PathBuf,
    pub(super) branch: String,
    /// Shortest name of the branch that no tag has.
    pub(super) branch_ref: String,
    pub(super) author: Option<CommitAuthor>,
}

/// Looks at the repository that contains a folder.
///
/// # Errors
/// A message for people: no repository, no branch checked out, no commit, missing objects, or a path that cannot be used.
pub(super) async fn opened(dir: &Path, path: &OsString, home: &str) -> Result<OpenedRepository, Failure> {
    let ask = async |args: &[&str]| git(dir, path, home, args).await;
    let shown = dir.display();
    if dir.to_str().is_none() {
        return Err(Failure::new(format!("the path of {shown} is not UTF-8"))
            .with_hint("clone the repository to another folder"));
    }
    let git_dir = match ask(&["rev-parse", "--path-format=absolute", "--git-common-dir"]).await {
        Ok(text) => PathBuf::from(text),
        Err(why) if why.to_string().contains("safe.directory") => {
            return Err(Failure::new(format!("{shown} cannot be used")).caused_by(why));
        }
        Err(why) => return Err(Failure::new(format!("{shown} is not in a git repository")).caused_by(why)),
    };
    if !git_dir.is_dir() {
        let problem = Failure::new(format!("the path of the git directory of {shown} is not UTF-8"));
        return Err(problem.with_hint("clone the repository to another folder"));
    }
    // The short form is not the name of the branch if a tag has the same name.
    let head = ask(&["symbolic-ref", "--quiet", "HEAD"]).await;
    let branch = head.ok().and_then(|name| name.strip_prefix("refs/heads/").map(str::to_owned));
    let branch = branch.ok_or_else(|| {
        Failure::new(format!("{shown} has no branch checked out")).with_hint("run `git switch BRANCH`")
    })?;
    let branch_ref = ask(&["symbolic-ref", "--short", "HEAD"]).await.unwrap_or_else(|_| branch.clone());
    let tip = format!("refs/heads/{branch}^{{commit}}");
    if ask(&["rev-parse", "--verify", "--quiet", &tip]).await.is_err() {
        return Err(Failure::new(format!("{shown} has no commit")).with_hint("create a first one"));
    }
    if ask(&["rev-parse", "--show-object-format"]).await.is_ok_and(|format| format != "sha1") {
        let problem = Failure::new(format!("{shown} has another object format than sha1, which is not supported"));
        return Err(problem.with_hint("export it to a new repository: `git fast-export --all`, `git fast-import`"));
    }
    if ask(&["config", "--get-regexp", r"^remote\..*\.promisor$"]).await.is_ok() {
        let listed = ask(&["rev-list", "--objects", "--missing=print", &format!("refs/heads/{branch}")]).await;
        // The list of a very large history takes too long; the run then reports missing objects.
        let missing = listed.unwrap_or_default();
        let missing = missing.lines().filter(|line| line.starts_with('?')).count();
        if missing > 0 {
            let origin = ask(&["remote", "get-url", "origin"]).await.unwrap_or_else(|_| "URL".into());
            let files = if missing == 1 { "1 file".to_owned() } else { format!("{missing} files") };
            let problem = Failure::new(format!("{shown} is a partial clone that lacks {files} of its history"));
            return Err(problem.with_hint(format!("use a complete clone: `git clone {origin} DIR`")));
        }
    }
    let value = async |key: &str| ask(&["config", key]).await.unwrap_or_default();
    let author = CommitAuthor::checked(&value("user.name").await, &value("user.email").await);
    Ok(OpenedRepository { git_dir, branch, branch_ref, author })
}

impl Local {
    /// Finds out before a run whether its branches can be pushed to the repository. `prefix` is their prefix.
    ///
    /// # Errors
    /// A message for people: the repository is read-only, or a branch or a hook is in the way.
    pub async fn check_push(&self, prefix: &str) -> Result<(), Failure> {
        let dir = self.git_dir.display();
        // In the format `reftable`, there is no second folder.
        for folder in ["objects", "refs/heads"].into_iter().filter(|folder| self.git_dir.join(folder).is_dir()) {
            // git ignores files with this ending.
            let probe = self.git_dir.join(folder).join(format!("ralph-check-{}.lock", std::process::id()));
            if let Err(error) = std::fs::write(&probe, "").and_then(|()| std::fs::remove_file(&probe)) {
                return Err(Failure::new(format!("cannot write to {dir} to create a branch")).caused_by(error));
            }
        }
        let parts: Vec<&str> = prefix.split('/').collect();
        for end in 1..parts.len() {
            let name = parts[..end].join("/");
            if self.head_of(&name).await.is_ok_and(|head| head.is_some()) {
                let problem = Failure::new(format!("the branch `{name}` prevents branches such as `{prefix}1-…`"));
                return Err(problem.with_hint(format!("rename it: `git branch -m {name} {name}-old`")));
            }
        }
        let Ok(hooks) = self.git(&["rev-parse", "--path-format=absolute", "--git-path", "hooks"]).await else {
            return Ok(());
        };
        let Some(hook) = HOOKS.iter().find(|hook| Path::new(&hooks).join(hook).is_file()) else { return Ok(()) };
        let branch = format!("{prefix}0-test");
        let (from, to) = (format!("refs/heads/{}", self.default_branch), format!("refs/heads/{branch}"));
        let push = async |refspec: String| {
            let url = self.git_dir.display().to_string();
            self.git(&["push", "--quiet", "--no-verify", "--force", &url, &refspec]).await
        };
        if let Err(error) = push(format!("{from}:{to}")).await {
            let problem =
                Failure::new(format!("the hook {hooks}/{hook} refuses the branch `{branch}`, as it would the work"));
            return Err(problem.with_detail(error.detail));
        }
        push(format!(":{to}"))
            .await
            .map(drop)
            .map_err(|error| Failure::new(format!("cannot delete the branch `{branch}`")).with_detail(error.detail))
    }

    /// Returns the number of files with uncommitted changes in `dir`, which are not part of a run.
    pub async fn uncommitted(&self, dir: &Path) -> usize {
        let status = git(dir, &self.path, &self.home, &["status", "--porcelain", "--ignore-submodules"]).await;
        status.map_or(0, |text| text.lines().count())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::clock::Clock;
    use crate::forge::Forge as _;

    const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

    async fn run(dir: &Path, args: &[&str]) {
        let who = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=trunk"];
        let all: Vec<&str> = who.into_iter().chain(args.iter().copied()).collect();
        git(dir, &PATH.into(), "/", &all).await.expect("git runs");
    }

    async fn repository() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        run(folder.path(), &["init", "--quiet"]).await;
        run(folder.path(), &["commit", "--quiet", "--allow-empty", "-m", "first"]).await;
        folder
    }

    async fn open(dir: &Path) -> Result<Local, Failure> {
        Local::open(dir, PATH.into(), "/", Clock::System, Box::new(|_| {})).await
    }

    #[tokio::test]
    async fn tag_named_as_the_branch_does_not_hide_it() {
        let folder = repository().await;
        run(folder.path(), &["tag", "trunk"]).await;
        let local = open(folder.path()).await.expect("opened");
        assert_eq!((local.default_branch(), local.branch_ref()), ("trunk", "heads/trunk"));
    }

    #[tokio::test]
    async fn conflicting_branch_or_hook_is_reported_before_a_run() {
        let folder = repository().await;
        let local = open(folder.path()).await.expect("opened");
        local.check_push("ralph/").await.expect("nothing is in the way");
        run(folder.path(), &["branch", "ralph"]).await;
        let why = format!("{:#}", local.check_push("ralph/").await.expect_err("a branch is in the way"));
        assert!(why.contains("`git branch -m ralph ralph-old`"), "{why}");
        local.check_push("bot-").await.expect("the hook accepts");
        let hook = folder.path().join("own-hooks/update");
        std::fs::create_dir(folder.path().join("own-hooks")).expect("made");
        let script = |code: u8| {
            std::fs::write(&hook, format!("#!/bin/sh\necho only by review\nexit {code}\n")).expect("written");
            std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).expect("executable");
        };
        script(1);
        let hooks = folder.path().join("own-hooks");
        run(folder.path(), &["config", "core.hooksPath", hooks.to_str().expect("UTF-8")]).await;
        let why = format!("{:#}", local.check_push("bot-").await.expect_err("the hook refuses"));
        assert!(
            why.contains("own-hooks/update refuses the branch `bot-0-test`") && why.contains("only by review"),
            "{why}"
        );
        script(0);
        local.check_push("bot-").await.expect("the hook accepts");
        assert_eq!(local.head_of("bot-0-test").await.expect("asked"), None, "the test branch is deleted");
    }

    #[tokio::test]
    async fn commits_have_the_identity_of_the_user() {
        let folder = repository().await;
        run(folder.path(), &["config", "user.name", "Ada L"]).await;
        run(folder.path(), &["config", "user.email", "ada@example.org"]).await;
        let local = open(folder.path()).await.expect("opened");
        let author = local.commit_author().await.expect("asked").expect("known");
        assert_eq!((author.name.as_str(), author.email.as_str()), ("Ada L", "ada@example.org"));
        std::fs::write(folder.path().join("new"), "").expect("written");
        assert_eq!(local.uncommitted(folder.path()).await, 1);
    }

    #[tokio::test]
    async fn folder_that_is_not_utf8_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
        std::fs::create_dir(&dir).expect("made");
        run(&dir, &["init", "--quiet"]).await;
        let why = format!("{:#}", open(&dir).await.map(drop).expect_err("refused"));
        assert!(why.contains("is not UTF-8; clone the repository to another folder"), "{why}");
    }

    #[test]
    fn failure_message_prefers_the_cause_over_the_last_line() {
        let owner = "fatal: detected dubious ownership in repository at '/r'\nTo add an exception for this directory, call:\n\n\tgit \
                     config --global --add safe.directory /r\n";
        assert_eq!(
            cause(owner),
            "fatal: detected dubious ownership in repository at '/r'; git config --global --add safe.directory /r"
        );
        assert_eq!(cause("one\ntwo\n"), "two");
        assert_eq!(cause(""), "git failed without a message");
    }
}
