//! Facts about the project in a work tree, for the context of a prompt.

use std::path::Path;

use crate::domain::knowledge::intelligence::Project;
use crate::process::untrusted;

/// Files with instructions for agents; the first that exists is used.
const GUIDES: [&str; 3] = ["AGENTS.md", "CLAUDE.md", ".github/copilot-instructions.md"];
/// Maximum number of bytes read from such a file.
const GUIDE_BYTES: u64 = 4 * 1024;
/// Maximum number of entries in the outline.
const ENTRIES: usize = 40;
/// Files that identify a build system: file, name, test command.
const BUILDS: [(&str, &str, &str); 9] = [
    ("Cargo.toml", "cargo", "cargo test"),
    ("package.json", "npm", "npm test"),
    ("go.mod", "go", "go test ./..."),
    ("pyproject.toml", "python", "pytest"),
    ("setup.py", "python", "pytest"),
    ("pom.xml", "maven", "mvn test"),
    ("build.gradle", "gradle", "gradle test"),
    ("Makefile", "make", "make test"),
    ("CMakeLists.txt", "cmake", "ctest"),
];

/// Reads the facts about a tree; unreadable files are skipped. Links are not followed, because an agent may have
/// created them.
pub(super) fn look(tree: &Path, branch: &str) -> Project {
    let known = BUILDS.iter().find(|(file, ..)| is_file(&tree.join(file)));
    let mut entries: Vec<String> = std::fs::read_dir(tree)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name() != ".git")
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some(if entry.file_type().ok()?.is_dir() { format!("{name}/") } else { name })
        })
        .collect();
    entries.sort();
    let more = entries.len().saturating_sub(ENTRIES);
    entries.truncate(ENTRIES);
    let mut outline = entries.join(" ");
    if more > 0 {
        outline.push_str(&format!(" and {more} more"));
    }
    Project {
        guide: GUIDES.iter().find_map(|name| untrusted::read_text(&tree.join(name), GUIDE_BYTES)).unwrap_or_default(),
        outline,
        tests: known.map_or_else(String::new, |(_, _, tests)| (*tests).to_owned()),
        build: known.map_or_else(String::new, |(file, build, _)| format!("{build} ({file})")),
        branch: branch.to_owned(),
    }
}

fn is_file(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_yields_guide_and_build_commands() {
        let tree = tempfile::tempdir().expect("a folder");
        assert_eq!(look(tree.path(), "ralph/1"), Project { branch: "ralph/1".into(), ..Project::default() });
        std::fs::write(tree.path().join("Cargo.toml"), "[package]").expect("written");
        std::fs::write(tree.path().join("CLAUDE.md"), "x".repeat(9000)).expect("written");
        std::fs::create_dir(tree.path().join("src")).expect("made");
        std::os::unix::fs::symlink("/etc/passwd", tree.path().join("AGENTS.md")).expect("a link");
        let seen = look(tree.path(), "ralph/1");
        assert_eq!(seen.guide.len(), GUIDE_BYTES as usize, "the link is passed over");
        assert_eq!(seen.outline, "AGENTS.md CLAUDE.md Cargo.toml src/");
        assert_eq!((seen.build.as_str(), seen.tests.as_str()), ("cargo (Cargo.toml)", "cargo test"));
    }
}
