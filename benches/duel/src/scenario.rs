//! Scenarios, repositories and contestants as data.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Contents of files by path; `None` deletes the file.
pub type Files = BTreeMap<String, Option<String>>;

/// Scripted agent on a repository.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name, the key in the file.
    #[serde(skip)]
    pub name: String,
    /// Class of behavior, the name of the file.
    #[serde(skip)]
    pub class: String,
    /// Description for the page.
    pub about: String,
    /// Name of the repository.
    pub repository: String,
    /// Best possible result of a loop.
    pub best: Best,
    /// Files added to the repository or replacing its files.
    #[serde(default)]
    pub files: Files,
    /// Check instead of the repository's check; empty to use the file `.ralph.yml`.
    pub check: Option<String>,
    /// Scripts of the calls, in order; the last one repeats.
    pub calls: Vec<Call>,
    /// Whether the calls start over after the last one.
    #[serde(default)]
    pub cycle: bool,
    /// Script for calls whose prompt has a certain property.
    pub hint: Option<Hint>,
}

/// Script for calls whose prompt has a property: it matches a pattern, or it is the third distinct prompt.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hint {
    /// Regular expression.
    pub pattern: Option<String>,
    /// Script.
    pub call: Call,
}

/// Best possible result of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Best {
    /// The task is solved, and the loop claims completion.
    Done,
    /// The loop ends without claiming completion.
    Stopped,
    /// The task is solved, and the loop asks a maintainer, because the task requires a different test result.
    Asked,
}

/// Script of one agent call. `run`, `raw`, `say` and the message of a limit may contain `{home}`, `{outside}`, `{user}` (the
/// user's repository), `{survivor}` (sleep time in seconds that identifies a process) and `{reset}` (end of the limit, Unix
/// time).
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Call {
    /// State of the repository to write; `restored` is `solved` with all other files unchanged.
    pub put: Option<String>,
    /// Replacements in files by path; each text must occur once. They start from the files of the repository, or of `put`.
    #[serde(skip_serializing)]
    pub edit: BTreeMap<String, BTreeMap<String, String>>,
    /// Files to write, from `put` and `edit`, filled in by the harness.
    pub files: Files,
    /// Shell script that the agent runs as a tool.
    pub run: Option<String>,
    /// Shell script that writes to the agent's output.
    pub raw: Option<String>,
    /// Delay before the end of the call, in seconds.
    pub sleep: f64,
    /// Last message.
    pub say: Option<String>,
    /// Whether the agent claims completion, in the form required by the contestant.
    pub claim: bool,
    /// Delay between the result and the exit, in seconds.
    pub linger: f64,
    /// Exit code.
    pub exit: u8,
    /// Whether the result line and the last message are omitted.
    pub cut: bool,
    /// Rejection by the provider.
    pub limit: Option<ScriptedLimit>,
}

/// Rejection by the provider.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedLimit {
    /// Message for the user.
    pub message: String,
    /// Response status; `None` if the program does not report it.
    pub status: Option<u16>,
    /// Kind of limit in the stream event; `None` for no event.
    pub kind: Option<String>,
    /// Seconds until the limit ends.
    #[serde(default)]
    pub resets_in: u64,
    /// End of the limit, as Unix time; filled in by the harness.
    #[serde(default)]
    pub resets_at: u64,
}

/// Small repository with a failing check.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampleRepository {
    /// Task for the agent.
    pub task: String,
    /// Command that passes once the task is solved.
    pub check: String,
    /// Files at the start.
    pub files: Files,
    /// Files that a solution changes or may add. The referee copies only these files from a result.
    pub sources: Vec<String>,
    /// Referee's files, hidden from the agent. They contain the visible test cases and further ones.
    pub hidden: Files,
    /// Referee's command, which prints `$PROOF` if all its cases pass.
    pub judge: String,
    /// States that an agent may write.
    #[serde(default)]
    pub states: BTreeMap<String, Files>,
    /// Parts of the machine needed by the commands.
    #[serde(default)]
    pub needs: Vec<Part>,
}

/// Part of the machine, and how to install it. In a file: `PROGRAM:PACKAGE`, with a Debian package.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Part {
    /// Program on the `PATH`, or a file's path.
    pub program: String,
    /// Debian package with the program.
    pub package: String,
}

impl TryFrom<String> for Part {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (program, package) = text.split_once(':').ok_or("a part is PROGRAM:PACKAGE")?;
        Ok(Self { program: program.to_owned(), package: package.to_owned() })
    }
}

/// File in `program-files/`: repositories in one language with tests in program files, and their scenarios.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LanguageFile {
    repositories: BTreeMap<String, SampleRepository>,
    scenarios: BTreeMap<String, Scenario>,
}

