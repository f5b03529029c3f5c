//! Sample views of each kind, and the replacement of all their texts with hostile text.

use serde_json::Value;

use crate::domain::model::ids::{LoopId, Money, Number};
use crate::domain::model::task::{TamperFinding, TamperKind, TestCounts};
use crate::domain::report::view::*;

pub(super) fn loop_id() -> LoopId {
    LoopId::new("r-42-k7m2qa")
}

fn link(text: &str, path: &str) -> Link {
    Link { text: text.into(), url: format!("https://git.example.org/acme/app/{path}") }
}

fn hint(usage: &str, what: &str) -> CommandHint {
    CommandHint { usage: usage.into(), what: what.into() }
}

fn checks() -> Vec<CheckLine> {
    vec![
        CheckLine {
            name: "tests".into(),
            command: "cargo test --all".into(),
            holds: false,
            why: "exit code 101".into(),
            flaky: false,
            ran_once: false,
            unread: false,
            tests: Some(TestCounts { passing: 41, failing: 2, skipped: 1 }),
            duration_s: 38,
            output: "test parse::empty_input ... FAILED\ntest parse::trailing_comma ... FAILED\n\ntest result: FAILED. 41 passed; 2 failed".into(),
            line: None,
        },
        CheckLine {
            name: "lint".into(),
            command: "cargo clippy -- -D warnings | tee lint.log".into(),
            holds: true,
            why: String::new(),
            flaky: false,
            ran_once: false,
            unread: false,
            tests: None,
            duration_s: 12,
            output: String::new(),
            line: None,
        },
    ]
}

fn passing() -> Vec<CheckLine> {
    checks()
        .into_iter()
        .map(|check| CheckLine {
            holds: true,
            why: String::new(),
            tests: check.tests.map(|t| TestCounts { passing: t.passing + t.failing, failing: 0, skipped: 0 }),
            output: if check.output.is_empty() { String::new() } else { "test result: ok. 43 passed".into() },
            ..check
        })
        .collect()
}

fn findings() -> Vec<TamperFinding> {
    vec![TamperFinding::new("tests/parse.rs", TamperKind::TestsChanged, "+1 -0")]
}

pub(super) fn rows(count: u32) -> Vec<IterationRow> {
    (1..=count)
        .map(|n| IterationRow {
            n,
            approach: ["persist", "pivot: rewrite the tokenizer", "simplify"][n as usize % 3].into(),
            checks_held: u32::from(n > 1),
            checks_total: 2,
            completion_percent: Some((20 + n * 14).min(96) as u8),
            control_signal: Some(0.62 - 0.1 * f64::from(n.min(5))),
            duration_s: 130 + u64::from(n) * 47,
            cost: Some(Money::from_usd(0.21)),
        })
        .collect()
}

pub(super) fn status(count: u32) -> StatusView {
    StatusView {
        loop_id: loop_id(),
        superseded: false,
        state: "running".into(),
        headline: "Running the checks of iteration 4".into(),
        next_action: "no action is needed".into(),
        needs_person: false,
        iteration: count,
        max_iterations: Some(10),
        completion_percent: 62,
        checks_held: 1,
        checks_total: 2,
        rows: rows(count),
        cost: Some(Money::from_usd(0.84)),
        cost_limit: Some(Money::from_usd(10.0)),
        elapsed_s: 1_260,
        timeout_s: 7_200,
        branch: Some(link("ralph/42-parse-empty-input", "src/branch/ralph/42-parse-empty-input")),
        base_branch: "main".into(),
        pull: Some(link("#43", "pulls/43")),
        dashboard: Some(link("dashboard", "r-42")),
        course: Some(CourseLine {
            signal: 0.58,
            urgency: "high".into(),
            trend: "improving".into(),
            profile: "recovery".into(),
            forecast: Some(3),
            strategy: "different approach: minimal reproduction".into(),
            health: "warning".into(),
            terms: "0.58 = 0.45 (P) + 0.20 (I) - 0.07 (D)".into(),
            gains: "kp 0.80, ki 0.31, kd 0.02".into(),
            transition: "standard -> recovery: no progress (P 0.72, change +0.000 per iteration)".into(),
            alarms: vec![
                "stuck_loop (warning, since iteration 2): No progress in 3 iterations: P stays at 0.72.".into(),
            ],
        }),
        detections: vec![detection()],
        notes: vec!["The loop pauses after this iteration: mona wants to look.".into()],
        learnings: vec!["The tokenizer is shared with the formatter".into()],
        commands: vec![
            hint("/ralph guide TEXT", "add guidance for the next iteration"),
            hint("/ralph pause", "pause after this iteration"),
            hint("/ralph abort", "end the loop and keep the branch"),
        ],
        sandbox: "bubblewrap 0.8.0, network: listed hosts only".into(),
        backend: "claude (sonnet)".into(),
        checks: ["cargo test --all", "cargo clippy -- -D warnings"].map(planned_check).to_vec(),
        detected: true,
        started_by: "mona".into(),
        who_may: "people with write access".into(),
        task_facts: vec![
            "complexity 8 of 10, stated in this issue".into(),
            "scope src/parse, stated by a label".into(),
        ],
        past: Some(PastLine {
            loops: 12,
            task_type: "test fix".into(),
            usual_iterations: 3,
            most_iterations: 7,
            usual_seconds: 840,
            most_seconds: 2_400,
            usual_cost: Some(Money::from_usd(0.8)),
            most_cost: Some(Money::from_usd(2.1)),
        }),
        plan: (count > 2).then(plan_line),
        images: vec![
            "image 1 in the issue is used (PNG, 800 x 600 pixels, 12 KiB)".into(),
            "image 2 in a comment by otto was not used: SVG is not supported; use PNG, JPEG, GIF or WebP".into(),
        ],
        hidden_removed: 1,
        task_text: "Parser fails on empty input\n\nParsing an empty file panics.".into(),
    }
}

