//! Files that determine how a check is started: files that its command names, files that its runner and other tools read by
//! themselves, and files that can replace a program or module. If a branch changed such files, the fresh checkout runs the checks
//! a second time with the base's versions of them.

use std::collections::HashSet;

use super::config_files::{is_check_config, is_makefile};
use super::marks::is_test_code;

// Files that runners, build tools, package managers, shells and interpreters read automatically.
pattern!(
    READ,
    r"(?i)^(?:\.npmrc|\.yarnrc(?:\.ya?ml)?|\.pnpmfile\.[cm]?js|\.pnp\.(?:c?js|loader\.mjs|data\.json)|pnpm-workspace\.ya?ml|bunfig\.toml|deno\.jsonc?|\.env(?:\.(?:test|testing|ci|local|development|production|staging|[\w-]+\.local))?|\.envrc|\.tool-versions|\.?mise(?:\.\w+)*\.toml|\.nvmrc|\.node-version|\.python-version|\.ruby-version|\.java-version|\.sdkmanrc|rust-toolchain(?:\.toml)?|go\.work(?:\.sum)?|\.bazelrc|\.bazelversion|\.buckconfig|gradle\.properties|\.proverc|Directory\.(?:Build|Packages)\.\w+|global\.json|nuget\.config|\S+\.runsettings|xunit\.runner\.json|CMake(?:User)?Presets\.json|\.?php\.ini|\.user\.ini|\.bashrc|\.bash_\w+|\.profile|\.zsh\w+|\.kshrc|\.shrc|\.inputrc|\.pdbrc(?:\.py)?|\.pythonrc\S*|\.irbrc|\.pryrc|\.gdbinit|\.lldbinit|pyvenv\.cfg|\S+\.pth|(?:site|user)customize\.py|conftest\.py|\S+\.(?:mk|mak|make|just)|stack\.yaml|cabal\.project(?:\.local)?|\.ghci|info\.rkt|\.iex\.exs|\.sbtopts|\.jvmopts|\.perltidyrc|\.rspec-local|babel\.config\.\w+|\.babelrc(?:\.\w+)?|\.swcrc|init\.gradle(?:\.kts)?|(?:docker-)?compose\.override\.ya?ml)$"
);
// Folders of such files, of installed programs and of wrappers.
pattern!(
    READ_FOLDER,
    r"(?i)(?:^|/)(?:\.cargo|\.mvn|\.bundle|\.yarn/(?:releases|plugins|sdks|unplugged)|gradle/wrapper|buildSrc|\.config/(?:mise|nextest)|\.mise|\.direnv|node_modules|vendor/bin|rakelib|[^/]+\.(?:egg|dist)-info|\.?venv|site-packages|\.bin|shims)/.+|^tools/bazel$"
);
// Libraries of tests that a repository contains.
pattern!(
    LIBRARY,
    r"(?i)(?:^|/)(?:vendor|third_party|external|extern|deps|contrib)/(?:.*/)?(?:testify|gotest\w*|jest\w*|vitest|mocha|chai|expect|assert\w*|googletest|gtest|gmock|catch2?|doctest|unity|cmocka|rspec\w*|minitest|test-unit|phpunit|pest|bats\w*|pytest|_pytest|unittest|shunit2|junit\w*|hamcrest|assertj)[/._-]"
);
/// Groups of files of which a tool uses only the first that exists, in the order of precedence.
const PRECEDENCE: [&[&str]; 5] = [
    &["GNUmakefile", "BSDmakefile", "makefile", "Makefile"],
    &["justfile", "Justfile", ".justfile"],
    &[
        "Taskfile.yml",
        "taskfile.yml",
        "Taskfile.yaml",
        "taskfile.yaml",
        "Taskfile.dist.yml",
        "taskfile.dist.yml",
        "Taskfile.dist.yaml",
        "taskfile.dist.yaml",
    ],
    &["Rakefile", "rakefile", "Rakefile.rb", "rakefile.rb"],
    &["pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg"],
];
/// Files as in [`PRECEDENCE`] that honest work changes with the program, so that only a new one counts.
const PRECEDENCE_OF_NEW: [&[&str]; 5] = [
    &["BUILD.bazel", "BUILD"],
    &["WORKSPACE.bazel", "WORKSPACE"],
    &["compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"],
    &["package.json", "package.json5", "package.yaml"],
    &["meson.options", "meson_options.txt"],
];
/// Manifests, which honest work changes with the program; certain lines of them are findings.
const MANIFESTS: [&str; 4] = ["package.json", "pyproject.toml", "setup.cfg", "composer.json"];

