//! Tests of the module `backlog`.

use super::*;

#[test]
fn a_day_is_in_the_window_in_the_backlog_or_too_old() {
    let now = "2014-04-22T12:00:00Z".parse().unwrap();
    let days = DigestDays::at(now, 7, TimeDelta::days(30));
    let day = |text: &str| text.parse::<Day>().unwrap();

    for (text, older, too_old) in [
        ("20140422", false, false),
        ("20140415", false, false),
        ("20140414", true, false),
        ("20140323", true, false),
        ("20140322", false, true),
        ("20140101", false, true),
    ] {
        let found = (days.is_backlog(day(text)), days.is_expired(day(text)));
        assert_eq!(found, (older, too_old), "{text}");
    }
}

#[test]
fn a_window_longer_than_the_maximum_age_leaves_no_older_days() {
    let now = "2014-04-22T12:00:00Z".parse().unwrap();
    let days = DigestDays::at(now, 60, TimeDelta::days(30));

    assert_eq!(days.first, days.window.first());
}

#[test]
fn a_note_round_trips_and_other_text_is_ignored() {
    let note = DayNote {
        id: Id::from_bytes([7; 12]),
        at: DateTime::UNIX_EPOCH,
        mailable: Some(PendingCounts::default()),
        blocked: None,
        expired: PendingCounts::default(),
        expired_blocked: PendingCounts::default(),
    };

    let read = DayNote::parse(&serde_json::to_string(&note).unwrap());

    assert_eq!(read.as_ref(), Some(&note));
    assert!(
        note.has_no_mailable() && note.has_only_blocked(),
        "older versions counted no blocked users"
    );
    assert_eq!(DayNote::parse("changed"), None);
    let name = DayNote::note_name("20140422".parse().unwrap());
    assert_eq!(DayNote::day_of_note(&name), "20140422".parse().ok());
    assert_eq!(DayNote::day_of_note("day:x"), None);
}
