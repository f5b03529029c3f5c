//! Waits that end without a person, and sessions that the next run resumes.

use super::*;
use crate::domain::providers::money::Cumulative;
use crate::domain::report::view::View;

const HOUR_MS: i64 = 3_600_000;

impl LoopRun {
    /// Rate-limits the agent's run, so that the loop waits until `until`.
    fn limited(&mut self, until: Timestamp) -> &mut Self {
        self.agent(AgentEnd::Limited { until: Some(until), reason: "quota".into() });
        self.is(LoopState::Waiting, LoopStep::Idle);
        assert!(self.has(|e| *e == Effect::Timer(TimerEffect::Set { kind: TimerKind::Reactivate, at: until })));
        self
    }

    fn out_of_money(&mut self, until: Option<Timestamp>) -> &mut Self {
        self.agent(AgentEnd::NoMoney { reason: "the service's budget for the day is $5.00".into(), until })
    }

    /// Advances the time to the end of the wait, so that the next run starts.
    fn awake(&mut self, at: Timestamp) -> &mut Self {
        self.now = at.plus_ms(-1000);
        self.tell(TimerInput::TimerDue { timer: TimerKind::Reactivate }).is(LoopState::Queued, LoopStep::Idle);
        self.working()
    }

    /// Returns the notice about a wait in this step: the person that it mentions, if any.
    fn told(&self) -> Option<Option<&str>> {
        let mut notices = self.effects.iter().filter_map(|effect| match effect {
            Effect::Forge(ForgeEffect::Comment { view, .. }) => match &**view {
                View::Waiting(view) => Some(view.mention.as_deref()),
                _ => None,
            },
            _ => None,
        });
        let first = notices.next();
        assert_eq!(notices.next(), None, "one comment at most");
        first
    }

    fn after(&self, ms: i64) -> Timestamp {
        self.now.plus_ms(1000 + ms)
    }
}

