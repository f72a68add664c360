//! What several commands report about their work: fan-outs, emails that still wait, and the backlog
//! of days before the window.
//!
//! The work is done by then, so a failure to fan out or to read the waiting emails does not hide
//! the rest of the result.

use std::collections::BTreeMap;
use std::io;

use chrono::{DateTime, Utc};
use clap::Args;

use super::exit::causes;
use super::session::{App, Screen, phrases};
use crate::config::StoreUrl;
use crate::domain::{Day, PendingCounts, UserId};
use crate::engine::Watcher;
use crate::store::Release;
use crate::wire::delivery::{WaitReason, WaitingEmails};
use crate::wire::run_report::FannedOut;
use crate::wire::run_report::{BacklogReport, Tally};

// Whether a command that accepts events also fans them out. On SQLite it does, so that a newcomer
// sees the effect at once. On MongoDB workers do it, so that accepting an event costs the same for
// any number of followers. (clap would show a doc comment as help.)
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct FanOut {
    /// Fan out all pending events before exiting (the default on SQLite)
    #[arg(long, conflicts_with = "no_wait")]
    wait: bool,
    /// Only accept the events; a worker fans them out (the default on MongoDB)
    #[arg(long)]
    no_wait: bool,
}

impl FanOut {
    pub(super) fn wanted(self, app: &App) -> bool {
        let by_default = matches!(app.config.store, StoreUrl::Sqlite(_));
        self.wait || (by_default && !self.no_wait)
    }
}

/// The result of fanning out. A failure does not end the command. It is reported with the rest, and
/// the exit code is 3.
#[derive(Debug, Default)]
pub(super) struct FanOutEnd {
    pub done: FannedOut,
    pub failure: Option<anyhow::Error>,
    /// Accepted events that another process has leased or is fanning out.
    pub left: u64,
}

impl FanOutEnd {
    /// Fans out all pending events.
    pub(super) async fn all(app: &App, progress: &dyn Watcher) -> Self {
        let (fanouts, mut end) = (app.fanouts(), Self::default());
        match fanouts.drain(progress).await {
            Ok(done) => end.done = done,
            Err(error) => end.failure = Some(error.into()),
        }
        if end.failure.is_some() || !end.done.bad_fanouts.is_empty() {
            // Other processes can then continue at once. They report the same bad records.
            let (store, owner) = (&fanouts.context.store, &fanouts.context.owner);
            if let Err(error) = store.release(&Release::Fanouts(owner)).await {
                tracing::warn!(%error, "what this process was to fan out is not free yet");
            }
            return end;
        }
        match app.status().not_fanned_out().await {
            Ok(left) => end.left = left,
            Err(error) => tracing::warn!(%error, "what others fan out was not found out"),
        }
        end
    }

    /// Describes the failure, if some or all events were not fanned out because of one.
    pub(super) fn failure(&self) -> Option<String> {
        let failure = causes(self.failure.as_ref()?);
        let next = "a worker or the next run does it";
        Some(format!("events were not fanned out: {failure}; {next}"))
    }

    /// Returns whether all events were fanned out.
    pub(super) fn is_whole(&self) -> bool {
        self.failure.is_none() && self.done.is_whole()
    }

    /// Prints how many events other processes fan out, and the failure. The log has the skipped
    /// ones.
    pub(super) fn show(&self, screen: &mut Screen) -> io::Result<()> {
        let left = (self.left > 0).then(|| {
            let events = phrases::count(self.left, "accepted event is", "accepted events are");
            format!(
                "{events} held or being fanned out by a worker: feeds have it soon, and digests \
                 from the next one on"
            )
        });
        screen.warnings(left.into_iter().chain(self.failure()))
    }
}

/// The emails that wait, or why they could not be read.
pub(super) type Waits = Result<WaitingEmails, String>;

/// Reads the waiting emails of these users, or of all. A stopping process skips this read.
pub(super) async fn read_waits(app: &App, users: Option<&[UserId]>, stops: bool) -> Waits {
    if stops {
        return Err("the waiting emails were not read, because the process stops".into());
    }
    app.deliveries().waiting(users).await.map_err(|error| {
        let cause = causes(&error.into());
        format!("the waiting emails could not be read: {cause}")
    })
}

