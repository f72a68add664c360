//! What is kept.
//!
//! The rule: stores keep, the domain decides. A verb is one read, one append or one
//! compare-and-set, over many people at once where that matters; time and ids come in as arguments.
//! What each verb promises stands at the traits below; the laws (`tests/all/store_laws`) hold both
//! stores to it. Backends: [`mongo`], [`sqlite`].

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

/// Everything that is kept, by meaning. One backend implements all of it.
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

/// One push: these entries onto these people's stacks. Many people may share one list of entries.
#[derive(Debug, Default, Clone)]
pub struct Pushes {
    /// Distinct lists of entries; every event has an `i`.
    pub lists: Vec<Vec<Event>>,
    /// Each person at most once, in ascending order, with the index of their list.
    pub people: Vec<(UserId, usize)>,
}

/// What became of a push, by the order of its people: how many entries did not fit under the cap.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// People (by index) of whose entries some were not stored, and which: indices into their list.
    pub capped: Vec<(usize, Vec<usize>)>,
    /// Those of them whose documents take no entries, and why.
    pub bad: Vec<(usize, Defect)>,
}

/// A marker to be written at the ends of one person's stacks; stacks are named once in a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewMarker {
    /// Markers `{flushed, n}`.
    Flushed {
        /// Whose stacks.
        user: UserId,
        /// The marker's id; one that stands already under it, with the same `n`, is not written
        /// again.
        marker: Id,
        /// The stacks, and how many entries of each are covered.
        watermarks: Watermarks,
    },
    /// What was mailed on its own, on the stack that tidings itself writes to.
    Mailed {
        /// Whose stack.
        user: UserId,
        /// The day on which the events stand.
        day: Day,
        /// The entry; one that stands already is not written again.
        mailed: Mailed,
    },
}

/// Whose stacks to read.
#[derive(Debug, Clone)]
pub enum People<'a> {
    /// These people, wherever they are; ascending. Costs a look-up for each.
    Each(&'a [UserId]),
    /// These people, ascending, where most people between the first and the last are wanted. Costs
    /// one sequential read of everything between.
    Between(&'a [UserId]),
}

/// The heart: the day collections.
///
/// A document that cannot be dealt with is its owner's trouble only: it is told in the answer
/// ([`Pushed::bad`], [`BadStack`]) or on its stack ([`crate::domain::Stack::defect`]), and
/// everybody else is read, pushed to and given markers. One that is nobody's is passed over.
#[async_trait]
pub trait Stacks: Send + Sync {
    /// What anybody was told stands before this was called, all reads show from now on: of stacks
    /// and of everything else, by this handle. To be asked before something is dropped, skipped or
    /// taken for absent that was not just written to; reads show in any case what this handle wrote
    /// or saw before. A store that cannot say is away.
    async fn catch_up(&self) -> Result<()>;

    /// Appends to each person's stack of that day, creating day and stack as needed.
    ///
    /// - Durable (P1): on return every entry stands, acknowledged by a majority on a replica set.
    /// - Harmless again (P1, P2): an entry that already stands there (same `t`, `o` and `i`) is not
    ///   added twice, so any part of a push can be repeated after a failure, by anybody, at the
    ///   same time.
    /// - Capped: a stack never grows past `cap` entries by a push. What does not fit is reported,
    ///   not stored, and reported again when the push is repeated; the entries of a list that fit,
    ///   in list order, are stored.
    /// - Order: a list's entries stand in list order, and arrays only grow at their end.
    async fn push(&self, day: Day, cap: usize, pushes: &Pushes) -> Result<Pushed>;

    /// Everybody who has a stack in the window, in ascending order of user id, in chunks of about
    /// `chunk` people; `after` excludes everybody up to and including that user. Memory is bounded
    /// by the chunk, not by the number of people. Both forms of a person's documents come together.
    /// People without entries may be left out.
    fn scan(
        &self,
        window: Window,
        after: Option<UserId>,
        chunk: usize,
    ) -> BoxStream<'_, Result<Vec<PersonStacks>>>;

    /// These people's stacks in the window, in the order asked; people without any have an empty
    /// list of stacks.
    async fn windows(&self, window: Window, people: People<'_>) -> Result<Vec<PersonStacks>>;

    /// Writes these at the ends of the stacks that still exist, each once. They are not subject to
    /// the cap. The answer names the stacks that took none.
    async fn write_markers(&self, markers: &[NewMarker]) -> Result<Vec<BadStack>>;
}

/// A document of a day, exactly as it stands, on one line: as canonical Extended JSON (MongoDB
/// Extended JSON v2), or in a form of the store's own where that cannot tell it exactly.
pub type RawStack = String;

/// How a document that is restored meets what stands under its `_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meeting {
    /// It must be the same.
    Same,
    /// Its entries are appended to those of other writers, each once. Pending events of other
    /// writers stay pending, unless all events of the day have expired.
    Append {
        /// Whether no event of the day is emailed any more.
        is_expired: bool,
    },
}

/// The day collections as wholes: archiving and restoring.
#[async_trait]
pub trait Days: Send + Sync {
    /// Which day collections there are, oldest first. How many documents one holds:
    /// [`Counted::Stacks`].
    async fn days(&self) -> Result<Vec<Day>>;

    /// Drops a day if its documents are exactly these; says whether it was dropped. What anybody
    /// writes meanwhile is never lost: then it is not dropped, or a new day holds it. One at a time
    /// for a day; whoever dies inside leaves work for [`Days::fix_day`].
    async fn drop_day(&self, day: Day, sum: &DaySum) -> Result<bool>;

    /// Makes a day whole again that somebody died over dropping. Only for who has the day's lease.
    async fn fix_day(&self, day: Day) -> Result<()>;

    /// All documents of a day exactly as they stand, in ascending order of `_id` (text before
    /// ObjectIds), in chunks.
    fn export_day(&self, day: Day) -> BoxStream<'_, Result<Vec<RawStack>>>;

    /// Restores documents as they were exported. An identical document is skipped. Where one
    /// differs, its entries are appended ([`Meeting::Append`]), or it is an error
    /// ([`Error::Conflict`]) that names it. It is also an error ([`Error::Pending`]) if a marker
    /// would cover pending events, and exported entries have no ids.
    async fn restore_day(&self, day: Day, stacks: &[RawStack], meeting: Meeting) -> Result<()>;
}

/// What becomes of follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FollowChange {
    /// They stand.
    Follow,
    /// They do not.
    Unfollow,
}

