//! A small town for tests of services: a few people, what they follow, some works, and a postbox
//! that remembers.
//!
//! The rule: the town begins on Saturday 19 April 2014 and everybody's weekly digest falls due on
//! Mondays at 09:00 UTC. A worker that meets an error is dead; [`Town::process`] gives a new one.
//!
//! Long because the postbox shares the town's clock and stories.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::BoxFuture;
use tidings::app::App;
use tidings::clock::{Clock, Ids, ManualClock};
use tidings::config::Config;
use tidings::domain::{
    Address, Audience, Delivery, DeliveryId, FollowKey, Object, ObjectId, User, UserId,
};
use tidings::email::{
    Answer, Certainty, Checked, Leave, Mailer, Message, Outcome, Silence, Standing,
};
use tidings::engine::Silent;
use tidings::engine::ingest::notify::Request;
use tidings::metrics::Metrics;
use tidings::store::Store;
use tidings::wire::digest::Report;
use tidings::wire::event::Receipt;

use super::{Fresh, Shorthand, key, kind, user};

/// Saturday morning, two days before the weekly digests.
pub fn saturday() -> DateTime<Utc> {
    "2014-04-19T10:00:00Z".parse().unwrap()
}

/// Half an hour after the weekly digests of Monday 21 April fall due, and of so many weeks later.
pub fn monday(week: i64) -> DateTime<Utc> {
    "2014-04-21T09:30:00Z".parse::<DateTime<Utc>>().unwrap() + TimeDelta::weeks(week)
}

/// Works the town knows; `a9` is withdrawn.
pub const WORKS: [&str; 7] = ["a1", "a2", "a3", "a4", "a5", "a6", "a9"];
/// People of the town; `dee` has not confirmed her address.
pub const PEOPLE: [&str; 4] = ["ada", "ben", "cem", "dee"];

type Meanwhile = Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send>;

/// Remembers what it was given; says yes unless told otherwise. Where [`Certainty::Repeat`], it
/// takes a call once and says so again.
pub struct Postbox {
    certainty: Certainty,
    clock: Arc<ManualClock>,
    mails: Mutex<Vec<Message>>,
    answers: Mutex<VecDeque<Outcome>>,
    meanwhile: Mutex<Option<Meanwhile>>,
    calls: Mutex<Vec<Call>>,
    /// Calls that were taken, by reference.
    taken: Mutex<HashMap<String, Vec<DeliveryId>>>,
    /// How often it says nothing when it is asked.
    pub silent: AtomicUsize,
    /// How long it asks to be left alone then.
    pub after: Mutex<Option<Duration>>,
    /// How long each call takes.
    pub send_takes: Mutex<TimeDelta>,
    /// How long it takes to answer what it is asked.
    pub ask_takes: Mutex<TimeDelta>,
    /// Whose account at the provider it is.
    pub account: Mutex<&'static str>,
    /// How many mails a call holds.
    pub per_call: AtomicUsize,
    /// So many calls have to be under way before one is answered.
    pub together: Mutex<Option<Arc<tokio::sync::Barrier>>>,
}

impl Postbox {
    /// It says yes to everything from now on.
    pub fn takes_everything(&self) {
        self.answers.lock().unwrap().clear();
    }
}

/// A call as the postbox saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub at: DateTime<Utc>,
    pub reference: String,
    pub deliveries: Vec<DeliveryId>,
}

/// The provider takes nothing at the moment, and does not say for how long.
pub fn busy() -> Outcome {
    Outcome::TryLater {
        reason: "busy".into(),
        after: None,
    }
}

/// An answer that is never seen, to a mail that was taken.
pub fn lost() -> Outcome {
    Outcome::Unknown {
        reason: "no answer in 30 s".into(),
    }
}

/// An answer that is never seen, to a mail that never arrived.
pub fn cut_off() -> Outcome {
    Outcome::Unknown {
        reason: CUT_OFF.into(),
    }
}

const CUT_OFF: &str = "cut off on the way";

#[async_trait::async_trait]
impl Mailer for Postbox {
    fn calls(&self, messages: &[Message]) -> Vec<Vec<usize>> {
        let places: Vec<usize> = (0..messages.len()).collect();
        let size = self.per_call.load(Ordering::Relaxed);
        places.chunks(size).map(<[usize]>::to_vec).collect()
    }

