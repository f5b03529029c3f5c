//! Settings of checks in manifests. Honest work changes manifests together with the program, for example to add a dependency.
//! Therefore the run with the base's tests uses the branch's manifest with the base's settings of checks.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use globset::Glob;
use serde_json::{Map, Value};
use toml_edit::{DocumentMut, Item, Table};

/// Maximum number of patterns for the packages of a workspace.
const MAX_GLOBS: usize = 500;

/// Branch's manifest with the base's settings of checks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SettingsMerge {
    /// Manifest for the run with the base's tests.
    pub text: String,
    /// Names of the settings that differ, such as `scripts.test`.
    pub names: Vec<String>,
    /// Base's version of these settings, one after the other.
    pub base: String,
    /// Branch's version of these settings.
    pub branch: String,
}

impl SettingsMerge {
    fn add(&mut self, name: &str, base: Option<&str>, branch: Option<&str>) {
        self.names.push(name.to_owned());
        for (all, text) in [(&mut self.base, base), (&mut self.branch, branch)] {
            if let Some(text) = text {
                let _ = writeln!(all, "{name}: {}", text.trim());
            }
        }
    }

    fn finish(mut self, text: String) -> Option<Self> {
        self.text = text;
        (!self.names.is_empty()).then_some(self)
    }
}

/// Keys of package.json that describe the package and its dependencies. All others are settings of tools.
const NPM_PACKAGE: [&str; 50] = [
    "name",
    "version",
    "description",
    "keywords",
    "author",
    "authors",
    "contributors",
    "maintainers",
    "license",
    "licenses",
    "repository",
    "bugs",
    "homepage",
    "funding",
    "private",
    "publishConfig",
    "files",
    "bin",
    "man",
    "main",
    "module",
    "browser",
    "types",
    "typings",
    "typesVersions",
    "exports",
    "imports",
    "type",
    "sideEffects",
    "unpkg",
    "jsdelivr",
    "style",
    "source",
    "dependencies",
    "devDependencies",
    "peerDependencies",
    "peerDependenciesMeta",
    "optionalDependencies",
    "bundleDependencies",
    "bundledDependencies",
    "dependenciesMeta",
    "overrides",
    "resolutions",
    "pnpm",
    "workspaces",
    "engines",
    "packageManager",
    "volta",
    "browserslist",
    "directories",
];
/// The same for composer.json.
const COMPOSER_PACKAGE: [&str; 24] = [
    "name",
    "description",
    "version",
    "type",
    "keywords",
    "homepage",
    "readme",
    "time",
    "license",
    "authors",
    "support",
    "funding",
    "require",
    "require-dev",
    "conflict",
    "replace",
    "provide",
    "suggest",
    "autoload",
    "minimum-stability",
    "prefer-stable",
    "repositories",
    "config",
    "bin",
];
/// Tables `tool.NAME` of pyproject.toml that describe the package, its dependencies and its release.
const PYTHON_PACKAGE: [&str; 17] = [
    "poetry",
    "pdm",
    "uv",
    "hatch",
    "flit",
    "setuptools",
    "setuptools_scm",
    "setuptools-git-versioning",
    "rye",
    "maturin",
    "scikit-build",
    "pixi",
    "bumpversion",
    "commitizen",
    "towncrier",
    "semantic_release",
    "versioningit",
];
/// Parts of these tables that have commands.
const PYTHON_COMMANDS: [(&str, &str); 3] = [("pdm", "scripts"), ("hatch", "envs"), ("rye", "scripts")];
/// Settings of tests, lints and profiles in Cargo.toml, as paths of keys.
const CARGO_SETTINGS: [&[&str]; 10] = [
    &["package", "autotests"],
    &["lib", "test"],
    &["lib", "doctest"],
    &["lib", "harness"],
    &["test"],
    &["profile", "test"],
    &["profile", "dev"],
    &["lints"],
    &["workspace", "lints"],
    &["workspace", "default-members"],
];

