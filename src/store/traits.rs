//! The storage contract: one trait for each group of records.
//!
//! One list declares every method. From it come the traits, and the forwarding of each call in a
//! store that wraps another one ([`Intercept`]).
//!
//! Long because the list is one macro call.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures::StreamExt;
use futures::stream::BoxStream;

use super::day_lines::{Checksum, MergePolicy, StackLine};
use super::record_lines::{ExportPart, RecordKind, RecordPage};
use super::types::Result;
use super::types::*;
use crate::domain::batch::{Accumulator, AccumulatorId, BatchAppend};
use crate::domain::delivery::{Corrected, Correction, Transition};
use crate::domain::feedback::{Feedback, ReportCounts, Suppression};
use crate::domain::{
    Address, Batch, BatchState, ChangeNotice, Day, DaySet, DefectiveStack, Delivery, DeliveryId,
    Details, Event, Fanout, FanoutProgress, FollowKey, Id, Inbox, Lease, Object, ObjectKey,
    Retraction, User, UserId, UserStacks,
};

/// A store that passes each call on to another one, and observes its result. `method` is the name
/// of the called method, or a more specific name.
pub trait Intercept: Send + Sync {
    /// The store that does the work.
    fn inner(&self) -> &dyn Store;

    /// Makes a call.
    fn call<T: Send + 'static>(
        &self,
        method: &'static str,
        work: impl Future<Output = Result<T>> + Send,
    ) -> impl Future<Output = Result<T>> + Send;

    /// Makes a call whose result is a stream.
    fn stream<'a, T: Send + 'a>(
        &'a self,
        method: &'static str,
        chunks: BoxStream<'a, Result<T>>,
    ) -> BoxStream<'a, Result<T>>;

    /// Observes the outcomes of accepting these fan-outs.
    fn accepted(&self, _: &[Fanout], _: &[Acceptance]) {}

    /// Observes which progress was saved.
    fn saved(&self, _: &[(Id, FanoutProgress)], _: &[bool]) {}

    /// Observes which rows were opened.
    fn opened(&self, _: &[Delivery], _: &[bool]) {}

    /// Observes which transitions were applied.
    fn advanced(&self, _: &[Transition], _: &[bool]) {}

    /// Observes reports that were recorded.
    fn reported(&self, _: &[(DeliveryId, Feedback)], _: &()) {}
}

