//! Scripts that use up the machine. While they run, the service starts other programs as fast as before.

use std::path::Path;
use std::time::Duration;

use ralph_bot::clock::Stopwatch;
use ralph_bot::domain::trust::limits::SandboxLimits;
use ralph_bot::process::sandbox::{SandboxMechanism, SandboxSettings, SandboxView, ScratchHome};
use ralph_bot::process::{self, Finished, ProcessEnd, ProcessSpec, Sandbox, SandboxTier};
use tokio_util::sync::CancellationToken;

use crate::harness::other_user::goes_on_confined;
use crate::harness::sandbox;

pub const LIMITS: SandboxLimits = SandboxLimits { memory_mib: 128, processes: 60, disk_mib: 128 };
/// Maximum time in which another program is started and ends meanwhile; it takes milliseconds.
const OTHERS: Duration = Duration::from_secs(3);

/// Scripts, and the limit at which each is ended; the others fail inside and end by themselves.
const HOGS: &[(&str, &str, Option<&str>)] = &[
    ("bomb", "b() { b | b & }; b; sleep 30", Some("processes")),
    ("many-sleepers", "for n in $(seq 1 200); do sleep 30 & done; wait", Some("processes")),
    ("threads", "perl -e 'fork for 1..8; sleep 30'", Some("processes")),
    (
        "memory",
        "perl -e 'my @a; while (1) { push @a, \"x\" x 1048576; select(undef, undef, undef, 0.005) }'",
        Some("memory"),
    ),
    (
        "memory-of-many",
        "for n in 1 2 3 4 5 6 7 8; do perl -e '$a = \"x\" x (30 << 20); sleep 30' & done; wait",
        Some("memory"),
    ),
    (
        "memory-in-files-without-a-name",
        "perl -e 'my $n = \"x\"; for my $k (1..2) { my $f = syscall(`uname -m` =~ /aarch/ ? 279 : 319, $n, 0); open(my $h, \">&=\", $f); push @h, $h; for (1..100) { syswrite($h, \"x\" x 1048576) } } sleep 30'",
        Some("memory"),
    ),
    // What sockets hold is in no process: their buffers stay at the kernel's default, and their number is limited.
    (
        "buffers-of-sockets",
        "perl -MSocket -e '$x = \"x\" x 65536; for (1..400) { socketpair(my $one, my $other, AF_UNIX, SOCK_STREAM, 0) or last; push @all, $one, $other; for my $s ($one, $other) { setsockopt($s, SOL_SOCKET, SO_SNDBUF, 1 << 20); 1 while defined send($s, $x, MSG_DONTWAIT) } } sleep 30'",
        Some("memory"),
    ),
    // A pipe holds at least two pages, however many pipes the user has.
    (
        "pipes",
        "for n in 1 2 3; do perl -e 'for (1..7000) { pipe(my $out, my $in) or last; push @all, $out, $in; syswrite($in, \"x\" x 4096) for 1..2 } sleep 30' & done; wait",
        Some("memory"),
    ),
    // Page tables without pages: one byte of each 2 MiB of untouched memory is read.
    (
        "page-tables",
        "perl -e 'my $start = syscall(`uname -m` =~ /aarch/ ? 222 : 9, 0, 1 << 38, 1, 0x4022, -1, 0); for my $n (0..100000) { unpack(\"P1\", pack(\"J\", $start + ($n << 21))) } sleep 30'",
        Some("memory"),
    ),
    // Mappings of memory that nothing was written to: the kernel keeps 256 bytes for each, 65,530 for a process.
    (
        "mappings",
        "for n in $(seq 1 10); do perl -e '$arm = `uname -m` =~ /aarch/; my $start = syscall($arm ? 222 : 9, 0, 1 << 30, 0, 0x4022, -1, 0); for my $n (0..70000) { syscall($arm ? 226 : 10, $start + ($n << 13), 4096, 1) == 0 or last } sleep 30' & done; wait",
        Some("memory"),
    ),
    // Shared memory whose pages the process gave back: they stay with the file, which only a mapping holds.
    (
        "shared-memory",
        "perl -e '($map, $advise, $read) = `uname -m` =~ /aarch/ ? (222, 233, 63) : (9, 28, 0); open(my $zero, \"<\", \"/dev/zero\"); for (1..20) { my $start = syscall($map, 0, 16 << 20, 3, 0x21, -1, 0); syscall($read, fileno($zero), $start, 16 << 20); syscall($advise, $start, 16 << 20, 4) } sleep 30'",
        Some("memory"),
    ),
    // `/proc` shows no memory for a process whose first thread has ended.
    (
        "memory-of-a-second-thread",
        "perl -Mthreads -e '$exit = `uname -m` =~ /aarch/ ? 93 : 60; threads->create(sub { sleep 2; $x = \"x\" x (200 << 20); sleep 30 })->detach; syscall($exit, 0)'",
        Some("memory"),
    ),
    // The kernel keeps a KiB for each file in memory, and the attributes of files.
    ("inodes", "perl -e 'for my $n (1..400000) { open(my $f, \">\", \"/tmp/$n\") or last } sleep 30'", Some("memory")),
    (
        "attributes",
        "perl -e '$set = `uname -m` =~ /aarch/ ? 5 : 188; $name = \"user.x\"; $x = \"x\" x 60000; for my $n (1..400000) { my $path = \"/tmp/$n\"; open(my $f, \">\", $path) or last; syscall($set, $path, $name, $x, length $x, 0) } sleep 30'",
        Some("memory"),
    ),
    // Buffers of TCP grow while a connection is used, without a request for it.
    (
        "buffers-of-tcp",
        "perl -MSocket -e 'socket(L, AF_INET, SOCK_STREAM, 0); bind(L, sockaddr_in(0, INADDR_LOOPBACK)); listen(L, 400); $x = \"x\" x (1 << 18); for (1..60) { socket(my $c, AF_INET, SOCK_STREAM, 0); connect($c, getsockname(L)) or last; accept(my $s, L); push @all, $c, $s; for (1..400) { send($c, $x, MSG_DONTWAIT); recv($s, my $got, 1 << 20, MSG_DONTWAIT) } for (1..3) { 1 while defined send($c, $x, MSG_DONTWAIT); select(undef, undef, undef, 0.01) } } sleep 30'",
        Some("memory"),
    ),
    // So many descriptors that the other measurements would take minutes.
    (
        "descriptors",
        "for n in 1 2 3 4 5 6 7 8 9 10; do perl -MPOSIX -e 'POSIX::dup(1) for 1..16000; sleep 30' & done; wait",
        Some("descriptors"),
    ),
    ("temporary-files", "head -c 200M /dev/zero >/tmp/a; head -c 200M /dev/zero >/dev/shm/a; echo ended", None),
    (
        "disk",
        "n=0; while [ $n -lt 100 ]; do n=$((n + 1)); head -c 4M /dev/zero >f$n; sleep 0.02; done; sleep 30",
        Some("disk"),
    ),
    (
        "deleted-files",
        "exec 5>a; rm a; head -c 100M /dev/zero >&5; exec 6>b; rm b; head -c 100M /dev/zero >&6; sleep 30",
        Some("disk"),
    ),
    ("one-large-file", "head -c 300M /dev/zero >large; stat -c %s large; sleep 30", Some("disk")),
    ("processors", "for n in 1 2 3 4; do while :; do :; done & done; sleep 3; echo ended", None),
];

