//! Scans for secrets the objects that a push sends: each commit when it is created, and the pushed range if the
//! service has no record of these scans.
//!
//! New objects are read from their files, without a git process. Scanned contents are remembered by object id, scanned
//! commits by their parents.

use std::collections::{HashMap, HashSet};
use std::io::Read as _;
use std::path::PathBuf;

use flate2::read::ZlibDecoder;

use super::git::GitCommand;
use super::layout::{TreePaths, objects};
use super::pointer::Pointer;
use super::{WorkspaceError, Workspaces, files};
use crate::domain::model::ids::{LoopId, RepoRef, Sha};
use crate::domain::trust::bounds::PUSHED_BYTES;
use crate::domain::trust::outbound::{ClearedCommit, FoundSecret, Leak, ObjectScan, OutboundFilter};

/// Maximum number of remembered commits that are followed from a head.
const MOST_STEPS: usize = 1_000;
/// Mode of a submodule in git's trees.
const SUBMODULE: &[u8] = b"160000";

/// Commit to be cleared for a push.
#[derive(Debug, Clone, Copy)]
pub struct ClearRequest<'a> {
    pub loop_id: &'a LoopId,
    pub repo: &'a RepoRef,
    /// Branch without `refs/heads/`.
    pub branch: &'a str,
    pub commit: &'a Sha,
    /// Base of the loop, which is on the forge.
    pub base: Option<&'a Sha>,
    /// Commit of the branch on the forge; `None` if the branch does not exist.
    pub pushed: Option<&'a Sha>,
}

/// File that a commit adds or changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChangedObject {
    pub(super) path: Vec<u8>,
    /// Whether no parent has a file with this path.
    is_new_path: bool,
    pub(super) is_submodule: bool,
    pub(super) object: Sha,
    /// Object ids of the parents' versions.
    before: Vec<Sha>,
}

/// Content of a git object, or the reason why it is missing.
pub(super) enum ObjectContent {
    Bytes(Vec<u8>),
    TooLarge,
}

/// Entry of git's output format `--raw -z`.
pub(super) struct RawEntry<'a> {
    /// Number of parents that the entry is compared with.
    parents: usize,
    /// Modes and object ids of the parents and of the result, followed by the status.
    fields: Vec<&'a [u8]>,
    /// Path after the change.
    pub(super) path: &'a [u8],
    /// Previous path of a moved file, or path of the original of a copied one.
    pub(super) from: Option<&'a [u8]>,
}

impl<'a> RawEntry<'a> {
    /// Parses the next entry and removes it from `rest`; `None` if there is no further entry.
    pub(super) fn next(rest: &mut &'a [u8]) -> Option<Self> {
        let mut after = rest.first().filter(|byte| **byte == b':').map(|_| *rest)?;
        let mut next = || {
            let end = after.iter().position(|byte| *byte == 0)?;
            let (part, others) = after.split_at(end);
            after = &others[1..];
            Some(part)
        };
        let (head, first) = (next()?, next()?);
        let parents = head.iter().take_while(|byte| **byte == b':').count();
        let fields: Vec<&[u8]> = head[parents..].split(|byte| *byte == b' ').collect();
        let mut entry = Self { parents, fields, path: first, from: None };
        if parents == 1 && matches!(entry.status().first(), Some(b'R' | b'C')) {
            (entry.path, entry.from) = (next()?, Some(first));
        }
        *rest = after;
        Some(entry)
    }

    /// Returns the letters of the status, one per parent. A score follows the letters of moves and copies.
    pub(super) fn status(&self) -> &'a [u8] {
        self.fields.last().copied().unwrap_or_default()
    }
}

/// Parses the entries of `--raw -z`, each of which starts with one colon per parent; returns them and the rest of the
/// output.
pub(super) fn raw_entries(mut rest: &[u8]) -> (Vec<ChangedObject>, &[u8]) {
    let mut entries = Vec::new();
    while let Some(entry) = RawEntry::next(&mut rest) {
        let RawEntry { parents, ref fields, path, .. } = entry;
        let status = entry.status();
        let ids: Vec<Option<Sha>> = fields
            .iter()
            .skip(parents + 1)
            .take(parents + 1)
            .map(|id| Sha::parse(&String::from_utf8_lossy(id)))
            .collect();
        let is_zero = |id: &Sha| id.as_str().bytes().all(|digit| digit == b'0');
        let Some(Some(object)) = ids.last().filter(|id| id.as_ref().is_some_and(|id| !is_zero(id))) else { continue };
        entries.push(ChangedObject {
            path: path.to_vec(),
            is_new_path: !status.iter().all(|kind| matches!(kind, b'M' | b'T')),
            is_submodule: fields.get(parents) == Some(&SUBMODULE),
            object: object.clone(),
            before: ids[..ids.len() - 1].iter().flatten().filter(|id| !is_zero(id)).cloned().collect(),
        });
    }
    (entries, rest)
}

