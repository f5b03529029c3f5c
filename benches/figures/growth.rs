//! Growth: how costs of the service rise with the things that it stores, watches and reads.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use plotters::prelude::{
    ChartBuilder, Circle, Color, IntoDrawingArea, IntoFont, IntoLogRange, LineSeries, RGBColor, SVGBackend, WHITE,
};
use ralph_bot::store::Store;

use crate::corpus::Corpus;
use crate::dashboard::{millis, percentile};
use crate::iteration::{self, MeasuredLoop};
use crate::machine::{Machine, median};
use crate::service::{BenchService, Parked, Seat, data};
use crate::world::BenchWorld;
use crate::{FigureRun, Size, many_loops, memory, pages, recall, restart};

/// Largest exponent that counts as linear growth; the rest is measurement noise.
const LINEAR: f64 = 1.15;
/// Size of a plot in pixels.
const PLOT: (u32, u32) = (640, 320);
const LINE: RGBColor = RGBColor(31, 99, 181);
const BASELINE: RGBColor = RGBColor(140, 140, 140);
/// Rounds of reconciliation of all watched repositories in an hour.
const ROUNDS_PER_HOUR: f64 = 4.0;

/// Measured point of a curve.
#[derive(Debug, Clone, Copy)]
struct Point {
    /// Number of things.
    size: u64,
    /// Cost in the unit of the curve.
    cost: f64,
    /// Cost of the baseline in the same run, if the curve has one.
    baseline: Option<f64>,
}

/// Cost by the number of things.
struct Curve {
    /// Name of the plot's file.
    name: &'static str,
    title: &'static str,
    /// Sentences about the measurement.
    about: &'static str,
    /// Name of the things.
    things: &'static str,
    unit: &'static str,
    points: Vec<Point>,
}

impl Curve {
    /// Returns the exponent of the growth between the two largest sizes: 1 means that ten times as many things cost ten times
    /// as much, 0 that they cost the same.
    fn exponent(&self) -> f64 {
        let [.., before, last] = self.points[..] else { return 0.0 };
        (last.cost / before.cost).ln() / (last.size as f64 / before.size as f64).ln()
    }

    /// Returns the section of the page.
    fn section(&self) -> String {
        let Self { name, title, about, things, unit, points } = self;
        let exponent = self.exponent();
        let verdict = if exponent <= LINEAR { "at most linear" } else { "**faster than linear**" };
        let has_baseline = points.iter().any(|point| point.baseline.is_some());
        let mut text = format!("\n## {title}\n\n{about}\n\n![{title}](growth/{name}.svg)\n\n| {things} | {unit} |");
        text += if has_baseline { " plain git |\n|---|---|---|\n" } else { "\n|---|---|\n" };
        for Point { size, cost, baseline } in points {
            let _ = write!(text, "| {size} | {cost:.1} |");
            text += &baseline.map_or("\n".to_owned(), |baseline| format!(" {baseline:.1} |\n"));
        }
        let _ = writeln!(text, "\nExponent between the two largest sizes: {exponent:.2}, {verdict}.");
        text
    }

    /// Draws the plot with logarithmic axes.
    fn draw(&self, folder: &Path) -> anyhow::Result<()> {
        let file = folder.join(format!("{}.svg", self.name));
        let area = SVGBackend::new(&file, PLOT).into_drawing_area();
        area.fill(&WHITE)?;
        let costs = || self.points.iter().flat_map(|point| [Some(point.cost), point.baseline]).flatten();
        let (low, high) = (costs().fold(f64::MAX, f64::min), costs().fold(0.0, f64::max));
        let sizes = || self.points.iter().map(|point| point.size as f64);
        let (first, last) = (sizes().fold(f64::MAX, f64::min), sizes().fold(0.0, f64::max));
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .margin_right(40)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d((first..last).log_scale(), (low / 2.0..high * 2.0).log_scale())?;
        let font = ("sans-serif", 13).into_font();
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(self.things).y_desc(self.unit).label_style(font).light_line_style(WHITE);
        mesh.x_label_formatter(&f64::to_string).y_label_formatter(&f64::to_string).draw()?;
        let own = || self.points.iter().map(|point| (point.size as f64, point.cost));
        let plain = self.points.iter().filter_map(|point| Some((point.size as f64, point.baseline?)));
        chart.draw_series(LineSeries::new(plain, BASELINE.stroke_width(2)))?;
        chart.draw_series(LineSeries::new(own(), LINE.stroke_width(2)))?;
        chart.draw_series(own().map(|at| Circle::new(at, 4, LINE.filled())))?;
        area.present()?;
        Ok(())
    }
}

