//! Template filters. Each escapes its value and returns Markdown.

use minijinja::{Environment, Error, ErrorKind, Value};

use super::chart;
use crate::domain::model::task::TamperKind;
use crate::domain::trust::{outbound, sanitize};

/// Registers all filters.
pub(super) fn register(environment: &mut Environment<'static>) {
    environment.add_filter("block", |text: &str| safe(outbound::for_people(text)));
    environment.add_filter("cell", |text: &str| safe(outbound::table_cell(text)));
    environment.add_filter("code", |text: &str| safe(outbound::inline_code(text)));
    environment.add_filter("code_cell", |text: &str| safe(code_cell(text)));
    environment.add_filter("place", |place: &str, links: &Value| linked(place, outbound::inline_code(place), links));
    environment.add_filter("place_cell", |place: &str, links: &Value| linked(place, code_cell(place), links));
    environment.add_filter("fence", |text: &str, language: Option<&str>| {
        safe(outbound::fence(text, language.unwrap_or_default()))
    });
    environment.add_filter("plain", |text: &str| safe(plain(text)));
    environment.add_filter("mention", |login: &str| safe(mention(login)));
    // Text of the repository's maintainers, which may use all Markdown features.
    environment.add_filter("maintained", |text: &str| safe(text.to_owned()));
    environment.add_filter("quote", |text: &str| safe(quote(text)));
    environment.add_filter("link", link);
    environment.add_filter("duration", duration);
    environment.add_filter("money", money);
    environment.add_filter("bar", |percent: u32| safe(chart::bar(percent)));
    environment.add_filter("chart", |rows: &Value| chart::completion(rows).map(safe));
    environment.add_filter("sentence", |text: &str| safe(sentence(&outbound::inline(text))));
    environment.add_filter("capital", |text: &str| capital(text));
    environment.add_filter("tampering", tampering);
}

fn safe(text: String) -> Value {
    Value::from_safe_string(text)
}

/// Escapes a text for a prompt: removes invisible characters and the prompt's frame tags.
pub(super) fn frame(text: &str) -> String {
    let mut text = sanitize::visible(text);
    for tag in ["<ralph-", "</ralph-"] {
        while let Some(at) = text.to_ascii_lowercase().find(tag) {
            text.replace_range(at..=at, "(");
        }
    }
    text
}

/// Formats inline code for a table cell. Escapes pipes, because they would end the cell even within code.
fn code_cell(text: &str) -> String {
    let code = outbound::inline_code(text);
    let mut cell = String::with_capacity(code.len());
    for c in code.chars() {
        if c == '|' {
            cell.truncate(cell.trim_end_matches('\\').len());
            cell.push('\\');
        }
        cell.push(c);
    }
    cell
}

/// Links the code of a path, with or without a line number, to its page if `links` contains the address.
fn linked(place: &str, code: String, links: &Value) -> Value {
    let address = links.get_item(&Value::from(place)).ok();
    let address = address.as_ref().and_then(|found| found.as_str()).filter(|found| is_plain_address(found));
    safe(match address {
        Some(address) if !code.is_empty() => format!("[{code}]({address})"),
        _ => code,
    })
}

/// Whether an address is http(s) and contains no characters that could end a link.
fn is_plain_address(address: &str) -> bool {
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '<' | '>' | '(' | ')' | '[' | ']' | '`' | '"' | '\\');
    (address.starts_with("https://") || address.starts_with("http://")) && address.chars().all(plain)
}

