//! Accepts events: checks a request as a whole, then writes one durable journal entry per event.
//!
//! An accepted event reaches its whole audience (P1). An invalid event is rejected before anything
//! is written (P10). The cost does not depend on the size of the audience, because
//! [`crate::engine::fanout`] resolves it later. Start with [`EventService::accept`].

pub mod objects;
mod retract;
pub mod unknown_names;

use std::str::FromStr;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer};

use crate::context::Context;
use crate::domain::audience::check_except;
use crate::domain::day::check_event_time;
use crate::domain::details::Actor;
use crate::domain::{
    Audience, BrandName, ChosenKey, Details, Event, EventType, Fanout, FollowKey, Id, InvalidValue,
    Json, ObjectId, Point, UserId, durations_and_times,
};
use crate::engine::coalescer::Coalescer;
use crate::engine::json_fields;
use crate::engine::{Error, Result, crash};
use crate::store::{self, Acceptance};
use crate::wire::event::Receipt;

/// A request to accept an event.
#[derive(Debug, Clone)]
pub struct NewEvent {
    /// The event type. It need not be configured.
    pub kind: EventType,
    /// The objects of the event, 1 to 100. Duplicates count once.
    pub objects: Vec<ObjectId>,
    /// The users that the event concerns.
    pub audience: Audience,
    /// The idempotency key. Requests with the same key are the same event.
    pub key: Option<String>,
    /// The key of its batches, instead of the type or the configured key.
    pub batch_key: Option<ChosenKey>,
    /// The actor, brand, text and data.
    pub details: Details,
    /// When the event happened, now by default. It determines the day.
    pub at: Option<DateTime<Utc>>,
}

impl NewEvent {
    /// Returns one event per object, without the fan-out's id.
    pub fn events(&self) -> Vec<Event> {
        self.objects.iter().map(|object| Event::new(&self.kind, object, None)).collect()
    }
}

/// Returns whether a fan-out is small enough to share a write with concurrent requests.
fn can_share_write(fanout: &Fanout) -> bool {
    let users = fanout.audience.named_users().len() + fanout.audience.except.len();
    fanout.objects.len() <= MAX_SHARED_WRITE_OBJECTS && users <= MAX_SHARED_WRITE_USERS
}

/// The most objects of a request that shares a write with concurrent requests.
pub(crate) const MAX_SHARED_WRITE_OBJECTS: usize = 4;
/// The most named and excluded users of such a request.
const MAX_SHARED_WRITE_USERS: usize = 100;

/// The most requests in one call.
pub const MAX_REQUESTS: usize = 1_000;

/// Accepts events into the journal.
pub struct EventService {
    /// The store, the clock and other shared components.
    pub context: Arc<Context>,
    /// Combines concurrent short requests into one write.
    pub coalescer: Arc<Coalescer<Fanout, Acceptance>>,
}

impl EventService {
    /// Accepts all these events, or none if one is invalid. Returns receipts in the order of the
    /// request.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if a key was used before for a different event. The other events of the
    /// call are accepted anyway. Repeating a call is safe for events with keys.
    pub async fn accept(&self, requests: Vec<NewEvent>) -> Result<Vec<Receipt>> {
        let now = self.context.clock.now();
        let fanouts = requests.into_iter().map(|request| self.to_fanout(request, now));
        let valid = fanouts.collect::<Result<Vec<Fanout>, _>>()?;
        self.append(&valid).await?.into_iter().collect()
    }

    /// Accepts each event on its own and returns a result for each. An invalid event does not
    /// affect the others, and a conflict concerns only its event.
    pub async fn accept_each(&self, requests: Vec<NewEvent>) -> Result<Vec<Result<Receipt>>> {
        let now = self.context.clock.now();
        let fanouts: Vec<_> =
            requests.into_iter().map(|request| self.to_fanout(request, now)).collect();
        let valid: Vec<Fanout> = fanouts.iter().flatten().cloned().collect();
        let mut receipts = self.append(&valid).await?.into_iter();
        let missing = || store::Error::database("journalling events", "an answer is missing");
        let receipt = |fanout: Result<Fanout, InvalidValue>| {
            fanout?;
            receipts.next().unwrap_or_else(|| Err(missing().into()))
        };
        Ok(fanouts.into_iter().map(receipt).collect())
    }

