//! Processes that are suspended for longer than their leases, and slow providers and disks.
//!
//! A resumed process sends no email that another process may have claimed, continues to work, and
//! ends on SIGTERM. `TIDINGS_STOP` suspends it around the provider call, the most dangerous moment.
//! `TIDINGS_TEST_SUSPENDS` and `TIDINGS_TEST_DELAYS` set the number of suspensions and of runs with
//! a slow disk (`scripts/chaos`).

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use futures::{StreamExt, stream};
use tidings::domain::DeliveryState;

use super::stage::{Process, Stage};
use crate::mail::provider::{Dialect, Next};
use crate::support::town::on_both_stores;
use crate::support::{Fresh, Shorthand, number};

on_both_stores! {
    a_suspended_worker_emails_nothing_twice_and_recovers_with_resend
    a_suspended_worker_emails_nothing_twice_and_recovers_with_postmark
    a_suspended_worker_emails_nothing_twice_and_recovers_with_mailgun
    a_suspended_worker_emails_nothing_twice_and_recovers_with_sendgrid
    a_suspended_worker_emails_nothing_twice_and_recovers_with_ses
}

async fn a_suspended_worker_emails_nothing_twice_and_recovers_with_resend(fresh: Fresh) {
    suspend_worker(&fresh, Dialect::Resend).await;
}

async fn a_suspended_worker_emails_nothing_twice_and_recovers_with_postmark(fresh: Fresh) {
    suspend_worker(&fresh, Dialect::Postmark).await;
}

async fn a_suspended_worker_emails_nothing_twice_and_recovers_with_mailgun(fresh: Fresh) {
    suspend_worker(&fresh, Dialect::Mailgun).await;
}

async fn a_suspended_worker_emails_nothing_twice_and_recovers_with_sendgrid(fresh: Fresh) {
    suspend_worker(&fresh, Dialect::SendGrid).await;
}

async fn a_suspended_worker_emails_nothing_twice_and_recovers_with_ses(fresh: Fresh) {
    suspend_worker(&fresh, Dialect::Ses).await;
}

/// A generous timeout for slow machines.
const LONG: Duration = Duration::from_secs(120);
/// A process ends within this time after SIGTERM.
const SOON: Duration = Duration::from_secs(10);
/// The number of slow runs at the same time.
const CONCURRENT_RUNS: usize = 4;
/// The points at which the process is suspended: before the request, after it but before its
/// outcome is stored, and before the row is marked `sending`.
const STOP_POINTS: [&str; 3] = ["after-sending", "after-send", "before-sending"];
/// At most this many processes in a row may happen to be suspended inside a transaction.
const TRIES: usize = 5;

async fn suspend_worker(fresh: &Fresh, dialect: Dialect) {
    let seed = number("TIDINGS_TEST_SEED", 1);
    for round in 0..number("TIDINGS_TEST_SUSPENDS", 1) {
        fresh.clear().await;
        let mut stage = Stage::set(fresh, dialect, seed + round).await;
        let point = STOP_POINTS[round as usize % STOP_POINTS.len()];
        let when = format!("{dialect:?}, {point}, round {round}");
        let mut tries = 0;
        let suspended = loop {
            tries += 1;
            assert!(tries <= TRIES, "{when}: always inside a transaction");
            stage.add_batch_events().await;
            let suspended = stage.start(&["worker"], &[("TIDINGS_STOP", point)]);
            suspended.wait_until_stopped(LONG).await;
            if stage.can_others_write() {
                break suspended;
            }
            // On SQLite, a process that is suspended inside a transaction of another task blocks
            // all others. Killing it ends the transaction.
            println!("{when}: it stood still inside a transaction");
        };

        // The leases of the suspended process expire, and another one takes over.
        let mut other = stage.start(&["worker"], &[]);
        stage.wait_until_settled(&when).await;
        suspended.signal("CONT");
        other.signal("TERM");
        let ended = other.ended(SOON).await.expect("the other ends");
        stage.add_batch_events().await;
        // From here on the resumed process is the only one.
        stage.wait_until_settled(&when).await;
        let mut suspended = suspended;
        suspended.signal("TERM");
        let resumed = suspended.ended(SOON).await.expect("it ends");

        assert_eq!((ended.code(), resumed.code()), (Some(0), Some(0)), "{when}");
        emailed_once(&stage, &when).await;
    }
}

/// Asserts that each delivery was emailed once. A repeated call with the same idempotency key sends
/// no email.
async fn emailed_once(stage: &Stage<'_>, when: &str) {
    let mut sent: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for email in stage.provider.emails() {
        let calls = sent.entry(email.delivery).or_default();
        let again = stage.dialect == Dialect::Resend && calls.contains(&email.call);
        if !again {
            calls.push(email.call);
        }
    }
    let twice: Vec<_> = sent.iter().filter(|(_, calls)| calls.len() > 1).collect();
    assert!(twice.is_empty(), "{when}: emailed twice: {twice:?}");
    let all = stage.fresh.deliveries_in(DeliveryState::Sent, 1_000).await;
    for row in all {
        let tag = row.id.tag().to_string();
        assert!(sent.contains_key(&tag), "{when}: never emailed: {row:?}");
    }
}

/// Runs on SQLite only, where writers wait for the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_finish_despite_slow_providers_and_slow_disks() {
    let first = number("TIDINGS_TEST_SEED", 1);
    let seeds = first..first + number("TIDINGS_TEST_DELAYS", 2);
    println!("TIDINGS_TEST_SEED={first}");
    // The runs mostly wait, and each has its own store.
    stream::iter(seeds)
        .for_each_concurrent(CONCURRENT_RUNS, |seed| {
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
    stage.add_day().await;
    stage.add_batch_events().await;
    // The provider rejects every third of the first 30 calls.
    let busy = || Next::Answer(429, vec![("Retry-After", "1".into())], "{}".into());
    let answers = (0..30).map(|n| if n % 3 == 2 { busy() } else { Next::Take });
    stage.provider.then(answers);
    let others = if seed.is_multiple_of(2) { 0 } else { 2 };
    let mut workers: Vec<Process> = (0..others).map(|_| stage.start(&["worker"], &disk)).collect();

    let mut digest = stage.digest(&disk);
    let status = digest.ended(LONG * 5).await.expect("the run ends");
    stage.no_panic(status);
    let mut last = stage.start(&["worker"], &disk);
    stage.wait_until_settled(&when).await;
    workers.push(stage.start(&["worker"], &disk));
    stage.add_batch_events().await;
    for worker in workers.iter_mut().chain([&mut last]) {
        worker.signal("TERM");
        let status = worker.ended(SOON).await.expect("a worker ends");
        // A worker that does not handle signals yet is ended by the signal itself.
        let ended_by_signal = status.signal() == Some(15);
        assert!(ended_by_signal || status.code() == Some(0), "{when}: {status:?}");
    }
    emailed_once(&stage, &when).await;
    println!("{when}: {} emails", stage.provider.emails().len());
}
