//! How failures are printed: the causes on one line, followed by a suggestion if there is one. Also
//! two kinds of failures that only commands have.

use std::io::{self, ErrorKind};

use super::screen::{printable_line, printable_lines};
use crate::config::ConfigProblems;
use crate::domain::error_chain::error_chain;
use crate::operate::open::Refusal;
use crate::{engine, store};

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
        Some(next) => format!("error: {causes}\n  try: {}\n", printable_line(&next)),
        None => format!("error: {causes}\n"),
    }
}

/// Joins the failure and its causes with colons.
pub(super) fn causes(failure: &anyhow::Error) -> String {
    let text = error_chain(&**failure);
    // `ConfigProblems` is a list with line breaks of its own. Other errors may quote user input,
    // which must not start a new line.
    let to_printable =
        if failure.is::<ConfigProblems>() { printable_lines } else { printable_line };
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
}
