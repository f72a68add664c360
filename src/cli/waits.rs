//! Which mails wait, as a command tells of it once its work is done.
//!
//! The rule: the work has been done by then, so that it cannot be found out is told beside it.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::exit::{Exit, causes};
use super::passed_over::bad_stacks;
use super::progress::Bar;
use super::screen::Screen;
use super::table::cut;
use super::words;
use crate::app::App;
use crate::domain::UserId;
use crate::wire::delivery::{Reason, Waiting};
use crate::wire::digest::Tally;

/// How often a terminal shows anew which emails wait.
const SHOWN_EVERY: Duration = Duration::from_secs(2);
/// How much of a reason it shows, so that the next attempt has room beside it.
const SHOWN_COLUMNS: usize = 30;

/// What waits, or why that was not found out.
pub(super) struct Waits {
    waiting: Result<Waiting, String>,
    now: DateTime<Utc>,
}

impl Waits {
    /// Nothing waits.
    pub(super) fn none(app: &App) -> Self {
        let (waiting, now) = (Ok(Waiting::default()), app.context.clock.now());
        Self { waiting, now }
    }

    /// Looks what waits of these people, or of all.
    pub(super) async fn of(app: &App, users: Option<&[UserId]>) -> Self {
        let waiting = app.deliveries().waiting(users).await.map_err(|error| {
            let cause = causes(&error.into());
            format!("which mails wait was not found out: {cause}")
        });
        let now = app.context.clock.now();
        Self { waiting, now }
    }

    /// Does the work, and shows below its bar on a terminal which emails wait meanwhile.
    pub(super) async fn beside<T>(
        app: &App,
        users: Option<&[UserId]>,
        bar: &Bar,
        work: impl Future<Output = T>,
    ) -> T {
        if !bar.is_visible() {
            return work.await;
        }
        let show = async {
            loop {
                tokio::time::sleep(SHOWN_EVERY).await;
                let mut shown = Self::of(app, users).await;
                for reason in shown.waiting.iter_mut().flat_map(|all| &mut all.reasons) {
                    reason.why = cut(&reason.why, SHOWN_COLUMNS);
                }
                bar.below(&shown.lines().join("; "));
            }
        };
        tokio::select! {
            done = work => done,
            never = show => never,
        }
    }

    /// What was found out.
    pub(super) fn waiting(&self) -> Option<&Waiting> {
        self.waiting.as_ref().ok()
    }

    /// For people to read.
    pub(super) fn lines(&self) -> Vec<String> {
        match &self.waiting {
            Ok(waiting) => waits(waiting, self.now),
            Err(failure) => vec![failure.clone()],
        }
    }

    /// Shows why other emails did not leave, and which stacks were passed over.
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

    /// How a command ends that ended so but for this: what waits is not mailed, whoever began it.
    pub(super) fn exit(&self, exit: Exit) -> Exit {
        match exit {
            Exit::Done if !self.waiting().is_some_and(Waiting::is_empty) => Exit::Partly,
            exit => exit,
        }
    }
}

/// How many reasons are listed.
const LISTED: usize = 10;

/// `5 emails deferred (451 4.7.1 greylisted), next attempt 09:08:14 UTC`, a line for each reason.
pub(super) fn waits(waiting: &Waiting, now: DateTime<Utc>) -> Vec<String> {
    let line = |reason: &Reason| {
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
    fn each_reason_has_a_line_with_its_number_and_the_next_attempt() {
        let now: DateTime<Utc> = "2014-04-21T09:00:00Z".parse().unwrap();
        let reason = |mails, why: &str, seconds: Option<i64>, held_by: Option<&str>| Reason {
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
