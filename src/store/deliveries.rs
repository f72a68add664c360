//! The ledger of every mail.
//!
//! The rule (P2, P4): a row is opened once, under an id that is derived, and changed only by who
//! holds it or, where it is closed, by who knows better.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::Result;
use crate::domain::delivery::{
    Deferral, Handover, Judged, Reopened, Reopening, Settlement, Verdict,
};
use crate::domain::{Delivery, DeliveryId, DeliveryState, UserId};

/// The ledger of every mail.
#[async_trait]
pub trait Deliveries: Send + Sync {
    /// Inserts new rows (`pending`, open, leased). A row whose id exists already, or whose slot
    /// another open row holds, is not inserted: the answer says which were, in the order asked.
    /// Durable.
    async fn open(&self, rows: &[Delivery]) -> Result<Vec<bool>>;

    /// Leases up to `limit` open rows whose lease has run out by `now` (or that have none) to the
    /// owner, by slot.
    async fn claim(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
        limit: usize,
    ) -> Result<Vec<Delivery>>;

    /// Moves open `pending` or `sending` rows that the owner holds to `sending`, each with the
    /// reference of the call it is about to be handed over in, what its mail tells of, and this
    /// moment, counts an attempt and extends the lease. The answer says which were moved, in the
    /// order asked. Durable before it returns (P4).
    async fn sending(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
        handovers: &[Handover],
    ) -> Result<Vec<bool>>;

    /// Moves `sending` rows that the owner holds back to `pending`, without their call and still
    /// held: it was surely not taken. The answer says which were moved, in the order asked.
    async fn recall(&self, owner: &str, ids: &[DeliveryId]) -> Result<Vec<bool>>;

    /// Extends the leases of open rows that the owner holds; the answer says which it still does,
    /// in the order asked.
    async fn hold(
        &self,
        owner: &str,
        until: DateTime<Utc>,
        ids: &[DeliveryId],
    ) -> Result<Vec<bool>>;

    /// Lets go of `pending` and `sending` rows that the owner holds, in the state that is asked
    /// for, and counts a refusal where there was one; nobody can claim them before their time. The
    /// answer says which were, in the order asked.
    async fn defer(&self, owner: &str, deferrals: &[Deferral]) -> Result<Vec<bool>>;

    /// Leases all open `sending` rows of this call to the owner, whoever holds them, by slot. Only
    /// for who has the lease that is named after the call: others may hold some of its rows, and
    /// the call has to be put together again as a whole.
    async fn take_call(
        &self,
        owner: &str,
        until: DateTime<Utc>,
        call: &str,
    ) -> Result<Vec<Delivery>>;

    /// Settles rows that the owner holds and that are not settled yet. They stay open: their
    /// markers are still to be written. The answer says which were settled now, in the order asked.
    async fn settle(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        settlements: &[Settlement],
    ) -> Result<Vec<bool>>;

    /// Closes settled rows, whoever holds them: their markers stand. Their slots are free again.
    async fn close(&self, ids: &[DeliveryId]) -> Result<()>;

    /// Gives up whatever leases the owner still holds on open rows, so that others can claim them
    /// at once.
    async fn release(&self, owner: &str) -> Result<()>;

    /// Lets `pending` rows that wait for a time after `now` be claimed at once.
    async fn free_waiting(&self, now: DateTime<Utc>) -> Result<()>;

    /// What somebody says of an `unknown`, closed row. `Sent`: it is `sent`. `NotSent`: it is
    /// `pending` and open again, nobody's, unless its slot is taken. The reason is kept.
    async fn judge(
        &self,
        id: &DeliveryId,
        now: DateTime<Utc>,
        verdict: Verdict,
        reason: &str,
    ) -> Result<Judged>;

    /// Opens rows that failed and are closed as if they were new: `pending`, created at `now`,
    /// without refusals, call and outcome, covering what is asked for. The answers are in the order
    /// asked. Durable before it returns.
    async fn reopen(&self, now: DateTime<Utc>, rows: &[Reopening]) -> Result<Vec<Reopened>>;

    /// The open digest of each of these people, in the order asked: one that is not settled, or
    /// whose markers are still to be written.
    async fn open_digests(&self, users: &[UserId]) -> Result<Vec<Option<Delivery>>>;

    /// The row of this id; `None` where none was opened, or it has been forgotten.
    async fn delivery(&self, id: &DeliveryId) -> Result<Option<Delivery>>;

    /// These rows, in the order asked.
    async fn deliveries(&self, ids: &[DeliveryId]) -> Result<Vec<Option<Delivery>>>;

    /// The deliveries in this state, newest first, at most `limit`.
    async fn deliveries_in(&self, state: DeliveryState, limit: usize) -> Result<Vec<Delivery>>;

    /// A person's deliveries, newest first, at most `limit`.
    async fn deliveries_of(&self, user: &UserId, limit: usize) -> Result<Vec<Delivery>>;

    /// Removes closed rows that were settled before then, the oldest first, at most `limit`;
    /// answers how many went. Those of unknown outcome stay: somebody has to say what became of
    /// them.
    async fn forget_deliveries(&self, before: DateTime<Utc>, limit: usize) -> Result<u64>;

    /// How many rows there are of each of these states, in the order asked. Each costs what there
    /// is of it.
    async fn delivery_counts(&self, states: &[DeliveryState]) -> Result<Vec<(DeliveryState, u64)>>;
}
