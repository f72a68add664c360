//! Explains why a user got an event, or did not, or when it will be emailed.
//!
//! [`classify`] excludes events. Batches, markers and deliveries determine the outcome of the
//! others. Nothing is written. Start with [`Explain::user`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::context::Context;
use crate::domain::digest::tried_again;
use crate::domain::{
    Batch, Cadence, DaysRead, Delivery, DeliveryId, DeliveryState, EmailScope, Event, EventType,
    Exclusion, Facts, Id, Inbox, Mutes, ObjectKey, ObjectState, Occasion, PersonStacks, Position,
    Purpose, Route, Schedule, Stack, StackId, User, UserId, classify,
};
use crate::engine::Result;
use crate::engine::batches::{BatchFilter, BatchService};
use crate::engine::delivery::{Compose, SentEmail};
use crate::engine::digest::backlog::BacklogDays;
use crate::engine::digest::due;
use crate::engine::directory::starts;
use crate::engine::eligibility::catalog::{Catalog, CatalogSource};
use crate::engine::eligibility::{self, is_seen};
use crate::engine::feedback::suppressions::Suppressed;
use crate::store::DeliveryFilter;
use crate::wire::delivery::WaitReason;
use crate::wire::explanation::{
    BrandView, By, DigestView, Explanation, Fate, InBatch, InDelivery, LocaleView, Place, Why,
};

mod batches;
mod emails;

use batches::Batches;

/// Explains to operators which emails a user gets.
pub struct Explain {
    pub(crate) context: Arc<Context>,
    pub(crate) catalog: CatalogSource,
    /// Lists the batches of events.
    pub batches: BatchService,
    /// Finds the language of the user's emails.
    pub compose: Compose,
    /// Knows whether digests skip events that were seen in the feed.
    /// Finds the days before the window that are still read.
    pub backlog: BacklogDays,
}

/// The suffix of "they are unsubscribed" for users who still get mandatory types.
const BUT_MANDATORY: &str = ", so none but of mandatory types";
/// The most deliveries of a user that are read.
const A_PERSONS: usize = 10_000;
/// The number of newest days beyond `digest.max_age` that are read for expired events.
const EXPIRED_DAYS: usize = 60;
/// The most deliveries that are shown.
const SHOWN: usize = 10;

/// Returns when the delivery of this batch was settled.
fn settled_of(deliveries: &[Delivery], batch: Id) -> Option<DateTime<Utc>> {
    let id = DeliveryId::batch(batch);
    deliveries.iter().find(|row| row.id == id)?.outcome.settled
}

/// Describes a delivery: its state, why it waits or failed, and its next attempt.
fn in_delivery(row: &Delivery, now: DateTime<Utc>) -> InDelivery {
    let wait = WaitReason::of(row, now);
    InDelivery {
        id: row.id.clone(),
        state: row.state,
        reason: wait.why,
        next_attempt: wait.until.or(tried_again(row).filter(|at| *at > now)),
        held_by: wait.held_by,
    }
}

/// Returns the digest that covers this position: the open one, or the latest if it failed.
fn digest_of<'a>(deliveries: &'a [Delivery], stack: &StackId, index: u32) -> Option<&'a Delivery> {
    let is_digest = |row: &&Delivery| matches!(row.occasion, Occasion::Digest { .. });
    let mut digests = deliveries.iter().filter(is_digest);
    let includes = |row: &Delivery| {
        let mut reaches = row.watermarks.iter();
        reaches.any(|(of, reach)| of == stack && index < *reach)
    };
    let is_open = |row: &Delivery| row.open && !row.state.settled();
    let open = digests.clone().find(|row| is_open(row));
    let failed = || {
        digests
            .next()
            .filter(|row| row.state == DeliveryState::Failed)
    };
    open.or_else(failed).filter(|row| includes(row))
}

impl Explain {
    fn brand(&self, user: &User) -> Option<BrandView> {
        let config = &self.context.config;
        Some(BrandView {
            name: user.brand.clone()?,
            configured: config.brand_names().knows(user.brand.as_ref()),
        })
    }

    fn locale(&self, user: &User) -> LocaleView {
        let own = self.compose.of_brand(user.brand.as_ref());
        let renderer = &own.as_ref().unwrap_or(&self.compose).identity.renderer;
        LocaleView::of(user.locale.as_deref(), renderer.locale_of(user))
    }

    fn turned_off(&self, user: &User) -> Vec<EventType> {
        let chosen = user.types.iter();
        let off = chosen.filter(|(_, chosen)| chosen.route == Route::Never);
        let off = off.filter(|(kind, _)| !self.context.policies.is_mandatory(kind));
        off.map(|(kind, _)| kind.clone()).collect()
    }

