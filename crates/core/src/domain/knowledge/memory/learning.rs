//! Learnings: results of loops that help later loops of a repository.

use std::fmt::Write as _;

use data_encoding::HEXLOWER;
use ralph_types::failure::Failure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::learning_evidence::LearningEvidence;
use crate::domain::checks::criteria::TaskType;
use crate::domain::model::dispersion::Dispersion;
use crate::domain::model::ids::{LoopId, RepoRef, Timestamp};

/// Maximum length of one text field, in characters.
const MAX_TEXT: usize = 600;
/// Outcome of learnings that older versions stored for review comments. Review comments now lead to proposals of
/// conventions.
const ASKED_FOR: &str = "a maintainer asked for this to be changed";
/// Maximum number of stored sources. Further sightings are only counted.
const MAX_SOURCES: usize = 32;

/// Kind of a learning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LearningKind {
    /// Approach that worked.
    Strategy,
    /// Approach that failed.
    Antipattern,
    /// Usual effort of tasks of a type.
    Estimate,
    /// Rule of the repository.
    Convention,
}

impl LearningKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Strategy, Self::Antipattern, Self::Estimate, Self::Convention];

    /// Returns the stored name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Strategy => "strategy",
            Self::Antipattern => "antipattern",
            Self::Estimate => "estimate",
            Self::Convention => "convention",
        }
    }
}

/// State of a learning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LearningState {
    /// The learning needs more sightings.
    Candidate,
    /// Prompts may contain the learning.
    Active,
    /// The learning is stored, but no prompt contains it.
    Archived,
}

impl LearningState {
    /// Returns the stored name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Candidate => "candidate",
            Self::Active => "active",
            Self::Archived => "archived",
        }
    }
}

/// Content of a learning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Content {
    /// Successful approach, with its tools, resolution and number of iterations.
    Strategy {
        approach: String,
        #[serde(default)]
        tools: Vec<String>,
        #[serde(default)]
        resolution: String,
        #[serde(default)]
        iterations: Dispersion,
    },
    /// Failed approach, with its outcome and, if known, an alternative.
    Antipattern {
        pattern: String,
        #[serde(default)]
        consequence: String,
        #[serde(default)]
        alternative: String,
    },
    /// Statistics of the iterations, minutes and US dollars used by tasks of this type.
    Estimate { iterations: Dispersion, minutes: Dispersion, cost_usd: Dispersion },
    /// Rule of the repository, with its place.
    Convention {
        rule: String,
        #[serde(default)]
        seen_in: String,
    },
}

impl Content {
    /// Returns the kind of learning that has this content.
    pub fn kind(&self) -> LearningKind {
        match self {
            Self::Strategy { .. } => LearningKind::Strategy,
            Self::Antipattern { .. } => LearningKind::Antipattern,
            Self::Estimate { .. } => LearningKind::Estimate,
            Self::Convention { .. } => LearningKind::Convention,
        }
    }

    /// Returns the text used to compare learnings: approach, pattern or rule; empty for an estimate.
    pub fn gist(&self) -> &str {
        match self {
            Self::Strategy { approach, .. } => approach,
            Self::Antipattern { pattern, .. } => pattern,
            Self::Estimate { .. } => "",
            Self::Convention { rule, .. } => rule,
        }
    }

    /// Applies `change` to each text.
    #[must_use]
    pub fn map(self, change: &impl Fn(&str) -> String) -> Self {
        match self {
            Self::Strategy { approach, tools, resolution, iterations } => Self::Strategy {
                approach: change(&approach),
                tools: tools.iter().map(|tool| change(tool)).collect(),
                resolution: change(&resolution),
                iterations,
            },
            Self::Antipattern { pattern, consequence, alternative } => Self::Antipattern {
                pattern: change(&pattern),
                consequence: change(&consequence),
                alternative: change(&alternative),
            },
            Self::Estimate { .. } => self,
            Self::Convention { rule, seen_in } => Self::Convention { rule: change(&rule), seen_in: change(&seen_in) },
        }
    }
}

/// Sighting of a learning, in an iteration or at the end of a loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Source {
    /// Loop; empty for rules stated by people or files.
    pub loop_id: LoopId,
    /// Iteration; `None` for the end of the loop.
    #[serde(default)]
    pub iteration: Option<u32>,
}

/// Learning, with its confidence and evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Learning {
    /// Identifier: `l-` and 16 hexadecimal digits, derived from repository, kind, task type and gist. Equal learnings have
    /// the same id.
    pub id: String,
    /// Owner and name of the repository.
    pub repository: RepoRef,
    /// Type of the tasks that the learning applies to; `other` for all types.
    pub task_type: TaskType,
    /// Content of the learning.
    pub content: Content,
    /// Additional search words: paths, error signatures, and the task's words if its author is trusted. Agents never see
    /// them.
    #[serde(default)]
    pub about: String,
    /// State of the learning.
    pub state: LearningState,
    /// Confidence, 0..1, when the learning was last used or changed.
    pub confidence: f64,
    /// Outcomes of the loops whose prompts contained the learning.
    #[serde(default)]
    pub evidence: LearningEvidence,
    /// Whether a pull request that used the learning was merged.
    #[serde(default)]
    pub merged: bool,
    /// Number of iterations and loops that produced the learning.
    pub seen: u32,
    /// Newest sightings of the learning.
    #[serde(default)]
    pub sources: Vec<Source>,
    /// Number of prompts that contained the learning.
    #[serde(default)]
    pub uses: u64,
    /// Time of the first sighting.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// Time of the last prompt that contained the learning; `None` if there was none.
    #[serde(default)]
    pub last_used_at: Option<Timestamp>,
}

