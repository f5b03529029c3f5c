//! Rust: modules and items with `#[cfg(test)]`, tests, benches, macros that generate tests, and documentation with code.

use std::ops::Range;

use crate::RegionKind;
use crate::lex::{Apostrophe, C_LIKE, LexToken, Lexis, RawText, TokenKind, lex, long_quote};
use crate::scan::{FileScan, MacroDefinition, ProgramItem, and, join, squeezed, text_start};

const LEXIS: Lexis = Lexis {
    block_comments: &[("/*", "*/", true)],
    quotes: &[long_quote("\"")],
    apostrophe: Apostrophe::CharOrName,
    raw: RawText::Rust,
    ..C_LIKE
};

/// Maximum nesting depth of modules.
const MAX_DEPTH: usize = 64;
/// Last path segments of attributes that make a function a test.
const TEST_ATTRIBUTES: [&str; 12] = [
    "test",
    "bench",
    "rstest",
    "test_case",
    "case",
    "quickcheck",
    "proptest",
    "property_test",
    "wasm_bindgen_test",
    "test_matrix",
    "gtest",
    "tokio_test",
];
/// Macros that generate tests.
const TEST_MACROS: [&str; 5] = ["proptest", "quickcheck", "rusty_fork_test", "parameterized", "doctest"];
/// Keywords of items that end with a pair of braces or a semicolon.
const BLOCK_ITEMS: [&str; 8] = ["mod", "fn", "struct", "enum", "union", "trait", "impl", "extern"];
/// Keywords of items that end with a semicolon.
const LINE_ITEMS: [&str; 5] = ["const", "static", "type", "use", "let"];

/// Declaration of a module in another file that is compiled only for tests.
#[derive(Debug)]
pub(crate) struct OutOfLineModule {
    /// Names of the modules that contain the declaration.
    pub parents: Vec<String>,
    pub name: String,
    /// Value of `#[path]`.
    pub path: Option<String>,
}

/// Parses a Rust file.
pub(crate) fn scan(source: &str) -> FileScan {
    read(source).0
}

/// Parses a Rust file, including its declarations of modules in other files.
pub(crate) fn read(source: &str) -> (FileScan, Vec<OutOfLineModule>) {
    let lexed = lex(source, &LEXIS, text_start(source));
    let mut reader = RustReader {
        source,
        tokens: lexed.tokens,
        scan: FileScan::new(source),
        frames: Vec::new(),
        modules: Vec::new(),
    };
    reader.scan.fault = lexed.fault;
    let end = reader.tokens.len();
    let file = RustFrame { end, prefix: String::new(), condition: String::new(), item: 0, inner: None, is_body: false };
    reader.frames.push(file);
    reader.run();
    (reader.scan, reader.modules)
}

/// Open braces: the file, a module, an `impl`, or a function body.
struct RustFrame {
    /// Index of the closing bracket.
    end: usize,
    /// Path of the items inside.
    prefix: String,
    condition: String,
    /// Index of the item.
    item: usize,
    /// Inner documentation so far.
    inner: Option<Range<usize>>,
    /// Whether the parser searches only attributes inside, as in a function body.
    is_body: bool,
}

/// Documentation and attributes before an item.
#[derive(Default)]
struct Prelude {
    start: Option<usize>,
    doc: Option<Range<usize>>,
    /// Conditions that do not make the item a test.
    condition: String,
    test: Option<RegionKind>,
    path: Option<String>,
}

struct RustReader<'a> {
    source: &'a str,
    tokens: Vec<LexToken>,
    scan: FileScan,
    frames: Vec<RustFrame>,
    modules: Vec<OutOfLineModule>,
}

