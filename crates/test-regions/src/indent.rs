//! Parser of languages with indented blocks. `lines` splits the source into lines, and each language classifies them.

use std::ops::Range;

use crate::RegionKind;
use crate::lex::{Apostrophe, Lexed, Lexis, QuoteRule, RawText, TokenKind, lex, long_quote, quote};
use crate::lines::{BlockWords, LogicalLine, NO_WORDS, lines};
use crate::scan::{
    FileScan, FoundRegion, MacroDefinition, ProgramItem, Shape, and, bounded, has_any, join, squeezed, text_start,
};

/// Meaning of a line.
pub(crate) enum Header {
    /// Function, class or module.
    Item(String),
    Test(RegionKind, String),
    /// Test if its block contains certain words; otherwise an item.
    MaybeTest(String),
    /// Condition or loop.
    Block,
    /// Documentation of the next item.
    Doc,
    /// Documentation of the enclosing item.
    EnclosingDoc,
    /// Documentation of the enclosing module.
    ModuleDoc,
    Other,
}

/// Rules of a language.
pub(crate) struct IndentRules {
    pub lexis: Lexis,
    pub words: BlockWords,
    pub header: fn(&LineView<'_>) -> Header,
    /// Words in documentation that a runner executes.
    pub doc_words: &'static [&'static str],
    /// Words in a block that mark it as a test.
    pub test_words: &'static [&'static str],
    /// Whether comments before an item are its documentation.
    pub comments_are_docs: bool,
    /// Whether consecutive items with the same name are one item.
    pub has_clauses: bool,
}

/// Line as seen by a language's rules.
pub(crate) struct LineView<'a> {
    source: &'a str,
    lexed: &'a Lexed,
    line: &'a LogicalLine,
}

impl<'a> LineView<'a> {
    /// Returns the text of a token of the line.
    pub fn word(&self, at: usize) -> &'a str {
        let token = self.lexed.tokens.get(self.line.tokens.start + at);
        let token = token.filter(|_| self.line.tokens.start + at < self.line.tokens.end);
        token.map_or("", |token| &self.source[token.start..token.end])
    }

    pub fn is_text(&self, at: usize) -> bool {
        let at = self.line.tokens.start + at;
        at < self.line.tokens.end && self.lexed.tokens[at].kind == TokenKind::Text
    }

    pub fn text(&self) -> &'a str {
        &self.source[self.line.start..self.line.end]
    }

    pub fn is_top(&self) -> bool {
        self.line.indent == 0
    }
}

struct OpenBlock {
    /// Index of the line after the block.
    end: usize,
    indent: usize,
    prefix: String,
    /// Index of the item.
    item: usize,
    condition: String,
}

/// Parses a file.
pub(crate) fn scan(source: &str, rules: &IndentRules) -> FileScan {
    let lexed = lex(source, &rules.lexis, text_start(source));
    let lines = lines(source, &lexed, rules.words);
    let mut reader = IndentReader {
        source,
        rules,
        lexed: &lexed,
        lines: &lines,
        scan: FileScan::new(source),
        blocks: Vec::new(),
        doc: None,
    };
    reader.scan.fault = lexed.fault;
    if let Some(first) = lines.first() {
        reader.scan.items[0].inner_doc_at = Some(first.start);
    }
    let mut at = 0;
    while at < lines.len() {
        at = reader.line(at);
    }
    if rules.comments_are_docs {
        reader.other_comments();
    }
    reader.scan
}

struct IndentReader<'a> {
    source: &'a str,
    rules: &'a IndentRules,
    lexed: &'a Lexed,
    lines: &'a [LogicalLine],
    scan: FileScan,
    blocks: Vec<OpenBlock>,
    /// Documentation of the next item.
    doc: Option<Range<usize>>,
}

