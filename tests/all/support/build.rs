//! Short builders of users, events, pushes, fan-outs and deliveries of 22 April 2014.
//!
//! A builder fills in what a test does not care about, with valid and distinct values.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, TimeZone, Utc};
use tidings::clock::Clock;
use tidings::config::Config;
use tidings::context::Context;
use tidings::domain::delivery::Handover;
use tidings::domain::feed_marks::Mark;
use tidings::domain::feed_page::FeedCursor;
use tidings::domain::{
    Audience, Cadence, Day, DaySet, Delivery, DeliveryId, DeliverySource, Entry, Event, EventType,
    Fanout, FollowKey, Id, Lease, ObjectId, Position, StackId, UserId,
};
use tidings::engine::archive;
use tidings::engine::feed::{self, MarksInput};
use tidings::ids::Ids;
use tidings::metrics::{BuildInfo, Metrics};
use tidings::store::{NewMarker, PushRequest, Store};

/// The current day of the tests.
pub fn today() -> Day {
    "20140422".parse().unwrap()
}

/// A context without configured event types.
pub fn context(store: Arc<dyn Store>, clock: Arc<dyn Clock>, owner: &str) -> Arc<Context> {
    let ids = Arc::new(Ids::random());
    Arc::new(Context {
        owner: owner.to_owned(),
        ..Context::new(
            Config::with_defaults(),
            store,
            clock,
            ids,
            Metrics::new(BuildInfo::default()),
        )
    })
}

/// Today and the seven days before it.
pub fn window() -> DaySet {
    DaySet::ending(today(), 7)
}

/// The current time of the tests.
pub fn noon() -> DateTime<Utc> {
    Utc.with_ymd_and_hms(2014, 4, 22, 12, 0, 0).unwrap()
}

pub fn minutes(n: i64) -> TimeDelta {
    TimeDelta::minutes(n)
}

/// The nth id of today. Ids ascend with `n`.
pub fn id(n: u32) -> Id {
    let [a, b, c, d] = n.to_be_bytes();
    Id::at(noon(), [0, 0, 0, 0, a, b, c, d])
}

/// A user id with this exact text, which need not be valid for new users.
pub fn user(text: &str) -> UserId {
    UserId::stored(text)
}

/// Returns `p00000`, `p00001` and so on. They also ascend as text.
pub fn people(count: usize) -> Vec<UserId> {
    (0..count).map(|n| user(&format!("p{n:05}"))).collect()
}

pub fn kind(text: &str) -> EventType {
    EventType::stored(text)
}

pub fn key(text: &str) -> FollowKey {
    FollowKey::stored(text)
}

/// The line of a follow in an export.
pub fn follow_line(key: &FollowKey, user: &UserId) -> String {
    format!(r#"{{"_id":{{"k":"{}","u":"{}"}}}}"#, key.as_str(), user.as_str())
}

/// An event about this object in the nth fan-out.
pub fn event(object: &str, fanout: u32) -> Event {
    Event {
        kind: kind("ArtworkPublished"),
        object: ObjectId::stored(object),
        fanout_id: Some(id(fanout)),
    }
}

/// `count` events of one fan-out, about the objects `a0`, `a1` and so on.
pub fn events(count: usize, fanout: u32) -> Vec<Event> {
    (0..count).map(|n| event(&format!("a{n}"), fanout)).collect()
}

/// The entries of a stack for these events.
pub fn entries(events: impl IntoIterator<Item = Event>) -> Vec<Entry> {
    events.into_iter().map(Entry::Event).collect()
}

/// A push of one list to one user.
pub fn push_to(person: &UserId, events: Vec<Event>) -> PushRequest {
    push_to_all(std::slice::from_ref(person), events)
}

/// A push of one list to all of these users.
pub fn push_to_all(people: &[UserId], events: Vec<Event>) -> PushRequest {
    PushRequest {
        lists: vec![events],
        users: people.iter().map(|person| (person.clone(), 0)).collect(),
    }
}

/// A marker for the stack with a text `_id`, of one day.
pub fn new_marker(person: &UserId, day: Day, marker: Id, n: u32) -> NewMarker {
    NewMarker::Flushed(person.clone(), marker, vec![(StackId::for_day(day), n)])
}

/// The nth fan-out of today, for the user `ada`.
pub fn fanout(n: u32) -> Fanout {
    let audience = Audience::users([user("ada")]).unwrap();
    let objects = vec![ObjectId::stored(format!("a{n}"))];
    Fanout::new(id(n), Some(format!("key-{n}")), kind("ArtworkPublished"), objects, audience)
        .unwrap()
}

pub fn lease(owner: &str, until: DateTime<Utc>) -> Lease {
    Lease { owner: owner.into(), until }
}

/// A new daily digest of this date, leased to `owner` until 12:05.
pub fn delivery(person: &str, date: &str, owner: &str) -> Delivery {
    let id = DeliveryId::stored(format!("digest:{person}:daily:{date}"));
    let occasion = DeliverySource::Digest(Cadence::Daily, date.into());
    Delivery {
        watermarks: vec![
            (StackId::for_day(today().days_before(1)), 3),
            (StackId::for_day(today()), 2),
        ],
        lease: Some(lease(owner, noon() + minutes(5))),
        ..Delivery::new(id, user(person), occasion, self::id(900), noon())
    }
}

/// The handover of a delivery with three events, in this call.
pub fn handover(id: &DeliveryId, call: &str) -> Handover {
    Handover { id: id.clone(), call: call.to_owned(), items: 3 }
}

/// Marks up to a cursor, or of items by their ids.
pub fn marks(mark: Mark, to: Option<FeedCursor>, ids: Option<Vec<Position>>) -> MarksInput {
    MarksInput { mark, to, kind: None, category: None, day: None, about: None, ids }
}

/// An archive run that drops days which are older than this number of days, without an export.
pub fn keep_days(days: i64) -> archive::ArchiveRequest {
    archive::ArchiveRequest {
        keep: TimeDelta::days(days),
        export: None,
        dry_run: false,
        force: false,
    }
}

/// A request for a whole feed on one page.
pub fn feed_of(person: &UserId) -> feed::FeedRequest {
    feed::FeedRequest {
        user: person.clone(),
        query: Default::default(),
        limit: feed::MAX_LIMIT,
        accepts_cached: false,
    }
}
