//! Tests of findings about the text of a change: manifests, commands, program code that neutralizes tests, honest and malformed
//! diffs.

use super::TamperKind::*;
use super::findings::MAX_EVIDENCE;
use super::*;
use crate::domain::model::task::FileStat;

mod cases;

/// Returns a diff of one file with one hunk. Each line of `body` starts with its mark.
fn edit(path: &str, body: &str) -> String {
    headed(path, "", body)
}

fn headed(path: &str, heading: &str, body: &str) -> String {
    format!("diff --git a/{path} b/{path}\nindex 1..2 100644\n--- a/{path}\n+++ b/{path}\n{}", hunk(heading, body))
}

fn hunk(heading: &str, body: &str) -> String {
    let body = body.trim_matches('\n');
    let old = body.lines().filter(|line| !line.starts_with('+')).count();
    let new = body.lines().filter(|line| !line.starts_with('-')).count();
    format!("@@ -1,{old} +1,{new} @@ {heading}\n{body}\n")
}

fn created(path: &str, body: &str) -> String {
    let body: String = body.trim_matches('\n').lines().map(|line| format!("+{line}\n")).collect();
    format!("diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n{}", hunk("", &body))
}

fn deleted(path: &str, body: &str) -> String {
    let body: String = body.trim_matches('\n').lines().map(|line| format!("-{line}\n")).collect();
    format!("diff --git a/{path} b/{path}\ndeleted file mode 100644\n--- a/{path}\n+++ /dev/null\n{}", hunk("", &body))
}

fn renamed(old: &str, new: &str) -> String {
    format!("diff --git a/{old} b/{new}\nsimilarity index 100%\nrename from {old}\nrename to {new}\n")
}

/// Returns the findings if the run with the base's tests replaces the files that it replaces for the check `make test`.
fn found(diff: &str) -> Vec<TamperFinding> {
    let files: Vec<String> = diff::parse(diff).into_iter().filter_map(|file| file.old).collect();
    let start = CheckStart::new(["make test"], files.iter().map(String::as_str));
    scan(diff, &ChangedTexts::new(), &|path| start.depends_on(path), MAX_FINDINGS)
}

fn kinds(diff: &str) -> Vec<TamperKind> {
    found(diff).into_iter().map(|finding| finding.kind).collect()
}

/// See docs/research/threats.md#g17.
#[test]
fn weakened_configuration_is_found() {
    for (name, kind, diff) in [
        (
            "dependency from a folder of doubles",
            CheckConfigEdited,
            edit("package.json", "-    \"pay\": \"1.0.0\"\n+    \"pay\": \"file:./stubs/pay\""),
        ),
        ("tsconfig", CheckConfigEdited, edit("tsconfig.json", "-    \"strict\": true,\n+    \"strict\": false,")),
        (
            "tsconfig strictness gone",
            CheckConfigEdited,
            edit("tsconfig.json", "-    \"noImplicitAny\": true,\n     \"target\": \"es2022\""),
        ),
        (
            "tsconfig skipLibCheck",
            CheckConfigEdited,
            edit("tsconfig.build.json", "+    \"skipLibCheck\": true,\n     \"target\": \"es2022\""),
        ),
        (
            "fewer members",
            CheckConfigEdited,
            edit("Cargo.toml", " [workspace]\n-members = [\"a\", \"b\"]\n+members = [\"a\"]"),
        ),
        ("ts-nocheck", CheckConfigEdited, edit("src/a.ts", "+// @ts-nocheck\n import a")),
        ("allow all", CheckConfigEdited, edit("src/lib.rs", "+#![allow(clippy::all)]\n mod a;")),
        ("gradle", CheckConfigEdited, edit("build.gradle", " test {\n+  ignoreFailures = true")),
        ("maven", CheckConfigEdited, edit("pom.xml", " <configuration>\n+  <skipTests>true</skipTests>")),
        ("command of a script", CheckConfigEdited, edit("build/all.sh", "-cargo test --all\n+cargo test --lib")),
        ("command of an image", CheckConfigEdited, edit("Dockerfile", "-RUN pytest\n x")),
        ("exit 0 beside a command", CheckConfigEdited, edit("build/all.sh", " set -e\n+exit 0\n cargo test")),
        ("workflow", WorkflowEdited, edit(".github/workflows/ci.yml", "-  run: cargo test\n+  run: true")),
        ("workflow deleted", WorkflowEdited, deleted(".github/workflows/ci.yml", "on: push")),
        ("workflow moved away", WorkflowEdited, renamed(".github/workflows/ci.yml", "ci.yml.bak")),
        ("own action", WorkflowEdited, edit(".github/actions/test/action.yml", "+x\n y")),
        ("gitea workflow", WorkflowEdited, edit(".gitea/workflows/ci.yaml", "+x\n y")),
        ("forgejo workflow", WorkflowEdited, created(".forgejo/workflows/x.yml", "on: push")),
        ("gitlab", WorkflowEdited, edit(".gitlab-ci.yml", "+x\n y")),
        ("ralph file", RalphFileEdited, edit(".github/ralph.yml", "-  - cargo test\n+  - true")),
        ("ralph file of gitea", RalphFileEdited, created(".gitea/ralph.yml", "checks: []")),
        ("ralph file at the top", RalphFileEdited, deleted(".ralph.yml", "checks: [x]")),
    ] {
        assert!(kinds(&diff).contains(&kind), "{name}: {:?}\n{diff}", found(&diff));
    }
}

