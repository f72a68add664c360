//! Exports everything that tidings stores about one user.
//!
//! If an erased user had the same id before, the export contains only data from after the start of
//! the record (P8). It does not cover archived days and written emails. These are files, which the
//! operator has to search.

use std::sync::Arc;

use super::starts;
use crate::context::Context;
use crate::domain::{Address, Day, Inbox, Stack, UserId, Window};
use crate::engine::Result;
use crate::engine::batches::BatchService;
use crate::store::{BatchFilter, DeliveryFilter};
use crate::wire::user::{ExportedEvent, MuteView, UserExport, UserView};

/// The maximum number of follows, of batches, and of deliveries. More than any user has.
const ALL: usize = 100_000;

/// Exports users.
pub struct Exporter {
    pub(crate) context: Arc<Context>,
    pub(crate) batches: BatchService,
}

impl Exporter {
    /// Exports one user. Returns `None` if nothing is stored about the id.
    pub async fn export(&self, user: &UserId) -> Result<Option<UserExport>> {
        let at = self.context.clock.now();
        let window = Window::ending(Day::of(at), self.context.config.window_back);
        let users = std::slice::from_ref(user);
        let mut parts = self.context.store.feeds(window, users).await?.remove(0);
        let start = starts::of(&*self.context.store, user, parts.user.as_ref()).await?;
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
        let theirs = DeliveryFilter::User(user);
        let mut deliveries = self.context.store.find_deliveries(&theirs, ALL).await?;
        deliveries.retain(|row| is_theirs(row.marker));
        let theirs = BatchFilter {
            user: Some(user.clone()),
            ..BatchFilter::default()
        };
        let mut batches = self.batches.list(&theirs, None, ALL).await?;
        batches.retain(|batch| is_theirs(batch.id));
        let follows = self.context.store.follows(user, None, ALL).await?;
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
        let state = self.context.store.address_states(&addresses).await?.pop();
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
