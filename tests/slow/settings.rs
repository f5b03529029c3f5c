//! Settings of the operator's file and the repository's file, and their visible effects.

use std::time::Duration;

use fake_forge::{Access, Dialect};
use ralph_bot::domain::loops::{LoopState, LoopStep};
use ralph_bot::domain::model::ids::User;
use ralph_bot::domain::model::task::{CheckSource, TestCounts};

use crate::harness::{Setup, on_both_forges, on_one_forge, story};
use ralph_bot::process::{SandboxProbe, SandboxTier};
use ralph_types::failure::Failure;

on_both_forges!(minimum_permission_is_configurable, conventions_of_the_repository_are_followed);

on_one_forge!(
    stated_facts_and_estimate_are_in_the_first_comment,
    invalid_facts_of_an_issue_are_explained,
    repository_limits_are_enforced,
    junit_reports_are_counted,
    protected_file_change_pauses_if_configured,
    protected_file_change_is_allowed_if_configured,
    repository_file_is_read_from_default_branch_only,
    checks_are_detected_when_none_are_configured,
    check_detection_can_be_disabled,
    required_sandbox_missing_runs_no_agent,
    weaker_sandbox_runs_no_agent_of_a_public_repository,
    every_repository_setting_takes_effect,
    broken_setup_is_returned_to_the_agent,
);

/// Repository file with four limits below the operator's, and one above.
/// See docs/research/threats.md#p15.
async fn repository_limits_are_enforced(dialect: Dialect) {
    let line = r#"{"type":"result","subtype":"success","is_error":false,"result":"done","total_cost_usd":0.6,"duration_ms":5,"num_turns":1,"usage":{"input_tokens":10,"output_tokens":5}}"#;
    let script = format!("cat >/dev/null; echo 42 >answer.txt; printf '%s\\n' '{line}'");
    let command = serde_json::to_string(&["/bin/sh", "-c", &script, "claude"]).expect("a list");
    let config = format!(
        "  claude: {{ enabled: true, command: {command} }}\nlimits: {{ loops: 4, loops_per_repository: 3, comments_per_hour: 1000, comments_per_day: 1000 }}"
    );
    let file = "checks: [sh check.sh]\nlimits: { loops: 1, cost_usd_per_day: 1, comments_per_hour: 6, comments_per_day: 8, iterations: 50 }\n";
    story(Setup::new(dialect).config(&config).file(".ralph.yml", file), async |world| {
        let title = "The same again";
        let other = world.forge.open_issue(&world.maintainer, world.repo, title, "42.", &[]).await.expect("an issue");
        // Both are asked for before the file has been read.
        for issue in [world.issue, other] {
            let run = "/ralph run --backend claude";
            world.forge.comment(&world.maintainer, world.repo, issue, run).await.expect("commented");
        }
        world.forge.flush().await;
        let at_work = |all: &[ralph_bot::domain::loops::Loop]| all.iter().filter(|l| l.state.holds_slot()).count();
        for _ in 0..200 {
            let engine = world.engine();
            let mut any = engine.intake.intake_step().await.expect("intake");
            any |= engine.executor.loop_step().await.expect("loop");
            any |= engine.forge_effects.forge_effect_step().await.expect("talk");
            if !any && !engine.work.work_step().await.expect("work") {
                break;
            }
            let all = world.all_loops().await;
            assert!(at_work(&all) <= 1, "{:?}", all.iter().map(|l| (l.state, l.run.step)).collect::<Vec<_>>());
        }
        world.settle().await;
        let all = world.all_loops().await;
        let of = |issue| all.iter().find(|l| l.issue.issue == issue).expect("a loop");
        assert_eq!(of(world.issue).state, LoopState::Review, "{}", of(world.issue).why);
        // The cost of the first run leaves less than the likely cost of the second.
        let second = of(other);
        assert_eq!((second.state, second.spent.cost.usd()), (LoopState::Waiting, 0.0), "{}", second.why);
        assert!(second.why.contains("$1.00") && second.why.contains("repository"), "{}", second.why);
        let status: Vec<_> =
            world.bot_comments().into_iter().filter(|comments| comments.contains(" status ")).collect();
        assert!(status[0].contains("50 is above the operator's limit; 10 applies"), "{}", status[0]);

        for (after, most) in [(0, 6), (61, 8), (61, 8)] {
            world.advance(Duration::from_secs(after * 60)).await;
            for _ in 0..5 {
                let asked = world.comment("/ralph help").await;
                world.settle().await;
                assert_eq!(world.reactions(asked), ["eyes", "rocket"]);
            }
            assert_eq!(world.bot_comments().len(), most, "{:#?}", world.bot_comments());
        }
        world.advance(Duration::from_secs(24 * 3600)).await;
        let all = world.all_loops().await;
        assert!(
            all.iter().all(|l| l.state == LoopState::Review),
            "{:?}",
            all.iter().map(|l| &l.why).collect::<Vec<_>>()
        );
    })
    .await;
}

