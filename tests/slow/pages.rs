//! Pages of the search and of costs, links from the forge to the dashboard, and the size of pages of large loops.

use std::collections::BTreeSet;
use std::time::Duration;

use fake_forge::Dialect;
use ralph_bot::domain::knowledge::session::{EventKind, SessionEvent, SessionTurn, TurnRole};
use ralph_bot::domain::loops::{Loop, LoopState, TaskText};
use ralph_bot::domain::model::ids::{LoopId, Money, Timestamp};
use ralph_bot::domain::providers::money::day_of;
use ralph_bot::store::session::{NewEvent, NewTurn, add_events, add_turn};
use ralph_bot::store::sql::params;
use regex::Regex;
use serde_json::Value;

use crate::harness::dashboard::ServedPages;
use crate::harness::viewers::{ViewerKind, as_viewer, open_logins, prepare_logins, with_login};
use crate::harness::{Setup, World, on_both_forges, on_one_forge, prepared_story, story};

on_both_forges!(texts_on_the_forge_link_to_the_dashboard);

on_one_forge!(
    search_result_links_to_the_line,
    search_continues_on_the_next_page,
    search_without_results_gives_advice,
    search_and_costs_respect_the_rights_of_the_viewer,
    costs_are_shown_as_chart_tables_and_files,
    dashboard_of_this_machine_is_not_linked,
    pages_of_a_large_loop_are_small,
    loop_page_shows_health_and_alarms_with_their_times,
);

/// An agent that fails its check in the first iteration.
const SECOND_TRY: &str = "case $RALPH_ITERATION in 1) echo 40 >answer.txt ;; *) echo 42 >answer.txt ;; esac\n";

/// Returns the addresses of links in a page, decoded.
fn links(page: &str) -> Vec<String> {
    let link = Regex::new("href=\"([^\"]*)\"").expect("pattern");
    link.captures_iter(page).map(|found| found[1].replace("&#x2f;", "/").replace("&amp;", "&")).collect()
}

async fn search_result_links_to_the_line(dialect: Dialect) {
    story(Setup::new(dialect).agent(SECOND_TRY), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 2), "{}", done.why);
        let pages = ServedPages::of(world, false).await;
        // Each page has the field.
        assert!(pages.get("/").await.body.contains("action=\"/search\""));
        let found = pages.get("/search?q=answer+is+40").await;
        assert_eq!(found.status, 200, "{}", found.body);
        for word in ["The answer is wrong", "<mark>answer</mark>", "check, iteration 1", &format!("/loops/{}", done.id)]
        {
            assert!(found.body.contains(word), "{word}: {}", found.body);
        }
        let more = pages.get("/search?q=answer").await;
        let found = links(&found.body).into_iter().chain(links(&more.body));
        let texts: Vec<String> = found.filter(|link| link.contains("?text=")).collect();
        assert!(texts.len() >= 2, "{texts:?}");
        let mut seen = BTreeSet::new();
        for link in &texts {
            let leads = pages.get(link).await;
            assert_eq!(leads.status, 303, "{link}: {}", leads.body);
            let line = &leads.headers["location"];
            let (path, id) = line.split_once('#').unwrap_or_else(|| panic!("{link} leads to {line}"));
            let page = pages.get(path).await.body;
            let shown = page.split(&format!("id=\"{id}\">")).nth(1).unwrap_or_else(|| panic!("{line} is not shown"));
            let shown = shown.split("</div>").next().unwrap_or_default();
            assert!(shown.to_lowercase().contains("answer"), "{link} leads to {shown}");
            seen.insert(shown.to_owned());
        }
        // The check's name has one of the words; the line of its output has all of them.
        assert!(seen.iter().any(|line| line.contains("answer is 40")), "the check's output is not in {seen:#?}");
        // Filters narrow it.
        let count = async |query: &str| {
            let found = pages.get(&format!("/search?q=answer&{query}")).await;
            found.body.matches("<li><a class=\"small\"").count()
        };
        let counts = [count("kind=title").await, count("kind=prompt").await, count("kind=output").await];
        assert!(counts[0] == 1 && counts[1] >= 2 && counts[2] >= 1, "{counts:?}");
        assert_eq!(count("kind=comment").await + count("state=paused").await + count("forge=other").await, 0);
        assert!(count("state=review&forge=forge&repository=forge%3Amira%2Fapp").await > 2);
        for bad in
            ["/search?q=answer&kind=songs", "/search?q=answer&state=x", "/search?q=answer&after=1", "/search?q=%22"]
        {
            let answer = pages.get(bad).await;
            assert!(answer.status == 422 && answer.body.contains("role=\"alert\""), "{bad}: {}", answer.status);
        }
        for gone in ["prompt-999", "event-999"] {
            let path = format!("/loops/{}/iterations/1?text={gone}&line=1", done.id);
            assert_eq!(pages.get(&path).await.status, 404, "{gone}");
        }
    })
    .await;
}

