//! The storage interface: one trait for each kind of record, implemented by [`mongo`] and
//! [`sqlite`].
//!
//! Stores keep records; the domain makes the decisions. A method is one read, one append or one
//! compare-and-set, usually for many records at once. Callers pass in times and ids. The contract
//! tests (`tests/all/store_laws`) hold both stores to the traits. Start with [`Stacks`].

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use futures::stream::BoxStream;

use crate::domain::{
    Address, BadStack, Day, Defect, Details, DueChoices, Event, Fanout, FollowKey, Id, Lease,
    Mailed, Object, ObjectKey, PersonStacks, Point, Progress, User, UserId, Watermarks, Window,
};

mod batches;
mod behind;
mod condition;
mod day_sum;
mod deliveries;
mod error;
mod extjson;
mod feedback;
mod inboxes;
pub mod mongo;
mod pokes;
mod record;
mod retention;
mod retractions;
pub mod sqlite;
mod transfer;

pub use batches::{AccumulatorFilter, BatchFilter, Batches};
pub use condition::{Counted, Diagnostics, Engine, Outstanding, Pile, Schema, Server, Topology};
pub use day_sum::{DaySum, Summing};
pub use deliveries::{Claim, Deliveries, DeliveryFilter, Span, Waits};
pub use error::{Error, Result};
pub use feedback::{Feedbacks, SeenReports, Suppressions};
pub use inboxes::{FeedParts, Inboxes};
pub use pokes::Pokes;
pub use retention::{Forgettable, Retention};
pub use retractions::Retractions;
pub use transfer::{AnyRecord, Importing, Kind, Mark, Page, WholeStore};

/// All storage traits together. Each backend implements all of them.
pub trait Store:
    Stacks
    + Days
    + Directory
    + Objects
    + Inboxes
    + Pokes
    + Journal
    + Batches
    + Deliveries
    + Leases
    + Notes
    + Suppressions
    + Feedbacks
    + SeenReports
    + Diagnostics
    + Retention
    + Retractions
{
}
impl<T> Store for T where
    T: Stacks
        + Days
        + Directory
        + Objects
        + Inboxes
        + Pokes
        + Journal
        + Batches
        + Deliveries
        + Leases
        + Notes
        + Suppressions
        + Feedbacks
        + SeenReports
        + Diagnostics
        + Retention
        + Retractions
{
}

/// One push: entries to append to the stacks of users. Users may share a list of entries.
#[derive(Debug, Default, Clone)]
pub struct Pushes {
    /// Distinct lists of entries. Every event has an `i`.
    pub lists: Vec<Vec<Event>>,
    /// Each user at most once, in ascending order, with the index of the user's list.
    pub people: Vec<(UserId, usize)>,
}

/// The entries that a push did not store. Users are identified by their index in
/// [`Pushes::people`].
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// Users with entries that were not stored, and the indices of these entries in the user's
    /// list.
    pub capped: Vec<(usize, Vec<usize>)>,
    /// The users among them whose documents cannot take entries, and why.
    pub bad: Vec<(usize, Defect)>,
}

/// A marker to append to a user's stacks. One call names each stack at most once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewMarker {
    /// Markers `{flushed, n}`, one for each stack.
    Flushed {
        /// Owner of the stacks.
        user: UserId,
        /// Id of the marker. A stored marker with the same id and `n` is not written again.
        marker: Id,
        /// The stacks, and how many entries of each are covered.
        watermarks: Watermarks,
    },
    /// A marker `{mailed, i}` for events that were emailed in a batch. It goes to the stack with
    /// the text `_id`, which tidings itself writes.
    Mailed {
        /// Owner of the stack.
        user: UserId,
        /// Day of the events.
        day: Day,
        /// The marker. It is not written again if it is already stored.
        mailed: Mailed,
    },
}

