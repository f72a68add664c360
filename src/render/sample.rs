//! Sample emails with invented content, for previews and for templates, which must render them
//! before they are used.
//!
//! They are built like real emails, by [`build_digest_content`] and [`build_batch_content`]. They
//! contain one event and many, objects with every field and objects with none. Start with
//! [`Samples::digests`].

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;
use serde_json::json;

use super::error::Error;
use super::template_input::{EmailInput, EmailLinks};
use crate::domain::batch::{BatchItem, BatchKey};
use crate::domain::day_stack::StackEvent;
use crate::domain::details::Actor;
use crate::domain::digest_content::build_digest_content;
use crate::domain::email_sections::{DisplayData, FollowReason, ItemLimits, build_batch_content};
use crate::domain::mutes_and_quiet_hours::Title;
use crate::domain::{
    Cadence, ChosenKey, Day, DeliverySource, Details, EmailContent, Event, EventType, FollowKey,
    Id, Mutes, Object, ObjectId, ObjectKey, Policies, Policy, Position, Route, StackId, StopAction,
    Subject, User, UserId,
};

/// An email before rendering.
#[derive(Debug, Clone)]
pub struct EmailDraft {
    /// A short description.
    pub name: String,
    /// The recipient.
    pub user: User,
    /// The content.
    pub content: EmailContent,
    /// The digest or batch of the email.
    pub occasion: DeliverySource,
}

/// Titles, authors and texts, separated by bars.
const OBJECTS: [&str; 5] = [
    "Winter light on the canal|Ines Tavoro|The ice held until noon. Look at the left edge.",
    "Werkhalle Nord, open studios|Werkhalle Nord|Forty studios, three days, free of charge.",
    "Notes on a river, in twelve parts|Jonas Okafor|Part four is too long, the rest is right.",
    "A chair for two, and other furniture that cannot be agreed upon|Studio Brandt & Sons|Line 3 is too high.",
    "Untitled (blue)|Mei Tanaka|Can we have it by Friday?",
];
/// The number of the first object that has only an id. It follows the [`OBJECTS`].
const FIRST_BARE: usize = OBJECTS.len();
/// The name of the artist that the reader follows.
pub(super) const FOLLOWED: &str = "Ines Tavoro";
/// The time from now to the invented dates of objects.
const DATE_DISTANCE: TimeDelta = TimeDelta::days(9);
/// The most types that are shown.
const MAX_TYPES: usize = 4;

/// Returns the recipient of the samples.
pub(crate) fn sample_user() -> User {
    let mut mutes = Mutes::default();
    mutes.mute(Subject::stored("artist:7"), None, Title::cut(FOLLOWED), DateTime::UNIX_EPOCH);
    User {
        name: Some("Mara Keller".into()),
        email: "mara@example.org".parse().ok(),
        confirmed: true,
        mutes,
        ..User::new(UserId::stored("mara"))
    }
}

/// What samples are made of.
pub(crate) struct Samples<'a> {
    /// The base URL of pictures; without it there are none.
    pub pictures: Option<&'a str>,
    /// The number of the first object.
    pub first: usize,
    pub now: DateTime<Utc>,
}

/// Returns the first configured types whose route matches, or else a sample type.
fn kinds(
    policies: &Policies,
    is_included: impl Fn(Route) -> bool,
    sample: (&str, Policy),
) -> (Vec<EventType>, Policies) {
    let matching = policies.kinds().filter(|kind| is_included(policies.policy(kind).route));
    let kinds: Vec<EventType> = matching.take(MAX_TYPES).cloned().collect();
    if !kinds.is_empty() {
        return (kinds, policies.clone());
    }
    let (kind, policy) = (EventType::stored(sample.0), sample.1);
    (vec![kind.clone()], Policies::new([(kind, policy)]))
}

