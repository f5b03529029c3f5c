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

/// Creates a repository with one commit, on the branch `trunk`.
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
    setup_with(script, "").await
}

/// Creates a repository and a configuration with further keys.
async fn setup_with(script: &str, keys: &str) -> LocalSetup {
    let folder = tempfile::tempdir().expect("a folder");
    let repo = repository(folder.path()).await;
    let file = folder.path().join("ralph-control.yaml");
    let text = format!(
        "sandbox: {{ required: none }}
backends: {{ mine: {{ type: script, command: [sh, -c, {}] }} }}
{keys}
",
        serde_json::Value::from(script)
    );
    std::fs::write(&file, text).expect("written");
    let global = Global { config: Some(file), json: true, color: Color::Never };
    let state = folder.path().join("state").display().to_string();
    let env = Env::of([("PATH", PATH), ("HOME", "/"), ("XDG_STATE_HOME", state.as_str())]);
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
async fn task_is_verified_on_its_own_branch() {
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
async fn second_run_uses_another_branch_and_limit_fails() {
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
async fn refused_backend_is_replaced_by_the_next_in_priority() {
    let setup = setup("").await;
    let refused = r#"cat > /dev/null; echo "You've hit your usage limit. Try again in 2 days."; exit 1"#;
    let text = format!(
        "sandbox: {{ required: none }}
backends:
  missing: {{ type: script, command: [/no/such/program] }}
  mine: {{ type: script, command: [sh, -c, {}] }}
  zealous: {{ type: script, command: [sh, -c, {}] }}
priority: {{ agent: [missing, zealous, mine] }}
",
        serde_json::Value::from("cat > /dev/null; echo right > answer.txt"),
        serde_json::Value::from(refused)
    );
    std::fs::write(setup.global.config.as_ref().expect("a file"), text).expect("written");
    let more = ["--task", "Fix it", "--check", "grep -q right answer.txt"];
    let done = run_to(&setup, &more, ExitCode::SUCCESS).await.remove(0);
    let served = &done.iterations[0].served;
    assert_eq!(served.backend, "mine");
    let [refused] = &served.switched[..] else { panic!("{:?}", served.switched) };
    assert!(refused.starts_with("zealous was left for a used-up quota: You've hit your usage limit"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn solved_task_succeeds_without_changes() {
    let setup = setup("exit 1").await;
    let code = local(&args(&setup, &["--task", "Fix it", "--check", "true"]), &setup.global, &setup.env).await;
    assert_eq!(format!("{:?}", code.expect("it ran")), format!("{:?}", ExitCode::SUCCESS));
    assert_eq!(git(&setup.repo, &["for-each-ref", "--format=%(refname:short)", "refs/heads"]).await, "trunk");
}

/// The tests of the repository pass before and after a feature that they do not test.
#[tokio::test(flavor = "multi_thread")]
async fn passing_repository_tests_do_not_finish_a_task() {
    let setup = setup("echo two > next.txt").await;
    std::fs::write(setup.repo.join("Makefile"), "test:\n\ttrue\n").expect("written");
    git(&setup.repo, &["add", "."]).await;
    git(&setup.repo, &["commit", "--quiet", "-m", "tests"]).await;
    let asked = run_to(&setup, &["--task", "Add next.txt"], ExitCode::FAILURE).await;
    assert_eq!((asked[0].state.as_str(), asked[0].spent.iterations), ("needs_criteria", 0), "{}", asked[0].why);
    assert!(!is_done(&asked[0]) && asked[0].why.contains("none shows when the task is done"), "{}", asked[0].why);
    let file = setup.folder.path().join("tasks.yaml");
    std::fs::write(&file, "tasks: [{ title: Add next.txt }]\n").expect("written");
    let name = file.display().to_string();
    let listed = run_to(&setup, &["--tasks", &name], ExitCode::FAILURE).await;
    let again = run_to(&setup, &["--tasks", &name], ExitCode::FAILURE).await;
    assert_eq!((listed.len(), again.len()), (1, 1), "the list continues the loop of the same task");
    assert!(
        again[0].version > listed[0].version && again[0].state.as_str() == "needs_criteria",
        "it is asked about again"
    );
    let more = ["--resume", again[0].id.as_str(), "--check", "test -f next.txt"];
    let done = run_to(&setup, &more, ExitCode::SUCCESS).await;
    assert_eq!(done[0].state.as_str(), "review", "{}", done[0].why);
}

#[tokio::test]
async fn unusable_input_is_reported_before_anything_runs() {
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

/// Runs with the arguments `more`, expects the exit code `code`, and returns the loops of the repository's default folder.
async fn run_to(setup: &LocalSetup, more: &[&str], code: ExitCode) -> Vec<Loop> {
    let ended = local(&args(setup, more), &setup.global, &setup.env).await.expect("it ran");
    assert_eq!(format!("{ended:?}"), format!("{code:?}"), "{more:?}");
    let forge = open(&args(setup, &["--list"]), &setup.env, true).await.expect("opened");
    let databases = FolderChoice::of(None, forge.repo(), &setup.env).databases();
    let store = crate::store::Store::attach(&databases[0]).expect("a database");
    let mut loops = session::loops_of(&store, &forge).await.expect("read");
    store.close().await;
    loops.reverse();
    loops
}

#[tokio::test(flavor = "multi_thread")]
async fn loop_at_limit_is_resumed_with_guidance() {
    let script = "if grep -q 'use the word right'; then echo right > answer.txt; else date +%N > noise.txt; fi";
    let setup = setup(script).await;
    let more = ["--task", "Fix it", "--check", "grep -q right answer.txt", "--max-iterations", "1"];
    let stopped = run_to(&setup, &more, ExitCode::FAILURE).await.remove(0);
    assert_eq!(stopped.state.as_str(), "limit_reached");
    let refused = local(&args(&setup, &["--resume"]), &setup.global, &setup.env).await.expect_err("at its limit");
    assert!(refused.to_string().contains("The only iteration is used: `--max-iterations 6`"), "{refused}");
    let unknown = local(&args(&setup, &["--resume", "r-9-aaaaaa"]), &setup.global, &setup.env).await;
    assert!(unknown.expect_err("unknown").to_string().contains("there is no loop r-9-aaaaaa"));

    let more = ["--resume", stopped.id.as_str(), "--max-iterations", "3", "--guide", "use the word right"];
    let done = run_to(&setup, &more, ExitCode::SUCCESS).await.remove(0);
    assert_eq!((done.state.as_str(), &done.id, done.spent.iterations), ("review", &stopped.id, 2));
    assert_eq!(git(&setup.repo, &["show", &format!("{}:answer.txt", done.branch.name)]).await, "right");
    let refused = local(&args(&setup, &["--resume", done.id.as_str()]), &setup.global, &setup.env).await;
    assert!(refused.expect_err("done").to_string().contains("it is done; add `--guide TEXT`"));
    assert!(
        local(&args(&setup, &["--resume"]), &setup.global, &setup.env)
            .await
            .expect_err("nothing is left")
            .to_string()
            .contains("there is no loop that is not done")
    );

    let forge = open(&args(&setup, &["--list"]), &setup.env, true).await.expect("opened");
    let database = FolderChoice::of(None, forge.repo(), &setup.env).databases().remove(0);
    let logs = database.parent().expect("a folder").join("logs").join(done.id.as_str());
    let read = |name: &str| std::fs::read_to_string(logs.join(name)).expect(name);
    assert!(read("001.md").contains("## Checks: 0 of 1 pass"), "{}", read("001.md"));
    assert!(read("002.md").contains("answer.txt"), "{}", read("002.md"));
    let summary = read("summary.md");
    assert!(summary.contains("- State: review") && summary.contains("--resume"), "{summary}");
    local(&args(&setup, &["--list"]), &setup.global, &setup.env).await.expect("listed");
}

/// See docs/research/threats.md#g17.
#[tokio::test(flavor = "multi_thread")]
async fn weakened_check_blocks_completion_until_accepted() {
    let setup = setup("sed -i s/true/false/ tsconfig.json; echo right > answer.txt").await;
    std::fs::write(setup.repo.join("tsconfig.json"), "{\n  \"strict\": true\n}\n").expect("written");
    git(&setup.repo, &["add", "."]).await;
    git(&setup.repo, &["commit", "--quiet", "-m", "a configuration"]).await;
    let check = "grep -q right answer.txt && ! grep -q true tsconfig.json";
    let more = ["--task", "Fix it", "--check", check, "--max-iterations", "1"];
    let stopped = run_to(&setup, &more, ExitCode::from(OPEN_FINDINGS)).await.remove(0);
    assert_eq!(stopped.state.as_str(), "limit_reached", "{}", stopped.why);
    let forge = open(&args(&setup, &["--list"]), &setup.env, true).await.expect("opened");
    let database = FolderChoice::of(None, forge.repo(), &setup.env).databases().remove(0);
    let logs = database.parent().expect("a folder").join("logs");
    let summary = |id: &LoopId| std::fs::read_to_string(logs.join(id.as_str()).join("summary.md")).expect("a summary");
    let listed = summary(&stopped.id);
    assert!(listed.contains("\n## Findings about tests\n\n- tsconfig.json"), "{listed}");
    assert!(listed.contains(": the configuration of a check was edited: "), "{listed}");
    let findings = serde_json::to_value(progress::TestFinding::of_branch(&stopped)).expect("JSON");
    assert_eq!((&findings[0]["path"], &findings[0]["kind"]), (&"tsconfig.json".into(), &"check_config_edited".into()));
    assert!(findings[0].get("accepted_by").is_none(), "{findings}");

    let more = ["--resume", stopped.id.as_str(), "--max-iterations", "3", "--accept-tests"];
    let done = run_to(&setup, &more, ExitCode::SUCCESS).await.remove(0);
    assert_eq!(done.state.as_str(), "review", "{}", done.why);
    let findings = serde_json::to_value(progress::TestFinding::of_branch(&done)).expect("JSON");
    assert_eq!(findings[0]["accepted_by"], "you", "{findings}");
    let accepted = summary(&done.id);
    assert!(accepted.contains("the configuration of a check was edited (accepted by you): "), "{accepted}");
    let again =
        local(&args(&setup, &["--resume", done.id.as_str(), "--accept-tests"]), &setup.global, &setup.env).await;
    assert!(again.expect_err("nothing is open").to_string().contains("no changes to tests that wait to be accepted"));
}

#[tokio::test(flavor = "multi_thread")]
async fn leftovers_of_killed_agent_are_not_committed() {
    let script = "cat > prompt; if grep -q 'was stopped before it ended' prompt; then
            folder=$(sed -n 's/.*Copies are in `\\([^`]*\\)`.*/\\1/p' prompt); rm prompt
            cp \"$folder/module.txt\" . && echo right > answer.txt
        else rm prompt; echo part > module.txt; echo junk > half.tmp; echo wrong again > answer.txt; sleep 60; fi";
    let setup = setup_with(script, "limits: { agent_timeout: 3s }").await;
    let more = ["--task", "Fix it", "--check", "grep -q right answer.txt && test -f module.txt"];
    let done = run_to(&setup, &more, ExitCode::SUCCESS).await.remove(0);
    assert_eq!((done.spent.iterations, done.iterations[0].set_aside.len()), (2, 2), "{:?}", done.iterations);
    let files = git(&setup.repo, &["ls-tree", "--name-only", &done.branch.name]).await;
    assert_eq!(files, "answer.txt\nmodule.txt", "the agent asked for one of the two files back");
    let committed = git(&setup.repo, &["show", &format!("{}~1:answer.txt", done.branch.name)]).await;
    assert_eq!(committed, "wrong again", "changes of known files are judged by the checks");
}

#[tokio::test(flavor = "multi_thread")]
async fn merged_or_deleted_branch_ends_loop() {
    let setup = setup("cat > /dev/null; echo right > answer.txt; date +%N > noise.txt").await;
    let more = ["--task", "Fix it", "--check", "grep -q right answer.txt"];
    run_to(&setup, &more, ExitCode::SUCCESS).await;
    let more = ["--task", "Fix it again", "--check", "grep -q right answer.txt"];
    let both = run_to(&setup, &more, ExitCode::SUCCESS).await;
    assert_eq!(both[1].issue.issue.0, 3, "after the number of the first one's pull request");
    git(&setup.repo, &["merge", "--quiet", "--ff-only", &both[0].branch.name]).await;
    git(&setup.repo, &["branch", "--quiet", "-D", &both[1].branch.name]).await;
    let more = ["--task", "Nothing", "--check", "true"];
    let all = run_to(&setup, &more, ExitCode::SUCCESS).await;
    let states: Vec<_> = all.iter().map(|known| known.state.as_str()).collect();
    assert_eq!(states, ["merged", "closed", "closed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn finished_tasks_are_not_repeated() {
    let script = "grep -q 'Task one' && echo one > one.txt; date +%N > noise.txt";
    let setup = setup(script).await;
    let file = setup.folder.path().join("tasks.yaml");
    let text = |of_two: u32| {
        format!(
            "defaults: {{ max_iterations: 1 }}\ntasks:
  - {{ title: Task one, checks: ['test -f one.txt'] }}
  - {{ title: Task two, checks: ['test -f two.txt'], max_iterations: {of_two} }}\n"
        )
    };
    std::fs::write(&file, text(1)).expect("written");
    let name = file.display().to_string();
    let more = ["--tasks", name.as_str(), "--jobs", "2"];
    let first = run_to(&setup, &more, ExitCode::FAILURE).await;
    let mut states: Vec<_> = first.iter().map(|l| (l.task.text.title(), l.state.as_str())).collect();
    states.sort_unstable();
    assert_eq!(states, [("Task one", "review"), ("Task two", "limit_reached")]);

    std::fs::write(&file, text(2)).expect("written");
    let again = run_to(&setup, &more, ExitCode::FAILURE).await;
    assert_eq!(again.len(), 2, "no task has a second loop");
    let iterations_of =
        |title: &str| again.iter().find(|l| l.task.text.title() == title).expect(title).spent.iterations;
    assert_eq!((iterations_of("Task one"), iterations_of("Task two")), (1, 2));

    std::fs::write(&file, "tasks:\n  - { titel: x }\n").expect("written");
    let error = local(&args(&setup, &more), &setup.global, &setup.env).await.expect_err("a wrong key");
    assert!(error.to_string().contains("tasks.yaml:2:7"), "{error}");
    assert_eq!(error.exit_code(), 2);
}

#[test]
fn next_steps_can_be_copied() {
    use crate::domain::lifecycle::samples;
    use crate::domain::loops::LoopState;

    let invocation = Invocation { repo: "a b".into(), data: Some("d".into()), config: None, lasting: true };
    let mut current = samples::fresh();
    let mut of = |state: LoopState, pushed: bool, used: u32| {
        current.state = state;
        current.branch.pushed = pushed.then(|| samples::sha(1));
        current.spent.iterations = used;
        let steps = next_steps::next_steps(&current, &invocation, "main", samples::NOW);
        steps.into_iter().map(|step| format!("{}: {}\n", step.purpose, step.command)).collect::<String>()
    };
    insta::assert_snapshot!(of(LoopState::Review, true, 1), @r"
        see the change: git diff main...ralph/42-parser-fails-on-empty-input
        take it over: git merge ralph/42-parser-fails-on-empty-input
        ask for more: ralph-bot local --repo 'a b' --data d --resume r-42-k7m2qa --guide 'TEXT'
        ");
    insta::assert_snapshot!(of(LoopState::Paused, false, 1), @r"
        continue: ralph-bot local --repo 'a b' --data d --resume r-42-k7m2qa
        continue with guidance: ralph-bot local --repo 'a b' --data d --resume r-42-k7m2qa --guide 'TEXT'
        ");
    insta::assert_snapshot!(of(LoopState::LimitReached, true, 1_000), @r"
        see the change: git diff main...ralph/42-parser-fails-on-empty-input
        continue: ralph-bot local --repo 'a b' --data d --resume r-42-k7m2qa --max-iterations 15
        continue with guidance: ralph-bot local --repo 'a b' --data d --resume r-42-k7m2qa --max-iterations 15 --guide 'TEXT'
        ");
    insta::assert_snapshot!(of(LoopState::NeedsCriteria, false, 0), @r"name a check: ralph-bot local --repo 'a b' --data d --resume r-42-k7m2qa --check 'COMMAND'");
    insta::assert_snapshot!(of(LoopState::NeedsApproval, false, 0), @r"
        approve the plan: ralph-bot local --repo 'a b' --data d --resume r-42-k7m2qa
        approve it with changes: ralph-bot local --repo 'a b' --data d --resume r-42-k7m2qa --guide 'TEXT'
        ");
    insta::assert_snapshot!(of(LoopState::NeedsAnswer, false, 0), @r"approve the plan with answers: ralph-bot local --repo 'a b' --data d --resume r-42-k7m2qa --guide 'TEXT'");
    assert_eq!(of(LoopState::Closed, false, 0), "");
    assert_eq!(next_steps::quoted("it's"), r"'it'\''s'");
}

#[test]
fn uncommitted_changes_are_listed() {
    let event = progress::ProgressEvent::Iteration {
        iteration: 1,
        summary: "did it".into(),
        problem: String::new(),
        held: 1,
        total: 1,
        percent: 100,
        files: 1,
        added: 2,
        removed: 1,
        cost_usd: 0.0,
        seconds: 3,
        failing: Vec::new(),
        findings: Vec::new(),
        denied_tools: Vec::new(),
        left_out: vec!["`lib` is a submodule: its change was not committed".into()],
    };
    let text = progress::ProgressLine { task: None, event }.text(false);
    let text = anstream::adapter::strip_str(&text).to_string();
    assert_eq!(
        text,
        "  1 of 1 checks pass, 100 % done; 1 file, +2 -1, 3 s\n    did it\n    ! `lib` is a submodule: its change was not committed\n"
    );
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

/// Commits files to the repository.
async fn commit(setup: &LocalSetup, files: &[(&str, &str)]) {
    for (name, text) in files {
        std::fs::write(setup.repo.join(name), text).expect("written");
    }
    git(&setup.repo, &["add", "."]).await;
    git(&setup.repo, &["commit", "--quiet", "-m", "files"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn setup_runs_once_for_all_trees_of_all_loops() {
    let agent = r#"cat > /dev/null; test -f "$HOME/.cargo/c" && cp deps/tool answer.txt && cp deps/id id.txt; echo evil > deps/tool"#;
    let setup = setup(agent).await;
    // Each run of the command makes another ID.
    let install = r#"mkdir -p deps "$HOME/.cargo"; cat /proc/sys/kernel/random/uuid > deps/id; echo right > deps/tool; echo 1 > "$HOME/.cargo/c""#;
    let file = format!("setup: [{}]\nenvironment: {{ cache: [deps] }}\n", serde_json::Value::from(install));
    commit(&setup, &[(".gitignore", "deps\n"), ("package-lock.json", "1\n"), (".ralph.yml", &file)]).await;
    let check = r#"grep -q right answer.txt && test -f "$HOME/.cargo/c" && test -f deps/tool && cmp deps/id id.txt"#;
    let run = async |task: &str| {
        let done = run_to(&setup, &["--task", task, "--check", check], ExitCode::SUCCESS).await.pop().expect("a loop");
        assert_eq!(done.state.as_str(), "review", "{}", done.why);
        git(&setup.repo, &["show", &format!("{}:id.txt", done.branch.name)]).await
    };
    let first = run("Put the answer right").await;
    assert_eq!(run("Put it right again").await, first);
    commit(&setup, &[("package-lock.json", "2\n")]).await;
    assert_ne!(run("Once more").await, first, "the lock file changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_dependencies_are_installed_by_the_usual_command() {
    let mut setup = setup("cat > /dev/null; node_modules/.bin/x && echo right > answer.txt").await;
    let bin = setup.folder.path().join("bin");
    std::fs::create_dir(&bin).expect("made");
    let npm = "#!/bin/sh\nif [ \"$1\" = ci ]; then mkdir -p node_modules/.bin; cp /bin/true node_modules/.bin/x; exit; fi\n\
               PATH=\"$PWD/node_modules/.bin\" x || { echo 'sh: 1: x: not found'; exit 127; }\n";
    std::fs::write(bin.join("npm"), npm).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bin.join("npm"), mode).expect("executable");
    let state = setup.folder.path().join("state").display().to_string();
    let path = format!("{}:{PATH}", bin.display());
    setup.env = Env::of([("PATH", path.as_str()), ("HOME", "/"), ("XDG_STATE_HOME", state.as_str())]);
    let manifest = r#"{ "devDependencies": { "x": "1" }, "scripts": { "test": "x" } }"#;
    commit(&setup, &[(".gitignore", "node_modules\n"), ("package.json", manifest), ("package-lock.json", "{}")]).await;
    for task in ["Put the answer right", "Put it right again"] {
        let more = ["--task", task, "--check", "npm test && grep -q right answer.txt"];
        let done = run_to(&setup, &more, ExitCode::SUCCESS).await.pop().expect("a loop");
        assert_eq!(done.state.as_str(), "review", "{}", done.why);
        let note = done.settings.overruled.join("\n");
        assert!(note.contains("add the line `setup: [npm ci]`") && note.contains("x: not found"), "{note}");
    }
}
