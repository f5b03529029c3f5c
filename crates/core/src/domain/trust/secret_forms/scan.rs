//! Tracks the forms of secrets over a stream of bytes. This is a nondeterministic automaton: each thread is before a symbol of a
//! form, or inside an escape sequence for that symbol.

use std::ops::Range;
use std::sync::Arc;

use super::SecretForms;

/// Index for the state before the first symbol of any form.
pub(super) const ANY_FORM: u16 = u16::MAX;
/// Maximum number of bytes between two symbols: separators, quotes, line breaks, parts of wide characters.
const MOST_SKIPPED: u8 = 6;
/// Number of matched symbols from which bytes are held back even if separators follow.
const HELD_SYMBOLS: u16 = 4;

/// Position of a thread: before a symbol or inside an escape sequence, with the part of it that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ScanPosition {
    /// Before a symbol.
    Symbol,
    /// After backslashes.
    Backslash,
    /// Inside the two hexadecimal digits after `%`: number of digits and value.
    Hex(u8, u32),
    /// Inside the digits after `\u`.
    Unicode(u8, u32),
}

/// Thread of the automaton: a position in a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Thread {
    form: u16,
    /// Number of symbols that matched so far.
    matched: u16,
    place: ScanPosition,
    /// Position of the first matched byte in the stream.
    start: usize,
    /// Number of bytes since the last matched symbol.
    skipped: u8,
}

/// State of the search in one stream.
#[derive(Debug, Default)]
pub(super) struct Scan {
    threads: Vec<Thread>,
    next: Vec<Thread>,
    /// Number of bytes read so far.
    position: usize,
}

impl Scan {
    /// Reads a byte. If a secret ends with it, returns the position of the secret's first byte.
    pub(super) fn next(&mut self, forms: &SecretForms, byte: u8) -> Option<usize> {
        let fresh =
            Thread { form: ANY_FORM, matched: 0, place: ScanPosition::Symbol, start: self.position, skipped: 0 };
        self.next.clear();
        let mut found: Option<usize> = None;
        let mut step = Step { forms, next: &mut self.next, found: &mut found };
        for thread in &self.threads {
            step.read(*thread, byte);
        }
        step.read(fresh, byte);
        // Of threads at the same place the earliest counts.
        if self.next.len() > 1 {
            self.next.sort_unstable();
            self.next.dedup_by(|later, earlier| {
                let is_same =
                    (later.form, later.matched, later.place) == (earlier.form, earlier.matched, earlier.place);
                earlier.skipped = if is_same { earlier.skipped.min(later.skipped) } else { earlier.skipped };
                is_same
            });
        }
        std::mem::swap(&mut self.threads, &mut self.next);
        self.position += 1;
        found
    }

    /// Returns the position of the first byte that may belong to an unfinished secret. Only threads with at least `least` matched
    /// symbols count.
    fn held_from(&self, least: u16) -> usize {
        let is_held =
            |thread: &&Thread| thread.matched >= least && (thread.skipped == 0 || thread.matched >= HELD_SYMBOLS);
        let held = self.threads.iter().filter(is_held);
        held.map(|thread| thread.start).min().unwrap_or(self.position)
    }

    /// Returns the number of active threads.
    #[cfg(test)]
    pub(super) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Excludes the bytes read so far from all threads, so that no later secret starts in them.
    fn cut(&mut self) {
        for thread in &mut self.threads {
            thread.start = thread.start.max(self.position);
        }
    }
}

/// Processing of one byte by all threads.
struct Step<'a> {
    forms: &'a SecretForms,
    next: &'a mut Vec<Thread>,
    found: &'a mut Option<usize>,
}

