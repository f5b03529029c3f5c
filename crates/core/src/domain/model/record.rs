//! Measurements of one iteration: the input of control and oversight, and one line of a trace for `replay`.

use std::borrow::Cow;
use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ids::Ratio;

/// Outcome of a check in a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckFact {
    /// Name of the check.
    pub name: String,
    /// Whether it passed.
    pub passed: bool,
    /// Whether it passed before the first iteration; `None` if unknown.
    #[serde(default)]
    pub baseline: Option<bool>,
}

/// Origin of the change of the work tree in an iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TreeChange {
    /// The origin was not recorded. Comparing the tree hashes of neighboring iterations shows whether the tree changed.
    #[default]
    Unknown,
    /// The tree did not change since the iteration started. (The service may have restored the tree before.)
    Nothing,
    /// The agent changed the tree.
    Agent,
    /// The service, and not the agent, changed the tree: by a merge, or by restoring the base's tests.
    Service,
}

/// Measurements of one iteration. Values are unprocessed; [`Record::cleaned`] clamps them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Record {
    /// 1-based number of the iteration.
    pub iteration: f64,
    /// Measured completion, 0..1.
    pub completion: Ratio,
    /// 1 minus lint errors, type errors and signs of tampering; 0..1, 1 if unknown.
    pub quality: f64,
    /// Number of failed checks and failed tool calls.
    pub errors: f64,
    /// Number of passing tests; `None` if not counted.
    pub tests_passing: Option<f64>,
    /// Number of failing tests; `None` if not counted.
    pub tests_failing: Option<f64>,
    /// Number of skipped tests; `None` if not counted.
    pub tests_skipped: Option<f64>,
    /// Failing tests of checks without test counts, or their error lines. Each starts with its check's name.
    pub failures: Vec<String>,
    /// Coverage in percent; `None` if not measured.
    pub coverage: Option<f64>,
    /// Signature of the first error; `None` without an error.
    pub error_signature: Option<String>,
    /// Blockers reported by the agent.
    pub blockers: Vec<String>,
    /// Learnings reported by the agent.
    pub learnings: Vec<String>,
    /// Reflection on the iteration, written by a model.
    pub reflection: Option<String>,
    /// Summary reported by the agent.
    pub summary: String,
    /// Paths of changed files.
    pub files: Vec<String>,
    /// Hash of the complete work tree after the iteration.
    pub tree: Option<String>,
    /// Origin of the change of the work tree in the iteration.
    pub change: TreeChange,
    /// Outcomes of the checks; may be empty if unknown.
    pub checks: Vec<CheckFact>,
    /// Findings of weakened checks, one sentence each.
    pub tampering: Vec<String>,
    /// Problem that ended the agent's run; `None` if the run succeeded.
    pub agent_failure: Option<String>,
    /// Duration, in seconds.
    pub duration_s: f64,
    /// Number of tool calls.
    pub tool_calls: f64,
    /// Input tokens.
    pub tokens_in: f64,
    /// Output tokens.
    pub tokens_out: f64,
    /// Cost, in US dollars.
    pub cost_usd: f64,
    /// Whether the agent reported that the task is done.
    pub completion_signal: bool,
    /// Similarity between the work and the objective according to an embedding model, 0..1; `None` if not computed.
    pub objective_similarity: Option<f64>,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            iteration: 0.0,
            completion: Ratio::default(),
            quality: 1.0,
            errors: 0.0,
            tests_passing: None,
            tests_failing: None,
            tests_skipped: None,
            failures: Vec::new(),
            coverage: None,
            error_signature: None,
            blockers: Vec::new(),
            learnings: Vec::new(),
            reflection: None,
            summary: String::new(),
            files: Vec::new(),
            tree: None,
            change: TreeChange::default(),
            checks: Vec::new(),
            tampering: Vec::new(),
            agent_failure: None,
            duration_s: 0.0,
            tool_calls: 0.0,
            tokens_in: 0.0,
            tokens_out: 0.0,
            cost_usd: 0.0,
            completion_signal: false,
            objective_similarity: None,
        }
    }
}

/// Maximum number of blockers considered per iteration.
pub const MAX_BLOCKERS: usize = 256;

/// Largest plausible count; larger values are treated as invalid.
const LARGEST_COUNT: f64 = 1e12;

impl Record {
    /// Returns the record with each value clamped to its range, and the number of values that were out of range.
    #[must_use]
    pub fn cleaned(mut self) -> (Self, u32) {
        let mut wrong = 0;
        let mut clamp = |value: &mut f64, low: f64, high: f64, otherwise: f64| {
            let right = if value.is_nan() { otherwise } else { value.clamp(low, high) };
            if right.to_bits() != value.to_bits() && right != *value {
                wrong += 1;
                *value = right;
            }
        };
        clamp(&mut self.quality, 0.0, 1.0, 1.0);
        for count in [&mut self.iteration, &mut self.errors, &mut self.duration_s, &mut self.tool_calls] {
            clamp(count, 0.0, LARGEST_COUNT, 0.0);
        }
        for count in [&mut self.tokens_in, &mut self.tokens_out, &mut self.cost_usd] {
            clamp(count, 0.0, LARGEST_COUNT, 0.0);
        }
        let tests = [&mut self.tests_passing, &mut self.tests_failing, &mut self.tests_skipped];
        for count in tests.into_iter().flatten() {
            clamp(count, 0.0, LARGEST_COUNT, 0.0);
        }
        if let Some(coverage) = &mut self.coverage {
            clamp(coverage, 0.0, 100.0, 0.0);
        }
        if let Some(similarity) = &mut self.objective_similarity {
            clamp(similarity, 0.0, 1.0, 0.0);
        }
        let completion = Ratio::new(self.completion.get());
        wrong += u32::from(completion != self.completion);
        self.completion = completion;
        (self, wrong)
    }

