//! Emails through a real SMTP server: a recipient's answer delays that recipient only, and a
//! sending quota delays everything and loses nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use tidings::clock::Clock;
use tidings::domain::{Address, DeliveryState};
use tidings::email::{Relay, Security, Smtp};
use tidings::engine::NoProgress;
use tidings::engine::worker::Worker;

use crate::mail::server::Server;
use crate::mail::{PATIENT, sender};
use crate::support::town::{Town, monday, mostly_on_sqlite, request, to};
use crate::support::{Fresh, Shorthand};

mostly_on_sqlite! {
    forty_mailboxes_that_reject_emails_delay_no_other_user
    a_used_up_quota_delays_all_emails_and_fails_none
    a_limit_for_one_recipient_does_not_block_the_others
    a_rejection_that_quotes_another_status_suppresses_no_address
}

/// Each event is an email of its own. The other options have their default values.
const IMMEDIATE: &str = "types.ArtworkPublished.route = \"immediate\"
delivery.chunk = 1000
delivery.in_flight = 16
fanout.page = 10000
feed.fresh = \"30s\"
";

/// Returns a worker of the town that sends through this server.
fn worker(town: &Town, server: &Server) -> Worker {
    let relay = Relay {
        host: "127.0.0.1".into(),
        port: server.port,
        security: Security::Plain,
        login: None,
        timeout: PATIENT,
        sender: sender(),
    };
    let smtp = Smtp::new(relay).unwrap();
    town.process_through(Arc::new(smtp)).worker()
}

/// Returns the users whose emails the server accepted, in order.
fn recipients(server: &Server) -> Vec<String> {
    let name = |email: String| {
        let to = email.lines().find_map(|line| line.strip_prefix("To: "));
        to.unwrap().split('@').next().unwrap().to_owned()
    };
    server.emails().into_iter().map(name).collect()
}

async fn forty_mailboxes_that_reject_emails_delay_no_other_user(fresh: Fresh) {
    let (server, town) = (Server::start().await, Town::found(&fresh, false, IMMEDIATE).await);
    let (start, users) = (town.clock.now(), town.crowd(540).await);
    let blocked_until = start + TimeDelta::minutes(20);
    let clock = town.clock.clone();
    server.follow(move |command, _| {
        let user = command.strip_prefix("RCPT TO:<p")?.split('@').next()?;
        let user: usize = user.parse().ok()?;
        let replies = [
            "450 4.2.0 greylisted",
            "452 4.2.2 mailbox full",
            "451 4.7.1 too many messages from you, by our policy",
        ];
        (user < 40 && clock.now() < blocked_until).then_some(replies[user % 3])
    });
    // Half of the blocked users get their events at once, the others one every 15 seconds.
    let planned = |user: usize| match user {
        0..20 => start,
        20..40 => start + TimeDelta::seconds(15 * user as i64),
        _ => start + TimeDelta::milliseconds(1_200 * (user as i64 - 40)),
    };
    let mut plan: Vec<usize> = (0..users.len()).collect();
    plan.sort_by_key(|user| planned(*user));
    let mut plan = plan.into_iter().peekable();
    let (worker, mut scanned) = (worker(&town, &server), None);
    let notify = town.process().notify();
    let mut arrived: BTreeMap<String, DateTime<Utc>> = BTreeMap::new();

    while town.clock.now() < start + TimeDelta::minutes(60) {
        let now = town.clock.now();
        let mut due = Vec::new();
        while let Some(user) = plan.next_if(|user| planned(*user) <= now) {
            due.push(request(&["a1"], to(&[&users[user]]), None));
        }
        if !due.is_empty() {
            notify.accept(due).await.unwrap();
        }
        worker.round(&mut scanned, &NoProgress).await.unwrap();
        let known = arrived.len();
        for user in recipients(&server).split_off(known) {
            assert_eq!(arrived.insert(user, town.clock.now()), None, "sent twice");
        }
        let step = if plan.peek().is_some() { 3 } else { 30 };
        town.clock.advance(TimeDelta::seconds(step));
    }

    assert_eq!(arrived.len(), 540);
    let latency = |user: usize| arrived[&users[user]] - planned(user);
    let largest = (40..540).map(latency).max().unwrap();
    // The worker makes a round every three seconds here.
    assert!(largest <= TimeDelta::seconds(3), "{largest}");
    let first = (0..40).map(|user| arrived[&users[user]]).min().unwrap();
    assert!(first >= blocked_until, "{first}");
    let states = [DeliveryState::Sent, DeliveryState::Failed];
    let counts = town.store.delivery_counts(&states).await;
    assert_eq!((counts[0].1, counts[1].1), (540, 0));
}

