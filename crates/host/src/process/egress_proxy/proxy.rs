//! Forwards connections to allowed hosts: `CONNECT` for TLS, and plain HTTP by absolute address.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;
use url::{Position, Url};

use super::RefusedHosts;
use crate::domain::trust::address::not_public;
use crate::domain::trust::egress::{Admission, Hosts, Target};

/// Maximum size of a request's head, in bytes.
const MAX_HEAD: usize = 16 * 1024;
/// Maximum number of header lines of a request.
const MAX_HEADERS: usize = 100;
/// Time limit for receiving a request, and for resolving and connecting to a host.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit and maximum number of bytes for reading the remaining bytes of a refused request.
const LINGER: Duration = Duration::from_secs(2);
const MAX_UNREAD: u64 = 1024 * 1024;
/// Default port of HTTP.
const HTTP: u16 = 80;

/// Destination of the connections to a port.
#[derive(Debug, Clone)]
pub(super) enum ProxyRoute {
    /// Host that the request names.
    Proxy,
    /// Always this server.
    Direct(Target),
}

/// Forwards connections to allowed hosts.
pub(super) struct Proxy {
    hosts: Hosts,
    refused: RefusedHosts,
}

/// Refusal of a request, with its status and reason.
#[derive(Debug)]
struct ProxyRefusal {
    status: &'static str,
    why: String,
}

impl ProxyRefusal {
    fn bad(why: &str) -> Self {
        Self { status: "400 Bad Request", why: why.to_owned() }
    }

    fn forbidden(target: &Target, why: &str) -> Self {
        let why = format!("{target} is not allowed: {why} (`sandbox.network` in the operator's file)");
        Self { status: "403 Forbidden", why }
    }

    fn unreachable(target: &Target, why: &str) -> Self {
        Self { status: "502 Bad Gateway", why: format!("{target} cannot be reached: {why}") }
    }

    fn answer(&self) -> Vec<u8> {
        let (status, text) = (self.status, format!("ralph-bot: {}\n", self.why));
        let length = text.len();
        format!("HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}")
            .into_bytes()
    }
}

/// Parsed request: its target, and the bytes to send to the target first.
struct ProxyRequest {
    target: Target,
    is_tunnel: bool,
    first: Vec<u8>,
}

impl Proxy {
    pub(super) fn new(hosts: Hosts, refused: RefusedHosts) -> Self {
        Self { hosts, refused }
    }

    /// Serves one connection to its end.
    pub(super) async fn serve(&self, mut client: TcpStream, route: &ProxyRoute) {
        let begun = match route {
            ProxyRoute::Direct(target) => self.reach(target).await.map(|server| (server, Vec::new(), Vec::new())),
            ProxyRoute::Proxy => self.begin(&mut client).await,
        };
        match (begun, route) {
            (Ok((mut server, to_client, to_server)), _) => {
                let begun = async {
                    client.write_all(&to_client).await?;
                    server.write_all(&to_server).await
                };
                if begun.await.is_ok() {
                    // Either side can disconnect at any time; the error is of no use.
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                }
            }
            (Err(refused), ProxyRoute::Proxy) => {
                let _ = client.write_all(&refused.answer()).await;
                let _ = client.shutdown().await;
                // Closing a socket with unread bytes would discard the answer.
                let (mut rest, mut nowhere) = (client.take(MAX_UNREAD), tokio::io::sink());
                let _ = tokio::time::timeout(LINGER, tokio::io::copy(&mut rest, &mut nowhere)).await;
            }
            (Err(_), ProxyRoute::Direct(_)) => {}
        }
    }

    /// Reads the request and connects to its target. Returns the connection, and the first bytes for the client and
    /// for the server.
    async fn begin(&self, client: &mut TcpStream) -> Result<(TcpStream, Vec<u8>, Vec<u8>), ProxyRefusal> {
        let asked = tokio::time::timeout(TIMEOUT, asked(client)).await;
        let ProxyRequest { target, is_tunnel, first } =
            asked.unwrap_or_else(|_| Err(ProxyRefusal::bad("no request was received in time")))?;
        let server = self.reach(&target).await?;
        let to_client = if is_tunnel { b"HTTP/1.1 200 Connection established\r\n\r\n".to_vec() } else { Vec::new() };
        Ok((server, to_client, first))
    }

