//! Events of a step for the session memory: outcomes of checks, detections and interventions, changes of backend and model,
//! and people's commands and reviews. The agent's actions come from its event stream.

use super::{EventKind, SessionEvent};
use crate::domain::knowledge::memory::judged_anew;
use crate::domain::loops::command::{CommandRecord, PREFIX};
use crate::domain::loops::{
    AgentRunFacts, CommandInput, Guidance, IterationJudgement, Loop, LoopInput, LoopState, LoopStep, ServedBy,
    WorkOutcome, error_signature,
};
use crate::domain::model::ids::Timestamp;
use crate::domain::model::task::{ChangeKind, CheckReport, DiffStat};
use crate::domain::supervision::oversight::InterventionLevel;
use crate::domain::trust::sanitize;

/// Maximum number of recorded files per commit.
const MAX_FILES: usize = 200;
/// Maximum length of a failed check's recorded output, in bytes. Its end is kept.
const MAX_OUTPUT: usize = 4 * 1024;

/// Returns the events of the step from `before` to `after`, in order. Omits outdated outcomes, and commands that only
/// request information. Texts are not masked.
pub fn step_events(before: &Loop, after: &Loop, input: &LoopInput, at: Timestamp) -> Vec<SessionEvent> {
    let counts = |ticket: u64| before.state == LoopState::Running && ticket == before.run.ticket;
    let mut found = CollectedEvents { iteration: before.spent.iterations, at, events: Vec::new() };
    match input {
        LoopInput::Command(CommandInput::Given { by, command, .. }) => {
            if let Some(text) = command.recorded(CommandRecord::Session) {
                let text = sanitize::for_prompt(&format!("{PREFIX} {text}"));
                found.add(EventKind::Command, format!("{}: {text}", by.login));
            }
        }
        LoopInput::Command(CommandInput::Reviewed { items, .. }) => {
            // Only items that the loop processed now, because a review can be delivered again.
            let is_new =
                |key: &String| after.pull.reviews_seen.contains(key) && !before.pull.reviews_seen.contains(key);
            items.iter().filter(|(key, _)| is_new(key)).for_each(|(_, guidance)| found.remark(guidance));
        }
        LoopInput::Outcome { ticket, outcome } if counts(*ticket) => found.outcome(before, outcome),
        LoopInput::Command(_) | LoopInput::Forge(_) | LoopInput::Timer(_) | LoopInput::Outcome { .. } => {}
    }
    if let Some(iteration) = judged_anew(before, after) {
        found.iteration = iteration.number;
        iteration.judged.iter().for_each(|judged| found.judged(judged));
    }
    if let Some(halting) = after.run.halting.as_ref().filter(|_| before.run.halting.is_none()) {
        found.add(EventKind::Intervention, format!("The files of iteration {} are restored", halting.iteration));
    }
    found.events
}

/// Events collected so far.
struct CollectedEvents {
    iteration: u32,
    at: Timestamp,
    events: Vec<SessionEvent>,
}

impl CollectedEvents {
    fn add(&mut self, kind: EventKind, text: String) {
        self.add_of(kind, None, text, false);
    }

    fn add_of(&mut self, kind: EventKind, tool: Option<String>, text: String, failed: bool) {
        let Self { iteration, at, .. } = *self;
        self.events.push(SessionEvent { iteration, kind, tool, path: None, text, failed, at });
    }

    fn outcome(&mut self, before: &Loop, outcome: &WorkOutcome) {
        match outcome {
            WorkOutcome::Checked { report } | WorkOutcome::Verified { report, .. } => {
                self.checks(report, before.run.step == LoopStep::Verify);
            }
            WorkOutcome::AgentEnded { run } => self.served(before, run),
            // A merge contains the changes of the other side.
            WorkOutcome::Committed { change } if before.branch.merging().is_none() => self.committed(&change.stat),
            WorkOutcome::Prepared { .. }
            | WorkOutcome::ProposalsTried { .. }
            | WorkOutcome::Planned { .. }
            | WorkOutcome::AgentLost { .. }
            | WorkOutcome::AskedAtEnd { .. }
            | WorkOutcome::Committed { .. }
            | WorkOutcome::SuggestionsApplied { .. }
            | WorkOutcome::Restored { .. }
            | WorkOutcome::Pushed { .. }
            | WorkOutcome::PushRejected { .. }
            | WorkOutcome::PushBlocked { .. }
            | WorkOutcome::Merged { .. }
            | WorkOutcome::WorkFailed { .. }
            | WorkOutcome::HooksAnswered { .. }
            | WorkOutcome::SecondOpinionGiven { .. }
            | WorkOutcome::RepositoryUnavailable { .. }
            | WorkOutcome::PutOff { .. }
            | WorkOutcome::RepositoryFileBroken { .. } => {}
        }
    }

