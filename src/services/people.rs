//! Keeps people and what they follow up to date, as the application says.
//!
//! The rule (P7): a record replaces the one before, except for what people choose themselves (digest, types, time zone) and for what stops
//! mails (suppressed, unsubscribed): these stay unless the record names them. What a change of route or cadence means for the past is worked
//! out here: turning something on again mails nothing older. Nobody's change is lost to another one at the same moment: a record is put in the
//! place of what was read, or read again.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use serde::Deserialize;

use super::Result;
use crate::clock::Clock;
use crate::domain::user::{self, DigestPreference, TypePreference};
use crate::domain::{
    Address, Cadence, EventType, FollowKey, Invalid, Point, Policies, Route, Schedule, User, UserId,
};
use crate::store::{self, Directory};

/// How often a record is read again that others change at the same moment. Each time at least one of them is done.
const ROUNDS: usize = 100;

/// A person as the application hands them in. Ids may be numbers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserInput {
    #[serde(default, alias = "_id", deserialize_with = "optional_id")]
    pub id: Option<UserId>,
    pub email: Option<Address>,
    pub name: Option<String>,
    #[serde(default)]
    pub confirmed: bool,
    /// Replaces what they chose, `null` takes it back; left out, it stays.
    #[serde(default, deserialize_with = "change")]
    pub tz: Change<chrono_tz::Tz>,
    pub locale: Option<String>,
    pub loc: Option<Point>,
    /// Replaces what they chose; left out, it stays.
    pub digest: Option<DigestInput>,
    /// The same.
    pub types: Option<BTreeMap<EventType, TypeInput>>,
    /// Suppresses them or lifts it; left out, it stays.
    pub suppressed: Option<bool>,
    /// Unsubscribes them from everything, if it is true. Nothing said here brings anybody back: only a choice does.
    pub unsubscribed: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object with cadence, weekday and hour"
)]
pub struct DigestInput {
    pub cadence: Option<Cadence>,
    pub weekday: Option<chrono::Weekday>,
    pub hour: Option<u8>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with route and window")]
pub struct TypeInput {
    pub route: Route,
    /// How long their batches gather, such as `1h`; `null` takes it back. Left out, it stays where a choice is changed, and is none where
    /// choices are replaced.
    #[serde(default, deserialize_with = "own_window")]
    pub window: Change<TimeDelta>,
}

/// What a person changes of their choices: what is left out stays, `null` takes a choice back.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreferencesInput {
    #[serde(default)]
    pub digest: DigestChange,
    #[serde(default, deserialize_with = "change")]
    pub tz: Change<chrono_tz::Tz>,
    #[serde(default)]
    pub types: BTreeMap<EventType, Option<TypeInput>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object with cadence, weekday and hour"
)]
pub struct DigestChange {
    #[serde(default, deserialize_with = "change")]
    pub cadence: Change<Cadence>,
    #[serde(default, deserialize_with = "change")]
    pub weekday: Change<chrono::Weekday>,
    #[serde(default, deserialize_with = "change")]
    pub hour: Change<u8>,
}

/// Left out, taken back, or chosen.
pub type Change<T> = Option<Option<T>>;

fn change<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> std::result::Result<Change<T>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// A window as text, or `null`.
fn own_window<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Change<TimeDelta>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "expected a duration as text, such as \"1h\", or null"
    )]
    enum Window {
        Own(String),
        Types(()),
    }
    match Window::deserialize(deserializer)? {
        Window::Own(text) => user::window(&text)
            .map(|window| Some(Some(window)))
            .map_err(serde::de::Error::custom),
        Window::Types(()) => Ok(Some(None)),
    }
}

/// An id that may be written as a number.
fn id<'de, D: serde::Deserializer<'de>, T: std::str::FromStr<Err = Invalid>>(
    deserializer: D,
) -> std::result::Result<T, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a name as text or a whole number")]
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
        check_hour(self.digest.as_ref().and_then(|digest| digest.hour))?;
        self.id
            .as_ref()
            .ok_or_else(|| Invalid::new("user", "", "has no id"))
    }

    fn user(
        &self,
        id: UserId,
        before: Option<&User>,
        book: &PeopleBook,
        now: DateTime<Utc>,
    ) -> User {
        let digest = match &self.digest {
            Some(digest) => DigestPreference {
                cadence: digest.cadence,
                weekday: digest.weekday,
                hour: digest.hour,
                since: None,
            },
            None => before.map(|user| user.digest).unwrap_or_default(),
        };
        let types = match &self.types {
            Some(types) => types
                .iter()
                .map(|(kind, input)| (kind.clone(), chosen(input, None)))
                .collect(),
            None => before.map(|user| user.types.clone()).unwrap_or_default(),
        };
        let suppressed = before.and_then(|user| user.suppressed);
        let name = self.name.clone();
        let mut user = User {
            email: self.email.clone(),
            name: name.filter(|name| !name.trim().is_empty()),
            confirmed: self.confirmed,
            tz: self.tz.unwrap_or(before.and_then(|user| user.tz)),
            locale: self.locale.clone(),
            loc: self.loc,
            digest,
            types,
            suppressed: match self.suppressed {
                Some(true) => suppressed.or(Some(now)),
                Some(false) => None,
                None => suppressed,
            },
            unsubscribed: before.and_then(|user| user.unsubscribed),
            ..User::new(id)
        };
        if self.unsubscribed == Some(true) {
            user.unsubscribe(&book.policies, now);
        }
        user
    }
}

