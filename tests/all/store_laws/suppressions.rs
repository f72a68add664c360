//! Contract tests of `Suppressions`: an address is suppressed until it is lifted, the most serious
//! reason wins, and spelling does not matter.

use chrono::{DateTime, TimeDelta, Utc};
use tidings::domain::{Address, DeliveryId, Suppression, SuppressionReason};
use tidings::store::CountedRecords;

use crate::support::*;

fn address(text: &str) -> Address {
    Address::new(text).unwrap()
}

fn news(text: &str, reason: SuppressionReason, minute: i64) -> Suppression {
    Suppression::new(&address(text), reason, at(minute), "esp")
}

fn at(minute: i64) -> DateTime<Utc> {
    noon() + minutes(minute)
}

async fn load_suppression(store: &Fresh, text: &str) -> Option<Suppression> {
    let mut found = store.suppressed(&[address(text)]).await;
    assert_eq!(found.len(), 1);
    found.remove(0)
}

/// Lifts a suppression at this minute. Returns whether there was one.
async fn lift(store: &Fresh, text: &str, minute: i64) -> bool {
    store.lift(&address(text), at(minute), at(-99)).await
}

/// Lifts a suppression and removes the record of the lift.
async fn forget(store: &Fresh, text: &str) {
    for _ in 0..2 {
        store.lift(&address(text), at(99), at(999)).await;
    }
    let requested = [address(text)];
    assert_eq!(store.lifts(&requested).await, [None]);
}

/// Returns all permutations.
fn orders<T: Clone>(of: &[T]) -> Vec<Vec<T>> {
    if of.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for first in 0..of.len() {
        let mut rest = of.to_vec();
        let first = rest.remove(first);
        for mut order in orders(&rest) {
            order.insert(0, first.clone());
            all.push(order);
        }
    }
    all
}

pub async fn a_suppression_is_read_back_with_every_field(store: Fresh) {
    let plain = news("ada@example.org", SuppressionReason::Manual, 0);
    let full = Suppression::new(
        &address("Ben@Example.org"),
        SuppressionReason::HardBounce,
        noon() + TimeDelta::milliseconds(7),
        "mailgun",
    )
    .with_detail(Some("550 5.1.1"));

    store.suppress(&[plain.clone(), full.clone()]).await;
    store.suppress(&[]).await;

    let second = store.second();
    assert_eq!(load_suppression(&second, "ada@example.org").await, Some(plain));
    assert_eq!(load_suppression(&second, "ben@example.org").await, Some(full));
}

pub async fn an_address_is_suppressed_in_every_spelling(store: Fresh) {
    store.suppress(&[news("Ada.L@Example.ORG", SuppressionReason::Complaint, 0)]).await;

    for spelling in ["ada.l@example.org", "ADA.L@EXAMPLE.ORG", "Ada.L@Example.ORG"] {
        assert!(load_suppression(&store, spelling).await.is_some(), "{spelling}");
    }
    assert_eq!(load_suppression(&store, "ada@example.org").await, None);
    assert_eq!(store.suppressions(None, 10).await.unwrap().len(), 1);
    assert!(lift(&store, "aDA.l@example.org", 1).await);
}

pub async fn the_most_serious_reason_wins_in_any_order(store: Fresh) {
    let all = [
        news("x@a.org", SuppressionReason::Complaint, 9),
        news("x@a.org", SuppressionReason::HardBounce, 1),
        news("x@a.org", SuppressionReason::Complaint, 8),
        news("x@a.org", SuppressionReason::SoftBounces, 0),
    ];

    for order in orders(&all) {
        for one in &order {
            store.suppress(std::slice::from_ref(one)).await;
        }
        let stored = load_suppression(&store, "x@a.org").await.unwrap();
        assert_eq!((stored.reason, stored.at), (SuppressionReason::Complaint, at(8)));
        forget(&store, "x@a.org").await;
    }
}

pub async fn the_most_serious_of_concurrent_reasons_wins(store: Fresh) {
    for round in 0..8 {
        let name = format!("r{round}@a.org");
        let most_serious = news(&name, SuppressionReason::Complaint, 0);
        store
            .at_once(16, move |store, n| {
                let reason = SuppressionReason::ALL[n as usize % SuppressionReason::ALL.len()];
                let one = news(&format!("r{round}@a.org"), reason, i64::from(n / 5));
                async move { store.suppress(&[one]).await }
            })
            .await;

        let stored = load_suppression(&store, &name).await.unwrap();
        assert_eq!(stored.reason, most_serious.reason, "round {round}");
        assert_eq!(stored.at, most_serious.at, "round {round}");
    }
}

