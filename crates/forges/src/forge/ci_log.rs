//! Extracts the failing step from a job's log of GitHub Actions or Gitea's runner.

/// Maximum size of a log excerpt, in bytes.
pub(super) const MAX_LOG_BYTES: usize = 32 * 1024;

/// Returns the failing step of a job's log without time stamps, at most its last [`MAX_LOG_BYTES`]. If no failing step
/// is found, returns the end of the log.
pub(super) fn failing_part(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log);
    let lines: Vec<&str> = text.trim_start_matches('\u{feff}').lines().map(without_time).collect();
    let part = match failing_step(&lines) {
        Some((start, end)) => lines[start..=end].join("\n"),
        None => lines.join("\n"),
    };
    last_bytes(&part, MAX_LOG_BYTES).to_owned()
}

/// Returns the indices of the first and last line of the failing step: on GitHub from `##[group]Run …` to its final error, on
/// Gitea from `⭐ Run …` to `❌  Failure …`.
fn failing_step(lines: &[&str]) -> Option<(usize, usize)> {
    let ended = |line: &&str| {
        line.starts_with("##[error]Process completed with exit code") || line.trim_start().starts_with("❌  Failure")
    };
    let any_error = |line: &&str| line.starts_with("##[error]");
    let end = lines.iter().position(ended).or_else(|| lines.iter().rposition(any_error))?;
    let starts = |line: &&str| line.starts_with("##[group]Run ") || line.trim_start().starts_with("⭐ Run ");
    let start = lines[..end].iter().rposition(starts)?;
    Some((start, end))
}

/// Removes the time stamp that the runner puts before a line (`2026-01-31T12:00:00.1234567Z `).
fn without_time(line: &str) -> &str {
    match line.split_once(' ') {
        Some((first, rest)) if first.len() >= 20 && first.ends_with('Z') && first.as_bytes().get(10) == Some(&b'T') => {
            rest
        }
        _ => line,
    }
}

/// Returns the end of a text, at most `max` bytes, cut at a character boundary.
pub(super) fn last_bytes(text: &str, max: usize) -> &str {
    let mut start = text.len().saturating_sub(max);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_step_is_extracted() {
        let log = "\u{feff}2026-01-31T12:00:00.1234567Z ##[group]Run actions/checkout@v4\n\
                   2026-01-31T12:00:01.0000000Z Syncing repository\n\
                   2026-01-31T12:00:02.0000000Z ##[group]Run cargo test\n\
                   2026-01-31T12:00:02.0000000Z cargo test\n\
                   2026-01-31T12:00:02.0000000Z ##[endgroup]\n\
                   2026-01-31T12:00:03.0000000Z ##[error]src/lib.rs:3: assertion failed\n\
                   2026-01-31T12:00:03.0000000Z test adds ... FAILED\n\
                   2026-01-31T12:00:04.0000000Z ##[error]Process completed with exit code 101.\n\
                   2026-01-31T12:00:05.0000000Z Post job cleanup.\n";
        let expected = "##[group]Run cargo test\ncargo test\n##[endgroup]\n##[error]src/lib.rs:3: assertion failed\n\
                        test adds ... FAILED\n##[error]Process completed with exit code 101.";
        assert_eq!(failing_part(log.as_bytes()), expected);
    }

    #[test]
    fn failing_step_of_giteas_runner_is_extracted() {
        let log = "2026-11-24T05:16:11.1234567Z runner(version:v0.2.13) received task 7\n\
                   2026-11-24T05:16:12.0000000Z ⭐ Run Main actions/checkout@v4\n\
                   2026-11-24T05:16:13.0000000Z   ✅  Success - Main actions/checkout@v4\n\
                   2026-11-24T05:16:13.0000000Z ⭐ Run Main python -m pytest\n\
                   2026-11-24T05:16:14.0000000Z E   assert 41 == 42\n\
                   2026-11-24T05:16:14.0000000Z   ❌  Failure - Main python -m pytest\n\
                   2026-11-24T05:16:14.0000000Z exitcode '1': failure\n";
        let expected = "⭐ Run Main python -m pytest\nE   assert 41 == 42\n  ❌  Failure - Main python -m pytest";
        assert_eq!(failing_part(log.as_bytes()), expected);
    }

    #[test]
    fn log_without_steps_is_returned_completely() {
        for (log, expected) in [
            ("", ""),
            ("one\ntwo", "one\ntwo"),
            ("##[error]The runner was lost", "##[error]The runner was lost"),
            ("a b", "a b"),
        ] {
            assert_eq!(failing_part(log.as_bytes()), expected);
        }
        assert_eq!(failing_part(b"bad \xff byte"), "bad \u{fffd} byte");
    }

    #[test]
    fn long_log_is_cut_at_a_character_boundary() {
        let log = "ä".repeat(MAX_LOG_BYTES);
        let part = failing_part(format!("x{log}").as_bytes());
        assert!(part.len() <= MAX_LOG_BYTES && part.len() > MAX_LOG_BYTES - 2);
        assert!(part.chars().all(|c| c == 'ä'));
        assert_eq!(last_bytes("abc", 10), "abc");
    }
}
