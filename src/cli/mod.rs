//! The command line. Each command has its own file; this one selects and runs it.
//!
//! A command parses its arguments, calls one use case, and prints the result. It makes no
//! decisions. Results go to standard output and notices to standard error. The exit code is never 0
//! on failure ([`exit`]). Start with [`events`]; [`demo`] runs the main commands in turn.

use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::sync::LazyLock;

use clap::{Parser, Subcommand};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::app::{Access, App, TemplateUse};
use crate::config::LogFormat;
use crate::operate::open::{is_missing, upgrade_ahead};

mod archive;
mod batches;
mod deliveries;
mod demo;
mod digest;
mod doctor;
mod events;
mod exit;
mod explain;
mod export;
mod feed;
mod harmless;
mod import;
mod keys;
mod options;
mod preview;
mod process;
mod screen;
mod serve;
mod simulate;
mod status;
mod suppressions;
mod table;
mod users;
mod words;
mod work;
mod worker;

pub use exit::{Exit, explain_failure, of_failure};
use options::{Global, Level};
use process::{Stop, never_stop, start_log, stop_on_signal};
use screen::Screen;

/// The version, and the schema versions to which it upgrades stores.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let version = env!("CARGO_PKG_VERSION");
    let (sqlite, mongo) = (crate::store::sqlite::SCHEMA, crate::store::mongo::SCHEMA);
    format!("{version} (schema {sqlite} on SQLite, {mongo} on MongoDB)")
});

/// Notification feeds and email digests.
#[derive(Debug, Parser)]
#[command(name = "tidings", version = VERSION.as_str(), about, after_help = AFTER_HELP, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Exit codes: 0 done, 1 failed, 2 wrong usage, configuration or values, 3 partly failed.";

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Args),
    Demo(demo::Args),
    Notify(Box<events::NotifyArgs>),
    Feed(feed::Args),
    Explain(explain::Args),
    Flush(events::FlushArgs),
    Retract(events::RetractArgs),
    Digest(digest::Args),
    Worker(worker::Args),
    Batches(batches::Args),
    Preview(preview::Args),
    SendTest(preview::SendTestArgs),
    Deliveries(deliveries::Args),
    Archive(archive::Args),
    Restore(archive::RestoreArgs),
    Import(import::Args),
    Export(export::Args),
    Status(status::Args),
    Doctor(doctor::Args),
    Simulate(simulate::Args),
    Suppressions(suppressions::Args),
    Users(users::Args),
    Keys(keys::Args),
    Token(keys::TokenArgs),
    Config(options::ConfigArgs),
}

impl Command {
    /// Returns the configuration options that the command's flags set.
    fn options(&self) -> Vec<(String, String)> {
        let (option, value) = match self {
            Self::Serve(args) => ("server.listen", &args.listen),
            Self::Archive(args) => ("archive.keep", &args.keep),
            _ => return Vec::new(),
        };
        let value = value.iter().cloned();
        value.map(|value| (option.to_owned(), value)).collect()
    }

    /// Returns what the command may do to the store. `None` if it does not use the configured
    /// store, or opens it only if a flag asks for it.
    fn access(&self) -> Option<Access> {
        Some(match self {
            Self::Demo(_)
            | Self::Config(_)
            | Self::Doctor(_)
            | Self::Simulate(_)
            | Self::Preview(_)
            | Self::SendTest(_)
            | Self::Token(_) => return None,
            Self::Serve(args) if args.demo => return None,
            Self::Serve(_) | Self::Notify(_) | Self::Import(_) | Self::Restore(_) => Access::Create,
            Self::Worker(_) | Self::Flush(_) | Self::Retract(_) => Access::Write,
            Self::Feed(_) | Self::Explain(_) | Self::Status(_) => Access::Read,
            Self::Export(_) => Access::Export,
            Self::Digest(args) if args.dry_run => Access::Read,
            Self::Digest(_) => Access::Write,
            Self::Archive(args) if args.dry_run => Access::Read,
            Self::Archive(_) => Access::Write,
            Self::Batches(args) => args.access(),
            Self::Deliveries(args) => args.access(),
            Self::Suppressions(args) => args.access(),
            Self::Users(args) => args.access(),
            Self::Keys(args) => args.access(),
        })
    }

    /// Returns whether the command renders emails or pages, and so needs the templates.
    fn templates(&self) -> TemplateUse {
        match self {
            Self::Serve(_) | Self::Worker(_) | Self::Digest(_) => TemplateUse::Required,
            Self::Deliveries(args) => args.templates(),
            _ => TemplateUse::BuiltIn,
        }
    }

    /// Returns the log level without `--log`. Long-running commands log what they do. `doctor` logs
    /// nothing, because its findings report the problems.
    fn usual_level(&self) -> Level {
        match self {
            Self::Serve(_) | Self::Worker(_) => Level::Info,
            Self::Doctor(_) => Level::Off,
            _ => Level::Warn,
        }
    }
}

