//! Fault injection and request log.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use regex::Regex;

use ralph_types::ids::Timestamp;

/// Fault to inject into a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FakeFault {
    /// Sends this response; with `apply`, after executing the request.
    Respond { status: u16, headers: Vec<(String, String)>, body: String, apply: bool },
    /// Resets the connection without a response; with `apply`, after executing the request.
    Reset { apply: bool },
    /// Never responds, and does not execute the request.
    Hang,
    /// Responds normally after a delay.
    Delay(Duration),
}

impl FakeFault {
    /// Creates a fault that responds with this status and does not execute the request.
    pub fn status(status: u16) -> Self {
        Self::Respond { status, headers: Vec::new(), body: String::new(), apply: false }
    }

    /// Creates a fault that responds with this status and header and does not execute the request.
    pub fn with_header(status: u16, name: &str, value: &str) -> Self {
        let headers = vec![(name.to_owned(), value.to_owned())];
        Self::Respond { status, headers, body: String::new(), apply: false }
    }

    /// Creates a fault that responds with this status after executing the request.
    pub fn after_effect(status: u16) -> Self {
        Self::Respond { status, headers: Vec::new(), body: String::new(), apply: true }
    }
}

/// Logged request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    /// Time of receipt according to the forge's clock.
    pub at: Timestamp,
    /// Method of the request.
    pub method: String,
    /// Path, without the query.
    pub path: String,
    /// Raw query.
    pub query: String,
    /// Whether the request has a credential.
    pub authenticated: bool,
    /// Response status; `None` while the request is pending, and after a reset or hang.
    pub status: Option<u16>,
}

#[derive(Debug)]
struct FaultRule {
    method: Option<String>,
    path: Regex,
    skip: u32,
    remaining: u32,
    fault: FakeFault,
}

/// Injected faults and logged requests.
#[derive(Debug, Default)]
pub struct Faults {
    rules: Mutex<Vec<FaultRule>>,
    requests: Mutex<Vec<RequestRecord>>,
    lag_ms: AtomicI64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Faults {
    /// Injects `fault` into the next `times` requests with the method `method` (empty: any) and a path that matches `path`
    /// (a regular expression). The oldest matching rule applies, and a request gets at most one fault.
    pub fn next(&self, times: u32, method: &str, path: &str, fault: FakeFault) -> Result<(), regex::Error> {
        self.after(0, times, method, path, fault)
    }

    /// Same as [`Self::next`], after the first `skip` matching requests.
    pub fn after(&self, skip: u32, times: u32, method: &str, path: &str, fault: FakeFault) -> Result<(), regex::Error> {
        let method = (!method.is_empty()).then(|| method.to_ascii_uppercase());
        locked(&self.rules).push(FaultRule { method, path: Regex::new(path)?, skip, remaining: times, fault });
        Ok(())
    }

    /// Delays new comments in lists: comments newer than `by` exist but are missing in lists.
    pub fn lag(&self, by: Duration) {
        self.lag_ms.store(i64::try_from(by.as_millis()).unwrap_or(i64::MAX), Ordering::SeqCst);
    }

    /// Whether lists contain a comment written at a time.
    pub(super) fn is_listed(&self, written: Timestamp, now: Timestamp) -> bool {
        now.since(written) >= self.lag_ms.load(Ordering::SeqCst)
    }

    /// Removes all fault rules.
    pub fn clear(&self) {
        locked(&self.rules).clear();
    }

    /// Returns the number of faults that have not occurred yet.
    pub fn remaining(&self) -> u32 {
        locked(&self.rules).iter().map(|rule| rule.remaining).sum()
    }

    /// Returns all requests so far, oldest first.
    pub fn requests(&self) -> Vec<RequestRecord> {
        locked(&self.requests).clone()
    }

    /// Logs a request; returns its position in the log.
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

    pub(super) fn take(&self, method: &str, path: &str) -> Option<FakeFault> {
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

/// Switch that resets the connection of a request.
#[derive(Debug, Clone, Default)]
pub(super) struct CutSwitch(Arc<AtomicBool>);

impl CutSwitch {
    /// Stops writing and resets the connection.
    pub(super) fn now(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_cut(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
