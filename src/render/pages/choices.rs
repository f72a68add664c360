//! The data of the preferences page: all choices, and their current values.
//!
//! A submitted form may contain only the offered options. Mandatory types are shown locked, with
//! their reason. Start with [`PreferencesView`].

use std::collections::BTreeMap;

use chrono::{DateTime, Utc, Weekday};
use serde::Serialize;

use super::super::view::iso;
use super::super::voice::Voice;
use super::stopping::{PersonView, ScheduleView, TYPE_FIELD, name};
use crate::domain::preferences::Title;
use crate::domain::{Cadence, Category, EventType, Policies, Quiet, Route, Schedule, User};

/// The variables of the preferences page.
#[derive(Serialize)]
pub(super) struct PreferencesView {
    #[serde(flatten)]
    person: PersonView,
    links: LinksView,
    saved: bool,
    /// The current schedule.
    schedule: ScheduleView,
    cadences: Vec<OptionView>,
    weekdays: Vec<OptionView>,
    hours: Vec<OptionView>,
    zones: Vec<RegionView>,
    /// The quiet hours, if the user has any.
    quiet: Option<Quiet>,
    groups: Vec<GroupView>,
    /// The muted subjects, by name.
    mutes: Vec<MuteView>,
    #[serde(skip)]
    zone: chrono_tz::Tz,
    #[serde(skip)]
    wants_mail: bool,
}

#[derive(Serialize)]
struct LinksView {
    /// Unsubscribes from everything.
    unsubscribe: String,
    preferences: String,
}

impl PreferencesView {
    pub(super) fn of(
        user: &User,
        token: &str,
        default: &Schedule,
        policies: &Policies,
        kinds: &[&EventType],
        voice: &Voice,
    ) -> Self {
        let schedule = user.schedule(default);
        let weekday = |n| Weekday::try_from(n).unwrap_or(Weekday::Mon);
        Self {
            person: PersonView::of(user, default, policies, kinds, voice),
            links: LinksView {
                unsubscribe: format!("../{token}"),
                preferences: String::new(),
            },
            saved: false,
            schedule: ScheduleView::of(&schedule),
            cadences: [Cadence::Daily, Cadence::Weekly, Cadence::Never]
                .map(|cadence| OptionView::plain(cadence.as_str(), cadence == schedule.cadence))
                .into(),
            weekdays: (0..7)
                .map(weekday)
                .map(|day| OptionView::plain(&name(day), day == schedule.weekday))
                .collect(),
            hours: (0..24)
                .map(|hour| OptionView {
                    value: hour.to_string(),
                    label: format!("{hour:02}"),
                    chosen: hour == schedule.hour,
                })
                .collect(),
            zones: zones(schedule.tz),
            quiet: user.quiet,
            groups: groups(user, policies, kinds, voice),
            mutes: mutes(user, schedule.tz, voice),
            zone: schedule.tz,
            wants_mail: user.unsubscribed.is_none(),
        }
    }

    /// Sets whether the choices were just saved, and the time of the next digest.
    pub(super) fn with(mut self, saved: bool, next: Option<DateTime<Utc>>, voice: &Voice) -> Self {
        self.saved = saved;
        let next = next.filter(|_| self.wants_mail);
        self.schedule.next = next.map(|at| voice.next(at, self.zone));
        self.schedule.next_at = next.map(iso);
        self
    }
}

#[derive(Serialize)]
pub(super) struct OptionView {
    pub value: String,
    label: String,
    pub chosen: bool,
}

impl OptionView {
    fn plain(value: &str, chosen: bool) -> Self {
        Self {
            value: value.to_owned(),
            label: value.to_owned(),
            chosen,
        }
    }
}

#[derive(Serialize)]
pub(super) struct RegionView {
    label: &'static str,
    pub options: Vec<OptionView>,
}

/// The types of one category.
#[derive(Serialize)]
struct GroupView {
    /// `None` for types without a category.
    category: Option<String>,
    types: Vec<TypeView>,
}

