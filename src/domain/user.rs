//! Users: their addresses and preferences, and whether they may be emailed.
//!
//! Unconfirmed, suppressed and unsubscribed users get no email, and no user gets a type that they
//! turned off (P7). Turning something on again emails no earlier events: each change of a route or
//! cadence sets a `since`. Mandatory types ignore these choices: see [`EmailScope`].

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc, Weekday};
use chrono_tz::Tz;
use serde::{Serialize, Serializer};

use super::address::Address;
use super::audience::Point;
use super::batch::BatchPolicy;
use super::durations_and_times;
use super::feedback::SuppressionReason;
use super::mutes_and_quiet_hours::{Mutes, QuietHours};
use super::name::{BrandName, EventType, InvalidValue, UserId};
use super::schedule::{Cadence, Schedule};
use super::type_policy::{EmailScope, Policies, Route};
use super::user_id_reuse::RecordStart;

/// A user's choice for one event type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TypePreference {
    /// The route, which replaces the configured one.
    pub route: Route,
    /// When the user chose the route. It emails no earlier events.
    #[serde(skip)]
    pub since: DateTime<Utc>,
    /// How long the user's batches collect events, instead of the type's window: see
    /// [`parse_window`]. Other routes than `batch` ignore it.
    #[serde(serialize_with = "write_window")]
    pub window: Option<TimeDelta>,
}

impl TypePreference {
    /// Creates a choice that keeps the type's window.
    pub fn new(route: Route, since: DateTime<Utc>) -> Self {
        Self { route, since, window: None }
    }

    /// Returns the route of an event of this type and time for a user who made this choice, or
    /// none. See [`User::route`].
    pub fn route(
        chosen: Option<&Self>,
        kind: &EventType,
        at: DateTime<Utc>,
        policies: &Policies,
    ) -> Route {
        Self::route_where(chosen, kind, |since| at < since, policies)
    }

    fn route_where(
        chosen: Option<&Self>,
        kind: &EventType,
        is_older: impl FnOnce(DateTime<Utc>) -> bool,
        policies: &Policies,
    ) -> Route {
        match chosen.filter(|_| !policies.is_mandatory(kind)) {
            Some(chosen) if is_older(chosen.since) => Route::Never,
            Some(chosen) => policies.effective_route(kind, chosen.route),
            None => policies.policy(kind).route,
        }
    }
}

/// Parses a user's own batch window, from 1 second to 30 days, as in the configuration. There is no
/// zero window; users who want no batches choose another route.
pub fn parse_window(text: &str) -> Result<TimeDelta, InvalidValue> {
    let range = TimeDelta::seconds(1)..=TimeDelta::days(30);
    durations_and_times::parse_duration_within(text, &range)
        .map_err(|why| InvalidValue::new("window", text, why))
}

/// When a user gets digests. The configuration decides each open choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct DigestPreference {
    /// How often; `None` for the configured cadence.
    pub cadence: Option<Cadence>,
    /// The weekday of weekly digests; `None` for the configured one.
    #[serde(serialize_with = "write_weekday")]
    pub weekday: Option<Weekday>,
    /// The local hour, 0 to 23; `None` for the configured one.
    pub hour: Option<u8>,
    /// When the user last turned digests on again. Digests include earlier events only of mandatory
    /// types.
    #[serde(skip)]
    pub since: Option<DateTime<Utc>>,
}

/// A version of a stored record. Two reads with equal revisions found the same record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Revision(pub u64);

impl Revision {
    /// The revision of a new record, and of one that another program wrote.
    pub const NONE: Self = Self(0);
}

/// The maximum number of types for which a user can have a choice.
pub const MAX_TYPES: usize = 1_000;
/// The longest name of a user, in bytes.
pub const MAX_USER_NAME_BYTES: usize = 1_000;

/// Checks a number of choices against [`MAX_TYPES`].
pub fn check_choices(count: usize) -> Result<(), InvalidValue> {
    let why =
        format_args!("is more than the {MAX_TYPES} event types one person can have a choice of");
    InvalidValue::check_limit("types", count, MAX_TYPES, why)
}

/// A user's record.
///
/// Its JSON is the view of the API: the address is masked, the times of unsubscribing and
/// suppression are flags, and internal fields are missing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct User {
    /// The application's id of the user.
    pub id: UserId,
    /// The email address. Users without one get no email.
    #[serde(serialize_with = "write_masked")]
    pub email: Option<Address>,
    /// The name, for the `To` header and for templates.
    pub name: Option<String>,
    /// Whether the address is confirmed. Users with an unconfirmed address get no email.
    pub confirmed: bool,
    /// The time zone; `None` for the configured one.
    pub tz: Option<Tz>,
    /// The hours in which no batch closes.
    pub quiet: Option<QuietHours>,
    /// The language tag, for templates.
    pub locale: Option<String>,
    /// The brand of the user's emails; `None` for the default. It may no longer be configured.
    pub brand: Option<BrandName>,
    /// The location, for events near a point.
    pub loc: Option<Point>,
    /// When the user gets digests.
    pub digest: DigestPreference,
    /// The choices by type. Other types use the configured routes.
    pub types: BTreeMap<EventType, TypePreference>,
    /// The muted subjects, for all types that are not mandatory.
    #[serde(skip)]
    pub mutes: Mutes,
    /// When the application suppressed the user.
    #[serde(serialize_with = "write_flag")]
    pub suppressed: Option<DateTime<Utc>>,
    /// When the user unsubscribed from everything; `None` after they chose to get emails again.
    #[serde(serialize_with = "write_flag")]
    pub unsubscribed: Option<DateTime<Utc>>,
    /// Where this record starts, if an erased user had its id.
    #[serde(skip)]
    pub start: Option<RecordStart>,
    /// Stored fields that this version cannot read. They have their defaults. Set by the store.
    #[serde(skip)]
    pub unreadable: Vec<UnreadableField>,
    /// The revision that was read. Set by the store.
    #[serde(skip)]
    pub revision: Revision,
}

