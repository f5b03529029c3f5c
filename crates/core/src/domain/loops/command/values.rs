//! Parsers of argument values: durations, money, counts, names. Each error is one sentence for the author of the command.

use std::fmt::Display;

use ralph_types::failure::Failure;

use crate::domain::model::ids::Money;
use crate::domain::model::quantity::IterationLimit;

use super::shown;

/// Maximum limit of iterations.
const ITERATIONS: u32 = 1_000;
/// Maximum time limit, in seconds: 30 days.
const TIMEOUT_S: u64 = 30 * 24 * 3_600;
/// Maximum cost limit, in dollars.
const DOLLARS: i64 = 100_000;
/// Maximum length of the command of a check, in bytes.
const CHECK_BYTES: usize = 2_000;

/// Returns the reason for rejecting a limit that is already used up.
pub(super) fn limit_is_used_up(limit: impl Display, used: impl Display) -> String {
    format!("{limit} is not more than the {used} used already. Set a higher limit, or pause the loop.")
}

/// Parses a duration such as `90m`, `2h`, `1h30m`, `45s` or `1d`, from 1 second to 30 days. Larger units come first. Returns
/// seconds.
pub(super) fn duration(text: &str) -> Result<u64, Failure> {
    const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];
    let problem = || Failure::new(format!("`{}` is not a duration such as `90m`, `2h` or `1h30m`.", shown(text)));
    let (mut total, mut number, mut digits, mut next_unit) = (0_u64, 0_u64, 0, 0);
    for c in text.chars() {
        if let Some(digit) = c.to_digit(10) {
            number = number.saturating_mul(10).saturating_add(u64::from(digit));
            digits += 1;
            continue;
        }
        let unit = UNITS.iter().position(|(name, _)| *name == c).ok_or_else(problem)?;
        if digits == 0 || unit < next_unit {
            return Err(problem());
        }
        total = total.saturating_add(number.saturating_mul(UNITS[unit].1));
        (number, digits, next_unit) = (0, 0, unit + 1);
    }
    if digits > 0 || next_unit == 0 {
        return Err(problem());
    }
    match total {
        1..=TIMEOUT_S => Ok(total),
        _ => Err(Failure::new(format!("`{}` is not between one second and 30 days.", shown(text)))),
    }
}

/// Parses an amount such as `5`, `5.00` or `$5`: above 0, with at most six decimals.
pub(super) fn money(text: &str) -> Result<Money, Failure> {
    let problem = || Failure::new(format!("`{}` is not an amount of US dollars such as `5` or `5.00`.", shown(text)));
    let plain = text.strip_prefix('$').unwrap_or(text);
    let (dollars_part, fraction) = plain.split_once('.').unwrap_or((plain, "0"));
    let well_formed = |part: &str, most: usize| {
        !part.is_empty() && part.len() <= most && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    if !well_formed(dollars_part, 9) || !well_formed(fraction, 6) {
        return Err(problem());
    }
    let dollars: i64 = dollars_part.parse().map_err(|_| problem())?;
    let millionths: i64 = format!("{fraction:0<6}").parse().map_err(|_| problem())?;
    let amount = Money(dollars * 1_000_000 + millionths);
    if amount.0 == 0 || amount.0 > DOLLARS * 1_000_000 {
        return Err(Failure::new(format!(
            "A limit of money is above $0 and at most ${DOLLARS}, not `{}`.",
            shown(text)
        )));
    }
    Ok(amount)
}

/// Parses a limit of iterations: 1..=1000, or `unlimited`.
pub(super) fn iterations(text: &str) -> Result<IterationLimit, Failure> {
    let allowed = |limit: &IterationLimit| limit.count().is_none_or(|count| (1..=ITERATIONS).contains(&count));
    IterationLimit::parse(text).filter(allowed).ok_or_else(|| {
        Failure::new(format!(
            "The number of iterations is from 1 to {ITERATIONS}, or `unlimited`, not `{}`.",
            shown(text)
        ))
    })
}

/// Validates the command of a check: not blank, one line, no control characters.
pub(super) fn check(text: &str) -> Result<String, Failure> {
    if text.trim().is_empty() {
        return Err(Failure::new("`--check` needs a command, such as `--check \"cargo test\"`."));
    }
    if text.len() > CHECK_BYTES || text.chars().any(char::is_control) {
        return Err(Failure::new(format!("The command of a check is one line of at most {CHECK_BYTES} bytes.")));
    }
    Ok(text.trim().to_owned())
}

/// Validates a backend name by the rules of the configuration.
pub(super) fn backend(text: &str) -> Result<String, Failure> {
    let character = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let begins = text.chars().next().is_some_and(|c| c.is_ascii_alphanumeric());
    if begins && text.len() <= 64 && text.chars().all(character) {
        Ok(text.to_owned())
    } else {
        Err(Failure::new(format!("`{}` is not the name of a backend: letters, digits, `-`, `_` and `.`.", shown(text))))
    }
}

/// Validates a branch name: git accepts it, and no program interprets it as an option.
pub(super) fn branch(text: &str) -> Result<String, Failure> {
    let character = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '+' | '#');
    let parts_well_formed = text.split('/').all(|part| {
        !part.is_empty() && !part.starts_with(['.', '-']) && !part.ends_with('.') && !part.ends_with(".lock")
    });
    if text.len() <= 200 && text.chars().all(character) && parts_well_formed && !text.contains("..") {
        Ok(text.to_owned())
    } else {
        Err(Failure::new(format!("`{}` is not the name of a branch.", shown(text))))
    }
}

/// Parses the hash in a confirmation: 8 to 64 hexadecimal digits. Returns it in lower case.
pub(super) fn hash(text: &str) -> Result<String, Failure> {
    if (8..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(Failure::new(format!("`{}` is not the hash that was shown: 8 or more hexadecimal digits.", shown(text))))
    }
}
