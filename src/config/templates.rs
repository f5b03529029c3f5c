//! Reads the operator's own texts: a folder with the names of the built-in templates in it.

use std::path::Path;

use super::FILE_MAX;

/// Deepest folder below the operator's: names have one (`comment/status.md`).
const DEEPEST: usize = 2;

/// Name (`comment/status.md`) and content of each Markdown file in `folder`, in the order of their names. Hidden files are
/// passed over; everything else must be a template, so that a name with a slip in it is not passed over in silence. The
/// error is a sentence.
pub(super) fn read(folder: &Path) -> Result<Vec<(String, String)>, String> {
    let mut found = Vec::new();
    collect(folder, "", 0, &mut found)?;
    found.sort();
    Ok(found)
}

fn collect(folder: &Path, prefix: &str, depth: usize, found: &mut Vec<(String, String)>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("the folder {} is not readable: {error}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(format!("{} has a name that is not valid text", path.display()));
        };
        if name.starts_with('.') {
            continue;
        }
        let name = format!("{prefix}{name}");
        let metadata =
            std::fs::metadata(&path).map_err(|error| format!("{} is not readable: {error}", path.display()))?;
        if metadata.is_dir() && depth < DEEPEST {
            collect(&path, &format!("{name}/"), depth + 1, found)?;
        } else if !metadata.is_file() || !name.ends_with(".md") {
            return Err(format!("{} is no template; their names end in .md, as comment/status.md", path.display()));
        } else if metadata.len() > FILE_MAX {
            return Err(format!("{} has {} bytes, too many for a template", path.display(), metadata.len()));
        } else {
            let text = std::fs::read_to_string(&path);
            found.push((name, text.map_err(|error| format!("{} is not readable: {error}", path.display()))?));
        }
    }
    Ok(())
}
