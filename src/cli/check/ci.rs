//! What `check` finds out about CI that runs by itself on the branches of loops: what an agent wrote runs there, outside of
//! the sandbox, with what the workflow was given.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::Finding;
use super::service::refused;
use crate::domain::model::ids::ForgeName;
use crate::forge::{Forge, ForgeResult, Repository, TextFile};

/// Events by which a branch of the same repository, or a pull request from it, starts a workflow that has secrets.
const EVENTS: [&str; 4] = ["push", "create", "pull_request", "pull_request_target"];
/// Names of the token that each run has, whose rights are a matter of `permissions`.
const OWN_TOKENS: [&str; 3] = ["GITHUB_TOKEN", "GITEA_TOKEN", "FORGEJO_TOKEN"];

/// How a workflow names a secret, or all of them.
static SECRET: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r#"\bsecrets\s*(?:\.\s*([A-Za-z_][A-Za-z0-9_-]*)|\[\s*\\?['"]([^'"\\]+)|[,)])"#;
    Regex::new(pattern).expect("the pattern is constant and good")
});

/// What a workflow gives to the branches of loops.
#[derive(Debug, PartialEq, Eq)]
struct Exposed {
    /// Its file.
    path: String,
    /// Which of `EVENTS` start it.
    events: Vec<&'static str>,
    /// What it gives: names of secrets, or words for a token that may write.
    gives: BTreeSet<String>,
}

/// Reads the workflows of the repositories; a finding for each that gives something away, or one for all.
pub(super) async fn look(
    forge: &ForgeName,
    adapter: &dyn Forge,
    watched: &[&Repository],
    branch_prefix: &str,
) -> Vec<Finding> {
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
            format!("no workflow of {} repositories has secrets on branches `{branch_prefix}…`", watched.len());
        findings.push(Finding::ok(format!("CI of {forge}"), detail));
    }
    findings
}

/// The workflows that the forge would run: those in the first folder that it knows and that has any.
async fn workflows(adapter: &dyn Forge, repository: &Repository) -> ForgeResult<Vec<TextFile>> {
    let product = adapter.server_info().await?.product;
    let Some(repository_files) = adapter.files() else { return Ok(Vec::new()) };
    let folders: &[&str] = match product.split(' ').next() {
        Some("Gitea") => &[".gitea/workflows", ".github/workflows"],
        Some("Forgejo") => &[".forgejo/workflows", ".gitea/workflows", ".github/workflows"],
        _ => &[".github/workflows"],
    };
    for folder in folders {
        let mut files = repository_files.folder_files(&repository.repo, folder).await?;
        files.retain(|file| [".yml", ".yaml"].iter().any(|end| file.path.ends_with(end)));
        if !files.is_empty() {
            return Ok(files);
        }
    }
    Ok(Vec::new())
}

fn judge(name: &str, file: &TextFile, branch_prefix: &str) -> Option<Finding> {
    let exposed = match exposed(file, branch_prefix) {
        Ok(exposed) => exposed?,
        Err(why) => {
            let detail = format!("{} is not understood: {why}", file.path);
            let fix = format!("see for yourself that it gives no secrets to branches `{branch_prefix}…`");
            return Some(Finding::warn(name, detail, fix));
        }
    };
    let gives: Vec<String> = exposed.gives.into_iter().collect();
    let detail = format!(
        "{} runs by itself on {} of branches `{branch_prefix}…` and has {}: what an agent wrote could take it",
        exposed.path,
        exposed.events.join(" and "),
        gives.join(", "),
    );
    let mut fixes = Vec::new();
    if exposed.events.contains(&"push") {
        fixes.push(format!("leave them out under `push` (`branches-ignore: ['{branch_prefix}**']`)"));
    }
    if exposed.events.iter().any(|event| *event != "push") {
        fixes.push(format!(
            "give its jobs `if: ${{{{ !startsWith(github.head_ref || github.ref_name, '{branch_prefix}') }}}}`"
        ));
    }
    let fix = format!("{}; checks that need no secrets can have a workflow of their own", fixes.join(" and "));
    Some(Finding::warn(name, detail, fix))
}

/// What a workflow gives to branches of loops; `None` where nothing. The error is a sentence.
fn exposed(file: &TextFile, branch_prefix: &str) -> Result<Option<Exposed>, String> {
    let workflow: Value = serde_saphyr::from_str(&file.text).map_err(|error| {
        let said = error.to_string();
        said.lines().next().unwrap_or_default().to_owned()
    })?;
    // YAML of old reads the key `on` as true.
    let triggers = workflow.get("on").or_else(|| workflow.get("true")).unwrap_or(&Value::Null);
    let branch = format!("{branch_prefix}1-a");
    let events: Vec<&str> = EVENTS.into_iter().filter(|event| starts(triggers, event, &branch)).collect();
    let mut gives = BTreeSet::new();
    // What stands outside of jobs is for all of them.
    let common = workflow.get("env").map(Value::to_string).unwrap_or_default();
    for job in workflow.get("jobs").and_then(Value::as_object).into_iter().flat_map(|jobs| jobs.values()) {
        let condition = job.get("if").map(Value::to_string).unwrap_or_default();
        if !branch_prefix.is_empty() && condition.contains(branch_prefix) {
            // Somebody has thought of these branches.
            continue;
        }
        gives.extend(secrets(&common));
        gives.extend(secrets(&job.to_string()));
        if job.get("secrets").and_then(Value::as_str) == Some("inherit") {
            gives.insert("all secrets".to_owned());
        }
        let rights = job.get("permissions").or_else(|| workflow.get("permissions"));
        gives.extend(rights.and_then(writes).map(|what| format!("a token that may write ({what})")));
    }
    let nothing = events.is_empty() || gives.is_empty();
    Ok((!nothing).then(|| Exposed { path: file.path.clone(), events, gives }))
}

/// Names of the secrets in a text.
fn secrets(text: &str) -> impl Iterator<Item = String> {
    SECRET.captures_iter(text).filter_map(|found| match found.get(1).or_else(|| found.get(2)) {
        Some(name) if OWN_TOKENS.iter().any(|own| own.eq_ignore_ascii_case(name.as_str())) => None,
        Some(name) => Some(name.as_str().to_owned()),
        None => Some("all secrets".to_owned()),
    })
}

/// What a token with these permissions may write; `None` for nothing.
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
            // Other filters are of the branch that is asked to take the changes, or of paths.
            Some(_) => true,
        },
        _ => false,
    }
}

/// Whether the filter of `push` lets a branch through.
fn includes(filter: &Value, branch: &str) -> bool {
    let list = |key: &str| -> Option<Vec<&str>> {
        match filter.get(key)? {
            Value::String(one) => Some(vec![one]),
            Value::Array(some) => Some(some.iter().filter_map(Value::as_str).collect()),
            _ => None,
        }
    };
    if let Some(patterns) = list("branches") {
        // The last that fits decides.
        return patterns.iter().fold(false, |included, pattern| match pattern.strip_prefix('!') {
            Some(without) => included && !fits(without, branch),
            None => included || fits(pattern, branch),
        });
    }
    if let Some(patterns) = list("branches-ignore") {
        return !patterns.iter().any(|pattern| fits(pattern, branch));
    }
    // With tags alone it is for tags alone.
    ["tags", "tags-ignore"].iter().all(|key| filter.get(key).is_none())
}

/// Whether a pattern fits a branch; one that is not understood may fit.
fn fits(pattern: &str, branch: &str) -> bool {
    let glob = globset::GlobBuilder::new(pattern).literal_separator(true).build();
    glob.map_or(true, |glob| glob.compile_matcher().is_match(branch))
}
