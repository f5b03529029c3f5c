//! Actions workflows: their folders and triggers.

use serde_json::Value;

use ralph_types::failure::Failure;

/// Returns the folders that a forge searches for workflows; only the first folder with a workflow is used.
pub fn folders(product: &str) -> &'static [&'static str] {
    match product.split(' ').next() {
        Some("Gitea") => &[".gitea/workflows", ".github/workflows"],
        Some("Forgejo") => &[".forgejo/workflows", ".gitea/workflows", ".github/workflows"],
        _ => &[".github/workflows"],
    }
}

/// Whether a path belongs to a workflow file.
pub fn is_workflow(path: &str) -> bool {
    [".yml", ".yaml"].iter().any(|end| path.ends_with(end))
}

/// Parses a workflow file.
pub fn parse(text: &str) -> Result<Value, Failure> {
    serde_saphyr::from_str(text)
        .map_err(|error| Failure::new(error.to_string().lines().next().unwrap_or("the file is not valid YAML")))
}

/// Returns the triggers of a workflow.
pub fn triggers(workflow: &Value) -> &Value {
    // YAML 1.1 parsers read the key `on` as `true`.
    workflow.get("on").or_else(|| workflow.get("true")).unwrap_or(&Value::Null)
}

/// Whether an event on a branch may start a workflow with these triggers.
pub fn starts(triggers: &Value, event: &str, branch: &str) -> bool {
    match triggers {
        Value::String(one) => one == event,
        Value::Array(some) => some.iter().any(|one| one == event),
        Value::Object(each) => match each.get(event) {
            None => false,
            Some(filter) if event == "push" => includes(filter, branch),
            // Other filters apply to the target branch or to paths.
            Some(_) => true,
        },
        _ => false,
    }
}

/// Whether a push to a pull request from `branch` to `base` always starts a workflow with these triggers. A workflow with
/// path filters may not start, because they depend on the change.
pub fn runs_for_pull(triggers: &Value, branch: &str, base: &str) -> bool {
    const ACTIVE: [&str; 3] = ["opened", "synchronize", "reopened"];
    let certain = |event: &str, of: &str| {
        let Some(filter) = triggers.as_object().map(|each| each.get(event)) else {
            return starts(triggers, event, branch);
        };
        let Some(filter) = filter else { return false };
        let by_path = ["paths", "paths-ignore"].iter().any(|key| filter.get(key).is_some());
        let types = filter.get("types").map(names);
        let active = types.is_none_or(|types| types.iter().any(|one| ACTIVE.contains(one)));
        !by_path && active && includes(filter, of)
    };
    certain("push", branch) || certain("pull_request", base) || certain("pull_request_target", base)
}

fn names(value: &Value) -> Vec<&str> {
    match value {
        Value::String(one) => vec![one],
        Value::Array(some) => some.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Whether an event's filter includes a branch.
fn includes(filter: &Value, branch: &str) -> bool {
    if let Some(patterns) = filter.get("branches").map(names) {
        // The last match wins.
        return patterns.iter().fold(false, |included, pattern| match pattern.strip_prefix('!') {
            Some(without) => included && !pattern_matches(without, branch),
            None => included || pattern_matches(pattern, branch),
        });
    }
    if let Some(patterns) = filter.get("branches-ignore").map(names) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_workflows_certain_to_run_are_expected() {
        for (on, runs) in [
            ("push", true),
            ("[pull_request]", true),
            ("{ push: { branches: [main] } }", false),
            ("{ push: { branches: [main] }, pull_request: }", true),
            ("{ pull_request: { branches: [main] } }", true),
            ("{ pull_request: { branches: [release] } }", false),
            ("{ pull_request: { paths: ['src/**'] } }", false),
            ("{ pull_request: { types: [labeled] } }", false),
            ("{ pull_request: { types: [opened, labeled] } }", true),
            ("{ pull_request_target: { branches-ignore: ['main'] } }", false),
            ("{ schedule: [{ cron: '0 1 * * *' }] }", false),
        ] {
            let workflow = parse(&format!("on: {on}\njobs: {{}}\n")).expect("valid");
            assert_eq!(runs_for_pull(triggers(&workflow), "ralph/1-a", "main"), runs, "{on}");
        }
    }
}
