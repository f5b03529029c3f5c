//! Python: docstrings with sessions, tests in program modules, and code that starts tests.

use std::collections::HashSet;

use crate::RegionKind;
use crate::lex::{Apostrophe, LexToken, Lexed, Lexis, RawText, TokenKind, lex, long_quote, quote};
use crate::lines::{LogicalLine, NO_WORDS, lines};
use crate::scan::{FileScan, ProgramItem, and, bounded, has_any, join, squeezed, text_start};

const LEXIS: Lexis = Lexis {
    line_comments: &["#"],
    line_texts: &[],
    block_comments: &[],
    quotes: &[long_quote("\"\"\""), long_quote("'''"), quote("\""), quote("'")],
    apostrophe: Apostrophe::Char,
    raw: RawText::None,
    has_regex: false,
    has_directives: false,
    word: "",
    char_prefix: "",
    discard: "",
};

/// Names that determine which examples of a module run.
const START_NAMES: [&str; 5] = ["__test__", "__doctest_skip__", "__doctest_requires__", "pytestmark", "load_tests"];
/// Words in code that starts tests.
const START_WORDS: [&str; 4] = ["doctest", "testmod", "unittest", "pytest"];
/// Decorators that keep the docstring of a function or class visible to doctest.
const TRANSPARENT: [&str; 17] = [
    "property",
    "setter",
    "getter",
    "deleter",
    "staticmethod",
    "classmethod",
    "abstractmethod",
    "wraps",
    "cache",
    "lru_cache",
    "total_ordering",
    "contextmanager",
    "asynccontextmanager",
    "dataclass",
    "override",
    "overload",
    "final",
];
/// First words of lines that open a block.
const BLOCKS: [&str; 11] = ["if", "elif", "else", "try", "except", "finally", "with", "for", "while", "match", "case"];
/// First words of lines that continue the previous block.
const CONTINUATIONS: [&str; 5] = ["elif", "else", "except", "finally", "case"];

/// Block around the current line.
struct PythonBlock {
    indent: usize,
    prefix: String,
    /// Path of the item that contains the lines.
    item: String,
    condition: String,
    /// Conditions of the statement so far, such as `if a: elif b:`.
    chain: String,
}

struct PythonReader<'a> {
    source: &'a str,
    lexed: &'a Lexed,
    lines: Vec<LogicalLine>,
    scan: FileScan,
    blocks: Vec<PythonBlock>,
    own_names: HashSet<&'a str>,
}

/// Parses a Python file.
pub(crate) fn scan(source: &str) -> FileScan {
    let lexed = lex(source, &LEXIS, text_start(source));
    let lines = lines(source, &lexed, NO_WORDS);
    let mut scan = FileScan::new(source);
    scan.fault = lexed.fault;
    scan.empty_doc = "\"\"";
    scan.last_wins = true;
    scan.inline_separator = "; ";
    let mut reader = PythonReader { source, lexed: &lexed, lines, scan, blocks: Vec::new(), own_names: HashSet::new() };
    reader.own_names = reader.own_names();
    reader.run();
    reader.scan
}

