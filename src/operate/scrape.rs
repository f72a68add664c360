//! Serves metrics: the counters of this process, and the pending work in the store.
//!
//! A scrape always gets an answer, and soon. The store is queried at most once in [`FRESH`]. A slow
//! query continues in the background, and the scrape returns the previous values. If these are
//! older than [`STALE`], or the last query failed, it reports the store as down.

use std::sync::{self, Arc, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::Mutex;

use crate::context::Context;
use crate::domain::Pause;
use crate::engine::Result;
use crate::engine::digest::owed::OwedDays;
use crate::metrics::{Gauges, Known, Metrics, Pile};
use crate::store::{self, Outstanding};

/// How long values from the store are reused.
const FRESH: TimeDelta = TimeDelta::seconds(5);
/// How long a scrape waits for the store.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the store may take in the background.
const TIMEOUT: Duration = Duration::from_secs(30);
/// A slow store counts as up until its last backlog is older than this.
const STALE: TimeDelta = TimeDelta::minutes(2);
/// Waiting work is counted up to this number.
const MOST: u64 = 10_000;

/// The latest values from the store, shared by all scrapes of a process.
#[derive(Default)]
pub struct ScrapeCache {
    /// Locked during the query, so that concurrent scrapes send one.
    asking: Arc<Mutex<()>>,
    last: sync::Mutex<LastAnswer>,
}

#[derive(Clone, Copy, Default)]
struct LastAnswer {
    backlog: Option<ScrapedBacklog>,
    /// Whether the store answered the last question.
    answered: bool,
}

#[derive(Clone, Copy)]
struct ScrapedBacklog {
    at: DateTime<Utc>,
    outstanding: Outstanding,
    /// The start of the oldest day before the window that may have a backlog.
    owed: Option<DateTime<Utc>>,
    owed_events: u64,
    blocked_events: u64,
    expired_events: (u64, u64),
    paused: bool,
}

/// Serves metrics.
#[derive(Clone)]
pub struct Scrape {
    pub(crate) metrics: Metrics,
    pub(crate) context: Arc<Context>,
    pub(crate) owed: OwedDays,
    pub(crate) cache: Arc<ScrapeCache>,
}

impl Scrape {
    /// Returns all metrics in the text format of Prometheus.
    pub async fn text(&self) -> std::result::Result<String, std::fmt::Error> {
        let gauges = self.gauges().await;
        self.metrics.text(&gauges)
    }

    async fn gauges(&self) -> Gauges {
        let asking = &self.cache.asking;
        if !self.is_fresh()
            && let Ok(turn) = asking.clone().try_lock_owned()
        {
            let scrape = self.clone();
            tokio::spawn(async move {
                let _turn = turn;
                let asked = tokio::time::timeout(TIMEOUT, scrape.ask()).await;
                let failed = match asked {
                    Ok(Ok(())) => return,
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => format!("the store took more than {TIMEOUT:?}"),
                };
                scrape.last().answered = false;
                tracing::warn!(error = failed, "metrics report the last known backlog");
            });
        }
        let in_time = tokio::time::timeout(PATIENCE, asking.lock()).await.is_ok();
        let LastAnswer { backlog, answered } = *self.last();
        let now = self.context.clock.now();
        let is_recent = |backlog: ScrapedBacklog| (now - backlog.at).abs() < STALE;
        let up = answered && (in_time || backlog.is_some_and(is_recent));
        let known = backlog.map(|backlog| backlog.known(now));
        Gauges { up, known }
    }

    fn last(&self) -> MutexGuard<'_, LastAnswer> {
        let last = self.cache.last.lock();
        last.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the values are recent. After the clock was set back, values from the future
    /// are not.
    fn is_fresh(&self) -> bool {
        let now = self.context.clock.now();
        let backlog = self.last().backlog;
        backlog.is_some_and(|backlog| (now - backlog.at).abs() < FRESH)
    }

    async fn ask(&self) -> Result<()> {
        let now = self.context.clock.now();
        let days = self.owed.days_read(now);
        let paused = async {
            let pause = Pause::current(&*self.context.store).await;
            pause.map(|pause| pause.is_some())
        };
        let outstanding = async { Ok(self.context.store.outstanding(now, MOST).await?) };
        let owed = async { Ok(self.owed.look(&days).await?) };
        let told = async { Ok(self.owed.told().await?) };
        let (outstanding, owed, told, paused) =
            futures::try_join!(outstanding, owed, told, paused)?;
        let expired = told.given_up.values().map(|owed| owed.events).sum::<u64>();
        let expired_blocked = told.given_up_blocked.events;
        let backlog = ScrapedBacklog {
            at: self.context.clock.now(),
            outstanding,
            owed: owed.older.first().map(|old| old.day.start()),
            owed_events: told.owed.map_or(0, |look| look.owed.events),
            blocked_events: told.owed.map_or(0, |look| look.blocked.events),
            expired_events: (expired.saturating_sub(expired_blocked), expired_blocked),
            paused,
        };
        *self.last() = LastAnswer {
            backlog: Some(backlog),
            answered: true,
        };
        Ok(())
    }
}

impl ScrapedBacklog {
    fn known(self, now: DateTime<Utc>) -> Known {
        let age = |since: DateTime<Utc>| (now - since).as_seconds_f64().max(0.0);
        let pile = |pile: store::Pile| Pile {
            count: pile.count,
            age: pile.since.map_or(0.0, age),
        };
        let outstanding = self.outstanding;
        Known {
            age: age(self.at),
            most: MOST,
            fanouts: pile(outstanding.fanouts),
            batches_open: outstanding.batches_open,
            batches_due: pile(outstanding.batches_due),
            pending: pile(outstanding.pending),
            sending: pile(outstanding.sending),
            unknown: outstanding.unknown.count,
            leases: outstanding.leases,
            owed: self.owed.map_or(0.0, age),
            owed_events: self.owed_events,
            blocked_events: self.blocked_events,
            expired_events: self.expired_events,
            paused: self.paused,
        }
    }
}
