//! Disk after power loss, reconstructed from the system calls of a process: synced changes, and a part of the others.
//!
//! The model follows POSIX strictly: bytes of a file are durable after `fsync` of that file, names after `fsync` of their
//! folder, and any part of all other changes may be lost, cut at any sector.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::trace::SystemCall;

/// Bytes that a disk writes atomically.
const SECTOR: usize = 512;

/// Target of a name: a folder, or the file with this number. A file that is renamed over another one keeps its number.
#[derive(Clone, Copy, PartialEq)]
enum NameTarget {
    Folder,
    File(usize),
}

#[derive(Clone)]
enum DiskChange {
    Write { at: usize, bytes: Vec<u8> },
    Cut(usize),
}

impl DiskChange {
    /// Applies the change; of a write, only its first `most` bytes.
    fn apply(&self, content: &mut Vec<u8>, most: usize) {
        match self {
            Self::Cut(length) => content.resize(*length, 0),
            Self::Write { at, bytes } => {
                let bytes = &bytes[..bytes.len().min(most)];
                if content.len() < at + bytes.len() {
                    content.resize(at + bytes.len(), 0);
                }
                content[*at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
    }
}

#[derive(Clone, Default)]
struct DiskFile {
    synced: Vec<u8>,
    pending: Vec<DiskChange>,
}

/// State of one folder, which exists from the start.
pub struct Disk {
    root: PathBuf,
    files: Vec<DiskFile>,
    names: BTreeMap<PathBuf, NameTarget>,
    synced_names: BTreeMap<PathBuf, NameTarget>,
    /// Whether the disk ignores syncs.
    pub lies: bool,
}

impl Disk {
    pub fn new(root: &Path) -> Self {
        let (names, synced_names) = (BTreeMap::new(), BTreeMap::new());
        Self { root: root.to_path_buf(), files: Vec::new(), names, synced_names, lies: false }
    }

    /// Applies a system call.
    pub fn apply(&mut self, call: &SystemCall) {
        match call {
            SystemCall::MakeFolder { path } => self.name(path, NameTarget::Folder),
            SystemCall::Create { path } if !self.names.contains_key(path) => {
                self.files.push(DiskFile::default());
                self.name(path, NameTarget::File(self.files.len() - 1));
            }
            SystemCall::Write { path, at, bytes } => {
                self.change(path, DiskChange::Write { at: *at, bytes: bytes.clone() })
            }
            SystemCall::Cut { path, length } => self.change(path, DiskChange::Cut(*length)),
            SystemCall::Remove { path } => drop(self.names.remove(path)),
            SystemCall::Sync { path } => self.sync(path),
            SystemCall::Create { .. } | SystemCall::Received { .. } | SystemCall::Sent { .. } => {}
        }
    }

    fn name(&mut self, path: &Path, node: NameTarget) {
        if path.starts_with(&self.root) {
            self.names.insert(path.to_path_buf(), node);
        }
    }

    fn change(&mut self, path: &Path, change: DiskChange) {
        if let Some(NameTarget::File(number)) = self.names.get(path) {
            self.files[*number].pending.push(change);
        }
    }

    fn sync(&mut self, path: &Path) {
        if self.lies {
            return;
        }
        if let Some(NameTarget::File(number)) = self.names.get(path) {
            let file = &mut self.files[*number];
            for change in file.pending.drain(..) {
                change.apply(&mut file.synced, usize::MAX);
            }
        } else {
            self.synced_names.retain(|name, _| name.parent() != Some(path));
            let here = self.names.iter().filter(|(name, _)| name.parent() == Some(path));
            self.synced_names.extend(here.map(|(name, node)| (name.clone(), *node)));
        }
    }

    /// Writes the state after power loss to `folder`. `luck` chooses the changes without sync that are on the disk; `None`
    /// drops all of them.
    pub fn after_power_loss(&self, folder: &Path, mut luck: Option<&mut fastrand::Rng>) {
        let mut kept = || luck.as_mut().is_some_and(|luck| luck.bool());
        let mut names = self.synced_names.clone();
        for (name, node) in &self.names {
            if names.get(name) != Some(node) && kept() {
                names.insert(name.clone(), *node);
            }
        }
        names.retain(|name, _| self.names.contains_key(name) || !kept());
        let reachable = |name: &Path| {
            let folders = name.ancestors().skip(1).take_while(|above| *above != self.root);
            folders.into_iter().all(|above| names.get(above) == Some(&NameTarget::Folder))
        };
        // Folders come before their contents.
        for (name, node) in names.iter().filter(|(name, _)| reachable(name)) {
            let to = folder.join(name.strip_prefix(&self.root).expect("it is below the root"));
            match node {
                NameTarget::Folder => std::fs::create_dir(&to).expect("a folder"),
                NameTarget::File(number) => {
                    std::fs::write(&to, self.content(*number, luck.as_deref_mut())).expect("a file")
                }
            }
        }
    }

    fn content(&self, number: usize, luck: Option<&mut fastrand::Rng>) -> Vec<u8> {
        let file = &self.files[number];
        let mut content = file.synced.clone();
        let Some(luck) = luck else { return content };
        for change in &file.pending {
            match luck.u8(..3) {
                0 => {}
                1 => change.apply(&mut content, luck.usize(..9) * SECTOR),
                _ => change.apply(&mut content, usize::MAX),
            }
        }
        content
    }
}