/// Modules of Python's standard library, except those that start with `_`.
const PYTHON_MODULES: &str = "abc aifc antigravity argparse array ast asynchat asyncio asyncore atexit audioop base64 bdb \
    binascii bisect builtins bz2 cProfile calendar cgi cgitb chunk cmath cmd code codecs codeop collections colorsys compileall \
    concurrent configparser contextlib contextvars copy copyreg crypt csv ctypes curses dataclasses datetime dbm decimal difflib \
    dis distutils doctest email encodings ensurepip enum errno faulthandler fcntl filecmp fileinput fnmatch fractions \
    ftplib functools gc genericpath getopt getpass gettext glob graphlib grp gzip hashlib heapq hmac html http imaplib imghdr \
    importlib inspect io ipaddress itertools json keyword lib2to3 linecache locale logging lzma mailbox mailcap marshal math \
    mimetypes mmap modulefinder multiprocessing netrc nis nntplib ntpath nturl2path numbers opcode operator optparse os \
    pathlib pdb pickle pickletools pipes pkgutil platform plistlib poplib posix posixpath pprint profile pstats pty pwd \
    py_compile pyclbr pydoc pyexpat queue quopri random re readline reprlib resource rlcompleter runpy sched secrets select \
    selectors shelve shlex shutil signal site smtpd smtplib sndhdr socket socketserver spwd sqlite3 sre_compile sre_constants \
    sre_parse ssl stat statistics string stringprep struct subprocess sunau symtable sys sysconfig syslog tabnanny tarfile \
    telnetlib tempfile termios textwrap this threading time timeit tkinter token tokenize tomllib trace traceback tracemalloc tty \
    turtle types typing unicodedata unittest urllib uu uuid venv warnings wave weakref webbrowser wsgiref xdrlib xml xmlrpc \
    zipapp zipfile zipimport zlib zoneinfo";

/// Tools that `python -m` starts, which a new module or package at the root of the tree would replace.
const PYTHON_TOOLS: &str = "mypy ruff flake8 pylint nox behave pytest tox coverage black isort nose nose2 pyright bandit \
    pycodestyle pydocstyle pyflakes mutmut hypothesis vulture basedpyright _pytest pluggy";

/// Commands of the checks, and paths of the base.
#[derive(Debug)]
pub struct CheckStart<'a> {
    commands: Vec<&'a str>,
    base: HashSet<&'a str>,
}

impl<'a> CheckStart<'a> {
    /// Creates the value from the commands of the checks and the paths of the base.
    pub fn new(commands: impl IntoIterator<Item = &'a str>, base: impl IntoIterator<Item = &'a str>) -> Self {
        Self { commands: commands.into_iter().collect(), base: base.into_iter().collect() }
    }

