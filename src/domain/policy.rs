//! What the configuration says of each event type: its route, its model, its heading and its order.
//!
//! The rule: a type nobody configured works all the same: it goes to the digest. What is mailed are
//! objects that are known; a type can say otherwise. A mandatory type goes where its route says,
//! whatever people choose.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::batch::{BatchPolicy, ChosenKey};
use super::event::Event;
use super::name::{EventType, Invalid, Kind, ModelName, ObjectId};
use super::nearest::nearest;
use super::object::ObjectKey;

/// How an event of a type is mailed. Whether it appears in the feed is [`Policy::feed`]'s to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Route {
    /// By no mail at all.
    Never,
    /// By a mail of its own, at once: a batch that gathers nothing.
    Immediate,
    /// By one mail with what else happens within the batch's window.
    Batch,
    /// By the person's next digest.
    Digest,
}

impl Route {
    /// All routes, from no mail to the digest.
    pub const ALL: [Self; 4] = [Self::Never, Self::Immediate, Self::Batch, Self::Digest];

    /// The name in the configuration, in the store and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Immediate => "immediate",
            Self::Batch => "batch",
            Self::Digest => "digest",
        }
    }

    /// Whether it makes mails of its own, outside the digest.
    pub fn is_mailed_alone(self) -> bool {
        matches!(self, Self::Immediate | Self::Batch)
    }
}

impl FromStr for Route {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let named = Self::ALL.into_iter().find(|route| route.as_str() == text);
        named.ok_or_else(|| Invalid::new("route", text, "is not never, immediate, batch or digest"))
    }
}

/// What people do in an event of a type, between them and what it is about: `commented on`. One
/// line of 1 to 60 characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phrase(String);

impl Phrase {
    /// The longest phrase, in characters, without the spaces around it.
    pub const MAX_CHARS: usize = 60;

    /// Without spaces around it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Phrase {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        one_line("phrase", text, Self::MAX_CHARS).map(Self)
    }
}

/// What types belong together under on the preferences page, and what feeds can be asked for:
/// `Community`. One line of 1 to 60 characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Category(String);

impl Category {
    /// The longest, in characters, without the spaces around it.
    pub const MAX_CHARS: usize = 60;

    /// Without spaces around it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Category {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        one_line("category", text, Self::MAX_CHARS).map(Self)
    }
}

/// Why nobody can turn a type off, as people read it: `Security notices cannot be turned off`. One
/// line of 1 to 120 characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mandate(String);

impl Mandate {
    /// The longest, in characters, without the spaces around it.
    pub const MAX_CHARS: usize = 120;

    /// Without spaces around it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Mandate {
    fn default() -> Self {
        Self("This cannot be turned off".to_owned())
    }
}

impl FromStr for Mandate {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        one_line("reason", text, Self::MAX_CHARS).map(Self)
    }
}

/// A line that says something, without the spaces around it.
fn one_line(what: &'static str, text: &str, max_chars: usize) -> Result<String, Invalid> {
    let refuse = |why: String| Err(Invalid::new(what, text.escape_debug(), why));
    let trimmed = text.trim_matches(' ');
    if trimmed.is_empty() {
        refuse("says nothing".to_owned())
    } else if trimmed.chars().any(char::is_control) {
        refuse("holds a line break or another control character".to_owned())
    } else if trimmed.chars().count() > max_chars {
        refuse(format!("is longer than {max_chars} characters"))
    } else {
        Ok(trimmed.to_owned())
    }
}

/// What becomes of events about objects that nobody put a record of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownObjects {
    /// They are not mailed: nobody knows whether they apply (P6).
    Skip,
    /// They are mailed by their ids.
    Mail,
}

impl FromStr for UnknownObjects {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        match text {
            "skip" => Ok(Self::Skip),
            "mail" => Ok(Self::Mail),
            _ => Err(Invalid::new("unknown_objects", text, "is not skip or mail")),
        }
    }
}