fn turn(iteration: u32, nth: i64, prompt: &str) -> NewTurn {
    NewTurn::pack(SessionTurn {
        iteration,
        attempt: 1,
        role: TurnRole::Assistant,
        prompt: prompt.into(),
        response: "Done.".into(),
        backend: "mine".into(),
        model: None,
        tokens_in: 1,
        tokens_out: 1,
        tokens_cached: 0,
        cost: Money(1),
        estimated: false,
        error: None,
        learnings: Vec::new(),
        started: Timestamp(nth),
        ended: Timestamp(nth),
    })
}

async fn search_continues_on_the_next_page(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let done = world.run().await;
        let id = done.id.clone();
        let added = world.engine().store.write(move |c| {
            for nth in 0..50 {
                add_turn(c, &id, &turn(1, nth, &format!("Draw zebra number {nth}: <script>alert(1)</script>.")))?;
            }
            Ok(())
        });
        added.await.expect("stored");
        let pages = ServedPages::of(world, false).await;
        let (mut next, mut seen, mut count) = ("/search?q=zebra".to_owned(), BTreeSet::new(), 0);
        while !next.is_empty() {
            let page = pages.get(&next).await.body;
            assert!(!page.contains("<script>alert") && page.contains("&lt;script&gt;alert"), "{page}");
            count += 1;
            assert!(count < 9, "the search never ends");
            let found = links(&page);
            seen.extend(found.iter().filter(|link| link.contains("?text=")).cloned());
            let further = page.contains("Further results");
            next = found.into_iter().rfind(|link| further && link.contains("&after=")).unwrap_or_default();
        }
        assert_eq!(seen.len(), 50, "each text is found once: {seen:?}");
        assert!(count >= 3, "on {count} pages");
    })
    .await;
}

async fn search_without_results_gives_advice(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.run().await;
        let pages = ServedPages::of(world, false).await;
        let empty = pages.get("/search").await;
        assert!(empty.status == 200 && empty.body.contains("contain all of the words"), "{}", empty.body);
        let none = pages.get("/search?q=zebra").await;
        assert!(none.status == 200 && none.body.contains("No text contains all of these words"), "{}", none.body);
        let filtered = pages.get("/search?q=zebra&kind=prompt").await.body;
        assert!(filtered.contains("with these filters") && links(&filtered).contains(&"/search?q=zebra".to_owned()));
        let long = pages.get(&format!("/search?q={}", "x".repeat(501))).await;
        assert!(long.status == 422 && long.body.contains("search for fewer"), "{}", long.body);
    })
    .await;
}

/// Adds the cost of a day that started `ago` days before now.
async fn add_cost(world: &World, ago: i64, (repo, backend, person): (i64, &'static str, &'static str), cost: i64) {
    let day = day_of(world.clock.now()) - ago;
    let sql =
        "INSERT INTO daily_costs (day, forge, repo_id, backend, person_id, person, calls, cost, tokens_in, tokens_out)
        VALUES (?1, 'forge', ?2, ?3, ?4, ?5, 2, ?6, 900, 40)";
    let added = world.engine().store.write(move |c| {
        c.execute(sql, params![day, repo, backend, person.len() as i64 + 100, person, cost])?;
        Ok(())
    });
    added.await.expect("stored");
}