/// Two of three tests fail at the start, and one when the answer is half right; printed text is not counted.
const REPORTING: &str = r#"mkdir -p reports
case $(cat answer.txt) in 42) bad=0 ;; half) bad=1 ;; *) bad=2 ;; esac
{
    echo '<testsuite>'
    for n in 1 2 3; do
        if [ $n -le $bad ]; then echo "<testcase name=\"t$n\"><failure/></testcase>"; else echo "<testcase name=\"t$n\"/>"; fi
    done
    echo '</testsuite>'
} >reports/all.xml
[ $bad = 0 ]
"#;

async fn junit_reports_are_counted(dialect: Dialect) {
    let agent = "if [ $RALPH_ITERATION = 1 ]; then echo half; else echo 42; fi >answer.txt\n";
    let setup = Setup::new(dialect).agent(agent).file("check.sh", REPORTING).file(".gitignore", "reports/\n");
    let file = "checks:\n  - { run: sh check.sh, junit: 'reports/*.xml' }\n";
    let mut in_issue = setup.clone().without(".ralph.yml");
    in_issue.body = "```ralph\nchecks:\n  - { command: sh check.sh, junit: reports/all.xml }\n```\n".into();
    for setup in [setup.file(".ralph.yml", file), in_issue] {
        story(setup, async |world| {
            let done = world.run().await;
            assert_eq!(done.state, LoopState::Review, "{}", done.why);
            let counts = |passing, failing| Some(TestCounts { passing, failing, skipped: 0 });
            assert_eq!(done.checks.baseline_report().and_then(|report| report.tests()), counts(1, 2));
            let results: Vec<_> =
                done.iterations.iter().map(|i| (i.checks.tests(), i.completion.whole_percent())).collect();
            assert_eq!(results, [(counts(2, 1), 50), (counts(3, 0), 100)]);
            assert!(world.bot_commented("2 passed, 1 failed"), "{:#?}", world.bot_comments());
        })
        .await;
    }
}

async fn protected_file_change_pauses_if_configured(dialect: Dialect) {
    let file = "checks: [sh check.sh]\nprotected: { policy: block, paths: ['deploy/*'] }\n";
    let agent = "echo 42 >answer.txt\nmkdir -p deploy/notes && echo 1 >deploy/notes/a.txt\n";
    story(Setup::new(dialect).file(".ralph.yml", file).agent(agent), async |world| {
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "a pattern's `*` stays within a folder: {}", done.why);
        world.write_agent("echo 2 >deploy/live.yml\n");
        world.comment("/ralph guide Prepare the release.").await;
        world.settle().await;
        let stopped = world.the_loop().await;
        assert_eq!(
            (stopped.state, &stopped.branch.pushed),
            (LoopState::Paused, &done.branch.pushed),
            "{}",
            stopped.why
        );
        assert_eq!(world.file(&done.branch.name, "deploy/live.yml").await, None);
        let [escalation] = world.escalations()[..] else { panic!("one escalation: {:?}", world.escalations()) };
        let body = world.issue_of(escalation).body;
        assert!(body.contains("the protected file") && body.contains("deploy/live.yml"), "{body}");
    })
    .await;
}

async fn protected_file_change_is_allowed_if_configured(dialect: Dialect) {
    let agent = "echo 42 >answer.txt\nmkdir -p deploy/notes && echo 1 | tee deploy/notes/a.txt >deploy/live.yml\n";
    let config = "protected: { policy: allow, paths: ['deploy/*'] }";
    story(Setup::new(dialect).config(config).agent(agent), async |world| {
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert_eq!(world.file(&done.branch.name, "deploy/live.yml").await.as_deref(), Some("1\n"));
        let body = world.the_pull().await.body;
        assert!(body.contains("Protected files were changed; the settings allow it: deploy/live.yml."), "{body}");
        assert!(!body.contains("reverted"), "{body}");
    })
    .await;
}

