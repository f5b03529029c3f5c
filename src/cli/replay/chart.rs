//! Chart of a replay as SVG: completion and control signal, terms, gains, and detections.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use ralph_types::failure::Failure;

use crate::domain::model::record::Record;
use crate::domain::supervision::SupervisionReview;
use crate::domain::supervision::oversight::InterventionLevel;
use crate::domain::supervision::replay::ReplayLine;

/// Size of the SVG, in pixels.
const SIZE: (u32, u32) = (1000, 840);
/// Height of the title, in pixels.
const TITLE: u32 = 44;
/// Height of the detections panel, in pixels.
const MARKS: u32 = 150;

const INK: RGBColor = RGBColor(40, 44, 52);
const FAINT: RGBColor = RGBColor(222, 225, 230);
const GREY: RGBColor = RGBColor(120, 125, 135);
// Colors that are distinguishable with red-green color blindness.
const BLUE: RGBColor = RGBColor(0, 114, 178);
const ORANGE: RGBColor = RGBColor(213, 94, 0);
const TEAL: RGBColor = RGBColor(0, 158, 115);
const PINK: RGBColor = RGBColor(204, 121, 167);
const AMBER: RGBColor = RGBColor(230, 159, 0);

/// Points of a line: iteration and value.
type Series = Vec<(f64, f64)>;

/// Panel of the chart, with named and colored series.
struct Panel {
    name: &'static str,
    series: Vec<(&'static str, RGBColor, Series)>,
    /// Minimum and maximum value.
    range: (f64, f64),
}

/// Draws the chart as SVG.
pub(super) fn svg(title: &str, reviews: &[(Record, SupervisionReview)]) -> Result<String, Failure> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        draw_svg(&area, title, reviews)
            .map_err(|error| Failure::new("could not draw the chart").with_detail(error.to_string()))?;
    }
    Ok(text)
}

fn panels(reviews: &[(Record, SupervisionReview)]) -> [Panel; 3] {
    let lines: Vec<(f64, ReplayLine)> =
        reviews.iter().map(|(record, review)| (record.completion.get(), review.into())).collect();
    let of = |figure: fn(&(f64, ReplayLine)) -> f64| -> Series {
        lines.iter().map(|line| (line.1.iteration as f64, figure(line))).collect()
    };
    let panel = |name, series: Vec<(&'static str, RGBColor, Series)>, least: f64, greatest: f64| {
        let values = || series.iter().flat_map(|(.., points)| points.iter().map(|(_, value)| *value));
        let range = (values().fold(least, f64::min), values().fold(greatest, f64::max));
        Panel { name, series, range }
    };
    [
        panel(
            "progress",
            vec![
                ("completion", TEAL, of(|line| line.0)),
                ("P", BLUE, of(|line| line.1.p)),
                ("control signal u", ORANGE, of(|line| line.1.control_signal)),
            ],
            0.0,
            1.0,
        ),
        panel("terms", vec![("I", PINK, of(|line| line.1.i)), ("D", AMBER, of(|line| line.1.d))], -0.5, 1.0),
        panel(
            "gains",
            vec![
                ("kp", BLUE, of(|line| line.1.kp)),
                ("ki", PINK, of(|line| line.1.ki)),
                ("kd", AMBER, of(|line| line.1.kd)),
            ],
            0.0,
            0.6,
        ),
    ]
}

/// First and last iteration, with a margin.
fn span(reviews: &[(Record, SupervisionReview)]) -> (f64, f64) {
    let number = |(_, review): &(Record, SupervisionReview)| review.control.iteration as f64;
    let numbers = || reviews.iter().map(number);
    let (first, last) = (numbers().fold(f64::INFINITY, f64::min), numbers().fold(1.0, f64::max));
    (first.min(last) - 0.5, last + 0.5)
}

type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

fn draw_svg<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    title: &str,
    reviews: &[(Record, SupervisionReview)],
) -> Drawn<B> {
    area.fill(&WHITE)?;
    let (head, body) = area.split_vertically(TITLE);
    let summary = format!("{title}: {} iterations", reviews.len());
    head.draw(&Text::new(summary, (24, 14), ("sans-serif", 20).into_font().color(&INK)))?;
    let (charts, marks) = body.split_vertically(SIZE.1 - TITLE - MARKS);
    for (part, panel) in charts.split_evenly((3, 1)).iter().zip(panels(reviews)) {
        draw_panel(part, &panel, reviews)?;
    }
    draw_marks(&marks, reviews)?;
    area.present()
}

