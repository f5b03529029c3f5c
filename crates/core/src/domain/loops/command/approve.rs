//! `/ralph approve`: approves the posted plan, so that the loop implements it.

use ralph_types::failure::Failure;
use serde::{Deserialize, Serialize};

use super::arguments::{CommandArguments, Problem};
use super::definition::{CommandDefinition, CommandRecord, CommandRow, CommandTarget};
use super::shown;
use crate::domain::loops::{Loop, PlanApproval, ProposedPlan};
use crate::domain::model::plan::SHORT_HASH;
use crate::domain::model::stated_facts::StatedFacts;

/// Length of a SHA-256 in hexadecimal digits.
const HASH: usize = 64;

/// Approves a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approve {
    /// Start of the plan's hash, as typed; `None` if it was omitted.
    pub hash: Option<String>,
    /// Changes to the plan and answers to its questions; may be empty.
    pub changes: String,
}

impl CommandDefinition for Approve {
    const ROW: CommandRow = CommandRow {
        name: "approve",
        usage: "/ralph approve [HASH] [changes…]",
        help: "Approves the plan that was posted, with changes or answers to its questions, and starts the loop.",
        record: CommandRecord::SessionAndAudit,
    };

    fn parse(arguments: &mut CommandArguments<'_>) -> Result<Self, Problem> {
        let mut rest = arguments.clone();
        let hash = Some(rest.word().trim_matches('`').to_owned()).filter(|word| is_hash(word));
        if hash.is_some() {
            *arguments = rest;
        }
        Ok(Self { hash, changes: arguments.text() })
    }

    fn apply(self, target: &mut dyn CommandTarget) {
        let (by, at) = (target.author().login.clone(), target.now());
        let current = target.current();
        let plan = match waiting(current) {
            Ok(plan) => plan,
            Err(problem) => return target.reject(problem.to_string()),
        };
        let short = plan.short_hash().to_owned();
        match &self.hash {
            Some(typed) if !plan.is_named(typed) => {
                return target.reject(format!(
                    "`{}` is not the hash of the plan that waits; the loop did not start. Read the plan `{short}`, then \
                     `/ralph approve {short}`.",
                    shown(typed)
                ));
            }
            // Its author may have read an earlier plan only.
            None if plan.number > 1 => {
                return target.reject(format!(
                    "There was more than one plan: say which one, with `/ralph approve {short}` for the newest."
                ));
            }
            _ => {}
        }
        if !plan.plan.questions.is_empty() && self.changes.is_empty() {
            return target.reject(format!(
                "The plan asks questions: answer them with `/ralph approve {short} ANSWERS`, or have another one made with \
                 `/ralph plan ANSWERS`."
            ));
        }
        let with = if self.changes.is_empty() { "" } else { " with changes" };
        let reason = format!("{by} approved the plan `{short}`{with}");
        current.knowledge.stated.plan = StatedFacts::of_scope(&plan.plan.files);
        if let Some(planning) = &mut current.knowledge.planning {
            planning.approval = Some(PlanApproval { by, at, changes: self.changes });
        }
        target.accept(reason.clone());
        target.queue(&reason);
    }

    fn arguments(&self) -> String {
        format!("{} {}", self.hash.as_deref().unwrap_or_default(), self.changes).trim().to_owned()
    }
}

/// Returns the plan that is waiting for approval.
///
/// # Errors
/// No plan is waiting. The error gives the reason and a remedy.
fn waiting(current: &Loop) -> Result<ProposedPlan, Failure> {
    let state = current.state.words();
    match (current.knowledge.waiting_plan(), current.knowledge.approved_plan()) {
        (Some(plan), _) if current.state.waits_for_plan() => Ok(plan.clone()),
        (Some(plan), _) => Err(Failure::new(format!(
            "The loop is {state}: `/ralph resume` it, then approve the plan `{}`.",
            plan.short_hash()
        ))),
        (None, Some((plan, approval))) => {
            Err(Failure::new(format!("{} approved the plan `{}` already.", approval.by, plan.short_hash())))
        }
        (None, None) => Err(Failure::new(format!(
            "The loop is {state}, and no plan needs an approval. `/ralph plan` asks for one before the first iteration."
        ))),
    }
}

/// Whether a word is probably a hash: it has hexadecimal digits, and either as many as are displayed or a decimal digit among
/// them. A word that is too short for a hash is rejected, instead of being interpreted as a change to the plan.
fn is_hash(word: &str) -> bool {
    let digits = word.bytes().all(|b| b.is_ascii_hexdigit());
    let long = word.len() >= SHORT_HASH || (word.len() > SHORT_HASH / 2 && word.bytes().any(|b| b.is_ascii_digit()));
    digits && long && word.len() <= HASH
}
