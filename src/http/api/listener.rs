//! Listens for connections, and limits their number and how long clients may take.
//!
//! The store, the log and outgoing emails always get file descriptors. Further connections wait to
//! be accepted until others end or time out.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::Context;
use tokio::sync::watch;

use crate::operate::machine;

/// How long the head of a request may take to arrive.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection is kept open for a next request.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// How long a client may keep sending while its connection is being closed.
pub(super) const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a client may leave sent bytes unread before its connection is closed, also on streams.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The number of connections that can wait to be accepted.
const BACKLOG: u32 = 1_024;
/// The minimum number of descriptors for other uses: the store, the log and outgoing emails.
const OTHER_DESCRIPTORS: u64 = 64;
/// The maximum number of connections, for any number of descriptors.
const MAX_CONNECTIONS: u64 = 25_000;
/// The minimum number of connections.
const MIN_CONNECTIONS: u64 = 16;

/// A bound address. Connections wait until a server accepts them.
pub struct ListeningSocket {
    /// The bound address, with the actual port if port 0 was requested.
    pub addr: SocketAddr,
    pub(super) listener: TcpListener,
}

impl ListeningSocket {
    /// Fails unless the address is a loopback address.
    pub(super) fn require_loopback(self) -> anyhow::Result<Self> {
        anyhow::ensure!(self.addr.ip().is_loopback(), "{} is not a loopback address", self.addr);
        Ok(self)
    }
}

/// Binds an address. Needs a Tokio runtime.
pub fn listen(addr: SocketAddr) -> anyhow::Result<ListeningSocket> {
    let listener = bind(addr).with_context(|| format!("listening on {addr}"))?;
    let addr = listener.local_addr().context("reading the bound address")?;
    Ok(ListeningSocket { addr, listener })
}

fn bind(addr: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match addr {
        SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4()?,
        SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6()?,
    };
    // Binds while connections of the previous process are in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit it. Only Linux has this option.
    #[cfg(target_os = "linux")]
    socket2::SockRef::from(&socket).set_tcp_user_timeout(Some(UNREAD_TIMEOUT))?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)?.into_std()
}

/// Waits until `stop` becomes true or its sender is dropped.
pub(super) async fn stopped(mut stop: watch::Receiver<bool>) {
    // An error means that the sender is gone, which stops the server as well.
    let _closed = stop.wait_for(|stop| *stop).await;
}

/// Returns the number of connections for a process with this many descriptors.
fn max_connections(descriptors: Option<u64>) -> u64 {
    let available = descriptors.map(|all| (all - all / 4).saturating_sub(OTHER_DESCRIPTORS));
    available.unwrap_or(MAX_CONNECTIONS).clamp(MIN_CONNECTIONS, MAX_CONNECTIONS)
}

/// Returns the number of connections for each of these threads.
pub(super) fn connections_per_thread(threads: usize) -> usize {
    let (descriptors, _) = machine::open_files();
    (max_connections(descriptors) / threads.max(1) as u64).max(1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_limit_leaves_file_descriptors_for_the_rest() {
        assert_eq!([Some(256), Some(1_024), Some(64)].map(max_connections), [128, 704, 16]);
        assert_eq!([Some(1 << 20), None].map(max_connections), [MAX_CONNECTIONS, MAX_CONNECTIONS]);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_connection_is_closed_if_its_client_does_not_read() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        listener.set_nonblocking(false).unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();

        let (accepted, _) = listener.accept().unwrap();

        let accepted = socket2::SockRef::from(&accepted);
        let timeout = accepted.tcp_user_timeout().unwrap();
        assert_eq!(timeout, Some(UNREAD_TIMEOUT));
    }
}