pub async fn the_more_serious_reason_in_one_call_wins(store: Fresh) {
    let (light, serious) = (
        news("x@a.org", SuppressionReason::Unsubscribe, 0),
        news("x@a.org", SuppressionReason::HardBounce, 1),
    );
    for pair in [[light.clone(), serious.clone()], [serious.clone(), light]] {
        store.suppress(&pair).await;
        assert_eq!(load_suppression(&store, "x@a.org").await.as_ref(), Some(&serious));
        forget(&store, "x@a.org").await;
    }
}

pub async fn suppressions_are_returned_in_the_order_of_the_request(store: Fresh) {
    let name = |n: usize| format!("p{n:05}@a.org");
    let every_third: Vec<_> = (0..2_500)
        .filter(|n| n % 3 == 0)
        .map(|n| news(&name(n), SuppressionReason::Manual, 0))
        .collect();
    store.suppress(&every_third).await;

    let requested: Vec<_> = (0..2_500).rev().map(|n| address(&name(n))).collect();
    let found = store.suppressed(&requested).await;

    for (requested, found) in requested.iter().zip(&found) {
        assert!(found.as_ref().is_none_or(|found| found.address == *requested));
    }
    let is_suppressed: Vec<bool> = found.iter().rev().map(Option::is_some).collect();
    let expected: Vec<bool> = (0..2_500).map(|n| n % 3 == 0).collect();
    assert_eq!(is_suppressed, expected);
    assert_eq!(store.suppressed(&[]).await, []);
}

pub async fn suppressions_are_returned_in_pages_in_ascending_order(store: Fresh) {
    let names = ["d@a.org", "B@a.org", "a@a.org", "c@a.org", "e@a.org"];
    let all = names.map(|name| news(name, SuppressionReason::Manual, 0));
    store.suppress(&all).await;

    let (mut pages, mut after): (Vec<Vec<Address>>, _) = (Vec::new(), None);
    loop {
        let page = store.suppressions(after.as_ref(), 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.address.clone());
        pages.push(page.iter().map(|one| one.address.clone()).collect());
    }

    let expected: Vec<Vec<Address>> = vec![
        vec![address("a@a.org"), address("b@a.org")],
        vec![address("c@a.org"), address("d@a.org")],
        vec![address("e@a.org")],
    ];
    assert_eq!(pages, expected);
    assert_eq!(store.suppressions(None, 0).await.unwrap(), []);
}

pub async fn a_lifted_address_can_be_suppressed_again(store: Fresh) {
    assert!(!lift(&store, "ada@a.org", 0).await, "it was not suppressed");
    store.suppress(&[news("ada@a.org", SuppressionReason::Complaint, 0)]).await;

    assert!(lift(&store.second(), "ada@a.org", 4).await);
    assert_eq!(load_suppression(&store, "ada@a.org").await, None);
    assert!(!lift(&store, "ada@a.org", 9).await);

    let lighter = news("ada@a.org", SuppressionReason::SoftBounces, 5);
    store.suppress(std::slice::from_ref(&lighter)).await;
    let lighter = Suppression { lifted: Some(at(4)), ..lighter };
    assert_eq!(load_suppression(&store, "ada@a.org").await, Some(lighter));
}

pub async fn reports_from_before_a_lift_suppress_nothing(store: Fresh) {
    let (ada, ben) = (address("Ada@a.org"), address("ben@a.org"));
    store.suppress(&[news("ada@a.org", SuppressionReason::HardBounce, 0)]).await;
    assert!(lift(&store, "ADA@a.org", 10).await);
    let requested = [ben, ada];
    assert_eq!(store.lifts(&requested).await, [None, Some(at(10))]);

    for (reason, minute) in [(SuppressionReason::HardBounce, 0), (SuppressionReason::Complaint, 10)]
    {
        let old = news("ada@a.org", reason, minute);
        store.suppress(&[old]).await;
        assert_eq!(load_suppression(&store, "ada@a.org").await, None, "{reason}");
        assert_eq!(store.suppressions(None, 10).await.unwrap(), []);
        let counted = [CountedRecords::Suppressions(SuppressionReason::HardBounce)];
        assert_eq!(store.count(&counted).await.unwrap(), [0]);
    }

    let later = news("ada@a.org", SuppressionReason::HardBounce, 11);
    let more_serious = news("ada@a.org", SuppressionReason::Complaint, 9);
    store.suppress(&[later, more_serious]).await;
    let stored = load_suppression(&store, "ada@a.org").await.unwrap();
    assert_eq!((stored.reason, stored.at), (SuppressionReason::HardBounce, at(11)));
    assert_eq!(store.suppressions(None, 10).await.unwrap(), [stored]);
}

