//! The API over HTTP: the real service, its database, and a forge on loopback.

use std::time::Duration;

use fake_forge::{Dialect, ReviewDraft};
use ralph_bot::domain::knowledge::memory::{Reflection, ReflectionOutcome, remembered};
use ralph_bot::domain::loops::{Loop, LoopState};
use ralph_bot::domain::model::event::ReviewVerdict;
use ralph_bot::domain::model::ids::{AccountKind, ForgeName, Timestamp, User, UserId};
use ralph_bot::domain::providers::backends::BackendObservation;
use ralph_bot::process::Masker;
use ralph_bot::store::tokens::{self, ApiScope, TokenOwner, TokenRequest};
use ralph_bot::store::{access_audit, calls, feed, memory};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::harness::parts::command;
use crate::harness::viewers::{prepare_logins, with_login};
use crate::harness::{Setup, WILLING, World, live_story, on_one_forge, prepared_story, story};

on_one_forge!(
    answers_match_the_openapi_description,
    loops_are_listed_by_pages_and_filters,
    forbidden_loop_is_answered_like_a_missing_one,
    invalid_requests_get_advice,
    search_finds_titles_prompts_and_outputs,
    command_is_processed_like_a_comment,
    stream_replays_missed_events,
    token_permits_only_its_scope,
    secrets_are_masked_in_answers,
    command_line_prints_the_same_over_the_api,
    api_returns_control_values,
    learnings_are_filtered_and_reflections_listed,
    api_enables_a_stopped_backend,
);

/// Client of the API with a token.
struct TokenClient {
    client: reqwest::Client,
    root: String,
    token: String,
}

impl TokenClient {
    /// Returns a client with a token of the operator of the machine.
    async fn of_operator(world: &World) -> Self {
        Self::with(world, TokenOwner { account: None, operator: true }, ApiScope::Write).await
    }

    async fn with(world: &World, owner: TokenOwner, scope: ApiScope) -> Self {
        let random: String = (0..64).map(|_| char::from(b"0123456789abcdef"[fastrand::usize(..16)])).collect();
        let token = format!("ralph_{random}");
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let expires_at = Timestamp(i64::MAX);
        let request = TokenRequest { name: "test".into(), owner, scope, expires_at };
        let now = world.clock.now();
        let added = world.engine().store.write(move |c| tokens::add(c, &request, &digest, "test", now));
        added.await.expect("stored").expect("not too many");
        let root = format!("http://{}/api/v1", world.app().address.expect("the service listens"));
        Self { client: reqwest::Client::new(), root, token }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.root)).bearer_auth(&self.token)
    }

    async fn get(&self, path: &str) -> (StatusCode, Value) {
        Self::sent(self.request(Method::GET, path)).await
    }

    async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        Self::sent(self.request(Method::POST, path).json(body)).await
    }

    async fn sent(request: RequestBuilder) -> (StatusCode, Value) {
        let response = request.send().await.expect("an answer");
        let status = response.status();
        let kind = response.headers().get("content-type").map(|kind| kind.to_str().expect("text").to_owned());
        let expected = if status.is_success() { "application/json" } else { "application/problem+json" };
        assert_eq!(response.headers()["cache-control"], "no-store");
        let text = response.text().await.expect("a body");
        if text.is_empty() {
            return (status, Value::Null);
        }
        assert_eq!(kind.as_deref(), Some(expected), "{status}: {text}");
        (status, serde_json::from_str(&text).expect("JSON"))
    }

    /// Returns the body of an answer that succeeds.
    async fn found(&self, path: &str) -> Value {
        let (status, body) = self.get(path).await;
        assert_eq!(status, StatusCode::OK, "{path}: {body}");
        body
    }
}

/// Asserts that a value fits a schema of the description.
fn assert_fits(description: &Value, reference: &Value, value: &Value, what: &str) {
    let schema = json!({ "$ref": reference["$ref"], "components": description["components"] });
    let schema = if reference["$ref"].is_string() { schema } else { reference.clone() };
    let validator = jsonschema::validator_for(&schema).expect("a valid schema");
    let faults: Vec<String> =
        validator.iter_errors(value).map(|fault| format!("{}: {fault}", fault.instance_path())).collect();
    assert!(faults.is_empty(), "{what}: {faults:#?}\n{value:#}");
}

fn problem_schema(description: &Value) -> Value {
    description["components"]["responses"]["Problem"]["content"]["application/problem+json"]["schema"].clone()
}

