//! Keeps people and what they follow up to date, as the application says.
//!
//! The rule (P7): a record replaces the one before, but what a change of route or cadence means for the past is worked out here: turning
//! something on again mails nothing older.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::Deserialize;

use super::Result;
use crate::clock::Clock;
use crate::domain::user::{DigestPreference, TypePreference};
use crate::domain::{
    Address, Cadence, EventType, FollowKey, Invalid, Point, Policies, Route, Schedule, User, UserId,
};
use crate::store::Directory;

/// A person as the application hands them in. Ids may be numbers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserInput {
    #[serde(
        rename = "_id",
        alias = "id",
        default,
        deserialize_with = "optional_id"
    )]
    pub id: Option<UserId>,
    pub email: Option<Address>,
    pub name: Option<String>,
    #[serde(default)]
    pub confirmed: bool,
    pub tz: Option<chrono_tz::Tz>,
    pub locale: Option<String>,
    pub loc: Option<Point>,
    #[serde(default)]
    pub digest: DigestInput,
    #[serde(default)]
    pub types: BTreeMap<EventType, TypeInput>,
    #[serde(default)]
    pub suppressed: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DigestInput {
    pub cadence: Option<Cadence>,
    pub weekday: Option<chrono::Weekday>,
    pub hour: Option<u8>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TypeInput {
    pub route: Route,
}

/// An id that may be written as a number.
fn id<'de, D: serde::Deserializer<'de>, T: std::str::FromStr<Err = Invalid>>(
    deserializer: D,
) -> std::result::Result<T, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Id {
        Text(String),
        Number(i64),
    }
    let text = match Id::deserialize(deserializer)? {
        Id::Text(text) => text,
        Id::Number(number) => number.to_string(),
    };
    text.parse().map_err(serde::de::Error::custom)
}

/// The same where it may be missing.
fn optional_id<'de, D: serde::Deserializer<'de>, T: std::str::FromStr<Err = Invalid>>(
    deserializer: D,
) -> std::result::Result<Option<T>, D::Error> {
    id(deserializer).map(Some)
}

impl UserInput {
    /// What the types of its fields cannot say.
    pub fn check(&self) -> std::result::Result<&UserId, Invalid> {
        if let Some(hour) = self.digest.hour.filter(|hour| *hour > 23) {
            return Err(Invalid::new(
                "digest hour",
                hour,
                "is not an hour from 0 to 23",
            ));
        }
        self.id
            .as_ref()
            .ok_or_else(|| Invalid::new("user", "", "has no id"))
    }

    fn into_user(self, id: UserId, now: DateTime<Utc>) -> User {
        let types = self.types.into_iter();
        User {
            email: self.email,
            name: self.name.filter(|name| !name.trim().is_empty()),
            confirmed: self.confirmed,
            tz: self.tz,
            locale: self.locale,
            loc: self.loc,
            digest: DigestPreference {
                cadence: self.digest.cadence,
                weekday: self.digest.weekday,
                hour: self.digest.hour,
                since: None,
            },
            types: types
                .map(|(kind, chosen)| {
                    // A first record says how things are, not that they changed just now.
                    let since = DateTime::UNIX_EPOCH;
                    (
                        kind,
                        TypePreference {
                            route: chosen.route,
                            since,
                        },
                    )
                })
                .collect(),
            suppressed: self.suppressed.then_some(now),
            ..User::new(id)
        }
    }
}

/// That somebody follows something.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FollowInput {
    #[serde(deserialize_with = "id")]
    pub user: UserId,
    pub key: FollowKey,
}

pub struct PeopleBook {
    pub directory: Arc<dyn Directory>,
    pub clock: Arc<dyn Clock>,
    pub policies: Arc<Policies>,
    pub schedule: Schedule,
}

impl PeopleBook {
    /// Creates or replaces these people's records. Where one id occurs twice, the last counts.
    pub async fn put(&self, inputs: Vec<UserInput>) -> Result<()> {
        let now = self.clock.now();
        let mut users: HashMap<UserId, User> = HashMap::with_capacity(inputs.len());
        for input in inputs {
            let id = input.check()?.clone();
            users.insert(id.clone(), input.into_user(id, now));
        }
        let mut ids: Vec<UserId> = users.keys().cloned().collect();
        ids.sort_unstable();
        let before = self.directory.users(&ids).await?;
        let records: Vec<User> = ids
            .iter()
            .zip(before)
            .filter_map(|(id, before)| {
                let user = users.remove(id)?;
                Some(user.replacing(before.as_ref(), &self.schedule, &self.policies, now))
            })
            .collect();
        Ok(self.directory.put_users(&records).await?)
    }

    pub async fn follow(&self, follows: Vec<FollowInput>) -> Result<()> {
        let mut pairs: Vec<_> = follows
            .into_iter()
            .map(|follow| (follow.key, follow.user))
            .collect();
        pairs.sort_unstable();
        pairs.dedup();
        Ok(self.directory.follow(&pairs).await?)
    }

    pub async fn unfollow(&self, follows: Vec<FollowInput>) -> Result<()> {
        let pairs: Vec<_> = follows
            .into_iter()
            .map(|follow| (follow.key, follow.user))
            .collect();
        Ok(self.directory.unfollow(&pairs).await?)
    }
}
