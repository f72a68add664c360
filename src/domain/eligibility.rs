//! Decides whether an event may be included for a user, and if not, why.
//!
//! [`classify`] is the only definition of this rule. It is pure: `engine::eligibility` loads the
//! facts in bulk. Digests, batches, the backlog, flushes, previews, feeds and `explain` call it.
//! Feeds and `explain` remove the events of an earlier user of the same id before they call it.

use chrono::{DateTime, Utc};

use super::name::EventType;
use super::object::Object;
use super::type_policy::{EmailScope, Policies};
use super::user::User;

/// What an event would be included in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A digest.
    Digest(EmailScope),
    /// An email of its own, or a batch.
    Batch(EmailScope),
    /// Any email that reads the stacks, before the user's route for the event is known.
    Email,
    /// The feed.
    Feed,
}

/// The record of an event's object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ObjectState {
    /// Not loaded yet.
    #[default]
    NotLoaded,
    /// There is no record, and the event's type needs one.
    Unknown,
    /// The record says that the object is no longer notifiable.
    Withdrawn,
    /// The event may be included.
    Notifiable,
}

/// The loaded facts about an event and a user. A default fact excludes nothing, so callers can
/// classify with the facts that they have and again once they have loaded the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EligibilityFacts {
    /// The event belongs to a deleted user who had the same id.
    pub before_start: bool,
    /// The event was retracted.
    pub retracted: bool,
    /// The user muted its subject.
    pub muted: bool,
    /// The record of its object.
    pub object: ObjectState,
    /// The user saw it in the feed, and digests skip seen events.
    pub seen: bool,
}

impl ObjectState {
    /// Returns the state of an object with this record.
    pub fn from_object(record: &Object) -> Self {
        if record.notifiable { Self::Notifiable } else { Self::Withdrawn }
    }
}

/// Why an event is not included, in the order in which the reasons are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exclusion {
    /// It belongs to a deleted user who had the same id.
    BeforeStart,
    /// It was retracted.
    Retracted,
    /// Feeds do not show its type.
    NotInFeed,
    /// The user muted its subject.
    Muted,
    /// Its object has no record, and its type needs one.
    UnknownObject,
    /// Its object is no longer notifiable.
    Withdrawn,
    /// The user gets the type in another way or not at all, or chose the way after the event.
    OtherRoute,
    /// The user saw it in the feed.
    Seen,
    /// The user may only get mandatory types.
    NotMandatory,
}

/// Returns why the event must be excluded, or `None` if it may be included.
///
/// `at` is the event's time. It is only computed if the user's choices depend on it. Without a
/// user's record, no choice excludes anything.
pub fn classify(
    kind: &EventType,
    at: impl Fn() -> DateTime<Utc>,
    facts: EligibilityFacts,
    user: Option<&User>,
    policies: &Policies,
    purpose: Purpose,
) -> Option<Exclusion> {
    let is_email = purpose != Purpose::Feed;
    if facts.before_start {
        return Some(Exclusion::BeforeStart);
    }
    if facts.retracted {
        return Some(Exclusion::Retracted);
    }
    if !is_email && !policies.policy(kind).feed {
        return Some(Exclusion::NotInFeed);
    }
    if is_email && facts.muted && !policies.is_mandatory(kind) {
        return Some(Exclusion::Muted);
    }
    match facts.object {
        ObjectState::Unknown => return Some(Exclusion::UnknownObject),
        ObjectState::Withdrawn => return Some(Exclusion::Withdrawn),
        ObjectState::NotLoaded | ObjectState::Notifiable => {}
    }
    let has_route = match (purpose, user) {
        (Purpose::Email | Purpose::Feed, _) | (_, None) => true,
        (Purpose::Digest(_), Some(user)) => user.gets_in_digest(kind, at, policies),
        (Purpose::Batch(_), Some(user)) => user.route(kind, at(), policies).is_outside_digest(),
    };
    if !has_route {
        return Some(Exclusion::OtherRoute);
    }
    // Batches are sent within minutes, so they include events that were seen meanwhile.
    if facts.seen && matches!(purpose, Purpose::Digest(_) | Purpose::Email) {
        return Some(Exclusion::Seen);
    }
    match purpose {
        Purpose::Digest(scope) | Purpose::Batch(scope) if !scope.admits(kind, policies) => {
            Some(Exclusion::NotMandatory)
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "eligibility_tests.rs"]
mod tests;
