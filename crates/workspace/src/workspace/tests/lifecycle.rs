//! Tests of the usual operations: prepare, commit, push, reset, clean checkout.

use super::*;
use crate::domain::model::task::DiffStat;

#[tokio::test]
async fn tree_is_prepared_committed_and_pushed() {
    let world = WorkspaceWorld::new();
    world.workspaces.git_version().await.unwrap();
    let info = world.prepare().await;
    assert_eq!(info.head, world.forge_tip("main").unwrap());
    assert_eq!((info.base.clone(), info.remote_branch), (info.head.clone(), None));

    sh(
        &info.dir,
        "echo 'fn main() { run() }' >src/main.rs; mkdir docs; echo x >docs/new.md; rm README.md; mkdir target; echo o >target/bin; chmod +x docs/new.md",
    );
    let made = world.commit(&info.head).await;
    let commit = made.commit.clone().unwrap();
    assert_eq!(
        world.files_of(&commit),
        "100644 .github/workflows/ci.yml, 100644 .gitignore, 100755 docs/new.md, 100644 src/main.rs"
    );
    assert_eq!(made.changed_files, 3);
    assert_eq!(made.stat.lines(), (2, 2));
    assert!(made.diff.contains("+fn main() { run() }") && !made.diff_truncated, "{}", made.diff);
    assert!(made.restored.is_empty() && made.oversized.is_empty() && made.conflict_markers.is_empty());
    let shown = git(&world.store(), &["show", "-s", "--format=%an <%ae> %cn %ct %P|%B", commit.as_str()]);
    let parent = info.head.as_str();
    assert_eq!(
        shown,
        format!("ralph-bot <bot@forge.example> ralph-bot 1700000000 {parent}|ralph: iteration 1: work\n\nMore.")
    );

    assert_eq!(world.push(&commit, None).await, PushOutcome::Pushed);
    assert_eq!(world.forge_tip(BRANCH).as_ref(), Some(&commit));
    assert_eq!(world.push(&commit, None).await, PushOutcome::AlreadyThere);

    // A second iteration changes nothing, a third does.
    assert_eq!(world.commit(&commit).await.commit, None);
    sh(&info.dir, "echo y >>docs/new.md");
    let next = world.commit(&commit).await.commit.unwrap();
    assert_eq!(world.push(&next, Some(&commit)).await, PushOutcome::Pushed);
    let kept = git(&world.store(), &["for-each-ref", "--format=%(refname)", "refs/ralph/loops"]);
    assert_eq!(kept, format!("refs/ralph/loops/{}/{next}", world.loop_id));
    // The forge has the two branches and nothing else.
    assert_eq!(
        git(&world.path("forge.git"), &["for-each-ref", "--format=%(refname)"]),
        format!("refs/heads/main\nrefs/heads/{BRANCH}")
    );
}

/// See docs/research/threats.md#g12, docs/research/faults.md#f16.
#[tokio::test]
async fn push_does_not_overwrite_other_commits() {
    let world = WorkspaceWorld::new();
    let info = world.prepare().await;
    sh(&info.dir, "echo 1 >a");
    let first = world.commit(&info.head).await.commit.unwrap();
    assert_eq!(world.push(&first, None).await, PushOutcome::Pushed);
    sh(&info.dir, "echo 2 >a");
    let second = world.commit(&first).await.commit.unwrap();

    let theirs = world.human(BRANCH, "echo by hand >b");
    let outcome = world.push(&second, Some(&first)).await;
    assert!(matches!(&outcome, PushOutcome::Rejected { remote: Some(tip), .. } if *tip == theirs), "{outcome:?}");
    assert_eq!(world.forge_tip(BRANCH), Some(theirs.clone()));
    // The next `prepare` uses the person's commit unless a recorded commit is requested.
    let again = world.prepare().await;
    assert_eq!((again.head, again.remote_branch.clone()), (theirs.clone(), Some(theirs)));
    let resumed = world.workspaces.prepare(PrepareTree { resume_at: Some(&second), ..world.request() }).await.unwrap();
    assert_eq!((resumed.head, resumed.remote_branch), (second.clone(), again.remote_branch));

    git(&world.path("forge.git"), &["update-ref", "-d", &format!("refs/heads/{BRANCH}")]);
    let outcome = world.push(&second, Some(&first)).await;
    assert!(
        matches!(&outcome, PushOutcome::Rejected { remote: None, reason, .. } if reason.contains("deleted")),
        "{outcome:?}"
    );
    assert_eq!(world.prepare().await.remote_branch, None);
}

