//! Fuzz targets for everything that reads untrusted bytes. Each checks properties that must be true for any input.
//! `fuzz/` searches for inputs that violate them; `cargo test` runs the inputs in `fuzz/corpus`.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use test_regions::{ChangedFile, regions, test_module_files, with_base_tests_of};

use crate::agent;
use crate::checks::counts;
use crate::config::{Config, parse_repository};
use crate::domain::loops::command;
use crate::domain::model::ids::{ForgeName, Timestamp};
use crate::domain::model::task::MAX_TEST_NAMES;
use crate::domain::providers::limit::{self, LimitSignals};
use crate::domain::report;
use crate::domain::trust::egress::Target;
use crate::domain::trust::outbound::{Masker, OutboundFilter};
use crate::domain::trust::policy::Policy;
use crate::domain::trust::sanitize::{self, document};
use crate::domain::trust::secret_forms::{SecretForms, StreamRedactor};
use crate::domain::trust::tamper;
use crate::forge::{ParsedDelivery, gitea, github};
use crate::render::{Marker, MarkerKey, find_marker};

/// Secret that must not appear in outputs.
const SECRET: &str = "sk-canary-5b2d9e7f41c8a603";

/// Function that reads untrusted bytes; panics if a property is violated.
pub type FuzzTarget = fn(&[u8]);

/// All targets, by the name of their corpus.
pub const TARGETS: &[(&str, FuzzTarget)] = &[
    ("agent_output", agent_output),
    ("agent_report", agent_report),
    ("build_files", build_files),
    ("checks", check_output),
    ("commands", commands),
    ("configuration", configuration),
    ("diffs", diffs),
    ("documents", documents),
    ("limits", limits),
    ("markers", markers),
    ("model_answers", model_answers),
    ("model_bodies", model_bodies),
    ("names", names),
    ("outgoing_texts", outgoing_texts),
    ("program_files", program_files),
    ("reports", reports),
    ("webhooks", webhooks),
];

/// Splits an input into its first line and the rest.
fn head_and_rest(data: &[u8]) -> (&[u8], &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    (&data[..end], data.get(end + 1..).unwrap_or_default())
}

/// Reads the body of a delivery; the first line of the input is the name of its event. The body is parsed, ignored or
/// rejected, and the reason is safe in logs.
pub fn webhooks(data: &[u8]) {
    let (event, body) = head_and_rest(data);
    let (event, forge) = (String::from_utf8_lossy(event), ForgeName::new("forge"));
    for parsed in [github::parse_delivery(&forge, &event, body), gitea::parse_delivery(&forge, &event, body)] {
        if let ParsedDelivery::Ignored(why) | ParsedDelivery::Malformed(why) = parsed {
            assert!(!why.is_empty() && !why.contains('\n') && why.len() < 2_000, "{why:?}");
        }
    }
}

/// Reads a command that a person typed. Commands are found only in texts that contain one.
pub fn commands(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let found = command::parse_typed(&text);
    assert!(found.is_empty() || command::is_mentioned(&text), "{found:?}");
}

/// Reads the page of an issue or comment. The text for the agent contains nothing invisible and is at most 64 times as long as the
/// page.
pub fn documents(data: &[u8]) {
    let page = String::from_utf8_lossy(data);
    let document = document::read(&page, Some(&page));
    let text = document::write(&document.parts);
    assert_eq!(sanitize::visible(&text), text);
    assert!(text.len() <= 64 * (page.len() + 64), "{} of {}", text.len(), page.len());
    drop(command::parse(&document));
}

