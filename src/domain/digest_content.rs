//! Selects the events of a digest and builds its content: ordered, capped, with exact totals.
//!
//! Only events that still apply and that the user wants are included (P6). If none is left, no
//! email is sent. Each section shows its newest events first. Events cut off by the caps appear
//! only as a count ("+12 more"), but count as emailed.

use std::cmp::Reverse;
use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::day::{Day, DaySet};
use super::day_stack::{Event, StackEvent, UserStacks};
use super::delivery::{Delivery, DeliveryState};
use super::eligibility::{EligibilityFacts, Purpose, classify};
use super::email_sections::{DisplayData, EmailContent, EmailItem, Grouping, ItemLimits};
use super::name::EventType;
use super::timed_id::Id;
use super::type_policy::{EmailScope, Policies};
use super::user::User;

/// Returns the pending events that the user's choices and this scope admit to digests.
pub fn digest_events<'a>(
    user_stacks: &'a UserStacks,
    user: &User,
    scope: EmailScope,
    policies: &Policies,
) -> Vec<StackEvent<'a>> {
    user_stacks.pending_where(|event, day| is_chosen(event, day, user, scope, policies))
}

/// Returns the events of [`digest_events`] that this delivery covers. Its own marker hides none of
/// them.
pub fn delivery_events<'a>(
    row: &Delivery,
    user_stacks: &'a UserStacks,
    user: &User,
    scope: EmailScope,
    policies: &Policies,
) -> Vec<StackEvent<'a>> {
    let keep = |event: &Event, day| is_chosen(event, day, user, scope, policies);
    user_stacks.pending_below(&row.watermarks, row.marker, keep)
}

fn is_chosen(event: &Event, day: Day, user: &User, scope: EmailScope, policies: &Policies) -> bool {
    let purpose = Purpose::Digest(scope);
    let time = || event.time(day);
    classify(&event.kind, time, EligibilityFacts::default(), Some(user), policies, purpose)
        .is_none()
}

/// Builds the content of a digest, one item for each event. Returns `None` if no event applies.
///
/// `find_data` returns the data to show for an event, or `None` if its object no longer applies.
pub fn build_digest_content(
    events: &[StackEvent<'_>],
    policies: &Policies,
    caps: ItemLimits,
    find_data: impl Fn(&Event) -> Option<DisplayData>,
) -> Option<EmailContent> {
    let mut newest_first: Vec<&StackEvent<'_>> = events.iter().collect();
    newest_first.sort_by_key(|pending| Reverse((pending.at, pending.position)));
    let item = |pending: &StackEvent<'_>| {
        let DisplayData { object, details } = find_data(pending.event)?;
        Some(EmailItem { id: pending.event.object.clone(), at: pending.at, object, details })
    };
    let items = newest_first.into_iter();
    let included =
        items.filter_map(|pending| Some((&pending.event.kind, item(pending)?))).collect();
    let mut content = EmailContent::of(included, policies, Grouping::Each)?;
    content.cut(caps, 0);
    Some(content)
}

/// Returns the newest events that apply, at most `caps.section` of each type, newest first.
pub fn events_to_show<'a>(
    events: &[StackEvent<'a>],
    caps: ItemLimits,
    applies: impl Fn(&Event) -> bool,
) -> Vec<&'a Event> {
    let mut newest_first: Vec<&StackEvent<'a>> = events.iter().collect();
    newest_first.sort_by_key(|pending| Reverse((pending.at, pending.position)));
    let mut shown_by_type: HashMap<&EventType, usize> = HashMap::new();
    newest_first.retain(|pending| {
        let shown = shown_by_type.entry(&pending.event.kind).or_default();
        let is_shown = *shown < caps.section && applies(pending.event);
        *shown += usize::from(is_shown);
        is_shown
    });
    newest_first.into_iter().map(|pending| pending.event).collect()
}

/// The delay before a failed digest is first retried within its period.
const FIRST_RETRY_DELAY: TimeDelta = TimeDelta::hours(1);
/// The longest delay between two retries.
const MAX_RETRY_DELAY: TimeDelta = TimeDelta::days(1);

/// Returns when a failed digest is retried automatically. The delay starts at one hour and doubles
/// up to one day, because the cause of the failure may have passed.
pub fn next_retry_at(row: &Delivery) -> Option<DateTime<Utc>> {
    if row.state != DeliveryState::Failed || row.open {
        return None;
    }
    let doubled = FIRST_RETRY_DELAY * (1 << row.attempts.reopened.min(5));
    Some(row.outcome.settled? + doubled.min(MAX_RETRY_DELAY))
}

