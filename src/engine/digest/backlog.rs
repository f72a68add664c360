//! The backlog of days that have left the window.
//!
//! Each full run reads such a day and notes the counts, until no wanted event is left. Events older
//! than `digest.max_age` expire: they are counted once, noted and reported (P3). A note only
//! replaces the note that was read ([`crate::store::Notes::swap_note`]). If the day changes
//! meanwhile, the note of that change ([`BacklogService::reset_note`]) is kept.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures::StreamExt;

use crate::context::Context;
use crate::domain::day_stack::{DefectiveStack, StackEvent};
use crate::domain::digest_content::digest_events;
use crate::domain::{
    Backlog, Cadence, Day, DayNote, DaySet, Delivery, DigestDays, Event, PendingCounts, User,
    UserId, UserStacks,
};
use crate::engine::eligibility::{self, event_facts::EventFacts};
use crate::engine::feedback::suppressions::SuppressedAddresses;
use crate::engine::{Error, Result};
use crate::store::{self, DeliveryFilter, NewMarker, NoteFilter};
use crate::wire::status::BacklogStatus;

/// Finds and notes the backlog of days that have left the window.
#[derive(Clone)]
pub struct BacklogService {
    pub(crate) context: Arc<Context>,
}

/// A day that has left the window, with its note as it was read.
#[derive(Debug, Clone)]
pub struct OldDay {
    /// The day, in UTC.
    pub day: Day,
    note_text: Option<String>,
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
    fn new(day: Day, note_text: Option<String>) -> Self {
        let note = note_text.as_deref().and_then(DayNote::parse);
        Self { day, note_text, note }
    }

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
    pub mailable: Vec<OldDay>,
    /// Days on which the last full run found only events of users who could not be emailed. They
    /// are emailed once their users can be.
    pub blocked: Vec<OldDay>,
    /// Days whose backlog must expire now.
    pub too_old: Vec<OldDay>,
    /// Days on which events expired without an email, and no event is left to expire.
    pub expired: Vec<Day>,
}

impl OldDays {
    /// Returns the days whose events are still emailed, or would be if their users could be
    /// emailed.
    pub fn with_blocked(&self) -> impl Iterator<Item = &OldDay> {
        self.mailable.iter().chain(&self.blocked)
    }
}

/// The backlog of one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DayBacklog {
    /// The wanted events that no digest has included.
    pub backlog: Backlog,
    /// The part that an open delivery covers. It is about to be emailed.
    pub in_open_deliveries: PendingCounts,
}

/// One user's wanted events of some days.
#[derive(Debug)]
pub struct UserBacklog<'a> {
    /// The user.
    pub user: &'a UserId,
    /// Events that their next digest includes.
    pub mailable: Vec<StackEvent<'a>>,
    /// Events that wait because the user may not be emailed.
    pub blocked: Vec<StackEvent<'a>>,
}

/// The number of users in one read of the stacks.
pub(super) const SCAN_CHUNK: usize = 1_000;

impl BacklogService {
    /// Returns the window at `at`, and the range of older days that may still be emailed.
    pub fn days_to_read(&self, at: DateTime<Utc>) -> DigestDays {
        let config = &self.context.config;
        DigestDays::at(at, config.window_days_back, config.digest.max_age)
    }

    /// Returns the days before the window that may have a backlog. Reads the names of the days and
    /// their notes, but no stack.
    pub async fn old_days(&self, days: &DigestDays) -> store::Result<OldDays> {
        let store = &self.context.store;
        let days_with_stacks = store.days().await?;
        let mut notes: HashMap<Day, String> = store
            .notes(NoteFilter::Prefix(DayNote::PREFIX))
            .await?
            .into_iter()
            .filter_map(|(name, text)| Some((DayNote::day_of_note(&name)?, text)))
            .collect();
        let mut old_days = OldDays::default();
        for day in days_with_stacks {
            let old = OldDay::new(day, notes.remove(&day));
            let is_noted =
                |condition: fn(&DayNote) -> bool| old.note.as_ref().is_some_and(condition);
            if days.is_backlog(day) && !is_noted(DayNote::has_no_mailable) {
                old_days.mailable.push(old);
            } else if days.is_backlog(day) && is_noted(DayNote::has_only_blocked) {
                old_days.blocked.push(old);
            } else if days.is_expired(day) && !is_noted(DayNote::has_nothing_to_expire) {
                old_days.too_old.push(old);
            } else if days.is_expired(day) && !old.expired().all.is_zero() {
                old_days.expired.push(day);
            }
        }
        Ok(old_days)
    }

    /// Returns one day with its note.
    pub async fn day(&self, day: Day) -> store::Result<OldDay> {
        Ok(OldDay::new(day, self.context.store.note(&DayNote::note_name(day)).await?))
    }

    /// Stores the backlog of a day that was read completely. Stores nothing if the day has changed
    /// since.
    pub async fn store_backlog(
        &self,
        old: &OldDay,
        backlog: Backlog,
        at: DateTime<Utc>,
    ) -> store::Result<()> {
        self.swap(old, Some(backlog), old.expired(), at).await?;
        Ok(())
    }

