//! Layout of the pages: frame, checks of rights, and errors.

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value as Json, json};

use crate::domain::loops::LoopState;
use crate::domain::report;
use crate::domain::trust::viewer::ViewRight;
use crate::store::StoreError;
use crate::web::markup::{POLICY, beside_tasks, error_context, rendered, with_status};
use crate::web::{Viewer, WebState, assets};

pub(super) use crate::web::markup::{beginning, markup_size, segment};

/// Frame of a page: title, navigation and addresses for updates.
#[derive(Debug, Clone)]
pub(super) struct PageFrame {
    /// Title.
    pub title: String,
    /// Name of the current navigation entry.
    pub nav: &'static str,
    /// Address of the page with its query. Scripts reload changed parts from it. Empty for a static page.
    pub here: String,
    /// Address of the event stream; empty for a static page.
    pub feed: String,
    /// Icon for the browser tab.
    pub icon: &'static str,
}

impl PageFrame {
    /// Creates the frame of a static page.
    pub fn still(title: &str, nav: &'static str) -> Self {
        Self { title: title.to_owned(), nav, here: String::new(), feed: String::new(), icon: "icon-rest.svg" }
    }
}

/// Returns the icon of a state.
pub(super) fn icon_of(state: LoopState) -> &'static str {
    match state {
        LoopState::Running => "icon-running.svg",
        LoopState::Review | LoopState::Merged => "icon-done.svg",
        LoopState::Failed | LoopState::Aborted => "icon-failed.svg",
        state if report::wants_person(state) => "icon-waiting.svg",
        _ => "icon-rest.svg",
    }
}

/// Renders a page and masks secrets in `context`. The texts in `trusted` are the service's HTML and are inserted unescaped.
pub(super) fn page(
    state: &WebState,
    viewer: &Viewer,
    template: &str,
    frame: &PageFrame,
    context: Json,
    trusted: Vec<(&'static str, String)>,
) -> Response {
    let name = viewer.account.as_ref().map_or("operator", |(_, user)| user.login.as_str());
    let frame = json!({
        "title": state.engine.outbound.masked(&frame.title),
        "nav": frame.nav,
        "here": frame.here,
        "feed": frame.feed,
        "icon": assets::address(frame.icon),
        "csrf": viewer.csrf,
        "viewer": name,
        "operator": viewer.operator,
    });
    beside_tasks(|| {
        let all = match state.engine.outbound.masked_json(context) {
            Json::Object(map) => map,
            _ => serde_json::Map::new(),
        };
        rendered(template, frame, all, trusted, POLICY.to_owned())
    })
}

/// Reason why a page cannot be shown.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum PageError {
    /// The page does not exist, or the viewer must not learn that it exists.
    #[error("There is nothing here that you may see.")]
    NotFound,
    /// The viewer may see the object but not this part of it.
    #[error("{0}")]
    Forbidden(&'static str),
    /// The request is not valid.
    #[error("{0}")]
    Invalid(String),
    /// The forge cannot be queried.
    #[error("{0}")]
    Unavailable(String),
    /// The store failed.
    #[error("The database could not be read; the log of the service says why.")]
    Store(StoreError),
}

impl From<StoreError> for PageError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl PageError {
    fn status(&self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Store(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns the title of the error page.
    fn title(&self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Forbidden(_) => "Not permitted",
            Self::Invalid(_) => "Invalid request",
            Self::Unavailable(_) => "The forge does not answer",
            Self::Store(_) => "The service has a problem",
        }
    }

    /// Renders the error as a page for the viewer.
    pub fn page(&self, state: &WebState, viewer: &Viewer) -> Response {
        self.page_with(state, viewer, &[("/", "All loops")])
    }

    /// Renders the error as a page for the viewer, with links to other pages.
    pub fn page_with(&self, state: &WebState, viewer: &Viewer, links: &[(&str, &str)]) -> Response {
        if let Self::Store(error) = self {
            tracing::error!(%error, "a page could not be read");
        }
        let context = error_context(&[&self.to_string()], "", links);
        let frame = PageFrame::still(self.title(), "");
        with_status(page(state, viewer, "error.html", &frame, context, Vec::new()), self.status())
    }
}

/// Fails unless the viewer has a right. Below `Read`, the object does not exist for the viewer.
pub(super) fn require(has: ViewRight, needs: ViewRight) -> Result<(), PageError> {
    match has {
        ViewRight::None => Err(PageError::NotFound),
        has if has < needs => Err(PageError::Forbidden("This needs write access to the repository.")),
        _ => Ok(()),
    }
}

/// Fails unless the viewer is an operator.
pub(super) fn require_operator(viewer: &Viewer) -> Result<(), PageError> {
    match viewer.operator {
        true => Ok(()),
        false => Err(PageError::Forbidden("Only operators see this page.")),
    }
}

/// Compares a form's token with the viewer's token in constant time; fails if they differ.
pub(super) fn require_token(viewer: &Viewer, token: &str) -> Result<(), PageError> {
    use subtle::ConstantTimeEq;
    match bool::from(viewer.csrf.as_bytes().ct_eq(token.as_bytes())) {
        true => Ok(()),
        false => Err(PageError::Forbidden("The form is too old; go back, load the page again, and repeat.")),
    }
}
