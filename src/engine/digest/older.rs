//! Counts the backlog of days before the window while a run reads its users.
//!
//! Only a run over all users may store the counts.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};

use crate::domain::stack::{BadStack, EventAt};
use crate::domain::{Backlog, Day, DaysRead, PendingCounts, PersonStacks, User};
use crate::engine::Result;
use crate::engine::digest::owed::{OldDay, OwedDays, UserBacklog};
use crate::engine::eligibility::catalog::Catalog;
use crate::engine::feedback::suppressions::Suppressed;

pub(super) struct Older {
    /// The first day of the window.
    pub from: Day,
    days: BTreeMap<Day, Backlog>,
    /// Days with a stack that could not be read. Their backlog is incomplete.
    passed_over: BTreeSet<Day>,
    /// The total, with each user once.
    pub all: Backlog,
    /// Whether some users were not read.
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

    /// Records stacks that could not be read.
    pub(super) fn pass_over(&mut self, bad: &[BadStack]) {
        self.passed_over.extend(bad.iter().map(|stack| stack.day));
    }

    fn add(&mut self, found: &UserBacklog<'_>) {
        self.add_part(&found.owed, |backlog| &mut backlog.owed);
        self.add_part(&found.blocked, |backlog| &mut backlog.blocked);
    }

    fn add_part(&mut self, events: &[EventAt<'_>], part: fn(&mut Backlog) -> &mut PendingCounts) {
        let mut of_days: BTreeMap<Day, u64> = BTreeMap::new();
        for pending in events {
            *of_days.entry(pending.position.stack.day).or_default() += 1;
        }
        part(&mut self.all).add(of_days.values().sum());
        for (day, events) in of_days {
            part(self.days.entry(day).or_default()).add(events);
        }
    }

    /// Counts the backlog of these users before the window.
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

    /// Stores the backlog of each of these days after all users were read. A day with an unreadable
    /// stack is omitted. The next run reads it again, until that stack is repaired or too old.
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
