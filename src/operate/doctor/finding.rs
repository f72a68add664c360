//! What was found, and how bad it is.
//!
//! The rule: whatever is not well says what to do; what could not be looked at is said to be so,
//! and is never taken for well.

use crate::wire::doctor::{Finding, Verdict};

impl Finding {
    /// All is well: there is nothing to do.
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Ok,
            check,
            brand: None,
            found: found.into(),
            advice: None,
        }
    }

    /// Nobody could be asked, for this reason.
    pub fn unchecked(check: &'static str, why: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Unchecked,
            ..Self::ok(check, why)
        }
    }

    /// It works; what speaks against leaving it so, and what to do.
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

    /// Mails do not leave, do not arrive, or break rules; why, and what to do.
    pub fn error(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Error,
            ..Self::warning(check, found, advice)
        }
    }
}

/// An error and its causes on one line.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut told: Vec<String> = Vec::new();
    for cause in causes.map(ToString::to_string) {
        // Some errors repeat what their cause says.
        if told.last().is_none_or(|before| !before.contains(&cause)) {
            told.push(cause);
        }
    }
    told.join(": ")
}
