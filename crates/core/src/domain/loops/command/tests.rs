//! Lines that are commands, and lines that are not.

use proptest::prelude::*;

use super::*;
use crate::domain::loops::{CommandInput, LoopInput};
use crate::domain::model::ids::Money;
use crate::domain::model::quantity::IterationLimit;
use crate::domain::trust::sanitize::document::tests::read_markdown;

/// Parses the commands in a comment as a forge displays it.
fn parse(comment: &str) -> Vec<Result<LoopCommand, CommandError>> {
    if is_mentioned(comment) { super::parse(&read_markdown(comment)) } else { Vec::new() }
}

fn ok(comment: &str) -> LoopCommand {
    match parse(comment).as_slice() {
        [Ok(command)] => command.clone(),
        other => panic!("{comment:?} gave {other:?}"),
    }
}

fn problem(comment: &str) -> CommandError {
    match parse_typed(comment).as_slice() {
        [Err(error)] => error.clone(),
        other => panic!("{comment:?} gave {other:?}"),
    }
}

fn resume(guidance: &str) -> LoopCommand {
    LoopCommand::Resume(Resume { options: RunOptions::default(), guidance: guidance.into() })
}

fn plan(options: RunOptions, wishes: &str) -> LoopCommand {
    LoopCommand::MakePlan(MakePlan { options, wishes: wishes.into() })
}

fn approve(hash: Option<&str>, changes: &str) -> LoopCommand {
    LoopCommand::Approve(Approve { hash: hash.map(str::to_owned), changes: changes.into() })
}

#[test]
fn only_plain_lines_of_the_comment_are_commands() {
    let nothing = [
        "",
        "please /ralph resume",
        "    /ralph resume",
        "\t/ralph resume",
        "\u{a0}/ralph resume",
        "> /ralph resume",
        ">/ralph resume",
        "> quoted\n/ralph resume",
        "> > /ralph resume",
        "> [!NOTE]\n> /ralph resume",
        "- /ralph resume",
        "* /ralph resume",
        "1. /ralph resume",
        "- item\n/ralph resume",
        "- [ ] /ralph resume",
        "```\n/ralph resume\n```",
        "~~~\n/ralph resume\n~~~",
        "```sh\n/ralph resume",
        "````\n```\n/ralph resume\n```\n````",
        "`/ralph resume`",
        "`code\n/ralph resume\n`",
        "<!-- /ralph resume -->",
        "<!--\n/ralph resume\n-->",
        "<!--\n/ralph resume",
        "text <!-- a\n/ralph resume\n-->",
        "<details>\n/ralph resume\n</details>",
        "<div>\n/ralph resume\n</div>",
        "<pre>\n/ralph resume\n</pre>",
        "# /ralph resume",
        "/ralph resume\n===",
        "| a |\n|---|\n| /ralph resume |",
        "**/ralph resume**",
        "_/ralph resume_",
        "[/ralph resume](https://example.org)",
        "[text\n/ralph resume](https://example.org)",
        "![/ralph resume](x.png)",
        "[^1]: /ralph resume",
        "&#47;ralph resume",
        "\u{ff0f}ralph resume",
        "\u{2044}ralph resume",
        "\u{2215}ralph resume",
        "/r\u{430}lph resume",
        "/ra\u{200b}lph resume",
        "/ralph\u{200b} resume",
        "\u{200b}/ralph resume",
        "\u{202e}/ralph resume",
        "/\u{2060}ralph resume",
        "/ralph\u{a0}resume",
        "/ralph\u{3000}resume",
        "/ralphresume",
        "/ralph-resume",
        "/ralph:resume",
        "/Ralph resume",
        "/RALPH resume",
        "//ralph resume",
        "./ralph resume",
        "@ralph resume",
        "!ralph resume",
        "ralph resume",
        "/ralp",
        "/approve",
    ];
    assert!(nothing.len() >= 56);
    for comment in nothing {
        assert_eq!(parse(comment), vec![], "{comment:?}");
    }
}

