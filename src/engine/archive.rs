//! Drops old days whole, exported first if that is asked, and brings them back.
//!
//! The rule (P9): a day in the window stays, and so does one that a fan-out still writes to or that
//! holds something which somebody should have been mailed; only `Force` drops these two. What a run
//! of digests has given up is owed to nobody. An export is written, checksummed and read back
//! before its day goes, and the day goes only if what was exported is what stands. One day has one
//! owner at a time: whoever archives or restores it has its lease ([`hold`]).

pub mod clean;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{SecondsFormat, TimeDelta};
use futures::FutureExt;

use super::digest::owed::OwedDays;
use super::{Error, Result, Watcher};
use crate::context::Context;
use crate::domain::{Backlog, Day, Owed};
use crate::store::Counted;
use crate::wire::archive::{DayReport, Fate};

mod file;
mod hold;

pub use file::{Summary, part_of};
pub(crate) use file::{chunks, lines, restore_lines};
pub(crate) use hold::name as lease_of;

/// Drops old days and brings exported ones back, each under the lease of its day.
pub struct Archive {
    pub(crate) context: Arc<Context>,
    /// Says what people are still owed of a day, and notes it.
    pub owed: OwedDays,
}

/// Which days are to go, and what happens to them first.
#[derive(Debug, Clone)]
pub struct Request {
    /// Days younger than this stay.
    pub keep: TimeDelta,
    /// Where to export each day before it goes.
    pub export: Option<PathBuf>,
    /// Whether anything is changed.
    pub effect: Effect,
    /// What keeps an old day from being dropped.
    pub protection: Protection,
}

/// Whether days are dropped, or only looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Drops days that may go, exported first if asked.
    Drop,
    /// Says what would be dropped and changes nothing.
    Rehearse,
}

/// How much protects an old day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// What P9 protects stays.
    Keep,
    /// Only days in the window stay.
    Force,
}

impl Archive {
    /// Goes through all days, oldest first, and notes in `reports` what became of each: so that
    /// whoever asked knows what is dropped already where the run fails. A day that fails keeps no
    /// other from going.
    pub async fn run(
        &self,
        request: &Request,
        progress: &dyn Watcher,
        reports: &mut Vec<DayReport>,
    ) -> Result<()> {
        let now = self.context.clock.now();
        let window = self.owed.days_read(now).window;
        let oldest_kept = Day::of(now - request.keep);
        let days = self.context.store.days().await?;
        let counted: Vec<Counted> = days.iter().copied().map(Counted::Stacks).collect();
        let counts = self.context.store.count(&counted).await?;
        progress.total(days.len() as u64);
        for (day, stacks) in days.into_iter().zip(counts) {
            let fate = if day >= window.first() {
                Fate::InWindow
            } else if day >= oldest_kept {
                Fate::Young
            } else {
                self.old_day(day, stacks, request)
                    .await
                    .unwrap_or_else(failed)
            };
            reports.push(DayReport { day, stacks, fate });
            progress.advance(1);
        }
        Ok(())
    }

    async fn old_day(&self, day: Day, stacks: u64, request: &Request) -> Result<Fate> {
        if request.effect == Effect::Rehearse {
            if let Some(fate) = self.kept(day, request).await? {
                return Ok(fate);
            }
            let file = request.export.as_ref();
            let file = file.map(|folder| file::path(folder, day, 1));
            return Ok(Fate::Dropped { file });
        }
        let work = self.export_and_drop(day, stacks, request).boxed();
        Ok(self.holding(day, work).await?.unwrap_or(Fate::Held))
    }

