//! Weakened tests: no loop with an open finding reaches `review`; the agent restores tests, or a maintainer accepts the change.
//! Changes that the run with the base's tests judged block nothing.

use fake_forge::Dialect;
use ralph_bot::domain::loops::LoopState;

use crate::harness::{Setup, on_one_forge, story};

on_one_forge!(
    tests_deleted_in_an_earlier_iteration_still_prevent_review,
    skipped_tests_are_accepted_by_maintainers_only,
    changed_expectation_needs_one_decision,
    honest_tests_need_no_acceptance,
    removed_assertion_that_the_base_tests_do_not_need_costs_no_run,
    failed_tests_in_the_output_outweigh_exit_code,
    change_named_by_the_task_needs_a_decision_instead_of_a_revert,
    script_of_a_manifest_is_judged_by_the_run,
    build_file_that_omits_a_file_needs_a_decision,
    build_file_that_lists_a_needed_source_needs_no_acceptance,
    data_that_only_tests_name_is_the_base_version,
    second_run_does_not_contain_files_of_the_first,
    better_state_before_first_iteration_is_restored_at_limit,
);

/// Tests in Python syntax, so that they are recognized; `check.sh` reads their assertions.
const TESTS: &str = "def test_answer():\n    assert read('answer.txt') == '42'\n\n\ndef test_other():\n    assert read('other.txt') == 'kept'\n";
/// Runs each assertion that is not after a skip.
const CHECK: &str = "sed \"/mark.skip/,/assert/d\" tests/test_*.py | sed -n \"s/^    assert read('\\(.*\\)') == '\\(.*\\)'$/\\1 \\2/p\" |\nwhile read -r file value; do\n  [ \"$(cat \"$file\")\" = \"$value\" ] || { echo \"$file is not $value\"; exit 1; }\ndone\n";
/// Runs all assertions, and counts them.
const COUNTED: &str = "passed=0; failed=0\nwhile read -r file value; do\n  if [ \"$(cat \"$file\")\" = \"$value\" ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi\ndone <<END\n$(sed -n \"s/^    assert read('\\(.*\\)') == '\\(.*\\)'$/\\1 \\2/p\" tests/test_*.py)\nEND\necho \"running $((passed + failed)) tests\"\n[ $failed = 0 ] && word=ok || word=FAILED\necho \"test result: $word. $passed passed; $failed failed; 0 ignored; 0 measured; 0 filtered out\"\n[ $failed = 0 ]\n";
/// Removes `test_answer`, whose check does not pass.
const DELETE: &str = "sed -i '/def test_answer/,/42/d' tests/test_answer.py\n";

fn setup(dialect: Dialect, agent: &str) -> Setup {
    let setup = Setup::new(dialect).file("tests/test_answer.py", TESTS).file("check.sh", CHECK);
    setup.file("answer.txt", "40\n").file("other.txt", "kept\n").agent(agent)
}

/// See docs/research/threats.md#g17.
async fn tests_deleted_in_an_earlier_iteration_still_prevent_review(dialect: Dialect) {
    let agent = format!(
        "case $RALPH_ITERATION in\n1) {DELETE}echo broken >other.txt;;\n2) echo kept >other.txt;;\n*) echo 42 >answer.txt;;\nesac\n"
    );
    story(setup(dialect, &agent).file("check.sh", COUNTED), async |world| {
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert_eq!(done.iterations.len(), 3, "the checks pass in the second, without the tests of the base");
        let passed: Vec<bool> = done.iterations.iter().map(|one| one.checks.all_hold()).collect();
        assert_eq!(passed, [false, true, true]);
        assert_eq!(world.file(&done.branch.name, "answer.txt").await.as_deref(), Some("42\n"));
        let second_prompt = world.prompt(2).await;
        assert!(
            second_prompt.contains("# Tests that differ") && second_prompt.contains("tests/test_answer.py: +0 -2"),
            "{second_prompt}"
        );
        let third_prompt = world.prompt(3).await;
        assert!(
            third_prompt.contains("# Tests that you changed") && !third_prompt.contains("# Tests to restore"),
            "{third_prompt}"
        );
        let body = world.the_pull().await.body;
        assert!(body.contains("differ from the base's") && body.contains("`+0 -2`"), "{body}");
    })
    .await;
}

