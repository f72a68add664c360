//! Erases users: their records, their unsent emails, and their names in events.
//!
//! A note that the erasure has begun is written first and completed last (P4, P8). Repeating an
//! interrupted erasure finishes it, and so does creating the next user with the id. Stacks keep
//! their events; the note hides these from all later readers. Start with [`Eraser::erase`].

use std::collections::HashMap;
use std::sync::Arc;

use super::starts;
use crate::context::Context;
use crate::domain::delivery::Correction;
use crate::domain::start::{self, Erasure};
use crate::domain::{
    BatchState, Day, Delivery, DeliveryState, Id, Occasion, PersonStacks, Start, UserId, Window,
};
use crate::engine::batches::{BatchService, End};
use crate::engine::feed::cache::FeedCache;
use crate::engine::{Error, Result};
use crate::store::{BatchFilter, DeliveryFilter};

/// The number of batches in one read.
const AT_ONCE: usize = 1_000;
/// The reason in canceled deliveries.
const REASON: &str = "the user was deleted";

/// Erases users, and computes the starts of later users with their ids.
pub struct Eraser {
    pub(crate) context: Arc<Context>,
    pub(crate) batches: BatchService,
    pub(crate) feed_cache: Arc<FeedCache>,
}

impl Eraser {
    /// Erases a user. Returns whether any of their data existed. Can be repeated.
    pub async fn erase(&self, user: &UserId) -> Result<bool> {
        let name = start::note_name(user);
        let noted = starts::erasure(&*self.context.store, user).await?;
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
        let noted = starts::erasures(&*self.context.store, users).await?;
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

    async fn today(&self, user: &UserId) -> Result<Option<PersonStacks>> {
        let today = Window::ending(Day::of(self.context.clock.now()), 0);
        self.window(user, today).await
    }

    async fn window(&self, user: &UserId, window: Window) -> Result<Option<PersonStacks>> {
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
        let window = Window::ending(Day::of(now), back);
        let mut person = self.window(user, window).await?;
        Ok(person.as_mut().is_some_and(|person| {
            person.begin_at(noted.map(|noted| noted.start));
            !person.events().is_empty()
        }))
    }

    async fn cancel_batches(&self, user: &UserId) -> Result<()> {
        let open = BatchFilter {
            user: Some(user.clone()),
            state: Some(BatchState::Open),
            key: None,
        };
        loop {
            let found = self.batches.list(&open, None, AT_ONCE).await?;
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
        let cancel = |row: Delivery| Correction::Cancel {
            id: row.id,
            reason: REASON.to_owned(),
        };
        let cancel: Vec<Correction> = rows.into_iter().map(cancel).collect();
        self.context.store.correct(now, &cancel).await?;
        // Emails that are being sent are finished, and the sender settles their batches. An earlier
        // or concurrent erasure may have canceled deliveries without settling their batches.
        let rows = self.deliveries(user, DeliveryState::Canceled).await?;
        let batches = rows.iter().filter_map(|row| match row.occasion {
            Occasion::Batch { batch, .. } => Some((batch, BatchState::Canceled)),
            Occasion::Digest { .. } => None,
        });
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
}
