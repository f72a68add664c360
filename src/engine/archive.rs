//! Archives old days: exports and drops them, and restores exported ones.
//!
//! A day in the window stays. So does one with pending fan-outs or with unexpired events that may
//! still be emailed, unless `force` is set (P9). An export is verified before its day is dropped,
//! and the day is dropped only if it still matches. A process holds the lease `day:<day>` while it
//! works on a day, and stops when it loses the lease. Start with [`ArchiveService::run`].
//! [`expired_records::Cleaner`] removes other expired records.

pub mod expired_records;

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;

use chrono::{SecondsFormat, TimeDelta};
use futures::FutureExt;
use futures::future::{Either, select};

use super::digest::backlog::{BacklogService, DayBacklog};
use super::{Error, Progress, Result};
use crate::context::Context;
use crate::domain::{Backlog, Day, PendingCounts};
use crate::store::{CountedRecords, LeasesToEnd};
use crate::wire::archive::{DayFate, DayReport};

mod file;

use file::ExportDraft;
pub(crate) use file::{BoundedLines, UNFINISHED_MARKER, chunk_lines, read_lines, restore_lines};
pub use file::{ExportSummary, part_number};

/// How long the lease outlives a process that died. Live processes renew it every 20 seconds.
const LEASE: TimeDelta = TimeDelta::minutes(1);

/// Archives and restores days, each under the lease of the day.
pub struct ArchiveService {
    pub(crate) context: Arc<Context>,
    /// Counts and notes the backlog of a day.
    pub backlog: BacklogService,
}

/// Selects the days to drop, and how.
#[derive(Debug, Clone)]
pub struct ArchiveRequest {
    /// The age below which days stay.
    pub keep: TimeDelta,
    /// The folder to export to before a day is dropped; `None` for no export.
    pub export: Option<PathBuf>,
    /// Whether to change nothing, and only report what would be dropped.
    pub dry_run: bool,
    /// Whether to drop days with pending fan-outs, or with events that may still be emailed (P9).
    /// Days in the window stay.
    pub force: bool,
}

impl ArchiveService {
    /// Processes all days, oldest first, and adds the outcome of each to `reports`. The caller thus
    /// knows what was dropped even if the run fails. A day that fails does not stop the others.
    pub async fn run(
        &self,
        request: &ArchiveRequest,
        progress: &dyn Progress,
        reports: &mut Vec<DayReport>,
    ) -> Result<()> {
        if let (Some(folder), false) = (&request.export, request.dry_run) {
            // A wrong folder is an error on the first night, not only when a day is old enough.
            file::create_folder(folder)?;
        }
        let now = self.context.clock.now();
        let window = self.backlog.days_to_read(now).window;
        let oldest_kept = Day::of(now - request.keep);
        let days = self.context.store.days().await?;
        let counted: Vec<CountedRecords> =
            days.iter().copied().map(CountedRecords::Stacks).collect();
        let counts = self.context.store.count(&counted).await?;
        progress.set_total(days.len() as u64);
        for (day, stacks) in days.into_iter().zip(counts) {
            let fate = if day >= window.first() {
                DayFate::InWindow
            } else if day >= oldest_kept {
                DayFate::TooYoung
            } else {
                self.archive_old_day(day, stacks, request).await.unwrap_or_else(failed)
            };
            reports.push(DayReport { day, stacks, fate });
            progress.advance(1);
        }
        Ok(())
    }

    async fn archive_old_day(
        &self,
        day: Day,
        stacks: u64,
        request: &ArchiveRequest,
    ) -> Result<DayFate> {
        if request.dry_run {
            if let Some(fate) = self.reason_to_keep(day, request).await? {
                return Ok(fate);
            }
            let file = request.export.as_ref().map(|folder| file::path(folder, day, 1));
            return Ok(DayFate::Dropped { file });
        }
        let work = self.export_and_drop(day, stacks, request).boxed();
        Ok(self.with_lease(day, work).await?.unwrap_or(DayFate::Leased))
    }

    /// Exports and drops a day whose lease this process holds. `stacks` is its number of stacks
    /// when it was listed.
    async fn export_and_drop(
        &self,
        day: Day,
        stacks: u64,
        request: &ArchiveRequest,
    ) -> Result<DayFate> {
        let store = self.context.store.as_ref();
        store.fix_day(day).await?;
        // Another process may have archived it since it was listed.
        if !store.days().await?.contains(&day) {
            return Ok(DayFate::Leased);
        }
        if let Some(fate) = self.reason_to_keep(day, request).await? {
            return Ok(fate);
        }
        let (draft, sum) = match &request.export {
            Some(folder) => {
                let draft = ExportDraft::write(store, day, folder, &self.context.owner).await?;
                let sum = draft.sum.clone();
                (Some(draft), sum)
            }
            None => (None, file::copy_documents(store, day, std::io::sink()).await?),
        };
        if sum.records == 0 {
            let is_dropped = store.drop_day(day, &sum).await?;
            // Otherwise, another process has archived it since it was listed, or writes to it now.
            let was_empty = is_dropped && stacks == 0;
            let fate = if was_empty { DayFate::Dropped { file: None } } else { DayFate::Leased };
            return Ok(fate);
        }
        // This check covers events that arrived before the export. `drop_day` detects later ones.
        if let Some(fate) = self.reason_to_keep(day, request).await? {
            return Ok(fate);
        }
        // The lease may have been lost while the process was suspended.
        if !self.take_lease(day).await? {
            return Err(lease_lost(day));
        }
        draft.as_ref().map_or(Ok(()), ExportDraft::publish)?;
        if store.drop_day(day, &sum).await? {
            return Ok(DayFate::Dropped { file: draft.map(|draft| draft.target) });
        }
        draft.as_ref().map_or(Ok(()), ExportDraft::withdraw)?;
        Ok(DayFate::Changed)
    }