/// Formats one line of plain text that is also safe within HTML.
fn plain(text: &str) -> String {
    let title = outbound::title(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let mark = |c: char| matches!(c, '`' | '*' | '_' | '[' | ']' | '\\' | '~' | '|' | '!');
    title.chars().fold(String::new(), |mut out, c| {
        if mark(c) {
            out.push_str(&format!("&#{};", u32::from(c)))
        } else {
            out.push(c)
        }
        out
    })
}

/// Formats a mention of a person. An invalid login becomes plain text.
fn mention(login: &str) -> String {
    let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_login = login.starts_with(|c: char| c.is_ascii_alphanumeric())
        && login.ends_with(|c: char| c.is_ascii_alphanumeric())
        && login.len() <= 100
        && login.chars().all(named);
    if is_login { format!("@{login}") } else { plain(login) }
}

/// Formats an escaped quotation.
fn quote(text: &str) -> String {
    let text = outbound::for_people(text);
    text.lines().map(|line| format!("> {line}").trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// Formats a link. Keeps only its text if the address is not http(s) or contains characters that could end the link.
fn link(link: &Value) -> Result<Value, Error> {
    let part = |name: &str| link.get_attr(name).map(|value| value.as_str().unwrap_or_default().to_owned());
    let (text, address) = (part("text")?, part("url")?);
    // Remove brackets, because the text is enclosed in brackets.
    let text: String =
        sanitize::visible(&text).chars().filter(|c| !matches!(c, '[' | ']' | '`' | '<' | '>' | '\\')).collect();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(safe(if is_plain_address(&address) { format!("[{text}]({address})") } else { outbound::inline(&text) }))
}

/// Formats seconds for people: `45 s`, `3 min`, `1 h 30 min`, `2 d 4 h`.
fn duration(seconds: u64) -> Value {
    let with = |large: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large} {unit}"),
        small => format!("{large} {unit} {small} {small_unit}"),
    };
    safe(match seconds {
        0..60 => format!("{seconds} s"),
        60..600 => with(seconds / 60, "min", seconds % 60, "s"),
        600..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => with(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        _ => with(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    })
}

/// Formats millionths of a dollar for people, with four decimals below a cent; `–` if the amount is unknown.
fn money(amount: &Value) -> Result<Value, Error> {
    if amount.is_none() {
        return Ok(safe("–".to_owned()));
    }
    let Some(millionths) = amount.as_i64() else {
        return Err(Error::new(ErrorKind::InvalidOperation, "money is a number of millionths of a dollar"));
    };
    let dollars = millionths as f64 / 1e6;
    Ok(safe(if millionths != 0 && millionths.abs() < 10_000 {
        format!("${dollars:.4}")
    } else {
        format!("${dollars:.2}")
    }))
}

/// Appends a full stop if there is no final punctuation.
fn sentence(text: &str) -> String {
    let text = text.trim();
    if text.is_empty() || text.ends_with(['.', '!', '?', '…', ':']) { text.to_owned() } else { format!("{text}.") }
}

/// Capitalizes a text's first letter, unless the first word is not a plain lower-case word, such as a path, a name in code
/// or a number.
pub fn capital(text: &str) -> String {
    let text = text.trim_start();
    let word = text.split_whitespace().next().unwrap_or_default().trim_end_matches([',', ':', ';', '.', '!', '?']);
    match text.split_at_checked(1) {
        Some((first, rest)) if word.chars().all(|c| c.is_ascii_lowercase()) => first.to_ascii_uppercase() + rest,
        _ => text.to_owned(),
    }
}

/// Describes a kind of change to tests or checks, given its serialized name.
fn tampering(kind: &str) -> Value {
    let known = serde_json::from_value(kind.into()).map(TamperKind::description);
    safe(known.unwrap_or("a check was changed").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_word_is_capitalized_except_names() {
        let table = [
            ("the same error: x", "The same error: x"),
            ("no, it fails", "No, it fails"),
            ("a", "A"),
            ("Already", "Already"),
            ("`cargo test` fails", "`cargo test` fails"),
            ("src/parse.rs fails", "src/parse.rs fails"),
            ("parse_it fails", "parse_it fails"),
            ("r-1-abc", "r-1-abc"),
            ("éa b", "éa b"),
            ("", ""),
        ];
        for (text, expected) in table {
            assert_eq!(capital(text), expected);
        }
    }
}
