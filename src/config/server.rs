//! The sections `[site]`, `[server]` and `[tokens]`: what the service shows, and who may call it.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;

use chrono::TimeDelta;
use url::Url;
use x509_parser::pem::parse_x509_pem;

use super::reader::TableReader;
use super::sections::section;
use crate::domain::secrets::Material;
use crate::domain::text_checks::plain_word;
use crate::domain::{Secret, Site, TokenKey};

/// Reads the section `[site]`.
pub(super) fn read_site(r: &mut TableReader<'_>) -> Site {
    let feedback_ids = "5 to 15 letters, digits, - or _";
    Site {
        name: r.string("site.name"),
        url: r.link("site.url"),
        postal_address: r.optional("site.postal_address"),
        logo: r.link("site.logo"),
        accent: r.parse_with("site.accent", "a color written #rrggbb", color),
        feedback_id: r.optional_with("site.feedback_id", feedback_ids, feedback_id),
    }
}

section! {
    /// The HTTP interface.
    #[derive(Debug, Clone)]
    Server(r) {
        /// The address and port to listen on.
        listen: SocketAddr =
            r.parse("server.listen", "an address and port such as 127.0.0.1:8080"),
        /// The bearer token of applications. If it is `None`, `serve` generates one.
        key: Option<Secret> = r.secret("server.key").map(Secret::new),
        /// The public URL of the pages, without a trailing slash.
        public_url: Option<String> = Self::read_public_url(r),
        /// The secret that signs links in emails; `None` for one that is kept in the store.
        link_secret: Option<Secret> = link_secret(r),
        /// The origins whose pages may read responses, or `*` alone for all.
        cors_origins: Vec<String> = origins(r),
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

/// The section `[tokens]`, validated.
#[derive(Debug, Clone)]
pub struct TokenSettings {
    /// The required audience of tokens.
    pub audience: String,
    /// The keys that may sign tokens. If there are none, all tokens are rejected.
    pub keys: Vec<TokenKey>,
}

/// The longest public URL, in bytes. Emails reserve room for links of this length plus a token.
const MAX_URL: usize = 500;
/// The shortest link secret, in bytes. A shorter one could be guessed.
const MIN_LINK_SECRET: usize = 16;
/// The shortest server key, in bytes. 32 hexadecimal digits are 128 random bits; NIST requires at
/// least 112 (SP 800-131A Rev. 2).
const MIN_KEY: usize = 32;
/// The shortest secret that signs user tokens, in bytes: the length of a hash (RFC 7518, section
/// 3.2).
const MIN_TOKEN_SECRET: usize = 32;
/// The DER prefix of the 32 bytes of an Ed25519 public key (RFC 8410, section 4).
const ED25519: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

impl Server {
    /// Adds a problem for a short key, unless only this machine reaches the server.
    pub(super) fn check_key(&self, r: &mut TableReader<'_>) {
        let is_short = |key: &Secret| key.expose().len() < MIN_KEY;
        if self.key.as_ref().is_some_and(is_short) && !self.listen.ip().is_loopback() {
            let what = format!(
                "is shorter than {MIN_KEY} characters, and could be guessed by any client that reaches {}; make one with: openssl rand -hex 24",
                self.listen
            );
            r.problem("server.key", what);
        }
    }

    /// Returns the path of the public URL, without a trailing slash.
    pub fn public_path(&self) -> &str {
        let url = self.public_url.as_deref().unwrap_or_default();
        let (_, place) = url.split_once("://").unwrap_or_default();
        place.find('/').map_or("", |at| &place[at..])
    }

    pub(super) fn read_public_url(r: &mut TableReader<'_>) -> Option<String> {
        let wanted = "an address such as https://news.example.org (plain http only on loopback)";
        r.optional_with("server.public_url", wanted, public_url)
    }
}

fn link_secret(r: &mut TableReader<'_>) -> Option<Secret> {
    let secret = r.secret("server.link_secret")?;
    if secret.len() < MIN_LINK_SECRET {
        let what = format!("is shorter than {MIN_LINK_SECRET} characters, and could be guessed");
        r.problem("server.link_secret", what);
    }
    Some(Secret::new(secret))
}

fn origins(r: &mut TableReader<'_>) -> Vec<String> {
    const OPTION: &str = "server.cors_origins";
    let origins = r.list(OPTION);
    for origin in origins.iter().filter(|origin| !is_origin(origin)) {
        let what = format!(
            "{origin:?} is no origin: write the scheme, the host in lower case and, if it is not the usual one, the port, such as \"https://app.example\""
        );
        r.problem(OPTION, what);
    }
    if origins.len() > 1 && origins.iter().any(|origin| origin == "*") {
        r.problem(OPTION, "holds \"*\" beside others; leave one of the two out");
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

fn color(text: &str) -> Option<String> {
    let digits = text.strip_prefix('#')?;
    (digits.len() == 6 && digits.bytes().all(|b| b.is_ascii_hexdigit())).then(|| text.to_owned())
}

fn feedback_id(text: &str) -> Option<String> {
    plain_word(text, "-_", 5..=15)
}

/// Returns a URL without a trailing slash, login, query and fragment. Plain `http` is only for this
/// machine.
fn public_url(text: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~/%:[]".contains(c);
    let has_host = text.contains("://") && !text.contains(":///");
    let fits = has_host && text.len() <= MAX_URL && text.chars().all(plain);
    let url = Url::parse(text).ok().filter(|_| fits)?;
    // The API and the metrics have these paths, below any prefix.
    let is_taken =
        ["v1", "metrics"].contains(&url.path().trim_start_matches('/').split('/').next()?);
    (is_safe(&url) && !is_taken).then(|| text.trim_end_matches('/').to_owned())
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

impl TokenSettings {
    /// Reads the section `[tokens]`. Adds a problem for each invalid value.
    pub(super) fn read(r: &mut TableReader<'_>) -> Self {
        let alone = token_secret(r, "tokens")
            .map(|material| TokenKey { id: "default".to_owned(), material });
        let listed = r.each("tokens.keys", |r, id: &String, path| {
            let (id, material) = (id.clone(), token_key(r, path)?);
            Some(TokenKey { id, material })
        });
        let listed: Vec<TokenKey> = listed.into_iter().filter_map(|(_, key)| key).collect();
        if alone.is_some() && listed.iter().any(|key| key.id == "default") {
            let what = "has the id of the key tokens.secret; give it another";
            r.problem("tokens.keys.default", what);
        }
        let keys = alone.into_iter().chain(listed).collect();
        let audience = r.string("tokens.audience");
        Self { audience, keys }
    }
}

/// Reads a key: either a secret (HS256), or the file of a public key (EdDSA).
fn token_key(r: &mut TableReader<'_>, path: &str) -> Option<Material> {
    let option = |name: &str| format!("{path}.{name}");
    let (secret_option, public_option) = (option("secret"), option("public_key_file"));
    let secret = token_secret(r, path);
    match (secret, r.optional(&public_option)) {
        (Some(secret), None) => return Some(secret),
        (None, Some(file)) => {
            return public_key(r, &public_option, &file).map(Material::EdDsa);
        }
        (Some(_), Some(_)) => {
            let what = format!("cannot be set together with {secret_option}");
            r.problem(&public_option, what);
        }
        // A secret that was rejected is not missing.
        (None, None) if r.is_wrong(&secret_option) || r.is_wrong(&option("secret_file")) => {}
        (None, None) => {
            let what = "is missing; set it, secret_file or public_key_file";
            r.problem(&secret_option, what);
        }
    }
    None
}

fn token_secret(r: &mut TableReader<'_>, path: &str) -> Option<Material> {
    let option = format!("{path}.secret");
    let secret = r.secret(&option)?;
    if secret.len() < MIN_TOKEN_SECRET {
        let what = format!(
            "is shorter than {MIN_TOKEN_SECRET} characters, and could be guessed by every owner of a token; make one with: openssl rand -hex 32"
        );
        r.problem(&option, what);
    }
    Some(Material::Hs256(Secret::new(secret)))
}

fn public_key(r: &mut TableReader<'_>, option: &str, file: &str) -> Option<[u8; 32]> {
    let key = ed25519(&r.key_file(option, file)?);
    if key.is_none() {
        let what = format!("{file} is not the PEM of an Ed25519 public key (BEGIN PUBLIC KEY)");
        r.problem(option, what);
    }
    key
}

/// Returns the key in a PEM (RFC 7468): SubjectPublicKeyInfo in base64, between two lines.
fn ed25519(pem: &str) -> Option<[u8; 32]> {
    let (_, pem) = parse_x509_pem(pem.as_bytes()).ok()?;
    let key = pem.contents.strip_prefix(&ED25519)?;
    key.try_into().ok().filter(|_| pem.label == "PUBLIC KEY")
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
