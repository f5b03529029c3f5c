//! Assets: files whose contents Git LFS keeps outside of git. A commit has a pointer instead, with the digest and the size of the
//! content.
//!
//! The service fetches the contents that the base names into the mirror and copies them into trees. It keeps changed contents in
//! the loop's store until a push uploads them. git-lfs only transfers objects, from a temporary repository that no agent can
//! access; git never starts it as a filter.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::attributes::{self, LFS};
use super::git::{GitCommand, GitUrl};
use super::layout::{ScratchFolder, TreePaths, objects};
use super::lock::RepoGuard;
use super::mirror::mirror_config;
use super::outgoing::{ClearRequest, ObjectContent};
use super::pointer::{POINTER_BYTES, Pointer};
use super::push::{PushOutcome, PushRequest};
use super::spawner::GitOutput;
use super::tracked::Tracked;
use super::{WorkspaceError, Workspaces, files};
use crate::domain::loops::PushRefusal;
use crate::domain::model::ids::Sha;
use crate::domain::trust::bounds::{ASSET_BYTES, ASSETS, PUSHED_BYTES};

/// Maximum number of assets that one command uploads.
const UPLOADED_AT_A_TIME: usize = 500;
/// Maximum length of git-lfs's message in a reason, in characters.
const MESSAGE_CHARACTERS: usize = 300;
/// Words of git-lfs, in lower case, about failures that a retry may cure: answers of an overloaded server, and a name that the
/// system does not resolve now.
const TRANSIENT_WORDS: [&str; 4] = ["no such host", "timeout", "server error", "rate limit"];
/// Words of git-lfs, in lower case, about a request without a complete answer. Its HTTP library names the request and its address;
/// the reason that follows differs by version and system.
const UNANSWERED: [&str; 4] = ["get \"http", "post \"http", "put \"http", "unexpected eof"];
/// Words of git-lfs, in lower case, about a full disk.
const DISK_FULL: &str = "no space left on device";
/// Note about a tree whose assets are pointers.
const WITHOUT_GIT_LFS: &str = "Files that Git LFS stores are pointers in the work tree, and changes of them are not committed, \
                               because git-lfs is not installed";

/// Asset of an index or a commit.
#[derive(Clone)]
struct StoredAsset {
    blob: Sha,
    pointer: Pointer,
    is_executable: bool,
}

/// Changed assets of a tree.
#[derive(Debug, Default)]
pub(super) struct StagedAssets {
    /// Entries for `update-index --index-info`.
    pub entries: Vec<u8>,
    /// Reasons why changes are not committed, one sentence each without a full stop.
    pub refused: Vec<String>,
}

/// Treatment of a changed file in a commit.
enum AssetChange {
    /// git stores the file: an empty file, a link, or a pointer of the index.
    AsFile,
    /// The content equals the index.
    None,
    /// The commit gets this pointer.
    Pointer { pointer: Pointer, is_executable: bool },
    /// The change is not committed, for this reason.
    Refused(String),
}

impl Workspaces {
    /// Fetches the assets of these commits of the base that are missing. Returns a sentence without a full stop about those that stay
    /// pointers.
    pub(super) async fn fetch_assets(
        &self,
        _guard: &RepoGuard,
        tree_paths: &TreePaths,
        access: &GitUrl,
        commits: &[&Sha],
    ) -> Result<Option<String>, WorkspaceError> {
        if !attributes::assign_assets(&tree_paths.store) {
            return Ok(None);
        }
        if !self.has_git_lfs {
            return Ok(Some(WITHOUT_GIT_LFS.to_owned()));
        }
        let mut wanted = HashMap::new();
        for commit in commits {
            let tracked = self.tracked_at(&tree_paths.store, commit).await?;
            let assets = self.assets(tree_paths, &tracked).await?;
            wanted.extend(assets.into_values().map(|asset| (asset.pointer.digest.clone(), asset)));
        }
        let repositories = repositories(tree_paths);
        let is_missing =
            |asset: &StoredAsset| asset.pointer.size > 0 && asset.pointer.found_in(&repositories).is_none();
        wanted.retain(|_, asset| is_missing(asset));
        if wanted.is_empty() {
            return Ok(None);
        }
        let bytes = wanted.values().fold(0_u64, |sum, asset| sum.saturating_add(asset.pointer.size));
        let why = if wanted.len() > ASSETS || bytes > ASSET_BYTES {
            format!("the bot fetches at most {ASSETS} files and {} GiB", ASSET_BYTES >> 30)
        } else {
            let output = self.download(tree_paths, access, &wanted).await?;
            wanted.retain(|_, asset| is_missing(asset));
            if wanted.is_empty() {
                return Ok(None);
            }
            format!("the forge did not send the contents ({})", message_of(&output, access)?)
        };
        let files = match wanted.len() {
            1 => "1 file that Git LFS stores is a pointer".to_owned(),
            more => format!("{more} files that Git LFS stores are pointers"),
        };
        Ok(Some(format!("{files} in the work tree, because {why}")))
    }

