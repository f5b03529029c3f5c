//! Issues of outsiders with hidden and drawn text: no agent gets what people do not see, and none runs before a maintainer has
//! confirmed the rest.
//!
//! The texts are those of the unit tests of the sanitizer (`tests/fixtures/documents`), several in one issue. Deliveries are signed,
//! the agent keeps the prompts that it gets, and the canary is a word of each hidden text.
//!
//! It was seen to fail ("the canary of one of … reached an agent") with texts that show in one issue what each hides alone: front matter
//! behind other text, and a footnote that another text uses.

use std::sync::LazyLock;
use std::time::Duration;

use fake_forge::Dialect;
use ralph_bot::domain::loops::{LoopState, LoopStep};
use ralph_bot::domain::trust::sanitize;

use crate::harness::documents::{CANARY, DocumentCase, cases, hidden_cases};
use crate::harness::{Setup, World, on_both_forges, prepared_story};

on_both_forges!(hidden_and_drawn_texts_reach_no_agent);

/// Maximum number of texts in one issue.
const MOST_TEXTS: usize = 40;
/// Maximum length of an issue's text, in bytes; GitHub takes 65,536 characters.
const MOST_BYTES: usize = 60_000;

/// Texts in one issue, between lines that people see.
#[derive(Default)]
struct FiledTexts {
    body: String,
    titles: Vec<String>,
    /// Lines that the agent must get.
    seen: Vec<String>,
    /// Whether nothing is seen behind the last text.
    swallows: bool,
}

impl FiledTexts {
    /// Returns the texts with one more; `None` where not all of them would have the effect that they have alone.
    fn with(&self, number: usize, case: &DocumentCase) -> Option<Self> {
        let (begin, end) = (format!("Text {number} begins."), format!("Text {number} ends."));
        let body = format!("{}{begin}\n\n{}\n\n{end}\n\n", self.body, case.markdown);
        let visible = sanitize::for_prompt(&body).text;
        let swallows = !visible.contains(&end);
        let mut seen = self.seen.clone();
        seen.push(begin);
        seen.extend((!swallows).then_some(end));
        let fits = self.titles.is_empty()
            || self.titles.len() < MOST_TEXTS
                && !self.swallows
                && body.len() <= MOST_BYTES
                && !leaks(&visible)
                && seen.iter().all(|line| visible.contains(line));
        let titles = self.titles.iter().chain([&case.title]).cloned().collect();
        fits.then_some(Self { body, titles, seen, swallows })
    }

    /// Returns an issue of one text. One that only hides something where it begins the issue, as front matter does, stands there as it is.
    fn alone(number: usize, case: &DocumentCase) -> Self {
        let framed = Self::default().with(number, case).expect("a single text fits");
        if !leaks(&sanitize::for_prompt(&framed.body).text) {
            return framed;
        }
        let (titles, seen) = (vec![case.title.clone()], vec!["Before".to_owned()]);
        Self { body: case.markdown.clone(), titles, seen, swallows: true }
    }
}

/// Whether a canary is in a text.
fn leaks(text: &str) -> bool {
    text.to_lowercase().contains(&CANARY.to_lowercase())
}

/// Distributes texts over issues. Those that swallow what follows come last in theirs; those that show what another hides, as a use of
/// its footnote does, are not in the same one.
fn filed(texts: &[DocumentCase]) -> Vec<FiledTexts> {
    let mut all: Vec<FiledTexts> = Vec::new();
    let mut last = Vec::new();
    for (number, case) in texts.iter().enumerate() {
        let alone = FiledTexts::alone(number, case);
        match all.last().and_then(|issue| issue.with(number, case)) {
            _ if alone.swallows => last.push((number, case, alone)),
            Some(more) => *all.last_mut().expect("an issue") = more,
            None => all.push(alone),
        }
    }
    for (at, (number, case, alone)) in last.into_iter().enumerate() {
        match all.get(at).and_then(|issue| issue.with(number, case)) {
            Some(more) => all[at] = more,
            None => all.push(alone),
        }
    }
    all
}

/// Issues with all texts, the same on both forges: reading them for the distribution takes longer than the stories.
static ISSUES: LazyLock<Vec<FiledTexts>> = LazyLock::new(|| {
    let texts: Vec<DocumentCase> = hidden_cases().into_iter().chain(cases("drawn")).collect();
    assert!(texts.len() >= 340, "{} texts", texts.len());
    let issues = filed(&texts);
    assert_eq!(issues.iter().map(|issue| issue.titles.len()).sum::<usize>(), texts.len());
    issues
});

/// See docs/research/threats.md#i2.
async fn hidden_and_drawn_texts_reach_no_agent(dialect: Dialect) {
    let keep = |world: &mut World| {
        let folder = world.folder.path().display();
        world.write_agent(&format!("cat >>\"{folder}/prompts\"\necho 42 >answer.txt\n"));
    };
    prepared_story(Setup::new(dialect), keep, async |world| {
        let prompts = world.folder.path().join("prompts");
        for issue in ISSUES.iter() {
            assert!(issue.titles.len() == 1 || !issue.seen.is_empty());
            let (who, title) = (world.outsider.clone(), "The answer is wrong here");
            world.issue = world.forge.open_issue(&who, world.repo, title, &issue.body, &[]).await.expect("an issue");
            world.settle().await;
            // A recent edit would be a reason to wait, too.
            world.advance(Duration::from_secs(3600)).await;
            let held = world.run().await;
            assert_eq!(held.state, LoopState::NeedsConfirm, "{:?}: {}", issue.titles, held.why);
            assert_eq!(held.place.issue, world.issue);
            assert!(!prompts.exists(), "an agent ran before the confirmation of {:?}", issue.titles);
            world.comment(&format!("/ralph run --confirm {}", &held.task.hash[..8])).await;
            let after_agent = |current: &ralph_bot::domain::loops::Loop| {
                current.place.issue == held.place.issue && current.step == LoopStep::Commit
            };
            world.stop_at("the end of the agent", after_agent).await;
            let prompt = std::fs::read_to_string(&prompts).expect("the agent's prompt");
            std::fs::remove_file(&prompts).expect("removed");
            assert!(!leaks(&prompt), "the canary of one of {:?} reached an agent:\n{prompt}", issue.titles);
            for line in &issue.seen {
                assert!(prompt.contains(line), "{line:?} of {:?} is not in:\n{prompt}", issue.titles);
            }
            world.comment("/ralph abort").await;
            world.settle().await;
        }
    })
    .await;
}
