//! Measures calls to the store: the duration of each method, and its effects.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use futures::StreamExt;
use futures::stream::BoxStream;

use crate::clock::Clock;
use crate::domain::batch::{Accumulator, AccumulatorId, Addition};
use crate::domain::delivery::{Cause, Corrected, Correction, Transition};
use crate::domain::{
    Address, BadStack, Batch, BatchState, Day, Delivery, DeliveryId, Details, Event, Fanout,
    Feedback, FollowKey, Id, Inbox, Lease, Object, ObjectKey, PersonStacks, Poke, Progress,
    ReportCounts, Retraction, Suppression, User, UserId, Window,
};
use crate::metrics::Metrics;
use crate::store::{
    Accepted, AccumulatorFilter, AtMost, BatchFilter, Batches, Claim, Claimed, Counted, DaySum,
    Days, Deliveries, DeliveryFilter, Diagnostics, Directory, FeedParts, Feedbacks, FollowChange,
    Forgettable, Inboxes, Journal, Leases, Meeting, NewMarker, Notes, Objects, Outstanding, People,
    PeopleFilter, Pokes, Pushed, Pushes, RawStack, Result, Retention, Retractions, Schema,
    SeenReports, Server, SharedAddresses, Stacks, Store, Suppressions, Waits,
};

/// Wraps a store.
pub(in crate::app) struct MeasuredStore {
    pub(in crate::app) inner: Arc<dyn Store>,
    pub(in crate::app) metrics: Metrics,
    pub(in crate::app) clock: Arc<dyn Clock>,
}

impl MeasuredStore {
    async fn call<T>(
        &self,
        verb: &'static str,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let began = Instant::now();
        let done = work.await;
        self.metrics.stored(verb, began.elapsed(), done.is_ok());
        done
    }

    fn count_unreadable(&self, users: &[Option<User>]) {
        for unreadable in users.iter().flatten().flat_map(|user| &user.unreadable) {
            let field = unreadable.field.split('.').next().unwrap_or_default();
            self.metrics.unreadable("user", field);
        }
    }

    /// Times a stream until its first chunk, because later chunks depend on the speed of the
    /// reader. Records errors of all chunks.
    fn stream<'a, T: Send + 'a>(
        &self,
        verb: &'static str,
        chunks: BoxStream<'a, Result<T>>,
    ) -> BoxStream<'a, Result<T>> {
        let (metrics, began) = (self.metrics.clone(), Instant::now());
        let mut first = true;
        let told = chunks.inspect(move |chunk| {
            if first || chunk.is_err() {
                metrics.stored(verb, began.elapsed(), chunk.is_ok());
            }
            first = false;
        });
        told.boxed()
    }

    /// Counts an accepted event or a duplicate.
    fn note_accepted(&self, fanout: &Fanout, accepted: &Accepted) {
        match accepted {
            Accepted::New => self.metrics.accepted(fanout.kind.as_str()),
            Accepted::Known(_) => self.metrics.repeated(),
        }
    }

    /// Counts a finished fan-out.
    fn note_progress(&self, id: Id, progress: &Progress, now: DateTime<Utc>) {
        if !progress.done {
            return;
        }
        let lag = (now - id.time()).to_std().unwrap_or_default();
        let counts = progress.counts;
        self.metrics
            .fanned_out(lag, counts.people, counts.pushed, counts.capped);
        tracing::debug!(event = %id, people = counts.people, "an event was fanned out");
    }

    /// Counts and logs a completed transition of a delivery.
    fn note_transition(&self, transition: &Transition) {
        let occasion = occasion(transition.id());
        match transition {
            Transition::Settle(settlement) | Transition::Conclude(settlement) => {
                let state = settlement.state.as_str();
                let cause = settlement.cause.map_or("", Cause::as_str);
                self.metrics
                    .settled(occasion, state, cause, settlement.items);
                let delivery = settlement.id.tag();
                tracing::debug!(%delivery, occasion, state, "a delivery ended");
            }
            Transition::Defer(deferral) => {
                self.metrics.deferred(occasion);
                let delivery = deferral.id.tag();
                tracing::debug!(%delivery, occasion, "a delivery was put off");
            }
            Transition::HandOver(handover) => {
                let delivery = handover.id.tag();
                tracing::debug!(%delivery, occasion, call = handover.call, "a delivery is sent");
            }
            Transition::Recall(_) | Transition::Hold(_) => {}
        }
    }
}

