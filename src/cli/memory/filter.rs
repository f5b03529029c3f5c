//! Filters of `ralph-bot memory`: which learnings are listed.

use std::collections::BTreeMap;

use clap::Args;

use crate::domain::checks::criteria::TaskType;
use crate::domain::knowledge::memory::{LearningFilter, LearningKind};

/// Options that filter learnings; all must hold.
#[derive(Debug, Clone, Default, Args)]
pub struct LearningFilterArgs {
    /// Only this kind: strategy, antipattern, estimate or convention
    #[arg(long, value_parser = LearningFilter::parse_kind)]
    pub kind: Option<LearningKind>,
    /// Only this task type, such as test-fix or feature
    #[arg(long, value_name = "TYPE", value_parser = LearningFilter::parse_task_type)]
    pub task_type: Option<TaskType>,
    /// Only this repository: `owner/name`, or `forge:owner/name`
    #[arg(long, value_name = "REPOSITORY")]
    pub repository: Option<String>,
    /// Minimum confidence, 0 to 1
    #[arg(long, value_name = "NUMBER", value_parser = LearningFilter::parse_share)]
    pub min_confidence: Option<f64>,
    /// Minimum success rate, 0 to 1
    #[arg(long, value_name = "NUMBER", value_parser = LearningFilter::parse_share)]
    pub min_success_rate: Option<f64>,
}

impl LearningFilterArgs {
    /// Returns the filter.
    pub fn filter(&self) -> LearningFilter {
        let Self { kind, task_type, repository, min_confidence, min_success_rate } = self.clone();
        LearningFilter { kind, task_type, repository, min_confidence, min_success_rate }
    }
}

/// Returns the numbers of learnings by kind, then by task type, as two lines.
pub(super) fn totals(counts: &[(String, String, u64)]) -> String {
    let sum = |of: fn(&(String, String, u64)) -> &String| {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        counts.iter().for_each(|row| *sums.entry(of(row)).or_default() += row.2);
        sums.into_iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
    };
    if counts.is_empty() {
        return String::new();
    }
    format!("by kind: {}\nby task type: {}\n", sum(|row| &row.0), sum(|row| &row.1))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::domain::knowledge::memory::{MemorySettings, remembered};
    use crate::domain::model::ids::{ForgeName, LoopId, RepoId, RepoRef, Timestamp};

    #[derive(Parser)]
    struct FilterLine {
        #[command(flatten)]
        filter: LearningFilterArgs,
    }

    fn parse(line: &str) -> Result<LearningFilter, String> {
        let words = std::iter::once("x").chain(line.split_whitespace());
        FilterLine::try_parse_from(words).map(|line| line.filter.filter()).map_err(|error| error.to_string())
    }

    #[test]
    fn learnings_are_filtered_by_every_option() {
        let repo = RepoRef { forge: ForgeName::new("work"), id: RepoId(7), owner: "team".into(), name: "app".into() };
        let rule = remembered(&repo, "Run make fixtures first.", &LoopId::new("r-1"), Timestamp(1));
        let settings = MemorySettings::default();
        for (line, accepted) in [
            ("", true),
            ("--kind convention", true),
            ("--kind strategy", false),
            ("--task-type other --min-confidence 0.9", true),
            ("--task-type test-fix", false),
            ("--repository Team/App", true),
            ("--repository work:team/app", true),
            ("--repository other:team/app", false),
            ("--min-confidence 0.96", false),
            ("--min-success-rate 0.5 --kind convention", true),
            ("--min-success-rate 1", false),
        ] {
            let filter = parse(line).expect("valid");
            assert_eq!(filter.accepts(&rule, &settings, Timestamp(1)), accepted, "{line}");
            assert_eq!(filter.is_empty(), line.is_empty(), "{line}");
        }
    }

    #[test]
    fn invalid_values_are_refused_with_the_allowed_values() {
        for (line, expected) in [
            ("--kind rule", "strategy, antipattern, estimate, convention"),
            ("--task-type tests", "test-fix, type-errors"),
            ("--min-confidence 7", "a number from 0 to 1"),
            ("--min-success-rate NaN", "a number from 0 to 1"),
        ] {
            let error = parse(line).expect_err("wrong");
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn totals_are_summed_by_kind_and_task_type() {
        let row = |kind: &str, task_type: &str, count| (kind.to_owned(), task_type.to_owned(), count);
        let rows = [row("strategy", "docs", 2), row("strategy", "lint", 1), row("antipattern", "docs", 4)];
        assert_eq!(totals(&rows), "by kind: 4 antipattern, 3 strategy\nby task type: 6 docs, 1 lint\n");
        assert_eq!(totals(&[]), "");
    }
}
