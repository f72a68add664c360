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
fn mailed(id: &DeliveryId, due: &Due) -> Delivery {
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
fn free(place: &Place<&Delivery>) -> Option<String> {
    match place {
        Place::Free(id) => Some(id.to_string()),
        Place::Taken(_) => None,
    }
}

#[test]
fn a_week_has_one_mail_of_one_weekday() {
    let monday = weekly(Weekday::Mon, Tz::UTC);

    let (due, first) = place(&monday, "2026-11-16T09:00:00Z", &[]);
    let id = free(&first).unwrap();
    let ledger = [mailed(&DeliveryId::stored(id.clone()), &due)];
    let (_, again) = place(&monday, "2026-11-22T23:00:00Z", &ledger);

    assert_eq!(id, "digest:ada:weekly:2026-W47");
    assert_eq!(free(&again), None);
}

#[test]
fn a_later_weekday_chosen_after_the_mail_is_not_a_week_late() {
    let (due, first) = place(&weekly(Weekday::Mon, Tz::UTC), "2026-11-16T09:00:00Z", &[]);
    let mut ledger = vec![mailed(&DeliveryId::stored(free(&first).unwrap()), &due)];
    let sunday = weekly(Weekday::Sun, Tz::UTC);

    let (due, second) = place(&sunday, "2026-11-22T09:00:00Z", &ledger);
    let id = free(&second).unwrap();
    ledger.push(mailed(&DeliveryId::stored(id.clone()), &due));
    let (_, again) = place(&sunday, "2026-11-22T10:00:00Z", &ledger);

    assert_eq!(id, "digest:ada:weekly:2026-W47-7");
    assert_eq!(free(&again), None);
}

#[test]
fn an_earlier_weekday_chosen_after_the_mail_brings_no_second_one() {
    let (due, first) = place(&weekly(Weekday::Fri, Tz::UTC), "2026-11-20T09:00:00Z", &[]);
    let ledger = [mailed(&DeliveryId::stored(free(&first).unwrap()), &due)];

    let monday = weekly(Weekday::Mon, Tz::UTC);
    let (_, after) = place(&monday, "2026-11-21T09:00:00Z", &ledger);

    assert_eq!(free(&after), None);
}

#[test]
fn the_same_weekday_in_another_zone_brings_no_second_mail() {
    let tokyo = weekly(Weekday::Mon, Tz::Asia__Tokyo);
    let (due, first) = place(&tokyo, "2026-11-16T00:00:00Z", &[]);
    let ledger = [mailed(&DeliveryId::stored(free(&first).unwrap()), &due)];

    for tz in [Tz::America__Los_Angeles, Tz::Pacific__Kiritimati, Tz::UTC] {
        let moved = weekly(Weekday::Mon, tz);
        let (_, after) = place(&moved, "2026-11-17T12:00:00Z", &ledger);
        assert_eq!(free(&after), None, "{tz}");
    }
}

#[test]
fn a_row_of_before_dates_were_noted_stands_for_its_week() {
    let (due, first) = place(&weekly(Weekday::Mon, Tz::UTC), "2026-11-16T09:00:00Z", &[]);
    let old = Delivery {
        due_on: None,
        ..mailed(&DeliveryId::stored(free(&first).unwrap()), &due)
    };

    let sunday = weekly(Weekday::Sun, Tz::UTC);
    let (_, after) = place(&sunday, "2026-11-22T09:00:00Z", std::slice::from_ref(&old));

    assert_eq!(free(&after), None);
}

#[test]
fn what_failed_is_tried_again_after_twice_as_long_each_time() {
    let due = weekly(Weekday::Mon, Tz::UTC)
        .last_due(at("2026-11-16T09:00:00Z"))
        .unwrap();
    let failed = |reopened| {
        let mut row = mailed(&DeliveryId::stored("x"), &due);
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