    /// Explains one user's events, newest first. `only` selects an object or a position.
    pub async fn user(&self, user: &UserId, only: Option<&str>) -> Result<Explanation> {
        let (now, store) = (self.context.clock.now(), &*self.context.store);
        let config = &self.context.config;
        // The schedule of users who did not choose a cadence, weekday, hour or time zone.
        let default = &config.digest.schedule;
        let users = std::slice::from_ref(user);
        let reach = self.backlog.days_read(now);
        let old = self.backlog.old_days(&reach).await?;
        let mut expired = old.expired.clone();
        expired.extend(old.too_old.iter().map(|old| old.day));
        expired.sort_unstable();
        let expired = expired.split_off(expired.len().saturating_sub(EXPIRED_DAYS));
        let days = old.with_blocked().map(|old| old.day);
        let window = reach.window.with(days.chain(expired));
        let mut found = store.windows(window, users).await?;
        let record = store.users(users).await?.pop().flatten();
        let record = record.as_ref();
        let start = starts::of(store, user, record).await?;
        found.iter_mut().for_each(|person| person.begin_at(start));
        let theirs = DeliveryFilter::User(user);
        let mut deliveries = store.find_deliveries(&theirs, A_PERSONS).await?;
        deliveries.retain(|row| start.is_none_or(|start| !start.is_after(row.marker)));
        let theirs = BatchFilter {
            user: Some(user.clone()),
            ..BatchFilter::default()
        };
        let batches = Batches::of(&self.batches, &theirs).await?;
        let mut catalog = self.catalog.of_mails();
        catalog.load(batches.kept().iter()).await?;
        let suppressed = Suppressed::among(store, record).await?;
        let none = Mutes::default();
        let mut loaded = Loaded {
            explain: self,
            now,
            reach,
            record,
            mutes: record.map_or(&none, |user| &user.mutes),
            inbox: eligibility::load_inboxes(&self.context, users)
                .await?
                .pop()
                .flatten(),
            digests: record.and_then(|user| suppressed.digests(user, default)),
            wish: record.and_then(|user| {
                let (schedule, wish) = user.digests(default);
                (schedule.cadence != Cadence::Never).then_some(wish)
            }),
            held: batches.held(&self.batches, now).await?,
            deliveries: &deliveries,
            batches: &batches,
            muted: eligibility::MutedPositions::new(),
            sent: HashMap::new(),
        };
        let (mut events, mut full_days) = (Vec::new(), Vec::new());
        for person in &found {
            let of_stacks = person.stacks.iter().flat_map(|stack| stack.events());
            catalog.load(of_stacks.map(|(_, event)| event)).await?;
            loaded.muted = eligibility::muted_positions(person, loaded.mutes, &mut catalog).await?;
            for row in &deliveries {
                let covers = match row.occasion {
                    Occasion::Digest { .. } => person.hold_marker(row.marker),
                    Occasion::Batch { .. } => {
                        batches.includes(&row.id) && person.are_mailed_by(row.marker)
                    }
                };
                if covers {
                    let email = self.compose.as_sent(row, vec![record.cloned()]).await?;
                    loaded.sent.insert(row.marker, (row, email));
                }
            }
            events.extend(loaded.fates(person, &catalog));
            let is_full = |stack: &&Stack| stack.entries.len() >= config.fanout.day_cap;
            full_days.extend(person.stacks.iter().filter(is_full).map(|of| of.id.day));
        }
        let digests = loaded.digests;
        events.retain(|fate| only.is_none_or(|only| self.is_about(fate, only)));
        events.reverse();
        let digest = match record {
            None => None,
            Some(record) => {
                let schedule = record.schedule(default);
                let waiting = events.iter().filter(|fate| fate.why == Why::NextDigest);
                let oldest = waiting.map(|fate| fate.at).min();
                let by = match (oldest, &digests) {
                    (Some(_), Some((schedule, _))) => schedule,
                    _ => &schedule,
                };
                let next_due = due::next(store, user, by, oldest, now).await?;
                Some(DigestView {
                    tz: schedule.tz,
                    next_due,
                    schedule: schedule.into(),
                })
            }
        };
        let suppression = record.and_then(|user| suppressed.of(user)).cloned();
        let address = record.and_then(|user| user.email.as_ref());
        deliveries.truncate(SHOWN);
        Ok(Explanation {
            user: user.clone(),
            known: record.is_some(),
            name: record.and_then(|user| user.name.clone()),
            email: address.map(ToString::to_string),
            brand: record.and_then(|user| self.brand(user)),
            locale: record.map(|user| self.locale(user)),
            unreadable: record.map_or_else(Vec::new, |user| user.unreadable.clone()),
            unmailable: self.unmailable(record, &suppressed),
            suppression: suppression.map(Into::into),
            unsubscribed: record.and_then(|user| user.unsubscribed),
            turned_off: record.map_or_else(Vec::new, |user| self.turned_off(user)),
            digest,
            events,
            full_days,
            batches: self.batches.views(batches.unsettled()).await?,
            deliveries: deliveries.into_iter().map(Into::into).collect(),
        })
    }

