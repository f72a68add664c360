//! The command line. Each command has its own file; this one selects and runs it.
//!
//! A command parses its arguments, calls one use case, and prints the result. It makes no
//! decisions. Results go to standard output and notices to standard error. The exit code is never 0
//! on failure ([`exit`]). Start with [`notify`]; [`demo`] runs the main commands in turn.

use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Parser, Subcommand};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::app::{Access, App, TemplateUse};
use crate::config::{Config, LogFormat};
use crate::operate::open::{NoStore, is_missing, missing_folder, upgrade_ahead};

mod archive;
mod batches;
mod config;
mod cut;
mod deliveries;
mod demo;
mod digest;
mod doctor;
mod exit;
mod explain;
mod export;
mod fan_out;
mod feed;
mod flush;
mod global;
mod harmless;
mod import;
mod ink;
mod keys;
mod late;
mod log;
mod notify;
mod page_file;
mod passed_over;
mod preview;
mod progress;
mod restore;
mod retract;
mod screen;
mod send_test;
mod serve;
mod simulate;
mod status;
mod stop;
mod suppressions;
mod table;
mod time;
mod token;
mod users;
mod waits;
mod words;
mod worker;

use exit::Usage;
pub use exit::{Exit, explain_failure, of_failure};
use global::{Global, Level};
use screen::Screen;
use stop::Stop;

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
    Notify(Box<notify::Args>),
    Feed(feed::Args),
    Explain(explain::Args),
    Flush(flush::Args),
    Retract(retract::Args),
    Digest(digest::Args),
    Worker(worker::Args),
    Batches(batches::Args),
    Preview(preview::Args),
    SendTest(send_test::Args),
    Deliveries(deliveries::Args),
    Archive(archive::Args),
    Restore(restore::Args),
    Import(import::Args),
    Export(export::Args),
    Status(status::Args),
    Doctor(doctor::Args),
    Simulate(simulate::Args),
    Suppressions(suppressions::Args),
    Users(users::Args),
    Keys(keys::Args),
    Token(token::Args),
    Config(config::Args),
}

impl Command {
    /// Returns the configuration options that the command's flags set.
    fn options(&self) -> Vec<(String, String)> {
        match self {
            Self::Serve(args) => args.options(),
            Self::Archive(args) => args.options(),
            _ => Vec::new(),
        }
    }

    /// Returns what the command may do to the store.
    fn access(&self) -> Access {
        match self {
            Self::Serve(_) | Self::Notify(_) | Self::Import(_) | Self::Restore(_) => Access::Create,
            Self::Worker(_) | Self::Flush(_) | Self::Retract(_) => Access::Write,
            Self::Digest(args) => args.access(),
            Self::Archive(args) => args.access(),
            Self::Batches(args) => args.access(),
            Self::Deliveries(args) => args.access(),
            Self::Suppressions(args) => args.access(),
            Self::Users(args) => args.access(),
            Self::Keys(args) => args.access(),
            Self::Feed(_) | Self::Explain(_) | Self::Status(_) => Access::Read,
            // These do not open the store here.
            Self::Demo(_)
            | Self::Export(_)
            | Self::Config(_)
            | Self::Doctor(_)
            | Self::Simulate(_)
            | Self::Preview(_)
            | Self::SendTest(_)
            | Self::Token(_) => Access::Read,
        }
    }

    /// Returns whether the command renders emails or pages, and so needs the templates.
    fn made(&self) -> TemplateUse {
        match self {
            Self::Serve(_) | Self::Worker(_) | Self::Digest(_) => TemplateUse::Required,
            Self::Deliveries(args) => args.made(),
            Self::Notify(_)
            | Self::Import(_)
            | Self::Restore(_)
            | Self::Flush(_)
            | Self::Retract(_)
            | Self::Archive(_)
            | Self::Batches(_)
            | Self::Suppressions(_)
            | Self::Users(_)
            | Self::Keys(_)
            | Self::Token(_)
            | Self::Feed(_)
            | Self::Explain(_)
            | Self::Status(_)
            | Self::Export(_)
            | Self::Demo(_)
            | Self::Config(_)
            | Self::Doctor(_)
            | Self::Preview(_)
            | Self::SendTest(_)
            | Self::Simulate(_) => TemplateUse::BuiltIn,
        }
    }

    /// Returns whether the command finishes its current work when a signal arrives. The other
    /// commands are short, or can be interrupted anywhere.
    fn ends_gently(&self) -> bool {
        matches!(self, Self::Serve(_) | Self::Digest(_) | Self::Worker(_))
    }

