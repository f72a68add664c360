//! Tests the waits of deferred emails.

use std::sync::Arc;

use super::*;
use crate::domain::{Address, Cadence, DeliveryId, DeliverySource, Id, Share, UserId};
use crate::email::{BodyText, Message, SharedContent};

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_398_072_600, 0).unwrap()
}

fn retry() -> RetryPolicy {
    let settings = SendSettings {
        chunk: 1_000,
        in_flight: 16,
        lease: TimeDelta::minutes(5),
        retry_after: TimeDelta::minutes(1),
        attempts: 8,
        give_up_after: TimeDelta::days(2),
        ask_after: TimeDelta::minutes(2),
        ask_until: TimeDelta::minutes(10),
        resolve_within: TimeDelta::days(1),
        stop_after: 50,
        stop_share: Share::NONE,
        stop_bounces: Share::NONE,
        stop_complaints: Share::NONE,
        patience: TimeDelta::minutes(15),
        keep: TimeDelta::days(30),
    };
    RetryPolicy { settings, certainty: Resolution::Impossible }
}

/// Returns an email after this many attempts.
fn email(attempts: u32) -> BuiltEmail {
    let id = DeliveryId::stored("digest:ada:daily:2014-04-21");
    let occasion = DeliverySource::Digest(Cadence::Daily, "2014-04-21".into());
    let marker = Id::at(now(), [0; 8]);
    let mut row = Delivery::new(id.clone(), UserId::stored("ada"), occasion, marker, now());
    row.attempts.made = attempts;
    BuiltEmail {
        row,
        items: 1,
        has_markers: false,
        message: Message {
            delivery: id,
            to: Address::new("ada@example.org").unwrap(),
            to_name: None,
            content: Arc::new(SharedContent {
                subject: "News".into(),
                html: BodyText::default(),
                text: BodyText::from("News"),
            }),
            links: None,
            extra_headers: Vec::new(),
            at: now(),
        },
    }
}

fn later(wait: Option<u64>) -> Outcome {
    Outcome::TryLater("554 message rate exceeded".into(), wait.map(Duration::from_secs))
}

fn deferred() -> Outcome {
    Outcome::Deferred("450 greylisted".into())
}

fn decide(emails: &[BuiltEmail], outcomes: Vec<Outcome>) -> (Decisions, CallEffects) {
    retry().decide(emails, outcomes, Attempt::First, "resend", now())
}

#[test]
fn a_rate_limited_email_waits_longer_after_each_attempt() {
    let seconds = |attempts, wait: Option<u64>| {
        let (mut decisions, effects) = decide(&[email(attempts)], vec![later(wait)]);
        assert_eq!(effects.summary.unwrap().wait, wait.map(Duration::from_secs));
        let deferral = decisions.deferrals.remove(0);
        assert_eq!(deferral.has_failed, wait.is_none());
        (deferral.not_before - now()).num_seconds()
    };

    for (attempts, wait, expected) in [
        (1, None, 60),
        (3, None, 240),
        (1, Some(300), 300 + 60),
        (2, Some(300), 300 + 120),
        (3, Some(300), 300 + 240),
        (20, Some(300), 300 + 3_600),
        (1, Some(2), 2 + 2),
        (3, Some(2), 2 + 8),
        (1, Some(0), 1),
        // The wait is capped: the store treats longer ones as the result of a wrong clock.
        (5, Some(86_400), 86_400),
    ] {
        assert_eq!(seconds(attempts, wait), expected, "{attempts}, {wait:?}");
    }
}

#[test]
fn a_deferral_is_a_definite_answer_and_a_retry_delay_is_none() {
    let accepted = Outcome::Accepted("1".into());
    for (outcomes, has_answer) in [
        (vec![deferred()], true),
        (vec![accepted], true),
        (vec![later(None)], false),
        (vec![deferred(), later(None)], true),
    ] {
        let emails: Vec<BuiltEmail> = outcomes.iter().map(|_| email(1)).collect();
        let (_, effects) = decide(&emails, outcomes);
        assert_eq!(effects.summary.unwrap().has_answer, has_answer);
    }
}
