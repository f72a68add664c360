//! What providers report of mails, on the ledger's rows.
//!
//! The rule: a report never touches what the sender goes by (state, lease, revision), so both can
//! write to a row at the same moment.

use async_trait::async_trait;
use bson::{Document, doc};
use chrono::{DateTime, Utc};

use super::bulk::Verb;
use super::delivery_record::feedback;
use super::journal::encode;
use super::record::{Record, date};
use super::{DELIVERIES, Mongo};
use crate::domain::delivery::PeriodCount;
use crate::domain::{DeliveryId, DeliveryState, Feedback, ReportCounts, ReportKind};
use crate::store::{Feedbacks, Result};

#[async_trait]
impl Feedbacks for Mongo {
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
