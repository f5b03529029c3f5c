//! Similarity of texts: cosine of their words, weighted by rarity (TF-IDF).
//!
//! Identifiers and paths are split into words: `parseHttpHeader`, `parse_http_header` and `parse/http/header` each have
//! three words. Endings of English words are removed. Words that do not help a comparison (articles, `fix`, `src`, file
//! extensions) are dropped.

/// Maximum length of the text that is read, in bytes.
const MAX_TEXT: usize = 64 * 1024;
/// Words to drop, because most texts contain them.
const EMPTY_WORDS: [&str; 82] = [
    "about", "add", "added", "after", "all", "also", "an", "and", "any", "are", "as", "at", "be", "been", "before",
    "bug", "but", "by", "can", "change", "changed", "changes", "code", "do", "file", "files", "fix", "fixed", "fixes",
    "for", "from", "had", "has", "have", "how", "if", "in", "into", "is", "issue", "it", "its", "js", "jsx", "lib",
    "make", "md", "more", "new", "no", "not", "now", "of", "on", "or", "our", "py", "rs", "should", "so", "src",
    "test", "tests", "than", "that", "the", "then", "they", "this", "to", "ts", "tsx", "update", "updated", "use",
    "was", "we", "were", "when", "which", "will", "with",
];

/// Length of the longest word in [`EMPTY_WORDS`], in bytes.
const LONGEST_EMPTY: usize = 7;

/// Words of a text with their counts, as hashes in ascending order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WordCounts(Vec<(u64, u32)>);

impl WordCounts {
    /// Counts the words of a text; reads its first 64 KiB.
    pub fn of(text: &str) -> Self {
        let mut hashes = Vec::with_capacity(text.len().min(MAX_TEXT) / 6);
        split(&text[..text.floor_char_boundary(MAX_TEXT)], |word| hashes.push(hash(word)));
        hashes.sort_unstable();
        let counted = hashes.chunk_by(|a, b| a == b).map(|run| (run[0], u32::try_from(run.len()).unwrap_or(u32::MAX)));
        Self(counted.collect())
    }

    /// Returns the number of distinct words.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no words.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Rarity of words among a set of texts. In an empty set, all words have the same weight.
#[derive(Debug, Clone, Default)]
pub struct Rarity {
    texts: f64,
    /// Number of texts with each word, as pairs of the word's hash and the count, sorted by hash.
    in_texts: Vec<(u64, u32)>,
}

impl Rarity {
    /// Counts the texts with each word.
    pub fn among<'a>(texts: impl IntoIterator<Item = &'a WordCounts>) -> Self {
        let mut count = 0.0;
        let mut all = Vec::new();
        for text in texts {
            count += 1.0;
            all.extend(text.0.iter().map(|(word, _)| *word));
        }
        all.sort_unstable();
        let counted = all.chunk_by(|a, b| a == b).map(|run| (run[0], u32::try_from(run.len()).unwrap_or(u32::MAX)));
        Self { texts: count, in_texts: counted.collect() }
    }

    /// Returns the similarity of two texts, from 0 (no common word) to 1 (same words, same counts); 0 if one has no words.
    pub fn cosine(&self, a: &WordCounts, b: &WordCounts) -> f64 {
        self.weigh(a).cosine(&self.weigh(b))
    }

    /// Computes the weights of a text's words for comparison with many other texts.
    pub fn weigh(&self, words: &WordCounts) -> Weighed {
        let weighed: Vec<(u64, f64)> = words.0.iter().map(|(word, n)| (*word, self.weight(*word, *n))).collect();
        let length = weighed.iter().map(|(_, weight)| weight.powi(2)).sum::<f64>().sqrt();
        Weighed { words: weighed, length }
    }

    /// Returns the weight of a word: `(1 + ln n) * ln(1 + texts / texts with it)`.
    fn weight(&self, word: u64, n: u32) -> f64 {
        let with = self.in_texts.binary_search_by_key(&word, |(known, _)| *known).map_or(1, |at| self.in_texts[at].1);
        (1.0 + f64::from(n).ln()) * (1.0 + self.texts.max(1.0) / f64::from(with)).ln()
    }
}

/// Text as a vector of word weights.
#[derive(Debug, Clone)]
pub struct Weighed {
    /// Pairs of a word's hash and its weight, sorted by hash.
    words: Vec<(u64, f64)>,
    length: f64,
}

