//! What the application, or a person, says of people: records, choices, follows.
//!
//! The rule (P10): what the types of the fields cannot say is checked before anything is read or
//! written. What a change means for the past is the domain's to say: see [`User::replacing`].

use std::collections::BTreeMap;
use std::str::FromStr;

use chrono::{DateTime, TimeDelta, Utc, Weekday};
use chrono_tz::Tz;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::domain::mute::Title;
use crate::domain::user::{self, DigestPreference, TypePreference};
use crate::domain::{
    Address, BrandName, Cadence, EventType, FollowKey, Invalid, Point, Policies, Quiet, Route,
    Schedule, User, UserId, locale, moment,
};
use crate::engine::directory::fields;

pub(super) type Result<T, E = Invalid> = std::result::Result<T, E>;

/// A person as the application hands them in. Ids may be numbers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserInput {
    /// Also called `_id`. Needed, unless a path names the person.
    #[serde(default, alias = "_id", deserialize_with = "optional_id")]
    pub id: Option<UserId>,
    /// Left out, there is none, and no mail leaves.
    pub email: Option<Address>,
    /// At most 1,000 bytes; blank or left out, there is none.
    pub name: Option<String>,
    /// Whether the address is known to be theirs; without that no mail leaves.
    #[serde(default)]
    pub confirmed: bool,
    /// Replaces what they chose, `null` takes it back; left out, it stays.
    #[serde(default, deserialize_with = "zone")]
    pub tz: Change<Tz>,
    /// A language tag such as `pt-BR`, at most 100 bytes; left out, there is none.
    pub locale: Option<String>,
    /// One that is configured; left out, the default.
    pub brand: Option<BrandName>,
    /// Where they live, for events that concern whoever is near; left out, nobody knows.
    pub loc: Option<Point>,
    /// Their quiet hours, `null` takes them back; left out, they stay.
    #[serde(default, deserialize_with = "quiet")]
    pub quiet: Change<Quiet>,
    /// Replaces what they chose; left out, it stays.
    #[serde(default, deserialize_with = "fields::named_if_any")]
    pub digest: Option<DigestInput>,
    /// The same.
    #[serde(default, deserialize_with = "fields::all_if_any")]
    pub types: Option<BTreeMap<EventType, TypeInput>>,
    /// Suppresses them or lifts it; left out, it stays.
    pub suppressed: Option<bool>,
    /// Unsubscribes them from everything, if it is true. Nothing said here brings anybody back:
    /// only a choice does.
    pub unsubscribed: Option<bool>,
}

/// When a person wants digests; what is left out is the configuration's.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object with cadence, weekday and hour"
)]
pub struct DigestInput {
    /// How often: `never`, `daily` or `weekly`.
    pub cadence: Option<Cadence>,
    /// For weekly digests, such as `mon`.
    #[serde(default, deserialize_with = "weekday")]
    pub weekday: Option<Weekday>,
    /// The local hour, 0 to 23.
    pub hour: Option<u8>,
}

/// How a person gets events of one type.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with route and window")]
pub struct TypeInput {
    /// `never`, `immediate`, `batch` or `digest`.
    pub route: Route,
    /// How long their batches gather, such as `1h`; `null` takes it back. Left out, it stays where
    /// a choice is changed, and is none where choices are replaced.
    #[serde(default, deserialize_with = "own_window")]
    pub window: Change<TimeDelta>,
}

/// What a person changes of their choices: what is left out stays, `null` takes a choice back.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreferencesInput {
    /// How often and when digests come.
    #[serde(default, deserialize_with = "fields::named")]
    pub digest: DigestChange,
    /// Such as `Europe/Paris`.
    #[serde(default, deserialize_with = "zone")]
    pub tz: Change<Tz>,
    /// From when to when no batch closes.
    #[serde(default, deserialize_with = "quiet")]
    pub quiet: Change<Quiet>,
    /// By type; types that are not named stay.
    #[serde(default, deserialize_with = "fields::each_if_any")]
    pub types: BTreeMap<EventType, Option<TypeInput>>,
}

