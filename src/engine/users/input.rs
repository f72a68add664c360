//! Records, patches, preferences, mutes and follows, as the application and the pages send them.
//!
//! serde checks the fields one by one, and `check` checks the rest, before any read or write (P10).
//! Records, patches, imports and the preferences page all make a [`PreferencesChange`]. A new
//! preference is a field there and in [`UserInput`], and a line in [`PreferencesChange::apply`].
//! [`User::into_replacement_of`] decides its effect on earlier events.

use std::collections::BTreeMap;
use std::str::FromStr;

use chrono::{DateTime, TimeDelta, Utc, Weekday};
use chrono_tz::Tz;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::config::Config;
use crate::domain::mutes_and_quiet_hours::Title;
use crate::domain::user::{self, DigestPreference, TypePreference};
use crate::domain::{
    Address, BrandName, Cadence, EventType, FollowKey, InvalidValue, Point, Policies, QuietHours,
    Route, Schedule, User, UserId, durations_and_times, text_checks,
};
use crate::engine::json_fields::{self, JsonObject};

type Result<T, E = InvalidValue> = std::result::Result<T, E>;

/// A change of one field: omitted, `null`, or a value.
pub type Change<T> = Option<Option<T>>;

/// Changes of the choices of types.
pub type TypeChanges = BTreeMap<EventType, Option<JsonObject<TypeChange>>>;

/// A user's own change of preferences. Omitted fields stay, and `null` resets a choice.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "an object")]
pub struct PreferencesChange {
    /// How often and when digests are sent.
    #[serde(deserialize_with = "json_fields::named_if_given")]
    pub digest: Option<DigestChange>,
    /// The time zone, such as `Europe/Paris`.
    #[serde(deserialize_with = "zone")]
    pub tz: Change<Tz>,
    /// The hours in which no batch closes.
    #[serde(deserialize_with = "json_fields::named_or_null")]
    pub quiet: Change<QuietHours>,
    /// The choices by type. `None` restores the configuration's route.
    #[serde(deserialize_with = "json_fields::given")]
    pub types: Option<TypeChanges>,
}

/// A change of a user's digests.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "an object with cadence, weekday and hour")]
pub struct DigestChange {
    /// How often: `never`, `daily` or `weekly`.
    #[serde(deserialize_with = "json_fields::given")]
    pub cadence: Change<Cadence>,
    /// For weekly digests, such as `mon`.
    #[serde(deserialize_with = "weekday")]
    pub weekday: Change<Weekday>,
    /// The local hour, 0 to 23.
    #[serde(deserialize_with = "json_fields::given")]
    pub hour: Change<u8>,
}

/// How a user gets events of one type.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with route and window")]
pub struct TypeChange {
    /// `never`, `immediate`, `batch` or `digest`.
    pub route: Route,
    /// How long this user's batches of the type collect events, such as `1h`. `null` is the type's
    /// own window. An omitted window stays, unless a record replaces all types.
    #[serde(default, deserialize_with = "own_window")]
    pub window: Change<TimeDelta>,
}

/// Parses a name or `null`. The error quotes the name and describes the `expected` form.
fn name_or_null<'de, D: Deserializer<'de>, T: FromStr>(
    from: D,
    what: &'static str,
    expected: &str,
) -> Result<Change<T>, D::Error> {
    let name = Option::<String>::deserialize(from)?;
    let parse = |name: String| {
        let parsed = name.parse();
        parsed.map_err(|_| {
            D::Error::custom(InvalidValue::new(what, name, format!("is not {expected}")))
        })
    };
    name.map(parse).transpose().map(Some)
}

fn zone<'de, D: Deserializer<'de>>(from: D) -> Result<Change<Tz>, D::Error> {
    name_or_null(from, "time zone", "a name such as Europe/Paris")
}

fn weekday<'de, D: Deserializer<'de>>(from: D) -> Result<Change<Weekday>, D::Error> {
    name_or_null(from, "weekday", "mon, tue, wed, thu, fri, sat or sun")
}

fn own_window<'de, D: Deserializer<'de>>(from: D) -> Result<Change<TimeDelta>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a duration as text, such as \"1h\", or null")]
    enum WindowInput {
        Own(String),
        Types(()),
    }
    match WindowInput::deserialize(from)? {
        WindowInput::Own(text) => {
            user::parse_window(&text).map(|window| Some(Some(window))).map_err(Error::custom)
        }
        WindowInput::Types(()) => Ok(Some(None)),
    }
}

impl PreferencesChange {
    /// Checks what the types of the fields cannot express.
    pub fn check(&self) -> Result<()> {
        let hour = self.digest.and_then(|digest| digest.hour.flatten());
        if let Some(hour) = hour.filter(|hour| *hour > 23) {
            let why = "is not an hour from 0 to 23";
            return Err(InvalidValue::new("digest hour", hour, why));
        }
        user::check_choices(self.types.as_ref().map_or(0, BTreeMap::len))
    }

