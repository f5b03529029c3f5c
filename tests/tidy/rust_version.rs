//! Oldest Rust version that can build the project, according to `rust-version` in Cargo.toml.

use std::process::Command;

use serde_json::Value;

use crate::source::report;

/// No dependency on this platform needs a newer Rust version than the project. Clippy checks the project's code
/// (`clippy::incompatible_msrv`).
#[test]
#[expect(clippy::disallowed_methods, reason = "cargo lists the dependencies")]
fn no_dependency_needs_a_newer_rust() {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let arguments = ["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", &platform];
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let output = output.expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let of = |package: &Value| version(package["rust_version"].as_str().unwrap_or("1.0"));
    let own = of(packages.iter().find(|package| package["name"] == "ralph-bot").expect("the package"));
    assert!(own > version("1.0"), "Cargo.toml has no rust-version");
    report(packages.iter().filter(|package| of(package) > own).map(|package| {
        let (name, rust) = (package["name"].as_str().unwrap_or_default(), &package["rust_version"]);
        format!(
            "Cargo.toml: `{name}` needs Rust {rust}; use an older version of it, or raise `rust-version` everywhere"
        )
    }));
}

/// Parses `1.91` or `1.91.0`.
fn version(text: &str) -> Vec<u32> {
    let mut parts: Vec<u32> = text.split('.').map(|part| part.parse().expect("a number")).collect();
    parts.resize(3, 0);
    parts
}