impl Workspaces {
    /// Returns the commit as cleared for a push, or the secret that prevents the push. Scans everything that the forge
    /// does not have. This needs no git process if this process created the commits.
    pub async fn clear(&self, request: ClearRequest<'_>) -> Result<Result<ClearedCommit, Leak>, WorkspaceError> {
        let ClearRequest { loop_id, repo, branch, commit, .. } = request;
        let outbound = &self.settings.outbound;
        let mut scan = ObjectScan::new(outbound);
        scan.branch(branch);
        if !self.is_remembered(&request) {
            let tree_paths = self.opened(loop_id, repo).await?;
            for (id, head, changed) in self.range(&tree_paths, &request).await? {
                scan.commit(&id, &head);
                self.scan_objects(&tree_paths, &changed, &mut scan).await?;
            }
        }
        Ok(scan.finish(commit))
    }

    /// Scans the content that a new commit adds compared with its parents. Remembers the commit if nothing is found.
    pub(super) async fn scan_commit(
        &self,
        tree_paths: &TreePaths,
        (commit, parent): (&Sha, &Sha),
        message: &str,
        changed: &[ChangedObject],
    ) -> Result<Option<Leak>, WorkspaceError> {
        let mut scan = ObjectScan::new(&self.settings.outbound);
        scan.commit(commit, message.as_bytes());
        self.scan_objects(tree_paths, changed, &mut scan).await?;
        let leak = scan.finish(commit).err();
        if leak.is_none() {
            self.known.scanned.commits.put(commit.clone(), parent.clone());
        }
        Ok(leak)
    }

    /// Whether all commits that the forge does not have were scanned when they were created.
    fn is_remembered(&self, request: &ClearRequest<'_>) -> bool {
        let mut at = request.commit.clone();
        for _ in 0..MOST_STEPS {
            if Some(&at) == request.base || Some(&at) == request.pushed {
                return true;
            }
            match self.known.scanned.commits.get(&at) {
                Some(parent) => at = parent,
                None => return false,
            }
        }
        false
    }

    async fn scan_objects(
        &self,
        tree_paths: &TreePaths,
        changed: &[ChangedObject],
        scan: &mut ObjectScan<'_>,
    ) -> Result<(), WorkspaceError> {
        for one in changed.iter().filter(|one| one.is_new_path) {
            scan.path(&one.path);
        }
        for one in changed.iter().filter(|one| one.is_submodule) {
            scan.submodule(&one.path, &one.object);
        }
        let blobs: Vec<&ChangedObject> = changed.iter().filter(|one| !one.is_submodule).collect();
        let new: HashSet<Sha> =
            blobs.iter().map(|one| one.object.clone()).filter(|id| !self.known.scanned.blobs.holds(id)).collect();
        let contents = self.contents(tree_paths, &new).await?;
        let contents = with_assets(vec![tree_paths.store.clone()], contents).await?;
        let mut suspicious = HashMap::new();
        for (id, content) in scanned(&self.settings.outbound, contents).await? {
            match content {
                // A pointer whose content does not exist yet says nothing about the content.
                Some((bytes, found)) if found.is_empty() && !Pointer::starts(&bytes) => {
                    self.known.scanned.blobs.put(id)
                }
                other => drop(suspicious.insert(id, other)),
            }
        }
        let of_found = || blobs.iter().filter(|one| suspicious.contains_key(&one.object));
        if new.iter().all(|id| self.known.scanned.blobs.holds(id)) {
            return Ok(());
        }
        let earlier: HashSet<Sha> = of_found().flat_map(|one| one.before.iter().cloned()).collect();
        let earlier = self.contents(tree_paths, &earlier).await?;
        let both = vec![tree_paths.store.clone(), tree_paths.mirror.clone()];
        let earlier = with_assets(both, earlier).await?;
        for one in blobs.iter().filter(|one| new.contains(&one.object) && !self.known.scanned.blobs.holds(&one.object))
        {
            let before: Vec<u8> =
                one.before.iter().filter_map(|id| earlier.get(id)).flat_map(bytes_of).copied().collect();
            match suspicious.get(&one.object) {
                Some(Some((content, found))) => scan.report(&one.path, content, found.clone(), Some(&before)),
                Some(None) => scan.unscanned(&one.path, "it is too large"),
                None => scan.unscanned(&one.path, "it is missing"),
            }
        }
        Ok(())
    }

