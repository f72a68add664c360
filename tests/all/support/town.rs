//! A simulated town for tests of services: a few users with follows, some works, and a provider.
//!
//! It starts on Saturday, 19 April 2014. Weekly digests fall due on Mondays at 09:00 UTC. A worker
//! that meets an error is dead, and [`Town::process`] creates a new one.
//!
//! Long because the provider shares the town's clock and records.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::BoxFuture;
use tidings::app::{App, Mailers, TemplateUse, Themes};
use tidings::clock::{Clock, ManualClock};
use tidings::config::Config;
use tidings::domain::{
    Address, Audience, Day, Delivery, DeliveryId, FollowKey, Object, ObjectId, PendingCounts, User,
    UserId,
};
use tidings::email::{
    CheckResult, Mailer, Message, Outcome, QueryAnswer, QueryFailure, Resolution, SendPermit,
    SendPermitState,
};
use tidings::engine::NoProgress;
use tidings::engine::ingest::NewEvent;
use tidings::ids::Ids;
use tidings::metrics::Metrics;
use tidings::store::Store;
use tidings::wire::event::Receipt;
use tidings::wire::feed::FeedPage;
use tidings::wire::run_report::{DigestReport, Tally};

use super::{Fresh, Shorthand, feed_of, key, kind, user};

/// Saturday morning, two days before the weekly digests.
pub fn saturday() -> DateTime<Utc> {
    "2014-04-19T10:00:00Z".parse().unwrap()
}

/// Half an hour after the weekly digests fall due, `week` weeks after Monday, 21 April.
pub fn monday(week: i64) -> DateTime<Utc> {
    "2014-04-21T09:30:00Z".parse::<DateTime<Utc>>().unwrap() + TimeDelta::weeks(week)
}

/// Works in the store. `a9` is withdrawn.
pub const WORKS: [&str; 7] = ["a1", "a2", "a3", "a4", "a5", "a6", "a9"];
/// Users in the store. `dee` has not confirmed her address.
pub const PEOPLE: [&str; 4] = ["ada", "ben", "cem", "dee"];

type Meanwhile = Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send>;

/// A provider that records emails. It accepts all of them, unless a test sets other answers. With
/// [`Certainty::Repeat`], it accepts a repeated call without sending again.
pub struct Postbox {
    certainty: Resolution,
    clock: Arc<ManualClock>,
    emails: Mutex<Vec<Message>>,
    answers: Mutex<VecDeque<Outcome>>,
    meanwhile: Mutex<Option<Meanwhile>>,
    calls: Mutex<Vec<Call>>,
    /// Accepted calls by reference.
    accepted_calls: Mutex<HashMap<String, Vec<DeliveryId>>>,
    /// The number of queries that fail.
    pub silent: AtomicUsize,
    /// The retry delay that a failed query asks for.
    pub after: Mutex<Option<Duration>>,
    /// Duration of each call.
    pub send_takes: Mutex<TimeDelta>,
    /// Duration of each query.
    pub ask_takes: Mutex<TimeDelta>,
    /// The provider account.
    pub account: Mutex<&'static str>,
    /// Maximum number of emails in a call.
    pub per_call: AtomicUsize,
    /// The number of emails in each portion that was checked together.
    pub portions: Mutex<Vec<usize>>,
    /// A barrier that concurrent calls wait for before they are answered.
    pub together: Mutex<Option<Arc<tokio::sync::Barrier>>>,
}

impl Postbox {
    /// Accepts everything from now on.
    pub fn takes_everything(&self) {
        self.answers.lock().unwrap().clear();
    }
}

/// A call that the provider received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub at: DateTime<Utc>,
    pub reference: String,
    pub deliveries: Vec<DeliveryId>,
}

/// The provider is busy, and does not say for how long.
pub fn busy() -> Outcome {
    Outcome::TryLater("busy".into(), None)
}

/// The provider permanently rejects the email.
pub fn refused(reason: &str) -> Outcome {
    Outcome::Refused(reason.into())
}

/// The reply is lost, but the email was accepted.
pub fn lost() -> Outcome {
    Outcome::Unknown("no answer in 30 s".into())
}

/// The request is lost, so the email was not accepted.
pub fn cut_off() -> Outcome {
    Outcome::Unknown(CUT_OFF.into())
}