impl IndentReader<'_> {
    fn line(&mut self, at: usize) -> usize {
        let line = &self.lines[at];
        while self.blocks.last().is_some_and(|block| block.end <= at) {
            self.blocks.pop();
        }
        let view = LineView { source: self.source, lexed: self.lexed, line };
        let (prefix, parent, condition) = match self.blocks.last_mut() {
            Some(block) => {
                if block.indent == line.indent && self.rules.words.continues.contains(&view.word(0)) {
                    block.condition = bounded(format!("{} {}", block.condition, squeezed(view.text())));
                }
                (block.prefix.clone(), block.item, block.condition.clone())
            }
            None => (String::new(), 0, String::new()),
        };
        let condition = match self.blocks.is_empty() {
            true => and(&line.directives, &condition),
            false => condition,
        };
        let next = line.block_end.max(at + 1);
        let end = self.lines[next - 1].end;
        let parent_path = self.scan.items[parent].path.clone();
        match (self.rules.header)(&view) {
            Header::Test(kind, name) => {
                self.scan.add_test(kind, (&parent_path, join(&prefix, &name)), &condition, line.start..end);
                self.doc = None;
                return next;
            }
            Header::MaybeTest(name) if has_any(&self.source[line.start..end], self.rules.test_words) => {
                let range = line.start..end;
                self.scan.add_test(RegionKind::TestModule, (&parent_path, join(&prefix, &name)), &condition, range);
                return next;
            }
            Header::MaybeTest(name) | Header::Item(name) => {
                // A Nim template with assertions.
                let is_macro = ["template", "macro"].contains(&view.word(0));
                if is_macro && has_any(&self.source[line.start..end], self.rules.test_words) {
                    self.scan.macros.push(MacroDefinition { name: name.clone(), range: line.start..end });
                }
                self.item((at, end, next), &name, (prefix, parent), condition);
            }
            Header::Block => {
                let header = and(&condition, &squeezed(view.text()));
                let indent = line.indent;
                let block = OpenBlock { end: next, indent, prefix, item: parent, condition: header };
                self.blocks.push(block);
            }
            Header::Doc => {
                let start = self.doc.take().map_or(line.start, |doc| doc.start);
                self.doc = Some(start..end);
                return next;
            }
            Header::EnclosingDoc => {
                self.enclosing_doc(parent, line.start..end);
                return next;
            }
            Header::ModuleDoc => {
                let is_test = has_any(&self.source[line.start..end], self.rules.doc_words);
                self.scan.add_inner_doc(&parent_path, &condition, line.start..end, is_test);
                return next;
            }
            Header::Other if view.word(0) != "@" => self.doc = None,
            Header::Other => {}
        }
        at + 1
    }

    fn item(
        &mut self,
        (at, end, next): (usize, usize, usize),
        name: &str,
        (prefix, parent): (String, usize),
        condition: String,
    ) {
        let line = &self.lines[at];
        let path = join(&prefix, name);
        let doc = match self.rules.comments_are_docs {
            true => self.comments_before(line.tokens.start),
            false => self.doc.take(),
        };
        let start = doc.as_ref().map_or(line.start, |doc| doc.start);
        if let Some(doc) = doc {
            let is_test = has_any(&self.source[doc.clone()], self.rules.doc_words);
            self.scan.add_doc(&path, &condition, doc, is_test);
        }
        let parent_path = self.scan.items[parent].path.clone();
        let last = self.scan.items.len() - 1;
        let is_clause = self.rules.has_clauses
            && self.scan.items[last].path == path
            && self.scan.items[last].condition == condition
            && self.scan.items[last].parent == parent_path;
        let body = self.lines.get(at + 1).filter(|_| next > at + 1).map(|line| line.start);
        if is_clause {
            self.scan.items[last].range.end = end;
        } else {
            // Documentation inside an item, such as `runnableExamples`, must be inserted there.
            let inside = self.rules.doc_words.is_empty();
            self.scan.items.push(ProgramItem {
                path: path.clone(),
                parent: parent_path,
                outer: condition.clone(),
                condition: condition.clone(),
                range: start..end,
                complete: true,
                doc_at: if inside { body } else { Some(line.start) },
                inner_doc_at: body,
                end_at: None,
                number: 0,
            });
        }
        if next > at + 1 {
            let item = self.scan.items.len() - 1;
            let indent = line.indent;
            self.blocks.push(OpenBlock { end: next, indent, prefix: path, item, condition });
        }
    }

    /// Adds documentation of the enclosing item. Consecutive parts become one.
    fn enclosing_doc(&mut self, item: usize, range: Range<usize>) {
        let ProgramItem { path, .. } = &self.scan.items[item];
        let path = path.clone();
        let condition = self.blocks.last().map_or(String::new(), |block| block.condition.clone());
        if let Some(last) = self.scan.found.last_mut()
            && last.shape != Shape::Item
            && last.anchor == path
            && last.condition == condition
            && self.source[last.range.end.min(range.start)..range.start].trim().is_empty()
        {
            last.range.end = range.end;
        } else if item == 0 {
            self.scan.add_inner_doc(&path, &condition, range, true);
        } else {
            self.scan.add_doc(&path, &condition, range, true);
        }
    }

    /// Returns the comments directly before a token.
    fn comments_before(&self, token: usize) -> Option<Range<usize>> {
        let mut first = token;
        while first > 0 && self.lexed.tokens[first - 1].kind == TokenKind::Comment && self.lexed.tokens[first - 1].first
        {
            let gap = &self.source[self.lexed.tokens[first - 1].end..self.lexed.tokens[first].start];
            if gap.matches('\n').count() > 1 {
                break;
            }
            first -= 1;
        }
        (first < token).then(|| self.lexed.tokens[first].start..self.lexed.tokens[token - 1].end)
    }

    /// Adds comments with examples that document no item, such as the setup of examples.
    fn other_comments(&mut self) {
        let mut known: Vec<Range<usize>> = self.scan.found.iter().map(|found| found.range.clone()).collect();
        known.sort_by_key(|range| range.start);
        let mut at = 0;
        while at < self.lexed.tokens.len() {
            let first = at;
            at += 1;
            if self.lexed.tokens[first].kind != TokenKind::Comment {
                continue;
            }
            while let Some(next) = self.lexed.tokens.get(at).filter(|next| next.kind == TokenKind::Comment) {
                if self.source[self.lexed.tokens[at - 1].end..next.start].matches('\n').count() > 1 {
                    break;
                }
                at += 1;
            }
            let range = self.lexed.tokens[first].start..self.lexed.tokens[at - 1].end;
            let before = known.partition_point(|known| known.start <= range.start);
            let is_known = before > 0 && known[before - 1].end > range.start
                || known.get(before).is_some_and(|known| known.start < range.end);
            if !is_known && has_any(&self.source[range.clone()], self.rules.doc_words) {
                let anchor = "comment".to_owned();
                self.scan.found.push(FoundRegion {
                    range,
                    kind: RegionKind::Doctest,
                    anchor,
                    container: String::new(),
                    condition: String::new(),
                    number: 0,
                    shape: Shape::Item,
                    is_test: true,
                });
            }
        }
    }
}

