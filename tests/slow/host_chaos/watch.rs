//! Work that no process executes, although a host could: observed in the database while faults happen.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ralph_bot::store::Store;

use super::LEASE;
use super::faults::HostHealth;

/// Interval between two observations.
const INTERVAL: Duration = Duration::from_millis(100);
/// Time after the end of a fault, or after a start, until a host counts as able to work: it starts, and connects again.
const RECOVERY: Duration = Duration::from_secs(10);

/// Due work whose lease has expired, or that is reserved for a lost host, with the name of that host.
///
/// Parameters: time of the last heartbeat of a live host before now.
const WAITING: &str = "SELECT o.id, o.tries, coalesce(h.name, '') FROM outbox o
    LEFT JOIN leases l ON l.name = o.subject || '/work' AND l.fence = o.fence AND o.state = 'running'
    LEFT JOIN loop_files f ON f.loop_id = o.loop_id
    LEFT JOIN hosts h ON CASE WHEN l.name IS NULL THEN h.id = f.host ELSE l.owner LIKE h.id || '@%' END
    CROSS JOIN (SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT) AS now) t
    WHERE o.lane = 'work' AND o.state IN ('ready', 'running') AND o.not_before <= t.now AND o.created_at <= t.now
      AND NOT EXISTS (SELECT 1 FROM outbox e WHERE e.subject = o.subject AND e.lane = 'work'
                        AND e.state IN ('ready', 'running') AND e.id < o.id)
      AND NOT EXISTS (SELECT 1 FROM leases u WHERE u.name = o.subject || '/work' AND u.expires_at > t.now)
      AND (o.state = 'running' OR h.stopped = 1 OR h.seen_at <= t.now - ?1)";

/// Work that waits for a host.
#[derive(Debug, Clone)]
pub struct Wait {
    /// Host that was lost.
    pub host: String,
    /// Time of waiting.
    pub total: Duration,
    /// The part of it during which another host could have continued.
    pub avoidable: Duration,
}

/// Observer of the database.
#[derive(Clone)]
pub struct WaitObserver {
    health: Arc<Mutex<Option<HostHealth>>>,
    ended: Arc<Mutex<Vec<Wait>>>,
}

impl WaitObserver {
    pub fn new() -> Self {
        Self { health: Arc::default(), ended: Arc::default() }
    }

    /// Sets which hosts work.
    pub fn set(&self, health: HostHealth) {
        *self.health.lock().expect("not poisoned") = Some(health);
    }

    /// Waits that have ended.
    pub fn ended(&self) -> Vec<Wait> {
        self.ended.lock().expect("not poisoned").clone()
    }

    /// Observes the database until dropped.
    pub async fn observe(self, store: Store) {
        let mut waiting: HashMap<(i64, i64), Wait> = HashMap::new();
        let mut before = Instant::now();
        loop {
            tokio::time::sleep(INTERVAL).await;
            let oldest = i64::try_from(LEASE.as_millis()).expect("in range");
            let read = store.read(move |c| {
                let mut statement = c.prepare(WAITING)?;
                let rows = statement.query_map([oldest], |row| {
                    let key: (i64, i64) = (row.get(0)?, row.get(1)?);
                    Ok((key, row.get::<_, String>(2)?))
                })?;
                Ok(rows.collect::<Result<Vec<_>, _>>()?)
            });
            let found = read.await;
            let passed = before.elapsed();
            before = Instant::now();
            let Ok(found) = found else { continue };
            waiting.retain(|key, wait| {
                let goes_on = found.iter().any(|(other, _)| other == key);
                if !goes_on {
                    self.ended.lock().expect("not poisoned").push(wait.clone());
                }
                goes_on
            });
            for (key, host) in found {
                let new = Wait { host: host.clone(), total: Duration::ZERO, avoidable: Duration::ZERO };
                let wait = waiting.entry(key).or_insert(new);
                wait.total += passed;
                if self.another_works(&host) {
                    wait.avoidable += passed;
                }
            }
        }
    }

    /// Whether the database and a host other than `lost` have worked for some time.
    fn another_works(&self, lost: &str) -> bool {
        let Some(health) = *self.health.lock().expect("not poisoned") else { return false };
        let works = |since: Option<Instant>| since.is_some_and(|since| since.elapsed() >= RECOVERY);
        let mut others = health.hosts.iter().enumerate().filter(|(index, _)| format!("host-{index}") != lost);
        works(health.database) && others.any(|(_, since)| works(*since))
    }
}
