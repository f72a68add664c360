//! Explains why a user got an event, or did not, or when it will be emailed.
//!
//! [`classify`](crate::domain::classify) excludes events. Batches, markers and deliveries determine
//! the outcome of the others. Nothing is written. Start with [`Explain::user`].

use std::collections::HashMap;
use std::sync::Arc;

use crate::context::Context;
use crate::domain::{
    Cadence, DeliverySource, EmailScope, EventType, ObjectKey, Route, Stack, User, UserId,
};
use crate::engine::Result;
use crate::engine::batches::{BatchService, quiet_until};
use crate::engine::delivery::Compose;
use crate::engine::digest::due;
use crate::engine::digest::old_days::BacklogService;
use crate::engine::eligibility;
use crate::engine::eligibility::event_facts::EventFacts;
use crate::engine::feedback::suppressions::SuppressedAddresses;
use crate::engine::users::personal::load_start;
use crate::store::DeliveryFilter;
use crate::wire::explanation::{
    BrandView, DigestView, EventStatus, ExplainedEvent, Explanation, LocaleView,
};

mod fates;

use fates::{Loaded, UserBatches};

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
const A_PERSONS: usize = 10_000;
/// The number of newest days beyond `digest.max_age` that are read for expired events.
const EXPIRED_DAYS: usize = 60;
/// The most deliveries that are shown.
const SHOWN: usize = 10;

impl Explain {
    fn locale(&self, user: &User) -> LocaleView {
        let own = self.compose.for_brand(user.brand.as_ref());
        let renderer = &own.as_ref().unwrap_or(&self.compose).identity.renderer;
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
        let reach = self.backlog.days_to_read(now);
        let old = self.backlog.old_days(&reach).await?;
        let mut expired = old.expired.clone();
        expired.extend(old.too_old.iter().map(|old| old.day));
        expired.sort_unstable();
        let expired = expired.split_off(expired.len().saturating_sub(EXPIRED_DAYS));
        let days = old.with_blocked().map(|old| old.day);
        let window = reach.window.extended_by(days.chain(expired));
        // There is one, even for users without stacks.
        let mut person = store.windows(window, users).await?.remove(0);
        let record = store.users(users).await?.pop().flatten();
        let (record, empty) = (record.as_ref(), User::new(user.clone()));
        // Without a record, the values of an empty one apply.
        let own = record.unwrap_or(&empty);
        let start = load_start(store, user, record).await?;
        person.hide_before_start(start);
        let theirs = DeliveryFilter::User(user);
        let mut deliveries = store.find_deliveries(&theirs, A_PERSONS).await?;
        deliveries.retain(|row| start.is_none_or(|start| !start.is_after(row.marker)));
        let batches = UserBatches::of(&self.batches, user).await?;
        let mut catalog = EventFacts::for_emails(&self.context);
        catalog.load_objects_and_retractions(batches.kept().iter()).await?;
        let of_stacks = person.stacks.iter().flat_map(|stack| stack.events());
        catalog.load_objects_and_retractions(of_stacks.map(|(_, event)| event)).await?;
        let muted = eligibility::muted_positions(&person, &own.mutes, &mut catalog).await?;
        let mut sent = HashMap::new();
        for row in &deliveries {
            let covers = match row.source {
                DeliverySource::Digest(..) => person.has_digest_marker(row.marker),
                DeliverySource::Batch(..) if !batches.deliveries.contains_key(&row.id) => false,
                DeliverySource::Batch(..) => person.has_batch_marker(row.marker),
            };
            if covers {
                let email = self.compose.reconstruct_sent(row, vec![record.cloned()]).await?;
                sent.insert(row.marker, (row, email));
            }
        }
        let suppressed = SuppressedAddresses::load_for(store, record).await?;
        let mut inboxes = eligibility::load_inboxes(&self.context, users).await?;
        let loaded = Loaded {
            policies: &self.context.policies,
            now,
            reach,
            record,
            mutes: &own.mutes,
            inbox: inboxes.pop().flatten(),
            digests: record.and_then(|user| suppressed.digest_schedule(user, default)),
            wish: record.and_then(|user| {
                let (schedule, wish) = user.digest_schedule(default);
                (schedule.cadence != Cadence::Never).then_some(wish)
            }),
            held: quiet_until(&self.context, batches.all.iter().cloned(), now).await?,
            deliveries: &deliveries,
            batches: &batches,
            muted,
            sent,
        };
        let mut events = loaded.fates(&person, &catalog);
        let is_full = |stack: &&Stack| stack.entries.len() >= config.fanout.day_cap;
        let full_days = person.stacks.iter().filter(is_full);
        let full_days = full_days.map(|of| of.id.day).collect();
        let digests = loaded.digests;
        events.retain(|fate| only.is_none_or(|only| self.is_about(fate, only)));
        events.reverse();
        let schedule = own.schedule(default);
        let waiting = events.iter().filter(|fate| fate.status == EventStatus::NextDigest);
        let oldest = waiting.map(|fate| fate.at).min();
        let by = digests.as_ref().map(|(schedule, _)| schedule);
        let by = by.filter(|_| oldest.is_some()).unwrap_or(&schedule);
        let next_due = due::next_digest_for(store, user, by, oldest, now).await?;
        let off = own.types.iter();
        let off = off.filter(|(_, chosen)| chosen.route == Route::Never);
        let off = off.filter(|(kind, _)| !self.context.policies.is_mandatory(kind));
        deliveries.truncate(SHOWN);
        Ok(Explanation {
            user: user.clone(),
            has_record: record.is_some(),
            name: own.name.clone(),
            email: own.email.as_ref().map(ToString::to_string),
            brand: own
                .brand
                .clone()
                .map(|name| BrandView { configured: config.brands.contains_key(&name), name }),
            locale: record.map(|user| self.locale(user)),
            unreadable: own.unreadable.clone(),
            unmailable: self.unmailable(record, &suppressed),
            suppression: suppressed.suppression_of(own).cloned().map(Into::into),
            unsubscribed: own.unsubscribed,
            turned_off: off.map(|(kind, _)| kind.clone()).collect(),
            digest: record.map(|_| DigestView { tz: schedule.tz, schedule, next_due }),
            events,
            full_days,
            batches: self.batches.views(batches.unsettled()).await?,
            deliveries: deliveries.into_iter().map(Into::into).collect(),
        })
    }

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
        let but = gets_mandatory.then_some(", so none but of mandatory types");
        let why = suppressed.check_mailable(user).err()?.as_str();
        Some(format!("they are {why}{}", but.unwrap_or_default()))
    }

    /// Returns whether `only` names the event's object or position.
    fn is_about(&self, fate: &ExplainedEvent, only: &str) -> bool {
        let policy = self.context.policies.policy(&EventType::stored(&fate.kind));
        let key = ObjectKey::from_parts(policy.model.as_ref(), &fate.object);
        let names = [fate.object.as_str(), key.as_str()];
        names.contains(&only) || fate.position.to_string() == only
    }
}
