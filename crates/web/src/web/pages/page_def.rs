//! Row of a page: its address, template, title, place in the navigation, and viewers.

use std::sync::Arc;

use axum::routing::MethodRouter;

use crate::web::markup::PageTemplate;
use crate::web::{Viewer, WebState};

/// Page of the dashboard. The file of a page starts with its row, and `PAGES` lists all rows.
#[derive(Debug)]
pub(super) struct PageDef {
    /// Path, with parameters in braces.
    pub route: &'static str,
    /// Template.
    pub template: PageTemplate,
    /// Title, unless the page's frame sets another.
    pub title: &'static str,
    /// Place in the navigation.
    pub nav: PageNav,
    /// Viewers who may open the page.
    pub rights: PageRights,
    /// Returns the handler; see [`opened`](super::layout::opened).
    pub show: fn(&'static PageDef) -> MethodRouter<Arc<WebState>>,
}

/// Place of a page in the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageNav {
    /// Entry with this label.
    Entry(&'static str),
    /// No entry; the entry of the page with this route is marked instead.
    Below(&'static str),
    /// No entry.
    Hidden,
}

/// Viewers who may open a page. A page with loops shows only loops of repositories that the viewer may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageRights {
    /// All viewers.
    Viewer,
    /// Operators.
    Operator,
}

impl PageDef {
    /// Whether the viewer may open the page.
    pub fn admits(&self, viewer: &Viewer) -> bool {
        viewer.operator || self.rights == PageRights::Viewer
    }

    /// Returns the route of the marked navigation entry; empty for none.
    pub fn marked(&self) -> &'static str {
        match self.nav {
            PageNav::Entry(_) => self.route,
            PageNav::Below(route) => route,
            PageNav::Hidden => "",
        }
    }
}
