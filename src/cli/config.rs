//! `tidings config`: prints the effective configuration, or all options with their defaults.

use clap::Args as Arguments;

use super::exit::Exit;
use super::global::Global;
use super::screen::Screen;
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
