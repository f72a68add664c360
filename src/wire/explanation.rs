//! Why somebody did or did not get something.

use std::fmt;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use serde::Serialize;

use super::batch::BatchView;
use super::delivery::DeliveryRow;
use super::suppression::SuppressionView;
use super::user::ScheduleView;
use crate::domain::user::UnreadableField;
use crate::domain::{
    BrandName, Day, DeliveryId, DeliveryState, EventType, Id, ObjectId, Position, UserId,
};

/// Everything that decides what a person gets.
#[derive(Debug, Serialize)]
pub struct Explanation {
    /// Whom it is about.
    pub user: UserId,
    /// Whether there is a record of them; without one there is neither name nor address.
    pub known: bool,
    /// What they are called.
    pub name: Option<String>,
    /// Their address, masked.
    pub email: Option<String>,
    /// Under which brand they are mailed, where that is not the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub brand: Option<BrandView>,
    /// In which locale their mails and pages are; `None` if there is no record of them.
    pub locale: Option<LocaleView>,
    /// Fields of their record that this version cannot read. Defaults are used instead.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableField>,
    /// Why no mail leaves to them, if none does.
    pub unmailable: Option<String>,
    /// What is known of their address, if it must not be written to.
    pub suppression: Option<SuppressionView>,
    /// When they unsubscribed from everything.
    pub unsubscribed: Option<DateTime<Utc>>,
    /// Types that they turned off: the route they chose is never. What is mandatory is not among
    /// them.
    pub turned_off: Vec<EventType>,
    /// When their digests fall due; `None` if there is no record of them.
    pub digest: Option<DigestView>,
    /// Newest first; of days before the window only what waits for a digest or expired.
    pub events: Vec<Fate>,
    /// Days on which their stack is full: later events of that day were not stored.
    pub full_days: Vec<Day>,
    /// What gathers for them, or is being mailed.
    pub batches: Vec<BatchView>,
    /// Their latest mails, newest first, at most ten.
    pub deliveries: Vec<DeliveryRow>,
}

/// A person's brand.
#[derive(Debug, Serialize)]
pub struct BrandView {
    /// As the record says.
    pub name: BrandName,
    /// Whether there is such a brand; while there is none, their mails wait.
    pub configured: bool,
}

/// A person's locale.
#[derive(Debug, Serialize)]
pub struct LocaleView {
    /// As the record says, if it says any.
    pub asked: Option<String>,
    /// That of the catalog which their mails and pages are in.
    pub used: String,
}

impl LocaleView {
    /// Of somebody whose record says this, and who is spoken to in that.
    pub(crate) fn of(asked: Option<&str>, used: &str) -> Self {
        let asked = asked.filter(|asked| !asked.is_empty());
        Self {
            asked: asked.map(str::to_owned),
            used: used.to_owned(),
        }
    }
}

/// `pt, for their pt-BR`; `en, as their record names no locale`.
impl fmt::Display for LocaleView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = &self.used;
        match &self.asked {
            None => write!(f, "{used}, as their record names no locale"),
            Some(asked) if asked == used => write!(f, "{used}"),
            Some(asked) => write!(f, "{used}, for their {}", asked.escape_debug()),
        }
    }
}

/// When a person's digests fall due.
#[derive(Debug, Serialize)]
pub struct DigestView {
    /// Whoever chose it. In JSON its fields stand beside the others.
    #[serde(flatten)]
    pub schedule: ScheduleView,
    /// The zone in which hour and weekday are meant.
    pub tz: Tz,
    /// When the next one is due: in the past if the next run mails it. `None` if none comes.
    pub next_due: Option<DateTime<Utc>>,
}

/// What will become, or became, of one event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fate {
    /// Where it stands on their stacks; `id` in JSON.
    #[serde(rename = "id")]
    pub position: Position,
    /// The event's type; `type` in JSON.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it is about.
    pub object: ObjectId,
    /// The object's title, or its key if it has none; `None` if there is no record of it.
    pub title: Option<String>,
    /// When it happened.
    pub at: DateTime<Utc>,
    /// What decides about it, as things stand.
    pub why: Why,
    /// Whether its type is mandatory: what the person chose does not count.
    pub mandatory: bool,
    /// Whether feeds show its type.
    pub in_feed: bool,
    /// The batch it is in, if one is known.
    pub batch: Option<InBatch>,
    /// The delivery that includes it and is not settled, or whose failure keeps it pending.
    pub delivery: Option<InDelivery>,
    /// Who dealt with it: where a marker covers it, or where its batch's mail left.
    pub covered: Option<By>,
}

/// What is known of the batch that an event is in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InBatch {
    /// The batch's id; its delivery is `batch:<id>`.
    pub id: Id,
    /// When the batch is due; or when it began to close, if that was earlier.
    pub closes_at: DateTime<Utc>,
    /// When the quiet hours end that it waits for, if it does: `closes_at` then.
    pub held_until: Option<DateTime<Utc>>,
    /// Why its mail ended as it did, if the ledger says.
    pub reason: Option<String>,
    /// When its mail was settled, if it was.
    pub settled: Option<DateTime<Utc>>,
}