impl Samples<'_> {
    /// Returns digests of the configured types: of one event, several and too many.
    pub(crate) fn digests(&self, policies: &Policies, caps: ItemLimits) -> Vec<EmailDraft> {
        let sample = Policy { heading: Some("New works".into()), ..Policy::default() };
        let is_digest = |route| route == Route::Digest;
        let (kinds, policies) = kinds(policies, is_digest, ("ArtworkPublished", sample));
        // The number of events of each type.
        let drafts = [
            ("one event", vec![1]),
            ("several", vec![3, 2, 2, 2]),
            ("more than fit", vec![3 * caps.section / 2]),
        ];
        let draft = |(name, counts): (&str, Vec<usize>)| {
            let numbered_kinds = kinds.iter().zip(counts).enumerate();
            let events: Vec<Event> = numbered_kinds
                .flat_map(|(n, (kind, count))| {
                    (0..count).map(move |object| self.event(kind.clone(), n * 4 + object))
                })
                .collect();
            let pending: Vec<StackEvent<'_>> = events
                .iter()
                .enumerate()
                .map(|(n, event)| StackEvent {
                    position: Position {
                        stack: StackId::for_day(Day::of(self.now)),
                        index: n as u32,
                    },
                    event,
                    at: self.at(n),
                })
                .collect();
            Some(EmailDraft {
                name: name.to_owned(),
                user: sample_user(),
                content: EmailContent {
                    follow_reasons: vec![FollowReason {
                        key: FollowKey::stored("artist:7"),
                        name: FOLLOWED.to_owned(),
                        url: Some("https://example.org/artists/7".to_owned()),
                    }],
                    ..build_digest_content(&pending, &policies, caps, |event| {
                        Some(self.data(event, Some(self.now + DATE_DISTANCE)))
                    })?
                },
                occasion: DeliverySource::Digest(
                    Cadence::Weekly,
                    self.now.format("%G-W%V").to_string(),
                ),
            })
        };
        drafts.into_iter().filter_map(draft).collect()
    }

    /// Returns batches of each type that is emailed outside the digest: of one event, several and
    /// many; and one of several types.
    pub(crate) fn batches(&self, policies: &Policies) -> Vec<EmailDraft> {
        let sample = Policy {
            heading: Some("New comments".into()),
            phrase: "commented on".parse().ok(),
            route: Route::Batch,
            ..Policy::default()
        };
        let (kinds, policies) = kinds(policies, Route::is_outside_digest, ("Comment", sample));
        let mut batches = Vec::new();
        for kind in &kinds {
            for (name, kept, omitted) in [("one event", 1, 0), ("several", 4, 0), ("many", 6, 17)] {
                let key = BatchKey::Type(kind.clone());
                batches.push((format!("{kind}, {name}"), key, vec![kind; kept], omitted));
            }
        }
        if let (Some(key), true) = (ChosenKey::new("sample").ok(), kinds.len() > 1) {
            let key = BatchKey::Chosen(key);
            batches.push(("several types".to_owned(), key, kinds.iter().collect(), 0));
        }
        let draft = |(name, key, kinds, omitted): (String, BatchKey, Vec<&EventType>, u64)| {
            let item = |(n, kind): (usize, &&EventType)| {
                let Event { kind, object, .. } = self.event((*kind).clone(), n);
                let fanout_id = Id::at(self.at(kinds.len() - n), [n as u8; 8]);
                BatchItem { fanout_id, kind, object }
            };
            let items: Vec<BatchItem> = kinds.iter().enumerate().map(item).collect();
            let data = |event: &Event| Some(self.data(event, None));
            Some(EmailDraft {
                name,
                user: sample_user(),
                content: build_batch_content(&key, &items, omitted, &policies, data)?,
                occasion: DeliverySource::Batch(Id::at(self.now, [0; 8]), self.now),
            })
        };
        batches.into_iter().filter_map(draft).collect()
    }

    fn at(&self, n: usize) -> DateTime<Utc> {
        self.now - TimeDelta::minutes(7 + 190 * n as i64)
    }

    fn event(&self, kind: EventType, n: usize) -> Event {
        let object = ObjectId::stored((self.first + n).to_string());
        Event { kind, object, fanout_id: None }
    }

    /// Returns the invented object of an event, with the date `at`, and the event's details.
    fn data(&self, event: &Event, at: Option<DateTime<Utc>>) -> DisplayData {
        let n: usize = event.object.as_str().parse().unwrap_or_default();
        let bare = Object::without_data(ObjectKey::stored(event.object.as_str()));
        let index = n % (FIRST_BARE + 1);
        let Some(words) = OBJECTS.get(index) else {
            return DisplayData { object: Arc::new(bare), details: None };
        };
        let mut parts = words.splitn(3, '|').map(str::to_owned);
        let (title, by, text) = (parts.next(), parts.next(), parts.next());
        let object = Object {
            title,
            url: Some(format!("https://example.org/things/{n}")),
            image: self.pictures.map(|base| format!("{base}/thing-{index}.svg")),
            by: by.clone(),
            at,
            // Comments refer to it; types without a phrase ignore it.
            data: json!({"about": {"title": "Budget", "url": "https://example.org/budget"}}).into(),
            ..bare
        };
        let details = Details {
            actor: Some(Actor { name: by, ..Actor::bare(UserId::stored("sample")) }),
            text,
            ..Details::default()
        };
        DisplayData { object: Arc::new(object), details: Some(Arc::new(details)) }
    }
}

