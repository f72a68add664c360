//! `tidings demo`: the whole product in a minute, on an embedded store with a clock of its own.
//!
//! The rule: nothing is staged. Each command that is shown is parsed and run as if it had been
//! typed, and what the story says of the mails is counted in the mails. Only time is turned by
//! hand. [`story`] is what is told, [`stage`] how it is run; the art world it plays in is
//! [`crate::demo`]'s. `serve --demo` begins where the story ends ([`told`]).

mod stage;
mod story;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use clap::Args as Arguments;

use super::exit::{Exit, Usage};
use super::screen::Screen;
use super::time;
use crate::app::App;
use crate::clock::{Clock, Ids, SystemClock};
use crate::demo::Book;
use crate::demo::folder::{self, Earlier, Refused, Served};
use crate::engine::Silent;
use crate::engine::digest::Request;
pub(super) use stage::Run;
use stage::Stage;

/// See the whole story in a minute: load, notify, feed, digest, archive
///
/// Makes a folder with an embedded store, a small invented art world in it, and the mails that
/// three weeks of it come to. The folder's tidings.toml lets every command, and serve, go on from
/// there.
#[derive(Debug, Arguments)]
pub(super) struct Args {
    /// The folder to make; an earlier demo there is replaced
    #[arg(long, value_name = "DIR", default_value = DIR)]
    dir: PathBuf,
    /// Keep an earlier demo, and refuse instead
    #[arg(long)]
    keep: bool,
    /// The moment at which the story ends; now if left out
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    until: Option<DateTime<Utc>>,
}

impl Args {
    pub(super) async fn run(&self, screen: &mut Screen, run: Run) -> anyhow::Result<Exit> {
        let now = self.until.unwrap_or_else(|| SystemClock.now());
        // As a reader would: every file name in the story is one in this folder.
        enter(&self.dir, self.keep, None, "tidings demo")?;
        let mut stage = Stage::open(screen, run, now).await?;
        story::tell(&mut stage, &self.dir).await?;
        Ok(Exit::Done)
    }
}

/// The folder that is made unless another is named.
pub(super) const DIR: &str = "tidings-demo";

/// Makes the folder and goes there; `command` is what is asked to.
fn enter(dir: &Path, keep: bool, served: Option<&Served>, command: &str) -> anyhow::Result<()> {
    let earlier = match keep {
        true => Earlier::Kept,
        false => Earlier::Replaced,
    };
    folder::enter(dir, earlier, served).map_err(|error| {
        let next = match error.downcast_ref() {
            Some(Refused::Foreign(_)) => format!("{command} --dir DIR, with a folder that is new"),
            Some(Refused::Kept(_)) => {
                "leaving out --keep, which replaces it, or another --dir".to_owned()
            }
            None => return error,
        };
        Usage::new(error.to_string()).instead(next).into()
    })
}

/// A demo in this folder whose story is told already, on the machine's own clock; and the book of
/// its mails, which those that leave from now on are noted in as well.
pub(super) async fn told(
    dir: &Path,
    keep: bool,
    served: &Served,
    run: Run,
) -> anyhow::Result<(App, Arc<Book>)> {
    enter(dir, keep, Some(served), "tidings serve --demo")?;
    let mut nowhere = Screen::nowhere();
    let mut stage = Stage::open(&mut nowhere, run, SystemClock.now()).await?;
    story::tell(&mut stage, dir).await?;
    let (config, store, post) = stage.leave();
    let book = Arc::clone(&post.book);
    let (clock, ids) = (Arc::new(SystemClock), Arc::new(Ids::random()));
    let app = App::assemble(config, store, post, clock, ids)?;
    // Whose hour has come by now was left to the reader by the story.
    app.digests().run(&Request::default(), &Silent).await?;
    Ok((app, book))
}
