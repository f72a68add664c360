//! Records, patches, preferences, mutes and follows, as the application and the pages send them.
//!
//! serde checks the fields one by one, and `check` checks the rest, before any read or write (P10).
//! Records, patches, imports and the preferences page all make a [`PreferencesChange`]. A new
//! preference is a field in `preferences_body` and a line in [`PreferencesChange::apply`].
//! [`User::replacing`] decides its effect on earlier events.

use std::collections::BTreeMap;
use std::str::FromStr;

use chrono::{DateTime, TimeDelta, Utc, Weekday};
use chrono_tz::Tz;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::fields;
use crate::domain::preferences::Title;
use crate::domain::user::{self, DigestPreference, TypePreference};
use crate::domain::{
    Address, BrandName, Brands, Cadence, EventType, FollowKey, Invalid, Point, Policies, Quiet,
    Route, Schedule, User, UserId, text, time,
};

type Result<T, E = Invalid> = std::result::Result<T, E>;

/// A change of one field: omitted, `null`, or a value.
pub type Change<T> = Option<Option<T>>;

/// Declares a request body that changes preferences, with `$field`s of its own before them.
///
/// It replaces serde's `flatten`, whose errors name neither the invalid field nor the known ones.
/// `$digest` and `$types` read these two fields: what `null` means there differs.
macro_rules! preferences_body {
    (
        $(#[$meta:meta])* $name:ident(digest: $digest:literal, types: $types:literal) {
            $($(#[$attribute:meta])* $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default, Deserialize)]
        #[serde(default, deny_unknown_fields, expecting = "an object")]
        pub struct $name {
            $($(#[$attribute])* pub $field: $type,)*
            /// How often and when digests are sent.
            #[serde(deserialize_with = $digest)]
            pub digest: Option<DigestChange>,
            /// The time zone, such as `Europe/Paris`.
            #[serde(deserialize_with = "zone")]
            pub tz: Change<Tz>,
            /// The hours in which no batch closes.
            #[serde(deserialize_with = "quiet")]
            pub quiet: Change<Quiet>,
            /// The choices by type. `None` restores the configuration's route.
            #[serde(deserialize_with = $types)]
            pub types: Option<TypeChanges>,
        }

        impl From<&$name> for PreferencesChange {
            fn from(body: &$name) -> Self {
                Self {
                    digest: body.digest,
                    tz: body.tz,
                    quiet: body.quiet,
                    types: body.types.clone(),
                }
            }
        }
    };
}

/// Changes of the choices of types.
pub type TypeChanges = BTreeMap<EventType, Option<TypeChange>>;

preferences_body! {
    /// A user's own change of preferences. Omitted fields stay, and `null` resets a choice.
    PreferencesChange(digest: "fields::named_if_given", types: "fields::each_if_given") {}
}

/// A change of a user's digests.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "an object with cadence, weekday and hour"
)]
pub struct DigestChange {
    /// How often: `never`, `daily` or `weekly`.
    #[serde(deserialize_with = "change")]
    pub cadence: Change<Cadence>,
    /// For weekly digests, such as `mon`.
    #[serde(deserialize_with = "weekday")]
    pub weekday: Change<Weekday>,
    /// The local hour, 0 to 23.
    #[serde(deserialize_with = "change")]
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

/// Reads a field that may be `null`.
fn change<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Change<T>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// Parses a name or `null`. The error quotes the name and describes the `wanted` form.
fn named<'de, D: Deserializer<'de>, T: FromStr>(
    from: D,
    what: &'static str,
    wanted: &str,
) -> Result<Change<T>, D::Error> {
    let name = Option::<String>::deserialize(from)?;
    let parse = |name: String| {
        let parsed = name.parse();
        parsed.map_err(|_| D::Error::custom(Invalid::new(what, name, format!("is not {wanted}"))))
    };
    name.map(parse).transpose().map(Some)
}

fn zone<'de, D: Deserializer<'de>>(from: D) -> Result<Change<Tz>, D::Error> {
    named(from, "time zone", "a name such as Europe/Paris")
}

fn weekday<'de, D: Deserializer<'de>>(from: D) -> Result<Change<Weekday>, D::Error> {
    named(from, "weekday", "mon, tue, wed, thu, fri, sat or sun")
}

fn quiet<'de, D: Deserializer<'de>>(from: D) -> Result<Change<Quiet>, D::Error> {
    fields::named_if_any(from).map(Some)
}

fn own_window<'de, D: Deserializer<'de>>(from: D) -> Result<Change<TimeDelta>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "expected a duration as text, such as \"1h\", or null"
    )]
    enum Window {
        Own(String),
        Types(()),
    }
    match Window::deserialize(from)? {
        Window::Own(text) => user::window(&text)
            .map(|window| Some(Some(window)))
            .map_err(Error::custom),
        Window::Types(()) => Ok(Some(None)),
    }
}

impl PreferencesChange {
    /// Checks what the types of the fields cannot express.
    pub fn check(&self) -> Result<()> {
        let hour = self.digest.and_then(|digest| digest.hour.flatten());
        if let Some(hour) = hour.filter(|hour| *hour > 23) {
            let why = "is not an hour from 0 to 23";
            return Err(Invalid::new("digest hour", hour, why));
        }
        user::check_choices(self.types.as_ref().map_or(0, BTreeMap::len))
    }

    /// Rejects digests of types whose events may be of any brand.
    pub(super) fn check_routes(&self, policies: &Policies) -> Result<()> {
        let mut chosen = self.chosen();
        match chosen.find(|(kind, chosen)| policies.mailed_by(kind, chosen.route) != chosen.route) {
            None => Ok(()),
            Some((kind, _)) => {
                let why = "has events of several brands, so it is in no digest; choose immediate, batch or never";
                Err(Invalid::new("type", kind, why))
            }
        }
    }

    /// Rejects choices of mandatory types. Resetting one is allowed and changes nothing.
    pub(super) fn check_optional(&self, policies: &Policies) -> Result<()> {
        for (kind, _) in self.chosen() {
            if let Some(mandate) = &policies.of(kind).mandatory {
                let reason = mandate.as_str();
                let why = format!("is mandatory ({reason}), so there is no choice; leave it out");
                return Err(Invalid::new("type", kind, why));
            }
        }
        Ok(())
    }

    fn chosen(&self) -> impl Iterator<Item = (&EventType, &TypeChange)> {
        let types = self.types.iter().flatten();
        types.filter_map(|(kind, chosen)| Some((kind, chosen.as_ref()?)))
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
            let before = user.types.remove(kind).and_then(|before| before.window);
            if let Some(TypeChange { route, window }) = change {
                // `User::replacing` dates the change.
                let chosen = TypePreference {
                    window: window.unwrap_or(before),
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
            None => policies.of(kind).route,
        };
        let mut types = self.types.iter().flat_map(BTreeMap::keys);
        has_cadence && user.schedule(default).cadence != Cadence::Never
            || types.any(|kind| !policies.is_mandatory(kind) && route(kind).is_mailed_alone())
    }
}

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
    #[serde(default, deserialize_with = "time::read_time_if_any")]
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
fn suppress(user: &mut User, suppressed: Option<bool>, now: DateTime<Utc>) {
    let since = user.suppressed.unwrap_or(now);
    user.suppressed = match suppressed {
        Some(suppressed) => suppressed.then_some(since),
        None => user.suppressed,
    };
}

fn is_not_blank(name: &str) -> bool {
    !name.trim().is_empty()
}

fn check_texts(name: Option<&str>, locale: Option<&str>) -> Result<()> {
    let (bytes, limit) = (name.map_or(0, str::len), user::MAX_NAME);
    if bytes > limit {
        let why = format!("bytes is more than the {limit} that can be kept; shorten it");
        return Err(Invalid::limit("name of", bytes, why));
    }
    locale.map_or(Ok(()), text::check_locale)
}

preferences_body! {
    /// A change of some fields of a user's record.
    UserPatch(
        digest: "fields::named_if_given",
        types: "fields::each_if_given"
    ) {
        /// A new address is unconfirmed unless the same patch sets `confirmed`.
        #[serde(deserialize_with = "change")]
        email: Change<Address>,
        /// At most 1,000 bytes. A blank name counts as none.
        #[serde(deserialize_with = "change")]
        name: Change<String>,
        /// Whether the address is confirmed; `null` is `false`.
        #[serde(deserialize_with = "change")]
        confirmed: Change<bool>,
        /// At most 100 bytes.
        #[serde(deserialize_with = "change")]
        locale: Change<String>,
        /// A configured brand; `null` for the default.
        #[serde(deserialize_with = "change")]
        brand: Change<BrandName>,
        /// The location, for events near a point; `null` removes it.
        #[serde(deserialize_with = "change")]
        loc: Change<Point>,
        /// Suppresses the user, or lifts it; `null` is `false`.
        #[serde(deserialize_with = "change")]
        suppressed: Change<bool>,
        /// `true` unsubscribes the user from everything. A patch cannot resubscribe anyone.
        #[serde(deserialize_with = "change")]
        unsubscribed: Change<bool>,
    }
}

impl UserPatch {
    /// Checks what the types of the fields cannot express.
    pub fn check(&self, brands: &Brands, policies: &Policies) -> Result<()> {
        brands.check(self.brand.as_ref().and_then(Option::as_ref))?;
        let text = |text: &Change<String>| text.clone().flatten();
        check_texts(text(&self.name).as_deref(), text(&self.locale).as_deref())?;
        if self.unsubscribed == Some(None) {
            let why = "resubscribes no one; only the user's own choice does. Leave it out";
            return Err(Invalid::new("unsubscribed", "null", why));
        }
        let preferences = PreferencesChange::from(self);
        preferences.check()?;
        preferences.check_routes(policies)
    }

    pub(super) fn apply(&self, user: &mut User, policies: &Policies, now: DateTime<Utc>) {
        let flag = |change: Change<bool>| change.map(Option::unwrap_or_default);
        if let Some(email) = &self.email {
            user.confirmed &= user.email == *email;
            user.email.clone_from(email);
        }
        if let Some(name) = &self.name {
            user.name = name.clone().filter(|name| is_not_blank(name));
        }
        user.confirmed = flag(self.confirmed).unwrap_or(user.confirmed);
        if let Some(locale) = &self.locale {
            user.locale.clone_from(locale);
        }
        if let Some(brand) = &self.brand {
            user.brand.clone_from(brand);
        }
        user.loc = self.loc.unwrap_or(user.loc);
        PreferencesChange::from(self).apply(user);
        suppress(user, flag(self.suppressed), now);
        if flag(self.unsubscribed) == Some(true) {
            user.unsubscribe(policies, now);
        }
    }
}
