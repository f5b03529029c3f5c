//! Submodules: their commits are fetched into the mirror of the repository, with the service's credential, and their files are put
//! into trees. Only repositories of the same forge, and public ones of hosts that the operator lists, are fetched. A local
//! repository has copies of the submodules that its user checked out. Trees contain neither addresses nor credentials, and changes
//! in a submodule are never part of a commit.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ralph_types::failure::Failure;
use url::Url;

use super::git::{GitCommand, GitUrl};
use super::layout::TreePaths;
use super::lock::RepoGuard;
use super::mirror::RefChange;
use super::tracked::Tracked;
use super::{WorkspaceError, Workspaces, files};
use crate::domain::model::ids::Sha;

/// Maximum number of submodules of a commit, including nested submodules.
const MOST_SUBMODULES: usize = 64;

/// Submodule of a commit.
struct Submodule {
    path: PathBuf,
    commit: Sha,
    /// Name in `.gitmodules`; `None` if it has no entry there.
    name: Option<String>,
    /// Address in `.gitmodules`; `None` if it has none.
    url: Option<String>,
}

impl Workspaces {
    /// Fetches the submodules of a commit that the mirror lacks. Returns a sentence without a full stop for each one that stays
    /// empty.
    pub(super) async fn fetch_submodules(
        &self,
        guard: &RepoGuard,
        tree_paths: &TreePaths,
        access: &GitUrl,
        commit: &Sha,
    ) -> Result<Vec<String>, WorkspaceError> {
        let (mut notes, mut seen) = (Vec::new(), 0);
        let mut waiting = vec![(PathBuf::new(), access.clone(), commit.clone())];
        while let Some((above, from, commit)) = waiting.pop() {
            for module in self.submodules_of(&tree_paths.store, &commit).await? {
                let path = above.join(&module.path);
                seen += 1;
                let copy = module.name.as_deref().and_then(|name| copy_of(&from, name)).map(Some);
                let by_address = |url: &String| access_of(&from, url, &self.settings.submodule_hosts);
                let listed = copy.or_else(|| module.url.as_ref().map(by_address));
                let outcome = match listed {
                    _ if seen > MOST_SUBMODULES => {
                        Err(Failure::new(format!("there are more than {MOST_SUBMODULES} submodules")))
                    }
                    None => Err(Failure::new("it has no address in `.gitmodules`")),
                    Some(None) if from.url.starts_with("file:") => {
                        Err("the repository has no copy of it; run `git submodule update --init --recursive`".into())
                    }
                    Some(None) => Err(Failure::new("its host is neither the repository's nor in `submodules.hosts`")),
                    Some(Some(access)) => {
                        self.fetch_submodule(guard, tree_paths, &access, &module.commit).await.map(|()| access)
                    }
                };
                match outcome {
                    Ok(access) => waiting.push((path, access, module.commit)),
                    Err(why) => notes.push(format!("The submodule `{}` is empty: {why}", plain(&path))),
                }
            }
        }
        Ok(notes)
    }

    /// Fetches a submodule's commit and keeps it. The error is a reason for people.
    async fn fetch_submodule(
        &self,
        guard: &RepoGuard,
        tree_paths: &TreePaths,
        access: &GitUrl,
        commit: &Sha,
    ) -> Result<(), Failure> {
        let fetch = async {
            if !self.has_commit(&tree_paths.mirror, commit).await? {
                self.fetch_commit(guard, &tree_paths.mirror, access, commit).await?;
            }
            self.complete(guard, tree_paths, access, &[commit]).await?;
            let keep = RefChange::Set(module_ref(commit), commit.clone());
            self.update_refs(guard, &tree_paths.mirror, &[keep]).await
        };
        fetch.await.map_err(|error: WorkspaceError| {
            tracing::warn!(%error, commit = %commit, "could not fetch a submodule");
            Failure::new(format!("the bot cannot fetch its commit {}", commit.short()))
        })
    }