    /// Returns the paths of the base.
    pub fn base_paths(&self) -> impl Iterator<Item = &'a str> {
        self.base.iter().copied()
    }

    /// Whether the base has a file.
    pub(super) fn has(&self, path: &str) -> bool {
        self.base.contains(path)
    }

    /// Returns the commands of the checks.
    pub(super) fn commands(&self) -> impl Iterator<Item = &'a str> {
        self.commands.iter().copied()
    }

    /// Whether a file must not be written while the checks run. True for code of tests, and for files of the base that start
    /// checks, except those that an installation writes.
    pub fn is_fixed(&self, path: &str) -> bool {
        let starts = || is_check_config(path) || is_makefile(path) || runs_checks(path) || self.executes(path);
        is_test_code(path) || self.base.contains(path) && !READ_FOLDER.is_match(path) && starts()
    }

    /// Whether a file that differs from the base determines how a check is started, so that the check must pass with the base's
    /// version too. A new file does if a tool finds it by itself, or if it replaces something that the base uses.
    pub fn depends_on(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        if MANIFESTS.contains(&name) {
            return name == "package.json" && !self.base.contains(path) && self.takes_precedence(path, name);
        }
        let read = READ.is_match(name) || READ_FOLDER.is_match(path) || is_check_config(path);
        if self.base.contains(path) {
            // Packages of Yarn, whose names have their versions and digests.
            pattern!(PACKED, r"(?:^|/)\.yarn/cache/[^/]+\.zip$");
            return read
                || PACKED.is_match(path)
                || LIBRARY.is_match(path)
                || is_makefile(path)
                || runs_checks(path)
                || self.executes(path)
                || in_precedence(name).is_some();
        }
        // Vitest reads what Vite is configured with.
        pattern!(READ_IF_NEW, r"^vite\.config\.\w+$");
        read || READ_IF_NEW.is_match(name)
            || self.is_setting(path)
            || self.takes_precedence(path, name)
            || shadowed_module(path).is_some()
            || self.is_first_of(path, |folder| PYTHON_TOOLS.split_whitespace().any(|tool| tool == folder))
            || self.vendors(path)
    }

    /// Whether a command sets an environment variable to the path of a file, such as `BASH_ENV=./settings`.
    fn is_setting(&self, path: &str) -> bool {
        pattern!(ASSIGNED, r#"(?:^|[\s;&|(])\w+=["']?(?:\./)?([^\s"';&|)]+)"#);
        self.commands.iter().any(|command| ASSIGNED.captures_iter(command).any(|found| &found[1] == path))
    }

    /// Whether a file starts a new Python module or package at the root of the tree whose name satisfies `named`. `python -m`
    /// finds it before an installed one.
    fn is_first_of(&self, path: &str, named: impl Fn(&str) -> bool) -> bool {
        let Some((name, _)) = path.split_once(['/', '.']).filter(|(name, _)| named(name)) else { return false };
        let python = [".py", ".pyc", ".pyd", ".so"].iter().any(|suffix| path.ends_with(suffix));
        let file = path.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
        let own = |other: &&str| other.strip_prefix(name).is_some_and(|rest| rest.starts_with('/') || rest == ".py");
        python && (file || path.contains('/')) && !self.base.iter().any(own)
    }

    /// Whether a file is vendored although the base has no vendored dependencies. Go and Composer use the folder `vendor` if it
    /// exists.
    fn vendors(&self, path: &str) -> bool {
        let Some(at) = path.find("vendor/").filter(|at| *at == 0 || path[..*at].ends_with('/')) else { return false };
        let (folder, vendor) = (&path[..at], &path[..at + "vendor/".len()]);
        let read =
            ["go.mod", "composer.json"].iter().any(|name| self.base.contains(format!("{folder}{name}").as_str()));
        read && !self.base.iter().any(|other| other.starts_with(vendor))
    }

    /// Whether a command executes a file that runs checks: a shell script, or another script with such a path. A program that a
    /// command executes or reads is the subject of the check and does not count.
    fn executes(&self, path: &str) -> bool {
        let shell = matches!(extension(path), "" | "sh" | "bash" | "zsh" | "ksh" | "ps1" | "bat" | "cmd");
        // The commands of a makefile, a manifest or another task runner are unknown.
        let called = || self.commands.iter().any(|command| INDIRECT.is_match(command)) && is_script_about_checks(path);
        (shell || ABOUT_CHECKS.is_match(path)) && self.runs(path) || called() || self.compiles(path)
    }

    /// Whether only the name of a file of the base, or a command, indicates that the file starts checks. False for files that
    /// tools read by themselves.
    pub(super) fn is_script(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        let read = READ.is_match(name) || READ_FOLDER.is_match(path) || is_check_config(path) || is_makefile(path);
        let starts = || runs_checks(path) || self.executes(path) || self.runs(path);
        self.base.contains(path) && !read && !LIBRARY.is_match(path) && in_precedence(name).is_none() && starts()
    }

    /// Whether a command starts a file: its path, or its Python module or package.
    pub(super) fn runs(&self, path: &str) -> bool {
        self.commands.iter().flat_map(|command| executed(command)).any(|file| file == path)
    }

    /// Whether a command compiles and runs a program about checks that contains the file, such as `go run ./tools/check`.
    fn compiles(&self, path: &str) -> bool {
        pattern!(GO_RUN, r"\bgo\s+run\s+(?:-\S+\s+)*\./(\S+)");
        pattern!(XTASK, r"\bcargo\s+xtask\b");
        let is_in = |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        let runs = |command: &&str| {
            let program = GO_RUN.captures(command).is_some_and(|found| is_in(found[1].trim_end_matches('/')));
            program || XTASK.is_match(command) && is_in("xtask")
        };
        ABOUT_CHECKS.is_match(path) && self.commands.iter().any(runs)
    }

    /// Whether a tool finds a new file before a file of the base.
    fn takes_precedence(&self, path: &str, name: &str) -> bool {
        let folder = path.strip_suffix(name).unwrap_or_default();
        let is_later = |other: &&str| self.base.contains(format!("{folder}{other}").as_str());
        let groups = PRECEDENCE.iter().chain(&PRECEDENCE_OF_NEW);
        groups
            .filter_map(|group| Some((group, group.iter().position(|known| *known == name)?)))
            .any(|(group, at)| group[at + 1..].iter().any(is_later))
    }

    /// Whether a command adds the folder of a file to the search path of programs or modules, so that a new file can replace
    /// another one. This does not apply if the checks of the base failed to find the name; see [`is_missing`].
    pub fn is_on_path(&self, path: &str) -> bool {
        pattern!(SEARCHED, r#"\b[A-Z]*(?:PATH|_LIB|OPTIONS|OPT|ENV)\s*\+?=\s*["']?([^\s"';&|]+)"#);
        pattern!(MODULE, r"(?:^|\s)-m\s+(\w+)");
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let started = |name: &str| {
            self.commands.iter().flat_map(|command| MODULE.captures_iter(command)).any(|found| &found[1] == name)
        };
        self.is_first_of(path, started)
            || self.commands.iter().flat_map(|command| SEARCHED.captures_iter(command)).any(|found| {
                found[1].split([':', '=', ',']).any(|part| {
                    let part = part.trim_start_matches("$PWD/").trim_start_matches("./").trim_end_matches('/');
                    part == folder || part == "." && folder.is_empty()
                })
            })
    }
}

// Paths of files that run checks.
pattern!(
    ABOUT_CHECKS,
    r"(?i)(?:^|/)(?:\.?ci|hack|scripts?|tools|checks?|xtask)/|(?:^|[/._-])(?:tests?|checks?|lint|verify|coverage|cov|ci)(?:[._-][^/]*)?$"
);
// Commands that run what another file names.
pattern!(
    INDIRECT,
    r"(?:^|[\s;&|(])(?:g?make|just|task|rake|npm|npx|yarn|pnpm|bun|deno\s+task|composer|tox|nox|invoke|inv|doit|poe|hatch|pdm|ninja|meson|ant|mage|cargo\s+(?:xtask|make)|mise|turbo|nx|lerna)(?:\s|$)"
);
// Programs that execute the file after their options.
pattern!(
    INTERPRETER,
    r"^(?:.*/)?(?:(?:ba|da|z|k)?sh|python[\d.]*|node|ruby|perl|php|deno|bun|tsx?|source|\.|pwsh|just|make)$"
);

/// Whether a file is a script, by its language and folder, and its name suggests that it checks something.
fn is_script_about_checks(path: &str) -> bool {
    pattern!(SCRIPT_FOLDER, r"(?i)(?:^|/)(?:\.?ci|hack|scripts?|tools|checks?|bin|build|dev|qa|xtask)/");
    pattern!(CHECKS, r"(?i)test|check|verif|lint|valid|conform|audit|guard|accept|smoke|e2e|spec\b");
    let script = ["py", "js", "mjs", "cjs", "ts", "mts", "rb", "pl", "php", "sh", "bash", "awk", ""];
    let name = path.rsplit('/').next().unwrap_or(path);
    script.contains(&extension(path)) && SCRIPT_FOLDER.is_match(path) && CHECKS.is_match(name)
}

/// Whether a script runs checks, according to its name or folder, regardless of the program that executes it.
pub(super) fn runs_checks(path: &str) -> bool {
    pattern!(
        NAMED,
        r"(?i)(?:^|/)(?:\.?ci|hack)/(?:.*/)?[\w.-]*$|(?:^|[/._-])(?:tests?|checks?|lint|verify|coverage|cov|ci)(?:[._-][\w.-]*)?$"
    );
    matches!(extension(path), "" | "sh" | "bash" | "zsh") && NAMED.is_match(path)
}

fn extension(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.').map_or("", |(_, extension)| extension)
}

/// Returns the files that a command executes, relative to the root of the tree: the first word of each part, if it is a path, or the
/// file after an interpreter and its options. For `-m a.b`, this is the file of that Python module.
fn executed(command: &str) -> Vec<String> {
    let plain =
        |word: &str| word.trim_matches(['"', '\'']).trim_start_matches("$PWD/").trim_start_matches("./").to_owned();
    let mut files = Vec::new();
    for part in command.split([';', '|', '&', '(', ')', '\n', '`', '{', '}']) {
        let words: Vec<&str> = part.split_whitespace().collect();
        for (at, word) in words.iter().enumerate() {
            let assigned = word.split_once('=').is_some_and(|(name, _)| !name.contains(['/', '-']));
            let wraps =
                matches!(*word, "env" | "time" | "exec" | "command" | "nice" | "nohup" | "xvfb-run" | "timeout" | "!");
            if assigned || wraps || word.starts_with('-') || word.starts_with(|c: char| c.is_ascii_digit()) {
                continue;
            }
            if INTERPRETER.is_match(word) {
                let mut rest = words[at + 1..].iter();
                while let Some(next) = rest.next() {
                    match *next {
                        "-m" => {
                            let module = rest.next().map(|module| module.replace('.', "/")).unwrap_or_default();
                            files.extend([format!("{module}.py"), format!("{module}/__main__.py")]);
                            break;
                        }
                        option if option.starts_with('-') => {}
                        file => {
                            files.push(plain(file));
                            break;
                        }
                    }
                }
            } else if word.contains('/') {
                files.push(plain(word));
            }
            break;
        }
    }
    files
}

/// Returns the group of `PRECEDENCE` that a name belongs to, and its rank in the group.
fn in_precedence(name: &str) -> Option<(&'static [&'static str], usize)> {
    PRECEDENCE.iter().find_map(|group| Some((*group, group.iter().position(|known| *known == name)?)))
}

