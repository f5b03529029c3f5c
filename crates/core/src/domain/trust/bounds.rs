//! Bounds of the readers of bytes that an agent or an outsider chose. Each reader checks its bounds before it starts, and takes
//! at most twice the time for twice the bytes. The sum of a run's readers is bounded, too.

/// Maximum size of a request from an agent to its model and of a whole answer, in bytes. Models accept at most 32 MB.
pub const BROKER_BODY_BYTES: usize = 32 << 20;
/// Number of requests of the maximum size that a run may have in memory at a time.
pub const BROKER_BODIES: usize = 2;
/// Maximum size of the body of a delivery, in bytes. GitHub sends at most 25 MB.
pub const DELIVERY_BYTES: usize = 26 << 20;
/// Maximum number of values in the JSON document of a delivery. A value takes about 100 bytes of memory.
pub const JSON_VALUES: usize = 1_000_000;
/// Maximum nesting of objects and arrays in the JSON document of a delivery; real deliveries stay below 12.
pub const JSON_DEPTH: usize = 64;
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
/// Maximum number of elements and texts of a test report, and of its attributes.
pub const REPORT_NODES: u32 = 1_000_000;
/// Maximum size of one version of the files of a change that are compared with the base's, in bytes. `test-regions` limits the size of each
/// file, and the number of its parts.
pub const COMPARED_BYTES: usize = 64 << 20;
/// Maximum size of the repository's configuration file, in bytes.
pub const REPOSITORY_FILE_BYTES: usize = 256 << 10;
/// Maximum size of the report that an agent writes at the end of its run, in bytes.
pub const AGENT_REPORT_BYTES: u64 = 256 << 10;
