//! Explains why a user got an event, or did not, or when it will be emailed.
//!
//! [`classify`](crate::domain::classify) excludes events. Batches, markers and deliveries determine
//! the outcome of the others. Nothing is written. Start with [`Explain::user`].

use std::collections::HashMap;
use std::sync::Arc;

use crate::context::Context;
use crate::domain::{
    Cadence, DaySet, Delivery, DeliverySource, DigestDays, EmailScope, EventType, Id, ObjectKey,
    Route, Stack, User, UserId, UserStacks,
};
use crate::engine::Result;
use crate::engine::batches::{BatchService, quiet_hours_end_by_batch};
use crate::engine::delivery::{Compose, ReconstructedEmail};
use crate::engine::digest::backlog::BacklogService;
use crate::engine::digest::due_scan;
use crate::engine::eligibility;
use crate::engine::eligibility::event_facts::EventFacts;
use crate::engine::feedback::suppressions::SuppressedAddresses;
use crate::engine::users::personal::load_start;
use crate::store::DeliveryFilter;
use crate::wire::explanation::{
    BrandView, DigestView, EventStatus, ExplainedEvent, Explanation, LocaleView,
};

mod fates;

use fates::{UserBatches, UserFacts};

/// Explains to operators which emails a user gets.
pub struct Explain {
    pub(crate) context: Arc<Context>,
    /// Lists the batches of events.
    pub batches: BatchService,
    /// Finds the language of the user's emails.
    pub compose: Compose,
    /// Finds the days before the window that are still read.
    pub backlog: BacklogService,
}

/// The most deliveries of a user that are read.
const MAX_DELIVERIES: usize = 10_000;
/// The number of newest days beyond `digest.max_age` that are read for expired events.
const MAX_EXPIRED_DAYS: usize = 60;
/// The most deliveries that are shown.
const MAX_SHOWN: usize = 10;

impl Explain {
    fn locale(&self, user: &User) -> LocaleView {
        let of_brand = self.compose.for_brand(user.brand.as_ref());
        let renderer = &of_brand.as_ref().unwrap_or(&self.compose).identity.renderer;
        LocaleView {
            requested: user.locale.clone().filter(|locale| !locale.is_empty()),
            used: renderer.locale_of(user).to_owned(),
        }
    }

    /// Explains one user's events, newest first. `only` selects an object or a position.
    pub async fn user(&self, user: &UserId, only: Option<&str>) -> Result<Explanation> {
        let (now, store) = (self.context.clock.now(), &*self.context.store);
        let config = &self.context.config;
        // The schedule of users who did not choose a cadence, weekday, hour or time zone.
        let default = &config.digest.schedule;
        let users = std::slice::from_ref(user);
        let days = self.backlog.days_to_read(now);
        let shown_days = self.shown_days(&days).await?;
        // The store returns one element for each user, even for users without stacks.
        let mut stacks = store.windows(shown_days, users).await?.remove(0);
        let stored = store.users(users).await?.pop().flatten();
        let (record, empty) = (stored.as_ref(), User::new(user.clone()));
        // Without a record, the values of an empty one apply.
        let profile = record.unwrap_or(&empty);
        let start = load_start(store, user, record).await?;
        stacks.hide_before_start(start);
        let of_user = DeliveryFilter::User(user);
        let mut deliveries = store.find_deliveries(&of_user, MAX_DELIVERIES).await?;
        deliveries.retain(|row| start.is_none_or(|start| !start.is_after(row.marker)));
        let batches = UserBatches::of(&self.batches, user).await?;
        let mut event_facts = EventFacts::for_emails(&self.context);
        event_facts.load_objects_and_retractions(batches.kept().iter()).await?;
        let stack_events = stacks.stacks.iter().flat_map(|stack| stack.events());
        event_facts.load_objects_and_retractions(stack_events.map(|(_, event)| event)).await?;
        let muted = eligibility::muted_positions(&stacks, &profile.mutes, &mut event_facts).await?;
        let sent = self.sent_emails(&deliveries, &stacks, &batches, record).await?;
        let suppressed = SuppressedAddresses::load_for(store, record).await?;
        let mut inboxes = eligibility::load_inboxes(&self.context, users).await?;
        let facts = UserFacts {
            policies: &self.context.policies,
            now,
            days,
            record,
            mutes: &profile.mutes,
            inbox: inboxes.pop().flatten(),
            digests: record.and_then(|user| suppressed.digest_schedule(user, default)),
            wanted_scope: record.and_then(|user| {
                let (schedule, scope) = user.digest_schedule(default);
                (schedule.cadence != Cadence::Never).then_some(scope)
            }),
            deferred: quiet_hours_end_by_batch(&self.context, batches.batches.iter().cloned(), now)
                .await?,
            deliveries: &deliveries,
            batches: &batches,
            muted,
            sent,
        };
        let mut events = facts.fates(&stacks, &event_facts);
        let is_full = |stack: &&Stack| stack.entries.len() >= config.fanout.day_cap;
        let full_days = stacks.stacks.iter().filter(is_full).map(|stack| stack.id.day).collect();
        let digests = facts.digests;
        events.retain(|fate| only.is_none_or(|only| self.is_about(fate, only)));
        events.reverse();
        let schedule = profile.schedule(default);
        let waiting = events.iter().filter(|fate| fate.status == EventStatus::NextDigest);
        let oldest = waiting.map(|fate| fate.at).min();
        let digest_schedule = match &digests {
            Some((schedule, _)) if oldest.is_some() => schedule,
            _ => &schedule,
        };
        let next_due = due_scan::next_digest_for(store, user, digest_schedule, oldest, now).await?;
        let turned_off = profile.types.iter().filter(|(kind, chosen)| {
            chosen.route == Route::Never && !self.context.policies.is_mandatory(kind)
        });
        deliveries.truncate(MAX_SHOWN);
        Ok(Explanation {
            user: user.clone(),
            has_record: record.is_some(),
            name: profile.name.clone(),
            email: profile.email.as_ref().map(ToString::to_string),
            brand: profile
                .brand
                .clone()
                .map(|name| BrandView { configured: config.brands.contains_key(&name), name }),
            locale: record.map(|user| self.locale(user)),
            unreadable: profile.unreadable.clone(),
            unmailable: self.unmailable(record, &suppressed),
            suppression: suppressed.suppression_of(profile).cloned().map(Into::into),
            unsubscribed: profile.unsubscribed,
            turned_off: turned_off.map(|(kind, _)| kind.clone()).collect(),
            digest: record.map(|_| DigestView { tz: schedule.tz, schedule, next_due }),
            events,
            full_days,
            batches: self.batches.views(batches.unsettled()).await?,
            deliveries: deliveries.into_iter().map(Into::into).collect(),
        })
    }

