//! Memory and processes of a sandbox while it runs, and their limits.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use super::stat::ProcessStat;
use crate::domain::trust::limits::SandboxLimits;

/// Time between two measurements.
const INTERVAL: Duration = Duration::from_secs(1);

/// Memory and processes at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Usage {
    memory_mib: u64,
    processes: u64,
}

/// Returns the reason if a limit is exceeded.
fn reason(limits: SandboxLimits, usage: Usage) -> Option<String> {
    if usage.memory_mib > limits.memory_mib {
        Some(format!("it used {} MiB of memory; the limit is {} MiB", usage.memory_mib, limits.memory_mib))
    } else if usage.processes > limits.processes {
        Some(format!("it had {} processes and threads; the limit is {}", usage.processes, limits.processes))
    } else {
        None
    }
}

/// Measures the process `root` and its descendants; completes with the reason when they exceed a limit.
pub(super) async fn exceeded(root: u32, limits: SandboxLimits) -> String {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let measured = tokio::task::spawn_blocking(move || measure(root, limits)).await;
        if let Some(reason) = measured.ok().and_then(|usage| reason(limits, usage)) {
            return reason;
        }
    }
}

fn measure(root: u32, limits: SandboxLimits) -> Usage {
    let running = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = running.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let all: Vec<ProcessStat> = pids.filter_map(ProcessStat::of).collect();
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

/// Returns the proportional set size of a process, in KiB.
fn proportional_kib(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix(" kB")?.trim().parse().ok())
}

/// Returns `root` and all processes below it.
fn descendants(root: u32, all: &[ProcessStat]) -> BTreeSet<u32> {
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
    fn descendants_are_found_in_any_order() {
        let all: Vec<ProcessStat> = [(9, 8), (8, 7), (7, 1), (6, 1), (10, 7)]
            .map(|(pid, parent)| ProcessStat { pid, parent, zombie: false, threads: 1, started: 1, pages: 1 })
            .into();
        assert_eq!(descendants(7, &all), BTreeSet::from([7, 8, 9, 10]));
    }

    #[test]
    fn limits_are_exceeded_above_their_number() {
        let limits = SandboxLimits { memory_mib: 10, processes: 3 };
        assert_eq!(reason(limits, Usage { memory_mib: 10, processes: 3 }), None);
        for (memory_mib, processes, words) in [(11, 1, "11 MiB of memory; the limit is 10"), (1, 4, "4 processes")] {
            assert!(reason(limits, Usage { memory_mib, processes }).unwrap().contains(words));
        }
    }

    #[test]
    fn own_processes_are_measured() {
        let usage = measure(std::process::id(), SandboxLimits { memory_mib: 0, processes: 1 });
        assert!(usage.memory_mib > 0 && usage.processes > 0, "{usage:?}");
    }
}
