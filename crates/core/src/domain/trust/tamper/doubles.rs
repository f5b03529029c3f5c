//! Test doubles that take the place of the code that a test checks.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use regex::Regex;

use super::blocks::{TestFile, TestLine, indent};
use super::diff::LineChange;
use super::language::Language;
use super::marks::subject;
use super::{Findings, TamperKind};

pattern!(
    MODULE_MOCK,
    r#"\b(?:jest|vi)\.(?:mock|doMock|unstable_mockModule|setMock)\(\s*(?:import\(\s*)?['"`]([^'"`]+)['"`]|\bmock\.module\(\s*['"`]([^'"`]+)['"`]|\bproxyquire\(\s*['"`]([^'"`]+)['"`]|\btd\.replace(?:Esm)?\(\s*['"`]([^'"`]+)['"`]|\brequire\.cache\[.*['"`]([^'"`]+)['"`]|\brewiremock\(\s*['"`]([^'"`]+)['"`]|\bmockery\.registerMock\(\s*['"`]([^'"`]+)['"`]"#
);
pattern!(
    CLASS_MOCK,
    r"\b(?:mock|spy|mockStatic|mockConstruction|spyk|mockkObject|mockkStatic|mockkClass)\(\s*(\w+)(?:\.class|::class)?|\b(?:create(?:Mock|Stub|PartialMock|ConfiguredMock|ConfiguredStub|TestProxy)|getMockBuilder|prophesize)\(\s*\\?(?:\w+\\)*(\w+)::class|\bMockery::mock\(\s*['\x22]?(?:overload:|alias:)?\\?(?:\w+\\)*(\w+)|\b(?:instance_double|class_double|object_double|double)\(\s*['\x22:]?(\w+)|\bmockk<(\w+)>|\b(?:MagicMock|Mock|AsyncMock|create_autospec|NonCallableMock)\(\s*(?:spec\w*\s*=\s*)?([A-Z]\w+)|\bpatch\(\s*[\x22'][\w.]*\.([A-Z]\w+)[\x22']|@(?:Mock|MockBean|Spy|MockK)\s+(?:private\s+)?(\w+)|\bclass\s+(?:Fake|Mock|Stub|Dummy)(\w+)|\bnew\s+(?:Fake|Mock|Stub)(\w+)|\bstub_const\(\s*[\x22'](\w+)|\bany_instance\b.*?(\w+)|\ballow_any_instance_of\(\s*(\w+)|\bsinon\.createStubInstance\(\s*(\w+)"
);
pattern!(
    SYS_MODULES,
    r#"\bsys\.modules(?:\[\s*["'](\w+)|\.(?:update|setdefault|pop)\()|\bsys\.path\.insert\(\s*0|\bsys\.meta_path|\bimportlib\.reload|\bbuiltins\.\w+\s*=|\brequire\.extensions\[|\bModule\._load\s*="#
);

/// Object and function that a double replaces, and the test that it stands in.
type Replaced = (usize, Option<String>, String);

/// Doubles of one file.
pub(super) struct Doubles<'a> {
    tests: &'a TestFile<'a>,
    /// Lines of each test that contain a word.
    words: RefCell<HashMap<usize, HashMap<&'a str, Vec<usize>>>>,
    /// Number of lines that use the result of what a double replaces.
    uses: RefCell<HashMap<Replaced, usize>>,
    /// Functions that each test replaced before the change.
    mocked_before: RefCell<HashMap<usize, HashSet<String>>>,
}

impl<'a> Doubles<'a> {
    pub fn of(tests: &'a TestFile<'a>) -> Self {
        Self { tests, words: RefCell::default(), uses: RefCell::default(), mocked_before: RefCell::default() }
    }

