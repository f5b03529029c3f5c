//! Supervisor process, which confines a program and ends all processes that the program leaves.
//!
//! Orphaned processes inside become children of the supervisor, so none can escape by changing its environment. The
//! supervisor itself is not confined; programs inside cannot signal or trace it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::FromRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};
use ralph_types::failure::Failure;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use seccompiler::BpfProgram;

use super::super::seccomp::{self, Open};
use super::{ConfinedAccess, MESSAGE, NOT_STARTED, POLICY_FD};

/// First Landlock version that prevents signals to processes outside: Linux 6.12.
const NEEDED: ABI = ABI::V6;
/// Signal of the service after which the supervisor kills all processes immediately.
pub(in crate::process) const END_ALL: Signal = Signal::USR1;
/// Signals that the supervisor waits for.
const WAITED_FOR: [Signal; 5] = [Signal::CHILD, Signal::TERM, Signal::INT, Signal::HUP, END_ALL];
/// Device files that programs need.
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
/// Path of the list of this process's children.
const CHILDREN: &str = "/proc/thread-self/children";
/// Offset that is added to the number of the signal that ended the program, as in shells.
const SIGNALLED: i32 = 128;

/// Confines the program according to the service's policy, and waits until all of its processes have ended. Returns
/// the exit code.
pub fn confined_exec(program: &OsStr, arguments: &[OsString]) -> u8 {
    supervise(program, arguments).unwrap_or_else(|reason| {
        anstream::eprintln!("{MESSAGE}{reason:#}");
        NOT_STARTED
    })
}

fn supervise(program: &OsStr, arguments: &[OsString]) -> Result<u8, Failure> {
    let policy = read_policy()?;
    let failed = |what: &str| {
        let problem = Failure::new(what);
        move |error: io::Error| problem.caused_by(error)
    };
    let adopts = rustix::process::set_parent_process_death_signal(Some(END_ALL))
        .and_then(|()| rustix::process::set_child_subreaper(Some(rustix::process::getpid())));
    adopts.map_err(|error| Failure::new("cannot adopt its processes").caused_by(error))?;
    children().map_err(failed("the kernel does not list child processes (CONFIG_PROC_CHILDREN)"))?;
    let parent = rustix::process::getppid().map_or(0, Pid::as_raw_pid);
    if u32::try_from(parent) != Ok(policy.service) {
        return Err(Failure::new("the service ended"));
    }
    let signals = block_signals().map_err(failed("cannot wait for signals"))?;
    let mut ruleset = Some(ruleset(&policy).map_err(unsupported)?);
    let filters = filters(&policy)?;
    #[expect(clippy::disallowed_methods, reason = "it starts the program that `run` was to start")]
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(policy.environment).current_dir(&policy.cwd);
    #[expect(unsafe_code, reason = "only the new process may be confined")]
    // SAFETY: this process has one thread, so that the new one may allocate.
    unsafe {
        command.pre_exec(move || {
            unblock(&signals)?;
            confine(ruleset.take(), &filters)
        });
    }
    let child = command.spawn().map_err(failed(&format!("{} could not be started", Path::new(program).display())))?;
    let child = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or("it has no process id")?;
    Ok(wait_for(child, &signals))
}

fn read_policy() -> Result<ConfinedAccess, Failure> {
    let mut text = Vec::new();
    #[expect(unsafe_code, reason = "the descriptor is known by its number")]
    // SAFETY: the service passes this descriptor for this purpose; where it does not, reading fails.
    let mut file = unsafe { File::from_raw_fd(POLICY_FD) };
    file.read_to_end(&mut text).map_err(|_| "it is called by the service only; there is no policy")?;
    serde_json::from_slice(&text).map_err(|error| Failure::new("cannot read its policy").caused_by(error))
}

/// Describes why the kernel does not support these rules.
fn unsupported(error: RulesetError) -> Failure {
    let problem = Failure::new("the kernel cannot confine it by Landlock").caused_by(error);
    problem.with_hint("use Linux 6.12 or newer with `landlock` in its `lsm=` list")
}

/// Confines this process. Called between fork and exec.
fn confine(ruleset: Option<RulesetCreated>, filters: &[BpfProgram]) -> io::Result<()> {
    rustix::process::setsid()?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // Only numbers of errors reach the process that reports them.
    let refused = || io::Error::from_raw_os_error(libc::EPERM);
    ruleset.ok_or_else(refused)?.restrict_self().map_err(|_| refused())?;
    filters.iter().try_for_each(|filter| seccompiler::apply_filter(filter).map_err(|_| refused()))
}

