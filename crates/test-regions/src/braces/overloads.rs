//! Numbers of parameters and arguments, which decide whether a test may call an added overload.

use std::ops::{Range, RangeInclusive};

use crate::lex::{LexToken, TokenKind};
use crate::scan::{Overload, TestCall, squeezed};

/// Numbers of a function or call whose brackets were not found.
const ANY: RangeInclusive<usize> = 0..=usize::MAX;

/// Tokens of a file, whose brackets are counted.
pub(super) struct Brackets<'a> {
    pub source: &'a str,
    pub tokens: &'a [LexToken],
}

impl<'a> Brackets<'a> {
    pub fn text(&self, at: usize) -> &'a str {
        self.tokens.get(at).map_or("", |token| &self.source[token.start..token.end])
    }

    pub fn is_open(&self, at: usize) -> bool {
        self.tokens.get(at).is_some_and(|token| token.kind == TokenKind::Open && token.pair != usize::MAX)
    }

    pub fn after(&self, at: usize) -> usize {
        if self.is_open(at) { self.tokens[at].pair + 1 } else { at + 1 }
    }

    /// Returns the overload that an item declares. `header` ends at its body.
    pub(super) fn overload(&self, item: usize, header: Range<usize>, is_container: bool) -> Overload {
        let mut open = header.clone().find(|at| self.text(*at) == "(" && self.is_open(*at)).filter(|_| !is_container);
        // The parameters of a template in D come first.
        let follows = |next: &usize| header.contains(next) && self.text(*next) == "(" && self.is_open(*next);
        while let Some(next) = open.map(|open| self.after(open)).filter(follows) {
            open = Some(next);
        }
        let (parameters, numbers) = match open {
            Some(open) => {
                (&self.source[self.tokens[open].start..self.tokens[self.tokens[open].pair].end], self.parameters(open))
            }
            None => ("", ANY),
        };
        Overload { item, parameters: squeezed(parameters), numbers }
    }

    /// Returns the calls of a test. A name without brackets may be a call of any kind.
    pub(super) fn calls(&self, test: Range<usize>) -> Vec<TestCall> {
        let mut calls = Vec::new();
        for at in test {
            let token = self.tokens[at];
            let (text, start) = (self.text(at), token.start);
            let is_name = |c: char| c.is_alphanumeric() || c == '_';
            match token.kind {
                TokenKind::Word if self.text(at + 1) == "(" && self.is_open(at + 1) => {
                    let numbers = self.parts(at + 1);
                    // `a.f(b)` may mean `f(a, b)`, and `f(a) { … }` passes the block.
                    let more = usize::from(at > 0 && self.text(at - 1) == ".")
                        + usize::from(self.text(self.after(at + 1)) == "{");
                    let numbers = *numbers.start()..=numbers.end() + more;
                    calls.push(TestCall { name: text.to_owned(), start, numbers });
                }
                TokenKind::Word => calls.push(TestCall { name: text.to_owned(), start, numbers: ANY }),
                // Code in a string, which a mixin may compile.
                TokenKind::Text => {
                    let names = text.split('(').rev().skip(1).filter_map(|part| part.rsplit(|c| !is_name(c)).next());
                    let names = names.filter(|name| !name.is_empty());
                    calls.extend(names.map(|name| TestCall { name: name.to_owned(), start, numbers: ANY }));
                }
                _ => {}
            }
        }
        calls
    }

    /// Returns the possible numbers of parts in a pair of brackets. A comma between `<` and `>` may separate parts or not.
    fn parts(&self, open: usize) -> RangeInclusive<usize> {
        let end = self.tokens[open].pair;
        let (mut least, mut most, mut angles) = (0, 0, 0_usize);
        let mut at = open + 1;
        while at < end {
            if self.tokens[at].kind != TokenKind::Comment {
                least = usize::max(least, 1);
                most = usize::max(most, 1);
            }
            match self.text(at) {
                "<" => angles += 1,
                ">" if !matches!(self.text(at - 1), "-" | "=") => angles = angles.saturating_sub(1),
                "," => {
                    least += usize::from(angles == 0);
                    most += 1;
                }
                _ => {}
            }
            at = self.after(at);
        }
        least..=most
    }

    fn parameters(&self, open: usize) -> RangeInclusive<usize> {
        let inside = open + 1..self.tokens[open].pair;
        let all = self.parts(open);
        let words: Vec<&str> = inside.map(|at| self.text(at)).collect();
        if words == ["void"] {
            return 0..=0;
        }
        let defaults = words.iter().filter(|word| **word == "=").count();
        let is_variadic = words.windows(3).any(|signs| signs == [".", ".", "."])
            || words.iter().any(|word| matches!(*word, "vararg" | "params"));
        let most = if is_variadic { usize::MAX } else { *all.end() };
        all.start().saturating_sub(defaults + usize::from(is_variadic))..=most
    }
}
