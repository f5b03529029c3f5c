//! Filter of the system calls of programs in a sandbox.
//!
//! The filter refuses the calls that Docker's default profile refuses to a container without capabilities. It also
//! refuses calls that programs do not need and that had many vulnerabilities or reach outside the sandbox. `ptrace` is
//! allowed, so debuggers work on processes of the same sandbox. System calls of another architecture (32-bit programs)
//! kill the process.

mod without_namespaces;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use ralph_types::failure::Failure;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};

pub(super) use without_namespaces::{Open, filter as without_namespaces};

/// Number of the last known call, `futex_requeue`. Higher numbers are newer calls, and on x86_64 also calls of x32
/// programs.
const LAST_KNOWN: u32 = 456;

/// Number of `fchmodat2`, which libc does not know on all architectures.
pub(super) const FCHMODAT2: libc::c_long = 452;
/// Number of `kexec_file_load`, which libc does not know on all architectures.
const KEXEC_FILE_LOAD: libc::c_long = if cfg!(target_arch = "x86_64") { 320 } else { 294 };

/// Calls that fail with `EPERM`.
const REFUSED: &[libc::c_long] = &[
    // Mounts, namespaces, other roots.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    // The kernel itself.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    KEXEC_FILE_LOAD,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_lookup_dcookie,
    libc::SYS_fanotify_init,
    libc::SYS_nfsservctl,
    libc::SYS_vhangup,
    // Keys.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // The clock.
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    // Other processes and their memory.
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_madvise,
    libc::SYS_get_mempolicy,
    libc::SYS_set_mempolicy,
    libc::SYS_set_mempolicy_home_node,
    libc::SYS_mbind,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
];

/// Calls that only exist on x86_64.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[libc::c_long] = &[
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_uselib,
    libc::SYS_ustat,
    libc::SYS_sysfs,
    libc::SYS__sysctl,
    libc::SYS_afs_syscall,
    libc::SYS_getpmsg,
    libc::SYS_putpmsg,
    libc::SYS_security,
    libc::SYS_tuxcall,
    libc::SYS_vserver,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[libc::c_long] = &[];

/// Flags of `clone` that create namespaces.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];
/// Allowed execution domains: Linux, Linux on 32 bits, both also reporting version 2.6, and the value that only
/// queries the domain.
const PERSONALITIES: [u32; 5] = [0, 8, 0x2_0000, 0x2_0008, u32::MAX];
/// `ioctl` requests that simulate input to a terminal.
const TYPING: [u32; 2] = [libc::TIOCSTI as u32, libc::TIOCLINUX as u32];
/// Mode bits that run a program with the rights of its owner or group.
const SET_ID: [u32; 2] = [libc::S_ISUID, libc::S_ISGID];
/// Flags of `open` that create a file.
const CREATING: [libc::c_int; 2] = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY];

/// Flags of `clone` for threads, and for sharing descriptors. The descriptors of a thread that has its own are in no list
/// of its process's files.
const THREAD_FILES: [u32; 2] = [libc::CLONE_THREAD as u32, libc::CLONE_FILES as u32];