/// Declares the traits, and implements each for all [`Intercept`].
///
/// `as` gives the call another name in metrics than that of its method. `=>` names the method of
/// [`Intercept`] that observes the arguments and the result. `provided` methods only call others.
macro_rules! contract {
    ($(
        $(#[$trait_doc:meta])*
        trait $trait:ident {$(
            $(#[$doc:meta])*
            fn $method:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty
                $(as $name:expr)? $(=> $observe:ident($($observed:ident),*))?;
        )*}
        $(streams {$(
            $(#[$stream_doc:meta])*
            fn $stream:ident($($stream_arg:ident: $stream_type:ty),*) -> $item:ty
                $(as $stream_name:expr)?;
        )*})?
        $(provided {$($provided:tt)*})?
    )*) => {
        $(
            $(#[$trait_doc])*
            #[async_trait]
            pub trait $trait: Send + Sync {
                $(
                    $(#[$doc])*
                    async fn $method(&self, $($arg: $type),*) -> Result<$result>;
                )*
                $($(
                    $(#[$stream_doc])*
                    fn $stream(&self, $($stream_arg: $stream_type),*)
                    -> BoxStream<'_, Result<$item>>;
                )*)?
                $($($provided)*)?
            }

            #[async_trait]
            impl<I: Intercept> $trait for I {
                $(async fn $method(&self, $($arg: $type),*) -> Result<$result> {
                    let called = [$($name,)? stringify!($method)][0];
                    let work = self.inner().$method($($arg),*);
                    let result = Intercept::call(self, called, work).await?;
                    $(Intercept::$observe(self, $($observed,)* &result);)?
                    Ok(result)
                })*
                $($(fn $stream(&self, $($stream_arg: $stream_type),*)
                -> BoxStream<'_, Result<$item>> {
                    let called = [$($stream_name,)? stringify!($stream)][0];
                    Intercept::stream(self, called, self.inner().$stream($($stream_arg),*))
                })*)?
            }
        )*

        /// All storage traits together. Each backend implements all of them.
        pub trait Store: $($trait +)* {}
        impl<T: $($trait +)*> Store for T {}
    };
}

contract! {
    /// The day collections.
    ///
    /// A malformed document affects only its owner. It is reported in the result
    /// ([`PushOutcome::defects`], [`DefectiveStack`]) or on its stack
    /// ([`crate::domain::Stack::defect`]), and all other users are processed. A document without a
    /// valid user id is skipped.
    trait Stacks {
        /// After this returns, all reads through this handle reflect every write that was
        /// acknowledged to any client before the call. This applies to all records, not only to
        /// stacks.
        ///
        /// Call it before you drop, skip or treat as missing a record that this handle did not just
        /// write. Without it, reads reflect only the writes that this handle made or has already
        /// seen.
        ///
        /// # Errors
        ///
        /// [`Error::Database`] if the store cannot confirm that it is up to date.
        fn catch_up() -> ();

        /// Appends to each user's stack of that day. Creates the day and the stack as needed.
        ///
        /// - Durable (P1): when it returns, every entry is stored; on a replica set, by a majority.
        /// - Idempotent (P1, P2): an entry that is already stored (same `t`, `o` and `i`) is not
        ///   added again. Any process may repeat any part of a push, even concurrently.
        /// - Capped: a push never grows a stack beyond `cap` entries. The entries of a list are
        ///   stored in list order as far as they fit. The rest is reported, each time that the push
        ///   is repeated.
        /// - Ordered: the entries of a list keep their order, and arrays only grow at their end.
        fn push(day: Day, cap: usize, pushes: &PushRequest) -> PushOutcome;

        /// Returns the stacks of these users in the window, in the order of the request. A user
        /// without stacks has an empty list.
        fn windows(window: DaySet, users: &[UserId]) -> Vec<UserStacks>;

        /// Appends each marker once to the stacks that exist, regardless of the cap. Returns the
        /// stacks that could not take one.
        fn write_markers(markers: &[NewMarker]) -> Vec<DefectiveStack>;
    } streams {
        /// Streams the stacks of all users in the window, ordered by user id, in chunks of about
        /// `chunk` users.
        ///
        /// Starts after the user `after`, if given. All of a user's documents come in one item,
        /// whether their `_id` is text or an ObjectId. Users without entries may be omitted. Memory
        /// is bounded by the chunk.
        fn scan(window: DaySet, after: Option<UserId>, chunk: usize) -> Vec<UserStacks>;
    }

    /// Whole days, exports and imports of all records, and the removal of old ones.
    trait Days {
        /// Returns the days that have a collection, oldest first. [`CountedRecords::Stacks`] counts
        /// their documents.
        fn days() -> Vec<Day>;

        /// Drops the day if `sum` matches its documents. Returns whether it did.
        ///
        /// A concurrent write is never lost: either the day stays, or a new collection for the day
        /// holds the write. Only one caller at a time may drop a day.
        fn drop_day(day: Day, sum: &Checksum) -> bool;

        /// Repairs a day after a crash in [`Days::drop_day`]. The caller must hold the day's lease.
        fn fix_day(day: Day) -> ();

        /// Restores exported documents of a day. Those that are already stored unchanged are
        /// skipped. Durable.
        ///
        /// # Errors
        ///
        /// [`Error::Conflict`] names a stored document that differs, unless its entries can be
        /// appended. [`Error::Pending`] if an exported marker would cover pending events.
        fn restore_day(day: Day, stacks: &[StackLine], policy: MergePolicy) -> ();

        /// Writes records of a kind. They replace those with the same ids; this may be repeated.
        /// Durable.
        fn import_records(kind: RecordKind, lines: &[String]) -> ();

        /// Removes records from before this moment, the oldest first, at most `limit`. Returns how
        /// many were removed.
        fn forget(what: ExpiringRecords, before: DateTime<Utc>, limit: usize) -> u64;
    } streams {
        /// Streams all documents of a day, byte-exact, ordered by `_id`, text before ObjectIds; or
        /// all records of a kind, in the order of their ids, without the notes about the store
        /// itself. A page has at most 1,000 lines or about 16 MB.
        fn export(which: ExportPart) -> RecordPage
            as match which {
                ExportPart::Day(_) => "export_day",
                ExportPart::Records(_) => "export",
            };
    } provided {
        /// Streams all documents of the day. Fails if one has no exact line.
        fn export_day(&self, day: Day) -> BoxStream<'_, Result<Vec<StackLine>>> {
            let pages = self.export(ExportPart::Day(day));
            pages.map(|page| Ok(page?.require_readable()?.lines)).boxed()
        }
    }

    /// Users, their follows, and their inboxes: the seen, read and archived marks of feeds.
    trait Directory {
        /// Writes each record if its revision is the stored one, or if it has none and no record is
        /// stored. Each user occurs at most once. Returns which records were written, in the order
        /// of the request.
        ///
        /// Of two callers that change the same version of a record, one gets `false` and has to
        /// read it again. Thus no change is lost. May return `false` for a write that succeeded if
        /// its reply was lost. A stored record of another program has no revision, and any record
        /// without one replaces it.
        fn put_users(users: &[User]) -> Vec<bool>;

        /// Returns the records of these users, in the order of the request. Adjacent ids cost no
        /// more than one range.
        fn users(ids: &[UserId]) -> Vec<Option<User>>;

        /// Removes a user's record, follows and inbox, and the actor, text and data of the events
        /// whose actor is the user. Reads every event. Stacks and deliveries stay until they are
        /// archived or removed. Sends change notices. Returns whether there was a record.
        fn delete_user(id: &UserId) -> bool;

        /// Adds or removes follows. Adding an existing one or removing a missing one is no error.
        fn change_follows(change: FollowChange, follows: &[(FollowKey, UserId)]) -> ();

        /// Returns the selected users in ascending order, starting after `after`. Costs what it
        /// returns. Skips ids that are not UTF-8. A page below the limit is the last one.
        fn find_users(
            filter: &UserFilter<'_>,
            after: Option<&UserId>,
            limit: usize,
        ) -> Vec<UserId>
            as "find_people";

        /// Returns the distinct values of this field in user records.
        fn values(field: UserField) -> Vec<String>;

        /// Returns whether each follow is stored, in the order of the request.
        fn following(follows: &[(FollowKey, UserId)]) -> Vec<bool>;

        /// Returns the keys that the user follows, in ascending order, starting after `after`.
        /// Costs what it returns.
        fn follows(user: &UserId, after: Option<&FollowKey>, limit: usize) -> Vec<FollowKey>;

        /// Returns the records of these users, in the order of the request. An unreadable record is
        /// logged and returned as an empty one, which the caller may replace.
        fn inboxes(users: &[UserId]) -> Vec<Option<Inbox>>;

        /// Writes each record under its new revision if its own revision is the stored one, or if
        /// it has none and none is stored. Returns which are stored under the new revision, in the
        /// order of the request, so the call may be repeated. Of two callers that change the same
        /// version, one gets `false`.
        fn put_inboxes(inboxes: &[(Inbox, Id)]) -> Vec<bool>;
    }

    /// The objects that events refer to, and retractions: small records that are read together with
    /// objects.
    trait Objects {
        /// Creates or replaces these records, and sends a change notice.
        fn put_objects(objects: &[Object]) -> ();

        /// Returns the objects with these keys, in the order of the request, notifiable or not.
        ///
        /// On MongoDB a mapped model is read from the application's own collection. An object that
        /// does not match the model's filter is returned as not notifiable.
        fn objects(keys: &[ObjectKey]) -> Vec<Option<Object>>;

        /// Stores these retractions, durably, and sends the change notice. For each type and object
        /// the latest one wins under any race. The cost does not depend on the number of notified
        /// users.
        fn retract(retractions: &[Retraction], notice: &ChangeNotice) -> ();

        /// Returns the moment up to which events with the type and object of each event are
        /// retracted, in the order of the request; `None` if there is no retraction.
        fn retractions(events: &[Event]) -> Vec<Option<Id>>;
    }

    /// The journal of accepted events.
    trait Journal {
        /// Adds new events, each with one durable insert, and returns the stored fan-out for a
        /// known key. The outcomes are in the order of the request.
        ///
        /// A fan-out is stored together with all users that it names, or not at all. The cost does
        /// not depend on the size of the audience, except for writing these users. If two events of
        /// one call share a key, the first is new and the second known.
        fn accept(fanouts: &[Fanout]) -> Vec<Acceptance> => accepted(fanouts);

        /// Leases pending fan-outs that have no lease, or whose lease has expired by `now`: the
        /// oldest first, up to `limit`. They get this lease.
        ///
        /// Unreadable fan-outs are leased and reported as well, so that they do not block others.
        fn claim_fanouts(lease: &Lease, now: DateTime<Utc>, limit: ClaimLimit) -> ClaimedFanouts;

        /// Saves the progress of fan-outs that the owner of the lease has leased, and extends their
        /// leases. Returns which were saved, in the order of the request. Releases fan-outs that
        /// are done.
        fn save_fanouts(lease: &Lease, progress: &[(Id, FanoutProgress)]) -> Vec<bool> => saved(progress);

        /// Returns the fan-out with this id, if it exists.
        fn fanout(id: Id) -> Option<Fanout>;

        /// Returns the details of these events, in the order of the request; `None` if there are
        /// none or they cannot be read.
        fn details(ids: &[Id]) -> Vec<Option<Details>>;

        /// Returns the events of the newest `limit` fan-outs, newest first. Unreadable fan-outs are
        /// omitted.
        fn newest_events(limit: usize) -> Vec<Vec<Event>>;

        /// Summarizes the oldest `limit` pending fan-outs, without unreadable ids and days. Reads
        /// this part of an index over pending fan-outs.
        fn pending(limit: usize) -> PendingFanouts;
    }

    /// Named leases, for work that only one process may do at a time, and notes, which are short
    /// texts that all processes share. Examples are pauses of email, the results of the last runs,
    /// and the secret that signs links.
    trait Notes {
        /// Acquires or extends the named lease, unless another owner holds it at `now`. Returns
        /// whether it succeeded.
        ///
        /// A lease that ends later than any valid one can ([`crate::domain::coordination`]) counts
        /// as free. All other methods treat leases in the same way.
        fn lease(name: &str, lease: &Lease, now: DateTime<Utc>) -> bool;

        /// Ends these leases or waits, so that others can continue at once.
        fn release(which: &LeasesToEnd<'_>) -> ();

        /// Returns the names and texts of these notes, ordered by name. Majority read.
        fn notes(which: NoteFilter<'_>) -> Vec<(String, String)>
            as match which {
                NoteFilter::Named(_) => "note",
                NoteFilter::Prefix(_) => "notes",
            };

        /// Replaces the text of a note by `new` if it is still `old`. `None` means no note, so this
        /// creates, changes and deletes notes. Returns whether the note was changed.
        ///
        /// May return `false` for a change that succeeded if its reply was lost.
        fn swap_note(name: &str, old: Option<&str>, new: Option<&str>) -> bool;
    } provided {
        /// Returns the note of this name.
        async fn note(&self, name: &str) -> Result<Option<String>> {
            let mut notes = self.notes(NoteFilter::Named(&[name])).await?;
            Ok(notes.pop().map(|(_, text)| text))
        }
    }

    /// Change notices of all processes that share this store.
    trait ChangeNotices {
        /// Subscribes. The first notice is [`ChangeNotice::All`]; from then on every notice arrives
        /// at least once.
        ///
        /// After an error or the end of the stream, notices may be missing: subscribe again.
        fn change_notices() -> BoxStream<'static, Result<ChangeNotice>>;
    }

    /// Near-real-time batches.
    trait Batches {
        /// Replaces each accumulator if its revision is the stored one, or creates it if it has
        /// none and none is stored. Removes an empty one. `revision` becomes the new revision and
        /// must be unique. Each accumulator occurs at most once.
        ///
        /// Returns which were written, in the order of the request. Of two callers that read the
        /// same version, one gets `false` and must read again. May return `false` for a write that
        /// succeeded if its reply was lost. Durable.
        fn put_accumulators(accumulators: &[Accumulator], revision: Id) -> Vec<bool>;

        /// Adds events to the open batches of accumulators, each in one step, if all conditions of
        /// the addition hold ([`BatchAppend::applies_to`]). `accumulators` pairs each accumulator
        /// with the index of its addition.
        ///
        /// Returns `true` if all of them are known to be updated. Otherwise the caller has to read
        /// the accumulators; a store may always decline. It is safe to repeat, because a fan-out
        /// joins only once. `revision` must be unique. Durable.
        fn add_to_open(
            accumulators: &[(AccumulatorId, usize)],
            additions: &[BatchAppend],
            revision: Id,
        ) -> bool;

        /// Returns these accumulators, in the order of the request. Each id occurs at most once.
        fn accumulators(ids: &[AccumulatorId]) -> Vec<Option<Accumulator>>;

        /// Returns the selected accumulators, at most `limit`.
        fn find_accumulators(filter: &AccumulatorFilter<'_>, limit: usize) -> Vec<Accumulator>;

        /// Files batches that left their accumulators. A batch that is already filed is not
        /// changed.
        ///
        /// Returns whether the stored batch has the same events ([`Batch::has_same_events`]), in
        /// the order of the request. `false` is a conflict: a batch with other events has the id.
        /// Durable.
        fn file_batches(batches: &[Batch]) -> Vec<bool>;

        /// Settles filed batches that are closing, as `closed` or `canceled`. Does not change
        /// settled ones.
        fn settle_batches(settled: &[(Id, BatchState)], now: DateTime<Utc>) -> ();

        /// Returns these filed batches, in the order of the request.
        fn filed_batches(ids: &[Id]) -> Vec<Option<Batch>> as "filed";

        /// Returns open and filed batches, newest first.
        fn find_batches(filter: &BatchFilter, limit: usize) -> Vec<Batch>;
    }

    /// The ledger of all emails.
    trait Deliveries {
        /// Inserts new `pending` rows, with the lease that they name, if any.
        ///
        /// A row is not inserted if its id exists or another open row has its slot. Returns which
        /// rows were inserted, in the order of the request. Durable.
        fn open(rows: &[Delivery]) -> Vec<bool> => opened(rows);

        /// Gives this lease to open rows and returns them, ordered by slot.
        fn claim(lease: &Lease, which: &RowsToLease<'_>) -> Vec<Delivery>;

        /// Applies these transitions to open rows that the owner of the lease has leased, at most
        /// one for each row. Extended leases end as this one does. Returns which were applied, in
        /// the order of the request. Durable (P4).
        fn advance(lease: &Lease, now: DateTime<Utc>, transitions: &[Transition]) -> Vec<bool>
            as match transitions {
                [Transition::HandOver(_), ..] => "hand_over",
                [Transition::ReturnToPending(_), ..] => "recall",
                [Transition::RenewLease(_), ..] => "hold",
                [Transition::Defer(_), ..] => "defer",
                [Transition::Settle(_) | Transition::SettleAndClose(_), ..] => "settle",
                [] => "advance",
            } => advanced(transitions);

        /// Closes settled rows, leased or not, and frees their slots. The caller has written their
        /// markers.
        fn close(ids: &[DeliveryId]) -> ();

        /// Corrects rows, each at most once. A correction applies to a closed row that is unknown
        /// or failed, or to a pending row that is to be canceled. Returns the outcomes in the order
        /// of the request. Durable.
        fn correct(now: DateTime<Utc>, corrections: &[Correction]) -> Vec<Corrected>;

        /// Returns these rows, in the order of the request; `None` if a row never existed or was
        /// removed.
        fn deliveries(ids: &[DeliveryId]) -> Vec<Option<Delivery>>;

        /// Returns the selected rows, newest first.
        fn find_deliveries(filter: &DeliveryFilter<'_>, limit: usize) -> Vec<Delivery>;
    }

    /// Addresses that must not be emailed.
    ///
    /// Addresses are compared in folded form ([`Address::folded`]). Lookups also find the spellings
    /// that an older version may have stored ([`Address::spellings`]).
    trait Suppressions {
        /// Suppresses these addresses, durably. If an address is already suppressed, or occurs
        /// twice, the more severe reason wins under any race ([`Suppression::outweighs`]).
        fn add_suppressions(suppressions: &[Suppression]) -> ();

        /// Allows emails to an address again and removes its soft bounces. Returns whether it was
        /// suppressed. Then the time `at` is stored, and later suppressions from before it are
        /// ignored. Lifts of any address from before `expired` are removed. Durable.
        fn lift_suppression(address: &Address, at: DateTime<Utc>, expired: DateTime<Utc>) -> bool;

        /// Records a soft bounce of this delivery, durably, and counts the deliveries to the
        /// address with one. A delivery counts once, at its earliest recorded time. Bounces of the
        /// address from before `since` are removed.
        fn note_soft_bounce(
            address: &Address,
            delivery: &DeliveryId,
            at: DateTime<Utc>,
            since: DateTime<Utc>,
        ) -> u64;

        /// Returns the stored states of these addresses, in the order of the request. Costs one
        /// indexed read for a whole page of users.
        fn address_states(addresses: &[Address]) -> Vec<AddressState>;

        /// Returns a page of active suppressions after this address, ordered by the stored address.
        fn suppressions(after: Option<&Address>, limit: usize) -> Vec<Suppression>;
    }

    /// Provider reports on accepted emails. They are stored in the ledger rows, in addition to the
    /// state. Webhook ids and signature tokens that were seen recently show which reports are
    /// repeated or replayed.
    trait Feedbacks {
        /// Records reports. If a row already has one, the worse wins under any race
        /// ([`Feedback::outweighs`]). Ignores deliveries without a row.
        fn note_feedback(feedback: &[(DeliveryId, Feedback)]) -> () => reported(feedback);

        /// Counts exactly the outcomes of the emails that were settled at `since` or later. This
        /// includes sent emails, and unknown ones that have a report. Costs a read of an index over
        /// these rows.
        fn report_counts(since: DateTime<Utc>) -> ReportCounts;

        /// Stores a mark under each key until `until`, durably, unless a mark is stored that has
        /// not expired at `now`. Removes expired marks. Without `until` it only reads.
        ///
        /// Returns the mark that is now stored under each key, in the order of the request.
        /// Concurrent callers with one key all get the same mark.
        fn webhook_receipts(
            marks: &[(String, String)],
            now: DateTime<Utc>,
            until: Option<DateTime<Utc>>,
        ) -> Vec<Option<String>>;
    }

    /// Diagnostics for operators.
    trait Diagnostics {
        /// Returns the database engine, its clock, the schema version and the missing indexes.
        fn condition() -> DatabaseStatus;

        /// Counts these records exactly, in the order of the request. The cost is proportional to
        /// each count.
        fn count(what: &[CountedRecords]) -> Vec<u64>;

        /// Returns the work to be done at `now`, counting at most `limit` items of each kind. Uses
        /// indexes only, so the cost depends on the counts and not on the size of the history.
        fn outstanding(now: DateTime<Utc>, limit: u64) -> OutstandingWork;
    }
}

impl dyn Store + '_ {
    /// Reads all parts of these users' feeds at once, in the order of the users, who are all
    /// different.
    pub async fn feeds(&self, window: DaySet, users: &[UserId]) -> Result<Vec<FeedParts>> {
        let (stacks, inboxes, records) = futures::try_join!(
            self.windows(window, users),
            self.inboxes(users),
            self.users(users)
        )?;
        let parts = stacks.into_iter().zip(inboxes).zip(records);
        Ok(parts.map(|((person, inbox), user)| FeedParts { stacks: person, inbox, user }).collect())
    }
}
