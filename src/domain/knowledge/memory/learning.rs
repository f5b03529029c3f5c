//! What a learning is made of.

use std::fmt::Write as _;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::worth::Evidence;
use crate::domain::checks::criteria::TaskType;
use crate::domain::model::dispersion::Dispersion;
use crate::domain::model::ids::{LoopId, RepoRef, Timestamp};

/// Longest text of one field, in characters.
const MAX_TEXT: usize = 600;
/// What came of something that a maintainer asked to be changed; the pattern is then what was asked for.
pub(super) const ASKED_FOR: &str = "a maintainer asked for this to be changed";
/// Most sources that are remembered; the count goes on.
const MAX_SOURCES: usize = 32;

/// Sorts of learning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An approach that worked.
    Strategy,
    /// An approach that did not.
    Antipattern,
    /// What tasks of a type take.
    Estimate,
    /// A rule of the repository.
    Convention,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Strategy, Self::Antipattern, Self::Estimate, Self::Convention];

    /// The name as in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Strategy => "strategy",
            Self::Antipattern => "antipattern",
            Self::Estimate => "estimate",
            Self::Convention => "convention",
        }
    }
}

/// Where a learning stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Seen too seldom to be believed.
    Candidate,
    /// May be in prompts.
    Active,
    /// Kept, and never in a prompt.
    Archived,
}

impl State {
    /// The name as in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Candidate => "candidate",
            Self::Active => "active",
            Self::Archived => "archived",
        }
    }
}

/// What it says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Content {
    /// An approach that worked, with the tools it took, how the trouble was resolved, and how many iterations it took.
    Strategy {
        approach: String,
        #[serde(default)]
        tools: Vec<String>,
        #[serde(default)]
        resolution: String,
        #[serde(default)]
        iterations: Dispersion,
    },
    /// An approach that failed, what came of it, and what to do instead, where that is known.
    Antipattern {
        pattern: String,
        #[serde(default)]
        consequence: String,
        #[serde(default)]
        alternative: String,
    },
    /// Iterations, minutes and US dollars that tasks of the type took.
    Estimate { iterations: Dispersion, minutes: Dispersion, cost_usd: Dispersion },
    /// A rule, and where it was seen.
    Convention {
        rule: String,
        #[serde(default)]
        seen_in: String,
    },
}

impl Content {
    /// Its sort.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Strategy { .. } => Kind::Strategy,
            Self::Antipattern { .. } => Kind::Antipattern,
            Self::Estimate { .. } => Kind::Estimate,
            Self::Convention { .. } => Kind::Convention,
        }
    }

    /// What two of them are compared by: the approach, the pattern, the rule; empty for an estimate.
    pub fn gist(&self) -> &str {
        match self {
            Self::Strategy { approach, .. } => approach,
            Self::Antipattern { pattern, .. } => pattern,
            Self::Estimate { .. } => "",
            Self::Convention { rule, .. } => rule,
        }
    }

    /// It with another text in place of each of its texts.
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

/// An iteration or the end of a loop that showed a learning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The loop; empty for what a person told or a file says.
    pub loop_id: LoopId,
    /// The iteration; `None` for the loop's end.
    #[serde(default)]
    pub iteration: Option<u32>,
}

/// Something that was learnt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Learning {
    /// `l-` and 16 hexadecimal digits, made of repository, sort, task type and gist, so that the same thing learnt twice is one.
    pub id: String,
    /// Whose it is.
    pub repository: RepoRef,
    /// Tasks that it is for; `other` for all.
    pub task_type: TaskType,
    /// What it says.
    pub content: Content,
    /// Further words to find it by: paths, error signatures, the task's words where their author is trusted. Never shown
    /// to an agent.
    #[serde(default)]
    pub about: String,
    /// Where it stands.
    pub state: State,
    /// How sure it is, 0..1, when it was last used or changed.
    pub confidence: f64,
    /// What came of the loops that had it.
    #[serde(default)]
    pub evidence: Evidence,
    /// Whether a pull request made with it was merged.
    #[serde(default)]
    pub merged: bool,
    /// How many iterations and loops showed it.
    pub seen: u32,
    /// The newest of them.
    #[serde(default)]
    pub sources: Vec<Source>,
    /// Prompts that carried it.
    #[serde(default)]
    pub uses: u64,
    /// When it was first seen.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When a prompt last carried it.
    #[serde(default)]
    pub last_used_at: Option<Timestamp>,
}

impl Learning {
    /// A candidate that was seen once. Texts are cut to 600 characters.
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
            state: State::Candidate,
            confidence: confidence.clamp(0.0, 1.0),
            evidence: Evidence::default(),
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

    /// It with words to find it by.
    #[must_use]
    pub fn about(mut self, words: &str) -> Self {
        self.about = cut(words);
        self
    }

    /// It with another text in place of each of its texts (masking), and the id that goes with them.
    #[must_use]
    pub fn map_text(mut self, change: &impl Fn(&str) -> String) -> Self {
        self.content = self.content.map(change);
        self.about = change(&self.about);
        self.id = id_of(&self.repository, self.task_type, &self.content);
        self
    }

    /// Its sort.
    pub fn kind(&self) -> Kind {
        self.content.kind()
    }

    /// All that it is found by.
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

    /// Notes that it was seen there. `false` where that was known already.
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

    /// SHA-256 over its canonical form (its JSON with the fields in their order), as hexadecimal.
    pub fn checksum(&self) -> String {
        // A value made of plain fields always serialises; what is no number becomes null and so has a checksum too.
        let canonical = serde_json::to_vec(self).unwrap_or_default();
        HEXLOWER.encode(&Sha256::digest(canonical))
    }

    /// Whether it can be what this version wrote: known figures in their ranges, and the id that its words give.
    ///
    /// # Errors
    /// One sentence that says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        if !(0.0..=1.0).contains(&self.confidence) {
            return Err(format!("its confidence is {}; it must be between 0 and 1", self.confidence));
        }
        if !self.evidence.is_sound() {
            return Err("its successes and failures must be numbers of 0 or more".to_owned());
        }
        if self.kind() != Kind::Estimate && self.content.gist().trim().is_empty() {
            return Err("it says nothing".to_owned());
        }
        let expected = id_of(&self.repository, self.task_type, &self.content);
        if self.id != expected {
            return Err(format!("its id is {}; its words give {expected}", self.id));
        }
        Ok(())
    }

    /// One line for a prompt or a table.
    pub fn line(&self) -> String {
        let mut line = String::new();
        // Writing into a String never fails.
        let _ = match &self.content {
            Content::Strategy { approach, resolution, .. } if resolution.is_empty() => write!(line, "{approach}"),
            Content::Strategy { approach, resolution, .. } => write!(line, "{approach}; {resolution}"),
            Content::Antipattern { pattern, consequence, .. } if consequence == ASKED_FOR => {
                write!(line, "a maintainer had this changed in a review: {pattern}")
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

/// What a learning is called: by whose it is, its sort, its task type, and the words of its gist.
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
