//! Exporter of spans with OTLP over HTTP.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::Bytes;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanData, SpanEvents, SpanLinks, SpanProcessor};
use ralph_types::failure::Failure;
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;
use url::Url;

use super::{EndedSpan, SpanValue};
use crate::domain::model::ids::{LoopId, Timestamp};
use crate::net::client;

/// Time limit of one request to the collector.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time limit for sending the last spans when the service stops.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Sends spans to a collector.
pub(super) struct OtlpExporter(BatchSpanProcessor);

impl OtlpExporter {
    pub(super) fn start(endpoint: &Url, runtime: Handle) -> Result<Self, Failure> {
        let http = client().connect_timeout(PATIENCE).timeout(PATIENCE).build().map_err(Failure::of)?;
        let collector = Collector { client: http, runtime, away: AtomicBool::new(false) };
        let endpoint = format!("{}/v1/traces", endpoint.as_str().trim_end_matches('/'));
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(collector)
            .with_endpoint(endpoint)
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(PATIENCE)
            .build()
            .map_err(Failure::of)?;
        let mut processor = BatchSpanProcessor::builder(exporter).build();
        let resource = Resource::builder()
            .with_service_name("ralph-bot")
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        processor.set_resource(&resource);
        Ok(Self(processor))
    }

    pub(super) fn send(&self, id: &LoopId, span: EndedSpan) {
        self.0.on_end(data(id, span));
    }

    /// Sends the remaining spans, and blocks the thread meanwhile.
    pub(super) fn stop(&self) -> Result<(), Failure> {
        self.0.shutdown_with_timeout(LAST_WORDS).map_err(Failure::of)
    }
}

/// Returns the ids of a loop's trace and of the span for the whole loop.
fn trace_of(id: &LoopId) -> (TraceId, SpanId) {
    let digest: [u8; 32] = Sha256::digest(format!("ralph-bot/loop/{id}")).into();
    let (mut trace, mut span) = ([0; 16], [0; 8]);
    trace.copy_from_slice(&digest[..16]);
    span.copy_from_slice(&digest[16..24]);
    (TraceId::from_bytes(trace), SpanId::from_bytes(span))
}

fn time(at: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(at.0).unwrap_or_default())
}

fn data(id: &LoopId, span: EndedSpan) -> SpanData {
    let (trace, whole) = trace_of(id);
    let mut own = [0; 8];
    own.copy_from_slice(&uuid::Uuid::now_v7().as_bytes()[8..]);
    let (own, parent) = if span.whole { (whole, SpanId::INVALID) } else { (SpanId::from_bytes(own), whole) };
    let value = |value| match value {
        SpanValue::Name(name) => Value::from(name),
        SpanValue::Number(number) => Value::from(number),
        SpanValue::Amount(amount) => Value::from(amount),
    };
    let mut attributes = vec![KeyValue::new("ralph.loop.id", id.as_str().to_owned())];
    attributes.extend(span.attributes.into_iter().map(|(name, of)| KeyValue::new(name, value(of))));
    attributes.extend(span.error.iter().map(|kind| KeyValue::new("error.type", kind.clone())));
    SpanData {
        span_context: SpanContext::new(trace, own, TraceFlags::SAMPLED, false, TraceState::default()),
        parent_span_id: parent,
        parent_span_is_remote: false,
        span_kind: if span.outgoing { SpanKind::Client } else { SpanKind::Internal },
        name: Cow::Owned(span.name),
        start_time: time(span.started),
        end_time: time(span.ended.max(span.started)),
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: span.error.map_or(Status::Unset, Status::error),
        instrumentation_scope: InstrumentationScope::builder("ralph-bot")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build(),
    }
}

/// Client of the collector. The exporter has a separate thread, but requests need the service's runtime.
#[derive(Debug)]
struct Collector {
    client: reqwest::Client,
    runtime: Handle,
    /// Whether the last request failed, so that only the first failure is logged.
    away: AtomicBool,
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let call = self.client.request(parts.method, parts.uri.to_string()).headers(parts.headers).body(body);
        let exchange = self.runtime.spawn(async move {
            let response = call.send().await?;
            Ok::<_, reqwest::Error>((response.status(), response.bytes().await?))
        });
        let answer = match exchange.await {
            Ok(Ok((status, body))) => {
                let mut answer = http::Response::new(body);
                *answer.status_mut() = status;
                Ok(answer)
            }
            Ok(Err(error)) => Err(HttpError::from(error.without_url().to_string())),
            Err(error) => Err(HttpError::from(error.to_string())),
        };
        let failed = !answer.as_ref().is_ok_and(|answer| answer.status().is_success());
        if self.away.swap(failed, Ordering::Relaxed) != failed {
            if failed {
                let why = answer.as_ref().map_or_else(ToString::to_string, |answer| answer.status().to_string());
                tracing::warn!(why, "the collector of `telemetry.otlp_endpoint` accepts no traces; spans are dropped");
            } else {
                tracing::info!("the collector of `telemetry.otlp_endpoint` accepts traces");
            }
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::super::Tracer;
    use super::*;

    fn span(name: &str) -> EndedSpan {
        EndedSpan {
            name: name.into(),
            outgoing: true,
            whole: false,
            started: Timestamp(1_000),
            ended: Timestamp(2_000),
            attributes: vec![("gen_ai.usage.input_tokens", 5u64.into())],
            error: Some("timeout".into()),
        }
    }

    #[test]
    fn spans_of_a_loop_belong_to_its_trace() {
        let (first, second) = (LoopId::new("r-1-aaaaaa"), LoopId::new("r-2-bbbbbb"));
        let whole = data(&first, EndedSpan { whole: true, error: None, ..span("loop") });
        let part = data(&first, span("push"));
        assert_eq!(whole.span_context.trace_id(), part.span_context.trace_id());
        assert_eq!((whole.parent_span_id, part.parent_span_id), (SpanId::INVALID, whole.span_context.span_id()));
        assert!(part.span_context.is_valid() && part.span_context.span_id() != whole.span_context.span_id());
        assert_ne!(data(&second, span("push")).span_context.trace_id(), part.span_context.trace_id());
        assert!(part.attributes.contains(&KeyValue::new("error.type", "timeout")) && part.status != Status::Unset);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn absent_collector_causes_no_delay() {
        let tracer =
            Tracer::start(&Url::parse("http://127.0.0.1:1").expect("an address"), Handle::current()).expect("on");
        let watch = crate::clock::Stopwatch::start();
        for _ in 0..20_000 {
            tracer.send(&LoopId::new("r-1-aaaaaa"), || span("push"));
        }
        assert!(watch.elapsed() < Duration::from_secs(2), "{:?}", watch.elapsed());
        tracer.stop().await;
        assert!(watch.elapsed() < Duration::from_secs(8), "{:?}", watch.elapsed());
        let off = Tracer::default();
        off.send(&LoopId::new("r-1-aaaaaa"), || panic!("a span is made although tracing is off"));
        off.stop().await;
    }
}
