//! Kinds of texts that can restrict a search, and identifiers of matching rows.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TextTier;
use crate::domain::knowledge::session::SessionTier;
use crate::domain::knowledge::session::transcript::TextSource;
use crate::domain::model::ids::LoopId;
use crate::store::StoreResult;
use crate::store::sql::{Connection, OptionalExtension, params};

/// Kind of texts in a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TextKind {
    /// Titles of issues, with person, repository, branch and state reason.
    Title,
    /// Commands of people, with their texts, and their requests in reviews.
    Comment,
    /// Prompts.
    Prompt,
    /// Answers of agents and assistants.
    Answer,
    /// Outputs of checks and results of tools.
    Output,
    /// Errors of agents, and failures in iterations.
    Error,
    /// Actions of agents, and changes of backend and model.
    Action,
    /// Detections and interventions.
    Decision,
    /// Summaries of iterations.
    Summary,
}

impl TextKind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Title,
        Self::Comment,
        Self::Prompt,
        Self::Answer,
        Self::Output,
        Self::Error,
        Self::Action,
        Self::Decision,
        Self::Summary,
    ];

    /// Returns the name in queries.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Title => "title",
            Self::Comment => "comment",
            Self::Prompt => "prompt",
            Self::Answer => "answer",
            Self::Output => "output",
            Self::Error => "error",
            Self::Action => "action",
            Self::Decision => "decision",
            Self::Summary => "summary",
        }
    }

    /// Returns the columns to search and the SQL condition on the rows `t` of a tier; `None` if the tier has no texts of
    /// this kind.
    pub(super) fn within(self, tier: TextTier) -> Option<(&'static str, &'static str)> {
        let TextTier::Session(tier) = tier else { return (self == Self::Title).then_some(("", "TRUE")) };
        Some(match (tier, self) {
            (SessionTier::Raw, Self::Prompt) => ("{prompt}", "TRUE"),
            (SessionTier::Raw, Self::Answer) => ("{response}", "TRUE"),
            (SessionTier::Raw, Self::Error) => ("{response}", "t.error IS NOT NULL"),
            (SessionTier::Events, Self::Comment) => ("{text}", "t.kind IN ('command', 'remark')"),
            (SessionTier::Events, Self::Output) => ("{text}", "t.kind IN ('check', 'tool_result')"),
            (SessionTier::Events, Self::Error) => ("{text}", "t.failed = 1"),
            (SessionTier::Events, Self::Action) => {
                ("{text}", "t.kind IN ('tool_call', 'file_change', 'backend_switch', 'model_switch')")
            }
            (SessionTier::Events, Self::Decision) => ("{text}", "t.kind IN ('detection', 'intervention')"),
            (SessionTier::Summaries, Self::Summary) => ("{text}", "TRUE"),
            _ => return None,
        })
    }
}

/// Row of a text that a search found, as used in links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextRow {
    /// Prompt of the turn with this row id.
    Prompt(i64),
    /// Answer of the turn with this row id.
    Answer(i64),
    /// Event with this row id.
    Event(i64),
}

impl TextRow {
    /// Parses the output of `Display`, such as `event-7`; `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, row) = text.split_once('-')?;
        let row = row.parse().ok().filter(|row| *row > 0)?;
        match kind {
            "prompt" => Some(Self::Prompt(row)),
            "answer" => Some(Self::Answer(row)),
            "event" => Some(Self::Event(row)),
            _ => None,
        }
    }
}

impl fmt::Display for TextRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prompt(row) => write!(f, "prompt-{row}"),
            Self::Answer(row) => write!(f, "answer-{row}"),
            Self::Event(row) => write!(f, "event-{row}"),
        }
    }
}

/// Returns the text of a row and its position in the iteration; `None` if the row does not belong to the iteration.
pub fn source_of(c: &Connection, id: &LoopId, iteration: u32, row: TextRow) -> StoreResult<Option<TextSource>> {
    let (sql, row_id) = match row {
        TextRow::Prompt(row) | TextRow::Answer(row) => (
            "SELECT (SELECT count(*) FROM session_turns o WHERE o.loop_id = t.loop_id AND o.iteration = t.iteration
                 AND (o.attempt, o.started_at, o.id) < (t.attempt, t.started_at, t.id))
             FROM session_turns t WHERE t.id = ?1 AND t.loop_id = ?2 AND t.iteration = ?3",
            row,
        ),
        TextRow::Event(row) => (
            "SELECT (SELECT count(*) FROM session_events o WHERE o.loop_id = t.loop_id AND o.iteration = t.iteration
                 AND o.id < t.id)
             FROM session_events t WHERE t.id = ?1 AND t.loop_id = ?2 AND t.iteration = ?3",
            row,
        ),
    };
    let mut statement = c.prepare_cached(sql)?;
    let nth = statement.query_row(params![row_id, id.as_str(), iteration], |row| row.get::<_, i64>(0)).optional()?;
    Ok(nth.and_then(|nth| usize::try_from(nth).ok()).map(|nth| match row {
        TextRow::Prompt(_) => TextSource::Prompt(nth),
        TextRow::Answer(_) => TextSource::Answer(nth),
        TextRow::Event(_) => TextSource::Event(nth),
    }))
}
