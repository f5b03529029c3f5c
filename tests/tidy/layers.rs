//! Directions between modules: between the library's top-level modules, and between the folders of `domain`.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use crate::source::{SourceFile, library, line_of, report, source};

/// Top-level modules, each with the modules that it may use; `*` means all. A new top-level module needs a new row.
const LAYERS: [(&str, &[&str]); 24] = [
    ("main", &["*"]),
    ("app", &["*"]),
    ("cli", &["*"]),
    ("fuzzing", &["*"]),
    (
        "setup",
        &[
            "app",
            "web",
            "agent",
            "engine",
            "http",
            "net",
            "config",
            "forge",
            "store",
            "domain",
            "clock",
            "telemetry",
            "process",
        ],
    ),
    ("http", &["store", "forge", "domain", "clock", "telemetry", "config"]),
    ("web", &["engine", "render", "store", "forge", "agent", "domain", "clock", "telemetry", "config", "net"]),
    (
        "engine",
        &[
            "domain",
            "render",
            "store",
            "forge",
            "agent",
            "provider",
            "workspace",
            "checks",
            "process",
            "clock",
            "config",
            "telemetry",
            "channels",
            "mcp",
            "embed",
        ],
    ),
    ("forge", &["domain", "clock", "process", "net"]),
    ("agent", &["domain", "clock", "process", "net"]),
    ("provider", &["domain", "clock", "process", "net"]),
    ("workspace", &["domain", "clock", "process"]),
    ("checks", &["domain", "clock", "process"]),
    ("store", &["domain", "clock", "process", "net"]),
    ("mcp", &["domain", "store"]),
    ("channels", &["domain", "clock", "process", "net"]),
    ("embed", &["domain"]),
    ("render", &["domain"]),
    ("domain", &[]),
    ("process", &["clock", "domain"]),
    ("net", &["domain"]),
    ("config", &["domain", "agent"]),
    ("clock", &["domain"]),
    ("telemetry", &["domain", "clock", "config", "net"]),
];

/// Folders of `domain`, each with the folders that it may use. A new folder needs a new row.
const DOMAIN_FOLDERS: [(&str, &[&str]); 9] = [
    ("model", &[]),
    ("checks", &["model"]),
    ("supervision", &["model", "checks"]),
    ("providers", &["model", "checks", "supervision"]),
    ("trust", &["model", "checks", "supervision", "providers"]),
    ("loops", &["model", "checks", "supervision", "providers", "trust"]),
    ("report", &["model", "checks", "supervision", "providers", "trust", "loops"]),
    ("knowledge", &["model", "checks", "supervision", "providers", "trust", "loops", "report"]),
    ("lifecycle", &["model", "checks", "supervision", "providers", "trust", "loops", "report", "knowledge"]),
];

#[test]
fn layers_use_only_lower_layers() {
    report(library().iter().flat_map(layer_faults));
}

#[test]
fn super_paths_stay_in_their_layer() {
    report(library().iter().flat_map(super_faults));
}

#[test]
fn domain_folders_use_only_earlier_folders() {
    report(library().iter().flat_map(folder_faults));
}

/// Returns a file's top-level module.
fn layer(file: &SourceFile) -> &str {
    let inner = file.inner();
    inner.split(['/', '.']).next().unwrap_or(inner)
}

fn layer_faults(file: &SourceFile) -> Vec<String> {
    let layer_name = layer(file);
    if file.is_test || layer_name == "lib" {
        return Vec::new();
    }
    let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == layer_name) else {
        return vec![format!(
            "{}:1: `{layer_name}` is no known layer; give it a row in LAYERS of tests/tidy/layers.rs",
            file.path
        )];
    };
    let mut faults = Vec::new();
    for (line, named) in edges(&ROOT, &file.code) {
        let known = LAYERS.iter().any(|(name, _)| *name == named);
        if known && named != layer_name && !allowed.contains(&"*") && !allowed.contains(&named.as_str()) {
            let may = if allowed.is_empty() { "nothing else".to_owned() } else { allowed.join(", ") };
            faults.push(format!(
                "{}:{line}: `{layer_name}` must not name `{named}` (it may name {may}); move the type to `domain`, or let the \
                 caller pass what is needed",
                file.path
            ));
        }
    }
    faults
}

fn folder_faults(file: &SourceFile) -> Vec<String> {
    let Some(inner) = file.inner().strip_prefix("domain/").filter(|_| !file.is_test) else { return Vec::new() };
    let own = inner.split(['/', '.']).next().unwrap_or(inner);
    let Some((_, allowed)) = DOMAIN_FOLDERS.iter().find(|(name, _)| *name == own) else {
        return vec![format!("{}:1: `domain::{own}` has no row in DOMAIN_FOLDERS of tests/tidy/layers.rs", file.path)];
    };
    let named = edges(&DOMAIN, &file.code).into_iter();
    named
        .filter(|(_, named)| named != own && !allowed.contains(&named.as_str()))
        .map(|(line, named)| {
            format!(
                "{}:{line}: `domain::{own}` must not name `domain::{named}`, which comes after it; move the value down \
                 or the behavior up",
                file.path
            )
        })
        .collect()
}

