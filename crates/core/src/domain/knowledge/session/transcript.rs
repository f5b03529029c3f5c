//! Transcript of an iteration: prompts, the agent's events and answers, and outputs of checks, as one text with line
//! numbers. The page, the plain text and links use the same numbers. Text added after the iteration's end is appended, so
//! that links to lines remain valid.

use super::{EventKind, OutputText, RunningTurn, SessionEvent, SessionTurn};
use crate::domain::loops::Iteration;
use crate::domain::model::ids::Timestamp;
use crate::domain::report;

/// Stored text in a transcript. Turns and events are identified by their 0-based index in the iteration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextSource {
    /// Prompt of a turn.
    Prompt(usize),
    /// Answer of a turn, followed by its error, if any.
    Answer(usize),
    /// Error of a turn.
    Failure(usize),
    /// Event.
    Event(usize),
    /// Output of a check, by its name.
    Check(String),
}

/// Part of a transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranscriptPart {
    /// Title of the part.
    pub title: String,
    /// Text of the part.
    pub text: String,
    /// Stored texts in the part, each with the number of lines between the title and its first line.
    sources: Vec<(TextSource, usize)>,
}

impl TranscriptPart {
    /// Creates a part without stored texts.
    pub fn new(title: String, text: &str) -> Self {
        Self { title, text: text.trim_end().to_owned(), sources: Vec::new() }
    }

    fn of(source: TextSource, title: String, text: &str) -> Self {
        Self { sources: vec![(source, 0)], ..Self::new(title, text) }
    }

    /// Returns the number of lines, without the title.
    pub fn count(&self) -> usize {
        self.text.lines().count()
    }

    fn add_event(&mut self, at: usize, event: &SessionEvent) {
        // The head of an event is on a separate line.
        self.sources.push((TextSource::Event(at), self.count() + 1));
        self.text.push_str(&event_text(event));
    }

    fn add_output(&mut self, output: &OutputText) {
        self.text.push_str(&entry(output.at, "output", &output.text));
    }
}

/// Returns the parts of an iteration's transcript, ordered by time. `turns` and `events` are the iteration's, in order and
/// complete. `running` is the turn of an agent that is still running. The lines before an agent's answer do not change after
/// the run, except that output between tool calls is only shown during the run.
pub fn parts(
    iteration: &Iteration,
    turns: &[SessionTurn],
    events: &[SessionEvent],
    running: Option<&RunningTurn>,
) -> Vec<TranscriptPart> {
    let in_time = |at| iteration.ended_at.is_none_or(|ended| at <= ended);
    let shown = |(_, event): &(usize, &SessionEvent)| !is_told_elsewhere(event.kind);
    let (during, after): (Vec<_>, Vec<_>) =
        events.iter().enumerate().filter(shown).partition(|(_, event)| in_time(event.at));
    let (run, later): (Vec<_>, Vec<_>) = turns.iter().enumerate().partition(|(_, turn)| in_time(turn.started));
    let rest = if run.is_empty() { "Events of the run so far" } else { "Later events" };
    let mut parts = parts_of(&run, &during, running, rest);
    for check in &iteration.checks.outcomes {
        let outcome = if check.holds { "passed".to_owned() } else { format!("failed: {}", check.why) };
        let title = format!("Check {} {outcome}, {} ms", check.name, check.duration_ms);
        let text = format!("$ {}\n{}", check.command, check.output);
        parts.push(TranscriptPart::of(TextSource::Check(check.name.clone()), title, &text));
    }
    parts.extend(parts_of(&later, &after, None, "Events after the end"));
    parts
}