/// System calls with a mode argument, and the position of that argument.
const WITH_MODE: &[(libc::c_long, u8)] = &[
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
    (libc::SYS_mkdirat, 2),
    (libc::SYS_mknodat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
];
/// System calls that create a file depending on their flags, and the position of the flags. The mode is the next
/// argument.
const WITH_FLAGS: &[(libc::c_long, u8)] = &[
    (libc::SYS_openat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
];

/// Returns the filters in bubblewrap's format: a classic BPF program each, in the machine's byte order.
///
/// # Errors
/// The architecture is not supported.
pub(super) fn filters() -> Result<&'static [Vec<u8>; 3], Failure> {
    static FILTERS: LazyLock<Result<[Vec<u8>; 3], Failure>> = LazyLock::new(|| Ok(programs()?.map(|one| bytes(&one))));
    FILTERS.as_ref().map_err(Clone::clone)
}

/// Maximum size of a System V shared memory segment if memory is only measured, in bytes. A segment that no process
/// has attached is not visible outside the sandbox, and the kernel allows 4,096 of them. Databases need a few bytes.
const MOST_SEGMENT: u64 = 64 << 10;

/// Maximum number of semaphores in a System V set if memory is only measured. The kernel allows 32,000 sets with
/// 32,000 semaphores of 64 bytes each. Databases need twenty.
const MOST_SEMAPHORES: u64 = 64;

/// System calls that are disabled if memory is only measured, because they use memory that no process accounts for.
/// System V message queues hold up to 16,384 empty messages in each of 32,000 queues. A pipe that is given a page with
/// `vmsplice` keeps the whole large page that contains it.
const WITH_UNSEEN_MEMORY: [libc::c_long; 2] = [libc::SYS_msgget, libc::SYS_vmsplice];

/// Socket options that request larger buffers.
const BUFFERS: [libc::c_int; 2] = [libc::SO_SNDBUF, libc::SO_RCVBUF];

/// Returns three filters for sandboxes without a control group. They keep programs from using memory that is counted for no process:
///
/// 1. Large segments and sets of semaphores of System V are refused, as by a kernel with a low limit.
/// 2. Queues of System V do not exist.
/// 3. Requests for larger buffers of sockets report success and change nothing, as the kernel does above its limit.
///
/// # Errors
/// The filters cannot be compiled for this architecture.
pub(super) fn of_unseen_memory() -> Result<&'static [Vec<u8>; 3], Failure> {
    static FILTERS: LazyLock<Result<[Vec<u8>; 3], Failure>> = LazyLock::new(|| {
        let built = || {
            let large = SeccompCondition::new(1, SeccompCmpArgLen::Qword, SeccompCmpOp::Gt, MOST_SEGMENT)?;
            let many = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Gt, MOST_SEMAPHORES)?;
            let sizes = BTreeMap::from([
                (libc::SYS_shmget, vec![SeccompRule::new(vec![large])?]),
                (libc::SYS_semget, vec![SeccompRule::new(vec![many])?]),
            ]);
            let unknown = WITH_UNSEEN_MEMORY.into_iter().map(|call| (call, Vec::new())).collect();
            let larger =
                BUFFERS.map(|option| SeccompRule::new(vec![is(1, libc::SOL_SOCKET as u32)?, is(2, option as u32)?]));
            let larger = larger.into_iter().collect::<Result<_, _>>()?;
            let buffers = BTreeMap::from([(libc::SYS_setsockopt, larger)]);
            Ok([program(sizes, libc::EINVAL)?, program(unknown, libc::ENOSYS)?, program(buffers, 0)?])
        };
        built().map(|programs| programs.map(|one| bytes(&one))).map_err(unknown_here)
    });
    FILTERS.as_ref().map_err(Clone::clone)
}

/// Returns the filters as BPF programs.
///
/// # Errors
/// The architecture is not supported.
pub(super) fn programs() -> Result<[BpfProgram; 3], Failure> {
    let built = || Ok([refused()?, missing(), ignored()?]);
    built().map_err(unknown_here)
}

fn unknown_here(error: seccompiler::BackendError) -> Failure {
    Failure::new(format!("there is no filter of system calls for {}", std::env::consts::ARCH)).caused_by(error)
}

