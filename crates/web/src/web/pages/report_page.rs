//! Page with the report on the supervision of a loop, to print or to compare with other loops.

use std::sync::Arc;

use axum::extract::Path;
use axum::response::Response;

use super::layout::{self, PageDef, PageError, PageFrame, PageNav, PageRights, opened, page_template};
use super::loop_page;
use crate::domain::model::ids::LoopId;
use crate::domain::report::loop_report::LoopReport;
use crate::web::{Viewer, WebState};

/// Row of the page.
pub(super) static PAGE: PageDef = PageDef {
    route: "/loops/{id}/report",
    template: page_template!("report.html"),
    title: "Report",
    nav: PageNav::Below("/"),
    rights: PageRights::Viewer,
    show: |page| opened(page, show),
};

/// Returns the page.
async fn show(state: Arc<WebState>, viewer: Viewer, Path(id): Path<String>) -> Result<Response, PageError> {
    let (current, _) = loop_page::seen(&state, &viewer, &LoopId::new(id), false).await?;
    let report = LoopReport::of(&current, state.engine.clock.now());
    let frame = PageFrame::still(format!("Report on {}", report.id));
    Ok(layout::page_in(&state, &viewer, &PAGE, &frame, &report, Vec::new()))
}