    /// Fetches assets into the mirror by git-lfs, which reads them from a tree that names only these.
    async fn download(
        &self,
        tree_paths: &TreePaths,
        access: &GitUrl,
        wanted: &HashMap<String, StoredAsset>,
    ) -> Result<GitOutput, WorkspaceError> {
        let what = "fetch files of Git LFS";
        let (repository, _scratch) = self.transfer_repository(tree_paths, &tree_paths.mirror)?;
        let named =
            |(digest, asset): (&String, &StoredAsset)| format!("100644 blob {}\t{digest}\0", asset.blob).into_bytes();
        let entries = wanted.iter().flat_map(named).collect();
        let tree = GitCommand::new(what, &repository).args(["mktree", "-z"]).input(entries);
        let tree = self.object(what, tree).await?;
        let call = transfer(what, &repository, access);
        self.git.run(call.args(["lfs", "fetch", "origin", tree.as_str()])).await
    }

    /// Uploads the contents of the assets in a push that only the loop's store has. Returns the refusal of the forge; `None` if
    /// the push may proceed.
    ///
    /// # Errors
    /// `ContentMissing` if neither this host nor the forge has a content.
    pub(super) async fn upload_assets(
        &self,
        request: &PushRequest<'_>,
        tree_paths: &TreePaths,
    ) -> Result<Option<PushOutcome>, WorkspaceError> {
        let PushRequest { loop_id, repo, access, branch, commit, expected } = *request;
        let puts_assets = self.puts_assets(tree_paths);
        if !puts_assets && !tree_paths.store.join("lfs").is_dir() {
            return Ok(None);
        }
        let commit = commit.commit();
        let range = ClearRequest { loop_id, repo, branch, commit, base: None, pushed: expected };
        let repositories = repositories(tree_paths);
        let mut made = HashSet::new();
        let mut missing = HashMap::new();
        for (_, _, changed) in self.range(tree_paths, &range).await? {
            let files: Vec<_> = changed.into_iter().filter(|one| !one.is_submodule).collect();
            let ids = files.iter().map(|one| one.object.clone()).collect();
            let contents = self.contents(tree_paths, &ids).await?;
            for file in files {
                let Some(ObjectContent::Bytes(bytes)) = contents.get(&file.object) else { continue };
                let Some(pointer) = Pointer::parse(bytes) else { continue };
                if pointer.found_in(&repositories[..1]).is_some() {
                    made.insert(pointer.digest);
                } else if puts_assets && pointer.size > 0 && pointer.found_in(&repositories).is_none() {
                    let asset = StoredAsset { pointer, blob: file.object, is_executable: false };
                    missing.insert(files::path_of(&file.path), asset);
                }
            }
        }
        self.fetch_missing(tree_paths, access, missing).await?;
        let made: Vec<String> = made.into_iter().collect();
        for digests in made.chunks(UPLOADED_AT_A_TIME) {
            let (repository, _scratch) = self.transfer_repository(tree_paths, &tree_paths.store)?;
            let call = transfer("upload files of Git LFS", &repository, access);
            let output = self.git.run(call.args(["lfs", "push", "--object-id", "origin"]).args(digests)).await?;
            if output.code != 0 {
                let message = message_of(&output, access)?;
                let reason = format!("the forge did not take the files of Git LFS: {message}");
                let refusal = PushRefusal::of(&message);
                return Ok(Some(PushOutcome::Rejected { remote: expected.cloned(), reason, refusal }));
            }
        }
        Ok(None)
    }

