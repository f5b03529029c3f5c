//! Webhook deliveries, signed and sent in sequence. Tests can drop, duplicate and reorder them.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use tokio::sync::{Notify, watch};

use ralph_types::clock::Clock;
use ralph_types::ids::Timestamp;

/// Time limit of the receiver (Gitea's default; GitHub's is 10 s).
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Queued delivery.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// Id of the webhook.
    pub hook: i64,
    /// Address of the delivery.
    pub url: String,
    /// Key of the signature; may be empty.
    pub secret: String,
    /// Event header (`issues`) and exact type (`issue_label`).
    pub event: (String, String),
    /// Body of the delivery.
    pub body: String,
    /// Id of a redelivery, which is unchanged on GitHub; `None` for a new id.
    pub id: Option<String>,
}

/// Delivery attempt.
#[derive(Debug, Clone)]
pub struct FakeDelivery {
    /// Id in the delivery's headers; on Gitea, each attempt has a new id.
    pub id: String,
    /// Time according to the forge's clock.
    pub at: Timestamp,
    /// Content of the delivery.
    pub sent: Outgoing,
    /// Response status; `None` if the delivery was dropped or got no response.
    pub status: Option<u16>,
}

#[derive(Debug, Default)]
struct DeliveryControls {
    queue: VecDeque<Outgoing>,
    held: Vec<Outgoing>,
    holding: bool,
    drop_next: u32,
    duplicate_next: (u32, u32),
    log: Vec<FakeDelivery>,
}

/// Queue of deliveries, with its controls and log.
#[derive(Debug)]
pub struct Deliveries {
    dialect: super::Dialect,
    clock: Clock,
    knobs: Mutex<DeliveryControls>,
    wake: Notify,
    pending: watch::Sender<usize>,
}

impl Deliveries {
    pub(super) fn new(dialect: super::Dialect, clock: Clock) -> Self {
        let pending = watch::Sender::new(0);
        Self { dialect, clock, knobs: Mutex::default(), wake: Notify::new(), pending }
    }

    fn knobs(&self) -> MutexGuard<'_, DeliveryControls> {
        self.knobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the next `count` deliveries.
    pub fn drop_next(&self, count: u32) {
        self.knobs().drop_next = count;
    }

    /// Sends each of the next `count` deliveries `times` times, with different ids.
    pub fn duplicate_next(&self, count: u32, times: u32) {
        self.knobs().duplicate_next = (count, times);
    }

    /// Holds deliveries until [`Self::release`].
    pub fn hold(&self) {
        self.knobs().holding = true;
    }

    /// Sends the held deliveries in the order produced by `reorder`, and stops holding deliveries.
    pub fn release(&self, reorder: impl FnOnce(&mut Vec<Outgoing>)) {
        let mut knobs = self.knobs();
        knobs.holding = false;
        let mut held = std::mem::take(&mut knobs.held);
        reorder(&mut held);
        self.queue(&mut knobs, held);
    }

    /// Sends a past delivery again.
    pub fn redeliver(&self, past: &FakeDelivery) {
        let id = (self.dialect == super::Dialect::GitHub).then(|| past.id.clone());
        self.queue(&mut self.knobs(), vec![Outgoing { id, ..past.sent.clone() }]);
    }

    /// Returns all delivery attempts, oldest first.
    pub fn log(&self) -> Vec<FakeDelivery> {
        self.knobs().log.clone()
    }

    /// Waits until the queue is empty; held deliveries do not count.
    pub async fn flush(&self) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.pending.subscribe().wait_for(|pending| *pending == 0).await;
    }

    pub(super) fn send(&self, outgoing: Outgoing) {
        let mut knobs = self.knobs();
        if knobs.holding {
            knobs.held.push(outgoing);
            return;
        }
        self.queue(&mut knobs, vec![outgoing]);
    }

    fn queue(&self, knobs: &mut DeliveryControls, outgoing: Vec<Outgoing>) {
        for one in outgoing {
            let mut copies = 1;
            if knobs.duplicate_next.0 > 0 {
                knobs.duplicate_next.0 -= 1;
                copies = knobs.duplicate_next.1 as usize;
            }
            self.pending.send_modify(|pending| *pending += copies);
            knobs.queue.extend(std::iter::repeat_n(one, copies));
        }
        self.wake.notify_one();
    }

    /// Sends queued deliveries; never returns.
    pub(super) async fn run(&self, client: &reqwest::Client) {
        loop {
            let next = self.knobs().queue.pop_front();
            match next {
                Some(outgoing) => {
                    self.deliver(client, outgoing).await;
                    self.pending.send_modify(|pending| *pending -= 1);
                }
                None => self.wake.notified().await,
            }
        }
    }

    async fn deliver(&self, client: &reqwest::Client, sent: Outgoing) {
        let (id, lost) = {
            let mut knobs = self.knobs();
            let lost = knobs.drop_next > 0;
            knobs.drop_next = knobs.drop_next.saturating_sub(1);
            (sent.id.clone().unwrap_or_else(|| uuid::Uuid::now_v7().to_string()), lost)
        };
        let at = self.clock.now();
        let mut status = None;
        if !lost {
            let mut request = client.post(&sent.url).timeout(DELIVERY_TIMEOUT).body(sent.body.clone());
            for (name, value) in self.headers(&sent, &id) {
                request = request.header(name, value);
            }
            status = request.send().await.ok().map(|answer| answer.status().as_u16());
        }
        self.knobs().log.push(FakeDelivery { id, at, sent, status });
    }

    fn headers(&self, sent: &Outgoing, id: &str) -> Vec<(String, String)> {
        let digest = signature(&sent.secret, &sent.body);
        let mut headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        let mut add = |name: &str, value: &str| headers.push((name.to_owned(), value.to_owned()));
        match self.dialect {
            super::Dialect::Gitea => {
                add("User-Agent", "Go-http-client/1.1");
                for family in ["X-Gitea", "X-Gogs", "X-GitHub"] {
                    add(&format!("{family}-Delivery"), id);
                    add(&format!("{family}-Event"), &sent.event.0);
                    add(&format!("{family}-Event-Type"), &sent.event.1);
                }
                add("X-Gitea-Signature", &digest);
                add("X-Gogs-Signature", &digest);
                add("X-Gitea-Hook-Installation-Target-Type", "repository");
                add("X-GitHub-Hook-Installation-Target-Type", "repository");
                add("X-Hub-Signature-256", &format!("sha256={digest}"));
            }
            super::Dialect::GitHub => {
                add("X-GitHub-Delivery", id);
                add("X-GitHub-Event", &sent.event.0);
                add("X-GitHub-Hook-ID", &sent.hook.to_string());
                add("User-Agent", "GitHub-Hookshot/fake");
                if !sent.secret.is_empty() {
                    add("X-Hub-Signature-256", &format!("sha256={digest}"));
                }
            }
        }
        headers
    }
}

/// Returns the HMAC-SHA256 in hexadecimal; empty without a secret, like Gitea.
fn signature(secret: &str, body: &str) -> String {
    if secret.is_empty() {
        return String::new();
    }
    let Ok(mut mac) = Hmac::<sha2::Sha256>::new_from_slice(secret.as_bytes()) else { return String::new() };
    mac.update(body.as_bytes());
    data_encoding::HEXLOWER.encode(&mac.finalize().into_bytes())
}
