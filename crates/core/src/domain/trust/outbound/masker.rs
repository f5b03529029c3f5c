//! Finds and masks secrets: known values in several encodings, and everything that looks like a token or key.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind};

use super::archive::{self, UnpackEnd};
use super::patterns::{PATTERNS, TOKEN_PATTERNS, may_hold_token};
use super::{parts, skeleton};
use crate::domain::trust::bounds::{SCAN_OVERLAP, SCAN_WINDOW};

/// Replacement of a secret in the output of programs.
const MASK: &str = "***";
/// Name for a secret that was found by a pattern.
const UNKNOWN: &str = "a token or key";
/// [`UNKNOWN`], shared by all findings.
static UNKNOWN_NAME: LazyLock<Arc<str>> = LazyLock::new(|| UNKNOWN.into());
/// Name for an archive that could not be unpacked completely.
const UNSCANNED: &str = "something that could not be scanned (an archive with more than 16 MiB or 5,000 files, or archives of more than 64 MiB)";
/// Name for secrets that were given without a name.
const UNNAMED: &str = "a secret of the service";
/// Minimum length of a folded form, in bytes. Shorter ones occur in ordinary words.
const FOLDED_MIN: usize = 16;
/// Length of the prefix of a form by which the search finds it, in bytes. No form is shorter (see [`parts::forms`]).
const BEGINNING: usize = 8;

/// Secret that was found in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSecret {
    /// Range in bytes. If the secret was split, it includes everything between its parts.
    pub range: Range<usize>,
    /// Name of the secret; never its value.
    pub name: Arc<str>,
}

/// Finds secrets and replaces them by `***`. Cheap to clone; its `Debug` output contains no secrets.
#[derive(Clone, Default)]
pub struct Masker {
    known: Vec<Arc<KnownValues>>,
}

/// Known values with the searches for their forms.
struct KnownValues {
    /// Search index of the unchanged forms.
    exact: FormSearch,
    /// Search index of the folded forms: only letters and digits, in lower case.
    folded: FormSearch,
    /// Name of each value.
    names: Vec<Arc<str>>,
}

/// Search for several forms at once. Each form refers to its value.
///
/// Only the prefixes of forms are in the automaton, which is several times smaller and faster to build for that.
struct FormSearch {
    /// Automaton of the distinct starts, of [`BEGINNING`] bytes each.
    beginnings: AhoCorasick,
    /// Range in `forms` of the forms with each prefix.
    groups: Vec<Range<usize>>,
    /// Forms in the order of their bytes.
    forms: Vec<(Vec<u8>, ValueForm)>,
}

/// Value that a form belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ValueForm {
    /// Whether this is the form of only a part of the value.
    is_piece: bool,
    /// Index of the value.
    index: usize,
}

impl FormSearch {
    /// Creates a search for forms. Forms that are shorter than [`BEGINNING`] are omitted.
    fn new(mut forms: Vec<(Vec<u8>, ValueForm)>) -> Option<Self> {
        forms.retain(|form| form.0.len() >= BEGINNING);
        forms.sort();
        forms.dedup_by(|a, b| a.0 == b.0);
        let mut end = 0;
        let of_group = |group: &[(Vec<u8>, ValueForm)]| {
            let begin = end;
            end += group.len();
            begin..end
        };
        let groups: Vec<_> = forms.chunk_by(|a, b| a.0[..BEGINNING] == b.0[..BEGINNING]).map(of_group).collect();
        let beginnings = AhoCorasick::builder()
            // Smaller and built sooner than the automaton that is chosen for few patterns.
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(groups.iter().map(|group| &forms[group.start].0[..BEGINNING]));
        Some(Self { beginnings: beginnings.ok()?, groups, forms })
    }

    /// Returns the forms in the bytes from left to right, without overlaps. If several forms match at a position, the longest is
    /// found.
    fn find<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = (Range<usize>, ValueForm)> + 'a {
        let mut end = 0;
        self.beginnings.find_overlapping_iter(bytes).filter_map(move |found| {
            let start = found.start();
            if start < end {
                return None;
            }
            let mut forms = self.forms[self.groups[found.pattern().as_usize()].clone()].iter();
            // Those that match are starts of each other, and the longest is the last one.
            let (form, value) = forms.rfind(|form| bytes[start..].starts_with(&form.0))?;
            end = start + form.len();
            Some((start..end, *value))
        })
    }
}

impl std::fmt::Debug for Masker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Masker")
    }
}

