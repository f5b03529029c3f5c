//! Repositories that keep files in Git LFS: agents and checks get the contents, and a push uploads the changed ones.

use data_encoding::HEXLOWER;
use fake_forge::{Dialect, FakeFault};
use ralph_bot::domain::loops::{Loop, LoopState, LoopStep};
use sha2::{Digest as _, Sha256};

use crate::harness::service::{Service, stop};
use crate::harness::{Setup, World, on_both_forges, on_one_forge, parts, story};

on_both_forges!(
    changed_asset_is_stored_as_a_pointer_and_uploaded,
    exceeded_quota_of_git_lfs_pauses_and_resume_uploads,
    status_names_a_forge_without_git_lfs,
);

on_one_forge!(
    handmade_pointer_is_not_committed,
    failed_transfer_is_retried,
    changed_asset_is_not_committed_without_git_lfs,
);

/// Number of times that a fault may occur.
const FOREVER: u32 = 10_000;
const BATCH: &str = "/info/lfs/objects/batch$";

fn pointer(content: &str) -> String {
    let digest = HEXLOWER.encode(&Sha256::digest(content));
    format!("version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {}\n", content.len())
}

fn has_git_lfs() -> bool {
    parts::program(&["git-lfs"], "install the package git-lfs").is_some()
}

