//! Counts the backlog of days that have left the window while a run reads its users.
//!
//! Only a run over all users may note the counts.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};

use crate::domain::stack::{BadStack, EventAt};
use crate::domain::{Backlog, Day, DaysRead, Owed, PersonStacks, User};
use crate::engine::Result;
use crate::engine::digest::owed::{OldDay, OwedDays, UserBacklog};
use crate::engine::eligibility::catalog::Catalog;
use crate::engine::feedback::suppressions::Suppressed;

/// What was counted.
pub(super) struct Older {
    /// The window begins there.
    pub from: Day,
    days: BTreeMap<Day, Backlog>,
    /// Of these days a stack was passed over, so that what is owed of them is not known.
    passed_over: BTreeSet<Day>,
    /// Each person once.
    pub all: Backlog,
    /// Whether not everybody was looked at.
    pub partly: bool,
}

impl Older {
    pub(super) fn new(days: &DaysRead) -> Self {
        Self {
            from: days.window.first(),
            days: BTreeMap::new(),
            passed_over: BTreeSet::new(),
            all: Backlog::default(),
            partly: false,
        }
    }

    /// These stacks were passed over.
    pub(super) fn pass_over(&mut self, bad: &[BadStack]) {
        self.passed_over.extend(bad.iter().map(|stack| stack.day));
    }

    /// One user's events of these days.
    fn add(&mut self, found: &UserBacklog<'_>) {
        self.add_part(&found.owed, |backlog| &mut backlog.owed);
        self.add_part(&found.blocked, |backlog| &mut backlog.blocked);
    }

    fn add_part(&mut self, events: &[EventAt<'_>], part: fn(&mut Backlog) -> &mut Owed) {
        let mut of_days: BTreeMap<Day, u64> = BTreeMap::new();
        for pending in events {
            *of_days.entry(pending.position.stack.day).or_default() += 1;
        }
        part(&mut self.all).add(of_days.values().sum());
        for (day, events) in of_days {
            part(self.days.entry(day).or_default()).add(events);
        }
    }

    /// Counts what these people are owed of days before the window.
    pub(super) async fn count(
        &mut self,
        owed: &OwedDays,
        catalog: &mut Catalog,
        people: &[PersonStacks],
        users: &[Option<User>],
        suppressed: &Suppressed,
    ) -> Result<()> {
        let from = self.from;
        let found = owed
            .backlogs(people, users, suppressed, catalog, |day| day < from)
            .await?;
        for of in &found {
            self.add(of);
        }
        Ok(())
    }

    /// Notes what was owed of each of these days, now that everybody was looked at. A day of which
    /// a stack was passed over is not noted: it is read again by the next run, until that stack is
    /// repaired or too old.
    pub(super) async fn note(
        &self,
        owed: &OwedDays,
        days: &[&OldDay],
        at: DateTime<Utc>,
    ) -> Result<()> {
        let known = |old: &&&OldDay| !self.passed_over.contains(&old.day);
        for old in days.iter().filter(known) {
            let sum = self.days.get(&old.day).copied().unwrap_or_default();
            owed.note(old, sum, at).await?;
        }
        owed.note_all(self.all, at).await?;
        Ok(())
    }
}
