//! Limits of loops and of the service: their keys in both configuration files, and the resulting values.

use std::fmt::Display;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::domain::model::ids::Money;
use crate::domain::model::quantity::{Duration, IterationLimit, Usd};
use crate::domain::model::settings::config_section;

config_section! {
    /// Limits at which the bot stops.
    pub struct Limits {
        /// Maximum concurrent loops.
        pub loops: u32 = 4, in 1..;
        /// Maximum concurrent loops per forge; only `loops` limits if omitted.
        pub loops_per_forge: Option<u32>, in 1.., at_most loops;
        /// Maximum concurrent loops per repository.
        pub loops_per_repository: u32 = 1, in 1.., at_most loops;
        /// Maximum iterations of a loop. With `unlimited`, the loop ends at `timeout` or `cost_usd`, or if a person ends it.
        pub iterations: IterationLimit = IterationLimit::of(10), in 1..;
        /// Maximum running time of a loop.
        pub timeout: Duration = Duration::hours(2), in Duration::seconds(1)..;
        /// Maximum running time of an agent run; one and a half times as much while a REDIRECT is active
        /// (`control.actuators.effort`).
        pub agent_timeout: Duration = Duration::minutes(30), in Duration::seconds(1)..;
        /// Maximum time without output before an agent is stopped.
        pub agent_idle: Duration = Duration::minutes(10), in Duration::seconds(1)..;
        /// Maximum turns of an agent run, for agents that count them, extended like `agent_timeout`; the agent's own limit if omitted.
        pub agent_turns: Option<u32>, in 1..;
        /// Maximum cost of a loop. Runs of {presets_with_usage_during_run}, and of `internal` and `jsonl`, are stopped at
        /// the limit, as these report their use during a run; {presets_with_usage_at_end} report it at the end only.
        pub cost_usd: Usd = Usd(Money(10_000_000)), in Usd::MIN.., at_most cost_usd_per_day, at_most cost_usd_per_repository_per_day;
        /// Maximum cost of the service per day.
        pub cost_usd_per_day: Usd = Usd(Money(50_000_000)), in Usd::MIN..;
        /// Maximum cost of a repository per day; only the service's limit applies if omitted.
        pub cost_usd_per_repository_per_day: Option<Usd>, in Usd::MIN.., at_most cost_usd_per_day;
        /// Maximum comments on an issue per day.
        pub comments_per_day: u32 = 30, in 1..;
        /// Maximum comments on an issue per hour.
        pub comments_per_hour: u32 = 6, in 1..;
    }
}

config_section! {
    /// Limits of this repository; the operator's if omitted or higher.
    pub struct RepositoryLimits {
        /// Maximum iterations of a loop.
        pub iterations: Option<IterationLimit>, in 1..;
        /// Maximum running time of a loop.
        pub timeout: Option<Duration>, in Duration::seconds(1)..;
        /// Maximum cost of a loop.
        pub cost_usd: Option<Usd>, in Usd::MIN..;
        /// Maximum cost of this repository per day.
        pub cost_usd_per_day: Option<Usd>, in Usd::MIN..;
        /// Maximum concurrent loops of this repository.
        pub loops: Option<u32>, in 1..;
        /// Maximum comments on an issue per day.
        pub comments_per_day: Option<u32>, in 1..;
        /// Maximum comments on an issue per hour.
        pub comments_per_hour: Option<u32>, in 1..;
    }
}

config_section! {
    /// Limits of all processes of one run of an agent or a check in the sandbox. A run that exceeds one of them is
    /// ended with that reason. If the service may create control groups (version 2; in a systemd unit, `Delegate=yes`),
    /// the kernel enforces the limits of memory and processes. Otherwise it limits only the number of processes. In
    /// both cases, the use of all resources is measured twice a second. Runs yield to the service if processors are
    /// scarce.
    #[derive(Copy, Eq)]
    pub struct SandboxLimits {
        /// Maximum memory, in MiB; shared memory counts once. `/tmp`, `/dev/shm` and a home in memory may each use a quarter of it.
        pub memory_mib: u64 = 8_192, in 64..;
        /// Maximum number of processes and threads.
        pub processes: u64 = 1_024, in 16..;
        /// Maximum disk space of the work tree, the home and the other folders of the run, in MiB, with deleted files that are still
        /// open. Also the maximum size of one file.
        pub disk_mib: u64 = 20_480, in 64..;
    }
}

impl Limits {
    /// Returns the maximum iterations of a task that needs care, before a person decides: half of the maximum, rounded up; half of
    /// the default if unlimited.
    pub fn careful_iterations(&self) -> IterationLimit {
        let whole = self.iterations.count().or(Self::default().iterations.count()).unwrap_or(1);
        IterationLimit::of(whole.div_ceil(2))
    }

    /// Returns these limits lowered to a repository's limits. Also returns one sentence for each limit of the repository that is
    /// higher than the operator's and has no effect.
    pub fn lowered_to(&self, repository: &RepositoryLimits) -> (Self, Vec<String>) {
        let RepositoryLimits {
            iterations,
            timeout,
            cost_usd,
            cost_usd_per_day,
            loops,
            comments_per_day,
            comments_per_hour,
        } = *repository;
        let (mut limits, mut notes) = (self.clone(), Vec::new());
        lower("iterations", &mut limits.iterations, iterations, &mut notes);
        lower("timeout", &mut limits.timeout, timeout, &mut notes);
        lower_cost("cost_usd", &mut limits.cost_usd, cost_usd, &mut notes);
        lower_cost("cost_usd_per_day", &mut limits.cost_usd_per_day, cost_usd_per_day, &mut notes);
        lower("loops", &mut limits.loops_per_repository, loops, &mut notes);
        lower("comments_per_day", &mut limits.comments_per_day, comments_per_day, &mut notes);
        lower("comments_per_hour", &mut limits.comments_per_hour, comments_per_hour, &mut notes);
        (limits, notes)
    }
}

