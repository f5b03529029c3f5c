//! Hostile texts in a real browser: every text that people and agents write is replaced by hostile ones, and every page is shown with
//! its content security policy and without it. Nothing may run, load something from elsewhere, or become an element. One loop stopped
//! at its limit, one waits with a plan, and one has an agent that writes while its page is open. `xss_setup` has the pages of the set-up.

use fake_forge::Dialect;
use ralph_bot::domain::knowledge::memory::Remark;
use ralph_bot::domain::knowledge::session::{OutputText, SessionTurn, TurnRole};
use ralph_bot::domain::loops::{Loop, LoopState};
use ralph_bot::domain::model::ids::{ForgeName, LoopId, Money, Timestamp};
use ralph_bot::store::inbox::{self, Body, DeliveryAbout, DeliveryOutcome, StoredDelivery};
use ralph_bot::store::memory::{self, StepMemory, proposals};
use ralph_bot::store::session::{self, NewRunningTurn, RunBatch};
use ralph_bot::store::sql::{Connection, SqlResult, params};
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::harness::dashboard::ServedPages;
use crate::harness::payloads::HOSTILE_TEXTS;
use crate::harness::{Setup, World, story};

/// Script that runs before the scripts of a page.
pub(crate) const INSPECT: &str = include_str!("inspect.js");
/// Word in the texts of people and agents that is replaced.
const MARK: &str = "xmark";
/// Number of texts that are shown at once.
pub(crate) const AT_ONCE: usize = 28;
/// Last line of a running agent's output.
const LAST_LINE: &str = "end of the hostile output";
/// Tables with texts of people and agents.
const TABLES: [&str; 13] = [
    "loops",
    "loop_events",
    "loop_summaries",
    "session_turns",
    "session_events",
    "session_summaries",
    "calls",
    "backends",
    "proposals",
    "repositories",
    "audit",
    "tokens",
    "access_audit",
];
/// Pages, with `ID` for the loop, `PLAN` for the loop that waits with a plan, and `TEXT` for the texts in an address.
const PAGES: [&str; 33] = [
    "/",
    "/?person=TEXT&repository=TEXT&forge=TEXT",
    "/?state=TEXT",
    "/search?q=alert",
    "/search?q=TEXT",
    "/costs?by=person",
    "/costs?by=backend",
    "/tokens",
    "/audit",
    "/loops/ID",
    "/loops/ID?answer=2",
    "/loops/ID/report",
    "/loops/PLAN",
    "/loops/ID/iterations/1",
    "/loops/ID/iterations/2",
    "/loops/ID/iterations/2?diff=total",
    "/loops/ID/iterations/2?from=100",
    "/memory",
    "/memory?q=TEXT",
    "/memory?loop=ID",
    "/backends",
    "/repositories",
    "/deliveries",
    "/loops/TEXT",
    "/login?next=TEXT",
    "/loops/ID/audit.json",
    "/loops/ID/iterations/1/transcript.txt",
    "/loops/ID/iterations/1/change.txt",
    "/api/v1/loops",
    "/api/v1/loops/PLAN",
    "/api/v1/loops/ID/iterations/1",
    "/api/v1/search?q=alert",
    "/api/v1/loops/TEXT",
];

/// Loops whose texts have the mark: one makes a plan, the other one a change with hostile names and lines.
fn marked() -> Setup {
    let plan = json!({ "plan": {
        "summary": "xmark plan", "steps": ["xmark step of the plan"], "files": ["xmark-planned.txt"], "checks": ["sh check.sh xmark"],
        "not_doing": ["xmark left out"], "questions": ["xmark question?"],
    } });
    let report = json!({
        "summary": "xmark summary", "approach": "xmark approach", "learnings": ["xmark learning"],
        "blockers": ["xmark blocker"], "next_steps": ["xmark step"],
    });
    let agent = format!(
        "if [ \"$RALPH_RUN\" = plan ]; then\ncat >\"$RALPH_REPORT\" <<'PLAN'\n{plan}\nPLAN\nexit 0\nfi\n\
         echo 'xmark answer'\ncat payloads.txt\ncat payloads.txt >>copied.txt\necho 40 >answer.txt\necho xmark >>xmark-new.txt\n\
         for name in '<svg onload=alert(1)>' '\"><img src=x onerror=alert(1)>' \"' onmouseover='alert(1)\" 'hx-get= hx-trigger=load' \
         '&lt;b&gt;' '{{{{ frame.nonce }}}}'; do echo x >>\"$name\"; done\n\
         cat >\"$RALPH_REPORT\" <<'REPORT'\n{report}\nREPORT\n"
    );
    // Others would keep the commit from being pushed.
    let plain = HOSTILE_TEXTS.into_iter().filter(|text| text.bytes().all(|byte| matches!(byte, b' '..=b'~')));
    let payloads = plain.collect::<Vec<_>>().join("\n");
    let mut setup = Setup::new(Dialect::Gitea)
        .agent(&agent)
        .config("limits: { iterations: 1 }")
        .file("payloads.txt", &payloads)
        .file("check.sh", "printf '\\033[31mxmark output\\033[0m\\n'\ncat payloads.txt\nexit 1\n")
        .file(".ralph.yml", "checks:\n  - name: xmark check\n    run: sh check.sh xmark\n");
    setup.title = "xmark title".into();
    setup.body = "xmark body".into();
    setup
}

