//! Data that tests read under an ordinary name: cases in a table, recorded output, a document whose examples run. The path does not say
//! so, but the base's tests, the commands of the checks or the build files name the data, and no program code does.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::build_files::{is_build_file, makes_tests};
use super::config_files::is_makefile;
use super::language::Language;
use super::manifests::is_manifest;
use super::marks::{is_test_code, is_test_file};
use super::role::{only_fails, role_by_content};
use super::starts::{CheckStart, runs_checks};

// Files that contain no program.
pattern!(
    DATA,
    r"(?i)\.(?:csv|tsv|psv|jsonl?|json5|ndjson|ya?ml|toml|ini|cfg|conf|properties|xml|edn|plist|txt|md|markdown|rst|adoc|org|log|dat|data|bin|png|jpe?g|gif|bmp|webp|pdf|in|inc|out|exp|ref|lst|list)$"
);
// Commands that compare an output with a file.
pattern!(COMPARES, r"(?i)\b(?:diff|cmp|comm|compare\w*)\b");
// Other parts of commands and build files that take tests from a file.
pattern!(INCLUDES, r"(?i)doctest|golden|expect|^\s*-?s?include\b|^\s*(?:\.|source)\s|\bdone\s*<|\b(?:add_)?test\s*\(");
// Lines of Rust programs that turn a document into tests.
pattern!(DOCUMENT_TESTS, r"\bdoc\s*=\s*include_str!|\bdoctest!|\bdoc_comment\b");
// Words of code that handles files.
pattern!(FILES, r"(?i)path|join|open|dir|glob|read|load|resource|embed|file|folder|fixture");

/// Languages in which tests name the files of the program that they use.
const NAMING_LANGUAGES: [Language; 5] =
    [Language::Python, Language::JavaScript, Language::Ruby, Language::Php, Language::Shell];
/// Maximum number of changed files whose names are searched.
const MAX_FILES: usize = 200;

/// Use of data by the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DataUse {
    /// Tests name the data. They may check that it is complete, so that lines can be added.
    Read,
    /// The data is compared with an output, includes tests, or is run itself.
    Compared,
}

/// Changed data of the base, and who names it.
#[derive(Debug)]
pub struct TestData<'a> {
    start: &'a CheckStart<'a>,
    /// Programs of the base by the names by which tests import or start them.
    programs: HashMap<&'a str, Vec<&'a str>>,
    /// Paths of these programs whose functions can only fail.
    failing: HashSet<String>,
    files: Vec<DataFile>,
}

#[derive(Debug)]
struct DataFile {
    path: String,
    /// Paths by which the data can be read, including paths through links.
    names: Vec<String>,
    of_tests: Option<DataUse>,
    of_program: bool,
}