impl PreferencesInput {
    /// What the types of its fields cannot say.
    pub fn check(&self) -> std::result::Result<(), Invalid> {
        check_hour(self.digest.hour.flatten())
    }

    fn apply(&self, user: &mut User, book: &PeopleBook) {
        let digest = &mut user.digest;
        digest.cadence = self.digest.cadence.unwrap_or(digest.cadence);
        digest.weekday = self.digest.weekday.unwrap_or(digest.weekday);
        digest.hour = self.digest.hour.unwrap_or(digest.hour);
        user.tz = self.tz.unwrap_or(user.tz);
        for (kind, input) in &self.types {
            match input {
                Some(input) => {
                    let before = user.types.get(kind).copied();
                    user.types.insert(kind.clone(), chosen(input, before));
                }
                None => {
                    user.types.remove(kind);
                }
            }
        }
        if self.asks_for_mail(user, book) {
            user.unsubscribed = None;
        }
    }

    /// Whether any of what is named here is mailed from now on: then they come back. Choosing an hour alone does not bring anybody back.
    fn asks_for_mail(&self, user: &User, book: &PeopleBook) -> bool {
        let digest = self.digest.cadence.is_some()
            && user.schedule(&book.schedule).cadence != Cadence::Never;
        let route = |kind: &EventType| match user.types.get(kind) {
            Some(chosen) => chosen.route,
            None => book.policies.of(kind).route,
        };
        digest || self.types.keys().any(|kind| route(kind).is_mailed_alone())
    }
}

fn check_hour(hour: Option<u8>) -> std::result::Result<(), Invalid> {
    match hour {
        Some(hour) if hour > 23 => Err(Invalid::new(
            "digest hour",
            hour,
            "is not an hour from 0 to 23",
        )),
        _ => Ok(()),
    }
}

/// What is chosen for a type, over what was chosen before. A first record says how things are, not that they changed just now;
/// [`User::replacing`] dates changes.
fn chosen(input: &TypeInput, before: Option<TypePreference>) -> TypePreference {
    let window = before.and_then(|before| before.window);
    TypePreference {
        window: input.window.unwrap_or(window),
        ..TypePreference::new(input.route, DateTime::UNIX_EPOCH)
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
        let mut people: HashMap<UserId, UserInput> = HashMap::with_capacity(inputs.len());
        for input in inputs {
            people.insert(input.check()?.clone(), input);
        }
        let mut ids: Vec<UserId> = people.keys().cloned().collect();
        ids.sort_unstable();
        self.change(ids, |id, before| {
            let user = people[id].user(id.clone(), before, self, now);
            Some(user.replacing(before, &self.schedule, &self.policies, now))
        })
        .await
    }

    /// Puts what `change` makes of each record in its place: of what stands now, again and again until nobody came between. Nothing, or
    /// the same again, leaves it as it is.
    async fn change(
        &self,
        mut ids: Vec<UserId>,
        change: impl Fn(&UserId, Option<&User>) -> Option<User>,
    ) -> Result<()> {
        for _ in 0..ROUNDS {
            let standing = self.directory.users(&ids).await?;
            let changed = ids.iter().zip(&standing).filter_map(|(id, before)| {
                let before = before.as_ref();
                change(id, before).filter(|after| before != Some(after))
            });
            let changed: Vec<User> = changed.collect();
            if changed.is_empty() {
                return Ok(());
            }
            let put = self.directory.put_users(&changed).await?;
            let missed = changed.into_iter().zip(put).filter(|(_, put)| !put);
            ids = missed.map(|(user, _)| user.id).collect();
            if ids.is_empty() {
                return Ok(());
            }
        }
        let why = format!("{} others changed them first, each time", ROUNDS);
        Err(store::Error::database("changing people", why).into())
    }

    /// Somebody's record.
    pub async fn get(&self, id: &UserId) -> Result<Option<User>> {
        let found = self.directory.users(std::slice::from_ref(id)).await?;
        Ok(found.into_iter().next().flatten())
    }

    /// Removes somebody's record and what they follow; says whether there was one.
    pub async fn delete(&self, id: &UserId) -> Result<bool> {
        Ok(self.directory.delete_user(id).await?)
    }

    /// Changes what somebody chose; their record as it is now, or nothing where there is none.
    pub async fn prefer(&self, id: &UserId, change: PreferencesInput) -> Result<Option<User>> {
        change.check()?;
        let now = self.clock.now();
        self.change(vec![id.clone()], |_, before| {
            let before = before?;
            let mut user = before.clone();
            change.apply(&mut user, self);
            Some(user.replacing(Some(before), &self.schedule, &self.policies, now))
        })
        .await?;
        self.get(id).await
    }

    /// Ends all mails to somebody, at their own wish; again, it changes nothing. Their record as it is now, or nothing where there is none.
    pub async fn unsubscribe(&self, id: &UserId) -> Result<Option<User>> {
        let now = self.clock.now();
        self.change(vec![id.clone()], |_, before| {
            let before = before?;
            let mut user = before.clone();
            user.unsubscribe(&self.policies, now);
            Some(user.replacing(Some(before), &self.schedule, &self.policies, now))
        })
        .await?;
        self.get(id).await
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
