//! Real processes, including ones that ignore signals or flood their output.

use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::capture::HeadAndTail;
use super::*;

fn shell(script: &str) -> ProcessSpec {
    let mut spec = ProcessSpec::new("/bin/sh", "/").args(["-c", script]).env("PATH", "/usr/bin:/bin");
    spec.limits = ProcessLimits {
        wall: Duration::from_secs(30),
        idle: None,
        grace: Duration::from_millis(200),
        keep_bytes: 64 * 1024,
    };
    spec
}

/// Returns a specification with a unique cookie.
fn marked(mut spec: ProcessSpec) -> (ProcessSpec, Cookie) {
    let cookie = Cookie::new("test", &uuid::Uuid::now_v7().simple().to_string(), 1);
    spec.cookie = Some(cookie.clone());
    (spec, cookie)
}

async fn finished(spec: ProcessSpec) -> Finished {
    run(spec, &CancellationToken::new(), None).await.expect("it runs")
}

fn script(folder: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
    let file = folder.join(name);
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    file
}

/// See docs/research/faults.md#a5.
#[tokio::test]
async fn exit_codes_and_signals_are_distinguished() {
    for code in [0, 1, 2, 124, 125, 126, 127, 137, 139, 255] {
        let finished = finished(shell(&format!("exit {code}"))).await;
        assert_eq!(finished.ended, ProcessEnd::Exited(code));
        assert_eq!(finished.exit_code, Some(code));
        assert_eq!(finished.success(), code == 0);
    }
    for (name, number) in [("SEGV", 11), ("ABRT", 6), ("PIPE", 13), ("KILL", 9), ("TERM", 15)] {
        let finished = finished(shell(&format!("kill -{name} $$; sleep 5"))).await;
        assert_eq!(finished.ended, ProcessEnd::Signalled(number), "{name}");
        assert_eq!(finished.exit_code, None);
    }
}

/// See docs/research/faults.md#a6.
#[tokio::test]
async fn start_failures_contain_advice() {
    let folder = tempfile::tempdir().unwrap();
    let plain = script(folder.path(), "plain", "#!/bin/sh\n", 0o644);
    let orphan = script(folder.path(), "orphan", "#!/no/such/interpreter\n", 0o755);
    let here = folder.path().to_str().unwrap().to_owned();
    for (program, expected, words) in [
        (PathBuf::from("/no/such/program"), "NotFound", "install it"),
        (PathBuf::from("no-such-program-anywhere"), "NotFound", "full path"),
        (PathBuf::new(), "NotFound", "install it"),
        (plain.clone(), "NotExecutable", "chmod +x"),
        (folder.path().to_owned(), "NotExecutable", "regular file"),
        (PathBuf::from("orphan/"), "NotFound", "install it"),
        (orphan, "Spawn", "interpreter"),
    ] {
        let spec = ProcessSpec::new(&program, &here).env("PATH", "/usr/bin:/bin");
        let error = run(spec, &CancellationToken::new(), None).await.unwrap_err();
        assert!(format!("{error:?}").starts_with(expected), "{program:?}: {error:?}");
        assert!(error.to_string().contains(words), "{program:?}: {error}");
    }
    let mut spec = shell("true");
    spec.cwd = folder.path().join("missing");
    let error = run(spec, &CancellationToken::new(), None).await.unwrap_err();
    assert!(matches!(error, ProcessError::NoFolder { .. }), "{error:?}");

    let long = ProcessSpec::new("/bin/true", "/").args(["x".repeat(3 << 20)]);
    let error = run(long, &CancellationToken::new(), None).await.unwrap_err();
    assert!(error.to_string().contains("too long"), "{error}");
}

#[test]
fn sandbox_errors_keep_their_causes() {
    let cause = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
    let reason = Failure::new("cannot use its control group").caused_by(cause).with_hint("set `Delegate=yes`");
    let error = ProcessError::Sandbox { program: "sh".into(), reason };
    let cause = error.source().and_then(Error::source);
    assert!(cause.is_some_and(|cause| cause.is::<std::io::Error>()), "{error:?}");
    let sentence = "the sandbox for \"sh\" could not be built: cannot use its control group: permission denied; set `Delegate=yes`";
    assert_eq!(error.to_string(), sentence);
}

