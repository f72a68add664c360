//! Stores provider reports on emails, in the rows of the ledger.
//!
//! A report never changes the fields that the sender relies on (state, lease, revision), so both
//! can write to a row at the same time.

use async_trait::async_trait;
use bson::{RawDocumentBuf, doc};
use chrono::{DateTime, Utc};
use serde::Deserialize;

use super::bulk::{Verb, Write};
use super::values::date;
use super::{DELIVERIES, Mongo};
use crate::domain::delivery::PeriodCount;
use crate::domain::{Cadence, DeliveryId, DeliveryState, Feedback, ReportCounts, ReportKind};
use crate::store::record::fields::Count;
use crate::store::record::{needs, read_fields};
use crate::store::{Error, Feedbacks, Result};

/// The number of emails of one kind.
#[derive(Deserialize)]
struct Counted {
    #[serde(rename = "_id")]
    of: Kind,
    mails: Count<u64>,
    events: Option<Count<u64>>,
}

#[derive(Deserialize)]
struct Kind {
    state: DeliveryState,
    news: Option<ReportKind>,
    cadence: Option<Cadence>,
    period: Option<String>,
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
            let Counted { of, mails, .. } = read_fields("the feedback of deliveries", counted)?;
            report_counts.settled(of.state, of.news, mails.0);
        }
        Ok(report_counts)
    }

    async fn settled_since(&self, since: DateTime<Utc>) -> Result<Vec<PeriodCount>> {
        let settled = doc! {"settled": {"$gte": date(since)}, "cadence": {"$exists": true}};
        let kind = doc! {"cadence": "$cadence", "period": "$period", "state": "$state"};
        let count = doc! {"_id": kind, "mails": {"$sum": 1}, "events": {"$sum": "$items"}};
        let order = doc! {"_id.cadence": 1, "_id.period": 1, "_id.state": 1};
        let steps = vec![
            doc! {"$match": settled},
            doc! {"$group": count},
            doc! {"$sort": order},
        ];
        let doing = "counting the mails of periods";
        let counted = self.aggregate(doing, DELIVERIES, steps).await?;
        let count = |counted: &RawDocumentBuf| {
            let what = "a count of deliveries";
            let Counted { of, mails, events } = read_fields(what, counted)?;
            let corrupt = |why: String| Error::corrupt(what, why);
            Ok(PeriodCount {
                cadence: needs("cadence", of.cadence).map_err(corrupt)?,
                period: needs("period", of.period).map_err(corrupt)?,
                state: of.state,
                mails: mails.0,
                events: events.unwrap_or_default().0,
            })
        };
        counted.iter().map(count).collect()
    }
}
