//! Changes of a user's preferences: digests, time zone, quiet hours and types.
//!
//! Records, patches, imports, the preferences API and the preferences page all make a
//! [`PreferencesChange`]. A new preference is a field in `preferences_body` and a line in
//! [`PreferencesChange::apply`]. [`User::replacing`] decides its effect on earlier events.

use std::collections::BTreeMap;
use std::str::FromStr;

use chrono::{DateTime, TimeDelta, Utc, Weekday};
use chrono_tz::Tz;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::domain::user::{self, TypePreference};
use crate::domain::{Cadence, EventType, Invalid, Policies, Quiet, Route, Schedule, User};
use crate::engine::directory::fields;

pub(super) type Result<T, E = Invalid> = std::result::Result<T, E>;

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
        #[derive(Debug, Clone, Default, serde::Deserialize)]
        #[serde(default, deny_unknown_fields, expecting = "an object")]
        pub struct $name {
            $($(#[$attribute])* pub $field: $type,)*
            /// How often and when digests are sent.
            #[serde(deserialize_with = $digest)]
            pub digest: Option<super::preferences::DigestChange>,
            /// The time zone, such as `Europe/Paris`.
            #[serde(deserialize_with = "super::preferences::zone")]
            pub tz: super::preferences::Change<chrono_tz::Tz>,
            /// The hours in which no batch closes.
            #[serde(deserialize_with = "super::preferences::quiet")]
            pub quiet: super::preferences::Change<crate::domain::Quiet>,
            /// The choices by type. `None` restores the configuration's route.
            #[serde(deserialize_with = $types)]
            pub types: Option<super::preferences::TypeChanges>,
        }

        impl From<&$name> for super::preferences::PreferencesChange {
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
pub(super) use preferences_body;

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
pub(super) fn change<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Change<T>, D::Error> {
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

pub(super) fn zone<'de, D: Deserializer<'de>>(from: D) -> Result<Change<Tz>, D::Error> {
    named(from, "time zone", "a name such as Europe/Paris")
}

fn weekday<'de, D: Deserializer<'de>>(from: D) -> Result<Change<Weekday>, D::Error> {
    named(from, "weekday", "mon, tue, wed, thu, fri, sat or sun")
}

pub(super) fn quiet<'de, D: Deserializer<'de>>(from: D) -> Result<Change<Quiet>, D::Error> {
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
