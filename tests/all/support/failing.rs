//! A store whose nth call fails, either before it takes effect or after it.
//!
//! Each method of each trait counts as one call, including reads. A test that runs through all n,
//! with each [`Fault`] and [`Then`], has failed and crashed at every step.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use tidings::domain::batch::{Accumulator, AccumulatorId, Addition};
use tidings::domain::delivery::{Corrected, Correction, Transition};
use tidings::domain::{
    Address, BadStack, Batch, BatchState, Day, Delivery, DeliveryId, Details, Event, Fanout,
    Feedback, FollowKey, Id, Inbox, Lease, Object, ObjectKey, PersonStacks, Poke, Progress,
    ReportCounts, Retraction, Suppression, User, UserId, Window,
};
use tidings::store::{
    Accepted, AccumulatorFilter, AtMost, BatchFilter, Batches, Claim, Claimed, Counted, DaySum,
    Days, Deliveries, DeliveryFilter, Diagnostics, Directory, Error, FeedParts, Feedbacks,
    FollowChange, Forgettable, Inboxes, Journal, Leases, Meeting, NewMarker, Notes, Objects,
    Outstanding, People, PeopleFilter, Pokes, Pushed, Pushes, RawStack, Result, Retention,
    Retractions, Schema, SeenReports, Server, SharedAddresses, Stacks, Store, Suppressions, Waits,
};

/// How the nth call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call has no effect.
    Refused,
    /// The call takes effect, but its reply is lost. A stream ends after its first chunk.
    Unheard,
}

/// The outcome of the calls after the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// They succeed, as after a short network failure.
    Recovers,
    /// They fail, as if the process had died. Its successor needs another handle.
    StaysDown,
}

/// A store that wraps another one.
pub struct FailingStore {
    inner: Arc<dyn Store>,
    plan: Mutex<Plan>,
    /// Runs before each call.
    before: Option<Before>,
    /// The method before which `before` must run, and whether it did.
    due: Option<(&'static str, Arc<AtomicBool>)>,
    /// Outdated accumulators that the next search also returns, first.
    stale: Mutex<Vec<Accumulator>>,
}

impl Drop for FailingStore {
    fn drop(&mut self) {
        let Some((verb, came)) = &self.due else {
            return;
        };
        if !std::thread::panicking() {
            assert!(came.load(Ordering::Relaxed), "nobody called {verb}");
        }
    }
}

/// Runs before a call of this method.
pub type Before = Box<dyn Fn(&'static str) -> BoxFuture<'static, ()> + Send + Sync>;

#[derive(Default)]
struct Plan {
    calls: usize,
    fails: Option<(usize, Fault, Then)>,
    /// If set, only calls of this method count.
    only: Option<&'static str>,
    struck: Option<&'static str>,
    verbs: BTreeSet<&'static str>,
}

impl FailingStore {
    /// A store whose call number `nth` fails, counted from 0.
    pub fn new(inner: Arc<dyn Store>, nth: usize, fault: Fault, then: Then) -> Arc<Self> {
        let fails = Some((nth, fault, then));
        let plan = Mutex::new(Plan {
            fails,
            ..Plan::default()
        });
        Arc::new(Self {
            inner,
            plan,
            before: None,
            due: None,
            stale: Mutex::default(),
        })
    }

    /// A store that fails only call number `nth` of this method, counted from 0.
    pub fn of_verb(inner: Arc<dyn Store>, verb: &'static str, nth: usize) -> Arc<Self> {
        let plan = Mutex::new(Plan {
            fails: Some((nth, Fault::Refused, Then::Recovers)),
            only: Some(verb),
            ..Plan::default()
        });
        Arc::new(Self {
            inner,
            plan,
            before: None,
            due: None,
            stale: Mutex::default(),
        })
    }

    /// A store that runs `what` before the first call of this method. Dropping it panics if there
    /// was no such call.
    pub fn before(
        inner: Arc<dyn Store>,
        verb: &'static str,
        what: BoxFuture<'static, ()>,
    ) -> Arc<Self> {
        let (once, came) = (Mutex::new(Some(what)), Arc::new(AtomicBool::new(false)));
        let due = Some((verb, came.clone()));
        let before: Before = Box::new(move |called| {
            let what = (called == verb).then(|| once.lock().unwrap().take());
            match what.flatten() {
                Some(what) => {
                    came.store(true, Ordering::Relaxed);
                    what
                }
                None => Box::pin(std::future::ready(())),
            }
        });
        Arc::new(Self {
            inner,
            plan: Mutex::default(),
            before: Some(before),
            due,
            stale: Mutex::default(),
        })
    }

    /// A store whose first search for accumulators also returns these, first. MongoDB may return an
    /// accumulator twice that moves in the index during the search: in its old and its new state.
    pub fn finding_stale_first(inner: Arc<dyn Store>, stale: Vec<Accumulator>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            plan: Mutex::default(),
            before: None,
            due: None,
            stale: Mutex::new(stale),
        })
    }

