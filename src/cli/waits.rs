//! Which mails wait, as a command tells of it once its work is done.
//!
//! The rule: the work has been done by then, so that it cannot be found out is told beside it.

use super::exit::{Exit, causes};
use super::words;
use crate::app::App;
use crate::domain::UserId;
use crate::wire::delivery::{Reason, Waiting};

/// What waits, or why that was not found out.
pub(super) struct Waits(Result<Waiting, String>);

impl Default for Waits {
    /// Nothing waits.
    fn default() -> Self {
        Self(Ok(Waiting::default()))
    }
}

impl Waits {
    /// Looks what waits of these people, or of all.
    pub(super) async fn of(app: &App, users: Option<&[UserId]>) -> Self {
        let waiting = app.deliveries().waiting(users).await;
        Self(waiting.map_err(|error| {
            let cause = causes(&error.into());
            format!("which mails wait was not found out: {cause}")
        }))
    }

    /// What was found out.
    pub(super) fn waiting(&self) -> Option<&Waiting> {
        self.0.as_ref().ok()
    }

    /// For people to read.
    pub(super) fn lines(&self) -> Vec<String> {
        match &self.0 {
            Ok(waiting) => waits(waiting),
            Err(failure) => vec![failure.clone()],
        }
    }

    /// How a command ends that ended so but for this: what waits is not mailed, whoever began it.
    pub(super) fn exit(&self, exit: Exit) -> Exit {
        match exit {
            Exit::Done if !self.waiting().is_some_and(Waiting::is_empty) => Exit::Partly,
            exit => exit,
        }
    }
}

/// `3 mails wait: connection refused; tried again from 2014-04-21 09:30`.
pub(super) fn waits(waiting: &Waiting) -> Vec<String> {
    let line = |reason: &Reason| {
        let wait = if reason.mails == 1 { "waits" } else { "wait" };
        let mails = words::count(reason.mails, "mail", "mails");
        let until = reason.until.map(words::minute);
        let then = match (&reason.held_by, until) {
            (Some(owner), Some(until)) => {
                format!("; worker {owner} holds it until {until} UTC at most")
            }
            (None, Some(until)) => format!("; tried again from {until} UTC"),
            (_, None) => "; the next run or a worker takes it up".to_owned(),
        };
        format!("{mails} {wait}: {}{then}", reason.why)
    };
    waiting.reasons.iter().map(line).collect()
}
