//! Folders that the programs in a `PATH` need.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use crate::domain::trust::visible::{OF_PROGRAMS, in_system, needed_by_programs_in};

/// Folders of tools that are found through `HOME`, each with the environment variable that overrides it.
const TOOL_HOMES: [(&str, &str); 3] = [(".rustup", "RUSTUP_HOME"), ("rustup", "RUSTUP_HOME"), (".pyenv", "PYENV_ROOT")];
/// Folders of cargo, whose programs are proxies of rustup, each with rustup's folder beside it.
const CARGO_HOMES: [(&str, &str); 2] = [(".cargo", ".rustup"), ("cargo", "rustup")];
/// Maximum number of links that are followed to a file, as in the kernel.
const MOST_LINKS: usize = 40;

/// Returns the folders and links that the programs in `path` (in the format of `PATH`) need in addition to the
/// system's, according to `domain::trust::visible`. `home` and its parent folders are left out.
pub fn tools(path: &OsStr, home: &Path) -> Vec<PathBuf> {
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    let mut found: Vec<PathBuf> = Vec::new();
    let mut links = Vec::new();
    for entry in std::env::split_paths(path).filter(|entry| entry.is_absolute()) {
        let Some((folder, passed)) = resolve(&entry).filter(|(folder, _)| folder.is_dir()) else { continue };
        found.extend(needed_in(&folder, &home));
        links.extend(passed);
        let of_system = in_system(&folder);
        for link in links_in(&folder) {
            // The other entry of the same folder is looked at by itself.
            if of_system && leads_beside(&link) {
                continue;
            }
            let Some((program, passed)) = resolve(&link).filter(|(program, _)| is_program(program)) else { continue };
            if program.starts_with(&folder) || in_system(&program) {
                continue;
            }
            let needed = needed_by(&program, &home);
            found.extend(if needed.is_empty() { vec![program] } else { needed });
            links.extend(passed);
        }
    }
    for (cargo, rustup) in CARGO_HOMES {
        let beside: Vec<PathBuf> =
            found.iter().filter(|folder| folder.ends_with(cargo)).map(|folder| folder.with_file_name(rustup)).collect();
        found.extend(beside.into_iter().filter(|folder| folder.is_dir()));
    }
    found.retain(|folder| folder.exists() && !home.starts_with(folder));
    let is_shown =
        |link: &Path| in_system(link) || link.starts_with("/etc") || found.iter().any(|f| link.starts_with(f));
    links.retain(|link| !is_shown(link));
    found.extend(links);
    found.sort();
    found.dedup();
    found
}

/// Returns environment variables with which tools in these folders find their data although `HOME` is different.
pub fn tool_environment(tools: &[PathBuf]) -> Vec<(OsString, OsString)> {
    tools
        .iter()
        .filter_map(|folder| {
            let (_, variable) = TOOL_HOMES.iter().find(|(name, _)| folder.ends_with(name))?;
            Some((OsString::from(variable), folder.into()))
        })
        .collect()
}

/// Returns the paths that the programs in a folder need. The parent of a `bin` folder is included only if it is an
/// installation, because unrelated files can be beside a folder of scripts.
fn needed_in(folder: &Path, home: &Path) -> Vec<PathBuf> {
    let is_installation = |prefix: &Path| {
        CARGO_HOMES.iter().any(|(name, _)| prefix.ends_with(name))
            || OF_PROGRAMS.iter().any(|name| !name.ends_with("bin") && prefix.join(name).is_dir())
    };
    let mut needed = needed_by_programs_in(folder, home);
    for one in &mut needed {
        if Some(one.as_path()) == folder.parent() && !is_installation(one) {
            folder.clone_into(one);
        }
    }
    needed
}

/// Returns the paths that a program needs to which a link in the `PATH` leads.
fn needed_by(program: &Path, home: &Path) -> Vec<PathBuf> {
    if let Some(packages) = program.ancestors().filter(|above| above.ends_with("node_modules")).last() {
        return vec![packages.to_owned()];
    }
    program.parent().map(|folder| needed_in(folder, home)).unwrap_or_default()
}

fn links_in(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink())).map(|entry| entry.path())
}

/// Whether a link leads to a file in the same folder.
fn leads_beside(link: &Path) -> bool {
    fs::read_link(link).is_ok_and(|target| {
        let mut parts = target.components();
        matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None))
    })
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Returns a path with links resolved, and the links on the way to it; `None` if it does not exist.
fn resolve(path: &Path) -> Option<(PathBuf, Vec<PathBuf>)> {
    let (mut real, mut links) = (PathBuf::from("/"), Vec::new());
    let mut left: Vec<OsString> = path.components().rev().map(|part| part.as_os_str().to_owned()).collect();
    while let Some(part) = left.pop() {
        match Path::new(&part).components().next()? {
            Component::RootDir => real = PathBuf::from("/"),
            Component::ParentDir => drop(real.pop()),
            Component::Normal(_) => {
                let next = real.join(&part);
                match fs::read_link(&next) {
                    Ok(_) if links.len() == MOST_LINKS => return None,
                    Ok(target) => {
                        left.extend(target.components().rev().map(|part| part.as_os_str().to_owned()));
                        links.push(next);
                    }
                    Err(_) => real = next,
                }
            }
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    real.exists().then_some((real, links))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn program(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn tool_folders_are_found_in_path() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap();
        for folder in [".cargo/bin", ".rustup", ".local/bin", "bin", "node/v22/bin", "node/v22/lib", "shims", "own/bin"]
        {
            fs::create_dir_all(home.join(folder)).unwrap();
        }
        let entries = [".cargo/bin", ".local/bin", "bin", "node/v22/bin", "shims", "own/bin", "gone/bin", ""];
        let mut path: Vec<PathBuf> = entries.iter().map(|e| home.join(e)).collect();
        path.extend(["/usr/bin".into(), "relative/bin".into()]);
        let found = tools(&std::env::join_paths(path).unwrap(), &home);
        let found: Vec<_> = found.into_iter().filter(|path| path.starts_with(&home)).collect();
        let expected = [".cargo", ".local/bin", ".rustup", "bin", "node/v22", "own/bin", "shims"].map(|e| home.join(e));
        assert_eq!(found, expected);
        assert!(tools(OsStr::new(""), &home).is_empty());
    }

    #[test]
    fn links_in_path_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let at = |path: &str| root.join(path);
        for path in ["opt/node-22/bin/node", "opt/agent/agent.js", "lib/node_modules/pkg/cli.js", "opt/other/bin/no"] {
            program(&at(path));
        }
        for path in ["path/bin", "opt/node-22/lib"] {
            fs::create_dir_all(at(path)).unwrap();
        }
        symlink("node-22", at("opt/node")).unwrap();
        symlink(at("opt/node/bin/node"), at("path/bin/node")).unwrap();
        symlink(at("opt/agent/agent.js"), at("path/bin/agent")).unwrap();
        symlink(at("lib/node_modules/pkg/cli.js"), at("path/bin/cli")).unwrap();
        symlink(at("opt/other"), at("path/bin/folder")).unwrap();
        symlink(at("gone"), at("path/bin/gone")).unwrap();
        symlink("loop", at("path/bin/loop")).unwrap();
        symlink(at("path"), at("current")).unwrap();
        let found = tools(at("current/bin").as_os_str(), Path::new("/nonexistent"));
        let expected = ["current", "lib/node_modules", "opt/agent", "opt/node", "opt/node-22", "path/bin"].map(at);
        assert_eq!(found, expected);
    }
}