async fn a_used_up_quota_delays_all_emails_and_fails_none(fresh: Fresh) {
    let config = IMMEDIATE.to_owned() + "[types.WorkSold]\nroute = \"digest\"\n";
    let (server, town) = (Server::start().await, Town::found(&fresh, false, &config).await);
    let users = town.crowd(30).await;
    let names: Vec<&str> = users.iter().map(String::as_str).collect();
    let mut sold = request(&["a2"], to(&names[15..]), None);
    sold.kind = "WorkSold".parse().unwrap();
    let app = town.process();
    app.notify().accept(vec![sold]).await.unwrap();
    town.clock.set(monday(0));
    town.happens(&["a1"], to(&names[..15])).await;
    let (clock, end) = (town.clock.clone(), monday(0) + TimeDelta::minutes(10));
    server.follow(move |command, _| {
        let refused = command.starts_with("RCPT") && clock.now() < end;
        refused.then_some("550 5.4.5 Daily sending quota exceeded")
    });
    let (worker, mut scanned) = (worker(&town, &server), None);

    for _ in 0..60 {
        let round = worker.round(&mut scanned, &NoProgress).await.unwrap();
        assert_eq!(round.paused, None, "a user would have to resume");
        town.clock.advance(TimeDelta::minutes(1));
    }

    let is_attempt = |command: &&String| command.starts_with("RCPT");
    let attempts = server.commands().iter().filter(is_attempt).count();
    let mut notified = recipients(&server);
    notified.sort();
    let mut expected = users.clone();
    expected.sort();
    assert_eq!(notified, expected);
    assert!(attempts <= 30 + 5, "{attempts} attempts");
}

async fn a_limit_for_one_recipient_does_not_block_the_others(fresh: Fresh) {
    let (server, town) = (Server::start().await, Town::found(&fresh, false, IMMEDIATE).await);
    let users = town.crowd(30).await;
    let names: Vec<&str> = users.iter().map(String::as_str).collect();
    town.clock.set(monday(0));
    town.happens(&["a1"], to(&names)).await;
    server.follow(|command, _| {
        let is_limited = command.starts_with("RCPT TO:<p0@");
        is_limited.then_some("554 5.7.1 <p0@example.org>: Recipient address rejected: message rate")
    });
    let (worker, mut scanned) = (worker(&town, &server), None);

    for _ in 0..8 {
        worker.round(&mut scanned, &NoProgress).await.unwrap();
        town.clock.advance(TimeDelta::minutes(1));
    }

    let mut notified = recipients(&server);
    notified.sort();
    let mut others = users[1..].to_vec();
    others.sort();
    assert_eq!(notified, others);
}

async fn a_rejection_that_quotes_another_status_suppresses_no_address(fresh: Fresh) {
    let (server, town) = (Server::start().await, Town::found(&fresh, false, IMMEDIATE).await);
    town.happens(&["a1"], to(&["ada"])).await;
    server.follow(|command, _| {
        let is_content = command == ".";
        is_content.then_some("554 5.7.1 Message rejected by FilterGate 5.2.1 (policy)")
    });

    let round = worker(&town, &server).round(&mut None, &NoProgress).await.unwrap();

    assert_eq!(round.emails.failed, 1);
    let ada = Address::new("ada@example.org").unwrap();
    let suppressed = town.store.suppressed(&[ada]).await;
    assert_eq!(suppressed, [None]);
}
