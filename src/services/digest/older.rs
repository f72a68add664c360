//! Counts, while people are looked at, what they are owed of days that have left the window.
//!
//! The rule: only a run that looks at everybody may note what it counted.

use chrono::{DateTime, Utc};
use std::collections::BTreeMap;

use super::{Digests, Learned};
use crate::domain::digest::wanted;
use crate::domain::stack::Pending;
use crate::domain::{Day, Owed, PersonStacks, Reach, User};
use crate::services::Result;
use crate::services::owed::OldDay;
use crate::services::suppressions::Suppressed;

/// What was counted.
pub(super) struct Older {
    /// The window begins there.
    from: Day,
    days: BTreeMap<Day, Owed>,
    /// Each person once.
    pub all: Owed,
    /// Whether not everybody was looked at.
    pub partly: bool,
}

impl Older {
    pub fn new(reach: &Reach) -> Self {
        Self {
            from: reach.window.first(),
            days: BTreeMap::new(),
            all: Owed::NOTHING,
            partly: false,
        }
    }

    /// One person's events of these days.
    fn add<'a>(&mut self, events: impl Iterator<Item = &'a Pending<'a>>) {
        let mut of_days: BTreeMap<Day, u64> = BTreeMap::new();
        for pending in events {
            *of_days.entry(pending.position.stack.day).or_default() += 1;
        }
        self.all.add(of_days.values().sum());
        for (day, events) in of_days {
            self.days.entry(day).or_default().add(events);
        }
    }
}

impl Digests {
    /// Counts what these people are owed of days before the window.
    pub(super) async fn count_older(
        &self,
        people: &[&PersonStacks],
        users: &[Option<User>],
        suppressed: &Suppressed,
        learned: &mut Learned,
    ) -> Result<()> {
        let Learned { catalogue, older } = learned;
        let mut owed: Vec<Vec<Pending<'_>>> = Vec::new();
        for (person, user) in people.iter().zip(users) {
            let begin = |day: Day| day < older.from;
            let mut stacks = person.stacks.iter();
            if !stacks.any(|stack| begin(stack.id.day)) {
                continue;
            }
            let mailed = |user: &&User| self.owed.may_be_mailed(user, suppressed);
            let Some(user) = user.as_ref().filter(mailed) else {
                continue;
            };
            let mut events = wanted(&person.pending(), user, &self.policies);
            events.retain(|pending| begin(pending.position.stack.day));
            owed.push(events);
        }
        let events = owed.iter().flatten();
        catalogue.load(events.map(|pending| pending.event)).await?;
        for events in &owed {
            let applies = |pending: &&Pending<'_>| catalogue.applies(pending.event).is_some();
            older.add(events.iter().filter(applies));
        }
        Ok(())
    }

    /// Notes what was owed of each of these days, now that everybody was looked at.
    pub(super) async fn note_older(
        &self,
        days: &[OldDay],
        older: &Older,
        at: DateTime<Utc>,
    ) -> Result<()> {
        for old in days {
            let owed = older.days.get(&old.day).copied().unwrap_or_default();
            self.owed.note(old, owed, at).await?;
        }
        self.owed.note_all(older.all, at).await?;
        Ok(())
    }
}
