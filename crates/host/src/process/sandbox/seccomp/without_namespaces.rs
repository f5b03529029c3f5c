//! Additional filter for programs without namespaces that are confined by Landlock. It refuses operations that
//! Landlock does not restrict.

use std::collections::BTreeMap;

use ralph_types::failure::Failure;
use seccompiler::{BackendError, BpfProgram, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use super::{argument, has, program, unknown_here};

/// Mask of the bits of a socket type that are not flags.
const TYPE: u64 = 0xf;
/// Obsolete socket type for link-layer packets.
const SOCK_PACKET: libc::c_int = 10;
/// Socket types other than streams: datagrams, raw, RDM, sequenced packets, DCCP, link-layer packets.
const NO_STREAMS: [libc::c_int; 6] =
    [libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_RDM, libc::SOCK_SEQPACKET, libc::SOCK_DCCP, SOCK_PACKET];
/// System calls that send data, with the position of their flags. With `MSG_FASTOPEN` they also connect, which
/// Landlock does not restrict.
const SENDING: [(libc::c_long, u8); 3] = [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)];
/// System calls that change owners, groups and attributes of files, including access control lists. Landlock does not
/// restrict them on any path.
const OF_FILES: [libc::c_long; 8] = [
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
];
/// Such system calls that only exist on x86_64.
#[cfg(target_arch = "x86_64")]
const OF_FILES_HERE: &[libc::c_long] = &[libc::SYS_chown, libc::SYS_lchown];
#[cfg(not(target_arch = "x86_64"))]
const OF_FILES_HERE: &[libc::c_long] = &[];
/// System calls for shared memory, semaphores and messages that all processes of the user share.
const SHARED: [libc::c_long; 13] = [
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];
/// System calls that change another process, with the position of its PID, which is 0 for the caller.
const OF_OTHERS: [(libc::c_long, u8); 7] = [
    (libc::SYS_prlimit64, 0),
    (libc::SYS_sched_setaffinity, 0),
    (libc::SYS_sched_setscheduler, 0),
    (libc::SYS_sched_setparam, 0),
    (libc::SYS_sched_setattr, 0),
    (libc::SYS_setpriority, 1),
    (libc::SYS_ioprio_set, 1),
];

/// Values of the first arguments of `setpriority` and `ioprio_set` that select a single process.
const PRIO_PROCESS: u32 = 0;
const IOPRIO_WHO_PROCESS: u32 = 1;

/// Operations that the filter allows.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::process::sandbox) struct Open {
    /// Access to the whole network.
    pub(in crate::process::sandbox) network: bool,
    /// Unix sockets; `true` in tests only.
    pub(in crate::process::sandbox) sockets: bool,
    /// Access to processes outside and to their shared objects; `true` in tests only.
    pub(in crate::process::sandbox) processes: bool,
}

/// Returns the filter.
///
/// # Errors
/// The architecture is not supported.
pub(in crate::process::sandbox) fn filter(open: Open) -> Result<BpfProgram, Failure> {
    rules(open).and_then(|rules| program(rules, libc::EPERM)).map_err(unknown_here)
}

fn rules(open: Open) -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let mut refuse = |call: libc::c_long, conditions: Vec<SeccompCondition>| -> Result<(), BackendError> {
        rules.entry(call).or_default().push(SeccompRule::new(conditions)?);
        Ok(())
    };
    let unix = open.sockets.then_some(libc::AF_UNIX);
    let allowed = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK].into_iter().chain(unix);
    refuse(libc::SYS_socket, other_than(allowed)?)?;
    if !open.sockets {
        // Pairs are already connected; pairs of datagram sockets can be connected again.
        for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW] {
            refuse(libc::SYS_socketpair, vec![of_type(kind)?])?;
        }
    }
    if !open.network {
        let of_internet = || other_than([libc::AF_NETLINK].into_iter().chain(unix));
        for kind in NO_STREAMS {
            refuse(libc::SYS_socket, with(of_internet()?, [of_type(kind)?]))?;
        }
        // MPTCP and others carry streams that Landlock does not take for TCP.
        let no_tcp = [argument(2, SeccompCmpOp::Ne, 0)?, argument(2, SeccompCmpOp::Ne, libc::IPPROTO_TCP as u32)?];
        refuse(libc::SYS_socket, with(of_internet()?, no_tcp))?;
        for (call, flags) in SENDING {
            refuse(call, vec![has(flags, libc::MSG_FASTOPEN as u32)?])?;
        }
    }
    if !open.processes {
        for (call, position) in OF_OTHERS {
            refuse(call, vec![argument(position, SeccompCmpOp::Ne, 0)?])?;
        }
        refuse(libc::SYS_setpriority, vec![argument(0, SeccompCmpOp::Ne, PRIO_PROCESS)?])?;
        refuse(libc::SYS_ioprio_set, vec![argument(0, SeccompCmpOp::Ne, IOPRIO_WHO_PROCESS)?])?;
    }
    let shared = SHARED.iter().filter(|_| !open.processes);
    // A socket listens at a port of the kernel's choice without being bound, which Landlock does not see.
    let listen = (!open.network).then_some(libc::SYS_listen);
    for call in OF_FILES.iter().chain(OF_FILES_HERE).chain(shared).copied().chain(listen) {
        rules.insert(call, Vec::new());
    }
    Ok(rules)
}

/// Returns the conditions that a socket family is none of these.
fn other_than(families: impl Iterator<Item = libc::c_int>) -> Result<Vec<SeccompCondition>, BackendError> {
    families.map(|family| argument(0, SeccompCmpOp::Ne, family as u32)).collect()
}

fn with<const N: usize>(mut all: Vec<SeccompCondition>, more: [SeccompCondition; N]) -> Vec<SeccompCondition> {
    all.extend(more);
    all
}

/// Returns the condition that a socket has this type.
fn of_type(kind: libc::c_int) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(TYPE), kind as u64)
}
