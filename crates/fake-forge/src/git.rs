//! Bare repositories on disk, written with `git fast-import`, and read and merged with git plumbing commands.

use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path, PathBuf};
use std::process::Stdio;
use std::sync::{LazyLock, Mutex};

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::state::{FakeRefusal, PullFacts, PushedCommit};
use ralph_types::ids::{RepoId, Sha, Timestamp};

/// Maximum number of commits in a push event.
pub const MAX_LISTED_COMMITS: usize = 20;

/// Update hook that rejects pushes to branches listed in the repository's file `protected-branches`, all pushes if
/// `push-refusal` contains a message, and commits with a line of `secrets`, like GitHub's push protection.
const UPDATE_HOOK: &str = "#!/bin/sh
branch=${1#refs/heads/}
if test -f push-refusal; then
  cat push-refusal >&2
  exit 1
fi
if test -f secrets && ! test -z \"${3#0000000000000000000000000000000000000000}\"; then
  for commit in $(git rev-list \"$3\" --not --branches); do
    place=$(git grep -n -F -f secrets \"$commit\" -- | head -n 1 | cut -d: -f2,3)
    test -z \"$place\" && continue
    cat >&2 <<END
error: GH013: Repository rule violations found for $1.

- GITHUB PUSH PROTECTION
  —————————————————————————————————————————
    Resolve the following violations before pushing again

    - Push cannot contain secrets

      —— Acme API Key ——————————————————————————————————————
       locations:
         - commit: $(echo \"$commit\" | cut -c1-9)
           path: $place
END
    exit 1
  done
fi
if test -f protected-branches && grep -qxF -- \"$branch\" protected-branches; then
  echo \"Not allowed to push to protected branch $branch\" >&2
  exit 1
fi
";

/// Directory of git's programs.
static PARTS: LazyLock<PathBuf> = LazyLock::new(|| {
    #[expect(clippy::disallowed_methods, reason = "the fake forge plays a server of its own")]
    let asked = std::process::Command::new("git").arg("--exec-path").output();
    PathBuf::from(asked.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default())
});

/// All repositories, in a temporary directory that is removed on drop.
#[derive(Debug)]
pub struct GitStore {
    root: tempfile::TempDir,
    /// Cached facts of pull requests, by repository, base and head.
    compared: Mutex<HashMap<(RepoId, Sha, Sha), PullFacts>>,
}

/// Author of a commit.
#[derive(Debug, Clone)]
pub struct Signature<'a> {
    /// Name; the email address is derived from it.
    pub name: &'a str,
    /// Time.
    pub at: Timestamp,
}

/// File in a commit: path, content (`None` deletes the file), and whether it is executable.
pub type FileChange<'a> = (&'a str, Option<&'a str>, bool);

impl GitStore {
    /// Creates the directory and the hooks shared by all repositories.
    pub fn new() -> std::io::Result<Self> {
        let root = tempfile::Builder::new().prefix("fake-forge-").tempdir()?;
        let hooks = root.path().join("hooks");
        std::fs::create_dir(&hooks)?;
        std::fs::write(hooks.join("update"), UPDATE_HOOK)?;
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(hooks.join("update"), executable)?;
        Ok(Self { root, compared: Mutex::default() })
    }

    /// Returns the directory of all repositories.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Returns the path of a repository.
    pub fn path(&self, repo: RepoId) -> PathBuf {
        self.root.path().join(format!("{repo}.git"))
    }

    /// Returns a git command that ignores the calling process's configuration and repository. Its program is an absolute
    /// path. With a program name, a command with a custom environment would have to fork, which copies the calling process's
    /// page tables.
    pub(super) fn command(&self) -> Command {
        self.part("git")
    }

    /// Returns a command for one of git's programs.
    pub(super) fn part(&self, name: &str) -> Command {
        self.program(&PARTS.join(name))
    }

    #[expect(clippy::disallowed_methods, reason = "the fake forge plays a server of its own, with streaming bodies")]
    fn program(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        for (key, value) in [
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_CONFIG_COUNT", "6"),
            ("GIT_CONFIG_KEY_0", "http.receivepack"),
            ("GIT_CONFIG_VALUE_0", "true"),
            ("GIT_CONFIG_KEY_1", "uploadpack.allowFilter"),
            ("GIT_CONFIG_VALUE_1", "true"),
            ("GIT_CONFIG_KEY_2", "uploadpack.allowAnySHA1InWant"),
            ("GIT_CONFIG_VALUE_2", "true"),
            ("GIT_CONFIG_KEY_3", "safe.directory"),
            ("GIT_CONFIG_VALUE_3", "*"),
            ("GIT_CONFIG_KEY_4", "receive.autogc"),
            ("GIT_CONFIG_VALUE_4", "false"),
            ("GIT_CONFIG_KEY_5", "core.hooksPath"),
        ] {
            command.env(key, value);
        }
        command.env("GIT_CONFIG_VALUE_5", self.root.path().join("hooks"));
        for key in ["GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX"] {
            command.env_remove(key);
        }
        command.current_dir(self.root.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        command
    }

    /// Runs git in a repository; returns its standard output if it exits with code 0.
    async fn run(&self, repo: RepoId, args: &[&str], stdin: Option<&[u8]>) -> Result<String, FakeRefusal> {
        let (code, stdout, stderr) = self.run_any(repo, args, stdin).await?;
        if code == 0 { Ok(stdout) } else { Err(FakeRefusal::Git(format!("git {}: {stderr}", args.join(" ")))) }
    }

    async fn run_any(
        &self,
        repo: RepoId,
        args: &[&str],
        stdin: Option<&[u8]>,
    ) -> Result<(i32, String, String), FakeRefusal> {
        let failed = |error: std::io::Error| FakeRefusal::Git(format!("git {}: {error}", args.join(" ")));
        let mut command = self.command();
        command.arg("--git-dir").arg(self.path(repo)).args(args);
        if stdin.is_some() {
            command.stdin(Stdio::piped());
        }
        let mut child = command.spawn().map_err(failed)?;
        let pipe = child.stdin.take();
        let feed = async {
            if let (Some(mut pipe), Some(bytes)) = (pipe, stdin) {
                // If git exits early, its standard error has the cause, so ignore the broken pipe.
                let _ = pipe.write_all(bytes).await;
            }
        };
        let ((), output) = tokio::join!(feed, child.wait_with_output());
        let output = output.map_err(failed)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr)))
    }

    /// Creates a bare repository whose `HEAD` is `branch`.
    pub async fn init(&self, repo: RepoId, branch: &str) -> Result<(), FakeRefusal> {
        let head = format!("--initial-branch={branch}");
        self.run(repo, &["init", "--bare", "--quiet", "--template=", &head], None).await.map(drop)
    }

    /// Sets the protected branches.
    pub fn protect(&self, repo: RepoId, branches: &[String]) -> std::io::Result<()> {
        std::fs::write(self.path(repo).join("protected-branches"), branches.join("\n") + "\n")
    }

    /// Sets the message for rejecting every push; `None` accepts pushes again.
    pub fn refuse_pushes(&self, repo: RepoId, words: Option<&str>) -> std::io::Result<()> {
        self.set_rule(repo, "push-refusal", words)
    }

    /// Sets the text that push protection treats as a secret; `None` for none.
    pub fn protect_secret(&self, repo: RepoId, secret: Option<&str>) -> std::io::Result<()> {
        self.set_rule(repo, "secrets", secret)
    }

    fn set_rule(&self, repo: RepoId, file: &str, text: Option<&str>) -> std::io::Result<()> {
        let path = self.path(repo).join(file);
        match text {
            Some(text) => std::fs::write(path, format!("{text}\n")),
            None => std::fs::remove_file(path),
        }
    }

    /// Commits files on top of a branch, or of `onto` for a new branch; returns the new commit.
    pub async fn commit(
        &self,
        repo: RepoId,
        branch: &str,
        onto: Option<&Sha>,
        by: &Signature<'_>,
        message: &str,
        files: &[FileChange<'_>],
    ) -> Result<Sha, FakeRefusal> {
        let seconds = by.at.0.div_euclid(1000);
        let mut stream = format!("feature done\ncommit refs/heads/{branch}\n");
        stream += &format!("committer {0} <{0}@example.invalid> {seconds} +0000\n", by.name);
        stream += &format!("data {}\n{message}\n", message.len());
        if let Some(onto) = onto {
            stream += &format!("from {onto}\n");
        }
        for (path, content, executable) in files {
            match content {
                None => stream += &format!("D {path}\n"),
                Some(content) => {
                    let mode = if *executable { "100755" } else { "100644" };
                    stream += &format!("M {mode} inline {path}\ndata {}\n{content}\n", content.len());
                }
            }
        }
        stream += "done\n";
        self.run(repo, &["fast-import", "--quiet", "--force"], Some(stream.as_bytes())).await?;
        let tip = self.branch(repo, branch).await?;
        tip.ok_or_else(|| FakeRefusal::Git(format!("branch {branch} is missing after the import")))
    }

    /// Whether a repository has no branch.
    pub fn is_empty(&self, repo: RepoId) -> bool {
        let mut branches = BTreeMap::new();
        let read = loose_refs(&self.path(repo).join("refs/heads"), "", &mut branches);
        read.is_err() || branches.is_empty()
    }

    /// Returns all branches with their head commits, sorted by name.
    pub async fn branches(&self, repo: RepoId) -> Result<Vec<(String, Sha)>, FakeRefusal> {
        let path = self.path(repo);
        let read = move || {
            let mut branches = BTreeMap::new();
            loose_refs(&path.join("refs/heads"), "", &mut branches).map(|()| branches.into_iter().collect())
        };
        let failed = |error: String| FakeRefusal::Git(format!("branches of {repo}: {error}"));
        let branches = tokio::task::spawn_blocking(read).await.map_err(|error| failed(error.to_string()))?;
        branches.map_err(|error| failed(error.to_string()))
    }

    /// Returns the head commit of a branch.
    pub async fn branch(&self, repo: RepoId, branch: &str) -> Result<Option<Sha>, FakeRefusal> {
        // Branches are never packed here, so each branch is a file.
        let inside = Path::new(branch).components().all(|part| matches!(part, Component::Normal(_)));
        let file = self.path(repo).join("refs/heads").join(branch);
        Ok(if inside {
            tokio::fs::read_to_string(file).await.ok().and_then(|text| Sha::parse(text.trim()))
        } else {
            None
        })
    }

    /// Resolves a branch, tag or (short) commit id.
    pub async fn resolve(&self, repo: RepoId, name: &str) -> Result<Option<Sha>, FakeRefusal> {
        if let Some(tip) = self.branch(repo, name).await? {
            return Ok(Some(tip));
        }
        let commit = format!("{name}^{{commit}}");
        let args = ["rev-parse", "--verify", "--quiet", "--end-of-options", &commit];
        let (code, stdout, _) = self.run_any(repo, &args, None).await?;
        Ok(if code == 0 { Sha::parse(&stdout) } else { None })
    }

    /// Copies a branch to another repository; `*` means all branches.
    pub async fn copy(&self, from: RepoId, branch: &str, to: RepoId, as_branch: &str) -> Result<(), FakeRefusal> {
        let refspec = format!("+refs/heads/{branch}:refs/heads/{as_branch}");
        let path = self.path(from).to_string_lossy().into_owned();
        self.run(to, &["fetch", "--quiet", &path, &refspec], None).await.map(drop)
    }

    /// Moves a branch, or deletes it with `None`.
    pub async fn set_branch(&self, repo: RepoId, branch: &str, to: Option<&Sha>) -> Result<(), FakeRefusal> {
        let name = format!("refs/heads/{branch}");
        match to {
            Some(to) => self.run(repo, &["update-ref", &name, to.as_str()], None).await.map(drop),
            None => self.run(repo, &["update-ref", "-d", &name], None).await.map(drop),
        }
    }

    /// Returns the text of a file at a commit.
    pub async fn file_at(&self, repo: RepoId, commit: &str, path: &str) -> Result<Option<String>, FakeRefusal> {
        let name = format!("{commit}:{path}");
        let (code, stdout, _) = self.run_any(repo, &["cat-file", "blob", &name], None).await?;
        Ok((code == 0).then_some(stdout))
    }

    /// Returns the paths directly in a folder at a commit, each with its type `dir` or `file`; `None` if the folder does not
    /// exist.
    pub async fn entries_in(
        &self,
        repo: RepoId,
        commit: &str,
        folder: &str,
    ) -> Result<Option<Vec<(String, &'static str)>>, FakeRefusal> {
        let name = format!("{commit}:{folder}");
        let (code, stdout, _) = self.run_any(repo, &["ls-tree", &name], None).await?;
        let entry = |line: &str| {
            let (data, name) = line.split_once('\t')?;
            let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
            Some((path, if data.contains(" tree ") { "dir" } else { "file" }))
        };
        Ok((code == 0).then(|| stdout.lines().filter_map(entry).collect()))
    }

    /// Whether `old` is an ancestor of `new`.
    pub async fn is_ancestor(&self, repo: RepoId, old: &Sha, new: &Sha) -> Result<bool, FakeRefusal> {
        let args = ["merge-base", "--is-ancestor", old.as_str(), new.as_str()];
        Ok(self.run_any(repo, &args, None).await?.0 == 0)
    }

    /// Returns the newest `most` commits of `to` that are not in `from`, oldest first.
    pub async fn commits(
        &self,
        repo: RepoId,
        from: Option<&Sha>,
        to: &Sha,
        most: usize,
    ) -> Result<Vec<PushedCommit>, FakeRefusal> {
        let range = from.map_or_else(|| to.to_string(), |from| format!("{from}..{to}"));
        let most = format!("--max-count={most}");
        let format = "--format=%H%x1f%T%x1f%an%x1f%ae%x1f%ct%x1f%B%x1e";
        let list = self.run(repo, &["log", &most, format, &range], None).await?;
        let mut commits: Vec<PushedCommit> = list.split('\u{1e}').filter_map(parse_commit).collect();
        commits.reverse();
        Ok(commits)
    }

    /// Returns the diff between a merge base and a head.
    pub async fn diff(&self, repo: RepoId, from: &Sha, to: &Sha) -> Result<String, FakeRefusal> {
        let args = ["diff", "--no-ext-diff", "--no-color", from.as_str(), to.as_str()];
        self.run(repo, &args, None).await
    }

    /// Returns changed files with their added and removed lines and git's status letters.
    pub async fn changed_files(
        &self,
        repo: RepoId,
        from: &Sha,
        to: &Sha,
    ) -> Result<Vec<(String, u64, u64, char)>, FakeRefusal> {
        let args = ["diff", "--no-renames", "--raw", "--numstat", from.as_str(), to.as_str()];
        let output = self.run(repo, &args, None).await?;
        // First, one line per file like `:100644 100644 1f2e3d4 4d5e6f7 M<TAB>path`, then one line per file like
        // `3<TAB>1<TAB>path`, in the same order.
        let (raw, counted): (Vec<&str>, Vec<&str>) = output.lines().partition(|line| line.starts_with(':'));
        let parse = |(counts, raw): (&&str, &&str)| {
            let mut counts = counts.split('\t');
            let added = counts.next()?.parse().unwrap_or(0);
            let removed = counts.next()?.parse().unwrap_or(0);
            let status = raw.split('\t').next()?.chars().last()?;
            Some((counts.next()?.to_owned(), added, removed, status))
        };
        Ok(counted.iter().zip(&raw).filter_map(parse).collect())
    }

    /// Returns the facts of a pull request between two branches.
    pub async fn pull_facts(&self, repo: RepoId, head: &str, base: &str) -> Result<PullFacts, FakeRefusal> {
        let branches = self.branches(repo).await?;
        let tip = |name: &str| {
            let found = branches.iter().find(|(known, _)| known == name).map(|(_, sha)| sha.clone());
            found.ok_or_else(|| FakeRefusal::NotFound(format!("branch {name}")))
        };
        let (head, base) = (tip(head)?, tip(base)?);
        let key = (repo, base.clone(), head.clone());
        let known = self.compared.lock().ok().and_then(|compared| compared.get(&key).cloned());
        if let Some(facts) = known {
            return Ok(facts);
        }
        let facts = self.compare(repo, head, base).await?;
        if let Ok(mut compared) = self.compared.lock() {
            compared.insert(key, facts.clone());
        }
        Ok(facts)
    }

    async fn compare(&self, repo: RepoId, head_sha: Sha, base_sha: Sha) -> Result<PullFacts, FakeRefusal> {
        let (_, common, _) = self.run_any(repo, &["merge-base", base_sha.as_str(), head_sha.as_str()], None).await?;
        let merge_base = Sha::parse(&common);
        let range = format!("{base_sha}..{head_sha}");
        let commits = self.run(repo, &["rev-list", "--count", &range], None).await?.trim().parse().unwrap_or(0);
        let files = match &merge_base {
            Some(from) => self.changed_files(repo, from, &head_sha).await?,
            None => Vec::new(),
        };
        let mergeable = merge_base.is_some() && self.merged_tree(repo, &base_sha, &head_sha).await?.is_some();
        Ok(PullFacts {
            mergeable,
            commits,
            additions: files.iter().map(|file| file.1).sum(),
            deletions: files.iter().map(|file| file.2).sum(),
            changed_files: files.len() as u64,
            head_sha,
            base_sha,
            merge_base,
        })
    }

    /// Returns the tree of a merge; `None` if there are conflicts.
    async fn merged_tree(&self, repo: RepoId, ours: &Sha, theirs: &Sha) -> Result<Option<String>, FakeRefusal> {
        let args = ["merge-tree", "--write-tree", "--no-messages", ours.as_str(), theirs.as_str()];
        let (code, stdout, stderr) = self.run_any(repo, &args, None).await?;
        match code {
            0 => Ok(stdout.lines().next().map(str::to_owned)),
            1 => Ok(None),
            _ => Err(FakeRefusal::Git(format!("git merge-tree: {stderr}"))),
        }
    }

    /// Creates the commit of a merge without moving the branch; `None` if there are conflicts.
    pub async fn merge(
        &self,
        repo: RepoId,
        method: MergeMethod,
        facts: &PullFacts,
        by: &Signature<'_>,
        message: &str,
    ) -> Result<Option<Sha>, FakeRefusal> {
        let (base, head) = (&facts.base_sha, &facts.head_sha);
        match method {
            MergeMethod::FastForward => Ok(self.is_ancestor(repo, base, head).await?.then(|| head.clone())),
            MergeMethod::Merge | MergeMethod::Squash => {
                let Some(tree) = self.merged_tree(repo, base, head).await? else { return Ok(None) };
                let second = (method == MergeMethod::Merge).then_some(head);
                self.commit_tree(repo, &tree, base, second, by, message).await.map(Some)
            }
            MergeMethod::Rebase => {
                let mut tip = base.clone();
                for commit in self.commits(repo, Some(base), head, facts.commits as usize).await? {
                    let author = Signature { name: &commit.author, at: commit.at };
                    // A commit on the parent with the tip's files makes the parent the merge base, because git 2.39 lacks
                    // `merge-tree --merge-base`.
                    let names = [format!("{tip}^{{tree}}"), format!("{}^", commit.sha)];
                    let found = self.run(repo, &["rev-parse", &names[0], &names[1]], None).await?;
                    let (tip_tree, parent) = found.trim().split_once('\n').unwrap_or_default();
                    let onto = self.commit_tree(repo, tip_tree, &Sha::new(parent), None, &author, "Merge base").await?;
                    let tree = self.merged_tree(repo, &onto, &commit.sha).await?;
                    let Some(tree) = tree else { return Ok(None) };
                    tip = self.commit_tree(repo, &tree, &tip, None, &author, &commit.message).await?;
                }
                Ok(Some(tip))
            }
        }
    }

    async fn commit_tree(
        &self,
        repo: RepoId,
        tree: &str,
        parent: &Sha,
        second: Option<&Sha>,
        by: &Signature<'_>,
        message: &str,
    ) -> Result<Sha, FakeRefusal> {
        // `hash-object` needs no identity in the configuration or environment.
        let who = format!("{0} <{0}@example.invalid> {1} +0000", by.name, by.at.0.div_euclid(1000));
        let second = second.map(|second| format!("parent {second}\n")).unwrap_or_default();
        let text = format!("tree {tree}\nparent {parent}\n{second}author {who}\ncommitter {who}\n\n{message}\n");
        let sha = self.run(repo, &["hash-object", "-t", "commit", "-w", "--stdin"], Some(text.as_bytes())).await?;
        Sha::parse(&sha).ok_or_else(|| FakeRefusal::Git(format!("git hash-object printed {sha:?}")))
    }
}

/// Adds the refs below a folder. Each ref is a separate file, because the fake forge never packs refs.
fn loose_refs(folder: &Path, prefix: &str, refs: &mut BTreeMap<String, Sha>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            loose_refs(&entry.path(), &format!("{name}/"), refs)?;
        } else if let Some(sha) = std::fs::read_to_string(entry.path()).ok().and_then(|text| Sha::parse(text.trim())) {
            // A lock file is not a ref: its name ends in `.lock`, which branch names must not.
            if !name.ends_with(".lock") {
                refs.insert(name, sha);
            }
        }
    }
    Ok(())
}

/// Merge method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeMethod {
    /// A merge commit.
    Merge,
    /// Squashed commit.
    Squash,
    /// Rebased commits.
    Rebase,
    /// Fast-forward.
    FastForward,
}

fn parse_commit(record: &str) -> Option<PushedCommit> {
    let fields: Vec<&str> = record.trim_start().splitn(6, '\u{1f}').collect();
    let [sha, tree, author, email, seconds, message] = fields[..] else { return None };
    Some(PushedCommit {
        sha: Sha::parse(sha)?,
        tree: Sha::parse(tree)?,
        message: message.trim_end().to_owned(),
        author: author.to_owned(),
        email: email.to_owned(),
        at: Timestamp(seconds.parse::<i64>().ok()? * 1000),
    })
}
