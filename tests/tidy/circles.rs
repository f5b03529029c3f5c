//! Cycles between modules: adjacent files and folders must not depend on each other in a cycle.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::LazyLock;

use regex::Regex;

use crate::source::{SourceFile, library, report, source};

/// Path of a module below the crate, or of an item in it.
type Path = Vec<String>;

#[test]
fn sibling_modules_have_no_cycles() {
    let circles = circles(&library());
    let faults = circles.iter().map(|(folder, members)| {
        format!(
            "{folder}: {} depend on each other in a circle; move what they share to a file of its own",
            join(members)
        )
    });
    report(faults);
}

/// Returns each folder's cycles: its path, and the names of its modules that depend on each other.
fn circles(files: &[SourceFile]) -> Vec<(String, BTreeSet<String>)> {
    let modules: BTreeMap<Path, &str> = files
        .iter()
        .filter(|file| !file.is_test)
        .filter_map(|file| Some((file.inner().strip_suffix(".rs")?, file.code.as_str())))
        .filter(|(name, _)| !matches!(*name, "lib" | "main"))
        .map(|(name, code)| (name.split('/').map(str::to_owned).collect(), code))
        .collect();
    let uses: BTreeMap<&Path, Vec<Path>> = modules.iter().map(|(module, code)| (module, used(code))).collect();
    let names = Names::new(&modules, &uses);
    // Folder -> module in it -> adjacent modules that the module or its descendants depend on.
    let mut folders: BTreeMap<&[String], BTreeMap<&str, BTreeSet<String>>> = BTreeMap::new();
    for (&module, paths) in &uses {
        for target in paths.iter().filter_map(|path| names.resolve(module, path)) {
            let shared = module.iter().zip(&target).take_while(|(own, other)| own == other).count();
            if let (Some(own), Some(other)) = (module.get(shared), target.get(shared)) {
                folders.entry(&module[..shared]).or_default().entry(own).or_default().insert(other.clone());
            }
        }
    }
    let found = folders.iter().flat_map(|(folder, edges)| {
        let folder = if folder.is_empty() { "crate".to_owned() } else { folder.join("::") };
        components(edges).into_iter().map(move |members| (folder.clone(), members))
    });
    found.collect()
}

/// Modules, and the items of child modules that each of them imports or re-exports.
struct Names<'a> {
    modules: &'a BTreeMap<Path, &'a str>,
    imports: HashMap<(&'a Path, &'a str), Path>,
}

impl<'a> Names<'a> {
    fn new(modules: &'a BTreeMap<Path, &'a str>, uses: &'a BTreeMap<&'a Path, Vec<Path>>) -> Self {
        let mut imports = HashMap::new();
        for (&module, paths) in uses {
            for path in paths {
                let path = path.strip_prefix(&["self".to_owned()][..]).unwrap_or(path);
                if let [child, .., item] = path
                    && modules.contains_key(&[module.as_slice(), std::slice::from_ref(child)].concat())
                {
                    let target = [module.as_slice(), &path[..path.len() - 1]].concat();
                    imports.insert((module, item.as_str()), target);
                }
            }
        }
        Self { modules, imports }
    }

    /// Returns the module of the item at a path, seen from `module`; `None` for paths to other crates.
    fn resolve(&self, module: &[String], path: &[String]) -> Option<Path> {
        let mut rest = path;
        let mut current = match rest.first()?.as_str() {
            "crate" => {
                rest = &rest[1..];
                Vec::new()
            }
            "super" | "self" => module.to_vec(),
            _ => return None,
        };
        while let Some(first) = rest.first().filter(|first| matches!(first.as_str(), "super" | "self")) {
            if first == "super" {
                current.pop();
            }
            rest = &rest[1..];
        }
        for name in rest {
            let child = [current.as_slice(), std::slice::from_ref(name)].concat();
            if self.modules.contains_key(&child) {
                current = child;
                continue;
            }
            if let Some(mut target) = self.imports.get(&(&current, name.as_str())).cloned() {
                while !target.is_empty() && !self.modules.contains_key(&target) {
                    target.pop();
                }
                current = target;
            }
            break;
        }
        self.modules.contains_key(&current).then_some(current)
    }
}

