//! Allow list of the parts of the machine that are visible in a sandbox: the folders that programs need, without those that are
//! hidden.
//!
//! Always visible are `/usr` without `/usr/local`, and the system's folders of programs and libraries beside it. Of everything
//! else, only folders that programs on the `PATH` need are visible: for `PREFIX/bin` the whole prefix, for any other folder the folder
//! itself. A prefix that programs share with other things (`/usr/local`, `~/.local`, a home, a folder directly below `/`) is an
//! exception: of `/usr/local`, only the folders with programs, libraries and their data are visible; of other shared prefixes,
//! only the folder on the `PATH`. A link on the `PATH` to a program elsewhere counts like an entry of the `PATH`. `/nix/store` is
//! visible if it contains a program, because its programs need each other and every user may read it.
//!
//! The service's own data, configuration, secrets and home are always hidden.

use std::path::{Path, PathBuf};

use ralph_types::failure::Failure;

/// Folders of the system's programs and libraries.
pub const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// Folder in `/usr` for software that the system did not install. It is hidden, except the parts that programs need.
pub const LOCAL: &str = "/usr/local";
/// Subfolders of a shared prefix that programs need.
pub const OF_PROGRAMS: [&str; 8] = ["bin", "sbin", "lib", "lib32", "lib64", "libexec", "include", "share"];
/// Nix store, whose packages need each other.
const NIX_STORE: &str = "/nix/store";
/// Number of path components, including the root, of a folder directly below the root.
const BELOW_ROOT: usize = 2;

/// Kind of a path that is hidden in every sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HiddenKind {
    /// A folder and everything below it, except folders of single runs.
    Folder,
    /// A file. Its whole folder is hidden, because a mount on the file itself would have no effect if the file is replaced.
    File,
    /// The service's home. It is not hidden if it is a folder of the system.
    Home,
}

/// Path that is hidden in every sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HiddenPath {
    /// Absolute path without links.
    pub path: PathBuf,
    /// Kind of the path.
    pub kind: HiddenKind,
    /// Name for the operator, such as "`data_dir`".
    pub name: String,
}

impl HiddenPath {
    /// Returns the folder to hide.
    fn folder(&self) -> &Path {
        match self.kind {
            HiddenKind::File => self.path.parent().unwrap_or(&self.path),
            HiddenKind::Folder | HiddenKind::Home => &self.path,
        }
    }
}

/// Whether a path without links is visible as part of the system.
pub fn in_system(path: &Path) -> bool {
    SYSTEM.iter().any(|folder| path.starts_with(folder)) && !path.starts_with(LOCAL)
}

/// Returns the folders that programs in `folder` need in addition to the system's. `folder` is absolute and without links.
pub fn needed_by_programs_in(folder: &Path, home: &Path) -> Vec<PathBuf> {
    if in_system(folder) {
        return Vec::new();
    }
    if folder.starts_with(NIX_STORE) {
        return vec![NIX_STORE.into()];
    }
    let is_of_programs = ["bin", "sbin"].iter().any(|name| folder.ends_with(name));
    match folder.parent().filter(|_| is_of_programs) {
        Some(prefix) if prefix == Path::new(LOCAL) => OF_PROGRAMS.iter().map(|name| prefix.join(name)).collect(),
        Some(prefix) if !is_shared(prefix, home) => vec![prefix.to_owned()],
        _ if is_shared(folder, home) && !is_of_programs => Vec::new(),
        _ => vec![folder.to_owned()],
    }
}

/// Whether a folder is shared by programs and other things.
fn is_shared(folder: &Path, home: &Path) -> bool {
    folder.ends_with(".local")
        || folder == Path::new(LOCAL)
        || home.starts_with(folder)
        || folder.parent() == Some(Path::new("/home"))
        || folder.components().count() <= BELOW_ROOT
}

/// Returns the paths to cover with empty folders in a sandbox that shows `shown` in addition to the system's folders, parents
/// first. Paths of `shown` have no links; those within a covered path are mounted on top.
///
/// # Errors
/// A path is both shown and hidden. The error names the path and a remedy.
pub fn covered(hidden: &[HiddenPath], shown: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut covered = vec![PathBuf::from(LOCAL)];
    for one in hidden {
        let folder = one.folder();
        let roots = || shown.iter().map(PathBuf::as_path);
        let above = |root: &&Path| folder.starts_with(root);
        let root = roots().filter(above).max_by_key(|root| root.components().count());
        let equal_root = roots().find(|root| *root == one.path || *root == folder);
        let of_system = is_of_system(folder);
        // Without its programs or libraries a prefix is of no use.
        let needed = roots().find(|root| OF_PROGRAMS.iter().any(|name| folder == root.join(name)));
        match (equal_root, one.kind) {
            (_, HiddenKind::Home) if of_system => {}
            (Some(equal_root), _) => return Err(conflict(one, equal_root)),
            _ if needed.is_some() => return Err(conflict(one, folder)),
            _ if of_system => return Err(conflict(one, folder)),
            (None, _) if root.is_some() || in_system(folder) => covered.push(folder.to_owned()),
            // Not shown at all.
            (None, _) => {}
        }
    }
    covered.sort_by_key(|path| path.components().count());
    covered.dedup();
    Ok(covered)
}

/// Whether the folder is a part of the system that programs need.
fn is_of_system(folder: &Path) -> bool {
    let is_system = SYSTEM.iter().any(|system| folder == Path::new(system)) || folder == Path::new(LOCAL);
    let prefixes = ["/usr", LOCAL].map(Path::new);
    let of_prefix = prefixes.iter().any(|prefix| OF_PROGRAMS.iter().any(|name| folder == prefix.join(name)));
    is_system || of_prefix
}

