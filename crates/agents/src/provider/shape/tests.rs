//! Comparison with a complete validator.

use proptest::prelude::*;
use schemars::JsonSchema;
use serde_json::json;

use super::*;

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct ShapePlan {
    approach: ShapeApproach,
    /// Between 0 and 1.
    #[schemars(range(min = 0.0, max = 1.0))]
    confidence: f64,
    #[schemars(length(min = 1, max = 3))]
    steps: Vec<ShapeStep>,
    note: Option<String>,
    count: u8,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
enum ShapeApproach {
    Persist,
    Pivot,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct ShapeStep {
    #[schemars(length(min = 2))]
    what: String,
    after: Option<Box<ShapeStep>>,
}

fn good() -> Value {
    json!({"approach": "Persist", "confidence": 0.5, "count": 3, "note": null,
        "steps": [{"what": "look", "after": {"what": "then", "after": null}}]})
}

#[test]
fn problems_are_reported_with_position() {
    let schema = schemars::schema_for!(ShapePlan).to_value();
    assert_eq!(fault(&schema, &good()), None);
    for (pointer, wrong, said) in [
        ("/approach", json!("Give up"), "/approach: expected one of [\"Persist\",\"Pivot\"], found \"Give up\""),
        ("/confidence", json!(2), "/confidence: expected at most 1, found 2"),
        ("/confidence", json!("high"), "/confidence: expected number, found \"high\""),
        ("/count", json!(1.5), "/count: expected integer, found 1.5"),
        ("/count", json!(300), "/count: expected at most 255"),
        ("/note", json!([]), "/note: expected string or null, found a list of 0"),
        ("/steps", json!([]), "/steps: expected at least 1 entries, found 0"),
        ("/steps/0/what", json!("x"), "/steps/0/what: expected at least 2 characters"),
        ("/steps/0/after", json!({}), "/steps/0/after/what is missing"),
        ("/steps/0", json!({"what": "go", "novel": 1}), "/steps/0/novel: no value is allowed here"),
        ("", json!(7), "the value: expected object, found 7"),
    ] {
        let mut value = good();
        *value.pointer_mut(pointer).unwrap() = wrong;
        let found = fault(&schema, &value).unwrap_or_default();
        assert!(found.starts_with(said), "{pointer}: {found}");
    }
}

#[test]
fn recursive_schemas_terminate() {
    assert!(fault(&json!({"$ref": "#"}), &json!(1)).unwrap().contains("nested too deeply"));
    assert_eq!(fault(&json!({"$ref": "#/nowhere"}), &json!(1)), None);
    assert_eq!(fault(&json!(true), &json!(1)), None);
    assert!(fault(&json!(false), &json!(1)).is_some());
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..6).prop_map(Value::from),
        (-30i64..60).prop_map(|n| Value::from(n as f64 / 10.0)),
        "[ab]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[ab]", inner, 0..3).prop_map(|map| json!(map)),
        ]
    })
}

fn schema() -> impl Strategy<Value = Value> {
    let kind = prop::sample::select(vec!["null", "boolean", "string", "array", "object", "number", "integer"]);
    let leaf = prop_oneof![
        kind.clone().prop_map(|kind| json!({"type": kind})),
        prop::collection::vec(kind, 1..3).prop_map(|mut kinds| {
            kinds.sort_unstable();
            kinds.dedup();
            json!({"type": kinds})
        }),
        value().prop_map(|value| json!({"const": value})),
        prop::collection::vec(value(), 1..3).prop_map(|values| json!({"enum": values})),
        (-2i64..4).prop_map(|n| json!({"minimum": n, "exclusiveMaximum": n + 2})),
        (-2i64..4).prop_map(|n| json!({"maximum": n, "exclusiveMinimum": n - 2})),
        (0u8..3).prop_map(|n| json!({"minLength": n, "maxLength": n + 1, "minItems": n, "maxItems": n + 1})),
        any::<bool>().prop_map(Value::from),
        Just(json!({"$ref": "#/$defs/short"})),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let list = prop::collection::vec(inner.clone(), 1..3);
        prop_oneof![
            inner.clone().prop_map(|items| json!({"items": items})),
            (prop::collection::btree_map("[ab]", inner.clone(), 0..3), inner, "[ab]").prop_map(
                |(known, more, needed)| json!({"properties": known, "additionalProperties": more, "required": [needed]})
            ),
            (list, prop::sample::select(vec!["anyOf", "oneOf", "allOf"])).prop_map(|(all, name)| json!({name: all})),
        ]
    })
}

proptest! {
    #![proptest_config(test_support::cases(1_000))]
    #[test]
    fn result_matches_a_complete_validator(schema in schema(), value in value()) {
        let whole = json!({"$defs": {"short": {"type": "string", "maxLength": 2}}, "allOf": [schema]});
        let full = jsonschema::validator_for(&whole).unwrap();
        let ours = fault(&whole, &value);
        prop_assert_eq!(ours.is_none(), full.is_valid(&value), "{:?}: {} by {}", ours, value, whole);
    }
}