/// A delivery that includes an event and has not been sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InDelivery {
    /// The delivery's id.
    pub id: DeliveryId,
    /// `pending`, `sending` or `failed`.
    pub state: DeliveryState,
    /// Why it waits or failed, such as the provider's answer.
    pub reason: String,
    /// The earliest time of the next attempt; `None` if nothing delays it.
    pub next_attempt: Option<DateTime<Utc>>,
    /// The worker that holds it, until `next_attempt` at most.
    pub held_by: Option<String>,
}

/// What decides, or decided, whether an event is mailed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// It was mailed in a batch, or on its own.
    Mailed,
    /// The same, but nobody knows whether the mail was taken.
    MayBeMailed,
    /// The mail of its batch left, and did not tell it.
    LeftOut,
    /// It is in an open batch, which is to be mailed.
    Gathering,
    /// Its batch is being mailed.
    Closing,
    /// It was taken out of its batch.
    TakenOut,
    /// Its batch was canceled, or its mail failed.
    NotMailed,
    /// It is to be mailed in a batch or on its own, and no batch that it is in is known.
    NoBatch,
    /// A marker covers it: a digest told it or left it out, somebody flushed it, or an older writer
    /// wrote the marker.
    Covered,
    /// The same event stands at an older place.
    Repeated,
    /// It was taken back.
    Retracted,
    /// Its object is withdrawn or gone.
    Withdrawn,
    /// It was seen in the feed, and digests leave out what was (`digest.skip_seen`).
    Seen,
    /// Nobody put a record of its object, and its type is not mailed without one.
    UnknownObject,
    /// The person muted what it is about.
    Muted,
    /// The same, and they unmuted it later.
    WasMuted,
    /// The person's or the type's route is not the digest, or was chosen after it happened.
    NotForDigest,
    /// It is pending, but no digest goes to this person: see the explanation's `unmailable` and
    /// `digest`.
    NoDigest,
    /// An open digest delivery includes it; see the event's `delivery`.
    InDelivery,
    /// It waits until its user may be emailed, and expires after `digest.max_age`.
    Blocked,
    /// It was not emailed within `digest.max_age`.
    Expired,
    /// It will be in the next digest.
    NextDigest,
}

impl Why {
    /// For people to read; it follows the word "it".
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Mailed => "was mailed in a batch",
            Self::MayBeMailed => "may have been mailed: see tidings deliveries",
            Self::LeftOut => "was left out of its batch's mail",
            Self::Gathering => "is in an open batch",
            Self::Closing => "is in a batch that is being mailed",
            Self::TakenOut => "was taken out of its batch",
            Self::NotMailed => "was not mailed",
            Self::NoBatch => "is for a batch, and in none that is known",
            Self::Covered => "was dealt with",
            Self::Repeated => "is told once already",
            Self::Retracted => "was taken back",
            Self::Withdrawn => "no longer applies",
            Self::Seen => "was seen in the feed, so no digest tells it",
            Self::UnknownObject => "is about an object that is not known, so it is not mailed",
            Self::Muted => "is about something that they muted, so it is not mailed",
            Self::WasMuted => "happened before they unmuted what it is about, so it is not mailed",
            Self::NotForDigest => "is not to be mailed: its route is never, or was chosen later",
            Self::NoDigest => "waits: no digest goes to them",
            Self::InDelivery => "is in an email that has not been sent yet",
            Self::Blocked => "waits until they can be emailed",
            Self::Expired => "expired after digest.max_age",
            Self::NextDigest => "will be in the next digest",
        }
    }
}

/// Who dealt with an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "by")]
pub enum By {
    /// A digest, whose marker covers the event, or the mail of its batch.
    Mail {
        /// The mail's row in the ledger.
        delivery: DeliveryId,
        /// The state of that row now.
        state: DeliveryState,
        /// When that mail was settled, or handed over.
        at: DateTime<Utc>,
        /// Where in that mail the event is.
        place: Place,
        /// Why the mail did not tell it, where it did not, as things stand.
        left_out: Option<LeftOut>,
    },
    /// Somebody who flushed: the marker has `n`, and its id is of no digest that the ledger has.
    Flush {
        /// When, as the marker's id says.
        at: DateTime<Utc>,
    },
    /// A marker that lacks `n` or an id: tidings writes both.
    OlderWriter {
        /// When, if the marker has an id to say it.
        at: Option<DateTime<Utc>>,
    },
}

/// Where in its mail an event is, as things stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Among the items that the mail shows.
    Shown,
    /// Among "+N more".
    Counted,
    /// Not told: withdrawn, of another route, or told already.
    LeftOut,
    /// It cannot be said any more.
    Unknown,
}

/// Why a mail did not tell an event that it dealt with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftOut {
    /// It was taken back before the mail was made.
    Retracted,
    /// Nobody put a record of its object, and its type is not mailed without one.
    UnknownObject,
    /// Its object is withdrawn.
    Withdrawn,
    /// They did not want its type in such a mail.
    NotWanted,
    /// They had muted what it is about.
    Muted,
    /// They had seen it in the feed, and digests leave out what was (`digest.skip_seen`).
    Seen,
    /// The same event stands at an older place.
    Repeated,
}

impl LeftOut {
    /// For people to read; a colon comes before it.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Retracted => "it was taken back",
            Self::UnknownObject => "its object is not known",
            Self::Withdrawn => "its object no longer applies",
            Self::NotWanted => "it is not of a type that they got in such mails",
            Self::Muted => "it is about something that they muted",
            Self::Seen => "it was seen in the feed",
            Self::Repeated => "it was told once already",
        }
    }
}
