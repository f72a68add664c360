//! `tidings flush`: discards a user's pending events without emailing them.

use clap::Args as Arguments;

use super::exit::Exit;
use super::screen::Screen;
use super::words;
use crate::app::App;
use crate::domain::UserId;
use crate::wire::Flushed;

/// Discard a user's pending events, so that no digest includes them
///
/// Later events are emailed as usual, and the feed still shows all events.
#[derive(Debug, Arguments)]
pub(super) struct Args {
    user: UserId,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) async fn run(&self, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
        let user = &self.user;
        let flushed = app.flush().user(user).await?;
        if self.json {
            screen.json(&Flushed { user, flushed })?;
        } else if flushed == 0 {
            screen.line(format!("nothing is pending for {user}"))?;
        } else {
            let events = words::count(flushed, "event", "events");
            let them = if flushed == 1 { "it" } else { "them" };
            screen.line(format!(
                "flushed {events} pending for {user}: no digest tells of {them}"
            ))?;
        }
        Ok(Exit::Done)
    }
}
