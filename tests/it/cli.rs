//! The command line as an operator meets it: the real binary in a folder, with and without its configuration.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use ralph_bot::process::sandbox::Tier;
use ralph_bot::store::Store;
use serde_json::Value;
use tokio::process::Command;

use crate::harness::sandbox;
use crate::parts::command;

const FILE: &str =
    "forges: [{ name: work, kind: gitea, url: 'http://127.0.0.1:9', token_env: T, webhook_secret_env: S }]
sandbox: { required: none }
backends: { mine: { type: script, command: [sh, -c, 'echo 42 >answer.txt'] } }
";

fn ralph(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = command(env!("CARGO_BIN_EXE_ralph-bot"));
    command.current_dir(folder).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", folder);
    command.args(arguments);
    command
}

async fn run(command: &mut Command) -> Output {
    command.output().await.expect("it starts")
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("ralph-control.yaml"), FILE).expect("written");
    folder
}

/// D4: nothing is started where the disk cannot be written, and the place is named.
#[tokio::test]
async fn a_read_only_disk_is_named() {
    if sandbox().await.tier != Tier::A {
        return;
    }
    let folder = folder();
    let file = folder.path().join("ralph-control.yaml");
    let secret = "a-webhook-secret-that-is-long-enough";
    std::fs::write(&file, format!("{FILE}data_dir: data\nserver: {{ listen: '127.0.0.1:0' }}\n")).expect("written");
    for there_is_one in [false, true] {
        if there_is_one {
            std::fs::create_dir(folder.path().join("data")).expect("a folder");
            drop(Store::open(&folder.path().join("data/ralph.db")).expect("a database"));
        }
        let mut command = command("bwrap");
        command.current_dir(folder.path()).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.env("HOME", folder.path()).env("T", "token").env("S", secret);
        command.args(["--ro-bind", "/", "/", "--proc", "/proc", "--die-with-parent", "--"]);
        command.arg(env!("CARGO_BIN_EXE_ralph-bot")).arg("serve").kill_on_drop(true);
        let ended = tokio::time::timeout(Duration::from_secs(30), run(&mut command)).await.expect("it ends by itself");
        let told = said(&ended.stderr);
        assert!(!ended.status.success(), "{told}");
        assert!(told.contains("data") && told.to_lowercase().contains("read-only"), "{there_is_one}: {told}");
    }
}

/// Every `ralph-bot …` in the table of the README is there, with each of its subcommands.
#[tokio::test]
async fn what_the_readme_names_is_there() {
    let folder = tempfile::tempdir().expect("a folder");
    // A bar within a cell is escaped.
    let readme = include_str!("../../README.md").replace("\\|", "|");
    let cells =
        readme.lines().filter(|line| line.starts_with("| `ralph-bot ")).filter_map(|line| line.split(" | ").next());
    let named: Vec<&str> =
        cells.flat_map(|cell| cell.split('`').filter(|part| part.starts_with("ralph-bot "))).collect();
    assert!(named.len() > 10, "{named:?}");
    for usage in named {
        let mut words = usage.split_whitespace().skip(1);
        let command = words.next().expect("a command");
        let choices = words.next().and_then(|word| word.strip_prefix('[')?.strip_suffix(']')).unwrap_or_default();
        for choice in choices.split('|') {
            // What is chosen is a subcommand, or a value.
            let given: Vec<&str> = [command, choice, "--help"].into_iter().filter(|word| !word.is_empty()).collect();
            let output = run(&mut ralph(folder.path(), &given)).await;
            assert!(output.status.success(), "{usage}: {given:?}: {}", said(&output.stderr));
            let help = said(&output.stdout);
            assert!(help.contains(&format!("ralph-bot {command}")), "{given:?}: {help}");
            let option = choice.starts_with("--") && help.contains(choice);
            let there = choice.is_empty() || option || help.contains(&format!("ralph-bot {command} {choice}"));
            assert!(there || help.contains(&format!("- {choice}:")), "{given:?}: {help}");
        }
    }
}