impl Masker {
    /// Creates a masker for unnamed values; see [`Self::named`].
    pub fn new<I, S>(values: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<str>,
    {
        Self::named(values.into_iter().map(|value| (UNNAMED, value)))
    }

    /// Creates a masker for named values. It also finds single lines and long parts of the values, in all encodings of
    /// [`secret_forms`](crate::domain::trust::secret_forms). Values shorter than 8 bytes are ignored. Every masker also finds the
    /// patterns of tokens.
    pub fn named<I, N, S>(values: I) -> Self
    where
        I: IntoIterator<Item = (N, S)>,
        N: Into<Arc<str>>,
        S: AsRef<str>,
    {
        Self::of_parts(values.into_iter().map(|(name, value)| (name.into(), parts::of_value(value.as_ref()))))
    }

    /// Creates a masker that finds these named values only as a whole, which takes less time and memory.
    pub(super) fn whole<'a>(values: impl IntoIterator<Item = (Arc<str>, &'a str)>) -> Self {
        let value_itself = |value| parts::of_value(value).into_iter().take(1).collect();
        Self::of_parts(values.into_iter().map(|(name, value)| (name, value_itself(value))))
    }

    fn of_parts(values: impl Iterator<Item = (Arc<str>, Vec<parts::ValuePart>)>) -> Self {
        let (mut exact, mut folded, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for (name, parts) in values {
            for part in parts {
                let of = ValueForm { is_piece: part.is_piece, index: names.len() };
                for form in parts::forms(&part.bytes) {
                    let view = skeleton::folded(&form).bytes;
                    if view.len() >= FOLDED_MIN {
                        folded.push((view, of));
                    }
                    exact.push((form, of));
                }
            }
            names.push(name);
        }
        if exact.is_empty() {
            return Self::default();
        }
        let built = FormSearch::new(exact).zip(FormSearch::new(folded));
        // Only more than 2^31 states cannot be built.
        Self {
            known: built.map(|(exact, folded)| Arc::new(KnownValues { exact, folded, names })).into_iter().collect(),
        }
    }

    /// Combines two maskers. Their searches are shared and not rebuilt, because building takes long for long values.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        Self { known: self.known.iter().chain(&other.known).cloned().collect() }
    }

    /// Whether this is one of the known values.
    pub fn knows(&self, value: &str) -> bool {
        let value = value.trim().as_bytes();
        let is_value = |(range, form): (Range<usize>, ValueForm)| range == (0..value.len()) && !form.is_piece;
        self.known.iter().any(|known| known.exact.find(value).any(is_value))
    }

    /// Returns the text with each secret replaced by `***`.
    pub fn mask<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let found = self.found_in_text(text);
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        Cow::Owned(replace(text, &found, 0..text.len(), |_| MASK.to_owned()))
    }

    /// Returns the text with each secret replaced by its name in brackets.
    pub fn mask_named<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let found = self.found_in_text(text);
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        Cow::Owned(replace(text, &found, 0..text.len(), |name| format!("(removed: {name})")))
    }

    /// Returns a range of a text with secrets masked, including those that extend beyond the range. The range must be at
    /// character boundaries.
    pub fn mask_range(&self, text: &str, range: Range<usize>) -> String {
        replace(text, &self.found_in_text(text), range, |_| MASK.to_owned())
    }

    /// Returns the secrets in arbitrary bytes, in order and without overlaps. Finds secrets that are plain, encoded, or split
    /// over lines or string literals. Does not unpack archives; see [`Self::found_in_file`]. Scans a long input in parts, so that
    /// memory use does not grow with the input.
    pub fn found(&self, bytes: &[u8]) -> Vec<FoundSecret> {
        let mut all = Vec::new();
        let mut start = 0;
        loop {
            let part = &bytes[start..bytes.len().min(start + SCAN_WINDOW + SCAN_OVERLAP)];
            let mut found = self.found_as_is(part);
            found.extend(self.found_folded(part));
            self.decode(part, &mut found);
            let place = |one: FoundSecret| FoundSecret { range: one.range.start + start..one.range.end + start, ..one };
            all.extend(merged(found).into_iter().map(place));
            if start + part.len() == bytes.len() {
                return merged(all);
            }
            start += SCAN_WINDOW;
        }
    }

    /// Returns the secrets in the content of a file. Secrets in a member of an archive are reported with the range of the whole
    /// file, one per member. An archive that cannot be unpacked completely is also reported. Subtracts the unpacked bytes from
    /// `unpacked_left`.
    pub fn found_in_file(&self, content: &[u8], unpacked_left: &mut u64) -> Vec<FoundSecret> {
        let mut found = self.found(content);
        let whole = |name| FoundSecret { range: 0..content.len(), name };
        let scan = |member: &[u8]| found.extend(self.found(member).into_iter().take(1).map(|one| whole(one.name)));
        if archive::unpack(content, unpacked_left, scan) == UnpackEnd::Cut {
            found.push(whole(UNSCANNED.into()));
        }
        found
    }

    /// Returns a range of a text with contiguous secrets masked that are encoded at most once. It is a fast variant for the many
    /// lines of a program's output, which pass [`Self::mask`] before they leave the machine.
    pub fn mask_line(&self, text: &str, range: Range<usize>) -> String {
        let found = on_characters(text, self.found_as_is(text.as_bytes()));
        replace(text, &found, range, |_| MASK.to_owned())
    }

    fn found_in_text(&self, text: &str) -> Vec<FoundSecret> {
        on_characters(text, self.found(text.as_bytes()))
    }

    /// Returns the secrets that are found without decoding the bytes.
    fn found_as_is(&self, bytes: &[u8]) -> Vec<FoundSecret> {
        let tokens =
            PATTERNS.find_iter(bytes).map(|found| FoundSecret { range: found.range(), name: UNKNOWN_NAME.clone() });
        let mut all: Vec<FoundSecret> = tokens.collect();
        for known in &self.known {
            all.extend(known.exact.find(bytes).map(|(range, value)| known.at(bytes, range, value)));
        }
        all
    }

    /// Adds the secrets that are found after decoding base64, hexadecimal digits, escapes and two-byte characters.
    fn decode(&self, bytes: &[u8], all: &mut Vec<FoundSecret>) {
        let inside = |decoded: &[u8]| {
            let known = self
                .known
                .iter()
                .flat_map(|known| known.exact.find(decoded).map(|(range, value)| known.at(decoded, range, value)));
            let mut found: Vec<FoundSecret> = known.collect();
            if may_hold_token(decoded) {
                let tokens = TOKEN_PATTERNS.find_iter(decoded);
                found.extend(tokens.map(|found| FoundSecret { range: found.range(), name: UNKNOWN_NAME.clone() }));
            }
            found
        };
        let base64 = skeleton::base64_characters(bytes);
        let hex = skeleton::hex_digits(bytes);
        let encoded = skeleton::from_base64(&base64.bytes).map(|decoded| (decoded, &base64));
        for (decoded, view) in encoded.chain(skeleton::from_hex(&hex.bytes).map(|decoded| (decoded, &hex))) {
            for found in inside(&decoded.bytes) {
                let range = view.original(decoded.encoded(found.range, view.bytes.len()));
                all.push(FoundSecret { range, name: found.name });
            }
        }
        let narrow = bytes.contains(&0).then(|| skeleton::narrow(bytes));
        for view in narrow.into_iter().chain(skeleton::unescaped(bytes)) {
            let found = inside(&view.bytes).into_iter().chain(self.found_folded(&view.bytes));
            all.extend(found.map(|one| FoundSecret { range: view.original(one.range), name: one.name }));
        }
    }

    /// Returns known values that were split or whose case was changed.
    fn found_folded(&self, bytes: &[u8]) -> Vec<FoundSecret> {
        if self.known.is_empty() {
            return Vec::new();
        }
        let view = skeleton::folded(bytes);
        let mut found = Vec::new();
        for known in &self.known {
            let values = known.folded.find(&view.bytes);
            found.extend(values.map(|(range, value)| known.at(bytes, view.original(range), value)));
        }
        found
    }
}

