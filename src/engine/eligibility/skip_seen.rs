//! What was seen in the feed is left out of digests, where the operator wants that
//! (`digest.skip_seen`).
//!
//! The rule: what was told again after its reader marked anything last is mailed, whatever was seen
//! of its object before; a mark holds for what stood then. What is older than `feed.since` was seen
//! by nobody. What was seen is remembered for as long as a digest may tell of it.

use std::sync::Arc;

use crate::context::Context;
use crate::domain::inbox::ItemState;
use crate::domain::{Inbox, PersonStacks, Position, UserId};
use crate::store::Result;

/// Knows what was seen, where that matters.
#[derive(Clone)]
pub struct SkipSeen {
    /// `None` if `digest.skip_seen` is off.
    context: Option<Arc<Context>>,
}

impl SkipSeen {
    /// Reads marks only if it `is_on`.
    pub fn new(is_on: bool, context: Arc<Context>) -> Self {
        Self {
            context: is_on.then_some(context),
        }
    }

    /// Removes seen events from stacks with pending events. Entries keep their positions.
    pub async fn exclude_seen(&self, people: &mut [PersonStacks]) -> Result<()> {
        let Some(context) = &self.context else {
            return Ok(());
        };
        let mut people: Vec<&mut PersonStacks> = people
            .iter_mut()
            .filter(|person| !person.covers().is_empty())
            .collect();
        let ids: Vec<UserId> = people.iter().map(|person| person.user.clone()).collect();
        let found = context.store.inboxes(&ids).await?;
        for (person, inbox) in people.iter_mut().zip(found) {
            if let Some(inbox) = inbox {
                person.leave_out(|place, _| is_seen(&inbox, place));
            }
        }
        Ok(())
    }

    /// The same of one person, as a question.
    pub async fn of(&self, user: &UserId) -> Result<impl Fn(Position) -> bool + use<>> {
        let inbox = match &self.context {
            Some(context) => context.store.inboxes(std::slice::from_ref(user)).await?,
            None => Vec::new(),
        };
        let inbox = inbox.into_iter().next().flatten();
        Ok(move |place| inbox.as_ref().is_some_and(|inbox| is_seen(inbox, place)))
    }

    /// The same of who has this inbox.
    pub fn within(&self, inbox: &Inbox) -> impl Fn(Position) -> bool {
        let is_on = self.context.is_some();
        move |place| is_on && is_seen(inbox, place)
    }
}

fn is_seen(inbox: &Inbox, place: Position) -> bool {
    inbox.state(place) > ItemState::Unseen
}