/// What changes of a person's digests: what is left out stays, `null` is the configuration's.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object with cadence, weekday and hour"
)]
pub struct DigestChange {
    /// How often: `never`, `daily` or `weekly`.
    #[serde(default, deserialize_with = "change")]
    pub cadence: Change<Cadence>,
    /// For weekly digests, such as `mon`.
    #[serde(default, deserialize_with = "weekday_change")]
    pub weekday: Change<Weekday>,
    /// The local hour, 0 to 23.
    #[serde(default, deserialize_with = "change")]
    pub hour: Change<u8>,
}

/// How something is muted.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with until and title")]
pub struct MuteInput {
    /// What happens from then on is told again; without it, for as long as it is not unmuted. A
    /// moment that has passed unmutes it.
    #[serde(default, deserialize_with = "moment::read_if_any")]
    pub until: Option<DateTime<Utc>>,
    /// What people read of it on the preferences page, on one line of up to 120 bytes; without it
    /// what was known stays.
    #[serde(default)]
    pub title: Option<Title>,
}

/// Left out, taken back, or chosen.
pub type Change<T> = Option<Option<T>>;

pub(super) fn change<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Change<T>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// A value that has a name, or `null`; whoever gets the name wrong is told what they wrote and what
/// to write.
fn named<'de, D: Deserializer<'de>, T: FromStr>(
    deserializer: D,
    what: &'static str,
    wanted: &str,
) -> Result<Option<T>, D::Error> {
    let name = Option::<String>::deserialize(deserializer)?;
    let parse = |name: String| {
        let parsed = name.parse();
        parsed.map_err(|_| D::Error::custom(Invalid::new(what, name, format!("is not {wanted}"))))
    };
    name.map(parse).transpose()
}

pub(super) fn zone<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Change<Tz>, D::Error> {
    named(deserializer, "time zone", "a name such as Europe/Paris").map(Some)
}

/// Hours, or `null`.
pub(super) fn quiet<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Change<Quiet>, D::Error> {
    fields::named_if_any(deserializer).map(Some)
}

fn weekday<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Weekday>, D::Error> {
    let wanted = "mon, tue, wed, thu, fri, sat or sun";
    named(deserializer, "weekday", wanted)
}

fn weekday_change<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Change<Weekday>, D::Error> {
    weekday(deserializer).map(Some)
}

/// A window as text, or `null`.
fn own_window<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Change<TimeDelta>, D::Error> {
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
            .map_err(Error::custom),
        Window::Types(()) => Ok(Some(None)),
    }
}

/// An id that may be written as a number.
fn id<'de, D: Deserializer<'de>, T: FromStr<Err = Invalid>>(
    deserializer: D,
) -> Result<T, D::Error> {
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
    text.parse().map_err(Error::custom)
}

/// The same where it may be missing.
fn optional_id<'de, D: Deserializer<'de>, T: FromStr<Err = Invalid>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    id(deserializer).map(Some)
}

impl UserInput {
    /// What the types of its fields cannot say.
    pub fn check(&self) -> Result<&UserId> {
        check_hour(self.digest.as_ref().and_then(|digest| digest.hour))?;
        check_texts(self.name.as_deref(), self.locale.as_deref())?;
        user::check_choices(self.types.as_ref().map_or(0, BTreeMap::len))?;
        self.id
            .as_ref()
            .ok_or_else(|| Invalid::new("user", "", "has no id"))
    }

    pub(super) fn user(
        &self,
        id: UserId,
        before: Option<&User>,
        policies: &Policies,
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
            brand: self.brand.clone(),
            loc: self.loc,
            digest,
            types,
            mutes: before.map(|user| user.mutes.clone()).unwrap_or_default(),
            quiet: self.quiet.unwrap_or(before.and_then(|user| user.quiet)),
            suppressed: match self.suppressed {
                Some(true) => suppressed.or(Some(now)),
                Some(false) => None,
                None => suppressed,
            },
            unsubscribed: before.and_then(|user| user.unsubscribed),
            ..User::new(id)
        };
        if self.unsubscribed == Some(true) {
            user.unsubscribe(policies, now);
        }
        user
    }
}