/// What is configured of one event type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// How it is mailed to people who chose nothing for this type.
    pub route: Route,
    /// Which model its objects are of; without one, events name their objects by whole keys.
    pub model: Option<ModelName>,
    /// What becomes of its events in mails where no record of their object stands.
    pub unknown_objects: UnknownObjects,
    /// The heading of its section, such as "New works"; the type's name if nobody gave one.
    pub heading: Option<String>,
    /// What people do in it; without one, mails tell what is new and not who did what.
    pub phrase: Option<Phrase>,
    /// How its batches gather and close, for whoever gets it in batches.
    pub batch: BatchPolicy,
    /// The key its events share where the request brings none.
    pub key: Option<ChosenKey>,
    /// What it belongs to, with other types.
    pub category: Option<Category>,
    /// Why nobody can turn it off; `None` where everybody can.
    pub mandatory: Option<Mandate>,
    /// Whether feeds show its events.
    pub feed: bool,
    /// Whether its events may name a brand. Then none of them is told in a digest, which is of the
    /// person's brand alone: whoever chose that gets them in batches.
    pub branded: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            route: Route::Digest,
            model: None,
            unknown_objects: UnknownObjects::Skip,
            heading: None,
            phrase: None,
            batch: BatchPolicy::IMMEDIATE,
            key: None,
            category: None,
            mandatory: None,
            feed: true,
            branded: false,
        }
    }
}

/// All types' policies. `order` is the order of sections in a mail; other types follow by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policies {
    types: BTreeMap<EventType, Policy>,
    order: Vec<EventType>,
    default: Policy,
    strict: bool,
}

impl Policies {
    /// Policies by type, in the order in which their sections should appear.
    pub fn new(types: impl IntoIterator<Item = (EventType, Policy)>) -> Self {
        let mut policies = Self::default();
        for (name, policy) in types {
            policies.order.push(name.clone());
            policies.types.insert(name, policy);
        }
        policies
    }

    /// The same, with batches that gather so for types that are not configured.
    pub fn with_batches(mut self, batch: BatchPolicy) -> Self {
        self.default.batch = batch;
        self
    }

    /// The same, where types that are not configured are refused (`strict_types`).
    pub fn with_strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Whether events can be of this type.
    ///
    /// # Errors
    ///
    /// The type is not configured and `strict_types` is on.
    pub fn check(&self, name: &EventType) -> Result<(), Invalid> {
        if !self.strict || self.is_configured(name) {
            return Ok(());
        }
        let meant = match self.nearest(name) {
            Some(meant) => format!("; did you mean {meant:?}?"),
            None => String::new(),
        };
        let why = format!("is not configured, and strict_types refuses others{meant}");
        Err(Invalid::new("type", name, why).of_kind(Kind::Type))
    }

    /// The object of an event of this type, as events store it.
    pub fn object_id(&self, name: &EventType, id: ObjectId) -> ObjectId {
        id.of_model(self.of(name).model.as_ref())
    }

    /// What is configured of this type, or the default: the digest, and only known objects.
    pub fn of(&self, name: &EventType) -> &Policy {
        self.types.get(name).unwrap_or(&self.default)
    }

    /// Whether people get this type whatever they choose.
    pub fn is_mandatory(&self, name: &EventType) -> bool {
        self.of(name).mandatory.is_some()
    }

    /// By which route this type is mailed where that one was chosen.
    pub fn mailed_by(&self, name: &EventType, chosen: Route) -> Route {
        match chosen {
            Route::Digest if self.of(name).branded => Route::Batch,
            chosen => chosen,
        }
    }

    /// The types that people are mailed whatever they choose, in the order of their sections.
    pub fn always_mailed(&self) -> impl Iterator<Item = &EventType> {
        let mailed = |policy: &Policy| policy.mandatory.is_some() && policy.route != Route::Never;
        self.kinds().filter(move |kind| mailed(self.of(kind)))
    }

    /// These types by category: first those of none, then each category where its first type
    /// stands; in each the types keep their order. Nothing is empty.
    pub fn by_category<'a>(
        &'a self,
        kinds: &[&'a EventType],
    ) -> Vec<(Option<&'a Category>, Vec<&'a EventType>)> {
        let mut groups: Vec<(Option<&Category>, Vec<&EventType>)> = vec![(None, Vec::new())];
        for kind in kinds {
            let category = self.of(kind).category.as_ref();
            match groups.iter_mut().find(|(of, _)| *of == category) {
                Some((_, group)) => group.push(kind),
                None => groups.push((category, vec![kind])),
            }
        }
        groups.retain(|(_, group)| !group.is_empty());
        groups
    }