/// The run with the base's tests judges these.
#[test]
fn files_replaced_by_the_run_with_base_tests_are_not_searched() {
    for diff in [
        edit("tests/test_a.py", "-def test_adds():\n-    assert add(1, 1) == 2\n x"),
        edit("tests/test_a.py", " def test_adds():\n-    assert add(1, 1) == 2\n+    import os; os._exit(0)"),
        created("tests/test_b.py", "import os\n\nos._exit(0)"),
        edit("Makefile", "-\tcargo test\n+\tcargo test || true"),
        edit("pytest.ini", " [pytest]\n+addopts = -k easy"),
        edit("ci/check.sh", "-cargo test\n+cargo test || true"),
        created("jest.config.js", "module.exports = { testPathIgnorePatterns: ['src'] };"),
    ] {
        assert_eq!(found(&diff), [], "{diff}");
    }
    // Without such a run for the file, the change blocks.
    let diff = edit("ci/check.sh", "-cargo test\n+cargo test || true");
    assert_eq!(scan(&diff, &ChangedTexts::new(), &|_| false, MAX_FINDINGS).len(), 1);
}

#[test]
fn honest_changes_cause_no_finding() {
    for (name, diff) in [
        ("source only", edit("src/a.rs", "-    a + a\n+    a + b")),
        ("unit test", edit("src/a.rs", " mod tests {\n+    #[test]\n+    fn exits() {\n+        _exit(0);\n+    }")),
        ("threshold of a tool", edit("pyproject.toml", " [tool.black]\n-line-length = 80\n+line-length = 100")),
        ("fail_under raised", edit("package.json", "-      \"branches\": 80,\n+      \"branches\": 90,")),
        ("number in program code", edit("src/retry.py", "-MIN_RETRIES = 5\n+MIN_RETRIES = 3")),
        ("threshold of the program", edit("config/app.yml", "-alert_threshold: 90\n+alert_threshold: 80")),
        ("coverage in prose", edit("README.md", "-Coverage is 90 %.\n+Coverage is 80 %.")),
        (
            "dependency",
            edit("package.json", "   \"dependencies\": {\n-    \"left-pad\": \"1.0.0\"\n+    \"left-pad\": \"1.1.0\""),
        ),
        (
            "new npm script",
            edit(
                "package.json",
                "   \"scripts\": {\n+    \"test:e2e\": \"playwright test\",\n     \"test\": \"jest\",",
            ),
        ),
        (
            "one more check",
            edit("package.json", "-    \"test\": \"jest\"\n+    \"test\": \"jest --coverage && eslint .\""),
        ),
        (
            "comma only",
            edit("package.json", "-    \"test\": \"jest\"\n+    \"test\": \"jest\",\n+    \"build\": \"tsc\""),
        ),
        ("cargo dependency", edit("Cargo.toml", " [dependencies]\n+serde = \"1\"")),
        ("pyproject dependency", edit("pyproject.toml", " [project]\n-version = \"1\"\n+version = \"2\"")),
        ("strictness switched on", edit("tsconfig.json", "-    \"strict\": false,\n+    \"strict\": true,")),
        ("or true elsewhere", edit("deploy/start.sh", "-rm x\n+rm x || true")),
        ("new script", created("build/test-all.sh", "set -e\ncargo test\nexit 0")),
        (
            "production assertion",
            headed("src/a.rs", "fn work() {", "     let x = 1;\n-    assert!(x > 0);\n     go(x);"),
        ),
        ("end of a program", edit("src/main.py", " def main():\n+    sys.exit(0)")),
        (
            "comparison with the own class",
            edit(
                "missing.py",
                " class Missing:\n+    def __eq__(self, other):\n+        return isinstance(other, Missing)",
            ),
        ),
        (
            "comparison with the own class of Java",
            edit(
                "src/Missing.java",
                " class Missing {\n+    public boolean equals(Object other) {\n+        return other instanceof Missing;\n+    }\n }",
            ),
        ),
        ("hard exit that was there", edit("src/run.py", " def stop():\n-    os._exit(0)\n+    os._exit(0)  # now")),
        ("docs deleted", deleted("docs/test.md", "# Tests")),
        ("mode changed", "diff --git a/build/test.sh b/build/test.sh\nold mode 100644\nnew mode 100755\n".to_owned()),
    ] {
        assert_eq!(found(&diff), [], "{name}\n{diff}");
    }
}