/// Whether a file is a manifest whose settings of checks the run with the base's tests replaces.
pub fn is_manifest(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    matches!(name, "package.json" | "composer.json" | "pyproject.toml" | "setup.cfg" | "Cargo.toml")
}

/// Puts the base's settings of checks into the branch's manifest. `None` if they are equal, if the file is not a manifest, or if one of
/// the texts cannot be read, so that its tools cannot read it either. `is_deleted` returns whether the branch deleted a file of the base.
pub fn with_base_settings(
    path: &str,
    base: &str,
    branch: &str,
    is_deleted: &dyn Fn(&str) -> bool,
) -> Option<SettingsMerge> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let folder = path.strip_suffix(name).unwrap_or_default();
    let is_gone = |package: &str| is_deleted(&format!("{folder}{}/{name}", package.trim_matches(['.', '/'])));
    match name {
        "package.json" => json(base, branch, &NPM_PACKAGE, &is_gone),
        "composer.json" => json(base, branch, &COMPOSER_PACKAGE, &is_gone),
        "pyproject.toml" => python(base, branch),
        "Cargo.toml" => cargo(base, branch, &is_gone),
        "setup.cfg" => ini(base, branch),
        _ => None,
    }
}

fn json(base: &str, branch: &str, of_package: &[&str], is_gone: &dyn Fn(&str) -> bool) -> Option<SettingsMerge> {
    let read = |text: &str| match serde_json::from_str(text.trim_start_matches('\u{feff}')) {
        Ok(Value::Object(fields)) => Some(fields),
        _ => None,
    };
    let (base, mut merged): (Map<String, Value>, _) = (read(base)?, read(branch)?);
    let mut merge = SettingsMerge::default();
    let scripts = |fields: &Map<String, Value>| match fields.get("scripts") {
        Some(Value::Object(scripts)) => scripts.clone(),
        _ => Map::new(),
    };
    let old = scripts(&base);
    let mut new = scripts(&merged);
    // A new script runs only if another names it, or before and after the script of its name.
    let runs_by_itself = |name: &str| {
        let about = name.strip_prefix("pre").or_else(|| name.strip_prefix("post"));
        about.is_some_and(|about| old.contains_key(about))
    };
    replace(&mut merge, "scripts.", &old, &mut new, |name| old.contains_key(name) || runs_by_itself(name));
    if new.is_empty() && old.is_empty() {
        merged.remove("scripts");
    } else {
        merged.insert("scripts".to_owned(), Value::Object(new));
    }
    let packages = |fields: &Map<String, Value>| {
        let listed = fields.get("workspaces").map(|value| value.get("packages").unwrap_or(value));
        listed.and_then(Value::as_array).map(|all| all.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    };
    if let Some(all) = with_packages(packages(&base), packages(&merged), is_gone) {
        let all = serde_json::json!(all);
        let text = |fields: &Map<String, Value>| fields.get("workspaces").map(Value::to_string);
        merge.add("workspaces", text(&base).as_deref(), text(&merged).as_deref());
        match merged.get_mut("workspaces").and_then(|value| value.get_mut("packages")) {
            Some(listed) => *listed = all,
            None => drop(merged.insert("workspaces".to_owned(), all)),
        }
    }
    // Names by which tests import modules of the package.
    replace_known(&mut merge, "imports", &base, &mut merged);
    replace(&mut merge, "", &base, &mut merged, |name| name != "scripts" && !of_package.contains(&name));
    let text = serde_json::to_string_pretty(&Value::Object(merged)).ok()?;
    merge.finish(text + "\n")
}

/// Returns the branch's packages of a workspace, and the base's packages that the branch omits without their deletion. `None` if it
/// omits none.
fn with_packages(
    base: Option<Vec<String>>,
    branch: Option<Vec<String>>,
    is_gone: &dyn Fn(&str) -> bool,
) -> Option<Vec<String>> {
    let base = base?;
    let mut all = branch.unwrap_or_default();
    let listed = all.clone();
    // `!` leaves packages out.
    let old: HashSet<&String> = base.iter().collect();
    all.retain(|package| !package.starts_with('!') || old.contains(package));
    let names: HashSet<&String> = listed.iter().collect();
    let globs = listed.iter().filter(|other| other.contains(['*', '?', '[', '{'])).take(MAX_GLOBS);
    let globs: Vec<_> = globs.filter_map(|other| Some(Glob::new(other).ok()?.compile_matcher())).collect();
    let is_listed = |package: &String| names.contains(package) || globs.iter().any(|glob| glob.is_match(package));
    drop(old);
    all.extend(base.into_iter().filter(|package| !is_listed(package) && !is_gone(package)));
    (all != listed).then_some(all)
}

/// Gives the entries of an object that also `base` has the values that they have there.
fn replace_known(merge: &mut SettingsMerge, key: &str, base: &Map<String, Value>, merged: &mut Map<String, Value>) {
    let (Some(Value::Object(old)), Some(Value::Object(new))) = (base.get(key), merged.get_mut(key)) else { return };
    replace(merge, &format!("{key}."), old, new, |name| old.contains_key(name));
}

/// Gives the fields of `merged` that `is_setting` selects the values that they have in `base`.
fn replace(
    merge: &mut SettingsMerge,
    prefix: &str,
    base: &Map<String, Value>,
    merged: &mut Map<String, Value>,
    is_setting: impl Fn(&str) -> bool,
) {
    let mut names: Vec<String> = base.keys().chain(merged.keys()).filter(|name| is_setting(name)).cloned().collect();
    names.sort();
    names.dedup();
    for name in names {
        let (old, new) = (base.get(&name), merged.get(&name));
        if old == new {
            continue;
        }
        let text = |value: &Value| serde_json::to_string_pretty(value).unwrap_or_default();
        merge.add(&format!("{prefix}{name}"), old.map(text).as_deref(), new.map(text).as_deref());
        match old {
            Some(old) => merged.insert(name, old.clone()),
            None => merged.remove(&name),
        };
    }
}

fn python(base: &str, branch: &str) -> Option<SettingsMerge> {
    let (base, mut merged): (DocumentMut, DocumentMut) = (base.parse().ok()?, branch.parse().ok()?);
    let mut merge = SettingsMerge::default();
    let mut tools: Vec<String> = [&base, &merged]
        .into_iter()
        .filter_map(|document| document.get("tool")?.as_table_like())
        .flat_map(|tools| tools.iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>())
        .collect();
    tools.sort();
    tools.dedup();
    for tool in tools.iter().filter(|tool| !PYTHON_PACKAGE.contains(&tool.as_str())) {
        replace_at(&mut merge, &base, &mut merged, &["tool", tool]);
    }
    for (tool, part) in PYTHON_COMMANDS {
        replace_at(&mut merge, &base, &mut merged, &["tool", tool, part]);
    }
    merge.finish(merged.to_string())
}

/// Returns the features that a `Cargo.toml` enables by default, with the features that they enable.
pub fn default_features(text: &str) -> Vec<String> {
    let Ok(document) = text.parse::<DocumentMut>() else { return Vec::new() };
    let of = |name: &str| {
        let names = document.get("features").and_then(|features| features.get(name)?.as_array());
        names.into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned))
    };
    let mut enabled: Vec<String> = of("default").collect();
    let mut known: HashSet<String> = enabled.iter().cloned().collect();
    let mut at = 0;
    while let Some(name) = enabled.get(at).cloned() {
        enabled.extend(of(&name).filter(|name| known.insert(name.clone())));
        at += 1;
    }
    enabled.retain(|name| !name.contains([':', '/']));
    enabled
}

