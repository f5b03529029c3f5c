//! Transcript of an iteration: prompts, the agent's events and answers, and outputs of checks, as one numbered text. The page and
//! the plain text have the same line numbers, so that a link to a line stays valid once the iteration has ended.

use crate::domain::knowledge::session::{EventKind, SessionEvent, SessionTurn};
use crate::domain::loops::{GuidanceSource, Iteration};
use crate::domain::report;

/// Part of a transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TranscriptPart {
    /// Title.
    pub title: String,
    /// Text.
    pub text: String,
}

impl TranscriptPart {
    fn new(title: String, text: &str) -> Self {
        Self { title, text: text.trim_end().to_owned() }
    }
}

/// Returns the parts of an iteration's transcript in order of time.
pub(super) fn parts(iteration: &Iteration, turns: &[SessionTurn], events: &[SessionEvent]) -> Vec<TranscriptPart> {
    let mut parts = Vec::new();
    let mut rest = events.iter().filter(|event| !is_told_elsewhere(event.kind)).peekable();
    for turn in turns {
        let model = turn.model.as_ref().map_or_else(String::new, |model| format!(" ({model})"));
        let who = format!("{} {}{model}, attempt {}", turn.role.as_str(), turn.backend, turn.attempt);
        parts.push(TranscriptPart::new(format!("Prompt for {who}, {}", report::moment(turn.started)), &turn.prompt));
        let mut during = String::new();
        while let Some(event) = rest.next_if(|event| event.at <= turn.ended) {
            during.push_str(&event_text(event));
        }
        if !during.is_empty() {
            parts.push(TranscriptPart::new(format!("Events of {who}"), &during));
        }
        let cost = if turn.estimated { format!("about {}", turn.cost) } else { turn.cost.to_string() };
        let tokens = format!("{} tokens in, {} out, {cost}", turn.tokens_in + turn.tokens_cached, turn.tokens_out);
        parts.push(TranscriptPart::new(format!("Answer of {who}, {tokens}"), &turn.response));
        if let Some(error) = &turn.error {
            parts.push(TranscriptPart::new(format!("Error of {who}"), error));
        }
    }
    let later: String = rest.map(event_text).collect();
    if !later.is_empty() {
        let title = if turns.is_empty() { "Events of the run so far" } else { "Later events" };
        parts.push(TranscriptPart::new(title.to_owned(), &later));
    }
    for check in &iteration.checks.outcomes {
        let outcome = if check.holds { "passed".to_owned() } else { format!("failed: {}", check.why) };
        let title = format!("Check {} {outcome}, {} ms", check.name, check.duration_ms);
        parts.push(TranscriptPart::new(title, &format!("$ {}\n{}", check.command, check.output)));
    }
    parts
}

/// Whether events of a kind are parts of their own, or shown as decisions.
fn is_told_elsewhere(kind: EventKind) -> bool {
    matches!(kind, EventKind::Check | EventKind::Detection | EventKind::Intervention)
}

/// Returns an event as lines: a head, and its text indented.
fn event_text(event: &SessionEvent) -> String {
    let mut text = format!("{} {}", time_of_day(event), event.kind.as_str().replace('_', " "));
    for more in [event.tool.as_deref(), event.path.as_deref()].into_iter().flatten() {
        text.push(' ');
        text.push_str(more);
    }
    if event.failed {
        text.push_str(" (failed)");
    }
    text.push('\n');
    for line in event.text.trim_end().lines() {
        text.push_str("    ");
        text.push_str(line);
        text.push('\n');
    }
    text
}

fn time_of_day(event: &SessionEvent) -> String {
    let at = jiff::Timestamp::from_millisecond(event.at.0);
    at.map_or_else(|_| String::new(), |at| at.strftime("%H:%M:%S").to_string())
}

/// Returns the name of a source of guidance.
pub(super) fn source_words(source: GuidanceSource) -> &'static str {
    match source {
        GuidanceSource::Command => "command",
        GuidanceSource::Review => "review",
        GuidanceSource::Ci => "CI",
        GuidanceSource::Service => "ralph-bot",
        GuidanceSource::SecondOpinion => "second opinion",
    }
}

/// Returns the transcript as plain text. Each title is a line of its own.
pub(super) fn plain(parts: &[TranscriptPart]) -> String {
    let mut text = String::new();
    for part in parts {
        text.push_str(&format!("==> {}\n", part.title));
        for line in part.text.lines() {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::knowledge::session::TurnRole;
    use crate::domain::model::ids::{Money, Sha, Timestamp};
    use crate::domain::model::task::CheckOutcome;

    #[test]
    fn transcript_is_in_order_of_time() {
        let turn = SessionTurn {
            iteration: 1,
            attempt: 1,
            role: TurnRole::Agent,
            prompt: "Fix it.\n".into(),
            response: "Done.".into(),
            backend: "mine".into(),
            model: None,
            tokens_in: 10,
            tokens_out: 2,
            tokens_cached: 0,
            cost: Money(10_000),
            estimated: false,
            error: None,
            learnings: Vec::new(),
            started: Timestamp(1_000),
            ended: Timestamp(9_000),
        };
        let event = |at, kind, text: &str| SessionEvent {
            iteration: 1,
            kind,
            tool: Some("Bash".into()),
            path: None,
            text: text.into(),
            failed: false,
            at: Timestamp(at),
        };
        let sha = Sha::parse("0123456789012345678901234567890123456789").expect("a hash");
        let mut iteration = Iteration::new(1, Timestamp(0), sha, Vec::new());
        iteration.checks.outcomes = vec![CheckOutcome {
            name: "answer".into(),
            command: "sh check.sh".into(),
            holds: true,
            ..CheckOutcome::default()
        }];
        let events = [
            event(2_000, EventKind::ToolCall, "ls\n-la"),
            event(2_500, EventKind::Check, "hidden"),
            event(10_000, EventKind::FileChange, ""),
        ];
        insta::assert_snapshot!(plain(&parts(&iteration, &[turn], &events)), @r"
        ==> Prompt for agent mine, attempt 1, 1970-01-01 00:00 UTC
        Fix it.
        ==> Events of agent mine, attempt 1
        00:00:02 tool call Bash
            ls
            -la
        ==> Answer of agent mine, attempt 1, 10 tokens in, 2 out, $0.01
        Done.
        ==> Later events
        00:00:10 file change Bash
        ==> Check answer passed, 0 ms
        $ sh check.sh
        ");
    }
}
