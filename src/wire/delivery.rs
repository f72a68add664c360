//! Deliveries, and the reports that providers post about them.
//!
//! Addresses are masked (P8).

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::domain::{
    BrandName, Delivery, DeliveryId, DeliveryState, EventType, ObjectId, ReportKind, UserId,
};

/// A delivery row.
#[derive(Debug, Clone, Serialize)]
pub struct DeliveryRow {
    /// The id, derived from the source of the events: `digest:mara:weekly:2014-W17`, `batch:<id>`.
    pub id: DeliveryId,
    /// The recipient.
    pub user: UserId,
    /// The state.
    pub state: DeliveryState,
    /// The number of events in the email; set when it is first sent.
    #[serde(rename = "items")]
    pub event_count: u32,
    /// The number of attempts to send the email.
    pub attempts: u32,
    /// The reference of the last provider call.
    pub call: Option<String>,
    /// The brand of that call; `None` if it is the default or not configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub brand: Option<BrandName>,
    /// When the row was inserted, or reopened after a failure.
    pub created: DateTime<Utc>,
    /// When that call was first made.
    #[serde(rename = "tried")]
    pub called_at: Option<DateTime<Utc>>,
    /// The earliest time of the next attempt.
    pub not_before: Option<DateTime<Utc>>,
    /// When the delivery ended.
    pub settled: Option<DateTime<Utc>>,
    /// The provider's id of the email.
    pub provider_id: Option<String>,
    /// Why the delivery failed, was canceled, is unknown or waits.
    pub reason: Option<String>,
    /// The worst report from the provider.
    pub feedback: Option<ReportKind>,
    /// When the reported event happened, according to the provider.
    pub feedback_at: Option<DateTime<Utc>>,
}

impl From<Delivery> for DeliveryRow {
    fn from(row: Delivery) -> Self {
        Self {
            id: row.id,
            user: row.user,
            state: row.state,
            event_count: row.outcome.items,
            attempts: row.attempts.made,
            call: row.attempts.call,
            brand: None,
            created: row.created,
            called_at: row.attempts.called_at,
            not_before: row.attempts.not_before,
            settled: row.outcome.settled,
            provider_id: row.outcome.provider_id,
            reason: row.outcome.reason,
            feedback: row.outcome.feedback.map(|report| report.news),
            feedback_at: row.outcome.feedback.map(|report| report.at),
        }
    }
}

/// A delivery in a list.
#[derive(Debug, Serialize)]
pub(crate) struct ListedDelivery {
    #[serde(flatten)]
    pub(crate) row: DeliveryRow,
    /// The subject line, with current object data; `None` if the email can no longer be built.
    pub(crate) subject: Option<String>,
}

/// Everything known about one delivery.
#[derive(Debug, Serialize)]
pub struct DeliveryStory {
    /// The row; flattened in JSON.
    #[serde(flatten)]
    pub row: DeliveryRow,
    /// The user's current address, masked.
    pub to: Option<String>,
    /// The worker that has leased the delivery.
    #[serde(rename = "held_by")]
    pub leased_by: Option<String>,
    /// When the lease expires.
    #[serde(rename = "held_until")]
    pub leased_until: Option<DateTime<Utc>>,
    /// Why the user may not get this email now; `None` if they may, or if the delivery is settled.
    #[serde(rename = "barred")]
    pub send_obstacle: Option<String>,
    /// The contents, as they were or would be sent, with current object data.
    pub email: Option<EmailPreview>,
    /// Why the contents cannot be shown, for humans.
    pub no_email: Option<String>,
}

/// The outcome of retrying failed deliveries.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Retried {
    /// The number of deliveries that are pending again.
    #[serde(rename = "again")]
    pub reopened: u64,
    /// Deliveries that cannot be retried until another delivery of the same user has ended.
    pub busy: Vec<DeliveryId>,
    /// Deliveries that do not exist or have not failed.
    pub not_failed: Vec<DeliveryId>,
}

/// The unsettled deliveries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct WaitingEmails {
    /// The number of deliveries. For selected users, only the newest 10,000 of each state count.
    pub emails: u64,
    /// The reasons, those with the most deliveries first.
    pub reasons: Vec<WaitReason>,
}

/// A reason why deliveries wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WaitReason {
    /// The reason in the row, or else the state in words.
    pub why: String,
    /// The number of deliveries with this reason, among the newest 10,000 of each state.
    pub emails: u64,
    /// When the first of them can be claimed; `None` if one can be claimed now.
    pub until: Option<DateTime<Utc>>,
    /// The worker that has leased them until then, if one has.
    #[serde(rename = "held_by")]
    pub leased_by: Option<String>,
}

impl WaitingEmails {
    /// Returns whether no delivery waits.
    pub fn is_empty(&self) -> bool {
        self.emails == 0
    }
}

/// The contents of an email.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EmailPreview {
    /// The subject line.
    pub subject: String,
    /// The plain text part. Its unsubscribe links have no effect.
    pub text: String,
    /// The HTML part. Its unsubscribe links have no effect.
    pub html: String,
    /// The items that the email shows, section by section.
    pub items: Vec<ShownItem>,
    /// The number of further events, which the email only counts ("+N more").
    pub more: u64,
}

impl EmailPreview {
    /// Returns the number of events, shown or counted.
    pub fn events(&self) -> u64 {
        self.items.len() as u64 + self.more
    }
}

/// An item that an email shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShownItem {
    /// The event's type; `type` in JSON.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// The id of the object.
    pub object: ObjectId,
    /// The object's current title, if it has one.
    pub title: Option<String>,
}

/// The outcomes of the reports in one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ReportOutcomes {
    /// Reports that were recorded on their delivery.
    #[serde(rename = "taken")]
    pub recorded: u64,
    /// Reports that were received before.
    pub duplicates: u64,
    /// Reports about emails that have no delivery here, such as another application's.
    pub not_ours: u64,
    /// Reports of kinds that have no meaning here, such as opened emails.
    pub ignored: u64,
    /// Reports that do not have the documented form. The others were processed.
    pub unreadable: u64,
    /// Addresses that the reports suppress.
    pub suppressed: u64,
    /// Reports that would suppress an address that is no longer the user's.
    #[serde(rename = "moved")]
    pub outdated_address: u64,
}