async fn skipped_tests_are_accepted_by_maintainers_only(dialect: Dialect) {
    let agent = "grep -q skip tests/test_answer.py || sed -i '1i import pytest\\n\\n\\n@pytest.mark.skip' tests/test_answer.py\n";
    story(setup(dialect, agent), async |world| {
        let paused = world.run().await;
        assert_eq!((paused.state, paused.iterations.len()), (LoopState::Paused, 2), "{}", paused.why);
        assert!(paused.why.contains("only with the changes to `tests/test_answer.py`"), "{}", paused.why);
        let outsiders = world.forge.comment(&world.outsider, world.repo, world.issue, "/ralph accept-tests").await;
        world.settle().await;
        assert_eq!(world.reactions(outsiders.expect("a comment")), ["-1"]);
        assert_eq!(world.the_loop().await.state, LoopState::Paused);
        let wrong = world.comment("/ralph accept-tests tests/none.py").await;
        world.settle().await;
        assert_eq!(world.reactions(wrong), ["eyes", "confused"]);
        let accepted = world.comment("/ralph accept-tests tests/test_answer.py").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 2), "no agent runs again: {}", done.why);
        assert_eq!(world.reactions(accepted), ["eyes", "rocket"]);
        insta::assert_snapshot!("accepted_tests", world.conversation_on(world.the_pull().await.number));
    })
    .await;
}

async fn changed_expectation_needs_one_decision(dialect: Dialect) {
    let agent = "sed -i \"s/'42'/'40'/\" tests/test_answer.py\n";
    story(setup(dialect, agent), async |world| {
        let paused = world.run().await;
        assert_eq!((paused.state, paused.iterations.len()), (LoopState::Paused, 2), "{}", paused.why);
        assert!(paused.why.contains("only with the changes to `tests/test_answer.py`"), "{}", paused.why);
        assert!(world.prompt(2).await.contains("# Tests that you changed"));
        insta::assert_snapshot!("changed_expectation", world.conversation_on(world.escalations()[0]));
        world.comment("/ralph accept-tests").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 2), "{}", done.why);
        assert!(world.the_pull().await.body.contains(&world.maintainer.login));
    })
    .await;
}

async fn honest_tests_need_no_acceptance(dialect: Dialect) {
    let agent = "echo 42 >answer.txt\necho 7 >new.txt\nprintf \"\\n\\ndef test_new():\\n    assert read('new.txt') == '7'\\n\" >>tests/test_answer.py\n";
    story(setup(dialect, agent), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 1), "{}", done.why);
        let receipts = world.receipts().await;
        let text = format!("{receipts:?}");
        assert!(text.contains("with the base's tests 1 of 1"), "{text}");
        assert_eq!(done.open_findings().len(), 0);
        let told: Vec<String> = done.findings().into_iter().map(|found| found.evidence).collect();
        assert_eq!(told, ["+4 -0"], "the reviewer sees which tests differ");
    })
    .await;
}

/// The base's tests pass at once, so that the text of the change causes no further run.
async fn removed_assertion_that_the_base_tests_do_not_need_costs_no_run(dialect: Dialect) {
    let tests = format!("{TESTS}    assert read('other.txt') == 'kept'\n");
    let agent = "echo 42 >answer.txt\nsed -i '$d' tests/test_answer.py\n";
    story(setup(dialect, agent).file("tests/test_answer.py", &tests), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 1), "{} {:?}", done.why, done.findings());
        assert_eq!(world.file(&done.branch.name, "tests/test_answer.py").await.as_deref(), Some(TESTS));
        let body = world.the_pull().await.body;
        assert!(body.contains("differ from the base's") && body.contains("`+0 -1`"), "{body}");
        let text = format!("{:?}", world.receipts().await);
        assert!(text.contains("with the base's tests 1 of 1"), "{text}");
    })
    .await;
}