impl Weighed {
    /// Returns the similarity of two texts, 0..1; 0 if one has no words.
    pub fn cosine(&self, other: &Self) -> f64 {
        let (mut at, mut bt) = (0, 0);
        let mut product = 0.0;
        while let (Some((left, n)), Some((right, m))) = (self.words.get(at), other.words.get(bt)) {
            if left == right {
                product += n * m;
            }
            at += usize::from(left <= right);
            bt += usize::from(right <= left);
        }
        let lengths = self.length * other.length;
        if lengths > 0.0 { (product / lengths).clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// Returns the similarity of two texts, 0..1, with equal weights for all words.
pub fn similarity(a: &str, b: &str) -> f64 {
    Rarity::default().cosine(&WordCounts::of(a), &WordCounts::of(b))
}

/// Returns a text's normalized words in order: lower case, without endings.
pub fn words(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    split(text, |word| all.push(word.to_owned()));
    all
}

/// Calls `take` with each normalized word of a text, except words in `EMPTY_WORDS`.
fn split(text: &str, mut take: impl FnMut(&str)) {
    let mut word = String::new();
    let mut flush = |word: &mut String| {
        let is_empty = word.len() <= LONGEST_EMPTY && EMPTY_WORDS.binary_search(&word.as_str()).is_ok();
        if word.len() > 1 && !is_empty {
            stem(word);
            take(word);
        }
        word.clear();
    };
    let mut before = ' ';
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let capital = character.is_uppercase();
        let hump = capital && before.is_lowercase();
        let ends_capitals =
            capital && before.is_uppercase() && characters.as_str().starts_with(|next: char| next.is_lowercase());
        let ideograph = character >= '\u{2e80}';
        if hump || ends_capitals || ideograph || before >= '\u{2e80}' {
            flush(&mut word);
        }
        if character.is_ascii_alphanumeric() {
            word.push(character.to_ascii_lowercase());
        } else if character.is_alphanumeric() {
            word.extend(character.to_lowercase());
        } else {
            flush(&mut word);
        }
        before = character;
    }
    flush(&mut word);
}

/// Removes the ending of an English word in lower case, so that `fix`, `fixes`, `fixed` and `fixing` become equal.
pub fn stem(word: &mut String) {
    if !word.is_ascii() {
        return;
    }
    for ending in ["ing", "ed", "es", "s"] {
        let Some(stem) = word.strip_suffix(ending) else { continue };
        if stem.len() < 3 || ending == "s" && stem.ends_with('s') {
            continue;
        }
        word.truncate(stem.len());
        break;
    }
    let doubled = {
        let bytes = word.as_bytes();
        bytes.len() > 3 && bytes[bytes.len() - 1] == bytes[bytes.len() - 2]
    };
    if word.len() > 3 && (word.ends_with('e') || doubled) {
        word.pop();
    }
}

/// FNV-1a hash, 64 bits.
fn hash(word: &str) -> u64 {
    word.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn identifiers_and_paths_are_split_into_words() {
        let cases = [
            (
                "parseHttpHeader parse_http_header parse/http/header.rs",
                "pars http header pars http header pars http header",
            ),
            ("HTTPServer2 XMLParser", "http server2 xml parser"),
            ("The walls were painted; painting paints walls", "wal paint paint paint wal"),
            ("running the runner, passes pass", "run runner pas pas"),
            ("größe ändern", "größe ändern"),
            ("修正する", "修 正 す る"),
        ];
        for (text, expected) in cases {
            assert_eq!(words(text).join(" "), expected, "{text}");
        }
        assert!(EMPTY_WORDS.is_sorted() && EMPTY_WORDS.iter().all(|word| word.len() <= LONGEST_EMPTY));
    }

    #[test]
    fn similar_texts_score_higher_than_different_ones() {
        let task = "Fix the failing authentication tests in the login service";
        let alike =
            similarity(task, "Fixed authentication: login service checks the token; src/login/authentication.rs");
        let unlike = similarity(task, "Improved the README and added badges; README.md docs/api.md");
        assert!(alike > 0.4 && unlike < 0.05, "{alike} {unlike}");
        assert!((similarity(task, task) - 1.0).abs() < 1e-9);
        assert_eq!(similarity("", ""), 0.0);
        assert!(similarity("parse_header", "ParseHeaders") > 0.99);
    }

    #[test]
    fn rare_words_have_more_weight() {
        let texts =
            ["test the parser", "test the lexer", "test the printer", "test the parser of headers"].map(WordCounts::of);
        let rarity = Rarity::among(&texts);
        assert!(rarity.cosine(&texts[0], &texts[3]) > rarity.cosine(&texts[0], &texts[1]));
    }

    proptest! {
        #[test]
        fn similarity_is_symmetric_and_in_range(a in any::<String>(), b in any::<String>()) {
            let there = similarity(&a, &b);
            prop_assert!((0.0..=1.0).contains(&there));
            prop_assert!((there - similarity(&b, &a)).abs() < 1e-12);
        }
    }
}