/// Returns the label for the occasion of a delivery, which its id starts with.
fn occasion(id: &DeliveryId) -> &'static str {
    match id.as_str().starts_with("batch:") {
        true => "batch",
        false => "digest",
    }
}

/// Implements a trait by forwarding each method and timing it under its name.
macro_rules! hand_on {
    ($of:ident: $($verb:ident($($name:ident: $kind:ty),*) -> $answer:ty $(=> $see:ident)?;)*) => {
        #[async_trait]
        impl $of for MeasuredStore {
            $(
                async fn $verb(&self, $($name: $kind),*) -> Result<$answer> {
                    let answer = self.call(stringify!($verb), self.inner.$verb($($name),*)).await?;
                    $(self.$see(&answer);)?
                    Ok(answer)
                }
            )*
        }
    };
}

#[async_trait]
impl Stacks for MeasuredStore {
    async fn catch_up(&self) -> Result<()> {
        self.call("catch_up", self.inner.catch_up()).await
    }

    async fn push(&self, day: Day, cap: usize, pushes: &Pushes) -> Result<Pushed> {
        self.call("push", self.inner.push(day, cap, pushes)).await
    }

    fn scan(
        &self,
        window: Window,
        after: Option<UserId>,
        chunk: usize,
    ) -> BoxStream<'_, Result<Vec<PersonStacks>>> {
        self.stream("scan", self.inner.scan(window, after, chunk))
    }

    async fn windows(&self, window: Window, people: People<'_>) -> Result<Vec<PersonStacks>> {
        self.call("windows", self.inner.windows(window, people))
            .await
    }

    async fn write_markers(&self, markers: &[NewMarker]) -> Result<Vec<BadStack>> {
        self.call("mark", self.inner.write_markers(markers)).await
    }
}

#[async_trait]
impl Days for MeasuredStore {
    async fn days(&self) -> Result<Vec<Day>> {
        self.call("days", self.inner.days()).await
    }

    async fn drop_day(&self, day: Day, sum: &DaySum) -> Result<bool> {
        self.call("drop_day", self.inner.drop_day(day, sum)).await
    }

    async fn fix_day(&self, day: Day) -> Result<()> {
        self.call("fix_day", self.inner.fix_day(day)).await
    }

    fn export_day(&self, day: Day) -> BoxStream<'_, Result<Vec<RawStack>>> {
        self.stream("export_day", self.inner.export_day(day))
    }

    async fn restore_day(&self, day: Day, stacks: &[RawStack], meeting: Meeting) -> Result<()> {
        self.call("restore_day", self.inner.restore_day(day, stacks, meeting))
            .await
    }
}

#[async_trait]
impl Journal for MeasuredStore {
    async fn forget_actor(&self, user: &UserId) -> Result<()> {
        let forgotten = self.inner.forget_actor(user);
        self.call("forget_actor", forgotten).await
    }

    async fn accept(&self, fanouts: &[Fanout]) -> Result<Vec<Accepted>> {
        let accepted = self.call("accept", self.inner.accept(fanouts)).await?;
        for (fanout, accepted) in fanouts.iter().zip(&accepted) {
            self.note_accepted(fanout, accepted);
        }
        Ok(accepted)
    }

    async fn claim_fanouts(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
        most: AtMost,
    ) -> Result<Claimed> {
        let claimed = self.inner.claim_fanouts(owner, now, until, most);
        self.call("claim_fanouts", claimed).await
    }

