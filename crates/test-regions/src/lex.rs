//! Tokenizer for languages with brackets. Tokens are words, signs, strings, comments and pairs of brackets.

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Word,
    Open,
    Close,
    Sign,
    Text,
    Comment,
    /// Preprocessor line.
    Directive,
}

/// Token of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LexToken {
    pub kind: TokenKind,
    pub start: usize,
    pub end: usize,
    /// Whether the token is the first on its line.
    pub first: bool,
    /// Index of the matching bracket.
    pub pair: usize,
}

/// Kind of string between quotes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuoteRule {
    pub open: &'static str,
    pub close: &'static str,
    /// Whether a backslash escapes the next character.
    pub escapes: bool,
    pub multiline: bool,
    /// Opening of code in the string, such as `${`. The code ends at the matching bracket.
    pub code: &'static str,
}

/// Returns the rule of a string that ends on its line.
pub(crate) const fn quote(mark: &'static str) -> QuoteRule {
    QuoteRule { open: mark, close: mark, escapes: true, multiline: false, code: "" }
}

/// Returns the rule of a string that may span several lines.
pub(crate) const fn long_quote(mark: &'static str) -> QuoteRule {
    QuoteRule { open: mark, close: mark, escapes: true, multiline: true, code: "" }
}

/// Meaning of an apostrophe that does not open a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Apostrophe {
    /// Character literal; otherwise the start of a name, such as a lifetime.
    CharOrName,
    /// Character literal.
    Char,
}

/// Syntax of strings with custom delimiters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RawText {
    None,
    Rust,
    Cpp,
    D,
    OCaml,
    Elixir,
}

/// Lexical rules of a language.
#[derive(Debug)]
pub(crate) struct Lexis {
    pub line_comments: &'static [&'static str],
    /// Openings of strings that extend to the end of the line.
    pub line_texts: &'static [&'static str],
    /// Start and end of comments, and whether they nest.
    pub block_comments: &'static [(&'static str, &'static str, bool)],
    /// Quotes, longest first.
    pub quotes: &'static [QuoteRule],
    pub apostrophe: Apostrophe,
    pub raw: RawText,
    pub has_regex: bool,
    pub has_directives: bool,
    /// Characters of words in addition to letters, digits and `_`.
    pub word: &'static str,
    /// Prefix of a character literal, such as `#\\` in Racket.
    pub char_prefix: &'static str,
    /// Sign that discards the next form, such as `#;` in Racket.
    pub discard: &'static str,
}

/// Rules of a language with C's comments and strings.
pub(crate) const C_LIKE: Lexis = Lexis {
    line_comments: &["//"],
    line_texts: &[],
    block_comments: &[("/*", "*/", false)],
    quotes: &[quote("\"")],
    apostrophe: Apostrophe::Char,
    raw: RawText::None,
    has_regex: false,
    has_directives: false,
    word: "",
    char_prefix: "",
    discard: "",
};

/// Tokens of a file, and the offset of its first unbalanced bracket, string or comment.
pub(crate) struct Lexed {
    pub tokens: Vec<LexToken>,
    pub fault: Option<usize>,
}

/// State of the tokenizer inside a string with embedded code.
struct Nested {
    /// Index of the quote.
    quote: usize,
    start: usize,
    first: bool,
    /// Bracket depth in the embedded code; 0 in the string itself.
    depth: usize,
}

struct Lexer<'a> {
    source: &'a str,
    rules: &'a Lexis,
    at: usize,
    /// Whether only white space precedes the position on its line.
    first: bool,
    nested: Vec<Nested>,
    tokens: Vec<LexToken>,
    fault: Option<usize>,
    /// For each kind of quote, the end of the last line on which one has no end.
    unclosed: Vec<usize>,
}

