//! The flags of every command, loading the configuration with them, and `tidings config`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::exit::{Exit, Usage};
use super::screen::Screen;
use crate::config::{Config, DEFAULTS, Problems, Sources};
use crate::email::Provider;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "For every command")]
pub(super) struct Global {
    /// Configuration file [default: tidings.toml in this folder, if there is one]
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "TIDINGS_CONFIG",
        hide_env_values = true
    )]
    config: Option<PathBuf>,
    /// Store to use: sqlite:PATH, or mongodb://HOST/DATABASE
    #[arg(long, global = true, value_name = "URL")]
    store: Option<String>,
    /// Log level on standard error [default: info for serve and worker, otherwise warn]
    #[arg(
        long,
        global = true,
        value_name = "LEVEL",
        env = "TIDINGS_LOG",
        hide_env_values = true
    )]
    log: Option<Level>,
}

/// A log level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// The default configuration file.
const FILE: &str = "tidings.toml";

impl Global {
    /// Returns the log level of `--log` or `TIDINGS_LOG`, or the command's default.
    pub(super) fn level(&self, usual: Level) -> Level {
        self.log.unwrap_or(usual)
    }

    /// Returns the file of `--config` or `TIDINGS_CONFIG`, or the default file if it exists.
    pub(super) fn file(&self) -> Option<PathBuf> {
        self.config
            .clone()
            .or_else(|| Path::new(FILE).exists().then(|| FILE.into()))
    }

    /// Returns an error if there is a `--store`, for commands that cannot use it.
    pub(super) fn refuse_store(&self, why: &str) -> Result<(), Usage> {
        match self.store {
            Some(_) => Err(Usage::new(why).instead("leaving out --store")),
            None => Ok(()),
        }
    }

    /// Loads the configuration from all its sources. `options` are those that the command's own
    /// flags set.
    pub(super) fn load(&self, options: Vec<(String, String)>) -> Result<Config, Problems> {
        let mut flags = options;
        flags.extend(self.store.clone().map(|store| ("store".to_owned(), store)));
        Config::load(&Sources {
            file: self.file(),
            environment: std::env::vars_os()
                .filter_map(|(name, value)| {
                    let name = name.into_string().ok()?;
                    Some((name, value.to_string_lossy().into_owned()))
                })
                .filter(|(name, _)| name.starts_with("TIDINGS_") || Provider::reads(name))
                .collect(),
            flags,
        })
    }
}

/// Show the effective configuration, secrets redacted
///
/// Later sources override earlier ones: the defaults, tidings.toml, the environment
/// (TIDINGS_DIGEST_HOUR sets digest.hour), flags.
#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    /// Show every option with its default and description, as a start for a tidings.toml
    #[arg(long)]
    defaults: bool,
}

impl ConfigArgs {
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
