//! Scripts that prepare a trap in the work tree for the service's git. A marker that only the service could create is the canary.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ralph_bot::clock::Clock;
use ralph_bot::domain::model::ids::{ForgeName, LoopId, RepoId, RepoRef, Sha};
use ralph_bot::domain::trust::outbound::OutboundFilter;
use ralph_bot::process::sandbox::{SandboxMechanism, SandboxSettings, SandboxView, ScratchHome};
use ralph_bot::process::{self, ProcessSpec, Sandbox, SandboxTier};
use ralph_bot::workspace::{
    ClearRequest, CommitInfo, CommitRequest, GitUrl, PrepareTree, PushRequest, WorkspaceSettings, Workspaces,
};
use tokio_util::sync::CancellationToken;

use super::machine::Script;
use super::traps::FURTHER_TRAPS;
use crate::harness::other_user::goes_on_confined;
use crate::harness::parts::{command, output};
use crate::harness::sandbox;

/// Scripts: the row, a name, and the agent's command. `$TRAP` is a command that creates the marker if the service runs it. Each ends with its own change.
const TRAPS: &[Script] = &[
    Script("g1", "fsmonitor", "git config core.fsmonitor \"$TRAP\"; echo 1 >a"),
    Script(
        "g1",
        "fsmonitor-of-worktree",
        "git config extensions.worktreeConfig true; git config --worktree core.fsmonitor \"$TRAP\"; echo 1 >a",
    ),
    Script(
        "g2",
        "clean",
        "git config filter.x.clean \"$TRAP\"; git config filter.x.smudge \"$TRAP\"; echo '* filter=x' >.gitattributes; echo 1 >a",
    ),
    Script(
        "g2",
        "process",
        "git config filter.x.process \"$TRAP\"; git config filter.x.required true; echo '* filter=x' >.git/info/attributes; echo 1 >a",
    ),
    Script(
        "g2",
        "lfs",
        "git config filter.lfs.clean \"$TRAP\"; git config filter.lfs.process \"$TRAP\"; echo '* filter=lfs diff=lfs merge=lfs' >.gitattributes; echo 1 >a",
    ),
    Script(
        "g3",
        "textconv",
        "git config diff.x.textconv \"$TRAP\"; git config diff.x.command \"$TRAP\"; echo '* diff=x' >.gitattributes; echo 1 >a; echo 2 >README.md",
    ),
    Script(
        "g3",
        "external",
        "git config diff.external \"$TRAP\"; export GIT_EXTERNAL_DIFF=\"$TRAP\"; echo 2 >README.md",
    ),
    Script(
        "g4",
        "hooks",
        "for h in pre-commit post-commit commit-msg pre-push reference-transaction post-index-change post-checkout; do printf '#!/bin/sh\\n%s\\n' \"$TRAP\" >.git/hooks/$h 2>/dev/null || { mkdir -p .git/hooks; printf '#!/bin/sh\\n%s\\n' \"$TRAP\" >.git/hooks/$h; }; chmod +x .git/hooks/$h; done; echo 1 >a",
    ),
    Script(
        "g4",
        "hooks-path",
        "mkdir h; printf '#!/bin/sh\\n%s\\n' \"$TRAP\" >h/pre-push; cp h/pre-push h/reference-transaction; chmod +x h/*; git config core.hooksPath $PWD/h; echo 1 >a",
    ),
    Script(
        "g5",
        "git-file",
        "rm -rf .git; mkdir e; git init -q --bare e/r; git -C e/r config core.fsmonitor \"$TRAP\"; echo 'gitdir: e/r' >.git; echo 1 >a",
    ),
    Script("g5", "git-link", "mv .git e; git --git-dir=e config core.fsmonitor \"$TRAP\"; ln -s e .git; echo 1 >a"),
    Script("g5", "no-git", "rm -rf .git; echo 1 >a"),
    Script(
        "g6",
        "bare-repository",
        "mkdir n; git init -q --bare n/HEADless; (cd n && git init -q --bare . && git config core.fsmonitor \"$TRAP\"); echo 1 >a",
    ),
    Script(
        "g6",
        "nested-repository",
        "git init -q sub; git -C sub config core.fsmonitor \"$TRAP\"; git -C sub config filter.x.clean \"$TRAP\"; echo '* filter=x' >sub/.gitattributes; echo 1 >sub/a",
    ),
    // Git looks into a repository that became an entry of the index.
    Script(
        "g6",
        "nested-repository-with-a-commit",
        "git init -q sub; git -C sub -c user.name=x -c user.email=x@x commit -q --allow-empty -m x; git -C sub config core.fsmonitor \"$TRAP\"; echo 1 >sub/a; echo 1 >a",
    ),
    // A folder that is a bare repository, with a work tree by its settings.
    Script(
        "g6",
        "bare-repository-with-a-tree",
        "mkdir n; git init -q --bare n; git --git-dir=n config core.bare false; git --git-dir=n config core.worktree $PWD; git --git-dir=n config core.fsmonitor \"$TRAP\"; echo 1 >a",
    ),
    Script(
        "g7",
        "helpers",
        "git config credential.helper \"!$TRAP\"; git config core.sshCommand \"$TRAP\"; git config core.gitProxy \"$TRAP\"; git config url.ext::sh.insteadOf file; git config remote.origin.uploadpack \"$TRAP\"; git config core.pager \"$TRAP\"; git config core.editor \"$TRAP\"; git config gpg.program \"$TRAP\"; git config commit.gpgsign true; echo 1 >a",
    ),
    Script(
        "g7",
        "includes",
        "printf '[core]\\n\\tfsmonitor = %s\\n' \"$TRAP\" >inc; git config include.path $PWD/inc; cp inc ~/.gitconfig; echo 1 >a",
    ),
    Script(
        "g7",
        "aliases",
        "git config alias.commit-tree \"!$TRAP\"; git config alias.add \"!$TRAP\"; git config alias.write-tree \"!$TRAP\"; echo 1 >a",
    ),
    Script(
        "g8",
        "submodule",
        "printf '[submodule \"x\"]\\n\\tpath = x\\n\\turl = ext::sh -c %%x\\n\\tupdate = !%s\\n' \"$TRAP\" >.gitmodules; git init -q x; git -C x -c user.name=x -c user.email=x@x commit -q --allow-empty -m x; echo 1 >a",
    ),
    Script(
        "g8",
        "submodule-names",
        "printf '[submodule \"../../x\"]\\n\\tpath = x\\r\\n\\turl = -u./payload\\n' >.gitmodules; git init -q x; echo 1 >a",
    ),
    Script(
        "g9",
        "links",
        "ln -s /etc/shadow shadow; ln -s $CANARY link; ln -s .. up; mkdir d; ln -s /etc d/etc; echo 1 >a",
    ),
    Script(
        "g9",
        "links-in-place-of-files",
        "rm -f README.md; ln -s $CANARY README.md; rm -rf src; ln -s /etc src; echo 1 >a",
    ),
    Script("g9", "links-in-place-of-git", "rm -rf .git; ln -s $SERVICE .git; echo 1 >a"),
    Script(
        "g10",
        "special-files",
        "mkfifo pipe; ln README.md hard; perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => \"s\", Listen => 1)'; echo 1 >a",
    ),
    Script("g10", "sparse", "truncate -s 1T large; echo 1 >a"),
    Script("g10", "names", "touch -- '-rf' 'a\n b' '..x' $'\\xff'; mkdir -p '.. '; echo 1 >'.. /x'; echo 1 >a"),
    Script("g10", "deep", "d=; for n in $(seq 1 300); do mkdir d; cd d || break; done; echo 1 >x; cd $TREE; echo 1 >a"),
    Script(
        "g10",
        "deepest",
        "perl -e 'for (1..4096) { mkdir \"d\" or die $!; chdir \"d\" or die $! } open(F, \">\", \"x\"); print F 1'; echo 1 >a",
    ),
    Script("g10", "unreadable", "echo 1 >u; chmod 000 u; mkdir v; echo 1 >v/x; chmod 000 v; echo 1 >a"),
    Script("g10", "many", "mkdir m; for n in $(seq 1 3000); do : >m/$n; done; echo 1 >a"),
    Script("g10", "alternates", "echo $SERVICE >>.git/objects/info/alternates; git config core.worktree /; echo 1 >a"),
    Script("g10", "locks", "touch .git/index.lock .git/HEAD.lock; git update-ref refs/heads/main HEAD; echo 1 >a"),
];

