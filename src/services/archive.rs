//! Forgets old days by dropping them whole, and brings them back.
//!
//! The rule (P9): a day in the window stays, and so does one that a fan-out still writes to or that holds something which somebody should have
//! been mailed; only `Force` drops these two. An export is written, checksummed and read back before its day goes.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::TimeDelta;
use futures::StreamExt;

use super::catalogue::Catalogue;
use super::suppressions::Suppressed;
use super::{Progress, Result};
use crate::clock::Clock;
use crate::domain::digest::wanted;
use crate::domain::{Cadence, Day, Policies, Schedule, User, UserId, Window};
use crate::store::{Days, Directory, Journal, Objects, Stacks, Suppressions};

mod file;

pub use file::Summary;

pub struct Archive {
    pub days: Arc<dyn Days>,
    pub stacks: Arc<dyn Stacks>,
    pub journal: Arc<dyn Journal>,
    pub directory: Arc<dyn Directory>,
    pub objects: Arc<dyn Objects>,
    pub suppressions: Arc<dyn Suppressions>,
    pub policies: Arc<Policies>,
    pub clock: Arc<dyn Clock>,
    pub schedule: Schedule,
    pub window_back: u32,
}

#[derive(Debug, Clone)]
pub struct Request {
    /// Days younger than this stay.
    pub keep: TimeDelta,
    /// Where to export each day before it goes.
    pub export: Option<PathBuf>,
    pub effect: Effect,
    pub protection: Protection,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Drop,
    /// Says what would be dropped and changes nothing.
    Rehearse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// What P9 protects stays.
    Keep,
    /// Only days in the window stay.
    Force,
}

/// What became of a day.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct DayReport {
    pub day: Day,
    pub stacks: u64,
    #[serde(flatten)]
    pub fate: Fate,
}

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "fate")]
pub enum Fate {
    InWindow,
    /// Younger than what is dropped.
    Young,
    /// A fan-out still writes to it.
    Busy,
    /// So many people should have been mailed so many events.
    Unmailed {
        people: u64,
        events: u64,
    },
    /// Dropped, or would be; with the file that holds it.
    Dropped {
        file: Option<PathBuf>,
    },
}

/// People looked up at once.
const CHUNK: usize = 1_000;

impl Archive {
    /// Goes through all days, oldest first, and notes in `reports` what became of each: so that whoever asked knows what is dropped
    /// already where a later day fails.
    pub async fn run(
        &self,
        request: &Request,
        progress: &dyn Progress,
        reports: &mut Vec<DayReport>,
    ) -> Result<()> {
        let now = self.clock.now();
        let window = Window::ending(Day::of(now), self.window_back);
        let oldest_kept = Day::of(now - request.keep);
        let days = self.days.days().await?;
        let busy: HashSet<Day> = self.journal.busy_days().await?.into_iter().collect();
        progress.total(days.len() as u64);
        for info in days {
            let day = info.day;
            let fate = if day >= window.first() {
                Fate::InWindow
            } else if day >= oldest_kept {
                Fate::Young
            } else {
                self.old_day(day, request, busy.contains(&day)).await?
            };
            reports.push(DayReport {
                day,
                stacks: info.stacks,
                fate,
            });
            progress.advance(1);
        }
        Ok(())
    }

    async fn old_day(&self, day: Day, request: &Request, busy: bool) -> Result<Fate> {
        if request.protection == Protection::Keep {
            if busy {
                return Ok(Fate::Busy);
            }
            let (people, events) = self.unmailed(day).await?;
            if people > 0 {
                return Ok(Fate::Unmailed { people, events });
            }
        }
        let file = match &request.export {
            None => None,
            Some(folder) if request.effect == Effect::Rehearse => Some(file::path(folder, day)),
            Some(folder) => Some(file::write(self.days.as_ref(), day, folder).await?),
        };
        if request.effect == Effect::Drop {
            // An old event may have been accepted while the day was looked at.
            if request.protection == Protection::Keep
                && self.journal.busy_days().await?.contains(&day)
            {
                return Ok(Fate::Busy);
            }
            self.days.drop_day(day).await?;
        }
        Ok(Fate::Dropped { file })
    }

    /// How many people should have been mailed how many events of that day, and were not.
    async fn unmailed(&self, day: Day) -> Result<(u64, u64)> {
        let mut catalogue = Catalogue::new(Arc::clone(&self.objects), Arc::clone(&self.policies));
        let (mut people, mut events) = (0, 0);
        let mut chunks = self.stacks.scan(Window::between(day, day), None, CHUNK);
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk?;
            let open: Vec<_> = chunk
                .iter()
                .filter(|person| !person.reach().is_empty())
                .collect();
            let ids: Vec<UserId> = open.iter().map(|person| person.user.clone()).collect();
            let users = self.directory.users(&ids).await?;
            let suppressed = Suppressed::among(&*self.suppressions, users.iter().flatten()).await?;
            catalogue
                .load(
                    open.iter()
                        .flat_map(|person| person.pending())
                        .map(|pending| pending.event),
                )
                .await?;
            for (person, user) in open.iter().zip(&users) {
                let mailed = |user: &&User| self.may_be_mailed(user, &suppressed);
                let Some(user) = user.as_ref().filter(mailed) else {
                    continue;
                };
                let left = wanted(&person.pending(), user, &self.policies);
                let left = left
                    .iter()
                    .filter(|pending| catalogue.applies(pending.event).is_some())
                    .count() as u64;
                people += u64::from(left > 0);
                events += left;
            }
        }
        Ok((people, events))
    }

    fn may_be_mailed(&self, user: &User, suppressed: &Suppressed) -> bool {
        suppressed.mailable(user).is_ok() && user.schedule(&self.schedule).cadence != Cadence::Never
    }

    /// Brings an exported day back, exactly; the whole file is verified before anything is written.
    pub async fn restore(&self, path: &Path, progress: &dyn Progress) -> Result<Summary> {
        file::restore(self.days.as_ref(), path, progress).await
    }
}
