//! Egress proxy for a sandbox without a network. It listens on the sandbox's loopback and connects to allowed hosts
//! only.
//!
//! [`sandbox_exec`] creates the listening sockets inside the sandbox, passes them to the service over an inherited
//! socket pair, and then executes the program. The service accepts and serves their connections outside, so no process
//! inside can change the rules, and names are not resolved inside. An allowed server on this machine's loopback also
//! gets its own port on the sandbox's loopback, for programs that use no proxy for local addresses.

mod proxy;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use rustix::process::{Resource, setrlimit};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::proxy::{Proxy, ProxyRoute};
use super::shares;
use crate::domain::trust::egress::{Hosts, Target};

/// Number of the descriptor over which the sockets are passed to the service.
pub(super) const PROXY_FD: RawFd = 64;
/// Port of the proxy on the sandbox's loopback.
pub(super) const PROXY_PORT: u16 = 3128;
/// Maximum number of sockets that are passed.
const MAX_SOCKETS: usize = 16;
/// Time limit for building a sandbox.
const SETUP_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of concurrent connections per port; further ones wait.
const MAX_CONNECTIONS: usize = 256;

/// Maximum number of refused servers that are recorded per run.
const MAX_REFUSED: usize = 50;

/// Settings of a sandbox's egress proxy.
#[derive(Debug, Clone)]
pub struct EgressSettings {
    /// Allowed hosts.
    pub hosts: Hosts,
    /// Absolute path of this program, which opens the proxy's port inside the sandbox (see [`sandbox_exec`]).
    pub helper: PathBuf,
    /// Servers to which connections were refused.
    pub refused: RefusedHosts,
}

/// Servers to which a sandbox was refused connections, up to a maximum number. Each has a flag: whether it was refused because its
/// address is not public. Clones share the list.
#[derive(Debug, Clone, Default)]
pub struct RefusedHosts(Arc<Mutex<BTreeMap<Target, bool>>>);

impl RefusedHosts {
    /// Adds a server; returns `true` if it is new and the maximum was not reached.
    fn add(&self, target: &Target, not_public: bool) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.len() < MAX_REFUSED && known.insert(target.clone(), not_public).is_none()
    }

    /// Returns the servers as `host:port`.
    pub fn names(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).keys().map(Target::to_string).collect()
    }

    /// Returns the listed servers whose addresses are not public, as `host:port`.
    pub fn not_public(&self) -> Vec<String> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().filter(|(_, not_public)| **not_public).map(|(target, _)| target.to_string()).collect()
    }
}

/// Way in which the service receives a sandbox's connections.
pub(super) enum ProxyEntrance {
    /// Over listening sockets that are passed from inside the sandbox through this socket.
    Passed(UnixStream),
    /// At this listener on the machine's loopback, for a sandbox that shares the machine's network.
    Here(tokio::net::TcpListener),
}

/// Listens on the machine's loopback for a sandbox that shares the machine's network; also returns the port.
pub(super) fn listen_here() -> io::Result<(ProxyEntrance, u16)> {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = socket.local_addr()?.port();
    socket.set_nonblocking(true)?;
    Ok((ProxyEntrance::Here(tokio::net::TcpListener::from_std(socket)?), port))
}

/// Returns the ports of the allowed servers on this machine's loopback.
pub(super) fn ports_here(egress: &EgressSettings) -> impl Iterator<Item = u16> {
    egress.hosts.on_loopback().into_iter().map(|target| target.port)
}

/// Creates the socket pair over which sockets are passed: the service's end and the program's end.
pub(super) fn pair() -> io::Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    Ok((UnixStream::from_std(ours)?, rustix::io::fcntl_dupfd_cloexec(&theirs, PROXY_FD)?))
}

/// Returns the command line that precedes the program in the sandbox: this program with [`sandbox_exec`].
pub(super) fn before_program(egress: &EgressSettings) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![egress.helper.clone().into(), "sandbox-exec".into()];
    for port in routes(egress).into_iter().map(|(port, _)| port) {
        words.extend(["--port".into(), port.to_string().into()]);
    }
    words.push("--".into());
    words
}

/// Returns the environment variables that make programs use the proxy.
pub(super) fn environment(port: u16) -> impl Iterator<Item = (&'static str, String)> {
    let proxy = format!("http://127.0.0.1:{port}");
    let names = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];
    let own_machine = ["NO_PROXY", "no_proxy"].map(|name| (name, "localhost,127.0.0.1,::1".to_owned()));
    let for_node = ("NODE_USE_ENV_PROXY", "1".to_owned());
    names.into_iter().map(move |name| (name, proxy.clone())).chain(own_machine).chain([for_node])
}

