//! Tests of the runner with real shells, with and without the sandbox.

use super::*;
use crate::domain::checks::criteria::plain;
use crate::domain::model::ids::Percent;
use crate::domain::model::task::{CheckRule, CheckSource, TestCounts};

struct CheckWorkspace {
    folder: tempfile::TempDir,
    runner: CheckRunner,
}

impl CheckWorkspace {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("folder");
        std::fs::create_dir(folder.path().join("tree")).expect("tree");
        let runner = CheckRunner {
            sandboxed: false,
            env: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()), ("HOME".into(), "/nowhere".into())],
            ..CheckRunner::new()
        };
        Self { folder, runner }
    }

    fn tree(&self) -> PathBuf {
        self.folder.path().join("tree")
    }

    async fn run(&self, checks: &[Check]) -> Vec<CheckOutcome> {
        let cancel = CancellationToken::new();
        let report = self.runner.run_all(&self.tree(), &self.folder.path().join("scratch"), checks, &cancel).await;
        report.expect("report").outcomes
    }

    async fn one(&self, command: &str) -> CheckOutcome {
        self.run(&[check(command)]).await.remove(0)
    }
}

fn check(command: &str) -> Check {
    plain(command, CheckSource::Command)
}

#[tokio::test]
async fn outcomes_are_in_order_despite_failures() {
    let place = CheckWorkspace::new();
    let mut cover = check("echo 'TOTAL 79.5%'");
    cover.rule = CheckRule::Coverage { pattern: r"(\S+)%".into(), min: Percent(80.0) };
    let mut silent = check("echo one; echo two >&2");
    silent.rule = CheckRule::EmptyOutput;
    let mut counted = check("echo 'done: 3 ok'");
    counted.counts = Some(r"done: (?P<passed>\d+) ok".into());
    let all = place.run(&[check("exit 3"), check("pwd"), cover, silent, check("no-such-program-here"), counted]).await;
    let why: Vec<&str> = all.iter().map(|outcome| outcome.why.as_str()).collect();
    assert_eq!(
        why,
        [
            "exit code 3",
            "",
            "found 79.5 %, needs 80 %",
            "printed 2 lines, must print nothing",
            "command not found: no-such-program-here",
            ""
        ]
    );
    assert_eq!(all[0].exit_code, Some(3));
    assert!(all[1].holds && all[1].output.trim_end() == ".");
    assert_eq!(all[2].measured, Some(79.5));
    assert_eq!(all[3].output, "one\ntwo\n", "both outputs, as they were printed");
    assert_eq!(all[5].tests, Some(TestCounts { passing: 3, failing: 0, skipped: 0 }));
}

#[tokio::test]
async fn runner_report_can_contradict_the_exit_code() {
    let place = CheckWorkspace::new();
    let cases = [
        (
            "echo 'running 2 tests'; echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out'",
            Some("exit code 0, but the output reports 1 failed test"),
        ),
        ("echo 'running 2 tests' # cargo test", Some("exit code 0, but a test run ended before its summary")),
        ("echo 'running 2 tests'; echo '2 tests succeeded' # cargo test", None),
        ("echo built", None),
    ];
    for (command, objection) in &cases {
        let outcome = place.one(command).await;
        assert_eq!((outcome.objection.as_deref(), outcome.holds), (*objection, true), "{command}");
    }
    let zero = "echo 'running 0 tests'; echo 'test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 2 filtered out' # cargo test x";
    let outcome = place.one(zero).await;
    assert_eq!((outcome.why.as_str(), outcome.contradicted), ("exit code 0, but it ran no tests", true));
    let several = "for n in 0 3; do echo \"running $n tests\"; echo \"test result: ok. $n passed; 0 failed; 0 ignored; 0 measured; 5 filtered out\"; done # cargo test x";
    assert!(place.one(several).await.holds, "only the sum of all runs counts");
    let mut cover = check("echo 'TOTAL 90%'; exit 1");
    cover.rule = CheckRule::Coverage { pattern: r"(\S+)%".into(), min: Percent(80.0) };
    let outcome = place.run(&[cover]).await.remove(0);
    assert_eq!((outcome.why.as_str(), outcome.holds, outcome.measured), ("exit code 1", false, Some(90.0)));
}

/// See docs/research/threats.md#s1.
#[tokio::test]
async fn check_sees_only_given_environment() {
    let place = CheckWorkspace::new();
    let outcome = place
        .one("echo $HOME; echo $TMPDIR; echo $CI; test -d \"$TMPDIR\"; env | cut -d= -f1 | sort | tr '\\n' ' '")
        .await;
    let scratch = place.folder.path().join("scratch");
    let lines: Vec<&str> = outcome.output.lines().collect();
    assert_eq!(lines[0], scratch.to_string_lossy());
    assert_eq!(lines[1], scratch.join("tmp").to_string_lossy());
    assert_eq!(lines[2], "true");
    assert!(!lines[3].contains("CARGO"), "{}", lines[3]);
}