    /// Fetches the contents of assets in a push that this host does not have, because another host committed them.
    async fn fetch_missing(
        &self,
        tree_paths: &TreePaths,
        access: &GitUrl,
        mut missing: HashMap<PathBuf, StoredAsset>,
    ) -> Result<(), WorkspaceError> {
        let paths: Vec<PathBuf> = missing.keys().cloned().collect();
        let assigned = self.asset_paths(tree_paths, &paths).await?;
        missing.retain(|path, _| assigned.contains(path));
        if missing.is_empty() {
            return Ok(());
        }
        let wanted = missing.values().map(|asset| (asset.pointer.digest.clone(), asset.clone())).collect();
        let output = self.download(tree_paths, access, &wanted).await?;
        let repositories = repositories(tree_paths);
        missing.retain(|_, asset| asset.pointer.found_in(&repositories).is_none());
        if missing.is_empty() {
            return Ok(());
        }
        message_of(&output, access)?;
        let mut files: Vec<_> = missing.keys().map(|path| path.display().to_string()).collect();
        files.sort_unstable();
        Err(WorkspaceError::ContentMissing { files: files.join(", ") })
    }

    /// Creates a repository for one transfer, to which git-lfs may write settings. The repository borrows the objects of a loop
    /// and links to the contents of a mirror or store, because the setting `lfs.storage` would also apply to a remote on this
    /// disk.
    fn transfer_repository(
        &self,
        tree_paths: &TreePaths,
        contents: &Path,
    ) -> Result<(PathBuf, ScratchFolder), WorkspaceError> {
        let scratch = self.layout.scratch()?;
        let folder = scratch.path().join("transfer.git");
        let create = || {
            std::fs::create_dir_all(folder.join("objects/info"))?;
            std::fs::create_dir_all(folder.join("refs"))?;
            std::fs::create_dir_all(contents.join("lfs"))?;
            std::os::unix::fs::symlink(contents.join("lfs"), folder.join("lfs"))?;
            std::fs::write(folder.join("HEAD"), "ref: refs/heads/none\n")?;
            std::fs::write(folder.join("config"), mirror_config(false))?;
            let alternates = repositories(tree_paths).map(|of| format!("{}\n", objects(&of).display())).concat();
            std::fs::write(folder.join("objects/info/alternates"), alternates)
        };
        create().map_err(WorkspaceError::io("create", &folder))?;
        Ok((folder, scratch))
    }

    /// Whether trees of a loop have assets instead of pointers.
    pub(super) fn puts_assets(&self, tree_paths: &TreePaths) -> bool {
        self.has_git_lfs && attributes::assign_assets(&tree_paths.store)
    }

    /// Replaces the pointers among these files of a tree by the contents. The caller checks [`Self::puts_assets`].
    pub(super) async fn fill_assets(&self, tree_paths: &TreePaths, paths: Vec<PathBuf>) -> Result<(), WorkspaceError> {
        let paths = self.asset_paths(tree_paths, &paths).await?;
        if paths.is_empty() {
            return Ok(());
        }
        let dir = tree_paths.dir.clone();
        let repositories = repositories(tree_paths);
        let fill = move || {
            for path in paths {
                let pointer = files::read_beneath(&dir, &path, POINTER_BYTES).and_then(|bytes| Pointer::parse(&bytes));
                if let Some(found) = pointer.and_then(|pointer| pointer.found_in(&repositories)) {
                    let mut content = File::open(&found).map_err(WorkspaceError::io("open", &found))?;
                    files::replace(&dir, &path, &mut content)?;
                }
            }
            Ok(())
        };
        files::blocking(fill).await
    }

