//! Unix sockets of the machine that lie in folders of a view. A network namespace does not separate them, and a read-only mount
//! does not prevent connections.

use std::fs;
use std::path::{Path, PathBuf};

use crate::domain::trust::visible::in_system;

/// Fields of a line of `/proc/net/unix` before the path.
const FIELDS: usize = 7;

/// Returns the sockets in the system's folders and in `shown` that programs could connect to, without those in `writable`, which
/// are the run's own, and those that are shown themselves.
pub(super) fn visible(shown: &[PathBuf], writable: &[PathBuf]) -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let real = paths(&text).filter_map(|path| path.canonicalize().ok());
    let mut found: Vec<PathBuf> = real.filter(|path| is_visible(path, shown, writable)).collect();
    found.sort();
    found.dedup();
    found
}

fn is_visible(socket: &Path, shown: &[PathBuf], writable: &[PathBuf]) -> bool {
    let below = |folders: &[PathBuf]| folders.iter().any(|folder| socket.starts_with(folder));
    (in_system(socket) || below(shown)) && !below(writable) && !shown.iter().any(|path| path == socket)
}

/// Returns the absolute paths in `/proc/net/unix`; others are names without a file.
fn paths(text: &str) -> impl Iterator<Item = &Path> {
    let path = |line: &'_ str| -> Option<usize> {
        let mut rest = line;
        for _ in 0..FIELDS {
            rest = rest.trim_start();
            rest = &rest[rest.find(' ')?..];
        }
        let rest = rest.trim_start();
        rest.starts_with('/').then_some(line.len() - rest.len())
    };
    text.lines().skip(1).filter_map(move |line| Some(Path::new(&line[path(line)?..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_sockets_are_read() {
        let text = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                    000000: 00000002 00000000 00010000 0001 01 12 /opt/a b/s.sock\n\
                    000000: 00000002 00000000 00010000 0001 01 13 @abstract\n\
                    000000: 00000003 00000000 00000000 0001 03  14\n\
                    000000: 00000002 00000000 00010000 0001 01 15 /usr/run/x\n";
        let found: Vec<&Path> = paths(text).collect();
        assert_eq!(found, [Path::new("/opt/a b/s.sock"), Path::new("/usr/run/x")]);
    }

    #[test]
    fn sockets_of_the_run_stay() {
        let shown = [PathBuf::from("/opt/tool"), "/data/run/memory.sock".into(), "/data/tree".into()];
        let is = |path: &str| is_visible(Path::new(path), &shown, &shown[2..]);
        assert!(is("/opt/tool/s") && is("/usr/lib/s"));
        assert!(!is("/data/run/memory.sock") && !is("/data/tree/s") && !is("/run/s") && !is("/usr/local/s"));
    }
}
