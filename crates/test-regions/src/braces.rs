//! Languages with blocks in braces, other than Rust: C, C++, D, Zig, JavaScript, Java, Kotlin, Scala, Swift, C# and PHP.

mod overloads;
mod self_tests;

use std::collections::HashSet;
use std::ops::Range;

use overloads::Brackets;
use self_tests::{PartedFile, defined_names, excludes_main, is_self_test, starts_test_part};

use crate::RegionKind;
use crate::definitions::is_built_in_of_c;
use crate::lex::{C_LIKE, LexToken, Lexis, QuoteRule, RawText, TokenKind, lex, long_quote, quote};
use crate::lines::Directives;
use crate::scan::{self, FileScan, MacroDefinition, ProgramItem, and, has_any, join, squeezed, text_start};

/// Maximum nesting depth of braces and of parts for tests.
const MAX_DEPTH: usize = 64;
/// Keywords of items whose braces contain items.
const CONTAINERS: [&str; 16] = [
    "class",
    "struct",
    "namespace",
    "interface",
    "object",
    "module",
    "enum",
    "union",
    "extension",
    "protocol",
    "trait",
    "template",
    "record",
    "actor",
    "opaque",
    "extern",
];
/// Keywords before an item's name.
const KEYWORDS: [&str; 14] = [
    "function", "func", "fun", "fn", "def", "const", "let", "var", "val", "type", "typedef", "using", "alias", "macro",
];
/// Annotations and attributes that mark tests.
const TEST_ATTRIBUTES: [&str; 15] = [
    "Test",
    "ParameterizedTest",
    "RepeatedTest",
    "TestFactory",
    "TestTemplate",
    "Property",
    "Fact",
    "Theory",
    "TestMethod",
    "TestCase",
    "TestFixture",
    "TestClass",
    "Suite",
    "BeforeEach",
    "AfterEach",
];
/// C++ macros that define a test or a group of tests.
const CPP_TESTS: [&str; 22] = [
    "TEST_CASE",
    "DOCTEST_TEST_CASE",
    "TEST_CASE_METHOD",
    "TEST_CASE_FIXTURE",
    "TEST_CASE_TEMPLATE",
    "TEST_CASE_CLASS",
    "TEMPLATE_TEST_CASE",
    "TEMPLATE_PRODUCT_TEST_CASE",
    "SCENARIO",
    "TEST_SUITE",
    "DOCTEST_TEST_SUITE",
    "TEST",
    "TEST_F",
    "TEST_P",
    "TYPED_TEST",
    "BOOST_AUTO_TEST_CASE",
    "BOOST_FIXTURE_TEST_CASE",
    "BOOST_DATA_TEST_CASE",
    "BOOST_AUTO_TEST_SUITE",
    "CATCH_TEST_CASE",
    "CATCH_SCENARIO",
    "ANON_TEST_CASE",
];
/// C++ macros that change the meaning of tests if they are defined.
const CPP_SETTINGS: [&str; 10] =
    ["DOCTEST_", "CATCH_", "TEST", "SCENARIO", "CHECK", "REQUIRE", "SUBCASE", "SECTION", "EXPECT_", "ASSERT_"];
/// Rules of a language.
pub(crate) struct BraceRules {
    pub lexis: Lexis,
    /// Whether a line break can end a statement.
    pub line_ends: bool,
    /// Returns the kind and name of a statement's test; `None` if the statement is not a test.
    pub test: fn(&BraceStatement<'_>) -> Option<(RegionKind, String)>,
    /// Whether a runner executes examples in this documentation.
    pub doc: fn(&str) -> bool,
    /// Whether several functions may have the same name.
    pub has_overloads: bool,
}

/// Statement or item without its annotations.
pub(crate) struct BraceStatement<'a> {
    source: &'a str,
    tokens: &'a [LexToken],
    range: Range<usize>,
    body: Option<usize>,
}