#[tokio::test]
async fn only_the_branch_of_a_fork_is_fetched_from_the_fork() {
    let world = WorkspaceWorld::new();
    sh(
        world.folder.path(),
        "git clone -q --bare forge.git fork.git; cd human
         git checkout -q -b theirs; echo theirs >b; git add b; git commit -qm theirs; git push -q ../fork.git theirs:main",
    );
    let head = Sha::new(git(&world.path("human"), &["rev-parse", "theirs"]));
    let base = world.forge_tip("main").expect("a base");
    let fork = GitUrl { url: format!("file://{}/fork.git", world.folder.path().display()), ..world.access.clone() };
    for _ in 0..2 {
        let request = PrepareTree { fork: Some(&fork), branch: "main", ..world.request() };
        let info = world.workspaces.prepare(request).await.unwrap();
        assert_eq!((info.head, info.remote_branch), (head.clone(), Some(head.clone())));
        assert_eq!((info.base, info.fork), (base.clone(), Some(base.clone())), "the base is not the fork's");
    }
    let tips = TipsRequest {
        loop_id: &world.loop_id,
        repo: &world.repo,
        access: &world.access,
        fork: Some(&fork),
        base_branch: "main",
        branch: "main",
        partial: false,
    };
    let tips = world.workspaces.merge_of_tips(tips).await.unwrap();
    assert_eq!((tips.branch, tips.conflict), (Some(head), false));
}

#[tokio::test]
async fn rejected_push_reports_the_forges_message() {
    let world = WorkspaceWorld::new();
    let info = world.prepare().await;
    sh(&info.dir, "echo 1 >a");
    let commit = world.commit(&info.head).await.commit.unwrap();
    sh(
        &world.path("forge.git"),
        "mkdir -p hooks; printf '#!/bin/sh\\necho GH006: Protected branch update failed >&2\\nexit 1\\n' >hooks/pre-receive; chmod +x hooks/pre-receive",
    );
    let outcome = world.push(&commit, None).await;
    assert!(
        matches!(&outcome, PushOutcome::Rejected { remote: None, reason, .. } if reason.contains("GH006: Protected branch")),
        "{outcome:?}"
    );
    assert_eq!(world.forge_tip(BRANCH), None);
}

#[tokio::test]
async fn unusable_remotes_are_reported_by_cause() {
    let world = WorkspaceWorld::new();
    let prepare = |access: GitUrl, base: &'static str| {
        let world = &world;
        async move {
            world
                .workspaces
                .prepare(PrepareTree { access: &access, base_branch: base, ..world.request() })
                .await
                .unwrap_err()
        }
    };
    let there = || world.access.clone();
    let at = |name: &str| GitUrl {
        url: format!("file://{}/{name}", world.folder.path().display()),
        credential: None,
        settling: Default::default(),
    };
    sh(world.folder.path(), "git init -q --bare -b main empty.git");

    let error = prepare(there(), "develop").await;
    assert!(
        matches!(&error, WorkspaceError::BaseBranchMissing { default_branch: Some(name), .. } if name == "main"),
        "{error}"
    );
    let error = prepare(at("empty.git"), "main").await;
    assert!(matches!(error, WorkspaceError::EmptyRepository { .. }), "{error}");
    let error = prepare(at("nowhere.git"), "main").await;
    assert!(matches!(error, WorkspaceError::Unreachable { transient: false, .. }), "{error}");
    let error = prepare(
        GitUrl { url: "http://127.0.0.1:1/x.git".into(), credential: None, settling: Default::default() },
        "main",
    )
    .await;
    assert!(matches!(error, WorkspaceError::Unreachable { transient: true, .. }) && error.is_transient(), "{error}");
    let error = prepare(there(), "--upload-pack=touch x").await;
    assert!(matches!(error, WorkspaceError::BadName { .. }), "{error}");

    // Renamed default branch, HEAD of the forge left dangling.
    git(&world.path("forge.git"), &["branch", "-m", "main", "trunk"]);
    git(&world.path("forge.git"), &["symbolic-ref", "HEAD", "refs/heads/gone"]);
    let error = prepare(there(), "main").await;
    assert!(matches!(&error, WorkspaceError::BaseBranchMissing { default_branch: None, .. }), "{error}");

    let gone = Sha::parse(&"1".repeat(40)).unwrap();
    let error =
        world.workspaces.prepare(PrepareTree { base_branch: "trunk", resume_at: Some(&gone), ..world.request() }).await;
    assert!(matches!(error, Err(WorkspaceError::CommitMissing { .. })), "{error:?}");
}