async fn answers_match_the_openapi_description(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let api = TokenClient::of_operator(world).await;
        let open = reqwest::get(format!("{}/openapi.json", api.root)).await.expect("no credentials are needed");
        let description: Value = open.json().await.expect("JSON");
        assert_eq!(description["openapi"], "3.1.0");
        let mut checked = 0;
        for (path, methods) in description["paths"].as_object().expect("paths") {
            for (method, operation) in methods.as_object().expect("methods") {
                let target = path.replace("{id}", done.id.as_str()).replace("{number}", "1").replace("{token}", "4711");
                let response = &operation["responses"]["200"]["content"];
                if response["text/event-stream"].is_object() {
                    continue;
                }
                let query = if path == "/search" { "?q=answer" } else { "" };
                let method = Method::from_bytes(method.to_uppercase().as_bytes()).expect("a method");
                let mut request = api.request(method.clone(), &format!("{target}{query}"));
                if method == Method::POST {
                    request = request.json(&json!({ "unknown": 1 }));
                }
                let (status, body) = TokenClient::sent(request).await;
                let what = format!("{method} {path}: {status}");
                match (status.as_u16(), method.as_str()) {
                    (200, "GET") => assert_fits(&description, &response["application/json"]["schema"], &body, &what),
                    (204, "DELETE") => assert_eq!(body, Value::Null, "{what}"),
                    (400, "POST") | (404, "DELETE") => {
                        assert_fits(&description, &problem_schema(&description), &body, &what);
                    }
                    _ => panic!("{what}: {body}"),
                }
                checked += 1;
            }
        }
        assert!(checked > 14, "{checked} operations");
        let iteration = api.found(&format!("/loops/{}/iterations/1", done.id)).await;
        assert!(iteration["turns"][0]["prompt"].as_str().is_some_and(|text| text.contains("The answer is wrong")));
        assert_eq!(iteration["checks"][0]["passed"], true);
        let costs = api.found("/costs?by=person").await;
        assert_eq!(costs["days"][0]["of"], world.maintainer.login.as_str(), "{costs}");
        let record = api.found(&format!("/loops/{}/audit", done.id)).await;
        let stored: Loop = serde_json::from_value(record["loop"].clone()).expect("the whole loop");
        assert_eq!(stored.id, done.id);
    })
    .await;
}

async fn loops_are_listed_by_pages_and_filters(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let first = world.run().await;
        let second = world.forge.open_issue(&world.maintainer, world.repo, "Another zebra", "It is 43.", &[]).await;
        let second = second.expect("opened");
        world.forge.label(&world.maintainer, world.repo, second, "ralph:run").await.expect("labeled");
        world.settle().await;
        let api = TokenClient::of_operator(world).await;
        let ids = |page: &Value| -> Vec<String> {
            let loops = page["loops"].as_array().expect("loops");
            loops.iter().map(|one| one["id"].as_str().expect("an id").to_owned()).collect()
        };
        let all = ids(&api.found("/loops").await);
        assert_eq!((all.len(), all[1].as_str()), (2, first.id.as_str()), "newest first");
        let page = api.found("/loops?limit=1").await;
        assert_eq!(ids(&page), all[..1]);
        let cursor = page["next"].as_str().expect("another page");
        let last = api.found(&format!("/loops?limit=1&cursor={cursor}")).await;
        assert_eq!((ids(&last), &last["next"]), (all[1..].to_vec(), &Value::Null));
        let repository = first.issue.repo.full_name();
        let person = &world.maintainer.login;
        for (query, count) in [
            ("q=zeb".to_owned(), 1),
            ("open=true".to_owned(), 2),
            ("open=false".to_owned(), 0),
            (format!("state={}", first.state.as_str()), 2),
            ("state=merged,closed".to_owned(), 0),
            (format!("repository={repository}&person={person}"), 2),
            ("repository=no/body".to_owned(), 0),
            ("forge=other".to_owned(), 0),
            ("waits=true".to_owned(), 0),
        ] {
            assert_eq!(ids(&api.found(&format!("/loops?{query}")).await).len(), count, "{query}");
        }
        let one = api.found(&format!("/loops/{}", first.id)).await;
        assert_eq!((&one["loop"]["title"], &one["right"]), (&json!("The answer is wrong"), &json!("operate")));
    })
    .await;
}

/// An answer does not reveal whether a loop exists.
async fn forbidden_loop_is_answered_like_a_missing_one(dialect: Dialect) {
    prepared_story(with_login(Setup::new(dialect)), prepare_logins, async |world| {
        let done = world.run().await;
        // An account that the forge does not know has no right anywhere.
        let user = User { id: UserId(987_654), login: "stranger".into(), kind: AccountKind::User };
        let owner = TokenOwner { account: Some((ForgeName::new("forge"), user)), operator: true };
        let stranger = TokenClient::with(world, owner, ApiScope::Write).await;
        let missing = "r-99-zzzzzz";
        for path in ["", "/iterations", "/iterations/1", "/audit", "/events"] {
            let (known, forbidden) = stranger.get(&format!("/loops/{}{path}", done.id)).await;
            let (unknown, absent) = stranger.get(&format!("/loops/{missing}{path}")).await;
            assert_eq!((known, unknown), (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND), "{path}");
            let forbidden = forbidden.to_string().replace(done.id.as_str(), "ID");
            assert_eq!(forbidden, absent.to_string().replace(missing, "ID"), "{path}");
        }
        let pause = json!({ "command": "/ralph pause" });
        assert_eq!(stranger.post(&format!("/loops/{}/commands", done.id), &pause).await.0, StatusCode::NOT_FOUND);
        assert_eq!(stranger.found("/loops").await["loops"], json!([]));
        assert_eq!(stranger.found("/search?q=answer").await["hits"], json!([]));
        assert_eq!(stranger.found("/costs").await["days"], json!([]));
        assert_eq!(stranger.found("/memory").await["learnings"], json!([]));
        assert_eq!(stranger.get("/backends").await.0, StatusCode::FORBIDDEN);
        assert_eq!(stranger.found("/me").await["operator"], false, "a token does not carry the operators' list");
        let (status, _) = stranger.get(&format!("/search?q=answer&loop={}", done.id)).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
    })
    .await;
}

