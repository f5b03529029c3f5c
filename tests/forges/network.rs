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
use url::Url;

use crate::harness::parts::setting;

/// TCP proxy in front of a server; it stops on drop.
pub struct CutProxy {
    address: SocketAddr,
    /// Path that the server is at; empty at the root.
    path: String,
    cut: watch::Sender<bool>,
    _task: JoinSet<()>,
}

impl CutProxy {
    /// Starts a proxy for a server, given by its `http` URL.
    pub async fn start(url: &str) -> Self {
        let (target, path) = target_and_path(url);
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
        Self { address, path, cut, _task: task }
    }

    /// Address of the server behind the proxy, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.address, self.path)
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

/// Host with port, and path without a trailing slash, of a URL.
fn target_and_path(url: &str) -> (String, String) {
    let url = Url::parse(url).expect("a URL");
    let port = url.port_or_known_default().expect("a port");
    let target = format!("{}:{port}", url.host_str().expect("a host"));
    (target, url.path().trim_end_matches('/').to_owned())
}

#[test]
fn proxied_request_keeps_port_and_path() {
    for (url, target, path) in [
        ("http://127.0.0.1:3000", "127.0.0.1:3000", ""),
        ("http://git.test", "git.test:80", ""),
        ("http://git.test/forge/", "git.test:80", "/forge"),
        ("http://[::1]:3000/a/b", "[::1]:3000", "/a/b"),
    ] {
        assert_eq!(target_and_path(url), (target.to_owned(), path.to_owned()), "{url}");
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

/// Host name by which a real server reaches webhooks of this machine; receivers then listen on all addresses.
pub fn hook_host() -> Option<String> {
    setting("RALPH_TEST_HOOK_HOST").filter(|host| !host.is_empty())
}

/// Listens for webhooks on a free port; returns also the address for senders, without a path.
async fn listen(host: Option<&str>) -> (TcpListener, String) {
    let interface = if host.is_some() { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
    let listener = TcpListener::bind((interface, 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    (listener, format!("http://{}:{port}", host.unwrap_or("127.0.0.1")))
}

/// Receiver of webhooks that records each delivery and passes it on; it stops on drop.
pub struct Relay {
    url: String,
    target: String,
    recorded: Arc<Mutex<Vec<RelayedDelivery>>>,
    _task: JoinSet<()>,
}

impl Relay {
    /// Starts a relay to a receiver of webhooks, given by its URL. `host` is the name by which the server reaches it; `None` for
    /// a server on this machine.
    pub async fn start(target: &str, host: Option<&str>) -> Self {
        let (listener, url) = listen(host).await;
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
        Self { url, target: target.to_owned(), recorded, _task: task }
    }

    /// Address for the webhook.
    pub fn url(&self) -> String {
        format!("{}/", self.url)
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
