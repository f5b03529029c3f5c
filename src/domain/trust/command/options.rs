//! The options that `run` and `resume` share.

use serde::{Deserialize, Serialize};

use super::words::{Problem, WordReader, unknown};
use super::{nearest, shown, values};
use crate::domain::model::ids::Money;

/// Most checks that one command may name.
const CHECKS: usize = 16;

const NAMES: [&str; 7] = ["--check", "--max-iterations", "--timeout", "--budget", "--backend", "--base", "--confirm"];

/// What a loop is started or continued with; what is absent stays as configured.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunOptions {
    /// Commands of the checks, in order; at most 16.
    pub checks: Vec<String>,
    /// Limit of iterations, 1..=1000.
    pub max_iterations: Option<u32>,
    /// Limit of working time in seconds, up to 30 days.
    pub timeout_s: Option<u64>,
    /// Limit of money, above 0.
    pub budget: Option<Money>,
    /// Name of a backend.
    pub backend: Option<String>,
    /// Branch to start from.
    pub base: Option<String>,
    /// Hash of the text that is confirmed, lower-case hexadecimal, 8..=64 digits.
    pub confirm: Option<String>,
}

impl RunOptions {
    /// Reads options up to the first word that is none.
    pub(super) fn parse(words: &mut WordReader<'_>) -> Result<Self, Problem> {
        let mut options = Self::default();
        while let Some(name) = words.option()? {
            if !NAMES.contains(&name) {
                return Err((unknown(name), nearest(name, &NAMES).map(str::to_owned)));
            }
            let plain = |problem: String| (problem, None);
            let value = words.value().map_err(plain)?;
            let value = value.filter(|value| !value.is_empty());
            let value =
                value.ok_or_else(|| (format!("`{name}` needs a value."), Some(format!("{name} {}", example(name)))))?;
            options.set(name, &value).map_err(plain)?;
        }
        Ok(options)
    }

    /// Sets the option `name`, one of `NAMES`.
    ///
    /// # Errors
    /// What is wrong with the name or the value, in a sentence.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "--check" if self.checks.len() >= CHECKS => {
                return Err(format!("A command may name at most {CHECKS} checks."));
            }
            "--check" => self.checks.push(values::check(value)?),
            "--max-iterations" => once(name, &mut self.max_iterations, values::iterations(value)?)?,
            "--timeout" => once(name, &mut self.timeout_s, values::duration(value)?)?,
            "--budget" => once(name, &mut self.budget, values::money(value)?)?,
            "--backend" => once(name, &mut self.backend, values::backend(value)?)?,
            "--base" => once(name, &mut self.base, values::branch(value)?)?,
            "--confirm" => once(name, &mut self.confirm, values::hash(value)?)?,
            other => return Err(unknown(other)),
        }
        Ok(())
    }
}

/// Sets what was not set before.
fn once<T>(name: &str, place: &mut Option<T>, value: T) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("`{}` is given twice.", shown(name))),
    }
}

/// A value that `name` would take.
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
