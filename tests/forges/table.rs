//! Table of stories by server with their times. It is written to `target/stories.md`, and with `UPDATE_DOCS` set into
//! `docs/research/stories.md`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use crate::harness::docs_tables::write_table;
use crate::server::On;

/// Times by story and server; `None` for a story that failed.
type Times = BTreeMap<&'static str, BTreeMap<On, Option<Duration>>>;

static TIMES: Mutex<Times> = Mutex::new(BTreeMap::new());

/// Records a story, and writes the table.
pub fn record(story: &'static str, on: On, took: Option<Duration>) {
    let mut times = TIMES.lock().expect("not poisoned");
    times.entry(story).or_default().insert(on, took);
    let table = table(&times);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::create_dir_all(root.join("target")).expect("a folder");
    std::fs::write(root.join("target/stories.md"), &table).expect("the table is written");
    write_table("times", &table);
}

fn table(times: &Times) -> String {
    let servers = [On::FakeGitHub, On::FakeGitea, On::OldGitea, On::RealGitea];
    let shown: Vec<On> = servers.into_iter().filter(|on| times.values().any(|row| row.contains_key(on))).collect();
    let names: Vec<&str> = shown.iter().map(|on| on.name()).collect();
    let mut text = format!("| story | {} |\n|---|{}\n", names.join(" | "), "---:|".repeat(shown.len()));
    for (story, row) in times {
        let cell = |on: &On| match row.get(on) {
            None => "not run".to_owned(),
            Some(None) => "failed".to_owned(),
            Some(Some(took)) => format!("{:.1} s", took.as_secs_f64()),
        };
        let cells: Vec<String> = shown.iter().map(cell).collect();
        text.push_str(&format!("| {} | {} |\n", story.replace('_', " "), cells.join(" | ")));
    }
    text
}
