//! `local` on real repositories, with a script for an agent.

use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::cli::Color;
use crate::process::{self, ProcessSpec};

const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

async fn git(dir: &Path, args: &[&str]) -> String {
    let spec = ProcessSpec::new("git", dir)
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=trunk"])
        .args(args.iter().copied())
        .env("PATH", PATH)
        .env("HOME", dir);
    let finished = process::run(spec, &CancellationToken::new(), None).await.expect("git runs");
    assert!(finished.success(), "git {args:?}: {}", finished.stderr.text());
    finished.stdout.text().trim().to_owned()
}

/// A repository with one commit, on the branch `trunk`.
async fn repository(folder: &Path) -> PathBuf {
    let repo = folder.join("a project");
    std::fs::create_dir(&repo).expect("made");
    std::fs::write(repo.join("answer.txt"), "wrong\n").expect("written");
    git(&repo, &["init", "--quiet"]).await;
    git(&repo, &["add", "."]).await;
    git(&repo, &["commit", "--quiet", "-m", "first"]).await;
    repo
}

struct LocalSetup {
    folder: tempfile::TempDir,
    repo: PathBuf,
    global: Global,
    env: Env,
}

async fn setup(script: &str) -> LocalSetup {
    let folder = tempfile::tempdir().expect("a folder");
    let repo = repository(folder.path()).await;
    let file = folder.path().join("ralph-control.yaml");
    let text = format!(
        "sandbox: {{ required: none }}
backends: {{ mine: {{ type: script, command: [sh, -c, {}] }} }}
",
        serde_json::Value::from(script)
    );
    std::fs::write(&file, text).expect("written");
    let global = Global { config: Some(file), json: true, color: Color::Never };
    let env = Env::of([("PATH", PATH), ("HOME", "/")]);
    LocalSetup { folder, repo, global, env }
}

fn args(setup: &LocalSetup, more: &[&str]) -> LocalArgs {
    #[derive(clap::Parser)]
    struct LocalLine {
        #[command(flatten)]
        args: LocalArgs,
    }
    let repo = setup.repo.display().to_string();
    let line = ["x", "--repo", &repo].into_iter().chain(more.iter().copied());
    <LocalLine as clap::Parser>::try_parse_from(line).expect("arguments").args
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_ends_verified_on_a_branch_of_its_own() {
    let setup =
        setup("cat > /dev/null; echo right > answer.txt; echo '{\"summary\":\"put it right\"}' > \"$RALPH_REPORT\"")
            .await;
    let args = args(&setup, &["--task", "# Put the answer right", "--check", "grep -q right answer.txt"]);
    let code = local(&args, &setup.global, &setup.env).await.expect("it ran");
    assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::SUCCESS));
    let branches = git(&setup.repo, &["for-each-ref", "--format=%(refname:short)", "refs/heads"]).await;
    assert_eq!(branches, "ralph/1-put-the-answer-right\ntrunk");
    assert_eq!(git(&setup.repo, &["show", "ralph/1-put-the-answer-right:answer.txt"]).await, "right");
    assert_eq!(git(&setup.repo, &["show", "trunk:answer.txt"]).await, "wrong", "the branch at work is left alone");
    let checked_out = std::fs::read_to_string(setup.repo.join("answer.txt")).expect("read");
    assert_eq!(checked_out, "wrong\n", "so are the files");
    let log = git(&setup.repo, &["log", "-1", "--format=%B", "ralph/1-put-the-answer-right"]).await;
    assert!(log.starts_with("ralph: iteration 1: put it right"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_run_takes_another_branch_and_a_limit_is_a_failure() {
    let setup = setup("cat > /dev/null; date +%N > noise.txt").await;
    git(&setup.repo, &["branch", "ralph/7-earlier"]).await;
    let data = setup.folder.path().join("kept");
    let data = data.display().to_string();
    let more = ["--task", "Fix it", "--check", "false", "--max-iterations", "1", "--data", &data];
    let code = local(&args(&setup, &more), &setup.global, &setup.env).await.expect("it ran");
    assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::FAILURE));
    let branches = git(&setup.repo, &["for-each-ref", "--format=%(refname:short)", "refs/heads/ralph"]).await;
    assert_eq!(branches, "ralph/7-earlier\nralph/8-fix-it");
    assert!(setup.folder.path().join("kept/ralph.db").is_file(), "--data keeps the history");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_to_do_is_no_failure() {
    let setup = setup("exit 1").await;
    let code = local(&args(&setup, &["--task", "Fix it", "--check", "true"]), &setup.global, &setup.env).await;
    assert_eq!(format!("{:?}", code.expect("it ran")), format!("{:?}", ExitCode::SUCCESS));
    assert_eq!(git(&setup.repo, &["for-each-ref", "--format=%(refname:short)", "refs/heads"]).await, "trunk");
}

#[tokio::test]
async fn what_cannot_be_worked_on_is_told_before_anything_runs() {
    let setup = setup("true").await;
    let fails = async |more: &[&str], says: &str| {
        let error = local(&args(&setup, more), &setup.global, &setup.env).await.expect_err(says);
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(error.exit_code(), 2, "{error}");
    };
    fails(&["--task", "  "], "--task is empty").await;
    fails(&["--task", "x", "--check", " "], "--check number 1 is empty").await;
    fails(&["--task", "x", "--backend", "other"], "there is no backend `other`; available: mine").await;

    let lost = LocalSetup { repo: setup.folder.path().to_path_buf(), ..self::setup("true").await };
    let error = local(&args(&lost, &["--task", "x"]), &lost.global, &lost.env).await.expect_err("no repository");
    assert!(error.to_string().contains("is not in a git repository"), "{error}");

    git(&setup.repo, &["checkout", "--quiet", "--detach"]).await;
    fails(&["--task", "x"], "has no branch checked out").await;
}

#[test]
fn tasks_come_from_text_and_from_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("task.md");
    std::fs::write(&file, "\n## Make it fast\n\nVery.\n").expect("written");
    let read = task(&file.display().to_string()).expect("a task");
    assert_eq!(read, ("Make it fast".to_owned(), "## Make it fast\n\nVery.".to_owned()));
    assert_eq!(task("Fix it").expect("a task"), ("Fix it".to_owned(), "Fix it".to_owned()));
}