    async fn submodules_of(&self, store: &Path, commit: &Sha) -> Result<Vec<Submodule>, WorkspaceError> {
        let blob = format!("{commit}:.gitmodules");
        let call = GitCommand::new("read the addresses of submodules", store);
        let call = call.args(["config", "--blob", &blob, "-z", "--get-regexp", r"^submodule\..*\.(path|url)$"]);
        let text = String::from_utf8_lossy(&self.git.run(call).await?.stdout).into_owned();
        let entries: Vec<(&str, &str)> = text.split('\0').filter_map(|entry| entry.split_once('\n')).collect();
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let listed = self.links_of(store, commit).await?;
        let value_of = |key: &str, end: &str| {
            let is_key = |(known, _): &&(&str, &str)| known.strip_suffix(end) == Some(key);
            entries.iter().find(is_key).map(|(_, value)| (*value).to_owned())
        };
        let module = |(path, commit): (PathBuf, Sha)| {
            let is_path = |(key, value): &&(&str, &str)| key.ends_with(".path") && Path::new(value) == path;
            let key = entries.iter().find(is_path).and_then(|(key, _)| key.strip_suffix(".path"));
            let name = key.and_then(|key| key.strip_prefix("submodule.")).map(str::to_owned);
            Submodule { url: key.and_then(|key| value_of(key, ".url")), name, path, commit }
        };
        Ok(listed.into_iter().map(module).collect())
    }

    async fn links_of(&self, store: &Path, commit: &Sha) -> Result<Vec<(PathBuf, Sha)>, WorkspaceError> {
        Ok(self.tracked_at(store, commit).await?.submodule_commits())
    }

    /// Puts the files of the fetched submodules into a tree with the other files of a commit.
    pub(super) async fn fill_submodules(
        &self,
        tree_paths: &TreePaths,
        tracked: &Tracked,
    ) -> Result<(), WorkspaceError> {
        let mut waiting = tracked.submodule_commits();
        while let Some((path, commit)) = waiting.pop() {
            let Some((target, scratch)) = self.submodule_folder(tree_paths, &path, &commit).await? else { continue };
            let index = scratch.path().join("index");
            let call = GitCommand::new("fill a submodule", &tree_paths.store).on_tree(&target, &index);
            self.git.ok(call.args(["read-tree", "--reset", "-u", "--no-recurse-submodules", commit.as_str()])).await?;
            let below = self.links_of(&tree_paths.store, &commit).await?;
            waiting.extend(below.into_iter().map(|(below, commit)| (path.join(below), commit)));
        }
        Ok(())
    }

    /// Returns the paths of the submodules whose files in a tree differ from their commits. A submodule that was not fetched
    /// has none.
    pub(super) async fn changed_submodules(
        &self,
        tree_paths: &TreePaths,
        tracked: &Tracked,
    ) -> Result<Vec<String>, WorkspaceError> {
        let mut changed = Vec::new();
        for (path, commit) in tracked.submodule_commits() {
            let Some((target, scratch)) = self.submodule_folder(tree_paths, &path, &commit).await? else {
                let entries = std::fs::read_dir(tree_paths.dir.join(&path));
                let is_filled = entries.is_ok_and(|mut entries| entries.next().is_some());
                if is_filled && files::parents_are_real(&tree_paths.dir, &path) {
                    changed.push(plain(&path));
                }
                continue;
            };
            let index = scratch.path().join("index");
            let call = |what| GitCommand::new(what, &tree_paths.store).on_tree(&target, &index);
            self.git.ok(call("read a submodule").args(["read-tree", commit.as_str()])).await?;
            let list = ["ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard"];
            let listed = self.git.ok(call("list the changes in a submodule").args(list)).await?;
            if !listed.stdout.is_empty() {
                changed.push(plain(&path));
            }
        }
        Ok(changed)
    }

