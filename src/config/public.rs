//! What the world sees of an installation: what it is called, where it is reached, and what its
//! links are signed with.
//!
//! The rule: a link in a mail travels in clear and is clicked a year later, so it leads to https;
//! plain http is for trying things out on one machine.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::reader::Reader;

/// What mails and pages call the service, and how they look.
#[derive(Debug, Clone)]
pub struct Site {
    /// What mails and pages call the service; never empty.
    pub name: String,
    /// Where the heading and "+12 more" lead; `None` for nowhere.
    pub url: Option<String>,
    /// The sender's postal address, which commercial mail must carry; `None` for none.
    pub postal_address: Option<String>,
    /// The color of links and headings, as `#rrggbb`.
    pub accent: String,
    /// What Gmail counts spam reports under, 5 to 15 characters; `None` for no `Feedback-ID`.
    pub feedback_id: Option<String>,
}

/// The HTTP face.
#[derive(Clone)]
pub struct Server {
    /// Where it listens.
    pub listen: SocketAddr,
    /// What applications show as a bearer token; `None` makes `serve` make one up.
    pub key: Option<String>,
    /// Where people reach the pages, without a slash at its end.
    pub public_url: Option<String>,
    /// What links in mails are signed with; `None` for one that is kept in the store.
    pub link_secret: Option<String>,
}

/// Mails keep room for links of this address and a token.
const MAX_URL: usize = 500;
/// A shorter secret could be guessed.
const MIN_SECRET: usize = 16;

impl Site {
    /// Takes the section `[site]`; what is wrong in it becomes a problem of the reader's.
    pub fn read(r: &mut Reader<'_>) -> Self {
        Self {
            name: r.string("site.name"),
            url: r.link("site.url"),
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
    /// Takes the section `[server]`; what is wrong in it becomes a problem of the reader's.
    pub fn read(r: &mut Reader<'_>) -> Self {
        let listen: SocketAddr = r.parse(
            "server.listen",
            "an address and port such as 127.0.0.1:8080",
            |text| text.parse().ok(),
        );
        Self {
            listen,
            key: key(r, listen),
            public_url: r.optional_parse(
                "server.public_url",
                "an address such as https://news.example.org (plain http only on loopback)",
                url,
            ),
            link_secret: link_secret(r),
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = |secret: &Option<String>| secret.as_ref().map(|_| "(hidden)");
        f.debug_struct("Server")
            .field("listen", &self.listen)
            .field("key", &hidden(&self.key))
            .field("public_url", &self.public_url)
            .field("link_secret", &hidden(&self.link_secret))
            .finish()
    }
}

fn color(text: &str) -> Option<String> {
    let digits = text.strip_prefix('#')?;
    (digits.len() == 6 && digits.bytes().all(|b| b.is_ascii_hexdigit())).then(|| text.to_owned())
}

/// A web address that paths can be put behind, without the slash at its end.
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

/// The last part of a `Feedback-ID`, which Gmail wants to have 5 to 15 characters. A colon would
/// begin another part.
fn feedback_id(text: &str) -> Option<String> {
    let known = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    ((5..=15).contains(&text.len()) && text.chars().all(known)).then(|| text.to_owned())
}

/// The key that applications bring. Whoever is on this machine already may have a short one to
/// type.
fn key(r: &mut Reader<'_>, listen: SocketAddr) -> Option<String> {
    let key = r.secret("server.key", "server.key_file")?;
    if key.len() < MIN_SECRET && !listen.ip().is_loopback() {
        let what = format!(
            "is shorter than {MIN_SECRET} characters, and could be guessed by anybody who reaches {listen}; make one with: openssl rand -hex 24"
        );
        r.problem("server.key", what);
    }
    Some(key)
}

/// The secret that links are signed with, from its option or its file.
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
    fn a_public_address_is_https_or_on_loopback() {
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
    fn a_feedback_id_has_five_to_fifteen_plain_characters() {
        assert!(feedback_id("tidings").is_some() && feedback_id("art-news_2026").is_some());
        for text in ["news", "a:b:c", "sixteen-letters-x", "tidings ", "tidîngs"] {
            assert_eq!(feedback_id(text), None, "{text}");
        }
    }
}