    /// Returns the commits that the forge does not have, each with its headers, message and changes.
    pub(super) async fn range(
        &self,
        tree_paths: &TreePaths,
        request: &ClearRequest<'_>,
    ) -> Result<Vec<(Sha, Vec<u8>, Vec<ChangedObject>)>, WorkspaceError> {
        // The mirror has the forge's refs, the loop's store the new objects.
        let TreePaths { mirror, store, .. } = tree_paths;
        let call = GitCommand::new("list the objects of a push", mirror);
        let call = call.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", objects(store));
        let call = call.args(["log", "-z", "--no-color", "--pretty=raw"]);
        let call = call.args(["--diff-merges=combined", "--raw", "-r", "--root", "--no-abbrev", "--no-renames"]);
        let call = call.args(["--no-ext-diff", "--no-textconv", "--no-notes", "--no-show-signature", "--no-decorate"]);
        let call = call.args(["--ignore-missing", request.commit.as_str(), "--not"]);
        let call = call.args(request.base.iter().chain(&request.pushed).map(|known| known.as_str()));
        let call = call.args(["--glob=refs/ralph/base/*", "--glob=refs/ralph/remote/*", "--"]);
        let output = self.git.ok(call.output_bytes(PUSHED_BYTES)).await?;
        if output.truncated {
            return Err(WorkspaceError::TooLarge { what: "the range of a push".into(), limit: PUSHED_BYTES as u64 });
        }
        Ok(commits(&output.stdout))
    }

    /// Returns the contents of objects. Loose objects are read from their files, packed ones by one git process.
    /// Missing objects are skipped.
    pub(super) async fn contents(
        &self,
        tree_paths: &TreePaths,
        ids: &HashSet<Sha>,
    ) -> Result<HashMap<Sha, ObjectContent>, WorkspaceError> {
        let folders = [&tree_paths.store, &tree_paths.mirror].map(|of| objects(of));
        let wanted: Vec<Sha> = ids.iter().cloned().collect();
        let (mut read, left) = files::blocking(move || Ok(loose(&folders, wanted))).await?;
        if left.is_empty() {
            return Ok(read);
        }
        let asked: String = left.iter().map(|id| format!("{id}\n")).collect();
        let call = GitCommand::new("read objects", &tree_paths.store).args(["cat-file", "--batch", "--buffer"]);
        let answer = self.git.ok(call.input(asked.into_bytes()).output_bytes(PUSHED_BYTES)).await?;
        packed(&answer.stdout, &mut read);
        if answer.truncated {
            for id in left {
                read.entry(id).or_insert(ObjectContent::TooLarge);
            }
        }
        Ok(read)
    }
}

/// Replaces pointers of Git LFS by the contents in these repositories.
async fn with_assets(
    repositories: Vec<PathBuf>,
    mut contents: HashMap<Sha, ObjectContent>,
) -> Result<HashMap<Sha, ObjectContent>, WorkspaceError> {
    let replace = move || {
        for content in contents.values_mut() {
            if let Some(asset) = Pointer::content_for(bytes_of(content), &repositories)? {
                *content = ObjectContent::Bytes(asset);
            }
        }
        Ok(contents)
    };
    files::blocking(replace).await
}

fn bytes_of(content: &ObjectContent) -> &[u8] {
    match content {
        ObjectContent::Bytes(bytes) => bytes,
        ObjectContent::TooLarge => &[],
    }
}

/// Content of an object and the secrets in it; `None` if the object is too large.
type Scanned = Option<(Vec<u8>, Vec<FoundSecret>)>;

async fn scanned(
    outbound: &OutboundFilter,
    contents: HashMap<Sha, ObjectContent>,
) -> Result<Vec<(Sha, Scanned)>, WorkspaceError> {
    let outbound = outbound.clone();
    let scan = move || {
        let mut scan = ObjectScan::new(&outbound);
        let mut one = |(id, content)| match content {
            ObjectContent::Bytes(bytes) => {
                let found = scan.content(&bytes);
                (id, Some((bytes, found)))
            }
            ObjectContent::TooLarge => (id, None),
        };
        Ok(contents.into_iter().map(&mut one).collect())
    };
    files::blocking(scan).await
}

/// Reads loose objects from their files; also returns the ids of the other objects.
fn loose(folders: &[PathBuf], ids: Vec<Sha>) -> (HashMap<Sha, ObjectContent>, Vec<Sha>) {
    let (mut read, mut left, mut bytes) = (HashMap::new(), Vec::new(), 0);
    for id in ids {
        let (first, rest) = id.as_str().split_at(2);
        let most = PUSHED_BYTES.saturating_sub(bytes);
        match folders.iter().find_map(|folder| loose_object(&folder.join(first).join(rest), most)) {
            Some(content) => {
                bytes += bytes_of(&content).len();
                read.insert(id, content);
            }
            None => left.push(id),
        }
    }
    (read, left)
}

