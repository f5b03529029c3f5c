//! Dashboard: its pages with data, who may see them, commands by buttons, streams of events, and hostile texts.

use std::time::Duration;

use fake_forge::Dialect;
use ralph_bot::domain::knowledge::memory::{Reflection, ReflectionOutcome, remembered};
use ralph_bot::domain::loops::{CommandInput, LoopInput, LoopState, LoopStep};
use ralph_bot::domain::model::ids::{LoopId, Timestamp};
use ralph_bot::domain::providers::backends::BackendObservation;
use ralph_bot::domain::supervision::oversight::{AuditEntry, AuditEvent};
use ralph_bot::engine::{CommandPath, DashboardAuthor, DashboardCommandError, DashboardOutcome};
use ralph_bot::process::Masker;
use ralph_bot::store::feed::{self, FeedPosition};
use ralph_bot::store::inbox::{self, Body, DeliveryOutcome, StoredDelivery};
use ralph_bot::store::memory::proposals;
use ralph_bot::store::{access_audit, audit, calls, loops, memory, session};
use regex::Regex;

use crate::harness::dashboard::{PageAnswer, ServedPages};
use crate::harness::payloads::HOSTILE_TEXTS;
use crate::harness::{Setup, World, live_story, on_both_forges, on_one_forge, story};

on_both_forges!(account_needs_the_forges_permission_for_each_command);

on_one_forge!(
    button_and_comment_give_the_same_input,
    pages_show_a_finished_loop,
    first_page_shows_waiting_loops_with_their_answers,
    pages_require_the_token,
    command_with_a_mistake_is_answered_on_the_page_only,
    dashboard_stream_replays_missed_events,
    transcript_of_a_running_agent_is_live,
    /// See docs/research/threats.md#i11.
    hostile_texts_are_escaped,
    proposal_and_learning_are_answered_by_buttons,
    learnings_are_filtered_on_the_page,
    given_up_delivery_is_tried_again,
    button_enables_a_stopped_backend,
    lists_of_a_loop_state_omitted_entries,
    secrets_are_masked_on_every_page,
);

/// Routes that read, with `ID` for a loop.
const READ: [&str; 21] = [
    "/",
    "/?state=paused&person=mira&forge=forge&page=2&waiting=2",
    "/events",
    "/loops/ID",
    "/loops/ID?answer=1",
    "/loops/ID/events",
    "/loops/ID/report",
    "/loops/ID/audit.json",
    "/loops/ID/iterations/1",
    "/loops/ID/iterations/1?diff=total&line=3",
    "/loops/ID/iterations/1/transcript.txt",
    "/loops/ID/iterations/1/change.txt",
    "/loops/ID/iterations/1/branch.txt",
    "/loops/ID/iterations/1/part-0.txt",
    "/memory",
    "/memory?q=answer&kind=convention&task_type=other&repository=mira/app&min_confidence=0.5",
    "/memory?loop=ID",
    "/backends",
    "/repositories",
    "/deliveries",
    "/audit",
];

/// Routes that change something.
const CHANGE: [&str; 6] = [
    "/loops/ID/commands",
    "/memory/forget",
    "/memory/reflections/ID/1",
    "/memory/proposals/1",
    "/deliveries/1/retry",
    "/backends/mine/enable",
];

/// A loop that stops at its limit, because the agent changes the wrong thing.
fn limited(dialect: Dialect) -> Setup {
    Setup::new(dialect).agent("echo 40 >answer.txt\n").config("limits: { iterations: 1 }")
}

fn with_id(path: &str, id: &LoopId) -> String {
    path.replace("ID", id.as_str())
}

/// Asserts the headers that every answer has.
fn assert_safe(path: &str, answer: &PageAnswer) {
    let policy = &answer.headers["content-security-policy"];
    for part in
        ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'", "style-src 'self'"]
    {
        assert!(policy.contains(part), "{path}: {policy}");
    }
    assert!(!policy.contains("unsafe"), "{path}: {policy}");
    assert_eq!(answer.headers["x-content-type-options"], "nosniff", "{path}");
    assert_eq!(answer.headers["referrer-policy"], "same-origin", "{path}");
    let inline = ["<script>", "style=\"", "onclick", "javascript:"];
    assert!(!inline.iter().any(|word| answer.body.contains(word)), "{path}: {}", answer.body);
}

