//! The variables of the pages: the effect of a stop link, what else can be stopped, how to undo it,
//! and all choices of a user.
//!
//! A page lists the emails that will still arrive, so that users do not stop more than they want.
//! Undo is a form of the preferences page, with the same effect as saving it. A submitted form may
//! contain only the offered options.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use minijinja::value::Serde;
use minijinja::{Value, context};

use super::super::mail_view::iso;
use super::super::sentence;
use super::super::voice::Voice;
use crate::domain::mutes_and_quiet_hours::{Mute, Title};
use crate::domain::{Cadence, EventType, Policies, Route, Schedule, StopAction, Subject, User};

/// The prefix of the form field that chooses a type's route. The type follows.
pub const TYPE_FIELD: &str = "type.";
/// The form field with the subject to unmute. A form with it has no other fields.
pub const UNMUTE_FIELD: &str = "unmute";

/// The user of a page, and the configuration of their emails.
#[derive(Clone, Copy)]
pub struct PageUser<'a> {
    /// The user. The preferences page shows all muted subjects.
    pub user: &'a User,
    /// The schedule of users who chose none.
    pub default: &'a Schedule,
    /// The configured types, with their default routes. Mandatory ones are emailed even after
    /// unsubscribing.
    pub policies: &'a Policies,
}

/// A link's effect, and the user whom it affects.
#[derive(Clone, Copy)]
pub struct Stopping<'a> {
    /// The user.
    pub of: PageUser<'a>,
    /// The effect of the link.
    pub stop: &'a StopAction,
    /// Whether the stop is in effect. Otherwise the page asks for confirmation.
    pub ended: bool,
    /// The user's record before the stop, if it has just happened. It allows an undo.
    pub before: Option<&'a User>,
    /// The signed tokens for relative links.
    pub tokens: &'a EmailTokens,
    /// The name of the follow, if the link ends one.
    pub name: Option<&'a str>,
}

/// The choices of a user, for the preferences page.
#[derive(Clone, Copy)]
pub struct Choices<'a> {
    /// The user.
    pub of: PageUser<'a>,
    /// The signed token that stops all email, for relative links.
    pub token: &'a str,
    /// Whether to confirm that choices were just saved.
    pub saved: bool,
    /// The time of the next digest, if the user gets any.
    pub next: Option<DateTime<Utc>>,
}

/// The tokens of one email.
#[derive(Clone, PartialEq, Eq)]
pub struct EmailTokens {
    /// The token of this page, with the effect of its link.
    pub own: String,
    /// The token that stops the digest.
    pub digest: String,
    /// The token that stops all email.
    pub all: String,
}

impl<'a> PageUser<'a> {
    /// Combines a user with the default schedule and the configured types.
    pub fn new(user: &'a User, default: &'a Schedule, policies: &'a Policies) -> Self {
        Self { user, default, policies }
    }

    fn schedule(&self) -> Schedule {
        self.user.schedule(self.default)
    }

    fn gets_digest(&self) -> bool {
        self.user.unsubscribed.is_none() && self.schedule().cadence != Cadence::Never
    }

    fn heading(&self, voice: &Voice, kind: &EventType) -> String {
        voice.heading(self.policies.heading(kind), kind)
    }

    /// Returns the variables about the user of a page.
    fn view(&self, voice: &Voice) -> Value {
        let (user, policies, schedule) = (self.user, self.policies, self.schedule());
        let heading = |kind: &EventType| self.heading(voice, kind);
        let headings = |of: &dyn Fn(&EventType) -> bool| -> Vec<String> {
            let kinds = policies.kinds().filter(|kind| of(kind));
            kinds.map(heading).collect()
        };
        let wants_email = user.unsubscribed.is_none();
        let is_off = |kind: &EventType| {
            let chosen = user.types.get(kind).map(|chosen| chosen.route);
            chosen == Some(Route::Never) && !policies.is_mandatory(kind)
        };
        context! {
            // The masked address.
            address => user.email.as_ref().map(ToString::to_string),
            // The day on which the user unsubscribed, and the time in ISO 8601, UTC.
            unsubscribed => user.unsubscribed.map(|at| voice.day_in_full(at, schedule.tz)),
            unsubscribed_at => user.unsubscribed.map(iso),
            // Whether no email is sent for another reason: suppressed, unconfirmed or no address.
            stopped => user.suppressed.is_some() || !user.confirmed || user.email.is_none(),
            // The headings of the mandatory types, which are emailed in any case.
            kept => policies.emailed_mandatory_kinds().map(heading).collect::<Vec<_>>(),
            // The emails that will arrive, and the types that are turned off.
            coming => context! {
                // The schedule of digests, if the user gets any.
                digest => self.gets_digest().then(|| schedule_of(&schedule, None, voice)),
                // The headings of the types that are emailed outside the digest.
                alone => headings(&|kind| wants_email && user.gets_outside_digest(kind, policies)),
                off => headings(&is_off),
            },
        }
    }
}