/// Measures all curves, and writes the page and its plots.
///
/// # Errors
/// A measurement failed, or the page cannot be written.
pub async fn write(run: &FigureRun, machine: &Machine, page: &Path) -> anyhow::Result<()> {
    let full = run.size != Size::Brief;
    let folder = page.with_extension("");
    std::fs::create_dir_all(&folder)?;
    let mut text = format!(
        "# Growth\n\n`cargo bench --bench figures -- --growth docs/research/growth.md` writes this page and its plots; do not edit. \
         Both axes of each plot are logarithmic: a straight line that rises by one decade per decade is linear growth.\n\n\
         Profile `{}`. Machine: {} processors, {} MiB, Linux {}.\n",
        machine.profile, machine.cores, machine.memory_mib, machine.kernel
    );
    macro_rules! curve {
        ($measure:expr) => {{
            let curve = $measure.await?;
            println!("{}", curve.section());
            curve.draw(&folder)?;
            text += &curve.section();
        }};
    }
    curve!(deliveries(run, if full { &[1_000, 10_000, 100_000, 600_000] } else { &[50, 100] }));
    curve!(loops(run, if full { &[100, 1_000, 10_000] } else { &[20, 40] }));
    curve!(repositories(run, if full { &[10, 100, 1_000] } else { &[2, 4] }));
    curve!(iterations(run, if full { &[10, 40, 160] } else { &[2, 4] }));
    curve!(files(run, if full { &[1_000, 10_000, 100_000] } else { &[50, 100] }));
    curve!(diffs(run, if full { &[100, 1_000, 10_000, 100_000] } else { &[50, 100] }));
    curve!(learnings(run, if full { &[1_000, 10_000, 100_000] } else { &[50, 100] }));
    curve!(rows(run, if full { &[100, 1_000, 10_000] } else { &[20, 40] }));
    std::fs::write(page, text).with_context(|| format!("{} cannot be written", page.display()))
}