const CUT_OFF: &str = "cut off on the way";

#[async_trait::async_trait]
impl Mailer for Postbox {
    fn split_into_calls(&self, messages: &[Message]) -> Vec<Vec<usize>> {
        self.portions.lock().unwrap().push(messages.len());
        let places: Vec<usize> = (0..messages.len()).collect();
        let size = self.per_call.load(Ordering::Relaxed);
        places.chunks(size).map(<[usize]>::to_vec).collect()
    }

    async fn send(
        &self,
        reference: &str,
        messages: &[Message],
        permit: &SendPermit,
    ) -> Vec<Outcome> {
        if let Some(reason) = permit.withheld_reason() {
            return vec![Outcome::Withheld(reason); messages.len()];
        }
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile().await;
        }
        let together = self.together.lock().unwrap().clone();
        if let Some(together) = together {
            together.wait().await;
        }
        // The call has begun. It stops only if the lease may be lost or the process is shutting
        // down.
        if permit.state() != SendPermitState::Stale
            && let Some(reason) = permit.withheld_reason()
        {
            return vec![Outcome::Withheld(reason); messages.len()];
        }
        let deliveries: Vec<_> = messages.iter().map(|email| email.delivery.clone()).collect();
        self.calls.lock().unwrap().push(Call {
            at: self.clock.now(),
            reference: reference.into(),
            deliveries: deliveries.clone(),
        });
        self.clock.advance(*self.send_takes.lock().unwrap());
        if let Some(before) = self.accepted_calls.lock().unwrap().get(reference) {
            let said_again = |delivery: &DeliveryId| {
                Outcome::Accepted(if *before == deliveries {
                    format!("p:{delivery}")
                } else {
                    reference.to_owned()
                })
            };
            return deliveries.iter().map(said_again).collect();
        }
        let mut outcomes = Vec::with_capacity(messages.len());
        for message in messages {
            let accepted = Outcome::Accepted(format!("p:{}", message.delivery));
            let outcome = self.answers.lock().unwrap().pop_front().unwrap_or(accepted);
            let is_accepted = match &outcome {
                Outcome::Accepted(..) => true,
                Outcome::Unknown(reason) => reason != CUT_OFF,
                _ => false,
            };
            if is_accepted {
                self.emails.lock().unwrap().push(message.clone());
                if matches!(self.certainty, Resolution::Repeat { .. }) {
                    let mut calls = self.accepted_calls.lock().unwrap();
                    calls.insert(reference.to_owned(), deliveries.clone());
                }
            }
            outcomes.push(outcome);
        }
        outcomes
    }

    fn resolution(&self) -> Resolution {
        self.certainty
    }

    async fn query_outcomes(
        &self,
        _reference: &str,
        deliveries: &[DeliveryId],
    ) -> Vec<QueryAnswer> {
        self.clock.advance(*self.ask_takes.lock().unwrap());
        let silent =
            self.silent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        if silent.is_ok() {
            let silence = QueryFailure {
                reason: "the search is down".into(),
                min_wait: *self.after.lock().unwrap(),
            };
            return vec![QueryAnswer::Failed(silence); deliveries.len()];
        }
        let emails = self.emails.lock().unwrap();
        let answer = |delivery: &DeliveryId| {
            if emails.iter().any(|email| email.delivery == *delivery) {
                let provider_id = format!("p:{delivery}");
                QueryAnswer::Accepted(provider_id)
            } else {
                QueryAnswer::NotAccepted
            }
        };
        deliveries.iter().map(answer).collect()
    }

    async fn check(&self) -> CheckResult {
        CheckResult::ready("accepts every email")
    }

    fn name(&self) -> &str {
        "postbox"
    }

    fn account_id(&self) -> String {
        (*self.account.lock().unwrap()).to_owned()
    }
}

/// The simulated town with its clock and provider.
pub struct Town {
    /// The store without faults.
    pub store: Arc<dyn Store>,
    pub clock: Arc<ManualClock>,
    pub postbox: Arc<Postbox>,
    config: Config,
    themes: Themes,
    processes: Mutex<u8>,
    /// The metrics of each process.
    pub counts: Mutex<Vec<Metrics>>,
}

