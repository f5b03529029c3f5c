//! Converts terminal output to pieces of text with CSS classes, and removes other control sequences.

use serde::Serialize;

/// Piece of a line in one style.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub(super) struct StyledText {
    /// CSS classes, separated by spaces; empty for plain text.
    pub class: String,
    /// Text of the part.
    pub text: String,
}

/// Style of the following text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct TextLook {
    bold: bool,
    dim: bool,
    italic: bool,
    underlined: bool,
    /// Foreground color, one of the eight standard colors.
    color: Option<u8>,
}

impl TextLook {
    fn class(self) -> String {
        let flags = [(self.bold, "a-b"), (self.dim, "a-d"), (self.italic, "a-i"), (self.underlined, "a-u")];
        let mut classes: Vec<String> = flags.iter().filter(|(on, _)| *on).map(|(_, name)| (*name).to_owned()).collect();
        classes.extend(self.color.map(|color| format!("a-{color}")));
        classes.join(" ")
    }

    /// Applies the numbers of a sequence that ends with `m`. Ignores background colors and exact colors.
    fn apply(&mut self, numbers: &str) {
        let mut codes = numbers.split([';', ':']).map(|code| code.parse::<u16>().unwrap_or(0));
        while let Some(code) = codes.next() {
            match code {
                0 => *self = Self::default(),
                1 => self.bold = true,
                2 => self.dim = true,
                3 => self.italic = true,
                4 => self.underlined = true,
                22 => (self.bold, self.dim) = (false, false),
                23 => self.italic = false,
                24 => self.underlined = false,
                30..=37 => self.color = Some((code - 30) as u8),
                90..=97 => self.color = Some((code - 90) as u8),
                39 => self.color = None,
                38 | 48 => match codes.next() {
                    Some(5) => {
                        let color = codes.next().filter(|color| code == 38 && *color < 16);
                        self.color = color.map(|color| (color % 8) as u8).or(self.color);
                    }
                    Some(2) => {
                        codes.nth(2);
                    }
                    _ => {}
                },
                _ => {}
            }
        }
    }
}

/// Converts terminal output line by line.
#[derive(Debug, Default)]
pub(super) struct AnsiReader {
    look: TextLook,
}

impl AnsiReader {
    /// Returns the pieces of a line; empty for an empty line. A carriage return restarts the line, as on a terminal.
    pub fn line(&mut self, line: &str) -> Vec<StyledText> {
        let mut pieces: Vec<StyledText> = Vec::new();
        let mut text = String::new();
        let mut rest = line.trim_end_matches('\r').chars().peekable();
        while let Some(c) = rest.next() {
            match c {
                '\u{1b}' => {
                    let before = self.look;
                    self.sequence(&mut rest);
                    if self.look != before {
                        push(&mut pieces, before, &mut text);
                    }
                }
                '\r' => {
                    pieces.clear();
                    text.clear();
                }
                '\t' => text.push(c),
                c if c.is_control() => {}
                c => text.push(c),
            }
        }
        push(&mut pieces, self.look, &mut text);
        pieces
    }

    /// Reads an escape sequence after its escape character.
    fn sequence(&mut self, rest: &mut std::iter::Peekable<std::str::Chars<'_>>) {
        match rest.next() {
            Some('[') => {
                let mut numbers = String::new();
                for c in rest.by_ref() {
                    match c {
                        '0'..='9' | ';' | ':' => numbers.push(c),
                        'm' => return self.look.apply(&numbers),
                        '\u{40}'..='\u{7e}' => return,
                        _ => {}
                    }
                }
            }
            // Titles and links end with a bell, or with an escape and a backslash.
            Some(']') => {
                while let Some(c) = rest.next() {
                    if c == '\u{7}' || (c == '\u{1b}' && rest.next_if_eq(&'\\').is_some()) {
                        return;
                    }
                }
            }
            _ => {}
        }
    }
}

fn push(pieces: &mut Vec<StyledText>, look: TextLook, text: &mut String) {
    if !text.is_empty() {
        pieces.push(StyledText { class: look.class(), text: std::mem::take(text) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> String {
        let pieces = AnsiReader::default().line(line);
        pieces.iter().map(|piece| format!("[{}]{}", piece.class, piece.text)).collect()
    }

    #[test]
    fn colors_become_classes_and_other_sequences_are_removed() {
        let table = [
            ("plain <b>", "[]plain <b>"),
            ("\u{1b}[31mred\u{1b}[0m not", "[a-1]red[] not"),
            ("\u{1b}[1;32mgood\u{1b}[39m bold", "[a-b a-2]good[a-b] bold"),
            ("\u{1b}[38;5;9mnine\u{1b}[38;2;1;2;3m exact", "[a-1]nine exact"),
            ("\u{1b}[48;5;1mback", "[]back"),
            ("\u{1b}]0;title\u{7}text\u{1b}[2K", "[]text"),
            ("\u{1b}]8;;https://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "[]link"),
            ("10%\r20%\r", "[]20%"),
            ("a\tb\u{8}", "[]a\tb"),
            ("\u{1b}[", ""),
            ("\u{1b}", ""),
            ("", ""),
        ];
        for (line, expected) in table {
            assert_eq!(shown(line), expected, "{line:?}");
        }
    }

    #[test]
    fn style_continues_on_next_line() {
        let mut reader = AnsiReader::default();
        reader.line("\u{1b}[33mfirst");
        assert_eq!(reader.line("second"), [StyledText { class: "a-3".into(), text: "second".into() }]);
    }

    proptest::proptest! {
        #[test]
        fn any_line_has_pieces_without_control_characters(line in "[\\x00-\\x7f\\u{80}-\\u{ff}]{0,60}") {
            for piece in AnsiReader::default().line(&line) {
                let clean = piece.text.chars().all(|c| c == '\t' || !c.is_control());
                proptest::prop_assert!(clean && !piece.text.is_empty());
            }
        }
    }
}
