//! Parts of `/etc` that a sandbox shows, and a copy of them in one folder.
//!
//! bubblewrap reads all mounts of its namespace again for each mount that it adds. Thirty separate mounts for entries
//! of `/etc` took half of a sandbox's start time. The copy needs only one mount.

use std::fs::{self, DirBuilder, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::logins;
use crate::clock::Clock;

/// Folder of the machine's configuration.
pub(super) const ETC: &str = "/etc";
/// Entries of `/etc` that programs need and that contain no secrets.
const NAMES: [&str; 32] = [
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "group",
    "host.conf",
    "hosts",
    "java",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "login.defs",
    "machine-id",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "perl",
    "pki",
    "protocols",
    "profile",
    "resolv.conf",
    "services",
    "shells",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
];
/// Prefixes of further such entries that have versions in their names.
const PREFIXES: [&str; 3] = ["java-", "python3", "maven"];
/// Maximum depth of folders in an entry.
const MOST_LEVELS: usize = 16;
/// Time after which a further change of a file or folder is visible in its times, in milliseconds.
const SETTLED_MS: i64 = 3_000;
/// Permission bits with which others can list and enter a folder.
const ENTER: u32 = 0o005;
/// Permission bit with which others can read a file.
const READ: u32 = 0o004;
/// Mode of folders.
const FOLDER: u32 = 0o755;

/// Returns the paths of the entries that exist on this machine.
pub(super) fn shown() -> Vec<PathBuf> {
    parts(Path::new(ETC)).filter(|path| path.exists()).collect()
}

/// Returns the paths of the entries in `etc`, whether or not they exist.
fn parts(etc: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let versioned = fs::read_dir(etc).into_iter().flatten().flatten().filter(|entry| {
        entry.file_name().to_str().is_some_and(|name| PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
    });
    let named: Vec<PathBuf> = NAMES.iter().map(|name| etc.join(name)).collect();
    named.into_iter().chain(versioned.map(|entry| entry.path()))
}

/// Copies of the parts of `/etc` that sandboxes show, in a folder of this process. A copy is never changed, because
/// running sandboxes show it. If the machine's files change, the next start of a sandbox creates a new copy.
///
/// Files and folders that others cannot read are left out, because they would not be readable in a sandbox either.
#[derive(Debug)]
pub struct EtcCopies {
    etc: PathBuf,
    folder: PathBuf,
    last: Mutex<Copies>,
}

#[derive(Debug, Default)]
struct Copies {
    /// Number of copies created so far.
    made: usize,
    last: Option<EtcCopy>,
}

#[derive(Debug)]
struct EtcCopy {
    folder: PathBuf,
    /// Stamps of the copied files and folders when they were copied. Links in folders are left out, because a change
    /// of a link changes the folder.
    sources: Vec<(PathBuf, Option<SourceStamp>)>,
}

/// Properties of a file or folder. At least one differs after a change or replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SourceStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    mode: u32,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl SourceStamp {
    /// Returns the stamp of a path's target; `None` if it does not exist.
    pub(super) fn of(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|found| Self::from(&found))
    }

    /// Whether the last change was long enough ago that a further change is visible in the stamp. File systems round times.
    pub(super) fn is_settled(&self) -> bool {
        Clock::System.now().0 - self.changed.0.saturating_mul(1_000) >= SETTLED_MS
    }
}

