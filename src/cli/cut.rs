//! The note below a list that its limit cut off: how many rows are missing, and how to see them.

use super::words;

/// The maximum of `--limit`.
pub(super) const MOST: usize = 1_000;

/// Returns the note for a list of `limit` rows, or `None` if it is complete.
///
/// `found` counts up to one row more than [`MOST`]; beyond that, the number of missing rows is a
/// minimum. `narrow` names the options that filter the list.
pub(super) fn rest(found: usize, limit: usize, narrow: &str) -> Option<String> {
    let rest = found.checked_sub(limit).filter(|rest| *rest > 0)?;
    let (more, are) = (
        words::number(rest as u64),
        if rest == 1 { "is" } else { "are" },
    );
    Some(match found > MOST {
        true => format!(
            "at least {more} more {are} not shown; --limit takes up to {MOST}, and {narrow} show fewer"
        ),
        false => format!("{more} more {are} not shown; --limit {found} shows all"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_beyond_the_limit_are_counted_as_far_as_they_were_read() {
        let line = |found, limit| rest(found, limit, "--user and --state");
        assert_eq!((line(0, 20), line(20, 20)), (None, None));
        assert_eq!(
            line(21, 20).unwrap(),
            "1 more is not shown; --limit 21 shows all"
        );
        assert_eq!(
            line(1_001, 20).unwrap(),
            "at least 981 more are not shown; --limit takes up to 1000, and --user and --state show fewer"
        );
    }
}