    /// Returns the days to read: the window, the days before it that may have a backlog, and the
    /// newest days whose events have expired.
    async fn shown_days(&self, days: &DigestDays) -> Result<DaySet> {
        let old = self.backlog.old_days(days).await?;
        let mut expired = old.expired.clone();
        expired.extend(old.too_old.iter().map(|old| old.day));
        expired.sort_unstable();
        let skipped = expired.len().saturating_sub(MAX_EXPIRED_DAYS);
        let with_backlog = old.with_blocked().map(|old| old.day);
        Ok(days.window.extended_by(with_backlog.chain(expired.split_off(skipped))))
    }

    /// Reconstructs the emails whose markers are on the user's stacks. Returns them by marker.
    async fn sent_emails<'a>(
        &self,
        deliveries: &'a [Delivery],
        stacks: &UserStacks,
        batches: &UserBatches,
        record: Option<&User>,
    ) -> Result<HashMap<Id, (&'a Delivery, ReconstructedEmail)>> {
        let mut emails = HashMap::new();
        for row in deliveries {
            let has_marker = match row.source {
                DeliverySource::Digest(..) => stacks.has_digest_marker(row.marker),
                DeliverySource::Batch(..) => {
                    batches.deliveries.contains_key(&row.id) && stacks.has_batch_marker(row.marker)
                }
            };
            if has_marker {
                let email = self.compose.reconstruct_sent(row, vec![record.cloned()]).await?;
                emails.insert(row.marker, (row, email));
            }
        }
        Ok(emails)
    }

    /// Returns why the user gets no emails, or only mandatory ones.
    fn unmailable(
        &self,
        record: Option<&User>,
        suppressed: &SuppressedAddresses,
    ) -> Option<String> {
        let Some(user) = record else {
            return Some("there is no record of them".to_owned());
        };
        let gets_mandatory = suppressed.email_scope(user) == Ok(EmailScope::MandatoryOnly)
            && self.context.policies.emailed_mandatory_kinds().next().is_some();
        let exception = if gets_mandatory { ", so none but of mandatory types" } else { "" };
        let why = suppressed.check_mailable(user).err()?.as_str();
        Some(format!("they are {why}{exception}"))
    }

    /// Returns whether `only` names the event's object or position.
    fn is_about(&self, fate: &ExplainedEvent, only: &str) -> bool {
        let policy = self.context.policies.policy(&EventType::stored(&fate.kind));
        let key = ObjectKey::from_parts(policy.model.as_ref(), &fate.object);
        let names = [fate.object.as_str(), key.as_str()];
        names.contains(&only) || fate.position.to_string() == only
    }
}
