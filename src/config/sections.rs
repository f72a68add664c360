//! The small sections of the configuration.

use std::net::SocketAddr;

use chrono::{DateTime, TimeDelta, Utc};

use super::reader::TableReader;
use crate::domain::email_sections::ItemLimits;
use crate::domain::name::named_enum;
use crate::domain::schedule::SCAN_INTERVAL;
use crate::domain::{Schedule, SendSettings, Share};
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
pub(super) use section;

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
