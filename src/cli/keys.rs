//! `tidings keys`: lists, creates and revokes the server keys of applications.
//!
//! A key is printed once, when it is created. The store has only its hash (P8).

use clap::{Args as Arguments, Subcommand};

use super::exit::{Exit, Usage};
use super::ink::Ink;
use super::screen::Screen;
use super::table::{Column, Table};
use super::words;
use crate::app::{Access, App};
use crate::domain::{KeyName, Scope};
use crate::wire::user::NewKeyView;

/// List, create and revoke server keys
///
/// Applications send a server key with every request to the HTTP API. The configured key
/// (server.key) may do everything. Keys created here may do what their scope allows, and each can
/// be revoked separately. Running servers apply changes within ten seconds.
#[derive(Debug, Arguments)]
#[command(args_conflicts_with_subcommands = true, after_help = AFTER_HELP)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    list: List,
}

const AFTER_HELP: &str = "Examples:
  tidings keys
  tidings keys create web-app --scope write
  tidings keys create dashboard --scope read --json
  tidings keys revoke web-app";

#[derive(Debug, Subcommand)]
enum Verb {
    /// List keys by name; the keys themselves are not stored
    List(List),
    /// Create a key and print it once
    Create(Create),
    /// Revoke a key
    Revoke(Revoke),
}

#[derive(Debug, Arguments)]
struct List {
    /// Answer in JSON, one line per key
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Arguments)]
struct Create {
    /// Name of the key, such as the application that uses it
    name: KeyName,
    /// Permissions: read (everything), write (also events, users, follows, objects and batches) or
    /// admin (also suppressions)
    #[arg(long)]
    scope: Scope,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Arguments)]
struct Revoke {
    name: KeyName,
}

impl Args {
    pub(super) fn access(&self) -> Access {
        match &self.verb {
            None | Some(Verb::List(_)) => Access::Read,
            Some(Verb::Create(_)) => Access::Create,
            Some(Verb::Revoke(_)) => Access::Write,
        }
    }

    pub(super) async fn run(&self, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
        match &self.verb {
            None => self.list.run(app, screen).await,
            Some(Verb::List(list)) => list.run(app, screen).await,
            Some(Verb::Create(create)) => create.run(app, screen).await,
            Some(Verb::Revoke(revoke)) => revoke.run(app, screen).await,
        }
    }
}

impl List {
    async fn run(&self, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
        let keys = app.keys().list().await?;
        if self.json {
            keys.iter().try_for_each(|key| screen.json(key))?;
            return Ok(Exit::Done);
        }
        if keys.is_empty() {
            screen
                .line("no server key was created; `tidings keys create NAME --scope read` does")?;
            return Ok(Exit::Done);
        }
        let mut table = Table::new([
            Column::new("name").ink(Ink::Strong).gives_way(),
            Column::new("scope"),
            Column::new("created (UTC)").ink(Ink::Faint),
        ]);
        for key in keys {
            table.row([
                key.name.to_string(),
                key.scope.to_string(),
                words::minute(key.created),
            ]);
        }
        screen.table(&table)?;
        Ok(Exit::Done)
    }
}

impl Create {
    async fn run(&self, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
        let (name, scope) = (&self.name, self.scope);
        let key = app.keys().create(name, scope).await?;
        let key = key.expose();
        if self.json {
            screen.json(&NewKeyView { name, scope, key })?;
        } else {
            screen.line(key)?;
        }
        screen.note(format!(
            "{name:?} may {}; the key is not shown again",
            told(scope)
        ))?;
        Ok(Exit::Done)
    }
}

fn told(scope: Scope) -> &'static str {
    match scope {
        Scope::Read => "read",
        Scope::Write => "read and write",
        Scope::Admin => "do everything",
    }
}

impl Revoke {
    async fn run(&self, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
        let name = &self.name;
        if !app.keys().revoke(name).await? {
            let usage = Usage::new(format!("no server key is called {name:?}"));
            return Err(usage.instead("tidings keys, which lists them").into());
        }
        screen.line(format!(
            "{name:?} is revoked; running servers refuse it within ten seconds"
        ))?;
        Ok(Exit::Done)
    }
}
