//! Placeholders in an operator's `args`: `{model}`, `{prompt}`, `{prompt_file}`, `{report}`, `{session}` and
//! `{mcp_config}`.

use std::ffi::{OsStr, OsString};

/// Returns the argument with each `{name}` in `values` replaced. Other braces, and braces in values, stay unchanged.
pub(super) fn fill_in(argument: &str, values: &[(&str, &OsStr)]) -> OsString {
    let mut filled = OsString::new();
    let mut rest = argument;
    while let Some(open) = rest.find('{') {
        let (before, from) = rest.split_at(open);
        filled.push(before);
        let named = |(name, _): &&(&str, &OsStr)| from[1..].strip_prefix(*name).is_some_and(|end| end.starts_with('}'));
        match values.iter().find(named) {
            Some((name, value)) => {
                filled.push(value);
                rest = &from[name.len() + 2..];
            }
            None => {
                filled.push("{");
                rest = &from[1..];
            }
        }
    }
    filled.push(rest);
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_placeholders_are_replaced_once() {
        let values =
            [("model", OsStr::new("m-1")), ("prompt", OsStr::new("{model} {")), ("prompt_file", OsStr::new("/p"))];
        for (argument, filled) in [
            ("--model={model}", "--model=m-1"),
            ("{prompt}{prompt_file}", "{model} {/p"),
            ("{\"a\": {model}}", "{\"a\": m-1}"),
            ("{other} {{model}} {model", "{other} {m-1} {model"),
            ("", ""),
        ] {
            assert_eq!(fill_in(argument, &values), filled, "{argument}");
        }
    }
}
