//! Hides the events from before the starts of many users at once.

use crate::domain::{PersonStacks, User};

/// Hides the events of deleted users in the stacks of those who have their ids now. The entries
/// keep their positions.
pub fn hide_earlier(people: &mut [PersonStacks], users: &[Option<User>]) {
    for (person, user) in people.iter_mut().zip(users) {
        person.begin_at(user.as_ref().and_then(|user| user.start));
    }
}