/// Columns of a table that hold texts.
fn columns(c: &Connection, table: &str) -> SqlResult<Vec<String>> {
    let mut statement = c.prepare("SELECT name FROM pragma_table_info(?1) WHERE type IN ('TEXT', 'BLOB')")?;
    statement.query_map([table], |row| row.get(0))?.collect()
}

/// Keeps the rows of all tables, to which each replacement returns first.
fn keep(c: &Connection) -> SqlResult<()> {
    c.execute_batch(
        "DROP TRIGGER audit_stays; DROP TRIGGER access_audit_stays; DROP TRIGGER access_audit_status_stays",
    )?;
    TABLES.iter().try_for_each(|table| {
        c.execute_batch(&format!("CREATE TABLE kept_{table} AS SELECT rowid AS kept_id, * FROM {table}"))
    })
}

fn give_back(c: &Connection) -> SqlResult<()> {
    c.execute_batch("UPDATE daily_costs SET person = 'mira', backend = 'mine'")?;
    for table in TABLES {
        for column in columns(c, table)? {
            c.execute_batch(&format!(
                "UPDATE {table} SET {column} = (SELECT {column} FROM kept_{table} WHERE kept_id = {table}.rowid)"
            ))?;
        }
    }
    Ok(())
}

/// Replaces the mark, the names of people and backends, and texts that are stored compressed.
fn replace(c: &Connection, texts: &[&str]) -> SqlResult<usize> {
    give_back(c)?;
    let plain = texts.join(" ");
    let quoted = serde_json::to_string(&plain).expect("JSON");
    let inner = &quoted[1..quoted.len() - 1];
    let mut replaced = 0;
    for table in TABLES {
        for column in columns(c, table)? {
            let is_json = format!("json_valid({column}) AND substr({column}, 1, 1) IN ('{{', '[', '\"')");
            for word in [MARK, "mira"] {
                let sql = format!(
                    "UPDATE {table} SET {column} = CASE WHEN {is_json} THEN replace({column}, ?1, ?2) ELSE replace({column}, ?1, ?3) END
                     WHERE typeof({column}) = 'text' AND instr({column}, ?1) > 0"
                );
                replaced += c.execute(&sql, params![word, inner, plain])?;
            }
            let sql = format!(
                "UPDATE {table} SET {column} = CASE WHEN {column} = 'mine' THEN ?2 ELSE replace({column}, '\"mine\"', ?1) END
                 WHERE typeof({column}) = 'text' AND ({column} = 'mine' OR ({is_json} AND instr({column}, '\"mine\"') > 0))"
            );
            replaced += c.execute(&sql, params![quoted, plain])?;
        }
    }
    let lines = texts.join("\n");
    replaced += c.execute("UPDATE session_turns SET prompt = ?1, response = ?1, error = ?1, model = ?1", [&lines])?;
    replaced += c.execute("UPDATE session_events SET text = ?1, tool = ?2, path = ?2", params![lines, plain])?;
    replaced += c.execute("UPDATE proposals SET text = ?1", [&plain])?;
    replaced += c.execute("UPDATE daily_costs SET person = ?1, backend = ?1", [&plain])?;
    replaced += c.execute("UPDATE access_audit SET login = ?1, path = ?1, token = ?1, forge = ?1", [&plain])?;
    Ok(replaced)
}

