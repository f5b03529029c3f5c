//! Attacks by programs that Landlock confines, without namespaces (tier B): each fails, and succeeds without its defence.
//!
//! A service that is root has no such sandbox, so that root runs each of these tests again as another user.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Stdio;
use std::time::Duration;

use ralph_bot::domain::trust::egress::Hosts;
use ralph_bot::process::sandbox::{Defence, Network, SandboxMechanism, SandboxSettings, SandboxView, ScratchHome};
use ralph_bot::process::{
    self, EgressSettings, Finished, ProbeSettings, ProcessEnd, ProcessSpec, RefusedHosts, Sandbox, probe_landlock,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio_util::sync::CancellationToken;

use crate::harness::other_user::goes_on_confined;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ralph-bot");

/// Attacks by shells: the part of the machine, what prevents it, and a script that prints `BROKEN` if it succeeds.
const ATTACKS: [(&str, &[Defence], &str); 18] = [
    ("writing outside", &[Defence::Writes], r#"(echo x >"$OUTSIDE/new") && echo BROKEN"#),
    ("truncating a file outside", &[Defence::Writes], r#": >"$OUTSIDE/file" && echo BROKEN"#),
    ("removing a file outside", &[Defence::Writes], r#"rm -f "$OUTSIDE/other" && echo BROKEN"#),
    ("moving a file outside", &[Defence::Writes], r#": >own; mv own "$OUTSIDE/moved" && echo BROKEN"#),
    ("linking to a file outside", &[Defence::Writes], r#"ln "$OUTSIDE/secret" . && echo BROKEN"#),
    ("reading a secret", &[Defence::Reads], r#"grep -q canary "$OUTSIDE/secret" && echo BROKEN"#),
    ("listing a folder outside", &[Defence::Reads], r#"ls "$OUTSIDE" && echo BROKEN"#),
    ("a port of the host", &[Defence::Network], r#": >/dev/tcp/127.0.0.1/$PORT && echo BROKEN"#),
    ("datagrams", &[Defence::Network], r#"echo x >/dev/udp/127.0.0.1/$UDP_PORT && echo BROKEN"#),
    (
        "a server",
        &[Defence::Network],
        r#"perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0) && listen(S, 1) && print "BROKEN"'"#,
    ),
    (
        "a server at a port",
        &[Defence::Network],
        r#"perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0) && bind(S, sockaddr_in(0, INADDR_LOOPBACK)) && print "BROKEN"'"#,
    ),
    (
        "connecting by sending",
        &[Defence::Network],
        r#"perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0); my $n = send(S, "x", 0x20000000, sockaddr_in($ENV{PORT}, INADDR_LOOPBACK));
           print "BROKEN" if defined $n || $!{EINPROGRESS} || $!{EOPNOTSUPP}'"#,
    ),
    (
        "a socket of the host",
        &[Defence::Sockets],
        r#"perl -MSocket -e 'socket(S, PF_UNIX, SOCK_STREAM, 0) && connect(S, sockaddr_un("$ENV{OUTSIDE}/socket")) && print "BROKEN"'"#,
    ),
    (
        "an abstract socket of the host",
        &[Defence::Sockets, Defence::Processes],
        r#""$PROGRAM" sandbox-attempts --socket /x --name "$NAME" | grep -q 'connected to an abstract' && echo BROKEN"#,
    ),
    ("signals to processes outside", &[Defence::Processes], "kill -s USR2 $HOLDER && echo BROKEN"),
    ("limits of processes outside", &[Defence::Processes], "prlimit --pid $HOLDER --nofile=9:9 && echo BROKEN"),
    ("memory that users share", &[Defence::Processes], "ipcmk -M 10 && ipcrm --all=shm && echo BROKEN"),
    ("programs with rights of their owner", &[Defence::Filter], ": >a; chmod u+s a; [ -u a ] && echo BROKEN"),
];

/// Attacks that several defences prevent.
const FURTHER: [(&str, &str); 6] = [
    ("the environment of processes outside", "tr '\\0' '\\n' </proc/$HOLDER/environ | grep . && echo BROKEN"),
    ("the root of processes outside", "ls /proc/$HOLDER/root/ && echo BROKEN"),
    ("settings of the kernel", "(: >>/proc/sys/kernel/core_pattern) && echo BROKEN"),
    ("devices", "ls /dev/ /sys/ 2>/dev/null && echo BROKEN; head -c 1 /dev/kmsg && echo BROKEN"),
    ("folders of all users", "(: >/tmp/x) && echo BROKEN; (: >/dev/shm/x) && echo BROKEN; ls /tmp && echo BROKEN"),
    (
        "attributes of files outside",
        r#"python3 -c "import os; os.setxattr('$OUTSIDE/file', 'user.x', b'')" && echo BROKEN; chgrp $(id -g) "$OUTSIDE/file" && echo BROKEN"#,
    ),
];

/// Ordinary work: a script that prints `fine` unless it is broken.
const WORKS: [(&str, &str); 7] = [
    (
        "signals",
        "grep -q 'SigBlk:.0000000000000000' /proc/self/status && (kill -TERM $BASHPID; echo broken) || echo fine",
    ),
    ("output by name", "echo fine >/dev/stdout; echo more >/dev/stderr; : >/dev/null"),
    (
        "temporary files",
        r#"f=$(mktemp) && echo x >"$f" && mkdir -p "$HOME/a/b" && mv "$f" "$HOME/a/b/" && rm -r "$HOME/a" && echo fine"#,
    ),
    ("git", "git init -q repo && cd repo && git config user.name x && git status >/dev/null && echo fine"),
    ("scripts", "printf '#!/bin/sh\\necho fine\\n' >run && chmod 755 run && ./run"),
    ("process substitution", "cat <(echo fine)"),
    (
        "names and processes",
        "getent passwd 0 >/dev/null && date >/dev/null && grep -q State /proc/self/status && echo fine",
    ),
];

/// Things outside of a view that must not be reached.
struct Outside {
    folder: tempfile::TempDir,
    port: TcpListener,
    udp: UdpSocket,
    name: String,
    holder: std::process::Child,
    _sockets: [UnixListener; 2],
}

impl Outside {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["tree", "home", "outside"] {
            process::private::create_folder(&folder.path().join(name)).expect("a folder");
        }
        let outside = folder.path().join("outside");
        for (file, content) in [("secret", "canary"), ("file", "x"), ("other", "x")] {
            process::private::write(&outside.join(file), content).expect("written");
        }
        let name = format!("ralph-{}", folder.path().display());
        let by_name = SocketAddr::from_abstract_name(&name).and_then(|at| UnixListener::bind_addr(&at));
        let by_path = UnixListener::bind(outside.join("socket")).expect("a socket");
        #[expect(clippy::disallowed_methods, reason = "a process outside of every sandbox")]
        let mut holder = std::process::Command::new("/bin/sh");
        holder.args(["-c", "trap '' USR2; exec sleep 300"]).env("CANARY", "environment of another");
        holder.stdout(Stdio::null()).stderr(Stdio::null());
        Self {
            port: TcpListener::bind("127.0.0.1:0").await.expect("a port"),
            udp: UdpSocket::bind("127.0.0.1:0").await.expect("a port"),
            name,
            holder: holder.spawn().expect("it runs"),
            _sockets: [by_path, by_name.expect("a socket")],
            folder,
        }
    }

    /// Returns how a bash script is started in a sandbox without these defences.
    fn spec(&self, script: &str, without: &[Defence], network: Network) -> ProcessSpec {
        let at = |name: &str| self.folder.path().join(name);
        let mut spec = ProcessSpec::new("/bin/bash", at("tree")).args(["-c", script]).env("PATH", "/usr/bin:/bin");
        let (port, udp) = (self.port.local_addr().expect("a port"), self.udp.local_addr().expect("a port"));
        for (name, value) in [
            ("OUTSIDE", at("outside").display().to_string()),
            ("PORT", port.port().to_string()),
            ("UDP_PORT", udp.port().to_string()),
            ("NAME", self.name.clone()),
            ("HOLDER", self.holder.id().to_string()),
            ("PROGRAM", PROGRAM.to_owned()),
        ] {
            spec = spec.env(name, value);
        }
        spec.sandbox = Sandbox::of(SandboxView {
            writable: vec![at("tree")],
            read_only: vec![PROGRAM.into()],
            home: ScratchHome::Folder(at("home")),
            network,
            settings: SandboxSettings {
                mechanism: SandboxMechanism::Landlock(PROGRAM.into()),
                without: without.to_vec(),
                ..SandboxSettings::default()
            },
        });
        spec.limits.wall = Duration::from_secs(60);
        spec
    }

    async fn run(&self, script: &str, without: &[Defence]) -> Finished {
        run(self.spec(script, without, Network::None)).await
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

async fn run(spec: ProcessSpec) -> Finished {
    process::run(spec, &CancellationToken::new(), None).await.unwrap_or_else(|error| panic!("{error}"))
}

/// See docs/research/threats.md#s1, docs/research/threats.md#s5 and docs/research/threats.md#s16.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_attack_fails_only_because_of_its_defence() {
    if !goes_on_confined("landlock::each_attack_fails_only_because_of_its_defence") {
        return;
    }
    for (part, defences, script) in ATTACKS {
        for without in [&[][..], defences] {
            let outside = Outside::new().await;
            let finished = outside.run(&format!("{{ {script}; }} 2>&1\necho; echo done"), without).await;
            let output = finished.stdout.text();
            assert!(output.ends_with("done\n"), "{part}: {:?} {output}{}", finished.ended, finished.stderr.text());
            assert_eq!(output.contains("BROKEN"), !without.is_empty(), "{part} without {without:?}: {output}");
        }
    }
    for (part, script) in FURTHER {
        let outside = Outside::new().await;
        let output = outside.run(&format!("{{ {script}; }} 2>&1\necho done"), &[]).await.stdout.text();
        assert!(!output.contains("BROKEN") && output.ends_with("done\n"), "{part}: {output}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn confined_programs_find_their_files() {
    if !goes_on_confined("landlock::confined_programs_find_their_files") {
        return;
    }
    for (part, script) in WORKS {
        let outside = Outside::new().await;
        let finished = outside.run(script, &[]).await;
        assert_eq!(finished.stdout.text(), "fine\n", "{part}: {:?} {}", finished.ended, finished.stderr.text());
        assert_eq!(finished.ended, ProcessEnd::Exited(0), "{part}");
    }
}

/// A planner reads the tree, and writes to the folder of its report and to its home only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tree_of_a_planner_is_read_only() {
    if !goes_on_confined("landlock::tree_of_a_planner_is_read_only") {
        return;
    }
    let outside = Outside::new().await;
    let at = |name: &str| outside.folder.path().join(name);
    process::private::create_folder(&at("report")).expect("a folder");
    process::private::write(&at("tree/file"), "41").expect("written");
    let script =
        "(echo x >new) && echo BROKEN; (: >file) && echo BROKEN; rm file && echo BROKEN; mv file moved && echo BROKEN
cat file; echo x >../report/report.json && echo x >\"$HOME/note\" && echo done";
    for plans in [true, false] {
        let mut spec = outside.spec(script, &[], Network::None);
        let Sandbox::View(view) = &mut spec.sandbox else { panic!("a sandbox") };
        view.writable.push(at("report"));
        if plans {
            let tree = view.writable.remove(0);
            view.read_only.push(tree);
        }
        let output = run(spec).await.stdout.text();
        match plans {
            true => assert_eq!(output, "41done\n"),
            false => assert!(output.contains("BROKEN") && output.ends_with("done\n"), "{output}"),
        }
    }
}

/// Ends of programs are reported as without a supervisor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exit_codes_and_limits_pass_the_supervisor() {
    if !goes_on_confined("landlock::exit_codes_and_limits_pass_the_supervisor") {
        return;
    }
    let outside = Outside::new().await;
    assert_eq!(outside.run("exit 7", &[]).await.ended, ProcessEnd::Exited(7));
    assert_eq!(outside.run("kill -9 $$", &[]).await.ended, ProcessEnd::Exited(137));
    let mut slow = outside.spec("trap 'echo asked' TERM; while :; do sleep 0.1; done", &[], Network::None);
    slow.limits.wall = Duration::from_secs(1);
    slow.limits.grace = Duration::from_secs(1);
    let finished = run(slow).await;
    assert_eq!((finished.ended, finished.stdout.text().as_str()), (ProcessEnd::WallLimit, "asked\n"));
    let mut missing = outside.spec("true", &[], Network::None);
    missing.program = outside.folder.path().join("tree/odd");
    std::fs::write(&missing.program, "#!/nowhere\n").expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&missing.program, mode).expect("executable");
    let error = process::run(missing, &CancellationToken::new(), None).await.expect_err("no interpreter");
    assert!(error.to_string().contains("could not be started: No such file"), "{error}");
}

/// See docs/research/threats.md#s8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_process_outlives_its_run() {
    if !goes_on_confined("landlock::no_process_outlives_its_run") {
        return;
    }
    let running_sleeps = |seconds: &str| {
        let all = std::fs::read_dir("/proc").expect("a list").flatten();
        all.filter(|one| {
            let words = std::fs::read(one.path().join("cmdline")).unwrap_or_default();
            words == format!("sleep\0{seconds}\0").into_bytes()
        })
        .count()
    };
    let outside = Outside::new().await;
    // In separate sessions, without the environment that identifies them.
    let daemons = |seconds: &str| {
        format!(
            "for i in 1 2 3; do env -i setsid sh -c '(sleep {seconds} &) ; sleep {seconds}' & done; sleep 0.3; echo up"
        )
    };
    let seconds = format!("{}", 100_000 + std::process::id());
    assert_eq!(run(outside.spec(&daemons(&seconds), &[], Network::None)).await.ended, ProcessEnd::Exited(0));
    assert_eq!(running_sleeps(&seconds), 0, "after its end");
    let mut stopped = outside.spec(&format!("{}; sleep 60", daemons(&seconds)), &[], Network::None);
    stopped.limits.wall = Duration::from_secs(1);
    stopped.limits.grace = Duration::ZERO;
    assert_eq!(run(stopped).await.ended, ProcessEnd::WallLimit);
    assert_eq!(running_sleeps(&seconds), 0, "after its limit");
    // Dropped while it runs, as when the service stops waiting.
    let running = run(outside.spec(&format!("{}; sleep 60", daemons(&seconds)), &[], Network::None));
    assert!(tokio::time::timeout(Duration::from_secs(1), running).await.is_err());
    for _ in 0..100 {
        if running_sleeps(&seconds) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{} processes are left", running_sleeps(&seconds));
}

/// See docs/research/threats.md#s5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_proxy_and_listed_servers_are_reached() {
    if !goes_on_confined("landlock::only_the_proxy_and_listed_servers_are_reached") {
        return;
    }
    let outside = Outside::new().await;
    let broker = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = broker.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut client, _)) = broker.accept().await {
            let _ = client.read(&mut [0; 100]).await;
            let _ = client.write_all(b"answer of the broker\n").await;
        }
    });
    let refused = RefusedHosts::default();
    let network = Network::Only(EgressSettings {
        hosts: Hosts::parse(&[address.to_string()]).expect("hosts"),
        helper: PROGRAM.into(),
        refused: refused.clone(),
    });
    let script = format!(
        r#"ask() {{ exec 9<>/dev/tcp/127.0.0.1/$1 && printf "$2" >&9 && timeout 20 head -n 1 <&9; exec 9<&-; }}
        proxy=${{HTTPS_PROXY##*:}}
        ask {port} 'x'
        ask $proxy "CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nx"
        ask $proxy "CONNECT example.org:443 HTTP/1.1\r\n\r\n"
        (: >/dev/tcp/127.0.0.1/$PORT) 2>/dev/null && echo BROKEN
        echo x >/dev/udp/127.0.0.1/$UDP_PORT && echo BROKEN; exit 0"#,
        port = address.port()
    );
    let finished = run(outside.spec(&script, &[], network)).await;
    let output = finished.stdout.text();
    let lines: Vec<&str> = output.lines().map(str::trim_end).collect();
    assert_eq!(lines[0], "answer of the broker", "{output}{}", finished.stderr.text());
    assert!(lines[1].contains(" 200 ") && lines[2].contains(" 403 "), "{output}");
    assert!(!output.contains("BROKEN"), "{output}");
    assert_eq!(refused.names(), ["example.org:443"]);
}

/// Paths that the service hides are hidden inside of a folder that is shown, and so are files with logins of tools.
///
/// See docs/research/threats.md#s1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hidden_paths_in_shown_folders_are_not_read() {
    if !goes_on_confined("landlock::hidden_paths_in_shown_folders_are_not_read") {
        return;
    }
    use ralph_bot::domain::trust::visible::{HiddenKind, HiddenPath};
    let outside = Outside::new().await;
    let tool = outside.folder.path().canonicalize().expect("a path").join("outside");
    process::private::create_folder(&tool.join("bin")).expect("a folder");
    process::private::create_folder(&tool.join("data")).expect("a folder");
    for file in ["bin/shown", "data/hidden", "credentials.toml"] {
        process::private::write(&tool.join(file), format!("content of {file}\n")).expect("written");
    }
    let script =
        r#"cd "$OUTSIDE"; for f in bin/shown data/hidden credentials.toml; do cat $f; done; ls data && echo BROKEN"#;
    let mut spec = outside.spec(script, &[], Network::None);
    if let Sandbox::View(view) = &mut spec.sandbox {
        view.read_only.push(tool.clone());
        let path = tool.join("data");
        view.settings.hidden = [HiddenPath { path, kind: HiddenKind::Folder, name: "`data_dir`".into() }].into();
    }
    let finished = run(spec).await;
    assert_eq!(finished.stdout.text(), "content of bin/shown\n", "{}", finished.stderr.text());
}

/// The probe reports which defences work without namespaces.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probe_reports_missing_defences() {
    if !goes_on_confined("landlock::probe_reports_missing_defences") {
        return;
    }
    let probe = async |without: &[Defence]| {
        let settings = SandboxSettings { without: without.to_vec(), ..SandboxSettings::default() };
        let found = ProbeSettings {
            settings,
            folder: std::env::temp_dir(),
            program: Some(PROGRAM.into()),
            ..ProbeSettings::default()
        };
        let found = probe_landlock(&found).await.unwrap_or_else(|why| panic!("{why}"));
        let failed: Vec<&str> = found.iter().filter(|e| !e.held).map(|e| e.name).collect();
        assert_eq!(found.len(), 14);
        failed
    };
    let open = probe(&[]).await;
    assert_eq!(
        open[..2],
        ["change permissions of files outside the tree", "see processes and network interfaces of the machine"]
    );
    assert!(open.len() == 2 || open[2..] == ["read data of the kernel"], "{open:?}");
    for (defence, row) in [
        (Defence::Reads, "read files outside the view"),
        (Defence::Writes, "write outside the tree"),
        (Defence::Network, "reach the network"),
        (Defence::Processes, "signal processes outside"),
        (Defence::Sockets, "connect to sockets of the host"),
        (Defence::Filter, "make system calls that are refused"),
    ] {
        let failed = probe(&[defence]).await;
        assert!(failed.contains(&row), "{defence:?}: {failed:?}");
    }
}

/// A root service reports that it cannot confine programs without namespaces.
#[tokio::test]
async fn landlock_sandbox_is_unavailable_to_root() {
    if !rustix::process::geteuid().is_root() {
        return skipped_tests::skip_in_ci_as_well("a service that is root");
    }
    let settings =
        ProbeSettings { folder: std::env::temp_dir(), program: Some(PROGRAM.into()), ..ProbeSettings::default() };
    let why = probe_landlock(&settings).await.expect_err("no sandbox").to_string();
    assert!(why.contains("run the service as a user other than root"), "{why}");
}