impl<'a> TestData<'a> {
    /// Selects data from changed files of the base. `links` has all symbolic links of the base, each with its target.
    pub fn new<'b>(
        start: &'a CheckStart<'a>,
        changed: impl Iterator<Item = &'b str>,
        links: &[(String, String)],
    ) -> Self {
        let file = |path: &str| {
            let linked = links.iter().filter_map(|(link, target)| {
                let rest = path.strip_prefix(resolved(link, target)?.as_str())?;
                (rest.is_empty() || rest.starts_with('/')).then(|| format!("{link}{rest}"))
            });
            let names: Vec<String> = std::iter::once(path.to_owned()).chain(linked).collect();
            let of_tests = names[1..].iter().any(|name| is_test_file(name)).then_some(DataUse::Compared);
            DataFile { path: path.to_owned(), names, of_tests, of_program: false }
        };
        let changed = changed.filter(|path| may_be_test_data(path) && !start.depends_on(path));
        let files = changed.take(MAX_FILES).map(file).collect();
        let mut programs: HashMap<&str, Vec<&str>> = HashMap::new();
        for path in start.base_paths().filter(|path| is_program(path, start)) {
            modules(path).into_iter().for_each(|name| programs.entry(name).or_default().push(path));
        }
        let mut found = Self { start, programs, failing: HashSet::new(), files };
        for command in start.commands() {
            found.read_commands(command);
        }
        found
    }

    /// Returns texts of which a file that names the data has at least one; empty if nothing has to be searched.
    pub fn texts(&self) -> Vec<String> {
        let mut texts = Vec::new();
        for name in self.files.iter().flat_map(|file| &file.names) {
            texts.push(file_name(name).to_owned());
            texts.extend(folder(name).iter().flat_map(|folder| ['/', '"', '\''].map(|end| format!("{folder}{end}"))));
        }
        texts.sort();
        texts.dedup();
        texts
    }

    /// Returns the programs of the base that a script of the checks names, if its language names programs. A test is not a script.
    pub fn programs_of(&self, path: &str, content: &str) -> Vec<&'a str> {
        let names_them = Language::of(path).is_some_and(|language| NAMING_LANGUAGES.contains(&language));
        match names_them && !is_test_file(path) && self.start.depends_on(path) {
            true => words(content).filter_map(|word| self.programs.get(word)).flatten().copied().collect(),
            false => Vec::new(),
        }
    }

    /// Reads the content of a program. For scripts of the checks, it is a library if its functions do nothing but fail. For tests, it
    /// stays a program, because they also test programs that only refuse bad input.
    pub fn note_failing(&mut self, path: &str, content: &str) {
        if only_fails(path, content) {
            self.failing.insert(path.to_owned());
        }
    }

    /// Reads a file of the base. `tests` has the positions of tests in a program file.
    pub fn read(&mut self, path: &str, content: &str, tests: &[Range<usize>]) {
        let language = Language::of(path);
        let is_shell = || language == Some(Language::Shell) || runs_checks(path) || is_makefile(path);
        let is_test =
            role_by_content(path, content, !tests.is_empty(), self.start).unwrap_or_else(|| is_test_file(path));
        if is_test || language.is_some() && !is_build_file(path) && self.start.depends_on(path) {
            if is_shell() {
                self.read_commands(content);
            } else if self.uses_program(path, language, content) {
                self.read_tests(content);
            }
        } else if makes_tests(path, content) {
            self.read_tests(content);
        } else if is_shell() || is_build_file(path) || is_manifest(path) || self.start.depends_on(path) {
            self.read_commands(content);
        } else if !DATA.is_match(path) {
            let mut end = 0;
            for test in tests {
                self.read_tests(content.get(test.clone()).unwrap_or_default());
                self.read_program(language, content.get(end..test.start).unwrap_or_default());
                end = test.end;
            }
            self.read_program(language, content.get(end..).unwrap_or_default());
        }
    }

    /// Returns the data that only tests name.
    pub fn of_tests(&self) -> impl Iterator<Item = (&str, DataUse)> {
        self.files.iter().filter(|file| !file.of_program).filter_map(|file| Some((file.path.as_str(), file.of_tests?)))
    }

    /// Whether a test uses a program of the base. The data is the subject of other tests. In languages in which tests do not name the
    /// files of the program, every test counts as using it.
    fn uses_program(&self, path: &str, language: Option<Language>, content: &str) -> bool {
        let is_test = is_test_file(path);
        let is_program = |program: &&str| is_test || !self.failing.contains(*program);
        !language.is_some_and(|language| NAMING_LANGUAGES.contains(&language))
            || words(content).any(|word| self.programs.get(word).is_some_and(|paths| paths.iter().any(is_program)))
    }

    fn read_tests(&mut self, text: &str) {
        let before = |c: Option<char>| c.is_none_or(|c| c.is_whitespace() || "\"'`/(".contains(c));
        for line in text.lines() {
            let named = |name: &String| {
                names(line, file_name(name), is_bound, is_bound)
                    || folder(name).is_some_and(|folder| opens(line, folder, before))
            };
            self.mark(DataUse::Read, named);
        }
    }

    fn read_program(&mut self, language: Option<Language>, text: &str) {
        let before = |c: Option<char>| c.is_some_and(|c| "\"'`/\\<".contains(c));
        let after = |c: Option<char>| c.is_some_and(|c| "\"'`>".contains(c));
        for line in text.lines() {
            if DOCUMENT_TESTS.is_match(line) {
                self.mark(DataUse::Compared, |name| line.contains(file_name(name)));
            } else if line.contains("go:embed") || !language.is_some_and(|language| language.is_comment(line)) {
                for file in &mut self.files {
                    file.of_program |= file.names.iter().any(|name| {
                        let stem = file_name(name).split('.').next().unwrap_or_default();
                        names(line, file_name(name), before, after)
                            || !stem.is_empty() && names(line, stem, |c| c == Some('/'), after)
                            || line.contains("go:embed") && line.contains(file_name(name))
                            || folder(name).is_some_and(|folder| opens(line, folder, before))
                    });
                }
            }
        }
    }

    /// Reads commands, or a file of a build tool. Most files that these name are the subject of the checks.
    fn read_commands(&mut self, text: &str) {
        let words = |part: &str| -> Vec<String> {
            let words = part.split(|c: char| c.is_whitespace() || "\"'()<>=,".contains(c));
            words.map(|word| word.trim_start_matches("./").to_owned()).collect()
        };
        for line in text.split(['\n', '|', ';', '&']) {
            let compares = COMPARES.is_match(line);
            let parts: Vec<&str> = if compares { line.split(['(', ')']).collect() } else { vec![line] };
            for part in parts {
                let words = words(part);
                // Of two files of the base, the check may have written one.
                let is_output = || words.iter().filter(|word| self.start.has(word)).count() < 2;
                let decides = match compares {
                    true => COMPARES.is_match(part) && is_output(),
                    false => INCLUDES.is_match(part) || words.iter().any(|word| is_test_code(word)),
                };
                if decides {
                    self.mark(DataUse::Compared, |name| names(part, file_name(name), is_bound, is_bound));
                }
            }
        }
    }

    fn mark(&mut self, data_use: DataUse, named: impl Fn(&String) -> bool) {
        for file in self.files.iter_mut().filter(|file| file.names.iter().any(&named)) {
            file.of_tests = file.of_tests.max(Some(data_use));
        }
    }
}