/// Returns the number of traps.
pub fn scripts() -> usize {
    TRAPS.len() + FURTHER_TRAPS.len()
}

/// Service with one repository.
pub(super) struct TrapWorld {
    pub(super) folder: tempfile::TempDir,
    pub(super) workspaces: Workspaces,
    pub(super) repo: RepoRef,
    pub(super) access: GitUrl,
    mechanism: SandboxMechanism,
}

impl TrapWorld {
    pub(super) async fn new(mechanism: SandboxMechanism) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let script = "git init -q --bare -b main forge.git && git init -q -b main human && cd human && mkdir src && \
                      echo hello >README.md && echo x >src/x && git add -A && git commit -qm first && \
                      git push -q ../forge.git main";
        let mut human = command("/bin/sh");
        for role in ["AUTHOR", "COMMITTER"] {
            human.env(format!("GIT_{role}_NAME"), "Human").env(format!("GIT_{role}_EMAIL"), "human@forge.example");
        }
        output(human.args(["-c", script]).current_dir(folder.path())).await;
        let settings = WorkspaceSettings {
            root: folder.path().join("state"),
            pool: 1,
            committer_name: "ralph-bot".into(),
            committer_email: "bot@forge.example".into(),
            authors: Default::default(),
            signing: None,
            protected: Vec::new(),
            outbound: OutboundFilter::default(),
            submodule_hosts: Vec::new(),
        };
        let workspaces = Workspaces::open(settings, Clock::System).expect("it opens");
        let access = GitUrl {
            url: format!("file://{}/forge.git", folder.path().display()),
            credential: None,
            settling: Default::default(),
        };
        let repo = RepoRef { forge: ForgeName::new("gh"), id: RepoId(7), owner: "o".into(), name: "n".into() };
        fs::write(folder.path().join("canary"), "canary-in-a-file").expect("written");
        Self { folder, workspaces, repo, access, mechanism }
    }

    fn marker(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("marker-{name}"))
    }

    async fn run(&self, loop_id: &LoopId, tree: &Path, Script(_, name, script): Script) {
        let view = self.workspaces.agent_view(loop_id, &self.repo);
        let home = self.folder.path().join("home");
        fs::create_dir_all(&home).expect("made");
        let marker = self.marker(name);
        let mut spec = ProcessSpec::new("/bin/bash", tree).args(["-c", script]).env("PATH", "/usr/bin:/bin");
        spec = spec.env("TRAP", format!("touch {}", marker.display())).env("TREE", tree);
        spec = spec.env("CANARY", self.folder.path().join("canary")).env("SERVICE", self.folder.path().join("state"));
        spec.sandbox = Sandbox::of(SandboxView {
            writable: vec![view.tree],
            read_only: view.read_only,
            home: ScratchHome::Folder(home),
            settings: SandboxSettings { mechanism: self.mechanism.clone(), ..SandboxSettings::default() },
            ..SandboxView::default()
        });
        spec.limits.wall = Duration::from_secs(60);
        process::run(spec, &CancellationToken::new(), None).await.expect("it runs");
    }

    pub(super) async fn commit(&self, loop_id: &LoopId, parent: &Sha) -> CommitInfo {
        let message = OutboundFilter::default().message("work", &[], &[]);
        let request = CommitRequest {
            loop_id,
            repo: &self.repo,
            parent,
            merge_parent: None,
            message: &message,
            base: parent,
            protected_base: parent,
            extra_protected: &[],
            named: None,
            set_aside: None,
        };
        self.workspaces.commit(request).await.expect("committed")
    }
}

