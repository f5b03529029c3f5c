//! Warns about workflows that run automatically on the branches of loops and have access to secrets. They execute an
//! agent's code outside the sandbox.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::finding::{CheckFinding, refused};
use crate::domain::model::ids::ForgeName;
use crate::forge::{Forge, ForgeResult, Repository, TextFile};

/// Events that start workflows with secrets, for branches and pull requests of the same repository.
const EVENTS: [&str; 4] = ["push", "create", "pull_request", "pull_request_target"];
/// Names of the token that each workflow run gets; `permissions` limits its rights.
const OWN_TOKENS: [&str; 3] = ["GITHUB_TOKEN", "GITEA_TOKEN", "FORGEJO_TOKEN"];

/// Pattern of references to one secret or to all of them.
static SECRET: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r#"\bsecrets\s*(?:\.\s*([A-Za-z_][A-Za-z0-9_-]*)|\[\s*\\?['"]([^'"\\]+)|[,)])"#;
    Regex::new(pattern).expect("the pattern is constant and good")
});

/// Secrets that a workflow exposes to the branches of loops.
#[derive(Debug, PartialEq, Eq)]
struct ExposedSecrets {
    /// Path of the workflow file.
    path: String,
    /// Events in `EVENTS` that start the workflow.
    events: Vec<&'static str>,
    /// Names of secrets, and descriptions of write access.
    gives: BTreeSet<String>,
}

/// Checks the workflows of repositories. Returns one finding per exposed secret, or a single one if there are none.
pub(super) async fn look(
    forge: &ForgeName,
    adapter: &dyn Forge,
    watched: &[&Repository],
    branch_prefix: &str,
) -> Vec<CheckFinding> {
    let mut findings = Vec::new();
    for repository in watched {
        let name = format!("CI of {}", repository.repo.full_name());
        match workflows(adapter, repository).await {
            Ok(files) => findings.extend(files.iter().filter_map(|file| judge(&name, file, branch_prefix))),
            Err(error) => findings.push(refused(name, &error)),
        }
    }
    if findings.is_empty() {
        let detail =
            format!("no workflow in {} repositories has secrets on branches `{branch_prefix}…`", watched.len());
        findings.push(CheckFinding::ok(format!("CI of {forge}"), detail));
    }
    findings
}

/// Reads the workflows that the forge runs: those in the first of its workflow folders that contains any.
async fn workflows(adapter: &dyn Forge, repository: &Repository) -> ForgeResult<Vec<TextFile>> {
    let product = adapter.server_info().await?.product;
    let Some(repository_files) = adapter.files() else { return Ok(Vec::new()) };
    let folders: &[&str] = match product.split(' ').next() {
        Some("Gitea") => &[".gitea/workflows", ".github/workflows"],
        Some("Forgejo") => &[".forgejo/workflows", ".gitea/workflows", ".github/workflows"],
        _ => &[".github/workflows"],
    };
    for folder in folders {
        let is_workflow = |path: &str| [".yml", ".yaml"].iter().any(|end| path.ends_with(end));
        let files = repository_files.folder_files(&repository.repo, folder, is_workflow).await?;
        if !files.is_empty() {
            return Ok(files);
        }
    }
    Ok(Vec::new())
}

fn judge(name: &str, file: &TextFile, branch_prefix: &str) -> Option<CheckFinding> {
    let exposed = match exposed(file, branch_prefix) {
        Ok(exposed) => exposed?,
        Err(why) => {
            let detail = format!("could not parse {}: {why}", file.path);
            let fix = format!("make sure that it has no secrets on branches `{branch_prefix}…`");
            return Some(CheckFinding::warn(name, detail, fix));
        }
    };
    let gives: Vec<String> = exposed.gives.into_iter().collect();
    let detail = format!(
        "{} runs on {} of branches `{branch_prefix}…` with {}; code of an agent could read it",
        exposed.path,
        exposed.events.join(" and "),
        gives.join(", "),
    );
    let mut fixes = Vec::new();
    if exposed.events.contains(&"push") {
        fixes.push(format!("exclude the branches under `push` (`branches-ignore: ['{branch_prefix}**']`)"));
    }
    if exposed.events.iter().any(|event| *event != "push") {
        fixes.push(format!(
            "add to its jobs `if: ${{{{ !startsWith(github.head_ref || github.ref_name, '{branch_prefix}') }}}}`"
        ));
    }
    let fix = format!("{}; move checks without secrets to a workflow of their own", fixes.join(" and "));
    Some(CheckFinding::warn(name, detail, fix))
}