pub async fn a_lift_removes_records_of_old_lifts(store: Fresh) {
    for name in ["ada@a.org", "ben@a.org", "cem@a.org"] {
        let hard = news(name, SuppressionReason::HardBounce, 0);
        store.suppress(&[hard]).await;
    }
    assert!(lift(&store, "ada@a.org", 1).await);
    assert!(lift(&store, "ben@a.org", 5).await);
    let again = news("ben@a.org", SuppressionReason::HardBounce, 6);
    store.suppress(&[again]).await;

    store.lift(&address("cem@a.org"), at(99), at(50)).await;

    let requested = ["ada@a.org", "ben@a.org", "cem@a.org"].map(address);
    let expected = [None, Some(at(5)), Some(at(99))];
    assert_eq!(store.lifts(&requested).await, expected);
    assert!(load_suppression(&store, "ben@a.org").await.is_some());
}

pub async fn suppression_counts_are_exact_for_each_reason(store: Fresh) {
    let all = [
        news("a@a.org", SuppressionReason::Complaint, 0),
        news("b@a.org", SuppressionReason::HardBounce, 0),
        news("c@a.org", SuppressionReason::HardBounce, 0),
    ];
    store.suppress(&all).await;

    let reasons = SuppressionReason::ALL.map(CountedRecords::Suppressions);
    let counts = store.count(&reasons).await.unwrap();

    let expected = SuppressionReason::ALL.map(|reason| {
        let of = all.iter().filter(|one| one.reason == reason);
        of.count() as u64
    });
    assert_eq!(counts, expected);
}

pub async fn unusual_addresses_can_be_suppressed(store: Fresh) {
    let odd = [
        "$ne@a.org",
        "$$ROOT@a.org",
        "$reason@a.org",
        "a.b$c@a.org",
        "o'brien@a.org",
        "%@a.org",
        "ünal@müller.example",
        "0@a.org",
    ];
    let all = odd.map(|name| news(name, SuppressionReason::Manual, 0).with_detail(Some("550")));
    store.suppress(&all).await;
    store.suppress(&all).await;

    for (name, one) in odd.into_iter().zip(all) {
        assert_eq!(load_suppression(&store, name).await, Some(one), "{name}");
    }
    assert_eq!(store.suppressions(None, 100).await.unwrap().len(), odd.len());
}

pub async fn soft_bounces_count_once_for_each_email_within_the_period(store: Fresh) {
    let (ada, ben) = (address("Ada@a.org"), address("ben@a.org"));
    let delivery = |n: i64| DeliveryId::stored(format!("digest:ada:daily:{n}"));
    let note = async |who: &Address, n: i64, minute: i64, since: i64| {
        store.soft_bounce(who, &delivery(n), at(minute), at(since)).await
    };

    assert_eq!(note(&ada, 1, 10, 0).await, 1);
    assert_eq!(note(&ada, 1, 12, 0).await, 1, "the same email, tried again");
    assert_eq!(note(&ada.folded(), 2, 20, 0).await, 2);
    assert_eq!(note(&ben, 2, 20, 0).await, 1, "somebody else's are apart");
    assert_eq!(note(&ada, 3, 5, 6).await, 2, "this one is too long ago");
    assert_eq!(note(&ada, 4, 30, 10).await, 3, "the first is of 10, not 12");
    assert_eq!(note(&ada, 5, 40, 11).await, 3);
    assert_eq!(load_suppression(&store, "ada@a.org").await, None);
}

pub async fn lifting_an_address_resets_its_soft_bounces(store: Fresh) {
    let ada = address("ada@a.org");
    for n in 0..3 {
        let delivery = DeliveryId::stored(format!("digest:ada:daily:{n}"));
        store.soft_bounce(&ada, &delivery, at(n), at(0)).await;
    }

    lift(&store, "ada@a.org", 5).await;

    let delivery = DeliveryId::stored("digest:ada:daily:9");
    let count = store.soft_bounce(&ada, &delivery, at(9), at(0)).await;
    assert_eq!(count, 1);
}
