//! P1 to P5 with real processes that are killed at each named point and at random.
//!
//! Afterward each event has been emailed once, is withdrawn, or belongs to an `unknown` delivery,
//! and each batched event is in one batch. `TIDINGS_TEST_SEED` and `TIDINGS_TEST_KILLS` set the
//! random seed and the number of kills (`scripts/chaos`). [`stage`] runs the processes, and
//! [`check`] checks the result.

use std::sync::Arc;

use tidings::clock::SystemClock;
use tidings::domain::{Audience, DeliveryState, FanoutState, ObjectId};
use tidings::engine::crash::EMAIL_POINTS;
use tidings::engine::ingest::{self, EventService};

use crate::mail::provider::{Dialect, Next};
use crate::support::town::on_both_stores;
use crate::support::{Fresh, Shorthand, context, kind, number, user};

mod check;
mod grace;
mod stage;
mod suspend;
mod transferred;
mod work;

use stage::Stage;

on_both_stores! {
    an_accepted_event_reaches_its_audience_after_a_crash
    a_crash_at_any_point_of_a_digest_loses_and_duplicates_nothing
    a_crash_at_any_point_of_a_batch_loses_and_duplicates_nothing
    a_crash_after_a_rejected_call_leaves_no_unknown_delivery
    a_crash_after_a_provider_query_loses_and_duplicates_nothing
    random_crashes_lose_and_duplicate_nothing
}

/// A provider with idempotency keys, one without keys or queries, and one with one email per call.
const DIALECTS: [Dialect; 3] = [Dialect::Resend, Dialect::SendGrid, Dialect::Ses];

/// Points that a digest run does not reach, because it ends no batch.
const BATCH_POINTS: [&str; 5] =
    ["before-end", "after-end", "after-file", "after-row", "after-forget"];
/// Points that a batch does not reach, because its row is opened when the batch ends.
const DIGEST_POINTS: [&str; 2] = ["before-open", "after-open"];
/// Points that no worker and no digest run reaches with these providers, which cannot be queried.
const OTHER_POINTS: [&str; 2] = ["after-accept", "after-ask"];

fn points(dialect: Dialect, without: &[&str]) -> impl Iterator<Item = &'static str> {
    // If a call is a single email, no other emails are rejected with it.
    let is_single = dialect == Dialect::Ses;
    let digests = without == BATCH_POINTS;
    let is_reached = move |point: &&str| {
        let is_recalled = is_single && point.ends_with("-recall");
        // An accepted digest is settled and closed in one update, and Resend leaves none `unknown`.
        let is_closed = digests && dialect == Dialect::Resend && *point == "after-close";
        !OTHER_POINTS.contains(point) && !without.contains(point) && !is_recalled && !is_closed
    };
    EMAIL_POINTS.into_iter().filter(is_reached)
}

async fn an_accepted_event_reaches_its_audience_after_a_crash(fresh: Fresh) {
    let stage = Stage::set(&fresh, Dialect::Resend, 1).await;

    let arguments = "notify ArtworkPublished w --to p00 p01 --key handed-in";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    stage.dies_at(&arguments, "after-accept").await;
    stage.run_worker().await;

    let again = ingest::NewEvent {
        kind: kind("ArtworkPublished"),
        objects: vec![ObjectId::stored("w")],
        audience: Audience::users(["p00", "p01"].map(user)).unwrap(),
        key: Some("handed-in".into()),
        batch_key: None,
        details: Default::default(),
        at: None,
    };
    let notify = EventService {
        context: context(fresh.handle(), Arc::new(SystemClock), "test"),
        coalescer: Arc::default(),
    };
    let receipt = notify.accept(vec![again]).await.unwrap().remove(0);
    let fanout = fresh.fanout(receipt.id).await.unwrap().unwrap();
    assert!(receipt.duplicate);
    assert_eq!((fanout.state, fanout.progress.counts.people), (FanoutState::Done, 2));
}

async fn a_crash_at_any_point_of_a_digest_loses_and_duplicates_nothing(fresh: Fresh) {
    for dialect in DIALECTS {
        fresh.clear().await;
        let mut stage = Stage::set(&fresh, dialect, 1).await;
        for (n, point) in points(dialect, &BATCH_POINTS).enumerate() {
            stage.add_day().await;
            if point.ends_with("-recall") {
                stage.provider.then(refusal());
            }
            if point == "after-close" {
                stage.provider.then([Next::Lose]);
            }
            stage.digest_dies_at(point).await;
            if n % 3 == 2 {
                stage.settle(point).await;
            }
        }
        stage.settle("the last point").await;
    }
}

async fn a_crash_at_any_point_of_a_batch_loses_and_duplicates_nothing(fresh: Fresh) {
    for dialect in DIALECTS {
        fresh.clear().await;
        let mut stage = Stage::set(&fresh, dialect, 1).await;
        for (n, point) in points(dialect, &DIGEST_POINTS).enumerate() {
            stage.add_batch_events().await;
            if point.ends_with("-recall") {
                stage.provider.then(refusal());
            }
            stage.worker_dies_at(point).await;
            if n % 3 == 2 {
                stage.settle(point).await;
            }
        }
        stage.settle("the last point").await;
    }
}

/// The provider rejects a whole call because of one of its emails.
fn refusal() -> [Next; 1] {
    [Next::AnswerSeveral(400, r#"{"name": "validation_error"}"#.into())]
}

async fn a_crash_after_a_rejected_call_leaves_no_unknown_delivery(fresh: Fresh) {
    let mut stage = Stage::set(&fresh, Dialect::SendGrid, 1).await;
    stage.add_day().await;
    stage.provider.then(refusal());

    stage.digest_dies_at("after-recall").await;
    stage.settle("after-recall").await;

    let unknown = fresh.deliveries_in(DeliveryState::Unknown, 9).await;
    assert_eq!(unknown, []);
}

async fn a_crash_after_a_provider_query_loses_and_duplicates_nothing(fresh: Fresh) {
    let mut stage = Stage::set(&fresh, Dialect::Postmark, 1).await;
    stage.add_day().await;
    stage.provider.then([Next::Lose]);

    stage.digest_dies_at("after-ask").await;
    stage.settle("after-ask").await;

    let unknown = fresh.deliveries_in(DeliveryState::Unknown, 9).await;
    assert_eq!(unknown, []);
}

async fn random_crashes_lose_and_duplicate_nothing(fresh: Fresh) {
    let (seed, kills) = (number("TIDINGS_TEST_SEED", 1), number("TIDINGS_TEST_KILLS", 12));
    println!("TIDINGS_TEST_SEED={seed} TIDINGS_TEST_KILLS={kills}");
    for dialect in DIALECTS {
        fresh.clear().await;
        let mut stage = Stage::set(&fresh, dialect, seed).await;
        let mut remaining = kills.div_ceil(DIALECTS.len() as u64);
        while remaining > 0 {
            let count = remaining.min(6);
            stage.kill_at_random(count).await;
            stage.settle(&format!("{remaining} kills to go, seed {seed}")).await;
            remaining -= count;
        }
    }
}