const fn code(mark: &'static str, code: &'static str, multiline: bool) -> QuoteRule {
    QuoteRule { open: mark, close: mark, escapes: true, multiline, code }
}

const BASE: Lexis = Lexis {
    line_comments: &["#"],
    line_texts: &[],
    block_comments: &[],
    quotes: &[],
    apostrophe: Apostrophe::CharOrName,
    raw: RawText::None,
    has_regex: false,
    has_directives: false,
    word: "",
    char_prefix: "",
    discard: "",
};

pub(crate) const ELIXIR: IndentRules = IndentRules {
    lexis: Lexis {
        quotes: &[code("\"\"\"", "#{", true), long_quote("'''"), code("\"", "#{", true), quote("'")],
        raw: RawText::Elixir,
        word: ".?!",
        char_prefix: "?",
        ..BASE
    },
    words: BlockWords { ends: &["end"], continues: &["else", "rescue", "catch", "after"] },
    header: |line| match line.word(0) {
        "defmodule" | "defprotocol" | "defimpl" => Header::Item(line.word(1).to_owned()),
        "def" | "defp" | "defmacro" | "defmacrop" | "defguard" | "defdelegate" | "defstruct" => {
            Header::Item(line.word(1).to_owned())
        }
        "@" if line.word(1) == "doc" => Header::Doc,
        "@" if line.word(1) == "moduledoc" => Header::ModuleDoc,
        "test" | "describe" | "property" | "doctest" => Header::Test(RegionKind::Test, line.word(1).to_owned()),
        "if" | "unless" | "case" | "cond" | "for" | "with" | "quote" => Header::Block,
        _ => Header::Other,
    },
    doc_words: &["iex>", "iex("],
    test_words: &[],
    comments_are_docs: false,
    has_clauses: true,
};

