//! What several commands report about unfinished work: emails that still wait, and the backlog of
//! days before the window.
//!
//! The command's own work is done by then, so a failure to read the waiting emails does not hide
//! the rest of the result.

use std::collections::BTreeMap;
use std::io;

use chrono::{DateTime, Utc};

use super::failure_text::causes;
use super::fan_out::FanOutResult;
use super::session::{App, Screen, phrases};
use crate::domain::{Day, PendingCounts, UserId};
use crate::wire::delivery::{WaitReason, WaitingEmails};
use crate::wire::run_report::{BacklogReport, Tally};

/// The emails that wait, or why they could not be read.
pub(super) type WaitingResult = Result<WaitingEmails, String>;

/// Reads the waiting emails of these users, or of all. A stopping process skips this read.
pub(super) async fn read_waiting_emails(
    app: &App,
    users: Option<&[UserId]>,
    is_stopping: bool,
) -> WaitingResult {
    if is_stopping {
        return Err("the waiting emails were not read, because the process stops".into());
    }
    app.deliveries().count_waiting(users).await.map_err(|error| {
        let cause = causes(&error.into());
        format!("the waiting emails could not be read: {cause}")
    })
}

/// Prints why emails were not sent, and which emails wait. Returns whether all work is done.
pub(super) fn show_unfinished(
    app: &App,
    tally: &Tally,
    fanned_out: &FanOutResult,
    waiting: &WaitingResult,
    screen: &mut Screen,
) -> io::Result<bool> {
    let wait_reasons = waiting.as_ref().map_or(&[][..], |waiting| &waiting.reasons);
    for (why, count) in &tally.reasons {
        if !wait_reasons.iter().any(|reason| reason.why == *why) {
            screen.warning(format!("{}: {why}", phrases::emails(*count)))?;
        }
    }
    fanned_out.show(screen)?;
    match waiting {
        Ok(waiting) => screen.warnings(waiting_lines(waiting, app.context.clock.now()))?,
        Err(failure) => screen.warning(failure)?,
    }
    Ok(fanned_out.is_complete() && waiting.as_ref().is_ok_and(WaitingEmails::is_empty))
}

/// The maximum number of listed reasons.
const MAX_REASONS: usize = 10;

/// Returns a line for each reason, such as `5 emails deferred (451 4.7.1 greylisted), next attempt
/// 09:08:14 UTC`.
pub(super) fn waiting_lines(waiting: &WaitingEmails, now: DateTime<Utc>) -> Vec<String> {
    let line = |reason: &WaitReason| {
        let emails = phrases::emails(reason.emails);
        let until = reason.until.map(|until| phrases::second(until, now));
        let why = &reason.why;
        match (&reason.leased_by, until) {
            (Some(worker), Some(until)) => {
                format!("{emails} leased by worker {worker} until {until} at most ({why})")
            }
            (None, Some(until)) => format!("{emails} deferred ({why}), next attempt {until}"),
            (_, None) => format!("{emails} waiting ({why}) for the next run or a worker"),
        }
    };
    let (listed, others) = waiting.reasons.split_at(MAX_REASONS.min(waiting.reasons.len()));
    let mut lines: Vec<String> = listed.iter().map(line).collect();
    if !others.is_empty() {
        let emails = phrases::emails(others.iter().map(|reason| reason.emails).sum());
        lines.push(format!("{emails} waiting for other reasons"));
    }
    lines
}

/// Returns lines about the backlog of days before the window, and about events that expired.
pub(super) fn backlog_lines(backlog: &BacklogReport) -> Vec<String> {
    let nonzero = |counts: PendingCounts| {
        let users_and_events = (phrases::users(counts.users), phrases::events(counts.events));
        (!counts.is_zero()).then_some(users_and_events)
    };
    let late = nonzero(backlog.backlog).map(|(users, events)| {
        let next = "this or their next digest has them";
        format!("late: {users} had {events} pending from days before the window; {next}")
    });
    let waiting = nonzero(backlog.blocked).map(|(users, events)| {
        let who = format!("{users} who cannot be emailed now; they expire after digest.max_age");
        format!("waiting: {events} from days before the window for {who}")
    });
    let expired = expired_events(&backlog.expired, backlog.expired_blocked.events)
        .map(|expired| format!("expired: {expired}"));
    [late, waiting, expired].into_iter().flatten().collect()
}

/// Describes events that expired on these days, and how many of them were blocked: `2014-04-01 to
/// 2014-04-03: 5 events, older than digest.max_age; 2 of them for users who could not be emailed`.
pub(super) fn expired_events(days: &BTreeMap<Day, PendingCounts>, blocked: u64) -> Option<String> {
    let dates = days.keys().map(|day| day.start().date_naive());
    let (first, last) = (dates.clone().min()?, dates.max()?);
    let range = if first == last { first.to_string() } else { format!("{first} to {last}") };
    let events = phrases::events(days.values().map(|counts| counts.events).sum());
    let blocked = phrases::nonzero(blocked, "of them for users who could not be emailed");
    let expired = format!("{range}: {events}, older than digest.max_age");
    Some(phrases::clauses([expired, blocked.unwrap_or_default()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_line_with_its_count_and_the_next_attempt() {
        let now: DateTime<Utc> = "2014-04-21T09:00:00Z".parse().unwrap();
        let reason = |emails, why: &str, seconds: Option<i64>, held_by: Option<&str>| WaitReason {
            why: why.to_owned(),
            emails,
            until: seconds.map(|seconds| now + chrono::TimeDelta::seconds(seconds)),
            leased_by: held_by.map(str::to_owned),
        };
        let mut waiting = WaitingEmails {
            emails: 10,
            reasons: vec![
                reason(5, "451 4.7.1 greylisted", Some(494), None),
                reason(3, "452 4.2.2 mailbox full", Some(86_400), None),
                reason(1, "being built and sent", Some(60), Some("w1")),
                reason(1, "no worker has claimed it yet", None, None),
            ],
        };

        let lines = waiting_lines(&waiting, now);
        waiting.reasons = vec![reason(2, "busy", None, None); MAX_REASONS + 2];
        let many = waiting_lines(&waiting, now);

        assert_eq!(
            lines,
            [
                "5 emails deferred (451 4.7.1 greylisted), next attempt 09:08:14 UTC",
                "3 emails deferred (452 4.2.2 mailbox full), next attempt 2014-04-22 09:00:00 UTC",
                "1 email leased by worker w1 until 09:01:00 UTC at most (being built and sent)",
                "1 email waiting (no worker has claimed it yet) for the next run or a worker",
            ]
        );
        assert_eq!(many.len(), MAX_REASONS + 1);
        assert_eq!(many[MAX_REASONS], "4 emails waiting for other reasons");
    }
}
