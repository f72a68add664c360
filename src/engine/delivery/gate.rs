//! Decides whether a provider call may start now.
//!
//! No process sends while the provider asks for a wait ([`shared`]) or while sending is paused
//! ([`pause`]). Each call waits for its turn and for the rate limit ([`pacer`]), then reads the
//! shared state again just before it starts. `delivery.mails_per_hour` applies to all processes:
//! only the holder of the lease `pace` may send, for as long as its emails take at that rate.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep};

use crate::context::Context;
use crate::domain::{BrandName, Lease, Pause, Sending};
use crate::email::{Leave, Mailer, Standing};
use crate::engine::Result;

mod lately;
mod pacer;
mod pause;
mod shared;

pub use pacer::{Pacer, Turn};

/// Decides whether calls may start at one provider account, for one brand.
#[derive(Clone)]
pub struct Gate {
    pub(crate) context: Arc<Context>,
    /// Owner of the leases that this process takes for this account.
    pub owner: String,
    /// Limits, lease durations and the shares of failures that pause sending.
    pub settings: Sending,
    /// Prefix of the references of all calls for this brand at the mailer's account.
    pub account_prefix: String,
    /// The provider account, which several brands may share.
    pub account: Account,
    /// Limits known to this process, shared by all its senders at the account.
    pub(crate) pacer: Arc<Pacer>,
}

/// Whether calls may start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateState {
    /// A call may start now.
    Open,
    /// No call may start before this time, because of the provider or `delivery.mails_per_hour`.
    ClosedUntil(DateTime<Utc>),
    /// No call may start until an operator resumes.
    Paused(Pause),
    /// This process is shutting down and starts no more calls.
    Stopping,
}

/// Why an email is deferred, and until when if that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub until: Option<DateTime<Utc>>,
    pub reason: String,
}

impl From<String> for Held {
    fn from(reason: String) -> Self {
        let until = None;
        Self { until, reason }
    }
}

impl GateState {
    /// Returns the reason and the time to store for an email that this state defers.
    pub(super) fn holds(&self) -> Held {
        match self {
            Self::Open => "it waits".to_owned().into(),
            Self::ClosedUntil(until) => Held {
                until: Some(*until),
                reason: "it waits for its turn".to_owned(),
            },
            Self::Paused(pause) => format!("sending is paused: {}", pause.reason).into(),
            Self::Stopping => "the process that held it ended".to_owned().into(),
        }
    }
}

/// How soon to ask again for the lease `pace` while another process holds it.
const ASK_AGAIN: TimeDelta = TimeDelta::seconds(5);

/// The longest time between the checks of an email and the start of its call (P6, P7).
pub(super) const FRESH: TimeDelta = TimeDelta::seconds(2);

/// Returns the prefix of the references of all calls for this brand at the mailer's account. It
/// identifies the brand of a call later.
pub fn account_prefix(mailer: &dyn Mailer, brand: Option<&BrandName>) -> String {
    match brand {
        Some(brand) => prefix(&format!("{}\0{brand}", mailer.account())),
        None => prefix(&mailer.account()),
    }
}

fn prefix(text: &str) -> String {
    hex::encode(&Sha256::digest(text)[..4]) + "-"
}

/// A provider account, as named in notes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account {
    /// A short hash that identifies the account.
    pub name: String,
    /// Whether it is the default account, which belongs to no brand.
    pub is_default: bool,
}

impl Account {
    /// Returns the default account at this mailer.
    pub fn of_default(mailer: &dyn Mailer) -> Self {
        Self {
            name: account_prefix(mailer, None),
            is_default: true,
        }
    }

    /// Returns the account that `told_apart` identifies, for a brand with its own provider account.
    pub fn of_brand(told_apart: &str) -> Self {
        Self {
            name: prefix(told_apart),
            is_default: false,
        }
    }
}