    fn remark(&mut self, guidance: &Guidance) {
        let Self { iteration, at, .. } = *self;
        let text = format!("{}: {}", guidance.who, sanitize::for_prompt(&guidance.text));
        let path = guidance.path.clone();
        let kind = EventKind::Remark;
        self.events.push(SessionEvent { iteration, kind, tool: None, path, text, failed: false, at });
    }

    fn checks(&mut self, report: &CheckReport, fresh: bool) {
        let place = if fresh { " in a fresh checkout" } else { "" };
        for outcome in &report.outcomes {
            let mut text = match error_signature(&CheckReport { outcomes: vec![outcome.clone()] }) {
                _ if outcome.holds => format!("holds{place}"),
                Some(error) => format!("{}{place}: {error}", outcome.why),
                None => format!("{}{place}", outcome.why),
            };
            let output = outcome.output.trim();
            if !outcome.holds && !output.is_empty() {
                text.push('\n');
                text.push_str(&output[output.ceil_char_boundary(output.len().saturating_sub(MAX_OUTPUT))..]);
            }
            self.add_of(EventKind::Check, Some(outcome.name.clone()), text, !outcome.holds);
        }
    }

    /// Records the files of a commit, regardless of the kind of change.
    fn committed(&mut self, stat: &DiffStat) {
        let Self { iteration, at, .. } = *self;
        for file in stat.files.iter().take(MAX_FILES) {
            let what = match &file.change {
                Some(ChangeKind::Created) => "created".to_owned(),
                Some(ChangeKind::Deleted) => "deleted".to_owned(),
                Some(ChangeKind::Renamed { from }) => format!("renamed from {from}"),
                Some(ChangeKind::Modified) | None => "modified".to_owned(),
            };
            let size = if file.binary { "binary".to_owned() } else { format!("+{} -{}", file.added, file.removed) };
            self.events.push(SessionEvent {
                iteration,
                kind: EventKind::FileChange,
                tool: None,
                path: Some(file.path.clone()),
                text: format!("{what}, {size}"),
                failed: false,
                at,
            });
        }
    }

    /// Records that another backend or model than before served the run.
    fn served(&mut self, before: &Loop, run: &AgentRunFacts) {
        let ServedBy { backend, model, switched, .. } = &run.served;
        let earlier = before
            .retained_iterations()
            .rev()
            .map(|iteration| &iteration.served)
            .find(|served| !served.backend.is_empty());
        let known = earlier.map_or("", |earlier| earlier.backend.as_str());
        let another = !known.is_empty() && known != backend && !backend.is_empty();
        if another || !switched.is_empty() {
            let from = if another { format!(" after {known}") } else { String::new() };
            let abandoned: String = switched.iter().map(|sentence| format!("; {sentence}")).collect();
            self.add(EventKind::BackendSwitch, format!("{backend} ran{from}{abandoned}"));
        } else if let Some(earlier) = earlier.filter(|earlier| earlier.model != *model && !backend.is_empty()) {
            let name = |model: &Option<String>| model.clone().unwrap_or_else(|| "its usual model".to_owned());
            let text = format!("{backend} ran with {} instead of {}", name(model), name(&earlier.model));
            self.add(EventKind::ModelSwitch, text);
        }
    }

    fn judged(&mut self, judged: &IterationJudgement) {
        for found in &judged.found {
            let text = format!("{} ({}): {}", found.kind.title(), found.severity, found.evidence);
            self.add(EventKind::Detection, text);
            if found.level > InterventionLevel::Log && found.fresh {
                let mut text = format!("{}: {}", found.level.name(), found.kind.title());
                if found.level == InterventionLevel::Redirect && !judged.way.is_empty() {
                    text.push_str(&format!("; from now on {}", judged.way));
                }
                self.add(EventKind::Intervention, text);
            }
        }
        if let Some(why) = &judged.stops {
            self.add(EventKind::Intervention, format!("The loop stops: {why}"));
        }
    }
}