/// Stored deliveries.
async fn deliveries(run: &FigureRun, sizes: &[u64]) -> anyhow::Result<Curve> {
    let mut points = Vec::new();
    for &size in sizes {
        let folder = run.folder()?;
        let parked = Parked::prepare(&folder, 0, size).await?;
        drop(restart::start(&folder, &parked).await?);
        let mut times = Vec::new();
        for _ in 0..3 {
            times.push(restart::start(&folder, &parked).await?.1);
        }
        points.push(Point { size, cost: millis(median(times)), baseline: None });
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(Curve {
        name: "deliveries",
        title: "Stored deliveries",
        about: "Time from the start of the process to the answer to the first delivery, after a SIGKILL, with so many \
            deliveries that wait to be processed; median of three.",
        things: "deliveries",
        unit: "ms",
        points,
    })
}

/// Paused loops.
async fn loops(run: &FigureRun, sizes: &[u64]) -> anyhow::Result<Curve> {
    let idle = async |folder: &Path, parked: &Parked, time: u64| {
        let service = BenchService::start(folder, &parked.seat, "all", &[])?;
        memory::largest(&service, Duration::from_secs(time)).await
    };
    let folder = run.folder()?;
    let nothing = idle(&folder, &Parked::prepare(&folder, 0, 0).await?, 5).await?;
    let mut points = Vec::new();
    for &size in sizes {
        let folder = run.folder()?;
        let parked = Parked::prepare(&folder, size, 0).await?;
        let used = idle(&folder, &parked, 20).await?;
        let more = used.saturating_sub(nothing).max(1) as f64 / 1024.0;
        points.push(Point { size, cost: more, baseline: None });
    }
    Ok(Curve {
        name: "loops",
        title: "Paused loops",
        about: "Memory of the service in addition to an idle service, while it reconciles with a forge that has the issue \
            of every loop.",
        things: "loops",
        unit: "MiB",
        points,
    })
}

/// Watched repositories.
async fn repositories(run: &FigureRun, sizes: &[u64]) -> anyhow::Result<Curve> {
    let mut points = Vec::new();
    for &size in sizes {
        let world = BenchWorld::watching(run.folder()?, size).await?;
        // The first round that sees a repository asks more about it.
        let seen = world.next_round(world.quiet().await?).await?;
        let again = world.next_round(seen).await?;
        points.push(Point { size, cost: (again - seen) as f64 * ROUNDS_PER_HOUR, baseline: None });
        world.app.stop().await;
    }
    Ok(Curve {
        name: "repositories",
        title: "Watched repositories",
        about: "Requests to a Gitea in an hour, while nothing happens there: a reconciliation of all watched repositories is \
            counted, which takes place every 15 minutes.",
        things: "repositories",
        unit: "requests per hour",
        points,
    })
}

/// Iterations of one loop.
async fn iterations(run: &FigureRun, sizes: &[u64]) -> anyhow::Result<Curve> {
    let most = sizes.iter().copied().max().unwrap_or(1);
    let MeasuredLoop { own, .. } = iteration::measure(run.folder()?, 100, most as usize, 0).await?;
    let about = |size: u64| {
        let end = size as usize;
        median(own[end.saturating_sub(end.min(10))..end].to_vec())
    };
    let points = sizes.iter().map(|&size| Point { size, cost: millis(about(size)), baseline: None }).collect();
    Ok(Curve {
        name: "iterations",
        title: "Iterations of a loop",
        about: "Time of the service in an iteration of one loop, without agent, checks and forge, by the number of \
            iterations so far: median of the ten before it, in a repository of 100 files.",
        things: "iterations",
        unit: "ms",
        points,
    })
}

/// Files of the tree.
async fn files(run: &FigureRun, sizes: &[u64]) -> anyhow::Result<Curve> {
    let mut points = Vec::new();
    for &size in sizes {
        let MeasuredLoop { own, plain } = iteration::measure(run.folder()?, size as usize, 8, 0).await?;
        points.push(Point { size, cost: millis(median(own)), baseline: Some(millis(median(plain))) });
    }
    Ok(Curve {
        name: "files",
        title: "Files of a repository",
        about: "Time of the service in an iteration, without agent, checks and forge; median of eight. The baseline, in gray, \
            is `git status`, `git add --all` and `git commit` of the same change in a plain clone.",
        things: "files",
        unit: "ms",
        points,
    })
}

/// Lines of a change.
async fn diffs(run: &FigureRun, sizes: &[u64]) -> anyhow::Result<Curve> {
    let mut points = Vec::new();
    for &size in sizes {
        let MeasuredLoop { own, .. } = iteration::measure(run.folder()?, 100, 4, size as usize).await?;
        points.push(Point { size, cost: millis(median(own)), baseline: None });
    }
    Ok(Curve {
        name: "diffs",
        title: "Size of a change",
        about: "Time of the service in an iteration whose agent adds a file of so many lines, without agent, checks and \
            forge; median of four, in a repository of 100 files.",
        things: "lines",
        unit: "ms",
        points,
    })
}

/// Learnings of one repository.
async fn learnings(run: &FigureRun, sizes: &[u64]) -> anyhow::Result<Curve> {
    let mut corpus = Corpus::made(7);
    let store = Store::open(&run.folder()?.join("ralph.db"))?;
    let (mut points, mut held) = (Vec::new(), 0);
    for &size in sizes {
        recall::fill(&store, &mut corpus, size as usize - held).await?;
        held = size as usize;
        let mut times = Vec::new();
        for _ in 0..200 {
            times.push(recall::timed(&store, &corpus.query()).await?);
        }
        points.push(Point { size, cost: millis(percentile(&mut times, 99)), baseline: None });
    }
    store.close().await;
    Ok(Curve {
        name: "learnings",
        title: "Learnings",
        about: "Time of looking up the learnings of a prompt in a repository with so many of them; 99th of 100 queries.",
        things: "learnings",
        unit: "ms",
        points,
    })
}

/// Loops that the dashboard lists.
async fn rows(run: &FigureRun, sizes: &[u64]) -> anyhow::Result<Curve> {
    const ITERATIONS: u32 = 20;
    let mut points = Vec::new();
    for &size in sizes {
        let folder = run.folder()?;
        std::fs::create_dir_all(data(&folder))?;
        let store = Store::open(&data(&folder).join("ralph.db"))?;
        many_loops::fill(&store, &mut Corpus::made(23), size as usize, ITERATIONS).await?;
        store.close().await;
        let service = BenchService::start(&folder, &Seat::nobody(), "ingest", &[])?;
        let mut times = Vec::new();
        let client = pages::client()?;
        for _ in 0..100 {
            times.push(pages::ask(&client, &service, "/").await?.0);
        }
        points.push(Point { size, cost: millis(percentile(&mut times, 99)), baseline: None });
    }
    Ok(Curve {
        name: "rows",
        title: "Rows of the dashboard",
        about: "Time of the first page of the dashboard, to its last byte, with so many loops of 20 iterations in the \
            database; 99th of 100 requests.",
        things: "loops",
        unit: "ms",
        points,
    })
}