    /// Returns a record with only the numbers, clamped to their ranges, and the number of values that were out of range.
    /// Texts and lists are empty, which bounds the size of the result.
    #[must_use]
    pub fn figures(&self) -> (Self, u32) {
        let figures = Self {
            iteration: self.iteration,
            completion: self.completion,
            quality: self.quality,
            errors: self.errors,
            tests_passing: self.tests_passing,
            tests_failing: self.tests_failing,
            tests_skipped: self.tests_skipped,
            coverage: self.coverage,
            duration_s: self.duration_s,
            tool_calls: self.tool_calls,
            tokens_in: self.tokens_in,
            tokens_out: self.tokens_out,
            cost_usd: self.cost_usd,
            completion_signal: self.completion_signal,
            ..Self::default()
        };
        figures.cleaned()
    }

    /// Returns the records of iterations without findings of weakened checks, because weakened checks are not a valid
    /// measurement.
    pub fn measured(history: &[Self]) -> Cow<'_, [Self]> {
        match history.iter().any(|record| !record.tampering.is_empty()) {
            false => Cow::Borrowed(history),
            true => history.iter().filter(|record| record.tampering.is_empty()).cloned().collect(),
        }
    }

    /// Whether completion in `history` can only change by whole checks, because no tests are counted. Constant completion is
    /// then no evidence of a stuck loop; the absence of new errors is better evidence.
    pub fn is_all_or_nothing(history: &[Self]) -> bool {
        let all_or_nothing = |record: &Self| {
            let concerned = record.checks.iter().filter(|check| !check.passed || check.baseline != Some(true));
            let (held, all) =
                concerned.fold((0.0, 0.0), |(held, all), check| (held + f64::from(check.passed), all + 1.0));
            record.tests_failing.is_none()
                && record.coverage.is_none()
                && (record.completion.get() - held / all).abs() < 1e-9
        };
        !history.is_empty() && history.iter().all(|record| all_or_nothing(record) || record.is_finished())
    }

    /// Whether every check passed. Without checks, whether completion is 1.
    pub fn is_finished(&self) -> bool {
        match self.checks.as_slice() {
            [] => self.completion.get() >= 1.0,
            checks => checks.iter().all(|check| check.passed),
        }
    }
}

/// Set of error signatures in a history.
#[derive(Debug, Default)]
pub struct SeenErrors<'a>(BTreeSet<&'a str>);

impl<'a> SeenErrors<'a> {
    /// Adds the record's error signature (empty without an error). Returns whether it is new.
    pub fn is_new(&mut self, record: &'a Record) -> bool {
        self.0.insert(record.error_signature.as_deref().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_record_uses_defaults() {
        let record: Record = serde_json::from_str(r#"{"iteration": 3, "completion": 0.5, "of_tomorrow": 1}"#).unwrap();
        assert_eq!(record, Record { iteration: 3.0, completion: Ratio::new(0.5), ..Record::default() });
    }

    #[test]
    fn uncounted_checks_are_all_or_nothing() {
        let check = |passed, baseline| CheckFact { name: String::new(), passed, baseline: Some(baseline) };
        let of = |completion, checks: &[CheckFact]| Record {
            completion: Ratio::new(completion),
            checks: checks.to_vec(),
            ..Record::default()
        };
        let half = of(0.5, &[check(true, false), check(false, false), check(true, true)]);
        let none = of(0.0, &[check(false, false), check(false, false), check(true, true)]);
        assert!(Record::is_all_or_nothing(&[none.clone(), half.clone()]));
        assert!(
            !Record::is_all_or_nothing(&[none.clone(), Record { completion: Ratio::new(0.75), ..half.clone() }]),
            "a part is counted"
        );
        assert!(!Record::is_all_or_nothing(&[none, Record { tests_failing: Some(3.0), ..half }]));
        assert!(
            !Record::is_all_or_nothing(&[])
                && !Record::is_all_or_nothing(&[Record { completion: Ratio::new(0.3), ..Record::default() }])
        );
    }

    #[test]
    fn values_out_of_range_are_clamped_and_counted() {
        let record = Record {
            completion: serde_json::from_value(70.into()).unwrap(),
            quality: 7.0,
            errors: -3.0,
            tokens_in: f64::INFINITY,
            coverage: Some(-1.0),
            tests_failing: Some(f64::NAN),
            cost_usd: 0.25,
            ..Record::default()
        };
        let (clean, wrong) = record.clone().cleaned();
        assert_eq!(wrong, 6);
        assert_eq!((clean.completion.get(), clean.quality, clean.errors), (1.0, 1.0, 0.0));
        assert_eq!((clean.tokens_in, clean.coverage, clean.tests_failing), (LARGEST_COUNT, Some(0.0), Some(0.0)));
        assert_eq!(clean.cost_usd, 0.25);
        assert_eq!(clean.clone().cleaned(), (clean.clone(), 0));
        let talkative = Record { blockers: vec!["no database".to_owned()], ..record };
        assert_eq!(talkative.figures(), (clean, wrong));
    }
}