    /// Reports test doubles of the code that the test checks.
    pub fn scan(&self, line: &TestLine<'_>, names: &TestedNames<'_>, findings: &mut Findings) {
        let tests = self.tests;
        let path = tests.file.path();
        let text = line.text;
        let file = path.rsplit('/').next().unwrap_or(path);
        let subject = subject(file);
        let group = |pattern: &Regex| {
            let found = pattern.captures(text)?;
            found.iter().skip(1).flatten().next().map(|name| name.as_str().to_owned())
        };
        let plain = |name: &str| name.to_lowercase().replace(['_', '-'], "");
        let module = group(&MODULE_MOCK).is_some_and(|module| {
            let name = module.rsplit('/').next().unwrap_or_default().split('.').next().unwrap_or_default().to_owned();
            plain(&name) == subject
        });
        let existing = tests.existing(line);
        let class = group(&CLASS_MOCK).is_some_and(|name| {
            plain(&name) == subject || ["described_class", "subject", "sut"].contains(&name.as_str())
        }) && (existing.is_some() || line.new.is_none());
        let function = existing
            .and(line.new)
            .zip(tests.language.mocked(text))
            .is_some_and(|(block, name)| self.is_result_asserted(block, line, &name) && !self.was_mocked(block, &name));
        // Before each test.
        let hook = existing.is_none_or(|block| block.helper);
        let before = tests.language.mocked(text).filter(|_| hook).is_some_and(|function| {
            let object = owner(text).unwrap_or_default();
            names.methods.contains(&(object.as_str(), function.trim_end_matches(['?', '!'])))
                && !text.contains("HaveBeenCalled")
        });
        let shim =
            (file == "conftest.py" || file.contains("setup") || file.contains("helper")) && SYS_MODULES.is_match(text);
        // A function inside of another one, in place of a program.
        let in_setup = line.new.is_some_and(|at| tests.new[at].name.starts_with("setup"));
        let shell = tests.language == Language::Shell
            && line.text.contains("() {")
            && (line.text.trim_end().ends_with('}') || in_setup)
            && indent(text) > 0;
        let named = tests.language.mocked(text).is_some_and(|name| plain(&name) == subject);
        pattern!(WRAPPED, r"^[\w\s*]*\b__(?:wrap|real)_(\w+)\s*\([^;]*$");
        let wrapped = WRAPPED.captures(text).is_some_and(|found| names.called.contains(&found[1]));
        if wrapped || module || class || function || before || shim || shell || named {
            findings.add(path, Some(line.number), TamperKind::CodeReplaced, text);
        }
    }

    /// Whether an existing line or an assertion of a test uses the result of `function`, which the line `double` replaces. A
    /// function with the same name of another object does not count.
    fn is_result_asserted(&self, block: usize, double: &TestLine<'_>, function: &str) -> bool {
        let object = owner(double.text);
        let is_read = |line: &TestLine<'_>| match line.change {
            LineChange::Context => true,
            LineChange::Added => self.tests.language.asserts(line.text),
            LineChange::Removed => false,
        };
        let uses = |line: &TestLine<'_>| self.calls(line.text, function).iter().any(|other| is_same(&object, other));
        let mut known = self.uses.borrow_mut();
        let all = *known.entry((block, object.clone(), function.to_owned())).or_insert_with(|| {
            let lines = self.lines_with(block, function.trim_end_matches(['?', '!']));
            lines.into_iter().map(|at| &self.tests.lines[at]).filter(|line| is_read(line) && uses(line)).count()
        });
        let own = is_read(double) && uses(double);
        all > usize::from(own) || self.calls(double.text, function).len() > 1 && uses(double)
    }

    /// Returns the objects of which a text calls a function; `None` for a call without an object.
    fn calls(&self, text: &str, function: &str) -> Vec<Option<String>> {
        let spoken = self.tests.language == Language::Ruby;
        let letter = |c: char| c.is_alphanumeric() || c == '_';
        let receiver = |text: &str, at: usize| {
            let before = ["->", "::", "."].iter().find_map(|sign| text[..at].strip_suffix(sign));
            before.map(|before| before.rsplit(|c: char| !letter(c)).next().unwrap_or_default().to_owned())
        };
        let ends = |text: &str, at: usize| {
            let rest = &text[at + function.len()..];
            rest.starts_with('(') || spoken && text[..at].ends_with('.') && !rest.starts_with(letter)
        };
        let found = text.match_indices(function).filter(|(at, _)| !text[..*at].ends_with(letter) && ends(text, *at));
        found.map(|(at, _)| receiver(text, at)).collect()
    }

    /// Returns the indices of the lines of a test that contain a word.
    fn lines_with(&self, block: usize, word: &str) -> Vec<usize> {
        let mut words = self.words.borrow_mut();
        let of_block = words.entry(block).or_insert_with(|| {
            let mut lines: HashMap<&str, Vec<usize>> = HashMap::new();
            for at in self.tests.new[block].lines.iter().copied() {
                let text = self.tests.lines[at].text;
                let found: HashSet<&str> = text.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
                found.into_iter().for_each(|word| lines.entry(word).or_default().push(at));
            }
            lines
        });
        of_block.get(word).cloned().unwrap_or_default()
    }

    /// Whether a removed line of a test replaced the same function already.
    fn was_mocked(&self, block: usize, function: &str) -> bool {
        let Some(old) = self.tests.new[block].other else { return false };
        let mut known = self.mocked_before.borrow_mut();
        let functions = known.entry(old).or_insert_with(|| {
            let lines = self.tests.old[old].lines.iter().map(|at| &self.tests.lines[*at]);
            let removed = lines.filter(|line| line.change == LineChange::Removed);
            removed.filter_map(|line| self.tests.language.mocked(line.text)).collect()
        });
        functions.contains(function)
    }
}