/// The size of a backlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PendingCounts {
    /// Users with at least one event in the backlog.
    #[serde(rename = "people")]
    pub users: u64,
    /// Events in the backlogs of all these users.
    pub events: u64,
}

impl PendingCounts {
    /// Adds a user with this number of events. A user without events does not count.
    pub fn add(&mut self, events: u64) {
        self.users += u64::from(events > 0);
        self.events += events;
    }

    /// Returns whether there are no events.
    pub fn is_zero(&self) -> bool {
        self.events == 0
    }

    /// Returns the sum of both.
    pub fn plus(self, other: Self) -> Self {
        Self { users: self.users + other.users, events: self.events + other.events }
    }

    /// Returns the difference, with zero as the least.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self {
            users: self.users.saturating_sub(other.users),
            events: self.events.saturating_sub(other.events),
        }
    }
}

impl std::ops::AddAssign for PendingCounts {
    fn add_assign(&mut self, other: Self) {
        *self = self.plus(other);
    }
}

/// The events of a day that digests should include but have not included yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Events of users who may be emailed: their next digest includes them.
    pub mailable: PendingCounts,
    /// Events of users who may not be emailed at the moment, such as suppressed or unconfirmed
    /// users. They are included once the user may be emailed again.
    pub blocked: PendingCounts,
}

impl Backlog {
    /// Returns the sum of both parts. A user with events in both counts twice.
    pub fn total(self) -> PendingCounts {
        self.mailable.plus(self.blocked)
    }
}

/// The note about a day that has left the window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayNote {
    /// Distinguishes notes with equal content.
    pub id: Id,
    /// When the note was written.
    pub at: DateTime<Utc>,
    /// The backlog at the last full scan of the day. `None` if the day has changed since or was not
    /// scanned.
    #[serde(default, alias = "owed", skip_serializing_if = "Option::is_none")]
    pub mailable: Option<PendingCounts>,
    /// The same for users who may not be emailed; `None` in notes of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<PendingCounts>,
    /// The events that expired, because they were older than `digest.max_age`.
    #[serde(default, rename = "given_up", skip_serializing_if = "PendingCounts::is_zero")]
    pub expired: PendingCounts,
    /// The part of `expired` whose users could not be emailed when it expired.
    #[serde(default, rename = "given_up_blocked", skip_serializing_if = "PendingCounts::is_zero")]
    pub expired_blocked: PendingCounts,
}

impl DayNote {
    /// The prefix of the names of notes. The day follows.
    pub const PREFIX: &str = "day:";

    /// Returns the name of the day's note, such as `day:20140422`.
    pub fn note_name(day: Day) -> String {
        format!("{}{day}", Self::PREFIX)
    }

    /// Returns the day of a note; `None` if the name is not that of a day's note.
    pub fn day_of_note(name: &str) -> Option<Day> {
        name.strip_prefix(Self::PREFIX)?.parse().ok()
    }

    /// Parses a stored note. `None` if it is unreadable, so that the day is scanned again.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns whether the last full scan found no backlog that can be emailed.
    pub fn has_no_mailable(&self) -> bool {
        self.mailable.is_some_and(|counts| counts.is_zero())
    }

    /// Returns whether the day is clear but may contain events of users who cannot be emailed.
    /// Older versions did not count those.
    pub fn has_only_blocked(&self) -> bool {
        self.has_no_mailable() && self.blocked.is_none_or(|counts| !counts.is_zero())
    }

    /// Returns whether no event is left that could expire.
    pub fn has_nothing_to_expire(&self) -> bool {
        self.has_no_mailable() && self.blocked.is_none_or(|counts| counts.is_zero())
    }
}

/// The days from which digests include events: the window and the backlog before it.
#[derive(Debug, Clone)]
pub struct DigestDays {
    /// The days that feeds show.
    pub window: DaySet,
    /// The first day whose events are still emailed.
    pub first: Day,
}

impl DigestDays {
    /// Returns the days at `now`. `window_back` is in days before today.
    pub fn at(now: DateTime<Utc>, window_back: u32, max_age: TimeDelta) -> Self {
        let window = DaySet::ending(Day::of(now), window_back);
        let first = Day::of(now - max_age).min(window.first());
        Self { window, first }
    }

    /// Returns whether the day has left the window but is not too old to be emailed.
    pub fn is_backlog(&self, day: Day) -> bool {
        self.first <= day && day < self.window.first()
    }

    /// Returns whether the backlog of the day has expired.
    pub fn is_expired(&self, day: Day) -> bool {
        day < self.first
    }
}

#[cfg(test)]
#[path = "digest_content_tests.rs"]
mod tests;
