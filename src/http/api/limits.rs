//! Rate limits per server key and per user, counted by each process.
//!
//! All tokens of a user share one limit, so no client slows another down. Every answer reports the
//! remaining requests in the fields of [draft-ietf-httpapi-ratelimit-headers][draft].
//!
//! [draft]: https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/

use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use governor::clock::{Clock, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};

use super::caller::Caller;
use super::problem::Problem;
use crate::domain::{KeyName, UserId};

/// The size of a burst, in seconds of the average rate.
const BURST: NonZeroU32 = NonZeroU32::new(6).expect("6 is not 0");
/// The number of requests after which idle callers are removed from memory.
const SWEEP: u32 = 4_096;

/// The limits of all callers; `None` where requests are not limited.
pub(super) struct Limits {
    keys: Option<Limit<Option<KeyName>>>,
    people: Option<Limit<UserId>>,
}

/// The limit for one kind of caller.
struct Limit<K: Hash + Eq + Clone> {
    /// The name of the policy in the headers.
    name: &'static str,
    /// The caller, for error messages.
    who: &'static str,
    asked: RateLimiter<K, HashMapStateStore<K>, DefaultClock, StateInformationMiddleware>,
    quota: Quota,
    since_sweep: AtomicU32,
}

/// The state of a caller's limit after a request.
pub(super) struct Standing {
    name: &'static str,
    who: &'static str,
    /// The size of a burst in requests, and the time in which a used burst is refilled.
    quota: u32,
    window: Duration,
    /// The number of requests that remain in the burst.
    left: u32,
    /// The time until the burst is full again.
    full_in: Duration,
    /// How long the caller has to wait, if this request exceeded the limit.
    wait: Option<Duration>,
}

impl Limits {
    /// Creates limits in requests per second. `None` means no limit.
    pub(super) fn new(of_key: Option<NonZeroU32>, of_person: Option<NonZeroU32>) -> Self {
        Self {
            keys: of_key.map(|rate| Limit::new("key", "this server key", rate)),
            people: of_person.map(|rate| Limit::new("token", "this person's tokens", rate)),
        }
    }

    /// Counts a request. Returns `None` if the caller has no limit.
    pub(super) fn ask(&self, caller: &Caller) -> Option<Standing> {
        match caller {
            Caller::Key { name, .. } => Some(self.keys.as_ref()?.ask(name)),
            Caller::Person { user, .. } => Some(self.people.as_ref()?.ask(user)),
        }
    }
}

impl<K: Hash + Eq + Clone> Limit<K> {
    fn new(name: &'static str, who: &'static str, rate: NonZeroU32) -> Self {
        let quota = Quota::per_second(rate).allow_burst(rate.saturating_mul(BURST));
        Self {
            name,
            who,
            asked: RateLimiter::hashmap(quota).with_middleware(),
            quota,
            since_sweep: AtomicU32::new(0),
        }
    }

    fn ask(&self, key: &K) -> Standing {
        if self.since_sweep.fetch_add(1, Ordering::Relaxed) >= SWEEP {
            self.since_sweep.store(0, Ordering::Relaxed);
            self.asked.retain_recent();
            self.asked.shrink_to_fit();
        }
        let (left, wait) = match self.asked.check_key(key) {
            Ok(snapshot) => (snapshot.remaining_burst_capacity(), None),
            Err(until) => (0, Some(until.wait_time_from(self.asked.clock().now()))),
        };
        let quota = self.quota.burst_size().get();
        Standing {
            name: self.name,
            who: self.who,
            quota,
            window: self.quota.burst_size_replenished_in(),
            left,
            full_in: self.quota.replenish_interval() * quota.saturating_sub(left),
            wait,
        }
    }
}

impl Standing {
    /// Returns the problem to answer with, if the request exceeded the limit.
    pub(super) fn problem(&self) -> Option<Problem> {
        let wait = seconds(self.wait?).max(1);
        let Self {
            who, quota, window, ..
        } = self;
        let window = seconds(*window);
        let detail =
            format!("{who} made more than {quota} requests in {window} s; ask again in {wait} s");
        Some(Problem::too_many(detail, wait))
    }

    /// Adds the `RateLimit` headers.
    pub(super) fn tell(&self, headers: &mut HeaderMap) {
        let (name, window, full_in) = (self.name, seconds(self.window), seconds(self.full_in));
        for (field, value) in [
            (
                "ratelimit-policy",
                format!("\"{name}\";q={};w={window}", self.quota),
            ),
            (
                "ratelimit",
                format!("\"{name}\";r={};t={full_in}", self.left),
            ),
        ] {
            let value = HeaderValue::try_from(value).expect("names and numbers are plain text");
            headers.insert(HeaderName::from_static(field), value);
        }
    }
}

/// Rounds up to whole seconds.
fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}
