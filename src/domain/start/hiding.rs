//! Hides the events from before the starts of several users' records.

use crate::domain::{PersonStacks, User};

/// Hides the events of deleted users whose ids now belong to these users. The entries keep their
/// positions.
pub fn hide_earlier(people: &mut [PersonStacks], users: &[Option<User>]) {
    for (person, user) in people.iter_mut().zip(users) {
        person.begin_at(user.as_ref().and_then(|user| user.start));
    }
}
