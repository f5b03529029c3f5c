//! Tests of the sources of keys in the operator's configuration.

use std::path::Path;

use super::SMALL;
use crate::config::{Config, Env, KeySource};

#[test]
fn key_source_is_recorded_even_for_default_values() {
    let text = format!(
        "{SMALL}branch_prefix: ralph/\nlimits: {{ iterations: 20, comments_per_day: ~ }}\nprotected: {{ paths: [a, b] }}\nhooks: {{}}\n"
    );
    let known = [
        ("T", "token"),
        ("S", "0123456789abcdef0123456789abcdef"),
        ("RALPH_LIMITS__TIMEOUT", "2h"),
        ("RALPH_PROTECTED__PATHS__1", "c"),
        ("RALPH_PLAN", "required"),
    ];
    let config = Config::parse(Path::new("x.yaml"), &text, &Env::of(known));
    let sources = config.expect("valid").key_sources;
    let table = [
        ("branch_prefix", Some(KeySource::File)),
        ("limits.iterations", Some(KeySource::File)),
        ("limits.timeout", Some(KeySource::Variable)),
        ("limits", Some(KeySource::Variable)),
        ("limits.comments_per_day", None),
        ("limit", None),
        ("protected.paths", Some(KeySource::Variable)),
        ("protected.policy", None),
        ("plan", Some(KeySource::Variable)),
        ("label_prefix", None),
    ];
    for (key, source) in table {
        assert_eq!(sources.source(key), source, "{key}: {sources:?}");
    }
}
