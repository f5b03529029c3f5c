//! Protected paths, which agents must not change: CI, code owners, hooks, and files that instruct or configure agents and
//! editors.
//!
//! A pattern protects more than the paths that it matches, because a file can be replaced in other ways. The folder of the file
//! and the folders above it can become links. Names that differ only in case, in invisible characters or in their short form are
//! the same file on other systems. The target of a protected link is protected too.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::model::characters::is_invisible;
use crate::domain::model::task::DiffStat;

/// Globs of the paths that are protected by default, relative to the root of the tree. The configuration adds those of each agent
/// preset.
pub const PROTECTED_PATHS: &[&str] = &[
    // The bot's own file.
    ".github/ralph.yml",
    ".gitea/ralph.yml",
    ".forgejo/ralph.yml",
    ".ralph.yml",
    // CI of the forges.
    ".github/workflows/**",
    ".github/actions/**",
    ".github/dependabot.y*ml",
    ".gitea/workflows/**",
    ".gitea/actions/**",
    ".forgejo/workflows/**",
    ".forgejo/actions/**",
    ".gitlab-ci.y*ml",
    ".gitlab/ci/**",
    // Other CI.
    ".woodpecker*",
    ".woodpecker*/**",
    ".drone*",
    ".circleci/**",
    ".buildkite/**",
    ".tekton/**",
    "**/Jenkinsfile*",
    ".jenkins/**",
    "azure-pipelines*",
    "**/azure-pipelines*.y*ml",
    "azure-pipelines*/**",
    ".azure-pipelines*/**",
    ".azuredevops/**",
    ".pipelines/**",
    ".travis.y*ml",
    ".cirrus.*",
    "appveyor.y*ml",
    ".appveyor.y*ml",
    "bitbucket-pipelines.y*ml",
    ".semaphore/**",
    ".teamcity/**",
    "wercker.y*ml",
    "codefresh.y*ml",
    ".codefresh/**",
    "cloudbuild*.y*ml",
    "buildspec*.y*ml",
    ".build.y*ml",
    ".builds/**",
    ".zuul.*",
    ".zuul.d/**",
    ".harness/**",
    ".onedev-buildspec.y*ml",
    ".prow.y*ml",
    ".prow/**",
    ".vela.y*ml",
    "screwdriver.y*ml",
    ".crow*",
    ".crow*/**",
    "bitrise.y*ml",
    "codemagic.y*ml",
    "ci_scripts/**",
    "**/Earthfile",
    ".dagger/**",
    "dagger.json",
    // Deployments and releases.
    "netlify.toml",
    "vercel.json",
    "render.y*ml",
    ".readthedocs.y*ml",
    ".goreleaser*",
    ".releaserc*",
    "release.config.*",
    // Bots of the forges.
    ".github/*.y*ml",
    ".mergify.y*ml",
    ".mergify/**",
    "renovate.json*",
    ".github/renovate.json*",
    ".gitlab/renovate.json*",
    ".renovaterc*",
    // Code ownership.
    "CODEOWNERS",
    "*/CODEOWNERS",
    "**/OWNERS",
    "**/OWNERS_ALIASES",
    // Hooks, and what runs on a developer's machine.
    ".git-hooks/**",
    ".githooks/**",
    ".husky/**",
    ".pre-commit-*.y*ml",
    "lefthook*.*",
    ".lefthook*",
    ".lefthook*/**",
    ".overcommit.yml",
    ".simple-git-hooks.*",
    ".gitmodules",
    "**/.envrc",
    ".direnv/**",
    "**/.vscode/**",
    "**/.idea/**",
    ".run/**",
    ".fleet/**",
    ".zed/**",
    "**/.devcontainer/**",
    "**/.devcontainer.json",
    ".gitpod.*",
    ".replit",
    ".idx/**",
    // Instructions and configuration of agents.
    "**/AGENTS*.md",
    "**/AGENT.md",
    "**/.agents/**",
    "**/.agent/**",
    "**/.github/copilot-instructions.md",
    "**/.github/instructions/**",
    "**/.github/prompts/**",
    "**/.github/chatmodes/**",
    "**/.github/agents/**",
    "**/.github/skills/**",
    "**/.github/hooks/**",
    "**/.mcp.json",
    "mcp.json",
    "**/.cursor/**",
    "**/.cursorrules",
    "**/.cursor*ignore",
    "**/.windsurf/**",
    "**/.windsurfrules",
    "**/.kiro/**",
    "**/.continue/**",
    "**/.continuerules",
    "**/.roo*",
    "**/.roo*/**",
    "**/.cline*",
    "**/.cline*/**",
    "**/.kilocode*",
    "**/.kilocode*/**",
    "**/.augment*",
    "**/.augment*/**",
    "**/.amazonq/**",
    "**/.aiassistant/**",
    "**/.junie/**",
    "**/.goose*",
    "**/.goose/**",
    "**/.trae/**",
    "**/.openhands/**",
    "**/.factory/**",
    "**/.claude-plugin/**",
    "**/.codebuddy/**",
    "**/CODEBUDDY.md",
    "**/.codeium/**",
    "**/.lingma/**",
    "**/.qoder/**",
    "**/.tabnine/**",
    "**/.zencoder/**",
    "**/.crush*",
    "**/.crush/**",
    "**/CRUSH.md",
    "**/WARP.md",
    "**/.warp/**",
    "**/.copilot/**",
    "**/.amp/**",
    "**/.devin/**",
    "**/.jules/**",
    "**/.antigravity/**",
    "**/.rules",
];

