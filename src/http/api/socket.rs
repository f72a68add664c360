//! Listens for connections, and limits how long clients may take.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::Context;

/// How long the head of a request may take to arrive.
pub(super) const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection is kept open for a next request.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// How long a client may keep sending while its connection is being closed.
pub(super) const LEAVE_PATIENCE: Duration = Duration::from_secs(3);
/// How long a client may leave sent bytes unread before its connection is closed, also on streams.
const UNREAD_PATIENCE: Duration = Duration::from_secs(30);
/// The number of connections that can wait to be accepted.
const BACKLOG: u32 = 1_024;

/// A bound address. Connections wait until a server accepts them.
pub struct Listening {
    /// The bound address, with the actual port if port 0 was requested.
    pub addr: SocketAddr,
    pub(super) listener: TcpListener,
}

/// Binds an address. Needs a Tokio runtime.
pub fn listen(wanted: SocketAddr) -> anyhow::Result<Listening> {
    let listener = socket(wanted).with_context(|| format!("listening on {wanted}"))?;
    let addr = listener.local_addr();
    Ok(Listening {
        addr: addr.context("asking for the own address")?,
        listener,
    })
}

fn socket(wanted: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match wanted {
        SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4()?,
        SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6()?,
    };
    // Binds while connections of the previous process are in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit it. Only Linux has this option.
    #[cfg(target_os = "linux")]
    socket2::SockRef::from(&socket).set_tcp_user_timeout(Some(UNREAD_PATIENCE))?;
    socket.bind(wanted)?;
    socket.listen(BACKLOG)?.into_std()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_is_closed_if_its_client_does_not_read() {
        let listener = socket("127.0.0.1:0".parse().unwrap()).unwrap();
        listener.set_nonblocking(false).unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();

        let (accepted, _) = listener.accept().unwrap();

        let accepted = socket2::SockRef::from(&accepted);
        let patience = accepted.tcp_user_timeout().unwrap();
        assert_eq!(patience, Some(UNREAD_PATIENCE));
    }
}