    async fn send(&self, reference: &str, messages: &[Message], leave: &Leave) -> Vec<Outcome> {
        if let Some(reason) = leave.withheld() {
            return vec![Outcome::Withheld { reason }; messages.len()];
        }
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile().await;
        }
        let together = self.together.lock().unwrap().clone();
        if let Some(together) = together {
            together.wait().await;
        }
        // The call has begun: only who may have lost the emails breaks it off, or who ends.
        if leave.standing() != Standing::Stale
            && let Some(reason) = leave.withheld()
        {
            return vec![Outcome::Withheld { reason }; messages.len()];
        }
        let deliveries: Vec<_> = messages.iter().map(|mail| mail.delivery.clone()).collect();
        self.calls.lock().unwrap().push(Call {
            at: self.clock.now(),
            reference: reference.into(),
            deliveries: deliveries.clone(),
        });
        self.clock.advance(*self.send_takes.lock().unwrap());
        if let Some(before) = self.taken.lock().unwrap().get(reference) {
            let said_again = |delivery: &DeliveryId| Outcome::Accepted {
                provider_id: if *before == deliveries {
                    format!("p:{delivery}")
                } else {
                    reference.to_owned()
                },
            };
            return deliveries.iter().map(said_again).collect();
        }
        let mut outcomes = Vec::with_capacity(messages.len());
        for message in messages {
            let accepted = Outcome::Accepted {
                provider_id: format!("p:{}", message.delivery),
            };
            let outcome = self.answers.lock().unwrap().pop_front().unwrap_or(accepted);
            let is_taken = match &outcome {
                Outcome::Accepted { .. } => true,
                Outcome::Unknown { reason } => reason != CUT_OFF,
                _ => false,
            };
            if is_taken {
                self.mails.lock().unwrap().push(message.clone());
                if matches!(self.certainty, Certainty::Repeat { .. }) {
                    let mut taken = self.taken.lock().unwrap();
                    taken.insert(reference.to_owned(), deliveries.clone());
                }
            }
            outcomes.push(outcome);
        }
        outcomes
    }

    fn certainty(&self) -> Certainty {
        self.certainty
    }

    async fn ask(&self, _reference: &str, deliveries: &[DeliveryId]) -> Vec<Answer> {
        self.clock.advance(*self.ask_takes.lock().unwrap());
        let silent = self
            .silent
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        if silent.is_ok() {
            let silence = Silence {
                reason: "the search is down".into(),
                after: *self.after.lock().unwrap(),
            };
            return vec![Answer::Silent(silence); deliveries.len()];
        }
        let mails = self.mails.lock().unwrap();
        let answer = |delivery: &DeliveryId| {
            if mails.iter().any(|mail| mail.delivery == *delivery) {
                let provider_id = format!("p:{delivery}");
                Answer::Taken { provider_id }
            } else {
                Answer::NotTaken
            }
        };
        deliveries.iter().map(answer).collect()
    }

    async fn check(&self) -> Checked {
        Checked::ready("takes every mail")
    }

    fn name(&self) -> &str {
        "postbox"
    }

    fn account(&self) -> String {
        (*self.account.lock().unwrap()).to_owned()
    }
}

/// The town, its clock and its postbox.
pub struct Town {
    /// The store without faults.
    pub store: Arc<dyn Store>,
    pub clock: Arc<ManualClock>,
    pub postbox: Arc<Postbox>,
    config: Config,
    processes: Mutex<u8>,
    /// What each process has counted.
    pub counts: Mutex<Vec<Metrics>>,
}

impl Town {
    /// A town whose postbox takes a call that is made again for the same one, or cannot tell.
    pub async fn found(fresh: &Fresh, safe: bool, config: &str) -> Self {
        let certainty = if safe {
            Certainty::Repeat { within: None }
        } else {
            Certainty::Never
        };
        Self::with(fresh, certainty, config).await
    }

    /// A town whose postbox is as certain as this.
    pub async fn with(fresh: &Fresh, certainty: Certainty, config: &str) -> Self {
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
        town.store
            .follow(&follows.map(|(what, who)| (key(what), user(who))))
            .await
            .unwrap();
        town.put_works(&WORKS, |id| id != "a9").await;
        town
    }

    /// What stands in a store is the town.
    pub fn on(store: Arc<dyn Store>, certainty: Certainty, config: &str) -> Self {
        let clock = Arc::new(ManualClock::at(saturday()));
        Self {
            store,
            clock: clock.clone(),
            postbox: Arc::new(Postbox {
                certainty,
                clock,
                mails: Mutex::default(),
                answers: Mutex::default(),
                meanwhile: Mutex::default(),
                calls: Mutex::default(),
                taken: Mutex::default(),
                silent: AtomicUsize::new(0),
                after: Mutex::default(),
                send_takes: Mutex::default(),
                ask_takes: Mutex::default(),
                account: Mutex::new("postbox"),
                per_call: AtomicUsize::new(1_000),
                together: Mutex::default(),
            }),
            config: Config::parse(&with_defaults(config)).unwrap(),
            processes: Mutex::new(0),
            counts: Mutex::default(),
        }
    }

    /// A town of this store with nothing configured.
    pub async fn of(fresh: &Fresh) -> Self {
        Self::found(fresh, true, "").await
    }

    /// So many more people come to town: `p0`, `p1` and so on.
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

    /// Puts works, titled `Work a1.`, that apply or do not.
    pub async fn put_works(&self, ids: &[&str], notifiable: impl Fn(&str) -> bool) {
        let object = |id: &&str| Object {
            title: Some(format!("Work {id}.")),
            notifiable: notifiable(id),
            ..Object::bare(id.parse().unwrap())
        };
        self.store
            .put_objects(&ids.iter().map(object).collect::<Vec<_>>())
            .await
            .unwrap();
    }