    /// Rejects digests of types whose events may be of any brand.
    pub(super) fn check_routes(&self, policies: &Policies) -> Result<()> {
        for (kind, change) in self.chosen() {
            if policies.effective_route(kind, change.route) != change.route {
                let why = "has events of several brands, so it is in no digest; choose immediate, batch or never";
                return Err(InvalidValue::new("type", kind, why));
            }
        }
        Ok(())
    }

    /// Rejects choices of mandatory types. Resetting one is allowed and changes nothing.
    pub(super) fn check_optional(&self, policies: &Policies) -> Result<()> {
        for (kind, _) in self.chosen() {
            if let Some(mandate) = &policies.policy(kind).mandatory {
                let reason = mandate.as_str();
                let why = format!("is mandatory ({reason}), so there is no choice; leave it out");
                return Err(InvalidValue::new("type", kind, why));
            }
        }
        Ok(())
    }

    fn chosen(&self) -> impl Iterator<Item = (&EventType, &TypeChange)> {
        let types = self.types.iter().flatten();
        types.filter_map(|(kind, change)| Some((kind, &change.as_ref()?.0)))
    }

    /// Changes the preferences of a record; the others stay. Does not resubscribe the user.
    pub(super) fn apply(&self, user: &mut User) {
        let (digest, change) = (&mut user.digest, self.digest.unwrap_or_default());
        digest.cadence = change.cadence.unwrap_or(digest.cadence);
        digest.weekday = change.weekday.unwrap_or(digest.weekday);
        digest.hour = change.hour.unwrap_or(digest.hour);
        user.tz = self.tz.unwrap_or(user.tz);
        user.quiet = self.quiet.unwrap_or(user.quiet);
        for (kind, change) in self.types.iter().flatten() {
            let own_window = user.types.remove(kind).and_then(|choice| choice.window);
            if let Some(JsonObject(TypeChange { route, window })) = change {
                // A placeholder: `User::into_replacement_of` sets the time.
                let chosen = TypePreference {
                    window: window.unwrap_or(own_window),
                    ..TypePreference::new(*route, DateTime::<Utc>::UNIX_EPOCH)
                };
                user.types.insert(kind.clone(), chosen);
            }
        }
    }

    /// Returns whether this change resubscribes a user whose record is `user` after it. A cadence
    /// or a route that sends emails does; an hour or weekday alone does not.
    pub(super) fn resubscribes(
        &self,
        user: &User,
        default: &Schedule,
        policies: &Policies,
    ) -> bool {
        let has_cadence = self.digest.is_some_and(|digest| digest.cadence.is_some());
        let route = |kind: &EventType| match user.types.get(kind) {
            Some(chosen) => chosen.route,
            None => policies.policy(kind).route,
        };
        let mut types = self.types.iter().flat_map(BTreeMap::keys);
        has_cadence && user.schedule(default).cadence != Cadence::Never
            || types.any(|kind| !policies.is_mandatory(kind) && route(kind).is_outside_digest())
    }
}

/// A user's record, or a patch of one. Omitted fields of a patch stay. A record replaces the
/// earlier one, except for omitted preferences and omitted `suppressed` and `unsubscribed`, which
/// stay.
///
/// It repeats the fields of [`PreferencesChange`], because serde's `flatten` has errors that name
/// neither the invalid field nor the known ones.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "an object")]
pub struct UserInput {
    /// Also called `_id`. May be a number. Required, unless the path names the user.
    #[serde(alias = "_id", deserialize_with = "optional_id")]
    pub id: Option<UserId>,
    /// Users without an address get no email. In a patch, a new address is unconfirmed unless the
    /// patch sets `confirmed`.
    #[serde(deserialize_with = "json_fields::given")]
    pub email: Change<Address>,
    /// At most 1,000 bytes. A blank name counts as none.
    #[serde(deserialize_with = "json_fields::given")]
    pub name: Change<String>,
    /// Whether the address is confirmed; others get no email. `null` is `false`.
    #[serde(deserialize_with = "json_fields::given")]
    pub confirmed: Change<bool>,
    /// A language tag such as `pt-BR`, at most 100 bytes.
    #[serde(deserialize_with = "json_fields::given")]
    pub locale: Change<String>,
    /// A configured brand; `null` for the default.
    #[serde(deserialize_with = "json_fields::given")]
    pub brand: Change<BrandName>,
    /// The location, for events near a point.
    #[serde(deserialize_with = "json_fields::given")]
    pub loc: Change<Point>,
    /// Suppresses the user, or lifts it. `null` is `false` in a patch, and omitted in a record.
    #[serde(deserialize_with = "json_fields::given")]
    pub suppressed: Change<bool>,
    /// `true` unsubscribes the user from everything. It cannot resubscribe anyone.
    #[serde(deserialize_with = "json_fields::given")]
    pub unsubscribed: Change<bool>,
    /// As in [`PreferencesChange`]; `null` counts as omitted in a record.
    #[serde(deserialize_with = "json_fields::named_or_null")]
    pub digest: Change<DigestChange>,
    /// As in [`PreferencesChange`].
    #[serde(deserialize_with = "zone")]
    pub tz: Change<Tz>,
    /// As in [`PreferencesChange`].
    #[serde(deserialize_with = "json_fields::named_or_null")]
    pub quiet: Change<QuietHours>,
    /// As in [`PreferencesChange`]; `null` counts as omitted in a record.
    #[serde(deserialize_with = "json_fields::given")]
    pub types: Change<TypeChanges>,
}

