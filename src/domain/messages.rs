//! Formats parts of messages: lists of names, and the causes of an error.

use std::error::Error;
use std::fmt::Display;

/// Joins names for a message: `ada, ben and 3 more`, with at most `limit` names.
pub fn join_names<T: Display>(names: impl IntoIterator<Item = T>, limit: usize) -> String {
    let mut names = names.into_iter();
    let first: Vec<String> = names.by_ref().take(limit).map(|name| name.to_string()).collect();
    let list = first.join(", ");
    match names.count() {
        0 => list,
        more => format!("{list} and {more} more"),
    }
}

/// Returns an error and its causes on one line. Skips a cause that its error's text contains.
pub fn error_chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    let mut texts: Vec<String> = Vec::new();
    for cause in causes.map(ToString::to_string) {
        if texts.last().is_none_or(|previous| !previous.contains(&cause)) {
            texts.push(cause);
        }
    }
    texts.join(": ")
}
