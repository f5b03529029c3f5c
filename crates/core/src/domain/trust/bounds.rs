//! Bounds of the readers of bytes that an agent or an outsider chose. Each reader checks its bounds before it starts, and takes
//! at most twice the time for twice the bytes. The sum of a run's readers is bounded, too.

/// Maximum size of a request from an agent to its model and of a whole answer, in bytes. Models accept at most 32 MB.
pub const BROKER_BODY_BYTES: usize = 32 << 20;
/// Number of requests of the maximum size that a run may have in memory at a time.
pub const BROKER_BODIES: usize = 2;
/// Maximum size of an answer of a model to the service itself, in bytes.
pub const ASSISTANT_ANSWER_BYTES: usize = 8 << 20;
/// Number of bytes that are kept of each output stream of an agent.
pub const AGENT_OUTPUT_BYTES: usize = 4 << 20;
/// Maximum length of an agent's request to a tool of the service, in bytes. Longer requests are skipped.
pub const TOOL_REQUEST_BYTES: usize = 256 << 10;
/// Maximum size of an agent's session, in bytes. A larger one is not resumed.
pub const SESSION_BYTES: u64 = 256 << 20;
/// Maximum number of files of an agent's session.
pub const SESSION_FILES: usize = 10_000;
/// Maximum size of the archive of an agent's session, in bytes.
pub const SESSION_ARCHIVE_BYTES: usize = 16 << 20;
/// Maximum size of the bodies of all deliveries that arrive at a time, in bytes; three bodies of the maximum size fit.
pub const DELIVERIES_BYTES: usize = 80 << 20;
/// Maximum size of the body of a delivery, in bytes. GitHub sends at most 25 MB.
pub const DELIVERY_BYTES: usize = 26 << 20;
/// Maximum number of values in the JSON document of a delivery. A value takes about 100 bytes of memory.
pub const JSON_VALUES: usize = 1_000_000;
/// Maximum nesting of objects and arrays in the JSON document of a delivery; real deliveries stay below 12.
pub const JSON_DEPTH: usize = 64;
/// Maximum length of the displayed text of an issue or comment, in bytes. Forges allow less.
pub const TEXT_BYTES: usize = 512 << 10;
/// Maximum number of elements and texts of a page. Issues of 64 KiB, the maximum of GitHub, have less than a fifth.
pub const TEXT_NODES: usize = 50_000;
/// Maximum size of all attributes of a base, in bytes. Larger ones are ignored.
pub const ATTRIBUTES_BYTES: usize = 1 << 20;
/// Maximum size of a committed file, in bytes; forges reject larger ones.
pub const COMMITTED_FILE_BYTES: u64 = 100 << 20;
/// Maximum number of changed files in a commit.
pub const COMMITTED_FILES: usize = 50_000;
/// Maximum size of the complete change of a branch, in bytes.
pub const BRANCH_CHANGE_BYTES: usize = 16 << 20;
/// Maximum total size of the files of a push that are scanned, in bytes.
pub const PUSHED_BYTES: usize = 64 << 20;
/// Maximum total size of the files of Git LFS that are fetched for a work tree, in bytes.
pub const ASSET_BYTES: u64 = 4 << 30;
/// Maximum number of files of Git LFS that are fetched for a work tree.
pub const ASSETS: usize = 20_000;
/// Number of bytes that the scan for secrets views at a time. Its memory is about 25 times this number.
pub const SCAN_WINDOW: usize = 1 << 20;
/// Number of bytes that two neighboring views have in common. A split or encoded secret within as many bytes is found.
pub const SCAN_OVERLAP: usize = 64 << 10;
/// Maximum size that is unpacked from one archive, in bytes.
pub const ARCHIVE_BYTES: u64 = 16 << 20;
/// Maximum size that is unpacked from all archives of a push, in bytes.
pub const ARCHIVES_BYTES: u64 = 64 << 20;
/// Maximum number of members of an archive that are unpacked.
pub const ARCHIVE_MEMBERS: usize = 5_000;
/// Maximum size of the output of a check that is read for counts and failures, in bytes.
pub const CHECK_OUTPUT_BYTES: usize = 4 << 20;
/// Maximum size of a test report, in bytes.
pub const REPORT_BYTES: u64 = 16 << 20;
/// Maximum size of all test reports of a check, in bytes.
pub const REPORTS_BYTES: u64 = 64 << 20;
/// Maximum number of test reports of a check.
pub const REPORTS: usize = 2_000;
/// Maximum number of entries of folders that are visited in search of a check's reports.
pub const REPORT_ENTRIES: usize = 200_000;
/// Maximum number of elements and texts of a test report, and of its attributes.
pub const REPORT_NODES: u32 = 1_000_000;
/// Maximum size of one version of the files of a change that are compared with the base's, in bytes. `test-regions` limits the size of each
/// file, and the number of its parts.
pub const COMPARED_BYTES: usize = 64 << 20;
/// Maximum size of the repository's configuration file, in bytes.
pub const REPOSITORY_FILE_BYTES: usize = 256 << 10;
/// Maximum size of the report that an agent writes at the end of its run, in bytes.
pub const AGENT_REPORT_BYTES: u64 = 256 << 10;

