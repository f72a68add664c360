//! People: where to write to them, what they want, and whether they may be written to at all.
//!
//! The rule (P7): whoever is unconfirmed, suppressed, unsubscribed or has turned something off gets
//! no mail of it, and turning something on again mails nothing older: every change of a route or
//! cadence sets a `since`. What is mandatory goes its way whatever they choose: see [`EmailScope`].

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc, Weekday};
use chrono_tz::Tz;

use super::address::Address;
use super::audience::Point;
use super::batch::BatchPolicy;
use super::brand::BrandName;
use super::cadence::{Cadence, Schedule};
use super::duration;
use super::mute::Mutes;
use super::name::{EventType, Invalid, UserId};
use super::policy::{EmailScope, Policies, Route};
use super::quiet::Quiet;
use super::start::Start;
use super::suppression::Reason;

/// What a person chose for one event type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypePreference {
    /// How they get the type, whatever is configured of it.
    pub route: Route,
    /// When they chose it: nothing older is mailed by this route.
    pub since: DateTime<Utc>,
    /// How long their batches gather, instead of the type's window: see [`window`]. With another
    /// route than `batch` it waits until they choose that one.
    pub window: Option<TimeDelta>,
}

impl TypePreference {
    /// A route, with the type's own window.
    pub fn new(route: Route, since: DateTime<Utc>) -> Self {
        let window = None;
        Self {
            route,
            since,
            window,
        }
    }
}

/// A window of somebody's own, as it is written everywhere: from a second to 30 days, as in the
/// configuration. Whoever wants no batches chooses another route, so it is never nothing.
pub fn window(text: &str) -> Result<TimeDelta, Invalid> {
    let range = TimeDelta::seconds(1)..=TimeDelta::days(30);
    duration::within(text, &range).map_err(|why| Invalid::new("window", text, why))
}

/// When a person wants their digest; what they did not choose is the configuration's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DigestPreference {
    /// How often; `None` for the configuration's choice.
    pub cadence: Option<Cadence>,
    /// On which weekday, where the digest is weekly; `None` for the configuration's choice.
    pub weekday: Option<Weekday>,
    /// Local hour, 0 to 23.
    pub hour: Option<u8>,
    /// When the cadence last left `never`: nothing older is mailed.
    pub since: Option<DateTime<Utc>>,
}

/// What a store knows the state of a record by: two reads that give the same one found the same
/// record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Revision(pub u64);

impl Revision {
    /// Of what was never read: a new record, or one that another program wrote.
    pub const NONE: Self = Self(0);
}

/// The most types one person can have a choice of.
pub const MAX_TYPES: usize = 1_000;
/// The longest name of a person, in bytes.
pub const MAX_NAME: usize = 1_000;

/// That these are not more choices than can be kept.
pub fn check_choices(count: usize) -> Result<(), Invalid> {
    if count <= MAX_TYPES {
        return Ok(());
    }
    let why = format!("is more than the {MAX_TYPES} event types one person can have a choice of");
    Err(Invalid::limit("types", count, why))
}

/// A person.
#[derive(Debug, Clone, PartialEq)]
pub struct User {
    /// The application's own id of them.
    pub id: UserId,
    /// Where to write to; without it no mail leaves.
    pub email: Option<Address>,
    /// What they are called, for the mail's `To` and for templates.
    pub name: Option<String>,
    /// Whether the address is known to be theirs; without that no mail leaves.
    pub confirmed: bool,
    /// Their time zone; `None` for the configuration's.
    pub tz: Option<Tz>,
    /// Their language, for templates; tidings itself does not read it.
    pub locale: Option<String>,
    /// Under which brand they are mailed; `None` for the default. It may be one that is not
    /// configured any more.
    pub brand: Option<BrandName>,
    /// Where they live, for events that concern everybody near a point.
    pub loc: Option<Point>,
    /// When they want digests.
    pub digest: DigestPreference,
    /// What they chose of types; all others go where the configuration says.
    pub types: BTreeMap<EventType, TypePreference>,
    /// What they want to hear nothing of, whatever its type.
    pub mutes: Mutes,
    /// When no batch of theirs closes.
    pub quiet: Option<Quiet>,
    /// Since when we must not write to them.
    pub suppressed: Option<DateTime<Utc>>,
    /// When they unsubscribed from everything; nothing once they chose to get something again.
    pub unsubscribed: Option<DateTime<Utc>>,
    /// Where this record begins, if an earlier user had its id.
    pub start: Option<Start>,
    /// Stored fields that this version cannot read. Their defaults replace them; the store sets it.
    pub unreadable: Vec<UnreadableField>,
    /// As it was read; the store sets it.
    pub revision: Revision,
}

