//! Power loss: the system calls of the real binary are traced while deliveries arrive, and the disk is reconstructed as
//! each sync leaves it. Every delivery that was answered with 202 by then must be stored.

mod disk;
mod trace;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use fake_forge::Dialect;
use ralph_bot::forge::signature::sign;
use ralph_bot::store::{Store, inbox};
use rustix::process::Signal;
use secrecy::SecretString;

use self::disk::Disk;
use self::trace::SystemCall;
use crate::harness::on_one_forge;
use crate::harness::parts::setting;
use crate::harness::service::{Service, signal, stop, was_killed};
use crate::harness::{SECRET, Setup};

on_one_forge!(power_loss_at_any_sync_loses_no_delivery);

/// Number of concurrent deliveries in each life of the service.
const DELIVERIES: usize = 12;
const AT_ONCE: usize = 3;

fn body(id: &str) -> String {
    format!("{{\"nothing\":\"of interest\",\"id\":\"{id}\",\"filler\":\"{}\"}}", "what fills a page. ".repeat(300))
}

/// Sends deliveries with these ids and asserts that all are accepted.
async fn send(service: &Service, ids: &[String]) {
    let family = if service.world.setup.dialect == Dialect::Gitea { "X-Gitea" } else { "X-GitHub" };
    let (header, before) = match service.world.setup.dialect {
        Dialect::Gitea => ("X-Gitea-Signature", ""),
        Dialect::GitHub => ("X-Hub-Signature-256", "sha256="),
    };
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    for together in ids.chunks(AT_ONCE) {
        let requests = together.iter().map(async |id| {
            let digest = sign(&SecretString::from(SECRET.to_owned()), body(id).as_bytes());
            let request = client.post(format!("http://127.0.0.1:{}/webhooks/forge", service.port));
            let request = request.header("Content-Type", "application/json").body(body(id));
            let request = request.header(format!("{family}-Delivery"), id).header(format!("{family}-Event"), "odd");
            let answer = request.header(header, format!("{before}{digest}")).send().await.expect("an answer");
            assert_eq!(answer.status().as_u16(), 202);
        });
        futures::future::join_all(requests).await;
    }
}

/// Waits until the trace is complete: its last line reports how the process ended.
async fn written(service: &Service, log: &Path) -> String {
    let whole = async || {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        text.lines()
            .next()
            .and_then(|line| line.split(' ').next())
            .is_some_and(|first| text.lines().rev().any(|line| line.starts_with(first) && line.ends_with("+++")))
    };
    service.until("the log of strace", whole).await;
    std::fs::read_to_string(log).expect("it is there")
}

/// Traces of three lives: one that creates the database and is killed, one that recovers and stops gracefully, and one after
/// it. `None` if strace is missing.
async fn three_lives(service: &Service) -> Option<Vec<SystemCall>> {
    let mut calls = Vec::new();
    for life in 0..3 {
        let log = service.world.folder.path().join(format!("life-{life}.strace"));
        let mut child = service.spawn_traced(&log, &trace::OPTIONS, "ingest")?;
        service.until("the service to listen", async || service.listens().await).await;
        let ids: Vec<String> = (0..DELIVERIES).map(|n| format!("delivery-{life}-{n}")).collect();
        send(service, &ids).await;
        if life == 1 {
            assert!(stop(&mut child).await.success(), "{}", service.log());
        } else {
            signal(&child, Signal::KILL);
            let ended = tokio::time::timeout(Duration::from_secs(60), child.wait()).await.expect("it ends");
            assert!(was_killed(ended.expect("our child")));
        }
        calls.extend(trace::read(&written(service, &log).await));
    }
    Some(calls)
}

/// Records which deliveries were answered with 202, from the bytes of each connection.
#[derive(Default)]
struct DeliveryAnswers {
    asked: HashMap<String, String>,
    taken: HashSet<String>,
}

