//! Session files of agents in the database, so that another host can resume a session. With SQLite there is one host, and
//! nothing is saved.

use std::io;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use crate::domain::loops::{AgentSession, Loop};
use crate::domain::trust::bounds::SESSION_ARCHIVE_BYTES;
use crate::engine::context::ServiceContext;
use crate::engine::work::remove_folder;
use crate::process::private;
use crate::store::leases::LeaseToken;
use crate::store::loop_files::{self, SavedSession};

/// Maximum size of all archives together, in bytes.
const ALL_BYTES: u64 = 1 << 30;
/// Maximum size of the files of an archive, in bytes; the same as for a session.
const FILES_BYTES: u64 = 256 << 20;

/// Session files of one loop.
pub(super) struct SessionFiles<'a> {
    pub(super) context: &'a ServiceContext,
    pub(super) current: &'a Loop,
    /// Folder of the loop's sessions on this host.
    pub(super) folder: PathBuf,
}

impl SessionFiles<'_> {
    /// Saves the session that the next run can resume. A failure only means that another host starts a new session.
    pub(super) async fn save(&self, session: Option<&AgentSession>, lease: &LeaseToken) {
        if !self.context.store.is_server() {
            return;
        }
        let archive = match session {
            Some(session) => {
                let folder = self.folder.join(&session.files);
                let packed = tokio::task::spawn_blocking(move || packed(&folder)).await.map_err(io::Error::other);
                packed.flatten().unwrap_or_else(|error| {
                    tracing::warn!(loop_id = %self.current.id, %error, "could not pack the agent's session for other hosts");
                    None
                })
            }
            None => None,
        };
        let id = self.current.id.clone();
        let lease = lease.clone();
        let now = self.context.clock.now();
        let saved =
            session.zip(archive).map(|(session, archive)| SavedSession { name: session.files.clone(), archive });
        let saving = self.context.store.write(move |c| match &saved {
            Some(saved) => loop_files::save_session(c, &id, saved, &lease, now, ALL_BYTES),
            None => lease.check(c).and_then(|()| loop_files::forget_session(c, &id)),
        });
        if let Err(error) = saving.await {
            tracing::warn!(loop_id = %self.current.id, %error, "could not save the agent's session for other hosts");
        }
    }

    /// Makes the files of a session that another host saved. Returns `false` if they are neither here nor in the database.
    pub(super) async fn restore(&self, session: &AgentSession) -> bool {
        let folder = self.folder.join(&session.files);
        if !self.context.store.is_server() || folder.is_dir() {
            return true;
        }
        let id = self.current.id.clone();
        let saved = self.context.store.read(move |c| loop_files::session(c, &id)).await;
        let archive = match saved {
            Ok(Some(saved)) if saved.name == session.files => saved.archive,
            Ok(_) => return false,
            Err(error) => {
                tracing::warn!(loop_id = %self.current.id, %error, "could not read the agent's session; the agent starts a new one");
                return false;
            }
        };
        let unpacked = tokio::task::spawn_blocking(move || unpack(&archive, &folder)).await.map_err(io::Error::other);
        if let Err(error) = unpacked.flatten() {
            tracing::warn!(loop_id = %self.current.id, %error, "could not unpack the agent's session; the agent starts a new one");
            return false;
        }
        true
    }
}

/// Archive in memory, which ends with an error of kind `FileTooLarge` at its maximum size.
#[derive(Default)]
struct BoundedArchive(Vec<u8>);

impl io::Write for BoundedArchive {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > SESSION_ARCHIVE_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Packs the regular files of a folder; `None` if the archive is larger than 16 MiB or the folder does not exist.
fn packed(folder: &Path) -> io::Result<Option<Vec<u8>>> {
    if !folder.is_dir() {
        return Ok(None);
    }
    let mut archive = tar::Builder::new(GzEncoder::new(BoundedArchive::default(), Compression::fast()));
    archive.follow_symlinks(false);
    let pack = append_files(&mut archive, folder, Path::new(""));
    match pack.and_then(|()| archive.into_inner()?.finish()) {
        Ok(archive) => Ok(Some(archive.0)),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Ok(None),
        Err(error) => Err(error),
    }
}

/// Adds the regular files of `folder` and the folders below it, without links.
fn append_files<W: io::Write>(archive: &mut tar::Builder<W>, folder: &Path, name: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let (kind, name) = (entry.file_type()?, name.join(entry.file_name()));
        if kind.is_dir() {
            append_files(archive, &entry.path(), &name)?;
        } else if kind.is_file() {
            archive.append_path_with_name(entry.path(), &name)?;
        }
    }
    Ok(())
}

/// Unpacks the regular files of an archive into a new folder.
fn unpack(archive: &[u8], folder: &Path) -> io::Result<()> {
    let part: PathBuf = folder.with_extension("part");
    remove_folder(&part);
    private::create_folder(&part)?;
    let mut archive = tar::Archive::new(io::Read::take(GzDecoder::new(archive), FILES_BYTES));
    for entry in archive.entries()? {
        let mut entry = entry?;
        if entry.header().entry_type().is_file() {
            entry.unpack_in(&part)?;
        }
    }
    std::fs::rename(&part, folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_files_keep_their_content_and_times() {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("from");
        std::fs::create_dir_all(from.join(".agent/projects")).unwrap();
        std::fs::write(from.join(".agent/projects/one.jsonl"), "{}\n").unwrap();
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        let file = std::fs::File::options().write(true).open(from.join(".agent/projects/one.jsonl")).unwrap();
        file.set_modified(at).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", from.join("link")).unwrap();
        let archive = packed(&from).unwrap().unwrap();
        let to = folder.path().join("to");
        unpack(&archive, &to).unwrap();
        let arrived = to.join(".agent/projects/one.jsonl");
        assert_eq!(std::fs::read_to_string(&arrived).unwrap(), "{}\n");
        assert!(to.join("link").symlink_metadata().is_err(), "links stay behind");
        assert_eq!(arrived.metadata().unwrap().modified().unwrap(), at, "agents choose the newest session by its time");
        assert!(unpack(&archive[..archive.len() / 2], &folder.path().join("cut")).is_err());
        assert!(!folder.path().join("cut").exists(), "a cut archive makes no session");
        assert_eq!(packed(&folder.path().join("none")).unwrap(), None);
    }

    #[test]
    fn large_session_is_not_packed() {
        let folder = tempfile::tempdir().unwrap();
        let mut state = 1_u64;
        let noise: Vec<u8> = (0..SESSION_ARCHIVE_BYTES / 8 + 1024)
            .flat_map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state ^ (state >> 31)).to_le_bytes()
            })
            .collect();
        std::fs::write(folder.path().join("large"), noise).unwrap();
        assert_eq!(packed(folder.path()).unwrap(), None);
    }
}
