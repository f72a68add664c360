//! Emails before rendering, and sample emails of the configured types with invented content.
//!
//! Samples are built like real emails, by [`assemble`] and [`gather`], so they look the same. If no
//! type of a route is configured, a sample type is used.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

use crate::domain::batch::{BatchKey, Item as Kept};
use crate::domain::content::{Caps, EventData, Followed, gather};
use crate::domain::details::Actor;
use crate::domain::digest::assemble;
use crate::domain::preferences::Title;
use crate::domain::stack::EventAt;
use crate::domain::{
    Cadence, Content, Day, Details, Event, EventType, FollowKey, Id, Json, Mutes, Object, ObjectId,
    ObjectKey, Occasion, Policies, Policy, Position, Route, StackId, Subject, User, UserId,
};

/// The kinds of previews.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Digest emails.
    Digest,
    /// Batch emails.
    Batch,
    /// The public pages that emails link to.
    Page,
}

impl Kind {
    /// All kinds, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::Digest, Self::Batch, Self::Page];

    /// Returns the name on the command line, in file names and on the page.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Digest => "digest",
            Self::Batch => "batch",
            Self::Page => "page",
        }
    }
}

/// An email before rendering.
#[derive(Debug, Clone)]
pub struct Draft {
    /// A short description.
    pub name: String,
    /// The recipient.
    pub user: User,
    /// The content.
    pub content: Content,
    /// The digest or batch of the email.
    pub occasion: Occasion,
}

impl Draft {
    /// Returns the kind of the preview.
    pub fn kind(&self) -> Kind {
        match self.occasion {
            Occasion::Digest { .. } => Kind::Digest,
            Occasion::Batch { .. } => Kind::Batch,
        }
    }
}

/// Titles, authors and texts, separated by bars.
const THINGS: [&str; 6] = [
    "Winter light on the canal|Ines Tavoro|The ice held until noon. Look at the left edge.",
    "Werkhalle Nord, open studios|Werkhalle Nord|Forty studios, three days, free of charge.",
    "Notes on a river, in twelve parts|Jonas Okafor|Part four is too long, the rest is right.",
    "The last ferry|Ada Lindqvist|Who was the second man on the pier?",
    "A chair for two, and other furniture that cannot be agreed upon|Studio Brandt & Sons|Line 3 is too high.",
    "Untitled (blue)|Mei Tanaka|Can we have it by Friday?",
];
/// The name of the artist that the reader follows.
pub(super) const FOLLOWED: &str = "Ines Tavoro";
/// The title that comments refer to.
const ABOUT: &str = "Budget";
/// The time from now to the invented event dates.
const TAKES_PLACE: TimeDelta = TimeDelta::days(9);
/// The most types that are shown.
const TYPES: usize = 4;

pub(super) fn reader() -> User {
    let mut mutes = Mutes::default();
    let muted = (Subject::stored("artist:7"), Title::cut("Ines Tavoro"));
    mutes.mute(muted.0, None, muted.1, DateTime::UNIX_EPOCH);
    User {
        name: Some("Mara Keller".into()),
        email: "mara@example.org".parse().ok(),
        confirmed: true,
        mutes,
        ..User::new(UserId::stored("mara"))
    }
}

/// What samples are made of.
pub(super) struct Samples<'a> {
    /// The base URL of pictures; without it there are none.
    pub pictures: Option<&'a str>,
    pub now: DateTime<Utc>,
}

/// Returns the first configured types whose route matches, or else a sample type.
fn kinds(
    policies: &Policies,
    goes: impl Fn(Route) -> bool,
    sample: (&str, Policy),
) -> (Vec<EventType>, Policies) {
    let kinds = policies.kinds();
    let kinds = kinds.filter(|kind| goes(policies.of(kind).route));
    let kinds: Vec<EventType> = kinds.take(TYPES).cloned().collect();
    if !kinds.is_empty() {
        return (kinds, policies.clone());
    }
    let (kind, policy) = (EventType::stored(sample.0), sample.1);
    (vec![kind.clone()], Policies::new([(kind, policy)]))
}