/// Returns the module of Python's standard library that a new file replaces, because the file is at the root of the tree or in a
/// folder that interpreters and test runners search first. `None` if it replaces none.
fn shadowed_module(path: &str) -> Option<&str> {
    // Installed packages of these folders come after the standard library, and their modules are named with the package.
    let module =
        python_module(path).filter(|_| !["src/", "lib/", "python/"].iter().any(|top| path.starts_with(top)))?;
    PYTHON_MODULES.split_whitespace().any(|known| known == module).then_some(module)
}

/// Returns the name of the Python module in a file (source, compiled, or native) at the root of the tree or in a folder that is
/// searched first.
fn python_module(path: &str) -> Option<&str> {
    pattern!(SEARCHED_FOLDER, r"^(?:|src/|lib/|python/|(?:src/)?(?:tests?|testing|spec|specs)/(?:\w+/)?)$");
    let (folder, file) = path.rsplit_once('/').map_or(("", path), |(folder, file)| (&path[..=folder.len()], file));
    let (stem, suffix) = file.split_once('.')?;
    if !["py", "pyc", "pyd", "so"].contains(&suffix.rsplit('.').next().unwrap_or_default()) {
        return None;
    }
    if stem != "__init__" {
        return SEARCHED_FOLDER.is_match(folder).then_some(stem);
    }
    let package = folder.trim_end_matches('/');
    let (above, name) = package.rsplit_once('/').map_or(("", package), |(above, name)| (&folder[..=above.len()], name));
    (SEARCHED_FOLDER.is_match(above) && !name.is_empty()).then_some(name)
}