#[test]
fn canonical_forms_are_commands() {
    for comment in [
        "/ralph resume",
        "/ralph resume\n",
        "/ralph resume\r\n",
        "/ralph   resume  ",
        "\n\n/ralph resume",
        "Thanks!\n/ralph resume",
        "Thanks!\r\n/ralph resume\r\n",
        "> quoted\n\n/ralph resume",
        "```\ncode\n```\n/ralph resume",
        "- item\n\n\nbye\n/ralph resume",
        "<!-- hidden -->\n\n/ralph resume",
        "   /ralph resume",
        "\\/ralph resume",
        "\u{feff}/ralph resume",
    ] {
        assert_eq!(ok(comment), resume(""), "{comment:?}");
    }
}

#[test]
fn every_command_of_the_table_is_parsed() {
    let table = [
        ("/ralph", LoopCommand::Help(Help)),
        ("/ralph help", LoopCommand::Help(Help)),
        ("/ralph status", LoopCommand::Status(Status)),
        ("/ralph retry", LoopCommand::Retry(Retry)),
        ("/ralph run", LoopCommand::Run(Run { options: RunOptions::default(), guidance: String::new() })),
        (
            "/ralph run Fix the\nflaky test",
            LoopCommand::Run(Run { options: RunOptions::default(), guidance: "Fix the\nflaky test".into() }),
        ),
        ("/ralph abort", LoopCommand::Abort(Abort { reason: String::new() })),
        ("/ralph abort it's wrong\nmore", LoopCommand::Abort(Abort { reason: "it's wrong".into() })),
        ("/ralph pause", LoopCommand::Pause(Pause { now: false, reason: String::new() })),
        (
            "/ralph pause --now release \"week\"",
            LoopCommand::Pause(Pause { now: true, reason: "release \"week\"".into() }),
        ),
        ("/ralph pause -- --now", LoopCommand::Pause(Pause { now: false, reason: "--now".into() })),
        (
            "/ralph guide use serde",
            LoopCommand::Guide(Guide { remember: false, text: "use serde".into(), proposal: None }),
        ),
        (
            "/ralph guide --remember\nuse serde",
            LoopCommand::Guide(Guide { remember: true, text: "use serde".into(), proposal: None }),
        ),
        (
            "/ralph guide --remember 12",
            LoopCommand::Guide(Guide { remember: true, text: String::new(), proposal: Some(12) }),
        ),
        (
            "/ralph guide --remember #3",
            LoopCommand::Guide(Guide { remember: true, text: String::new(), proposal: Some(3) }),
        ),
        ("/ralph guide 12", LoopCommand::Guide(Guide { remember: false, text: "12".into(), proposal: None })),
        ("/ralph plan", plan(RunOptions::default(), "")),
        ("/ralph plan smaller\nand in steps", plan(RunOptions::default(), "smaller\nand in steps")),
        (
            "/ralph plan --max-iterations 3 no new files",
            plan(RunOptions { max_iterations: Some(IterationLimit::of(3)), ..RunOptions::default() }, "no new files"),
        ),
        ("/ralph approve", approve(None, "")),
        ("/ralph approve 0a1b2c3d", approve(Some("0a1b2c3d"), "")),
        ("/ralph approve `0A1B2C3D` but keep the API", approve(Some("0A1B2C3D"), "but keep the API")),
        ("/ralph approve 0a1b2", approve(Some("0a1b2"), "")),
        ("/ralph approve deadbeef", approve(Some("deadbeef"), "")),
        ("/ralph approve add a test", approve(None, "add a test")),
        ("/ralph approve 1. yes\n2. no", approve(None, "1. yes\n2. no")),
        ("/ralph budget 5", LoopCommand::Budget(Budget { limit: Money(5_000_000) })),
        ("/ralph iterations 12", LoopCommand::Iterations(Iterations { limit: IterationLimit::of(12) })),
        ("/ralph budget $5.05", LoopCommand::Budget(Budget { limit: Money(5_050_000) })),
    ];
    for (comment, command) in table {
        assert_eq!(ok(comment), command, "{comment:?}");
    }
    for row in TABLE {
        let samples = ["", " x", " 5"].map(|arguments| format!("/ralph {}{arguments}", row.name));
        let parsed = samples.iter().find_map(|sample| parse(sample).pop()?.ok());
        assert_eq!(parsed.map(|command| command.row()), Some(*row));
        assert!(row.usage.starts_with(&format!("/ralph {}", row.name)), "{}", row.usage);
    }
}

