//! Table of the coding agents that are known by name. To add one, write a file with a `PRESET` and add a row to
//! `PRESETS`. Allowed names, output formats, protected paths, advice of `ralph-bot check` and the configuration
//! reference are derived from it.

mod aider;
mod claude;
mod codex;
mod gemini;
mod kimi;
mod opencode;
mod qwen;

use super::preset::{AgentPreset, AgentProgram, OutputReader, UsageReport};
use super::{jsonl, script};

/// All presets, in the order in which they are listed.
const PRESETS: &[&AgentPreset] = &[
    &claude::PRESET,
    &codex::PRESET,
    &gemini::PRESET,
    &opencode::PRESET,
    &kimi::PRESET,
    &aider::PRESET,
    &qwen::PRESET,
];

/// Placeholders for lists of preset names in descriptions of configuration keys, each with the filter that selects the
/// presets.
const NAME_LISTS: [(&str, fn(&AgentPreset) -> bool); 5] = [
    ("{presets}", |_| true),
    ("{presets_with_sessions}", |preset| !preset.sessions.is_empty()),
    ("{presets_with_usage_during_run}", |preset| preset.reports_usage_during_run),
    ("{presets_with_usage_at_end}", |preset| !preset.reports_usage_during_run),
    ("{presets_with_context_window}", |preset| preset.reports_context_window),
];

/// Returns the preset with this name.
pub(super) fn find(name: &str) -> Option<&'static AgentPreset> {
    PRESETS.iter().copied().find(|preset| preset.name == name)
}

/// Returns the readers of all output formats.
#[cfg(any(test, fuzzing, feature = "testing"))]
pub(super) fn readers() -> impl Iterator<Item = fn() -> Box<dyn OutputReader>> {
    PRESETS.iter().map(|preset| preset.reader).chain([jsonl::reader as fn() -> _])
}

/// Whether there is a preset with this name.
pub fn is_known(name: &str) -> bool {
    find(name).is_some()
}

/// Returns the hosts of the preset's models, with the host of its API first. Empty for an unknown name.
pub fn model_hosts(name: &str) -> &'static [&'static str] {
    find(name).map_or(&[], |preset| preset.model_hosts)
}

/// Whether the preset with this name runs models of any vendor.
pub fn is_of_any_vendor(name: &str) -> bool {
    find(name).is_some_and(|preset| preset.any_vendor)
}

/// Returns the names of all presets.
pub fn names() -> Vec<&'static str> {
    PRESETS.iter().map(|preset| preset.name).collect()
}

/// Returns the program of the preset with this name.
pub fn program(name: &str) -> Option<&'static AgentProgram> {
    find(name)?.program.as_ref()
}

/// Returns the path of the login file of the preset with this name, relative to a home.
pub fn login_file(name: &str) -> Option<&'static str> {
    program(name)?.login_file
}

/// Returns the usage that runs of the preset with this name report. Includes the model if session files name it.
pub fn usage(name: &str) -> Option<UsageReport> {
    let preset = find(name)?;
    let names_model = preset.usage == UsageReport::Tokens && preset.model.is_some();
    Some(if names_model { UsageReport::TokensAndModel } else { preset.usage })
}

/// Returns the environment variables from which the preset with this name reads credentials and addresses.
pub fn variables(name: &str) -> Vec<&'static str> {
    let Some(preset) = find(name) else { return Vec::new() };
    let of_keys = preset.keys.iter().flat_map(|key| key.keys.iter().chain(key.addresses));
    let of_login = preset.program.iter().flat_map(|program| program.login_variables);
    let mut variables: Vec<_> = of_keys.chain(of_login).copied().collect();
    variables.sort_unstable();
    variables.dedup();
    variables
}

/// Returns globs of the files in a repository that configure or instruct any of the agents.
pub fn protected_paths() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().flat_map(|preset| preset.protected_paths).copied()
}

/// Replaces placeholders such as `{presets}` with lists of names ("claude, codex and gemini").
pub fn fill_in_names(text: &str) -> String {
    NAME_LISTS.iter().fold(text.to_owned(), |text, (placeholder, belongs)| {
        let names: Vec<_> = PRESETS.iter().filter(|preset| belongs(preset)).map(|preset| preset.name).collect();
        text.replace(placeholder, &listed(&names))
    })
}

fn listed(names: &[&str]) -> String {
    match names {
        [before @ .., last] if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        names => names.concat(),
    }
}

/// Format in which the output of a command can be read.
#[derive(Debug, Clone, Copy)]
pub struct OutputFormat {
    name: &'static str,
    reader: fn() -> Box<dyn OutputReader>,
    usage: UsageReport,
}

impl OutputFormat {
    /// JSON Lines, in which fields with common names are recognized.
    const JSON_LINES: Self = Self { name: "jsonl", reader: jsonl::reader, usage: UsageReport::Tokens };
    /// Plain text; a run succeeds if the exit code is 0 and there is any output.
    const TEXT: Self = Self { name: "text", reader: script::text_reader, usage: UsageReport::Nothing };

    /// Returns all formats: first the presets' formats, then the generic ones.
    pub fn all() -> impl Iterator<Item = Self> {
        let of_preset = |preset: &&AgentPreset| Self { name: preset.name, reader: preset.reader, usage: preset.usage };
        let of_presets = PRESETS.iter().filter(|preset| preset.is_output_format).map(of_preset);
        of_presets.chain([Self::JSON_LINES, Self::TEXT])
    }

    /// Returns the format with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|format| format.name == name)
    }

    /// Name in the configuration.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Returns the usage that output in this format reports.
    pub fn usage(self) -> UsageReport {
        self.usage
    }

    /// Creates a reader for the output of one run.
    pub(super) fn reader(self) -> Box<dyn OutputReader> {
        (self.reader)()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preset_names_are_unique_and_have_programs() {
        let mut unique = names();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), PRESETS.len());
        for preset in PRESETS {
            let program = preset.program.as_ref().unwrap_or_else(|| panic!("{} has no program", preset.name));
            assert!(!program.login_advice.ends_with('.') && !program.login_advice.is_empty(), "{}", preset.name);
            assert!(!program.login_variables.is_empty() && preset.version.is_some(), "{}", preset.name);
            assert!(!preset.is_output_format || OutputFormat::named(preset.name).is_some(), "{}", preset.name);
        }
    }

    /// See docs/research/threats.md#g13.
    #[test]
    fn configuration_of_agents_is_protected() {
        let paths: Vec<_> = protected_paths().collect();
        for path in ["**/CLAUDE.md", "**/.claude/**", "**/.codex/**", "**/GEMINI.md", ".aider*"] {
            assert!(paths.contains(&path), "{path}");
        }
    }

    #[test]
    fn placeholders_are_replaced_by_lists_of_names() {
        assert_eq!(listed(&["one", "two", "three"]), "one, two and three");
        assert_eq!(listed(&["one"]), "one");
        let context_fill = fill_in_names("{presets} | {presets_with_context_window} | {model}");
        assert!(
            context_fill.starts_with("claude, codex") && context_fill.ends_with(" | claude and codex | {model}"),
            "{context_fill}"
        );
        for (placeholder, _) in NAME_LISTS {
            assert!(!fill_in_names(placeholder).is_empty(), "{placeholder}");
        }
    }
}
