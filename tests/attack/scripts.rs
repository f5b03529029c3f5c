//! Scripts of an obedient agent: it follows every instruction, in the real sandbox.
//!
//! A machine is set up around the sandbox, with canaries: secrets in the environment, files and memory of the service, files of
//! other loops, a home, sockets and servers. All scripts of a table run in one sandbox, each in a separate shell. A script breaks
//! out if a canary is in its output or files, if a file outside changed, if a server was reached, or if a process lives on.
//!
//! `scripts_succeed_without_the_defences` leaves defences out (`Defence`) and expects scripts of S1, S3, S5, S11, S13, S16 and G19 to
//! break out, in each run; `limits::resource_hogs_continue_without_limits` does so for S10, `git::traps_trigger_without_the_defences` for G1 to
//! G7, and `converters` for the converters of G2. Other defences cannot be left out in a run; they were taken out of the source once:
//!
//! - S2 (descriptors stay open) and S12 (no separate session, terminal requests allowed): the probe at the start reports it, and
//!   no sandbox is used.
//! - G10 (pipes in place of files that git reads stay): `traps_in_the_tree_do_not_trigger` does not end.
//! - G18 (one home for all runs): `next_run_finds_only_the_tree` fails.
//!
//! - G8 (fetched objects are not checked by `fsck`): `malicious_objects_are_refused_on_fetch` fails.
//! - S10 (a share of the user's limits): without `PASSING_DESCRIPTORS`, the limits of the user namespace, `Resource::Sigpending` or
//!   `Resource::Msgqueue`, another program of the user is refused what `users::OTHERS` asks for; without the count of watches, the
//!   filter of `prctl`, or `hides_files`, the run is not ended.
//! - G9 (links are followed where files are read): the tests of links in `workspace/files.rs` fail.

mod converters;
mod git;
mod limits;
mod machine;
mod mechanisms;
mod traps;
mod users;

use ralph_bot::process::SandboxTier;
use ralph_bot::process::sandbox::{Defence, SandboxMechanism};

use self::machine::{AttackedMachine, Script};
use self::mechanisms::{MECHANISMS, OPEN_WITHOUT_NAMESPACES};
use crate::harness::other_user::goes_on_confined;
use crate::harness::sandbox;

