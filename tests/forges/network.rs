//! Parts of the network between a story's service and its server: a TCP proxy that can be cut, and a relay that records
//! deliveries.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// TCP proxy in front of a server; it stops on drop.
pub struct CutProxy {
    address: SocketAddr,
    cut: watch::Sender<bool>,
    _task: JoinSet<()>,
}

impl CutProxy {
    /// Starts a proxy for a server, given by its URL.
    pub async fn start(url: &str) -> Self {
        let target = url.split("//").nth(1).expect("a URL").trim_end_matches('/').to_owned();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let cut = watch::Sender::new(false);
        let (mut task, receiver) = (JoinSet::new(), cut.subscribe());
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                if !*receiver.borrow() {
                    connections.spawn(connection(client, target.clone(), receiver.clone()));
                }
            }
        });
        Self { address, cut, _task: task }
    }

    /// Address of the proxy.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends all connections, and closes new ones at once.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Lets connections through again.
    pub fn mend(&self) {
        self.cut.send_replace(false);
    }
}

async fn connection(mut client: TcpStream, target: String, mut cut: watch::Receiver<bool>) {
    let Ok(mut server) = TcpStream::connect(&target).await else { return };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        _ = cut.wait_for(|cut| *cut) => {}
    }
}

/// Delivery with its headers.
pub type RelayedDelivery = (HeaderMap, Bytes);

/// Receiver of webhooks that records each delivery and passes it on; it stops on drop.
pub struct Relay {
    address: SocketAddr,
    target: String,
    recorded: Arc<Mutex<Vec<RelayedDelivery>>>,
    _task: JoinSet<()>,
}

impl Relay {
    /// Starts a relay to a receiver of webhooks, given by its URL.
    pub async fn start(target: &str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let recorded: Arc<Mutex<Vec<RelayedDelivery>>> = Arc::default();
        let (kept, to) = (recorded.clone(), target.to_owned());
        let router = Router::new().fallback(move |headers: HeaderMap, body: Bytes| {
            let (kept, to) = (kept.clone(), to.clone());
            async move {
                kept.lock().expect("not poisoned").push((headers.clone(), body.clone()));
                StatusCode::from_u16(pass_on(&to, &headers, body).await).expect("a status")
            }
        });
        let mut task = JoinSet::new();
        task.spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Self { address, target: target.to_owned(), recorded, _task: task }
    }

    /// Address for the webhook.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Deliveries so far, oldest first.
    pub fn recorded(&self) -> Vec<RelayedDelivery> {
        self.recorded.lock().expect("not poisoned").clone()
    }

    /// Delivers once more, under new ids if `renamed` (as Gitea redelivers), else under the same (as GitHub does); returns
    /// the status.
    pub async fn redeliver(&self, delivery: &RelayedDelivery, renamed: bool) -> u16 {
        let (mut headers, body) = delivery.clone();
        let ids: Vec<_> = headers.keys().filter(|name| name.as_str().ends_with("-delivery")).cloned().collect();
        let fresh = uuid::Uuid::new_v4().to_string();
        for id in ids.into_iter().filter(|_| renamed) {
            headers.insert(id, fresh.parse().expect("a header"));
        }
        pass_on(&self.target, &headers, body).await
    }
}

async fn pass_on(to: &str, headers: &HeaderMap, body: Bytes) -> u16 {
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let mut headers = headers.clone();
    for name in ["host", "content-length", "transfer-encoding", "connection"] {
        headers.remove(name);
    }
    let sent = client.post(to).headers(headers).body(body).send().await;
    sent.map_or(502, |answer| answer.status().as_u16())
}
