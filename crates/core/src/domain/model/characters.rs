//! Invisible characters, terminal sequences, character references, and the service's markers in untrusted text.

use std::sync::LazyLock;

use icu_properties::props::{DefaultIgnorableCodePoint, GeneralCategory, PrependedConcatenationMark};
use icu_properties::{CodePointMapData, CodePointSetData};
use regex::Regex;

/// Start of the service's hidden markers, after `<!--`.
const MARKER_WORD: &str = "ralph:";

/// Terminal control sequences (CSI, OSC, two-character escapes), in 7-bit and 8-bit form.
static TERMINAL: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?:\x1b\[|\x{9b})[0-9;:<=>?]*[ -/]*[@-~]|(?:\x1b\]|\x{9d})[^\x07\x1b\x{9c}\n]*(?:\x07|\x1b\\|\x{9c})?|\x1b[@-Z\\-_]?")
        .expect("a constant pattern")
});

/// Characters without a glyph that no Unicode property identifies: blank Braille pattern, musical null notehead, Khitan
/// filler, blank hieroglyphs.
const BLANK: [char; 5] = ['\u{2800}', '\u{1d159}', '\u{16fe4}', '\u{13441}', '\u{13442}'];

/// Whether a character is invisible or changes the display of other characters: it is default-ignorable, unassigned,
/// private, a control or format character, or has no glyph.
pub(in crate::domain) fn is_invisible(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control() && c != '\t' && c != '\n';
    }
    let category = CodePointMapData::<GeneralCategory>::new().get(c);
    match category {
        GeneralCategory::Control | GeneralCategory::Unassigned | GeneralCategory::PrivateUse => true,
        GeneralCategory::Format => !CodePointSetData::new::<PrependedConcatenationMark>().contains(c),
        _ => BLANK.contains(&c) || CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(c),
    }
}

/// Removes terminal sequences, invisible characters and the service's markers from a text, and converts line breaks to `
/// `. Returns the text and the number of removed suspicious runs of invisible characters. Line breaks and runs in ordinary
/// writing (see `is_common`) are not counted.
pub(in crate::domain) fn visible(text: &str) -> (String, usize) {
    let mut text = text.replace("\r\n", "\n").replace(['\r', '\u{2028}', '\u{2029}', '\u{85}', '\u{b}', '\u{c}'], "\n");
    if text.contains(['\u{1b}', '\u{9b}', '\u{9d}']) {
        text = TERMINAL.replace_all(&text, "").into_owned();
    }
    let mut visible_text = String::with_capacity(text.len());
    let mut runs = 0;
    let mixed = text.chars().any(is_joining);
    let mut rest = text.as_str();
    while let Some(at) = rest.find(is_removed) {
        visible_text.push_str(&rest[..at]);
        let run = &rest[at..];
        let end = run.find(|c| !is_removed(c)).unwrap_or(run.len());
        rest = &run[end..];
        runs += usize::from(!is_common(visible_text.chars().next_back(), &run[..end], rest.chars().next(), mixed));
    }
    visible_text.push_str(rest);
    (without_markers(&visible_text), runs)
}

/// Whether a character is removed from visible text.
fn is_removed(c: char) -> bool {
    is_invisible(c) && c != '\n' && c != '\t'
}

/// Whether a letter belongs to a script that is written from right to left or with joiners: Hebrew, Arabic to Sinhala, Tibetan to
/// Khmer.
fn is_joining(c: char) -> bool {
    matches!(c, '\u{590}'..='\u{dff}' | '\u{f00}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}')
}

/// Whether a run of invisible characters belongs to ordinary writing and is too short to hide text. Examples are selectors
/// and joiners in emoji, regional flags, direction marks in scripts that need them, and a byte order mark at the start.
/// `mixed` states whether the text contains letters of such scripts.
fn is_common(before: Option<char>, run: &str, after: Option<char>, mixed: bool) -> bool {
    /// Maximum number of tag characters in a regional flag, including the terminator.
    const FLAG: usize = 6;
    let pictures = |c: char| c >= '\u{2190}' || matches!(c, '#' | '*' | '0'..='9' | '©' | '®' | '‼' | '⁉' | '™' | 'ℹ');
    let mut characters = run.chars();
    match (characters.next(), characters.next(), characters.next()) {
        (Some('\u{feff}'), None, None) => before.is_none(),
        (Some('\u{fe0e}' | '\u{fe0f}'), None, None) => before.is_some_and(pictures),
        (Some('\u{200d}'), None, None) | (Some('\u{fe0f}'), Some('\u{200d}'), None) if before.is_some_and(pictures) => {
            true
        }
        (Some('\u{200c}' | '\u{200d}'), None, None) => before.is_some_and(is_joining) && after.is_some_and(is_joining),
        (Some('\u{200e}' | '\u{200f}' | '\u{61c}'), None, None) => mixed,
        _ => {
            let tags = |c: char| matches!(c, '\u{e0030}'..='\u{e0039}' | '\u{e0061}'..='\u{e007a}' | '\u{e007f}');
            before == Some('\u{1f3f4}')
                && run.chars().count() <= FLAG
                && run.ends_with('\u{e007f}')
                && run.chars().all(tags)
        }
    }
}

