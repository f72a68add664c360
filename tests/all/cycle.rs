//! P1 to P4 over a whole cycle of accepting, fan-out, digest and flush, with a fault at each store
//! call.
//!
//! The nth call fails, once before it takes effect and once after. The process that meets the fault
//! dies, and the next one finishes. Afterward each event has been emailed once to each user, unless
//! a delivery is `unknown` because a repeated call could send its email twice.

use std::sync::Arc;

use chrono::TimeDelta;
use tidings::clock::Clock;
use tidings::domain::DeliveryState;
use tidings::email::Resolution;
use tidings::engine::NoProgress;
use tidings::store::Store;

use crate::support::town::{PEOPLE, Town, followers_of, monday, mostly_on_sqlite, request, to};
use crate::support::{FailingStore, Fault, Fresh, Shorthand, Then, user};

mostly_on_sqlite! {
    a_cycle_without_faults_emails_each_event_once
    a_fault_loses_nothing_if_sending_can_be_repeated
    a_fault_loses_nothing_if_sending_cannot_be_repeated
    a_fault_loses_nothing_if_the_provider_can_be_queried
    a_lost_reply_duplicates_nothing_if_sending_can_be_repeated
    a_lost_reply_duplicates_nothing_if_sending_cannot_be_repeated
    a_lost_reply_duplicates_nothing_if_the_provider_can_be_queried
}

/// A provider that accepts a repeated call under the same reference without sending twice.
const REPEAT: Resolution = Resolution::Repeat { within: None };

async fn a_cycle_without_faults_emails_each_event_once(fresh: Fresh) {
    let town = Town::found(&fresh, false, "").await;
    run_cycle(&town, &town.store).await;
    assert_emailed_once(&town, "no fault", Excuse::None).await;
}

async fn a_fault_loses_nothing_if_sending_can_be_repeated(fresh: Fresh) {
    assert_each_fault_is_recovered(&fresh, Fault::Refused, REPEAT).await;
}

async fn a_fault_loses_nothing_if_sending_cannot_be_repeated(fresh: Fresh) {
    assert_each_fault_is_recovered(&fresh, Fault::Refused, Resolution::Impossible).await;
}

async fn a_fault_loses_nothing_if_the_provider_can_be_queried(fresh: Fresh) {
    assert_each_fault_is_recovered(&fresh, Fault::Refused, Resolution::Query).await;
}

async fn a_lost_reply_duplicates_nothing_if_sending_can_be_repeated(fresh: Fresh) {
    assert_each_fault_is_recovered(&fresh, Fault::Unheard, REPEAT).await;
}

async fn a_lost_reply_duplicates_nothing_if_sending_cannot_be_repeated(fresh: Fresh) {
    assert_each_fault_is_recovered(&fresh, Fault::Unheard, Resolution::Impossible).await;
}

async fn a_lost_reply_duplicates_nothing_if_the_provider_can_be_queried(fresh: Fresh) {
    assert_each_fault_is_recovered(&fresh, Fault::Unheard, Resolution::Query).await;
}

/// All pairs of a user and a work that must be emailed once.
const EXPECTED: [(&str, &str); 9] = [
    ("ada", "a1"),
    ("ada", "a2"),
    ("ada", "a3"),
    ("ada", "a4"),
    ("ben", "a1"),
    ("ben", "a2"),
    ("ben", "a5"),
    ("cem", "a3"),
    ("cem", "a4"),
];

/// The counters are compared with the store once in this many faults.
const COUNT_EVERY: usize = 10;

/// Repeats the cycle on an empty store with a fault at each call in turn. After the fault, the
/// store either recovers or fails all calls of that process.
async fn assert_each_fault_is_recovered(fresh: &Fresh, fault: Fault, certainty: Resolution) {
    let excuse = match certainty {
        Resolution::Impossible => Excuse::Unknown,
        Resolution::Repeat { .. } | Resolution::Query => Excuse::None,
    };
    let first = 3 * usize::from(fault == Fault::Unheard);
    for (offset, then) in [(first, Then::Recovers), (first + 5, Then::StaysDown)] {
        for n in 0.. {
            fresh.clear().await;
            let town = Town::with(fresh, certainty, "").await;
            let failing = FailingStore::new(town.store.clone(), n, fault, then);
            let faulty: Arc<dyn Store> = failing.clone();
            run_cycle(&town, &faulty).await;
            let Some(method) = failing.struck() else {
                assert!(n > 20, "a cycle makes more than {n} calls");
                break;
            };
            let context = format!("call {n} ({method}): {fault:?}, {then:?}");
            assert_emailed_once(&town, &context, excuse).await;
            if (n + offset) % COUNT_EVERY == 0 {
                let lost_reply = (fault == Fault::Unheard).then_some(method);
                assert_counters(&town, &context, lost_reply).await;
            }
        }
    }
}