async fn pages_show_a_finished_loop(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let dashboard = ServedPages::of(world, false).await;
        let id = &done.id;
        for path in READ.iter().filter(|path| !path.ends_with("events")) {
            let answer = dashboard.get(&with_id(path, id)).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.body);
            assert_safe(path, &answer);
            assert!(answer.body.len() < 100 * 1024, "{path} has {} bytes", answer.body.len());
            assert_eq!(answer.headers["cache-control"], "no-store", "{path}");
        }
        let has = async |path: &str, words: &[&str]| {
            let body = dashboard.get(&with_id(path, id)).await.body;
            for word in words {
                assert!(body.contains(word), "{path} lacks {word}: {body}");
            }
        };
        has("/", &["The answer is wrong", "Nothing is waiting for a decision", "In review", &format!("/loops/{id}")])
            .await;
        has("/?person=otto", &["None."]).await;
        has("/loops/ID", &["Iteration 1", "1 of 1 passed", "sh check.sh", "/commands", "request a change", "mira"])
            .await;
        has("/loops/ID/iterations/1", &["i1-L2", "Prompt for agent mine", "?line=2#i1-L2", "answer.txt", "41", "42"])
            .await;
        // The result of a check leads to its output, and each part has a link to its line and can be copied.
        let page = dashboard.get(&with_id("/loops/ID/iterations/1", id)).await.body;
        let link = Regex::new(r##"<a href="\?line=(\d+)#(i1-L\d+)" title="Output of the check">"##).expect("pattern");
        let found = link.captures(&page).unwrap_or_else(|| panic!("no link to the output: {page}"));
        let at = dashboard.get(&with_id(&format!("/loops/ID/iterations/1?line={}", &found[1]), id)).await.body;
        let title = at.split(&format!("id=\"{}\">", &found[2])).nth(1).expect("the line");
        assert!(title.starts_with("<a href=") && title.contains("Check answer"), "{title}");
        for part in ["part-0.txt", "change.txt", "transcript.txt"] {
            let copy = format!("data-copy=\"&#x2f;loops&#x2f;{id}&#x2f;iterations&#x2f;1/{part}\"");
            assert!(page.contains(&copy), "{copy}: {page}");
        }
        has("/loops/ID/iterations/1?diff=total", &["/branch.txt\" download", "/branch.txt\">Copy"]).await;
        has("/loops/ID/iterations/1/transcript.txt", &["==> Prompt for agent mine", "$ sh check.sh"]).await;
        has("/loops/ID/iterations/1/change.txt", &["-41", "+42"]).await;
        has("/backends", &["mine", "active", "1 succeeded"]).await;
        has("/repositories", &["mira&#x2f;app", "sh check.sh", "repository&#x27;s file"]).await;
        let about = format!("mira&#x2f;app#{} by mira", world.issue);
        for path in ["/deliveries", "/deliveries?forge=forge&state=done"] {
            has(path, &["done", &about, &format!("href=\"/loops/{id}\"")]).await;
        }
        let audit: serde_json::Value =
            serde_json::from_str(&dashboard.get(&with_id("/loops/ID/audit.json", id)).await.body).expect("JSON");
        assert_eq!(audit["events"][0]["input"]["input"], "start");
        for missing in ["/loops/r-9-aaaaaa", "/loops/ID/iterations/7", "/loops/ID/iterations/1/part-99.txt", "/nothing"]
        {
            assert_eq!(dashboard.get(&with_id(missing, id)).await.status, 404, "{missing}");
        }
    })
    .await;
}

async fn first_page_shows_waiting_loops_with_their_answers(dialect: Dialect) {
    story(limited(dialect), async |world| {
        let stopped = world.run().await;
        assert_eq!(stopped.state, LoopState::LimitReached, "{}", stopped.why);
        let dashboard = ServedPages::of(world, false).await;
        let page = dashboard.get("/").await.body;
        for word in [
            "limit reached",
            "name=\"command\" value=\"&#x2f;ralph resume --max-iterations 6\"",
            "name=\"command\" value=\"&#x2f;ralph abort\"",
            "Check answer failed",
            "the answer is 40",
            "(1) Loops",
        ] {
            assert!(page.contains(word), "{word}: {page}");
        }
        let filtered = dashboard.get("/?state=running").await.body;
        assert!(!filtered.contains("the answer is 40"), "{filtered}");
        // Waiting loops are listed for every filter; lists that the state excludes are omitted.
        assert!(filtered.contains("None with these filters; 1 waits.") && filtered.contains("(1) Loops"), "{filtered}");
        assert!(filtered.contains("<h2>Running now") && !filtered.contains("<h2>In review"), "{filtered}");
        assert!(!filtered.contains("Nothing is waiting for a decision"), "{filtered}");
        let page = dashboard.get("/?person=otto").await.body;
        assert!(page.contains("None with these filters; 1 waits.") && page.contains("(1) Loops"), "{page}");
        let unknown = dashboard.get("/?state=zebra").await;
        assert!(unknown.status == 422 && unknown.body.contains("limit_reached"), "{}", unknown.body);
    })
    .await;
}

