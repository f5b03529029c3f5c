//! Logging, metrics and traces.

mod metrics;
mod table;
mod traces;

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::Env;

pub use metrics::{Metrics, OPENMETRICS, PLAIN_TEXT};
pub use traces::{EndedSpan, SpanValue, Tracer};

/// Environment variable with the filter (`info`, `ralph=debug,warn`).
pub const FILTER_VARIABLE: &str = "RALPH_LOG";

/// Environment variable with the format, `text` or `json`.
pub const FORMAT_VARIABLE: &str = "RALPH_LOG_FORMAT";

/// Default filter: `info` for this program, `warn` for dependencies.
const FILTER_DEFAULT: &str = "warn,ralph=info";

/// Reason why logging could not start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is invalid.
    #[error("environment variable {FILTER_VARIABLE}: not a filter such as `info` or `ralph=debug`: {0}")]
    Filter(#[source] ParseError),
    /// The format is invalid.
    #[error("environment variable {FORMAT_VARIABLE}: must be `text` or `json`")]
    Format,
    /// Logging is already running.
    #[error("logging was started before")]
    Started,
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Text,
    Json,
}

/// Starts logging to standard error. The default format is text on a terminal and JSON elsewhere.
///
/// # Errors
/// An environment variable is invalid, or logging is already running.
pub fn init(env: &Env) -> Result<(), TelemetryError> {
    let terminal = std::io::stderr().is_terminal();
    start(env, (FILTER_DEFAULT, terminal), terminal)
}

/// Starts logging of warnings to standard error as text, for commands that print their progress.
///
/// # Errors
/// An environment variable is invalid, or logging is already running.
pub fn init_warnings(env: &Env) -> Result<(), TelemetryError> {
    start(env, ("warn", true), std::io::stderr().is_terminal())
}

fn start(env: &Env, defaults: (&str, bool), terminal: bool) -> Result<(), TelemetryError> {
    let (filter, format) = settings(env, defaults)?;
    let colors = terminal && env.get("NO_COLOR").is_none_or(str::is_empty);
    logging(filter, format, colors, std::io::stderr).try_init().map_err(|_| TelemetryError::Started)
}

fn logging<W>(filter: EnvFilter, format: Format, colors: bool, writer: W) -> Box<dyn tracing::Subscriber + Send + Sync>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let base = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(colors);
    match format {
        Format::Text => Box::new(base.map_writer(|inner| OneLine { inner, colors }).finish()),
        Format::Json => Box::new(base.json().flatten_event(true).finish()),
    }
}

/// Writer of text lines. It writes each event as one line without terminal control sequences, regardless of its values.
struct OneLine<M> {
    inner: M,
    colors: bool,
}

/// Writer of one event.
struct EventLine<W> {
    inner: W,
    colors: bool,
}

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for OneLine<M> {
    type Writer = EventLine<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        EventLine { inner: self.inner.make_writer(), colors: self.colors }
    }

    fn make_writer_for(&'a self, meta: &tracing::Metadata<'_>) -> Self::Writer {
        EventLine { inner: self.inner.make_writer_for(meta), colors: self.colors }
    }
}

impl<W: std::io::Write> std::io::Write for EventLine<W> {
    /// Writes a complete event from the formatter.
    fn write(&mut self, event: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        self.inner.write_all(format!("{}\n", escaped(line, self.colors)).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

/// Escapes characters that could start a new line, control a terminal, or change the text direction. With `colors`, keeps
/// color sequences.
fn escaped(line: &str, colors: bool) -> String {
    let disturbs = |c: char| {
        (c.is_control() && c != '\t')
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut text = String::with_capacity(line.len());
    for (at, c) in line.char_indices() {
        match disturbs(c) {
            true if colors && is_color(&line[at..]) => text.push(c),
            true => text.extend(c.escape_default()),
            false => text.push(c),
        }
    }
    text
}

/// Whether a text starts with a control sequence that sets a color or weight.
fn is_color(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("\u{1b}[") else { return false };
    rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').starts_with('m')
}

/// Returns the filter and the format. `defaults` has the default filter, and whether the default format is text.
fn settings(env: &Env, defaults: (&str, bool)) -> Result<(EnvFilter, Format), TelemetryError> {
    let filter = env.get(FILTER_VARIABLE).filter(|text| !text.is_empty()).unwrap_or(defaults.0);
    let filter = EnvFilter::builder().parse(filter).map_err(TelemetryError::Filter)?;
    let format = match env.get(FORMAT_VARIABLE) {
        Some("text") => Format::Text,
        Some("json") => Format::Json,
        None | Some("") if defaults.1 => Format::Text,
        None | Some("") => Format::Json,
        Some(_) => return Err(TelemetryError::Format),
    };
    Ok((filter, format))
}

#[cfg(test)]
mod tests {
    use ralph_types::failure::Failure;

    use super::*;

    #[test]
    fn format_and_filter_come_from_the_environment() {
        for (variables, terminal, format) in [
            (vec![], true, Ok(Format::Text)),
            (vec![], false, Ok(Format::Json)),
            (vec![(FORMAT_VARIABLE, "json")], true, Ok(Format::Json)),
            (vec![(FORMAT_VARIABLE, "text"), (FILTER_VARIABLE, "debug")], false, Ok(Format::Text)),
            (vec![(FORMAT_VARIABLE, "xml")], false, Err(TelemetryError::Format)),
        ] {
            let found = settings(&Env::of(variables), (FILTER_DEFAULT, terminal)).map(|(_, format)| format);
            assert_eq!(found.map_err(|error| error.to_string()), format.map_err(|error| error.to_string()));
        }
        let wrong = settings(&Env::of([(FILTER_VARIABLE, "a=b=c")]), (FILTER_DEFAULT, true));
        assert!(matches!(wrong, Err(TelemetryError::Filter(_))));
        let wrong = wrong.expect_err("a wrong filter");
        assert!(std::error::Error::source(&wrong).is_some_and(|cause| cause.is::<ParseError>()), "{wrong:?}");
        let sentence = "environment variable RALPH_LOG: not a filter such as `info` or `ralph=debug`: error parsing level filter: \
                        expected one of \"off\", \"error\", \"warn\", \"info\", \"debug\", \"trace\", or a number 0-5";
        assert_eq!(format!("{:#}", Failure::of(wrong)), sentence);
    }

    #[test]
    fn log_lines_of_an_effect_contain_the_loop_id() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let writer = std::sync::Mutex::new(file.reopen().expect("the same file"));
        let logging = logging(EnvFilter::new("info"), Format::Json, false, writer);
        tracing::subscriber::with_default(logging, || {
            let _context = tracing::info_span!("effect", loop_id = "r-1-aaaaaa", key = "push/3").entered();
            tracing::info!("pushed");
        });
        let line: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(file.path()).expect("text")).expect("JSON");
        assert_eq!((&line["span"]["loop_id"], &line["span"]["key"]), (&"r-1-aaaaaa".into(), &"push/3".into()));
    }

    /// Foreign text cannot start a new line and contains no control sequence. See docs/research/threats.md#i11.
    #[test]
    fn untrusted_text_stays_in_its_log_field() {
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
    fn only_colors_of_the_formatter_reach_a_terminal() {
        let hostile = "a\u{1b}[2J\n\u{1b}[31mred\u{1b}]0;x\u{7}";
        assert_eq!(escaped(hostile, true), "a\\u{1b}[2J\\n\u{1b}[31mred\\u{1b}]0;x\\u{7}");
        assert_eq!(escaped("\u{1b}[31mred\tü\u{9b}", false), "\\u{1b}[31mred\tü\\u{9b}");
    }
}
