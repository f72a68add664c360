//! Decides what becomes, or became, of each event, and which email included or excluded it.
//!
//! The content of a sent email is reconstructed ([`ReconstructedEmail`]). If it does not fit the
//! row, the place of an event in it is unknown. Start with [`UserFacts::fates`].

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};

use crate::domain::digest_content::next_retry_at;
use crate::domain::{
    Batch, BatchState, Delivery, DeliveryId, DeliverySource, DeliveryState, DigestDays,
    DigestMarker, EligibilityFacts, EmailScope, Event, Exclusion, Id, Inbox, Mutes, ObjectState,
    Policies, Position, Purpose, Schedule, Stack, User, UserId, UserStacks, batch, classify,
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
pub(super) struct UserFacts<'a> {
    pub policies: &'a Policies,
    pub now: DateTime<Utc>,
    pub days: DigestDays,
    pub record: Option<&'a User>,
    pub mutes: &'a Mutes,
    /// The positions of muted events, and since when they are muted.
    pub muted: eligibility::MutedPositions,
    /// The user's inbox, if digests skip seen events.
    pub inbox: Option<Inbox>,
    /// The digests that the user gets.
    pub digests: Option<(Schedule, EmailScope)>,
    /// The scope of the digests that the user wants, even if they may not be emailed.
    pub wanted_scope: Option<EmailScope>,
    pub deliveries: &'a [Delivery],
    pub batches: &'a UserBatches,
    /// When quiet hours end, for the batches that they defer.
    pub deferred: HashMap<Id, DateTime<Utc>>,
    /// The emails whose markers are on the stacks, by marker.
    pub sent: HashMap<Id, (&'a Delivery, ReconstructedEmail)>,
}

impl UserFacts<'_> {
    fn has_seen(&self, position: Position) -> bool {
        self.inbox.as_ref().is_some_and(|inbox| is_seen(inbox, position))
    }

    /// Returns why a digest excludes the event, if it does.
    fn exclusion(
        &self,
        position: Position,
        event: &Event,
        event_facts: &EventFacts,
    ) -> Option<Exclusion> {
        let facts = EligibilityFacts {
            muted: self.muted.contains_key(&position),
            seen: self.has_seen(position),
            ..event_facts.facts(event)
        };
        let at = || event.time(position.stack.day);
        let digest = Purpose::Digest(EmailScope::All);
        classify(&event.kind, at, facts, self.record, self.policies, digest)
    }

    /// Explains the events of a user's stacks, oldest first.
    pub(super) fn fates(
        &self,
        stacks: &UserStacks,
        event_facts: &EventFacts,
    ) -> Vec<ExplainedEvent> {
        let mut eligible = stacks.clone();
        eligible.hide(|position, event| self.exclusion(position, event, event_facts).is_some());
        let pending: HashSet<Position> =
            eligible.pending().iter().map(|pending| pending.position).collect();
        let mut fates = Vec::new();
        for stack in &stacks.stacks {
            let (covered, emailed) = (stack.covered_count(), stack.emailed_ids());
            for (position, event) in stack.events() {
                let case = Case {
                    stack,
                    position,
                    event,
                    event_facts,
                    exclusion: self.exclusion(position, event, event_facts),
                    is_covered: (position.index as usize) < covered,
                    is_emailed: event.fanout_id.is_some_and(|i| emailed.contains(&i)),
                    is_pending: pending.contains(&position),
                    batch: self.batches.batch_of(event),
                    digest: digest_of(self.deliveries, position),
                };
                fates.extend(self.fate_of(&case));
            }
        }
        fates
    }

    /// Explains an event; `None` if it is not shown.
    fn fate_of(&self, case: &Case<'_>) -> Option<ExplainedEvent> {
        let why = self.why(case);
        if !self.is_shown(why, case.stack) {
            return None;
        }
        let email = match (why, case.batch) {
            (EventStatus::Covered, _) => return Some(self.fate(case, why, self.by_marker(case))),
            (EventStatus::Emailed | EventStatus::MayBeEmailed, Some(batch)) => {
                let row = self.batches.delivery(batch).filter(|row| row.state.needs_markers());
                row.and_then(|row| self.by_email(case, row.marker))
            }
            _ => None,
        };
        let is_excluded = matches!(&email, Some(CoveredBy::Email { place, .. }) if *place == EmailPlace::Excluded);
        Some(self.fate(case, if is_excluded { EventStatus::Excluded } else { why }, email))
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
        let facts = case.event_facts.facts(event);
        let applies = !facts.retracted && facts.object == ObjectState::Notifiable;
        let waits = is_alone && applies && !is_muted;
        // If a mute canceled the event's batch, the mute is the reason to show.
        let of_batch = self
            .batches
            .why(case, waits)
            .filter(|why| !(is_muted && *why == EventStatus::NotEmailed));
        let admits = |scope: EmailScope| scope.admits(&event.kind, policies);
        let gets_digest = self.digests.is_some_and(|(_, scope)| admits(scope));
        let is_muted_now = || eligibility::is_muted(self.mutes, event, self.now, case.event_facts);
        let is_sent = case.is_emailed || case.is_covered;
        match (case.exclusion, of_batch) {
            (Some(Exclusion::Retracted), _) if !is_sent => EventStatus::Retracted,
            (_, Some(why)) => why,
            _ if case.is_covered => EventStatus::Covered,
            (Some(Exclusion::Muted), _) if is_muted_now() => EventStatus::Muted,
            (Some(Exclusion::Muted), _) => EventStatus::WasMuted,
            (Some(Exclusion::UnknownObject), _) => EventStatus::UnknownObject,
            (Some(Exclusion::Withdrawn), _) => EventStatus::Withdrawn,
            _ if is_alone => EventStatus::NoBatch,
            (Some(Exclusion::Seen), _) => EventStatus::Seen,
            // Another route, or not mandatory. `begin_at` removed events before the start.
            (Some(_), _) => EventStatus::NotForDigest,
            _ if !case.is_pending => EventStatus::Repeated,
            _ if !gets_digest && !self.wanted_scope.is_some_and(admits) => EventStatus::NoDigest,
            _ if gets_digest && case.digest.is_some_and(|row| row.open) => EventStatus::InDelivery,
            _ if self.days.is_expired(case.stack.id.day) => EventStatus::Expired,
            _ if gets_digest => EventStatus::NextDigest,
            _ => EventStatus::Blocked,
        }
    }

    /// Returns whether the event is shown: of days before the window, only the backlog is.
    fn is_shown(&self, why: EventStatus, stack: &Stack) -> bool {
        let is_too_old = self.days.is_expired(stack.id.day);
        match why {
            EventStatus::InDelivery
            | EventStatus::NextDigest
            | EventStatus::Blocked
            | EventStatus::Expired => true,
            EventStatus::NoDigest => !is_too_old,
            _ => !is_too_old && !self.days.is_backlog(stack.id.day),
        }
    }

    fn fate(
        &self,
        case: &Case<'_>,
        why: EventStatus,
        covered: Option<CoveredBy>,
    ) -> ExplainedEvent {
        let (event, policies) = (case.event, self.policies);
        let batch_delivery = case.batch.and_then(|batch| self.batches.delivery(batch));
        let delivery = match why {
            EventStatus::InClosingBatch => batch_delivery.filter(|row| !row.state.is_settled()),
            EventStatus::InDelivery | EventStatus::NextDigest => case.digest,
            _ => None,
        };
        let outcome = batch_delivery.map(|row| row.outcome.clone()).unwrap_or_default();
        let object = case.event_facts.object(event);
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
                closes_at: *self.deferred.get(&batch.id).unwrap_or(&batch.closes_at),
                deferred_until: self.deferred.get(&batch.id).copied(),
                reason: outcome.reason,
                settled: outcome.settled,
            }),
            delivery: delivery.map(|row| in_delivery(row, self.now)),
            covered,
        }
    }

    /// Returns the email, flush or older writer whose marker covers the event, if any.
    ///
    /// The oldest covering marker decides. An id without a delivery belongs to a flush: deliveries
    /// outlive the window.
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
        let (event, built, event_facts) = (case.event, row.built_at(), case.event_facts);
        // If fewer events are found than were recorded, the missing ones were withdrawn since. The
        // others are right.
        let is_reliable = |email: &&SelectedEvents| {
            sent.is_exact || email.content.total < u64::from(row.outcome.items)
        };
        let email = sent.email.as_ref().ok().filter(is_reliable);
        if let Some(email) = email {
            let mut shown = email.content.items();
            let is_kept =
                |batch: &Batch| batch.events.items.iter().any(|item| is_event(item, event));
            if email.included.contains(event) {
                let is_shown =
                    shown.any(|(kind, item)| *kind == event.kind && item.id == event.object);
                return (if is_shown { EmailPlace::Shown } else { EmailPlace::Counted }, None);
            } else if email.counts_omitted && !case.batch.is_some_and(is_kept) {
                return (EmailPlace::Counted, None);
            }
        }
        let is_same = |other: &Event| other.kind == event.kind && other.object == event.object;
        let is_repeated = email.is_some_and(|email| email.included.iter().any(is_same));
        let muted = self.muted.get(&case.position);
        let is_seen = self.has_seen(case.position) && case.batch.is_none();
        let reasons = [
            (event_facts.was_retracted_by(event, built), EventStatus::Retracted),
            (event_facts.object_or_withdrawn(event).is_none(), EventStatus::UnknownObject),
            (event_facts.notifiable_object(event).is_none(), EventStatus::Withdrawn),
            (muted.is_some_and(|since| *since <= built), EventStatus::Muted),
            (is_repeated, EventStatus::Repeated),
            (is_seen, EventStatus::Seen),
        ];
        let first = reasons.into_iter().find(|(applies, _)| *applies);
        let why = first.map_or(EventStatus::NotForDigest, |(_, why)| why);
        if sent.is_exact || matches!(why, EventStatus::Retracted | EventStatus::UnknownObject) {
            (EmailPlace::Excluded, Some(why))
        } else {
            (EmailPlace::Unknown, None)
        }
    }
}

