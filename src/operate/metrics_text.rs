//! Serves metrics: the counters of this process, and the pending work in the store.
//!
//! A scrape always gets an answer, and soon. The store is queried at most once in [`FRESH`]. A slow
//! query continues in the background, and the scrape returns the previous values. If these are
//! older than [`STALE`], or the last query failed, it reports the store as down.

use std::sync::{self, Arc};
use std::time::Duration;

use chrono::TimeDelta;
use futures::TryFutureExt;
use tokio::sync::Mutex;

use crate::context::Context;
use crate::domain::Pause;
use crate::engine::digest::backlog::BacklogService;
use crate::engine::{Error, Result};
use crate::metrics::{StoreGauges, StoreState};
use crate::mutex::lock;

/// How long values from the store are reused.
const FRESH: TimeDelta = TimeDelta::seconds(5);
/// How long a scrape waits for the store.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the store may take in the background.
const QUERY_TIMEOUT: Duration = Duration::from_secs(30);
/// A slow store counts as up until its last backlog is older than this.
const STALE: TimeDelta = TimeDelta::minutes(2);
/// Pending work is counted up to this number.
const MAX_COUNT: u64 = 10_000;

/// The latest values from the store, shared by all scrapes of a process.
#[derive(Default)]
pub struct ScrapeCache {
    /// Locked during the query, so that concurrent scrapes send one.
    querying: Arc<Mutex<()>>,
    last: sync::Mutex<LastQuery>,
}

#[derive(Clone, Copy, Default)]
struct LastQuery {
    state: Option<StoreState>,
    /// Whether the last query succeeded.
    has_succeeded: bool,
}

/// Serves metrics.
#[derive(Clone)]
pub struct MetricsService {
    pub(crate) context: Arc<Context>,
    pub(crate) backlog: BacklogService,
    pub(crate) cache: Arc<ScrapeCache>,
}

impl MetricsService {
    /// Returns all metrics in the text format of Prometheus.
    pub async fn metrics_text(&self) -> std::result::Result<String, std::fmt::Error> {
        let gauges = self.gauges().await;
        self.context.metrics.export(&gauges)
    }

    async fn gauges(&self) -> StoreGauges {
        let querying = &self.cache.querying;
        if !self.is_younger(FRESH)
            && let Ok(guard) = querying.clone().try_lock_owned()
        {
            let scrape = self.clone();
            tokio::spawn(async move {
                let _guard = guard;
                let answer = tokio::time::timeout(QUERY_TIMEOUT, scrape.query()).await;
                let failed = match answer {
                    Ok(Ok(())) => return,
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => format!("the store took more than {QUERY_TIMEOUT:?}"),
                };
                lock(&scrape.cache.last).has_succeeded = false;
                tracing::warn!(error = failed, "metrics report the last known backlog");
            });
        }
        let is_in_time = tokio::time::timeout(SCRAPE_TIMEOUT, querying.lock()).await.is_ok();
        let LastQuery { state, has_succeeded } = *lock(&self.cache.last);
        let up = has_succeeded && (is_in_time || self.is_younger(STALE));
        StoreGauges { is_up: up, now: self.context.clock.now(), state }
    }

    /// Returns whether the last values are younger than this. After the clock was set back, values
    /// from the future are not.
    fn is_younger(&self, age: TimeDelta) -> bool {
        let (now, state) = (self.context.clock.now(), lock(&self.cache.last).state);
        state.is_some_and(|state| (now - state.at).abs() < age)
    }

    async fn query(&self) -> Result<()> {
        let (store, now) = (&*self.context.store, self.context.clock.now());
        let days = self.backlog.days_to_read(now);
        let (outstanding, backlog, last_run, pause) = futures::try_join!(
            store.outstanding(now, MAX_COUNT).err_into::<Error>(),
            self.backlog.old_days(&days).err_into::<Error>(),
            self.backlog.summary().err_into::<Error>(),
            Pause::current(store),
        )?;
        let expired: u64 = last_run.expired.values().map(|day| day.events).sum();
        let expired_blocked = last_run.expired_blocked.events;
        let state = StoreState {
            at: self.context.clock.now(),
            outstanding,
            oldest_backlog: backlog.mailable.first().map(|old| old.day.start()),
            backlog_events: last_run.events,
            blocked_events: last_run.blocked_events,
            expired_events: (expired.saturating_sub(expired_blocked), expired_blocked),
            paused: pause.is_some(),
        };
        *lock(&self.cache.last) = LastQuery { state: Some(state), has_succeeded: true };
        Ok(())
    }
}