impl KnownValues {
    fn at(&self, bytes: &[u8], range: Range<usize>, form: ValueForm) -> FoundSecret {
        let range = if form.is_piece { parts::widened(bytes, range) } else { range };
        FoundSecret { range, name: self.names.get(form.index).cloned().unwrap_or_else(|| UNNAMED.into()) }
    }
}

/// Extends the ranges of findings to whole characters of a text.
fn on_characters(text: &str, mut found: Vec<FoundSecret>) -> Vec<FoundSecret> {
    for one in &mut found {
        one.range = text.floor_char_boundary(one.range.start)..text.ceil_char_boundary(one.range.end);
    }
    merged(found)
}

/// Sorts findings and merges overlapping ones.
fn merged(mut all: Vec<FoundSecret>) -> Vec<FoundSecret> {
    // Known values before patterns, so that their names are kept.
    all.sort_by_key(|found| (found.range.start, &*found.name == UNKNOWN));
    let mut merged: Vec<FoundSecret> = Vec::with_capacity(all.len());
    for found in all {
        match merged.last_mut() {
            Some(last) if found.range.start < last.range.end => {
                last.range.end = last.range.end.max(found.range.end);
                if &*last.name == UNKNOWN {
                    last.name = found.name;
                }
            }
            _ => merged.push(found),
        }
    }
    merged
}

/// Returns the range of a text with the findings replaced.
fn replace(text: &str, found: &[FoundSecret], range: Range<usize>, mask: impl Fn(&str) -> String) -> String {
    let mut out = String::with_capacity(range.len());
    let mut at = range.start;
    for FoundSecret { range: secret, name } in found {
        if secret.end <= at {
            continue;
        }
        if secret.start >= range.end {
            break;
        }
        out.push_str(&text[at..secret.start.max(at)]);
        out.push_str(&mask(name));
        at = secret.end.min(range.end);
    }
    out.push_str(&text[at..range.end]);
    out
}

#[cfg(test)]
#[path = "masker_tests.rs"]
mod tests;
