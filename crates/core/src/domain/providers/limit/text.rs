//! Limits in the error messages of a failed run.
//!
//! Reads the first four and the last four messages: the last 16 KiB of each, and about 400 lines in total, because programs
//! report the cause at the end. Each line is examined from its start, after bullets, timestamps and names of errors. The last
//! line with a limit counts. Text in the middle of a line never counts, so that prose about limits, names of tests and source
//! code are ignored. Once a line is known to be about a limit, its later sentences are read too, and the most specific one decides:
//! `Failed to authenticate. API Error: 403 You've reached your 5-hour usage limit` is a quota.

use std::sync::LazyLock;

use regex::Regex;

use crate::domain::providers::limit::{LimitKind, codes, wording};

/// Number of bytes that are read from the end of each message.
const MESSAGE_BYTES: usize = 16 * 1024;
/// Number of messages that are read at each end of the list.
const MESSAGES: usize = 4;
/// Maximum number of lines that are read of all messages together.
const LINES: usize = 400;
/// Maximum length of text that is examined from the start of a match on, in bytes. It suffices for a sentence or a structured
/// body.
const SENTENCE: usize = 500;
const BODY: usize = 6_000;
/// Maximum number of structured bodies that are read per message, from its end.
const BODIES: usize = 20;
/// Maximum number of prefixes that are removed from a line.
const PREFIXES: usize = 12;
/// Maximum number of later sentences that are read of a message.
const LATER_SENTENCES: usize = 40;

/// Limit found in a message.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MessageLimit {
    /// Kind of the limit.
    pub(super) kind: LimitKind,
    /// Message from the matched words on, with white space collapsed. The end of the limit is parsed from it.
    pub(super) message: String,
}

