//! `ralph-bot memory`: shows and manages learnings.

mod filter;
mod proposals;
mod reflections;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use ralph_types::failure::Failure;

use super::error::{CliError, CliResult};
use super::global::Global;
use super::{attach, block_on, load, one_line, print};
use crate::clock::Clock;
use crate::config::{ConfigScope, Env};
use crate::domain::knowledge::memory::{Learning, LearningFilter, LearningState, MemorySettings, correct};
use crate::domain::model::ids::Timestamp;
use crate::process::Masker;
use crate::store::listing::RepoScope;
use crate::store::memory::{self, LearningCounts};
use crate::store::sql::Connection;
use crate::store::{Store, StoreResult};
use filter::{LearningFilterArgs, totals};
use proposals::ProposalsArgs;
use reflections::ReflectionsArgs;

/// Maximum number of learnings that are filtered.
const ALL: usize = 1_000_000;
/// Maximum length of a text in the table, in characters.
const TEXT_MAX: usize = 90;
/// Maximum size of an imported file, in bytes.
const MAX_IMPORT: u64 = 512 * 1024 * 1024;

/// Arguments of `memory`; the default is `show`.
#[derive(Debug, Clone, Args)]
pub struct MemoryArgs {
    /// Subcommand.
    #[command(subcommand)]
    pub command: Option<MemoryCommand>,
}

/// Subcommands of `memory`.
#[derive(Debug, Clone, Subcommand)]
pub enum MemoryCommand {
    /// List learnings, or show one
    #[command(visible_alias = "list")]
    Show(ShowLearningArgs),
    /// Search learnings
    Search(SearchArgs),
    /// List the reflections of a loop, edit or remove one
    Reflections(ReflectionsArgs),
    /// List proposals of conventions, accept or reject one
    Proposals(ProposalsArgs),
    /// Delete learnings by id or by query
    Forget(ForgetArgs),
    /// Exclude a learning from prompts, or include it again
    Archive(ArchiveArgs),
    /// Export all learnings as JSON Lines
    Export(ExportArgs),
    /// Import learnings from JSON Lines: all of them, or none if a line is invalid
    Import(ImportArgs),
}

/// Arguments of `memory show`.
#[derive(Debug, Clone, Args)]
pub struct ShowLearningArgs {
    /// Id of the learning
    pub id: Option<String>,
    /// Maximum number of listed learnings
    #[arg(long, default_value_t = 50)]
    pub limit: usize,
    /// Filters of the list.
    #[command(flatten)]
    pub filter: LearningFilterArgs,
}

/// Arguments of `memory search`.
#[derive(Debug, Clone, Args)]
pub struct SearchArgs {
    /// Search words; supports "a phrase", OR and NOT; words that start with a hyphen follow `--`
    #[arg(required = true)]
    pub query: Vec<String>,
    /// Maximum number of listed learnings
    #[arg(long, default_value_t = 20)]
    pub limit: usize,
    /// Filters of the results.
    #[command(flatten)]
    pub filter: LearningFilterArgs,
}

/// Arguments of `memory forget`.
#[derive(Debug, Clone, Args)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["ids", "query"]))]
pub struct ForgetArgs {
    /// Ids of learnings, or `p-NUMBER` of proposals
    pub ids: Vec<String>,
    /// Delete the learnings that match this query; every word must match
    #[arg(long, value_name = "QUERY")]
    pub query: Option<String>,
    /// Confirm --query; without it the matches are only listed
    #[arg(long)]
    pub yes: bool,
}

/// Arguments of `memory archive`.
#[derive(Debug, Clone, Args)]
pub struct ArchiveArgs {
    /// Id of the learning
    pub id: String,
    /// Include the learning again
    #[arg(long)]
    pub undo: bool,
}

/// Arguments of `memory export`.
#[derive(Debug, Clone, Args)]
pub struct ExportArgs {
    /// File to create [default: standard output]
    pub file: Option<PathBuf>,
}

/// Arguments of `memory import`.
#[derive(Debug, Clone, Args)]
pub struct ImportArgs {
    /// File written by `memory export`
    pub file: PathBuf,
}

/// Shows, searches, deletes, archives, exports or imports learnings.
///
/// # Errors
/// Fails on an invalid configuration, a missing database, an unknown learning, or an invalid file.
pub fn run(args: &MemoryArgs, global: &Global, env: &Env) -> CliResult {
    let config = load(ConfigScope::Store, global, env)?;
    block_on(async {
        let store = attach(&config).await?;
        let (settings, now) = (config.memory.clone(), Clock::System.now());
        let shell = MemoryShell { store: &store, settings, json: global.json, now };
        let outcome = shell.run(args).await;
        store.close().await;
        outcome
    })
}

/// Command on an open database.
struct MemoryShell<'a> {
    store: &'a Store,
    /// Settings of the service: decay of confidence, and merging of imports.
    settings: MemorySettings,
    json: bool,
    now: Timestamp,
}

