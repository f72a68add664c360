//! What became of what a provider reported.

use serde::Serialize;

/// How many reports of one request came to what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Reported {
    /// Noted on the mail they are about.
    pub taken: u64,
    /// Seen before.
    pub duplicates: u64,
    /// About mails that are not in the ledger, such as another application's.
    pub not_ours: u64,
    /// Of kinds that mean nothing here, such as opened mails.
    pub ignored: u64,
    /// Reports that do not have the documented form. The others were read all the same.
    pub unreadable: u64,
    /// Addresses that are not written to because of them.
    pub suppressed: u64,
    /// Reports that would suppress an address, if the person still had the one that the mail went
    /// to.
    pub moved: u64,
}