/// See docs/research/threats.md#g1, docs/research/threats.md#g2, docs/research/threats.md#g3, docs/research/threats.md#g4, docs/research/threats.md#g5, docs/research/threats.md#g6,
/// docs/research/threats.md#g7, docs/research/threats.md#g8, docs/research/threats.md#g9 and docs/research/threats.md#g10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traps_in_the_tree_do_not_trigger() {
    if sandbox().await.tier == SandboxTier::A {
        traps_catch_nothing(SandboxMechanism::Bubblewrap).await;
    }
}

/// The same in a sandbox without namespaces (tier B).
///
/// See docs/research/threats.md#g1, docs/research/threats.md#g2, docs/research/threats.md#g3, docs/research/threats.md#g4, docs/research/threats.md#g5, docs/research/threats.md#g6,
/// docs/research/threats.md#g7, docs/research/threats.md#g8, docs/research/threats.md#g9 and docs/research/threats.md#g10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traps_in_the_tree_do_not_trigger_without_namespaces() {
    if goes_on_confined("scripts::git::traps_in_the_tree_do_not_trigger_without_namespaces") {
        traps_catch_nothing(SandboxMechanism::Landlock(env!("CARGO_BIN_EXE_ralph-bot").into())).await;
    }
}

async fn traps_catch_nothing(mechanism: SandboxMechanism) {
    let world = TrapWorld::new(mechanism).await;
    let (workspaces, repo) = (&world.workspaces, &world.repo);
    for (number, script) in TRAPS.iter().chain(FURTHER_TRAPS).enumerate() {
        let Script(row, name, _) = *script;
        let (loop_id, branch) = (LoopId::new(format!("r-{number}-aaaaaa")), format!("ralph/{number}"));
        let request = PrepareTree {
            fork: None,
            loop_id: &loop_id,
            repo,
            access: &world.access,
            base_branch: "main",
            branch: &branch,
            resume_at: None,
            partial: false,
        };
        let info = workspaces.prepare(request).await.expect("prepared");
        world.run(&loop_id, &info.dir, *script).await;
        let done = world.commit(&loop_id, &info.head).await;
        let head = done.commit.unwrap_or_else(|| panic!("{row} {name}: its own change is not committed"));
        assert!(!done.diff.contains("canary-in-a-file") && !done.diff.contains("root:"), "{row} {name}: {}", done.diff);
        let checkout = workspaces.clean_checkout(&loop_id, repo, &head).await.expect("checked out");
        workspaces.release_checkout(checkout).await.expect("released");
        let (base, pushed) = (Some(&info.head), None);
        let clear = ClearRequest { loop_id: &loop_id, repo, branch: &branch, commit: &head, base, pushed };
        // A name with control characters is not pushed.
        if let Ok(cleared) = workspaces.clear(clear).await.expect("scanned") {
            let push = PushRequest {
                loop_id: &loop_id,
                repo,
                access: &world.access,
                branch: &branch,
                commit: &cleared,
                expected: None,
            };
            workspaces.push(push).await.expect("pushed");
        }
        workspaces.salvage(&loop_id, repo).await.expect("salvaged");
        workspaces.reset(&loop_id, repo, &info.head).await.expect("reset");
        workspaces.release(&loop_id, repo).await.expect("released");
        assert!(!world.marker(name).exists(), "{row} {name}: the service ran it");
        let canary = fs::read_to_string(world.folder.path().join("canary")).expect("it is there");
        assert_eq!(canary, "canary-in-a-file", "{row} {name}");
    }
}

