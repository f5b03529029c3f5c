//! Conditions that hold at the end of every story, whatever happened in it.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use ralph_bot::domain::lifecycle::{self, Loop, State};
use ralph_bot::domain::model::ids::{LoopId, Number, Sha};
use ralph_bot::fake::{Op, OpKind};
use ralph_bot::store::{Store, inbox, loops};

use super::setup::SECRET;
use super::world::World;

/// The invariants that hold at rest, whatever happened, of a service in this process.
pub async fn oracle(world: &World) {
    invariants(world, &world.engine().store, &world.engine().instance, !world.live).await;
}

/// The invariants that hold at rest, whatever happened: read from the forge, the database and the process list.
/// `quiet` says that nothing is under way.
pub async fn invariants(world: &World, store: &Store, instance: &str, quiet: bool) {
    let all = store.read(|c| loops::list(c, false, 1000)).await.expect("loops");
    // Every accepted delivery came to an end that is told.
    for (state, count) in store.read(inbox::counts).await.expect("inbox") {
        assert!(state != "new" || !quiet || count == 0, "{count} deliveries wait for ever");
        assert!(state != "dead", "{count} deliveries were given up");
    }
    // One open loop an issue.
    let mut open: Vec<_> = all.iter().filter(|l| l.state.is_open()).map(|l| l.place.key()).collect();
    open.sort();
    let before = open.len();
    open.dedup();
    assert_eq!(open.len(), before, "an issue has two open loops");
    assert_forge(world);
    assert_branches(world, &all);
    let kept = commits_kept(world).await;
    for current in &all {
        // The row is what the log makes of it.
        let id: LoopId = current.id.clone();
        let log = store.read(move |c| loops::history(c, &id)).await.expect("history");
        let replayed = lifecycle::replay(log.into_iter().map(|l| (l.at, l.input)));
        assert_eq!(replayed.as_ref(), Some(current), "the log does not rebuild the loop");
        // What was recorded as pushed is what the forge has, unless somebody else moved it.
        if let Some(commit) = &current.pushed {
            let there = world.forge.branch_sha(world.repo, &current.branch).await;
            assert!(
                there.is_none_or(|sha| sha == *commit) || current.state != LoopState::Review,
                "the branch is elsewhere"
            );
        }
        // No recorded commit is lost.
        for iteration in current.iterations.iter().filter(|i| current.state.is_open() && !i.discarded) {
            let commit = iteration.commit.as_ref().map_or("", Sha::as_str);
            assert!(commit.is_empty() || kept.contains(commit), "iteration {} is lost: {commit}", iteration.number);
        }
        // Nothing of an ended loop is left on the disk.
        if !current.state.is_open() {
            let tree = world.folder.path().join("data/trees").join(current.id.as_str());
            assert!(!tree.exists(), "the tree of an ended loop is left: {}", tree.display());
        }
    }
    // No process of ours is left, where nothing runs.
    if quiet {
        let left = ralph_bot::process::survivors(instance);
        assert!(left.is_empty(), "processes are left: {left:?}");
    }
    no_secret(world.folder.path(), &world.forge.token_for(&world.bot));
}

/// One comment a loop and key; one open pull request a branch.
fn assert_forge(world: &World) {
    let numbers: Vec<Number> = world.forge.with(|s| s.repo(world.repo).expect("repo").issues.keys().copied().collect());
    for number in numbers {
        let mut markers: Vec<String> = Vec::new();
        for body in world.bot_says_on(number) {
            let found = body.lines().rev().find(|l| l.starts_with("<!-- ralph:1 ")).map(str::to_owned);
            let marker = found.unwrap_or_else(|| panic!("a comment without a marker on #{number}: {body}"));
            assert!(
                !markers.contains(&marker) || marker.contains(" status "),
                "a comment stands twice on #{number}: {body}"
            );
            markers.push(marker);
        }
    }
    // The service never merges or approves.
    let judged = |op: &Op| op.actor.id == world.bot.id && matches!(op.kind, OpKind::PullMerged | OpKind::Reviewed);
    let judged: Vec<Op> = world.forge.ops().into_iter().filter(judged).collect();
    assert!(judged.is_empty(), "the service judged its own work: {judged:?}");
    // At most one open escalation for each loop and cause.
    let mut causes: Vec<String> = Vec::new();
    for number in world.escalations() {
        let body = world.issue_of(number).body;
        let marker = body.lines().rev().find(|line| line.starts_with("<!-- ralph:1 "));
        let marker = marker.unwrap_or_else(|| panic!("an escalation without a marker: {body}")).to_owned();
        assert!(!causes.contains(&marker), "an escalation is open twice: {body}");
        causes.push(marker);
    }
    let branches: Vec<String> =
        world.forge.with(|s| s.pulls(world.repo).iter().filter(|(i, _)| i.open).map(|(_, p)| p.head.clone()).collect());
    let mut unique = branches.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), branches.len(), "a branch has two open pull requests");
}

/// Asserts that a branch was force-pushed only over commits of the service itself, and only after a `/ralph retry`.
fn assert_branches(world: &World, all: &[Loop]) {
    let kinds = [OpKind::BranchPushed, OpKind::BranchForced, OpKind::BranchDeleted];
    let mut last: HashMap<String, Op> = HashMap::new();
    for op in world.forge.ops().into_iter().filter(|op| op.repo == world.repo && kinds.contains(&op.kind)) {
        let branch = op.detail.split(' ').next().unwrap_or_default().to_owned();
        if op.actor.id == world.bot.id && op.kind != OpKind::BranchPushed {
            let before = last.get(&branch);
            assert!(before.is_some_and(|before| before.actor.id == op.actor.id), "over {before:?}: {op:?}");
            let of = all.iter().find(|l| l.branch == branch);
            let retried = of.is_some_and(|l| l.iterations.iter().any(|i| i.discarded));
            assert!(op.kind == OpKind::BranchDeleted || retried, "nobody asked for it: {op:?}");
        }
        last.insert(branch, op);
    }
}

/// Commits that some branch of the forge or some ref of the service's mirrors leads to.
async fn commits_kept(world: &World) -> HashSet<String> {
    let mirrors = std::fs::read_dir(world.folder.path().join("data/mirrors")).into_iter().flatten().flatten();
    let mut kept = HashSet::new();
    for repository in mirrors.map(|entry| entry.path()).chain([world.forge.repo_path(world.repo)]) {
        let mut git = tokio::process::Command::new("git");
        let output = git.arg("-C").arg(&repository).args(["rev-list", "--all"]).output().await.expect("git runs");
        kept.extend(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned));
    }
    kept
}

/// No file of the service holds the forge's token or the webhook's secret.
fn no_secret(folder: &Path, token: &str) {
    let either = format!("{}|{}", regex::escape(token), regex::escape(SECRET));
    let secret = regex::bytes::Regex::new(&either).expect("a pattern");
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(path),
                Ok(kind) if kind.is_file() => {
                    let bytes = std::fs::read(&path).unwrap_or_default();
                    assert!(!secret.is_match(&bytes), "a secret is in {}", path.display());
                }
                _ => {}
            }
        }
    }
}