/// Response to a change of a protected path, least strict first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProtectedPolicy {
    /// The change is kept, and the pull request lists it among the changes to review first.
    Allow,
    /// The change is reverted before the commit.
    #[default]
    Restore,
    /// The loop pauses and asks a person.
    Block,
}

/// Protected paths and the response to changes of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protected {
    /// Response to a change.
    pub policy: ProtectedPolicy,
    /// Globs relative to the top of the tree; `*` does not match `/`.
    pub paths: Vec<String>,
}

impl Protected {
    /// Whether changes of a path are reverted or block the loop. Also true if the patterns cannot be compiled.
    pub fn refuses(&self, path: &str) -> bool {
        let protects = || ProtectedGlobs::cached(&self.paths).map_or(true, |globs| globs.protect(path));
        self.policy != ProtectedPolicy::Allow && protects()
    }

    /// Returns the changed files that are protected; all changed files if the patterns cannot be compiled.
    pub fn touched<'a>(&self, change: &'a DiffStat) -> Vec<&'a str> {
        let globs = ProtectedGlobs::cached(&self.paths);
        let is_protected = |path: &&str| globs.as_ref().map_or(true, |globs| globs.protect(path));
        change.files.iter().map(|file| file.path.as_str()).filter(is_protected).collect()
    }
}

impl Default for Protected {
    fn default() -> Self {
        Self { policy: ProtectedPolicy::default(), paths: PROTECTED_PATHS.iter().map(|p| (*p).to_owned()).collect() }
    }
}

/// Compiled patterns of protected paths.
#[derive(Debug, Clone)]
pub struct ProtectedGlobs {
    globs: GlobSet,
    /// Index of the original pattern, for each glob.
    patterns: Vec<usize>,
}

impl ProtectedGlobs {
    /// Compiles patterns.
    ///
    /// # Errors
    /// The first invalid pattern.
    pub fn new<S: AsRef<str>>(patterns: &[S]) -> Result<Self, globset::Error> {
        let (mut set, mut made_from) = (GlobSetBuilder::new(), Vec::new());
        for (index, pattern) in patterns.iter().enumerate() {
            for pattern in with_folders(pattern.as_ref()) {
                set.add(GlobBuilder::new(&pattern).literal_separator(true).case_insensitive(true).build()?);
                made_from.push(index);
            }
        }
        Ok(Self { globs: set.build()?, patterns: made_from })
    }

