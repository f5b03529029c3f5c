//! Files of a repository as both kinds of forge answer for them: a list of what is in a folder, and a file in base64.

use serde::Deserialize;
use serde::de::IgnoredAny;

/// Most files that are read of a folder, and the largest, in bytes.
const MOST: usize = 50;
const LARGEST: u64 = 256 * 1024;

/// What is at a path.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Found {
    /// A folder.
    Folder(Vec<Entry>),
    /// Something else.
    Other(IgnoredAny),
}

/// One thing in a folder.
#[derive(Deserialize)]
pub(super) struct Entry {
    /// From the root of the repository.
    pub(super) path: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    size: u64,
}

/// A file with what is in it.
#[derive(Deserialize)]
pub(super) struct Whole {
    content: Option<String>,
}

impl Found {
    /// Paths of the files that are worth reading, sorted.
    pub(super) fn files(self) -> Vec<String> {
        let Self::Folder(entries) = self else { return Vec::new() };
        let files = entries.into_iter().filter(|entry| entry.kind == "file" && entry.size <= LARGEST);
        let mut paths: Vec<String> = files.map(|entry| entry.path).collect();
        paths.sort();
        paths.truncate(MOST);
        paths
    }
}

impl Whole {
    /// The text; what is none is replaced.
    ///
    /// # Errors
    /// In a sentence, when the forge sent no base64.
    pub(super) fn text(&self) -> Result<String, String> {
        let packed: String = self.content.iter().flat_map(|text| text.split_whitespace()).collect();
        let bytes = data_encoding::BASE64.decode(packed.as_bytes()).map_err(|error| format!("its content: {error}"))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
