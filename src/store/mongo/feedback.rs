//! What providers report of mails, on the ledger's rows.
//!
//! The rule: a report never touches what the sender goes by (state, lease, stamp), so both can
//! write to a row at the same moment.

use std::collections::HashMap;

use async_trait::async_trait;
use bson::{Document, doc};
use chrono::{DateTime, Utc};
use mongodb::options::FindOptions;

use super::bulk::Verb;
use super::delivery_record::{delivery_of, feedback};
use super::journal::encode;
use super::record::{Record, date};
use super::{DELIVERIES, Mongo};
use crate::domain::delivery::PeriodCount;
use crate::domain::{Delivery, DeliveryId, DeliveryState, Feedback, ReportCounts, ReportKind, Tag};
use crate::store::{Feedbacks, Result};

#[async_trait]
impl Feedbacks for Mongo {
    async fn deliveries_by_tag(&self, tags: &[Tag]) -> Result<Vec<Option<Delivery>>> {
        let tags: Vec<&str> = tags.iter().map(Tag::as_str).collect();
        self.surely_only_rows("tag", &tags).await
    }

    async fn deliveries_by_provider_id(&self, ids: &[String]) -> Result<Vec<Option<Delivery>>> {
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        self.surely_only_rows("provider_id", &ids).await
    }

    async fn note_feedback(&self, news: &[(DeliveryId, Feedback)]) -> Result<()> {
        let doing = "noting what became of mails";
        let statement = |(id, news): &(DeliveryId, Feedback)| {
            let better: Vec<&str> = news.news.better().map(ReportKind::as_str).collect();
            doc! {
                "q": {"_id": id.as_str(), "$or": [
                    {"feedback": {"$exists": false}},
                    {"feedback.news": {"$in": better}},
                    {"feedback.news": news.news.as_str(), "feedback.at": {"$gt": date(news.at)}},
                ]},
                "u": {"$set": {"feedback": feedback(*news)}},
            }
        };
        let encoded = encode(doing, news.iter().map(statement))?;
        let all = vec![(DELIVERIES.to_owned(), (0..news.len()).collect())];
        let noted = self.bulk(doing, Verb::Update, all, |writer, item| {
            writer.fields(encoded[item].as_bytes());
        });
        noted.await?.complete(doing).map(drop)
    }

    async fn report_counts(&self, since: DateTime<Utc>) -> Result<ReportCounts> {
        let heard = [DeliveryState::Sent, DeliveryState::Unknown].map(DeliveryState::as_str);
        let counted: Vec<Document> = self
            .patiently("counting what became of mails", || {
                let deliveries = self.collection(DELIVERIES);
                let settled =
                    doc! {"settled": {"$gte": date(since)}, "state": {"$in": heard.as_slice()}};
                let kind = doc! {"state": "$state", "news": "$feedback.news"};
                let count = doc! {"_id": kind, "mails": {"$sum": 1}};
                let steps = vec![doc! {"$match": settled}, doc! {"$group": count}];
                async move { self.all_from(&deliveries, steps).await }
            })
            .await?;
        let mut report_counts = ReportCounts::default();
        for counted in &counted {
            let counted = Record::new("the feedback of deliveries", counted);
            let kind = counted.needs("_id", counted.record("_id")?)?;
            let state = kind.needs("state", kind.parsed("state")?)?;
            report_counts.settled(
                state,
                kind.parsed("news")?,
                counted.count("mails")?.unwrap_or(0),
            );
        }
        Ok(report_counts)
    }

    async fn settled_since(&self, since: DateTime<Utc>) -> Result<Vec<PeriodCount>> {
        let counted: Vec<Document> = self
            .patiently("counting the mails of periods", || {
                let deliveries = self.collection(DELIVERIES);
                let settled = doc! {"settled": {"$gte": date(since)}, "cadence": {"$exists": true}};
                let kind = doc! {"cadence": "$cadence", "period": "$period", "state": "$state"};
                let count = doc! {"_id": kind, "mails": {"$sum": 1}, "events": {"$sum": "$items"}};
                let order = doc! {"_id.cadence": 1, "_id.period": 1, "_id.state": 1};
                let steps = vec![
                    doc! {"$match": settled},
                    doc! {"$group": count},
                    doc! {"$sort": order},
                ];
                async move { self.all_from(&deliveries, steps).await }
            })
            .await?;
        let count = |counted: &Document| {
            let counted = Record::new("a count of deliveries", counted);
            let kind = counted.needs("_id", counted.record("_id")?)?;
            Ok(PeriodCount {
                cadence: kind.needs("cadence", kind.parsed("cadence")?)?,
                period: kind.needs("period", kind.text("period")?)?.to_owned(),
                state: kind.needs("state", kind.parsed("state")?)?,
                mails: counted.count("mails")?.unwrap_or(0),
                events: counted.count("events")?.unwrap_or(0),
            })
        };
        counted.iter().map(count).collect()
    }
}

impl Mongo {
    /// The same, where a report of a mail that has no row is forgotten: what is not found is looked
    /// for again once it must show.
    async fn surely_only_rows(
        &self,
        field: &str,
        values: &[&str],
    ) -> Result<Vec<Option<Delivery>>> {
        let found = self.only_rows(field, values).await?;
        if found.iter().all(Option::is_some) {
            return Ok(found);
        }
        self.caught_up().await?;
        self.only_rows(field, values).await
    }

    /// For each of these values, the row that has it in this field, if there is exactly one.
    async fn only_rows(&self, field: &str, values: &[&str]) -> Result<Vec<Option<Delivery>>> {
        if values.is_empty() {
            return Ok(Vec::new());
        }
        let filter = doc! {field: {"$in": values}};
        let doing = "finding the mails of reports";
        let found = self
            .find_all(doing, DELIVERIES, &filter, FindOptions::default())
            .await?;
        let mut rows: HashMap<&str, Vec<&Document>> = HashMap::with_capacity(found.len());
        for row in &found {
            let value = row.get_str(field).unwrap_or_default();
            rows.entry(value).or_default().push(row);
        }
        let only = |value: &&str| match rows.get(value).map(Vec::as_slice) {
            Some([only]) => delivery_of(only).map(Some),
            _ => Ok(None),
        };
        values.iter().map(only).collect()
    }
}