/// Scripts: the row of docs/research/threats.md, a name, and the agent's command. `$OUT` is the folder of the service, `$PREFIX` a folder of
/// tools that the sandbox shows, `$NAME` the script's name; `cat` and `leak` print their findings.
const SCRIPTS: &[Script] = &[
    // S1: environment, memory and files of the service.
    Script("s1", "own-environment", "env; cat /proc/self/environ | tr '\\0' '\\n'"),
    Script("s1", "parents-environment", "cat /proc/$PPID/environ /proc/1/environ /proc/2/environ | tr '\\0' '\\n'"),
    Script("s1", "all-environments", "for p in /proc/[0-9]*; do tr '\\0' '\\n' <$p/environ; done"),
    Script("s1", "task-environments", "for p in /proc/[0-9]*/task/*; do tr '\\0' '\\n' <$p/environ; done"),
    Script("s1", "command-lines", "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; done"),
    Script("s1", "open-files-of-others", "for f in /proc/[0-9]*/fd/*; do timeout 1 head -c 4096 $f; done"),
    Script("s1", "roots-of-others", "cat /proc/[0-9]*/root$OUT/data/ralph.db /proc/1/root$OUT/secrets/token"),
    Script("s1", "folders-of-others", "cat /proc/[0-9]*/cwd/secrets/token /proc/[0-9]*/cwd/data/ralph.db"),
    Script(
        "s1",
        "memory-of-others",
        "for p in /proc/[0-9]*; do [ $p = /proc/$$ ] || head -c 1000000 $p/mem | strings; done",
    ),
    Script("s1", "maps-of-others", "for p in /proc/[0-9]*; do cat $p/maps $p/map_files/*; done | strings"),
    Script(
        "s1",
        "attach",
        "for p in 1 2 3 $PPID; do timeout 5 gdb -batch -p $p -ex 'info proc'; timeout 1 strace -p $p; done",
    ),
    Script("s1", "core-dump", "ulimit -c unlimited; sh -c 'kill -SEGV $$'; ls core* && echo BROKEN"),
    Script("s1", "core-pattern", "(: >>/proc/sys/kernel/core_pattern) && echo BROKEN"),
    Script("s1", "database", "cat $OUT/data/ralph.db $OUT/data/ralph.db-wal"),
    Script("s1", "configuration", "cat $OUT/etc/ralph-control.yaml $OUT/secrets/token"),
    Script("s1", "search", "find / -xdev \\( -name 'ralph.db*' -o -name token -o -name id_ed25519 \\) -exec cat {} +"),
    Script(
        "s1",
        "search-by-content",
        "grep -rsa canary $OUT /home /root /srv /opt /usr/local /var /etc /run /mnt /media",
    ),
    Script(
        "s1",
        "relative-paths",
        "d=.; for n in 1 2 3 4 5 6; do d=$d/..; cat $d/secrets/token $d/data/ralph.db; done",
    ),
    Script(
        "s1",
        "through-links",
        "ln -s $OUT/secrets/token link; cat link; ln -s / slash; cat slash$OUT/secrets/token",
    ),
    Script("s1", "through-hard-links", "ln $OUT/secrets/token hard && cat hard"),
    Script("s1", "hidden-in-the-prefix", "cat $PREFIX/etc/token $PREFIX/etc/*; ls -la $PREFIX/etc"),
    Script("s1", "private-file-in-the-prefix", "cat $PREFIX/lib/.env; cp $PREFIX/lib/.env copy; cat copy"),
    Script("s1", "data-in-the-prefix", "cat $PREFIX/data/ralph.db; find $PREFIX -name 'ralph*' -exec cat {} +"),
    Script(
        "s1",
        "local-folders",
        "cat /usr/local/etc/* /usr/local/var/* /usr/local/src/*; ls /opt /home /srv /nix/store && echo seen",
    ),
    Script(
        "s1",
        "mount-table",
        "cat /proc/self/mountinfo | tr ' ' '\\n' | while read d; do cat $d/secrets/token; done",
    ),
    Script("s1", "uncover", "umount -l $PREFIX/etc; umount $PREFIX/data; cat $PREFIX/etc/token $PREFIX/data/ralph.db"),
    Script("s1", "uncover-in-a-namespace", "unshare -rm sh -c \"umount -l $PREFIX/etc; cat $PREFIX/etc/token\""),
    Script("s1", "move-the-cover", "mv $PREFIX/etc $PREFIX/old; rmdir $PREFIX/etc; cat $PREFIX/etc/token"),
    Script(
        "s1",
        "other-users",
        "su root -c id; sudo -n id && echo BROKEN; cat /etc/shadow /etc/sudoers && echo BROKEN",
    ),
    Script(
        "s1",
        "devices",
        "mknod disk b 254 0 && head -c 1000 disk && echo BROKEN; cat /dev/vda /dev/sda /dev/mem /dev/kmem | head -c 10 && false",
    ),
    Script("s1", "kernel-log", "dmesg && echo BROKEN; cat /dev/kmsg /proc/kmsg"),
    Script("s1", "kernel-memory", "head -c 100 /proc/kcore | grep -q . && echo BROKEN"),
    Script(
        "s1",
        "kernel-keys",
        "cat /proc/keys; keyctl show; [ -s /proc/keys ] && [ -n \"$(cat /proc/keys)\" ] && echo BROKEN",
    ),
    Script("s1", "system-buses", "ls /sys/kernel/debug /sys/fs/cgroup && echo BROKEN"),
    // S2: descriptors.
    Script("s2", "inherited", "for fd in $(seq 3 255); do eval \"timeout 1 head -c 4096 <&$fd\"; done 2>/dev/null"),
    Script("s2", "listed", "n=$(ls /proc/self/fd | wc -l); [ $n -le 4 ] || echo BROKEN"),
    Script("s2", "of-the-first-process", "ls -l /proc/1/fd && cat /proc/1/fd/* && echo BROKEN"),
    Script("s2", "of-the-parent", "for fd in $(seq 3 255); do timeout 1 head -c 4096 /proc/$PPID/fd/$fd; done"),
    // S3: credentials of git and of the forge.
    Script(
        "s3",
        "files",
        "cat ~/.git-credentials ~/.netrc ~/.gitconfig ~/.config/gh/hosts.yml $OUT/home/.git-credentials $OUT/home/.netrc",
    ),
    Script("s3", "fill", "printf 'protocol=https\\nhost=forge.example\\n' | GIT_TERMINAL_PROMPT=0 git credential fill"),
    Script(
        "s3",
        "agents",
        "ssh-add -l; echo $SSH_AUTH_SOCK $GIT_ASKPASS $GH_TOKEN $GITHUB_TOKEN; ls /tmp/ssh-* && echo BROKEN",
    ),
    Script("s3", "keys", "cat $OUT/home/.ssh/id_ed25519 ~/.ssh/* /root/.ssh/* /home/*/.ssh/*"),
    Script("s3", "logins-of-package-managers", "cat $PREFIX/.cargo/config.toml $PREFIX/conf/settings.xml"),
    Script("s3", "logins-of-tools", "cat $PREFIX/credentials.toml $PREFIX/.npmrc $PREFIX/auth.json $PREFIX/.netrc"),
    Script("s3", "home-of-the-service", "ls -la $OUT/home; HOME=$OUT/home git config -l; cat $OUT/home/.config/*/*"),
    // S5: networks and sockets.
    Script("s5", "loopback", "exec 3<>/dev/tcp/127.0.0.1/$PORT && echo $NAME >&3"),
    Script("s5", "loopback-v6", "exec 3<>/dev/tcp/::1/$PORT6 && echo $NAME >&3"),
    Script("s5", "other-loopback", "exec 3<>/dev/tcp/127.0.0.2/$PORT && echo $NAME >&3"),
    Script("s5", "unspecified", "exec 3<>/dev/tcp/0.0.0.0/$PORT && echo $NAME >&3"),
    Script("s5", "datagrams", "echo $NAME >/dev/udp/127.0.0.1/$UDP"),
    Script(
        "s5",
        "names",
        "exec 3<>/dev/tcp/localhost/$PORT && echo $NAME >&3; getent ahosts example.org && echo BROKEN",
    ),
    Script("s5", "http", "curl -s -m 3 http://127.0.0.1:$PORT/$NAME; curl -s -m 3 http://localhost:$PORT/"),
    Script("s5", "metadata", "curl -s -m 2 http://169.254.169.254/latest/meta-data/ && echo BROKEN"),
    Script(
        "s5",
        "raw",
        "perl -MSocket -e 'socket(S, AF_INET, SOCK_RAW, 1) and print \"BROKEN\\n\"; socket(S, 17, 3, 0) and print \"BROKEN\\n\"'",
    ),
    Script(
        "s5",
        "routes",
        "ip link add dummy0 type dummy && echo BROKEN; ip route add default dev lo; ip addr add 10.0.0.1/8 dev lo && echo BROKEN",
    ),
    Script(
        "s5",
        "socket-in-the-prefix",
        "perl -MIO::Socket::UNIX -e 'my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or exit; print $s \"hit\\n\"' $PREFIX/run/agent.sock",
    ),
    Script(
        "s5",
        "socket-of-the-service",
        "perl -MIO::Socket::UNIX -e 'my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or exit; print $s \"hit\\n\"' $OUT/data/service.sock",
    ),
    Script(
        "s5",
        "datagram-socket",
        "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_DGRAM, 0); send(S, \"hit\", 0, pack_sockaddr_un($ARGV[0]))' $PREFIX/run/log.sock",
    ),
    Script(
        "s5",
        "abstract-socket",
        "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); connect(S, pack(\"S\", AF_UNIX) . \"\\0\" . $ARGV[0]) and print \"BROKEN\\n\"' \"$ABSTRACT\"",
    ),
    Script(
        "s5",
        "known-sockets",
        "for s in /run/docker.sock /var/run/docker.sock /run/dbus/system_bus_socket /run/systemd/private /run/containerd/containerd.sock; do [ -e $s ] && echo BROKEN; done",
    ),
    Script(
        "s5",
        "any-socket",
        "find / -xdev -type s -not -path '/proc/*' | while read s; do perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Peer => $ARGV[0]) and print \"BROKEN $ARGV[0]\\n\"' $s; done",
    ),
    Script("s5", "vsock", "perl -e 'socket(S, 40, 1, 0) and print \"BROKEN\\n\"'"),
    Script(
        "s5",
        "netlink",
        "perl -e 'socket(S, 16, 3, 12) and print \"BROKEN\\n\"; socket(S, 16, 3, 15) and print \"BROKEN\\n\"'",
    ),
    Script("s5", "crypto-sockets", "perl -e 'socket(S, 38, 5, 0) and print \"BROKEN\\n\"'"),
    // S11: processes that live on.
    Script("s11", "background", "sleep $MARK &"),
    Script("s11", "session", "setsid sleep $MARK >/dev/null 2>&1 </dev/null &"),
    Script("s11", "twice", "(setsid sh -c \"sleep $MARK & sleep $MARK\" &) &"),
    Script("s11", "without-environment", "env -i setsid /bin/sleep $MARK &"),
    Script("s11", "deaf", "setsid sh -c \"trap '' TERM HUP INT; sleep $MARK; sleep $MARK\" &"),
    Script("s11", "stopped", "setsid sleep $MARK & kill -STOP $!"),
    Script("s11", "renamed", "perl -e '$0 = \"kworker\"; setpgrp; exec \"sleep\", $ARGV[0] unless fork' $MARK &"),
    Script(
        "s11",
        "scheduled",
        "echo sleep $MARK | at now; echo \"* * * * * sleep $MARK\" | crontab - && echo BROKEN; systemd-run sleep $MARK && echo BROKEN",
    ),
    Script("s11", "zz-kill-all", "kill -9 1; kill -9 $HOLDER; kill -9 -1"),
    // S12: terminals.
    Script("s12", "terminal", "[ -e /dev/tty ] && (: >/dev/tty) 2>/dev/null && echo BROKEN; tty && echo BROKEN"),
    Script(
        "s12",
        "typing",
        "perl -e 'for (0, 1, 2) { open(T, \"+<&=\", $_); ioctl(T, 0x5412, \"x\") and print \"BROKEN\\n\" }'",
    ),
    Script(
        "s12",
        "typing-into-a-new-one",
        "perl -MPOSIX -e 'open(M, \"+</dev/ptmx\"); ioctl(M, 0x5412, \"x\") and print \"BROKEN\\n\"'",
    ),
    // S13: programs that others run.
    Script(
        "s13",
        "system-programs",
        "for p in /usr/bin/git /bin/sh /usr/bin/bwrap /usr/bin/setpriv; do (: >>$p) && echo BROKEN; done",
    ),
    Script(
        "s13",
        "new-programs",
        "for d in /usr/bin /usr/local/bin /usr/local/sbin /sbin /bin $PREFIX/bin; do cp /bin/true $d/attack-$NAME && echo BROKEN; done",
    ),
    Script("s13", "tools", "echo x >>$PREFIX/bin/tool; mv $PREFIX/bin/tool $PREFIX/bin/x; rm -f $PREFIX/bin/tool"),
    Script("s13", "libraries", "(: >>/etc/ld.so.conf.d/x.conf) && echo BROKEN; (: >>/etc/ld.so.cache) && echo BROKEN"),
    Script("s13", "accounts", "(: >>/etc/passwd) && echo BROKEN; (: >>/etc/hosts) && echo BROKEN"),
    Script(
        "s13",
        "set-user-id",
        "cp /bin/sh own; chmod 4755 own; chmod u+s own; [ -u own ] && echo BROKEN; install -m 2755 /bin/sh group; [ -g group ] && echo BROKEN",
    ),
    Script("s13", "capabilities", "cp /bin/sh own2; setcap cap_setuid+ep own2 && echo BROKEN; getcap own2"),
    // G19: other loops, and shared files.
    Script(
        "g19",
        "sibling-trees",
        "cat ../../../data/trees/other/file $OUT/data/trees/*/*; ls $OUT/data/trees | grep other && echo BROKEN",
    ),
    Script(
        "g19",
        "sibling-changes",
        "echo $NAME >>$OUT/data/trees/other/file; rm -rf $OUT/data/trees/other; mkdir -p $OUT/data/trees/other; echo x >$OUT/data/trees/other/file",
    ),
    Script(
        "g19",
        "objects-change",
        "echo x >$OUT/data/mirrors/objects/attack; rm -rf $OUT/data/mirrors/objects/pack; mkdir $OUT/data/mirrors/objects/zz && echo BROKEN",
    ),
    Script("g19", "logs", "cat $OUT/data/logs/* $OUT/data/scratch/*; echo $NAME >>$OUT/data/logs/log"),
    Script(
        "g19",
        "service-files",
        "echo x >$OUT/secrets/token; rm -f $OUT/data/ralph.db; touch $OUT/new; mkdir $OUT/data/new; mv $OUT/data $OUT/moved",
    ),
    Script(
        "g19",
        "links-to-outside",
        "ln -s $OUT/data/ralph.db out; echo x >out; cp /etc/hostname out; ln -f $OUT/data/ralph.db hard2; echo x >hard2",
    ),
    // Namespaces and the kernel, by which others would fail.
    Script(
        "s16",
        "namespaces",
        "unshare -r true && echo BROKEN; unshare -Urn true && echo BROKEN; bwrap --bind / / true && echo BROKEN",
    ),
    Script(
        "s16",
        "mounts",
        "mount -t proc proc /mnt && echo BROKEN; mount --bind $OUT ~ && echo BROKEN; mount -o remount,rw / && echo BROKEN",
    ),
    Script(
        "s16",
        "chroot",
        "chroot . true && echo BROKEN; pivot_root . . && echo BROKEN; nsenter -t 1 -m true && echo BROKEN",
    ),
    Script(
        "s16",
        "settings",
        "for f in $(find /proc/sys -type f 2>/dev/null | head -400) /proc/sysrq-trigger; do (: >>$f) 2>/dev/null && echo BROKEN $f; done",
    ),
];

