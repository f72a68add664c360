//! Looks up TXT records.
//!
//! Names are absolute: the search list of this machine is not used. A name that does not exist has
//! no records, if the server can resolve public names at all. A failed query is an error.

use std::net::SocketAddr;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;

/// A DNS resolver.
pub struct Names(TokioResolver);

/// The number of retries after a query without an answer.
const AGAIN: usize = 1;

impl Names {
    /// Uses this server, or those of this machine. `timeout` limits a look-up with its retries.
    pub fn new(server: Option<SocketAddr>, timeout: Duration) -> Result<Self, String> {
        let mut builder = match server {
            Some(server) => {
                let (mut udp, mut tcp) = (ConnectionConfig::udp(), ConnectionConfig::tcp());
                (udp.port, tcp.port) = (server.port(), server.port());
                let server = NameServerConfig::new(server.ip(), true, vec![udp, tcp]);
                let config = ResolverConfig::from_name_servers(vec![server]);
                TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
            }
            None => TokioResolver::builder_tokio()
                .map_err(|error| format!("this machine names no DNS server: {error}"))?,
        };
        let options = builder.options_mut();
        options.timeout = timeout / 3;
        options.attempts = AGAIN;
        let resolver = builder.build();
        let resolver = resolver.map_err(|error| format!("the DNS cannot be asked: {error}"))?;
        Ok(Self(resolver))
    }

    /// Returns the TXT records of a name, each joined to one text.
    pub async fn texts(&self, name: &str) -> Result<Vec<String>, String> {
        match self.0.txt_lookup(format!("{name}.")).await {
            Ok(found) => {
                let records = found.answers().iter();
                let texts = records.filter_map(|record| match &record.data {
                    RData::TXT(text) => {
                        Some(String::from_utf8_lossy(&text.txt_data.concat()).into())
                    }
                    _ => None,
                });
                Ok(texts.collect())
            }
            Err(error) if error.is_no_records_found() => self.know_the_world(name).await,
            Err(error) => Err(format!("{name} could not be looked up: {error}")),
        }
    }

    /// Confirms that a name has no records. A server in an isolated network claims this for every
    /// name, so the top-level domain must resolve.
    async fn know_the_world(&self, name: &str) -> Result<Vec<String>, String> {
        let top = name.rsplit('.').next().unwrap_or(name);
        match self.0.soa_lookup(format!("{top}.")).await {
            Ok(_) => Ok(Vec::new()),
            Err(error) => Err(format!(
                "{name} could not be looked up: the DNS server does not even know .{top} ({error})"
            )),
        }
    }
}
