//! Table of ecosystems.

use serde_json::Value;

/// Ecosystem with a package registry.
pub(super) struct Ecosystem {
    /// Name in `environment.network`.
    pub(super) name: &'static str,
    /// Names of files that pin dependencies; `*` matches any text.
    pub(super) locks: &'static [&'static str],
    /// Names of files that declare dependencies.
    pub(super) manifests: &'static [&'static str],
    /// Names of files with package manager settings.
    pub(super) settings: &'static [&'static str],
    /// Globs of folders in a work tree that contain installed dependencies and compiled results.
    pub(super) folders: &'static [&'static str],
    /// Hosts of the registry.
    pub(super) registries: &'static [&'static str],
    /// Returns the commands that install the dependencies, according to the files at the root.
    pub(super) install: fn(&dyn Fn(&str) -> Option<String>) -> Vec<String>,
}

/// All ecosystems, in the order in which their commands run.
pub(super) const ECOSYSTEMS: &[Ecosystem] = &[
    Ecosystem {
        name: "npm",
        locks: &["package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "bun.lockb"],
        manifests: &["package.json"],
        settings: &[".npmrc", ".yarnrc", ".yarnrc.yml", "pnpm-workspace.yaml", ".nvmrc"],
        folders: &[
            "**/node_modules",
            ".yarn/cache",
            ".yarn/unplugged",
            ".yarn/install-state.gz",
            ".pnp.*",
            ".pnpm-store",
        ],
        registries: &["registry.npmjs.org", "registry.yarnpkg.com", "repo.yarnpkg.com", "nodejs.org"],
        install: node,
    },
    Ecosystem {
        name: "pypi",
        locks: &[
            "uv.lock",
            "poetry.lock",
            "pdm.lock",
            "Pipfile.lock",
            "pylock.toml",
            "requirements*.txt",
            "*-requirements.txt",
        ],
        manifests: &["pyproject.toml", "setup.py", "setup.cfg"],
        settings: &["uv.toml", "pip.conf", ".python-version"],
        folders: &["**/.venv", "**/venv", "**/.tox", "**/.nox", "**/*.egg-info"],
        registries: &["pypi.org", "files.pythonhosted.org"],
        install: python,
    },
    Ecosystem {
        name: "cargo",
        locks: &["Cargo.lock"],
        manifests: &["Cargo.toml"],
        settings: &["rust-toolchain", "rust-toolchain.toml"],
        folders: &["**/target"],
        registries: &["index.crates.io", "static.crates.io", "crates.io", "static.rust-lang.org"],
        install: |files| {
            let lock = files("Cargo.lock");
            let has_registry = lock.as_ref().is_none_or(|lock| lock.contains("source = \""));
            let manifest = files("Cargo.toml").filter(|text| lock.is_some() || text.contains("dependencies"));
            let locked = if lock.is_some() { " --locked" } else { "" };
            manifest.filter(|_| has_registry).map(|_| format!("cargo fetch{locked}")).into_iter().collect()
        },
    },
    Ecosystem {
        name: "go",
        locks: &["go.sum"],
        manifests: &["go.mod"],
        settings: &["go.work"],
        folders: &["**/vendor"],
        registries: &["proxy.golang.org", "sum.golang.org"],
        install: |files| match files("go.sum") {
            Some(_) => vec!["go mod download".to_owned()],
            None => Vec::new(),
        },
    },
    Ecosystem {
        name: "rubygems",
        locks: &["Gemfile.lock"],
        manifests: &["Gemfile", "*.gemspec"],
        settings: &[".ruby-version"],
        folders: &["**/vendor/bundle", "**/.bundle"],
        registries: &["rubygems.org", "index.rubygems.org"],
        install: |files| match files("Gemfile") {
            Some(_) => ["bundle config set --local path vendor/bundle", "bundle install"].map(str::to_owned).into(),
            None => Vec::new(),
        },
    },
    Ecosystem {
        name: "packagist",
        locks: &["composer.lock"],
        manifests: &["composer.json"],
        settings: &[],
        folders: &["**/vendor"],
        registries: &["repo.packagist.org", "packagist.org", "api.github.com", "codeload.github.com"],
        install: |files| match files("composer.json") {
            Some(_) => vec!["composer install --no-interaction --no-progress".to_owned()],
            None => Vec::new(),
        },
    },
    Ecosystem {
        name: "maven",
        locks: &["gradle.lockfile", "gradle-wrapper.properties", "libs.versions.toml"],
        manifests: &["pom.xml", "build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"],
        settings: &[],
        folders: &["**/.gradle"],
        registries: &["repo.maven.apache.org", "repo1.maven.org", "plugins.gradle.org", "services.gradle.org"],
        install: |files| match files("pom.xml") {
            Some(_) => vec!["mvn -q -B dependency:go-offline".to_owned()],
            None => Vec::new(),
        },
    },
    Ecosystem {
        name: "nuget",
        locks: &["packages.lock.json"],
        manifests: &["*.csproj", "*.fsproj", "Directory.Packages.props"],
        settings: &[],
        folders: &[],
        registries: &["api.nuget.org"],
        install: |_| Vec::new(),
    },
    Ecosystem {
        name: "hex",
        locks: &["mix.lock"],
        manifests: &["mix.exs"],
        settings: &[],
        folders: &["**/deps", "**/_build"],
        registries: &["repo.hex.pm", "hex.pm", "builds.hex.pm"],
        install: |files| match files("mix.exs") {
            Some(_) => vec!["mix local.hex --force --if-missing".to_owned(), "mix deps.get".to_owned()],
            None => Vec::new(),
        },
    },
    Ecosystem {
        name: "pub",
        locks: &["pubspec.lock"],
        manifests: &["pubspec.yaml"],
        settings: &[],
        folders: &["**/.dart_tool"],
        registries: &["pub.dev"],
        install: |files| match files("pubspec.yaml") {
            Some(_) => vec!["dart pub get".to_owned()],
            None => Vec::new(),
        },
    },
];

/// Returns the command of the package manager named by `packageManager` or indicated by a lock file.
fn node(files: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let Some(manifest) = files("package.json") else { return Vec::new() };
    let parsed: Value = serde_json::from_str(manifest.trim_start_matches('\u{feff}')).unwrap_or_default();
    let has_dependencies = ["dependencies", "devDependencies", "workspaces"].iter().any(|key| !parsed[*key].is_null());
    if !has_dependencies {
        return Vec::new();
    }
    let declared = parsed["packageManager"].as_str().unwrap_or_default();
    let is = |program: &str, locks: &[&str]| {
        let named = declared.split('@').next() == Some(program);
        named || declared.is_empty() && locks.iter().any(|lock| files(lock).is_some())
    };
    let has_lock = |lock: &str| files(lock).is_some();
    let command = if is("pnpm", &["pnpm-lock.yaml"]) {
        "pnpm install --frozen-lockfile"
    } else if is("yarn", &["yarn.lock"]) {
        let is_classic = declared.starts_with("yarn@1") || declared.is_empty() && !has_lock(".yarnrc.yml");
        if is_classic { "yarn install --frozen-lockfile" } else { "yarn install --immutable" }
    } else if is("bun", &["bun.lock", "bun.lockb"]) {
        "bun install --frozen-lockfile"
    } else if has_lock("package-lock.json") || has_lock("npm-shrinkwrap.json") {
        "npm ci"
    } else {
        "npm install --no-package-lock"
    };
    vec![command.to_owned()]
}

/// Returns commands that install Python packages for `python3`. A sandbox has a separate home folder, so the protection of
/// system packages is unnecessary there.
fn python(files: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    for (lock, command) in [("uv.lock", "uv sync"), ("poetry.lock", "poetry install"), ("pdm.lock", "pdm sync")] {
        if files(lock).is_some() {
            return vec![command.to_owned()];
        }
    }
    let listed = ["requirements.txt", "requirements-dev.txt", "dev-requirements.txt", "requirements-test.txt"];
    let lists: Vec<String> =
        listed.iter().filter(|list| files(list).is_some()).map(|list| format!(" -r {list}")).collect();
    let is_package =
        files("setup.py").is_some() || files("pyproject.toml").is_some_and(|text| text.contains("[project]"));
    let package = if lists.is_empty() && is_package { " -e ." } else { "" };
    if lists.is_empty() && package.is_empty() {
        return Vec::new();
    }
    vec![format!("PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install -q --user{}{package}", lists.concat())]
}