fn planned_check(command: &str) -> PlannedCheck {
    PlannedCheck {
        name: "tests".into(),
        command: command.into(),
        rule: "exit code 0".into(),
        source: "detected from the repository's files".into(),
    }
}

fn detection() -> DetectionLine {
    DetectionLine {
        title: "The loop is stuck".into(),
        severity: "high".into(),
        level: "REDIRECT".into(),
        evidence: "the same error in 3 of the last 5 iterations: `E0308 mismatched types`".into(),
    }
}

pub(super) fn iteration() -> IterationView {
    IterationView {
        loop_id: loop_id(),
        folded: false,
        n: 3,
        max: Some(10),
        approach: "pivot: rewrite the tokenizer".into(),
        summary: "Rewrote the tokenizer so that it keeps its place.\n\n- `Tokenizer::next` no longer skips commas\n- added two tests".into(),
        files: vec![
            FileLine { path: "src/parse.rs".into(), added: 48, removed: 31 },
            FileLine { path: "tests/parse.rs".into(), added: 22, removed: 0 },
        ],
        more_files: 3,
        checks: checks().into_iter().map(|check| CheckLine { line: (!check.holds).then_some(120), ..check }).collect(),
        checks_held: 1,
        checks_total: 2,
        completion_percent: 62,
        previous_percent: Some(48),
        learnings: vec!["The tokenizer is shared with the formatter".into()],
        blockers: vec!["`Span` has no `Default`".into()],
        next: "fix the failing check `tests`".into(),
        strategy: "different approach: minimal reproduction (reason: the loop is stuck)".into(),
        detections: vec![detection()],
        findings: findings(),
        restored_paths: vec![".github/workflows/ci.yml".into()],
        refused_hosts: vec!["registry.npmjs.org:443".into()],
        refused_requests: vec![],
        denied_tools: vec!["Bash".into()],
        commit: Some(link("3f2a91c0", "commit/3f2a91c0")),
        agent_problem: None,
        duration_s: 271,
        cost: Some(Money::from_usd(0.21)),
        places: vec![FailureLocation {
            place: "src/parse.rs:88".into(),
            check: "tests".into(),
            message: "thread 'parses_commas' panicked at src/parse.rs:88:5: a | b".into(),
        }],
        links: file_links(),
        dashboard: Some(link("dashboard", "r-42/iterations/3")),
    }
}

/// Returns a line about an approved plan.
fn plan_line() -> PlanLine {
    PlanLine {
        hash: "1a2b3c4d".into(),
        plan_text: "Return an empty document.\n\nSteps:\n1. Handle the empty text.".into(),
        approved_by: "mona".into(),
        approved_at: "2026-11-23 05:00 UTC".into(),
        changes: "Keep the error for `null`.".into(),
    }
}

/// Returns a plan with these questions.
pub(super) fn plan(questions: &[&str]) -> PlanView {
    let list = |entries: &[&str]| entries.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>();
    let approve = match questions {
        [] => vec![
            hint("/ralph approve 1a2b3c4d", "start with exactly this plan"),
            hint("/ralph approve 1a2b3c4d CHANGES", "start with this plan and your changes"),
        ],
        _ => vec![hint("/ralph approve 1a2b3c4d ANSWERS", "start with this plan and your answers")],
    };
    let others = [hint("/ralph plan CHANGES", "request another plan"), hint("/ralph abort", "end the loop")];
    PlanView {
        loop_id: loop_id(),
        hash: "1a2b3c4d".into(),
        summary: "The parser returns an empty document for empty input, as it does for a lone comment.".into(),
        steps: list(&["Return early in `parse` when there is no token.", "Add tests for empty and blank input."]),
        files: list(&["src/parse.rs", "tests/parse.rs"]),
        checks: list(&["cargo test --all"]),
        not_doing: list(&["No change to the error type."]),
        questions: list(questions),
        mention: Some("mona".into()),
        commands: approve.into_iter().chain(others).collect(),
        who_may: "people with write access".into(),
        reminder: false,
    }
}

