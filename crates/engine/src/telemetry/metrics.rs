//! Metrics of the service.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::table::{Declarations, Labeled, MetricType};
use crate::domain::loops::{ControlFigures, Iteration};
use crate::domain::model::host::{Host, ListedHost};
use crate::domain::report::notice::level_name;
use crate::domain::supervision::control::ProfileTransition;
use crate::domain::supervision::oversight::{DetectionKind, EscalationLevel, OversightReport};

/// Media type of OpenMetrics.
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Media type of the plain text format.
pub const PLAIN_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Upper bounds of the buckets for durations, in seconds: from a fast call to a long agent run.
const BUCKETS_S: [f64; 10] = [0.05, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0];
/// Upper bounds of the buckets for the time to store a delivery, in seconds.
const BUCKETS_STORE_S: [f64; 9] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5];
/// Upper bounds of the buckets for control signals: the limits of the urgency bands, and finer ones.
const BUCKETS_SIGNAL: [f64; 7] = [0.1, 0.2, 0.3, 0.5, 0.65, 0.8, 1.0];
/// Upper bounds of the buckets for the terms of control signals and for gains, which can be negative.
const BUCKETS_WEIGHTED: [f64; 10] = [-0.5, -0.1, 0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2];
/// Levels of escalations.
const LEVELS: [EscalationLevel; 4] =
    [EscalationLevel::Info, EscalationLevel::Warning, EscalationLevel::Critical, EscalationLevel::Emergency];
/// Outcomes of judged iterations.
const OUTCOMES: [&str; 3] = ["complete", "incomplete", "failed"];

/// Counter with a fractional value.
type AmountCounter = Counter<f64, AtomicU64>;
/// Gauge with a fractional value.
type AmountGauge = Gauge<f64, AtomicU64>;