/// Whether the branch only added lines to data.
pub fn only_adds_lines(base: &str, branch: &str) -> bool {
    let lines = |text: &str| -> Vec<String> {
        text.lines()
            .map(|line| line.trim_end().trim_end_matches(',').to_owned())
            .filter(|line| !line.is_empty())
            .collect()
    };
    let mut rest = lines(branch).into_iter();
    lines(base).into_iter().all(|line| rest.any(|other| other == line))
}

fn may_be_test_data(path: &str) -> bool {
    DATA.is_match(path)
        && !is_test_file(path)
        && !is_manifest(path)
        && !is_build_file(path)
        && !super::MANIFESTS.contains(&file_name(path))
        && !super::WORKFLOWS.iter().any(|glob| path.starts_with(glob.trim_end_matches("**")))
        && !super::RALPH_FILES.contains(&path)
}

/// Whether a file of the base is program code that tests may use.
fn is_program(path: &str, start: &CheckStart<'_>) -> bool {
    Language::of(path).is_some()
        && !is_test_file(path)
        && !is_build_file(path)
        && !runs_checks(path)
        && !start.depends_on(path)
}

/// Returns the names by which tests import or start a program file: its name, or its folders if each package has a file of this name.
fn modules(path: &str) -> Vec<&str> {
    let stem = file_name(path).split('.').next().unwrap_or_default();
    let is_general = matches!(stem, "__init__" | "__main__" | "index" | "main" | "mod" | "lib");
    match is_general && path.contains('/') {
        true => path.split('/').rev().skip(1).collect(),
        false => vec![stem],
    }
}

/// Returns the words of a text that may be names of programs.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && !"_-".contains(c))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns the name of the folder that contains a file.
fn folder(path: &str) -> Option<&str> {
    path.rsplit('/').nth(1)
}

fn is_bound(c: Option<char>) -> bool {
    c.is_none_or(|c| !c.is_alphanumeric() && !"_-".contains(c))
}

/// Whether a line has a name between characters that satisfy `before` and `after`; `None` is the start or end of the line.
fn names(line: &str, name: &str, before: impl Fn(Option<char>) -> bool, after: impl Fn(Option<char>) -> bool) -> bool {
    let is_name = |at: usize| before(line[..at].chars().next_back()) && after(line[at + name.len()..].chars().next());
    line.match_indices(name).any(|(at, _)| is_name(at))
}

