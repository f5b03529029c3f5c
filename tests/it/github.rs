//! What GitHub does that other forges do not: tokens that are not known at once, refused pushes, installations that change.

use fake_forge::{Dialect, OpKind};
use ralph_bot::domain::loops::{LoopState, LoopStep};
use ralph_bot::forge::github::{EVENTS, PERMISSIONS};

use crate::harness::{Setup, World, prepared_story, story};

/// Makes the service an App that receives its deliveries from the repository's webhook.
fn as_app(world: &mut World) {
    let app = world.forge.add_app("Ralph Bot", PERMISSIONS, EVENTS, "", "");
    world.bot = app.bot;
    world.setup.credential = format!("app_id: {}, private_key_env: KEY", app.app_id);
    world.setup.env.push(("KEY", app.private_key_pem));
}

/// Number of operations of the bot of a kind.
fn done_by_bot(world: &World, kind: OpKind) -> usize {
    world.forge.ops().iter().filter(|op| op.kind == kind && op.actor.id == world.bot.id).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_that_is_not_known_yet_delays_and_loses_nothing() {
    for status in [401, 404] {
        let unknown = |world: &mut World| {
            as_app(world);
            world.forge.with(|state| state.new_token_refusals = Some((2, status)));
        };
        prepared_story(Setup::new(Dialect::GitHub), unknown, async |world| {
            let done = world.run().await;
            assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 1), "{status}: {}", done.why);
            let receipts = world.receipts().await;
            assert!(receipts.iter().all(|r| r.state == "done" && r.attempts <= 1), "{status}: {receipts:#?}");
            assert_eq!(done_by_bot(world, OpKind::PullOpened), 1);
        })
        .await;
    }
}