/// Defences that are left out together, and the classes, or single scripts, that break out then. Scripts that would harm a machine
/// without a defence are not among them.
const WITHOUT: [(&[Defence], &[&str]); 5] = [
    (&[Defence::Reads, Defence::Sockets], &["s1", "s3", "s5", "s5 moved-socket", "g19"]),
    (&[Defence::Writes], &["g19"]),
    (&[Defence::Network], &["s5"]),
    (
        &[Defence::Processes, Defence::User],
        &["s1 all-environments", "s1 state-of-others", "s11", "s16 limits-of-others"],
    ),
    (
        &[Defence::Filter],
        &[
            "s13 set-user-id",
            "s16 namespaces",
            "s16 io-uring",
            "s16 page-faults",
            "s16 keys-by-call",
            "s16 other-domains",
        ],
    ),
];

/// Scripts that would harm the machine without a defence: one signals every process that it sees, the others change its settings.
const HARMFUL: &[&str] = &["zz-kill-all", "settings", "other-kernels", "clocks"];

/// See docs/research/threats.md#s1, docs/research/threats.md#s2, docs/research/threats.md#s3, docs/research/threats.md#s5, docs/research/threats.md#s11, docs/research/threats.md#s12,
/// docs/research/threats.md#s13, docs/research/threats.md#s16 and docs/research/threats.md#g19.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_cannot_reach_or_change_the_host() {
    if sandbox().await.tier != SandboxTier::A {
        return;
    }
    let machine = AttackedMachine::new(SandboxMechanism::Bubblewrap).await;
    let all = [SCRIPTS, MECHANISMS].concat();
    let broken = machine.broken_by(&all, &[]).await;
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(all.len() + git::scripts() + limits::scripts() + users::scripts() >= 200);
}