#[test]
fn daily_budget_wait_mentions_no_account() {
    let mut run = LoopRun::in_state(LoopState::Running);
    let midnight = run.after(9 * HOUR_MS);
    run.out_of_money(Some(midnight)).is(LoopState::Waiting, LoopStep::Idle);
    assert_eq!(run.told(), Some(None), "told, and nobody in particular");
    assert!(!run.has(|e| matches!(e, Effect::Forge(ForgeEffect::Escalate { .. }))), "{:?}", run.effects);
    assert!(run.current.why.contains("budget for the day") && run.current.why.contains("UTC"), "{}", run.current.why);
    assert_eq!((run.current.spent.iterations, run.current.iterations.len()), (0, 0));
    run.awake(midnight).is(LoopState::Running, LoopStep::Agent);
    // The next day the budget is spent again before anything ran: part of the same wait.
    let next = run.after(24 * HOUR_MS);
    run.out_of_money(Some(next)).is(LoopState::Waiting, LoopStep::Idle);
    assert_eq!(run.told(), None);
    run.awake(next).iteration(false);
    assert_eq!(run.current.run.wait, None);
    run.out_of_money(Some(run.after(HOUR_MS)));
    assert_eq!(run.told(), Some(None), "another wait");
    // The loop's own budget does not renew itself.
    let mut run = LoopRun::in_state(LoopState::Running);
    run.out_of_money(None).is(LoopState::LimitReached, LoopStep::Idle);
    assert!(run.escalates("limit_money"));
    // A wait stored by an older version has no start time.
    let old: AgentEnd = serde_json::from_str(r#"{"end":"no_money","reason":"x"}"#).expect("readable");
    assert_eq!(old, AgentEnd::NoMoney { reason: "x".into(), until: None });
}

#[test]
fn requested_pause_precedes_wait() {
    let mut run = LoopRun::in_state(LoopState::Running);
    run.command(LoopCommand::Pause(command::Pause { now: false, reason: String::new() }));
    run.out_of_money(Some(run.after(HOUR_MS))).is(LoopState::Paused, LoopStep::Idle);
    assert_eq!(run.told(), None);
}

#[test]
fn requester_is_notified_of_long_wait_once() {
    // At once, where it is known to be long.
    let mut run = LoopRun::in_state(LoopState::Running);
    run.limited(run.after(HOUR_MS + 1));
    assert_eq!(run.told(), Some(Some("maja")));
    // An hour is not more than an hour.
    let mut run = LoopRun::in_state(LoopState::Running);
    let first = run.after(HOUR_MS);
    run.limited(first);
    assert_eq!(run.told(), Some(None));
    // Later, where it becomes long bit by bit; and once.
    let mut ends = first;
    for (told, minutes) in [(Some(Some("maja")), 5), (None, 600), (None, 5)] {
        run.awake(ends);
        ends = run.after(minutes * 60_000);
        run.limited(ends);
        assert_eq!(run.told(), told, "{minutes}");
    }
    // A run in between ends it, and the next wait is another one.
    run.awake(ends).iteration(false);
    run.limited(run.after(2 * HOUR_MS));
    assert_eq!(run.told(), Some(Some("maja")));
    run.command(resume()).working();
    run.limited(run.after(2 * HOUR_MS));
    assert_eq!(run.told(), Some(Some("maja")), "a person looked, and it waits once more");
    // A wait for money after a wait for a backend is a new wait, without a notification.
    run.awake(run.after(2 * HOUR_MS));
    run.out_of_money(Some(run.after(9 * HOUR_MS)));
    assert_eq!(run.told(), Some(None));
    // A robot that set the label is not called.
    let mut run = LoopRun::with(|start| start.by.kind = AccountKind::Bot);
    run.working();
    run.limited(run.after(2 * HOUR_MS));
    assert_eq!(run.told(), Some(None));
}

pub(super) fn session(id: &str) -> Option<AgentSession> {
    Some(AgentSession {
        backend: "claude".into(),
        model: None,
        id: id.into(),
        files: "7-0".into(),
        context_pct: Some(12.5),
        account: Cumulative::default(),
        told: Vec::new(),
    })
}

impl LoopRun {
    /// Ends an agent run that leaves a session.
    fn agent_with(&mut self, end: AgentEnd, id: &str) -> &mut Self {
        let run = AgentRunFacts { session: session(id), message: "did it".into(), ..AgentRunFacts::ending(end) };
        self.tell(LoopInput::Outcome {
            ticket: self.current.run.ticket,
            outcome: WorkOutcome::AgentEnded { run: Box::new(run) },
        })
    }

    /// Returns a loop whose iteration left a session.
    fn remembering() -> Self {
        let mut run = Self::in_state(LoopState::Running);
        run.agent_with(AgentEnd::Finished, "s1").committed(|_| {}).pushed().checked(false);
        assert_eq!(run.current.agent.session, session("s1"));
        run
    }
}

#[test]
fn task_that_every_agent_declined_pauses_the_loop() {
    let mut run = LoopRun::in_state(LoopState::Running);
    let reason = "claude was left, refused by its usage policy: it appears to violate our Usage Policy".to_owned();
    run.agent(AgentEnd::Declined { reason }).is(LoopState::Paused, LoopStep::Idle);
    assert!(run.current.why.contains("refused by its usage policy"), "{}", run.current.why);
    assert_eq!((run.current.spent.iterations, run.current.agent.failures), (0, 0), "the iteration is given back");
}

#[test]
fn session_is_resumed_until_the_tree_changes() {
    let failed = || AgentEnd::Failed { reason: "boom".into() };
    let unavailable = || AgentEnd::Unavailable { reason: "not there".into() };
    let limited = || AgentEnd::Limited { until: None, reason: "quota".into() };
    for (end, session) in [
        (AgentEnd::Finished, session("s2")),
        // The tree is as the session before left it.
        (limited(), session("s1")),
        (unavailable(), session("s1")),
        (AgentEnd::Declined { reason: "no".into() }, session("s1")),
        (AgentEnd::NoMoney { reason: "x".into(), until: None }, session("s1")),
        // It is not, and the session may be what broke.
        (failed(), None),
        (AgentEnd::TimedOut { what: "it was silent".into() }, None),
        (AgentEnd::OverBudget, None),
        (AgentEnd::Cancelled, None),
    ] {
        let mut run = LoopRun::remembering();
        run.agent_with(end.clone(), "s2");
        assert_eq!(run.current.agent.session, session, "{end:?}");
    }
    let mut run = LoopRun::remembering();
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::AgentLost { salvaged: None, cost: Money(0), before_start: false },
    });
    assert_eq!(run.current.agent.session, session("s1"), "the iteration begins anew where the one before ended");
    run.command(LoopCommand::Pause(command::Pause { now: true, reason: String::new() }));
    run.command(resume()).working();
    assert_eq!(run.current.agent.session, session("s1"));
    // A late outcome does not provide a session.
    let late = run.current.run.ticket - 1;
    let facts = AgentRunFacts { session: session("s9"), ..AgentRunFacts::ending(AgentEnd::Finished) };
    run.tell(LoopInput::Outcome { ticket: late, outcome: WorkOutcome::AgentEnded { run: Box::new(facts) } });
    assert_eq!(run.current.agent.session, session("s1"));
}