async fn pages_require_the_token(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let done = world.run().await;
        let dashboard = ServedPages::of(world, false).await;
        for token in [None, Some("wrong")] {
            for path in READ {
                let answer = dashboard.without_token("GET", &with_id(path, &done.id), token).await;
                // A browser is sent to the login; wrong tokens are refused, and after some the address has to wait.
                let refused: &[u16] = if token.is_none() { &[303] } else { &[401, 429] };
                assert!(refused.contains(&answer.status), "{path}: {} {}", answer.status, answer.body);
                assert!(!answer.body.contains("answer"), "{path}: {}", answer.body);
            }
            for path in CHANGE {
                let answer = dashboard.without_token("POST", &with_id(path, &done.id), token).await;
                assert!(matches!(answer.status, 401 | 429), "{path}: {} {}", answer.status, answer.body);
            }
        }
        // The token of a form must belong to the viewer.
        let dashboard = ServedPages::of(world, false).await;
        for path in CHANGE {
            let answer =
                dashboard.post(&with_id(path, &done.id), &[("csrf", "other"), ("command", "/ralph abort")]).await;
            assert_eq!(answer.status, 403, "{path}: {}", answer.body);
        }
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
        // A request that changes something is none that a link can make.
        for path in CHANGE {
            assert_eq!(dashboard.get(&with_id(path, &done.id)).await.status, 405, "{path}");
        }
    })
    .await;
}

/// A key that a person wrote into the title, and that the agent and a check print.
async fn secrets_are_masked_on_every_page(dialect: Dialect) {
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let mut setup = Setup::new(dialect).agent(&format!("echo 'The key is {token}.'\necho 40 >answer.txt\n"));
    setup = setup.file("check.sh", &format!("echo 'Tried with {token}.'\ntest \"$(cat answer.txt)\" = 42\n"));
    setup = setup.config("limits: { iterations: 1 }");
    setup.title = format!("Leaked {token}");
    story(setup, async |world| {
        let done = world.run().await;
        assert_eq!(done.state, LoopState::LimitReached, "{}", done.why);
        let dashboard = ServedPages::of(world, false).await;
        let more = ["/search?q=leaked", "/search?q=tried", "/search?q=key", "/costs", "/tokens"];
        let mut shown = Vec::new();
        for path in READ.iter().chain(&more).filter(|path| !path.ends_with("events")) {
            let answer = dashboard.get(&with_id(path, &done.id)).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.body);
            assert!(!answer.body.contains("a1B2a1B2"), "{path}: {}", answer.body);
            for words in ["Leaked", "The key is", "Tried with"] {
                if answer.body.contains(words) {
                    shown.push((words, *path));
                }
            }
        }
        // The texts around the key are shown, so that it is masked, not absent.
        for words in ["Leaked", "The key is", "Tried with"] {
            assert!(shown.iter().any(|(found, _)| *found == words), "no page shows `{words}`: {shown:?}");
        }
    })
    .await;
}

/// Inputs of the newest loop that are commands, without the person and the comment.
async fn commands(world: &World) -> Vec<LoopInput> {
    let id = world.the_loop().await.id;
    let log = world.engine().store.read(move |c| loops::history(c, &id)).await.expect("a log");
    let commands = log.into_iter().filter_map(|line| match line.input {
        LoopInput::Command(CommandInput::Given { by, command, .. }) => {
            Some(LoopInput::Command(CommandInput::Given { by, command, comment: None }))
        }
        _ => None,
    });
    commands.collect()
}

async fn button_and_comment_give_the_same_input(dialect: Dialect) {
    const WORDS: &str = "Write 42.\nNot 40.";
    let by_comment = story(limited(dialect), async |world| {
        world.run().await;
        world.write_agent("echo 42 >answer.txt\n");
        world.comment(&format!("/ralph resume --max-iterations 6 {WORDS}")).await;
        world.settle().await;
        (commands(world).await, world.the_loop().await.state)
    })
    .await;
    let by_button = story(limited(dialect), async |world| {
        let stopped = world.run().await;
        world.write_agent("echo 42 >answer.txt\n");
        let dashboard = ServedPages::of(world, false).await;
        let path = format!("/loops/{}/commands", stopped.id);
        let fields = [("csrf", ""), ("command", "/ralph resume --max-iterations 6"), ("text", WORDS)];
        let answer = dashboard.press(world, &path, &fields).await;
        assert_eq!(answer.status, 303, "{}", answer.body);
        let shown = dashboard.get(&answer.headers["location"]).await.body;
        assert!(shown.contains("resumed the loop"), "{shown}");
        world.settle().await;
        let id = stopped.id.clone();
        let trail = world.engine().store.read(move |c| audit::trail(c, &id)).await.expect("a trail");
        let reason = "the operator, on the authority of mira, gave the command `resume` in the dashboard";
        assert!(trail.iter().any(|line| line.entry.reason == reason), "{trail:#?}");
        (commands(world).await, world.the_loop().await.state)
    })
    .await;
    assert_eq!(by_comment, by_button);
    assert_eq!(by_button.1, LoopState::Review);
}