    async fn save_fanouts(
        &self,
        owner: &str,
        until: DateTime<Utc>,
        progress: &[(Id, Progress)],
    ) -> Result<Vec<bool>> {
        let saved = self.inner.save_fanouts(owner, until, progress);
        let saved = self.call("save_fanouts", saved).await?;
        let now = self.clock.now();
        for ((id, progress), saved) in progress.iter().zip(&saved) {
            if *saved {
                self.note_progress(*id, progress, now);
            }
        }
        Ok(saved)
    }

    async fn release_fanouts(&self, owner: &str) -> Result<()> {
        let released = self.inner.release_fanouts(owner);
        self.call("release_fanouts", released).await
    }

    async fn fanout(&self, id: Id) -> Result<Option<Fanout>> {
        self.call("fanout", self.inner.fanout(id)).await
    }

    async fn details(&self, ids: &[Id]) -> Result<Vec<Option<Details>>> {
        self.call("details", self.inner.details(ids)).await
    }

    async fn newest(&self, limit: usize) -> Result<Vec<Vec<Event>>> {
        self.call("newest", self.inner.newest(limit)).await
    }

    async fn oldest_pending(&self) -> Result<Option<DateTime<Utc>>> {
        let verb = "oldest_pending";
        self.call(verb, self.inner.oldest_pending()).await
    }

    async fn busy_days(&self) -> Result<Vec<Day>> {
        self.call("busy_days", self.inner.busy_days()).await
    }
}

#[async_trait]
impl Deliveries for MeasuredStore {
    async fn open(&self, rows: &[Delivery]) -> Result<Vec<bool>> {
        let opened = self.call("open", self.inner.open(rows)).await?;
        for (row, opened) in rows.iter().zip(&opened) {
            if *opened {
                self.metrics.opened(occasion(&row.id));
            }
        }
        Ok(opened)
    }

    async fn claim(
        &self,
        owner: &str,
        until: DateTime<Utc>,
        which: &Claim<'_>,
    ) -> Result<Vec<Delivery>> {
        self.call("claim", self.inner.claim(owner, until, which))
            .await
    }

    async fn advance(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
        transitions: &[Transition],
    ) -> Result<Vec<bool>> {
        let made = self.inner.advance(owner, now, until, transitions);
        let made = self.call("advance", made).await?;
        for (transition, made) in transitions.iter().zip(&made) {
            if *made {
                self.note_transition(transition);
            }
        }
        Ok(made)
    }

    async fn close(&self, ids: &[DeliveryId]) -> Result<()> {
        self.call("close", self.inner.close(ids)).await
    }

    async fn release(&self, which: &Waits<'_>) -> Result<()> {
        self.call("release", self.inner.release(which)).await
    }

    async fn correct(
        &self,
        now: DateTime<Utc>,
        corrections: &[Correction],
    ) -> Result<Vec<Corrected>> {
        self.call("correct", self.inner.correct(now, corrections))
            .await
    }

    async fn deliveries(&self, ids: &[DeliveryId]) -> Result<Vec<Option<Delivery>>> {
        self.call("deliveries", self.inner.deliveries(ids)).await
    }

    async fn find_deliveries(
        &self,
        filter: &DeliveryFilter<'_>,
        limit: usize,
    ) -> Result<Vec<Delivery>> {
        let found = self.inner.find_deliveries(filter, limit);
        self.call("find_deliveries", found).await
    }
}

#[async_trait]
impl Feedbacks for MeasuredStore {
    async fn note_feedback(&self, feedback: &[(DeliveryId, Feedback)]) -> Result<()> {
        let noted = self.inner.note_feedback(feedback);
        self.call("note_feedback", noted).await?;
        for (delivery, Feedback { news, .. }) in feedback {
            let (delivery, news) = (delivery.tag(), news.as_str());
            self.metrics.reported(news);
            tracing::debug!(%delivery, news, "a report was noted");
        }
        Ok(())
    }

    async fn report_counts(&self, since: DateTime<Utc>) -> Result<ReportCounts> {
        self.call("report_counts", self.inner.report_counts(since))
            .await
    }
}

/// Not timed: a subscription lasts until its subscriber drops it.
#[async_trait]
impl Pokes for MeasuredStore {
    async fn pokes(&self) -> Result<BoxStream<'static, Result<Poke>>> {
        self.inner.pokes().await
    }
}