/// Parses the arguments, runs the command, and returns how it ended.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<Exit> {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        // Errors quote the arguments, which may contain control characters.
        Err(error) if error.use_stderr() => {
            let text = error.render().to_string();
            std::io::stderr().write_all(harmless::lines(&text).as_bytes())?;
            return Ok(Exit::Usage);
        }
        Err(help) => {
            return match help.print() {
                // The reader closed the pipe, as `head` does.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Exit::Done),
                printed => Ok(printed.map(|()| Exit::Done)?),
            };
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let ended = runtime.block_on(cli.run(&mut Screen::standard()));
    // MongoDB's driver panics if its tasks are shut down one by one. The process ends now, so the
    // runtime is leaked.
    std::mem::forget(runtime);
    ended
}

/// Runs a command of the demo's story.
fn run_in_demo<'a>(
    arguments: Vec<String>,
    app: &'a App,
    screen: &'a mut Screen,
) -> BoxFuture<'a, anyhow::Result<Exit>> {
    let run = async move {
        let cli = Cli::try_parse_from(arguments)?;
        cli.command.run(app, screen, &never_stop()).await
    };
    run.boxed()
}

impl Cli {
    async fn run(self, screen: &mut Screen) -> anyhow::Result<Exit> {
        let (global, command) = (&self.global, &self.command);
        let level = global.level(command.usual_level());
        let Some(access) = command.access() else {
            // These commands read no configuration, or report its problems themselves.
            start_log(level, LogFormat::Text);
            return self.run_without_store(screen).await;
        };
        let config = global.load(command.options())?;
        start_log(level, config.watch.log);
        if matches!(command, Command::Serve(_) | Command::Worker(_)) {
            screen.warnings(&config.warnings)?;
        }
        if let Command::Status(args) = command
            && let Some(schema) = upgrade_ahead(&config).await?
        {
            return args.ahead(&config, &schema, screen);
        }
        if let Command::Export(args) = command {
            return args.run(&config, screen).await;
        }
        if let Command::Import(args) = command
            && args.is_of_store()
        {
            return args.run_store(&config, screen).await;
        }
        // A new database contains no users, so this may be the wrong folder.
        let is_new = matches!(command, Command::Notify(_)) && is_missing(&config);
        let store = format!("{:?}", config.store);
        let app = App::open(config, access, command.templates()).await?;
        if is_new {
            screen.warning(format!("there was no database: made {store}"))?;
        }
        // These commands finish their current work when a signal arrives. The others are short, or
        // can be interrupted anywhere.
        let stop = match command {
            Command::Serve(_) | Command::Digest(_) | Command::Worker(_) => stop_on_signal()?,
            _ => never_stop(),
        };
        app.end_with(&stop);
        command.run(&app, screen, &stop).await
    }

    async fn run_without_store(&self, screen: &mut Screen) -> anyhow::Result<Exit> {
        let global = &self.global;
        let refuse_store = || global.refuse_store("a demo has a store of its own");
        match &self.command {
            Command::Config(args) => args.run(global, screen),
            Command::Token(args) => args.run(global, screen),
            Command::Doctor(args) => args.run(global, screen).await,
            Command::Preview(args) => args.run(global, screen).await,
            Command::SendTest(args) => args.run(global, screen).await,
            Command::Simulate(args) => {
                global.refuse_store("a simulation opens no store")?;
                args.run(screen)
            }
            Command::Demo(args) => {
                refuse_store()?;
                args.run(screen, run_in_demo).await
            }
            Command::Serve(args) => {
                refuse_store()?;
                args.run_demo(screen, run_in_demo).await
            }
            _ => unreachable!("these commands have an access"),
        }
    }
}

impl Command {
    /// Runs the command with the configured store. Panics if it is one that opens none here.
    async fn run(&self, app: &App, screen: &mut Screen, stop: &Stop) -> anyhow::Result<Exit> {
        match self {
            Self::Serve(args) => args.run(app, screen, stop).await,
            Self::Notify(args) => args.run(app, screen).await,
            Self::Feed(args) => args.run(app, screen).await,
            Self::Explain(args) => args.run(app, screen).await,
            Self::Flush(args) => args.run(app, screen).await,
            Self::Retract(args) => args.run(app, screen).await,
            Self::Digest(args) => args.run(app, screen, stop).await,
            Self::Worker(args) => args.run(app, screen, stop).await,
            Self::Batches(args) => args.run(app, screen).await,
            Self::Deliveries(args) => args.run(app, screen).await,
            Self::Archive(args) => args.run(app, screen).await,
            Self::Restore(args) => args.run(app, screen).await,
            Self::Import(args) => args.run(app, screen).await,
            Self::Status(args) => args.run(app, screen).await,
            Self::Suppressions(args) => args.run(app, screen).await,
            Self::Users(args) => args.run(app, screen).await,
            Self::Keys(args) => args.run(app, screen).await,
            _ => unreachable!("they open no store here, and were done before"),
        }
    }
}