impl MemoryShell<'_> {
    async fn run(&self, args: &MemoryArgs) -> CliResult {
        match &args.command {
            None => self.overview(50, &LearningFilter::default()).await,
            Some(MemoryCommand::Show(ShowLearningArgs { id: None, limit, filter })) => {
                self.overview(*limit, &filter.filter()).await
            }
            Some(MemoryCommand::Show(ShowLearningArgs { id: Some(id), .. })) => self.one(id).await,
            Some(MemoryCommand::Search(args)) => self.search(args).await,
            Some(MemoryCommand::Reflections(args)) => reflections::run(args, self.store, self.json, self.now).await,
            Some(MemoryCommand::Proposals(args)) => self.proposals(args).await,
            Some(MemoryCommand::Forget(args)) => self.forget(args).await,
            Some(MemoryCommand::Archive(args)) => self.archive(args).await,
            Some(MemoryCommand::Export(args)) => self.export(args.file.as_deref()).await,
            Some(MemoryCommand::Import(args)) => self.import(&args.file).await,
        }
    }

    async fn overview(&self, limit: usize, filter: &LearningFilter) -> CliResult {
        let (filter, settings, now) = (filter.clone(), self.settings.clone(), self.now);
        let read = self.read(move |c| {
            let (counts, by_kind) = (memory::counts(c)?, memory::counts_by_kind(c, &RepoScope::All)?);
            let listed = if filter.is_empty() { limit } else { ALL };
            let (learnings, _) = memory::list(c, "", listed)?;
            let accepted = learnings.into_iter().filter(|one| filter.accepts(one, &settings, now)).take(limit);
            let rows = accepted.map(|one| memory::uplift(c, &one).map(|uplift| (one, uplift.sentence())));
            Ok((counts, by_kind, rows.collect::<StoreResult<Vec<_>>>()?))
        });
        let (counts, by_kind, rows) = read.await?;
        if self.json {
            let lines = rows.iter().map(|(one, uplift)| self.line(one, uplift.as_deref())).collect::<Vec<_>>();
            let named = |(kind, task_type, count): &(String, String, u64)| serde_json::json!({ "kind": kind, "task_type": task_type, "count": count });
            let by_kind: Vec<_> = by_kind.iter().map(named).collect();
            let value = serde_json::json!({ "counts": counts, "by_kind": by_kind, "learnings": lines });
            return print(&format!("{value}\n"));
        }
        let LearningCounts { candidates, active, archived, quarantined } = counts;
        let mut text = format!("{active} active, {candidates} candidates, {archived} archived\n");
        text.push_str(&totals(&by_kind));
        if quarantined > 0 {
            text.push_str(&format!("{quarantined} damaged (quarantined)\n"));
        }
        text.push_str(&self.table(rows.iter().map(|(one, uplift)| (one, uplift.as_deref().unwrap_or_default()))));
        print(&text)
    }

    async fn one(&self, id: &str) -> CliResult {
        let (wanted, now) = (id.to_owned(), self.now);
        let (found, uplift) = self
            .write(move |c| {
                let found = memory::get(c, &wanted, now)?;
                let uplift = found.as_ref().map(|one| memory::uplift(c, one)).transpose()?;
                Ok((found, uplift.unwrap_or_default().sentence()))
            })
            .await?;
        let learning = found.ok_or_else(|| unknown(id))?;
        if self.json {
            return print(&format!("{}\n", self.line(&learning, uplift.as_deref())));
        }
        let sources: Vec<String> = learning.sources.iter().map(|source| one_line(source.loop_id.as_str())).collect();
        print(&format!(
            "{} {} {} in {}\n{}\nconfidence {:.2}, success rate {:.2}, seen {} times, used {} times{}\n\
             from {}\n",
            learning.id,
            learning.state.as_str(),
            learning.kind().as_str(),
            one_line(&learning.repository.to_string()),
            one_line(&learning.line()),
            learning.confidence_at(self.now, &self.settings),
            learning.success_rate(),
            learning.seen,
            learning.uses,
            uplift.map_or_else(String::new, |uplift| format!(", uplift {uplift}")),
            if sources.is_empty() { "-".to_owned() } else { sources.join(", ") },
        ))
    }

    async fn search(&self, args: &SearchArgs) -> CliResult {
        let asked = correct(&args.query.join(" "));
        let form = asked.to_fts().unwrap_or_default();
        let filter = args.filter.filter();
        let found = if filter.is_empty() { args.limit } else { ALL };
        let (learnings, _) = self.read(move |c| memory::search(c, &asked, None, found)).await?;
        let accepts = |one: &Learning| filter.accepts(one, &self.settings, self.now);
        let learnings: Vec<Learning> = learnings.into_iter().filter(accepts).take(args.limit).collect();
        if self.json {
            let lines = learnings.iter().map(|one| self.line(one, None)).collect::<Vec<_>>();
            return print(&format!("{}\n", serde_json::json!({ "asked": form, "learnings": lines })));
        }
        if form.is_empty() {
            return print("the query contains no searchable word\n");
        }
        if learnings.is_empty() {
            return print(&format!("no results for {form}\n"));
        }
        print(&format!("results for {form}\n{}", self.table(learnings.iter().map(|one| (one, "")))))
    }

    async fn forget(&self, args: &ForgetArgs) -> CliResult {
        let ids = match &args.query {
            None => args.ids.clone(),
            Some(query) => {
                let asked = correct(query);
                let found = self.read(move |c| memory::matching_all(c, &asked)).await?;
                if !args.yes {
                    let rows = self.table(found.iter().map(|one| (one, "")));
                    return print(&format!("{rows}{} learnings match; --yes deletes them\n", found.len()));
                }
                found.into_iter().map(|one| one.id).collect()
            }
        };
        let wanted = ids.clone();
        let forgotten = self.write(move |c| memory::forget(c, &wanted)).await?;
        if args.query.is_none() && forgotten < ids.len() {
            let missing = ids.len() - forgotten;
            let says = format!("{forgotten} deleted; {missing} of these ids are unknown");
            return Err(CliError::failed(says));
        }
        if self.json {
            return print(&format!("{}\n", serde_json::json!({ "forgotten": forgotten })));
        }
        print(&format!("{forgotten} deleted\n"))
    }

    async fn archive(&self, args: &ArchiveArgs) -> CliResult {
        let (id, now) = (args.id.clone(), self.now);
        let state = if args.undo { LearningState::Active } else { LearningState::Archived };
        let changed = self.write(move |c| memory::set_state(c, &id, state, now)).await?;
        let learning = changed.ok_or_else(|| unknown(&args.id))?;
        if self.json {
            return print(&format!("{}\n", self.line(&learning, None)));
        }
        print(&format!("{} is {}\n", learning.id, learning.state.as_str()))
    }

    async fn export(&self, file: Option<&Path>) -> CliResult {
        let (text, damaged) = self.read(memory::export).await?;
        if !damaged.is_empty() {
            anstream::eprintln!("warning: {} damaged learnings were skipped", damaged.len());
        }
        let Some(file) = file else { return print(&text) };
        let written =
            std::fs::File::create_new(file).and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
        written.map_err(|error| {
            CliError::failed(Failure::new(format!("could not write {}", file.display())).caused_by(error))
        })?;
        print(&format!("exported {} learnings to {}\n", text.lines().count(), file.display()))
    }

    async fn import(&self, file: &Path) -> CliResult {
        let failed_with = |why: Failure| CliError::failed(Failure::new(file.display().to_string()).caused_by(why));
        let size = std::fs::metadata(file).map_err(|error| failed_with(Failure::of(error)))?.len();
        if size > MAX_IMPORT {
            return Err(failed_with(format!("the file has {size} bytes; the maximum is {MAX_IMPORT}").into()));
        }
        let text = std::fs::read_to_string(file).map_err(|error| failed_with(Failure::of(error)))?;
        // Only text that looks like a secret is masked; the file does not contain this process's tokens.
        let learnings = memory::parse(&text, &Masker::default()).map_err(failed_with)?;
        let (settings, now) = (self.settings.clone(), self.now);
        let imported = self.write(move |c| memory::import(c, &learnings, &settings, now)).await?;
        if self.json {
            return print(&format!("{}\n", serde_json::to_value(imported).map_err(failed)?));
        }
        let memory::ImportCounts { added, merged, unchanged } = imported;
        print(&format!("{added} added, {merged} merged, {unchanged} unchanged\n"))
    }

    /// Formats a learning as JSON.
    fn line(&self, learning: &Learning, uplift: Option<&str>) -> serde_json::Value {
        serde_json::json!({
            "id": learning.id,
            "kind": learning.kind(),
            "state": learning.state,
            "repository": learning.repository.to_string(),
            "task_type": learning.task_type,
            "says": learning.line(),
            "confidence": learning.confidence_at(self.now, &self.settings),
            "success_rate": learning.success_rate(),
            "seen": learning.seen,
            "uses": learning.uses,
            "uplift": uplift,
        })
    }

    fn table<'a>(&self, rows: impl Iterator<Item = (&'a Learning, &'a str)>) -> String {
        rows.map(|(one, uplift)| {
            let says: String = one_line(&one.line()).chars().take(TEXT_MAX).collect();
            let confidence = one.confidence_at(self.now, &self.settings);
            let (kind, state) = (one.kind().as_str(), one.state.as_str());
            let line = format!("{}  {kind:<11}  {state:<9}  {confidence:.2}  {:>4}  {says}", one.id, one.uses);
            if uplift.is_empty() { format!("{line}\n") } else { format!("{line}  [{uplift}]\n") }
        })
        .collect()
    }

    async fn read<T, F>(&self, work: F) -> Result<T, CliError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> StoreResult<T> + Send + 'static,
    {
        self.store.read(work).await.map_err(failed)
    }

    async fn write<T, F>(&self, work: F) -> Result<T, CliError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> StoreResult<T> + Send + 'static,
    {
        self.store.write(work).await.map_err(failed)
    }
}

fn unknown(id: &str) -> CliError {
    CliError::failed(format!("there is no learning {}; `ralph-bot memory show` lists them", one_line(id)))
}

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> CliError {
    CliError::failed(Failure::of(error))
}