impl Samples<'_> {
    pub(super) fn digests(&self, policies: &Policies, caps: Caps) -> Vec<Draft> {
        let sample = Policy {
            heading: Some("New works".into()),
            ..Policy::default()
        };
        let is_digest = |route| route == Route::Digest;
        let (kinds, policies) = kinds(policies, is_digest, ("ArtworkPublished", sample));
        // The number of events of each type.
        let drafts = [
            ("one event", vec![1]),
            ("several", vec![3, 2, 2, 2]),
            ("more than fit", vec![3 * caps.section / 2]),
        ];
        let draft = |(name, counts): (&str, Vec<usize>)| {
            let of_kinds = kinds.iter().zip(counts).enumerate();
            let events = of_kinds.flat_map(|(n, (kind, count))| {
                (0..count).map(move |thing| self.event(kind.clone(), n * 3 + thing))
            });
            let events: Vec<Event> = events.collect();
            let pending = events.iter().enumerate().map(|(n, event)| EventAt {
                position: Position {
                    stack: StackId::of(Day::of(self.now)),
                    index: n as u32,
                },
                event,
                at: self.at(n),
            });
            let pending: Vec<EventAt<'_>> = pending.collect();
            Some(Draft {
                name: name.to_owned(),
                user: reader(),
                content: Content {
                    because: followed(),
                    ..assemble(&pending, &policies, caps, |event| {
                        Some(self.subject(event, Some(self.now + TAKES_PLACE)))
                    })?
                },
                occasion: Occasion::Digest {
                    cadence: Cadence::Weekly,
                    period: self.now.format("%G-W%V").to_string(),
                },
            })
        };
        drafts.into_iter().filter_map(draft).collect()
    }

    /// Returns drafts for each type that is emailed outside the digest: of one event, several and
    /// many.
    pub(super) fn batches(&self, policies: &Policies) -> Vec<Draft> {
        let sample = Policy {
            heading: Some("New comments".into()),
            phrase: "commented on".parse().ok(),
            route: Route::Batch,
            ..Policy::default()
        };
        let (kinds, policies) = kinds(policies, Route::is_mailed_alone, ("Comment", sample));
        let mut drafts = Vec::new();
        for kind in &kinds {
            for (name, kept, not_kept) in [("one event", 1, 0), ("several", 4, 0), ("many", 6, 17)]
            {
                let items = (0..kept).map(|n| {
                    let Event { t, o, .. } = self.event(kind.clone(), n);
                    let i = Id::at(self.at(kept - n), [n as u8; 8]);
                    Kept { i, t, o }
                });
                let items: Vec<Kept> = items.collect();
                let key = BatchKey::Type(kind.clone());
                let subject = |event: &Event| Some(self.subject(event, None));
                let Some(content) = gather(&key, &items, not_kept, &policies, subject) else {
                    continue;
                };
                drafts.push(Draft {
                    name: format!("{kind}, {name}"),
                    user: reader(),
                    content,
                    occasion: Occasion::Batch {
                        batch: Id::at(self.now, [0; 8]),
                        queue_position: self.now,
                    },
                });
            }
        }
        drafts
    }

    fn at(&self, n: usize) -> DateTime<Utc> {
        self.now - TimeDelta::minutes(7 + 190 * n as i64)
    }

    fn event(&self, t: EventType, n: usize) -> Event {
        let o = ObjectId::stored(n.to_string());
        Event { t, o, i: None }
    }

    /// Returns the invented object of an event, with the date `at`, and its details.
    fn subject(&self, event: &Event, at: Option<DateTime<Utc>>) -> EventData {
        let n: usize = event.o.as_str().parse().unwrap_or_default();
        let thing = n % THINGS.len();
        let mut parts = THINGS[thing].splitn(3, '|').map(str::to_owned);
        let (title, by, text) = (parts.next(), parts.next(), parts.next());
        let object = Object {
            title,
            url: Some(format!("https://example.org/things/{n}")),
            image: self
                .pictures
                .map(|base| format!("{base}/thing-{thing}.svg")),
            by: by.clone(),
            at,
            // Comments refer to it; types without a phrase ignore it.
            data: about(),
            ..Object::bare(ObjectKey::stored(event.o.as_str()))
        };
        let details = Details {
            actor: Some(Actor {
                name: by,
                ..Actor::bare(UserId::stored("somebody"))
            }),
            text,
            ..Details::default()
        };
        EventData {
            object: Arc::new(object),
            details: Some(Arc::new(details)),
        }
    }
}

fn followed() -> Vec<Followed> {
    vec![Followed {
        key: FollowKey::stored("artist:7"),
        name: FOLLOWED.to_owned(),
        url: Some("https://example.org/artists/7".to_owned()),
    }]
}

fn about() -> Json {
    let about = [("title", ABOUT), ("url", "https://example.org/budget")];
    Value::from_iter([("about", Value::from_iter(about))]).into()
}
