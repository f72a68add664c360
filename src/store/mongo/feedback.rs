//! Suppressed addresses, provider reports on emails, and the ids of seen webhook calls.
//!
//! The statement that suppresses an address also decides on the server whether the new suppression
//! replaces the stored one. So a race cannot let the less severe reason win. A report never changes
//! the fields that the sender relies on (state, lease, revision), so both can write to a row at the
//! same time.

use std::collections::HashMap;

use async_trait::async_trait;
use bson::{Document, doc};
use chrono::{DateTime, Utc};
use serde::Deserialize;

use super::bulk::{CommandKind, Update};
use super::{DELIVERIES, Mongo, SOFT_BOUNCES, SUPPRESSIONS, WEBHOOK_RECEIPTS, date};
use crate::domain::{
    Address, DeliveryId, DeliveryState, Feedback, ReportCounts, ReportKind, Suppression,
    SuppressionReason,
};
use crate::store::record::small::{SuppressionRecord, WebhookReceipt};
use crate::store::record::values::{Count, StoredForm};
use crate::store::record::{deserialize_document, write_bson};
use crate::store::types::more_severe;
use crate::store::{AddressState, Error, Feedbacks, Result, Suppressions};

#[async_trait]
impl Suppressions for Mongo {
    async fn add_suppressions(&self, suppressions: &[Suppression]) -> Result<()> {
        let statements: Vec<_> =
            suppressions.iter().map(suppress_statement).collect::<Result<_>>()?;
        self.upsert(SUPPRESSIONS, statements).await
    }

    async fn lift_suppression(
        &self,
        address: &Address,
        at: DateTime<Utc>,
        expired: DateTime<Utc>,
    ) -> Result<bool> {
        let states = self.address_states(std::slice::from_ref(address)).await?;
        let stored = states.into_iter().next().and_then(|state| state.suppression);
        if let Some(stored) = &stored {
            // If the address was suppressed again since that read, it stays suppressed.
            let lifted = doc! {"lifted": date(at.max(stored.at))};
            let merged = doc! {"$mergeObjects": [literal(stored)?, "$$ROOT", lifted]};
            let by_id = doc! {"_id": stored.address.folded().reveal()};
            let lift = Update::upsert(by_id, [doc! {"$replaceWith": merged}]);
            self.upsert(SUPPRESSIONS, [lift]).await?;
        }
        let (folded, spellings) = (address.folded(), address.spellings());
        let bounces: Vec<Document> = spellings.iter().map(bounces_of).collect();
        self.delete_matching(SOFT_BOUNCES, doc! {"$or": bounces}).await?;
        let others = spellings.iter().filter(|spelling| **spelling != folded);
        let other_ids: Vec<&str> = others.map(Address::reveal).collect();
        let expired_lift = doc! {
            "lifted": {"$lt": date(expired)},
            "$expr": {"$lte": ["$at", "$lifted"]},
        };
        let obsolete = doc! {"$or": [{"_id": {"$in": other_ids}}, expired_lift]};
        self.delete_matching(SUPPRESSIONS, obsolete).await?;
        Ok(stored.is_some())
    }

    async fn note_soft_bounce(
        &self,
        address: &Address,
        delivery: &DeliveryId,
        at: DateTime<Utc>,
        since: DateTime<Utc>,
    ) -> Result<u64> {
        let address = address.folded();
        let id = doc! {"_id": {"a": address.reveal(), "d": delivery.as_str()}};
        let note = Update::upsert(id, doc! {"$min": {"at": date(at)}});
        self.upsert(SOFT_BOUNCES, [note]).await?;
        let mut expired = bounces_of(&address);
        expired.insert("at", doc! {"$lt": date(since)});
        self.delete_matching(SOFT_BOUNCES, expired).await?;
        self.count_matching(SOFT_BOUNCES, bounces_of(&address), None).await
    }

    async fn address_states(&self, addresses: &[Address]) -> Result<Vec<AddressState>> {
        let spellings: Vec<Vec<Address>> = addresses.iter().map(Address::spellings).collect();
        let folded: Vec<Address> = addresses.iter().map(Address::folded).collect();
        let ids = spellings.iter().flatten().chain(&folded).map(Address::reveal);
        let records = self.find_by_id(SUPPRESSIONS, ids).records::<SuppressionRecord>().await?;
        let stored: HashMap<Address, Suppression> =
            records.into_iter().map(|record| (record.address.clone(), record)).collect();
        // The most severe one, for all spellings that earlier versions may have stored.
        let state = |(spellings, folded): (&Vec<Address>, &Address)| AddressState {
            suppression: (spellings.iter().filter_map(|spelling| stored.get(spelling)))
                .filter(|suppression| !suppression.is_lifted())
                .cloned()
                .reduce(more_severe),
            lifted_at: stored.get(folded).and_then(|suppression| suppression.lifted),
        };
        Ok(spellings.iter().zip(&folded).map(state).collect())
    }

    async fn suppressions(
        &self,
        after: Option<&Address>,
        limit: usize,
    ) -> Result<Vec<Suppression>> {
        let after = after.map(Address::to_lowercase);
        let mut filter = not_lifted();
        filter.insert("_id", doc! {"$gt": after.as_ref().map_or("", Address::reveal)});
        let find = self.find(SUPPRESSIONS, filter).sort(doc! {"_id": 1}).limit(limit);
        find.records::<SuppressionRecord>().await
    }
}

