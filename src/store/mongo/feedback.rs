//! Stores provider reports on emails, in the rows of the ledger.
//!
//! A report never changes the fields that the sender relies on (state, lease, revision), so both
//! can write to a row at the same time.

use async_trait::async_trait;
use bson::doc;
use chrono::{DateTime, Utc};
use serde::Deserialize;

use super::bulk::{Verb, Write};
use super::values::date;
use super::{DELIVERIES, Mongo};
use crate::domain::{DeliveryId, DeliveryState, Feedback, ReportCounts, ReportKind};
use crate::store::record::fields::Count;
use crate::store::record::read_fields;
use crate::store::{Feedbacks, Result};

/// The number of emails of one kind.
#[derive(Deserialize)]
struct Counted {
    #[serde(rename = "_id")]
    of: Kind,
    mails: Count<u64>,
}

#[derive(Deserialize)]
struct Kind {
    state: DeliveryState,
    news: Option<ReportKind>,
}

#[async_trait]
impl Feedbacks for Mongo {
    async fn note_feedback(&self, news: &[(DeliveryId, Feedback)]) -> Result<()> {
        let doing = "noting what became of mails";
        let statement = |(id, news): &(DeliveryId, Feedback)| {
            let better: Vec<&str> = news.news.better().map(ReportKind::as_str).collect();
            let (kind, at) = (news.news.as_str(), date(news.at));
            Write {
                q: doc! {"_id": id.as_str(), "$or": [
                    {"feedback": {"$exists": false}},
                    {"feedback.news": {"$in": better}},
                    {"feedback.news": kind, "feedback.at": {"$gt": at.clone()}},
                ]},
                u: doc! {"$set": {"feedback": {"news": kind, "at": at}}},
                upsert: false,
            }
        };
        let statements = news.iter().map(statement);
        let noted = self.write(doing, Verb::Update, DELIVERIES, statements);
        noted.await?.complete(doing).map(drop)
    }

    async fn report_counts(&self, since: DateTime<Utc>) -> Result<ReportCounts> {
        let heard = [DeliveryState::Sent, DeliveryState::Unknown].map(DeliveryState::as_str);
        let settled = doc! {"settled": {"$gte": date(since)}, "state": {"$in": heard.as_slice()}};
        let kind = doc! {"state": "$state", "news": "$feedback.news"};
        let count = doc! {"_id": kind, "mails": {"$sum": 1}};
        let steps = vec![doc! {"$match": settled}, doc! {"$group": count}];
        let doing = "counting what became of mails";
        let counted = self.aggregate(doing, DELIVERIES, steps).await?;
        let mut report_counts = ReportCounts::default();
        for counted in &counted {
            let Counted { of, mails } = read_fields("the feedback of deliveries", counted)?;
            report_counts.settled(of.state, of.news, mails.0);
        }
        Ok(report_counts)
    }
}