/// Returns the parts for turns with the events during them, followed by the part for later events. Later events belong to
/// the running turn, or their part has the title `rest`.
fn parts_of(
    turns: &[(usize, &SessionTurn)],
    events: &[(usize, &SessionEvent)],
    running: Option<&RunningTurn>,
    rest: &str,
) -> Vec<TranscriptPart> {
    let mut parts = Vec::new();
    let mut events = events.iter().peekable();
    for (nth, turn) in turns {
        let nth = *nth;
        let who = author(turn);
        parts.push(TranscriptPart::of(TextSource::Prompt(nth), prompt_title(turn), &turn.prompt));
        let mut during = TranscriptPart::new(format!("Events of {who}"), "");
        while let Some((at, event)) = events.next_if(|(_, event)| event.at <= turn.ended) {
            during.add_event(*at, event);
        }
        parts.extend(Some(during).filter(|part| !part.text.is_empty()));
        let cost = if turn.estimated { format!("about {}", turn.cost) } else { turn.cost.to_string() };
        let tokens = format!("{} tokens in, {} out, {cost}", turn.tokens_in + turn.tokens_cached, turn.tokens_out);
        let title = format!("Answer of {who}, {tokens}");
        parts.push(TranscriptPart::of(TextSource::Answer(nth), title, &turn.response));
        if let Some(error) = &turn.error {
            parts.push(TranscriptPart::of(TextSource::Failure(nth), format!("Error of {who}"), error));
        }
    }
    let rest = running.map_or_else(|| rest.to_owned(), |running| format!("Events of {}", author(&running.turn)));
    parts.extend(running.map(|running| TranscriptPart::new(prompt_title(&running.turn), &running.turn.prompt)));
    let mut output = running.into_iter().flat_map(|running| &running.output).peekable();
    let mut rest_of_run = TranscriptPart::new(rest, "");
    for (at, event) in events {
        while let Some(output) = output.next_if(|output| output.at <= event.at) {
            rest_of_run.add_output(output);
        }
        rest_of_run.add_event(*at, event);
    }
    output.for_each(|output| rest_of_run.add_output(output));
    parts.extend(Some(rest_of_run).filter(|part| !part.text.is_empty()));
    for part in &mut parts {
        part.text.truncate(part.text.trim_end().len());
    }
    parts
}

fn author(turn: &SessionTurn) -> String {
    let model = turn.model.as_ref().map_or_else(String::new, |model| format!(" ({model})"));
    format!("{} {}{model}, attempt {}", turn.role.as_str(), turn.backend, turn.attempt)
}

fn prompt_title(turn: &SessionTurn) -> String {
    format!("Prompt for {}, {}", author(turn), report::moment(turn.started))
}

/// Returns the transcript's 1-based line for a 1-based line of a stored text. `None` if the transcript does not contain the
/// text. For a line that was cut off, returns the end of the part.
pub fn line_of(parts: &[TranscriptPart], events: &[SessionEvent], source: &TextSource, line: usize) -> Option<usize> {
    if let TextSource::Event(at) = source
        && let Some(event) = events.get(*at).filter(|event| event.kind == EventKind::Check)
    {
        let name = event.tool.as_deref().unwrap_or_default();
        let (first, part, _) = found(parts, &TextSource::Check(name.to_owned()))?;
        // The event contains the end of the output after its first line.
        let wanted = event.text.lines().nth(line.saturating_sub(1)).map(str::trim).filter(|_| line > 1);
        let same = wanted.and_then(|wanted| part.text.lines().position(|line| line.trim() == wanted));
        return Some(same.map_or(first, |at| first + 1 + at));
    }
    let (first, part, before) = found(parts, source)?;
    match source {
        TextSource::Answer(nth) if line > part.count() => {
            let failed = found(parts, &TextSource::Failure(*nth));
            let beyond = line - part.count();
            Some(failed.map_or(first + part.count(), |(first, part, _)| first + beyond.min(part.count())))
        }
        // A search finds an event's tool and path in its first line.
        TextSource::Event(_) if line <= 1 => Some(first + before),
        _ => Some(first + (before + line).min(part.count())),
    }
}

/// Returns the 1-based line where a check's output starts; `None` if the transcript does not contain the check.
pub fn line_of_check(parts: &[TranscriptPart], name: &str) -> Option<usize> {
    found(parts, &TextSource::Check(name.to_owned())).map(|(first, ..)| first)
}

