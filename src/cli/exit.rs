//! Exit codes, and how failures are printed.
//!
//! 0: everything was done. 1: an error ended the command, or every part failed. 2: the request was
//! wrong, and nothing was changed. 3: some parts failed or need attention. A failure is printed
//! with its causes on one line, followed by a suggestion if there is one.

use std::io::{self, ErrorKind};
use std::process::ExitCode;

use super::printable;
use crate::config::ConfigProblems;
use crate::domain::InvalidValue;
use crate::domain::error_chain::error_chain;
use crate::operate::open::Refusal;
use crate::{engine, render, store};

/// The result of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Everything was done, or there was nothing to do.
    Done = 0,
    /// An error ended the command, or every part failed.
    Failed = 1,
    /// Wrong usage, configuration or values. Nothing was changed.
    Usage = 2,
    /// Some parts were done, and others failed or need attention.
    Partly = 3,
}

impl Exit {
    /// Returns the result for these numbers of successful and failed parts.
    pub(super) fn of(good: u64, bad: u64) -> Self {
        match (good, bad) {
            (_, 0) => Self::Done,
            (0, _) => Self::Failed,
            _ => Self::Partly,
        }
    }

    /// Returns `Partly` instead of `Done` if something is left to do.
    pub(super) fn partly_unless(self, is_complete: bool) -> Self {
        if self == Self::Done && !is_complete { Self::Partly } else { self }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Returns [`Exit::Usage`] for a wrong request, and [`Exit::Failed`] for any other failure.
pub fn exit_of_failure(failure: &anyhow::Error) -> Exit {
    let is_wrong_request = failure.chain().any(|cause| {
        cause.is::<ConfigProblems>()
            || cause.is::<InvalidValue>()
            || cause.is::<render::Error>()
            || cause.is::<Refusal>()
            || matches!(
                cause.downcast_ref(),
                Some(engine::Error::Invalid(_) | engine::Error::Conflict(_))
            )
    });
    if is_wrong_request { Exit::Usage } else { Exit::Failed }
}

/// The store failed while it accepted events that lack idempotency keys. They may have been
/// accepted, and a repeat would accept them again as new events.
#[derive(Debug, thiserror::Error)]
#[error("accepting events")]
pub(super) struct WithoutKeys;

impl WithoutKeys {
    /// Adds this context to store errors. After any other error, no event was accepted.
    pub(super) fn add_to(error: engine::Error) -> anyhow::Error {
        match error {
            engine::Error::Store(_) => anyhow::Error::from(error).context(Self),
            error => error.into(),
        }
    }
}

/// The server did not answer a request of `health`.
#[derive(Debug, thiserror::Error)]
#[error("{url} does not answer: {why}")]
pub(super) struct ServerUnreachable {
    pub(super) url: String,
    pub(super) why: String,
}

/// Formats a failure: its causes, and a suggestion on the next line if there is one.
pub fn explain_failure(failure: &anyhow::Error) -> String {
    let causes = causes(failure);
    match advice(failure) {
        Some(next) => format!("error: {causes}\n  try: {}\n", printable::line(&next)),
        None => format!("error: {causes}\n"),
    }
}

/// Joins the failure and its causes with colons.
pub(super) fn causes(failure: &anyhow::Error) -> String {
    let text = error_chain(&**failure);
    // `Problems` is a list with line breaks of its own. Other errors may quote user input, which
    // must not start a new line.
    let to_printable =
        if failure.is::<ConfigProblems>() { printable::lines } else { printable::line };
    to_printable(&text).into_owned()
}

/// The text in the MongoDB store's errors if no server accepts writes.
const NO_PRIMARY: &str = "no MongoDB server can be written to";

fn advice(failure: &anyhow::Error) -> Option<String> {
    let lacks_keys = failure.is::<WithoutKeys>();
    let repeat = if lacks_keys {
        "first see whether it was accepted, because an event without a key would be sent again"
    } else {
        "the command can be repeated"
    };
    failure.chain().find_map(|cause| {
        if let Some(refusal) = cause.downcast_ref::<Refusal>() {
            return Some(refusal.suggestion.clone());
        }
        if cause.is::<ServerUnreachable>() {
            return Some("tidings serve, unless the server runs elsewhere".into());
        }
        if cause.is::<ConfigProblems>() {
            return Some("tidings config --defaults, which shows every option".into());
        }
        match cause.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(ErrorKind::AddrInUse) => {
                return Some("--listen 127.0.0.1:0, which takes a free port".into());
            }
            Some(ErrorKind::StorageFull) => {
                return Some(format!("freeing space on that disk, then again: {repeat}"));
            }
            _ => {}
        }
        let store_error = match cause.downcast_ref() {
            Some(engine::Error::Store(error)) => error,
            _ => cause.downcast_ref::<store::Error>()?,
        };
        store_advice(store_error, repeat).or_else(|| lacks_keys.then(|| repeat.to_owned()))
    })
}

fn store_advice(error: &store::Error, repeat: &str) -> Option<String> {
    match error {
        store::Error::Database { cause, .. } if cause.to_string().contains(NO_PRIMARY) => {
            let check = "see that the server runs and that the option `store` names it";
            Some(format!("{check}, then again: {repeat}"))
        }
        error if error.is_disk_full() => {
            Some(format!("freeing space on the store's disk, then again: {repeat}"))
        }
        store::Error::Database { .. } => {
            Some(format!("again, once the store can be reached; {repeat}"))
        }
        store::Error::Conflict(_) => {
            Some("moving one of the two away; nothing was overwritten".into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn an_invalid_value_exits_with_2_and_an_unreachable_store_with_1() {
        let value: anyhow::Error =
            engine::Error::from(InvalidValue::new("limit", 0, "is too small")).into();
        let store: anyhow::Error =
            engine::Error::from(store::Error::database("reading", "gone")).into();

        assert_eq!(exit_of_failure(&value), Exit::Usage);
        assert_eq!(exit_of_failure(&value.context("feed")), Exit::Usage);
        assert_eq!(exit_of_failure(&store), Exit::Failed);
    }

    #[test]
    fn a_failure_shows_each_cause_once_and_a_hint() {
        let failure = Err::<(), _>(engine::Error::from(store::Error::database(
            "reading days",
            "connection refused",
        )))
        .context("opening sqlite:x")
        .unwrap_err();

        assert_eq!(
            explain_failure(&failure),
            "error: opening sqlite:x: reading days: connection refused\n  \
             try: again, once the store can be reached; the command can be repeated\n"
        );
    }

    #[test]
    fn a_full_disk_is_named_with_what_to_do() {
        let store: anyhow::Error =
            engine::Error::from(store::Error::database("using SQLite", "database or disk is full"))
                .into();
        let full = io::Error::from(ErrorKind::StorageFull);
        let file = anyhow::Error::from(full).context("writing a.eml");

        for failure in [store, file] {
            let text = explain_failure(&failure);
            assert!(text.contains("\n  try: freeing space on "), "{text}");
        }
    }

    #[test]
    fn all_successes_are_done_all_failures_failed_and_a_mixture_partly() {
        assert_eq!(
            [Exit::of(2, 0), Exit::of(0, 2), Exit::of(1, 1), Exit::of(0, 0)],
            [Exit::Done, Exit::Failed, Exit::Partly, Exit::Done]
        );
    }
}
