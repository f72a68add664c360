//! The outcome of the reports that a provider posts.

use serde::Serialize;

/// The outcomes of the reports in one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Reported {
    /// Reports that were recorded on their delivery.
    pub taken: u64,
    /// Reports that were received before.
    pub duplicates: u64,
    /// Reports about emails that have no delivery here, such as another application's.
    pub not_ours: u64,
    /// Reports of kinds that have no meaning here, such as opened emails.
    pub ignored: u64,
    /// Reports that do not have the documented form. The others were processed.
    pub unreadable: u64,
    /// Addresses that the reports suppress.
    pub suppressed: u64,
    /// Reports that would suppress an address that is no longer the user's.
    pub moved: u64,
}
