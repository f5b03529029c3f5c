//! Documents that must agree with the source.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use crate::source::{report, sources};

#[test]
fn every_dependency_is_documented() {
    let (manifest, contributing) = (read("Cargo.toml"), read("CONTRIBUTING.md"));
    let table = contributing.split("## Dependencies").nth(1).expect("the table");
    let named: BTreeSet<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" |").next())
        .flat_map(|cell| cell.split(", "))
        .collect();
    let mut within = false;
    report(manifest.lines().filter_map(|line| {
        if line.starts_with('[') {
            within = line.ends_with("dependencies]");
        }
        let name = line.split([' ', '.', '=']).next().filter(|name| within && !name.is_empty())?;
        let told = name.starts_with(['[', '#']) || name.starts_with("ralph-") || named.contains(name);
        (!told).then(|| format!("CONTRIBUTING.md:1: the table of dependencies leaves out `{name}`"))
    }));
}

#[test]
fn documents_stay_short() {
    let limits = [("README.md", 100), ("ARCHITECTURE.md", 150)];
    report(limits.into_iter().filter_map(|(name, most)| {
        let lines = read(name).lines().count();
        (lines > most).then(|| format!("{name}: {lines} lines, at most {most} are allowed; link to a page in docs/"))
    }));
}

/// Decisions are numbered without gaps, have the same sections, and are in the index with title and status.
#[test]
fn decisions_have_one_form_and_are_in_the_index() {
    let index = read("docs/decisions/README.md");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/decisions");
    let pages = fs::read_dir(folder).expect("the decisions").flatten();
    let names = pages.map(|page| page.file_name().to_string_lossy().into_owned());
    let names: BTreeSet<String> = names.filter(|name| name != "README.md").collect();
    assert!(names.len() > 30, "{} decisions were found", names.len());
    report((1..).zip(&names).flat_map(|(number, name)| {
        let path = format!("docs/decisions/{name}");
        decision_faults(number, name, &read(&path), &index).into_iter().map(move |fault| format!("{path}:1: {fault}"))
    }));
}

/// Returns the faults in a decision's page.
fn decision_faults(number: usize, name: &str, text: &str, index: &str) -> Vec<String> {
    const MOST_BYTES: usize = 3_500;
    static FORM: LazyLock<Regex> = LazyLock::new(|| {
        let status = r"accepted|accepted, revised|superseded(?: in part)? by \d\d";
        let replaces = r"(?:Replaces: \d{4}(?:, \d{4})*\n\n)?";
        let sections =
            r"## Context\n\n.+\n## Decision\n\n- .+\n## Alternatives rejected\n\n- .+\n## Consequences\n\n.+\n";
        Regex::new(&format!(r"(?s)^# ([^\n]+)\n\nStatus: ({status})\n\n{replaces}{sections}$")).expect("pattern")
    });
    let mut faults = Vec::new();
    if !name.starts_with(&format!("{number:02}-")) {
        faults.push(format!("the next number is {number:02}"));
    }
    if text.len() > MOST_BYTES {
        faults.push(format!("{} bytes, at most {MOST_BYTES} are allowed", text.len()));
    }
    match FORM.captures(text) {
        None => faults.push("use title, status and sections of the other decisions".to_owned()),
        Some(page) => {
            let row = format!("- [{number:02}]({name}) {}: {}", &page[1], &page[2]);
            if !index.lines().any(|line| line == row) {
                faults.push(format!("docs/decisions/README.md has no line `{row}`"));
            }
        }
    }
    faults
}

