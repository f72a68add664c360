//! Selects the events of a digest and builds its content: ordered, capped, with exact totals.
//!
//! Only events that still apply and that the user wants are included (P6). If none is left, no
//! email is sent. Each section shows its newest events first. Events cut off by the caps appear
//! only as a count ("+12 more"), but count as emailed.

use std::cmp::Reverse;
use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};

use super::day::Day;
use super::day_stack::{Event, StackEvent, UserStacks};
use super::delivery::{Delivery, DeliveryState};
use super::eligibility::{EligibilityFacts, Purpose, classify};
use super::email_sections::{DisplayData, EmailContent, EmailItem, Grouping, ItemLimits};
use super::name::EventType;
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

#[cfg(test)]
#[path = "digest_content_tests.rs"]
mod tests;
