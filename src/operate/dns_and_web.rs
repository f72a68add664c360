//! Queries the outside view of this instance: its DNS records and its public pages.
//!
//! [`crate::operate::doctor`] evaluates the answers. Every query has a time limit. A negative
//! answer is never confused with a failed query. Pages are requested without cookies, login or
//! redirects, as a mailbox provider does. Names are absolute.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;
use reqwest::header::{CONTENT_TYPE, LOCATION};
use reqwest::{Client, RequestBuilder};

use crate::email::http::{build_client, error_causes, is_connection_refused, is_tls_failure};
use crate::wire::status::Finding;

/// The HTTP client.
pub struct Web(Client);

/// A response, with any status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebResponse {
    /// The HTTP status.
    pub status: u16,
    /// The target of a redirect.
    pub location: Option<String>,
    /// The start of the body, at most [`MOST_BYTES`] and the rest of a chunk.
    pub body: String,
}

/// A response, or the finding about a request without one.
pub type Answered = Result<WebResponse, Finding>;

/// Returns the finding about a request without a response.
pub fn silent(reason: &str) -> Finding {
    Finding::unchecked(format!("server.public_url was not reached from here ({reason})"))
}

/// The number of bytes of a body after which reading stops.
const MOST_BYTES: usize = 64 * 1024;

impl Web {
    /// Creates a client with this time limit for each request. Fails if no client can be created,
    /// such as without root certificates.
    pub fn new(timeout: Duration) -> Result<Self, String> {
        build_client(Client::builder().timeout(timeout)).map(Self)
    }

    /// Creates a client like [`Self::new`] for one URL. It ignores proxies in the environment, and
    /// needs no root certificates for plain http.
    pub fn direct(url: &str, timeout: Duration) -> Result<Self, String> {
        let client = Client::builder().timeout(timeout).no_proxy();
        let client = match url.starts_with("https:") {
            true => client,
            false => client.tls_certs_only([]),
        };
        build_client(client).map(Self)
    }

    /// Requests a page. Returns its status, or the innermost cause of the failure.
    pub async fn status(&self, url: &str) -> Result<u16, String> {
        let sent = self.0.get(url).send().await;
        let sent = sent.map_err(|error| innermost_cause(&error.without_url()))?;
        Ok(sent.status().as_u16())
    }

    /// Requests a page. Does not follow redirects.
    pub async fn get(&self, url: &str) -> Answered {
        hear(self.0.get(url)).await
    }

    /// Posts a form.
    pub async fn post(&self, url: &str, form: &'static str) -> Answered {
        let kind = "application/x-www-form-urlencoded";
        hear(self.0.post(url).header(CONTENT_TYPE, kind).body(form)).await
    }
}

fn innermost_cause(error: &(dyn Error + 'static)) -> String {
    error_causes(error).last().map_or_else(String::new, |cause| cause.to_string())
}

async fn hear(request: RequestBuilder) -> Answered {
    // The URL may contain a token.
    let sent = request.send().await.map_err(reqwest::Error::without_url);
    let mut response = sent.map_err(|error| unanswered(&error))?;
    let status = response.status().as_u16();
    let location = response.headers().get(LOCATION);
    let location = location.map(|place| String::from_utf8_lossy(place.as_bytes()).into_owned());
    let mut bytes = Vec::new();
    while bytes.len() < MOST_BYTES
        && let Ok(Some(chunk)) = response.chunk().await
    {
        bytes.extend_from_slice(&chunk);
    }
    Ok(WebResponse { status, location, body: String::from_utf8_lossy(&bytes).into_owned() })
}

fn unanswered(error: &(dyn Error + 'static)) -> Finding {
    let reason = innermost_cause(error);
    if is_connection_refused(error) {
        let found = format!("nothing listens at server.public_url ({reason})");
        Finding::error(found, "start `tidings serve`, and the proxy in front of it")
    } else if is_tls_failure(error) {
        let found = format!("the connection to server.public_url cannot be trusted ({reason})");
        Finding::error(found, "give the proxy a valid certificate for that name")
    } else {
        silent(&reason)
    }
}

/// A DNS resolver.
pub struct DnsResolver(TokioResolver);

impl DnsResolver {
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
        // The number of retries after a query without an answer.
        options.attempts = 1;
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
                    RData::TXT(text) => Some(text.txt_data.concat()),
                    _ => None,
                });
                let texts = texts.map(|text| String::from_utf8_lossy(&text).into_owned());
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
