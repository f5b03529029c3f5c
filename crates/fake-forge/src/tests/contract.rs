//! Tests that the fake forge's JSON conforms to the forges' published descriptions.

use serde_json::{Value, json};

use super::{FakeForgeWorld, drain, receiver, world};
use crate::{Dialect, ReviewDraft, StatusDraft};
use ralph_types::ids::Number;
use ralph_types::ids::ReviewVerdict;

/// Reads a published description of an API, or an example of a webhook.
fn contract(file: &str) -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/contracts/").to_owned() + file;
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Adapts a Swagger 2 schema, which cannot declare values as nullable, because Gitea writes null for omitted values. Rejects
/// undescribed keys, except `username`, which Gitea writes beside `login` for old clients.
fn strict(schema: &mut Value) {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        if properties.contains_key("login") {
            properties.insert("username".to_owned(), json!({"type": "string"}));
        }
        for property in properties.values_mut() {
            strict(property);
            *property = json!({"anyOf": [property.clone(), {"type": "null"}]});
        }
        schema["additionalProperties"] = json!(false);
    }
}

fn problems(validator: &jsonschema::Validator, value: &Value) -> Vec<String> {
    validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

fn gitea_definition(contract: &Value, name: &str, list: bool) -> jsonschema::Validator {
    let mut definitions = contract["definitions"].clone();
    definitions.as_object_mut().unwrap().values_mut().for_each(strict);
    let single_schema = json!({"$ref": format!("#/definitions/{name}")});
    let mut schema = if list {
        json!({"type": "array", "minItems": 1, "items": single_schema})
    } else {
        json!({"allOf": [single_schema]})
    };
    schema["definitions"] = definitions;
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    jsonschema::validator_for(&schema).unwrap()
}

/// Creates a repository with at least one object of each kind.
async fn furnished(dialect: Dialect) -> FakeForgeWorld {
    let world = world(dialect).await;
    let (forge, repo) = (&world.forge, world.repo);
    let number = forge.open_issue(&world.outsider, repo, "Broken", "Mend it", &[]).await.unwrap();
    forge.label(&world.maintainer, repo, number, "ralph:run").await.unwrap();
    let comment = forge.comment(&world.outsider, repo, number, "/ralph run").await.unwrap();
    forge.with(|state| state.react(world.bot.id, repo, comment, "eyes")).unwrap();
    let sha = forge.push_commit(&world.bot, repo, "ralph/1", &[("b", Some("b"), false)], "One").await.unwrap();
    let pull = super::PullDraft {
        title: "Mend".to_owned(),
        body: "Closes #1".to_owned(),
        head: "ralph/1".to_owned(),
        base: "main".to_owned(),
        draft: false,
    };
    forge.open_pull(&world.bot, repo, &pull).await.unwrap();
    let review = ReviewDraft {
        verdict: ReviewVerdict::ChangesRequested,
        body: "Why?".to_owned(),
        remarks: vec![("b".to_owned(), 1, "here".to_owned())],
    };
    forge.review(&world.maintainer, repo, Number(2), &review).await.unwrap();
    let status = StatusDraft {
        context: "ci".to_owned(),
        state: "failure".to_owned(),
        description: "1 test failed".to_owned(),
        target_url: "http://ci.invalid/1".to_owned(),
    };
    forge.set_status(&world.maintainer, repo, &sha, &status).await.unwrap();
    world
}

#[tokio::test]
async fn gitea_responses_match_the_description() {
    let contract = contract("gitea-rest-subset.json");
    let issue = gitea_definition(&contract, "Issue", false);
    for wrong in [json!({"id": "7"}), json!({"labels": [{"colour": "x"}]}), json!({"state": 1})] {
        assert_eq!(problems(&issue, &wrong).len(), 1, "{wrong} is refused");
    }
    let world = furnished(Dialect::Gitea).await;
    let (url, _received, _tasks) = receiver().await;
    let hook = world.forge.add_hook(world.repo, &url, "x").await.unwrap();
    let (_, _, reviews) = world.ask(Some(&world.bot), "GET", "repos/acme/app/pulls/2/reviews", Value::Null).await;
    let remarks = format!("repos/acme/app/pulls/2/reviews/{}/comments", reviews[0]["id"]);
    let comment = world.forge.comments(world.repo, Number(1))[0].id;
    let reactions = format!("repos/acme/app/issues/comments/{comment}/reactions");
    let one_hook = format!("repos/acme/app/hooks/{hook}");
    let merged = async |definition: &str, list: bool, path: &str| {
        let (status, _, value) = world.ask(Some(&world.bot), "GET", path, Value::Null).await;
        assert_eq!(status, 200, "{path}: {value}");
        let found = problems(&gitea_definition(&contract, definition, list), &value);
        assert!(found.is_empty(), "GET {path} is no {definition}: {found:#?}");
    };
    for (definition, list, path) in [
        ("ServerVersion", false, "version"),
        ("GeneralAPISettings", false, "settings/api"),
        ("User", false, "user"),
        ("Repository", true, "user/repos"),
        ("SearchResults", false, "repos/search"),
        ("Repository", false, "repos/acme/app"),
        ("Label", true, "repos/acme/app/labels"),
        ("Issue", true, "repos/acme/app/issues?state=all"),
        ("Issue", false, "repos/acme/app/issues/1"),
        ("Issue", false, "repos/acme/app/issues/2"),
        ("Comment", true, "repos/acme/app/issues/1/comments"),
        ("Reaction", true, &reactions),
        ("PullRequest", true, "repos/acme/app/pulls"),
        ("PullRequest", false, "repos/acme/app/pulls/2"),
        ("ChangedFile", true, "repos/acme/app/pulls/2/files"),
        ("PullReview", true, "repos/acme/app/pulls/2/reviews"),
        ("PullReviewComment", true, &remarks),
        ("CommitStatus", true, "repos/acme/app/commits/ralph%2F1/statuses"),
        ("CombinedStatus", false, "repos/acme/app/commits/ralph%2F1/status"),
        ("Branch", true, "repos/acme/app/branches"),
        ("Branch", false, "repos/acme/app/branches/ralph/1"),
        ("RepoCollaboratorPermission", false, "repos/acme/app/collaborators/mia/permission"),
        ("ContentsResponse", false, "repos/acme/app/contents/README.md"),
        ("Hook", false, &one_hook),
    ] {
        merged(definition, list, path).await;
    }
    world.forge.merge(&world.maintainer, world.repo, Number(2)).await.unwrap();
    merged("PullRequest", false, "repos/acme/app/pulls/2").await;
}

/// Collects the sample's keys that are missing in the fake's payload or have another type.
fn missing(sample: &Value, ours: &Value, at: &str, found: &mut Vec<String>) {
    let kind = |value: &Value| match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    match (sample, ours) {
        (Value::Null, _) | (_, Value::Null) => {}
        (Value::Object(sample), Value::Object(ours)) => {
            for (key, value) in sample {
                match ours.get(key) {
                    Some(own) => missing(value, own, &format!("{at}/{key}"), found),
                    None => found.push(format!("{at}/{key} is missing")),
                }
            }
        }
        (Value::Array(sample), Value::Array(ours)) => {
            if let (Some(sample), Some(own)) = (sample.first(), ours.first()) {
                missing(sample, own, &format!("{at}/0"), found);
            }
        }
        (sample, ours) if kind(sample) != kind(ours) => {
            found.push(format!("{at} is a {}, should be a {}", kind(ours), kind(sample)));
        }
        _ => {}
    }
}

#[tokio::test]
async fn gitea_payloads_contain_all_fields_of_samples() {
    let world = furnished(Dialect::Gitea).await;
    let (url, received, _tasks) = receiver().await;
    let (forge, repo) = (&world.forge, world.repo);
    forge.add_hook(repo, &url, "x").await.unwrap();
    let number = forge.open_issue(&world.outsider, repo, "Again", "", &[]).await.unwrap();
    forge.label(&world.maintainer, repo, number, "ralph:run").await.unwrap();
    forge.comment(&world.outsider, repo, number, "hm").await.unwrap();
    forge.comment(&world.outsider, repo, Number(2), "hm").await.unwrap();
    forge.push_commit(&world.bot, repo, "other", &[("c", Some("c"), false)], "Two").await.unwrap();
    forge.push_commit(&world.bot, repo, "ralph/1", &[("c", Some("c"), false)], "Two").await.unwrap();
    let review = ReviewDraft { verdict: ReviewVerdict::Approved, body: "Good".to_owned(), remarks: Vec::new() };
    forge.review(&world.maintainer, repo, Number(2), &review).await.unwrap();
    forge.merge(&world.maintainer, repo, Number(2)).await.unwrap();
    forge.delete_branch(&world.maintainer, repo, "other").await.unwrap();
    forge.flush().await;
    let deliveries = drain(&received);
    for (sample, event, action) in [
        ("issues-event", "issues", "opened"),
        ("issue-label-event", "issues", "label_updated"),
        ("issue-comment-event", "issue_comment", "created"),
        ("pull-request-event", "pull_request", "closed"),
        ("pull-request-review-event", "pull_request_approved", "reviewed"),
        ("push-event", "push", ""),
        ("create-event", "create", ""),
        ("delete-event", "delete", ""),
    ] {
        let sample = contract(&format!("gitea-webhooks/{sample}.json"));
        let own_delivery = deliveries.iter().find(|(name, act, _)| name == event && act == action);
        let (_, _, own_delivery) = own_delivery.unwrap_or_else(|| panic!("no {event} {action}"));
        let mut found = Vec::new();
        missing(&sample, own_delivery, "", &mut found);
        // Fields of older versions, and fields that always differ.
        found.retain(|problem| !problem.contains("/parent") && !problem.contains("/repo_transfer"));
        assert!(found.is_empty(), "{event} {action}: {found:#?}");
    }
}

#[tokio::test]
async fn github_payloads_contain_all_fields_of_samples() {
    let world = furnished(Dialect::GitHub).await;
    let (url, received, _tasks) = receiver().await;
    let (forge, repo) = (&world.forge, world.repo);
    forge.add_hook(repo, &url, "x").await.unwrap();
    let number = forge.open_issue(&world.outsider, repo, "Again", "", &[]).await.unwrap();
    forge.label(&world.maintainer, repo, number, "ralph:run").await.unwrap();
    forge.comment(&world.outsider, repo, number, "hm").await.unwrap();
    forge.push_commit(&world.bot, repo, "ralph/1", &[("c", Some("c"), false)], "Two").await.unwrap();
    let remarks = vec![("b".to_owned(), 1, "here".to_owned())];
    let review = ReviewDraft { verdict: ReviewVerdict::Approved, body: "Good".to_owned(), remarks };
    forge.review(&world.maintainer, repo, Number(2), &review).await.unwrap();
    forge.merge(&world.maintainer, repo, Number(2)).await.unwrap();
    forge.flush().await;
    let deliveries = drain(&received);
    for (event, action) in [
        ("ping", ""),
        ("issues", "opened"),
        ("issues", "labeled"),
        ("issue_comment", "created"),
        ("pull_request", "synchronize"),
        ("pull_request_review", "submitted"),
        ("pull_request_review_comment", "created"),
        ("pull_request", "closed"),
    ] {
        let samples = contract(&format!("github-webhooks/{event}.json"));
        let fits = |sample: &&Value| sample["action"].as_str().unwrap_or_default() == action;
        let sample = samples.as_array().unwrap().iter().find(fits).unwrap();
        let own_delivery = deliveries.iter().find(|(name, act, _)| name == event && act == action);
        let (_, _, own_delivery) = own_delivery.unwrap_or_else(|| panic!("no {event} {action}"));
        let mut found = Vec::new();
        missing(sample, own_delivery, "", &mut found);
        // Present only for organizations' repositories and Apps' webhooks.
        found.retain(|problem| !["/organization ", "/installation "].iter().any(|key| problem.starts_with(key)));
        assert!(found.is_empty(), "{event} {action}: {found:#?}");
    }
}
