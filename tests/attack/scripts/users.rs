//! Scripts that exhaust the kernel's resources per user. The service is not root, so a run has its user.

use std::time::Duration;

use ralph_bot::domain::trust::egress::Hosts;
use ralph_bot::domain::trust::limits::SandboxLimits;
use ralph_bot::process::sandbox::{Network, SandboxMechanism, SandboxSettings, SandboxView, ScratchHome};
use ralph_bot::process::{self, EgressSettings, Finished, ProcessSpec, RefusedHosts, Sandbox, SandboxTier};
use tokio_util::sync::CancellationToken;

use super::limits::{LIMITS, assert_ended, folders};
use crate::harness::other_user::{goes_on_as_other_user, goes_on_confined};
use crate::harness::sandbox;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ralph-bot");
/// System calls of the scripts, with their numbers.
const CALLS: &[(&str, libc::c_long)] = &[
    ("epoll_create1", libc::SYS_epoll_create1),
    ("epoll_ctl", libc::SYS_epoll_ctl),
    ("inotify_init1", libc::SYS_inotify_init1),
    ("inotify_add_watch", libc::SYS_inotify_add_watch),
    ("mq_open", libc::SYS_mq_open),
    ("mq_unlink", libc::SYS_mq_unlink),
    ("prctl", libc::SYS_prctl),
    ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo),
    ("sendmsg", libc::SYS_sendmsg),
];
/// Perl functions of the scripts.
const FUNCTIONS: &str = r#"
use POSIX; use Socket;
sub call { my $name = shift; syscall($ENV{"SYS_$name"} + 0, @_) }
sub block { POSIX::sigprocmask(SIG_BLOCK, POSIX::SigSet->new(40)) }
sub watches {
    fork for 1..2; pipe(my $out, my $in); my ($event, @all) = pack("L4", 1);
    while (@all < 4000) { push @all, POSIX::dup(fileno($out)) // last }
    while ((my $instance = call("epoll_create1", 0)) >= 0) {
        call("epoll_ctl", $instance, 1, $_, $event) for @all; $_[0]->($instance) if @_
    }
    sleep 30
}
sub sends {
    my ($from, $n) = @_; my $byte = "x"; my $part = pack("P Q", $byte, 1);
    my $files = pack("Q L2 l$n", 16 + 4 * $n, 1, 1, ($_[2] // fileno($from)) x $n);
    my $message = pack("Q L x4 P Q P Q L x4", 0, 0, $part, 1, $files, length $files, 0);
    call("sendmsg", fileno($from), $message, 0x40) >= 0
}
"#;

/// Programs of the user that are not part of the run ask for a little of everything.
const OTHERS: &str = r#"
my ($root, $event, $info, $name) = ("/", pack("L4", 1), pack("l3 x116", 40, 0, -1), "ralph-$$");
sub ask { print "no $_[0]: $!\n" if $_[1] < 0; $_[1] }
pipe(my $out, my $in); block();
ask("epoll watch", call("epoll_ctl", ask("epoll instance", call("epoll_create1", 0)), 1, fileno($out), $event));
ask("inotify watch", call("inotify_add_watch", ask("inotify instance", call("inotify_init1", 0)), $root, 0x100));
ask("signal", call("rt_sigqueueinfo", $$, 40, $info)) for 1..100;
ask("message queue", call("mq_open", $name, 0x42, 0600, 0)); call("mq_unlink", $name);
print "fine\n"
"#;

/// Scripts, and the words of the limit at which each is ended. The others are refused more and end by themselves.
const HOGS: &[(&str, &str, Option<&str>)] = &[
    ("epoll watches", "watches()", Some("epoll watches")),
    ("epoll watches of a process that hides", r#"call("prctl", 4, 0); watches()"#, Some("epoll watches")),
    (
        "epoll watches in transit",
        r#"watches(sub {
               unless (@kept && sends($kept[0], 1, $_[0])) {
                   socketpair(my $one, my $other, AF_UNIX, SOCK_STREAM, 0);
                   unshift @kept, $one, $other; sends($one, 1, $_[0])
               }
               POSIX::close($_[0])
           })"#,
        Some("passed files through sockets"),
    ),
    (
        "unreadable program",
        r#"system "cp /usr/bin/perl own; chmod 111 own"; exec "./own", "-e", "sleep 30""#,
        Some("may not be read"),
    ),
    ("inotify instances", r#"1 while call("inotify_init1", 0) >= 0; print "ended"; sleep 2"#, None),
    (
        "inotify watches",
        r#"mkdir $_ for 1..3000; my $left = 1;
           while ($left && (my $instance = call("inotify_init1", 0)) >= 0) {
               for my $n (1..3000) { my $path = "$n"; $left = call("inotify_add_watch", $instance, $path, 0x100) >= 0 or last }
           }
           print "ended"; sleep 2"#,
        None,
    ),
    ("pending signals", r#"block(); kill 40, $$ for 1..200000; print "ended"; sleep 2"#, None),
    (
        "message queues",
        r#"for my $n (1..100) { my $name = "q$n"; call("mq_open", $name, 0x42, 0600, 0) < 0 and last } print "ended"; sleep 2"#,
        None,
    ),
    (
        "files in transit",
        r#"socketpair(my $one, my $other, AF_UNIX, SOCK_STREAM, 0); my @kept = $one;
           while (1) { next if sends($kept[0], 250); socketpair(my $one, my $other, AF_UNIX, SOCK_STREAM, 0); unshift @kept, $one, $other; sends($one, 250) or last }
           print "ended"; sleep 2"#,
        None,
    ),
];
/// Scripts that the service counts where a run has no user namespace.
const COUNTED: &[(&str, &str, Option<&str>)] =
    &[("inotify instances", r#"1 while call("inotify_init1", 0) >= 0; sleep 30"#, Some("inotify instances"))];

/// Returns the number of scripts.
pub fn scripts() -> usize {
    HOGS.len() + COUNTED.len()
}

/// Returns the call of a script, with its sandbox if one is given.
fn perl(script: &str, folder: &std::path::Path, sandbox: Option<SandboxView>) -> ProcessSpec {
    let mut spec = ProcessSpec::new("/usr/bin/perl", folder.join("tree")).args(["-e", &format!("{FUNCTIONS}{script}")]);
    spec = spec.env("PATH", "/usr/bin:/bin");
    for (name, number) in CALLS {
        spec = spec.env(format!("SYS_{name}"), number.to_string());
    }
    spec.sandbox = sandbox.map_or(Sandbox::None, Sandbox::of);
    spec.limits.wall = Duration::from_secs(60);
    spec.limits.grace = Duration::ZERO;
    spec
}

fn view(folder: &std::path::Path, mechanism: SandboxMechanism) -> SandboxView {
    // Other tests grow the machine's memory files meanwhile.
    let limits = SandboxLimits { memory_mib: 4_096, ..LIMITS };
    SandboxView {
        writable: vec![folder.join("tree")],
        home: ScratchHome::Folder(folder.join("home")),
        settings: SandboxSettings { limits, mechanism, ..SandboxSettings::default() },
        ..SandboxView::default()
    }
}

async fn run(spec: ProcessSpec) -> Finished {
    process::run(spec, &CancellationToken::new(), None).await.expect("it runs")
}

/// Runs a program of the user outside of a sandbox, and another run whose sandbox passes sockets to the service.
async fn others() -> String {
    let folder = folders();
    let outside = run(perl(OTHERS, folder.path(), None)).await;
    let mut passing = view(folder.path(), SandboxMechanism::Bubblewrap);
    passing.network = Network::Only(EgressSettings {
        hosts: Hosts::parse::<&str>([]).expect("no hosts"),
        helper: PROGRAM.into(),
        refused: RefusedHosts::default(),
    });
    let inside = run(perl(r#"print "fine\n""#, folder.path(), Some(passing))).await;
    format!("{}{}{}", outside.stdout.text(), inside.stdout.text(), inside.stderr.text())
}

/// See docs/research/threats.md#s10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resource_hogs_leave_enough_of_the_user_limits_to_others() {
    if !goes_on_as_other_user("scripts::users::resource_hogs_leave_enough_of_the_user_limits_to_others") {
        return;
    }
    if sandbox().await.tier != SandboxTier::A {
        return;
    }
    for (name, script, expected) in HOGS {
        let folder = folders();
        let view = view(folder.path(), SandboxMechanism::Bubblewrap);
        let mut hog = Box::pin(run(perl(script, folder.path(), Some(view))));
        let finished = loop {
            tokio::select! {
                finished = &mut hog => break finished,
                said = others() => assert_eq!(said, "fine\nfine\n", "{name}"),
            }
        };
        assert_ended(name, *expected, &finished);
    }
}

/// See docs/research/threats.md#s10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resource_hogs_without_namespaces_are_stopped_at_their_share() {
    if !goes_on_confined("scripts::users::resource_hogs_without_namespaces_are_stopped_at_their_share") {
        return;
    }
    let confined = SandboxMechanism::Landlock(PROGRAM.into());
    let counted = HOGS.iter().filter(|(.., expected)| expected.is_some()).chain(COUNTED);
    for (name, script, expected) in counted {
        let folder = folders();
        let view = view(folder.path(), confined.clone());
        assert_ended(name, *expected, &run(perl(script, folder.path(), Some(view))).await);
    }
}
