//! An email that was built from a delivery.

use crate::domain::Delivery;
use crate::email::Message;

/// An email that is ready to be sent.
pub(super) struct Mail {
    pub row: Delivery,
    pub items: u32,
    /// Whether its markers are written: the provider once accepted it.
    pub has_markers: bool,
    pub message: Message,
}
