//! The storage interface: one trait for each group of records, implemented by [`mongo`] and
//! [`sqlite`].
//!
//! Stores keep records; the domain makes the decisions. A method is one read, one append or one
//! compare-and-set, usually for many records at once. Callers pass in times and ids. The contract
//! tests (`tests/all/store_laws`) hold both stores to the traits. Start with [`Stacks`].

mod day_lines;
mod entry;
mod extjson;
pub mod mongo;
mod record;
mod record_lines;
pub mod sqlite;
mod traits;
mod transfer_mark;
mod types;

pub use day_lines::{Checksum, ChecksumBuilder, MergePolicy, StackLine};
pub use record_lines::{AnyRecord, ExportPart, RecordKind, RecordPage};
pub use traits::{
    Batches, ChangeNotices, Days, Deliveries, Diagnostics, Directory, Feedbacks, Intercept,
    Journal, Notes, Objects, Stacks, Store, Suppressions,
};
pub use transfer_mark::{ImportProgress, TransferMark};
pub use types::{
    Acceptance, AccumulatorFilter, AddressState, BatchFilter, ClaimLimit, ClaimedFanouts,
    CountedRecords, DatabaseStatus, DeliveryFilter, Engine, Error, ExpiringRecords, FeedParts,
    FollowChange, LeasesToEnd, NewMarker, NoteFilter, OutstandingWork, PendingFanouts, PushOutcome,
    PushRequest, Result, RowsToLease, Schema, TimeRange, Topology, UnreadableFanout, UserField,
    UserFilter, WaitingItems,
};
