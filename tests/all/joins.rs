//! Events join cool-down batches while several closers run: each event is in exactly one email.
//!
//! The test compares the sent emails with the posted events, for each user and event, without
//! reading the store. `TIDINGS_TEST_JOINS` sets the number of joins (`scripts/chaos --joins`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use chrono::TimeDelta;
use tidings::domain::batch::{AccumulatorId, BatchItem, Keep};
use tidings::domain::{BatchKey, BatchPolicy, ObjectId, UserId};
use tidings::engine::NoProgress;
use tidings::engine::batches::Join;

use crate::support::town::{Town, on_both_stores};
use crate::support::{Fresh, id, kind, number, user};

on_both_stores! {
    each_event_that_joins_during_closing_is_in_exactly_one_email
}

/// The number of users that each event reaches.
const PEOPLE: usize = 200;
const WRITERS: u32 = 2;
const CLOSERS: u32 = 3;

const CONFIG: &str = r#"
delivery.chunk = 500
types.T.route = "batch"
types.T.cooldown = "3s"
types.T.max_wait = "8s"
"#;

fn cooling() -> BatchPolicy {
    BatchPolicy {
        window: TimeDelta::zero(),
        cooldown: TimeDelta::seconds(3),
        max_wait: Some(TimeDelta::seconds(8)),
        // The email lists up to 12 events one by one, so that all of them can be checked.
        close_at: std::num::NonZeroU64::new(12),
        keep: Keep::Last(12),
        leading: false,
        deferred_until: None,
    }
}

/// The joins of one event, one for each user.
fn joins(crowd: &[UserId], event: u32) -> Vec<Join> {
    let object = ObjectId::stored(format!("o{event}"));
    let items: Arc<[BatchItem]> =
        [BatchItem { fanout_id: id(event), kind: kind("T"), object }].into();
    let join = |person: &UserId| Join {
        accumulator: AccumulatorId { user: person.clone(), key: BatchKey::Type(kind("T")) },
        items: items.clone(),
        policy: cooling(),
    };
    crowd.iter().map(join).collect()
}

async fn each_event_that_joins_during_closing_is_in_exactly_one_email(fresh: Fresh) {
    let all = number("TIDINGS_TEST_JOINS", 6_000);
    let events = (all as u32).div_ceil(PEOPLE as u32);
    println!("TIDINGS_TEST_JOINS={all}");
    let town = Arc::new(Town::found(&fresh, true, CONFIG).await);
    let names = town.crowd(PEOPLE).await;
    let crowd: Arc<[UserId]> = names.iter().map(|name| user(name)).collect();
    let works: Vec<String> = (0..events).map(|event| format!("o{event}")).collect();
    for works in works.chunks(1_000) {
        let works: Vec<&str> = works.iter().map(String::as_str).collect();
        town.put_works(&works, |_| true).await;
    }

    let (next, done) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let joiner = town.process_on(&fresh.second().handle()).batches();
            let (clock, crowd, next) = (town.clock.clone(), crowd.clone(), next.clone());
            tokio::spawn(async move {
                loop {
                    let event = next.fetch_add(1, Ordering::Relaxed);
                    if event >= events {
                        return;
                    }
                    // The repeated fan-out changes nothing.
                    for _ in 0..2 {
                        joiner.join(joins(&crowd, event)).await.unwrap();
                    }
                    clock.advance(TimeDelta::seconds(1));
                }
            })
        })
        .collect();
    let closers: Vec<_> = (0..CLOSERS)
        .map(|_| {
            let (closer, done) = (town.process().batches(), done.clone());
            tokio::spawn(async move {
                while !done.load(Ordering::Relaxed) {
                    closer.drain(&NoProgress).await.unwrap();
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    done.store(true, Ordering::Relaxed);
    for closer in closers {
        closer.await.unwrap();
    }
    town.clock.advance(TimeDelta::minutes(10));
    let last = town.process();
    last.batches().drain(&NoProgress).await.unwrap();
    last.sender().drain().await.unwrap();

    let emailed = town.emailed_works();
    let posted = names.iter().flat_map(|name| works.iter().map(move |work| (name, work)));
    let (mut lost, mut doubled) = (0, 0);
    for (name, work) in posted {
        match emailed.get(&(name.clone(), work.clone())) {
            None => lost += 1,
            Some(1) => {}
            Some(_) => doubled += 1,
        }
    }
    let (emails, joined) = (town.emails().len(), events as usize * PEOPLE);
    println!("{joined} joined, {emails} emails, {lost} lost, {doubled} doubled");
    assert_eq!((lost, doubled, emailed.len()), (0, 0, joined));
}