static NOISE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])").expect("constant pattern")
});
/// Prefixes that any program may write before a message: bullets, timestamps, levels, names of errors.
static WEAK: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(&wording::ascii(
        r"(?ix)^(?:
        [\s\p{So}\x{fe0f}•●■▪×⎿│┃ℹ>*·]+
        |-\ +
        |\[?\d{4}[-/]\d\d[-/]\d\d[T\ ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?:?\ *
        |\[(?:error|warn(?:ing)?|fatal|backend\ error|system_error|codex|claude)\]:?\ *
        |(?:fatal\ |execution\ |unexpected\ |streaming\ )?(?:errors?|erro|warning|fatal|details)(?::\ *|\ +-\ +)
        |(?:error|warn|fatal)\ +(?-i:[a-z_]+(?:::[a-z_]+)+):\ *
        |[a-z_.]{0,60}(?:error|exception|exhausted)(?:\ \[[\w]+\])?(?::\ *|\ -\ +|\()
        |[a-z]{1,20}exception\ [a-z]{1,20}error\ -\ +
        |(?:agent|run|session|task)\ (?:stopped|aborted|ended|terminated)[:.]\ +
        |attempt\ \d+\ failed(?:\ with\ status\ \d{3})?[:.]\ *(?:retrying\ with\ backoff\.\.\.\ *)?
        |result:\ *
        |\[[\w.-]{1,80}\]:?\ +
        |sorry,\ there\ was\ an\ error\ from\ the\ ai:\ *
        |error\ occurred[:.—\ -]+
        |error\ (?:during|when|while)\ [a-z\ ]{1,40}:\ *
        |[a-z]{0,20}error(?:\.[a-z]{1,40})+:\ *
        |invalid\ params,\ +
        |failed\ to\ [a-z\ ]{1,40}:\ *
        |[a-z][\w\ -]{0,40}(?:error|failed|failure)(?:\ during\ [a-z]+)?:\ *
        |[a-z][\w\ -]{0,60}\ failed\ with\ (?:internal\ )?error\ +
        |authentication\ error\ \x22
        |messages?:\ *
        )",
    ))
    .expect("constant pattern")
});
/// Prefixes that only programs and libraries that call providers write before an error.
static STRONG: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(&wording::ascii(
        r#"(?ix)^(?:
        \[?api\ error\b(?:\ occurred)?[:\ ]*(?:error:\ *)?
        |(?:llm\ provider|openai\ api(?:\ streaming)?|chatgpt|anthropic(?:\ api)?|gemini(?:\ api)?|openrouter|azure-openai|azure\ openai|provider|model\ api)\ error\b[:\ ]*
        |(?:litellm|openai|anthropic|groq|mistralai|botocore|google\.api_core|google\.genai)\.[\w.]+(?::\ *|\ -\ +)
        |(?:openai|anthropic|openrouter|vertexai|gemini|azure|bedrock|groq|deepseek|mistral|together|fireworks)\w*exception\ -\ +
        |(?:ai_)?api(?:call|status)error(?:\ \[\w+\])?:\ *
        |ai_retryerror(?:\ \[\w+\])?:\ *
        |failed\ after\ \d+\ attempts\.\ last\ error:\ *
        |(?:model|llm|provider|completion)\ (?:request|call)\ failed[:.]?\ *
        |stream\ disconnected\ before\ completion:\ *
        |provider\.\w+:\ *
        |stream\ error:\ *
        |got\ status:\ *(?:[a-z_]+\.\ *)?
        |failed\ to\ get\ (?:a\ )?response\ from\ (?:the\ )?(?:ai\ )?model[:;]?\ *(?:api\ returned\ )?
        |error\ (?:communicating\ with\ openai|from\ provider)(?:\ \([\w\ ]{1,20}\))?[:\ ]*"?
        |exceeded\ retry\ limit,\ last\ status:\ *
        |an\ error\ occurred\ \((\w+)\)\ when\ calling\ the\ (?:invokemodel|converse)\w*\ operation(?:\ \([^)]{1,60}\))?:\ *
        |error\ invoking\ the\ model:\ *
        |the\ model\ returned\ the\ following\ errors:\ *
        |(?:insufficient_quota|rate_limit_(?:error|exceeded)|authentication_error|overloaded_error|invalid_request_error|usage_limit_reached):\ *
        )"#))
    .expect("constant pattern")
});
/// Code of Z.ai before a message, as in `[1310][Weekly/Monthly Limit Exhausted.`
static CODE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\[([0-9]{4})\]\[?").expect("constant pattern"));
/// Words of a program before an error that another sentence can explain.
static UNAUTHENTICATED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?i)^failed to authenticate(?:[.:] *|$)").expect("constant pattern"));
/// End of a sentence and start of the next one.
static BOUNDARY: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"(?:[.!?:;|·•∙—–{\[("\]]|(?i:sorry),) *["'\[({]*"#).expect("constant pattern"));
/// HTTP status before a message.
static STATUS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(&wording::ascii(
        r"(?ix)^[(\[<]?(?:error\ code:\ *|(?:invalid\ |unexpected\ )?status(?:\ code)?:?\ *|http\ error!\ status:\ *|http[\ /]*)?([45]\d\d)\b(?:\ \([45]\d\d\))?[)\]>]?(?:[:,.·\x22-]|\ )*"))
    .expect("constant pattern")
});
/// Prefix that Codex writes before an unexpected status.
static UNEXPECTED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?i)^unexpected status [45][0-9]{2} [a-z ]{2,40}: ").expect("constant pattern"));
/// Standard reason phrase of an HTTP status, before a structured body.
static REASON: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?ix)^(?:too\ many\ requests|unauthorized|forbidden|not\ found|bad\ request|payment\ required
        |internal\ server\ error|service\ unavailable|bad\ gateway|overloaded)?[.:,]?\ ?(?:with\ message:\ ?|body:\ ?)?([\[{])",
    )
    .expect("constant pattern")
});
/// Start of a structured body: JSON, or its representation in Python.
static BODY_START: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"^(?:b['"])?[\[({][\[({ ]{0,5}["'](?:error|type|message|code|status|detail|name|success)["']\s?:"#)
        .expect("constant pattern")
});
static FIELD: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"["'](?:type|code|status|reason|error|name|statusCode|message|detail|msg)["'] ?: ?b?["']?"#)
        .expect("constant pattern")
});
static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^[A-Za-z0-9_.]{2,64}").expect("constant pattern"));
/// Line that consists of an HTTP status only.
static BARE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?i)^(?:HTTP |status(?: code)?:? )(429|503|529)(?: too many requests| service unavailable| overloaded)?\.?$",
    )
    .expect("constant pattern")
});

