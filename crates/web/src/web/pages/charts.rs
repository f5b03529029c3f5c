//! Charts as SVG. For a loop: completion with the control signal and alarms, terms and gains of the control loop, and cost.
//! For all loops: cost by day. Tables next to the charts contain the values. Line colors are distinguishable for people with
//! red-green color blindness; the style sheet adapts the other colors to dark mode.

use plotters::prelude::*;

use crate::domain::loops::{KeptAlarm, Loop};
use crate::domain::providers::money::date_of;
use crate::domain::supervision::control::{AlarmSeverity, Gains};
use crate::store::costs::DailyCost;

/// Size of a chart, in pixels.
const SIZE: (u32, u32) = (560, 240);
/// Maximum number of iterations in a chart; only the last ones are drawn.
const POINTS: usize = 100;
/// Maximum number of points drawn as dots.
const DOTTED: usize = 20;

const INK: RGBColor = RGBColor(0x28, 0x2C, 0x34);
const FAINT: RGBColor = RGBColor(0xDE, 0xE1, 0xE6);
const BLUE: RGBColor = RGBColor(0, 114, 178);
const ORANGE: RGBColor = RGBColor(213, 94, 0);
const TEAL: RGBColor = RGBColor(0, 158, 115);
const PINK: RGBColor = RGBColor(204, 121, 167);
const YELLOW: RGBColor = RGBColor(230, 159, 0);
const GREY: RGBColor = RGBColor(0x86, 0x8D, 0x96);

/// Maximum number of names with a distinct color in a stacked chart; all others are combined.
pub(super) const STACKED: usize = 5;
/// Colors of a stacked chart, in the order of the style sheet.
const STACK: [RGBColor; STACKED + 1] = [BLUE, ORANGE, TEAL, PINK, YELLOW, GREY];

/// Line of a chart: color, and points (iteration, value).
type ChartLine = (RGBColor, Vec<(f64, f64)>);

/// Charts of a loop. A chart with no data is an empty text.
pub(super) struct LoopCharts {
    /// Completion and control signal, both in percent.
    pub progress: String,
    /// Chart of the terms P, I and D, as SVG.
    pub terms: String,
    /// Chart of the gains of the terms.
    pub gains: String,
    /// Whether the progress chart marks alarms.
    pub has_alarms: bool,
    /// Cumulative cost of the iterations, in US dollars.
    pub cost: String,
}

/// Draws the charts of a loop; empty for fewer than two iterations.
pub(super) fn draw(current: &Loop) -> LoopCharts {
    let iterations: Vec<_> = current.retained_iterations().filter(|i| i.ended_at.is_some()).collect();
    let iterations = &iterations[iterations.len().saturating_sub(POINTS)..];
    let judged = || iterations.iter().filter_map(|i| Some((f64::from(i.number), i.judged.as_ref()?)));
    let finite = |points: Vec<(f64, f64)>| points.into_iter().filter(|(_, value)| value.is_finite()).collect();
    let completion = iterations.iter().map(|i| (f64::from(i.number), i.completion.get() * 100.0)).collect();
    let signal = finite(judged().map(|(n, judged)| (n, judged.signal * 100.0)).collect());
    let [p, i, d] =
        [0, 1, 2].map(|term| finite(judged().map(|(n, judged)| (n, [judged.p, judged.i, judged.d][term])).collect()));
    let figures = || judged().filter_map(|(n, judged)| Some((n, judged.control.as_ref()?)));
    let gains = gain_lines(figures().map(|(n, figures)| (n, figures.gains)));
    let raises = |alarm: &KeptAlarm| alarm.raised && alarm.severity > AlarmSeverity::Info;
    let alarms = figures().filter(|(_, figures)| figures.alarms.iter().any(raises));
    let alarms: Vec<f64> = alarms.map(|(n, _)| n).collect();
    let mut total = 0.0;
    let cost = iterations.iter().map(|i| {
        total += i.cost.usd();
        (f64::from(i.number), total)
    });
    let cost: Vec<(f64, f64)> = cost.collect();
    LoopCharts {
        progress: chart(&[(TEAL, completion), (ORANGE, signal)], &alarms, (0.0, 100.0), "%"),
        terms: chart(&[(BLUE, p), (PINK, i), (ORANGE, d)], &[], (-0.5, 1.0), ""),
        gains: chart(&gains, &[], (0.0, 1.0), ""),
        has_alarms: !alarms.is_empty(),
        cost: if total > 0.0 { chart(&[(BLUE, cost)], &[], (0.0, 0.01), "$") } else { String::new() },
    }
}

