//! Suggests the name that a user may have meant.
//!
//! A suggestion is only a hint in a message: no value is ever replaced by it.

/// The least similarity of a suggestion, from 0 to 1.
const NEAR: f64 = 0.75;

/// Returns the name that is most similar to `given`; `None` if none is similar enough.
pub fn nearest<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = given.to_lowercase();
    names
        .into_iter()
        .filter(|name| may_be_near(given.chars().count(), name.chars().count()))
        .map(|name| {
            let likeness = strsim::normalized_damerau_levenshtein(&given, &name.to_lowercase());
            (likeness, name)
        })
        .filter(|(likeness, _)| *likeness >= NEAR)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}

/// Returns whether two names of these lengths can be similar enough. This avoids slow comparisons,
/// because one answer may look up ten thousand names.
fn may_be_near(a: usize, b: usize) -> bool {
    a.min(b) as f64 >= NEAR * a.max(b) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_small_typo_is_near() {
        let names = ["ArtworkPublished", "CommentAdded", "hour"];

        for (given, expected) in [
            ("ArtworkPublishd", Some("ArtworkPublished")),
            ("artworkpublished", Some("ArtworkPublished")),
            ("CommentsAdded", Some("CommentAdded")),
            ("huor", Some("hour")),
            ("TaskFailed", None),
            ("", None),
        ] {
            assert_eq!(nearest(given, names), expected, "{given}");
        }
    }
}
