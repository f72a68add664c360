//! Formats an error together with its causes.

use std::error::Error;

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
