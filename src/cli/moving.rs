//! `tidings move`: moves the configured store into another.

use clap::Args as Arguments;

use super::exit::{Exit, Usage};
use super::ink::Ink;
use super::screen::Screen;
use super::stop::Stop;
use super::table::{Column, Table};
use super::words;
use crate::app::{mover, rehearse_move, source};
use crate::config::{Config, StoreUrl};
use crate::engine::moving::{Reopening, reopen};
use crate::wire::moving::{Account, MoveOutcome, Part};

/// Move the whole store into another, empty one
///
/// Everything is copied, then read again in both stores and compared. The configured store is
/// closed first and stays as it is; the other one can be used once both are the same. Stopped or
/// killed at any moment, it goes on when it is started again. Stop serve, worker and cron lines
/// first.
#[derive(Debug, Arguments)]
pub(super) struct Args {
    /// Where everything goes: mongodb://HOST/DATABASE, or sqlite:PATH
    #[arg(long, value_name = "URL", required_unless_present = "undo")]
    to: Option<String>,
    /// Count what there is, see that the other store is empty, and change nothing
    #[arg(long, conflicts_with = "undo")]
    dry_run: bool,
    /// Open the configured store again, whose move has not ended
    #[arg(long, conflicts_with = "to")]
    undo: bool,
    /// With --undo, open it although it was moved: what was mailed since may be mailed again
    #[arg(long, requires = "undo")]
    force: bool,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) async fn run(
        &self,
        config: &Config,
        screen: &mut Screen,
        stop: Stop,
    ) -> anyhow::Result<Exit> {
        let Some(to) = &self.to else {
            return self.reopen(config, screen).await;
        };
        let to = target(config, to)?;
        let account = if self.dry_run {
            rehearse_move(config, &to).await?
        } else {
            let bar = screen.bar("records copied and compared").until(stop);
            mover(config, &to).await?.run(&bar).await?
        };
        if self.json {
            screen.json(&account)?;
        } else {
            tell(&account, screen)?;
        }
        Ok(match account.outcome {
            MoveOutcome::Counted | MoveOutcome::Moved | MoveOutcome::Known => Exit::Done,
            MoveOutcome::Stopped => Exit::Partly,
            MoveOutcome::Differs => Exit::Failed,
        })
    }

    async fn reopen(&self, config: &Config, screen: &mut Screen) -> anyhow::Result<Exit> {
        let reopening = match self.force {
            true => Reopening::Moved,
            false => Reopening::Unmoved,
        };
        let was_closed = reopen(&*source(config).await?, reopening).await?;
        let store = &config.store;
        screen.line(match was_closed {
            true => format!("{store:?} is open again; drop the database that it was moved to"),
            false => format!("{store:?} was not closed"),
        })?;
        Ok(Exit::Done)
    }
}

/// The store that is named, if it can be one.
fn target(config: &Config, to: &str) -> Result<StoreUrl, Usage> {
    let Some(to) = StoreUrl::parse(to) else {
        return Err(Usage::new("--to names no store").instead("--to mongodb://HOST/DATABASE"));
    };
    if to == config.store {
        return Err(Usage::new(format!("{to:?} is the configured store itself")));
    }
    if matches!(to, StoreUrl::Sqlite(_)) && !config.models.is_empty() {
        let what = "[models] are read from MongoDB, and SQLite has none of them";
        return Err(Usage::new(what).instead("importing these objects, and leaving [models] out"));
    }
    Ok(to)
}

fn tell(account: &Account, screen: &mut Screen) -> anyhow::Result<()> {
    let Account { from, to, .. } = account;
    let mut table = Table::new([
        Column::new("what"),
        Column::new("records").right(),
        Column::new(""),
    ]);
    for part in account.parts.iter().filter(|part| is_worth_telling(part)) {
        let verdict = match (part.same, part.moved) {
            (Some(true), _) => "same".to_owned(),
            (_, Some(moved)) => {
                let moved = words::number(moved);
                screen.ink(Ink::Bad, format!("differs: the target holds {moved}"))
            }
            (_, None) => String::new(),
        };
        table.row([part.name.clone(), words::number(part.records), verdict]);
    }
    if !account.parts.is_empty() {
        screen.table(&table)?;
    }
    for what in &account.unmoved {
        screen.warning(format!("cannot be moved: {what}"))?;
    }
    let untold = account.unmoved_count - account.unmoved.len() as u64;
    if untold > 0 {
        screen.warning(format!("and {untold} more"))?;
    }
    let records = account.parts.iter().map(|part| part.records).sum();
    let records = words::count(records, "record", "records");
    match account.outcome {
        MoveOutcome::Counted => {
            screen.line(format!(
                "dry run: {records} would be moved from {from} to {to}"
            ))?;
        }
        MoveOutcome::Stopped => {
            screen.line(format!(
                "stopped; the same command goes on. {from} is closed"
            ))?;
        }
        MoveOutcome::Differs => {
            screen.line(format!("not moved: {to} is not the same as {from}"))?;
            screen.line("next: the same command copies and compares all of it again;")?;
            screen.line("      tidings move --undo opens the old store again")?;
        }
        MoveOutcome::Moved | MoveOutcome::Known => {
            screen.line(match account.outcome {
                MoveOutcome::Known => format!("{from} was moved to {to} before"),
                _ => format!("moved {records} from {from} to {to}: compared, and the same"),
            })?;
            screen
                .line("next: set `store` to the new one in tidings.toml, then start serve and")?;
            screen.line("      worker; the old store is closed, and can be deleted some day")?;
        }
    }
    Ok(())
}

/// Whether there is anything of it in either store.
fn is_worth_telling(part: &Part) -> bool {
    part.records > 0 || part.moved.is_some_and(|moved| moved > 0)
}
