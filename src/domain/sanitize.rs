//! Makes other people's text harmless: what is shown, and what is prompted.
