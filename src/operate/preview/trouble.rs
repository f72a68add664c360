//! Explains template errors to their author, with the lines of the file.

use crate::render::Error;
use crate::wire::local::Trouble;

/// The number of lines shown before and after the wrong one.
const AROUND: usize = 2;

/// Describes an error. Includes the lines around it if it is in a template file.
pub(crate) fn trouble(error: &anyhow::Error) -> Trouble {
    let at = match error.downcast_ref::<Error>() {
        Some(Error::Template { file, line, .. }) => line.0.map(|line| (file, line)),
        _ => None,
    };
    let lines = at.and_then(|(file, line)| {
        // A built-in template is not a file, and its lines cannot be edited.
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
