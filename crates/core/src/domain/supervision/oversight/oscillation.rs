//! Oscillation: the tree returns to earlier states, files change back and forth, or completion rises and falls.

use std::collections::HashSet;

use super::DetectionKind;
use super::basis::Basis;
use super::definition::{DetectionDefinition, DetectionRow, detection_settings};
use super::detection::{Detection, DetectionEvidence, DetectionSeverity};
use super::detection_input::{DetectionInput, named_files, number};
use super::intervention::InterventionLevel;
use crate::domain::model::record::{Record, TreeChange};
use crate::domain::supervision::control::Trend;

/// Maximum number of compared files per iteration.
const MAX_FILES: usize = 64;

detection_settings! {
    /// Conditions of oscillation.
    OscillationSettings {
        /// Number of newest iterations that are considered.
        #[schemars(skip)]
        pub window: u32 = 8, in 3..=50;
        /// Number of returns to exactly the files of an earlier iteration, without progress, at which the agent is warned.
        #[schemars(skip)]
        pub tree_returns: u32 = 1, in 1..=50, at_most undo_redo_cycles;
        /// Number of such returns at which the detection is critical, after a REDIRECT was given.
        #[schemars(skip)]
        pub critical_tree_returns: u32 = 3, in 1..=50, at_most window;
        /// Number of returns to an earlier state, by the whole tree or by the changed files, at which the detection is
        /// severe.
        #[schemars(skip)]
        pub undo_redo_cycles: u32 = 2, in 1..=50, at_most critical_cycles;
        /// Number of returns to an earlier state at which the detection is critical.
        #[schemars(skip)]
        pub critical_cycles: u32 = 6, in 1..=50, at_most window;
        /// Share of the files changed two iterations ago above which changing them again, but not in between, is a return.
        #[schemars(skip)]
        pub file_churn_threshold: f64 = 0.8, in 0.0..=1.0;
        /// Number of changes between gain and loss of completion at which the detection is raised.
        #[schemars(skip)]
        pub sign_changes: u32 = 4, in 1..=50, at_most window;
        /// Minimum change of completion that is a gain or a loss.
        #[schemars(skip)]
        pub min_swing: f64 = 0.12, in 0.0..=1.0;
        /// Minimum number of such changes for the trend of control to be a signal.
        #[schemars(skip)]
        pub trend_turns: u32 = 2, in 0..=50;
    }
}

impl DetectionDefinition for OscillationSettings {
    const ROW: DetectionRow = DetectionRow {
        title: "The loop oscillates between approaches",
        pattern: "the tree returns to earlier states, or completion turns up and down",
        signals: &[
            ("tree_return", Basis::Measured),
            ("undo_redo", Basis::Derived),
            ("sign_changes", Basis::Derived),
            ("trend", Basis::Derived),
        ],
        effect: "a single return: WARN",
        order: "Stop alternating. Choose one approach, give the reason, and stay with it.",
        advice: &[
            "Choose one approach and say why; do not return to the other.",
            "Look for requirements that contradict each other and name them.",
        ],
        high: InterventionLevel::Redirect,
        profile: |schedule| &schedule.oscillating,
        of_approach: true,
    };

