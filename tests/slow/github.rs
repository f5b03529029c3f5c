//! Behavior that GitHub alone has: tokens that are not known at once, refused pushes, installations that change.

use std::time::Duration;

use fake_forge::{Dialect, FakeFault, OpKind, ReviewDraft};
use ralph_bot::domain::loops::{LoopState, LoopStep};
use ralph_bot::domain::model::event::ReviewVerdict;
use ralph_bot::domain::model::ids::ForgeName;
use ralph_bot::forge::github::{EVENTS, PERMISSIONS};
use ralph_bot::forge::http::RateSettings;
use ralph_bot::store::outbox;

use crate::harness::setup::SECRET;
use crate::harness::{Setup, WILLING, World, prepared_story, story};

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
async fn unknown_new_token_loses_no_delivery() {
    for status in [401, 404] {
        let unknown = |world: &mut World| {
            as_app(world);
            world.forge.with(|state| state.new_token_refusals = Some((2, status)));
        };
        let setup = Setup { settling_ms: RateSettings::default().settling_ms, ..Setup::new(Dialect::GitHub) };
        prepared_story(setup, unknown, async |world| {
            let done = world.run().await;
            assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 1), "{status}: {}", done.why);
            let receipts = world.receipts().await;
            assert!(receipts.iter().all(|r| r.state != "rejected" && r.attempts <= 1), "{status}: {receipts:#?}");
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
    ("error: GH006: Protected branch update failed", ["is a protected branch", "the bot push to its branches"]),
    (
        "refusing to allow a GitHub App to create or update workflow `.github/workflows/x.yml` without `workflows` permission",
        ["may not change the workflow file `.github/workflows/x.yml`", "Workflows: write"],
    ),
    (
        "error: File big.bin is 123.00 MB; this exceeds GitHub's file size limit of 100.00 MB\nerror: GH001: Large files detected.",
        ["does not accept files of this size (big.bin)", "/ralph retry"],
    ),
    ("fatal: pack exceeds maximum allowed size (2.00 GiB)", ["has no space left", "space on the forge, then"]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_push_pauses_with_reason_and_continues_when_allowed() {
    for (printed, words) in REFUSED_PUSHES {
        story(Setup::new(Dialect::GitHub), async |world| {
            world.forge.refuse_pushes(world.repo, Some(printed)).expect("a rule");
            let paused = world.run().await;
            assert_eq!((paused.state, &paused.branch.pushed), (LoopState::Paused, &None), "{printed}: {}", paused.why);
            let [escalation] = world.escalations()[..] else { panic!("{printed}: one escalation") };
            let text = world.issue_of(escalation).body;
            assert!(words.iter().all(|word| text.contains(word)), "{printed}: {text}");
            world.forge.refuse_pushes(world.repo, None).expect("no rule");
            world.comment("/ralph resume").await;
            world.settle().await;
            let done = world.the_loop().await;
            // The prompt names files that are too large, and the agent runs once more.
            let runs = if printed.contains("size limit") { 2 } else { 1 };
            assert_eq!((done.state, done.iterations.len()), (LoopState::Review, runs), "{printed}: {}", done.why);
            assert!(world.escalations().is_empty(), "the escalation is closed");
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn push_to_a_failing_server_is_retried() {
    story(Setup::new(Dialect::GitHub), async |world| {
        world.forge.refuse_pushes(world.repo, Some("Internal Server Error")).expect("a rule");
        world.label().await;
        world.settle().await;
        let waiting = world.the_loop().await;
        assert_eq!((waiting.state, waiting.run.step), (LoopState::Running, LoopStep::Push), "{}", waiting.why);
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
    let agent =
        format!("echo 42 >answer.txt\nif test $RALPH_ITERATION = 1; then echo 'key: {key}' >settings.txt; fi\n");
    story(Setup::new(Dialect::GitHub).agent(&agent), async |world| {
        world.forge.protect_secret(world.repo, Some(key)).expect("a rule");
        let done = world.run().await;
        assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 2), "{}", done.why);
        assert_eq!(done.iterations[0].commit, None, "it is no part of the branch");
        assert!(world.escalations().is_empty());
        assert_eq!(commits_with(world, key), 0, "the history holds it");
        assert_eq!(world.file(&done.branch.name, "answer.txt").await.as_deref(), Some("42\n"));
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
        let head = paused.branch.head.clone().expect("a commit");
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
        let shown = world.git(&["log", "-1", "--format=%an <%ae>|%cn <%ce>", &done.branch.name]);
        let one = format!("ralph-bot[bot] <{}+ralph-bot[bot]@users.noreply.127.0.0.1>", world.bot.id);
        assert_eq!(shown.trim(), format!("{one}|{one}"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_on_gitea_have_the_address_of_the_bots_account() {
    story(Setup::new(Dialect::Gitea), async |world| {
        let done = world.run().await;
        let shown = world.git(&["log", "-1", "--format=%an <%ae>", &done.branch.name]);
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
    let config = format!("commits: {{ sign: git, key_file: '{}' }}", key.display());
    story(Setup::new(Dialect::GitHub).agent(WILLING).config(&config), async |world| {
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let signers = format!("gpg.ssh.allowedSignersFile={}", allowed.display());
        let shown = world.git(&["-c", &signers, "log", "--format=%G?", &format!("main..{}", done.branch.name)]);
        assert!(!shown.is_empty() && shown.lines().all(|line| line == "G"), "{shown}");
        // A key that cannot sign stops the push with its reason; nothing unsigned leaves.
        std::fs::write(&key, "no key\n").expect("written");
        let pull = done.pull.opened.as_ref().expect("a pull request").number;
        let review = ReviewDraft {
            verdict: ReviewVerdict::ChangesRequested,
            body: "Once more, please.".into(),
            remarks: Vec::new(),
        };
        world.forge.review(&world.maintainer, world.repo, pull, &review).await.expect("reviewed");
        world.settle().await;
        let stopped = world.the_loop().await;
        assert_eq!(stopped.state, LoopState::Failed, "{}", stopped.why);
        assert!(stopped.why.contains("write a commit"), "{}", stopped.why);
        assert_eq!(world.forge.branch_sha(world.repo, &done.branch.name).await, done.branch.pushed);
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
    let keys =
        format!("commits: {{ sign: git, format: openpgp, key_id: {id}, gnupg_home: '{}' }}", home.path().display());
    story(Setup::new(Dialect::GitHub).config(&keys), async |world| {
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let commit = world.git(&["cat-file", "commit", &done.branch.name]);
        assert!(commit.contains("-----BEGIN PGP SIGNATURE-----"), "{commit}");
    })
    .await;
    run("gpgconf", &["--kill", "all"], home.path());
}

/// Sends the App's deliveries to the service instead of the repository webhook's.
fn deliver_as_app(world: &World) -> u64 {
    let address = world.app().address.expect("the service listens");
    world.forge.with(|state| {
        state.repo_mut(world.repo).expect("the repository").hooks.clear();
        let app = state.apps.values_mut().next().expect("an App");
        app.hook.url = format!("http://{address}/webhooks/forge");
        app.hook.secret = SECRET.to_owned();
        app.hook.active = true;
        app.id.unsigned_abs()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loop_stops_while_the_installation_is_suspended_or_lacks_the_repository() {
    for suspends in [true, false] {
        prepared_story(Setup::new(Dialect::GitHub), as_app, async |world| {
            let app = deliver_as_app(world);
            let change = |on: bool| match suspends {
                true => world.forge.suspend(app, on),
                false => world.forge.install_on(app, world.repo, !on),
            };
            world.label().await;
            world.settle_until("the agent's turn", |l| l.run.step == LoopStep::Agent).await;
            change(true);
            world.settle().await;
            world.clock.advance_ms(60_000);
            world.reconcile().await;
            let stopped = world.the_loop().await;
            assert_eq!(stopped.state, LoopState::Paused, "{suspends}: {}", stopped.why);
            let words = if suspends { "a suspended installation" } else { "the bot was removed" };
            assert!(stopped.why.contains(words) && stopped.why.contains("continues by itself"), "{}", stopped.why);
            assert_eq!(done_by_bot(world, OpKind::PullOpened), 0);
            change(false);
            world.settle().await;
            world.clock.advance_ms(60_000);
            world.reconcile().await;
            world.recover().await;
            let done = world.the_loop().await;
            assert_eq!(done.state, LoopState::Review, "{suspends}: {}", done.why);
            let heard = world.delivery_outcomes().await;
            let about = heard.iter().filter(|(_, why)| why.contains("installation changed")).count();
            assert_eq!(about, 2, "{heard:#?}");
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repository_added_to_the_installation_is_reconciled() {
    let without = |world: &mut World| {
        as_app(world);
        let repo = world.repo;
        world.forge.with(|state| state.apps.values_mut().next().expect("an App").excluded.insert(repo));
    };
    prepared_story(Setup::new(Dialect::GitHub), without, async |world| {
        let app = deliver_as_app(world);
        world.label().await;
        world.settle().await;
        assert!(world.newest().await.is_none(), "the App does not see the repository");
        world.clock.advance_ms(60_000);
        world.forge.install_on(app, world.repo, true);
        world.settle().await;
        world.reconcile().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_delivery_is_processed_after_a_redelivery() {
    story(Setup::new(Dialect::GitHub), async |world| {
        world.label().await;
        world.forge.flush().await;
        // As after its last attempt.
        let given_up = world.engine().store.write(|c| {
            c.execute("UPDATE inbox SET state = 'dead', attempts = 21, reason = 'no answer'", [])?;
            Ok(())
        });
        given_up.await.expect("changed");
        world.settle().await;
        assert!(world.newest().await.is_none());
        for one in world.forge.hooks().log() {
            world.forge.hooks().redeliver(&one);
        }
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
    })
    .await;
}

/// Refusal of a comment in a conversation that is locked for the bot.
fn locked() -> FakeFault {
    FakeFault::Respond {
        status: 403,
        headers: Vec::new(),
        body: r#"{"message": "Unable to create comment because issue is locked."}"#.into(),
        apply: false,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn comments_for_a_locked_conversation_wait_without_delaying_others() {
    story(Setup::new(Dialect::GitHub), async |world| {
        world.forge.faults().next(10_000, "POST", r"/issues/\d+/comments$", locked()).expect("a pattern");
        world.label().await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert!(done.pull.opened.is_some() && world.bot_comments().is_empty());
        assert!(!world.is_draft(&world.the_pull().await), "the pull request is ready");
        let waiting =
            world.engine().store.read(|c| outbox::locked_out(c, &ForgeName::new("forge"))).await.expect("read");
        assert!(waiting.0 >= 2 && waiting.1.is_some_and(|why| why.contains("unlock it")), "{}", waiting.0);
        world.forge.faults().clear();
        for _ in 0..3 {
            world.advance(Duration::from_secs(3_600)).await;
        }
        world.recover().await;
        assert!(world.bot_commented("Ready for review"), "{:#?}", world.bot_comments());
        assert!(world.receipts().await.iter().all(|r| r.state != "rejected"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missed_delivery_of_the_app_is_requested_again_and_needs_no_confirmation() {
    prepared_story(Setup::new(Dialect::GitHub), as_app, async |world| {
        deliver_as_app(world);
        world.reconcile().await;
        world.clock.advance_ms(600_000);
        world.forge.hooks().drop_next(3);
        world.label().await;
        world.forge.flush().await;
        world.forge.hooks().drop_next(0);
        world.clock.advance_ms(30_000);
        let lost: Vec<_> = world.forge.hooks().log().into_iter().filter(|one| one.status.is_none()).collect();
        assert!(lost.iter().any(|one| one.sent.body.contains("\"labeled\"")), "the story loses the label's delivery");
        world.reconcile().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let log = world.forge.hooks().log();
        for one in &lost {
            let again: Vec<_> = log.iter().filter(|other| other.id == one.id).collect();
            assert_eq!(again.len(), 2, "asked for once: {}", one.sent.event.0);
            assert_eq!(again[1].status, Some(202));
        }
        // Nothing that arrived is asked for again.
        world.clock.advance_ms(60_000);
        world.reconcile().await;
        assert!(world.forge.hooks().log().iter().all(|one| log.iter().filter(|o| o.id == one.id).count() <= 2));
        let asked = world.forge.requests().iter().filter(|r| r.path.ends_with("/attempts")).count();
        assert_eq!(asked, lost.len());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn comments_of_a_locked_issue_are_on_the_escalation_without_a_pull_request() {
    story(Setup::new(Dialect::GitHub).agent("true"), async |world| {
        let own = format!("/issues/{}/comments$", world.issue);
        world.forge.faults().next(10_000, "POST", &own, locked()).expect("a pattern");
        let stopped = world.run().await;
        assert_eq!((stopped.state, stopped.pull.opened.is_none()), (LoopState::Paused, true), "{}", stopped.why);
        let [escalation] = world.escalations()[..] else { panic!("one escalation: {:?}", world.escalations()) };
        for _ in 0..3 {
            world.advance(Duration::from_secs(3_600)).await;
        }
        let comments = world.bot_comments_on(escalation);
        let words = format!("> The conversation of #{} is locked for the bot, so this comment is here.", world.issue);
        assert!(comments.iter().any(|body| body.starts_with(&words)), "{comments:#?}");
        assert!(world.bot_comments().is_empty());
        assert!(world.receipts().await.iter().all(|r| r.state != "rejected"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn comments_of_a_locked_issue_are_on_the_pull_request() {
    story(Setup::new(Dialect::GitHub), async |world| {
        let own = format!("/issues/{}/comments$", world.issue);
        world.forge.faults().next(10_000, "POST", &own, locked()).expect("a pattern");
        world.run().await;
        for _ in 0..3 {
            world.advance(Duration::from_secs(3_600)).await;
        }
        let pull = world.the_pull().await.number;
        let comments = world.bot_comments_on(pull);
        let words = format!("> The conversation of #{} is locked for the bot, so this comment is here.", world.issue);
        let of = |text: &str| comments.iter().filter(|body| body.starts_with(&words) && body.contains(text)).count();
        assert_eq!((of("### ✅ Ready for review: "), of("### Iteration 1 of 10")), (1, 1), "{comments:#?}");
        assert!(world.bot_comments().is_empty());
        assert!(world.receipts().await.iter().all(|r| r.state != "rejected"));
        world.forge.faults().clear();
        world.recover().await;
        world.advance(Duration::from_secs(7_200)).await;
        assert_eq!(world.bot_comments_on(pull).len(), comments.len(), "nothing is written twice");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_run_of_a_stopped_loop_annotates_the_lines_in_check_output() {
    let check = "test \"$(cat answer.txt)\" = 42 || { echo 'README.md:1: too short'; echo 'answer.txt:99: no such line'; echo 'gone.c:1: x'; exit 1; }\n";
    let setup = Setup::new(Dialect::GitHub)
        .agent("echo 43 >answer.txt\n")
        .file("check.sh", check)
        .config("limits: { iterations: 1 }");
    prepared_story(setup, as_app, async |world| {
        let stopped = world.run().await;
        assert_eq!(stopped.state, LoopState::LimitReached, "{}", stopped.why);
        world.advance(Duration::from_secs(120)).await;
        let runs = world.forge.with(|state| state.repo(world.repo).expect("the repository").check_runs.clone());
        let run = runs.iter().find(|run| run.name == "ralph/verified").expect("a check run");
        assert_eq!(run.conclusion.as_deref(), Some("failure"));
        assert_eq!(run.annotations, [("README.md".to_owned(), 1, "README.md:1: too short".to_owned())]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_of_an_unchanged_repository_use_no_budget() {
    story(Setup::new(Dialect::GitHub), async |world| {
        world.run().await;
        world.reconcile().await;
        let seen = world.forge.requests().len();
        world.reconcile().await;
        // Git has no budget.
        let mut looked = world.forge.requests().split_off(seen);
        looked.retain(|one| one.path.starts_with("/api/"));
        let whole: Vec<_> = looked.iter().filter(|one| one.method == "GET" && one.status == Some(200)).collect();
        let unchanged = looked.iter().filter(|one| one.status == Some(304)).count();
        // Only lists of changes since a time, which differs, are read again.
        assert!(whole.iter().all(|one| one.query.contains("since=")), "{whole:#?}");
        assert!(unchanged > whole.len(), "{unchanged} of {}", looked.len());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remark_is_acknowledged_answered_with_its_commit_and_resolved() {
    story(Setup::new(Dialect::GitHub), async |world| {
        world.run().await;
        let pull = world.the_pull().await.number;
        world.write_agent("echo 42 >answer.txt\necho '# Why' >>README.md\n");
        let remarks = vec![("answer.txt".to_owned(), 1, "Say why, please.".to_owned())];
        let draft = ReviewDraft { verdict: ReviewVerdict::ChangesRequested, body: String::new(), remarks };
        world.forge.review(&world.maintainer, world.repo, pull, &draft).await.expect("reviewed");
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 2), "{}", done.why);
        let issue = world.issue_of(pull);
        let all: Vec<_> = issue.pull.iter().flat_map(|pull| &pull.reviews).flat_map(|review| &review.remarks).collect();
        let [remark, answer] = all[..] else { panic!("{all:#?}") };
        assert_eq!(remark.reactions.iter().map(|one| one.content.as_str()).collect::<Vec<_>>(), ["eyes"]);
        assert_eq!((answer.author, answer.reply_to), (Some(world.bot.id), Some(remark.id)));
        assert!(
            answer.body.contains(&format!("Changed in {}", done.branch.head.clone().expect("a commit"))),
            "{}",
            answer.body
        );
        assert!(remark.resolved);
        // A further round answers nothing twice.
        world.comment("/ralph guide Once more, please.").await;
        world.settle().await;
        let issue = world.issue_of(pull);
        assert_eq!(issue.pull.iter().flat_map(|pull| &pull.reviews).flat_map(|review| &review.remarks).count(), 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_of_states_are_exclusive_on_gitea_with_a_scoped_prefix() {
    let mut setup = Setup::new(Dialect::Gitea);
    setup.config = "label_prefix: ralph/".into();
    story(setup, async |world| {
        world.forge.label(&world.maintainer, world.repo, world.issue, "ralph/run").await.expect("labeled");
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
        assert_eq!(world.forge.labels(world.repo, world.issue), ["ralph/run", "ralph/review"]);
        let exclusive = world.forge.with(|state| {
            let labels = &state.repo(world.repo).expect("the repository").labels;
            labels.iter().filter(|label| label.exclusive).map(|label| label.name.clone()).collect::<Vec<_>>()
        });
        assert!(
            exclusive.contains(&"ralph/running".to_owned()) && !exclusive.contains(&"ralph/run".to_owned()),
            "{exclusive:?}"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn team_is_requested_as_reviewer() {
    for dialect in [Dialect::GitHub, Dialect::Gitea] {
        let file = "checks:\n  - name: answer\n    run: sh check.sh\nreviewers: [acme/leads]\n";
        let move_to_org = |world: &mut World| {
            world.forge.with(|state| {
                let org = state.create_organization(world.maintainer.id, "acme").expect("an organization");
                let team = state.create_team(world.maintainer.id, "acme", "leads", fake_forge::Access::Write, false);
                let (team, repo) = (team.expect("a team"), world.repo);
                let joined = state.edit_team(world.maintainer.id, team, |team| {
                    team.repos.insert(repo);
                });
                joined.expect("joined");
                state.repo_mut(repo).expect("the repository").owner = org.id;
                state.grant(repo, world.maintainer.id, fake_forge::Access::Admin).expect("granted");
            });
        };
        prepared_story(Setup::new(dialect).file(".ralph.yml", file), move_to_org, async |world| {
            let done = world.run().await;
            assert_eq!(done.state, LoopState::Review, "{dialect:?}: {}", done.why);
            let pull = world.the_pull().await.pull.expect("a pull request");
            assert_eq!(pull.requested_teams, ["leads"], "{dialect:?}");
        })
        .await;
    }
}
