//! Pages of the demo forge in a real browser: the service's texts are rendered, and an outsider's markup is text.

use std::process::Stdio;

use fake_forge::Dialect;
use ralph_bot::domain::loops::LoopState;

use crate::harness::parts::{command, output, program};
use crate::harness::{Setup, story};

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Markup that would change the page if it were not escaped.
const HOSTILE: &str = "<script>document.title = 'owned'</script>\n\n\
    <img src=x onerror=\"document.body.id = 'owned'\"> and [a link](javascript:document.title='owned')\n\n\
    <svg onload=\"document.body.id = 'owned'\"></svg> </main><iframe src=\"javascript:alert(1)\"></iframe>";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn issue_page_shows_status_and_runs_no_script_of_comments() {
    let Some(browser) = program(&BROWSERS, "install chromium, as .ci/full does") else { return };
    let mut setup = Setup::new(Dialect::Gitea);
    setup.title = "The answer is </title><script>document.body.id = 'owned'</script> wrong".into();
    story(setup, async |world| {
        world.forge.comment(&world.outsider, world.repo, world.issue, HOSTILE).await.expect("commented");
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let profile = tempfile::tempdir().expect("a folder");
        let page = format!("{}mira/app/issues/{}", world.forge.url(), world.issue);
        let mut browse = command(browser);
        browse
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .args(["--dump-dom", &page])
            .stdin(Stdio::null());
        let dom = String::from_utf8(output(&mut browse).await).expect("text");

        // The browser's page: its own nodes, serialized again.
        let scripts: Vec<_> = dom.match_indices("<script").map(|(at, _)| &dom[at..dom.len().min(at + 60)]).collect();
        assert_eq!(scripts.len(), 1, "{scripts:?}");
        assert!(scripts[0].starts_with("<script src=\"/-/pages.js\""), "{scripts:?}");
        assert!(dom.contains("&lt;script&gt;document.title = 'owned'&lt;/script&gt;"), "the comment is there as text");
        for node in ["<iframe", "<svg", "<img", "<title>owned", "id=\"owned\"", "href=\"javascript:"] {
            assert!(!dom.contains(node), "{node} is in the page");
        }
        let status = done.pull.opened.expect("a pull request").url;
        assert!(dom.contains(&status), "the status comment links to the pull request");
        assert!(dom.contains("ralph:review"), "the label is shown");
        assert!(dom.contains("<table>"), "the status comment's table is one");
    })
    .await;
}
