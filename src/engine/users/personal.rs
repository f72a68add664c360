//! Exports and erases the personal data of users.
//!
//! An erasure first writes a note that it has begun, and completes the note last (P4, P8).
//! Repeating an interrupted erasure finishes it, and so does creating the next user with the id.
//! Stacks keep their events; the start of the id ([`crate::domain::user_id_reuse`]) hides these
//! from all later readers.
//! Start with [`UserService::erase`].

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use super::service::UserService;
use crate::domain::delivery::Correction;
use crate::domain::user_id_reuse::{self, Erasure};
use crate::domain::{
    BatchState, Day, DaySet, Delivery, DeliveryState, Event, Id, Inbox, InvalidValue, Position,
    RecordStart, Stack, User, UserId, UserStacks,
};
use crate::engine::batches::EndAction;
use crate::engine::feed::cache::FeedCache;
use crate::engine::{Error, Result};
use crate::store::{self, BatchFilter, DeliveryFilter, NoteFilter, Store};
use crate::wire::user::{ExportedEvent, MuteView, UserExport, UserView};

const BATCHES_PER_READ: usize = 1_000;
/// The reason in canceled deliveries.
const CANCEL_REASON: &str = "the user was deleted";

/// Returns the start of a user with this record, or of an id without one. `None` if no earlier user
/// had the id.
pub async fn load_start(
    store: &dyn Store,
    user: &UserId,
    record: Option<&User>,
) -> Result<Option<RecordStart>> {
    if let Some(record) = record {
        return Ok(record.start);
    }
    Ok(erasure(store, user).await?.map(|erasure| erasure.start))
}

/// Returns the start of a user. Caches it until a change notice names the user, for at most
/// `feed.fresh`.
pub async fn cached_start(
    store: &dyn Store,
    cache: &FeedCache,
    user: &UserId,
) -> Result<Option<RecordStart>> {
    if let Some(start) = cache.start(user) {
        return Ok(start);
    }
    let version = cache.version_of_user(user);
    let record = store.users(std::slice::from_ref(user)).await?.pop().flatten();
    let start = load_start(store, user, record.as_ref()).await?;
    if let Some(version) = version {
        cache.put_start(user, start, version);
    }
    Ok(start)
}

/// Returns the erasure of an earlier user with this id, if there was one.
async fn erasure(store: &dyn Store, user: &UserId) -> Result<Option<Erasure>> {
    Ok(erasures(store, std::slice::from_ref(user)).await?.pop().flatten())
}

/// Returns the erasures of earlier users with these ids, in their order.
async fn erasures(store: &dyn Store, users: &[UserId]) -> Result<Vec<Option<Erasure>>> {
    let names: Vec<String> = users.iter().map(user_id_reuse::erasure_note_name).collect();
    let filter: Vec<&str> = names.iter().map(String::as_str).collect();
    let notes: HashMap<String, String> =
        store.notes(NoteFilter::Named(&filter)).await?.into_iter().collect();
    let parse = |note: &String| -> Result<Erasure> {
        let corrupt =
            |why: InvalidValue| store::Error::corrupt("the note of an erasure", why.to_string());
        Ok(note.parse().map_err(corrupt)?)
    };
    names.iter().map(|name| notes.get(name).map(parse).transpose()).collect()
}

impl UserService {
    /// Erases a user. Returns whether any of their data existed. Can be repeated.
    pub async fn erase(&self, user: &UserId) -> Result<bool> {
        let earlier = erasure(&*self.context.store, user).await?;
        let is_unfinished = earlier.is_some_and(|earlier| !earlier.done);
        if !is_unfinished && !self.has_data(user, earlier).await? {
            return Ok(false);
        }
        let (now, store) = (self.context.clock.now(), &self.context.store);
        let start = self.new_start(user, now).await?;
        self.put_erasure(user, Erasure { start, done: false }).await?;
        store.delete_user(user).await?;
        self.cancel_batches(user).await?;
        self.cancel_deliveries(user).await?;
        self.put_erasure(user, Erasure { start, done: true }).await?;
        self.feed_cache.invalidate_all();
        Ok(true)
    }

    /// Returns the starts of new records with these ids. Only ids of earlier users have one.
    /// Finishes interrupted erasures first.
    pub(crate) async fn starts(&self, users: &[UserId]) -> Result<HashMap<UserId, RecordStart>> {
        let mut starts = HashMap::new();
        let erasures = erasures(&*self.context.store, users).await?;
        for (user, erasure) in users.iter().zip(erasures) {
            let Some(erasure) = erasure else { continue };
            if !erasure.done {
                self.erase(user).await?;
            }
            starts.insert(user.clone(), self.new_start(user, erasure.start.erased).await?);
        }
        Ok(starts)
    }

    /// Returns the start of a user after the current events of the id. `erased` is when the earlier
    /// user was erased.
    async fn new_start(&self, user: &UserId, erased: DateTime<Utc>) -> Result<RecordStart> {
        let now = self.context.clock.now();
        let id = self.context.ids.next(now);
        let today = self.window(user, DaySet::ending(Day::of(now), 0)).await?;
        Ok(RecordStart::new(erased, id, today.as_ref()))
    }

