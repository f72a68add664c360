//! Computes when a user's next digest is due, from their schedule and the ledger.
//!
//! The result agrees with a run: it skips a period that already had a digest, and includes the
//! retry of a failed one. After a digest, a user waits for at most one period in local dates.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::context::Context;
use crate::domain::digest::{Place, Rows, tried_again};
use crate::domain::{Delivery, DeliveryId, Due, Schedule, User, UserId};
use crate::engine::Result;
use crate::store::Deliveries;

/// Computes when a user's next digest is due.
pub struct NextDigest {
    pub(crate) context: Arc<Context>,
    /// The default schedule, for users who did not choose a cadence, weekday, hour or time zone.
    pub schedule: Schedule,
}

impl NextDigest {
    /// Returns when an event that happens now would be in a digest; `None` if the user gets none.
    pub async fn of(&self, user: &User) -> Result<Option<DateTime<Utc>>> {
        let schedule = user.schedule(&self.schedule);
        let (deliveries, now) = (&*self.context.store, self.context.clock.now());
        next(deliveries, &user.id, &schedule, None, now).await
    }
}

/// Returns when the next digest is due for a user whose oldest event for it happened at `oldest`. A
/// time in the past means that the next run sends it. Returns `None` if the user gets no digest.
pub async fn next(
    deliveries: &dyn Deliveries,
    user: &UserId,
    schedule: &Schedule,
    oldest: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> Result<Option<DateTime<Utc>>> {
    let last = schedule.last_due(now);
    let last = last.filter(|due| oldest.is_some_and(|oldest| oldest < due.at));
    let dues: Vec<Due> = last.into_iter().chain(schedule.dues_after(now)).collect();
    let rows_of = |due: &Due| Rows::of(user, schedule.cadence, due);
    let rows: Vec<Rows> = dues.iter().map(rows_of).collect();
    let ids: Vec<DeliveryId> = rows.iter().flat_map(Rows::ids).cloned().collect();
    let standing = deliveries.deliveries(&ids).await?.into_iter().flatten();
    let standing: HashMap<DeliveryId, Delivery> =
        standing.map(|row| (row.id.clone(), row)).collect();
    for (due, rows) in dues.iter().zip(rows) {
        match rows.place(due, |id| standing.get(id)) {
            Place::Free(_) => return Ok(Some(due.at)),
            Place::Existing(row) => {
                let again = tried_again(row).filter(|_| due.at <= now);
                if let Some(again) = again {
                    let next = schedule.next_due(now).map(|due| due.at);
                    return Ok([Some(again), next].into_iter().flatten().min());
                }
            }
        }
    }
    Ok(None)
}