    /// Returns compiled patterns like [`new`](Self::new). Those of the last call are kept: most loops have the same, and compiling them
    /// takes milliseconds.
    ///
    /// # Errors
    /// The first invalid pattern.
    pub fn cached<S: AsRef<str>>(patterns: &[S]) -> Result<Arc<Self>, globset::Error> {
        static LAST: Mutex<Option<(Vec<String>, Arc<ProtectedGlobs>)>> = Mutex::new(None);
        let patterns = || patterns.iter().map(AsRef::as_ref);
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, globs)) = last.as_ref().filter(|(compiled, _)| compiled.iter().eq(patterns())) {
            return Ok(globs.clone());
        }
        let patterns: Vec<String> = patterns().map(str::to_owned).collect();
        let globs = Arc::new(Self::new(&patterns)?);
        *last = Some((patterns, globs.clone()));
        Ok(globs)
    }

    /// Whether an entry of the tree (a file or a link, but not a folder) is protected.
    ///
    /// All NTFS short names are protected, because only the file system knows which file such a name refers to.
    pub fn protect(&self, path: &str) -> bool {
        let is_short = || !self.globs.is_empty() && path.split(['/', '\\']).any(is_short_name);
        self.globs.is_match(path) || self.globs.is_match(folded(path)) || is_short()
    }

    /// Returns the indices of the patterns that protect at least one of the paths, in order.
    pub fn that_protect<'p>(&self, paths: impl IntoIterator<Item = &'p str>) -> BTreeSet<usize> {
        let of = |path: &str| self.globs.matches(path).into_iter().chain(self.globs.matches(folded(path)));
        paths.into_iter().flat_map(of).map(|glob| self.patterns[glob]).collect()
    }
}

/// Returns the patterns that protect everything that `pattern` protects: the pattern itself, and patterns for its folder and all
/// parent folders. A link or file in the place of such a folder would replace everything below it.
fn with_folders(pattern: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::from([pattern.to_owned()]);
    all.extend(pattern.strip_suffix("/**").map(str::to_owned));
    let mut above = String::new();
    let parts: Vec<&str> = pattern.split('/').collect();
    for part in parts.iter().take(parts.len().saturating_sub(1)) {
        // A wildcard that is a whole folder would protect every link.
        if part.chars().all(|c| c == '*') {
            if *part == "**" && above.is_empty() {
                above.push_str("**/");
                continue;
            }
            break;
        }
        above.push_str(part);
        all.insert(above.clone());
        above.push('/');
    }
    all
}

/// Whether a name has the form of an NTFS short name: `VSCODE~1`, `GI7EB4~1.TXT`.
fn is_short_name(name: &str) -> bool {
    let (base, extension) = name.split_once('.').unwrap_or((name, ""));
    let Some((begin, number)) = base.rsplit_once('~') else { return false };
    let is_number = (1..=6).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number && !begin.is_empty() && base.chars().count() <= 8 && extension.chars().count() <= 3
}

/// Returns a path as seen by file systems that ignore case and some characters: in lower case, without invisible characters,
/// without dots and spaces at the end of a name, and without the name of a stream.
fn folded(path: &str) -> String {
    let part = |part: &str| {
        let visible = part.chars().filter(|c| !is_invisible(*c));
        // In this order `\u{17f}` becomes `s`, the Kelvin sign `k` and a ligature its letters, as on APFS.
        let visible: String = visible.flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect();
        let name = visible.split(':').next().unwrap_or_default();
        let trimmed = name.trim_end_matches(['.', ' ']);
        if trimmed.is_empty() { name.to_owned() } else { trimmed.to_owned() }
    };
    path.replace('\\', "/").split('/').map(part).collect::<Vec<_>>().join("/")
}

