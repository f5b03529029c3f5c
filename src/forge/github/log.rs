//! Finds what matters in the log of a GitHub Actions job.

/// What of a log is kept, in bytes.
pub(super) const KEPT_BYTES: usize = 32 * 1024;

/// The failing step of a job's log without time stamps, or the whole log where no step can be told; its last 32 KiB.
pub(super) fn failing_part(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log);
    let lines: Vec<&str> = text.trim_start_matches('\u{feff}').lines().map(without_time).collect();
    let part = match failing_step(&lines) {
        Some((start, end)) => lines[start..=end].join("\n"),
        None => lines.join("\n"),
    };
    last_bytes(&part, KEPT_BYTES).to_owned()
}

/// First and last line of the step that failed: from its `##[group]Run …` to the error that ended it.
fn failing_step(lines: &[&str]) -> Option<(usize, usize)> {
    let ended = |line: &&str| line.starts_with("##[error]Process completed with exit code");
    let any_error = |line: &&str| line.starts_with("##[error]");
    let end = lines.iter().position(ended).or_else(|| lines.iter().rposition(any_error))?;
    let start = lines[..end].iter().rposition(|line| line.starts_with("##[group]Run "))?;
    Some((start, end))
}

/// A line without the moment that the runner puts before it (`2026-01-31T12:00:00.1234567Z `).
fn without_time(line: &str) -> &str {
    match line.split_once(' ') {
        Some((first, rest)) if first.len() >= 20 && first.ends_with('Z') && first.as_bytes().get(10) == Some(&b'T') => {
            rest
        }
        _ => line,
    }
}

/// The end of a text, at most so many bytes, cut at a character.
pub(super) fn last_bytes(text: &str, most: usize) -> &str {
    let mut start = text.len().saturating_sub(most);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_failing_step_is_cut_out() {
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
    fn a_log_without_steps_is_taken_whole() {
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
    fn only_the_end_is_kept_and_no_character_is_cut() {
        let log = "ä".repeat(KEPT_BYTES);
        let part = failing_part(format!("x{log}").as_bytes());
        assert!(part.len() <= KEPT_BYTES && part.len() > KEPT_BYTES - 2);
        assert!(part.chars().all(|c| c == 'ä'));
        assert_eq!(last_bytes("abc", 10), "abc");
    }
}
