//! What keeps mails from leaving or arriving, as `tidings doctor` found it.

use serde::Serialize;

use crate::domain::BrandName;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is as it should be.
    Ok,
    /// Nobody could be asked.
    Unchecked,
    /// It works, and something speaks against leaving it so.
    Warning,
    /// Mails do not leave, do not arrive, or break the mailbox providers' rules.
    Error,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A warning or an error has `advice`.
    pub verdict: Verdict,
    /// What was looked at, such as `database` or an option's path.
    pub check: &'static str,
    /// Of which brand, where it is not the default's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub brand: Option<BrandName>,
    /// What there is, or why nobody could be asked; for people to read.
    pub found: String,
    /// What to do about it.
    pub advice: Option<String>,
}

/// All that was looked at.
#[derive(Debug, Serialize)]
pub(crate) struct Diagnosis<'a> {
    /// The worst of all.
    pub(crate) verdict: Verdict,
    pub(crate) findings: &'a [Finding],
}
