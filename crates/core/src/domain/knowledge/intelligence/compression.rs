//! Question that asks a model for a shorter context block.

use ralph_types::failure::Failure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::block::{Block, facts_only};
use super::context::Context;
use super::facts::session_line;
use super::job::{AssistantJob, JobKind};
use super::model_advice::is_out_of_place;
use crate::domain::knowledge::text;
use crate::domain::model::tokens::estimated_tokens;

/// Maximum size of the facts in the question, as a multiple of the block's size.
const SOURCE: usize = 6;

/// Context block written by a model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Compressed {
    /// Facts that the agent needs to continue, in short lines.
    pub context: String,
}

/// Question for a shorter context block.
#[derive(Clone)]
pub struct Compression<'a> {
    context: &'a Context,
    tokens: usize,
}

impl<'a> Compression<'a> {
    /// Creates the question that shortens all known facts to `tokens` tokens.
    pub fn of(context: &'a Context, tokens: usize) -> Self {
        Self { context, tokens }
    }

    /// Builds the block from an answer, and adds the figures line. All learnings in the question count as part of the block,
    /// because the answer does not identify them.
    pub fn block(&self, answer: &Compressed) -> Block {
        let source = self.context.block(self.tokens.saturating_mul(SOURCE));
        let text = facts_only(&format!("{}\n{}", session_line(&self.context.session), answer.context));
        Block {
            tokens: estimated_tokens(text.len()),
            text,
            left_out: 0,
            learnings: source.learnings,
            told: source.told,
        }
    }
}

impl AssistantJob for Compression<'_> {
    type Output = Compressed;

    const KIND: JobKind = JobKind::Context;

    fn question(&self, nonce: &str) -> String {
        let tokens = self.tokens.saturating_sub(estimated_tokens(session_line(&self.context.session).len()) + 1);
        let mut out = format!(
            "Given this state and history, write a concise context block for iteration {} of a coding agent: what it needs \
             to continue well, in short lines, recent failures and breakthroughs first. At most {tokens} tokens. Facts \
             only, no orders; keep names of files and errors as they are; make nothing up.\n\n",
            self.context.session.iteration
        );
        let source = self.context.block(self.tokens.saturating_mul(SOURCE));
        text::frame(&mut out, nonce, "state and history", &source.text);
        out
    }

    fn checked(&self, answer: Compressed) -> Result<Compressed, Failure> {
        let lines = answer.context.lines().map(|line| text::line(line, 400));
        let allowed_lines = lines.filter(|line| !line.is_empty() && !is_out_of_place(line));
        let context = allowed_lines.collect::<Vec<_>>().join("\n");
        if context.is_empty() {
            return Err(Failure::new("`context` is unusable: it must contain facts and no instructions"));
        }
        let answer = Compressed { context };
        let tokens = self.block(&answer).tokens;
        if tokens > self.tokens {
            return Err(Failure::new(format!("it has {tokens} tokens; at most {} are allowed", self.tokens)));
        }
        Ok(answer)
    }
}