    fn unmailable(&self, record: Option<&User>, suppressed: &Suppressed) -> Option<String> {
        let Some(user) = record else {
            return Some("there is no record of them".to_owned());
        };
        let gets_mandatory = suppressed.scope(user) == Ok(EmailScope::MandatoryOnly)
            && self.context.policies.always_mailed().next().is_some();
        let but = if gets_mandatory { BUT_MANDATORY } else { "" };
        let why = suppressed.mailable(user).err()?;
        Some(format!("they are {}{but}", why.as_str()))
    }

    /// Returns whether `only` names the event's object or position.
    fn is_about(&self, fate: &Fate, only: &str) -> bool {
        let policy = self.context.policies.of(&EventType::stored(&fate.kind));
        let key = ObjectKey::of(policy.model.as_ref(), &fate.object);
        let names = [fate.object.as_str(), key.as_str()];
        names.contains(&only) || fate.position.to_string() == only
    }
}

/// The loaded facts about one user.
struct Loaded<'a> {
    explain: &'a Explain,
    now: DateTime<Utc>,
    reach: DaysRead,
    record: Option<&'a User>,
    mutes: &'a Mutes,
    /// The positions of muted events, and since when they are muted.
    muted: eligibility::MutedPositions,
    /// The user's inbox, if digests skip seen events.
    inbox: Option<Inbox>,
    /// The digests that the user gets.
    digests: Option<(Schedule, EmailScope)>,
    /// The scope of the digests that the user wants, even if they may not be emailed.
    wish: Option<EmailScope>,
    deliveries: &'a [Delivery],
    batches: &'a Batches,
    /// When quiet hours end, for the batches that they defer.
    held: HashMap<Id, DateTime<Utc>>,
    /// The emails whose markers are on the stacks, by marker.
    sent: HashMap<Id, (&'a Delivery, SentEmail)>,
}