/// Whether two objects can be the same. An object that is not known can be any.
fn is_same(one: &Option<String>, other: &Option<String>) -> bool {
    one.is_none() || other.is_none() || one == other
}

/// Names that the assertions of a file use, or that the file imported before the change.
#[derive(Default)]
pub(super) struct TestedNames<'a> {
    pub called: HashSet<&'a str>,
    /// Pairs of an object and its function that assertions call.
    pub methods: HashSet<(&'a str, &'a str)>,
    pub imported: HashSet<&'a str>,
}

impl<'a> TestedNames<'a> {
    pub fn of(tests: &'a TestFile<'_>) -> Self {
        pattern!(CALL, r#"([A-Za-z_]\w*)\(|([A-Z]\w*)(?:\.|::)|(\w+) ["'$]"#);
        pattern!(METHOD, r"\b([A-Za-z_]\w*)(?:\.|->|::)([A-Za-z_]\w*)");
        pattern!(IMPORTS, r"^\s*(?:import|from|use|require\w*|#\s*include|load|source|\.|using)\b|\brequire\(");
        let mut names = Self::default();
        for line in &tests.lines {
            if line.change == LineChange::Context && tests.language.asserts(line.text) {
                names.methods.extend(METHOD.captures_iter(line.text).map(|found| {
                    let [_, object, function] = [0, 1, 2].map(|at| found.get(at).map_or("", |group| group.as_str()));
                    (object, function)
                }));
                names.called.extend(
                    CALL.captures_iter(line.text)
                        .filter_map(|found| found.iter().skip(1).flatten().next().map(|name| name.as_str())),
                );
            } else if line.change == LineChange::Removed && IMPORTS.is_match(line.text) {
                names.imported.extend(line.text.split(|c: char| !(c.is_alphanumeric() || c == '_')));
            }
        }
        names
    }
}

/// Reports an annotation that turns the following field into a double of the code that the test checks.
pub(super) fn injected(tests: &TestFile<'_>, at: usize, findings: &mut Findings) {
    pattern!(ANNOTATION, r"^\s*@(?:Mock\w*|Spy\w*|InjectMock\w*|RelaxedMockK)\b");
    let line = &tests.lines[at];
    let next = tests.lines[at + 1..].iter().find(|next| next.change != LineChange::Removed);
    let subject = subject(tests.file.path().rsplit('/').next().unwrap_or_default());
    let names = |text: &str| text.split(|c: char| !c.is_alphanumeric()).any(|word| word.to_lowercase() == subject);
    if ANNOTATION.is_match(line.text) && next.is_some_and(|next| names(next.text)) {
        let evidence = format!("{} {}", line.text.trim(), next.map_or("", |next| next.text.trim()));
        findings.add(tests.file.path(), Some(line.number), TamperKind::CodeReplaced, &evidence);
    }
}

/// Returns the object whose function a line replaces; `None` if the line states none.
fn owner(text: &str) -> Option<String> {
    pattern!(
        OWNER,
        r"\b(?:allow|expect|object|spyOn|setattr|stub|doReturn\(.*\)\.when)\(\s*\$?(?:this->)?(\w+)\s*[,)]|\b(?:when|every)\s*[({]\s*(\w+)\."
    );
    pattern!(SPOKEN, r"^\s*\$?(?:this->|@)?(\w+)(?:->|\.)(?:method|shouldReceive|stubs?|expects)\(");
    let found = OWNER.captures(text).or_else(|| SPOKEN.captures(text))?;
    found.iter().skip(1).flatten().next().map(|owner| owner.as_str().to_owned())
}
