//! Forms for answering a loop. Each command that is useful in the current state becomes a button, with a text field if the
//! command needs text.

use serde::Serialize;

use crate::domain::report::view::CommandHint;

/// Form that sends a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct AnswerForm {
    /// Command without the field's text.
    pub command: String,
    /// Label of the button.
    pub button: String,
    /// Effect, in a few words.
    pub what: String,
    /// Label of the field; empty if the form has no field.
    pub field: String,
    /// Whether the field may stay empty.
    pub optional: bool,
    /// Whether the text is a single argument of the command, which is quoted.
    pub quoted: bool,
    /// Whether the command ends the loop.
    pub danger: bool,
}

/// Returns the form of a command.
pub(super) fn form(hint: &CommandHint) -> AnswerForm {
    let usage = hint.usage.trim();
    let (command, field) = match usage.rsplit_once(' ') {
        Some((before, last)) if is_placeholder(last) => (before, last),
        _ => (usage, ""),
    };
    let quoted = field.starts_with('"');
    let field = field.trim_matches('"');
    let words = command.trim_start_matches("/ralph").trim();
    let name = words.split(' ').next().unwrap_or_default();
    // The hash of a plan or a text is not meaningful to people.
    let button = match name {
        "approve" => match field {
            "CHANGES" => "Approve with changes".to_owned(),
            "ANSWERS" => "Approve with answers".to_owned(),
            _ => "Approve".to_owned(),
        },
        "run" if words.contains("--confirm") => "Confirm the text".to_owned(),
        "run" => "Run".to_owned(),
        "plan" => "Ask for another plan".to_owned(),
        "guide" => "Guide".to_owned(),
        _ => capitalised(&words.replace("--", "").replace('-', " ")),
    };
    AnswerForm {
        command: command.to_owned(),
        button,
        what: hint.what.clone(),
        field: capitalised(&field.to_lowercase()),
        optional: hint.what.contains("optional"),
        quoted,
        danger: name == "abort",
    }
}

/// Returns the command that a form sends, including the text of its field.
pub(super) fn line(command: &str, words: &str, quoted: bool) -> String {
    let words = words.trim();
    match (words.is_empty(), quoted) {
        (true, _) => command.trim().to_owned(),
        (false, false) => format!("{} {words}", command.trim()),
        (false, true) => {
            let escaped = words.replace('\\', "\\\\").replace('"', "\\\"");
            format!("{} \"{escaped}\"", command.trim())
        }
    }
}

fn is_placeholder(word: &str) -> bool {
    let word = word.trim_matches('"');
    word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase())
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| format!("{}{}", first.to_uppercase(), chars.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::loops::command::{self, LoopCommand};

    fn of(usage: &str, what: &str) -> AnswerForm {
        form(&CommandHint { usage: usage.into(), what: what.into() })
    }

    #[test]
    fn usage_becomes_a_button_with_a_field_for_its_placeholder() {
        let table = [
            ("/ralph resume GUIDANCE", "/ralph resume", "Resume", "Guidance"),
            ("/ralph guide TEXT", "/ralph guide", "Guide", "Text"),
            ("/ralph abort", "/ralph abort", "Abort", ""),
            ("/ralph accept-tests", "/ralph accept-tests", "Accept tests", ""),
            ("/ralph approve 1a2b3c4d", "/ralph approve 1a2b3c4d", "Approve", ""),
            ("/ralph approve 1a2b3c4d ANSWERS", "/ralph approve 1a2b3c4d", "Approve with answers", "Answers"),
            ("/ralph run --check \"COMMAND\"", "/ralph run --check", "Run", "Command"),
            ("/ralph run --confirm 1a2b3c4d", "/ralph run --confirm 1a2b3c4d", "Confirm the text", ""),
            ("/ralph resume --max-iterations 15", "/ralph resume --max-iterations 15", "Resume max iterations 15", ""),
        ];
        for (usage, command, button, field) in table {
            let form = of(usage, "");
            assert_eq!((form.command.as_str(), form.button.as_str(), form.field.as_str()), (command, button, field));
        }
        assert!(of("/ralph resume GUIDANCE", "continue; guidance is optional").optional);
        assert!(of("/ralph abort", "").danger && of("/ralph run --check \"COMMAND\"", "").quoted);
    }

    #[test]
    fn field_text_reaches_the_command_unchanged() {
        let sent = line("/ralph run --check", r#"sh -c "test \"a b\" = x" \ "#, true);
        let Ok(LoopCommand::Run(run)) = command::parse_typed(&sent).remove(0) else { panic!("{sent}") };
        assert_eq!(run.options.checks, [r#"sh -c "test \"a b\" = x" \"#]);
        assert_eq!(line("/ralph guide", " two\nlines ", false), "/ralph guide two\nlines");
        assert_eq!(line("/ralph resume", "  ", false), "/ralph resume");
    }
}