async fn invalid_requests_get_advice(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let done = world.run().await;
        let api = TokenClient::of_operator(world).await;
        let description = api.found("/openapi.json").await;
        let commands = format!("/loops/{}/commands", done.id);
        let long = "x".repeat(70_000);
        let post = |path: &str, kind: &str, body: String| {
            api.request(Method::POST, path).header("content-type", kind.to_owned()).body(body)
        };
        let valid = r#"{"command":"/ralph status"}"#.to_owned();
        let get = |path: &str| api.request(Method::GET, path);
        let cases = [
            (get("/loops?cursor=zebra"), 400, "the cursor is invalid"),
            (get("/loops?cursor=-5"), 400, "the cursor is invalid"),
            (get("/loops?limit=0"), 400, "limit is 0"),
            (get("/loops?limit=201"), 400, "limit is 201"),
            (get("/loops?limit=many"), 400, "invalid digit"),
            (get("/loops?staet=running"), 400, "unknown field `staet`"),
            (get("/loops?state=runing"), 400, "state has an unknown name"),
            (get("/loops?repository=app"), 400, "owner/name"),
            (get("/loops?open=maybe"), 400, "true"),
            (get("/search"), 400, "missing field `q`"),
            (get("/search?q=%22*"), 400, "q contains no word"),
            (get("/search?q=a&cursor=1.2"), 400, "the cursor is invalid"),
            (get(&format!("/search?q={}", &long[..600])), 400, "longer than 500"),
            (get("/costs?from=2026-02-30"), 400, "a day is invalid"),
            (get("/costs?from=2020-01-01&to=2026-01-01"), 400, "not 1 to 400 days"),
            (get("/costs?by=moon"), 400, "unknown variant `moon`"),
            (get(&format!("/loops/{}/iterations/0", done.id)), 404, "no iteration 0"),
            (get(&format!("/loops/{}/iterations/x", done.id)), 404, "no iteration x"),
            (get("/zebra"), 404, "the API has no path"),
            (api.request(Method::PUT, "/loops"), 405, "does not accept PUT"),
            (get("/events").header("last-event-id", "zebra"), 400, "STEP-ACTIVITY-OUTPUT"),
            (post(&commands, "text/plain", valid.clone()), 415, "not marked as JSON"),
            (post(&commands, "application/json", format!("{{\"command\":\"{long}\"}}")), 413, "larger than 65536"),
            (post(&commands, "application/json", "{".into()), 400, "the body is invalid"),
            (post(&commands, "application/json", r#"{"command":1}"#.into()), 400, "the body is invalid"),
            (
                post(&commands, "application/json", r#"{"command":"/ralph status","now":1}"#.into()),
                400,
                "unknown field",
            ),
            (post(&commands, "application/json", r#"{"command":"hello"}"#.into()), 400, "starts with `/ralph`"),
            (post(&commands, "application/json", r#"{"command":"/ralph paus"}"#.into()), 400, "There is no command"),
            (post("/memory/proposals/9/accept", "application/json", "{}".into()), 404, "no proposal 9"),
            (api.request(Method::DELETE, "/memory/zebra"), 404, "no learning zebra"),
            (api.client.get(format!("{}/loops", api.root)), 401, "no valid token"),
            (api.client.get(format!("{}/loops", api.root)).bearer_auth("ralph_0"), 401, "no valid token"),
            (
                api.client.get(format!("{}/loops", api.root)).bearer_auth(format!("ralph_{}", "0".repeat(64))),
                401,
                "no valid token",
            ),
        ];
        for (request, expected, says) in cases {
            let (status, body) = TokenClient::sent(request).await;
            assert_eq!(status.as_u16(), expected, "{says}: {body}");
            assert!(body["detail"].as_str().is_some_and(|detail| detail.contains(says)), "{says}: {body}");
            assert!(body["action"].as_str().is_some_and(|action| !action.is_empty()), "{body}");
            assert_fits(&description, &problem_schema(&description), &body, says);
        }
    })
    .await;
}

async fn search_finds_titles_prompts_and_outputs(dialect: Dialect) {
    let agent = "case $RALPH_ITERATION in 1) echo 40 >answer.txt ;; *) echo 42 >answer.txt ;; esac\n";
    story(Setup::new(dialect).agent(agent), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 2), "{}", done.why);
        let api = TokenClient::of_operator(world).await;
        let places = async |query: &str| -> Vec<(String, Value)> {
            let found = api.found(&format!("/search?q={query}&limit=50")).await;
            let hits = found["hits"].as_array().expect("hits");
            assert!(hits.iter().all(|hit| hit["loop"]["id"] == done.id.as_str()));
            hits.iter()
                .map(|hit| (hit["place"].as_str().expect("a place").to_owned(), hit["iteration"].clone()))
                .collect()
        };
        let wrong = places("answer+wrong").await;
        assert!(
            wrong.contains(&("title".into(), Value::Null)) && wrong.contains(&("prompt".into(), json!(1))),
            "{wrong:?}"
        );
        // Output of the check in the first iteration.
        let printed = places("%22answer+is+40%22").await;
        assert!(printed.contains(&("check".into(), json!(1))), "{printed:?}");
        let found = api.found(&format!("/search?q=wrong&loop={}", done.id)).await;
        let snippet = found["hits"][0]["snippet"].as_array().expect("a snippet");
        assert!(snippet.iter().any(|part| part["marked"] == true && part["text"] == "wrong"), "{found}");
        assert!(found["hits"][0]["line"].as_u64().is_some_and(|line| line > 0), "{found}");
        assert_eq!(places("zebra").await, []);

        // A review is a comment with a general text and a remark on a line.
        let pull = done.pull.opened.as_ref().expect("a pull request").number;
        let review = ReviewDraft {
            verdict: ReviewVerdict::ChangesRequested,
            body: "Paint the zebra first.".into(),
            remarks: vec![("answer.txt".into(), 1, "A giraffe belongs here.".into())],
        };
        world.forge.review(&world.maintainer, world.repo, pull, &review).await.expect("reviewed");
        world.settle().await;
        for word in ["zebra", "giraffe"] {
            let comments = places(&format!("{word}&kind=comment")).await;
            assert_eq!(comments, [("remark".to_owned(), json!(2))], "{word}");
        }
        let by_path = places("giraffe+mira+answer.txt&kind=comment").await;
        assert_eq!(by_path.len(), 1, "person and file are found, too: {by_path:?}");
    })
    .await;
}

async fn command_is_processed_like_a_comment(dialect: Dialect) {
    let setup = Setup::new(dialect).agent("while ! test -e ../go && ! test -e go; do sleep 0.05; done\n");
    live_story(setup, async |world| {
        world.label().await;
        let running = world.until("the agent", |l| l.state == LoopState::Running && l.spent.iterations == 1).await;
        let api = TokenClient::of_operator(world).await;
        let path = format!("/loops/{}/commands", running.id);
        let (status, paused) = api.post(&path, &json!({ "command": "/ralph pause --now for lunch" })).await;
        assert_eq!((status, &paused["taken"]), (StatusCode::OK, &json!(true)), "{paused}");
        assert_eq!(paused["state"], "paused", "{paused}");
        assert!(paused["says"].as_str().is_some_and(|says| says.contains("for lunch")), "{paused}");
        // Every refusal of a loop is answered with its reason.
        for (command, says) in [
            ("/ralph resume --max-iterations 1", "not more than"),
            ("/ralph resume --confirm 01234567", "no text to be confirmed"),
            ("/ralph run --check true", "already has a loop"),
            ("/ralph plan", "started to implement"),
            ("/ralph approve", "no plan needs an approval"),
            ("/ralph iterations 1", "not more than"),
            ("/ralph accept-tests", "No change to tests"),
            ("/ralph merge-when-ready off", "nothing to withdraw"),
        ] {
            let (status, refused) = api.post(&path, &json!({ "command": command })).await;
            let detail = refused["detail"].as_str().unwrap_or_default();
            assert!(status == StatusCode::CONFLICT && detail.contains(says), "{command}: {status} {refused}");
        }
        let (status, help) = api.post(&path, &json!({ "command": "/ralph help" })).await;
        assert_eq!((status, &help["taken"]), (StatusCode::OK, &json!(true)), "{help}");
        let says = help["says"].as_str().expect("text");
        assert!(says.contains("/ralph accept-tests [PATH…]: ") && says.contains("Maximum iterations: "), "{says}");
        let (status, ended) = api.post(&path, &json!({ "command": "/ralph abort done with it" })).await;
        assert_eq!((status, &ended["state"]), (StatusCode::OK, &json!("aborted")), "{ended}");
        let (status, after) = api.post(&path, &json!({ "command": "/ralph pause" })).await;
        assert!(
            status == StatusCode::CONFLICT && after["detail"].as_str().is_some_and(|why| why.contains("has ended")),
            "{after}"
        );
        let (status, typo) = api.post(&path, &json!({ "command": "/ralph puase" })).await;
        assert_eq!(
            (status, &typo["action"]),
            (StatusCode::BAD_REQUEST, &json!("did you mean `/ralph pause`?")),
            "{typo}"
        );
        let record = api.found(&format!("/loops/{}/audit", running.id)).await;
        assert!(record["events"].to_string().contains("for lunch"));
        world.wait_until_idle().await;
    })
    .await;
}

/// Reads events of a stream until one meets a condition; returns their ids, names and data.
async fn events_until(
    api: &TokenClient,
    path: &str,
    after: Option<&str>,
    mut holds: impl FnMut(&str, &str, &Value) -> bool,
) -> Vec<(String, String, Value)> {
    let mut request = api.request(Method::GET, path);
    if let Some(after) = after {
        request = request.header("last-event-id", after);
    }
    let mut response = request.send().await.expect("a stream");
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let (mut text, mut events) = (String::new(), Vec::new());
    let reading = async {
        while let Some(chunk) = response.chunk().await.expect("a chunk") {
            text.push_str(std::str::from_utf8(&chunk).expect("UTF-8"));
            while let Some((event, rest)) = text.split_once("\n\n") {
                let field = |name: &str| {
                    let line = event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                    line.unwrap_or_default().to_owned()
                };
                let (id, name, data) = (field("id"), field("event"), field("data"));
                text = rest.to_owned();
                if name.is_empty() {
                    continue;
                }
                let data: Value = serde_json::from_str(&data).expect("JSON");
                let last = holds(&id, &name, &data);
                events.push((id, name, data));
                if last {
                    return;
                }
            }
        }
        panic!("the stream ended: {events:#?}");
    };
    if tokio::time::timeout(Duration::from_secs(60), reading).await.is_err() {
        panic!("the event did not come");
    }
    events
}

async fn stream_replays_missed_events(dialect: Dialect) {
    live_story(Setup::new(dialect).agent(WILLING), async |world| {
        let api = TokenClient::of_operator(world).await;
        let is_ready = |_: &str, name: &str, data: &Value| name == "step" && data["state"] == "review";
        let begin = world.engine().store.read(feed::newest).await.expect("read").to_string();
        world.label().await;
        let mut live = events_until(&api, "/events", Some(&begin), is_ready).await;
        // The agent's output is streamed while it runs, and not afterwards.
        live.retain(|(_, name, _)| name != "output");
        let done = world.until("the review", |l| l.state == LoopState::Review).await;
        assert!(live.iter().all(|(_, _, data)| data["loop"] == done.id.as_str()));
        assert!(
            live.iter().any(|(_, name, data)| name == "activity" && data["activity"]["kind"] == "check"),
            "{live:#?}"
        );
        let positions: Vec<(i64, i64)> = live.iter().map(|(id, ..)| position(id)).collect();
        assert!(positions.windows(2).all(|two| two[0].0 <= two[1].0 && two[0].1 <= two[1].1 && two[0] != two[1]));
        // A reconnected listener gets exactly the missed events, of all loops or of this one.
        let missed = &live[live.len() / 2 + 1..];
        let last = &missed.last().expect("some events").0;
        for path in ["/events".to_owned(), format!("/loops/{}/events", done.id)] {
            let mut seen = (0, 0);
            let until = position(last);
            let replayed = events_until(&api, &path, Some(&live[live.len() / 2].0), |id, _, _| {
                seen = position(id);
                seen.0 >= until.0 && seen.1 >= until.1
            });
            let key = |(_, name, data): &(String, String, Value)| {
                (name.clone(), data["seq"].clone(), data["activity"].clone())
            };
            let mut replayed: Vec<_> = replayed.await.iter().map(key).collect();
            let mut expected: Vec<_> = missed.iter().map(key).collect();
            replayed.sort_by_key(|one| format!("{one:?}"));
            expected.sort_by_key(|one| format!("{one:?}"));
            assert_eq!(replayed, expected, "{path}");
        }
        world.wait_until_idle().await;
    })
    .await;
}

fn position(id: &str) -> (i64, i64) {
    let numbers: Vec<i64> = id.split('-').map(|number| number.parse().expect("a number")).collect();
    let [step, activity, _] = numbers[..] else { panic!("three numbers: {id}") };
    (step, activity)
}

async fn token_permits_only_its_scope(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let done = world.run().await;
        let operator = TokenOwner { account: None, operator: true };
        let reader = TokenClient::with(world, operator.clone(), ApiScope::Read).await;
        assert_eq!(reader.found("/loops").await["loops"][0]["id"], done.id.as_str());
        let path = format!("/loops/{}/commands", done.id);
        let (status, refused) = reader.post(&path, &json!({ "command": "/ralph abort" })).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{refused}");
        assert!(refused["detail"].as_str().is_some_and(|text| text.contains("only permits reading")), "{refused}");
        // Nor by the form of a page: tokens are for the API only.
        let page = format!("{}{path}", reader.root.trim_end_matches("/api/v1"));
        let form = reader.client.post(page).bearer_auth(&reader.token);
        let form = form.header("content-type", "application/x-www-form-urlencoded").body("csrf=&command=/ralph+abort");
        assert_eq!(form.send().await.expect("an answer").status(), StatusCode::UNAUTHORIZED);
        assert_eq!(world.the_loop().await.state, LoopState::Review, "nothing happened");
        let writer = TokenClient::of_operator(world).await;
        let (status, made) = writer.post("/tokens", &json!({ "name": "another" })).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "a token makes no token: {made}");
        let listed = writer.found("/tokens").await;
        let of = |name: &str| -> i64 {
            let all = listed["tokens"].as_array().expect("tokens");
            all.iter().find(|token| token["scope"] == name).and_then(|token| token["id"].as_i64()).expect("a token")
        };
        assert!(!listed.to_string().contains(&reader.token[6..]), "tokens are not shown again");
        assert_eq!(writer.found("/me").await["token"]["scope"], "write");
        let revoke = writer.request(Method::DELETE, &format!("/tokens/{}", of("read")));
        assert_eq!(TokenClient::sent(revoke).await.0, StatusCode::NO_CONTENT);
        assert_eq!(reader.get("/loops").await.0, StatusCode::UNAUTHORIZED, "revoked");
        let again = writer.request(Method::DELETE, &format!("/tokens/{}", of("read")));
        assert_eq!(TokenClient::sent(again).await.0, StatusCode::NOT_FOUND);
    })
    .await;
}

