//! The answer of `tidings doctor`.

use serde::Serialize;

use crate::domain::BrandName;

/// The severity of a finding, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
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
    #[serde(rename = "verdict")]
    pub severity: Severity,
    /// The subject of the check, such as `database` or the path of an option.
    pub check: &'static str,
    /// The brand, unless it is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub brand: Option<BrandName>,
    /// The result, or why the check could not be made; for humans.
    #[serde(rename = "found")]
    pub result: String,
    /// What to do about it.
    pub advice: Option<String>,
}

/// A warning or an error always has advice. A check that could not run is `unchecked`, never `ok`.
impl Finding {
    fn new(severity: Severity, found: impl Into<String>, advice: Option<String>) -> Self {
        Self { severity, check: "", brand: None, result: found.into(), advice }
    }

    /// All is well.
    pub(crate) fn ok(found: impl Into<String>) -> Self {
        Self::new(Severity::Ok, found, None)
    }

    /// The check could not run, for this reason.
    pub(crate) fn unchecked(why: impl Into<String>) -> Self {
        Self::new(Severity::Unchecked, why, None)
    }

    /// It works, but should be changed.
    pub(crate) fn warning(found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(Severity::Warning, found, Some(advice.into()))
    }

    /// Emails are not sent or not delivered, or break rules.
    pub(crate) fn error(found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(Severity::Error, found, Some(advice.into()))
    }

    /// Sets the name of the check.
    pub(crate) fn for_check(self, check: &'static str) -> Self {
        Self { check, ..self }
    }
}

/// All findings of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Diagnosis<'a> {
    /// The worst severity of all findings.
    #[serde(rename = "verdict")]
    pub(crate) severity: Severity,
    pub(crate) findings: &'a [Finding],
}