/// Splits source code into tokens.
pub(crate) fn lex(source: &str, rules: &Lexis, start: usize) -> Lexed {
    let mut lexer = Lexer {
        source,
        rules,
        at: start,
        first: true,
        nested: Vec::new(),
        tokens: Vec::new(),
        fault: None,
        unclosed: vec![0; rules.quotes.len()],
    };
    while lexer.at < source.len() {
        match lexer.nested.last() {
            Some(nested) if nested.depth == 0 => lexer.text_with_code(),
            _ => lexer.token(),
        }
    }
    if let Some(open) = lexer.nested.first() {
        lexer.fault.get_or_insert(open.start);
    }
    let Lexer { mut tokens, mut fault, .. } = lexer;
    if let Some(at) = pair_brackets(source, &mut tokens) {
        fault = Some(fault.map_or(at, |fault| fault.min(at)));
    }
    Lexed { tokens, fault }
}

/// Pairs brackets. Returns the offset of the first bracket without a partner.
fn pair_brackets(source: &str, tokens: &mut [LexToken]) -> Option<usize> {
    let bytes = source.as_bytes();
    let mut open: Vec<usize> = Vec::new();
    let mut fault = None;
    // Number of open brackets at each `#if`, because its branches start with the same open brackets.
    let mut alternatives: Vec<usize> = Vec::new();
    for at in 0..tokens.len() {
        match tokens[at].kind {
            TokenKind::Directive => {
                let text = source[tokens[at].start..tokens[at].end].trim_start_matches('#').trim_start();
                if text.starts_with("if") {
                    alternatives.push(open.len());
                } else if text.starts_with("el")
                    && let Some(before) = alternatives.last()
                {
                    open.truncate(*before);
                } else if text.starts_with("endif") {
                    alternatives.pop();
                }
            }
            TokenKind::Open => open.push(at),
            TokenKind::Close => {
                let matching = match bytes[tokens[at].start] {
                    b')' => b'(',
                    b']' => b'[',
                    _ => b'{',
                };
                match open.pop() {
                    Some(other) if bytes[tokens[other].start] == matching => {
                        tokens[at].pair = other;
                        tokens[other].pair = at;
                    }
                    _ => {
                        fault.get_or_insert(tokens[at].start);
                    }
                }
            }
            _ => {}
        }
    }
    let unclosed = open.first().map(|at| tokens[*at].start);
    match (fault, unclosed) {
        (Some(fault), Some(unclosed)) => Some(fault.min(unclosed)),
        (fault, unclosed) => fault.or(unclosed),
    }
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.source[self.at..]
    }

    fn push(&mut self, kind: TokenKind, start: usize, end: usize, first: bool) {
        if self.nested.is_empty() {
            self.tokens.push(LexToken { kind, start, end, first, pair: usize::MAX });
        }
        self.at = end;
        self.first = false;
    }

    /// Returns the offset of the line's end, excluding the line break.
    fn line_end(&self, from: usize) -> usize {
        let end = self.source[from..].find('\n').map_or(self.source.len(), |at| from + at);
        if self.source[from..end].ends_with('\r') { end - 1 } else { end }
    }

    fn token(&mut self) {
        let Some(c) = self.rest().chars().next() else { return };
        let start = self.at;
        let first = self.first;
        if c == '\n' {
            self.at += 1;
            self.first = true;
            return;
        }
        if c.is_whitespace() || c == '\u{feff}' {
            self.at += c.len_utf8();
            return;
        }
        if !self.rules.discard.is_empty() && self.rest().starts_with(self.rules.discard) {
            return self.push(TokenKind::Sign, start, start + self.rules.discard.len(), first);
        }
        let prefix = self.rules.char_prefix;
        if !prefix.is_empty()
            && let Some(c) = self.rest().strip_prefix(prefix).and_then(|rest| rest.chars().next())
            && (prefix != "?" || matches!(c, '"' | '\'' | '\\'))
            && !c.is_whitespace()
        {
            return self.push(TokenKind::Text, start, start + prefix.len() + c.len_utf8(), first);
        }
        if self.comment(start, first) || self.raw_text(start, first) {
            return;
        }
        if self.rules.has_directives && first && c == '#' && !self.rest().starts_with("#[") {
            let mut end = self.line_end(start);
            while self.source[..end].ends_with('\\') && end < self.source.len() {
                let next = self.source[end..].find('\n').map_or(self.source.len(), |at| end + at + 1);
                end = self.line_end(next);
            }
            return self.push(TokenKind::Directive, start, end, first);
        }
        if let Some(mark) = self.rules.line_texts.iter().find(|mark| self.rest().starts_with(**mark)) {
            let end = self.line_end(start + mark.len());
            return self.push(TokenKind::Text, start, end, first);
        }
        if let Some(at) = self.rules.quotes.iter().position(|quote| self.rest().starts_with(quote.open)) {
            return self.quoted(at, start, first);
        }
        if is_word(c, self.rules.word) && c != '\'' {
            return self.word(start, first);
        }
        if c == '\'' {
            return self.apostrophe(start, first);
        }
        if c == '/' && self.rules.has_regex && self.regex(start, first) {
            return;
        }
        let kind = match c {
            '(' | '[' | '{' => TokenKind::Open,
            ')' | ']' | '}' => TokenKind::Close,
            _ => TokenKind::Sign,
        };
        if let Some(nested) = self.nested.last_mut() {
            match kind {
                TokenKind::Open => nested.depth += 1,
                TokenKind::Close => nested.depth -= 1,
                _ => {}
            }
        }
        self.push(kind, start, start + c.len_utf8(), first);
    }

    fn comment(&mut self, start: usize, first: bool) -> bool {
        let rules = self.rules;
        if let Some((open, close, nests)) = rules.block_comments.iter().find(|(open, ..)| self.rest().starts_with(open))
        {
            if rules.raw == RawText::OCaml {
                self.comment_with_texts(start, first);
                return true;
            }
            let mut at = start + open.len();
            let mut depth = 1_usize;
            // Offset of the next comment end. Inner comments do not reset it, so each byte is read only once.
            let mut end = 0;
            while depth > 0 {
                if end < at {
                    let Some(next) = self.source[at..].find(close) else {
                        self.fault.get_or_insert(start);
                        self.push(TokenKind::Comment, start, self.source.len(), first);
                        return true;
                    };
                    end = at + next;
                }
                // An inner comment before the end postpones the end.
                match self.source[at..end].find(open).filter(|_| *nests) {
                    Some(inner) => {
                        depth += 1;
                        at += inner + open.len();
                    }
                    None => {
                        depth -= 1;
                        at = end + close.len();
                    }
                }
            }
            self.push(TokenKind::Comment, start, at, first);
            return true;
        }
        let Some(mark) = rules.line_comments.iter().find(|mark| self.rest().starts_with(**mark)) else { return false };
        // A PHP attribute is not a comment.
        if *mark == "#" && self.rest().starts_with("#[") {
            return false;
        }
        let end = self.line_end(start + mark.len());
        self.push(TokenKind::Comment, start, end, first);
        true
    }

    /// Reads an OCaml comment. Ignores comment marks in strings inside it.
    fn comment_with_texts(&mut self, start: usize, first: bool) {
        let bytes = self.source.as_bytes();
        let mut at = start + 2;
        let mut depth = 1_usize;
        while depth > 0 && at < bytes.len() {
            match (bytes[at], bytes.get(at + 1)) {
                (b'(', Some(b'*')) => {
                    depth += 1;
                    at += 2;
                }
                (b'*', Some(b')')) => {
                    depth -= 1;
                    at += 2;
                }
                (b'\'', Some(b'"')) if bytes.get(at + 2) == Some(&b'\'') => at += 3,
                (b'"', _) => {
                    at += 1;
                    while at < bytes.len() && bytes[at] != b'"' {
                        at += if bytes[at] == b'\\' { 2 } else { 1 };
                    }
                    at += 1;
                }
                _ => at += 1,
            }
        }
        if depth > 0 {
            self.fault.get_or_insert(start);
        }
        // An escape sequence may end in the middle of a character.
        let mut end = at.min(self.source.len());
        while !self.source.is_char_boundary(end) {
            end += 1;
        }
        self.push(TokenKind::Comment, start, end, first);
    }

    /// Reads a string whose end depends on its opening.
    fn raw_text(&mut self, start: usize, first: bool) -> bool {
        let rest = self.rest();
        let (open, close) = match self.rules.raw {
            RawText::None => return false,
            RawText::Rust => {
                let Some(prefix) = ["r", "br", "cr"]
                    .iter()
                    .find(|prefix| rest.strip_prefix(**prefix).is_some_and(|rest| rest.starts_with(['"', '#'])))
                else {
                    return false;
                };
                let hashes = rest[prefix.len()..].bytes().take_while(|byte| *byte == b'#').count();
                if !rest[prefix.len() + hashes..].starts_with('"') {
                    return false;
                }
                (prefix.len() + hashes + 1, format!("\"{}", "#".repeat(hashes)))
            }
            RawText::Cpp => {
                let prefixes = ["R\"", "u8R\"", "uR\"", "UR\"", "LR\""];
                let Some(prefix) = prefixes.iter().find(|prefix| rest.starts_with(**prefix)) else { return false };
                let Some(length) = rest[prefix.len()..].bytes().take(17).position(|byte| byte == b'(') else {
                    return false;
                };
                let Some(delimiter) = rest.get(prefix.len()..prefix.len() + length) else { return false };
                (prefix.len() + length + 1, format!("){delimiter}\""))
            }
            RawText::D => {
                if rest.starts_with("r\"") {
                    (2, "\"".to_owned())
                } else if let Some(text) = rest.strip_prefix("q\"") {
                    let name: String = text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').take(64).collect();
                    let close = match text.chars().next() {
                        Some('(') => ")\"".to_owned(),
                        Some('[') => "]\"".to_owned(),
                        Some('{') => "}\"".to_owned(),
                        Some('<') => ">\"".to_owned(),
                        Some(_) if !name.is_empty() => format!("\n{name}\""),
                        Some(mark) => format!("{mark}\""),
                        None => return false,
                    };
                    (3, close)
                } else {
                    return false;
                }
            }
            RawText::Elixir => {
                let Some(text) = rest.strip_prefix('~') else { return false };
                let name = text.bytes().take(16).take_while(u8::is_ascii_alphabetic).count();
                let text = &text[name..];
                let marks = [("\"\"\"", "\"\"\""), ("'''", "'''"), ("(", ")"), ("[", "]"), ("{", "}"), ("<", ">")];
                let plain = [("\"", "\""), ("'", "'"), ("/", "/"), ("|", "|")];
                let Some((open, close)) = marks.iter().chain(&plain).find(|(open, _)| text.starts_with(open)) else {
                    return false;
                };
                if name == 0 {
                    return false;
                }
                (1 + name + open.len(), (*close).to_owned())
            }
            RawText::OCaml => {
                let Some(text) = rest.strip_prefix('{') else { return false };
                let name = text.bytes().take(64).take_while(|byte| byte.is_ascii_lowercase() || *byte == b'_').count();
                if !text[name..].starts_with('|') {
                    return false;
                }
                (name + 2, format!("|{}}}", &text[..name]))
            }
        };
        // The first character after the quote may be a multi-byte character.
        let from = (start + open).min(self.source.len());
        let from = (from..=self.source.len()).find(|at| self.source.is_char_boundary(*at)).unwrap_or(start);
        match self.source[from..].find(&close) {
            Some(at) => self.push(TokenKind::Text, start, from + at + close.len(), first),
            None => {
                self.fault.get_or_insert(start);
                self.push(TokenKind::Text, start, self.source.len(), first);
            }
        }
        true
    }

    fn quoted(&mut self, index: usize, start: usize, first: bool) {
        let quote = self.rules.quotes[index];
        if !quote.code.is_empty() {
            self.nested.push(Nested { quote: index, start, first, depth: 0 });
            self.at = start + quote.open.len();
            return;
        }
        let mut at = start + quote.open.len();
        if start < self.unclosed[index] {
            return self.push(TokenKind::Sign, start, at, first);
        }
        while at < self.source.len() {
            let rest = &self.source[at..];
            if rest.starts_with(quote.close) {
                return self.push(TokenKind::Text, start, at + quote.close.len(), first);
            }
            let Some(c) = rest.chars().next() else { break };
            if c == '\n' && !quote.multiline {
                break;
            }
            at += c.len_utf8();
            if c == '\\' && quote.escapes {
                at += self.source[at..].chars().next().map_or(0, char::len_utf8);
            }
        }
        if quote.multiline {
            self.fault.get_or_insert(start);
            return self.push(TokenKind::Text, start, self.source.len(), first);
        }
        // An apostrophe in JSX text.
        self.unclosed[index] = at;
        self.push(TokenKind::Sign, start, start + quote.open.len(), first);
    }

    /// Continues a string that may contain code.
    fn text_with_code(&mut self) {
        let Some(nested) = self.nested.last() else { return };
        let quote = self.rules.quotes[nested.quote];
        while self.at < self.source.len() {
            let rest = self.rest();
            let closed = rest.starts_with(quote.close);
            if closed || (!quote.multiline && rest.starts_with('\n')) {
                let Some(nested) = self.nested.pop() else { return };
                let end = self.at + if closed { quote.close.len() } else { 0 };
                return self.push(TokenKind::Text, nested.start, end, nested.first);
            }
            if rest.starts_with(quote.code) {
                self.at += quote.code.len();
                if let Some(nested) = self.nested.last_mut() {
                    nested.depth = 1;
                }
                return;
            }
            let Some(c) = rest.chars().next() else { return };
            self.at += c.len_utf8();
            if c == '\\' && quote.escapes {
                self.at += self.rest().chars().next().map_or(0, char::len_utf8);
            }
        }
    }

    fn word(&mut self, start: usize, first: bool) {
        let rest = self.rest();
        let is_number = rest.starts_with(|c: char| c.is_ascii_digit());
        let mut end = rest.len();
        for (at, c) in rest.char_indices() {
            // Digits in C++ may have separators: `1'000`.
            let separates = is_number && c == '\'' && self.rules.apostrophe == Apostrophe::Char;
            let separates = separates && rest[at + 1..].starts_with(|c: char| c.is_ascii_alphanumeric());
            if !is_word(c, self.rules.word) && !separates {
                end = at;
                break;
            }
        }
        self.push(TokenKind::Word, start, start + end, first);
    }

    fn apostrophe(&mut self, start: usize, first: bool) {
        let mut chars = self.source[start + 1..].char_indices();
        let (content, after) = (chars.next(), chars.next());
        let is_char = match (content, after) {
            (Some((_, '\\')), _) => true,
            (Some((_, c)), Some((_, '\''))) => c != '\'',
            _ => self.rules.apostrophe == Apostrophe::Char,
        };
        if is_char {
            let mut escaped = false;
            for (at, c) in self.source[start + 1..].char_indices().take(16) {
                match c {
                    '\n' => break,
                    '\'' if !escaped => return self.push(TokenKind::Text, start, start + 1 + at + 1, first),
                    _ => escaped = c == '\\' && !escaped,
                }
            }
        }
        self.push(TokenKind::Sign, start, start + 1, first);
    }

    /// Reads a JavaScript regular expression if one can start here.
    fn regex(&mut self, start: usize, first: bool) -> bool {
        let operand = self.tokens.last().filter(|_| self.nested.is_empty()).is_some_and(|token| {
            let text = &self.source[token.start..token.end];
            let keywords = ["return", "typeof", "case", "in", "of", "delete", "void", "throw", "new", "else", "do"];
            match token.kind {
                TokenKind::Word => !keywords.contains(&text),
                TokenKind::Close | TokenKind::Text => true,
                _ => false,
            }
        });
        if operand {
            return false;
        }
        let (mut escaped, mut in_class) = (false, false);
        for (at, c) in self.source[start + 1..].char_indices().take(300) {
            match c {
                '\n' => return false,
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '[' => in_class = true,
                ']' => in_class = false,
                '/' if !in_class => {
                    self.push(TokenKind::Text, start, start + 1 + at + 1, first);
                    return true;
                }
                _ => {}
            }
        }
        false
    }
}

/// Whether a character can be part of a word.
pub(crate) fn is_word(c: char, extra: &str) -> bool {
    c.is_alphanumeric() || c == '_' || extra.contains(c)
}
