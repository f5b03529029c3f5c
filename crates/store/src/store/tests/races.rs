//! Tests of concurrent writers. Each test uses two connections to one file, like two processes, and many tasks on both.

use crate::domain::lifecycle::effect::ForgeEffect;
use std::collections::BTreeSet;

use futures::future::join_all;

use super::*;
use crate::domain::loops::{ForgeInput, Loop, LoopInput, LoopStart, LoopTask, TaskText};
use crate::domain::loops::{RunOptions, TimerKind};
use crate::domain::model::ids::{AccountKind, User, UserId};
use crate::domain::trust::policy::Policy;
use crate::store::loops::Slots;
use crate::store::memory::StepMemory;

/// Number of concurrent writers, half of them on each connection.
const WRITERS: usize = 16;

/// Opens the service's own connection, and a second one to the same file.
async fn two() -> (tempfile::TempDir, [Store; 2]) {
    let (folder, path) = file();
    let store = Store::open(&path).expect("opened");
    let beside = Store::attach(&path).expect("attached");
    (folder, [store, beside])
}

fn start(repo: i64, issue: u64, variant: usize) -> LoopStart {
    let mira = User { id: UserId(3), login: "mira".into(), kind: AccountKind::User };
    let place = IssueRef { repo: RepoRef { id: RepoId(repo), ..place().repo }, issue: Number(issue) };
    LoopStart {
        request: String::new(),
        existing: None,
        id: LoopId::from_parts(Number(issue), u32::try_from(variant).expect("small")),
        place,
        by: mira.clone(),
        task: LoopTask {
            hash: String::new(),
            text: TaskText::new("The answer is wrong", "It should be 42.", None),
            url: "http://localhost/".into(),
            author: Some(mira),
            author_trusted: true,
            unconfirmed_editor: None,
            edited_after: false,
            labels: Vec::new(),
        },
        options: RunOptions::default(),
        policy: Policy::default(),
        plan: None,
        comment: None,
        hidden_removed: 0,
        round: 1,
    }
}

async fn begin(store: &Store, start: LoopStart) -> bool {
    let origin = format!("test/{}", start.id);
    store.write(move |c| loops::begin(c, start, &origin, Timestamp(5))).await.expect("asked")
}

/// Runs the pending steps of all loops.
async fn step_all(store: &Store) {
    while store.write(|c| loops::step_next(c, &[], &StepMemory::off(), Timestamp(9))).await.expect("stepped").is_some()
    {
    }
}

