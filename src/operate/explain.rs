//! Why somebody did or did not get something: what is on their stacks, what each event's way was,
//! what the ledger says.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::context::Context;
use crate::domain::content::Caps;
use crate::domain::digest::wanted;
use crate::domain::digest_row::tried_again;
use crate::domain::user::Extent;
use crate::domain::{
    Brands, Cadence, Delivery, DeliveryId, DeliveryState, Event, EventType, Id, Mutes, ObjectKey,
    Occasion, Position, Route, Schedule, StackId, User, UserId,
};
use crate::engine::Result;
use crate::engine::batches::{BatchFilter, BatchService};
use crate::engine::delivery::Compose;
use crate::engine::delivery::deliveries::Wait;
use crate::engine::delivery::mails::{BatchMail, Mails};
use crate::engine::digest::due;
use crate::engine::digest::owed::OwedDays;
use crate::engine::directory::starts;
use crate::engine::eligibility::catalog::CatalogSource;
use crate::engine::eligibility::mutes;
use crate::engine::eligibility::skip_seen::SkipSeen;
use crate::engine::feedback::suppressions::Suppressed;
use crate::store::{DeliveryFilter, People};
use crate::wire::explanation::{
    BrandView, By, DigestView, Explanation, Fate, InBatch, InDelivery, LeftOut, LocaleView, Place,
    Why,
};

mod gathered;

use gathered::Batches;

/// Tells operators what a person gets, and why.
pub struct Explain {
    pub(crate) context: Arc<Context>,
    pub(crate) catalog: CatalogSource,
    /// Shows the batches that events are in.
    pub batches: BatchService,
    /// Knows in which words mails are.
    pub compose: Compose,
    /// The brands there are.
    pub brands: Brands,
    /// What holds for people who did not choose cadence, weekday, hour or time zone.
    pub schedule: Schedule,
    /// Says what digests leave out as it was seen in the feed.
    pub skip_seen: SkipSeen,
    /// Says which days before the window are still read.
    pub owed: OwedDays,
    /// The most entries of a person's day (`fanout.day_cap`); a stack with as many is full.
    pub day_cap: usize,
    /// How many items a section and a mail show; the others are only counted.
    pub caps: Caps,
}

/// What follows "no mail leaves: they are unsubscribed" where that is not the whole truth.
const BUT_MANDATORY: &str = ", so none but of mandatory types";
/// A person has no more mails than this of which anybody asks.
const A_PERSONS: usize = 10_000;
/// How many of the newest days older than `digest.max_age` are read for expired events.
const EXPIRED_DAYS: usize = 60;
/// How many of a person's mails are shown.
const SHOWN: usize = 10;

/// When the mail of this batch was settled.
fn settled_of(deliveries: &[Delivery], batch: Id) -> Option<DateTime<Utc>> {
    let id = DeliveryId::batch(batch);
    deliveries.iter().find(|row| row.id == id)?.settled
}

/// The delivery with why it waits or failed, and until when.
fn in_delivery(row: &Delivery, now: DateTime<Utc>) -> InDelivery {
    let wait = Wait::of(row, now);
    InDelivery {
        id: row.id.clone(),
        state: row.state,
        reason: wait.why,
        next_attempt: wait.until.or(tried_again(row).filter(|at| *at > now)),
        held_by: wait.held_by,
    }
}