/// Traps that run their command if a service works with the git directory that is in the tree. The others only mislead it.
const OBEYED: [&str; 24] = [
    "fsmonitor",
    "fsmonitor-of-worktree",
    "clean",
    "process",
    "lfs",
    "textconv",
    "hooks",
    "hooks-path",
    "git-link",
    "nested-repository-with-a-commit",
    "bare-repository-with-a-tree",
    "helpers",
    "includes",
    "included-by-condition",
    "refreshed-index",
    "common-folder",
    "attributes-file",
    "merge-driver",
    "attributes-of-folders",
    "further-hooks",
    "absolute-git-file",
    "signatures",
    "remotes",
    "environment-files",
];
/// A repository, and what such a service does with it after the trap is laid.
const NAIVE: &str = r#"
export GIT_TERMINAL_PROMPT=0
mkdir tree && cd tree && git init -q -b main . && git config user.name x && git config user.email x@x && mkdir src || exit
echo 1 >src/x; echo 1 >README.md; git add -A; git commit -qm 1
git checkout -q -b theirs; echo 3 >README.md; git commit -qam 2; git checkout -q main
git init -q --bare ../forge.git; git remote add origin ../forge.git; git push -q origin main
bash -c "$SCRIPT"
for step in 'add -A' status 'diff HEAD' 'commit -qm x' 'log -p -1' 'log --show-signature -1' 'fetch origin' 'merge --no-edit theirs' \
    'push origin HEAD:refs/heads/y' '-C n status'; do timeout 5 git $step </dev/null; done