/// Returns whether a batch's item is this event.
fn is_event(item: &batch::BatchItem, event: &Event) -> bool {
    Some(item.fanout_id) == event.fanout_id
        && item.kind == event.kind
        && item.object == event.object
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
fn digest_of(deliveries: &[Delivery], position: Position) -> Option<&Delivery> {
    let is_digest = |row: &&Delivery| matches!(row.source, DeliverySource::Digest(..));
    let mut digests = deliveries.iter().filter(is_digest);
    let covers = |row: &&Delivery| {
        let mut watermarks = row.watermarks.iter();
        watermarks.any(|(stack, count)| *stack == position.stack && position.index < *count)
    };
    let open = digests.clone().find(|row| row.open && !row.state.is_settled());
    let is_failed = |row: &&Delivery| row.state == DeliveryState::Failed;
    let failed = || digests.next().filter(is_failed);
    open.or_else(failed).filter(covers)
}

/// The facts about one event that decide its reason.
struct Case<'a> {
    stack: &'a Stack,
    position: Position,
    event: &'a Event,
    event_facts: &'a EventFacts,
    exclusion: Option<Exclusion>,
    is_covered: bool,
    is_emailed: bool,
    is_pending: bool,
    batch: Option<&'a Batch>,
    digest: Option<&'a Delivery>,
}

