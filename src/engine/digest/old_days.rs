//! The backlog of days that have left the window.
//!
//! A full run reads such a day until it finds no wanted event there, and notes the counts. Events
//! older than `digest.max_age` expire: they are counted once, noted and reported (P3). A note only
//! replaces the note that was read ([`crate::store::Notes::swap_note`]). If the day changes
//! meanwhile, the note of that change ([`BacklogDays::disturb`]) is kept.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures::StreamExt;

use crate::context::Context;
use crate::domain::day_stack::{BadStack, EventAt};
use crate::domain::digest_content::wanted;
use crate::domain::{
    Backlog, Cadence, Day, DayNote, DaySet, DaysRead, Delivery, Event, PendingCounts, User, UserId,
    UserStacks,
};
use crate::engine::eligibility;
use crate::engine::eligibility::event_facts::Catalog;
use crate::engine::feedback::suppressions::Suppressed;
use crate::engine::{Error, Result};
use crate::store::{self, DeliveryFilter, NewMarker, NoteFilter};
use crate::wire::status::OlderDays;

/// Finds and notes the backlog of days that have left the window.
#[derive(Clone)]
pub struct BacklogDays {
    pub(crate) context: Arc<Context>,
}

/// A day that has left the window, with its note as it was read.
#[derive(Debug, Clone)]
pub struct OldDay {
    /// The day, in UTC.
    pub day: Day,
    read: Option<String>,
    /// The parsed note; `None` if there is none, or if it cannot be parsed.
    pub note: Option<DayNote>,
}

/// The events of a day that were not emailed within `digest.max_age`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Expired {
    /// All of them.
    pub all: PendingCounts,
    /// The part whose users could not be emailed.
    pub blocked: PendingCounts,
}

impl OldDay {
    /// Returns the events of this day that have expired already.
    pub fn expired(&self) -> Expired {
        let expired = |note: &DayNote| Expired { all: note.expired, blocked: note.expired_blocked };
        self.note.as_ref().map(expired).unwrap_or_default()
    }
}

/// The days before the window that may have a backlog, oldest first.
#[derive(Debug, Default)]
pub struct OldDays {
    /// Days whose events are still emailed.
    pub older: Vec<OldDay>,
    /// Days on which the last full run found only events of users who could not be emailed. They
    /// are emailed once their users can be.
    pub blocked: Vec<OldDay>,
    /// Days whose backlog must expire now.
    pub too_old: Vec<OldDay>,
    /// Days whose events have all expired, some of them without an email.
    pub expired: Vec<Day>,
}

impl OldDays {
    /// Returns the days whose events are still emailed, or would be if their users could be
    /// emailed.
    pub fn with_blocked(&self) -> impl Iterator<Item = &OldDay> {
        self.older.iter().chain(&self.blocked)
    }
}

/// The backlog of one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// The wanted events that no digest has included.
    pub backlog: Backlog,
    /// The part that an open delivery covers. It is about to be emailed.
    pub in_hand: PendingCounts,
}

/// One user's wanted events of some days.
#[derive(Debug)]
pub struct UserBacklog<'a> {
    /// The user.
    pub user: &'a UserId,
    /// Events that their next digest includes.
    pub mailable: Vec<EventAt<'a>>,
    /// Events that wait because the user may not be emailed.
    pub blocked: Vec<EventAt<'a>>,
}

/// The number of users in one read of the stacks.
pub(super) const SCAN_CHUNK: usize = 1_000;

impl BacklogDays {
    /// Returns the window at `at`, and the range of older days that may still be emailed.
    pub fn days_read(&self, at: DateTime<Utc>) -> DaysRead {
        let config = &self.context.config;
        DaysRead::of(at, config.window_back, config.digest.max_age)
    }

    /// Returns the days before the window that may have a backlog. Reads the names of the days and
    /// their notes, but no stack.
    pub async fn old_days(&self, days: &DaysRead) -> store::Result<OldDays> {
        let existing = self.context.store.days().await?;
        let store = &self.context.store;
        let mut notes: HashMap<Day, String> = store
            .notes(NoteFilter::Prefix(DayNote::PREFIX))
            .await?
            .into_iter()
            .filter_map(|(name, text)| Some((DayNote::day(&name)?, text)))
            .collect();
        let mut found = OldDays::default();
        for day in existing {
            let read = notes.remove(&day);
            let note = read.as_deref().and_then(DayNote::read);
            let is = |holds: fn(&DayNote) -> bool| note.as_ref().is_some_and(holds);
            let (clear, blocked) = (is(DayNote::is_clear), is(DayNote::is_blocked));
            let settled = is(DayNote::is_settled);
            let expired = is(|note| !note.expired.is_nothing());
            let old = OldDay { day, read, note };
            if days.is_older(day) && !clear {
                found.older.push(old);
            } else if days.is_older(day) && blocked {
                found.blocked.push(old);
            } else if days.is_too_old(day) && !settled {
                found.too_old.push(old);
            } else if days.is_too_old(day) && expired {
                found.expired.push(day);
            }
        }
        Ok(found)
    }

