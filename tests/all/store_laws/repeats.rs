//! Repeats a scenario from event to flush, and lets each store method fail once.
//!
//! Every method can be repeated after a failure, whether or not it took effect. The final state is
//! then equal to that of a run without failures (P1, P2, P4).

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures::FutureExt;
use tidings::domain::delivery::Settlement;
use tidings::domain::{
    Address, Audience, Day, Delivery, DeliveryId, DeliveryState, DigestMarker, Entry, Fanout,
    FanoutProgress, Feedback, FollowKey, ReportKind, StackId, Suppression, SuppressionReason, Tag,
    User, UserId,
};
use tidings::store::{DeliveryFilter, NewMarker, Result, Store};

use crate::support::{FailingStore, Fault, Shorthand, Then, *};

/// One run of the scenario. Each run has its own users, keys and days, so that runs do not
/// interfere.
struct Scenario {
    follow: FollowKey,
    people: Vec<UserId>,
    fanout: Fanout,
}

impl Scenario {
    fn new(n: u32) -> Self {
        let people = ["ada", "bob"].map(|name| user(&format!("{name}{n}"))).to_vec();
        let follow = key(&format!("artist:{n}"));
        let audience = Audience::followers_of([follow.clone()]).unwrap();
        let fanout = Fanout { audience, day: today().days_before(n), ..fanout(n) };
        Self { follow, people, fanout }
    }

    fn day(&self) -> Day {
        self.fanout.day
    }

    fn deliveries(&self) -> Vec<DeliveryId> {
        self.people.iter().map(|person| delivery(person.as_str(), "2014-04-22", "x").id).collect()
    }

    /// Runs the scenario from the start. A repetition has another owner and a later time.
    async fn run(&self, store: &dyn Store, owner: &str, now: DateTime<Utc>) -> Result<()> {
        let until = now + minutes(5);
        let users: Vec<_> = self.people.iter().cloned().map(User::new).collect();
        store.put_users(&users).await?;
        let follows: Vec<_> =
            self.people.iter().map(|who| (self.follow.clone(), who.clone())).collect();
        store.follow(&follows).await;
        store.accept(std::slice::from_ref(&self.fanout)).await?;
        for fanout in store.claim_fanouts(&lease(owner, until), now, 10.into()).await?.fanouts {
            self.fan_out(store, owner, until, &fanout).await?;
        }
        let rows: Vec<_> =
            self.people.iter().map(|person| self.delivery(person, owner, until)).collect();
        store.open(&rows).await?;
        store.take(owner, now, until, 10).await;
        let call = format!("call of {owner}");
        let ids = self.deliveries();
        let calls: Vec<_> = ids.iter().map(|id| handover(id, &call)).collect();
        store.sending(owner, now, until, &calls).await;
        store.recall(owner, &ids[..1]).await;
        store.sending(owner, now, until, &calls[..1]).await;
        store.hold(owner, until, &ids).await;
        store.take_call(owner, until, &call).await;
        let sent = |id| Settlement {
            id,
            from: DeliveryState::Sending,
            state: DeliveryState::Sent,
            items: 1,
            provider_id: None,
            reason: None,
            cause: None,
        };
        let sent: Vec<_> = self.deliveries().into_iter().map(sent).collect();
        store.settle(owner, now, &sent).await;
        let marker = |row: &Delivery| {
            NewMarker::Flushed(row.user.clone(), row.marker, row.watermarks.clone())
        };
        store.write_markers(&rows.iter().map(marker).collect::<Vec<_>>()).await?;
        store.close(&self.deliveries()).await?;
        self.report_back(store, now).await
    }

    /// The first email bounces and the second one is delayed. The provider sends each report twice.
    async fn report_back(&self, store: &dyn Store, now: DateTime<Utc>) -> Result<()> {
        let event = [(format!("event:{}", self.fanout.id), "one".to_owned())];
        let until = now + minutes(60);
        for _ in 0..2 {
            let seen = store.find_receipts(&[event[0].0.clone()], now).await;
            let tags: Vec<Tag> = self.deliveries().iter().map(DeliveryId::tag).collect();
            let mut rows = store.find_deliveries(&DeliveryFilter::Tags(&tags), 2).await?;
            rows.sort_by(|a, b| a.id.cmp(&b.id));
            let ids = rows.into_iter().map(|row| row.id);
            let news = [ReportKind::Bounced, ReportKind::Delayed].into_iter();
            let feedback: Vec<_> =
                ids.zip(news.map(|news| Feedback { news, at: noon() })).collect();
            store.note_feedback(&feedback).await?;
            let [first, second] = self.addresses();
            let hard = Suppression::new(&first, SuppressionReason::HardBounce, noon(), "esp");
            store.suppress(&[hard]).await;
            let off = &self.deliveries()[1];
            let count = store.soft_bounce(&second, off, noon(), noon()).await;
            assert_eq!(count, 1, "one email was deferred");
            let marks = store.record_receipts(&event, now, until).await;
            assert_eq!(marks, ["one"]);
            assert!(seen.iter().flatten().all(|mark| mark == "one"));
        }
        Ok(())
    }

