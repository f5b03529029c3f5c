//! Memory and processes of a sandbox while it runs, and their limits.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

/// Time between two measurements.
const INTERVAL: Duration = Duration::from_secs(1);

/// Limits of all processes of a sandbox together. A run that exceeds one is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxLimits {
    /// Maximum memory, in MiB; shared memory counts once.
    pub memory_mib: u64,
    /// Maximum number of processes and threads.
    pub processes: u64,
}

impl Default for SandboxLimits {
    /// 8 GiB and 1,024 processes.
    fn default() -> Self {
        Self { memory_mib: 8 * 1024, processes: 1024 }
    }
}

/// Memory and processes at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Usage {
    memory_mib: u64,
    processes: u64,
}

impl SandboxLimits {
    /// Returns the reason if a limit is exceeded.
    fn exceeded(&self, usage: Usage) -> Option<String> {
        if usage.memory_mib > self.memory_mib {
            Some(format!("it used {} MiB of memory; the limit is {} MiB", usage.memory_mib, self.memory_mib))
        } else if usage.processes > self.processes {
            Some(format!("it had {} processes and threads; the limit is {}", usage.processes, self.processes))
        } else {
            None
        }
    }
}

/// Measures the process `root` and its descendants; completes with the reason when they exceed a limit.
pub(super) async fn exceeded(root: u32, limits: SandboxLimits) -> String {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let measured = tokio::task::spawn_blocking(move || measure(root, limits)).await;
        if let Some(reason) = measured.ok().and_then(|usage| limits.exceeded(usage)) {
            return reason;
        }
    }
}

fn measure(root: u32, limits: SandboxLimits) -> Usage {
    let running = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = running.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let all: Vec<Process> = pids.filter_map(process).collect();
    let inside = descendants(root, &all);
    let found = || all.iter().filter(|process| inside.contains(&process.pid));
    let pages: u64 = found().map(|process| process.pages).sum();
    let page = rustix::param::page_size() as u64;
    let mut memory_mib = (pages * page) >> 20;
    if memory_mib > limits.memory_mib {
        // Pages that several processes share were counted several times; dividing them takes longer to read.
        memory_mib = found().filter_map(|process| proportional_kib(process.pid)).sum::<u64>() >> 10;
    }
    Usage { memory_mib, processes: found().map(|process| process.threads).sum() }
}

/// Fields of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: u32,
    parent: u32,
    threads: u64,
    pages: u64,
}

fn process(pid: u32) -> Option<Process> {
    read_stat(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn read_stat(pid: u32, stat: &str) -> Option<Process> {
    // The name in parentheses can contain any character, so fields are counted from its end.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse().ok());
    Some(Process { pid, parent: u32::try_from(field(4)?).ok()?, threads: field(20)?, pages: field(24)? })
}

/// Returns the proportional set size of a process, in KiB.
fn proportional_kib(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix(" kB")?.trim().parse().ok())
}

/// Returns `root` and all processes below it.
fn descendants(root: u32, all: &[Process]) -> BTreeSet<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(process.pid);
    }
    let (mut found, mut left) = (BTreeSet::new(), vec![root]);
    while let Some(pid) = left.pop() {
        if found.insert(pid) {
            left.extend(children.get(&pid).into_iter().flatten());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_behind_any_name() {
        let stat = "7 (a) b ( 9) S 3 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 11 0 100 4096 250 18446744073709551615 1";
        assert_eq!(read_stat(7, stat), Some(Process { pid: 7, parent: 3, threads: 11, pages: 250 }));
        assert_eq!(read_stat(7, "7 (x) S"), None);
    }

    #[test]
    fn descendants_are_found_in_any_order() {
        let all: Vec<Process> = [(9, 8), (8, 7), (7, 1), (6, 1), (10, 7)]
            .map(|(pid, parent)| Process { pid, parent, threads: 1, pages: 1 })
            .into();
        assert_eq!(descendants(7, &all), BTreeSet::from([7, 8, 9, 10]));
    }

    #[test]
    fn limits_are_exceeded_above_their_number() {
        let limits = SandboxLimits { memory_mib: 10, processes: 3 };
        assert_eq!(limits.exceeded(Usage { memory_mib: 10, processes: 3 }), None);
        for (memory_mib, processes, words) in [(11, 1, "11 MiB of memory; the limit is 10"), (1, 4, "4 processes")] {
            assert!(limits.exceeded(Usage { memory_mib, processes }).unwrap().contains(words));
        }
    }

    #[test]
    fn own_processes_are_measured() {
        let usage = measure(std::process::id(), SandboxLimits { memory_mib: 0, processes: 1 });
        assert!(usage.memory_mib > 0 && usage.processes > 0, "{usage:?}");
    }
}
