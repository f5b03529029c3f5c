//! Scripted faults of the fake forge and a log of requests: what tests turn to see how a client bears it.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use regex::Regex;

use ralph_types::ids::Timestamp;

/// What goes wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Answers this; with `apply`, after the request took effect.
    Respond { status: u16, headers: Vec<(String, String)>, body: String, apply: bool },
    /// Cuts the connection without an answer; with `apply`, after the request took effect.
    Reset { apply: bool },
    /// Never answers; the request has no effect.
    Hang,
    /// Answers properly, but later.
    Delay(Duration),
}

impl Fault {
    /// An answer of that status without effect.
    pub fn status(status: u16) -> Self {
        Self::Respond { status, headers: Vec::new(), body: String::new(), apply: false }
    }

    /// An answer of that status with one header, without effect.
    pub fn with_header(status: u16, name: &str, value: &str) -> Self {
        let headers = vec![(name.to_owned(), value.to_owned())];
        Self::Respond { status, headers, body: String::new(), apply: false }
    }

    /// An answer of that status although the request took effect.
    pub fn after_effect(status: u16) -> Self {
        Self::Respond { status, headers: Vec::new(), body: String::new(), apply: true }
    }
}

/// A request that was answered, or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    /// When it came in, by the forge's clock.
    pub at: Timestamp,
    /// Method.
    pub method: String,
    /// Path, without the query.
    pub path: String,
    /// Query, raw.
    pub query: String,
    /// Whether it carried a credential.
    pub authenticated: bool,
    /// Status of the answer; `None` while it is open, and when it was cut or hung.
    pub status: Option<u16>,
}

#[derive(Debug)]
struct Rule {
    method: Option<String>,
    path: Regex,
    skip: u32,
    remaining: u32,
    fault: Fault,
}

/// The script and the log.
#[derive(Debug, Default)]
pub struct Faults {
    rules: Mutex<Vec<Rule>>,
    requests: Mutex<Vec<RequestRecord>>,
    lag_ms: AtomicI64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Faults {
    /// The next `times` requests whose method is `method` (empty: any) and whose path matches `path` (a regular
    /// expression) get `fault`. Rules are tried in the order they were made; one fault a request.
    pub fn next(&self, times: u32, method: &str, path: &str, fault: Fault) -> Result<(), regex::Error> {
        self.after(0, times, method, path, fault)
    }

    /// As `next`, but lets `skip` matching requests through first.
    pub fn after(&self, skip: u32, times: u32, method: &str, path: &str, fault: Fault) -> Result<(), regex::Error> {
        let method = (!method.is_empty()).then(|| method.to_ascii_uppercase());
        locked(&self.rules).push(Rule { method, path: Regex::new(path)?, skip, remaining: times, fault });
        Ok(())
    }

    /// Lists of comments lag behind by so much from now on: what is newer is there, and in no list.
    pub fn lag(&self, by: Duration) {
        self.lag_ms.store(i64::try_from(by.as_millis()).unwrap_or(i64::MAX), Ordering::SeqCst);
    }

    /// Whether what was written then is in lists now.
    pub(super) fn is_listed(&self, written: Timestamp, now: Timestamp) -> bool {
        now.since(written) >= self.lag_ms.load(Ordering::SeqCst)
    }

    /// Forgets all rules.
    pub fn clear(&self) {
        locked(&self.rules).clear();
    }

    /// How many faults are still to be handed out.
    pub fn remaining(&self) -> u32 {
        locked(&self.rules).iter().map(|rule| rule.remaining).sum()
    }

    /// All requests so far, oldest first.
    pub fn requests(&self) -> Vec<RequestRecord> {
        locked(&self.requests).clone()
    }

    /// Notes a request; its position in the log.
    pub(super) fn note(&self, record: RequestRecord) -> usize {
        let mut requests = locked(&self.requests);
        requests.push(record);
        requests.len() - 1
    }

    pub(super) fn answered(&self, position: usize, status: u16) {
        if let Some(record) = locked(&self.requests).get_mut(position) {
            record.status = Some(status);
        }
    }

    pub(super) fn take(&self, method: &str, path: &str) -> Option<Fault> {
        let mut rules = locked(&self.rules);
        for rule in rules.iter_mut() {
            let matches = rule.method.as_deref().is_none_or(|wanted| wanted == method) && rule.path.is_match(path);
            if !matches || rule.remaining == 0 {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            rule.remaining -= 1;
            return Some(rule.fault.clone());
        }
        None
    }
}

/// A connection that can be cut from within a request.
#[derive(Debug, Clone, Default)]
pub(super) struct Cut(Arc<AtomicBool>);

impl Cut {
    /// From now on nothing is written; the connection ends with a reset.
    pub(super) fn now(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_cut(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