impl DeliveryAnswers {
    fn note(&mut self, call: &SystemCall) {
        match call {
            SystemCall::Received { on, bytes } => {
                let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
                if let Some((_, after)) = text.split_once("-delivery: ") {
                    self.asked.insert(on.clone(), after.split('\r').next().unwrap_or_default().to_owned());
                }
            }
            SystemCall::Sent { on, bytes } if bytes.starts_with(b"HTTP/1.1 202") => {
                self.taken.insert(self.asked.get(on).expect("what is answered was asked").clone());
            }
            _ => {}
        }
    }
}

/// Returns the deliveries that the store lacks when it is opened on the disk after power loss.
async fn missing(disk: &Disk, luck: Option<&mut fastrand::Rng>, taken: &HashSet<String>) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    disk.after_power_loss(folder.path(), luck);
    let path = folder.path().join("data/ralph.db");
    std::fs::create_dir_all(folder.path().join("data")).expect("the service makes it where it is missing");
    let store = Store::open(&path).unwrap_or_else(|error| panic!("{} deliveries: {error}", taken.len()));
    assert_eq!(store.integrity().await.expect("looked over"), Vec::<String>::new());
    let now = ralph_bot::clock::Clock::System.now();
    let due = store.read(move |c| inbox::waiting(c, &inbox::due(c, now, &[])?)).await.expect("deliveries");
    let whole = |waiting: &inbox::WaitingDelivery| {
        let id = &waiting.delivery.delivery;
        assert_eq!(waiting.delivery.body.unpack().expect("whole"), body(id).into_bytes(), "{id}");
        id.clone()
    };
    let there: HashSet<String> = due.iter().map(whole).collect();
    store.close().await;
    taken.difference(&there).cloned().collect()
}

/// Power fails at each sync: the disk has none or a random part of the unsynced data.
/// `RALPH_TEST_POWER_SEEDS` sets the number of random parts for each sync.
/// See docs/research/faults.md#d3.
async fn power_loss_at_any_sync_loses_no_delivery(dialect: Dialect) {
    let service = Service::new(Setup::new(dialect), false).await;
    let Some(calls) = three_lives(&service).await else { return };
    let root = service.world.folder.path();
    let seeds: u64 = setting("RALPH_TEST_POWER_SEEDS").map_or(1, |text| text.parse().expect("a number"));
    let (mut disk, mut answers, mut syncs) = (Disk::new(root), DeliveryAnswers::default(), 0);
    for call in &calls {
        let is_sync = matches!(call, SystemCall::Sync { path } if path.starts_with(root));
        if is_sync {
            // The moment before: all answers since the last sync are out, and nothing of this one is on the disk.
            assert_eq!(missing(&disk, None, &answers.taken).await, Vec::<String>::new(), "before sync {syncs}");
            for seed in 0..seeds {
                let mut luck = fastrand::Rng::with_seed(seed << 32 | syncs);
                let lost = missing(&disk, Some(&mut luck), &answers.taken).await;
                assert_eq!(lost, Vec::<String>::new(), "before sync {syncs}, with seed {seed}");
            }
            syncs += 1;
        }
        answers.note(call);
        disk.apply(call);
    }
    assert_eq!(missing(&disk, None, &answers.taken).await, Vec::<String>::new(), "at the end");
    assert_eq!(answers.taken.len(), 3 * DELIVERIES, "every answer was seen");
    println!("{syncs} syncs, {} states of the disk", syncs * (1 + seeds) + 1);
    assert!(syncs > 3 * (DELIVERIES / AT_ONCE) as u64, "{syncs} syncs");

    // On a disk that syncs nothing it is seen that deliveries are lost.
    let mut disk = Disk::new(root);
    disk.lies = true;
    calls.iter().for_each(|call| disk.apply(call));
    assert_eq!(missing(&disk, None, &answers.taken).await.len(), 3 * DELIVERIES);
}
