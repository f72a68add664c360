//! Exports and erases the personal data of users.
//!
//! An erasure first writes a note that it has begun, and completes the note last (P4, P8).
//! Repeating an interrupted erasure finishes it, and so does creating the next user with the id.
//! Stacks keep their events; the start of the id ([`crate::domain::user_id_reuse`]) hides these
//! from all later readers.
//! Start with [`PeopleService::erase`].

use std::collections::HashMap;

use super::records::PeopleService;
use crate::domain::delivery::Correction;
use crate::domain::user_id_reuse::{self, Erasure};
use crate::domain::{
    Address, BatchState, Day, DaySet, Delivery, DeliveryState, Id, Inbox, Invalid, Stack, Start,
    User, UserId, UserStacks,
};
use crate::engine::batches::End;
use crate::engine::feed::cache::FeedCache;
use crate::engine::{Error, Result};
use crate::store::{self, BatchFilter, DeliveryFilter, NoteFilter, Store};
use crate::wire::user::{ExportedEvent, MuteView, UserExport, UserView};

/// The number of batches that are canceled after one read.
const AT_ONCE: usize = 1_000;
/// The reason in canceled deliveries.
const REASON: &str = "the user was deleted";

/// Returns the start of a user with this record, or of an id without one. `None` if no earlier user
/// had the id.
pub async fn start_of(
    store: &dyn Store,
    user: &UserId,
    record: Option<&User>,
) -> Result<Option<Start>> {
    if let Some(record) = record {
        return Ok(record.start);
    }
    let noted = erasures(store, std::slice::from_ref(user)).await?.pop();
    Ok(noted.flatten().map(|erasure| erasure.start))
}

/// Returns the start of a user. Caches it until a change notice names the user, for at most
/// `feed.fresh`.
pub async fn cached_start(
    store: &dyn Store,
    cache: &FeedCache,
    user: &UserId,
) -> Result<Option<Start>> {
    if let Some(start) = cache.start(user) {
        return Ok(start);
    }
    let version = cache.version_of_user(user);
    let found = store.users(std::slice::from_ref(user)).await?.pop();
    let start = start_of(store, user, found.flatten().as_ref()).await?;
    if let Some(version) = version {
        cache.put_start(user, start, version);
    }
    Ok(start)
}

/// Returns the notes about erasures of earlier users with these ids, in their order.
async fn erasures(store: &dyn Store, users: &[UserId]) -> Result<Vec<Option<Erasure>>> {
    let names: Vec<String> = users.iter().map(user_id_reuse::note_name).collect();
    let named: Vec<&str> = names.iter().map(String::as_str).collect();
    let found = store.notes(NoteFilter::Named(&named)).await?;
    let found: HashMap<String, String> = found.into_iter().collect();
    let read = |note: &String| -> Result<Erasure> {
        let corrupt =
            |why: Invalid| store::Error::corrupt("the note of an erasure", why.to_string());
        Ok(note.parse().map_err(corrupt)?)
    };
    let erasure = |name| found.get(name).map(read).transpose();
    names.iter().map(erasure).collect()
}

impl PeopleService {
    /// Erases a user. Returns whether any of their data existed. Can be repeated.
    pub async fn erase(&self, user: &UserId) -> Result<bool> {
        let name = user_id_reuse::note_name(user);
        let noted = erasures(&*self.context.store, std::slice::from_ref(user)).await?;
        let noted = noted.into_iter().next().flatten();
        let unfinished = noted.is_some_and(|noted| !noted.done);
        if !unfinished && !self.holds_any(user, noted).await? {
            return Ok(false);
        }
        let (now, store) = (self.context.clock.now(), &self.context.store);
        let (id, today) = (self.context.ids.next(now), self.today(user).await?);
        let start = Start::new(now, id, today.as_ref());
        self.note(&name, Erasure { start, done: false }).await?;
        store.delete_user(user).await?;
        self.cancel_batches(user).await?;
        self.cancel_deliveries(user).await?;
        self.note(&name, Erasure { start, done: true }).await?;
        self.feed_cache.invalidate_all();
        Ok(true)
    }

    /// Returns the starts of new records with these ids, of which only those of earlier users have
    /// one. Finishes interrupted erasures first.
    pub(crate) async fn starts(&self, users: &[UserId]) -> Result<HashMap<UserId, Start>> {
        let mut all = HashMap::new();
        let noted = erasures(&*self.context.store, users).await?;
        for (user, erasure) in users.iter().zip(noted) {
            let Some(erasure) = erasure else { continue };
            if !erasure.done {
                self.erase(user).await?;
            }
            let now = self.context.clock.now();
            let (id, today) = (self.context.ids.next(now), self.today(user).await?);
            let start = Start::new(erasure.start.erased, id, today.as_ref());
            all.insert(user.clone(), start);
        }
        Ok(all)
    }

    /// Replaces the note, even if another call erases the same user concurrently.
    async fn note(&self, name: &str, next: Erasure) -> Result<()> {
        let (next, store) = (next.to_string(), &self.context.store);
        loop {
            let read = store.note(name).await?;
            let read = read.as_deref();
            if read == Some(&next) || store.swap_note(name, read, Some(&next)).await? {
                return Ok(());
            }
        }
    }

    async fn today(&self, user: &UserId) -> Result<Option<UserStacks>> {
        let today = DaySet::ending(Day::of(self.context.clock.now()), 0);
        self.window(user, today).await
    }