/// See docs/research/faults.md#a10.
#[tokio::test]
async fn hanging_check_is_killed_with_its_children() {
    let place = CheckWorkspace::new();
    let mut hanging = check("sleep 600 & echo started; sleep 600");
    hanging.timeout_s = Some(1);
    let outcome = place.run(&[hanging]).await.remove(0);
    assert_eq!((outcome.holds, outcome.why.as_str(), outcome.exit_code), (false, "timed out after 1 s", None));
    assert_eq!(outcome.output, "started\n");
}

#[tokio::test]
async fn check_without_limit_uses_operator_limit() {
    let mut place = CheckWorkspace::new();
    place.runner.timeout = Duration::from_secs(1);
    let outcome = place.run(&[check("sleep 600")]).await.remove(0);
    assert_eq!((outcome.holds, outcome.why.as_str()), (false, "timed out after 1 s"));
}

/// See docs/research/faults.md#a10, docs/research/threats.md#s8.
#[tokio::test]
async fn outcome_omits_floods_secrets_and_escapes() {
    let mut place = CheckWorkspace::new();
    place.runner.masker = Masker::new(["s3cr3t-value-1234"]);
    let flood = place.one("yes 0123456789 | head -c 20000000; echo; echo end").await;
    assert!(flood.holds && flood.output.len() <= SHOWN_BYTES && flood.output.ends_with("end\n"));
    let outcome = place.one("echo s3cr3t-value-1234; printf '\\033[31mred\\033[0m\\n'").await;
    assert!(!outcome.output.contains("s3cr3t-value-1234"), "{}", outcome.output);
    assert!(outcome.output.ends_with("\nred\n"), "{}", outcome.output);
    let killed = place.one("kill -9 $$").await;
    assert_eq!((killed.holds, killed.exit_code, killed.why.as_str()), (false, None, "was ended by a signal"));
}

