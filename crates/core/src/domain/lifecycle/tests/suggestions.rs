//! Suggested changes: they are applied before the agent runs and answered after the push, or become guidance if they cannot be
//! applied.

use super::*;

fn remark(comment: i64, text: &str) -> (String, Guidance) {
    let remark = Guidance {
        who: "maja".into(),
        source: GuidanceSource::Review,
        text: text.into(),
        path: Some("a.txt:2".into()),
        remember: false,
    };
    (remark_key(CommentId(comment)), remark)
}

fn suggested(comment: i64) -> SuggestedChange {
    SuggestedChange {
        comment: CommentId(comment),
        by: user("maja"),
        path: "a.txt".into(),
        lines: CommentedLines { first: 2, last: 2, commit: sha(9) },
        text: "2\n".into(),
        remark: remark(comment, "suggestion").1,
    }
}

impl LoopRun {
    /// Returns a review with these suggestions, and with an ordinary remark for each of `others`.
    fn suggests(&mut self, suggestions: &[i64], others: &[i64]) -> &mut Self {
        let items = suggestions.iter().chain(others).map(|comment| remark(*comment, "words")).collect();
        let suggestions = suggestions.iter().map(|comment| suggested(*comment)).collect();
        self.tell(CommandInput::Reviewed { by: user("maja"), items, suggestions })
    }

    fn applied(&mut self, applied: &[i64], failed: &[i64]) -> &mut Self {
        self.commits += 1;
        let made = sha(100 + self.commits);
        let change = IterationChange {
            commit: (!applied.is_empty()).then(|| made.clone()),
            tree: made,
            stat: DiffStat::default(),
            branch_stat: None,
            restored: Vec::new(),
            findings: Vec::new(),
            branch_findings: None,
            conflict_markers: Vec::new(),
            blocked: None,
            set_aside: Vec::new(),
            refused: Vec::new(),
            bytes: 0,
            binary_bytes: 0,
            objective_cosine: None,
        };
        let applied = applied.iter().map(|comment| CommentId(*comment)).collect();
        let failed = failed.iter().map(|comment| (CommentId(*comment), "the lines changed".to_owned())).collect();
        let ticket = self.current.run.ticket;
        self.tell(LoopInput::Outcome {
            ticket,
            outcome: WorkOutcome::SuggestionsApplied { change: Box::new(change), applied, failed },
        })
    }

    fn asked_to_apply(&self) -> Vec<i64> {
        let changes = self.effects.iter().find_map(|effect| match effect {
            Effect::Work(WorkEffect::ApplySuggestions { changes, .. }) => Some(changes),
            _ => None,
        });
        changes.into_iter().flatten().map(|change| change.comment.0).collect()
    }
}

#[test]
fn suggestions_are_applied_without_an_agent_and_answered_after_the_push() {
    let mut run = LoopRun::in_state(LoopState::Review);
    run.suggests(&[7, 8], &[]).is(LoopState::Queued, LoopStep::Idle);
    assert!(
        run.current.requests.guidance.is_empty()
            && run.has(|e| matches!(e, Effect::Forge(ForgeEffect::ReactToRemark { .. })))
    );
    run.working().is(LoopState::Running, LoopStep::Commit);
    assert_eq!(run.asked_to_apply(), [7, 8]);
    run.applied(&[7, 8], &[]).is(LoopState::Running, LoopStep::Push);
    assert!(
        !run.has(|e| matches!(e, Effect::Forge(ForgeEffect::AnswerRemark { .. }))),
        "the forge does not have the commit"
    );
    run.pushed();
    let commit = run.current.branch.head.clone().expect("a head");
    for comment in [7, 8] {
        let answer = Effect::Forge(ForgeEffect::AnswerRemark {
            comment: CommentId(comment),
            commit: commit.clone(),
            applied: true,
            again: 0,
        });
        assert!(run.effects.contains(&answer), "{comment}");
    }
    run.checked(true).is(LoopState::Running, LoopStep::Verify);
    run.checked(true).is(LoopState::Review, LoopStep::Idle);
    assert_eq!(run.current.current().map(|last| last.kind), Some(IterationKind::Suggestions));
}

#[test]
fn change_that_does_not_apply_is_a_remark_for_the_agent() {
    let mut run = LoopRun::in_state(LoopState::Review);
    run.suggests(&[7, 8], &[9]).working().applied(&[7], &[8]).pushed();
    assert!(run.current.requests.suggestions.is_empty());
    run.checked(true).is(LoopState::Running, LoopStep::Agent);
    let texts: Vec<&str> = run.current.current().expect("open").guidance.iter().map(|one| one.text.as_str()).collect();
    assert_eq!(
        texts,
        ["words", "suggestion\n\n(The service could not apply the suggestion as it is: the lines changed.)"]
    );
}

#[test]
fn inapplicable_suggestions_are_left_to_agent() {
    let mut run = LoopRun::in_state(LoopState::Review);
    run.suggests(&[7], &[]).working().applied(&[], &[7]).is(LoopState::Running, LoopStep::Check);
    run.checked(true).is(LoopState::Running, LoopStep::Agent);
}

