//! Decides what becomes, or became, of each event, and which email included or excluded it.
//!
//! The content of a sent email is reconstructed ([`SentEmail`]). If it does not fit the row, the
//! place of an event in it is unknown. Start with [`Loaded::fates`].

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};

use crate::domain::digest_content::retry_at;
use crate::domain::{
    Batch, BatchState, DaysRead, Delivery, DeliveryId, DeliveryState, DigestMarker, EmailScope,
    Event, EventType, Exclusion, Facts, Id, Inbox, Mutes, ObjectState, Occasion, Policies,
    Position, Purpose, Schedule, Stack, StackId, User, UserId, UserStacks, batch, classify,
    email_content,
};
use crate::engine::Result;
use crate::engine::batches::{BatchFilter, BatchService};
use crate::engine::delivery::{Selected, SentEmail};
use crate::engine::eligibility::event_facts::Catalog;
use crate::engine::eligibility::{self, is_seen};
use crate::wire::delivery::WaitReason;
use crate::wire::explanation::{By, EmailPlace, Fate, InBatch, InDelivery, Why};

/// The loaded facts about one user.
pub(super) struct Loaded<'a> {
    pub policies: &'a Policies,
    pub now: DateTime<Utc>,
    pub reach: DaysRead,
    pub record: Option<&'a User>,
    pub mutes: &'a Mutes,
    /// The positions of muted events, and since when they are muted.
    pub muted: eligibility::MutedPositions,
    /// The user's inbox, if digests skip seen events.
    pub inbox: Option<Inbox>,
    /// The digests that the user gets.
    pub digests: Option<(Schedule, EmailScope)>,
    /// The scope of the digests that the user wants, even if they may not be emailed.
    pub wish: Option<EmailScope>,
    pub deliveries: &'a [Delivery],
    pub batches: &'a UserBatches,
    /// When quiet hours end, for the batches that they defer.
    pub held: HashMap<Id, DateTime<Utc>>,
    /// The emails whose markers are on the stacks, by marker.
    pub sent: HashMap<Id, (&'a Delivery, SentEmail)>,
}

