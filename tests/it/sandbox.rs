//! Attacks by programs in a sandbox, which fail, and ordinary work of programs, which succeeds.
//!
//! Each test was seen to fail without its defence. `where_root` returns `None`, or `before_program` nothing: "the uid of root"
//! and `written_files_belong_to_the_service`. `kernel_files::arguments` returns nothing: "settings of the kernel"; the probe also
//! names the kernel's data. `--add-seccomp-fd` left out: "chmod with set-user-ID", and nearly every system call. `pipe_of(None)`:
//! "standard output by name".

use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ralph_bot::process::sandbox::{EtcCopies, Network, SandboxSettings, SandboxView, ScratchHome};
use ralph_bot::process::{self, Finished, ProcessEnd, ProcessLimits, ProcessSpec, Sandbox, SandboxTier};
use tokio_util::sync::CancellationToken;

use crate::harness::sandbox;

/// Attacks by shells: the part of the machine, and a script that prints `BROKEN` if it succeeds. Files of the kernel are opened
/// only; nothing is written to them.
const ATTACKS: [(&str, &str); 14] = [
    (
        "the uid of root",
        r#"grep -E '^(Uid|Gid|Groups):' /proc/self/status | grep -qw 0 && [ "$SERVICE" = 0 ] && echo BROKEN"#,
    ),
    ("capabilities", "grep -E '^Cap(Inh|Prm|Eff|Amb):' /proc/self/status | grep -q '[1-9a-f]$' && echo BROKEN"),
    ("privileges by exec", "grep -q '^NoNewPrivs:.*1' /proc/self/status || echo BROKEN"),
    (
        "settings of the kernel",
        r#"for f in $(find /proc/sys -type f) /proc/sysrq-trigger $(find /proc/irq -type f); do { true >>"$f"; } 2>/dev/null && echo "BROKEN $f"; done"#,
    ),
    ("keys in /proc", "[ -n \"$(cat /proc/keys 2>/dev/null)\" ] && echo BROKEN"),
    ("timers in /proc", "[ -n \"$(cat /proc/timer_list 2>/dev/null)\" ] && echo BROKEN"),
    ("chmod with set-user-ID", ": >a; chmod 4755 a; [ -u a ] && echo BROKEN"),
    ("chmod with set-group-ID", ": >b; chmod g+s b; [ -g b ] && echo BROKEN"),
    ("install with set-user-ID", "install -m 4755 /bin/true c; [ -u c ] && echo BROKEN"),
    ("mkdir with set-group-ID", "mkdir -m 2755 d; [ -g d ] && echo BROKEN"),
    (
        "a user namespace",
        "unshare --user true && echo BROKEN; unshare --user --map-root-user --net true && echo BROKEN",
    ),
    ("a mount", "mount -t tmpfs none /mnt && echo BROKEN; mount --bind /usr \"$HOME\" && echo BROKEN"),
    ("other roots", "chroot / true && echo BROKEN; nsenter --target 1 --mount true && echo BROKEN"),
    (
        "bubblewrap's processes",
        "cat /proc/1/environ && echo BROKEN; kill -9 1 && sleep 0.1; ls /proc/1/fd/ && echo BROKEN",
    ),
];

/// Ordinary work: a script that fails, or prints something else than `fine`, if it is broken.
const WORKS: [(&str, &str); 8] = [
    ("standard output by name", "echo fine >/dev/stdout; echo more >/dev/stderr"),
    ("standard input by name", "cat /dev/stdin && echo fine"),
    ("its user has a name", "[ -n \"$(id -un)\" ] && [ \"$(id -u)\" = \"$(stat -c %u .)\" ] && echo fine"),
    (
        "temporary files",
        "echo x >/tmp/a && echo x >/dev/shm/a && echo x >\"$HOME/a\" && mkdir -p \"$HOME/b/c\" && echo fine",
    ),
    ("modes without set-user-ID", "echo 'echo fine' >run && chmod 755 run && sh ./run"),
    ("git", "git init -q repo && cd repo && git status >/dev/null && echo fine"),
    ("process substitution", "cat <(echo fine)"),
    ("the time zone and names", "date >/dev/null && getent passwd 0 >/dev/null && echo fine"),
];

/// Runs a bash script in a sandbox without network; `None` if this machine has none.
async fn run(folder: &Path, script: &str, more: &[(&str, &str)]) -> Option<Finished> {
    let mut spec = spec(folder, script).await?;
    for (name, value) in more {
        spec = spec.env(name, value);
    }
    Some(process::run(spec, &CancellationToken::new(), None).await.expect("it runs"))
}

/// Returns how a bash script is started in a sandbox without network; `None` if this machine has none.
async fn spec(folder: &Path, script: &str) -> Option<ProcessSpec> {
    if sandbox().await.tier != SandboxTier::A {
        return None;
    }
    for name in ["tree", "home", "etc"] {
        // No other user can enter them, not even root without its capabilities.
        process::private::create_folder(&folder.join(name)).expect("a folder");
    }
    let mut spec = ProcessSpec::new("/bin/bash", folder.join("tree")).args(["-c", script]).env("PATH", "/usr/bin:/bin");
    spec.sandbox = Sandbox::of(SandboxView {
        writable: vec![folder.join("tree")],
        read_only: vec![env!("CARGO_BIN_EXE_ralph-bot").into()],
        home: ScratchHome::Folder(folder.join("home")),
        network: Network::None,
        settings: SandboxSettings {
            etc: Some(Arc::new(EtcCopies::new(folder.join("etc")))),
            ..SandboxSettings::default()
        },
    });
    spec.limits = ProcessLimits { wall: Duration::from_secs(60), ..ProcessLimits::default() };
    Some(spec)
}