async fn account_needs_the_forges_permission_for_each_command(dialect: Dialect) {
    story(limited(dialect), async |world| {
        let stopped = world.run().await;
        let give = async |user: &ralph_bot::domain::model::ids::User, text: &str| {
            let author = DashboardAuthor::Account(user.clone());
            world.engine().intake.command_from_dashboard(&stopped.id, (&author, &CommandPath::Page), text).await
        };
        let denied = give(&world.outsider, "/ralph abort").await;
        assert!(matches!(denied, Err(DashboardCommandError::Denied { .. })), "{denied:?}");
        let given = async {
            let answer = give(&world.maintainer, "/ralph abort enough").await;
            answer.expect("an answer")
        };
        tokio::pin!(given);
        let answer = loop {
            tokio::select! {
                answer = &mut given => break answer,
                () = tokio::time::sleep(std::time::Duration::from_millis(20)) => world.settle().await,
            }
        };
        assert!(answer.reply.ok && matches!(answer.outcome, DashboardOutcome::Taken(_)), "{answer:?}");
        assert_eq!(world.the_loop().await.state, LoopState::Aborted);
        let id = stopped.id.clone();
        let trail = world.engine().store.read(move |c| audit::trail(c, &id)).await.expect("a trail");
        let reason = format!("mira (id {}) gave the command `abort` in the dashboard", world.maintainer.id.0);
        assert!(trail.iter().any(|line| line.entry.reason == reason), "{trail:#?}");
        // The loop has ended.
        let late = give(&world.maintainer, "/ralph resume").await.expect("an answer");
        assert_eq!(late.outcome, DashboardOutcome::Refused, "{late:?}");
        assert!(!late.reply.ok && late.reply.lines[0].contains("has ended"), "{late:?}");
        let unknown = LoopId::new("r-1-none");
        let by = CommandPath::Api { token: None };
        let missing =
            world.engine().intake.command_from_dashboard(&unknown, (&DashboardAuthor::Operator, &by), "/ralph abort");
        let missing = missing.await;
        assert!(matches!(missing, Err(DashboardCommandError::UnknownLoop(_))), "{missing:?}");
    })
    .await;
}

async fn command_with_a_mistake_is_answered_on_the_page_only(dialect: Dialect) {
    story(limited(dialect), async |world| {
        let stopped = world.run().await;
        let dashboard = ServedPages::of(world, false).await;
        let before = world.comments(world.issue).len();
        let path = format!("/loops/{}/commands", stopped.id);
        let table = [
            ("/ralph resum", "&#x2f;ralph resume"),
            ("/ralph resume --backend nobody", "There is no backend"),
            ("resume", "A command starts with"),
            ("/ralph pause\n/ralph abort", "one command at a time"),
            ("> /ralph abort", "A command starts with"),
        ];
        for (command, words) in table {
            let answer = dashboard.press(world, &path, &[("csrf", ""), ("command", command)]).await;
            assert_eq!(answer.status, 422, "{command}: {}", answer.body);
            assert!(answer.body.contains(words), "{command}: {}", answer.body);
            let escaped = command.replace('/', "&#x2f;").replace('>', "&gt;");
            assert!(answer.body.contains(&format!(">{escaped}</textarea>")), "{command} is kept: {}", answer.body);
        }
        let help = dashboard.press(world, &path, &[("csrf", ""), ("command", "/ralph help")]).await;
        assert!(help.status == 200 && help.body.contains("&#x2f;ralph budget 5.00: "), "{}", help.body);
        assert_eq!(world.the_loop().await.version, stopped.version);
        // Refusals of the loop itself.
        for (command, words) in [
            ("/ralph iterations 1", "not more than the 1 iterations used already"),
            ("/ralph approve", "no plan needs an approval"),
            ("/ralph resume", "--max-iterations 6"),
        ] {
            let answer = dashboard.press(world, &path, &[("csrf", ""), ("command", command)]).await;
            assert_eq!(answer.status, 409, "{command}: {}", answer.body);
            assert!(answer.body.contains(words), "{command}: {}", answer.body);
        }
        world.settle().await;
        assert_eq!(world.comments(world.issue).len(), before, "no comment tells of a mistake in the dashboard");
    })
    .await;
}

async fn dashboard_stream_replays_missed_events(dialect: Dialect) {
    story(limited(dialect), async |world| {
        let stopped = world.run().await;
        let dashboard = ServedPages::of(world, false).await;
        let path = format!("/loops/{}/events", stopped.id);
        let version = stopped.version as usize;
        // At least its steps; agents' activities are sent, too.
        let all = dashboard.events(&path, Some("0-0-0"), version).await;
        assert!(all.len() >= version, "{all:?}");
        assert_eq!(dashboard.events(&path, Some(&all[2]), version - 3).await[..version - 3], all[3..version]);
        assert_eq!(dashboard.events("/events", Some("0-0-0"), version).await[..version], all[..version]);
        // A listener without a position gets only later events.
        let begun = tokio::sync::Notify::new();
        let heard = dashboard.listen(&path, None, 2, || begun.notify_one());
        let command = async {
            begun.notified().await;
            let path = format!("/loops/{}/commands", stopped.id);
            dashboard.press(world, &path, &[("csrf", ""), ("command", "/ralph abort")]).await
        };
        let (heard, answer) = tokio::join!(heard, command);
        assert_eq!(answer.status, 303, "{}", answer.body);
        assert_eq!(heard[0], *all.last().expect("an event"), "the stream begins with its position");
        assert!(!all.contains(&heard[1]), "{} is new", heard[1]);
        // A page that was disconnected before the first event gets all events since its creation.
        let page = format!("{path}?after={}", heard[0]);
        assert_eq!(dashboard.events(&page, None, 1).await[0], heard[1]);
        assert_eq!(dashboard.get(&format!("{path}?after=zebra")).await.status, 400);
        assert!(!dashboard.events("/events", Some(&all[version - 1]), 1).await.is_empty());
    })
    .await;
}

