//! Tests of the summary line of a digest run, which omits zeros.

use std::collections::BTreeMap;

use chrono::TimeZone;

use super::*;
use crate::domain::PendingCounts;
use crate::wire::run_report::{BacklogReport, DigestUsers, DueDigests};

fn report() -> DigestReport {
    DigestReport {
        users: DigestUsers {
            scanned: 1_600,
            pending: 1_556,
            waiting: 310,
            next_due: Some(Utc.with_ymd_and_hms(2014, 4, 29, 9, 0, 0).unwrap()),
            unmailable: BTreeMap::from([("unconfirmed", 12)]),
            ..DigestUsers::default()
        },
        due: DueDigests { users: 1_234, events: 9_000, ..DueDigests::default() },
        emails: Tally {
            sent: 1_230,
            events: 8_990,
            failed: 2,
            canceled: 1,
            unknown: 1,
            ..Tally::default()
        },
        ..DigestReport::default()
    }
}

#[test]
fn a_run_is_summarized_in_one_line_without_zeros() {
    assert_eq!(
        summarize(&report(), &DigestRequest::default(), None),
        "1,234 due, 1,230 sent (8,990 events), 2 failed, 1 unknown, 1 canceled; \
         310 waiting (next due 2014-04-29 09:00), 12 unconfirmed"
    );
    assert_eq!(exit_of_report(&report()), Exit::Partly);
}

#[test]
fn the_json_of_a_report_is_flat() {
    let json = serde_json::to_value(report()).unwrap();
    let mut fields: Vec<&String> = json.as_object().unwrap().keys().collect();
    fields.sort_unstable();
    let expected = "blocked busy due emails ended events expired expired_blocked failed_already held left_over \
        limited mailed_already next_due older pending people \
        tried_again turned_off unmailable unsubscribed waiting withdrawn";
    assert!(fields.into_iter().eq(expected.split(' ')), "{json}");
}

#[test]
fn when_no_digest_is_due_the_line_names_the_next_time_and_the_now_flag() {
    let mut waiting =
        DigestReport { due: DueDigests::default(), emails: Tally::default(), ..report() };
    waiting.users.unmailable.clear();

    assert_eq!(
        summarize(&waiting, &DigestRequest::default(), None),
        "no user is due; 310 waiting (next due 2014-04-29 09:00; --now does not wait)"
    );
    assert_eq!(exit_of_report(&waiting), Exit::Done);
}

#[test]
fn a_dry_run_counts_the_emails() {
    let request = DigestRequest { dry_run: true, ..DigestRequest::default() };
    let counted = DigestReport { emails: Tally::default(), ..report() };

    let line = summarize(&counted, &request, None);

    assert!(
        line.starts_with("1,234 due, would send 1,234 emails (9,000 events); dry run; 310"),
        "{line}"
    );
}

#[test]
fn users_waiting_for_a_brand_are_not_counted_as_emailed() {
    let request = DigestRequest { dry_run: true, ..DigestRequest::default() };
    let line = |no_brand, busy| {
        let mut counted = DigestReport::default();
        (counted.due.users, counted.due.events) = (3, 9);
        (counted.dry_run.waits_for_brand, counted.due.busy) = (no_brand, busy);
        summarize(&counted, &request, None)
    };

    assert_eq!(
        line(1, 0),
        "3 due with 9 events: 2 would be emailed, 1 waits for a brand that is not configured (dry run)"
    );
    assert!(line(2, 1).starts_with(
        "3 due with 9 events: none would be emailed, 2 wait for a brand that is not configured (dry run); 1 "
    ));
}

#[test]
fn a_run_without_any_sent_email_has_failed() {
    let tally = Tally { failed: 3, ..Tally::default() };
    assert_eq!(exit_of_tally(&tally, 0), Exit::Failed);
}

#[test]
fn emails_written_to_the_outbox_are_shown_with_its_path() {
    let line = summarize(&report(), &DigestRequest::default(), Some(Path::new("outbox")));

    assert!(
        line.starts_with("1,234 due, 1,230 sent into outbox (8,990 events), 2 failed"),
        "{line}"
    );
}

#[test]
fn the_backlog_and_expired_events_are_shown_by_users_events_and_day() {
    let pending = |people, events| PendingCounts { users: people, events };
    let day = "20140401".parse().unwrap();
    let report = BacklogReport {
        backlog: pending(1, 12),
        blocked: pending(2, 5),
        expired: BTreeMap::from([(day, pending(3, 40))]),
        expired_blocked: pending(1, 30),
    };

    let lines = backlog_lines(&report);
    assert_eq!(
        lines,
        [
            "late: 1 user had 12 events pending from days before the window; this or their next digest has them",
            "waiting: 5 events from days before the window for 2 users who cannot be emailed now; they expire after digest.max_age",
            "expired: 2014-04-01: 40 events, older than digest.max_age; 30 of them for users who could not be emailed",
        ]
    );
    assert!(backlog_lines(&BacklogReport::default()).is_empty());
}

#[test]
fn failed_users_are_counted_apart_from_emailed_users() {
    let mut report = DigestReport::default();
    report.users.failed_already = 2;
    report.users.next_retry = Some(Utc.with_ymd_and_hms(2014, 4, 21, 11, 0, 0).unwrap());

    let line = summarize(&report, &DigestRequest::default(), None);

    assert!(
        line.ends_with(
            "2 failed this period (tried again from 2014-04-21 11:00; tidings deliveries retry does it now)"
        ),
        "{line}"
    );
}

#[test]
fn an_unusable_path_of_a_page_is_rejected() {
    let folder = tempfile::tempdir().unwrap();

    let missing = check_page(&folder.path().join("no/report.html")).unwrap_err();
    let at_folder = check_page(folder.path()).unwrap_err();

    assert!(missing.to_string().ends_with("/no does not exist"), "{missing}");
    assert!(at_folder.to_string().ends_with(" is a folder"), "{at_folder}");
    assert!(check_page(Path::new("report.html")).is_ok());
}
