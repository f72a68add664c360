//! Texts in the DNS.
//!
//! The rule: names are looked up as they stand, from the root, without the search list of this
//! machine. A name that does not exist has no texts, if whoever says so knows the world; a server
//! that cannot say is an error.

use std::net::SocketAddr;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;

/// Who knows names.
pub struct Names(TokioResolver);

/// How often a server is asked that says nothing, after the first time.
const AGAIN: usize = 1;

impl Names {
    /// Asks this server, or those that this machine asks. Each question may take so long.
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

    /// The texts under a name, each as one.
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

    /// Whether those who say that there is nothing can tell: networks that are shut off have
    /// servers that know nobody.
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