async fn transcript_of_a_running_agent_is_live(dialect: Dialect) {
    let gate = tempfile::tempdir().expect("a folder");
    let open = gate.path().join("open");
    let agent = format!(
        "echo 'I look at the task.'\necho 'my key is '\"$KEY\"\nwhile [ ! -e {} ]; do sleep 0.05; done\necho 42 >answer.txt\necho 'It is done.'\n",
        open.display()
    );
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let agent = agent.replace("\"$KEY\"", &token);
    live_story(Setup::new(dialect).agent(&agent), async |world| {
        let dashboard = ServedPages::of(world, false).await;
        world.label().await;
        let running = world.until("an agent that runs", |l| l.run.step == LoopStep::Agent).await;
        let id = running.id.clone();
        let stored = async || {
            let id = id.clone();
            world.engine().store.read(move |c| session::of_iteration(c, &id, 1)).await.expect("read")
        };
        let written = async {
            while stored().await.2.is_none_or(|running| !running.text().contains("my key")) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), written)
            .await
            .expect("the first part is stored while the agent runs");
        assert!(stored().await.0.is_empty(), "the turn is stored at its end");
        let page = format!("/loops/{id}/iterations/1");
        for path in [page.clone(), format!("{page}/transcript.txt"), format!("/api/v1{page}")] {
            let answer = dashboard.get(&path).await;
            assert_eq!(answer.status, 200, "{path}");
            assert!(answer.body.contains("I look at the task."), "{path}: {}", answer.body);
            assert!(!answer.body.contains(&token) && !answer.body.contains("It is done."), "{path}: {}", answer.body);
        }
        let api: serde_json::Value =
            serde_json::from_str(&dashboard.get(&format!("/api/v1{page}")).await.body).expect("JSON");
        assert!(
            api["turns"][0]["ended_at"].is_null() && api["turns"][0]["prompt"].as_str().is_some_and(|p| !p.is_empty()),
            "{api}"
        );
        // The stream of the page contains the agent's output.
        let newest = world.engine().store.read(feed::newest).await.expect("read");
        let before = FeedPosition { output: 0, ..newest };
        let events = dashboard.events(&format!("/loops/{id}/events?after={before}&iteration=1"), None, 1).await;
        assert!(
            events[0].starts_with(&format!("{}-{}-", newest.step, newest.activity)) && !events[0].ends_with("-0"),
            "{events:?}"
        );
        std::fs::write(&open, "").expect("the gate opens");
        world.until("a review", |l| l.state == LoopState::Review).await;
        let (turns, _, running) = stored().await;
        let answers: Vec<&str> = turns.iter().map(|turn| turn.response.as_str()).collect();
        assert_eq!(answers, ["I look at the task.\nmy key is ***\nIt is done."], "one turn, as if nobody had looked");
        assert_eq!((running, turns[0].error.as_deref()), (None, None));
        let text = dashboard.get(&format!("{page}/transcript.txt")).await.body;
        assert_eq!(text.matches("\nI look at the task.\n").count(), 1, "nothing is there twice: {text}");
        world.wait_until_idle().await;
    })
    .await;
}