    /// Returns the noted counts of days before the window, without reading these days.
    pub async fn summary(&self) -> store::Result<BacklogStatus> {
        let store = &self.context.store;
        let days_with_stacks = store.days().await?;
        let mut summary = BacklogStatus::default();
        for (name, text) in store.notes(NoteFilter::Prefix(DayNote::PREFIX)).await? {
            let (Some(day), Some(note)) = (DayNote::day_of_note(&name), DayNote::parse(&text))
            else {
                continue;
            };
            // A day that was dropped by force has no backlog any more.
            if days_with_stacks.contains(&day) {
                summary.events += note.mailable.unwrap_or_default().events;
                summary.blocked_events += note.blocked.unwrap_or_default().events;
            }
            summary.expired_blocked += note.expired_blocked;
            if !note.expired.is_zero() {
                summary.expired.insert(day, note.expired);
            }
        }
        Ok(summary)
    }

    /// Discards the counts of a day that a fan-out or a restore changes, so that the next full run
    /// reads it again. Counts of expired events stay.
    pub async fn reset_note(&self, day: Day, at: DateTime<Utc>) -> store::Result<()> {
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
        let current = self.count_backlog(old.day).await?;
        if !current.in_open_deliveries.is_zero() {
            return Ok(None);
        }
        let before = old.expired();
        let new = Expired {
            all: current.backlog.total().saturating_sub(before.all),
            blocked: current.backlog.blocked.saturating_sub(before.blocked),
        };
        let expired =
            Expired { all: before.all.plus(new.all), blocked: before.blocked.plus(new.blocked) };
        let is_stored = self.swap(old, Some(Backlog::default()), expired, at).await?;
        Ok(is_stored.then_some(new))
    }

    /// Counts the current backlog of one day.
    pub async fn count_backlog(&self, day: Day) -> Result<DayBacklog> {
        let mut event_facts = EventFacts::for_emails(&self.context);
        let mut total = DayBacklog::default();
        let store = &*self.context.store;
        let mut chunks = store.scan(DaySet::ending(day, 0), None, SCAN_CHUNK);
        while let Some(chunk) = chunks.next().await {
            let mut stacks = chunk?;
            let users = eligibility::exclude_ineligible(&mut stacks, &mut event_facts).await?;
            let suppressed = SuppressedAddresses::load_for(store, users.iter().flatten()).await?;
            let user_backlogs = self
                .user_backlogs(&stacks, &users, &suppressed, &mut event_facts, |_| true)
                .await?;
            let ids: Vec<UserId> =
                user_backlogs.iter().map(|backlog| backlog.user.clone()).collect();
            let filter = DeliveryFilter::OpenDigests(&ids);
            let open = store.find_deliveries(&filter, ids.len()).await?;
            let covers = |row: &&Delivery| row.watermarks.iter().any(|(id, _)| id.day == day);
            let covered_users: HashSet<&UserId> =
                open.iter().filter(covers).map(|row| &row.user).collect();
            for UserBacklog { user, mailable, blocked } in &user_backlogs {
                let (mailable, blocked) = (mailable.len() as u64, blocked.len() as u64);
                total.backlog.mailable.add(mailable);
                total.backlog.blocked.add(blocked);
                if covered_users.contains(user) {
                    total.in_open_deliveries.add(mailable + blocked);
                }
            }
        }
        Ok(total)
    }