async fn search_and_costs_respect_the_rights_of_the_viewer(dialect: Dialect) {
    prepared_story(with_login(Setup::new(dialect)), prepare_logins, async |world| {
        open_logins(world).await;
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        add_cost(world, 1, (world.repo.0, "claude", "mira"), 2_000_000).await;
        for (kind, titles, texts) in [
            (ViewerKind::Writer, true, true),
            (ViewerKind::Operator, true, true),
            (ViewerKind::Reader, true, false),
            (ViewerKind::OtherWriter, false, false),
        ] {
            let mut browser = as_viewer(world, kind).await;
            let found = browser.get("/search?q=answer").await;
            assert_eq!(found.status, 200, "{kind:?}");
            assert_eq!(found.text.contains(&format!("/loops/{}\"", done.id)), titles, "{kind:?}: {}", found.text);
            assert_eq!(found.text.contains("?text="), texts, "{kind:?}: {}", found.text);
            assert_eq!(found.text.contains("forge:mira"), titles, "{kind:?} sees the repository in the filter");
            let row = format!("/loops/{}/iterations/1?text=prompt-1&line=1", done.id);
            let expected = if texts {
                303
            } else if titles {
                403
            } else {
                404
            };
            assert_eq!(browser.get(&row).await.status, expected, "{kind:?}");
            let costs = browser.get("/costs").await;
            assert_eq!(costs.text.contains("$2.00"), titles, "{kind:?}: {}", costs.text);
            let file = browser.get("/costs.csv?by=person").await;
            assert_eq!(file.text.contains("\"mira\""), titles, "{kind:?}: {}", file.text);
        }
        world.settle().await;
    })
    .await;
}

async fn costs_are_shown_as_chart_tables_and_files(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.run().await;
        let repo = world.repo.0;
        add_cost(world, 0, (repo, "claude", "mira"), 2_000_000).await;
        add_cost(world, 3, (repo, "codex", "otto"), 500_000).await;
        add_cost(world, 20, (repo, "codex", "=otto"), 250_000).await;
        add_cost(world, 60, (7, "gemini", "olga"), 4_000_000).await;
        let pages = ServedPages::of(world, false).await;
        let sum = |page: &str| {
            let strong = Regex::new(r"<strong>(\$[0-9.]+)</strong>").expect("pattern");
            strong.captures(page).map_or_else(String::new, |found| found[1].to_owned())
        };
        for (query, total) in [("?days=7", "$2.50"), ("", "$2.75"), ("?days=90", "$6.75"), ("?days=x&by=y", "$2.75")] {
            let page = pages.get(&format!("/costs{query}")).await;
            assert_eq!((page.status, sum(&page.body).as_str()), (200, total), "{query}: {}", page.body);
            assert!(page.body.contains("<svg") && page.body.contains("#0072B2"), "{query}: {}", page.body);
        }
        let page = pages.get("/costs?by=backend&days=90").await.body;
        let at = |word: &str| page.find(&format!("<td>{word}</td>")).unwrap_or_else(|| panic!("{word}: {page}"));
        assert!(at("gemini") < at("claude") && at("claude") < at("codex"), "the most expensive first");
        let downloads = links(&page);
        let json = downloads.iter().find(|link| link.starts_with("/api/v1/costs?")).expect("a link");
        let json: Value = serde_json::from_str(&pages.get(json).await.body).expect("JSON");
        let paid = json["days"].as_array().expect("days").iter().filter(|day| day["cost_usd"] != 0.0).count();
        assert_eq!((json["total_usd"].as_f64(), paid), (Some(6.75), 4), "{json}");
        let csv = pages.get("/costs.csv?by=person&days=30").await;
        assert!(csv.headers["content-type"].starts_with("text/csv"), "{:?}", csv.headers);
        assert!(csv.headers["content-disposition"].starts_with("attachment; filename=\"costs-person-"));
        assert!(csv.body.starts_with("day,person,calls,cost_usd,tokens_in,tokens_out\r\n"), "{}", csv.body);
        for row in [",\"mira\",2,2,900,40\r\n", ",\"otto\",2,0.5,900,40\r\n", ",\"'=otto\",2,0.25,900,40\r\n"] {
            assert!(csv.body.contains(row), "{row}: {}", csv.body);
        }
        assert!(!csv.body.contains("olga"), "sixty days ago: {}", csv.body);
    })
    .await;
}

