//! The sections `[site]` and `[server]`: name and look, URLs, keys and limits.
//!
//! Links in emails are secrets that may be followed a year later, so the public URL must use https.
//! Plain http is allowed only on loopback, for trials.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;

use toml::Table;

use super::hidden::HIDDEN;
use super::layers::set;
use super::reader::Reader;

/// The name and look of the service in emails and pages.
#[derive(Debug, Clone)]
pub struct Site {
    /// The name of the service; never empty.
    pub name: String,
    /// The target of the heading and of "+12 more"; `None` for no link.
    pub url: Option<String>,
    /// The sender's postal address, which commercial email must contain; `None` for none.
    pub postal_address: Option<String>,
    /// The URL of an image that replaces the name in emails; `None` to show the name.
    pub logo: Option<String>,
    /// The color of links and headings, as `#rrggbb`.
    pub accent: String,
    /// The id under which Gmail counts spam reports, 5 to 15 characters; `None` for no
    /// `Feedback-ID`.
    pub feedback_id: Option<String>,
}

/// The HTTP interface.
#[derive(Clone)]
pub struct Server {
    /// The address and port to listen on.
    pub listen: SocketAddr,
    /// The bearer token of applications. If it is `None`, `serve` generates one.
    pub key: Option<String>,
    /// The public URL of the pages, without a trailing slash.
    pub public_url: Option<String>,
    /// The secret that signs links in emails; `None` for one that is kept in the store.
    pub link_secret: Option<String>,
    /// The origins whose pages may read responses, or `*` alone for all.
    pub cors_origins: Vec<String>,
    /// The most requests per second with a server key; `None` for no limit.
    pub rate_limit_key: Option<NonZeroU32>,
    /// The most requests per second with the tokens of one user; `None` for no limit.
    pub rate_limit_token: Option<NonZeroU32>,
}

/// The longest public URL, in bytes. Emails reserve room for links of this length plus a token.
const MAX_URL: usize = 500;
/// The shortest link secret, in bytes. A shorter one could be guessed.
const MIN_SECRET: usize = 16;
/// The shortest server key, in bytes. 32 hexadecimal digits are 128 random bits; NIST requires at
/// least 112 (SP 800-131A Rev. 2).
const MIN_KEY: usize = 32;
/// The highest rate limit, in requests per second.
const MAX_RATE: i64 = 1_000_000;

impl Site {
    /// Reads the section `[site]`. Adds a problem for each invalid value.
    pub fn read(r: &mut Reader<'_>) -> Self {
        Self {
            name: r.string("site.name"),
            url: r.link("site.url"),
            logo: r.link("site.logo"),
            postal_address: r.optional("site.postal_address"),
            accent: r.parse("site.accent", "a color written #rrggbb", color),
            feedback_id: r.optional_parse(
                "site.feedback_id",
                "5 to 15 letters, digits, - or _",
                feedback_id,
            ),
        }
    }
}

impl Server {
    /// Reads the section `[server]`. Adds a problem for each invalid value.
    pub fn read(r: &mut Reader<'_>) -> Self {
        let listen: SocketAddr = r.parse(
            "server.listen",
            "an address and port such as 127.0.0.1:8080",
            |text| text.parse().ok(),
        );
        Self {
            listen,
            key: key(r, listen),
            public_url: Self::read_public_url(r),
            link_secret: link_secret(r),
            cors_origins: origins(r),
            rate_limit_key: rate(r, "server.rate_limit_key"),
            rate_limit_token: rate(r, "server.rate_limit_token"),
        }
    }

    /// Returns the path of `public_url`, such as `/tidings`; empty if it has none. URLs in
    /// responses start with it, because a proxy serves them below it.
    pub fn public_path(&self) -> &str {
        let url = self.public_url.as_deref().unwrap_or_default();
        let (_, place) = url.split_once("://").unwrap_or_default();
        place.find('/').map_or("", |at| &place[at..])
    }

    pub(super) fn read_public_url(r: &mut Reader<'_>) -> Option<String> {
        r.optional_parse(
            "server.public_url",
            "an address such as https://news.example.org (plain http only on loopback)",
            url,
        )
    }

    /// Redacts the secrets that are set.
    pub(super) fn redact(&self, table: &mut Table) {
        for (option, secret) in [("key", &self.key), ("link_secret", &self.link_secret)] {
            if secret.is_some() {
                set(table, &format!("server.{option}"), HIDDEN);
            }
        }
    }
}

/// Reads a rate per second; `None` for 0.
fn rate(r: &mut Reader<'_>, option: &str) -> Option<NonZeroU32> {
    NonZeroU32::new(r.number(option, 0..=MAX_RATE) as u32)
}

/// Reads the origins in the form that browsers send, or `*` alone.
fn origins(r: &mut Reader<'_>) -> Vec<String> {
    const OPTION: &str = "server.cors_origins";
    let origins = r.list(OPTION);
    for origin in origins.iter().filter(|origin| !is_origin(origin)) {
        let what = format!(
            "{origin:?} is no origin: write the scheme, the host in lower case and, if it is not the usual one, the port, such as \"https://app.example\""
        );
        r.problem(OPTION, what);
    }
    if origins.len() > 1 && origins.iter().any(|origin| origin == "*") {
        r.problem(
            OPTION,
            "holds \"*\" beside others; leave one of the two out",
        );
    }
    origins
}