/// Attributes of the base apply to a merge; those that the agent writes do not.
#[tokio::test]
async fn merge_uses_attributes_of_base() {
    let world = WorkspaceWorld::new();
    world.human("main", "mkdir -p docs; echo one >docs/notes.txt; echo 'notes.txt merge=union' >docs/.gitattributes");
    let info = world.prepare().await;
    sh(&info.dir, "echo mine >>docs/notes.txt; echo mine >>README.md; echo 'README.md merge=union' >.gitattributes");
    let head = world.commit(&info.head).await.commit.unwrap();
    let base = world.human("main", "echo theirs >>docs/notes.txt; echo theirs >>README.md");
    world.workspaces.fetch(&world.repo, &world.access, "main", BRANCH, false).await.unwrap();
    let merged = world.workspaces.merge_base_into(&world.loop_id, &world.repo, &head, &base).await.unwrap();
    assert_eq!(merged, MergeOutcome::Conflict { files: vec!["README.md".into()] });
    let notes = std::fs::read_to_string(info.dir.join("docs/notes.txt")).unwrap();
    assert_eq!(notes.lines().count(), 3, "{notes}");
}

/// Attributes of the base convert files; those that the agent writes do not, and no converter of the system is loaded.
#[tokio::test]
async fn files_are_converted_by_the_attributes_of_the_base() {
    let world = WorkspaceWorld::new();
    let attributes = "*.rc working-tree-encoding=UTF-16LE\\n*.txt working-tree-encoding=ISO-8859-1\\n*.bat eol=crlf\\n";
    world.human(
        "main",
        &format!("printf '{attributes}' >.gitattributes; printf 'a\\0\\n\\0' >wide.rc; echo a >old.txt"),
    );
    let info = world.prepare().await;
    let bytes = |name: &str| std::fs::read(info.dir.join(name)).unwrap();
    let committed = |commit: &Sha, name: &str| {
        let output = Command::new("git")
            .arg("-C")
            .arg(world.store())
            .args(["cat-file", "blob", &format!("{commit}:{name}")])
            .output();
        output.unwrap().stdout
    };
    sh(
        &info.dir,
        "printf '\\344\\n' >old.txt; printf '\\344\\n' >new.c; printf 'x\\r\\n' >run.bat; printf '*.c working-tree-encoding=ISO-8859-1\\n' >>.gitattributes",
    );
    let commit = world.commit(&info.head).await.commit.unwrap();
    assert_eq!(committed(&commit, "old.txt"), b"\xe4\n", "not from ISO-8859-1, although the base says so");
    assert_eq!(committed(&commit, "new.c"), b"\xe4\n", "not from ISO-8859-1");
    assert_eq!(committed(&commit, "run.bat"), b"x\n");
    std::fs::write(info.dir.join("wide.rc"), b"b\0\n\0").unwrap();
    let commit = world.commit(&commit).await.commit.unwrap();
    assert_eq!(committed(&commit, "wide.rc"), b"b\n");
    world.workspaces.reset(&world.loop_id, &world.repo, &commit).await.unwrap();
    assert_eq!(
        (bytes("wide.rc"), bytes("old.txt"), bytes("run.bat")),
        (b"b\0\n\0".to_vec(), b"\xe4\n".to_vec(), b"x\r\n".to_vec())
    );
}

