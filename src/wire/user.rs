//! Views of users: records, preferences, follows, mutes and exports.
//!
//! Addresses are masked, except in the export of a user, which only operators get (P8).

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use serde::Serialize;

use super::batch::BatchView;
use super::delivery::DeliveryRow;
use super::suppression::SuppressionView;
use crate::domain::feed_marks::ItemState;
use crate::domain::{
    Category, EventType, FollowKey, Id, Mandate, Mute, Mutes, ObjectId, Policies, Position,
    QuietHours, Route, Schedule, Subject, User, UserId, durations_and_times,
};

/// A user's record, with the address masked.
#[derive(Debug, Serialize)]
pub(crate) struct UserView(User);

impl UserView {
    /// Creates the view of a record. Each type has its effective route, which may differ from the
    /// choice in the record.
    pub(crate) fn from_user(mut user: User, policies: &Policies) -> Self {
        for (kind, chosen) in &mut user.types {
            chosen.route = policies.effective_route(kind, chosen.route);
        }
        Self(user)
    }
}

/// A page of records, by id.
#[derive(Debug, Serialize)]
pub(crate) struct UserPage {
    pub(crate) users: Vec<UserView>,
    /// The `after` of the next page, if there may be one.
    pub(crate) next: Option<UserId>,
}

/// A page of the keys that a user follows, ascending.
#[derive(Debug, Serialize)]
pub(crate) struct FollowPage {
    pub(crate) follows: Vec<FollowKey>,
    /// The `after` of the next page, if there may be one.
    pub(crate) next: Option<FollowKey>,
}

/// The current mutes of a user.
#[derive(Debug, Serialize)]
pub(crate) struct MutesView {
    mutes: Vec<MuteView>,
}

/// A muted subject.
#[derive(Debug, Serialize)]
pub(crate) struct MuteView {
    subject: Subject,
    #[serde(flatten)]
    mute: Mute,
}

impl MutesView {
    /// Creates the view of the current mutes, by subject.
    pub(crate) fn from_mutes(mutes: &Mutes, now: DateTime<Utc>) -> Self {
        let mutes = mutes.current(now).map(MuteView::from_mute);
        Self { mutes: mutes.collect() }
    }
}

impl MuteView {
    /// Creates the view of one mute.
    pub(crate) fn from_mute((subject, mute): (&Subject, &Mute)) -> Self {
        Self { subject: subject.clone(), mute: mute.clone() }
    }
}

/// The settings in effect, chosen or not, for all configured types.
#[derive(Debug, Serialize)]
pub(crate) struct PreferencesView {
    digest: Schedule,
    tz: Tz,
    quiet: Option<QuietHours>,
    types: BTreeMap<EventType, ChoiceView>,
    /// The same types in display order.
    categories: Vec<CategoryView>,
}

impl PreferencesView {
    /// Creates the view of a user's preferences. `default` replaces open choices of the schedule.
    pub(crate) fn from_user(user: &User, default: &Schedule, policies: &Policies) -> Self {
        let schedule = user.schedule(default);
        let kinds: Vec<&EventType> = policies.kinds().collect();
        let choice = |kind: &&EventType| ((*kind).clone(), ChoiceView::of(user, kind, policies));
        let categories = policies.by_category(&kinds).into_iter().map(|(name, kinds)| {
            let types = kinds.into_iter().cloned().collect();
            CategoryView { name: name.cloned(), types }
        });
        Self {
            tz: schedule.tz,
            quiet: user.quiet,
            digest: schedule,
            types: kinds.iter().map(choice).collect(),
            categories: categories.collect(),
        }
    }
}

/// Types that are shown together.
#[derive(Debug, Serialize)]
struct CategoryView {
    /// `None` for types without a category.
    name: Option<Category>,
    types: Vec<EventType>,
}

/// How a user gets events of a type.
#[derive(Debug, Serialize)]
struct ChoiceView {
    /// The name of the type on the page.
    heading: String,
    category: Option<Category>,
    route: Route,
    /// The user's own window.
    window: Option<String>,
    /// Whether the user chose the route; otherwise it is the configuration's.
    chosen: bool,
    /// The reason why the type is locked, if it is.
    mandatory: Option<Mandate>,
    /// Whether feeds show the type.
    feed: bool,
}

impl ChoiceView {
    fn of(user: &User, kind: &EventType, policies: &Policies) -> Self {
        let policy = policies.policy(kind);
        let chosen = user.types.get(kind).filter(|_| policy.mandatory.is_none());
        let window = chosen.and_then(|chosen| chosen.window);
        Self {
            heading: policies.heading(kind).to_owned(),
            category: policy.category.clone(),
            route: chosen.map_or(policy.route, |chosen| chosen.route),
            window: window.map(durations_and_times::format_duration),
            chosen: chosen.is_some(),
            mandatory: policy.mandatory.clone(),
            feed: policy.feed,
        }
    }
}

/// An export of one user.
#[derive(Debug, Serialize)]
pub struct UserExport {
    /// The user's id.
    pub user: UserId,
    /// When the export was made.
    pub at: DateTime<Utc>,
    /// The address of the record, in full.
    pub email: Option<String>,
    /// The record, with the address masked; `None` if there is none.
    pub(crate) record: Option<UserView>,
    /// All keys that the user follows.
    pub follows: Vec<FollowKey>,
    /// The user's mutes, including those that have ended.
    pub(crate) mutes: Vec<MuteView>,
    /// The events on the user's stacks in the window, oldest first.
    pub events: Vec<ExportedEvent>,
    /// Open and filed batches, newest first.
    pub batches: Vec<BatchView>,
    /// Deliveries, newest first.
    pub deliveries: Vec<DeliveryRow>,
    /// The suppression of the address, if any.
    pub suppression: Option<SuppressionView>,
}

/// An event on a user's stack.
#[derive(Debug, Serialize)]
pub struct ExportedEvent {
    /// The position, as in feeds.
    pub id: Position,
    /// The event's type; `type` in JSON.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// The object's id.
    pub object: ObjectId,
    /// The id of the accepted event; `None` if an older writer stored none.
    pub event: Option<Id>,
    /// The time of the event.
    pub happened: DateTime<Utc>,
    /// Its state in the feed.
    pub state: ItemState,
}