/// Scripts that a sandbox without namespaces cannot run: it has no folders in memory, no separate sockets, and no user whose
/// processes the kernel counts before they are measured.
const OF_NAMESPACES: [&str; 6] =
    ["bomb", "temporary-files", "buffers-of-sockets", "buffers-of-tcp", "inodes", "attributes"];

/// Fills segments of System V that no process has attached: 160 MiB in segments of 1 MiB. Without a control group the first is refused.
const SEGMENTS: &str = "perl -e 'for (1..160) { my $id = shmget(0, 1 << 20, 0600); if (!defined $id) { print \"refused\"; exit } shmwrite($id, \"x\" x (1 << 20), 0, 1 << 20) } print \"made\"; sleep 30'";
/// Fills 100 sets of 32,000 semaphores of System V: 195 MiB of the kernel. Without a control group the first is refused.
const SEMAPHORES: &str =
    "perl -e 'for (1..100) { defined semget(0, 32000, 0600) or print(\"refused\"), exit } print \"made\"; sleep 30'";
/// Fills 16,000 queues of System V. Without a control group there are none.
const QUEUES: &str = "perl -e 'for (1..16000) { my $id = msgget(0, 0600); if (!defined $id) { print \"refused\"; exit } msgsnd($id, pack(\"l! a*\", 1, \"x\" x 8000), 0) for 1..2 } print \"made\"; sleep 30'";
/// Gives a pipe a page of the process, by which the pipe keeps the large page of which that is a part: 2 MiB for 4 KiB, so that 100 pipes
/// hold 200 MiB. Without a control group there is no such call.
const PAGES_OF_PIPES: &str = "perl -e 'pipe(my $out, my $in); my $page = \"x\" x 4096; $! = 0; my $done = syscall(`uname -m` =~ /aarch/ ? 75 : 278, fileno($in), pack(\"P4096Q\", $page, 4096), 1, 0); print $done == 4096 ? \"made\" : $!{ENOSYS} ? \"refused\" : \"failed: $!\"'";
/// Creates small segments and sets of semaphores, as databases do.
const OF_DATABASES: &str =
    "perl -e 'print defined shmget(0, 56, 0600) && defined semget(0, 20, 0600) ? \"made\" : \"refused\"'";
