//! Processes that stand still for longer than their leases and go on, and slow providers before
//! slow disks.
//!
//! The rule: whoever comes back hands nothing over that others may have taken up, works again, and
//! ends when it is told to. A process stops itself between the ledger's word and the provider
//! (`TIDINGS_STOP`), where it would do the most harm. `TIDINGS_TEST_SUSPENDS` says how often, and
//! `TIDINGS_TEST_DELAYS` how many runs there are before a slow disk (`scripts/chaos`).

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use futures::{StreamExt, stream};
use tidings::domain::DeliveryState;

use super::number;
use super::stage::{Process, Stage};
use crate::mail::provider::{Dialect, Next};
use crate::support::town::on_both_stores;
use crate::support::{Fresh, Shorthand};

on_both_stores! {
    a_worker_that_stood_still_past_its_lease_mails_nothing_twice_and_works_again_with_resend
    a_worker_that_stood_still_past_its_lease_mails_nothing_twice_and_works_again_with_postmark
    a_worker_that_stood_still_past_its_lease_mails_nothing_twice_and_works_again_with_mailgun
    a_worker_that_stood_still_past_its_lease_mails_nothing_twice_and_works_again_with_sendgrid
    a_worker_that_stood_still_past_its_lease_mails_nothing_twice_and_works_again_with_ses
}

async fn a_worker_that_stood_still_past_its_lease_mails_nothing_twice_and_works_again_with_resend(
    fresh: Fresh,
) {
    stands_still(&fresh, Dialect::Resend).await;
}

async fn a_worker_that_stood_still_past_its_lease_mails_nothing_twice_and_works_again_with_postmark(
    fresh: Fresh,
) {
    stands_still(&fresh, Dialect::Postmark).await;
}

async fn a_worker_that_stood_still_past_its_lease_mails_nothing_twice_and_works_again_with_mailgun(
    fresh: Fresh,
) {
    stands_still(&fresh, Dialect::Mailgun).await;
}

async fn a_worker_that_stood_still_past_its_lease_mails_nothing_twice_and_works_again_with_sendgrid(
    fresh: Fresh,
) {
    stands_still(&fresh, Dialect::SendGrid).await;
}

async fn a_worker_that_stood_still_past_its_lease_mails_nothing_twice_and_works_again_with_ses(
    fresh: Fresh,
) {
    stands_still(&fresh, Dialect::Ses).await;
}

/// Longer than anything takes, on however slow a machine.
const LONG: Duration = Duration::from_secs(120);
/// A process that is told to end does so within this time.
const SOON: Duration = Duration::from_secs(10);
/// So many slow runs go on at a time.
const SIDE_BY_SIDE: usize = 4;
/// Where it stands still: before the request, and before what the request came to is written down.
const PLACES: [&str; 3] = ["after-sending", "after-send", "before-sending"];
/// So many processes in a row may stand still inside a transaction by chance; more do not.
const TRIES: usize = 5;

async fn stands_still(fresh: &Fresh, dialect: Dialect) {
    let seed = number("TIDINGS_TEST_SEED", 1);
    for round in 0..number("TIDINGS_TEST_SUSPENDS", 1) {
        fresh.clear().await;
        let mut stage = Stage::set(fresh, dialect, seed + round).await;
        let place = PLACES[round as usize % PLACES.len()];
        let when = format!("{dialect:?}, {place}, round {round}");
        let mut tries = 0;
        let still = loop {
            tries += 1;
            assert!(tries <= TRIES, "{when}: always inside a transaction");
            stage.word_gets_round().await;
            let still = stage.start(&["worker"], &[("TIDINGS_STOP", place)]);
            still.stands_still(LONG).await;
            if stage.others_may_write() {
                break still;
            }
            // SQLite lets nobody pass a process that stands still inside a transaction, which
            // another part of it had begun: such a one is killed, which ends the transaction.
            println!("{when}: it stood still inside a transaction");
        };

        // Its leases run out, and another takes over.
        let mut other = stage.start(&["worker"], &[]);
        stage.nothing_waits(&when).await;
        still.signal("CONT");
        other.signal("TERM");
        let ended = other.ended(SOON).await.expect("the other ends");
        stage.word_gets_round().await;
        // Alone now.
        stage.nothing_waits(&when).await;
        let mut still = still;
        still.signal("TERM");
        let gone = still.ended(SOON).await.expect("it ends");

        assert_eq!((ended.code(), gone.code()), (Some(0), Some(0)), "{when}");
        mailed_once(&stage, &when).await;
    }
}