/// Returns the variables about a schedule. `next` is the time of the next digest.
fn schedule_of(schedule: &Schedule, next: Option<DateTime<Utc>>, voice: &Voice) -> Value {
    context! {
        cadence => schedule.cadence.as_str(),
        weekday => schedule.weekday.to_string().to_lowercase(),
        hour => format!("{:02}", schedule.hour),
        tz => schedule.tz.name(),
        // The date and time in that zone, and in ISO 8601, UTC.
        next => next.map(|at| voice.next(at, schedule.tz)),
        next_at => next.map(iso),
    }
}

/// Returns the variables of the pages behind a stop link.
pub(super) fn stop(stopping: &Stopping<'_>, voice: &Voice) -> Value {
    let (of, stop, tokens) = (stopping.of, stopping.stop, stopping.tokens);
    let stops_digest = of.gets_digest() && *stop != StopAction::Digest;
    let stops_all = of.user.unsubscribed.is_none() && *stop != StopAction::All;
    let undo = undo(stopping).into_iter();
    let undo = undo.map(|(name, value)| context! { name, value });
    context! {
        // The targets of the forms and links.
        links => context! {
            // Applies the effect of this page's link.
            unsubscribe => &tokens.own,
            preferences => format!("{}/preferences", tokens.own),
            // Stops the digest, if the user gets one and the link has another effect.
            digest => stops_digest.then_some(&tokens.digest),
            // Stops all email, if the user is subscribed and the link has another effect.
            all => stops_all.then_some(&tokens.all),
        },
        ends => sentence::ends(stop, stopping.name, |kind| of.heading(voice, kind)),
        // The fields of the undo form; empty if the previous choice is unknown.
        undo => undo.collect::<Vec<_>>(),
        ..of.view(voice)
    }
}

/// Returns the names and values of the fields that undo a stop. Without the previous record, only a
/// mute can be undone.
fn undo(stopping: &Stopping<'_>) -> Vec<(String, String)> {
    let PageUser { user, policies, .. } = stopping.of;
    if let StopAction::Subject(subject, _) = stopping.stop {
        return vec![(UNMUTE_FIELD.to_owned(), subject.to_string())];
    }
    let Some(before) = stopping.before else {
        return Vec::new();
    };
    let mut fields = Vec::new();
    let had = before.schedule(stopping.of.default).cadence;
    if had != stopping.of.schedule().cadence {
        fields.push(("cadence".to_owned(), had.as_str().to_owned()));
    }
    let kinds = user.types.keys();
    for kind in kinds.filter(|kind| !policies.is_mandatory(kind)) {
        let had = before.chosen_route(kind, policies);
        if had != user.chosen_route(kind, policies) {
            fields.push((format!("{TYPE_FIELD}{kind}"), had.as_str().to_owned()));
        }
    }
    fields
}

/// Returns the variables of the preferences page.
pub(super) fn preferences(choices: &Choices<'_>, voice: &Voice) -> Value {
    let (of, schedule) = (choices.of, choices.of.schedule());
    let next = choices.next.filter(|_| of.user.unsubscribed.is_none());
    context! {
        links => context! {
            // Unsubscribes from everything.
            unsubscribe => format!("../{}", choices.token),
            preferences => "",
        },
        saved => choices.saved,
        // The current schedule.
        schedule => schedule_of(&schedule, next, voice),
        zones => zones(schedule.tz),
        // The quiet hours, if the user has any.
        quiet => of.user.quiet.map(|quiet| Value::from(Serde(quiet))),
        groups => groups(of, voice),
        mutes => mutes(of.user, schedule.tz, voice),
        ..of.view(voice)
    }
}