    /// Returns the folder of a fetched submodule in a tree, and a folder for its index; `None` if it was not fetched, or if the
    /// tree has something else there.
    async fn submodule_folder(
        &self,
        tree_paths: &TreePaths,
        path: &Path,
        commit: &Sha,
    ) -> Result<Option<(PathBuf, super::layout::ScratchFolder)>, WorkspaceError> {
        if self.ref_value(&tree_paths.mirror, &module_ref(commit)).await?.is_none() {
            return Ok(None);
        }
        let target = tree_paths.dir.join(path);
        let is_folder = std::fs::symlink_metadata(&target).is_ok_and(|found| found.is_dir());
        if !is_folder || !files::parents_are_real(&tree_paths.dir, path) {
            return Ok(None);
        }
        Ok(Some((target, self.layout.scratch()?)))
    }
}

/// Returns the name of the ref that keeps a submodule's commit.
fn module_ref(commit: &Sha) -> String {
    format!("refs/ralph/modules/{commit}")
}

/// Returns a path as it is shown to people.
fn plain(path: &Path) -> String {
    path.to_string_lossy().chars().filter(|c| !c.is_control() && *c != '`').collect()
}

/// Returns the copy of a submodule in the git directory of a local repository; `None` if `from` is not local or has no copy.
fn copy_of(from: &GitUrl, name: &str) -> Option<GitUrl> {
    let git_dir = Url::parse(&from.url).ok().filter(|url| url.scheme() == "file")?.to_file_path().ok()?;
    let is_harmless = name.split('/').all(|part| !matches!(part, "" | "." | ".."));
    let folder = git_dir.join("modules").join(name);
    let url = Url::from_file_path(&folder).ok().filter(|_| is_harmless && folder.is_dir())?;
    Some(GitUrl { url: url.into(), credential: None, settling: Duration::ZERO })
}

/// Returns the address of a submodule with the credential of the repository that names it, or without one on a listed host. `None` if it
/// must not be fetched.
fn access_of(from: &GitUrl, url: &str, hosts: &[String]) -> Option<GitUrl> {
    if let Some(url) = address_of(&from.url, url) {
        return Some(GitUrl { url, ..from.clone() });
    }
    let url = public_address(url, hosts)?;
    Some(GitUrl { url, credential: None, settling: Duration::ZERO })
}

/// Returns the https address of a repository on one of these hosts.
fn public_address(url: &str, hosts: &[String]) -> Option<String> {
    let (at, path) = match url.split_once("://") {
        Some(("https" | "http" | "ssh" | "git", rest)) => rest.split_once('/')?,
        Some(_) => return None,
        None => url.split_once(':').filter(|(at, _)| !at.contains('/'))?,
    };
    let host = at.rsplit_once('@').map_or(at, |(_, host)| host).to_lowercase();
    // The port of another protocol differs from https.
    let host = if url.starts_with("https:") { host } else { host.split(':').next()?.to_owned() };
    let path = path.trim_start_matches('/');
    (hosts.contains(&host) && is_harmless(path)).then(|| format!("https://{host}/{path}"))
}

/// Whether a path of an address names only folders below the server's root.
fn is_harmless(path: &str) -> bool {
    let is_plain = |part: &str| !part.is_empty() && part != ".." && !part.starts_with('-');
    path.split('/').all(is_plain) && !path.contains(|c: char| c.is_control() || " ?#@\\".contains(c))
}