/// Stores a learning for each text, and a delivery; returns the ids of the learnings.
fn remember(c: &Connection, memory: &StepMemory, of: &Loop, texts: &[&str]) -> Vec<String> {
    for text in texts {
        memory.keep_rule(c, &of.issue.repo, text, &of.id, Timestamp(1_790_000_000_000)).expect("kept");
    }
    let (learnings, _) = memory::list(c, "", 1_000).expect("learnings");
    learnings.into_iter().map(|learning| learning.id).collect()
}

/// Stores a delivery whose names and result are hostile.
fn deliver(c: &Connection, texts: &[&str]) {
    let (forge, delivery) = (ForgeName::new("forge"), texts.join(" "));
    let stored = StoredDelivery { forge, delivery: delivery.clone(), event: texts.join(" "), body: Body::pack(b"{}") };
    inbox::insert(c, &stored, Timestamp(1_790_000_000_000)).expect("stored");
    let sql = "SELECT id FROM inbox WHERE delivery = ?1";
    let id: i64 = c.query_row(sql, [&delivery], |row| row.get(0)).expect("a delivery");
    inbox::finish(c, id, DeliveryOutcome::Dead, &texts.join(" ")).expect("finished");
    let about = DeliveryAbout { repository: texts.join(" "), repo_id: 1, number: None, sender: Some(texts.join(" ")) };
    inbox::describe(c, id, Some(&about)).expect("described");
}

/// Asks for a plan of another issue, and returns the loop that waits with it.
async fn planned(world: &World) -> LoopId {
    let (by, repo) = (&world.maintainer, world.repo);
    let issue = world.forge.open_issue(by, repo, "xmark of the plan", "xmark body", &[]).await.expect("an issue");
    world.forge.comment(by, repo, issue, "/ralph plan xmark wish").await.expect("commented");
    world.settle().await;
    let loops = world.all_loops().await;
    let waiting = loops.into_iter().find(|current| current.issue.issue == issue);
    let waiting = waiting.unwrap_or_else(|| panic!("no loop: {}", world.conversation_on(issue)));
    assert_eq!(waiting.state, LoopState::NeedsAnswer, "{}", waiting.why);
    waiting.id
}

/// Opens the page of an iteration whose agent runs, lets the agent write, and inspects the page before, after, and as text; returns
/// the faults, and the number of the texts that came into the open page.
async fn followed(
    browser: &mut Browser,
    world: &World,
    dashboard: &ServedPages,
    of: &Loop,
    texts: &[&'static str],
) -> (Vec<String>, u64) {
    let (id, lines) = (of.id.clone(), texts.join("\n"));
    // After all events of the iteration, so that the page ends with it.
    let at = Timestamp(4_000_000_000_000);
    let turn = SessionTurn {
        iteration: 2,
        attempt: 1,
        role: TurnRole::Agent,
        // So that the lines of the page are those that the agent writes.
        prompt: "A prompt.".into(),
        response: String::new(),
        backend: texts.join(" "),
        model: Some(texts.join(" ")),
        tokens_in: 1,
        tokens_out: 1,
        tokens_cached: 0,
        cost: Money(1),
        estimated: false,
        error: None,
        learnings: Vec::new(),
        started: at,
        ended: at,
    };
    let begun = world.engine().store.write(move |c| {
        // While an agent runs, its iteration has no results of checks.
        let sql = "UPDATE loops SET data = json_set(data, '$.iterations[1].ended_at', NULL, '$.iterations[1].checks.outcomes', json('[]'))
            WHERE id = ?1";
        assert_eq!(c.execute(sql, [id.as_str()])?, 1);
        session::begin_turn(c, &id, &NewRunningTurn::pack(turn))
    });
    begun.await.expect("begun");
    let path = format!("{}/loops/{}/iterations/2", dashboard.url, of.id);
    browser.open(&path, json!({})).await;
    browser.until("document.getElementById('feed') !== null").await;
    let (mut wrong, _) = inspected(browser, texts).await;
    let (id, output) = (of.id.clone(), OutputText { at, text: format!("{lines}\n{LAST_LINE}") });
    let written =
        world.engine().store.write(move |c| session::add_batch(c, &id, &RunBatch::pack(Vec::new(), vec![output]), at));
    assert!(written.await.expect("written"), "the agent runs");
    browser.until(&format!("document.body.textContent.includes({})", json!(LAST_LINE))).await;
    let (more, shown) = inspected_part(browser, texts, ".log[aria-label=Transcript] .l").await;
    wrong.extend(more);
    for part in ["/transcript.txt", "/part-0.txt"] {
        browser.open(&format!("{path}{part}"), json!({})).await;
        wrong.extend(inspected(browser, texts).await.0);
    }
    browser.open(&format!("{}/api/v1/loops/{}/iterations/2", dashboard.url, of.id), json!({})).await;
    wrong.extend(inspected(browser, texts).await.0);
    let removed = world.engine().store.write(|c| {
        c.execute_batch("DELETE FROM running_turns; DELETE FROM session_output")?;
        Ok(give_back(c)?)
    });
    removed.await.expect("removed");
    (wrong, shown)
}

/// Inspects the page that is open; returns its faults, and the number of the texts that it shows.
pub(crate) async fn inspected(browser: &mut Browser, texts: &[&str]) -> (Vec<String>, u64) {
    inspected_part(browser, texts, "body").await
}

/// Inspects the page that is open; returns its faults, and the number of the texts that elements of a selector show.
async fn inspected_part(browser: &mut Browser, texts: &[&str], part: &str) -> (Vec<String>, u64) {
    let texts = serde_json::to_string(texts).expect("JSON");
    let script = format!(
        "settled().then(() => {{
            const clean = (text) => text.replace(/[\\u0000-\\u0020\\u007f-\\u00a0\\u2028\\u2029\\ufeff]+/g, '');
            const fields = {part:?} === 'body' ? [...document.querySelectorAll('input, textarea')].map((f) => f.value) : '';
            const shown = clean([...document.querySelectorAll({part:?})].map((part) => part.textContent) + fields);
            return {{ wrong: [...inspect(document, ['feed', 'page']), ...ran], shown: {texts}.filter((text) => shown.includes(clean(text))).length }};
        }})"
    );
    let found = browser.evaluate(&script).await;
    let wrong =
        found["wrong"].as_array().expect("a list").iter().map(|one| one.as_str().unwrap_or_default().to_owned());
    let mut wrong: Vec<String> = wrong.collect();
    let alarms = browser.call(json!({ "command": "alarms" })).await;
    wrong.extend(alarms.as_array().expect("a list").iter().map(ToString::to_string));
    (wrong, found["shown"].as_u64().expect("a number"))
}

