//! The emails that still wait when a command ends.
//!
//! The command's work is done by then, so a failure to read them is a note beside its result.

use chrono::{DateTime, Utc};

use super::exit::{Exit, causes};
use super::passed_over::bad_stacks;
use super::screen::Screen;
use super::words;
use crate::app::App;
use crate::domain::UserId;
use crate::wire::delivery::{WaitReason, Waiting};
use crate::wire::digest::Tally;

/// The emails that wait, or why they could not be read.
pub(super) struct Waits {
    waiting: Result<Waiting, String>,
    now: DateTime<Utc>,
}

impl Waits {
    /// Creates a value without emails.
    pub(super) fn none(app: &App) -> Self {
        let (waiting, now) = (Ok(Waiting::default()), app.context.clock.now());
        Self { waiting, now }
    }

    /// Reads the waiting emails of these users, or of all.
    pub(super) async fn of(app: &App, users: Option<&[UserId]>) -> Self {
        let waiting = app.deliveries().waiting(users).await.map_err(|error| {
            let cause = causes(&error.into());
            format!("the waiting emails could not be read: {cause}")
        });
        let now = app.context.clock.now();
        Self { waiting, now }
    }

    /// Returns the emails, if they could be read.
    pub(super) fn waiting(&self) -> Option<&Waiting> {
        self.waiting.as_ref().ok()
    }

    /// Returns a line for each reason.
    pub(super) fn lines(&self) -> Vec<String> {
        match &self.waiting {
            Ok(waiting) => waits(waiting, self.now),
            Err(failure) => vec![failure.clone()],
        }
    }

    /// Prints why other emails were not sent, and which stacks were skipped.
    pub(super) fn show_others(&self, mails: &Tally, screen: &mut Screen) -> std::io::Result<()> {
        let waiting = |why: &str| {
            let reasons = self.waiting().map(|waiting| &waiting.reasons);
            let mut reasons = reasons.into_iter().flatten();
            reasons.any(|reason| reason.why == why)
        };
        for (why, times) in mails.reasons.iter().filter(|(why, _)| !waiting(why)) {
            let emails = words::count(*times, "email", "emails");
            screen.warning(format!("{emails}: {why}"))?;
        }
        bad_stacks(&mails.bad_stacks, screen)
    }

    /// Returns the exit code of a command that would end with `exit` if no email waited.
    pub(super) fn exit(&self, exit: Exit) -> Exit {
        match exit {
            Exit::Done if !self.waiting().is_some_and(Waiting::is_empty) => Exit::Partly,
            exit => exit,
        }
    }
}

/// The maximum number of listed reasons.
const LISTED: usize = 10;

/// Returns a line for each reason, such as `5 emails deferred (451 4.7.1 greylisted), next attempt
/// 09:08:14 UTC`.
pub(super) fn waits(waiting: &Waiting, now: DateTime<Utc>) -> Vec<String> {
    let line = |reason: &WaitReason| {
        let emails = words::count(reason.mails, "email", "emails");
        let until = reason.until.map(|until| words::moment(until, now));
        let why = &reason.why;
        match (&reason.held_by, until) {
            (Some(worker), Some(until)) => {
                format!("{emails} held by worker {worker} until {until} at most ({why})")
            }
            (None, Some(until)) => format!("{emails} deferred ({why}), next attempt {until}"),
            (_, None) => format!("{emails} waiting ({why}) for the next run or a worker"),
        }
    };
    let mut lines: Vec<String> = waiting.reasons.iter().take(LISTED).map(line).collect();
    let rest = waiting
        .reasons
        .iter()
        .skip(LISTED)
        .map(|reason| reason.mails);
    let rest = words::count(rest.sum(), "email", "emails");
    if waiting.reasons.len() > LISTED {
        lines.push(format!("{rest} waiting for other reasons"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_line_with_its_count_and_the_next_attempt() {
        let now: DateTime<Utc> = "2014-04-21T09:00:00Z".parse().unwrap();
        let reason = |mails, why: &str, seconds: Option<i64>, held_by: Option<&str>| WaitReason {
            why: why.to_owned(),
            mails,
            until: seconds.map(|seconds| now + chrono::TimeDelta::seconds(seconds)),
            held_by: held_by.map(str::to_owned),
        };
        let mut waiting = Waiting {
            mails: 10,
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