impl<'a> BraceStatement<'a> {
    fn word(&self, at: usize) -> &'a str {
        let at = self.range.start + at;
        match self.tokens.get(at).filter(|_| at < self.range.end) {
            Some(token) => &self.source[token.start..token.end],
            None => "",
        }
    }

    /// Returns the text before the body, limited to its first 4,000 bytes.
    fn header(&self) -> &'a str {
        let end = self.body.unwrap_or(self.range.end).max(self.range.start + 1);
        let text = &self.source[self.tokens[self.range.start].start..self.tokens[end - 1].end];
        let cut = (0..=text.len().min(4_000)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        &text[..cut]
    }

    fn text(&self) -> &'a str {
        &self.source[self.tokens[self.range.start].start..self.tokens[self.range.end - 1].end]
    }

    /// Returns the words before the first bracket or assignment.
    fn words(&self) -> impl Iterator<Item = &'a str> {
        let end = self.body.unwrap_or(self.range.end);
        let tokens = self.tokens[self.range.start..end].iter();
        let tokens = tokens.take(40).filter(|token| token.kind != TokenKind::Comment);
        let texts = tokens.map(|token| &self.source[token.start..token.end]);
        texts.take_while(|text| !matches!(*text, "(" | "=" | "{" | ";"))
    }

    /// Returns the first string in the first pair of brackets, or the whole content of the brackets if it contains none.
    fn argument(&self) -> String {
        let Some(open) = (self.range.start..self.range.end).take(8).find(|at| {
            let token = self.tokens[*at];
            token.kind == TokenKind::Open && token.pair != usize::MAX
        }) else {
            return String::new();
        };
        let inside = &self.tokens[open + 1..self.tokens[open].pair];
        let text = inside.iter().find(|token| token.kind == TokenKind::Text);
        let span = text.map(|token| token.start..token.end).or_else(|| Some(inside.first()?.start..inside.last()?.end));
        span.map_or(String::new(), |span| squeezed(&self.source[span]))
    }

    fn name(&self) -> String {
        let words: Vec<&str> = self.words().collect();
        let keyword = words.iter().position(|word| CONTAINERS.contains(word) || KEYWORDS.contains(word));
        let is_name = |word: &&&str| word.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '"');
        let named = keyword.and_then(|at| words[at + 1..].iter().find(is_name));
        let named = named.or_else(|| words.iter().rev().find(is_name));
        named.map_or(String::new(), |name| (*name).to_owned())
    }
}

fn no_docs(_: &str) -> bool {
    false
}

fn no_test(_: &BraceStatement<'_>) -> Option<(RegionKind, String)> {
    None
}

const fn code(mark: &'static str, code: &'static str, multiline: bool) -> QuoteRule {
    QuoteRule { open: mark, close: mark, escapes: true, multiline, code }
}

pub(crate) const CPP: BraceRules = BraceRules {
    lexis: Lexis { raw: RawText::Cpp, has_directives: true, ..C_LIKE },
    line_ends: false,
    test: |statement| {
        let name = statement.word(0);
        let is_test = CPP_TESTS.contains(&name) && statement.word(1) == "(" && statement.body.is_some();
        is_test.then(|| {
            let is_suite = name.ends_with("SUITE");
            let kind = if is_suite { RegionKind::TestModule } else { RegionKind::Test };
            (kind, format!("{name}({})", statement.argument()))
        })
    },
    doc: no_docs,
    has_overloads: true,
};

pub(crate) const D: BraceRules = BraceRules {
    lexis: Lexis {
        block_comments: &[("/+", "+/", true), ("/*", "*/", false)],
        quotes: &[long_quote("\""), QuoteRule { open: "`", close: "`", escapes: false, multiline: true, code: "" }],
        raw: RawText::D,
        ..C_LIKE
    },
    line_ends: false,
    test: |statement| {
        if statement.words().any(|word| word == "unittest") && statement.body.is_some() {
            return Some((RegionKind::Test, "unittest".to_owned()));
        }
        let header = squeezed(statement.header()).replace(' ', "");
        let is_code = header.starts_with("version(unittest)") || header.starts_with("debug(unittest)");
        is_code.then(|| (RegionKind::TestCode, "version(unittest)".to_owned()))
    },
    doc: no_docs,
    has_overloads: true,
};

