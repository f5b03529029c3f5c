//! Counts of habits to avoid: circular methods, parents and children that use each other, tuples instead of named values,
//! control flow on message text, errors that are texts, causes that become texts, and a dialect of English. Each count has a ceiling that only falls.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use crate::circles::components;
use crate::source::{SourceFile, library, report, source, sources, texts};

/// Ceiling of each count. Lower it when the count falls; never raise it.
const CEILINGS: [(&str, usize); 10] = [
    ("files in circles of one type's methods", 31),
    ("children that use a parent which uses them", 148),
    ("tuple parameters", 118),
    ("tuple lets", 506),
    ("types with methods in several folders", 15),
    ("conditions on message text", 25),
    ("errors that are texts", 0),
    ("causes that become texts", 68),
    ("dialect in comments and messages", 33),
    ("dialect in documents", 0),
];
/// Distance below the ceiling, in percent, from which the ceiling must be lowered.
const SLACK: usize = 5;

/// Dialect that readers have to read twice: free relative clauses, "that of", agentless and literal verbs.
const DIALECT: &str = r"(?i)\b(?:what (?:it|is|was|are|were|the|a|an|they|that|this|one|each|people|others|comes|goes|has|had|came|went|remains|needs|must|may|can|no|never)\b|(?:that|those) of\b|of (?:its|their) own\b|the one that\b|the ones that\b|nobody\b|(?:is|are|was|were) gone\b|goes on\b|go on\b|comes back\b|is begun\b|was begun\b|begin again\b|tells?\b|told\b)";

#[test]
fn counts_stay_below_their_ceilings() {
    let files: Vec<SourceFile> = library().into_iter().filter(|file| !file.is_test).collect();
    let comments = files.iter().map(|file| file.text.as_str());
    let documents = texts("docs", "md");
    let counts = [
        circular_files(&files),
        mutual_parents(&files),
        count(&files, r"[(,]\s*&?\((?:(?:mut |ref )?\w+, )*(?:mut |ref )?\w+\): &?\("),
        count(&files, r"\blet \([^()=]*\) = \("),
        scattered_types(&files),
        count_in(&files, r#"\.(?:starts_with|ends_with|contains)\("[^"\n]*[a-z] [a-z][^"\n]*"\)"#),
        count(&files, r"\bResult<(?:[^<>]|<[^<>]*>)*, String>"),
        flattened_causes(&files),
        dialect(&prose(comments)),
        dialect(&documents.join("\n")),
    ];
    let faults = CEILINGS.iter().zip(counts).filter_map(|((name, ceiling), count)| judge(name, count, *ceiling));
    report(faults.collect::<Vec<_>>().into_iter());
}

fn judge(name: &str, count: usize, ceiling: usize) -> Option<String> {
    if count > ceiling {
        Some(format!("{name}: {count}, at most {ceiling} are allowed; write the new ones otherwise"))
    } else if count * 100 < ceiling * (100 - SLACK) {
        Some(format!("{name}: {count}; lower the ceiling from {ceiling}"))
    } else {
        None
    }
}

fn count(files: &[SourceFile], pattern: &str) -> usize {
    let pattern = Regex::new(pattern).expect("pattern");
    files.iter().map(|file| pattern.find_iter(&file.code).count()).sum()
}

/// Counts a pattern in lines of code, including text literals.
fn count_in(files: &[SourceFile], pattern: &str) -> usize {
    let pattern = Regex::new(pattern).expect("pattern");
    let lines = files.iter().flat_map(|file| file.text.lines().take(file.code.lines().count()));
    lines.filter(|line| !line.trim_start().starts_with("//") && pattern.is_match(line)).count()
}

/// Returns the number of closures of `map_err` that print their error into a text, so that its `source()` is lost.
fn flattened_causes(files: &[SourceFile]) -> usize {
    let closure = Regex::new(r"\.map_err\(\|(\w+)(?:: [^|]+)?\|").expect("pattern");
    let is_flattening = |code: &str, name: &str| {
        let mut depth = 1;
        let end = code.find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        });
        let body = &code[..end.unwrap_or(code.len())];
        let printed =
            [format!("{name}.to_string()"), format!("{{{name}}}"), format!("{{{name}:"), "error_chain(".to_owned()];
        printed.iter().any(|print| body.contains(print))
    };
    let of = |file: &SourceFile| {
        let code: Vec<&str> = file.text.lines().take(file.code.lines().count()).collect();
        let code = code.join("\n");
        let found = closure.captures_iter(&code).filter(|found| {
            let start = found.get(0).expect("group").end();
            is_flattening(&code[start..], &found[1])
        });
        found.count()
    };
    files.iter().map(of).sum()
}

