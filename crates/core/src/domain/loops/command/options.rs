//! Options of `run`, `plan` and `resume`: their parser, and their effect on a loop.

use ralph_types::failure::Failure;

use super::arguments::{CommandArguments, Problem, unknown_option};
use super::{nearest, shown, values};
use crate::domain::checks::criteria;
use crate::domain::loops::{Loop, RunOptions, is_number};
use crate::domain::model::ids::Timestamp;
use crate::domain::model::task::CheckSource;

/// Maximum number of checks in one command.
const CHECKS: usize = 16;

const NAMES: [&str; 7] = ["--check", "--max-iterations", "--timeout", "--budget", "--backend", "--base", "--confirm"];

impl RunOptions {
    /// Parses options, up to the first word that is not an option.
    pub(super) fn parse(arguments: &mut CommandArguments<'_>) -> Result<Self, Problem> {
        let mut options = Self::default();
        while let Some(name) = arguments.option()? {
            if !NAMES.contains(&name) {
                return Err((unknown_option(name), nearest(name, &NAMES).map(str::to_owned)));
            }
            let value = arguments.value()?.filter(|value| !value.is_empty());
            let value =
                value.ok_or_else(|| (format!("`{name}` needs a value."), Some(format!("{name} {}", example(name)))))?;
            options.set(name, &value).map_err(|problem| (problem.to_string(), None))?;
        }
        Ok(options)
    }

    /// Sets the option `name`.
    ///
    /// # Errors
    /// The name or the value is invalid. The error is one sentence.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        match name {
            "--check" if self.checks.len() >= CHECKS => {
                return Err(Failure::new(format!("A command can name at most {CHECKS} checks.")));
            }
            "--check" => self.checks.push(values::check(value)?),
            "--max-iterations" => set_once(name, &mut self.max_iterations, values::iterations(value)?)?,
            "--timeout" => set_once(name, &mut self.timeout_s, values::duration(value)?)?,
            "--budget" => set_once(name, &mut self.budget, values::money(value)?)?,
            "--backend" => set_once(name, &mut self.backend, values::backend(value)?)?,
            "--base" => set_once(name, &mut self.base, values::branch(value)?)?,
            "--confirm" => set_once(name, &mut self.confirm, values::hash(value)?)?,
            other => return Err(unknown_option(other).into()),
        }
        Ok(())
    }

    /// Applies the options to a loop. Options that are set replace the loop's options.
    pub fn apply_to(&self, target: &mut Loop) {
        if let Some(iterations) = self.max_iterations {
            target.limits.iterations = iterations;
        }
        if let Some(seconds) = self.timeout_s {
            target.limits.time_ms = i64::try_from(seconds).unwrap_or(i64::MAX / 2000).saturating_mul(1000);
        }
        if let Some(budget) = self.budget {
            target.limits.cost = budget;
        }
        let commands = self.commands(&target.checks.proposed).unwrap_or_default();
        if !commands.is_empty() {
            // Accepted proposals are about the repository, as detected checks are, so they cannot show that the task is done already.
            let from = match self.checks.iter().all(|check| is_number(check)) {
                true => CheckSource::Detected,
                false => CheckSource::Command,
            };
            target.checks.list = commands.iter().map(|command| criteria::plain(command, from)).collect();
            target.checks.source = Some(from);
            target.checks.baseline = None;
            target.checks.guard.base = None;
        }
        let earlier = std::mem::take(&mut target.settings.options);
        target.settings.options = Self {
            checks: if commands.is_empty() { earlier.checks } else { commands },
            backend: self.backend.clone().or(earlier.backend),
            base: self.base.clone().or(earlier.base),
            max_iterations: self.max_iterations.or(earlier.max_iterations),
            timeout_s: self.timeout_s.or(earlier.timeout_s),
            budget: self.budget.or(earlier.budget),
            confirm: None,
        };
    }

    /// Returns the reason why the options are invalid for a loop; `None` if they are valid.
    pub fn rejection(&self, current: &Loop, now: Timestamp) -> Option<String> {
        if let Err(problem) = self.commands(&current.checks.proposed) {
            return Some(problem.to_string());
        }
        let spent = &current.spent;
        if let Some(iterations) = self.max_iterations.filter(|limit| limit.is_reached(spent.iterations)) {
            let used = spent.iterations;
            return Some(format!(
                "--max-iterations {iterations} is not more than the {used} iterations used already; set a higher limit."
            ));
        }
        let used_ms = spent.time_at(now);
        let too_short = |s: &u64| i64::try_from(*s).is_ok_and(|s| s.saturating_mul(1000) <= used_ms);
        if let Some(seconds) = self.timeout_s.filter(too_short) {
            let used = used_ms / 1000;
            return Some(format!(
                "--timeout {seconds}s is not more than the {used} s used already; set a higher limit."
            ));
        }
        if let Some(budget) = self.budget.filter(|b| *b <= spent.cost) {
            let used = spent.cost;
            return Some(format!("--budget {budget} is not more than the {used} used already; set a higher limit."));
        }
        if self.base.as_ref().is_some_and(|base| current.branch.base.is_some() && *base != current.branch.base_branch) {
            return Some("--base cannot change after work has started; abort the loop and start a new one.".to_owned());
        }
        None
    }
}

/// Sets an option. Fails if it is already set.
fn set_once<T>(name: &str, option: &mut Option<T>, value: T) -> Result<(), Failure> {
    match option.replace(value) {
        None => Ok(()),
        Some(_) => Err(Failure::new(format!("`{}` is given twice.", shown(name)))),
    }
}

/// Returns an example value of an option, for error messages.
fn example(name: &str) -> &'static str {
    match name {
        "--check" => "\"cargo test\"",
        "--max-iterations" => "10",
        "--timeout" => "90m",
        "--budget" => "5.00",
        "--backend" => "NAME",
        "--base" => "BRANCH",
        _ => "HASH",
    }
}
