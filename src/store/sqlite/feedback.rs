//! Provider reports on emails, which are in the rows of the ledger, and the ids of recently seen
//! webhook calls, one row for each key.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::Sqlite;
use super::deliveries::find;
use super::rows::{Statements as _, millis};
use crate::domain::{Delivery, DeliveryId, DeliveryState, Feedback, ReportCounts, ReportKind};
use crate::store::{Error, Feedbacks, Result};

#[async_trait]
impl Feedbacks for Sqlite {
    async fn note_feedback(&self, feedback: &[(DeliveryId, Feedback)]) -> Result<()> {
        self.change_each(feedback, |transaction, (id, report)| {
            let is_outweighed =
                |row: Delivery| row.outcome.feedback.is_none_or(|stored| report.outweighs(stored));
            if !find(transaction, id.as_str())?.is_some_and(is_outweighed) {
                return Ok(0);
            }
            let sql = "UPDATE deliveries SET feedback = ?2, feedback_at = ?3 WHERE id = ?1";
            transaction.run(sql, (id.as_str(), report.news.as_str(), millis(report.at)))
        })
        .await
        .map(drop)
    }

    async fn report_counts(&self, since: DateTime<Utc>) -> Result<ReportCounts> {
        self.read(move |transaction| {
            let sql = "SELECT state, feedback, count(*) FROM deliveries
                       WHERE settled >= ?1 GROUP BY state, feedback";
            let counts: Vec<(String, Option<String>, i64)> =
                transaction.query_all(sql, [millis(since)], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                })?;
            let mut report_counts = ReportCounts::default();
            for (state, feedback, emails) in counts {
                let corrupt = |why| Error::corrupt("the feedback of deliveries", why);
                let state: DeliveryState = state.parse().map_err(corrupt)?;
                let feedback = feedback.map(|kind| kind.parse::<ReportKind>()).transpose();
                report_counts.add(state, feedback.map_err(corrupt)?, emails.unsigned_abs());
            }
            Ok(report_counts)
        })
        .await
    }

    async fn webhook_receipts(
        &self,
        marks: &[(String, String)],
        now: DateTime<Utc>,
        until: Option<DateTime<Utc>>,
    ) -> Result<Vec<Option<String>>> {
        let Some(until) = until else {
            let sql = "SELECT mark FROM webhook_receipts WHERE key = ?1 AND until > ?2";
            return self
                .read_each(marks, move |transaction, (key, _)| {
                    transaction.query_first(sql, (key, millis(now)), |row| row.get(0))
                })
                .await;
        };
        if marks.is_empty() {
            return Ok(Vec::new());
        }
        let marks = marks.to_vec();
        self.write(move |transaction| {
            let sql = "DELETE FROM webhook_receipts WHERE until <= ?1";
            transaction.run(sql, [millis(now)])?;
            // Returns the stored mark, or the new one if there was none or it had expired.
            let sql = "INSERT INTO webhook_receipts (key, mark, until) VALUES (?1, ?2, ?3)
                       ON CONFLICT (key) DO UPDATE SET mark = mark RETURNING mark";
            let add_mark = |(key, mark): &(String, String)| {
                transaction.query_first(sql, (key, mark, millis(until)), |row| row.get(0))
            };
            marks.iter().map(add_mark).collect()
        })
        .await
    }
}
