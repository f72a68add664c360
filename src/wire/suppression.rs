//! Addresses that no mail goes to.
//!
//! The rule (P8): addresses are shown masked, unless an operator asks for them in full.

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::domain::{Reason, Suppression};

/// An address, and why it is suppressed.
#[derive(Debug, Clone, Serialize)]
pub struct SuppressionView {
    /// Masked, unless an operator asked for it in full.
    pub address: String,
    /// The most serious reason that was heard.
    pub reason: Reason,
    /// Since when.
    pub at: DateTime<Utc>,
    /// Who said so first, such as a provider's name.
    pub source: String,
    /// Codes, such as `550 5.1.1`.
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

/// A page of the list, by address.
#[derive(Debug, Serialize)]
pub(crate) struct SuppressionPage {
    pub(crate) suppressions: Vec<SuppressionView>,
    /// Ask `after` this for the next page, if there may be one.
    pub(crate) next: Option<String>,
}