/// The users whose stacks to read, in ascending order.
#[derive(Debug, Clone)]
pub enum People<'a> {
    /// Scattered users. Costs one lookup for each.
    Each(&'a [UserId]),
    /// Most of the users between the first and the last. Costs one sequential read of that range.
    Between(&'a [UserId]),
}

/// The day collections.
///
/// A malformed document affects only its owner. It is reported in the result ([`Pushed::bad`],
/// [`BadStack`]) or on its stack ([`crate::domain::Stack::defect`]), and all other users are
/// processed. A document without a valid user id is skipped.
#[async_trait]
pub trait Stacks: Send + Sync {
    /// After this returns, all reads through this handle reflect every write that was acknowledged
    /// to any client before the call. This applies to all records, not only to stacks.
    ///
    /// Call it before you drop, skip or treat as missing a record that this handle did not just
    /// write. Without it, reads reflect only the writes that this handle made or has already seen.
    ///
    /// # Errors
    ///
    /// [`Error::Database`] if the store cannot confirm that it is up to date.
    async fn catch_up(&self) -> Result<()>;

    /// Appends to each user's stack of that day. Creates the day and the stack as needed.
    ///
    /// - Durable (P1): when it returns, every entry is stored; on a replica set, by a majority.
    /// - Idempotent (P1, P2): an entry that is already stored (same `t`, `o` and `i`) is not added
    ///   again. Any process may repeat any part of a push, even concurrently.
    /// - Capped: a push never grows a stack beyond `cap` entries. The entries of a list are stored
    ///   in list order as far as they fit. The rest is reported, each time that the push is
    ///   repeated.
    /// - Ordered: the entries of a list keep their order, and arrays only grow at their end.
    async fn push(&self, day: Day, cap: usize, pushes: &Pushes) -> Result<Pushed>;

    /// Streams the stacks of all users in the window, ordered by user id, in chunks of about
    /// `chunk` users.
    ///
    /// Starts after the user `after`, if given. All of a user's documents come in one item, whether
    /// their `_id` is text or an ObjectId. Users without entries may be omitted. Memory is bounded
    /// by the chunk.
    fn scan(
        &self,
        window: Window,
        after: Option<UserId>,
        chunk: usize,
    ) -> BoxStream<'_, Result<Vec<PersonStacks>>>;

    /// Returns the stacks of these users in the window, in the order of the request. A user without
    /// stacks has an empty list.
    async fn windows(&self, window: Window, people: People<'_>) -> Result<Vec<PersonStacks>>;

    /// Appends each marker once to the stacks that exist, regardless of the cap. Returns the stacks
    /// that could not take one.
    async fn write_markers(&self, markers: &[NewMarker]) -> Result<Vec<BadStack>>;
}

/// A document of a day on one line, byte-exact: canonical MongoDB Extended JSON v2, or a
/// store-specific form if that is not exact.
pub type RawStack = String;

/// How to restore a document whose `_id` is already in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meeting {
    /// The stored document must be identical.
    Same,
    /// Append the entries to those of other writers, each once. Pending events of other writers
    /// stay pending, unless the day has expired.
    Append {
        /// Whether all events of the day are too old to be emailed.
        is_expired: bool,
    },
}

/// Whole days: archiving and restoring them.
#[async_trait]
pub trait Days: Send + Sync {
    /// Returns the days that have a collection, oldest first. [`Counted::Stacks`] counts their
    /// documents.
    async fn days(&self) -> Result<Vec<Day>>;

    /// Drops the day if `sum` matches its documents. Returns whether it did.
    ///
    /// A concurrent write is never lost: either the day stays, or a new collection for the day
    /// holds the write. Only one caller at a time may drop a day. After a crash, [`Days::fix_day`]
    /// finishes the work.
    async fn drop_day(&self, day: Day, sum: &DaySum) -> Result<bool>;

    /// Repairs a day after a crash in [`Days::drop_day`]. The caller must hold the day's lease.
    async fn fix_day(&self, day: Day) -> Result<()>;

    /// Streams all documents of the day, byte-exact, in chunks. They are ordered by `_id`, text
    /// before ObjectIds.
    fn export_day(&self, day: Day) -> BoxStream<'_, Result<Vec<RawStack>>>;

    /// Restores exported documents. Skips a document that is already stored unchanged.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] names a stored document that differs, unless its entries can be appended
    /// ([`Meeting::Append`]). [`Error::Pending`] if a marker would cover pending events and
    /// exported entries have no ids.
    async fn restore_day(&self, day: Day, stacks: &[RawStack], meeting: Meeting) -> Result<()>;
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
pub enum PeopleFilter<'a> {
    /// All users that have a record.
    All,
    /// The followers of this key.
    Follow(&'a FollowKey),
    /// The users within `km` of the point.
    Near {
        /// Center of the circle.
        point: Point,
        /// Radius in kilometers.
        km: f64,
    },
    /// The users whose record matches these choices.
    Chose(&'a DueChoices),
    /// The users with this address, ignoring case.
    Address(&'a Address),
}

/// Statistics about addresses that occur in several user records, ignoring case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SharedAddresses {
    /// Number of records read, only those with an address.
    pub read: u64,
    /// Number of addresses that several of these records share.
    pub addresses: u64,
    /// Number of records with a shared address.
    pub users: u64,
    /// The lowest user id among the records with a shared address.
    pub first: Option<UserId>,
}

/// Users and their follows.
#[async_trait]
pub trait Directory: Send + Sync {
    /// Writes each record if its revision is the stored one, or if it has none and no record is
    /// stored. Each user occurs at most once. Returns which records were written, in the order of
    /// the request.
    ///
    /// Of two callers that change the same version of a record, one gets `false` and has to read it
    /// again. Thus no change is lost. May return `false` for a write that succeeded if its reply
    /// was lost. A stored record of another program has no revision, and any record without one
    /// replaces it.
    async fn put_users(&self, users: &[User]) -> Result<Vec<bool>>;

    /// Returns the records of these users, in the order of the request. Adjacent ids cost no more
    /// than one range.
    async fn users(&self, ids: &[UserId]) -> Result<Vec<Option<User>>>;

    /// Removes a user's record, follows and inbox, and sends a change notice. Stacks and deliveries
    /// stay until they are archived or removed. Returns whether there was a record.
    async fn delete_user(&self, id: &UserId) -> Result<bool>;

    /// Adds or removes follows. Adding an existing one or removing a missing one is no error.
    async fn change_follows(
        &self,
        change: FollowChange,
        follows: &[(FollowKey, UserId)],
    ) -> Result<()>;

    /// Returns the selected users in ascending order, starting after `after`. Costs what it
    /// returns.
    async fn find_people(
        &self,
        filter: &PeopleFilter<'_>,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<UserId>>;

    /// Returns the distinct time zones in user records. Costs what it returns.
    async fn zones(&self) -> Result<Vec<Tz>>;

    /// Returns the distinct locales in user records. Reads every record.
    async fn locales(&self) -> Result<Vec<String>>;

    /// Counts addresses that several records share, among the first `limit` records in the order of
    /// their addresses.
    async fn shared_addresses(&self, limit: usize) -> Result<SharedAddresses>;

    /// Returns whether each follow is stored, in the order of the request. Costs one lookup for
    /// each.
    async fn following(&self, follows: &[(FollowKey, UserId)]) -> Result<Vec<bool>>;

    /// Returns the keys that the user follows, in ascending order, starting after `after`.
    async fn follows(
        &self,
        user: &UserId,
        after: Option<&FollowKey>,
        limit: usize,
    ) -> Result<Vec<FollowKey>>;
}

/// The objects that events refer to.
#[async_trait]
pub trait Objects: Send + Sync {
    /// Creates or replaces these records, and sends a change notice.
    async fn put_objects(&self, objects: &[Object]) -> Result<()>;

    /// Returns the objects with these keys, in the order of the request, notifiable or not.
    ///
    /// On MongoDB a mapped model is read from the application's own collection. An object that does
    /// not match the model's filter is returned as not notifiable.
    async fn objects(&self, keys: &[ObjectKey]) -> Result<Vec<Option<Object>>>;
}

/// The outcome of accepting an event.
#[derive(Debug, Clone, PartialEq)]
pub enum Accepted {
    /// It was added to the journal.
    New,
    /// Its key already exists: this is the stored fan-out.
    Known(Box<Fanout>),
}

/// Limits on the number of fan-outs to lease at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtMost {
    /// Maximum number of fan-outs with audiences of any size.
    pub any: usize,
    /// Maximum number of further fan-outs, which must have small audiences
    /// ([`Audience::is_small`]). The first large audience ends the list.
    ///
    /// [`Audience::is_small`]: crate::domain::Audience::is_small
    pub small: usize,
}

impl From<usize> for AtMost {
    fn from(any: usize) -> Self {
        Self { any, small: 0 }
    }
}

/// Leased fan-outs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Claimed {
    /// Oldest first.
    pub fanouts: Vec<Fanout>,
    /// Leased as well, but unreadable. An operator has to fix them.
    pub bad: Vec<BadFanout>,
}

/// A fan-out whose record or audience cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct BadFanout {
    /// Its id, as stored.
    pub id: String,
    /// The unreadable part, and why.
    pub reason: String,
}

impl std::fmt::Display for BadFanout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "fan-out {}: {}", self.id, self.reason)
    }
}