/// Returns the address of a submodule on the host of its repository: the one in `.gitmodules`, resolved against the repository's, and with the
/// forge's own scheme and port. `None` if it is not on the host of the repository.
fn address_of(repository: &str, url: &str) -> Option<String> {
    let (scheme, rest) = repository.split_once("://")?;
    let (authority, base) = rest.split_once('/').unwrap_or((rest, ""));
    let host = |authority: &str| {
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        authority.split(':').next().unwrap_or_default().to_lowercase()
    };
    let path = if url.starts_with("./") || url.starts_with("../") {
        let mut parts: Vec<&str> = base.trim_end_matches('/').split('/').filter(|part| !part.is_empty()).collect();
        for part in url.split('/') {
            match part {
                "." | "" => {}
                ".." => drop(parts.pop()?),
                part => parts.push(part),
            }
        }
        parts.join("/")
    } else if let Some((other, rest)) = url.split_once("://") {
        let (at, path) = rest.split_once('/').unwrap_or((rest, ""));
        let is_known =
            ["https", "http", "ssh", "git", "file"].contains(&other) && (other == "file") == (scheme == "file");
        (is_known && host(at) == host(authority)).then(|| path.to_owned())?
    } else {
        // `git@host:owner/name`
        let (at, path) = url.split_once(':').filter(|(at, _)| !at.contains('/'))?;
        (scheme != "file" && host(at) == host(authority)).then(|| path.trim_start_matches('/').to_owned())?
    };
    is_harmless(&path).then(|| format!("{scheme}://{authority}/{path}"))
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use super::*;

    #[test]
    fn only_addresses_on_the_same_forge_are_resolved() {
        let here = "https://forge.example:3000/acme/app.git";
        for (url, expected) in [
            ("../lib.git", Some("https://forge.example:3000/acme/lib.git")),
            ("../../tools/lib", Some("https://forge.example:3000/tools/lib")),
            ("https://forge.example:3000/acme/lib.git", Some("https://forge.example:3000/acme/lib.git")),
            ("git@forge.example:acme/lib.git", Some("https://forge.example:3000/acme/lib.git")),
            ("ssh://git@forge.example:22/acme/lib.git", Some("https://forge.example:3000/acme/lib.git")),
            ("https://token@forge.example/acme/lib", Some("https://forge.example:3000/acme/lib")),
            ("https://other.example/acme/lib.git", None),
            ("git@other.example:acme/lib.git", None),
            ("../../../../etc", None),
            ("https://forge.example/acme/../lib", None),
            ("https://forge.example/-u./payload", None),
            ("file:///etc/passwd", None),
            ("/etc/passwd", None),
            ("ext::sh -c x", None),
        ] {
            assert_eq!(address_of(here, url).as_deref(), expected, "{url}");
        }
        assert_eq!(address_of("file:///srv/app.git", "../lib.git").as_deref(), Some("file:///srv/lib.git"));
    }

    #[test]
    fn listed_hosts_are_reached_by_https_without_a_credential() {
        let credential = Some(("bot".to_owned(), SecretString::from("token")));
        let here = GitUrl { url: "https://forge.example/acme/app.git".into(), credential, settling: Duration::ZERO };
        let hosts = ["github.com".to_owned(), "git.example:8443".to_owned()];
        for (url, expected) in [
            ("https://github.com/acme/lib.git", Some("https://github.com/acme/lib.git")),
            ("git@GitHub.com:acme/lib.git", Some("https://github.com/acme/lib.git")),
            ("ssh://git@github.com:22/acme/lib", Some("https://github.com/acme/lib")),
            ("https://user:password@github.com/acme/lib", Some("https://github.com/acme/lib")),
            ("https://git.example:8443/lib", Some("https://git.example:8443/lib")),
            ("https://github.com:8443/acme/lib", None),
            ("https://git.example/lib", None),
            ("https://github.com.evil.example/acme/lib", None),
            ("https://github.com@evil.example/acme/lib", None),
            ("https://github.com/../lib", None),
            ("https://github.com/-u./payload", None),
            ("file://github.com/etc/passwd", None),
            ("ext::sh -c x", None),
        ] {
            let found = access_of(&here, url, &hosts);
            assert_eq!(found.as_ref().map(|access| access.url.as_str()), expected, "{url}");
            assert!(found.is_none_or(|access| access.credential.is_none()), "{url}");
        }
        let own = access_of(&here, "../lib.git", &hosts).unwrap();
        assert!(own.credential.is_some());
        // A submodule of a public repository cannot make the bot use its credential.
        let public = access_of(&here, "https://github.com/acme/lib.git", &hosts).unwrap();
        assert!(access_of(&public, "https://forge.example/acme/private.git", &hosts).is_none());
        assert_eq!(access_of(&public, "../other", &hosts).unwrap().url, "https://github.com/acme/other");
    }
}
