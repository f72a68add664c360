//! `tidings retract`: retracts events, so that feeds and emails no longer include them.

use clap::Args as Arguments;

use super::batches::note_not_kept;
use super::exit::Exit;
use super::screen::Screen;
use super::words;
use crate::app::App;
use crate::domain::{EventType, ObjectId, ObjectKey};

/// Retract events: remove them from feeds and unsent emails
///
/// Removes all earlier events of this type about these objects from feeds and their counts,
/// digests, batches and unsent emails. This includes accepted events that are not fanned out yet.
/// Later events about the same objects are not affected.
#[derive(Debug, Arguments)]
#[command(after_help = "\
Examples:
  tidings retract Comment c17 c18")]
pub(super) struct Args {
    #[arg(value_name = "TYPE")]
    kind: EventType,
    #[arg(required = true, value_name = "OBJECT")]
    objects: Vec<ObjectId>,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) async fn run(&self, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
        let retracted = app.retract().events(&self.kind, &self.objects).await?;
        for warning in &retracted.warnings {
            screen.warning(warning)?;
        }
        if self.json {
            screen.json(&retracted)?;
            return Ok(Exit::Done);
        }
        let (kind, objects) = (&self.kind, named(&retracted.objects));
        screen.line(format!("taken back: {kind} about {objects}"))?;
        let out = retracted.out;
        if out.taken > 0 {
            let events = words::count(out.taken, "event", "events");
            screen.line(format!("{events} left open batches"))?;
        }
        note_not_kept(screen, out)?;
        Ok(Exit::Done)
    }
}

/// The most keys in a message.
const NAMED: usize = 5;

/// Lists keys, such as `Comment:c1, Comment:c2 and 3 more`.
fn named(keys: &[ObjectKey]) -> String {
    let named = keys.iter().take(NAMED).map(ToString::to_string);
    let named = named.collect::<Vec<_>>().join(", ");
    match keys.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