pub(crate) const JULIA: IndentRules = IndentRules {
    lexis: Lexis {
        block_comments: &[("#=", "=#", true)],
        quotes: &[code("\"\"\"", "$(", true), code("\"", "$(", true)],
        word: "!.",
        ..BASE
    },
    words: BlockWords { ends: &["end"], continues: &["else", "elseif", "catch", "finally"] },
    header: |line| match line.word(0) {
        "function" | "macro" | "struct" | "module" | "baremodule" | "const" => Header::Item(line.word(1).to_owned()),
        "mutable" | "abstract" | "primitive" => Header::Item(line.word(2).to_owned()),
        "@" if ["testset", "testitem", "test"].contains(&line.word(1)) => {
            Header::Test(RegionKind::Test, line.word(2).to_owned())
        }
        "@" if line.word(1) == "doc" => Header::Doc,
        "raw" | "doc" if line.is_text(1) => Header::Doc,
        "if" | "for" | "while" | "let" | "begin" | "try" => Header::Block,
        _ if line.is_text(0) => Header::Doc,
        name if line.is_top() && ["(", "=", "{"].contains(&line.word(1)) => Header::Item(name.to_owned()),
        _ => Header::Other,
    },
    doc_words: &["jldoctest"],
    test_words: &[],
    comments_are_docs: false,
    has_clauses: false,
};

pub(crate) const NIM: IndentRules = IndentRules {
    lexis: Lexis {
        block_comments: &[("##[", "]##", true), ("#[", "]#", true)],
        quotes: &[
            QuoteRule { open: "\"\"\"", close: "\"\"\"", escapes: false, multiline: true, code: "" },
            quote("\""),
        ],
        ..BASE
    },
    words: BlockWords { ends: &[], continues: &["else", "elif", "except", "finally", "of"] },
    header: |line| match line.word(0) {
        "proc" | "func" | "method" | "iterator" | "converter" | "template" | "macro" => {
            let quoted = line.word(1) == "`";
            Header::Item(line.word(if quoted { 2 } else { 1 }).to_owned())
        }
        "runnableExamples" => Header::EnclosingDoc,
        "when" if line.word(1) == "isMainModule" => Header::MaybeTest("isMainModule".to_owned()),
        "suite" | "test" if line.is_text(1) => Header::Test(RegionKind::Test, line.word(1).to_owned()),
        "when" | "if" | "case" | "for" | "while" | "try" | "block" => Header::Block,
        _ => Header::Other,
    },
    doc_words: &[],
    test_words: &["assert", "Assert", "check", "test", "suite", "expect", "require"],
    comments_are_docs: false,
    has_clauses: false,
};