    /// Replaces the note, even if another call erases the same user concurrently.
    async fn put_erasure(&self, user: &UserId, erasure: Erasure) -> Result<()> {
        let (name, text) = (user_id_reuse::erasure_note_name(user), erasure.to_string());
        let store = &self.context.store;
        loop {
            let stored = store.note(&name).await?;
            if stored.as_ref() == Some(&text)
                || store.swap_note(&name, stored.as_deref(), Some(&text)).await?
            {
                return Ok(());
            }
        }
    }

    async fn window(&self, user: &UserId, window: DaySet) -> Result<Option<UserStacks>> {
        Ok(self.context.store.windows(window, std::slice::from_ref(user)).await?.pop())
    }

    /// Returns whether the user has data that an erasure removes or hides.
    async fn has_data(&self, user: &UserId, earlier: Option<Erasure>) -> Result<bool> {
        let (users, store) = (std::slice::from_ref(user), &self.context.store);
        store.catch_up().await?;
        if store.users(users).await?.iter().any(Option::is_some)
            || !store.follows(user, None, 1).await?.is_empty()
            || store.inboxes(users).await?.iter().any(Option::is_some)
        {
            return Ok(true);
        }
        let (now, back) = (self.context.clock.now(), self.context.config.window_days_back);
        let Some(mut user_stacks) = self.window(user, DaySet::ending(Day::of(now), back)).await?
        else {
            return Ok(false);
        };
        user_stacks.hide_before_start(earlier.map(|earlier| earlier.start));
        Ok(!user_stacks.events().is_empty())
    }

    async fn cancel_batches(&self, user: &UserId) -> Result<()> {
        let open = BatchFilter { state: Some(BatchState::Open), ..BatchFilter::of_user(user) };
        loop {
            let batches = self.batches.list(&open, BATCHES_PER_READ).await?;
            if batches.is_empty() {
                return Ok(());
            }
            for batch in batches {
                match self.batches.end(batch.id, EndAction::Cancel).await {
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
        let pending = self.deliveries(user, DeliveryState::Pending).await?;
        let cancel = |row: Delivery| Correction::Cancel(row.id, CANCEL_REASON.to_owned());
        let corrections: Vec<Correction> = pending.into_iter().map(cancel).collect();
        self.context.store.correct(now, &corrections).await?;
        // Emails that are being sent are finished, and the sender settles their batches. An earlier
        // or concurrent erasure may have canceled deliveries without settling their batches.
        let canceled = self.deliveries(user, DeliveryState::Canceled).await?;
        let batches = canceled.iter().filter_map(|row| row.source.batch());
        let settled: Vec<(Id, BatchState)> =
            batches.map(|batch| (batch, BatchState::Canceled)).collect();
        self.context.store.settle_batches(&settled, now).await?;
        Ok(())
    }

    async fn deliveries(&self, user: &UserId, state: DeliveryState) -> Result<Vec<Delivery>> {
        let filter = DeliveryFilter::User(user);
        let mut rows = self.context.store.find_deliveries(&filter, usize::MAX).await?;
        rows.retain(|row| row.state == state);
        Ok(rows)
    }

    /// Exports everything that tidings stores about one user, except archived days and written
    /// emails: these are files, which the operator has to search. If an erased user had the same id
    /// before, the export contains only data from after the start of the record (P8). Returns
    /// `None` if nothing is stored about the id.
    pub async fn export(&self, user: &UserId) -> Result<Option<UserExport>> {
        let (at, store) = (self.context.clock.now(), &self.context.store);
        let window = DaySet::ending(Day::of(at), self.context.config.window_days_back);
        let users = std::slice::from_ref(user);
        let mut parts = store.feeds(window, users).await?.remove(0);
        let start = load_start(&**store, user, parts.user.as_ref()).await?;
        parts.stacks.hide_before_start(start);
        let inbox = parts.inbox.unwrap_or_else(|| Inbox::empty(user.clone()));
        let export_event = |(position, event): (Position, &Event)| ExportedEvent {
            id: position,
            kind: event.kind.clone(),
            object: event.object.clone(),
            event: event.fanout_id,
            happened: event.time(position.stack.day),
            state: inbox.state(position),
        };
        let events: Vec<ExportedEvent> =
            parts.stacks.stacks.iter().flat_map(Stack::events).map(export_event).collect();
        let is_theirs = |id| start.is_none_or(|start| !start.is_after(id));
        let filter = DeliveryFilter::User(user);
        let mut deliveries = store.find_deliveries(&filter, usize::MAX).await?;
        deliveries.retain(|row| is_theirs(row.marker));
        let mut batches = self.batches.list(&BatchFilter::of_user(user), usize::MAX).await?;
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
        let state = store.address_states(address.as_slice()).await?.pop();
        let suppression = state.and_then(|state| state.suppression);
        let view = |user| UserView::from_user(user, &self.context.policies);
        let mutes = parts.user.iter().flat_map(|user| user.mutes.iter());
        Ok(Some(UserExport {
            user: user.clone(),
            at,
            mutes: mutes.map(MuteView::from_mute).collect(),
            email: address.as_ref().map(|address| address.reveal().to_owned()),
            record: parts.user.map(view),
            follows,
            events,
            batches: self.batches.views(batches).await?,
            deliveries: deliveries.into_iter().map(Into::into).collect(),
            suppression: suppression.map(Into::into),
        }))
    }
}
