//! Rights: every route of the dashboard and the API for each kind of viewer, by table; changes that another site forges; rights
//! and tokens that end; headers and sizes of requests.

use std::collections::BTreeSet;

use fake_forge::{Access, Dialect};
use ralph_bot::domain::knowledge::memory::Remark;
use ralph_bot::domain::loops::{Loop, LoopState};
use ralph_bot::domain::model::ids::{LoopId, Timestamp};
use ralph_bot::domain::trust::viewer::ViewRight;
use ralph_bot::store::inbox::{self, Body, DeliveryOutcome, StoredDelivery};
use ralph_bot::store::memory::proposals;
use ralph_bot::web::{self, viewer_of_token};
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::service::{Service, stop};
use crate::harness::viewers::{
    BrowserAnswer, LoginBrowser, ViewerKind, as_viewer, open_logins, person, prepare_logins, repo_ref, viewer, web,
    with_login,
};
use crate::harness::{Setup, World, on_both_forges, on_one_forge, prepared_story};

on_both_forges!(
    /// See docs/research/threats.md#v6.
    lost_right_ends_views_changes_and_tokens,
);

on_one_forge!(
    /// See docs/research/threats.md#v7.
    every_route_checks_the_rights_of_the_viewer,
    /// See docs/research/threats.md#v1.
    changes_of_other_sites_are_refused_by_every_route,
    requests_that_read_change_nothing,
    /// See docs/research/threats.md#v7.
    tokens_of_others_are_unknown,
    /// See docs/research/threats.md#v3.
    addresses_inject_no_headers,
    large_bodies_are_refused,
    /// See docs/research/threats.md#i11.
    hostile_values_forge_no_log_lines,
);

/// A route with the status of its answer to each kind of viewer, in the order of [`ViewerKind::ALL`].
struct RightsRow {
    method: &'static str,
    route: &'static str,
    /// Path with its query; empty for the route itself. Names in braces are replaced, see [`filled`].
    path: &'static str,
    /// Form without its `csrf` value, or JSON for the API.
    body: &'static str,
    statuses: [u16; 5],
}

const fn get(route: &'static str, path: &'static str, statuses: [u16; 5]) -> RightsRow {
    RightsRow { method: "GET", route, path, body: "", statuses }
}

const fn post(route: &'static str, body: &'static str, statuses: [u16; 5]) -> RightsRow {
    RightsRow { method: "POST", route, path: "", body, statuses }
}

const fn delete(route: &'static str, path: &'static str, statuses: [u16; 5]) -> RightsRow {
    RightsRow { method: "DELETE", route, path, body: "", statuses }
}

/// Any logged-in account; the content depends on the rights in each repository.
const LOGIN: [u16; 5] = [303, 200, 200, 200, 200];
const API_LOGIN: [u16; 5] = [401, 200, 200, 200, 200];
/// With the right to read the loop's repository.
const READ: [u16; 5] = [303, 200, 200, 404, 200];
const API_READ: [u16; 5] = [401, 200, 200, 404, 200];
/// With the right to write there.
const WRITE: [u16; 5] = [303, 403, 200, 404, 200];
const OPERATOR: [u16; 5] = [303, 403, 403, 403, 200];

