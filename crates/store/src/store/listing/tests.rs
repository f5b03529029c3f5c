//! Tests of list rows: filters, pages, searches, and rows for an earlier version's loops.

use super::*;
use crate::domain::loops::{LoopStart, LoopTask, RunOptions, TaskText};
use crate::domain::model::ids::IssueRef;
use crate::domain::trust::policy::Policy;
use crate::store::costs::{self, CostGroup};
use crate::store::sql::params;
use crate::store::tests::databases;
use crate::store::{Store, loops};

pub(in crate::store) fn repo(id: i64, name: &str) -> RepoRef {
    RepoRef { forge: ForgeName::new("gh"), id: RepoId(id), owner: "acme".into(), name: name.into() }
}

pub(in crate::store) fn start(repo: RepoRef, issue: u64, title: &str, by: &str) -> LoopStart {
    LoopStart {
        request: String::new(),
        existing: None,
        id: LoopId::from_parts(Number(issue), issue as u32),
        place: IssueRef { repo, issue: Number(issue) },
        by: User { id: UserId(by.len() as i64), login: by.into(), kind: AccountKind::User },
        task: LoopTask {
            text: TaskText::new(title, "Body", None),
            url: format!("https://git.example.org/{issue}"),
            hash: "0".repeat(64),
            author: None,
            author_trusted: true,
            unconfirmed_editor: None,
            edited_after: false,
            labels: Vec::new(),
        },
        options: RunOptions { checks: vec!["make test".into()], ..RunOptions::default() },
        policy: Policy::default(),
        plan: None,
        comment: None,
        hidden_removed: 0,
        round: 1,
    }
}

fn database() -> Connection {
    let c = databases::database();
    fill(&c).expect("filled");
    let sample = [
        (repo(1, "app"), 1, "Mend the importer", "alice"),
        (repo(1, "app"), 2, "Add a cache", "bob"),
        (repo(2, "site"), 3, "Mend the footer", "alice"),
        (repo(2, "site"), 4, "Importers need tests", "carol"),
    ];
    for (repo, issue, title, by) in sample {
        let begun = loops::begin(&c, start(repo, issue, title, by), &format!("o{issue}"), Timestamp(issue as i64));
        assert!(begun.expect("begun"));
    }
    c
}

fn issues(c: &Connection, filter: &LoopFilter) -> Vec<u64> {
    let mut found = page(c, filter, None, 100).expect("a page");
    assert_eq!(found.next.take(), None);
    found.rows.iter().map(|row| row.issue.0).collect()
}

fn all() -> LoopFilter {
    LoopFilter::of(RepoScope::All)
}

#[test]
fn filters_narrow_the_list() {
    let c = database();
    let only = |repos: &[i64]| RepoScope::Only(repos.iter().map(|id| (ForgeName::new("gh"), RepoId(*id))).collect());
    let cases = [
        (all(), vec![4, 3, 2, 1]),
        (LoopFilter::of(only(&[2])), vec![4, 3]),
        (LoopFilter::of(only(&[])), vec![]),
        (LoopFilter::of(only(&[1, 2, 9])), vec![4, 3, 2, 1]),
        (LoopFilter { forge: Some("gh".into()), ..all() }, vec![4, 3, 2, 1]),
        (LoopFilter { forge: Some("other".into()), ..all() }, vec![]),
        (LoopFilter { repository: Some(("ACME".into(), "App".into())), ..all() }, vec![2, 1]),
        (LoopFilter { person: Some("Alice".into()), ..all() }, vec![3, 1]),
        (LoopFilter { states: vec![LoopState::Queued], ..all() }, vec![4, 3, 2, 1]),
        (LoopFilter { states: vec![LoopState::Running, LoopState::Merged], ..all() }, vec![]),
        (LoopFilter { open: Some(true), ..all() }, vec![4, 3, 2, 1]),
        (LoopFilter { open: Some(false), ..all() }, vec![]),
        (LoopFilter { waits: Some(true), ..all() }, vec![]),
        (LoopFilter { waits: Some(false), person: Some("bob".into()), ..all() }, vec![2]),
        (LoopFilter { text: Some("mend".into()), ..all() }, vec![3, 1]),
        (LoopFilter { text: Some("import".into()), ..all() }, vec![4, 1]),
        (LoopFilter { text: Some("mend footer".into()), ..all() }, vec![3]),
        (LoopFilter { text: Some("mend \"OR) NEAR(".into()), scope: only(&[1]), ..all() }, vec![1]),
        (LoopFilter { text: Some("  ".into()), ..all() }, vec![4, 3, 2, 1]),
    ];
    for (filter, expected) in cases {
        assert_eq!(issues(&c, &filter), expected, "{filter:?}");
    }
    assert_eq!(counts(&c, &all()).expect("counts"), [(LoopState::Queued, 4)]);
    assert_eq!(counts(&c, &LoopFilter::of(only(&[2]))).expect("counts"), [(LoopState::Queued, 2)]);
    let names: Vec<String> = repositories(&c).expect("read").iter().map(RepoRef::full_name).collect();
    assert_eq!(names, ["acme/app", "acme/site"]);
}

