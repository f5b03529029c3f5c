//! Text of an expression: validation before parsing, positions, and explanations of syntax errors.

use cel::ParseErrors;

use super::typing::ExpressionProblem;
use super::{EXPRESSION_MAX, NESTING_MAX};

/// Rejects text that is unsafe to parse. The parser is recursive, and a stack overflow would end the process.
pub(super) fn check(text: &str) -> Result<(), ExpressionProblem> {
    if text.trim().is_empty() {
        return Err(ExpressionProblem::whole("is empty; set a condition such as `iteration > 5`"));
    }
    let length = text.chars().count();
    if length > EXPRESSION_MAX {
        return Err(ExpressionProblem::whole(format!("has {length} characters; at most {EXPRESSION_MAX} are allowed")));
    }
    let mut depth = 0_u16;
    for (offset, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > NESTING_MAX {
            return Err(ExpressionProblem::at(
                offset,
                format!("more than {NESTING_MAX} brackets are open; simplify it"),
            ));
        }
    }
    Ok(())
}

/// Explains the first error of the parser, with a hint for common mistakes.
pub(super) fn syntax_problem(text: &str, errors: &ParseErrors) -> ExpressionProblem {
    let first = errors.errors.first();
    let place = first.and_then(|error| {
        let (line, column) = (usize::try_from(error.pos.0).ok()?, usize::try_from(error.pos.1).ok()?);
        (line > 0 && column > 0).then(|| offset_of(text, line, column))
    });
    let message_of_parser = first.map_or("", |error| error.msg.as_str());
    if message_of_parser.contains("Recursion limit") {
        return ExpressionProblem { offset: place, message: format!("has more than {NESTING_MAX} nested conditions") };
    }
    let message_of_parser = message_of_parser.strip_prefix("Syntax error: ").unwrap_or(message_of_parser);
    // The parser's list of expected tokens has a dozen signs.
    let message_of_parser =
        message_of_parser.split(" expecting ").next().unwrap_or_default().replace("'<EOF>'", "its end");
    let message_of_parser: String = message_of_parser.chars().filter(|c| !c.is_control()).take(80).collect();
    let message = format!("is not an expression: {}{}", message_of_parser.trim(), hint(text));
    ExpressionProblem { offset: place, message }
}

fn hint(text: &str) -> &'static str {
    let has = |word: &str| text.split_whitespace().any(|part| part.eq_ignore_ascii_case(word));
    if has("and") {
        "; write `&&` for and"
    } else if has("or") {
        "; write `||` for or"
    } else if has("not") {
        "; write `!` for not"
    } else if has("=") {
        "; write `==` to compare"
    } else if text.contains('%') && !text.contains("% ") {
        "; write percentages as numbers"
    } else {
        ""
    }
}

/// Returns the 1-based line and column, in characters, of a byte offset.
pub(super) fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

/// Returns the byte offset of the parser's 1-based line and column; the end of the text if there is no such position.
fn offset_of(text: &str, line: usize, column: usize) -> usize {
    let start: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let rest = text.get(start..).unwrap_or_default();
    start + rest.char_indices().nth(column - 1).map_or(rest.len(), |(offset, _)| offset)
}
