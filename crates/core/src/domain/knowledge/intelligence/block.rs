//! Context block of a prompt: the most important facts within a token budget.

use serde::{Deserialize, Serialize};

use super::context::Context;
use super::facts::{Fact, Sort, facts};
use crate::domain::model::tokens::estimated_tokens;

/// Number of facts to try after one did not fit, because a shorter fact may still fit.
const TRIED_AFTER_FULL: usize = 12;

/// Context block.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Block {
    /// Lines of the block, without the surrounding tags.
    pub text: String,
    /// Estimated number of tokens in the text.
    pub tokens: usize,
    /// Number of facts omitted for lack of space.
    pub left_out: usize,
    /// Ids of the learnings in the block.
    pub learnings: Vec<String>,
    /// Digests of the facts in the block, so that a resumed session does not repeat them.
    #[serde(default)]
    pub told: Vec<String>,
}

impl Block {
    fn of(chosen: &[Fact], all: usize) -> Self {
        let mut shown: Vec<&Fact> = chosen.iter().collect();
        shown.sort_by_key(|fact| (fact.sort, fact.rank));
        let text = facts_only(&shown.iter().map(|fact| fact.text.as_str()).collect::<Vec<_>>().join("\n"));
        let learnings = shown.iter().filter_map(|fact| fact.learning.clone()).collect();
        let told = shown.iter().map(|fact| fact.digest()).collect();
        Self { tokens: estimated_tokens(text.len()), text, left_out: all - chosen.len(), learnings, told }
    }
}

impl Context {
    /// Builds a block of at most `tokens` tokens from the most important facts, sorted by kind.
    pub fn block(&self, tokens: usize) -> Block {
        self.block_of(facts(self), tokens)
    }

    /// Builds the block for a resumed session: the figures line, and facts whose digests are not in `told`.
    pub fn news(&self, told: &[String], tokens: usize) -> Block {
        let is_new = |fact: &Fact| fact.sort == Sort::Now || !(fact.is_background() || told.contains(&fact.digest()));
        self.block_of(facts(self).into_iter().filter(is_new).collect(), tokens)
    }

    fn block_of(&self, mut facts: Vec<Fact>, tokens: usize) -> Block {
        facts.sort_by_key(|fact| fact.rank);
        let all = facts.len();
        let mut chosen = SelectedFacts { facts: Vec::new(), used: 0, most: tokens };
        let remaining = match self.memory_share.filter(|share| share.is_finite()) {
            Some(share) => {
                let (memory, mut rest): (Vec<_>, Vec<_>) = facts.into_iter().partition(|fact| fact.sort.is_memory());
                // Every block with enough space contains the figures line.
                chosen.take(rest.drain(..1.min(rest.len())).collect(), tokens);
                let room = tokens - chosen.used;
                let reserved = (room as f64 * share.clamp(0.0, 1.0)) as usize;
                let mut remaining = chosen.take(rest, room - reserved);
                remaining.extend(chosen.take(memory, reserved));
                remaining.sort_by_key(|fact| fact.rank);
                remaining
            }
            None => facts,
        };
        chosen.take(remaining, tokens);
        let mut chosen = chosen.facts;
        chosen.sort_by_key(|fact| fact.rank);
        loop {
            let block = Block::of(&chosen, all);
            // If the joined lines exceed the sum of their counts, remove the least important line.
            if block.tokens <= tokens || chosen.is_empty() {
                return block;
            }
            chosen.pop();
        }
    }
}

/// Facts selected for a block.
struct SelectedFacts {
    facts: Vec<Fact>,
    used: usize,
    most: usize,
}

impl SelectedFacts {
    /// Adds facts in order if they fit into `room` tokens. Returns the facts that did not fit.
    fn take(&mut self, facts: Vec<Fact>, room: usize) -> Vec<Fact> {
        let (mut skipped, mut taken) = (Vec::new(), 0);
        for fact in facts {
            if skipped.len() > TRIED_AFTER_FULL {
                skipped.push(fact);
                continue;
            }
            // A line feed may be a token.
            let size = estimated_tokens(fact.text.len()) + 1;
            if taken + size <= room && self.used + size <= self.most {
                (taken, self.used) = (taken + size, self.used + size);
                self.facts.push(fact);
            } else {
                skipped.push(fact);
            }
        }
        skipped
    }
}

/// Removes the prefixes that mark directives of the overseer from a text.
pub(super) fn facts_only(text: &str) -> String {
    text.replace("OVERRIDE:", "override -").replace("WARNING:", "warning -")
}

/// Returns the block's token budget: `most`, but at most `percent` (0..100) of the backend's context window if its size is
/// known.
pub fn token_budget(most: usize, percent: f64, window: Option<u64>) -> usize {
    let share = if percent.is_finite() { (percent / 100.0).clamp(0.0, 1.0) } else { 0.0 };
    // Casts from floats saturate.
    window.map_or(most, |window| most.min((window as f64 * share) as usize))
}