/// See docs/research/threats.md#s13.
#[test]
fn programs_are_looked_up_in_absolute_path_entries_only() {
    let folder = tempfile::tempdir().unwrap();
    let dead = script(folder.path(), "tool", "", 0o644);
    fs::create_dir(folder.path().join("bin")).unwrap();
    let live = script(&folder.path().join("bin"), "tool", "", 0o755);
    let here = folder.path();
    let path = |entries: &[&Path]| std::env::join_paths(entries).unwrap();

    let found = executable(Path::new("tool"), here, &path(&[here, &here.join("bin")])).unwrap();
    assert_eq!(found, live);
    let refused = executable(Path::new("tool"), here, &path(&[here])).unwrap_err();
    assert!(matches!(refused, ProcessError::NotExecutable { program } if program == dead));
    let relative = executable(Path::new("tool"), here, OsStr::new("bin:.:"));
    assert!(matches!(relative, Err(ProcessError::NotFound { .. })), "{relative:?}");
    assert_eq!(executable(Path::new("bin/tool"), here, OsStr::new("")).unwrap(), live);
}

/// See docs/research/threats.md#s1, docs/research/threats.md#s2.
#[tokio::test]
async fn child_has_given_environment_and_descriptors_only() {
    let spec = ProcessSpec::new("/usr/bin/env", "/").env("ONLY", "this");
    assert_eq!(finished(spec).await.stdout.text(), "ONLY=this\n");

    // A descriptor that the parent left inheritable.
    let leaked = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 20).unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    let listed = finished(shell("exec ls /proc/self/fd")).await.stdout.text();
    assert_eq!(listed.lines().collect::<Vec<_>>(), ["0", "1", "2", "3"], "3 is the folder that ls reads");
}

#[tokio::test]
async fn large_input_does_not_block() {
    let mut spec = shell("wc -c");
    spec.stdin = Stdin::Bytes(vec![b'x'; 5_000_000]);
    assert_eq!(finished(spec).await.stdout.text().trim(), "5000000");
    let mut ignored = shell("exit 3");
    ignored.stdin = Stdin::Bytes(vec![b'x'; 5_000_000]);
    assert_eq!(finished(ignored).await.ended, ProcessEnd::Exited(3));
    assert_eq!(finished(shell("cat")).await.ended, ProcessEnd::Exited(0));
}

#[tokio::test]
async fn dialog_answers_lines_until_its_last_message() {
    let dialog = Dialog::default();
    let mut spec = shell("read a; echo $a; read b; echo $b; read c; echo $c; exit 7");
    spec.stdin = Stdin::Dialog(dialog.clone());
    dialog.send(b"one\n");
    dialog.set_farewell(b"three\n".to_vec());
    let cancel = CancellationToken::new();
    let mut lines = |_: Stream, line: &str| {
        match line {
            "one" => dialog.send(b"two\n"),
            "two" => cancel.cancel(),
            _ => {}
        }
        LineDecision::Continue
    };
    let finished = run(spec, &cancel, Some(&mut lines)).await.unwrap();
    assert_eq!((finished.ended, finished.exit_code), (ProcessEnd::Cancelled, Some(7)));
    assert_eq!(finished.stdout.text(), "one\ntwo\nthree\n");
}

#[tokio::test]
async fn dialog_is_closed_on_request_and_bounded() {
    let dialog = Dialog::default();
    let mut spec = shell("cat");
    spec.stdin = Stdin::Dialog(dialog.clone());
    dialog.send(b"all");
    dialog.close();
    let done = finished(spec).await;
    assert_eq!((done.ended, done.stdout.text().as_str()), (ProcessEnd::Exited(0), "all"));

    let dialog = Dialog::default();
    let mut spec = shell("yes");
    spec.stdin = Stdin::Dialog(dialog.clone());
    let answer = vec![b'x'; 1 << 20];
    let mut lines = |_: Stream, _: &str| {
        dialog.send(&answer);
        LineDecision::Continue
    };
    let flooded = run(spec, &CancellationToken::new(), Some(&mut lines)).await.unwrap();
    assert_eq!(flooded.ended, ProcessEnd::Stopped("it does not read its input".to_owned()));
}