#[test]
fn new_loops_do_not_shift_the_next_page() {
    let c = database();
    let first = page(&c, &all(), None, 2).expect("a page");
    assert_eq!(first.rows.iter().map(|row| row.issue.0).collect::<Vec<_>>(), [4, 3]);
    loops::begin(&c, start(repo(1, "app"), 5, "Later", "dora"), "o5", Timestamp(5)).expect("begun");
    let second = page(&c, &all(), first.next, 2).expect("a page");
    assert_eq!(second.rows.iter().map(|row| row.issue.0).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(second.next, None, "the last page says so");
    let searched = LoopFilter { text: Some("mend".into()), ..all() };
    let first = page(&c, &searched, None, 1).expect("a page");
    let second = page(&c, &searched, first.next, 1).expect("a page");
    assert_eq!((first.rows[0].issue.0, second.rows[0].issue.0, second.next), (3, 1, None));
}

#[test]
fn listing_row_is_updated_by_each_save_of_its_loop() {
    let c = database();
    let id = LoopId::from_parts(Number(2), 2);
    let before = row(&c, &id).expect("read").expect("a row");
    let current = loops::get(&c, &id).expect("read").expect("a loop");
    assert_eq!(before, LoopRow { person: before.person.clone(), ..LoopRow::of(&current) });
    assert_eq!((before.person.login.as_str(), before.state), ("bob", LoopState::Queued));
    let mut next = current;
    next.state = LoopState::Paused;
    next.why = "Waits for zebras.".into();
    next.updated_at = Timestamp(99);
    save(&c, &LoopRow::of(&next)).expect("saved");
    let after = row(&c, &id).expect("read").expect("a row");
    assert_eq!((after.state, after.waits, after.updated_at), (LoopState::Paused, true, Timestamp(99)));
    assert_eq!(issues(&c, &LoopFilter { text: Some("zebras".into()), ..all() }), [2]);
    assert_eq!(issues(&c, &LoopFilter { waits: Some(true), ..all() }), [2]);
    next.why = "Goes on.".into();
    save(&c, &LoopRow::of(&next)).expect("saved");
    assert_eq!(issues(&c, &LoopFilter { text: Some("zebras".into()), ..all() }), [0; 0], "old words are gone");
    let words: i64 = c.query_row("SELECT count(*) FROM loop_summaries_words", [], |row| row.get(0)).expect("counted");
    assert_eq!(words, 4, "one row of words a loop");
}

#[test]
fn rows_are_made_for_loops_of_an_earlier_version() {
    let c = database();
    let expected = page(&c, &all(), None, 10).expect("a page").rows;
    let call = "INSERT INTO calls (key, loop_id, forge, repo_id, iteration, role, purpose, backend, call, day, started_at, ended_at,
            reserved, cost, tokens_in, tokens_out)
        VALUES (?1, ?2, 'gh', 1, 1, 'agent', 'agent', 'mine', '{}', ?3, 0, ?4, 0, ?5, 10, 5)";
    let of_bob = LoopId::from_parts(Number(2), 2);
    for (key, day, ended, cost) in [("a", 10, Some(1), 200), ("b", 10, Some(1), 300), ("c", 11, None, 900)] {
        c.execute(call, params![key, of_bob.as_str(), day, ended, cost]).expect("stored");
    }
    c.execute_batch(
        "DELETE FROM loop_summaries; DELETE FROM loop_summaries_words; DELETE FROM meta WHERE key = 'read_model';
         INSERT INTO loops (id, forge, repo_id, issue, state, open, data, version, created_at, updated_at)
         VALUES ('r-9-zzzzzz', 'gh', 1, 9, 'failed', 1, 'damaged', 1, 9, 9)",
    )
    .expect("as before");
    fill(&c).expect("filled");
    fill(&c).expect("once");
    let found = page(&c, &all(), None, 10).expect("a page").rows;
    assert_eq!(found[1..], expected);
    assert_eq!((found[0].id.as_str(), found[0].reason.as_str()), ("r-9-zzzzzz", "Its stored data cannot be read."));
    assert_eq!(issues(&c, &LoopFilter { text: Some("footer".into()), ..all() }), [3]);
    let days = costs::daily(&c, &RepoScope::All, CostGroup::Person, 0, 20).expect("costs");
    let told: Vec<_> = days.iter().map(|day| (day.day, day.of.as_str(), day.calls, day.cost.0)).collect();
    assert_eq!(told, [(10, "bob", 2, 500)], "a call under way has no cost yet");
}

