//! `--compare`: compares two settings files over traces.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;

use super::read::NamedTrace;
use super::{push_json, read, table};
use crate::cli::{CliResult, one_line, print};
use crate::domain::supervision::replay::{Comparison, Trace, TraceOutcome, compare};

/// Maximum width of a trace's name, in characters.
const NAME_MAX: usize = 32;

/// Comparison of one trace, in JSON.
#[derive(Serialize)]
struct ComparisonRow<'a> {
    trace: &'a str,
    a: TraceOutcome,
    b: TraceOutcome,
}

/// Totals over all traces, in JSON.
#[derive(Serialize)]
struct ComparisonTotals {
    a: Comparison,
    b: Comparison,
}

pub(super) fn run(named: Vec<NamedTrace>, files: [&PathBuf; 2], json: bool) -> CliResult {
    let settings = [read::settings_of(files[0])?, read::settings_of(files[1])?].map(Option::unwrap_or_default);
    let (names, traces): (Vec<String>, Vec<Trace>) = named.into_iter().map(|one| (one.name, one.trace)).unzip();
    let [(of_a, a), (of_b, b)] = settings.map(|settings| compare(&traces, &settings));
    let rows = names.iter().zip(of_a.into_iter().zip(of_b)).map(|(name, (a, b))| ComparisonRow { trace: name, a, b });
    let mut text = String::new();
    if json {
        for row in rows {
            push_json(&mut text, &row)?;
        }
        push_json(&mut text, &ComparisonTotals { a, b })?;
        return print(&text);
    }
    let heads = files.map(|file| read::name(file));
    line(&mut text, "", [&heads[0], &heads[1]]);
    for row in rows {
        line(&mut text, row.trace, [&cell(row.a), &cell(row.b)]);
    }
    text.push('\n');
    let figures: [(&str, fn(&Comparison) -> String); 4] = [
        ("iterations saved", |c| format!("{} of {}", c.saved, c.iterations)),
        ("interventions", |c| c.interventions.to_string()),
        ("healthy disturbed", |c| format!("{} of {}", c.disturbed, c.healthy)),
        ("healthy stopped", |c| format!("{} of {}", c.stopped, c.healthy)),
    ];
    for (name, figure) in figures {
        line(&mut text, name, [&figure(&a), &figure(&b)]);
    }
    print(&text)
}

fn line(text: &mut String, name: &str, cells: [&str; 2]) {
    let name: String = one_line(name).chars().take(NAME_MAX).collect();
    let _ = writeln!(text, "{}", format!("{name:<NAME_MAX$}  {:<40}  {}", cells[0], cells[1]).trim_end());
}

fn cell(outcome: TraceOutcome) -> String {
    let remark = match outcome {
        TraceOutcome { stopped: true, .. } => ", stopped a healthy loop".to_owned(),
        TraceOutcome { disturbed: true, .. } => ", disturbed a healthy loop".to_owned(),
        TraceOutcome { saved: 0, .. } => String::new(),
        TraceOutcome { saved, .. } => format!(", {saved} iterations saved"),
    };
    format!("{}{remark}", table::end_words(outcome.ended))
}
