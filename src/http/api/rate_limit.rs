//! Limits the request rate of each caller. Each process counts its own requests.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

use actix_web::http::header;
use governor::clock::Clock as _;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use super::problem::{Code, Problem};

/// The size of a burst, in seconds of the average rate.
const BURST_SECONDS: NonZeroU32 = NonZeroU32::new(6).expect("6 is not 0");
/// The number of requests after which idle callers are removed from memory.
const REQUESTS_PER_SWEEP: u32 = 4_096;

/// The limit for one kind of caller. All tokens of a user share one limit, so no client slows
/// another down.
pub(super) struct RateLimit {
    /// The caller, for error messages.
    caller: &'static str,
    limiter: DefaultKeyedRateLimiter<String>,
    quota: Quota,
    since_sweep: AtomicU32,
}

impl RateLimit {
    pub(super) fn new(caller: &'static str, rate: NonZeroU32) -> Self {
        let quota = Quota::per_second(rate).allow_burst(rate.saturating_mul(BURST_SECONDS));
        Self { caller, limiter: RateLimiter::hashmap(quota), quota, since_sweep: AtomicU32::new(0) }
    }

    pub(super) fn count(&self, name: &str) -> Result<(), Problem> {
        if self.since_sweep.fetch_add(1, Ordering::Relaxed) >= REQUESTS_PER_SWEEP {
            self.since_sweep.store(0, Ordering::Relaxed);
            self.limiter.retain_recent();
            self.limiter.shrink_to_fit();
        }
        self.limiter.check_key(&name.to_owned()).map_err(|until| {
            let wait = until.wait_time_from(self.limiter.clock().now());
            let seconds = wait.as_secs_f64().ceil().max(1.0);
            let window = self.quota.burst_size_replenished_in().as_secs_f64().ceil();
            let (caller, quota) = (self.caller, self.quota.burst_size());
            let detail = format!(
                "{caller} made more than {quota} requests in {window} s; ask again in {seconds} s"
            );
            let problem = Problem::new(Code::TooManyRequests, detail);
            problem.with(header::RETRY_AFTER, seconds.to_string())
        })
    }
}
