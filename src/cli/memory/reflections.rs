//! `ralph-bot memory reflections`: lists the reflections of a loop, edits or removes one.

use clap::{Args, Subcommand};

use super::failed;
use crate::cli::{CliError, CliResult, one_line, print};
use crate::domain::knowledge::memory::{Reflection, ReflectionChange};
use crate::domain::model::ids::{LoopId, Timestamp};
use crate::process::Masker;
use crate::store::memory::{self, ReflectionRef};
use crate::store::{Store, loops};

/// Person in the record of a change by this command.
pub(super) const BY: &str = "the command line";

/// Arguments of `memory reflections`; a loop's id without a subcommand is a list.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct ReflectionsArgs {
    /// Subcommand.
    #[command(subcommand)]
    pub command: Option<ReflectionsCommand>,
    /// Id of the loop
    #[arg(value_name = "LOOP", required = true)]
    pub id: Option<String>,
    /// Maximum number of listed reflections, the newest ones
    #[arg(long, default_value_t = 50)]
    pub limit: usize,
}

/// Subcommands of `memory reflections`.
#[derive(Debug, Clone, Subcommand)]
pub enum ReflectionsCommand {
    /// Change texts of a reflection; the others stay
    Edit(EditReflectionArgs),
    /// Remove a reflection, so that no later prompt contains it
    Remove(ReflectionArgs),
}

/// Reflection of an iteration.
#[derive(Debug, Clone, Args)]
pub struct ReflectionArgs {
    /// Id of the loop
    #[arg(value_name = "LOOP")]
    pub id: String,
    /// Iteration
    #[arg(value_name = "N")]
    pub iteration: u32,
}

/// Arguments of `memory reflections edit`.
#[derive(Debug, Clone, Args)]
#[command(group = clap::ArgGroup::new("texts").required(true).multiple(true).args(["approach", "failed", "why", "next"]))]
pub struct EditReflectionArgs {
    /// Reflection.
    #[command(flatten)]
    pub of: ReflectionArgs,
    /// Approach of the iteration
    #[arg(long, value_name = "TEXT")]
    pub approach: Option<String>,
    /// Failure
    #[arg(long, value_name = "TEXT")]
    pub failed: Option<String>,
    /// Cause of the failure
    #[arg(long, value_name = "TEXT")]
    pub why: Option<String>,
    /// Next step
    #[arg(long, value_name = "TEXT")]
    pub next: Option<String>,
}

/// Lists the reflections of a loop, edits or removes one.
///
/// # Errors
/// Fails on an unknown loop or reflection, or if the database cannot be used.
pub(super) async fn run(args: &ReflectionsArgs, store: &Store, json: bool, now: Timestamp) -> CliResult {
    match &args.command {
        None => list(args.id.as_deref().unwrap_or_default(), args.limit, store, json).await,
        Some(ReflectionsCommand::Edit(args)) => edit(args, store, json, now).await,
        Some(ReflectionsCommand::Remove(args)) => remove(args, store, json, now).await,
    }
}

/// Lists the newest reflections of a loop, oldest first.
async fn list(id: &str, limit: usize, store: &Store, json: bool) -> CliResult {
    let known = LoopId::new(id);
    let read = store.read(move |c| Ok((loops::get(c, &known)?.is_some(), memory::reflections(c, &known, limit)?)));
    let (exists, found) = read.await.map_err(failed)?;
    if !exists {
        let says = format!("there is no loop {}; `ralph-bot loops list --all` lists all loops", one_line(id));
        return Err(CliError::failed(says));
    }
    if json {
        return print(&format!("{}\n", serde_json::to_value(&found).map_err(failed)?));
    }
    if found.is_empty() {
        return print("no reflections are stored; reflections of ended loops are deleted after `retention.days`\n");
    }
    print(&found.iter().map(text).collect::<String>())
}

async fn edit(args: &EditReflectionArgs, store: &Store, json: bool, now: Timestamp) -> CliResult {
    let EditReflectionArgs { of, approach, failed: failure, why, next } = args.clone();
    let change = ReflectionChange { approach, failed: failure, why, next };
    let key = reference(&of);
    // Only text that looks like a secret is masked; this process knows no tokens.
    let masker = Masker::default();
    let edited = store.write(move |c| memory::edit_reflection(c, &masker, &key, &change, BY, now));
    let edited = edited.await.map_err(failed)?.ok_or_else(|| unknown(&of))?;
    if json {
        return print(&format!("{}\n", serde_json::to_value(&edited).map_err(failed)?));
    }
    print(&text(&edited))
}

async fn remove(args: &ReflectionArgs, store: &Store, json: bool, now: Timestamp) -> CliResult {
    let key = reference(args);
    let removed = store.write(move |c| memory::remove_reflection(c, &key, BY, now));
    if !removed.await.map_err(failed)? {
        return Err(unknown(args));
    }
    if json {
        return print(&format!("{}\n", serde_json::json!({ "removed": args.iteration })));
    }
    print(&format!("the reflection on iteration {} of {} was removed\n", args.iteration, one_line(&args.id)))
}

fn reference(args: &ReflectionArgs) -> ReflectionRef {
    ReflectionRef { loop_id: LoopId::new(&args.id), iteration: args.iteration }
}

fn unknown(args: &ReflectionArgs) -> CliError {
    let id = one_line(&args.id);
    CliError::failed(format!(
        "there is no reflection on iteration {} of {id}; `ralph-bot memory reflections {id}` lists them",
        args.iteration
    ))
}

/// Formats a reflection; parts without a text are left out.
pub(super) fn text(reflection: &Reflection) -> String {
    let edited = reflection.edited_by.as_deref().map_or(String::new(), |by| format!(" (edited by {})", one_line(by)));
    let mut text = format!("iteration {}: {}{edited}\n", reflection.iteration, one_line(&reflection.approach));
    for (name, part) in [("failed", &reflection.failed), ("why", &reflection.why), ("next", &reflection.next)] {
        if !part.trim().is_empty() {
            text.push_str(&format!("  {name}: {}\n", one_line(part)));
        }
    }
    text
}
