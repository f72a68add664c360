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
use reqwest::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use reqwest::{Client, RequestBuilder};

use crate::email::http::{build_client, error_causes, is_connection_refused, is_tls_failure};
use crate::wire::diagnosis::Finding;

/// The HTTP client.
pub struct Web(Client);

/// A response, with any status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebResponse {
    /// The HTTP status.
    pub status: u16,
    /// The target of a redirect.
    pub location: Option<String>,
    /// The start of the body, at most [`MAX_BODY_BYTES`] and the rest of a chunk.
    pub body: String,
}

/// A response, or the finding about a request without one.
pub type WebResult = Result<WebResponse, Finding>;

/// Returns the finding about a request that failed for this reason.
pub fn unreached(reason: &str) -> Finding {
    Finding::unchecked(format!("server.public_url was not reached from here ({reason})"))
}

/// The number of bytes of a body after which reading stops.
const MAX_BODY_BYTES: usize = 64 * 1024;

impl Web {
    /// Creates a client with this time limit for each request. Fails if no client can be created,
    /// such as without root certificates.
    pub fn new(timeout: Duration) -> Result<Self, String> {
        build_client(Client::builder().timeout(timeout)).map(Self)
    }

    /// Creates a client like [`Self::new`] for one URL. It ignores proxies in the environment, and
    /// needs no root certificates for plain http.
    pub fn direct(url: &str, timeout: Duration) -> Result<Self, String> {
        let mut client = Client::builder().timeout(timeout).no_proxy();
        if !url.starts_with("https:") {
            client = client.tls_certs_only([]);
        }
        build_client(client).map(Self)
    }

    /// Requests a page. Returns its status, or the innermost cause of the failure.
    pub async fn status(&self, url: &str) -> Result<u16, String> {
        match self.0.get(url).send().await {
            Ok(response) => Ok(response.status().as_u16()),
            Err(error) => Err(innermost_cause(&error.without_url())),
        }
    }

    /// Requests a page. Does not follow redirects.
    pub async fn get(&self, url: &str) -> WebResult {
        send(self.0.get(url)).await
    }

    /// Posts a form.
    pub async fn post(&self, url: &str, form: &'static str) -> WebResult {
        let kind = "application/x-www-form-urlencoded";
        send(self.0.post(url).header(CONTENT_TYPE, kind).body(form)).await
    }
}

fn innermost_cause(error: &(dyn Error + 'static)) -> String {
    error_causes(error).last().map_or_else(String::new, |cause| cause.to_string())
}

async fn send(request: RequestBuilder) -> WebResult {
    // The URL may contain a token.
    let sent = request.send().await;
    let mut response = sent.map_err(|error| failed_request(&error.without_url()))?;
    let status = response.status().as_u16();
    let to_text = |url: &HeaderValue| String::from_utf8_lossy(url.as_bytes()).into_owned();
    let location = response.headers().get(LOCATION).map(to_text);
    let mut bytes = Vec::new();
    while bytes.len() < MAX_BODY_BYTES
        && let Ok(Some(chunk)) = response.chunk().await
    {
        bytes.extend_from_slice(&chunk);
    }
    Ok(WebResponse { status, location, body: String::from_utf8_lossy(&bytes).into_owned() })
}

fn failed_request(error: &(dyn Error + 'static)) -> Finding {
    let reason = innermost_cause(error);
    if is_connection_refused(error) {
        let found = format!("nothing listens at server.public_url ({reason})");
        Finding::error(found, "start `tidings serve`, and the proxy in front of it")
    } else if is_tls_failure(error) {
        let found = format!("the connection to server.public_url cannot be trusted ({reason})");
        Finding::error(found, "give the proxy a valid certificate for that name")
    } else {
        unreached(&reason)
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
                let name_server = NameServerConfig::new(server.ip(), true, vec![udp, tcp]);
                let config = ResolverConfig::from_name_servers(vec![name_server]);
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
        resolver.map(Self).map_err(|error| format!("the DNS cannot be queried: {error}"))
    }

    /// Returns the TXT records of a name, each joined to one text.
    pub async fn texts(&self, name: &str) -> Result<Vec<String>, String> {
        match self.0.txt_lookup(format!("{name}.")).await {
            Ok(lookup) => {
                let texts = lookup.answers().iter().filter_map(|record| match &record.data {
                    RData::TXT(text) => Some(text.txt_data.concat()),
                    _ => None,
                });
                Ok(texts.map(|text| String::from_utf8_lossy(&text).into_owned()).collect())
            }
            Err(error) if error.is_no_records_found() => self.confirm_no_records(name).await,
            Err(error) => Err(format!("{name} could not be looked up: {error}")),
        }
    }

    /// Confirms that a name has no records. A server in an isolated network claims this for every
    /// name, so the top-level domain must resolve.
    async fn confirm_no_records(&self, name: &str) -> Result<Vec<String>, String> {
        let top = name.rsplit('.').next().unwrap_or(name);
        match self.0.soa_lookup(format!("{top}.")).await {
            Ok(_) => Ok(Vec::new()),
            Err(error) => Err(format!(
                "{name} could not be looked up: the DNS server does not even know .{top} ({error})"
            )),
        }
    }
}
