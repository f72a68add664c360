//! What is fetched to believe a report: a certificate, or the page that confirms a subscription.
//!
//! The rule: only from hosts that follow from our own configuration ([`Place`]), over HTTPS,
//! without redirects, and within bounds of time and size; a few at a time, as anybody can post what
//! lets us look. A certificate is kept once it has verified something, and not before, so nothing
//! that a bad moment answered stays.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use reqwest::{Client, Response, Url, redirect};
use tokio::sync::Semaphore;

use super::hooks::Place;
use super::http::chain;

/// How long one may take in all; whoever posts waits for so long.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most that is read of one, in bytes: a certificate has two thousand.
const MOST_BYTES: usize = 64 << 10;
/// How many are under way at a time.
const AT_ONCE: usize = 4;
/// How many certificates are kept: a provider has one a year.
const MOST_KEPT: usize = 16;

/// Fetches from hosts that are pinned.
pub struct Pinned {
    client: OnceLock<Result<Client, String>>,
    /// What stands in for `https://HOST`.
    stand_in: Option<String>,
    kept: Mutex<HashMap<Place, Arc<[u8]>>>,
    turns: Semaphore,
}

/// Why nothing was fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfetched {
    /// There is none at that place: the host says so.
    Absent,
    /// It could not be had now, and may be later.
    Unreached(String),
}

impl Default for Pinned {
    fn default() -> Self {
        Self {
            client: OnceLock::new(),
            stand_in: None,
            kept: Mutex::default(),
            turns: Semaphore::new(AT_ONCE),
        }
    }
}

impl Pinned {
    /// One for whom a server on this machine, such as `http://127.0.0.1:4010`, stands in for all
    /// hosts; `None` for any other address.
    pub fn on_this_machine(base: &str) -> Option<Self> {
        let url = Url::parse(base).ok()?;
        let here = url.host_str()?.parse::<std::net::Ipv4Addr>().ok()?;
        here.is_loopback().then(|| Self {
            stand_in: Some(base.to_owned()),
            ..Self::default()
        })
    }

    /// The certificate at this place, as it was kept or as it is there now.
    pub async fn certificate(&self, place: &Place) -> Result<Arc<[u8]>, Unfetched> {
        match self.kept(place) {
            Some(kept) => Ok(kept),
            None => self.get(place).await.map(Arc::from),
        }
    }

    fn kept(&self, place: &Place) -> Option<Arc<[u8]>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(place).cloned()
    }

    /// Keeps a certificate, as it has verified something.
    pub fn keep(&self, place: Place, certificate: Arc<[u8]>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MOST_KEPT && !kept.contains_key(&place) {
            kept.clear();
        }
        kept.insert(place, certificate);
    }

    /// Asks for what is at this place, and has it done. Whatever else is answered than that it is,
    /// may be otherwise the next time.
    pub async fn visit(&self, place: &Place) -> Result<(), Unfetched> {
        let refused = || Unfetched::Unreached(format!("{}: did not do it", place.host));
        match self.get(place).await {
            Ok(_) => Ok(()),
            Err(Unfetched::Absent) => Err(refused()),
            Err(unreached) => Err(unreached),
        }
    }

    async fn get(&self, place: &Place) -> Result<Vec<u8>, Unfetched> {
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
            200 => read(response).await.map_err(unreached),
            // What keeps certificates forbids to see what is not there.
            403 | 404 | 410 => Err(Unfetched::Absent),
            status => Err(unreached(format!("answered {status}"))),
        }
    }

    fn client(&self) -> Result<Client, String> {
        // Whoever came first has chosen one, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Client::builder()
            .user_agent(concat!("tidings/", env!("CARGO_PKG_VERSION")))
            .https_only(self.stand_in.is_none())
            .redirect(redirect::Policy::none())
            .timeout(PATIENCE)
            .build()
            .map_err(|error| format!("no HTTPS client can be made: {}", chain(&error)))
    }
}

async fn read(mut response: Response) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| chain(&error))? {
        if bytes.len() + chunk.len() > MOST_BYTES {
            return Err(format!("answered more than {} KiB", MOST_BYTES >> 10));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

#[cfg(test)]
#[path = "pinned_tests.rs"]
mod tests;
