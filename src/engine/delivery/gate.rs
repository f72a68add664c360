//! Decides whether a provider call may start now.
//!
//! No process sends while the provider asks for a wait or while sending is paused ([`notes`]). Each
//! call waits for a call slot and for the rate limit ([`account`]), then reads the shared state
//! again just before it starts. `delivery.mails_per_hour` applies to all processes: only the holder
//! of the lease `pace` may send, for as long as its emails take at that rate.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::Instant;

use crate::context::Context;
use crate::domain::{Lease, Pause, Sending};
use crate::email::{Permit, PermitState};
use crate::engine::Result;
use crate::wire::digest::Ended;

mod account;
mod notes;

pub(super) use account::{CallSlot, CallSummary, digest_prefix};
pub use account::{ProviderAccount, account_prefix};

/// Decides whether calls may start at one provider account, for one brand.
#[derive(Clone)]
pub struct Gate {
    pub(crate) context: Arc<Context>,
    /// Limits, lease durations and the shares of failures that pause sending.
    pub settings: Sending,
    /// Prefix of the references of all calls for this brand at the mailer's account.
    pub account_prefix: String,
    /// The provider account, which several brands may share.
    pub(crate) account: Arc<ProviderAccount>,
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

impl GateState {
    /// Returns why a run ends in this state; `None` if it can wait or go on.
    pub fn ended(&self) -> Option<Ended> {
        match self {
            Self::Open | Self::ClosedUntil(_) => None,
            Self::Paused(pause) => Some(Ended::Paused(pause.clone())),
            Self::Stopping => Some(Ended::Stopped),
        }
    }

    /// Returns why an email is deferred in this state, and until when if that is known.
    pub(super) fn deferral(&self) -> (String, Option<DateTime<Utc>>) {
        match self {
            Self::Open => ("it waits".into(), None),
            Self::ClosedUntil(until) => ("it waits for its turn".into(), Some(*until)),
            Self::Paused(pause) => (format!("sending is paused: {}", pause.reason), None),
            Self::Stopping => ("the process that held it ended".into(), None),
        }
    }
}

/// How soon to request the lease `pace` again while another process holds it.
const REQUEST_AGAIN: TimeDelta = TimeDelta::seconds(5);

/// The longest time between the checks of an email and the start of its call (P6, P7).
pub(super) const FRESH: TimeDelta = TimeDelta::seconds(2);

impl Gate {
    /// Returns whether work on new rows may start. Also checks `delivery.mails_per_hour`.
    pub async fn before_chunk(&self) -> Result<GateState> {
        let state = self.before_call().await?;
        let paced = self.account.state().paced_until;
        let paced = paced.filter(|until| *until > self.context.clock.now());
        Ok(match (state, paced) {
            (GateState::Open, Some(until)) => GateState::ClosedUntil(until),
            (state, _) => state,
        })
    }

    /// Checks that a call may start now. Returns the reason and the wait if it may not.
    pub(super) async fn before_send(
        &self,
        permit: &Permit,
    ) -> std::result::Result<(), (String, Option<DateTime<Utc>>)> {
        if let Some(reason) = permit.withheld() {
            return Err((reason, None));
        }
        match self.before_call().await {
            Ok(GateState::Open) => Ok(()),
            Ok(state) => Err(state.deferral()),
            Err(error) => {
                let reason = format!("the store does not say whether it may leave: {error}");
                Err((reason, None))
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
        let Context {
            store,
            clock,
            ids,
            owner,
            ..
        } = &*self.context;
        let now = clock.now();
        let until = now + TimeDelta::milliseconds(3_600_000 * mails as i64 / limit);
        // Each request has its own owner, because the holder of a lease could extend it.
        let owner = format!("{owner}-{}", ids.next(now));
        let granted = store.lease("pace", &Lease { owner, until }, now).await?;
        let next = match granted {
            true => until,
            false => until.min(now + REQUEST_AGAIN),
        };
        self.account.state().paced_until = Some(next);
        Ok((!granted).then_some(next))
    }

    /// Returns the permit to send a call that was first made at `tried`. The leases of its rows are
    /// about to be renewed.
    ///
    /// The permit ends half a lease from now, so the clocks of several machines may differ. It also
    /// ends one lease after `tried`, because [`super::retry`] relies on that. It checks the wall
    /// clock and the monotonic clock, so a process that was suspended notices it.
    pub(super) fn send_permit(&self, tried: DateTime<Utc>) -> Permit {
        let (now, lease) = (self.context.clock.now(), self.settings.lease);
        let until = (now + lease / 2).min(tried + lease);
        let (begun, span) = (Instant::now(), (until - now).to_std().unwrap_or_default());
        let (clock, account) = (self.context.clock.clone(), self.account.clone());
        Permit::new(move || {
            if clock.now() >= until || begun.elapsed() >= span {
                PermitState::Over
            } else if account.is_ending() {
                PermitState::Ending
            } else {
                PermitState::Given
            }
        })
    }

    /// Returns the same permit, which also becomes stale [`FRESH`] after the checks.
    pub(super) fn fresh_permit(&self, permit: Permit, checked: DateTime<Utc>) -> Permit {
        let clock = self.context.clock.clone();
        Permit::new(move || match permit.state() {
            PermitState::Given if clock.now() - checked > FRESH => PermitState::Stale,
            state => state,
        })
    }
}
