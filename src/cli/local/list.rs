//! `ralph-bot local --list`, and the search for a loop in the data folders of a repository.

use std::path::{Path, PathBuf};

use ralph_types::failure::Failure;

use super::folder::FolderChoice;
use super::session::loops_of;
use crate::cli::{CliError, CliResult, moment, one_line, print, table};
use crate::domain::loops::{Loop, LoopState};
use crate::forge::local::Local;
use crate::store::Store;

/// Loop and the database that contains it.
pub(super) struct StoredLoop {
    /// Path of the database.
    pub database: PathBuf,
    /// Loop.
    pub known: Loop,
}

/// Returns the loops of the repository in all its folders, newest first. Unreadable databases are reported on standard error.
async fn stored(choice: &FolderChoice, forge: &Local) -> Vec<StoredLoop> {
    let mut found = Vec::new();
    for database in choice.databases() {
        match read(&database, forge).await {
            Ok(loops) => {
                found.extend(loops.into_iter().map(|known| StoredLoop { database: database.clone(), known }));
            }
            Err(error) => anstream::eprintln!("{}: {error}", database.display()),
        }
    }
    found.sort_by_key(|one| std::cmp::Reverse(one.known.updated_at));
    found
}

async fn read(database: &Path, forge: &Local) -> Result<Vec<Loop>, CliError> {
    let store = Store::attach(database).map_err(|error| CliError::failed(Failure::of(error)))?;
    let loops = loops_of(&store, forge).await;
    store.close().await;
    loops
}

/// Prints the loops of the repository, as a table or as JSON lines.
pub(super) async fn print_list(choice: &FolderChoice, forge: &Local, json: bool) -> CliResult {
    let found = stored(choice, forge).await;
    if json {
        let line = |one: &StoredLoop| {
            let StoredLoop { known, database } = one;
            serde_json::json!({
                "loop": known.id,
                "state": known.state.as_str(),
                "title": known.task.text.title(),
                "why": known.why,
                "branch": known.branch.pushed.as_ref().map(|_| &known.branch.name),
                "iterations": known.spent.iterations,
                "cost_usd": known.spent.cost.usd(),
                "updated_at": moment(known.updated_at),
                "data": database.parent(),
            })
        };
        return print(&found.iter().map(|one| format!("{}\n", line(one))).collect::<String>());
    }
    if found.is_empty() {
        return print("no loops of this repository\n");
    }
    let header = ["LOOP", "STATE", "ITERATION", "COST", "UPDATED", "TASK", "REASON"].map(str::to_owned);
    let rows = found.iter().map(|StoredLoop { known, .. }| {
        [
            known.id.to_string(),
            known.state.words(),
            known.limits.iterations.progress(known.spent.iterations).replace(" of ", "/"),
            known.spent.cost.to_string(),
            moment(known.updated_at),
            one_line(known.task.text.title()),
            one_line(&known.why),
        ]
    });
    print(&table(&std::iter::once(header).chain(rows).collect::<Vec<_>>()))?;
    print("\n`--resume LOOP` continues one, `--resume` the last one that is not done\n")
}

/// Finds the loop `id`; without an id, the last loop that can continue and is not done.
///
/// # Errors
/// There is no such loop.
pub(super) async fn find(choice: &FolderChoice, forge: &Local, id: Option<&str>) -> Result<StoredLoop, CliError> {
    let mut found = stored(choice, forge).await.into_iter();
    let unfinished = |known: &Loop| known.state.is_open() && known.state != LoopState::Review;
    let one = found.find(|one| id.map_or_else(|| unfinished(&one.known), |id| one.known.id.as_str() == id));
    one.ok_or_else(|| {
        let what = id.map_or_else(|| "no loop that is not done".to_owned(), |id| format!("no loop {}", one_line(id)));
        CliError::usage(format!("there is {what}; `ralph-bot local --list` shows the loops of the repository"))
    })
}
