//! Downloads from real servers on loopback: limits, redirects, credentials.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::*;
use crate::domain::model::image::ImageFormat;

const ID: &str = "0bec7adc-52c5-432f-bca7-c9a3186649b4";
/// An image of 800 x 600 pixels, as far as its header says.
const PNG: &[u8] =
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x03\x20\0\0\x02\x58\x08\x06\0\0\0 and so on, for more bytes than a header";
const TOKEN: &str = "token of-the-forge";

/// Answer of a server to each request.
#[derive(Clone)]
enum Answer {
    /// This head and body, then the end of the connection.
    Bytes(Vec<u8>),
    /// A gigabyte, without a length.
    Gigabyte,
    /// A byte a second.
    Slowly,
    /// Nothing.
    Never,
}

fn ok(body: &[u8]) -> Answer {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: {}\r\n\r\n", body.len());
    Answer::Bytes([head.as_bytes(), body].concat())
}

fn redirect(to: &str) -> Answer {
    Answer::Bytes(format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n").into_bytes())
}

/// Server on loopback; the heads of its requests are recorded.
struct Server {
    url: Url,
    seen: Arc<Mutex<Vec<String>>>,
    sent: Arc<Mutex<u64>>,
    _task: JoinSet<()>,
}

impl Server {
    async fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = Url::parse(&format!("http://{}/", listener.local_addr().expect("an address"))).expect("an address");
        let (seen, sent) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
        let mut task = JoinSet::new();
        let (heads, written) = (seen.clone(), sent.clone());
        task.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, heads, written) = (answer.clone(), heads.clone(), written.clone());
                open.spawn(async move { serve(stream, answer, &heads, &written).await });
            }
        });
        Self { url, seen, sent, _task: task }
    }

    fn address(&self) -> Url {
        self.url.join(&format!("attachments/{ID}")).expect("an address")
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("no panic").clone()
    }
}