/// Every route of the service. The order matters where a row uses an object of an earlier row.
const ROWS: [RightsRow; 71] = [
    get("/", "/?state=limit_reached&page=1", LOGIN),
    get("/", "", LOGIN),
    get("/events", "", LOGIN),
    get("/loops/{id}", "", READ),
    get("/loops/{id}/report", "", READ),
    get("/loops/{id}/events", "", READ),
    get("/loops/{id}/audit.json", "", READ),
    post("/loops/{id}/commands", "command=/ralph help", [401, 403, 200, 404, 403]),
    get("/loops/{id}/iterations/{number}", "", READ),
    get("/loops/{id}/iterations/{number}", "/loops/{id}/iterations/2?diff=total&line=3", READ),
    get("/loops/{id}/iterations/{number}/{part}", "/loops/{id}/iterations/1/transcript.txt", WRITE),
    get("/loops/{id}/iterations/{number}/{part}", "/loops/{id}/iterations/1/part-0.txt", WRITE),
    get("/loops/{id}/iterations/{number}/{part}", "/loops/{id}/iterations/1/change.txt", WRITE),
    get("/loops/{id}/iterations/{number}/{part}", "/loops/{id}/iterations/1/branch.txt", WRITE),
    get("/search", "", LOGIN),
    get("/search", "/search?q=Visible", LOGIN),
    get("/costs", "", LOGIN),
    get("/costs.csv", "", LOGIN),
    get("/tokens", "", LOGIN),
    post("/tokens", "name=page&scope=read&days=1", [401, 201, 201, 201, 201]),
    post("/tokens/{token}/revoke", "", [401, 303, 303, 303, 303]),
    get("/memory", "", LOGIN),
    get("/memory", "/memory?loop={id}", WRITE),
    post("/memory/reflections/{id}/{number}", "answer=save&approach=x", [401, 404, 303, 404, 403]),
    post("/memory/proposals/{number}", "answer=accept", [401, 404, 303, 404, 403]),
    post("/memory/forget", "id={learning}", [401, 404, 303, 404, 403]),
    get("/backends", "", OPERATOR),
    post("/backends/{name}/enable", "", [401, 403, 403, 403, 303]),
    get("/repositories", "", OPERATOR),
    get("/deliveries", "", OPERATOR),
    post("/deliveries/{id}/retry", "", [401, 403, 403, 403, 303]),
    get("/audit", "", OPERATOR),
    get("/assets/{hash}/{*name}", "{asset}", [200; 5]),
    get("/login", "", [200, 303, 303, 303, 303]),
    post("/login", "token=guess", [403; 5]),
    get("/login/start/{forge}", "/login/start/forge", [303; 5]),
    get("/login/callback/{forge}", "/login/callback/forge?code=x&state=y", [403; 5]),
    get("/api/v1/openapi.json", "", [200; 5]),
    get("/api/v1/me", "", API_LOGIN),
    get("/api/v1/loops", "", API_LOGIN),
    get("/api/v1/loops", "/api/v1/loops?repository=mira/app&waits=true", API_LOGIN),
    get("/api/v1/loops/{id}", "", API_READ),
    get("/api/v1/loops/{id}/iterations", "", API_READ),
    get("/api/v1/loops/{id}/iterations/{number}", "", API_READ),
    get("/api/v1/loops/{id}/reflections", "", [401, 403, 200, 404, 200]),
    post("/api/v1/loops/{id}/reflections/{number}", r#"{"next":"x"}"#, [401, 404, 200, 404, 403]),
    delete(
        "/api/v1/loops/{id}/reflections/{number}",
        "/api/v1/loops/{id}/reflections/{reflection}",
        [401, 404, 204, 404, 403],
    ),
    get("/api/v1/loops/{id}/audit", "", [401, 403, 200, 404, 200]),
    get("/api/v1/loops/{id}/report", "", API_READ),
    get("/api/v1/loops/{id}/events", "", API_READ),
    get("/api/v1/events", "", API_LOGIN),
    post("/api/v1/loops/{id}/commands", r#"{"command":"/ralph help"}"#, [401, 403, 200, 404, 403]),
    get("/api/v1/search", "/api/v1/search?q=OUTPUTMARK", API_LOGIN),
    get("/api/v1/search", "/api/v1/search?q=TRANSCRIPTMARK&limit=50", API_LOGIN),
    get("/api/v1/search", "/api/v1/search?q=Visible", API_LOGIN),
    get("/api/v1/search", "/api/v1/search?q=OUTPUTMARK&loop={id}", API_READ),
    get("/api/v1/costs", "/api/v1/costs?by=person", API_LOGIN),
    get("/api/v1/backends", "", [401, 403, 403, 403, 200]),
    post("/api/v1/backends/{name}/enable", "{}", [401, 403, 403, 403, 200]),
    get("/api/v1/forges", "", API_LOGIN),
    get("/api/v1/audit", "", [401, 403, 403, 403, 200]),
    get("/api/v1/memory", "", API_LOGIN),
    get("/api/v1/memory", "/api/v1/memory?q=RULEMARK", API_LOGIN),
    get("/api/v1/memory/proposals", "", API_LOGIN),
    post("/api/v1/memory/proposals/{number}/accept", "{}", [401, 404, 200, 404, 403]),
    post("/api/v1/memory/proposals/{number}/decline", "{}", [401, 404, 200, 404, 403]),
    delete("/api/v1/memory/{id}", "/api/v1/memory/{learning}", [401, 404, 204, 404, 403]),
    get("/api/v1/tokens", "", API_LOGIN),
    post("/api/v1/tokens", r#"{"name":"another","scope":"write"}"#, [401, 201, 201, 201, 201]),
    delete("/api/v1/tokens/{token}", "", [401, 204, 204, 204, 204]),
    post("/logout", "", [401, 303, 303, 303, 303]),
];

/// Texts of agents and checks, which need the right to write: of the prompt, the agent's answer, a check's output, the change, the
/// guidance, a proposal and a learning.
const HIDDEN: [&str; 7] =
    ["PROMPTMARK", "TRANSCRIPTMARK", "OUTPUTMARK", "DIFFMARK", "GUIDANCEMARK", "REMARKMARK", "RULEMARK"];
/// Word of the loop's title.
const VISIBLE: &str = "Visiblemark";

/// Remarks that recur in different words.
const REMARKS: [&str; 9] = [
    "Tests have names that tell what they show, REMARKMARK RULEMARK.",
    "Imports of the standard library come first in REMARKMARK RULEMARK files.",
    "Never panic while parsing configuration, REMARKMARK RULEMARK.",
    "Durations are written with their unit behind the number: REMARKMARK RULEMARK.",
    "Public functions deserve documentation, say REMARKMARK RULEMARK.",
    "Close database connections before the process exits: REMARKMARK RULEMARK.",
    "Changelog entries are sorted by importance, REMARKMARK RULEMARK.",
    "Colors need enough contrast against dark backgrounds, REMARKMARK RULEMARK.",
    "Retry network requests with growing pauses: REMARKMARK RULEMARK.",
];

fn is_stream(row: &RightsRow) -> bool {
    row.route.ends_with("/events")
}

fn is_api(row: &RightsRow) -> bool {
    row.route.starts_with("/api/")
}

/// Runs a story of a loop with two iterations that stopped at its limit, with proposals and learnings.
async fn rights_story(dialect: Dialect, scenario: impl AsyncFnOnce(&mut World, &LoopId)) {
    // Without a report, the summary would be the agent's output.
    let agent = "echo TRANSCRIPTMARK\necho DIFFMARK >>notes.txt\necho 40 >answer.txt\nprintf '{\"summary\": \"tried\"}' >\"$RALPH_REPORT\"\n";
    let mut setup = Setup::new(dialect).agent(agent).file("check.sh", "echo OUTPUTMARK\nexit 1\n");
    setup = with_login(setup.config("limits: { iterations: 1 }"));
    setup.title = format!("{VISIBLE} is wrong");
    setup.body = "PROMPTMARK: it should be 42.".into();
    prepared_story(setup, prepare_logins, async |world| {
        open_logins(world).await;
        world.run().await;
        world.comment("/ralph resume --max-iterations 2 GUIDANCEMARK").await;
        world.settle().await;
        let stopped = world.the_loop().await;
        assert_eq!((stopped.state, stopped.iterations.len()), (LoopState::LimitReached, 2), "{}", stopped.why);
        propose(world, &stopped).await;
        let mut writer = as_viewer(world, ViewerKind::Writer).await;
        for _ in 0..3 {
            let path = filled(world, "/memory/proposals/{number}", &stopped.id, 1).await;
            assert_eq!(writer.post(&path, "answer=accept").await.status, 303);
        }
        scenario(world, &stopped.id).await;
        let removed =
            world.engine().store.write(|c| Ok(c.execute("DELETE FROM inbox WHERE delivery LIKE 'given-up-%'", [])?));
        removed.await.expect("removed");
        world.settle().await;
    })
    .await;
}

/// Stores remarks until each is a proposal.
async fn propose(world: &World, of: &Loop) {
    let (repo, settings) = (of.issue.repo.clone(), world.engine().recall.settings.clone());
    let stored = world.engine().store.write(move |c| {
        for text in REMARKS {
            for loop_id in ["r-1-aaaaaa", "r-2-aaaaaa", "r-3-aaaaaa", "r-4-aaaaaa", "r-5-aaaaaa"] {
                let remark = Remark { loop_id: LoopId::new(loop_id), text: text.into() };
                proposals::add_remark(c, &repo, &remark, &settings, Timestamp(1_790_000_000_000))?;
            }
        }
        proposals::proposals(c, false)
    });
    assert_eq!(stored.await.expect("stored").len(), REMARKS.len());
}

/// Stores a delivery that was given up, and returns its id.
async fn dead_delivery(world: &World) -> i64 {
    let name = format!("given-up-{}", fastrand::u64(..));
    let stored = world.engine().store.write(move |c| {
        let forge = ralph_bot::domain::model::ids::ForgeName::new("forge");
        let (delivery, body) = (name.clone(), Body::pack(b"{}"));
        inbox::insert(
            c,
            &StoredDelivery { forge, delivery, event: "ping".into(), body },
            Timestamp(1_790_000_000_000),
        )?;
        let id: i64 = c.query_row("SELECT id FROM inbox WHERE delivery = ?1", [&name], |row| row.get(0))?;
        inbox::finish(c, id, DeliveryOutcome::Dead, "the forge was away")?;
        Ok(id)
    });
    stored.await.expect("stored")
}

/// Replaces the names in braces of a path or body.
async fn filled(world: &World, text: &str, id: &LoopId, token: i64) -> String {
    let mut text = text.to_owned();
    if text.starts_with("/deliveries/") {
        text = text.replace("{id}", &dead_delivery(world).await.to_string());
    }
    let read = world.engine().store.read(|c| {
        let one = |sql: &str| c.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap_or_default();
        let proposal = one("SELECT CAST(min(id) AS TEXT) FROM proposals WHERE state = 'open'");
        let reflection = one("SELECT CAST(coalesce(min(iteration), 1) AS TEXT) FROM reflections");
        Ok((proposal, reflection, one("SELECT learning FROM learnings ORDER BY id LIMIT 1")))
    });
    let (proposal, reflection, learning) = read.await.expect("read");
    let number = if text.contains("proposals") { proposal } else { "1".to_owned() };
    let pairs = [
        ("{id}", id.to_string()),
        ("{number}", number),
        ("{learning}", learning),
        ("{reflection}", reflection),
        ("{token}", token.to_string()),
        ("{name}", "mine".to_owned()),
    ];
    pairs.iter().fold(text, |text, (name, value)| text.replace(name, value))
}

/// A viewer with a session and two personal tokens.
struct Asking {
    kind: ViewerKind,
    browser: LoginBrowser,
    /// Token of scope `read`, and of scope `write`.
    tokens: [String; 2],
}

impl Asking {
    async fn new(world: &World, kind: ViewerKind) -> Self {
        let mut browser = as_viewer(world, kind).await;
        let mut tokens = [String::new(), String::new()];
        for (token, scope) in tokens.iter_mut().zip(["read", "write"]).filter(|_| kind != ViewerKind::Nobody) {
            *token = made_token(&mut browser, scope).await["token"].as_str().expect("a token").to_owned();
        }
        Self { kind, browser, tokens }
    }

    /// Sends the request of a row with the session.
    async fn by_session(&mut self, row: &RightsRow, path: &str, body: &str) -> BrowserAnswer {
        let method = Method::from_bytes(row.method.as_bytes()).expect("a method");
        if is_stream(row) {
            return self.browser.listen(path, &[]).await;
        }
        if row.method == "GET" {
            return self.browser.get(path).await;
        }
        if !is_api(row) {
            return self.browser.post(path, body).await;
        }
        let headers = self.browser.page_headers();
        self.browser.send(method, path, &borrowed(&headers), Some(body.to_owned())).await
    }

    /// Sends the request of a row with a token, and without a session.
    async fn by_token(&self, world: &World, row: &RightsRow, path: &str, body: &str, token: usize) -> BrowserAnswer {
        let method = Method::from_bytes(row.method.as_bytes()).expect("a method");
        let bearer = format!("Bearer {}", self.tokens[token]);
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let mut program = LoginBrowser::new(world);
        match is_stream(row) {
            true => program.listen(path, &headers).await,
            false => program.send(method, path, &headers, Some(body.to_owned()).filter(|_| row.method != "GET")).await,
        }
    }
}

fn borrowed<'a>(headers: &'a [(&'static str, String)]) -> Vec<(&'static str, &'a str)> {
    headers.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

/// Makes a personal token by the API, in a session.
async fn made_token(browser: &mut LoginBrowser, scope: &str) -> Value {
    let headers = browser.page_headers();
    let headers = borrowed(&headers);
    let body = json!({ "name": "test", "scope": scope, "days": 1 }).to_string();
    let made = browser.send(Method::POST, "/api/v1/tokens", &headers, Some(body)).await;
    assert_eq!(made.status, 201, "{made:?}");
    serde_json::from_str(&made.text).expect("JSON")
}

/// Asserts that an answer shows nothing that its viewer may not see.
fn assert_shows(kind: ViewerKind, row: &RightsRow, answer: &BrowserAnswer, id: &LoopId, what: &str) {
    let text = &answer.text;
    let sees_texts = matches!(kind, ViewerKind::Writer | ViewerKind::Operator);
    // A search page does not contain its query.
    if let Some(mark) = HIDDEN.iter().find(|mark| !sees_texts && text.contains(**mark)) {
        panic!("{what} shows {mark}: {text}");
    }
    if matches!(kind, ViewerKind::Nobody | ViewerKind::OtherWriter) {
        let shown =
            text.contains(VISIBLE) || text.contains("mira") || (answer.status == 200 && text.contains(id.as_str()));
        assert!(!shown, "{what} tells of the repository: {text}");
    }
    let is_page = answer.header("content-type").starts_with("text/html") && !row.route.starts_with("/login");
    let buttons = text.matches("<form method=\"post\" action=\"/loops/").count()
        + text.matches("<form method=\"post\" action=\"/memory/").count();
    assert!(kind == ViewerKind::Writer || !is_page || buttons == 0, "{what} has {buttons} buttons: {text}");
    assert!(kind == ViewerKind::Operator || !is_page || !text.contains("href=\"/deliveries\""), "{what}: {text}");
}

async fn every_route_checks_the_rights_of_the_viewer(dialect: Dialect) {
    let named: BTreeSet<(String, String)> =
        ROWS.iter().map(|row| (row.method.to_owned(), row.route.to_owned())).collect();
    let served: BTreeSet<(String, String)> = web::routes().into_iter().collect();
    assert_eq!(named, served, "each route has a row, and each row a route");
    assert_documented();
    rights_story(dialect, async |world, id| {
        let asset = as_viewer(world, ViewerKind::Operator).await.get("/").await.text;
        let asset =
            asset.split("href=\"").find_map(|rest| rest.strip_prefix("&#x2f;assets").or(rest.strip_prefix("/assets")));
        let asset = asset.and_then(|rest| rest.split('"').next()).expect("a style sheet").replace("&#x2f;", "/");
        let asset = format!("/assets{asset}");
        let (mut shown, mut pressed) = (BTreeSet::new(), 0);
        let mut viewers = Vec::new();
        for kind in ViewerKind::ALL {
            viewers.push(Asking::new(world, kind).await);
        }
        for row in &ROWS {
            for (asking, expected) in viewers.iter_mut().zip(row.statuses) {
                let kind = asking.kind;
                let own = match row.route.contains("{token}") && kind != ViewerKind::Nobody {
                    true => made_token(&mut asking.browser, "read").await["info"]["id"].as_i64().expect("a number"),
                    false => 1,
                };
                let path = if row.path.is_empty() { row.route } else { row.path };
                let path = filled(world, path, id, own).await.replace("{asset}", &asset);
                let body = filled(world, row.body, id, own).await;
                let what = format!("{} {path} by {kind:?}", row.method);
                let answer = asking.by_session(row, &path, &body).await;
                assert_eq!(answer.status, expected, "{what}: {answer:?}");
                if kind == ViewerKind::Nobody && answer.status == 303 && !row.route.starts_with("/login") {
                    assert!(answer.location().starts_with("/login?next="), "{what}: {answer:?}");
                }
                assert_eq!(answer.header("x-content-type-options"), "nosniff", "{what}");
                assert_eq!(answer.header("cross-origin-resource-policy"), "same-origin", "{what}");
                assert!(answer.header("content-security-policy").contains("default-src 'none'"), "{what}: {answer:?}");
                assert_shows(kind, row, &answer, id, &what);
                if kind == ViewerKind::Writer {
                    shown.extend(
                        HIDDEN.iter().filter(|mark| answer.text.contains(**mark)).map(|mark| (is_api(row), *mark)),
                    );
                    pressed += answer.text.matches("<form method=\"post\" action=\"/loops/").count();
                }
                if !is_api(row) || kind == ViewerKind::Nobody {
                    continue;
                }
                // The same by personal tokens: one of scope `read` reads, and changes nothing.
                let reads = row.method == "GET";
                let own = match row.route.contains("{token}") {
                    true => made_token(&mut asking.browser, "read").await["info"]["id"].as_i64().expect("a number"),
                    false => 1,
                };
                let path = filled(world, if row.path.is_empty() { row.route } else { row.path }, id, own).await;
                if !reads {
                    let answer = asking.by_token(world, row, &path, &body, 0).await;
                    assert_eq!(answer.status, 403, "{what} with a token that reads: {answer:?}");
                }
                let expected = if row.method == "POST" && row.route == "/api/v1/tokens" { 403 } else { expected };
                let answer = asking.by_token(world, row, &path, &body, usize::from(!reads)).await;
                assert_eq!(answer.status, expected, "{what} with a token: {answer:?}");
                assert_shows(kind, row, &answer, id, &what);
            }
        }
        // The API has no changes of files.
        let unseen =
            |api: bool| HIDDEN.iter().filter(|mark| !shown.contains(&(api, **mark))).copied().collect::<Vec<_>>();
        assert_eq!((unseen(false), unseen(true)), (Vec::new(), vec!["DIFFMARK"]), "who may write sees all texts");
        assert!(pressed > 3, "who may write has buttons");
        // Requests outside of the table: other methods, and paths without a route.
        let mut writer = as_viewer(world, ViewerKind::Writer).await;
        for row in ROWS.iter().filter(|row| row.method == "POST") {
            let path = filled(world, row.route, id, 1).await;
            let reads = ROWS.iter().any(|other| other.method == "GET" && other.route == row.route);
            assert!(reads || writer.get(&path).await.status == 405, "{path}");
        }
        assert_eq!(writer.get("/api/v1/nothing").await.status, 404);
        assert_eq!(writer.get("/nothing").await.status, 404);
        // A personal token opens no page.
        let token = made_token(&mut writer, "write").await["token"].as_str().expect("a token").to_owned();
        let bearer = format!("Bearer {token}");
        let page = LoginBrowser::new(world).send(Method::GET, "/", &[("authorization", bearer.as_str())], None).await;
        assert_eq!(page.status, 401, "{page:?}");
    })
    .await;
}

/// Asserts that the table of docs/reference/api.md equals the test's table; writes it with `UPDATE_DOCS`.
fn assert_documented() {
    let cell = |row: &RightsRow, kind: ViewerKind, status: u16| match status {
        303 if kind == ViewerKind::Nobody && !row.route.starts_with("/login") => "login".to_owned(),
        200..400 => "yes".to_owned(),
        status => status.to_string(),
    };
    let mut groups: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    for row in &ROWS {
        let cells: Vec<String> =
            ViewerKind::ALL.into_iter().zip(row.statuses).map(|(kind, status)| cell(row, kind, status)).collect();
        let mut name = format!("{} `{}`", row.method, row.route);
        // A query that needs another right is named with it.
        if groups.iter().any(|(names, known)| *known != cells && names.contains(&name)) {
            name = format!("{} `{}`", row.method, row.path);
        }
        let at = groups.iter().position(|(_, known)| *known == cells).unwrap_or_else(|| {
            groups.push((Vec::new(), cells));
            groups.len() - 1
        });
        if !groups[at].0.contains(&name) {
            groups[at].0.push(name);
        }
    }
    let mut table =
        "| routes | no login | read | write | other repository | operator |\n|---|---|---|---|---|---|\n".to_owned();
    for (names, cells) in groups {
        table.push_str(&format!("| {} | {} |\n", names.join(", "), cells.join(" | ")));
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/api.md");
    let text = std::fs::read_to_string(file).expect("the page");
    let (begin, end) = ("<!-- rights: begin -->\n", "<!-- rights: end -->");
    let (before, rest) = text.split_once(begin).expect("the beginning of the table");
    let (_, after) = rest.split_once(end).expect("the end of the table");
    let expected = format!("{before}{begin}{table}{end}{after}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(file, expected).expect("written");
    } else {
        assert!(text == expected, "docs/reference/api.md has another table; run the test with UPDATE_DOCS=1");
    }
}

/// State that requests can change, as text.
async fn state_of(world: &World) -> String {
    let read = world.engine().store.read(|c| {
        let sql = "SELECT concat_ws(' ', (SELECT group_concat(id || ':' || version || ':' || state) FROM loops),
            (SELECT count(*) FROM inputs), (SELECT group_concat(learning) FROM learnings),
            (SELECT group_concat(id || state) FROM proposals), (SELECT group_concat(id || state) FROM inbox),
            (SELECT group_concat(id || coalesce(revoked_at, '')) FROM tokens), (SELECT count(*) FROM audit))";
        Ok(c.query_row(sql, [], |row| row.get::<_, String>(0))?)
    });
    read.await.expect("read")
}

async fn changes_of_other_sites_are_refused_by_every_route(dialect: Dialect) {
    rights_story(dialect, async |world, id| {
        let mut writer = as_viewer(world, ViewerKind::Writer).await;
        let mut operator = as_viewer(world, ViewerKind::Operator).await;
        let own_token = made_token(&mut writer, "read").await["info"]["id"].as_i64().expect("a number");
        let (of_writer, of_operator) = (writer.csrf(), operator.csrf());
        let mut refused = 0;
        for row in ROWS.iter().filter(|row| row.method != "GET" && row.route != "/login") {
            let path = filled(world, if row.path.is_empty() { row.route } else { row.path }, id, own_token).await;
            let browser = if row.route.starts_with("/deliveries") { &mut operator } else { &mut writer };
            let before = state_of(world).await;
            let (own, body) = (browser.csrf(), filled(world, row.body, id, own_token).await);
            let own = own.as_str();
            let method = Method::from_bytes(row.method.as_bytes()).expect("a method");
            let kind = if is_api(row) { "application/json" } else { "application/x-www-form-urlencoded" };
            let form = |csrf: &str| if is_api(row) { body.clone() } else { format!("{body}&csrf={csrf}") };
            // The value of another session.
            let other = if row.route.starts_with("/deliveries") { &*of_writer } else { &*of_operator };
            let attempts: [(&[(&str, &str)], String); 9] = [
                (&[], body.clone()),
                (&[], form("")),
                (&[], form(other)),
                (&[("x-csrf-token", other)], form(own)),
                (&[("x-csrf-token", "")], form(own)),
                (&[("x-csrf-token", own), ("origin", "https://evil.example")], form(own)),
                (&[("x-csrf-token", own), ("origin", "null")], form(own)),
                (&[("x-csrf-token", own), ("sec-fetch-site", "cross-site")], form(own)),
                (&[("x-csrf-token", own), ("sec-fetch-site", "same-site")], form(own)),
            ];
            for (headers, body) in attempts {
                let mut all = vec![("content-type", kind)];
                all.extend(headers);
                let answer = browser.send(method.clone(), &path, &all, Some(body)).await;
                assert_eq!(answer.status, 403, "{} {path} {headers:?}: {answer:?}", row.method);
                refused += 1;
            }
            // A form of another site may send these kinds without asking; the API takes none of them.
            for kind in ["text/plain", "multipart/form-data; boundary=x", ""] {
                let answer = browser.send(method.clone(), &path, &[("content-type", kind)], Some(body.clone())).await;
                assert_eq!(answer.status, 403, "{} {path} as {kind}: {answer:?}", row.method);
            }
            assert_eq!(state_of(world).await, before, "{path} changed something");
        }
        assert!(refused > 80, "{refused}");
        assert!(writer.is_logged_in().await && operator.is_logged_in().await);
    })
    .await;
}

async fn requests_that_read_change_nothing(dialect: Dialect) {
    rights_story(dialect, async |world, id| {
        let dead = dead_delivery(world).await;
        let mut browsers = [as_viewer(world, ViewerKind::Writer).await, as_viewer(world, ViewerKind::Operator).await];
        let before = state_of(world).await;
        for browser in &mut browsers {
            for row in ROWS.iter().filter(|row| !is_stream(row) && !row.route.starts_with("/login")) {
                let path = if row.path.is_empty() { row.route } else { row.path };
                let path = match row.route.starts_with("/deliveries/") {
                    true => format!("/deliveries/{dead}/retry"),
                    false => filled(world, path, id, 1).await.replace("{asset}", "/assets/x/y"),
                };
                // The fields of a change in the address, and a method that is to stand for another one.
                let joint = if path.contains('?') { '&' } else { '?' };
                let query = format!("{}&csrf={}&_method=POST", row.body.replace(' ', "%20"), browser.csrf());
                for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE] {
                    let headers = [("x-http-method-override", "POST")];
                    let address = if is_api(row) { path.clone() } else { format!("{path}{joint}{query}") };
                    let answer = browser.send(method, &address, &headers, None).await;
                    assert!(answer.status < 500, "{address}: {answer:?}");
                }
            }
        }
        world.settle().await;
        assert_eq!(state_of(world).await, before);
    })
    .await;
}

async fn tokens_of_others_are_unknown(dialect: Dialect) {
    rights_story(dialect, async |world, _| {
        let mut writer = as_viewer(world, ViewerKind::Writer).await;
        let made = made_token(&mut writer, "write").await;
        let id = made["info"]["id"].as_i64().expect("a number");
        for kind in [ViewerKind::Reader, ViewerKind::OtherWriter, ViewerKind::Operator] {
            let asking = Asking::new(world, kind).await;
            let mut browser = asking.browser.clone();
            let headers = browser.page_headers();
            let headers = borrowed(&headers);
            let path = format!("/api/v1/tokens/{id}");
            let by_session = browser.send(Method::DELETE, &path, &headers, Some(String::new())).await;
            let bearer = format!("Bearer {}", asking.tokens[1]);
            let by_token =
                LoginBrowser::new(world).send(Method::DELETE, &path, &[("authorization", bearer.as_str())], None).await;
            let unknown = browser.send(Method::DELETE, "/api/v1/tokens/4711", &headers, Some(String::new())).await;
            assert_eq!((by_session.status, by_token.status, unknown.status), (404, 404, 404), "{kind:?}");
            assert_eq!(by_session.text.replace(&id.to_string(), "4711"), unknown.text, "{kind:?}");
            let listed = browser.get("/api/v1/tokens").await.text;
            let listed: Value = serde_json::from_str(&listed).expect("JSON");
            assert_eq!(listed["tokens"].as_array().map(Vec::len), Some(2), "{kind:?}: {listed}");
        }
        let bearer = format!("Bearer {}", made["token"].as_str().expect("a token"));
        let headers = [("authorization", bearer.as_str())];
        let still = LoginBrowser::new(world).send(Method::GET, "/api/v1/me", &headers, None).await;
        assert_eq!(still.status, 200, "nobody else revoked it");
    })
    .await;
}

async fn lost_right_ends_views_changes_and_tokens(dialect: Dialect) {
    rights_story(dialect, async |world, id| {
        let writer = person(world, ViewerKind::Writer);
        let mut asking = Asking::new(world, ViewerKind::Writer).await;
        let (page, api) = (format!("/loops/{id}"), format!("/api/v1/loops/{id}"));
        let command = format!("{page}/commands");
        let give =
            RightsRow { method: "POST", route: "/api/v1/loops/{id}/commands", path: "", body: "", statuses: [0; 5] };
        let look = RightsRow { method: "GET", ..get("/api/v1/loops/{id}", "", [0; 5]) };
        let body = r#"{"command":"/ralph abort"}"#;
        let transcript = format!("{page}/iterations/1/transcript.txt");
        assert_eq!(asking.browser.get(&transcript).await.status, 200);
        // Only the right to write is lost: the next change is refused, and views follow its answer.
        world.forge.grant(world.repo, &writer, Access::Read).expect("granted");
        assert_eq!(asking.browser.get(&transcript).await.status, 200, "an answer of the last five minutes");
        assert_eq!(asking.browser.post(&command, "command=/ralph abort").await.status, 403);
        assert_eq!(asking.browser.get(&transcript).await.status, 403, "the new answer counts for views as well");
        // The whole right is lost.
        world.forge.grant(world.repo, &writer, Access::None).expect("revoked");
        assert_eq!(asking.browser.get(&page).await.status, 200, "an answer of the last five minutes");
        world.clock.advance_ms(4 * 60_000 + 59_000);
        assert_eq!(asking.browser.get(&page).await.status, 200);
        assert_eq!(asking.by_token(world, &look, &api, "", 1).await.status, 200);
        world.clock.advance_ms(1_000);
        assert_eq!(asking.browser.get(&page).await.status, 404, "after five minutes");
        assert_eq!(asking.by_token(world, &look, &api, "", 1).await.status, 404);
        assert_eq!(asking.browser.post(&command, "command=/ralph abort").await.status, 404);
        assert_eq!(asking.by_token(world, &give, &format!("{api}/commands"), body, 1).await.status, 404);
        assert_eq!(world.the_loop().await.state, LoopState::LimitReached, "nothing happened");
        // It is given back: a change asks at once, by the token, too.
        world.forge.grant(world.repo, &writer, Access::Write).expect("granted");
        assert_eq!(asking.browser.post(&command, "command=/ralph help").await.status, 200);
        world.forge.grant(world.repo, &writer, Access::Read).expect("granted");
        assert_eq!(asking.by_token(world, &give, &format!("{api}/commands"), body, 1).await.status, 403);
        world.forge.grant(world.repo, &writer, Access::Write).expect("granted");

        // A revoked token ends at once, also where it listens.
        let (access, engine) = (&web(world).access, world.engine());
        let mut listening = viewer(world, ViewerKind::Writer);
        let now = engine.clock.now();
        let token = viewer_of_token(&engine.store, &asking.tokens[0], now).await.expect("read").expect("valid");
        let number = token.stored.id;
        listening.token = Some(std::sync::Arc::new(token));
        assert!(access.may_go_on(engine, &listening, Some(&repo_ref(world)), ViewRight::Read).await);
        let headers = asking.browser.page_headers();
        let headers = borrowed(&headers);
        let path = format!("/api/v1/tokens/{number}");
        let revoked = asking.browser.send(Method::DELETE, &path, &headers, Some(String::new())).await;
        assert_eq!(revoked.status, 204);
        assert!(!access.may_go_on(engine, &listening, Some(&repo_ref(world)), ViewRight::Read).await);
        assert_eq!(asking.by_token(world, &look, &api, "", 0).await.status, 401);
        // One that has expired is refused as well.
        assert_eq!(asking.by_token(world, &look, &api, "", 1).await.status, 200);
        world.clock.advance_ms(24 * 3_600_000);
        assert_eq!(asking.by_token(world, &look, &api, "", 1).await.status, 401);
    })
    .await;
}

async fn addresses_inject_no_headers(dialect: Dialect) {
    rights_story(dialect, async |world, id| {
        let mut browser = as_viewer(world, ViewerKind::Writer).await;
        let inject = "x%0d%0aset-cookie:%20evil=1%0d%0a%0d%0a%3cscript%3ealert(1)%3c%2fscript%3e%1b[31m";
        let paths = [
            format!("/login?next=/{inject}"),
            format!("/login?token={inject}"),
            format!("/login/start/{inject}"),
            format!("/login/start/forge?next=/{inject}"),
            format!("/login/callback/{inject}?code={inject}&state={inject}"),
            format!("/loops/{inject}"),
            format!("/loops/{id}?answer={inject}"),
            format!("/loops/{id}/iterations/1/{inject}"),
            format!("/?repository={inject}&person={inject}&state={inject}"),
            format!("/memory?q={inject}"),
            format!("/assets/{inject}/{inject}"),
            format!("/api/v1/loops/{inject}"),
            format!("/api/v1/loops?{inject}={inject}"),
            format!("/api/v1/search?q={inject}"),
            format!("/api/v1/{inject}"),
        ];
        let hosts =
            [("host", "evil.example"), ("x-forwarded-host", "evil.example"), ("forwarded", "host=evil.example")];
        for path in &paths {
            for logged_in in [true, false] {
                let mut sent = if logged_in { browser.clone() } else { LoginBrowser::new(world) };
                let answer = sent.send(Method::GET, path, &hosts, None).await;
                let what = format!("{path}: {answer:?}");
                assert!(answer.status < 500 && !sent.cookies.contains_key("evil"), "{what}");
                let values: Vec<String> = answer
                    .headers
                    .values()
                    .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
                    .collect();
                assert!(values.iter().all(|value| !value.chars().any(char::is_control)), "{what}");
                assert!(!values.iter().any(|value| value.contains("evil.example")), "{what}");
                let is_text = ["text/plain", "application/json", "application/problem+json"]
                    .iter()
                    .any(|kind| answer.header("content-type").starts_with(kind));
                assert!(is_text || !answer.text.contains("<script>alert"), "{what}");
                assert!(!answer.text.contains("evil.example"), "the name that was asked for is told nowhere: {what}");
            }
        }
        let learning = filled(world, "{learning}", id, 1).await;
        let forgotten = browser.post("/memory/forget", &format!("id={learning}&q={inject}")).await;
        assert_eq!(forgotten.status, 303, "{forgotten:?}");
        assert!(forgotten.location().starts_with("/memory?q=x%0D%0Aset"), "{forgotten:?}");
        assert!(!browser.cookies.contains_key("evil"));
    })
    .await;
}

async fn large_bodies_are_refused(dialect: Dialect) {
    rights_story(dialect, async |world, id| {
        let mut asking = Asking::new(world, ViewerKind::Writer).await;
        let before = state_of(world).await;
        for row in ROWS.iter().filter(|row| row.method == "POST" && row.route != "/logout") {
            let path = filled(world, row.route, id, 1).await;
            let answer = match is_api(row) {
                true => {
                    let large = json!({ "command": "x".repeat(100_000), "name": "x".repeat(100_000) }).to_string();
                    asking.by_session(row, &path, &large).await
                }
                false => asking.browser.post(&path, &format!("text={}", "x".repeat(300 * 1024))).await,
            };
            assert_eq!(answer.status, 413, "{path}: {answer:?}");
        }
        let long = "x".repeat(60_000);
        for path in [format!("/memory?q={long}"), format!("/loops/{long}"), format!("/api/v1/search?q={long}")] {
            let answer = asking.browser.get(&path).await;
            assert!(matches!(answer.status, 200 | 400 | 404 | 414), "{}", answer.status);
            assert!(answer.text.len() < 200_000, "{}", answer.text.len());
        }
        let cookie = format!("ralph-session={}", "a".repeat(30_000));
        let answer = LoginBrowser::new(world).send(Method::GET, "/", &[("cookie", &cookie)], None).await;
        assert!(matches!(answer.status, 303 | 431), "{answer:?}");
        assert_eq!(state_of(world).await.split(' ').next(), before.split(' ').next());
    })
    .await;
}

async fn hostile_values_forge_no_log_lines(dialect: Dialect) {
    const FORGED: &str = "x\\r\\nFORGED {\\\"level\\\":\\\"ERROR\\\"}\\033[2J\\033]0;t\\a";
    let encoded = "x%0d%0aFORGED%20%7B%7D%1b[2J%c2%9b%e2%80%ae";
    for format in ["json", "text"] {
        let agent = format!("printf '{FORGED}\\n' | tee /dev/stderr\nexit 3\n");
        let mut setup = Setup::new(dialect).agent(&agent).file("check.sh", &format!("printf '{FORGED}\\n'\nexit 1\n"));
        setup = setup.config("limits: { iterations: 2 }");
        setup.env.push(("RALPH_LOG_FORMAT", format.into()));
        setup.env.push(("RALPH_LOG", "debug,hyper=warn,h2=warn".into()));
        setup.title = "x \u{1b}[31mFORGED\u{202e}".into();
        let service = Service::new(setup, false).await;
        let mut process = service.spawn("all", None);
        service.until("the address of the dashboard", async || service.has_logged("/login?token=")).await;
        service.until("a listener", async || service.listens().await).await;
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build();
        let (client, root) = (client.expect("a client"), format!("http://127.0.0.1:{}", service.port));
        let log = service.full_log();
        let token = log.split("/login?token=").nth(1).expect("a token");
        let token: String = token.chars().take_while(char::is_ascii_alphanumeric).collect();
        let bearer = format!("Bearer {token}");
        for path in [
            "/loops/TEXT",
            "/deliveries/1/retry?x=TEXT",
            "/loops/TEXT/commands",
            "/memory/forget?TEXT",
            "/api/v1/memory/TEXT",
        ] {
            let url = format!("{root}{}", path.replace("TEXT", encoded));
            for method in [Method::POST, Method::DELETE, Method::GET] {
                let body = format!("csrf=&command={encoded}&id={encoded}&text={encoded}");
                let request = client.request(method, &url).header("authorization", &bearer).body(body);
                let request = request.header("content-type", "application/x-www-form-urlencoded");
                assert!(request.send().await.expect("an answer").status().as_u16() < 500, "{path}");
            }
            // Without a token, from another site.
            let request = client.post(&url).header("origin", "https://evil.example");
            assert!(request.send().await.expect("an answer").status().is_client_error(), "{path}");
        }
        for token in [encoded, "a\tb"] {
            let request =
                client.get(format!("{root}/login?token={encoded}")).header("authorization", format!("Bearer {token}"));
            assert!(request.send().await.expect("an answer").status().is_client_error());
        }
        service.world.label().await;
        service
            .until_loop("a loop that stopped", |l| {
                matches!(l.state, LoopState::Failed | LoopState::Paused | LoopState::LimitReached)
            })
            .await;
        service.wait_until_idle().await;
        assert!(stop(&mut process).await.success());
        let log = service.full_log();
        assert!(log.contains("a change in the dashboard") && log.contains("%0d%0aFORGED"), "{log}");
        for line in log.lines() {
            assert!(
                !line.starts_with("FORGED") && !line.contains(|c: char| c.is_control() || c == '\u{202e}'),
                "{line:?}"
            );
            let is_json = serde_json::from_str::<Value>(line).is_ok_and(|line| line["level"].is_string());
            assert!(format == "text" || is_json || line.starts_with("dashboard: ") || !line.starts_with('{'), "{line}");
        }
        service.finish().await;
    }
}
