//! The answer of `tidings explain`: why a user did or did not get an event.

use std::fmt;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use serde::Serialize;

use super::batch::BatchView;
use super::delivery::DeliveryRow;
use super::suppression::SuppressionView;
use crate::domain::user::UnreadableField;
use crate::domain::{
    BrandName, Day, DeliveryId, DeliveryState, EventType, Id, ObjectId, Position, Schedule, UserId,
};

/// Declares an enum of reasons, each with a sentence.
macro_rules! sentences {
    ($(#[$meta:meta])* $name:ident {$($(#[$doc:meta])* $reason:ident = $sentence:literal,)*}) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {$($(#[$doc])* $reason,)*}

        impl $name {
            /// Returns the reason in words.
            pub fn sentence(self) -> &'static str {
                match self {$(Self::$reason => $sentence,)*}
            }
        }
    };
}

/// Everything that decides which emails a user gets.
#[derive(Debug, Serialize)]
pub struct Explanation {
    /// The user's id.
    pub user: UserId,
    /// Whether the user has a record. Without one, there is no name and no address.
    #[serde(rename = "known")]
    pub has_record: bool,
    /// The user's name.
    pub name: Option<String>,
    /// The user's address, masked.
    pub email: Option<String>,
    /// The user's brand, unless it is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub brand: Option<BrandView>,
    /// The locale of the user's emails and pages; `None` if the user has no record.
    pub locale: Option<LocaleView>,
    /// The fields of the record that this version cannot read. Defaults are used instead.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableField>,
    /// Why the user may not be emailed, if so. Mandatory types can be an exception.
    pub unmailable: Option<String>,
    /// The suppression of the user's address, if any.
    pub suppression: Option<SuppressionView>,
    /// When the user unsubscribed from everything.
    pub unsubscribed: Option<DateTime<Utc>>,
    /// The types that the user has turned off, without mandatory ones.
    pub turned_off: Vec<EventType>,
    /// When the user's digests are due; `None` if the user has no record.
    pub digest: Option<DigestView>,
    /// The events, newest first. Of days before the window, only those that still wait or expired.
    pub events: Vec<ExplainedEvent>,
    /// The days on which the user's stack is full. Further events of these days were not stored.
    pub full_days: Vec<Day>,
    /// The user's open and closing batches.
    pub batches: Vec<BatchView>,
    /// The latest deliveries, newest first, at most ten.
    pub deliveries: Vec<DeliveryRow>,
}

/// The brand of a user.
#[derive(Debug, Serialize)]
pub struct BrandView {
    /// The brand in the user's record.
    pub name: BrandName,
    /// Whether the brand is configured. Otherwise, the user's emails wait.
    pub configured: bool,
}

/// The locale of a user.
#[derive(Debug, Serialize)]
pub struct LocaleView {
    /// The locale in the user's record, if any. An empty one counts as none.
    #[serde(rename = "asked")]
    pub requested: Option<String>,
    /// The locale of the catalog that emails and pages use.
    pub used: String,
}

/// Prints `pt, for their pt-BR` or `en, as their record names no locale`.
impl fmt::Display for LocaleView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = &self.used;
        match &self.requested {
            None => write!(f, "{used}, as their record names no locale"),
            Some(requested) if requested == used => write!(f, "{used}"),
            Some(requested) => write!(f, "{used}, for their {}", requested.escape_debug()),
        }
    }
}

/// When a user's digests are due.
#[derive(Debug, Serialize)]
pub struct DigestView {
    /// The user's schedule, or the default; flattened in JSON.
    #[serde(flatten)]
    pub schedule: Schedule,
    /// The time zone of the schedule.
    pub tz: Tz,
    /// When the next digest is due; in the past if the next run sends it. `None` if there is none.
    pub next_due: Option<DateTime<Utc>>,
}

/// The past or expected outcome of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExplainedEvent {
    /// The position on the user's stacks; `id` in JSON.
    #[serde(rename = "id")]
    pub position: Position,
    /// The event's type; `type` in JSON.
    #[serde(rename = "type")]
    pub kind: String,
    /// The id of the object.
    pub object: ObjectId,
    /// The object's title, or its key if it has none; `None` if the object has no record.
    pub title: Option<String>,
    /// The time of the event.
    pub at: DateTime<Utc>,
    /// The reason for the outcome, as of now.
    #[serde(rename = "why")]
    pub status: EventStatus,
    /// Whether the type is mandatory. Then the user's choices do not apply.
    pub mandatory: bool,
    /// Whether feeds show the type.
    pub in_feed: bool,
    /// The batch of the event, if one is known.
    pub batch: Option<ExplainedBatch>,
    /// The delivery that includes it and is not settled, or whose failure keeps it pending.
    pub delivery: Option<ExplainedDelivery>,
    /// What covers the event: a marker, or the sent email of its batch.
    pub covered: Option<CoveredBy>,
}