/// Returns the paths that code imports with `use`, and the paths written in full from `crate` or `super`.
fn used(code: &str) -> Vec<Path> {
    static USE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\buse\s+([^;]+);").expect("pattern"));
    static INLINE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\b(?:crate|super)(?:\s*::\s*\w+)+").expect("pattern"));
    let mut paths = Vec::new();
    for tree in USE.captures_iter(code) {
        flatten(&tree[1], &[], &mut paths);
    }
    let rest = USE.replace_all(code, "");
    paths.extend(INLINE.find_iter(&rest).map(|path| segments(path.as_str())));
    paths
}

/// Adds each path in a tree of `use` (`a::{b, c::{d, e}}`) to `paths`.
fn flatten(tree: &str, prefix: &[String], paths: &mut Vec<Path>) {
    let Some((head, body)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or(tree);
        paths.push([prefix, &segments(path)].concat());
        return;
    };
    let prefix = [prefix, &segments(head)].concat();
    let body = body.rsplit_once('}').map_or(body, |(body, _)| body);
    let (mut depth, mut start) = (0, 0);
    for (at, character) in body.char_indices().chain([(body.len(), ',')]) {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = &body[start..at];
                if !part.trim().is_empty() {
                    flatten(part, &prefix, paths);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

fn segments(path: &str) -> Path {
    path.split("::").map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Returns the sets of two or more names that reach each other.
pub fn components(edges: &BTreeMap<&str, BTreeSet<String>>) -> Vec<BTreeSet<String>> {
    let reachable = |from: &str| {
        let mut seen = BTreeSet::new();
        let mut open = vec![from.to_owned()];
        while let Some(name) = open.pop() {
            for next in edges.get(name.as_str()).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    open.push(next.clone());
                }
            }
        }
        seen
    };
    let reach: BTreeMap<&str, BTreeSet<String>> = edges.keys().map(|name| (*name, reachable(name))).collect();
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for (name, names) in &reach {
        let circle = names.iter().filter(|other| reach.get(other.as_str()).is_some_and(|back| back.contains(*name)));
        let circle: BTreeSet<String> = circle.cloned().collect();
        if circle.len() > 1 && !found.contains(&circle) {
            found.push(circle);
        }
    }
    found
}

fn join(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

#[test]
fn cycles_are_found() {
    let cases: [(&[(&str, &str)], &[(&str, &str)]); 5] = [
        (
            &[("src/a.rs", ""), ("src/a/b.rs", "use super::c::X;"), ("src/a/c.rs", "use crate::a::b::Y;")],
            &[("a", "b, c")],
        ),
        (&[("src/a.rs", ""), ("src/a/b.rs", "use super::c::X;"), ("src/a/c.rs", "")], &[]),
        // Through an item re-exported by the parent, and through a file below one of them.
        (
            &[
                ("src/a.rs", "pub use c::X;"),
                ("src/a/b.rs", "fn f(_: super::X) {}"),
                ("src/a/c/d.rs", "use crate::a::b;"),
                ("src/a/c.rs", ""),
            ],
            &[("a", "b, c")],
        ),
        // A parent and its child are not a cycle.
        (&[("src/a.rs", "use b::X;"), ("src/a/b.rs", "use super::Y;")], &[]),
        (
            &[("src/a.rs", "use crate::{b::X, c};"), ("src/b.rs", "use crate::c::Z;"), ("src/c.rs", "use crate::a;")],
            &[("crate", "a, b, c")],
        ),
    ];
    for (files, expected) in cases {
        let files: Vec<SourceFile> = files.iter().map(|(path, text)| source(path, text)).collect();
        let found: Vec<(String, String)> =
            circles(&files).into_iter().map(|(folder, members)| (folder, join(&members))).collect();
        let expected: Vec<(String, String)> =
            expected.iter().map(|(folder, members)| ((*folder).to_owned(), (*members).to_owned())).collect();
        assert_eq!(found, expected, "{files:?}");
    }
}
