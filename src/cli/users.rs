//! `tidings users`: shows, exports and erases one user.
//!
//! `show` masks the address. `export` is for the user and contains it in full (P8).

use anyhow::bail;
use clap::{Args as Arguments, Subcommand};

use super::exit::{Exit, Usage};
use super::screen::Screen;
use super::session::Session;
use super::words;
use crate::app::{Access, App};
use crate::domain::{Address, UserId};
use crate::wire::user::{UserExport, UserView};

/// Show, export or erase one user
#[derive(Debug, Arguments)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

const AFTER_HELP: &str = r#"Examples:
  tidings users show mara
  tidings users export mara@example.org > mara.json
  tidings users erase mara"#;

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the record, and how much else is stored about the user
    Show(One),
    /// Write everything that is stored about the user to standard output, as JSON
    Export(One),
    /// Delete the user, their unsent emails, and their name in events
    ///
    /// If it fails, repeat it: it continues where it stopped. It does not search archived days,
    /// exports, written emails or logs.
    Erase(One),
}

#[derive(Debug, Arguments)]
struct One {
    /// The user's id, or the email address of the record
    #[arg(value_name = "ID")]
    user: String,
}

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let (access, one) = match &self.verb {
            Verb::Show(one) | Verb::Export(one) => (Access::Read, one),
            Verb::Erase(one) => (Access::Write, one),
        };
        let (app, screen) = (session.open(access).await?, &mut *session.screen);
        let user = find(&app, &one.user).await?;
        if let Verb::Erase(_) = &self.verb {
            if !app.people().delete(&user).await? {
                bail!("nothing is stored about {user}");
            }
            screen.line(format!("erased {user}"))?;
            return Ok(Exit::Done);
        }
        let Some(export) = app.exporter().export(&user).await? else {
            bail!("nothing is stored about {user}");
        };
        match &self.verb {
            Verb::Show(_) => show(&user, &export, &app, screen).await?,
            _ => screen.json(&export)?,
        }
        Ok(Exit::Done)
    }
}

/// Finds a user by id, or by an address that only one record has. Returns the id unchanged if no
/// record matches. Fails if several records have the address.
pub(super) async fn find(app: &App, user: &str) -> anyhow::Result<UserId> {
    let people = app.people();
    let id = UserId::new(user)?;
    if people.get(&id).await?.is_some() {
        return Ok(id);
    }
    let Ok(address) = Address::new(user) else {
        return Ok(id);
    };
    let found = people.with_address(&address, 10).await?;
    match found.as_slice() {
        [] => Ok(id),
        [only] => Ok(only.clone()),
        several => {
            let ids = words::list(several.iter().map(|id| Some(id.to_string())));
            let usage = Usage::new(format!("several records have this address: {ids}"));
            Err(usage.instead("one of these ids").into())
        }
    }
}

async fn show(
    user: &UserId,
    export: &UserExport,
    app: &App,
    screen: &mut Screen,
) -> anyhow::Result<()> {
    let record = app.people().get(user).await?;
    let record = record.map(|user| UserView::of(user, &app.config.policies));
    if screen.answer(&record)? {
        return Ok(());
    }
    match &record {
        Some(record) => screen.pretty(record)?,
        None => screen.line(format!("there is no record of {user}"))?,
    }
    for (count, one, many) in [
        (export.follows.len(), "follow", "follows"),
        (export.mutes.len(), "mute", "mutes"),
        (
            export.events.len(),
            "event in the window",
            "events in the window",
        ),
        (export.batches.len(), "batch", "batches"),
        (export.deliveries.len(), "delivery", "deliveries"),
    ] {
        screen.line(words::count(count as u64, one, many))?;
    }
    if let Some(suppression) = &export.suppression {
        let reason = suppression.reason.suppressed();
        screen.line(format!("no email goes to the address: {reason}"))?;
    }
    Ok(())
}