/// Files of a pushed branch do not configure loops that start from it.
/// See docs/research/threats.md#g13.
async fn repository_file_is_read_from_default_branch_only(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let theirs = "checks: ['true']\nsetup: ['echo 42 >answer.txt']\nlimits: { iterations: 1 }\n";
        let change = [(".ralph.yml", Some(theirs), false)];
        world.forge.push_commit(&world.maintainer, world.repo, "next", &change, "Go easy").await.expect("pushed");
        world.comment("/ralph run --base next").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.branch.base_branch.as_str()), (LoopState::Review, "next"), "{}", done.why);
        assert_eq!(done.checks.list.iter().map(|c| c.command.as_str()).collect::<Vec<_>>(), ["sh check.sh"]);
        assert!(
            done.settings.policy.setup.is_empty() && done.limits.iterations.count() == Some(10),
            "{:?}",
            done.settings.policy
        );
        assert_eq!(
            world.file(&done.branch.name, ".ralph.yml").await.as_deref(),
            Some(theirs),
            "it was there to be read"
        );
    })
    .await;
}

fn with_makefile(dialect: Dialect) -> Setup {
    Setup::new(dialect).without(".ralph.yml").file("Makefile", "test:\n\tsh check.sh\n")
}

async fn checks_are_detected_when_none_are_configured(dialect: Dialect) {
    story(with_makefile(dialect), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.checks.source), (LoopState::Review, Some(CheckSource::Detected)), "{}", done.why);
        let comments = world.bot_comments();
        let row = "| `make test` | exit code 0 | detected from the repository's files |";
        assert!(comments[0].contains(row), "{comments:#?}");
    })
    .await;
}

async fn check_detection_can_be_disabled(dialect: Dialect) {
    let by_operator = with_makefile(dialect).config("checks: { detect: false }");
    let by_file = with_makefile(dialect).file(".ralph.yml", "detect: false\n");
    for setup in [by_operator, by_file] {
        story(setup, async |world| {
            let stopped = world.run().await;
            assert_eq!((stopped.state, stopped.checks.list.len()), (LoopState::NeedsCriteria, 0), "{}", stopped.why);
            assert!(
                world.bot_commented("/ralph run --check") && !world.bot_commented("Makefile"),
                "{:?}",
                world.bot_comments()
            );
            assert!(stopped.iterations.is_empty());
        })
        .await;
    }
}

/// Agents do not run without a required sandbox.
/// See docs/research/threats.md#s5.
async fn required_sandbox_missing_runs_no_agent(dialect: Dialect) {
    let mut setup = Setup::new(dialect);
    let why = "user namespaces are not allowed here";
    setup.sandbox =
        Some(SandboxProbe { tier: SandboxTier::C, bubblewrap: Err(why.into()), escapes: Vec::new(), landlock: None });
    story(setup, async |world| {
        let mark = world.folder.path().join("an-agent-ran");
        world.write_agent(&format!("touch '{}'\necho 42 >answer.txt\n", mark.display()));
        let failed = world.run().await;
        assert_eq!((failed.state, failed.run.step), (LoopState::Failed, LoopStep::Idle), "{}", failed.why);
        assert!(failed.why.contains(&format!("there is no sandbox ({why}); `ralph-bot check`")), "{}", failed.why);
        assert_eq!(world.state_labels(), ["failed"]);
        let [escalation] = world.escalations()[..] else { panic!("one escalation: {:?}", world.escalations()) };
        assert!(world.issue_of(escalation).body.contains(why), "{}", world.issue_of(escalation).body);
        assert!(failed.checks.baseline.is_none() && world.prompts().await.is_empty() && !mark.exists());
    })
    .await;
}

/// A public repository needs namespaces; the service does not use a weaker sandbox instead.
/// See docs/research/threats.md#s5.
async fn weaker_sandbox_runs_no_agent_of_a_public_repository(dialect: Dialect) {
    let mut setup = Setup::new(dialect);
    let bubblewrap = Err(Failure::new("user namespaces are not allowed here"));
    setup.sandbox =
        Some(SandboxProbe { tier: SandboxTier::B, bubblewrap, escapes: Vec::new(), landlock: Some(Ok(Vec::new())) });
    story(setup, async |world| {
        let failed = world.run().await;
        assert_eq!((failed.state, failed.run.step), (LoopState::Failed, LoopStep::Idle), "{}", failed.why);
        assert!(failed.why.contains("this repository is public, which needs the sandbox of tier A"), "{}", failed.why);
        assert!(failed.checks.baseline.is_none() && world.prompts().await.is_empty());
    })
    .await;
}