async fn secrets_are_masked_in_answers(dialect: Dialect) {
    let mut setup = Setup::new(dialect);
    setup.title = "Leaked ghp_abcdefghijklmnopqrstuvwxyz0123456789".into();
    story(setup, async |world| {
        let done = world.run().await;
        let api = TokenClient::of_operator(world).await;
        for path in [
            "/loops".to_owned(),
            format!("/loops/{}", done.id),
            format!("/loops/{}/audit", done.id),
            format!("/loops/{}/iterations/1", done.id),
            "/search?q=leaked".to_owned(),
        ] {
            let text = api.found(&path).await.to_string();
            assert!(!text.contains("ghp_abcdefghijklmnopqrstuvwxyz0123456789"), "{path}: {text}");
            assert!(path.contains("iterations") || text.contains("Leaked"), "{path}: {text}");
        }
        // A mark in the middle of a token must not hide it from the masker.
        let found = api.found("/search?q=leaked+ghp").await;
        for hit in found["hits"].as_array().expect("hits") {
            let parts = hit["snippet"].as_array().expect("a snippet").iter();
            let text: String = parts.map(|part| part["text"].as_str().expect("text")).collect();
            assert!(!text.contains("abcdefghijklmnop"), "{text}");
        }
    })
    .await;
}

/// Runs `ralph-bot loops` and returns exit code, output and errors.
async fn loops_of(world: &World, arguments: &[&str], token: &str) -> (Option<i32>, String, String) {
    let mut command = command(env!("CARGO_BIN_EXE_ralph-bot"));
    command.current_dir(world.folder.path()).env_clear().envs(world.environment()).env("API_TOKEN", token);
    let output = command.arg("loops").args(arguments).output().await.expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

async fn command_line_prints_the_same_over_the_api(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let done = world.run().await;
        let api = TokenClient::of_operator(world).await;
        let file = world.folder.path().join("ralph-control.yaml");
        std::fs::write(file, world.config_text("127.0.0.1:0", false)).expect("written");
        let server = api.root.trim_end_matches("/api/v1").to_owned();
        let with_server = ["--server", &server, "--token-env", "API_TOKEN"];
        let remote =
            |more: &[&str]| -> Vec<String> { more.iter().chain(&with_server).map(|word| (*word).to_owned()).collect() };
        let id = done.id.as_str();
        let printed: [&[&str]; 10] = [
            &["list"],
            &["report", id],
            &["report", id, "--json"],
            &["export", id, "--trace"],
            &["list", "--all", "--json"],
            &["show", id],
            &["show", id, "--audit"],
            &["show", id, "--audit", "--json"],
            &["show", id, "--prompt", "1"],
            &["show", id, "--prompt", "1", "--json"],
        ];
        for arguments in printed {
            let local = loops_of(world, arguments, &api.token).await;
            let remote_arguments = remote(arguments);
            let remote_arguments =
                loops_of(world, &remote_arguments.iter().map(String::as_str).collect::<Vec<_>>(), &api.token).await;
            assert_eq!(local.0, Some(0), "{}", local.2);
            let names_it = !arguments.iter().any(|one| matches!(*one, "--prompt" | "--trace"));
            assert!(local.1.contains(id) || !names_it, "{}", local.1);
            if arguments.contains(&"--json") && arguments.contains(&"list") {
                // The age may have grown by a second.
                let without_age = |text: &str| text.split("\"age_s\"").next().unwrap_or_default().to_owned();
                assert_eq!(without_age(&local.1), without_age(&remote_arguments.1));
                continue;
            }
            let value = |text: &str| {
                serde_json::from_str::<Value>(text).map(|mut value| {
                    if let Some(age) = value.get_mut("age_s") {
                        *age = Value::Null;
                    }
                    // The learnings in the loop's prompts are not part of the API.
                    if let Some(turn) = value.get_mut(0) {
                        turn["learnings"] = Value::Null;
                    }
                    value
                })
            };
            match (value(&local.1), value(&remote_arguments.1)) {
                (Ok(local), Ok(remote_arguments)) => assert_eq!(local, remote_arguments, "{arguments:?}"),
                _ => assert_eq!(local, remote_arguments, "{arguments:?}"),
            }
        }
        for (arguments, token, says) in [
            (remote(&["show", "r-9-zzzzzz"]), api.token.as_str(), "there is no loop r-9-zzzzzz, or you may not see it"),
            (remote(&["list"]), "ralph_0", "refused the token in API_TOKEN"),
            (remote(&["show", id, "--report"]), api.token.as_str(), "--report sums up all loops of the database"),
            (
                vec![
                    "list".to_owned(),
                    "--server".to_owned(),
                    world.forge.url().to_string(),
                    "--token-env".to_owned(),
                    "API_TOKEN".to_owned(),
                ],
                api.token.as_str(),
                "it has no API of ralph-bot at this address",
            ),
        ] {
            let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let (code, _, errors) = loops_of(world, &words, token).await;
            assert!(code.is_some_and(|code| code > 0) && errors.contains(says), "{arguments:?}: {errors}");
            assert!(!errors.contains(&api.token), "{errors}");
        }
    })
    .await;
}

