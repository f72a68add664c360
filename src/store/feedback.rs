//! What comes back after a mail has left, and who is not written to because of it: the traits.
//!
//! The rule: whatever a provider says comes late, more than once and in any order, so every verb
//! here can be repeated, and of two that contradict each other the graver wins, whichever came
//! first. Who decides what follows from it is [`crate::engine::feedback`].

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::Result;
use crate::domain::feedback::{Feedback, ReportCounts};
use crate::domain::suppression::Suppression;
use crate::domain::{Address, DeliveryId};

/// Addresses that must not be written to. Addresses are compared folded ([`Address::folded`]),
/// however they are asked for, and found in every form that an older program may have written them
/// in ([`Address::spellings`]).
#[async_trait]
pub trait Suppressions: Send + Sync {
    /// Suppresses these addresses, durably. Where one is suppressed already, the graver news stands
    /// ([`Suppression::outweighs`]), under any race; of two for one address in one call, too.
    async fn suppress(&self, suppressions: &[Suppression]) -> Result<()>;

    /// The suppressions of these addresses that are not lifted, in the order of the request. One
    /// read, by index, for a page of users at once.
    async fn suppressed(&self, addresses: &[Address]) -> Result<Vec<Option<Suppression>>>;

    /// A page of the list: ascending by address as it is written there, after this one, at most
    /// `limit`.
    async fn suppressions(&self, after: Option<&Address>, limit: usize)
    -> Result<Vec<Suppression>>;

    /// Lets an address receive emails again, and forgets its soft bounces. Returns whether it was
    /// suppressed. If so, the moment `at` is stored: [`Self::suppress`] ignores news up to it.
    /// Lifts from before `expired` are forgotten.
    async fn lift(
        &self,
        address: &Address,
        at: DateTime<Utc>,
        expired: DateTime<Utc>,
    ) -> Result<bool>;

    /// Returns when these addresses were last lifted, in the order of the request. One read, by
    /// index.
    async fn lifts(&self, addresses: &[Address]) -> Result<Vec<Option<DateTime<Utc>>>>;

    /// Notes that the mail of this delivery was put off at `at`; a mail counts once, with the
    /// earliest time it was noted with. Says how many mails to the address were put off at `since`
    /// or later, and forgets those before.
    async fn soft_bounce(
        &self,
        address: &Address,
        delivery: &DeliveryId,
        at: DateTime<Utc>,
        since: DateTime<Utc>,
    ) -> Result<u64>;
}

/// What providers report of mails they took: kept on the rows of the ledger, beside their states,
/// whatever these are.
#[async_trait]
pub trait Feedbacks: Send + Sync {
    /// Notes what became of mails. Where something is noted already, the worse stands
    /// ([`Feedback::outweighs`]), under any race. What has no row is left out.
    async fn note_feedback(&self, feedback: &[(DeliveryId, Feedback)]) -> Result<()>;

    /// What became of the mails that were settled at `since` or later, counted exactly: the sent
    /// ones, and those of unknown outcome of which something was heard. Costs a read of an index
    /// over these rows.
    async fn report_counts(&self, since: DateTime<Utc>) -> Result<ReportCounts>;
}

/// What was seen lately, so that it is recognized when it comes again.
#[async_trait]
pub trait SeenReports: Send + Sync {
    /// Keeps a mark under each key until `until`, durably, where none stands that lasts beyond
    /// `now`; says which mark stands under each, in the order asked. Of many who come with one key,
    /// whoever asks is told the same. Forgets what is over.
    async fn sight(
        &self,
        marks: &[(String, String)],
        now: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> Result<Vec<String>>;

    /// Which marks stand under these keys at `now`, in the order asked.
    async fn sighted(&self, keys: &[String], now: DateTime<Utc>) -> Result<Vec<Option<String>>>;
}

/// The one that stands, of two pieces of news.
pub(super) fn graver(one: Suppression, other: Suppression) -> Suppression {
    match other.outweighs(&one) {
        true => other,
        false => one,
    }
}