    /// Returns the wanted events of the days that `is_included` selects, as far as they still
    /// apply, for each user who has any. `users` are the records in the order of the stacks.
    ///
    /// Users who turned digests off want only mandatory types. Users who may not be emailed,
    /// because they are unconfirmed or suppressed or have no address, want what they would get
    /// otherwise.
    pub async fn user_backlogs<'a>(
        &self,
        all_stacks: &'a [UserStacks],
        users: &[Option<User>],
        suppressed: &SuppressedAddresses,
        event_facts: &mut EventFacts,
        is_included: impl Fn(Day) -> bool,
    ) -> Result<Vec<UserBacklog<'a>>> {
        let policies = &self.context.policies;
        let mut user_backlogs = Vec::new();
        for (stacks, user) in all_stacks.iter().zip(users) {
            let has_days = stacks.stacks.iter().any(|stack| is_included(stack.id.day));
            let Some(user) = user.as_ref().filter(|_| has_days) else {
                continue;
            };
            let (schedule, wished_scope) =
                user.digest_schedule(&self.context.config.digest.schedule);
            if schedule.cadence == Cadence::Never {
                continue;
            }
            let allowed_scope = suppressed.email_scope(user).ok();
            let mut events = digest_events(stacks, user, wished_scope, policies);
            events.retain(|pending| is_included(pending.position.stack.day));
            let may_be_emailed = |pending: &StackEvent<'_>| {
                allowed_scope.is_some_and(|scope| scope.admits(&pending.event.kind, policies))
            };
            let (mailable, blocked) = events.into_iter().partition(may_be_emailed);
            user_backlogs.push(UserBacklog { user: &stacks.user, mailable, blocked });
        }
        let mut events: Vec<&Event> = Vec::new();
        for UserBacklog { mailable, blocked, .. } in &user_backlogs {
            events.extend(mailable.iter().chain(blocked).map(|pending| pending.event));
        }
        event_facts.load_objects_and_retractions(events.into_iter()).await?;
        user_backlogs.retain_mut(|UserBacklog { mailable, blocked, .. }| {
            let applies =
                |pending: &StackEvent<'_>| event_facts.applicable_object(pending.event).is_some();
            mailable.retain(applies);
            blocked.retain(applies);
            !(mailable.is_empty() && blocked.is_empty())
        });
        Ok(user_backlogs)
    }

    /// Marks all pending events of a user as emailed, in the window and on all older days, without
    /// sending an email. An event that arrives meanwhile stays pending (P3). Returns the number of
    /// pending events, without those that no email may include (retracted, muted or seen ones).
    pub async fn flush(&self, user: &UserId) -> Result<u64> {
        let now = self.context.clock.now();
        self.context.store.catch_up().await?;
        let window = self.days_to_read(now).window;
        let mut older = self.context.store.days().await?;
        older.retain(|day| *day < window.first());
        let users = std::slice::from_ref(user);
        let mut stacks = self.context.store.windows(window.extended_by(older), users).await?;
        let watermarks = stacks.first().map(UserStacks::watermarks).unwrap_or_default();
        if watermarks.is_empty() {
            return Ok(0);
        }
        let mut event_facts = EventFacts::for_emails(&self.context);
        eligibility::exclude_ineligible(&mut stacks, &mut event_facts).await?;
        let flushed = stacks.iter().map(|stacks| stacks.pending().len() as u64).sum();
        let marker = NewMarker::Flushed(user.clone(), self.context.ids.next(now), watermarks);
        let unmarked = self.context.store.write_markers(&[marker]).await?;
        match unmarked.first() {
            None => Ok(flushed),
            Some(stack) => {
                let why = format!("{stack}. It cannot be marked, and digests leave it out");
                Err(Error::Conflict(why))
            }
        }
    }

    /// Replaces the note that was read. Returns `false` if it has changed since.
    async fn swap(
        &self,
        old: &OldDay,
        backlog: Option<Backlog>,
        expired: Expired,
        at: DateTime<Utc>,
    ) -> store::Result<bool> {
        let note = DayNote {
            id: self.context.ids.next(at),
            at,
            mailable: backlog.map(|backlog| backlog.mailable),
            blocked: backlog.map(|backlog| backlog.blocked),
            expired: expired.all,
            expired_blocked: expired.blocked,
        };
        let text = serde_json::to_string(&note).unwrap_or_default();
        let (store, name) = (&self.context.store, DayNote::note_name(old.day));
        store.swap_note(&name, old.note_text.as_deref(), Some(&text)).await
    }
}

/// The backlog of the older days that a run has read so far.
pub(super) struct BacklogTotals {
    /// The first day of the window.
    pub window_start: Day,
    days: BTreeMap<Day, Backlog>,
    /// Days with a stack that could not be read. Their backlog is incomplete.
    skipped_days: BTreeSet<Day>,
    /// The total, with each user once.
    pub total: Backlog,
    /// Whether some users were not read.
    pub is_partial: bool,
}

impl BacklogTotals {
    pub(super) fn new(days: &DigestDays) -> Self {
        Self {
            window_start: days.window.first(),
            days: BTreeMap::new(),
            skipped_days: BTreeSet::new(),
            total: Backlog::default(),
            is_partial: false,
        }
    }

    /// Records stacks that could not be read.
    pub(super) fn skip_days_of(&mut self, bad: &[DefectiveStack]) {
        self.skipped_days.extend(bad.iter().map(|stack| stack.day));
    }

    pub(super) fn add(&mut self, user: &UserBacklog<'_>) {
        self.add_part(&user.mailable, |backlog| &mut backlog.mailable);
        self.add_part(&user.blocked, |backlog| &mut backlog.blocked);
    }

    fn add_part(
        &mut self,
        events: &[StackEvent<'_>],
        part: fn(&mut Backlog) -> &mut PendingCounts,
    ) {
        let mut events_by_day: BTreeMap<Day, u64> = BTreeMap::new();
        for pending in events {
            *events_by_day.entry(pending.position.stack.day).or_default() += 1;
        }
        part(&mut self.total).add(events.len() as u64);
        for (day, events) in events_by_day {
            part(self.days.entry(day).or_default()).add(events);
        }
    }

    /// Stores the backlog of each of these days after all users were read. A day with an unreadable
    /// stack is omitted. The next run reads it again, until that stack is repaired or too old.
    pub(super) async fn store(
        &self,
        service: &BacklogService,
        old_days: &OldDays,
        at: DateTime<Utc>,
    ) -> Result<()> {
        for old in old_days.with_blocked() {
            if !self.skipped_days.contains(&old.day) {
                let backlog = self.days.get(&old.day).copied().unwrap_or_default();
                service.store_backlog(old, backlog, at).await?;
            }
        }
        Ok(())
    }
}
