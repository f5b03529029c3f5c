//! Layout of the pages: frame, checks of rights, and errors.

use std::sync::{Arc, LazyLock};

use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{self, MethodRouter};
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::PAGES;
pub(super) use super::page_def::{PageDef, PageNav, PageRights};
use crate::domain::loops::LoopState;
use crate::domain::report;
use crate::domain::trust::viewer::ViewRight;
use crate::engine::DashboardCommandError;
use crate::store::StoreError;
use crate::web::markup::{POLICY, Templates, beside_tasks, error_context, rendered, templates, with_status};
use crate::web::{Viewer, WebState, assets};

pub(super) use crate::web::markup::{beginning, markup_size, page_template, segment};

/// Returns the handler of a page: rejects viewers without the page's rights, then runs `show`. An error becomes a page.
pub(super) fn opened<A, Shown, Answer>(page: &'static PageDef, show: Shown) -> MethodRouter<Arc<WebState>>
where
    A: FromRequestParts<Arc<WebState>> + Send + 'static,
    Shown: Fn(Arc<WebState>, Viewer, A) -> Answer + Clone + Send + Sync + 'static,
    Answer: Future<Output = Result<Response, PageError>> + Send + 'static,
{
    routing::get(move |State(state): State<Arc<WebState>>, viewer: Viewer, asked: A| async move {
        let shown = match page.admits(&viewer) {
            true => show(state.clone(), viewer.clone(), asked).await,
            false => Err(ONLY_OPERATORS),
        };
        shown.unwrap_or_else(|error| error.page(&state, &viewer))
    })
}

/// Environment with the templates of all pages.
pub(super) static TEMPLATES: LazyLock<Templates> = LazyLock::new(|| templates(PAGES.iter().map(|page| page.template)));

/// Frame of a page: title, and addresses for updates.
#[derive(Debug, Clone)]
pub(super) struct PageFrame {
    /// Title of the page.
    pub title: String,
    /// Address of the page with its query. Scripts reload changed parts from it. Empty for a static page.
    pub here: String,
    /// Address of the event stream; empty for a static page.
    pub feed: String,
    /// Icon for the browser tab.
    pub icon: &'static str,
}

impl PageFrame {
    /// Creates the frame of a static page.
    pub fn still(title: impl Into<String>) -> Self {
        Self { title: title.into(), here: String::new(), feed: String::new(), icon: "icon-rest.svg" }
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

/// Renders a static page with its own title; see [`page_in`].
pub(super) fn page(state: &WebState, viewer: &Viewer, page: &PageDef, view: &impl Serialize) -> Response {
    page_in(state, viewer, page, &PageFrame::still(page.title), view, Vec::new())
}

/// Renders a page and masks secrets in `view`. The texts in `trusted` are the service's HTML and are inserted unescaped.
pub(super) fn page_in(
    state: &WebState,
    viewer: &Viewer,
    page: &PageDef,
    frame: &PageFrame,
    view: &impl Serialize,
    trusted: Vec<(&'static str, String)>,
) -> Response {
    framed(state, viewer, Some(page), frame, json!(view), trusted)
}

/// Renders a page, or the page for errors.
fn framed(
    state: &WebState,
    viewer: &Viewer,
    page: Option<&PageDef>,
    frame: &PageFrame,
    view: Json,
    trusted: Vec<(&'static str, String)>,
) -> Response {
    let name = viewer.account.as_ref().map_or("operator", |(_, user)| user.login.as_str());
    let template = page.map_or("error.html", |page| page.template.name);
    let marked = page.map_or("", PageDef::marked);
    let navigation = PAGES.iter().filter(|entry| entry.admits(viewer)).filter_map(|entry| match entry.nav {
        PageNav::Entry(label) => {
            Some(json!({ "address": entry.route, "label": label, "current": entry.route == marked }))
        }
        PageNav::Below(_) | PageNav::Hidden => None,
    });
    let frame = json!({
        "title": state.engine.outbound.masked(&frame.title),
        "route": page.map_or("", |page| page.route),
        "here": frame.here,
        "feed": frame.feed,
        "icon": assets::address(frame.icon),
        "csrf": viewer.csrf,
        "viewer": name,
        "navigation": navigation.collect::<Vec<_>>(),
    });
    beside_tasks(|| {
        let all = match state.engine.outbound.masked_json(view) {
            Json::Object(map) => map,
            _ => serde_json::Map::new(),
        };
        rendered(&TEMPLATES, template, frame, all, trusted, POLICY.to_owned())
    })
}

/// Reason why a page cannot be shown.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum PageError {
    /// The page does not exist, or the viewer must not learn that it exists.
    #[error("This page does not exist, or you may not see it.")]
    NotFound,
    /// The viewer may see the object but not this part of it.
    #[error("{0}")]
    Forbidden(&'static str),
    /// The request is not valid.
    #[error("{0}")]
    Invalid(String),
    /// The forge cannot be queried.
    #[error("{0}")]
    Unavailable(#[source] DashboardCommandError),
    /// The store failed.
    #[error("The service could not read the database; its log has the reason.")]
    Store(#[source] StoreError),
}

/// Error for viewers who are not operators.
const ONLY_OPERATORS: PageError = PageError::Forbidden("Only operators see this page.");

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
            tracing::warn!(%error, "could not read a page");
        }
        let context = error_context(&[&self.to_string()], "", links);
        let frame = PageFrame::still(self.title());
        with_status(framed(state, viewer, None, &frame, context, Vec::new()), self.status())
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
    if viewer.operator { Ok(()) } else { Err(ONLY_OPERATORS) }
}

/// Compares a form's token with the viewer's token in constant time; fails if they differ.
pub(super) fn require_token(viewer: &Viewer, token: &str) -> Result<(), PageError> {
    use subtle::ConstantTimeEq;
    match bool::from(viewer.csrf.as_bytes().ct_eq(token.as_bytes())) {
        true => Ok(()),
        false => Err(PageError::Forbidden("The form is too old; go back, load the page again, and repeat.")),
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn page_errors_keep_their_causes() {
        let error = PageError::Unavailable(DashboardCommandError::Unavailable("no connection".into()));
        assert_eq!(error.to_string(), "nothing was changed: no connection; try again");
        assert!(error.source().is_some_and(|cause| cause.is::<DashboardCommandError>()), "{error:?}");
    }
}
