//! What a list does not show.
//!
//! The rule: a list that ends at its limit says so, and how to see the rest.

use super::words;

/// The most that a list shows.
pub(super) const MOST: usize = 1_000;

/// What follows a list of at most so many, where up to one more than [`MOST`] were found;
/// `narrow` says which options leave some out.
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
    fn what_is_not_shown_is_counted_as_far_as_it_was_looked_for() {
        let told = |found, limit| rest(found, limit, "--user and --state");
        assert_eq!((told(0, 20), told(20, 20)), (None, None));
        assert_eq!(
            told(21, 20).unwrap(),
            "1 more is not shown; --limit 21 shows all"
        );
        assert_eq!(
            told(1_001, 20).unwrap(),
            "at least 981 more are not shown; --limit takes up to 1000, and --user and --state show fewer"
        );
    }
}
