//! `tidings serve`: the HTTP face, and the worker beside it.

use clap::Args as Arguments;
use tokio::sync::watch;

use super::exit::Exit;
use super::ink::Ink;
use super::screen::Screen;
use super::stop::Stop;
use super::table::{Column, Table};
use super::worker;
use crate::api;
use crate::app::App;

/// Serve the HTTP API, and fan out events and mail digests beside it
///
/// GET /openapi.json describes the API. Ctrl-C or SIGTERM finishes what is in hand and ends.
#[derive(Debug, Arguments)]
pub(super) struct Args {
    /// Where to listen [default: server.listen, 127.0.0.1:8080]; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// Only serve; `tidings worker` does the rest, here or on other machines
    #[arg(long)]
    no_worker: bool,
}

impl Args {
    pub(super) fn options(&self) -> Vec<(String, String)> {
        let listen = self.listen.clone();
        listen
            .map(|listen| ("server.listen".to_owned(), listen))
            .into_iter()
            .collect()
    }

    pub(super) async fn run(
        &self,
        app: &App,
        screen: &mut Screen,
        stop: &Stop,
    ) -> anyhow::Result<Exit> {
        let key = match &app.config.server.key {
            Some(key) => key.clone(),
            None => made_up()?,
        };
        let bound = api::bind(app.clone(), &key)?;
        self.greet(app, screen, &format!("http://{}", bound.addr), &key)?;

        // Whichever of the two ends first, and for whatever reason, the other ends as well.
        let (halt, halted) = watch::channel(false);
        let serving = async {
            let served = bound.run(halted.clone()).await;
            halt.send_replace(true);
            served
        };
        let working = async {
            if self.no_worker {
                return Ok(());
            }
            let worked = worker::run(app, halted.clone()).await;
            halt.send_replace(true);
            worked
        };
        let (mut asked, mut ended) = (stop.clone(), halted.clone());
        let listening = async {
            tokio::select! {
                _ = asked.wait_for(|stop| *stop) => {}
                _ = ended.wait_for(|ended| *ended) => {}
            }
            halt.send_replace(true);
        };
        let (served, worked, ()) = tokio::join!(serving, working, listening);
        served?;
        worked?;
        tracing::info!("stopped");
        Ok(Exit::Done)
    }

    fn greet(&self, app: &App, screen: &mut Screen, url: &str, key: &str) -> anyhow::Result<()> {
        let config = &app.config;
        screen.line(format!(
            "tidings {} listens on {}",
            env!("CARGO_PKG_VERSION"),
            screen.ink(Ink::Strong, url)
        ))?;
        let mut facts = Table::new([Column::new("").ink(Ink::Faint), Column::new("")]);
        facts.row(["  store".into(), format!("{:?}", config.store)]);
        if let Some(outbox) = app.outbox() {
            facts.row([
                "  mails".into(),
                format!("are written to {}", outbox.display()),
            ]);
        }
        let worker = if self.no_worker {
            "none here: tidings worker"
        } else {
            "inside; --no-worker leaves it out"
        };
        facts.row(["  worker".into(), worker.to_owned()]);
        let configured = config.server.key.is_some();
        facts.row([
            "  key".into(),
            if configured {
                "the configured one (server.key)".to_owned()
            } else {
                format!("{key}, made up for this run; server.key keeps one")
            },
        ]);
        screen.table(&facts)?;
        let shown = if configured { "$KEY" } else { key };
        let line = format!("curl -H \"Authorization: Bearer {shown}\" {url}/v1/users/USER/feed");
        screen.line(format!("  try     {}", screen.ink(Ink::Accent, line)))?;
        Ok(())
    }
}

/// A key nobody can guess: 24 bytes of the operating system's randomness.
fn made_up() -> anyhow::Result<String> {
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes)
        .map_err(|error| anyhow::anyhow!("making up a server key: {error}"))?;
    Ok(hex::encode(bytes))
}