/// Returns the filter that refuses calls with `EPERM`.
fn refused() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().chain(REFUSED_HERE).map(|call| (*call, Vec::new())).collect();
    let mut refuse = |call: libc::c_long, conditions: Vec<SeccompCondition>| {
        let rule = SeccompRule::new(conditions)?;
        rules.entry(call).or_default().push(rule);
        Ok(())
    };
    for flag in NAMESPACES {
        refuse(libc::SYS_clone, vec![has(0, flag as u32)?])?;
    }
    let [thread, files] = THREAD_FILES;
    let both = SeccompCmpOp::MaskedEq(u64::from(thread | files));
    refuse(libc::SYS_clone, vec![argument(0, both, thread)?])?;
    let other_domain = PERSONALITIES.map(|domain| argument(0, SeccompCmpOp::Ne, domain));
    refuse(libc::SYS_personality, other_domain.into_iter().collect::<Result<_, _>>()?)?;
    for request in TYPING {
        refuse(libc::SYS_ioctl, vec![is(1, request)?])?;
    }
    for family in [libc::AF_VSOCK, libc::AF_ALG] {
        refuse(libc::SYS_socket, vec![is(0, family as u32)?])?;
    }
    let other_netlink = argument(2, SeccompCmpOp::Ne, libc::NETLINK_ROUTE as u32)?;
    refuse(libc::SYS_socket, vec![is(0, libc::AF_NETLINK as u32)?, other_netlink])?;
    for bit in SET_ID {
        for (call, mode) in WITH_MODE {
            refuse(*call, vec![has(*mode, bit)?])?;
        }
        for (call, flags) in WITH_FLAGS {
            for creating in CREATING {
                refuse(*call, vec![has(*flags, creating as u32)?, has(*flags + 1, bit)?])?;
            }
        }
    }
    program(rules, libc::EPERM)
}

/// Returns the filter of calls that report success and change nothing: `ssh-agent` and others hide their files and memory
/// from other processes of the user, and the service could not measure them.
fn ignored() -> Result<BpfProgram, seccompiler::BackendError> {
    let hide = SeccompRule::new(vec![is(0, libc::PR_SET_DUMPABLE as u32)?, is(1, 0)?])?;
    program(BTreeMap::from([(libc::SYS_prctl, vec![hide])]), 0)
}

/// Returns the BPF program that makes these calls fail with an error number.
fn program(rules: BTreeMap<i64, Vec<SeccompRule>>, error: i32) -> Result<BpfProgram, seccompiler::BackendError> {
    let (allow, refuse) = (SeccompAction::Allow, SeccompAction::Errno(error as u32));
    SeccompFilter::new(rules, allow, refuse, TargetArch::try_from(std::env::consts::ARCH)?)?.try_into()
}

/// Returns the condition that an argument equals a number. The kernel only reads 32 bits of these arguments.
fn is(position: u8, value: u32) -> Result<SeccompCondition, seccompiler::BackendError> {
    argument(position, SeccompCmpOp::Eq, value)
}

/// Returns the condition that an argument has a bit set.
fn has(position: u8, bit: u32) -> Result<SeccompCondition, seccompiler::BackendError> {
    argument(position, SeccompCmpOp::MaskedEq(u64::from(bit)), bit)
}

fn argument(position: u8, op: SeccompCmpOp, value: u32) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(position, SeccompCmpArgLen::Dword, op, u64::from(value))
}

/// Returns the filter that makes calls appear not to exist, so that libraries use older ones. It covers calls whose
/// arguments are in memory, which no filter can read, and calls newer than [`LAST_KNOWN`].
fn missing() -> BpfProgram {
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const JUMP_IF_GREATER: u16 = 0x25;
    const RETURN: u16 = 0x06;
    const NO_SUCH_CALL: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    let instruction = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    vec![
        instruction(LOAD_NUMBER, 0, 0, 0),
        instruction(JUMP_IF_EQUAL, 3, 0, libc::SYS_clone3 as u32),
        instruction(JUMP_IF_EQUAL, 2, 0, libc::SYS_openat2 as u32),
        instruction(JUMP_IF_GREATER, 1, 0, LAST_KNOWN),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        instruction(RETURN, 0, 0, NO_SUCH_CALL),
    ]
}

fn bytes(program: &BpfProgram) -> Vec<u8> {
    let instruction = |i: &sock_filter| {
        let [c0, c1] = i.code.to_ne_bytes();
        let [k0, k1, k2, k3] = i.k.to_ne_bytes();
        [c0, c1, i.jt, i.jf, k0, k1, k2, k3]
    };
    program.iter().flat_map(instruction).collect()
}