/// Metrics of the service. Clones share their values.
#[derive(Debug, Clone)]
pub struct Metrics {
    declared: std::sync::Arc<Declarations>,
    deliveries: Labeled<2, Counter>,
    delivery_store: Histogram,
    loops: Labeled<1, Gauge>,
    queue_length: Labeled<1, Gauge>,
    queue_age: Labeled<1, AmountGauge>,
    stored: Labeled<1, Gauge>,
    disk_free: Labeled<1, Gauge>,
    backup: Labeled<1, AmountGauge>,
    host_silence: Labeled<2, AmountGauge>,
    host_work: Labeled<2, Gauge>,
    loops_without_host: Gauge,
    iterations: Labeled<1, Counter>,
    iteration_seconds: Histogram,
    escalations: Labeled<2, Counter>,
    checks: Labeled<2, Counter>,
    check_seconds: Labeled<1, Histogram>,
    agent_runs: Labeled<2, Counter>,
    agent_seconds: Labeled<1, Histogram>,
    questions: Labeled<2, Counter>,
    effects: Labeled<2, Counter>,
    forge_requests: Labeled<2, Counter>,
    forge_budget: Labeled<1, Gauge>,
    cost_usd: Labeled<2, AmountCounter>,
    calls: Labeled<3, Counter>,
    tokens: Labeled<3, Counter>,
    backends: Labeled<2, Gauge>,
    sandbox: Labeled<1, Gauge>,
    refusals: Labeled<1, Counter>,
    forges: Labeled<1, Gauge>,
    parks: Labeled<2, Counter>,
    detections: Labeled<2, Counter>,
    interventions: Labeled<2, Counter>,
    intervention_effects: Labeled<2, Counter>,
    validation_issues: Labeled<1, Counter>,
    alarms: Labeled<2, Counter>,
    control_signal: Histogram,
    control_terms: Labeled<1, Histogram>,
    control_gains: Labeled<1, Histogram>,
    profile_changes: Labeled<2, Counter>,
    health: Labeled<1, Counter>,
    learnings: Labeled<1, Gauge>,
    build: Labeled<1, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

fn durations() -> Histogram {
    Histogram::new(BUCKETS_S)
}

/// Returns a count as a gauge value, saturating.
fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl Metrics {
    /// Creates metrics with all values at zero.
    pub fn new() -> Self {
        use MetricType::{Counter as C, Gauge as G, Histogram as H};
        let mut all = Declarations::new();
        let d = &mut all;
        let metrics = Self {
            deliveries: d.labeled(C, "ralph_deliveries_total", &["forge", "outcome"], "Webhook deliveries: accepted, repeated, refused, unconfirmed", Counter::default),
            delivery_store: d.histogram("ralph_delivery_store_duration_seconds", "Time from the head of a delivery's request to its safe storage", Histogram::new(BUCKETS_STORE_S)),
            loops: d.labeled(G, "ralph_loops", &["state"], "Open loops", Gauge::default),
            queue_length: d.labeled(G, "ralph_queue_length", &["queue"], "Deliveries that wait, and effects that wait or run: calls to forges (forge), work of loops (work), notices (channels)", Gauge::default),
            queue_age: d.labeled(G, "ralph_queue_oldest_age_seconds", &["queue"], "Waiting time of the oldest due entry; 0 without one", AmountGauge::default),
            stored: d.labeled(G, "ralph_database_size_bytes", &["file"], "Size of the database and of its write-ahead log", Gauge::default),
            disk_free: d.labeled(G, "ralph_disk_free_bytes", &["folder"], "Free space for the service in the folder of the data", Gauge::default),
            backup: d.labeled(G, "ralph_backup_timestamp_seconds", &["result"], "Time of the last backup by `ralph-bot backup`, in seconds since 1970; absent before the first", AmountGauge::default),
            host_silence: d.labeled(G, "ralph_host_silence_seconds", &["host", "version"], "Time since the last heartbeat of a host that executes work, by the database's clock; 0 for a host that was stopped", AmountGauge::default),
            host_work: d.labeled(G, "ralph_host_work", &["host", "kind"], "Work effects that a host executes (running), and its maximum number of loops (slots), which is 0 if it accepts no new work", Gauge::default),
            loops_without_host: d.gauge("ralph_loops_without_host", "Loops whose due work waits, because no host that accepts work has the labels of `runs_on`"),
            iterations: d.labeled(C, "ralph_iterations_total", &["outcome"], "Judged iterations: complete, incomplete, failed", Counter::default),
            iteration_seconds: d.histogram("ralph_iteration_duration_seconds", "Time from the start of an iteration to the end of its checks", durations()),
            escalations: d.labeled(C, "ralph_escalations_total", &["cause", "level"], "Loops that paused, reached a limit, failed or were ended, and need a person; without reminders", Counter::default),
            checks: d.labeled(C, "ralph_check_runs_total", &["phase", "outcome"], "Runs of all checks of a loop: in the tree before the first change (baseline), after an iteration, in a fresh checkout (clean), in another with the tests of the base (clean_base_tests), in one of the base (clean_base), of proposed checks (proposals), and of setup commands (setup)", Counter::default),
            check_seconds: d.labeled(H, "ralph_check_run_duration_seconds", &["phase"], "Duration of a run of all checks of a loop", durations),
            agent_runs: d.labeled(C, "ralph_agent_runs_total", &["backend", "outcome"], "Runs of agents", Counter::default),
            agent_seconds: d.labeled(H, "ralph_agent_run_duration_seconds", &["backend"], "Duration of agents' runs", durations),
            questions: d.labeled(C, "ralph_questions_total", &["purpose", "outcome"], "Questions to assistants", Counter::default),
            effects: d.labeled(C, "ralph_effects_total", &["kind", "outcome"], "Executed effects: done, retried, rejected", Counter::default),
            forge_requests: d.labeled(C, "ralph_forge_requests_total", &["forge", "status"], "Requests to forges by class of status; `none` without an answer", Counter::default),
            forge_budget: d.labeled(G, "ralph_forge_requests_remaining", &["forge"], "Remaining requests until the forge's limit resets, as reported last; absent without a report", Gauge::default),
            cost_usd: d.labeled(C, "ralph_cost_usd_total", &["backend", "role"], "Cost of calls in US dollars", AmountCounter::default),
            calls: d.labeled(C, "ralph_backend_calls_total", &["backend", "role", "outcome"], "Calls of backends", Counter::default),
            tokens: d.labeled(C, "ralph_tokens_total", &["backend", "role", "kind"], "Tokens: input, output, cache_read, cache_write", Counter::default),
            backends: d.labeled(G, "ralph_backend_state", &["backend", "state"], "1 for the state that a backend is in, 0 for the others", Gauge::default),
            sandbox: d.labeled(G, "ralph_sandbox_tier", &["tier"], "1 for the mechanism that isolates agents and checks, 0 for the others", Gauge::default),
            refusals: d.labeled(C, "ralph_refusals_total", &["kind"], "Refusals to agents: servers outside of `sandbox.network` (network), and pushes with secrets (secret)", Counter::default),
            forges: d.labeled(G, "ralph_forge_up", &["forge"], "1 for a forge that has answered since the start, 0 for one that has not", Gauge::default),
            parks: d.labeled(C, "ralph_backend_parks_total", &["backend", "reason"], "Cool-downs of backends and their extensions", Counter::default),
            detections: d.labeled(C, "ralph_detections_total", &["kind", "severity"], "Iterations with a detection", Counter::default),
            interventions: d.labeled(C, "ralph_interventions_total", &["level", "kind"], "Interventions", Counter::default),
            intervention_effects: d.labeled(C, "ralph_intervention_effects_total", &["kind", "effect"], "Warnings and redirects of ended loops by effect: `progress` or `no_progress` in the next two iterations; a `false_positive` is also counted as one of these", Counter::default),
            validation_issues: d.labeled(C, "ralph_validation_issues_total", &["severity"], "Problems that the validations before and after iterations found", Counter::default),
            alarms: d.labeled(C, "ralph_alarms_total", &["kind", "severity"], "Alarms raised by control", Counter::default),
            control_signal: d.histogram("ralph_control_signal", "Control signal of iterations, 0 to 1", Histogram::new(BUCKETS_SIGNAL)),
            control_terms: d.labeled(H, "ralph_control_term", &["term"], "Terms of the control signals of iterations: proportional (p), integral (i), derivative (d)", || Histogram::new(BUCKETS_WEIGHTED)),
            control_gains: d.labeled(H, "ralph_control_gain", &["gain"], "Gains of control in iterations: kp, ki, kd", || Histogram::new(BUCKETS_WEIGHTED)),
            profile_changes: d.labeled(C, "ralph_profile_changes_total", &["from", "to"], "Changes of the gain profile", Counter::default),
            health: d.labeled(C, "ralph_iteration_health_total", &["health"], "Judged iterations by the health of their loop", Counter::default),
            learnings: d.labeled(G, "ralph_learnings", &["state"], "Learnings in the memory", Gauge::default),
            build: d.labeled(G, "ralph_build_info", &["version"], "1, with the version of the service", Gauge::default),
            declared: std::sync::Arc::new(Declarations::new()),
        };
        metrics.build.of([env!("CARGO_PKG_VERSION")]).set(1);
        // Alert rules do not see an increase from a missing series to one, so create each series with zero.
        metrics.refused("secret", 0);
        metrics.refused("network", 0);
        for outcome in OUTCOMES {
            metrics.iterations.of([outcome]).inc_by(0);
        }
        for level in LEVELS.map(level_name) {
            metrics.escalations.of([DetectionKind::Stuck.name(), level]).inc_by(0);
        }
        Self { declared: std::sync::Arc::new(all), ..metrics }
    }

    /// Returns the declared metrics.
    #[cfg(test)]
    pub(super) fn rows(&self) -> &[super::table::MetricRow] {
        &self.declared.rows
    }

    /// Counts a delivery from `forge` as `accepted`, `repeated`, `refused`, ….
    pub fn delivery(&self, forge: &str, outcome: &str) {
        self.deliveries.of([forge, outcome]).inc();
    }

    /// Records the time to store a delivery, in seconds.
    pub fn delivery_stored(&self, seconds: f64) {
        self.delivery_store.observe(seconds);
    }

    /// Sets whether a forge has responded since the start.
    pub fn forge_there(&self, forge: &str, there: bool) {
        self.forges.of([forge]).set(i64::from(there));
    }

    /// Sets the number of loops in `state`.
    pub fn loops_in_state(&self, state: &str, loops: u64) {
        self.loops.of([state]).set(count(loops));
    }

    /// Sets a queue's length, and the wait of its oldest due entry, in milliseconds.
    pub fn queue(&self, queue: &str, length: u64, oldest_ms: i64) {
        self.queue_length.of([queue]).set(count(length));
        self.queue_age.of([queue]).set(oldest_ms.max(0) as f64 / 1000.0);
    }

    /// Sets the sizes of the database and its write-ahead log, in bytes.
    pub fn stored(&self, database: u64, log: u64) {
        for (file, bytes) in [("database", database), ("log", log)] {
            self.stored.of([file]).set(count(bytes));
        }
    }

    /// Sets the free space for the service's data, in bytes.
    pub fn disk_free(&self, bytes: u64) {
        self.disk_free.of(["data"]).set(count(bytes));
    }

    /// Sets the time of the last backup, in milliseconds since 1970.
    pub fn backup(&self, at_ms: i64) {
        self.backup.of(["success"]).set(at_ms as f64 / 1000.0);
    }

    /// Sets the state of a host.
    pub fn host(&self, listed: &ListedHost) {
        let Host { name, version, slots, .. } = &listed.host;
        self.host_silence.of([name, version]).set(listed.silent_ms.unwrap_or(0) as f64 / 1000.0);
        self.host_work.of([name, "running"]).set(count(listed.running));
        self.host_work.of([name, "slots"]).set(if listed.takes_work() { i64::from(*slots) } else { 0 });
    }

    /// Sets the number of loops whose work no host may execute.
    pub fn loops_without_host(&self, loops: usize) {
        self.loops_without_host.set(count(loops as u64));
    }

    /// Counts a judged iteration as `complete`, `incomplete` or `failed`, with its duration, control signal, terms,
    /// gains, change of profile, health, detections, new interventions, problems of validations, and raised alarms.
    pub fn iteration(&self, iteration: &Iteration) {
        let [complete, incomplete, failed] = OUTCOMES;
        let outcome = match (iteration.checks.all_hold(), iteration.agent_problem.is_empty()) {
            (true, _) => complete,
            (false, true) => incomplete,
            (false, false) => failed,
        };
        self.iterations.of([outcome]).inc();
        if let Some(ended_at) = iteration.ended_at {
            self.iteration_seconds.observe(ended_at.since(iteration.started_at).max(0) as f64 / 1000.0);
        }
        let Some(judged) = &iteration.judged else { return };
        self.control_signal.observe(judged.signal);
        self.health.of([judged.health.word()]).inc();
        if let Some(ControlFigures { terms, gains, transition, .. }) = &judged.control {
            for (term, value) in [("p", terms.p), ("i", terms.i), ("d", terms.d)] {
                self.control_terms.of([term]).observe(value);
            }
            for (gain, value) in [("kp", gains.kp), ("ki", gains.ki), ("kd", gains.kd)] {
                self.control_gains.of([gain]).observe(value);
            }
            if let Some(ProfileTransition { from, to, .. }) = transition {
                self.profile_changes.of([from.as_str(), to.as_str()]).inc();
            }
        }
        for found in &judged.found {
            self.detections.of([found.kind.name(), &found.severity.to_string().to_lowercase()]).inc();
            if found.fresh {
                self.interventions.of([&found.level.name().to_lowercase(), found.kind.name()]).inc();
            }
        }
        for issue in &judged.issues {
            self.validation_issues.of([&issue.severity.to_string().to_lowercase()]).inc();
        }
        for alarm in judged.control.iter().flat_map(|figures| &figures.alarms).filter(|alarm| alarm.raised) {
            self.alarms.of([alarm.kind.name(), alarm.severity.word()]).inc();
        }
    }

    /// Counts the effects of interventions in a loop that ended.
    pub fn effects_of_interventions(&self, report: &OversightReport) {
        for (kind, counts) in &report.effects {
            let effects = [
                ("progress", counts.progress),
                ("no_progress", counts.no_progress),
                ("false_positive", counts.false_positives),
            ];
            for (effect, interventions) in effects {
                self.intervention_effects.of([kind.name(), effect]).inc_by(interventions.into());
            }
        }
    }

    /// Counts a loop that needs a person because of `cause`.
    pub fn escalation(&self, cause: &str, level: &str) {
        self.escalations.of([cause, level]).inc();
    }

    /// Counts a run of all checks in `phase` that took `seconds`.
    pub fn check_run(&self, phase: &str, passed: bool, seconds: f64) {
        self.checks.of([phase, if passed { "passed" } else { "failed" }]).inc();
        self.check_seconds.of([phase]).observe(seconds);
    }

    /// Sets the number of learnings in `state`.
    pub fn learnings(&self, state: &'static str, learnings: u64) {
        self.learnings.of([state]).set(count(learnings));
    }

    /// Counts a run of an agent that took `seconds`.
    pub fn agent_run(&self, backend: &str, outcome: &str, seconds: f64) {
        self.agent_runs.of([backend, outcome]).inc();
        self.agent_seconds.of([backend]).observe(seconds);
    }

    /// Counts a question to an assistant as `finished`, `failed`, ….
    pub fn question(&self, purpose: &str, outcome: &str) {
        self.questions.of([purpose, outcome]).inc();
    }

    /// Counts a finished backend call as `finished`, `failed`, `limited`, `lost`, …, with its tokens by kind and its cost
    /// `usd` (0 if unknown).
    pub fn call(&self, (backend, role): (&str, &str), outcome: &str, tokens: [(&'static str, u64); 4], usd: f64) {
        self.calls.of([backend, role, outcome]).inc();
        for (kind, tokens) in tokens.into_iter().filter(|(_, tokens)| *tokens > 0) {
            self.tokens.of([backend, role, kind]).inc_by(tokens);
        }
        if usd.is_finite() && usd > 0.0 {
            self.cost_usd.of([backend, role]).inc_by(usd);
        }
    }

    /// Sets the current state of a backend among `states`.
    pub fn backend_state(&self, backend: &str, states: &[&str], now: &str) {
        for state in states {
            self.backends.of([backend, state]).set(i64::from(*state == now));
        }
    }

    /// Sets the current isolation tier of agents and checks among `tiers`.
    pub fn sandbox_tier(&self, tiers: &[&str], now: &str) {
        for tier in tiers {
            self.sandbox.of([tier]).set(i64::from(*tier == now));
        }
    }

    /// Counts rejected accesses by agents, of kind `network` or `secret`.
    pub fn refused(&self, kind: &'static str, times: u64) {
        self.refusals.of([kind]).inc_by(times);
    }

    /// Counts that a backend entered a cooldown, or that its cooldown was extended, because of `reason`.
    pub fn parked(&self, backend: &str, reason: &str) {
        self.parks.of([backend, reason]).inc();
    }

    /// Counts an effect of `kind` by outcome: `done`, `retried` or `rejected`.
    pub fn effect(&self, kind: &str, outcome: &str) {
        self.effects.of([kind, outcome]).inc();
    }

    /// Sets the number of requests to `forge` since the start by status class, and the remaining request quota, if known.
    pub fn forge_requests<'c>(
        &self,
        forge: &str,
        requests: impl IntoIterator<Item = (&'c str, u64)>,
        remaining: Option<u32>,
    ) {
        for (class, requests) in requests.into_iter().filter(|(_, requests)| *requests > 0) {
            self.forge_requests.of([forge, class]).inner().fetch_max(requests, Ordering::Relaxed);
        }
        if let Some(remaining) = remaining {
            self.forge_budget.of([forge]).set(i64::from(remaining));
        }
    }

    /// Returns all metrics in the OpenMetrics text format.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing into a String cannot fail; if a metric fails to encode, it is missing in the text.
        let _ = encode(&mut text, &self.declared.registry);
        text
    }

    /// Returns all metrics in Prometheus' plain text format, in which a counter's type line contains the suffix of its name.
    pub fn encode_plain(&self) -> String {
        let text = self.encode();
        let counters: std::collections::BTreeSet<&str> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
        let mut out = String::with_capacity(text.len());
        for line in text.lines() {
            let mut words = line.splitn(4, ' ');
            match (words.next(), words.next(), words.next(), words.next()) {
                (Some("#"), Some("EOF" | "UNIT"), ..) => continue,
                (Some("#"), Some(what), Some(name), Some(rest)) if counters.contains(name) => {
                    out.push_str(&format!("# {what} {name}_total {rest}"));
                }
                _ => out.push_str(line),
            }
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::loops::{ControlFigures, JudgedDetection, KeptAlarm};
    use crate::domain::model::ids::Timestamp;
    use crate::domain::supervision::control::{AlarmKind, AlarmSeverity, Gains, Terms};
    use crate::domain::supervision::oversight::{DetectionSeverity, EffectCounts, Health, InterventionLevel};
    use crate::domain::supervision::strategy::IterationIssue;
    use crate::telemetry::table;

    /// Iteration that ended with a REDIRECT and an alarm.
    fn judged_iteration() -> Iteration {
        let mut stuck = crate::domain::lifecycle::samples::stuck();
        let iteration = stuck.iterations.iter_mut().rev().find(|i| i.judged.is_some()).expect("judged");
        iteration.ended_at = Some(Timestamp(iteration.started_at.0 + 5_000));
        let judged = iteration.judged.as_mut().expect("judged");
        judged.signal = 0.4;
        judged.health = Health::Warning;
        judged.found = vec![JudgedDetection {
            kind: DetectionKind::Stuck,
            severity: DetectionSeverity::High,
            basis: None,
            level: InterventionLevel::Redirect,
            fresh: true,
            evidence: String::new(),
            recommendations: Vec::new(),
        }];
        judged.issues = vec![IterationIssue {
            severity: DetectionSeverity::Medium,
            text: "6 errors of the agent's tools".into(),
            advice: None,
        }];
        judged.control = Some(ControlFigures {
            terms: Terms { p: 0.2, i: 0.2, d: 0.0 },
            gains: Gains { kp: 0.5, ki: 0.15, kd: 0.25 },
            transition: Some(ProfileTransition {
                from: "standard".into(),
                to: "recovery".into(),
                reason: String::new(),
            }),
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
        metrics.queue("forge", 3, 1_500);
        metrics.delivery_stored(0.002);
        metrics.disk_free(5);
        metrics.backup(1_790_000_000_000);
        let host = Host { name: "big".into(), version: "1".into(), slots: 4, ..Host::default() };
        metrics.host(&ListedHost { host, silent_ms: Some(2_500), is_draining: false, running: 3 });
        metrics.loops_without_host(1);
        metrics.escalation("stuck", "critical");
        metrics.check_run("iteration", false, 2.0);
        metrics.refused("network", 2);
        metrics.stored(4096, 0);
        metrics.iteration(&judged_iteration());
        let counts = EffectCounts { progress: 1, no_progress: 2, false_positives: 1 };
        let effects = [(DetectionKind::Stuck, counts)].into();
        metrics.effects_of_interventions(&OversightReport { effects, ..OversightReport::default() });
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
        metrics.forge_requests("work", [("2xx", 3), ("none", 1), ("5xx", 0)], Some(4_900));
        metrics.forge_requests("work", [("2xx", 4)], None);
        let text = metrics.encode();
        for line in [
            "ralph_deliveries_total{forge=\"work\",outcome=\"accepted\"} 2",
            "ralph_loops{state=\"running\"} 2",
            "ralph_sandbox_tier{tier=\"namespaces\"} 1",
            "ralph_sandbox_tier{tier=\"none\"} 0",
            "ralph_queue_length{queue=\"forge\"} 3",
            "ralph_queue_oldest_age_seconds{queue=\"forge\"} 1.5",
            "ralph_delivery_store_duration_seconds_count 1",
            "ralph_disk_free_bytes{folder=\"data\"} 5",
            "ralph_backup_timestamp_seconds{result=\"success\"} 1790000000.0",
            "ralph_host_silence_seconds{host=\"big\",version=\"1\"} 2.5",
            "ralph_host_work{host=\"big\",kind=\"running\"} 3",
            "ralph_host_work{host=\"big\",kind=\"slots\"} 4",
            "ralph_loops_without_host 1",
            "ralph_escalations_total{cause=\"stuck\",level=\"critical\"} 1",
            "ralph_check_runs_total{phase=\"iteration\",outcome=\"failed\"} 1",
            "ralph_refusals_total{kind=\"network\"} 2",
            "ralph_forge_requests_remaining{forge=\"work\"} 4900",
            "ralph_iteration_duration_seconds_count 1",
            "ralph_database_size_bytes{file=\"database\"} 4096",
            "ralph_iterations_total{outcome=\"incomplete\"} 1",
            "ralph_detections_total{kind=\"stuck\",severity=\"high\"} 1",
            "ralph_interventions_total{level=\"redirect\",kind=\"stuck\"} 1",
            "ralph_intervention_effects_total{kind=\"stuck\",effect=\"no_progress\"} 2",
            "ralph_intervention_effects_total{kind=\"stuck\",effect=\"false_positive\"} 1",
            "ralph_validation_issues_total{severity=\"medium\"} 1",
            "ralph_alarms_total{kind=\"stuck_loop\",severity=\"warning\"} 1",
            "ralph_control_signal_bucket{le=\"0.5\"} 1",
            "ralph_control_term_sum{term=\"p\"} 0.2",
            "ralph_control_term_count{term=\"d\"} 1",
            "ralph_control_gain_sum{gain=\"kd\"} 0.25",
            "ralph_profile_changes_total{from=\"standard\",to=\"recovery\"} 1",
            "ralph_iteration_health_total{health=\"warning\"} 1",
            "ralph_learnings{state=\"active\"} 4",
            "ralph_agent_runs_total{backend=\"claude\",outcome=\"ok\"} 2",
            "ralph_agent_run_duration_seconds_count{backend=\"claude\"} 2",
            "ralph_cost_usd_total{backend=\"claude\",role=\"agent\"} 0.25",
            "ralph_backend_calls_total{backend=\"claude\",role=\"agent\",outcome=\"finished\"} 1",
            "ralph_backend_calls_total{backend=\"claude\",role=\"agent\",outcome=\"failed\"} 1",
            "ralph_tokens_total{backend=\"claude\",role=\"agent\",kind=\"output\"} 10",
            "ralph_backend_state{backend=\"claude\",state=\"active\"} 0",
            "ralph_backend_state{backend=\"claude\",state=\"parked\"} 1",
            "ralph_backend_parks_total{backend=\"claude\",reason=\"rate_limit\"} 1",
            "ralph_effects_total{kind=\"comment\",outcome=\"done\"} 1",
            "ralph_forge_requests_total{forge=\"work\",status=\"2xx\"} 4",
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

    #[test]
    fn plain_text_format_names_counters_like_their_series() {
        let metrics = Metrics::new();
        metrics.delivery("work", "accepted");
        metrics.agent_run("claude", "ok", 1.0);
        let text = metrics.encode_plain();
        assert!(text.contains("# TYPE ralph_deliveries_total counter\n"), "{text}");
        assert!(text.contains("\nralph_deliveries_total{forge=\"work\",outcome=\"accepted\"} 1\n"), "{text}");
        assert!(text.contains("# TYPE ralph_agent_run_duration_seconds histogram\n"), "{text}");
        assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
    }

    #[test]
    fn names_follow_the_rules_of_prometheus() {
        for row in Metrics::new().rows() {
            let (name, kind, labels) = row.parts();
            assert!(name.starts_with("ralph_") && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
            assert_eq!(name.ends_with("_total"), kind == MetricType::Counter, "{name}");
            for word in ["_ms", "_milliseconds", "_minutes", "_hours", "_kb", "_mb", "_count"] {
                assert!(!name.ends_with(word), "{name} has no base unit");
            }
            for label in ["loop", "issue", "repository", "user", "commit", "branch", "url", "le", "job", "instance"] {
                assert!(!labels.contains(&label), "{name} has the label {label}");
            }
        }
    }

    #[test]
    fn metrics_page_is_current() {
        let path =
            std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("docs/reference/metrics.md");
        let page = table::page(Metrics::new().rows());
        if crate::config::Env::of_process().get("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &page).expect("written");
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(found, page, "run `UPDATE_DOCS=1 cargo test --lib telemetry`");
    }

    /// Expressions of the dashboards and rules in `deploy/`.
    fn expressions() -> Vec<(String, String)> {
        let deploy = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("deploy");
        let mut all = Vec::new();
        for entry in std::fs::read_dir(deploy.join("grafana")).expect("dashboards") {
            let path = entry.expect("an entry").path();
            let text = std::fs::read_to_string(&path).expect("text");
            let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            let found = all.len();
            collect(&dashboard, &path.display().to_string(), &mut all);
            assert!(all.len() > found, "{} has no query", path.display());
        }
        let rules = std::fs::read_to_string(deploy.join("prometheus/alerts.yml")).expect("rules");
        let rules: Vec<_> = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).collect();
        assert!(rules.len() > 8);
        all.extend(rules.into_iter().map(|rule| ("alerts.yml".to_owned(), rule.to_owned())));
        all
    }

    /// Finds queries in panels and variables.
    fn collect(value: &serde_json::Value, file: &str, all: &mut Vec<(String, String)>) {
        match value {
            serde_json::Value::Object(map) => {
                for (key, value) in map {
                    match value.as_str() {
                        Some(text) if matches!(key.as_str(), "expr" | "query") => all.push((file.into(), text.into())),
                        _ => collect(value, file, all),
                    }
                }
            }
            serde_json::Value::Array(list) => list.iter().for_each(|value| collect(value, file, all)),
            _ => {}
        }
    }

    #[test]
    fn dashboards_and_rules_use_existing_metrics_and_labels() {
        let metrics = Metrics::new();
        let series = table::series(metrics.rows());
        let labels: std::collections::BTreeSet<&str> = metrics
            .rows()
            .iter()
            .flat_map(|row| row.parts().2.iter().copied())
            .chain(["job", "instance", "le"])
            .collect();
        let name = regex::Regex::new(r"\bralph_[a-z_]+").expect("a pattern");
        let label = regex::Regex::new(r#"([a-z_]+) *(?:=|!=|=~|!~) *""#).expect("a pattern");
        let grouped = regex::Regex::new(r"\bby *\(([^)]*)\)").expect("a pattern");
        for (file, expression) in expressions() {
            for found in name.find_iter(&expression) {
                assert!(series.contains(found.as_str()), "{file}: {} in {expression} does not exist", found.as_str());
            }
            let used = label.captures_iter(&expression).map(|found| found[1].to_owned());
            let groups = grouped
                .captures_iter(&expression)
                .flat_map(|found| found[1].split(',').map(|one| one.trim().to_owned()).collect::<Vec<_>>());
            for used in used.chain(groups) {
                assert!(labels.contains(used.as_str()), "{file}: the label {used} in {expression} does not exist");
            }
        }
    }

    /// Rules about a counter's increase would miss its first count if the series did not exist before.
    #[test]
    fn alerted_counters_start_at_zero() {
        let text = Metrics::new().encode_plain();
        let increase = regex::Regex::new(r"\bincrease\((\w+)(?:\{([^}]*)\})?\[").expect("a pattern");
        let mut asked = 0;
        for (file, expression) in expressions().into_iter().filter(|(file, _)| file == "alerts.yml") {
            for found in increase.captures_iter(&expression) {
                let (name, label) = (&found[1], found.get(2).map_or("", |label| label.as_str()));
                let zero = |line: &str| line.starts_with(name) && line.contains(label) && line.ends_with(" 0");
                assert!(text.lines().any(zero), "{file}: {name}{{{label}}} has no series at the start");
                asked += 1;
            }
        }
        assert!(asked >= 3, "{asked}");
    }

    #[test]
    fn alerts_have_runbooks() {
        let path =
            std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("deploy/prometheus/alerts.yml");
        let rules = std::fs::read_to_string(path).expect("rules");
        let alerts = rules.matches("- alert: ").count();
        let links: Vec<&str> =
            rules.lines().filter_map(|line| line.split_once("RUNBOOK.md#")).map(|(_, to)| to.trim()).collect();
        assert_eq!(links.len(), alerts);
        let anchors = [
            "disk-full",
            "forge-down",
            "provider-down",
            "stuck-loop",
            "leaked-key",
            "backups",
            "service-down",
            "queue-behind",
            "no-sandbox",
        ];
        assert!(links.iter().all(|link| anchors.contains(link)), "{links:?}");
        assert!(anchors.iter().all(|anchor| links.contains(anchor)), "an anchor without an alert: {links:?}");
    }
}