/// Creates 40,000 empty files.
const EMPTY_FILES: &str =
    "perl -e 'for my $n (1..40000) { open(my $f, \">\", \"f$n\") or die \"$n: $!\" } print \"made\"; sleep 30'";
/// Inodes of the file system in which they are created; a run may use a quarter of them.
const INODES: &str = "100000";

/// Returns the number of scripts.
pub fn scripts() -> usize {
    HOGS.len() + 5
}

/// Returns the number of scripts in sandboxes without namespaces.
pub fn scripts_without_namespaces() -> usize {
    HOGS.len() - OF_NAMESPACES.len()
}

async fn run(folder: &Path, script: &str, limits: SandboxLimits) -> Finished {
    run_by(SandboxMechanism::Bubblewrap, folder, script, limits).await
}

async fn run_by(mechanism: SandboxMechanism, folder: &Path, script: &str, limits: SandboxLimits) -> Finished {
    let mut spec = ProcessSpec::new("/bin/bash", folder.join("tree")).args(["-c", script]).env("PATH", "/usr/bin:/bin");
    spec.sandbox = Sandbox::of(SandboxView {
        writable: vec![folder.join("tree")],
        home: ScratchHome::Folder(folder.join("home")),
        settings: SandboxSettings { limits, mechanism, ..SandboxSettings::default() },
        ..SandboxView::default()
    });
    spec.limits.wall = Duration::from_secs(20);
    spec.limits.grace = Duration::ZERO;
    process::run(spec, &CancellationToken::new(), None).await.expect("it runs")
}

/// See docs/research/threats.md#s10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resource_hogs_are_stopped_without_affecting_others() {
    if sandbox().await.tier != SandboxTier::A {
        return;
    }
    let other = folders();
    for (name, script, expected) in HOGS {
        let folder = folders();
        let mut hog = Box::pin(run(folder.path(), script, LIMITS));
        let finished = loop {
            let watch = Stopwatch::start();
            tokio::select! {
                finished = &mut hog => break finished,
                other = run(other.path(), "sleep 0.1; for n in 1 2 3 4 5; do /bin/true & done; wait; echo fine", LIMITS) => {
                    assert_eq!(other.stdout.text(), "fine\n", "{name}: {:?} {}", other.ended, other.stderr.text());
                    assert!(watch.elapsed() < OTHERS, "{name}: another program took {:?}", watch.elapsed());
                }
            }
        };
        assert_ended(name, *expected, &finished);
    }
}

/// Asserts that a script was ended at a limit, or ended by itself if none is given.
pub fn assert_ended(name: &str, expected: Option<&str>, finished: &Finished) {
    match (expected, &finished.ended) {
        (Some(limit), ProcessEnd::ResourceLimit(reason)) => assert!(reason.contains(limit), "{name}: {reason}"),
        (None, ProcessEnd::Exited(_)) => assert!(finished.stdout.text().contains("ended"), "{name}: {finished:?}"),
        _ => panic!("{name}: {finished:?}"),
    }
}

