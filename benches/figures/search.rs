//! Cost of the dashboard's lists and of the search over all loops.

use std::time::Duration;

use anyhow::Context;
use ralph_bot::clock::Stopwatch;
use ralph_bot::domain::knowledge::session::{EventKind, SessionEvent, SessionTurn, TurnRole};
use ralph_bot::domain::loops::{LoopStart, LoopState, LoopTask, RunOptions};
use ralph_bot::domain::model::ids::{
    AccountKind, ForgeName, IssueRef, LoopId, Money, Number, RepoId, RepoRef, Timestamp, User, UserId,
};
use ralph_bot::domain::trust::policy::Policy;
use ralph_bot::store::costs::{CostGroup, daily};
use ralph_bot::store::listing::{LoopFilter, RepoScope, page};
use ralph_bot::store::session::{NewEvent, NewTurn, TextPosition, TextQuery, add_events, add_turn, search_texts};
use ralph_bot::store::{Store, loops};

use crate::corpus::Corpus;
use crate::report::{FigureTarget, Row};
use crate::{FigureRun, Size};

/// Description of the measurement, for the page.
pub const DESCRIPTION: &str = "\
    Loops of 20 repositories, each iteration with a turn of 60 words and a check's event of 20, whose frequencies follow \
    Zipf's law. Queries are one to three words of the same distribution, so that some are in nearly every text and some in \
    none; half of them are by a person who may see two of the repositories. The figure is the 99th of 100 searches, each made \
    once, from the call to the results with their snippets. Baseline: ranking all matches of the same words with bm25. A page \
    of the list has 50 loops, filtered by state, repository and words.";

const NAME: &str = "search";
/// Number of loops per transaction while a store is filled.
const BATCH: usize = 20;
/// Number of repositories.
const REPOSITORIES: usize = 20;

/// Measures all rows.
pub async fn run(run: &mut FigureRun) -> anyhow::Result<()> {
    let sizes: &[(usize, u32)] = match run.size {
        Size::Brief => &[(20, 5)],
        Size::Usual => &[(1_000, 100)],
        Size::Full => &[(1_000, 100), (10_000, 100)],
    };
    for (count, iterations) in sizes.iter().copied() {
        let mut corpus = Corpus::made(23);
        let folder = run.folder()?;
        let store = Store::open(&folder.join("ralph.db"))?;
        fill(&store, &mut corpus, count, iterations).await?;
        let what = format!("{count} loops of {iterations} iterations");
        let mut times = Vec::new();
        let mut ranked = Vec::new();
        for nth in 0..300 {
            let text = (0..1 + nth % 3).map(|_| corpus.text(1)).collect::<Vec<_>>().join(" ");
            let scope = if nth % 2 == 0 { RepoScope::All } else { few() };
            let query = TextQuery {
                text: text.clone(),
                titles: scope.clone(),
                texts: scope,
                of: None,
                before: TextPosition::default(),
                limit: 20,
            };
            let watch = Stopwatch::start();
            store.read(move |c| search_texts(c, &query, &str::to_owned)).await?;
            times.push(watch.elapsed());
            if nth < 20 {
                ranked.push(rank_all(&store, &text).await?);
            }
        }
        let row =
            Row::new(NAME, format!("search over {what}, 99th percentile"), millis(percentile(&mut times, 99)), "ms");
        let row = row.beside("ranking all matches, median", millis(percentile(&mut ranked, 50)));
        run.add(row.target(FigureTarget::Below(100.0)));
        run.add(Row::new(NAME, format!("search over {what}, median"), millis(percentile(&mut times, 50)), "ms"));
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
        let row =
            Row::new(NAME, format!("a page of {what}, 99th percentile"), millis(percentile(&mut lists, 99)), "ms");
        run.add(row.beside("reading 50 whole loops", millis(whole)).target(FigureTarget::Below(20.0)));
        let watch = Stopwatch::start();
        store.read(|c| daily(c, &RepoScope::All, CostGroup::Repository, 0, 100_000)).await?;
        run.add(Row::new(NAME, format!("costs over days of {what}"), millis(watch.elapsed()), "ms"));
        store.close().await;
    }
    Ok(())
}

/// Returns two of the repositories.
fn few() -> RepoScope {
    RepoScope::Only(vec![(ForgeName::new("forge"), RepoId(3)), (ForgeName::new("forge"), RepoId(11))])
}

async fn fill(store: &Store, corpus: &mut Corpus, count: usize, iterations: u32) -> anyhow::Result<()> {
    for first in (0..count).step_by(BATCH) {
        let batch: Vec<_> = (first..count.min(first + BATCH)).map(|nth| made(corpus, nth, iterations)).collect();
        let stored = store.write(move |c| {
            for (start, turns, events) in batch {
                let id = start.id.clone();
                let now = Timestamp(1_790_000_000_000 + start.place.issue.0 as i64);
                loops::begin(c, start, &format!("figures/{id}"), now)?;
                for turn in &turns {
                    add_turn(c, &id, turn)?;
                }
                add_events(c, &id, &events)?;
            }
            Ok(())
        });
        stored.await.context("filling the store")?;
    }
    Ok(())
}

fn made(corpus: &mut Corpus, nth: usize, iterations: u32) -> (LoopStart, Vec<NewTurn>, Vec<NewEvent>) {
    let number = nth as u64 + 1;
    let repo = nth % REPOSITORIES;
    let by = User { id: UserId(nth as i64 % 7), login: format!("person{}", nth % 7), kind: AccountKind::User };
    let repo = RepoRef {
        forge: ForgeName::new("forge"),
        id: RepoId(repo as i64),
        owner: "acme".into(),
        name: format!("app{repo}"),
    };
    let start = LoopStart {
        id: LoopId::from_parts(Number(number), nth as u32),
        place: IssueRef { repo, issue: Number(number) },
        by,
        task: LoopTask {
            title: corpus.text(6),
            body: corpus.text(60),
            url: format!("https://git.example.org/acme/issues/{number}"),
            hash: "0".repeat(64),
            author: None,
            author_trusted: true,
            unconfirmed_editor: None,
            edited_after: false,
            labels: Vec::new(),
            unseen: Default::default(),
        },
        options: RunOptions::default(),
        policy: Policy::default(),
        plan: None,
        comment: None,
        hidden_removed: 0,
        round: 1,
    };
    let at = |iteration: u32| Timestamp(1_790_000_000_000 + i64::from(iteration) * 1_000);
    let turns = (1..=iterations).map(|iteration| {
        NewTurn::pack(SessionTurn {
            iteration,
            attempt: 1,
            role: TurnRole::Agent,
            prompt: corpus.text(30),
            response: corpus.text(30),
            backend: "mine".into(),
            model: None,
            tokens_in: 1,
            tokens_out: 1,
            tokens_cached: 0,
            cost: Money(1),
            estimated: false,
            error: None,
            learnings: Vec::new(),
            started: at(iteration),
            ended: at(iteration),
        })
    });
    let turns = turns.collect();
    let events = (1..=iterations).map(|iteration| {
        NewEvent::pack(SessionEvent {
            iteration,
            kind: EventKind::Check,
            tool: Some("tests".into()),
            path: None,
            text: corpus.text(20),
            failed: true,
            at: at(iteration),
        })
    });
    (start, turns, events.collect())
}

/// Measures ranking all matches of all words of a text.
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

fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
