//! Temporary directories in memory for tests.

use std::path::Path;
use std::sync::Once;

/// Space required by all concurrent tests, in bytes.
const ROOM: u64 = 2 << 30;

/// Sets the folder for temporary directories to tmpfs if it has enough space and `TMPDIR` is not set. Tests sync often and
/// create thousands of small files, which is slow on shared disks.
pub fn temporary_in_memory() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let memory = Path::new("/dev/shm");
        let room = rustix::fs::statvfs(memory).is_ok_and(|fs| fs.f_bavail.saturating_mul(fs.f_frsize) >= ROOM);
        if room && std::env::temp_dir() == Path::new("/tmp") {
            // Keeps an existing override.
            let _ = tempfile::env::override_temp_dir(memory);
        }
    });
}
