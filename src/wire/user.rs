//! People, what they chose, and what holds for them.
//!
//! The rule (P8): an address is shown masked.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use serde::Serialize;

use crate::domain::mute::Title;
use crate::domain::{
    BrandName, Cadence, Category, EventType, FollowKey, Mandate, Mute, Mutes, Point, Policies,
    Quiet, Route, Schedule, Subject, User, UserId, duration,
};

/// A record as it is shown.
#[derive(Debug, Serialize)]
pub(crate) struct UserView {
    id: UserId,
    /// Masked.
    email: Option<String>,
    name: Option<String>,
    confirmed: bool,
    tz: Option<Tz>,
    quiet: Option<Quiet>,
    locale: Option<String>,
    brand: Option<BrandName>,
    loc: Option<Point>,
    digest: DigestView,
    types: BTreeMap<EventType, TypeView>,
    suppressed: bool,
    unsubscribed: bool,
}

#[derive(Debug, Serialize)]
struct DigestView {
    cadence: Option<Cadence>,
    weekday: Option<String>,
    hour: Option<u8>,
}

#[derive(Debug, Serialize)]
struct TypeView {
    route: Route,
    window: Option<String>,
}

impl UserView {
    /// Types go by the route that they are mailed by: what was chosen before and cannot be any more
    /// is not shown.
    pub(crate) fn of(user: User, policies: &Policies) -> Self {
        let types = user.types.into_iter();
        Self {
            id: user.id,
            email: user.email.map(|address| address.to_string()),
            name: user.name,
            confirmed: user.confirmed,
            tz: user.tz,
            quiet: user.quiet,
            locale: user.locale,
            brand: user.brand,
            loc: user.loc,
            digest: DigestView {
                cadence: user.digest.cadence,
                weekday: user
                    .digest
                    .weekday
                    .map(|day| day.to_string().to_lowercase()),
                hour: user.digest.hour,
            },
            types: types
                .map(|(kind, chosen)| {
                    let route = policies.mailed_by(&kind, chosen.route);
                    let window = chosen.window.map(duration::show);
                    (kind, TypeView { route, window })
                })
                .collect(),
            suppressed: user.suppressed.is_some(),
            unsubscribed: user.unsubscribed.is_some(),
        }
    }
}

/// A page of records, by id.
#[derive(Debug, Serialize)]
pub(crate) struct UserPage {
    pub(crate) users: Vec<UserView>,
    /// Ask `after` this for the next page, if there may be one.
    pub(crate) next: Option<UserId>,
}

/// A page of what somebody follows, by key.
#[derive(Debug, Serialize)]
pub(crate) struct FollowPage {
    pub(crate) follows: Vec<FollowKey>,
    /// Ask `after` this for the next page, if there may be one.
    pub(crate) next: Option<FollowKey>,
}

/// All that somebody has muted.
#[derive(Debug, Serialize)]
pub(crate) struct MutesView {
    mutes: Vec<MuteView>,
}

/// Something that is muted.
#[derive(Debug, Serialize)]
pub(crate) struct MuteView {
    subject: Subject,
    /// What people read of it.
    title: Option<Title>,
    /// Since when.
    at: DateTime<Utc>,
    /// Up to when, if it ends by itself.
    until: Option<DateTime<Utc>>,
}

impl MutesView {
    /// What is muted at this moment, by subject.
    pub(crate) fn of(mutes: &Mutes, now: DateTime<Utc>) -> Self {
        let mutes = mutes.standing(now).map(MuteView::of);
        Self {
            mutes: mutes.collect(),
        }
    }
}

impl MuteView {
    /// A mute of this subject.
    pub(crate) fn of((subject, mute): (&Subject, &Mute)) -> Self {
        Self {
            subject: subject.clone(),
            title: mute.title.clone(),
            at: mute.at,
            until: mute.until,
        }
    }
}

/// What a user can choose, and what holds.
#[derive(Debug, Serialize)]
pub(crate) struct PreferencesView {
    pub(crate) digest: ScheduleView,
    pub(crate) tz: Tz,
    pub(crate) quiet: Option<Quiet>,
    pub(crate) types: BTreeMap<EventType, ChoiceView>,
    /// The same types in the order in which they are shown.
    pub(crate) categories: Vec<CategoryView>,
}

/// Types that are shown together.
#[derive(Debug, Serialize)]
pub(crate) struct CategoryView {
    /// Without one, the types are of no category.
    pub(crate) name: Option<Category>,
    pub(crate) types: Vec<EventType>,
}

/// When digests fall due, whoever chose it.
#[derive(Debug, Clone, Serialize)]
pub struct ScheduleView {
    /// How often.
    pub cadence: Cadence,
    /// For weekly digests: `mon` to `sun`.
    pub weekday: String,
    /// Local hour, 0 to 23.
    pub hour: u8,
}

impl From<Schedule> for ScheduleView {
    fn from(schedule: Schedule) -> Self {
        Self {
            cadence: schedule.cadence,
            weekday: schedule.weekday.to_string().to_lowercase(),
            hour: schedule.hour,
        }
    }
}

/// How a type comes to a person.
#[derive(Debug, Serialize)]
pub(crate) struct ChoiceView {
    /// How it is called on the page.
    pub(crate) heading: String,
    pub(crate) category: Option<Category>,
    pub(crate) route: Route,
    /// Of their own.
    pub(crate) window: Option<String>,
    /// Whether they chose it, or it is what the configuration says.
    pub(crate) chosen: bool,
    /// Why it cannot be chosen, if so.
    pub(crate) mandatory: Option<Mandate>,
    /// Whether the feed shows it.
    pub(crate) feed: bool,
}
