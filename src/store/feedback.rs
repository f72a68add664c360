//! The interfaces for provider reports and for suppressed addresses.
//!
//! Providers report late, repeatedly and in any order. So each method is idempotent, and of two
//! conflicting reports the more severe wins, regardless of order. [`crate::engine::feedback`]
//! decides what follows from a report.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::Result;
use crate::domain::feedback::{Feedback, ReportCounts};
use crate::domain::suppression::Suppression;
use crate::domain::{Address, DeliveryId};

/// Addresses that must not be emailed.
///
/// Addresses are compared in folded form ([`Address::folded`]). Lookups also find the spellings
/// that an older version may have stored ([`Address::spellings`]).
#[async_trait]
pub trait Suppressions: Send + Sync {
    /// Suppresses these addresses, durably. If an address is already suppressed, or occurs twice in
    /// the call, the more severe reason wins under any race ([`Suppression::outweighs`]).
    async fn suppress(&self, suppressions: &[Suppression]) -> Result<()>;

    /// Returns the active suppressions of these addresses, in the order of the request. Costs one
    /// indexed read for a whole page of users.
    async fn suppressed(&self, addresses: &[Address]) -> Result<Vec<Option<Suppression>>>;

    /// Returns a page of active suppressions after this address, ordered by the stored address.
    async fn suppressions(&self, after: Option<&Address>, limit: usize)
    -> Result<Vec<Suppression>>;

    /// Allows emails to an address again and removes its soft bounces. Returns whether it was
    /// suppressed.
    ///
    /// If so, the time `at` is stored: [`Self::suppress`] ignores older reports. Lifts from before
    /// `expired` are removed.
    async fn lift(
        &self,
        address: &Address,
        at: DateTime<Utc>,
        expired: DateTime<Utc>,
    ) -> Result<bool>;

    /// Returns when these addresses were last lifted, in the order of the request. Costs one
    /// indexed read.
    async fn lifts(&self, addresses: &[Address]) -> Result<Vec<Option<DateTime<Utc>>>>;

    /// Records a soft bounce of this delivery at `at`. Removes those from before `since`, and
    /// returns how many deliveries to the address remain. A delivery counts once, at its earliest
    /// recorded time.
    async fn soft_bounce(
        &self,
        address: &Address,
        delivery: &DeliveryId,
        at: DateTime<Utc>,
        since: DateTime<Utc>,
    ) -> Result<u64>;
}

/// Provider reports on accepted emails. They are stored in the ledger rows, in addition to the
/// state.
#[async_trait]
pub trait Feedbacks: Send + Sync {
    /// Records reports. If a row already has one, the worse wins under any race
    /// ([`Feedback::outweighs`]). Ignores deliveries without a row.
    async fn note_feedback(&self, feedback: &[(DeliveryId, Feedback)]) -> Result<()>;

    /// Counts exactly what became of the emails that were settled at `since` or later. This
    /// includes sent emails, and unknown ones that have a report. Costs a read of an index over
    /// these rows.
    async fn report_counts(&self, since: DateTime<Utc>) -> Result<ReportCounts>;
}

/// Webhook ids and signature tokens that were seen recently, by which repeated and replayed reports
/// are recognized.
#[async_trait]
pub trait SeenReports: Send + Sync {
    /// Stores a mark under each key until `until`, durably, unless a mark is stored that has not
    /// expired at `now`. Removes expired marks.
    ///
    /// Returns the mark that is now stored under each key, in the order of the request. Concurrent
    /// callers with one key all get the same mark.
    async fn sight(
        &self,
        marks: &[(String, String)],
        now: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> Result<Vec<String>>;

    /// Returns the marks under these keys that have not expired at `now`, in the order of the
    /// request.
    async fn sighted(&self, keys: &[String], now: DateTime<Utc>) -> Result<Vec<Option<String>>>;
}

/// Returns the more severe of two suppressions.
pub(super) fn graver(one: Suppression, other: Suppression) -> Suppression {
    match other.outweighs(&one) {
        true => other,
        false => one,
    }
}