    /// Whether this type is configured, so that users can choose its route.
    pub fn is_configured(&self, name: &EventType) -> bool {
        self.types.contains_key(name)
    }

    /// Whether any type is configured, and not this one: then its name may be mistyped.
    pub fn is_stray(&self, name: &EventType) -> bool {
        !self.types.is_empty() && !self.is_configured(name)
    }

    /// The configured type that may have been meant by the name of a stray one.
    pub fn nearest(&self, name: &EventType) -> Option<&EventType> {
        let meant = nearest(name.as_str(), self.order.iter().map(EventType::as_str))?;
        self.order.iter().find(|kind| kind.as_str() == meant)
    }

    /// The types that are configured, in the order of their sections.
    pub fn kinds(&self) -> impl Iterator<Item = &EventType> {
        self.order.iter()
    }

    /// The key of the object an event is about.
    pub fn object_of(&self, event: &Event) -> ObjectKey {
        ObjectKey::new(self.of(&event.t).model.as_ref(), &event.o)
    }

    /// Where a type's section stands among the others.
    pub fn rank<'a>(&self, name: &'a EventType) -> (usize, &'a EventType) {
        (
            self.order
                .iter()
                .position(|known| known == name)
                .unwrap_or(self.order.len()),
            name,
        )
    }

    /// The heading of its section; the type's name where none is configured.
    pub fn heading<'a>(&'a self, name: &'a EventType) -> &'a str {
        self.of(name).heading.as_deref().unwrap_or(name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phrase_is_one_line_of_bounded_length() {
        let phrase = |text: &str| Phrase::from_str(text).map(|phrase| phrase.as_str().to_owned());

        assert_eq!(phrase(" commented on ").unwrap(), "commented on");
        assert!(phrase(&"é".repeat(60)).is_ok());
        for (text, why) in [
            ("", "says nothing"),
            ("  ", "says nothing"),
            ("commented\non", "holds a line break"),
            ("\tcommented on", "holds a line break"),
        ] {
            let error = phrase(text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let error = phrase(&"é".repeat(61)).unwrap_err().to_string();
        assert!(error.contains("longer than 60 characters"), "{error}");
    }

    #[test]
    fn a_category_and_a_reason_are_one_line_too() {
        assert_eq!(" Community ".parse(), Ok(Category("Community".into())));
        let error = "é".repeat(61).parse::<Category>().unwrap_err().to_string();
        assert!(error.contains("longer than 60 characters"), "{error}");
        assert!("Commu\nnity".parse::<Category>().is_err());
        assert!("é".repeat(120).parse::<Mandate>().is_ok());
        let error = "é".repeat(121).parse::<Mandate>().unwrap_err().to_string();
        assert!(error.contains("longer than 120 characters"), "{error}");
    }

    #[test]
    fn types_stand_by_category_in_the_order_of_the_configuration() {
        let of = |name: &str, category: Option<&str>| {
            let category = category.map(|name| name.parse().unwrap());
            let policy = Policy {
                category,
                ..Policy::default()
            };
            (EventType::stored(name), policy)
        };
        let policies = Policies::new([
            of("Works", Some("Gallery")),
            of("Alarm", None),
            of("Reply", Some("Community")),
            of("Shows", Some("Gallery")),
        ]);
        let other = EventType::stored("Other");
        let kinds: Vec<&EventType> = policies.kinds().chain([&other]).collect();

        let groups = policies.by_category(&kinds);

        let told: Vec<String> = groups
            .iter()
            .map(|(category, kinds)| {
                let kinds: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
                let category = category.map_or("none", |category| category.as_str());
                format!("{category}: {}", kinds.join(" "))
            })
            .collect();
        assert_eq!(
            told,
            [
                "none: Alarm Other",
                "Gallery: Works Shows",
                "Community: Reply"
            ]
        );
        assert_eq!(policies.by_category(&kinds[..1]).len(), 1);
    }
}