/// See docs/research/threats.md#s1, docs/research/threats.md#s12.
#[tokio::test]
async fn child_has_own_session_and_no_core_dumps() {
    let text = finished(shell("ps -o pid=,sid=,tty= -p $$; ulimit -c; ulimit -Hc")).await.stdout.text();
    let words: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(words[0], words[1], "{text}");
    assert_eq!(&words[2..], ["?", "0", "0"], "{text}");
}

/// Follows `execvp` of glibc; musl's version starts no such script.
#[cfg(not(target_env = "musl"))]
#[tokio::test]
async fn script_without_an_interpreter_line_is_run_by_the_shell() {
    let folder = tempfile::tempdir().unwrap();
    let plain = script(folder.path(), "plain", "echo \"$0 $1\"\n", 0o755);
    let spec = ProcessSpec::new(&plain, "/").args(["one"]).env("PATH", "/usr/bin:/bin");
    assert_eq!(finished(spec).await.stdout.text(), format!("{} one\n", plain.display()));
}

#[tokio::test]
async fn last_value_of_a_variable_is_passed_and_zero_bytes_are_refused() {
    let spec = ProcessSpec::new("/usr/bin/env", "/").env("A", "1").env("B", "2").env("A", "3");
    assert_eq!(finished(spec).await.stdout.text(), "A=3\nB=2\n");
    for spec in [ProcessSpec::new("/bin/true", "/").args(["a\0b"]), ProcessSpec::new("/bin/true", "/").env("A", "a\0b")]
    {
        let error = run(spec, &CancellationToken::new(), None).await.unwrap_err();
        assert!(matches!(error, ProcessError::Input { .. }), "{error:?}");
    }
}

/// See docs/research/faults.md#a1, docs/research/threats.md#s11.
#[tokio::test]
async fn process_that_ignores_sigterm_is_killed_with_its_children() {
    let (mut spec, cookie) = marked(shell("trap '' TERM; sleep 300 & echo up; while :; do sleep 300; done"));
    spec.limits.wall = Duration::from_millis(300);
    let finished = finished(spec).await;
    assert_eq!(finished.ended, ProcessEnd::WallLimit);
    assert_eq!(finished.exit_code, None);
    assert!(finished.duration < Duration::from_secs(3), "{:?}", finished.duration);
    assert_eq!(survivors(cookie.as_str()), vec![]);
}

#[tokio::test]
async fn process_that_handles_sigterm_can_finish() {
    let mut spec = shell("trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.02; done");
    spec.limits.grace = Duration::from_secs(10);
    let mut lines = |_, _: &str| LineDecision::Stop("enough".to_owned());
    let finished = run(spec, &CancellationToken::new(), Some(&mut lines)).await.unwrap();
    assert_eq!(finished.ended, ProcessEnd::Stopped("enough".to_owned()));
    assert_eq!(finished.exit_code, Some(7));
    assert_eq!(finished.stdout.text(), "up\nbye\n");
    assert!(finished.duration < Duration::from_secs(5), "{:?}", finished.duration);
}

/// See docs/research/faults.md#a1.
#[tokio::test]
async fn suspended_process_is_killed() {
    let mut spec = shell("kill -STOP $$; echo never");
    spec.limits.idle = Some(Duration::from_millis(200));
    spec.limits.grace = Duration::from_secs(10);
    let finished = finished(spec).await;
    assert_eq!(finished.ended, ProcessEnd::IdleLimit);
    assert!(finished.duration < Duration::from_secs(5), "{:?}", finished.duration);
}

#[tokio::test]
async fn cancelled_process_ends_within_grace() {
    for (grace, least, most) in [(200, 0, 3_000), (60_000, 3_000, 6_000)] {
        let cancel = CancellationToken::new();
        let mut lines = |_, _: &str| {
            cancel.cancel();
            LineDecision::Continue
        };
        let mut spec = shell("trap '' TERM; echo up; while :; do sleep 300; done");
        spec.limits.grace = Duration::from_millis(grace);
        let finished = run(spec, &cancel, Some(&mut lines)).await.unwrap();
        assert_eq!(finished.ended, ProcessEnd::Cancelled);
        let taken = finished.duration.as_millis();
        assert!((least..most).contains(&taken), "{taken} ms");
    }
}