    /// A new process on the town's store.
    pub fn process(&self) -> App {
        self.process_on(&self.store)
    }

    /// A new process on another view of the store, perhaps one with faults.
    pub fn process_on(&self, store: &Arc<dyn Store>) -> App {
        self.assembled(store, self.postbox.clone(), self.clock.clone())
    }

    /// A new process that sends through this mailer.
    pub fn process_through(&self, mailer: Arc<dyn Mailer>) -> App {
        self.assembled(&self.store, mailer, self.clock.clone())
    }

    /// A new process with a clock of its own.
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
        let ids = Arc::new(Ids::counting(*processes));
        let app = App::assemble(self.config.clone(), store.clone(), mailer, clock, ids)
            .unwrap()
            .with_pinned(super::sns::pinned());
        self.counts.lock().unwrap().push(app.metrics.clone());
        app
    }

    /// Accepts an event now and fans it out.
    pub async fn happens(&self, objects: &[&str], audience: Audience) -> Receipt {
        let app = self.process();
        let receipts = app
            .notify()
            .accept(vec![request(objects, audience, None)])
            .await
            .unwrap();
        app.fanouts().drain(&Silent).await.unwrap();
        receipts[0]
    }

    /// Turns the clock to this moment (never back) and mails what is due.
    pub async fn digests_at(&self, at: DateTime<Utc>) -> Report {
        self.clock.set(at.max(self.clock.now()));
        self.process()
            .digests()
            .run(&Default::default(), &Silent)
            .await
            .unwrap()
    }

    /// What happens just before the next mails are taken: between read and flush.
    pub fn meanwhile(&self, what: impl FnOnce() -> BoxFuture<'static, ()> + Send + 'static) {
        *self.postbox.meanwhile.lock().unwrap() = Some(Box::new(what));
    }

    /// What the postbox answers next, instead of yes.
    pub fn answer(&self, outcomes: impl IntoIterator<Item = Outcome>) {
        self.postbox.answers.lock().unwrap().extend(outcomes);
    }

    /// All mails that were taken, in order.
    pub fn mails(&self) -> Vec<Message> {
        self.postbox.mails.lock().unwrap().clone()
    }

    /// All calls that were made, in order.
    pub fn calls(&self) -> Vec<Call> {
        self.postbox.calls.lock().unwrap().clone()
    }

    /// Which works each person was told of, and how often.
    pub fn told(&self) -> BTreeMap<(String, String), usize> {
        let mut told = BTreeMap::new();
        for mail in self.mails() {
            let text = mail.filled().text;
            let person = mail.delivery.as_str().split(':').nth(1).unwrap().to_owned();
            for work in WORKS
                .iter()
                .filter(|work| text.contains(&format!("Work {work}.")))
            {
                *told
                    .entry((person.clone(), (*work).to_owned()))
                    .or_default() += 1;
            }
        }
        told
    }

    /// The works one person was told of, in all mails.
    pub fn told_to(&self, person: &str) -> Vec<String> {
        self.told()
            .into_keys()
            .filter(|(who, _)| who == person)
            .map(|(_, work)| work)
            .collect()
    }

    pub async fn deliveries_of(&self, person: &str) -> Vec<Delivery> {
        self.store.deliveries_of(&user(person), 100).await.unwrap()
    }

    /// Changes a person's record as it is.
    pub async fn change(&self, person: &str, change: impl FnOnce(&mut User)) {
        let mut record = self
            .store
            .users(&[user(person)])
            .await
            .unwrap()
            .remove(0)
            .unwrap();
        change(&mut record);
        let put = self.store.put_users(&[record]).await.unwrap();
        assert_eq!(put, [true], "somebody else changed {person}");
    }
}

/// What a test configures, and where it says nothing, small pages and chunks, and one call at a
/// time so that answers come in order.
fn with_defaults(config: &str) -> String {
    let defaults = [
        ("fanout.page", "100"),
        ("delivery.chunk", "2"),
        ("delivery.in_flight", "1"),
        // What other processes change is seen at once.
        ("feed.fresh", "\"0s\""),
    ];
    let unsaid = defaults
        .iter()
        .filter(|(option, _)| !config.contains(option));
    let lines: String = unsaid
        .map(|(option, value)| format!("{option} = {value}\n"))
        .collect();
    lines + config
}

/// An event about these objects.
pub fn request(objects: &[&str], audience: Audience, name: Option<&str>) -> Request {
    Request {
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

/// Expands tests for both stores: each is an `async fn(Fresh)`.
macro_rules! on_both_stores {
    ($($test:ident)*) => { on_both_stores!(@ sqlite: $($test)*); on_both_stores!(@ mongo: $($test)*); };
    (@ $backend:ident: $($test:ident)*) => {
        mod $backend {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    crate::support::$backend::run(super::$test).await;
                }
            )*
        }
    };
}

pub(crate) use on_both_stores;
