//! Short forms of common store calls. Each makes one call of one method, with defaults for the
//! rest, and panics if it fails.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures::TryStreamExt;
use tidings::domain::batch::Accumulator;
use tidings::domain::delivery::{
    Corrected, Correction, Deferral, Handover, OperatorDecision, Reopening, Settlement, Transition,
};
use tidings::domain::{
    Address, BatchState, Day, Delivery, DeliveryId, DeliveryState, Event, FanoutState, FollowKey,
    Id, Inbox, Point, Suppression, User, UserId,
};
use tidings::store::{
    AccumulatorFilter, ChecksumBuilder, CountedRecords, DeliveryFilter, FollowChange, LeasesToEnd,
    MergePolicy, PushOutcome, Result, RowsToLease, Store, TimeRange, UserFilter,
};

use super::{lease, new_marker, push_to_all, today};

/// The size of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    pub pending: u64,
    pub done: u64,
}

/// The number of batches that are not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BatchCounts {
    pub open: u64,
    pub closing: u64,
}

#[async_trait]
pub trait Shorthand: Store {
    /// Pushes a list of today to a user. A stack holds up to 1,000 entries.
    async fn push_list(&self, person: &UserId, events: Vec<Event>) -> PushOutcome {
        self.push_capped(1_000, person, events).await
    }

    /// Pushes a list of today to each of these users. A stack holds up to 1,000 entries.
    async fn push_list_to_all(&self, people: &[UserId], events: Vec<Event>) -> PushOutcome {
        let pushes = push_to_all(people, events);
        self.push(today(), 1_000, &pushes).await.unwrap()
    }

    /// Pushes a list of today to a user. A stack holds up to `cap` entries.
    async fn push_capped(&self, cap: usize, person: &UserId, events: Vec<Event>) -> PushOutcome {
        let pushes = push_to_all(std::slice::from_ref(person), events);
        self.push(today(), cap, &pushes).await.unwrap()
    }

    /// Appends a marker to today's stack of a user. It covers the first `n` entries.
    async fn mark_stack(&self, person: &UserId, marker: Id, n: u32) {
        let marker = new_marker(person, today(), marker, n);
        self.write_markers(&[marker]).await.unwrap();
    }

    /// Restores these documents of a day. Stored ones must be equal.
    async fn restore_stacks(&self, day: Day, documents: &[String]) {
        let restored = self.restore_day(day, documents, MergePolicy::MustBeEqual).await;
        restored.unwrap();
    }

    /// Returns the record of a user.
    async fn user_record(&self, id: &UserId) -> Option<User> {
        let ids = std::slice::from_ref(id);
        self.users(ids).await.unwrap().remove(0)
    }

    async fn open_row(&self, row: Delivery) -> bool {
        self.open(&[row]).await.unwrap()[0]
    }

    async fn delivery(&self, id: &DeliveryId) -> Option<Delivery> {
        self.deliveries(std::slice::from_ref(id)).await.unwrap().remove(0)
    }

    async fn put_inbox(&self, inbox: &Inbox, revision: Id) -> Result<bool> {
        Ok(self.put_inboxes(&[(inbox.clone(), revision)]).await?[0])
    }

    async fn deliveries_of(&self, user: &UserId, limit: usize) -> Vec<Delivery> {
        let theirs = DeliveryFilter::User(user);
        self.find_deliveries(&theirs, limit).await.unwrap()
    }

    async fn deliveries_in(&self, state: DeliveryState, limit: usize) -> Vec<Delivery> {
        let of = DeliveryFilter::State(state, TimeRange::default(), None);
        self.find_deliveries(&of, limit).await.unwrap()
    }

    async fn backlog(&self) -> Backlog {
        let states = [FanoutState::Pending, FanoutState::Done].map(CountedRecords::Fanouts);
        let counts = self.count(&states).await.unwrap();
        let (pending, done) = (counts[0], counts[1]);
        Backlog { pending, done }
    }

    async fn batch_counts(&self) -> BatchCounts {
        let states = [BatchState::Open, BatchState::Closing].map(CountedRecords::Batches);
        let counts = self.count(&states).await.unwrap();
        let (open, closing) = (counts[0], counts[1]);
        BatchCounts { open, closing }
    }

    async fn delivery_counts(&self, states: &[DeliveryState]) -> Vec<(DeliveryState, u64)> {
        let counted: Vec<_> = states.iter().copied().map(CountedRecords::Deliveries).collect();
        let counts = self.count(&counted).await.unwrap();
        states.iter().copied().zip(counts).collect()
    }

    async fn take(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
        limit: usize,
    ) -> Vec<Delivery> {
        let free = RowsToLease::Claimable(now, limit);
        self.claim(&lease(owner, until), &free).await.unwrap()
    }

    async fn take_call(&self, owner: &str, until: DateTime<Utc>, call: &str) -> Vec<Delivery> {
        self.claim(&lease(owner, until), &RowsToLease::Call(call)).await.unwrap()
    }

    async fn sending(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
        handovers: &[Handover],
    ) -> Vec<bool> {
        let made = all(handovers, Transition::HandOver);
        self.advance(&lease(owner, until), now, &made).await.unwrap()
    }

    async fn recall(&self, owner: &str, ids: &[DeliveryId]) -> Vec<bool> {
        let (made, never) = (all(ids, Transition::ReturnToPending), DateTime::UNIX_EPOCH);
        self.advance(&lease(owner, never), never, &made).await.unwrap()
    }