impl<'a> PythonReader<'a> {
    fn text(&self, token: usize) -> &'a str {
        self.lexed.tokens.get(token).map_or("", |token| &self.source[token.start..token.end])
    }

    fn word(&self, line: usize) -> &'a str {
        self.text(self.lines[line].tokens.start)
    }

    fn run(&mut self) {
        if let Some(first) = self.lines.first() {
            self.scan.items[0].inner_doc_at = Some(first.start);
            if let Some(doc) = self.literal(first.tokens.clone()) {
                let is_test = is_session(&self.source[doc.clone()]);
                self.scan.add_inner_doc("", "", doc, is_test);
            }
        }
        let mut at = 0;
        let mut decorated = None;
        while at < self.lines.len() {
            let line = &self.lines[at];
            let mut chain = String::new();
            while let Some(block) = self.blocks.last().filter(|block| block.indent >= line.indent) {
                if block.indent == line.indent {
                    chain.clone_from(&block.chain);
                }
                self.blocks.pop();
            }
            let first = self.word(at);
            if first == "@" {
                decorated.get_or_insert(at);
                at += 1;
                continue;
            }
            let from = decorated.take().unwrap_or(at);
            at = match first {
                "def" | "class" => self.item(at, from, first, 1),
                "async" if self.text(line.tokens.start + 1) == "def" => self.item(at, from, "def", 2),
                _ if BLOCKS.contains(&first) => self.block(at, first, &chain),
                _ => self.statement(at, first),
            };
        }
    }

    /// Returns the prefix, the containing item and the condition at the current place.
    fn place(&self) -> (String, String, String) {
        let of = |block: &PythonBlock| (block.prefix.clone(), block.item.clone(), block.condition.clone());
        self.blocks.last().map(of).unwrap_or_default()
    }

    /// Returns the offset after the last line of a block.
    fn end_of(&self, at: usize) -> usize {
        self.lines[self.lines[at].block_end.max(at + 1) - 1].end
    }

    fn statement(&mut self, at: usize, name: &str) -> usize {
        let line = &self.lines[at];
        if self.blocks.is_empty() && START_NAMES.contains(&name) {
            let range = line.start..line.end;
            self.scan.add_test(RegionKind::TestStart, ("", name.to_owned()), "", range);
        } else if self.hides_tests(at, name) {
            let range = line.start..line.end;
            let text = bounded(squeezed(&self.source[range.clone()]));
            let (_, item, condition) = self.place();
            self.scan.add_test(RegionKind::TestCode, (&item, text), &condition, range);
        }
        at + 1
    }

    /// Whether a statement outside functions changes an item's documentation or deletes a test.
    fn hides_tests(&self, at: usize, word: &str) -> bool {
        let tokens: Vec<&str> = self.lines[at].tokens.clone().map(|token| self.text(token)).collect();
        let assigned = tokens.iter().position(|token| *token == "=");
        let is_test = |token: &&str| {
            let name = token.trim_matches(['"', '\'']);
            name.starts_with("test_") || name.starts_with("Test") || name.ends_with("Test") || name == "__doc__"
        };
        match (word, assigned) {
            ("del" | "setattr" | "delattr", _) => tokens.iter().any(is_test),
            (_, Some(end)) => !tokens[..end].contains(&"(") && tokens[..end].iter().any(is_test),
            _ => false,
        }
    }

    /// Returns the names that the file gives a function or value. A decorator with such a name may do anything.
    fn own_names(&self) -> HashSet<&'a str> {
        let mut names = HashSet::new();
        let mut depth = 0_usize;
        for pair in self.lexed.tokens.windows(2) {
            let text = |token: &LexToken| &self.source[token.start..token.end];
            match (text(&pair[0]), text(&pair[1])) {
                ("def", name) => drop(names.insert(name)),
                (name, "=") if depth == 0 => drop(names.insert(name)),
                _ => {}
            }
            depth = match pair[0].kind {
                TokenKind::Open => depth + 1,
                TokenKind::Close => depth.saturating_sub(1),
                _ => depth,
            };
        }
        names
    }

    /// Returns the names of decorators that may hide an item's documentation from doctest.
    fn opaque_decorators(&self, lines: std::ops::Range<usize>) -> String {
        let name_of = |line: &LogicalLine| -> String {
            line.tokens.clone().map(|token| self.text(token)).take_while(|text| *text != "(").collect()
        };
        let is_opaque = |decorator: &String| {
            let name = decorator.rsplit(['@', '.']).next().unwrap_or_default();
            self.own_names.contains(name) || !TRANSPARENT.contains(&name)
        };
        let names: Vec<String> = self.lines[lines].iter().map(name_of).filter(is_opaque).collect();
        bounded(names.join(" "))
    }

    /// Parses a compound statement such as `if`.
    fn block(&mut self, at: usize, word: &str, chain: &str) -> usize {
        let line = self.lines[at].clone();
        let header = &self.source[line.start..self.header_end(&line).unwrap_or(line.end)];
        let header = squeezed(header);
        let (prefix, item, condition) = self.place();
        if self.blocks.is_empty() && word == "if" && header.contains("__name__") && header.contains("__main__") {
            let range = line.start..self.end_of(at);
            if has_any(&self.source[range.clone()], &START_WORDS) {
                self.scan.add_test(RegionKind::TestStart, ("", "__main__".to_owned()), "", range);
                return line.block_end.max(at + 1);
            }
            if (at..line.block_end).any(|line| self.word(line) == "assert") {
                self.scan.add_test(RegionKind::TestModule, ("", "__main__".to_owned()), "", range);
                return line.block_end.max(at + 1);
            }
            let names = ("__main__".to_owned(), item.clone());
            self.push_item(names, (condition.clone(), condition.clone()), range, None);
        }
        let chain = match CONTINUATIONS.contains(&word) {
            true => bounded(format!("{chain} {header}").trim().to_owned()),
            false => bounded(header),
        };
        let condition = and(&condition, &chain);
        self.blocks.push(PythonBlock { indent: line.indent, prefix, item, condition, chain });
        at + 1
    }

    /// Returns the offset after the colon that ends a block's header.
    fn header_end(&self, line: &LogicalLine) -> Option<usize> {
        let mut at = line.tokens.start;
        while at < line.tokens.end {
            let token = self.lexed.tokens[at];
            if self.text(at) == ":" {
                return Some(token.end);
            }
            at = if token.kind == TokenKind::Open && token.pair != usize::MAX { token.pair + 1 } else { at + 1 };
        }
        None
    }

    /// Parses a function or class.
    fn item(&mut self, at: usize, from: usize, keyword: &str, words: usize) -> usize {
        let line = self.lines[at].clone();
        let name = self.text(line.tokens.start + words);
        let (prefix, parent, outer) = self.place();
        let path = join(&prefix, name);
        let range = self.lines[from].start..self.end_of(at);
        let next = line.block_end.max(at + 1);
        let text = &self.source[range.clone()];
        let header_end = self.header_end(&line).unwrap_or(line.end);
        let header = &self.source[line.start..header_end];
        let is_case = keyword == "class"
            && (header.contains("TestCase") || name.starts_with("Test") && text.contains("def test"));
        let is_test = keyword == "def" && name.starts_with("test") && text.contains("assert");
        if is_case || is_test || (self.blocks.is_empty() && START_NAMES.contains(&name)) {
            let kind = if is_case { RegionKind::TestModule } else { RegionKind::Test };
            self.scan.add_test(kind, (&parent, path), &outer, range);
            return next;
        }
        let condition = and(&outer, &self.opaque_decorators(from..at));
        let is_inline = header_end < line.end;
        let body = match is_inline {
            true => {
                let first = line.tokens.clone().find(|token| self.lexed.tokens[*token].start >= header_end);
                first.map(|first| first..line.tokens.end)
            }
            false => self.lines.get(at + 1).filter(|_| next > at + 1).map(|line| line.tokens.clone()),
        };
        if let Some(doc) = body.clone().and_then(|body| self.literal(body)) {
            let is_test = is_session(&self.source[doc.clone()]);
            self.scan.add_doc(&path, &condition, doc, is_test);
        }
        let doc_at = body.map(|body| self.lexed.tokens[body.start].start);
        self.push_item((path.clone(), parent), (condition.clone(), outer), range, doc_at);
        if keyword == "def" {
            // doctest does not search inside functions.
            return next;
        }
        self.blocks.push(PythonBlock {
            indent: line.indent,
            prefix: path.clone(),
            item: path,
            condition,
            chain: String::new(),
        });
        at + 1
    }

    fn push_item(
        &mut self,
        (path, parent): (String, String),
        (condition, outer): (String, String),
        range: std::ops::Range<usize>,
        doc_at: Option<usize>,
    ) {
        let end_at = Some(range.end);
        let item = ProgramItem {
            path,
            parent,
            condition,
            outer,
            range,
            complete: true,
            doc_at,
            inner_doc_at: None,
            end_at,
            number: 0,
        };
        self.scan.items.push(item);
    }

    /// Returns the string literals at the start of a statement.
    fn literal(&self, tokens: std::ops::Range<usize>) -> Option<std::ops::Range<usize>> {
        let start = self.lexed.tokens.get(tokens.start)?.start;
        let mut end = None;
        for at in tokens {
            let token = self.lexed.tokens[at];
            let prefix = self.text(at);
            let is_prefix = token.kind == TokenKind::Word
                && prefix.len() <= 2
                && prefix.chars().all(|c| "rRbBuUfFtT".contains(c))
                && self
                    .lexed
                    .tokens
                    .get(at + 1)
                    .is_some_and(|next| next.start == token.end && next.kind == TokenKind::Text);
            match token.kind {
                TokenKind::Text => end = Some(token.end),
                TokenKind::Comment => {}
                _ if is_prefix => {}
                TokenKind::Sign if prefix == ";" => break,
                _ => return None,
            }
        }
        end.map(|end| start..end)
    }
}

fn is_session(doc: &str) -> bool {
    doc.contains(">>>")
}