impl PreferencesInput {
    /// What the types of its fields cannot say.
    pub fn check(&self) -> Result<()> {
        check_hour(self.digest.hour.flatten())?;
        user::check_choices(self.types.len())
    }

    /// That nothing is chosen of types that are mandatory. To take back what was chosen once
    /// changes nothing.
    pub(super) fn check_optional(&self, policies: &Policies) -> Result<()> {
        let chosen = self.types.iter().filter(|(_, input)| input.is_some());
        for (kind, _) in chosen {
            if let Some(mandate) = &policies.of(kind).mandatory {
                let reason = mandate.as_str();
                let why = format!("is mandatory ({reason}), so there is no choice; leave it out");
                return Err(Invalid::new("type", kind, why));
            }
        }
        let chosen = self.types.iter();
        check_routes(
            chosen.filter_map(|(kind, input)| Some((kind, input.as_ref()?))),
            policies,
        )
    }

    pub(super) fn apply(&self, user: &mut User, schedule: &Schedule, policies: &Policies) {
        let digest = &mut user.digest;
        digest.cadence = self.digest.cadence.unwrap_or(digest.cadence);
        digest.weekday = self.digest.weekday.unwrap_or(digest.weekday);
        digest.hour = self.digest.hour.unwrap_or(digest.hour);
        user.tz = self.tz.unwrap_or(user.tz);
        user.quiet = self.quiet.unwrap_or(user.quiet);
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
        if self.asks_for_mail(user, schedule, policies) {
            user.unsubscribed = None;
        }
    }

    /// Whether any of what is named here is mailed from now on: then they come back. Choosing an
    /// hour alone does not bring anybody back.
    fn asks_for_mail(&self, user: &User, schedule: &Schedule, policies: &Policies) -> bool {
        let digest =
            self.digest.cadence.is_some() && user.schedule(schedule).cadence != Cadence::Never;
        let route = |kind: &EventType| match user.types.get(kind) {
            Some(chosen) => chosen.route,
            None => policies.of(kind).route,
        };
        let mut optional = self
            .types
            .keys()
            .filter(|kind| !policies.is_mandatory(kind));
        digest || optional.any(|kind| route(kind).is_mailed_alone())
    }
}

/// Nobody gets a type in digests whose events may be of any brand.
pub(super) fn check_routes<'a>(
    mut chosen: impl Iterator<Item = (&'a EventType, &'a TypeInput)>,
    policies: &Policies,
) -> Result<()> {
    match chosen.find(|(kind, input)| policies.mailed_by(kind, input.route) != input.route) {
        None => Ok(()),
        Some((kind, _)) => {
            let why = "has events of several brands, so it is in no digest; choose immediate, batch or never";
            Err(Invalid::new("type", kind, why))
        }
    }
}

pub(super) fn check_texts(name: Option<&str>, locale: Option<&str>) -> Result<()> {
    check_length("name of", name, user::MAX_NAME)?;
    locale.map_or(Ok(()), locale::check)
}

fn check_length(what: &'static str, text: Option<&str>, limit: usize) -> Result<()> {
    match text.map_or(0, str::len) {
        bytes if bytes > limit => {
            let why = format!("bytes is more than the {limit} that can be kept; shorten it");
            Err(Invalid::limit(what, bytes, why))
        }
        _ => Ok(()),
    }
}

fn check_hour(hour: Option<u8>) -> Result<()> {
    match hour {
        Some(hour) if hour > 23 => Err(Invalid::new(
            "digest hour",
            hour,
            "is not an hour from 0 to 23",
        )),
        _ => Ok(()),
    }
}

/// What is chosen for a type, over what was chosen before. A first record says how things are, not
/// that they changed just now; [`User::replacing`] dates changes.
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
    /// Who follows; an id may be a number.
    #[serde(deserialize_with = "id")]
    pub user: UserId,
    /// What they follow, such as `artist:7`.
    pub key: FollowKey,
}