#[test]
fn stored_commands_are_read_again() {
    let stored = [
        (r#"{"command":"status"}"#, "/ralph status"),
        (r#"{"command":"retry"}"#, "/ralph retry"),
        (r#"{"command":"help"}"#, "/ralph help"),
        (r#"{"command":"abort","reason":"no"}"#, "/ralph abort no"),
        (r#"{"command":"pause","now":true,"reason":""}"#, "/ralph pause --now"),
        (r#"{"command":"guide","remember":true,"text":"be kind"}"#, "/ralph guide --remember be kind"),
        (r#"{"command":"budget","limit":5000000}"#, "/ralph budget 5"),
        (r#"{"command":"iterations","limit":12}"#, "/ralph iterations 12"),
        (r#"{"command":"approve","hash":"0a1b2c3d","changes":"x"}"#, "/ralph approve 0a1b2c3d x"),
    ];
    for (json, comment) in stored {
        let command = ok(comment);
        assert_eq!(serde_json::from_str::<LoopCommand>(json).expect("a command"), command, "{json}");
        assert_eq!(serde_json::to_string(&command).expect("JSON"), json);
        let input = LoopInput::Command(CommandInput::Given { by: author(), command, comment: None });
        let text = serde_json::to_string(&input).expect("JSON");
        assert_eq!(serde_json::from_str::<LoopInput>(&text).expect("an input"), input);
    }
}

fn author() -> User {
    use crate::domain::model::ids::{AccountKind, UserId};
    User { id: UserId(1), login: "olaf".into(), kind: AccountKind::User }
}

#[test]
fn records_name_only_commands_that_change_the_loop() {
    let recorded = |comment: &str, record| ok(comment).recorded(record);
    use CommandRecord::{Session, SessionAndAudit};
    assert_eq!(recorded("/ralph status", Session), None);
    assert_eq!(recorded("/ralph resume be kind", Session).as_deref(), Some("resume be kind"));
    assert_eq!(recorded("/ralph resume be kind", SessionAndAudit), None, "the audit trail has an entry for it");
    assert_eq!(recorded("/ralph approve 0a1b2c3d x", SessionAndAudit).as_deref(), Some("approve 0a1b2c3d x"));
    assert_eq!(recorded("/ralph pause --now", SessionAndAudit).as_deref(), Some("pause --now"));
    assert_eq!(recorded("/ralph guide --remember x", SessionAndAudit).as_deref(), Some("guide --remember x"));
}

#[test]
fn options_accept_both_forms_and_quotes() {
    let expected = RunOptions {
        checks: vec!["cargo test --all".into(), "npm run lint".into(), "say \"hi\" \\n".into()],
        max_iterations: Some(IterationLimit::of(12)),
        timeout_s: Some(5_400),
        budget: Some(Money(2_500_000)),
        backend: Some("claude".into()),
        base: Some("release/2.x".into()),
        confirm: Some("deadbeef".into()),
    };
    for comment in [
        r#"/ralph run --check "cargo test --all" --check 'npm run lint' --check "say \"hi\" \n" --max-iterations 12 --timeout 1h30m --budget $2.50 --backend claude --base release/2.x --confirm DEADBEEF"#,
        r#"/ralph run --check="cargo test --all" --check='npm run lint' --check 'say "hi" \n' --max-iterations=12 --timeout=90m --budget=2.5 --backend=claude --base=release/2.x --confirm=deadbeef"#,
    ] {
        assert_eq!(
            parse_typed(comment),
            [Ok(LoopCommand::Run(Run { options: expected.clone(), guidance: String::new() }))]
        );
    }
}

#[test]
fn backticks_protect_a_value() {
    let LoopCommand::Run(Run { options, .. }) = ok("/ralph run --check `pytest -k 'a * b' \\*_x_`") else { panic!() };
    assert_eq!(options.checks, ["pytest -k 'a * b' \\*_x_"]);
}

#[test]
fn guidance_ends_at_the_next_command() {
    let comment = "/ralph resume --max-iterations 3 Mind the\nedge cases:\n\n- `a`\n- b\n\n> /ralph abort\n\n```\n/ralph abort\n```\n/ralph status\n\n/ralph guide last words";
    let options = RunOptions { max_iterations: Some(IterationLimit::of(3)), ..RunOptions::default() };
    let guidance = "Mind the\nedge cases:\n\n- `a`\n- b\n\n> /ralph abort\n\n```\n/ralph abort\n```".to_owned();
    assert_eq!(
        parse(comment),
        vec![
            Ok(LoopCommand::Resume(Resume { options, guidance })),
            Ok(LoopCommand::Status(Status)),
            Ok(LoopCommand::Guide(Guide { remember: false, text: "last words".into(), proposal: None })),
        ]
    );
    assert_eq!(ok("/ralph resume\r\nline one\r\nline two\r\n"), resume("line one\nline two"));
    assert_eq!(ok("/ralph resume -- --not an option"), resume("--not an option"));
}

#[test]
fn long_guidance_is_cut_at_a_character() {
    let LoopCommand::Guide(Guide { text, .. }) = ok(&format!("/ralph guide {}", "ä".repeat(20_000))) else { panic!() };
    assert_eq!(text.len(), 16 * 1024);
}

#[test]
fn errors_state_problem_and_nearest_command() {
    let table: [(&str, &str, Option<&str>); 39] = [
        ("/ralph rnu", "no command `rnu`", Some("/ralph run")),
        ("/ralph RUN", "no command `RUN`", Some("/ralph run")),
        ("/ralph resmue", "no command", Some("/ralph resume")),
        ("/ralph stop", "no command", Some("/ralph help")),
        ("/ralph \u{202e}nur", "no command", Some("/ralph help")),
        ("/ralph status please", "accepts no text", Some("/ralph status")),
        ("/ralph retry 2", "accepts no text", Some("/ralph retry")),
        ("/ralph help me", "accepts no text", Some("/ralph help")),
        ("/ralph run --chekc x", "no option `--chekc`", Some("--check")),
        ("/ralph run --max-iteration 5", "no option", Some("--max-iterations")),
        ("/ralph run --iterations=5", "no option", Some("--max-iterations")),
        ("/ralph run --xyzzy", "no option `--xyzzy`", None),
        ("/ralph run —check x", "two plain hyphens", None),
        ("/ralph pause --nwo", "no option", Some("--now")),
        ("/ralph pause --now=yes", "no option", Some("--now")),
        ("/ralph iterations", "from 1 to 1000", Some("/ralph iterations 10")),
        ("/ralph iterations 0", "from 1 to 1000", Some("/ralph iterations 10")),
        ("/ralph iterations 1001", "from 1 to 1000", Some("/ralph iterations 10")),
        ("/ralph iterations 3 more", "accepts no text", Some("/ralph iterations")),
        ("/ralph guide", "needs the guidance", None),
        ("/ralph guide --remember", "needs the guidance", None),
        ("/ralph run --check", "needs a value", Some("--check \"cargo test\"")),
        ("/ralph run --check \"\"", "needs a value", Some("--check \"cargo test\"")),
        ("/ralph run --check \"  \"", "needs a command", None),
        ("/ralph run --check \"cargo test", "not closed", None),
        ("/ralph run --check “cargo test”", "straight quotes", None),
        ("/ralph run --max-iterations 0", "from 1 to 1000", None),
        ("/ralph run --max-iterations 1001", "from 1 to 1000", None),
        ("/ralph run --max-iterations -1", "from 1 to 1000", None),
        ("/ralph run --max-iterations +5", "from 1 to 1000", None),
        ("/ralph run --max-iterations 99999999999999", "from 1 to 1000", None),
        ("/ralph run --timeout 90", "not a duration", None),
        ("/ralph run --timeout 0m", "between one second and 30 days", None),
        ("/ralph run --timeout 30m1h", "not a duration", None),
        ("/ralph run --budget 5,00", "not an amount", None),
        ("/ralph run --budget 0", "above $0", None),
        ("/ralph run --budget 5 --budget 6", "given twice", None),
        ("/ralph run --base ../main", "not the name of a branch", None),
        ("/ralph run --confirm xyz", "not the hash", None),
    ];
    for (comment, words, nearest) in table {
        let error = problem(comment);
        assert!(error.problem.contains(words), "{comment:?}: {error}");
        assert_eq!(error.nearest.as_deref(), nearest, "{comment:?}");
        assert_eq!(error.to_string().contains("Did you mean"), nearest.is_some());
    }
}

#[test]
fn values_outside_their_range_are_rejected() {
    for (text, seconds) in [("45s", 45), ("90m", 5_400), ("2h", 7_200), ("1h30m", 5_400), ("1d2h3m4s", 93_784)] {
        assert_eq!(values::duration(text).ok(), Some(seconds), "{text}");
    }
    for text in ["", "h", "1", "1h1h", "1x", "-1h", "1.5h", "31d", "99999999999999999999d", "１h"] {
        assert!(values::duration(text).is_err(), "{text}");
    }
    for (text, millionths) in [("5", 5_000_000), ("0.01", 10_000), ("$5.5", 5_500_000), ("100000", 100_000_000_000)] {
        assert_eq!(values::money(text).ok(), Some(Money(millionths)), "{text}");
    }
    for text in ["", "$", "-5", "5.", ".5", "1e3", "NaN", "inf", "100000.01", "5.0000001", "5 ", "٥"] {
        assert!(values::money(text).is_err(), "{text}");
    }
    for text in ["main", "feature/x-1", "v1.2", "fix/#12"] {
        assert!(values::branch(text).is_ok(), "{text}");
    }
    for text in ["", "-rf", "a b", "a..b", "/a", "a/", "a//b", "x.lock", ".git", "a/.b", "a;rm", "a@{1}", "a\u{3000}b"]
    {
        assert!(values::branch(text).is_err(), "{text}");
    }
    assert!(values::backend("--flag").is_err() && values::backend("a/b").is_err() && values::backend("mine-2").is_ok());
    assert!(values::check(&"x".repeat(2_001)).is_err() && values::check("a\u{7}").is_err());
}

#[test]
fn numbers_of_commands_and_checks_are_limited() {
    let results = parse(&"/ralph status\n".repeat(500));
    assert_eq!(results.len(), 11);
    assert!(results[..10].iter().all(Result::is_ok) && results[10].is_err());
    let many = format!("/ralph run {}", "--check x ".repeat(17));
    assert!(problem(&many).problem.contains("at most 16"));
}

#[test]
fn errors_contain_no_markup() {
    let error = problem(&format!("/ralph `@team`{}", "x".repeat(500)));
    assert!(!error.line.contains('`') && error.line.chars().count() <= 120);
}

proptest! {
    #[test]
    fn any_text_does_not_panic(text in "\\PC*") {
        parse(&text);
        parse_typed(&text);
    }

    #[test]
    fn command_like_text_does_not_panic(
        parts in prop::collection::vec(prop::sample::select(vec![
            "/ralph", " ", "\n", "\r\n", "run", "resume", "--check", "=", "\"", "'", "`", "```", ">", "- ", "<!--", "-->",
            "<div>", "\\", "--", "--timeout", "1h", "ä", "\u{202e}", "budget", "$5", "[", "](", ")", "|", "---", "\t", "*",
        ]), 0..60)
    ) {
        parse(&parts.concat());
    }

    #[test]
    fn quoted_text_contains_no_command(lines in prop::collection::vec("[ -~]{0,30}", 1..8)) {
        let quoted: String = lines.iter().map(|line| format!("> {line}\n> /ralph abort\n")).collect();
        prop_assert_eq!(parse(&quoted), vec![]);
    }

    #[test]
    fn fenced_text_contains_no_command(lines in prop::collection::vec("[ -_a-~]{0,30}", 1..8)) {
        let fenced = format!("```\n{}\n/ralph abort\n```", lines.join("\n/ralph abort\n"));
        prop_assert_eq!(parse(&fenced), vec![]);
    }
}

#[test]
fn merge_when_ready_accepts_off_or_no_argument() {
    let command = |on| LoopCommand::MergeWhenReady(MergeWhenReady { on });
    assert_eq!(ok("/ralph merge-when-ready"), command(true));
    assert_eq!(ok("/ralph merge-when-ready off"), command(false));
    assert_eq!(command(false).recorded(CommandRecord::SessionAndAudit).as_deref(), Some("merge-when-ready off"));
    assert_eq!(problem("/ralph merge-when-ready now").nearest.as_deref(), Some("/ralph merge-when-ready off"));
    assert_eq!(problem("/ralph merge-when-redy").nearest.as_deref(), Some("/ralph merge-when-ready"));
}