async fn every_repository_setting_takes_effect(dialect: Dialect) {
    let file = "checks: ['test -e made.txt && sh check.sh && echo well checked']\nsetup: ['echo made >made.txt']\n\
                reviewers: [nora]\n";
    let setup = Setup::new(dialect)
        .file(".ralph.yml", file)
        .file(".gitignore", "made.txt\n")
        .config("label_prefix: 'bot:'\nbranch_prefix: 'auto/'\ndelete_branch: true\nprogress: status-only");
    story(setup, async |world| {
        let nora = world.person("nora", Access::Write);
        world.label().await;
        world.settle().await;
        assert!(world.all_loops().await.is_empty(), "the label has another prefix");
        world.forge.label(&world.maintainer, world.repo, world.issue, "bot:run").await.expect("labeled");
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let mut labels = world.forge.labels(world.repo, world.issue);
        labels.sort();
        assert_eq!(labels, ["bot:review", "bot:run", "ralph:run"]);
        assert!(done.branch.name.starts_with("auto/"), "{}", done.branch.name);
        let pull = world.the_pull().await;
        let requested = &pull.pull.as_ref().expect("a pull request").requested;
        assert!(requested.len() == 2 && requested.contains(&nora.id), "{requested:?}");
        let comments = world.bot_comments();
        assert!(
            comments.len() == 2 && comments.iter().all(|comments| !comments.contains(" iteration/")),
            "{comments:#?}"
        );
        for part in ["### ✅ Ready for review", "1 of 10 iterations", "| `answer.txt` | 1 | 1 |", "\nwell checked\n"] {
            assert!(comments[1].contains(part), "{part}: {}", comments[1]);
        }
        world.forge.merge(&world.maintainer, world.repo, pull.number).await.expect("merged");
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Merged);
        assert_eq!(world.forge.branch_sha(world.repo, &done.branch.name).await, None, "the branch is left");
    })
    .await;
}

/// The base states the rules: a DCO file, the types of commitlint, and a template of pull requests.
async fn conventions_of_the_repository_are_followed(dialect: Dialect) {
    let template = "<!-- Thanks! -->\n## What changed\nDescribe it.\n\n## Checklist\n- [ ] I read the guide\n";
    let types = "rules:\n  type-enum:\n    - 2\n    - always\n    - - bugfix\n      - docs\n";
    let setup = Setup::new(dialect)
        .file(".github/dco.yml", "require:\n  members: false\n")
        .file(".commitlintrc.yaml", types)
        .file(".github/pull_request_template.md", template);
    story(setup, async |world| {
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let message = world.git(&["log", "-n1", "--format=%B", &done.branch.name]);
        let author = world.git(&["log", "-n1", "--format=%an <%ae>", &done.branch.name]);
        assert!(message.starts_with("bugfix: the answer is wrong\n"), "{message}");
        assert!(message.trim_end().ends_with(&format!("Signed-off-by: {}", author.trim())), "{message}");
        let pull = world.the_pull().await;
        assert_eq!(pull.title, "bugfix: the answer is wrong");
        for part in ["## What changed", "## Checklist", "- [ ] I read the guide"] {
            assert!(pull.body.contains(part), "{part}: {}", pull.body);
        }
        assert!(!pull.body.contains("Thanks!") && !pull.body.contains("Describe it."), "{}", pull.body);
    })
    .await;
}

async fn broken_setup_is_returned_to_the_agent(dialect: Dialect) {
    let file = "checks: ['test -e made.txt && sh check.sh']\nsetup: ['test ! -e broken && echo made >made.txt']\n";
    let agent = "if [ $RALPH_ITERATION = 1 ]; then touch broken; else rm broken; echo 42 >answer.txt; fi\n";
    let setup = Setup::new(dialect).file(".ralph.yml", file).file(".gitignore", "made.txt\n").agent(agent);
    story(setup, async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 3), "{}", done.why);
        let prompts = world.prompts().await;
        let named: Vec<_> =
            prompts.iter().map(|prompt| prompt.contains("the setup command `test ! -e broken")).collect();
        assert_eq!(named, [false, true, false]);
    })
    .await;
}

