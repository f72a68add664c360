//! Accepts events: checked as a whole, then one durable journal entry each.
//!
//! The rule (P1, P10): what was accepted is in the journal and will reach everybody; what is wrong
//! is refused before anything is written. Accepting costs the same for one follower and for a
//! million: resolving them is [`crate::engine::fanout`]'s work.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::Deserialize;

use crate::context::Context;
use crate::domain::audience::check_except;
use crate::domain::details::Actor;
use crate::domain::{
    Acceptance, Audience, BrandName, ChosenKey, Details, Event, EventType, Fanout, FollowKey, Id,
    Invalid, Json, ObjectId, Point, Selector, UserId, moment,
};
use crate::engine::directory::fields;
use crate::engine::joint::Joint;
use crate::engine::{Error, Result, crash};
use crate::store::{self, Accepted};
use crate::wire::event::Receipt;

mod warnings;

/// An event as its writer hands it in.
#[derive(Debug, Clone)]
pub struct Request {
    /// The event's type, configured or not.
    pub kind: EventType,
    /// What it is about: 1 to 100 objects, each counted once.
    pub objects: Vec<ObjectId>,
    /// Whom it concerns.
    pub audience: Audience,
    /// The same key is the same event, however often it is handed in.
    pub key: Option<String>,
    /// What its batches are of, instead of the type or what is configured for it.
    pub batch_key: Option<ChosenKey>,
    /// What is said of it.
    pub details: Details,
    /// When it happened, for events brought in later; now if left out. It decides the day.
    pub at: Option<DateTime<Utc>>,
}

impl Request {
    /// Whether it is short enough to go with others that come at the same time.
    fn is_short(&self) -> bool {
        let named = match &self.audience.to {
            Selector::Users(users) => users.len(),
            Selector::FollowersOf(_) | Selector::Near { .. } => 0,
        };
        self.objects.len() <= FEW_OBJECTS && named + self.audience.except.len() <= FEW_PEOPLE
    }

    /// What it says happened, without the id of its fan-out.
    pub fn events(&self) -> Vec<Event> {
        let event = |o: &ObjectId| Event {
            t: self.kind.clone(),
            o: o.clone(),
            i: None,
        };
        self.objects.iter().map(event).collect()
    }

    /// What the types of its fields cannot say: whether a fan-out can be made of it.
    pub fn check(&self) -> std::result::Result<(), Invalid> {
        let at = self.at.unwrap_or(DateTime::UNIX_EPOCH);
        // Ids hold no other, and an event of another day than its own would be shown and mailed as
        // what it is not.
        if !(0..=i64::from(u32::MAX)).contains(&at.timestamp()) {
            let why = "is not between 1970 and 2106";
            return Err(Invalid::new("time", at.to_rfc3339(), why));
        }
        let id = Id::at(at, [0; 8]);
        let (key, kind) = (self.key.clone(), self.kind.clone());
        self.details.check()?;
        Fanout::new(id, key, kind, self.objects.clone(), self.audience.clone()).map(|_| ())
    }
}

/// A request is accepted together with others if it is of at most so many objects.
pub(crate) const FEW_OBJECTS: usize = 4;
/// And names at most so many people.
const FEW_PEOPLE: usize = 100;

/// The most requests in one call.
pub const MAX_REQUESTS: usize = 1_000;

/// Accepts events into the journal.
pub struct Notify {
    /// The store, the clock and the other shared parts.
    pub context: Arc<Context>,
    /// Short events that come at the same time are accepted together.
    pub joint: Arc<Joint<Fanout, Accepted>>,
}

impl Notify {
    /// Accepts all of these, or none where one cannot be. Answers in the order asked.
    ///
    /// A key that was used before for a different event is a conflict ([`Error::Conflict`]); the
    /// others of that call stand all the same, and handing in the call again is harmless where they
    /// have keys.
    pub async fn accept(&self, requests: Vec<Request>) -> Result<Vec<Receipt>> {
        for request in &requests {
            self.check(request)?;
        }
        self.accept_each(requests).await?.into_iter().collect()
    }

