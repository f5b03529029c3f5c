//! The probe of the sandbox with single defences left out: each row is seen to fail.

use std::time::Duration;

use ralph_bot::process::sandbox::{Defence, SandboxSettings, SandboxView};
use ralph_bot::process::{self, ProbeSettings, ProcessSpec, Sandbox, SandboxTier, probe_sandbox};

use crate::harness::sandbox;

/// Defences that are left out together, and the rows that fail then, where the service is root and where it is not. Where it is
/// root, its user alone keeps programs from the kernel's settings and from the environment of other processes.
const ROWS: [(&[Defence], &[&str]); 10] = [
    (&[Defence::Reads], &["read files outside the view"]),
    (&[Defence::Writes], &["write outside the tree"]),
    (
        &[Defence::Processes, Defence::User],
        &["read the environment of processes outside", "see processes and network interfaces of the machine"],
    ),
    (&[Defence::Processes], &["outlive the sandbox"]),
    (&[Defence::Network], &["reach the network", "connect to sockets of the host"]),
    (&[Defence::Sockets, Defence::Reads], &["connect to sockets of the host"]),
    (&[Defence::KernelFiles, Defence::User], &["open settings of the kernel for writing"]),
    (&[Defence::KernelFiles, Defence::User], &["read data of the kernel"]),
    (&[Defence::Filter], &["create programs with the rights of their owner", "make system calls that are refused"]),
    (&[Defence::User], &["have the uid of the host's root"]),
];

fn settings(without: &[Defence]) -> ProbeSettings {
    ProbeSettings {
        settings: SandboxSettings { without: without.to_vec(), ..SandboxSettings::default() },
        folder: std::env::temp_dir(),
        program: Some(env!("CARGO_BIN_EXE_ralph-bot").into()),
        // Two of the rows wait for it.
        end_timeout: Duration::from_secs(2),
    }
}

/// See docs/research/threats.md#s16.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probe_reports_each_missing_defence() {
    if sandbox().await.tier != SandboxTier::A {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return skipped_tests::skip_in_ci_as_well("rows of a service that is root");
    }
    for (without, rows) in ROWS {
        let found = probe_sandbox(&settings(without)).await;
        assert_eq!(found.tier, SandboxTier::C, "{without:?}: {found:?}");
        for row in rows {
            let escape = found.escapes.iter().find(|escape| escape.name == *row);
            let escape = escape.unwrap_or_else(|| panic!("{without:?}: no row {row}: {found:?}"));
            assert!(!escape.held && !escape.detail.is_empty() && !escape.fix.is_empty(), "{without:?}: {escape:?}");
        }
        let others = found.escapes.iter().filter(|escape| escape.held).count();
        assert!(others > 0, "{without:?}: not everything depends on one defense: {found:?}");
    }
}

/// A key of the service is found by its session keyring, unless the run has a separate one.
///
/// See docs/research/threats.md#s16.
#[test]
fn session_keyring_alone_hides_the_keys_of_the_service() {
    // The keyring belongs to this thread and its children.
    if !joins_new_keyring() {
        return skipped_tests::skip_in_ci_as_well("the kernel has no keys, or none for this process");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        if sandbox().await.tier != SandboxTier::A {
            return;
        }
        for (without, expected) in [(&[Defence::Filter][..], false), (&[Defence::Filter, Defence::Keyring], true)] {
            let found = attempts_with_key(without).await;
            assert!(found.contains("attempts end"), "{found}");
            assert_eq!(found.contains("found a key of the service"), expected, "{without:?}: {found}");
        }
    });
}

/// Gives this thread a new session keyring.
#[expect(unsafe_code, reason = "no library has this call")]
fn joins_new_keyring() -> bool {
    // SAFETY: without a name the call reads no memory.
    unsafe { libc::syscall(libc::SYS_keyctl, 1, std::ptr::null::<libc::c_char>()) >= 0 }
}

/// Adds a key to this thread's session keyring, and returns what attempts in a sandbox print.
#[expect(unsafe_code, reason = "no library has this call")]
async fn attempts_with_key(without: &[Defence]) -> String {
    let name = format!("ralph-test-{}", std::process::id());
    let description = std::ffi::CString::new(name.clone()).expect("a name");
    // SAFETY: all pointers are valid during the call.
    let added = unsafe {
        libc::syscall(libc::SYS_add_key, c"user".as_ptr(), description.as_ptr(), c"secret".as_ptr(), 6usize, -3)
    };
    assert!(added >= 0, "{}", std::io::Error::last_os_error());
    let folder = tempfile::tempdir().expect("a folder");
    let program = env!("CARGO_BIN_EXE_ralph-bot");
    let mut spec =
        ProcessSpec::new(program, folder.path()).args(["sandbox-attempts", "--socket", "/x", "--name", &name]);
    spec.sandbox = Sandbox::of(SandboxView {
        writable: vec![folder.path().to_owned()],
        read_only: vec![program.into()],
        settings: settings(without).settings,
        ..SandboxView::default()
    });
    spec.limits.wall = Duration::from_secs(60);
    process::run(spec, &tokio_util::sync::CancellationToken::new(), None).await.expect("it runs").stdout.text()
}
