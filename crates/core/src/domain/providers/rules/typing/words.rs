//! Error messages of the type checker about names, calls and numbers.

use cel::common::ast::{Expr, IdedExpr, LiteralValue, operators};

use crate::domain::model::settings::{did_you_mean, shortened};
use crate::domain::providers::rules::facts::{ALIASES, VARIABLES, Variable};

/// Functions, in the order in which errors suggest them.
const FUNCTIONS: [&str; 6] = ["size", "startsWith", "endsWith", "contains", "int", "double"];

/// Returns the reason why `variable` can never equal `value`; `None` if it may be equal.
pub(super) fn impossible(variable: &Variable, value: &IdedExpr) -> Option<String> {
    let name = variable.name;
    if let (Some(most), Some(number)) = (variable.most, number(value)) {
        return (!(0.0..=most).contains(&number)).then(|| format!("`{name}` is 0 to {most}, never {number}"));
    }
    match &value.expr {
        Expr::Literal(LiteralValue::String(word)) if !variable.words.is_empty() => {
            let word = word.inner();
            let known = variable.words.contains(&word);
            (!known).then(|| {
                let near = did_you_mean(word, variable.words.iter().copied());
                format!("`{name}` is one of {}, never \"{}\"{near}", variable.words.join(", "), shortened(word))
            })
        }
        _ => None,
    }
}

/// Returns the error for an unknown name.
pub(super) fn unknown(name: &str) -> String {
    let names = VARIABLES.iter().map(|variable| variable.name).chain(ALIASES.iter().map(|(alias, _)| *alias));
    let near = did_you_mean(name, names);
    let near = match near.is_empty() {
        true => format!("; there are {}", VARIABLES.iter().map(|v| v.name).collect::<Vec<_>>().join(", ")),
        false => near,
    };
    format!("there is no `{}`{near}", shortened(name))
}

/// Returns the error for an unknown function.
pub(super) fn refused_call(name: &str) -> String {
    if matches!(name, operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT) {
        return "no value has elements".to_owned();
    }
    if FUNCTIONS.contains(&name) {
        return format!(
            "`{name}` is used as `backend.startsWith(\"x\")`, `size(backend)`, `int(cost)` or `double(tokens)`"
        );
    }
    let near = did_you_mean(name, FUNCTIONS);
    format!("there is no function `{}`{near}; there are {}", shortened(name), FUNCTIONS.join(", "))
}

/// Returns the value of a number literal with its sign; `None` for other expressions.
pub(super) fn number(expr: &IdedExpr) -> Option<f64> {
    match &expr.expr {
        Expr::Literal(LiteralValue::Int(number)) => Some(*number.inner() as f64),
        Expr::Literal(LiteralValue::Double(number)) => Some(*number.inner()),
        // A whole number that was made a decimal.
        Expr::Call(call) if call.func_name == "double" && call.target.is_none() => number(call.args.first()?),
        Expr::Call(call) if call.func_name == operators::NEGATE => number(call.args.first()?).map(|number| -number),
        _ => None,
    }
}

/// Returns the operator as written in an expression.
pub(super) fn sign(name: &str) -> &str {
    match name {
        operators::CONDITIONAL => "? :",
        operators::IN => "in",
        _ => name.trim_matches('_'),
    }
}
