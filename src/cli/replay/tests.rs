//! Replays of small traces, with the output that people see.

use std::path::{Path, PathBuf};

use super::*;
use crate::domain::supervision::SupervisionSettings;
use crate::domain::supervision::replay::Trace;

/// Removes colors from a text.
fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

fn line(iteration: u32, completion: f64) -> String {
    format!(
        "{{\"iteration\":{iteration},\"completion\":{completion},\"error_signature\":\"E0308\",\"tree\":\"{iteration}\"}}\n"
    )
}

fn reviews(completions: &[f64]) -> Vec<(Record, SupervisionReview)> {
    let text: String = (1..).zip(completions).map(|(iteration, completion)| line(iteration, *completion)).collect();
    Trace::parse(&text).unwrap().reviews(&SupervisionSettings::default()).collect()
}

/// Creates a folder with files.
fn folder(files: &[(&str, &str)]) -> (tempfile::TempDir, impl Fn(&str) -> PathBuf + use<>) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let path = folder.path().to_path_buf();
    (folder, move |name| path.join(name))
}

fn refused<T>(result: Result<T, CliError>, folder: &Path) -> String {
    let Err(CliError::Usage(text)) = result else { panic!("it was taken") };
    format!("{text:#}").replace(&format!("{}/", folder.display()), "")
}

#[test]
fn table_has_one_row_per_iteration_and_totals() {
    insta::assert_snapshot!(plain(&table::text(&reviews(&[0.2; 5]), true)), @r"
          done     P     I      D     u  trend       profile      left  strategy  detections: action
       1  20 %  0.80  0.80  +0.00  0.52  stable      standard        -  persist
       2  20 %  0.80  1.52  +0.00  0.63  stable      standard        -  persist
       3  20 %  0.80  2.17  +0.00  0.73  stable      standard        -  persist
       4  20 %  0.80  2.75  +0.00  1.00  stable      recovery        -  persist   (critical stuck_loop)
       5  20 %  0.80  3.28  +0.00  1.00  stable      recovery        -  pivot     high stuck: REDIRECT, (critical stuck_loop)

    5 iterations; would continue
        alarms raised: stuck_loop 1
           severities: critical 1
          recommended: adjust 3, pause 2
           detections: stuck 1
        interventions: redirect 1
    ");
}

#[test]
fn invalid_traces_are_reported_with_file_and_line() {
    let (folder, file) = folder(&[
        ("broken.jsonl", "{\"iteration\": 1}\n{\"errors\": \"three\"}\n"),
        ("empty.jsonl", "{\"max_iterations\": 3}\n"),
        ("typo.yaml", "control:\n  base_profle: x\n"),
        ("range.yaml", "control: {slide_iterations: 0, stuck_iterations: 9}\noversight: {redirects: 0}\n"),
        ("other.yaml", "oversite: {}\n"),
        ("strategy.yaml", "strategy: {escalation_threshold: soon}\n"),
        ("broken.yaml", "control: [\n"),
    ]);
    std::fs::write(file("latin.jsonl"), b"{}\n{\"task\": \"\xe4\"}\n").unwrap();
    let mut refusals: Vec<String> = ["broken.jsonl", "empty.jsonl", "latin.jsonl", "missing.jsonl", ""]
        .iter()
        .map(|name| refused(read::trace(&file(name)), folder.path()))
        .collect();
    refusals.extend(
        ["typo.yaml", "range.yaml", "other.yaml", "strategy.yaml"]
            .iter()
            .map(|name| refused(read::settings_of(&file(name)), folder.path())),
    );
    insta::assert_snapshot!(refusals.join("\n").replace(&folder.path().display().to_string(), "FOLDER"), @r#"
    broken.jsonl: line 2: `errors`: invalid type: string "three", expected f64
    empty.jsonl: the trace is empty
    latin.jsonl: line 2: invalid UTF-8
    missing.jsonl: could not read: No such file or directory (os error 2)
    : expected a file, found a folder
    typo.yaml: `control.base_profle` is "x"; there is no such key; did you mean `base_profile`?
    range.yaml: `control.stuck_iterations` is 9; it must be at most 5; `oversight.redirects` is 0; it must be between 1 and 100
    other.yaml: the file has none of the keys preset, control, oversight, strategy
    strategy.yaml: `strategy.escalation_threshold` is "soon"; expected a non-negative whole number
    "#);
    assert!(refused(read::settings_of(&file("broken.yaml")), folder.path()).starts_with("broken.yaml: "));
}

#[test]
fn settings_file_overrides_defaults() {
    let (_folder, file) = folder(&[
        (
            "a.yaml",
            "control: {stuck_iterations: 4, window: 7}\noversight: {stuck: {no_progress_iterations: 12}}\nstrategy: {escalation_threshold: 9}\n",
        ),
        ("empty.yaml", ""),
        ("operator.yaml", "forges:\n  - { name: work, kind: gitea }\nlimits: { iterations: 5 }\n"),
    ]);
    let settings = read::settings_of(&file("a.yaml")).unwrap().unwrap();
    let mut expected = SupervisionSettings::default();
    expected.control.stuck_iterations = 4;
    expected.oversight.stuck.no_progress_iterations = 12;
    expected.strategy.escalation_threshold = 9;
    expected.strategy.limit_share = 0.0;
    assert_eq!(settings, expected, "a key that was removed has no effect");
    assert_eq!(read::settings_of(&file("empty.yaml")).unwrap(), None);
    assert_eq!(read::settings_of(&file("operator.yaml")).unwrap(), None, "the file of a service that sets none");
}

#[test]
fn charts_contain_every_series_and_mark() {
    let reviews = reviews(&[0.2, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3]);
    let svg = chart::svg("a <loop> & more", &reviews).unwrap();
    for word in ["completion", "control signal u", "kp", "ki", "kd", "I ", "D ", "stuck", "REDIRECT", "PAUSE"] {
        assert!(svg.contains(word), "{word}");
    }
    assert!(svg.starts_with("<svg") && svg.contains("a &lt;loop&gt; &amp; more"), "{svg}");
    assert!(chart::svg("", &[]).is_ok());
}

#[test]
fn traces_of_a_folder_are_sorted_by_name() {
    let (_folder, file) = folder(&[("b.jsonl", &line(1, 0.5)), ("a.jsonl", &line(1, 1.0)), ("notes.txt", "no trace")]);
    let names: Vec<String> = read::traces(&file("")).unwrap().into_iter().map(|one| one.name).collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn argument_like_an_id_is_a_loop() {
    let (_folder, file) = folder(&[("r-1-aaaaaa", "{}")]);
    assert_eq!(loop_id(Path::new("r-1-aaaaaa")), Some("r-1-aaaaaa"));
    assert_eq!(loop_id(&file("r-1-aaaaaa")), None);
    assert_eq!(loop_id(Path::new("missing.jsonl")), None);
    assert_eq!(loop_id(Path::new("folder/r-1-aaaaaa")), None);
}