/// Filters an agent's text with a secret in the middle. The output does not contain the secret.
pub fn outgoing_texts(data: &[u8]) {
    static DOOR: LazyLock<OutboundFilter> = LazyLock::new(|| OutboundFilter::new(Masker::named([("the key", SECRET)])));
    let text = String::from_utf8_lossy(data);
    let (before, after) = text.split_at(text.floor_char_boundary(text.len() / 2));
    let text = format!("{before}{SECRET}{after}");
    let lines = [text.clone()];
    for left in [
        DOOR.body(&text).as_str(),
        DOOR.title(&text).as_str(),
        DOOR.answer(&text).as_str(),
        DOOR.message(&text, &lines, &[]).as_str(),
    ] {
        assert!(!left.contains(SECRET), "{left}");
    }
}

/// Reads a comment. Without the key, the marker of a text cannot be forged, and quoting a marker does not copy it.
pub fn markers(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let key = MarkerKey::new(b"key");
    assert_eq!(find_marker(&text, &key), None);
    let own = Marker::new(&text, &text, &text, &key);
    assert_eq!(find_marker(&format!("{text}\n{}", own.text()), &key).as_ref(), Some(&own));
    assert_eq!(find_marker(&format!("{}\n> x", own.text()), &key), None);
    assert_eq!(find_marker(&own.text(), &MarkerKey::new(b"another")), None);
}

/// Reads error messages of a provider. The evidence of a limit is short.
pub fn limits(data: &[u8]) {
    let mut signals = LimitSignals::default();
    for line in String::from_utf8_lossy(data).lines() {
        match line.split_once(": ") {
            Some((name, value)) if name.starts_with('<') => {
                signals.headers.push((name[1..].to_owned(), value.to_owned()))
            }
            _ => signals.learn(line),
        }
    }
    if let Some(limit) = limit::classify(&signals, Timestamp(1_790_000_000_000)) {
        assert!(limit.evidence.chars().count() <= 300, "{limit:?}");
    }
    signals.succeeded = true;
    assert_eq!(limit::classify(&signals, Timestamp(1_790_000_000_000)), None);
}

/// Reads a report that an agent wrote.
pub fn agent_report(data: &[u8]) {
    agent::fuzzing::report(data);
}

/// Reads the output of an agent and its usage. The first byte selects the format.
pub fn agent_output(data: &[u8]) {
    agent::fuzzing::output(data);
}

/// Reads the body of a request to a model, or of its response. The first byte selects the wire format.
pub fn model_bodies(data: &[u8]) {
    agent::fuzzing::model_body(data);
}

/// Filters a streamed response that contains the key. It arrives in parts whose length the first byte selects. The
/// agent does not receive the key.
pub fn model_answers(data: &[u8]) {
    static FORMS: LazyLock<Arc<SecretForms>> = LazyLock::new(|| Arc::new(SecretForms::new([SECRET])));
    let Some((length, text)) = data.split_first() else { return };
    let (before, after) = text.split_at(text.len() / 2);
    let answer = [before, SECRET.as_bytes(), after].concat();
    let mut redactor = StreamRedactor::new(FORMS.clone(), b"[key removed]");
    let mut passed = Vec::new();
    for part in answer.chunks(usize::from(*length).max(1)) {
        passed.extend(redactor.push(part));
    }
    passed.extend(redactor.finish());
    assert!(!passed.windows(SECRET.len()).any(|part| part == SECRET.as_bytes()));
}

/// Reads the output of a check to its end.
pub fn check_output(data: &[u8]) {
    drop(counts::read(&String::from_utf8_lossy(data)));
}

/// Reads a test report. The number and the lengths of the names that are kept are limited.
pub fn reports(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for results in [counts::read_json(&text), counts::read_junit(&text)].into_iter().flatten() {
        assert!(results.failing.len() <= MAX_TEST_NAMES, "{}", results.failing.len());
        assert!(results.failing.iter().all(|name| name.len() <= 256), "{:?}", results.failing);
    }
}

/// Splits an input into a path, and the versions of the file in the base and in the branch. A form feed separates them.
fn versions(data: &[u8]) -> (String, String, String) {
    let (path, rest) = head_and_rest(data);
    let rest = String::from_utf8_lossy(rest);
    let (base, branch) = rest.split_once('\u{c}').unwrap_or((&rest, &rest));
    (String::from_utf8_lossy(path).into_owned(), base.to_owned(), branch.to_owned())
}