async fn hostile_texts_are_escaped(dialect: Dialect) {
    let all = HOSTILE_TEXTS.map(|text| text.replace('\u{0}', "")).join("\n");
    let script = "cat payloads.txt\necho '<img src=x onerror=alert(3)>' >>answer.txt\n\
        printf '{\"summary\": \"<script>alert(4)</script>\", \"approach\": \"\\\\\"><svg onload=alert(5)>\", \"learnings\": [\"<b>bold</b>\"]}' >\"$RALPH_REPORT\"\n";
    let mut setup = limited(dialect).agent(script).file("payloads.txt", &all);
    setup = setup.file("check.sh", "cat payloads.txt; exit 1\n");
    setup.title = "</title><script>alert(6)</script> \" onmouseover=\"alert(7)".into();
    setup.body = "Hello <script>alert(8)</script>".into();
    story(setup, async |world| {
        let stopped = world.run().await;
        world.comment(&format!("/ralph resume --max-iterations 2 {}", HOSTILE_TEXTS[..12].join(" "))).await;
        world.settle().await;
        let dashboard = ServedPages::of(world, false).await;
        let tag = Regex::new(r"<(/?[a-zA-Z!][^\s>]*)([^>]*)>").expect("pattern");
        let value = Regex::new("=\"[^\"]*\"").expect("pattern");
        const TAGS: [&str; 61] = [
            "!doctype",
            "html",
            "head",
            "meta",
            "title",
            "link",
            "script",
            "body",
            "a",
            "header",
            "div",
            "nav",
            "ul",
            "li",
            "span",
            "main",
            "h1",
            "h2",
            "h3",
            "p",
            "dl",
            "dt",
            "dd",
            "section",
            "form",
            "input",
            "button",
            "label",
            "textarea",
            "details",
            "summary",
            "pre",
            "code",
            "table",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
            "ol",
            "time",
            "progress",
            "strong",
            "select",
            "option",
            "br",
            "figure",
            "figcaption",
            "svg",
            "line",
            "polyline",
            "circle",
            "text",
            "rect",
            "path",
            "g",
            "polygon",
            "em",
            "i",
            "b",
            "small",
        ];
        for path in [
            "/",
            "/loops/ID",
            "/loops/ID/report",
            "/loops/ID/iterations/1",
            "/loops/ID/iterations/2?diff=total",
            "/memory",
            "/memory?loop=ID",
            "/deliveries",
        ] {
            let page = dashboard.get(&with_id(path, &stopped.id)).await;
            assert_eq!(page.status, 200, "{path}: {}", page.body);
            for payload in HOSTILE_TEXTS.iter().filter(|payload| payload.contains('<')) {
                assert!(!page.body.contains(payload), "{path} contains {payload}");
            }
            for found in tag.captures_iter(&page.body) {
                let name = found[1].trim_start_matches('/').to_ascii_lowercase();
                assert!(TAGS.contains(&name.as_str()), "{path}: {}", &found[0]);
                let names = value.replace_all(&found[2], "").to_ascii_lowercase();
                assert!(!names.contains(" on") && !names.contains('"'), "{path}: {}", &found[0]);
                assert!(
                    name != "script" || found[0].contains("src=\"&#x2f;assets&#x2f;") || found[1].starts_with('/'),
                    "{}",
                    &found[0]
                );
            }
            assert!(!page.body.contains("href=\"javascript") && !page.body.contains("alert(6)</script>"), "{path}");
        }
        let iteration = dashboard.get(&with_id("/loops/ID/iterations/1", &stopped.id)).await.body;
        assert!(iteration.contains("&lt;svg&#x2f;onload=alert(1)&gt;"), "the text itself is shown: {iteration}");
        let text = dashboard.get(&with_id("/loops/ID/iterations/1/transcript.txt", &stopped.id)).await;
        assert_eq!(text.headers["content-type"], "text/plain; charset=utf-8");
        assert_eq!(text.headers["x-content-type-options"], "nosniff");
    })
    .await;
}

async fn proposal_and_learning_are_answered_by_buttons(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let done = world.run().await;
        let engine = world.engine().clone();
        let (repo, settings) = (done.issue.repo.clone(), engine.recall.settings.clone());
        let remark = "Please name the tests after what they show.";
        let stored = engine.store.write(move |c| {
            for loop_id in ["r-1-aaaaaa", "r-2-aaaaaa", "r-3-aaaaaa", "r-4-aaaaaa", "r-5-aaaaaa"] {
                let remark =
                    ralph_bot::domain::knowledge::memory::Remark { loop_id: LoopId::new(loop_id), text: remark.into() };
                proposals::add_remark(c, &repo, &remark, &settings, Timestamp(1_790_000_000_000))?;
            }
            proposals::proposals(c, false)
        });
        let open = stored.await.expect("stored");
        assert_eq!(open.len(), 1);
        let dashboard = ServedPages::of(world, false).await;
        assert!(dashboard.get("/memory").await.body.contains(remark));
        let path = format!("/memory/proposals/{}", open[0].number);
        assert_eq!(dashboard.post(&path, &[("csrf", ""), ("answer", "maybe")]).await.status, 422);
        let rule = [("csrf", ""), ("answer", "accept"), ("text", "Name tests after what they show.")];
        assert_eq!(dashboard.post(&path, &rule).await.status, 303);
        let page = dashboard.get("/memory?q=name+tests").await.body;
        assert!(page.contains("Name tests after what they show.") && !page.contains("Proposed conventions"), "{page}");
        let id = Regex::new(r#"name="id" value="(l-[0-9a-f]+)""#).expect("pattern").captures(&page).expect("an id")[1]
            .to_owned();
        assert_eq!(dashboard.post("/memory/forget", &[("csrf", ""), ("id", "l-none")]).await.status, 404);
        assert_eq!(dashboard.post("/memory/forget", &[("csrf", ""), ("id", &id)]).await.status, 303);
        assert!(!dashboard.get("/memory").await.body.contains("Name tests after what they show."));
    })
    .await;
}