/// Refused pushes, each with words of the reason and of the way back that people read.
const REFUSED_PUSHES: [(&str, [&str; 2]); 5] = [
    (
        "error: GH013: Repository rule violations found\n\n- Commits must have verified signatures.",
        ["a ruleset of the repository refuses pushes", "Commits must have verified signatures"],
    ),
    ("error: GH006: Protected branch update failed", ["is a protected branch", "let the bot push to its branches"]),
    (
        "refusing to allow a GitHub App to create or update workflow `.github/workflows/x.yml` without `workflows` permission",
        ["may not change the workflow file `.github/workflows/x.yml`", "Workflows: write"],
    ),
    (
        "error: File big.bin is 123.00 MB; this exceeds GitHub's file size limit of 100.00 MB\nerror: GH001: Large files detected.",
        ["does not accept files of this size (big.bin)", "/ralph retry"],
    ),
    ("fatal: pack exceeds maximum allowed size (2.00 GiB)", ["has no space left", "make space on the forge"]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_push_pauses_with_its_reason_and_goes_on_when_allowed() {
    for (printed, words) in REFUSED_PUSHES {
        story(Setup::new(Dialect::GitHub), async |world| {
            world.forge.refuse_pushes(world.repo, Some(printed)).expect("a rule");
            let paused = world.run().await;
            assert_eq!((paused.state, &paused.pushed), (LoopState::Paused, &None), "{printed}: {}", paused.why);
            let [escalation] = world.escalations()[..] else { panic!("{printed}: one escalation") };
            let text = world.issue_of(escalation).body;
            assert!(words.iter().all(|word| text.contains(word)), "{printed}: {text}");
            world.forge.refuse_pushes(world.repo, None).expect("no rule");
            world.comment("/ralph resume").await;
            world.settle().await;
            let done = world.the_loop().await;
            assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 1), "{printed}: {}", done.why);
            assert!(world.escalations().is_empty(), "the escalation is closed");
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn push_that_met_a_failing_server_is_retried() {
    story(Setup::new(Dialect::GitHub), async |world| {
        world.forge.refuse_pushes(world.repo, Some("Internal Server Error")).expect("a rule");
        world.label().await;
        world.settle().await;
        let waiting = world.the_loop().await;
        assert_eq!((waiting.state, waiting.step), (LoopState::Running, LoopStep::Push), "{}", waiting.why);
        world.forge.refuse_pushes(world.repo, None).expect("no rule");
        world.recover().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
        assert!(world.escalations().is_empty());
    })
    .await;
}

/// Number of commits on the forge's branches whose files hold a text.
fn commits_with(world: &World, text: &str) -> usize {
    world.git(&["log", "--all", "--oneline", "-S", text]).lines().count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secret_found_by_the_forge_leaves_the_branch_before_the_next_push() {
    let key = "acme-key-8d2f";
    // The agent repeats the secret once, although it is told.
    let agent = format!(
        "echo 42 >answer.txt\nn=$(cat $HOME/runs 2>/dev/null || echo 0); echo $((n + 1)) >$HOME/runs\n\
         if test $n = 0; then echo 'key: {key}' >settings.txt; fi\n"
    );
    story(Setup::new(Dialect::GitHub).agent(&agent), async |world| {
        world.forge.protect_secret(world.repo, Some(key)).expect("a rule");
        let done = world.run().await;
        assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 2), "{}", done.why);
        assert_eq!(done.iterations[0].commit, None, "it is no part of the branch");
        assert!(world.escalations().is_empty());
        assert_eq!(commits_with(world, key), 0, "the history holds it");
        assert_eq!(world.file(&done.branch, "answer.txt").await.as_deref(), Some("42\n"));
        let told = world.prompt(2).await;
        assert!(told.contains("settings.txt:1") && told.contains("Acme API Key"), "{told}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secret_that_stays_pauses_the_loop_with_commit_and_file() {
    let key = "acme-key-8d2f";
    let agent = format!("echo 42 >answer.txt\necho 'key: {key}' >settings.txt\n");
    story(Setup::new(Dialect::GitHub).agent(&agent), async |world| {
        world.forge.protect_secret(world.repo, Some(key)).expect("a rule");
        let paused = world.run().await;
        assert_eq!((paused.state, paused.iterations.len()), (LoopState::Paused, 3), "{}", paused.why);
        let head = paused.head.clone().expect("a commit");
        let [escalation] = world.escalations()[..] else { panic!("one escalation") };
        let text = world.issue_of(escalation).body;
        assert!(text.contains("settings.txt:1") && text.contains(&head.as_str()[..9]), "{text}");
        assert_eq!(commits_with(world, key), 0, "the history holds it");
        // Somebody allows it on the forge.
        world.forge.protect_secret(world.repo, None).expect("no rule");
        world.comment("/ralph resume").await;
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_of_an_app_have_the_author_that_github_shows_as_the_app() {
    prepared_story(Setup::new(Dialect::GitHub), as_app, async |world| {
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let shown = world.git(&["log", "-1", "--format=%an <%ae>|%cn <%ce>", &done.branch]);
        let one = format!("ralph-bot[bot] <{}+ralph-bot[bot]@users.noreply.127.0.0.1>", world.bot.id);
        assert_eq!(shown.trim(), format!("{one}|{one}"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_on_gitea_have_the_address_of_the_bots_account() {
    story(Setup::new(Dialect::Gitea), async |world| {
        let done = world.run().await;
        let shown = world.git(&["log", "-1", "--format=%an <%ae>", &done.branch]);
        assert_eq!(shown.trim(), "ralph-bot <ralph-bot@noreply.localhost>");
    })
    .await;
}

/// Runs a program and returns its output.
#[expect(clippy::disallowed_methods, reason = "the story makes a key as an operator does")]
fn run(program: &str, arguments: &[&str], home: &std::path::Path) -> String {
    let mut command = std::process::Command::new(program);
    let output = command.args(arguments).env("GNUPGHOME", home).output().expect("the program runs");
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_are_signed_by_the_operators_ssh_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("signing");
    run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-C", "bot", "-f", &key.display().to_string()], folder.path());
    let public = std::fs::read_to_string(key.with_extension("pub")).expect("a public key");
    let allowed = folder.path().join("allowed");
    std::fs::write(&allowed, format!("* {public}")).expect("written");
    let setup = Setup::new(Dialect::GitHub).config(&format!("commits: {{ sign: git, key_file: '{}' }}", key.display()));
    story(setup, async |world| {
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let signers = format!("gpg.ssh.allowedSignersFile={}", allowed.display());
        let shown = world.git(&["-c", &signers, "log", "--format=%G?", &format!("main..{}", done.branch)]);
        assert!(!shown.is_empty() && shown.lines().all(|line| line == "G"), "{shown}");
        // A key that cannot sign stops the push with its reason; nothing unsigned leaves.
        std::fs::write(&key, "no key\n").expect("written");
        world.comment("/ralph guide Once more, please.").await;
        world.settle().await;
        let stopped = world.the_loop().await;
        assert_eq!(stopped.state, LoopState::Failed, "{}", stopped.why);
        assert!(stopped.why.contains("write a commit"), "{}", stopped.why);
        assert_eq!(world.forge.branch_sha(world.repo, &done.branch).await, done.pushed);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_are_signed_by_the_operators_openpgp_key() {
    let home = tempfile::Builder::new().prefix("gpg").tempdir().expect("a folder");
    let generate = ["--batch", "--passphrase", "", "--quick-generate-key", "bot@example.org", "ed25519", "sign"];
    run("gpg", &generate, home.path());
    let listed = run("gpg", &["--list-keys", "--with-colons"], home.path());
    let id = listed.lines().find_map(|line| line.strip_prefix("fpr:")).expect("a key").trim_matches(':').to_owned();
    let keys = format!("commits: {{ sign: git, format: openpgp, key_id: {id}, gnupg_home: '{}' }}", home.path().display());
    story(Setup::new(Dialect::GitHub).config(&keys), async |world| {
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let commit = world.git(&["cat-file", "commit", &done.branch]);
        assert!(commit.contains("-----BEGIN PGP SIGNATURE-----"), "{commit}");
    })
    .await;
    run("gpgconf", &["--kill", "all"], home.path());
}
