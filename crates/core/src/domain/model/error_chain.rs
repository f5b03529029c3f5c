//! Formats an error with its sources.

use std::error::Error;

/// Returns the messages of an error and its sources in one line, without repetitions.
pub fn error_chain(error: &dyn Error) -> String {
    let mut detail = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let text = inner.to_string();
        if !detail.contains(&text) {
            detail = format!("{detail}: {text}");
        }
        cause = inner.source();
    }
    // Some errors append a backtrace after their first line.
    detail.lines().next().unwrap_or_default().to_owned()
}
