//! Provider reports on emails, stored in the ledger rows.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use rusqlite::Transaction;

use super::Sqlite;
use super::answer::Answer;
use super::codec::millis;
use super::delivery_row::rows;
use crate::domain::{DeliveryId, DeliveryState, Feedback, ReportCounts, ReportKind};
use crate::store::{Error, Feedbacks, Result};

#[async_trait]
impl Feedbacks for Sqlite {
    async fn note_feedback(&self, feedback: &[(DeliveryId, Feedback)]) -> Result<()> {
        self.change_each("noting what became of mails", feedback, note)
            .await
            .map(drop)
    }

    async fn report_counts(&self, since: DateTime<Utc>) -> Result<ReportCounts> {
        let count = move |transaction: &Transaction<'_>| {
            let sql = "SELECT state, feedback, count(*) FROM deliveries WHERE settled >= ?1 GROUP BY state, feedback";
            let mut statement = transaction.prepare_cached(sql)?;
            let (mut rows, mut report_counts) =
                (statement.query([millis(since)])?, ReportCounts::default());
            while let Some(row) = rows.next()? {
                let (state, news, mails): (String, Option<String>, i64) =
                    (row.get(0)?, row.get(1)?, row.get(2)?);
                let corrupt = |why| Error::corrupt("the feedback of deliveries", why);
                let state: DeliveryState = state.parse().map_err(corrupt)?;
                let news = news.map(|news| news.parse::<ReportKind>().map_err(corrupt));
                report_counts.settled(state, news.transpose()?, mails.unsigned_abs());
            }
            Ok(report_counts)
        };
        self.connections
            .read("counting what became of mails", count)
            .await
    }
}

fn note(transaction: &Transaction<'_>, (id, news): &(DeliveryId, Feedback)) -> Answer<bool> {
    let stands = |standing: Feedback| !news.outweighs(standing);
    match rows(transaction, "id = ?1", [id.as_str()])?.pop() {
        Some(row) if !row.outcome.feedback.is_some_and(stands) => {}
        _ => return Ok(false),
    }
    let sql = "UPDATE deliveries SET feedback = ?2, feedback_at = ?3 WHERE id = ?1";
    let row = (id.as_str(), news.news.as_str(), millis(news.at));
    transaction.prepare_cached(sql)?.execute(row)?;
    Ok(true)
}
