//! What was found, and how bad it is.
//!
//! The rule: whatever is not well says what to do; what could not be looked at is said to be so,
//! and is never taken for well.

use serde::Serialize;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
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
    pub verdict: Verdict,
    /// What was looked at, such as `database` or an option's path.
    pub check: &'static str,
    pub found: String,
    /// What to do about it.
    pub advice: Option<String>,
}

impl Finding {
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Ok,
            check,
            found: found.into(),
            advice: None,
        }
    }

    pub fn unchecked(check: &'static str, why: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Unchecked,
            ..Self::ok(check, why)
        }
    }

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
