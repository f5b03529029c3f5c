//! Recognition of changes to the program, both code and data that the program reads. Such changes can explain changes of tests.
//! Changes of comments, blank lines and layout do not count.

use super::blocks::{TestFile, TestLine};
use super::config_files::{is_check_config, is_check_script};
use super::diff::{FileDiff, LineChange};
use super::language::Language;
use super::marks::is_test_data;
use super::statements::{normal, without_comment};

// Files of other languages and formats that a program consists of or reads.
pattern!(
    DATA,
    r"(?i)\.(?:cs|fs|vb|swift|exs?|eex|heex|leex|[eh]rl|hs|clj[cs]?|dart|lua|jl|p[lm]|mli?|nim|zig|proto|graphqls?|sql|html?|css|s[ac]ss|less|erb|haml|slim|jinja2?|j2|hbs|ejs|twig|mustache|tmpl|gohtml|jsonc?|json5|ndjson|ya?ml|xml|xsd|xslt?|po|ftl|resx|strings|xliff?|arb|properties|csv|tsv|mm?|sol|s|f90|elm|cr|v|vhdl|cu|wgsl|glsl|r)$|(?:^|/)(?:templates?|locales?|i18n|l10n|data|translations)/.*\.\w+$"
);
// Manifests, locks, containers, pipelines and settings of tools, which no expected value of a test follows.
pattern!(
    NO_DATA,
    r"(?i)(?:^|/)\.[^/]+(?:/|$)|(?:^|/)(?:package|composer|deno|tsconfig|jsconfig|turbo|nx|lerna|angular|project|renovate|manifest|global|launch|settings|tslint)[\w.-]*\.jsonc?$|(?:^|/)(?:[\w-]+[.-])?locks?\.(?:json|ya?ml)$|(?:^|/)(?:docker-)?compose[\w.-]*\.ya?ml$|(?:^|/)(?:mkdocs|_config|pnpm-\w+|Taskfile\w*|action|lefthook|cloudbuild|skaffold|Chart|build|pom|gradle)[\w.-]*\.(?:ya?ml|xml|properties)$|(?:^|/)(?:docs?|\.?ci|k8s|deploy|charts?)/"
);

/// Whether a file in a known language changes a statement of the program outside of tests.
pub(super) fn changes(file: &TestFile<'_>) -> bool {
    if file.is_test || is_test_data(file.file.path()) {
        return false;
    }
    let mut docstring = vec![false; file.lines.len()];
    if file.language == Language::Python {
        mark_docstrings(&file.lines, &mut docstring);
    }
    let code = |change: LineChange| {
        let lines = file.lines.iter().zip(&docstring).filter(move |(line, docstring)| {
            line.change == change && !line.in_test_module && !**docstring && !file.language.is_comment(line.text)
        });
        joined(lines.map(|(line, _)| line.text))
    };
    code(LineChange::Removed) != code(LineChange::Added)
}

/// Whether a file in another language or format changes what the program does or reads.
pub(super) fn changes_data(file: &FileDiff) -> bool {
    let path = file.path();
    let known = Language::of(path).is_none() && DATA.is_match(path) && !NO_DATA.is_match(path);
    if !known || file.paths().any(|path| is_test_data(path) || is_check_config(path) || is_check_script(path)) {
        return false;
    }
    const COMMENTS: [&str; 7] = ["#", "//", "--", "<!--", "/*", "* ", ";"];
    let data = |change| {
        joined(file.lines(change).filter(|line| !COMMENTS.iter().any(|mark| line.trim_start().starts_with(mark))))
    };
    data(LineChange::Removed) != data(LineChange::Added)
}

/// Joins lines without their layout.
fn joined<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let text: Vec<&str> = lines.map(without_comment).filter(|line| !line.is_empty()).collect();
    normal(&text.join(" ")).replace([';', '`'], "")
}

/// Marks the lines of Python docstrings.
fn mark_docstrings(lines: &[TestLine<'_>], docstring: &mut [bool]) {
    pattern!(OPENS, r#"^\s*[rRuU]?(?:"""|''')"#);
    let mut inside = false;
    for (at, line) in lines.iter().enumerate() {
        let opens = OPENS.is_match(line.text);
        inside = if line.in_text { inside } else { opens };
        docstring[at] = inside && (line.in_text || opens);
    }
}
