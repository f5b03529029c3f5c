//! Stored form of a loop. Earlier versions stored all fields side by side; `upcast` moves them to their parts.

use serde_json::{Map, Value, json};

use super::aggregate::Loop;

/// Parts of the current form, each with the names of its fields in the flat form.
const PARTS: [(&str, &[&str]); 10] = [
    ("people", &["authority", "requested_by"]),
    ("settings", &["options", "policy", "overruled"]),
    ("checks", &["checks", "checks_from", "measured_after", "guard"]),
    ("branch", &["branch", "base_branch", "base", "head", "pushed", "verified"]),
    ("pull", &["pull", "existing", "failed_ci", "merge_wish", "merge_ordered", "refused", "reviews_seen", "proposals"]),
    ("run", &["step", "ticket", "pause_wanted", "halting", "wait", "hook_question", "escalated", "queued_at"]),
    (
        "agent",
        &["session", "wanted", "schedule", "agent_failures", "limited_tries", "sandbox", "lacks", "assistant_failure"],
    ),
    ("requests", &["guidance", "suggestions", "applied"]),
    ("supervision", &["supervision", "course", "opinions"]),
    (
        "knowledge",
        &["stated", "planning", "estimate", "past", "experience", "failed_elsewhere", "images", "hidden_removed"],
    ),
];

/// Returns the name in its part of a field of the flat form.
fn name_in_part(flat: &str) -> &str {
    match flat {
        "checks" => "list",
        "checks_from" => "source",
        "branch" => "name",
        "pull" => "opened",
        "agent_failures" => "failures",
        "supervision" => "state",
        same => same,
    }
}

impl Loop {
    /// Reads a stored loop, also in the flat form of earlier versions.
    ///
    /// # Errors
    /// If the text has neither form. The error is about the form that the text resembles.
    pub fn read(text: &str) -> serde_json::Result<Self> {
        let error = match serde_json::from_str(text) {
            Ok(read) => return Ok(read),
            Err(error) => error,
        };
        match serde_json::from_str(text) {
            Ok(Value::Object(flat)) if flat.contains_key("place") => serde_json::from_value(upcast(flat)),
            _ => Err(error),
        }
    }
}

/// Converts a loop from the flat form to the current one.
fn upcast(mut flat: Map<String, Value>) -> Value {
    let mut parts = PARTS.map(|(part, fields)| {
        let moved = fields.iter().filter_map(|field| Some((name_in_part(field).to_owned(), flat.remove(*field)?)));
        (part.to_owned(), moved.collect::<Map<_, _>>())
    });
    let mut take = |field: &str| flat.remove(field).unwrap_or_default();
    let issue = take("place");
    let report = take("baseline");
    let base = take("baseline_base");
    let with = take("merge_wanted");
    let progress = take("merging");
    let put_off = take("put_off");
    let budget_notice = take("budget_notice");
    for (part, fields) in &mut parts {
        match part.as_str() {
            "checks" if !report.is_null() => {
                fields.insert("baseline".to_owned(), json!({ "report": report, "base": base }));
            }
            "branch" if !with.is_null() => {
                fields.insert("merge".to_owned(), json!({ "with": with, "progress": progress }));
            }
            // The ticket of the last deferred work was stored. It is the current work's only if the tickets are equal.
            "run" => {
                let deferred = fields.get("ticket") == Some(&put_off);
                fields.insert("deferred".to_owned(), deferred.into());
            }
            _ => {}
        }
    }
    flat.insert("issue".to_owned(), issue);
    if let Some(spent) = flat.get_mut("spent").and_then(Value::as_object_mut).filter(|_| !budget_notice.is_null()) {
        spent.insert("budget_notice".to_owned(), budget_notice);
    }
    flat.extend(parts.map(|(part, fields)| (part, Value::Object(fields))));
    Value::Object(flat)
}