/// Name that files of the base import, and that a new file can take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedName {
    /// Name, as stated in an error about it.
    pub name: String,
    /// POSIX extended regular expression for a line that imports the name.
    pub pattern: String,
    /// Globs of the files that may contain such lines.
    pub files: &'static [&'static str],
}

impl ImportedName {
    /// Returns the name by which other files import a new file; `None` if the file cannot be imported by name.
    pub fn of(path: &str) -> Option<Self> {
        let file = path.rsplit('/').next().unwrap_or(path);
        let plain = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
        let folder = path.strip_suffix(file).unwrap_or_default();
        // Folders that interpreters search first, by options or by convention.
        let folders = ["t/lib/", "test/lib/", "lib/", "test/", "spec/", "t/"];
        let searched = folders.into_iter().find(|first| path.starts_with(first)).or(folder.is_empty().then_some(""));
        let below = |suffix: &str| {
            let within = searched.and_then(|folder| path.strip_prefix(folder)).unwrap_or(path);
            within.strip_suffix(suffix).unwrap_or(within).to_owned()
        };
        let (name, pattern, files): (&str, String, &[&str]) = if let Some(module) = python_module(path) {
            let line = format!(
                "^[[:space:]]*(from[[:space:]]+{module}|import[[:space:]]+(.*,[[:space:]]*)?{module})([[:space:].,;]|$)"
            );
            (module, line, &["*.py"])
        } else if let Some(library) = file.strip_suffix(".rb").filter(|_| searched.is_some()) {
            let within = below(".rb");
            (library, format!("require[[:space:](]+['\"]{within}['\"/]"), &["*.rb", "Rakefile", "*.rake"])
        } else if let Some(library) = file.strip_suffix(".pm").filter(|_| searched.is_some()) {
            let module = below(".pm").replace('/', "::");
            (library, format!("^[[:space:]]*(use|require)[[:space:]]+{module}[[:space:];:]"), &["*.pl", "*.pm", "*.t"])
        } else if [".h", ".hpp", ".hh"].iter().any(|suffix| file.ends_with(suffix)) {
            let escaped = file.replace('.', "[.]");
            let line = format!("^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]([^>\"]*/)?{escaped}[>\"]");
            (file, line, &["*.c", "*.cc", "*.cpp", "*.cxx", "*.h", "*.hpp"])
        } else {
            return None;
        };
        (plain(name) && !name.is_empty()).then(|| Self { name: name.to_owned(), pattern, files })
    }
}

