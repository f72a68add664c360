//! The reasons why users get an email: which followed keys concern its events.
//!
//! A followed key such as `artist:7` is a reason if it is also the key of a notifiable object with
//! a title.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::domain::email_sections::{EmailItem, FollowReason};
use crate::domain::{Details, EmailContent, Event, FollowKey, Object, ObjectKey, UserId};
use crate::engine::Result;
use crate::engine::eligibility::event_facts::EventFacts;

/// The number of events per user to check, newest first. An email that shows more gives no reason
/// for the others.
const CHECKED_EVENTS: usize = 200;
/// The most followed things that an email names.
const MAX_NAMED: usize = 3;

/// The current follows of some users that concern their events.
#[derive(Debug, Default)]
pub(crate) struct Reasons {
    /// The names of the events' follow keys, followed or not.
    named: HashMap<FollowKey, FollowReason>,
    following: HashSet<(FollowKey, UserId)>,
}

impl Reasons {
    /// Loads the follows of these users that concern their events. The details of the events must
    /// be loaded.
    pub(super) async fn of(
        shown: &[(&UserId, Vec<&Event>)],
        event_facts: &EventFacts,
    ) -> Result<Self> {
        let mut pairs: BTreeSet<(FollowKey, &UserId)> = BTreeSet::new();
        for (user, events) in shown {
            let details =
                events.iter().take(CHECKED_EVENTS).filter_map(|event| event_facts.details(event));
            let keys = details.flat_map(|details| details.follow_keys());
            pairs.extend(keys.map(|key| (key, *user)));
        }
        let keys: BTreeSet<&FollowKey> = pairs.iter().map(|(key, _)| key).collect();
        let object_keys: Vec<ObjectKey> =
            keys.iter().map(|key| ObjectKey::stored(key.as_str())).collect();
        let objects = event_facts.read_objects(&object_keys).await?;
        let mut named: HashMap<FollowKey, FollowReason> = HashMap::new();
        for (key, object) in keys.into_iter().zip(objects) {
            if let Some(followed) = object.and_then(|object| named_by(key, object)) {
                named.insert(key.clone(), followed);
            }
        }
        pairs.retain(|(key, _)| named.contains_key(key));
        let pairs: Vec<(FollowKey, UserId)> =
            pairs.into_iter().map(|(key, user)| (key, user.clone())).collect();
        let follows = if pairs.is_empty() {
            Vec::new()
        } else {
            event_facts.context().store.following(&pairs).await?
        };
        let following = pairs.into_iter().zip(follows).filter(|(_, follows)| *follows);
        Ok(Self { following: following.map(|(pair, _)| pair).collect(), named })
    }

    /// Returns the followed things that concern the email's items, those with the most items first.
    pub(crate) fn followed_things(
        &self,
        user: &UserId,
        content: &EmailContent,
    ) -> Vec<FollowReason> {
        let mut counts: Vec<(FollowKey, usize)> = Vec::new();
        for key in content.items().filter_map(|(_, item)| self.followed_key(user, item)) {
            match counts.iter_mut().find(|(known, _)| *known == key) {
                Some((_, items)) => *items += 1,
                None => counts.push((key, 1)),
            }
        }
        counts.sort_by_key(|(_, items)| std::cmp::Reverse(*items));
        let followed = counts.iter().filter_map(|(key, _)| self.named.get(key));
        followed.take(MAX_NAMED).cloned().collect()
    }

    /// Returns the first of the item's follow keys that the user follows.
    fn followed_key(&self, user: &UserId, item: &EmailItem) -> Option<FollowKey> {
        let keys = item.details.as_deref().map(Details::follow_keys)?;
        let mut pairs = keys.into_iter().map(|key| (key, user.clone()));
        pairs.find(|pair| self.following.contains(pair)).map(|(key, _)| key)
    }
}

/// Returns the name and link of a followed object, if it is notifiable and has a title.
fn named_by(key: &FollowKey, object: Object) -> Option<FollowReason> {
    let title = object.title.filter(|title| !title.trim().is_empty());
    Some(FollowReason {
        key: key.clone(),
        name: title.filter(|_| object.notifiable)?,
        url: object.url,
    })
}
