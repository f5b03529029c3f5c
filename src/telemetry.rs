//! Logging and metrics.

use std::io::IsTerminal;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::Env;
use crate::domain::loops::Iteration;

/// Environment variable with the filter (`info`, `ralph_bot=debug,warn`).
pub const FILTER_VARIABLE: &str = "RALPH_LOG";

/// Environment variable with the format, `text` or `json`.
pub const FORMAT_VARIABLE: &str = "RALPH_LOG_FORMAT";

/// Default filter: `info` for this program, warnings of dependencies.
const FILTER_DEFAULT: &str = "warn,ralph_bot=info";

/// Reason logging could not be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is invalid.
    #[error("environment variable {FILTER_VARIABLE}: not a filter such as `info` or `ralph_bot=debug`: {0}")]
    Filter(String),
    /// The format is invalid.
    #[error("environment variable {FORMAT_VARIABLE}: must be `text` or `json`")]
    Format,
    /// Logging was started before.
    #[error("logging was started before")]
    Started,
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Text,
    Json,
}

/// Starts logging to standard error: text on a terminal and JSON elsewhere, unless the environment says otherwise.
///
/// # Errors
/// A variable is invalid, or logging was started before.
pub fn init(env: &Env) -> Result<(), TelemetryError> {
    let terminal = std::io::stderr().is_terminal();
    let (filter, format) = settings(env, terminal)?;
    let colours = terminal && env.get("NO_COLOR").is_none_or(str::is_empty);
    logging(filter, format, colours, std::io::stderr).try_init().map_err(|_| TelemetryError::Started)
}

fn logging<W>(filter: EnvFilter, format: Format, colours: bool, writer: W) -> Box<dyn tracing::Subscriber + Send + Sync>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let base = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(colours);
    match format {
        Format::Text => Box::new(base.map_writer(|inner| OneLine { inner, colours }).finish()),
        Format::Json => Box::new(base.json().flatten_event(true).finish()),
    }
}

/// Writer of text lines: an event is one line without sequences of terminals, whatever its values contain.
struct OneLine<M> {
    inner: M,
    colours: bool,
}

/// Writer of one event.
struct EventLine<W> {
    inner: W,
    colours: bool,
}

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for OneLine<M> {
    type Writer = EventLine<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        EventLine { inner: self.inner.make_writer(), colours: self.colours }
    }

    fn make_writer_for(&'a self, meta: &tracing::Metadata<'_>) -> Self::Writer {
        EventLine { inner: self.inner.make_writer_for(meta), colours: self.colours }
    }
}