/// Returns the statement that stores a suppression if it outweighs the stored one
/// ([`Suppression::outweighs`]).
fn suppress_statement(new: &Suppression) -> Result<Update<[Document; 1]>> {
    let less_severe: Vec<&str> = SuppressionReason::ALL
        .into_iter()
        .filter(|other| *other < new.reason)
        .map(SuppressionReason::as_str)
        .collect();
    // A missing `lifted` sorts before every date.
    let is_later = doc! {"$gt": [date(new.at), "$lifted"]};
    let outweighs = doc! {"$and": [is_later, {"$or": [
        {"$eq": [{"$type": "$reason"}, "missing"]},
        {"$lte": ["$at", "$lifted"]},
        {"$in": ["$reason", less_severe]},
        {"$and": [{"$eq": ["$reason", new.reason.as_str()]}, {"$gt": ["$at", date(new.at)]}]},
    ]}]};
    let unlifted = Suppression { lifted: None, ..new.clone() };
    let record = doc! {"$mergeObjects": [literal(&unlifted)?, {"lifted": "$lifted"}]};
    let more_severe = doc! {"$cond": [outweighs, record, "$$ROOT"]};
    let by_id = doc! {"_id": new.address.folded().reveal()};
    Ok(Update::upsert(by_id, [doc! {"$replaceWith": more_severe}]))
}

/// Encodes a suppression as an expression, in which a dollar sign does not start a field path.
fn literal(suppression: &Suppression) -> Result<Document> {
    let record = SuppressionRecord::from_value(suppression);
    let document = Document::try_from(write_bson("encoding a suppression", &record)?);
    Ok(doc! {"$literal": document.map_err(|error| Error::corrupt("a suppression", error))?})
}

/// Selects the documents that suppress an address now, as [`Suppression::is_lifted`] does.
pub(super) fn not_lifted() -> Document {
    doc! {"$or": [{"lifted": {"$exists": false}}, {"$expr": {"$gt": ["$at", "$lifted"]}}]}
}

/// Selects the soft bounces of an address. Documents compare field by field, and `{}` sorts after
/// all text.
fn bounces_of(address: &Address) -> Document {
    let address = address.reveal();
    doc! {"_id": {"$gte": {"a": address, "d": ""}, "$lt": {"a": address, "d": {}}}}
}

/// The number of emails with this state and report.
#[derive(Deserialize)]
struct ReportCount {
    #[serde(rename = "_id")]
    outcome: (DeliveryState, Option<ReportKind>),
    emails: Count<u64>,
}

#[async_trait]
impl Feedbacks for Mongo {
    async fn note_feedback(&self, feedback: &[(DeliveryId, Feedback)]) -> Result<()> {
        let statement = |(id, feedback): &(DeliveryId, Feedback)| {
            let better: Vec<&str> = feedback.news.better_kinds().map(ReportKind::as_str).collect();
            let (kind, at) = (feedback.news.as_str(), date(feedback.at));
            let is_worse = doc! {"_id": id.as_str(), "$or": [
                {"feedback": {"$exists": false}},
                {"feedback.news": {"$in": better}},
                {"feedback.news": kind, "feedback.at": {"$gt": at.clone()}},
            ]};
            Update::new(is_worse, doc! {"$set": {"feedback": {"news": kind, "at": at}}})
        };
        let statements = feedback.iter().map(statement);
        self.write(CommandKind::Update, DELIVERIES, statements).await?.complete().map(drop)
    }

    async fn report_counts(&self, since: DateTime<Utc>) -> Result<ReportCounts> {
        let states = [DeliveryState::Sent, DeliveryState::Unknown].map(DeliveryState::as_str);
        let settled = doc! {"settled": {"$gte": date(since)}, "state": {"$in": states.as_slice()}};
        let count = doc! {"_id": ["$state", "$feedback.news"], "emails": {"$sum": 1}};
        let steps = vec![doc! {"$match": settled}, doc! {"$group": count}];
        let mut report_counts = ReportCounts::default();
        for group in &self.aggregate(Some(DELIVERIES), steps).await? {
            let ReportCount { outcome: (state, report), emails } =
                deserialize_document("the feedback of deliveries", group)?;
            report_counts.add(state, report, emails.0);
        }
        Ok(report_counts)
    }

    async fn webhook_receipts(
        &self,
        marks: &[(String, String)],
        now: DateTime<Utc>,
        until: Option<DateTime<Utc>>,
    ) -> Result<Vec<Option<String>>> {
        if let Some(until) = until {
            // A TTL index would use the server's clock.
            let expired = doc! {"until": {"$lte": date(now)}};
            self.delete_matching(WEBHOOK_RECEIPTS, expired).await?;
            let statement = |(key, mark): &(String, String)| {
                let set = doc! {"$set": {"mark": mark, "until": date(until)}};
                Update::upsert(doc! {"_id": key, "until": {"$lte": date(now)}}, set)
            };
            let statements = marks.iter().map(statement);
            // A stored key rejects the upsert, so the first mark stays. An earlier attempt of this
            // command may have stored it.
            self.write(CommandKind::Update, WEBHOOK_RECEIPTS, statements).await?.duplicates()?;
        }
        let mut find = self.find_by_id(WEBHOOK_RECEIPTS, marks.iter().map(|(key, _)| key));
        find.filter.insert("until", doc! {"$gt": date(now)});
        let receipts = find.records::<WebhookReceipt>().await?.into_iter();
        let stored: HashMap<String, String> =
            receipts.map(|receipt| (receipt.key, receipt.mark)).collect();
        let mark = |(key, mark): &(String, String)| {
            let new = until.map(|_| mark.clone());
            stored.get(key).cloned().or(new)
        };
        Ok(marks.iter().map(mark).collect())
    }
}
