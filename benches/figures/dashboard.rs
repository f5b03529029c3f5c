//! Cost of the dashboard: pages, live listeners, lists, and the search over all loops.

use std::time::Duration;

use ralph_bot::clock::Stopwatch;
use ralph_bot::domain::loops::LoopState;
use ralph_bot::domain::model::ids::{ForgeName, RepoId};
use ralph_bot::store::costs::{CostGroup, daily};
use ralph_bot::store::listing::{LoopFilter, RepoScope, page};
use ralph_bot::store::session::{TextQuery, search_texts};
use ralph_bot::store::{Store, loops};

use crate::corpus::Corpus;
use crate::many_loops::{self, REPOSITORIES};
use crate::report::{FigureRow, FigureTarget};
use crate::service::data;
use crate::{FigureRun, Size, pages};

/// Description of the measurement, for the page.
pub const DESCRIPTION: &str = "\
    The database has loops of 20 repositories over 60 days with words by Zipf's law. Search: 300 queries of one to \
    three words, half of them by a person with access to two repositories; the baseline ranks all matches with \
    bm25. Pages: `serve --role ingest` sends each page 200 times over one connection, measured to the last byte; \
    the baseline is `/healthz`. Listeners: connections to `/events`, each with every step of a loop; the figure is \
    processor time over 20 s in percent of one processor. Deliveries: the load of `ingest`, alternately without \
    and with the listeners.";

const NAME: &str = "dashboard";

/// Measures all rows.
pub async fn run(run: &mut FigureRun) -> anyhow::Result<()> {
    let sizes: &[(usize, u32)] = match run.size {
        Size::Brief => &[(40, 5)],
        Size::Usual => &[(1_000, 100)],
        Size::Full => &[(10_000, 100)],
    };
    for (count, iterations) in sizes.iter().copied() {
        let mut corpus = Corpus::made(23);
        let folder = run.folder()?;
        std::fs::create_dir_all(data(&folder))?;
        let file = data(&folder).join("ralph.db");
        let store = Store::open(&file)?;
        let watch = Stopwatch::start();
        many_loops::fill(&store, &mut corpus, count, iterations).await?;
        let what = format!("{count} loops of {iterations} iterations");
        println!("{what} were made in {:.0} s: {} MiB", watch.elapsed().as_secs_f64(), file.metadata()?.len() >> 20);
        let mut times = Vec::new();
        let mut ranked = Vec::new();
        for nth in 0..300 {
            let text = (0..1 + nth % 3).map(|_| corpus.text(1)).collect::<Vec<_>>().join(" ");
            let scope = if nth % 2 == 0 { RepoScope::All } else { few() };
            let query = TextQuery::of(text.clone(), scope.clone(), scope, 20);
            let watch = Stopwatch::start();
            store.read(move |c| search_texts(c, &query, &str::to_owned)).await?;
            times.push(watch.elapsed());
            if nth < 20 {
                ranked.push(rank_all(&store, &text).await?);
            }
        }
        let row = FigureRow::new(
            NAME,
            format!("search over {what}, 99th percentile"),
            millis(percentile(&mut times, 99)),
            "ms",
        );
        let row = row.beside("ranking all matches, median", millis(percentile(&mut ranked, 50)));
        run.add(row.target(FigureTarget::Below(100.0)));
        run.add(FigureRow::new(NAME, format!("search over {what}, median"), millis(percentile(&mut times, 50)), "ms"));
        let mut lists = Vec::new();
        for nth in 0..100 {
            let filter = LoopFilter {
                open: (nth % 2 == 0).then_some(true),
                states: if nth % 3 == 0 { vec![LoopState::Queued] } else { Vec::new() },
                text: (nth % 5 == 0).then(|| corpus.text(1)),
                ..LoopFilter::of(if nth % 4 == 0 { few() } else { RepoScope::All })
            };
            let watch = Stopwatch::start();
            store.read(move |c| page(c, &filter, None, 50)).await?;
            lists.push(watch.elapsed());
        }
        let whole = Stopwatch::start();
        store.read(|c| loops::list(c, false, 50)).await?;
        let whole = whole.elapsed();
        let row = FigureRow::new(
            NAME,
            format!("a page of {what}, 99th percentile"),
            millis(percentile(&mut lists, 99)),
            "ms",
        );
        run.add(row.beside("reading 50 whole loops", millis(whole)).target(FigureTarget::Below(20.0)));
        let watch = Stopwatch::start();
        store.read(|c| daily(c, &RepoScope::All, CostGroup::Repository, 0, 100_000)).await?;
        run.add(FigureRow::new(NAME, format!("costs over days of {what}"), millis(watch.elapsed()), "ms"));
        store.close().await;
        pages::measure(run, &folder, &mut corpus, (count, iterations)).await?;
    }
    Ok(())
}

/// Returns two of the repositories.
fn few() -> RepoScope {
    RepoScope::Only(vec![
        (ForgeName::new("forge"), RepoId(3)),
        (ForgeName::new("forge"), RepoId(REPOSITORIES as i64 - 9)),
    ])
}

/// Measures the ranking of all matches of all words in a text.
async fn rank_all(store: &Store, text: &str) -> anyhow::Result<Duration> {
    let words: Vec<String> = text.split_whitespace().map(|word| format!("\"{word}\"")).collect();
    let asked = words.join(" ");
    let watch = Stopwatch::start();
    let sql = "SELECT rowid FROM session_turns_words WHERE session_turns_words MATCH ?1 ORDER BY rank LIMIT 20";
    let found = store.read(move |c| {
        let mut statement = c.prepare_cached(sql)?;
        Ok(statement.query_map([asked], |row| row.get::<_, i64>(0))?.collect::<Result<Vec<_>, _>>()?)
    });
    found.await?;
    Ok(watch.elapsed())
}

/// Returns a percentile of durations.
pub fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

/// Returns a duration in milliseconds.
pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