impl Loaded<'_> {
    fn has_seen(&self, place: Position) -> bool {
        let inbox = self.inbox.as_ref();
        inbox.is_some_and(|inbox| is_seen(inbox, place))
    }

    /// Explains the events of a user's stacks, oldest first.
    fn fates(&self, person: &PersonStacks, catalog: &Catalog) -> Vec<Fate> {
        let policies = &self.explain.context.policies;
        let digest = Purpose::Digest(EmailScope::All);
        let excluded = |place: Position, event: &Event| {
            let facts = Facts {
                muted: self.muted.contains_key(&place),
                seen: self.has_seen(place),
                ..catalog.facts(event)
            };
            let at = || event.at(place.stack.day);
            classify(&event.t, at, facts, self.record, policies, digest)
        };
        let mut eligible = person.clone();
        eligible.leave_out(|place, event| excluded(place, event).is_some());
        let pending = eligible.pending();
        let pending: HashSet<Position> = pending.iter().map(|of| of.position).collect();
        let mut fates = Vec::new();
        for stack in &person.stacks {
            let (covered, mailed) = (stack.covered(), stack.mailed());
            for (position, event) in stack.events() {
                let case = Case {
                    stack,
                    position,
                    event,
                    excluded: excluded(position, event),
                    object: catalog.facts(event),
                    is_covered: (position.index as usize) < covered,
                    is_mailed: event.i.is_some_and(|i| mailed.contains(&i)),
                    is_pending: pending.contains(&position),
                    batch: self.batches.holding(event),
                    digest: digest_of(self.deliveries, &stack.id, position.index),
                };
                let mut why = self.why(&case, catalog);
                if !self.is_shown(why, stack) {
                    continue;
                }
                let covered = match (why, case.batch) {
                    (Why::Covered, _) => self.by_marker(&case, catalog),
                    (Why::Mailed | Why::MayBeMailed, Some(batch)) => {
                        let email = self.batches.mail(batch);
                        email.and_then(|row| self.by_email(&case, row.marker, catalog))
                    }
                    _ => None,
                };
                let excludes = |by: &By| {
                    matches!(
                        by,
                        By::Mail {
                            place: Place::LeftOut,
                            ..
                        }
                    )
                };
                if why != Why::Covered && covered.as_ref().is_some_and(excludes) {
                    why = Why::LeftOut;
                }
                fates.push(self.fate(&case, why, covered, catalog));
            }
        }
        fates
    }

    /// Decides what becomes, or became, of an event.
    fn why(&self, case: &Case<'_>, catalog: &Catalog) -> Why {
        let (event, policies) = (case.event, &self.explain.context.policies);
        let at = event.at(case.stack.id.day);
        let route = match self.record {
            Some(user) => user.route(&event.t, at, policies),
            None => policies.of(&event.t).route,
        };
        let is_alone = route.is_mailed_alone();
        let is_muted = self.muted.contains_key(&case.position);
        let applies = !case.object.retracted && case.object.object == ObjectState::Notifiable;
        let waits = is_alone && applies && !is_muted;
        let in_batch = self.batches.why(event, case.batch, case.is_mailed, waits);
        // A muted event's batch was canceled because of the mute, so that is the reason to show.
        let in_batch = in_batch.filter(|why| !(is_muted && *why == Why::NotMailed));
        let admits = |scope: EmailScope| scope.admits(&event.t, policies);
        let gets = self.digests.is_some_and(|(_, scope)| admits(scope));
        match (case.excluded, in_batch) {
            (Some(Exclusion::Retracted), _) if !case.is_mailed && !case.is_covered => {
                Why::Retracted
            }
            (_, Some(why)) => why,
            _ if case.is_covered => Why::Covered,
            (Some(Exclusion::Muted), _) => {
                match eligibility::is_muted(self.mutes, event, self.now, catalog) {
                    true => Why::Muted,
                    false => Why::WasMuted,
                }
            }
            (Some(Exclusion::UnknownObject), _) => Why::UnknownObject,
            (Some(Exclusion::Withdrawn), _) => Why::Withdrawn,
            _ if is_alone => Why::NoBatch,
            (Some(Exclusion::Seen), _) => Why::Seen,
            (Some(Exclusion::OtherRoute | Exclusion::NotMandatory), _) => Why::NotForDigest,
            // Events before the start were removed by `begin_at`; only feeds have the other reason.
            (Some(Exclusion::BeforeStart | Exclusion::NotInFeed), _) => Why::NotForDigest,
            _ if !case.is_pending => Why::Repeated,
            _ if !gets && !self.wish.is_some_and(admits) => Why::NoDigest,
            _ if gets && case.digest.is_some_and(|row| row.open) => Why::InDelivery,
            _ if self.reach.is_too_old(case.stack.id.day) => Why::Expired,
            _ if gets => Why::NextDigest,
            _ => Why::Blocked,
        }
    }

    /// Returns whether the event is shown: of days before the window, only the backlog is.
    fn is_shown(&self, why: Why, stack: &Stack) -> bool {
        let is_too_old = self.reach.is_too_old(stack.id.day);
        match why {
            Why::InDelivery | Why::NextDigest | Why::Blocked | Why::Expired => true,
            Why::NoDigest => !is_too_old,
            _ => !is_too_old && !self.reach.is_older(stack.id.day),
        }
    }

    fn fate(&self, case: &Case<'_>, why: Why, covered: Option<By>, catalog: &Catalog) -> Fate {
        let (event, policies) = (case.event, &self.explain.context.policies);
        let delivery = match why {
            Why::Closing => case.batch.and_then(|batch| self.batches.waiting(batch)),
            Why::InDelivery | Why::NextDigest => case.digest,
            _ => None,
        };
        let object = catalog.record(event);
        Fate {
            position: case.position,
            kind: event.t.to_string(),
            object: event.o.clone(),
            title: object.map(|object| object.label().into_owned()),
            at: event.at(case.stack.id.day),
            why,
            mandatory: policies.is_mandatory(&event.t),
            in_feed: policies.of(&event.t).feed,
            batch: case.batch.map(|batch| InBatch {
                id: batch.id,
                closes_at: self.held.get(&batch.id).copied().unwrap_or(batch.closes_at),
                held_until: self.held.get(&batch.id).copied(),
                reason: self.batches.reason(batch.id),
                settled: settled_of(self.deliveries, batch.id),
            }),
            delivery: delivery.map(|row| in_delivery(row, self.now)),
            covered,
        }
    }
}

/// The facts about one event that decide its reason.
struct Case<'a> {
    stack: &'a Stack,
    position: Position,
    event: &'a Event,
    excluded: Option<Exclusion>,
    object: Facts,
    is_covered: bool,
    is_mailed: bool,
    is_pending: bool,
    batch: Option<&'a Batch>,
    digest: Option<&'a Delivery>,
}