/// The digest that includes the event at this position: an open one, or the latest if it failed.
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
        Some(BrandView {
            name: user.brand.clone()?,
            configured: self.brands.knows(user.brand.as_ref()),
        })
    }

    fn locale(&self, user: &User) -> LocaleView {
        let own = self.compose.of_brand(user.brand.as_ref());
        let renderer = &own.as_ref().unwrap_or(&self.compose).renderer;
        LocaleView::of(user.locale.as_deref(), renderer.locale_of(user))
    }

    fn turned_off(&self, user: &User) -> Vec<EventType> {
        let chosen = user.types.iter();
        let off = chosen.filter(|(_, chosen)| chosen.route == Route::Never);
        let off = off.filter(|(kind, _)| !self.context.policies.is_mandatory(kind));
        off.map(|(kind, _)| kind.clone()).collect()
    }

    /// Explains one person, newest event first; `only` narrows it to one object or position.
    pub async fn user(&self, user: &UserId, only: Option<&str>) -> Result<Explanation> {
        let now = self.context.clock.now();
        let reach = self.owed.days_read(now);
        let old = self.owed.look(&reach).await?;
        let mut expired = old.expired.clone();
        expired.extend(old.too_old.iter().map(|old| old.day));
        expired.sort_unstable();
        let expired = expired.split_off(expired.len().saturating_sub(EXPIRED_DAYS));
        let days = old.with_blocked().map(|old| old.day);
        let window = reach.window.with(days.chain(expired));
        let mut found = self
            .context
            .store
            .windows(window, People::Each(std::slice::from_ref(user)))
            .await?;
        let record = self
            .context
            .store
            .users(std::slice::from_ref(user))
            .await?
            .pop()
            .flatten();
        let start = starts::of(&*self.context.store, user, record.as_ref()).await?;
        found.iter_mut().for_each(|person| person.begin_at(start));
        let theirs = DeliveryFilter::User(user);
        let mut deliveries = self
            .context
            .store
            .find_deliveries(&theirs, A_PERSONS)
            .await?;
        deliveries.retain(|row| start.is_none_or(|start| !start.is_after(row.marker)));
        let theirs = BatchFilter {
            user: Some(user.clone()),
            ..BatchFilter::default()
        };
        let batches = Batches::of(&self.batches, &theirs).await?;
        let held = batches.held(&self.batches, now).await?;
        let mut catalog = self.catalog.of_mails();
        catalog.load(batches.kept().iter()).await?;
        let is_seen = self.skip_seen.of(user).await?;
        let (mut events, mut full_days) = (Vec::new(), Vec::new());
        let suppressed = Suppressed::among(&*self.context.store, &record).await?;
        let digests = record.as_ref();
        let digests = digests.and_then(|user| suppressed.digests(user, &self.schedule));
        let blocks = |kind: &EventType| {
            record.as_ref().is_some_and(|user| {
                let (schedule, wish) = user.digests(&self.schedule);
                schedule.cadence != Cadence::Never && wish.admits(kind, &self.context.policies)
            })
        };
        let gets_in_digests = |kind: &EventType| {
            digests
                .as_ref()
                .is_some_and(|(_, extent)| extent.admits(kind, &self.context.policies))
        };
        let nothing = Mutes::default();
        let theirs = record.as_ref().map_or(&nothing, |user| &user.mutes);
        for person in &found {
            catalog
                .load(
                    person
                        .stacks
                        .iter()
                        .flat_map(|stack| stack.events())
                        .map(|(_, event)| event),
                )
                .await?;
            let muted = mutes::places(person, theirs, &mut catalog).await?;
            let aside = |place: Position, then| match muted.get(&place) {
                Some(since) if *since <= then => Some(LeftOut::Muted),
                _ => is_seen(place).then_some(LeftOut::Seen),
            };
            let mut standing = person.clone();
            standing.leave_out(|place, event| {
                catalog.is_retracted(event) || aside(place, now).is_some()
            });
            let pending = match &record {
                Some(user) => wanted(&standing, user, &self.context.policies),
                None => standing.pending(),
            };
            let pending: Vec<Position> = pending.iter().map(|pending| pending.position).collect();
            let mails = Mails::of(
                &deliveries,
                person,
                record.as_ref(),
                &self.context.policies,
                self.caps,
                &catalog,
                aside,
            );
            let mut of_batches: HashMap<Id, BatchMail<'_>> = HashMap::new();
            for stack in &person.stacks {
                let (end, mailed) = (stack.covered(), stack.mailed());
                let is_too_old = reach.is_too_old(stack.id.day);
                full_days.extend((stack.entries.len() >= self.day_cap).then_some(stack.id.day));
                for (position, event) in stack.events() {
                    let at = event.at(stack.id.day);
                    let object = catalog.record(event);
                    let wanted = record.as_ref().is_none_or(|user| {
                        user.wants_in_digest(&event.t, || at, &self.context.policies)
                    });
                    let alone = match &record {
                        Some(user) => user.route(&event.t, at, &self.context.policies),
                        None => self.context.policies.of(&event.t).route,
                    };
                    let alone = alone.is_mailed_alone();
                    let applies = catalog.applies(event).is_some();
                    let is_mailed = event.i.is_some_and(|i| mailed.contains(&i));
                    let holding = batches.holding(event);
                    let digest = digest_of(&deliveries, &stack.id, position.index);
                    let muted_since = muted.get(&position).copied();
                    let is_muted = muted_since.is_some();
                    let waits = alone && applies && !is_muted;
                    let in_batch = batches.why(event, holding, is_mailed, waits);
                    // Its batch was canceled for nothing else, as far as it goes.
                    let in_batch = in_batch.filter(|why| !(is_muted && *why == Why::NotMailed));
                    let is_covered = (position.index as usize) < end;
                    let why = if catalog.is_retracted(event) && !is_mailed && !is_covered {
                        Why::Retracted
                    } else if let Some(in_batch) = in_batch {
                        in_batch
                    } else if is_covered {
                        Why::Covered
                    } else if is_muted {
                        match mutes::is_muted(theirs, event, now, &catalog) {
                            true => Why::Muted,
                            false => Why::WasMuted,
                        }
                    } else if catalog.record(event).is_none() {
                        Why::UnknownObject
                    } else if !applies {
                        Why::Withdrawn
                    } else if alone {
                        Why::NoBatch
                    } else if !wanted {
                        Why::NotForDigest
                    } else if is_seen(position) {
                        Why::Seen
                    } else if !pending.contains(&position) {
                        // Only what a digest would tell is told once.
                        Why::Repeated
                    } else if !gets_in_digests(&event.t) && !blocks(&event.t) {
                        Why::NoDigest
                    } else if gets_in_digests(&event.t) && digest.is_some_and(|row| row.open) {
                        Why::InDelivery
                    } else if is_too_old {
                        Why::Expired
                    } else if gets_in_digests(&event.t) {
                        Why::NextDigest
                    } else {
                        Why::Blocked
                    };
                    let delivery = match why {
                        Why::Closing => holding.and_then(|batch| batches.waiting(batch)),
                        Why::InDelivery | Why::NextDigest => digest,
                        _ => None,
                    };
                    let is_shown = match why {
                        Why::InDelivery | Why::NextDigest | Why::Blocked | Why::Expired => true,
                        Why::NoDigest => !is_too_old,
                        _ => !is_too_old && !reach.is_older(stack.id.day),
                    };
                    if !is_shown {
                        continue;
                    }
                    let covered = match (why, holding) {
                        (Why::Covered, _) => mails.by(stack, position),
                        (Why::Mailed | Why::MayBeMailed, Some(batch)) => {
                            batches.mail(batch).map(|row| {
                                let (user, policies) = (record.as_ref(), &self.context.policies);
                                let muted = |event: &Event| {
                                    mutes::since(theirs, event, event.i?.time(), &catalog)
                                };
                                let of = || {
                                    BatchMail::of(
                                        batch, row, person, user, policies, &catalog, muted,
                                    )
                                };
                                let mail = of_batches.entry(batch.id).or_insert_with(of);
                                mail.by(event, muted_since)
                            })
                        }
                        _ => None,
                    };
                    let left_out = |by: &By| {
                        let place = Place::LeftOut;
                        matches!(by, By::Mail { place: at, .. } if *at == place)
                    };
                    let is_left_out = why != Why::Covered && covered.as_ref().is_some_and(left_out);
                    let why = if is_left_out { Why::LeftOut } else { why };
                    let title = object.map(|object| object.label().into_owned());
                    events.push(Fate {
                        position,
                        kind: event.t.to_string(),
                        object: event.o.clone(),
                        title,
                        at,
                        why,
                        mandatory: self.context.policies.is_mandatory(&event.t),
                        in_feed: self.context.policies.of(&event.t).feed,
                        batch: holding.map(|batch| InBatch {
                            id: batch.id,
                            closes_at: held.get(&batch.id).copied().unwrap_or(batch.closes_at),
                            held_until: held.get(&batch.id).copied(),
                            reason: batches.reason(batch.id),
                            settled: settled_of(&deliveries, batch.id),
                        }),
                        delivery: delivery.map(|row| in_delivery(row, now)),
                        covered,
                    });
                }
            }
        }
        deliveries.truncate(SHOWN);
        let is_object = |fate: &Fate, only: &str| {
            let model = self
                .context
                .policies
                .of(&EventType::stored(&fate.kind))
                .model
                .as_ref();
            [
                fate.object.as_str(),
                ObjectKey::new(model, &fate.object).as_str(),
            ]
            .contains(&only)
        };
        events.retain(|fate| {
            only.is_none_or(|only| is_object(fate, only) || fate.position.to_string() == only)
        });
        events.reverse();
        let unmailable = match &record {
            None => Some("there is no record of them".to_owned()),
            Some(user) => {
                let obliged = suppressed.extent(user) == Ok(Extent::Mandatory)
                    && self.context.policies.always_mailed().next().is_some();
                let but = if obliged { BUT_MANDATORY } else { "" };
                let why = suppressed.mailable(user).err();
                why.map(|why| format!("they are {}{but}", why.as_str()))
            }
        };
        let digest = match &record {
            None => None,
            Some(record) => {
                let schedule = record.schedule(&self.schedule);
                let waiting = events.iter().filter(|fate| fate.why == Why::NextDigest);
                let oldest = waiting.map(|fate| fate.at).min();
                let by = match (oldest, &digests) {
                    (Some(_), Some((schedule, _))) => schedule,
                    _ => &schedule,
                };
                let next = due::next(&*self.context.store, user, by, oldest, now);
                Some(DigestView {
                    tz: schedule.tz,
                    next_due: next.await?,
                    schedule: schedule.into(),
                })
            }
        };
        let record = record.as_ref();
        let suppression = record.and_then(|user| suppressed.of(user)).cloned();
        let address = record.and_then(|user| user.email.as_ref());
        Ok(Explanation {
            user: user.clone(),
            known: record.is_some(),
            name: record.and_then(|user| user.name.clone()),
            email: address.map(ToString::to_string),
            brand: record.and_then(|user| self.brand(user)),
            locale: record.map(|user| self.locale(user)),
            unreadable: record.map_or_else(Vec::new, |user| user.unreadable.clone()),
            unmailable,
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
}