    /// The same, with an answer of its own for each: one that cannot be accepted keeps none of the
    /// others out, and a key that was used before for a different event is that event's conflict.
    pub async fn accept_each(&self, requests: Vec<Request>) -> Result<Vec<Result<Receipt>>> {
        let now = self.context.clock.now();
        let is_short = matches!(&requests[..], [one] if one.is_short());
        let requests: Vec<_> = requests
            .into_iter()
            .map(|request| self.fanout(request, now))
            .collect();
        let fanouts: Vec<Fanout> = requests.iter().flatten().cloned().collect();
        let answers = match &fanouts[..] {
            [fanout] if is_short => {
                let accept = |all: Vec<Fanout>| {
                    let journal = Arc::clone(&self.context.store);
                    async move { journal.accept(&all).await }
                };
                vec![self.joint.call(fanout.clone(), accept).await?]
            }
            _ => self.context.store.accept(&fanouts).await?,
        };
        crash::point("after-accept");
        fanouts
            .iter()
            .zip(&answers)
            .for_each(|(fanout, answer)| log(fanout, answer));
        let mut answers = fanouts.iter().zip(answers);
        let answer = |request: std::result::Result<Fanout, Invalid>| {
            request?;
            let (fanout, answer) = answers.next().ok_or_else(|| {
                store::Error::database("journalling events", "an answer is missing")
            })?;
            receipt(fanout, answer)
        };
        Ok(requests.into_iter().map(answer).collect())
    }

    /// Whether this can be accepted now.
    pub fn check(&self, request: &Request) -> std::result::Result<(), Invalid> {
        self.in_time(request, self.context.clock.now())?;
        self.context.policies.check(&request.kind)?;
        self.check_brand(request)?;
        request.check()
    }

    fn check_brand(&self, request: &Request) -> std::result::Result<(), Invalid> {
        let Some(brand) = &request.details.brand else {
            return Ok(());
        };
        self.context.config.brand_names().check(Some(brand))?;
        let kind = &request.kind;
        if self.context.policies.of(kind).branded {
            return Ok(());
        }
        let why = format!(
            "cannot be that of an event of type {kind}, as the type is not branded; leave the brand out, or set types.{kind}.branded = true and a route other than digest"
        );
        Err(Invalid::new("brand", brand, why))
    }

    fn in_time(&self, request: &Request, now: DateTime<Utc>) -> std::result::Result<(), Invalid> {
        match request.at {
            Some(at) => Acceptance::of(now, self.context.config.window_back).check(at),
            None => Ok(()),
        }
    }

    fn fanout(&self, request: Request, now: DateTime<Utc>) -> std::result::Result<Fanout, Invalid> {
        self.in_time(&request, now)?;
        self.check_brand(&request)?;
        let Request {
            key,
            kind,
            objects,
            audience,
            batch_key,
            details,
            at,
        } = request;
        self.context.policies.check(&kind)?;
        let id = self.context.ids.next(at.unwrap_or(now));
        let objects = objects.into_iter();
        let objects = objects
            .map(|object| self.context.policies.object_id(&kind, object))
            .collect();
        let fanout = Fanout::new(id, key, kind, objects, audience)?;
        fanout.with_batch_key(batch_key).with_details(details)
    }

    /// An event's fan-out, with how far it has come.
    pub async fn find(&self, id: Id) -> Result<Option<Fanout>> {
        Ok(self.context.store.fanout(id).await?)
    }
}

/// Within the request that brought it, whoever's call it went with.
fn log(fanout: &Fanout, answer: &Accepted) {
    match answer {
        Accepted::New => tracing::debug!(event = %fanout.id, "an event was accepted"),
        Accepted::Known(known) => {
            tracing::debug!(event = %known.id, "an event was handed in again");
        }
    }
}