/// Whether a line of code names a folder as a part of a path.
fn opens(line: &str, folder: &str, before: impl Fn(Option<char>) -> bool) -> bool {
    names(line, folder, &before, |c| c == Some('/'))
        || FILES.is_match(line) && names(line, folder, before, |c| c.is_some_and(|c| "\"'`".contains(c)))
}

/// Returns the path to which a link leads; `None` if it leaves the tree.
fn resolved(link: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = link.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" if parts.is_empty() => return None,
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/")).filter(|_| !target.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: [&str; 5] = ["docs/report.txt", "data/sales.csv", "report.py", "roman/__init__.py", "check_all.rb"];

    /// Use of changed data that the texts of files name; `#` starts the test at the end of a program.
    fn used(path: &str, commands: &[&str], links: &[(&str, &str)], files: &[(&str, &str)]) -> Option<DataUse> {
        let start = CheckStart::new(commands.iter().copied(), BASE);
        let links: Vec<(String, String)> =
            links.iter().map(|(link, to)| ((*link).to_owned(), (*to).to_owned())).collect();
        let mut data = TestData::new(&start, [path].into_iter(), &links);
        for (file, content) in files {
            let test = content.find("#[cfg(test)]").map(|at| at..content.len());
            data.read(file, content, &test.into_iter().collect::<Vec<_>>());
        }
        data.of_tests().next().map(|(_, data_use)| data_use)
    }

    /// See docs/research/threats.md#g17.
    #[test]
    fn data_that_only_tests_name_is_found() {
        let test = "tests/test_roman.py";
        for (path, file, content) in [
            ("samples/roman.csv", test, "from roman import roman\nwith open(\"samples/roman.csv\") as file:\n"),
            ("samples/roman.csv", test, "import roman\nfor path in Path(\"samples\").glob(\"*.csv\"):\n"),
            ("README.md", test, "from report import rows\ndoctest.testfile(\"../README.md\")\n"),
            ("examples.json", "parse_test.go", "//go:embed examples.json\nvar examples []byte\n"),
            ("numerals.txt", "build.rs", "read_to_string(\"numerals.txt\"); writeln!(code, \"#[test] fn\");\n"),
            (
                "data/pairs.csv",
                "src/lib.rs",
                "fn a() {}\n#[cfg(test)]\nmod tests { include_str!(\"../data/pairs.csv\") }\n",
            ),
        ] {
            assert_eq!(used(path, &["make"], &[], &[(file, content)]), Some(DataUse::Read), "{content}");
            let program = format!("open(\"{path}\")\n");
            let named = used(path, &["make"], &[], &[(file, content), ("app.py", &program)]);
            assert_eq!(named, None, "the program reads {path}");
        }
        for (path, file, content) in [
            ("suites.inc", "Makefile", "include suites.inc\n"),
            ("README.md", "src/lib.rs", "#![doc = include_str!(\"../README.md\")]\n"),
            (
                "docs/report.txt",
                "CMakeLists.txt",
                "add_test(NAME r COMMAND cmake -E compare_files docs/report.txt out.txt)\n",
            ),
            ("docs/report.txt", "tests/dune", "(rule (alias runtest) (action (diff ../docs/report.txt out)))\n"),
            ("docs/report.txt", "package.json", "{ \"test\": \"node cli.js | diff docs/report.txt -\" }\n"),
        ] {
            assert_eq!(used(path, &["make"], &[], &[(file, content)]), Some(DataUse::Compared), "{content}");
        }
        let links = [("tests/roman.csv", "../shared/numerals.csv"), ("out", "/etc"), ("up", "../..")];
        assert_eq!(used("shared/numerals.csv", &["make"], &links, &[]), Some(DataUse::Compared));
        let folder = [("tests/data", "../shared")];
        assert_eq!(used("shared/numerals.csv", &["make"], &folder, &[]), Some(DataUse::Compared));
    }

    /// See docs/research/threats.md#g17.
    #[test]
    fn commands_distinguish_recorded_output_from_input() {
        let command = "python3 report.py data/sales.csv | diff -u docs/report.txt -";
        assert_eq!(used("docs/report.txt", &[command], &[], &[]), Some(DataUse::Compared));
        assert_eq!(used("data/sales.csv", &[command], &[], &[]), None);
        let other = "diff docs/report.txt <(python3 report.py data/sales.csv)";
        assert_eq!(used("docs/report.txt", &[other], &[], &[]), Some(DataUse::Compared));
        assert_eq!(used("data/sales.csv", &[other], &[], &[]), None);
        assert_eq!(used("docs/report.txt", &["diff docs/report.txt data/sales.csv"], &[], &[]), None);
        assert_eq!(used("docs/report.txt", &["grep -q total docs/report.txt"], &[], &[]), None);
        assert_eq!(used("a.csv", &["python3 tests/run.py a.csv"], &[], &[]), Some(DataUse::Compared));
        let runner = [("check_all.rb", "require 'report'\nDir.glob(\"lists/*.txt\")\n")];
        assert_eq!(used("lists/a.txt", &["ruby check_all.rb"], &[], &runner), Some(DataUse::Read));
        let script = [("check.sh", "grep -q total docs/report.txt\n")];
        assert_eq!(used("docs/report.txt", &["sh check.sh"], &[], &script), None);
    }

    #[test]
    fn data_of_the_program_is_not_test_data() {
        let test = ("tests/test_app.py", "import report\nopen(\"locales/de.json\"); names = [\"en\", \"de\"]\n");
        for program in ["LOCALES = Path(__file__).parent / \"locales\"\n", "f\"locales/{language}.json\"\n"] {
            assert_eq!(used("locales/de.json", &["pytest"], &[], &[test, ("app.py", program)]), None, "{program}");
        }
        let comment = ("app.py", "# see locales/de.json\nlabel = texts[\"locales\"]\n");
        assert_eq!(used("locales/de.json", &["pytest"], &[], &[test, comment]), Some(DataUse::Read));
        for path in ["requirements.txt", "package.json", "pom.xml", "src/app.py", "web/index.html", ".gitlab-ci.yml"] {
            let content = format!("import report\nopen(\"{path}\")\n");
            assert_eq!(used(path, &["pytest"], &[], &[("tests/test_app.py", &content)]), None, "{path}");
        }
    }

    #[test]
    fn data_is_the_subject_of_tests_without_a_program() {
        let read = ("tests/test_api.py", "import json\nopen(\"api/openapi.json\")\n");
        assert_eq!(used("api/openapi.json", &["pytest"], &[], &[read]), None);
        let serves = ("tests/test_api.py", "import report\nopen(\"api/openapi.json\")\n");
        assert_eq!(used("api/openapi.json", &["pytest"], &[], &[serves]), Some(DataUse::Read));
    }

    #[test]
    fn data_is_tested_if_the_test_library_only_fails() {
        let library = "def check(good):\n    sys.exit(0 if good else 'wrong')\n";
        let program = "def rows(path):\n    return open(path).read()\n";
        for (content, expected) in [(library, None), (program, Some(DataUse::Read))] {
            let start = CheckStart::new(["python3 check_all.py"], ["check_all.py", "report.py", "notes.txt"]);
            let test = "import report\nreport.check(open(\"notes.txt\"))\n";
            let mut data = TestData::new(&start, ["notes.txt"].into_iter(), &[]);
            assert!(data.programs_of("check_all.py", test).contains(&"report.py"));
            data.note_failing("report.py", content);
            data.read("check_all.py", test, &[]);
            assert_eq!(data.of_tests().next().map(|(_, data_use)| data_use), expected, "{content}");
            data.read("tests/test_report.py", "import report\nopen(\"notes.txt\")\n", &[]);
            assert_eq!(
                data.of_tests().next().map(|(_, data_use)| data_use),
                Some(DataUse::Read),
                "a test of the program"
            );
        }
    }

    #[test]
    fn added_lines_keep_all_others() {
        for (base, branch) in [
            ("1,I\n4,IV\n", "1,I\n4,IV\n9,IX\n"),
            ("{\n  \"a\": 1\n}\n", "{\n  \"a\": 1,\n  \"b\": 2\n}\n"),
            ("a\n\nb\n", "a\nb"),
        ] {
            assert!(only_adds_lines(base, branch), "{branch}");
        }
        for (base, branch) in [("1,I\n4,IV\n", "1,I\n4,IIII\n"), ("a\nb\n", "b\n"), ("a\nb\n", "b\na\n")] {
            assert!(!only_adds_lines(base, branch), "{branch}");
        }
    }
}
