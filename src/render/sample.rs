//! Sample emails that every template must render before it is used.
//!
//! They contain one event and many, objects with every field and objects with none.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;

use super::files::Error;
use super::mail::{Links, Mail};
use crate::domain::batch::Item as Kept;
use crate::domain::content::{About, Group, Item, People, Section, gather};
use crate::domain::{
    BatchKey, Cadence, ChosenKey, Content, Event, EventType, Id, Object, ObjectId, ObjectKey,
    Occasion, Policies, Policy, Stop, User, UserId,
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
    let full = |n: u32| Object {
        title: Some(format!("Sample {n}")),
        url: Some("https://example.org/sample".into()),
        image: Some("https://example.org/sample.jpg".into()),
        by: Some(format!("Somebody {n}")),
        at: Some(now()),
        ..bare(n)
    };
    let bares = digest(now(), [("One", "One", vec![bare(0)], 0)]);
    let one = digest(now(), [("NewWork", "New works", vec![full(0)], 0)]);
    let many = digest(
        now(),
        [
            ("NewWork", "New works", vec![full(0), full(1), bare(2)], 12),
            ("NearbyShow", "Shows near you", vec![full(3)], 0),
            ("Other", "Other", vec![], 3),
        ],
    );
    for (user, content, cadence, links) in [
        (&anonymous, &bares, Cadence::Never, Links::default()),
        (&named, &one, Cadence::Daily, links()),
        (&named, &many, Cadence::Weekly, links()),
    ] {
        let occasion = of_cadence(cadence);
        try_out(&Mail {
            links,
            stop: Some(&Stop::Digest),
            ..mail(user, content, &occasion)
        })?;
    }
    Ok(())
}

/// Passes each sample batch to `try_out`: one event and several, with and without a phrase or
/// people, of one type and of two.
pub(super) fn batches(
    mut try_out: impl FnMut(&Mail<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let phrased = Policy {
        heading: Some("New comments".into()),
        phrase: "commented on".parse().ok(),
        ..Policy::default()
    };
    let policies = Policies::new([(EventType::stored("Comment"), phrased)]);
    let about = serde_json::json!({"title": "Sample", "url": "https://example.org/sample"});
    let known = |n: usize| Object {
        title: Some(format!("Sample {}", n % 2)),
        url: Some(format!("https://example.org/sample#{n}")),
        image: Some("https://example.org/sample.jpg".into()),
        by: Some(format!("Somebody {n}")),
        at: Some(now()),
        data: match n % 3 {
            0 => serde_json::json!({"about": about}),
            1 => serde_json::json!({"place": "Somewhere"}),
            _ => serde_json::Value::Null,
        }
        .into(),
        ..bare(0)
    };
    let key = BatchKey::Chosen(ChosenKey::new("sample")?);
    let user = User::new(UserId::stored("sample"));
    let occasion = Occasion::Batch {
        batch: Id::at(now(), [0; 8]),
        turn: now(),
    };
    for (kinds, of, not_kept) in [
        (["Comment", "Comment"], vec![known(0)], 0),
        (["Comment", "Comment"], vec![known(1)], 0),
        (["Comment", "Comment"], (0..9).map(known).collect(), 12),
        (["Comment", "Comment"], vec![bare(0)], 0),
        (["One", "One"], vec![bare(0)], 0),
        (["One", "One"], vec![known(0), known(1), bare(2)], 0),
        (["Comment", "Other"], (0..9).map(known).collect(), 0),
    ] {
        let kept: Vec<Kept> = (0..of.len())
            .map(|n| Kept {
                i: Id::at(now(), [n as u8; 8]),
                t: EventType::stored(kinds[n % 2]),
                o: ObjectId::stored(n.to_string()),
            })
            .collect();
        let applies = |event: &Event| {
            let n: usize = event.o.as_str().parse().ok()?;
            Some(Arc::new(of.get(n)?.clone()))
        };
        let Some(content) = gather(&key, &kept, not_kept, &policies, applies) else {
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

/// Returns a digest with this many items of one type.
pub(super) fn works(items: usize) -> Content {
    let object = |n: u32| Object {
        title: Some(format!("Sample {n}, with a title of usual length")),
        url: Some(format!("https://www.example.org/artworks/sample-{n}")),
        image: Some(format!(
            "https://images.example.org/artworks/sample-{n}/medium.jpg"
        )),
        by: Some("Somebody Known".into()),
        at: Some(now()),
        ..bare(n)
    };
    let objects = (0..).take(items).map(object).collect();
    digest(now(), [("NewWork", "New works", objects, 0)])
}

fn bare(n: u32) -> Object {
    Object::bare(ObjectKey::stored(format!("Sample:{n}")))
}

/// Returns a digest. Each section is a type, a heading, objects (newest first), and the number of
/// further events.
pub(super) fn digest<'a>(
    at: DateTime<Utc>,
    sections: impl IntoIterator<Item = (&'a str, &'a str, Vec<Object>, usize)>,
) -> Content {
    let no_one = People::Named(Vec::new());
    let group = |(index, object): (usize, Object)| {
        let id = object.key.parts().map_or(object.key.as_str(), |(_, id)| id);
        let item = Item {
            id: ObjectId::stored(id),
            at: at - TimeDelta::hours(9 * (index % 16) as i64 + 8),
            object: Arc::new(object),
            details: None,
        };
        Group {
            about: About::Itself,
            people: no_one.clone(),
            items: vec![item],
            total: 1,
        }
    };
    let section = |(kind, heading, objects, more): (&str, &str, Vec<Object>, usize)| Section {
        kind: EventType::stored(kind),
        heading: heading.to_owned(),
        phrase: None,
        mandate: None,
        people: no_one.clone(),
        abouts: objects.len() + more,
        total: (objects.len() + more) as u64,
        not_kept: 0,
        groups: objects.into_iter().enumerate().map(group).collect(),
    };
    let sections: Vec<Section> = sections.into_iter().map(section).collect();
    let times = || sections.iter().flat_map(Section::items).map(|item| item.at);
    Content {
        total: sections.iter().map(|section| section.total).sum(),
        not_kept: 0,
        oldest: times().min().unwrap_or(at),
        newest: times().max().unwrap_or(at),
        because: Vec::new(),
        sections,
    }
}
