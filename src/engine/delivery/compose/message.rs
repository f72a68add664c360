//! Renders emails, and adds the links and headers of their recipients.
//!
//! An email that does not mention its recipient is rendered once for all users with the same
//! content, time zone and language. A followed key such as `artist:7` is a reason for an email if
//! it is also the key of a notifiable object with a title. Start with [`Compose::message`].

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;

use super::Compose;
use crate::domain::email_content::{Followed, Item};
use crate::domain::{
    Cadence, Content, Delivery, Details, Event, FollowKey, Object, ObjectKey, Occasion, Stop, User,
    UserId,
};
use crate::email::{self, Message, Place, Placeholders};
use crate::engine::Result;
use crate::engine::access::links::LinkMaker;
use crate::engine::eligibility::event_facts::Catalog;
use crate::render;

/// A rendered email, without its recipient.
pub(crate) struct Written {
    pub content: email::Content,
    /// Whether it mentions its recipient.
    pub is_personal: bool,
}

impl Compose {
    /// Renders an email, with placeholders for its links if there are public pages. So users with
    /// the same content can share it.
    pub(crate) fn rendered(
        &self,
        user: &User,
        content: &Content,
        occasion: &Occasion,
        at: DateTime<Utc>,
    ) -> Result<Written, String> {
        let placeholders = Placeholders::new()?;
        let placeholder = |place| {
            let has_pages = self.identity.links.public_url.is_some();
            has_pages.then(|| placeholders.of(place).to_owned())
        };
        let stop = Stop::of_mail(content, occasion, &self.context.policies);
        let mutes = Stop::of_subject(content, occasion, &self.context.policies);
        let rendered = self.identity.renderer.render(&render::Mail {
            user,
            content,
            occasion,
            at,
            tz: self.tz_of(user),
            links: render::Links {
                unsubscribe: stop.as_ref().and_then(|_| placeholder(Place::Unsubscribe)),
                preferences: placeholder(Place::Preferences),
                mute: mutes.and_then(|_| placeholder(Place::Mute)),
            },
            stop: stop.as_ref(),
        });
        let rendered = rendered.map_err(|error| format!("{error:#}"))?;
        Ok(Written {
            content: email::Content {
                subject: rendered.subject,
                html: placeholders.cut(&rendered.html),
                text: placeholders.cut(&rendered.text),
            },
            is_personal: rendered.is_personal,
        })
    }

    /// Returns the time zone of this user, or else the default one.
    fn tz_of(&self, user: &User) -> Tz {
        user.schedule(&self.context.config.digest.schedule).tz
    }

    /// Returns the email of a row with this content.
    pub(super) fn message(
        &self,
        row: &Delivery,
        user: &User,
        content: Content,
        maker: Option<&LinkMaker<'_>>,
        at: DateTime<Utc>,
        contents: &mut Contents,
    ) -> Result<Message, String> {
        let to = user
            .reachable()
            .map_err(|why| why.as_str().to_owned())?
            .clone();
        let (occasion, policies) = (&row.occasion, &self.context.policies);
        // Links are dated by the row, so that every build of it makes the same ones.
        let stop = Stop::of_mail(&content, occasion, policies);
        let mute = Stop::of_subject(&content, occasion, policies);
        let issued = user
            .start
            .map_or(row.created, |start| start.valid_from(row.created));
        let personal = maker.map(|maker| {
            let (stop, mute) = (stop.as_ref(), mute.as_ref());
            maker.personal(&row.user, Some(&to), stop, mute, issued)
        });
        let further = self.identity.headers.of(row, &content, policies);
        let locale = self.identity.renderer.locale_of(user);
        let rendering = Rendering {
            digest: (occasion.digest()).map(|(cadence, period)| (cadence, period.to_owned())),
            tz: self.tz_of(user),
            locale: locale.to_owned(),
            content,
        };
        let content = match contents.rendered(&rendering) {
            Some(content) => content,
            None => {
                let written = self.rendered(user, &rendering.content, occasion, at);
                let written =
                    written.map_err(|error| format!("the mail cannot be rendered: {error}"))?;
                let content = Arc::new(written.content);
                contents.add(rendering, &content, written.is_personal);
                content
            }
        };
        Ok(Message {
            delivery: row.id.clone(),
            to,
            to_name: user.name.clone(),
            content,
            personal,
            further,
            at,
        })
    }
}

/// A build is full when its contents have this many bytes.
const BYTES: usize = 16 << 20;
/// The most renderings that are kept for reuse. If all users have different events, more would only
/// cost memory.
const REMEMBERED: usize = 256;

/// The contents of a build.
#[derive(Default)]
pub(super) struct Contents {
    bytes: usize,
    rendered: Vec<(Rendering, Arc<email::Content>)>,
}

/// The input of a rendering.
#[derive(PartialEq)]
pub(super) struct Rendering {
    /// The cadence and the period of a digest; `None` for a batch.
    pub digest: Option<(Cadence, String)>,
    pub tz: Tz,
    pub locale: String,
    pub content: Content,
}

impl Contents {
    /// Returns whether the build has reached its limit in bytes.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= BYTES
    }

    /// Returns the content for another user with the same input.
    pub(super) fn rendered(&self, rendering: &Rendering) -> Option<Arc<email::Content>> {
        let mut known = self.rendered.iter();
        let (_, content) = known.find(|(known, _)| known == rendering)?;
        Some(Arc::clone(content))
    }

    /// Counts a new content. Keeps it if it does not mention its recipient.
    pub(super) fn add(
        &mut self,
        rendering: Rendering,
        content: &Arc<email::Content>,
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
