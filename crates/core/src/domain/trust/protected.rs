//! Protected paths, which agents must not change unless people name them: dot-files and dot-folders at the top of a repository, and
//! known files of CI, code owners, hooks, agents and editors.
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

/// Globs of the paths that are protected by default, relative to the root of the tree. The configuration adds the paths of each agent
/// preset.
pub const PROTECTED_PATHS: &[&str] = &[
    // What tools read at the top: CI, hooks, editors, agents, package managers, bots.
    ".*/**",
    // The same below the top, where tools search for it.
    "**/.{agent*,aider*,aiassistant,amazonq,amp,antigravity,augment*,claude*,cline*,codebuddy,codeium,continue*,copilot,crush*,cursor*,devin,factory,goose*,jules,junie,kilocode*,kiro,lingma,openhands,qoder,roo*,rules,tabnine,trae,warp,windsurf*,zencoder}/**",
    "**/.{cargo,devcontainer*,direnv,envrc,github,idea,mcp.json,mise*,mvn,npmrc,pnpmfile*,vs,vscode,yarn,yarnrc*}/**",
    // Instructions and settings of agents, tools and editors without a dot.
    "**/{AGENTS*,AGENT,CLAUDE,CLAUDE.*,GEMINI,QWEN,CODEBUDDY,CRUSH,WARP}.md",
    "**/{mise,mise.*}.toml",
    "**/*.code-workspace",
    "{mcp,dagger,vercel,renovate}.json*",
    "lefthook*.*",
    // CI, deployments and releases.
    "**/{Jenkinsfile*,Earthfile}",
    "azure-pipelines*/**",
    "**/azure-pipelines*.y*ml",
    "{appveyor,bitbucket-pipelines,bitrise,buildspec*,cloudbuild*,codefresh,codemagic,render,screwdriver,wercker}.y*ml",
    "ci_scripts/**",
    "netlify.toml",
    "release.config.*",
    // Code ownership.
    "CODEOWNERS",
    "*/CODEOWNERS",
    "**/{OWNERS,OWNERS_ALIASES}",
];
/// Files of the bot, which stay protected if people name them.
const OWN_FILES: [&str; 4] = [".ralph.yml", ".github/ralph.yml", ".gitea/ralph.yml", ".forgejo/ralph.yml"];
/// Maximum number of paths that are reported one by one.
const MOST_REPORTED: usize = 20;

/// Paths that people named in the issue or in a request, which the loop may change although they are protected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamedPaths(BTreeSet<String>);

impl NamedPaths {
    /// Finds the words of texts that have the form of a path: of a file, or of a folder with a slash at the end.
    pub fn of<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        let is_border = |c: char| c.is_whitespace() || "`'\"()[]<>{},;|*!".contains(c);
        let words = texts.into_iter().flat_map(|text| text.split(is_border));
        let paths = words.map(|word| word.trim_end_matches(['.', ':', '?']).trim_start_matches("./"));
        Self(paths.filter(|path| path.contains(['.', '/'])).map(str::to_owned).collect())
    }

    /// Adds exact paths.
    pub fn with(mut self, paths: impl IntoIterator<Item = String>) -> Self {
        self.0.extend(paths);
        self
    }

    /// Whether people named this file or a folder that contains it. Names of the bot's own files do not count.
    pub fn name(&self, path: &str) -> bool {
        let mut folders = path.match_indices('/').map(|(at, slash)| &path[..at + slash.len()]);
        !OWN_FILES.contains(&folded(path).as_str())
            && (self.0.contains(path) || folders.any(|folder| self.0.contains(folder)))
    }
}