    /// A store that only counts calls.
    pub fn counting(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            plan: Mutex::default(),
            before: None,
            due: None,
            stale: Mutex::default(),
        })
    }

    /// A store that waits for `before` at each call, except for streams.
    pub fn waiting(inner: Arc<dyn Store>, before: Before) -> Arc<Self> {
        Arc::new(Self {
            inner,
            plan: Mutex::default(),
            before: Some(before),
            due: None,
            stale: Mutex::default(),
        })
    }

    /// The number of calls, including failed ones.
    pub fn calls(&self) -> usize {
        self.plan.lock().unwrap().calls
    }

    /// The method that failed, or `None` if there were too few calls.
    pub fn struck(&self) -> Option<&'static str> {
        self.plan.lock().unwrap().struck
    }

    /// The methods that were called.
    pub fn verbs(&self) -> BTreeSet<&'static str> {
        self.plan.lock().unwrap().verbs.clone()
    }

    /// Counts a call and returns its fault, if any.
    fn next(&self, verb: &'static str) -> Option<Fault> {
        let mut plan = self.plan.lock().unwrap();
        plan.verbs.insert(verb);
        if plan.only.is_some_and(|only| only != verb) {
            return None;
        }
        let call = plan.calls;
        plan.calls += 1;
        let (nth, fault, then) = plan.fails?;
        if call == nth {
            plan.struck = Some(verb);
            return Some(fault);
        }
        (call > nth && then == Then::StaysDown).then_some(Fault::Refused)
    }

    async fn call<T>(
        &self,
        verb: &'static str,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        if let Some(before) = &self.before {
            before(verb).await;
        }
        match self.next(verb) {
            None => work.await,
            Some(Fault::Refused) => Err(failure(verb)),
            Some(Fault::Unheard) => {
                work.await?;
                Err(failure(verb))
            }
        }
    }

    fn stream<'a, T: Send + 'a>(
        &self,
        verb: &'static str,
        chunks: BoxStream<'a, Result<T>>,
    ) -> BoxStream<'a, Result<T>> {
        let broken = stream::once(async move { Err(failure(verb)) });
        match self.next(verb) {
            None => chunks,
            Some(Fault::Refused) => broken.boxed(),
            Some(Fault::Unheard) => chunks.take(1).chain(broken).boxed(),
        }
    }
}

fn failure(verb: &str) -> Error {
    Error::database(format!("calling {verb}"), "the test wanted it to fail")
}

/// The name under which a call with these transitions counts.
fn transition(transitions: &[Transition]) -> &'static str {
    match transitions.first() {
        Some(Transition::HandOver(_)) => "hand_over",
        Some(Transition::Recall(_)) => "recall",
        Some(Transition::Hold(_)) => "hold",
        Some(Transition::Defer(_)) => "defer",
        Some(Transition::Settle(_) | Transition::Conclude(_)) => "settle",
        None => "advance",
    }
}

/// Implements a trait by forwarding each method as one call. The call has the method's name, or the
/// given one. Methods in braces are implemented directly.
macro_rules! hand_on {
    ($of:ident $({ $($own:tt)* })?: $($verb:ident($($name:ident: $kind:ty),*) -> $answer:ty $(, called $called:expr)?;)*) => {
        #[async_trait]
        impl $of for FailingStore {
            $($($own)*)?
            $(
                async fn $verb(&self, $($name: $kind),*) -> Result<$answer> {
                    let called = [stringify!($verb) $(, $called)?];
                    let called = called[called.len() - 1];
                    self.call(called, self.inner.$verb($($name),*)).await
                }
            )*
        }
    };
}

#[async_trait]
impl Stacks for FailingStore {
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
        let verb = match markers.first() {
            Some(NewMarker::Mailed { .. }) => "mark_mailed",
            Some(NewMarker::Flushed { .. }) | None => "mark",
        };
        self.call(verb, self.inner.write_markers(markers)).await
    }
}

#[async_trait]
impl Days for FailingStore {
    async fn days(&self) -> Result<Vec<Day>> {
        self.call("days", self.inner.days()).await
    }

    async fn drop_day(&self, day: Day, sum: &DaySum) -> Result<bool> {
        self.call("drop_day", self.inner.drop_day(day, sum)).await
    }

    fn export_day(&self, day: Day) -> BoxStream<'_, Result<Vec<RawStack>>> {
        self.stream("export_day", self.inner.export_day(day))
    }

    async fn fix_day(&self, day: Day) -> Result<()> {
        self.call("fix_day", self.inner.fix_day(day)).await
    }

    async fn restore_day(&self, day: Day, stacks: &[RawStack], meeting: Meeting) -> Result<()> {
        self.call("restore_day", self.inner.restore_day(day, stacks, meeting))
            .await
    }
}

