//! The data of the pages behind an email's stop links: what ends, what else can, and how to undo
//! it.
//!
//! A page lists the emails that will still arrive, so that users do not stop more than they want.
//! Undo is a form of the preferences page, with the same effect as saving it. Start with
//! [`StopView`].

use chrono::{DateTime, Utc, Weekday};
use serde::Serialize;

use super::super::ends::EndsView;
use super::super::view::iso;
use super::super::voice::Voice;
use crate::domain::{Cadence, EventType, Policies, Route, Schedule, Stop, User};

/// The prefix of the form field that chooses a type's route. The type follows.
pub const TYPE_FIELD: &str = "type.";
/// The form field with the subject to unmute. A form with it has no other fields.
pub const UNMUTE_FIELD: &str = "unmute";

/// A link's effect, and the user whom it affects.
#[derive(Debug, Clone, Copy)]
pub struct Stopping<'a> {
    /// The user.
    pub user: &'a User,
    /// The effect of the link.
    pub stop: &'a Stop,
    /// The signed tokens for relative links.
    pub tokens: &'a Tokens,
    /// The schedule of users who chose none.
    pub default: &'a Schedule,
    /// The configured types. Mandatory ones are emailed even after unsubscribing.
    pub policies: &'a Policies,
    /// The name of the follow, if the link ends one.
    pub name: Option<&'a str>,
    /// Whether the stop was just undone.
    pub again: bool,
}

/// The page's message about other records with the user's address. It identifies none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Others {
    /// No message: there are none to stop, or they cannot be read.
    Silent,
    /// There are some, and a button stops the same for them.
    Offered,
    /// The same was just stopped for them, and none are left.
    Ended,
}

/// The tokens of one email.
#[derive(Clone, PartialEq, Eq)]
pub struct Tokens {
    /// The token of this page, with the effect of its link.
    pub own: String,
    /// The token that stops the digest.
    pub digest: String,
    /// The token that stops all email.
    pub all: String,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(hidden)")
    }
}

/// The user of a page.
#[derive(Serialize)]
pub(super) struct PersonView {
    /// The masked address.
    address: Option<String>,
    /// The day on which the user unsubscribed.
    unsubscribed: Option<String>,
    /// The time at which the user unsubscribed, in ISO 8601, UTC.
    unsubscribed_at: Option<String>,
    /// Whether no email is sent for another reason: suppressed, unconfirmed or no address.
    stopped: bool,
    /// The headings of the mandatory types, which are emailed in any case.
    kept: Vec<String>,
    coming: ComingView,
}

/// The emails that will arrive, and the types that are turned off.
#[derive(Serialize)]
struct ComingView {
    /// The schedule of digests, if the user gets any.
    digest: Option<ScheduleView>,
    /// The headings of the types that are emailed outside the digest.
    alone: Vec<String>,
    /// The headings of the types that the user turned off.
    off: Vec<String>,
}

#[derive(Serialize)]
pub(super) struct ScheduleView {
    cadence: &'static str,
    weekday: String,
    hour: String,
    tz: &'static str,
    /// The date and time of the next digest, in that zone.
    pub next: Option<String>,
    /// The same in ISO 8601, UTC.
    pub next_at: Option<String>,
}

impl ScheduleView {
    pub(super) fn of(schedule: &Schedule) -> Self {
        Self {
            cadence: schedule.cadence.as_str(),
            weekday: name(schedule.weekday),
            hour: format!("{:02}", schedule.hour),
            tz: schedule.tz.name(),
            next: None,
            next_at: None,
        }
    }
}

pub(super) fn name(weekday: Weekday) -> String {
    weekday.to_string().to_lowercase()
}

impl PersonView {
    pub(super) fn of(
        user: &User,
        default: &Schedule,
        policies: &Policies,
        kinds: &[&EventType],
        voice: &Voice,
    ) -> Self {
        let schedule = user.schedule(default);
        let day = |at: DateTime<Utc>| voice.day_in_full(at, schedule.tz);
        let heading = |kind: &EventType| voice.heading(policies.heading(kind), kind);
        let headings = |of: &dyn Fn(&EventType) -> bool| {
            let kinds = kinds.iter().filter(|kind| of(kind));
            kinds.map(|kind| heading(kind)).collect()
        };
        let wants_mail = user.unsubscribed.is_none();
        let digest = wants_mail && schedule.cadence != Cadence::Never;
        let off = |kind: &EventType| {
            let chosen = user.types.get(kind).map(|chosen| chosen.route);
            chosen == Some(Route::Never) && !policies.is_mandatory(kind)
        };
        Self {
            address: user.email.as_ref().map(ToString::to_string),
            unsubscribed: user.unsubscribed.map(day),
            unsubscribed_at: user.unsubscribed.map(iso),
            stopped: user.suppressed.is_some() || !user.confirmed || user.email.is_none(),
            kept: policies.always_mailed().map(heading).collect(),
            coming: ComingView {
                digest: digest.then(|| ScheduleView::of(&schedule)),
                alone: headings(&|kind| wants_mail && user.is_mailed_alone(kind, policies)),
                off: headings(&off),
            },
        }
    }
}

