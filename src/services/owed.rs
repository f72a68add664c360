//! Days that have left the window while somebody is still owed something of them.
//!
//! The rule (P3): such a day is read by every run until it was read whole and nobody was owed
//! anything, which is noted. What is older than `digest.max_age` is given up: counted once, noted,
//! reported. A note is only changed from what was read ([`Notes::swap_note`]), so whoever changes a
//! day while it is read ([`OwedDays::disturb`]) is not overruled.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use futures::StreamExt;

use super::Result;
use super::catalog::{Catalog, CatalogSource, Meant};
use super::mutes;
use super::skip_seen::SkipSeen;
use super::suppressions::Suppressed;
use crate::clock::Ids;
use crate::domain::digest::wanted;
use crate::domain::stack::EventAt;
use crate::domain::start::hide_earlier;
use crate::domain::{
    Day, DayNote, DaysRead, Delivery, LastLook, Owed, PersonStacks, Policies, Schedule, User,
    UserId, Window,
};
use crate::store::{
    self, Days, Deliveries, DeliveryFilter, Directory, Journal, Notes, Stacks, Suppressions,
};
use crate::wire::status::OlderDays;

/// Finds out and notes what people are owed of days that have left the window.
#[derive(Clone)]
pub struct OwedDays {
    pub(crate) days: Arc<dyn Days>,
    pub(crate) stacks: Arc<dyn Stacks>,
    pub(crate) notes: Arc<dyn Notes>,
    pub(crate) directory: Arc<dyn Directory>,
    pub(crate) catalog: CatalogSource,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) suppressions: Arc<dyn Suppressions>,
    pub(crate) deliveries: Arc<dyn Deliveries>,
    pub(crate) policies: Arc<Policies>,
    pub(crate) ids: Arc<Ids>,
    /// Knows what was seen, so that nobody is owed it.
    pub skip_seen: SkipSeen,
    /// What holds for people who did not choose cadence, weekday, hour or time zone.
    pub schedule: Schedule,
    /// How many days before today the window reaches back (`window.days_back`).
    pub window_back: u32,
    /// How old an event may be that is still mailed (`digest.max_age`).
    pub max_age: TimeDelta,
}

/// A day that has left the window, with its note as it was read.
#[derive(Debug, Clone)]
pub struct OldDay {
    /// Which day, of UTC.
    pub day: Day,
    read: Option<String>,
    /// What was noted of it; `None` if there is no note, or it cannot be read.
    pub note: Option<DayNote>,
}

/// The days before the window of which somebody may be owed something, oldest first.
#[derive(Debug, Default)]
pub struct OldDays {
    /// Their events are still mailed.
    pub older: Vec<OldDay>,
    /// What is owed of them is to be given up.
    pub too_old: Vec<OldDay>,
}

/// What is owed of one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// All that people who get digests are owed of it.
    pub owed: Owed,
    /// What of it an open delivery covers, so that it is about to be mailed.
    pub in_hand: Owed,
}

/// The note that says what people were owed when a run last looked at everybody.
const LAST_LOOK: &str = "owed";

fn read_look(text: &str) -> Option<LastLook> {
    serde_json::from_str(text).ok()
}

/// People looked up at once.
const CHUNK: usize = 1_000;

impl OwedDays {
    /// Which days count at that moment: the window, and those that are not too old.
    pub fn days_read(&self, at: DateTime<Utc>) -> DaysRead {
        DaysRead::of(at, self.window_back, self.max_age)
    }

    /// The days before the window that are still to be read: two small look-ups where there are
    /// none.
    pub async fn look(&self, days: &DaysRead) -> store::Result<OldDays> {
        let standing = self.days.days().await?;
        let mut notes: HashMap<Day, String> = self
            .notes
            .notes(DayNote::PREFIX)
            .await?
            .into_iter()
            .filter_map(|(name, text)| Some((DayNote::day(&name)?, text)))
            .collect();
        let mut found = OldDays::default();
        for day in standing {
            let read = notes.remove(&day);
            let note = read.as_deref().and_then(DayNote::read);
            let clear = note.as_ref().is_some_and(DayNote::is_clear);
            let old = OldDay { day, read, note };
            if days.is_older(day) && !clear {
                found.older.push(old);
            } else if days.is_too_old(day) && !clear {
                found.too_old.push(old);
            }
        }
        Ok(found)
    }

    /// One day with its note.
    pub async fn day(&self, day: Day) -> store::Result<OldDay> {
        let read = self.notes.note(&DayNote::name(day)).await?;
        let note = read.as_deref().and_then(DayNote::read);
        Ok(OldDay { day, read, note })
    }

    /// Notes what was owed of a day that was read whole. Nothing is noted if the day was changed
    /// since.
    pub async fn note(&self, old: &OldDay, owed: Owed, at: DateTime<Utc>) -> store::Result<()> {
        let given_up = old.note.as_ref().and_then(|note| note.given_up);
        self.swap(old, Some(owed), given_up, at).await?;
        Ok(())
    }

    /// Notes what people are owed of all these days, for [`Self::told`].
    pub async fn note_all(&self, owed: Owed, at: DateTime<Utc>) -> store::Result<()> {
        let read = self.notes.note(LAST_LOOK).await?;
        let before = read.as_deref().and_then(read_look);
        let was_nothing = before.is_none_or(|look| look.owed.is_nothing());
        if was_nothing && owed.is_nothing() {
            return Ok(());
        }
        let look = serde_json::to_string(&LastLook { at, owed }).unwrap_or_default();
        // Who was quicker has looked as lately.
        let noted = self
            .notes
            .swap_note(LAST_LOOK, read.as_deref(), Some(&look));
        noted.await.map(drop)
    }

