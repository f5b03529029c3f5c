//! Placeholders in an operator's `args`: `{model}`, `{prompt}`, `{prompt_file}`, `{report}`, `{session}` and
//! `{mcp_config}`.

use std::ffi::{OsStr, OsString};

/// The argument with each `{name}` of `values` replaced. Other braces stay as they are, and so does what was filled in.
pub(super) fn filled(argument: &str, values: &[(&str, &OsStr)]) -> OsString {
    let mut made = OsString::new();
    let mut rest = argument;
    while let Some(open) = rest.find('{') {
        let (before, from) = rest.split_at(open);
        made.push(before);
        let named = |(name, _): &&(&str, &OsStr)| from[1..].strip_prefix(*name).is_some_and(|end| end.starts_with('}'));
        match values.iter().find(named) {
            Some((name, value)) => {
                made.push(value);
                rest = &from[name.len() + 2..];
            }
            None => {
                made.push("{");
                rest = &from[1..];
            }
        }
    }
    made.push(rest);
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_filled_in_once() {
        let values =
            [("model", OsStr::new("m-1")), ("prompt", OsStr::new("{model} {")), ("prompt_file", OsStr::new("/p"))];
        for (argument, made) in [
            ("--model={model}", "--model=m-1"),
            ("{prompt}{prompt_file}", "{model} {/p"),
            ("{\"a\": {model}}", "{\"a\": m-1}"),
            ("{other} {{model}} {model", "{other} {m-1} {model"),
            ("", ""),
        ] {
            assert_eq!(filled(argument, &values), made, "{argument}");
        }
    }
}
