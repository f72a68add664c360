//! The lines of a dry run's page: the users by outcome, and the warnings.
//!
//! Every user with an event in the window is in exactly one line.

use std::collections::BTreeMap;

use crate::domain::Pause;
use crate::domain::user::Unmailable;
use crate::engine::digest::{Request, Timing};
use crate::render::CLIP_BYTES;
use crate::render::report::Line;
use crate::wire::digest::{BatchesAhead, Report};

const MAILED: &str = "Would get an email";
const NO_BRAND: &str = "Wait for a brand that is not configured";
const UNSUBSCRIBED: &str = "Unsubscribed";

/// Counts the users by outcome: first those who get an email, then the others, without zeros.
pub(super) fn people(report: &Report, request: &Request) -> Vec<Line> {
    let users = &report.users;
    let next = users
        .next_due
        .map(|next| next.format(" (next due %-d %B, %H:%M UTC)").to_string());
    let waiting = format!("Wait for their hour{}", next.unwrap_or_default());
    let (barred, unsubscribed) = barred(&users.unmailable);
    let mailed = report.emails_ahead();
    let mut lines = vec![
        line("Got the email of this period", users.mailed_already),
        line("Their email of this period failed", users.failed_already),
        line("Have an email that is not settled yet", report.due.busy),
        line(NO_BRAND, report.dry_run.no_brand),
        line(&waiting, users.waiting),
        line("No event applies any more", users.withdrawn),
    ];
    lines.extend(barred);
    lines.push(line(UNSUBSCRIBED, users.unsubscribed + unsubscribed));
    lines.push(line("Want no digest", users.turned_off));
    lines.push(line("Outside the sample", users.outside_sample));
    if !report.limited {
        let counted: u64 = mailed + lines.iter().map(|line| line.count).sum::<u64>();
        let rest = match request.cadence {
            Some(_) => "Nothing new that they want, or another cadence",
            None => "Nothing new that they want",
        };
        lines.push(line(rest, users.scanned.saturating_sub(counted)));
    }
    without_zeros(mailed, lines)
}

/// Counts the emails of batches: first those that would be sent and when their batches close, then
/// the others, without zeros.
pub(super) fn batches(ahead: &BatchesAhead) -> Vec<Line> {
    let (barred, unsubscribed) = barred(&ahead.unmailable);
    let mut lines = vec![
        line("of these, from batches that have closed", ahead.closing),
        line("of these, from batches that are due", ahead.due),
        line(
            "of these, from batches that close later",
            ahead.later - ahead.held,
        ),
        line("of these, deferred by quiet hours", ahead.held),
        line(NO_BRAND, ahead.no_brand),
        line("No event applies and is wanted", ahead.withdrawn),
    ];
    lines.extend(barred);
    lines.push(line(UNSUBSCRIBED, unsubscribed));
    without_zeros(ahead.mails, lines)
}

fn line(label: &str, count: u64) -> Line {
    Line {
        label: label.to_owned(),
        count,
    }
}

fn without_zeros(mailed: u64, mut lines: Vec<Line>) -> Vec<Line> {
    lines.retain(|line| line.count > 0);
    lines.insert(0, line(MAILED, mailed));
    lines
}

/// Counts the users who may not be emailed, by reason; and separately those who unsubscribed.
fn barred(unmailable: &BTreeMap<&'static str, u64>) -> (Vec<Line>, u64) {
    let (mut lines, mut unsubscribed) = (Vec::new(), 0);
    for (why, count) in unmailable {
        if *why == Unmailable::Unsubscribed.as_str() {
            unsubscribed += count;
        } else if *why == Unmailable::Unknown.as_str() {
            lines.push(line("Without a record", *count));
        } else {
            let (first, rest) = why.split_at(1);
            lines.push(line(&format!("{}{rest}", first.to_uppercase()), *count));
        }
    }
    (lines, unsubscribed)
}

/// Describes how the request narrows the run.
pub(super) fn scope(request: &Request) -> Vec<String> {
    let users = request.users.as_ref();
    let parts = [
        request
            .cadence
            .map(|cadence| format!("only {cadence} digests")),
        users.map(|users| format!("only {}", count(users.len() as u64, "user"))),
        request.sample.map(|share| format!("a sample of {share}")),
        request
            .limit
            .map(|limit| format!("at most {}", count(limit, "email"))),
        (request.timing == Timing::Now).then(|| "without waiting for users\u{2019} hours".into()),
    ];
    parts.into_iter().flatten().collect()
}

/// Lists the problems to fix before sending.
pub(super) fn warnings(
    report: &Report,
    over: u64,
    pause: Option<&Pause>,
    pending: u64,
) -> Vec<String> {
    let parts = [
        pause.map(|pause| {
            format!(
                "Sending is paused: {}. Nothing leaves until tidings digest --resume.",
                pause.reason
            )
        }),
        (pending > 0).then(|| {
            format!(
                "Accepted and not fanned out yet: {}, not counted here. A run fans them out first; \
                 so does tidings worker --once.",
                count(pending, "event")
            )
        }),
        (!report.backlog.older.is_nothing()).then(|| {
            format!(
                "Earlier digests were late or failed: {} of {} are from days that have left the \
                 window. The next digests include them.",
                count(report.backlog.older.events, "event"),
                count(report.backlog.older.people, "user")
            )
        }),
        report.limited.then(|| {
            format!(
                "The limit ended the dry run after {}; all counts are of these.",
                count(report.users.scanned, "user")
            )
        }),
        (over > 0).then(|| {
            format!(
                "Longer than {CLIP_BYTES} bytes: {}. Mail programs hide their end, and with it the \
                 link to unsubscribe.",
                count(over, "email")
            )
        }),
    ];
    parts.into_iter().flatten().collect()
}

fn count(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}