pub(crate) const ZIG: BraceRules = BraceRules {
    lexis: Lexis { line_texts: &["\\\\"], block_comments: &[], ..C_LIKE },
    line_ends: false,
    test: |statement| {
        let is_test = statement.word(0) == "test" && statement.body.is_some();
        let name = if statement.word(1) == "{" { "" } else { statement.word(1) };
        is_test.then(|| (RegionKind::Test, format!("test {name}").trim().to_owned()))
    },
    doc: no_docs,
    has_overloads: false,
};

pub(crate) const JAVASCRIPT: BraceRules = BraceRules {
    lexis: Lexis { quotes: &[code("`", "${", true), quote("\""), quote("'")], has_regex: true, word: "$", ..C_LIKE },
    line_ends: true,
    test: |statement| {
        let header = squeezed(statement.header()).replace(' ', "");
        if header.starts_with("if(") && header.contains("import.meta.vitest") {
            return Some((RegionKind::TestModule, "import.meta.vitest".to_owned()));
        }
        let word = statement.word(0);
        let starts = ["require.main", "import.meta.main", "import.meta.url", "process.argv[1]"];
        if header.starts_with("if(")
            && has_any(&header, &starts)
            && has_any(statement.text(), &["assert", "expect(", "test("])
        {
            return Some((RegionKind::TestModule, "main".to_owned()));
        }
        let calls = ["describe", "it", "test", "suite", "beforeEach", "afterEach", "beforeAll", "afterAll"];
        let is_test = calls.contains(&word) && ["(", "."].contains(&statement.word(1)) && statement.range.len() > 4;
        is_test.then(|| (RegionKind::Test, format!("{word}({})", statement.argument())))
    },
    doc: |doc| doc.contains("@example") && has_any(doc, &["=>", "> ", "// "]),
    has_overloads: false,
};

pub(crate) const JVM: BraceRules = BraceRules {
    lexis: Lexis {
        block_comments: &[("/*", "*/", true)],
        quotes: &[code("\"\"\"", "${", true), code("\"", "${", false)],
        ..C_LIKE
    },
    line_ends: true,
    test: |statement| {
        let bases = ["TestCase", "FunSpec", "StringSpec", "AnyFunSuite", "AnyFlatSpec", "AnyWordSpec", "Specification"];
        let is_class = statement.words().any(|word| word == "class") && has_any(statement.header(), &bases);
        is_class.then(|| (RegionKind::TestModule, statement.name()))
    },
    doc: no_docs,
    has_overloads: true,
};

pub(crate) const SWIFT: BraceRules = BraceRules {
    lexis: Lexis {
        block_comments: &[("/*", "*/", true)],
        quotes: &[long_quote("\"\"\""), code("\"", "\\(", false)],
        has_directives: true,
        ..C_LIKE
    },
    line_ends: true,
    test: |statement| {
        let is_class = statement.words().any(|word| word == "class") && statement.header().contains("XCTestCase");
        is_class.then(|| (RegionKind::TestModule, statement.name()))
    },
    doc: no_docs,
    has_overloads: true,
};

pub(crate) const CSHARP: BraceRules = BraceRules {
    lexis: Lexis { quotes: &[long_quote("\"\"\""), quote("\"")], has_directives: true, ..C_LIKE },
    line_ends: false,
    test: no_test,
    doc: no_docs,
    has_overloads: true,
};

pub(crate) const PHP: BraceRules = BraceRules {
    lexis: Lexis { line_comments: &["//", "#"], quotes: &[long_quote("\""), long_quote("'")], word: "$\\", ..C_LIKE },
    line_ends: false,
    test: |statement| {
        if statement.word(0) == "if" && statement.header().contains("__FILE__") && statement.text().contains("assert") {
            return Some((RegionKind::TestModule, "__FILE__".to_owned()));
        }
        let is_class = statement.words().any(|word| word == "class") && statement.header().contains("TestCase");
        is_class.then(|| (RegionKind::TestModule, statement.name()))
    },
    doc: no_docs,
    has_overloads: false,
};