pub(super) fn pull() -> PullView {
    PullView {
        opinion: None,
        loop_id: loop_id(),
        title: "Parser fails on empty input (#42) for @mona".into(),
        template: Vec::new(),
        closes: Number(42),
        state: PullWorkState::Ready,
        what: "The tokenizer keeps its place, so empty input and trailing commas parse.".into(),
        why: "Parsing an empty file panics.\n\nIt should give an empty document.".into(),
        plan: Some(plan_line()),
        checks: passing(),
        iterations: 4,
        max_iterations: Some(10),
        completion_percent: 100,
        elapsed_s: 1_260,
        cost: Some(Money::from_usd(0.84)),
        spent_on: vec![
            SpentLine { backend: "claude".into(), cost: Money::from_usd(0.6), estimated: false },
            SpentLine { backend: "codex".into(), cost: Money::from_usd(0.24), estimated: true },
        ],
        look_first: vec!["`src/parse.rs`: the tokenizer was rewritten".into()],
        findings: findings(),
        accepted: vec![AcceptedLine {
            by: "mona".into(),
            found: TamperFinding::new(
                "tests/old.rs",
                TamperKind::OnlyChangedTests,
                "with the base's version, `cargo test` fails: exit code 101",
            ),
        }],
        manifests: vec!["Cargo.lock".into()],
        started_by: "mona".into(),
        dashboard: Some(link("dashboard", "r-42")),
        places: vec![],
        links: file_links(),
    }
}

fn file_links() -> FileLinks {
    let page = "https://forge.example/acme/app/blob/3f2a91c0";
    let link = |key: &str, rest: &str| (key.to_owned(), format!("{page}/{rest}"));
    [
        link("src/parse.rs", "src/parse.rs"),
        link("src/parse.rs:88", "src/parse.rs#L88"),
        link("Cargo.lock", "Cargo.lock"),
    ]
    .into()
}

pub(super) fn completion() -> CompletionView {
    CompletionView {
        opinion: String::new(),
        proposals: vec![],
        loop_id: loop_id(),
        outcome: LoopOutcome::LimitReached,
        reason: "10 of 10 iterations were used".into(),
        next_action: String::new(),
        iterations: 10,
        max_iterations: Some(10),
        elapsed_s: 5_400,
        cost: Some(Money::from_usd(2.1)),
        spent_on: vec![SpentLine { backend: "codex".into(), cost: Money::from_usd(2.1), estimated: true }],
        completion_percent: 62,
        unsolved: vec![],
        checks: checks(),
        files: vec![FileLine { path: "src/parse.rs".into(), added: 48, removed: 31 }],
        more_files: 0,
        learnings: vec!["The tokenizer is shared with the formatter".into()],
        findings: vec![],
        branch: Some(link("ralph/42-parse-empty-input", "src/branch/ralph/42-parse-empty-input")),
        pull: Some(link("#43", "pulls/43")),
        options: vec![
            hint("/ralph resume --max-iterations 15", "continue with 5 more iterations"),
            hint("/ralph abort", "end the loop and keep the branch"),
        ],
    }
}

pub(super) fn escalation() -> EscalationView {
    EscalationView {
        loop_id: loop_id(),
        severity: EscalationSeverity::Critical,
        cause: "stuck".into(),
        headline: "the same error in 5 of the last 5 iterations".into(),
        state: "is paused".into(),
        assignee: Some("mona".into()),
        issue: link("#42", "issues/42"),
        what_happened: "The loop is stuck".into(),
        iteration: 8,
        at: "2026-01-15T10:00:00Z".into(),
        detections: vec![detection()],
        record: "{\n  \"level\": \"critical\",\n  \"cause\": \"stuck\"\n}".into(),
        evidence: vec![
            "the same error in 5 of the last 5 iterations: `expected expression, found end of input`".into(),
            "1 % gained in 5 iterations".into(),
            "`cargo test --all` fails: exit code 101".into(),
        ],
        diff: String::new(),
        intervention: "The loop is paused: no agent runs and no cost accrues".into(),
        recommendations: vec!["Say whether an empty document may have a root node".into(), "Narrow the checks".into()],
        recent: (6..9)
            .map(|n| RecentIteration {
                n,
                approach: "add a check for the end of input".into(),
                outcome: "still failing: tests".into(),
                checks_held: 1,
                checks_total: 2,
                completion_percent: 62,
            })
            .collect(),
        tried: vec!["find the cause first (iterations 4 and later; cause: stuck)".into()],
        learnings: vec![
            "The tokenizer is shared with the formatter".into(),
            "Blocked by: no fixture for empty input".into(),
        ],
        replies: vec![
            hint("/ralph resume GUIDANCE", "continue; guidance is optional"),
            hint("/ralph abort", "end the loop and keep the branch"),
        ],
        next: String::new(),
        dashboard: Some(link("dashboard", "r-42")),
        at_home: false,
    }
}

