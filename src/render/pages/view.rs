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

use super::super::locale_formatter::LocaleFormatter;
use super::super::mail_view::iso;
use super::super::sentence;
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
    pub default_schedule: &'a Schedule,
    /// The configured types, with their default routes. Mandatory ones are emailed even after
    /// unsubscribing.
    pub policies: &'a Policies,
}

/// A link's effect, and the user whom it affects.
#[derive(Clone, Copy)]
pub struct StopPage<'a> {
    /// The user.
    pub page_user: PageUser<'a>,
    /// The effect of the link.
    pub stop: &'a StopAction,
    /// Whether the stop is in effect. Otherwise the page asks for confirmation.
    pub is_stopped: bool,
    /// The user's record before the stop, if it has just happened. It allows an undo.
    pub previous_user: Option<&'a User>,
    /// The signed tokens for relative links.
    pub tokens: &'a EmailTokens,
    /// The name of the follow, if the link ends one.
    pub follow_name: Option<&'a str>,
}

/// The choices of a user, for the preferences page.
#[derive(Clone, Copy)]
pub struct PreferencesPage<'a> {
    /// The user.
    pub page_user: PageUser<'a>,
    /// The signed token that stops all email, for relative links.
    pub token: &'a str,
    /// Whether to confirm that choices were just saved.
    pub is_saved: bool,
    /// The time of the next digest, if the user gets any.
    pub next_digest: Option<DateTime<Utc>>,
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
        Self { user, default_schedule: default, policies }
    }

    fn schedule(&self) -> Schedule {
        self.user.schedule(self.default_schedule)
    }

    fn gets_digest(&self) -> bool {
        self.user.unsubscribed.is_none() && self.schedule().cadence != Cadence::Never
    }

    fn heading(&self, formatter: &LocaleFormatter, kind: &EventType) -> String {
        formatter.heading(self.policies.heading(kind), kind)
    }

    /// Returns the variables about the user of a page.
    fn view(&self, formatter: &LocaleFormatter) -> Value {
        let (user, policies, schedule) = (self.user, self.policies, self.schedule());
        let heading = |kind: &EventType| self.heading(formatter, kind);
        let headings = |is_listed: &dyn Fn(&EventType) -> bool| -> Vec<String> {
            policies.kinds().filter(|kind| is_listed(kind)).map(heading).collect()
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
            unsubscribed => user.unsubscribed.map(|at| formatter.day_in_full(at, schedule.tz)),
            unsubscribed_at => user.unsubscribed.map(iso),
            // Whether no email is sent for another reason: suppressed, unconfirmed or no address.
            stopped => user.suppressed.is_some() || !user.confirmed || user.email.is_none(),
            // The headings of the mandatory types, which are emailed in any case.
            kept => policies.emailed_mandatory_kinds().map(heading).collect::<Vec<_>>(),
            // The emails that will arrive, and the types that are turned off.
            coming => context! {
                // The schedule of digests, if the user gets any.
                digest => self.gets_digest().then(|| schedule_of(&schedule, None, formatter)),
                // The headings of the types that are emailed outside the digest.
                alone => headings(&|kind| wants_email && user.gets_outside_digest(kind, policies)),
                off => headings(&is_off),
            },
        }
    }
}

/// Returns the variables about a schedule. `next` is the time of the next digest.
fn schedule_of(
    schedule: &Schedule,
    next: Option<DateTime<Utc>>,
    formatter: &LocaleFormatter,
) -> Value {
    context! {
        cadence => schedule.cadence.as_str(),
        weekday => schedule.weekday.to_string().to_lowercase(),
        hour => format!("{:02}", schedule.hour),
        tz => schedule.tz.name(),
        // The date and time in that zone, and in ISO 8601, UTC.
        next => next.map(|at| formatter.next_digest_time(at, schedule.tz)),
        next_at => next.map(iso),
    }
}

/// Returns the variables of the pages of a stop link.
pub(super) fn stop(stopping: &StopPage<'_>, formatter: &LocaleFormatter) -> Value {
    let (page_user, stop, tokens) = (stopping.page_user, stopping.stop, stopping.tokens);
    let offers_digest = page_user.gets_digest() && *stop != StopAction::Digest;
    let offers_all = page_user.user.unsubscribed.is_none() && *stop != StopAction::All;
    let heading = |kind: &EventType| page_user.heading(formatter, kind);
    let undo_fields = undo(stopping).into_iter().map(|(name, value)| context! { name, value });
    context! {
        // The targets of the forms and links.
        links => context! {
            // Applies the effect of this page's link.
            unsubscribe => &tokens.own,
            preferences => format!("{}/preferences", tokens.own),
            // Stops the digest, if the user gets one and the link has another effect.
            digest => offers_digest.then_some(&tokens.digest),
            // Stops all email, if the user is subscribed and the link has another effect.
            all => offers_all.then_some(&tokens.all),
        },
        ends => sentence::stop_effect(stop, stopping.follow_name, heading),
        // The fields of the undo form; empty if the previous choice is unknown.
        undo => undo_fields.collect::<Vec<_>>(),
        ..page_user.view(formatter)
    }
}

