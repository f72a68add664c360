//! The arguments, results and errors of the storage contract.

use std::fmt::Display;
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::domain::batch::AccumulatorId;
use crate::domain::error_chain::error_chain;
use crate::domain::feedback::Suppression;
use crate::domain::{
    Address, Batch, BatchKey, BatchMarker, BatchState, Day, Defect, DeliveryState, DueUserFilter,
    Event, EventType, Fanout, FanoutState, FollowKey, Id, Inbox, ObjectId, Point, ReportKind,
    SuppressionReason, Tag, User, UserId, UserStacks, Watermarks,
};

/// The result of a store method.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a store method failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database could not be reached or rejected the operation. A write may have been applied;
    /// all methods may be repeated.
    #[error("{doing}")]
    Database {
        /// The operation, such as `reading deliveries`.
        doing: String,
        /// Error of the database or its driver.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A record is not one that tidings or an older writer could have written.
    #[error("{0}")]
    Corrupt(String),
    /// A different record is stored in the place of this one, such as a document of a day.
    #[error("{0} exists already and differs")]
    Conflict(String),
    /// The stack holds pending events of another writer, which an exported marker would cover.
    #[error(
        "the stack of {user} on {day} has pending events, which exported markers would cover; \
         restore {day} again after their next digest, or after `tidings flush {user}`"
    )]
    Pending {
        /// Owner of the stack.
        user: String,
        /// Day of the stack.
        day: Day,
    },
    /// The store does not support the operation, or the database rejects the data for good.
    #[error("{0}")]
    Unsupported(String),
}

impl Error {
    /// Returns a database error; `doing` is such as "pushing onto stacks of 20140422".
    pub fn database(
        doing: impl Into<String>,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Database { doing: doing.into(), cause: cause.into() }
    }

    /// Returns whether the database failed or was unreachable, as opposed to holding invalid data.
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Database { .. })
    }

    /// Returns whether the disk of the database is full.
    pub fn is_disk_full(&self) -> bool {
        let Self::Database { cause, .. } = self else {
            return false;
        };
        let text = error_chain(&**cause);
        // The texts of SQLite, of MongoDB (error 14031), and of the operating system.
        let markers = ["disk is full", "OutOfDiskSpace", "No space left on device"];
        markers.iter().any(|marker| text.contains(marker))
    }

    /// Returns the error for a record or field that cannot be read. `what` has its id, if it has
    /// one, and `why` the defect.
    pub fn corrupt(what: impl Display, why: impl Display) -> Self {
        Self::Corrupt(format!("{what} in the store cannot be read: {why}"))
    }
}

/// One push: entries to append to the stacks of users. Users may share a list of entries.
#[derive(Debug, Default, Clone)]
pub struct PushRequest {
    /// Distinct lists of entries, each without duplicates. Every event has a `fanout_id`.
    pub lists: Vec<Vec<Event>>,
    /// Each user at most once, in ascending order, with the index of the user's list.
    pub users: Vec<(UserId, usize)>,
}

/// The entries that a push did not store. Users are identified by their index in the
/// [`PushRequest`].
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct PushOutcome {
    /// Users with entries that were not stored, and the indices of these entries in the user's
    /// list.
    pub capped: Vec<(usize, Vec<usize>)>,
    /// The users among them whose documents cannot take entries, and why.
    pub defects: Vec<(usize, Defect)>,
}

/// A marker to append to a user's stacks. One call names each stack at most once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewMarker {
    /// Markers `{flushed, n}` with this id, one for each of these stacks of a user. A stored marker
    /// with the same id and `n` is not written again.
    Flushed(UserId, Id, Watermarks),
    /// A marker `{mailed, i}` for a user's events of one day that were emailed in a batch. It goes
    /// to the stack with the text `_id`, which tidings itself writes. A stored marker is not
    /// written again.
    Mailed(UserId, Day, BatchMarker),
}

/// A change of follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FollowChange {
    /// Add them.
    Follow,
    /// Remove them.
    Unfollow,
}

/// Selects users.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum UserFilter<'a> {
    /// All users that have a record.
    All,
    /// The followers of this key.
    Follow(&'a FollowKey),
    /// The users within this number of kilometers of the point.
    Near(Point, f64),
    /// The users whose record matches these choices.
    Choices(&'a DueUserFilter),
    /// The users with this address, ignoring case.
    Address(&'a Address),
}

/// The outcome of accepting an event.
#[derive(Debug, Clone, PartialEq)]
pub enum Acceptance {
    /// It was added to the journal.
    New,
    /// Its key already exists: this is the stored fan-out.
    Duplicate(Box<Fanout>),
}

/// Limits on the number of fan-outs to lease at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimLimit {
    /// Maximum number of fan-outs with audiences of any size.
    pub any: usize,
    /// Maximum number of further fan-outs, which must have small audiences
    /// ([`Audience::is_small`]). The first large audience ends the list.
    ///
    /// [`Audience::is_small`]: crate::domain::Audience::is_small
    pub small: usize,
}

impl From<usize> for ClaimLimit {
    fn from(any: usize) -> Self {
        Self { any, small: 0 }
    }
}

/// Leased fan-outs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClaimedFanouts {
    /// Oldest first.
    pub fanouts: Vec<Fanout>,
    /// Leased as well, but unreadable. An operator has to fix them.
    pub bad: Vec<UnreadableFanout>,
}

