//! What a link in an email can stop: a type, all but digests, digests, a follow, a topic, or all.
//!
//! An action stops the emails of its kind and changes nothing else (P7). If the user turns them on
//! again, no older event is emailed ([`User::into_replacement_of`]). Mandatory types are still
//! emailed, and feeds still show the events.

use chrono::{DateTime, Utc};

use super::delivery::DeliverySource;
use super::email_sections::EmailContent;
use super::mutes_and_quiet_hours::Title;
use super::name::{EventType, FollowKey, Subject};
use super::schedule::{Cadence, Schedule};
use super::type_policy::{Policies, Route};
use super::user::{TypePreference, User};

/// The effect of a link in an email.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum StopAction {
    /// All email.
    All,
    /// The digest.
    Digest,
    /// All types that are emailed outside the digest.
    OutsideDigest,
    /// Emails of these types.
    Types(Vec<EventType>),
    /// A follow. [`User::apply_stop`] does not end it, because it is not part of the user's record.
    Follow(FollowKey),
    /// Emails about a subject, with its title if it is known.
    Subject(Subject, Option<Title>),
}

/// The most bytes of type names in a link. Every single name is shorter.
const MAX_NAMES_BYTES: usize = 300;
/// The bytes that encode the length of a name.
const LENGTH_BYTES: usize = 2;

impl StopAction {
    /// Returns the effect of the unsubscribe link in an email with these types. If their names do
    /// not fit into a link, it stops all emails outside the digest.
    pub fn for_types<'a>(kinds: impl IntoIterator<Item = &'a EventType>) -> Self {
        let kinds: Vec<EventType> = kinds.into_iter().cloned().collect();
        let bytes: usize = kinds.iter().map(|kind| kind.as_str().len() + LENGTH_BYTES).sum();
        if bytes > MAX_NAMES_BYTES { Self::OutsideDigest } else { Self::Types(kinds) }
    }

    /// Returns the effect of the unsubscribe link in this email; `None` if all its types are
    /// mandatory.
    pub fn for_email(
        content: &EmailContent,
        occasion: &DeliverySource,
        policies: &Policies,
    ) -> Option<Self> {
        let kinds = content.sections.iter().map(|section| &section.kind);
        let mut optional_kinds = kinds.filter(|kind| !policies.is_mandatory(kind)).peekable();
        optional_kinds.peek()?;
        Some(match occasion {
            DeliverySource::Digest(..) => Self::Digest,
            DeliverySource::Batch(..) => Self::for_types(optional_kinds),
        })
    }

    /// Returns the effect of the link that mutes the only topic of an email. `None` for a digest,
    /// for several topics, and if all types are mandatory.
    pub fn for_only_topic(
        content: &EmailContent,
        occasion: &DeliverySource,
        policies: &Policies,
    ) -> Option<Self> {
        if matches!(occasion, DeliverySource::Digest(..)) {
            return None;
        }
        let mut kinds = content.sections.iter().map(|section| &section.kind);
        if kinds.all(|kind| policies.is_mandatory(kind)) {
            return None;
        }
        // A topic that is too long for a subject has no link.
        let subject = Subject::new(content.common_topic()?).ok()?;
        let group = content.sections.first()?.groups.first();
        let title = group.and_then(|group| group.title()).and_then(Title::cut);
        Some(Self::Subject(subject, title))
    }

    /// Returns whether this is in effect, so that only mandatory emails are left. `follows` is
    /// whether the user still has the follow of a [`StopAction::Follow`].
    pub fn is_in_effect(
        &self,
        user: &User,
        follows: bool,
        default: &Schedule,
        policies: &Policies,
    ) -> bool {
        match self {
            Self::Follow(_) => !follows,
            Self::Subject(subject, _) => user.mutes.is_muted_forever(subject),
            _ if user.unsubscribed.is_some() => true,
            Self::All => false,
            Self::Digest => user.schedule(default).cadence == Cadence::Never,
            Self::OutsideDigest => {
                let mut kinds = policies.kinds().chain(user.types.keys());
                kinds.all(|kind| !user.gets_outside_digest(kind, policies))
            }
            Self::Types(kinds) => {
                kinds.iter().all(|kind| user.chosen_route(kind, policies) == Route::Never)
            }
        }
    }
}

impl User {
    /// Applies a link at the user's request. A second time it changes nothing.
    pub fn apply_stop(&mut self, stop: &StopAction, policies: &Policies, now: DateTime<Utc>) {
        match stop {
            StopAction::All => self.unsubscribe(policies, now),
            StopAction::Digest => self.digest.cadence = Some(Cadence::Never),
            StopAction::OutsideDigest => {
                for chosen in self.choices_outside_digest(policies, now) {
                    chosen.route = Route::Never;
                }
            }
            StopAction::Types(kinds) => {
                for kind in kinds {
                    let never = TypePreference::new(Route::Never, now);
                    let chosen = self.types.entry(kind.clone()).or_insert(never);
                    chosen.route = Route::Never;
                }
            }
            StopAction::Follow(_) => {}
            StopAction::Subject(subject, title) => {
                self.mutes.mute(subject.clone(), None, title.clone(), now);
            }
        }
    }

    /// Returns the route that the user chose, or the configured one. It ignores that choices have
    /// no effect on mandatory types.
    pub fn chosen_route(&self, kind: &EventType, policies: &Policies) -> Route {
        let chosen = self.types.get(kind);
        chosen.map_or(policies.policy(kind).route, |chosen| {
            policies.effective_route(kind, chosen.route)
        })
    }

    /// Returns whether the user gets this type outside the digest and can turn it off.
    pub fn gets_outside_digest(&self, kind: &EventType, policies: &Policies) -> bool {
        !policies.is_mandatory(kind) && self.chosen_route(kind, policies).is_outside_digest()
    }
}

#[cfg(test)]
#[path = "stop_action_tests.rs"]
mod tests;