/// Returns the paths for a report. Many paths in one top-level folder are joined.
pub fn reported(paths: Vec<String>) -> Vec<String> {
    if paths.len() <= MOST_REPORTED {
        return paths;
    }
    let joined = paths.iter().map(|path| path.split_once('/').map_or(path.clone(), |(top, _)| format!("{top}/**")));
    joined.collect::<BTreeSet<_>>().into_iter().take(MOST_REPORTED).collect()
}

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

    /// Returns compiled patterns like [`new`](Self::new). The patterns of the last call are cached: most loops have the same, and compiling them
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
            // Dot-files and dot-folders at the top.
            ".github",
            ".github/workflows/deep/ci.yml",
            ".gitlab-ci.yml",
            ".ralph.yml",
            ".gitmodules",
            ".gitignore",
            ".vs/tasks.vs.json",
            ".yarnrc.yml",
            ".npmrc",
            ".mvn/extensions.xml",
            ".cargo/config.toml",
            ".coderabbit.yaml",
            ".of_tomorrow/hooks/run.sh",
            // Known names at the top.
            "mise.toml",
            "app.code-workspace",
            "CLAUDE.local.md",
            "AGENTS.override.md",
            "mcp.json",
            "dagger.json",
            "renovate.json5",
            "vercel.json",
            "netlify.toml",
            "render.yaml",
            "release.config.js",
            "lefthook-local.yml",
            "Jenkinsfile",
            "azure-pipelines-nightly.yaml",
            "azure-pipelines/a.sh",
            "appveyor.yml",
            "bitbucket-pipelines.yml",
            "screwdriver.yaml",
            "bitrise.yml",
            "codemagic.yaml",
            "cloudbuild-test.yaml",
            "ci_scripts/ci_post_clone.sh",
            "Earthfile",
            "CODEOWNERS",
            // Below.
            "docs/CODEOWNERS",
            "pkg/OWNERS",
            "ci/Jenkinsfile.release",
            "eng/ci/azure-pipelines-official.yaml",
            "services/a/Earthfile",
            "packages/a/.vscode/mcp.json",
            "packages/a/.vs/tasks.vs.json",
            "packages/a/.npmrc",
            "packages/a/.cargo/config.toml",
            "packages/a/mise.local.toml",
            "packages/a/.github/copilot-instructions.md",
            "sub/.envrc",
            "sub/.idea/runConfigurations/Test.xml",
            "sub/.devcontainer.json",
            "sub/deep/AGENTS.md",
            "sub/.cursor/mcp.json",
            "sub/.cursorrules",
            "sub/.clinerules/a.md",
            "sub/.claude/settings.json",
            "sub/.agents/x.md",
            "sub/.rules",
            "packages/a/.amp/settings.json",
            "sub/.qwen/settings.json",
        ];
        // The configuration adds the patterns of the presets.
        let of_presets = ["**/.opencode/**", "**/.qwen/**", "**/.codex/**"];
        let presets = ProtectedGlobs::new(&of_presets).unwrap();
        for path in protected {
            assert!(set.protect(path) || presets.protect(path), "{path}");
        }
        for path in [
            "src/main.rs",
            "README.md",
            "workflows/ci.yml",
            "docs/workflows/ci.md",
            "package.json",
            "src/agents/mod.rs",
            "src/vscode/settings.rs",
            "src/drone.rs",
            "a/b/CODEOWNERS.md",
            "sub/.gitignore",
            "sub/.editorconfig",
            "tests/fixtures/.env",
            "docs/azure-pipelines.md",
            "scripts/ci_scripts/a.sh",
            "src/dagger.json",
            "src/amp/mod.rs",
        ] {
            assert!(!set.protect(path), "{path}");
        }
    }

    #[test]
    fn named_files_and_folders_may_change() {
        let named = NamedPaths::of([
            "Add `.editorconfig`, ./.vscode/settings.json and (.github/ISSUE_TEMPLATE/).",
            "Fix .npmrc: it",
        ]);
        let and_own = NamedPaths::of([".ralph.yml and .github/ and .vscode, github"]);
        for path in [".editorconfig", ".vscode/settings.json", ".github/ISSUE_TEMPLATE/bug.md", ".npmrc"] {
            assert!(named.name(path), "{path}");
        }
        for path in [".vscode/tasks.json", ".github/workflows/ci.yml", ".github", "sub/.npmrc", "npmrc"] {
            assert!(!named.name(path), "{path}");
        }
        assert!(and_own.name(".github/workflows/ci.yml") && !and_own.name(".vscode/tasks.json"));
        for own in [".ralph.yml", ".Ralph.yml", ".github/ralph.yml"] {
            assert!(!and_own.name(own), "{own}");
        }
    }

    #[test]
    fn many_paths_are_reported_by_their_folder() {
        let few = vec![".npmrc".to_owned(), ".venv/a".to_owned()];
        assert_eq!(reported(few.clone()), few);
        let many = (0..1_000).map(|n| format!(".venv/lib/{n}")).chain(few).collect();
        assert_eq!(reported(many), [".npmrc", ".venv/**"]);
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
    fn link_target_is_resolved_within_the_tree() {
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
