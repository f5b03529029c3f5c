//! Tests of tampering: diffs with weakened tests, legitimate diffs, and malformed diffs.

use super::TamperKind::*;
use super::*;
use crate::domain::model::task::FileStat;

mod cases;

/// Returns a diff of one file with one hunk. Each line of `body` begins with its mark.
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

fn kinds(diff: &str) -> Vec<TamperKind> {
    scan(diff).into_iter().map(|finding| finding.kind).collect()
}

/// See docs/research/threats.md#g17.
#[test]
fn new_file_that_ends_the_tests_of_its_package_is_found() {
    let main = |code: &str| {
        created("pkg/zz_test.go", &format!("package pkg\n\nfunc TestMain(m *testing.M) {{\n\tos.Exit({code})\n}}"))
    };
    assert_eq!(kinds(&main("0")), [EarlyExit]);
    assert_eq!(kinds(&main("m.Run()")), []);
}

/// See docs/research/threats.md#g17.
#[test]
fn weakened_tests_are_found() {
    let cases = [
        (
            "rust test removed",
            TestDeleted,
            edit(
                "src/a.rs",
                " mod tests {\n-    #[test]\n-    fn adds() {\n-        assert_eq!(add(1, 1), 2);\n-    }\n }",
            ),
        ),
        (
            "tokio test removed",
            TestDeleted,
            edit(
                "src/a.rs",
                "-#[tokio::test(flavor = \"multi_thread\")]\n-async fn adds() {\n-    assert_eq!(add(1, 1), 2);\n-}\n x",
            ),
        ),
        (
            "attribute removed",
            TestDeleted,
            edit("src/a.rs", "-    #[test]\n     fn adds() {\n         assert_eq!(add(1, 1), 2);"),
        ),
        (
            "rust test commented out",
            TestDeleted,
            edit(
                "tests/a.rs",
                "-#[test]\n-fn adds() {\n-    assert_eq!(add(1, 1), 2);\n-}\n+// #[test]\n+// fn adds() {\n+//     assert_eq!(add(1, 1), 2);\n+// }",
            ),
        ),
        (
            "test replaced by a trivial one",
            TestDeleted,
            edit(
                "tests/a.rs",
                "-#[test]\n-fn adds() {\n-    assert_eq!(add(1, 1), 2);\n-}\n+#[test]\n+fn exists() {\n+    let _ = add(1, 1);\n+}",
            ),
        ),
        (
            "python test removed",
            TestDeleted,
            edit(
                "tests/test_a.py",
                " import a\n-def test_adds():\n-    assert add(1, 1) == 2\n-\n def test_other():\n     assert 1",
            ),
        ),
        (
            "python test no longer collected",
            TestDeleted,
            edit("tests/test_a.py", "-def test_adds():\n+def _test_adds():\n     assert add(1, 1) == 2"),
        ),
        (
            "js test removed",
            TestDeleted,
            edit(
                "src/a.test.ts",
                " describe('a', () => {\n-  it('adds', () => {\n-    expect(add(1, 1)).toBe(2);\n-  });\n });",
            ),
        ),
        (
            "go test removed",
            TestDeleted,
            edit(
                "a_test.go",
                "-func TestAdd(t *testing.T) {\n-\tif add(1, 1) != 2 {\n-\t\tt.Fatal(\"no\")\n-\t}\n-}\n x",
            ),
        ),
        (
            "java test removed",
            TestDeleted,
            edit(
                "src/test/java/ATest.java",
                "-    @Test\n-    void adds() {\n-        assertEquals(2, add(1, 1));\n-    }\n }",
            ),
        ),
        (
            "kotlin annotation removed",
            TestDeleted,
            edit(
                "src/test/kotlin/ATest.kt",
                "-    @Test\n     fun `adds two`() {\n         assertEquals(2, add(1, 1))\n     }",
            ),
        ),
        (
            "ruby example removed",
            TestDeleted,
            edit("spec/a_spec.rb", "-  it 'adds' do\n-    expect(add(1, 1)).to eq(2)\n-  end\n x"),
        ),
        (
            "php test removed",
            TestDeleted,
            edit(
                "tests/ATest.php",
                "-    public function testAdds(): void\n-    {\n-        $this->assertSame(2, add(1, 1));\n-    }\n }",
            ),
        ),
        (
            "bats test removed",
            TestDeleted,
            edit("test/a.bats", "-@test \"adds\" {\n-  [ \"$(add 1 1)\" -eq 2 ]\n-}\n x"),
        ),
        ("test file deleted", TestDeleted, deleted("tests/test_a.py", "def test_adds():\n    assert add(1, 1) == 2")),
        (
            "source with tests deleted",
            TestDeleted,
            deleted("src/a.rs", "#[test]\nfn adds() {\n    assert_eq!(add(1, 1), 2);\n}"),
        ),
        ("test file put out of reach", TestDeleted, renamed("src/a.test.ts", "src/a.test.ts.bak")),
        ("Go test put into testdata", TestDeleted, renamed("pkg/a_test.go", "pkg/testdata/a_test.go")),
        ("Go test put into a folder with `_`", TestDeleted, renamed("pkg/a_test.go", "_old/a_test.go")),
        (
            "ignored",
            TestSkipped,
            edit("src/a.rs", "     #[test]\n+    #[ignore]\n     fn adds() {\n         assert_eq!(add(1, 1), 2);"),
        ),
        (
            "ignored with a reason",
            TestSkipped,
            edit("src/a.rs", "     #[test]\n+    #[ignore = \"flaky\"]\n     fn adds() {"),
        ),
        ("compiled never", TestSkipped, edit("src/a.rs", "-#[cfg(test)]\n+#[cfg(any())]\n mod tests {")),
        (
            "compiled with a feature",
            TestSkipped,
            edit("src/a.rs", "-#[cfg(test)]\n+#[cfg(feature = \"slow\")]\n mod tests {"),
        ),
        (
            "pytest skip",
            TestSkipped,
            edit(
                "tests/test_a.py",
                "+@pytest.mark.skip(reason=\"later\")\n def test_adds():\n     assert add(1, 1) == 2",
            ),
        ),
        (
            "pytest xfail",
            TestSkipped,
            edit("tests/test_a.py", "+@pytest.mark.xfail\n def test_adds():\n     assert add(1, 1) == 2"),
        ),
        (
            "pytest skip within",
            TestSkipped,
            edit("tests/test_a.py", " def test_adds():\n+    pytest.skip(\"no\")\n     assert add(1, 1) == 2"),
        ),
        (
            "whole module skipped",
            TestSkipped,
            edit("tests/test_a.py", " import pytest\n+pytestmark = pytest.mark.skip\n x = 1"),
        ),
        (
            "unittest skip",
            TestSkipped,
            edit("tests/test_a.py", "+    @unittest.skip(\"x\")\n     def test_adds(self):"),
        ),
        (
            "it.skip",
            TestSkipped,
            edit("a.test.js", "-  it('adds', () => {\n+  it.skip('adds', () => {\n     expect(1).toBe(2);"),
        ),
        (
            "xit",
            TestSkipped,
            edit("a.test.js", "-  it('adds', () => {\n+  xit('adds', () => {\n     expect(1).toBe(2);"),
        ),
        ("xdescribe", TestSkipped, edit("a.spec.ts", "-describe('a', () => {\n+xdescribe('a', () => {\n   it('x', f)")),
        (
            "test.todo",
            TestSkipped,
            edit("a.test.js", "-test('adds', () => {\n-  expect(add(1, 1)).toBe(2);\n-});\n+test.todo('adds');"),
        ),
        (
            ".only",
            TestSkipped,
            edit("a.test.js", "-  it('easy', () => {\n+  it.only('easy', () => {\n     expect(1).toBe(1);"),
        ),
        (
            ".only on a new test",
            TestSkipped,
            edit("a.test.js", "+  it.only('easy', () => {\n+    expect(f()).toBe(1);\n+  });\n   it('hard', () => {"),
        ),
        (
            "go skip",
            TestSkipped,
            edit("a_test.go", " func TestAdd(t *testing.T) {\n+\tt.Skip(\"flaky\")\n \tif add(1, 1) != 2 {"),
        ),
        ("go build tag", TestSkipped, edit("a_test.go", "+//go:build never\n+\n package a")),
        (
            "junit disabled",
            TestSkipped,
            edit("src/test/java/ATest.java", "     @Test\n+    @Disabled(\"flaky\")\n     void adds() {"),
        ),
        (
            "junit 4 ignore",
            TestSkipped,
            edit("src/test/java/ATest.java", "+    @Ignore\n     @Test\n     public void adds() {"),
        ),
        (
            "another test ignored instead",
            TestSkipped,
            edit(
                "src/a.rs",
                "     #[test]\n-    #[ignore]\n     fn easy() {}\n     #[test]\n+    #[ignore]\n     fn hard() {",
            ),
        ),
        (
            "assertion removed",
            AssertionRemoved,
            edit("tests/a.rs", " #[test]\n fn adds() {\n     let sum = add(1, 1);\n-    assert_eq!(sum, 2);\n }"),
        ),
        (
            "assertion removed while another test came",
            AssertionRemoved,
            edit(
                "tests/test_a.py",
                " def test_adds():\n     s = add(1, 1)\n-    assert s == 2\n \n+def test_more():\n+    assert add(2, 2) == 4\n",
            ),
        ),
        (
            "assertion in a unit test",
            AssertionRemoved,
            headed("src/a.rs", "mod tests {", "         let sum = add(1, 1);\n-        assert_eq!(sum, 2);\n     }"),
        ),
        (
            "assertion commented out",
            AssertionRemoved,
            edit(
                "a.test.js",
                " it('adds', () => {\n-  expect(add(1, 1)).toBe(2);\n+  // expect(add(1, 1)).toBe(2);\n })",
            ),
        ),
        (
            "go check removed",
            AssertionRemoved,
            edit(
                "a_test.go",
                " func TestAdd(t *testing.T) {\n-\tif add(1, 1) != 2 {\n-\t\tt.Errorf(\"no\")\n-\t}\n+\t_ = add(1, 1)\n }",
            ),
        ),
        (
            "assert True",
            AssertionRemoved,
            edit("tests/test_a.py", " def test_adds():\n-    assert add(1, 1) == 2\n+    assert True"),
        ),
        (
            "assert!(true)",
            AssertionRemoved,
            edit("tests/a.rs", " #[test]\n fn adds() {\n-    assert_eq!(add(1, 1), 2);\n+    assert!(true);\n }"),
        ),
        (
            "expect(true)",
            AssertionRemoved,
            edit("a.test.js", " it('adds', () => {\n-  expect(add(1, 1)).toBe(2);\n+  expect(true).toBe(true);\n })"),
        ),
        (
            "many assertions to one",
            AssertionRemoved,
            edit(
                "tests/test_a.py",
                " def test_adds():\n-    assert a == 1\n-    assert b == 2\n-    assert c == 3\n-    assert d == 4\n+    assert a is not None",
            ),
        ),
    ];
    for (name, kind, diff) in &cases {
        assert!(kinds(diff).contains(kind), "{name}: {:?}\n{diff}", scan(diff));
    }
    assert!(cases.len() >= 40);
}