/// A stored field that this version cannot read, such as the time zone of a newer version.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct UnreadableField {
    /// The name of the field, such as `tz` or `types.NearbyShow`.
    pub field: String,
    /// The reason, in at most 80 characters.
    pub why: String,
}

impl UnreadableField {
    /// All of the record.
    pub fn record(why: impl ToString) -> Self {
        Self {
            field: "record".to_owned(),
            why: why.to_string(),
        }
    }
}

/// Why a person gets no mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unmailable {
    /// Somebody's stack, but no record of the person.
    Unknown,
    /// Their record has no address.
    NoAddress,
    /// Nobody has shown that the address is theirs.
    Unconfirmed,
    /// Their record says that we must not write to them.
    Suppressed,
    /// They unsubscribed from everything.
    Unsubscribed,
    /// Their address is on the list of those that must not be written to.
    Address(Reason),
}

impl Unmailable {
    /// Whether it is the person's own wish: what is mandatory is mailed all the same.
    pub fn is_own_wish(self) -> bool {
        matches!(
            self,
            Self::Unsubscribed | Self::Address(Reason::Unsubscribe)
        )
    }

    /// The reason as a word or a few, for reports: `unconfirmed`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::NoAddress => "without address",
            Self::Unconfirmed => "unconfirmed",
            Self::Suppressed => "suppressed",
            Self::Unsubscribed => "unsubscribed",
            Self::Address(reason) => reason.suppressed(),
        }
    }
}

impl User {
    /// A person of whom nothing is known but the id.
    pub fn new(id: UserId) -> Self {
        Self {
            id,
            email: None,
            name: None,
            confirmed: false,
            tz: None,
            locale: None,
            brand: None,
            loc: None,
            digest: DigestPreference::default(),
            types: BTreeMap::new(),
            mutes: Mutes::default(),
            quiet: None,
            suppressed: None,
            unsubscribed: None,
            start: None,
            unreadable: Vec::new(),
            revision: Revision::NONE,
        }
    }

    /// Where to write to, if anybody may.
    pub fn mailable(&self) -> Result<&Address, Unmailable> {
        if self.suppressed.is_some() {
            return Err(Unmailable::Suppressed);
        }
        if self.unsubscribed.is_some() {
            return Err(Unmailable::Unsubscribed);
        }
        self.reachable()
    }

    /// The same, whether or not they want to be written to.
    pub fn reachable(&self) -> Result<&Address, Unmailable> {
        if self.suppressed.is_some() {
            return Err(Unmailable::Suppressed);
        }
        let address = self.email.as_ref().ok_or(Unmailable::NoAddress)?;
        if self.confirmed {
            Ok(address)
        } else {
            Err(Unmailable::Unconfirmed)
        }
    }

    /// When their digest falls due, with the configuration's choice for what they left open.
    pub fn schedule(&self, default: &Schedule) -> Schedule {
        Schedule {
            cadence: self.digest.cadence.unwrap_or(default.cadence),
            weekday: self.digest.weekday.unwrap_or(default.weekday),
            hour: self.digest.hour.unwrap_or(default.hour),
            tz: self.tz.unwrap_or(default.tz),
        }
    }

    /// When digests fall due for them, and how much these tell. Whoever wants none gets what is
    /// mandatory as often as is configured for all.
    pub fn digests(&self, default: &Schedule) -> (Schedule, EmailScope) {
        let mut schedule = self.schedule(default);
        if self.gets_digests(default) {
            return (schedule, EmailScope::All);
        }
        if schedule.cadence == Cadence::Never {
            schedule.cadence = default.cadence;
        }
        (schedule, EmailScope::MandatoryOnly)
    }

    /// What they chose of this type, where they can choose.
    fn chosen(&self, kind: &EventType, policies: &Policies) -> Option<&TypePreference> {
        let chosen = self.types.get(kind)?;
        (!policies.is_mandatory(kind)).then_some(chosen)
    }

    /// By which route an event of this type and time is mailed to them: by none if it is older than
    /// their choice.
    pub fn route(&self, kind: &EventType, at: DateTime<Utc>, policies: &Policies) -> Route {
        self.route_where(kind, |since| at < since, policies)
    }

    fn route_where(
        &self,
        kind: &EventType,
        is_older: impl FnOnce(DateTime<Utc>) -> bool,
        policies: &Policies,
    ) -> Route {
        match self.chosen(kind, policies) {
            Some(chosen) if is_older(chosen.since) => Route::Never,
            Some(chosen) => policies.mailed_by(kind, chosen.route),
            None => policies.of(kind).route,
        }
    }

    /// How batches of this type gather and close for them: as is configured, with a window of their
    /// own if they chose one.
    pub fn batch_policy(&self, kind: &EventType, policies: &Policies) -> BatchPolicy {
        let chosen = self.chosen(kind, policies);
        let window = chosen.and_then(|chosen| chosen.window);
        policies.of(kind).batch.for_window(window)
    }