async fn learnings_are_filtered_on_the_page(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let done = world.run().await;
        let (repo, id, now) = (done.issue.repo.clone(), done.id.clone(), world.clock.now());
        let settings = world.engine().recall.settings.clone();
        let stored = world.engine().store.write(move |c| {
            for rule in ["Run the generator before the tests.", "Never edit files below vendor."] {
                memory::learn(c, &Masker::default(), remembered(&repo, rule, &id, now), &settings, now)?;
            }
            let reflection = Reflection {
                iteration: 1,
                approach: "a <b>parser</b> by hand".into(),
                failed: "the check".into(),
                why: "commas".into(),
                next: "read the lexer".into(),
                outcome: ReflectionOutcome::Same,
                edited_by: None,
            };
            memory::add_reflection(c, &Masker::default(), &id, &reflection, now)
        });
        stored.await.expect("stored");
        let dashboard = ServedPages::of(world, false).await;
        for (query, shown) in [
            ("", true),
            ("?kind=convention&task_type=other&repository=mira/app&min_confidence=0.5", true),
            ("?kind=&task_type=&repository=&min_confidence=", true),
            ("?q=generator&kind=convention", true),
            ("?kind=strategy", false),
            ("?q=generator&kind=strategy", false),
            ("?task_type=docs", false),
            ("?repository=mira/lib", false),
            ("?min_confidence=1", false),
        ] {
            let page = dashboard.get(&format!("/memory{query}")).await;
            assert_eq!((page.status, page.body.contains("Run the generator")), (200, shown), "{query}: {}", page.body);
        }
        for (query, expected) in [
            ("kind=rule", "strategy, antipattern, estimate, convention"),
            ("task_type=x", "test-fix"),
            ("min_confidence=2", "0 to 1"),
        ] {
            let page = dashboard.get(&format!("/memory?{query}")).await;
            assert!(page.status == 422 && page.body.contains(expected), "{query}: {}", page.body);
        }
        // The choice stays when a learning is forgotten.
        let page = dashboard.get("/memory?kind=convention&q=vendor").await.body;
        let found = Regex::new(r#"name="id" value="(l-[0-9a-f]+)""#).expect("pattern").captures(&page);
        let learning = found.expect("an id")[1].to_owned();
        let form = [("csrf", ""), ("id", learning.as_str()), ("kind", "convention"), ("q", "vendor & more")];
        let answer = dashboard.post("/memory/forget", &form).await;
        assert_eq!(answer.status, 303, "{}", answer.body);
        let to = answer.headers["location"].as_str();
        assert!(to.starts_with("/memory?q=vendor") && to.ends_with("&kind=convention"), "{to}");
        assert_eq!(to.matches('&').count(), 1, "{to}");
        let page = dashboard.get(&with_id("/memory?loop=ID", &done.id)).await.body;
        assert!(page.contains("Next: read the lexer") && !page.contains("<b>parser"), "{page}");
        assert!(page.contains("kind=convention\">1 convention</a>"), "{page}");

        // A person corrects the reflection, then removes it; the loop's audit log names both.
        let address = with_id("/memory/reflections/ID/1", &done.id);
        let form = |answer: &'static str| {
            [("csrf", ""), ("answer", answer), ("approach", "by hand"), ("failed", ""), ("next", "use <i>flex</i>")]
        };
        assert_eq!(dashboard.post(&address, &form("burn")).await.status, 422);
        assert_eq!(dashboard.post(&address, &form("save")).await.status, 303);
        let page = dashboard.get(&with_id("/memory?loop=ID", &done.id)).await.body;
        assert!(page.contains("Next: use &lt;i&gt;flex") && page.contains("edited by the operator"), "{page}");
        assert!(!page.contains("Failed: the check"), "{page}");
        assert_eq!(dashboard.post(&address, &form("remove")).await.status, 303);
        assert_eq!(dashboard.post(&address, &form("remove")).await.status, 404);
        let page = dashboard.get(&with_id("/memory?loop=ID", &done.id)).await.body;
        assert!(!page.contains("use &lt;i&gt;flex"), "{page}");
        let page = dashboard.get(&with_id("/loops/ID", &done.id)).await.body;
        for change in ["edited", "removed"] {
            let line = format!("the operator in the dashboard {change} the reflection on iteration 1");
            assert!(page.contains(&line), "{line}: {page}");
        }
        assert!(dashboard.get(&with_id("/loops/ID", &done.id)).await.body.contains("/memory?loop="));
        assert_eq!(dashboard.get("/memory?loop=r-9-zzzzzz").await.status, 404);
    })
    .await;
}

