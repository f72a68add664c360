//! The record of a suppressed address.

use super::fields::{As, Time};
use super::of;
use crate::domain::{Address, Reason, Suppression};

record! {
    /// See [`Suppression`].
    SuppressionRecord of Suppression as "suppression" {
        address = "_id": String, reason: Reason, at: Time, source: String;
        detail: String, lifted: Time
    }
    extra(_value) {}
    odd(record) {}
}

impl SuppressionRecord {
    /// Returns a record that keeps the spelling of the address, instead of its folded form.
    pub(in crate::store) fn exactly(suppression: &Suppression) -> Self {
        Self {
            address: suppression.address.reveal().to_owned(),
            ..Self::keep(suppression)
        }
    }
}

/// The stored form of an address is the folded one.
impl As<Address> for String {
    fn keep(address: &Address) -> Self {
        address.folded().reveal().to_owned()
    }

    fn told(self) -> Result<Address, String> {
        Address::stored(self).map_err(|why| why.to_string())
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;
    use crate::store::record::{Record, read_bson, write_bson};

    #[test]
    fn an_error_about_an_unreadable_record_masks_its_address() {
        let odd = doc! {"_id": "ada.lovelace@example.org", "reason": 7, "at": "x", "source": "s"};
        let document = write_bson("testing", &odd).unwrap();

        let error = read_bson::<SuppressionRecord>(&document).unwrap_err();

        let message = error.to_string();
        assert!(message.contains(SuppressionRecord::WHAT), "{message}");
        assert!(!message.contains("lovelace"), "{message}");
    }
}