impl Loaded<'_> {
    fn has_seen(&self, place: Position) -> bool {
        let inbox = self.inbox.as_ref();
        inbox.is_some_and(|inbox| is_seen(inbox, place))
    }

    /// Explains the events of a user's stacks, oldest first.
    pub(super) fn fates(&self, person: &UserStacks, catalog: &Catalog) -> Vec<Fate> {
        let policies = self.policies;
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
        eligible.exclude(|place, event| excluded(place, event).is_some());
        let pending = eligible.pending();
        let pending: HashSet<Position> = pending.iter().map(|of| of.position).collect();
        let mut fates = Vec::new();
        for stack in &person.stacks {
            let (covered, mailed) = (stack.covered(), stack.emailed_ids());
            for (position, event) in stack.events() {
                let case = Case {
                    stack,
                    position,
                    event,
                    catalog,
                    excluded: excluded(position, event),
                    is_covered: (position.index as usize) < covered,
                    is_emailed: event.i.is_some_and(|i| mailed.contains(&i)),
                    is_pending: pending.contains(&position),
                    batch: self.batches.holding(event),
                    digest: digest_of(self.deliveries, &stack.id, position.index),
                };
                let mut why = self.why(&case);
                if !self.is_shown(why, stack) {
                    continue;
                }
                let covered = match (why, case.batch) {
                    (Why::Covered, _) => self.by_marker(&case),
                    (Why::Mailed | Why::MayBeMailed, Some(batch)) => {
                        let email = self.batches.delivery(batch);
                        let email = email.filter(|row| row.state.flushes());
                        email.and_then(|row| self.by_email(&case, row.marker))
                    }
                    _ => None,
                };
                let excludes = |by: &By| matches!(by, By::Email { place, .. } if *place == EmailPlace::Excluded);
                if why != Why::Covered && covered.as_ref().is_some_and(excludes) {
                    why = Why::Excluded;
                }
                fates.push(self.fate(&case, why, covered));
            }
        }
        fates
    }

    /// Decides what becomes, or became, of an event.
    fn why(&self, case: &Case<'_>) -> Why {
        let (event, policies) = (case.event, self.policies);
        let at = event.at(case.stack.id.day);
        let route = match self.record {
            Some(user) => user.route(&event.t, at, policies),
            None => policies.of(&event.t).route,
        };
        let is_alone = route.is_emailed_alone();
        let is_muted = self.muted.contains_key(&case.position);
        let facts = case.catalog.facts(event);
        let applies = !facts.retracted && facts.object == ObjectState::Notifiable;
        let waits = is_alone && applies && !is_muted;
        let in_batch = self.batches.why(case, waits);
        // A muted event's batch was canceled because of the mute, so that is the reason to show.
        let in_batch = in_batch.filter(|why| !(is_muted && *why == Why::NotMailed));
        let admits = |scope: EmailScope| scope.admits(&event.t, policies);
        let gets = self.digests.is_some_and(|(_, scope)| admits(scope));
        let mutes_it = || eligibility::is_muted(self.mutes, event, self.now, case.catalog);
        let is_sent = case.is_emailed || case.is_covered;
        match (case.excluded, in_batch) {
            (Some(Exclusion::Retracted), _) if !is_sent => Why::Retracted,
            (_, Some(why)) => why,
            _ if case.is_covered => Why::Covered,
            (Some(Exclusion::Muted), _) if mutes_it() => Why::Muted,
            (Some(Exclusion::Muted), _) => Why::WasMuted,
            (Some(Exclusion::UnknownObject), _) => Why::UnknownObject,
            (Some(Exclusion::Withdrawn), _) => Why::Withdrawn,
            _ if is_alone => Why::NoBatch,
            (Some(Exclusion::Seen), _) => Why::Seen,
            // Another route, or not mandatory. `begin_at` removed events before the start.
            (Some(_), _) => Why::NotForDigest,
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

    fn fate(&self, case: &Case<'_>, why: Why, covered: Option<By>) -> Fate {
        let (event, policies) = (case.event, self.policies);
        let of_batch = case.batch.and_then(|batch| self.batches.delivery(batch));
        let delivery = match why {
            Why::Closing => of_batch.filter(|row| !row.state.settled()),
            Why::InDelivery | Why::NextDigest => case.digest,
            _ => None,
        };
        let outcome = of_batch.map(|row| row.outcome.clone()).unwrap_or_default();
        let object = case.catalog.record(event);
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
                closes_at: *self.held.get(&batch.id).unwrap_or(&batch.closes_at),
                held_until: self.held.get(&batch.id).copied(),
                reason: outcome.reason,
                settled: outcome.settled,
            }),
            delivery: delivery.map(|row| in_delivery(row, self.now)),
            covered,
        }
    }

    /// Returns the email, flush or older writer whose marker covers the event, if any.
    ///
    /// The first marker over an event decides. Its id is that of a delivery, or else of a flush,
    /// because the ledger is kept longer than the window.
    fn by_marker(&self, case: &Case<'_>) -> Option<By> {
        let DigestMarker { id, n } = *case.stack.covering(case.position.index)?;
        let email = id.and_then(|id| self.by_email(case, id));
        email.or(Some(match (id.map(Id::time), n) {
            (Some(at), Some(_)) => By::Flush { at },
            (at, _) => By::OlderWriter { at },
        }))
    }

    /// Returns the email with this marker, and the place of the event in it.
    fn by_email(&self, case: &Case<'_>, marker: Id) -> Option<By> {
        let (row, sent) = self.sent.get(&marker)?;
        let (place, excluded) = self.place(case, row, sent);
        Some(By::Email {
            delivery: row.id.clone(),
            state: row.state,
            at: row.outcome.settled.unwrap_or(row.built_at()),
            place,
            excluded,
        })
    }

    /// Returns where in a sent email the event is, or why the email excluded it.
    fn place(
        &self,
        case: &Case<'_>,
        row: &Delivery,
        sent: &SentEmail,
    ) -> (EmailPlace, Option<Why>) {
        let (event, built, catalog) = (case.event, row.built_at(), case.catalog);
        let included = |email: &&Selected| {
            // Fewer events than were recorded lack only objects that were withdrawn since.
            sent.is_exact || email.content.total < u64::from(row.outcome.items)
        };
        let email = sent.email.as_ref().ok().filter(included);
        if let Some(email) = email {
            let is_it = |(kind, item): (&EventType, &email_content::EmailItem)| {
                *kind == event.t && item.id == event.o
            };
            let is_kept = |batch: &Batch| batch.contents.items.iter().any(|of| is_event(of, event));
            if email.included.contains(event) {
                return match email.content.items().any(is_it) {
                    true => (EmailPlace::Shown, None),
                    false => (EmailPlace::Counted, None),
                };
            } else if email.counts_others && !case.batch.is_some_and(is_kept) {
                return (EmailPlace::Counted, None);
            }
        }
        let is_same = |other: &Event| other.t == event.t && other.o == event.o;
        let is_repeated = email.is_some_and(|email| email.included.iter().any(is_same));
        let muted = self.muted.get(&case.position);
        let is_seen = self.has_seen(case.position) && case.batch.is_none();
        let reasons = [
            (catalog.was_retracted(event, built), Why::Retracted),
            (catalog.recorded(event).is_none(), Why::UnknownObject),
            (catalog.mailable(event).is_none(), Why::Withdrawn),
            (muted.is_some_and(|since| *since <= built), Why::Muted),
            (is_repeated, Why::Repeated),
            (is_seen, Why::Seen),
        ];
        let mut reasons = reasons.into_iter().filter(|(applies, _)| *applies);
        let why = reasons.next().map_or(Why::NotForDigest, |(_, why)| why);
        match sent.is_exact || matches!(why, Why::Retracted | Why::UnknownObject) {
            true => (EmailPlace::Excluded, Some(why)),
            false => (EmailPlace::Unknown, None),
        }
    }
}

