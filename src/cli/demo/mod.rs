//! `tidings demo`: the whole product in a minute, on an embedded store with a clock of its own.
//!
//! The rule: nothing is staged. Each command that is shown is parsed and run as if it had been
//! typed, and what the story says of the mails is counted in the mails. Only time is turned by
//! hand. [`story`] is what is told, [`stage`] how it is run, [`post`] who takes the mails.

mod post;
mod stage;
mod story;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use chrono::{DateTime, Utc};
use clap::Args as Arguments;

use super::exit::{Exit, Usage};
use super::screen::Screen;
use super::time;
use crate::clock::{Clock, SystemClock};
use crate::private;
use stage::Stage;

/// See the whole story in a minute: load, notify, feed, digest, archive
///
/// Makes a folder with an embedded store, a small invented art world in it, and the mails that
/// three weeks of it come to. The folder's tidings.toml lets every command, and serve, go on from
/// there.
#[derive(Debug, Arguments)]
pub(super) struct Args {
    /// The folder to make; an earlier demo there is replaced
    #[arg(long, value_name = "DIR", default_value = "tidings-demo")]
    dir: PathBuf,
    /// Keep an earlier demo, and refuse instead
    #[arg(long)]
    keep: bool,
    /// The moment at which the story ends; now if left out
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    until: Option<DateTime<Utc>>,
}

/// What the folder holds from the beginning.
const FILES: [(&str, &str); 6] = [
    (CONFIG, include_str!("data/tidings.toml")),
    ("people.ndjson", include_str!("data/people.ndjson")),
    ("follows.ndjson", include_str!("data/follows.ndjson")),
    ("works.ndjson", include_str!("data/works.ndjson")),
    ("shows.ndjson", include_str!("data/shows.ndjson")),
    ("withdrawn.ndjson", include_str!("data/withdrawn.ndjson")),
];
const CONFIG: &str = "tidings.toml";
/// By its first line the configuration of a demo is known.
const MARK: &str = "# Made by `tidings demo`.";
/// What the story adds.
const MADE: [&str; 5] = [
    "tidings.db",
    "tidings.db-wal",
    "tidings.db-shm",
    "outbox",
    "archive",
];

impl Args {
    pub(super) async fn run(&self, screen: &mut Screen) -> anyhow::Result<Exit> {
        let now = self.until.unwrap_or_else(|| SystemClock.now());
        self.clear()?;
        let dir = self.dir.display();
        private::folder(&self.dir).with_context(|| format!("making the folder {dir}"))?;
        // As a reader would: every file name in the story is one in this folder.
        std::env::set_current_dir(&self.dir).with_context(|| format!("going to {dir}"))?;
        for (name, text) in FILES {
            private::write(name, text).with_context(|| format!("writing {dir}/{name}"))?;
        }
        let mut stage = Stage::open(screen, now).await?;
        story::tell(&mut stage, &self.dir).await?;
        Ok(Exit::Done)
    }

    /// Makes room: refuses a folder that holds anything else, and takes away what an earlier demo
    /// made.
    fn clear(&self) -> anyhow::Result<()> {
        let dir = self.dir.display();
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error).with_context(|| format!("looking into {dir}")),
        };
        if entries.count() == 0 {
            return Ok(());
        }
        if !is_demo(&self.dir) {
            return Err(
                Usage::new(format!("{dir} is not empty, and no earlier demo"))
                    .instead("tidings demo --dir DIR, with a folder that is new")
                    .into(),
            );
        }
        if self.keep {
            return Err(Usage::new(format!("{dir} holds an earlier demo"))
                .instead("leaving out --keep, which replaces it, or another --dir")
                .into());
        }
        let names = FILES.iter().map(|(name, _)| *name).chain(MADE);
        for path in names.map(|name| self.dir.join(name)) {
            let removed = if path.is_dir() {
                fs::remove_dir_all(&path)
            } else if path.exists() {
                fs::remove_file(&path)
            } else {
                Ok(())
            };
            removed.with_context(|| format!("removing {}", path.display()))?;
        }
        Ok(())
    }
}

fn is_demo(dir: &Path) -> bool {
    fs::read_to_string(dir.join(CONFIG)).is_ok_and(|text| text.starts_with(MARK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demo_knows_its_own_configuration() {
        assert!(FILES[0].1.starts_with(MARK));
        let config = crate::config::Config::parse(FILES[0].1).unwrap();
        assert_eq!(config.site.name, "Kiosk");
    }
}
