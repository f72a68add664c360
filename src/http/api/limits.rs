//! How often anyone may ask.
//!
//! The rule: each server key, and each person whatever their tokens, has a measure of its own, so
//! that nobody's haste is at another's cost. What is left is told with every answer, in the fields
//! of [draft-ietf-httpapi-ratelimit-headers][draft]. Each process counts for itself, and forgets
//! those who did not ask lately.
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

/// So many seconds' worth of requests may come at once.
const BURST: NonZeroU32 = NonZeroU32::new(6).expect("6 is not 0");
/// After so many requests those are forgotten who did not ask lately.
const SWEEP: u32 = 4_096;

/// What everybody may ask, and has asked.
pub(super) struct Limits {
    keys: Option<Limit<Option<KeyName>>>,
    people: Option<Limit<UserId>>,
}

/// Of one kind of asker.
struct Limit<K: Hash + Eq + Clone> {
    /// What the policy is called in headers.
    name: &'static str,
    /// Whose haste it is, for people to read.
    who: &'static str,
    asked: RateLimiter<K, HashMapStateStore<K>, DefaultClock, StateInformationMiddleware>,
    quota: Quota,
    since_sweep: AtomicU32,
}

/// How somebody stands after asking.
pub(super) struct Standing {
    name: &'static str,
    who: &'static str,
    /// How many requests the measure holds, and how long it takes to be full again.
    quota: u32,
    window: Duration,
    /// Requests that may be made at once.
    left: u32,
    /// Until all of the measure is there again.
    full_in: Duration,
    /// How long to wait, where this request was one too many.
    wait: Option<Duration>,
}

impl Limits {
    /// So many requests a second each, on average; as many as they like without a number.
    pub(super) fn new(of_key: Option<NonZeroU32>, of_person: Option<NonZeroU32>) -> Self {
        Self {
            keys: of_key.map(|rate| Limit::new("key", "this server key", rate)),
            people: of_person.map(|rate| Limit::new("token", "this person's tokens", rate)),
        }
    }

    /// Counts a request; nothing where there is no limit.
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
    /// What to answer, where it was one too many.
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

    /// Tells it in these headers.
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

/// Whole seconds, rounded up.
fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}
