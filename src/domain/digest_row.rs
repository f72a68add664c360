//! Finds the delivery id of a due digest, and whether that delivery already exists.
//!
//! There is one digest per local day or ISO week (P2), with one exception: a user chooses a later
//! weekday after this week's digest. The digest of that day then gets an id with the weekday, or
//! the user would wait for more than a week. No local date has two digests.

use chrono::{DateTime, Datelike, TimeDelta, Utc};

use super::cadence::{Cadence, Due, Period};
use super::delivery::{Delivery, DeliveryId, DeliveryState};
use super::name::UserId;

/// The delivery ids that a due digest can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    /// The id for the period.
    period: DeliveryId,
    /// The id for the weekday, used if the week had a digest on an earlier day.
    weekday: Option<DeliveryId>,
}

/// The delivery of a due digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place<T> {
    /// It does not exist yet and gets this id.
    Free(DeliveryId),
    /// It exists, in any state.
    Taken(T),
}

impl Rows {
    /// Returns the possible ids for this user and period. A weekly digest has two.
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

    /// Returns the ids to load before calling [`Self::place`].
    pub fn ids(&self) -> impl Iterator<Item = &DeliveryId> {
        [&self.period].into_iter().chain(&self.weekday)
    }

    /// Decides which id the digest has. `standing` looks up existing deliveries by id.
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

/// The delay before a failed digest is first retried within its period.
const AGAIN: TimeDelta = TimeDelta::hours(1);
/// The longest delay between two retries.
const AT_LEAST: TimeDelta = TimeDelta::days(1);

/// Returns when a failed digest is retried automatically. The delay starts at one hour and doubles
/// up to one day, because the cause of the failure may have passed.
pub fn tried_again(row: &Delivery) -> Option<DateTime<Utc>> {
    let failed = row
        .outcome
        .settled
        .filter(|_| row.state == DeliveryState::Failed && !row.open)?;
    let doubled = AGAIN * (1 << row.attempts.reopened.min(5));
    Some(failed + doubled.min(AT_LEAST))
}

#[cfg(test)]
#[path = "digest_row_tests.rs"]
mod tests;