/// Returns the lines of the gains in the colors of their terms.
fn gain_lines(gains: impl Iterator<Item = (f64, Gains)>) -> [ChartLine; 3] {
    let mut lines = [BLUE, PINK, ORANGE].map(|color| (color, Vec::new()));
    for (n, Gains { kp, ki, kd, .. }) in gains {
        let values = [kp, ki, kd].into_iter().zip(&mut lines).filter(|(value, _)| value.is_finite());
        values.for_each(|(value, (_, points))| points.push((n, value)));
    }
    lines
}

/// Draws the costs of `days` days from the day `first` as stacked bars. Each name in `names` has a distinct color. Empty if
/// there are no costs.
pub(super) fn stacked(first: i64, days: i64, rows: &[DailyCost], names: &[&str]) -> String {
    let days = usize::try_from(days).unwrap_or_default();
    let mut bars = vec![[0.0; STACKED + 1]; days];
    for row in rows {
        let part = names.iter().take(STACKED).position(|name| *name == row.of).unwrap_or(STACKED);
        let bar = usize::try_from(row.day - first).ok().and_then(|at| bars.get_mut(at));
        bar.into_iter().for_each(|bar| bar[part] += row.cost.usd());
    }
    let most = bars.iter().map(|bar| bar.iter().sum::<f64>()).fold(0.0, f64::max);
    if most.is_nan() || most <= 0.0 {
        return String::new();
    }
    let mut text = String::new();
    let drawn = draw_bars(&mut text, first, &bars, most);
    if drawn.is_err() { String::new() } else { text }
}

fn draw_bars(
    text: &mut String,
    first: i64,
    bars: &[[f64; STACKED + 1]],
    most: f64,
) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(text, (SIZE.0 * 2, SIZE.1)).into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .margin(8)
        .x_label_area_size(26)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..bars.len() as f64, 0.0..most * 1.05)?;
    // A day starts at its whole number; the label is the end of its date, month and day.
    let day = |at: &f64| match (at - at.round()).abs() < 0.01 && at.round() < bars.len() as f64 {
        true => date_of(first + at.round() as i64).split_once('-').map_or_else(String::new, |(_, day)| day.to_owned()),
        false => String::new(),
    };
    let dollars = |value: &f64| if most < 0.1 { format!("${value:.4}") } else { format!("${value:.2}") };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .axis_style(INK)
        .label_style(("sans-serif", 13).into_font().color(&INK))
        .x_labels(10)
        .x_label_formatter(&day)
        .y_labels(5)
        .y_label_formatter(&dollars)
        .draw()?;
    for (at, bar) in bars.iter().enumerate() {
        let (left, right) = (at as f64 + 0.1, at as f64 + 0.9);
        let mut base = 0.0;
        for (value, color) in bar.iter().zip(STACK).filter(|(value, _)| **value > 0.0) {
            chart.draw_series([Rectangle::new([(left, base), (right, base + value)], color.filled())])?;
            base += value;
        }
    }
    drop(chart);
    area.present()?;
    drop(area);
    Ok(())
}

/// Draws lines over iterations, with a mark at each of `marks`; empty for fewer than two points. The axis covers at least
/// the given range.
fn chart(lines: &[ChartLine], marks: &[f64], range: (f64, f64), unit: &str) -> String {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let (first, last) = points().fold((f64::MAX, f64::MIN), |(low, high), (n, _)| (low.min(*n), high.max(*n)));
    if first >= last {
        return String::new();
    }
    let low = points().fold(range.0, |low, (_, value)| low.min(*value));
    let high = points().fold(range.1, |high, (_, value)| high.max(*value));
    let mut text = String::new();
    let drawn = draw_lines(&mut text, (lines, marks), (first, last), (low, high), unit);
    if drawn.is_err() { String::new() } else { text }
}

