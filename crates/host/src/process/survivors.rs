//! Finds and ends processes by a mark in their environment, including those that left their process group.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::stat::ProcessStat;

/// Name of the environment variable that contains the mark.
pub const COOKIE_VARIABLE: &str = "RALPH_COOKIE";
/// Intervals at which known processes are checked between two searches of all processes, in milliseconds. Processes of
/// a sandbox usually end within the first interval.
const LOOKS_MS: [u64; 5] = [1, 2, 4, 8, 8];
/// Maximum wait for killed processes to end.
const KILL_WAIT: Duration = Duration::from_secs(2);

/// Mark in the environment of a run, which all of its child processes inherit: `<instance>-<loop>-<attempt>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cookie(String);

impl Cookie {
    /// Creates a mark. `instance` is the random name of this installation, so that two installations on one machine do
    /// not interfere. [`survivors`] finds all attempts of a loop by `<instance>-<loop>` and all loops by `<instance>`.
    pub fn new(instance: &str, loop_id: &str, attempt: u32) -> Self {
        Self(format!("{instance}-{loop_id}-{attempt}"))
    }

    /// Returns the mark as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Running process with a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Survivor {
    pid: Pid,
    /// Start in clock ticks since boot; together with the PID it identifies one process.
    started: u64,
}

impl Survivor {
    /// PID in the namespace of this process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends a signal to this process, never to another one that reuses its PID.
    pub(super) fn signal(&self, signal: Signal) {
        let Ok(handle) = pidfd_open(self.pid, PidfdFlags::empty()) else { return };
        if start_time(self.pid) == Some(self.started) {
            let _ = pidfd_send_signal(handle, signal);
        }
    }

    /// Whether this process still has memory. Processes release their memory, including the mark, early when they end.
    fn is_running(&self) -> bool {
        start_time(self.pid) == Some(self.started) && environment(self.pid).is_some_and(|found| !found.is_empty())
    }
}

/// Whether a process with this PID is running; a zombie is not. The PID may have been reused.
pub fn is_alive(pid: u32) -> bool {
    i32::try_from(pid).ok().and_then(Pid::from_raw).and_then(start_time).is_some()
}

/// Returns the running processes whose mark is `cookie` or starts with `cookie` and `-`. Processes of other users are
/// not visible. Returns none if `cookie` is empty.
pub fn survivors(cookie: &str) -> Vec<Survivor> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    if cookie.is_empty() {
        return Vec::new();
    }
    let own_pid = rustix::process::getpid();
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw))
        .filter(|pid| *pid != own_pid)
        .filter_map(|pid| {
            // Most processes are others, so the start time is read only of those with the mark.
            carries(&environment(pid)?, cookie).then_some(pid)
        })
        .filter_map(|pid| {
            // The start time is read before the mark, so that a later reuse of the PID is noticed when a signal is sent.
            let started = start_time(pid)?;
            carries(&environment(pid)?, cookie).then_some(Survivor { pid, started })
        })
        .collect()
}

/// Sends SIGTERM to all processes with the mark, waits for `grace`, and sends SIGKILL until none remains. Returns the
/// number of remaining processes, which is 0 except for processes in uninterruptible I/O.
pub async fn end_survivors(cookie: &str, grace: Duration) -> usize {
    let mut remaining = survivors(cookie);
    if remaining.is_empty() {
        return 0;
    }
    if !grace.is_zero() {
        for survivor in &remaining {
            survivor.signal(Signal::TERM);
            survivor.signal(Signal::CONT);
        }
        let _ = tokio::time::timeout(grace, async {
            while !remaining.is_empty() {
                remaining = searched_after_end(&remaining, cookie).await;
            }
        })
        .await;
    }
    let _ = tokio::time::timeout(KILL_WAIT, async {
        while !remaining.is_empty() {
            for survivor in &remaining {
                survivor.signal(Signal::KILL);
            }
            remaining = searched_after_end(&remaining, cookie).await;
        }
    })
    .await;
    if remaining.is_empty() { 0 } else { survivors(cookie).len() }
}

/// Waits for a short time until these processes have ended, and searches again, because they may have started others.
async fn searched_after_end(known: &[Survivor], cookie: &str) -> Vec<Survivor> {
    for wait in LOOKS_MS {
        tokio::time::sleep(Duration::from_millis(wait)).await;
        if !known.iter().any(Survivor::is_running) {
            break;
        }
    }
    survivors(cookie)
}

fn environment(pid: Pid) -> Option<Vec<u8>> {
    fs::read(format!("/proc/{}/environ", pid.as_raw_pid())).ok()
}

fn carries(environment: &[u8], cookie: &str) -> bool {
    environment
        .split(|b| *b == 0)
        .filter_map(|pair| pair.strip_prefix(COOKIE_VARIABLE.as_bytes())?.strip_prefix(b"="))
        .filter_map(|value| value.strip_prefix(cookie.as_bytes()))
        .any(|rest| rest.is_empty() || rest[0] == b'-')
}

/// Returns the start of a process, in clock ticks since boot; `None` if it is a zombie or does not exist.
fn start_time(pid: Pid) -> Option<u64> {
    let stat = ProcessStat::of(u32::try_from(pid.as_raw_pid()).ok()?)?;
    (!stat.zombie).then_some(stat.started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_matches_exactly_or_as_a_prefix() {
        let environment = b"A=1\0RALPH_COOKIE=i7-L1-3\0B=RALPH_COOKIE=other\0";
        for (cookie, expected) in [
            ("i7-L1-3", true),
            ("i7-L1", true),
            ("i7", true),
            ("i7-L1-33", false),
            ("i7-L", false),
            ("i", false),
            ("other", false),
        ] {
            assert_eq!(carries(environment, cookie), expected, "{cookie}");
        }
        assert_eq!(Cookie::new("i7", "L1", 3).as_str(), "i7-L1-3");
    }

    #[test]
    fn empty_mark_matches_no_process() {
        assert_eq!(survivors(""), vec![]);
    }

    #[test]
    fn start_time_of_running_processes_is_read() {
        assert!(start_time(rustix::process::getpid()).is_some_and(|t| t > 0));
        assert_eq!(Pid::from_raw(i32::MAX).and_then(start_time), None);
    }
}