/// Agent that makes no progress, so that control raises alarms and the overseer detects it.
const STUCK: &str = "echo \"$RALPH_ITERATION wrong\" >answer.txt\n";

async fn api_returns_control_values(dialect: Dialect) {
    let config = "limits: { iterations: 30, comments_per_hour: 1000, comments_per_day: 1000 }";
    story(Setup::new(dialect).agent(STUCK).config(config), async |world| {
        let stopped = world.run().await;
        let api = TokenClient::of_operator(world).await;
        let detail = api.found(&format!("/loops/{}", stopped.id)).await;
        let iterations = api.found(&format!("/loops/{}/iterations", stopped.id)).await;
        let listed = iterations["iterations"].as_array().expect("iterations");
        assert_eq!(listed.len(), stopped.iterations.len());
        let (mut alarms, mut detections) = (0, 0);
        for (answered, stored) in listed.iter().zip(&stopped.iterations) {
            let judged = stored.judged.as_ref().expect("judged");
            let control = judged.control.as_ref().expect("figures");
            let figures = &answered["figures"];
            assert_eq!(figures["health"], json!(judged.health), "{answered:#}");
            assert_eq!(figures["signal"], json!(judged.signal));
            assert_eq!(figures["terms"], json!({ "p": control.terms.p, "i": control.terms.i, "d": control.terms.d }));
            assert_eq!(figures["gains"]["kp"], json!(control.gains.kp));
            assert_eq!(figures["profile_change"], json!(control.transition));
            let sum: f64 = ["p", "i", "d"].iter().filter_map(|term| figures["terms"][term].as_f64()).sum();
            assert!((sum.clamp(0.0, 1.0) - judged.signal).abs() < 1e-9, "{figures}");
            for (answered, stored) in figures["alarms"].as_array().expect("alarms").iter().zip(&control.alarms) {
                assert_eq!((&answered["kind"], &answered["message"]), (&json!(stored.kind), &json!(stored.message)));
                alarms += usize::from(answered["raised"] == true);
            }
            for (answered, stored) in answered["detections"].as_array().expect("detections").iter().zip(&judged.found) {
                assert_eq!(
                    (&answered["level"], &answered["evidence"]),
                    (&json!(stored.level), &json!(stored.evidence))
                );
                detections += 1;
            }
        }
        assert!(alarms > 0 && detections > 0, "{alarms} alarms, {detections} detections: {iterations:#}");
        let supervision = &detail["supervision"];
        assert_eq!(supervision["iteration"], json!(stopped.iterations.last().expect("one").number));
        assert_eq!(supervision["figures"], listed.last().expect("one")["figures"]);
        let raised = supervision["alarms_raised"].as_object().expect("counts").values();
        assert_eq!(raised.filter_map(Value::as_u64).sum::<u64>(), alarms as u64, "{supervision}");
        // All of it fits the description.
        let description = api.found("/openapi.json").await;
        for (path, answer) in [("/loops/{id}", &detail), ("/loops/{id}/iterations", &iterations)] {
            let schema =
                &description["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"];
            assert_fits(&description, schema, answer, path);
        }
    })
    .await;
}

