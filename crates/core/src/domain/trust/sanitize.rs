//! Sanitization of text from a forge for prompts. Removes text that people do not see, and does not judge content. Text that leaves
//! the service is handled by `outbound`.

pub mod document;

/// Returns a text that was read from a page for a prompt: without invisible characters and the addresses of images.
pub fn for_prompt(text: &str) -> String {
    document::without_addresses(&visible(text))
}

/// Returns a text that a model wrote without invisible characters and HTML comments, and the number of comments.
pub fn without_comments(text: &str) -> (String, usize) {
    let text = visible(text);
    let (mut kept, mut count) = (String::with_capacity(text.len()), 0);
    let mut rest = text.as_str();
    while let Some(start) = rest.find("<!--") {
        kept.push_str(&rest[..start]);
        count += 1;
        rest = rest[start..].find("-->").map_or("", |end| &rest[start + end + 3..]);
    }
    kept.push_str(rest);
    (kept, count)
}

/// Removes terminal sequences, and control, bidirectional and invisible characters. Line feeds and tabs are kept.
pub fn visible(text: &str) -> String {
    crate::domain::model::characters::visible(text).0
}

/// Returns the length of the longest run of `wanted`, in characters.
pub(super) fn longest_run(text: &str, wanted: char) -> usize {
    text.split(|c| c != wanted).map(str::len).max().unwrap_or(0)
}