fn write_masked<S: Serializer>(address: &Option<Address>, to: S) -> Result<S::Ok, S::Error> {
    address.as_ref().map(ToString::to_string).serialize(to)
}

fn write_flag<S: Serializer>(since: &Option<DateTime<Utc>>, to: S) -> Result<S::Ok, S::Error> {
    since.is_some().serialize(to)
}

fn write_weekday<S: Serializer>(day: &Option<Weekday>, to: S) -> Result<S::Ok, S::Error> {
    day.map(|day| day.to_string().to_lowercase()).serialize(to)
}

fn write_window<S: Serializer>(window: &Option<TimeDelta>, to: S) -> Result<S::Ok, S::Error> {
    window.map(durations_and_times::format_duration).serialize(to)
}

/// A stored field that this version cannot read, such as the time zone of a newer version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnreadableField {
    /// The name of the field, such as `tz` or `types.NearbyShow`.
    pub field: String,
    /// The reason, in at most 80 characters.
    pub why: String,
}

impl UnreadableField {
    /// Creates a report about the record as a whole.
    pub fn for_whole_record(why: impl ToString) -> Self {
        Self { field: "record".to_owned(), why: why.to_string() }
    }
}

/// Why a user gets no email.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnmailableReason {
    /// There is no record of the user.
    Unknown,
    /// The record has no address.
    NoAddress,
    /// The address is not confirmed.
    Unconfirmed,
    /// The record is suppressed.
    Suppressed,
    /// The user unsubscribed from everything.
    Unsubscribed,
    /// The address is on the suppression list.
    Address(SuppressionReason),
}

impl UnmailableReason {
    /// Returns whether it is the user's own choice. Mandatory types are emailed despite it.
    pub fn is_own_choice(self) -> bool {
        matches!(self, Self::Unsubscribed | Self::Address(SuppressionReason::Unsubscribe))
    }

    /// Returns the reason in words for reports, such as `unconfirmed`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::NoAddress => "without address",
            Self::Unconfirmed => "unconfirmed",
            Self::Suppressed => "suppressed",
            Self::Unsubscribed => "unsubscribed",
            Self::Address(reason) => reason.description(),
        }
    }
}

impl User {
    /// Creates an empty record.
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

    /// Returns the address, if the user may be emailed.
    pub fn mailable_address(&self) -> Result<&Address, UnmailableReason> {
        if self.suppressed.is_some() {
            return Err(UnmailableReason::Suppressed);
        }
        if self.unsubscribed.is_some() {
            return Err(UnmailableReason::Unsubscribed);
        }
        self.reachable_address()
    }

    /// Returns the address, even if the user unsubscribed: mandatory types are emailed to it.
    pub fn reachable_address(&self) -> Result<&Address, UnmailableReason> {
        if self.suppressed.is_some() {
            return Err(UnmailableReason::Suppressed);
        }
        let address = self.email.as_ref().ok_or(UnmailableReason::NoAddress)?;
        if self.confirmed { Ok(address) } else { Err(UnmailableReason::Unconfirmed) }
    }

    /// Returns the schedule of the user's digests. `default` replaces open choices.
    pub fn schedule(&self, default: &Schedule) -> Schedule {
        Schedule {
            cadence: self.digest.cadence.unwrap_or(default.cadence),
            weekday: self.digest.weekday.unwrap_or(default.weekday),
            hour: self.digest.hour.unwrap_or(default.hour),
            tz: self.tz.unwrap_or(default.tz),
        }
    }

    /// Returns the schedule of the user's digests and their scope. A user who wants no digests gets
    /// the mandatory types; if their cadence is `never`, at the configured cadence.
    pub fn digest_schedule(&self, default: &Schedule) -> (Schedule, EmailScope) {
        let mut schedule = self.schedule(default);
        if self.gets_digests(default) {
            return (schedule, EmailScope::All);
        }
        if schedule.cadence == Cadence::Never {
            schedule.cadence = default.cadence;
        }
        (schedule, EmailScope::MandatoryOnly)
    }

    /// Returns the route of an event of this type and time. Events from before the user's choice
    /// have [`Route::Never`].
    pub fn route(&self, kind: &EventType, at: DateTime<Utc>, policies: &Policies) -> Route {
        TypePreference::route(self.types.get(kind), kind, at, policies)
    }