impl<'a> RustReader<'a> {
    fn text(&self, at: usize) -> &'a str {
        self.tokens.get(at).map_or("", |token| &self.source[token.start..token.end])
    }

    fn is(&self, at: usize, kind: TokenKind) -> bool {
        self.tokens.get(at).is_some_and(|token| token.kind == kind)
    }

    /// Returns the index after a token or, if it opens a pair, after the closing bracket.
    fn after(&self, at: usize) -> usize {
        match self.tokens.get(at) {
            Some(token) if token.kind == TokenKind::Open && token.pair != usize::MAX => token.pair + 1,
            _ => at + 1,
        }
    }

    fn run(&mut self) {
        let mut at = 0;
        while let Some(frame) = self.frames.last() {
            if at >= frame.end {
                at = frame.end + 1;
                self.leave();
                continue;
            }
            let is_attribute = self.text(at) == "#" && self.text(at + 1) == "[";
            if frame.is_body && !is_attribute {
                at += 1;
                continue;
            }
            at = self.item(at);
        }
    }

    fn leave(&mut self) {
        let Some(frame) = self.frames.pop() else { return };
        if let Some(inner) = frame.inner {
            let is_test = has_examples(&self.source[inner.clone()]);
            self.scan.add_inner_doc(&self.scan.items[frame.item].path.clone(), &frame.condition, inner, is_test);
        }
        if !frame.is_body {
            self.scan.items[frame.item].condition = frame.condition;
        }
    }

    /// Parses documentation and attributes. Returns the index of the next token.
    fn prelude(&mut self, mut at: usize, end: usize) -> (Prelude, usize) {
        let mut prelude = Prelude::default();
        while at < end {
            let token = self.tokens[at];
            let text = self.text(at);
            let mut range = token.start..token.end;
            let is_doc;
            if token.kind == TokenKind::Comment {
                if text.starts_with("//!") || text.starts_with("/*!") {
                    self.add_inner(range);
                    at += 1;
                    continue;
                }
                is_doc = text.starts_with("///") && !text.starts_with("////")
                    || text.starts_with("/**") && !text.starts_with("/***") && text.len() > 4;
                at += 1;
                if !is_doc {
                    continue;
                }
            } else if text == "#" && self.text(at + 1) == "!" && self.text(at + 2) == "[" {
                let after = self.after(at + 2).min(end);
                range.end = self.tokens[after - 1].end;
                let inside = squeezed(&self.source[self.tokens[at + 2].end..range.end]);
                at = after;
                self.inner_attribute(&inside, range);
                continue;
            } else if text == "#" && self.text(at + 1) == "[" {
                let after = self.after(at + 1).min(end);
                range.end = self.tokens[after - 1].end;
                let inside = squeezed(&self.source[self.tokens[at + 1].end..range.end]);
                at = after;
                is_doc = inside.starts_with("doc =") || inside.starts_with("doc=");
                self.attribute(&inside, &mut prelude);
            } else {
                break;
            }
            prelude.start.get_or_insert(range.start);
            if is_doc {
                prelude.doc = Some(prelude.doc.take().map_or(range.start, |doc| doc.start)..range.end);
            }
        }
        (prelude, at)
    }

    fn add_inner(&mut self, range: Range<usize>) {
        if let Some(frame) = self.frames.last_mut().filter(|frame| !frame.is_body) {
            frame.inner = Some(frame.inner.take().map_or(range.start, |inner| inner.start)..range.end);
        }
    }

    fn inner_attribute(&mut self, inside: &str, range: Range<usize>) {
        let decides = ["cfg", "doc(test", "test_runner", "no_main", "reexport_test_harness_main"];
        if inside.starts_with("doc =") || inside.starts_with("doc=") {
            self.add_inner(range);
        } else if decides.iter().any(|name| inside.starts_with(name))
            && let Some(frame) = self.frames.last_mut()
        {
            frame.condition = and(&frame.condition, &format!("#![{inside}"));
        }
    }

    fn attribute(&self, inside: &str, prelude: &mut Prelude) {
        let name = inside.split(['(', '=', ']', ' ']).next().unwrap_or_default();
        let last = name.rsplit("::").next().unwrap_or(name);
        if name == "path" {
            prelude.path = inside.split('"').nth(1).map(str::to_owned);
        } else if name == "cfg" && needs_test(&inside["cfg".len()..inside.len().saturating_sub(1)]) {
            prelude.test.get_or_insert(RegionKind::TestCode);
        } else if TEST_ATTRIBUTES.contains(&last) {
            prelude.test = Some(RegionKind::Test);
        } else if name == "cfg" || name == "cfg_attr" {
            prelude.condition = and(&prelude.condition, &format!("#[{inside}"));
        }
    }

    /// Parses an item. Returns the index of the next token, or of the first token inside the item.
    fn item(&mut self, begin: usize) -> usize {
        let Some(frame) = self.frames.last() else { return begin + 1 };
        let end = frame.end;
        let (prelude, at) = self.prelude(begin, end);
        if at >= end {
            return at;
        }
        // The prelude may have changed the condition.
        let Some(frame) = self.frames.last() else { return at };
        if frame.is_body && prelude.test.is_none() {
            return at;
        }
        let (keyword_at, keyword) = self.keyword(at, end);
        let (name, after, body) = self.extent(keyword_at, keyword, end);
        let first = self.tokens[at].start;
        let range = prelude.start.unwrap_or(first)..self.tokens[after.max(at + 1) - 1].end;
        let after = after.max(at + 1);
        let parent = self.scan.items[frame.item].path.clone();
        let path = join(&frame.prefix, &name);
        let outer = frame.condition.clone();
        let prefix = frame.prefix.clone();
        let is_macro =
            TEST_MACROS.contains(&keyword.rsplit("::").next().unwrap_or(keyword)) && self.text(keyword_at + 1) == "!";
        let test = prelude.test.or(is_macro.then_some(RegionKind::Test));
        if let Some(kind) = test {
            let kind = if keyword == "mod" && kind == RegionKind::TestCode { RegionKind::TestModule } else { kind };
            if keyword == "mod" && body.is_none() {
                let parents = prefix.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
                self.modules.push(OutOfLineModule { parents, name, path: prelude.path });
            }
            self.scan.add_test(kind, (&parent, path), &outer, range);
            return after;
        }
        let condition = and(&outer, &prelude.condition);
        if let Some(doc) = prelude.doc {
            let is_test = has_examples(&self.source[doc.clone()]);
            self.scan.add_doc(&path, &condition, doc, is_test);
        }
        if keyword == "macro_rules" || keyword == "macro" {
            self.scan.macros.push(MacroDefinition { name: name.clone(), range: range.clone() });
        }
        let item_path = if keyword == "impl" { join(&prefix, &format!("impl {name}")) } else { path.clone() };
        self.scan.items.push(ProgramItem {
            path: item_path,
            parent,
            condition: condition.clone(),
            outer,
            range: range.clone(),
            complete: self.source[range.clone()].ends_with([';', '}']),
            doc_at: Some(range.start),
            inner_doc_at: body.map(|body| self.tokens[body].end),
            end_at: body.map(|body| self.tokens[after - 1].start.max(self.tokens[body].end)),
            number: 0,
        });
        self.enter(keyword, path, condition, (body, after))
    }

    /// Enters the braces of an item if the parser reads their content.
    fn enter(
        &mut self,
        keyword: &str,
        path: String,
        condition: String,
        (body, after): (Option<usize>, usize),
    ) -> usize {
        let Some(body) = body.filter(|_| self.frames.len() < MAX_DEPTH) else { return after };
        let is_macro = !BLOCK_ITEMS.contains(&keyword);
        let condition = match keyword {
            "fn" => and(&condition, "inside of a function"),
            "macro_rules" | "macro" => return after,
            _ if is_macro => and(&condition, &format!("inside of `{keyword}!`")),
            _ => condition,
        };
        let item = self.scan.items.len() - 1;
        let frame = RustFrame { end: after - 1, prefix: path, condition, item, inner: None, is_body: keyword == "fn" };
        self.frames.push(frame);
        body + 1
    }

    /// Returns the keyword of an item, or the name of a macro or field, and its index.
    fn keyword(&self, mut at: usize, end: usize) -> (usize, &'a str) {
        let from = at;
        while at < end {
            let next = self.text(at + 1);
            let skipped = match self.text(at) {
                "pub" if next == "(" => self.after(at + 1),
                "pub" | "default" | "async" | "unsafe" | "safe" | "auto" if self.is(at + 1, TokenKind::Word) => at + 1,
                "const" if ["fn", "unsafe", "async", "extern"].contains(&next) => at + 1,
                "extern" if self.is(at + 1, TokenKind::Text) && self.text(at + 2) != "{" => at + 2,
                _ => break,
            };
            at = skipped;
        }
        // The last segment of a macro path, as in `proptest::proptest!`.
        let mut last = at;
        while self.text(last + 1) == ":"
            && self.text(last + 2) == ":"
            && self.is(last + 3, TokenKind::Word)
            && last + 3 < end
        {
            last += 3;
        }
        if self.text(last + 1) == "!" {
            at = last;
        }
        if at >= end { (from, self.text(from)) } else { (at, self.text(at)) }
    }

    /// Returns an item's name, the index of the next token, and the index of its opening brace.
    fn extent(&self, at: usize, keyword: &str, end: usize) -> (String, usize, Option<usize>) {
        let is_macro = self.text(at + 1) == "!" && self.is(at, TokenKind::Word);
        if is_macro {
            let named = self.is(at + 2, TokenKind::Word);
            let open = at + 2 + usize::from(named);
            let mut after = self.after(open).min(end);
            let is_braces = self.text(open) == "{";
            after += usize::from(!is_braces && self.text(after) == ";" && after < end);
            let name = if named { self.text(at + 2).to_owned() } else { format!("{keyword}!") };
            return (name, after, (is_braces && open < end).then_some(open));
        }
        if BLOCK_ITEMS.contains(&keyword) {
            let mut now = at + 1;
            while now < end {
                match self.text(now) {
                    ";" => return (self.name(at, now, keyword), now + 1, None),
                    "{" => return (self.name(at, now, keyword), self.after(now).min(end), Some(now)),
                    _ => now = self.after(now),
                }
            }
            return (self.name(at, end, keyword), end, None);
        }
        let is_line = LINE_ITEMS.contains(&keyword);
        let mut now = at;
        while now < end {
            let text = self.text(now);
            if text == ";" || (text == "," && !is_line) {
                return (self.name(at, now, keyword), now + 1, None);
            }
            if self.is(now, TokenKind::Close) {
                break;
            }
            let after = self.after(now);
            let continues = [".", "?", "else", ",", ";", "=", "+", "-", "*", "/", "&", "|"];
            if text == "{" && !is_line && !continues.contains(&self.text(after)) {
                return (self.name(at, now, keyword), after.min(end), None);
            }
            now = after;
        }
        (self.name(at, now.min(end), keyword), now.min(end), None)
    }

    /// Returns the header of an `impl` without its parameters and, for an inherent `impl`, without the type's parameters.
    fn header(&self, at: usize, end: usize) -> String {
        let words: Vec<&LexToken> =
            self.tokens[at..end].iter().filter(|token| token.kind != TokenKind::Comment).take(200).collect();
        let text = |token: &LexToken| &self.source[token.start..token.end];
        let is_trait = words.iter().any(|word| text(word) == "for");
        let mut name = String::new();
        let (mut depth, mut last_end) = (0_usize, usize::MAX);
        for (at, word) in words.iter().enumerate() {
            let sign = text(word);
            if sign == "where" && depth == 0 {
                break;
            }
            let is_arrow = sign == ">" && at > 0 && text(words[at - 1]) == "-";
            depth = (depth + usize::from(sign == "<")).saturating_sub(usize::from(sign == ">" && !is_arrow));
            let in_parameters = depth > 0 || (sign == ">" && !is_arrow);
            // The `impl`'s parameters come before any name.
            if in_parameters && (name.is_empty() || !is_trait) {
                continue;
            }
            if last_end < word.start && !name.is_empty() {
                name.push(' ');
            }
            last_end = word.end;
            name.push_str(sign);
        }
        name
    }

    fn name(&self, at: usize, end: usize, keyword: &str) -> String {
        if keyword == "impl" || keyword == "extern" {
            return self.header(at + 1, end);
        }
        let is_item = BLOCK_ITEMS.contains(&keyword) || LINE_ITEMS.contains(&keyword) || keyword == "macro";
        if is_item && keyword != "use" { self.text(at + 1).to_owned() } else { self.text(at).to_owned() }
    }
}

