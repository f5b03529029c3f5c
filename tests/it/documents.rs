//! Documents for people: the commands with their options, metrics with their labels, alerts, headings and keys of the configuration that they
//! name exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use clap::Parser;
use clap::error::ErrorKind;
use ralph_bot::cli::Cli;
use ralph_bot::config::schema;
use regex::Regex;
use serde_json::Value;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern")
}

/// Documents for people who use or run the service, by their path.
fn documents() -> BTreeMap<String, String> {
    let pages = ["guides", "reference", "research"].into_iter().flat_map(|group| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(group);
        let entries = std::fs::read_dir(folder).expect("the documents");
        let names = entries.filter_map(|entry| entry.expect("an entry").file_name().into_string().ok());
        names.filter(|name| name.ends_with(".md")).map(move |name| format!("docs/{group}/{name}"))
    });
    let others = ["README.md", "RUNBOOK.md", "SECURITY.md", "deploy/README.md", "deploy/helm/ralph-bot/README.md"];
    others.map(str::to_owned).into_iter().chain(pages).map(|path| (path.clone(), read(&path))).collect()
}

/// Lines of code in a document.
fn code_lines(text: &str) -> Vec<&str> {
    let mut fenced = false;
    let is_code = |line: &&str| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        !is_fence && (fenced || line.starts_with("    "))
    };
    text.lines().filter(is_code).collect()
}

/// Arguments of `ralph-bot` in a line of shell, up to the end of its command; `None` if the line does not call it.
fn called(line: &str) -> Option<&str> {
    let command = line.split(" #").next()?.trim_start();
    let after = command.strip_prefix("ralph-bot ").or_else(|| {
        let at = command.rfind(" ralph-bot ")?;
        // Others have the name as an argument: `systemctl restart ralph-bot`, `--user ralph-bot`. In a container it is the program of
        // the service with this name.
        let last = command[..at].split_whitespace().next_back()?;
        ["as_service", "sudo", "--", "ralph-bot", "--use-aliases"]
            .contains(&last)
            .then(|| &command[at + " ralph-bot ".len()..])
    })?;
    after.split([';', '|', '>', '&']).next()
}

/// Arguments in the code of a paragraph: each alternative of `loops [list|show]` and `TRACE|LOOP`.
fn alternatives(code: &str) -> Vec<String> {
    let code = code.replace("\\|", "|");
    let Some(arguments) = code.strip_prefix("as_service ").unwrap_or(&code).strip_prefix("ralph-bot ") else {
        return Vec::new();
    };
    let group = pattern(r"\[([^\]|]+(?:\|[^\]|]+)+)\]|([A-Z]+(?:\|[A-Z]+)+)");
    match group.captures(arguments) {
        None => vec![arguments.to_owned()],
        Some(found) => {
            let each = found.get(1).or(found.get(2)).expect("one of them").as_str().split('|');
            each.map(|one| arguments.replace(&found[0], one)).collect()
        }
    }
}

