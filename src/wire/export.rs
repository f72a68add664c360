//! Everything that tidings holds about one user.
//!
//! The rule (P8): unlike other answers it shows the address in full, so only operators get it.

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
    /// The record, its address masked; `None` where there is none.
    pub(crate) record: Option<UserView>,
    /// All keys that the user follows.
    pub follows: Vec<FollowKey>,
    /// All that the user has muted, also where the mute has ended.
    pub(crate) mutes: Vec<MuteView>,
    /// The events on the user's stacks in the window, oldest first.
    pub events: Vec<ExportedEvent>,
    /// Open and filed batches, newest first.
    pub batches: Vec<BatchView>,
    /// Deliveries, newest first.
    pub deliveries: Vec<DeliveryRow>,
    /// Why no email goes to the address, if none does.
    pub suppression: Option<SuppressionView>,
}

/// An event on a user's stack.
#[derive(Debug, Serialize)]
pub struct ExportedEvent {
    /// Its position, as feeds name it.
    pub id: Position,
    /// The event's type; `type` in JSON.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// The object's id.
    pub object: ObjectId,
    /// The id of the accepted event; `None` where an older writer left none.
    pub event: Option<Id>,
    /// When it happened.
    pub happened: DateTime<Utc>,
    /// Its state in the feed.
    pub state: ItemState,
}

/// An address as its own user may see it.
pub(crate) fn in_full(address: &Address) -> String {
    address.reveal().to_owned()
}