fn receipt(fanout: &Fanout, answer: Accepted) -> Result<Receipt> {
    match answer {
        Accepted::New => Ok(Receipt {
            id: fanout.id,
            known: false,
        }),
        // Its own id: it was sent twice.
        Accepted::Known(earlier) if earlier.same_request(fanout) => Ok(Receipt {
            id: earlier.id,
            known: earlier.id != fanout.id,
        }),
        Accepted::Known(earlier) => {
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
/// Exactly one of `to`, `followers_of` and `near` says whom it concerns. Where `null` would change
/// whom an event concerns, or whether it is another, it is no way to leave a field out.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventInput {
    /// `type` in JSON, such as `ArtworkPublished`.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// 1 to 100 ids; one alone needs no list.
    #[serde(deserialize_with = "ids")]
    pub objects: Vec<ObjectId>,
    /// These people, up to 100,000.
    #[serde(default, deserialize_with = "some_ids")]
    pub to: Vec<UserId>,
    /// Whoever follows any of these keys, up to 100.
    #[serde(default, deserialize_with = "some_ids")]
    pub followers_of: Vec<FollowKey>,
    /// Whoever lives near a point.
    #[serde(default, deserialize_with = "fields::named_if_given")]
    pub near: Option<NearInput>,
    /// Whom to leave out, up to 10,000.
    #[serde(default, deserialize_with = "ids")]
    pub except: Vec<UserId>,
    /// 1 to 256 bytes. The same key is the same event, however often it is handed in.
    #[serde(default, deserialize_with = "fields::given")]
    pub key: Option<String>,
    /// What its batches are of, instead of the type or what is configured for it.
    #[serde(default, deserialize_with = "fields::given")]
    pub batch_key: Option<ChosenKey>,
    /// Who did it: an id, or an object with `id`, `name`, `url` and `image`. They are not told.
    #[serde(default, deserialize_with = "fields::given")]
    pub actor: Option<ActorInput>,
    /// Whether who did it is told as well, if the event concerns them.
    #[serde(default)]
    pub tell_actor: bool,
    /// Of which brand its mails are, instead of each person's; its type must be `branded`.
    #[serde(default, deserialize_with = "fields::given")]
    pub brand: Option<BrandName>,
    /// What was said or done, in plain words: up to 500 characters.
    #[serde(default)]
    pub text: Option<String>,
    /// Whatever else the application's feed shows: up to 2 KiB of JSON.
    #[serde(default)]
    pub data: Json,
    /// When it happened; now if left out. It decides the day.
    #[serde(default, deserialize_with = "moment::read_if_any")]
    pub at: Option<DateTime<Utc>>,
}

/// Who did it.
#[derive(Debug, Clone, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a user id, or an object with id, name, url and image"
)]
pub enum ActorInput {
    /// Only who.
    Id(UserId),
    /// The same as a number.
    Number(i64),
    /// With what is shown of them.
    Whole(#[serde(deserialize_with = "fields::named")] Actor),
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

/// Everybody who lives within a distance of a point.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with point and km")]
pub struct NearInput {
    /// Longitude and latitude, in degrees.
    pub point: Point,
    /// The distance in kilometers, above 0 and up to 20,100.
    pub km: f64,
}

impl EventInput {
    /// The request, if exactly one audience is named and it is not too large.
    pub fn into_request(self) -> std::result::Result<Request, Invalid> {
        let audience = match (self.to.is_empty(), self.followers_of.is_empty(), self.near) {
            (false, true, None) => Audience::users(self.to)?,
            (true, false, None) => Audience::followers_of(self.followers_of)?,
            (true, true, Some(near)) => Audience::near(near.point, near.km)?,
            _ => {
                let why = "must be named by exactly one of to, followers_of and near";
                return Err(Invalid::new("audience of", &self.kind, why));
            }
        };
        check_except(self.except.len())?;
        let actor = self.actor.map(Actor::from);
        let left_out = actor.as_ref().filter(|_| !self.tell_actor);
        let left_out = left_out.map(|actor| actor.id.clone());
        Ok(Request {
            kind: self.kind,
            objects: self.objects,
            audience: audience.except(self.except.into_iter().chain(left_out)),
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

/// One name or a list of at least one; each may be written as a number.
fn some_ids<'de, D, T>(deserializer: D) -> std::result::Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: std::str::FromStr<Err = Invalid>,
{
    let names = ids(deserializer)?;
    match names.is_empty() {
        true => Err(serde::de::Error::custom(
            "the list is empty; give at least one name, or leave it out",
        )),
        false => Ok(names),
    }
}

/// One name or a list of names; each may be written as a number.
pub fn ids<'de, D, T>(deserializer: D) -> std::result::Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: std::str::FromStr<Err = Invalid>,
{
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a name, or a list of names")]
    enum Names {
        One(Name),
        Many(Vec<Name>),
    }
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a name as text or a whole number")]
    enum Name {
        Text(String),
        Number(i64),
    }
    let names = match Names::deserialize(deserializer)? {
        Names::One(name) => vec![name],
        Names::Many(names) => names,
    };
    let parse = |name: Name| match name {
        Name::Text(text) => text.parse(),
        Name::Number(number) => number.to_string().parse(),
    };
    names
        .into_iter()
        .map(parse)
        .collect::<std::result::Result<_, _>>()
        .map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_twice_is_no_event_that_was_known() {
        let audience = Audience::users([UserId::stored("ada")]).unwrap();
        let fanout = |id| {
            let (kind, objects) = ("Loan".parse().unwrap(), vec![ObjectId::stored("a1")]);
            Fanout::new(id, Some("key".into()), kind, objects, audience.clone()).unwrap()
        };
        let [ours, earlier] = [1, 2].map(|n| fanout(Id::at(DateTime::UNIX_EPOCH, [n; 8])));

        for (standing, known) in [(&ours, false), (&earlier, true)] {
            let answer = Accepted::Known(Box::new(standing.clone()));
            let receipt = receipt(&ours, answer).unwrap();
            assert_eq!((receipt.id, receipt.known), (standing.id, known));
        }
    }
}