/// A fan-out whose record or audience cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, thiserror::Error)]
#[error("fan-out {id}: {reason}")]
pub struct UnreadableFanout {
    /// Its id, as stored.
    pub id: String,
    /// The unreadable part, and why.
    pub reason: String,
}

/// The parts of a user's feed, except for objects and event details.
#[derive(Debug, Clone, PartialEq)]
pub struct FeedParts {
    /// Stacks in the window, possibly none.
    pub stacks: UserStacks,
    /// Inbox, as [`Directory::inboxes`](super::Directory::inboxes) returns it.
    pub inbox: Option<Inbox>,
    /// User, as [`Directory::users`](super::Directory::users) returns it.
    pub user: Option<User>,
}

/// Selects the batches that match all given fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BatchFilter {
    /// User; `None` for all users.
    pub user: Option<UserId>,
    /// Key; `None` for any key.
    pub key: Option<BatchKey>,
    /// State; `None` for any state.
    pub state: Option<BatchState>,
    /// Only batches with lower ids than this.
    pub before: Option<Id>,
}

impl BatchFilter {
    /// Selects all batches of this user.
    pub fn of_user(user: &UserId) -> Self {
        Self { user: Some(user.clone()), ..Self::default() }
    }
}

/// Returns a page of batches from accumulators and filed batches: each once, newest first.
pub(super) fn newest_page(mut batches: Vec<Batch>, before: Option<Id>, limit: usize) -> Vec<Batch> {
    batches.retain(|batch| before.is_none_or(|before| batch.id < before));
    batches.sort_by_key(|batch| std::cmp::Reverse(batch.id));
    batches.dedup_by_key(|batch| batch.id);
    batches.truncate(limit);
    batches
}

/// Selects accumulators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccumulatorFilter<'a> {
    /// Accumulators that are due at this moment and not leased, in the order of their due times.
    /// Each is returned once, even if it changes meanwhile. The cost depends on those due or
    /// leased, not on those open.
    Due(DateTime<Utc>),
    /// The accumulator whose open batch, or unfiled ended batch, has this id.
    WithBatch(Id),
    /// Accumulators after this one, ordered by id, whose open batch keeps an event of this type
    /// about one of these objects.
    WithEvent(&'a EventType, &'a [ObjectId], Option<&'a AccumulatorId>),
}

/// Selects open rows to lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowsToLease<'a> {
    /// Rows that are neither leased nor deferred at this time, at most this number. A lease or a
    /// wait is ignored once it has expired, or if it ends later than any valid one can.
    Claimable(DateTime<Utc>, usize),
    /// All rows of this provider call that are `sending`, including rows that are leased. The
    /// caller must hold the lease named after the call: only then can it rebuild the whole call.
    Call(&'a str),
}

/// Leases or waits to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeasesToEnd<'a> {
    /// The lease of this name, if the owner holds it.
    Lease {
        /// Name.
        name: &'a str,
        /// Owner.
        owner: &'a str,
    },
    /// The leases of this owner on fan-outs.
    Fanouts(&'a str),
    /// The leases of this owner on ledger rows.
    Deliveries(&'a str),
    /// The waits of unleased `pending` rows that are deferred beyond this moment.
    Deferred(DateTime<Utc>),
}

/// Selects notes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoteFilter<'a> {
    /// Notes of these names.
    Named(&'a [&'a str]),
    /// Notes whose names start with this.
    Prefix(&'a str),
}

/// The stored state of an address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressState {
    /// The active suppression.
    pub suppression: Option<Suppression>,
    /// When it was last lifted.
    pub lifted_at: Option<DateTime<Utc>>,
}

/// A field of users whose values are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserField {
    /// Time zones, as stored. This version may not know all of them.
    Zone,
    /// Locales.
    Locale,
}

/// A summary of pending fan-outs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PendingFanouts {
    /// Time of the oldest event.
    pub oldest: Option<DateTime<Utc>>,
    /// Days that must not be dropped, oldest first.
    pub days: Vec<Day>,
}

impl PendingFanouts {
    /// Adds fan-outs of this day, and the time of the oldest one. An unreadable day is logged.
    pub(super) fn add(&mut self, day: &str, oldest: Option<DateTime<Utc>>) {
        match day.parse() {
            Ok(day) => self.days.push(day),
            Err(_) => tracing::warn!(day, "the day of a fan-out cannot be read"),
        }
        self.days.sort_unstable();
        self.oldest = self.oldest.into_iter().chain(oldest).min();
    }
}