fn is_origin(text: &str) -> bool {
    let usual = |(scheme, port)| text.starts_with(scheme) && text.ends_with(port);
    let named = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-:[]".contains(c);
    let place = text.strip_prefix("https://");
    let place = place.or_else(|| text.strip_prefix("http://"));
    let sound = place.is_some_and(|place| {
        let host = place.split(':').next().unwrap_or_default();
        !host.is_empty() && place.chars().all(named)
    });
    // Browsers omit the default port.
    let spare = [("https://", ":443"), ("http://", ":80")]
        .into_iter()
        .any(usual);
    text == "*" || (sound && !spare)
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = |secret: &Option<String>| secret.as_ref().map(|_| "(hidden)");
        f.debug_struct("Server")
            .field("listen", &self.listen)
            .field("key", &hidden(&self.key))
            .field("public_url", &self.public_url)
            .field("link_secret", &hidden(&self.link_secret))
            .field("cors_origins", &self.cors_origins)
            .field("rate_limit_key", &self.rate_limit_key)
            .field("rate_limit_token", &self.rate_limit_token)
            .finish()
    }
}

fn color(text: &str) -> Option<String> {
    let digits = text.strip_prefix('#')?;
    (digits.len() == 6 && digits.bytes().all(|b| b.is_ascii_hexdigit())).then(|| text.to_owned())
}

/// Returns a base URL without its trailing slash, or `None` if paths cannot be appended to it.
fn url(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            port.parse::<u16>().ok()?;
            host
        }
        _ => authority,
    };
    let named = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    let sound = match host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
    {
        Some(v6) => v6.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(named),
    };
    let unreserved = |c: char| c.is_ascii_alphanumeric() || "-._~/%".contains(c);
    let safe = match scheme {
        "https" => true,
        "http" => is_loopback(host),
        _ => false,
    };
    let fits = text.len() <= MAX_URL;
    (fits && safe && sound && path.chars().all(unreserved))
        .then(|| text.trim_end_matches('/').to_owned())
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    let address = host.parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Checks the last part of a `Feedback-ID`, which Gmail requires to have 5 to 15 characters. A
/// colon would start another part.
fn feedback_id(text: &str) -> Option<String> {
    let known = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    ((5..=15).contains(&text.len()) && text.chars().all(known)).then(|| text.to_owned())
}

/// Reads the server key. It may be short if the server listens on loopback only.
fn key(r: &mut Reader<'_>, listen: SocketAddr) -> Option<String> {
    let key = r.secret("server.key", "server.key_file")?;
    if key.len() < MIN_KEY && !listen.ip().is_loopback() {
        let what = format!(
            "is shorter than {MIN_KEY} characters, and could be guessed by anybody who reaches {listen}; make one with: openssl rand -hex 24"
        );
        r.problem("server.key", what);
    }
    Some(key)
}

fn link_secret(r: &mut Reader<'_>) -> Option<String> {
    let secret = r.secret("server.link_secret", "server.link_secret_file")?;
    if secret.len() < MIN_SECRET {
        let what = format!("is shorter than {MIN_SECRET} characters, and could be guessed");
        r.problem("server.link_secret", what);
    }
    Some(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_url_uses_https_or_loopback() {
        for (text, expected) in [
            ("https://news.example.org", "https://news.example.org"),
            ("https://news.example.org/", "https://news.example.org"),
            (
                "https://example.org:8443/mail/",
                "https://example.org:8443/mail",
            ),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://localhost:8080", "http://localhost:8080"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("https://[2001:db8::1]", "https://[2001:db8::1]"),
        ] {
            assert_eq!(url(text).as_deref(), Some(expected));
        }
        for text in [
            "news.example.org",
            "http://news.example.org",
            "http://localhost.example.org",
            "http://127.0.0.1.example.org",
            "https://",
            "https:///u",
            "https://example.org?x=1",
            "https://example.org/#x",
            "https://user:pass@example.org",
            "https://example.org:99999",
            "https://exa mple.org",
            "https://example.org/\"><b>",
            "https://[::1",
            "ftp://example.org",
        ] {
            assert_eq!(url(text), None, "{text}");
        }
    }

    #[test]
    fn an_origin_has_the_form_that_browsers_send() {
        for text in [
            "*",
            "https://app.example",
            "https://app.example:8443",
            "http://localhost:5173",
            "http://[::1]:3000",
        ] {
            assert!(is_origin(text), "{text}");
        }
        for text in [
            "app.example",
            "https://",
            "https://:8443",
            "https://app.example/",
            "https://App.example",
            "https://app.example:443",
            "http://app.example:80",
            "https://*.example",
            "https://a.example,https://b.example",
            "null",
        ] {
            assert!(!is_origin(text), "{text}");
        }
    }

    #[test]
    fn a_feedback_id_has_five_to_fifteen_plain_characters() {
        assert!(feedback_id("tidings").is_some() && feedback_id("art-news_2026").is_some());
        for text in ["news", "a:b:c", "sixteen-letters-x", "tidings ", "tidîngs"] {
            assert_eq!(feedback_id(text), None, "{text}");
        }
    }
}
