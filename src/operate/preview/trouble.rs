//! What is wrong with a template, as whoever writes it sees it: the file's own lines beside it.

use crate::render::Error;
use crate::wire::preview::Trouble;

/// So many lines before and after the one that is wrong are shown.
const AROUND: usize = 2;

/// What is wrong, with the lines where it is, if it is a template's fault.
pub(crate) fn trouble(error: &anyhow::Error) -> Trouble {
    let at = match error.downcast_ref::<Error>() {
        Some(Error::Template { file, line, .. }) => line.0.map(|line| (file, line)),
        _ => None,
    };
    let lines = at.and_then(|(file, line)| {
        // A built-in template is no file, and cannot be edited either.
        let text = std::fs::read_to_string(file).ok()?;
        let first = line.saturating_sub(AROUND);
        let numbered = (1..).zip(text.lines());
        let around = numbered.filter(|(n, _)| (first..=line + AROUND).contains(n));
        Some(around.map(|(n, line)| (n, line.to_owned())).collect())
    });
    Trouble {
        what: format!("{error:#}"),
        lines: lines.unwrap_or_default(),
        line: at.map(|(_, line)| line),
    }
}