    async fn hold(&self, owner: &str, until: DateTime<Utc>, ids: &[DeliveryId]) -> Vec<bool> {
        let made = all(ids, Transition::RenewLease);
        self.advance(&lease(owner, until), until, &made).await.unwrap()
    }

    async fn defer(&self, owner: &str, deferrals: &[Deferral]) -> Vec<bool> {
        let (made, never) = (all(deferrals, Transition::Defer), DateTime::UNIX_EPOCH);
        self.advance(&lease(owner, never), never, &made).await.unwrap()
    }

    async fn settle(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        settlements: &[Settlement],
    ) -> Vec<bool> {
        let made = all(settlements, Transition::Settle);
        self.advance(&lease(owner, now), now, &made).await.unwrap()
    }

    async fn judge(
        &self,
        id: &DeliveryId,
        now: DateTime<Utc>,
        decision: OperatorDecision,
        reason: &str,
    ) -> Corrected {
        let judged = Correction::ResolveUnknown(id.clone(), decision, reason.to_owned());
        self.correct(now, &[judged]).await.unwrap()[0]
    }

    async fn reopen(&self, now: DateTime<Utc>, rows: &[Reopening]) -> Vec<Corrected> {
        self.correct(now, &all(rows, Correction::Reopen)).await.unwrap()
    }

    async fn due_accumulators(&self, now: DateTime<Utc>, limit: usize) -> Vec<Accumulator> {
        let due = AccumulatorFilter::Due(now);
        self.find_accumulators(&due, limit).await.unwrap()
    }

    async fn accumulator_of(&self, batch: Id) -> Option<Accumulator> {
        let of = AccumulatorFilter::WithBatch(batch);
        self.find_accumulators(&of, 1).await.unwrap().pop()
    }

    async fn follow(&self, follows: &[(FollowKey, UserId)]) {
        self.change_follows(FollowChange::Follow, follows).await.unwrap()
    }

    async fn followers(
        &self,
        key: &FollowKey,
        after: Option<&UserId>,
        limit: usize,
    ) -> Vec<UserId> {
        let of = UserFilter::Follow(key);
        self.find_users(&of, after, limit).await.unwrap()
    }

    async fn near(
        &self,
        point: Point,
        km: f64,
        after: Option<&UserId>,
        limit: usize,
    ) -> Vec<UserId> {
        let near = UserFilter::Near(point, km);
        self.find_users(&near, after, limit).await.unwrap()
    }

    /// Writes a note, whether or not it exists.
    async fn put_note(&self, name: &str, text: &str) {
        let read = self.note(name).await.unwrap();
        let put = self.swap_note(name, read.as_deref(), Some(text)).await.unwrap();
        assert!(put, "nobody else writes the note {name}");
    }

    /// Drops the day in its current state.
    async fn remove_day(&self, day: Day) {
        let (mut sum, mut chunks) = (ChecksumBuilder::default(), self.export_day(day));
        while let Some(lines) = chunks.try_next().await.unwrap() {
            lines.iter().for_each(|line| sum.add(line));
        }
        drop(chunks);
        let dropped = self.drop_day(day, &sum.finish()).await.unwrap();
        assert!(dropped, "nobody else writes to {day}");
    }

    async fn newest(&self, limit: usize) -> Vec<Vec<Event>> {
        self.newest_events(limit).await.unwrap()
    }

    async fn unlease(&self, name: &str, owner: &str) {
        self.release(&LeasesToEnd::Lease { name, owner }).await.unwrap()
    }

    async fn suppress(&self, suppressions: &[Suppression]) {
        self.add_suppressions(suppressions).await.unwrap();
    }

    async fn lift(&self, address: &Address, at: DateTime<Utc>, expired: DateTime<Utc>) -> bool {
        let lifted = self.lift_suppression(address, at, expired).await;
        lifted.unwrap()
    }

    async fn soft_bounce(
        &self,
        address: &Address,
        delivery: &DeliveryId,
        at: DateTime<Utc>,
        since: DateTime<Utc>,
    ) -> u64 {
        let counted = self.note_soft_bounce(address, delivery, at, since).await;
        counted.unwrap()
    }

    async fn suppressed(&self, addresses: &[Address]) -> Vec<Option<Suppression>> {
        let states = self.address_states(addresses).await.unwrap().into_iter();
        states.map(|state| state.suppression).collect()
    }

    async fn lifts(&self, addresses: &[Address]) -> Vec<Option<DateTime<Utc>>> {
        let states = self.address_states(addresses).await.unwrap().into_iter();
        states.map(|state| state.lifted_at).collect()
    }

    async fn record_receipts(
        &self,
        marks: &[(String, String)],
        now: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> Vec<String> {
        let marks = self.webhook_receipts(marks, now, Some(until)).await.unwrap();
        marks.into_iter().flatten().collect()
    }

    async fn find_receipts(&self, keys: &[String], now: DateTime<Utc>) -> Vec<Option<String>> {
        let marks: Vec<_> = keys.iter().map(|key| (key.clone(), String::new())).collect();
        self.webhook_receipts(&marks, now, None).await.unwrap()
    }
}

impl<T: Store + ?Sized> Shorthand for T {}

fn all<T: Clone, U>(of: &[T], into: impl Fn(T) -> U) -> Vec<U> {
    of.iter().cloned().map(into).collect()
}
