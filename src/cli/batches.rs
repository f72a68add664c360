//! `tidings batches`: lists, shows, closes and cancels batches, and removes events from them.

use clap::{Args as Arguments, Subcommand};

use super::session::Fit::{Cut, Full, Number};
use super::session::{Access, App, Column, Exit, Refusal, Screen, Session, Table, phrases};
use crate::domain::batch::RemovedEvents;
use crate::domain::{BatchKey, BatchState, EventType, Id, ObjectId, UserId};
use crate::engine::Error;
use crate::engine::batches::{BatchFilter, EndAction};
use crate::wire::batch::BatchView;

/// List batches, or show, close and cancel them
///
/// A batch collects a user's events of one key for a while, and becomes one email. A user has at
/// most one open batch per key. The key is the event type (type:Comment), unless the event
/// (batch_key) or the configuration sets one (key:acme).
#[derive(Debug, Arguments)]
#[command(args_conflicts_with_subcommands = true, after_help = AFTER_HELP)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Only batches of this user
    #[arg(long, value_name = "USER")]
    user: Option<UserId>,
    /// Only batches with this key, such as type:Comment or key:acme
    #[arg(long, value_name = "KEY")]
    key: Option<BatchKey>,
    /// Only batches in this state: open, closing, closed or canceled
    #[arg(long, value_name = "STATE")]
    state: Option<BatchState>,
    /// Maximum number of batches
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
}

const AFTER_HELP: &str = "\
Examples:
  tidings batches --user mara --state open
  tidings batches close 535254a00000000000000001
  tidings batches take-out Comment c17 c18";

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show a batch and its events
    Show { id: Id },
    /// Close open batches now
    ///
    /// They accept no more events, and a worker sends them in its next round.
    Close {
        #[arg(required = true, value_name = "ID")]
        ids: Vec<Id>,
    },
    /// Cancel open batches
    ///
    /// Feeds do not change, and the next event opens a new batch.
    Cancel {
        #[arg(required = true, value_name = "ID")]
        ids: Vec<Id>,
    },
    /// Remove events from all open batches
    ///
    /// Feeds and digests do not change. Events that are counted but no longer kept stay counted.
    TakeOut {
        #[arg(value_name = "TYPE")]
        kind: EventType,
        #[arg(required = true, value_name = "OBJECT")]
        objects: Vec<ObjectId>,
    },
}

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let access = match &self.verb {
            None | Some(Verb::Show { .. }) => Access::Read,
            Some(_) => Access::Write,
        };
        let (app, screen) = (session.open(access).await?, &mut *session.screen);
        match &self.verb {
            None => self.list(&app, screen).await,
            Some(Verb::Show { id }) => show(*id, &app, screen).await,
            Some(Verb::Close { ids }) => end(ids, EndAction::Close, &app, screen).await,
            Some(Verb::Cancel { ids }) => end(ids, EndAction::Cancel, &app, screen).await,
            Some(Verb::TakeOut { kind, objects }) => take_out(kind, objects, &app, screen).await,
        }
    }

    async fn list(&self, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
        let filter = BatchFilter {
            user: self.user.clone(),
            key: self.key.clone(),
            state: self.state,
            before: None,
        };
        let service = app.batches();
        let limit = usize::from(self.limit);
        let mut batches = service.list(&filter, limit + 1).await?;
        let cut_note = phrases::cut(&mut batches, limit, "--user, --key or --state");
        let views = service.views(batches).await?;
        if !screen.answer(&views)? {
            screen.list(&table(&views), cut_note)?;
        }
        Ok(Exit::Done)
    }
}

fn unknown_batch(id: Id) -> Refusal {
    let what = format!("there is no batch {id}");
    Refusal::new(what, "tidings batches, which lists them")
}

async fn show(id: Id, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
    let service = app.batches();
    let batch = service.batch(id).await?.ok_or_else(|| unknown_batch(id))?;
    let view = service.view(batch).await?;
    if !screen.answer(&view)? {
        screen.text(&serde_json::to_string_pretty(&view)?)?;
    }
    Ok(Exit::Done)
}

/// Removes events about these objects from all open batches.
async fn take_out(
    kind: &EventType,
    objects: &[ObjectId],
    app: &App,
    screen: &mut Screen,
) -> anyhow::Result<Exit> {
    let id = |object: &ObjectId| app.config.policies.object_id(kind, object.clone());
    let ids: Vec<ObjectId> = objects.iter().map(id).collect();
    let result = app.batches().remove_events(kind, &ids, None).await?;
    if !screen.answer(&result)? {
        let events = phrases::events(result.removed);
        screen.line(format!("take-out: {events} removed from open batches"))?;
        note_omitted(screen, result)?;
    }
    Ok(Exit::Done)
}

/// Returns the outcome of the batch's email, or why it has none.
fn email_outcome(view: &BatchView) -> String {
    match &view.delivery {
        // The leading event was emailed at once, and no other event followed.
        None if view.lead_sent && view.count == 0 => "its lead was emailed at once".to_owned(),
        None => String::new(),
        Some(delivery) => {
            let reason = delivery.reason.as_ref().map(|reason| format!(": {reason}"));
            format!("{}{}", delivery.state.as_str(), reason.unwrap_or_default())
        }
    }
}

async fn end(ids: &[Id], end: EndAction, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
    let (service, mut good) = (app.batches(), 0);
    let result = match end {
        EndAction::Close => "is closing; a worker emails it in its next round",
        EndAction::Cancel => "is canceled",
    };
    for id in ids {
        match service.end(*id, end).await {
            Ok(Some(_)) => {
                good += 1;
                screen.line(format!("{id} {result}"))?;
            }
            Ok(None) => screen.note(unknown_batch(*id))?,
            Err(Error::Conflict(why)) => screen.note(why)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(match Exit::of(good, ids.len() as u64 - good) {
        // Nothing was changed, so this is a wrong request.
        Exit::Failed => Exit::Usage,
        exit => exit,
    })
}

/// Prints a note if batches count matching events that they no longer keep. These stay counted.
pub(super) fn note_omitted(screen: &mut Screen, removed: RemovedEvents) -> std::io::Result<()> {
    let Some(omitted) = phrases::nonzero(removed.omitted, "that they no longer keep") else {
        return Ok(());
    };
    let effect = "their objects are unknown, so they stay counted";
    screen.note(format!("the same batches count {omitted}; {effect}"))
}

/// Returns the table of batches with the outcomes of their emails.
fn table(views: &[BatchView]) -> Table {
    let columns: &[Column<&BatchView>] = &[
        Column("closes (UTC)", Full, |view| phrases::minute(view.closes_at)),
        Column("state", Full, |view| view.state.as_str().to_owned()),
        Column("events", Number, |view| phrases::number(view.count)),
        Column("user", Cut, |view| view.user.to_string()),
        Column("key", Cut, |view| view.key.clone()),
        Column("batch", Full, |view| view.id.to_string()),
        Column("email", Cut, |view| email_outcome(view)),
    ];
    Table::new(views, columns)
}
