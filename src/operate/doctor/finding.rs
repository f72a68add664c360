//! Constructs findings of each severity.
//!
//! A warning or an error always has advice. A check that could not run is `unchecked`, never `ok`.

use crate::wire::status::{Finding, Verdict};

impl Finding {
    /// All is well.
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Ok,
            check,
            brand: None,
            found: found.into(),
            advice: None,
        }
    }

    /// The check could not run, for this reason.
    pub fn unchecked(check: &'static str, why: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Unchecked,
            ..Self::ok(check, why)
        }
    }

    /// It works, but should be changed.
    pub fn warning(
        check: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            verdict: Verdict::Warning,
            advice: Some(advice.into()),
            ..Self::ok(check, found)
        }
    }

    /// Emails are not sent or not delivered, or break rules.
    pub fn error(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Error,
            ..Self::warning(check, found, advice)
        }
    }
}

/// Formats an error and its causes on one line.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut told: Vec<String> = Vec::new();
    for cause in causes.map(ToString::to_string) {
        // Some messages already contain that of their cause.
        if told.last().is_none_or(|before| !before.contains(&cause)) {
            told.push(cause);
        }
    }
    told.join(": ")
}