#[test]
fn costs_are_summed_by_repository_backend_and_person() {
    let c = database();
    let call = "INSERT INTO calls (key, loop_id, forge, repo_id, iteration, role, purpose, backend, call, day, started_at, ended_at,
            reserved, cost, tokens_in, tokens_out, cache_read)
        VALUES (?1, ?2, 'gh', ?3, 1, 'agent', 'agent', ?4, '{}', ?5, 0, 1, 0, ?6, 10, 5, 100)";
    let calls = [
        ("a", 1, 1, "fast", 10, 100),
        ("b", 2, 1, "slow", 10, 900),
        ("c", 3, 2, "fast", 10, 400),
        ("d", 3, 2, "fast", 11, 50),
        ("e", 77, 3, "fast", 9, 7),
    ];
    for (key, issue, repo, backend, day, cost) in calls {
        let id = LoopId::from_parts(Number(issue), issue as u32);
        c.execute(call, params![key, id.as_str(), repo, backend, day, cost]).expect("stored");
        costs::add(&c, key).expect("added");
    }
    let sums = |scope: &RepoScope, by: CostGroup, from: i64, to: i64| -> Vec<(i64, String, u64, i64)> {
        let days = costs::daily(&c, scope, by, from, to).expect("costs");
        assert!(days.iter().all(|day| day.tokens_in == 110 * day.calls && day.tokens_out == 5 * day.calls));
        days.into_iter().map(|day| (day.day, day.of, day.calls, day.cost.0)).collect()
    };
    let row = |day: i64, of: &str, calls: u64, cost: i64| (day, of.to_owned(), calls, cost);
    let expected = [
        row(11, "gh:acme/site", 1, 50),
        row(10, "gh:acme/app", 2, 1000),
        row(10, "gh:acme/site", 1, 400),
        row(9, "gh:3", 1, 7),
    ];
    assert_eq!(sums(&RepoScope::All, CostGroup::Repository, 0, 20), expected);
    assert_eq!(sums(&RepoScope::All, CostGroup::Repository, 10, 10), expected[1..3]);
    let expected = [row(11, "fast", 1, 50), row(10, "slow", 1, 900), row(10, "fast", 2, 500), row(9, "fast", 1, 7)];
    assert_eq!(sums(&RepoScope::All, CostGroup::Backend, 0, 20), expected);
    let site = RepoScope::Only(vec![(ForgeName::new("gh"), RepoId(2))]);
    assert_eq!(sums(&site, CostGroup::Person, 0, 20), [row(11, "alice", 1, 50), row(10, "alice", 1, 400)]);
    assert!(sums(&RepoScope::Only(Vec::new()), CostGroup::Person, 0, 20).is_empty());
}

#[tokio::test]
async fn new_database_needs_no_backfill() {
    let store = Store::in_memory().expect("opened");
    let filled = store.read(|c| installation::get(c, FILLED)).await.expect("read");
    assert_eq!(filled.as_deref(), Some("1"));
}