    /// Connects to a target if it is allowed. Uses the same addresses that were checked.
    async fn reach(&self, target: &Target) -> Result<TcpStream, ProxyRefusal> {
        let admission = self.hosts.admits(target);
        if admission == Admission::Refused {
            self.log_refused(target, false);
            return Err(ProxyRefusal::forbidden(target, "it is not on the list"));
        }
        let connected = tokio::time::timeout(TIMEOUT, async {
            let found = tokio::net::lookup_host((target.host.as_str(), target.port)).await;
            let found: Vec<SocketAddr> =
                found.map_err(|error| ProxyRefusal::unreachable(target, &error.to_string()))?.collect();
            let may = |at: &SocketAddr| admission == Admission::Anywhere || not_public(at.ip()).is_none();
            let addresses: Vec<SocketAddr> = found.into_iter().filter(may).collect();
            if addresses.is_empty() {
                self.log_refused(target, true);
                let why = "its address is not public, and it is listed without a port";
                return Err(ProxyRefusal::forbidden(target, why));
            }
            let connected = TcpStream::connect(addresses.as_slice()).await;
            connected.map_err(|error| ProxyRefusal::unreachable(target, &error.to_string()))
        });
        connected.await.unwrap_or_else(|_| Err(ProxyRefusal::unreachable(target, "it does not answer")))
    }

    /// Logs a refused target the first time.
    fn log_refused(&self, target: &Target, not_public: bool) {
        if self.refused.add(target, not_public) {
            tracing::warn!(%target, not_public, "a connection from a sandbox to a host that is not in `sandbox.network` was refused");
        }
    }
}

/// Reads and parses the head of a request.
async fn asked(client: &mut TcpStream) -> Result<ProxyRequest, ProxyRefusal> {
    let mut read = Vec::with_capacity(1024);
    loop {
        if client.read_buf(&mut read).await.unwrap_or(0) == 0 {
            return Err(ProxyRefusal::bad("the request is incomplete"));
        }
        if let Some(asked) = parse(&read)? {
            return Ok(asked);
        }
        if read.len() > MAX_HEAD {
            return Err(ProxyRefusal::bad("the head of the request is too long"));
        }
    }
}