/// See docs/research/threats.md#g17.
#[test]
fn weakened_checks_are_found() {
    let cases = [
        (
            "npm test",
            CheckConfigEdited,
            edit("package.json", "   \"scripts\": {\n-    \"test\": \"jest\",\n+    \"test\": \"true\","),
        ),
        (
            "npm pretest",
            CheckConfigEdited,
            edit("package.json", "   \"scripts\": {\n+    \"pretest\": \"rm -rf test\",\n     \"test\": \"jest\","),
        ),
        (
            "lint script removed",
            CheckConfigEdited,
            edit("package.json", "-    \"lint\": \"eslint .\",\n     \"x\": \"y\""),
        ),
        ("pytest.ini", CheckConfigEdited, edit("pytest.ini", " [pytest]\n+addopts = -k easy")),
        ("new pytest.ini", CheckConfigEdited, created("pytest.ini", "[pytest]\naddopts = --ignore=tests/hard")),
        (
            "pyproject",
            CheckConfigEdited,
            edit(
                "pyproject.toml",
                " [tool.pytest.ini_options]\n-testpaths = [\"tests\"]\n+testpaths = [\"tests/easy\"]",
            ),
        ),
        ("pyproject without its section", CheckConfigEdited, edit("pyproject.toml", " x = 1\n+addopts = \"-x\"")),
        ("coverage of setup.cfg", CheckConfigEdited, edit("setup.cfg", " [coverage:run]\n+omit = src/hard.py")),
        (".coveragerc", CheckConfigEdited, edit(".coveragerc", " [run]\n+omit = *")),
        (
            "jest config",
            CheckConfigEdited,
            edit("web/jest.config.js", " module.exports = {\n+  testPathIgnorePatterns: ['hard'],"),
        ),
        ("vitest config deleted", CheckConfigEdited, deleted("vitest.config.ts", "export default {}")),
        ("makefile", CheckConfigEdited, edit("Makefile", " test: build\n-\tcargo test\n+\ttrue")),
        (
            "makefile by heading",
            CheckConfigEdited,
            headed("Makefile", "test: build", " \techo a\n-\tcargo test\n+\tcargo test || true"),
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
        ("eslint", CheckConfigEdited, edit(".eslintrc.json", "-  \"no-eval\": \"error\"\n+  \"no-eval\": \"off\"")),
        ("clippy.toml", CheckConfigEdited, edit("clippy.toml", "-msrv = \"1\"\n+msrv = \"2\"")),
        ("deny.toml", CheckConfigEdited, edit("deny.toml", "+ignore = [\"RUSTSEC-1\"]\n x")),
        ("nextest", CheckConfigEdited, edit(".config/nextest.toml", "+default-filter = 'not test(hard)'\n x")),
        ("cargo lints", CheckConfigEdited, edit("Cargo.toml", " [lints.clippy]\n+all = \"allow\"")),
        ("cargo test off", CheckConfigEdited, edit("Cargo.toml", " [lib]\n+doctest = false")),
        (
            "conftest",
            CheckConfigEdited,
            edit("tests/conftest.py", " import pytest\n+def pytest_collection_modifyitems(items):\n+    items.clear()"),
        ),
        ("ts-nocheck", CheckConfigEdited, edit("src/a.ts", "+// @ts-nocheck\n import a")),
        ("allow all", CheckConfigEdited, edit("src/lib.rs", "+#![allow(clippy::all)]\n mod a;")),
        ("cargo config", CheckConfigEdited, edit(".cargo/config.toml", "+[build]\n x")),
        ("runner shim", CheckConfigEdited, created("node_modules/.bin/jest", "#!/bin/sh\nexit 0")),
        ("exit 0", FailureIgnored, edit("scripts/test.sh", " set -e\n+exit 0\n cargo test")),
        ("|| true", FailureIgnored, edit("ci/check.sh", "-cargo test\n+cargo test || true")),
        ("true #", FailureIgnored, edit("ci/check.sh", "-cargo test\n+true # cargo test")),
        ("set +e", FailureIgnored, edit("ci/check", " #!/bin/sh\n+set +e\n cargo test")),
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
        ("fail_under", ThresholdLowered, edit("pyproject.toml", "-fail_under = 90\n+fail_under = 50")),
        (
            "cov-fail-under",
            ThresholdLowered,
            edit("tox.ini", "-  pytest --cov-fail-under=90\n+  pytest --cov-fail-under=10"),
        ),
        ("bound removed", ThresholdLowered, edit("Makefile", " cover:\n-\tpytest --cov-fail-under=90\n+\tpytest")),
        ("jest threshold", ThresholdLowered, edit("jest.config.js", "-      branches: 80,\n+      branches: 8,")),
        (
            "max-warnings",
            ThresholdLowered,
            edit(
                "package.json",
                "-    \"lint\": \"eslint . --max-warnings 0\",\n+    \"lint\": \"eslint . --max-warnings 99\",",
            ),
        ),
        ("codecov target", ThresholdLowered, edit("codecov.yml", "-    target: 80%\n+    target: 20%")),
        (
            "min coverage in a script",
            ThresholdLowered,
            edit("scripts/cover.sh", "-MIN_COVERAGE=80\n+MIN_COVERAGE=79.5"),
        ),
    ];
    for (name, kind, diff) in &cases {
        assert!(kinds(diff).contains(kind), "{name}: {:?}\n{diff}", scan(diff));
    }
}

#[test]
fn healthy_changes_are_not_found() {
    let moved_body = "def test_adds():\n    assert add(1, 1) == 2\n\ndef test_subs():\n    assert sub(1, 1) == 0";
    let cases = [
        ("source only", edit("src/a.rs", "-    a + a\n+    a + b")),
        ("test added", edit("tests/a.rs", " x\n+#[test]\n+fn more() {\n+    assert_eq!(add(2, 2), 4);\n+}")),
        ("test file added", created("tests/test_b.py", moved_body)),
        (
            "test renamed",
            edit("tests/a.rs", " #[test]\n-fn adds() {\n+fn adds_two_numbers() {\n     assert_eq!(add(1, 1), 2);\n }"),
        ),
        (
            "js test renamed",
            edit(
                "a.test.js",
                "-  it('adds', () => {\n+  it('adds two numbers', () => {\n     expect(add(1, 1)).toBe(2);\n   });",
            ),
        ),
        (
            "test renamed and rewritten",
            edit(
                "tests/test_a.py",
                "-def test_adds():\n-    assert add(1, 1) == 2\n+def test_adds_two():\n+    result = add(1, 1)\n+    assert result == 2",
            ),
        ),
        ("file renamed", renamed("tests/test_a.py", "tests/unit/test_a.py")),
        (
            "file moved without rename detection",
            deleted("tests/test_a.py", moved_body) + &created("tests/unit/test_a.py", moved_body),
        ),
        (
            "test moved to another file",
            edit("tests/a.rs", "-#[test]\n-fn adds() {\n-    assert_eq!(add(1, 1), 2);\n-}\n x")
                + &edit("tests/b.rs", " y\n+#[test]\n+fn adds() {\n+    assert_eq!(add(1, 1), 2);\n+}"),
        ),
        (
            "unit tests moved to a file",
            edit(
                "src/a.rs",
                "-#[cfg(test)]\n-mod tests {\n-    #[test]\n-    fn adds() {\n-        assert_eq!(add(1, 1), 2);\n-    }\n-}\n+#[cfg(test)]\n+mod tests;",
            ) + &created("src/a/tests.rs", "#[test]\nfn adds() {\n    assert_eq!(add(1, 1), 2);\n}"),
        ),
        (
            "assertion reworded",
            edit(
                "tests/test_a.py",
                " def test_adds():\n-    assert add(1, 1) == 2\n+    result = add(1, 1)\n+    assert result == 2, result",
            ),
        ),
        (
            "assertion reformatted",
            edit(
                "tests/a.rs",
                " #[test]\n fn adds() {\n-    assert_eq!(add(1, 1), 2, \"sum\");\n+    assert_eq!(\n+        add(1, 1),\n+        2,\n+        \"sum\"\n+    );\n }",
            ),
        ),
        (
            "assertions to a helper",
            edit(
                "a.test.js",
                " it('adds', () => {\n-  expect(a).toBe(1);\n-  expect(b).toBe(2);\n+  expectPair(a, b);\n })",
            ),
        ),
        (
            "test file reformatted",
            edit(
                "a.test.js",
                "-it(\"adds\", function() {\n-    expect( add(1, 1) ).toBe( 2 )\n-})\n+it('adds', () => {\n+  expect(add(1, 1)).toBe(2);\n+});",
            ),
        ),
        (
            "indentation changed",
            edit(
                "a.test.js",
                "-it('adds', () => {\n-  expect(add(1, 1)).toBe(2);\n-});\n+describe('a', () => {\n+  it('adds', () => {\n+    expect(add(1, 1)).toBe(2);\n+  });\n+});",
            ),
        ),
        (
            "tests to a table",
            edit(
                "tests/test_a.py",
                "-def test_one():\n-    assert f(1) == 1\n-def test_two():\n-    assert f(2) == 4\n+@pytest.mark.parametrize(\"n, out\", [(1, 1), (2, 4)])\n+def test_f(n, out):\n+    assert f(n) == out",
            ),
        ),
        (
            "two tests joined",
            edit(
                "tests/test_a.py",
                "-def test_one():\n-    assert f(1) == 1\n-def test_two():\n-    assert f(2) == 4\n+def test_both():\n+    assert f(1) == 1\n+    assert f(2) == 4",
            ),
        ),
        ("un-ignored", edit("src/a.rs", "     #[test]\n-    #[ignore]\n     fn adds() {")),
        (
            "skip removed",
            edit("a.test.js", "-  it.skip('adds', () => {\n+  it('adds', () => {\n     expect(1).toBe(1);"),
        ),
        (
            "skip reworded",
            edit("src/a.rs", "     #[test]\n-    #[ignore]\n+    #[ignore = \"needs docker\"]\n     fn adds() {"),
        ),
        (
            "new test that needs a network",
            edit(
                "tests/a.rs",
                " x\n+#[test]\n+#[ignore = \"needs the network\"]\n+fn fetches() {\n+    assert!(fetch().is_ok());\n+}",
            ),
        ),
        (
            "new skipped test in a new file",
            created("a_test.go", "package a\n\nfunc TestNet(t *testing.T) {\n\tt.Skip(\"net\")\n}"),
        ),
        ("threshold raised", edit("pyproject.toml", " [tool.black]\n-line-length = 80\n+line-length = 100")),
        (
            "fail_under raised in a script",
            edit("scripts/cover.sh", "-pytest --cov-fail-under=80\n+pytest --cov-fail-under=90"),
        ),
        (
            "max-warnings lowered in a script",
            edit("scripts/lint.sh", "-eslint --max-warnings 10\n+eslint --max-warnings 0"),
        ),
        ("number in program code", edit("src/retry.py", "-MIN_RETRIES = 5\n+MIN_RETRIES = 3")),
        ("threshold of the program", edit("config/app.yml", "-alert_threshold: 90\n+alert_threshold: 80")),
        ("replicas", edit("deploy/app.yaml", "-  minReplicas: 3\n+  minReplicas: 2")),
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
            "comma only",
            edit("package.json", "-    \"test\": \"jest\"\n+    \"test\": \"jest\",\n+    \"build\": \"tsc\""),
        ),
        ("cargo dependency", edit("Cargo.toml", " [dependencies]\n+serde = \"1\"")),
        ("pyproject dependency", edit("pyproject.toml", " [project]\n-version = \"1\"\n+version = \"2\"")),
        ("other make target", edit("Makefile", " build:\n-\tcargo build\n+\tcargo build --release")),
        ("new make target", edit("Makefile", " build:\n \tcargo build\n+lint:\n+\tcargo clippy")),
        ("strictness switched on", edit("tsconfig.json", "-    \"strict\": false,\n+    \"strict\": true,")),
        ("or true elsewhere", edit("deploy/start.sh", "-rm x\n+rm x || true")),
        ("new script", created("scripts/test-all.sh", "set -e\ncargo test\nexit 0")),
        (
            "production assertion",
            headed("src/a.rs", "fn work() {", "     let x = 1;\n-    assert!(x > 0);\n     go(x);"),
        ),
        (
            "regex.test in code",
            edit("src/a.ts", "-  if (pattern.test(name)) return;\n+  if (pattern.exec(name)) return;"),
        ),
        (
            "fixture in conftest",
            edit("tests/conftest.py", " import pytest\n+@pytest.fixture\n+def db():\n+    return Db()"),
        ),
        ("helper of tests deleted", deleted("tests/helpers.py", "def make():\n    return 1")),
        ("docs deleted", deleted("docs/test.md", "# Tests")),
        (
            "mode changed",
            "diff --git a/scripts/test.sh b/scripts/test.sh\nold mode 100644\nnew mode 100755\n".to_owned(),
        ),
        (
            "imports of a test",
            edit("tests/test_a.py", "-import a\n+from a import add\n def test_adds():\n     assert add(1, 1) == 2"),
        ),
        (
            "setup of a test",
            edit("a_test.go", " func TestAdd(t *testing.T) {\n-\tc := New()\n+\tc := New(1)\n \tif c.Add() != 2 {"),
        ),
    ];
    let found = |diff: &str| scan(diff);
    let called: Vec<_> =
        cases.iter().map(|(name, diff)| (name, found(diff))).filter(|(_, found)| !found.is_empty()).collect();
    // The reviewer sees these two: the values that they expected are in a table or in a helper now.
    let noticed = ["assertions to a helper", "tests to a table"];
    let fine =
        |name: &str, found: &[TamperFinding]| noticed.contains(&name) && !found.iter().any(TamperFinding::blocks);
    assert!(called.iter().all(|(name, found)| fine(name, found)), "{called:#?}");
    assert!(cases.len() >= 25);
}