/// Reads the error with which a provider ended a run. Its sentences count without a provider's prefix. Where none is known, a
/// word anywhere in it counts, unless the HTTP status of the call contradicts it.
pub(super) fn read_answer(answer: &str, status: Option<u16>) -> Option<MessageLimit> {
    let folded = Folded::new(last_lines(tail(answer, MESSAGE_BYTES), LINES));
    folded.last_reading(status, true).or_else(|| {
        let fits = |kind| match status {
            None => true,
            Some(400..=403) => matches!(kind, LimitKind::Auth | LimitKind::Policy),
            Some(_) => false,
        };
        let kind = wording::anywhere(answer).filter(|kind| fits(*kind))?;
        Some(reading(kind, head(folded.text.trim_end(), BODY)))
    })
}

/// Reads messages in order; the first one with a limit counts. `status` is the HTTP status of the call, if known.
pub(super) fn read(messages: &[String], status: Option<u16>) -> Option<MessageLimit> {
    let last = messages.len().saturating_sub(MESSAGES).max(MESSAGES);
    let (first, last) = (messages.iter().take(MESSAGES), messages.iter().skip(last));
    let lines = LINES / messages.len().clamp(1, 2 * MESSAGES);
    first
        .chain(last)
        .find_map(|message| Folded::new(last_lines(tail(message, MESSAGE_BYTES), lines)).last_reading(status, false))
}

/// Returns the ends of all messages joined to one text, for [`codes::of_status_with_words`].
pub(super) fn words(messages: &[String]) -> String {
    messages.iter().take(MESSAGES).map(|message| tail(message, SENTENCE)).collect::<Vec<_>>().join(" ")
}

/// Returns at most the last `bytes` bytes of a text, starting at a character boundary.
fn tail(text: &str, bytes: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(bytes))..]
}

/// Returns the last `lines` lines.
fn last_lines(text: &str, lines: usize) -> &str {
    let start = text.trim_end().rmatch_indices('\n').nth(lines.saturating_sub(1)).map_or(0, |(at, _)| at + 1);
    &text[start..]
}

