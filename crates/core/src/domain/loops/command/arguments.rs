//! Parser for the arguments of a command: words, quoted values and options, followed by free text.

use ralph_types::failure::Failure;

use super::{PREFIX, nearest, shown};

/// Problem of a command in one sentence, and the nearest valid input if there is one.
pub(super) type Problem = (String, Option<String>);

/// Maximum length of a reason or guidance, in bytes. Longer texts are cut.
const TEXT_BYTES: usize = 16 * 1024;

/// Arguments of a command that have not been parsed yet.
#[derive(Debug, Clone)]
pub(super) struct CommandArguments<'a> {
    rest: &'a str,
    after: &'a str,
}

impl<'a> CommandArguments<'a> {
    /// Starts parsing at the start of `line`. `after` is the text between the line and the next command.
    pub fn new(line: &'a str, after: &'a str) -> Self {
        Self { rest: line.trim(), after }
    }

    /// Reads up to the next white space, without interpreting quotes. Returns an empty text at the end of the line.
    pub fn word(&mut self) -> &'a str {
        let text = self.rest.trim_start();
        let (word, rest) = text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()));
        self.rest = rest.trim_start();
        word
    }

    /// Reads the next option (`--name`), and leaves a value after `=` unread. Returns `None` before free text. A lone `--` ends
    /// the options.
    pub fn option(&mut self) -> Result<Option<&'a str>, Problem> {
        let text = self.rest.trim_start();
        if let Some(dash) = text.chars().next().filter(|c| matches!(c, '–' | '—' | '−')) {
            return Err((format!("Options start with two plain hyphens (`--`), not with `{dash}`."), None));
        }
        if !text.starts_with("--") {
            return Ok(None);
        }
        let end = text.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        self.rest = rest;
        Ok((name != "--").then_some(name))
    }

    /// Reads a value, either after `=` or as the next word. Quotes and backticks group words; within double quotes, a backslash escapes a quote
    /// or a backslash. Returns `None` at the end of the line.
    pub fn value(&mut self) -> Result<Option<String>, Problem> {
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
                (None, '"' | '\'' | '`') => quote = Some(c),
                (None, '“' | '”' | '‘' | '’') => {
                    return Err((format!("Use straight quotes (`\"` or `'`), not `{c}`."), None));
                }
                (Some(open), c) if c == open => quote = None,
                (Some('"'), '\\') if matches!(characters.peek(), Some((_, '"' | '\\'))) => {
                    value.extend(characters.next().map(|(_, escaped)| escaped));
                }
                (_, c) => value.push(c),
            }
        }
        if quote.is_some() {
            return Err((format!("A quote is not closed in `{}`.", shown(text)), None));
        }
        self.rest = text.get(end..).unwrap_or_default();
        Ok(Some(value))
    }

    /// Reads and parses the only argument of a command. If it is invalid, the error suggests `usage`.
    pub fn parsed_value<T>(
        &mut self,
        usage: &str,
        parse: impl FnOnce(&str) -> Result<T, Failure>,
    ) -> Result<T, Problem> {
        let value = self.value()?.unwrap_or_default();
        parse(&value).map_err(|problem| (problem.to_string(), Some(usage.to_owned())))
    }

    /// Reads options, of which only `name` is valid. Returns whether it was given.
    pub fn flag(&mut self, name: &'static str) -> Result<bool, Problem> {
        let mut given = false;
        while let Some(option) = self.option()? {
            if option != name || self.rest.starts_with('=') {
                return Err((unknown_option(option), nearest(option, &[name]).or(Some(name)).map(str::to_owned)));
            }
            given = true;
        }
        Ok(given)
    }

    /// Reads the rest of the line.
    pub fn line(&mut self) -> String {
        cut(std::mem::take(&mut self.rest).to_owned())
    }

    /// Reads the rest of the line and the text up to the next command.
    pub fn text(&mut self) -> String {
        cut(format!("{}{}", std::mem::take(&mut self.rest), self.after))
    }

    /// Checks that the line has no further text. `name` is the name of the command, for the error.
    pub fn end(&self, name: &str) -> Result<(), Problem> {
        let rest = self.rest.trim();
        if rest.is_empty() {
            return Ok(());
        }
        let problem = format!("`{PREFIX} {name}` accepts no text after it, but there is `{}`.", shown(rest));
        Err((problem, Some(format!("{PREFIX} {name}"))))
    }
}

/// Trims a text and cuts it to `TEXT_BYTES`.
fn cut(text: String) -> String {
    let mut text = text.replace("\r\n", "\n");
    text.truncate(text.floor_char_boundary(TEXT_BYTES));
    text.trim().to_owned()
}

/// Returns the error message for an unknown option.
pub(super) fn unknown_option(option: &str) -> String {
    format!("There is no option `{}` here.", shown(option))
}

/// Appends a person's reason to a sentence, unless it is blank.
pub(super) fn with_reason(sentence: &str, reason: &str) -> String {
    if reason.trim().is_empty() { sentence.to_owned() } else { format!("{sentence}: {}", reason.trim()) }
}