    fn addresses(&self) -> [Address; 2] {
        [0, 1].map(|n| Address::new(format!("{}@example.org", self.people[n])).unwrap())
    }

    async fn fan_out(
        &self,
        store: &dyn Store,
        owner: &str,
        until: DateTime<Utc>,
        fanout: &Fanout,
    ) -> Result<()> {
        let mut progress = fanout.progress.clone();
        // A page holds one user, so that failures also occur between pages.
        while let [next] = &store.followers(&self.follow, progress.cursor.as_ref(), 1).await[..] {
            store.push(fanout.day, 10, &push_to(next, fanout.entries_per_user().collect())).await?;
            progress.counts.people += 1;
            progress.cursor = Some(next.clone());
            store.save_fanouts(&lease(owner, until), &[(fanout.id, progress.clone())]).await?;
        }
        let done = FanoutProgress { done: true, ..progress };
        store.save_fanouts(&lease(owner, until), &[(fanout.id, done)]).await?;
        Ok(())
    }

    fn delivery(&self, person: &UserId, owner: &str, until: DateTime<Utc>) -> Delivery {
        Delivery {
            watermarks: vec![(StackId::for_day(self.day()), 1)],
            lease: Some(lease(owner, until)),
            ..delivery(person.as_str(), "2014-04-22", owner)
        }
    }

    /// Asserts that each user has one event and one marker, that the fan-out is done, and that the
    /// deliveries are sent and closed.
    async fn check(&self, store: &Fresh, at: &str) {
        let event = Entry::Event(self.fanout.entries_per_user().next().unwrap());
        let marker = Entry::DigestMarker(DigestMarker { id: Some(id(900)), n: Some(1) });
        for person in &self.people {
            let found = store.entries_of(person, self.day()).await;
            assert_eq!(found, [event.clone(), marker.clone()], "{at}: {person}");
        }
        let fanout = store.fanout(self.fanout.id).await.unwrap().unwrap();
        assert!(fanout.progress.done && fanout.lease.is_none(), "{at}: {fanout:?}");
        for id in self.deliveries() {
            let row = store.delivery(&id).await.unwrap();
            assert_eq!((row.state, row.open), (DeliveryState::Sent, false), "{at}: {id}");
            assert!(row.outcome.feedback.is_some(), "{at}: {id}");
        }
        let suppressed = store.suppressed(&self.addresses()).await;
        let reasons = suppressed.into_iter().map(|one| Some(one?.reason));
        let reasons: Vec<_> = reasons.collect();
        assert_eq!(reasons, [Some(SuppressionReason::HardBounce), None], "{at}");
    }
}

async fn assert_repeatable(store: Fresh, fault: Fault, then: Then) {
    let counting = FailingStore::counting(store.handle());
    Scenario::new(0).run(&*counting, "counter", noon()).await.unwrap();
    Scenario::new(0).check(&store, "without a fault").await;

    for nth in 0..counting.calls() {
        let scenario = Scenario::new(1 + nth as u32);
        let failing = FailingStore::new(store.handle(), nth, fault, then);
        // A short form of a call panics if the call fails.
        let result = AssertUnwindSafe(scenario.run(&*failing, "first", noon()));
        let result = result.catch_unwind().await;
        let at = format!("call {nth}, {}, {fault:?}", failing.struck().unwrap());
        assert!(!matches!(result, Ok(Ok(()))), "{at}");

        let next: Arc<dyn Store> = match then {
            Then::Recovers => failing,
            Then::StaysDown => store.second().handle(),
        };
        scenario.run(&*next, "second", noon() + minutes(10)).await.unwrap();

        scenario.check(&store, &at).await;
    }
}

pub async fn a_method_that_failed_can_be_repeated(store: Fresh) {
    assert_repeatable(store, Fault::Refused, Then::Recovers).await;
}

pub async fn a_method_whose_reply_was_lost_can_be_repeated(store: Fresh) {
    assert_repeatable(store, Fault::Unheard, Then::Recovers).await;
}

pub async fn another_worker_continues_after_a_crash_before_a_method(store: Fresh) {
    assert_repeatable(store, Fault::Refused, Then::StaysDown).await;
}

pub async fn another_worker_continues_after_a_crash_after_a_method(store: Fresh) {
    assert_repeatable(store, Fault::Unheard, Then::StaysDown).await;
}
