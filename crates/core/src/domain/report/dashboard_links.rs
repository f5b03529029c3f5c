//! Links from texts on the forge to pages of the dashboard.

use url::Url;

use super::view::{Link, View};
use crate::domain::model::ids::LoopId;

/// Text of the links.
const TEXT: &str = "dashboard";

/// URLs of the dashboard's pages, if people can reach the dashboard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DashboardPages {
    /// Base URL without a trailing slash.
    base: String,
}

impl DashboardPages {
    /// Creates the URLs of the dashboard at `base`; ignores the path of `base`.
    pub fn at(base: &Url) -> Self {
        Self { base: base.as_str().trim_end_matches('/').to_owned() }
    }

    /// Returns the URL of a loop's page.
    pub fn of_loop(&self, id: &LoopId) -> String {
        format!("{}/loops/{id}", self.base)
    }

    /// Returns the URL of an iteration's page.
    fn of_iteration(&self, id: &LoopId, number: u32) -> String {
        format!("{}/iterations/{number}", self.of_loop(id))
    }

    /// Adds a link to the matching page: to the status comment, the comment on an iteration, the pull request, and
    /// escalations.
    pub fn link(&self, view: &mut View) {
        let (dashboard, url) = match view {
            View::Status(view) => (&mut view.dashboard, self.of_loop(&view.loop_id)),
            View::Iteration(view) => (&mut view.dashboard, self.of_iteration(&view.loop_id, view.n)),
            View::Pull(view) => (&mut view.dashboard, self.of_loop(&view.loop_id)),
            View::Escalation(view) => (&mut view.dashboard, self.of_loop(&view.loop_id)),
            _ => return,
        };
        *dashboard = Some(Link { text: TEXT.to_owned(), url });
    }
}

/// Adds to each failing check the first line of its output in the iteration's transcript. `line` returns this line for a
/// check's name.
pub fn add_check_lines(view: &mut View, line: impl Fn(&str) -> Option<usize>) {
    if let View::Iteration(view) = view {
        for check in view.checks.iter_mut().filter(|check| !check.holds) {
            check.line = line(&check.name).and_then(|line| u64::try_from(line).ok());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::lifecycle::samples;
    use crate::domain::model::ids::Timestamp;
    use crate::domain::report;
    use crate::domain::report::view::CheckLine;

    fn check(name: &str, holds: bool) -> CheckLine {
        let (command, why) = (format!("make {name}"), String::new());
        CheckLine {
            name: name.into(),
            command,
            holds,
            why,
            flaky: false,
            ran_once: false,
            unread: false,
            tests: None,
            duration_s: 1,
            output: String::new(),
            line: None,
        }
    }

    fn pages() -> DashboardPages {
        DashboardPages::at(&Url::parse("https://ralph.example.org").expect("an address"))
    }

    #[test]
    fn texts_about_a_loop_link_to_its_page() {
        let current = samples::stuck();
        let page = format!("https://ralph.example.org/loops/{}", current.id);
        let address = |mut view: View| {
            pages().link(&mut view);
            serde_json::to_value(view).expect("JSON")["dashboard"]["url"].as_str().map(str::to_owned)
        };
        assert_eq!(address(report::status(&current, "mine", Timestamp(1))), Some(page.clone()));
        assert_eq!(address(View::Pull(Box::new(report::pull(&current, Timestamp(1))))), Some(page.clone()));
        let iteration = report::iteration(&current).expect("an iteration");
        let number = current.current().expect("an iteration").number;
        assert_eq!(address(iteration), Some(format!("{page}/iterations/{number}")));
        let reply = report::view::CommandReply { command: "help".into(), ok: true, lines: Vec::new(), nearest: None };
        assert_eq!(address(View::Reply(reply)), None);
    }

    #[test]
    fn failing_checks_link_to_their_output_lines() {
        let Some(View::Iteration(mut view)) = report::iteration(&samples::stuck()) else { panic!("an iteration") };
        view.checks =
            [("passes", true), ("fails", false), ("unknown", false)].map(|(name, holds)| check(name, holds)).into();
        let mut view = View::Iteration(view);
        add_check_lines(&mut view, |name| (name != "unknown").then_some(120));
        let View::Iteration(view) = view else { panic!("an iteration") };
        assert_eq!(view.checks.iter().map(|check| check.line).collect::<Vec<_>>(), [None, Some(120), None]);
    }
}
