//! `ralph-bot memory`: what loops learnt, seen and steered from the shell.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::{CliError, CliResult, Global, block_on, database, load, one_line, print};
use crate::clock::Clock;
use crate::config::{ConfigScope, Env};
use crate::domain::knowledge::memory::{Learning, LearningState, MemorySettings, correct};
use crate::domain::model::ids::Timestamp;
use crate::process::Masker;
use crate::store::memory::{self, LearningCounts};
use crate::store::{Store, StoreResult};

/// Longest text in the table, in characters.
const TEXT_MAX: usize = 90;
/// Largest file that is imported, in bytes.
const MAX_IMPORT: u64 = 512 * 1024 * 1024;

/// Arguments of `memory`; shows where no subcommand is given.
#[derive(Debug, Clone, Args)]
pub struct MemoryArgs {
    /// What to do with what was learnt.
    #[command(subcommand)]
    pub command: Option<MemoryCommand>,
}

/// What can be done with what was learnt.
#[derive(Debug, Clone, Subcommand)]
pub enum MemoryCommand {
    /// Show what is known and what it is worth, or one learning
    #[command(visible_alias = "list")]
    Show(ShowArgs),
    /// Find learnings by words
    Search(SearchArgs),
    /// Forget learnings by id, or those that a query finds
    Forget(ForgetArgs),
    /// Keep a learning out of prompts, or let it in again
    Archive(ArchiveArgs),
    /// Write all learnings as JSON Lines
    Export(ExportArgs),
    /// Read learnings from JSON Lines: all of them, or none where a line is broken
    Import(ImportArgs),
}

/// Arguments of `memory show`.
#[derive(Debug, Clone, Args)]
pub struct ShowArgs {
    /// A learning's id
    pub id: Option<String>,
    /// Most learnings that are listed
    #[arg(long, default_value_t = 50)]
    pub limit: usize,
}

/// Arguments of `memory search`.
#[derive(Debug, Clone, Args)]
pub struct SearchArgs {
    /// Words; "a phrase", OR and NOT are understood
    #[arg(required = true, allow_hyphen_values = true)]
    pub query: Vec<String>,
    /// Most learnings that are listed
    #[arg(long, default_value_t = 20)]
    pub limit: usize,
}

/// Arguments of `memory forget`.
#[derive(Debug, Clone, Args)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["ids", "query"]))]
pub struct ForgetArgs {
    /// Ids of learnings
    pub ids: Vec<String>,
    /// What to find, as in `memory search`, where every word has to be there
    #[arg(long, value_name = "QUERY")]
    pub query: Option<String>,
    /// Forget what the query finds; without it they are only listed
    #[arg(long)]
    pub yes: bool,
}

/// Arguments of `memory archive`.
#[derive(Debug, Clone, Args)]
pub struct ArchiveArgs {
    /// A learning's id
    pub id: String,
    /// Let it in again
    #[arg(long)]
    pub undo: bool,
}

/// Arguments of `memory export`.
#[derive(Debug, Clone, Args)]
pub struct ExportArgs {
    /// Where to; standard output where it is missing. An existing file is refused
    pub file: Option<PathBuf>,
}

/// Arguments of `memory import`.
#[derive(Debug, Clone, Args)]
pub struct ImportArgs {
    /// A file that `memory export` wrote
    pub file: PathBuf,
}

/// Shows, finds, forgets, archives, exports or imports learnings.
///
/// # Errors
/// When the configuration is wrong, there is no database, no such learning, or a file is broken.
pub fn run(args: &MemoryArgs, global: &Global, env: &Env) -> CliResult {
    let config = load(ConfigScope::Store, global, env)?;
    block_on(async {
        let store = Store::attach(&database(&config)).map_err(failed)?;
        let (settings, now) = (config.memory.clone(), Clock::System.now());
        let shell = Shell { store: &store, settings, json: global.json, now };
        let outcome = shell.run(args).await;
        store.close().await;
        outcome
    })
}

/// A command at work on an open database.
struct Shell<'a> {
    store: &'a Store,
    /// How confidence fades and what imports are merged by, as the service has it.
    settings: MemorySettings,
    json: bool,
    now: Timestamp,
}

