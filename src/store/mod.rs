//! The storage interface: one trait for each group of records, implemented by [`mongo`] and
//! [`sqlite`].
//!
//! Stores keep records; the domain makes the decisions. A method is one read, one append or one
//! compare-and-set, usually for many records at once. Callers pass in times and ids. The contract
//! tests (`tests/all/store_laws`) hold both stores to the traits. Start with [`Stacks`].

mod contract;
mod days;
mod entry;
mod extjson;
mod mark;
pub mod mongo;
mod record;
pub mod sqlite;
mod transfer;
mod types;

pub use contract::{
    Batches, ChangeNotices, Days, Deliveries, Diagnostics, Directory, Feedbacks, Intercept,
    Journal, Notes, Objects, Stacks, Store, Suppressions,
};
pub use days::{DaySum, Meeting, RawStack, Summing};
pub use mark::{Importing, Mark};
pub use transfer::{AnyRecord, Export, Kind, Page};
pub use types::{
    Accepted, AccumulatorFilter, AddressState, AtMost, BadFanout, BatchFilter, Claim, Claimed,
    Condition, Counted, DeliveryFilter, Engine, Error, FeedParts, FollowChange, Forgettable,
    NewMarker, NoteFilter, Outstanding, PendingFanouts, PeopleFilter, Pile, Pushed, Pushes,
    Release, Result, Schema, Span, Topology, UserField,
};