/// Bound of a kind of bytes, for the page about security.
pub struct ReaderBound {
    /// Bytes that are read.
    pub input: &'static str,
    /// Maximum size, in bytes.
    pub bytes: u64,
    /// Further bounds.
    pub further: &'static [FurtherBound],
}

/// Further bound of a kind of bytes.
pub struct FurtherBound {
    /// Maximum size or number.
    pub most: u64,
    /// Whether `most` is a size in bytes.
    pub is_size: bool,
    /// Things that `most` counts, such as "files".
    pub counted: &'static str,
}

const fn size(most: usize, counted: &'static str) -> FurtherBound {
    FurtherBound { most: most as u64, is_size: true, counted }
}

const fn number(most: usize, counted: &'static str) -> FurtherBound {
    FurtherBound { most: most as u64, is_size: false, counted }
}

/// Bounds of all kinds of bytes that an agent or an outsider chose.
#[rustfmt::skip]
pub const TABLE: [ReaderBound; 18] = [
    ReaderBound { input: "request of an agent to a model, answer of a model", bytes: BROKER_BODY_BYTES as u64, further: &[number(BROKER_BODIES, "of this size per run at a time")] },
    ReaderBound { input: "answer of a model to the service", bytes: ASSISTANT_ANSWER_BYTES as u64, further: &[] },
    ReaderBound { input: "kept output of an agent", bytes: AGENT_OUTPUT_BYTES as u64, further: &[] },
    ReaderBound { input: "report of an agent", bytes: AGENT_REPORT_BYTES, further: &[] },
    ReaderBound { input: "request of an agent to a tool of the service", bytes: TOOL_REQUEST_BYTES as u64, further: &[] },
    ReaderBound { input: "session of an agent", bytes: SESSION_BYTES, further: &[number(SESSION_FILES, "files"), size(SESSION_ARCHIVE_BYTES, "packed")] },
    ReaderBound { input: "delivery", bytes: DELIVERY_BYTES as u64, further: &[number(JSON_VALUES, "values"), number(JSON_DEPTH, "levels"), size(DELIVERIES_BYTES, "of all deliveries at a time")] },
    ReaderBound { input: "displayed text of an issue or comment", bytes: TEXT_BYTES as u64, further: &[number(TEXT_NODES, "elements and texts")] },
    ReaderBound { input: "configuration file of a repository", bytes: REPOSITORY_FILE_BYTES as u64, further: &[] },
    ReaderBound { input: "git attributes of a base", bytes: ATTRIBUTES_BYTES as u64, further: &[] },
    ReaderBound { input: "committed file", bytes: COMMITTED_FILE_BYTES, further: &[number(COMMITTED_FILES, "files per commit")] },
    ReaderBound { input: "change of a branch", bytes: BRANCH_CHANGE_BYTES as u64, further: &[] },
    ReaderBound { input: "compared version of the changed files", bytes: COMPARED_BYTES as u64, further: &[] },
    ReaderBound { input: "files of a push", bytes: PUSHED_BYTES as u64, further: &[size(SCAN_WINDOW, "scanned at a time")] },
    ReaderBound { input: "unpacked archives of a push", bytes: ARCHIVES_BYTES, further: &[size(ARCHIVE_BYTES as usize, "per archive"), number(ARCHIVE_MEMBERS, "members per archive")] },
    ReaderBound { input: "files of Git LFS in a work tree", bytes: ASSET_BYTES, further: &[number(ASSETS, "files")] },
    ReaderBound { input: "output of a check", bytes: CHECK_OUTPUT_BYTES as u64, further: &[] },
    ReaderBound { input: "test reports of a check", bytes: REPORTS_BYTES, further: &[number(REPORTS, "reports"), size(REPORT_BYTES as usize, "per report"), number(REPORT_NODES as usize, "elements and texts per report")] },
];