    /// Returns a copy of the index for the agent's repository, in which git compares assets by content instead of by size; `None`
    /// if the base has no assets.
    pub(super) async fn index_for_agent(
        &self,
        tree_paths: &TreePaths,
    ) -> Result<Option<(PathBuf, ScratchFolder)>, WorkspaceError> {
        if !self.puts_assets(tree_paths) {
            return Ok(None);
        }
        let assets = self.assets(tree_paths, &self.tracked(tree_paths).await?).await?;
        let entries = assets.iter().flat_map(|(path, asset)| entry(path, &asset.blob, asset.is_executable)).collect();
        let scratch = self.layout.scratch()?;
        let index = scratch.path().join("index");
        std::fs::copy(&tree_paths.index, &index).map_err(WorkspaceError::io("copy", &tree_paths.index))?;
        let call = GitCommand::new("prepare the agent's index", &tree_paths.store).on_index(&index);
        self.git.ok(call.args(["update-index", "-z", "--index-info"]).input(entries)).await?;
        Ok(Some((index, scratch)))
    }

    /// Makes pointers for the assets among the changed files, which it removes from both lists. Stores contents that the mirror
    /// lacks in the loop's store.
    pub(super) async fn stage_assets(
        &self,
        tree_paths: &TreePaths,
        before: &Tracked,
        changed: &mut Vec<PathBuf>,
        too_large: &mut Vec<PathBuf>,
    ) -> Result<StagedAssets, WorkspaceError> {
        let all: Vec<PathBuf> = changed.iter().chain(too_large.iter()).cloned().collect();
        let paths = self.asset_paths(tree_paths, &all).await?;
        if paths.is_empty() {
            return Ok(StagedAssets::default());
        }
        let known = self.assets(tree_paths, before).await?;
        let folder = AssetFolder {
            dir: tree_paths.dir.clone(),
            mirror: tree_paths.mirror.clone(),
            store: self.has_git_lfs.then(|| tree_paths.store.clone()),
            digests: known.values().map(|asset| asset.pointer.digest.clone()).collect(),
            known,
        };
        let judge = move || {
            let mut bytes_left = PUSHED_BYTES as u64;
            let mut judged = Vec::new();
            for path in paths {
                judged.push((folder.judge(&path, &mut bytes_left)?, path));
            }
            Ok((judged, folder.known))
        };
        let (judged, known) = files::blocking(judge).await?;
        let mut staged = StagedAssets::default();
        let mut done = HashSet::new();
        for (change, path) in judged {
            match change {
                AssetChange::AsFile => continue,
                AssetChange::None => {}
                AssetChange::Refused(why) => staged.refused.push(why),
                AssetChange::Pointer { pointer, is_executable } => {
                    let blob = match known.get(&path).filter(|asset| asset.pointer == pointer) {
                        Some(asset) => asset.blob.clone(),
                        None => self.pointer_blob(tree_paths, &pointer).await?,
                    };
                    staged.entries.extend(entry(&path, &blob, is_executable));
                }
            }
            done.insert(path);
        }
        changed.retain(|path| !done.contains(path));
        too_large.retain(|path| !done.contains(path));
        Ok(staged)
    }

    async fn pointer_blob(&self, tree_paths: &TreePaths, pointer: &Pointer) -> Result<Sha, WorkspaceError> {
        let what = "write a pointer";
        let call = GitCommand::new(what, &tree_paths.store).args(["hash-object", "-w", "--stdin"]).synced_by_ref();
        self.object(what, call.input(pointer.text().into_bytes())).await
    }

    /// Returns the paths that the base's attributes assign to Git LFS.
    async fn asset_paths(&self, tree_paths: &TreePaths, paths: &[PathBuf]) -> Result<Vec<PathBuf>, WorkspaceError> {
        if paths.is_empty() || !attributes::assign_assets(&tree_paths.store) {
            return Ok(Vec::new());
        }
        let call = GitCommand::new("read the attributes of files", &tree_paths.store);
        let call = call.args(["check-attr", "-z", "--stdin", LFS]);
        let listed = self.git.ok(call.input(files::zero_terminated(paths))).await?.stdout;
        let parts: Vec<&[u8]> = listed.split(|byte| *byte == 0).collect();
        let set = parts.chunks_exact(3).filter(|parts| parts[2] == b"set");
        Ok(set.map(|parts| files::path_of(parts[0])).collect())
    }

