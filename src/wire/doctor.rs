//! The findings of `tidings doctor` about the sending and the delivery of email.

use serde::Serialize;

use crate::domain::BrandName;

/// The severity of a finding, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The check found no problem.
    Ok,
    /// The check could not be made.
    Unchecked,
    /// It works, but needs attention.
    Warning,
    /// Emails are not sent, are not delivered, or violate the rules of mailbox providers.
    Error,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The severity. Warnings and errors have `advice`.
    pub verdict: Verdict,
    /// The subject of the check, such as `database` or the path of an option.
    pub check: &'static str,
    /// The brand, unless it is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub brand: Option<BrandName>,
    /// The result, or why the check could not be made; for humans.
    pub found: String,
    /// What to do about it.
    pub advice: Option<String>,
}

/// All findings of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Diagnosis<'a> {
    /// The worst severity of all findings.
    pub(crate) verdict: Verdict,
    pub(crate) findings: &'a [Finding],
}