hand_on! { Directory:
    put_users(users: &[User]) -> Vec<bool>;
    users(ids: &[UserId]) -> Vec<Option<User>> => count_unreadable;
    delete_user(id: &UserId) -> bool;
    change_follows(change: FollowChange, follows: &[(FollowKey, UserId)]) -> ();
    find_people(filter: &PeopleFilter<'_>, after: Option<&UserId>, limit: usize) -> Vec<UserId>;
    zones() -> Vec<Tz>;
    locales() -> Vec<String>;
    shared_addresses(limit: usize) -> SharedAddresses;
    following(follows: &[(FollowKey, UserId)]) -> Vec<bool>;
    follows(user: &UserId, after: Option<&FollowKey>, limit: usize) -> Vec<FollowKey>;
}

hand_on! { Objects:
    put_objects(objects: &[Object]) -> ();
    objects(keys: &[ObjectKey]) -> Vec<Option<Object>>;
}

hand_on! { Inboxes:
    inboxes(users: &[UserId]) -> Vec<Option<Inbox>>;
    feed(window: Window, user: &UserId) -> FeedParts;
    put_inbox(inbox: &Inbox, revision: Id) -> bool;
}

hand_on! { Batches:
    accumulators(ids: &[AccumulatorId]) -> Vec<Option<Accumulator>>;
    put_accumulators(accumulators: &[Accumulator], revision: Id) -> Vec<bool>;
    add_to_open(accumulators: &[(AccumulatorId, usize)], additions: &[Addition], revision: Id) -> bool;
    find_accumulators(filter: &AccumulatorFilter<'_>, limit: usize) -> Vec<Accumulator>;
    file_batches(batches: &[Batch]) -> Vec<bool>;
    filed(ids: &[Id]) -> Vec<Option<Batch>>;
    settle_batches(settled: &[(Id, BatchState)], now: DateTime<Utc>) -> ();
    find_batches(filter: &BatchFilter, before: Option<Id>, limit: usize) -> Vec<Batch>;
}

hand_on! { Leases:
    lease(name: &str, lease: &Lease, now: DateTime<Utc>) -> bool;
    unlease(name: &str, owner: &str) -> ();
}

hand_on! { Notes:
    note(name: &str) -> Option<String>;
    notes(prefix: &str) -> Vec<(String, String)>;
    notes_named(names: &[String]) -> Vec<Option<String>>;
    swap_note(name: &str, read: Option<&str>, text: Option<&str>) -> bool;
}

hand_on! { Suppressions:
    suppress(suppressions: &[Suppression]) -> ();
    suppressed(addresses: &[Address]) -> Vec<Option<Suppression>>;
    suppressions(after: Option<&Address>, limit: usize) -> Vec<Suppression>;
    lift(address: &Address, at: DateTime<Utc>, expired: DateTime<Utc>) -> bool;
    lifts(addresses: &[Address]) -> Vec<Option<DateTime<Utc>>>;
    soft_bounce(address: &Address, delivery: &DeliveryId, at: DateTime<Utc>, since: DateTime<Utc>) -> u64;
}

hand_on! { SeenReports:
    sight(marks: &[(String, String)], now: DateTime<Utc>, until: DateTime<Utc>) -> Vec<String>;
    sighted(keys: &[String], now: DateTime<Utc>) -> Vec<Option<String>>;
}

hand_on! { Diagnostics:
    server() -> Server;
    schema() -> Schema;
    count(what: &[Counted]) -> Vec<u64>;
    outstanding(now: DateTime<Utc>, most: u64) -> Outstanding;
    missing_indexes() -> Vec<String>;
}

hand_on! { Retention:
    forget(what: Forgettable, before: DateTime<Utc>, limit: usize) -> u64;
}

hand_on! { Retractions:
    retract(retractions: &[Retraction], about: &Poke) -> ();
    retractions(events: &[Event]) -> Vec<Option<Id>>;
}