/// Pattern of paths to top-level modules.
static ROOT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b(?:crate|ralph_bot)\s*::\s*").expect("pattern"));
/// Pattern of paths to folders of `domain`.
static DOMAIN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b(?:crate|ralph_bot)\s*::\s*domain\s*::\s*").expect("pattern"));

/// Returns the modules named directly after `root`, each with its line; expands groups.
fn edges(root: &Regex, code: &str) -> BTreeSet<(usize, String)> {
    static NAME: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^[a-z_][a-z0-9_]*").expect("pattern"));
    let mut found = BTreeSet::new();
    for root in root.find_iter(code) {
        let rest = &code[root.end()..];
        let mut add = |at: usize| {
            let at = at + rest[at..].len() - rest[at..].trim_start().len();
            if let Some(name) = NAME.find(&rest[at..]) {
                found.insert((line_of(code, root.end() + at), name.as_str().to_owned()));
            }
        };
        if !rest.starts_with('{') {
            add(0);
            continue;
        }
        let mut depth = 0;
        for (at, character) in rest.char_indices() {
            match character {
                '{' => {
                    depth += 1;
                    if depth == 1 {
                        add(at + 1);
                    }
                }
                '}' => depth -= 1,
                ',' if depth == 1 => add(at + 1),
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    found
}

fn super_faults(file: &SourceFile) -> Vec<String> {
    static SUPERS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b(?:super\s*::\s*)+").expect("pattern"));
    static INLINE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^(\s*)(?:pub(?:\([^)]*\))? )?mod \w+ \{\s*$").expect("pattern"));
    // src/a.rs is one module below the root, src/a/b.rs two.
    let depth = file.path.matches('/').count();
    let mut open: Vec<usize> = Vec::new();
    let mut faults = Vec::new();
    for (number, line) in file.code.lines().enumerate() {
        let indentation = line.len() - line.trim_start().len();
        if line.trim() == "}" && open.last() == Some(&indentation) {
            open.pop();
        }
        let ups = SUPERS.find_iter(line).map(|found| found.as_str().matches("super").count()).max().unwrap_or(0);
        if ups >= depth + open.len() && ups > 0 {
            faults.push(format!(
                "{}:{}: this `super::` leaves the layer `{}`; write `crate::…`, so that the layers can be seen",
                file.path,
                number + 1,
                layer(file)
            ));
        }
        if INLINE.is_match(line) {
            open.push(indentation);
        }
    }
    faults
}

#[test]
fn layer_violations_are_found() {
    let cases = [
        ("src/forge.rs", "use crate::domain::model::ids::Sha;", 0),
        ("src/forge.rs", "use crate::store::Store;", 1),
        ("src/forge/http.rs", "fn f() { crate::engine::go() }", 1),
        ("src/checks.rs", "use crate::{\n    domain::{ids::Sha, task},\n    agent::{self, store},\n};", 1),
        ("src/domain/a.rs", "use crate::clock::Clock;", 1),
        ("src/domain/a.rs", "// use crate::clock::Clock;\nlet a = \"crate::store\";", 0),
        ("src/domain/a.rs", "fn a() {}\n#[cfg(test)]\nmod tests {\n    use crate::fake::Forge;\n}", 0),
        ("src/engine/a.rs", "use crate::http::x;\nuse crate::cli::y;", 2),
        ("src/cli/a.rs", "use crate::engine::x;", 0),
        ("src/novel.rs", "", 1),
    ];
    for (path, text, faults) in cases {
        assert_eq!(layer_faults(&source(path, text)).len(), faults, "{path}: {text}");
    }
    let fault = layer_faults(&source("src/forge.rs", "\nuse crate::store::Store;")).remove(0);
    assert!(fault.starts_with("src/forge.rs:2: `forge` must not name `store`"), "{fault}");
}

#[test]
fn domain_folder_violations_are_found() {
    let cases = [
        ("src/domain/report/view.rs", "use crate::domain::model::ids::Sha;", 0),
        ("src/domain/report/view.rs", "use crate::domain::report::notice::Notice;", 0),
        ("src/domain/report/view.rs", "use crate::domain::lifecycle::step;", 1),
        ("src/domain/report/view.rs", "use crate::domain::{model::ids, knowledge, lifecycle::step};", 2),
        ("src/domain/model.rs", "use crate::domain::checks::criteria;", 1),
        ("src/domain/novel/a.rs", "", 1),
        ("src/engine/a.rs", "use crate::domain::lifecycle::step;", 0),
    ];
    for (path, text, faults) in cases {
        assert_eq!(folder_faults(&source(path, text)).len(), faults, "{path}: {text}");
    }
}

#[test]
fn super_paths_out_of_layer_are_found() {
    let cases = [
        ("src/a.rs", "use super::b;", 1),
        ("src/a/b.rs", "use super::c;", 0),
        ("src/a/b.rs", "use super::super::c;", 1),
        ("src/a/b/c.rs", "use super::super::d;", 0),
        ("src/a/b.rs", "mod inner {\n    use super::super::c;\n}\nuse super::super::d;", 1),
    ];
    for (path, text, faults) in cases {
        assert_eq!(super_faults(&source(path, text)).len(), faults, "{path}: {text}");
    }
}
