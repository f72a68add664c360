//! What the ledger holds, for people who look into it: lists, what nobody knows the end of, and the brake.
//!
//! The rule (P5): only a person who knows better ends an unknown delivery, and the row says so.

use std::sync::Arc;

use super::deliver::Pause;
use super::{Error, Result};
use crate::clock::Clock;
use crate::domain::delivery::{Judged, Verdict};
use crate::domain::{Delivery, DeliveryId, DeliveryState, UserId};
use crate::store::{Deliveries, Notes};

mod waiting;

pub use waiting::{Reason, Waiting};

pub struct Ledger {
    pub deliveries: Arc<dyn Deliveries>,
    pub notes: Arc<dyn Notes>,
    pub clock: Arc<dyn Clock>,
}

/// Which deliveries.
#[derive(Debug, Clone, Default)]
pub struct Only {
    pub state: Option<DeliveryState>,
    pub user: Option<UserId>,
}

/// A person has no more mails than this of which anybody asks.
const A_PERSONS: usize = 10_000;

impl Ledger {
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

    /// Ends an unknown delivery: it was mailed, or it was not and its events go into a mail after all.
    pub async fn settle(&self, id: &DeliveryId, verdict: Verdict) -> Result<()> {
        let now = self.clock.now();
        let reason = match verdict {
            Verdict::Sent => "settled by hand: it was mailed",
            Verdict::NotSent => "settled by hand: it was not mailed",
        };
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

    /// Why no mail leaves, if none may.
    pub async fn pause(&self) -> Result<Option<Pause>> {
        Pause::standing(self.notes.as_ref()).await
    }

    /// Lets mails leave again; says what had stopped them.
    pub async fn resume(&self) -> Result<Option<Pause>> {
        Pause::lift(self.notes.as_ref(), self.clock.now()).await
    }
}