/// Returns the secrets that a workflow exposes to branches of loops; `None` if there are none. The error is a sentence.
fn exposed(file: &TextFile, branch_prefix: &str) -> Result<Option<ExposedSecrets>, String> {
    let workflow: Value = serde_saphyr::from_str(&file.text).map_err(|error| {
        let said = error.to_string();
        said.lines().next().unwrap_or_default().to_owned()
    })?;
    // YAML 1.1 parsers read the key `on` as `true`.
    let triggers = workflow.get("on").or_else(|| workflow.get("true")).unwrap_or(&Value::Null);
    let branch = format!("{branch_prefix}1-a");
    let events: Vec<&str> = EVENTS.into_iter().filter(|event| starts(triggers, event, &branch)).collect();
    let mut gives = BTreeSet::new();
    // Variables outside of jobs apply to all of them.
    let common = workflow.get("env").map(Value::to_string).unwrap_or_default();
    for job in workflow.get("jobs").and_then(Value::as_object).into_iter().flat_map(|jobs| jobs.values()) {
        let condition = job.get("if").map(Value::to_string).unwrap_or_default();
        if !branch_prefix.is_empty() && condition.contains(branch_prefix) {
            // The job already distinguishes these branches.
            continue;
        }
        gives.extend(secrets(&common));
        gives.extend(secrets(&job.to_string()));
        if job.get("secrets").and_then(Value::as_str) == Some("inherit") {
            gives.insert("all secrets".to_owned());
        }
        let rights = job.get("permissions").or_else(|| workflow.get("permissions"));
        gives.extend(rights.and_then(writes).map(|what| format!("a token with write access ({what})")));
    }
    let nothing = events.is_empty() || gives.is_empty();
    Ok((!nothing).then(|| ExposedSecrets { path: file.path.clone(), events, gives }))
}

/// Returns the names of the secrets in a text.
fn secrets(text: &str) -> impl Iterator<Item = String> {
    SECRET.captures_iter(text).filter_map(|found| match found.get(1).or_else(|| found.get(2)) {
        Some(name) if OWN_TOKENS.iter().any(|own| own.eq_ignore_ascii_case(name.as_str())) => None,
        Some(name) => Some(name.as_str().to_owned()),
        None => Some("all secrets".to_owned()),
    })
}

/// Returns the permission scopes with write access; `None` if there are none.
fn writes(permissions: &Value) -> Option<String> {
    match permissions {
        Value::String(all) => (all == "write-all").then(|| "everything".to_owned()),
        Value::Object(each) => {
            let named =
                each.iter().filter(|(_, access)| access.as_str() == Some("write")).map(|(name, _)| name.as_str());
            let named = named.collect::<Vec<_>>().join(", ");
            (!named.is_empty()).then_some(named)
        }
        _ => None,
    }
}

/// Whether an event on a branch starts a workflow with these triggers.
fn starts(triggers: &Value, event: &str, branch: &str) -> bool {
    match triggers {
        Value::String(one) => one == event,
        Value::Array(some) => some.iter().any(|one| one == event),
        Value::Object(each) => match each.get(event) {
            None => false,
            Some(filter) if event == "push" => includes(filter, branch),
            // Other filters concern the target branch or paths.
            Some(_) => true,
        },
        _ => false,
    }
}

/// Whether the filter of `push` includes a branch.
fn includes(filter: &Value, branch: &str) -> bool {
    let list = |key: &str| -> Option<Vec<&str>> {
        match filter.get(key)? {
            Value::String(one) => Some(vec![one]),
            Value::Array(some) => Some(some.iter().filter_map(Value::as_str).collect()),
            _ => None,
        }
    };
    if let Some(patterns) = list("branches") {
        // The last match decides.
        return patterns.iter().fold(false, |included, pattern| match pattern.strip_prefix('!') {
            Some(without) => included && !pattern_matches(without, branch),
            None => included || pattern_matches(pattern, branch),
        });
    }
    if let Some(patterns) = list("branches-ignore") {
        return !patterns.iter().any(|pattern| pattern_matches(pattern, branch));
    }
    // A filter with only tags excludes all branches.
    ["tags", "tags-ignore"].iter().all(|key| filter.get(key).is_none())
}

/// Whether a pattern matches a branch; an invalid pattern counts as a match.
fn pattern_matches(pattern: &str, branch: &str) -> bool {
    let glob = globset::GlobBuilder::new(pattern).literal_separator(true).build();
    glob.map_or(true, |glob| glob.compile_matcher().is_match(branch))
}
