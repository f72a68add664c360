//! The journal's entries: an accepted event on its way to everybody it concerns.
//!
//! The rule: a fan-out is accepted once (its key is unique), belongs to one day for ever, and is
//! resumed from its cursor: everybody up to and including that user has been served.

use chrono::{DateTime, Utc};

use super::audience::Audience;
use super::batch::{BatchKey, ChosenKey};
use super::day::Day;
use super::details::Details;
use super::event::Event;
use super::id::Id;
use super::lease::Lease;
use super::name::{EventType, Invalid, ObjectId, UserId};
use super::policy::Policies;

/// Where a fan-out stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FanoutState {
    /// Accepted; somebody has to do it, or is doing it under a lease.
    Pending,
    /// Everybody has it.
    Done,
}

/// How many were reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Counts {
    /// People of the audience served so far, without those left out.
    pub people: u64,
    /// Entries on their stacks.
    pub pushed: u64,
    /// Entries that were not stored because the person's day was full, or its document takes none.
    pub capped: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.people += other.people;
        self.pushed += other.pushed;
        self.capped += other.capped;
    }
}

/// How far a fan-out has come; saved after every page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// The last user served; where it says nothing, as it was saved before.
    pub cursor: Option<UserId>,
    /// How many were reached up to the cursor.
    pub counts: Counts,
    /// Whether everybody has it, so that nothing is left to do.
    pub done: bool,
}

/// The most objects one event can name.
pub const MAX_OBJECTS: usize = 100;

/// Refuses a list of no objects, and of more than [`MAX_OBJECTS`].
pub fn check_objects(count: usize) -> Result<(), Invalid> {
    match count {
        1..=MAX_OBJECTS => Ok(()),
        0 => Err(Invalid::new(
            "objects",
            "[]",
            "names none: give one at least",
        )),
        _ => {
            let why = format!("is not 1 to {MAX_OBJECTS} object ids");
            Err(Invalid::limit("objects", count, why))
        }
    }
}

/// An accepted event.
#[derive(Debug, Clone, PartialEq)]
pub struct Fanout {
    /// The `i` of every entry it writes.
    pub id: Id,
    /// The writer's idempotency key; the id itself where none was given.
    pub key: String,
    /// What happened: `t` of the entries.
    pub kind: EventType,
    /// To what: 1 to [`MAX_OBJECTS`], each once; every person gets an entry for each.
    pub objects: Vec<ObjectId>,
    /// Whom it concerns.
    pub audience: Audience,
    /// What its writer wants its batches to be of, instead of what the configuration says: see
    /// [`Fanout::batch_key`].
    pub batch_key: Option<ChosenKey>,
    /// What its writer says of it; `None` in entries of before there was any.
    pub details: Option<Details>,
    /// The day whose collection it goes to, whenever that is done.
    pub day: Day,
    /// When it happened: the time of its id, in whole seconds.
    pub at: DateTime<Utc>,
    /// Done once `progress` is.
    pub state: FanoutState,
    /// How far it has been fanned out; a worker that takes it over resumes there.
    pub progress: Progress,
    /// Who fans it out; `None` where nobody does, and once it is done.
    pub lease: Option<Lease>,
}

impl Fanout {
    /// A new fan-out of this moment, in the day of this moment. Objects named twice count once.
    pub fn new(
        id: Id,
        key: Option<String>,
        kind: EventType,
        objects: Vec<ObjectId>,
        audience: Audience,
    ) -> Result<Self, Invalid> {
        check_objects(objects.len())?;
        let mut unique: Vec<ObjectId> = Vec::with_capacity(objects.len());
        for object in objects {
            if !unique.contains(&object) {
                unique.push(object);
            }
        }
        audience.check()?;
        let details = Details {
            reason: Some(Details::reason_of(&audience)),
            keys: Details::keys_of(&audience),
            ..Details::default()
        };
        let key = match key {
            Some(key) if key.is_empty() || key.len() > 256 || key.chars().any(char::is_control) => {
                return Err(Invalid::new(
                    "idempotency key",
                    key,
                    "is not 1 to 256 bytes without control characters",
                ));
            }
            Some(key) => key,
            None => id.to_string(),
        };
        let at = id.time();
        let state = FanoutState::Pending;
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
            state,
            progress: Progress::default(),
            lease: None,
        })
    }

    /// The same, whose batches are of this.
    pub fn with_batch_key(self, batch_key: Option<ChosenKey>) -> Self {
        Self { batch_key, ..self }
    }

    /// The same, of which this is said; why it concerns people is known already.
    pub fn with_details(self, details: Details) -> Result<Self, Invalid> {
        details.check()?;
        let known = self.details.unwrap_or_default();
        let (reason, keys) = (known.reason, known.keys);
        let details = Some(Details {
            reason,
            keys,
            ..details
        });
        Ok(Self { details, ..self })
    }

    /// What its batches are of: as its writer said, else as its type is configured, else the type;
    /// those of a brand are apart.
    pub fn batch_key(&self, policies: &Policies) -> BatchKey {
        let configured = policies.of(&self.kind).key.as_ref();
        let brand = self
            .details
            .as_ref()
            .and_then(|details| details.brand.as_ref());
        BatchKey::of(&self.kind, self.batch_key.as_ref(), configured).of_brand(brand)
    }

    /// What it puts on each person's stack.
    pub fn events(&self) -> impl Iterator<Item = Event> {
        self.objects.iter().map(|o| Event {
            t: self.kind.clone(),
            o: o.clone(),
            i: Some(self.id),
        })
    }

    /// Whether this is the same request again: all that its writer chose is equal, but for the
    /// time, which a repeated request that names none says anew.
    pub fn same_request(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.objects == other.objects
            && self.audience == other.audience
            && self.batch_key == other.batch_key
            && match (&self.details, &other.details) {
                (Some(ours), Some(theirs)) => ours.says_the_same(theirs),
                (Some(only), None) | (None, Some(only)) => only.says_the_same(&Details::default()),
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
        let new = Fanout::new(id, None, EventType::stored("Comment"), objects, audience).unwrap();
        new.with_batch_key(batch_key.map(|key| key.parse().unwrap()))
    }

    #[test]
    fn another_batch_key_is_another_request() {
        assert!(fanout(Some("acme")).same_request(&fanout(Some("acme"))));
        assert!(!fanout(Some("acme")).same_request(&fanout(Some("ACME"))));
        assert!(!fanout(Some("acme")).same_request(&fanout(None)));
    }

    #[test]
    fn its_batches_are_of_what_its_writer_said_else_of_what_is_configured_else_of_the_type() {
        let policy = Policy {
            key: "all".parse().ok(),
            ..Policy::default()
        };
        let configured = Policies::new([(EventType::stored("Comment"), policy)]);
        let key = |fanout: Fanout, policies| fanout.batch_key(policies).to_string();

        assert_eq!(key(fanout(Some("acme")), &configured), "key:acme");
        assert_eq!(key(fanout(None), &configured), "key:all");
        assert_eq!(key(fanout(None), &Policies::default()), "type:Comment");
    }
}