    /// Returns the batch policy of this type, with the user's own window if they chose one.
    pub fn batch_policy(&self, kind: &EventType, policies: &Policies) -> BatchPolicy {
        let chosen = self.types.get(kind).filter(|_| !policies.is_mandatory(kind));
        policies.policy(kind).batch.with_window(chosen.and_then(|chosen| chosen.window))
    }

    /// Returns the end of the quiet hours that defer a batch with events of these types at `at`.
    /// Returns `None` outside quiet hours, and if any of the types is mandatory.
    pub fn quiet_until<'a>(
        &self,
        kinds: impl IntoIterator<Item = &'a EventType>,
        at: DateTime<Utc>,
        default: Tz,
        policies: &Policies,
    ) -> Option<DateTime<Utc>> {
        let ends = self.quiet?.end_at(at, self.tz.unwrap_or(default))?;
        let has_mandatory = kinds.into_iter().any(|kind| policies.is_mandatory(kind));
        (!has_mandatory).then_some(ends)
    }

    /// Returns whether the user's digests include an event of this type and time. Calls `at` only
    /// if the user made a choice that depends on it, which is rare.
    pub fn gets_in_digest(
        &self,
        kind: &EventType,
        at: impl Fn() -> DateTime<Utc>,
        policies: &Policies,
    ) -> bool {
        let is_older = |since| at() < since;
        let digests_since = self.digest.since.filter(|_| !policies.is_mandatory(kind));
        let chosen = self.types.get(kind);
        !digests_since.is_some_and(is_older)
            && TypePreference::route_where(chosen, kind, is_older, policies) == Route::Digest
    }

    /// Unsubscribes the user from everything. A repeated call keeps the first `unsubscribed` time.
    /// Mandatory types are still emailed, for as long as they are mandatory.
    pub fn unsubscribe(&mut self, policies: &Policies, now: DateTime<Utc>) {
        self.digest.cadence = Some(Cadence::Never);
        for chosen in self.choices_outside_digest(policies, now) {
            chosen.route = Route::Never;
        }
        self.unsubscribed.get_or_insert(now);
    }

    /// Returns whether the record asks for digests of all types.
    fn gets_digests(&self, default: &Schedule) -> bool {
        self.unsubscribed.is_none() && self.schedule(default).cadence != Cadence::Never
    }

    /// Returns the record to store in place of `before`, with the `since` of each choice.
    ///
    /// A changed route starts now; an unchanged one keeps its start. Digests that were off start
    /// now. If the user resubscribes, so do all routes outside the digest. A changed window changes
    /// no start: it affects when a batch is emailed, but not whether.
    pub fn into_replacement_of(
        mut self,
        before: Option<&Self>,
        default: &Schedule,
        policies: &Policies,
        now: DateTime<Utc>,
    ) -> Self {
        let Some(before) = before else { return self };
        self.revision = before.revision;
        self.start = before.start;
        self.set_choice_times(before, policies, now);
        if before.unsubscribed.is_some() && self.unsubscribed.is_none() {
            for chosen in self.choices_outside_digest(policies, now) {
                chosen.since = now;
            }
        }
        let resumes_digests = self.gets_digests(default) && !before.gets_digests(default);
        self.digest.since = if resumes_digests { Some(now) } else { before.digest.since };
        self
    }

    /// Sets the start of each choice. Adds the default route for each choice that was removed.
    fn set_choice_times(&mut self, before: &Self, policies: &Policies, now: DateTime<Utc>) {
        for (kind, chosen) in &mut self.types {
            // Routes that have the same effect count as equal.
            let route = policies.effective_route(kind, chosen.route);
            let is_unchanged = before.chosen_route(kind, policies) == route;
            chosen.since = match before.types.get(kind) {
                Some(earlier) if is_unchanged => earlier.since,
                // Choosing the default excludes no earlier events.
                None if is_unchanged => DateTime::UNIX_EPOCH,
                _ => now,
            };
        }
        // Without a choice, the default route applies. If that is a change, its time must be kept.
        for (kind, earlier) in &before.types {
            let route = policies.policy(kind).route;
            let since = if earlier.route == route { earlier.since } else { now };
            self.types.entry(kind.clone()).or_insert(TypePreference::new(route, since));
        }
    }

    /// Returns the choices of types that are emailed outside the digest. Adds a choice dated
    /// `since` for each configured type of this kind that has none.
    pub(super) fn choices_outside_digest(
        &mut self,
        policies: &Policies,
        since: DateTime<Utc>,
    ) -> impl Iterator<Item = &mut TypePreference> {
        let defaults = policies.kinds().map(|kind| (kind, policies.policy(kind).route));
        for (kind, route) in defaults.filter(|(_, route)| route.is_outside_digest()) {
            let default = TypePreference::new(route, since);
            self.types.entry(kind.clone()).or_insert(default);
        }
        self.types.iter_mut().filter_map(|(kind, chosen)| {
            let route = policies.effective_route(kind, chosen.route);
            route.is_outside_digest().then_some(chosen)
        })
    }
}

#[cfg(test)]
#[path = "user_tests.rs"]
mod tests;