/// The journal of accepted events.
#[async_trait]
pub trait Journal: Send + Sync {
    /// Adds new events, each with one durable insert, and returns the stored fan-out for a known
    /// key. The outcomes are in the order of the request.
    ///
    /// A fan-out is stored together with all users that it names, or not at all. The cost does not
    /// depend on the size of the audience, except for writing these users. If two events of one
    /// call share a key, the first is new and the second known.
    async fn accept(&self, fanouts: &[Fanout]) -> Result<Vec<Accepted>>;

    /// Leases pending fan-outs that have no lease, or whose lease has expired by `now`: the oldest
    /// first, up to `most`.
    ///
    /// Unreadable fan-outs are leased and reported as well, so that they do not block others.
    async fn claim_fanouts(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
        most: AtMost,
    ) -> Result<Claimed>;

    /// Saves progress and extends the lease of the fan-outs that `owner` still holds. Returns which
    /// were saved, in the order of the request. Releases fan-outs that are done.
    async fn save_fanouts(
        &self,
        owner: &str,
        until: DateTime<Utc>,
        progress: &[(Id, Progress)],
    ) -> Result<Vec<bool>>;

    /// Releases all fan-outs of this owner.
    async fn release_fanouts(&self, owner: &str) -> Result<()>;

    /// Returns the fan-out with this id, if it exists.
    async fn fanout(&self, id: Id) -> Result<Option<Fanout>>;