/// Returns the name under which programs find a new file, to search it in the output of a check; `None` if the file has the name of
/// a module of Python's standard library or of a known tool, which it would replace.
pub fn found_name(path: &str) -> Option<&str> {
    let file = path.rsplit('/').next().unwrap_or(path);
    let stem = match path.strip_suffix("/__init__.py") {
        Some(package) => package.rsplit('/').next().unwrap_or(package),
        None => file.split('.').next().unwrap_or(file),
    };
    let is_known = [PYTHON_MODULES, PYTHON_TOOLS].iter().any(|names| names.split_whitespace().any(|name| name == stem));
    (!is_known && !stem.is_empty()).then_some(stem)
}

/// Whether the output of a check reports that a program, module or header with this name was not found. A new file with this name
/// then replaces nothing.
pub fn is_missing(output: &str, name: &str) -> bool {
    pattern!(
        MISSING,
        r"(?i)no module named|cannot import name|cannot load such file|can't locate|no such file or directory|\bnot found\b|unknown command"
    );
    !name.is_empty() && output.lines().any(|line| MISSING.is_match(line) && line.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: [&str; 16] = [
        "answer.txt",
        "main.py",
        "Makefile",
        "Taskfile.dist.yml",
        "check.sh",
        "tools/run.py",
        "app/__main__.py",
        "src/app.py",
        "gradlew",
        ".npmrc",
        "package.json",
        "ci/steps/test",
        "sub/makefile",
        "rules.mk",
        "setup.cfg",
        "docs/guide.md",
    ];
    const COMMANDS: [&str; 8] = [
        "grep -q right answer.txt",
        "python3 main.py --all src docs",
        "sh check.sh",
        "python3 ./tools/run.py --all && make test",
        "python -m app",
        "./gradlew test",
        "PATH=\"./bin:$PATH\" npm test",
        "PYTHONPATH=plugins pytest",
    ];

    /// See docs/research/threats.md#g17.
    #[test]
    fn changed_files_that_start_checks_are_recognized() {
        let start = CheckStart::new(COMMANDS, BASE);
        for path in ["Makefile", "check.sh", "tools/run.py", "gradlew", ".npmrc", "ci/steps/test", "rules.mk"] {
            assert!(start.depends_on(path), "{path}");
        }
        let start = CheckStart::new(
            ["go run ./tools/check .", "cargo xtask budget"],
            ["tools/check/main.go", "xtask/src/main.rs", "vendor/testify/assert.go", "tools/gen/main.go"],
        );
        for path in ["tools/check/main.go", "xtask/src/main.rs", "vendor/testify/assert.go"] {
            assert!(start.depends_on(path), "{path}");
        }
        assert!(!start.depends_on("tools/gen/main.go"));
        let start = CheckStart::new(["BASH_ENV=./bash_env bash check.sh", "test -f answer.txt"], ["check.sh"]);
        assert!(start.depends_on("bash_env") && !start.depends_on("answer.txt"));
        let start = CheckStart::new(COMMANDS, BASE);
        for path in
            ["src/app.py", "package.json", "docs/guide.md", "setup.cfg", "app/__main__.py", "answer.txt", "main.py"]
        {
            assert!(!start.depends_on(path), "{path}");
        }
    }

    /// See docs/research/threats.md#g17.
    #[test]
    fn new_shadowing_files_are_recognized() {
        let start = CheckStart::new(COMMANDS, BASE);
        for path in [
            "GNUmakefile",
            "makefile",
            "BSDmakefile",
            "sub/GNUmakefile",
            "Taskfile.yml",
            "extra.mk",
            "pytest.ini",
            ".pytest.ini",
            "tox.ini",
            "conftest.py",
            "sitecustomize.py",
            "tests/a.pth",
            "unittest.py",
            "argparse.py",
            "re/__init__.py",
            "tests/random.py",
            "mypy.py",
            "ruff/__main__.py",
            "flake8/rules.py",
            ".rspec-local",
            "rakelib/extra.rake",
            "plugin.egg-info/entry_points.txt",
            "plugin-1.0.dist-info/entry_points.txt",
            "babel.config.js",
            ".babelrc",
            ".swcrc",
            "vite.config.ts",
            "init.gradle",
            "Directory.Packages.props",
            "node_modules/.bin/jest",
            "node_modules/left-pad/index.js",
            ".venv/bin/pytest",
            "vendor/bin/phpunit",
            ".env",
            ".env.test",
            ".envrc",
            ".yarnrc.yml",
            ".yarn/releases/yarn.cjs",
            ".pnpmfile.cjs",
            "bunfig.toml",
            ".cargo/config.toml",
            ".cargo/config",
            "sub/.cargo/config.toml",
            "go.work",
            "rust-toolchain",
            ".bazelrc",
            "tools/bazel",
            ".mvn/jvm.config",
            "gradle/wrapper/gradle-wrapper.properties",
            "gradle.properties",
            "buildSrc/build.gradle",
            ".bundle/config",
            ".proverc",
            "Directory.Build.targets",
            ".bashrc",
            ".bash_env",
            ".profile",
            ".mise.toml",
            "mise.local.toml",
            ".tool-versions",
            "CMakeUserPresets.json",
        ] {
            assert!(start.depends_on(path), "{path}");
        }
        for path in [
            "src/app2.py",
            "src/app/types.py",
            "src/types.py",
            "src/queue/__init__.py",
            "data/infection_rates.json",
            "config/karma.yml",
            "nyc-taxi.json",
            "psalms.json",
            "suite.json",
            "coverage.yml",
            "vendor/readme.md",
            "app/random.py",
            "Justfile",
            "new/Makefile",
            "check2.sh",
            "docs/env.md",
            "tests/test_random.py",
            "src/main.rs",
            "binary/npm",
            "package.json",
        ] {
            assert!(!start.depends_on(path) && !start.is_on_path(path), "{path}");
        }
        for path in ["bin/npm", "plugins/anything.py"] {
            assert!(start.is_on_path(path), "{path}");
        }
    }

    /// See docs/research/threats.md#g17.
    #[test]
    fn files_that_tools_prefer_or_load_shadow_files_of_the_base() {
        let base = [
            "BUILD",
            "lib/BUILD",
            "WORKSPACE",
            "docker-compose.yml",
            "package.yaml",
            "meson_options.txt",
            ".pnp.cjs",
            ".yarn/cache/jest-npm-29.7.0-97f4f64f74-10c0.zip",
        ];
        let start = CheckStart::new(["yarn test", "bazel test //...", "docker compose run tests"], base);
        for path in [
            "BUILD.bazel",
            "lib/BUILD.bazel",
            "WORKSPACE.bazel",
            "compose.yaml",
            "compose.override.yml",
            "package.json",
            "package.json5",
            "meson.options",
            ".pnp.cjs",
            ".pnp.loader.mjs",
            ".yarn/cache/jest-npm-29.7.0-97f4f64f74-10c0.zip",
            ".yarn/unplugged/jest/index.js",
        ] {
            assert!(start.depends_on(path), "{path}");
        }
        for path in ["BUILD", "other/BUILD.bazel", "docker-compose.yml", ".yarn/cache/left-pad-npm-1.3.0-1-10c0.zip"] {
            assert!(!start.depends_on(path), "{path}");
        }
    }

    /// See docs/research/threats.md#g17.
    #[test]
    fn indirectly_called_scripts_start_checks() {
        let base = ["scripts/verify.py", "scripts/release.py", "tools/lint.mjs", "src/verify.py", "Makefile"];
        for command in ["make test", "npm run style", "cd web && yarn check", "just ci", "tox -e py311"] {
            let start = CheckStart::new([command], base);
            assert!(start.depends_on("scripts/verify.py") && start.depends_on("tools/lint.mjs"), "{command}");
            assert!(!start.depends_on("scripts/release.py") && !start.depends_on("src/verify.py"), "{command}");
        }
        assert!(!CheckStart::new(["pytest"], base).depends_on("scripts/verify.py"));
    }

    /// See docs/research/threats.md#g17.
    #[test]
    fn modules_and_vendored_copies_shadow_files_of_the_base() {
        let start = CheckStart::new(["python -m mypy .", "python3 -m calc.check"], ["go.mod", "main.go", "web/a.php"]);
        assert!(start.depends_on("mypy/__init__.py") && start.depends_on("vendor/example.org/a/a.go"));
        assert!(start.is_on_path("calc.py") && start.is_on_path("calc/check.py") && !start.is_on_path("calc2.py"));
        assert!(!start.depends_on("web/vendor/a.php") && !start.depends_on("calc.py"));
        let own = CheckStart::new(["python -m mypy ."], ["mypy/__init__.py", "go.mod", "vendor/modules.txt"]);
        assert!(!own.depends_on("mypy/checker.py") && !own.depends_on("vendor/example.org/a/a.go"));
        assert!(!own.is_on_path("mypy/checker.py"));
    }

    #[test]
    fn imports_of_the_base_are_found_by_their_lines() {
        for (path, imports, others) in [
            ("pluggy.py", &["import pluggy", "from pluggy import a", "import os, pluggy"][..], &["import pluggy2"][..]),
            ("tests/yaml/__init__.py", &["import yaml", "from yaml.x import y"], &["# yaml", "import pyyaml"]),
            ("attr.pyc", &["import attr"], &["from attrs import x"]),
            ("fast.cpython-311-x86_64-linux-gnu.so", &["import fast"], &["import faster"]),
            ("lib/json.rb", &["require 'json'", "require \"json/add\""], &["require 'jsonx'", "require_relative 'a'"]),
            ("include/check.h", &["#include <check.h>", "# include <a/check.h>"], &["#include \"xcheck.h\""]),
            ("lib/Test/More.pm", &["use Test::More tests => 2;", "require Test::More;"], &["use More;", "use Test;"]),
            ("lib/minitest/autorun.rb", &["require 'minitest/autorun'"], &["require 'autorun'"]),
            ("t/lib/Test.pm", &["use Test;", "use Test::More;"], &["use Testing;"]),
        ] {
            let name = ImportedName::of(path).unwrap_or_else(|| panic!("{path}"));
            let pattern = name.pattern.replace("[[:space:]]", r"\s").replace("[[:space:]", r"[\s");
            let pattern = regex::Regex::new(&pattern).unwrap();
            assert!(imports.iter().all(|line| pattern.is_match(line)), "{path}: {pattern}");
            assert!(!others.iter().any(|line| pattern.is_match(line)), "{path}: {pattern}");
        }
        for path in ["src/app/yaml.py", "README.md", "src/main.rs", "app/models/json.rb", "a$b.h"] {
            assert_eq!(ImportedName::of(path), None, "{path}");
        }
        assert!(is_missing("E   ModuleNotFoundError: No module named 'calc'", "calc"));
        assert!(is_missing("sh: 1: verify: not found", "verify"));
        assert!(!is_missing("E   ModuleNotFoundError: No module named 'other'\ncalc failed", "calc"));
    }

    #[test]
    fn compiled_and_native_modules_shadow_standard_modules() {
        for path in ["argparse.pyc", "re.so", "tests/random.cpython-311.pyc", "json/__init__.pyc", "typing.pyd"] {
            assert!(shadowed_module(path).is_some(), "{path}");
        }
        for path in ["argparse.txt", "app/argparse.py", "json/x.py", "re.md", "my.re.py"] {
            assert!(shadowed_module(path).is_none(), "{path}");
        }
    }

    #[test]
    fn executed_files_of_commands_are_found() {
        for (command, files) in [
            ("sh check.sh", &["check.sh"][..]),
            ("CI=1 env A=b timeout 60 bash -eu ./a/b.sh x.txt", &["a/b.sh"]),
            ("cd x && ./run | tee log.txt", &["run"]),
            ("python -m app.tests -v", &["app/tests.py", "app/tests/__main__.py"]),
            ("\"./my script\"", &["my"]),
            ("grep -q right answer.txt", &[]),
            ("", &[]),
        ] {
            assert_eq!(executed(command), files, "{command}");
        }
    }

    #[test]
    fn ordinary_makefile_is_found_after_others() {
        let start = CheckStart::new(["make test"], ["makefile", "a/GNUmakefile"]);
        assert!(!start.depends_on("Makefile") && start.depends_on("GNUmakefile"));
        assert!(!start.depends_on("a/Makefile") && !start.depends_on("a/makefile"));
    }
}
