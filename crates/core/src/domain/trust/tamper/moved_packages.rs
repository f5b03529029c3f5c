//! Tests that moved with their package. In Go and on the JVM a test belongs to the package of its folder, so the base's version must
//! run at the new place, with the name of the new package.

use std::collections::{BTreeSet, HashSet};

use super::marks::is_test_code;
use super::starts::CheckStart;

/// Returns pairs of paths: a test of the base and its new place. The branch has no file of its folder, and the other folder is new.
/// `deleted` and `added` are the paths that only the base or only the branch has.
pub fn moved_packages<'a>(
    start: &CheckStart<'a>,
    deleted: &BTreeSet<&'a str>,
    added: &BTreeSet<&'a str>,
) -> Vec<(&'a str, &'a str)> {
    let folders: HashSet<&str> = start.base_paths().map(|path| divided(path).0).collect();
    let is_new_package = |path: &str| {
        let folder = divided(path).0;
        let mut parts = folder.split('/');
        // Go skips these folders.
        let is_skipped = parts.any(|part| part.starts_with(['_', '.']) || matches!(part, "testdata" | "vendor"));
        let mut files = added.iter().filter(|file| divided(file).0 == folder && file.ends_with(".go"));
        !folders.contains(folder) && !is_skipped && files.any(|file| !is_test_code(file))
    };
    let is_left = |path: &str| {
        let mut files = start.base_paths().filter(|file| divided(file).0 == divided(path).0);
        files.all(|file| deleted.contains(file))
    };
    let all_new: Vec<&str> = added.iter().copied().filter(|path| is_test_code(path)).collect();
    let mut pairs = Vec::new();
    for path in deleted.iter().copied().filter(|path| is_test_code(path) && is_left(path)) {
        let (folder, name) = divided(path);
        let root = test_root(path);
        let is_target = |new: &&str| match root {
            Some(_) => test_root(new) == root && divided(new).1 == name,
            None => path.ends_with("_test.go") && new.ends_with("_test.go") && is_new_package(new),
        };
        let targets: Vec<&str> = all_new.iter().copied().filter(is_target).collect();
        let is_only = || deleted.iter().filter(|other| is_test_code(other) && divided(other).0 == folder).count() == 1;
        let mut same = targets.iter().copied().filter(|new| divided(new).1 == name);
        match (same.next(), same.next()) {
            (Some(new), None) => pairs.push((path, new)),
            (None, _) if targets.len() == 1 && is_only() => pairs.push((path, targets[0])),
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
    fn tests_of_a_moved_folder_are_known() {
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
