//! Mails, what became of them, and why some wait.

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::domain::{
    BrandName, Delivery, DeliveryId, DeliveryState, EventType, ObjectId, ReportKind, UserId,
};

/// A mail of the ledger.
#[derive(Debug, Clone, Serialize)]
pub struct DeliveryRow {
    /// Derived from what the mail is for: `digest:mara:weekly:2014-W17`, `batch:<id>`.
    pub id: DeliveryId,
    /// Whom it is for.
    pub user: UserId,
    /// How far it has come, or how it ended.
    pub state: DeliveryState,
    /// How many events it told of.
    pub items: u32,
    /// How often it was to be handed over.
    pub attempts: u32,
    /// The call it was handed over in last.
    pub call: Option<String>,
    /// For which brand that call was made, if that is one of the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub brand: Option<BrandName>,
    /// When the row was opened, or opened again.
    pub created: DateTime<Utc>,
    /// When it was handed over first in that call.
    pub tried: Option<DateTime<Utc>>,
    /// Nobody takes it up before then.
    pub not_before: Option<DateTime<Utc>>,
    /// When it ended.
    pub settled: Option<DateTime<Utc>>,
    /// The provider's id of the mail.
    pub provider_id: Option<String>,
    /// Why it failed, was canceled, is unknown or waits.
    pub reason: Option<String>,
    /// The worst that the provider has reported of it.
    pub feedback: Option<ReportKind>,
    /// When the provider reported that.
    pub feedback_at: Option<DateTime<Utc>>,
}

impl DeliveryRow {
    /// The same with the brand of its call.
    pub(crate) fn with_brand<'a>(self, of: impl FnOnce(&str) -> Option<&'a BrandName>) -> Self {
        let brand = self.call.as_deref().and_then(of).cloned();
        Self { brand, ..self }
    }
}

impl From<Delivery> for DeliveryRow {
    fn from(row: Delivery) -> Self {
        Self {
            id: row.id,
            user: row.user,
            state: row.state,
            items: row.items,
            attempts: row.attempts,
            call: row.call,
            brand: None,
            created: row.created,
            tried: row.tried,
            not_before: row.not_before,
            settled: row.settled,
            provider_id: row.provider_id,
            reason: row.reason,
            feedback: row.feedback.map(|heard| heard.news),
            feedback_at: row.feedback.map(|heard| heard.at),
        }
    }
}

/// An email in a list.
#[derive(Debug, Serialize)]
pub(crate) struct Listed {
    #[serde(flatten)]
    pub(crate) row: DeliveryRow,
    /// The subject line, with objects as they are now; `None` if it cannot be built any more.
    pub(crate) subject: Option<String>,
}

/// All that is known of one mail.
#[derive(Debug, Serialize)]
pub struct Story {
    /// The row as it was read. In JSON its fields stand beside the others.
    #[serde(flatten)]
    pub row: DeliveryRow,
    /// The person's address, masked.
    pub to: Option<String>,
    /// Which worker has it.
    pub held_by: Option<String>,
    /// Until when, at most.
    pub held_until: Option<DateTime<Utc>>,
    /// Why it would not leave now, whatever it holds; only of mails that are not settled.
    pub barred: Option<String>,
    /// What it holds, as it was or would be, with objects as they are now.
    pub mail: Option<Preview>,
    /// Why there is nothing to show, for people to read.
    pub no_mail: Option<String>,
}

/// What became of failed deliveries that were to be tried again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Retried {
    /// So many are pending again.
    pub again: u64,
    /// Another delivery of their people is open: there is room once it has ended.
    pub busy: Vec<DeliveryId>,
    /// There is no such delivery, or it did not fail.
    pub not_failed: Vec<DeliveryId>,
}

/// Mails that are begun and not settled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// How many there are; if people are named, among the newest 10,000 of each state.
    pub mails: u64,
    /// Those with most mails first.
    pub reasons: Vec<Reason>,
}

/// Why some of them wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// What the row says, or what its state tells if it says nothing.
    pub why: String,
    /// How many wait for this reason, of those that were looked at.
    pub mails: u64,
    /// When the first of them can be taken up again, if not now.
    pub until: Option<DateTime<Utc>>,
    /// Which worker holds them until then, if one does.
    pub held_by: Option<String>,
}

impl Waiting {
    /// Whether no mail waits.
    pub fn is_empty(&self) -> bool {
        self.mails == 0
    }
}

/// What a mail holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Preview {
    /// The subject line.
    pub subject: String,
    /// The plain text part; links to stop mails lead nowhere.
    pub text: String,
    /// The HTML part; links to stop mails lead nowhere.
    pub html: String,
    /// What it shows, section by section.
    pub items: Vec<Shown>,
    /// How many more events it counts ("+N more").
    pub more: u64,
}

impl Preview {
    /// How many events it tells of, shown or counted.
    pub fn events(&self) -> u64 {
        self.items.len() as u64 + self.more
    }
}

/// One thing that a mail shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shown {
    /// The event's type; `type` in JSON.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// What the event is about.
    pub object: ObjectId,
    /// The object's title now, if it has one.
    pub title: Option<String>,
}