    async fn window(&self, user: &UserId, window: DaySet) -> Result<Option<UserStacks>> {
        let people = std::slice::from_ref(user);
        let found = self.context.store.windows(window, people).await?;
        Ok(found.into_iter().next())
    }

    /// Returns whether the user has data that an erasure removes or hides.
    async fn holds_any(&self, user: &UserId, noted: Option<Erasure>) -> Result<bool> {
        let (one, store) = (std::slice::from_ref(user), &self.context.store);
        store.catch_up().await?;
        if store.users(one).await?.iter().any(Option::is_some)
            || !store.follows(user, None, 1).await?.is_empty()
            || store.inboxes(one).await?.iter().any(Option::is_some)
        {
            return Ok(true);
        }
        let (now, back) = (self.context.clock.now(), self.context.config.window_back);
        let window = DaySet::ending(Day::of(now), back);
        let mut person = self.window(user, window).await?;
        Ok(person.as_mut().is_some_and(|person| {
            person.begin_at(noted.map(|noted| noted.start));
            !person.events().is_empty()
        }))
    }

    async fn cancel_batches(&self, user: &UserId) -> Result<()> {
        let open = BatchFilter { state: Some(BatchState::Open), ..BatchFilter::of(user) };
        loop {
            let found = self.batches.list(&open, AT_ONCE).await?;
            if found.is_empty() {
                return Ok(());
            }
            for batch in found {
                match self.batches.end(batch.id, End::Cancel).await {
                    // A batch that closed meanwhile has a delivery, or gets one. The delivery is
                    // canceled instead.
                    Ok(_) | Err(Error::Conflict(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }

    async fn cancel_deliveries(&self, user: &UserId) -> Result<()> {
        let now = self.context.clock.now();
        let rows = self.deliveries(user, DeliveryState::Pending).await?;
        let cancel = |row: Delivery| Correction::Cancel(row.id, REASON.to_owned());
        let cancel: Vec<Correction> = rows.into_iter().map(cancel).collect();
        self.context.store.correct(now, &cancel).await?;
        // Emails that are being sent are finished, and the sender settles their batches. An earlier
        // or concurrent erasure may have canceled deliveries without settling their batches.
        let rows = self.deliveries(user, DeliveryState::Canceled).await?;
        let batches = rows.iter().filter_map(|row| row.occasion.batch());
        let batches = batches.map(|batch| (batch, BatchState::Canceled));
        let batches: Vec<(Id, BatchState)> = batches.collect();
        self.context.store.settle_batches(&batches, now).await?;
        Ok(())
    }

    async fn deliveries(&self, user: &UserId, state: DeliveryState) -> Result<Vec<Delivery>> {
        let theirs = DeliveryFilter::User(user);
        let rows = self.context.store.find_deliveries(&theirs, usize::MAX);
        let mut rows = rows.await?;
        rows.retain(|row| row.state == state);
        Ok(rows)
    }

    /// Exports everything that tidings stores about one user, except archived days and written
    /// emails: these are files, which the operator has to search. If an erased user had the same id
    /// before, the export contains only data from after the start of the record (P8). Returns
    /// `None` if nothing is stored about the id.
    pub async fn export(&self, user: &UserId) -> Result<Option<UserExport>> {
        let (at, store) = (self.context.clock.now(), &self.context.store);
        let window = DaySet::ending(Day::of(at), self.context.config.window_back);
        let users = std::slice::from_ref(user);
        let mut parts = store.feeds(window, users).await?.remove(0);
        let start = start_of(&**store, user, parts.user.as_ref()).await?;
        parts.person.begin_at(start);
        let inbox = parts.inbox.unwrap_or_else(|| Inbox::empty(user.clone()));
        let events = parts.person.stacks.iter().flat_map(Stack::events);
        let events = events.map(|(place, event)| ExportedEvent {
            id: place,
            kind: event.t.clone(),
            object: event.o.clone(),
            event: event.i,
            happened: event.at(place.stack.day),
            state: inbox.state(place),
        });
        let events: Vec<ExportedEvent> = events.collect();
        let is_theirs = |id| start.is_none_or(|start| !start.is_after(id));
        let rows = DeliveryFilter::User(user);
        let mut deliveries = store.find_deliveries(&rows, usize::MAX).await?;
        deliveries.retain(|row| is_theirs(row.marker));
        let theirs = BatchFilter::of(user);
        let mut batches = self.batches.list(&theirs, usize::MAX).await?;
        batches.retain(|batch| is_theirs(batch.id));
        let follows = store.follows(user, None, usize::MAX).await?;
        let is_known = parts.user.is_some()
            || !(events.is_empty()
                && follows.is_empty()
                && batches.is_empty()
                && deliveries.is_empty());
        if !is_known {
            return Ok(None);
        }
        let address = parts.user.as_ref().and_then(|user| user.email.clone());
        let addresses: Vec<Address> = address.iter().cloned().collect();
        let state = store.address_states(&addresses).await?.pop();
        let suppressed = state.and_then(|state| state.suppression);
        let record = |user| UserView::of(user, &self.context.policies);
        let mutes = parts.user.iter().flat_map(|user| user.mutes.all());
        Ok(Some(UserExport {
            user: user.clone(),
            at,
            mutes: mutes.map(MuteView::of).collect(),
            email: address.as_ref().map(|address| address.reveal().to_owned()),
            record: parts.user.map(record),
            follows,
            events,
            batches: self.batches.views(batches).await?,
            deliveries: deliveries.into_iter().map(Into::into).collect(),
            suppression: suppressed.map(Into::into),
        }))
    }
}