    /// Returns one day with its note.
    pub async fn day(&self, day: Day) -> store::Result<OldDay> {
        let read = self.context.store.note(&DayNote::name(day)).await?;
        let note = read.as_deref().and_then(DayNote::read);
        Ok(OldDay { day, read, note })
    }

    /// Stores the backlog of a day that was read completely. Stores nothing if the day has changed
    /// since.
    pub async fn note(&self, old: &OldDay, found: Backlog, at: DateTime<Utc>) -> store::Result<()> {
        self.swap(old, Some(found), old.expired(), at).await?;
        Ok(())
    }

    /// Returns the noted counts of days before the window, without reading these days.
    pub async fn summary(&self) -> store::Result<OlderDays> {
        let store = &self.context.store;
        let existing = store.days().await?;
        let mut summary = OlderDays::default();
        for (name, text) in store.notes(NoteFilter::Prefix(DayNote::PREFIX)).await? {
            let (Some(day), Some(note)) = (DayNote::day(&name), DayNote::read(&text)) else {
                continue;
            };
            // A day that was dropped by force has no backlog any more.
            if existing.contains(&day) {
                summary.events += note.mailable.unwrap_or_default().events;
                summary.blocked_events += note.blocked.unwrap_or_default().events;
            }
            summary.expired_blocked += note.expired_blocked;
            if !note.expired.is_nothing() {
                summary.expired.insert(day, note.expired);
            }
        }
        Ok(summary)
    }

    /// Resets the note of a day that a fan-out or a restore changes.
    pub async fn disturb(&self, day: Day, at: DateTime<Utc>) -> store::Result<()> {
        loop {
            let old = self.day(day).await?;
            if self.swap(&old, None, old.expired(), at).await? {
                return Ok(());
            }
        }
    }

    /// Expires the backlog of a day that is too old. Returns the newly expired events. Returns
    /// `None` if nothing expires, because an open delivery covers some of it or the day has
    /// changed.
    pub async fn expire(&self, old: &OldDay, at: DateTime<Utc>) -> Result<Option<Expired>> {
        self.context.store.catch_up().await?;
        let count = self.count(old.day).await?;
        if !count.in_hand.is_nothing() {
            return Ok(None);
        }
        let before = old.expired();
        let new = Expired {
            all: count.backlog.all().without(before.all),
            blocked: count.backlog.blocked.without(before.blocked),
        };
        let expired =
            Expired { all: before.all.plus(new.all), blocked: before.blocked.plus(new.blocked) };
        let noted = self.swap(old, Some(Backlog::default()), expired, at);
        Ok(noted.await?.then_some(new))
    }

    /// Counts the current backlog of one day.
    pub async fn count(&self, day: Day) -> Result<Count> {
        let mut catalog = Catalog::of_emails(&self.context);
        let mut count = Count::default();
        let store = &*self.context.store;
        let mut chunks = store.scan(DaySet::ending(day, 0), None, SCAN_CHUNK);
        while let Some(chunk) = chunks.next().await {
            let mut chunk = chunk?;
            let users = eligibility::exclude_ineligible(&mut chunk, &mut catalog).await?;
            let suppressed = Suppressed::among(store, users.iter().flatten()).await?;
            let found = self.backlogs(&chunk, &users, &suppressed, &mut catalog, |_| true).await?;
            let ids: Vec<UserId> = found.iter().map(|of| of.user.clone()).collect();
            let open = DeliveryFilter::OpenDigests(&ids);
            let open = store.find_deliveries(&open, ids.len()).await?;
            let covers = |row: &&Delivery| row.watermarks.iter().any(|(id, _)| id.day == day);
            let covering = open.iter().filter(covers);
            let covered: HashSet<&UserId> = covering.map(|row| &row.user).collect();
            for of in &found {
                let (mailable, blocked) = (of.mailable.len() as u64, of.blocked.len() as u64);
                count.backlog.mailable.add(mailable);
                count.backlog.blocked.add(blocked);
                if covered.contains(of.user) {
                    count.in_hand.add(mailable + blocked);
                }
            }
        }
        Ok(count)
    }