/// A base that moved is merged, and conflicts are shown (docs/research/faults.md#f17).
#[tokio::test]
async fn base_is_merged_or_conflicts_are_reported() {
    let world = WorkspaceWorld::new();
    let info = world.prepare().await;
    let up_to_date =
        world.workspaces.merge_base_into(&world.loop_id, &world.repo, &info.head, &info.base).await.unwrap();
    assert_eq!(up_to_date, MergeOutcome::UpToDate);
    sh(&info.dir, "echo mine >README.md; echo mine >mine");
    let own = vec!["README.md".to_owned(), "mine".to_owned()];
    let head = world.commit(&info.head).await.commit.unwrap();

    let base = world.human("main", "echo theirs >theirs");
    let state = world.workspaces.fetch(&world.repo, &world.access, "main", BRANCH, false).await.unwrap();
    assert_eq!(state, RemoteState { base: base.clone(), branch: None });
    let merged = world.workspaces.merge_base_into(&world.loop_id, &world.repo, &head, &base).await.unwrap();
    let MergeOutcome::Clean { tree } = merged else { panic!("{merged:?}") };
    let made = world.commit_with(&head, Some(&base)).await;
    let merge = made.commit.clone().unwrap();
    assert_eq!(made.tree, tree);
    assert_eq!(git(&world.store(), &["show", "-s", "--format=%P", merge.as_str()]), format!("{head} {base}"));
    assert_eq!(world.content(&merge, "theirs"), "theirs");
    // Changes of the other side do not belong to the loop.
    let changed = |stat: &DiffStat| stat.files.iter().map(|file| file.path.clone()).collect::<Vec<_>>();
    assert_eq!((changed(&made.stat), changed(&made.branch_stat)), (own.clone(), own), "{made:?}");
    assert!(!made.diff.contains("theirs"), "{}", made.diff);

    let base = world.human("main", "echo other >README.md");
    world.workspaces.fetch(&world.repo, &world.access, "main", BRANCH, false).await.unwrap();
    let merged = world.workspaces.merge_base_into(&world.loop_id, &world.repo, &merge, &base).await.unwrap();
    assert_eq!(merged, MergeOutcome::Conflict { files: vec!["README.md".into()] });
    let shown = std::fs::read_to_string(info.dir.join("README.md")).unwrap();
    assert!(shown.contains("<<<<<<< ") && shown.contains("mine") && shown.contains("other"), "{shown}");
    // Unsolved, it is seen; solved, it is a merge like any other.
    assert_eq!(world.commit_with(&merge, Some(&base)).await.conflict_markers, ["README.md"]);
    sh(&info.dir, "echo both >README.md");
    let solved = world.commit_with(&merge, Some(&base)).await;
    assert!(solved.conflict_markers.is_empty());
    assert_eq!(world.content(&solved.commit.unwrap(), "README.md"), "both");
}

#[tokio::test]
async fn nul_bytes_do_not_hide_source_changes() {
    let world = WorkspaceWorld::new();
    let base = world.human("main", "printf 'fn a() {}\\nfn b() {}\\n' >lib.rs; printf '\\0\\1' >image.png; printf '*.rs binary\\n' >.gitattributes");
    let info = world.prepare().await;
    sh(&info.dir, "printf '// \\0\\nfn a() {}\\n' >lib.rs; printf '\\0\\2' >image.png");
    let made = world.commit(&base).await;
    let sizes: Vec<_> = made.stat.files.iter().map(|file| (file.path.as_str(), file.added, file.binary)).collect();
    assert_eq!(sizes, [("image.png", 0, true), ("lib.rs", 1, false)]);
    let of = (&world.loop_id, &world.repo);
    let commit = made.commit.expect("a commit");
    let complete = world.workspaces.branch_diff(of, &base, &commit).await.expect("a diff").text;
    let lib = world.workspaces.diff_of_files(of, (&base, &commit), &["lib.rs".into()], 4096).await.expect("a diff");
    for text in [&made.diff, &complete, &lib] {
        assert!(text.contains("\n-fn b() {}\n") && text.contains("\n+// \0\n"), "{text}");
    }
    assert!(complete.contains("Binary files a/image.png and b/image.png differ"), "{complete}");
}