/// Checks that the folders that the operator shows do not reveal the service's own.
///
/// # Errors
/// A path is both shown and hidden. The error names the path and a remedy.
pub fn check(hidden: &[HiddenPath], shown: &[PathBuf]) -> Result<(), Failure> {
    covered(hidden, shown)?;
    let inside =
        |one: &&HiddenPath| one.kind == HiddenKind::Folder && shown.iter().any(|root| root.starts_with(&one.path));
    match hidden.iter().find(inside) {
        None => Ok(()),
        Some(one) => {
            let root = shown.iter().find(|root| root.starts_with(&one.path));
            Err(conflict(one, root.unwrap_or(&one.path)))
        }
    }
}

fn conflict(hidden: &HiddenPath, shown: &Path) -> Failure {
    Failure::new(format!(
        "{} ({}) cannot be hidden from agents and checks, because they have to see {} (from `PATH`, the system, or \
         `sandbox.read_only`); move one of them",
        hidden.name,
        hidden.path.display(),
        shown.display(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(list: &[&str]) -> Vec<PathBuf> {
        list.iter().map(PathBuf::from).collect()
    }

    fn hidden(kind: HiddenKind, path: &str) -> HiddenPath {
        HiddenPath { path: path.into(), kind, name: "`it`".into() }
    }

    #[test]
    fn only_needed_folders_are_visible() {
        let home = Path::new("/home/ann");
        let local = OF_PROGRAMS.map(|name| format!("/usr/local/{name}"));
        let local: Vec<&str> = local.iter().map(String::as_str).collect();
        for (folder, expected) in [
            ("/usr/bin", &[][..]),
            ("/bin", &[]),
            ("/usr/lib/jvm/17/bin", &[]),
            ("/usr/local/bin", &local[..]),
            ("/usr/local/go/bin", &["/usr/local/go"]),
            ("/opt/node-22/bin", &["/opt/node-22"]),
            ("/opt/vendor/tool/sbin", &["/opt/vendor/tool"]),
            ("/opt/bin", &["/opt/bin"]),
            ("/opt", &[]),
            ("/opt/tool", &["/opt/tool"]),
            ("/home/ann/.cargo/bin", &["/home/ann/.cargo"]),
            ("/home/ann/.local/bin", &["/home/ann/.local/bin"]),
            ("/home/ann/bin", &["/home/ann/bin"]),
            ("/home/bob/bin", &["/home/bob/bin"]),
            ("/home/bob", &[]),
            ("/home/ann", &[]),
            ("/home/ann/.pyenv/shims", &["/home/ann/.pyenv/shims"]),
            ("/nix/store/abc-git-2/bin", &["/nix/store"]),
            ("/", &[]),
        ] {
            assert_eq!(needed_by_programs_in(Path::new(folder), home), paths(expected), "{folder}");
        }
    }

    /// See docs/research/threats.md#s1.
    #[test]
    fn own_paths_are_hidden_in_visible_folders() {
        let shown = paths(&["/opt/ralph", "/opt/node", "/home/ann/.cargo"]);
        let covering = |one: HiddenPath| {
            covered(&[one], &shown).map(|found| found.into_iter().filter(|path| path != Path::new(LOCAL)).collect())
        };
        for (kind, path, expected) in [
            (HiddenKind::Folder, "/opt/ralph/data", &["/opt/ralph/data"][..]),
            (HiddenKind::Folder, "/var/lib/ralph", &[]),
            (HiddenKind::File, "/opt/ralph/etc/ralph.yaml", &["/opt/ralph/etc"]),
            (HiddenKind::File, "/usr/share/ralph/token", &["/usr/share/ralph"]),
            (HiddenKind::File, "/etc/ralph/token", &[]),
            (HiddenKind::Home, "/home/ann", &[]),
            (HiddenKind::Home, "/opt/node/home", &["/opt/node/home"]),
            (HiddenKind::Home, "/usr/sbin", &[]),
        ] {
            assert_eq!(covering(hidden(kind, path)).ok(), Some(paths(expected)), "{path}");
        }
    }

    #[test]
    fn paths_that_have_to_be_shown_and_hidden_are_an_error() {
        let shown = paths(&["/opt/ralph", "/opt/data/tools", "/usr/local/bin"]);
        for (kind, path, words) in [
            (HiddenKind::Folder, "/opt/ralph", "have to see /opt/ralph "),
            (HiddenKind::File, "/opt/ralph/ralph.yaml", "have to see /opt/ralph "),
            (HiddenKind::File, "/opt/ralph/bin/token", "have to see /opt/ralph/bin "),
            (HiddenKind::Folder, "/opt/ralph/lib", "have to see /opt/ralph/lib "),
            (HiddenKind::File, "/usr/local/bin/token", "have to see /usr/local/bin "),
            (HiddenKind::File, "/usr/bin/token", "have to see /usr/bin "),
            (HiddenKind::Folder, "/usr/lib", "have to see /usr/lib "),
            (HiddenKind::Folder, "/opt/data", "have to see /opt/data/tools "),
            (HiddenKind::Home, "/opt/ralph", "have to see /opt/ralph "),
        ] {
            let error = check(&[hidden(kind, path)], &shown).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains(path) && error.ends_with("move one of them"), "{error}");
        }
        assert!(check(&[hidden(HiddenKind::Home, "/opt/data")], &shown).is_ok());
        // A run may see its own folders in the data folder.
        assert!(covered(&[hidden(HiddenKind::Folder, "/opt/data")], &shown).is_ok());
    }
}