/// See docs/research/faults.md#a1.
#[tokio::test]
async fn output_renews_the_idle_limit() {
    let mut spec = shell("for i in 1 2 3 4 5 6; do echo $i >&2; sleep 0.1; done; sleep 300");
    spec.limits.idle = Some(Duration::from_millis(400));
    let finished = finished(spec).await;
    assert_eq!(finished.ended, ProcessEnd::IdleLimit);
    assert_eq!(finished.stderr.text(), "1\n2\n3\n4\n5\n6\n");
}

/// See docs/research/faults.md#a2, docs/research/threats.md#s11.
#[tokio::test]
async fn daemon_that_keeps_the_output_open_is_killed() {
    let (spec, cookie) = marked(shell("setsid sh -c 'setsid sleep 300 & sleep 300' & echo done"));
    let finished = finished(spec).await;
    assert_eq!(finished.ended, ProcessEnd::Exited(0));
    assert_eq!(finished.stdout.text(), "done\n");
    assert!(finished.duration < Duration::from_secs(4), "{:?}", finished.duration);
    assert_eq!(survivors(cookie.as_str()), vec![]);
}

#[tokio::test]
async fn dropped_run_is_killed() {
    let (spec, cookie) = marked(shell("setsid sleep 300 & echo up; sleep 300"));
    let started = CancellationToken::new();
    let mut lines = |_, _: &str| {
        started.cancel();
        LineDecision::Continue
    };
    let never = CancellationToken::new();
    let mut running = Box::pin(run(spec, &never, Some(&mut lines)));
    tokio::select! {
        _ = &mut running => panic!("it ended by itself"),
        () = started.cancelled() => {}
    }
    drop(running);
    assert_eq!(end_survivors(cookie.as_str(), Duration::from_secs(5)).await, 0);
}

/// Zombies would use up the PIDs of the machine.
#[tokio::test]
async fn child_of_a_dropped_run_is_reaped() {
    let mut pid = String::new();
    let started = CancellationToken::new();
    let mut lines = |_, line: &str| {
        pid = line.to_owned();
        started.cancel();
        LineDecision::Continue
    };
    let never = CancellationToken::new();
    let mut running = Box::pin(run(shell("echo $$; exec sleep 300"), &never, Some(&mut lines)));
    tokio::select! {
        _ = &mut running => panic!("it ended by itself"),
        () = started.cancelled() => {}
    }
    drop(running);
    while Path::new("/proc").join(&pid).exists() {
        finished(shell("true")).await;
    }
}

/// See docs/research/threats.md#s11.
#[tokio::test]
async fn survivors_get_sigterm_and_then_sigkill() {
    let (spec, cookie) = marked(shell("trap '' TERM; echo up; while :; do sleep 300; done"));
    let never = CancellationToken::new();
    let found = survivors(cookie.as_str());
    assert_eq!(found, vec![]);
    let started = CancellationToken::new();
    let mut lines = |_, _: &str| {
        started.cancel();
        LineDecision::Continue
    };
    let end = async {
        started.cancelled().await;
        assert!(!survivors(cookie.as_str()).is_empty());
        end_survivors(cookie.as_str(), Duration::from_millis(100)).await
    };
    let (finished, left) = tokio::join!(run(spec, &never, Some(&mut lines)), end);
    assert_eq!(left, 0);
    assert_eq!(finished.unwrap().ended, ProcessEnd::Signalled(9));
}

/// See docs/research/faults.md#a3.
#[tokio::test]
async fn flood_of_output_is_read_in_bounded_memory() {
    let before = peak_memory_kib();
    let spec = shell("printf START; head -c 200000000 /dev/zero; printf END; head -c 3000000 /dev/zero >&2");
    let finished = finished(spec).await;
    assert_eq!(finished.ended, ProcessEnd::Exited(0));
    assert_eq!(finished.stdout.total_bytes, 200_000_008);
    assert_eq!(finished.stderr.total_bytes, 3_000_000);
    assert!(finished.stdout.head.starts_with("START") && finished.stdout.tail.ends_with("END"));
    assert_eq!(finished.stdout.head.len() + finished.stdout.tail.len(), 64 * 1024);
    assert!(finished.stdout.text().contains("… 199934472 bytes left out …"));
    let grown = peak_memory_kib() - before;
    assert!(grown < 64 * 1024, "{grown} KiB");
}