async fn serve(mut stream: TcpStream, answer: Answer, heads: &Mutex<Vec<String>>, written: &Mutex<u64>) {
    let mut head = vec![0; 8192];
    let read = stream.read(&mut head).await.unwrap_or(0);
    heads.lock().expect("no panic").push(String::from_utf8_lossy(&head[..read]).into_owned());
    let mut write = async |bytes: &[u8]| {
        let done = stream.write_all(bytes).await.is_ok();
        *written.lock().expect("no panic") += bytes.len() as u64;
        done
    };
    match answer {
        Answer::Bytes(bytes) => drop(write(&bytes).await),
        Answer::Never => std::future::pending().await,
        Answer::Gigabyte => {
            write(b"HTTP/1.1 200 OK\r\n\r\n").await;
            write(PNG).await;
            let block = vec![0; 1 << 20];
            for _ in 0..1024 {
                if !write(&block).await {
                    return;
                }
            }
        }
        Answer::Slowly => {
            write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n").await;
            while write(b"\x89").await {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

fn limits() -> DownloadLimits {
    DownloadLimits {
        max_bytes: 5 << 20,
        too_large: "it is larger than 5 MiB".into(),
        max_pixels: 8_000,
        timeout: Duration::from_secs(20),
        hosts: Vec::new(),
    }
}

fn downloader(forge: &Server) -> Downloader {
    Downloader::new(AttachmentAddresses::Gitea(forge.url.clone())).expect("a downloader")
}

async fn fetched(forge: &Server, limits: &DownloadLimits) -> Result<FetchedImage, String> {
    let fetched = downloader(forge).image(&forge.address(), Some(&HeaderValue::from_static(TOKEN)), limits).await;
    fetched.map_err(|failure| failure.why)
}

/// Returns why an answer is not used as an image.
async fn refused(answer: Answer) -> String {
    fetched(&Server::start(answer).await, &limits()).await.expect_err("refused")
}

#[tokio::test]
async fn image_of_forge_is_fetched_with_its_credential() {
    let forge = Server::start(ok(PNG)).await;
    let image = fetched(&forge, &limits()).await.expect("an image");
    assert_eq!((image.header.format, image.header.width, image.bytes), (ImageFormat::Png, 800, PNG.to_vec()));
    let seen = forge.seen();
    assert!(seen.len() == 1 && seen[0].contains(&format!("authorization: {TOKEN}\r\n")), "{seen:?}");
}

/// See docs/research/threats.md#i12.
#[tokio::test]
async fn endless_stream_is_cut_at_the_limit() {
    let forge = Server::start(Answer::Gigabyte).await;
    assert_eq!(fetched(&forge, &limits()).await.expect_err("refused"), "it is larger than 5 MiB");
    // What lies in the buffers of two sockets is the most that was sent beyond the limit.
    let sent = *forge.sent.lock().expect("no panic");
    assert!(sent < 64 << 20, "{sent} bytes were sent");
    // A length above the limit is enough.
    let announced = Answer::Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n".to_vec());
    assert_eq!(refused(announced).await, "it is larger than 5 MiB");
    let small = DownloadLimits { max_bytes: PNG.len() as u64 - 1, too_large: "too large".into(), ..limits() };
    assert_eq!(fetched(&Server::start(ok(PNG)).await, &small).await.expect_err("refused"), "too large");
}

/// See docs/research/threats.md#i12.
#[tokio::test]
async fn content_decides_the_type() {
    let svg = b"<svg xmlns=\"http://www.w3.org/2000/svg\"><script>alert(1)</script></svg>";
    assert_eq!(refused(ok(svg)).await, "SVG is not supported; use PNG, JPEG, GIF or WebP");
    let padded = [&b"<?xml version=\"1.0\"?>"[..], &vec![b' '; 10_000]].concat();
    assert_eq!(refused(ok(&padded)).await, "SVG is not supported; use PNG, JPEG, GIF or WebP");
    assert_eq!(refused(ok(b"\x7fELF")).await, "its content is not a PNG, JPEG, GIF or WebP image");
    assert_eq!(refused(ok(b"")).await, "its content is not a PNG, JPEG, GIF or WebP image");
    assert_eq!(
        refused(ok(b"<!DOCTYPE html><title>Sign in</title>")).await,
        "the forge answered with a web page instead of an image"
    );
    let bomb = [&PNG[..16], &30_000_u32.to_be_bytes(), &30_000_u32.to_be_bytes(), &PNG[24..]].concat();
    assert_eq!(refused(ok(&bomb)).await, "it has 30000 x 30000 pixels, at most 8000 x 8000 are allowed");
}

/// See docs/research/threats.md#i6.
#[tokio::test]
async fn redirects_leave_the_forge_only_to_named_servers_and_without_credential() {
    assert_eq!(
        refused(redirect("http://169.254.169.254/latest/meta-data/")).await,
        "it leads to `169.254.169.254`, which is not known as a server of the forge; `images.hosts` allows it"
    );
    assert!(refused(redirect("file:///etc/passwd")).await.contains("not a plain web address"));
    assert!(refused(redirect("http://user:pw@127.0.0.1:1/")).await.contains("not a plain web address"));
    let storage = Server::start(ok(PNG)).await;
    let forge = Server::start(redirect(&format!("{}bucket/{ID}?signature=secret", storage.url))).await;
    let why = fetched(&forge, &limits()).await.expect_err("refused");
    assert!(why.contains("not known as a server of the forge") && !why.contains("secret"), "{why}");
    assert!(storage.seen().is_empty(), "another server is not asked");
    let host = storage.url.authority().to_owned();
    let named = DownloadLimits { hosts: vec![host], ..limits() };
    assert!(fetched(&forge, &named).await.is_ok());
    let seen = storage.seen().concat().to_ascii_lowercase();
    assert!(seen.contains("signature=secret") && !seen.contains("authorization"), "{seen}");
    // A redirect to itself ends.
    let circle = Server::start(redirect(&format!("/attachments/{ID}"))).await;
    assert_eq!(fetched(&circle, &limits()).await.expect_err("refused"), "the forge redirected it more than 5 times");
}

/// See docs/research/threats.md#i6.
#[tokio::test]
async fn names_with_private_addresses_are_not_connected_to() {
    let server = Server::start(ok(PNG)).await;
    let downloader =
        Downloader::new(AttachmentAddresses::GitHub(Url::parse("https://github.com").expect("an address")))
            .expect("a downloader");
    let port = server.url.port().expect("a port");
    let request = downloader.public.get(format!("http://localhost:{port}/"));
    let error = request.send().await.expect_err("refused");
    assert!(resolver::Refused::caused(&error), "{error:?}");
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn request_to_slow_or_silent_server_times_out() {
    for answer in [Answer::Slowly, Answer::Never] {
        let forge = Server::start(answer).await;
        let short = DownloadLimits { timeout: Duration::from_millis(300), ..limits() };
        assert_eq!(fetched(&forge, &short).await.expect_err("refused"), "it was not received within 0.3 s");
    }
}

#[tokio::test]
async fn forge_failures_are_reported() {
    let status = |status: &str| Answer::Bytes(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").into_bytes());
    assert_eq!(refused(status("404 Not Found")).await, "the forge answered 404 Not Found");
    let broken = Server::start(status("502 Bad Gateway")).await;
    assert_eq!(fetched(&broken, &limits()).await.expect_err("refused"), "the forge answered 502 Bad Gateway");
    assert_eq!(broken.seen().len(), 2, "an error of the server is retried once");
    let cut = [b"HTTP/1.1 200 OK\r\ncontent-length: 10000\r\n\r\n", PNG].concat();
    assert!(refused(Answer::Bytes(cut)).await.starts_with("`127.0.0.1` cannot be reached: "));
    let forge = Server::start(ok(PNG)).await;
    let (gone, loader) = (forge.address(), downloader(&forge));
    drop(forge);
    let failure = loader.image(&gone, None, &limits()).await.expect_err("nobody listens");
    assert!(failure.why.starts_with("`127.0.0.1` cannot be reached: "), "{failure:?}");
    assert!(failure.is_temporary);
}

#[tokio::test]
async fn only_failures_that_may_pass_are_temporary() {
    let head = |head: &str| Answer::Bytes(format!("HTTP/1.1 {head}\r\ncontent-length: 0\r\n\r\n").into_bytes());
    let is_temporary = async |answer: Answer| {
        let forge = Server::start(answer).await;
        let short = DownloadLimits { timeout: Duration::from_millis(500), ..limits() };
        let failure = downloader(&forge).image(&forge.address(), None, &short).await.expect_err("refused");
        failure.is_temporary
    };
    for answer in [head("403 Forbidden"), head("404 Not Found"), head("429 Slow down"), head("503 Busy"), Answer::Never]
    {
        assert!(is_temporary(answer).await);
    }
    for answer in [ok(b"<svg/>"), ok(b"text"), Answer::Gigabyte, redirect("http://169.254.169.254/"), redirect("/")] {
        assert!(!is_temporary(answer).await);
    }
}
