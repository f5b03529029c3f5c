//! Formats results as a table for the terminal and as the page in `docs/`.

use std::fmt::Write;

use crate::machine::{self, Machine};

/// Target of a figure.
#[derive(Debug, Clone, Copy)]
pub enum FigureTarget {
    /// Minimum ratio to the baseline.
    RatioAtLeast(f64),
    /// Maximum ratio to the baseline.
    RatioAtMost(f64),
    /// Exclusive upper bound of the figure.
    Below(f64),
    /// Maximum of the figure.
    AtMost(f64),
    /// Minimum of the figure.
    AtLeast(f64),
    /// No target.
    None,
}

/// Measured figure.
#[derive(Debug, Clone)]
pub struct FigureRow {
    /// Name of the benchmark.
    figure: &'static str,
    what: String,
    measured: f64,
    unit: &'static str,
    /// Description and value of the baseline, in the same unit and from the same run.
    baseline: Option<(String, f64)>,
    target: FigureTarget,
    /// Load average at the time of the measurement.
    load: f64,
}

impl FigureRow {
    /// Creates a figure without a baseline and a target.
    pub fn new(figure: &'static str, what: impl Into<String>, measured: f64, unit: &'static str) -> Self {
        let load = machine::load();
        Self { figure, what: what.into(), measured, unit, baseline: None, target: FigureTarget::None, load }
    }

    /// Sets the baseline.
    pub fn beside(mut self, what: impl Into<String>, measured: f64) -> Self {
        self.baseline = Some((what.into(), measured));
        self
    }

    /// Sets the target.
    pub fn target(mut self, target: FigureTarget) -> Self {
        self.target = target;
        self
    }

    /// Returns the ratio to the baseline; `None` without a baseline, or if it is zero.
    fn ratio(&self) -> Option<f64> {
        self.baseline.as_ref().filter(|(_, baseline)| *baseline != 0.0).map(|(_, baseline)| self.measured / baseline)
    }

    /// Returns the target's description, and whether it is met; `None` without a target, and in debug builds.
    fn verdict(&self) -> Option<(String, bool)> {
        if cfg!(debug_assertions) {
            return None;
        }
        match self.target {
            FigureTarget::RatioAtLeast(least) => Some((format!("ratio at least {least}"), self.ratio()? >= least)),
            FigureTarget::RatioAtMost(most) => Some((format!("ratio at most {most}"), self.ratio()? <= most)),
            FigureTarget::Below(limit) => Some((format!("below {limit} {}", self.unit), self.measured < limit)),
            FigureTarget::AtMost(most) => Some((format!("at most {most} {}", self.unit), self.measured <= most)),
            FigureTarget::AtLeast(least) => Some((format!("at least {least} {}", self.unit), self.measured >= least)),
            FigureTarget::None => None,
        }
    }

    fn cells(&self, judge: bool) -> [String; 6] {
        let baseline = self.baseline.as_ref();
        [
            self.what.clone(),
            format!("{} {}", number(self.measured), self.unit),
            baseline.map_or(String::new(), |(what, value)| format!("{what}: {} {}", number(*value), self.unit)),
            self.ratio().map_or(String::new(), |ratio| format!("{ratio:.2}")),
            match self.verdict().filter(|_| judge) {
                Some((words, true)) => format!("{words}: met"),
                Some((words, false)) => format!("**target {words} missed**"),
                None => String::new(),
            },
            format!("{:.1}", self.load),
        ]
    }
}

fn number(value: f64) -> String {
    match value.abs() {
        v if v == 0.0 || v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Column headings.
const HEAD: [&str; 6] = ["what", "measured", "baseline of the same run", "ratio", "target", "load"];

/// Renders rows for a terminal, including their targets if `judge` is set.
pub fn table(rows: &[FigureRow], judge: bool) -> String {
    let mut text = String::new();
    for row in rows {
        let cells = row.cells(judge);
        let named = HEAD.iter().zip(&cells).skip(1).filter(|(_, cell)| !cell.is_empty());
        let rest: Vec<_> = named.map(|(name, cell)| format!("{name} {cell}")).collect();
        let _ = writeln!(text, "{:<11} {}\n            {}", row.figure, cells[0], rest.join("; "));
    }
    text
}

/// Renders the page: this run's figures, and the other sections of an older page.
pub fn page(
    machine: &Machine,
    figures: &[(&'static str, &'static str)],
    rows: &[FigureRow],
    notes: &[String],
    old: &str,
) -> String {
    let mut text = String::from(
        "# Benchmarks\n\n`cargo bench --bench figures -- NAMES --markdown docs/research/benchmarks.md` writes the sections of the named \
         figures (`all` for each; `--full` adds the largest sizes); do not edit. Each figure has a baseline of the same \
         run where possible. A load average above the number of processors means that other work disturbed the run.\n\n",
    );
    if cfg!(debug_assertions) {
        text.push_str("**This run was of a debug build: nothing here says how fast the service is.**\n\n");
    }
    let sections: Vec<String> = figures
        .iter()
        .filter_map(|(name, words)| {
            let own: Vec<_> = rows.iter().filter(|row| row.figure == *name).collect();
            if own.is_empty() {
                section(old, name).map(str::to_owned)
            } else {
                Some(new_section(machine, name, words, &own))
            }
        })
        .collect();
    let missed: Vec<String> = sections.iter().flat_map(|section| section.lines()).filter_map(missed).collect();
    match missed.is_empty() {
        true => text.push_str("All targets were met.\n"),
        false => missed.iter().for_each(|line| text.extend([line, "\n"])),
    }
    for section in sections {
        let _ = writeln!(text, "\n{}", section.trim_end());
    }
    if !notes.is_empty() {
        let _ = writeln!(text, "\n## Notes\n\n- {}", notes.join("\n- "));
    }
    text
}

fn new_section(machine: &Machine, name: &str, words: &str, rows: &[&FigureRow]) -> String {
    let mut text = format!(
        "## {name}\n\n{words}\n\nProfile `{}`. Machine: {} processors, {} MiB, Linux {}; a 4 KiB write with `fdatasync` takes {:.2} ms, creating a file \
         {:.2} ms (medians).\n\n| {} |\n|{}\n",
        machine.profile,
        machine.cores,
        machine.memory_mib,
        machine.kernel,
        machine.sync.as_secs_f64() * 1e3,
        machine.create.as_secs_f64() * 1e3,
        HEAD.join(" | "),
        "---|".repeat(HEAD.len())
    );
    for row in rows {
        let _ = writeln!(text, "| {} |", row.cells(true).join(" | "));
    }
    text
}

/// Returns a page's section with its heading.
fn section<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    let from = page.find(&format!("\n## {name}\n"))? + 1;
    let rest = &page[from..];
    Some(rest.find("\n## ").map_or(rest, |end| &rest[..end]))
}

/// Returns the entry of a table line for the list of missed targets; `None` for a line without a missed target.
fn missed(line: &str) -> Option<String> {
    let cells: Vec<&str> = line.strip_prefix("| ")?.split(" | ").collect();
    let [what, measured, _, ratio, target, ..] = cells[..] else { return None };
    let target = target.strip_prefix("**")?.strip_suffix("**")?;
    let ratio = if ratio.is_empty() { String::new() } else { format!(" (ratio {ratio})") };
    Some(format!("- {target}: {what}: {measured}{ratio}"))
}
