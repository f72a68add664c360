//! The unknown parts of events: types that are not configured while others are, and objects and
//! users without a record.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::domain::{EventType, ObjectKey, Policies, UserId};

/// The maximum number of names in a message.
pub(crate) const NAMED: usize = 5;

/// The unknown types, objects and users of some events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Unknown {
    /// Types that are not configured while others are, with the number of events of each.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub types: BTreeMap<EventType, u64>,
    /// The number of events about unknown objects. These events are not emailed.
    #[serde(skip_serializing_if = "is_zero")]
    pub events: u64,
    /// The first of these objects.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub objects: BTreeSet<ObjectKey>,
    /// The types of the events about these objects.
    #[serde(skip)]
    pub(crate) of: BTreeSet<EventType>,
    /// Users without a record that events name.
    #[serde(skip)]
    pub(crate) users: BTreeSet<UserId>,
}

pub(super) fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Unknown {
    /// Returns whether nothing is unknown.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns a sentence for each problem, with advice.
    pub fn warnings(&self, policies: &Policies) -> Vec<String> {
        let mut warnings = Vec::new();
        for kind in self.types.keys().take(NAMED) {
            let meant = match policies.nearest(kind) {
                Some(meant) => format!("did you mean {meant:?}? If not, add [types.{kind}]"),
                None => format!("check its spelling, or add [types.{kind}]"),
            };
            warnings.push(format!(
                "type {kind:?} is not configured, though others are: it goes into digests; {meant}"
            ));
        }
        if !self.of.is_empty() {
            let it = self.verb("it is", "they are");
            let kinds = self.of.iter().take(NAMED);
            let kinds: Vec<String> = kinds.map(|kind| format!("types.{kind}")).collect();
            let mail = match &kinds[..] {
                [kind] => format!("{kind}.unknown_objects = \"mail\""),
                _ => format!("unknown_objects = \"mail\" in {}", kinds.join(", ")),
            };
            warnings.push(format!(
                "{} not known, so {it} not mailed: put a record (tidings import objects, PUT /v1/objects), or set {mail}",
                self.named()
            ));
        }
        warnings.extend(self.unknown_users());
        warnings
    }

    /// Returns `there is no record of zoe: …`. Of many users, it names the first five.
    fn unknown_users(&self) -> Option<String> {
        let named = self.users.iter().take(NAMED).map(UserId::as_str);
        let named: Vec<&str> = named.collect();
        let (named, feed) = match self.users.len().saturating_sub(NAMED) {
            0 if named.is_empty() => return None,
            0 if named.len() == 1 => (named.join(", "), "it is in their feed"),
            0 => (named.join(", "), "it is in their feeds"),
            more => (
                format!("{} and {more} more", named.join(", ")),
                "it is in their feeds",
            ),
        };
        Some(format!(
            "there is no record of {named}: {feed}, and nothing is emailed to them until you \
             create one (tidings import users, PUT /v1/users)"
        ))
    }

    /// Returns the sentences for a retraction, whose type or object may be mistyped.
    pub(crate) fn doubts(&self, policies: &Policies) -> Vec<String> {
        let mut doubts = Vec::new();
        for kind in self.types.keys().take(NAMED) {
            let meant = match policies.nearest(kind) {
                Some(meant) => format!("did you mean {meant:?}?"),
                None => "check its spelling".to_owned(),
            };
            doubts.push(format!(
                "type {kind:?} is not configured, though others are: {meant}"
            ));
        }
        if !self.of.is_empty() {
            let them = self.verb("it", "them");
            doubts.push(format!(
                "{} not known, so no mail told {them}, and perhaps nobody was told: check the id",
                self.named()
            ));
        }
        doubts
    }

    fn verb(&self, one: &'static str, many: &'static str) -> &'static str {
        if self.objects.len() == 1 { one } else { many }
    }

    /// `"Comment:c1", "Comment:c2" and more are`.
    fn named(&self) -> String {
        let named = self.objects.iter().take(NAMED);
        let named: Vec<String> = named.map(|key| format!("{key:?}")).collect();
        let more = if self.objects.len() > NAMED {
            " and more"
        } else {
            ""
        };
        let is = self.verb("is", "are");
        format!("{}{more} {is}", named.join(", "))
    }
}
