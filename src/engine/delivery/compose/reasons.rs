//! Finds out why an email concerns its recipient: the names of the things they follow.
//!
//! It uses current follows. A followed key such as `artist:7` has a name if it is also the key of a
//! notifiable object with a title. Users with the same reasons and events can share a rendering.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::domain::content::{Followed, Item};
use crate::domain::{Content, Details, Event, FollowKey, Object, ObjectKey, UserId};
use crate::engine::Result;
use crate::engine::eligibility::catalog::{Catalog, CatalogSource};

/// The number of events per user to read, newest first. It is more than an email shows.
const READ: usize = 200;
/// The most followed things that an email names.
const NAMED: usize = 3;

/// The follows of some users that concern their events.
#[derive(Debug, Default)]
pub(crate) struct Reasons {
    /// The names of followed keys.
    named: HashMap<FollowKey, Followed>,
    following: HashSet<(FollowKey, UserId)>,
}

impl Reasons {
    /// Loads the follows of these users that concern their events. The details of the events must
    /// be in the catalog.
    pub(super) async fn of(
        shown: &[(&UserId, Vec<&Event>)],
        catalog: &Catalog,
        source: &CatalogSource,
    ) -> Result<Self> {
        let mut pairs: BTreeSet<(FollowKey, &UserId)> = BTreeSet::new();
        for (user, events) in shown {
            let events = events.iter().take(READ);
            let details = events.filter_map(|event| catalog.details(event));
            let keys = details.flat_map(|details| details.follow_keys());
            pairs.extend(keys.map(|key| (key, *user)));
        }
        let keys: BTreeSet<&FollowKey> = pairs.iter().map(|(key, _)| key).collect();
        let objects = keys.iter().map(|key| ObjectKey::stored(key.as_str()));
        let objects: Vec<ObjectKey> = objects.collect();
        let found = source.records(&objects).await?;
        let named = keys.into_iter().zip(found);
        let named = named.filter_map(|(key, object)| Some((key.clone(), named_by(key, object?)?)));
        let named: HashMap<FollowKey, Followed> = named.collect();
        let pairs = pairs.into_iter().filter(|(key, _)| named.contains_key(key));
        let pairs = pairs.map(|(key, user)| (key, user.clone()));
        let pairs: Vec<(FollowKey, UserId)> = pairs.collect();
        let follows = match pairs.is_empty() {
            true => Vec::new(),
            false => source.context.store.following(&pairs).await?,
        };
        let following = pairs.into_iter().zip(follows);
        let following = following.filter_map(|(pair, follows)| follows.then_some(pair));
        Ok(Self {
            following: following.collect(),
            named,
        })
    }

    /// Returns the followed things that concern the email's items, those with the most items first.
    pub(crate) fn because(&self, user: &UserId, content: &Content) -> Vec<Followed> {
        let mut shown: Vec<(FollowKey, usize)> = Vec::new();
        for (_, item) in content.items() {
            let Some(key) = self.followed(user, item) else {
                continue;
            };
            match shown.iter_mut().find(|(known, _)| *known == key) {
                Some((_, items)) => *items += 1,
                None => shown.push((key, 1)),
            }
        }
        shown.sort_by_key(|(_, items)| std::cmp::Reverse(*items));
        let followed = shown.iter().filter_map(|(key, _)| self.named.get(key));
        followed.take(NAMED).cloned().collect()
    }

    /// Returns the first of the item's follow keys that the user follows.
    fn followed(&self, user: &UserId, item: &Item) -> Option<FollowKey> {
        let keys = item.details.as_deref().map(Details::follow_keys)?;
        let mut pairs = keys.into_iter().map(|key| (key, user.clone()));
        let found = pairs.find(|pair| self.following.contains(pair));
        found.map(|(key, _)| key)
    }
}

/// Returns the name and link of a followed object, if it is notifiable and has a title.
fn named_by(key: &FollowKey, object: Object) -> Option<Followed> {
    let title = object.title.filter(|title| !title.trim().is_empty());
    Some(Followed {
        key: key.clone(),
        name: title.filter(|_| object.notifiable)?,
        url: object.url,
    })
}
