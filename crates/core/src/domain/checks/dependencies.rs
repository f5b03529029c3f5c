//! Dependencies of a repository: files that pin them, commands that install them, their folders, their registries, and signs
//! in a check's output that they are missing.

mod ecosystems;
mod failure;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use ecosystems::ECOSYSTEMS;
pub use failure::{decisive_lines, missing_dependency, needs_network};

/// Settings of a repository's environment: the hosts that `setup` can reach, and its results to keep.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct EnvironmentSettings {
    /// Globs of ignored files to keep, in addition to the ecosystems' folders.
    pub cache: Vec<String>,
    /// Hosts and names of ecosystems that replace the registries of the detected ecosystems.
    pub network: Option<Vec<String>>,
}

/// Whether a path is a file with this name in any folder. `*` in the name matches any text.
fn is_named(path: &str, name: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    match name.split_once('*') {
        Some((start, end)) => file.len() >= start.len() + end.len() && file.starts_with(start) && file.ends_with(end),
        None => file == name,
    }
}

/// Returns the files that determine the result of the setup commands: lock files; manifests of an ecosystem without a lock
/// file; settings of package managers; files named in the commands; and the file of the task runner that they call.
pub fn deciding_files<'p>(paths: &[&'p str], commands: &[String]) -> BTreeSet<&'p str> {
    let mut found = BTreeSet::new();
    for ecosystem in ECOSYSTEMS {
        let named = |names: &'static [&'static str]| {
            paths.iter().copied().filter(move |path| names.iter().any(|name| is_named(path, name)))
        };
        let locks = found.len();
        found.extend(named(ecosystem.locks));
        if found.len() == locks {
            found.extend(named(ecosystem.manifests));
        }
        found.extend(named(ecosystem.settings));
    }
    let words: BTreeSet<&str> = commands
        .iter()
        .flat_map(|command| command.split(|c: char| c.is_whitespace() || "'\";&|()=".contains(c)))
        .collect();
    for path in paths.iter().copied() {
        let is_runner_file = |(program, files): &(&str, &[&str])| words.contains(program) && files.contains(&path);
        let is_named_in_words = || words.iter().any(|word| word.strip_prefix("./").unwrap_or(word) == path);
        if RUNNERS.iter().any(is_runner_file) || is_named_in_words() {
            found.insert(path);
        }
    }
    found
}

/// Task runners, each with the files at the root that define its tasks.
const RUNNERS: [(&str, &[&str]); 3] = [
    ("make", &["GNUmakefile", "makefile", "Makefile"]),
    ("just", &["justfile", "Justfile", ".justfile"]),
    ("task", &["Taskfile.yml", "Taskfile.yaml", "Taskfile.dist.yml"]),
];

/// Returns the globs of folders in which the ecosystems keep a repository's dependencies.
pub fn dependency_folders() -> impl Iterator<Item = &'static str> {
    ECOSYSTEMS.iter().flat_map(|ecosystem| ecosystem.folders).copied()
}

/// Returns the hosts that the setup commands can reach: the hosts in `network`, in which an ecosystem's name means its
/// registries, or by default the registries of the ecosystems with files among `paths`.
pub fn registries(network: Option<&[String]>, paths: &[&str]) -> Vec<String> {
    let owned = |hosts: &[&str]| hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>();
    match network {
        Some(entries) => entries
            .iter()
            .flat_map(|entry| match ECOSYSTEMS.iter().find(|ecosystem| ecosystem.name == entry) {
                Some(ecosystem) => owned(ecosystem.registries),
                None => vec![entry.clone()],
            })
            .collect(),
        None => {
            let has = |names: &[&str]| paths.iter().any(|path| names.iter().any(|name| is_named(path, name)));
            let present = ECOSYSTEMS.iter().filter(|ecosystem| has(ecosystem.locks) || has(ecosystem.manifests));
            present.flat_map(|ecosystem| owned(ecosystem.registries)).collect()
        }
    }
}

/// Returns the names of the ecosystems.
pub fn ecosystem_names() -> impl Iterator<Item = &'static str> {
    ECOSYSTEMS.iter().map(|ecosystem| ecosystem.name)
}

/// Returns the commands that install a repository's dependencies, according to the files at its root; empty if it has no
/// dependencies or they are unknown. `files` returns the text of the file at a path, if it exists.
pub fn install_commands(files: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    ECOSYSTEMS.iter().flat_map(|ecosystem| (ecosystem.install)(files)).collect()
}

/// Returns the line for the repository's file that sets the setup commands.
pub fn setup_line(commands: &[String]) -> String {
    let plain = |command: &str| !command.contains([',', '[', ']', '{', '}', '#', ':', '\'', '"']);
    let quoted = commands.iter().map(|command| match plain(command) {
        true => command.clone(),
        false => format!("'{}'", command.replace('\'', "''")),
    });
    format!("setup: [{}]", quoted.collect::<Vec<_>>().join(", "))
}
