//! Compares the table of conformance stories in `docs/research/stories.md` with the declared stories.

use std::collections::BTreeSet;
use std::path::Path;

/// Macros that declare stories, and the macro that also runs declared ones on an older version.
const DECLARATIONS: [&str; 2] = ["on_every_server!(", "on_every_gitea!("];
const OLDER: &str = "on_old_gitea!(";

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the names in uses of a macro.
fn names(source: &str, call: &str) -> Vec<String> {
    let uses = source.split(call).skip(1).map(|rest| rest.split(");").next().unwrap_or_default());
    let lines = uses.flat_map(str::lines).filter(|line| !line.trim_start().starts_with("//"));
    let names = lines.flat_map(|line| line.split(',')).map(str::trim).filter(|name| !name.is_empty());
    names.map(|name| name.replace('_', " ")).collect()
}

#[test]
fn table_of_stories_has_the_declared_ones() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = std::fs::read_dir(root.join("tests/forges/stories")).expect("the stories");
    let sources: Vec<String> = folder.map(|entry| read(&entry.expect("a file").path())).collect();
    let declared: Vec<String> =
        sources.iter().flat_map(|source| DECLARATIONS.iter().flat_map(|call| names(source, call))).collect();
    let unique: BTreeSet<&String> = declared.iter().collect();
    assert!(unique.len() == declared.len() && unique.len() > 60, "{declared:?}");
    for older in sources.iter().flat_map(|source| names(source, OLDER)) {
        assert!(unique.contains(&older), "{older} runs on an older version only");
    }
    let page = read(&root.join("docs/research/stories.md"));
    let table = page.split("<!-- times -->").nth(1).and_then(|rest| rest.split("<!-- /times -->").next());
    let rows = table.expect("the table").lines().filter_map(|row| row.strip_prefix("| "));
    let rows = rows.filter_map(|row| row.split(" |").next()).filter(|name| *name != "story");
    let shown: BTreeSet<String> = rows.map(str::to_owned).collect();
    let shown: BTreeSet<&String> = shown.iter().collect();
    let differing: Vec<_> = unique.symmetric_difference(&shown).collect();
    assert!(
        differing.is_empty(),
        "write docs/research/stories.md anew with `UPDATE_DOCS=1 cargo test --test forges`: {differing:?}"
    );
}
