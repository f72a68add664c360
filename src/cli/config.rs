//! `tidings config`: what is configured, or what can be.

use clap::Args as Arguments;

use super::exit::Exit;
use super::global::Global;
use super::screen::Screen;
use crate::config::DEFAULTS;

/// Show the configuration that counts, with secrets hidden
///
/// Later wins: the defaults, then tidings.toml, then the environment (TIDINGS_DIGEST_HOUR sets
/// digest.hour), then flags.
#[derive(Debug, Arguments)]
pub(super) struct Args {
    /// Show every option with its default and what it means, fit to begin a tidings.toml with
    #[arg(long)]
    defaults: bool,
}

impl Args {
    pub(super) fn run(&self, global: &Global, screen: &mut Screen) -> anyhow::Result<Exit> {
        if self.defaults {
            screen.text(DEFAULTS)?;
            return Ok(Exit::Done);
        }
        let config = global.load(Vec::new())?;
        let file = global
            .file()
            .map_or("no file".to_owned(), |file| file.display().to_string());
        screen.line(format!(
            "# From the defaults, {file}, the environment and flags."
        ))?;
        screen.text(config.redacted().trim_end())?;
        for warning in &config.warnings {
            screen.warning(warning)?;
        }
        Ok(Exit::Done)
    }
}
