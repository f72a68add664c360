//! Everything that tidings holds about one user.
//!
//! Unlike other answers, an export contains the address in full, so only operators get it (P8).

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::batch::BatchView;
use super::delivery::DeliveryRow;
use super::suppression::SuppressionView;
use super::user::{MuteView, UserView};
use crate::domain::inbox::ItemState;
use crate::domain::{Address, EventType, FollowKey, Id, ObjectId, Position, UserId};

/// An export of one user.
#[derive(Debug, Serialize)]
pub struct UserExport {
    /// The user's id.
    pub user: UserId,
    /// When the export was made.
    pub at: DateTime<Utc>,
    /// The address of the record, in full.
    pub email: Option<String>,
    /// The record, with the address masked; `None` if there is none.
    pub(crate) record: Option<UserView>,
    /// All keys that the user follows.
    pub follows: Vec<FollowKey>,
    /// The user's mutes, including those that have ended.
    pub(crate) mutes: Vec<MuteView>,
    /// The events on the user's stacks in the window, oldest first.
    pub events: Vec<ExportedEvent>,
    /// Open and filed batches, newest first.
    pub batches: Vec<BatchView>,
    /// Deliveries, newest first.
    pub deliveries: Vec<DeliveryRow>,
    /// The suppression of the address, if any.
    pub suppression: Option<SuppressionView>,
}

/// An event on a user's stack.
#[derive(Debug, Serialize)]
pub struct ExportedEvent {
    /// The position, as in feeds.
    pub id: Position,
    /// The event's type; `type` in JSON.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// The object's id.
    pub object: ObjectId,
    /// The id of the accepted event; `None` if an older writer stored none.
    pub event: Option<Id>,
    /// The time of the event.
    pub happened: DateTime<Utc>,
    /// Its state in the feed.
    pub state: ItemState,
}

/// Returns an address in full, for an export.
pub(crate) fn in_full(address: &Address) -> String {
    address.reveal().to_owned()
}