/// The batch of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExplainedBatch {
    /// The id. The batch's delivery has the id `batch:<id>`.
    pub id: Id,
    /// When the batch is due. Once it closes, the time at which closing began, if that is earlier.
    pub closes_at: DateTime<Utc>,
    /// The end of the quiet hours that defer the batch, if any do. Then `closes_at` is the same.
    #[serde(rename = "held_until")]
    pub deferred_until: Option<DateTime<Utc>>,
    /// The reason in the batch's delivery, if there is one.
    pub reason: Option<String>,
    /// When the delivery ended, if it has.
    pub settled: Option<DateTime<Utc>>,
}

/// A delivery that includes an event and has not been sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExplainedDelivery {
    /// The delivery's id.
    pub id: DeliveryId,
    /// `pending`, `sending` or `failed`.
    pub state: DeliveryState,
    /// Why it waits or failed, such as the provider's answer.
    pub reason: String,
    /// The earliest time of the next attempt; `None` if nothing delays it.
    pub next_attempt: Option<DateTime<Utc>>,
    /// The worker that has leased it, until `next_attempt` at most.
    #[serde(rename = "held_by")]
    pub leased_by: Option<String>,
}

sentences! {
    /// Why an event is emailed, or is not. The sentences follow "it".
    EventStatus {
        /// It was emailed, in a batch or alone.
        #[serde(rename = "mailed")]
        Emailed = "was emailed in a batch",
        /// It may have been emailed, but the outcome of the email is unknown.
        #[serde(rename = "may_be_mailed")]
        MayBeEmailed = "may have been emailed: see tidings deliveries",
        /// The email of its batch was sent and excluded it.
        Excluded = "was left out of its batch's email",
        /// It is in an open batch.
        #[serde(rename = "gathering")]
        InOpenBatch = "is in an open batch",
        /// Its batch is being emailed.
        #[serde(rename = "closing")]
        InClosingBatch = "is in a batch that is being emailed",
        /// It was removed from its batch.
        #[serde(rename = "taken_out")]
        Removed = "was removed from its batch",
        /// Its batch was canceled, or the email of its batch failed.
        #[serde(rename = "not_mailed")]
        NotEmailed = "was not emailed",
        /// It is to be emailed in a batch or alone, but no batch that contains it is known.
        NoBatch = "is for a batch, but no batch contains it",
        /// A marker covers it: of a digest that included or excluded it, of a flush, or of an older
        /// writer.
        Covered = "is covered by a marker",
        /// The same event is at an older position.
        Repeated = "repeats an event that is included already",
        /// It was retracted.
        Retracted = "was retracted",
        /// Its object was withdrawn.
        Withdrawn = "no longer applies",
        /// The user saw it in the feed, and digests exclude seen events (`digest.skip_seen`).
        Seen = "was seen in the feed, so digests skip it",
        /// Its object has no record, and its type is not emailed without one.
        UnknownObject = "is about an unknown object, so it is not emailed",
        /// The user has muted its subject.
        Muted = "is about a subject that they muted, so it is not emailed",
        /// It happened before the user's mute of its subject ended.
        WasMuted = "happened before they unmuted its subject, so it is not emailed",
        /// Its route is not the digest, or became the digest after it happened.
        NotForDigest = "is not emailed: its route is never, or they chose it later",
        /// It is pending, but the user gets no digests: see [`Explanation::unmailable`] and
        /// [`Explanation::digest`].
        NoDigest = "waits: they get no digests",
        /// An open digest delivery includes it; see the event's `delivery`.
        InDelivery = "is in an email that has not been sent yet",
        /// It waits until its user may be emailed, and expires after `digest.max_age`.
        Blocked = "waits until they can be emailed",
        /// It was not emailed within `digest.max_age`.
        Expired = "expired after digest.max_age",
        /// It will be in the next digest.
        NextDigest = "will be in the next digest",
    }
}

/// What covers an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "by")]
pub enum CoveredBy {
    /// A digest, whose marker covers the event, or the email of its batch.
    Email {
        /// The id of the delivery.
        delivery: DeliveryId,
        /// The current state of the delivery.
        state: DeliveryState,
        /// When the delivery ended; otherwise, when its last call was first made.
        at: DateTime<Utc>,
        /// Where in the email the event is.
        place: EmailPlace,
        /// Why the email excluded the event, if it did, as of now.
        excluded: Option<EventStatus>,
    },
    /// A flush: the marker has `n`, and no stored delivery has its id.
    Flush {
        /// The time in the marker's id.
        at: DateTime<Utc>,
    },
    /// An older writer: the marker lacks `n` or an id. tidings writes both.
    OlderWriter {
        /// The time in the marker's id, if it has one.
        at: Option<DateTime<Utc>>,
    },
}

/// Where in its email an event is, as of now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EmailPlace {
    /// The email shows it as an item.
    Shown,
    /// The email counts it in "+N more".
    Counted,
    /// The email excluded it.
    Excluded,
    /// It can no longer be determined.
    Unknown,
}