#[test]
fn discarded_work_drops_session() {
    let mut run = LoopRun::remembering();
    run.command(LoopCommand::Retry(command::Retry));
    assert_eq!(run.current.agent.session, None);
    let mut run = LoopRun::in_state(LoopState::Running);
    run.agent_with(AgentEnd::Finished, "s1").committed(|change| change.blocked = Some("a secret".into()));
    run.is(LoopState::Paused, LoopStep::Idle);
    assert_eq!(run.current.agent.session, None);
}

/// Returns a loop with these schedule rules whose agent runs.
fn scheduled(rules: serde_json::Value) -> LoopRun {
    let mut run = LoopRun::in_state(LoopState::Running);
    run.current.settings.policy.schedule = serde_json::from_value(rules).expect("rules");
    run
}

const PARKED: &str = "claude: rate limit (try again in 5h)";

impl LoopRun {
    fn refused(&mut self, reason: &str) -> &mut Self {
        self.agent(AgentEnd::Limited { until: Some(self.after(HOUR_MS)), reason: reason.into() })
    }
}

#[test]
fn schedule_is_evaluated_on_refusals() {
    let rule_on_error =
        |words: &str, action: &str| serde_json::json!([{ "trigger": { "on_error": words }, "action": action }]);
    let mut run = scheduled(rule_on_error("rate_limit", "pause"));
    run.refused(PARKED).is(LoopState::Paused, LoopStep::Idle);
    assert!(run.current.why.contains("an error with \"rate limit\""), "{}", run.current.why);
    assert_eq!((run.current.spent.iterations, run.current.iterations.len()), (0, 0), "nothing ran");
    let mut run = scheduled(rule_on_error("rate_limit", "abort"));
    run.refused(PARKED).is(LoopState::Aborted, LoopStep::Idle);
    let mut run = scheduled(rule_on_error("overloaded", "pause"));
    run.refused(PARKED).is(LoopState::Waiting, LoopStep::Idle);
    // People are notified once per wait, even if the text changes.
    let mut run = scheduled(rule_on_error("rate_limit", "escalate"));
    let first = run.after(HOUR_MS);
    run.refused(PARKED).is(LoopState::Waiting, LoopStep::Idle);
    assert!(run.escalates("schedule"));
    run.awake(first).refused("claude: rate limit (try again in 4h)").is(LoopState::Waiting, LoopStep::Idle);
    assert!(!run.escalates("schedule"));
    // Also if the work continued with another backend.
    let mut run = scheduled(rule_on_error("rate_limit", "pause"));
    let mut facts = AgentRunFacts::ending(AgentEnd::Finished);
    facts.served.switched = vec!["claude was left for its rate limit: try again in 5h".into()];
    run.tell(LoopInput::Outcome {
        ticket: run.current.run.ticket,
        outcome: WorkOutcome::AgentEnded { run: Box::new(facts) },
    });
    run.committed(|_| {}).pushed().checked(false).is(LoopState::Paused, LoopStep::Idle);
    assert_eq!(run.current.spent.iterations, 1);
}