impl<W: std::io::Write> std::io::Write for EventLine<W> {
    /// Writes an event, which the formatter hands over as a whole.
    fn write(&mut self, event: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        self.inner.write_all(format!("{}\n", escaped(line, self.colours)).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

/// Escapes characters that would begin a new line, act on a terminal, or change the order of the text. With `colours`, those stay.
fn escaped(line: &str, colours: bool) -> String {
    let disturbs = |c: char| {
        (c.is_control() && c != '\t')
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut text = String::with_capacity(line.len());
    for (at, c) in line.char_indices() {
        match disturbs(c) {
            true if colours && is_colour(&line[at..]) => text.push(c),
            true => text.extend(c.escape_default()),
            false => text.push(c),
        }
    }
    text
}

/// Whether a text begins with a sequence that sets the colour or weight of what follows.
fn is_colour(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("\u{1b}[") else { return false };
    rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').starts_with('m')
}

fn settings(env: &Env, terminal: bool) -> Result<(EnvFilter, Format), TelemetryError> {
    let filter = env.get(FILTER_VARIABLE).filter(|text| !text.is_empty()).unwrap_or(FILTER_DEFAULT);
    let filter = EnvFilter::builder().parse(filter).map_err(|error| TelemetryError::Filter(error.to_string()))?;
    let format = match env.get(FORMAT_VARIABLE) {
        Some("text") => Format::Text,
        Some("json") => Format::Json,
        None | Some("") if terminal => Format::Text,
        None | Some("") => Format::Json,
        Some(_) => return Err(TelemetryError::Format),
    };
    Ok((filter, format))
}

/// Labels of a metric: fixed names, values from bounded sets, never external text.
type Labels<const N: usize> = [(&'static str, String); N];

/// Upper bounds of the buckets of durations, in seconds: from a quick call to a long agent run.
const BUCKETS_S: [f64; 10] = [0.05, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0];

/// Upper bounds of the buckets of control signals: the bands of urgency, and a finer division.
const BUCKETS_SIGNAL: [f64; 7] = [0.1, 0.2, 0.3, 0.5, 0.65, 0.8, 1.0];

/// Metrics of the service. Clones share their values.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: std::sync::Arc<Registry>,
    deliveries: Family<Labels<2>, Counter>,
    loops: Family<Labels<1>, Gauge>,
    waiting: Family<Labels<1>, Gauge>,
    stored: Family<Labels<1>, Gauge>,
    iterations: Family<Labels<1>, Counter>,
    agent_runs: Family<Labels<2>, Counter>,
    agent_seconds: Family<Labels<1>, Histogram, fn() -> Histogram>,
    questions: Family<Labels<2>, Counter>,
    effects: Family<Labels<2>, Counter>,
    forge_requests: Family<Labels<2>, Counter>,
    cost_usd: Family<Labels<2>, Counter<f64, AtomicU64>>,
    calls: Family<Labels<3>, Counter>,
    tokens: Family<Labels<3>, Counter>,
    backends: Family<Labels<2>, Gauge>,
    sandbox: Family<Labels<1>, Gauge>,
    forges: Family<Labels<1>, Gauge>,
    parks: Family<Labels<2>, Counter>,
    detections: Family<Labels<2>, Counter>,
    interventions: Family<Labels<2>, Counter>,
    alarms: Family<Labels<2>, Counter>,
    control_signal: Histogram,
    learnings: Family<Labels<1>, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

fn durations() -> Histogram {
    Histogram::new(BUCKETS_S)
}

impl Metrics {
    /// Creates metrics with all values at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("ralph");
        let deliveries = Family::<Labels<2>, Counter>::default();
        let loops = Family::<Labels<1>, Gauge>::default();
        let waiting = Family::<Labels<1>, Gauge>::default();
        let stored = Family::<Labels<1>, Gauge>::default();
        let iterations = Family::<Labels<1>, Counter>::default();
        let agent_runs = Family::<Labels<2>, Counter>::default();
        let agent_seconds: Family<Labels<1>, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(durations as fn() -> Histogram);
        let questions = Family::<Labels<2>, Counter>::default();
        let effects = Family::<Labels<2>, Counter>::default();
        let forge_requests = Family::<Labels<2>, Counter>::default();
        let cost_usd = Family::<Labels<2>, Counter<f64, AtomicU64>>::default();
        let calls = Family::<Labels<3>, Counter>::default();
        let tokens = Family::<Labels<3>, Counter>::default();
        let backends = Family::<Labels<2>, Gauge>::default();
        let parks = Family::<Labels<2>, Counter>::default();
        let sandbox = Family::<Labels<1>, Gauge>::default();
        let forges = Family::<Labels<1>, Gauge>::default();
        let detections = Family::<Labels<2>, Counter>::default();
        let interventions = Family::<Labels<2>, Counter>::default();
        let alarms = Family::<Labels<2>, Counter>::default();
        let control_signal = Histogram::new(BUCKETS_SIGNAL);
        let learnings = Family::<Labels<1>, Gauge>::default();
        registry.register("detections", "Iterations with a detection by kind and severity", detections.clone());
        registry.register("interventions", "Interventions by level and kind of detection", interventions.clone());
        registry.register("alarms", "Alarms raised by control by kind and severity", alarms.clone());
        registry.register("control_signal", "Control signal of iterations, 0 to 1", control_signal.clone());
        registry.register("learnings", "Learnings by state", learnings.clone());
        registry.register("deliveries", "Webhook deliveries by forge and outcome", deliveries.clone());
        registry.register("loops", "Loops by state", loops.clone());
        registry.register("waiting", "Pending deliveries and effects", waiting.clone());
        registry.register("database_bytes", "Size of the database and of its write-ahead log", stored.clone());
        registry.register("iterations", "Finished iterations by outcome", iterations.clone());
        registry.register("agent_runs", "Runs of agents by backend and outcome", agent_runs.clone());
        registry.register("agent_run_seconds", "Duration of agents' runs by backend", agent_seconds.clone());
        registry.register("questions", "Questions to assistants by purpose and outcome", questions.clone());
        registry.register("effects", "Effects executed by kind and outcome", effects.clone());
        registry.register("forge_requests", "Requests to forges by forge and class of status", forge_requests.clone());
        registry.register("cost_usd", "Cost by backend and role, in US dollars", cost_usd.clone());
        registry.register("backend_calls", "Calls of backends by backend, role and outcome", calls.clone());
        registry.register("tokens", "Tokens by backend, role and kind", tokens.clone());
        registry.register("backend_state", "1 for the state that a backend is in, 0 for the others", backends.clone());
        registry.register("sandbox_tier", "1 for what isolates agents and checks, 0 for the others", sandbox.clone());
        registry.register(
            "forge_there",
            "1 for a forge that answers since the start, 0 for one that is not there yet",
            forges.clone(),
        );
        registry.register("backend_parks", "Number of cool-downs and extensions of backends, by reason", parks.clone());
        Self {
            registry: std::sync::Arc::new(registry),
            deliveries,
            loops,
            waiting,
            stored,
            iterations,
            agent_runs,
            agent_seconds,
            questions,
            effects,
            forge_requests,
            cost_usd,
            calls,
            tokens,
            backends,
            sandbox,
            forges,
            parks,
            detections,
            interventions,
            alarms,
            control_signal,
            learnings,
        }
    }

    /// Counts a delivery of `forge` as `accepted`, `repeated`, `refused`, ….
    pub fn delivery(&self, forge: &str, outcome: &str) {
        self.deliveries.get_or_create(&[("forge", forge.to_owned()), ("outcome", outcome.to_owned())]).inc();
    }

    /// Sets whether a forge has answered since the start.
    pub fn forge_there(&self, forge: &str, there: bool) {
        self.forges.get_or_create(&[("forge", forge.to_owned())]).set(i64::from(there));
    }

    /// Sets the number of loops in `state`.
    pub fn loops_in_state(&self, state: &str, count: i64) {
        self.loops.get_or_create(&[("state", state.to_owned())]).set(count);
    }

    /// Sets the number of pending deliveries or effects.
    pub fn waiting(&self, what: &'static str, count: u64) {
        self.waiting.get_or_create(&[("what", what.to_owned())]).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets the sizes of the database and its write-ahead log, in bytes.
    pub fn stored(&self, database: u64, log: u64) {
        for (file, bytes) in [("database", database), ("log", log)] {
            self.stored.get_or_create(&[("file", file.to_owned())]).set(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
    }

    /// Counts an iteration that was judged, as `complete`, `incomplete` or `failed`, with its control signal, detections,
    /// interventions that are new, and alarms that were raised.
    pub fn iteration(&self, iteration: &Iteration) {
        let outcome = match (iteration.checks.all_hold(), iteration.agent_problem.is_empty()) {
            (true, _) => "complete",
            (false, true) => "incomplete",
            (false, false) => "failed",
        };
        self.iterations.get_or_create(&[("outcome", outcome.to_owned())]).inc();
        let Some(judged) = &iteration.judged else { return };
        self.control_signal.observe(judged.signal);
        for found in &judged.found {
            let kind = || found.kind.name().to_owned();
            let labels = [("kind", kind()), ("severity", found.severity.to_string().to_lowercase())];
            self.detections.get_or_create(&labels).inc();
            if found.fresh {
                let level = found.level.name().to_lowercase();
                self.interventions.get_or_create(&[("level", level), ("kind", kind())]).inc();
            }
        }
        for alarm in judged.control.iter().flat_map(|figures| &figures.alarms).filter(|alarm| alarm.raised) {
            let labels = [("kind", alarm.kind.name().to_owned()), ("severity", alarm.severity.word().to_owned())];
            self.alarms.get_or_create(&labels).inc();
        }
    }

    /// Sets the number of learnings in `state`.
    pub fn learnings(&self, state: &'static str, count: u64) {
        self.learnings.get_or_create(&[("state", state.to_owned())]).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Counts a run of an agent that took `seconds`.
    pub fn agent_run(&self, backend: &str, outcome: &str, seconds: f64) {
        let labels = [("backend", backend.to_owned()), ("outcome", outcome.to_owned())];
        self.agent_runs.get_or_create(&labels).inc();
        self.agent_seconds.get_or_create(&[("backend", backend.to_owned())]).observe(seconds);
    }

    /// Counts a question to an assistant as `finished`, `failed`, ….
    pub fn question(&self, purpose: &str, outcome: &str) {
        self.questions.get_or_create(&[("purpose", purpose.to_owned()), ("outcome", outcome.to_owned())]).inc();
    }

    /// Counts a call of a backend that ended as `finished`, `failed`, `limited`, `lost`, …, with its tokens by kind
    /// and its cost `usd` (0 if unknown).
    pub fn call(&self, (backend, role): (&str, &str), outcome: &str, tokens: [(&'static str, u64); 4], usd: f64) {
        let of = |more: (&'static str, String)| [("backend", backend.to_owned()), ("role", role.to_owned()), more];
        self.calls.get_or_create(&of(("outcome", outcome.to_owned()))).inc();
        for (kind, count) in tokens.into_iter().filter(|(_, count)| *count > 0) {
            self.tokens.get_or_create(&of(("kind", kind.to_owned()))).inc_by(count);
        }
        if usd.is_finite() && usd > 0.0 {
            let labels = [("backend", backend.to_owned()), ("role", role.to_owned())];
            self.cost_usd.get_or_create(&labels).inc_by(usd);
        }
    }

    /// Sets the current state of a backend among `states`.
    pub fn backend_state(&self, backend: &str, states: &[&str], now: &str) {
        for state in states {
            let labels = [("backend", backend.to_owned()), ("state", (*state).to_owned())];
            self.backends.get_or_create(&labels).set(i64::from(*state == now));
        }
    }

    /// Sets what isolates agents and checks, one of `tiers`.
    pub fn sandbox_tier(&self, tiers: &[&str], now: &str) {
        for tier in tiers {
            self.sandbox.get_or_create(&[("tier", (*tier).to_owned())]).set(i64::from(*tier == now));
        }
    }

    /// Counts that a backend entered a cooldown, or that its cooldown was extended, for `reason`.
    pub fn parked(&self, backend: &str, reason: &str) {
        self.parks.get_or_create(&[("backend", backend.to_owned()), ("reason", reason.to_owned())]).inc();
    }

    /// Counts an effect of `kind` by outcome: `done`, `retried` or `rejected`.
    pub fn effect(&self, kind: &str, outcome: &str) {
        self.effects.get_or_create(&[("kind", kind.to_owned()), ("outcome", outcome.to_owned())]).inc();
    }

    /// Counts a request to `forge` by class of `status`; `None` if there was no response.
    pub fn forge_request(&self, forge: &str, status: Option<u16>) {
        let class = status.map_or("none".to_owned(), |status| format!("{}xx", status / 100));
        self.forge_requests.get_or_create(&[("forge", forge.to_owned()), ("status", class)]).inc();
    }

    /// Returns all metrics in the OpenMetrics text format.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing into a String cannot fail; what a metric could not write is missing from the text.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::loops::{ControlFigures, JudgedDetection, KeptAlarm};
    use crate::domain::supervision::control::{AlarmKind, AlarmSeverity, Gains, Terms};
    use crate::domain::supervision::oversight::{DetectionKind, DetectionSeverity, InterventionLevel};

    #[test]
    fn format_and_filter_come_from_the_environment() {
        for (variables, terminal, format) in [
            (vec![], true, Ok(Format::Text)),
            (vec![], false, Ok(Format::Json)),
            (vec![(FORMAT_VARIABLE, "json")], true, Ok(Format::Json)),
            (vec![(FORMAT_VARIABLE, "text"), (FILTER_VARIABLE, "debug")], false, Ok(Format::Text)),
            (vec![(FORMAT_VARIABLE, "xml")], false, Err(TelemetryError::Format)),
        ] {
            assert_eq!(settings(&Env::of(variables), terminal).map(|(_, format)| format), format);
        }
        let wrong = settings(&Env::of([(FILTER_VARIABLE, "a=b=c")]), true);
        assert!(matches!(wrong, Err(TelemetryError::Filter(_))));
    }

    /// Foreign text starts no new line and contains no control sequence.
    /// See docs/threats.md#i11.
    #[test]
    fn text_of_others_stays_in_its_field() {
        let evil =
            "title\n{\"level\":\"ERROR\",\"message\":\"forged\"}\r\n\u{1b}[2J\u{1b}]0;x\u{7}\u{202e}\u{2028}<script>";
        let written = |format: Format| {
            let file = tempfile::NamedTempFile::new().expect("a file");
            let writer = file.reopen().expect("the same file");
            let logging = logging(EnvFilter::new("info"), format, false, std::sync::Mutex::new(writer));
            tracing::subscriber::with_default(logging, || {
                tracing::info!(title = evil, "step");
                tracing::warn!(error = %evil, "a step failed");
            });
            std::fs::read_to_string(file.path()).expect("text")
        };
        let lines = written(Format::Json);
        let parsed: Vec<serde_json::Value> =
            lines.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect();
        assert_eq!(parsed.len(), 2, "{lines}");
        assert_eq!((&parsed[0]["title"], &parsed[1]["error"]), (&evil.into(), &evil.into()));
        assert_eq!((&parsed[0]["level"], &parsed[1]["level"]), (&"INFO".into(), &"WARN".into()));
        assert!(!lines.contains('\u{1b}'), "{lines}");
        let text = written(Format::Text);
        assert_eq!(text.lines().count(), 2, "{text}");
        let disturbing = |c: char| c != '\n' && (c.is_control() || matches!(c, '\u{202e}' | '\u{2028}'));
        assert!(text.matches("forged").count() == 2 && !text.contains(disturbing), "{text:?}");
    }

    #[test]
    fn only_colours_of_the_formatter_reach_a_terminal() {
        let hostile = "a\u{1b}[2J\n\u{1b}[31mred\u{1b}]0;x\u{7}";
        assert_eq!(escaped(hostile, true), "a\\u{1b}[2J\\n\u{1b}[31mred\\u{1b}]0;x\\u{7}");
        assert_eq!(escaped("\u{1b}[31mred\tü\u{9b}", false), "\\u{1b}[31mred\tü\\u{9b}");
    }

    /// Iteration that ended with a REDIRECT and an alarm.
    fn judged_iteration() -> Iteration {
        let mut stuck = crate::domain::lifecycle::samples::stuck();
        let iteration = stuck.iterations.iter_mut().rev().find(|i| i.judged.is_some()).expect("judged");
        let judged = iteration.judged.as_mut().expect("judged");
        judged.signal = 0.4;
        judged.found = vec![JudgedDetection {
            kind: DetectionKind::Stuck,
            severity: DetectionSeverity::High,
            basis: None,
            level: InterventionLevel::Redirect,
            fresh: true,
            evidence: String::new(),
            recommendations: Vec::new(),
        }];
        judged.control = Some(ControlFigures {
            terms: Terms { p: 0.2, i: 0.2, d: 0.0 },
            gains: Gains { kp: 0.5, ki: 0.15, kd: 0.25 },
            transition: None,
            alarms: vec![KeptAlarm {
                kind: AlarmKind::StuckLoop,
                severity: AlarmSeverity::Warning,
                message: String::new(),
                since: 3,
                raised: true,
                acknowledged: false,
            }],
            cleared: Vec::new(),
        });
        iteration.clone()
    }

    #[test]
    fn numbers_are_written_with_their_labels() {
        let metrics = Metrics::new();
        metrics.clone().delivery("work", "accepted");
        metrics.delivery("work", "accepted");
        metrics.loops_in_state("running", 2);
        metrics.waiting("effects", 3);
        metrics.stored(4096, 0);
        metrics.iteration(&judged_iteration());
        metrics.learnings("active", 4);
        metrics.agent_run("claude", "ok", 61.0);
        metrics.agent_run("claude", "ok", 1.0);
        let tokens = [("input", 10), ("output", 5), ("cache_read", 0), ("cache_write", 0)];
        metrics.call(("claude", "agent"), "finished", tokens, 0.25);
        metrics.call(("claude", "agent"), "failed", tokens, f64::NAN);
        metrics.call(("claude", "assistant"), "finished", [("input", 0); 4], -1.0);
        metrics.backend_state("claude", &["active", "parked"], "active");
        metrics.backend_state("claude", &["active", "parked"], "parked");
        metrics.parked("claude", "rate_limit");
        metrics.sandbox_tier(&["namespaces", "none"], "namespaces");
        metrics.effect("comment", "done");
        metrics.forge_request("work", Some(201));
        metrics.forge_request("work", None);
        let text = metrics.encode();
        for line in [
            "ralph_deliveries_total{forge=\"work\",outcome=\"accepted\"} 2",
            "ralph_loops{state=\"running\"} 2",
            "ralph_sandbox_tier{tier=\"namespaces\"} 1",
            "ralph_sandbox_tier{tier=\"none\"} 0",
            "ralph_waiting{what=\"effects\"} 3",
            "ralph_database_bytes{file=\"database\"} 4096",
            "ralph_iterations_total{outcome=\"incomplete\"} 1",
            "ralph_detections_total{kind=\"stuck\",severity=\"high\"} 1",
            "ralph_interventions_total{level=\"redirect\",kind=\"stuck\"} 1",
            "ralph_alarms_total{kind=\"stuck_loop\",severity=\"warning\"} 1",
            "ralph_control_signal_bucket{le=\"0.5\"} 1",
            "ralph_learnings{state=\"active\"} 4",
            "ralph_agent_runs_total{backend=\"claude\",outcome=\"ok\"} 2",
            "ralph_agent_run_seconds_count{backend=\"claude\"} 2",
            "ralph_cost_usd_total{backend=\"claude\",role=\"agent\"} 0.25",
            "ralph_backend_calls_total{backend=\"claude\",role=\"agent\",outcome=\"finished\"} 1",
            "ralph_backend_calls_total{backend=\"claude\",role=\"agent\",outcome=\"failed\"} 1",
            "ralph_tokens_total{backend=\"claude\",role=\"agent\",kind=\"output\"} 10",
            "ralph_backend_state{backend=\"claude\",state=\"active\"} 0",
            "ralph_backend_state{backend=\"claude\",state=\"parked\"} 1",
            "ralph_backend_parks_total{backend=\"claude\",reason=\"rate_limit\"} 1",
            "ralph_effects_total{kind=\"comment\",outcome=\"done\"} 1",
            "ralph_forge_requests_total{forge=\"work\",status=\"2xx\"} 1",
            "ralph_forge_requests_total{forge=\"work\",status=\"none\"} 1",
            "# EOF",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is missing in\n{text}");
        }
        assert!(
            !text.contains("kind=\"cache_read\"")
                && !text.contains("cost_usd_total{backend=\"claude\",role=\"assistant")
        );
    }
}