    /// Returns the details of these events, in the order of the request; `None` if there are none
    /// or they cannot be read.
    async fn details(&self, ids: &[Id]) -> Result<Vec<Option<Details>>>;

    /// Removes this actor, and the text and data of the actor's events, from the details of all
    /// events. Reads every entry. Afterward a change notice invalidates cached feeds.
    async fn forget_actor(&self, user: &UserId) -> Result<()>;

    /// Returns the events of the newest `limit` fan-outs, newest first. Unreadable ones are
    /// omitted.
    async fn newest(&self, limit: usize) -> Result<Vec<Vec<Event>>>;

    /// Returns the time of the oldest event whose fan-out is pending.
    async fn oldest_pending(&self) -> Result<Option<DateTime<Utc>>>;

    /// Returns the days that have pending fan-outs and must not be dropped. Ignores fan-outs with
    /// an unreadable day.
    async fn busy_days(&self) -> Result<Vec<Day>>;
}

/// Named leases, for work that only one process may do at a time.
#[async_trait]
pub trait Leases: Send + Sync {
    /// Acquires or extends the named lease, unless another owner holds it at `now`. Returns whether
    /// it succeeded.
    ///
    /// A lease that ends later than any valid one can ([`crate::domain::lease`]) counts as free.
    /// All other methods treat leases in the same way.
    async fn lease(&self, name: &str, lease: &Lease, now: DateTime<Utc>) -> Result<bool>;

    /// Releases the lease if this owner holds it.
    async fn unlease(&self, name: &str, owner: &str) -> Result<()>;
}

/// Short texts by name that all processes share. Examples are pauses of email, the results of the
/// last runs, and the secret that signs links.
#[async_trait]
pub trait Notes: Send + Sync {
    /// Returns the note of this name. Majority read.
    async fn note(&self, name: &str) -> Result<Option<String>>;

    /// Returns the notes of these names, in the order of the request. Majority read.
    async fn notes_named(&self, names: &[String]) -> Result<Vec<Option<String>>>;

    /// Returns the notes whose names start with `prefix`, ordered by name. Majority read.
    async fn notes(&self, prefix: &str) -> Result<Vec<(String, String)>>;

    /// Replaces a note if `read` is its current text. `None` means no note, so this creates,
    /// changes and deletes notes. Returns whether the note was changed.
    ///
    /// May return `false` for a change that succeeded if its reply was lost.
    async fn swap_note(&self, name: &str, read: Option<&str>, text: Option<&str>) -> Result<bool>;
}