#[test]
fn odd_diffs_are_read() {
    let quoted = "diff --git \"a/tests/test_\\303\\244.py\" \"b/tests/test_\\303\\244.py\"\n--- \"a/tests/test_\\303\\244.py\"\n\
                  +++ \"b/tests/test_\\303\\244.py\"\n@@ -1,3 +1 @@\n-def test_adds():\n-    assert add(1, 1) == 2\n x\n";
    assert_eq!(scan(quoted)[0].path, "tests/test_ä.py");
    let blanks = edit("my tests/test_a.py", "-def test_adds():\n-    assert x\n y")
        .replace("+++ b/my tests/test_a.py", "+++ b/my tests/test_a.py\t");
    assert_eq!(scan(&blanks)[0].path, "my tests/test_a.py");
    // A removed SQL comment is no header; what comes after it still counts.
    let sql = "diff --git a/t/test_a.py b/t/test_a.py\n--- a/t/test_a.py\n+++ b/t/test_a.py\n@@ -1,4 +1,1 @@\n--- a comment\n-def test_b():\n-    assert b\n x\n";
    assert_eq!(kinds(sql), [TestDeleted]);
    let windows = edit("tests/test_a.py", "-def test_adds():\n-    assert add(1, 1) == 2\n x").replace('\n', "\r\n");
    assert_eq!(kinds(&windows), [TestDeleted]);
    let no_newline = edit("tests/test_a.py", " x\n-def test_adds():\n-    assert x\n")
        .replace("-    assert x\n", "-    assert x\n\\ No newline at end of file\n");
    assert_eq!(kinds(&no_newline), [TestDeleted]);
    let binary = "diff --git a/.github/workflows/x.yml b/.github/workflows/x.yml\nindex 1..2 100644\nBinary files a/.github/workflows/x.yml and b/.github/workflows/x.yml differ\n";
    assert_eq!(kinds(binary), [WorkflowEdited]);
    let bare = "--- a/.ralph.yml\n+++ b/.ralph.yml\n@@ -1 +1 @@\n-a\n+b\n--- a/pytest.ini\n+++ b/pytest.ini\n@@ -1 +1 @@\n-a\n+b\n";
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
        assert_eq!(scan(text), [], "{text}");
    }
}

