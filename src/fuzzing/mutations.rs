//! Inputs that a seeded generator derives from each corpus. Unlike `fuzz/`, which is guided by code coverage, they
//! need no separate build and run with the other tests.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use fastrand::Rng;

use super::tests::corpus;
use super::*;
use crate::clock::Stopwatch;

/// Number of inputs per target, unless `RALPH_TEST_MUTATIONS` is set.
const INPUTS: u64 = 100;
/// Seed, unless `RALPH_TEST_MUTATIONS_SEED` is set.
const SEED: u64 = 1;
/// Maximum size of an input, in bytes.
const LONGEST: usize = 16 * 1024;
/// Maximum time for one input, without optimization and in parallel with other tests.
const SLOWEST: Duration = Duration::from_secs(30);
/// Texts that start, end or break a construct in one of the formats.
const TOKENS: [&[u8]; 32] = [
    b"\0",
    b"\xff\xfe",
    b"\xc3",
    b"\r\n",
    b"\x1b[31m",
    b"\xe2\x80\xae",
    b"\xe2\x80\x8b",
    b"\xc5\xbf",
    b"<!--",
    b"-->",
    b"<svg><desc>",
    b"</",
    b"&#x0;",
    b"&lt;",
    b"```",
    b"~~~",
    b"](",
    b"[^1]:",
    b"$$",
    b"> ",
    b"/ralph ",
    b"{{",
    b"[[[[[[[[",
    b"\"\\u0000\"",
    b"\\",
    b"-1",
    b"1e999",
    b"18446744073709551616",
    b"&a *a",
    b"!!binary ",
    b"data: {",
    b"diff --git a/x b/x\n",
];

/// Returns a random non-empty range within an input.
fn part(random: &mut Rng, length: usize) -> std::ops::Range<usize> {
    let start = random.usize(..length);
    start..start + 1 + random.usize(..(length - start).min(64))
}

/// Returns an input of the corpus with up to six changes.
fn mutated(random: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
    let any = |random: &mut Rng| &corpus[random.usize(..corpus.len())];
    let mut input = any(random).clone();
    for _ in 0..random.usize(1..=6) {
        let at = random.usize(..=input.len());
        let kind = random.u8(..8);
        let other = any(random);
        match kind {
            0 => drop(input.splice(at..at, TOKENS[random.usize(..TOKENS.len())].iter().copied())),
            1 if !other.is_empty() => {
                let piece = part(random, other.len());
                input.splice(at..at, other[piece].iter().copied());
            }
            2 => {
                input.splice(at..at, (0..random.usize(1..8)).map(|_| random.u8(..)).collect::<Vec<_>>()).for_each(drop)
            }
            _ if input.is_empty() => {}
            3 => {
                let position = random.usize(..input.len());
                input[position] ^= 1 << random.u8(..8);
            }
            4 => drop(input.drain(part(random, at.max(1).min(input.len())))),
            5 => {
                let piece = input[part(random, input.len())].repeat(random.usize(2..200));
                input.splice(at..at, piece);
            }
            6 => input.truncate(at),
            _ => input.rotate_left(at),
        }
        input.truncate(LONGEST);
    }
    input
}

/// Runs a target with mutations of a corpus. Returns the number of different ones, or the first one for which the
/// target panics, with the panic message.
fn try_mutations(target: FuzzTarget, corpus: &[Vec<u8>], seed: u64, inputs: u64) -> Result<usize, (Vec<u8>, String)> {
    let mut random = Rng::with_seed(seed);
    let mut different = BTreeSet::new();
    for _ in 0..inputs {
        let input = mutated(&mut random, corpus);
        let watch = Stopwatch::start();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(&input))) {
            let said = panic.downcast_ref::<String>().cloned();
            let said = said.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            return Err((input, said.unwrap_or_default()));
        }
        if watch.elapsed() > SLOWEST {
            return Err((input, format!("it took {:?}", watch.elapsed())));
        }
        different.insert(input);
    }
    Ok(different.len())
}

#[expect(clippy::disallowed_methods, reason = "the number of inputs is no setting of the service")]
fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |value| value.parse().expect("a whole number"))
}

/// See docs/research/threats.md#i9 and docs/research/threats.md#w9.
#[test]
fn properties_hold_for_mutations_of_each_corpus() {
    let (inputs, seed) = (number("RALPH_TEST_MUTATIONS", INPUTS), number("RALPH_TEST_MUTATIONS_SEED", SEED));
    for (name, target) in TARGETS {
        match try_mutations(*target, &corpus(name), seed, inputs) {
            Ok(different) => assert!(different as u64 > inputs / 2, "{name}: {different} of {inputs} inputs differ"),
            Err((input, why)) => {
                let shown = input.escape_ascii();
                panic!(
                    "{name}, RALPH_TEST_MUTATIONS_SEED={seed} RALPH_TEST_MUTATIONS={inputs}: {why}; put this into fuzz/corpus/{name}: {shown}"
                )
            }
        }
    }
}

/// A comment in HTML violates the property; the corpus contains none.
#[test]
fn mutations_find_an_input_that_breaks_a_property() {
    let breakable: FuzzTarget = |input| assert!(!String::from_utf8_lossy(input).contains("<!--"), "found");
    let corpus = [b"A title\n\nSome words, and a list:\n- one\n- two\n".to_vec()];
    let (input, why) = try_mutations(breakable, &corpus, SEED, 10_000).expect_err("one of them");
    assert_eq!(why, "found");
    let again = try_mutations(breakable, &corpus, SEED, 10_000).expect_err("one of them");
    assert_eq!(again.0, input, "a seed makes the same inputs each time");
}
