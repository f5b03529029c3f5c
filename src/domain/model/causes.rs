//! Errors for people.

use std::error::Error;

/// An error with its causes in one line, each said once.
pub fn causes(error: &dyn Error) -> String {
    let mut detail = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let text = inner.to_string();
        if !detail.contains(&text) {
            detail = format!("{detail}: {text}");
        }
        cause = inner.source();
    }
    // Some errors carry a backtrace below their first line.
    detail.lines().next().unwrap_or_default().to_owned()
}