    /// Returns the wanted events of those days that still apply, for each user who has any.
    ///
    /// Users who turned digests off want none. Users who may not be emailed, because they are
    /// unconfirmed or suppressed or have no address, want what they would get otherwise.
    pub async fn backlogs<'a>(
        &self,
        people: &'a [UserStacks],
        users: &[Option<User>],
        suppressed: &Suppressed,
        catalog: &mut Catalog,
        of: impl Fn(Day) -> bool,
    ) -> Result<Vec<UserBacklog<'a>>> {
        let mut found = Vec::new();
        for (person, user) in people.iter().zip(users) {
            let is_of = person.stacks.iter().any(|stack| of(stack.id.day));
            let Some(user) = user.as_ref().filter(|_| is_of) else {
                continue;
            };
            let (schedule, wish) = user.digests(&self.context.config.digest.schedule);
            if schedule.cadence == Cadence::Never {
                continue;
            }
            let allowed = suppressed.scope(user).ok();
            let mut events = wanted(person, user, wish, &self.context.policies);
            events.retain(|pending| of(pending.position.stack.day));
            let may_be_emailed = |pending: &EventAt<'_>| {
                allowed.is_some_and(|scope| scope.admits(&pending.event.t, &self.context.policies))
            };
            let (mailable, blocked) = events.into_iter().partition(may_be_emailed);
            let user = &person.user;
            found.push(UserBacklog { user, mailable, blocked });
        }
        let mut events: Vec<&Event> = Vec::new();
        for of in &found {
            events.extend(of.mailable.iter().map(|pending| pending.event));
            events.extend(of.blocked.iter().map(|pending| pending.event));
        }
        catalog.load(events.into_iter()).await?;
        found.retain_mut(|of| {
            let applies = |pending: &EventAt<'_>| catalog.applies(pending.event).is_some();
            of.mailable.retain(applies);
            of.blocked.retain(applies);
            !(of.mailable.is_empty() && of.blocked.is_empty())
        });
        Ok(found)
    }

    /// Covers all pending events of a user with markers, without an email, in the window and on
    /// all older days. An event that arrives meanwhile stays pending (P3). Returns the number of
    /// pending events, without those that no email may include (retracted, muted or seen ones).
    pub async fn flush(&self, user: &UserId) -> Result<u64> {
        let now = self.context.clock.now();
        self.context.store.catch_up().await?;
        let days = self.days_read(now);
        let existing = self.context.store.days().await?.into_iter();
        let older = existing.filter(|day| *day < days.window.first());
        let window = days.window.with(older);
        let people = std::slice::from_ref(user);
        let mut found = self.context.store.windows(window, people).await?;
        let covers = found.first().map(UserStacks::watermarks);
        let Some(watermarks) = covers.filter(|covers| !covers.is_empty()) else {
            return Ok(0);
        };
        let mut catalog = Catalog::of_emails(&self.context);
        eligibility::exclude_ineligible(&mut found, &mut catalog).await?;
        let pending = found.iter().map(|person| person.pending().len() as u64);
        let flushed = pending.sum();
        let marker = NewMarker::Flushed(user.clone(), self.context.ids.next(now), watermarks);
        let bad = self.context.store.write_markers(&[marker]).await?;
        match bad.first() {
            None => Ok(flushed),
            Some(bad) => {
                let why = format!("{bad}. It cannot be marked, and digests leave it out");
                Err(Error::Conflict(why))
            }
        }
    }
    async fn swap(
        &self,
        old: &OldDay,
        found: Option<Backlog>,
        expired: Expired,
        at: DateTime<Utc>,
    ) -> store::Result<bool> {
        let note = DayNote {
            id: self.context.ids.next(at),
            at,
            mailable: found.map(|found| found.mailable),
            blocked: found.map(|found| found.blocked),
            expired: expired.all,
            expired_blocked: expired.blocked,
        };
        let text = serde_json::to_string(&note).unwrap_or_default();
        let name = DayNote::name(old.day);
        let (store, read) = (&self.context.store, old.read.as_deref());
        store.swap_note(&name, read, Some(&text)).await
    }
}

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

    pub(super) fn add(&mut self, found: &UserBacklog<'_>) {
        self.add_part(&found.mailable, |backlog| &mut backlog.mailable);
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

    /// Stores the backlog of each of these days after all users were read. A day with an unreadable
    /// stack is omitted. The next run reads it again, until that stack is repaired or too old.
    pub(super) async fn note(
        &self,
        backlog: &BacklogDays,
        days: &OldDays,
        at: DateTime<Utc>,
    ) -> Result<()> {
        for old in days.with_blocked() {
            if !self.passed_over.contains(&old.day) {
                let sum = self.days.get(&old.day).copied().unwrap_or_default();
                backlog.note(old, sum, at).await?;
            }
        }
        Ok(())
    }
}
