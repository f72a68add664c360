//! Decides what becomes, or became, of each event, and which email included or excluded it.
//!
//! The content of a sent email is reconstructed ([`ReconstructedEmail`]). If it does not fit the
//! row, the place of an event in it is unknown. Start with [`Loaded::fates`].

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};

use crate::domain::digest_content::next_retry_at;
use crate::domain::{
    Batch, BatchState, Delivery, DeliveryId, DeliverySource, DeliveryState, DigestDays,
    DigestMarker, EligibilityFacts, EmailScope, Event, EventType, Exclusion, Id, Inbox, Mutes,
    ObjectState, Policies, Position, Purpose, Schedule, Stack, StackId, User, UserId, UserStacks,
    batch, classify, email_content,
};
use crate::engine::Result;
use crate::engine::batches::{BatchFilter, BatchService};
use crate::engine::delivery::{ReconstructedEmail, SelectedEvents};
use crate::engine::eligibility::event_facts::EventFacts;
use crate::engine::eligibility::{self, is_seen};
use crate::wire::delivery::WaitReason;
use crate::wire::explanation::{
    CoveredBy, EmailPlace, EventStatus, ExplainedBatch, ExplainedDelivery, ExplainedEvent,
};

/// The loaded facts about one user.
pub(super) struct Loaded<'a> {
    pub policies: &'a Policies,
    pub now: DateTime<Utc>,
    pub reach: DigestDays,
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
    pub sent: HashMap<Id, (&'a Delivery, ReconstructedEmail)>,
}

