//! What the pages behind a mail's link see: what it ends, what else can be ended, how it is undone,
//! and what still comes.
//!
//! The rule: what still comes is said plainly, so that nobody ends more than they want to for not
//! knowing. What is undone is a form of the preferences page, and means what saving that page does.

use chrono::{DateTime, Utc, Weekday};
use serde::Serialize;

use super::super::ends::EndsView;
use super::super::view::iso;
use super::super::voice::Voice;
use crate::domain::{Cadence, EventType, Policies, Route, Schedule, Stop, User};

/// The name of the form field that chooses a type's route is this and the type.
pub const TYPE_FIELD: &str = "type.";
/// The form field that names what is to be unmuted; it stands alone.
pub const UNMUTE_FIELD: &str = "unmute";

/// What a link ends, and whose mails it is about.
#[derive(Debug, Clone, Copy)]
pub struct Stopping<'a> {
    /// Whose mails it is about.
    pub user: &'a User,
    /// What it ends.
    pub stop: &'a Stop,
    /// The signed tokens of which relative links are made.
    pub tokens: &'a Tokens,
    /// What holds where they chose nothing.
    pub default: &'a Schedule,
    /// What types there are: some may be mailed all the same.
    pub policies: &'a Policies,
    /// What it is called, where it ends a follow.
    pub name: Option<&'a str>,
    /// Whether what was ended has just been undone.
    pub again: bool,
}

/// What a page says of other records with the address of its user. It names none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Others {
    /// Nothing: none are left to stop, or they cannot be read.
    Silent,
    /// There are some, and a button ends the same for them.
    Offered,
    /// The same was just ended for them, and none are left.
    Ended,
}

/// The tokens of one mail.
#[derive(Clone, PartialEq, Eq)]
pub struct Tokens {
    /// The one of the page: it ends what its mail was about.
    pub own: String,
    /// The one that ends the digest.
    pub digest: String,
    /// The one that ends everything.
    pub all: String,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Whose mails a page is about.
#[derive(Serialize)]
pub(super) struct PersonView {
    /// Masked.
    address: Option<String>,
    /// The day on which they unsubscribed.
    unsubscribed: Option<String>,
    /// The moment, by ISO 8601 in UTC.
    unsubscribed_at: Option<String>,
    /// Whether no mail leaves for a reason that is not theirs to change here.
    stopped: bool,
    /// The headings of what is mailed to them all the same.
    kept: Vec<String>,
    coming: ComingView,
}

/// What is mailed to them, and what they turned off.
#[derive(Serialize)]
struct ComingView {
    /// When digests come, if they do.
    digest: Option<ScheduleView>,
    /// The headings of what comes as it happens.
    alone: Vec<String>,
    /// The headings of what they turned off.
    off: Vec<String>,
}

#[derive(Serialize)]
pub(super) struct ScheduleView {
    cadence: &'static str,
    weekday: String,
    hour: String,
    tz: &'static str,
    /// The day and the hour of the next digest, in that zone.
    pub next: Option<String>,
    /// The moment, by ISO 8601 in UTC.
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

/// What the pages behind a link see.
#[derive(Serialize)]
pub(super) struct StopView {
    #[serde(flatten)]
    person: PersonView,
    links: LinksView,
    ends: EndsView,
    /// What a form to the preferences page brings back; nothing where that is not known.
    undo: Vec<FieldView>,
    /// Whether that is what they had.
    undo_known: bool,
    /// Whether what was ended has just been undone on this page.
    again: bool,
    /// What is said of other records with the address.
    others: Others,
}

/// Where the forms and links of a page lead.
#[derive(Serialize)]
struct LinksView {
    /// What the page is about is ended there.
    unsubscribe: String,
    preferences: String,
    /// The digest is ended there, if that is something else and comes.
    digest: Option<String>,
    /// Everything is ended there, if anything comes.
    all: Option<String>,
}

/// A field of a form.
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

/// What brings back what was ended: what they had before, or, where nobody knows any more, what
/// mailed them what the link is of; and whether it is what they had.
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
        // Their choices have nothing of it: the page's own link brings it back.
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
