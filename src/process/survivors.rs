//! Finds and ends processes by a mark in their environment, wherever they went.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Variable that carries the mark.
pub const COOKIE_VARIABLE: &str = "RALPH_COOKIE";
/// Time between two looks at what is left.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long killed processes may take to disappear.
const DEATH_WAIT: Duration = Duration::from_secs(2);

/// A mark put into the environment of a run and inherited by all its children: `<instance>-<loop>-<attempt>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cookie(String);

impl Cookie {
    /// `instance` is the random name of this installation, so that two on one machine leave each other alone.
    /// [`survivors`] finds all attempts of a loop by `<instance>-<loop>` and all loops by `<instance>`.
    pub fn new(instance: &str, loop_id: &str, attempt: u32) -> Self {
        Self(format!("{instance}-{loop_id}-{attempt}"))
    }

    /// The mark.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A live process that carries a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Survivor {
    pid: Pid,
    /// Start in clock ticks since boot: with the number it names one process for good.
    started: u64,
}

impl Survivor {
    /// Its number, as this process sees it.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends a signal to this very process, never to another that has got its number since.
    pub(super) fn signal(&self, signal: Signal) {
        let Ok(handle) = pidfd_open(self.pid, PidfdFlags::empty()) else { return };
        if start_time(self.pid) == Some(self.started) {
            let _ = pidfd_send_signal(handle, signal);
        }
    }
}

/// Whether a process of this machine that has this number runs now; one that ended and was not waited for yet does not.
/// It may be another than the one that had the number before.
pub fn is_alive(pid: u32) -> bool {
    i32::try_from(pid).ok().and_then(Pid::from_raw).and_then(start_time).is_some()
}

/// Live processes whose mark is `cookie` or goes on after it with `-`. Those of other users cannot be seen.
/// Empty for an empty mark.
pub fn survivors(cookie: &str) -> Vec<Survivor> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    if cookie.is_empty() {
        return Vec::new();
    }
    let own = rustix::process::getpid();
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw))
        .filter(|pid| *pid != own)
        .filter_map(|pid| {
            // The start time is read first: if the number changes hands afterwards, the signal finds out.
            let started = start_time(pid)?;
            let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_pid())).ok()?;
            carries(&environment, cookie).then_some(Survivor { pid, started })
        })
        .collect()
}

/// SIGTERM to all that carry the mark, `grace`, SIGKILL until none is left. Returns how many were still there at the
/// end: 0, save for processes stuck in the kernel.
pub async fn end_survivors(cookie: &str, grace: Duration) -> usize {
    let mut left = survivors(cookie);
    if left.is_empty() {
        return 0;
    }
    if !grace.is_zero() {
        for survivor in &left {
            survivor.signal(Signal::TERM);
            survivor.signal(Signal::CONT);
        }
        let _ = tokio::time::timeout(grace, async {
            while !survivors(cookie).is_empty() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        })
        .await;
        left = survivors(cookie);
    }
    let _ = tokio::time::timeout(DEATH_WAIT, async {
        while !left.is_empty() {
            for survivor in &left {
                survivor.signal(Signal::KILL);
            }
            tokio::time::sleep(LOOK_EVERY).await;
            left = survivors(cookie);
        }
    })
    .await;
    survivors(cookie).len()
}

fn carries(environment: &[u8], cookie: &str) -> bool {
    environment
        .split(|b| *b == 0)
        .filter_map(|pair| pair.strip_prefix(COOKIE_VARIABLE.as_bytes())?.strip_prefix(b"="))
        .filter_map(|value| value.strip_prefix(cookie.as_bytes()))
        .any(|rest| rest.is_empty() || rest[0] == b'-')
}

/// Field 22 of `/proc/<pid>/stat`; `None` for a process that is gone or a zombie.
fn start_time(pid: Pid) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    // The name, in parentheses, may have anything in it: fields are counted from its end.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_matched_whole_or_as_a_prefix() {
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
    fn nothing_carries_an_empty_mark() {
        assert_eq!(survivors(""), vec![]);
    }

    #[test]
    fn own_start_time_is_read_and_the_dead_have_none() {
        assert!(start_time(rustix::process::getpid()).is_some_and(|t| t > 0));
        assert_eq!(Pid::from_raw(i32::MAX).and_then(start_time), None);
    }
}