/// Reads the file of a loose object, which is zlib-compressed: `<kind> <size>`, a zero byte and the content.
fn loose_object(path: &PathBuf, most: usize) -> Option<ObjectContent> {
    /// Maximum length of the kind and size, in bytes.
    const HEAD: usize = 32;
    let mut all = Vec::new();
    let file = std::io::BufReader::new(std::fs::File::open(path).ok()?);
    ZlibDecoder::new(file).take((most + HEAD) as u64).read_to_end(&mut all).ok()?;
    let end = all.iter().take(HEAD).position(|byte| *byte == 0)?;
    let size: usize = std::str::from_utf8(&all[..end]).ok()?.split_once(' ')?.1.parse().ok()?;
    if size > most {
        return Some(ObjectContent::TooLarge);
    }
    all.drain(..=end);
    (all.len() == size).then_some(ObjectContent::Bytes(all))
}

/// Parses the output of `cat-file --batch` and adds its objects to `read`.
fn packed(mut output: &[u8], read: &mut HashMap<Sha, ObjectContent>) {
    while let Some(end) = output.iter().position(|byte| *byte == b'\n') {
        let head = String::from_utf8_lossy(&output[..end]).into_owned();
        output = &output[end + 1..];
        let mut fields = head.split(' ');
        let (id, size) =
            (fields.next().and_then(Sha::parse), fields.nth(1).and_then(|size| size.parse::<usize>().ok()));
        let (Some(id), Some(size)) = (id, size) else { continue };
        let Some(content) = output.get(..size) else { return };
        read.insert(id, ObjectContent::Bytes(content.to_vec()));
        output = output.get(size + 1..).unwrap_or_default();
    }
}

/// Parses the output of `log -z --pretty=raw --raw`.
fn commits(mut output: &[u8]) -> Vec<(Sha, Vec<u8>, Vec<ChangedObject>)> {
    let mut found = Vec::new();
    while let Some(rest) = output.strip_prefix(b"commit ") {
        // Lines of the message are indented, so that none starts as an entry or a commit.
        let end = (0..rest.len()).find(|at| rest[*at] == 0 || (rest[*at] == b':' && *at > 0 && rest[*at - 1] == b'\n'));
        let (head, after) = rest.split_at(end.unwrap_or(rest.len()));
        let (entries, after) = raw_entries(after);
        let id = head
            .split(|byte| byte.is_ascii_whitespace())
            .next()
            .and_then(|id| Sha::parse(&String::from_utf8_lossy(id)));
        if let Some(id) = id {
            found.push((id, head.to_vec(), entries));
        }
        output = after.strip_prefix(b"\0").unwrap_or(after);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_one_and_of_two_parents_are_parsed() {
        let (a, b, c, zero) = ("a".repeat(40), "b".repeat(40), "c".repeat(40), "0".repeat(40));
        let raw = format!(
            ":100644 100644 {a} {b} M\0f\0:100644 100644 {a} {c} R090\0old\0new\0:100644 000000 {a} {zero} D\0gone\0\
             :000000 160000 {zero} {c} A\0sub\0::100644 100644 100644 {a} {b} {c} MM\0both\x001\t2\tf\0"
        );
        let (entries, rest) = raw_entries(raw.as_bytes());
        assert_eq!(rest, b"1\t2\tf\0");
        let short: Vec<_> = entries
            .iter()
            .map(|one| {
                let (path, object) =
                    (String::from_utf8_lossy(&one.path).into_owned(), one.object.as_str()[..1].to_owned());
                (path, object, one.before.len(), one.is_new_path, one.is_submodule)
            })
            .collect();
        let row = |path: &str, object: &str, before, new, sub| (path.to_owned(), object.to_owned(), before, new, sub);
        assert_eq!(
            short,
            [
                row("f", "b", 1, false, false),
                row("new", "c", 1, true, false),
                row("sub", "c", 0, true, true),
                row("both", "c", 2, false, false),
            ]
        );
        assert_eq!(raw_entries(b"").0, []);
    }

    #[test]
    fn commits_of_a_range_are_parsed() {
        let (a, b) = ("a".repeat(40), "b".repeat(40));
        let log = format!(
            "commit {a}\ntree {b}\nauthor x <y> 1 +0000\n\n    :not an entry\n    commit {b}\n\n:000000 100644 {zero} {b} A\0f\0\0commit {b}\ntree {a}\n\n    two\n",
            zero = "0".repeat(40)
        );
        let found = commits(log.as_bytes());
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].0.as_str(), found[0].2.len()), (a.as_str(), 1));
        assert!(String::from_utf8_lossy(&found[0].1).contains("author x") && found[1].2.is_empty());
    }
}