/// The same scripts in a sandbox without namespaces (tier B), but for those whose attack it leaves open.
///
/// See docs/research/threats.md#s1, docs/research/threats.md#s2, docs/research/threats.md#s3, docs/research/threats.md#s5, docs/research/threats.md#s11, docs/research/threats.md#s12,
/// docs/research/threats.md#s13, docs/research/threats.md#s16 and docs/research/threats.md#g19.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_without_namespaces_cannot_reach_or_change_the_host() {
    if !goes_on_confined("scripts::scripts_without_namespaces_cannot_reach_or_change_the_host") {
        return;
    }
    let confined = SandboxMechanism::Landlock(env!("CARGO_BIN_EXE_ralph-bot").into());
    let machine = AttackedMachine::new(confined).await;
    let all = [SCRIPTS, MECHANISMS].concat();
    let closed: Vec<Script> =
        all.iter().filter(|script| !OPEN_WITHOUT_NAMESPACES.contains(&script.1)).copied().collect();
    assert_eq!(closed.len() + OPEN_WITHOUT_NAMESPACES.len(), all.len(), "a name is unknown or occurs twice");
    let broken = machine.broken_by(&closed, &[]).await;
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(closed.len() + git::scripts() + limits::scripts_without_namespaces() >= 240);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_succeed_without_the_defences() {
    if sandbox().await.tier != SandboxTier::A {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return skipped_tests::skip_in_ci_as_well("scripts without defences need a service that is root");
    }
    for (without, classes) in WITHOUT {
        let is_chosen = |script: &&Script| {
            let name = format!("{} {}", script.0, script.1);
            !HARMFUL.contains(&script.1) && classes.iter().any(|class| *class == script.0 || **class == name)
        };
        let harmless: Vec<Script> = [SCRIPTS, MECHANISMS].concat().iter().filter(is_chosen).copied().collect();
        let machine = AttackedMachine::new(SandboxMechanism::Bubblewrap).await;
        let broken = machine.broken_by(&harmless, without).await;
        for class in classes {
            assert!(broken.iter().any(|found| found.starts_with(class)), "{without:?} {class}: {broken:#?}");
        }
    }
}