/// See docs/research/threats.md#i11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_texts_have_no_effect_in_a_browser() {
    let distinct: std::collections::BTreeSet<&str> = HOSTILE_TEXTS.into_iter().collect();
    assert!(distinct.len() == HOSTILE_TEXTS.len() && distinct.len() >= 200, "{}", distinct.len());
    let Some(mut browser) = Browser::start().await else { return };
    story(marked(), async |world: &mut World| {
        world.run().await;
        world.comment("/ralph resume --max-iterations 2 xmark guidance").await;
        world.settle().await;
        let stopped = world.the_loop().await;
        assert_eq!((stopped.state, stopped.iterations.len()), (LoopState::LimitReached, 2), "{}", stopped.why);
        let plan = planned(world).await;
        let engine = world.engine().clone();
        let memory = engine.executor.memory.clone();
        let (repo, settings) = (stopped.issue.repo.clone(), engine.recall.settings.clone());
        let seeded = engine.store.write(move |c| {
            for loop_id in ["r-1-aaaaaa", "r-2-aaaaaa", "r-3-aaaaaa", "r-4-aaaaaa", "r-5-aaaaaa"] {
                let remark =
                    Remark { loop_id: LoopId::new(loop_id), text: "Name the tests after what they show.".into() };
                proposals::add_remark(c, &repo, &remark, &settings, Timestamp(1_790_000_000_000))?;
            }
            Ok(())
        });
        seeded.await.expect("seeded");
        let dashboard = ServedPages::of(world, true).await;
        let made =
            dashboard.post("/tokens", &[("csrf", ""), ("name", "xmark token"), ("scope", "read"), ("days", "9")]);
        assert_eq!(made.await.status, 201);
        let kept = engine.store.write(|c| Ok(keep(c)?)).await;
        kept.expect("kept");
        let watch = json!({ "command": "watch", "origin": dashboard.url, "script": INSPECT });
        browser.call(watch).await;
        let mut shown_in = std::collections::BTreeMap::<&str, u64>::new();
        for texts in HOSTILE_TEXTS.chunks(AT_ONCE) {
            let (of, memory) = (stopped.clone(), memory.clone());
            let texts: Vec<&'static str> = texts.to_vec();
            let stored = texts.clone();
            let ids = engine.store.write(move |c| {
                assert!(replace(c, &stored)? > 50, "texts are in the database");
                deliver(c, &stored);
                Ok(remember(c, &memory, &of, &stored))
            });
            let ids = ids.await.expect("replaced");
            let query = url::form_urlencoded::byte_serialize(texts.join(" ").replace('\u{0}', "").as_bytes())
                .collect::<String>()
                .replace('+', "%20");
            for bypass in [false, true] {
                browser.call(json!({ "command": "bypass", "enabled": bypass })).await;
                for page in PAGES {
                    let path = page.replace("PLAN", plan.as_str()).replace("ID", stopped.id.as_str());
                    let path = path.replace("TEXT", &query);
                    browser.open(&format!("{}{path}", dashboard.url), json!({})).await;
                    // The title has the texts, too; the plan is the page's only long text.
                    let part = if page == "/loops/PLAN" { "pre" } else { "body" };
                    let (wrong, shown) = inspected_part(&mut browser, &texts, part).await;
                    assert_eq!(wrong, [""; 0], "{page}, without policy: {bypass}, of {texts:#?}");
                    *shown_in.entry(page).or_default() += shown;
                }
                // The page takes its changed parts from the server, and the library looks at them.
                browser.open(&format!("{}/loops/{}", dashboard.url, stopped.id), json!({})).await;
                browser.evaluate("document.getElementById('page').setAttribute('data-old', '')").await;
                browser.evaluate("document.getElementById('feed').dispatchEvent(new CustomEvent('changed'))").await;
                browser.until("!document.getElementById('page').hasAttribute('data-old')").await;
                let (wrong, _) = inspected(&mut browser, &texts).await;
                assert_eq!(wrong, [""; 0], "after an update, without policy: {bypass}, of {texts:#?}");
            }
            for bypass in [false, true] {
                browser.call(json!({ "command": "bypass", "enabled": bypass })).await;
                let (wrong, shown) = followed(&mut browser, world, &dashboard, &stopped, &texts).await;
                assert_eq!(wrong, [""; 0], "of a running agent, without policy: {bypass}, of {texts:#?}");
                *shown_in.entry("a running agent").or_default() += shown;
            }
            engine.store.write(move |c| memory::forget(c, &ids)).await.expect("forgotten");
        }
        let faults = browser.call(json!({ "command": "faults" })).await.to_string();
        assert!(!faults.contains("Content Security"), "{faults}");
        // The texts were there: most of them are shown, twice each.
        let all = 2 * HOSTILE_TEXTS.len() as u64;
        for page in [
            "/",
            "/loops/ID",
            "/loops/PLAN",
            "/loops/ID/iterations/1",
            "/loops/ID/iterations/1/transcript.txt",
            "a running agent",
            "/deliveries",
            "/memory?q=TEXT",
            "/backends",
            "/tokens",
            "/audit",
        ] {
            assert!(shown_in[page] > all * 8 / 10, "{page} shows {} of {all}: {shown_in:#?}", shown_in[page]);
        }
        // And they are dangerous: what looks at the pages finds them where they are markup.
        browser.open(&format!("{}/loops/none", dashboard.url), json!({})).await;
        let texts = serde_json::to_string(&HOSTILE_TEXTS[..]).expect("JSON");
        let tried = browser.evaluate(&format!("tried({texts})")).await;
        let count =
            |what: &str| tried.as_array().expect("a list").iter().filter(|one| one[what].as_u64() > Some(0)).count();
        let alarms = browser.call(json!({ "command": "alarms" })).await;
        let requests = alarms.as_array().expect("a list").iter().filter_map(Value::as_str);
        let requests = requests.filter(|alarm| alarm.starts_with("request: ")).count();
        println!("{} found, {} ran, {requests} requests to elsewhere", count("wrong"), count("ran"));
        assert!(count("wrong") > 150 && count("ran") > 50 && requests > 10, "{tried}: {alarms}");
        let restored = engine.store.write(|c| {
            give_back(c)?;
            c.execute("DELETE FROM inbox WHERE state = 'dead'", [])?;
            for table in TABLES {
                c.execute_batch(&format!("DROP TABLE kept_{table}"))?;
            }
            Ok(())
        });
        restored.await.expect("restored");
    })
    .await;
}