fn cargo(base: &str, branch: &str, is_gone: &dyn Fn(&str) -> bool) -> Option<SettingsMerge> {
    let (base, mut merged): (DocumentMut, DocumentMut) = (base.parse().ok()?, branch.parse().ok()?);
    let mut merge = SettingsMerge::default();
    for path in CARGO_SETTINGS {
        replace_at(&mut merge, &base, &mut merged, path);
    }
    let packages = |document: &DocumentMut| {
        let members = document.get("workspace")?.get("members")?.as_array()?;
        Some(members.iter().filter_map(|member| member.as_str().map(str::to_owned)).collect())
    };
    if let Some(all) = with_packages(packages(&base), packages(&merged), is_gone) {
        let mut with_members = base.clone();
        with_members["workspace"]["members"] = toml_edit::value(toml_edit::Array::from_iter(all));
        replace_at(&mut merge, &with_members, &mut merged, &["workspace", "members"]);
    }
    merge.finish(merged.to_string())
}

/// Gives a part of a TOML document the value that it has in `base`.
fn replace_at(merge: &mut SettingsMerge, base: &DocumentMut, merged: &mut DocumentMut, path: &[&str]) {
    let at = |document: &DocumentMut| {
        let start = Some(document.as_item());
        path.iter().fold(start, |item, key| item?.get(key)).filter(|item| !item.is_none()).cloned()
    };
    let old = at(base);
    let new = at(merged);
    let text = |item: &Item| {
        // A table only has a text as a part of a document.
        let mut document = DocumentMut::new();
        document.insert("value", item.clone());
        document.to_string()
    };
    let old_text = old.as_ref().map(text);
    let new_text = new.as_ref().map(text);
    let plain = |text: &Option<String>| text.as_ref().map(|text| text.split_whitespace().collect::<String>());
    if plain(&old_text) == plain(&new_text) {
        return;
    }
    merge.add(&path.join("."), old_text.as_deref(), new_text.as_deref());
    let Some((key, parents)) = path.split_last() else { return };
    let mut parent = merged.as_item_mut();
    for name in parents {
        if parent.get(name).is_none() {
            if old.is_none() {
                return;
            }
            let mut table = Table::new();
            table.set_implicit(true);
            parent[*name] = Item::Table(table);
        }
        parent = &mut parent[*name];
    }
    let Some(table) = parent.as_table_like_mut() else { return };
    match old {
        Some(old) => {
            table.insert(key, old);
        }
        None => {
            table.remove(key);
        }
    }
}