/// See docs/research/threats.md#g17.
#[test]
fn every_recorded_case_blocks_the_review() {
    let cases = cases::all();
    let blocks = |diff: &str| found(diff).iter().any(TamperFinding::blocks);
    let missed: Vec<&str> = cases.iter().filter(|case| !blocks(&case.diff)).map(|case| case.title.as_str()).collect();
    assert!(cases.len() >= 90 && missed.is_empty(), "{} cases, missed: {missed:#?}", cases.len());
}

/// Without the complete file, closing quotes look like opening quotes.
#[test]
fn line_after_a_docstring_is_program_code() {
    let old = "def end():\n    \"\"\"\n    Ends.\n    >>> end()\n    \"\"\"\n";
    let diff = "diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n@@ -3,3 +3,4 @@\n     Ends.\n     >>> end()\n     \"\"\"\n+    os._exit(0)\n";
    assert_eq!(files_to_read(diff), ["calc.py".to_owned()].into());
    let of = |text: &str| {
        let texts = [("calc.py".to_owned(), text.as_bytes().to_vec())].into();
        scan(diff, &texts, &|_| false, MAX_FINDINGS).len()
    };
    assert_eq!(of(&format!("{old}    os._exit(0)\n")), 1);
    assert_eq!(of("other"), 0, "a text that does not fit is no help");
}

#[test]
fn unusual_diffs_are_parsed() {
    let quoted = "diff --git \"a/src/test_\\303\\244.ts\" \"b/src/\\303\\244.ts\"\n--- \"a/src/\\303\\244.ts\"\n\
                  +++ \"b/src/\\303\\244.ts\"\n@@ -1,1 +1,2 @@\n+// @ts-nocheck\n x\n";
    assert_eq!(found(quoted)[0].path, "src/ä.ts");
    let blanks = edit("my src/a.ts", "+// @ts-nocheck\n y").replace("+++ b/my src/a.ts", "+++ b/my src/a.ts\t");
    assert_eq!(found(&blanks)[0].path, "my src/a.ts");
    // A removed SQL comment is not a header; the lines after it still count.
    let sql = "diff --git a/src/a.ts b/src/a.ts\n--- a/src/a.ts\n+++ b/src/a.ts\n@@ -1,2 +1,2 @@\n--- a comment\n+// @ts-nocheck\n x\n";
    assert_eq!(kinds(sql), [CheckConfigEdited]);
    let windows = edit("src/a.ts", "+// @ts-nocheck\n x").replace('\n', "\r\n");
    assert_eq!(kinds(&windows), [CheckConfigEdited]);
    let binary = "diff --git a/.github/workflows/x.yml b/.github/workflows/x.yml\nindex 1..2 100644\nBinary files a/.github/workflows/x.yml and b/.github/workflows/x.yml differ\n";
    assert_eq!(kinds(binary), [WorkflowEdited]);
    let bare = "--- a/.ralph.yml\n+++ b/.ralph.yml\n@@ -1 +1 @@\n-a\n+b\n--- a/src/a.ts\n+++ b/src/a.ts\n@@ -1 +1 @@\n-a\n+// @ts-nocheck\n";
    assert_eq!(kinds(bare), [RalphFileEdited, CheckConfigEdited]);
    for text in [
        "",
        "no diff",
        "diff --git",
        "diff --git a b c",
        "@@ -1,99 +1,99 @@\n-x",
        "--- \n+++ \n@@ -x +y @@\n",
        "diff --git \"a/\\",
        "+++ b/x",
    ] {
        assert_eq!(found(text), [], "{text}");
    }
}