/// Returns the comments and text literals in sources, one per line.
fn prose<'a>(sources: impl Iterator<Item = &'a str>) -> String {
    let literal = Regex::new(r#""(?:[^"\\\n]|\\.)*""#).expect("pattern");
    let mut prose = String::new();
    for line in sources.flat_map(str::lines) {
        match line.split_once("//") {
            Some((before, comment)) if !before.ends_with(':') => prose.push_str(comment),
            _ => literal.find_iter(line).for_each(|text| prose.push_str(text.as_str())),
        }
        prose.push('\n');
    }
    prose
}

fn dialect(prose: &str) -> usize {
    Regex::new(DIALECT).expect("pattern").find_iter(prose).count()
}

/// Returns the number of files in which methods of one type call each other in a cycle.
fn circular_files(files: &[SourceFile]) -> usize {
    let call = Regex::new(r"\bself\s*\.\s*(\w+)\s*\(").expect("pattern");
    let method = Regex::new(r"\bfn (\w+)").expect("pattern");
    let mut circular = BTreeSet::new();
    for (_, members) in files_of_types(files) {
        // Name of a method -> file; a name in several files is ambiguous and ignored.
        let mut places: BTreeMap<&str, Option<&str>> = BTreeMap::new();
        for file in &members {
            for name in method.captures_iter(&file.code).map(|found| found.get(1).expect("group").as_str()) {
                let known = places.entry(name).or_insert(Some(&file.path));
                if known.is_some_and(|path| path != file.path) {
                    *known = None;
                }
            }
        }
        let edges: BTreeMap<&str, BTreeSet<String>> = members
            .iter()
            .map(|file| {
                let called = call.captures_iter(&file.code).filter_map(|found| *places.get(&found[1])?);
                (file.path.as_str(), called.filter(|path| *path != file.path).map(str::to_owned).collect())
            })
            .collect();
        circular.extend(components(&edges).into_iter().flatten());
    }
    circular.len()
}

/// Returns each type's files with methods, for types with methods in several files of a crate.
fn files_of_types(files: &[SourceFile]) -> BTreeMap<(String, String), Vec<&SourceFile>> {
    let block = Regex::new(r"(?m)^impl(?:<[^>{]*>)? (\w+)(?:<[^>{]*>)? \{").expect("pattern");
    let mut types: BTreeMap<(String, String), Vec<&SourceFile>> = BTreeMap::new();
    for file in files {
        let crate_of = file.path.split("src/").next().unwrap_or_default();
        let names: BTreeSet<&str> =
            block.captures_iter(&file.code).map(|found| found.get(1).expect("group").as_str()).collect();
        for name in names {
            types.entry((crate_of.to_owned(), name.to_owned())).or_default().push(file);
        }
    }
    types.retain(|_, files| files.len() > 1);
    types
}

/// Returns the number of types with methods in several folders.
fn scattered_types(files: &[SourceFile]) -> usize {
    let folder = |file: &&SourceFile| file.path.rsplit_once('/').map(|(folder, _)| folder.to_owned());
    let is_scattered = |files: &Vec<&SourceFile>| files.iter().map(folder).collect::<BTreeSet<_>>().len() > 1;
    files_of_types(files).values().filter(|files| is_scattered(files)).count()
}

/// Returns the number of modules that use their parent and are used by it.
fn mutual_parents(files: &[SourceFile]) -> usize {
    let by_path: BTreeMap<&str, &SourceFile> = files.iter().map(|file| (file.path.as_str(), file)).collect();
    let upwards = Regex::new(r"\buse super::(?:\{[^}]*\b[A-Z]|[A-Z])|\bsuper::[A-Z]").expect("pattern");
    let is_mutual = |file: &&SourceFile| {
        let Some((folder, name)) = file.path.strip_suffix(".rs").and_then(|path| path.rsplit_once('/')) else {
            return false;
        };
        let Some(parent) = by_path.get(format!("{folder}.rs").as_str()) else { return false };
        let down = format!("{name}::");
        upwards.is_match(&file.code) && parent.code.contains(&down)
    };
    files.iter().filter(is_mutual).count()
}

#[test]
fn each_habit_is_counted() {
    let files = [
        source("crates/a/src/one.rs", "use two::B;\nimpl A {\n    fn x(&self) { self.y() }\n}"),
        source(
            "crates/a/src/one/two.rs",
            "use super::{c, A};\nimpl A {\n    fn y(&self, (a, b): (u8, u8)) { self.x() }\n}",
        ),
        source("crates/a/src/alone.rs", "impl A {\n    fn z(&self) { let (a, b) = (1, 2); }\n}"),
    ];
    assert_eq!(circular_files(&files), 2);
    assert_eq!(mutual_parents(&files), 1);
    assert_eq!(scattered_types(&files), 1);
    assert_eq!(count(&files, r"\blet \([^()=]*\) = \("), 1);
    let flattened = "fn a() {\n    b.map_err(|e| e.to_string())?;\n    b.map_err(|why: E| {\n        f(format!(\"no: {why:#}\"))\n    })?;\n}";
    let kept = "fn a() {\n    b.map_err(|e| c(\"no\").caused_by(e))?;\n    d.map(|e| e.to_string());\n}";
    assert_eq!(flattened_causes(&[source("crates/a/src/b.rs", flattened), source("crates/a/src/c.rs", kept)]), 2);
    let text = "/// Shows what is left.\nlet a = \"those of others\"; // told\nlet b = \"https://that of\";\n";
    assert_eq!(dialect(&prose([text].into_iter())), 3);
    assert!(judge("a", 3, 2).is_some() && judge("a", 2, 2).is_none() && judge("a", 90, 100).is_some());
}

#[test]
fn test_names_avoid_dialect() {
    let name = Regex::new(r"#\[(?:tokio::)?test[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:async )?fn (\w+)").expect("pattern");
    let files = sources("crates").into_iter().chain(sources("src")).chain(sources("tests"));
    let names: Vec<String> = files
        .flat_map(|file| name.captures_iter(&file.text).map(|found| found[1].replace('_', " ")).collect::<Vec<_>>())
        .collect();
    let count = names.iter().filter(|name| dialect(name) > 0).count();
    report(judge("dialect in names of tests", count, NAMES_OF_TESTS).into_iter());
}

/// Ceiling for test names in dialect.
const NAMES_OF_TESTS: usize = 0;
