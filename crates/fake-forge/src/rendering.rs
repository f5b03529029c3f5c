//! Renders texts as HTML like a forge: CommonMark with its usual extensions, or a page supplied by a test.

use pulldown_cmark::{Event, Options, Parser, html};

use crate::state::FakeState;

/// Returns a text's HTML, without comments and elements that forges remove.
pub(super) fn rendered(state: &FakeState, text: &str) -> String {
    state.pages.get(text).cloned().unwrap_or_else(|| common_mark(text))
}

fn common_mark(text: &str) -> String {
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS | Options::ENABLE_GFM;
    let events = Parser::new_ext(text, options).map(|event| match event {
        Event::SoftBreak => Event::HardBreak,
        other => other,
    });
    let mut page = String::new();
    html::push_html(&mut page, events);
    without_comments(&page)
}

fn without_comments(page: &str) -> String {
    let mut kept = String::with_capacity(page.len());
    let mut rest = page;
    while let Some(start) = rest.find("<!--") {
        kept.push_str(&rest[..start]);
        rest = rest[start..].find("-->").map_or("", |end| &rest[start + end + 3..]);
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_kept_and_comments_removed() {
        let page = common_mark("a\n**b** <!-- hidden -->\n\n<!--\nhidden\n-->\n\n- [ ] c");
        assert!(page.starts_with("<p>a<br />\n<strong>b</strong> </p>"), "{page}");
        assert!(page.contains("type=\"checkbox\"") && !page.contains("hidden"), "{page}");
    }
}