/// Finds the part with a stored text. Returns the line of the part's title, the part, and the number of lines before the
/// text.
fn found<'p>(parts: &'p [TranscriptPart], source: &TextSource) -> Option<(usize, &'p TranscriptPart, usize)> {
    let mut first = 1;
    for part in parts {
        if let Some((_, before)) = part.sources.iter().find(|(known, _)| known == source) {
            return Some((first, part, *before));
        }
        first += 1 + part.count();
    }
    None
}

/// Whether events of this kind have separate parts or are shown as decisions.
fn is_told_elsewhere(kind: EventKind) -> bool {
    matches!(kind, EventKind::Check | EventKind::Detection | EventKind::Intervention)
}

/// Formats an event as lines.
fn event_text(event: &SessionEvent) -> String {
    let mut head = event.kind.as_str().replace('_', " ");
    for more in [event.tool.as_deref(), event.path.as_deref()].into_iter().flatten() {
        head.push(' ');
        head.push_str(more);
    }
    if event.failed {
        head.push_str(" (failed)");
    }
    entry(event.at, &head, &event.text)
}

/// Formats an entry as lines: a head, followed by the indented text.
fn entry(at: Timestamp, head: &str, body: &str) -> String {
    let mut text = format!("{} {head}\n", time_of_day(at));
    for line in body.trim_end().lines() {
        text.push_str("    ");
        text.push_str(line);
        text.push('\n');
    }
    text
}

fn time_of_day(at: Timestamp) -> String {
    let at = jiff::Timestamp::from_millisecond(at.0);
    at.map_or_else(|_| String::new(), |at| at.strftime("%H:%M:%S").to_string())
}