struct BraceFrame {
    end: usize,
    prefix: String,
    item: usize,
    condition: String,
}

struct BraceReader<'a> {
    source: &'a str,
    rules: &'a BraceRules,
    tokens: Vec<LexToken>,
    scan: FileScan,
    frames: Vec<BraceFrame>,
    directives: Directives,
    /// For each open `#if`, whether the current part is compiled only for tests.
    test_parts: Vec<bool>,
    /// Names that the file defines by a directive.
    defined: HashSet<&'a str>,
}

/// Parses a file.
pub(crate) fn scan(source: &str, rules: &BraceRules) -> FileScan {
    let lexed = lex(source, &rules.lexis, text_start(source));
    let end = lexed.tokens.len();
    let frames = vec![BraceFrame { end, prefix: String::new(), item: 0, condition: String::new() }];
    let tokens = lexed.tokens;
    let mut reader = BraceReader {
        source,
        rules,
        tokens,
        scan: FileScan::new(source),
        frames,
        directives: Directives::default(),
        test_parts: Vec::new(),
        defined: if rules.lexis.has_directives { defined_names(source) } else { HashSet::new() },
    };
    reader.scan.fault = lexed.fault;
    let mut at = 0;
    while let Some(frame) = reader.frames.last() {
        if at >= frame.end {
            at = frame.end + 1;
            reader.frames.pop();
            continue;
        }
        at = reader.statement(at);
    }
    reader.scan
}

/// Documentation and annotations before a statement.
#[derive(Default)]
struct Annotations {
    start: Option<usize>,
    doc: Option<Range<usize>>,
    is_test: bool,
}