/// Lowers a limit of the operator to a repository's limit. If the repository's limit is higher, adds a note instead.
fn lower<T: PartialOrd + Display>(key: &str, limit: &mut T, wanted: Option<T>, notes: &mut Vec<String>) {
    match wanted {
        Some(wanted) if wanted > *limit => {
            notes.push(format!("`limits.{key}`: {wanted} is above the operator's limit; {limit} applies"));
        }
        Some(wanted) => *limit = wanted,
        None => {}
    }
}

/// Lowers a cost limit to a repository's cost limit. An operator's limit of 0, which `ralph-bot local` sets, means that there is
/// none.
fn lower_cost(key: &str, limit: &mut Usd, wanted: Option<Usd>, notes: &mut Vec<String>) {
    match wanted {
        Some(wanted) if limit.0 == Money(0) => *limit = wanted,
        wanted => lower(key, limit, wanted, notes),
    }
}

/// Deserializes stored limits. Also accepts their former names: `timeout_s` in seconds, and `cost` and `cost_per_day` in
/// millionths of a dollar.
pub(super) fn stored<'de, D: Deserializer<'de>, L: DeserializeOwned>(deserializer: D) -> Result<L, D::Error> {
    let mut limits: Map<String, Value> = Map::deserialize(deserializer)?;
    let dollars = |micros: Value| micros.as_i64().map_or(Value::Null, |micros| Money(micros).usd().into());
    let renames: [(&str, &str, &dyn Fn(Value) -> Value); 3] = [
        ("timeout_s", "timeout", &|seconds| seconds),
        ("cost", "cost_usd", &dollars),
        ("cost_per_day", "cost_usd_per_day", &dollars),
    ];
    for (old, new, convert) in renames {
        if let Some(value) = limits.remove(old) {
            limits.insert(new.to_owned(), convert(value));
        }
    }
    serde_json::from_value(Value::Object(limits)).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Stored {
        #[serde(deserialize_with = "stored")]
        limits: Limits,
        #[serde(deserialize_with = "stored")]
        repository: RepositoryLimits,
    }

    #[test]
    fn careful_tasks_have_half_of_the_iterations() {
        let careful = |iterations| Limits { iterations, ..Limits::default() }.careful_iterations();
        assert_eq!([careful(IterationLimit::of(9)), careful(IterationLimit::UNLIMITED)], [IterationLimit::of(5); 2]);
    }

    #[test]
    fn limits_stored_under_former_names_are_read() {
        let former = json!({
            "limits": {"iterations": 7, "timeout_s": 5400, "cost": 2_500_000, "cost_per_day": 0, "loops": 3,
                "loops_per_forge": null, "loops_per_repository": 2, "comments_per_day": 20, "comments_per_hour": 5},
            "repository": {"iterations": null, "timeout_s": 60, "cost": null, "cost_per_day": 1_000_000, "loops": null,
                "comments_per_day": null, "comments_per_hour": 1},
        });
        let read: Stored = serde_json::from_value(former).unwrap();
        let limits = Limits {
            iterations: IterationLimit::of(7),
            timeout: Duration::minutes(90),
            cost_usd: Usd(Money(2_500_000)),
            cost_usd_per_day: Usd(Money(0)),
            loops: 3,
            loops_per_repository: 2,
            comments_per_day: 20,
            comments_per_hour: 5,
            ..Limits::default()
        };
        let repository = RepositoryLimits {
            timeout: Some(Duration::minutes(1)),
            cost_usd_per_day: Some(Usd(Money(1_000_000))),
            comments_per_hour: Some(1),
            ..RepositoryLimits::default()
        };
        assert_eq!((&read.limits, &read.repository), (&limits, &repository));
        let again = json!({"limits": limits, "repository": repository});
        assert_eq!(serde_json::from_value::<Stored>(again).unwrap(), read);
    }

    #[test]
    fn lower_limits_of_a_repository_apply_and_higher_limits_are_reported() {
        let operator = Limits { iterations: IterationLimit::of(5), cost_usd: Usd(Money(0)), ..Limits::default() };
        let wanted = RepositoryLimits {
            iterations: Some(IterationLimit::of(9)),
            timeout: Some(Duration::minutes(90)),
            cost_usd: Some(Usd(Money(3))),
            cost_usd_per_day: Some(Usd(Money::from_usd(60.0))),
            loops: Some(4),
            ..RepositoryLimits::default()
        };
        let (lowered, notes) = operator.lowered_to(&wanted);
        let expected = Limits { timeout: Duration::minutes(90), cost_usd: Usd(Money(3)), ..operator.clone() };
        assert_eq!(lowered, expected);
        let expected = [
            "`limits.iterations`: 9 is above the operator's limit; 5 applies",
            "`limits.cost_usd_per_day`: $60.00 is above the operator's limit; $50.00 applies",
            "`limits.loops`: 4 is above the operator's limit; 1 applies",
        ];
        assert_eq!(notes, expected);
        assert_eq!(operator.lowered_to(&RepositoryLimits::default()), (operator.clone(), Vec::new()));

        let open_ended =
            RepositoryLimits { iterations: Some(IterationLimit::UNLIMITED), ..RepositoryLimits::default() };
        let (lowered, notes) = operator.lowered_to(&open_ended);
        assert_eq!(lowered, operator, "only the operator may allow it");
        assert_eq!(notes, ["`limits.iterations`: unlimited is above the operator's limit; 5 applies"]);
    }
}