/// Returns the transcript as plain text. Each title is on a separate line.
pub fn plain(parts: &[TranscriptPart]) -> String {
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
    use crate::domain::model::ids::{Money, Sha};
    use crate::domain::model::task::CheckOutcome;

    fn turn(started: i64, ended: i64) -> SessionTurn {
        SessionTurn {
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
            started: Timestamp(started),
            ended: Timestamp(ended),
        }
    }

    fn event(at: i64, kind: EventKind, tool: &str, text: &str) -> SessionEvent {
        SessionEvent {
            iteration: 1,
            kind,
            tool: Some(tool.into()),
            path: None,
            text: text.into(),
            failed: false,
            at: Timestamp(at),
        }
    }

    fn iteration(output: &str) -> Iteration {
        let sha = Sha::parse("0123456789012345678901234567890123456789").expect("a hash");
        let mut iteration = Iteration::new(1, Timestamp(0), sha, Vec::new());
        iteration.checks.outcomes = vec![CheckOutcome {
            name: "answer".into(),
            command: "sh check.sh".into(),
            holds: true,
            output: output.into(),
            ..CheckOutcome::default()
        }];
        iteration
    }

    #[test]
    fn transcript_is_in_order_of_time() {
        let events = [
            event(2_000, EventKind::ToolCall, "Bash", "ls\n-la"),
            event(2_500, EventKind::Check, "Bash", "hidden"),
            event(10_000, EventKind::FileChange, "Bash", ""),
        ];
        insta::assert_snapshot!(plain(&parts(&iteration(""), &[turn(1_000, 9_000)], &events, None)), @r"
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

    #[test]
    fn running_turn_is_shown_with_output_and_events_in_order_of_time() {
        let mut iteration = iteration("");
        iteration.checks.outcomes.clear();
        let cut = SessionTurn { error: Some("The service stopped.".into()), ..turn(1_000, 2_000) };
        let events =
            [event(1_500, EventKind::ToolCall, "Bash", "ls"), event(6_000, EventKind::ToolCall, "Bash", "make")];
        let output = [(5_000, "I look first.\nThen I build."), (6_000, "Now:"), (7_000, "It builds.")];
        let output = output.map(|(at, text)| OutputText { at: Timestamp(at), text: text.into() });
        let of_second = SessionTurn { attempt: 2, ..turn(4_000, 7_000) };
        let running = RunningTurn { turn: of_second.clone(), output: output.into() };
        let shown = parts(&iteration, std::slice::from_ref(&cut), &events, Some(&running));
        insta::assert_snapshot!(plain(&shown), @r"
        ==> Prompt for agent mine, attempt 1, 1970-01-01 00:00 UTC
        Fix it.
        ==> Events of agent mine, attempt 1
        00:00:01 tool call Bash
            ls
        ==> Answer of agent mine, attempt 1, 10 tokens in, 2 out, $0.01
        Done.
        ==> Error of agent mine, attempt 1
        The service stopped.
        ==> Prompt for agent mine, attempt 2, 1970-01-01 00:00 UTC
        Fix it.
        ==> Events of agent mine, attempt 2
        00:00:05 output
            I look first.
            Then I build.
        00:00:06 output
            Now:
        00:00:06 tool call Bash
            make
        00:00:07 output
            It builds.
        ");
        // The end of the iteration does not move lines before the agent's first output.
        let ended = parts(&iteration, &[cut, of_second], &events, None);
        let lines = |parts: &[TranscriptPart]| plain(parts).lines().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(lines(&shown[..5]), lines(&ended[..5]));
        assert_eq!(shown[5].title, ended[5].title);
    }

    #[test]
    fn line_of_a_stored_text_is_its_line_in_the_transcript() {
        let mut turns = [turn(1_000, 9_000)];
        turns[0].response = "One.\nTwo.".into();
        turns[0].error = Some("It broke.".into());
        let events = [
            event(2_000, EventKind::ToolCall, "Bash", "ls\n-la"),
            event(2_500, EventKind::Check, "answer", "exit code 1\nthird: assertion failed"),
            event(3_000, EventKind::FileChange, "Bash", "modified"),
            event(3_500, EventKind::Detection, "", "stuck"),
        ];
        let parts = parts(&iteration("first\nsecond\n  third: assertion failed\n"), &turns, &events, None);
        let text = plain(&parts);
        let shown = |source, line| {
            let number = line_of(&parts, &events, &source, line)?;
            Some(text.lines().nth(number - 1).expect("a line").trim())
        };
        let table = [
            (TextSource::Prompt(0), 1, "Fix it."),
            (TextSource::Prompt(0), 99, "Fix it."),
            (TextSource::Event(0), 1, "00:00:02 tool call Bash"),
            (TextSource::Event(0), 2, "-la"),
            (TextSource::Event(2), 1, "00:00:03 file change Bash"),
            (TextSource::Answer(0), 2, "Two."),
            (TextSource::Answer(0), 3, "It broke."),
            (TextSource::Event(1), 1, "==> Check answer passed, 0 ms"),
            (TextSource::Event(1), 2, "third: assertion failed"),
            (TextSource::Check("answer".into()), 1, "$ sh check.sh"),
        ];
        for (source, line, expected) in table {
            assert_eq!(shown(source.clone(), line), Some(expected), "{source:?} {line}: {text}");
        }
        for missing in [TextSource::Prompt(1), TextSource::Event(3), TextSource::Event(9)] {
            assert_eq!(shown(missing.clone(), 1), None, "{missing:?}");
        }
        assert_eq!(line_of_check(&parts, "other"), None);
    }

    #[test]
    fn events_after_the_end_do_not_shift_lines() {
        let mut iteration = iteration("passed\n");
        iteration.ended_at = Some(Timestamp(20_000));
        let before = parts(&iteration, &[turn(1_000, 9_000)], &[event(2_000, EventKind::ToolCall, "Bash", "ls")], None);
        let turns = [turn(1_000, 9_000), turn(21_000, 22_000)];
        let events = [
            event(2_000, EventKind::ToolCall, "Bash", "ls"),
            event(30_000, EventKind::Command, "", "mira: /ralph resume"),
        ];
        let after = parts(&iteration, &turns, &events, None);
        assert_eq!(after[..before.len()], before[..]);
        assert!(plain(&after).contains("mira: /ralph resume"));
        assert_eq!(line_of_check(&before, "answer"), line_of_check(&after, "answer"));
    }
}
