//! Encodings that `.gitattributes` files declare, which make git load converters of the system's library (glibc's `gconv`).
//!
//! The test runs itself again under strace. Everybody else's git is a link with another name, so the log shows which process loaded a converter:
//! that git obeys the same attributes and loads one, which shows that the attack works without the defense.

use std::collections::{BTreeSet, HashMap};
use std::fs;

use ralph_bot::domain::model::ids::LoopId;
use ralph_bot::process::sandbox::SandboxMechanism;
use ralph_bot::workspace::{ClearRequest, MergeOutcome, PrepareTree, PushRequest};
use regex::Regex;

use super::git::TrapWorld;
use crate::harness::parts::{command, output, program, setting};

/// Variable that is set in the run under strace.
const TRACED: &str = "RALPH_TEST_TRACED";
/// Name of everybody else's git.
const PLAIN_GIT: &str = "plain-git";
/// Files of the base and of a later commit, whose attributes declare encodings of the system's library.
const BASE: &str = "printf '* working-tree-encoding=SHIFT_JIS\\n' >.gitattributes && printf '\\203\\147\\n' >base.txt";
const LATER: &str =
    "printf '* working-tree-encoding=EUC-KR\\n' >src/.gitattributes && printf '\\244\\241\\n' >src/later.txt";

/// See docs/research/threats.md#g2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn git_of_the_service_loads_no_converter() {
    if setting(TRACED).is_some() {
        return work_on_declared_encodings().await;
    }
    let Some(strace) = program(&["strace"], "install the package strace") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let mut again = command(strace);
    again.args(["-f", "-qq", "--seccomp-bpf", "-s", "400", "-e", "trace=execve,openat", "-o"]).arg(&log);
    again.arg(std::env::current_exe().expect("a path"));
    again.args(["scripts::converters::git_of_the_service_loads_no_converter", "--exact", "--nocapture"]);
    output(again.env(TRACED, "1")).await;
    let log = fs::read_to_string(&log).expect("the log of strace");
    let started = [" execve(\"", "/git\", "].iter().all(|part| log.contains(part));
    assert!(started, "the service started no git");
    let loaded = loaded_converters(&log);
    if loaded.is_empty() {
        return skipped_tests::skip(
            "everybody else's git loads no converter: install the converters of the system's library",
        );
    }
    let by: Vec<&String> = loaded.keys().collect();
    assert_eq!(by, [PLAIN_GIT], "{loaded:#?}");
    for converter in ["SJIS.so", "EUC-KR.so"] {
        assert!(loaded[PLAIN_GIT].iter().any(|path| path.ends_with(converter)), "{converter}: {loaded:#?}");
    }
}

/// Returns the converters that the programs in a log opened, by the name of the program.
fn loaded_converters(log: &str) -> HashMap<String, BTreeSet<String>> {
    let call = Regex::new(r#"^(\d+) +(execve|openat)\([^"]*"([^"]*)"(.*)$"#).expect("a pattern");
    let (mut programs, mut loaded) = (HashMap::new(), HashMap::<String, BTreeSet<String>>::new());
    for found in log.lines().filter_map(|line| call.captures(line)).filter(|found| !found[4].contains("= -1 ")) {
        let (process, path) = (found[1].to_owned(), found[3].to_owned());
        if &found[2] == "execve" {
            programs.insert(process, path.rsplit('/').next().unwrap_or_default().to_owned());
        } else if path.contains("/gconv/") && path.ends_with(".so") {
            let program = programs.get(&process).cloned().unwrap_or_else(|| "another process".to_owned());
            loaded.entry(program).or_default().insert(path);
        }
    }
    loaded
}

/// Lets the service check out, commit, compare, merge, scan, push, save and reset files with declared encodings.
async fn work_on_declared_encodings() {
    let world = TrapWorld::new(SandboxMechanism::Bubblewrap).await;
    let plain = world.folder.path().join(PLAIN_GIT);
    std::os::unix::fs::symlink(which::which("git").expect("git"), &plain).expect("a link");
    let human = async |script: &str| {
        let script = format!("{script} && $GIT add -A && $GIT commit -qm x && $GIT push -q ../forge.git main");
        let mut shell = command("/bin/sh");
        for role in ["AUTHOR", "COMMITTER"] {
            shell.env(format!("GIT_{role}_NAME"), "Human").env(format!("GIT_{role}_EMAIL"), "human@forge.example");
        }
        output(shell.args(["-c", &script]).env("GIT", &plain).current_dir(world.folder.path().join("human"))).await;
    };
    human(BASE).await;
    let (workspaces, repo, branch) = (&world.workspaces, &world.repo, "ralph/1");
    let loop_id = LoopId::new("r-1-aaaaaa");
    let request = PrepareTree {
        fork: None,
        loop_id: &loop_id,
        repo,
        access: &world.access,
        base_branch: "main",
        branch,
        resume_at: None,
        partial: false,
    };
    let info = workspaces.prepare(request).await.expect("prepared");
    let write = |path: &str, bytes: &[u8]| fs::write(info.dir.join(path), bytes).expect("written");
    write(".gitattributes", b"* working-tree-encoding=EUC-JP\n*.c working-tree-encoding=BIG5\n");
    write("src/.gitattributes", b"* working-tree-encoding=ISO-2022-JP\n");
    for path in ["base.txt", "new.txt", "new.c", "src/new.txt"] {
        write(path, b"\xa4\xa2\n");
    }
    let head = world.commit(&loop_id, &info.head).await.commit.expect("a commit");
    assert!(!workspaces.diff((&loop_id, repo), &info.head, &head, 1 << 20).await.expect("a diff").is_empty());
    human(LATER).await;
    let base = workspaces.fetch(repo, &world.access, "main", branch, false).await.expect("fetched").base;
    let merged = workspaces.merge_base_into(&loop_id, repo, &head, &base).await.expect("merged");
    assert!(matches!(&merged, MergeOutcome::Conflict { files } if files == &["src/.gitattributes"]), "{merged:?}");
    write("src/.gitattributes", b"* working-tree-encoding=ISO-2022-JP\n");
    let head = world.commit(&loop_id, &head).await.commit.expect("a commit");
    let checkout = workspaces.clean_checkout(&loop_id, repo, &head).await.expect("checked out");
    workspaces.release_checkout(checkout).await.expect("released");
    let clear = ClearRequest { loop_id: &loop_id, repo, branch, commit: &head, base: Some(&info.head), pushed: None };
    let cleared = workspaces.clear(clear).await.expect("scanned").expect("it may be pushed");
    let access = &world.access;
    let push = PushRequest { loop_id: &loop_id, repo, access, branch, commit: &cleared, expected: None };
    workspaces.push(push).await.expect("pushed");
    write("new.txt", b"\xa4\xa4\n");
    workspaces.salvage(&loop_id, repo).await.expect("salvaged");
    workspaces.reset(&loop_id, repo, &info.head).await.expect("reset");
    workspaces.release(&loop_id, repo).await.expect("released");
}
