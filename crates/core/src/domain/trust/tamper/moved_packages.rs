//! Tests that moved with their package. In Go and on the JVM a test belongs to the package of its folder, so the base's version must
//! run at the new place, with the name of the new package.

use std::collections::BTreeSet;

use super::marks::is_test_code;
use super::starts::CheckStart;

/// Returns pairs of paths: a test of the base and its new place. All files of its folder moved to the other folder. `deleted` and `added`
/// are the paths that only the base or only the branch has.
pub fn moved_packages<'a>(
    start: &CheckStart<'a>,
    deleted: &BTreeSet<&'a str>,
    added: &BTreeSet<&'a str>,
) -> Vec<(&'a str, &'a str)> {
    let tests =
        deleted.iter().filter(|path| is_test_code(path) && (path.ends_with(".go") || test_root(path).is_some()));
    let mut pairs = Vec::new();
    for path in tests {
        let (folder, name) = divided(path);
        let same: Vec<&str> = added.iter().copied().filter(|new| divided(new).1 == name).collect();
        let [new] = same[..] else { continue };
        let target = divided(new).0;
        let is_moved =
            |file: &str| deleted.contains(file) && added.contains(format!("{target}{}", divided(file).1).as_str());
        let mut files = start.base_paths().filter(|file| divided(file).0 == folder);
        let has_program = start.base_paths().any(|file| divided(file).0 == folder && !is_test_code(file));
        let is_collected = match test_root(path) {
            Some(root) => test_root(new) == Some(root),
            // Go skips these folders.
            None => {
                has_program
                    && !target
                        .split('/')
                        .any(|part| part.starts_with(['_', '.']) || matches!(part, "testdata" | "vendor"))
            }
        };
        if is_collected && files.all(is_moved) {
            pairs.push((*path, new));
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
        for added in [
            &["internal/text/util_test.go"][..],
            &["text/text.go", "text/util_test.go"],
            &["_text/util.go", "_text/util_test.go"],
            &["a/util.go", "a/util_test.go", "b/util.go", "b/util_test.go"],
        ] {
            assert!(moved(&base, added).is_empty(), "{added:?}");
        }
        assert!(moved(&["util/util_test.go"], &["text/util_test.go"]).is_empty());
        let java = ["src/main/java/a/Calc.java", "src/test/java/a/CalcTest.java"];
        let test = "src/test/java/b/CalcTest.java";
        assert_eq!(moved(&java, &["src/main/java/b/Calc.java", test]), [(java[1], test)]);
        assert!(moved(&java, &["src/main/java/b/CalcTest.java"]).is_empty());
    }

    #[test]
    fn moved_test_gets_the_new_package() {
        let base = "// Tests.\npackage util\n\nimport \"testing\"\n";
        assert_eq!(with_package(base, "package text\n\nimport \"x\"\n"), base.replace("util", "text"));
        assert_eq!(with_package("package a.b;\nclass A {}\n", "package c$1;\n"), "package c;\nclass A {}\n");
        assert_eq!(with_package(base, ""), base);
    }
}