    /// Detects oscillation. Two or more returns of the work tree to earlier states are sufficient evidence. A single return
    /// and the weaker signals count only without other progress, and not if the return undoes a loss. Oscillation is ignored
    /// if the newest iteration is not part of it.
    fn detect(&self, input: &DetectionInput<'_>) -> Option<Detection> {
        let window = input.recent(self.window);
        let progressing = input.progressing();
        let mut evidence = Vec::new();
        let returns = |is_return: &dyn Fn(&[Record]) -> bool| match is_return(window) {
            true => (1..=window.len()).map(|count| u32::from(is_return(&window[..count]))).sum(),
            false => 0,
        };
        let exact = returns(&|upto| returned_to(upto).is_some());
        let cycles =
            returns(&|upto| returned_to(upto).is_some() || !progressing && churned(upto, self.file_churn_threshold));
        let repeated = cycles >= self.undo_redo_cycles;
        let alone = exact >= self.tree_returns && !progressing && !takes_back_a_loss(window);
        if let Some(earlier) = returned_to(window).filter(|_| repeated || alone) {
            let earlier = number(&input.history[..=input.history.len() - window.len() + earlier]);
            let text = format!("the files are again exactly as after iteration {earlier}");
            evidence.push(DetectionEvidence::new("tree_return", exact, self.tree_returns, text));
        }
        if repeated {
            let changed = named_files(window.iter().rev().take(2).rev());
            let text = format!("{cycles} returns to an earlier state in the last {} iterations{changed}", window.len());
            evidence.push(DetectionEvidence::new("undo_redo", cycles, self.undo_redo_cycles, text));
        }
        let turns = turns(window, self.min_swing);
        if !progressing && turns >= self.sign_changes {
            let text = format!("completion changed direction {turns} times in the last {} iterations", window.len());
            evidence.push(DetectionEvidence::new("sign_changes", turns, self.sign_changes, text));
        }
        // A single tool error also changes P, so completion must turn as well.
        if !progressing && input.control.trend == Trend::Oscillating && turns >= self.trend_turns {
            evidence.push(DetectionEvidence::new("trend", 1, 1, "the trend oscillates".to_owned()));
        }
        let redirected =
            input.redirected.get(&DetectionKind::Oscillation).is_some_and(|then| *then < number(input.history));
        let in_vain = redirected && !progressing && exact >= self.critical_tree_returns;
        let severity = match evidence.as_slice() {
            _ if cycles >= self.critical_cycles || in_vain => DetectionSeverity::Critical,
            [single] if single.signal == "tree_return" => DetectionSeverity::Medium,
            _ => DetectionSeverity::High,
        };
        Detection::of(DetectionKind::Oscillation, severity, evidence)
    }
}

/// Returns the index of the newest earlier iteration with the last iteration's tree and a different tree in between. `None`
/// if there is none, or if the service and not the agent restored this tree.
fn returned_to(records: &[Record]) -> Option<usize> {
    let (last, before) = records.split_last()?;
    let newest = last.tree.as_deref()?;
    if matches!(last.change, TreeChange::Nothing | TreeChange::Service) {
        return None;
    }
    let mut has_left = false;
    before.iter().rposition(|record| match record.tree.as_deref() {
        Some(tree) if tree == newest => has_left,
        Some(_) => {
            has_left = true;
            false
        }
        None => false,
    })
}

/// Whether the newest iteration is better than the previous one, which means that the return undid a loss.
fn takes_back_a_loss(records: &[Record]) -> bool {
    matches!(records, [.., before, last] if last.completion > before.completion)
}

/// Whether the newest iteration again changed most of the files from two iterations ago, while the previous iteration did
/// not.
fn churned(records: &[Record], threshold: f64) -> bool {
    let [.., first, between, last] = records else { return false };
    if first.files.is_empty() || last.files.is_empty() {
        return false;
    }
    let (between, last) = (files(between), files(last));
    let files = files(first);
    let again = files.iter().filter(|file| last.contains(*file) && !between.contains(*file)).count();
    again as f64 / files.len() as f64 > threshold
}

fn files(record: &Record) -> HashSet<&str> {
    record.files.iter().take(MAX_FILES).map(String::as_str).collect()
}

/// Counts how often completion turned from gain to loss or back, ignoring small changes. 0 if the newest change is not such
/// a turn.
fn turns(records: &[Record], min_swing: f64) -> u32 {
    let changes = records.windows(2).map(|pair| pair[1].completion.get() - pair[0].completion.get());
    let (mut turns, mut turned) = (0, false);
    let mut before: Option<bool> = None;
    for change in changes {
        let rises = change > 0.0;
        let swings = change.abs() >= min_swing && change != 0.0;
        turned = swings && before.is_some_and(|before| before != rises);
        turns += u32::from(turned);
        before = if swings { Some(rises) } else { before };
    }
    if turned { turns } else { 0 }
}
