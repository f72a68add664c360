//! Which row of the ledger a digest is that falls due, and whether that row stands already.
//!
//! The rule (P2): one mail a local day or ISO week, unless the person chose a later weekday after
//! that week's mail: then the digest of that weekday is a mail of its own, with the weekday in its
//! id, or they would wait for longer than a week. A date has one mail, whatever the clock does.

use chrono::{DateTime, Datelike, TimeDelta, Utc};

use super::cadence::{Cadence, Due, Period};
use super::delivery::{Delivery, DeliveryId, DeliveryState};
use super::name::UserId;

/// The rows that a digest may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    /// Of the period.
    period: DeliveryId,
    /// Of the weekday, where the week had a mail on an earlier one.
    weekday: Option<DeliveryId>,
}

/// The row that a digest is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place<T> {
    /// It does not stand yet.
    Free(DeliveryId),
    /// It stands, in whatever state: this is what was found.
    Taken(T),
}

impl Rows {
    /// The rows for this person and period; a weekly digest has a second one, of its weekday.
    pub fn of(user: &UserId, cadence: Cadence, due: &Due) -> Self {
        let period = DeliveryId::digest(user, cadence, due.period);
        let weekday = match due.period {
            Period::Day(_) => None,
            Period::Week { .. } => {
                let number = due.date.weekday().number_from_monday();
                Some(DeliveryId::stored(format!("{period}-{number}")))
            }
        };
        Self { period, weekday }
    }

    /// The ids to look up in the ledger before [`Self::place`], one or two.
    pub fn ids(&self) -> impl Iterator<Item = &DeliveryId> {
        [&self.period].into_iter().chain(&self.weekday)
    }

    /// Which of them the digest is, by what the ledger has under [`Self::ids`].
    pub fn place<'a>(
        &self,
        due: &Due,
        standing: impl Fn(&DeliveryId) -> Option<&'a Delivery>,
    ) -> Place<&'a Delivery> {
        let of_weekday = self.weekday.as_ref();
        if let Some(row) = of_weekday.and_then(&standing) {
            return Place::Taken(row);
        }
        let Some(row) = standing(&self.period) else {
            return Place::Free(self.period.clone());
        };
        match of_weekday {
            Some(weekday) if row.due_on.is_some_and(|date| date < due.date) => {
                Place::Free(weekday.clone())
            }
            _ => Place::Taken(row),
        }
    }
}

/// How soon a digest that failed is tried again within its period, the first time.
const AGAIN: TimeDelta = TimeDelta::hours(1);
/// It is tried again at least this often.
const AT_LEAST: TimeDelta = TimeDelta::days(1);

/// When a digest that failed is tried again by itself: an hour later, after twice as long each
/// time, and every day at least, as what it failed of may have passed.
pub fn tried_again(row: &Delivery) -> Option<DateTime<Utc>> {
    let failed = row
        .settled
        .filter(|_| row.state == DeliveryState::Failed && !row.open)?;
    let doubled = AGAIN * (1 << row.reopened.min(5));
    Some(failed + doubled.min(AT_LEAST))
}

#[cfg(test)]
#[path = "digest_row_tests.rs"]
mod tests;
