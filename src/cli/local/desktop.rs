//! A word on the desktop when a loop needs its person, who may have gone on to something else. It never fails a run, and
//! where there is no session to show it in, nothing is shown and nothing is said about that.

use std::path::Path;
use std::time::Duration;

use notify_rust::{Notification, Urgency};

use crate::config::Env;
use crate::domain::loops::Loop;
use crate::domain::trust::sanitize::visible;

/// Longest wait for the desktop.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest text, in characters.
const TEXT_MAX: usize = 300;

/// What is shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct News {
    summary: String,
    body: String,
}

/// What there is to show of a loop at rest; nothing where it asks for nobody.
pub(super) fn news(at_rest: &Loop) -> Option<News> {
    at_rest.escalated.as_ref()?;
    let line = |text: &str| {
        let line = visible(text).split_whitespace().collect::<Vec<_>>().join(" ");
        line.chars().take(TEXT_MAX).collect::<String>()
    };
    // Desktops read some HTML in a body.
    let plain = |text: &str| line(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let body = format!("{}\n{}", plain(&at_rest.task.title), plain(&at_rest.why));
    Some(News { summary: format!("ralph-bot needs you: {}", at_rest.state.as_str()), body })
}

/// Shows it, where there is a session.
pub(super) async fn show(news: &News, env: &Env) {
    if !has_session(env) {
        return;
    }
    let mut notification = Notification::new();
    notification.appname("ralph-bot").summary(&news.summary).body(&news.body).urgency(Urgency::Critical);
    match tokio::time::timeout(PATIENCE, notification.show_async()).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::debug!(%error, "the desktop showed nothing"),
        Err(_) => tracing::debug!("the desktop did not answer"),
    }
}

/// Whether there is a session bus: named, or at its usual place.
fn has_session(env: &Env) -> bool {
    let named = env.get("DBUS_SESSION_BUS_ADDRESS").is_some_and(|address| !address.is_empty());
    named || env.get("XDG_RUNTIME_DIR").is_some_and(|folder| Path::new(folder).join("bus").exists())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::lifecycle;
    use crate::domain::loops::{LoopStart, LoopState, LoopTask};
    use crate::domain::model::ids::IssueRef;
    use crate::domain::model::ids::{AccountKind, ForgeName, LoopId, Number, RepoId, RepoRef, Timestamp, User, UserId};
    use crate::domain::trust::command::RunOptions;
    use crate::domain::trust::policy::Policy;

    fn at_rest() -> Loop {
        let start = LoopStart {
            id: LoopId::new("r-42-k7m2qa"),
            place: IssueRef {
                repo: RepoRef { forge: ForgeName::new("local"), id: RepoId(1), owner: "me".into(), name: "app".into() },
                issue: Number(42),
            },
            by: User { id: UserId(1), login: "me".into(), kind: AccountKind::User },
            task: LoopTask {
                title: "The <b>answer</b> is\u{202e} wrong & late".into(),
                body: String::new(),
                url: String::new(),
                hash: "0".repeat(64),
                author: None,
                author_trusted: true,
                unconfirmed_editor: None,
                labels: Vec::new(),
            },
            options: RunOptions::default(),
            policy: Policy::default(),
            comment: None,
            hidden_removed: 0,
            round: 1,
        };
        lifecycle::start(start, Timestamp(1)).next
    }

    #[test]
    fn who_is_needed_is_told_why_in_plain_words() {
        let mut current = at_rest();
        assert_eq!(news(&current), None, "nobody is asked for");
        current.escalated = Some("stuck".into());
        current.state = LoopState::Paused;
        current.why = format!("The loop is stuck:\n\t{}", "no ".repeat(300));
        let told = news(&current).expect("a person is needed");
        assert_eq!(told.summary, "ralph-bot needs you: paused");
        let (title, why) = told.body.split_once('\n').expect("two lines");
        assert_eq!(title, "The &lt;b&gt;answer&lt;/b&gt; is wrong &amp; late");
        assert!(why.starts_with("The loop is stuck: no no ") && why.chars().count() == TEXT_MAX, "{why}");
    }

    #[test]
    fn without_a_session_there_is_no_desktop() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().to_str().expect("text");
        assert!(!has_session(&Env::of([("HOME", "/root"), ("DBUS_SESSION_BUS_ADDRESS", "")])));
        assert!(!has_session(&Env::of([("XDG_RUNTIME_DIR", path)])));
        std::fs::write(folder.path().join("bus"), "").expect("written");
        assert!(has_session(&Env::of([("XDG_RUNTIME_DIR", path)])));
        assert!(has_session(&Env::of([("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere")])));
    }
}
