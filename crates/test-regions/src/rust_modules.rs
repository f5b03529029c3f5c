//! Files of Rust modules that only tests compile.

use crate::rust::{OutOfLineModule, read};

/// Module with tests in another file, as `#[cfg(test)] mod tests;` declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestModuleFile {
    /// Paths at which the compiler looks for the module, relative to the root of the repository.
    pub files: Vec<String>,
    /// Folders with the modules inside of it, with a slash at the end.
    pub folders: Vec<String>,
}

impl TestModuleFile {
    /// Whether a file is the module or inside of it.
    pub fn contains(&self, path: &str) -> bool {
        self.files.iter().any(|file| file == path) || self.folders.iter().any(|folder| path.starts_with(folder))
    }
}

/// Returns the files of the modules that a Rust file declares for tests only. Other languages have none.
pub fn test_module_files(path: &str, source: &str) -> Vec<TestModuleFile> {
    if !path.ends_with(".rs") {
        return Vec::new();
    }
    read(source).1.iter().map(|module| files_of(path, module)).collect()
}

fn files_of(path: &str, module: &OutOfLineModule) -> TestModuleFile {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = file.strip_suffix(".rs").unwrap_or(file);
    let is_root = ["mod", "lib", "main"].contains(&stem);
    // Any file can be the root of a crate, by its manifest.
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

/// Returns a path without `.` and `..`.
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
