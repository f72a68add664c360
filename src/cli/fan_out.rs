//! Decides whether a command that accepts events also fans them out, and reports the result.
//!
//! On SQLite it does, so that a newcomer sees the effect at once. On MongoDB workers do it, so that
//! accepting an event costs the same for any number of followers. A failed fan-out does not hide
//! the rest of the result ([`FanOutEnd`]).

use clap::Args;

use super::exit::{Exit, causes};
use super::passed_over::{bad_stacks, passed_over};
use super::screen::Screen;
use super::words;
use crate::app::App;
use crate::config::StoreUrl;
use crate::engine::Watcher;
use crate::wire::digest::FannedOut;

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
        match (self.wait, self.no_wait) {
            (true, _) => true,
            (_, true) => false,
            _ => matches!(app.config.store, StoreUrl::Sqlite(_)),
        }
    }
}

/// The result of fanning out. A failure does not end the command. It is reported with the rest, and
/// the exit code is 3.
#[derive(Debug, Default)]
pub(super) struct FanOutEnd {
    pub done: FannedOut,
    failure: Option<anyhow::Error>,
    /// Accepted events that another process has leased or is fanning out.
    left: u64,
}

impl FanOutEnd {
    /// Fans out all pending events.
    pub(super) async fn all(app: &App, progress: &dyn Watcher) -> Self {
        let fanouts = app.fanouts();
        let (done, failure) = match fanouts.drain(progress).await {
            Ok(done) => (done, None),
            Err(error) => (FannedOut::default(), Some(error.into())),
        };
        let mut fanned_out = Self::of(done, failure);
        if failing(&fanned_out) {
            // Other processes can then continue at once. They report the same bad records.
            let (store, owner) = (&fanouts.context.store, &fanouts.context.owner);
            let released = store.release_fanouts(owner).await;
            if let Err(error) = released {
                tracing::warn!(%error, "what this process was to fan out is not free yet");
            }
        } else {
            match app.status().not_fanned_out().await {
                Ok(left) => fanned_out.left = left,
                Err(error) => tracing::warn!(%error, "what others fan out was not found out"),
            }
        }
        fanned_out
    }

    /// Creates the result of a worker's round, with its failure if it had one.
    pub(super) fn of(done: FannedOut, failure: Option<anyhow::Error>) -> Self {
        Self {
            done,
            failure,
            left: 0,
        }
    }

    /// Describes the failure, if some or all events were not fanned out because of one.
    pub(super) fn failure(&self) -> Option<String> {
        let failure = self.failure.as_ref()?;
        Some(format!(
            "events were not fanned out: {}; a worker or the next run does it",
            causes(failure)
        ))
    }

    /// Returns the exit code of a command that otherwise ends with `exit`.
    pub(super) fn exit(&self, exit: Exit) -> Exit {
        match exit {
            Exit::Done if self.failure.is_some() || !self.done.is_whole() => Exit::Partly,
            exit => exit,
        }
    }

    /// Prints the skipped records and the failure.
    pub(super) fn tell(&self, screen: &mut Screen) -> std::io::Result<()> {
        bad_stacks(&self.done.bad_stacks, screen)?;
        self.tell_of_fanouts(screen)
    }

    /// Does the same as [`Self::tell`], but omits the users' documents.
    pub(super) fn tell_of_fanouts(&self, screen: &mut Screen) -> std::io::Result<()> {
        passed_over(&self.done.bad_fanouts, "fan-outs", screen)?;
        if self.left > 0 {
            let events = words::count(self.left, "accepted event is", "accepted events are");
            screen.warning(format!(
                "{events} held or being fanned out by a worker: feeds have it soon, and digests from the next one on"
            ))?;
        }
        match self.failure() {
            Some(failure) => screen.warning(failure),
            None => Ok(()),
        }
    }
}

fn failing(fanned_out: &FanOutEnd) -> bool {
    fanned_out.failure.is_some() || !fanned_out.done.bad_fanouts.is_empty()
}
