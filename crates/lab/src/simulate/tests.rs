//! Tests of the simulation's output.

use super::*;

fn small(name: &str) -> MixFigures {
    let mix = Mix::named(name).expect("a mix");
    simulate_mix(&mix, &SupervisionSettings::default(), 1, 30, true)
}

#[test]
fn table_lists_every_policy_and_part() {
    let figures = small("everyday");
    let mut text = String::new();
    table(&mut text, &figures);
    let text = anstream::adapter::strip_str(&text).to_string();
    assert_eq!(text.lines().count(), 2 + figures.policies.len() + figures.parts.len() + 1);
    for name in ["limit of 10", "stall rule", "ours", "  without fresh sessions", "oracle"] {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name}\n{text}");
    }
    // Each value has half its interval's width; the gap has both ends.
    let ours = text.lines().find(|line| line.starts_with("ours ")).unwrap();
    assert_eq!((ours.matches(" ± ").count(), ours.matches(" to ").count()), (8, 1), "{ours}");
    assert_eq!(about(IntervalEstimate { value: 17.84, low: 17.3, high: 18.5 }, 1), "17.8 ± 0.6");
    let json = serde_json::to_value(&figures).unwrap();
    assert!(json["parts"][0]["brings"]["low"].is_number() && json["parts"][0]["policy"].is_string());
    // Parts that are disabled by default are added and change the results.
    let tone = figures.parts.iter().find(|part| part.figures.policy == "with tone").unwrap();
    assert_ne!(tone.brings, IntervalEstimate::default());
}

#[test]
fn page_has_assumptions_targets_and_figures() {
    let args =
        SimulateArgs { tasks: 30, seed: 1, mix: Vec::new(), brief: false, markdown: None, config: None, json: false };
    let mixes: Vec<MixFigures> = HELD_OUT.iter().map(|name| small(name)).collect();
    let page = page::markdown(&args, &mixes, &SupervisionSettings::default());
    for heading in ["Targets", "gentle", "hopeless", "shifty", "Value of each part", "The model", "Defaults that were"]
    {
        assert!(page.contains(&format!("\n## {heading}")), "{heading}");
    }
    assert!(page.contains("lab -- simulate --tasks 30 --seed 1 --markdown docs/research/simulation.md"), "{page}");
    assert!(!page.contains("NaN") && !page.contains(" inf"));
    let row =
        |begins: &str| page.lines().find(|line| line.starts_with(begins)).unwrap_or_else(|| panic!("{begins}: {page}"));
    assert_eq!(row("| ours | ").matches(" ± ").count(), 10);
    assert_eq!(row("| without stuck |").matches(" to ").count(), mixes.len());
    assert!(row("| without all actuators |").matches("+0.00 (+0.00 to +0.00)").count() < mixes.len());

    // The published page differs from this page only in its figures.
    let (published, expected) = (without_figures(&published()), without_figures(&page));
    for (at, (published, expected)) in published.iter().zip(&expected).enumerate() {
        assert_eq!(published, expected, "line {} of docs/research/simulation.md; {REWRITE}", at + 1);
    }
    assert_eq!(published.len(), expected.len(), "docs/research/simulation.md has another length; {REWRITE}");
}

const REWRITE: &str = "write it anew: `cargo run --release -p lab -- simulate --markdown docs/research/simulation.md`";
/// Number of tasks per mix, and seed, of the published page.
const PUBLISHED: (u64, u64) = (1000, 1);

fn published() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/research/simulation.md");
    std::fs::read_to_string(file).expect("the published page")
}

/// Returns the lines of a page without figures: rows keep only the name and the number of cells, and numbers of tasks are
/// removed.
fn without_figures(page: &str) -> Vec<String> {
    const EXACT: [&str; 3] = ["## Interpretation", "## The model", "## Defaults that were changed"];
    let mut exact = false;
    let line = |line: &str| {
        if line.starts_with("## ") {
            exact = EXACT.contains(&line);
        }
        if line.starts_with('|') && !exact {
            let name = line.split('|').nth(1).unwrap_or_default().trim();
            return format!("{name}, {} cells", line.matches('|').count());
        }
        match line.split_once(" --tasks ") {
            Some((before, after)) => format!("{before} {}", after.trim_start_matches(|c: char| c.is_ascii_digit())),
            None if line.ends_with(" tasks.") && !exact => "tasks.".to_owned(),
            None => line.to_owned(),
        }
    };
    page.lines().map(line).collect()
}

/// If supervision or its defaults change, these figures change, and the page must be regenerated.
#[test]
fn published_figures_match_this_version() {
    let (tasks, seed) = PUBLISHED;
    let page = published();
    assert!(
        page.contains(&format!("simulate --tasks {tasks} --seed {seed} --markdown")),
        "another number of tasks or seed"
    );
    let settings = SupervisionSettings::default();
    let mix = Mix::named("gentle").expect("a mix");
    let play = |policy: &TaskPolicy| play_all(&mix, policy, seed, tasks);
    let (_, ours) = contenders(&settings).into_iter().find(|(name, _)| name == OURS).expect("the pipeline");
    let figures = policy_figures(OURS, &play(&ours), &play(&TaskPolicy::Limit(10)), &play(&TaskPolicy::Oracle), &mix);
    let (_, section) = page.split_once("\n## gentle\n").expect("the mix");
    let (section, _) = section.split_once("\n## ").expect("the next mix");
    let row = section.lines().find(|line| line.starts_with("| ours |")).expect("a row");
    assert_eq!(row, page::policy_row(&figures), "{REWRITE}");
}

#[test]
fn changed_defaults_have_reasons() {
    let reasons = page::reasons();
    let changed: Vec<String> = page::differences().into_iter().map(|(key, ..)| key).collect();
    let without: Vec<&String> = changed.iter().filter(|key| !reasons.contains(&key.as_str())).collect();
    let unused: Vec<&&str> = reasons.iter().filter(|key| !changed.iter().any(|changed| changed == **key)).collect();
    assert!(
        without.is_empty() && unused.is_empty(),
        "without a reason: {without:?}; reasons without a change: {unused:?}"
    );
}

#[test]
fn mix_is_loaded_by_name_or_from_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let mine = load_mix(&file("mine.yaml", "name: mine\nkinds: {slow: 1}\nagent: {flaky: 0.5}\n")).unwrap();
    assert_eq!((mine.name.as_str(), mine.kinds.len(), mine.agent.flaky), ("mine", 1, 0.5));
    assert_eq!(mine.values, Mix::default().values);
    assert_eq!(load_mix("rough").unwrap(), Mix::named("rough").unwrap());
    let refused = |name: &str| format!("{:#}", load_mix(name).expect_err(name));
    assert!(refused("nowhere").contains("one of the mixes everyday, rough"));
    assert!(refused(&file("typo.yaml", "agent: {flakey: 1}\n")).contains("flakey"));
    assert!(refused(&file("range.yaml", "max_iterations: 0\n")).ends_with("it must be between 1 and 1000"));
}
