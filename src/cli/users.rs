//! `tidings users`: exports and erases one user.
//!
//! The export is for the user and contains the address in full (P8).

use anyhow::{Context, ensure};
use clap::{Args as Arguments, Subcommand};

use super::session::{Access, App, Exit, Refusal, Session, phrases};
use crate::domain::{Address, UserId};

/// Export or erase one user
#[derive(Debug, Arguments)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

const AFTER_HELP: &str = r#"Examples:
  tidings users export mara@example.org > mara.json
  tidings users erase mara"#;

#[derive(Debug, Subcommand)]
enum Verb {
    /// Write everything that is stored about the user to standard output, as JSON
    Export(UserArg),
    /// Delete the user, their unsent emails, and their name in events
    ///
    /// If it fails, repeat it: it continues where it stopped. It does not search archived days,
    /// exports, written emails or logs.
    Erase(UserArg),
}

#[derive(Debug, Arguments)]
struct UserArg {
    /// The user's id, or the email address of the record
    #[arg(value_name = "ID")]
    user: String,
}

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let (access, arg) = match &self.verb {
            Verb::Export(arg) => (Access::Read, arg),
            Verb::Erase(arg) => (Access::Write, arg),
        };
        let (app, screen) = (session.open(access).await?, &mut *session.screen);
        let user = find(&app, &arg.user).await?;
        match &self.verb {
            Verb::Export(_) => {
                let export = app.users().export(&user).await?;
                screen.json(&export.with_context(|| format!("nothing is stored about {user}"))?)?;
            }
            Verb::Erase(_) => {
                ensure!(app.users().erase(&user).await?, "nothing is stored about {user}");
                screen.line(format!("erased {user}"))?;
            }
        }
        Ok(Exit::Done)
    }
}

/// Finds a user by id, or by an address that only one record has. Returns the id unchanged if no
/// record matches. Fails if several records have the address.
pub(super) async fn find(app: &App, user: &str) -> anyhow::Result<UserId> {
    let users = app.users();
    let id = UserId::new(user)?;
    if users.user(&id).await?.is_some() {
        return Ok(id);
    }
    let Ok(address) = Address::new(user) else {
        return Ok(id);
    };
    match users.find_by_address(&address, 10).await?.as_slice() {
        [] => Ok(id),
        [only] => Ok(only.clone()),
        ids => {
            let ids = phrases::list(ids.iter().map(|id| Some(id.to_string())));
            let what = format!("several records have this address: {ids}");
            Err(Refusal::new(what, "one of these ids").into())
        }
    }
}