/// See docs/research/threats.md#s10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resource_hogs_without_namespaces_are_stopped() {
    if !goes_on_confined("scripts::limits::resource_hogs_without_namespaces_are_stopped") {
        return;
    }
    let confined = SandboxMechanism::Landlock(env!("CARGO_BIN_EXE_ralph-bot").into());
    for (name, script, expected) in HOGS.iter().filter(|(name, _, _)| !OF_NAMESPACES.contains(name)) {
        let folder = folders();
        assert_ended(name, *expected, &run_by(confined.clone(), folder.path(), script, LIMITS).await);
    }
}

/// See docs/research/threats.md#s10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_in_objects_of_system_v_is_refused_or_counted() {
    if sandbox().await.tier != SandboxTier::A {
        return;
    }
    for script in [SEGMENTS, SEMAPHORES, QUEUES] {
        let folder = folders();
        let finished = run(folder.path(), script, LIMITS).await;
        match &finished.ended {
            ProcessEnd::Exited(0) => assert_eq!(finished.stdout.text(), "refused"),
            ProcessEnd::ResourceLimit(reason) => assert!(reason.contains("memory"), "{reason}"),
            _ => panic!("{finished:?}"),
        }
    }
    let folder = folders();
    assert_eq!(run(folder.path(), OF_DATABASES, LIMITS).await.stdout.text(), "made");
}

/// See docs/research/threats.md#s10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_files_end_a_run_before_the_disk_has_no_inodes_left() {
    if sandbox().await.tier != SandboxTier::A {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let Some(_mounted) = SmallDisk::at(folder.path()).await else {
        return skipped_tests::skip_in_ci_as_well("a file system of its own needs the rights to mount one");
    };
    for name in ["tree", "home"] {
        std::fs::create_dir(folder.path().join(name)).expect("made");
    }
    let finished = run(folder.path(), EMPTY_FILES, LIMITS).await;
    let ProcessEnd::ResourceLimit(reason) = &finished.ended else { panic!("{finished:?}") };
    assert!(reason.contains("files; 2") && reason.contains("are allowed on this file system"), "{reason}");
}

/// A file system with few inodes, which is unmounted when it is dropped.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    async fn at(folder: &'a Path) -> Option<Self> {
        let mut mount = crate::harness::parts::command("/bin/mount");
        mount
            .args(["-t", "tmpfs", "-o"])
            .arg(format!("mode=0755,size=64m,nr_inodes={INODES}"))
            .args(["none"])
            .arg(folder);
        mount.status().await.ok().filter(std::process::ExitStatus::success).map(|_| Self(folder))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let mut unmount = crate::harness::parts::command("/bin/umount");
        let _ = unmount.arg("--lazy").arg(self.0).as_std_mut().status();
    }
}

/// Returns a folder with a work tree and a home.
pub fn folders() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["tree", "home"] {
        std::fs::create_dir(folder.path().join(name)).expect("made");
    }
    folder
}

/// See docs/research/threats.md#s10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_pipes_are_refused_or_counted() {
    if sandbox().await.tier != SandboxTier::A {
        return;
    }
    let output = async |script: &str| run(folders().path(), script, LIMITS).await.stdout.text().to_owned();
    // Where the kernel counts a run's memory, it counts these pages, too.
    let expected = if output(QUEUES).await == "refused" { "refused" } else { "made" };
    assert_eq!(output(PAGES_OF_PIPES).await, expected);
}

/// Without limits the same scripts continue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resource_hogs_continue_without_limits() {
    if sandbox().await.tier != SandboxTier::A {
        return;
    }
    for (name, script, _) in HOGS.iter().filter(|(name, _, _)| {
        matches!(
            *name,
            "many-sleepers"
                | "deleted-files"
                | "buffers-of-sockets"
                | "buffers-of-tcp"
                | "pipes"
                | "page-tables"
                | "mappings"
                | "shared-memory"
                | "memory-of-a-second-thread"
                | "inodes"
                | "attributes"
        )
    }) {
        let folder = folders();
        let ended = tokio::time::timeout(
            Duration::from_secs(4),
            run(folder.path(), script, SandboxLimits { memory_mib: 4096, processes: 4096, disk_mib: 4096 }),
        );
        assert!(ended.await.is_err(), "{name} was ended");
    }
}
