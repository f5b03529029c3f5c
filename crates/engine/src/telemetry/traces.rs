//! Traces with OpenTelemetry (OTLP over HTTP), disabled by default, and only in programs with the feature `traces`.
//!
//! A loop is one trace, whose id is derived from the loop's id, because its work spans days, restarts and processes. Spans
//! are created after their work has ended and are sent in the background. They are dropped while the collector is
//! unavailable. Attributes are names, numbers and ids, never prompts, people's texts, outputs, or addresses.

use std::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;
use url::Url;

use crate::domain::model::ids::{LoopId, Timestamp};

#[cfg(not(feature = "traces"))]
mod absent;
#[cfg(feature = "traces")]
mod otlp;

#[cfg(not(feature = "traces"))]
use absent::NoExporter as Exporter;
#[cfg(feature = "traces")]
use otlp::OtlpExporter as Exporter;
use ralph_types::failure::Failure;

/// Span of finished work.
#[derive(Debug, Clone)]
pub struct EndedSpan {
    /// Name, from a bounded set.
    pub name: String,
    /// Whether the span is a call to another system.
    pub outgoing: bool,
    /// Whether the span covers the whole loop and is the parent of all others.
    pub whole: bool,
    /// Start of the span.
    pub started: Timestamp,
    /// End of the span.
    pub ended: Timestamp,
    /// Attributes: names, numbers and ids.
    pub attributes: Vec<(&'static str, SpanValue)>,
    /// Kind of the error; `None` without an error.
    pub error: Option<String>,
}

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum SpanValue {
    /// Name or id.
    Name(String),
    /// Integer.
    Number(i64),
    /// Fractional amount.
    Amount(f64),
}

impl From<&str> for SpanValue {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl From<u64> for SpanValue {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<f64> for SpanValue {
    fn from(amount: f64) -> Self {
        Self::Amount(amount)
    }
}

/// Sender of spans. Clones share the connection.
#[derive(Clone, Default)]
pub struct Tracer {
    exporter: Option<Arc<Exporter>>,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("on", &self.is_on()).finish()
    }
}

impl Tracer {
    /// Creates a tracer that sends to the collector at `endpoint`, with the path `/v1/traces` appended. Requests run on
    /// `runtime`.
    ///
    /// # Errors
    /// A sentence: the client cannot start, or the program was built without traces.
    pub fn start(endpoint: &Url, runtime: Handle) -> Result<Self, Failure> {
        Exporter::start(endpoint, runtime).map(|exporter| Self { exporter: Some(Arc::new(exporter)) })
    }

    /// Whether spans are sent.
    pub fn is_on(&self) -> bool {
        self.exporter.is_some()
    }

    /// Sends a span of a loop's trace. Does nothing if tracing is disabled; never waits.
    pub fn send(&self, id: &LoopId, span: impl FnOnce() -> EndedSpan) {
        if let Some(exporter) = &self.exporter {
            exporter.send(id, span());
        }
    }

    /// Sends the remaining spans within at most two seconds.
    pub async fn stop(&self) {
        let Some(exporter) = self.exporter.clone() else { return };
        // The call blocks its thread.
        let last = tokio::task::spawn_blocking(move || exporter.stop());
        if let Ok(Err(error)) = last.await {
            tracing::debug!(error = %format_args!("{error:#}"), "the last spans were not sent");
        }
    }
}
