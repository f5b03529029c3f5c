//! Logical lines and blocks of languages with indented blocks.

use crate::lex::{LexToken, Lexed, TokenKind};
use crate::scan::{and, bounded, squeezed};

/// Logical line: it starts on a new line, outside brackets, strings and comments.
#[derive(Debug, Clone)]
pub(crate) struct LogicalLine {
    /// Indices of its tokens, without leading comments.
    pub tokens: std::ops::Range<usize>,
    pub start: usize,
    /// End of its last token that is not a comment.
    pub end: usize,
    /// Width of its indentation.
    pub indent: usize,
    /// Index of the line after its block.
    pub block_end: usize,
    /// Preprocessor conditions around the line.
    pub directives: String,
}

/// Words that end or continue a block at the indentation of the block's first line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockWords {
    pub ends: &'static [&'static str],
    pub continues: &'static [&'static str],
}

/// Words of a language whose blocks end only by indentation.
pub(crate) const NO_WORDS: BlockWords = BlockWords { ends: &[], continues: &[] };

/// Splits source code into logical lines.
pub(crate) fn lines(source: &str, lexed: &Lexed, words: BlockWords) -> Vec<LogicalLine> {
    let mut lines: Vec<LogicalLine> = Vec::new();
    let mut depth = 0_usize;
    let mut joined = false;
    let mut directives = Directives::default();
    for (at, token) in lexed.tokens.iter().enumerate() {
        if token.kind == TokenKind::Directive {
            directives.read(&source[token.start..token.end]);
            continue;
        }
        if token.kind == TokenKind::Comment {
            continue;
        }
        if token.first && depth == 0 && !joined {
            lines.push(LogicalLine {
                tokens: at..at + 1,
                start: token.start,
                end: token.end,
                indent: indent(source, token),
                block_end: 0,
                directives: directives.condition(),
            });
        } else if let Some(line) = lines.last_mut() {
            line.tokens.end = at + 1;
            line.end = token.end;
        }
        joined = &source[token.start..token.end] == "\\";
        match token.kind {
            TokenKind::Open => depth += 1,
            TokenKind::Close => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    set_blocks(source, lexed, &mut lines, words);
    lines
}

fn indent(source: &str, token: &LexToken) -> usize {
    let begin = source[..token.start].rfind('\n').map_or(0, |at| at + 1);
    source[begin..token.start].chars().fold(0, |width, c| match c {
        '\t' => (width / 8 + 1) * 8,
        '\u{feff}' => width,
        _ => width + 1,
    })
}

fn set_blocks(source: &str, lexed: &Lexed, lines: &mut [LogicalLine], words: BlockWords) {
    let mut open: Vec<usize> = Vec::new();
    for at in 0..lines.len() {
        let token = lexed.tokens[lines[at].tokens.start];
        let word = &source[token.start..token.end];
        let ends = words.ends.contains(&word);
        let continues = words.continues.contains(&word);
        while let Some(last) = open.last().copied() {
            if lines[last].indent < lines[at].indent || (lines[last].indent == lines[at].indent && continues) {
                break;
            }
            open.pop();
            lines[last].block_end = at + usize::from(ends && lines[last].indent == lines[at].indent);
        }
        if ends || continues {
            lines[at].block_end = at + 1;
        } else {
            open.push(at);
        }
    }
    let all = lines.len();
    open.into_iter().for_each(|at| lines[at].block_end = all);
}

/// Preprocessor conditions around a position: for each open `#if`, its own condition and all conditions so far.
#[derive(Debug, Default)]
pub(crate) struct Directives(Vec<(String, String)>);

impl Directives {
    /// Reads a line such as `#if 0`.
    pub fn read(&mut self, text: &str) {
        let text = squeezed(text.trim_start_matches('#').trim_start());
        let word = text.split([' ', '(']).next().unwrap_or_default();
        match word {
            "if" | "ifdef" | "ifndef" => self.push(bounded(format!("#{text}"))),
            "else" | "elif" | "elseif" | "elifdef" | "elifndef" => {
                if let Some((last, _)) = self.0.pop() {
                    self.push(bounded(format!("{last} #{text}")));
                }
            }
            "endif" => {
                self.0.pop();
            }
            _ => {}
        }
    }

    fn push(&mut self, own: String) {
        let all = and(&self.condition(), &own);
        self.0.push((own, all));
    }

    /// Returns the conditions as one text.
    pub fn condition(&self) -> String {
        self.0.last().map_or(String::new(), |(_, all)| all.clone())
    }
}