/// Returns the path in the tree that the target of a link refers to; `None` if it refers to the root or outside of the tree.
pub fn target_of(link: &str, target: &str) -> Option<String> {
    if target.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = link.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

/// Escapes a path as a pattern that matches exactly this path.
pub fn literal(path: &str) -> String {
    globset::escape(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::model::task::FileStat;

    fn protects(patterns: &[&str], path: &str) -> bool {
        ProtectedGlobs::new(patterns).unwrap().protect(path)
    }

    /// See docs/research/threats.md#g13.
    #[test]
    fn default_patterns_protect_ci_hooks_editors_and_agents() {
        let set = ProtectedGlobs::new(PROTECTED_PATHS).unwrap();
        let protected = [
            ".github/workflows/ci.yml",
            ".github/workflows/deep/ci.yml",
            ".github/workflows/README.md",
            ".github/actions/x/action.yml",
            ".github/dependabot.yml",
            ".gitea/workflows/a.yaml",
            ".forgejo/workflows/a.yaml",
            ".gitlab-ci.yml",
            ".gitlab/ci/test.yml",
            ".woodpecker.yml",
            ".woodpecker.yaml",
            ".woodpecker/test.yml",
            ".drone.yml",
            ".drone.star",
            ".drone.jsonnet",
            ".circleci/config.yml",
            ".buildkite/pipeline.yml",
            ".buildkite/hooks/pre-command",
            ".tekton/push.yaml",
            "Jenkinsfile",
            "ci/Jenkinsfile.release",
            "azure-pipelines.yml",
            "azure-pipelines-nightly.yaml",
            ".azure-pipelines/build.yml",
            ".travis.yml",
            ".cirrus.yml",
            ".cirrus.star",
            "appveyor.yml",
            ".appveyor.yml",
            "bitbucket-pipelines.yml",
            ".semaphore/semaphore.yml",
            ".teamcity/settings.kts",
            "CODEOWNERS",
            "docs/CODEOWNERS",
            ".github/CODEOWNERS",
            ".ralph.yml",
            ".github/ralph.yml",
            ".vscode/settings.json",
            ".vscode/tasks.json",
            "packages/a/.vscode/mcp.json",
            ".idea/runConfigurations/Test.xml",
            ".run/Test.run.xml",
            ".devcontainer/devcontainer.json",
            ".devcontainer.json",
            ".envrc",
            "sub/.envrc",
            ".pre-commit-config.yaml",
            ".pre-commit-hooks.yaml",
            "lefthook.yml",
            "lefthook-local.yml",
            ".lefthook.toml",
            ".lefthook/pre-commit/run.sh",
            ".husky/pre-commit",
            ".githooks/pre-push",
            ".gitmodules",
            ".github/copilot-instructions.md",
            ".github/instructions/tests.instructions.md",
            ".github/prompts/a.prompt.md",
            "AGENTS.md",
            "sub/deep/AGENTS.md",
            "AGENTS.override.md",
            ".agents/skills/x/SKILL.md",
            "packages/a/.agents/x.md",
            ".opencode/agent/x.md",
            ".kiro/steering/a.md",
            ".windsurf/rules/a.md",
            ".windsurfrules",
            ".qwen/settings.json",
            ".codex/config.toml",
            ".cursor/rules/a.mdc",
            "sub/.cursor/mcp.json",
            ".cursorrules",
            ".continue/config.yaml",
            ".roo/rules/a.md",
            ".roomodes",
            ".roorules-code",
            ".clinerules",
            ".clinerules/a.md",
            ".mcp.json",
            ".kilocode/rules/a.md",
            ".junie/guidelines.md",
            ".goosehints",
            "netlify.toml",
            "vercel.json",
            "render.yaml",
            ".readthedocs.yaml",
            ".mergify.yml",
            ".github/settings.yml",
            ".github/mergify.yml",
            "pkg/OWNERS",
            ".prow.yaml",
            "renovate.json",
            "renovate.json5",
            ".github/renovate.json",
            ".goreleaser.yaml",
            ".releaserc.json",
            "release.config.js",
            ".claude-plugin/marketplace.json",
            ".codebuddy/settings.json",
            ".qoder/rules/a.md",
            ".tabnine/guidelines/a.md",
            ".cursorignore",
            "mcp.json",
            "build/azure-pipelines.yml",
            "eng/ci/azure-pipelines-official.yaml",
            ".vela.yml",
            "screwdriver.yaml",
            ".crow.yaml",
            ".crow/test.yaml",
            "bitrise.yml",
            "codemagic.yaml",
            "ci_scripts/ci_post_clone.sh",
            "Earthfile",
            "services/a/Earthfile",
            ".dagger/main.go",
            "dagger.json",
            ".idx/dev.nix",
            ".copilot/mcp-config.json",
            "packages/a/.amp/settings.json",
            ".devin/rules/a.md",
            ".jules/setup.sh",
            ".warp/workflows/a.yaml",
            ".antigravity/rules.md",
        ];
        // Those of the presets are added by the configuration.
        let of_presets = ["**/.opencode/**", "**/.qwen/**", "**/.codex/**"];
        let presets = ProtectedGlobs::new(&of_presets).unwrap();
        for path in protected {
            assert!(set.protect(path) || presets.protect(path), "{path}");
        }
        for path in [
            "src/main.rs",
            "README.md",
            ".github/ISSUE_TEMPLATE/bug.md",
            "workflows/ci.yml",
            "docs/workflows/ci.md",
            "package.json",
            "src/agents/mod.rs",
            "src/vscode/settings.rs",
            "src/drone.rs",
            "a/b/CODEOWNERS.md",
            ".gitignore",
            ".gitattributes",
            "docs/azure-pipelines.md",
            "scripts/ci_scripts/a.sh",
            "src/dagger.json",
            "src/amp/mod.rs",
        ] {
            assert!(!set.protect(path), "{path}");
        }
    }

    /// See docs/research/threats.md#g13.
    #[test]
    fn links_in_place_of_folders_are_protected() {
        let patterns = [".github/workflows/**", "**/.cursor/**", "a/*/c/**", "*/CODEOWNERS", "**/x/y.md"];
        for link in [".github", ".github/workflows", ".cursor", "sub/.cursor", "a", "x", "deep/x", "deep/x/y.md"] {
            assert!(protects(&patterns, link), "{link}");
        }
        for other in ["docs", "a/b", "src", "sub", ".githubx", "github", "y.md"] {
            assert!(!protects(&patterns, other), "{other}");
        }
    }

    #[test]
    fn other_names_of_the_same_file_are_protected() {
        let patterns = [".github/workflows/**", "**/AGENTS.md", "CODEOWNERS"];
        for alias in [
            ".GitHub/Workflows/ci.yml",
            ".GITHUB/WORKFLOWS",
            "agents.md",
            "sub/Agents.MD",
            "codeowners",
            ".g\u{200c}ithub/workflows/ci.yml",
            ".github./workflows/ci.yml",
            ".github /workflows /ci.yml",
            "CODEOWNERS.",
            "CODEOWNERS::$DATA",
            ".github\\workflows\\ci.yml",
            "AGENTS\u{feff}.md",
            ".github/wor\u{212a}flows/ci.yml",
            ".github/workflow\u{17f}/ci.yml",
            "AGENT\u{17f}.md",
            ".github/work\u{fb02}ows/ci.yml",
            "GITHUB~1/workflows/ci.yml",
            "sub/AGENTS~1.MD",
            "gi7eb4~2",
            "CODEOW~1",
        ] {
            assert!(protects(&patterns, alias), "{alias:?}");
        }
        for other in [
            "AGENTS-md",
            "xAGENTS.md",
            "CODEOWNERS.txt",
            "...",
            ".github/x.yml",
            "notes.txt~",
            "~1",
            "a~b",
            "longername~1",
            "x.~1~",
            "page~1.html",
        ] {
            assert!(!protects(&patterns, other), "{other:?}");
        }
    }

    #[test]
    fn link_leads_to_a_path_in_the_tree() {
        for (link, target, expected) in [
            ("CLAUDE.md", "docs/notes.md", Some("docs/notes.md")),
            ("a/b", "../c", Some("c")),
            ("a/b", "./d//e", Some("a/d/e")),
            ("a", "..", None),
            ("a/b", "../../x", None),
            ("a", "/etc/passwd", None),
            ("a", ".", None),
        ] {
            assert_eq!(target_of(link, target).as_deref(), expected, "{link} -> {target}");
        }
        assert!(protects(&[&literal("a[1]*.md")], "a[1]*.md") && !protects(&[&literal("a[1]*.md")], "a1x.md"));
    }

    #[test]
    fn only_present_patterns_are_named() {
        let globs = ProtectedGlobs::new(&["CODEOWNERS", ".husky/**", "**/AGENTS.md"]).unwrap();
        let present = globs.that_protect(["src/a.rs", "docs/AGENTS.md", "CODEOWNERS"]);
        assert_eq!(present.into_iter().collect::<Vec<_>>(), [0, 2]);
        assert!(globs.that_protect([]).is_empty());
    }

    #[test]
    fn invalid_patterns_protect_everything() {
        let file = |path: &str| FileStat { path: path.into(), added: 1, removed: 0, binary: false, change: None };
        let change = DiffStat { files: vec![file("deploy/run.sh"), file("src/deploy/a.rs")] };
        let touched =
            |path: &str| Protected { paths: vec![path.into()], ..Protected::default() }.touched(&change).len();
        assert_eq!((touched("deploy/*"), touched("other/*"), touched("deploy/[")), (1, 0, 2));
    }
}