#[test]
fn protected_paths_are_reported_and_findings_bounded() {
    let of = |path: &str| scan(&edit(path, "-a\n+b")).into_iter().map(|f| f.kind).collect::<Vec<_>>();
    assert_eq!(of(".ralph.yml"), [RalphFileEdited]);
    assert_eq!(of(".github/workflows/a/b.yml"), [WorkflowEdited]);
    assert_eq!(of("pipelines/a/b.yml"), []);

    let many: String = (0..300)
        .map(|n| deleted(&format!("tests/test_{n}.py"), &format!("def test_{n}():\n    assert f({n})")))
        .collect();
    assert_eq!(scan(&many).len(), MAX_FINDINGS);
    let long =
        edit("tests/test_a.py", &format!("+@pytest.mark.skip(reason=\"{}\u{7}\")\n def test_a():", "x".repeat(900)));
    let finding = scan(&long).remove(0);
    assert!(finding.evidence.chars().count() <= MAX_EVIDENCE && !finding.evidence.contains('\u{7}'));
}

#[test]
fn manifests_are_known() {
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

/// Change of program code that is added to a case, because an agent that weakens a test changes the program as well.
const PROGRAM: &str = "diff --git a/src/unrelated.rs b/src/unrelated.rs\n--- a/src/unrelated.rs\n+++ b/src/unrelated.rs\n@@ -1,2 +1,2 @@\n x\n-old_line(1);\n+new_line(2);\n";

/// Numbers of cases: all, found, and found by a blocking finding, alone and together with a change of the program.
#[derive(Default)]
struct CaseCount([usize; 5]);

impl CaseCount {
    fn add(&mut self, case: &cases::TamperCase) {
        let hits = |diff: &str| {
            let findings = scan(diff);
            let hits = findings.iter().filter(|finding| case.kinds.contains(&finding.kind));
            (hits.clone().count() > 0, hits.into_iter().any(TamperFinding::blocks))
        };
        let (alone, beside) = (hits(&case.diff), hits(&format!("{}{PROGRAM}", case.diff)));
        for (sum, is) in self.0.iter_mut().zip([true, alone.0, alone.1, beside.0, beside.1]) {
            *sum += usize::from(is);
        }
    }

    fn row(&self, name: &str) -> String {
        let [all, found, blocking, beside, beside_blocking] = self.0;
        format!("| {name} | {all} | {found} | {blocking} | {beside} | {beside_blocking} |\n")
    }
}

/// The tables in `docs/guides/weakened-tests.md` agree with the results of these tests.
/// See docs/research/threats.md#g17.
#[test]
fn cases_of_each_language_are_found() {
    let head = |first| {
        format!(
            "| {first} | cases | found | blocking | beside a change of the program: found | blocking |\n|---|---|---|---|---|---|\n"
        )
    };
    let (mut languages, mut rounds) = (head("language"), head("round"));
    let mut by_round: Vec<(String, CaseCount)> = Vec::new();
    let mut missed = Vec::new();
    for (language, cases) in cases::all() {
        let mut count = CaseCount::default();
        for case in &cases {
            count.add(case);
            let at = by_round.iter().position(|(round, _)| *round == case.round).unwrap_or_else(|| {
                by_round.push((case.round.clone(), CaseCount::default()));
                by_round.len() - 1
            });
            by_round[at].1.add(case);
            let findings = scan(&case.diff);
            if !findings.iter().any(|finding| case.kinds.contains(&finding.kind)) {
                missed.push(format!("{language}: {}", case.title));
            }
        }
        let [all, found, ..] = count.0;
        assert!(all >= 30, "{language}");
        assert!(found * 100 >= all * 95, "{language}: {missed:?}");
        languages += &count.row(language);
    }
    for (round, count) in &by_round {
        rounds += &count.row(if round.is_empty() { "before the rules" } else { round });
    }
    let page = include_str!("../../../../../../docs/guides/weakened-tests.md");
    assert!(
        page.contains(&languages) && page.contains(&rounds),
        "docs/guides/weakened-tests.md is out of date; its tables of cases are now:\n{languages}\n{rounds}\nmissed: {missed:#?}"
    );
}

/// Legitimate edits never block a loop, regardless of whether the program changes as well.
/// See docs/research/threats.md#g17.
#[test]
fn honest_edits_are_not_blocked() {
    let edits = cases::honest();
    let mut noticed = 0;
    let mut blocked = Vec::new();
    for edit in &edits {
        assert!(edit.kinds.is_empty(), "{}: an honest edit has no kind", edit.title);
        let findings = scan(&edit.diff);
        noticed += usize::from(!findings.is_empty());
        for diff in [edit.diff.clone(), format!("{}{PROGRAM}", edit.diff)] {
            let found = scan(&diff);
            blocked.extend(found.into_iter().filter(TamperFinding::blocks).map(|found| (edit.title.clone(), found)));
        }
    }
    assert!(edits.len() >= 40 && blocked.is_empty(), "{blocked:#?}");
    let sentence = format!("{} edits, 0 of them blocking, {noticed} with a notice", edits.len());
    let page = include_str!("../../../../../../docs/guides/weakened-tests.md");
    assert!(page.contains(&sentence), "docs/guides/weakened-tests.md is out of date; it is now: {sentence}");
}

/// Only a script can replace a command. A file with the same name that is no script is harmless.
#[test]
fn new_file_with_name_of_a_command_is_reported_only_if_it_is_a_script() {
    let new = |content: &str| format!("diff --git a/go b/go\nnew file mode 100755\n--- /dev/null\n+++ b/go\n{content}");
    let found = |content: &str| scan(&new(content)).len();
    assert_eq!(found("@@ -0,0 +1,2 @@\n+#!/bin/sh\n+exit 0\n"), 1);
    assert_eq!(found("@@ -0,0 +1 @@\n+go ahead\n"), 0);
    let empty = "diff --git a/go b/go\nnew file mode 100644\nindex 000..e69\n";
    assert_eq!(scan(empty), []);
}

/// A module beside the tests can replace the program's only if tests use code with its name.
#[test]
fn moved_test_beside_changed_data_of_its_name_does_not_block() {
    let blocks = |diff: String| scan(&diff).iter().any(TamperFinding::blocks);
    let moved = renamed("tests/answer.sh", "tests/unit/answer.sh");
    assert!(!blocks(moved.clone() + &edit("answer.txt", "-41\n+42")));
    assert!(blocks(moved + &edit("lib/test_answer.sh", " x\n+echo more")));
    let module = created("tests/answer.py", "def answer():\n    return 42");
    assert!(!blocks(module.clone() + &edit("data/answer.csv", "-41\n+42")));
    assert!(blocks(module + &edit("tests/test_answer.py", " x\n+y = 1")));
}

/// A large diff is scanned in linear time. Quadratic time would be most of a minute.
#[test]
fn large_diffs_are_scanned() {
    let test = |n: usize| {
        format!("-def test_{n}():\n-    assert f({n}) == {n}\n+def test_b{n}():\n+    assert f({n}) == {n}, {n}\n \n")
    };
    let body: String = (0..2_500).map(test).collect();
    assert!(body.len() > 200_000);
    assert!(scan(&edit("tests/test_a.py", &body)).len() <= MAX_FINDINGS);
    // One group of changed lines, in which each line has its counterpart far away.
    let lines = |line: &dyn Fn(usize) -> String| (0..5_000).map(line).collect::<String>();
    let body = [
        lines(&|n| format!("-    value{n} = call({n})  # => {n}\n-def test_{n}():\n")),
        lines(&|n| format!("+    value{n} = {n}\n+async def test_{n}():\n+    \"\"\"\n")),
    ];
    assert!(scan(&edit("tests/test_a.py", &body.concat())).len() <= MAX_FINDINGS);
    let command = |n: usize| format!("-pytest -q tests/a{n}.py\n+pytest -q tests/b{n}.py || true\n+exit 0\n");
    let script: String = (0..1_000).map(command).collect();
    let findings = scan(&edit("scripts/check.sh", &script));
    assert!(findings.iter().any(|found| found.kind == TamperKind::FailureIgnored), "{findings:?}");
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "(diff --git a/t/test_a.py b/t/test_a.py|--- a/x\"|\\+\\+\\+ b/a.test.js|@@ -1,9 \\+1,9 @@ é|[-+ ]\\s{0,4}(it\\('|#\\[test\\]|fn é|def test_a|assert|@|\"|\\\\)|\\PC{0,8}|\n|\r\n){0,40}") {
        scan(&text);
    }
}

