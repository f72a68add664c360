//! Which entries of an exported stack come back behind those that stand there.
//!
//! The rule: what can be told from everything else comes back once, whatever came in between. A
//! marker covers all that stood before, and as many of those that come back as it covered of its
//! own list.

/// An entry of a list that comes back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Returning {
    /// Whether one that is told by the same name stands already.
    pub stands: bool,
    /// How many entries of its list a marker covers; a bare one all before it (`usize::MAX`).
    pub covers: Option<usize>,
}

/// Those that do not stand yet, by their places in their list; markers with how many entries they
/// cover behind so many that stand.
pub(super) fn not_standing(standing: usize, list: &[Returning]) -> Vec<(usize, Option<usize>)> {
    // Of the first so many of the list, how many are left out.
    let (mut left_out, mut back) = (vec![0], Vec::new());
    for (place, entry) in list.iter().enumerate() {
        let first = |n: usize| left_out[n.min(place)];
        // The same mail may have been marked on the part before, and its marker covers more here.
        let nothing_new = |n: usize| first(n) == n.min(place);
        let is_left_out = entry.stands && entry.covers.is_none_or(nothing_new);
        if !is_left_out {
            let covers = |n: usize| (n - first(n)).saturating_add(standing);
            back.push((place, entry.covers.map(covers)));
        }
        left_out.push(left_out[place] + usize::from(is_left_out));
    }
    back
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_is_left_out_and_a_marker_that_covers_something_new_is_not() {
        let event = |stands| Returning {
            stands,
            covers: None,
        };
        let marker = |stands, n| Returning {
            stands,
            covers: Some(n),
        };

        let all_again = [event(true), marker(true, 1), event(false)];
        assert_eq!(not_standing(3, &all_again), [(2, None)]);
        let marked_again = [event(false), marker(true, 1)];
        assert_eq!(not_standing(3, &marked_again), [(0, None), (1, Some(4))]);
        let some_of_both = [event(true), event(false), marker(false, 2)];
        assert_eq!(not_standing(3, &some_of_both), [(1, None), (2, Some(4))]);
        let bare = [event(true), marker(true, usize::MAX), event(true)];
        assert_eq!(not_standing(3, &bare), []);
    }
}