/// A repository with the asset `data.bin` of content `old`, and a check that expects `new`. The agent changes the content and
/// fails if the tree has a pointer.
fn setup(dialect: Dialect) -> Setup {
    Setup::new(dialect)
        .file(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
        .file("data.bin", &pointer("old"))
        .file(".ralph.yml", "checks:\n  - name: asset\n    run: grep -qx new data.bin\n")
        .agent("grep -qx old data.bin && printf new >data.bin\n")
}

/// Puts the content of the base into the forge's LFS store.
fn put_old(world: &World) {
    let digest = HEXLOWER.encode(&Sha256::digest("old"));
    let folder = format!("lfs/objects/{}/{}", &digest[..2], &digest[2..4]);
    world.shell(&format!("mkdir -p {folder}; printf old >{folder}/{digest}"));
}

/// Whether the forge's LFS store has a content.
fn has(world: &World, content: &str) -> bool {
    let digest = HEXLOWER.encode(&Sha256::digest(content));
    let path = world.forge.repo_path(world.repo).join("lfs/objects").join(&digest[..2]).join(&digest[2..4]);
    std::fs::read_to_string(path.join(&digest)).is_ok_and(|found| found == content)
}

fn answer_batches(world: &World, status: u16, message: &str) {
    let body = format!("{{\"message\":\"{message}\"}}");
    let headers = vec![("content-type".to_owned(), "application/vnd.git-lfs+json".to_owned())];
    let fault = FakeFault::Respond { status, headers, body, apply: false };
    world.forge.faults().next(FOREVER, "POST", BATCH, fault).expect("a pattern");
}

async fn about_to_push(world: &World) {
    put_old(world);
    world.label().await;
    world.settle_until("the push", |l| l.run.step == LoopStep::Push).await;
}

async fn assert_uploaded(world: &World, done: &Loop, iterations: usize) {
    assert_eq!((done.state, done.iterations.len()), (LoopState::Review, iterations), "{}", done.why);
    assert_eq!(world.file(&done.branch.name, "data.bin").await, Some(pointer("new")));
    assert!(has(world, "new"), "the content was not uploaded");
}

async fn changed_asset_is_stored_as_a_pointer_and_uploaded(dialect: Dialect) {
    if !has_git_lfs() {
        return;
    }
    story(setup(dialect), async |world| {
        put_old(world);
        let done = world.run().await;
        assert_uploaded(world, &done, 1).await;
        assert!(!world.bot_commented("Git LFS"), "{:#?}", world.bot_comments());
    })
    .await;
}

async fn exceeded_quota_of_git_lfs_pauses_and_resume_uploads(dialect: Dialect) {
    if !has_git_lfs() {
        return;
    }
    story(setup(dialect), async |world| {
        about_to_push(world).await;
        answer_batches(world, 507, "This repository is over its data quota.");
        world.settle().await;
        let paused = world.the_loop().await;
        assert_eq!((paused.state, &paused.branch.pushed), (LoopState::Paused, &None), "{}", paused.why);
        let [escalation] = world.escalations()[..] else { panic!("one escalation") };
        let text = world.issue_of(escalation).body;
        assert!(text.contains("no space left") && text.contains("/ralph resume"), "{text}");
        world.forge.faults().clear();
        world.comment("/ralph resume").await;
        world.settle().await;
        assert_uploaded(world, &world.the_loop().await, 1).await;
    })
    .await;
}

async fn status_names_a_forge_without_git_lfs(dialect: Dialect) {
    if !has_git_lfs() {
        return;
    }
    let setup = setup(dialect).file(".ralph.yml", "checks:\n  - name: answer\n    run: sh check.sh\n");
    story(setup.agent("echo 42 >answer.txt\n"), async |world| {
        answer_batches(world, 404, "Not Found");
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let status = world.bot_comments().first().cloned().expect("the status");
        assert!(status.contains("1 file that Git LFS stores is a pointer in the work tree"), "{status}");
        assert_eq!(world.file(&done.branch.name, "data.bin").await, Some(pointer("old")));
    })
    .await;
}

async fn handmade_pointer_is_not_committed(dialect: Dialect) {
    if !has_git_lfs() {
        return;
    }
    let text = pointer("of others").replace('\n', "\\n");
    let agent = format!("printf new >data.bin; test $RALPH_ITERATION != 1 || printf '{text}' >other.bin\n");
    story(setup(dialect).agent(&agent), async |world| {
        put_old(world);
        let done = world.run().await;
        assert_uploaded(world, &done, 2).await;
        assert_eq!(world.file(&done.branch.name, "other.bin").await, None);
        assert!(world.prompt(2).await.contains("`other.bin` is a pointer of Git LFS"));
        let pull = world.the_pull().await;
        assert!(pull.body.contains("`other.bin` is a pointer of Git LFS"), "{}", pull.body);
    })
    .await;
}

async fn failed_transfer_is_retried(dialect: Dialect) {
    if !has_git_lfs() {
        return;
    }
    story(setup(dialect), async |world| {
        about_to_push(world).await;
        let fault = FakeFault::Reset { apply: false };
        world.forge.faults().next(FOREVER, "POST", BATCH, fault).expect("a pattern");
        world.settle().await;
        let waiting = world.the_loop().await;
        assert_eq!((waiting.state, waiting.run.step), (LoopState::Running, LoopStep::Push), "{}", waiting.why);
        world.forge.faults().clear();
        world.recover().await;
        assert_uploaded(world, &world.the_loop().await, 1).await;
        assert!(world.escalations().is_empty());
    })
    .await;
}

/// A mount hides git-lfs from the service.
async fn changed_asset_is_not_committed_without_git_lfs(dialect: Dialect) {
    let agent =
        "if [ $RALPH_ITERATION = 1 ]; then printf new >data.bin; echo note >notes.txt; else echo 42 >answer.txt; fi\n";
    let setup = setup(dialect).file(".ralph.yml", "checks:\n  - name: answer\n    run: sh check.sh\n").agent(agent);
    let service = Service::new(setup, false).await;
    let world = &service.world;
    put_old(world);
    let installed = which::which("git-lfs").ok();
    let hide = installed.map_or("true".to_owned(), |path| format!("mount --bind /dev/null '{}'", path.display()));
    let Some(mut child) = service.spawn_with_mounts(&hide, Vec::new()).await else { return };
    service.until("the service to listen", async || service.listens().await).await;
    world.label().await;
    let done = service.until_loop("the review", |l| l.state == LoopState::Review).await;
    service.wait_until_idle().await;
    assert_eq!(done.spent.iterations, 2, "{}", done.why);
    let status = world.bot_comments().first().cloned().expect("the status");
    let sentence = "Files that Git LFS stores are pointers in the work tree, and changes of them are not committed";
    assert!(status.contains(sentence) && status.contains("git-lfs is not installed"), "{status}");
    assert_eq!(world.file(&done.branch.name, "data.bin").await, Some(pointer("old")));
    assert_eq!(world.file(&done.branch.name, "notes.txt").await.as_deref(), Some("note\n"));
    let pull = world.issue_of(done.pull.opened.expect("a pull request").number);
    assert!(pull.body.contains("`data.bin`"), "{}", pull.body);
    assert!(stop(&mut child).await.success(), "{}", service.log());
    service.finish().await;
}