#[test]
fn long_diffs_of_blank_lines_hunks_and_files_are_scanned() {
    let paths = [
        "tests/test_a.py",
        "src/a.test.js",
        "tests/a.rs",
        "a_test.go",
        "src/test/java/ATest.java",
        "spec/a_spec.rb",
        "tests/ATest.php",
        "tests/a.bats",
        "src/a.py",
        "package.json",
    ];
    for path in paths {
        let head = format!("diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n");
        let blank = format!("{head}@@ -0,0 +1,20000 @@\n{}", "+\n".repeat(20_000));
        assert!(scan(&blank).len() <= 1, "{path}");
        let change = |n: usize| {
            format!("@@ -{n},2 +{n},1 @@ def test_{n}():\n-    assert f({n}) == {n}\n-    g({n})\n+    pass\n")
        };
        let hunks: String = (1..1_000).map(change).collect();
        assert!(scan(&format!("{head}{hunks}")).len() <= MAX_FINDINGS, "{path}");
        let file = |n: usize| {
            let (new, old) = (format!("a{n}/{path}"), format!("b{n}/{path}"));
            created(&new, "x = 1") + &deleted(&old, "mod a_tests;\ndef test_x():\n    assert 1")
        };
        let files: String = (0..500).map(file).collect();
        assert!(scan(&files).len() <= MAX_FINDINGS, "{path}");
    }
}
