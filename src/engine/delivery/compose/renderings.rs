//! Renderings that users share, and the reasons why users get an email.
//!
//! An email that does not mention its recipient is rendered once for all users with the same
//! content, time zone and language. A followed key such as `artist:7` is a reason if it is also the
//! key of a notifiable object with a title.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use chrono_tz::Tz;

use crate::domain::email_content::{EmailItem, Followed};
use crate::domain::{Cadence, Details, EmailContent, Event, FollowKey, Object, ObjectKey, UserId};
use crate::email;
use crate::engine::Result;
use crate::engine::eligibility::event_facts::Catalog;

/// A build is full when its contents have this many bytes.
const BYTES: usize = 16 << 20;
/// The most renderings that are kept for reuse. If all users have different events, more would only
/// cost memory.
const REMEMBERED: usize = 256;

/// The contents of a build.
#[derive(Default)]
pub(super) struct Contents {
    bytes: usize,
    rendered: Vec<(Rendering, Arc<email::SharedContent>)>,
}

/// The input of a rendering.
#[derive(PartialEq)]
pub(super) struct Rendering {
    /// The cadence and the period of a digest; `None` for a batch.
    pub digest: Option<(Cadence, String)>,
    pub tz: Tz,
    pub locale: String,
    pub content: EmailContent,
}

impl Contents {
    /// Returns whether the build has reached its limit in bytes.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= BYTES
    }

    /// Returns the content for another user with the same input.
    pub(super) fn rendered(&self, rendering: &Rendering) -> Option<Arc<email::SharedContent>> {
        let mut known = self.rendered.iter();
        let (_, content) = known.find(|(known, _)| known == rendering)?;
        Some(Arc::clone(content))
    }

    /// Counts a new content. Keeps it if it does not mention its recipient.
    pub(super) fn add(
        &mut self,
        rendering: Rendering,
        content: &Arc<email::SharedContent>,
        is_personal: bool,
    ) {
        self.bytes += content.bytes();
        if !is_personal && self.rendered.len() < REMEMBERED {
            self.rendered.push((rendering, content.clone()));
        }
    }
}

/// The number of events per user to read, newest first. It is more than an email shows.
const READ: usize = 200;
/// The most followed things that an email names.
const NAMED: usize = 3;

/// The current follows of some users that concern their events.
#[derive(Debug, Default)]
pub(crate) struct Reasons {
    /// The names of followed keys.
    named: HashMap<FollowKey, Followed>,
    following: HashSet<(FollowKey, UserId)>,
}

impl Reasons {
    /// Loads the follows of these users that concern their events. The details of the events must
    /// be in the catalog.
    pub(super) async fn of(shown: &[(&UserId, Vec<&Event>)], catalog: &Catalog) -> Result<Self> {
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
        let found = catalog.records(&objects).await?;
        let named = keys.into_iter().zip(found);
        let named = named.filter_map(|(key, object)| Some((key.clone(), named_by(key, object?)?)));
        let named: HashMap<FollowKey, Followed> = named.collect();
        let pairs = pairs.into_iter().filter(|(key, _)| named.contains_key(key));
        let pairs = pairs.map(|(key, user)| (key, user.clone()));
        let pairs: Vec<(FollowKey, UserId)> = pairs.collect();
        let follows = match pairs.is_empty() {
            true => Vec::new(),
            false => catalog.context().store.following(&pairs).await?,
        };
        let following = pairs.into_iter().zip(follows);
        let following = following.filter_map(|(pair, follows)| follows.then_some(pair));
        Ok(Self { following: following.collect(), named })
    }

    /// Returns the followed things that concern the email's items, those with the most items first.
    pub(crate) fn because(&self, user: &UserId, content: &EmailContent) -> Vec<Followed> {
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
    fn followed(&self, user: &UserId, item: &EmailItem) -> Option<FollowKey> {
        let keys = item.details.as_deref().map(Details::follow_keys)?;
        let mut pairs = keys.into_iter().map(|key| (key, user.clone()));
        let found = pairs.find(|pair| self.following.contains(pair));
        found.map(|(key, _)| key)
    }
}

/// Returns the name and link of a followed object, if it is notifiable and has a title.
fn named_by(key: &FollowKey, object: Object) -> Option<Followed> {
    let title = object.title.filter(|title| !title.trim().is_empty());
    Some(Followed { key: key.clone(), name: title.filter(|_| object.notifiable)?, url: object.url })
}