#[test]
fn suggestion_during_an_application_is_applied_next() {
    let mut run = LoopRun::in_state(LoopState::Review);
    run.suggests(&[7], &[]).working().suggests(&[8], &[]).applied(&[7], &[]);
    assert_eq!(run.current.requests.suggestions.len(), 1);
    run.pushed().checked(true).is(LoopState::Running, LoopStep::Commit);
    assert_eq!(run.asked_to_apply(), [8]);
}

#[test]
fn suggestion_during_a_run_waits_for_its_end() {
    let mut run = LoopRun::in_state(LoopState::Running);
    run.suggests(&[7], &[]).is(LoopState::Running, LoopStep::Agent);
    run.iteration(true).is(LoopState::Running, LoopStep::Commit);
    assert_eq!(run.asked_to_apply(), [7]);
    // The same remark again is not applied twice.
    run.suggests(&[7], &[]);
    assert_eq!(run.current.requests.suggestions.len(), 1);
}

#[test]
fn stored_review_without_suggestions_is_read() {
    let stored = serde_json::json!({"input": "reviewed", "by": user("maja"), "items": []});
    assert!(matches!(
        serde_json::from_value(stored),
        Ok(LoopInput::Command(CommandInput::Reviewed { suggestions, .. })) if suggestions.is_empty()
    ));
}

#[test]
fn retry_applies_the_suggestions_of_the_discarded_iteration_again() {
    let mut run = LoopRun::in_state(LoopState::Review);
    run.suggests(&[7], &[]).working().applied(&[7], &[]).pushed().checked(true).checked(true);
    run.is(LoopState::Review, LoopStep::Idle);
    let parent = run.current.current().expect("an iteration").parent.clone();
    run.command(LoopCommand::Retry(command::Retry)).is(LoopState::Queued, LoopStep::Idle);
    assert!(run.reasons.join(" ").contains("its suggested changes are applied again"), "{:?}", run.reasons);
    assert_eq!(run.current.branch.head, Some(parent));
    run.suggests(&[8], &[]).working().is(LoopState::Running, LoopStep::Commit);
    assert_eq!(run.asked_to_apply(), [7, 8]);
    run.applied(&[7, 8], &[]).pushed();
    let (commit, number) = (run.current.branch.head.clone().expect("a head"), run.current.spent.iterations);
    for (comment, again) in [(7, number), (8, 0)] {
        let answer = Effect::Forge(ForgeEffect::AnswerRemark {
            comment: CommentId(comment),
            commit: commit.clone(),
            applied: true,
            again,
        });
        assert!(run.effects.contains(&answer), "{comment}: {:?}", run.effects);
    }
    run.checked(true).checked(true).is(LoopState::Review, LoopStep::Idle);
    assert!(run.current.requests.suggestions.is_empty());
    assert_eq!(replay(run.log.clone()).as_ref(), Some(&run.current));
}

#[test]
fn suggestion_that_a_restoration_undoes_is_applied_again_after_a_resume() {
    let mut run = LoopRun::with(|start| start.policy.limits.iterations = IterationLimit::of(2));
    run.working().iteration(true).checked(true).checked(true).is(LoopState::Review, LoopStep::Idle);
    run.suggests(&[7], &[]).working().applied(&[7], &[]).pushed();
    // The change breaks the check, and the limit is reached.
    run.checked(false).is(LoopState::Running, LoopStep::Restore);
    let ticket = run.current.run.ticket;
    run.tell(LoopInput::Outcome {
        ticket,
        outcome: WorkOutcome::Restored { commit: Some(sha(500)), retained_as: None },
    })
    .pushed();
    run.is(LoopState::LimitReached, LoopStep::Idle);
    assert!(run.current.why.contains("suggested changes are applied when the loop continues"), "{}", run.current.why);
    let more = RunOptions { max_iterations: Some(IterationLimit::of(4)), ..RunOptions::default() };
    run.command(LoopCommand::Resume(command::Resume { options: more, guidance: String::new() })).working();
    assert_eq!(run.asked_to_apply(), [7]);
    assert_eq!(replay(run.log.clone()).as_ref(), Some(&run.current));
}

#[test]
fn suggestion_after_a_second_opinion_is_not_undone_by_handing_over() {
    let mut run = LoopRun::with(|start| {
        start.policy.limits.iterations = IterationLimit::of(3);
        start.policy.review = second_opinion::review();
    });
    run.working().iteration(true).checked(true);
    let answer = second_opinion::answer(OpinionVerdict::Changes, &["x"]);
    let commit = run.current.branch.head.clone().expect("a head");
    let given = OpinionRun::free(commit, "judge", answer);
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::SecondOpinionGiven { run: Box::new(given) },
    });
    run.is(LoopState::Running, LoopStep::Agent);
    run.suggests(&[7], &[]).iteration(false).is(LoopState::Running, LoopStep::Commit);
    run.applied(&[7], &[]).pushed().checked(false);
    run.is(LoopState::Running, LoopStep::Restore);
    let ticket = run.current.run.ticket;
    run.tell(LoopInput::Outcome {
        ticket,
        outcome: WorkOutcome::Restored { commit: Some(sha(500)), retained_as: None },
    })
    .pushed();
    run.is(LoopState::LimitReached, LoopStep::Idle);
    assert_eq!(run.current.requests.suggestions.len(), 1, "a person asked for it");
}