    /// When the quiet hours end that keep events of these types from being mailed outside the
    /// digest at this moment; `None` where none do. What is mandatory is not kept, nor what is
    /// mailed with it.
    pub fn quiet_until<'a>(
        &self,
        kinds: impl IntoIterator<Item = &'a EventType>,
        at: DateTime<Utc>,
        default: Tz,
        policies: &Policies,
    ) -> Option<DateTime<Utc>> {
        let ends = self.quiet?.ends(at, self.tz.unwrap_or(default))?;
        let mut kinds = kinds.into_iter();
        let is_obliged = kinds.any(|kind| policies.is_mandatory(kind));
        (!is_obliged).then_some(ends)
    }

    /// Whether an event of this type and time goes into their digest. Few have chosen, and the time
    /// is only asked of them.
    pub fn wants_in_digest(
        &self,
        kind: &EventType,
        at: impl Fn() -> DateTime<Utc>,
        policies: &Policies,
    ) -> bool {
        let is_older = |since| at() < since;
        let since = self.digest.since;
        let since = since.filter(|_| !policies.is_mandatory(kind));
        !since.is_some_and(is_older) && self.route_where(kind, is_older, policies) == Route::Digest
    }

    /// Turns everything off that is mailed, and notes when. Whoever did so before keeps their
    /// moment. What is mandatory comes all the same, for as long as it is.
    pub fn unsubscribe(&mut self, policies: &Policies, now: DateTime<Utc>) {
        self.digest.cadence = Some(Cadence::Never);
        for chosen in self.mailed_alone(policies, now) {
            chosen.route = Route::Never;
        }
        self.unsubscribed.get_or_insert(now);
    }

    /// Whether their record lets a digest be made for them.
    fn gets_digests(&self, default: &Schedule) -> bool {
        self.unsubscribed.is_none() && self.schedule(default).cadence != Cadence::Never
    }

    /// What changes when this record takes the place of `before`: a route that differs starts now,
    /// one that does not keeps its start, and a cadence that leaves `never` starts now. So does
    /// everything for whoever comes back. Another window moves no start: it changes when a batch is
    /// mailed, not whether.
    pub fn replacing(
        mut self,
        before: Option<&Self>,
        default: &Schedule,
        policies: &Policies,
        now: DateTime<Utc>,
    ) -> Self {
        let Some(before) = before else {
            return self;
        };
        self.revision = before.revision;
        self.start = before.start;
        let comes_back = before.unsubscribed.is_some() && self.unsubscribed.is_none();
        let route_before = |kind: &EventType| before.chosen_route(kind, policies);
        // What cannot be chosen counts as what it is mailed by.
        let route = |kind: &EventType, chosen| policies.mailed_by(kind, chosen);
        for (kind, chosen) in &mut self.types {
            let kept = before
                .types
                .get(kind)
                .filter(|earlier| route(kind, earlier.route) == route(kind, chosen.route));
            chosen.since = match kept {
                Some(earlier) => earlier.since,
                // Choosing what was the default anyway changes nothing: all the past stays theirs.
                None if route_before(kind) == route(kind, chosen.route) => DateTime::UNIX_EPOCH,
                None => now,
            };
        }
        // A choice taken back is a change of route to the default: it has to be remembered with its
        // moment.
        for (kind, earlier) in &before.types {
            let default_route = policies.of(kind).route;
            self.types.entry(kind.clone()).or_insert_with(|| {
                let same = earlier.route == default_route;
                TypePreference::new(default_route, if same { earlier.since } else { now })
            });
        }
        if comes_back {
            for chosen in self.mailed_alone(policies, now) {
                chosen.since = now;
            }
        }
        self.digest.since = if self.gets_digests(default) && !before.gets_digests(default) {
            Some(now)
        } else {
            before.digest.since
        };
        self
    }

    /// What is mailed to them outside the digest, also where they never chose it.
    pub(super) fn mailed_alone(
        &mut self,
        policies: &Policies,
        since: DateTime<Utc>,
    ) -> impl Iterator<Item = &mut TypePreference> {
        let defaults = policies.kinds().map(|kind| (kind, policies.of(kind).route));
        for (kind, route) in defaults.filter(|(_, route)| route.is_mailed_alone()) {
            let default = TypePreference::new(route, since);
            self.types.entry(kind.clone()).or_insert(default);
        }
        let chosen = self.types.iter_mut();
        let chosen = chosen.filter(|(kind, chosen)| {
            let route = policies.mailed_by(kind, chosen.route);
            route.is_mailed_alone()
        });
        chosen.map(|(_, chosen)| chosen)
    }
}

#[cfg(test)]
#[path = "user_tests.rs"]
mod tests;