#[test]
fn malformed_decisions_are_found() {
    let page = |status: &str, end: &str| {
        let sections = "## Context\n\nOne.\n\n## Decision\n\n- Two.\n\n## Alternatives rejected\n\n- Three.\n";
        format!("# Do it\n\nStatus: {status}\n\nReplaces: 0001, 0002\n\n{sections}\n## Consequences\n\n{end}\n")
    };
    let faults = |name: &str, text: &str| {
        let index = "- [07](07-it.md) Do it: accepted\n- [07](07-it.md) Do it: superseded in part by 12\n";
        decision_faults(7, name, text, index).len()
    };
    assert_eq!(faults("07-it.md", &page("accepted", "Four.")), 0);
    assert_eq!(faults("07-it.md", &page("superseded in part by 12", "Four.")), 0);
    assert_eq!(faults("07-it.md", &page("accepted, revised", "Four.")), 1, "another status than in the index");
    assert_eq!(faults("07-it.md", &page("proposed", "Four.")), 1);
    assert_eq!(faults("07-it.md", &page("accepted", "")), 1);
    assert_eq!(faults("07-it.md", &page("accepted", &"Four. ".repeat(600))), 1);
    assert_eq!(faults("08-it.md", &page("accepted", "Four.")), 2);
}

/// Codes of the catalogs in comments (`W3`, `D8`, `K12`) must have a row there.
#[test]
fn threat_and_fault_codes_are_in_their_catalogues() {
    static CODE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?:^|[^\w.-])((?:INV|[WPIGSKDFA])[1-9][0-9]?)\b").expect("pattern"));
    static REFERENCE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r#"(?m)^\s*//[/!] .*|kill_point\("[^"]+"\)"#).expect("pattern"));
    let catalogues = ["docs/research/threats.md", "docs/research/faults.md"].map(read).concat();
    let rows =
        catalogues.lines().filter_map(|line| line.strip_prefix("| <a id=")?.split_once("</a>")?.1.split(" |").next());
    let known: BTreeSet<&str> = rows
        .flat_map(|cell| CODE.captures_iter(cell).filter_map(|code| code.get(1)).map(|code| code.as_str()))
        .collect();
    assert!(known.len() > 50, "the catalogs list {} codes", known.len());
    let files: Vec<_> = ["src", "crates", "tests"].into_iter().flat_map(sources).collect();
    report(files.iter().filter(|file| !file.path.starts_with("tests/tidy/")).flat_map(|file| {
        let named = REFERENCE.find_iter(&file.text).flat_map(|line| CODE.captures_iter(line.as_str()));
        let unknown: BTreeSet<&str> = named
            .filter_map(|code| code.get(1))
            .map(|code| code.as_str())
            .filter(|code| !known.contains(code))
            .collect();
        unknown.into_iter().map(|code| {
            format!("{}: `{code}` is in neither docs/research/threats.md nor docs/research/faults.md", file.path)
        })
    }));
}

/// Links to rows of the catalogs, such as `docs/research/threats.md#w3`, must have a target there.
#[test]
fn links_to_threats_and_faults_have_targets() {
    static LINK: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"docs/research/(threats|faults)\.md#(\w+)").expect("pattern"));
    let [threats, faults] = ["docs/research/threats.md", "docs/research/faults.md"].map(read);
    let files: Vec<_> = ["src", "crates", "tests"].into_iter().flat_map(sources).collect();
    let mut count = 0;
    let mut broken = Vec::new();
    for file in &files {
        for link in LINK.captures_iter(&file.text) {
            count += 1;
            let page = if &link[1] == "threats" { &threats } else { &faults };
            if !page.contains(&format!("<a id=\"{}\">", &link[2])) {
                broken.push(format!("{}: `{}` has no target", file.path, &link[0]));
            }
        }
    }
    assert!(count > 100, "{count} links were found");
    report(broken.into_iter());
}

/// Relative links in documents must lead to a file of the repository.
#[test]
fn links_between_documents_have_targets() {
    static LINK: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\]\(([\w./-]+\.\w+)(?:#[\w.-]*)?\)").expect("pattern"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.to_owned(), root.join("docs"), root.join("deploy")];
    let (mut count, mut broken) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of documents").flatten() {
            let path = entry.path();
            if path.is_dir() && folder != root {
                folders.push(path);
                continue;
            }
            if path.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let text = fs::read_to_string(&path).expect("a document is readable text");
            let links = LINK.captures_iter(&text).map(|link| link[1].to_owned()).collect::<Vec<_>>();
            count += links.len();
            let missing = links.iter().filter(|link| !folder.join(link).exists());
            broken.extend(missing.map(|link| format!("{}: there is no `{link}`", path.display())));
        }
    }
    assert!(count > 100, "{count} links were found");
    report(broken.into_iter());
}

