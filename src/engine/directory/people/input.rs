//! Records, mutes and follows as the application sends them.
//!
//! serde checks the fields one by one, and `check` checks the rest, before any read or write (P10).
//! [`super::preferences`] has the fields that users choose themselves.

use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::preferences::{PreferencesChange, Result, preferences_body};
use crate::domain::mute::Title;
use crate::domain::user::{self, DigestPreference};
use crate::domain::{
    Address, BrandName, FollowKey, Invalid, Point, Policies, User, UserId, locale, moment,
};
use crate::engine::directory::fields;

preferences_body! {
    /// A whole record. It replaces the earlier one, except for omitted preferences and omitted
    /// `suppressed` and `unsubscribed`, which stay.
    UserInput(
        digest: "fields::named_if_any",
        types: "fields::all_if_any"
    ) {
        /// Also called `_id`. May be a number. Required, unless the path names the user.
        #[serde(alias = "_id", deserialize_with = "optional_id")]
        id: Option<UserId>,
        /// Users without an address get no email.
        email: Option<Address>,
        /// At most 1,000 bytes. A blank name counts as none.
        name: Option<String>,
        /// Whether the address is confirmed; others get no email.
        confirmed: bool,
        /// A language tag such as `pt-BR`, at most 100 bytes.
        locale: Option<String>,
        /// A configured brand; `None` for the default.
        brand: Option<BrandName>,
        /// The location, for events near a point.
        loc: Option<Point>,
        /// Suppresses the user, or lifts it.
        suppressed: Option<bool>,
        /// `true` unsubscribes the user from everything. A record cannot resubscribe anyone.
        unsubscribed: Option<bool>,
    }
}

/// How a user mutes a subject.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with until and title")]
pub struct MuteInput {
    /// When the mute ends; without it, the user ends it. A past moment ends it now.
    #[serde(default, deserialize_with = "moment::read_if_any")]
    pub until: Option<DateTime<Utc>>,
    /// The name on the preferences page: one line of at most 120 bytes. An omitted title stays.
    #[serde(default)]
    pub title: Option<Title>,
}

/// A user who follows a key.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FollowInput {
    /// The follower. May be a number.
    #[serde(deserialize_with = "id")]
    pub user: UserId,
    /// The followed key, such as `artist:7`.
    pub key: FollowKey,
}

/// Reads an id that may be a number.
fn id<'de, D: Deserializer<'de>, T: FromStr<Err = Invalid>>(from: D) -> Result<T, D::Error> {
    let id = fields::Name::deserialize(from)?;
    id.parse().map_err(Error::custom)
}

fn optional_id<'de, D: Deserializer<'de>>(from: D) -> Result<Option<UserId>, D::Error> {
    id(from).map(Some)
}

impl UserInput {
    /// Checks what the types of the fields cannot express. Returns the id.
    pub fn check(&self) -> Result<&UserId> {
        PreferencesChange::from(self).check()?;
        check_texts(self.name.as_deref(), self.locale.as_deref())?;
        self.id
            .as_ref()
            .ok_or_else(|| Invalid::new("user", "", "has no id"))
    }

    /// Returns the record that replaces `before`.
    pub(super) fn user(
        &self,
        id: UserId,
        before: Option<&User>,
        policies: &Policies,
        now: DateTime<Utc>,
    ) -> User {
        let mut user = before.cloned().unwrap_or_else(|| User::new(id));
        user.unreadable.clear();
        user.email.clone_from(&self.email);
        user.name = self.name.clone().filter(|name| is_not_blank(name));
        user.confirmed = self.confirmed;
        user.locale.clone_from(&self.locale);
        user.brand.clone_from(&self.brand);
        user.loc = self.loc;
        if self.digest.is_some() {
            user.digest = DigestPreference::default();
        }
        if self.types.is_some() {
            user.types.clear();
        }
        PreferencesChange::from(self).apply(&mut user);
        suppress(&mut user, self.suppressed, now);
        if self.unsubscribed == Some(true) {
            user.unsubscribe(policies, now);
        }
        user
    }
}

/// Suppresses a user, or lifts it. A user who is suppressed already keeps the moment.
pub(super) fn suppress(user: &mut User, suppressed: Option<bool>, now: DateTime<Utc>) {
    let since = user.suppressed.unwrap_or(now);
    user.suppressed = match suppressed {
        Some(suppressed) => suppressed.then_some(since),
        None => user.suppressed,
    };
}

pub(super) fn is_not_blank(name: &str) -> bool {
    !name.trim().is_empty()
}

pub(super) fn check_texts(name: Option<&str>, locale: Option<&str>) -> Result<()> {
    let (bytes, limit) = (name.map_or(0, str::len), user::MAX_NAME);
    if bytes > limit {
        let why = format!("bytes is more than the {limit} that can be kept; shorten it");
        return Err(Invalid::limit("name of", bytes, why));
    }
    locale.map_or(Ok(()), locale::check)
}
