//! Images in the first message to the model.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use data_encoding::BASE64;

use crate::agent::AgentRun;
use crate::domain::model::image::format_of;
use crate::domain::providers::chat::{CallError, ChatImage, ChatMessage};

/// Maximum length of an image in base64, in bytes; Anthropic refuses larger ones.
const MAX_BASE64: usize = 5_000_000;
/// Words in the error messages of servers whose models do not accept images.
const REFUSALS: [&str; 4] = ["image", "vision", "multimodal", "modalit"];

/// Returns the first message of a run: the prompt, with its images if the model accepts them. The message names images
/// that are left out.
pub(super) fn first_message(run: &AgentRun, takes_images: bool) -> ChatMessage {
    let (mut shown, mut not_shown) = (Vec::new(), Vec::new());
    for file in &run.images.attached {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        match takes_images.then(|| read(file, &name)).flatten() {
            Some(image) => shown.push(image),
            None => not_shown.push(name),
        }
    }
    let mut text = run.prompt.clone();
    if !not_shown.is_empty() {
        let why =
            if takes_images { "they are too large or could not be read" } else { "your model does not accept images" };
        text.push_str(&format!(
            "\n\nThese images were not shown to you, because {why}: {}. Do not guess what they show; if the task depends on it, \
             say so in the report.\n",
            not_shown.join(", ")
        ));
    }
    if shown.is_empty() { ChatMessage::User(text) } else { ChatMessage::UserWithImages(text, shown) }
}

/// Reads an image; `None` if it is too large or not an image.
fn read(file: &Path, name: &str) -> Option<ChatImage> {
    let content = fs::read(file).ok()?;
    let format = format_of(&content).ok()?;
    let base64 = BASE64.encode(&content);
    (base64.len() <= MAX_BASE64).then(|| ChatImage {
        name: name.to_owned(),
        media_type: format.media_type(),
        base64: Arc::from(base64),
    })
}

/// Whether a server refused a request because of its images.
pub(super) fn are_refused(error: &CallError) -> bool {
    let what = error.what.to_ascii_lowercase();
    matches!(error.signals.status, Some(400 | 404 | 413 | 415 | 422 | 500 | 501))
        && REFUSALS.iter().any(|word| what.contains(word))
}
