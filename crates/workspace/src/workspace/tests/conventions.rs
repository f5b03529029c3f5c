//! Repositories with submodules, sign-offs, and commits that conflict.

use super::*;

/// Adds a repository of the forge as a submodule `vendor` of `main`; returns the new head.
fn with_submodule(world: &WorkspaceWorld, url: &str) -> Sha {
    let folder = &world.path("");
    sh(
        folder,
        "git init -q --bare -b main lib.git; git --git-dir=lib.git config uploadpack.allowAnySHA1InWant true
         git init -q -b main lib; cd lib; echo one >lib.txt; git add -A; git commit -qm lib
         git remote add origin ../lib.git; git push -q origin main",
    );
    let tip = git(&world.path("lib"), &["rev-parse", "HEAD"]);
    let entry = format!("printf '[submodule \"vendor\"]\\n\\tpath = vendor\\n\\turl = {url}\\n' >.gitmodules");
    world.human("main", &format!("{entry}; git update-index --add --cacheinfo 160000,{tip},vendor; mkdir vendor"))
}

#[tokio::test]
async fn submodule_of_the_same_forge_is_in_every_tree_and_changes_in_it_are_refused() {
    let world = WorkspaceWorld::new();
    let base = with_submodule(&world, "../lib.git");
    let info = world.prepare().await;
    assert_eq!((&info.head, info.notes.as_slice()), (&base, [].as_slice()));
    assert_eq!(sh(&info.dir, "cat vendor/lib.txt; ls -A vendor"), "one\nlib.txt", "without a repository of its own");
    let checkout = world.workspaces.clean_checkout(&world.loop_id, &world.repo, &base).await.unwrap();
    assert_eq!(sh(&checkout.dir, "cat vendor/lib.txt"), "one");
    world.workspaces.release_checkout(checkout).await.unwrap();

    sh(&info.dir, "echo two >>README.md");
    let commit = world.commit(&base).await;
    assert_eq!(commit.refused, Vec::<String>::new(), "nothing was changed in it");
    sh(&info.dir, "echo three >>README.md; echo evil >vendor/lib.txt; echo new >vendor/new.txt");
    let commit = world.commit(commit.commit.as_ref().unwrap()).await;
    assert!(
        commit.refused.len() == 1 && commit.refused[0].starts_with("`vendor` is a submodule"),
        "{:?}",
        commit.refused
    );
    let head = commit.commit.unwrap();
    assert!(world.files_of(&head).contains("160000 vendor"));
    world.workspaces.reset(&world.loop_id, &world.repo, &head).await.unwrap();
    assert_eq!(sh(&info.dir, "cat vendor/lib.txt; ls -A vendor"), "one\nlib.txt");
}

#[tokio::test]
async fn submodule_of_another_host_is_empty_and_named() {
    let world = WorkspaceWorld::new();
    with_submodule(&world, "https://other.example/lib.git");
    let info = world.prepare().await;
    assert_eq!(
        info.notes,
        [
            "The submodule `vendor` is empty: the repository has no copy of it; run `git submodule update --init --recursive`"
        ]
    );
    assert_eq!(sh(&info.dir, "ls -A vendor"), "");

    sh(&info.dir, "echo two >>README.md; echo new >vendor/new.txt");
    let commit = world.commit(&info.head).await;
    assert!(matches!(&commit.refused[..], [one] if one.starts_with("`vendor` is a submodule")), "{:?}", commit.refused);
    assert!(world.files_of(&commit.commit.unwrap()).contains("160000 vendor"));
}

#[tokio::test]
async fn submodules_of_a_local_repository_are_copied_from_it() {
    let world = WorkspaceWorld::new();
    with_submodule(&world, "https://other.example/lib.git");
    // The submodule has a submodule.
    let nested = "[submodule \"in ner\"]\\n\\tpath = inner\\n\\turl = https://other.example/inner.git\\n";
    let tip = sh(
        &world.path(""),
        &format!(
            "git init -q -b main inner; echo deep >inner/deep.txt; git -C inner add -A; git -C inner commit -qm inner
             cd lib; printf '{nested}' >.gitmodules; git add -A
             git update-index --add --cacheinfo 160000,$(git -C ../inner rev-parse HEAD),inner; git commit -qm nested
             mkdir -p ../forge.git/modules; git clone -q --bare . ../forge.git/modules/vendor
             mkdir ../forge.git/modules/vendor/modules; git clone -q --bare ../inner '../forge.git/modules/vendor/modules/in ner'
             git rev-parse HEAD"
        ),
    );
    world.human("main", &format!("git update-index --add --cacheinfo 160000,{tip},vendor"));
    let info = world.prepare().await;
    assert_eq!(info.notes, Vec::<String>::new());
    assert_eq!(sh(&info.dir, "cat vendor/lib.txt vendor/inner/deep.txt"), "one\ndeep");
}

#[tokio::test]
async fn history_with_sign_offs_is_recognized() {
    let world = WorkspaceWorld::new();
    let base = world.prepare().await.base;
    assert!(!world.workspaces.signs_off(&world.repo, &base).await);
    let script = "for n in 1 2 3; do echo $n >>n; git add n; git commit -q -s -m \"step $n\"; done; echo end >>n";
    world.human("main", script);
    let base = world.prepare().await.base;
    assert!(world.workspaces.signs_off(&world.repo, &base).await);
}

#[tokio::test]
async fn commit_that_conflicts_is_named_with_its_author() {
    let world = WorkspaceWorld::new();
    let info = world.prepare().await;
    sh(&info.dir, "echo ours >README.md");
    let head = world.commit(&info.head).await.commit.unwrap();
    let theirs = world.human("main", "echo theirs >README.md");
    let other = world.human("main", "echo more >more.txt");
    world.workspaces.fetch(&world.repo, &world.access, "main", BRANCH, false).await.unwrap();
    let files = ["README.md".to_owned()];
    let names = (&world.loop_id, &world.repo);
    let found = world.workspaces.conflicting_commit(names, (&head, &other), &files).await.unwrap();
    assert_eq!(found, Some((theirs, "Human".to_owned())));
}
