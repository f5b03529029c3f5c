//! Names of types: all types in the repository have different names, except types in unit tests.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use crate::source::{SourceFile, line_of, report, sources};

/// Names shared by several types: `StaticModel` has a counterpart for builds without the feature `embeddings`.
const KNOWN: &[&str] = &["StaticModel"];

#[test]
fn type_names_are_unique() {
    static TYPE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"(?m)^\s*(?:pub(?:\([^)]*\))? )?(?:struct|enum|trait|union) (\w+)|^(?:pub(?:\([^)]*\))? )?type (\w+)",
        )
        .expect("pattern")
    });
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let is_unit_test = |file: &SourceFile| file.is_test && !file.path.starts_with("tests/");
    for file in ["src", "crates", "tests", "benches"].into_iter().flat_map(sources).filter(|file| !is_unit_test(file)) {
        for found in TYPE.captures_iter(&file.code) {
            let name = found.get(1).or(found.get(2)).expect("one of two");
            let place = format!("{}:{}", file.path, line_of(&file.code, name.start()));
            places.entry(name.as_str().to_owned()).or_default().push(place);
        }
    }
    places.retain(|_, places| places.len() > 1);
    let new = places.iter().filter(|(name, _)| !KNOWN.contains(&name.as_str()));
    let new = new.map(|(name, places)| format!("`{name}` names {} types: {}", places.len(), places.join(", ")));
    report(new);
}
