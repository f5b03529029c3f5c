//! Conditions that are true at the end of every story.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use fake_forge::{Access, FakeState, Op, OpKind};
use ralph_bot::domain::lifecycle;
use ralph_bot::domain::loops::{Loop, LoopState};
use ralph_bot::domain::model::ids::{LoopId, Number, Sha, Timestamp};
use ralph_bot::store::{Store, inbox, loops};

use super::setup::SECRET;
use super::world::World;

/// Asserts the invariants, read from the forge, the database and the process list. `idle` states that no work is in progress.
pub async fn assert_invariants(world: &World, store: &Store, instance: &str, idle: bool) {
    let all = store.read(|c| loops::list(c, false, 1000)).await.expect("loops");
    // Every accepted delivery was processed.
    for (state, count) in store.read(inbox::counts).await.expect("inbox") {
        assert!(state != "new" || !idle || count == 0, "{count} deliveries were not processed");
        assert!(state != "dead", "processing of {count} deliveries was given up");
    }
    // At most one open loop for each issue.
    let mut open: Vec<_> = all.iter().filter(|l| l.state.is_open()).map(|l| l.issue.key()).collect();
    open.sort();
    let before = open.len();
    open.dedup();
    assert_eq!(open.len(), before, "an issue has two open loops");
    assert_forge(world);
    assert_branches(world, &all);
    assert_authorized(world);
    let reachable = reachable_commits(world).await;
    for current in &all {
        // The stored loop equals the replay of its log.
        let id: LoopId = current.id.clone();
        let log = store.read(move |c| loops::history(c, &id)).await.expect("history");
        let replayed = lifecycle::replay(log.into_iter().map(|l| (l.at, l.input)));
        assert_eq!(replayed.as_ref(), Some(current), "replaying the log does not give the stored loop");
        // The forge has the commit that was recorded as pushed, unless a person moved the branch.
        if let Some(commit) = &current.branch.pushed {
            let sha = world.forge.branch_sha(world.repo, &current.branch.name).await;
            assert!(
                sha.is_none_or(|sha| sha == *commit) || current.state != LoopState::Review,
                "the branch is not at the pushed commit"
            );
        }
        // No recorded commit is lost.
        for iteration in current.iterations.iter().filter(|i| current.state.is_open() && !i.discarded) {
            let commit = iteration.commit.as_ref().map_or("", Sha::as_str);
            assert!(
                commit.is_empty() || reachable.contains(commit),
                "iteration {} is lost: {commit}",
                iteration.number
            );
        }
        // The worktree of an ended loop was removed.
        if !current.state.is_open() {
            let tree = world.folder.path().join("data/trees").join(current.id.as_str());
            assert!(!tree.exists(), "the worktree of an ended loop was not removed: {}", tree.display());
        }
    }
    // No child process of the service remains, and no turn of an agent that does not run.
    if idle {
        let running = "SELECT (SELECT count(*) FROM running_turns) + (SELECT count(*) FROM session_output)";
        let running: i64 = store.read(|c| Ok(c.query_row(running, [], |row| row.get(0))?)).await.expect("a number");
        assert_eq!(running, 0, "turns are kept as running");
        let processes = ralph_bot::process::survivors(instance);
        assert!(processes.is_empty(), "child processes remain: {processes:?}");
    }
    assert_no_secret(world.folder.path(), &world.forge.token_for(&world.bot));
}

/// Asserts one comment for each loop and key, one open escalation for each cause, and one open pull request for each
/// branch.
fn assert_forge(world: &World) {
    let numbers: Vec<Number> = world.forge.with(|s| s.repo(world.repo).expect("repo").issues.keys().copied().collect());
    for number in numbers {
        let mut markers: Vec<String> = Vec::new();
        for body in world.bot_comments_on(number) {
            let marker = body.lines().rev().find(|l| l.starts_with("<!-- ralph:1 ")).map(str::to_owned);
            let marker = marker.unwrap_or_else(|| panic!("a comment without a marker on #{number}: {body}"));
            assert!(
                !markers.contains(&marker) || marker.contains(" status "),
                "comment posted twice on #{number}: {body}"
            );
            markers.push(marker);
        }
    }
    // The service never judges, and lets the forge merge only where a person with write access asked for it last.
    let verdict = |op: &Op| {
        let merged = op.kind == OpKind::PullMerged && !merge_was_asked_for(world, op);
        let judged = op.kind == OpKind::Reviewed && !op.detail.starts_with("Commented");
        op.actor.id == world.bot.id && (merged || judged)
    };
    let verdicts: Vec<Op> = world.forge.ops().into_iter().filter(verdict).collect();
    assert!(verdicts.is_empty(), "the service reviewed or merged its own work: {verdicts:?}");
    // At most one open escalation for each loop and cause.
    let mut causes: Vec<String> = Vec::new();
    for number in world.escalations() {
        let body = world.issue_of(number).body;
        let marker = body.lines().rev().find(|line| line.starts_with("<!-- ralph:1 "));
        let marker = marker.unwrap_or_else(|| panic!("an escalation without a marker: {body}")).to_owned();
        assert!(!causes.contains(&marker), "two open escalations for one cause: {body}");
        causes.push(marker);
    }
    let branches: Vec<String> =
        world.forge.with(|s| s.pulls(world.repo).iter().filter(|(i, _)| i.open).map(|(_, p)| p.head.clone()).collect());
    let mut unique = branches.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), branches.len(), "a branch has two open pull requests");
}

