//! Tests of the id of a due digest when users change their schedule between digests.

use chrono::Weekday;
use chrono_tz::Tz;

use super::*;
use crate::domain::{Id, Occasion, Schedule};

fn user() -> UserId {
    UserId::stored("ada")
}

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn weekly(weekday: Weekday, tz: Tz) -> Schedule {
    Schedule {
        cadence: Cadence::Weekly,
        weekday,
        hour: 9,
        tz,
    }
}

/// Returns the delivery of a digest that was due at that time.
fn delivery_of(id: &DeliveryId, due: &Due) -> Delivery {
    let occasion = Occasion::Digest {
        cadence: Cadence::Weekly,
        period: due.period.to_string(),
    };
    let marker = Id::from_bytes([1; 12]);
    Delivery {
        due_on: Some(due.date),
        ..Delivery::new(id.clone(), user(), occasion, marker, due.at)
    }
}

/// Returns the due digest and its delivery.
fn place<'a>(schedule: &Schedule, now: &str, ledger: &'a [Delivery]) -> (Due, Place<&'a Delivery>) {
    let due = schedule.last_due(at(now)).unwrap();
    let rows = Rows::of(&user(), schedule.cadence, &due);
    let place = rows.place(&due, |id| ledger.iter().find(|row| row.id == *id));
    (due, place)
}

/// Returns the id if the delivery does not exist yet.
fn free_id(place: &Place<&Delivery>) -> Option<String> {
    match place {
        Place::Free(id) => Some(id.to_string()),
        Place::Taken(_) => None,
    }
}

#[test]
fn a_week_has_one_email_for_one_weekday() {
    let monday = weekly(Weekday::Mon, Tz::UTC);

    let (due, first) = place(&monday, "2026-11-16T09:00:00Z", &[]);
    let id = free_id(&first).unwrap();
    let ledger = [delivery_of(&DeliveryId::stored(id.clone()), &due)];
    let (_, again) = place(&monday, "2026-11-22T23:00:00Z", &ledger);

    assert_eq!(id, "digest:ada:weekly:2026-W47");
    assert_eq!(free_id(&again), None);
}

#[test]
fn a_later_weekday_chosen_after_the_email_takes_effect_that_week() {
    let (due, first) = place(&weekly(Weekday::Mon, Tz::UTC), "2026-11-16T09:00:00Z", &[]);
    let mut ledger = vec![delivery_of(
        &DeliveryId::stored(free_id(&first).unwrap()),
        &due,
    )];
    let sunday = weekly(Weekday::Sun, Tz::UTC);

    let (due, second) = place(&sunday, "2026-11-22T09:00:00Z", &ledger);
    let id = free_id(&second).unwrap();
    ledger.push(delivery_of(&DeliveryId::stored(id.clone()), &due));
    let (_, again) = place(&sunday, "2026-11-22T10:00:00Z", &ledger);

    assert_eq!(id, "digest:ada:weekly:2026-W47-7");
    assert_eq!(free_id(&again), None);
}

#[test]
fn an_earlier_weekday_chosen_after_the_email_causes_no_second_one() {
    let (due, first) = place(&weekly(Weekday::Fri, Tz::UTC), "2026-11-20T09:00:00Z", &[]);
    let ledger = [delivery_of(
        &DeliveryId::stored(free_id(&first).unwrap()),
        &due,
    )];

    let monday = weekly(Weekday::Mon, Tz::UTC);
    let (_, after) = place(&monday, "2026-11-21T09:00:00Z", &ledger);

    assert_eq!(free_id(&after), None);
}

#[test]
fn the_same_weekday_in_another_zone_causes_no_second_email() {
    let tokyo = weekly(Weekday::Mon, Tz::Asia__Tokyo);
    let (due, first) = place(&tokyo, "2026-11-16T00:00:00Z", &[]);
    let ledger = [delivery_of(
        &DeliveryId::stored(free_id(&first).unwrap()),
        &due,
    )];

    for tz in [Tz::America__Los_Angeles, Tz::Pacific__Kiritimati, Tz::UTC] {
        let moved = weekly(Weekday::Mon, tz);
        let (_, after) = place(&moved, "2026-11-17T12:00:00Z", &ledger);
        assert_eq!(free_id(&after), None, "{tz}");
    }
}

#[test]
fn a_delivery_without_a_due_date_occupies_its_week() {
    let (due, first) = place(&weekly(Weekday::Mon, Tz::UTC), "2026-11-16T09:00:00Z", &[]);
    let old = Delivery {
        due_on: None,
        ..delivery_of(&DeliveryId::stored(free_id(&first).unwrap()), &due)
    };

    let sunday = weekly(Weekday::Sun, Tz::UTC);
    let (_, after) = place(&sunday, "2026-11-22T09:00:00Z", std::slice::from_ref(&old));

    assert_eq!(free_id(&after), None);
}

#[test]
fn the_retry_interval_of_a_failed_digest_doubles_each_time() {
    let due = weekly(Weekday::Mon, Tz::UTC)
        .last_due(at("2026-11-16T09:00:00Z"))
        .unwrap();
    let failed = |reopened| {
        let mut row = delivery_of(&DeliveryId::stored("x"), &due);
        (row.state, row.open) = (DeliveryState::Failed, false);
        (row.outcome.settled, row.attempts.reopened) = (Some(due.at), reopened);
        row
    };
    let hours = |row: &Delivery| tried_again(row).map(|again| (again - due.at).num_hours());

    let waits: Vec<_> = [0, 1, 2, 4, 5, 99].map(|n| hours(&failed(n))).to_vec();

    assert_eq!(waits, [1, 2, 4, 16, 24, 24].map(Some));
    let closing = Delivery {
        open: true,
        ..failed(1)
    };
    let sent = Delivery {
        state: DeliveryState::Sent,
        ..failed(1)
    };
    assert_eq!((hours(&closing), hours(&sent)), (None, None));
}
