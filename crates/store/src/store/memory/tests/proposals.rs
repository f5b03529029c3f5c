//! Tests of review comments and proposals of conventions on a real database.

use super::*;
use crate::domain::knowledge::memory::{
    MAX_OPEN_PROPOSALS, MAX_REMARKS, PROPOSAL_DAYS, ProposalState, Remark, remembered,
};
use crate::store::memory::proposals::{self, *};

const RULE: &str = "Log the request id in every handler";

async fn remarked(store: &Store, repo: i64, loop_id: &str, text: &str, now: Timestamp) {
    let remark = Remark { loop_id: LoopId::new(loop_id), text: text.into() };
    let kept = store.write(move |c| add_remark(c, &repository(repo), &remark, &MemorySettings::default(), now)).await;
    kept.expect("stored");
}

async fn recurring(store: &Store) {
    for n in 1..=3 {
        remarked(store, 1, &format!("r-{n}"), RULE, NOW).await;
    }
}

async fn known(store: &Store) -> Vec<(u64, ProposalState, u32)> {
    let all = store.read(|c| proposals(c, true)).await.expect("read");
    all.into_iter().map(|one| (one.number, one.state, one.loops)).collect()
}

async fn rows(store: &Store) -> i64 {
    store.read(|c| Ok(c.query_row("SELECT count(*) FROM remarks", [], |row| row.get(0))?)).await.expect("counted")
}

#[tokio::test]
async fn recurring_remark_is_proposed_once_and_is_in_no_prompt() {
    let store = Store::in_memory().expect("opened");
    for (n, expected) in [(1, 0), (1, 0), (2, 0), (3, 1), (4, 1)] {
        remarked(&store, 1, &format!("r-{n}"), RULE, NOW).await;
        assert_eq!(known(&store).await.len(), expected, "{n}");
    }
    assert_eq!(known(&store).await, [(1, ProposalState::Open, 4)]);
    assert_eq!(counted(&store).await, LearningCounts::default());
    assert!(super::told(&store, query(1, RULE), MemorySettings::default()).await.is_empty());
    // Another repository has no such comments.
    remarked(&store, 2, "r-9", RULE, NOW).await;
    assert_eq!(known(&store).await.len(), 1);
}

#[tokio::test]
async fn known_rule_is_not_proposed() {
    let store = Store::in_memory().expect("opened");
    keep(&store, remembered(&repository(1), "Every handler has to log the request id", &LoopId::new("r-0"), NOW)).await;
    recurring(&store).await;
    assert_eq!(known(&store).await, []);
}

#[tokio::test]
async fn proposal_is_published_once_by_one_loop() {
    let store = Store::in_memory().expect("opened");
    recurring(&store).await;
    let reserved = async |id: &'static str| {
        let found = store.write(move |c| reserve_untold(c, &repository(1), &LoopId::new(id), 3)).await.expect("read");
        found.into_iter().map(|one| (one.number, one.loops)).collect::<Vec<_>>()
    };
    // Neither loop is stored, which counts as ended.
    assert_eq!(reserved("r-7").await, [(1, 3)]);
    assert_eq!(reserved("r-7").await, [(1, 3)], "the same loop after a restart");
    assert_eq!(reserved("r-8").await, [(1, 3)], "the other one ended without telling it");
    store.write(|c| proposals::told(c, &[1, 99], NOW)).await.expect("told");
    assert_eq!(reserved("r-8").await, []);
    store.write(|c| answer(c, 1, ProposalState::Rejected, "maja", NOW)).await.expect("answered");
    assert_eq!(reserved("r-9").await, []);
}

#[tokio::test]
async fn remarks_and_proposals_are_bounded() {
    let store = Store::in_memory().expect("opened");
    for n in 0..(MAX_REMARKS + 20) {
        remarked(&store, 1, "r-1", &format!("alpha{n}x beta{n}y gamma{n}z"), NOW).await;
    }
    assert_eq!(rows(&store).await, MAX_REMARKS as i64);
    for n in 0..(MAX_OPEN_PROPOSALS + 3) {
        for id in ["r-1", "r-2", "r-3"] {
            remarked(&store, 2, id, &format!("delta{n}x eta{n}y theta{n}z"), NOW).await;
        }
    }
    assert_eq!(known(&store).await.len(), MAX_OPEN_PROPOSALS);
}

#[tokio::test]
async fn old_remarks_and_unanswered_proposals_are_dropped() {
    let store = Store::in_memory().expect("opened");
    recurring(&store).await;
    let later = NOW.plus_ms((PROPOSAL_DAYS + 1) * 86_400_000);
    assert_eq!(store.write(|c| drop_old_remarks(c, NOW)).await.expect("kept"), 0);
    assert_eq!(store.write(move |c| drop_old_remarks(c, later)).await.expect("dropped"), 4);
    assert_eq!((known(&store).await.len(), rows(&store).await), (0, 0));
}

#[tokio::test]
async fn forgotten_proposal_can_recur() {
    let store = Store::in_memory().expect("opened");
    recurring(&store).await;
    store.write(|c| answer(c, 1, ProposalState::Rejected, "maja", NOW)).await.expect("answered");
    recurring(&store).await;
    assert_eq!(known(&store).await, [(1, ProposalState::Rejected, 3)]);
    assert_eq!(store.write(|c| forget(c, &["p-1".into(), "p-x".into(), "p-9".into()])).await.expect("forgotten"), 1);
    assert_eq!((known(&store).await.len(), rows(&store).await), (0, 0));
    recurring(&store).await;
    assert_eq!(known(&store).await, [(2, ProposalState::Open, 3)], "numbers are not used again");
}
