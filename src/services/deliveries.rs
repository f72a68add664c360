//! What the ledger holds, for people who look into it: lists, what nobody knows the end of, and the
//! brake.
//!
//! The rule (P5): only a person who knows better ends an unknown delivery, and the row says so.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::{Error, Result};
use crate::clock::Clock;
use crate::domain::delivery::{Judged, Reopened, Reopening, Verdict};
use crate::domain::{Delivery, DeliveryId, DeliveryState, Pause, UserId};
use crate::store::{Deliveries, Notes};
use crate::wire::delivery::Retried;

mod waiting;

/// Shows the ledger, settles unknown deliveries, retries failed ones, and lets mails leave again.
pub struct DeliveryService {
    pub(crate) deliveries: Arc<dyn Deliveries>,
    pub(crate) notes: Arc<dyn Notes>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Which deliveries.
#[derive(Debug, Clone, Default)]
pub struct Only {
    /// Only those in this state; `None` for all states.
    pub state: Option<DeliveryState>,
    /// Only this person's; `None` for everybody's.
    pub user: Option<UserId>,
}

/// Deliveries that are tried again at once.
const AT_ONCE: usize = 1_000;

/// Which unknown deliveries are to be settled together.
#[derive(Debug, Clone, Default)]
pub struct Unknown {
    /// Only those of this call.
    pub call: Option<String>,
    /// Only those that were handed over at this moment, or later.
    pub since: Option<DateTime<Utc>>,
    /// Only those that were handed over before then.
    pub until: Option<DateTime<Utc>>,
}

impl Unknown {
    fn holds(&self, row: &Delivery) -> bool {
        let tried = row.tried.unwrap_or(row.created);
        let called = || row.call.as_deref() == self.call.as_deref();
        (self.call.is_none() || called())
            && self.since.is_none_or(|since| tried >= since)
            && self.until.is_none_or(|until| tried < until)
    }
}

/// What became of deliveries that were settled together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settled {
    /// They are what was said.
    pub settled: u64,
    /// Another delivery of the person is open: settle these when that one has ended.
    pub busy: u64,
}

/// A person has no more mails than this of which anybody asks.
const A_PERSONS: usize = 10_000;
/// Nor does anybody have more unknown ones than this.
const ALL: usize = 10_000_000;

/// Why a row is settled that was unknown.
fn by_hand(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Sent => "settled by hand: it was mailed",
        Verdict::NotSent => "settled by hand: it was not mailed",
    }
}

impl DeliveryService {
    /// The newest deliveries, at most `limit`.
    pub async fn list(&self, only: &Only, limit: usize) -> Result<Vec<Delivery>> {
        let wanted = |row: &Delivery| only.state.is_none_or(|state| state == row.state);
        if let Some(user) = &only.user {
            let mut rows = self.deliveries.deliveries_of(user, A_PERSONS).await?;
            rows.retain(wanted);
            rows.truncate(limit);
            return Ok(rows);
        }
        let mut rows = Vec::new();
        for state in DeliveryState::ALL {
            if only.state.is_none_or(|only| only == state) {
                rows.extend(self.deliveries.deliveries_in(state, limit).await?);
            }
        }
        rows.sort_by(|a, b| (b.created, &b.id).cmp(&(a.created, &a.id)));
        rows.truncate(limit);
        Ok(rows)
    }

    /// One delivery; `None` if there is none of this id.
    pub async fn get(&self, id: &DeliveryId) -> Result<Option<Delivery>> {
        Ok(self.deliveries.delivery(id).await?)
    }

    /// The unknown deliveries that these are, newest first.
    pub async fn unknown(&self, which: &Unknown) -> Result<Vec<Delivery>> {
        let unknown = DeliveryState::Unknown;
        let mut rows = self.deliveries.deliveries_in(unknown, ALL).await?;
        rows.retain(|row| which.holds(row));
        Ok(rows)
    }

    /// Ends them all: they were mailed, or were not. One that somebody else ends meanwhile is
    /// theirs.
    pub async fn settle_all(&self, rows: &[Delivery], verdict: Verdict) -> Result<Settled> {
        let (now, mut settled) = (self.clock.now(), Settled::default());
        for row in rows {
            let reason = by_hand(verdict);
            match self.deliveries.judge(&row.id, now, verdict, reason).await? {
                Judged::Done => settled.settled += 1,
                Judged::Busy => settled.busy += 1,
                Judged::NotUnknown => {}
            }
        }
        Ok(settled)
    }

    /// Ends an unknown delivery: it was mailed, or it was not and its events go into a mail after
    /// all.
    pub async fn settle(&self, id: &DeliveryId, verdict: Verdict) -> Result<()> {
        let now = self.clock.now();
        let reason = by_hand(verdict);
        match self.deliveries.judge(id, now, verdict, reason).await? {
            Judged::Done => Ok(()),
            Judged::Busy => Err(Error::Conflict(format!(
                "another delivery of the person of {id} is open; settle this one when that one has ended"
            ))),
            Judged::NotUnknown => {
                let standing = self.deliveries.delivery(id).await?;
                Err(Error::Conflict(match standing {
                    None => format!("there is no delivery {id}"),
                    Some(row) if row.state == DeliveryState::Unknown => {
                        format!("{id} is being closed at this moment; ask again")
                    }
                    Some(row) => format!("{id} is {}, not unknown", row.state.as_str()),
                }))
            }
        }
    }

    /// Lets these failed deliveries be tried again, as if they were new: the next run or a worker
    /// takes them up.
    pub async fn retry(&self, ids: &[DeliveryId]) -> Result<Retried> {
        let asked: Vec<Reopening> = ids.iter().cloned().map(Reopening::of).collect();
        let answers = self.deliveries.reopen(self.clock.now(), &asked).await?;
        let mut retried = Retried::default();
        for (id, answer) in ids.iter().zip(answers) {
            match answer {
                Reopened::Done => retried.again += 1,
                Reopened::Busy => retried.busy.push(id.clone()),
                Reopened::NotFailed => retried.not_failed.push(id.clone()),
            }
        }
        Ok(retried)
    }

    /// The same of all that failed, of one person if one is named.
    pub async fn retry_all(&self, user: Option<&UserId>) -> Result<Retried> {
        let mut all = Retried::default();
        loop {
            let only = Only {
                state: Some(DeliveryState::Failed),
                user: user.cloned(),
            };
            let rows = self.list(&only, AT_ONCE + all.busy.len()).await?;
            let ids = rows.into_iter().map(|row| row.id);
            let ids: Vec<DeliveryId> = ids.filter(|id| !all.busy.contains(id)).collect();
            let some = self.retry(&ids).await?;
            let done = some.again == 0 && some.busy.is_empty();
            all.again += some.again;
            all.busy.extend(some.busy);
            if done {
                return Ok(all);
            }
        }
    }

    /// Why no mail leaves, if none may.
    pub async fn pause(&self) -> Result<Option<Pause>> {
        Pause::standing(self.notes.as_ref()).await
    }

    /// Lets mails leave again, also those that were to wait; says what had stopped them.
    pub async fn resume(&self) -> Result<Option<Pause>> {
        let now = self.clock.now();
        let pause = Pause::lift(self.notes.as_ref(), now).await?;
        self.deliveries.free_waiting(now).await?;
        Ok(pause)
    }
}
