//! Tests of crashes: operations recover from any state on disk, and no recorded commit is lost.

use super::*;

/// See docs/research/faults.md#a8.
#[tokio::test]
async fn prepare_recovers_from_any_state() {
    let mut world = WorkspaceWorld::new();
    let info = world.prepare().await;
    sh(&info.dir, "echo work >work");
    let commit = world.commit(&info.head).await.commit.unwrap();
    assert_eq!(world.push(&commit, None).await, PushOutcome::Pushed);
    let (tree, mirror, index) =
        (world.tree(), world.mirror(), world.workspaces.layout.tree(&world.loop_id, &world.repo).index);
    let state = world.path("state");
    for (what, script) in [
        ("tree gone", format!("rm -rf {}", tree.display())),
        ("trees gone", format!("rm -rf {}/trees", state.display())),
        (
            "half a tree",
            format!("cd {}; rm -rf src .git README.md; echo junk >junk; mkdir -p a/b; echo junk >work", tree.display()),
        ),
        ("a file for a tree", format!("rm -rf {0}; echo x >{0}", tree.display())),
        (
            "a link for a tree",
            format!(
                "rm -rf {0}; mkdir {1}/elsewhere; echo keep >{1}/elsewhere/work; ln -s {1}/elsewhere {0}",
                tree.display(),
                state.display()
            ),
        ),
        ("index gone", format!("rm {}", index.display())),
        ("index broken", format!("echo junk >{}", index.display())),
        ("index locked", format!("touch {}.lock", index.display())),
        (
            "mirror locked",
            format!(
                "cd {}; touch HEAD.lock packed-refs.lock config.lock; mkdir -p refs/ralph/trees; touch refs/ralph/trees/{}.lock",
                mirror.display(),
                world.loop_id
            ),
        ),
        ("read-only folder", format!("mkdir {0}/locked; echo x >{0}/locked/x; chmod 500 {0}/locked", tree.display())),
        ("tmp full of things", format!("mkdir -p {0}/tmp/x-1/claimed; touch {0}/tmp/x-2", state.display())),
        ("mirror broken", format!(": >{}/HEAD", mirror.display())),
        ("mirror half made", format!("rm -rf {0}; mkdir {0}", mirror.display())),
        ("mirror gone", format!("rm -rf {}", mirror.display())),
        ("everything gone", format!("chmod -R u+w {0}; rm -rf {0}", state.display())),
    ] {
        sh(world.folder.path(), &script);
        world.restart();
        let again = world.workspaces.prepare(PrepareTree { resume_at: Some(&commit), ..world.request() }).await;
        let again = again.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!((&again.head, again.remote_branch.as_ref()), (&commit, Some(&commit)), "{what}");
        assert_eq!(
            sh(&again.dir, "git status --porcelain --ignored; ls -A; cat work"),
            ".git\n.github\n.gitignore\nREADME.md\nsrc\nwork\nwork",
            "{what}"
        );
        sh(&again.dir, "echo more >more");
        assert!(world.commit(&commit).await.commit.is_some(), "{what}");
        assert!(std::fs::symlink_metadata(world.tree()).unwrap().is_dir(), "{what}");
    }
}

#[tokio::test]
async fn unrecorded_commit_is_reused() {
    let mut world = WorkspaceWorld::new();
    let info = world.prepare().await;
    assert_eq!(world.workspaces.recorded(&world.loop_id, &world.repo).await.unwrap(), Some(info.head.clone()));
    sh(&info.dir, "echo work >work");
    let first = world.commit(&info.head).await;
    world.restart();
    let second = world.commit(&info.head).await;
    assert_eq!(second, first);
    assert_eq!(world.workspaces.recorded(&world.loop_id, &world.repo).await.unwrap(), first.commit);
    let unknown = LoopId::new("r-1-aaaaaa");
    assert_eq!(world.workspaces.recorded(&unknown, &world.repo).await.unwrap(), None);
}