/// Sections of setup.cfg that describe the package, its build and its release.
fn is_package_section(header: &str) -> bool {
    pattern!(
        PACKAGE,
        r"^\[(?:metadata|options(?:\..*)?|files|entry_points|global|egg_info|(?:bdist|sdist|build|install|upload|develop|extract|compile|init|update|bump|semantic|versioneer|check-manifest)\w*(?:[:.].*)?)\]"
    );
    PACKAGE.is_match(header)
}

fn ini(base: &str, branch: &str) -> Option<SettingsMerge> {
    let (base, branch) = (sections(base), sections(branch));
    let first = |all: &[(String, String)]| -> HashMap<String, String> { all.iter().rev().cloned().collect() };
    let (of_base, of_branch) = (first(&base), first(&branch));
    let mut merge = SettingsMerge::default();
    let mut text = String::new();
    for (header, new) in &branch {
        if header.is_empty() || is_package_section(header) {
            text.push_str(new);
            continue;
        }
        let old = of_base.get(header).map(String::as_str);
        text.push_str(old.unwrap_or_default());
        if old.map(str::trim_end) != Some(new.trim_end()) {
            merge.add(header, old, Some(new));
        }
    }
    for (header, old) in &base {
        if !header.is_empty() && !is_package_section(header) && !of_branch.contains_key(header) {
            merge.add(header, Some(old), None);
            if !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(old);
        }
    }
    merge.finish(text)
}

