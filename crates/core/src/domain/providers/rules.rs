//! Configurable rules for a loop: the choice of its model, and its schedule.
//!
//! Conditions are expressions of the Common Expression Language (CEL). A library parses them, and their types are checked here. A
//! subset is supported: names of [`RuleFacts`], numbers, texts, `&& || !`, comparisons, `+ - * / %`, `in` with a list, `? :`, and
//! a few functions. There are no loops, so that the length of the text bounds the time of an evaluation. Errors are reported when
//! the configuration is read, not while a loop runs.

mod facts;
mod models;
mod schedule;
mod text;
mod typing;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, LazyLock};

use cel::common::ast::IdedExpr;
use cel::parser::Parser;
use cel::{Context, Env, ExecutionError, Value};

pub use facts::RuleFacts;
pub use models::INVALID_NAME;
pub use models::{ModelChoice, ModelRule, ModelRules, valid_model_name};
pub use schedule::{ActionName, FiredRule, Look, Schedule, ScheduleEntry, ScheduleState, ScheduledAction, Trigger};

use typing::{ExpressionProblem, Typing};

/// Maximum length of an expression, in characters.
pub const EXPRESSION_MAX: usize = 500;

/// Maximum nesting of parentheses, brackets and conditions. Without optimization, the parser needs about 100 KiB of stack per
/// level, and it runs on threads with 2 MiB.
const NESTING_MAX: u16 = 8;

/// Internal name for the division of decimals in a compiled expression. Division by 0 fails here, whereas CEL allows it for
/// decimals.
const DIVIDE: &str = "divide_decimals";

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// Problem of a rule, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleProblem {
    /// Path of the key (`models.rules[1].when`).
    pub key: String,
    /// 1-based line and column within the value; `None` if the problem concerns the whole value.
    pub at: Option<(usize, usize)>,
    /// Problem and how to fix it, without the key.
    pub message: String,
}

impl RuleProblem {
    fn whole(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), at: None, message: message.into() }
    }
}

impl fmt::Display for RuleProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: ", self.key)?;
        match self.at {
            Some((1, column)) => write!(f, "column {column}: ")?,
            Some((line, column)) => write!(f, "line {line}, column {column}: ")?,
            None => {}
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for RuleProblem {}

/// Result of evaluating a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleOutcome {
    /// The condition is true.
    Holds,
    /// The condition is false.
    Fails,
    /// The condition could not be evaluated, which counts as false. The value is the reason, for people.
    Broken(String),
}

/// Condition whose syntax and types were checked.
#[derive(Debug, Clone)]
pub struct CompiledCondition {
    text: String,
    expression: IdedExpr,
    /// Names of [`RuleFacts`] that the condition uses.
    names: Vec<&'static str>,
}

impl CompiledCondition {
    /// Compiles an expression. `key` is its path in the configuration, for errors.
    ///
    /// # Errors
    /// The expression is empty, too long or nested too deeply; it has a syntax error; it uses an unknown name or function, or
    /// a value of the wrong type; or it can never be true.
    pub fn compile(text: &str, key: &str) -> Result<Self, RuleProblem> {
        let problem = |finding: ExpressionProblem| {
            let at = finding.offset.map(|offset| text::line_and_column(text, offset));
            RuleProblem { key: key.to_owned(), at, message: finding.message }
        };
        text::check(text).map_err(problem)?;
        let parsed = Parser::new().max_recursion_depth(NESTING_MAX).parse_with_source_info(text);
        let (mut expression, source) = parsed.map_err(|errors| problem(text::syntax_problem(text, &errors)))?;
        let names = Typing::new(&source).condition(&mut expression).map_err(problem)?;
        Ok(Self { text: text.to_owned(), expression, names })
    }

    /// Returns the expression as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Evaluates the condition. The evaluation never panics, and takes bounded time.
    pub fn evaluate(&self, facts: &RuleFacts) -> RuleOutcome {
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        for name in &self.names {
            if let Some(value) = facts.value(name) {
                context.add_variable_from_value(*name, value);
            }
        }
        // The name is ours alone, so that it cannot be one of the library's.
        if let Err(error) = context.add_function(DIVIDE, divide) {
            return RuleOutcome::Broken(error.to_string());
        }
        match Value::resolve(&self.expression, &context) {
            Ok(Value::Bool(true)) => RuleOutcome::Holds,
            Ok(Value::Bool(false)) => RuleOutcome::Fails,
            Ok(_) => RuleOutcome::Broken("its value is not true or false".to_owned()),
            Err(error) => RuleOutcome::Broken(reason(&error)),
        }
    }
}

impl PartialEq for CompiledCondition {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

fn divide(dividend: f64, divisor: f64) -> Result<f64, ExecutionError> {
    if divisor == 0.0 {
        return Err(ExecutionError::DivisionByZero(Value::Float(dividend)));
    }
    Ok(dividend / divisor)
}

/// Describes the reason of a failed evaluation in terms of the configuration.
fn reason(error: &ExecutionError) -> String {
    match error {
        ExecutionError::DivisionByZero(_) => "it divides by 0".to_owned(),
        ExecutionError::RemainderByZero(_) => "it takes a remainder by 0".to_owned(),
        ExecutionError::Overflow(..) => "a number in it is too large".to_owned(),
        other => crate::domain::model::settings::shortened(&other.to_string()),
    }
}
