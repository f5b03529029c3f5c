//! Choice of the model by rules. The first matching rule decides.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CompiledCondition, RuleFacts, RuleOutcome, RuleProblem};

/// Maximum length of a model's name, in characters.
const NAME_MAX: usize = 120;

/// Rule as written in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelRule {
    /// A condition such as `consec_errors >= 2`.
    pub when: String,
    /// Model that is requested while the condition is true.
    pub model: String,
}

/// Model of the next run, and the reason for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelChoice {
    /// Model; `None` for the backend's default.
    pub model: Option<String>,
    /// 0-based index of the rule that matched; `None` if none did.
    pub rule: Option<usize>,
    /// Reason, shown to people.
    pub why: String,
    /// Rules that could not be evaluated, which counts as false; one sentence each.
    pub broken: Vec<String>,
}

/// Compiled rules of one backend.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelRules {
    default: Option<String>,
    rules: Vec<(CompiledCondition, String)>,
}

impl ModelRules {
    /// Compiles rules. `key` is the path of the section that contains them (`backends.claude.models`).
    ///
    /// # Errors
    /// All problems of the rules, each with its path.
    pub fn compile(default: Option<&str>, rules: &[ModelRule], key: &str) -> Result<Self, Vec<RuleProblem>> {
        let mut problems = Vec::new();
        let mut compiled = Vec::new();
        let mut name = |model: &str, key: String| {
            if !valid_model_name(model) {
                problems.push(RuleProblem::whole(key, INVALID_NAME));
            }
        };
        if let Some(default) = default {
            name(default, format!("{key}.default"));
        }
        for (index, rule) in rules.iter().enumerate() {
            name(&rule.model, format!("{key}.rules[{index}].model"));
        }
        for (index, rule) in rules.iter().enumerate() {
            match CompiledCondition::compile(&rule.when, &format!("{key}.rules[{index}].when")) {
                Ok(when) => compiled.push((when, rule.model.clone())),
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() {
            Ok(Self { default: default.map(str::to_owned), rules: compiled })
        } else {
            Err(problems)
        }
    }

    /// Returns the model for the next run: the model of the first rule whose condition is true, else the default.
    pub fn choose(&self, facts: &RuleFacts) -> ModelChoice {
        let mut broken = Vec::new();
        for (index, (when, model)) in self.rules.iter().enumerate() {
            match when.evaluate(facts) {
                RuleOutcome::Holds => {
                    let why = format!("rule {}: {}", index + 1, when.text());
                    return ModelChoice { model: Some(model.clone()), rule: Some(index), why, broken };
                }
                RuleOutcome::Fails => {}
                RuleOutcome::Broken(reason) => {
                    broken.push(format!("rule {} of models (`{}`) has no effect: {reason}", index + 1, when.text()));
                }
            }
        }
        ModelChoice { model: self.default.clone(), rule: None, why: "the default".to_owned(), broken }
    }
}

pub const INVALID_NAME: &str =
    "is not the name of a model; letters, digits and ._-:/@+[] are allowed, and `-` does not come first";

/// Whether a name can safely be passed to a program as an argument: it has no shell metacharacters, and is not an option.
pub fn valid_model_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-:/@+[]".contains(c);
    !name.is_empty() && name.len() <= NAME_MAX && !name.starts_with('-') && name.chars().all(allowed)
}