impl BraceReader<'_> {
    fn brackets(&self) -> Brackets<'_> {
        Brackets { source: self.source, tokens: &self.tokens }
    }

    fn text(&self, at: usize) -> &str {
        self.brackets().text(at)
    }

    fn is_open(&self, at: usize) -> bool {
        self.brackets().is_open(at)
    }

    fn after(&self, at: usize) -> usize {
        self.brackets().after(at)
    }

    fn directive(&mut self, at: usize) {
        let token = self.tokens[at];
        let text = &self.source[token.start..token.end];
        let line = squeezed(text.trim_start_matches('#').trim_start());
        let mut words = line.split([' ', '(']);
        if let (Some("define" | "undef"), Some(name)) =
            (words.next(), words.next().and_then(|name| scan::words(name).next()))
        {
            if CPP_SETTINGS.iter().any(|setting| name.starts_with(setting)) || is_built_in_of_c(name) {
                let name = format!("#define {name}");
                let condition = self.directives.condition();
                self.scan.add_test(RegionKind::TestStart, ("", name), &condition, token.start..token.end);
            } else {
                self.scan.macros.push(MacroDefinition { name: name.to_owned(), range: token.start..token.end });
            }
        }
        match line.split([' ', '(']).next() {
            Some("if" | "ifdef" | "ifndef") => {
                // The limit of the depth keeps the search for ends linear.
                let is_flat = self.test_parts.len() < MAX_DEPTH;
                let file = PartedFile { source: self.source, tokens: &self.tokens, defined: &self.defined };
                self.test_parts.push(is_flat && starts_test_part(&line, &file, at));
            }
            Some("endif") => drop(self.test_parts.pop()),
            Some(word) if word.starts_with("el") => {
                if let Some(part) = self.test_parts.last_mut() {
                    *part = false;
                }
            }
            _ => {}
        }
        self.directives.read(text);
    }

    /// Parses documentation and annotations. Returns the index of the next token.
    fn annotations(&self, mut at: usize, end: usize) -> (Annotations, usize) {
        let mut annotations = Annotations::default();
        while at < end {
            let token = self.tokens[at];
            let text = self.text(at);
            let after = if token.kind == TokenKind::Comment {
                let is_doc = text.starts_with("/**") || text.starts_with("///") || text.starts_with("/++");
                if is_doc {
                    let start = annotations.doc.take().map_or(token.start, |doc| doc.start);
                    annotations.doc = Some(start..token.end);
                    annotations.start.get_or_insert(start);
                }
                at += 1;
                continue;
            } else if text == "@" && self.tokens.get(at + 1).is_some_and(|next| next.kind == TokenKind::Word) {
                let mut name = at + 1;
                while self.text(name + 1) == "." && name + 2 < end {
                    name += 2;
                }
                annotations.is_test |= TEST_ATTRIBUTES.contains(&self.text(name));
                if self.text(name + 1) == "(" { self.after(name + 1) } else { name + 1 }
            } else if text == "@" && self.is_open(at + 1) {
                self.after(at + 1)
            } else if (text == "[" || text == "#" && self.text(at + 1) == "[") && token.first {
                let open = if text == "[" { at } else { at + 1 };
                let after = self.after(open);
                let mut names = self.tokens[open + 1..after.clamp(open + 1, end)].iter().take(40);
                annotations.is_test |=
                    names.any(|token| TEST_ATTRIBUTES.contains(&&self.source[token.start..token.end]));
                after
            } else {
                break;
            };
            annotations.start.get_or_insert(token.start);
            at = after.min(end);
        }
        (annotations, at)
    }

    fn statement(&mut self, begin: usize) -> usize {
        let Some(frame) = self.frames.last() else { return begin + 1 };
        let end = frame.end;
        if self.tokens[begin].kind == TokenKind::Directive {
            self.directive(begin);
            return begin + 1;
        }
        let (annotations, at) = self.annotations(begin, end);
        if at >= end || self.tokens[at].kind == TokenKind::Directive {
            return at;
        }
        if self.text(at) == ";" {
            return at + 1;
        }
        if let Some(colon) = self.condition_colon(at, end) {
            let header = squeezed(&self.source[self.tokens[at].start..self.tokens[colon].start]);
            if let Some(frame) = self.frames.last_mut() {
                frame.condition = and(&frame.condition, &header);
            }
            return colon + 1;
        }
        let (after, body, complete) = self.extent(at, end);
        let statement = BraceStatement { source: self.source, tokens: &self.tokens, range: at..after, body };
        let word = statement.word(0).to_owned();
        let test = (self.rules.test)(&statement);
        let is_test = annotations.is_test
            || body
                .is_some_and(|body| is_self_test(&statement.name(), statement.text(), self.source, &self.tokens, body));
        let test = test.or_else(|| is_test.then(|| (RegionKind::Test, statement.name())));
        let is_for_tests = body.is_some() && self.test_parts.iter().take(MAX_DEPTH).any(|part| *part);
        let test = test.or_else(|| is_for_tests.then(|| (RegionKind::TestCode, statement.name())));
        let excludes_main =
            word == "version" && body.is_some_and(|body| excludes_main(self.source, &self.tokens, body, after));
        let name = Some(statement.name()).filter(|name| !name.is_empty()).unwrap_or_else(|| "(unnamed)".to_owned());
        let header = statement.header();
        let is_container = statement.words().any(|word| CONTAINERS.contains(&word));
        let is_condition = match word.as_str() {
            "version" | "debug" | "else" => true,
            "static" => ["if", "foreach", "{"].contains(&statement.word(1)),
            _ => false,
        };
        let is_typed = body.is_some_and(|body| {
            (at..body).rev().take(6).any(|at| ["struct", "enum", "union", "opaque"].contains(&self.text(at)))
        });
        let range = annotations.start.unwrap_or(self.tokens[at].start)..self.tokens[after - 1].end;
        let condition = and(&self.directives.condition(), &frame.condition);
        let parent = self.scan.items[frame.item].path.clone();
        let path = join(&frame.prefix, &name);
        let prefix = frame.prefix.clone();
        if let Some((kind, name)) = test {
            if self.rules.has_overloads {
                let calls = self.brackets().calls(at..after);
                self.scan.calls.extend(calls);
            }
            self.scan.add_test(kind, (&parent, join(&prefix, &name)), &condition, range);
            if let Some(found) = self.scan.found.last_mut() {
                found.is_test = !excludes_main;
            }
            return after;
        }
        // String in D whose assertions run through `mixin`.
        if header.starts_with("enum string ") && header.contains("assert") {
            self.scan.macros.push(MacroDefinition { name: statement.word(2).to_owned(), range: range.clone() });
        }
        let is_block = is_condition && body.is_some() && !is_container;
        let inner = if is_block { and(&frame.condition, &squeezed(header)) } else { frame.condition.clone() };
        if let Some(doc) = annotations.doc {
            let is_test = (self.rules.doc)(&self.source[doc.clone()]);
            self.scan.add_doc(&path, &condition, doc, is_test);
        }
        if !is_block {
            if let Some(body) = body.filter(|_| self.rules.has_overloads) {
                let brackets = self.brackets();
                self.scan.overloads.push(brackets.overload(self.scan.items.len(), at..body, is_container));
            }
            self.scan.items.push(ProgramItem {
                path: path.clone(),
                parent,
                outer: condition.clone(),
                condition,
                end_at: body.map(|body| self.tokens[self.tokens[body].pair].start),
                doc_at: Some(range.start),
                range,
                complete,
                inner_doc_at: None,
                number: 0,
            });
        }
        let item = if is_block { self.frames.last().map_or(0, |frame| frame.item) } else { self.scan.items.len() - 1 };
        match body.filter(|_| (is_container || is_typed || is_block) && self.frames.len() < MAX_DEPTH) {
            Some(body) => {
                let prefix = if is_block { prefix } else { path };
                self.frames.push(BraceFrame { end: self.tokens[body].pair, prefix, item, condition: inner });
                body + 1
            }
            None => after,
        }
    }

    /// Returns the index of the colon of `version (x):`, which is a condition for the rest of a block in D.
    fn condition_colon(&self, at: usize, end: usize) -> Option<usize> {
        let mut now = match self.text(at) {
            "version" | "debug" => at + 1,
            "static" if self.text(at + 1) == "if" => at + 2,
            _ => return None,
        };
        if self.text(now) == "(" {
            now = self.after(now);
        }
        (now < end && self.text(now) == ":").then_some(now)
    }

    /// Returns the index of the token after a statement, the index of its brace, and whether its end is certain.
    fn extent(&self, at: usize, end: usize) -> (usize, Option<usize>, bool) {
        let mut now = at;
        let mut body = None;
        let continues = |text: &str| {
            matches!(
                text,
                "." | "," | ")" | "else" | "catch" | "finally" | "?" | "=" | "&" | "|" | "+" | "-" | "*" | "<"
            ) || matches!(text, "{" | ":" | ">" | "/" | "%")
        };
        while now < end {
            let token = self.tokens[now];
            let text = self.text(now);
            if token.kind == TokenKind::Directive && now > at {
                return (now, body, false);
            }
            if text == ";" {
                return (now + 1, body, true);
            }
            if token.kind == TokenKind::Close {
                return (now.max(at + 1), body, false);
            }
            let is_new = self.rules.line_ends && token.first && now > at && token.kind != TokenKind::Comment;
            if is_new && !continues(text) && !continues(self.text(now - 1)) && self.text(now - 1) != "(" {
                return (now, body, true);
            }
            let after = self.after(now);
            if text == "{" && self.is_open(now) {
                body.get_or_insert(now);
                let next = self.text(after);
                if next == ";" && after < end {
                    return (after + 1, body, true);
                }
                if after >= end
                    || !matches!(next, "." | "," | ")" | "else" | "catch" | "finally" | "?" | "=" | "(" | "while")
                {
                    return (after, body, true);
                }
                if next == "else" && ["static", "version", "debug", "else"].contains(&self.text(at)) {
                    return (after, body, true);
                }
            }
            now = after;
        }
        (end.max(at + 1), body, false)
    }
}