/// The program determines the exit code of its test runner.
async fn failed_tests_in_the_output_outweigh_exit_code(dialect: Dialect) {
    let check = "echo 'running 2 tests'\nif [ \"$(cat answer.txt)\" = 42 ]; then n=2; else n=1; fi\n\
        if [ $n = 2 ]; then word=ok; else word=FAILED; fi\n\
        echo \"test result: $word. $n passed; $((2 - n)) failed; 0 ignored; 0 measured; 0 filtered out\"\n\
        [ $n = 2 ] || exit \"$(cat code.txt)\"\n";
    let agent = "echo 0 >code.txt\n[ \"$RALPH_ITERATION\" -lt 2 ] || echo 42 >answer.txt\n";
    let setup = Setup::new(dialect).file("check.sh", check).file("code.txt", "1\n").agent(agent);
    story(setup, async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 2), "{}", done.why);
        let why = "exit code 0, but the output reports 1 failed test";
        assert_eq!((done.iterations[0].checks.outcomes[0].why.as_str(), done.iterations[0].checks.held()), (why, 0));
        assert!(world.prompt(2).await.contains(why));
    })
    .await;
}

async fn change_named_by_the_task_needs_a_decision_instead_of_a_revert(dialect: Dialect) {
    let settings = |bail: u8| format!("export default {{\n  test: {{\n    bail: {bail},\n  }},\n}};\n");
    let agent = "sed -i 's/bail: 0/bail: 1/' vite.config.js\necho 42 >answer.txt\n";
    // The base's version of the build file does not fit the branch.
    let check = "grep -q 42 answer.txt && grep -q 'bail: 1' vite.config.js\n";
    let mut setup = Setup::new(dialect).file("vite.config.js", &settings(0)).file("check.sh", check).agent(agent);
    setup.body = "Let vitest end at the first failure in vite.config.js, and answer 42.".into();
    story(setup, async |world| {
        let paused = world.run().await;
        assert_eq!((paused.state, paused.iterations.len()), (LoopState::Paused, 2), "{}", paused.why);
        assert!(paused.why.contains("which the task may ask for: `vite.config.js`"), "{}", paused.why);
        assert!(world.prompt(2).await.contains("leave it only if the task asks for this change"));
        let config = world.file(&paused.branch.name, "vite.config.js").await;
        assert_eq!(config, Some(settings(1)), "nothing was undone");
        world.comment("/ralph accept-tests").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 2), "{}", done.why);
    })
    .await;
}

/// Build file that lists the scripts of the check. The check needs `more.sh` if it exists.
fn build(dialect: Dialect, agent: &str) -> Setup {
    let check = "test ! -f more.sh || grep -q more.sh CMakeLists.txt || exit 1\n\
        for file in $(sed 's/.*(unit \\(.*\\))/\\1/' CMakeLists.txt); do sh \"$file\" || exit 1; done\n";
    let setup = Setup::new(dialect).file("check.sh", check).file("CMakeLists.txt", "run(unit one.sh two.sh)\n");
    let setup = setup.file("one.sh", "grep -q 42 answer.txt\n").file("two.sh", "grep -q 7 second.txt\n");
    setup.file("second.txt", "8\n").agent(agent)
}

/// See docs/research/threats.md#g17.
async fn build_file_that_omits_a_file_needs_a_decision(dialect: Dialect) {
    let agent = "echo 42 >answer.txt\nsed -i 's/ two.sh//' CMakeLists.txt\n";
    story(build(dialect, agent), async |world| {
        let paused = world.run().await;
        assert_eq!((paused.state, paused.iterations.len()), (LoopState::Paused, 2), "{}", paused.why);
        assert!(paused.why.contains("only with the changes to `CMakeLists.txt`"), "{}", paused.why);
        world.comment("/ralph accept-tests").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 2), "{}", done.why);
    })
    .await;
}

async fn build_file_that_lists_a_needed_source_needs_no_acceptance(dialect: Dialect) {
    let agent = "echo 42 >answer.txt\necho 7 >second.txt\necho true >more.sh\n\
        grep -q more CMakeLists.txt || sed -i 's/two.sh/two.sh more.sh/' CMakeLists.txt\n";
    story(build(dialect, agent), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 1), "{}", done.why);
        assert_eq!(done.open_findings().len(), 0);
    })
    .await;
}

