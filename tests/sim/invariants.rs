//! Invariants of loops and world whenever no work is pending.

use std::collections::{BTreeMap, BTreeSet};

use ralph_bot::domain::loops::{Loop, LoopState};
use serde_json::json;

use crate::world::SimWorld;

/// Panics if an invariant is violated.
pub fn at_rest(world: &SimWorld, loops: &[Loop]) {
    let mut open = BTreeSet::new();
    for current in loops {
        let (id, issue) = (&current.id, current.issue.issue.0);
        assert!(!current.state.is_open() || open.insert(issue), "two open loops on #{issue}");
        assert!(
            !matches!(current.state, LoopState::Running | LoopState::Queued | LoopState::Waiting),
            "{id} waits for nothing"
        );
        let pulls = world.pulls.iter().filter(|p| p.open && p.branch == current.branch.name).count();
        assert!(pulls <= 1, "{pulls} pull requests of {id}");
        let newest = loops.iter().filter(|l| l.issue.issue.0 == issue).max_by_key(|l| l.created_at);
        if newest.is_some_and(|newest| newest.id == current.id) {
            let labels: Vec<_> = world.labels[&issue].iter().filter(|l| **l != "run").collect();
            assert_eq!(labels, [&current.state.as_str()], "state label of {id}");
        }
        let commented = |text: &str| world.comments.iter().any(|c| c.subject == id.as_str() && c.text == text);
        assert!(commented(current.state.as_str()), "no status comment says that {id} is {:?}", current.state);
        if !current.state.is_open() {
            assert!(!world.trees.contains_key(id), "the worktree of {id} was not removed");
            let open_escalations = world.escalations.iter().filter(|e| e.open && e.subject == id.as_str()).count();
            assert_eq!(open_escalations, 0, "escalations of {id} are still open");
        }
        if let (Some(head), LoopState::Review) = (&current.branch.head, current.state) {
            assert!(world.commits[head].clean, "{id} is in review with a commit that does not hold");
            assert_eq!(current.branch.verified.as_ref(), Some(head), "{id} is in review unverified");
        }
    }
    let mut keys = BTreeSet::new();
    for comment in &world.comments {
        let key = (&comment.subject, &comment.key, comment.on);
        assert!(keys.insert(key), "two comments {} of {}", comment.key, comment.subject);
    }
    let mut causes = BTreeSet::new();
    for open in world.escalations.iter().filter(|e| e.open) {
        assert!(causes.insert((&open.subject, &open.cause)), "two escalations {} of {}", open.cause, open.subject);
    }
    for (branch, theirs) in &world.others {
        if let Some(tip) = world.branches.get(branch) {
            assert!(world.holds(tip, theirs), "a commit of somebody else was lost from {branch}");
        }
    }
}

/// Returns the state that does not depend on timing: it must be equal with and without faults.
pub fn outcome(world: &SimWorld, loops: &[Loop]) -> serde_json::Value {
    let loops: BTreeMap<_, _> = loops
        .iter()
        .map(|l| {
            let iterations = l.iterations.iter();
            let iterations: Vec<_> = iterations
                .map(|i| json!([i.number, i.commit, i.parent, i.checks.all_hold(), i.discarded, i.cost, i.guidance]))
                .collect();
            let summary = json!({
                "state": l.state, "spent": [l.spent.iterations as i64, l.spent.cost.0], "iterations": iterations,
                "head": l.branch.head, "pushed": l.branch.pushed, "verified": l.branch.verified, "base": l.branch.base, "guidance": l.requests.guidance,
                "pull": l.pull.opened.is_some(), "merge": l.branch.merge_wanted(), "limits": l.limits, "escalated": l.run.escalated,
            });
            (l.id.to_string(), summary)
        })
        .collect();
    let pulls: Vec<_> = world.pulls.iter().map(|p| json!([p.branch, p.open, p.ready])).collect();
    let mut comments: BTreeMap<String, u32> = BTreeMap::new();
    for comment in &world.comments {
        let kind = comment.key.split('/').next().unwrap_or_default();
        *comments.entry(format!("{}/{kind}", comment.subject)).or_default() += 1;
    }
    let mut escalations: Vec<_> =
        world.escalations.iter().map(|e| format!("{} {} {}", e.subject, e.cause, e.open)).collect();
    escalations.sort();
    json!({
        "loops": loops, "branches": world.branches, "pulls": pulls, "comments": comments,
        "escalations": escalations, "labels": world.labels,
    })
}