    /// Returns whether logging starts only after the configuration is loaded, in its log format.
    /// Other commands read no configuration, or report its problems themselves. They log text.
    fn is_configured(&self) -> bool {
        match self {
            Self::Demo(_)
            | Self::Config(_)
            | Self::Doctor(_)
            | Self::Simulate(_)
            | Self::Preview(_)
            | Self::SendTest(_)
            | Self::Token(_) => false,
            Self::Serve(args) => !args.is_demo(),
            _ => true,
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
        Err(error) => {
            // Help and version go to standard output. Errors quote the arguments, which may contain
            // control characters.
            if error.use_stderr() {
                let told = error.render().to_string();
                std::io::stderr().write_all(harmless::lines(&told).as_bytes())?;
            } else {
                match error.print() {
                    // The reader closed the pipe, as `head` does.
                    Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                    printed => printed?,
                }
            }
            return Ok(if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Done
            });
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
        cli.command.run(app, screen, &stop::never()).await
    };
    run.boxed()
}

impl Cli {
    async fn run(self, screen: &mut Screen) -> anyhow::Result<Exit> {
        let level = self.global.level(self.command.usual_level());
        if !self.command.is_configured() {
            log::start(level, LogFormat::Text);
        }
        if let Command::Config(args) = &self.command {
            return args.run(&self.global, screen);
        }
        if let Command::Token(args) = &self.command {
            return args.run(&self.global, screen);
        }
        if let Command::Doctor(args) = &self.command {
            return args.run(&self.global, screen).await;
        }
        if let Command::Preview(args) = &self.command {
            return args.run(&self.global, screen).await;
        }
        if let Command::SendTest(args) = &self.command {
            return args.run(&self.global, screen).await;
        }
        if let Command::Simulate(args) = &self.command {
            self.global.refuse_store("a simulation opens no store")?;
            return args.run(screen);
        }
        if let Command::Demo(args) = &self.command {
            self.global.refuse_store("a demo has a store of its own")?;
            return args.run(screen, run_in_demo).await;
        }
        if let Command::Serve(args) = &self.command
            && args.is_demo()
        {
            self.global.refuse_store("a demo has a store of its own")?;
            return args.run_demo(screen, run_in_demo).await;
        }
        let config = self.global.load(self.command.options())?;
        log::start(level, config.watch.log);
        if matches!(self.command, Command::Serve(_) | Command::Worker(_)) {
            for warning in &config.warnings {
                screen.warning(warning)?;
            }
        }
        if let Command::Status(args) = &self.command
            && let Some(schema) = upgrade_ahead(&config).await?
        {
            return args.ahead(&config, &schema, screen);
        }
        let named = self.global.file();
        if let Command::Export(args) = &self.command {
            let exported = args.run(&config, screen).await;
            return exported.map_err(|failure| say_where(failure, named));
        }
        if let Command::Import(args) = &self.command
            && args.is_of_store()
        {
            refuse_missing_folder(&config, Access::Create)?;
            return args.run_store(&config, screen).await;
        }
        // A new database contains no users, so this may be the wrong folder.
        let is_new = matches!(self.command, Command::Notify(_)) && is_missing(&config);
        let store = format!("{:?}", config.store);
        let access = self.command.access();
        refuse_missing_folder(&config, access)?;
        let app = App::open(config, access, self.command.made())
            .await
            .map_err(|failure| say_where(failure, named))?;
        if is_new {
            screen.warning(format!("there was no database: made {store}"))?;
        }
        let stop = if self.command.ends_gently() {
            stop::on_signal()?
        } else {
            stop::never()
        };
        app.end_with(&stop);
        self.command.run(&app, screen, &stop).await
    }
}

impl Command {
    /// Runs the command. Panics if it is one that opens no store here.
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
            Self::Demo(_)
            | Self::Export(_)
            | Self::Config(_)
            | Self::Doctor(_)
            | Self::Simulate(_)
            | Self::Preview(_)
            | Self::SendTest(_)
            | Self::Token(_) => unreachable!("they open no store here, and were done before"),
        }
    }
}

/// Extends the error for a missing store: which configuration named it, and how to name another.
fn say_where(failure: anyhow::Error, named: Option<PathBuf>) -> anyhow::Error {
    let Some(missing) = failure.downcast_ref::<NoStore>() else {
        return failure;
    };
    let (what, next) = match named {
        Some(file) => (
            format!("{missing} (the configuration is {})", file.display()),
            "the option `store`; tidings import, notify, serve, restore, suppressions add and keys create make a database",
        ),
        None => (
            format!(
                "{missing}, and no configuration names another: there is no tidings.toml in this folder"
            ),
            "--config /etc/tidings/tidings.toml, or wherever yours is; tidings import, notify, serve, restore, suppressions add and keys create make a database",
        ),
    };
    Usage::new(what).instead(next).into()
}

/// Refuses to create a SQLite file in a folder that does not exist.
fn refuse_missing_folder(config: &Config, access: Access) -> Result<(), Usage> {
    if matches!(access, Access::Create | Access::Import)
        && let Some(folder) = missing_folder(config)
    {
        let folder = folder.display();
        return Err(
            Usage::new(format!("store: the folder {folder} does not exist"))
                .instead(format!("mkdir -p {folder}")),
        );
    }
    Ok(())
}
