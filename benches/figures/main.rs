//! Benchmarks of the service, each compared with a baseline in the same run.
//!
//! `cargo bench --bench figures -- [all | NAME…] [--full] [--queries FILE] [--markdown FILE] [--growth FILE]`. Without names, all benchmarks
//! run briefly as a smoke test, which is too short for valid figures. As a test (`cargo test --benches`), only the first one
//! runs. `--full` adds the largest sizes. `--queries` names a file with texts of real issues for `recall`, as JSON Lines
//! with a field `text`; learnings then consist of their words with their frequencies. `--markdown` replaces the sections of
//! the named figures in a page. `--growth` measures curves by size instead, and writes a page with their plots.

#![expect(clippy::disallowed_methods, reason = "figures start programs and read the environment; they are no service")]

mod bare;
mod corpus;
mod dashboard;
mod environments;
mod growth;
mod hosts;
mod ingest;
mod iteration;
mod label_to_agent;
mod load;
mod machine;
mod many_loops;
mod memory;
mod pages;
mod parallel;
mod readers;
mod recall;
mod report;
mod restart;
mod sandbox;
mod service;
mod supervision;
mod thinking;
mod trees;
mod world;

use std::path::PathBuf;

use anyhow::{Context, bail};
use machine::Machine;
use report::FigureRow;
use tempfile::TempDir;

/// Names and descriptions of the benchmarks.
const FIGURES: [(&str, &str); 15] = [
    ("ingest", ingest::DESCRIPTION),
    ("hosts", hosts::DESCRIPTION),
    ("memory", memory::DESCRIPTION),
    ("restart", restart::DESCRIPTION),
    ("label", label_to_agent::DESCRIPTION),
    ("iteration", iteration::DESCRIPTION),
    ("parallel", parallel::DESCRIPTION),
    ("trees", trees::DESCRIPTION),
    ("environments", environments::DESCRIPTION),
    ("sandbox", sandbox::DESCRIPTION),
    ("readers", readers::DESCRIPTION),
    ("supervision", supervision::DESCRIPTION),
    ("recall", recall::DESCRIPTION),
    ("dashboard", dashboard::DESCRIPTION),
    ("thinking", thinking::DESCRIPTION),
];

/// Extent of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Smoke test.
    Brief,
    /// Sizes of the targets, except the largest repository.
    Usual,
    /// All sizes.
    Full,
}

/// A run and its results.
pub struct FigureRun {
    /// Extent of the measurement.
    pub size: Size,
    /// File with texts for the queries of `recall`; `None` to generate texts.
    pub queries: Option<PathBuf>,
    rows: Vec<FigureRow>,
    notes: Vec<String>,
    scratch: TempDir,
    folders: std::cell::Cell<u32>,
}

impl FigureRun {
    /// Creates a folder on the measured disk.
    pub fn folder(&self) -> anyhow::Result<PathBuf> {
        self.folders.set(self.folders.get() + 1);
        let folder = self.scratch.path().join(self.folders.get().to_string());
        std::fs::create_dir(&folder)?;
        Ok(folder)
    }

    /// Records a row and prints it.
    pub fn add(&mut self, row: FigureRow) {
        print!("{}", report::table(std::slice::from_ref(&row), self.size != Size::Brief));
        self.rows.push(row);
    }

    /// Records a note about an omitted measurement.
    pub fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            println!("note: {note}");
            self.notes.push(note);
        }
    }
}

/// Parsed arguments.
struct Asked {
    names: Vec<&'static str>,
    size: Size,
    queries: Option<PathBuf>,
    markdown: Option<PathBuf>,
    growth: Option<PathBuf>,
}

fn asked(arguments: impl Iterator<Item = String>) -> anyhow::Result<Asked> {
    let mut asked = Asked { names: Vec::new(), size: Size::Brief, queries: None, markdown: None, growth: None };
    let (mut full, mut test) = (false, true);
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--full" => full = true,
            "--bench" => test = false,
            "--test" => test = true,
            "--queries" => asked.queries = Some(arguments.next().context("--queries needs a file")?.into()),
            "--markdown" => asked.markdown = Some(arguments.next().context("--markdown needs a file")?.into()),
            "--growth" => asked.growth = Some(arguments.next().context("--growth needs a file")?.into()),
            "all" => asked.names = FIGURES.map(|(name, _)| name).to_vec(),
            other => match FIGURES.iter().find(|(name, _)| *name == other) {
                Some((name, _)) => asked.names.push(name),
                None => bail!("no figure is called {other}; there are {}", FIGURES.map(|(name, _)| name).join(", ")),
            },
        }
    }
    if !asked.names.is_empty() || asked.growth.is_some() {
        asked.size = if full { Size::Full } else { Size::Usual };
    } else if test {
        asked.names = vec![FIGURES[0].0];
    } else {
        asked.names = FIGURES.map(|(name, _)| name).to_vec();
    }
    if asked.size == Size::Brief && asked.markdown.is_some() {
        bail!("a page needs figures that count: name them, or `all`");
    }
    Ok(asked)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == load::ARGUMENT) {
        return load::make(&arguments[1..]).await;
    }
    if arguments.first().is_some_and(|first| first == bare::ARGUMENT) {
        return bare::serve(&arguments[1..]).await;
    }
    if arguments.first().is_some_and(|first| first == hosts::ARGUMENT) {
        return hosts::make_steps(&arguments[1..]).await;
    }
    let asked = asked(arguments.into_iter())?;
    // On the build's disk, because the system's temporary folder may be in memory.
    let scratch = tempfile::Builder::new().prefix("figures-").tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let machine = Machine::look(scratch.path())?;
    println!(
        "{} processors, Linux {}, fdatasync {:.2} ms, load {:.1}",
        machine.cores,
        machine.kernel,
        machine.sync.as_secs_f64() * 1e3,
        machine::load()
    );
    let mut run = FigureRun {
        size: asked.size,
        queries: asked.queries,
        rows: Vec::new(),
        notes: Vec::new(),
        scratch,
        folders: 0.into(),
    };
    if let Some(page) = &asked.growth {
        return growth::write(&run, &machine, page).await;
    }
    let mut failed = 0;
    for name in asked.names {
        let outcome = match name {
            "ingest" => ingest::run(&mut run).await,
            "hosts" => hosts::run(&mut run).await,
            "memory" => memory::run(&mut run).await,
            "restart" => restart::run(&mut run).await,
            "label" => label_to_agent::run(&mut run).await,
            "iteration" => iteration::run(&mut run).await,
            "parallel" => parallel::run(&mut run).await,
            "environments" => environments::run(&mut run).await,
            "supervision" => supervision::run(&mut run),
            "readers" => readers::run(&mut run).await,
            "recall" => recall::run(&mut run).await,
            "dashboard" => dashboard::run(&mut run).await,
            "sandbox" => sandbox::run(&mut run).await,
            "thinking" => thinking::run(&mut run).await,
            _ => trees::run(&mut run).await,
        };
        if let Err(error) = outcome {
            failed += 1;
            run.note(format!("{name} could not be measured: {error:#}"));
        }
        // After each benchmark, so that an interrupted run keeps its results.
        if let Some(file) = &asked.markdown {
            let old = std::fs::read_to_string(file).unwrap_or_default();
            std::fs::write(file, report::page(&machine, &FIGURES, &run.rows, &run.notes, &old))?;
        }
    }
    if failed > 0 {
        bail!("{failed} of the figures could not be measured");
    }
    Ok(())
}
