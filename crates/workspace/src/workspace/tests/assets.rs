//! Repositories with files of Git LFS. The forge is a folder, to which git-lfs copies contents as to a server.

use sha2::{Digest as _, Sha256};

use super::*;

fn pointer(content: &str) -> String {
    let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(content));
    format!("version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {}", content.len())
}

/// Returns the path of a content in a repository.
fn object(repository: &Path, content: &str) -> PathBuf {
    let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(content));
    repository.join("lfs/objects").join(&digest[..2]).join(&digest[2..4]).join(digest)
}

/// Assigns `*.bin` to Git LFS, and commits pointers as `*.bin` files; returns the new head. The forge has no contents.
fn with_pointers(world: &WorkspaceWorld, files: &[(&str, &str)]) -> Sha {
    let write = |(path, content): &(&str, &str)| format!("printf '%s\n' '{}' >{path}; ", pointer(content));
    let files: String = files.iter().map(write).collect();
    world.human("main", &format!("echo '*.bin filter=lfs diff=lfs merge=lfs -text' >.gitattributes; {files}"))
}

/// Puts a content into the forge.
fn put(world: &WorkspaceWorld, content: &str) {
    let path = object(&world.path("forge.git"), content);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

/// Whether git-lfs is installed; reported otherwise.
fn has_git_lfs(world: &WorkspaceWorld) -> bool {
    if !world.workspaces.has_git_lfs {
        skipped_tests::skip("git-lfs is not installed");
    }
    world.workspaces.has_git_lfs
}

fn read(dir: &Path, path: &str) -> String {
    std::fs::read_to_string(dir.join(path)).unwrap()
}

#[tokio::test]
async fn contents_of_git_lfs_are_in_every_tree_and_changes_are_uploaded() {
    let world = WorkspaceWorld::new();
    if !has_git_lfs(&world) {
        return;
    }
    let base = with_pointers(&world, &[("a.bin", "one"), ("b.bin", "one")]);
    put(&world, "one");
    let info = world.prepare().await;
    assert_eq!(info.notes, Vec::<String>::new());
    assert_eq!((read(&info.dir, "a.bin"), read(&info.dir, "b.bin")), ("one".into(), "one".into()));
    assert_eq!(sh(&info.dir, "git status --porcelain"), "", "the agent's git compares contents with pointers");
    let checkout = world.workspaces.clean_checkout(&world.loop_id, &world.repo, &base).await.unwrap();
    assert_eq!(read(&checkout.dir, "a.bin"), "one");
    world.workspaces.use_base_files(&checkout, &base, &["a.bin".to_owned()]).await.unwrap();
    assert_eq!(read(&checkout.dir, "a.bin"), "one");
    world.workspaces.release_checkout(checkout).await.unwrap();

    sh(&info.dir, "echo two >README.md");
    let first = world.commit(&base).await;
    assert_eq!((first.refused.as_slice(), first.changed_files), ([].as_slice(), 1), "only the text was changed");
    let first = first.commit.unwrap();

    sh(&info.dir, "printf two >a.bin; chmod +x a.bin; cp b.bin copy.bin; printf new >new.bin; rm b.bin; : >empty.bin");
    let second = world.commit(&first).await;
    assert_eq!((second.refused.as_slice(), second.leak), ([].as_slice(), None));
    let second = second.commit.unwrap();
    for (path, content) in [("a.bin", "two"), ("copy.bin", "one"), ("new.bin", "new")] {
        assert_eq!(world.content(&second, path), pointer(content), "{path}");
    }
    assert_eq!(world.content(&second, "empty.bin"), "");
    assert!(world.files_of(&second).contains("100755 a.bin") && !world.files_of(&second).contains(" b.bin"));
    for content in ["two", "new"] {
        assert!(object(&world.store(), content).exists() && !object(&world.mirror(), content).exists());
    }

    world.workspaces.reset(&world.loop_id, &world.repo, &second).await.unwrap();
    let files = ["a.bin", "copy.bin", "new.bin", "empty.bin"].map(|path| read(&info.dir, path));
    assert_eq!(files, ["two", "one", "new", ""]);
    assert!(sh(&info.dir, "git status --porcelain").is_empty());

    assert_eq!(world.push(&second, None).await, PushOutcome::Pushed);
    for content in ["two", "new"] {
        assert_eq!(std::fs::read_to_string(object(&world.path("forge.git"), content)).unwrap(), content);
    }
    let config = std::fs::read_to_string(world.store().join("config")).unwrap();
    assert!(!config.contains("lfs"), "git-lfs wrote into the store: {config}");
}

#[tokio::test]
async fn merged_contents_are_in_the_tree_and_conflicts_keep_one_side() {
    let world = WorkspaceWorld::new();
    if !has_git_lfs(&world) {
        return;
    }
    with_pointers(&world, &[("a.bin", "one"), ("b.bin", "one")]);
    ["one", "theirs"].into_iter().for_each(|content| put(&world, content));
    let info = world.prepare().await;
    sh(&info.dir, "printf ours >a.bin");
    let head = world.commit(&info.head).await.commit.unwrap();
    let base = with_pointers(&world, &[("a.bin", "theirs"), ("b.bin", "theirs")]);
    let request = PrepareTree { resume_at: Some(&head), ..world.request() };
    assert_eq!(world.workspaces.prepare(request).await.unwrap().notes, Vec::<String>::new());
    let merged = world.workspaces.merge_base_into(&world.loop_id, &world.repo, &head, &base).await.unwrap();
    assert_eq!(merged, MergeOutcome::Conflict { files: vec!["a.bin".to_owned()] });
    assert_eq!((read(&info.dir, "a.bin"), read(&info.dir, "b.bin")), ("ours".into(), "theirs".into()));
    let merge = world.commit_with(&head, Some(&base)).await;
    assert_eq!(merge.refused, Vec::<String>::new());
    let merge = merge.commit.unwrap();
    assert_eq!((world.content(&merge, "a.bin"), world.content(&merge, "b.bin")), (pointer("ours"), pointer("theirs")));
}

/// See docs/research/threats.md#g22.
#[tokio::test]
async fn pointer_to_content_that_the_base_does_not_name_is_refused() {
    for installed in [true, false] {
        let mut world = WorkspaceWorld::new();
        if installed && !has_git_lfs(&world) {
            continue;
        }
        world.workspaces.has_git_lfs = installed;
        let base = with_pointers(&world, &[("a.bin", "one")]);
        ["one", "secret"].into_iter().for_each(|content| put(&world, content));
        let info = world.prepare().await;
        let write = |path: &str, content: &str| std::fs::write(info.dir.join(path), pointer(content) + "\n").unwrap();
        write("hand.bin", "secret");
        write("moved.bin", "one");
        std::fs::write(info.dir.join("broken.bin"), "version https://git-lfs.github.com/spec/v1\n").unwrap();
        let commit = world.commit(&base).await;
        let named: Vec<&str> = commit.refused.iter().filter_map(|text| text.split(' ').next()).collect();
        assert_eq!(named, ["`broken.bin`", "`hand.bin`"], "{:?}", commit.refused);
        assert!(commit.refused[1].contains("is a pointer of Git LFS that no file of the base has"));
        let head = commit.commit.unwrap();
        assert_eq!(world.content(&head, "moved.bin"), pointer("one"));
        assert!(!world.files_of(&head).contains("hand.bin"));
        world.workspaces.reset(&world.loop_id, &world.repo, &head).await.unwrap();
        assert!(!object(&world.mirror(), "secret").exists());
        assert_eq!(read(&info.dir, "moved.bin"), if installed { "one".to_owned() } else { pointer("one") + "\n" });
    }
}

#[tokio::test]
async fn without_git_lfs_changed_contents_are_refused() {
    let mut world = WorkspaceWorld::new();
    world.workspaces.has_git_lfs = false;
    let base = with_pointers(&world, &[("a.bin", "one")]);
    let info = world.prepare().await;
    assert_eq!(
        info.notes,
        [
            "Files that Git LFS stores are pointers in the work tree, and changes of them are not committed, because git-lfs is \
             not installed"
        ]
    );
    sh(&info.dir, "echo content >a.bin; echo new >b.bin; echo two >README.md");
    let commit = world.commit(&base).await;
    let named: Vec<&str> = commit.refused.iter().filter_map(|text| text.split(' ').next()).collect();
    assert_eq!(named, ["`a.bin`", "`b.bin`"], "{:?}", commit.refused);
    let head = commit.commit.unwrap();
    assert_eq!((world.content(&head, "a.bin"), world.content(&head, "README.md")), (pointer("one"), "two".into()));
    assert!(!world.files_of(&head).contains("b.bin"));
}

#[tokio::test]
async fn missing_contents_stay_pointers_and_can_be_replaced() {
    let world = WorkspaceWorld::new();
    if !has_git_lfs(&world) {
        return;
    }
    let base = with_pointers(&world, &[("a.bin", "one"), ("b.bin", "two")]);
    put(&world, "two");
    let info = world.prepare().await;
    let [note] = &info.notes[..] else { panic!("one note: {:?}", info.notes) };
    assert!(note.starts_with("1 file that Git LFS stores is a pointer in the work tree, because the forge"), "{note}");
    assert_eq!((read(&info.dir, "a.bin").trim(), read(&info.dir, "b.bin").as_str()), (&*pointer("one"), "two"));
    sh(&info.dir, "printf three >a.bin");
    let commit = world.commit(&base).await;
    assert_eq!(commit.refused, Vec::<String>::new());
    assert_eq!(world.content(&commit.commit.unwrap(), "a.bin"), pointer("three"));
}

/// See docs/research/threats.md#g22 and docs/research/threats.md#i7.
#[tokio::test]
async fn contents_of_git_lfs_are_scanned_for_secrets_and_bounded() {
    let world = WorkspaceWorld::new();
    if !has_git_lfs(&world) {
        return;
    }
    let base = with_pointers(&world, &[("a.bin", "one")]);
    put(&world, "one");
    let info = world.prepare().await;
    let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
    std::fs::write(info.dir.join("a.bin"), format!("token {token}\n")).unwrap();
    let commit = world.commit(&base).await;
    assert!(commit.leak.is_some_and(|leak| leak.place.contains("a.bin")));
    // Scanned first as a text, then as the content that it names.
    let content = format!("other {token}\n");
    std::fs::write(info.dir.join("notes.txt"), pointer(&content) + "\n").unwrap();
    std::fs::write(info.dir.join("a.bin"), "one").unwrap();
    let text = world.commit(&base).await;
    assert_eq!(text.leak, None);
    std::fs::write(info.dir.join("a.bin"), content).unwrap();
    let commit = world.commit(&text.commit.unwrap()).await;
    assert!(commit.leak.is_some_and(|leak| leak.place.contains("a.bin")));
    world.workspaces.reset(&world.loop_id, &world.repo, &base).await.unwrap();
    sh(&info.dir, "truncate -s 65M a.bin; printf small >b.bin");
    let commit = world.commit(&base).await;
    assert!(commit.refused.len() == 1 && commit.refused[0].contains("at most 64 MiB"), "{:?}", commit.refused);
    let head = commit.commit.unwrap();
    assert_eq!((world.content(&head, "a.bin"), world.content(&head, "b.bin")), (pointer("one"), pointer("small")));
}

#[tokio::test]
async fn push_from_another_host_needs_the_contents_of_git_lfs() {
    let mut world = WorkspaceWorld::new();
    if !has_git_lfs(&world) {
        return;
    }
    with_pointers(&world, &[("a.bin", "one")]);
    put(&world, "one");
    let info = world.prepare().await;
    sh(&info.dir, "printf two >a.bin; printf three >b.bin");
    let commit = world.commit(&info.head).await.commit.unwrap();
    let saved = world.saved(&[&info.head]).await;
    world.move_to("second-host");
    let request = PrepareTree { resume_at: Some(&commit), ..world.request() };
    world.workspaces.unpack_commits(request, &saved).await.unwrap();
    world.workspaces.prepare(request).await.unwrap();
    put(&world, "three");
    let cleared = ClearedCommit::of_test(&commit);
    let push = PushRequest {
        loop_id: &world.loop_id,
        repo: &world.repo,
        access: &world.access,
        branch: BRANCH,
        commit: &cleared,
        expected: None,
    };
    let missing = world.workspaces.push(push).await.expect_err("a content is missing").to_string();
    assert!(missing.starts_with("the contents of a.bin in Git LFS are neither on the forge"), "{missing}");
    assert_eq!(world.forge_tip(BRANCH), None);
    put(&world, "two");
    assert_eq!(world.push(&commit, None).await, PushOutcome::Pushed);
}
