//! Desktop notification when a loop of `ralph-bot local` needs a person (feature `desktop`). Failures are only logged.
//! Nothing is shown without a desktop session. Without the feature only the tests use it.

use std::path::Path;

use crate::config::Env;
use crate::domain::loops::{Loop, LoopState};
use crate::domain::trust::sanitize::visible;

/// Maximum length of a line, in characters.
const TEXT_MAX: usize = 300;

/// Text of a notification.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DesktopNotification {
    summary: String,
    body: String,
    /// Whether the loop failed or ended, which desktops show as urgent.
    is_critical: bool,
}

/// Returns the notification for a loop that needs a person; `None` for any other.
pub(super) fn notification(current: &Loop) -> Option<DesktopNotification> {
    current.run.escalated.as_ref()?;
    let line = |text: &str| {
        let line = visible(text).split_whitespace().collect::<Vec<_>>().join(" ");
        line.chars().take(TEXT_MAX).collect::<String>()
    };
    // Desktops interpret some HTML in the body.
    let plain = |text: &str| line(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let body = format!("{}\n{}", plain(current.task.text.title()), plain(&current.why));
    let summary = format!(
        "ralph-bot needs you: {} is {} (iteration {})",
        current.id,
        current.state.words(),
        current.limits.iterations.progress(current.spent.iterations)
    );
    let is_critical = matches!(current.state, LoopState::Failed | LoopState::Aborted);
    Some(DesktopNotification { summary, body, is_critical })
}

/// Shows a notification if there is a desktop session.
#[cfg(feature = "desktop")]
pub(super) async fn show(notification: &DesktopNotification, env: &Env) {
    use notify_rust::{Notification, Urgency};

    /// Maximum time to wait for the desktop.
    const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);
    if !has_session(env) {
        return;
    }
    let urgency = if notification.is_critical { Urgency::Critical } else { Urgency::Normal };
    let mut shown = Notification::new();
    shown.appname("ralph-bot").summary(&notification.summary).body(&notification.body).urgency(urgency);
    match tokio::time::timeout(TIMEOUT, shown.show_async()).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::debug!(%error, "could not show a desktop notification"),
        Err(_) => tracing::debug!("the desktop did not answer; no notification was shown"),
    }
}

/// Whether a D-Bus session bus exists: in the environment, or at its default path.
fn has_session(env: &Env) -> bool {
    let named = env.get("DBUS_SESSION_BUS_ADDRESS").is_some_and(|address| !address.is_empty());
    named || env.get("XDG_RUNTIME_DIR").is_some_and(|folder| Path::new(folder).join("bus").exists())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::lifecycle;
    use crate::domain::loops::{EscalationCause, LoopStart, LoopTask, RunOptions, TaskText};
    use crate::domain::model::ids::IssueRef;
    use crate::domain::model::ids::{AccountKind, ForgeName, LoopId, Number, RepoId, RepoRef, Timestamp, User, UserId};
    use crate::domain::trust::policy::Policy;

    fn paused_loop() -> Loop {
        let start = LoopStart {
            request: String::new(),
            existing: None,
            id: LoopId::new("r-42-k7m2qa"),
            place: IssueRef {
                repo: RepoRef { forge: ForgeName::new("local"), id: RepoId(1), owner: "me".into(), name: "app".into() },
                issue: Number(42),
            },
            by: User { id: UserId(1), login: "me".into(), kind: AccountKind::User },
            task: LoopTask {
                text: TaskText::new("The <b>answer</b> is\u{202e} wrong & late", "", None),
                url: String::new(),
                hash: "0".repeat(64),
                author: None,
                author_trusted: true,
                unconfirmed_editor: None,
                edited_after: false,
                labels: Vec::new(),
            },
            options: RunOptions::default(),
            policy: Policy::default(),
            comment: None,
            hidden_removed: 0,
            round: 1,
            plan: None,
        };
        lifecycle::start(start, Timestamp(1)).next
    }

    #[test]
    fn notification_has_state_title_and_reason_without_markup() {
        let mut current = paused_loop();
        assert_eq!(notification(&current), None);
        current.run.escalated = Some(EscalationCause::Failed);
        current.state = LoopState::Paused;
        current.why = format!("The loop is stuck:\n\t{}", "no ".repeat(300));
        let notice = notification(&current).expect("a person is needed");
        assert_eq!(notice.summary, "ralph-bot needs you: r-42-k7m2qa is paused (iteration 0 of 10)");
        assert!(!notice.is_critical);
        current.state = LoopState::Failed;
        assert_eq!(notification(&current).map(|notice| notice.is_critical), Some(true));
        let (title, why) = notice.body.split_once('\n').expect("two lines");
        assert_eq!(title, "The &lt;b&gt;answer&lt;/b&gt; is wrong &amp; late");
        assert!(why.starts_with("The loop is stuck: no no ") && why.chars().count() == TEXT_MAX, "{why}");
    }

    #[test]
    fn session_is_found_by_variable_or_default_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().to_str().expect("text");
        assert!(!has_session(&Env::of([("HOME", "/root"), ("DBUS_SESSION_BUS_ADDRESS", "")])));
        assert!(!has_session(&Env::of([("XDG_RUNTIME_DIR", path)])));
        std::fs::write(folder.path().join("bus"), "").expect("written");
        assert!(has_session(&Env::of([("XDG_RUNTIME_DIR", path)])));
        assert!(has_session(&Env::of([("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere")])));
    }
}