async fn learnings_are_filtered_and_reflections_listed(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let done = world.run().await;
        let (repo, id, now) = (done.issue.repo.clone(), done.id.clone(), world.clock.now());
        let settings = world.engine().recall.settings.clone();
        let stored = world.engine().store.write(move |c| {
            let learning = remembered(&repo, "Run the generator before the tests.", &id, now);
            memory::learn(c, &Masker::default(), learning, &settings, now)?;
            let reflection = Reflection {
                iteration: 7,
                approach: "a parser by hand".into(),
                failed: "the check `test`".into(),
                why: "commas are not read".into(),
                next: "read the lexer".into(),
                outcome: ReflectionOutcome::Same,
                edited_by: None,
            };
            memory::add_reflection(c, &Masker::default(), &id, &reflection, now)
        });
        stored.await.expect("stored");
        let api = TokenClient::of_operator(world).await;
        let place = done.issue.repo.to_string();
        let rules = async |query: &str| {
            let answer = api.found(&format!("/memory{query}")).await;
            let learnings = answer["learnings"].as_array().expect("learnings").clone();
            learnings.iter().filter(|one| one["says"].as_str().is_some_and(|says| says.contains("generator"))).count()
        };
        for (query, found) in [
            ("", 1),
            ("?kind=convention", 1),
            ("?kind=strategy", 0),
            ("?q=generator&kind=convention", 1),
            ("?q=generator&kind=antipattern", 0),
            ("?task_type=other&min_confidence=0.5", 1),
            ("?task_type=docs", 0),
            ("?min_confidence=1", 0),
            ("?repository=mira/app", 1),
            ("?repository=mira/lib", 0),
            (format!("?repository={place}").as_str(), 1),
            ("?min_success_rate=1&min_confidence=1", 0),
        ] {
            assert_eq!(rules(query).await, found, "{query}");
        }
        for (query, expected) in [
            ("kind=rule", "strategy, antipattern, estimate, convention"),
            ("task_type=tests", "test-fix"),
            ("min_confidence=7", "0 to 1"),
            ("min_success_rate=-1", "0 to 1"),
            ("repository=app", "owner/name"),
        ] {
            let (status, problem) = api.get(&format!("/memory?{query}")).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{query}: {problem}");
            assert!(problem.to_string().contains(expected), "{query}: {problem}");
        }
        let reflections = api.found(&format!("/loops/{}/reflections", done.id)).await;
        let last = reflections["reflections"].as_array().and_then(|all| all.last()).expect("a reflection");
        assert_eq!((&last["iteration"], &last["next"]), (&json!(7), &json!("read the lexer")), "{reflections}");
        let path = format!("/loops/{}/reflections/7", done.id);
        let (status, edited) = api.post(&path, &json!({ "next": "ask a maintainer" })).await;
        assert_eq!(status, StatusCode::OK, "{edited}");
        assert_eq!((&edited["next"], &edited["why"]), (&json!("ask a maintainer"), &json!("commas are not read")));
        assert_eq!(edited["edited_by"], "the operator");
        for (path, body, expected) in [
            (&path, json!({ "outcome": "done" }), StatusCode::BAD_REQUEST),
            (&path.replace("/7", "/70"), json!({ "next": "x" }), StatusCode::NOT_FOUND),
        ] {
            let (status, problem) = api.post(path, &body).await;
            assert_eq!(status, expected, "{path}: {problem}");
        }
        for expected in [StatusCode::NO_CONTENT, StatusCode::NOT_FOUND] {
            let (status, problem) = TokenClient::sent(api.request(Method::DELETE, &path)).await;
            assert_eq!(status, expected, "{problem}");
        }
        let (status, problem) = api.get("/loops/r-9-zzzzzz/reflections").await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{problem}");
    })
    .await;
}