/// See docs/research/threats.md#g17, docs/research/faults.md#a10.
#[tokio::test]
async fn clean_checkout_contains_only_the_commit() {
    let world = WorkspaceWorld::new();
    let info = world.prepare().await;
    sh(&info.dir, "echo 1 >a; mkdir target; echo x >target/cache");
    let commit = world.commit(&info.head).await.commit.unwrap();
    let checkout = world.workspaces.clean_checkout(&world.loop_id, &world.repo, &commit).await.unwrap();
    assert_ne!(checkout.dir, info.dir);
    assert_eq!(sh(&checkout.dir, "git status --porcelain; ls -A"), ".git\n.github\n.gitignore\nREADME.md\na\nsrc");
    let other = world.workspaces.clean_checkout(&world.loop_id, &world.repo, &info.head).await.unwrap();
    assert!(!other.dir.join("a").exists());
    sh(&other.dir, "mkdir target; echo secret >target/x; echo secret >y; echo changed >README.md");
    let (first, second) = (checkout.dir.clone(), other.dir.clone());
    world.workspaces.release_checkout(other).await.unwrap();
    world.workspaces.release_checkout(checkout).await.unwrap();
    assert!(!first.exists() && !second.exists());
    let again = world.workspaces.clean_checkout(&world.loop_id, &world.repo, &commit).await.unwrap();
    assert_eq!(sh(&again.dir, "git status --porcelain --ignored; cat README.md"), "hello");
    let missing = Sha::parse(&"2".repeat(40)).unwrap();
    assert!(matches!(
        world.workspaces.clean_checkout(&world.loop_id, &world.repo, &missing).await,
        Err(WorkspaceError::CommitMissing { .. })
    ));
}

