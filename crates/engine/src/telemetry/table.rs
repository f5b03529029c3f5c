//! Declared metrics. Each has a row with its name, type, labels and description, from which `docs/reference/metrics.md` is
//! generated. Label names are fixed, and label values come from bounded sets, never from foreign text.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

/// Prefix of all names.
pub(super) const PREFIX: &str = "ralph";

/// Labels of a metric with their values.
pub(super) type Labels<const N: usize> = [(&'static str, String); N];

/// Type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricType {
    Counter,
    Gauge,
    Histogram,
}

#[cfg(test)]
impl MetricType {
    fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Declaration of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MetricRow {
    /// Full name, including the suffix of counters.
    name: &'static str,
    kind: MetricType,
    labels: &'static [&'static str],
    help: &'static str,
}

/// Metric with labels. Clones share their values.
#[derive(Debug, Clone)]
pub(super) struct Labeled<const N: usize, M> {
    names: &'static [&'static str; N],
    family: Family<Labels<N>, M, fn() -> M>,
}

impl<const N: usize, M: Clone> Labeled<N, M> {
    /// Returns the metric with these label values, in declaration order.
    pub fn of(&self, values: [&str; N]) -> M {
        let labels = std::array::from_fn(|at| (self.names[at], values[at].to_owned()));
        self.family.get_or_create_owned(&labels)
    }
}

/// Registry that records declarations.
#[derive(Debug)]
pub(super) struct Declarations {
    pub registry: Registry,
    pub rows: Vec<MetricRow>,
}

impl Declarations {
    pub fn new() -> Self {
        Self { registry: Registry::with_prefix(PREFIX), rows: Vec::new() }
    }

    /// Declares a counter, gauge or histogram with labels; `name` is the full name.
    pub fn labeled<const N: usize, M>(
        &mut self,
        kind: MetricType,
        name: &'static str,
        labels: &'static [&'static str; N],
        help: &'static str,
        make: fn() -> M,
    ) -> Labeled<N, M>
    where
        M: Metric + Clone + prometheus_client::metrics::TypedMetric + prometheus_client::encoding::EncodeMetric,
        Family<Labels<N>, M, fn() -> M>: Metric,
    {
        let family = Family::<Labels<N>, M, fn() -> M>::new_with_constructor(make);
        self.register(kind, name, labels, help, family.clone());
        Labeled { names: labels, family }
    }

    /// Declares a histogram without labels.
    pub fn histogram(&mut self, name: &'static str, help: &'static str, histogram: Histogram) -> Histogram {
        self.register(MetricType::Histogram, name, &[], help, histogram.clone());
        histogram
    }

    /// Declares a gauge without labels, which is 0 at first; `name` is the full name.
    pub fn gauge(&mut self, name: &'static str, help: &'static str) -> Gauge {
        let gauge = Gauge::default();
        self.register(MetricType::Gauge, name, &[], help, gauge.clone());
        gauge
    }

    fn register(
        &mut self,
        kind: MetricType,
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        metric: impl Metric,
    ) {
        // The library adds the prefix, the suffix and the full stop.
        let short = name.strip_prefix("ralph_").unwrap_or(name);
        let short = if kind == MetricType::Counter { short.strip_suffix("_total").unwrap_or(short) } else { short };
        self.registry.register(short, help, metric);
        self.rows.push(MetricRow { name, kind, labels, help });
    }
}

/// Returns the content of `docs/reference/metrics.md`, the page about all metrics.
#[cfg(test)]
pub(super) fn page(rows: &[MetricRow]) -> String {
    let mut rows = rows.to_vec();
    rows.sort_by_key(|row| row.name);
    let line = |row: &MetricRow| {
        let labels: Vec<String> = row.labels.iter().map(|label| format!("`{label}`")).collect();
        format!("| `{}` | {} | {} | {} |\n", row.name, row.kind.word(), labels.join(", "), row.help)
    };
    let lines: String = rows.iter().map(line).collect();
    format!("{}{lines}", include_str!("metrics_head.md"))
}

/// Returns the names of all series, including buckets, sums and counts of histograms.
#[cfg(test)]
pub(super) fn series(rows: &[MetricRow]) -> std::collections::BTreeSet<String> {
    let names = |row: &MetricRow| match row.kind {
        MetricType::Histogram => ["_bucket", "_sum", "_count"].map(|suffix| format!("{}{suffix}", row.name)).to_vec(),
        MetricType::Counter | MetricType::Gauge => vec![row.name.to_owned()],
    };
    rows.iter().flat_map(names).collect()
}

#[cfg(test)]
impl MetricRow {
    /// Returns the name, type and labels.
    pub fn parts(&self) -> (&'static str, MetricType, &'static [&'static str]) {
        (self.name, self.kind, self.labels)
    }
}
