//! An address that must not be written to.

use super::fields::{As, Time};
use super::of;
use crate::domain::{Address, Reason, Suppression};

record! {
    /// See [`Suppression`].
    SuppressionRecord of Suppression as "suppression" {
        address = "_id": String, reason: Reason, at: Time, source: String;
        detail: String
    }
    extra(_value) {}
    odd(record) {}
}

/// Folded.
impl As<Address> for String {
    fn keep(address: &Address) -> Self {
        address.folded().reveal().to_owned()
    }

    fn told(self) -> Result<Address, String> {
        Address::stored(self).map_err(|why| why.to_string())
    }
}
