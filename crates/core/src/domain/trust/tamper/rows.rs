//! Rows of tables with test cases.

pattern!(
    ROW,
    r#"^\s*(?:\{.*\}|\(.*\)|\[.*\]|(?:["']?[\w -]+["']?\s*(?::|=>)\s*)[\{\[(].*[\}\])]|#\[(?:case|test_case)(?:::\w+)?\(.*\)\]|@(?:CsvSource|ValueSource|TestCase|Row).*|#\[(?:TestWith|DataProvider)\(.*\)\]|(?:"[^"]*"|'[^']*'|-?\d[\d.]*|null|true|false)\s+\|{1,2}\s.*|@testWith.*|(?:\w+\.)?(?:of|arguments|param|row|case)\(.*\)|\|.*\||'[^']*'|-?\d[\d.]*|%w\[.*\]|yield\s.*)\s*[,;]?\s*\\?\s*$|^\s*[\w:.]+[({].*[)}],\s*$"#
);
pattern!(TEXT_ROW, r#"^\s*"[^"]*",?\s*$"#);

/// Whether a line is a row of a table with test cases.
pub(super) fn is_row(line: &str) -> bool {
    ROW.is_match(line) || is_text_row(line)
}

/// Whether a line is a row that consists of one string.
pub(super) fn is_text_row(line: &str) -> bool {
    TEXT_ROW.is_match(line)
}
