//! A machine with canaries around a sandbox.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ralph_bot::domain::trust::visible::{HiddenKind, HiddenPath};
use ralph_bot::process::sandbox::{
    Defence, Network, SandboxMechanism, SandboxSettings, SandboxView, ScratchHome, tools,
};
use ralph_bot::process::{self, ProcessLimits, ProcessSpec, Sandbox};
use tokio_util::sync::CancellationToken;

/// Row of docs/research/threats.md, name, and commands of a script.
#[derive(Debug, Clone, Copy)]
pub struct Script(pub &'static str, pub &'static str, pub &'static str);

/// Time limit of one script.
const SCRIPT_SECONDS: u32 = 5;
const PROGRAM: &str = env!("CARGO_BIN_EXE_ralph-bot");
/// Functions that scripts call.
const FUNCTIONS: &str = r#"
call() {
    perl -e '$n = shift; $r = syscall(0 + $ENV{"SYS_$n"}, map { 0 + $_ } @ARGV);
             print "BROKEN $n: $r $!\n" unless $r == -1 && ($!{EPERM} || $!{ENOSYS})' -- "$@"
}
holder() { tr '\0' '\n' </proc/$HOLDER/cmdline | grep -qx 600; }
"#;
/// Runs each script. Processes that a script leaves behind do not delay the next one.
const ALL: &str = "for s in scripts/*; do NAME=$(basename $s); export NAME; mkdir -p out work/$NAME; \
                   (cd work/$NAME && timeout -k 1 $SECONDS_EACH bash -u ../../$s >../../out/$NAME 2>/dev/null </dev/null); done";
/// System calls that scripts make, with their numbers.
const CALLS: &[(&str, libc::c_long)] = &[
    ("acct", libc::SYS_acct),
    ("add_key", libc::SYS_add_key),
    ("bpf", libc::SYS_bpf),
    ("clock_settime", libc::SYS_clock_settime),
    ("clone", libc::SYS_clone),
    ("clone3", libc::SYS_clone3),
    ("delete_module", libc::SYS_delete_module),
    ("fanotify_init", libc::SYS_fanotify_init),
    ("finit_module", libc::SYS_finit_module),
    ("fsmount", libc::SYS_fsmount),
    ("fsopen", libc::SYS_fsopen),
    ("init_module", libc::SYS_init_module),
    ("inotify_add_watch", libc::SYS_inotify_add_watch),
    ("inotify_init1", libc::SYS_inotify_init1),
    ("io_uring_register", libc::SYS_io_uring_register),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("kcmp", libc::SYS_kcmp),
    ("kexec_load", libc::SYS_kexec_load),
    ("keyctl", libc::SYS_keyctl),
    ("linkat", libc::SYS_linkat),
    ("mbind", libc::SYS_mbind),
    ("memfd_create", libc::SYS_memfd_create),
    ("migrate_pages", libc::SYS_migrate_pages),
    ("mount_setattr", libc::SYS_mount_setattr),
    ("move_mount", libc::SYS_move_mount),
    ("move_pages", libc::SYS_move_pages),
    ("open_by_handle_at", libc::SYS_open_by_handle_at),
    ("open_tree", libc::SYS_open_tree),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("personality", libc::SYS_personality),
    ("pidfd_getfd", libc::SYS_pidfd_getfd),
    ("pidfd_open", libc::SYS_pidfd_open),
    ("pidfd_send_signal", libc::SYS_pidfd_send_signal),
    ("pivot_root", libc::SYS_pivot_root),
    ("prctl", libc::SYS_prctl),
    ("process_madvise", libc::SYS_process_madvise),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("process_vm_writev", libc::SYS_process_vm_writev),
    ("ptrace", libc::SYS_ptrace),
    ("quotactl", libc::SYS_quotactl),
    ("reboot", libc::SYS_reboot),
    ("renameat2", libc::SYS_renameat2),
    ("request_key", libc::SYS_request_key),
    ("setdomainname", libc::SYS_setdomainname),
    ("setgroups", libc::SYS_setgroups),
    ("sethostname", libc::SYS_sethostname),
    ("setns", libc::SYS_setns),
    ("settimeofday", libc::SYS_settimeofday),
    ("setxattr", libc::SYS_setxattr),
    ("swapoff", libc::SYS_swapoff),
    ("swapon", libc::SYS_swapon),
    ("umount2", libc::SYS_umount2),
    ("unshare", libc::SYS_unshare),
    ("userfaultfd", libc::SYS_userfaultfd),
];

/// Folders of a service, with canaries, and servers that must not be reached.
pub struct AttackedMachine {
    folder: tempfile::TempDir,
    /// Text that no script may print.
    canary: String,
    /// Argument of `sleep` in processes that must not live on.
    mark: String,
    tcp: [std::net::TcpListener; 2],
    udp: std::net::UdpSocket,
    unix: Vec<UnixListener>,
    datagrams: UnixDatagram,
    holder: tokio::process::Child,
    mechanism: SandboxMechanism,
    /// Canary in the object store that loops share.
    blob: String,
    /// Canary in memory that processes share.
    memory: String,
    /// Files with canaries in folders of all users.
    shared: Vec<PathBuf>,
}

fn listening(address: &str) -> std::net::TcpListener {
    let listener = std::net::TcpListener::bind(address).or_else(|_| std::net::TcpListener::bind("127.0.0.1:0"));
    let listener = listener.expect("a port");
    listener.set_nonblocking(true).expect("not blocking");
    listener
}

fn file(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, text).expect("written");
}