#[test]
fn schedule_acts_by_timer_between_iterations() {
    const DAY_MS: i64 = 24 * HOUR_MS;
    let rules = |action: &str| serde_json::json!([{ "trigger": { "cron": "0 9 * * *" }, "action": action }]);
    let timer = |run: &LoopRun| {
        run.effects.iter().find_map(|effect| match effect {
            Effect::Timer(TimerEffect::Set { kind: TimerKind::Schedule, at }) => Some(*at),
            _ => None,
        })
    };
    let due = |run: &mut LoopRun, at: Timestamp| {
        run.now = at.plus_ms(-1000);
        run.tell(TimerInput::TimerDue { timer: TimerKind::Schedule });
    };
    // While the agent runs: the timer is set once, and the run ends at nine.
    let mut run = scheduled(rules("pause"));
    run.tell(TimerInput::ClockSet { by_ms: 0 });
    let at = timer(&run).expect("a timer");
    assert!(at.0 % DAY_MS == 9 * HOUR_MS && at > run.now && at.since(run.now) <= DAY_MS, "{at:?}");
    run.tell(TimerInput::ClockSet { by_ms: 0 });
    assert_eq!(timer(&run), None, "unchanged");
    due(&mut run, at);
    run.is(LoopState::Paused, LoopStep::Idle);
    assert!(run.current.why.contains("0 9 * * * (UTC)") && run.escalates("schedule"), "{}", run.current.why);
    // A paused loop is not paused again, and the next day has a timer.
    let next = timer(&run).expect("the next day's timer");
    assert_eq!(next.since(at), DAY_MS);
    due(&mut run, next);
    run.is(LoopState::Paused, LoopStep::Idle);
    assert!(!run.escalates("schedule"));
    // While the loop waits for a backend.
    let mut run = scheduled(serde_json::json!([
        { "trigger": { "cron": "0 9 * * *" }, "action": "switch_backend", "backend": "codex" }
    ]));
    let long = run.after(3 * DAY_MS);
    run.agent(AgentEnd::Limited { until: Some(long), reason: PARKED.into() }).is(LoopState::Waiting, LoopStep::Idle);
    let at = timer(&run).expect("a timer");
    due(&mut run, at);
    run.is(LoopState::Queued, LoopStep::Idle);
    assert_eq!(run.current.agent.wanted.backend.as_deref(), Some("codex"));
    // An ended loop has no timer.
    let mut run = scheduled(rules("abort"));
    run.tell(TimerInput::ClockSet { by_ms: 0 });
    let at = timer(&run).expect("a timer");
    due(&mut run, at);
    run.is(LoopState::Aborted, LoopStep::Idle);
    assert!(run.has(|effect| matches!(effect, Effect::Timer(TimerEffect::Clear { kind: TimerKind::Schedule }))));
}

#[test]
fn missing_host_is_shown_until_the_work_has_an_outcome() {
    let mut run = LoopRun::in_state(LoopState::Running);
    let no_host = TimerInput::NoHost { labels: vec!["gpu".into(), "large".into()] };
    let shows = |run: &LoopRun| run.has(|e| *e == Effect::Forge(ForgeEffect::Status { fresh: false }));
    run.tell(no_host.clone());
    assert!(shows(&run));
    let status = serde_json::to_string(&crate::domain::report::status(&run.current, "mine", run.now)).expect("JSON");
    let note = "The work waits: no host has the labels of `runs_on` in the repository's file (`gpu`, `large`).";
    assert!(status.contains(note), "{status}");
    run.tell(no_host.clone());
    assert!(!shows(&run), "it is shown once");
    run.agent(AgentEnd::Finished);
    assert_eq!(run.current.run.labels_without_host, Vec::<String>::new());
}

#[test]
fn scheduled_backend_is_tried_once() {
    let switch_rule = |name: &str, words: &str| serde_json::json!({ "trigger": { "on_error": words }, "action": "switch_backend", "backend": name });
    let mut run = scheduled(serde_json::json!([
        switch_rule("codex", "claude: rate limit"),
        switch_rule("claude", "codex: used-up quota")
    ]));
    run.refused(PARKED).is(LoopState::Running, LoopStep::Agent);
    assert_eq!((run.current.agent.wanted.backend.as_deref(), run.current.spent.iterations), (Some("codex"), 1));
    run.refused("codex: used-up quota").is(LoopState::Waiting, LoopStep::Idle);
    assert_eq!(run.current.spent.iterations, 0);
    // A spent budget is not a backend's refusal.
    let mut run = scheduled(serde_json::json!([switch_rule("codex", "budget")]));
    run.out_of_money(Some(run.after(HOUR_MS))).is(LoopState::Waiting, LoopStep::Idle);
    assert_eq!(run.current.agent.wanted.backend, None);
}