/// By what the provider took; a call that is made again under its key mails nothing.
async fn mailed_once(stage: &Stage<'_>, when: &str) {
    let mut taken: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for mail in stage.provider.mails() {
        let calls = taken.entry(mail.delivery).or_default();
        let again = stage.dialect == Dialect::Resend && calls.contains(&mail.call);
        if !again {
            calls.push(mail.call);
        }
    }
    let twice: Vec<_> = taken.iter().filter(|(_, calls)| calls.len() > 1).collect();
    assert!(twice.is_empty(), "{when}: mailed twice: {twice:?}");
    let all = stage.fresh.deliveries_in(DeliveryState::Sent, 1_000).await;
    for row in all.unwrap() {
        let tag = row.id.tag().to_string();
        assert!(taken.contains_key(&tag), "{when}: never mailed: {row:?}");
    }
}

/// SQLite alone, as it is the store whose writers wait for a disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_providers_and_slow_disks_keep_no_run_from_its_end() {
    let first = number("TIDINGS_TEST_SEED", 1);
    let seeds = first..first + number("TIDINGS_TEST_DELAYS", 2);
    println!("TIDINGS_TEST_SEED={first}");
    // They wait more than they work, and each has a store of its own.
    stream::iter(seeds)
        .for_each_concurrent(SIDE_BY_SIDE, |seed| {
            crate::support::sqlite::run(move |fresh| slow(fresh, seed))
        })
        .await;
}

async fn slow(fresh: Fresh, seed: u64) {
    let slowest = number("TIDINGS_TEST_SLOWEST_MS", 100);
    let commits = number("TIDINGS_TEST_COMMIT_MS", 5).to_string();
    let disk = [("TIDINGS_SLOW_COMMITS", commits.as_str())];
    let mut stage = Stage::set(&fresh, Dialect::Resend, seed).await;
    stage.provider.takes_up_to(Duration::from_millis(slowest));
    let when = format!("seed {seed}");
    stage.a_day_passes().await;
    stage.word_gets_round().await;
    // Every third call is refused for a while.
    let busy = || Next::Answer(429, vec![("Retry-After", "1".into())], "{}".into());
    let answers = (0..30).map(|n| if n % 3 == 2 { busy() } else { Next::Take });
    stage.provider.then(answers);
    let others = if seed.is_multiple_of(2) { 0 } else { 2 };
    let mut workers: Vec<Process> = (0..others)
        .map(|_| stage.start(&["worker"], &disk))
        .collect();

    let mut digest = stage.digest(&disk);
    let status = digest.ended(LONG * 5).await.expect("the run ends");
    stage.no_panic(status);
    let mut last = stage.start(&["worker"], &disk);
    stage.nothing_waits(&when).await;
    workers.push(stage.start(&["worker"], &disk));
    stage.word_gets_round().await;
    for worker in workers.iter_mut().chain([&mut last]) {
        worker.signal("TERM");
        let status = worker.ended(SOON).await.expect("a worker ends");
        // One that has not begun to listen for signals yet ends of it as any process does.
        let unheard = status.signal() == Some(15);
        assert!(unheard || status.code() == Some(0), "{when}: {status:?}");
    }
    mailed_once(&stage, &when).await;
    println!("{when}: {} mails", stage.provider.mails().len());
}