#[tokio::test]
async fn cancelled_run_returns_no_report() {
    let place = CheckWorkspace::new();
    let (tree, scratch) = (place.tree(), place.folder.path().join("scratch"));
    let cancel = CancellationToken::new();
    let checks = [check("true"), check("touch begun; sleep 600")];
    let running = place.runner.run_all(&tree, &scratch, &checks, &cancel);
    let cancelling = async {
        while !tree.join("begun").exists() {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    };
    let (result, ()) = tokio::join!(running, cancelling);
    assert!(matches!(result, Err(ChecksError::Cancelled { .. })), "{result:?}");
}

#[tokio::test]
async fn internal_failures_are_errors() {
    let mut place = CheckWorkspace::new();
    let cancel = CancellationToken::new();
    let scratch = place.folder.path().join("scratch");
    let missing_tree = place.folder.path().join("gone");
    let result = place.runner.run_all(&missing_tree, &scratch, &[check("true")], &cancel).await;
    assert!(matches!(result, Err(ChecksError::NoTree(_))), "{result:?}");
    let file = place.folder.path().join("file");
    std::fs::write(&file, "").expect("file");
    let result = place.runner.run_all(&place.tree(), &file, &[check("true")], &cancel).await;
    assert!(matches!(result, Err(ChecksError::Scratch { .. })), "{result:?}");
    place.runner.shell = "/no/such/shell".into();
    let result = place.runner.run_all(&place.tree(), &scratch, &[check("true")], &cancel).await;
    assert!(matches!(result, Err(ChecksError::Start { .. })), "{result:?}");
}

#[tokio::test]
async fn junit_files_count_only_if_check_wrote_them() {
    let place = CheckWorkspace::new();
    let reports = place.tree().join("a/reports");
    std::fs::create_dir_all(&reports).expect("folder");
    let suite = |cases: &str| format!("<testsuite>{cases}</testsuite>");
    std::fs::write(reports.join("old.xml"), suite("<testcase/><testcase/>")).expect("old");
    std::fs::write(place.folder.path().join("outside.xml"), suite("<testcase/>")).expect("outside");
    std::os::unix::fs::symlink(place.folder.path().join("outside.xml"), reports.join("link.xml")).expect("link");
    let write = "echo '<testsuite><testcase/><testcase><failure/></testcase></testsuite>' > a/reports/new.xml; \
                 ln -s ../../../outside.xml a/reports/other.xml; echo '1..1'; echo 'ok 1'; exit 1";
    let with = |command: &str| Check { junit: Some("**/reports/*.xml".into()), ..check(command) };
    let outcome = place.run(&[with(write)]).await.remove(0);
    assert_eq!(outcome.tests, Some(TestCounts { passing: 1, failing: 1, skipped: 0 }));
    // One that is too large to be read.
    let large =
        format!("yes '<testcase/>' | head -c {} > a/reports/large.xml; echo '1..1'; echo 'ok 1'", (16 << 20) + 1);
    let large = place.run(&[with(&large)]).await.remove(0);
    assert_eq!(large.tests, Some(TestCounts { passing: 1, failing: 0, skipped: 0 }));
    // Nothing written: the printed output counts.
    let printed = place.run(&[with("echo '1..1'; echo 'ok 1'")]).await.remove(0);
    assert_eq!(printed.tests, Some(TestCounts { passing: 1, failing: 0, skipped: 0 }));
}

/// See docs/research/faults.md#a10, docs/research/threats.md#s5.
#[tokio::test]
async fn sandbox_hides_machine_and_network() {
    let mut place = CheckWorkspace::new();
    place.runner.sandboxed = true;
    std::fs::write(place.folder.path().join("service-file"), "private").expect("file");
    let command = "echo kept > made; cat ../service-file; ls /root; cat /proc/net/dev | grep -c eth; true";
    let report = place
        .runner
        .run_all(&place.tree(), &place.folder.path().join("scratch"), &[check(command)], &CancellationToken::new())
        .await;
    let outcome = match report {
        Ok(mut report) => report.outcomes.remove(0),
        // Where the machine has no namespaces for us, the test expects the refusal: never a run without sandbox.
        Err(error) => {
            assert!(matches!(&error, ChecksError::Start { source: ProcessError::Sandbox { .. }, .. }), "{error}");
            assert!(!place.tree().join("made").exists());
            return;
        }
    };
    assert!(outcome.holds, "{}", outcome.why);
    assert!(!outcome.output.contains("private"), "{}", outcome.output);
    assert!(outcome.output.lines().any(|line| line == "0"), "no interface but loopback: {}", outcome.output);
    assert_eq!(std::fs::read_to_string(place.tree().join("made")).expect("written through"), "kept\n");
}

/// See docs/research/threats.md#g17.
#[tokio::test]
async fn programs_of_the_tree_and_shell_startup_code_are_not_used() {
    let mut place = CheckWorkspace::new();
    let tree = place.tree();
    let shim = |folder: &Path, name: &str| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::create_dir_all(folder).expect("a folder");
        std::fs::write(folder.join(name), "#!/bin/sh\necho shimmed\n").expect("written");
        std::fs::set_permissions(folder.join(name), std::fs::Permissions::from_mode(0o755)).expect("executable");
    };
    shim(&tree, "cmp");
    shim(&tree.join("bin"), "cmp");
    shim(&tree.join("node_modules/.bin"), "cmp");
    std::fs::write(tree.join("first.sh"), "echo first; exit 0\n").expect("written");
    let (first, inside) = (tree.join("first.sh"), tree.join("bin"));
    let path = format!(":.:bin:./node_modules/.bin:{}:/usr/local/bin:/usr/bin:/bin", inside.display());
    place.runner.env = vec![("PATH".into(), path.into()), ("SHELL".into(), tree.join("bin/cmp").into())];
    for name in RUN_FIRST {
        place.runner.env.push((name.into(), first.clone().into()));
    }
    let outcome = place.one("cmp /dev/null /etc/passwd; sh -c 'echo sh'; bash -c 'echo bash' 2>/dev/null; env").await;
    assert!(!outcome.output.contains("shimmed") && !outcome.output.contains("first"), "{}", outcome.output);
    assert!(outcome.output.contains("SHELL=/bin/sh\n"), "{}", outcome.output);
    assert!(outcome.output.contains("PATH=/usr/local/bin:/usr/bin:/bin\n"), "{}", outcome.output);
}

#[tokio::test]
async fn paths_in_output_are_relative_to_the_tree() {
    let place = CheckWorkspace::new();
    let command = "echo \"E $PWD/tests/test_answer.py:3: AssertionError\"; echo \"at file://$PWD/a.js:1:2\"; \
                   echo \"rootdir: $PWD\"; echo 'error in /usr/lib/x.py'; exit 1";
    let found = place.one(command).await;
    let expected = "E tests/test_answer.py:3: AssertionError\nat a.js:1:2\nrootdir: .\nerror in /usr/lib/x.py\n";
    assert_eq!(found.output, expected);
    let tree = place.tree().display().to_string();
    assert!(found.errors.iter().all(|line| !line.contains(&tree)), "{:?}", found.errors);
}
