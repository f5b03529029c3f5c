//! Tests of the API's routes and their OpenAPI description.

use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

fn methods(description: &Value) -> BTreeSet<(String, String)> {
    let paths = description["paths"].as_object().expect("paths");
    let of = |(path, methods): (&String, &Value)| {
        let names: Vec<String> = methods.as_object().expect("methods").keys().cloned().collect();
        names.into_iter().map(|method| (method, path.clone())).collect::<Vec<_>>()
    };
    paths.iter().flat_map(of).collect()
}

#[test]
fn every_route_is_described_once() {
    let described = methods(&openapi::DESCRIPTION);
    let routes: Vec<(String, String)> =
        table().iter().map(|route| (route.operation.method.to_owned(), route.operation.path.to_owned())).collect();
    assert_eq!(routes.iter().cloned().collect::<BTreeSet<_>>(), described);
    assert_eq!(routes.len(), described.len(), "a method of a path has one route");
    assert!(routes.len() > 15, "{routes:?}");
}

#[test]
fn operations_have_unique_ids_and_describe_their_parameters() {
    let mut ids = BTreeSet::new();
    for (method, path) in methods(&openapi::DESCRIPTION) {
        let operation = &openapi::DESCRIPTION["paths"][&path][&method];
        assert!(ids.insert(operation["operationId"].as_str().expect("an id").to_owned()), "{path}");
        let parameters = operation["parameters"].as_array().expect("parameters");
        let named = |place: &str| {
            let of = parameters.iter().filter(|one| one["in"] == place);
            of.map(|one| one["name"].as_str().expect("a name").to_owned()).collect::<BTreeSet<_>>()
        };
        let in_path: BTreeSet<String> =
            path.split('/').filter_map(|part| Some(part.strip_prefix('{')?.strip_suffix('}')?.to_owned())).collect();
        assert_eq!(named("path"), in_path, "{path}");
        for one in parameters.iter().filter(|one| one["in"] == "query") {
            assert!(one["description"].as_str().is_some_and(|told| told.len() > 10), "{path}: {one}");
        }
        assert!(method == "get" || method == "delete" || operation["requestBody"].is_object(), "{method} {path}");
    }
}

/// Types refer to each other by `$ref`; if the definitions moved, the references would dangle.
#[test]
fn references_of_the_description_have_targets() {
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    references(&openapi::DESCRIPTION, &mut found);
    assert!(found.contains("#/components/schemas/ApiLoop"), "{found:?}");
    for reference in found {
        let target = reference.strip_prefix('#').expect(&reference);
        assert!(openapi::DESCRIPTION.pointer(target).is_some(), "{reference}");
    }
}

#[test]
fn problems_contain_a_remedy() {
    let problem = ApiProblem::unknown("loop", "r-1\n\u{1b}[2J");
    assert_eq!(problem.detail, "there is no loop r-1[2J, or you may not see it");
    assert_eq!((problem.status, problem.title.as_str()), (404, "Not Found"));
    let response = ApiProblem::unauthorized().into_response();
    assert_eq!(response.headers()[header::WWW_AUTHENTICATE], "Bearer");
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
}