impl Learning {
    /// Creates a candidate with one sighting. Texts are cut to 600 characters.
    pub fn new(
        repository: &RepoRef,
        task_type: TaskType,
        content: Content,
        confidence: f64,
        source: Source,
        now: Timestamp,
    ) -> Self {
        let learning = Self {
            id: String::new(),
            repository: repository.clone(),
            task_type,
            content,
            about: String::new(),
            state: LearningState::Candidate,
            confidence: confidence.clamp(0.0, 1.0),
            evidence: LearningEvidence::default(),
            merged: false,
            seen: 1,
            sources: vec![source],
            uses: 0,
            created_at: now,
            updated_at: now,
            last_used_at: None,
        };
        learning.map_text(&cut)
    }

    /// Sets the search words.
    #[must_use]
    pub fn about(mut self, words: &str) -> Self {
        self.about = cut(words);
        self
    }

    /// Applies `change` (for example masking) to each text, and updates the id.
    #[must_use]
    pub fn map_text(mut self, change: &impl Fn(&str) -> String) -> Self {
        self.content = self.content.map(change);
        self.about = change(&self.about);
        self.id = id_of(&self.repository, self.task_type, &self.content);
        self
    }

    /// Returns the kind.
    pub fn kind(&self) -> LearningKind {
        self.content.kind()
    }

    /// Returns the text for the search index.
    pub fn search_text(&self) -> String {
        let mut text = match &self.content {
            Content::Strategy { approach, tools, resolution, .. } => {
                format!("{approach} {resolution} {}", tools.join(" "))
            }
            Content::Antipattern { pattern, consequence, alternative } => {
                format!("{pattern} {consequence} {alternative}")
            }
            Content::Estimate { .. } => "estimate iterations minutes cost".to_owned(),
            Content::Convention { rule, .. } => rule.clone(),
        };
        text.push(' ');
        text.push_str(&self.about);
        text
    }

    /// Adds a sighting. Returns `false` if it is already known.
    pub fn add_source(&mut self, source: &Source) -> bool {
        if self.sources.contains(source) {
            return false;
        }
        self.sources.push(source.clone());
        let surplus = self.sources.len().saturating_sub(MAX_SOURCES);
        self.sources.drain(..surplus);
        self.seen = self.seen.saturating_add(1);
        true
    }

    /// Returns the SHA-256 of the canonical form (JSON with the fields in their order), in hexadecimal.
    pub fn checksum(&self) -> String {
        // A value of plain fields always serializes. NaN becomes null, so it has a checksum too.
        let canonical = serde_json::to_vec(self).unwrap_or_default();
        HEXLOWER.encode(&Sha256::digest(canonical))
    }

    /// Checks that the learning is valid: values are in range, and the id matches the texts.
    ///
    /// # Errors
    /// The learning is invalid. The error is one sentence.
    pub fn check(&self) -> Result<(), Failure> {
        if !(0.0..=1.0).contains(&self.confidence) {
            return Err(Failure::new(format!("its confidence is {}; it must be between 0 and 1", self.confidence)));
        }
        if !self.evidence.is_sound() {
            return Err(Failure::new("its successes and failures must be numbers of 0 or more"));
        }
        if self.kind() != LearningKind::Estimate && self.content.gist().trim().is_empty() {
            return Err(Failure::new("it says nothing"));
        }
        let expected = id_of(&self.repository, self.task_type, &self.content);
        if self.id != expected {
            return Err(Failure::new(format!("its id is {}; its words give {expected}", self.id)));
        }
        Ok(())
    }

    /// Describes the learning in one line for a prompt or a table.
    pub fn line(&self) -> String {
        let mut line = String::new();
        // Writing into a String never fails.
        let _ = match &self.content {
            Content::Strategy { approach, resolution, .. } if resolution.is_empty() => write!(line, "{approach}"),
            Content::Strategy { approach, resolution, .. } => write!(line, "{approach}; {resolution}"),
            Content::Antipattern { pattern, consequence, .. } if consequence == ASKED_FOR => {
                write!(line, "a maintainer rejected this in a review: {pattern}")
            }
            Content::Antipattern { pattern, consequence, alternative } => {
                let _ = write!(line, "avoid: {pattern}");
                if !consequence.is_empty() {
                    let _ = write!(line, "; {consequence}");
                }
                if alternative.is_empty() { Ok(()) } else { write!(line, "; instead: {alternative}") }
            }
            Content::Estimate { iterations, minutes, cost_usd } => write!(
                line,
                "{} tasks took {:.1} ± {:.1} iterations, {:.0} ± {:.0} minutes and ${:.2} ± {:.2} ({} loops)",
                self.task_type.as_str(),
                iterations.mean,
                iterations.deviation(),
                minutes.mean,
                minutes.deviation(),
                cost_usd.mean,
                cost_usd.deviation(),
                iterations.samples
            ),
            Content::Convention { rule, .. } => write!(line, "{rule}"),
        };
        line
    }
}

/// Derives the id from repository, kind, task type and gist.
fn id_of(repository: &RepoRef, task_type: TaskType, content: &Content) -> String {
    let gist = content.gist().split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    let key =
        format!("{}\0{}\0{}\0{}\0{gist}", repository.forge, repository.id, content.kind().as_str(), task_type.as_str());
    format!("l-{}", &HEXLOWER.encode(&Sha256::digest(key))[..16])
}

fn cut(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_TEXT) {
        Some((at, _)) => line[..at].trim_end().to_owned(),
        None => line,
    }
}
