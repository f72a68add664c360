//! The command line. Each command has its own file; this one selects and runs it.
//!
//! A command parses its arguments, calls one use case, and prints the result. It makes no
//! decisions. Results go to standard output and notices to standard error. The exit code is never 0
//! on failure ([`exit`]). Start with [`events`]; [`demo`] runs the main commands in turn.

use std::ffi::OsString;
use std::io::Write;
use std::sync::LazyLock;

use clap::{CommandFactory, Parser, Subcommand};
use futures::FutureExt;
use futures::future::LocalBoxFuture;

use crate::app::App;

mod archive;
mod batches;
mod completions_and_man;
mod config;
mod deliveries;
mod demo;
mod digest;
mod doctor;
mod events;
mod exit;
mod explain;
mod failure_text;
mod fan_out;
mod feed;
mod health;
mod import;
mod init;
mod keys;
mod phrases;
mod preview;
mod remaining_work;
mod restore;
mod screen;
mod send_test;
mod serve;
mod session;
mod simulate;
mod status;
mod stop;
mod suppressions;
#[cfg(target_os = "linux")]
mod systemd_notify;
mod token;
mod transfer;
mod users;
mod worker;

pub use exit::{Exit, exit_of_failure};
pub use failure_text::explain_failure;
use screen::{Screen, printable_lines};
use session::{Global, Level, Session};

/// Notification feeds and email digests.
#[derive(Debug, Parser)]
#[command(name = "tidings", version = VERSION.as_str(), about, after_help = AFTER_HELP, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// The version of the package, with the commit and the target that `scripts/release` built.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let build = match (option_env!("TIDINGS_BUILD_COMMIT"), option_env!("TIDINGS_BUILD_TARGET")) {
        (Some(commit), Some(target)) => format!("commit {commit}, {target}"),
        _ => "built without scripts/release".to_owned(),
    };
    format!("{} ({build})", env!("CARGO_PKG_VERSION"))
});

const AFTER_HELP: &str = "\
Exit codes: 0 done, 1 failed, 2 wrong usage, configuration or values, 3 partly failed.";

/// Declares the commands, each with its arguments.
macro_rules! commands {
    ($($(#[$hidden:meta])? $name:ident($($args:tt)*);)*) => {
        #[derive(Debug, Subcommand)]
        enum Command {
            $($(#[$hidden])? $name($($args)*),)*
        }

        impl Command {
            async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
                match self {
                    $(Self::$name(args) => args.run(session).await,)*
                }
            }
        }
    };
}

commands! {
    Init(init::Args);
    Serve(serve::Args);
    Demo(demo::Args);
    Notify(Box<events::NotifyArgs>);
    Feed(feed::Args);
    Explain(explain::Args);
    Flush(events::FlushArgs);
    Retract(events::RetractArgs);
    Digest(digest::Args);
    Worker(worker::Args);
    Batches(batches::Args);
    Preview(preview::Args);
    SendTest(send_test::Args);
    Deliveries(deliveries::Args);
    Archive(archive::Args);
    Restore(restore::Args);
    Import(import::Args);
    Export(transfer::Args);
    Status(status::Args);
    Doctor(doctor::Args);
    Health(health::Args);
    Simulate(simulate::Args);
    Suppressions(suppressions::Args);
    Users(users::Args);
    Keys(keys::Args);
    Token(token::Args);
    Config(config::Args);
    Completions(completions_and_man::Args);
    #[command(hide = true)]
    Man(completions_and_man::ManArgs);
}

impl Command {
    /// Returns the log level without `--log`. Long-running commands log what they do. `doctor` logs
    /// nothing, because its findings report the problems.
    fn default_level(&self) -> Level {
        match self {
            Self::Serve(_) | Self::Worker(_) => Level::Info,
            Self::Doctor(_) => Level::Off,
            _ => Level::Warn,
        }
    }

    /// Runs the command in a new session. `demo` is the app of a demo whose story runs it.
    async fn run_with(
        &self,
        global: Global,
        screen: &mut Screen,
        demo: Option<&App>,
    ) -> anyhow::Result<Exit> {
        let mut session = Session {
            global,
            screen,
            demo,
            run_command: run_in_demo,
            define_commands: Cli::command,
            default_level: self.default_level(),
            options: Vec::new(),
            is_new: false,
        };
        self.run(&mut session).await
    }
}

/// Parses the arguments, runs the command, and returns how it ended.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<Exit> {
    let Cli { global, command } = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        // Errors quote the arguments, which may contain control characters.
        Err(error) if error.use_stderr() => {
            let text = error.render().to_string();
            std::io::stderr().write_all(printable_lines(&text).as_bytes())?;
            return Ok(Exit::Usage);
        }
        Err(help) => return Exit::of_printing(help.print()),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut screen = Screen::new(true, global.json);
    let result = runtime.block_on(command.run_with(global, &mut screen, None));
    // MongoDB's driver panics if its tasks are shut down one by one. The process ends now, so the
    // runtime is leaked.
    std::mem::forget(runtime);
    result
}

/// Runs a command of the demo's story.
fn run_in_demo<'a>(
    arguments: Vec<String>,
    app: &'a App,
    screen: &'a mut Screen,
) -> LocalBoxFuture<'a, anyhow::Result<Exit>> {
    let run = async move {
        let Cli { global, command } = Cli::try_parse_from(arguments)?;
        command.run_with(global, screen, Some(app)).await
    };
    run.boxed_local()
}

#[cfg(test)]
mod reference_tests;
