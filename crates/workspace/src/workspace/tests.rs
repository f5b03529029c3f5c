//! Tests of work trees with git, with bare repositories as the forge and a shell as the agent.
#![expect(clippy::disallowed_methods, reason = "the tests play the forge and the agent with processes of their own")]

mod assets;
mod conventions;
mod durability;
mod environment;
mod handover;
mod http;
mod lifecycle;
mod mischief;
mod recovery;
mod sharing;

use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;
use crate::domain::model::ids::{ForgeName, LoopId, RepoId, RepoRef, Sha, Timestamp};
use crate::domain::trust::outbound::{ClearedCommit, CommitText, Outbound, OutboundFilter};
use crate::process::executable;

const BRANCH: &str = "ralph/42-fix";

/// Folder of the service, a bare repository as the forge, and a person's clone.
struct WorkspaceWorld {
    folder: tempfile::TempDir,
    workspaces: Workspaces,
    repo: RepoRef,
    access: GitUrl,
    loop_id: LoopId,
}

fn settings(root: &Path, pool: usize) -> WorkspaceSettings {
    WorkspaceSettings {
        root: root.to_path_buf(),
        pool,
        committer_name: "ralph-bot".into(),
        committer_email: "bot@forge.example".into(),
        authors: Default::default(),
        signing: None,
        // Without the rule for all dot-files, so that tests can write some.
        protected: crate::domain::trust::protected::PROTECTED_PATHS[1..]
            .iter()
            .copied()
            .chain([".gitea/workflows/**", ".gitmodules"])
            .chain(ralph_agents::agent::presets::protected_paths())
            .map(str::to_owned)
            .collect(),
        outbound: OutboundFilter::default(),
        submodule_hosts: Vec::new(),
    }
}

/// Runs a command and returns its output; panics if it fails.
fn run(dir: &Path, program: &str, args: &[&str]) -> String {
    const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
    // A program that is looked up by name is forked, which takes long in a large process.
    let file = executable(Path::new(program), dir, PATH.as_ref()).unwrap();
    let output = Command::new(file)
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", PATH)
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "maintenance.auto")
        .env("GIT_CONFIG_VALUE_0", "false")
        .env("GIT_AUTHOR_NAME", "Human")
        .env("GIT_AUTHOR_EMAIL", "human@forge.example")
        .env("GIT_COMMITTER_NAME", "Human")
        .env("GIT_COMMITTER_EMAIL", "human@forge.example")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?} in {}: {stderr}", dir.display());
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn git(dir: &Path, args: &[&str]) -> String {
    run(dir, "git", args)
}

fn sh(dir: &Path, script: &str) -> String {
    run(dir, "sh", &["-ec", script])
}

impl WorkspaceWorld {
    fn new() -> Self {
        Self::with_pool(1)
    }

    fn with_pool(pool: usize) -> Self {
        fake_forge::temporary_in_memory();
        let folder = tempfile::tempdir().unwrap();
        sh(
            folder.path(),
            "git init -q --bare -b main forge.git
             git --git-dir=forge.git config uploadpack.allowFilter true
             git --git-dir=forge.git config uploadpack.allowAnySHA1InWant true
             git init -q -b main human; cd human
             mkdir -p src .github/workflows
             echo 'fn main() {}' >src/main.rs; echo hello >README.md
             echo 'on: push' >.github/workflows/ci.yml; printf 'target/\\n*.log\\n' >.gitignore
             git add -A; git commit -qm first
             git remote add origin ../forge.git; git push -q origin main",
        );
        let workspaces = Self::service(folder.path(), pool);
        let access = GitUrl {
            url: format!("file://{}/forge.git", folder.path().display()),
            credential: None,
            settling: Default::default(),
        };
        let repo = RepoRef { forge: ForgeName::new("gh"), id: RepoId(7), owner: "o".into(), name: "n".into() };
        Self { folder, workspaces, repo, access, loop_id: LoopId::new("r-42-abcdef") }
    }

    fn service(folder: &Path, pool: usize) -> Workspaces {
        Workspaces::open(settings(&folder.join("state"), pool), Clock::manual(Timestamp(1_700_000_000_000))).unwrap()
    }

    /// Restarts the service without its memory, as after a crash.
    fn restart(&mut self) {
        self.workspaces = Self::service(self.folder.path(), 1);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn mirror(&self) -> PathBuf {
        self.workspaces.layout.mirror(&self.repo)
    }

    fn store(&self) -> PathBuf {
        self.workspaces.layout.tree(&self.loop_id, &self.repo).store
    }

    fn tree(&self) -> PathBuf {
        self.workspaces.tree_dir(&self.loop_id, &self.repo)
    }

    fn request(&self) -> PrepareTree<'_> {
        PrepareTree {
            fork: None,
            loop_id: &self.loop_id,
            repo: &self.repo,
            access: &self.access,
            base_branch: "main",
            branch: BRANCH,
            resume_at: None,
            partial: false,
        }
    }

    async fn prepare(&self) -> TreeInfo {
        self.workspaces.prepare(self.request()).await.unwrap()
    }

    async fn commit(&self, parent: &Sha) -> CommitInfo {
        self.commit_with(parent, None).await
    }

    async fn commit_with(&self, parent: &Sha, merge_parent: Option<&Sha>) -> CommitInfo {
        let request = CommitRequest {
            loop_id: &self.loop_id,
            repo: &self.repo,
            parent,
            merge_parent,
            message: &Outbound::of_test("ralph: iteration 1: work\n\nMore."),
            base: merge_parent.unwrap_or(parent),
            protected_base: parent,
            extra_protected: &[],
            named: None,
            set_aside: None,
        };
        self.workspaces.commit(request).await.unwrap()
    }

    async fn push(&self, commit: &Sha, expected: Option<&Sha>) -> PushOutcome {
        let request = PushRequest {
            loop_id: &self.loop_id,
            repo: &self.repo,
            access: &self.access,
            branch: BRANCH,
            commit: &ClearedCommit::of_test(commit),
            expected,
        };
        self.workspaces.push(request).await.unwrap()
    }

    /// Commits to a branch of the forge as a person; returns the new head.
    fn human(&self, branch: &str, script: &str) -> Sha {
        let dir = self.path("human");
        git(&dir, &["fetch", "-q", "origin"]);
        git(&dir, &["checkout", "-q", "-B", branch, &format!("origin/{branch}")]);
        sh(&dir, script);
        git(&dir, &["add", "-A"]);
        git(&dir, &["commit", "-qm", "by hand"]);
        git(&dir, &["push", "-q", "-f", "origin", branch]);
        Sha::parse(&git(&dir, &["rev-parse", "HEAD"])).unwrap()
    }

    fn forge_tip(&self, branch: &str) -> Option<Sha> {
        let refs = git(&self.path("forge.git"), &["for-each-ref", "--format=%(objectname) %(refname:short)"]);
        refs.lines().find_map(|line| Sha::parse(line.strip_suffix(&format!(" {branch}"))?))
    }

    /// Returns the files of a commit in the mirror, with modes.
    fn files_of(&self, commit: &Sha) -> String {
        let list = git(&self.store(), &["ls-tree", "-r", "--format=%(objectmode) %(path)", commit.as_str()]);
        list.replace('\n', ", ")
    }

    fn content(&self, commit: &Sha, path: &str) -> String {
        git(&self.store(), &["show", &format!("{commit}:{path}")])
    }
}