/// A half-open time range. Rows are matched by the time at which they were opened or reopened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeRange {
    /// First moment; `None` for no lower bound.
    pub since: Option<DateTime<Utc>>,
    /// First moment after the range; `None` for no upper bound.
    pub until: Option<DateTime<Utc>>,
}

impl TimeRange {
    /// Returns the range that starts at this moment.
    pub fn since(at: DateTime<Utc>) -> Self {
        Self { since: Some(at), until: None }
    }

    /// Returns whether the range contains this moment.
    pub fn contains(&self, at: DateTime<Utc>) -> bool {
        self.since.is_none_or(|since| at >= since) && self.until.is_none_or(|until| at < until)
    }
}

/// Selects rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryFilter<'a> {
    /// Rows in this state and time range, with this feedback if one is given.
    State(DeliveryState, TimeRange, Option<ReportKind>),
    /// Rows of this user.
    User(&'a UserId),
    /// Open digests of these users: not settled, or with markers still to be written.
    OpenDigests(&'a [UserId]),
    /// Rows with these tags.
    Tags(&'a [Tag]),
    /// Rows with these provider ids. Rows share an id if one call sent several emails.
    ProviderIds(&'a [String]),
}

impl DeliveryFilter<'_> {
    /// Returns whether the filter names no rows. Some versions of MongoDB scan all rows for it.
    pub(super) fn matches_nothing(&self) -> bool {
        matches!(self, Self::Tags([]) | Self::ProviderIds([]))
    }
}

/// Returns the more severe of two suppressions.
pub(super) fn more_severe(one: Suppression, other: Suppression) -> Suppression {
    if other.outweighs(&one) { other } else { one }
}

/// Records that expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpiringRecords {
    /// Closed ledger rows, by the time they were settled. Rows of unknown outcome stay, because an
    /// operator has to decide about them.
    Deliveries,
    /// Filed batches, by the time they were settled.
    Batches,
    /// Inboxes, by the time of the last mark.
    Inboxes,
    /// Journaled events whose fan-out is done, by the time of the event, with their details and
    /// audiences. Their keys become free.
    Events,
    /// Retractions, by the moment up to which they apply.
    Retractions,
}

/// The database engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Engine {
    /// One or more MongoDB servers: their version, such as 6.0.5, and deployment type.
    Mongo(String, Topology),
    /// A SQLite file.
    Sqlite {
        /// The version of the library that is compiled in, such as 3.45.0.
        version: String,
        /// The journal mode. `wal` lets readers and a writer work at the same time.
        journal: String,
    },
}

/// The deployment type of MongoDB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// One server without replication.
    Standalone,
    /// A replica set of this number of members with data, which a server lists as `hosts`; 1 if it
    /// lists none.
    ReplicaSet(usize),
    /// A sharded cluster behind routers.
    Sharded,
}

/// The version of the database schema. Each program version has one schema and upgrades older ones.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Schema {
    /// Version of the store.
    pub version: u32,
    /// Version of this program.
    pub known: u32,
}

impl Schema {
    /// Returns whether the next command that works with the store upgrades it.
    pub fn is_old(&self) -> bool {
        self.version < self.known
    }
}

/// The condition of the database.
#[derive(Debug)]
pub struct DatabaseStatus {
    /// Engine.
    pub engine: Engine,
    /// Clock of the server; `None` if it has none or does not report it.
    pub server_time: Option<DateTime<Utc>>,
    /// Time that has passed since the clock was read.
    pub time_since_read: Duration,
    /// Schema version.
    pub schema: Result<Schema>,
    /// The missing indexes that methods rely on, by collection and fields; empty in a healthy
    /// store.
    pub missing_indexes: Result<Vec<String>>,
}

/// Records that can be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedRecords {
    /// Documents of this day. Reads all of them.
    Stacks(Day),
    /// Fan-outs in this state.
    Fanouts(FanoutState),
    /// Batches in this state. A batch that has ended in an accumulator counts as closing until it
    /// is filed.
    Batches(BatchState),
    /// Ledger rows in this state.
    Deliveries(DeliveryState),
    /// Addresses that are suppressed for this reason.
    Suppressions(SuppressionReason),
}

/// A number of waiting items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WaitingItems {
    /// Number of items.
    pub count: u64,
    /// Time since which the first item has been waiting.
    pub since: Option<DateTime<Utc>>,
}

/// The work that is still to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutstandingWork {
    /// Pending fan-outs, by the time of their events.
    pub fanouts: WaitingItems,
    /// Open batches.
    pub batches_open: u64,
    /// Due accumulators, leased or not, by due time.
    pub batches_due: WaitingItems,
    /// `pending` ledger rows, by the time at which they were opened.
    pub pending: WaitingItems,
    /// `sending` ledger rows.
    pub sending: WaitingItems,
    /// `unknown` ledger rows.
    pub unknown: WaitingItems,
}