    /// Appends fan-outs to the journal. A single short one shares the call with concurrent ones.
    async fn append(&self, fanouts: &[Fanout]) -> Result<Vec<Result<Receipt>>> {
        let acceptances = match fanouts {
            [fanout] if can_share_write(fanout) => {
                let accept = |fanouts: Vec<Fanout>| {
                    let store = Arc::clone(&self.context.store);
                    async move { store.accept(&fanouts).await }
                };
                vec![self.coalescer.call(fanout.clone(), accept).await?]
            }
            _ => self.context.store.accept(fanouts).await?,
        };
        crash::point("after-accept");
        // In the span of the original request, even if another request's call wrote the event.
        for (fanout, acceptance) in fanouts.iter().zip(&acceptances) {
            match acceptance {
                Acceptance::New => tracing::debug!(event = %fanout.id, "an event was accepted"),
                Acceptance::Duplicate(known) => {
                    tracing::debug!(event = %known.id, "an event was accepted before");
                }
            }
        }
        let accepted = fanouts.iter().zip(acceptances);
        Ok(accepted.map(|(fanout, acceptance)| receipt(fanout, acceptance)).collect())
    }

    /// Returns an error if this event cannot be accepted now.
    pub fn check(&self, request: &NewEvent) -> Result<(), InvalidValue> {
        self.to_fanout(request.clone(), self.context.clock.now()).map(drop)
    }

    fn check_brand(&self, request: &NewEvent) -> Result<(), InvalidValue> {
        let Some(brand) = &request.details.brand else {
            return Ok(());
        };
        self.context.config.check_brand(brand)?;
        let kind = &request.kind;
        if self.context.policies.policy(kind).branded {
            return Ok(());
        }
        let why = format!(
            "cannot be that of an event of type {kind}, as the type is not branded; leave the brand out, or set types.{kind}.branded = true and a route other than digest"
        );
        Err(InvalidValue::new("brand", brand, why))
    }

    fn to_fanout(&self, request: NewEvent, now: DateTime<Utc>) -> Result<Fanout, InvalidValue> {
        if let Some(at) = request.at {
            check_event_time(at, now, self.context.config.window_days_back)?;
        }
        self.context.policies.check(&request.kind)?;
        self.check_brand(&request)?;
        let id = self.context.ids.next(request.at.unwrap_or(now));
        let kind = request.kind;
        let object_id = |object| self.context.policies.object_id(&kind, object);
        let objects = request.objects.into_iter().map(object_id).collect();
        let mut fanout = Fanout::new(id, request.key, kind, objects, request.audience)?;
        fanout.batch_key = request.batch_key;
        fanout.with_details(request.details)
    }

    /// Returns an event's fan-out, with its progress.
    pub async fn find(&self, id: Id) -> Result<Option<Fanout>> {
        Ok(self.context.store.fanout(id).await?)
    }
}

fn receipt(fanout: &Fanout, acceptance: Acceptance) -> Result<Receipt> {
    match acceptance {
        Acceptance::New => Ok(Receipt { id: fanout.id, duplicate: false }),
        // If the ids are equal, a retry inside the store found this request's own write.
        Acceptance::Duplicate(earlier) if earlier.is_same_request(fanout) => {
            Ok(Receipt { id: earlier.id, duplicate: earlier.id != fanout.id })
        }
        Acceptance::Duplicate(earlier) => {
            let (key, id) = (&fanout.key, earlier.id);
            Err(Error::Conflict(format!(
                "idempotency key {key:?} was used for a different event ({id}); use a new key for a new event"
            )))
        }
    }
}

/// An event as JSON: `{"type": "ArtworkPublished", "objects": ["A00001"], "followers_of":
/// ["artist:558"]}`.
///
/// Exactly one of `to`, `followers_of` and `near` names the audience. Fields that determine the
/// audience or the identity of the event may be absent, but not `null`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventInput {
    /// The event type, such as `ArtworkPublished`; `type` in JSON.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// 1 to 100 object ids. A single id needs no list.
    #[serde(deserialize_with = "one_or_many_ids")]
    pub objects: Vec<ObjectId>,
    /// Up to 100,000 users.
    #[serde(default, deserialize_with = "some_ids")]
    pub to: Vec<UserId>,
    /// Up to 100 keys. The audience is the followers of any of them.
    #[serde(default, deserialize_with = "some_ids")]
    pub followers_of: Vec<FollowKey>,
    /// A location. The audience is the users near it.
    #[serde(default, deserialize_with = "json_fields::named_if_given")]
    pub near: Option<NearInput>,
    /// Up to 10,000 users to exclude.
    #[serde(default, deserialize_with = "one_or_many_ids")]
    pub except: Vec<UserId>,
    /// The idempotency key, 1 to 256 bytes. Requests with the same key are the same event.
    #[serde(default, deserialize_with = "json_fields::given")]
    pub key: Option<String>,
    /// The key of its batches, instead of the type or the configured key.
    #[serde(default, deserialize_with = "json_fields::given")]
    pub batch_key: Option<ChosenKey>,
    /// The actor: an id, or an object with `id`, `name`, `url` and `image`. Actors are not
    /// notified.
    #[serde(default, deserialize_with = "json_fields::given")]
    pub actor: Option<ActorInput>,
    /// Whether the actor is notified too, if they are in the audience.
    #[serde(default)]
    pub notify_actor: bool,
    /// The brand of its emails, instead of the user's. The event type must be `branded`.
    #[serde(default, deserialize_with = "json_fields::given")]
    pub brand: Option<BrandName>,
    /// A description in plain text, up to 500 characters.
    #[serde(default)]
    pub text: Option<String>,
    /// Other data for the application's feed, up to 2 KiB of JSON.
    #[serde(default)]
    pub data: Json,
    /// When the event happened, now by default. It determines the day.
    #[serde(default, deserialize_with = "durations_and_times::deserialize_optional_time")]
    pub at: Option<DateTime<Utc>>,
}