/// Runs the cycle with one faulty process, then a digest on the next Monday without faults.
async fn run_cycle(town: &Town, faulty: &Arc<dyn Store>) {
    let other_process = town.process();
    // While the first emails are sent, before the flush, another event reaches ada and cem.
    town.meanwhile(move || {
        Box::pin(async move {
            let late = request(&["a4"], to(&["ada", "cem"]), Some("late"));
            other_process.notify().accept(vec![late]).await.unwrap();
            other_process.fanouts().drain(&NoProgress).await.unwrap();
        })
    });
    if attempt(town, faulty).await.is_err() {
        // The process is dead. Its leases expire, and the next process takes over.
        town.clock.advance(TimeDelta::minutes(15));
        attempt(town, &town.store).await.unwrap();
    }
    town.process().fanouts().drain(&NoProgress).await.unwrap();
    town.digests_at(monday(1)).await;
}

/// Runs Saturday and Monday in one process. An error means that the process died.
async fn attempt(town: &Town, store: &Arc<dyn Store>) -> anyhow::Result<()> {
    let app = town.process_on(store);
    app.notify()
        .accept(vec![
            request(&["a1", "a2"], followers_of("artist:1").except([user("dee")]), Some("first")),
            request(&["a3", "a9"], followers_of("artist:2"), Some("second")),
            request(&["a1", "a5"], to(&["ben", "dee"]), Some("third")),
        ])
        .await?;
    app.fanouts().drain(&NoProgress).await?;
    town.clock.set(town.clock.now().max(monday(0)));
    app.digests().run(&Default::default(), &NoProgress).await?;
    Ok(())
}

/// Asserts that all processes together counted the stored records, apart from a call whose reply
/// was lost.
async fn assert_counters(town: &Town, fault: &str, lost_reply: Option<&str>) {
    let journal = town.store.backlog().await;
    let mut states = DeliveryState::ALL.to_vec();
    states.retain(|state| state.is_settled());
    let held = town.store.delivery_counts(&states).await;
    let deliveries = held.iter().map(|(_, count)| count).sum();
    let mut counts = vec![
        ("accept", "tidings_events_accepted_total", String::new(), journal.done),
        ("save_fanouts", "tidings_fanouts_done_total", String::new(), journal.done),
        ("open", "tidings_deliveries_opened_total", String::new(), deliveries),
    ];
    let ended = "tidings_deliveries_settled_total";
    counts.extend(
        held.iter().map(|(state, count)| {
            ("settle", ended, format!("state=\"{}\"", state.as_str()), *count)
        }),
    );
    for (method, name, label, stored) in counts {
        let counted = town.counted(name, &label);
        let is_right = match lost_reply == Some(method) {
            true => counted <= stored,
            false => counted == stored,
        };
        assert!(is_right, "{fault}: {name} {label}: {counted} of {stored}");
    }
}

/// Why an email may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Excuse {
    None,
    /// The user has an `unknown` delivery.
    Unknown,
}

/// Asserts that each pair was emailed once, unless an excuse applies, and that no row is open.
async fn assert_emailed_once(town: &Town, fault: &str, excuse: Excuse) {
    let emailed = town.emailed();
    for ((person, work), times) in &emailed {
        assert!(
            EXPECTED.contains(&(person.as_str(), work.as_str())),
            "{fault}: {person} must not hear of {work}"
        );
        assert_eq!(*times, 1, "{fault}: {person} heard of {work} more than once");
    }
    let mut unknown = Vec::new();
    for person in PEOPLE {
        let rows = town.deliveries_of(person).await;
        assert!(rows.iter().all(|row| !row.open), "{fault}: a row was left open: {rows:?}");
        if rows.iter().any(|row| row.state == DeliveryState::Unknown) {
            unknown.push(person);
        }
    }
    assert!(excuse == Excuse::Unknown || unknown.is_empty(), "{fault}: unknown: {unknown:?}");
    for (person, work) in EXPECTED {
        let was_emailed = emailed.contains_key(&(person.to_owned(), work.to_owned()));
        assert!(
            was_emailed || unknown.contains(&person),
            "{fault}: {person} never heard of {work}"
        );
    }
}
