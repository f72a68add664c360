//! Reads sections of the configuration: `[site]`, `[server]`, `[tokens]`, `[feed]`, `[fanout]`,
//! `[digest]`, `[delivery]`, `[hooks]`, `[metrics]` and `[log]`.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;

use chrono::{DateTime, TimeDelta, Utc};
use url::Url;
use x509_parser::pem::parse_x509_pem;

use super::reader::TableReader;
use crate::domain::email_sections::ItemLimits;
use crate::domain::name::named_enum;
use crate::domain::schedule::SCAN_INTERVAL;
use crate::domain::secrets::KeyMaterial;
use crate::domain::text_checks::plain_word;
use crate::domain::{Schedule, Secret, SendSettings, Share, Site, TokenKey};
use crate::email::hooks::HookKeys;
use crate::email::providers::{HookKey, PROVIDERS};

const SECOND: TimeDelta = TimeDelta::seconds(1);
const HOUR: TimeDelta = TimeDelta::hours(1);
const DAY: TimeDelta = TimeDelta::days(1);

/// Declares a section of the configuration. Each field has its documentation and the expression
/// that reads it. An invalid value adds a problem.
macro_rules! section {
    (
        $(#[$attribute:meta])*
        $name:ident($r:ident) { $($(#[$doc:meta])* $field:ident: $type:ty = $read:expr,)* }
    ) => {
        $(#[$attribute])*
        pub struct $name { $($(#[$doc])* pub $field: $type,)* }

        impl $name {
            pub(super) fn read($r: &mut TableReader<'_>) -> Self {
                Self { $($field: $read,)* }
            }
        }
    };
}

section! {
    /// The section `[fanout]`, validated.
    #[derive(Debug, Clone, Copy)]
    FanoutSettings(r) {
        /// The most entries in one user's day, 10 to 100,000.
        day_cap: usize = r.number("fanout.day_cap", 10..=100_000),
        /// The number of users between two saves of the cursor, 100 to 50,000.
        page: usize = r.number("fanout.page", 100..=50_000),
        /// The most fan-outs that are processed together, 1 to 500.
        merge: usize = r.number("fanout.merge", 1..=500),
        /// How long a lease on a fan-out lasts without renewal, 5 seconds to 1 hour.
        lease: TimeDelta = r.duration("fanout.lease", SECOND * 5..=HOUR),
        /// The longest time that fan-outs to large audiences wait to be merged with others, 0 to 30
        /// seconds. They wait at most for half of `lease`.
        linger: TimeDelta = r.duration("fanout.linger", TimeDelta::zero()..=SECOND * 30),
    }
}

section! {
    /// The section `[digest]`, validated.
    #[derive(Debug, Clone, Copy)]
    DigestSettings(r) {
        /// The schedule of users who chose none.
        schedule: Schedule = Schedule {
            cadence: r.parse("digest.cadence", "never, daily or weekly"),
            weekday: r.parse(
                "digest.weekday",
                "a weekday: mon, tue, wed, thu, fri, sat or sun",
            ),
            hour: r.number("digest.hour", 0..=23),
            tz: r.parse("digest.timezone", "a time zone such as Europe/Paris"),
        },
        /// The most items of a section and of an email.
        caps: ItemLimits = ItemLimits {
            section: r.number("digest.section_items", 1..=200),
            total: r.number("digest.items", 1..=1000),
        },
        /// The maximum age of an included event, 14 to 365 days. Older events expire. A digest may
        /// be late by a whole period, a week at most.
        max_age: TimeDelta = r.duration("digest.max_age", DAY * 14..=DAY * 365),
        /// The interval of full scans, 15 minutes to 1 day. Other scans read only users whose hour
        /// has come.
        full_scan: TimeDelta = r.duration("digest.full_scan", SCAN_INTERVAL..=DAY),
        /// Whether digests exclude events that the user has seen in the feed.
        skip_seen: bool = r.flag("digest.skip_seen"),
    }
}

section! {
    /// The section `[feed]`, validated.
    #[derive(Debug, Clone, Copy)]
    FeedSettings(r) {
        /// Events before this time count as seen.
        since: Option<DateTime<Utc>> =
            r.parse_non_empty("feed.since", "a moment such as 2014-04-22T09:00:00Z"),
        /// How long an unchanged poll is answered without reading the store, 0 to 5 minutes.
        fresh: TimeDelta = r.duration("feed.fresh", TimeDelta::zero()..=TimeDelta::minutes(5)),
        /// The most streams that one process serves at once, 0 to 100,000.
        streams: usize = r.number("feed.streams", 0..=100_000),
    }
}

/// Reads the section `[delivery]`, except `soft_bounces`.
pub(super) fn delivery(r: &mut TableReader<'_>) -> SendSettings {
    fn share(r: &mut TableReader<'_>, option: &str) -> Share {
        r.parse(option, "a percentage such as 20% or 0.5%")
    }
    let sending = SendSettings {
        chunk: r.number("delivery.chunk", 1..=1000),
        in_flight: r.number("delivery.in_flight", 1..=64),
        lease: r.duration("delivery.lease", SECOND * 10..=HOUR),
        retry_after: r.duration("delivery.retry_after", SECOND..=DAY),
        attempts: r.number("delivery.attempts", 1..=100),
        give_up_after: r.duration("delivery.give_up_after", SECOND * 60..=DAY * 30),
        ask_after: r.duration("delivery.ask_after", SECOND..=HOUR),
        ask_until: r.duration("delivery.ask_until", SECOND..=DAY),
        resolve_within: r.duration("delivery.resolve_within", SECOND..=DAY * 7),
        stop_after: r.number("delivery.stop_after", 1..=1_000_000),
        stop_share: share(r, "delivery.stop_share"),
        stop_bounces: share(r, "delivery.stop_bounces"),
        stop_complaints: share(r, "delivery.stop_complaints"),
        patience: r.duration("delivery.patience", SECOND..=DAY),
        keep: r.duration("delivery.keep", DAY * 14..=DAY * 3_650),
    };
    if sending.ask_until < sending.ask_after {
        r.add_problem("delivery.ask_until", "is shorter than delivery.ask_after");
    }
    sending
}

section! {
    /// The sections `[metrics]` and `[log]`, validated.
    #[derive(Debug, Clone, Copy)]
    ObservabilitySettings(r) {
        /// The address that serves metrics without a key; `None` for none.
        metrics: Option<SocketAddr> =
            r.parse_non_empty("metrics.listen", "an address and port such as 127.0.0.1:9464"),
        /// The format of the log.
        log: LogFormat = r.parse("log.format", "text or json"),
    }
}

named_enum! {
    /// The format of the log.
    LogFormat("log format") {
        /// One line per message, for people.
        Text = "text",
        /// One JSON object per line, for programs.
        Json = "json",
    }
}

section! {
    /// The section `[hooks]`, validated.
    #[derive(Debug, Clone)]
    HookSettings(r) {
        /// The keys that verify provider webhooks.
        keys: HookKeys = hook_keys(r),
        /// The number of soft bounces in a row that suppress an address: `delivery.soft_bounces`.
        soft_bounces: u64 = r.number("delivery.soft_bounces", 1..=100),
    }
}

/// Reads the keys of all providers.
pub(super) fn hook_keys(r: &mut TableReader<'_>) -> HookKeys {
    PROVIDERS
        .iter()
        .filter_map(|provider| Some((provider.name, hook_key(r, &provider.hook_key)?)))
        .collect()
}

fn hook_key(r: &mut TableReader<'_>, key: &HookKey) -> Option<Vec<u8>> {
    let (user_option, password_option) = match *key {
        HookKey::Key(option, parse) => {
            let secret = r.secret(option)?;
            return parse(&secret).map_err(|problem| r.add_problem(option, problem)).ok();
        }
        HookKey::Login(user, password) => (user, password),
    };
    let password = r.secret(password_option);
    match (r.non_empty(user_option), password) {
        (None, None) => {}
        (Some(user), _) if user.contains(':') => {
            r.add_problem(user_option, "holds a colon, which a user name cannot have here");
        }
        (Some(user), Some(password)) => return Some(format!("{user}:{password}").into()),
        (Some(_), None) => {
            r.add_problem(password_option, format!("is missing, though {user_option} is set"));
        }
        (None, Some(_)) => {
            r.add_problem(user_option, format!("is missing, though {password_option} is set"));
        }
    }
    None
}

/// Reads the section `[site]`.
pub(super) fn read_site(r: &mut TableReader<'_>) -> Site {
    let feedback_ids = "5 to 15 letters, digits, - or _";
    Site {
        name: r.string("site.name"),
        url: r.link("site.url"),
        postal_address: r.non_empty("site.postal_address"),
        logo: r.link("site.logo"),
        accent: r.parse_with("site.accent", "a color written #rrggbb", parse_color),
        feedback_id: r.parse_non_empty_with("site.feedback_id", feedback_ids, parse_feedback_id),
    }
}

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

/// The section `[tokens]`, validated.
#[derive(Debug, Clone)]
pub struct TokenSettings {
    /// The required audience of tokens.
    pub audience: String,
    /// The keys that may sign tokens. If there are none, all tokens are rejected.
    pub keys: Vec<TokenKey>,
}

/// The longest public URL, in bytes. Emails reserve room for links of this length plus a token.
const MAX_URL_BYTES: usize = 500;
/// The shortest link secret, in bytes. A shorter one could be guessed.
const MIN_LINK_SECRET_BYTES: usize = 16;
/// The shortest server key, in bytes. 32 hexadecimal digits are 128 random bits; NIST requires at
/// least 112 (SP 800-131A Rev. 2).
const MIN_KEY_BYTES: usize = 32;
/// The shortest secret that signs user tokens, in bytes: the length of a hash (RFC 7518, section
/// 3.2).
const MIN_TOKEN_SECRET_BYTES: usize = 32;
/// The DER prefix of the 32 bytes of an Ed25519 public key (RFC 8410, section 4).
const ED25519_PREFIX: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

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

fn parse_color(text: &str) -> Option<String> {
    let digits = text.strip_prefix('#')?;
    (digits.len() == 6 && digits.bytes().all(|b| b.is_ascii_hexdigit())).then(|| text.to_owned())
}

fn parse_feedback_id(text: &str) -> Option<String> {
    plain_word(text, "-_", 5..=15)
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

impl TokenSettings {
    /// Reads the section `[tokens]`. Adds a problem for each invalid value.
    pub(super) fn read(r: &mut TableReader<'_>) -> Self {
        let default_key = read_token_secret(r, "tokens")
            .map(|material| TokenKey { id: "default".to_owned(), material });
        let materials = r.each("tokens.keys", |r, _: &String, path| read_token_key(r, path));
        let named_keys: Vec<TokenKey> = materials
            .into_iter()
            .filter_map(|(id, material)| Some(TokenKey { id, material: material? }))
            .collect();
        if default_key.is_some() && named_keys.iter().any(|key| key.id == "default") {
            let problem = "has the id of the key tokens.secret; give it another";
            r.add_problem("tokens.keys.default", problem);
        }
        let keys = default_key.into_iter().chain(named_keys).collect();
        Self { audience: r.string("tokens.audience"), keys }
    }
}

/// Reads a key: either a secret (HS256), or the file of a public key (EdDSA).
fn read_token_key(r: &mut TableReader<'_>, path: &str) -> Option<KeyMaterial> {
    let option = |name: &str| format!("{path}.{name}");
    let (secret_option, public_option) = (option("secret"), option("public_key_file"));
    let secret = read_token_secret(r, path);
    match (secret, r.non_empty(&public_option)) {
        (Some(secret), None) => return Some(secret),
        (None, Some(file)) => {
            return read_public_key(r, &public_option, &file).map(KeyMaterial::EdDsa);
        }
        (Some(_), Some(_)) => {
            let problem = format!("cannot be set together with {secret_option}");
            r.add_problem(&public_option, problem);
        }
        // A secret that was rejected is not missing.
        (None, None) if r.has_problem(&secret_option) || r.has_problem(&option("secret_file")) => {}
        (None, None) => {
            let problem = "is missing; set it, secret_file or public_key_file";
            r.add_problem(&secret_option, problem);
        }
    }
    None
}

fn read_token_secret(r: &mut TableReader<'_>, path: &str) -> Option<KeyMaterial> {
    let option = format!("{path}.secret");
    let secret = r.secret(&option)?;
    if secret.len() < MIN_TOKEN_SECRET_BYTES {
        let problem = format!(
            "is shorter than {MIN_TOKEN_SECRET_BYTES} characters, and could be guessed by every owner of a token; make one with: openssl rand -hex 32"
        );
        r.add_problem(&option, problem);
    }
    Some(KeyMaterial::Hs256(Secret::new(secret)))
}

fn read_public_key(r: &mut TableReader<'_>, option: &str, file: &str) -> Option<[u8; 32]> {
    let key = parse_ed25519_key(&r.key_file(option, file)?);
    if key.is_none() {
        let problem = format!("{file} is not the PEM of an Ed25519 public key (BEGIN PUBLIC KEY)");
        r.add_problem(option, problem);
    }
    key
}

/// Returns the key in a PEM (RFC 7468): SubjectPublicKeyInfo in base64, between two lines.
fn parse_ed25519_key(text: &str) -> Option<[u8; 32]> {
    let (_, pem) = parse_x509_pem(text.as_bytes()).ok()?;
    let key = pem.contents.strip_prefix(&ED25519_PREFIX)?;
    key.try_into().ok().filter(|_| pem.label == "PUBLIC KEY")
}

#[cfg(test)]
#[path = "sections_tests.rs"]
mod tests;
