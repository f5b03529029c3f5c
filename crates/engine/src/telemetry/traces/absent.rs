//! Exporter of a program built without the feature `traces`: it never exists.

use ralph_types::failure::Failure;
use tokio::runtime::Handle;
use url::Url;

use super::EndedSpan;
use crate::domain::model::ids::LoopId;

/// No exporter.
pub(super) enum NoExporter {}

impl NoExporter {
    pub(super) fn start(_: &Url, _: Handle) -> Result<Self, Failure> {
        Err("this program was built without traces; build it with `--features traces`, or use a released package"
            .into())
    }

    pub(super) fn send(&self, _: &LoopId, _: EndedSpan) {
        match *self {}
    }

    pub(super) fn stop(&self) -> Result<(), Failure> {
        match *self {}
    }
}