impl Step<'_> {
    fn read(&mut self, thread: Thread, byte: u8) {
        match (thread.place, byte) {
            (ScanPosition::Symbol, _) => self.symbol(thread, byte),
            (ScanPosition::Backslash, b'\\') => self.go(thread, ScanPosition::Backslash),
            (ScanPosition::Backslash, b'u' | b'U') => self.go(thread, ScanPosition::Unicode(0, 0)),
            (ScanPosition::Backslash, b'n' | b'r' | b't') => self.skip(thread),
            (ScanPosition::Backslash, _) => {}
            (ScanPosition::Hex(count, value), _) => self.digit(thread, byte, (count, value), 2, ScanPosition::Hex),
            (ScanPosition::Unicode(count, value), _) => {
                self.digit(thread, byte, (count, value), 4, ScanPosition::Unicode)
            }
        }
    }

    /// Reads a byte where a symbol is expected: the symbol, the start of an escape sequence, or a separator.
    fn symbol(&mut self, thread: Thread, byte: u8) {
        self.decoded(thread, u32::from(byte));
        match byte {
            b'%' => self.go(thread, ScanPosition::Hex(0, 0)),
            b'\\' => self.go(thread, ScanPosition::Backslash),
            _ => {}
        }
        let is_loose = self.forms.forms.get(usize::from(thread.form)).is_some_and(|form| form.is_loose);
        if (is_loose && !byte.is_ascii_alphanumeric()) || byte == 0 {
            self.skip(thread);
        }
    }

    /// Reads a hexadecimal digit of an escape sequence with `length` digits.
    fn digit(
        &mut self,
        thread: Thread,
        byte: u8,
        (count, value): (u8, u32),
        length: u8,
        place: fn(u8, u32) -> ScanPosition,
    ) {
        let Some(digit) = char::from(byte).to_digit(16) else { return };
        let count = count + 1;
        let value = value * 16 + digit;
        if count == length { self.decoded(thread, value) } else { self.go(thread, place(count, value)) }
    }

    /// Treats a decoded character as the next symbol.
    fn decoded(&mut self, thread: Thread, value: u32) {
        // Separators can be escaped, too: the zero bytes of wide characters.
        if value == 0 && thread.place != ScanPosition::Symbol {
            self.skip(thread);
        }
        let Ok(byte) = u8::try_from(value) else { return };
        if thread.form == ANY_FORM {
            for form in &self.forms.by_first[usize::from(byte)] {
                self.matched(Thread { form: *form, ..thread });
            }
        } else if self.forms.forms[usize::from(thread.form)].accepts(usize::from(thread.matched), byte) {
            self.matched(thread);
        }
    }

    fn matched(&mut self, thread: Thread) {
        let matched = thread.matched + 1;
        if usize::from(matched) == self.forms.forms[usize::from(thread.form)].symbols.len() {
            // Of forms that end here the shortest match counts: the others start with unrelated bytes before it.
            *self.found = Some(self.found.map_or(thread.start, |start| start.max(thread.start)));
        } else {
            self.next.push(Thread { matched, place: ScanPosition::Symbol, skipped: 0, ..thread });
        }
    }

    fn skip(&mut self, thread: Thread) {
        if thread.form != ANY_FORM && thread.skipped < MOST_SKIPPED {
            self.next.push(Thread { place: ScanPosition::Symbol, skipped: thread.skipped + 1, ..thread });
        }
    }

    fn go(&mut self, thread: Thread, place: ScanPosition) {
        self.next.push(Thread { place, ..thread });
    }
}

/// Finds secrets in a stream. Positions are counted from the start of the stream.
#[derive(Debug)]
pub struct StreamTracker {
    forms: Arc<SecretForms>,
    scan: Scan,
}

impl StreamTracker {
    /// Creates a tracker for one stream.
    pub fn new(forms: Arc<SecretForms>) -> Self {
        Self { forms, scan: Scan::default() }
    }

    /// Reads bytes; returns the ranges of the secrets that end in them, in order.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        for byte in bytes {
            if let Some(start) = self.scan.next(&self.forms, *byte) {
                found.push(start..self.scan.position);
                self.scan.cut();
            }
        }
        found
    }

    /// Returns the number of bytes that were read.
    pub fn position(&self) -> usize {
        self.scan.position
    }

    /// Returns the position of the first byte that may belong to an unfinished secret. Only matches of at least `least` symbols
    /// count.
    pub fn open_from(&self, least: u16) -> usize {
        self.scan.held_from(least)
    }
}

/// Replaces secrets in a stream by a mark. Holds back only bytes that may be the start of a secret.
#[derive(Debug)]
pub struct StreamRedactor {
    forms: Arc<SecretForms>,
    mark: &'static [u8],
    /// Minimum number of matched symbols from which bytes are held back.
    least: u16,
    scan: Scan,
    held: Vec<u8>,
    /// Whether the last bytes returned were a mark.
    is_marked: bool,
    /// Number of secrets that were replaced.
    replaced: usize,
}

impl StreamRedactor {
    /// Creates a redactor for one stream.
    pub fn new(forms: Arc<SecretForms>, mark: &'static [u8]) -> Self {
        Self { forms, mark, least: 0, scan: Scan::default(), held: Vec::new(), is_marked: false, replaced: 0 }
    }

    /// Sets the minimum number of matched symbols from which bytes are held back. Shorter starts are passed on at once.
    pub fn holding(self, least: u16) -> Self {
        Self { least, ..self }
    }

    /// Reads bytes; returns the bytes that can be passed on.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut clean = Vec::with_capacity(bytes.len() + self.held.len());
        for byte in bytes {
            let held_at = self.scan.position - self.held.len();
            self.held.push(*byte);
            if let Some(start) = self.scan.next(&self.forms, *byte) {
                self.held.truncate(start.saturating_sub(held_at));
                self.release(self.held.len(), &mut clean);
                if !self.is_marked {
                    clean.extend_from_slice(self.mark);
                    self.is_marked = true;
                }
                self.replaced += 1;
                self.scan.cut();
            }
        }
        // The start of a secret may have been passed on before the rest of it was recognized.
        let needed = self.scan.position - self.scan.held_from(self.least);
        let released = self.held.len().saturating_sub(needed);
        self.release(released, &mut clean);
        clean
    }

    /// Returns the held-back bytes at the end of the stream.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    /// Returns the number of secrets that were replaced.
    pub fn replaced(&self) -> usize {
        self.replaced
    }

    fn release(&mut self, count: usize, clean: &mut Vec<u8>) {
        self.is_marked &= count == 0;
        clean.extend(self.held.drain(..count));
    }
}
