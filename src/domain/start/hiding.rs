//! Hides the events from before the starts of many users at once.

use crate::domain::{PersonStacks, User};

/// Hides the events of deleted users in the stacks of those who have their ids now. The entries
/// keep their positions.
pub fn hide_earlier<'p>(
    people: impl IntoIterator<Item = &'p mut PersonStacks>,
    users: &[Option<User>],
) {
    for (person, user) in people.into_iter().zip(users) {
        person.begin_at(user.as_ref().and_then(|user| user.start));
    }
}