    /// Returns why an old day stays, if it does.
    async fn reason_to_keep(&self, day: Day, request: &ArchiveRequest) -> Result<Option<DayFate>> {
        if request.force {
            return Ok(None);
        }
        if !request.dry_run {
            self.context.store.catch_up().await?;
        }
        let pending = self.context.store.pending(usize::MAX).await?;
        if pending.days.contains(&day) {
            return Ok(Some(DayFate::Busy));
        }
        let unexpired = self.unexpired_backlog(day, request.dry_run).await?;
        let PendingCounts { users, events } = unexpired;
        Ok((!unexpired.is_zero()).then_some(DayFate::NotEmailed { users, events }))
    }

    /// Returns the wanted events of the day that no digest included and that have not expired.
    /// Unless `dry_run`, updates the day's note: if only users who may not be emailed have any,
    /// these expire here once the day is too old.
    async fn unexpired_backlog(&self, day: Day, dry_run: bool) -> Result<PendingCounts> {
        let old = self.backlog.day(day).await?;
        let DayBacklog { backlog, in_open_deliveries } = self.backlog.count_backlog(day).await?;
        let now = self.context.clock.now();
        let unexpired = backlog.total().saturating_sub(old.expired().all);
        let is_blocked = backlog.mailable.is_zero() && in_open_deliveries.is_zero();
        let expires = is_blocked && self.backlog.days_to_read(now).is_expired(day);
        if dry_run {
            return Ok(if expires { PendingCounts::default() } else { unexpired });
        }
        if expires && !unexpired.is_zero() {
            let expired = self.backlog.expire(&old, now).await?;
            return Ok(expired.map_or(unexpired, |_| PendingCounts::default()));
        }
        let current = if unexpired.is_zero() { Backlog::default() } else { backlog };
        self.backlog.store_backlog(&old, current, now).await?;
        Ok(unexpired)
    }

    /// Restores an exported day. The whole file is verified before anything is written.
    ///
    /// A stack that starts with the file's entries is complete, so an interrupted restore can be
    /// repeated. If another writer has started a stack, the file's entries are appended.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if another process holds the day, [`Error::Damaged`] if the file is
    /// damaged.
    pub async fn restore(&self, path: &Path, progress: &dyn Progress) -> Result<ExportSummary> {
        let summary = file::verify(path)?;
        let (clock, store) = (&self.context.clock, self.context.store.as_ref());
        let days = self.backlog.days_to_read(clock.now());
        let is_expired = days.is_expired(summary.day);
        let work = async {
            store.fix_day(summary.day).await?;
            // Its events may have to be emailed, even if this process dies in between.
            self.backlog.reset_note(summary.day, clock.now()).await?;
            let restored = file::restore(store, path, &summary, is_expired, progress).await;
            self.backlog.reset_note(summary.day, clock.now()).await?;
            restored
        };
        match self.with_lease(summary.day, work.boxed()).await? {
            Some(()) => Ok(summary),
            None => Err(Error::Conflict(format!(
                "{} is being archived or restored by another process; nothing of {} was restored. \
                 If that process died, its lease ends at {}; then repeat the command",
                summary.day,
                path.display(),
                (self.context.clock.now() + LEASE).to_rfc3339_opts(SecondsFormat::Secs, true),
            ))),
        }
    }

    /// Runs `work` under the day's lease; `None` if another process holds the lease.
    async fn with_lease<T>(
        &self,
        day: Day,
        work: impl Future<Output = Result<T>> + Unpin,
    ) -> Result<Option<T>> {
        if !self.take_lease(day).await? {
            return Ok(None);
        }
        let result = match select(work, pin!(self.renew(day))).await {
            Either::Left((result, _)) => result,
            Either::Right((error, _)) => Err(error),
        };
        let lease = LeasesToEnd::Lease { name: &day_lease_name(day), owner: &self.context.owner };
        let released = self.context.store.release(&lease).await;
        let output = result?;
        released?;
        Ok(Some(output))
    }

    /// Renews the lease until that fails. Returns the failure.
    async fn renew(&self, day: Day) -> Error {
        let third = (LEASE / 3).to_std().unwrap_or_default();
        loop {
            tokio::time::sleep(third).await;
            match self.take_lease(day).await {
                Ok(true) => {}
                Ok(false) => return lease_lost(day),
                Err(error) => return error,
            }
        }
    }

    async fn take_lease(&self, day: Day) -> Result<bool> {
        let now = self.context.clock.now();
        let lease = self.context.lease_until(now + LEASE);
        let store = &self.context.store;
        Ok(store.lease(&day_lease_name(day), &lease, now).await?)
    }
}

/// Returns the outcome of a day that failed, with all causes.
fn failed(error: Error) -> DayFate {
    let why = format!("{:#}", anyhow::Error::from(error));
    tracing::error!(why, "a day could not be archived");
    DayFate::Failed { why }
}

/// Returns the name of the day's lease.
pub(crate) fn day_lease_name(day: Day) -> String {
    format!("day:{day}")
}

fn lease_lost(day: Day) -> Error {
    Error::Conflict(format!("another process took over {day}; the day stays"))
}