/// Parses a request; `None` if its head is incomplete.
fn parse(read: &[u8]) -> Result<Option<ProxyRequest>, ProxyRefusal> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(read) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(ProxyRefusal::bad(&format!("not an HTTP/1.1 request: {error}"))),
    };
    let (method, address, rest) =
        (request.method.unwrap_or_default(), request.path.unwrap_or_default(), &read[length..]);
    if method == "CONNECT" {
        let target =
            Target::parse(address, None).ok_or_else(|| ProxyRefusal::bad("CONNECT needs a host and a port"))?;
        return Ok(Some(ProxyRequest { target, is_tunnel: true, first: rest.to_vec() }));
    }
    let url = Url::parse(address).ok().filter(|url| url.scheme() == "http");
    let url = url.ok_or_else(|| ProxyRefusal::bad("this is a proxy: use an absolute http address, or CONNECT"))?;
    let target = Target::parse(&url[Position::BeforeHost..Position::AfterPort], Some(HTTP));
    let target = target.ok_or_else(|| ProxyRefusal::bad("the address has no host"))?;
    // One request per connection: the next one may name another host.
    let mut first =
        format!("{method} {} HTTP/1.1\r\nConnection: close\r\n", &url[Position::BeforePath..Position::AfterQuery]);
    first.push_str(&format!("Host: {}\r\n", &url[Position::BeforeHost..Position::AfterPort]));
    let mut first = first.into_bytes();
    let ours = |name: &str| {
        name.eq_ignore_ascii_case("connection")
            || name.eq_ignore_ascii_case("keep-alive")
            || name.eq_ignore_ascii_case("host")
            || name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("proxy-"))
    };
    for header in request.headers.iter().filter(|header| !ours(header.name)) {
        first.extend([header.name.as_bytes(), b": ", header.value, b"\r\n"].concat());
    }
    first.extend_from_slice(b"\r\n");
    first.extend_from_slice(rest);
    Ok(Some(ProxyRequest { target, is_tunnel: false, first }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(request: &str) -> Option<(String, bool, String)> {
        let asked = parse(request.as_bytes()).ok().flatten()?;
        Some((asked.target.to_string(), asked.is_tunnel, String::from_utf8(asked.first).expect("text")))
    }

    fn refused(request: &str) -> String {
        parse(request.as_bytes()).err().map_or_else(String::new, |refused| refused.why)
    }

    #[test]
    fn connect_and_plain_requests_are_parsed() {
        let tunnel = read("CONNECT Example.org:443 HTTP/1.1\r\nHost: x\r\n\r\nhello");
        assert_eq!(tunnel, Some(("example.org:443".into(), true, "hello".into())));
        let plain = "POST http://example.org/a?b=c HTTP/1.1\r\nHost: evil.example\r\nProxy-Authorization: x\r\n\
            Connection: keep-alive\r\nContent-Length: 2\r\n\r\nhi";
        let sent = "POST /a?b=c HTTP/1.1\r\nConnection: close\r\nHost: example.org\r\nContent-Length: 2\r\n\r\nhi";
        assert_eq!(read(plain), Some(("example.org:80".into(), false, sent.into())));
        assert_eq!(
            read("GET http://[::1]:8080/ HTTP/1.1\r\n\r\n").map(|(target, ..)| target),
            Some("[::1]:8080".into())
        );
        assert!(matches!(parse(b"GET http://example.org/ HTTP/1.1\r\nHo"), Ok(None)), "not all there yet");
    }

    #[test]
    fn invalid_proxy_requests_are_refused_with_reason() {
        for (request, why) in [
            ("GET / HTTP/1.1\r\n\r\n", "this is a proxy"),
            ("GET https://example.org/ HTTP/1.1\r\n\r\n", "this is a proxy"),
            ("CONNECT example.org HTTP/1.1\r\n\r\n", "needs a host and a port"),
            ("\x16\x03\x01 \r\n\r\n", "not an HTTP/1.1 request"),
        ] {
            assert!(refused(request).contains(why), "{request}: {}", refused(request));
        }
    }

    /// The list is checked for the actual server in any notation, and that server gets the same name.
    /// See docs/research/threats.md#s5.
    #[test]
    fn disguised_addresses_are_parsed_as_their_real_host() {
        for (address, target) in [
            ("2130706433:443", "127.0.0.1:443"),
            ("0177.0.0.1:443", "127.0.0.1:443"),
            ("127.1:443", "127.0.0.1:443"),
            ("[::ffff:7f00:1]:443", "127.0.0.1:443"),
            ("example.org.:443", "example.org:443"),
        ] {
            let read = read(&format!("CONNECT {address} HTTP/1.1\r\n\r\n")).map(|(found, ..)| found);
            assert_eq!(read.as_deref(), Some(target), "{address}");
        }
        for address in [
            "user@example.org:443",
            "example.org:443:80",
            "[fe80::1%25lo]:443",
            "example.org..:443",
            "a b:443",
            "/:443",
        ] {
            assert!(read(&format!("CONNECT {address} HTTP/1.1\r\n\r\n")).is_none(), "{address}");
        }
        for (address, server) in [
            ("http://example.org@evil.example/", "evil.example"),
            ("http://example.org:80@evil.example/", "evil.example"),
            ("http://evil.example\\@example.org/", "evil.example"),
            ("http://evil.example#@example.org/", "evil.example"),
            ("http://evil.example?@example.org/", "evil.example"),
            ("http://ex%61mple.org/", "example.org"),
            ("http://0x7f000001/", "127.0.0.1"),
        ] {
            let (target, _, sent) = read(&format!("GET {address} HTTP/1.1\r\nHost: other\r\n\r\n")).expect(address);
            let host = format!("Host: {server}\r\n");
            assert!(
                target == format!("{server}:80") && sent.contains(&host) && !sent.contains("other"),
                "{address}: {sent}"
            );
        }
    }

    /// Names that resolve to local addresses are refused, even if the name is allowed.
    /// See docs/research/threats.md#s5, docs/research/threats.md#s7.
    #[tokio::test]
    async fn allowed_names_reach_public_addresses_only() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let target = |host: &str, port| Target { host: host.to_owned(), port };
        let proxy = |entries: &[&str]| Proxy::new(Hosts::parse(entries).expect("hosts"), RefusedHosts::default());
        let allowed = format!("localhost:{port}");
        assert!(proxy(&[&allowed]).reach(&target("localhost", port)).await.is_ok());
        for (entries, target, why) in [
            (["localhost"], target("localhost", 443), "not public"),
            (["127.0.0.1"], target("127.0.0.1", 80), "not public"),
            (["localhost"], target("localhost", port), "not on the list"),
            (["example.org"], target("169.254.169.254", 80), "not on the list"),
        ] {
            let proxy = proxy(&entries);
            let refused = proxy.reach(&target).await.map(drop).expect_err("refused");
            assert!(refused.why.contains(why) && refused.status.starts_with("403"), "{}", refused.why);
            assert_eq!(proxy.refused.names(), [target.to_string()]);
            assert_eq!(proxy.refused.not_public().is_empty(), why == "not on the list");
        }
    }
}
