//! Reads the folder of custom templates.

use std::path::Path;

use ralph_types::failure::Failure;

use super::FILE_MAX;

/// Maximum folder depth; template names have two parts (`comment/status.md`).
const DEEPEST: usize = 2;

/// Returns the name (`comment/status.md`) and content of each Markdown file in `folder`, sorted by name. Ignores hidden
/// files; any other file is an error, which exposes misspelled names.
pub(super) fn read(folder: &Path) -> Result<Vec<(String, String)>, Failure> {
    let mut found = Vec::new();
    collect(folder, "", 0, &mut found)?;
    found.sort();
    Ok(found)
}

fn collect(folder: &Path, prefix: &str, depth: usize, found: &mut Vec<(String, String)>) -> Result<(), Failure> {
    let unreadable = |path: &Path| Failure::new(format!("cannot read {}", path.display()));
    let failed = |error: std::io::Error| unreadable(folder).caused_by(error);
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(Failure::new(format!("the name of {} is not valid UTF-8", path.display())));
        };
        if name.starts_with('.') {
            continue;
        }
        let name = format!("{prefix}{name}");
        let metadata = std::fs::metadata(&path).map_err(|error| unreadable(&path).caused_by(error))?;
        if metadata.is_dir() && depth < DEEPEST {
            collect(&path, &format!("{name}/"), depth + 1, found)?;
        } else if !metadata.is_file() || !name.ends_with(".md") {
            let problem = Failure::new(format!("{} is not a template", path.display()));
            return Err(problem.with_hint("names of templates end in .md, such as comment/status.md"));
        } else if metadata.len() > FILE_MAX {
            return Err(Failure::new(format!(
                "{} has {} bytes, the maximum for a template is {FILE_MAX}",
                path.display(),
                metadata.len()
            )));
        } else {
            let text = std::fs::read_to_string(&path);
            found.push((name, text.map_err(|error| unreadable(&path).caused_by(error))?));
        }
    }
    Ok(())
}
