//! Accepted events in the journal, and their progress to the audience.
//!
//! An event is accepted once, because its key is unique, and belongs to one day forever. A worker
//! resumes from the cursor: all users up to and including it have been served (P1).

use chrono::{DateTime, Utc};

use super::audience::Audience;
use super::batch::{BatchKey, ChosenKey};
use super::coordination::Lease;
use super::day::Day;
use super::day_stack::Event;
use super::details::Details;
use super::name::{EventType, InvalidValue, ObjectId, UserId, named_enum};
use super::timed_id::Id;
use super::type_policy::Policies;

named_enum! {
    /// The state of a fan-out.
    FanoutState("fan-out state") {
        /// Accepted, and waiting for a worker or leased by one.
        Pending = "pending",
        /// Delivered to the whole audience.
        Done = "done",
    }
}

/// The numbers of users and entries so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct FanoutCounts {
    /// Users of the audience who were served. Excluded users do not count.
    #[serde(rename = "people")]
    pub people: u64,
    /// Entries pushed to stacks.
    pub pushed: u64,
    /// Entries that were dropped, because the user's day was full or its document accepts none.
    pub capped: u64,
}

impl std::ops::AddAssign for FanoutCounts {
    fn add_assign(&mut self, other: Self) {
        self.people += other.people;
        self.pushed += other.pushed;
        self.capped += other.capped;
    }
}

/// The progress of a fan-out, saved after every page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FanoutProgress {
    /// The last user served. When saved, `None` keeps the stored cursor.
    pub cursor: Option<UserId>,
    /// The counts up to the cursor.
    pub counts: FanoutCounts,
    /// Whether the whole audience has been served.
    pub done: bool,
}

/// The most objects that one event can name.
pub const MAX_OBJECTS: usize = 100;

/// Rejects an empty list of objects, and one of more than [`MAX_OBJECTS`].
pub fn check_objects(count: usize) -> Result<(), InvalidValue> {
    if count == 0 {
        return Err(InvalidValue::new("objects", "[]", "names none: give one at least"));
    }
    let why = format_args!("is not 1 to {MAX_OBJECTS} object ids");
    InvalidValue::check_limit("objects", count, MAX_OBJECTS, why)
}

/// An accepted event.
#[derive(Debug, Clone, PartialEq)]
pub struct Fanout {
    /// The id, which is the `i` of every entry of this event.
    pub id: Id,
    /// The writer's idempotency key, or the id if there was none.
    pub key: String,
    /// The event type, `t` of the entries.
    pub kind: EventType,
    /// The objects: 1 to [`MAX_OBJECTS`], without duplicates. Each user gets one entry per object.
    pub objects: Vec<ObjectId>,
    /// The users to notify.
    pub audience: Audience,
    /// The batch key from the request, which overrides the configured one: see
    /// [`Fanout::batch_key`].
    pub batch_key: Option<ChosenKey>,
    /// The details; `None` in records of older versions.
    pub details: Option<Details>,
    /// The day of the collection that gets the entries, even if the fan-out runs later.
    pub day: Day,
    /// When the event happened: the time of its id, in whole seconds.
    pub at: DateTime<Utc>,
    /// The state: done once `progress` is.
    pub state: FanoutState,
    /// The progress, from which the next worker resumes.
    pub progress: FanoutProgress,
    /// The lease of the worker; `None` if it is not leased or is done.
    pub lease: Option<Lease>,
}