/// Passes each sample to `try_out`: without links for a user without a name, and with all links for
/// a user with a name. Stops at the first error.
pub(super) fn try_all(
    mut try_out: impl FnMut(&EmailInput<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let anonymous = User::new(UserId::stored("sample"));
    let links = || EmailLinks {
        preferences: Some("https://example.org/preferences".into()),
        unsubscribe: Some("https://example.org/unsubscribe".into()),
        mute: Some("https://example.org/mute".into()),
    };
    // So small that the last types show no event.
    let caps = ItemLimits { section: 3, total: 4 };
    // 22 April 2014, 08:00 UTC.
    let now = DateTime::from_timestamp(1_398_153_600, 0).unwrap_or_default();
    for first in [0, FIRST_BARE] {
        let samples = Samples { pictures: Some("https://example.org"), first, now };
        let digests = samples.digests(&policies(), caps);
        for draft in [digests, samples.batches(&policies())].concat() {
            let email = EmailInput {
                user: &draft.user,
                content: &draft.content,
                occasion: &draft.occasion,
                at: now,
                tz: Tz::UTC,
                links: links(),
                stop: None,
            };
            try_out(&EmailInput {
                user: &anonymous,
                links: EmailLinks::default(),
                ..email.clone()
            })?;
            let types =
                StopAction::for_types(draft.content.sections.iter().map(|section| &section.kind));
            let stops = match draft.occasion {
                DeliverySource::Digest(..) => vec![StopAction::Digest],
                DeliverySource::Batch(..) => vec![types, StopAction::OutsideDigest],
            };
            for stop in &stops {
                try_out(&EmailInput { stop: Some(stop), ..email.clone() })?;
            }
        }
    }
    Ok(())
}

/// Returns types of both routes, with and without a heading or a phrase.
fn policies() -> Policies {
    let routed = |route| Policy { route, ..Policy::default() };
    let works = Policy { heading: Some("New works".into()), ..Policy::default() };
    let comments = Policy {
        heading: Some("New comments".into()),
        phrase: "commented on".parse().ok(),
        ..routed(Route::Batch)
    };
    let types = [
        ("NewWork", works),
        ("NearbyShow", routed(Route::Digest)),
        ("Other", routed(Route::Digest)),
        ("Comment", comments),
        ("One", routed(Route::Batch)),
    ];
    Policies::new(types.map(|(kind, policy)| (EventType::stored(kind), policy)))
}
