//! Fans out accepted events, as a step of `notify`, `import` and `digest`, and reports the result.

use std::io;

use clap::Args;

use super::failure_text::causes;
use super::session::{App, Screen, phrases};
use crate::config::StoreUrl;
use crate::engine::Progress;
use crate::store::LeasesToEnd;
use crate::wire::run_report::FannedOut;

// Whether a command that accepts events also fans them out. On SQLite it does, so that a newcomer
// sees the effect at once. On MongoDB workers do it, so that accepting an event costs the same for
// any number of followers. (clap would show a doc comment as help.)
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct FanOutArgs {
    /// Fan out all pending events before exiting (the default on SQLite)
    #[arg(long, conflicts_with = "no_wait")]
    wait: bool,
    /// Only accept the events; a worker fans them out (the default on MongoDB)
    #[arg(long)]
    no_wait: bool,
}

impl FanOutArgs {
    /// Fans out all pending events. Returns `None` if a worker should do it.
    pub(super) async fn run(self, app: &App, screen: &Screen) -> Option<FanOutResult> {
        let is_default = matches!(app.config.store, StoreUrl::Sqlite(_));
        let is_wanted = self.wait || (is_default && !self.no_wait);
        let bar = is_wanted.then(|| screen.progress_bar("users reached"))?;
        Some(FanOutResult::run(app, &bar).await)
    }
}

/// The result of fanning out. A failure does not end the command. It is reported with the rest, and
/// the exit code is 3.
#[derive(Debug, Default)]
pub(super) struct FanOutResult {
    pub done: FannedOut,
    pub failure: Option<anyhow::Error>,
    /// Accepted events that another process has leased or is fanning out.
    pub unfinished: u64,
}

impl FanOutResult {
    /// Fans out all pending events.
    pub(super) async fn run(app: &App, progress: &dyn Progress) -> Self {
        let mut result = Self::default();
        match app.fanouts().drain(progress).await {
            Ok(done) => result.done = done,
            Err(error) => result.failure = Some(error.into()),
        }
        if result.failure.is_some() || !result.done.bad_fanouts.is_empty() {
            // Other processes can then continue at once. They report the same bad records.
            let (store, owner) = (&app.context.store, &app.context.owner);
            if let Err(error) = store.release(&LeasesToEnd::Fanouts(owner)).await {
                tracing::warn!(%error, "the leases on fan-outs could not be released");
            }
            return result;
        }
        match app.status().not_fanned_out().await {
            Ok(unfinished) => result.unfinished = unfinished,
            Err(error) => tracing::warn!(%error, "pending fan-outs could not be counted"),
        }
        result
    }

    /// Returns the failure and what to do about it, for a note.
    pub(super) fn failure_text(&self) -> Option<String> {
        let failure = causes(self.failure.as_ref()?);
        let next = "a worker or the next run does it";
        Some(format!("events were not fanned out: {failure}; {next}"))
    }

    /// Returns whether all events were fanned out.
    pub(super) fn is_complete(&self) -> bool {
        self.failure.is_none() && self.done.is_complete()
    }

    /// Prints how many events other processes fan out, and the failure. The log names the skipped
    /// fan-outs.
    pub(super) fn show(&self, screen: &mut Screen) -> io::Result<()> {
        let events =
            phrases::nonzero_count(self.unfinished, "accepted event is", "accepted events are");
        let where_shown = "soon in feeds, and in the next digests";
        let unfinished = events.map(|events| {
            format!("{events} leased or being fanned out by a worker: {where_shown}")
        });
        screen.warnings(unfinished.into_iter().chain(self.failure_text()))
    }
}
