//! The mails every template must be able to make: one event and many, with all that can be known of
//! an object and with nothing. A template is tried on them before it meets a person.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;

use super::{BatchMail, DigestMail, Error, Links};
use crate::domain::batch::Item as Kept;
use crate::domain::bulletin::gather;
use crate::domain::digest::{Digest, Item, Section};
use crate::domain::{
    BatchKey, Cadence, ChosenKey, Day, Event, EventType, Id, Object, ObjectId, ObjectKey, Policies,
    Policy, Position, StackId, User, UserId,
};

/// Hands each sample to `try_out`, and stops at the first that fails.
pub(super) fn mails(
    mut try_out: impl FnMut(&DigestMail<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let at = DateTime::from_timestamp(1_398_153_600, 0).unwrap_or_default();
    let nobody = User::new(UserId::stored("sample"));
    let somebody = User {
        name: Some("Ada".into()),
        locale: Some("en-GB".into()),
        ..nobody.clone()
    };
    let full = |n: u32| Object {
        title: Some(format!("Sample {n}")),
        url: Some("https://example.org/sample".into()),
        image: Some("https://example.org/sample.jpg".into()),
        by: Some(format!("Somebody {n}")),
        at: Some(at),
        ..bare(n)
    };
    let bares = digest(at, [("One", "One", vec![bare(0)], 0)]);
    let one = digest(at, [("NewWork", "New works", vec![full(0)], 0)]);
    let many = digest(
        at,
        [
            ("NewWork", "New works", vec![full(0), full(1), bare(2)], 12),
            ("NearbyShow", "Shows near you", vec![full(3)], 0),
            ("Other", "Other", vec![], 3),
        ],
    );
    let links = Links {
        preferences: Some("https://example.org/preferences".into()),
        unsubscribe: Some("https://example.org/unsubscribe".into()),
    };
    for (user, digest, cadence, links) in [
        (&nobody, &bares, Cadence::Never, Links::default()),
        (&somebody, &one, Cadence::Daily, links.clone()),
        (&somebody, &many, Cadence::Weekly, links),
    ] {
        try_out(&DigestMail {
            user,
            digest,
            cadence,
            period: "2014-W17",
            at,
            tz: Tz::UTC,
            links,
        })?;
    }
    Ok(())
}

/// The same for batches: one event and several, with and without a phrase, with and without people,
/// of one type and of two.
pub(super) fn batches(
    mut try_out: impl FnMut(&BatchMail<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let at = DateTime::from_timestamp(1_398_153_600, 0).unwrap_or_default();
    let phrased = Policy {
        heading: Some("New comments".into()),
        phrase: "commented on".parse().ok(),
        ..Policy::default()
    };
    let policies = Policies::new([(EventType::stored("Comment"), phrased)]);
    let known = |n: usize| Object {
        title: Some(format!("Sample {}", n % 2)),
        url: Some(format!("https://example.org/sample#{n}")),
        image: Some("https://example.org/sample.jpg".into()),
        by: Some(format!("Somebody {n}")),
        at: Some(at),
        data: match n % 3 {
            0 => {
                serde_json::json!({"about": {"title": "Sample", "url": "https://example.org/sample"}})
            }
            _ => serde_json::Value::Null,
        },
        ..bare(0)
    };
    let key = BatchKey::Chosen(ChosenKey::new("sample")?);
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
                i: Id::at(at, [n as u8; 8]),
                t: EventType::stored(kinds[n % 2]),
                o: ObjectId::stored(n.to_string()),
            })
            .collect();
        let applies = |event: &Event| {
            let n: usize = event.o.as_str().parse().ok()?;
            Some(Arc::new(of.get(n)?.clone()))
        };
        let Some(bulletin) = gather(&key, &kept, not_kept, &policies, applies) else {
            continue;
        };
        for links in [
            Links::default(),
            Links {
                preferences: Some("https://example.org/preferences".into()),
                unsubscribe: Some("https://example.org/unsubscribe".into()),
            },
        ] {
            try_out(&BatchMail {
                user: &User::new(UserId::stored("sample")),
                bulletin: &bulletin,
                at,
                tz: Tz::UTC,
                links,
            })?;
        }
    }
    Ok(())
}

/// A digest of so many items of one type.
pub(super) fn of(at: DateTime<Utc>, items: usize) -> Digest {
    let object = |n: u32| Object {
        title: Some(format!("Sample {n}, with a title of usual length")),
        url: Some(format!("https://www.example.org/artworks/sample-{n}")),
        image: Some(format!(
            "https://images.example.org/artworks/sample-{n}/medium.jpg"
        )),
        by: Some("Somebody Known".into()),
        at: Some(at),
        ..bare(n)
    };
    let objects = (0..).take(items).map(object).collect();
    digest(at, [("NewWork", "New works", objects, 0)])
}

fn bare(n: u32) -> Object {
    Object::bare(ObjectKey::stored(format!("Sample:{n}")))
}

/// A digest of sections given as type, heading, objects (newest first) and how many more there are.
pub(super) fn digest<'a>(
    at: DateTime<Utc>,
    sections: impl IntoIterator<Item = (&'a str, &'a str, Vec<Object>, usize)>,
) -> Digest {
    let stack = StackId::of(Day::of(at));
    let sections: Vec<Section> = sections
        .into_iter()
        .map(|(kind, heading, objects, more)| {
            let kind = EventType::stored(kind);
            let items = (0..).zip(objects).map(|(index, object)| {
                let id = object.key.parts().map_or(object.key.as_str(), |(_, id)| id);
                Item {
                    position: Position { stack, index },
                    kind: kind.clone(),
                    id: ObjectId::stored(id),
                    at: at - TimeDelta::hours(9 * i64::from(index % 16) + 8),
                    object: Arc::new(object),
                }
            });
            Section {
                items: items.collect(),
                kind: kind.clone(),
                heading: heading.to_owned(),
                more,
            }
        })
        .collect();
    Digest {
        total: sections.iter().map(Section::total).sum(),
        oldest: sections
            .iter()
            .flat_map(|section| &section.items)
            .map(|item| item.at)
            .min()
            .unwrap_or(at),
        sections,
    }
}