/// A muted subject.
#[derive(Serialize)]
struct MuteView {
    /// The value of the form field that unmutes it.
    subject: String,
    /// The title, or the subject key if it has no title.
    name: String,
    /// The day on which the mute expires.
    until: Option<String>,
    /// The time at which the mute expires, in ISO 8601, UTC.
    until_at: Option<String>,
}

#[derive(Serialize)]
struct TypeView {
    /// The name of the form field.
    field: String,
    heading: String,
    /// The routes to choose from; empty if the type is locked.
    options: Vec<OptionView>,
    /// Set if the type is mandatory.
    locked: Option<LockView>,
}

#[derive(Serialize)]
struct LockView {
    route: &'static str,
    reason: String,
}

/// Returns the time zones by region, and the chosen zone even if it belongs to no region.
pub(super) fn zones(chosen: chrono_tz::Tz) -> Vec<RegionView> {
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
    let mut regions: BTreeMap<&str, Vec<OptionView>> = BTreeMap::new();
    for zone in chrono_tz::TZ_VARIANTS {
        let (region, place) = match zone.name().split_once('/') {
            Some((region, place)) if REGIONS.contains(&region) => (region, place),
            _ if zone == chrono_tz::UTC || zone == chosen => ("Other", zone.name()),
            _ => continue,
        };
        regions.entry(region).or_default().push(OptionView {
            value: zone.name().to_owned(),
            label: place.replace('_', " ").replace('/', ", "),
            chosen: zone == chosen,
        });
    }
    let region = |(label, options)| RegionView { label, options };
    regions.into_iter().map(region).collect()
}

fn groups(user: &User, policies: &Policies, kinds: &[&EventType], voice: &Voice) -> Vec<GroupView> {
    let groups = policies.by_category(kinds).into_iter();
    let group = |(category, kinds): (Option<&Category>, Vec<&EventType>)| GroupView {
        category: category.map(|category| {
            // The first translation found among the types applies to the whole category.
            let said = kinds.iter().find_map(|kind| voice.category(kind));
            said.unwrap_or_else(|| category.as_str().to_owned())
        }),
        types: kinds
            .into_iter()
            .map(|kind| shown(user, policies, kind, voice))
            .collect(),
    };
    groups.map(group).collect()
}

fn mutes(user: &User, tz: chrono_tz::Tz, voice: &Voice) -> Vec<MuteView> {
    let mutes = user.mutes.all().map(|(subject, mute)| {
        let name = mute.title.as_ref().map_or(subject.as_str(), Title::as_str);
        MuteView {
            subject: subject.to_string(),
            name: name.to_owned(),
            until: mute.until.map(|until| voice.day_in_full(until, tz)),
            until_at: mute.until.map(iso),
        }
    });
    let mut mutes: Vec<MuteView> = mutes.collect();
    mutes.sort_by(|a, b| a.name.cmp(&b.name));
    mutes
}

/// Offers the default route, the current route, the digest and no email, unless the type is
/// mandatory.
fn shown(user: &User, policies: &Policies, kind: &EventType, voice: &Voice) -> TypeView {
    let policy = policies.of(kind);
    let default = policy.route;
    let route = user.chosen_route(kind, policies);
    let possible = [default, route, Route::Digest, Route::Never];
    let offered = [Route::Immediate, Route::Batch, Route::Digest, Route::Never];
    let offered = offered.iter().filter(|one| possible.contains(one));
    let offered = offered.filter(|one| policies.mailed_by(kind, **one) == **one);
    let options = offered.map(|one| OptionView::plain(one.as_str(), *one == route));
    let locked = policy.mandatory.as_ref().map(|mandate| LockView {
        route: default.as_str(),
        reason: voice.reason(kind, mandate),
    });
    TypeView {
        field: format!("{TYPE_FIELD}{kind}"),
        heading: voice.heading(policies.heading(kind), kind),
        options: match locked {
            Some(_) => Vec::new(),
            None => options.collect(),
        },
        locked,
    }
}
