//! Tests of many loops on one repository: one mirror, and a pool of trees that carry nothing over.

use super::*;

/// See docs/research/threats.md#g18, docs/research/threats.md#g19.
#[tokio::test]
async fn pooled_tree_contains_no_files_of_its_last_loop() {
    let world = WorkspaceWorld::new();
    let info = world.prepare().await;
    sh(
        &info.dir,
        "echo mine >work; echo '*.md filter=x' >.gitattributes; mkdir -p target/deep empty src/.git .GIT; echo secret >target/deep/x
         echo secret >x.log; echo secret >src/.git/config; mkfifo src/fifo; ln -s /etc link; echo '!x.log' >>.gitignore; chmod 700 README.md",
    );
    world.commit(&info.head).await;
    sh(&info.dir, "echo secret >late; git config user.name leaked; echo x >.git/leak");
    let inode = sh(&info.dir, "stat -c %i src");
    world.workspaces.release(&world.loop_id, &world.repo).await.unwrap();
    assert!(!info.dir.exists() && !info.dir.parent().unwrap().exists());
    assert_eq!(world.workspaces.recorded(&world.loop_id, &world.repo).await.unwrap(), None);
    let pooled = world.path("state/pool/gh.7");
    assert_eq!(sh(&pooled, "ls | wc -l; find . -name .git -o -name late -o -type p -o -name target"), "1");

    let base = world.human("main", "echo new >new");
    let other = LoopId::new("r-43-bbbbbb");
    let next =
        world.workspaces.prepare(PrepareTree { loop_id: &other, branch: "ralph/43", ..world.request() }).await.unwrap();
    assert_eq!(next.head, base);
    assert_eq!(sh(&next.dir, "stat -c %i src"), inode, "the pooled tree was not reused");
    assert_eq!(
        sh(&next.dir, "ls -A . src; git status --porcelain --ignored; git config user.name; ls .git"),
        ".:\n.git\n.github\n.gitignore\nREADME.md\nnew\nsrc\n\nsrc:\nmain.rs\nralph-bot\nHEAD\nconfig\nindex\ninfo\nobjects\nrefs"
    );
    assert_eq!(sh(&pooled, "ls | wc -l"), "0");
}

#[tokio::test]
async fn trees_are_deleted_without_a_pool() {
    let world = WorkspaceWorld::with_pool(0);
    let info = world.prepare().await;
    world.workspaces.release(&world.loop_id, &world.repo).await.unwrap();
    assert!(!info.dir.exists() && !world.path("state/pool/gh.7").exists());
    // Releasing a missing tree succeeds, and so does a loop that returns.
    world.workspaces.release(&world.loop_id, &world.repo).await.unwrap();
    assert_eq!(world.prepare().await, info);
}

/// See docs/research/threats.md#g19.
#[tokio::test]
async fn concurrent_loops_do_not_interfere() {
    let world = WorkspaceWorld::new();
    let ids: Vec<LoopId> = (0..4).map(|n| LoopId::new(format!("r-{n}-aaaaaa"))).collect();
    let branches: Vec<String> = (0..4).map(|n| format!("ralph/{n}")).collect();
    let loops = ids.iter().zip(&branches).map(|(loop_id, branch)| {
        let world = &world;
        async move {
            let info = world.workspaces.prepare(PrepareTree { loop_id, branch, ..world.request() }).await.unwrap();
            std::fs::write(info.dir.join("who"), loop_id.as_str()).unwrap();
            let request = CommitRequest {
                loop_id,
                repo: &world.repo,
                parent: &info.head,
                merge_parent: None,
                message: &Outbound::of_test("m"),
                base: &info.head,
                protected_base: &info.head,
                extra_protected: &[],
                named: None,
                set_aside: None,
            };
            let commit = world.workspaces.commit(request).await.unwrap().commit.unwrap();
            let push = PushRequest {
                loop_id,
                repo: &world.repo,
                access: &world.access,
                branch,
                commit: &ClearedCommit::of_test(&commit),
                expected: None,
            };
            assert_eq!(world.workspaces.push(push).await.unwrap(), PushOutcome::Pushed);
            commit
        }
    });
    let commits = futures::future::join_all(loops).await;
    for ((commit, loop_id), branch) in commits.iter().zip(&ids).zip(&branches) {
        let written_id = git(&world.path("forge.git"), &["show", &format!("{commit}:who")]);
        assert_eq!(written_id, loop_id.as_str());
        assert_eq!(world.forge_tip(branch).as_ref(), Some(commit));
    }
}