impl Gate {
    /// Waits for the exclusive right to make calls at this account. Tasks get it in the order in
    /// which they asked. It ends when the [`Turn`] is dropped.
    pub async fn turn(&self) -> Turn {
        self.pacer.turn().await
    }

    /// Returns whether work on new rows may start. Also checks `delivery.mails_per_hour`.
    pub async fn before_chunk(&self) -> Result<GateState> {
        match self.before_call().await? {
            GateState::Open => {
                let paced = self.pacer.paced(self.context.clock.now());
                Ok(paced.map_or(GateState::Open, GateState::ClosedUntil))
            }
            held => Ok(held),
        }
    }

    /// Waits until the rate limit permits one more call.
    pub(super) async fn permit(&self) {
        while let Some(wait) = self.pacer.too_soon() {
            sleep(wait).await;
        }
    }

    /// Checks that a call may start now. Returns the reason if it may not.
    pub(super) async fn before_send(&self, leave: &Leave) -> std::result::Result<(), Held> {
        if let Some(reason) = leave.withheld() {
            return Err(reason.into());
        }
        match self.before_call().await {
            Ok(GateState::Open) => Ok(()),
            Ok(held) => Err(held.holds()),
            Err(error) => {
                Err(format!("the store does not say whether it may leave: {error}").into())
            }
        }
    }

    /// Returns the number of rows to process together: with `delivery.mails_per_hour`, at most the
    /// emails of one minute.
    pub fn chunk(&self) -> usize {
        let chunk = self.settings.chunk;
        match self.settings.mails_per_hour as usize {
            0 => chunk,
            limit => chunk.min((limit / 60).max(1)),
        }
    }

    /// Reserves the time in which this number of emails may be sent. Returns `None` on success, or
    /// the time at which to ask again.
    pub(super) async fn pace(&self, mails: usize) -> Result<Option<DateTime<Utc>>> {
        let limit = i64::from(self.settings.mails_per_hour);
        if limit == 0 {
            return Ok(None);
        }
        let now = self.context.clock.now();
        let until = now + TimeDelta::milliseconds(3_600_000 * mails as i64 / limit);
        let asked = self.pacer.asks();
        // Each request has its own owner, because the holder of a lease could extend it.
        let lease = Lease {
            owner: format!("{}-{asked}", self.owner),
            until,
        };
        let granted = self.context.store.lease("pace", &lease, now).await?;
        let next = if granted {
            until
        } else {
            until.min(now + ASK_AGAIN)
        };
        self.pacer.pace_until(next);
        Ok((!granted).then_some(next))
    }

    /// Returns the permit to send a call that was first made at `tried`. The leases of its rows are
    /// about to be renewed.
    ///
    /// The permit ends half a lease from now, so the clocks of several machines may differ. It also
    /// ends one lease after `tried`, because [`super::retry`] relies on that. It checks the wall
    /// clock and the monotonic clock, so a process that was suspended notices it.
    pub(super) fn leave(&self, tried: DateTime<Utc>) -> Leave {
        let (now, lease) = (self.context.clock.now(), self.settings.lease);
        let until = (now + lease / 2).min(tried + lease);
        let (begun, span) = (Instant::now(), (until - now).to_std().unwrap_or_default());
        let (clock, pacer) = (self.context.clock.clone(), self.pacer.clone());
        Leave::new(move || {
            if clock.now() >= until || begun.elapsed() >= span {
                Standing::Over
            } else if pacer.ending() {
                Standing::Ending
            } else {
                Standing::Given
            }
        })
    }

    /// Returns the same permit, which also becomes stale [`FRESH`] after the checks.
    pub(super) fn fresh(&self, leave: Leave, checked: DateTime<Utc>) -> Leave {
        let clock = self.context.clock.clone();
        Leave::new(move || match leave.standing() {
            Standing::Given if clock.now() - checked > FRESH => Standing::Stale,
            standing => standing,
        })
    }
}
