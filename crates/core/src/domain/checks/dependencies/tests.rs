//! Tests of ecosystems and of failures.

use super::*;

fn commands(files: &[(&str, &str)]) -> Vec<String> {
    install_commands(&|path| files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned()))
}

#[test]
fn install_commands_follow_lock_files() {
    let package = ("package.json", r#"{"devDependencies": {"vitest": "1"}}"#);
    let yarn4 = ("package.json", r#"{"dependencies": {}, "packageManager": "yarn@4.1.0"}"#);
    let crates = ("Cargo.lock", "[[package]]\nname = \"a\"\nsource = \"registry+x\"\n");
    let manifest = ("Cargo.toml", "[dependencies]\na = \"1\"\n");
    for (files, expected) in [
        (&[][..], &[][..]),
        (&[("package.json", "{}")], &[]),
        (&[package], &["npm install --no-package-lock"]),
        (&[package, ("package-lock.json", "{}")], &["npm ci"]),
        (&[package, ("pnpm-lock.yaml", "")], &["pnpm install --frozen-lockfile"]),
        (&[package, ("yarn.lock", "")], &["yarn install --frozen-lockfile"]),
        (&[yarn4, ("yarn.lock", "")], &["yarn install --immutable"]),
        (&[package, ("bun.lock", "")], &["bun install --frozen-lockfile"]),
        (&[manifest, crates], &["cargo fetch --locked"]),
        (&[manifest, ("Cargo.lock", "[[package]]\nname = \"own\"\n")], &[]),
        (&[("Cargo.toml", "[package]")], &[]),
        (&[("go.mod", "")], &[]),
        (&[("go.mod", ""), ("go.sum", "")], &["go mod download"]),
        (&[("uv.lock", ""), ("requirements.txt", "")], &["uv sync"]),
        (
            &[("requirements.txt", ""), ("requirements-dev.txt", "")],
            &[
                "PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install -q --user -r requirements.txt -r requirements-dev.txt",
            ],
        ),
        (&[("pyproject.toml", "[project]")], &["PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install -q --user -e ."]),
        (&[("pyproject.toml", "[tool.ruff]")], &[]),
        (&[("composer.json", "{}")], &["composer install --no-interaction --no-progress"]),
    ] {
        assert_eq!(commands(files), expected, "{files:?}");
    }
}

#[test]
fn lock_files_and_named_files_decide() {
    let paths = [
        "Makefile",
        "package.json",
        "web/package-lock.json",
        "requirements-dev.txt",
        "pyproject.toml",
        "scripts/bootstrap.sh",
        "src/a.py",
        "go.mod",
    ];
    let decide = |commands: &[&str]| -> Vec<&str> {
        let commands: Vec<String> = commands.iter().map(|command| (*command).to_owned()).collect();
        deciding_files(&paths, &commands).into_iter().collect()
    };
    assert_eq!(decide(&["npm ci"]), ["go.mod", "requirements-dev.txt", "web/package-lock.json"]);
    assert_eq!(
        decide(&["make deps", "./scripts/bootstrap.sh --all"]),
        ["Makefile", "go.mod", "requirements-dev.txt", "scripts/bootstrap.sh", "web/package-lock.json"]
    );
}

#[test]
fn registries_default_to_the_ecosystems() {
    assert_eq!(registries(None, &["a/go.sum", "README.md"]), ["proxy.golang.org", "sum.golang.org"]);
    assert!(registries(None, &["README.md"]).is_empty());
    let stated = ["pypi".to_owned(), "example.org".to_owned()];
    assert_eq!(registries(Some(&stated), &["go.sum"]), ["pypi.org", "files.pythonhosted.org", "example.org"]);
    assert!(registries(Some(&[]), &["go.sum"]).is_empty());
}

#[test]
fn setup_line_is_yaml() {
    let line = |commands: &[&str]| setup_line(&commands.iter().map(|c| (*c).to_owned()).collect::<Vec<_>>());
    assert_eq!(line(&["npm ci"]), "setup: [npm ci]");
    assert_eq!(line(&["a: 'b'", "c"]), "setup: ['a: ''b''', c]");
}

#[test]
fn decisive_lines_state_the_cause() {
    let npm = "npm warn deprecated glob@7: old\nnpm error code ENOTFOUND\nnpm error syscall getaddrinfo\nnpm error network request to \
               https://registry.npmjs.org/x failed, reason: getaddrinfo ENOTFOUND\nnpm error A complete log of this run can be found in: \
               /home/x/.npm/_logs/debug-0.log\n";
    let lines = decisive_lines(npm);
    assert_eq!(lines[0], "npm error code ENOTFOUND");
    assert!(lines.iter().all(|line| !line.contains("complete log") && !line.contains("deprecated")), "{lines:?}");
    assert_eq!(needs_network(npm), Some("npm error code ENOTFOUND"));
    let python = "Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\n    import x\nModuleNotFoundError: No module named 'x'\n";
    assert_eq!(decisive_lines(python), ["ModuleNotFoundError: No module named 'x'"]);
    assert_eq!(needs_network(python), None, "it contains the letters of ENOTFOUND");
    assert_eq!(
        decisive_lines("Traceback (most recent call last):\n  File \"t.py\", line 1\nAssertionError\n"),
        ["AssertionError"]
    );
    assert_eq!(decisive_lines("one\ntwo\nthree\nfour\n\n"), ["two", "three", "four"]);
    assert!(decisive_lines("").is_empty());
    let many: String = (0..20).map(|n| format!("error {n}\n")).collect();
    assert_eq!(decisive_lines(&many), ["error 0", "error 1", "error 2", "error 3", "error 4", "error 19"]);
}

#[test]
fn missing_dependencies_and_a_missing_network_are_recognized() {
    for output in [
        "sh: 1: vitest: not found",
        "bash: line 1: jest: command not found",
        "Error: Cannot find module 'express'",
        "/usr/bin/python3: No module named pytest",
        "E   ModuleNotFoundError: No module named 'requests'",
        "error: failed to get `serde` as a dependency of package `x v0.1.0`",
        "main.go:3:8: no required module provides package github.com/x/y; to add it:",
        "PHP Fatal error:  Failed opening required '/x/vendor/autoload.php'",
        "Could not find gem 'rspec' in locally installed gems.",
        "** (Mix) Could not find an SCM for dependency :jason from X.MixProject",
    ] {
        assert!(missing_dependency(output).is_some(), "{output}");
    }
    for output in [
        "curl: (6) Could not resolve host: example.org",
        "error: failed to download from `https://index.crates.io/config.json`",
        "dial tcp: lookup proxy.golang.org: no such host",
        "npm error network request failed, reason: connect ECONNREFUSED 127.0.0.1:3128",
        "WARNING: Retrying: Failed to establish a new connection: [Errno -2] Name or service not known",
    ] {
        assert!(needs_network(output).is_some(), "{output}");
    }
    for output in ["AssertionError: 1 != 2", "test result: FAILED. 1 passed; 2 failed", ""] {
        assert!(missing_dependency(output).is_none() && needs_network(output).is_none(), "{output}");
    }
}