/// Splits a text into its sections: the header without spaces, empty before the first one, and all lines with the header.
fn sections(text: &str) -> Vec<(String, String)> {
    let mut all = vec![(String::new(), String::new())];
    for line in text.split_inclusive('\n') {
        if line.starts_with('[') {
            all.push((line.split_whitespace().collect(), String::new()));
        }
        if let Some((_, section)) = all.last_mut() {
            section.push_str(line);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(path: &str, base: &str, branch: &str) -> (Vec<String>, String) {
        with_base_settings(path, base, branch, &|path| path.contains("gone"))
            .map(|merge| (merge.names, merge.text))
            .unwrap_or_default()
    }

    #[test]
    fn scripts_and_settings_of_tools_come_from_the_base() {
        let base =
            r#"{ "name": "a", "scripts": { "test": "node --test", "build": "tsc" }, "jest": { "bail": false } }"#;
        let branch = r#"{ "name": "b", "scripts": { "test": "echo pass 6", "build": "tsc", "pretest": "rm t.js", "docs": "typedoc" }, "nyc": {}, "dependencies": { "x": "1" } }"#;
        let (names, text) = merged("web/package.json", base, branch);
        assert_eq!(names, ["scripts.pretest", "scripts.test", "jest", "nyc"]);
        let wanted = r#"{ "name": "b", "scripts": { "test": "node --test", "build": "tsc", "docs": "typedoc" }, "dependencies": { "x": "1" }, "jest": { "bail": false } }"#;
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), serde_json::from_str::<Value>(wanted).unwrap());
        let imports = |to: &str| format!("{{ \"imports\": {{ \"#check\": \"{to}\", \"#new\": \"./{to}\" }} }}");
        let old = "{ \"imports\": { \"#check\": \"./check.js\" } }";
        assert_eq!(merged("package.json", old, &imports("./lenient.js")).0, ["imports.#check"]);
        let merge = with_base_settings("package.json", base, branch, &|_| false).expect("settings differ");
        assert!(
            merge.branch.contains("scripts.test: \"echo pass 6\"\n") && !merge.base.contains("pretest"),
            "{merge:?}"
        );
        for honest in [
            r#"{ "name": "a", "scripts": { "test": "node --test", "build": "tsc", "docs": "typedoc" }, "jest": { "bail": false }, "devDependencies": {} }"#,
            r#"{ "scripts": { "build": "tsc", "test": "node --test" }, "jest": {"bail":false}, "name": "a" }"#,
            "{",
        ] {
            assert_eq!(with_base_settings("package.json", base, honest, &|_| false), None, "{honest}");
        }
    }

    #[test]
    fn tables_of_python_tools_come_from_the_base() {
        let base =
            "[project]\nname = \"a\"\n\n[tool.pytest.ini_options]\naddopts = \"-ra\"\n\n[tool.poetry]\nname = \"a\"\n";
        let branch = "[project]\nname = \"b\"\n\n[tool.pytest.ini_options]\naddopts = \"-k fast\"\n\n[tool.mypy]\nignore_errors = true\n\n[tool.poetry]\nname = \"b\"\n";
        let (names, text) = merged("pyproject.toml", base, branch);
        assert_eq!(names, ["tool.mypy", "tool.pytest"]);
        let read: DocumentMut = text.parse().expect("a document");
        assert_eq!(read["tool"]["pytest"]["ini_options"]["addopts"].as_str(), Some("-ra"));
        assert_eq!((read["project"]["name"].as_str(), read["tool"]["poetry"]["name"].as_str()), (Some("b"), Some("b")));
        assert!(read["tool"].get("mypy").is_none(), "{text}");
        // A table that the branch removed is back, also if no other is left.
        let (names, text) = merged("pyproject.toml", base, "[project]\nname = \"a\"\n");
        assert_eq!(names, ["tool.pytest"]);
        assert!(text.contains("addopts = \"-ra\""), "{text}");
        assert_eq!(merged("pyproject.toml", base, &base.replace("name = \"a\"", "name = \"c\"")).0, [""; 0]);
        assert_eq!(merged("pyproject.toml", base, &base.replace(" = \"-ra\"", "=\"-ra\"")).0, [""; 0]);
    }

    #[test]
    fn tests_and_profiles_of_cargo_come_from_the_base() {
        let base = "[package]\nname = \"a\"\n\n[[test]]\nname = \"api\"\n\n[dependencies]\n";
        let branch =
            "[package]\nname = \"a\"\nautotests = false\n\n[lib]\ndoctest = false\n\n[dependencies]\nserde = \"1\"\n";
        let (names, text) = merged("Cargo.toml", base, branch);
        assert_eq!(names, ["package.autotests", "lib.doctest", "test"]);
        let read: DocumentMut = text.parse().expect("a document");
        assert!(read["package"].get("autotests").is_none() && read["lib"].get("doctest").is_none(), "{text}");
        assert_eq!(read["test"][0]["name"].as_str(), Some("api"));
        assert_eq!(read["dependencies"]["serde"].as_str(), Some("1"));
        assert_eq!(merged("Cargo.toml", base, &format!("{base}serde = \"1\"\n")).0, [""; 0]);
    }

    /// See docs/research/threats.md#g17.
    #[test]
    fn packages_of_a_workspace_that_the_branch_leaves_out_are_added() {
        let npm = |packages: &str| format!("{{ \"name\": \"a\", \"workspaces\": {packages} }}");
        let base = npm(r#"["packages/slug", "packages/title", "packages/gone"]"#);
        for branch in [r#"["packages/slug"]"#, r#"["packages/slug", "!packages/title"]"#, r#"{ "packages": [] }"#] {
            let (names, text) = merged("package.json", &base, &npm(branch));
            assert_eq!(names, ["workspaces"], "{branch}");
            assert!(text.contains("packages/title") && !text.contains("gone") && !text.contains('!'), "{text}");
        }
        for honest in [r#"["packages/title", "packages/slug", "packages/new"]"#, r#"["packages/*"]"#] {
            assert_eq!(merged("package.json", &base, &npm(honest)).0, [""; 0], "{honest}");
        }
        let cargo = |members: &str| format!("[workspace]\nmembers = {members}\n");
        let base = cargo(r#"["crates/a", "crates/b", "crates/gone"]"#);
        let (names, text) = merged("Cargo.toml", &base, &cargo(r#"["crates/a", "crates/c"]"#));
        assert_eq!((names.join(" ").as_str(), text.matches("crates/").count()), ("workspace.members", 3), "{text}");
        assert_eq!(merged("Cargo.toml", &base, &cargo(r#"["crates/*"]"#)).0, [""; 0]);
        assert_eq!(merged("Cargo.toml", "[package]\nname = \"a\"\n", &cargo(r#"["b"]"#)).0, [""; 0]);
    }

    #[test]
    fn sections_of_setup_cfg_come_from_the_base() {
        let base = "[metadata]\nname = a\n[tool:pytest]\naddopts = -ra\n[mypy]\nstrict = true\n";
        let branch = "[metadata]\nname = b\n[tool:pytest]\naddopts = --ignore=tests\n[coverage:run]\nomit = *\n";
        let (names, text) = merged("setup.cfg", base, branch);
        assert_eq!(names, ["[tool:pytest]", "[coverage:run]", "[mypy]"]);
        assert_eq!(text, "[metadata]\nname = b\n[tool:pytest]\naddopts = -ra\n[mypy]\nstrict = true\n");
        assert_eq!(merged("setup.cfg", base, &base.replace("name = a", "name = c")).0, [""; 0]);
        assert_eq!(merged("composer.json", "{}", "{\"require\": {}}").0, [""; 0]);
        assert!(is_manifest("a/composer.json") && !is_manifest("package-lock.json"));
    }

    #[test]
    fn default_features_include_the_enabled_ones() {
        let text = "[features]\ndefault = [\"a\", \"b\"]\na = [\"c\", \"dep:x\", \"y/z\", \"a\"]\nb = []\nc = [\"b\"]\nd = []\n";
        assert_eq!(default_features(text), ["a", "b", "c"]);
        for text in ["", "[features]\na = []\n", "[package]\ndefault = [\"a\"]\n", "["] {
            assert!(default_features(text).is_empty(), "{text}");
        }
    }
}