#[tokio::test]
async fn files_of_a_commit_are_read_from_the_mirror() {
    let world = WorkspaceWorld::new();
    let base = world.human(
        "main",
        "echo 'checks: []' >.ralph.yml; ln -s .ralph.yml link; head -c 1100000 /dev/zero >big; echo b >'a*b'",
    );
    world.prepare().await;
    let first = async |paths: &[&'static str]| world.workspaces.base_file(&world.repo, &base, paths).await;
    let read = async |path: &'static str| first(&[path]).await;
    let of = |path: &'static str, text: &str| Some((path, text.as_bytes().to_vec()));
    assert_eq!(read(".ralph.yml").await.unwrap(), of(".ralph.yml", "checks: []\n"));
    assert_eq!(read("a*b").await.unwrap(), of("a*b", "b\n"));
    assert_eq!(first(&["nothing", "link", "a*b", ".ralph.yml"]).await.unwrap(), of("a*b", "b\n"), "in the order given");
    for absent in ["nothing", "src", "link", "*", "src/main.rs/x"] {
        assert_eq!(read(absent).await.unwrap(), None, "{absent}");
    }
    assert!(matches!(read("big").await, Err(WorkspaceError::TooLarge { .. })));
    for bad in ["", "/etc/passwd", "../x", "a/../b", "a//b"] {
        assert!(matches!(read(bad).await, Err(WorkspaceError::BadName { .. })), "{bad}");
    }
}

#[tokio::test]
async fn agent_repository_works_with_git() {
    let world = WorkspaceWorld::new();
    let info = world.prepare().await;
    assert_eq!(git(&info.dir, &["status", "--porcelain"]), "");
    assert_eq!(git(&info.dir, &["log", "--format=%s"]), "first");
    sh(
        &info.dir,
        "echo more >>README.md; git diff --exit-code >/dev/null && exit 1; env -u GIT_AUTHOR_NAME -u GIT_AUTHOR_EMAIL git commit -qam 'agent: readme'; echo x >x; git add x; git commit -qm 'second: x'",
    );
    assert_eq!(world.workspaces.agent_messages(&world.loop_id, &world.repo).await, ["agent: readme", "second: x"]);
    let made = world.commit(&info.head).await;
    assert_eq!(made.changed_files, 2);
    // A single commit on the parent; the agent's commits were removed with its repository.
    let commit = made.commit.unwrap();
    assert_eq!(git(&world.store(), &["rev-list", "--count", commit.as_str()]), "2");
    assert_eq!(git(&info.dir, &["rev-parse", "HEAD"]), commit.as_str());
    assert_eq!(git(&info.dir, &["status", "--porcelain"]), "");
    assert!(world.workspaces.agent_messages(&world.loop_id, &world.repo).await.is_empty());
    let view = world.workspaces.agent_view(&world.loop_id, &world.repo);
    assert_eq!(
        view,
        AgentView {
            tree: info.dir,
            read_only: [world.mirror(), world.store()].map(|from| from.join("objects")).into()
        }
    );
}

#[tokio::test]
async fn lines_of_existing_files_are_counted() {
    let world = WorkspaceWorld::new();
    let info = world.prepare().await;
    sh(&info.dir, "printf 'a\\nb' >two.txt; : >empty; mkdir folder; echo x >'folder/a b.c'");
    let commit = world.commit(&info.head).await.commit.unwrap();
    let paths = ["two.txt", "empty", "folder", "folder/a b.c", "gone.c"].into_iter().collect();
    let counts = world.workspaces.line_counts(&world.loop_id, &world.repo, &commit, &paths).await.unwrap();
    let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
    counts.sort();
    assert_eq!(counts, [("empty".to_owned(), 0), ("folder/a b.c".to_owned(), 1), ("two.txt".to_owned(), 2)]);
}

#[tokio::test]
async fn reset_removes_changes_of_every_kind() {
    let world = WorkspaceWorld::new();
    let info = world.prepare().await;
    let reset = || world.workspaces.reset(&world.loop_id, &world.repo, &info.head);
    for (script, commits) in
        [(":", false), ("echo Hello >README.md", true), ("echo x >x.log", false), ("mkdir empty", false)]
    {
        sh(&info.dir, script);
        assert_eq!(world.commit(&info.head).await.commit.is_some(), commits, "{script}");
        reset().await.unwrap();
        assert_eq!(sh(&info.dir, "git status --porcelain --ignored; cat README.md; ls"), "hello\nREADME.md\nsrc");
    }
}

#[tokio::test]
async fn text_files_are_read_from_commits_and_replaced_without_following_links() {
    let world = WorkspaceWorld::new();
    let info = world.prepare().await;
    sh(
        &info.dir,
        "mkdir folder; echo a >'folder/a [b].txt'; printf 'x' >run.sh; chmod +x run.sh; ln -s run.sh link; printf '\\377' >bin",
    );
    let commit = world.commit(&info.head).await.commit.unwrap();
    let (spaces, id, repo) = (&world.workspaces, &world.loop_id, &world.repo);
    let read = async |path: &str| spaces.text_at(id, repo, &commit, path).await.unwrap();
    assert_eq!(read("folder/a [b].txt").await.as_deref(), Some("a\n"));
    for none in ["folder", "link", "bin", "gone", "folder/*", "-x"] {
        assert_eq!(read(none).await, None, "{none}");
    }
    let missing = Sha::new("1".repeat(40));
    assert_eq!(spaces.text_at(id, repo, &missing, "run.sh").await.unwrap(), None);
    spaces.write_text(id, repo, "run.sh", "y").await.unwrap();
    assert_eq!(sh(&info.dir, "cat run.sh; test -x run.sh"), "y");
    assert!(spaces.write_text(id, repo, "gone", "y").await.is_err());
    // Between the commit and the change, something may have put a link in its place.
    sh(&info.dir, "rm run.sh; ln -s /etc/hostname run.sh; mv folder real; ln -s real folder");
    assert!(spaces.write_text(id, repo, "run.sh", "y").await.is_err());
    assert!(spaces.write_text(id, repo, "folder/a [b].txt", "y").await.is_err());
}

#[tokio::test]
async fn lines_are_searched_in_files_of_all_folders() {
    let world = WorkspaceWorld::new();
    let base = world.prepare().await.base;
    let has = async |globs: &[&str]| world.workspaces.has_line(&world.repo, &base, "^fn main", globs).await;
    assert!(has(&["*.py", "*.rs"]).await, "the pattern matches src/main.rs");
    assert!(!has(&["*.py"]).await);
}
