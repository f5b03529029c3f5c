//! Reads a command's line word by word: bare words, quoted values, options; what is left is free text.

use super::{nearest, shown};

/// What is wrong, in a sentence, and the nearest valid thing.
pub(super) type Problem = (String, Option<String>);

/// A place in a line.
#[derive(Debug)]
pub(super) struct WordReader<'a> {
    rest: &'a str,
}

impl<'a> WordReader<'a> {
    /// Starts at the beginning of `line`.
    pub fn new(line: &'a str) -> Self {
        Self { rest: line.trim() }
    }

    /// What has not been read yet, trimmed.
    pub fn rest(&self) -> &'a str {
        self.rest.trim()
    }

    /// The next characters up to white space, as they are; empty at the end.
    pub fn bare(&mut self) -> &'a str {
        let text = self.rest.trim_start();
        let (word, rest) = text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()));
        self.rest = rest.trim_start();
        word
    }

    /// The next option (`--name`), with the value written after `=` still unread; `None` where free text begins.
    /// A lone `--` ends the options and is swallowed.
    pub fn option(&mut self) -> Result<Option<&'a str>, Problem> {
        let text = self.rest.trim_start();
        if let Some(dash) = text.chars().next().filter(|c| matches!(c, '–' | '—' | '−')) {
            return Err((format!("Options begin with two plain hyphens (`--`), not with `{dash}`."), None));
        }
        if !text.starts_with("--") {
            return Ok(None);
        }
        let end = text.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        self.rest = rest;
        Ok((name != "--").then_some(name))
    }

    /// The next value: after `=`, or as the next word; quotes group, and a backslash keeps the next quote or backslash
    /// within double quotes. `None` at the end of the line.
    pub fn value(&mut self) -> Result<Option<String>, String> {
        let text = self.rest.strip_prefix('=').unwrap_or_else(|| self.rest.trim_start());
        if text.is_empty() {
            return Ok(None);
        }
        let mut value = String::new();
        let mut quote = None;
        let mut characters = text.char_indices().peekable();
        let mut end = text.len();
        while let Some((at, c)) = characters.next() {
            match (quote, c) {
                (None, c) if c.is_whitespace() => {
                    end = at;
                    break;
                }
                (None, '"' | '\'') => quote = Some(c),
                (None, '“' | '”' | '‘' | '’') => {
                    return Err(format!("Use straight quotes (`\"` or `'`), not `{c}`."));
                }
                (Some(open), c) if c == open => quote = None,
                (Some('"'), '\\') if matches!(characters.peek(), Some((_, '"' | '\\'))) => {
                    value.extend(characters.next().map(|(_, escaped)| escaped));
                }
                (_, c) => value.push(c),
            }
        }
        if quote.is_some() {
            return Err(format!("A quote is opened and not closed in `{}`.", shown(text)));
        }
        self.rest = text.get(end..).unwrap_or_default();
        Ok(Some(value))
    }

    /// Reads options where `name` is the only one there is; whether it was given.
    pub fn flag(&mut self, name: &'static str) -> Result<bool, Problem> {
        let mut given = false;
        while let Some(option) = self.option()? {
            if option != name || self.rest.starts_with('=') {
                return Err((unknown(option), nearest(option, &[name]).or(Some(name)).map(str::to_owned)));
            }
            given = true;
        }
        Ok(given)
    }
}

/// The sentence for an option that does not exist.
pub(super) fn unknown(option: &str) -> String {
    format!("There is no option `{}` here.", shown(option))
}