/// The most batches of a user that are read, newest first.
const MAX_BATCHES: usize = 200;

/// A user's batches, newest first, and their deliveries.
///
/// A marker on the stack outranks the batch's record. The batch that opens after a lead also lists
/// the lead's event ids, so a batch that kept the event outranks one that only lists its id.
pub(super) struct UserBatches {
    pub(super) batches: Vec<Batch>,
    pub(super) deliveries: HashMap<DeliveryId, Delivery>,
}

impl UserBatches {
    pub(super) async fn of(service: &BatchService, user: &UserId) -> Result<Self> {
        let batches = service.list(&BatchFilter::of_user(user), MAX_BATCHES).await?;
        let ids: Vec<DeliveryId> =
            batches.iter().map(|batch| DeliveryId::batch(batch.id)).collect();
        let rows = service.context.store.deliveries(&ids).await?.into_iter().flatten();
        Ok(Self { batches, deliveries: rows.map(|row| (row.id.clone(), row)).collect() })
    }

    /// Returns the batches whose emails are not settled yet.
    pub(super) fn unsettled(&self) -> Vec<Batch> {
        let is_unsettled = |state| matches!(state, BatchState::Open | BatchState::Closing);
        self.batches.iter().filter(|batch| is_unsettled(batch.state)).cloned().collect()
    }

    /// Returns the batch that the event joined, if it is known.
    fn batch_of(&self, event: &Event) -> Option<&Batch> {
        let i = event.fanout_id?;
        let keeps = |batch: &&Batch| {
            let mut items = batch.events.items.iter().chain(&batch.removed);
            items.any(|item| is_event(item, event))
        };
        let owns = |batch: &&Batch| batch.fanouts_without_lead().any(|own| own == i);
        let has_joined = |batch: &&Batch| batch.has_joined(i);
        let batches = || self.batches.iter();
        let kept_by = batches().find(keeps);
        kept_by.or_else(|| batches().find(owns)).or_else(|| batches().find(has_joined))
    }

    /// Returns the events that these batches keep.
    pub(super) fn kept(&self) -> Vec<Event> {
        let items = self.batches.iter().flat_map(|batch| &batch.events.items);
        items.cloned().map(Event::from).collect()
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
        let is_unknown = delivery.is_some_and(|row| row.state == DeliveryState::Unknown);
        match batch.state {
            _ if case.is_emailed && is_unknown => Some(EventStatus::MayBeEmailed),
            _ if case.is_emailed => Some(EventStatus::Emailed),
            BatchState::Open => waits.then_some(EventStatus::InOpenBatch),
            BatchState::Closing => waits.then_some(EventStatus::InClosingBatch),
            BatchState::Closed | BatchState::Canceled => Some(EventStatus::NotEmailed),
        }
    }
}