impl Town {
    /// Creates a town. If `safe`, calls can be repeated, otherwise outcomes may stay unknown.
    pub async fn found(fresh: &Fresh, safe: bool, config: &str) -> Self {
        let certainty =
            if safe { Resolution::Repeat { within: None } } else { Resolution::Impossible };
        Self::with(fresh, certainty, config).await
    }

    /// Creates a town whose provider has this certainty.
    pub async fn with(fresh: &Fresh, certainty: Resolution, config: &str) -> Self {
        let town = Self::on(fresh.handle(), certainty, config);
        let people = PEOPLE.map(|id| User {
            email: Address::new(format!("{id}@example.org")).ok(),
            confirmed: id != "dee",
            ..User::new(user(id))
        });
        town.store.put_users(&people).await.unwrap();
        let follows = [
            ("artist:1", "ada"),
            ("artist:1", "ben"),
            ("artist:1", "dee"),
            ("artist:2", "ada"),
            ("artist:2", "cem"),
        ];
        town.store.follow(&follows.map(|(what, who)| (key(what), user(who)))).await;
        town.put_works(&WORKS, |id| id != "a9").await;
        town
    }

    /// Creates a town from the records in the store.
    pub fn on(store: Arc<dyn Store>, certainty: Resolution, config: &str) -> Self {
        let clock = Arc::new(ManualClock::at(saturday()));
        let config = with_defaults(config);
        Self {
            store,
            clock: clock.clone(),
            postbox: Arc::new(Postbox {
                certainty,
                clock,
                emails: Mutex::default(),
                answers: Mutex::default(),
                meanwhile: Mutex::default(),
                calls: Mutex::default(),
                accepted_calls: Mutex::default(),
                silent: AtomicUsize::new(0),
                after: Mutex::default(),
                send_takes: Mutex::default(),
                ask_takes: Mutex::default(),
                account: Mutex::new("postbox"),
                per_call: AtomicUsize::new(1_000),
                portions: Mutex::default(),
                together: Mutex::default(),
            }),
            themes: themes(&config),
            config: Config::parse(&config).unwrap(),
            processes: Mutex::new(0),
            counts: Mutex::default(),
        }
    }

    /// Creates a town without configuration.
    pub async fn of(fresh: &Fresh) -> Self {
        Self::found(fresh, true, "").await
    }

    /// Adds users `p0`, `p1` and so on.
    pub async fn crowd(&self, people: usize) -> Vec<String> {
        let ids: Vec<String> = (0..people).map(|n| format!("p{n}")).collect();
        let record = |id: &String| User {
            email: Address::new(format!("{id}@example.org")).ok(),
            confirmed: true,
            ..User::new(user(id))
        };
        let records: Vec<User> = ids.iter().map(record).collect();
        self.store.put_users(&records).await.unwrap();
        ids
    }

    /// Writes works with titles like `Work a1.`.
    pub async fn put_works(&self, ids: &[&str], notifiable: impl Fn(&str) -> bool) {
        let object = |id: &&str| Object {
            title: Some(format!("Work {id}.")),
            notifiable: notifiable(id),
            ..Object::without_data(id.parse().unwrap())
        };
        self.store.put_objects(&ids.iter().map(object).collect::<Vec<_>>()).await.unwrap();
    }

    /// A new process on the town's store.
    pub fn process(&self) -> App {
        self.process_on(&self.store)
    }

    /// A new process on another handle of the store, possibly with faults.
    pub fn process_on(&self, store: &Arc<dyn Store>) -> App {
        self.assembled(store, self.postbox.clone(), self.clock.clone())
    }

    /// A new process that sends through this mailer.
    pub fn process_through(&self, mailer: Arc<dyn Mailer>) -> App {
        self.assembled(&self.store, mailer, self.clock.clone())
    }

    /// A new process with a separate clock.
    pub fn process_by(&self, clock: Arc<ManualClock>) -> App {
        self.assembled(&self.store, self.postbox.clone(), clock)
    }

    fn assembled(
        &self,
        store: &Arc<dyn Store>,
        mailer: Arc<dyn Mailer>,
        clock: Arc<ManualClock>,
    ) -> App {
        let mut processes = self.processes.lock().unwrap();
        *processes += 1;
        let ids = Arc::new(Ids::deterministic(*processes));
        let mailers = Mailers::shared(mailer, &self.config);
        let (config, themes) = (self.config.clone(), self.themes.clone());
        let app = App::from_parts(config, store.clone(), mailers, themes, clock, ids)
            .with_pinned_client(super::sns::pinned());
        self.counts.lock().unwrap().push(app.metrics.clone());
        app
    }