impl From<&Metadata> for SourceStamp {
    fn from(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            mode: found.mode(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

impl EtcCopies {
    /// Creates the state without making a copy. `folder` exists, belongs to this process alone, and is removed with
    /// its content after the process ends.
    pub fn new(folder: PathBuf) -> Self {
        Self { etc: ETC.into(), folder, last: Mutex::default() }
    }

    /// Returns the folder with a copy of the machine's current files; `None` if no copy can be made.
    pub(super) fn current(&self) -> Option<PathBuf> {
        let mut copies = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = copies.last.as_ref().filter(|last| last.is_current()) {
            return Some(last.folder.clone());
        }
        let folder = self.folder.join(copies.made.to_string());
        copies.made += 1;
        match EtcCopy::make(&self.etc, folder) {
            Ok(copy) => copies.last.insert(copy).folder.clone().into(),
            Err(error) => {
                tracing::warn!(%error, folder = %self.folder.display(), "cannot copy /etc; sandboxes start slower");
                None
            }
        }
    }
}

impl EtcCopy {
    fn make(etc: &Path, folder: PathBuf) -> io::Result<Self> {
        let mut copy = Self { folder, sources: vec![(etc.to_owned(), SourceStamp::of(etc))] };
        create_folder(&copy.folder)?;
        for source in parts(etc) {
            let Ok(name) = source.strip_prefix(etc).map(Path::to_owned) else { continue };
            // The target of a link is shown in place of the link, as by a mount.
            let Ok(found) = fs::metadata(&source) else {
                copy.sources.push((source, None));
                continue;
            };
            let target = copy.folder.join(name);
            if let Some(above) = target.parent().filter(|above| !above.exists()) {
                create_folder(above)?;
            }
            copy.add(&source, &found, &target, 0)?;
        }
        Ok(copy)
    }

    fn is_current(&self) -> bool {
        self.folder.is_dir() && self.sources.iter().all(|(path, stamp)| SourceStamp::of(path) == *stamp)
    }

    /// Copies a file, or a folder with all of its content.
    fn add(&mut self, source: &Path, found: &Metadata, target: &Path, level: usize) -> io::Result<()> {
        if found.is_symlink() {
            return symlink(fs::read_link(source)?, target);
        }
        self.sources.push((source.to_owned(), Some(SourceStamp::from(found))));
        if found.is_file() && found.mode() & READ == READ && !logins::is_login(source) {
            return copy_file(source, found, target);
        }
        if !found.is_dir() || found.mode() & ENTER != ENTER || level == MOST_LEVELS {
            return Ok(());
        }
        create_folder(target)?;
        for entry in fs::read_dir(source)?.flatten() {
            // Files removed in the meantime are not part of it.
            let Ok(found) = entry.metadata() else { continue };
            self.add(&entry.path(), &found, &target.join(entry.file_name()), level + 1)?;
        }
        Ok(())
    }
}

fn copy_file(source: &Path, found: &Metadata, target: &Path) -> io::Result<()> {
    let mode = found.mode() & FOLDER;
    let content = fs::read(source)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(target)?;
    file.write_all(&content)?;
    // The umask of the service may keep others from reading, but the copy is for another user.
    file.set_permissions(Permissions::from_mode(mode))
}

fn create_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().mode(FOLDER).create(folder)?;
    fs::set_permissions(folder, Permissions::from_mode(FOLDER))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(file: &Path, content: &str, mode: u32) {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let _ = fs::remove_file(file);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(file).unwrap();
        file.write_all(content.as_bytes()).unwrap();
        // For every umask.
        file.set_permissions(Permissions::from_mode(mode)).unwrap();
    }

    fn copies() -> (tempfile::TempDir, EtcCopies) {
        let root = tempfile::tempdir().unwrap();
        let etc = root.path().join("etc");
        write(&etc.join("hosts"), "127.0.0.1 localhost", 0o755);
        write(&etc.join("shadow"), "root:secret", 0o644);
        write(&etc.join("pki/tls/private/key"), "secret key", 0o600);
        write(&etc.join("pki/tls/cert"), "certificate", 0o644);
        write(&etc.join("python3.11/conf"), "python", 0o644);
        write(&etc.join("maven/settings.xml"), "<server><password>secret</password></server>", 0o644);
        write(&etc.join("maven/m2.conf"), "main is org.apache.maven", 0o644);
        write(&root.path().join("run/resolv.conf"), "nameserver 1.1.1.1", 0o644);
        symlink("../run/resolv.conf", etc.join("resolv.conf")).unwrap();
        symlink("cert", etc.join("pki/tls/link")).unwrap();
        symlink("/nowhere", etc.join("pki/tls/dangling")).unwrap();
        for folder in ["etc", "etc/pki", "etc/pki/tls", "etc/pki/tls/private", "etc/python3.11", "etc/maven", "run"] {
            fs::set_permissions(root.path().join(folder), Permissions::from_mode(0o755)).unwrap();
        }
        let folder = root.path().join("copies");
        fs::create_dir(&folder).unwrap();
        let copies = EtcCopies { etc, ..EtcCopies::new(folder) };
        (root, copies)
    }

    #[test]
    fn copy_contains_world_readable_files() {
        let (_root, copies) = copies();
        let copy = copies.current().unwrap();
        let read = |path: &str| fs::read_to_string(copy.join(path)).ok();
        assert_eq!(read("hosts").as_deref(), Some("127.0.0.1 localhost"));
        assert_eq!(read("resolv.conf").as_deref(), Some("nameserver 1.1.1.1"));
        assert!(!copy.join("resolv.conf").is_symlink(), "as a mount shows it");
        assert_eq!(read("python3.11/conf").as_deref(), Some("python"));
        assert_eq!(fs::read_link(copy.join("pki/tls/link")).unwrap(), Path::new("cert"));
        assert!(copy.join("pki/tls/dangling").is_symlink());
        assert_eq!((read("shadow"), read("pki/tls/private/key"), read("maven/settings.xml")), (None, None, None));
        assert!(read("maven/m2.conf").is_some());
        let mode = |path: &str| fs::metadata(copy.join(path)).unwrap().mode() & 0o777;
        assert_eq!([mode("hosts"), mode("pki/tls/cert"), mode("pki")], [0o755, 0o644, 0o755]);
    }

    /// Covers the packages' unit, which has `UMask=0077`. The test runs itself as another process, because the umask
    /// belongs to a whole process.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test in another process")]
    fn copies_are_readable_with_any_umask() {
        if std::env::var_os("RALPH_TEST_UMASK").is_none() {
            let test = "process::sandbox::etc::tests::copies_are_readable_with_any_umask";
            let script = "umask 077 && RALPH_TEST_UMASK=1 exec \"$0\" --exact \"$1\"";
            let program = std::env::current_exe().unwrap();
            let mut shell = std::process::Command::new("/bin/sh");
            let done = shell.args(["-c", script]).arg(program).arg(test).output().unwrap();
            let text = String::from_utf8_lossy(&done.stdout).into_owned();
            assert!(done.status.success() && text.contains("1 passed"), "{text}");
            return;
        }
        let (_root, copies) = copies();
        let copy = copies.current().expect("a copy");
        let mode = |path: &str| fs::metadata(copy.join(path)).unwrap().mode() & 0o777;
        assert_eq!([mode(""), mode("hosts"), mode("pki")], [0o755; 3]);
    }

    #[test]
    fn changed_files_are_copied_again_and_older_copies_remain() {
        let (root, copies) = copies();
        let first = copies.current().unwrap();
        assert_eq!(copies.current().unwrap(), first, "nothing changed");
        let etc = root.path().join("etc");
        let changes: [(&str, &dyn Fn()); 5] = [
            ("replaced", &|| write(&etc.join("hosts"), "10.0.0.1 other", 0o644)),
            ("what a link leads to", &|| fs::write(root.path().join("run/resolv.conf"), "nameserver 9.9.9.9").unwrap()),
            ("new", &|| write(&etc.join("timezone"), "Etc/UTC", 0o644)),
            ("in a folder", &|| fs::write(etc.join("pki/tls/cert"), "another").unwrap()),
            ("a link in a folder", &|| symlink("cert", etc.join("pki/tls/second")).unwrap()),
        ];
        let mut last = first.clone();
        for (what, change) in changes {
            change();
            let next = copies.current().unwrap();
            assert_ne!(next, last, "{what}");
            last = next;
        }
        let read = |copy: &Path, path: &str| fs::read_to_string(copy.join(path)).unwrap();
        assert_eq!(
            (read(&first, "hosts"), read(&last, "hosts")),
            ("127.0.0.1 localhost".into(), "10.0.0.1 other".into())
        );
        assert_eq!(read(&last, "resolv.conf"), "nameserver 9.9.9.9");
        assert_eq!(read(&last, "pki/tls/second"), "another");
    }

    #[test]
    fn copies_that_cannot_be_made_are_omitted() {
        let (root, copies) = copies();
        fs::remove_dir(root.path().join("copies")).unwrap();
        assert_eq!(copies.current(), None);
    }
}
