//! Whether a command that accepts events also carries them out.
//!
//! The rule: on one machine (SQLite) it does, so that a newcomer sees at once what an event came to. On MongoDB there are workers for that,
//! and accepting stays as cheap for a million followers as for one.

use clap::Args;

use crate::app::App;
use crate::config::StoreUrl;

#[derive(Debug, Clone, Copy, Args)]
pub struct Carry {
    /// Carry out all that is pending before ending; on SQLite this is what happens anyway
    #[arg(long, conflicts_with = "no_wait")]
    wait: bool,
    /// Only accept, and leave the rest to a worker; on MongoDB this is what happens anyway
    #[arg(long)]
    no_wait: bool,
}

impl Carry {
    pub fn wanted(self, app: &App) -> bool {
        match (self.wait, self.no_wait) {
            (true, _) => true,
            (_, true) => false,
            _ => matches!(app.config.store, StoreUrl::Sqlite(_)),
        }
    }
}