async fn texts_on_the_forge_link_to_the_dashboard(dialect: Dialect) {
    let mut setup = with_login(Setup::new(dialect)).config("limits: { iterations: 2, comments_per_hour: 1000 }");
    setup.agent = "echo 40 >answer.txt\n".into();
    setup.env.push(("RALPH_SERVER__PUBLIC_URL", "https://ralph.example.org".into()));
    prepared_story(setup, prepare_logins, async |world| {
        let stopped = world.run().await;
        assert_eq!(stopped.state, LoopState::LimitReached, "{}", stopped.why);
        let page = format!("https://ralph.example.org/loops/{}", stopped.id);
        let comments = world.bot_comments();
        let comment = |word: &str| {
            let found = comments.iter().find(|body| body.contains(word));
            found.unwrap_or_else(|| panic!("{word}: {comments:#?}"))
        };
        let status = comment("Limit reached");
        for link in
            [format!("[dashboard]({page})"), format!("[1]({page}/iterations/1)"), format!("[2]({page}/iterations/2)")]
        {
            assert!(status.contains(&link), "{link}: {status}");
        }
        let iteration = comment("### Iteration 2 of 2");
        assert!(iteration.contains(&format!("[dashboard]({page}/iterations/2)")), "{iteration}");
        let output = Regex::new(r"\[output\]\(([^)]*)\?line=([0-9]+)#i2-L([0-9]+)\)").expect("pattern");
        let found = output.captures(iteration).unwrap_or_else(|| panic!("{iteration}"));
        assert_eq!((&found[1], &found[2]), (format!("{page}/iterations/2").as_str(), &found[3]));
        // The line belongs to the check in the transcript.
        let pages = ServedPages::of(world, false).await;
        let text = pages.get(&format!("/loops/{}/iterations/2/transcript.txt", stopped.id)).await.body;
        let line = text.lines().nth(found[2].parse::<usize>().expect("a number") - 1).expect("a line");
        assert!(line.starts_with("==> Check answer failed"), "{line}");
        world.settle().await;
    })
    .await;
}

async fn dashboard_of_this_machine_is_not_linked(dialect: Dialect) {
    story(Setup::new(dialect).agent(SECOND_TRY), async |world| {
        world.run().await;
        for body in world.bot_comments() {
            assert!(!body.contains("/loops/") && !body.contains("[dashboard]"), "{body}");
        }
    })
    .await;
}

/// Makes a loop one of a hundred iterations with large texts of all kinds; returns its stored data before.
async fn enlarge(world: &World, id: &LoopId) -> String {
    let of = id.clone();
    let enlarged = world.engine().store.write(move |c| {
        let data: String = c.query_row("SELECT data FROM loops WHERE id = ?1", [of.as_str()], |row| row.get(0))?;
        let mut current = Loop::read(&data)?;
        let long = "A sentence with <angles> & \"quotes\" / slashes, which is repeated. ".repeat(40);
        let template = current.iterations[0].clone();
        current.task.text = TaskText::new(current.task.text.title(), long.repeat(25), None);
        current.why = long.clone();
        current.iterations = (1..=100)
            .map(|number| {
                let mut one = template.clone();
                one.number = number;
                one.report.approach.clone_from(&long);
                one.report.summary.clone_from(&long);
                one.report.learnings = vec![long.clone(); 20];
                one.agent_problem.clone_from(&long);
                one.checks.outcomes = vec![one.checks.outcomes[0].clone(); 10];
                for check in &mut one.checks.outcomes {
                    check.holds = false;
                    check.why.clone_from(&long);
                    check.output = long.repeat(4);
                }
                one
            })
            .collect();
        current.spent.iterations = 100;
        current.state = LoopState::Paused;
        c.execute("UPDATE loops SET data = ?2 WHERE id = ?1", params![of.as_str(), serde_json::to_string(&current)?])?;
        c.execute("UPDATE loop_summaries SET state = 'paused', waits = 1 WHERE loop_id = ?1", [of.as_str()])?;
        for nth in 0..5 {
            add_turn(c, &of, &turn(50, 1_000 + nth, &format!("{long}\n").repeat(40)))?;
        }
        let event = |at: i64| SessionEvent {
            iteration: 50,
            kind: EventKind::ToolCall,
            tool: Some("Bash".into()),
            path: None,
            text: format!("{}\n", "/x/\"y\"/".repeat(30)).repeat(30),
            failed: false,
            at: Timestamp(at),
        };
        let events: Vec<NewEvent> = (0..300).map(|at| NewEvent::pack(event(at))).collect();
        add_events(c, &of, &events)?;
        Ok(data)
    });
    enlarged.await.expect("stored")
}