/// Reads both versions of a program file. Each region is a part of its file.
pub fn program_files(data: &[u8]) {
    let (path, base, branch) = versions(data);
    let files = [ChangedFile { path: &path, base: Some(&base), branch: Some(&branch) }];
    drop(with_base_tests_of(&files, false, &branch));
    for region in regions(&path, &branch).unwrap_or_default() {
        assert!(branch.get(region.range.clone()).is_some(), "{region:?}");
    }
    drop(test_module_files(&path, &branch));
}

/// Reads both versions of a manifest or build file. A merged manifest has a changed setting.
pub fn build_files(data: &[u8]) {
    let (path, base, branch) = versions(data);
    if let Some(merge) = tamper::with_base_settings(&path, &base, &branch, &|_| false) {
        assert!(!merge.names.is_empty());
    }
    let added = ["src/new.c", "new.ml"].into_iter();
    drop(tamper::with_new_sources(&path, &base, &branch, added));
    assert!(!tamper::changes_tests(&path, &base, &base, &["src/a.c", "tests/a.c"], false));
    tamper::changes_tests(&path, &base, &branch, &["src/a.c", "tests/a.c"], true);
    drop(tamper::default_features(&branch));
}

/// Reads names. Parts of branch names are short and harmless, and any text can be parsed as the target of a
/// connection.
pub fn names(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let slug = report::slug(&text);
    assert!(slug.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'), "{slug}");
    assert!(slug.len() <= 64 && !slug.starts_with('-') && !slug.ends_with('-'), "{slug}");
    drop(Target::parse(&text, Some(443)));
    drop(Target::named_in(&text));
}

/// Reads the configurations of an operator and of a repository. Each rejection has a message.
pub fn configuration(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let env = crate::config::Env::of([]);
    if let Err(problems) = Config::parse(Path::new("ralph.yaml"), &text, &env) {
        assert!(!problems.to_string().is_empty());
    }
    if let Err(problems) = parse_repository(".ralph.yml", &text, &Policy::default()) {
        assert!(!problems.is_empty());
    }
}

/// Reads a diff, and the changed files that it belongs to. The number of findings is limited.
pub fn diffs(data: &[u8]) {
    let diff = String::from_utf8_lossy(data);
    // The first hunk after the change, in a section that starts far above.
    let hunk = diff.split("\n@@ ").nth(1).unwrap_or_default();
    let start = hunk.split('+').nth(1).and_then(|start| start.split([',', ' ']).next()?.parse::<usize>().ok());
    let above = std::iter::once("[tool.pytest]").chain(std::iter::repeat("step = 1"));
    let kept = hunk.lines().skip(1).filter(|line| !line.starts_with('-'));
    let kept = kept.map(|line| line.get(1..).unwrap_or_default());
    let lines: Vec<&str> = above.take(start.unwrap_or(1).saturating_sub(1).min(1_000)).chain(kept).collect();
    let text = lines.join("\n").into_bytes();
    let texts = tamper::files_to_read(&diff).into_iter().map(|path| (path, text.clone())).collect();
    let found = tamper::scan(&diff, &texts, &|path| path.ends_with(".mk"), tamper::MAX_FINDINGS);
    assert!(found.len() <= tamper::MAX_FINDINGS);
}

#[cfg(test)]
mod mutations;
#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the inputs in the corpus of a target.
    pub(super) fn corpus(name: &str) -> Vec<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
        let files = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        assert!(!paths.is_empty(), "{}", folder.display());
        // The order of a folder differs between machines.
        paths.sort();
        paths.into_iter().map(|path| std::fs::read(path).unwrap()).collect()
    }

    #[test]
    fn properties_hold_for_each_corpus() {
        for (name, target) in TARGETS {
            corpus(name).iter().for_each(|input| target(input));
        }
    }
}