/// Returns the time zones by region, and the chosen zone even if it belongs to no region.
pub(super) fn zones(chosen: chrono_tz::Tz) -> Vec<Value> {
    const REGIONS: [&str; 9] = [
        "Africa",
        "America",
        "Antarctica",
        "Asia",
        "Atlantic",
        "Australia",
        "Europe",
        "Indian",
        "Pacific",
    ];
    let mut regions: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for zone in chrono_tz::TZ_VARIANTS {
        let (region, place) = match zone.name().split_once('/') {
            Some((region, place)) if REGIONS.contains(&region) => (region, place),
            _ if zone == chrono_tz::UTC || zone == chosen => ("Other", zone.name()),
            _ => continue,
        };
        let label = place.replace('_', " ").replace('/', ", ");
        let option = context! { value => zone.name(), label };
        regions.entry(region).or_default().push(option);
    }
    let regions = regions.into_iter();
    regions.map(|(label, options)| context! { label, options }).collect()
}

/// Returns the types by category.
fn groups(of: PageUser<'_>, voice: &Voice) -> Vec<Value> {
    let kinds: Vec<&EventType> = of.policies.kinds().collect();
    let groups = of.policies.by_category(&kinds).into_iter();
    let group = groups.map(|(category, kinds)| {
        context! {
            // None for types without a category.
            category => category.map(|category| {
                // The first translation found among the types applies to the whole category.
                let said = kinds.iter().find_map(|kind| voice.category(kind));
                said.unwrap_or_else(|| category.as_str().to_owned())
            }),
            types => kinds.iter().map(|kind| type_of(of, kind, voice)).collect::<Vec<_>>(),
        }
    });
    group.collect()
}

/// Returns the muted subjects, by name.
fn mutes(user: &User, tz: chrono_tz::Tz, voice: &Voice) -> Vec<Value> {
    fn name<'a>((subject, mute): &(&'a Subject, &'a Mute)) -> &'a str {
        mute.title.as_ref().map_or(subject.as_str(), Title::as_str)
    }
    let mut mutes: Vec<(&Subject, &Mute)> = user.mutes.iter().collect();
    mutes.sort_by(|a, b| name(a).cmp(name(b)));
    let mute = |one: &(&Subject, &Mute)| {
        let (subject, mute) = one;
        context! {
            // The value of the form field that unmutes it.
            subject => subject.to_string(),
            // The title, or the subject key if it has no title.
            name => name(one),
            // The day on which the mute expires, and the time in ISO 8601, UTC.
            until => mute.until.map(|until| voice.day_in_full(until, tz)),
            until_at => mute.until.map(iso),
        }
    };
    mutes.iter().map(mute).collect()
}

/// Offers the default route, the current route, the digest and no email, unless the type is
/// mandatory. Then it is locked.
fn type_of(of: PageUser<'_>, kind: &EventType, voice: &Voice) -> Value {
    let policy = of.policies.policy(kind);
    let default = policy.route;
    let route = of.user.chosen_route(kind, of.policies);
    let possible = [default, route, Route::Digest, Route::Never];
    let offered = [Route::Immediate, Route::Batch, Route::Digest, Route::Never];
    let is_offered = |one: &Route| {
        policy.mandatory.is_none()
            && possible.contains(one)
            && of.policies.effective_route(kind, *one) == *one
    };
    let options = offered.into_iter().filter(is_offered).map(Route::as_str);
    context! {
        // The name of the form field.
        field => format!("{TYPE_FIELD}{kind}"),
        heading => of.heading(voice, kind),
        // The routes to choose from, and the current one; empty if the type is locked.
        options => options.collect::<Vec<_>>(),
        route => route.as_str(),
        locked => policy.mandatory.as_ref().map(|mandate| context! {
            route => default.as_str(),
            reason => voice.reason(kind, mandate),
        }),
    }
}
