//! The words of a rehearsal's report: who is left out and why, what narrowed it down, what should
//! be seen to.
//!
//! The rule: the people are counted whole. Whoever has a stack in the window stands in exactly one
//! line.

use std::collections::BTreeMap;

use crate::domain::Pause;
use crate::domain::user::Unmailable;
use crate::engine::digest::{Request, Timing};
use crate::render::CLIP_BYTES;
use crate::wire::digest::{BatchesAhead, Report};

const NO_BRAND: &str = "Wait for a brand that is not configured";

/// Everybody by what becomes of them: those who are mailed first, then the others, without zeros.
pub(super) fn people(report: &Report, request: &Request) -> Vec<(String, u64)> {
    let line = |label: &str, count| (label.to_owned(), count);
    let users = &report.users;
    let next = users
        .next_due
        .map(|next| next.format(" (next due %-d %B, %H:%M UTC)"));
    let next = next.map_or(String::new(), |next| next.to_string());
    let mut others = vec![
        line(
            "Had this period\u{2019}s mail already",
            users.mailed_already,
        ),
        line("Had a mail this period that failed", users.failed_already),
        line(
            "Have a mail in the ledger that is not settled yet",
            report.due.busy,
        ),
        line(NO_BRAND, report.dry_run.no_brand),
        (format!("Wait for their hour{next}"), users.waiting),
        line(
            "Nothing is left that applies: their mail would be empty",
            users.withdrawn,
        ),
    ];
    let (barred, unsubscribed) = barred(&users.unmailable);
    others.extend(barred);
    let unsubscribed = users.unsubscribed + unsubscribed;
    others.push(line("Unsubscribed", unsubscribed));
    others.push(line("Want no digest", users.turned_off));
    others.push(line("Outside the sample", users.outside_sample));
    let mails = report.emails_ahead();
    if !report.limited {
        let told: u64 = mails + others.iter().map(|(_, count)| count).sum::<u64>();
        let rest = match request.cadence {
            Some(_) => "Nothing new that they want, or another cadence",
            None => "Nothing new that they want",
        };
        others.push(line(rest, users.scanned.saturating_sub(told)));
    }
    others.retain(|(_, count)| *count > 0);
    others.insert(0, line("Would be mailed", mails));
    others
}

/// Who may not be mailed, by reason; apart from those, how many unsubscribed.
fn barred(unmailable: &BTreeMap<&'static str, u64>) -> (Vec<(String, u64)>, u64) {
    let (mut others, mut unsubscribed) = (Vec::new(), 0);
    for (why, count) in unmailable {
        let why = *why;
        if why == Unmailable::Unsubscribed.as_str() {
            unsubscribed += count;
        } else if why == Unmailable::Unknown.as_str() {
            others.push(("Without a record".to_owned(), *count));
        } else {
            others.push((capitalized(why), *count));
        }
    }
    (others, unsubscribed)
}

/// What becomes of batches, those that are mailed first.
pub(super) fn batches(ahead: &BatchesAhead) -> Vec<(String, u64)> {
    let (mut lines, unsubscribed) = barred(&ahead.unmailable);
    let nothing = "Nothing is left that applies and is wanted";
    lines.insert(0, (nothing.to_owned(), ahead.withdrawn));
    lines.insert(0, (NO_BRAND.to_owned(), ahead.no_brand));
    lines.push(("Unsubscribed".to_owned(), unsubscribed));
    lines.retain(|(_, count)| *count > 0);
    lines.insert(0, ("Would be mailed".to_owned(), ahead.mails));
    lines
}

/// When batches that would be mailed close, the soonest first.
pub(super) fn closing(ahead: &BatchesAhead) -> Vec<(String, u64)> {
    let lines = [
        (
            "Closed: in the ledger, or on their way".to_owned(),
            ahead.closing,
        ),
        ("Close by now".to_owned(), ahead.due),
        ("Close later".to_owned(), ahead.later - ahead.held),
        (
            "Close when their person\u{2019}s quiet hours end".to_owned(),
            ahead.held,
        ),
    ];
    lines.into_iter().filter(|(_, count)| *count > 0).collect()
}

fn many(n: u64, one: &str, more: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { more })
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string());
    first.unwrap_or_default() + chars.as_str()
}

/// What narrowed the run down.
pub(super) fn scope(request: &Request) -> Vec<String> {
    [
        request
            .cadence
            .map(|cadence| format!("only {cadence} digests")),
        request
            .users
            .as_ref()
            .map(|users| format!("only {}", many(users.len() as u64, "person", "people"))),
        request.sample.map(|share| format!("a sample of {share}")),
        request
            .limit
            .map(|limit| format!("at most {}", many(limit, "mail", "mails"))),
        (request.timing == Timing::Now)
            .then(|| "without waiting for people\u{2019}s hours".to_owned()),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What should be seen to before anything leaves.
pub(super) fn warnings(
    report: &Report,
    over: u64,
    pause: Option<&Pause>,
    accepted: u64,
) -> Vec<String> {
    let older = report.backlog.older;
    [
        pause.map(|pause| format!("Sending is paused: {}. Nothing leaves until tidings digest --resume.", pause.reason)),
        (accepted > 0).then(|| {
            let (events, are) = if accepted == 1 { ("event", "is") } else { ("events", "are") };
            format!("{accepted} {events} {are} accepted and not fanned out yet, and not counted here. A run fans them out first; so does tidings worker --once.")
        }),
        (!older.is_nothing()).then(|| {
            let people = many(older.people, "person", "people");
            let events = many(older.events, "event", "events");
            format!("{people} wait for {events} of days that have left the window: earlier digests were late or failed. Their next digest includes them.")
        }),
        report.limited.then(|| format!("The limit ended the rehearsal after {} people; all counts are of these.", report.users.scanned)),
        (over > 0).then(|| format!("{over} mails are longer than {CLIP_BYTES} bytes: mail programs hide their end, and with it the link to unsubscribe.")),
    ]
    .into_iter()
    .flatten()
    .collect()
}
