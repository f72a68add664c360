//! P1 to P5 with real processes that die: `tidings worker` and `tidings digest` are killed at every
//! named point and at random, while events keep arriving, in front of a provider that keeps what it
//! takes.
//!
//! The rule: when the dust has settled, nobody was mailed an event twice, and every event was
//! mailed, is withdrawn, or stands in a delivery that is `unknown`; what was to be gathered is in
//! one batch. The processes live in real time; whoever settles the dust turns a clock past all
//! leases and windows. The seed decides who is killed and when, as far as the machine lets it:
//! `TIDINGS_TEST_SEED`, and `TIDINGS_TEST_KILLS` for how often (`scripts/chaos`). [`stage`] has the
//! town and its processes, [`verdict`] what must add up.

use std::sync::Arc;

use tidings::clock::SystemClock;
use tidings::domain::{Audience, DeliveryState, FanoutState, ObjectId};
use tidings::engine::crash::POINTS;
use tidings::engine::ingest::notify::{self, Notify};

use crate::mail::provider::{Dialect, Next};
use crate::support::town::on_both_stores;
use crate::support::{Fresh, Shorthand, context, kind, user};

mod dice;
mod stage;
mod suspend;
mod transferred;
mod verdict;
mod work;

use stage::Stage;

on_both_stores! {
    killed_after_an_event_was_accepted_it_reaches_everybody
    killed_at_every_named_point_of_a_digest_nothing_is_lost_or_doubled
    killed_at_every_named_point_of_a_batch_nothing_is_lost_or_doubled
    killed_after_a_call_was_refused_nobody_is_in_doubt
    killed_after_the_provider_was_asked_nothing_is_lost_or_doubled
    killed_at_random_nothing_is_lost_or_doubled
}

/// One whose calls can be made again, one that can tell nobody anything, and one of a mail a call.
const DIALECTS: [Dialect; 3] = [Dialect::Resend, Dialect::SendGrid, Dialect::Ses];

/// Where a digest run does not come by, as it ends no batch.
const OF_BATCHES: [&str; 5] = [
    "before-end",
    "after-end",
    "after-file",
    "after-row",
    "after-forget",
];
/// Where a batch does not come by, as its row is opened when it ends.
const OF_DIGESTS: [&str; 2] = ["before-open", "after-open"];
/// Where no digest and no worker comes by in front of these providers, which cannot be asked.
const ELSEWHERE: [&str; 2] = ["after-accept", "after-ask"];

fn points(dialect: Dialect, without: &[&str]) -> impl Iterator<Item = &'static str> {
    // Where a call is one mail, none is refused with others.
    let is_single = dialect == Dialect::Ses;
    let digests = without == OF_BATCHES;
    let comes_by = move |point: &&str| {
        let is_recalled = is_single && point.ends_with("-recall");
        // A digest that was taken is closed as it is settled; here none is in doubt.
        let is_closed = digests && dialect == Dialect::Resend && *point == "after-close";
        !ELSEWHERE.contains(point) && !without.contains(point) && !is_recalled && !is_closed
    };
    POINTS.into_iter().filter(comes_by)
}

async fn killed_after_an_event_was_accepted_it_reaches_everybody(fresh: Fresh) {
    let stage = Stage::set(&fresh, Dialect::Resend, 1).await;

    let handed_in = "notify ArtworkPublished w --to p00 p01 --key handed-in";
    let handed_in: Vec<&str> = handed_in.split(' ').collect();
    stage.dies_at(&handed_in, "after-accept").await;
    stage.worker_runs().await;

    let again = notify::Request {
        kind: kind("ArtworkPublished"),
        objects: vec![ObjectId::stored("w")],
        audience: Audience::users(["p00", "p01"].map(user)).unwrap(),
        key: Some("handed-in".into()),
        batch_key: None,
        details: Default::default(),
        at: None,
    };
    let notify = Notify {
        context: context(fresh.handle(), Arc::new(SystemClock), "test"),
        joint: Arc::default(),
        window_back: 0,
        brands: Default::default(),
    };
    let receipt = notify.accept(vec![again]).await.unwrap().remove(0);
    let fanout = fresh.fanout(receipt.id).await.unwrap().unwrap();
    assert!(receipt.known);
    assert_eq!(
        (fanout.state, fanout.progress.counts.people),
        (FanoutState::Done, 2)
    );
}

async fn killed_at_every_named_point_of_a_digest_nothing_is_lost_or_doubled(fresh: Fresh) {
    for dialect in DIALECTS {
        fresh.clear().await;
        let mut stage = Stage::set(&fresh, dialect, 1).await;
        for (n, point) in points(dialect, &OF_BATCHES).enumerate() {
            stage.a_day_passes().await;
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

async fn killed_at_every_named_point_of_a_batch_nothing_is_lost_or_doubled(fresh: Fresh) {
    for dialect in DIALECTS {
        fresh.clear().await;
        let mut stage = Stage::set(&fresh, dialect, 1).await;
        for (n, point) in points(dialect, &OF_DIGESTS).enumerate() {
            stage.word_gets_round().await;
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

/// A whole call is refused because of one of its emails.
fn refusal() -> [Next; 1] {
    [Next::AnswerSeveral(
        400,
        r#"{"name": "validation_error"}"#.into(),
    )]
}

async fn killed_after_a_call_was_refused_nobody_is_in_doubt(fresh: Fresh) {
    let mut stage = Stage::set(&fresh, Dialect::SendGrid, 1).await;
    stage.a_day_passes().await;
    stage.provider.then(refusal());

    stage.digest_dies_at("after-recall").await;
    stage.settle("after-recall").await;

    let unknown = fresh.deliveries_in(DeliveryState::Unknown, 9).await;
    assert_eq!(unknown.unwrap(), []);
}

async fn killed_after_the_provider_was_asked_nothing_is_lost_or_doubled(fresh: Fresh) {
    let mut stage = Stage::set(&fresh, Dialect::Postmark, 1).await;
    stage.a_day_passes().await;
    stage.provider.then([Next::Lose]);

    stage.digest_dies_at("after-ask").await;
    stage.settle("after-ask").await;

    let unknown = fresh.deliveries_in(DeliveryState::Unknown, 9).await;
    assert_eq!(unknown.unwrap(), []);
}

/// What is set, or what the gate takes.
fn number(name: &str, otherwise: u64) -> u64 {
    let set = std::env::var(name).ok();
    set.map_or(otherwise, |set| set.parse().unwrap())
}

async fn killed_at_random_nothing_is_lost_or_doubled(fresh: Fresh) {
    let (seed, kills) = (
        number("TIDINGS_TEST_SEED", 1),
        number("TIDINGS_TEST_KILLS", 12),
    );
    println!("TIDINGS_TEST_SEED={seed} TIDINGS_TEST_KILLS={kills}");
    for dialect in DIALECTS {
        fresh.clear().await;
        let mut stage = Stage::set(&fresh, dialect, seed).await;
        let mut left = kills.div_ceil(DIALECTS.len() as u64);
        while left > 0 {
            let act = left.min(6);
            stage.kill_at_random(act).await;
            stage
                .settle(&format!("{left} kills to go, seed {seed}"))
                .await;
            left -= act;
        }
    }
}
