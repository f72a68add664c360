//! When a person's next digest falls due, by their schedule and by what the ledger has of them.
//!
//! The rule: what is said here is what a run does: a period that had its mail is passed over, one
//! that failed comes again when it is tried again. Nobody waits for longer than a period, in local
//! dates, after the last mail.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::context::Context;
use crate::domain::digest_row::{Place, Rows, tried_again};
use crate::domain::{Delivery, DeliveryId, Due, Schedule, User, UserId};
use crate::engine::Result;
use crate::store::Deliveries;

/// Looks up when somebody's next digest falls due.
pub struct NextDigest {
    pub(crate) context: Arc<Context>,
    /// What holds for people who did not choose cadence, weekday, hour or time zone.
    pub schedule: Schedule,
}

impl NextDigest {
    /// When it does if something happens now; `None` for who gets none.
    pub async fn of(&self, user: &User) -> Result<Option<DateTime<Utc>>> {
        let schedule = user.schedule(&self.schedule);
        let (deliveries, now) = (&*self.context.store, self.context.clock.now());
        next(deliveries, &user.id, &schedule, None, now).await
    }
}

/// When the next digest goes to a person whose oldest event for it happened then: in the past,
/// where it is due already and the next run mails it. `None` for who gets none.
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
            Place::Taken(row) => {
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
