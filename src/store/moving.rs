//! A whole store, read and written page by page, so that it can be moved into another.
//!
//! The rule: what is read is put as it is, whatever stands under its id, so a page may be put again
//! and again. Days are not here: they leave and come back as they are archived ([`super::Days`]).
//! Nor is what ends by itself: named leases, pokes, and how far anybody has caught up. A record
//! that cannot be read is told and passed over. [`note`] says who may use a store meanwhile.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{Notes, Result, Store};
use crate::domain::batch::Accumulator;
use crate::domain::{
    Address, Batch, Delivery, DeliveryId, Fanout, FollowKey, Inbox, Object, Retraction,
    Suppression, User, UserId,
};

mod kind;
mod lines;
mod note;

pub use kind::Kind;
pub use note::{MoveNote, Reached, Role};

/// One record, whole. What a store knows it by (its revision) is each store's own.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "each is one of its kind")]
pub enum Kept {
    User(Box<User>),
    Follow(FollowKey, UserId),
    Object(Box<Object>),
    Inbox(Box<Inbox>),
    Retraction(Retraction),
    Suppression(Suppression),
    SoftBounce {
        address: Address,
        delivery: DeliveryId,
        at: DateTime<Utc>,
    },
    Sighting {
        key: String,
        mark: String,
        until: DateTime<Utc>,
    },
    Fanout(Box<Fanout>),
    Accumulator(Box<Accumulator>),
    Batch(Box<Batch>),
    Delivery(Box<Delivery>),
    Note {
        name: String,
        text: String,
    },
}

/// Some records of a kind.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Portion {
    /// In the order of their ids.
    pub kept: Vec<Kept>,
    /// What cannot be read among them, each by its id, with the reason.
    pub bad: Vec<String>,
    /// What to go on after; nothing where all were read.
    pub next: Option<String>,
}

/// A store as something that can be moved, or moved into.
#[async_trait]
pub trait Moving: Notes {
    /// How many records there are of this kind, whether they can be read or not.
    async fn tally(&self, kind: Kind) -> Result<u64>;

    /// The records of this kind in the order of their ids, after what an earlier portion of this
    /// store said. Memory is bounded: a portion has at most 1,000 records, and fewer where they are
    /// large.
    async fn portion(&self, kind: Kind, after: Option<&str>) -> Result<Portion>;

    /// Puts records of one kind as they are, whatever stands under their ids. Durable, and harmless
    /// again.
    async fn put(&self, kind: Kind, kept: &[Kept]) -> Result<()>;

    /// What this store is in a move; nothing where it is in none.
    async fn move_note(&self) -> Result<Option<MoveNote>> {
        let note = self.note(NOTE).await?;
        note.as_deref().map(MoveNote::read).transpose()
    }

    /// Puts a note in the place of what was read, if that stands; says whether this one stands now.
    async fn swap_move_note(
        &self,
        read: Option<&MoveNote>,
        note: Option<&MoveNote>,
    ) -> Result<bool> {
        let read = read.map(MoveNote::text).transpose()?;
        let note = note.map(MoveNote::text).transpose()?;
        let swapped = self.swap_note(NOTE, read.as_deref(), note.as_deref());
        // No may be told where it was swapped and an earlier answer was lost.
        Ok(swapped.await? || self.note(NOTE).await? == note)
    }

    /// From now on the store refuses what anybody writes, those included who have it open, and says
    /// why; the note of the move excepted. A store that cannot do so answers no, and has to be
    /// watched instead. Harmless again.
    async fn seal(&self, why: &str) -> Result<bool>;

    /// Ends that.
    async fn unseal(&self) -> Result<()>;
}

/// A store that can be moved, or moved into.
pub trait Movable: Store + Moving {}

impl<T: Store + Moving> Movable for T {}

/// The note that says what a store is in a move.
pub(super) const NOTE: &str = "moving";

/// Whether a note is the store's own, and is not moved.
pub(super) fn stays(note: &str) -> bool {
    [NOTE, "schema"].contains(&note)
}

/// The most records in a portion.
pub(super) const RECORDS: usize = 1_000;
/// A portion ends with the record that takes it beyond so many bytes.
pub(super) const BYTES: usize = 4 << 20;