/// See docs/research/threats.md#s1, docs/research/threats.md#s12 and docs/research/threats.md#s16.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attacks_from_inside_fail() {
    let user = rustix::process::geteuid().as_raw().to_string();
    for (part, script) in ATTACKS {
        let folder = tempfile::tempdir().expect("a folder");
        let script = format!("{script}\necho done");
        let Some(finished) = run(folder.path(), &script, &[("SERVICE", &user)]).await else { return };
        let output = finished.stdout.text();
        assert!(!output.contains("BROKEN"), "{part}: {output}");
        assert!(output.ends_with("done\n"), "{part}: {:?} {output}{}", finished.ended, finished.stderr.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sandboxed_programs_find_their_files() {
    for (part, script) in WORKS {
        let folder = tempfile::tempdir().expect("a folder");
        let Some(finished) = run(folder.path(), script, &[]).await else { return };
        assert_eq!(finished.stdout.text(), "fine\n", "{part}: {:?} {}", finished.ended, finished.stderr.text());
        assert_eq!(finished.ended, ProcessEnd::Exited(0), "{part}");
    }
}

/// `/etc` in a sandbox is the same with and without copies of its parts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etc_is_identical_with_copies() {
    let script = "cd /etc && find . ! -path ./passwd ! -path ./group ! -path '*/private/*' ! -type d | sort | while read -r f; do \
                  if [ -L \"$f\" ]; then readlink \"$f\"; else cksum \"$f\"; fi; done; touch /etc/hosts /etc/new; rm -f /etc/hosts";
    let mut seen = Vec::new();
    for with_copies in [true, false] {
        let folder = tempfile::tempdir().expect("a folder");
        let Some(mut spec) = spec(folder.path(), script).await else { return };
        if let (Sandbox::View(view), false) = (&mut spec.sandbox, with_copies) {
            view.settings.etc = None;
        }
        let finished = process::run(spec, &CancellationToken::new(), None).await.expect("it runs");
        assert_eq!(std::fs::read_dir(folder.path().join("etc")).expect("a folder").count(), usize::from(with_copies));
        assert_eq!(finished.stderr.text().lines().count(), 3, "each change is refused: {}", finished.stderr.text());
        seen.push(finished.stdout.text());
    }
    assert!(seen[0].contains("./hosts") && seen[0].lines().count() > 10, "{}", seen[0]);
    assert_eq!(seen[0], seen[1]);
}

/// See docs/research/threats.md#s5 and docs/research/threats.md#s16.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn system_calls_and_sockets_of_the_host_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("socket");
    let _by_path = UnixListener::bind(&socket).expect("a socket");
    let name = format!("ralph-{}", folder.path().display());
    let by_name = SocketAddr::from_abstract_name(&name).expect("a name");
    let _by_name = UnixListener::bind_addr(&by_name).expect("a socket");
    let script =
        format!("{} sandbox-attempts --socket '{}' --name '{name}'", env!("CARGO_BIN_EXE_ralph-bot"), socket.display());
    let Some(finished) = run(folder.path(), &script, &[]).await else { return };
    assert_eq!(finished.stdout.text(), "attempts begin\nattempts end\n", "{}", finished.stderr.text());
    // Outside of a sandbox the same attempts succeed, so their failure inside says something.
    let mut spec = ProcessSpec::new("/bin/sh", folder.path()).args(["-c", &script]);
    spec.limits.wall = Duration::from_secs(60);
    let outside = process::run(spec, &CancellationToken::new(), None).await.expect("it runs").stdout.text();
    for line in ["called keyctl", "called ioctl TIOCSTI", "connected to a socket", "connected to an abstract socket"] {
        assert!(outside.contains(line), "{line}: {outside}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn debuggers_work_on_own_processes() {
    for (debugger, script) in [
        ("strace", "strace -f -o trace sh -c 'true; /bin/true' && grep -q execve trace && echo fine"),
        ("gdb", "gdb -batch -ex run --args /bin/true >output 2>&1; grep -q 'exited normally' output && echo fine"),
    ] {
        if which::which(debugger).is_err() {
            skipped_tests::skip(&format!("{debugger} is not installed"));
            continue;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let Some(finished) = run(folder.path(), script, &[]).await else { return };
        let output = std::fs::read_to_string(folder.path().join("tree/output")).unwrap_or_default();
        assert_eq!(finished.stdout.text(), "fine\n", "{debugger}: {output}{}", finished.stderr.text());
    }
}

/// Files that programs write belong to the service for every user inside; owners on disk are never changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn written_files_belong_to_the_service() {
    let folder = tempfile::tempdir().expect("a folder");
    process::private::create_folder(&folder.path().join("tree/private")).expect("a folder");
    let private = folder.path().join("tree/private/file");
    std::fs::write(&private, "of the service").expect("written");
    std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o600)).expect("private");
    let script = "cat private/file && echo changed >private/file && mkdir -p new/deep && echo x >new/deep/file && ln -s file new/link";
    let Some(finished) = run(folder.path(), script, &[]).await else { return };
    assert_eq!(finished.stdout.text(), "of the service", "{}", finished.stderr.text());
    let service = rustix::process::geteuid().as_raw();
    for path in ["tree", "tree/private/file", "tree/new", "tree/new/deep/file", "tree/new/link", "home"] {
        let found = std::fs::symlink_metadata(folder.path().join(path)).expect("it exists");
        assert_eq!(found.uid(), service, "{path}");
    }
    assert_eq!(std::fs::read_to_string(&private).expect("readable"), "changed\n");
    assert_eq!(std::fs::metadata(&private).expect("it exists").permissions().mode() & 0o7777, 0o600);
}
