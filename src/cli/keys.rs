//! `tidings keys`: lists, creates and revokes the server keys of applications.
//!
//! A key is printed once, when it is created. The store has only its hash (P8).

use clap::{Args as Arguments, Subcommand};

use super::session::Fit::{Cut, Full};
use super::session::{Access, App, Column, Exit, Refusal, Screen, Session, Table, phrases};
use crate::domain::{KeyName, Scope};
use crate::wire::key::{KeyView, NewKeyView};

/// List server keys, or create and revoke them
///
/// Applications send a server key with every request to the HTTP API. The configured key
/// (server.key) may do everything. Keys created here may do what their scope allows, and each can
/// be revoked separately. Running servers apply changes within ten seconds.
#[derive(Debug, Arguments)]
#[command(args_conflicts_with_subcommands = true, after_help = AFTER_HELP)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
}

const AFTER_HELP: &str = "Examples:
  tidings keys
  tidings keys create web-app --scope write
  tidings keys create dashboard --scope read --json
  tidings keys revoke web-app";

#[derive(Debug, Subcommand)]
enum Verb {
    /// Create a key and print it once
    Create {
        /// Name of the key, such as the application that uses it
        name: KeyName,
        /// Permissions: read (everything), write (also events, users, follows, objects and batches)
        /// or admin (also suppressions)
        #[arg(long)]
        scope: Scope,
    },
    /// Revoke a key
    Revoke { name: KeyName },
}

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let access = match &self.verb {
            None => Access::Read,
            Some(Verb::Create { .. }) => Access::Create,
            Some(Verb::Revoke { .. }) => Access::Write,
        };
        let (app, screen) = (session.open(access).await?, &mut *session.screen);
        match &self.verb {
            None => list(&app, screen).await?,
            Some(Verb::Create { name, scope }) => {
                let (created, scope) = (app.keys().create(name, *scope).await?, *scope);
                let key = created.expose();
                if !screen.answer(&NewKeyView { name, scope, key })? {
                    screen.line(key)?;
                }
                let warning = "the key is not shown again";
                screen.note(format!("{name:?} has the scope {scope}; {warning}"))?;
            }
            Some(Verb::Revoke { name }) => {
                if !app.keys().revoke(name).await? {
                    let what = format!("no server key is called {name:?}");
                    return Err(Refusal::new(what, "tidings keys, which lists them").into());
                }
                let effect = "running servers reject it within ten seconds";
                screen.line(format!("{name:?} is revoked; {effect}"))?;
            }
        }
        Ok(Exit::Done)
    }
}

async fn list(app: &App, screen: &mut Screen) -> anyhow::Result<()> {
    let keys = app.keys().list().await?;
    if screen.is_json {
        return keys.iter().try_for_each(|key| screen.json(key));
    }
    let columns: &[Column<&KeyView>] = &[
        Column("name", Cut, |key| key.name.to_string()),
        Column("scope", Full, |key| key.scope.to_string()),
        Column("created (UTC)", Full, |key| phrases::minute(key.created)),
    ];
    let table = Table::new(&keys, columns);
    Ok(screen.list(&table, None)?)
}