    /// What is known of days before the window without reading them.
    pub async fn told(&self) -> store::Result<OlderDays> {
        let look = self.notes.note(LAST_LOOK).await?;
        let look = look.as_deref().and_then(read_look);
        let notes = self.notes.notes(DayNote::PREFIX).await?;
        let given_up = notes.iter().filter_map(|(name, text)| {
            let given_up = DayNote::read(text)?.given_up?;
            Some((DayNote::day(name)?, given_up))
        });
        Ok(OlderDays {
            owed: look.filter(|look| !look.owed.is_nothing()),
            given_up: given_up.collect(),
        })
    }

    /// The day is changed by somebody: what was noted of it holds no more.
    pub async fn disturb(&self, day: Day, at: DateTime<Utc>) -> store::Result<()> {
        loop {
            let old = self.day(day).await?;
            let given_up = old.note.as_ref().and_then(|note| note.given_up);
            if self.swap(&old, None, given_up, at).await? {
                return Ok(());
            }
        }
    }

    /// Gives up what is owed of a day that is too old: says how much that is, on top of what was
    /// given up of it before. Nothing is given up while a delivery that covers any of it is open.
    pub async fn give_up(&self, old: &OldDay, at: DateTime<Utc>) -> Result<Option<Owed>> {
        self.stacks.catch_up().await?;
        let count = self.count(old.day).await?;
        if !count.in_hand.is_nothing() {
            return Ok(None);
        }
        let before = old.note.as_ref().and_then(|note| note.given_up);
        let new = count.owed.without(before.unwrap_or_default());
        let all = before.unwrap_or_default().plus(new);
        let given_up = (!all.is_nothing()).then_some(all);
        let noted = self.swap(old, Some(Owed::NOTHING), given_up, at).await?;
        Ok(noted.then_some(new))
    }

    /// How many people are owed how many events of one day, as things stand.
    pub async fn count(&self, day: Day) -> Result<Count> {
        let mut catalog = self.catalog.of_mails();
        let mut count = Count::default();
        let mut chunks = self.stacks.scan(Window::ending(day, 0), None, CHUNK);
        while let Some(chunk) = chunks.next().await {
            let mut chunk = chunk?;
            catalog
                .leave_out_taken_back(&mut chunk, Meant::Uncovered)
                .await?;
            self.skip_seen.leave_out(&mut chunk).await?;
            chunk.retain(|person| !person.covers().is_empty());
            let ids: Vec<UserId> = chunk.iter().map(|person| person.user.clone()).collect();
            let users = self.directory.users(&ids).await?;
            hide_earlier(&mut chunk, &users);
            let (muting, journal) = (mutes::muting(&mut chunk, &users), &*self.journal);
            mutes::leave_out(muting, mutes::uncovered, &mut catalog, journal).await?;
            let people: Vec<&PersonStacks> = chunk.iter().collect();
            let suppressed = Suppressed::among(&*self.suppressions, users.iter().flatten()).await?;
            let owed = self
                .owed_to(&people, &users, &suppressed, &mut catalog, |_| true)
                .await?;
            let ids: Vec<UserId> = owed.iter().map(|(user, _)| (*user).clone()).collect();
            let open = DeliveryFilter::OpenDigests(&ids);
            let open = self.deliveries.find_deliveries(&open, ids.len()).await?;
            let covering = open.iter().filter(|row| covers(row, day));
            let covered: HashSet<&UserId> = covering.map(|row| &row.user).collect();
            for (user, events) in owed {
                let events = events.len() as u64;
                count.owed.add(events);
                if covered.contains(user) {
                    count.in_hand.add(events);
                }
            }
        }
        Ok(count)
    }

    /// What each of these people is owed of those days, as things stand. Who is owed nothing is
    /// left out.
    pub async fn owed_to<'a>(
        &self,
        people: &[&'a PersonStacks],
        users: &[Option<User>],
        suppressed: &Suppressed,
        catalog: &mut Catalog,
        of: impl Fn(Day) -> bool,
    ) -> Result<Vec<(&'a UserId, Vec<EventAt<'a>>)>> {
        let mut owed: Vec<(&UserId, Vec<EventAt<'_>>)> = Vec::new();
        for (person, user) in people.iter().zip(users) {
            let is_of = person.stacks.iter().any(|stack| of(stack.id.day));
            let Some(user) = user.as_ref().filter(|_| is_of) else {
                continue;
            };
            let Some((_, extent)) = suppressed.digests(user, &self.schedule) else {
                continue;
            };
            let events = wanted(person, user, &self.policies);
            let mut events = extent.narrow(events, &self.policies);
            events.retain(|pending| of(pending.position.stack.day));
            owed.push((&person.user, events));
        }
        let events = owed.iter().flat_map(|(_, events)| events);
        catalog.load(events.map(|pending| pending.event)).await?;
        owed.retain_mut(|(_, events)| {
            events.retain(|pending| catalog.applies(pending.event).is_some());
            !events.is_empty()
        });
        Ok(owed)
    }

    async fn swap(
        &self,
        old: &OldDay,
        owed: Option<Owed>,
        given_up: Option<Owed>,
        at: DateTime<Utc>,
    ) -> store::Result<bool> {
        let note = DayNote {
            id: self.ids.next(at),
            at,
            owed,
            given_up,
        };
        let text = serde_json::to_string(&note).unwrap_or_default();
        let name = DayNote::name(old.day);
        self.notes
            .swap_note(&name, old.read.as_deref(), Some(&text))
            .await
    }
}

fn covers(row: &Delivery, day: Day) -> bool {
    row.watermarks.iter().any(|(stack, _)| stack.day == day)
}
