//! Progress bar and Mermaid chart of iterations.

use minijinja::{Error, Value};

/// Number of cells of a progress bar.
const CELLS: u32 = 20;
/// Maximum number of iterations in a chart; only the last ones are drawn.
const POINTS: usize = 40;

/// Formats a percentage as a bar, such as `` `██████░░░░░░░░░░░░░░` ``.
pub(super) fn bar(percent: u32) -> String {
    let percent = percent.min(100);
    let full = (percent * CELLS / 100) as usize;
    format!("`{}{}`", "█".repeat(full), "░".repeat(CELLS as usize - full))
}

/// Draws the completion of the last measured iterations as bars and their control signal as a line. Empty for fewer than two
/// iterations. The title names both, because Mermaid has no legend.
pub(super) fn completion(rows: &Value) -> Result<String, Error> {
    let mut all: Vec<Value> = rows.try_iter()?.collect();
    all.retain(|row| row.get_attr("completion_percent").is_ok_and(|percent| !percent.is_none()));
    let shown = &all[all.len().saturating_sub(POINTS)..];
    if shown.len() < 2 {
        return Ok(String::new());
    }
    let column = |name: &str| -> Result<Vec<Value>, Error> { shown.iter().map(|row| row.get_attr(name)).collect() };
    let whole =
        |values: Vec<Value>| values.iter().map(|v| v.as_i64().unwrap_or(0).to_string()).collect::<Vec<_>>().join(", ");
    let mut lines = vec![
        "```mermaid".to_owned(),
        "xychart-beta".to_owned(),
        String::new(),
        format!("    x-axis \"Iteration\" [{}]", whole(column("n")?)),
        "    y-axis \"Percent\" 0 --> 100".to_owned(),
        format!("    bar \"Completion\" [{}]", whole(column("completion_percent")?)),
    ];
    // The newest iteration is measured before it is judged, so its signal may be missing.
    let signals = column("control_signal")?.into_iter().map_while(|v| f64::try_from(v).ok());
    let signals = Some(signals.collect::<Vec<f64>>()).filter(|known| known.len() > 1 && known.len() + 1 >= shown.len());
    let both = signals.is_some();
    if let Some(signals) = signals {
        let percent: Vec<String> = signals
            .iter()
            .map(|s| format!("{:.0}", if s.is_finite() { s.clamp(0.0, 1.0) * 100.0 } else { 0.0 }))
            .collect();
        lines.push(format!("    line \"Control signal\" [{}]", percent.join(", ")));
    }
    lines.push("```".to_owned());
    let names = if both { "Bars: completion. Line: control signal." } else { "Bars: completion." };
    lines[2] = format!("    title \"{names}\"");
    Ok(lines.join("\n"))
}
