//! Fields of `/proc/PID/stat`.

use std::fs;

/// State of a process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessStat {
    /// Id of the process.
    pub pid: u32,
    /// Id of the parent.
    pub parent: u32,
    /// Whether the process has ended but its parent has not read its exit status.
    pub zombie: bool,
    /// Number of threads.
    pub threads: u64,
    /// Start, in clock ticks since boot.
    pub started: u64,
    /// Virtual memory, in bytes; 0 if the process ends.
    pub size: u64,
    /// Resident memory, in pages.
    pub pages: u64,
}

impl ProcessStat {
    /// Reads the fields of a process; `None` if there is no process with this id.
    pub fn of(pid: u32) -> Option<Self> {
        Self::parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Returns the state of a thread that still runs, if the first thread of this process has ended but others run:
    /// then `/proc/PID` shows neither memory nor files. Otherwise returns this state.
    pub fn live_thread(&self) -> Self {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        let mut others = threads
            .filter(|_| self.zombie && self.threads > 1)
            .filter_map(|thread| Self::of(thread.file_name().to_str()?.parse().ok()?).filter(|thread| !thread.zombie));
        others.next().unwrap_or(*self)
    }

    fn parse(pid: u32, stat: &str) -> Option<Self> {
        // The name in parentheses can contain any character, so fields are counted from its end.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3).and_then(|text| text.parse().ok());
        Some(Self {
            pid,
            parent: u32::try_from(number(4)?).ok()?,
            zombie: *fields.first()? == "Z",
            threads: number(20)?,
            started: number(22)?,
            size: number(23)?,
            pages: number(24)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_after_any_name() {
        let stat = "7 (a) b ( 9) S 3 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 11 0 100 4096 250 18446744073709551615 1";
        let expected =
            ProcessStat { pid: 7, parent: 3, zombie: false, threads: 11, started: 100, size: 4096, pages: 250 };
        assert_eq!(ProcessStat::parse(7, stat), Some(expected));
        assert_eq!(ProcessStat::parse(7, &stat.replace(" S ", " Z ")), Some(ProcessStat { zombie: true, ..expected }));
        assert_eq!(ProcessStat::parse(7, "7 (x) S"), None);
    }
}
