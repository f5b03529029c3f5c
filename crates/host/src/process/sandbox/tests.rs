//! The sandbox with real bubblewrap, and its argument list without.

use crate::domain::trust::limits::SandboxLimits;
use crate::domain::trust::visible::HiddenKind;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::process::running::installed_bubblewrap;
use crate::process::{
    Cookie, Finished, LineDecision, ProbeSettings, ProcessEnd, ProcessError, ProcessLimits, ProcessSpec, SandboxTier,
    probe_sandbox, survivors,
};

/// Whether sandbox tests can run; if not, the calling test is recorded as skipped.
async fn usable() -> bool {
    let Err(reason) = installed_bubblewrap().await else { return true };
    skipped_tests::skip(&format!("bubblewrap does not work here: {reason}"));
    false
}

/// Folders of a machine: a tree, a tool folder with credentials, a home, and a private folder.
struct ViewFolders {
    root: tempfile::TempDir,
}

impl ViewFolders {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for folder in ["tree/src", "tree/fixed", "tools/bin", "home", "private"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        fs::write(root.path().join("tools/credentials.toml"), "token").unwrap();
        fs::write(root.path().join("tools/bin/tool"), "#!/bin/sh\necho tool ran\n").unwrap();
        fs::set_permissions(root.path().join("tools/bin/tool"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(root.path().join("private/key"), "private key").unwrap();
        Self { root }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.path().canonicalize().unwrap().join(name)
    }

    fn view(&self) -> SandboxView {
        SandboxView {
            writable: vec![self.at("tree")],
            read_only: vec![self.at("tools"), self.at("tree/fixed")],
            home: ScratchHome::Folder(self.at("home")),
            network: Network::None,
            settings: SandboxSettings::default(),
        }
    }

    fn shell(&self, script: &str) -> ProcessSpec {
        let mut spec = ProcessSpec::new("/bin/sh", self.at("tree")).args(["-c", script]).env("PATH", "/usr/bin:/bin");
        spec.sandbox = Sandbox::of(self.view());
        spec.limits = ProcessLimits { wall: Duration::from_secs(30), ..ProcessLimits::default() };
        spec
    }
}

async fn finished(spec: ProcessSpec) -> Finished {
    crate::process::run(spec, &CancellationToken::new(), None).await.expect("it runs")
}

/// See docs/research/threats.md#s1, docs/research/threats.md#s11, docs/research/threats.md#s12.
#[tokio::test]
async fn probe_finds_no_escape() {
    if !usable().await {
        return;
    }
    let found = probe_sandbox(&ProbeSettings { folder: std::env::temp_dir(), ..ProbeSettings::default() }).await;
    assert_eq!(found.escapes.len(), 14, "{found:?}");
    assert_eq!(found.tier, SandboxTier::A, "{found:?}");
    assert!(found.bubblewrap.is_ok());
}

/// The devices of the sandbox are single files below /dev. See docs/research/threats.md#s13.
#[tokio::test]
async fn set_user_id_and_devices_have_no_effect_on_any_mount() {
    if !usable().await {
        return;
    }
    let folders = ViewFolders::new();
    let finished = finished(folders.shell("cat /proc/self/mountinfo")).await;
    let mounts: Vec<String> = finished.stdout.text().lines().map(str::to_owned).collect();
    assert!(mounts.iter().any(|mount| mount.contains(" /usr ")) && mounts.len() > 10, "{mounts:#?}");
    assert!(mounts.iter().any(|mount| mount.contains(&format!(" {} ", folders.at("tree").display()))), "{mounts:#?}");
    let open = |option: &str| -> Vec<&String> {
        let has = |mount: &&String| {
            mount.split(' ').nth(5).is_some_and(|options| options.split(',').any(|one| one == option))
        };
        mounts.iter().filter(|mount| !has(mount)).collect()
    };
    assert!(open("nosuid").is_empty(), "{:#?}", open("nosuid"));
    let devices: Vec<_> = open("nodev").into_iter().filter(|mount| !mount.contains(" /dev/")).collect();
    assert!(devices.is_empty(), "{devices:#?}");
}

/// See docs/research/threats.md#s10.
#[tokio::test]
async fn large_segments_are_refused_where_memory_is_only_measured() {
    if !usable().await {
        return;
    }
    let script = |size: u64| format!("perl -e 'print defined shmget(0, {size}, 0600) ? \"made\" : \"refused\"'");
    let folders = ViewFolders::new();
    let made = async |size: u64| finished(folders.shell(&script(size))).await.stdout.text();
    let is_measured = crate::process::cgroup::parent().is_err();
    assert_eq!(made(60 << 10).await, "made");
    assert_eq!(made(1 << 20).await, if is_measured { "refused" } else { "made" });
}

/// See docs/research/threats.md#s10.
#[tokio::test]
async fn buffers_of_sockets_stay_small_where_memory_is_only_measured() {
    if !usable().await {
        return;
    }
    let script = r#"perl -MSocket -e '
        socketpair(my $one, my $other, AF_UNIX, SOCK_STREAM, 0) or die;
        for my $option (SO_SNDBUF, SO_RCVBUF) {
            my $before = unpack("i", getsockopt($one, SOL_SOCKET, $option));
            setsockopt($one, SOL_SOCKET, $option, $before / 4) or die "refused";
            print $before == unpack("i", getsockopt($one, SOL_SOCKET, $option)) ? "kept " : "changed ";
        }
        setsockopt($one, SOL_SOCKET, SO_PASSCRED, 1) or die;
        print unpack("i", getsockopt($one, SOL_SOCKET, SO_PASSCRED))'"#;
    let said = finished(ViewFolders::new().shell(script)).await.stdout.text();
    let is_measured = crate::process::cgroup::parent().is_err();
    assert_eq!(said, if is_measured { "kept kept 1" } else { "changed changed 1" });
}

/// The advice for such a message would weaken the unit or the container.
#[tokio::test]
async fn messages_of_bubblewrap_from_a_program_are_output() {
    if !usable().await {
        return;
    }
    let folders = ViewFolders::new();
    for (message, code) in [
        ("bwrap: Creating new namespace failed: Operation not permitted", 1),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", 1),
    ] {
        let finished = finished(folders.shell(&format!("echo \"{message}\" >&2; exit {code}"))).await;
        assert_eq!((finished.ended, finished.stderr.head.trim()), (ProcessEnd::Exited(code), message));
    }
    // Output of the initial shell and of setpriv concerns only the program.
    let spec = folders.shell("echo 'setpriv: mount proc: Operation not permitted' >&2; exit 127");
    let error = crate::process::run(spec, &CancellationToken::new(), None).await.expect_err("a message of setpriv");
    assert!(error.to_string().ends_with("run `ralph-bot check` for a full test of the sandbox"), "{error}");
}

/// See docs/research/threats.md#s1, docs/research/threats.md#s3, docs/research/threats.md#g19.
#[tokio::test]
async fn view_contains_named_paths_only() {
    if !usable().await {
        return;
    }
    let folders = ViewFolders::new();
    let script = format!(
        "pwd; echo $HOME $TMPDIR $SET; echo a >made && echo wrote tree\n\
         echo a >$HOME/made && echo wrote home\n\
         (echo a >fixed/made) 2>/dev/null || echo fixed is read-only\n\
         {tools}/bin/tool; cat {tools}/credentials.toml\n\
         (echo a >{tools}/made) 2>/dev/null || echo tools are read-only\n\
         ls {root} | tr '\\n' ' '; ls -A /tmp | wc -l; ls -A /root /home 2>/dev/null | grep -v : \n\
         ls /proc | grep -c '^[0-9]'; cat {root}/private/key 2>&1 | grep -c 'No such'; hostname",
        tools = folders.at("tools").display(),
        root = folders.root.path().display(),
    );
    let mut spec = folders.shell(&script).env("SET", "by us").env("HOME", "/root");
    spec.stdin = crate::process::Stdin::Bytes(b"x".to_vec());
    let finished = finished(spec).await;
    let text = finished.stdout.text();
    let lines: Vec<&str> = text.lines().collect();
    let (tree, home) = (folders.at("tree"), folders.at("home"));
    assert_eq!(lines[0], tree.to_str().unwrap());
    assert_eq!(lines[1], format!("{} /tmp by us", home.display()));
    assert_eq!(lines[2..7], ["wrote tree", "wrote home", "fixed is read-only", "tool ran", "tools are read-only"]);
    assert!(lines[7].starts_with("home tools tree "), "{text}\n{}", finished.stderr.text());
    assert!(lines.contains(&"sandbox") && !text.contains("token"), "{text}");
    assert!(tree.join("made").is_file() && home.join("made").is_file());
}

/// See docs/research/threats.md#s2.
#[tokio::test]
async fn exit_codes_and_input_are_passed_without_other_descriptors() {
    if !usable().await {
        return;
    }
    let folders = ViewFolders::new();
    let mut spec = folders.shell("cat; ls /proc/self/fd | tr '\\n' ,; exit 9");
    spec.stdin = crate::process::Stdin::Bytes(b"in,".to_vec());
    let done = finished(spec).await;
    assert_eq!(done.ended, ProcessEnd::Exited(9));
    assert_eq!(done.stdout.text(), "in,0,1,2,3,");
    assert_eq!(finished(folders.shell("kill -SEGV $$")).await.ended, ProcessEnd::Exited(139));
}

/// See docs/research/threats.md#s11.
#[tokio::test]
async fn stop_ends_all_processes_in_the_sandbox() {
    if !usable().await {
        return;
    }
    let folders = ViewFolders::new();
    let cookie = Cookie::new("sandbox-test", &uuid::Uuid::now_v7().simple().to_string(), 1);
    let mut spec = folders.shell(
        "env -i setsid sleep 300 & setsid sleep 300 & trap 'echo bye; exit 4' TERM; echo up; while :; do sleep 0.02; done",
    );
    spec.cookie = Some(cookie.clone());
    let mut lines = |_, _: &str| LineDecision::Stop("seen".to_owned());
    let finished = crate::process::run(spec, &CancellationToken::new(), Some(&mut lines)).await.unwrap();
    assert_eq!(finished.ended, ProcessEnd::Stopped("seen".to_owned()));
    assert_eq!(finished.stdout.text(), "up\nbye\n");
    assert_eq!(finished.exit_code, Some(4));
    assert_eq!(survivors(cookie.as_str()), vec![]);
}

/// See docs/research/threats.md#s10.
#[tokio::test]
async fn run_is_stopped_at_limits_of_memory_processes_and_disk() {
    if !usable().await {
        return;
    }
    let folders = ViewFolders::new();
    let limits = SandboxLimits { memory_mib: 64, processes: 20, disk_mib: 64 };
    for (script, words) in [
        ("head -c 300M /dev/zero | tail -c 200M | sleep 20", "MiB of memory; the limit is 64 MiB"),
        ("for n in 1 2 3 4 5 6 7 8 9 10; do sleep 20 & sleep 20 & done; wait", "processes and threads"),
        ("head -c 40M /dev/zero >a; head -c 40M /dev/zero >b; sleep 20", "disk space; the limit is 64 MiB"),
        ("head -c 40M /dev/zero >$HOME/a; head -c 40M /dev/zero >b; sleep 20", "disk space; the limit is 64 MiB"),
        (
            "exec 5>a 6>b; head -c 40M /dev/zero >&5; head -c 40M /dev/zero >&6; rm a b; sleep 20",
            "disk space; the limit is 64 MiB",
        ),
    ] {
        let mut spec = folders.shell(script);
        spec.sandbox = Sandbox::of(SandboxView {
            settings: SandboxSettings { limits, ..SandboxSettings::default() },
            ..folders.view()
        });
        spec.limits.grace = Duration::ZERO;
        let ended = finished(spec).await.ended;
        let reason = if let ProcessEnd::ResourceLimit(reason) = &ended { reason.as_str() } else { "" };
        assert!(reason.contains(words), "{script}: {ended:?}");
    }
    // The files of the others may be left.
    let folders = ViewFolders::new();
    let mut small = folders.shell("sleep 1.5; echo done");
    small.sandbox = Sandbox::of(SandboxView {
        settings: SandboxSettings { limits, ..SandboxSettings::default() },
        ..folders.view()
    });
    assert_eq!(finished(small).await.ended, ProcessEnd::Exited(0));
}

#[tokio::test]
async fn bubblewrap_failures_are_reported_with_reason() {
    if !usable().await {
        return;
    }
    let folders = ViewFolders::new();
    fs::write(folders.at("tools/bin/odd"), format!("#!{}\n", folders.at("private/key").display())).unwrap();
    fs::set_permissions(folders.at("tools/bin/odd"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut hidden = folders.shell("");
    hidden.program = folders.at("tools/bin/odd");
    let mut missing = folders.shell("true");
    missing.sandbox = Sandbox::of(SandboxView { writable: vec![folders.at("nowhere")], ..folders.view() });
    let mut relative = folders.shell("true");
    relative.sandbox = Sandbox::of(SandboxView { read_only: vec!["../x".into()], ..folders.view() });
    let mut all = folders.shell("true");
    all.sandbox = Sandbox::of(SandboxView { writable: vec!["/".into()], ..folders.view() });
    for (spec, words) in [
        (hidden, "add its folder to the tools"),
        (missing, "does not exist"),
        (relative, "absolute path"),
        (all, "absolute path below /"),
    ] {
        let error = crate::process::run(spec, &CancellationToken::new(), None).await.unwrap_err();
        assert!(matches!(error, ProcessError::Sandbox { .. }), "{error:?}");
        assert!(error.to_string().contains(words), "{error}");
    }
    // A program that prints the same message is not treated as bubblewrap unless it exits like it too.
    let talk = finished(folders.shell("echo 'bwrap: x' >&2; echo out; exit 1")).await;
    assert_eq!(talk.ended, ProcessEnd::Exited(1));
}

/// See docs/research/threats.md#s5, docs/research/threats.md#s12.
#[test]
fn arguments_follow_from_the_view() {
    let bubblewrap = |version: &str| Bubblewrap { program: "/usr/bin/bwrap".into(), version: version.into() };
    let folders = ViewFolders::new();
    let of_user = |view: &SandboxView, user: Option<SandboxUser>, version: &str| -> Vec<String> {
        let program = folders.at("tools/bin/tool");
        let arguments = view.arguments(&bubblewrap(version), user, &program, &folders.at("tree")).unwrap();
        arguments.list.into_iter().map(|a| a.into_string().unwrap()).collect()
    };
    let list = |view: &SandboxView, version: &str| of_user(view, None, version);
    let closed = list(&folders.view(), "0.8.0");
    let has = |list: &[String], flag: &str| list.iter().any(|a| a == flag);
    for flag in ["--unshare-user", "--unshare-pid", "--unshare-net", "--die-with-parent", "--new-session"] {
        assert!(has(&closed, flag), "{flag}");
    }
    assert!(has(&closed, "--disable-userns") && has(&list(&folders.view(), "0.11.0"), "--disable-userns"));
    assert!(!has(&list(&folders.view(), "0.6.3"), "--disable-userns"));
    let open = list(&SandboxView { network: Network::Host, ..folders.view() }, "0.8.0");
    assert!(!has(&open, "--unshare-net"));
    assert!(!has(&closed, "--setenv") && !has(&closed, "/etc") && !has(&closed, "/etc/shadow"));
    let of_root = of_user(&folders.view(), Some(SandboxUser::default()), "0.8.0");
    assert!(!has(&of_root, "--unshare-user") && !has(&of_root, "--disable-userns"), "root needs no user namespace");
    let added = of_root.iter().filter(|a| *a == "--cap-add").count();
    assert!(
        has(&of_root, "--cap-drop") && added == USER_CAPABILITIES.len() && !has(&closed, "--cap-add"),
        "{of_root:?}"
    );
    let place = |path: PathBuf| closed.iter().position(|a| *a == path.to_str().unwrap()).unwrap();
    assert!(place(folders.at("tree")) < place(folders.at("tree/fixed")), "the deeper one comes on top");
}

/// See docs/research/threats.md#s12.
#[test]
fn folders_in_read_only_folders_are_not_mounted_again() {
    let folders = ViewFolders::new();
    fs::create_dir_all(folders.at("tools/data/bin")).unwrap();
    fs::write(folders.at("tools/bin/credentials.toml"), "token").unwrap();
    std::os::unix::fs::symlink(folders.at("private"), folders.at("tools/link")).unwrap();
    let arguments = |read_only: &[&str], writable: &[&str], hidden_names: &[&str]| {
        let paths = |names: &[&str]| names.iter().map(|name| folders.at(name)).collect();
        let hidden =
            |name: &&str| HiddenPath { path: folders.at(name), kind: HiddenKind::Folder, name: "a path".into() };
        let settings =
            SandboxSettings { hidden: hidden_names.iter().map(hidden).collect(), ..SandboxSettings::default() };
        let view = SandboxView { read_only: paths(read_only), writable: paths(writable), settings, ..folders.view() };
        let bubblewrap = Bubblewrap { program: "/usr/bin/bwrap".into(), version: "0.8.0".into() };
        view.arguments(&bubblewrap, None, Path::new("/bin/sh"), &folders.at("tree")).unwrap()
    };
    let mounted = |arguments: &Arguments| -> Vec<PathBuf> {
        arguments.binds.iter().filter(|(_, writable)| !writable).map(|(path, _)| path.clone()).collect()
    };
    let nested = arguments(&["tools", "tools/bin"], &["tree"], &[]);
    assert_eq!(mounted(&nested), [folders.at("tools")]);
    assert!(nested.list.contains(&folders.at("tools/bin/credentials.toml").into()), "{:?}", nested.list);
    // A hidden or writable folder in between, and the target of a link, need a mount.
    let both = [folders.at("tools"), folders.at("tools/data/bin")];
    assert_eq!(mounted(&arguments(&["tools", "tools/data/bin"], &["tree", "tools/data"], &[])), both);
    assert_eq!(mounted(&arguments(&["tools", "tools/data/bin"], &["tree"], &["tools/data"])), both);
    let linked = arguments(&["tools", "tools/link"], &["tree"], &[]);
    assert!(linked.list.contains(&folders.at("tools/link").into()), "{:?}", linked.list);
}
