//! `tidings completions` and `tidings man`: files for the shell and for `man`, written from the
//! definition of the command line.

use std::io::Write;
use std::path::PathBuf;

use clap::Args as Arguments;
use clap_complete::Shell;

use super::session::{Exit, Session};

/// Print a script that completes commands and options in your shell
#[derive(Debug, Arguments)]
#[command(
    after_help = "For example: tidings completions bash > ~/.local/share/bash-completion/completions/tidings"
)]
pub(super) struct Args {
    /// Shell that reads the script
    shell: Shell,
}

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let (mut script, mut tidings) = (Vec::new(), (session.define_commands)());
        clap_complete::generate(self.shell, &mut tidings, "tidings", &mut script);
        Exit::of_printing(std::io::stdout().write_all(&script))
    }
}

/// Write the manual pages of all commands to a folder, for packages
#[derive(Debug, Arguments)]
pub(super) struct ManArgs {
    /// Folder of the pages; it is created if it is missing
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl ManArgs {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        std::fs::create_dir_all(&self.folder)?;
        clap_mangen::generate_to((session.define_commands)(), &self.folder)?;
        Ok(Exit::Done)
    }
}