#[tokio::test]
async fn partial_mirror_works_offline_after_prepare() {
    let world = WorkspaceWorld::new();
    world.human(
        "main",
        "for i in 1 2 3; do echo old $i >history; git add -A; git commit -qm $i; done; echo new >history",
    );
    let base = world.human("main", "mkdir d; for i in 1 2 3; do echo $i >d/$i; done");
    let info = world.workspaces.prepare(PrepareTree { partial: true, ..world.request() }).await.unwrap();
    assert_eq!(info.head, base);
    let missing = |commit: &Sha| {
        git(&world.mirror(), &["rev-list", "--objects", "--missing=print", commit.as_str()])
            .lines()
            .filter(|line| line.starts_with('?'))
            .count()
    };
    assert_eq!(missing(&base), 3, "old contents were fetched");
    assert_eq!(git(&info.dir, &["status", "--porcelain"]), "");

    let merged_in = world.human("main", "echo 4 >d/4; echo two >d/2");
    sh(&info.dir, "echo one >d/1; echo x >.github/workflows/ci.yml");
    let first = world.commit(&info.head).await;
    let commit = first.commit.unwrap();
    assert_eq!(first.restored, [".github/workflows/ci.yml"]);
    let state = world
        .workspaces
        .prepare(PrepareTree { resume_at: Some(&commit), partial: true, ..world.request() })
        .await
        .unwrap();
    assert_eq!((state.base.clone(), state.head), (merged_in.clone(), commit.clone()));

    // From here on the forge is away until the push.
    std::fs::rename(world.path("forge.git"), world.path("away.git")).unwrap();
    assert_eq!(
        world.workspaces.base_file(&world.repo, &merged_in, &["d/2"]).await.unwrap(),
        Some(("d/2", b"two\n".to_vec()))
    );
    let merged = world.workspaces.merge_base_into(&world.loop_id, &world.repo, &commit, &merged_in).await.unwrap();
    assert!(matches!(merged, MergeOutcome::Clean { .. }));
    let merge = world.commit_with(&commit, Some(&merged_in)).await.commit.unwrap();
    let checkout = world.workspaces.clean_checkout(&world.loop_id, &world.repo, &merge).await.unwrap();
    assert_eq!(sh(&checkout.dir, "cat d/*"), "one\ntwo\n3\n4");
    world.workspaces.reset(&world.loop_id, &world.repo, &commit).await.unwrap();
    std::fs::rename(world.path("away.git"), world.path("forge.git")).unwrap();
    // The base moved to a commit that the mirror lacks; old objects are not fetched again.
    world.human("main", "echo later >later");
    assert_eq!(world.push(&merge, None).await, PushOutcome::Pushed);
    assert_eq!(world.forge_tip(BRANCH), Some(merge));
    assert_eq!(missing(&base), 3);
}

/// See docs/research/threats.md#g19.
#[tokio::test]
async fn commits_of_a_loop_are_invisible_to_other_loops() {
    let world = WorkspaceWorld::new();
    let info = world.prepare().await;
    sh(&info.dir, "echo secret work >work");
    let commit = world.commit(&info.head).await.commit.unwrap();
    let blob = git(&info.dir, &["rev-parse", "HEAD:work"]);
    let other = LoopId::new("r-43-bbbbbb");
    let request = PrepareTree { loop_id: &other, branch: "ralph/43", ..world.request() };
    let next = world.workspaces.prepare(request).await.unwrap();
    let sees = |dir: &Path, object: &str| {
        let mut asked = Command::new("git");
        asked.args(["cat-file", "-e", object]).current_dir(dir).output().unwrap().status.success()
    };
    let objects = [commit.as_str(), blob.as_str()];
    assert!(objects.iter().all(|object| sees(&info.dir, object)), "the loop's own agent sees them");
    assert!(objects.iter().all(|object| !sees(&next.dir, object)), "another loop's agent does not");
    assert!(objects.iter().all(|object| !sees(&world.mirror(), object)), "the mirror does not have them");
    let seen = world.workspaces.agent_view(&other, &world.repo).read_only;
    let store = world.store();
    assert!(seen.iter().all(|path| !store.starts_with(path) && !path.starts_with(&store)), "{seen:?}");
    // On the forge they are everybody's, and come from there.
    assert_eq!(world.push(&commit, None).await, PushOutcome::Pushed);
    let request = PrepareTree { loop_id: &other, branch: BRANCH, ..world.request() };
    world.workspaces.prepare(request).await.unwrap();
    assert!(objects.iter().all(|object| sees(&world.mirror(), object)));
}