/// Memory that processes share is created and removed, with a canary, by its number.
const CREATE_MEMORY: &str = "my $id = shmget(0, 100, 0666 | 01000); shmwrite($id, $ARGV[0], 0, 64); print $id";
const REMOVE_MEMORY: &str = "shmctl($ARGV[0], 0, 0)";

impl Drop for AttackedMachine {
    fn drop(&mut self) {
        for path in &self.shared {
            let _ = fs::remove_file(path);
        }
        let mut remove = crate::harness::parts::command("/usr/bin/perl");
        let _ = remove.args(["-e", REMOVE_MEMORY, &self.memory]).as_std_mut().status();
    }
}

impl AttackedMachine {
    /// Sets the machine up around sandboxes of this mechanism.
    pub async fn new(mechanism: SandboxMechanism) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("a path");
        let canary = format!("canary-{}", uuid::Uuid::now_v7().simple());
        for path in [
            "data/ralph.db",
            "data/logs/log",
            "data/scratch/other",
            "data/trees/other/file",
            "data/mirrors/objects/pack/x.pack",
            "etc/ralph-control.yaml",
            "secrets/token",
            "home/.git-credentials",
            "home/.netrc",
            "home/.ssh/id_ed25519",
            "home/.config/gh/hosts.yml",
            "home/.gnupg/private-keys-v1.d/key",
            "home/.local/share/keyrings/login.keyring",
            "home/.aws/credentials",
            "home/.kube/config",
            "home/.docker/config.json",
            "opt/tool/etc/token",
            "opt/tool/data/ralph.db",
            "opt/tool/credentials.toml",
            "opt/tool/auth.json",
            "opt/tool/.npmrc",
            "opt/tool/.netrc",
        ] {
            file(&root.join(path), &format!("{canary} {path}\n"));
        }
        file(&root.join("opt/tool/.cargo/config.toml"), &format!("[registry]\ntoken = \"{canary}\"\n"));
        file(&root.join("opt/tool/conf/settings.xml"), &format!("<server><password>{canary}</password></server>\n"));
        // An installation, which is shown as a whole.
        file(&root.join("opt/tool/lib/tool.txt"), "a library\n");
        file(&root.join("opt/tool/lib/.env"), &format!("KEY={canary}\n"));
        fs::set_permissions(root.join("opt/tool/lib/.env"), fs::Permissions::from_mode(0o600)).expect("private");
        file(&root.join("opt/tool/bin/tool"), "#!/bin/sh\necho tool\n");
        fs::set_permissions(root.join("opt/tool/bin/tool"), fs::Permissions::from_mode(0o755)).expect("executable");
        let shared = ["/tmp", "/dev/shm"].map(|folder| Path::new(folder).join(format!("ralph-attack-{canary}")));
        for path in &shared {
            file(path, &canary);
        }
        for folder in ["tree", "data/scratch/own", "opt/tool/run"] {
            fs::create_dir_all(root.join(folder)).expect("made");
        }
        let mark = format!("7{}", 10_000 + rand(&canary));
        let bind = |path: &str| {
            let listener = UnixListener::bind(root.join(path)).expect("a socket");
            listener.set_nonblocking(true).expect("not blocking");
            fs::set_permissions(root.join(path), fs::Permissions::from_mode(0o777)).expect("open to all");
            listener
        };
        let abstract_name = SocketAddr::from_abstract_name(format!("socket-{mark}")).expect("a name");
        let abstract_socket = UnixListener::bind_addr(&abstract_name).expect("a socket");
        abstract_socket.set_nonblocking(true).expect("not blocking");
        let datagrams = UnixDatagram::bind(root.join("opt/tool/run/log.sock")).expect("a socket");
        datagrams.set_nonblocking(true).expect("not blocking");
        fs::set_permissions(root.join("opt/tool/run/log.sock"), fs::Permissions::from_mode(0o777))
            .expect("open to all");
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        udp.set_nonblocking(true).expect("not blocking");
        let said = async |program: &str, arguments: &[&str]| {
            let mut command = crate::harness::parts::command(program);
            let said = crate::harness::parts::output(command.args(arguments).current_dir(&root)).await;
            String::from_utf8(said).expect("text").trim().to_owned()
        };
        let store =
            "git init -q --bare data/mirrors && cat secrets/token | git --git-dir data/mirrors hash-object -w --stdin";
        let blob = said("/bin/sh", &["-c", store]).await;
        let memory = said("/usr/bin/perl", &["-e", CREATE_MEMORY, &canary]).await;
        // A process like the service's own, with a secret in its environment.
        let mut holder = crate::harness::parts::command("/bin/sleep");
        let holder = holder.arg("600").env("SECRET", &canary).current_dir(&root).spawn().expect("it starts");
        // The kernel knows it by the name that was bound.
        let moved = bind("opt/before.sock");
        fs::rename(root.join("opt/before.sock"), root.join("opt/tool/run/moved.sock")).expect("moved");
        Self {
            unix: vec![bind("opt/tool/run/agent.sock"), bind("data/service.sock"), abstract_socket, moved],
            mark,
            tcp: [listening("0.0.0.0:0"), listening("[::1]:0")],
            folder,
            canary,
            udp,
            datagrams,
            holder,
            mechanism,
            blob,
            memory,
            shared: shared.into(),
        }
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.folder.path().canonicalize().expect("a path").join(path)
    }

    fn settings(&self, without: &[Defence]) -> SandboxSettings {
        let hidden = |path: &str, kind| HiddenPath { path: self.at(path), kind, name: path.to_owned() };
        let hidden = [
            hidden("data", HiddenKind::Folder),
            hidden("etc/ralph-control.yaml", HiddenKind::File),
            hidden("secrets/token", HiddenKind::File),
            hidden("home", HiddenKind::Home),
            hidden("opt/tool/etc/token", HiddenKind::File),
            hidden("opt/tool/data", HiddenKind::Folder),
        ];
        let (hidden, mechanism) = (Arc::new(hidden), self.mechanism.clone());
        SandboxSettings { hidden, without: without.to_vec(), mechanism, ..SandboxSettings::default() }
    }

    /// Files outside of a run's writable paths, with their contents and, where namespaces protect them, permissions.
    fn outside(&self) -> BTreeMap<PathBuf, (Vec<u8>, u32)> {
        let mut found = BTreeMap::new();
        let mut left = vec![self.at("")];
        let own = [self.at("tree"), self.at("data/scratch/own")];
        while let Some(folder) = left.pop() {
            for entry in fs::read_dir(folder).expect("listed").flatten() {
                let (path, kind) = (entry.path(), entry.file_type().expect("a kind"));
                let mode = match self.mechanism {
                    SandboxMechanism::Bubblewrap => entry.metadata().expect("data").permissions().mode(),
                    SandboxMechanism::Landlock(_) => 0,
                };
                if kind.is_dir() && !own.contains(&path) {
                    left.push(path);
                } else if kind.is_file() {
                    found.insert(path.clone(), (fs::read(&path).expect("read"), mode));
                } else if !kind.is_dir() {
                    found.insert(path, (Vec::new(), mode));
                }
            }
        }
        found
    }

    /// Runs all scripts in one sandbox, sorted by name; returns `row name: what` for each that broke out.
    pub async fn broken_by(&self, scripts: &[Script], without: &[Defence]) -> Vec<String> {
        let before = self.outside();
        let (tree, home) = (self.at("tree"), self.at("data/scratch/own"));
        let names: BTreeSet<&str> = scripts.iter().map(|script| script.1).collect();
        assert_eq!(names.len(), scripts.len(), "two scripts have one name");
        for Script(_, name, script) in scripts {
            file(&tree.join("scripts").join(name), script);
        }
        let path = format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", self.at("opt/tool/bin").display());
        let mut spec = ProcessSpec::new("/bin/bash", &tree).args(["-c", ALL]);
        file(&tree.join("functions"), FUNCTIONS);
        spec = spec.env("BASH_ENV", tree.join("functions"));
        spec = spec.env("SECONDS_EACH", SCRIPT_SECONDS.to_string()).env("PROGRAM", PROGRAM);
        spec = spec.env("BLOB", &self.blob).env("SHM", &self.memory);
        for (name, number) in CALLS {
            spec = spec.env(format!("SYS_{name}"), number.to_string());
        }
        spec = spec.env("OUT", self.at("")).env("PREFIX", self.at("opt/tool")).env("MARK", &self.mark);
        let port = |listener: &std::net::TcpListener| listener.local_addr().expect("an address").port().to_string();
        spec = spec.env("PORT", port(&self.tcp[0])).env("PORT6", port(&self.tcp[1]));
        spec = spec.env("UDP", self.udp.local_addr().expect("an address").port().to_string());
        spec = spec.env("ABSTRACT", format!("socket-{}", self.mark));
        spec = spec.env("HOLDER", self.holder.id().expect("it runs").to_string());
        spec = spec.env("PATH", &path);
        let mut read_only = tools(path.as_ref(), &self.at("home"));
        read_only.push(PROGRAM.into());
        spec.sandbox = Sandbox::of(SandboxView {
            writable: vec![tree.clone()],
            read_only,
            home: ScratchHome::Folder(home.clone()),
            network: Network::None,
            settings: self.settings(without),
        });
        spec.limits = ProcessLimits { wall: Duration::from_secs(300), ..ProcessLimits::default() };
        let done = process::run(spec, &CancellationToken::new(), None).await.expect("it runs");
        let mut broken = Vec::new();
        for Script(row, name, _) in scripts {
            let ran = tree.join("out").join(name).exists();
            assert!(ran, "{name} did not run: {:?} {}", done.ended, done.stderr.text());
            let output =
                String::from_utf8_lossy(&fs::read(tree.join("out").join(name)).unwrap_or_default()).into_owned();
            let left = self.text_below(&tree.join("work").join(name));
            if output.contains(&self.canary) || left.contains(&self.canary) {
                broken.push(format!("{row} {name}: it has a canary"));
            } else if output.contains("BROKEN") {
                let lines: Vec<&str> = output.lines().filter(|line| line.contains("BROKEN")).collect();
                broken.push(format!("{row} {name}: {}", lines.join("; ")));
            }
        }
        broken.extend(self.reached());
        if !self.holder.id().is_some_and(process::is_alive) {
            broken.push("s11 a process of the machine was killed".to_owned());
        }
        for (path, bytes) in self.outside() {
            if before.get(&path) != Some(&bytes) {
                broken.push(format!("g19 {} was changed", path.display()));
            }
        }
        let gone = before.keys().filter(|path| !path.exists());
        broken.extend(gone.map(|path| format!("g19 {} is gone", path.display())));
        // The kernel ends them with the sandbox, but not before its first process is reported as ended.
        let gone = tokio::time::timeout(Duration::from_secs(5), async {
            while !self.living().is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        if gone.await.is_err() {
            broken.extend(self.living().into_iter().map(|(pid, line)| {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                format!("s11 {line} lives on")
            }));
        }
        broken
    }

    /// Text of all regular files below a folder of a script.
    fn text_below(&self, folder: &Path) -> String {
        let mut text = String::new();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let kind = entry.file_type().expect("a kind");
            if kind.is_dir() {
                text.push_str(&self.text_below(&entry.path()));
            } else if kind.is_file() {
                let mut bytes = Vec::new();
                let opened = fs::File::open(entry.path()).map(|file| file.take(1 << 20).read_to_end(&mut bytes));
                opened.expect("opened").expect("read");
                text.push_str(&String::from_utf8_lossy(&bytes));
            }
        }
        text
    }

    fn reached(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut bytes = [0; 64];
        let tcp = self.tcp.iter().filter(|listener| listener.accept().is_ok()).count();
        let unix = self.unix.iter().filter(|listener| listener.accept().is_ok()).count();
        if tcp > 0 || self.udp.recv(&mut bytes).is_ok() {
            found.push("s5 a server of the machine was reached".to_owned());
        }
        if unix > 0 || self.datagrams.recv(&mut bytes).is_ok() {
            found.push("s5 a socket of the machine was reached".to_owned());
        }
        found
    }

    /// Processes with the mark that live on.
    fn living(&self) -> Vec<(rustix::process::Pid, String)> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").expect("listed").flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            if line.split(|byte| *byte == 0).any(|word| word == self.mark.as_bytes()) {
                let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
                found.push((pid, String::from_utf8_lossy(&line).replace('\0', " ")));
            }
        }
        found
    }
}

/// A number from a text.
fn rand(text: &str) -> u32 {
    text.bytes().fold(7, |hash: u32, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte))) % 80_000
}
