//! How fast mails may leave: what the provider asks for, what goes wrong, and the limit an operator sets.
//!
//! The rule: nothing is sent while the provider asks for patience; a provider that takes nothing is left alone for longer and longer;
//! failures are counted where they happen, and too large a share of them stops everything ([`super::pause`]). The operator's limit
//! holds over all processes: whoever has the lease `pace` may send, and it lasts as long as the mails are to take.

use std::sync::{Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};

use super::outcome::Verdicts;
use super::{Deliver, Road, Settings};
use crate::domain::delivery::Settlement;
use crate::domain::{DeliveryState, Lease};
use crate::services::Result;

/// What this process knows of the provider's mood.
#[derive(Debug, Default)]
pub struct Traffic(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Until when nothing is sent.
    closed: Option<DateTime<Utc>>,
    /// Until when the operator's limit lets nothing be begun.
    paced: Option<DateTime<Utc>>,
    /// How often that was asked for; makes each asking another owner of the lease.
    asked: u64,
    /// Calls in a row of which nothing is known to be taken.
    fruitless: u32,
    /// Mails that were sent and that failed lately.
    sent: u32,
    failed: u32,
}

/// So many calls in a row of which nothing is known to be taken are the provider's fault, not the mails'.
const IN_A_ROW: u32 = 3;
/// A provider that takes nothing is tried at least this often.
const LONGEST: TimeDelta = TimeDelta::minutes(10);
/// Past so many times the fewest outcomes that count, older ones count half.
const REMEMBERED: u32 = 10;
/// How soon the limit is asked again where another process has used it up.
const ASK_AGAIN: TimeDelta = TimeDelta::seconds(5);

impl Traffic {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until when nothing is sent, if that is still to come.
    pub(super) fn closed(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.known().closed.filter(|until| *until > now)
    }

    fn paced(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.known().paced.filter(|until| *until > now)
    }

    /// A call was answered.
    pub(super) fn heard(&self, verdicts: &Verdicts, retry_after: TimeDelta, now: DateTime<Utc>) {
        let mut known = self.known();
        known.fruitless = if verdicts.none_taken {
            known.fruitless + 1
        } else {
            0
        };
        let theirs = verdicts
            .after
            .and_then(|after| TimeDelta::from_std(after).ok());
        let ours = known.fruitless.checked_sub(IN_A_ROW).map(|more| {
            let doubled = retry_after * (1 << more.min(16));
            doubled.min(LONGEST)
        });
        if let Some(wait) = theirs.max(ours) {
            known.closed = known.closed.max(Some(now + wait));
        }
    }

    /// Counts how mails ended; says why everything should stop, if it should. Bounces and complaints count here as failures too.
    pub fn watch(&self, ended: &[Settlement], settings: &Settings) -> Option<String> {
        let count = |state| ended.iter().filter(|end| end.state == state).count() as u32;
        let mut known = self.known();
        known.sent += count(DeliveryState::Sent);
        known.failed += count(DeliveryState::Failed);
        let (failed, all) = (known.failed, known.sent + known.failed);
        if all < settings.stop_after {
            return None;
        }
        if settings.stop_share.is_passed_by(failed.into(), all.into()) {
            (known.sent, known.failed) = (0, 0);
            let share = settings.stop_share;
            return Some(format!(
                "{failed} of the last {all} mails failed, more than delivery.stop_share of {share}"
            ));
        }
        if all >= settings.stop_after.saturating_mul(REMEMBERED) {
            known.sent /= 2;
            known.failed /= 2;
        }
        None
    }
}

impl Deliver {
    /// Whether anything may be begun at this moment.
    pub async fn road(&self) -> Result<Road> {
        match self.barrier().await? {
            Road::Free => {
                let paced = self.traffic.paced(self.clock.now());
                Ok(paced.map_or(Road::Free, Road::Closed))
            }
            held => Ok(held),
        }
    }

    /// How many rows are taken in hand together: under a limit, what may leave in a minute.
    pub fn chunk(&self) -> usize {
        let chunk = self.settings.chunk;
        match self.settings.mails_per_hour as usize {
            0 => chunk,
            limit => chunk.min((limit / 60).max(1)),
        }
    }

    /// Asks for leave to send so many mails; if there is none now, answers when to ask again.
    pub(super) async fn pace(&self, mails: usize) -> Result<Option<DateTime<Utc>>> {
        let limit = i64::from(self.settings.mails_per_hour);
        if limit == 0 {
            return Ok(None);
        }
        let now = self.clock.now();
        let until = now + TimeDelta::milliseconds(3_600_000 * mails as i64 / limit);
        let asked = {
            let mut known = self.traffic.known();
            known.asked += 1;
            known.asked
        };
        // Each time as somebody else: the holder of a lease could extend it.
        let lease = Lease {
            owner: format!("{}-{asked}", self.owner),
            until,
        };
        let granted = self.leases.lease("pace", &lease, now).await?;
        let next = if granted {
            until
        } else {
            until.min(now + ASK_AGAIN)
        };
        self.traffic.known().paced = Some(next);
        Ok((!granted).then_some(next))
    }
}