pub(crate) const RUBY: IndentRules = IndentRules {
    lexis: Lexis {
        block_comments: &[("=begin", "\n=end", false)],
        quotes: &[code("\"", "#{", false), quote("'"), quote("`")],
        has_regex: true,
        word: "?!.$@:",
        char_prefix: "?",
        ..BASE
    },
    words: BlockWords { ends: &["end"], continues: &["else", "elsif", "rescue", "ensure", "when", "in"] },
    header: |line| match line.word(0) {
        "class" if line.word(2) == "<" && has_any(line.word(3), &["TestCase", "Minitest::Test", "Minitest::Spec"]) => {
            Header::Test(RegionKind::TestModule, line.word(1).to_owned())
        }
        "class" | "module" | "def" => Header::Item(line.word(1).to_owned()),
        "if" if ["__FILE__", "$0", "$PROGRAM_NAME"].contains(&line.word(1)) && line.text().contains("__FILE__") => {
            Header::MaybeTest("__FILE__".to_owned())
        }
        "RSpec.describe" | "describe" | "Minitest.autorun" => Header::Test(RegionKind::Test, line.word(1).to_owned()),
        "if" | "unless" | "case" | "while" | "until" | "begin" => Header::Block,
        _ => Header::Other,
    },
    doc_words: &["#=>", "# =>"],
    test_words: &["assert", "Test", "describe", "expect", "must_"],
    comments_are_docs: true,
    has_clauses: false,
};

pub(crate) const HASKELL: IndentRules = IndentRules {
    lexis: Lexis {
        line_comments: &["--"],
        block_comments: &[("{-", "-}", true)],
        quotes: &[quote("\"")],
        has_directives: true,
        word: "'.",
        ..BASE
    },
    words: NO_WORDS,
    header: |line| match line.word(0) {
        "import" | "infixl" | "infixr" | "infix" | "foreign" | "default" => Header::Other,
        "data" | "newtype" | "type" | "class" | "instance" if line.is_top() => {
            let head = line.text().split(['=', '\n']).next().unwrap_or_default();
            Header::Item(squeezed(head.split("where").next().unwrap_or_default()))
        }
        "module" => Header::Item(line.word(1).to_owned()),
        "(" if line.is_top() => Header::Item(line.text().split_inclusive(')').next().unwrap_or_default().to_owned()),
        name if line.is_top() || (line.word(1) == ":" && line.word(2) == ":") => Header::Item(name.to_owned()),
        _ => Header::Other,
    },
    doc_words: &[">>>", "prop>", "$setup"],
    test_words: &[],
    comments_are_docs: true,
    has_clauses: true,
};

pub(crate) const OCAML: IndentRules = IndentRules {
    lexis: Lexis {
        line_comments: &[],
        block_comments: &[("(*", "*)", true)],
        quotes: &[long_quote("\"")],
        raw: RawText::OCaml,
        word: "'%.",
        ..BASE
    },
    words: BlockWords { ends: &["end", ";", "done"], continues: &["|", "in", "then", "else", "with", "->"] },
    header: |line| match line.word(0) {
        word if ["let%test", "let%expect_test", "let%bench", "module%test"]
            .iter()
            .any(|test| word.starts_with(test)) =>
        {
            let is_module = word.starts_with("module") || word.starts_with("let%test_module");
            let kind = if is_module { RegionKind::TestModule } else { RegionKind::Test };
            Header::Test(kind, format!("{word} {}", line.word(1)))
        }
        "let" | "and" if ["rec", "nonrec"].contains(&line.word(1)) => Header::Item(line.word(2).to_owned()),
        // Assertions that run when the program runs.
        "let" if line.is_top() && (line.word(1) == "(" || line.word(1).starts_with("test")) => {
            Header::MaybeTest(if line.word(1) == "(" { "let ()".to_owned() } else { line.word(1).to_owned() })
        }
        "let" | "and" | "type" | "external" | "exception" | "class" => Header::Item(line.word(1).to_owned()),
        "module" => Header::Item(line.word(if line.word(1) == "type" { 2 } else { 1 }).to_owned()),
        _ => Header::Other,
    },
    doc_words: &["(*never*)"],
    test_words: &["assert", "test ()", "tests ()"],
    comments_are_docs: false,
    has_clauses: false,
};