hand_on! { Directory:
    put_users(users: &[User]) -> Vec<bool>;
    users(ids: &[UserId]) -> Vec<Option<User>>;
    delete_user(id: &UserId) -> bool;
    change_follows(change: FollowChange, follows: &[(FollowKey, UserId)]) -> ();
    following(follows: &[(FollowKey, UserId)]) -> Vec<bool>;
    follows(user: &UserId, after: Option<&FollowKey>, limit: usize) -> Vec<FollowKey>;
    find_people(filter: &PeopleFilter<'_>, after: Option<&UserId>, limit: usize) -> Vec<UserId>;
    zones() -> Vec<Tz>;
    locales() -> Vec<String>;
    shared_addresses(limit: usize) -> SharedAddresses;
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

/// Subscribing does not count as a call, because servers subscribe at unpredictable times.
#[async_trait]
impl Pokes for FailingStore {
    async fn pokes(&self) -> Result<BoxStream<'static, Result<Poke>>> {
        self.inner.pokes().await
    }
}

hand_on! { Batches {
    async fn find_accumulators(&self, filter: &AccumulatorFilter<'_>, limit: usize) -> Result<Vec<Accumulator>> {
        let mut all = std::mem::take(&mut *self.stale.lock().unwrap());
        let found = self.inner.find_accumulators(filter, limit);
        all.extend(self.call("find_accumulators", found).await?);
        Ok(all)
    }
}:
    accumulators(ids: &[AccumulatorId]) -> Vec<Option<Accumulator>>;
    put_accumulators(accumulators: &[Accumulator], revision: Id) -> Vec<bool>;
    add_to_open(accumulators: &[(AccumulatorId, usize)], additions: &[Addition], revision: Id) -> bool;
    file_batches(batches: &[Batch]) -> Vec<bool>;
    filed(ids: &[Id]) -> Vec<Option<Batch>>;
    settle_batches(settled: &[(Id, BatchState)], now: DateTime<Utc>) -> ();
    find_batches(filter: &BatchFilter, before: Option<Id>, limit: usize) -> Vec<Batch>;
}

hand_on! { Journal:
    accept(fanouts: &[Fanout]) -> Vec<Accepted>;
    claim_fanouts(owner: &str, now: DateTime<Utc>, until: DateTime<Utc>, most: AtMost) -> Claimed;
    save_fanouts(owner: &str, until: DateTime<Utc>, progress: &[(Id, Progress)]) -> Vec<bool>;
    release_fanouts(owner: &str) -> ();
    fanout(id: Id) -> Option<Fanout>;
    details(ids: &[Id]) -> Vec<Option<Details>>;
    forget_actor(user: &UserId) -> ();
    newest(limit: usize) -> Vec<Vec<Event>>;
    oldest_pending() -> Option<DateTime<Utc>>;
    busy_days() -> Vec<Day>;
}

hand_on! { Deliveries:
    open(rows: &[Delivery]) -> Vec<bool>;
    claim(owner: &str, until: DateTime<Utc>, which: &Claim<'_>) -> Vec<Delivery>;
    advance(owner: &str, now: DateTime<Utc>, until: DateTime<Utc>, transitions: &[Transition]) -> Vec<bool>, called transition(transitions);
    close(ids: &[DeliveryId]) -> ();
    release(which: &Waits<'_>) -> ();
    correct(now: DateTime<Utc>, corrections: &[Correction]) -> Vec<Corrected>;
    deliveries(ids: &[DeliveryId]) -> Vec<Option<Delivery>>;
    find_deliveries(filter: &DeliveryFilter<'_>, limit: usize) -> Vec<Delivery>;
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

hand_on! { Feedbacks:
    note_feedback(feedback: &[(DeliveryId, Feedback)]) -> ();
    report_counts(since: DateTime<Utc>) -> ReportCounts;
}

hand_on! { Diagnostics:
    server() -> Server;
    schema() -> Schema;
    count(what: &[Counted]) -> Vec<u64>;
    outstanding(now: DateTime<Utc>, most: u64) -> Outstanding;
    missing_indexes() -> Vec<String>;
}

hand_on! { Retractions:
    retract(retractions: &[Retraction], about: &Poke) -> ();
    retractions(events: &[Event]) -> Vec<Option<Id>>;
}

hand_on! { Retention:
    forget(what: Forgettable, before: DateTime<Utc>, limit: usize) -> u64;
}

hand_on! { SeenReports:
    sight(marks: &[(String, String)], now: DateTime<Utc>, until: DateTime<Utc>) -> Vec<String>;
    sighted(keys: &[String], now: DateTime<Utc>) -> Vec<Option<String>>;
}

#[tokio::test]
#[should_panic(expected = "nobody called unlease")]
async fn waiting_for_a_method_that_is_never_called_panics() {
    super::sqlite::run(|fresh| async move {
        let never = Box::pin(std::future::ready(()));
        FailingStore::before(fresh.handle(), "unlease", never);
    })
    .await;
}