/// See docs/research/threats.md#p2.
async fn minimum_permission_is_configurable(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let (writer, reader) = (world.person("writer", Access::Write), world.person("reader", Access::Read));
        // Only GitHub has a right between the two.
        let between = if dialect == Dialect::GitHub { Access::Maintain } else { Access::Admin };
        let maintainer = world.person("maint", between);
        let admin = world.maintainer.clone();
        let may = |floor: &str, user: &User| match floor {
            "maintain" => user.id != writer.id,
            _ => user.id != writer.id && (user.id != maintainer.id || between == Access::Admin),
        };
        for floor in ["maintain", "admin"] {
            world.setup.config = format!("permissions: {{ command: {floor}, allow: [{}] }}\n", reader.id.0);
            world.restart().await;
            for user in [&writer, &maintainer, &admin, &reader] {
                world.clock.advance_ms(1000);
                let before = world.all_loops().await.len();
                let asked = world.forge.comment(user, world.repo, world.issue, "/ralph run").await.expect("commented");
                if may(floor, user) {
                    world.stop_at("the start", |l| l.state == LoopState::Running).await;
                } else {
                    world.settle().await;
                }
                let begun = world.all_loops().await.len() - before;
                assert_eq!(begun, usize::from(may(floor, user)), "{floor}: {}", user.login);
                if begun == 0 {
                    assert_eq!(world.reactions(asked), ["-1"], "{floor}: {}", user.login);
                    continue;
                }
                world.forge.comment(user, world.repo, world.issue, "/ralph abort").await.expect("commented");
                world.settle().await;
                assert_eq!(world.the_loop().await.state, LoopState::Aborted);
            }
        }
    })
    .await;
}

/// Facts come from the issue's block, labels and the repository's file; the estimate comes from loops that ended here.
async fn stated_facts_and_estimate_are_in_the_first_comment(dialect: Dialect) {
    let file = "checks: [sh check.sh]\ntask: { complexity: 3, breaking_changes: false }\nlabels:\n  Hardening: { security_sensitive: false, complexity: 6 }\n";
    let limits = "limits: { comments_per_hour: 1000, comments_per_day: 1000 }";
    let mut setup = Setup::new(dialect).file(".ralph.yml", file).config(limits);
    setup.body = "It should be 42, see src/answer.rs.\n\n```ralph\ntask: { scope: [answer.txt], estimated_iterations: 2 }\n```\n".into();
    story(setup, async |world| {
        world.forge.label(&world.maintainer, world.repo, world.issue, "hardening").await.expect("labeled");
        world.label().await;
        world.settle().await;
        let first = world.bot_comments().into_iter().find(|text| text.contains("- Task: ")).expect("a status");
        for words in [
            "complexity 6 of 10, stated by a label (guess: ",
            "not security-sensitive, stated by a label (guess: no)",
            "not breaking, stated in the repository's file (guess: no)",
            "scope answer.txt, stated in this issue (guess: src/answer.rs)",
            "about 2 iterations, stated in this issue (guess: ",
        ] {
            assert!(first.contains(words), "{words}: {first}");
        }
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert_eq!(done.knowledge.past.map(|past| past.loops), Some(0));
        let facts = done.facts();
        assert_eq!((facts.complexity, facts.security_sensitive, facts.breaking_changes), (Some(6.0), false, false));
        assert_eq!((facts.scope, facts.estimated_iterations), (vec!["answer.txt".to_owned()], Some(2.0)));
        // The next loop of the repository shows the cost of this one.
        world.forge.close_issue(&world.maintainer, world.repo, world.issue).await.expect("closed");
        world.settle().await;
        world.clock.advance_ms(60_000);
        let other =
            world.forge.open_issue(&world.maintainer, world.repo, "The answer is wrong again", "42.", &[]).await;
        let other = other.expect("an issue");
        world.forge.comment(&world.maintainer, world.repo, other, "/ralph run").await.expect("commented");
        let looked_up = |l: &ralph_bot::domain::loops::Loop| l.issue.issue == other && l.knowledge.past.is_some();
        world.settle_until("its preparation", looked_up).await;
        while world.engine().forge_effects.forge_effect_step().await.expect("talk") {}
        let told = world.bot_comments_on(other).join("\n");
        world.settle().await;
        let all = world.all_loops().await;
        let past = all.into_iter().find(|l| l.issue.issue == other).and_then(|l| l.knowledge.past).expect("looked up");
        assert_eq!((past.loops, past.iterations.map(|found| found.median)), (1, Some(1)), "{told}");
        let estimate = "**Estimate** from 1 earlier loop here: typically 1 iteration, ";
        assert!(told.contains(estimate) && told.contains("; 9 of 10 took at most 1 iteration, "), "{told}");
    })
    .await;
}

/// A block with impossible facts starts nothing and is explained.
async fn invalid_facts_of_an_issue_are_explained(dialect: Dialect) {
    let mut setup = Setup::new(dialect);
    setup.body = "It should be 42.\n\n```ralph\ntask: { complexity: 11, colour: red }\n```\n".into();
    story(setup, async |world| {
        let waiting = world.run().await;
        assert_eq!((waiting.state, waiting.spent.iterations), (LoopState::NeedsCriteria, 0), "{}", waiting.why);
        assert!(world.bot_commented("`task`: unknown field"), "{:#?}", world.bot_comments());
    })
    .await;
}