/// Asserts that the service changed branches, and had pull requests merged, only within a minute after it asked the forge for
/// somebody's permission.
///
/// See docs/research/faults.md#inv9 and docs/research/threats.md#p4.
fn assert_authorized(world: &World) {
    const LATEST_MS: i64 = 60_000;
    let asked: Vec<_> = world
        .forge
        .requests()
        .into_iter()
        .filter(|r| r.path.ends_with("/permission") && r.path.contains("/collaborators/"))
        .filter(|r| matches!(r.status, Some(200 | 304)))
        .map(|r| r.at)
        .collect();
    let ops = world.forge.ops();
    let is_ordered = |op: &Op| {
        op.kind == OpKind::PullMerged
            && ops.iter().any(|order| order.kind == OpKind::AutoMergeEnabled && order.number == op.number)
    };
    let kinds = [OpKind::BranchPushed, OpKind::BranchForced, OpKind::PullMerged, OpKind::AutoMergeEnabled];
    let of_bot = ops.iter().filter(|op| op.actor.id == world.bot.id && op.repo == world.repo);
    // The permission was checked at the request; the forge merges when its own conditions hold.
    for op in of_bot.filter(|op| kinds.contains(&op.kind) && !is_ordered(op)) {
        let is_fresh = |at: &Timestamp| (0..=LATEST_MS).contains(&(op.at.0 - at.0));
        assert!(asked.iter().any(is_fresh), "nobody's permission was asked within a minute before {op:?}: {asked:?}");
    }
}

/// Asserts that a branch was force-pushed only over commits of the service itself, and only after a `/ralph retry`.
fn assert_branches(world: &World, all: &[Loop]) {
    let kinds = [OpKind::BranchPushed, OpKind::BranchForced, OpKind::BranchDeleted];
    let mut last: HashMap<String, Op> = HashMap::new();
    for op in world.forge.ops().into_iter().filter(|op| op.repo == world.repo && kinds.contains(&op.kind)) {
        let branch = op.detail.split(' ').next().unwrap_or_default().to_owned();
        if op.actor.id == world.bot.id && op.kind != OpKind::BranchPushed {
            let before = last.get(&branch);
            assert!(
                before.is_some_and(|before| before.actor.id == op.actor.id),
                "commits of somebody else were overwritten: {before:?}, then {op:?}"
            );
            let of = all.iter().find(|l| l.branch.name == branch);
            let retried = of.is_some_and(|l| l.iterations.iter().any(|i| i.discarded));
            assert!(op.kind == OpKind::BranchDeleted || retried, "forced without a retry: {op:?}");
        }
        last.insert(branch, op);
    }
}

/// Whether the last command about merging before a merge, by a person with write access, asked for it.
fn merge_was_asked_for(world: &World, merge: &Op) -> bool {
    let may_write = |op: &Op| {
        let access = |state: &mut FakeState| state.repo(op.repo).map(|repo| state.access(repo, Some(op.actor.id)));
        op.actor.id != world.bot.id && world.forge.with(access).is_ok_and(|access| access >= Access::Write)
    };
    let ops = world.forge.ops();
    let before = ops.iter().filter(|op| op.at_seq < merge.at_seq && op.repo == merge.repo);
    let mut commands =
        before.filter(|op| op.kind == OpKind::CommentCreated && op.detail.starts_with("/ralph merge-when-ready"));
    commands.rfind(|op| may_write(op)).is_some_and(|last| !last.detail.trim_end().ends_with("off"))
}

/// Commits reachable from a ref of the forge's repository, or of a mirror or a loop's store of the service.
async fn reachable_commits(world: &World) -> HashSet<String> {
    let data = world.folder.path().join("data");
    let entries = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let stores = entries(data.join("loops")).flat_map(entries);
    let repositories = entries(data.join("mirrors")).chain(stores).filter(|path| path.is_dir());
    let mut reachable = HashSet::new();
    for repository in repositories.chain([world.forge.repo_path(world.repo)]) {
        let mut git = tokio::process::Command::new("git");
        let output = git.arg("-C").arg(&repository).args(["rev-list", "--all"]).output().await.expect("git runs");
        reachable.extend(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned));
    }
    reachable
}

/// Asserts that no file of the service contains the forge's token or the webhook's secret.
fn assert_no_secret(folder: &Path, token: &str) {
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
                    assert!(!secret.is_match(&bytes), "{} contains a secret", path.display());
                }
                _ => {}
            }
        }
    }
}
