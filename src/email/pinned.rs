//! Fetches what webhooks need: a signing certificate, or the page that confirms a subscription.
//!
//! Anyone can post to a hook, so requests go only to hosts that follow from our configuration
//! ([`PinnedUrl`]). They use HTTPS, follow no redirects, and have limits on time, size and number.
//! A certificate is cached only after it has verified a request, so a bad answer is never cached.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use moka::sync::Cache;
use reqwest::{Client, Url};
use tokio::sync::Semaphore;

use super::hooks::PinnedUrl;
use super::http::{build, chain, read};

/// The time limit of a request. The caller of the hook waits for it.
const PATIENCE: Duration = Duration::from_secs(10);
/// The size limit of an answer in bytes. A certificate has about 2,000.
const MOST_BYTES: usize = 64 << 10;
/// The maximum number of concurrent requests.
const AT_ONCE: usize = 4;
/// The maximum number of cached certificates. A provider has about one a year.
const MOST_KEPT: u64 = 16;

/// A client for pinned hosts.
pub struct Pinned {
    client: OnceLock<Result<Client, String>>,
    /// The base URL that replaces `https://HOST`.
    stand_in: Option<String>,
    kept: Cache<PinnedUrl, Arc<[u8]>>,
    turns: Semaphore,
}

/// The reason why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfetched {
    /// The host answered that the URL does not exist.
    Absent,
    /// There is no usable answer now. A later request may succeed.
    Unreached(String),
}

impl Default for Pinned {
    fn default() -> Self {
        Self {
            client: OnceLock::new(),
            stand_in: None,
            kept: Cache::new(MOST_KEPT),
            turns: Semaphore::new(AT_ONCE),
        }
    }
}

impl Pinned {
    /// Creates a client for tests, in which a server on this machine, such as
    /// `http://127.0.0.1:4010`, replaces all hosts. Returns `None` for any other address.
    pub fn on_this_machine(base: &str) -> Option<Self> {
        let url = Url::parse(base).ok()?;
        let here = url.host_str()?.parse::<std::net::Ipv4Addr>().ok()?;
        here.is_loopback().then(|| Self {
            stand_in: Some(base.to_owned()),
            ..Self::default()
        })
    }

    /// Returns the certificate at this URL, from the cache or from the host.
    pub async fn certificate(&self, place: &PinnedUrl) -> Result<Arc<[u8]>, Unfetched> {
        match self.kept.get(place) {
            Some(kept) => Ok(kept),
            None => self.get(place).await.map(Arc::from),
        }
    }

    /// Caches a certificate. Call this only after it has verified a request.
    pub fn keep(&self, place: PinnedUrl, certificate: Arc<[u8]>) {
        self.kept.insert(place, certificate);
    }

    /// Requests the URL for its effect. Every failure is [`Unfetched::Unreached`], because a later
    /// attempt may succeed.
    pub async fn visit(&self, place: &PinnedUrl) -> Result<(), Unfetched> {
        match self.get(place).await {
            Err(Unfetched::Absent) => {
                let why = format!("{}: the page does not exist", place.host);
                Err(Unfetched::Unreached(why))
            }
            answer => answer.map(|_| ()),
        }
    }

    async fn get(&self, place: &PinnedUrl) -> Result<Vec<u8>, Unfetched> {
        let unreached = |why: String| Unfetched::Unreached(format!("{}: {why}", place.host));
        let Ok(_turn) = self.turns.try_acquire() else {
            return Err(unreached(format!("{AT_ONCE} requests are under way")));
        };
        let client = self.client.get_or_init(|| self.client());
        let client = client.as_ref().map_err(|why| unreached(why.clone()))?;
        let host = match &self.stand_in {
            Some(base) => base.clone(),
            None => format!("https://{}", place.host),
        };
        let response = client.get(format!("{host}{}", place.path)).send().await;
        let response = response.map_err(|error| unreached(chain(&error.without_url())))?;
        match response.status().as_u16() {
            200 => read(response, MOST_BYTES).await.map_err(unreached),
            // The host of certificates answers 403 for one that does not exist.
            403 | 404 | 410 => Err(Unfetched::Absent),
            status => Err(unreached(format!("answered {status}"))),
        }
    }

    fn client(&self) -> Result<Client, String> {
        let is_https = self.stand_in.is_none();
        build(Client::builder().https_only(is_https).timeout(PATIENCE))
    }
}

#[cfg(test)]
#[path = "pinned_tests.rs"]
mod tests;