fn peak_memory_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// See docs/research/faults.md#a3.
#[tokio::test]
async fn endless_line_is_cut() {
    let mut seen: Vec<usize> = Vec::new();
    let mut lines = |_, line: &str| {
        seen.push(line.len());
        LineDecision::Continue
    };
    let spec = shell("head -c 20000000 /dev/zero | tr '\\0' x; echo; printf 'short\\r\\nlast'");
    let finished = run(spec, &CancellationToken::new(), Some(&mut lines)).await.unwrap();
    assert_eq!(finished.stdout.total_bytes, 20_000_012);
    assert_eq!(seen.len(), 3);
    assert!(seen[0] > 1_000_000 && seen[0] <= capture::MAX_LINE, "{seen:?}");
    assert_eq!(&seen[1..], [5, 4]);
}

/// See docs/research/faults.md#a4.
#[tokio::test]
async fn invalid_utf8_becomes_text() {
    let mut seen: Vec<(Stream, String)> = Vec::new();
    let mut lines = |stream, line: &str| {
        seen.push((stream, line.to_owned()));
        LineDecision::Continue
    };
    let spec = shell(r"printf '\357\273\277a\377\000b\033[31mred\r\n\360\237\n'; printf 'err' >&2");
    let finished = run(spec, &CancellationToken::new(), Some(&mut lines)).await.unwrap();
    assert_eq!(finished.stdout.text(), "\u{feff}a\u{fffd}\0b\u{1b}[31mred\r\n\u{fffd}\n");
    seen.sort_by_key(|(stream, _)| *stream == Stream::Stderr);
    assert_eq!(
        seen,
        [
            (Stream::Stdout, "\u{feff}a\u{fffd}\0b\u{1b}[31mred".to_owned()),
            (Stream::Stdout, "\u{fffd}".to_owned()),
            (Stream::Stderr, "err".to_owned()),
        ]
    );
}

/// See docs/research/threats.md#s8.
#[tokio::test]
async fn secrets_are_masked_in_lines_and_kept_output() {
    let mut seen = String::new();
    let mut lines = |_, line: &str| {
        seen.push_str(line);
        LineDecision::Continue
    };
    // Two writes, so that it arrives in two chunks.
    let mut spec = shell("printf 'key=swordf'; sleep 0.05; printf 'ish-9\\n'; echo token ghp_$(printf %036d 7) >&2");
    spec.secrets = Masker::new(["swordfish-9"]);
    let finished = run(spec, &CancellationToken::new(), Some(&mut lines)).await.unwrap();
    assert_eq!(finished.stdout.text(), "key=***\n");
    assert_eq!(finished.stderr.text(), "token ***\n");
    assert!(seen.contains("key=***") && seen.contains("token ***") && !seen.contains("sword"), "{seen}");
}

#[test]
fn secret_at_a_cut_is_masked_on_both_sides() {
    let secret = "swordfish-in-the-sea";
    let masker = Masker::new([secret]);
    for before in 80..101 {
        for total in [300, 100_000] {
            let mut keeper = HeadAndTail::new(200);
            let mut text = format!("{}{secret}", "a".repeat(before));
            text.push_str(&"b".repeat(total));
            text.push_str(&format!("{secret}{}", "c".repeat(before)));
            text.as_bytes().chunks(7).for_each(|chunk| keeper.push(chunk));
            let kept = keeper.finish(&masker);
            assert_eq!(kept.total_bytes, text.len() as u64);
            assert!(kept.left_out > 0);
            let shown = kept.text();
            for part in secret.as_bytes().windows(4) {
                assert!(!shown.contains(std::str::from_utf8(part).unwrap()), "{before} {total}: {shown}");
            }
            let expected = if before == 100 { "" } else { "***" };
            assert_eq!(kept.head, format!("{}{expected}", "a".repeat(before.min(100))));
            assert_eq!(kept.tail, format!("{expected}{}", "c".repeat(before.min(100))));
            assert!(kept.last(10).ends_with("cccccccccc"));
        }
    }
}

#[test]
fn short_output_is_kept_completely() {
    let mut keeper = HeadAndTail::new(200);
    keeper.push("ä".repeat(100).as_bytes());
    let kept = keeper.finish(&Masker::default());
    assert_eq!((kept.text(), kept.left_out, kept.total_bytes), ("ä".repeat(100), 0, 200));
    assert_eq!(kept.last(3), "ä");
    assert_eq!(Captured::default().last(10), "");
}
