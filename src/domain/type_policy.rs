//! The configured policy of each event type: route, model, heading, order and more.
//!
//! A type that is not configured goes to the digest. By default only events about known objects are
//! emailed (P6). A mandatory type follows its configured route, and users cannot change that.

use std::collections::BTreeMap;

use super::batch::{BatchPolicy, ChosenKey};
use super::day_stack::Event;
use super::name::{
    EventType, InvalidKind, InvalidValue, ModelName, ObjectId, most_similar, named_enum,
};
use super::object::ObjectKey;
use super::text_checks::{Category, Mandate, Phrase};

named_enum! {
    /// How an event is emailed. Feeds do not depend on it: see [`Policy::feed`].
    Route("route") {
        /// Not emailed.
        Never = "never",
        /// Emailed at once, alone.
        Immediate = "immediate",
        /// Emailed together with other events within the batch's window.
        Batch = "batch",
        /// Included in the user's next digest.
        Digest = "digest",
    }
}

impl Route {
    /// Returns whether the route sends emails outside the digest.
    pub fn is_outside_digest(self) -> bool {
        matches!(self, Self::Immediate | Self::Batch)
    }
}

named_enum! {
    /// How emails treat events about objects without a record.
    UnknownObjects("unknown_objects") {
        /// Exclude the events, because they may no longer apply (P6).
        Skip = "skip",
        /// Include the events and show the objects' ids.
        Mail = "mail",
    }
}

/// The policy of an event type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The route for users who chose none.
    pub route: Route,
    /// The model of its objects. Without one, events name objects by their full keys.
    pub model: Option<ModelName>,
    /// How emails treat events about objects without a record.
    pub unknown_objects: UnknownObjects,
    /// The heading of the section, such as "New works"; by default the type's name.
    pub heading: Option<String>,
    /// The phrase for its events. Without one, emails list new objects instead of who did what.
    pub phrase: Option<Phrase>,
    /// When its batches close, for users whose route is [`Route::Batch`].
    pub batch: BatchPolicy,
    /// The batch key of events whose request has none.
    pub batch_key: Option<ChosenKey>,
    /// The category on the preferences page.
    pub category: Option<Category>,
    /// Why users cannot turn it off; `None` if they can.
    pub mandatory: Option<Mandate>,
    /// Whether feeds show its events.
    pub feed: bool,
    /// Whether its events may name a brand. A digest has the user's brand, so digests exclude such
    /// a type. Users who chose the digest get it in batches.
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
            batch_key: None,
            category: None,
            mandatory: None,
            feed: true,
            branded: false,
        }
    }
}

/// The policies of all types. `order` is the order of sections in an email; types that are not
/// configured follow by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policies {
    types: BTreeMap<EventType, Policy>,
    order: Vec<EventType>,
    default: Policy,
    strict: bool,
}

impl Policies {
    /// Creates the policies from types in the order of their sections.
    pub fn new(types: impl IntoIterator<Item = (EventType, Policy)>) -> Self {
        let mut policies = Self::default();
        for (name, policy) in types {
            policies.order.push(name.clone());
            policies.types.insert(name, policy);
        }
        policies
    }

    /// Sets the batch policy of types that are not configured.
    pub fn with_batches(mut self, batch: BatchPolicy) -> Self {
        self.default.batch = batch;
        self
    }

    /// Sets whether types that are not configured are rejected (`strict_types`).
    pub fn with_strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Checks that events of this type are accepted.
    ///
    /// # Errors
    ///
    /// The type is not configured and `strict_types` is on.
    pub fn check(&self, name: &EventType) -> Result<(), InvalidValue> {
        if !self.strict || self.is_configured(name) {
            return Ok(());
        }
        let meant = match self.nearest(name) {
            Some(meant) => format!("; did you mean {meant:?}?"),
            None => String::new(),
        };
        let why = format!("is not configured, and strict_types refuses others{meant}");
        Err(InvalidValue::new("type", name, why).with_kind(InvalidKind::Type))
    }

    /// Returns the object id of an event of this type, as events store it.
    pub fn object_id(&self, name: &EventType, id: ObjectId) -> ObjectId {
        id.strip_model(self.policy(name).model.as_ref())
    }

    /// Returns the policy of a type. The default for types that are not configured is the digest,
    /// with known objects only.
    pub fn policy(&self, name: &EventType) -> &Policy {
        self.types.get(name).unwrap_or(&self.default)
    }