    /// Returns the assets among these files by path.
    async fn assets(
        &self,
        tree_paths: &TreePaths,
        tracked: &Tracked,
    ) -> Result<HashMap<PathBuf, StoredAsset>, WorkspaceError> {
        let mut blobs = tracked.blobs();
        let paths: Vec<PathBuf> = blobs.iter().map(|blob| blob.path.clone()).collect();
        let paths: HashSet<PathBuf> = self.asset_paths(tree_paths, &paths).await?.into_iter().collect();
        blobs.retain(|blob| paths.contains(&blob.path));
        let asked: String = blobs.iter().map(|blob| format!("{}\n", blob.id)).collect();
        let sizes = GitCommand::new("read the sizes of objects", &tree_paths.store);
        let sizes = sizes.args(["cat-file", "--batch-check=%(objectname) %(objectsize)"]).input(asked.into_bytes());
        let sizes = self.git.ok(sizes).await?.text();
        let is_small = |size: &str| size.parse().is_ok_and(|size: u64| size < POINTER_BYTES);
        let small = sizes.lines().filter_map(|line| line.split_once(' ').filter(|(_, size)| is_small(size)));
        let small: HashSet<Sha> = small.filter_map(|(id, _)| Sha::parse(id)).collect();
        let contents = self.contents(tree_paths, &small).await?;
        let pointer = |id: &Sha| match contents.get(id)? {
            ObjectContent::Bytes(bytes) => Pointer::parse(bytes),
            ObjectContent::TooLarge => None,
        };
        let assets = blobs.into_iter().filter_map(|blob| {
            let asset = StoredAsset { pointer: pointer(&blob.id)?, blob: blob.id, is_executable: blob.is_executable };
            Some((blob.path, asset))
        });
        Ok(assets.collect())
    }
}

/// Tree whose changed assets are judged.
struct AssetFolder {
    dir: PathBuf,
    mirror: PathBuf,
    /// Store for new contents; `None` if they cannot be uploaded.
    store: Option<PathBuf>,
    /// Assets of the index by path.
    known: HashMap<PathBuf, StoredAsset>,
    /// Digests of all these assets.
    digests: HashSet<String>,
}

impl AssetFolder {
    /// Judges a changed file, and puts a new content into the store. Subtracts its size from `bytes_left`.
    fn judge(&self, path: &Path, bytes_left: &mut u64) -> Result<AssetChange, WorkspaceError> {
        let shown = format!("`{}`", path.to_string_lossy().replace(['`', '\n', '\r'], ""));
        let failed = || WorkspaceError::io("read", self.dir.join(path));
        let Some(mut file) = files::open_beneath(&self.dir, path) else { return Ok(AssetChange::AsFile) };
        let found = file.metadata().map_err(failed())?;
        let mut start = Vec::new();
        (&file).take(POINTER_BYTES).read_to_end(&mut start).map_err(failed())?;
        if start.is_empty() {
            return Ok(AssetChange::AsFile);
        }
        if Pointer::starts(&start) {
            let is_known = Pointer::parse(&start).is_some_and(|pointer| self.digests.contains(&pointer.digest));
            let why = format!("{shown} is a pointer of Git LFS that no file of the base has: it was not committed");
            return Ok(if is_known { AssetChange::AsFile } else { AssetChange::Refused(why) });
        }
        let Some(store) = &self.store else {
            let why = format!("{shown} belongs to Git LFS, which the bot cannot write: its change was not committed");
            return Ok(AssetChange::Refused(why));
        };
        let is_executable = found.permissions().mode() & 0o100 != 0;
        file.rewind().map_err(failed())?;
        let pointer = Pointer::read(&mut file).map_err(failed())?;
        if self.known.get(path).is_some_and(|asset| asset.pointer == pointer && asset.is_executable == is_executable) {
            return Ok(AssetChange::None);
        }
        // The forge has the contents in the mirror.
        if self.digests.contains(&pointer.digest) || pointer.found_in(std::slice::from_ref(&self.mirror)).is_some() {
            return Ok(AssetChange::Pointer { pointer, is_executable });
        }
        file.rewind().map_err(failed())?;
        let mut content = Vec::new();
        file.take(bytes_left.saturating_add(1)).read_to_end(&mut content).map_err(failed())?;
        if content.len() as u64 > *bytes_left {
            let limit = PUSHED_BYTES >> 20;
            let why = format!(
                "{shown} belongs to Git LFS, and a commit may contain at most {limit} MiB of its files: its change was not committed"
            );
            return Ok(AssetChange::Refused(why));
        }
        *bytes_left -= content.len() as u64;
        let pointer = Pointer::of(&content);
        let path = pointer.path_in(store);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(WorkspaceError::io("create", folder))?;
        }
        files::put(&path, &content).map_err(WorkspaceError::io("write", &path))?;
        Ok(AssetChange::Pointer { pointer, is_executable })
    }
}