    /// Exports and drops a day whose lease is ours, and that had so many stacks when it was listed.
    async fn export_and_drop(&self, day: Day, stacks: u64, request: &Request) -> Result<Fate> {
        self.context.store.fix_day(day).await?;
        // Somebody else may have archived it since it was listed, and before it was counted.
        if !self.context.store.days().await?.contains(&day) {
            return Ok(Fate::Held);
        }
        if let Some(fate) = self.kept(day, request).await? {
            return Ok(fate);
        }
        let days = self.context.store.as_ref();
        let (draft, sum) = match &request.export {
            Some(folder) => {
                let draft = file::Draft::write(days, day, folder, &self.context.owner).await?;
                let sum = draft.sum.clone();
                (Some((draft, folder)), sum)
            }
            None => (None, file::sum(days, day).await?),
        };
        if sum.stacks == 0 {
            let done = self.context.store.drop_day(day, &sum).await?;
            // Somebody else has archived it since it was listed, unless there was nothing in it.
            return Ok(match (done, stacks) {
                (true, 0) => Fate::Dropped { file: None },
                _ => Fate::Held,
            });
        }
        // What came before it was read is looked at now; what came later is found when it goes.
        if let Some(fate) = self.kept(day, request).await? {
            return Ok(fate);
        }
        self.still_ours(day).await?;
        let published = draft.map(|(draft, folder)| draft.publish(folder));
        let published = published.transpose()?;
        if self.context.store.drop_day(day, &sum).await? {
            let file = published.map(|published| published.file);
            return Ok(Fate::Dropped { file });
        }
        published.map_or(Ok(()), file::Published::withdraw)?;
        Ok(Fate::Changed)
    }

    /// Why a day stays that is old enough to go, if it does.
    async fn kept(&self, day: Day, request: &Request) -> Result<Option<Fate>> {
        if request.protection == Protection::Force {
            return Ok(None);
        }
        if request.effect == Effect::Drop {
            self.context.store.catch_up().await?;
        }
        if self.context.store.busy_days().await?.contains(&day) {
            return Ok(Some(Fate::Busy));
        }
        let owed = self.still_owed(day, request.effect).await?;
        let Owed { people, events } = owed;
        Ok((!owed.is_nothing()).then_some(Fate::Unmailed { people, events }))
    }

    /// The wanted events of that day that no digest included and that did not expire. Where only
    /// users who may not be emailed have any, they expire here once the day is too old.
    async fn still_owed(&self, day: Day, effect: Effect) -> Result<Owed> {
        let old = self.owed.day(day).await?;
        let (count, now) = (self.owed.count(day).await?, self.context.clock.now());
        let left = count.backlog.all().without(old.expired().all);
        let is_blocked = count.backlog.owed.is_nothing() && count.in_hand.is_nothing();
        let expires = is_blocked && self.owed.days_read(now).is_too_old(day);
        if effect == Effect::Rehearse {
            return Ok(if expires { Owed::NOTHING } else { left });
        }
        if expires && !left.is_nothing() {
            let expired = self.owed.give_up(&old, now).await?;
            return Ok(expired.map_or(left, |_| Owed::NOTHING));
        }
        let noted = match left.is_nothing() {
            true => Backlog::default(),
            false => count.backlog,
        };
        self.owed.note(&old, noted, now).await?;
        Ok(left)
    }

    /// Brings an exported day back; the whole file is verified before anything is written. A stack
    /// that begins with the file's entries is complete, so a restore that died is resumed. Where
    /// another writer began a stack, the file's entries go behind it.
    pub async fn restore(&self, path: &Path, progress: &dyn Watcher) -> Result<Summary> {
        let summary = file::verify(path)?;
        let days = self.owed.days_read(self.context.clock.now());
        let is_expired = days.is_too_old(summary.day);
        let work = async {
            self.context.store.fix_day(summary.day).await?;
            // Events of it may have to be mailed, also if this process dies in between.
            self.owed
                .disturb(summary.day, self.context.clock.now())
                .await?;
            let restored = file::restore(
                self.context.store.as_ref(),
                path,
                &summary,
                is_expired,
                progress,
            )
            .await;
            self.owed
                .disturb(summary.day, self.context.clock.now())
                .await?;
            restored
        };
        match self.holding(summary.day, work.boxed()).await? {
            Some(()) => Ok(summary),
            None => Err(Error::Conflict(format!(
                "{} is being archived or restored by another process; nothing of {} was restored. \
                 If that process died, its lease ends at {}; then repeat the command",
                summary.day,
                path.display(),
                self.free_at().to_rfc3339_opts(SecondsFormat::Secs, true),
            ))),
        }
    }
}

/// What is told of a day that could not be dealt with: with all causes.
fn failed(error: Error) -> Fate {
    let mut why = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        why = format!("{why}: {error}");
        cause = error.source();
    }
    tracing::error!(why, "a day could not be archived");
    Fate::Failed { why }
}
