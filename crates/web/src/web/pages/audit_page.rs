//! Page of the audit log for operators: the person, the change and the client address.

use std::sync::Arc;

use axum::extract::Query;
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::layout::{self, PageDef, PageError, PageNav, PageRights, opened, page_template};
use crate::store::access_audit::{self, AccessRow};
use crate::web::{Viewer, WebState};

/// Row of the page.
pub(super) static PAGE: PageDef = PageDef {
    route: "/audit",
    template: page_template!("audit.html"),
    title: "Audit",
    nav: PageNav::Entry("Audit"),
    rights: PageRights::Operator,
    show: |page| opened(page, show),
};

/// Number of changes on a page.
const CHANGES_SHOWN: usize = 50;

/// Query of the page.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct AuditQuery {
    /// Position before which rows are shown; `None` for the newest rows.
    before: Option<i64>,
}

/// Data of the page.
#[derive(Debug, Serialize)]
struct AuditView {
    rows: Vec<AccessRow>,
    /// Address of the page with older rows; empty if there are none.
    older: String,
    /// Address of the page with the newest rows; empty on that page.
    newer: &'static str,
}

/// Returns the page.
async fn show(state: Arc<WebState>, viewer: Viewer, Query(query): Query<AuditQuery>) -> Result<Response, PageError> {
    let before = query.before;
    let mut rows = state.engine.store.read(move |c| access_audit::newest(c, before, CHANGES_SHOWN + 1)).await?;
    let more = rows.len() > CHANGES_SHOWN;
    rows.truncate(CHANGES_SHOWN);
    let older = rows.last().filter(|_| more).map(|row| format!("/audit?before={}", row.id));
    let newer = before.map_or("", |_| PAGE.route);
    let view = AuditView { rows, older: older.unwrap_or_default(), newer };
    Ok(layout::page(&state, &viewer, &PAGE, &view))
}