impl Shell<'_> {
    async fn run(&self, args: &MemoryArgs) -> CliResult {
        match &args.command {
            None => self.overview(50).await,
            Some(MemoryCommand::Show(ShowArgs { id: None, limit })) => self.overview(*limit).await,
            Some(MemoryCommand::Show(ShowArgs { id: Some(id), .. })) => self.one(id).await,
            Some(MemoryCommand::Search(args)) => self.search(&args.query.join(" "), args.limit).await,
            Some(MemoryCommand::Forget(args)) => self.forget(args).await,
            Some(MemoryCommand::Archive(args)) => self.archive(args).await,
            Some(MemoryCommand::Export(args)) => self.export(args.file.as_deref()).await,
            Some(MemoryCommand::Import(args)) => self.import(&args.file).await,
        }
    }

    async fn overview(&self, limit: usize) -> CliResult {
        let read = self.read(move |c| {
            let counts = memory::counts(c)?;
            let (learnings, _) = memory::list(c, "", limit)?;
            let rows = learnings.into_iter().map(|one| memory::uplift(c, &one).map(|uplift| (one, uplift.told())));
            Ok((counts, rows.collect::<StoreResult<Vec<_>>>()?))
        });
        let (counts, rows) = read.await?;
        if self.json {
            let lines = rows.iter().map(|(one, uplift)| self.line(one, uplift.as_deref())).collect::<Vec<_>>();
            return print(&format!("{}\n", serde_json::json!({ "counts": counts, "learnings": lines })));
        }
        let LearningCounts { candidates, active, archived, quarantined } = counts;
        let mut text = format!("{active} in use, {candidates} candidates, {archived} archived\n");
        if quarantined > 0 {
            text.push_str(&format!("{quarantined} were damaged and are set aside\n"));
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
                Ok((found, uplift.unwrap_or_default().told()))
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

    async fn search(&self, query: &str, limit: usize) -> CliResult {
        let asked = correct(query);
        let form = asked.to_fts().unwrap_or_default();
        let (learnings, _) = self.read(move |c| memory::search(c, &asked, None, limit)).await?;
        if self.json {
            let lines = learnings.iter().map(|one| self.line(one, None)).collect::<Vec<_>>();
            return print(&format!("{}\n", serde_json::json!({ "asked": form, "learnings": lines })));
        }
        if form.is_empty() {
            return print("there is no word in this query that could be found\n");
        }
        if learnings.is_empty() {
            return print(&format!("nothing was found for {form}\n"));
        }
        print(&format!("for {form}\n{}", self.table(learnings.iter().map(|one| (one, "")))))
    }

    async fn forget(&self, args: &ForgetArgs) -> CliResult {
        let ids = match &args.query {
            None => args.ids.clone(),
            Some(query) => {
                let asked = correct(query);
                let found = self.read(move |c| memory::matching_all(c, &asked)).await?;
                if !args.yes {
                    let rows = self.table(found.iter().map(|one| (one, "")));
                    return print(&format!("{rows}{} would be forgotten; --yes forgets them\n", found.len()));
                }
                found.into_iter().map(|one| one.id).collect()
            }
        };
        let wanted = ids.clone();
        let forgotten = self.write(move |c| memory::forget(c, &wanted)).await?;
        if args.query.is_none() && forgotten < ids.len() {
            let missing = ids.len() - forgotten;
            let says = format!("{forgotten} forgotten; there is no learning of {missing} of these ids");
            return Err(CliError::Failed(says));
        }
        if self.json {
            return print(&format!("{}\n", serde_json::json!({ "forgotten": forgotten })));
        }
        print(&format!("{forgotten} forgotten\n"))
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
            anstream::eprintln!("{} learnings are damaged and were left out", damaged.len());
        }
        let Some(file) = file else { return print(&text) };
        let written =
            std::fs::File::create_new(file).and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
        written.map_err(|error| CliError::Failed(format!("{} cannot be written: {error}", file.display())))?;
        print(&format!("{} learnings in {}\n", text.lines().count(), file.display()))
    }

    async fn import(&self, file: &Path) -> CliResult {
        let failed_with = |what: String| CliError::Failed(format!("{}: {what}", file.display()));
        let size = std::fs::metadata(file).map_err(|error| failed_with(error.to_string()))?.len();
        if size > MAX_IMPORT {
            return Err(failed_with(format!("it has {size} bytes; {MAX_IMPORT} are read at most")));
        }
        let text = std::fs::read_to_string(file).map_err(|error| failed_with(error.to_string()))?;
        // The tokens of this process are no secrets of the file's; what looks like one is masked all the same.
        let learnings = memory::parse(&text, &Masker::default()).map_err(failed_with)?;
        let (settings, now) = (self.settings.clone(), self.now);
        let imported = self.write(move |c| memory::import(c, &learnings, &settings, now)).await?;
        if self.json {
            return print(&format!("{}\n", serde_json::to_value(imported).map_err(failed)?));
        }
        let memory::ImportCounts { added, merged, unchanged } = imported;
        print(&format!("{added} added, {merged} merged, {unchanged} known already\n"))
    }

    /// What programs want to know of a learning.
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
        F: FnOnce(&rusqlite::Connection) -> StoreResult<T> + Send + 'static,
    {
        self.store.read(work).await.map_err(failed)
    }

    async fn write<T, F>(&self, work: F) -> Result<T, CliError>
    where
        T: Send + 'static,
        F: FnOnce(&rusqlite::Connection) -> StoreResult<T> + Send + 'static,
    {
        self.store.write(work).await.map_err(failed)
    }
}

fn unknown(id: &str) -> CliError {
    CliError::Failed(format!("there is no learning {}; `ralph-bot memory show` lists them", one_line(id)))
}

fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::Failed(error.to_string())
}
