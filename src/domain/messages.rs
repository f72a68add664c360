//! Words messages: joins names, and the causes of an error.

use std::error::Error;
use std::fmt::Display;

/// Joins names for a message: `ada, ben and 3 more`, with at most `most` names.
pub fn list_first<T: Display>(names: impl IntoIterator<Item = T>, most: usize) -> String {
    let mut names = names.into_iter();
    let first = names.by_ref().take(most).map(|name| name.to_string());
    let first = first.collect::<Vec<_>>().join(", ");
    match names.count() {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Returns an error and its causes on one line. Skips a cause that its error's text contains.
pub fn error_chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    let mut texts: Vec<String> = Vec::new();
    for cause in causes.map(ToString::to_string) {
        if texts.last().is_none_or(|before| !before.contains(&cause)) {
            texts.push(cause);
        }
    }
    texts.join(": ")
}