/// The test relies on a partial unique index, not on the order of two services. See docs/research/faults.md#inv3.
#[tokio::test(flavor = "multi_thread")]
async fn issue_has_one_open_loop_under_concurrency() {
    let (_folder, stores) = two().await;
    for round in 0..3 {
        let begun = (0..WRITERS).map(|n| begin(&stores[n % 2], start(7, 1, round * WRITERS + n)));
        let begun: Vec<bool> = join_all(begun).await;
        assert_eq!(begun.iter().filter(|new| **new).count(), 1, "round {round}: {begun:?}");
        let open = stores[0].read(|c| loops::open_ids(c, None)).await.expect("read");
        assert_eq!(open.len(), 1);
        // The rejected requests left no log and no effects.
        let logged = stores[1].read(|c| {
            Ok(c.query_row("SELECT count(DISTINCT loop_id) FROM loop_events", [], |row| row.get::<_, i64>(0))?)
        });
        assert_eq!(logged.await.expect("read"), round as i64 + 1);
        // After the loop ends, the issue may have another one.
        let id = open[0].clone();
        stores[0]
            .write(move |c| {
                let ended = LoopInput::Forge(ForgeInput::IssueEnded { how: "closed".into() });
                loops::enqueue_input(c, &id, &format!("end/{id}"), &ended, Timestamp(6))
            })
            .await
            .expect("told");
        step_all(&stores[1]).await;
        assert_eq!(stores[0].read(|c| loops::open_ids(c, None)).await.expect("read"), Vec::<LoopId>::new());
    }
    // The database itself rejects a second open loop, regardless of the code.
    assert!(begin(&stores[0], start(7, 1, 900)).await);
    let twice = stores[1].write(|c| {
        let sql = "INSERT INTO loops (id, forge, repo_id, issue, state, open, data, version, created_at, updated_at)
            SELECT id || 'x', forge, repo_id, issue, state, open, data, version, created_at, updated_at FROM loops WHERE open = 1";
        Ok(c.execute(sql, [])?)
    });
    assert!(matches!(twice.await, Err(StoreError::Duplicate { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn due_timer_is_taken_once() {
    let (_folder, stores) = two().await;
    let count = 40;
    for issue in 1..=count {
        assert!(begin(&stores[0], start(7, issue, 0)).await);
    }
    let ids = stores[0].read(|c| loops::open_ids(c, None)).await.expect("read");
    let all = ids.clone();
    let kind = TimerKind::Deadline.as_str();
    stores[0]
        .write(move |c| {
            c.execute("DELETE FROM timers", [])?;
            all.iter()
                .enumerate()
                .try_for_each(|(n, id)| timers::set(c, id, kind, Timestamp(100 + (n as i64 % 2) * 100)))
        })
        .await
        .expect("set");
    let mut taken = Vec::new();
    for now in [99, 150, 150, 250, 250] {
        let round = (0..WRITERS).map(|n| stores[n % 2].write(move |c| timers::take_due(c, Timestamp(now))));
        for one in join_all(round).await {
            let one = one.expect("asked");
            assert!(one.iter().all(|(_, _, due)| due.0 <= now), "it was not due at {now}");
            taken.extend(one.into_iter().map(|(id, _, _)| id));
        }
    }
    let unique: BTreeSet<&str> = taken.iter().map(LoopId::as_str).collect();
    assert_eq!((taken.len(), unique.len()), (ids.len(), ids.len()), "each of them once");
    assert_eq!(stores[1].read(timers::next_due).await.expect("read"), None);
}

/// The limits of concurrent loops (total, per forge, per repository) are never exceeded, regardless of how many processes
/// grant slots. See docs/research/threats.md#p15.
#[tokio::test(flavor = "multi_thread")]
async fn slots_are_never_granted_twice() {
    const ALL: u32 = 5;
    const FORGE: u32 = 3;
    // Limits from each repository's file; the last file has not been read yet.
    const EACH: [usize; 4] = [2, 2, 2, 1];
    const SLOTS: Slots = Slots { all: ALL, per_forge: FORGE, per_repository: 2 };
    let (_folder, stores) = two().await;
    for repo in 1..=4 {
        for issue in 1..=6 {
            let mut start = start(repo, repo as u64 * 100 + issue, 0);
            start.place.repo.forge = ForgeName::new(if repo == 3 { "g" } else { "f" });
            let place = start.place.repo.clone();
            assert!(begin(&stores[0], start).await);
            if repo < 4 {
                stores[0].write(move |c| loops::set_repository_limit(c, &place, 9)).await.expect("kept");
            }
        }
    }
    step_all(&stores[0]).await;
    let mut ended = 0;
    for round in 0..40 {
        let grants = (0..WRITERS).map(|n| stores[n % 2].write(|c| loops::grant_slots(c, SLOTS, Timestamp(8))));
        let steps = (0..4).map(|n| step_all(&stores[n % 2]));
        let (granted, _) = futures::join!(join_all(grants), join_all(steps));
        let granted: Vec<LoopId> = granted.into_iter().flat_map(|one| one.expect("asked")).collect();
        assert_eq!(granted.iter().map(LoopId::as_str).collect::<BTreeSet<_>>().len(), granted.len(), "round {round}");
        step_all(&stores[0]).await;
        let running = stores[1].read(|c| loops::in_state(c, LoopState::Running)).await.expect("read");
        assert!(running.len() <= ALL as usize, "round {round}: {} run", running.len());
        let full = |of: &Loop| {
            let repo = &of.issue.repo;
            let in_repository = running.iter().filter(|l| l.issue.repo.id == repo.id).count();
            let on_forge = running.iter().filter(|l| l.issue.repo.forge == repo.forge).count();
            let repository_limit = EACH[usize::try_from(repo.id.0).expect("small") - 1];
            assert!(in_repository <= repository_limit, "round {round}: {in_repository} run in one repository");
            assert!(on_forge <= FORGE as usize, "round {round}: {on_forge} run on one forge");
            in_repository == repository_limit || on_forge == FORGE as usize
        };
        for one in &running {
            full(one);
        }
        // No loop waits while a slot is free.
        let queued = stores[1].read(|c| loops::in_state(c, LoopState::Queued)).await.expect("read");
        if running.len() < ALL as usize {
            for waiting in &queued {
                assert!(full(waiting), "round {round}: {} waits for nothing", waiting.id);
            }
        }
        let Some(one) = running.into_iter().next() else { break };
        let told_at = stores[round % 2].write(move |c| {
            let closed = LoopInput::Forge(ForgeInput::IssueEnded { how: "closed".into() });
            loops::enqueue_input(c, &one.id, &format!("end/{}", one.id), &closed, Timestamp(9))
        });
        assert!(told_at.await.expect("told"));
        step_all(&stores[1]).await;
        ended += 1;
    }
    assert_eq!(ended, 24, "every loop had its turn");
}

#[tokio::test(flavor = "multi_thread")]
async fn effect_is_claimed_by_one_owner() {
    let (_folder, stores) = two().await;
    for subject in 0..10 {
        for effect in [status(), Effect::Forge(ForgeEffect::StateLabel { state: Some(LoopState::Queued) })] {
            let subject = format!("s{subject}");
            let pushed =
                stores[0].write(move |c| outbox::enqueue(c, &subject, None, &place(), &effect, Timestamp(1))).await;
            pushed.expect("pushed");
        }
    }
    let mut done = BTreeSet::new();
    while done.len() < 20 {
        let claims = (0..WRITERS * 2).map(|n| {
            let (owner, store) = (format!("owner-{n}"), &stores[n % 2]);
            async move {
                let name = owner.clone();
                let take = move |c: &_| {
                    outbox::claim(c, "talk", |_, _| true, &Claimant::without_host(&name), Timestamp(10), 1_000)
                };
                let claimed = store.write(take).await;
                claimed.expect("asked").map(|claimed| (owner, claimed))
            }
        });
        let claimed: Vec<(String, ClaimedEffect)> = join_all(claims).await.into_iter().flatten().collect();
        let subjects: BTreeSet<&str> = claimed.iter().map(|(_, one)| one.subject.as_str()).collect();
        assert_eq!(subjects.len(), claimed.len(), "one at a time a loop");
        assert!(!claimed.is_empty(), "nobody got anything");
        for (owner, one) in claimed {
            assert!(done.insert(one.id), "{} was done twice", one.key);
            let finished =
                stores[1].write(move |c| outbox::finish(c, &one, &owner, EffectOutcome::Done, "", Timestamp(11))).await;
            finished.expect("its lease was held");
        }
    }
}