    /// Returns the first page of a user's feed.
    pub async fn feed(&self, person: &str) -> FeedPage {
        let request = feed_of(&user(person));
        self.process().feeds().page(&request).await.unwrap().answer
    }

    /// Accepts an event now and fans it out.
    pub async fn happens(&self, objects: &[&str], audience: Audience) -> Receipt {
        let app = self.process();
        let receipts = app.notify().accept(vec![request(objects, audience, None)]).await.unwrap();
        app.fanouts().drain(&NoProgress).await.unwrap();
        receipts[0]
    }

    /// Returns the backlog of a day, without users who may not be emailed.
    pub async fn mailable_backlog(&self, day: Day) -> PendingCounts {
        let count = self.process().backlog().count_backlog(day).await.unwrap();
        count.backlog.mailable
    }

    /// Sets the clock to this time (never back) and sends the due digests.
    pub async fn digests_at(&self, at: DateTime<Utc>) -> DigestReport {
        self.clock.set(at.max(self.clock.now()));
        self.process().digests().run(&Default::default(), &NoProgress).await.unwrap()
    }

    /// Closes due batches, and sends pending emails.
    pub async fn send_due(&self) -> Tally {
        let app = self.process();
        app.batches().drain(&NoProgress).await.unwrap();
        let sender = app.sender();
        sender.drain().await.unwrap();
        sender.ledger.tally.snapshot()
    }

    /// Sets the clock to this time (never back), closes due batches, and sends pending emails.
    pub async fn send_due_at(&self, at: DateTime<Utc>) -> Tally {
        self.clock.set(at.max(self.clock.now()));
        self.send_due().await
    }

    /// Advances the clock by `minutes`, closes due batches, and sends pending emails.
    pub async fn send_due_in(&self, minutes: i64) -> Tally {
        self.clock.advance(TimeDelta::minutes(minutes));
        self.send_due().await
    }

    /// Runs `what` just before the next emails are accepted, between read and flush.
    pub fn meanwhile(&self, what: impl FnOnce() -> BoxFuture<'static, ()> + Send + 'static) {
        *self.postbox.meanwhile.lock().unwrap() = Some(Box::new(what));
    }

    /// Sets the provider's next answers.
    pub fn answer(&self, outcomes: impl IntoIterator<Item = Outcome>) {
        self.postbox.answers.lock().unwrap().extend(outcomes);
    }

    /// Returns all accepted emails, in order.
    pub fn emails(&self) -> Vec<Message> {
        self.postbox.emails.lock().unwrap().clone()
    }

    /// Returns all calls, in order.
    pub fn calls(&self) -> Vec<Call> {
        self.postbox.calls.lock().unwrap().clone()
    }

    /// Counts how often each work was emailed to each user.
    pub fn emailed(&self) -> BTreeMap<(String, String), usize> {
        let mut emailed = BTreeMap::new();
        for email in self.emails() {
            let text = email.fill_links().text;
            let person = email.delivery.as_str().split(':').nth(1).unwrap().to_owned();
            for work in WORKS.iter().filter(|work| text.contains(&format!("Work {work}."))) {
                *emailed.entry((person.clone(), (*work).to_owned())).or_default() += 1;
            }
        }
        emailed
    }

    /// Counts how often each work with a title like `Work a1.` was emailed to each user.
    pub fn emailed_works(&self) -> BTreeMap<(String, String), u32> {
        let mut emailed = BTreeMap::new();
        for email in self.emails() {
            let person = email.to.reveal().split('@').next().unwrap();
            let text = email.fill_links().text;
            let works = text.split("Work ").skip(1);
            let works = works.filter_map(|rest| rest.split_once('.').map(|(work, _)| work));
            for work in works.collect::<BTreeSet<&str>>() {
                let times = emailed.entry((person.to_owned(), work.to_owned()));
                *times.or_default() += 1;
            }
        }
        emailed
    }

    /// Returns the works that were emailed to this user.
    pub fn emailed_to(&self, person: &str) -> Vec<String> {
        self.emailed().into_keys().filter(|(who, _)| who == person).map(|(_, work)| work).collect()
    }