fn draw_panel<B: DrawingBackend>(
    part: &DrawingArea<B, Shift>,
    panel: &Panel,
    reviews: &[(Record, SupervisionReview)],
) -> Drawn<B> {
    let (from, to) = span(reviews);
    let (low, high) = panel.range;
    let mut chart = ChartBuilder::on(part)
        .margin_left(12)
        .margin_right(150)
        .margin_top(12)
        .x_label_area_size(24)
        .y_label_area_size(56)
        .build_cartesian_2d(from..to, low..high + 0.05 * (high - low))?;
    let small = ("sans-serif", 13).into_font().color(&GREY);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .axis_style(FAINT)
        .label_style(small.clone())
        .y_desc(panel.name)
        .axis_desc_style(("sans-serif", 14).into_font().color(&INK))
        .x_label_formatter(&|x| format!("{x:.0}"))
        .x_labels(12)
        .y_labels(5)
        .draw()?;
    for (at, color) in stops(reviews) {
        chart.draw_series(LineSeries::new([(at, low), (at, high + 0.05 * (high - low))], color.mix(0.35)))?;
    }
    // Labels at the right, sorted by the last value, so that they do not overlap.
    let mut ends: Vec<(f64, &str, RGBColor)> =
        panel.series.iter().filter_map(|(name, color, points)| Some((points.last()?.1, *name, *color))).collect();
    ends.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (_, color, points) in &panel.series {
        chart.draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))?;
        let dots = points.iter().map(|point| Circle::new(*point, 3, color.filled()));
        chart.draw_series(dots.take(if points.len() > 60 { 0 } else { points.len() }))?;
    }
    let mut above = i32::MIN;
    for (value, name, color) in ends {
        let (x, y) = chart.backend_coord(&(to, value));
        let (left, top) = part.get_pixel_range();
        let y = (y - top.start).max(above.saturating_add(17));
        above = y;
        let style = ("sans-serif", 14).into_font().color(&color).pos(Pos::new(HPos::Left, VPos::Center));
        part.draw(&Text::new(format!("{name} {value:.2}"), (x - left.start + 10, y), style))?;
    }
    Ok(())
}

/// Returns the iterations with a new REDIRECT, PAUSE or ABORT, each with its color.
fn stops(reviews: &[(Record, SupervisionReview)]) -> Vec<(f64, RGBColor)> {
    let mark = |(_, review): &(Record, SupervisionReview)| {
        let fresh = review.verdict.interventions.iter().filter(|done| done.fresh);
        let color =
            level_color(fresh.map(|done| done.level).max().filter(|level| *level >= InterventionLevel::Redirect)?);
        Some((review.control.iteration as f64, color))
    };
    reviews.iter().filter_map(mark).collect()
}

fn level_color(level: InterventionLevel) -> RGBColor {
    match level {
        InterventionLevel::Log => GREY,
        InterventionLevel::Warn => AMBER,
        InterventionLevel::Redirect => BLUE,
        InterventionLevel::Pause | InterventionLevel::Abort => RGBColor(190, 30, 45),
    }
}

/// Draws a row per kind of detection with a mark per iteration; filled marks are new interventions.
fn draw_marks<B: DrawingBackend>(part: &DrawingArea<B, Shift>, reviews: &[(Record, SupervisionReview)]) -> Drawn<B> {
    let mut kinds: Vec<_> =
        reviews.iter().flat_map(|(_, review)| &review.verdict.interventions).map(|done| done.kind).collect();
    kinds.sort();
    kinds.dedup();
    let text = |size, color: &RGBColor| ("sans-serif", size).into_font().color(color);
    let head = if kinds.is_empty() { "no detections" } else { "detections and actions" };
    part.draw(&Text::new(head, (24, 16), text(14, &INK)))?;
    let levels =
        [InterventionLevel::Log, InterventionLevel::Warn, InterventionLevel::Redirect, InterventionLevel::Pause];
    for (at, level) in (0..).zip(levels.into_iter().filter(|_| !kinds.is_empty())) {
        let x = 500 + at * 92;
        part.draw(&Circle::new((x, 23), 5, level_color(level).filled()))?;
        part.draw(&Text::new(level.name(), (x + 10, 16), text(13, &GREY)))?;
    }
    let (from, to) = span(reviews);
    let (left, right) = (68.0, f64::from(SIZE.0) - 150.0);
    let step = (f64::from(MARKS) - 56.0) / kinds.len().max(1) as f64;
    for (row, kind) in (0_u32..).zip(&kinds) {
        let y = 52 + (f64::from(row) * step.min(20.0)) as i32;
        let style = text(13, &INK).pos(Pos::new(HPos::Left, VPos::Center));
        part.draw(&Text::new(kind.name(), (right as i32 + 10, y), style))?;
        part.draw(&PathElement::new([(left as i32, y), (right as i32, y)], FAINT))?;
        for (_, review) in reviews {
            for done in review.verdict.interventions.iter().filter(|done| done.kind == *kind) {
                let x = left + (review.control.iteration as f64 - from) / (to - from) * (right - left);
                let color = level_color(done.level);
                let style = if done.fresh { color.filled() } else { color.mix(0.45).stroke_width(1) };
                part.draw(&Circle::new((x as i32, y), 5, style))?;
            }
        }
    }
    Ok(())
}