/// See docs/research/faults.md#a8.
#[tokio::test]
async fn commit_works_without_the_old_index() {
    let world = WorkspaceWorld::new();
    let info = world.prepare().await;
    let index = world.workspaces.layout.tree(&world.loop_id, &world.repo).index;
    for (n, script) in ["rm -f", "echo junk >", ": >", "touch -d 1990-01-01 "].iter().enumerate() {
        sh(
            &info.dir,
            &format!("{script} {}; touch {}.lock; echo {n} >work; echo o >x.log", index.display(), index.display()),
        );
        let commit = world.commit(&info.head).await.commit.unwrap();
        assert_eq!(
            world.files_of(&commit),
            "100644 .github/workflows/ci.yml, 100644 .gitignore, 100644 README.md, 100644 src/main.rs, 100644 work"
        );
        world.workspaces.reset(&world.loop_id, &world.repo, &info.head).await.unwrap();
    }
}

/// Request for a commit on `head`, the base.
fn commit_on<'a>(
    world: &'a WorkspaceWorld,
    head: &'a Sha,
    message: &'a Outbound<CommitText>,
    set_aside: Option<SetAside<'a>>,
) -> CommitRequest<'a> {
    CommitRequest {
        loop_id: &world.loop_id,
        repo: &world.repo,
        parent: head,
        merge_parent: None,
        message,
        base: head,
        protected_base: head,
        extra_protected: &[],
        named: None,
        set_aside,
    }
}

/// See docs/research/faults.md#d9.
#[tokio::test]
async fn missing_tree_is_an_error_without_commit() {
    let world = WorkspaceWorld::new();
    let info = world.prepare().await;
    std::fs::remove_dir_all(&info.dir).unwrap();
    let message = Outbound::of_test("m");
    let request = commit_on(&world, &info.head, &message, None);
    assert!(matches!(world.workspaces.commit(request).await, Err(WorkspaceError::TreeMissing(dir)) if dir == info.dir));
    assert_eq!(world.workspaces.salvage(&world.loop_id, &world.repo).await.unwrap(), None);
    world.workspaces.reset(&world.loop_id, &world.repo, &info.head).await.unwrap();
    assert!(info.dir.join("README.md").exists());
}

#[tokio::test]
async fn uncommitted_work_is_salvaged_before_a_reset() {
    let world = WorkspaceWorld::new();
    assert_eq!(world.workspaces.salvage(&world.loop_id, &world.repo).await.unwrap(), None);
    let info = world.prepare().await;
    assert_eq!(world.workspaces.salvage(&world.loop_id, &world.repo).await.unwrap(), None);
    for n in 1..=2 {
        sh(&info.dir, &format!("echo {n} >half; rm README.md; git add -A; git commit -qm agent; echo ignored >x.log"));
        let kept = world.workspaces.salvage(&world.loop_id, &world.repo).await.unwrap().unwrap();
        let name = format!("refs/ralph/keep/{}/{n}", world.loop_id);
        assert_eq!(git(&world.store(), &["rev-parse", &name, &format!("{name}^")]), format!("{kept}\n{}", info.head));
        assert_eq!(world.content(&kept, "half"), n.to_string());
        world.workspaces.reset(&world.loop_id, &world.repo, &info.head).await.unwrap();
        assert_eq!(sh(&info.dir, "git status --porcelain --ignored; cat README.md"), "hello");
    }
}