    pub async fn deliveries_of(&self, person: &str) -> Vec<Delivery> {
        self.store.deliveries_of(&user(person), 100).await
    }

    /// Changes the current record of a user.
    pub async fn change(&self, person: &str, change: impl FnOnce(&mut User)) {
        let mut record = self.store.user_record(&user(person)).await.unwrap();
        change(&mut record);
        let put = self.store.put_users(&[record]).await.unwrap();
        assert_eq!(put, [true], "somebody else changed {person}");
    }
}

/// Returns the themes of a configuration. Configurations of equal text share them, because a debug
/// build takes 0.1 s to check the templates. A configuration with its own templates shares nothing.
pub fn themes(config: &str) -> Themes {
    static THEMES: LazyLock<Mutex<HashMap<String, Themes>>> = LazyLock::new(Mutex::default);
    let build = || Themes::load(&Config::parse(config).unwrap(), TemplateUse::Required).unwrap();
    if config.contains("templates") {
        return build();
    }
    let mut known = THEMES.lock().unwrap();
    known.entry(config.to_owned()).or_insert_with(build).clone()
}

/// Adds defaults to a test's configuration: small pages and chunks, and one call at a time, so that
/// outcomes are in order.
fn with_defaults(config: &str) -> String {
    let defaults = [
        ("fanout.page", "100"),
        ("delivery.chunk", "2"),
        ("delivery.in_flight", "1"),
        // Show changes of other processes at once.
        ("feed.fresh", "\"0s\""),
    ];
    let unsaid = defaults.iter().filter(|(option, _)| !config.contains(option));
    let lines: String = unsaid.map(|(option, value)| format!("{option} = {value}\n")).collect();
    lines + config
}

/// An event about these objects.
pub fn request(objects: &[&str], audience: Audience, name: Option<&str>) -> NewEvent {
    NewEvent {
        kind: kind("ArtworkPublished"),
        objects: objects.iter().map(ObjectId::stored).collect(),
        audience,
        key: name.map(str::to_owned),
        batch_key: None,
        details: tidings::domain::Details::default(),
        at: None,
    }
}

pub fn to(people: &[&str]) -> Audience {
    Audience::users(people.iter().map(UserId::stored)).unwrap()
}

pub fn followers_of(what: &str) -> Audience {
    Audience::followers_of([FollowKey::stored(what)]).unwrap()
}

/// Generates tests for both stores, for what depends on the store: races, faults, crashes, data of
/// other writers, and change notices. Each is an `async fn(Fresh)`.
macro_rules! on_both_stores {
    ($($test:ident)*) => {
        $crate::support::town::on_store! { sqlite: sqlite, []: $($test)* }
        $crate::support::town::on_store! { mongo: mongo, []: $($test)* }
    };
}

/// Generates tests for SQLite, and for MongoDB with `scripts/test --full`. The contract tests prove
/// that both stores behave alike. Each is an `async fn(Fresh)`.
macro_rules! mostly_on_sqlite {
    ($($test:ident)*) => {
        $crate::support::town::on_store! { sqlite: sqlite, []: $($test)* }
        $crate::support::town::on_store! {
            mongo: mongo, [#[ignore = "runs with scripts/test --full"]]: $($test)*
        }
    };
}

/// Generates tests for SQLite only. Each is an `async fn(Fresh)`.
macro_rules! only_on_sqlite {
    ($($test:ident)*) => {
        $crate::support::town::on_store! { only_sqlite: sqlite, []: $($test)* }
    };
}

/// Generates tests for MongoDB only. Each is an `async fn(Fresh)`.
macro_rules! only_on_mongo {
    ($($test:ident)*) => {
        $crate::support::town::on_store! { only_mongo: mongo, []: $($test)* }
    };
}

macro_rules! on_store {
    ($module:ident: $store:ident, $attribute:tt: $($test:ident)*) => {
        mod $module {
            $($crate::support::town::on_store! { @ $store, $attribute, $test })*
        }
    };
    (@ $store:ident, [$($attribute:tt)*], $test:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        $($attribute)*
        async fn $test() {
            $crate::support::$store::run(super::$test).await;
        }
    };
}

pub(crate) use {mostly_on_sqlite, on_both_stores, on_store, only_on_mongo, only_on_sqlite};
