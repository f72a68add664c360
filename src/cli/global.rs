//! The flags every command takes, and the configuration they lead to.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::exit::Usage;
use crate::config::{Config, Problems, Sources};
use crate::email::Provider;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "For every command")]
pub(super) struct Global {
    /// The configuration file; tidings.toml in this folder if there is one
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "TIDINGS_CONFIG",
        hide_env_values = true
    )]
    config: Option<PathBuf>,
    /// Where everything is kept: sqlite:PATH, or mongodb://HOST/DATABASE
    #[arg(long, global = true, value_name = "URL")]
    store: Option<String>,
    /// How much is logged, to standard error; warn, and info for serve and worker
    #[arg(
        long,
        global = true,
        value_name = "LEVEL",
        env = "TIDINGS_LOG",
        hide_env_values = true
    )]
    log: Option<Level>,
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// The file that is read where none is named.
const FILE: &str = "tidings.toml";

impl Global {
    /// How much is logged; as usual for the command, if nobody said.
    pub(super) fn level(&self, usual: Level) -> Level {
        self.log.unwrap_or(usual)
    }

    /// The file that is read, if any is.
    pub(super) fn file(&self) -> Option<PathBuf> {
        self.config
            .clone()
            .or_else(|| Path::new(FILE).exists().then(|| FILE.into()))
    }

    /// For commands that have a store of their own.
    pub(super) fn refuse_store(&self, why: &str) -> Result<(), Usage> {
        match self.store {
            Some(_) => Err(Usage::new(why).instead("leaving out --store")),
            None => Ok(()),
        }
    }

    /// The configuration from all its sources; `options` are what a command's own flags set.
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
