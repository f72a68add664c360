//! `tidings serve`: the HTTP API and a worker; with `--demo`, also a page to try both.

use std::path::{Path, PathBuf};

use clap::Args as Arguments;
use futures::FutureExt;

use super::session::{Access, App, Exit, Refusal, Screen, Session, Table};
use super::stop::{Stop, stop_on_signal};
use super::{demo, worker};
use crate::config::{Config, LogFormat, Sources};
use crate::demo::Gallery;
use crate::demo::folder::ServedDemo;
use crate::http::api::{self, BoundServer};

/// Run the HTTP API and the background worker
///
/// GET /openapi.json describes the API. Ctrl-C or SIGTERM finishes the current work and exits.
#[derive(Debug, Arguments)]
pub(super) struct Args {
    /// Address to listen on [default: server.listen, 127.0.0.1:8080]; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// Run only the HTTP API, and leave the work to `tidings worker`, here or on other machines
    #[arg(long)]
    no_worker: bool,
    /// Show the gallery of `tidings demo` in a browser, at /demo; needs no configuration
    #[arg(long, conflicts_with = "no_worker")]
    demo: bool,
    /// With --demo: folder to create; replaces an earlier demo there [default: tidings-demo]
    #[arg(long, value_name = "DIR", requires = "demo")]
    dir: Option<PathBuf>,
}

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        if self.demo {
            return self.run_demo(session).await;
        }
        session.set_option("server.listen", self.listen.as_ref());
        let (app, stop) = session.open_to_send(Access::Create).await?;
        let screen = &mut session.screen;
        screen.warnings(&app.config.warnings)?;
        let key = match &app.config.server.key {
            Some(key) => key.expose().to_owned(),
            None => generate_key()?,
        };
        let bound = api::bind(app.clone(), &key)?;
        self.greet(&app, screen, &format!("http://{}", bound.addr), &key)?;
        self.serve(&app, bound, &stop).await
    }

    /// Plays the demo's story, so that there is something to see, and serves the result.
    async fn run_demo(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        session.refuse_store(demo::OWN_STORE)?;
        session.start_log(LogFormat::Text);
        let listen = self.listen.iter().cloned();
        let config = Config::load(&Sources {
            flags: listen.map(|listen| ("server.listen".to_owned(), listen)).collect(),
            ..Sources::default()
        })?;
        let addr = config.server.listen;
        if !addr.ip().is_loopback() {
            let token = "--demo gives every visitor a token of any user";
            let what = format!("{token}, and {addr} is open to others");
            let next = format!("--listen 127.0.0.1:{}, or omitting it", addr.port());
            return Err(Refusal::new(what, next).into());
        }
        // Listen before replacing an earlier demo: another process may be serving that folder here.
        let listening = api::listen(addr)?;
        let served =
            ServedDemo { addr: listening.addr, key: generate_key()?, secret: generate_key()? };
        let dir = self.dir.as_deref().unwrap_or(Path::new(demo::DIR));
        let app = demo::play_silently(dir, &served, session.run_command).await?;
        let stop = stop_on_signal()?;
        let gallery = Gallery::new(served.url());
        let bound = listening.with_demo(app.clone(), &served.key, gallery)?;
        greet_demo(session.screen, &served, dir)?;
        self.serve(&app, bound, &stop).await
    }

    async fn serve(&self, app: &App, bound: BoundServer, stop: &Stop) -> anyhow::Result<Exit> {
        worker::run_together(app, stop, |halted| {
            let server = bound.run(halted.clone()).boxed_local();
            let worker = (!self.no_worker).then(|| worker::run(app, halted).boxed_local());
            std::iter::once(server).chain(worker).collect()
        })
        .await?;
        tracing::info!("stopped");
        Ok(Exit::Done)
    }

    fn greet(&self, app: &App, screen: &mut Screen, url: &str, key: &str) -> anyhow::Result<()> {
        let config = &app.config;
        let outbox = app.identities.outbox();
        let worker = if self.no_worker {
            "none here: tidings worker"
        } else {
            "in this process; --no-worker omits it"
        };
        let (key, key_text) = match config.server.key {
            Some(_) => {
                let source = "the configured one (server.key or TIDINGS_SERVER_KEY)";
                ("$TIDINGS_SERVER_KEY", source.to_owned())
            }
            None => (key, format!("{key}, generated for this run; server.key sets one")),
        };
        let mut facts = Table::facts();
        facts.add("  store", format!("{:?}", config.store));
        facts.add("  emails", outbox.map(|folder| format!("are written to {}", folder.display())));
        facts.add("  worker", worker.to_owned());
        facts.add("  key", key_text);
        let request = feed_request(key, url, "USER");
        greet(screen, &format!("listens on {url}"), &facts, &request)
    }
}

/// Prints the version and what is served, the facts about it, and a request to try.
fn greet(screen: &mut Screen, what: &str, facts: &Table, request: &str) -> anyhow::Result<()> {
    screen.line(format!("tidings {} {what}", env!("CARGO_PKG_VERSION")))?;
    screen.table(facts)?;
    Ok(screen.line(format!("  try     {request}"))?)
}

/// Returns a command that requests a user's feed.
fn feed_request(key: &str, url: &str, user: &str) -> String {
    format!("curl -H \"Authorization: Bearer {key}\" {url}/v1/users/{user}/feed")
}

/// Prints the address of the demo page, its folder and its key.
fn greet_demo(screen: &mut Screen, served: &ServedDemo, dir: &Path) -> anyhow::Result<()> {
    let (url, key, dir) = (served.url(), &served.key, dir.display());
    let mut facts = Table::facts();
    facts.add("  folder", format!("{dir}, created anew each time"));
    facts.add("  emails", format!("are written to {dir}/outbox; none is sent"));
    facts.add("  key", format!("{key}, generated for this run"));
    greet(screen, &format!("shows {url}/demo"), &facts, &feed_request(key, &url, "mara"))
}

/// Generates a key from 24 random bytes of the operating system, as hexadecimal digits.
pub(super) fn generate_key() -> anyhow::Result<String> {
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes)
        .map_err(|error| anyhow::anyhow!("generating a server key: {error}"))?;
    Ok(hex::encode(bytes))
}