fn head(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// Text folded to one line: without colors and frames, with white space collapsed, and with the quotes of nested JSON unescaped.
/// It remembers where the original lines started. This allows reading a message that was wrapped over several lines.
struct Folded {
    text: String,
    starts: Vec<usize>,
}

impl Folded {
    fn new(raw: &str) -> Self {
        let plain = NOISE.replace_all(raw, "");
        let mut folded = Self { text: String::with_capacity(plain.len()), starts: Vec::new() };
        let quoted = plain.trim().strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        for line in quoted.unwrap_or(&plain).lines() {
            let line = line.trim_matches(|edge: char| edge.is_whitespace() || matches!(edge, '│' | '┃'));
            if !line.is_empty() {
                folded.starts.push(folded.text.len());
                folded.push_line(line);
                folded.text.push(' ');
            }
        }
        folded
    }

    fn push_line(&mut self, line: &str) {
        let mut characters = line.chars().peekable();
        while let Some(character) = characters.next() {
            let next = characters.peek().copied();
            match character {
                '\\' if matches!(next, Some('\\' | '"' | '\'')) => {}
                '\\' if matches!(next, Some('n' | 'r' | 't'))
                    && self.text.ends_with(['{', '[', ',', '"', '.', '}', ']', ' ', '\n']) =>
                {
                    characters.next();
                    self.space();
                }
                '’' => self.text.push('\''),
                _ if character.is_whitespace() => self.space(),
                _ => self.text.push(character),
            }
        }
    }

    fn space(&mut self) {
        if !self.text.ends_with(' ') {
            self.text.push(' ');
        }
    }

    /// Returns the last line with a limit. `of_provider` is true if the text certainly is a provider's error.
    fn last_reading(&self, status: Option<u16>, of_provider: bool) -> Option<MessageLimit> {
        let ends = self.starts.iter().skip(1).copied().chain([self.text.len()]);
        let mut bodies = BODIES;
        let lines = self.starts.iter().copied().zip(ends).collect::<Vec<_>>();
        lines
            .into_iter()
            .rev()
            .find_map(|(start, end)| line(&self.text[start..], end - start, (status, of_provider), &mut bodies))
    }
}

/// Returns the limit in the line at the start of `text`; the line is `length` bytes long, and its message may continue in the
/// following lines.
fn line(
    text: &str,
    length: usize,
    (known_status, of_provider): (Option<u16>, bool),
    bodies: &mut usize,
) -> Option<MessageLimit> {
    let message_part = text[..length].trim_end();
    let mut rest = head(text, BODY);
    let (mut strong, mut status) = (of_provider, known_status.filter(|status| *status >= 400));
    let corroborated = status.is_some();
    let (mut named_status, mut by_program) = (None, None);
    for _ in 0..PREFIXES {
        let alone = message_part.get(text.len().min(BODY) - rest.len()..).unwrap_or_default();
        if let Some(found) = wording::specific(rest).or_else(|| wording::specific(alone)) {
            return Some(reading(found, rest));
        }
        if let Some(found) = UNAUTHENTICATED.find(rest) {
            by_program = Some(reading(LimitKind::Auth, rest));
            strong = true;
            rest = &rest[found.end()..];
        } else if let Some(found) = CODE.captures(rest) {
            by_program = codes::of_code(&found[1]).map(|kind| reading(kind, rest)).or(by_program);
            rest = &rest[found[0].len()..];
        } else if let Some(found) = STRONG.captures(rest).filter(|found| !found[0].is_empty()) {
            strong = true;
            let code = found.get(1).and_then(|exception| codes::of_code(exception.as_str()));
            by_program = code.map(|kind| reading(kind, rest)).or(by_program);
            rest = &rest[found[0].len()..];
        } else if let Some(found) = STATUS.captures(rest) {
            named_status = found[1].parse().ok();
            strong |= UNEXPECTED.is_match(rest) || found[0].to_ascii_lowercase().starts_with("error code");
            rest = &rest[found.get(0).map_or(0, |whole| whole.end())..];
        } else if let Some(found) = WEAK.find(rest).filter(|found| !found.is_empty()) {
            rest = &rest[found.end()..];
        } else {
            break;
        }
    }
    status = named_status.or(status);
    if (strong || named_status.is_some())
        && let Some(bracket) = REASON.captures(rest).and_then(|found| found.get(1))
    {
        rest = &rest[bracket.start()..];
    }
    if BODY_START.is_match(rest) {
        *bodies = bodies.checked_sub(1)?;
        let known = strong || status.is_some() || rest.starts_with(r#"{"type":"error""#);
        return body(head(rest, BODY), known, status).or(by_program);
    }
    let message = head(rest, SENTENCE);
    if (strong || named_status.is_some())
        && let Some(kind) = strongest_sentence(message)
    {
        return Some(reading(kind, message));
    }
    if strong || corroborated {
        let general = match wording::general(message) {
            // As above: words like "Unauthorized" are often a prefix.
            known @ (None | Some(LimitKind::Auth)) => {
                stronger(known, later_sentences(message).find_map(wording::general))
            }
            known => known,
        };
        let is_trusted = strong && !of_provider;
        let general = general.filter(|kind| is_trusted || status.is_none_or(|status| codes::fits(status, *kind)));
        let by_status = status.filter(|_| strong && named_status.is_some());
        let by_status = by_status.and_then(|status| codes::of_status_with_words(status, message));
        if let Some(kind) = general.or(by_status) {
            return Some(reading(kind, message));
        }
    }
    let last_words = text.len() <= SENTENCE;
    let timed = wording::timed(message).filter(|_| last_words);
    let timed = timed.or_else(|| codes::of_status_with_words(wording::whole(text.trim_end())?, text));
    timed
        .or_else(|| BARE.captures(message_part).and_then(|found| codes::of_code(&found[1])))
        .map(|kind| reading(kind, message))
        .or(by_program)
}

/// Returns the sentences of a message without the first one, without HTTP statuses before them.
fn later_sentences(message: &str) -> impl Iterator<Item = &str> {
    let text = head(message, SENTENCE);
    let starts = BOUNDARY.find_iter(text).take(LATER_SENTENCES).map(|found| &text[found.end()..]);
    starts.map(|rest| &rest[STATUS.find(rest).map_or(0, |found| found.end())..])
}

/// Returns the most specific limit of the later sentences of a message.
fn strongest_sentence(message: &str) -> Option<LimitKind> {
    later_sentences(message).filter_map(wording::specific).fold(None, |known, kind| stronger(known, Some(kind)))
}

/// Returns the limit of a message whose first sentence has this kind.
fn reading(kind: LimitKind, message: &str) -> MessageLimit {
    let kind = stronger(Some(kind), strongest_sentence(message)).unwrap_or(kind);
    let message = if message.contains("\": ") || message.contains("\":") { message } else { head(message, SENTENCE) };
    MessageLimit { kind: wording::refine(kind, message), message: message.to_owned() }
}

/// Returns the limit in a structured error, by its message, its codes, or its status.
fn body(text: &str, known: bool, status: Option<u16>) -> Option<MessageLimit> {
    let text = &text[..end_of_body(text)];
    let (mut by_words, mut by_code, mut by_number) = (None, None, None);
    for found in FIELD.find_iter(text) {
        let key = found.as_str()[1..].split(['"', '\'']).next().unwrap_or_default();
        let value = &text[found.end()..];
        match key {
            "message" | "detail" | "msg" => by_words = by_words.or_else(|| words_of(value, known)),
            _ => {
                let word = WORD.find(value).map_or("", |word| word.as_str());
                if let Some(number) = word.parse::<u16>().ok().filter(|number| *number < 1_000) {
                    by_number = by_number.or(Some(number));
                } else {
                    by_code = stronger(by_code, if known { codes::of_code(word) } else { codes::of_distinct(word) });
                }
                if key == "error" {
                    by_words = by_words.or_else(|| words_of(value, known));
                }
            }
        }
    }
    let status = by_number.or(status);
    let by_code =
        by_code.filter(|kind| !codes::denied(status, *kind) && (*kind != LimitKind::Auth || by_words.is_none()));
    let by_status = || codes::of_status_with_words(status.filter(|_| known)?, text);
    stronger(by_words, by_code).or_else(by_status).map(|kind| reading(kind, text))
}

fn words_of(value: &str, known: bool) -> Option<LimitKind> {
    let value = head(value, SENTENCE);
    let value = &value[STATUS.find(value).map_or(0, |found| found.end())..];
    let first = wording::specific(value).or_else(|| wording::general(value).filter(|_| known));
    stronger(first, strongest_sentence(value).filter(|_| first.is_some() || known))
}

/// Returns the more specific of two kinds; the first if they are equally specific.
pub(super) fn stronger(one: Option<LimitKind>, other: Option<LimitKind>) -> Option<LimitKind> {
    let weight = |kind: LimitKind| match kind {
        LimitKind::Rate => 1,
        LimitKind::Overload | LimitKind::Auth => 2,
        _ => 3,
    };
    match (one, other) {
        (Some(one), Some(other)) => Some(if weight(other) > weight(one) { other } else { one }),
        (one, other) => one.or(other),
    }
}

/// Returns the length of the bracketed body at the start of `text`; of a sentence if the brackets are not closed.
fn end_of_body(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, character) in text.char_indices() {
        match character {
            '{' | '[' => depth += 1,
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    head(text, SENTENCE).len()
}
