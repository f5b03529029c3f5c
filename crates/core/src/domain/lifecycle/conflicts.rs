//! Merges of the base, or of pushed commits, into the loop's branch, and their conflicts. The agent resolves conflicts. A commit
//! that contains markers of the merge is not kept, so that it is never pushed. People are asked after two attempts.

use super::StepContext;
use super::handover::verify;
use super::next_iteration::{begin_iteration, next_iteration, open_own_iteration};
use super::remaining_work::{only_verification_is_left, unpushed};
use crate::domain::lifecycle::effect::WorkEffect;
use crate::domain::loops::{
    BranchMerge, EscalationCause, IterationKind, LoopStep, MergeInProgress, MergeWith, check_names,
};

/// Number of iterations in a row that may leave a conflict unresolved.
const ATTEMPTS: usize = 2;

/// Handles the end of a merge in the work tree. Conflicts are left to the agent. A merge without conflicts becomes a separate
/// iteration. If there was nothing to merge, the loop continues with its interrupted work.
pub(super) fn merged(turn: &mut StepContext, merge: MergeInProgress, up_to_date: bool) {
    if matches!(turn.next.branch.merge_wanted(), Some(MergeWith::Pushed(_))) {
        // The forge's branch already contains the merge.
        turn.next.branch.pushed = Some(merge.other.clone());
    }
    if up_to_date {
        turn.next.branch.merge = None;
        if let Some(commit) = unpushed(turn) {
            return turn.work(LoopStep::Push, |ticket| WorkEffect::Push { ticket, commit });
        }
        return if only_verification_is_left(&turn.next) { verify(turn) } else { begin_iteration(turn) };
    }
    if !merge.conflicts.is_empty() {
        let text = format!(
            "The work tree contains a merge with conflict markers in: {}. Resolve every conflict so that the intent of both sides is kept.",
            merge.conflicts.join(", ")
        );
        turn.tell_next_run(text);
    }
    let clean = merge.conflicts.is_empty();
    turn.next.branch.merge.get_or_insert(BranchMerge::wanted(MergeWith::Base)).progress = Some(merge);
    if !clean {
        return begin_iteration(turn);
    }
    // A clean merge needs no agent: the iteration is the merge commit and its checks.
    let Some(number) = open_own_iteration(turn, IterationKind::Merge) else { return };
    turn.work(LoopStep::Commit, |ticket| WorkEffect::Commit { ticket, iteration: number });
}

/// Ends a merge whose commit is the new head.
pub(super) fn finish_merge(turn: &mut StepContext) {
    let Some(BranchMerge { with, progress: Some(merging) }) =
        turn.next.branch.merge.take_if(|merge| merge.progress.is_some())
    else {
        return;
    };
    let merged = (with == MergeWith::Base).then_some(merging.other);
    if let Some(base) = merged.or(merging.base) {
        turn.next.branch.base = Some(base);
    }
}

/// Discards the commit of an iteration that left markers of the merge; `markers` has the files of the commit with markers. The
/// next iteration starts with the merge again; after two such iterations, asks people. Returns whether it discarded the commit.
pub(super) fn is_unresolved(turn: &mut StepContext, markers: &[String]) -> bool {
    let Some(merging) = turn.next.branch.merging().cloned() else { return false };
    let unresolved: Vec<String> = merging.conflicts.iter().filter(|path| markers.contains(path)).cloned().collect();
    if unresolved.is_empty() {
        return false;
    }
    let why = unresolved_words(turn, &merging, &unresolved);
    let Some(current) = turn.next.current_mut() else { return false };
    current.unresolved.clone_from(&unresolved);
    (current.commit, current.tree) = (None, None);
    let attempts = turn.next.iterations.iter().rev().take_while(|known| !known.unresolved.is_empty()).count();
    turn.next.agent.session = None;
    turn.next.branch.restart_merge();
    turn.close_open_iteration(&why);
    turn.tell_next_run(format!(
        "The last change was not kept, because these files still contained conflict markers: {}. Resolve all conflicts in one run.",
        unresolved.join(", ")
    ));
    if attempts < ATTEMPTS {
        turn.because(format!("{why}; the merge starts again"));
        next_iteration(turn);
        return true;
    }
    let (other, branch) = (other_words(turn), turn.next.branch.name.clone());
    let advice = format!(
        "there are two ways out. Merge {other} into `{branch}`, resolve the conflict, push, and comment `/ralph resume`. Or comment \
         `/ralph resume` with guidance on how to resolve it, and the agent tries again"
    );
    turn.pause_and_ask(&why, EscalationCause::Conflict, &advice);
    true
}

fn other_words(turn: &StepContext) -> String {
    match turn.next.branch.merge_wanted() {
        Some(MergeWith::Pushed(commit)) => format!("the pushed commit {}", commit.short()),
        Some(MergeWith::Base) | None => format!("`{}`", turn.next.branch.base_branch),
    }
}

/// Describes an unresolved conflict: the files, and the commit that caused it with its author.
fn unresolved_words(turn: &StepContext, merging: &MergeInProgress, files: &[String]) -> String {
    let cause = match &merging.cause {
        Some(cause) => format!(" (changed there by {} of {})", cause.commit.short(), cause.author),
        None => String::new(),
    };
    let other = other_words(turn);
    format!("the branch conflicts with {other} in {}{cause}, and the agent did not resolve it", check_names(files))
}
