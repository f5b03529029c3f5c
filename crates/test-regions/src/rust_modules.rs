//! Files of Rust modules that are compiled only for tests.

use crate::MAX_FILE_BYTES;
use crate::rust::{OutOfLineModule, read};

/// Test module in another file, declared by `#[cfg(test)] mod tests;`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestModuleFile {
    /// Paths where the compiler looks for the module, relative to the repository's root.
    pub files: Vec<String>,
    /// Folders of its submodules, with a trailing slash.
    pub folders: Vec<String>,
}

impl TestModuleFile {
    /// Whether a file is the module or one of its submodules.
    pub fn contains(&self, path: &str) -> bool {
        self.files.iter().any(|file| file == path) || self.folders.iter().any(|folder| path.starts_with(folder))
    }
}

/// Returns the files of the modules that a Rust file declares only for tests; empty for other languages and files larger than
/// [`MAX_FILE_BYTES`].
pub fn test_module_files(path: &str, source: &str) -> Vec<TestModuleFile> {
    if !path.ends_with(".rs") || source.len() > MAX_FILE_BYTES {
        return Vec::new();
    }
    read(source).1.iter().map(|module| files_of(path, module)).collect()
}

fn files_of(path: &str, module: &OutOfLineModule) -> TestModuleFile {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = file.strip_suffix(".rs").unwrap_or(file);
    let is_root = ["mod", "lib", "main"].contains(&stem);
    // Any file can be the root of a crate, depending on the manifest.
    let bases = if is_root { vec![folder.to_owned()] } else { vec![below(folder, stem), folder.to_owned()] };
    let mut files = Vec::new();
    let mut folders = Vec::new();
    for base in bases {
        let base = module.parents.iter().fold(base, |base, parent| below(&base, parent));
        if let Some(path) = &module.path {
            let from = if module.parents.is_empty() { folder } else { &base };
            files.push(normal(&below(from, path)));
            continue;
        }
        let inside = below(&base, &module.name);
        files.extend([format!("{inside}.rs"), format!("{inside}/mod.rs")]);
        folders.push(format!("{inside}/"));
    }
    files.dedup();
    TestModuleFile { files, folders }
}

fn below(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// Returns a path without its `.` and `..` segments.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.join("/")
}
