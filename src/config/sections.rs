//! The small sections of the configuration.

use std::net::SocketAddr;

use chrono::{DateTime, TimeDelta, Utc};

use super::reader::Reader;
use crate::domain::content::Caps;
use crate::domain::name::named_enum;
use crate::domain::schedule::TICK;
use crate::domain::{Schedule, Sending, Share};
use crate::email::hooks::Keys;
use crate::email::providers::{HookKey, PROVIDERS};

const SECOND: TimeDelta = TimeDelta::seconds(1);
const HOUR: TimeDelta = TimeDelta::hours(1);
const DAY: TimeDelta = TimeDelta::days(1);

/// The section `[fanout]`, validated.
#[derive(Debug, Clone, Copy)]
pub struct Fanout {
    /// The most entries in one user's day, 10 to 100,000.
    pub day_cap: usize,
    /// The number of users between two saves of the cursor, 100 to 50,000.
    pub page: usize,
    /// The most fan-outs that are processed together, 1 to 500.
    pub merge: usize,
    /// How long a lease on a fan-out lasts without renewal, 5 seconds to 1 hour.
    pub lease: TimeDelta,
    /// The longest time that fan-outs to large audiences wait to be merged with others: 0 to 30
    /// seconds, and at most half of `lease`.
    pub linger: TimeDelta,
}

impl Fanout {
    pub(super) fn read(r: &mut Reader<'_>) -> Self {
        let lease = r.duration("fanout.lease", SECOND * 5..=HOUR);
        let linger = r.duration("fanout.linger", TimeDelta::zero()..=SECOND * 30);
        Self {
            day_cap: r.number("fanout.day_cap", 10..=100_000),
            page: r.number("fanout.page", 100..=50_000),
            merge: r.number("fanout.merge", 1..=500),
            lease,
            linger: linger.min(lease / 2),
        }
    }
}

/// The section `[digest]`, validated.
#[derive(Debug, Clone, Copy)]
pub struct Digest {
    /// The schedule of users who chose none.
    pub schedule: Schedule,
    /// The most items of a section and of an email.
    pub caps: Caps,
    /// The maximum age of an included event, 14 to 365 days. Older events expire.
    pub max_age: TimeDelta,
    /// The interval of full scans, 15 minutes to 1 day. Other scans read only users whose hour has
    /// come.
    pub full_look: TimeDelta,
    /// Whether digests exclude events that the user has seen in the feed.
    pub skip_seen: bool,
}

impl Digest {
    pub(super) fn read(r: &mut Reader<'_>) -> Self {
        let weekdays = "a weekday: mon, tue, wed, thu, fri, sat or sun";
        Self {
            schedule: Schedule {
                cadence: r.parse("digest.cadence", "never, daily or weekly"),
                weekday: r.parse("digest.weekday", weekdays),
                hour: r.number("digest.hour", 0..=23),
                tz: r.parse("digest.timezone", "a time zone such as Europe/Paris"),
            },
            caps: Caps {
                section: r.number("digest.section_items", 1..=200),
                total: r.number("digest.items", 1..=1000),
            },
            // A digest may be late by a whole period, a week at most.
            max_age: r.duration("digest.max_age", DAY * 14..=DAY * 365),
            full_look: r.duration("digest.full_look", TICK..=DAY),
            skip_seen: r.flag("digest.skip_seen"),
        }
    }
}

/// The section `[feed]`, validated.
#[derive(Debug, Clone, Copy)]
pub struct Feed {
    /// Events before this time count as seen.
    pub since: Option<DateTime<Utc>>,
    /// How long an unchanged poll is answered without reading the store, 0 to 5 minutes.
    pub fresh: TimeDelta,
    /// The most streams that one process serves at once, 0 to 100,000.
    pub streams: usize,
}

impl Feed {
    pub(super) fn read(r: &mut Reader<'_>) -> Self {
        Self {
            since: r.optional_parse("feed.since", "a moment such as 2014-04-22T09:00:00Z"),
            fresh: r.duration("feed.fresh", TimeDelta::zero()..=TimeDelta::minutes(5)),
            streams: r.number("feed.streams", 0..=100_000),
        }
    }
}