/// Route of the dashboard's button, for programs.
async fn api_enables_a_stopped_backend(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.run().await;
        let engine = world.engine().clone();
        let (settings, now) = (engine.calls.settings.backends.clone(), engine.clock.now());
        let stopped = BackendObservation::Disabled { backend: "mine".into(), reason: "its key was revoked".into() };
        let observed = engine.store.write(move |c| calls::observe(c, &stopped, &settings, now)).await;
        assert!(!observed.expect("stored").changes.is_empty());
        let api = TokenClient::of_operator(world).await;
        let listed = api.found("/backends").await;
        assert_eq!(listed["backends"][0]["state"], "disabled", "{listed}");
        for changed in [true, false] {
            let (status, answer) = api.post("/backends/mine/enable", &json!({})).await;
            assert_eq!((status, &answer["changed"]), (StatusCode::OK, &json!(changed)), "{answer}");
            assert_eq!((&answer["backend"]["name"], &answer["backend"]["state"]), (&json!("mine"), &json!("active")));
        }
        let (status, problem) = api.post("/backends/zebra/enable", &json!({})).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{problem}");
        assert!(problem["action"].as_str().is_some_and(|action| action.contains("GET /backends")), "{problem}");
        let owner = TokenOwner { account: None, operator: true };
        let reader = TokenClient::with(world, owner, ApiScope::Read).await;
        let (status, problem) = reader.post("/backends/mine/enable", &json!({})).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{problem}");
        let rows = engine.store.read(|c| access_audit::newest(c, None, 9)).await.expect("read");
        let rows: Vec<_> = rows.iter().map(|row| (row.path.as_str(), row.status)).collect();
        let path = "/api/v1/backends/mine/enable";
        let expected =
            [(path, Some(403)), ("/api/v1/backends/zebra/enable", Some(404)), (path, Some(200)), (path, Some(200))];
        assert_eq!(rows, expected);
    })
    .await;
}