/// The base is moved back after a loop started, so that no ref of the mirror needs the loop's borrowed objects.
#[tokio::test]
async fn borrowed_objects_survive_packing_of_the_mirror() {
    let world = WorkspaceWorld::new();
    let moved = world.human("main", "echo later >later");
    let info = world.prepare().await;
    assert_eq!(info.head, moved);
    sh(&info.dir, "echo mine >work");
    let commit = world.commit(&info.head).await.commit.unwrap();
    sh(&world.path("human"), "git reset -q --hard HEAD~1 && git push -qf origin main");
    let resumed = PrepareTree { resume_at: Some(&commit), ..world.request() };
    world.workspaces.prepare(resumed).await.unwrap();
    let old = "find mirrors loops -type f -path '*objects*' -exec touch -d '2 months ago' {} +";
    sh(&world.path("state"), old);
    git(&world.mirror(), &["-c", "gc.pruneExpire=never", "gc", "--quiet"]);
    git(&world.store(), &["-c", "gc.pruneExpire=never", "gc", "--quiet"]);
    assert_eq!(git(&world.store(), &["show", &format!("{commit}:later")]), "later");
    git(&world.store(), &["fsck", "--connectivity-only"]);
    let checkout = world.workspaces.clean_checkout(&world.loop_id, &world.repo, &commit).await.unwrap();
    assert_eq!(sh(&checkout.dir, "cat later work"), "later\nmine");
    assert_eq!(world.push(&commit, None).await, PushOutcome::Pushed);
}

/// Older versions kept commits and refs of loops in the mirror.
#[tokio::test]
async fn loops_of_older_versions_continue() {
    let mut world = WorkspaceWorld::new();
    let info = world.prepare().await;
    sh(&info.dir, "echo mine >work");
    let commit = world.commit(&info.head).await.commit.unwrap();
    let kept = world.workspaces.keep(&world.loop_id, &world.repo, &commit).await.unwrap();
    let (mirror, store) = (world.mirror(), world.store());
    let refs = git(&store, &["for-each-ref", "--format=%(refname) %(objectname)"]);
    sh(
        &store,
        &format!(
            "find objects -mindepth 1 -maxdepth 1 -name '??' -exec cp -r {{}} {}/ \\;",
            mirror.join("objects").display()
        ),
    );
    for line in refs.lines() {
        let (name, object) = line.split_once(' ').unwrap();
        git(&mirror, &["update-ref", name, object]);
    }
    std::fs::remove_dir_all(&store).unwrap();
    world.restart();
    let recorded = world.workspaces.recorded(&world.loop_id, &world.repo).await.unwrap();
    assert_eq!(recorded.as_ref(), Some(&commit));
    assert_eq!(git(&store, &["rev-parse", &kept]), commit.as_str());
    let resumed = PrepareTree { resume_at: Some(&commit), ..world.request() };
    assert_eq!(world.workspaces.prepare(resumed).await.unwrap().head, commit);
    assert_eq!(world.push(&commit, None).await, PushOutcome::Pushed);
}

/// See docs/research/threats.md#i7.
#[tokio::test]
async fn range_of_partial_and_packed_mirror_is_scanned_after_restart() {
    for partial in [false, true] {
        let mut world = WorkspaceWorld::new();
        world.human(
            "main",
            "for i in 1 2 3; do echo old $i >history; git add -A; git commit -qm $i; done; echo last >last",
        );
        let info = world.workspaces.prepare(PrepareTree { partial, ..world.request() }).await.unwrap();
        sh(&info.dir, "echo one >work; echo more >>README.md");
        let first = world.commit(&info.head).await.commit.unwrap();
        // On the other side, so that the range has a merge of the forge's commits.
        let theirs = world.human("main", "echo theirs >other");
        let again = PrepareTree { resume_at: Some(&first), partial, ..world.request() };
        world.workspaces.prepare(again).await.unwrap();
        world.workspaces.merge_base_into(&world.loop_id, &world.repo, &first, &theirs).await.unwrap();
        let merge = world.commit_with(&first, Some(&theirs)).await.commit.unwrap();
        git(&world.store(), &["repack", "-dlq"]);
        world.restart();
        let id = world.loop_id.clone();
        let clear =
            |commit| ClearRequest { loop_id: &id, repo: &world.repo, branch: BRANCH, commit, base: None, pushed: None };
        let cleared = world.workspaces.clear(clear(&merge)).await.unwrap();
        assert_eq!(cleared.map(|cleared| cleared.commit().clone()), Ok(merge.clone()), "partial: {partial}");
        world.restart();
        world.workspaces.settings.outbound =
            OutboundFilter::new(crate::process::Masker::named([("the word", "bW9yZQ-9f8a7b6c5d")]));
        sh(&info.dir, "echo bW9yZQ-9f8a7b6c5d >work");
        let made = world.commit(&merge).await;
        assert!(made.leak.is_some());
        let clear =
            |commit| ClearRequest { loop_id: &id, repo: &world.repo, branch: BRANCH, commit, base: None, pushed: None };
        let leak = world.workspaces.clear(clear(&made.commit.unwrap())).await.unwrap().unwrap_err();
        assert_eq!(leak.place, "`work`, line 1");
    }
}
