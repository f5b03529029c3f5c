//! Contents API that GitHub and Gitea share: entries of a folder, and files in base64.

use ralph_types::failure::Failure;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::PathFilter;

/// Maximum number of files that are read from a folder.
const MAX_FILES: usize = 50;
/// Maximum size of a file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 256 * 1024;

/// Response for a path.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum FolderContents {
    /// Entries of a folder.
    Folder(Vec<FolderEntry>),
    /// Any other object.
    Other(IgnoredAny),
}

/// Entry of a folder.
#[derive(Deserialize)]
pub(super) struct FolderEntry {
    /// Path from the root of the repository.
    pub(super) path: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    size: u64,
}

/// Content of a file, in base64.
#[derive(Deserialize)]
pub(super) struct FileContents {
    content: Option<String>,
}

impl FolderContents {
    /// Returns the selected paths of files up to the maximum size, sorted, at most [`MAX_FILES`]; empty if the path is
    /// not a folder.
    pub(super) fn files(self, wanted: PathFilter) -> Vec<String> {
        let Self::Folder(entries) = self else { return Vec::new() };
        let files = entries.into_iter().filter(|entry| entry.kind == "file" && entry.size <= MAX_FILE_BYTES);
        let mut paths: Vec<String> = files.map(|entry| entry.path).filter(|path| wanted(path)).collect();
        paths.sort();
        paths.truncate(MAX_FILES);
        paths
    }
}

impl FileContents {
    /// Decodes the text; replaces invalid UTF-8.
    ///
    /// # Errors
    /// A message for people, if the content is not valid base64.
    pub(super) fn text(&self) -> Result<String, Failure> {
        let base64: String = self.content.iter().flat_map(|text| text.split_whitespace()).collect();
        let bytes = data_encoding::BASE64
            .decode(base64.as_bytes())
            .map_err(|error| Failure::new("invalid file content").caused_by(error))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