/// The diagrams in the tour must show all states of a loop and all crates, and each arrow between crates must be a
/// dependency.
#[test]
fn diagrams_of_the_tour_agree_with_the_source() {
    let regex = |pattern: &str| Regex::new(pattern).expect("pattern");
    let state = regex(r#"Self::\w+ => "(\w+)""#);
    let node = regex(r#"([\w-]+)\[""#);
    let arrow = regex(r#"(?m)^ *([\w-]+|\[\*\])(?:\[".*?"\])? --> ([\w-]+|\[\*\])"#);
    let tour = read("docs/guides/tour.md");
    let diagram = |kind: &str| {
        let start = tour.split("```mermaid\n").find(|part| part.starts_with(kind)).expect("a diagram");
        start.split("```").next().unwrap_or_default().to_owned()
    };
    let names = |pattern: &Regex, text: &str| -> BTreeSet<String> {
        pattern.captures_iter(text).map(|found| found[1].to_owned()).collect()
    };

    let states = diagram("stateDiagram");
    let ends = arrow.captures_iter(&states).flat_map(|found| [found[1].to_owned(), found[2].to_owned()]);
    let shown: BTreeSet<String> = ends.filter(|name| name != "[*]" && name != "open").collect();
    assert_eq!(shown, names(&state, &read("crates/core/src/domain/loops/state.rs")), "states of a loop");

    let crates = diagram("flowchart");
    let folders = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("crates")).expect("the crates").flatten();
    let mut members: BTreeSet<String> =
        folders.map(|folder| folder.file_name().to_string_lossy().into_owned()).collect();
    members.insert("program".to_owned());
    assert_eq!(names(&node, &crates), members, "crates");
    report(arrow.captures_iter(&crates).filter_map(|found| {
        let (from, to) = (&found[1], &found[2]);
        let folder = if from == "program" { String::new() } else { format!("crates/{from}/") };
        let manifest = read(&format!("{folder}Cargo.toml"));
        let uses = manifest.split("\n[dependencies]\n").nth(1)?.split("\n[").next()?;
        let mut used = uses.lines().filter_map(|line| line.split([' ', '.', '=']).next());
        let to_crate = if to == "program" { "bot" } else { to };
        let is_used = used.any(|name| name == to_crate || name.strip_prefix("ralph-") == Some(to_crate));
        (!is_used).then(|| format!("docs/guides/tour.md: {from} does not use {to}"))
    }));
}

/// A docstring of a test, or of shared test code, must name each row in the catalog of threats. A row without a test must
/// say so: `not tested, because …`.
#[test]
fn each_threat_has_a_test() {
    let page = read("docs/research/threats.md");
    let files: Vec<_> = ["src", "crates", "tests"].into_iter().flat_map(sources).collect();
    let rows: Vec<(&str, &str)> =
        page.lines().filter_map(|line| line.strip_prefix("| <a id=\"")?.split_once("\"></a>")).collect();
    assert!(rows.len() > 80, "the catalogue has {} rows", rows.len());
    let is_named = |id: &str| {
        let pattern = Regex::new(&format!(r"docs/research/threats\.md#{id}\b")).expect("pattern");
        files.iter().any(|file| pattern.is_match(&file.text))
    };
    let bare = rows.iter().filter(|(id, row)| !row.contains("not tested, because") && !is_named(id));
    report(bare.map(|(id, _)| format!("docs/research/threats.md#{id}: no test has a link to it")));
}

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect("a document is readable text")
}