/// Returns whether a batch's item is this event.
fn is_event(item: &batch::BatchItem, event: &Event) -> bool {
    Some(item.i) == event.i && item.t == event.t && item.o == event.o
}

/// Describes a delivery: its state, why it waits or failed, and its next attempt.
fn in_delivery(row: &Delivery, now: DateTime<Utc>) -> InDelivery {
    let wait = WaitReason::of(row, now);
    InDelivery {
        id: row.id.clone(),
        state: row.state,
        reason: wait.why,
        next_attempt: wait.until.or(retry_at(row).filter(|at| *at > now)),
        held_by: wait.held_by,
    }
}

/// Returns the digest that covers this position: the open one, or the latest if it failed.
fn digest_of<'a>(deliveries: &'a [Delivery], stack: &StackId, index: u32) -> Option<&'a Delivery> {
    let is_digest = |row: &&Delivery| matches!(row.occasion, Occasion::Digest(..));
    let mut digests = deliveries.iter().filter(is_digest);
    let includes = |row: &Delivery| {
        let mut reaches = row.watermarks.iter();
        reaches.any(|(of, reach)| of == stack && index < *reach)
    };
    let open = digests.clone().find(|row| row.open && !row.state.settled());
    let is_failed = |row: &&Delivery| row.state == DeliveryState::Failed;
    let failed = || digests.next().filter(is_failed);
    open.or_else(failed).filter(|row| includes(row))
}

/// The facts about one event that decide its reason.
struct Case<'a> {
    stack: &'a Stack,
    position: Position,
    event: &'a Event,
    catalog: &'a Catalog,
    excluded: Option<Exclusion>,
    is_covered: bool,
    is_emailed: bool,
    is_pending: bool,
    batch: Option<&'a Batch>,
    digest: Option<&'a Delivery>,
}

/// The most batches of a user that are read, newest first.
const BATCHES: usize = 200;
/// A user's batches, newest first, and their deliveries.
///
/// A marker on the stack outranks the batch's record. A batch that keeps the event outranks one
/// that only remembers its id: a lead's ids are also remembered by the batch that it opened.
pub(super) struct UserBatches {
    pub(super) all: Vec<Batch>,
    pub(super) deliveries: HashMap<DeliveryId, Delivery>,
}

impl UserBatches {
    pub(super) async fn of(book: &BatchService, user: &UserId) -> Result<Self> {
        let all = book.list(&BatchFilter::of(user), BATCHES).await?;
        let ids: Vec<DeliveryId> = all.iter().map(|b| DeliveryId::batch(b.id)).collect();
        let deliveries = book.context.store.deliveries(&ids).await?;
        let deliveries = deliveries.into_iter().flatten();
        let deliveries = deliveries.map(|row| (row.id.clone(), row)).collect();
        Ok(Self { all, deliveries })
    }

    /// Returns the batches whose emails are not settled yet.
    pub(super) fn unsettled(&self) -> Vec<Batch> {
        let is_unsettled = |state| matches!(state, BatchState::Open | BatchState::Closing);
        let unsettled = self.all.iter().filter(|batch| is_unsettled(batch.state));
        unsettled.cloned().collect()
    }

    /// Returns the batch that the event joined, if it is known.
    fn holding(&self, event: &Event) -> Option<&Batch> {
        let i = event.i?;
        let keeps = |batch: &&Batch| {
            let mut items = batch.contents.items.iter().chain(&batch.removed);
            items.any(|item| is_event(item, event))
        };
        let own = |batch: &&Batch| batch.own_fanouts().any(|own| own == i);
        let of_lead = |batch: &&Batch| batch.has_joined(i);
        let all = || self.all.iter();
        let found = all().find(keeps).or_else(|| all().find(own));
        found.or_else(|| all().find(of_lead))
    }

    /// Returns the events that these batches keep.
    pub(super) fn kept(&self) -> Vec<Event> {
        let kept = self.all.iter().flat_map(|batch| &batch.contents.items);
        kept.cloned().map(Event::from).collect()
    }

    fn delivery(&self, batch: &Batch) -> Option<&Delivery> {
        self.deliveries.get(&DeliveryId::batch(batch.id))
    }

    /// Returns the outcome of the event in the batch that holds it; `None` if batches do not decide
    /// it. `waits` is whether an open batch would include it.
    fn why(&self, case: &Case<'_>, waits: bool) -> Option<Why> {
        let Some(batch) = case.batch else {
            return case.is_emailed.then_some(Why::Mailed);
        };
        if batch.removed.iter().any(|item| is_event(item, case.event)) {
            return Some(Why::TakenOut);
        }
        let delivery = self.delivery(batch);
        let doubtful = delivery.is_some_and(|row| row.state == DeliveryState::Unknown);
        match batch.state {
            _ if case.is_emailed && doubtful => Some(Why::MayBeMailed),
            _ if case.is_emailed => Some(Why::Mailed),
            BatchState::Open => waits.then_some(Why::Gathering),
            BatchState::Closing => waits.then_some(Why::Closing),
            BatchState::Closed | BatchState::Canceled => Some(Why::NotMailed),
        }
    }
}