/// The actor of an event.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "expected a user id, or an object with id, name, url and image")]
pub enum ActorInput {
    /// Only the id.
    Id(UserId),
    /// The id as a number.
    Number(i64),
    /// The id and the fields to show.
    Whole(#[serde(deserialize_with = "json_fields::named")] Actor),
}

impl From<ActorInput> for Actor {
    fn from(input: ActorInput) -> Self {
        match input {
            ActorInput::Id(id) => Self::bare(id),
            ActorInput::Number(id) => Self::bare(UserId::stored(id.to_string())),
            ActorInput::Whole(actor) => actor,
        }
    }
}

/// The users within a distance of a point.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with point and km")]
pub struct NearInput {
    /// Longitude and latitude, in degrees.
    pub point: Point,
    /// The distance in kilometers, above 0 and at most 20,100.
    pub km: f64,
}

impl EventInput {
    /// Converts the input into a request.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] if not exactly one audience is named, or if it is too large.
    pub fn into_request(self) -> Result<NewEvent, InvalidValue> {
        let audience = match (self.to.is_empty(), self.followers_of.is_empty(), self.near) {
            (false, true, None) => Audience::users(self.to)?,
            (true, false, None) => Audience::followers_of(self.followers_of)?,
            (true, true, Some(near)) => Audience::near(near.point, near.km)?,
            _ => {
                let why = "must be named by exactly one of to, followers_of and near";
                return Err(InvalidValue::new("audience of", &self.kind, why));
            }
        };
        check_except(self.except.len())?;
        let actor = self.actor.map(Actor::from);
        let excluded_actor =
            actor.as_ref().filter(|_| !self.notify_actor).map(|actor| actor.id.clone());
        Ok(NewEvent {
            kind: self.kind,
            objects: self.objects,
            audience: audience.except(self.except.into_iter().chain(excluded_actor)),
            key: self.key,
            batch_key: self.batch_key,
            details: Details {
                actor,
                brand: self.brand,
                text: self.text,
                data: self.data,
                ..Details::default()
            },
            at: self.at,
        })
    }
}

/// Deserializes one name, or a list of at least one. Each may be a number.
fn some_ids<'de, D: Deserializer<'de>, T: FromStr<Err = InvalidValue>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    let names = one_or_many_ids(from)?;
    if names.is_empty() {
        let why = "the list is empty; give at least one name, or leave it out";
        return Err(serde::de::Error::custom(why));
    }
    Ok(names)
}

/// Deserializes one name, or a list of names. Each may be a number.
pub fn one_or_many_ids<'de, D: Deserializer<'de>, T: FromStr<Err = InvalidValue>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a name, or a list of names")]
    enum NameList {
        One(json_fields::NameOrNumber),
        Many(Vec<json_fields::NameOrNumber>),
    }
    let names = match NameList::deserialize(from)? {
        NameList::One(name) => vec![name],
        NameList::Many(names) => names,
    };
    names
        .into_iter()
        .map(json_fields::NameOrNumber::parse)
        .collect::<Result<_, _>>()
        .map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retried_request_is_not_a_duplicate_event() {
        let audience = Audience::users([UserId::stored("ada")]).unwrap();
        let fanout = |id| {
            let (kind, objects) = ("Loan".parse().unwrap(), vec![ObjectId::stored("a1")]);
            Fanout::new(id, Some("key".into()), kind, objects, audience.clone()).unwrap()
        };
        let [ours, earlier] = [1, 2].map(|n| fanout(Id::at(DateTime::UNIX_EPOCH, [n; 8])));

        for (existing, is_duplicate) in [(&ours, false), (&earlier, true)] {
            let acceptance = Acceptance::Duplicate(Box::new(existing.clone()));
            let receipt = receipt(&ours, acceptance).unwrap();
            assert_eq!((receipt.id, receipt.duplicate), (existing.id, is_duplicate));
        }
    }
}
