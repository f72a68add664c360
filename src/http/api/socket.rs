//! Listening for connections, and how long their clients may take.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::Context;

/// How long the head of a request may take to arrive.
pub(super) const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection is kept open for a next request.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// How long a client whose connection ends may go on sending before it is cut.
pub(super) const LEAVE_PATIENCE: Duration = Duration::from_secs(3);
/// How long a client may leave sent bytes unread before its connection is closed. Streams too.
const UNREAD_PATIENCE: Duration = Duration::from_secs(30);
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1_024;

/// A bound address. Connections queue until a server accepts them.
pub struct Listening {
    /// With the port that was chosen, where port 0 was asked for.
    pub addr: SocketAddr,
    pub(super) listener: TcpListener,
}

/// Takes an address. Needs a Tokio runtime.
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
    // A restart need not wait until the old process's connections are forgotten.
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit it. Other systems have no such option.
    #[cfg(target_os = "linux")]
    socket2::SockRef::from(&socket).set_tcp_user_timeout(Some(UNREAD_PATIENCE))?;
    socket.bind(wanted)?;
    socket.listen(BACKLOG)?.into_std()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_is_closed_once_its_client_does_not_read() {
        let listener = socket("127.0.0.1:0".parse().unwrap()).unwrap();
        listener.set_nonblocking(false).unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();

        let (accepted, _) = listener.accept().unwrap();

        let accepted = socket2::SockRef::from(&accepted);
        let patience = accepted.tcp_user_timeout().unwrap();
        assert_eq!(patience, Some(UNREAD_PATIENCE));
    }
}
