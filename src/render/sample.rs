//! Sample emails that every template must render before it is used.
//!
//! They contain one event and many, objects with every field and objects with none.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;

use super::files::Error;
use super::mail::{Links, Mail};
use crate::domain::batch::Item as Kept;
use crate::domain::content::{Caps, gather};
use crate::domain::digest::assemble;
use crate::domain::stack::EventAt;
use crate::domain::{
    BatchKey, Cadence, ChosenKey, Content, Day, Event, EventType, Id, Object, ObjectId, ObjectKey,
    Occasion, Policies, Policy, Position, StackId, Stop, User, UserId,
};

/// 22 April 2014, 08:00 UTC.
fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_398_153_600, 0).unwrap_or_default()
}

/// Returns an email without links.
pub(super) fn mail<'a>(user: &'a User, content: &'a Content, occasion: &'a Occasion) -> Mail<'a> {
    Mail {
        user,
        content,
        occasion,
        at: now(),
        tz: Tz::UTC,
        links: Links::default(),
        stop: None,
    }
}

pub(super) fn links() -> Links {
    Links {
        preferences: Some("https://example.org/preferences".into()),
        unsubscribe: Some("https://example.org/unsubscribe".into()),
        mute: Some("https://example.org/mute".into()),
    }
}

pub(super) fn of_cadence(cadence: Cadence) -> Occasion {
    Occasion::Digest {
        cadence,
        period: "2014-W17".into(),
    }
}

/// Passes each sample digest to `try_out`. Stops at the first error.
pub(super) fn digests(
    mut try_out: impl FnMut(&Mail<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let anonymous = User::new(UserId::stored("sample"));
    let named = User {
        name: Some("Ada".into()),
        locale: Some("en-GB".into()),
        ..anonymous.clone()
    };
    // Of the last type no event is shown.
    let many = (0..20).map(|n| match n {
        0..3 => ("Other", known(n)),
        3 => ("NearbyShow", known(n)),
        _ if n % 2 == 0 => ("NewWork", known(n)),
        _ => ("NewWork", bare(n)),
    });
    let caps = Caps {
        section: 3,
        total: 4,
    };
    for (user, sampled, cadence, links) in [
        (
            &anonymous,
            vec![("One", bare(0))],
            Cadence::Never,
            Links::default(),
        ),
        (&named, vec![("NewWork", known(0))], Cadence::Daily, links()),
        (&named, many.collect(), Cadence::Weekly, links()),
    ] {
        let events: Vec<Event> = kept(&sampled).into_iter().map(Event::from).collect();
        let pending = events.iter().zip(0..).map(|(event, index)| EventAt {
            position: Position {
                stack: StackId::of(Day::of(now())),
                index,
            },
            event,
            at: now(),
        });
        let pending: Vec<EventAt<'_>> = pending.collect();
        let object = |event: &Event| object_of(&sampled, event);
        let Some(content) = assemble(&pending, &policies(), caps, object) else {
            continue;
        };
        let occasion = of_cadence(cadence);
        try_out(&Mail {
            links,
            stop: Some(&Stop::Digest),
            ..mail(user, &content, &occasion)
        })?;
    }
    Ok(())
}

/// Passes each sample batch to `try_out`: one event and several, with and without a phrase or
/// people, of one type and of two.
pub(super) fn batches(
    mut try_out: impl FnMut(&Mail<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let key = BatchKey::Chosen(ChosenKey::new("sample")?);
    let user = User::new(UserId::stored("sample"));
    let occasion = Occasion::Batch {
        batch: Id::at(now(), [0; 8]),
        queue_position: now(),
    };
    let comment = |n| ("Comment", known(n));
    let mixed = |n| (["Comment", "Other"][n % 2], known(n));
    for (sampled, not_kept) in [
        (vec![comment(0)], 0),
        (vec![comment(1)], 0),
        ((0..9).map(comment).collect(), 12),
        (vec![("Comment", bare(0))], 0),
        (vec![("One", bare(0))], 0),
        (
            vec![("One", known(0)), ("One", known(1)), ("One", bare(2))],
            0,
        ),
        ((0..9).map(mixed).collect(), 0),
    ] {
        let (kept, object) = (kept(&sampled), |event: &Event| object_of(&sampled, event));
        let Some(content) = gather(&key, &kept, not_kept, &policies(), object) else {
            continue;
        };
        let types = Stop::of_types(content.sections.iter().map(|section| &section.kind));
        for (links, stop) in [
            (Links::default(), None),
            (links(), Some(&types)),
            (links(), Some(&Stop::Alone)),
        ] {
            try_out(&Mail {
                links,
                stop,
                ..mail(&user, &content, &occasion)
            })?;
        }
    }
    Ok(())
}

fn policies() -> Policies {
    let works = Policy {
        heading: Some("New works".into()),
        ..Policy::default()
    };
    let comments = Policy {
        heading: Some("New comments".into()),
        phrase: "commented on".parse().ok(),
        ..Policy::default()
    };
    Policies::new([
        (EventType::stored("NewWork"), works),
        (EventType::stored("Comment"), comments),
    ])
}

/// Returns events of these types, one for each object. Their object ids are the indexes.
fn kept(sampled: &[(&str, Object)]) -> Vec<Kept> {
    let kept = sampled.iter().enumerate().map(|(n, (kind, _))| Kept {
        i: Id::at(now(), [n as u8; 8]),
        t: EventType::stored(kind),
        o: ObjectId::stored(n.to_string()),
    });
    kept.collect()
}

fn object_of(sampled: &[(&str, Object)], event: &Event) -> Option<Arc<Object>> {
    let n: usize = event.o.as_str().parse().ok()?;
    Some(Arc::new(sampled.get(n)?.1.clone()))
}

/// Returns an object with every field. Some state a topic, and some a place.
fn known(n: usize) -> Object {
    let about = serde_json::json!({"title": "Sample", "url": "https://example.org/sample"});
    Object {
        title: Some(format!("Sample {}", n % 2)),
        url: Some(format!("https://example.org/sample#{n}")),
        image: Some("https://example.org/sample.jpg".into()),
        by: Some(format!("Author {n}")),
        at: Some(now()),
        data: match n % 3 {
            0 => serde_json::json!({"about": about}),
            1 => serde_json::json!({"place": "Somewhere"}),
            _ => serde_json::Value::Null,
        }
        .into(),
        ..bare(n)
    }
}

fn bare(n: usize) -> Object {
    Object::bare(ObjectKey::stored(format!("Sample:{n}")))
}
