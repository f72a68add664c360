//! Which name somebody may have meant.
//!
//! The rule: it is only a hint. Nothing is taken for anything else, and where no name is near none
//! is named.

/// From this share of likeness on, a name may have been meant.
const NEAR: f64 = 0.75;

/// The one of these names that is most like what was given, if any is near it.
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

/// Names whose lengths differ by more than that cannot be near: comparing takes time, and an answer
/// may ask for ten thousand names.
fn may_be_near(a: usize, b: usize) -> bool {
    a.min(b) as f64 >= NEAR * a.max(b) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_near_that_differs_by_a_slip() {
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