    /// Returns whether users cannot turn this type off.
    pub fn is_mandatory(&self, name: &EventType) -> bool {
        self.policy(name).mandatory.is_some()
    }

    /// Returns the route of this type for users who chose `chosen`.
    pub fn effective_route(&self, name: &EventType, chosen: Route) -> Route {
        match chosen {
            Route::Digest if self.policy(name).branded => Route::Batch,
            chosen => chosen,
        }
    }

    /// Returns the mandatory types that are emailed, in the order of their sections.
    pub fn emailed_mandatory_kinds(&self) -> impl Iterator<Item = &EventType> {
        self.kinds()
            .filter(move |kind| self.is_mandatory(kind) && self.policy(kind).route != Route::Never)
    }

    /// Groups these types by category, in their given order. Types without a category come first,
    /// then the categories in the order of their first types. No group is empty.
    pub fn by_category<'a>(
        &'a self,
        kinds: &[&'a EventType],
    ) -> Vec<(Option<&'a Category>, Vec<&'a EventType>)> {
        let mut groups: Vec<(Option<&Category>, Vec<&EventType>)> = vec![(None, Vec::new())];
        for kind in kinds {
            let category = self.policy(kind).category.as_ref();
            match groups.iter_mut().find(|(known, _)| *known == category) {
                Some((_, group)) => group.push(kind),
                None => groups.push((category, vec![kind])),
            }
        }
        groups.retain(|(_, group)| !group.is_empty());
        groups
    }

    /// Returns whether this type is configured, so that users can choose its route.
    pub fn is_configured(&self, name: &EventType) -> bool {
        self.types.contains_key(name)
    }

    /// Returns whether other types are configured but not this one, so that its name may be
    /// mistyped.
    pub fn is_probably_mistyped(&self, name: &EventType) -> bool {
        !self.types.is_empty() && !self.is_configured(name)
    }

    /// Returns the configured type with the most similar name, as a suggestion.
    pub fn nearest(&self, name: &EventType) -> Option<&EventType> {
        let similar = most_similar(name.as_str(), self.order.iter().map(EventType::as_str))?;
        self.order.iter().find(|kind| kind.as_str() == similar)
    }

    /// Returns the configured types in the order of their sections.
    pub fn kinds(&self) -> impl Iterator<Item = &EventType> {
        self.order.iter()
    }

    /// Returns the key of an event's object.
    pub fn object_key(&self, event: &Event) -> ObjectKey {
        ObjectKey::from_parts(self.policy(&event.kind).model.as_ref(), &event.object)
    }

    /// Returns the sort key of a type's section.
    pub fn section_order<'a>(&self, name: &'a EventType) -> (usize, &'a EventType) {
        let position = self.order.iter().position(|kind| kind == name);
        (position.unwrap_or(self.order.len()), name)
    }

    /// Returns the heading of the type's section; by default the type's name.
    pub fn heading<'a>(&'a self, name: &'a EventType) -> &'a str {
        self.policy(name).heading.as_deref().unwrap_or(name.as_str())
    }
}

/// Which event types a user may be emailed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EmailScope {
    /// The mandatory types: the user unsubscribed or wants no digests.
    MandatoryOnly,
    /// All types.
    All,
}

impl EmailScope {
    /// Returns whether the scope includes this type.
    pub fn admits(self, kind: &EventType, policies: &Policies) -> bool {
        self == Self::All || policies.is_mandatory(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_grouped_by_category_in_configuration_order() {
        let policy = |name: &str, category: Option<&str>| {
            let category = category.map(|name| name.parse().unwrap());
            (EventType::stored(name), Policy { category, ..Policy::default() })
        };
        let policies = Policies::new([
            policy("Works", Some("Gallery")),
            policy("Alarm", None),
            policy("Reply", Some("Community")),
            policy("Shows", Some("Gallery")),
        ]);
        let other = EventType::stored("Other");
        let kinds: Vec<&EventType> = policies.kinds().chain([&other]).collect();

        let groups = policies.by_category(&kinds);

        let grouped: Vec<String> = groups
            .iter()
            .map(|(category, kinds)| {
                let kinds: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
                let category = category.map_or("none", |category| category.as_str());
                format!("{category}: {}", kinds.join(" "))
            })
            .collect();
        assert_eq!(grouped, ["none: Alarm Other", "Gallery: Works Shows", "Community: Reply"]);
        assert_eq!(policies.by_category(&kinds[..1]).len(), 1);
    }
}