async fn pages_of_a_large_loop_are_small(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let done = world.run().await;
        let before = enlarge(world, &done.id).await;
        let pages = ServedPages::of(world, false).await;
        let id = &done.id;
        for path in [
            "/".to_owned(),
            format!("/loops/{id}"),
            format!("/loops/{id}?until=50"),
            format!("/loops/{id}/iterations/50"),
            format!("/loops/{id}/iterations/50?from=120"),
            format!("/loops/{id}/iterations/50?line=4000"),
            format!("/loops/{id}/iterations/1"),
            "/search?q=sentence".to_owned(),
            "/costs".to_owned(),
            "/repositories".to_owned(),
            "/deliveries".to_owned(),
        ] {
            let answer = pages.get(&path).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.body);
            let longest = answer.body.lines().max_by_key(|line| line.len()).unwrap_or_default();
            let begins: String = longest.chars().take(300).collect();
            let size = answer.body.len();
            assert!(size < 100 * 1024, "{path} has {size} bytes, {} of them in the line {begins}", longest.len());
        }
        // All iterations are reached by links.
        let (mut next, mut numbers) = (format!("/loops/{id}"), BTreeSet::new());
        while !next.is_empty() {
            let page = pages.get(&next).await.body;
            let found = links(&page);
            numbers.extend(found.iter().filter_map(|link| link.rsplit_once("/iterations/")?.1.parse::<u32>().ok()));
            let earlier = page.split("Earlier iterations").next().filter(|before| before.len() < page.len());
            let link = earlier.and_then(|before| links(before).pop());
            next = link.and_then(|link| link.split('#').next().map(str::to_owned)).unwrap_or_default();
        }
        assert_eq!(numbers.len(), 100, "{numbers:?}");
        // At the end of a story, the loop equals the replay of its log.
        let of = id.clone();
        let restored = world.engine().store.write(move |c| {
            c.execute("UPDATE loops SET data = ?2 WHERE id = ?1", params![of.as_str(), before])?;
            c.execute("UPDATE loop_summaries SET state = 'review', waits = 0 WHERE loop_id = ?1", [of.as_str()])?;
            Ok(())
        });
        restored.await.expect("stored");
    })
    .await;
}

/// Each row of the iterations has the health and the active alarms, with the time of the judgement and the time when the
/// alarm was raised.
async fn loop_page_shows_health_and_alarms_with_their_times(dialect: Dialect) {
    let agent = "echo \"$RALPH_ITERATION wrong\" >answer.txt\n";
    let config = "limits: { iterations: 30, comments_per_hour: 1000, comments_per_day: 1000 }";
    story(Setup::new(dialect).agent(agent).config(config), async |world| {
        world.comment("/ralph run --max-iterations 4").await;
        world.settle().await;
        world.advance(Duration::from_secs(7 * 60)).await;
        world.comment("/ralph resume --max-iterations 30").await;
        world.settle().await;
        let stopped = world.the_loop().await;
        let page = ServedPages::of(world, false).await.get(&format!("/loops/{}", stopped.id)).await;
        let time = |at: Option<Timestamp>| {
            let at = jiff::Timestamp::from_millisecond(at.expect("an ended iteration").0).expect("a time");
            format!("<time datetime=\"{at}\">")
        };
        let (mut healths, mut raised_earlier) = (BTreeSet::new(), 0);
        for iteration in &stopped.iterations {
            let start = format!("/iterations/{0}\">{0}</a></td><td>", iteration.number);
            let row = page.body.split(&start).nth(1).and_then(|rest| rest.split("</tr>").next());
            let row = row.unwrap_or_else(|| panic!("{start}: {}", page.body));
            let judged = iteration.judged.as_ref().expect("judged");
            let health = format!("</time></td><td>{}</td>", judged.health.word());
            assert!(row.starts_with(&time(iteration.ended_at)) && row.contains(&health), "{health}: {row}");
            healths.insert(judged.health.word());
            for alarm in &judged.control.as_ref().expect("figures").alarms {
                let since = &stopped.iterations[usize::try_from(alarm.since).expect("a number") - 1];
                let (words, at) = (alarm.kind.name(), time(since.ended_at));
                let shown = row.split(words).nth(1).and_then(|rest| rest.split("</time>)").next());
                assert!(shown.is_some_and(|text| text.contains(&format!("({at}"))), "{words} {at}: {row}");
                raised_earlier += usize::from(since.ended_at < iteration.ended_at);
            }
        }
        assert!(
            healths.len() > 1 && raised_earlier > 0,
            "{healths:?}, {raised_earlier}: {:#?}",
            stopped.iterations.len()
        );
        world.comment("/ralph abort").await;
        world.settle().await;
    })
    .await;
}
