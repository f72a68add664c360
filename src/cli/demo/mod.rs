//! `tidings demo`: a short story of real commands, in a new folder with its own store.
//!
//! [`story`] parses and runs each command as if it had been typed. `serve --demo` tells the same
//! story unseen and then serves the folder ([`tell_unseen`]).

mod story;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args as Arguments;

use super::exit::{Exit, Usage};
use super::screen::Screen;
use crate::app::App;
use crate::clock::{Clock, Ids, SystemClock};
use crate::demo::folder::{self, Foreign, Served};
use crate::engine::delivery::identity::outbox;
pub(super) use story::Run;

/// See the whole story in a minute: import, notify, feed, digest, batch
///
/// Makes a folder with a small invented gallery in an SQLite store, and runs the commands that it
/// shows. The folder's tidings.toml lets every command, and serve, go on from there.
#[derive(Debug, Arguments)]
pub(super) struct Args {
    /// The folder to make; an earlier demo there is replaced
    #[arg(long, value_name = "DIR", default_value = DIR)]
    dir: PathBuf,
}

impl Args {
    pub(super) async fn run(&self, screen: &mut Screen, run: Run) -> anyhow::Result<Exit> {
        enter(&self.dir, None, "tidings demo")?;
        story::tell(screen, run, &self.dir, SystemClock.now()).await?;
        Ok(Exit::Done)
    }
}

/// The default folder.
pub(super) const DIR: &str = "tidings-demo";

/// Makes the folder and changes to it, as every path in the story is relative to it.
fn enter(dir: &Path, served: Option<&Served>, command: &str) -> anyhow::Result<()> {
    folder::enter(dir, served).map_err(|error| match error.is::<Foreign>() {
        true => Usage::new(error.to_string())
            .instead(format!("{command} --dir DIR, with a new folder"))
            .into(),
        false => error,
    })
}

/// Makes a demo in this folder and returns its app, which runs on the machine's clock.
pub(super) async fn tell_unseen(dir: &Path, served: &Served, run: Run) -> anyhow::Result<App> {
    enter(dir, Some(served), "tidings serve --demo")?;
    let told = story::tell(&mut Screen::nowhere(), run, dir, SystemClock.now()).await?;
    let config = told.config.as_ref().clone();
    let mailer = Arc::new(outbox(&config));
    let (store, ids) = (told.context.store.clone(), Arc::new(Ids::random()));
    Ok(App::assemble(
        config,
        store,
        mailer,
        Arc::new(SystemClock),
        ids,
    )?)
}
