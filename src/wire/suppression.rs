//! Suppressed addresses. They are masked (P8), unless an operator requests them in full.

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::domain::{self, Suppression};

/// A suppressed address, and why it is suppressed.
#[derive(Debug, Clone, Serialize)]
pub struct SuppressionView {
    /// The address, masked unless an operator requested it in full.
    pub address: String,
    /// The most severe reason so far.
    pub reason: domain::SuppressionReason,
    /// When that reason was reported.
    pub at: DateTime<Utc>,
    /// The source of the report, such as a provider's name.
    pub source: String,
    /// The provider's code, such as `550 5.1.1`.
    pub detail: Option<String>,
}

impl From<Suppression> for SuppressionView {
    fn from(suppression: Suppression) -> Self {
        Self {
            address: suppression.address.to_string(),
            reason: suppression.reason,
            at: suppression.at,
            source: suppression.source,
            detail: suppression.detail,
        }
    }
}

/// A page of suppressed addresses, in the order of the addresses.
#[derive(Debug, Serialize)]
pub(crate) struct SuppressionPage {
    pub(crate) suppressions: Vec<SuppressionView>,
    /// The value of `after` for the next page, if there may be one.
    pub(crate) next: Option<String>,
}