/// Returns a readable form of a text's first invisible characters: tag characters as the letters that they encode, others as
/// code points.
pub(in crate::domain) fn code_points(text: &str) -> String {
    const SHOWN: usize = 60;
    let removed = || text.chars().filter(|c| is_removed(*c));
    let letter =
        |c: char| u32::from(c).checked_sub(0xe0000).filter(|code| (0x20..0x7f).contains(code)).and_then(char::from_u32);
    if removed().take(SHOWN).all(|c| letter(c).is_some()) {
        return removed().take(SHOWN).filter_map(letter).collect();
    }
    removed().take(SHOWN / 10).map(|c| format!("U+{:04X}", u32::from(c))).collect::<Vec<_>>().join(" ")
}

/// Breaks up text that could be mistaken for one of the service's markers.
fn without_markers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("<!--") {
        let after = &rest[at + 4..];
        let word = after.trim_start();
        let marker = word.get(..MARKER_WORD.len()).is_some_and(|word| word.eq_ignore_ascii_case(MARKER_WORD));
        out.push_str(&rest[..if marker { at } else { at + 4 }]);
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Decodes character references once: numeric references, and names of ASCII punctuation and invisible characters. If a
/// decoded `&` starts another reference, decodes it as well.
pub(in crate::domain) fn decode_once(text: &str) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        decoded.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let mut c = '&';
        while c == '&'
            && let Some((length, next)) = reference(rest)
        {
            rest = &rest[length..];
            c = next;
        }
        decoded.push(c);
    }
    decoded.push_str(rest);
    decoded
}

/// Parses the character reference at the start of `text`, which follows an `&`. Returns its length in bytes and the encoded
/// character.
fn reference(text: &str) -> Option<(usize, char)> {
    const LONGEST: usize = 40;
    let window = text.get(..text.floor_char_boundary(LONGEST))?;
    let end = window.find(';')?;
    let name = &window[..end];
    let c = match name.strip_prefix('#') {
        Some(number) => {
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                None => number.parse().ok()?,
            };
            char::from_u32(code).unwrap_or('\u{fffd}')
        }
        None => NAMED.iter().find(|(known, _)| *known == name)?.1,
    };
    Some((end + 1, c))
}

/// Decodes character references repeatedly until none remain. Removes invisible characters after each pass, because they
/// could hide a further reference.
pub(in crate::domain) fn decoded(text: &str) -> String {
    /// Maximum depth of nested references.
    const PASSES: usize = 8;
    let mut text = visible(text).0;
    for _ in 0..PASSES {
        let next = visible(&decode_once(&text)).0;
        if next == text {
            return text;
        }
        text = next;
    }
    text.replace('&', "+")
}

#[rustfmt::skip]
const NAMED: &[(&str, char)] = &[
    ("Tab", '\t'), ("NewLine", '\n'), ("excl", '!'), ("quot", '"'), ("QUOT", '"'), ("num", '#'), ("dollar", '$'),
    ("percnt", '%'), ("amp", '&'), ("AMP", '&'), ("apos", '\''), ("lpar", '('), ("rpar", ')'), ("ast", '*'),
    ("midast", '*'), ("plus", '+'), ("comma", ','), ("period", '.'), ("sol", '/'), ("colon", ':'), ("semi", ';'),
    ("lt", '<'), ("LT", '<'), ("equals", '='), ("gt", '>'), ("GT", '>'), ("quest", '?'), ("commat", '@'),
    ("lsqb", '['), ("lbrack", '['), ("bsol", '\\'), ("rsqb", ']'), ("rbrack", ']'), ("Hat", '^'), ("lowbar", '_'),
    ("UnderBar", '_'), ("grave", '`'), ("DiacriticalGrave", '`'), ("lcub", '{'), ("lbrace", '{'), ("verbar", '|'),
    ("vert", '|'), ("VerticalLine", '|'), ("rcub", '}'), ("rbrace", '}'), ("nbsp", '\u{a0}'),
    ("NonBreakingSpace", '\u{a0}'), ("shy", '\u{ad}'), ("zwj", '\u{200d}'), ("zwnj", '\u{200c}'), ("lrm", '\u{200e}'),
    ("rlm", '\u{200f}'), ("ZeroWidthSpace", '\u{200b}'), ("NegativeThinSpace", '\u{200b}'),
    ("NegativeVeryThinSpace", '\u{200b}'), ("NegativeMediumSpace", '\u{200b}'), ("NegativeThickSpace", '\u{200b}'),
    ("NoBreak", '\u{2060}'), ("ApplyFunction", '\u{2061}'), ("af", '\u{2061}'), ("InvisibleTimes", '\u{2062}'),
    ("it", '\u{2062}'), ("InvisibleComma", '\u{2063}'), ("ic", '\u{2063}'), ("hyphen", '\u{2010}'), ("dash", '\u{2010}'),
];