impl Fanout {
    /// Creates the fan-out of an event that happened at the time of `id`, on the day of that time.
    /// Duplicate objects are dropped.
    ///
    /// # Errors
    ///
    /// The number of objects, the audience or the idempotency key (1 to 256 bytes without control
    /// characters) is invalid.
    pub fn new(
        id: Id,
        key: Option<String>,
        kind: EventType,
        objects: Vec<ObjectId>,
        audience: Audience,
    ) -> Result<Self, InvalidValue> {
        check_objects(objects.len())?;
        let mut unique: Vec<ObjectId> = Vec::with_capacity(objects.len());
        for object in objects {
            if !unique.contains(&object) {
                unique.push(object);
            }
        }
        audience.check()?;
        let details = Details {
            reason: Some(Details::reason_for(&audience)),
            keys: Details::named_keys(&audience),
            ..Details::default()
        };
        let key = key.unwrap_or_else(|| id.to_string());
        if key.is_empty() || key.len() > 256 || key.chars().any(char::is_control) {
            let why = "is not 1 to 256 bytes without control characters";
            return Err(InvalidValue::new("idempotency key", key, why));
        }
        let at = id.time();
        Ok(Self {
            id,
            key,
            kind,
            objects: unique,
            audience,
            batch_key: None,
            details: Some(details),
            day: Day::of(at),
            at,
            state: FanoutState::Pending,
            progress: FanoutProgress::default(),
            lease: None,
        })
    }

    /// Sets the details from the request. The reason still follows from the audience.
    pub fn with_details(self, details: Details) -> Result<Self, InvalidValue> {
        details.check()?;
        let Details { reason, keys, .. } = self.details.unwrap_or_default();
        Ok(Self { details: Some(Details { reason, keys, ..details }), ..self })
    }

    /// Returns the key of the event's batches: the request's, else the configured one, else the
    /// type. Batches of different brands are separate.
    pub fn batch_key(&self, policies: &Policies) -> BatchKey {
        let configured = policies.policy(&self.kind).batch_key.as_ref();
        let brand = self.details.as_ref().and_then(|details| details.brand.as_ref());
        BatchKey::for_event(&self.kind, self.batch_key.as_ref(), configured).with_brand(brand)
    }

    /// Returns the entries that each user gets.
    pub fn entries_per_user(&self) -> impl Iterator<Item = Event> {
        self.objects.iter().map(|object| Event::new(&self.kind, object, Some(self.id)))
    }

    /// Returns whether both are the same request. Times are ignored, because a repeated request
    /// without one gets a new time.
    pub fn is_same_request(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.objects == other.objects
            && self.audience == other.audience
            && self.batch_key == other.batch_key
            && match (&self.details, &other.details) {
                (Some(ours), Some(theirs)) => ours.has_same_content(theirs),
                (Some(only), None) | (None, Some(only)) => {
                    only.has_same_content(&Details::default())
                }
                (None, None) => true,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Policy;

    fn fanout(batch_key: Option<&str>) -> Fanout {
        let id = Id::at(DateTime::UNIX_EPOCH, [0; 8]);
        let audience = Audience::users([UserId::stored("ada")]).unwrap();
        let objects = vec![ObjectId::stored("a1")];
        let new = Fanout::new(id, None, EventType::stored("Comment"), objects, audience);
        Fanout { batch_key: batch_key.map(|key| key.parse().unwrap()), ..new.unwrap() }
    }

    #[test]
    fn a_different_batch_key_makes_a_different_request() {
        assert!(fanout(Some("acme")).is_same_request(&fanout(Some("acme"))));
        assert!(!fanout(Some("acme")).is_same_request(&fanout(Some("ACME"))));
        assert!(!fanout(Some("acme")).is_same_request(&fanout(None)));
    }

    #[test]
    fn the_batch_key_comes_from_the_event_then_the_policy_then_the_type() {
        let policy = Policy { batch_key: "all".parse().ok(), ..Policy::default() };
        let configured = Policies::new([(EventType::stored("Comment"), policy)]);
        let key = |fanout: Fanout, policies| fanout.batch_key(policies).to_string();

        assert_eq!(key(fanout(Some("acme")), &configured), "key:acme");
        assert_eq!(key(fanout(None), &configured), "key:all");
        assert_eq!(key(fanout(None), &Policies::default()), "type:Comment");
    }
}