/// Prints why emails were not sent, and which emails wait. Returns whether nothing is left to do.
pub(super) fn show_rest(
    app: &App,
    (tally, fanned_out, waits): (&Tally, &FanOutEnd, &Waits),
    screen: &mut Screen,
) -> io::Result<bool> {
    let listed = waits.as_ref().map_or(&[][..], |waiting| &waiting.reasons);
    let reasons = tally.reasons.iter();
    let reasons = reasons.filter(|(why, _)| !listed.iter().any(|reason| reason.why == *why));
    screen.warnings(reasons.map(|(why, n)| format!("{}: {why}", emails(*n))))?;
    fanned_out.show(screen)?;
    match waits {
        Ok(waiting) => screen.warnings(self::waits(waiting, app.context.clock.now()))?,
        Err(failure) => screen.warning(failure)?,
    }
    Ok(fanned_out.is_whole() && waits.as_ref().is_ok_and(WaitingEmails::is_empty))
}

/// Formats a number of emails.
pub(super) fn emails(n: u64) -> String {
    phrases::count(n, "email", "emails")
}

/// The maximum number of listed reasons.
const LISTED: usize = 10;

/// Returns a line for each reason, such as `5 emails deferred (451 4.7.1 greylisted), next attempt
/// 09:08:14 UTC`.
pub(super) fn waits(waiting: &WaitingEmails, now: DateTime<Utc>) -> Vec<String> {
    let line = |reason: &WaitReason| {
        let emails = emails(reason.emails);
        let until = reason.until.map(|until| phrases::moment(until, now));
        let why = &reason.why;
        match (&reason.held_by, until) {
            (Some(worker), Some(until)) => {
                format!("{emails} held by worker {worker} until {until} at most ({why})")
            }
            (None, Some(until)) => format!("{emails} deferred ({why}), next attempt {until}"),
            (_, None) => format!("{emails} waiting ({why}) for the next run or a worker"),
        }
    };
    let (listed, others) = waiting.reasons.split_at(LISTED.min(waiting.reasons.len()));
    let mut lines: Vec<String> = listed.iter().map(line).collect();
    if !others.is_empty() {
        let others = emails(others.iter().map(|reason| reason.emails).sum());
        lines.push(format!("{others} waiting for other reasons"));
    }
    lines
}

/// Returns lines about the backlog of days before the window, and about events that expired.
pub(super) fn backlog_lines(backlog: &BacklogReport) -> Vec<String> {
    let counts = |of: PendingCounts| (phrases::people(of.people), phrases::events(of.events));
    let mut lines = Vec::new();
    if !backlog.older.is_nothing() {
        let (people, events) = counts(backlog.older);
        lines.push(format!(
            "late: {people} had {events} pending from days before the window; this or their next \
             digest has them"
        ));
    }
    if !backlog.blocked.is_nothing() {
        let (people, events) = counts(backlog.blocked);
        lines.push(format!(
            "waiting: {events} from days before the window for {people} who cannot be emailed now; \
             they expire after digest.max_age"
        ));
    }
    let blocked = backlog.expired_blocked.events;
    lines.extend(expired(&backlog.expired, blocked).map(|what| format!("expired: {what}")));
    lines
}

/// Describes events that expired on these days, and how many of them were blocked: `2014-04-01 to
/// 2014-04-03: 5 events, older than digest.max_age; 2 of them for people who could not be emailed`.
pub(super) fn expired(days: &BTreeMap<Day, PendingCounts>, blocked: u64) -> Option<String> {
    let dates = days.keys().map(|day| day.start().date_naive());
    let (first, last) = (dates.clone().min()?, dates.max()?);
    let range = match first == last {
        true => first.to_string(),
        false => format!("{first} to {last}"),
    };
    let events = phrases::events(days.values().map(|of| of.events).sum());
    let blocked = phrases::some(blocked, "of them for people who could not be emailed");
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
            held_by: held_by.map(str::to_owned),
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

        let lines = waits(&waiting, now);
        waiting.reasons = vec![reason(2, "busy", None, None); LISTED + 2];
        let many = waits(&waiting, now);

        assert_eq!(
            lines,
            [
                "5 emails deferred (451 4.7.1 greylisted), next attempt 09:08:14 UTC",
                "3 emails deferred (452 4.2.2 mailbox full), next attempt 2014-04-22 09:00:00 UTC",
                "1 email held by worker w1 until 09:01:00 UTC at most (being built and sent)",
                "1 email waiting (no worker has claimed it yet) for the next run or a worker",
            ]
        );
        assert_eq!(many.len(), LISTED + 1);
        assert_eq!(many[LISTED], "4 emails waiting for other reasons");
    }
}