#[tokio::test]
async fn garbage_collection_deletes_only_unused_files() {
    let mut world = WorkspaceWorld::new();
    let info = world.prepare().await;
    sh(&info.dir, "echo work >work");
    let commit = world.commit(&info.head).await.commit.unwrap();
    let other = LoopId::new("r-43-bbbbbb");
    world.workspaces.prepare(PrepareTree { loop_id: &other, branch: "ralph/43", ..world.request() }).await.unwrap();
    let in_use = world.workspaces.clean_checkout(&world.loop_id, &world.repo, &commit).await.unwrap();
    let dead = world.workspaces.clean_checkout(&world.loop_id, &world.repo, &commit).await.unwrap().dir;
    let state = world.path("state");
    sh(
        &state,
        "mkdir -p tmp/x-dead/deep; chmod 500 tmp/x-dead; mkdir -p pool/gh.7/1/tree pool/gh.7/2/tree pool/gh.7/3/tree",
    );
    sh(&world.mirror(), "touch packed-refs.lock");

    let live = [other.clone()].into_iter().collect();
    let report = world.workspaces.reap(world.workspaces.standing().unwrap(), &live).await.unwrap();
    assert!(report.failures.is_empty(), "{report:?}");
    assert_eq!((report.trees, report.pooled, report.locks), (1, 2, 1), "{report:?}");
    assert!(!info.dir.exists() && in_use.dir.join("work").exists() && !dead.exists());
    assert!(world.workspaces.tree_dir(&other, &world.repo).join("README.md").exists());
    let refs = git(&world.store(), &["for-each-ref", "--format=%(refname)", "refs/ralph/trees", "refs/ralph/loops"]);
    assert_eq!(refs, format!("refs/ralph/loops/{}/{commit}", world.loop_id));
    let live_store = world.workspaces.layout.tree(&other, &world.repo).store;
    let refs = git(&live_store, &["for-each-ref", "--format=%(refname)", "refs/ralph/trees"]);
    assert_eq!(refs, format!("refs/ralph/trees/{other}"));

    world.restart();
    // A process that another test is starting at this moment holds the old lock until it becomes its program.
    let mut leftovers = 0;
    for _ in 0..1_000 {
        let report = world.workspaces.reap(world.workspaces.standing().unwrap(), &live).await.unwrap();
        assert_eq!((report.trees, report.pooled, report.locks), (0, 0, 0), "{report:?}");
        leftovers += report.leftovers;
        if leftovers == 2 {
            break;
        }
    }
    assert_eq!(leftovers, 2, "the folder of the process that is gone, and its lock");
    assert!(!in_use.dir.exists());
    let report = world.workspaces.reap(world.workspaces.standing().unwrap(), &live).await.unwrap();
    assert_eq!(report, ReapReport::default());
    // The tree of the live loop still works.
    let again =
        world.workspaces.prepare(PrepareTree { loop_id: &other, branch: "ralph/43", ..world.request() }).await.unwrap();
    assert_eq!(again.head, info.head);
}

#[tokio::test]
async fn new_files_of_a_killed_run_are_set_aside_even_if_the_commit_is_repeated() {
    let mut world = WorkspaceWorld::new();
    let info = world.prepare().await;
    sh(&info.dir, "echo more >>README.md; mkdir -p new; echo half >new/part; echo again >known; echo ignored >x.log");
    let except = ["known".to_owned()];
    let message = Outbound::of_test("m");
    let mut commits = Vec::new();
    for _ in 0..2 {
        let request = commit_on(&world, &info.head, &message, Some(SetAside { iteration: 3, except: &except }));
        let commit = world.workspaces.commit(request).await.unwrap();
        assert_eq!(commit.set_aside, ["new/part"]);
        assert!(!info.dir.join("new/part").exists(), "checks do not see it");
        commits.push(commit.commit.unwrap());
        world.restart();
    }
    assert_eq!(commits[0], commits[1]);
    assert_eq!(world.content(&commits[0], "README.md"), "hello\nmore");
    let files = world.files_of(&commits[0]);
    assert!(files.contains("known") && !files.contains("part"), "{files}");

    let to = world.path("copies");
    let copy = async |paths: &[String]| {
        world.workspaces.copy_set_aside((&world.loop_id, &world.repo), 3, paths, &to).await.unwrap();
    };
    copy(&["new/part".to_owned()]).await;
    assert_eq!(sh(&to, "cat new/part; ls"), "half\nnew");
}

/// A file that a failed commit left in the index is not lost when the commit is repeated by the same process.
#[tokio::test]
async fn repeated_commit_keeps_files_that_were_staged_before() {
    let w = WorkspaceWorld::new();
    let head = w.prepare().await.head;
    w.workspaces.reset(&w.loop_id, &w.repo, &head).await.unwrap();
    std::fs::write(w.tree().join("new.txt"), "new").unwrap();
    let tree_paths = w.workspaces.layout.tree(&w.loop_id, &w.repo);
    // The first attempt ends after the index was written.
    let (index, mirror) = (tree_paths.index.display().to_string(), w.mirror().display().to_string());
    let tree = w.tree().display().to_string();
    sh(
        &w.tree(),
        &format!("GIT_INDEX_FILE={index} git --git-dir={mirror} --work-tree={tree} update-index --add new.txt"),
    );
    let commit = w.commit(&head).await.commit.expect("a commit");
    w.workspaces.reset(&w.loop_id, &w.repo, &commit).await.unwrap();
    assert_eq!(std::fs::read_to_string(w.tree().join("new.txt")).unwrap(), "new");
    assert_eq!(w.commit(&commit).await.commit, None);
}
