//! Whether a command that accepts events also fans them out.
//!
//! The rule: on one machine (SQLite) it does, so that a newcomer sees at once what an event came
//! to. On MongoDB there are workers for that, and accepting stays as cheap for a million followers
//! as for one. What was done before, and what can be done beside it, is told whatever became of
//! fanning out ([`FanOutEnd`]).

use clap::Args;

use super::exit::{Exit, causes};
use super::passed_over::{bad_stacks, passed_over};
use super::screen::Screen;
use super::words;
use crate::app::App;
use crate::config::StoreUrl;
use crate::engine::Watcher;
use crate::wire::round::FannedOut;

#[derive(Debug, Clone, Copy, Args)]
pub(super) struct FanOut {
    /// Fan out all that is pending before ending; on SQLite this is what happens anyway
    #[arg(long, conflicts_with = "no_wait")]
    wait: bool,
    /// Only accept, and leave the rest to a worker; on MongoDB this is what happens anyway
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

/// What fanning out came to. Its failure ends no command: that is told beside the rest, and is 3.
#[derive(Debug, Default)]
pub(super) struct FanOutEnd {
    pub done: FannedOut,
    failure: Option<anyhow::Error>,
    /// Accepted events that another process holds or is fanning out.
    left: u64,
}

impl FanOutEnd {
    /// Fans out all that is pending.
    pub(super) async fn all(app: &App, progress: &dyn Watcher) -> Self {
        let fanouts = app.fanouts();
        let (done, failure) = match fanouts.drain(progress).await {
            Ok(done) => (done, None),
            Err(error) => (FannedOut::default(), Some(error.into())),
        };
        let mut fanned_out = Self::of(done, failure);
        if failing(&fanned_out) {
            // Whoever comes next goes on at once, and is told of the same records.
            let released = fanouts
                .context
                .store
                .release_fanouts(&fanouts.context.owner)
                .await;
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

    /// The same with what a worker did, and why it could not.
    pub(super) fn of(done: FannedOut, failure: Option<anyhow::Error>) -> Self {
        Self {
            done,
            failure,
            left: 0,
        }
    }

    /// Why nothing, or not all, was fanned out.
    pub(super) fn failure(&self) -> Option<String> {
        let failure = self.failure.as_ref()?;
        Some(format!(
            "events were not fanned out: {}; a worker or the next run does it",
            causes(failure)
        ))
    }

    /// How a command ends that ended so but for this.
    pub(super) fn exit(&self, exit: Exit) -> Exit {
        match exit {
            Exit::Done if self.failure.is_some() || !self.done.is_whole() => Exit::Partly,
            exit => exit,
        }
    }

    /// Names what was passed over, and says what failed.
    pub(super) fn tell(&self, screen: &mut Screen) -> std::io::Result<()> {
        bad_stacks(&self.done.bad_stacks, screen)?;
        self.tell_of_fanouts(screen)
    }

    /// The same without the documents of people.
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