impl Loaded<'_> {
    fn has_seen(&self, place: Position) -> bool {
        let inbox = self.inbox.as_ref();
        inbox.is_some_and(|inbox| is_seen(inbox, place))
    }

    /// Explains the events of a user's stacks, oldest first.
    pub(super) fn fates(&self, person: &UserStacks, catalog: &EventFacts) -> Vec<ExplainedEvent> {
        let policies = self.policies;
        let digest = Purpose::Digest(EmailScope::All);
        let excluded = |place: Position, event: &Event| {
            let facts = EligibilityFacts {
                muted: self.muted.contains_key(&place),
                seen: self.has_seen(place),
                ..catalog.facts(event)
            };
            let at = || event.time(place.stack.day);
            classify(&event.kind, at, facts, self.record, policies, digest)
        };
        let mut eligible = person.clone();
        eligible.hide(|place, event| excluded(place, event).is_some());
        let pending = eligible.pending();
        let pending: HashSet<Position> = pending.iter().map(|of| of.position).collect();
        let mut fates = Vec::new();
        for stack in &person.stacks {
            let (covered, mailed) = (stack.covered_count(), stack.emailed_ids());
            for (position, event) in stack.events() {
                let case = Case {
                    stack,
                    position,
                    event,
                    catalog,
                    excluded: excluded(position, event),
                    is_covered: (position.index as usize) < covered,
                    is_emailed: event.fanout_id.is_some_and(|i| mailed.contains(&i)),
                    is_pending: pending.contains(&position),
                    batch: self.batches.holding(event),
                    digest: digest_of(self.deliveries, &stack.id, position.index),
                };
                let mut why = self.why(&case);
                if !self.is_shown(why, stack) {
                    continue;
                }
                let covered = match (why, case.batch) {
                    (EventStatus::Covered, _) => self.by_marker(&case),
                    (EventStatus::Emailed | EventStatus::MayBeEmailed, Some(batch)) => {
                        let email = self.batches.delivery(batch);
                        let email = email.filter(|row| row.state.needs_markers());
                        email.and_then(|row| self.by_email(&case, row.marker))
                    }
                    _ => None,
                };
                let excludes = |by: &CoveredBy| matches!(by, CoveredBy::Email { place, .. } if *place == EmailPlace::Excluded);
                if why != EventStatus::Covered && covered.as_ref().is_some_and(excludes) {
                    why = EventStatus::Excluded;
                }
                fates.push(self.fate(&case, why, covered));
            }
        }
        fates
    }

    /// Decides what becomes, or became, of an event.
    fn why(&self, case: &Case<'_>) -> EventStatus {
        let (event, policies) = (case.event, self.policies);
        let at = event.time(case.stack.id.day);
        let route = match self.record {
            Some(user) => user.route(&event.kind, at, policies),
            None => policies.policy(&event.kind).route,
        };
        let is_alone = route.is_outside_digest();
        let is_muted = self.muted.contains_key(&case.position);
        let facts = case.catalog.facts(event);
        let applies = !facts.retracted && facts.object == ObjectState::Notifiable;
        let waits = is_alone && applies && !is_muted;
        let in_batch = self.batches.why(case, waits);
        // A muted event's batch was canceled because of the mute, so that is the reason to show.
        let in_batch = in_batch.filter(|why| !(is_muted && *why == EventStatus::NotEmailed));
        let admits = |scope: EmailScope| scope.admits(&event.kind, policies);
        let gets = self.digests.is_some_and(|(_, scope)| admits(scope));
        let mutes_it = || eligibility::is_muted(self.mutes, event, self.now, case.catalog);
        let is_sent = case.is_emailed || case.is_covered;
        match (case.excluded, in_batch) {
            (Some(Exclusion::Retracted), _) if !is_sent => EventStatus::Retracted,
            (_, Some(why)) => why,
            _ if case.is_covered => EventStatus::Covered,
            (Some(Exclusion::Muted), _) if mutes_it() => EventStatus::Muted,
            (Some(Exclusion::Muted), _) => EventStatus::WasMuted,
            (Some(Exclusion::UnknownObject), _) => EventStatus::UnknownObject,
            (Some(Exclusion::Withdrawn), _) => EventStatus::Withdrawn,
            _ if is_alone => EventStatus::NoBatch,
            (Some(Exclusion::Seen), _) => EventStatus::Seen,
            // Another route, or not mandatory. `begin_at` removed events before the start.
            (Some(_), _) => EventStatus::NotForDigest,
            _ if !case.is_pending => EventStatus::Repeated,
            _ if !gets && !self.wish.is_some_and(admits) => EventStatus::NoDigest,
            _ if gets && case.digest.is_some_and(|row| row.open) => EventStatus::InDelivery,
            _ if self.reach.is_expired(case.stack.id.day) => EventStatus::Expired,
            _ if gets => EventStatus::NextDigest,
            _ => EventStatus::Blocked,
        }
    }

    /// Returns whether the event is shown: of days before the window, only the backlog is.
    fn is_shown(&self, why: EventStatus, stack: &Stack) -> bool {
        let is_too_old = self.reach.is_expired(stack.id.day);
        match why {
            EventStatus::InDelivery
            | EventStatus::NextDigest
            | EventStatus::Blocked
            | EventStatus::Expired => true,
            EventStatus::NoDigest => !is_too_old,
            _ => !is_too_old && !self.reach.is_backlog(stack.id.day),
        }
    }

    fn fate(
        &self,
        case: &Case<'_>,
        why: EventStatus,
        covered: Option<CoveredBy>,
    ) -> ExplainedEvent {
        let (event, policies) = (case.event, self.policies);
        let of_batch = case.batch.and_then(|batch| self.batches.delivery(batch));
        let delivery = match why {
            EventStatus::InClosingBatch => of_batch.filter(|row| !row.state.is_settled()),
            EventStatus::InDelivery | EventStatus::NextDigest => case.digest,
            _ => None,
        };
        let outcome = of_batch.map(|row| row.outcome.clone()).unwrap_or_default();
        let object = case.catalog.object(event);
        ExplainedEvent {
            position: case.position,
            kind: event.kind.to_string(),
            object: event.object.clone(),
            title: object.map(|object| object.label().into_owned()),
            at: event.time(case.stack.id.day),
            status: why,
            mandatory: policies.is_mandatory(&event.kind),
            in_feed: policies.policy(&event.kind).feed,
            batch: case.batch.map(|batch| ExplainedBatch {
                id: batch.id,
                closes_at: *self.held.get(&batch.id).unwrap_or(&batch.closes_at),
                deferred_until: self.held.get(&batch.id).copied(),
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
    fn by_marker(&self, case: &Case<'_>) -> Option<CoveredBy> {
        let DigestMarker { id, n } = *case.stack.covering_marker(case.position.index)?;
        let email = id.and_then(|id| self.by_email(case, id));
        email.or(Some(match (id.map(Id::time), n) {
            (Some(at), Some(_)) => CoveredBy::Flush { at },
            (at, _) => CoveredBy::OlderWriter { at },
        }))
    }

    /// Returns the email with this marker, and the place of the event in it.
    fn by_email(&self, case: &Case<'_>, marker: Id) -> Option<CoveredBy> {
        let (row, sent) = self.sent.get(&marker)?;
        let (place, excluded) = self.place(case, row, sent);
        Some(CoveredBy::Email {
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
        sent: &ReconstructedEmail,
    ) -> (EmailPlace, Option<EventStatus>) {
        let (event, built, catalog) = (case.event, row.built_at(), case.catalog);
        let included = |email: &&SelectedEvents| {
            // Fewer events than were recorded lack only objects that were withdrawn since.
            sent.is_exact || email.content.total < u64::from(row.outcome.items)
        };
        let email = sent.email.as_ref().ok().filter(included);
        if let Some(email) = email {
            let is_it = |(kind, item): (&EventType, &email_content::EmailItem)| {
                *kind == event.kind && item.id == event.object
            };
            let is_kept = |batch: &Batch| batch.events.items.iter().any(|of| is_event(of, event));
            if email.included.contains(event) {
                return match email.content.items().any(is_it) {
                    true => (EmailPlace::Shown, None),
                    false => (EmailPlace::Counted, None),
                };
            } else if email.counts_omitted && !case.batch.is_some_and(is_kept) {
                return (EmailPlace::Counted, None);
            }
        }
        let is_same = |other: &Event| other.kind == event.kind && other.object == event.object;
        let is_repeated = email.is_some_and(|email| email.included.iter().any(is_same));
        let muted = self.muted.get(&case.position);
        let is_seen = self.has_seen(case.position) && case.batch.is_none();
        let reasons = [
            (catalog.was_retracted_by(event, built), EventStatus::Retracted),
            (catalog.object_or_withdrawn(event).is_none(), EventStatus::UnknownObject),
            (catalog.notifiable_object(event).is_none(), EventStatus::Withdrawn),
            (muted.is_some_and(|since| *since <= built), EventStatus::Muted),
            (is_repeated, EventStatus::Repeated),
            (is_seen, EventStatus::Seen),
        ];
        let mut reasons = reasons.into_iter().filter(|(applies, _)| *applies);
        let why = reasons.next().map_or(EventStatus::NotForDigest, |(_, why)| why);
        match sent.is_exact || matches!(why, EventStatus::Retracted | EventStatus::UnknownObject) {
            true => (EmailPlace::Excluded, Some(why)),
            false => (EmailPlace::Unknown, None),
        }
    }
}

/// Returns whether a batch's item is this event.
fn is_event(item: &batch::BatchItem, event: &Event) -> bool {
    Some(item.i) == event.fanout_id && item.t == event.kind && item.o == event.object
}

/// Describes a delivery: its state, why it waits or failed, and its next attempt.
fn in_delivery(row: &Delivery, now: DateTime<Utc>) -> ExplainedDelivery {
    let wait = WaitReason::of_delivery(row, now);
    ExplainedDelivery {
        id: row.id.clone(),
        state: row.state,
        reason: wait.why,
        next_attempt: wait.until.or(next_retry_at(row).filter(|at| *at > now)),
        leased_by: wait.leased_by,
    }
}

/// Returns the digest that covers this position: the open one, or the latest if it failed.
fn digest_of<'a>(deliveries: &'a [Delivery], stack: &StackId, index: u32) -> Option<&'a Delivery> {
    let is_digest = |row: &&Delivery| matches!(row.source, DeliverySource::Digest(..));
    let mut digests = deliveries.iter().filter(is_digest);
    let includes = |row: &Delivery| {
        let mut reaches = row.watermarks.iter();
        reaches.any(|(of, reach)| of == stack && index < *reach)
    };
    let open = digests.clone().find(|row| row.open && !row.state.is_settled());
    let is_failed = |row: &&Delivery| row.state == DeliveryState::Failed;
    let failed = || digests.next().filter(is_failed);
    open.or_else(failed).filter(|row| includes(row))
}

/// The facts about one event that decide its reason.
struct Case<'a> {
    stack: &'a Stack,
    position: Position,
    event: &'a Event,
    catalog: &'a EventFacts,
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
        let all = book.list(&BatchFilter::of_user(user), BATCHES).await?;
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
        let i = event.fanout_id?;
        let keeps = |batch: &&Batch| {
            let mut items = batch.events.items.iter().chain(&batch.removed);
            items.any(|item| is_event(item, event))
        };
        let own = |batch: &&Batch| batch.fanouts_without_lead().any(|own| own == i);
        let of_lead = |batch: &&Batch| batch.has_joined(i);
        let all = || self.all.iter();
        let found = all().find(keeps).or_else(|| all().find(own));
        found.or_else(|| all().find(of_lead))
    }

    /// Returns the events that these batches keep.
    pub(super) fn kept(&self) -> Vec<Event> {
        let kept = self.all.iter().flat_map(|batch| &batch.events.items);
        kept.cloned().map(Event::from).collect()
    }

    fn delivery(&self, batch: &Batch) -> Option<&Delivery> {
        self.deliveries.get(&DeliveryId::batch(batch.id))
    }

    /// Returns the outcome of the event in the batch that holds it; `None` if batches do not decide
    /// it. `waits` is whether an open batch would include it.
    fn why(&self, case: &Case<'_>, waits: bool) -> Option<EventStatus> {
        let Some(batch) = case.batch else {
            return case.is_emailed.then_some(EventStatus::Emailed);
        };
        if batch.removed.iter().any(|item| is_event(item, case.event)) {
            return Some(EventStatus::Removed);
        }
        let delivery = self.delivery(batch);
        let doubtful = delivery.is_some_and(|row| row.state == DeliveryState::Unknown);
        match batch.state {
            _ if case.is_emailed && doubtful => Some(EventStatus::MayBeEmailed),
            _ if case.is_emailed => Some(EventStatus::Emailed),
            BatchState::Open => waits.then_some(EventStatus::InOpenBatch),
            BatchState::Closing => waits.then_some(EventStatus::InClosingBatch),
            BatchState::Closed | BatchState::Canceled => Some(EventStatus::NotEmailed),
        }
    }
}
