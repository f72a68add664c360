//! Short forms of common store calls. Each makes one call of one method, with defaults for the
//! rest.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures::TryStreamExt;
use tidings::domain::batch::Accumulator;
use tidings::domain::delivery::{
    Corrected, Correction, Deferral, Handover, OperatorDecision, Reopening, Settlement, Transition,
};
use tidings::domain::{
    Address, BatchState, Day, Delivery, DeliveryId, DeliveryState, Event, FanoutState, FollowKey,
    Id, Point, Suppression, User, UserId,
};
use tidings::store::{
    AccumulatorFilter, Claim, Counted, DeliveryFilter, FollowChange, JournalQuery, PeopleFilter,
    Release, Result, Store, Summing, SuppressionChange,
};

use super::{push_to_all, today};

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
    async fn push_list(&self, person: &UserId, events: Vec<Event>) {
        self.push_list_to_all(std::slice::from_ref(person), events)
            .await;
    }

    /// Pushes a list of today to each of these users. A stack holds up to 1,000 entries.
    async fn push_list_to_all(&self, people: &[UserId], events: Vec<Event>) {
        let pushes = push_to_all(people, events);
        self.push(today(), 1_000, &pushes).await.unwrap();
    }

    /// Returns the record of a user.
    async fn user_record(&self, id: &UserId) -> Option<User> {
        let ids = std::slice::from_ref(id);
        self.users(ids).await.unwrap().remove(0)
    }

    async fn delivery(&self, id: &DeliveryId) -> Result<Option<Delivery>> {
        Ok(self.deliveries(std::slice::from_ref(id)).await?.remove(0))
    }

    async fn deliveries_of(&self, user: &UserId, limit: usize) -> Result<Vec<Delivery>> {
        let theirs = DeliveryFilter::User(user);
        self.find_deliveries(&theirs, limit).await
    }

    async fn deliveries_in(&self, state: DeliveryState, limit: usize) -> Result<Vec<Delivery>> {
        let of = DeliveryFilter::State(state);
        self.find_deliveries(&of, limit).await
    }

    async fn backlog(&self) -> Result<Backlog> {
        let states = [FanoutState::Pending, FanoutState::Done].map(Counted::Fanouts);
        let counts = self.count(&states).await?;
        let (pending, done) = (counts[0], counts[1]);
        Ok(Backlog { pending, done })
    }

    async fn batch_counts(&self) -> Result<BatchCounts> {
        let states = [BatchState::Open, BatchState::Closing].map(Counted::Batches);
        let counts = self.count(&states).await?;
        let (open, closing) = (counts[0], counts[1]);
        Ok(BatchCounts { open, closing })
    }

    async fn delivery_counts(&self, states: &[DeliveryState]) -> Result<Vec<(DeliveryState, u64)>> {
        let counted: Vec<_> = states.iter().copied().map(Counted::Deliveries).collect();
        let counts = self.count(&counted).await?;
        Ok(states.iter().copied().zip(counts).collect())
    }

    async fn take(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
        limit: usize,
    ) -> Result<Vec<Delivery>> {
        let free = Claim::Free { now, limit };
        self.claim(owner, until, &free).await
    }

    async fn take_call(
        &self,
        owner: &str,
        until: DateTime<Utc>,
        call: &str,
    ) -> Result<Vec<Delivery>> {
        self.claim(owner, until, &Claim::Call(call)).await
    }

    async fn sending(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
        handovers: &[Handover],
    ) -> Result<Vec<bool>> {
        let made = all(handovers, Transition::HandOver);
        self.advance(owner, now, until, &made).await
    }

    async fn recall(&self, owner: &str, ids: &[DeliveryId]) -> Result<Vec<bool>> {
        let (made, never) = (all(ids, Transition::Recall), DateTime::UNIX_EPOCH);
        self.advance(owner, never, never, &made).await
    }

    async fn hold(
        &self,
        owner: &str,
        until: DateTime<Utc>,
        ids: &[DeliveryId],
    ) -> Result<Vec<bool>> {
        let made = all(ids, Transition::Hold);
        self.advance(owner, until, until, &made).await
    }

    async fn defer(&self, owner: &str, deferrals: &[Deferral]) -> Result<Vec<bool>> {
        let (made, never) = (all(deferrals, Transition::Defer), DateTime::UNIX_EPOCH);
        self.advance(owner, never, never, &made).await
    }

    async fn settle(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        settlements: &[Settlement],
    ) -> Result<Vec<bool>> {
        let made = all(settlements, Transition::Settle);
        self.advance(owner, now, now, &made).await
    }

    async fn judge(
        &self,
        id: &DeliveryId,
        now: DateTime<Utc>,
        decision: OperatorDecision,
        reason: &str,
    ) -> Result<Corrected> {
        let judged = Correction::Judge {
            id: id.clone(),
            decision,
            reason: reason.to_owned(),
        };
        Ok(self.correct(now, &[judged]).await?[0])
    }

    async fn reopen(&self, now: DateTime<Utc>, rows: &[Reopening]) -> Result<Vec<Corrected>> {
        self.correct(now, &all(rows, Correction::Reopen)).await
    }

    async fn due_accumulators(&self, now: DateTime<Utc>, limit: usize) -> Result<Vec<Accumulator>> {
        let due = AccumulatorFilter::Due(now);
        self.find_accumulators(&due, limit).await
    }

    async fn accumulator_of(&self, batch: Id) -> Result<Option<Accumulator>> {
        let of = AccumulatorFilter::Of(batch);
        Ok(self.find_accumulators(&of, 1).await?.pop())
    }

    async fn follow(&self, follows: &[(FollowKey, UserId)]) -> Result<()> {
        self.change_follows(FollowChange::Follow, follows).await
    }

    async fn followers(
        &self,
        key: &FollowKey,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<UserId>> {
        let of = PeopleFilter::Follow(key);
        self.find_people(&of, after, limit).await
    }

    async fn near(
        &self,
        point: Point,
        km: f64,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<UserId>> {
        let near = PeopleFilter::Near { point, km };
        self.find_people(&near, after, limit).await
    }

    /// Writes a note, whether or not it exists.
    async fn put_note(&self, name: &str, text: &str) -> Result<()> {
        let read = self.note(name).await?;
        let put = self.swap_note(name, read.as_deref(), Some(text)).await?;
        assert!(put, "nobody else writes the note {name}");
        Ok(())
    }

    /// Drops the day in its current state.
    async fn remove_day(&self, day: Day) -> Result<()> {
        let (mut sum, mut chunks) = (Summing::default(), self.export_day(day));
        while let Some(lines) = chunks.try_next().await? {
            lines.iter().for_each(|line| sum.add(line));
        }
        drop(chunks);
        let dropped = self.drop_day(day, Some(&sum.end())).await?;
        assert!(dropped, "nobody else writes to {day}");
        Ok(())
    }

    async fn newest(&self, limit: usize) -> Result<Vec<Vec<Event>>> {
        let entries = self.journal(JournalQuery::Newest(limit)).await?.into_iter();
        Ok(entries.map(|entry| entry.events).collect())
    }

    async fn unlease(&self, name: &str, owner: &str) -> Result<()> {
        self.release(&Release::Lease { name, owner }).await
    }

    async fn suppress(&self, suppressions: &[Suppression]) -> Result<()> {
        let change = SuppressionChange::Suppress(suppressions);
        self.change_suppressions(&change).await.map(drop)
    }

    async fn lift(
        &self,
        address: &Address,
        at: DateTime<Utc>,
        expired: DateTime<Utc>,
    ) -> Result<bool> {
        let change = SuppressionChange::Lift {
            address,
            at,
            expired,
        };
        Ok(self.change_suppressions(&change).await? == 1)
    }

    async fn soft_bounce(
        &self,
        address: &Address,
        delivery: &DeliveryId,
        at: DateTime<Utc>,
        since: DateTime<Utc>,
    ) -> Result<u64> {
        let change = SuppressionChange::SoftBounce {
            address,
            delivery,
            at,
            since,
        };
        self.change_suppressions(&change).await
    }

    async fn suppressed(&self, addresses: &[Address]) -> Result<Vec<Option<Suppression>>> {
        let states = self.address_states(addresses).await?.into_iter();
        Ok(states.map(|state| state.suppression).collect())
    }

    async fn lifts(&self, addresses: &[Address]) -> Result<Vec<Option<DateTime<Utc>>>> {
        let states = self.address_states(addresses).await?.into_iter();
        Ok(states.map(|state| state.lifted).collect())
    }

    async fn sight(
        &self,
        marks: &[(String, String)],
        now: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> Result<Vec<String>> {
        let marks = self.webhook_receipts(marks, now, Some(until)).await?;
        Ok(marks.into_iter().flatten().collect())
    }

    async fn sighted(&self, keys: &[String], now: DateTime<Utc>) -> Result<Vec<Option<String>>> {
        let marks: Vec<_> = keys
            .iter()
            .map(|key| (key.clone(), String::new()))
            .collect();
        self.webhook_receipts(&marks, now, None).await
    }
}

impl<T: Store + ?Sized> Shorthand for T {}

fn all<T: Clone, U>(of: &[T], into: impl Fn(T) -> U) -> Vec<U> {
    of.iter().cloned().map(into).collect()
}
