//! Changes that the forge refused permanently: they are reported once, and retried when a person asks for it.

use super::*;
use crate::domain::loops::{EscalationCause, ForgeChange};

impl LoopRun {
    fn change_refused(&mut self, change: ForgeChange, detail: &str) -> &mut Self {
        self.tell(ForgeInput::ChangeRefused { change, detail: detail.to_owned() })
    }

    fn warns(&self) -> bool {
        self.has(|effect| matches!(effect, Effect::Channel(ChannelEffect::Warn { .. })))
    }

    fn opens_pull(&self, as_ready: bool) -> bool {
        self.has(|effect| matches!(effect, Effect::Forge(ForgeEffect::Pull { ready, .. }) if *ready == as_ready))
    }
}

#[test]
fn refused_change_is_reported_once() {
    for change in ForgeChange::ALL.into_iter().filter(|change| *change != ForgeChange::OpenPull) {
        let mut run = LoopRun::in_state(LoopState::Review);
        run.change_refused(change, "do it: HTTP 403: request 1");
        assert!(
            run.warns() && run.has(|effect| matches!(effect, Effect::Forge(ForgeEffect::Status { fresh: false }))),
            "{change:?}"
        );
        assert_eq!(run.current.state, LoopState::Review, "{change:?}");
        run.change_refused(change, "do it: HTTP 403: request 2");
        assert!(run.effects.is_empty(), "{change:?}: {:?}", run.effects);
        assert_eq!(run.current.pull.refused.len(), 1);
        assert!(run.current.pull.refused[0].detail.ends_with("request 2"), "the newest answer is shown");
    }
}

#[test]
fn completed_change_is_no_longer_reported() {
    let mut run = LoopRun::in_state(LoopState::Review);
    run.change_refused(ForgeChange::ReadyPull, "no").change_refused(ForgeChange::StateLabel, "no");
    run.tell(ForgeInput::ChangeMade { change: ForgeChange::ReadyPull });
    assert!(run.has(|effect| matches!(effect, Effect::Forge(ForgeEffect::Status { .. }))));
    assert_eq!(run.current.pull.refused.iter().map(|one| one.change).collect::<Vec<_>>(), [ForgeChange::StateLabel]);
    run.tell(ForgeInput::ChangeMade { change: ForgeChange::ReadyPull });
    assert!(run.effects.is_empty());
}

#[test]
fn resume_in_review_repeats_the_refused_changes() {
    let mut run = LoopRun::in_state(LoopState::Review);
    run.change_refused(ForgeChange::ReadyPull, "no").change_refused(ForgeChange::StateLabel, "no");
    run.command(resume());
    assert!(run.opens_pull(true), "{:?}", run.effects);
    assert!(
        run.has(|effect| matches!(effect, Effect::Forge(ForgeEffect::StateLabel { state: Some(LoopState::Review) })))
    );
    assert!(run.current.state == LoopState::Review && run.current.pull.refused.is_empty());
    run.change_refused(ForgeChange::ReadyPull, "still no");
    assert!(run.warns(), "the person who tried again is told");
}

#[test]
fn loop_in_review_without_its_pull_request_pauses_and_asks() {
    let mut run = LoopRun::in_state(LoopState::Review);
    run.current.pull.opened = None;
    run.change_refused(ForgeChange::OpenPull, "open a pull request in acme/app: HTTP 403: no");
    assert_eq!(run.current.state, LoopState::Paused);
    assert!(run.current.why.contains("The bot could not open the pull request: the forge refused to open"));
    assert!(run.has(|effect| matches!(
        effect,
        Effect::Forge(ForgeEffect::Escalate { cause: EscalationCause::PullRefused, .. })
    )));
    // The question is refused as well: it is asked in the loop's own issue, once.
    run.change_refused(ForgeChange::Escalation, "open an issue: HTTP 403: no");
    let asked = |run: &LoopRun| {
        run.has(|effect| matches!(effect, Effect::Forge(ForgeEffect::Comment { key, .. }) if key.starts_with("escalation-refused/")))
    };
    assert!(asked(&run) && !run.has(|effect| matches!(effect, Effect::Forge(ForgeEffect::Escalate { .. }))));
    run.change_refused(ForgeChange::Escalation, "open an issue: HTTP 403: no")
        .change_refused(ForgeChange::OpenPull, "no");
    assert!(run.effects.is_empty() && run.current.state == LoopState::Paused);
    run.command(resume());
    assert!(run.current.state == LoopState::Queued && run.opens_pull(false) && run.current.pull.refused.is_empty());
}

#[test]
fn running_loop_that_cannot_ask_for_a_decision_pauses() {
    let mut run = LoopRun::in_state(LoopState::Running);
    run.change_refused(ForgeChange::Escalation, "open an issue: HTTP 403: no");
    let pauses = run.current.state == LoopState::Paused || run.current.run.halting.is_some();
    assert!(pauses, "{:?}", run.current.state);
}

#[test]
fn refusals_are_stored_and_loops_of_older_versions_have_none() {
    let mut run = LoopRun::in_state(LoopState::Review);
    let mut stored = serde_json::to_value(&run.current).expect("JSON");
    assert!(stored["pull"].get("refused").is_none());
    run.change_refused(ForgeChange::CommitStatus, "no");
    stored = serde_json::to_value(&run.current).expect("JSON");
    let read: Loop = serde_json::from_value(stored).expect("a loop");
    assert_eq!(read.pull.refused, run.current.pull.refused);
}
