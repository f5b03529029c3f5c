//! Tests that moved with their package. In Go and on the JVM a test belongs to the package of its folder, so the base's version must
//! run at the new place, with the name of the new package.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::marks::is_test_code;
use super::starts::CheckStart;

/// Returns pairs of paths: a test of the base and its new place. The branch has no file of its folder, and the other folder is new.
/// `deleted` and `added` are the paths that only the base or only the branch has.
pub fn moved_packages<'a>(
    start: &CheckStart<'a>,
    deleted: &BTreeSet<&'a str>,
    added: &BTreeSet<&'a str>,
) -> Vec<(&'a str, &'a str)> {
    let mut folders: HashMap<&str, bool> = HashMap::new();
    for path in start.base_paths() {
        *folders.entry(divided(path).0).or_insert(true) &= deleted.contains(path);
    }
    let is_package = |path: &&&str| path.ends_with(".go") && !is_test_code(path);
    let packages: HashSet<&str> = added.iter().filter(is_package).map(|path| divided(path).0).collect();
    let is_new_package = |path: &str| {
        let folder = divided(path).0;
        let mut parts = folder.split('/');
        // Go skips these folders.
        let is_skipped = parts.any(|part| part.starts_with(['_', '.']) || matches!(part, "testdata" | "vendor"));
        !folders.contains_key(folder) && !is_skipped && packages.contains(folder)
    };
    // New tests by the root of their folder, with and without their names.
    let mut targets: HashMap<(Option<&str>, Option<&str>), Vec<&'a str>> = HashMap::new();
    for path in added.iter().copied().filter(|path| is_test_code(path)) {
        let root = test_root(path);
        if root.is_some() || path.ends_with("_test.go") && is_new_package(path) {
            targets.entry((root, Some(divided(path).1))).or_default().push(path);
        }
        if root.is_none() && path.ends_with("_test.go") && is_new_package(path) {
            targets.entry((None, None)).or_default().push(path);
        }
    }
    let mut left: HashMap<&str, usize> = HashMap::new();
    for path in deleted.iter().filter(|path| is_test_code(path)) {
        *left.entry(divided(path).0).or_default() += 1;
    }
    let mut pairs = Vec::new();
    for path in deleted.iter().copied().filter(|path| is_test_code(path)) {
        let (folder, name) = divided(path);
        let root = test_root(path);
        if folders.get(folder) == Some(&false) || root.is_none() && !path.ends_with("_test.go") {
            continue;
        }
        let same = targets.get(&(root, Some(name))).map(Vec::as_slice);
        let any = targets.get(&(root, None)).map(Vec::as_slice);
        match (same, any) {
            (Some([new]), _) => pairs.push((path, *new)),
            (None, Some([new])) if left.get(folder) == Some(&1) => pairs.push((path, *new)),
            _ => {}
        }
    }
    pairs
}

/// Returns the base's version of a moved file, with the branch's package.
pub fn with_package(base: &str, branch: &str) -> String {
    pattern!(PACKAGE, r"(?m)^package\s+[\w.]+;?");
    match PACKAGE.find(branch) {
        Some(package) => PACKAGE.replace(base, regex::NoExpand(package.as_str())).into_owned(),
        None => base.to_owned(),
    }
}

/// Divides a path into its folder, with the slash, and its name.
fn divided(path: &str) -> (&str, &str) {
    path.split_at(path.rfind('/').map_or(0, |at| at + 1))
}

/// Returns the folder in which build tools of the JVM look for tests.
fn test_root(path: &str) -> Option<&str> {
    ["java", "kotlin", "scala", "groovy"].iter().find_map(|language| {
        let root = format!("src/test/{language}/");
        path.find(&root).map(|at| &path[..at + root.len()])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved<'a>(base: &[&'a str], added: &[&'a str]) -> Vec<(&'a str, &'a str)> {
        let start = CheckStart::new(["go test ./..."], base.iter().copied());
        let deleted = base.iter().copied().filter(|path| !path.starts_with("kept")).collect();
        moved_packages(&start, &deleted, &added.iter().copied().collect())
    }

    #[test]
    fn tests_of_a_moved_folder_are_recognized() {
        let base = ["util/util.go", "util/util_test.go"];
        let pair = ("util/util_test.go", "internal/text/util_test.go");
        assert_eq!(moved(&base, &["internal/text/util.go", "internal/text/util_test.go"]), [pair]);
        assert_eq!(moved(&base, &["text/text.go", "text/text_test.go"]), [(base[1], "text/text_test.go")]);
        for added in [
            &["internal/text/util_test.go"][..],
            &["text/text.go", "text/a_test.go", "text/b_test.go"],
            &["_text/util.go", "_text/util_test.go"],
            &["a/util.go", "a/util_test.go", "b/util.go", "b/util_test.go"],
        ] {
            assert!(moved(&base, added).is_empty(), "{added:?}");
        }
        let kept = ["util/util_test.go", "util/util.go", "kept/util_test.go", "kept/a.go"];
        assert!(moved(&kept[2..], &["text/util.go", "text/util_test.go"]).is_empty());
        assert!(moved(&kept, &["kept/util.go", "kept/b_test.go"]).is_empty());
        let java = ["src/main/java/a/Calc.java", "src/test/java/a/CalcTest.java"];
        let test = "src/test/java/b/CalcTest.java";
        assert_eq!(moved(&java, &["src/main/java/b/Calc.java", test]), [(java[1], test)]);
        assert!(moved(&java, &["src/main/java/b/CalcTest.java"]).is_empty());
    }

    #[test]
    fn moved_test_gets_the_new_package() {
        let base = "// Tests.\npackage util\n\nimport \"testing\"\n";
        assert_eq!(with_package(base, "package text\n\nimport \"x\"\n"), base.replace("util", "text"));
        assert_eq!(with_package("package a.b;\nclass A {}\n", "package c;\n"), "package c;\nclass A {}\n");
        assert_eq!(with_package(base, ""), base);
    }
}
