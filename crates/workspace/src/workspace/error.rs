//! Errors of mirrors and work trees, classified by the messages of git.

use std::path::{Path, PathBuf};

use crate::domain::model::ids::Sha;

/// Failed operation on a mirror, a tree or a remote.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The remote has no branches.
    #[error("{url} is an empty repository; push a first commit to it")]
    EmptyRepository { url: String },
    /// The remote does not have the base branch.
    #[error("{url} has no branch `{branch}`{}", default_hint(.default_branch))]
    BaseBranchMissing {
        url: String,
        branch: String,
        /// Default branch of the remote; `None` if it is not reported.
        default_branch: Option<String>,
    },
    /// The remote is unreachable or not a git server.
    #[error("cannot reach {url}: {detail}")]
    Unreachable { url: String, detail: String, transient: bool },
    /// The remote rejected the credential, or requires one.
    #[error("{url} refused the credential: {detail}")]
    AuthFailed { url: String, detail: String },
    /// The address is not valid.
    #[error("`{url}` cannot be used as a git address: {reason}")]
    BadUrl { url: String, reason: &'static str },
    /// A name is not valid as a branch or path.
    #[error("`{name}` cannot be used as a {what}")]
    BadName { what: &'static str, name: String },
    /// A pattern of protected paths is invalid.
    #[error("protected path `{pattern}` is not a valid pattern: {source}")]
    BadPattern { pattern: String, source: globset::Error },
    /// The disk is full.
    #[error("no space left on the disk while trying to {what}; free some or move the state directory")]
    DiskFull { what: String },
    /// A recorded commit is neither in the mirror nor on the remote.
    #[error("commit {commit} is neither in the mirror nor on the remote")]
    CommitMissing { commit: Sha },
    /// Contents of Git LFS in a push are neither in the loop's store nor on the remote.
    #[error(
        "the contents of {files} in Git LFS are neither on the forge nor on this host, but only on the host that committed them"
    )]
    ContentMissing { files: String },
    /// The tree of a loop is missing; prepare it again.
    #[error("the work tree {} does not exist", .0.display())]
    TreeMissing(PathBuf),
    /// A size limit is exceeded.
    #[error("{what} is too large: over {limit}")]
    TooLarge { what: String, limit: u64 },
    /// git is missing or too old.
    #[error("git {found} cannot be used, {needed} or later is needed")]
    GitVersion { found: String, needed: String },
    /// A git command exceeded its time limit.
    #[error("git did not finish within {seconds} s: {what}")]
    Timeout { what: String, seconds: u64 },
    /// A git command failed for another reason.
    #[error("git could not {what}: {detail}")]
    Git { what: String, detail: String },
    /// A file operation failed.
    #[error("cannot {what} {}: {source}", .path.display())]
    Io { what: &'static str, path: PathBuf, source: std::io::Error },
}

fn default_hint(default_branch: &Option<String>) -> String {
    default_branch.as_ref().map(|name| format!("; its default branch is `{name}`")).unwrap_or_default()
}

impl WorkspaceError {
    /// Whether a retry may succeed without intervention.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { transient, .. } => *transient,
            Self::Timeout { .. } => true,
            Self::Io { source, .. } => {
                matches!(source.kind(), std::io::ErrorKind::Interrupted | std::io::ErrorKind::WouldBlock)
            }
            _ => false,
        }
    }

    /// Returns a function for `map_err` that converts the error of a file operation.
    pub(super) fn io(what: &'static str, path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.as_ref().to_path_buf();
        move |source| match source.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Self::DiskFull { what: format!("{what} {}", path.display()) }
            }
            _ => Self::Io { what, path, source },
        }
    }

    /// Classifies a failure by git's message. `url` is set for commands that access a remote.
    pub(super) fn from_git(what: &str, detail: &str, url: Option<&str>) -> Self {
        let has = |needles: &[&str]| needles.iter().any(|needle| detail.contains(needle));
        if has(&["No space left on device", "Disk quota exceeded"]) {
            return Self::DiskFull { what: what.to_owned() };
        }
        let detail = detail.to_owned();
        let Some(url) = url.map(str::to_owned) else {
            return Self::Git { what: what.to_owned(), detail };
        };
        if has(AUTH_WORDS) {
            Self::AuthFailed { url, detail }
        } else if has(TRANSIENT_WORDS) || (has(HTTP_FAILURE) && !has(HTTP_STATUS)) {
            Self::Unreachable { url, detail, transient: true }
        } else if has(ABSENT_WORDS) {
            Self::Unreachable { url, detail, transient: false }
        } else {
            Self::Git { what: what.to_owned(), detail }
        }
    }
}