/// Returns the ports on the sandbox's loopback, each with its destination.
fn routes(egress: &EgressSettings) -> Vec<(u16, ProxyRoute)> {
    let straight = egress.hosts.on_loopback().into_iter().filter(|target| target.port != PROXY_PORT);
    let straight = straight.map(|target| (target.port, ProxyRoute::Direct(target)));
    [(PROXY_PORT, ProxyRoute::Proxy)].into_iter().chain(straight).take(MAX_SOCKETS).collect()
}

/// Listens on these ports of the sandbox's loopback, passes the sockets to the service, and executes the program.
/// Called inside a sandbox; returns only on an error.
pub fn sandbox_exec(ports: &[u16], program: &OsStr, arguments: &[OsString]) -> io::Error {
    let passed = pass_sockets(ports)
        .and_then(|()| Ok(setrlimit(Resource::Nofile, shares::lowered(Resource::Nofile, shares::MOST_DESCRIPTORS))?));
    if let Err(error) = passed {
        return error;
    }
    #[expect(clippy::disallowed_methods, reason = "it becomes the program that `run` was to start")]
    std::process::Command::new(program).args(arguments).exec()
}

#[expect(unsafe_code, reason = "the descriptor is known by its number")]
fn pass_sockets(ports: &[u16]) -> io::Result<()> {
    let listen = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port));
    let sockets: Vec<TcpListener> = ports.iter().map(listen).collect::<Result<_, _>>()?;
    let fds: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
    // SAFETY: only the flags of the descriptor are read.
    rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(PROXY_FD) })
        .map_err(|_| io::Error::other("it is called by the service only; no process receives the sockets"))?;
    // SAFETY: the parent passes this descriptor for this purpose; nothing else in this process uses it.
    let proxy_socket = unsafe { OwnedFd::from_raw_fd(PROXY_FD) };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if fds.is_empty() || !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("the number of ports must be 1 to {MAX_SOCKETS}"),
        ));
    }
    rustix::net::sendmsg(&proxy_socket, &[IoSlice::new(b"!")], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Serves a sandbox when its sockets have arrived. Never returns.
pub(super) async fn serve(entrance: ProxyEntrance, egress: &EgressSettings) -> Infallible {
    let proxy = || Arc::new(Proxy::new(egress.hosts.clone(), egress.refused.clone()));
    let ours = match entrance {
        ProxyEntrance::Passed(ours) => ours,
        ProxyEntrance::Here(socket) => {
            accept_all(vec![socket], vec![(PROXY_PORT, ProxyRoute::Proxy)], &proxy()).await;
            return std::future::pending().await;
        }
    };
    match tokio::time::timeout(SETUP_TIMEOUT, receive_sockets(&ours)).await {
        Ok(Ok(sockets)) => accept_all(sockets, routes(egress), &proxy()).await,
        Ok(Err(error)) => tracing::debug!(%error, "a sandbox ended before its egress proxy was ready"),
        Err(_) => tracing::warn!("a sandbox was not built in time; it has no network access"),
    }
    std::future::pending().await
}

/// Receives the listening sockets from the sandbox.
async fn receive_sockets(ours: &UnixStream) -> io::Result<Vec<tokio::net::TcpListener>> {
    let receive = || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut word = [0];
        rustix::net::recvmsg(ours, &mut [IoSliceMut::new(&mut word)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        let rights = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        Ok(rights.flatten().collect::<Vec<OwnedFd>>())
    };
    let sockets = ours.async_io(Interest::READABLE, receive).await?;
    if sockets.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let listener = |socket| {
        let socket = TcpListener::from(socket);
        socket.set_nonblocking(true)?;
        tokio::net::TcpListener::from_std(socket)
    };
    sockets.into_iter().map(listener).collect()
}

/// Accepts and serves the connections of each socket.
async fn accept_all(sockets: Vec<tokio::net::TcpListener>, routes: Vec<(u16, ProxyRoute)>, proxy: &Arc<Proxy>) {
    let mut accepting = JoinSet::new();
    for (socket, (_, route)) in sockets.into_iter().zip(routes) {
        let (proxy, places) = (proxy.clone(), Arc::new(Semaphore::new(MAX_CONNECTIONS)));
        accepting.spawn(async move {
            let mut carried = JoinSet::new();
            loop {
                let Ok(place) = places.clone().acquire_owned().await else { return };
                while carried.try_join_next().is_some() {}
                match socket.accept().await {
                    Ok((client, _)) => {
                        let (proxy, route) = (proxy.clone(), route.clone());
                        carried.spawn(async move {
                            proxy.serve(client, &route).await;
                            drop(place);
                        });
                    }
                    // Out of descriptors: some will be free again.
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            }
        });
    }
    while accepting.join_next().await.is_some() {}
}