/// A nightly copy and a look at the loops are made from where no token is.
#[tokio::test]
async fn the_database_is_looked_at_without_any_secret() {
    let folder = folder();
    std::fs::create_dir(folder.path().join("data")).expect("made");
    ralph_bot::store::Store::open(&folder.path().join("data/ralph.db")).expect("a database").close().await;
    let commands: [&[&str]; 4] = [&["backup", "copy.db"], &["loops"], &["backends"], &["memory"]];
    for arguments in commands {
        let output = run(&mut ralph(folder.path(), arguments)).await;
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", said(&output.stderr));
    }
    assert!(folder.path().join("copy.db").is_file());
    let output = run(&mut ralph(folder.path(), &["serve"])).await;
    assert_eq!(output.status.code(), Some(2), "the service needs them");
    assert!(said(&output.stderr).contains("the environment variable T is not set"), "{}", said(&output.stderr));
}

/// Programs that read `check` get its lines whatever is wrong.
#[tokio::test]
async fn mistakes_of_a_file_are_lines_of_json_as_well() {
    let folder = folder();
    let file = folder.path().join("ralph-control.yaml");
    std::fs::write(&file, format!("{FILE}limit: {{}}\n")).expect("written");
    let output = run(ralph(folder.path(), &["check", "--json"]).env("T", "token")).await;
    assert_eq!(output.status.code(), Some(2), "{}", said(&output.stderr));
    let lines: Vec<Value> =
        said(&output.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines.iter().all(|line| line["name"] == "configuration" && line["outcome"] == "fail"), "{lines:?}");
    assert!(lines[1]["detail"].as_str().is_some_and(|text| text.ends_with("did you mean `limits`?")), "{lines:?}");
}

/// G8: an old git has holes that the service's care does not close.
#[tokio::test]
async fn an_old_git_is_refused() {
    let folder = folder();
    let git = folder.path().join("git");
    std::fs::write(&git, "#!/bin/sh\necho git version 2.39.5\n").expect("written");
    std::fs::set_permissions(&git, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("made executable");
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    let secret = "0123456789abcdef0123456789abcdef";
    let mut command = ralph(folder.path(), &["serve"]);
    let forge = "[{ \"name\": \"work\", \"kind\": \"gitea\", \"url\": \"http://127.0.0.1:9\", \"token_env\": \"T\", \
                 \"webhook_secret_env\": \"S\", \"own_id\": 1 }]";
    command.env("RALPH_FORGES", forge).env("RALPH_SERVER__LISTEN", "127.0.0.1:0");
    let output = run(command.env("PATH", &path).env("T", "token").env("S", secret)).await;
    assert_eq!(output.status.code(), Some(1), "{}", said(&output.stderr));
    let why = "git 2.39.5 cannot be used, 2.43.0 or later is needed";
    assert!(said(&output.stderr).contains(why), "{}", said(&output.stderr));
    let checked = run(ralph(folder.path(), &["check"]).env("PATH", &path).env("T", "token").env("S", secret)).await;
    let lines = said(&checked.stdout);
    assert!(lines.contains(&format!("FAIL git: {why}; install git 2.43.0 or newer")), "{lines}");
}

/// Colours are for terminals, and for those who want them.
#[tokio::test]
async fn no_color_is_honoured() {
    let folder = tempfile::tempdir().expect("a folder");
    let binary = env!("CARGO_BIN_EXE_ralph-bot");
    for (variable, option, coloured) in [(None, "", true), (Some("1"), "", false), (None, "--color never", false)] {
        let mut command = command("script");
        command.current_dir(folder.path()).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.env("HOME", folder.path()).env("TERM", "xterm").envs(variable.map(|value| ("NO_COLOR", value)));
        command.args(["-qec", &format!("{binary} {option} loops"), "/dev/null"]);
        let told = said(&run(&mut command).await.stdout);
        assert!(told.contains("ralph-control.yaml"), "{told}");
        assert_eq!(told.contains('\u{1b}'), coloured, "{variable:?} {option}: {told:?}");
    }
    let piped = run(&mut ralph(folder.path(), &["loops"])).await;
    assert!(!said(&piped.stderr).contains('\u{1b}') && !piped.status.success());
}
