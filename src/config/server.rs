//! The section `[server]`: the HTTP interface, and who may call it.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;

use chrono::TimeDelta;
use url::Url;

use super::reader::TableReader;
use super::sections::section;
use crate::domain::Secret;

section! {
    /// The HTTP interface.
    #[derive(Debug, Clone)]
    ServerSettings(r) {
        /// The address and port to listen on.
        listen: SocketAddr =
            r.parse("server.listen", "an address and port such as 127.0.0.1:8080"),
        /// The bearer token of applications. If it is `None`, `serve` generates one.
        key: Option<Secret> = r.secret("server.key").map(Secret::new),
        /// The public URL of the pages, without a trailing slash.
        public_url: Option<String> = Self::read_public_url(r),
        /// The secret that signs links in emails; `None` for one that is kept in the store.
        link_secret: Option<Secret> = read_link_secret(r),
        /// The origins whose pages may read responses, or `*` alone for all.
        cors_origins: Vec<String> = read_origins(r),
        /// The most requests per second with a server key; `None` for no limit.
        rate_limit_key: Option<NonZeroU32> =
            NonZeroU32::new(r.number("server.rate_limit_key", 0..=1_000_000)),
        /// The most requests per second with the tokens of one user; `None` for no limit.
        rate_limit_token: Option<NonZeroU32> =
            NonZeroU32::new(r.number("server.rate_limit_token", 0..=1_000_000)),
        /// How long a process may take to stop, 1 second to 10 minutes.
        grace: TimeDelta =
            r.duration("server.grace", TimeDelta::seconds(1)..=TimeDelta::minutes(10)),
    }
}

/// The longest public URL, in bytes. Emails reserve room for links of this length plus a token.
const MAX_URL_BYTES: usize = 500;
/// The shortest link secret, in bytes. A shorter one could be guessed.
const MIN_LINK_SECRET_BYTES: usize = 16;
/// The shortest server key, in bytes. 32 hexadecimal digits are 128 random bits; NIST requires at
/// least 112 (SP 800-131A Rev. 2).
const MIN_KEY_BYTES: usize = 32;

impl ServerSettings {
    /// Adds a problem for a short key, unless only this machine reaches the server.
    pub(super) fn check_key(&self, r: &mut TableReader<'_>) {
        let is_short = |key: &Secret| key.expose().len() < MIN_KEY_BYTES;
        if self.key.as_ref().is_some_and(is_short) && !self.listen.ip().is_loopback() {
            let problem = format!(
                "is shorter than {MIN_KEY_BYTES} characters, and could be guessed by any client that reaches {}; make one with: openssl rand -hex 24",
                self.listen
            );
            r.add_problem("server.key", problem);
        }
    }

    /// Returns the path of the public URL, without a trailing slash.
    pub fn public_path(&self) -> &str {
        let url = self.public_url.as_deref().unwrap_or_default();
        let (_, host_and_path) = url.split_once("://").unwrap_or_default();
        host_and_path.find('/').map_or("", |start| &host_and_path[start..])
    }

    pub(super) fn read_public_url(r: &mut TableReader<'_>) -> Option<String> {
        let wanted = "an address such as https://news.example.org (plain http only on loopback)";
        r.parse_non_empty_with("server.public_url", wanted, parse_public_url)
    }
}

fn read_link_secret(r: &mut TableReader<'_>) -> Option<Secret> {
    let secret = r.secret("server.link_secret")?;
    if secret.len() < MIN_LINK_SECRET_BYTES {
        let problem =
            format!("is shorter than {MIN_LINK_SECRET_BYTES} characters, and could be guessed");
        r.add_problem("server.link_secret", problem);
    }
    Some(Secret::new(secret))
}

fn read_origins(r: &mut TableReader<'_>) -> Vec<String> {
    const OPTION: &str = "server.cors_origins";
    let origins = r.list(OPTION);
    for origin in origins.iter().filter(|origin| !is_origin(origin)) {
        let problem = format!(
            "{origin:?} is no origin: write the scheme, the host in lower case and, if it is not the usual one, the port, such as \"https://app.example\""
        );
        r.add_problem(OPTION, problem);
    }
    if origins.len() > 1 && origins.iter().any(|origin| origin == "*") {
        r.add_problem(OPTION, "holds \"*\" beside others; leave one of the two out");
    }
    origins
}

fn is_origin(text: &str) -> bool {
    let is_normal = |url: Url| {
        let is_web = ["http", "https"].contains(&url.scheme());
        is_web && url.origin().ascii_serialization() == text
    };
    text == "*" || (!text.contains('*') && Url::parse(text).is_ok_and(is_normal))
}

/// Returns a URL without a trailing slash, login, query and fragment. Plain `http` is only for this
/// machine.
fn parse_public_url(text: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~/%:[]".contains(c);
    let has_host = text.contains("://") && !text.contains(":///");
    if !has_host || text.len() > MAX_URL_BYTES || !text.chars().all(is_plain) {
        return None;
    }
    let url = Url::parse(text).ok()?;
    // The API and the metrics have these paths, below any prefix.
    let first_segment = url.path().trim_start_matches('/').split('/').next()?;
    let is_reserved = ["v1", "metrics"].contains(&first_segment);
    (is_safe(&url) && !is_reserved).then(|| text.trim_end_matches('/').to_owned())
}

/// Returns whether requests to this URL are encrypted, or stay on this machine.
pub(super) fn is_safe(url: &Url) -> bool {
    match url.scheme() {
        "https" => true,
        "http" => url.host_str().is_some_and(is_this_machine),
        _ => false,
    }
}

/// Returns whether a host name or an IP address is that of this machine.
pub(super) fn is_this_machine(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
