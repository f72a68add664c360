//! How a command ends: its exit code, and how a failure is told.
//!
//! The rule: 0 is only for what was done. What was wrong with the request itself, before anything
//! was changed, is 2; what went wrong on the way is 1; what went wrong for some is 3. A failure is
//! one line of causes, and then what to do, where that is known.

use std::process::ExitCode;

use super::harmless;
use crate::app::Closed;
use crate::config::Problems;
use crate::domain::Invalid;
use crate::{engine, render, store};

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// All of it was done, or there was nothing to do.
    Done,
    /// None of it was done.
    Failed,
    /// Wrong usage, configuration or values: nothing was changed.
    Usage,
    /// Some of it was done, and some failed.
    Partly,
}

impl Exit {
    /// How it ended where so many things went well and so many did not.
    pub(super) fn of(good: u64, bad: u64) -> Self {
        match (good, bad) {
            (_, 0) => Self::Done,
            (0, _) => Self::Failed,
            _ => Self::Partly,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Partly => 3,
        })
    }
}

/// The request itself makes no sense; clap could not see it.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(super) struct Usage {
    what: String,
    next: Option<String>,
}

impl Usage {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            next: None,
        }
    }

    /// With what to do instead.
    pub(super) fn instead(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }
}

/// Which exit code a failure is.
pub fn of_failure(failure: &anyhow::Error) -> Exit {
    let asked_wrong = failure.chain().any(|cause| {
        cause.is::<Usage>()
            || cause.is::<Problems>()
            || cause.is::<Invalid>()
            || cause.is::<render::Error>()
            || cause.is::<Closed>()
            || matches!(
                cause.downcast_ref(),
                Some(engine::Error::Invalid(_) | engine::Error::Conflict(_))
            )
    });
    if asked_wrong {
        Exit::Usage
    } else {
        Exit::Failed
    }
}

/// Events were to be accepted of which not all have a key: whether they were is not known, and
/// handed in again they are other events.
#[derive(Debug, thiserror::Error)]
#[error("accepting events")]
pub(super) struct WithoutKeys;

impl WithoutKeys {
    /// Notes it on what may have left something accepted; what was wrong with a request has not.
    pub(super) fn note(error: engine::Error) -> anyhow::Error {
        match error {
            engine::Error::Store(_) => anyhow::Error::from(error).context(Self),
            error => error.into(),
        }
    }
}

/// A failure as it is printed: what was being done, each cause, and what to do next where that is
/// known.
pub fn explain_failure(failure: &anyhow::Error) -> String {
    let mut told = format!("error: {}\n", causes(failure));
    if let Some(next) = advice(failure) {
        told.push_str(&format!("  try: {}\n", harmless::line(&next)));
    }
    told
}

/// What was being done, and each cause, on one line.
pub(super) fn causes(failure: &anyhow::Error) -> String {
    let mut causes: Vec<String> = Vec::new();
    for cause in failure.chain() {
        let told = cause.to_string();
        // Problems are a list, of which each line is ours; what else people wrote begins no line.
        let cause = match cause.is::<Problems>() {
            true => harmless::lines(&told).into_owned(),
            false => harmless::line(&told).into_owned(),
        };
        // Some errors repeat what their cause says.
        if causes.last().is_none_or(|before| !before.contains(&cause)) {
            causes.push(cause);
        }
    }
    causes.join(": ")
}

/// What the store says where none of its servers can be asked.
const AWAY: &str = "no MongoDB server can be written to";

fn advice(failure: &anyhow::Error) -> Option<String> {
    let again = match failure.is::<WithoutKeys>() {
        true => "first see whether it was accepted: an event without a key would be told once more",
        false => "whatever was begun can be repeated",
    };
    for cause in failure.chain() {
        if let Some(usage) = cause.downcast_ref::<Usage>() {
            return usage.next.clone();
        }
        if let Some(closed) = cause.downcast_ref::<Closed>() {
            return Some(closed.next());
        }
        if cause.is::<Problems>() {
            return Some("tidings config --defaults, which shows every option".into());
        }
        if let Some(error) = cause.downcast_ref::<std::io::Error>()
            && error.kind() == std::io::ErrorKind::AddrInUse
        {
            return Some("--listen 127.0.0.1:0, which takes a free port".into());
        }
        let of_store = match cause.downcast_ref() {
            Some(engine::Error::Store(error)) => Some(error),
            _ => cause.downcast_ref::<store::Error>(),
        };
        match of_store {
            Some(store::Error::Database { cause, .. }) if cause.to_string().contains(AWAY) => {
                let runs = "see that the server runs and that the option `store` names it";
                return Some(format!("{runs}, then again: {again}"));
            }
            Some(store::Error::Database { .. }) => {
                return Some(format!("again, once the store can be reached; {again}"));
            }
            Some(store::Error::Conflict { .. }) => {
                return Some("moving one of the two away; nothing was overwritten".into());
            }
            Some(
                store::Error::Corrupt { .. }
                | store::Error::Pending { .. }
                | store::Error::Unsupported(_),
            )
            | None => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_wrong_value_is_2_and_a_store_that_is_away_is_1() {
        let value: anyhow::Error =
            engine::Error::from(Invalid::new("limit", 0, "is too small")).into();
        let store: anyhow::Error =
            engine::Error::from(store::Error::database("reading", "gone")).into();

        assert_eq!(of_failure(&value), Exit::Usage);
        assert_eq!(of_failure(&value.context("feed")), Exit::Usage);
        assert_eq!(of_failure(&store), Exit::Failed);
    }

    #[test]
    fn a_failure_names_every_cause_once_and_what_to_do() {
        let failure = Err::<(), _>(engine::Error::from(store::Error::database(
            "reading days",
            "connection refused",
        )))
        .context("opening sqlite:x")
        .unwrap_err();

        assert_eq!(
            explain_failure(&failure),
            "error: opening sqlite:x: reading days: connection refused\n  \
             try: again, once the store can be reached; whatever was begun can be repeated\n"
        );
    }

    #[test]
    fn all_good_is_done_all_bad_is_failed_and_a_mixture_is_partly() {
        assert_eq!(
            [
                Exit::of(2, 0),
                Exit::of(0, 2),
                Exit::of(1, 1),
                Exit::of(0, 0)
            ],
            [Exit::Done, Exit::Failed, Exit::Partly, Exit::Done]
        );
    }
}