/// Reads the section `[delivery]`, except `soft_bounces`.
pub(super) fn delivery(r: &mut Reader<'_>) -> Sending {
    fn share(r: &mut Reader<'_>, option: &str) -> Share {
        r.parse(option, "a percentage such as 20% or 0.5%")
    }
    let sending = Sending {
        chunk: r.number("delivery.chunk", 1..=1000),
        in_flight: r.number("delivery.in_flight", 1..=64),
        lease: r.duration("delivery.lease", SECOND * 10..=HOUR),
        retry_after: r.duration("delivery.retry_after", SECOND..=DAY),
        attempts: r.number("delivery.attempts", 1..=100),
        give_up_after: r.duration("delivery.give_up_after", SECOND * 60..=DAY * 30),
        ask_after: r.duration("delivery.ask_after", SECOND..=HOUR),
        ask_until: r.duration("delivery.ask_until", SECOND..=DAY),
        resolve_within: r.duration("delivery.resolve_within", SECOND..=DAY * 7),
        guarantee: r.parse("delivery.guarantee", "at-most-once or at-least-once"),
        stop_after: r.number("delivery.stop_after", 1..=1_000_000),
        stop_share: share(r, "delivery.stop_share"),
        stop_bounces: share(r, "delivery.stop_bounces"),
        stop_complaints: share(r, "delivery.stop_complaints"),
        mails_per_hour: r.number("delivery.mails_per_hour", 0..=100_000_000),
        patience: r.duration("delivery.patience", SECOND..=DAY),
        keep: r.duration("delivery.keep", DAY * 14..=DAY * 3_650),
    };
    if sending.ask_until < sending.ask_after {
        r.problem("delivery.ask_until", "is shorter than delivery.ask_after");
    }
    sending
}

/// The sections `[metrics]` and `[log]`, validated.
#[derive(Debug, Clone, Copy)]
pub struct Watch {
    /// The address that serves metrics without a key; `None` for none.
    pub metrics: Option<SocketAddr>,
    /// The format of the log.
    pub log: LogFormat,
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

impl Watch {
    pub(super) fn read(r: &mut Reader<'_>) -> Self {
        let address = "an address and port such as 127.0.0.1:9464";
        Self {
            metrics: r.optional_parse("metrics.listen", address),
            log: r.parse("log.format", "text or json"),
        }
    }
}

/// The section `[hooks]`, validated.
#[derive(Debug, Clone)]
pub struct Hooks {
    /// The keys that verify provider webhooks.
    pub keys: Keys,
    /// The number of soft bounces in a row that suppress an address: `delivery.soft_bounces`.
    pub soft_bounces: u64,
}

impl Hooks {
    pub(super) fn read(r: &mut Reader<'_>) -> Self {
        Self {
            keys: hook_keys(r),
            soft_bounces: r.number("delivery.soft_bounces", 1..=100),
        }
    }
}

/// Reads the keys of all providers.
pub(super) fn hook_keys(r: &mut Reader<'_>) -> Keys {
    let keys = PROVIDERS.iter().filter_map(|provider| {
        let key = hook_key(r, &provider.hook_key)?;
        Some((provider.name, key))
    });
    keys.collect()
}

fn hook_key(r: &mut Reader<'_>, key: &HookKey) -> Option<Vec<u8>> {
    let (user, password) = match *key {
        HookKey::Secret(option, parse) | HookKey::Public(option, parse) => {
            let key = parse(&r.secret(option, &format!("{option}_file"))?);
            return key.map_err(|what| r.problem(option, what)).ok();
        }
        HookKey::Login(user, password) => (user, password),
    };
    let secret = r.secret(password, &format!("{password}_file"));
    match (r.optional(user), secret) {
        (None, None) => {}
        (Some(name), _) if name.contains(':') => {
            r.problem(user, "holds a colon, which a user name cannot have here");
        }
        (Some(name), Some(secret)) => return Some(format!("{name}:{secret}").into()),
        (Some(_), None) => r.problem(password, format!("is missing, though {user} is set")),
        (None, Some(_)) => r.problem(user, format!("is missing, though {password} is set")),
    }
    None
}