fn parse(arguments: &str) -> Result<(), clap::Error> {
    let word = pattern(r#""[^"]*"|'[^']*'|\S+"#);
    let words = word.find_iter(arguments).map(|word| word.as_str().trim_matches(['"', '\'']));
    match Cli::try_parse_from(std::iter::once("ralph-bot").chain(words)) {
        Err(error) if !matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => Err(error),
        _ => Ok(()),
    }
}

/// The command line accepts the commands of code blocks unchanged.
#[test]
fn commands_in_code_are_accepted() {
    let substitution = pattern(r"\$\([^()]*\)");
    let mut checked = BTreeMap::<String, usize>::new();
    for (path, text) in documents() {
        for line in code_lines(&text) {
            let line = substitution.replace_all(line, "SUBSTITUTED");
            // One that names no subcommand is a list of them.
            let Some(arguments) = called(&line).filter(|arguments| !arguments.contains('…')) else { continue };
            if let Err(error) = parse(arguments) {
                panic!("{path} has `ralph-bot {arguments}`: {error}");
            }
            *checked.entry(path.clone()).or_default() += 1;
        }
    }
    assert!(checked["RUNBOOK.md"] >= 25 && checked["deploy/README.md"] >= 2 && checked.len() >= 5, "{checked:?}");
}

/// Commands that sentences and tables mention have these subcommands and options; required ones may be omitted.
#[test]
fn commands_in_sentences_exist() {
    let code = pattern(r"`([^`\n]+)`");
    let placeholder = pattern(r"\b[A-Z]{2,}\b");
    let mut checked = BTreeSet::new();
    for (path, text) in documents() {
        for arguments in code.captures_iter(&text).flat_map(|found| alternatives(&found[1])) {
            if arguments.starts_with(['…', '<']) || arguments.starts_with("COMMAND") {
                continue;
            }
            let arguments = arguments.replace('…', "");
            if let Err(error) = parse(&arguments) {
                let is_shortened = match error.kind() {
                    ErrorKind::MissingRequiredArgument
                    | ErrorKind::MissingSubcommand
                    | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => true,
                    ErrorKind::InvalidValue | ErrorKind::ValueValidation => placeholder.is_match(&arguments),
                    _ => false,
                };
                assert!(is_shortened, "{path} has `ralph-bot {arguments}`: {error}");
            }
            checked.insert(arguments);
        }
    }
    assert!(checked.len() >= 40, "{checked:?}");
}

/// Metrics of `docs/reference/metrics.md`, which is made from their declarations, with their labels; of histograms also the series.
fn metrics() -> BTreeMap<String, BTreeSet<String>> {
    let row = pattern(r"(?m)^\| `(ralph_\w+)` \| (\w+) \| ([^|]*) \|");
    let label = pattern("`([^`]+)`");
    let page = read("docs/reference/metrics.md");
    row.captures_iter(&page)
        .flat_map(|found| {
            let labels: BTreeSet<String> = label.captures_iter(&found[3]).map(|one| one[1].to_owned()).collect();
            let series = if &found[2] == "histogram" { vec!["", "_bucket", "_sum", "_count"] } else { vec![""] };
            series.into_iter().map(move |suffix| (format!("{}{suffix}", &found[1]), labels.clone())).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn metrics_in_documents_exist_with_their_labels() {
    let metrics = metrics();
    let named = pattern(r"\b(ralph_[a-z_]*[a-z])(?:\{([^}]*)\})?");
    let label = pattern(r#"(\w+)(?:=|!=|=~|!~)""#);
    // The program as Rust calls it, and a program of an agent.
    let others = ["ralph_bot", "ralph_file_edited"];
    let mut checked = 0;
    for (path, text) in documents() {
        for found in named.captures_iter(&text).filter(|found| !others.contains(&&found[1])) {
            let labels = metrics.get(&found[1]).unwrap_or_else(|| panic!("{path}: there is no metric {}", &found[1]));
            for used in found.get(2).into_iter().flat_map(|all| label.captures_iter(all.as_str())) {
                assert!(labels.contains(&used[1]), "{path}: {} has no label {}", &found[1], &used[1]);
            }
            checked += 1;
        }
    }
    assert!(checked >= 48, "{checked}");
}

/// Sections of RUNBOOK.md by the anchor of their heading.
fn runbook() -> BTreeMap<String, String> {
    let page = read("RUNBOOK.md");
    let section = |part: &str| {
        let title = part.lines().next().unwrap_or_default();
        (title.to_lowercase().replace(' ', "-").replace(',', ""), part.to_owned())
    };
    page.split("\n## ").skip(1).map(section).collect()
}

#[test]
fn runbook_links_of_alerts_and_units_have_headings() {
    let sections = runbook();
    let link = pattern(r"RUNBOOK\.md#([a-z-]+)");
    let units = ["ralph-bot.service", "ralph-bot-backup.service"].map(|name| format!("deploy/systemd/{name}"));
    let mut linked = BTreeSet::new();
    for path in units.into_iter().chain(["deploy/prometheus/alerts.yml".to_owned()]) {
        for found in link.captures_iter(&read(&path)) {
            assert!(sections.contains_key(&found[1]), "{path}: RUNBOOK.md has no heading #{}", &found[1]);
            linked.insert(found[1].to_owned());
        }
    }
    assert!(linked.len() >= 9, "{linked:?}");
    for needed in ["install", "upgrade", "roll-back", "rotate-secrets", "move-to-another-host"] {
        assert!(sections.contains_key(needed), "RUNBOOK.md has no heading #{needed}");
    }
}

/// Each section has the symptoms, the places to look at, and the commands.
#[test]
fn sections_of_the_runbook_have_symptoms_and_commands() {
    let sections = runbook();
    for (anchor, section) in &sections {
        assert!(section.contains("\nSymptoms"), "the section #{anchor} of RUNBOOK.md names no symptoms");
        assert!(section.contains("```sh"), "the section #{anchor} of RUNBOOK.md has no commands");
        let looks = ["Look at", "journalctl", "as_service ralph-bot", "/metrics"];
        assert!(looks.iter().any(|look| section.contains(look)), "the section #{anchor} says nothing to look at");
    }
    assert!(sections.len() >= 14, "{:?}", sections.keys());
}

/// Each drill named in the runbook is a test.
#[test]
fn drills_of_the_runbook_are_tests() {
    let page = read("RUNBOOK.md");
    let name = pattern(r"`([a-z0-9]+(?:_[a-z0-9]+){3,})`");
    let drills = page.split("\n\n").filter(|part| part.starts_with("Drill"));
    let named: BTreeSet<String> =
        drills.flat_map(|part| name.captures_iter(part).map(|found| found[1].to_owned())).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files =
        ["tests/it", "tests/slow", "tests/attack"].map(|folder| std::fs::read_dir(root.join(folder)).expect(folder));
    let sources = files.into_iter().flatten().flatten().filter_map(|file| std::fs::read_to_string(file.path()).ok());
    let sources: String = sources.collect();
    for drill in &named {
        assert!(sources.contains(&format!("async fn {drill}(")), "RUNBOOK.md: there is no test {drill}");
    }
    assert!(named.len() >= 16, "{named:?}");
}

/// The section that an alert links to contains the alert's name and meaning.
#[test]
fn alerts_are_in_their_sections_of_the_runbook() {
    let sections = runbook();
    let rules = read("deploy/prometheus/alerts.yml");
    let rule = pattern(r"(?s)- alert: (\w+)\n.*?RUNBOOK\.md#([a-z-]+)");
    let alerts: BTreeMap<&str, &str> = rule
        .captures_iter(&rules)
        .map(|found| (found.get(1).expect("a name").as_str(), found.get(2).expect("a link").as_str()))
        .collect();
    assert_eq!(alerts.len(), rules.matches("- alert: ").count());
    for (alert, anchor) in &alerts {
        let section = sections.get(*anchor).unwrap_or_else(|| panic!("{alert} links to #{anchor}"));
        assert!(section.contains(&format!("`{alert}`")), "the section #{anchor} does not name {alert}");
    }
    let named = pattern(r"\bRalph[A-Z]\w+");
    let page = read("RUNBOOK.md");
    for found in named.find_iter(&page) {
        assert!(alerts.contains_key(found.as_str()), "RUNBOOK.md: there is no alert {}", found.as_str());
    }
    let head = page.split("\n## ").next().expect("the beginning");
    for (alert, anchor) in &alerts {
        let row = head.lines().find(|line| line.contains(&format!("`{alert}`")));
        assert!(
            row.is_some_and(|row| row.contains(&format!("(#{anchor})"))),
            "the table of alerts: {alert}, #{anchor}"
        );
    }
}

/// Whether a schema has a value at this path.
fn has(schema: &Value, at: &Value, path: &[&str]) -> bool {
    let Some((key, rest)) = path.split_first() else { return true };
    let referred = at["$ref"].as_str().and_then(|to| schema.pointer(to.trim_start_matches('#')));
    let branches = ["anyOf", "oneOf", "allOf"].into_iter().flat_map(|word| at[word].as_array().into_iter().flatten());
    at["properties"].get(key).is_some_and(|next| has(schema, next, rest))
        || referred.into_iter().chain(branches).any(|next| has(schema, next, path))
        || (at["additionalProperties"].is_object() && has(schema, &at["additionalProperties"], rest))
}

#[test]
fn keys_of_the_configuration_exist() {
    let schemas = [schema::operator(), schema::repository()];
    let key = pattern(r"`([a-z_]+(?:\.[a-z_]+)+)(?:: [^`]*)?`");
    // Values of the chart, and events for channels.
    let chart = read("deploy/helm/ralph-bot/README.md");
    let is_other = |key: &str| {
        chart.contains(&format!("\n| {key} | ")) || ["escalation.raised", "escalation.reminder"].contains(&key)
    };
    let mut checked = BTreeSet::new();
    for (path, text) in documents() {
        for found in key.captures_iter(&text) {
            let parts: Vec<&str> = found[1].split('.').collect();
            // Names of files and of other programs' settings start with no key.
            let is_key = schemas.iter().any(|schema| schema["properties"].get(parts[0]).is_some());
            if !is_key || is_other(&found[1]) {
                continue;
            }
            let known = schemas.iter().any(|schema| has(schema, schema, &parts));
            assert!(known, "{path}: there is no key `{}`", &found[1]);
            checked.insert(found[1].to_owned());
        }
    }
    assert!(checked.len() >= 30, "{checked:?}");
}