async fn given_up_delivery_is_tried_again(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let delivery = StoredDelivery {
            forge: ralph_bot::domain::model::ids::ForgeName::new("forge"),
            delivery: "given-up".into(),
            event: "ping".into(),
            body: Body::pack(b"{}"),
        };
        let stored = world.engine().store.write(move |c| {
            inbox::insert(c, &delivery, Timestamp(1_790_000_000_000))?;
            let id: i64 = c.query_row("SELECT id FROM inbox WHERE delivery = 'given-up'", [], |row| row.get(0))?;
            inbox::finish(c, id, DeliveryOutcome::Dead, "the forge was away")?;
            Ok(id)
        });
        let id = stored.await.expect("stored");
        let dashboard = ServedPages::of(world, false).await;
        let page = dashboard.get("/deliveries?state=dead").await.body;
        assert!(page.contains("the forge was away") && page.contains("Try again"), "{page}");
        assert_eq!(dashboard.post(&format!("/deliveries/{id}/retry"), &[("csrf", "")]).await.status, 303);
        world.settle().await;
        let outcomes = world.delivery_outcomes().await;
        assert!(outcomes.iter().all(|(state, _)| state != "dead" && state != "new"), "{outcomes:?}");
        assert_eq!(dashboard.post(&format!("/deliveries/{id}/retry"), &[("csrf", "")]).await.status, 422);
    })
    .await;
}

async fn button_enables_a_stopped_backend(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.run().await;
        let engine = world.engine().clone();
        let observe = async |observation: BackendObservation| {
            let (settings, now) = (engine.calls.settings.backends.clone(), engine.clock.now());
            let observed = engine.store.write(move |c| calls::observe(c, &observation, &settings, now)).await;
            assert!(!observed.expect("stored").changes.is_empty());
        };
        let dashboard = ServedPages::of(world, false).await;
        let button = "action=\"&#x2f;backends&#x2f;mine&#x2f;enable\"".replace("&#x2f;", "/");
        let shown = async |path: &str| dashboard.get(path).await.body;
        for path in ["/", "/backends"] {
            assert!(!shown(path).await.contains(&button), "{path}");
        }
        for from in ["home", ""] {
            let reason = "its <key> was revoked".to_owned();
            observe(BackendObservation::Disabled { backend: "mine".into(), reason }).await;
            for path in ["/", "/backends"] {
                let page = shown(path).await;
                assert!(page.contains("its &lt;key&gt; was revoked") && page.contains(&button), "{path}: {page}");
                assert!(page.contains("disabled"), "{path}: {page}");
            }
            assert!(!shown("/").await.contains("Nothing is waiting for a decision"));
            let pressed = dashboard.post("/backends/mine/enable", &[("csrf", ""), ("from", from)]).await;
            let to = if from == "home" { "/" } else { "/backends" };
            assert_eq!((pressed.status, pressed.headers["location"].as_str()), (303, to), "{}", pressed.body);
            assert!(!shown("/").await.contains(&button));
        }
        let state = engine.store.read(calls::state).await.expect("read");
        assert_eq!(state.backends["mine"].status.word(engine.clock.now()), "active");
        let unknown = dashboard.post("/backends/zebra/enable", &[("csrf", "")]).await;
        assert!(unknown.status == 404 && unknown.body.contains(">Backends</a>"), "{}", unknown.body);
        let rows = engine.store.read(|c| access_audit::newest(c, None, 9)).await.expect("read");
        let rows: Vec<_> = rows.iter().map(|row| (row.login.as_str(), row.path.as_str(), row.status)).collect();
        let enabled = ("operator", "/backends/mine/enable", Some(303));
        assert_eq!(rows, [("operator", "/backends/zebra/enable", Some(404)), enabled, enabled]);
    })
    .await;
}

async fn lists_of_a_loop_state_omitted_entries(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let done = world.run().await;
        let dashboard = ServedPages::of(world, false).await;
        let path = format!("/loops/{}", done.id);
        let page = dashboard.get(&path).await.body;
        assert!(!page.contains("The newest "), "everything is shown: {page}");
        let (id, now) = (done.id.clone(), world.clock.now());
        let added = world.engine().store.write(move |c| {
            let entries: Vec<AuditEntry> =
                (0..60).map(|n| AuditEntry::new(1, AuditEvent::Answered, format!("entry {n}"))).collect();
            audit::append(c, &id, &entries, now)?;
            c.execute(
                "INSERT INTO loop_events (loop_id, seq, at, input, reasons)
                 WITH RECURSIVE n(i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n WHERE i < 1039)
                 SELECT ?1, i, 0, '{\"input\": \"looked\"}', '[]' FROM n",
                [id.as_str()],
            )?;
            let sql = "SELECT count(*) FROM loop_events WHERE loop_id = ?1";
            let steps: i64 = c.query_row(sql, [id.as_str()], |row| row.get(0))?;
            Ok((audit::trail(c, &id)?.len(), steps))
        });
        let (all, steps) = added.await.expect("stored");
        let page = dashboard.get(&path).await.body;
        for words in [format!("The newest 40 of {all};"), format!("The newest 30 of {steps};")] {
            assert!(page.contains(&words), "{words}: {page}");
        }
        let id = done.id.clone();
        let removed = world.engine().store.write(move |c| {
            Ok(c.execute("DELETE FROM loop_events WHERE loop_id = ?1 AND seq >= 1000", [id.as_str()])?)
        });
        assert_eq!(removed.await.expect("removed"), 40);
    })
    .await;
}
