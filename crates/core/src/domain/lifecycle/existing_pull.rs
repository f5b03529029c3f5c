//! Start of a loop on an existing pull request. Conflicts with the base, failed CI and requests of people become the work of the
//! first iterations. Without any of them, the loop ends before an agent runs.

use super::{StepContext, ci};
use crate::domain::loops::{
    AcceptedFindings, BranchFinding, BranchMerge, FoundBranch, LoopState, MergeWith, PullProblems, check_names,
};
use crate::domain::model::ids::Sha;

/// Turns the problems of the pull request into work. Returns `false` if the loop ended, because there are none or the branch no
/// longer exists.
pub(super) fn begins(turn: &mut StepContext, problems: PullProblems) -> bool {
    let (Some(head), Some(base)) = (turn.next.branch.pushed.clone(), turn.next.branch.base.clone()) else {
        let why = format!("the branch `{}` of the pull request no longer exists", turn.next.branch.name);
        turn.next.branch.base = None;
        turn.end(LoopState::Closed, &why);
        return false;
    };
    let PullProblems { conflict, failed, on_base, pending } = problems;
    let (ci, failures) = ci::partition(&head, &failed, &on_base);
    let has_wishes = turn.next.knowledge.planning.as_ref().is_some_and(|planning| !planning.wishes.is_empty());
    if !conflict && failures.is_empty() && !turn.next.requests.has_open() && !has_wishes {
        let why = nothing_to_do(&turn.next.branch.base_branch, &ci.on_base, pending);
        turn.end(LoopState::Closed, &why);
        return false;
    }
    if let Some(existing) = &mut turn.next.pull.existing {
        existing.found = Some(FoundBranch { head, base });
    }
    turn.next.branch.merge = conflict.then_some(BranchMerge::wanted(MergeWith::Base));
    turn.next.requests.guidance.extend(failures);
    turn.next.pull.failed_ci = Some(ci).filter(|ci| !ci.names.is_empty() || !ci.on_base.is_empty());
    true
}

fn nothing_to_do(base: &str, on_base: &[String], pending: u32) -> String {
    let red = match on_base {
        [] => "no failed CI".to_owned(),
        names => format!("no failed CI except {}, which fails on `{base}` as well", check_names(names)),
    };
    let running = match pending {
        0 => String::new(),
        1 => " (1 check has not finished)".to_owned(),
        count => format!(" ({count} checks have not finished)"),
    };
    format!("the pull request has no conflict with `{base}`, {red}{running}, and no open review remark")
}

/// Stores the findings about tests in the commits that the loop found. They count as accepted, because the author of the pull
/// request made these changes.
pub(super) fn tests_found(turn: &mut StepContext, commit: Sha, findings: Vec<BranchFinding>) {
    turn.because(format!("{} changes of tests were in the pull request before", findings.len()));
    let by = turn.next.task.author.as_ref().map_or("the author of the pull request", |author| &author.login);
    let accepted = AcceptedFindings { by: by.to_owned(), at: turn.now, commit: Some(commit), findings };
    turn.next.checks.guard.accepted.push(accepted);
}