/// Returns one view of each kind.
pub(super) fn all() -> Vec<View> {
    vec![
        View::Status(Box::new(status(4))),
        View::Iteration(Box::new(iteration())),
        View::NeedsCriteria(NeedsCriteriaView {
            loop_id: loop_id(),
            looked_at: vec![
                "this issue: no `ralph` block or completion criteria".into(),
                "Cargo.toml, package.json, go.mod: no known command that tests, lints or builds".into(),
            ],
            holding: Vec::new(),
            flaky: Vec::new(),
            proposed: Vec::new(),
            repository_file: ".github/ralph.yml".into(),
            who_may: "people with write access".into(),
        }),
        View::NeedsConfirm(NeedsConfirmView {
            loop_id: None,
            reason: ConfirmReason::EditedBefore,
            task_text: "Parser fails on empty input\n\nParsing an empty file panics.".into(),
            hash: "9f86d081".into(),
            editor: Some("visitor".into()),
            unseen: Vec::new(),
            excerpts: Vec::new(),
        }),
        View::Plan(Box::new(plan(&[]))),
        View::WhoMay(WhoMayView {
            who: "visitor".into(),
            label: "ralph:run".into(),
            who_may: "people with write access".into(),
            hidden_teams: Vec::new(),
        }),
        View::Reply(CommandReply {
            command: "/ralph rnu".into(),
            ok: false,
            lines: vec!["There is no command `rnu`.".into()],
            nearest: Some("/ralph run".into()),
        }),
        View::Waiting(WaitingView {
            loop_id: loop_id(),
            reason: "No agent is available: claude: used-up quota (You've hit your 5-hour limit).".into(),
            until: "2026-11-23 05:00 UTC".into(),
            wait_s: 8_100,
            mention: Some("mona".into()),
            commands: vec![hint("/ralph abort", "end the loop and keep the branch")],
        }),
        View::Help(HelpView {
            commands: vec![hint("/ralph run [--check \"CMD\"]", "Starts a loop on this issue.")],
            settings: vec![HelpSetting { name: "Maximum iterations".into(), value: "10".into() }],
            who_may: "people with write access".into(),
            version: "ralph-bot 0.1.0".into(),
        }),
        View::Pull(Box::new(pull())),
        View::Completion(Box::new(completion())),
        View::Escalation(Box::new(escalation())),
        View::RepositoryFileError(RepositoryFileErrorView {
            loop_id: Some(loop_id()),
            path: ".github/ralph.yml".into(),
            error: "line 3: unknown key `chekcs`; did you mean `checks`?".into(),
        }),
    ]
}

/// Replaces all free text in a view with `text`. Keeps values that templates branch on.
pub(super) fn with_text(view: &View, text: &str) -> View {
    fn replace(name: &str, value: &mut Value, text: &str) {
        match value {
            Value::String(old)
                if !matches!(name, "view" | "kind" | "grade" | "outcome" | "severity" | "reason" | "state" | "url") =>
            {
                *old = text.to_owned();
            }
            Value::Array(items) => items.iter_mut().for_each(|item| replace(name, item, text)),
            Value::Object(map) => map.iter_mut().for_each(|(name, item)| replace(name, item, text)),
            _ => {}
        }
    }
    let mut json = serde_json::to_value(view).unwrap();
    replace("", &mut json, text);
    serde_json::from_value(json).unwrap()
}

/// Repeats each list in a view to `length` entries.
pub(super) fn with_lists(view: &View, length: usize) -> View {
    fn lengthen(value: &mut Value, length: usize) {
        match value {
            Value::Array(items) => {
                items.iter_mut().for_each(|item| lengthen(item, length));
                *items = items.iter().cycle().take(if items.is_empty() { 0 } else { length }).cloned().collect();
            }
            Value::Object(map) => map.values_mut().for_each(|item| lengthen(item, length)),
            _ => {}
        }
    }
    let mut json = serde_json::to_value(view).unwrap();
    lengthen(&mut json, length);
    serde_json::from_value(json).unwrap()
}
