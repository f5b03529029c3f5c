//! Handling of low memory: OOM scores of processes, and the number of processes that the kernel killed.

use std::ffi::c_void;
use std::path::Path;

use rustix::mm::Advice;

/// Difference between the OOM scores of children and of the service, out of 1000, which makes the kernel kill children
/// first.
const ADDED: i32 = 500;
/// Maximum OOM score.
const HIGHEST: i32 = 1_000;

/// Returns the number of processes that the kernel has killed since boot because memory ran out; `None` if it is
/// unknown.
pub(super) fn killed_so_far() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/vmstat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Raises the OOM score of a process and its future children above the service's own. Failures are ignored, because
/// some systems do not allow it.
pub(super) fn raise_oom_score(pid: u32) {
    let own_score = std::fs::read_to_string("/proc/self/oom_score_adj").ok().and_then(|text| text.trim().parse().ok());
    // The child cannot do it: until it executes the program, it cannot write its own entry in /proc.
    if let Err(error) = std::fs::write(format!("/proc/{pid}/oom_score_adj"), score(own_score.unwrap_or(0)).to_string())
    {
        tracing::debug!(pid, %error, "could not raise the child's OOM score");
    }
}

/// Unmaps the pages of this program's code and constants, most of which only its start needed. The kernel maps the pages that are used
/// later again, from its page cache. Failures are ignored, because they cost only memory.
#[expect(unsafe_code, reason = "no safe interface names the mappings of the program")]
pub fn unmap_startup_pages() {
    for (start, length) in program_mappings() {
        // SAFETY: the range is a private, unmodified mapping of a file, whose pages have the same content when they are mapped again.
        let unmapped = unsafe { rustix::mm::madvise(start as *mut c_void, length, Advice::LinuxDontNeed) };
        if let Err(error) = unmapped {
            tracing::debug!(%error, "could not unmap the pages of the start-up");
        }
    }
}

/// Returns the addresses and lengths of the mappings of this program's code and constants, in bytes; none if they are not known. Constants
/// that the loader relocated are in a later part of the file and not included.
fn program_mappings() -> Vec<(usize, usize)> {
    let (Ok(program), Ok(maps)) = (std::env::current_exe(), std::fs::read_to_string("/proc/self/maps")) else {
        return Vec::new();
    };
    let mapping = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (range, rights, offset, path) = (fields.next()?, fields.next()?, fields.next()?, fields.nth(2)?);
        let (start, end) = range.split_once('-')?;
        let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
        let is_unmodified = rights == "r-xp" || rights == "r--p" && u64::from_str_radix(offset, 16) == Ok(0);
        (is_unmodified && program == Path::new(path)).then_some((start, end.checked_sub(start)?))
    };
    maps.lines().filter_map(mapping).collect()
}

fn score(own_score: i32) -> i32 {
    own_score.saturating_add(ADDED).min(HIGHEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_have_higher_memory_score_than_service() {
        assert_eq!([-1000, -100, 0, 600, 1000].map(score), [-500, 400, 500, 1000, 1000]);
    }

    #[test]
    fn program_continues_after_unmapping_startup_pages() {
        let resident = || {
            let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let program = std::env::current_exe().unwrap();
            let is_code = |line: &str| line.contains(" r-xp ") && line.ends_with(program.to_str().unwrap());
            let of_code = smaps.lines().skip_while(|line| !is_code(line));
            let size = of_code.filter_map(|line| line.strip_prefix("Rss:")).next().expect("a mapping of code");
            size.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
        };
        let before = resident();
        unmap_startup_pages();
        let after = resident();
        assert!(after < before, "{after} KiB of {before} KiB remain");
    }

    #[test]
    fn number_of_killed_processes_is_read() {
        assert!(killed_so_far().is_some(), "Linux 4.13 and newer count them");
    }
}
