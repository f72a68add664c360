//! What a link in a mail ends: the types of a batch, the digest, a follow, everything, or what is
//! about one thing.
//!
//! The rule (P7): a link ends what its mail was about and leaves the rest as it was. What comes
//! back later mails nothing older, as after any change of a route or cadence ([`User::replacing`]).
//! What is mandatory comes all the same. Events stay in the feed.

use chrono::{DateTime, Utc};

use super::cadence::{Cadence, Schedule};
use super::content::Content;
use super::delivery::Occasion;
use super::mute::Title;
use super::name::{EventType, FollowKey, Subject};
use super::policy::{Policies, Route};
use super::user::{TypePreference, User};

/// What a link ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Stop {
    /// All mail.
    All,
    /// The digest.
    Digest,
    /// All that is mailed outside the digest, whatever its type.
    Alone,
    /// Mails of these types.
    Types(Vec<EventType>),
    /// That they follow this. It is not part of their record: whoever keeps follows ends it.
    Follow(FollowKey),
    /// All that is about this, with what people call it, if that is known.
    Subject(Subject, Option<Title>),
}

/// So many bytes of names fit into a link; no single name is longer.
const NAMES: usize = 300;
/// Bytes that say how long a name is.
const LENGTH: usize = 2;

impl Stop {
    /// What ends a mail of its own that is of these types. Where they are too many for a link, it
    /// ends all that is mailed so.
    pub fn of_types<'a>(kinds: impl IntoIterator<Item = &'a EventType>) -> Self {
        let kinds: Vec<EventType> = kinds.into_iter().cloned().collect();
        let bytes: usize = kinds.iter().map(|kind| kind.as_str().len() + LENGTH).sum();
        if bytes > NAMES {
            Self::Alone
        } else {
            Self::Types(kinds)
        }
    }

    /// What the link of a mail of this content ends; `None` where all of it comes whatever its
    /// reader chooses.
    pub fn of_mail(content: &Content, occasion: &Occasion, policies: &Policies) -> Option<Self> {
        let kinds = content.sections.iter().map(|section| &section.kind);
        let mut kinds = kinds.filter(|kind| !policies.is_mandatory(kind)).peekable();
        kinds.peek()?;
        Some(match occasion {
            Occasion::Digest { .. } => Self::Digest,
            Occasion::Batch { .. } => Self::of_types(kinds),
        })
    }

    /// What the link of a mail mutes that is about one thing and nothing else; `None` where it is
    /// about several, is a digest, or comes whatever its reader chooses.
    pub fn of_subject(content: &Content, occasion: &Occasion, policies: &Policies) -> Option<Self> {
        if matches!(occasion, Occasion::Digest { .. }) {
            return None;
        }
        let mut kinds = content.sections.iter().map(|section| &section.kind);
        if kinds.all(|kind| policies.is_mandatory(kind)) {
            return None;
        }
        // One that is longer than a subject can be has no link.
        let subject = Subject::new(content.thread()?).ok()?;
        let group = content.sections.first()?.groups.first();
        let title = group.and_then(|group| group.title());
        Some(Self::Subject(subject, title.and_then(Title::cut)))
    }

    /// Whether nothing of it is mailed to this person any more, but what is mandatory; of a follow,
    /// whether it has ended, where `follows` says whether it stands.
    pub fn holds(
        &self,
        user: &User,
        follows: bool,
        default: &Schedule,
        policies: &Policies,
    ) -> bool {
        match self {
            Self::Follow(_) => !follows,
            Self::Subject(subject, _) => user.mutes.for_good(subject),
            _ if user.unsubscribed.is_some() => true,
            Self::All => false,
            Self::Digest => user.schedule(default).cadence == Cadence::Never,
            Self::Alone => {
                let mut kinds = policies.kinds().chain(user.types.keys());
                kinds.all(|kind| !user.is_mailed_alone(kind, policies))
            }
            Self::Types(kinds) => {
                let mut kinds = kinds.iter();
                kinds.all(|kind| user.chosen_route(kind, policies) == Route::Never)
            }
        }
    }
}

impl User {
    /// Ends it, at their own wish; again, it changes nothing.
    pub fn stop(&mut self, stop: &Stop, policies: &Policies, now: DateTime<Utc>) {
        match stop {
            Stop::All => self.unsubscribe(policies, now),
            Stop::Digest => self.digest.cadence = Some(Cadence::Never),
            Stop::Alone => {
                for chosen in self.mailed_alone(policies, now) {
                    chosen.route = Route::Never;
                }
            }
            Stop::Types(kinds) => {
                for kind in kinds {
                    let never = TypePreference::new(Route::Never, now);
                    let chosen = self.types.entry(kind.clone()).or_insert(never);
                    chosen.route = Route::Never;
                }
            }
            Stop::Follow(_) => {}
            Stop::Subject(subject, title) => {
                self.mutes.mute(subject.clone(), None, title.clone(), now);
            }
        }
    }

    /// By which route they get this type by their choice, or where they chose nothing; whether that
    /// counts, as it does not where it is mandatory, is not asked.
    pub fn chosen_route(&self, kind: &EventType, policies: &Policies) -> Route {
        let chosen = self.types.get(kind);
        chosen.map_or(policies.of(kind).route, |chosen| {
            policies.mailed_by(kind, chosen.route)
        })
    }

    /// Whether they can turn this type off and get it outside the digest.
    pub fn is_mailed_alone(&self, kind: &EventType, policies: &Policies) -> bool {
        !policies.is_mandatory(kind) && self.chosen_route(kind, policies).is_mailed_alone()
    }
}

#[cfg(test)]
#[path = "stop_tests.rs"]
mod tests;