/// Returns the names and values of the fields that undo a stop. Without the previous record, only a
/// mute can be undone.
fn undo(stopping: &StopPage<'_>) -> Vec<(String, String)> {
    let PageUser { user, policies, .. } = stopping.page_user;
    if let StopAction::Subject(subject, _) = stopping.stop {
        return vec![(UNMUTE_FIELD.to_owned(), subject.to_string())];
    }
    let Some(before) = stopping.previous_user else {
        return Vec::new();
    };
    let mut fields = Vec::new();
    let cadence = before.schedule(stopping.page_user.default_schedule).cadence;
    if cadence != stopping.page_user.schedule().cadence {
        fields.push(("cadence".to_owned(), cadence.as_str().to_owned()));
    }
    for kind in user.types.keys().filter(|kind| !policies.is_mandatory(kind)) {
        let route = before.chosen_route(kind, policies);
        if route != user.chosen_route(kind, policies) {
            fields.push((format!("{TYPE_FIELD}{kind}"), route.as_str().to_owned()));
        }
    }
    fields
}

/// Returns the variables of the preferences page.
pub(super) fn preferences(choices: &PreferencesPage<'_>, formatter: &LocaleFormatter) -> Value {
    let (page_user, schedule) = (choices.page_user, choices.page_user.schedule());
    let next = choices.next_digest.filter(|_| page_user.user.unsubscribed.is_none());
    context! {
        links => context! {
            // Unsubscribes from everything.
            unsubscribe => format!("../{}", choices.token),
            preferences => "",
        },
        saved => choices.is_saved,
        // The current schedule.
        schedule => schedule_of(&schedule, next, formatter),
        zones => zones(schedule.tz),
        // The quiet hours, if the user has any.
        quiet => page_user.user.quiet.map(|quiet| Value::from(Serde(quiet))),
        groups => groups(page_user, formatter),
        mutes => mutes(page_user.user, schedule.tz, formatter),
        ..page_user.view(formatter)
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
        let (region, city) = match zone.name().split_once('/') {
            Some((region, city)) if REGIONS.contains(&region) => (region, city),
            _ if zone == chrono_tz::UTC || zone == chosen => ("Other", zone.name()),
            _ => continue,
        };
        let label = city.replace('_', " ").replace('/', ", ");
        let option = context! { value => zone.name(), label };
        regions.entry(region).or_default().push(option);
    }
    regions.into_iter().map(|(label, options)| context! { label, options }).collect()
}

/// Returns the types by category.
fn groups(page_user: PageUser<'_>, formatter: &LocaleFormatter) -> Vec<Value> {
    let kinds: Vec<&EventType> = page_user.policies.kinds().collect();
    let groups = page_user.policies.by_category(&kinds).into_iter();
    let view = |kind: &&EventType| type_view(page_user, kind, formatter);
    let views = groups.map(|(category, kinds)| {
        context! {
            // None for types without a category.
            category => category.map(|category| {
                // The first translation found among the types applies to the whole category.
                let translation = kinds.iter().find_map(|kind| formatter.category(kind));
                translation.unwrap_or_else(|| category.as_str().to_owned())
            }),
            types => kinds.iter().map(view).collect::<Vec<_>>(),
        }
    });
    views.collect()
}

/// Returns the muted subjects, by name.
fn mutes(user: &User, tz: chrono_tz::Tz, formatter: &LocaleFormatter) -> Vec<Value> {
    fn name<'a>((subject, mute): &(&'a Subject, &'a Mute)) -> &'a str {
        mute.title.as_ref().map_or(subject.as_str(), Title::as_str)
    }
    let mut mutes: Vec<(&Subject, &Mute)> = user.mutes.iter().collect();
    mutes.sort_by(|a, b| name(a).cmp(name(b)));
    let view = |entry: &(&Subject, &Mute)| {
        let (subject, mute) = entry;
        context! {
            // The value of the form field that unmutes it.
            subject => subject.to_string(),
            // The title, or the subject key if it has no title.
            name => name(entry),
            // The day on which the mute expires, and the time in ISO 8601, UTC.
            until => mute.until.map(|until| formatter.day_in_full(until, tz)),
            until_at => mute.until.map(iso),
        }
    };
    mutes.iter().map(view).collect()
}

/// Returns the variables of a type. Offers the default route, the current route, the digest and no
/// email; a mandatory type is locked.
fn type_view(page_user: PageUser<'_>, kind: &EventType, formatter: &LocaleFormatter) -> Value {
    let policy = page_user.policies.policy(kind);
    let default = policy.route;
    let route = page_user.user.chosen_route(kind, page_user.policies);
    let possible = [default, route, Route::Digest, Route::Never];
    let routes = [Route::Immediate, Route::Batch, Route::Digest, Route::Never];
    let is_offered = |route: &Route| {
        policy.mandatory.is_none()
            && possible.contains(route)
            && page_user.policies.effective_route(kind, *route) == *route
    };
    let options = routes.into_iter().filter(is_offered).map(Route::as_str);
    context! {
        // The name of the form field.
        field => format!("{TYPE_FIELD}{kind}"),
        heading => page_user.heading(formatter, kind),
        // The routes to choose from, and the current one; empty if the type is locked.
        options => options.collect::<Vec<_>>(),
        route => route.as_str(),
        locked => policy.mandatory.as_ref().map(|mandate| context! {
            route => default.as_str(),
            reason => formatter.reason(kind, mandate),
        }),
    }
}