/// How a user mutes a subject.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with until and title")]
pub struct MuteInput {
    /// When the mute ends; without it, the user ends it. A past moment ends it now.
    #[serde(default, deserialize_with = "durations_and_times::deserialize_optional_time")]
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
fn id<'de, D: Deserializer<'de>, T: FromStr<Err = InvalidValue>>(from: D) -> Result<T, D::Error> {
    let id = json_fields::NameOrNumber::deserialize(from)?;
    id.parse().map_err(Error::custom)
}

fn optional_id<'de, D: Deserializer<'de>>(from: D) -> Result<Option<UserId>, D::Error> {
    id(from).map(Some)
}

impl UserInput {
    /// Checks what the types of a record's fields cannot express. Returns the id.
    pub fn check(&self) -> Result<&UserId> {
        self.check_fields()?;
        self.id.as_ref().ok_or_else(|| InvalidValue::new("user", "", "has no id"))
    }

    /// Checks what the types of a patch's fields cannot express.
    pub fn check_patch(&self) -> Result<()> {
        if let Some(id) = &self.id {
            return Err(InvalidValue::new("user id", id, "cannot change; leave it out"));
        }
        if self.unsubscribed == Some(None) {
            let why = "resubscribes no one; only the user's own choice does. Leave it out";
            return Err(InvalidValue::new("unsubscribed", "null", why));
        }
        let why = "changes nothing; leave it out, or set its fields to null";
        if matches!(self.digest, Some(None)) {
            return Err(InvalidValue::new("digest", "null", why));
        }
        if matches!(self.types, Some(None)) {
            return Err(InvalidValue::new("types", "null", why));
        }
        self.check_fields()
    }

    fn check_fields(&self) -> Result<()> {
        self.preferences().check()?;
        let (bytes, limit) =
            (self.name.iter().flatten().map(String::len).sum(), user::MAX_USER_NAME_BYTES);
        let why = format_args!("bytes is more than the {limit} that can be kept; shorten it");
        InvalidValue::check_limit("name of", bytes, limit, why)?;
        let mut locale = self.locale.iter().flatten();
        locale.try_for_each(|locale| text_checks::check_locale(locale))
    }

    /// Rejects a brand that is not configured, and routes that the configuration does not allow.
    pub(super) fn check_configured(&self, config: &Config, policies: &Policies) -> Result<()> {
        let mut brand = self.brand.iter().flatten();
        brand.try_for_each(|brand| config.check_brand(brand))?;
        self.preferences().check_routes(policies)
    }

    fn preferences(&self) -> PreferencesChange {
        PreferencesChange {
            digest: self.digest.flatten(),
            tz: self.tz,
            quiet: self.quiet,
            types: self.types.clone().flatten(),
        }
    }

    /// Returns the record that replaces `before`.
    pub(super) fn to_record(
        &self,
        id: UserId,
        before: Option<&User>,
        policies: &Policies,
        now: DateTime<Utc>,
    ) -> User {
        let mut user = before.cloned().unwrap_or_else(|| User::new(id));
        user.unreadable.clear();
        (user.email, user.name, user.locale) = (None, None, None);
        (user.brand, user.loc, user.confirmed) = (None, None, false);
        if matches!(self.digest, Some(Some(_))) {
            user.digest = DigestPreference::default();
        }
        if matches!(self.types, Some(Some(_))) {
            user.types.clear();
        }
        self.apply(&mut user, policies, now);
        if self.suppressed == Some(None) {
            user.suppressed = before.and_then(|before| before.suppressed);
        }
        user
    }

    /// Changes the given fields of a record; the others stay.
    pub(super) fn apply(&self, user: &mut User, policies: &Policies, now: DateTime<Utc>) {
        let flag = |change: Change<bool>| change.map(Option::unwrap_or_default);
        if let Some(email) = &self.email {
            user.confirmed &= user.email == *email;
            user.email.clone_from(email);
        }
        if let Some(name) = &self.name {
            user.name = name.clone().filter(|name| !name.trim().is_empty());
        }
        user.confirmed = flag(self.confirmed).unwrap_or(user.confirmed);
        if let Some(locale) = &self.locale {
            user.locale.clone_from(locale);
        }
        if let Some(brand) = &self.brand {
            user.brand.clone_from(brand);
        }
        user.loc = self.loc.unwrap_or(user.loc);
        self.preferences().apply(user);
        if let Some(is_suppressed) = flag(self.suppressed) {
            // A repeated suppression keeps the time of the first.
            user.suppressed = is_suppressed.then_some(user.suppressed.unwrap_or(now));
        }
        if flag(self.unsubscribed) == Some(true) {
            user.unsubscribe(policies, now);
        }
    }
}
