//! The way out of a sandbox that has no network: a proxy of ours on the sandbox's own loopback, which lets listed hosts
//! through and nothing else.
//!
//! The sockets that listen there are made inside, by [`sandbox_exec`], which hands them out over an inherited pair and then becomes
//! the program: what they accept is served out here. So nothing inside can be talked into letting more through, no name is
//! resolved inside, and nothing of it is left when the program has ended. A server on this machine's loopback that is listed
//! has its port on the sandbox's loopback too, for programs that ask no proxy for their own machine.

mod proxy;

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::proxy::{Proxy, ProxyRoute};
use super::sandbox::EgressSettings;

/// Number of the descriptor over which sockets come out.
pub(super) const PROXY_FD: RawFd = 64;
/// Port of the proxy on the sandbox's loopback.
const PROXY_PORT: u16 = 3128;
/// Sockets that can come out at once.
const MOST_SOCKETS: usize = 16;
/// How long a sandbox may take to be built.
const PATIENCE: Duration = Duration::from_secs(60);
/// Connections to one port at the same time; more wait.
const MOST_CONNECTIONS: usize = 256;

/// Both ends of the pair: ours, and the program's.
pub(super) fn pair() -> io::Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    Ok((UnixStream::from_std(ours)?, rustix::io::fcntl_dupfd_cloexec(&theirs, PROXY_FD)?))
}

/// What comes before the program in the sandbox: this program, told to [`sandbox_exec`].
pub(super) fn before_program(egress: &EgressSettings) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![egress.helper.clone().into(), "sandbox-exec".into()];
    for port in routes(egress).into_iter().map(|(port, _)| port) {
        words.extend(["--port".into(), port.to_string().into()]);
    }
    words.push("--".into());
    words
}

/// What tells programs inside of the proxy; by these names most ask for one.
pub(super) fn environment() -> impl Iterator<Item = (&'static str, String)> {
    let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
    let names = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];
    let own_machine = ["NO_PROXY", "no_proxy"].map(|name| (name, "localhost,127.0.0.1,::1".to_owned()));
    let for_node = ("NODE_USE_ENV_PROXY", "1".to_owned());
    names.into_iter().map(move |name| (name, proxy.clone())).chain(own_machine).chain([for_node])
}

/// Ports on the sandbox's loopback, and where each leads.
fn routes(egress: &EgressSettings) -> Vec<(u16, ProxyRoute)> {
    let straight = egress.hosts.on_loopback().into_iter().filter(|target| target.port != PROXY_PORT);
    let straight = straight.map(|target| (target.port, ProxyRoute::Direct(target)));
    [(PROXY_PORT, ProxyRoute::Proxy)].into_iter().chain(straight).take(MOST_SOCKETS).collect()
}

/// Inside a sandbox: listens on these ports of its loopback, hands the sockets out, and becomes the program. Comes back only
/// where that failed.
pub fn sandbox_exec(ports: &[u16], program: &OsStr, arguments: &[OsString]) -> io::Error {
    if let Err(error) = hand_out(ports) {
        return error;
    }
    #[expect(clippy::disallowed_methods, reason = "it becomes the program that `run` was to start")]
    std::process::Command::new(program).args(arguments).exec()
}

#[expect(unsafe_code, reason = "the descriptor is known by its number")]
fn hand_out(ports: &[u16]) -> io::Result<()> {
    let listen = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port));
    let sockets: Vec<TcpListener> = ports.iter().map(listen).collect::<Result<_, _>>()?;
    let fds: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
    // SAFETY: it is only asked whether there is such a descriptor.
    rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(PROXY_FD) })
        .map_err(|_| io::Error::other("it is for the service to call; nothing takes the sockets in"))?;
    // SAFETY: whoever starts us gives it to us for this; nobody else here knows of it.
    let proxy_socket = unsafe { OwnedFd::from_raw_fd(PROXY_FD) };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_SOCKETS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if fds.is_empty() || !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("1 to {MOST_SOCKETS} ports can be given")));
    }
    rustix::net::sendmsg(&proxy_socket, &[IoSlice::new(b"!")], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Serves a sandbox; begins once its sockets come over `ours`, and never ends by itself.
pub(super) async fn serve(ours: UnixStream, egress: &EgressSettings) -> Infallible {
    match tokio::time::timeout(PATIENCE, take_in(&ours)).await {
        Ok(Ok(sockets)) => {
            accept_all(sockets, routes(egress), &Arc::new(Proxy::new(egress.hosts.clone(), egress.refused.clone())))
                .await
        }
        Ok(Err(error)) => tracing::debug!(%error, "a sandbox ended before its route out was there"),
        Err(_) => tracing::warn!("a sandbox was not built in time; nothing is reached from it"),
    }
    std::future::pending().await
}

/// The sockets that come out.
async fn take_in(ours: &UnixStream) -> io::Result<Vec<tokio::net::TcpListener>> {
    let receive = || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_SOCKETS))];
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

/// Serves what each socket accepts.
async fn accept_all(sockets: Vec<tokio::net::TcpListener>, routes: Vec<(u16, ProxyRoute)>, proxy: &Arc<Proxy>) {
    let mut accepting = JoinSet::new();
    for (socket, (_, route)) in sockets.into_iter().zip(routes) {
        let (proxy, places) = (proxy.clone(), Arc::new(Semaphore::new(MOST_CONNECTIONS)));
        accepting.spawn(async move {
            let mut carried = JoinSet::new();
            loop {
                let Ok(place) = places.clone().acquire_owned().await else { return };
                while carried.try_join_next().is_some() {}
                match socket.accept().await {
                    Ok((client, _)) => {
                        let (proxy, route) = (proxy.clone(), route.clone());
                        carried.spawn(async move {
                            proxy.carry(client, &route).await;
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