/// Which people.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PeopleFilter<'a> {
    /// All who have a record.
    All,
    /// Those who follow this key.
    Follow(&'a FollowKey),
    /// Those who live within `km` of the point.
    Near {
        /// The middle of the circle.
        point: Point,
        /// Its radius.
        km: f64,
    },
    /// Those whose record says one of each of these choices.
    Chose(&'a DueChoices),
    /// Those whose record has this address, in upper or lower case.
    Address(&'a Address),
}

/// How many addresses several records have, in upper or lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SharedAddresses {
    /// The number of records with an address that were read.
    pub read: u64,
    /// The addresses that several of these records have.
    pub addresses: u64,
    /// The records that have one of them.
    pub users: u64,
    /// The first of these records by id.
    pub first: Option<UserId>,
}

/// People and what they follow.
#[async_trait]
pub trait Directory: Send + Sync {
    /// Replaces each record if what stands is what was read (its revision), and creates it if it
    /// was not read and none stands. The answer says which were put, in the order asked; each
    /// person at most once. Of two who read the same record and put different ones, one is told no,
    /// and has to read again: so nobody's change is lost. No may also be told where it was put and
    /// an earlier answer was lost. A record that another program wrote has no revision and counts
    /// as not read.
    async fn put_users(&self, users: &[User]) -> Result<Vec<bool>>;

    /// The records of these people, in the order asked. Ids that stand next to each other are as
    /// cheap as one range.
    async fn users(&self, ids: &[UserId]) -> Result<Vec<Option<User>>>;

    /// Removes a user's record, follows and inbox, and sends a change notice; stacks and deliveries
    /// stay until they are archived or forgotten. Returns whether there was a record.
    async fn delete_user(&self, id: &UserId) -> Result<bool>;

    /// Records, or forgets, that users follow keys; one that stands already is left alone, and one
    /// that does not stand is no error.
    async fn change_follows(
        &self,
        change: FollowChange,
        follows: &[(FollowKey, UserId)],
    ) -> Result<()>;

    /// Who these are, ascending, after this user, at most `limit`. Costs what it returns.
    async fn find_people(
        &self,
        filter: &PeopleFilter<'_>,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<UserId>>;

    /// The time zones that people's records say, each once. Costs what it returns.
    async fn zones(&self) -> Result<Vec<Tz>>;

    /// The locales in user records, each once. Reads every record.
    async fn locales(&self) -> Result<Vec<String>>;

    /// Counts the addresses that several records have, among the first `limit` records in the order
    /// of their addresses.
    async fn shared_addresses(&self, limit: usize) -> Result<SharedAddresses>;

    /// Whether these stand, in the order asked; each is one look-up.
    async fn following(&self, follows: &[(FollowKey, UserId)]) -> Result<Vec<bool>>;

    /// What this person follows, ascending, after this key, at most `limit`.
    async fn follows(
        &self,
        user: &UserId,
        after: Option<&FollowKey>,
        limit: usize,
    ) -> Result<Vec<FollowKey>>;
}

/// What events are about.
#[async_trait]
pub trait Objects: Send + Sync {
    /// Creates or replaces these records.
    async fn put_objects(&self, objects: &[Object]) -> Result<()>;

    /// The records under these keys, in the order asked, whether notifiable or not. On MongoDB a
    /// mapped model is read from the application's own collection; there an object that its filter
    /// does not match comes back as not notifiable.
    async fn objects(&self, keys: &[ObjectKey]) -> Result<Vec<Option<Object>>>;
}

/// What became of an event that was handed in.
#[derive(Debug, Clone, PartialEq)]
pub enum Accepted {
    /// It is in the journal now.
    New,
    /// Its key is taken: this is the fan-out that has it.
    Known(Box<Fanout>),
}

/// How many fan-outs somebody leases at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtMost {
    /// So many, whoever is meant.
    pub any: usize,
    /// Of so many that stand behind them, the small ones up to the first that is not
    /// ([`Audience::is_small`]).
    ///
    /// [`Audience::is_small`]: crate::domain::Audience::is_small
    pub small: usize,
}

impl From<usize> for AtMost {
    fn from(any: usize) -> Self {
        Self { any, small: 0 }
    }
}

/// What somebody leased of the journal.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Claimed {
    /// Oldest first.
    pub fanouts: Vec<Fanout>,
    /// Those that nobody can fan out until somebody fixes them.
    pub bad: Vec<BadFanout>,
}

