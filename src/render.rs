//! Views to Markdown: escaping, size cap, marker, footer.
