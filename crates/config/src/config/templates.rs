//! Reads the folder of custom templates.

use std::path::Path;

use super::FILE_MAX;

/// Maximum folder depth; template names have two parts (`comment/status.md`).
const DEEPEST: usize = 2;

/// Returns the name (`comment/status.md`) and content of each Markdown file in `folder`, sorted by name. Ignores hidden
/// files; any other file is an error, which exposes misspelled names.
pub(super) fn read(folder: &Path) -> Result<Vec<(String, String)>, String> {
    let mut found = Vec::new();
    collect(folder, "", 0, &mut found)?;
    found.sort();
    Ok(found)
}

fn collect(folder: &Path, prefix: &str, depth: usize, found: &mut Vec<(String, String)>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot read folder {}: {error}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(format!("the name of {} is not valid UTF-8", path.display()));
        };
        if name.starts_with('.') {
            continue;
        }
        let name = format!("{prefix}{name}");
        let metadata = std::fs::metadata(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        if metadata.is_dir() && depth < DEEPEST {
            collect(&path, &format!("{name}/"), depth + 1, found)?;
        } else if !metadata.is_file() || !name.ends_with(".md") {
            return Err(format!(
                "{} is not a template; names of templates end in .md, such as comment/status.md",
                path.display()
            ));
        } else if metadata.len() > FILE_MAX {
            return Err(format!(
                "{} has {} bytes, the maximum for a template is {FILE_MAX}",
                path.display(),
                metadata.len()
            ));
        } else {
            let text = std::fs::read_to_string(&path);
            found.push((name, text.map_err(|error| format!("cannot read {}: {error}", path.display()))?));
        }
    }
    Ok(())
}
