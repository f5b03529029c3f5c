//! Tests of the adapters with servers that violate HTTP timing.

mod fake_forge;

use std::future::Future;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

use super::gitea::{Gitea, GiteaSettings};
use super::github::{GitHub, GitHubAuth, GitHubSettings};
use super::http::{RateSettings, Timeouts};
use super::*;
use crate::clock::Clock;
use crate::domain::model::ids::RepoId;
use crate::domain::trust::outbound::Outbound;

/// Time between two bytes of a slow server, less than the idle timeout.
const DRIP: Duration = Duration::from_millis(20);

fn adapters(address: &Url) -> Vec<Box<dyn Forge>> {
    let timeouts = Timeouts {
        connect: Duration::from_secs(5),
        idle: Duration::from_millis(400),
        total: Duration::from_millis(900),
    };
    let rates =
        RateSettings { mutation_interval_ms: Some(0), reserve: 0, attempts: 1, timeouts, ..RateSettings::default() };
    let (name, token) = (ForgeName::new("slow"), SecretString::from("s3cret-t0ken"));
    let gitea = GiteaSettings { name: name.clone(), url: address.clone(), token: token.clone(), own: None, rates };
    let github = GitHubSettings {
        name,
        api_url: address.clone(),
        web_url: address.clone(),
        auth: GitHubAuth::Token(token),
        rates,
    };
    vec![
        Box::new(Gitea::new(gitea, Clock::System).expect("a client")),
        Box::new(GitHub::new(github, Clock::System).expect("a client")),
    ]
}

/// Calls both adapters with `serve` as the server, and checks the errors.
async fn calls<F: Future<Output = std::io::Result<()>>>(serve: impl Fn(TcpStream) -> F) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = Url::parse(&format!("http://{}/", listener.local_addr().expect("an address"))).expect("an address");
    let serving = async {
        let mut open = futures::stream::FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => open.push(serve(accepted.expect("a connection").0)),
                Some(_) = futures::StreamExt::next(&mut open) => {}
            }
        }
    };
    let calling = async {
        let repo = RepoRef { forge: ForgeName::new("slow"), id: RepoId(7), owner: "acme".into(), name: "app".into() };
        for forge in adapters(&address) {
            let written = forge.create_comment(&repo, Number(1), &Outbound::of_test("x")).await.expect_err("no answer");
            let read = forge.issue(&repo, Number(1)).await.expect_err("no answer");
            for (failure, ambiguous) in [(written, true), (read, false)] {
                let expected = ForgeErrorKind::Transient { after_ms: None, ambiguous };
                assert_eq!(failure.kind, expected, "{failure}");
                assert!(!failure.to_string().contains("s3cret"), "{failure}");
            }
        }
    };
    tokio::select! {
        () = serving => {}
        done = tokio::time::timeout(Duration::from_secs(60), calling) => done.expect("the calls end by themselves"),
    }
}

/// A server that receives the call and never answers may have executed it.
/// See docs/research/faults.md#f2.
#[tokio::test]
async fn request_without_response_times_out() {
    calls(|mut stream| async move {
        let mut request = [0; 4096];
        while stream.read(&mut request).await? > 0 {}
        Ok(())
    })
    .await;
}

/// A server that sends single bytes exceeds the total timeout, but never the idle timeout.
/// See docs/research/faults.md#f2.
#[tokio::test]
async fn slow_response_times_out() {
    for head in ["", "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n"] {
        calls(|mut stream| async move {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await?;
            stream.write_all(head.as_bytes()).await?;
            for byte in b"HTTP/1.1 200 OK\r\nx-slow: ".iter().chain(std::iter::repeat(&b' ')) {
                stream.write_all(&[*byte]).await?;
                tokio::time::sleep(DRIP).await;
            }
            Ok(())
        })
        .await;
    }
}

/// The connection is reset during the response.
/// See docs/research/faults.md#f2.
#[tokio::test]
async fn reset_during_response_is_ambiguous() {
    calls(|mut stream| async move {
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await?;
        stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 100\r\n\r\n{\"id\":").await?;
        stream.set_zero_linger()
    })
    .await;
}
