//! What the page of `serve --demo` is told. No other server answers with these.

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::domain::{FollowKey, UserId};

/// The gallery as it is now.
#[derive(Debug, Serialize)]
pub(crate) struct Scene {
    pub(crate) people: Vec<Person>,
    pub(crate) artists: Vec<Artist>,
    /// The latest first.
    pub(crate) works: Vec<Work>,
}

/// Somebody who can be played.
#[derive(Debug, Serialize)]
pub(crate) struct Person {
    pub(crate) id: UserId,
    pub(crate) name: String,
    pub(crate) picture: String,
    /// When they get a digest, in words for people.
    pub(crate) digest: String,
    pub(crate) follows: Vec<FollowKey>,
}

/// Somebody whose works are told of.
#[derive(Debug, Serialize)]
pub(crate) struct Artist {
    pub(crate) name: String,
    pub(crate) key: FollowKey,
}

/// A work of the gallery.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Work {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) artist: String,
    /// What of, and when.
    pub(crate) made: String,
    pub(crate) picture: String,
}

/// What somebody's browser holds while they are played.
#[derive(Debug, Serialize)]
pub(crate) struct Visit<'a> {
    /// Their user token.
    pub(crate) token: &'a str,
    pub(crate) preferences: &'a str,
    pub(crate) unsubscribe: Option<&'a str>,
}

/// Something was published.
#[derive(Debug, Serialize)]
pub(crate) struct Published {
    /// The object's id.
    pub(crate) id: String,
    /// How many people were told.
    pub(crate) people: u64,
}

/// The outbox.
#[derive(Debug, Serialize)]
pub(crate) struct Mails {
    /// How many of them were written just now: the first ones.
    pub(crate) new: usize,
    /// As if it were this moment, if digests were sent just now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<DateTime<Utc>>,
    /// The latest first.
    pub(crate) mails: Vec<Mail>,
}

/// A mail that left.
#[derive(Debug, Serialize)]
pub(crate) struct Mail {
    pub(crate) number: usize,
    pub(crate) user: String,
    pub(crate) subject: String,
    pub(crate) at: DateTime<Utc>,
}
