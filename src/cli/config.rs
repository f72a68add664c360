//! `tidings config`: shows the effective configuration, or every option with its default.

use clap::Args as Arguments;

use super::session::{Exit, Session};
use crate::config::DEFAULTS;

/// Show the effective configuration, secrets redacted
///
/// Later sources override earlier ones: the defaults, tidings.toml, the environment
/// (TIDINGS_DIGEST_HOUR sets digest.hour), flags.
#[derive(Debug, Arguments)]
pub(super) struct Args {
    /// Show every option with its default and description, as a start for a tidings.toml
    #[arg(long)]
    defaults: bool,
}

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        if self.defaults {
            session.screen.text(DEFAULTS)?;
            return Ok(Exit::Done);
        }
        let config = session.load()?;
        let path = session.file().map(|path| path.display().to_string());
        let file = path.as_deref().unwrap_or("no file");
        let screen = &mut session.screen;
        screen.line(format!("# From the defaults, {file}, the environment and flags."))?;
        screen.text(config.redacted.trim_end())?;
        screen.warnings(&config.warnings)?;
        Ok(Exit::Done)
    }
}