/// Loop with one of its settings.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contestant {
    /// Name, the key in the file.
    #[serde(skip)]
    pub name: String,
    /// Package with its version, or its source.
    pub package: String,
    /// Setting, for the page.
    pub setting: String,
    /// Reason why it cannot run here, for the page.
    pub unavailable: Option<String>,
    /// Files needed, by path from the run's folder (`repo/…` for the repository). The same placeholders as in `command`.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Shell script with `{repo}`, `{task}`, `{check}`, `{dir}`, `{peers}` and `{tools}`; `$TASK` and `$CHECK` are set as
    /// well.
    #[serde(default)]
    pub command: String,
    /// Output pattern that claims completion; exit code 0 if `None`.
    pub done: Option<String>,
    /// Output pattern whose first group is the result's branch; the work tree if `None`.
    pub branch: Option<String>,
    /// Form of an agent's completion claim.
    #[serde(default)]
    pub claim: Claim,
    /// Whether the contestant may use the host's network namespace, because it creates a separate one for the agent.
    #[serde(default)]
    pub isolates: bool,
}

/// Words and actions that claim completion.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Claim {
    /// Text at the end of the last message.
    pub say: String,
    /// Shell script.
    pub run: Option<String>,
}

/// Folder and class of the scenarios with tests in program files.
pub const PROGRAM_FILES: &str = "program-files";

/// All data of the duel.
#[derive(Debug)]
pub struct Data {
    /// Scenarios, sorted by file and then by name.
    pub scenarios: Vec<Scenario>,
    /// Repositories by name.
    pub repositories: BTreeMap<String, SampleRepository>,
}

/// Folder of this package.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Reads a YAML file.
pub fn read<T: DeserializeOwned>(file: &Path) -> anyhow::Result<T> {
    let text = fs::read_to_string(file).with_context(|| format!("could not read {}", file.display()))?;
    serde_saphyr::from_str(&text).with_context(|| format!("could not parse {}", file.display()))
}

impl Data {
    /// Reads scenarios and repositories, and verifies their consistency.
    pub fn load() -> anyhow::Result<Self> {
        let mut repositories: BTreeMap<String, SampleRepository> = read(&folder().join("repositories.yml"))?;
        let mut scenarios: Vec<Scenario> = Vec::new();
        let mut add = |class: &str, read: BTreeMap<String, Scenario>| {
            scenarios.extend(read.into_iter().map(|(name, s)| Scenario { name, class: class.to_owned(), ..s }));
        };
        for file in files("scenarios")? {
            let class = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            add(&class, read(&file)?);
        }
        for file in files(PROGRAM_FILES)? {
            let language: LanguageFile = read(&file)?;
            repositories.extend(language.repositories);
            add(PROGRAM_FILES, language.scenarios);
        }
        for repository in repositories.values_mut() {
            if let Some(solved) = repository.states.get("solved") {
                let restored = repository.files.clone().into_iter().chain(solved.clone()).collect();
                repository.states.insert("restored".into(), restored);
            }
        }
        for scenario in &mut scenarios {
            let name = &scenario.name;
            let found = repositories.get(&scenario.repository);
            let repository = found.with_context(|| format!("{name}: no repository `{}`", scenario.repository))?;
            ensure!(!scenario.calls.is_empty(), "{name}: no calls");
            let start: Files = repository.files.clone().into_iter().chain(scenario.files.clone()).collect();
            for call in scenario.calls.iter_mut().chain(scenario.hint.iter_mut().map(|hint| &mut hint.call)) {
                if let Some(state) = &call.put {
                    let files = repository.states.get(state).with_context(|| format!("{name}: no state `{state}`"))?;
                    call.files.extend(files.clone());
                }
                call.apply_edits(&start).with_context(|| name.clone())?;
            }
        }
        Ok(Self { scenarios, repositories })
    }
}

impl Call {
    /// Adds the files that result from the replacements.
    fn apply_edits(&mut self, start: &Files) -> anyhow::Result<()> {
        for (path, replacements) in &self.edit {
            let before = self.files.get(path).or_else(|| start.get(path)).cloned().flatten();
            let mut text = before.with_context(|| format!("no file {path}"))?;
            for (old, new) in replacements {
                let count = text.matches(old.as_str()).count();
                ensure!(count == 1, "{path} contains {count} times: {old}");
                text = text.replace(old.as_str(), new);
            }
            self.files.insert(path.clone(), Some(text));
        }
        Ok(())
    }
}

/// Returns the files of a folder of this package, sorted by name.
fn files(name: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder().join(name))?.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<_>>()?;
    files.sort();
    Ok(files)
}

/// Reads contestants from a file.
pub fn contestants(file: &str) -> anyhow::Result<Vec<Contestant>> {
    let read: BTreeMap<String, Contestant> = read(&folder().join(file))?;
    Ok(read.into_iter().map(|(name, contestant)| Contestant { name, ..contestant }).collect())
}

#[test]
fn replaced_text_must_occur_once() {
    let start = Files::from([("a".to_owned(), Some("x y y".to_owned()))]);
    let edited = |old: &str| {
        let replacements = BTreeMap::from([(old.to_owned(), "z".to_owned())]);
        let mut call = Call { edit: BTreeMap::from([("a".to_owned(), replacements)]), ..Call::default() };
        call.apply_edits(&start).map(|()| call.files["a"].clone().unwrap_or_default())
    };
    assert_eq!(edited("x").ok().as_deref(), Some("z y y"));
    assert!(edited("y").is_err() && edited("w").is_err());
}