/// A fan-out whose record, or whose audience, cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct BadFanout {
    /// As the store shows it.
    pub id: String,
    /// What of it cannot be read.
    pub reason: String,
}

impl std::fmt::Display for BadFanout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "fan-out {}: {}", self.id, self.reason)
    }
}

/// The journal every accepted event goes through.
#[async_trait]
pub trait Journal: Send + Sync {
    /// Writes new entries, each one durable insert, and finds those whose key is taken. All answers
    /// are in the order asked. The cost does not depend on the audience's size, but for writing
    /// down people who are named; an entry stands with all of them, or not at all. Two entries with
    /// one key in one call: the first is new, the second known.
    async fn accept(&self, fanouts: &[Fanout]) -> Result<Vec<Accepted>>;

    /// Leases so many pending fan-outs that nobody holds (or whose lease has run out by `now`) to
    /// the owner, oldest first. Those that cannot be read are leased as well, so that they are in
    /// nobody's way, and told.
    async fn claim_fanouts(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
        most: AtMost,
    ) -> Result<Claimed>;

    /// Saves progress and extends the lease, for those that `owner` still holds; the answer says
    /// which were saved, in the order asked. A fan-out that is done gives up its lease.
    async fn save_fanouts(
        &self,
        owner: &str,
        until: DateTime<Utc>,
        progress: &[(Id, Progress)],
    ) -> Result<Vec<bool>>;

    /// Gives up whatever leases the owner still holds.
    async fn release_fanouts(&self, owner: &str) -> Result<()>;

    /// The fan-out of this id; `None` where the journal has none.
    async fn fanout(&self, id: Id) -> Result<Option<Fanout>>;

    /// What is said of the events of these fan-outs, in the order asked; `None` where nothing is,
    /// or it cannot be read.
    async fn details(&self, ids: &[Id]) -> Result<Vec<Option<Details>>>;

    /// Removes this actor, and the text and data of their events, from the details of all events.
    /// Reads every entry. Afterward a change notice invalidates what feeds have cached.
    async fn forget_actor(&self, user: &UserId) -> Result<()>;

    /// What the newest entries say happened, at most so many, newest first: the events of each that
    /// can be read.
    async fn newest(&self, limit: usize) -> Result<Vec<Vec<Event>>>;

    /// When the oldest of all events happened that are not fanned out to everybody yet.
    async fn oldest_pending(&self) -> Result<Option<DateTime<Utc>>>;

    /// Days that still have pending fan-outs: not to be dropped. A fan-out whose day cannot be read
    /// has none.
    async fn busy_days(&self) -> Result<Vec<Day>>;
}

/// Who works on what, where only one should.
#[async_trait]
pub trait Leases: Send + Sync {
    /// Takes or extends the lease of that name, if nobody else holds it at `now`: one that lies
    /// further ahead than it could last ([`crate::domain::lease`]) is nobody's, here and wherever
    /// leases are asked about.
    async fn lease(&self, name: &str, lease: &Lease, now: DateTime<Utc>) -> Result<bool>;

    /// Gives it up, if this owner holds it.
    async fn unlease(&self, name: &str, owner: &str) -> Result<()>;
}

/// Small texts under a name that all processes share: that mails are held back and why, what the
/// last run came to, the secret that links are signed with.
#[async_trait]
pub trait Notes: Send + Sync {
    /// The note of that name, as a majority has it.
    async fn note(&self, name: &str) -> Result<Option<String>>;

    /// The notes of these names, in their order, as a majority has them.
    async fn notes_named(&self, names: &[String]) -> Result<Vec<Option<String>>>;

    /// The notes whose names start with this, by name, as a majority has them.
    async fn notes(&self, prefix: &str) -> Result<Vec<(String, String)>>;

    /// Puts a text in the place of what was read, where that still stands: `None` is no note, so
    /// this writes, changes and forgets. Says whether anything was changed; no may also be told
    /// where it was and an earlier answer was lost.
    async fn swap_note(&self, name: &str, read: Option<&str>, text: Option<&str>) -> Result<bool>;
}
