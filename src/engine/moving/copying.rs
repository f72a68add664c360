//! Copies kinds, portion by portion, and days, chunk by chunk.
//!
//! The rule: what is put stands before it is noted as copied, so a run that dies puts at most one
//! portion, or the chunks of one day, once more, which changes nothing. A record that the target
//! does not take keeps no other from being copied.

use futures::TryStreamExt;

use super::{Mover, unmoved};
use crate::domain::Day;
use crate::engine::archive::restore_lines;
use crate::engine::crash::point;
use crate::engine::{Result, Watcher};
use crate::store::{Kept, Kind, Meeting, MoveNote, RawStack, Reached};
use crate::wire::moving::Account;

impl Mover {
    /// Copies what was not copied yet; no if it was asked to end before.
    pub(super) async fn copy(
        &self,
        note: &mut MoveNote,
        watcher: &dyn Watcher,
        account: &mut Account,
    ) -> Result<bool> {
        let days = self.source.days().await?;
        let next_day = |from: Day| days.iter().copied().find(|day| *day >= from);
        let mut reached = note.reached.clone().unwrap_or(super::START);
        loop {
            reached = match reached {
                _ if watcher.stopping() => return Ok(false),
                Reached::Kind { kind, after } => {
                    let portion = self.source.portion(kind, after.as_deref()).await?;
                    self.put(kind, &portion.kept, account).await?;
                    watcher.advance(portion.kept.len() as u64);
                    point("move-put");
                    let next = Kind::ALL.into_iter().find(|other| *other > kind);
                    match (portion.next, next, days.first()) {
                        (Some(after), ..) => Reached::Kind {
                            kind,
                            after: Some(after),
                        },
                        (None, Some(kind), _) => Reached::Kind { kind, after: None },
                        (None, None, Some(day)) => Reached::Day(*day),
                        (None, None, None) => Reached::End,
                    }
                }
                Reached::Day(day) => match next_day(day) {
                    None => Reached::End,
                    Some(day) => {
                        if !self.copy_day(day, watcher, account).await? {
                            return Ok(false);
                        }
                        let later = days.iter().copied().find(|later| *later > day);
                        later.map_or(Reached::End, Reached::Day)
                    }
                },
                Reached::End => return Ok(true),
            };
            self.reached(note, reached.clone()).await?;
            point("move-noted");
        }
    }

    /// Puts these records; those that the target does not take are told.
    async fn put(&self, kind: Kind, kept: &[Kept], account: &mut Account) -> Result<()> {
        match self.target.put(kind, kept).await {
            Err(error) if !error.is_outage() => {}
            put => return Ok(put?),
        }
        for one in kept {
            match self.target.put(kind, std::slice::from_ref(one)).await {
                Err(error) if !error.is_outage() => {
                    unmoved(account, format!("{}: {error}", kind.as_str()));
                }
                put => put?,
            }
        }
        Ok(())
    }

    /// Copies a day; no if it was asked to end before.
    async fn copy_day(
        &self,
        day: Day,
        watcher: &dyn Watcher,
        account: &mut Account,
    ) -> Result<bool> {
        let mut chunks = self.source.export_day(day);
        while let Some(chunk) = chunks.try_next().await? {
            if watcher.stopping() {
                return Ok(false);
            }
            self.restore(day, &chunk, account).await?;
            watcher.advance(chunk.len() as u64);
            point("move-restored");
        }
        Ok(true)
    }

    async fn restore(&self, day: Day, lines: &[RawStack], account: &mut Account) -> Result<()> {
        let refused = restore_lines(&*self.target, day, lines, Meeting::Same).await?;
        let refused = refused.into_iter();
        refused.for_each(|error| unmoved(account, error.to_string()));
        Ok(())
    }
}
