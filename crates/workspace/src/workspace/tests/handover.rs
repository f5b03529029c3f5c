//! Tests of a loop that continues on another host, which has only the forge and the saved commits.

use super::*;
use crate::domain::model::saved_commits::SavedCommits;

impl WorkspaceWorld {
    /// Packs the commits of the loop that are not in `have`.
    pub(super) async fn saved(&self, have: &[&Sha]) -> SavedCommits {
        let refs = self.workspaces.loop_refs(&self.loop_id, &self.repo).await.unwrap();
        self.workspaces.pack_commits(&self.loop_id, &self.repo, refs, have).await.unwrap()
    }

    /// Moves to a host with an empty data folder.
    pub(super) fn move_to(&mut self, host: &str) {
        let settings = settings(&self.path(host), 1);
        self.workspaces = Workspaces::open(settings, Clock::manual(Timestamp(1_700_000_000_000))).unwrap();
    }
}

#[tokio::test]
async fn unpushed_commits_arrive_on_another_host() {
    for partial in [false, true] {
        let mut world = WorkspaceWorld::new();
        world.human("main", "seq 3000 >large; echo other >unchanged");
        let info = world.workspaces.prepare(PrepareTree { partial, ..world.request() }).await.unwrap();
        sh(&info.dir, "echo changed >>large; echo 1 >a");
        let first = world.commit(&info.head).await.commit.unwrap();
        assert_eq!(world.push(&first, None).await, PushOutcome::Pushed);
        sh(&info.dir, "sed -i s/^7$/seven/ large; echo 2 >a");
        let second = world.commit(&first).await.commit.unwrap();
        sh(&info.dir, "echo undone >a");
        let kept = world.workspaces.keep(&world.loop_id, &world.repo, &second).await.unwrap();
        let saved = world.saved(&[&info.head, &first]).await;
        let size = saved.pack.as_ref().unwrap().len();
        assert!(size < 2_000, "the pack of a small change has {size} bytes");

        world.move_to("second-host");
        let request = PrepareTree { resume_at: Some(&second), partial, ..world.request() };
        let missing = world.workspaces.prepare(request).await;
        assert!(matches!(missing, Err(WorkspaceError::CommitMissing { .. })), "{missing:?}");
        world.workspaces.unpack_commits(request, &saved).await.unwrap();
        assert_eq!(world.workspaces.loop_refs(&world.loop_id, &world.repo).await.unwrap(), saved.refs);
        let there = world.workspaces.prepare(request).await.unwrap();
        assert_eq!(there.head, second);
        assert_eq!(sh(&there.dir, "grep -c seven large; cat a unchanged"), "1\n2\nother");
        assert_eq!(git(&world.store(), &["show", &format!("{kept}:a")]), "undone");
        assert_eq!(world.push(&second, Some(&first)).await, PushOutcome::Pushed);
        assert_eq!(world.forge_tip(BRANCH), Some(second));
    }
}

#[tokio::test]
async fn pack_is_empty_once_the_forge_has_all_commits() {
    let mut world = WorkspaceWorld::new();
    let info = world.prepare().await;
    assert_eq!(world.saved(&[&info.head]).await.pack, None);
    sh(&info.dir, "echo 1 >a");
    let first = world.commit(&info.head).await.commit.unwrap();
    assert_eq!(world.push(&first, None).await, PushOutcome::Pushed);
    let saved = world.saved(&[&info.head, &first]).await;
    assert_eq!(saved.pack, None);
    // The base moves to an unrelated history; the branch still contains the old base.
    sh(&world.path("human"), "git checkout -q --orphan new; git commit -qm new; git push -q -f origin new:main");
    world.move_to("second-host");
    let request = PrepareTree { resume_at: Some(&first), ..world.request() };
    world.workspaces.unpack_commits(request, &saved).await.unwrap();
    assert_eq!(world.workspaces.loop_refs(&world.loop_id, &world.repo).await.unwrap(), saved.refs);
    assert_eq!(sh(&world.workspaces.prepare(request).await.unwrap().dir, "cat a"), "1");
}

#[tokio::test]
async fn stale_refs_of_an_earlier_run_on_the_host_are_replaced() {
    let mut world = WorkspaceWorld::new();
    let info = world.prepare().await;
    sh(&info.dir, "echo 1 >a");
    let first = world.commit(&info.head).await.commit.unwrap();
    let saved = world.saved(&[&info.head]).await;
    world.move_to("second-host");
    let request = PrepareTree { resume_at: Some(&first), ..world.request() };
    world.workspaces.unpack_commits(request, &saved).await.unwrap();
    let there = world.workspaces.prepare(request).await.unwrap();
    sh(&there.dir, "echo 2 >a");
    let second = world.commit(&first).await.commit.unwrap();
    let later = world.saved(&[&info.head]).await;
    world.move_to("state");
    let request = PrepareTree { resume_at: Some(&second), ..world.request() };
    world.workspaces.unpack_commits(request, &later).await.unwrap();
    assert_eq!(world.workspaces.loop_refs(&world.loop_id, &world.repo).await.unwrap(), later.refs);
    assert_eq!(sh(&world.workspaces.prepare(request).await.unwrap().dir, "cat a"), "2");
}
