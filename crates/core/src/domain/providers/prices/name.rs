//! Normalization of model names, which makes the spellings of different providers comparable.

/// Returns the name in lower case, without provider, region and route, and with `-` in place of `.`. For example,
/// `us.anthropic.claude-opus-4-5-v1:0`, `openrouter/anthropic/claude-opus-4.5` and `claude-opus-4-5[1m]` all become
/// `claude-opus-4-5`.
pub(super) fn canonical(model: &str) -> String {
    let model = model.trim().to_ascii_lowercase();
    let model = model.rsplit('/').next().unwrap_or_default();
    let model = model.find("anthropic.").map_or(model, |at| &model[at + "anthropic.".len()..]);
    let model = model.split(['[', '@']).next().unwrap_or_default();
    let model = match model.split_once(':') {
        // Bedrock's revision; any other word behind a colon is another offer at another price.
        Some((name, revision)) if revision.bytes().all(|byte| byte.is_ascii_digit()) => {
            name.rsplit_once("-v").map_or(name, |(name, _)| name)
        }
        _ => model,
    };
    model.replace('.', "-")
}

/// Whether `model` equals `name`, or is `name` followed only by a date, a revision or a word that means the same model.
pub(super) fn is_version_of(model: &str, name: &str) -> bool {
    if name.is_empty() {
        return false;
    }
    match model.strip_prefix(name) {
        Some("") => true,
        Some(rest) => rest.strip_prefix('-').is_some_and(is_version),
        None => false,
    }
}

/// Whether `rest`, the text after a name, contains only a date, a revision or a word that means the same model.
fn is_version(rest: &str) -> bool {
    const WORDS: [&str; 6] = ["latest", "preview", "exp", "experimental", "thinking", "customtools"];
    let mut parts = rest.split('-').peekable();
    while let Some(part) = parts.next() {
        let digits = part.bytes().all(|byte| byte.is_ascii_digit());
        // A date is one part (20250929, 250929), or a year or month with the parts of the rest: 2025-09-29, 05-06.
        let known = match part.len() {
            6 | 8 if digits => true,
            4 if digits => is_pair(&mut parts),
            3 if digits && part.starts_with('0') => true,
            2 if digits && part <= "12" && part != "00" => parts.next_if(|day| is_day(day)).is_some(),
            _ => WORDS.contains(&part),
        };
        if !known {
            return false;
        }
    }
    true
}

/// Takes a month and a day; also true if there is no month, as `0905` is a complete date.
fn is_pair<'a>(parts: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> bool {
    match parts.next_if(|month| is_day(month)) {
        Some(_) => parts.next_if(|day| is_day(day)).is_some(),
        None => true,
    }
}

fn is_day(part: &str) -> bool {
    part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit()) && ("01"..="31").contains(&part)
}