fn ruleset(policy: &ConfinedAccess) -> Result<RulesetCreated, RulesetError> {
    let mut ruleset =
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(AccessFs::from_all(NEEDED))?;
    if policy.ports.is_some() {
        ruleset = ruleset.handle_access(AccessNet::from_all(NEEDED))?;
    }
    if policy.scopes {
        ruleset = ruleset.scope(Scope::from_all(NEEDED))?;
    }
    let ports = policy.ports.iter().flatten().map(|port| NetPort::new(*port, AccessNet::ConnectTcp));
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
    ruleset
        .create()?
        .add_rules(path_beneath_rules(&policy.readable, AccessFs::from_read(NEEDED)))?
        .add_rules(path_beneath_rules(&policy.writable, changes()))?
        .add_rules(path_beneath_rules(DEVICES, device))?
        .add_rules(ports.map(Ok::<_, RulesetError>))
}

/// Returns all access rights except creating and controlling devices.
fn changes() -> BitFlags<AccessFs> {
    AccessFs::from_all(NEEDED) & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev)
}

fn filters(policy: &ConfinedAccess) -> Result<Vec<BpfProgram>, Failure> {
    let mut filters = if policy.filter { seccomp::programs()?.to_vec() } else { Vec::new() };
    let open = Open { network: policy.ports.is_none(), sockets: !policy.sockets, processes: !policy.scopes };
    filters.push(seccomp::without_namespaces(open)?);
    Ok(filters)
}

/// Blocks the signals that the supervisor waits for.
#[expect(unsafe_code, reason = "rustix has no signal masks")]
fn block_signals() -> io::Result<libc::sigset_t> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the set is initialized by `sigemptyset` before it is used.
    let (set, result) = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        let mut set = set.assume_init();
        for signal in WAITED_FOR {
            libc::sigaddset(&raw mut set, signal.as_raw());
        }
        let result = libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        (set, result)
    };
    if result == 0 { Ok(set) } else { Err(io::Error::last_os_error()) }
}

/// Unblocks these signals, because a program inherits the signal mask of its parent.
#[expect(unsafe_code, reason = "rustix has no signal masks")]
fn unblock(signals: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: the set is initialized and only read.
    let result = unsafe { libc::sigprocmask(libc::SIG_UNBLOCK, signals, std::ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Waits until the program has ended, then ends all other processes. Returns the program's exit code.
fn wait_for(program: Pid, signals: &libc::sigset_t) -> u8 {
    loop {
        match next_signal(signals) {
            signal if signal == END_ALL.as_raw() => {
                end_all();
                return code(SIGNALLED + Signal::KILL.as_raw());
            }
            signal if signal == Signal::CHILD.as_raw() => {
                if let Some(status) = reap(program) {
                    end_all();
                    return status;
                }
            }
            _ => signal_children(Signal::TERM),
        }
    }
}

#[expect(unsafe_code, reason = "rustix has no sigwait")]
fn next_signal(signals: &libc::sigset_t) -> i32 {
    let mut signal = 0;
    // SAFETY: both pointers are valid during the call.
    unsafe { libc::sigwait(signals, &raw mut signal) };
    signal
}

/// Reaps ended processes; returns the exit code of the program if it is one of them.
fn reap(program: Pid) -> Option<u8> {
    let mut ended = None;
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if pid == program {
            ended = Some(exit_code(status));
        }
    }
    ended
}

fn exit_code(status: WaitStatus) -> u8 {
    code(status.exit_status().unwrap_or_else(|| SIGNALLED + status.terminating_signal().unwrap_or_default()))
}

fn code(number: i32) -> u8 {
    u8::try_from(number).unwrap_or(NOT_STARTED)
}

/// Ends all processes inside. Children of an ended process become children of the supervisor.
fn end_all() {
    loop {
        signal_children(Signal::KILL);
        if wait(WaitOptions::empty()).is_err_and(|error| error == Errno::CHILD) {
            return;
        }
    }
}

fn signal_children(signal: Signal) {
    for child in children().unwrap_or_default() {
        let _ = kill_process(child, signal);
    }
}

fn children() -> io::Result<Vec<Pid>> {
    let list = std::fs::read_to_string(CHILDREN)?;
    Ok(list.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect())
}