/// The variables of the pages behind a stop link.
#[derive(Serialize)]
pub(super) struct StopView {
    #[serde(flatten)]
    person: PersonView,
    links: LinksView,
    ends: EndsView,
    /// The fields of the undo form; empty if the previous choice is unknown.
    undo: Vec<FieldView>,
    /// Whether the undo form restores the previous choice.
    undo_known: bool,
    /// Whether the stop was just undone on this page.
    again: bool,
    /// The message about other records with the address.
    others: Others,
}

/// The targets of the forms and links of a page.
#[derive(Serialize)]
struct LinksView {
    /// Applies the effect of this page's link.
    unsubscribe: String,
    preferences: String,
    /// Stops the digest, if the user gets one and the link has another effect.
    digest: Option<String>,
    /// Stops all email, if the user is subscribed and the link has another effect.
    all: Option<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct FieldView {
    name: String,
    value: String,
}

impl StopView {
    pub(super) fn of(
        stopping: Stopping<'_>,
        before: Option<&User>,
        others: Others,
        voice: &Voice,
    ) -> Self {
        let Stopping {
            user,
            stop,
            tokens,
            default,
            policies,
            name,
            again,
        } = stopping;
        let kinds: Vec<&EventType> = policies.kinds().collect();
        let person = PersonView::of(user, default, policies, &kinds, voice);
        let digest = person.coming.digest.as_ref();
        let digest = digest.filter(|_| *stop != Stop::Digest);
        let all = user.unsubscribed.is_none() && *stop != Stop::All;
        let (undo, undo_known) = undo(stopping, before);
        Self {
            links: LinksView {
                unsubscribe: tokens.own.clone(),
                preferences: format!("{}/preferences", tokens.own),
                digest: digest.map(|_| tokens.digest.clone()),
                all: all.then(|| tokens.all.clone()),
            },
            ends: EndsView::configured(stop, policies, voice).called(name),
            again,
            others,
            undo,
            undo_known,
            person,
        }
    }
}

/// Returns the fields that undo a stop, and whether they restore the previous choice. If the
/// previous record is unknown, the fields turn emails like the original one back on.
fn undo(stopping: Stopping<'_>, before: Option<&User>) -> (Vec<FieldView>, bool) {
    let Stopping {
        user,
        stop,
        default,
        policies,
        ..
    } = stopping;
    let cadence = |cadence: Cadence| FieldView {
        name: "cadence".to_owned(),
        value: cadence.as_str().to_owned(),
    };
    let route = |kind: &EventType, route: Route| FieldView {
        name: format!("{TYPE_FIELD}{kind}"),
        value: route.as_str().to_owned(),
    };
    if let Stop::Subject(subject, _) = stop {
        let unmute = FieldView {
            name: UNMUTE_FIELD.to_owned(),
            value: subject.to_string(),
        };
        let was_muted = before.is_none_or(|before| before.mutes.for_good(subject));
        return (vec![unmute], !was_muted);
    }
    let mut fields = Vec::new();
    if let Stop::Follow(_) = stop {
        // Choices do not include follows: the page's own link restores this one.
        return (fields, true);
    }
    if let Some(before) = before {
        let had = before.schedule(default).cadence;
        if had != user.schedule(default).cadence {
            fields.push(cadence(had));
        }
        let kinds = user.types.keys();
        for kind in kinds.filter(|kind| !policies.is_mandatory(kind)) {
            let had = before.chosen_route(kind, policies);
            if had != user.chosen_route(kind, policies) {
                fields.push(route(kind, had));
            }
        }
    }
    if !fields.is_empty() || user.unsubscribed.is_some() {
        return (fields, true);
    }
    let usual = match stop {
        Stop::Digest if default.cadence != Cadence::Never => vec![cadence(default.cadence)],
        Stop::Types(kinds) => kinds
            .iter()
            .map(|kind| match policies.of(kind).route {
                Route::Immediate => route(kind, Route::Immediate),
                Route::Batch | Route::Digest | Route::Never => route(kind, Route::Batch),
            })
            .collect(),
        Stop::Digest | Stop::Alone | Stop::All | Stop::Follow(_) | Stop::Subject(..) => Vec::new(),
    };
    (usual, false)
}