const AUTH_WORDS: &[&str] = &[
    "Authentication failed",
    "could not read Username",
    "could not read Password",
    "unable to get password",
    "terminal prompts disabled",
    "error: 401",
    "error: 403",
    "HTTP 403",
    "invalid credentials",
];

/// Messages about failures of a connection over SSH, and about answers of an overloaded server.
const TRANSIENT_WORDS: &[&str] = &[
    "Could not resolve host",
    "Connection refused",
    "Connection reset",
    "Connection timed out",
    "Operation timed out",
    "early EOF",
    "unexpected disconnect",
    "the remote end hung up unexpectedly",
    "RPC failed",
    "error: 429",
    "error: 500",
    "error: 502",
    "error: 503",
    "error: 504",
];

/// Message about a failed request over HTTP. Its reason, in words of the HTTP library, differs by version.
const HTTP_FAILURE: &[&str] = &["unable to access '"];

/// Message about a failed request to which the server answered.
const HTTP_STATUS: &[&str] = &["The requested URL returned error"];

const ABSENT_WORDS: &[&str] = &[
    "not found",
    "does not exist",
    "does not appear to be a git repository",
    "error: 404",
    "Could not read from remote",
];

/// Whether git's message shows that the server does not accept the token, or hides the repository from it.
pub(super) fn is_refusal_of_token(message: &str) -> bool {
    AUTH_WORDS.iter().chain(&["not found", "error: 404"]).any(|words| message.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_messages_map_to_error_variants() {
        let url = Some("https://forge/x");
        let name = |detail: &str| match WorkspaceError::from_git("fetch", detail, url) {
            WorkspaceError::DiskFull { .. } => "disk",
            WorkspaceError::AuthFailed { .. } => "auth",
            WorkspaceError::Unreachable { transient: true, .. } => "transient",
            WorkspaceError::Unreachable { transient: false, .. } => "absent",
            WorkspaceError::Git { .. } => "git",
            _ => "other",
        };
        for (detail, expected) in [
            ("fatal: write error: No space left on device", "disk"),
            ("fatal: Authentication failed for 'https://forge/x/'", "auth"),
            ("fatal: could not read Username for 'https://forge': terminal prompts disabled", "auth"),
            ("fatal: unable to access 'https://forge/x/': The requested URL returned error: 403", "auth"),
            ("fatal: unable to access 'https://forge/x/': Could not resolve host: forge", "transient"),
            ("fatal: unable to access 'https://forge/x/': The requested URL returned error: 502", "transient"),
            (
                "fatal: unable to access 'https://forge/x/': transfer closed with outstanding read data remaining",
                "transient",
            ),
            ("fatal: unable to access 'https://forge/x/': Failed to connect to forge port 443", "transient"),
            ("fatal: unable to access 'https://forge/x/': HTTP/2 stream 5 was reset", "transient"),
            ("fatal: unable to access 'https://forge/x/': Send failure: Broken pipe", "transient"),
            ("fatal: unable to access 'https://forge/x/': The requested URL returned error: 404", "absent"),
            ("fatal: repository 'https://forge/x/' not found", "absent"),
            ("fatal: something else", "git"),
        ] {
            assert_eq!(name(detail), expected, "{detail}");
        }
        assert!(matches!(WorkspaceError::from_git("add", "Connection refused", None), WorkspaceError::Git { .. }));
    }

    #[test]
    fn transient_errors_are_recognized() {
        let unreachable =
            |transient| WorkspaceError::Unreachable { url: String::new(), detail: String::new(), transient };
        assert!(unreachable(true).is_transient());
        assert!(!unreachable(false).is_transient());
        assert!(WorkspaceError::Timeout { what: String::new(), seconds: 1 }.is_transient());
        assert!(!WorkspaceError::DiskFull { what: String::new() }.is_transient());
    }
}