/// Whether a `cfg` condition can only be true in tests. `predicate` includes the brackets.
fn needs_test(predicate: &str) -> bool {
    let words = predicate.split_inclusive(['(', ')', ',']);
    // For each open bracket: its operator, whether all conditions so far need tests, and whether any of them does.
    let mut open: Vec<(&str, bool, bool)> = Vec::new();
    let mut value = None;
    for part in words {
        let (word, sign) = part.split_at(part.len() - part.chars().last().map_or(0, char::len_utf8));
        let word = word.trim();
        if sign == "(" {
            open.push((word, true, false));
            value = None;
            continue;
        }
        let needs = value.take().or_else(|| (!word.is_empty()).then(|| word == "test" || word == "doctest"));
        if let (Some(needs), Some(last)) = (needs, open.last_mut()) {
            last.1 &= needs;
            last.2 |= needs;
        }
        if sign == ")"
            && let Some((operator, all, any)) = open.pop()
        {
            value = Some(match operator {
                "any" => all && any,
                "all" | "" => any,
                _ => false,
            });
        }
    }
    value.unwrap_or(false)
}

/// Whether rustdoc may run code in this documentation. Indented text is code, too.
fn has_examples(doc: &str) -> bool {
    let mut fence: Option<(char, usize)> = None;
    for line in doc.lines() {
        let line = line.trim_start();
        let mark = ["///", "//!", "/**", "/*!", "*"].into_iter().find_map(|mark| line.strip_prefix(mark));
        if mark.is_none() && line.starts_with("#[doc") || line.starts_with("#![doc") {
            // A string with line breaks, or a macro.
            if !line.contains('"') || line.contains("\\n") || line.contains("include") || line.contains("concat") {
                return true;
            }
        }
        let attribute = || line.split_once('"').map(|(_, text)| text.rsplit_once('"').map_or(text, |(text, _)| text));
        let in_attribute = line.starts_with("#[doc") || line.starts_with("#![doc");
        let content = if in_attribute { attribute().unwrap_or(line) } else { mark.unwrap_or(line) };
        let is_indented = content.starts_with("     ") || content.starts_with('\t') || content.starts_with(" \t");
        let content = content.trim_start_matches([' ', '\t', '>', '-', '*', '+']);
        let content = content.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches(['.', ')', ' ']);
        let mark = content.chars().next().filter(|c| matches!(c, '`' | '~'));
        let length = content.chars().take_while(|c| Some(*c) == mark).count();
        match (fence, mark) {
            (None, Some(c)) if length >= 3 => {
                if is_run(&content[length..]) {
                    return true;
                }
                fence = Some((c, length));
            }
            (Some((c, least)), Some(mark)) if c == mark && length >= least && content[length..].trim().is_empty() => {
                fence = None;
            }
            (None, _) if is_indented && !content.trim().is_empty() => return true,
            _ => {}
        }
    }
    false
}

/// Whether rustdoc runs or compiles a code block with this info string.
fn is_run(info: &str) -> bool {
    let mut words = info.split([',', ' ', '\t']).map(str::trim).filter(|word| !word.is_empty()).peekable();
    let known = |word: &str| {
        let words =
            ["rust", "should_panic", "no_run", "compile_fail", "test_harness", "standalone", "standalone_crate"];
        words.contains(&word)
            || word.starts_with("edition")
            || word.starts_with('{')
            || word.starts_with('E') && word[1..].bytes().all(|byte| byte.is_ascii_digit())
    };
    words.all(known)
}