exit 0
"#;

/// Without the service's own directory, git obeys the tree's repository: the traps are real.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traps_trigger_without_the_defences() {
    if sandbox().await.tier != SandboxTier::A {
        return;
    }
    for Script(_, name, script) in TRAPS.iter().chain(FURTHER_TRAPS).filter(|script| OBEYED.contains(&script.1)) {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("home")).expect("made");
        let mut spec = ProcessSpec::new("/bin/bash", folder.path()).args(["-c", NAIVE]).env("PATH", "/usr/bin:/bin");
        spec = spec.env("SCRIPT", script).env("TRAP", format!("touch {}", at("marker").display()));
        spec = spec.env("TREE", at("tree")).env("CANARY", at("canary")).env("SERVICE", at("service"));
        spec.sandbox = Sandbox::of(SandboxView {
            writable: vec![folder.path().to_owned()],
            home: ScratchHome::Folder(at("home")),
            ..SandboxView::default()
        });
        spec.limits.wall = Duration::from_secs(60);
        let done = process::run(spec, &CancellationToken::new(), None).await.expect("it runs");
        assert!(at("marker").exists(), "{name} is no trap: {:?} {}", done.ended, done.stderr.text());
    }
}

/// Files that a run leaves in its home and in temporary folders do not exist in the next one.
///
/// See docs/research/threats.md#g18.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_run_finds_only_the_tree() {
    if sandbox().await.tier != SandboxTier::A {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (first, second) = (
        "echo left >/tmp/left; echo left >/dev/shm/left; echo left >~/left; echo left >>/run/left; git config core.x left",
        "cat /tmp/left /dev/shm/left ~/left /run/left; ls -A /tmp /dev/shm ~",
    );
    let mut seen = String::new();
    for script in [first, second] {
        let mut spec = ProcessSpec::new("/bin/bash", folder.path()).args(["-c", script]).env("PATH", "/usr/bin:/bin");
        spec.sandbox = Sandbox::of(SandboxView { writable: vec![folder.path().to_owned()], ..SandboxView::default() });
        seen = process::run(spec, &CancellationToken::new(), None).await.expect("it runs").stdout.text();
    }
    assert!(!seen.contains("left"), "{seen}");
}