/// Returns an entry for `update-index -z --index-info`, which git compares with the file by content.
fn entry(path: &Path, blob: &Sha, is_executable: bool) -> Vec<u8> {
    let mode = if is_executable { "100755" } else { "100644" };
    [format!("{mode} {blob}\t").as_bytes(), path.as_os_str().as_encoded_bytes(), b"\0"].concat()
}

/// Returns the repositories that have contents of a loop's assets.
fn repositories(tree_paths: &TreePaths) -> [PathBuf; 2] {
    [tree_paths.store.clone(), tree_paths.mirror.clone()]
}

/// Creates a call of git-lfs in a repository for one transfer. Its address takes precedence over a repository's `.lfsconfig`.
fn transfer<'a>(what: &'a str, repository: &'a Path, access: &'a GitUrl) -> GitCommand<'a> {
    let call = GitCommand::new(what, repository)
        .remote(access)
        .config(format!("remote.origin.url={}", access.url))
        .config("lfs.locksVerify=false")
        .config("lfs.transfer.maxRetries=2")
        .config("lfs.transfer.maxRetryDelay=1");
    if access.url.starts_with("file:") {
        return call;
    }
    let url = format!("{}.git/info/lfs", access.url.trim_end_matches(".git"));
    let call = call.config(format!("lfs.url={url}"));
    if access.credential.is_some() { call.config(format!("lfs.{url}.access=basic")) } else { call }
}

/// Returns git-lfs's message about a failure for people; fails if a retry may succeed.
fn message_of(output: &GitOutput, access: &GitUrl) -> Result<String, WorkspaceError> {
    let lines = output.stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let text = lines.collect::<Vec<_>>().join("; ");
    let text: String = text.chars().filter(|c| !c.is_control() && *c != '`').take(MESSAGE_CHARACTERS).collect();
    let words = text.to_lowercase();
    if words.contains(DISK_FULL) {
        return Err(WorkspaceError::DiskFull { what: "fetch files of Git LFS".to_owned() });
    }
    if TRANSIENT_WORDS.iter().chain(&UNANSWERED).any(|transient| words.contains(transient)) {
        return Err(WorkspaceError::Unreachable { url: access.url.clone(), detail: text, transient: true });
    }
    Ok(if text.is_empty() { format!("exit code {}", output.code) } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_transfers_are_distinguished() {
        let access = GitUrl { url: "https://forge/a".into(), credential: None, settling: Default::default() };
        let failed = |stderr: &str| GitOutput { code: 2, stdout: Vec::new(), stderr: stderr.into(), truncated: false };
        let quota = "\nbatch response: This repository is over its data quota.\nsecond\n";
        let message = message_of(&failed(quota), &access).unwrap();
        assert_eq!(message, "batch response: This repository is over its data quota.; second");
        assert_eq!(PushRefusal::of(&message), PushRefusal::Quota);
        for transient in [
            "batch response: Post \"http://h/info/lfs/objects/batch\": dial tcp 127.0.0.1:1: connect: connection refused",
            "batch response: Post \"https://h/batch\": set tcp 127.0.0.1:41618: use of closed network connection",
            "LFS: Put \"https://h/1\": http2: server sent GOAWAY and closed the connection",
            "Server error: http://x",
            "unexpected EOF",
        ] {
            assert!(message_of(&failed(transient), &access).unwrap_err().is_transient(), "{transient}");
        }
        let full = failed("write x: no space left on device");
        assert!(matches!(message_of(&full, &access), Err(WorkspaceError::DiskFull { .. })));
    }
}
