//! `tidings health`: asks a running server whether it is ready, for containers and scripts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use clap::Args as Arguments;

use super::failure_text::ServerUnreachable;
use super::session::{Exit, Session};
use crate::operate::dns_and_web::Web;
use crate::operate::open::Refusal;

/// Ask a running server whether it is ready
///
/// Requests GET /readyz from the configured address (server.listen); for a server that listens on
/// all addresses, from loopback.
#[derive(Debug, Arguments)]
#[command(after_help = "Exit codes: 0 ready, 1 not ready or no answer, 2 wrong usage.")]
pub(super) struct Args {
    /// Address of the server instead, such as http://127.0.0.1:8080
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Check only whether the process is alive (GET /healthz), also at metrics.listen of a worker
    #[arg(long)]
    alive: bool,
    /// How long to wait for the answer, 1 to 60 seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
    timeout: u64,
}

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let server = match &self.url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => format!("http://{}", reachable(session.load()?.server.listen)?),
        };
        let (path, state) = if self.alive { ("healthz", "alive") } else { ("readyz", "ready") };
        let url = format!("{server}/{path}");
        let timeout = Duration::from_secs(self.timeout);
        let web = Web::direct(&url, timeout).map_err(anyhow::Error::msg)?;
        match web.status(&url).await {
            Ok(200) => session.screen.line(format!("{url}: {state}"))?,
            Ok(status) => anyhow::bail!("{url} answers {status}"),
            Err(why) => return Err(ServerUnreachable { url, why }.into()),
        }
        Ok(Exit::Done)
    }
}

/// Returns the address at which this machine reaches a server that listens on `listen`.
fn reachable(listen: SocketAddr) -> Result<SocketAddr, Refusal> {
    if listen.port() == 0 {
        let what = "server.listen has port 0, so the configuration does not name the actual port";
        return Err(Refusal::new(what, "--url http://127.0.0.1:PORT"));
    }
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    Ok(SocketAddr::new(ip, listen.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_all_addresses_is_reached_on_loopback() {
        let address = |listen: &str| reachable(listen.parse().unwrap()).map(|at| at.to_string());

        assert_eq!(address("0.0.0.0:8080").unwrap(), "127.0.0.1:8080");
        assert_eq!(address("[::]:8080").unwrap(), "[::1]:8080");
        assert_eq!(address("192.0.2.1:80").unwrap(), "192.0.2.1:80");
        assert!(address("127.0.0.1:0").is_err());
    }
}