/// See docs/research/threats.md#g17.
async fn data_that_only_tests_name_is_the_base_version(dialect: Dialect) {
    let check = "sh program.sh | diff docs/answer.txt -\n";
    let agent = "echo 'echo 41' >program.sh\necho 41 >docs/answer.txt\n";
    let setup = Setup::new(dialect).file("check.sh", check).file("docs/answer.txt", "42\n");
    story(setup.file("program.sh", "echo 40\n").agent(agent), async |world| {
        let paused = world.run().await;
        assert_eq!((paused.state, paused.iterations.len()), (LoopState::Paused, 2), "{}", paused.why);
        assert!(paused.why.contains("only with the changes to `docs/answer.txt`"), "{}", paused.why);
        world.write_agent("echo 'echo 42' >program.sh\necho 42 >docs/answer.txt\n");
        world.comment("/ralph resume").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
    })
    .await;
}

/// The check starts the manifest's script; its scripts are the base's in the second run.
async fn script_of_a_manifest_is_judged_by_the_run(dialect: Dialect) {
    let manifest = |script: &str| format!("{{ \"name\": \"app\", \"scripts\": {{ \"test\": \"{script}\" }} }}\n");
    let check = "sh -c \"$(sed 's/.*\"test\": \"\\([^\"]*\\)\".*/\\1/' package.json)\"\n";
    let agent = "sed -i 's/grep -q 42 answer.txt/true/; s/\"app\"/\"app2\"/' package.json\n";
    let setup = Setup::new(dialect).file("package.json", &manifest("grep -q 42 answer.txt")).file("check.sh", check);
    story(setup.agent(agent), async |world| {
        let paused = world.run().await;
        assert_eq!((paused.state, paused.iterations.len()), (LoopState::Paused, 2), "{}", paused.why);
        assert!(paused.why.contains("only with the changes to `package.json`"), "{}", paused.why);
        let evidence = &paused.open_findings()[0].found.evidence;
        assert!(evidence.starts_with("with the base's version of scripts.test"), "{evidence}");
    })
    .await;
}

/// The changed test makes the check leave an ignored file by which it would pass with the base's test, too.
async fn second_run_does_not_contain_files_of_the_first(dialect: Dialect) {
    let agent = "sed -i \"s/'42'/'40'/; \\$a # leave\" tests/test_answer.py\n";
    let check = "[ ! -e local.ok ] || exit 0\n! grep -q leave tests/test_answer.py || touch local.ok\n";
    let check = format!("{check}{CHECK}");
    story(setup(dialect, agent).file("check.sh", &check).file(".gitignore", "local.ok\n"), async |world| {
        let paused = world.run().await;
        assert_eq!(paused.state, LoopState::Paused, "{}", paused.why);
        assert!(paused.why.contains("only with the changes to `tests/test_answer.py`"), "{}", paused.why);
        let text = format!("{:?}", world.receipts().await);
        assert!(text.contains("with the base's tests 0 of 1"), "{text}");
    })
    .await;
}

async fn better_state_before_first_iteration_is_restored_at_limit(dialect: Dialect) {
    let checks = "checks:\n  - run: test -f other.txt\n  - run: sh check.sh\n";
    let setup = Setup::new(dialect).file(".ralph.yml", checks).file("other.txt", "kept\n");
    story(setup.agent("rm -f other.txt\necho 40 >answer.txt\n"), async |world| {
        world.comment("/ralph run --max-iterations 1").await;
        world.settle().await;
        let spent = world.the_loop().await;
        assert_eq!(spent.state, LoopState::LimitReached, "{}", spent.why);
        assert!(spent.why.contains("as they were before the first iteration"), "{}", spent.why);
        assert_eq!(world.file(&spent.branch.name, "other.txt").await.as_deref(), Some("kept\n"));
        assert_eq!(world.file(&spent.branch.name, "answer.txt").await.as_deref(), Some("41\n"));
        let salvage_ref = spent.why.split('`').find(|part| part.starts_with("refs/ralph/keep/"));
        assert!(salvage_ref.is_some(), "the work can be found: {}", spent.why);
    })
    .await;
}