fn draw_lines(
    text: &mut String,
    (lines, marks): (&[ChartLine], &[f64]),
    span: (f64, f64),
    range: (f64, f64),
    unit: &str,
) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .margin(8)
        .x_label_area_size(26)
        .y_label_area_size(46)
        .build_cartesian_2d(span.0..span.1, range.0..range.1)?;
    let whole = span.1 - span.0;
    let value = |value: &f64| match unit {
        "$" => format!("${value:.2}"),
        "%" => format!("{value:.0} %"),
        _ => format!("{value:.1}"),
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .axis_style(INK)
        .label_style(("sans-serif", 13).into_font().color(&INK))
        .x_labels((whole as usize + 1).min(10))
        .x_label_formatter(&|n| if (n - n.round()).abs() < 0.01 { format!("{n:.0}") } else { String::new() })
        .y_labels(5)
        .y_label_formatter(&value)
        .draw()?;
    for mark in marks {
        chart.draw_series([PathElement::new([(*mark, range.0), (*mark, range.1)], YELLOW.stroke_width(1))])?;
        chart.draw_series([TriangleMarker::new((*mark, range.1), 6, YELLOW.filled())])?;
    }
    for (color, points) in lines {
        chart.draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))?;
        // With many points, the line alone is clear enough, and the page stays small.
        let dots = if points.len() <= DOTTED { points.as_slice() } else { &[] };
        chart.draw_series(dots.iter().map(|point| Circle::new(*point, 3, color.filled())))?;
    }
    drop(chart);
    area.present()?;
    drop(area);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::model::ids::Money;

    #[test]
    fn chart_has_a_line_for_each_series_and_no_inline_style() {
        let lines = [(TEAL, vec![(1.0, 20.0), (2.0, 60.0), (3.0, 100.0)]), (ORANGE, vec![(1.0, 50.0), (2.0, 30.0)])];
        let svg = chart(&lines, &[], (0.0, 100.0), "%");
        assert!(!svg.contains("#E69F00"), "no alarm was raised: {svg}");
        for color in ["#009E73", "#D55E00"] {
            assert!(svg.contains(color), "{svg}");
        }
        assert!(!svg.contains("style=") && !svg.contains("<script") && svg.contains("100 %"), "{svg}");
    }

    #[test]
    fn alarms_are_marked_and_gains_have_the_colors_of_their_terms() {
        let lines = [(TEAL, vec![(1.0, 20.0), (2.0, 60.0), (3.0, 100.0)])];
        let svg = chart(&lines, &[2.0, 3.0], (0.0, 100.0), "%");
        assert_eq!(svg.matches("#E69F00").count(), 4, "a line and a triangle each: {svg}");
        let gains = |kp, ki, kd| Gains { kp, ki, kd };
        let lines = gain_lines([(1.0, gains(0.5, 0.1, 0.2)), (2.0, gains(0.7, f64::NAN, 0.1))].into_iter());
        let points: Vec<_> = lines.iter().map(|(_, points)| points.clone()).collect();
        assert_eq!(points, [vec![(1.0, 0.5), (2.0, 0.7)], vec![(1.0, 0.1)], vec![(1.0, 0.2), (2.0, 0.1)]]);
        let svg = chart(&lines, &[], (0.0, 1.0), "");
        for color in ["#0072B2", "#CC79A7", "#D55E00"] {
            assert!(svg.contains(color), "{color}: {svg}");
        }
    }

    #[test]
    fn costs_are_stacked_by_day_with_all_others_as_one_part() {
        let row = |day, of: &str, cost| DailyCost {
            day,
            of: of.into(),
            calls: 1,
            cost: Money(cost),
            tokens_in: 0,
            tokens_out: 0,
        };
        let rows =
            [row(20_783, "a", 2_000_000), row(20_783, "x", 1_000_000), row(20_783, "y", 500_000), row(1, "a", 9)];
        let svg = stacked(20_777, 7, &rows, &["a"]);
        let bars = |color: &str| svg.matches(&format!("fill=\"{color}\"")).count();
        assert_eq!((bars("#0072B2"), bars("#868D96")), (1, 1), "{svg}");
        assert!(svg.contains("11-20") && svg.contains("$3.00"), "{svg}");
        assert!(!svg.contains("style=") && !svg.contains("<script"), "{svg}");
        assert_eq!(stacked(20_777, 7, &[row(20_780, "a", 0)], &["a"]), "");
    }

    #[test]
    fn chart_of_one_point_is_not_drawn() {
        assert_eq!(chart(&[(TEAL, vec![(1.0, 20.0)])], &[], (0.0, 1.0), ""), "");
        assert_eq!(chart(&[], &[], (0.0, 1.0), ""), "");
    }
}
