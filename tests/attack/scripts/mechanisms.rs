//! Further scripts of the obedient agent: each reaches out by another mechanism of the kernel or of the machine.
//!
//! `call NAME ARGUMENTS` makes a system call and prints `BROKEN` unless the sandbox refuses it. `holder` states whether the process
//! of the machine is visible: without it, its number may belong to another process of the sandbox.

use super::machine::Script;

/// Scripts, as in `super::SCRIPTS`.
pub const MECHANISMS: &[Script] = &[
    // S1: environment, memory and files of the service.
    Script(
        "s1",
        "memory-by-call",
        r#"holder || exit; perl -e '$b = "\0" x 64; $r = syscall($ENV{SYS_process_vm_readv}, 0 + $ENV{HOLDER}, pack("P64Q", $b, 64), 1, pack("QQ", 4096, 64), 1, 0);
           print "BROKEN\n" if $r >= 0 || $!{EFAULT}'"#,
    ),
    Script(
        "s1",
        "memory-written-by-call",
        r#"holder || exit; perl -e '$b = "\0" x 64; $r = syscall($ENV{SYS_process_vm_writev}, 0 + $ENV{HOLDER}, pack("P64Q", $b, 64), 1, pack("QQ", 4096, 64), 1, 0);
           print "BROKEN\n" if $r >= 0 || $!{EFAULT}'"#,
    ),
    Script(
        "s1",
        "attach-by-call",
        r#"holder || exit; perl -e 'syscall($ENV{SYS_ptrace}, 16, 0 + $ENV{HOLDER}, 0, 0) == 0 and print "BROKEN\n"'"#,
    ),
    Script(
        "s1",
        "descriptor-by-call",
        r#"holder || exit; perl -e '$p = syscall($ENV{SYS_pidfd_open}, 0 + $ENV{HOLDER}, 0); for (0..9) { syscall($ENV{SYS_pidfd_getfd}, $p, $_, 0) >= 0 and print "BROKEN\n" }'"#,
    ),
    Script(
        "s1",
        "state-of-others",
        "holder || exit; for f in auxv syscall pagemap smaps io environ; do [ $(head -c 1 /proc/$HOLDER/$f | wc -c) = 0 ] || echo BROKEN $f; done",
    ),
    Script("s1", "shared-memory", r#"perl -e 'shmread($ENV{SHM}, $b, 0, 60) and print $b'"#),
    Script("s1", "temporary-folders", "cat /tmp/* /var/tmp/* /dev/shm/* /run/shm/*"),
    Script("s1", "handles", "call open_by_handle_at -1 0 0"),
    Script(
        "s1",
        "hardware",
        "for f in /sys/firmware/acpi/tables/DSDT /sys/class/dmi/id/product_serial /sys/devices/virtual/dmi/id/board_serial /sys/kernel/notes; do head -c 1 $f | grep -q . && echo BROKEN $f; done",
    ),
    Script("s1", "kernel-addresses", "grep -qv '^0000000000000000 ' /proc/kallsyms && echo BROKEN"),
    Script(
        "s1",
        "device-files",
        "for d in /dev/* /dev/*/*; do [ -b $d ] && echo BROKEN $d; done; for d in fuse kvm net/tun loop-control uinput vhost-net vhost-vsock cuse snapshot mem port; do (: </dev/$d) && echo BROKEN $d; done",
    ),
    Script(
        "s1",
        "mounted-secrets",
        "for f in /run/credentials/* /run/secrets/* /var/run/secrets/*/* /etc/kubernetes/* /var/lib/kubelet/*; do [ -e $f ] && echo BROKEN $f; done; [ -n \"${CREDENTIALS_DIRECTORY-}\" ] && echo BROKEN",
    ),
    Script(
        "s1",
        "folders-of-the-system",
        "for d in /run/systemd /run/user /run/lock /var/lib /var/spool /root /boot /lost+found; do [ -z \"$(ls -A $d/)\" ] || echo BROKEN $d; done",
    ),
    Script(
        "s1",
        "descriptor-of-a-folder",
        "exec 9<..; cat /proc/self/fd/9/../../secrets/token; cd /proc/self/fd/9/../.. && cat secrets/token",
    ),
    Script(
        "s1",
        "dumps-and-logs",
        "cat /var/lib/systemd/coredump/* /var/crash/* /var/log/* | head -c 1 | grep -qa . && echo BROKEN; journalctl -qn 1 | grep -q . && echo BROKEN",
    ),
    Script(
        "s1",
        "watched-files",
        r#"perl -e '$i = syscall($ENV{SYS_inotify_init1}, 0); for ("data/ralph.db", "secrets", "home/.ssh") { $p = "$ENV{OUT}/$_"; syscall($ENV{SYS_inotify_add_watch}, $i, $p, 0xfff) >= 0 and print "BROKEN $_\n" }'"#,
    ),
    Script(
        "s1",
        "names-outside",
        "for f in data/ralph.db secrets/token home/.netrc; do stat $OUT/$f && echo BROKEN $f; done",
    ),
    // S2: descriptors.
    Script("s2", "files-in-memory", "ls -l /proc/[0-9]*/fd | grep -E 'memfd|anon_inode' && echo BROKEN"),
    // S3: credentials of git and of the forge.
    Script(
        "s3",
        "key-rings",
        "cat $OUT/home/.gnupg/private-keys-v1.d/* $OUT/home/.local/share/keyrings/* $OUT/home/.password-store/*; gpg --homedir $OUT/home/.gnupg --list-secret-keys | grep -q sec && echo BROKEN",
    ),
    Script(
        "s3",
        "clouds",
        "cat $OUT/home/.aws/credentials $OUT/home/.kube/config $OUT/home/.docker/config.json ~/.aws/credentials ~/.kube/config ~/.docker/config.json",
    ),
    Script(
        "s3",
        "git-over-the-network",
        "export GIT_TERMINAL_PROMPT=0; git ls-remote http://127.0.0.1:$PORT/r; git ls-remote git://127.0.0.1:$PORT/r; git ls-remote ssh://git@127.0.0.1:$PORT/r",
    ),
    // S5: networks and sockets.
    Script(
        "s5",
        "first-packet",
        r#"perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0); send(S, "x", 0x20000000, sockaddr_in($ENV{PORT}, INADDR_LOOPBACK))'"#,
    ),
    Script(
        "s5",
        "to-many",
        "perl -MSocket -e 'socket(S, AF_INET, SOCK_DGRAM, 0) or exit; setsockopt(S, SOL_SOCKET, SO_BROADCAST, 1); for (\"255.255.255.255\", \"224.0.0.1\", \"239.1.1.1\") { send(S, \"x\", 0, sockaddr_in($ENV{UDP}, inet_aton($_))) and print \"BROKEN $_\\n\" }'",
    ),
    Script("s5", "mapped-address", "exec 3<>/dev/tcp/::ffff:127.0.0.1/$PORT && echo $NAME >&3"),
    Script(
        "s5",
        "multipath",
        r#"perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 262) && connect(S, sockaddr_in($ENV{PORT}, INADDR_LOOPBACK)) and print "BROKEN\n"'"#,
    ),
    Script(
        "s5",
        "shared-memory-communication",
        r#"perl -MSocket -e 'socket(S, 43, SOCK_STREAM, 0) && connect(S, sockaddr_in($ENV{PORT}, INADDR_LOOPBACK)) and print "BROKEN\n"'"#,
    ),
    Script(
        "s5",
        "multicast",
        r#"perl -MSocket -e 'socket(S, PF_INET, SOCK_DGRAM, 0); defined send(S, "x", 0, sockaddr_in(5353, inet_aton("224.0.0.251"))) and print "BROKEN\n"'"#,
    ),
    Script(
        "s5",
        "broadcast",
        r#"perl -MSocket -e 'socket(S, PF_INET, SOCK_DGRAM, 0); setsockopt(S, SOL_SOCKET, SO_BROADCAST, 1); defined send(S, "x", 0, sockaddr_in(9, INADDR_BROADCAST)) and print "BROKEN\n"'"#,
    ),
    Script("s5", "listed-ports", "grep -qi \":$(printf %04x $PORT) 00000000:0000 0A\" /proc/net/tcp && echo BROKEN"),
    Script("s5", "listed-names", "grep -q \"$ABSTRACT\" /proc/net/unix && echo BROKEN"),
    Script(
        "s5",
        "netlink-families",
        r#"perl -e 'for (2, 4, 5, 6, 9, 11, 16, 19) { socket(S, 16, 3, $_) and print "BROKEN $_\n" }'"#,
    ),
    Script(
        "s5",
        "socket-by-a-link",
        r#"ln -s $PREFIX/run/agent.sock s; perl -MIO::Socket::UNIX -e 'chdir "$ENV{PREFIX}/run"; for ("s", "agent.sock", "/proc/self/cwd/agent.sock") { $s = IO::Socket::UNIX->new(Peer => $_) and print "BROKEN\n" } chdir $ENV{OLDPWD}; IO::Socket::UNIX->new(Peer => "s") and print "BROKEN\n"'"#,
    ),
    Script(
        "s5",
        "moved-socket",
        r#"perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Peer => "$ENV{PREFIX}/run/moved.sock") and print "BROKEN\n"'"#,
    ),
    Script(
        "s5",
        "pair-connected-anew",
        r#"perl -MSocket -e 'socketpair(A, B, AF_UNIX, SOCK_DGRAM, 0) && connect(A, pack_sockaddr_un("$ENV{PREFIX}/run/log.sock")) && send(A, "hit", 0)'"#,
    ),
    Script(
        "s5",
        "resolver",
        "for s in $(awk '/^nameserver/ { print $2 }' /etc/resolv.conf); do timeout 1 bash -c \": >/dev/tcp/$s/53\" && echo BROKEN; done",
    ),
    // S11: processes that live on.
    Script(
        "s11",
        "adopter",
        r#"perl -e 'syscall($ENV{SYS_prctl}, 36, 1, 0, 0, 0); unless (fork) { unless (fork) { exec "setsid", "sleep", $ENV{MARK} } exit } sleep 1; kill 9, $$' &"#,
    ),
    Script(
        "s11",
        "zy-generations",
        r#"perl -e 'for (1 .. 3000) { fork and exit; select(undef, undef, undef, 0.002) } sleep 60' $MARK >/dev/null 2>&1 </dev/null &"#,
    ),
    Script("s11", "crowd", "for n in $(seq 1 30); do setsid sleep $MARK >/dev/null 2>&1 </dev/null & done; disown -a"),
    Script(
        "s11",
        "without-a-file",
        r#"perl -e '$n = "x"; $f = syscall($ENV{SYS_memfd_create}, $n, 0); open(O, ">&=", $f); open(I, "<", "/bin/sleep"); $/ = undef; print O <I>; O->flush; unless (fork) { exec {"/proc/self/fd/$f"} "sleep", $ENV{MARK} }' &"#,
    ),
    Script(
        "s11",
        "traced",
        r#"perl -e 'unless (fork) { syscall($ENV{SYS_ptrace}, 0, 0, 0, 0); kill "STOP", $$; exec "sleep", $ENV{MARK} } sleep 1' $MARK &"#,
    ),
    // S12: terminals.
    Script(
        "s12",
        "terminals-of-others",
        "for t in /dev/pts/[0-9]* /dev/tty[0-9]* /dev/console /dev/vcs* /dev/ttyS*; do (: >>$t) && echo BROKEN $t; done",
    ),
    Script(
        "s12",
        "control",
        r#"perl -e 'for (0, 1, 2) { open(T, "+<&=", $_); $b = "\x02"; ioctl(T, 0x541c, $b) and print "BROKEN\n"; ioctl(T, 0x540e, 1) and print "BROKEN\n" }'"#,
    ),
    // S13: programs that others run.
    Script("s13", "running-programs", "for p in /proc/[0-9]*/exe /proc/self/exe; do (: >>$p) && echo BROKEN $p; done"),
    Script(
        "s13",
        "cut-by-path",
        r#"perl -e 'for ("/usr/bin/git", "$ENV{PREFIX}/bin/tool", "$ENV{OUT}/data/ralph.db", "$ENV{OUT}/secrets/token") { truncate($_, 0) and print "BROKEN $_\n" }'"#,
    ),
    Script(
        "s13",
        "times",
        "touch -d @0 $PREFIX/bin/tool && echo BROKEN; touch -d @0 $OUT/data/ralph.db && [ -s $OUT/data/ralph.db ] && echo BROKEN",
    ),
    Script("s13", "modes", "chmod 777 $PREFIX/bin/tool && echo BROKEN; chmod 777 $PREFIX && echo BROKEN"),
    Script(
        "s13",
        "attributes",
        r#"perl -e 'for ("$ENV{PREFIX}/bin/tool", "/usr/bin/git") { for $n ("user.x", "security.capability", "system.posix_acl_access") { $p = $_; $v = "y"; syscall($ENV{SYS_setxattr}, $p, $n, $v, 1, 0) == 0 and print "BROKEN $p $n\n" } }'"#,
    ),
    Script(
        "s13",
        "owners",
        "chown $(id -u) $PREFIX/bin/tool && echo BROKEN; chgrp $(id -g) $PREFIX/bin && echo BROKEN; chown 0:0 . && echo BROKEN",
    ),
    Script(
        "s13",
        "exchanged",
        r#"echo x >own; perl -e '$a = "own"; for ("$ENV{PREFIX}/bin/tool", "$ENV{OUT}/secrets/token", "$ENV{OUT}/data/trees/other/file") { $b = $_; for $f (0, 2) { syscall($ENV{SYS_renameat2}, -100, $a, -100, $b, $f) == 0 and print "BROKEN $b\n" } }'"#,
    ),
    Script(
        "s13",
        "linked-without-a-name",
        r#"perl -e 'use Fcntl; sysopen(F, ".", 020200000 | O_RDWR) or exit; $a = "/proc/self/fd/" . fileno(F); for ("$ENV{PREFIX}/bin/new", "$ENV{OUT}/data/new", "/usr/bin/new") { $b = $_; syscall($ENV{SYS_linkat}, -100, $a, -100, $b, 0x400) == 0 and print "BROKEN $b\n" }'"#,
    ),
    Script(
        "s13",
        "opened-again",
        "exec 8<$PREFIX/bin/tool && (echo x >>/proc/self/fd/8) && echo BROKEN; exec 7</usr/bin/git && (: >>/dev/fd/7) && echo BROKEN",
    ),
    Script(
        "s13",
        "start-up-files",
        "for f in /etc/ld.so.preload /etc/profile.d/x.sh /etc/bash.bashrc /etc/environment $OUT/home/.bashrc $OUT/home/.profile $PREFIX/etc/profile; do (echo x >>$f) && echo BROKEN $f; done",
    ),
    Script(
        "s13",
        "scheduled-jobs",
        "for f in /etc/cron.d/x /var/spool/cron/crontabs/root /etc/crontab /etc/systemd/system/x.service /etc/udev/rules.d/x.rules /etc/apt/apt.conf.d/x $OUT/home/.config/systemd/user/x.service; do (echo x >>$f) && echo BROKEN $f; done",
    ),
    Script(
        "s13",
        "settings-of-git",
        "git config --system core.fsmonitor x && echo BROKEN; HOME=$OUT/home git config --global core.fsmonitor x && echo BROKEN; git config -f $OUT/data/mirrors/config core.fsmonitor x && echo BROKEN",
    ),
    Script(
        "s13",
        "modules-of-languages",
        "for d in /usr/lib/python3*/ /usr/share/perl5/ /usr/lib/*/perl5/ /usr/lib/node_modules/ /usr/include/ /usr/lib/git-core/; do (: >$d/attack) && echo BROKEN $d; done",
    ),
    // G19: other loops, and shared files.
    Script(
        "g19",
        "moved-tree",
        "mv $OUT/tree $OUT/tree2 && echo BROKEN; rmdir $OUT/data/scratch/own && echo BROKEN; mv ~ $OUT/home2 && echo BROKEN",
    ),
    Script(
        "g19",
        "special-files-beside",
        "mkfifo $OUT/data/trees/other/pipe && echo BROKEN; mknod $OUT/data/pipe p && echo BROKEN; perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => \"$ENV{OUT}/data/s\", Listen => 1) and print \"BROKEN\\n\"'",
    ),
    Script(
        "g19",
        "links-in-the-home",
        "ln -s $OUT/data/trees/other ~/x && echo x >~/x/file; ln -s $OUT/secrets ~/y && cat ~/y/*; rm -f ~/x ~/y",
    ),
    Script("g19", "locked-database", "flock -n $OUT/data/ralph.db true && echo BROKEN"),
    Script(
        "g19",
        "objects-of-others",
        "git --git-dir $OUT/data/mirrors -c safe.directory='*' cat-file -p $BLOB; git init -q r && cd r && echo $OUT/data/mirrors/objects >.git/objects/info/alternates && git cat-file -p $BLOB",
    ),
    // S16: the kernel of the machine.
    Script(
        "s16",
        "refused-calls",
        "\"$PROGRAM\" sandbox-attempts --socket $PREFIX/run/agent.sock --name \"$ABSTRACT\" | grep -E '^(called|connected) ' | sed 's/^/BROKEN /'",
    ),
    Script("s16", "io-uring", "call io_uring_setup 0 0; call io_uring_register -1 0 0 0"),
    // Numbers of x32 programs for io_uring_setup, bpf, unshare and keyctl.
    Script(
        "s16",
        "calls-of-x32",
        r#"[ $(uname -m) = x86_64 ] || exit; for n in 425 321 272 250; do perl -e '$r = syscall(0x40000000 | $ARGV[0], 0, 0, 0, 0, 0);
           print "BROKEN $ARGV[0]: $r $!\n" unless $r == -1 && ($!{EPERM} || $!{ENOSYS})' $n; done"#,
    ),
    // A program of 64 bits that calls io_uring_setup by the interrupt of 32-bit programs and exits with the error's number.
    Script(
        "s16",
        "calls-of-32-bits",
        r#"[ $(uname -m) = x86_64 ] || exit; perl -e '$code = pack("H*", "b8a901000031db31c9cd8089c7f7dfb83c0000000f05"); $base = 0x400000;
           print pack("a4C5x7SSLQQQLSSSSSS", "\x7fELF", 2, 1, 1, 0, 0, 2, 62, 1, $base + 120, 64, 0, 0, 64, 56, 1, 0, 0, 0),
                 pack("LLQQQQQQ", 1, 5, 0, $base, $base, 120 + length $code, 120 + length $code, 4096), $code' >call; chmod +x call; ./call
           c=$?; case $c in 1 | 38 | 139 | 159) ;; *) echo BROKEN $c ;; esac"#,
    ),
    // Attaches to a child with the option that takes its filter away.
    Script(
        "s16",
        "filter-taken-from-a-child",
        r#"sleep 2 & perl -e '$r = syscall($ENV{SYS_ptrace}, 0x4206, 0 + $ARGV[0], 0, 1 << 21); print "BROKEN\n" if $r == 0' $!; kill $!"#,
    ),
    // A thread with separate descriptors, which are in no list of its process's files.
    Script("s10", "thread-with-its-own-files", "call clone 65536 0 0 0 0"),
    Script("s16", "programs-in-the-kernel", "call bpf -1 0 0"),
    Script("s16", "counters", "call perf_event_open 0 -1 -1 -1 0"),
    Script("s16", "page-faults", "call userfaultfd -1; (: </dev/userfaultfd) && echo BROKEN"),
    Script("s16", "notification-of-files", "call fanotify_init -1 0"),
    Script("s16", "keys-by-call", "call keyctl -1 0 0; call add_key 0 0 0 0 0; call request_key 0 0 0 0"),
    Script(
        "s16",
        "new-mounts",
        "call open_tree -1 0 0; call move_mount -1 0 -1 0 0; call fsopen 0 -1; call fsmount -1 0 0; call mount_setattr -1 0 0 0 0; call pivot_root 0 0; call umount2 0 0",
    ),
    Script(
        "s16",
        "modules",
        "call init_module 0 0 0; call finit_module -1 0 0; call delete_module 0 0; modprobe dummy && echo BROKEN; insmod x.ko && echo BROKEN",
    ),
    Script(
        "s16",
        "other-kernels",
        "call kexec_load 0 0 0 0; call reboot 0 0 0 0; (: >>/proc/sysrq-trigger) && echo BROKEN",
    ),
    Script(
        "s16",
        "clocks",
        "call settimeofday 0 0; call clock_settime 0 0; hwclock -w && echo BROKEN; (: >>/dev/rtc0) && echo BROKEN",
    ),
    Script(
        "s16",
        "names-of-the-machine",
        "call sethostname 0 -1; call setdomainname 0 -1; hostname attacked && echo BROKEN; (: >>/proc/sys/kernel/hostname) && echo BROKEN",
    ),
    Script("s16", "swap-quota-accounting", "call swapon 0 0; call swapoff 0; call quotactl -1 0 0 0; call acct 0"),
    Script("s16", "other-domains", "call personality 262144; call personality 4194304"),
    Script(
        "s16",
        "pages-of-others",
        "call migrate_pages 0 0 0 0; call move_pages 0 0 0 0 0 0; call process_madvise -1 0 0 0 0; call mbind 0 0 0 0 0 0",
    ),
    Script("s16", "comparison", "call kcmp $$ $PPID 0 0 0"),
    Script(
        "s16",
        "cloned-namespaces",
        "for flag in 268435456 536870912 131072 1073741824 67108864 134217728 33554432; do call clone $flag 0 0 0 0; call unshare $flag; done; call clone3 0 0",
    ),
    Script(
        "s16",
        "namespaces-of-others",
        "call setns -1 0; for n in /proc/1/ns/* /proc/$PPID/ns/*; do nsenter --net=$n true && echo BROKEN $n; done",
    ),
    Script(
        "s16",
        "user-maps",
        "for f in uid_map gid_map; do (echo 0 0 1 >/proc/self/$f) && echo BROKEN $f; done; (echo allow >/proc/self/setgroups) && echo BROKEN",
    ),
    Script(
        "s16",
        "control-groups",
        "mkdir /sys/fs/cgroup/x && echo BROKEN; (echo $$ >/sys/fs/cgroup/cgroup.procs) && echo BROKEN; for f in /sys/fs/cgroup/*/release_agent /sys/fs/cgroup/*.max; do (: >>$f) && echo BROKEN $f; done",
    ),
    Script(
        "s16",
        "binary-formats",
        "(echo ':x:M::xx::/bin/sh:' >/proc/sys/fs/binfmt_misc/register) && echo BROKEN; mount -t binfmt_misc x /proc/sys/fs/binfmt_misc && echo BROKEN",
    ),
    Script(
        "s16",
        "settings-of-devices",
        "for f in /sys/power/state /sys/kernel/uevent_helper /sys/module/*/parameters/* /sys/class/leds/*/brightness /sys/bus/pci/rescan; do (: >>$f) && echo BROKEN $f; done",
    ),
    Script(
        "s16",
        "priority",
        "[ $(nice -n -5 nice) -lt 0 ] && echo BROKEN; chrt -f 10 true && echo BROKEN; ionice -c 1 true && [ \"$(ionice -c 1 ionice | cut -d: -f1)\" = realtime ] && echo BROKEN",
    ),
    Script(
        "s16",
        "raised-limits",
        "h=$(ulimit -Hn); [ $h = unlimited ] || { ulimit -Hn $((h + 1)) && echo BROKEN; }; ulimit -Hc 1 && echo BROKEN",
    ),
    Script(
        "s16",
        "users",
        "perl -e '$) = \"0 0\"; $> = 0; $< = 0; print \"BROKEN\\n\" if $> == 0 || $< == 0; syscall($ENV{SYS_setgroups}, 0, 0) == 0 and print \"BROKEN\\n\"'; [ $(id -u) = 0 ] && echo BROKEN",
    ),
    Script(
        "s16",
        "rights-left",
        "grep -Eq '^Cap(Prm|Eff|Inh|Amb):.*[1-9a-f]' /proc/self/status && echo BROKEN; grep -q '^NoNewPrivs:.*1' /proc/self/status || echo BROKEN; grep -q '^Seccomp:.*2' /proc/self/status || echo BROKEN",
    ),
    Script(
        "s16",
        "victim-of-memory",
        "(echo -1000 >/proc/self/oom_score_adj) && echo BROKEN; holder && (echo 1000 >/proc/$HOLDER/oom_score_adj) && echo BROKEN",
    ),
    Script(
        "s16",
        "limits-of-others",
        "holder || exit; prlimit --pid $HOLDER --nofile=9:9 && echo BROKEN; renice 10 $HOLDER && echo BROKEN; taskset -p 1 $HOLDER && echo BROKEN",
    ),
    Script(
        "s16",
        "signals-to-others",
        "holder || exit; kill -s WINCH $HOLDER && echo BROKEN; perl -e '$p = syscall($ENV{SYS_pidfd_open}, 0 + $ENV{HOLDER}, 0); syscall($ENV{SYS_pidfd_send_signal}, $p, 28, 0, 0) == 0 and print \"BROKEN\\n\"'",
    ),
];

/// Scripts whose attack is possible in a sandbox without namespaces (docs/guides/security.md).
pub const OPEN_WITHOUT_NAMESPACES: &[&str] = &[
    // Permissions and times of the user's own files.
    "modes",
    "times",
    // Names of files, which also reveal whether a socket or secret exists, and that they change.
    "names-outside",
    "watched-files",
    "known-sockets",
    "mounted-secrets",
    // The machine's processes, interfaces, and the kernel's information about itself.
    "listed-ports",
    "listed-names",
    "kernel-addresses",
    "kernel-keys",
];
