//! P1 to P4 over a whole cycle: notify, fan out, digest, flush, and the week after, with a fault at
//! every single store call.
//!
//! The rule: for every n, the nth call fails, once without having been done and once after it was
//! done. Whoever meets the fault is dead, and the next process finishes. At the end everybody was
//! told everything once, and of the withdrawn work never; what the ledger calls unknown is the only
//! excuse, and only where sending again could mail twice.

use std::sync::Arc;

use chrono::TimeDelta;
use tidings::clock::Clock;
use tidings::domain::DeliveryState;
use tidings::email::Certainty;
use tidings::engine::Silent;
use tidings::store::Store;

use crate::support::town::{PEOPLE, Town, followers_of, monday, on_both_stores, request, to};
use crate::support::{FailingStore, Fault, Fresh, Shorthand, Then, user};

on_both_stores! {
    a_cycle_without_faults_tells_everybody_everything_once
    a_call_that_fails_loses_and_doubles_nothing_where_sending_again_is_harmless
    a_call_that_fails_loses_and_doubles_nothing_where_sending_again_would_mail_twice
    a_call_that_fails_loses_and_doubles_nothing_where_sending_again_is_not_needed_as_the_provider_tells
    a_call_done_but_reported_failed_loses_and_doubles_nothing_where_sending_again_is_harmless
    a_call_done_but_reported_failed_loses_and_doubles_nothing_where_sending_again_would_mail_twice
    a_call_done_but_reported_failed_loses_and_doubles_nothing_where_sending_again_is_not_needed_as_the_provider_tells
}

/// Where a call can be made again under its reference.
const REPEAT: Certainty = Certainty::Repeat { within: None };

async fn a_cycle_without_faults_tells_everybody_everything_once(fresh: Fresh) {
    let town = Town::found(&fresh, false, "").await;
    play(&town, &town.store).await;
    judge(&town, "no fault", Excuse::None).await;
}

async fn a_call_that_fails_loses_and_doubles_nothing_where_sending_again_is_harmless(fresh: Fresh) {
    a_fault_at_every_call(&fresh, Fault::Refused, REPEAT).await;
}

async fn a_call_that_fails_loses_and_doubles_nothing_where_sending_again_would_mail_twice(
    fresh: Fresh,
) {
    a_fault_at_every_call(&fresh, Fault::Refused, Certainty::Never).await;
}

async fn a_call_that_fails_loses_and_doubles_nothing_where_sending_again_is_not_needed_as_the_provider_tells(
    fresh: Fresh,
) {
    a_fault_at_every_call(&fresh, Fault::Refused, Certainty::Ask).await;
}

async fn a_call_done_but_reported_failed_loses_and_doubles_nothing_where_sending_again_is_harmless(
    fresh: Fresh,
) {
    a_fault_at_every_call(&fresh, Fault::Unheard, REPEAT).await;
}

async fn a_call_done_but_reported_failed_loses_and_doubles_nothing_where_sending_again_would_mail_twice(
    fresh: Fresh,
) {
    a_fault_at_every_call(&fresh, Fault::Unheard, Certainty::Never).await;
}

async fn a_call_done_but_reported_failed_loses_and_doubles_nothing_where_sending_again_is_not_needed_as_the_provider_tells(
    fresh: Fresh,
) {
    a_fault_at_every_call(&fresh, Fault::Unheard, Certainty::Ask).await;
}

