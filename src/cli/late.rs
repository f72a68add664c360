//! The lines of a digest run about days before the window.

use super::words;
use crate::domain::Owed;
use crate::wire::digest::BacklogReport;

/// Returns lines for the backlog of these days, and for the events that expired.
pub(super) fn late(backlog: &BacklogReport) -> Vec<String> {
    let told = |owed: Owed| {
        let people = words::count(owed.people, "person", "people");
        (people, words::count(owed.events, "event", "events"))
    };
    let mut lines = Vec::new();
    if !backlog.older.is_nothing() {
        let (people, events) = told(backlog.older);
        let included = match backlog.older_due.events {
            0 => "their next digest has them".to_owned(),
            all if all >= backlog.older.events => "the digests of this run have them".to_owned(),
            some => format!(
                "the digests of this run have {} of them, later digests have the others",
                words::number(some)
            ),
        };
        lines.push(format!(
            "late: {people} had {events} pending from days before the window; {included}"
        ));
    }
    if !backlog.blocked.is_nothing() {
        let (people, events) = told(backlog.blocked);
        lines.push(format!(
            "waiting: {events} from days before the window for {people} who cannot be emailed now; \
             they expire after digest.max_age"
        ));
    }
    for (day, owed) in &backlog.given_up {
        let (people, events) = told(*owed);
        let date = day.start().date_naive();
        lines.push(format!(
            "expired: {events} of {date} for {people}, older than digest.max_age"
        ));
    }
    if !backlog.given_up_blocked.is_nothing() {
        let events = words::count(backlog.given_up_blocked.events, "event", "events");
        lines.push(format!(
            "expired: {events} of these for people who could not be emailed"
        ));
    }
    lines
}