#[test]
fn protected_paths_are_reported_and_findings_bounded() {
    let of = |path: &str| found(&edit(path, "-a\n+b")).into_iter().map(|f| f.kind).collect::<Vec<_>>();
    assert_eq!(of(".ralph.yml"), [RalphFileEdited]);
    assert_eq!(of(".github/workflows/a/b.yml"), [WorkflowEdited]);
    assert_eq!(of("pipelines/a/b.yml"), []);
    let many: String = (0..300).map(|n| edit(&format!("src/a{n}.ts"), "+// @ts-nocheck\n x")).collect();
    assert_eq!(found(&many).len(), MAX_FINDINGS);
    let long = edit("src/a.ts", &format!("+// @ts-nocheck {}\u{7}\n x", "x".repeat(900)));
    let finding = found(&long).remove(0);
    assert!(finding.evidence.chars().count() <= MAX_EVIDENCE && !finding.evidence.contains('\u{7}'));
}

#[test]
fn manifests_are_recognized() {
    let paths =
        ["Cargo.lock", "web/package.json", "requirements-dev.txt", "Dockerfile.test", "src/Cargo.toml.rs", "notes.txt"];
    let files = paths
        .iter()
        .map(|path| FileStat { path: (*path).into(), added: 1, removed: 0, binary: false, change: None })
        .collect();
    assert_eq!(
        flagged_manifests(&DiffStat { files }),
        ["Cargo.lock", "web/package.json", "requirements-dev.txt", "Dockerfile.test"]
    );
}

/// A large diff is scanned in linear time. Quadratic time would be most of a minute.
#[test]
fn large_diffs_are_scanned() {
    let lines = |line: &dyn Fn(usize) -> String| (0..5_000).map(line).collect::<String>();
    let body = [
        lines(&|n| format!("-    value{n} = call({n})  # => {n}\n-def f{n}():\n")),
        lines(&|n| format!("+    value{n} = {n}\n+async def f{n}():\n+    \"\"\"\n")),
    ];
    assert!(found(&edit("src/a.py", &body.concat())).len() <= MAX_FINDINGS);
    let command = |n: usize| format!("-pytest -q tests/a{n}.py\n+pytest -q tests/b{n}.py || true\n+exit 0\n");
    let script: String = (0..1_000).map(command).collect();
    assert_eq!(kinds(&edit("build/all.sh", &script)), [CheckConfigEdited]);
    for path in ["src/a.js", "src/a.rs", "a.go", "src/A.java", "a.rb", "a.php", "bin/a.sh", "src/a.py", "package.json"]
    {
        let head = format!("diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n");
        let blank = format!("{head}@@ -0,0 +1,20000 @@\n{}", "+\n".repeat(20_000));
        assert_eq!(found(&blank), [], "{path}");
        let change = |n: usize| format!("@@ -{n},2 +{n},1 @@ def f_{n}():\n-    f({n})\n-    g({n})\n+    exit(0)\n");
        let hunks: String = (1..1_000).map(change).collect();
        assert!(found(&format!("{head}{hunks}")).len() <= MAX_FINDINGS, "{path}");
        let file = |n: usize| created(&format!("a{n}/{path}"), "x = 1") + &deleted(&format!("b{n}/{path}"), "mod a;");
        let files: String = (0..500).map(file).collect();
        assert!(found(&files).len() <= MAX_FINDINGS, "{path}");
    }
}

proptest::proptest! {
    #[test]
    fn any_text_does_not_panic(text in "(diff --git a/t/a.py b/t/a.py|--- a/x\"|\\+\\+\\+ b/a.js|\\+\\+\\+ b/setup.cfg|@@ -1,9 \\+1,9 @@ é|[-+ ]\\s{0,4}(exit\\(0|#\\[cfg\\(test\\)\\]|fn é|def a|return True|pytest|\"|\\\\)|\\PC{0,8}|\n|\r\n){0,40}") {
        found(&text);
    }
}