/// Whom each work has to reach, once.
const OWED: [(&str, &str); 9] = [
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

/// After one in so many faults the ledger is held against what was counted.
const COUNTED: usize = 10;

/// Plays the cycle once for every call there is, each time in an empty store; the process that
/// meets the fault dies of it at once, or goes on for as long as it can without a store.
async fn a_fault_at_every_call(fresh: &Fresh, fault: Fault, certainty: Certainty) {
    let excuse = match certainty {
        Certainty::Never => Excuse::Unknown,
        Certainty::Repeat { .. } | Certainty::Ask => Excuse::None,
    };
    let first = 3 * usize::from(fault == Fault::Unheard);
    for (offset, then) in [(first, Then::Recovers), (first + 5, Then::StaysDown)] {
        for n in 0.. {
            fresh.clear().await;
            let town = Town::with(fresh, certainty, "").await;
            let failing = FailingStore::new(town.store.clone(), n, fault, then);
            let faulty: Arc<dyn Store> = failing.clone();
            play(&town, &faulty).await;
            let Some(verb) = failing.struck() else {
                assert!(n > 20, "a cycle makes more than {n} calls");
                break;
            };
            let told = format!("call {n} ({verb}): {fault:?}, {then:?}");
            judge(&town, &told, excuse).await;
            if (n + offset) % COUNTED == 0 {
                let unheard = (fault == Fault::Unheard).then_some(verb);
                count_again(&town, &told, unheard).await;
            }
        }
    }
}

/// Lets processes die and be replaced until one gets through, then plays the next Monday without
/// faults.
async fn play(town: &Town, faulty: &Arc<dyn Store>) {
    let bystander = town.process();
    // Between read and flush of the first mails, another work reaches ada and cem.
    town.meanwhile(move || {
        Box::pin(async move {
            let late = request(&["a4"], to(&["ada", "cem"]), Some("late"));
            bystander.notify().accept(vec![late]).await.unwrap();
            bystander.fanouts().drain(&Silent).await.unwrap();
        })
    });
    if attempt(town, faulty).await.is_err() {
        // That process is dead; its leases run out, the provider is believed, and the next one
        // takes over.
        town.clock.advance(TimeDelta::minutes(15));
        attempt(town, &town.store).await.unwrap();
    }
    town.process().fanouts().drain(&Silent).await.unwrap();
    town.digests_at(monday(1)).await;
}

/// One process's try at the whole of Saturday and Monday; an error is its death.
async fn attempt(town: &Town, store: &Arc<dyn Store>) -> anyhow::Result<()> {
    let app = town.process_on(store);
    app.notify()
        .accept(vec![
            request(
                &["a1", "a2"],
                followers_of("artist:1").except([user("dee")]),
                Some("first"),
            ),
            request(&["a3", "a9"], followers_of("artist:2"), Some("second")),
            request(&["a1", "a5"], to(&["ben", "dee"]), Some("third")),
        ])
        .await?;
    app.fanouts().drain(&Silent).await?;
    town.clock.set(town.clock.now().max(monday(0)));
    app.digests().run(&Default::default(), &Silent).await?;
    Ok(())
}

/// What all processes counted is what stands, but for what the call did whose answer was lost.
async fn count_again(town: &Town, fault: &str, unheard: Option<&str>) {
    let journal = town.store.backlog().await.unwrap();
    let mut states = DeliveryState::ALL.to_vec();
    states.retain(|state| state.settled());
    let held = town.store.delivery_counts(&states).await.unwrap();
    let deliveries = held.iter().map(|(_, count)| count).sum();
    let mut counts = vec![
        (
            "accept",
            "tidings_events_accepted_total",
            String::new(),
            journal.done,
        ),
        (
            "save_fanouts",
            "tidings_fanouts_done_total",
            String::new(),
            journal.done,
        ),
        (
            "open",
            "tidings_deliveries_opened_total",
            String::new(),
            deliveries,
        ),
    ];
    let ended = "tidings_deliveries_settled_total";
    counts.extend(held.iter().map(|(state, count)| {
        (
            "settle",
            ended,
            format!("state=\"{}\"", state.as_str()),
            *count,
        )
    }));
    for (verb, name, label, stands) in counts {
        let counted = town.counted(name, &label);
        let is_right = match unheard == Some(verb) {
            true => counted <= stands,
            false => counted == stands,
        };
        assert!(is_right, "{fault}: {name} {label}: {counted} of {stands}");
    }
}

/// What excuses that somebody was not told of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Excuse {
    None,
    /// A delivery of theirs is unknown.
    Unknown,
}

/// What must be true whatever happened.
async fn judge(town: &Town, fault: &str, excuse: Excuse) {
    let told = town.told();
    for ((person, work), times) in &told {
        assert!(
            OWED.contains(&(person.as_str(), work.as_str())),
            "{fault}: {person} must not hear of {work}"
        );
        assert_eq!(
            *times, 1,
            "{fault}: {person} heard of {work} more than once"
        );
    }
    let mut unknown = Vec::new();
    for person in PEOPLE {
        let rows = town.deliveries_of(person).await;
        assert!(
            rows.iter().all(|row| !row.open),
            "{fault}: a row was left open: {rows:?}"
        );
        if rows.iter().any(|row| row.state == DeliveryState::Unknown) {
            unknown.push(person);
        }
    }
    assert!(
        excuse == Excuse::Unknown || unknown.is_empty(),
        "{fault}: unknown: {unknown:?}"
    );
    for (person, work) in OWED {
        let heard = told.contains_key(&(person.to_owned(), work.to_owned()));
        assert!(
            heard || unknown.contains(&person),
            "{fault}: {person} never heard of {work}"
        );
    }
}
