//! Stores recently seen webhook ids: one document per key, `{_id, mark, until}`.
//!
//! A key that is already stored rejects the upsert, so the first mark stays. The next caller
//! deletes expired keys by the time it was given. A TTL index would use the server's clock.

use std::collections::HashMap;

use async_trait::async_trait;
use bson::doc;
use chrono::{DateTime, Utc};
use mongodb::options::FindOptions;
use serde::Deserialize;

use super::bulk::{Verb, Write};
use super::values::date;
use super::{Mongo, SIGHTINGS, document};
use crate::store::record::read_fields;
use crate::store::{Result, SeenReports};

#[derive(Deserialize)]
struct Sighting {
    #[serde(rename = "_id")]
    id: String,
    mark: String,
}

#[async_trait]
impl SeenReports for Mongo {
    async fn sight(
        &self,
        marks: &[(String, String)],
        now: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> Result<Vec<String>> {
        if marks.is_empty() {
            return Ok(Vec::new());
        }
        let doing = "noting what was seen";
        self.patiently(doing, || {
            let sightings = self.collection(SIGHTINGS);
            let over = doc! {"until": {"$lte": date(now)}};
            async move { Ok(sightings.delete_many(over).await.map(drop)?) }
        })
        .await?;
        let statement = |(key, mark): &(String, String)| Write {
            q: doc! {"_id": key, "until": {"$lte": date(now)}},
            u: doc! {"$set": {"mark": mark, "until": date(until)}},
            upsert: true,
        };
        let statements = marks.iter().map(statement);
        let kept = self.write(doing, Verb::Update, SIGHTINGS, statements);
        // Rejected keys are stored already, perhaps by an earlier attempt of this command.
        kept.await?.duplicates(doing)?;
        let keys: Vec<String> = marks.iter().map(|(key, _)| key.clone()).collect();
        let standing = self.sighted(&keys, now).await?.into_iter();
        Ok(standing
            .zip(marks)
            .map(|(standing, (_, mark))| standing.unwrap_or_else(|| mark.clone()))
            .collect())
    }

    async fn sighted(&self, keys: &[String], now: DateTime<Utc>) -> Result<Vec<Option<String>>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let filter = doc! {"_id": {"$in": keys}, "until": {"$gt": date(now)}};
        let doing = "looking for what was seen";
        let options = FindOptions::default();
        let mut found = self.find_raw(doing, SIGHTINGS, &filter, options).await?;
        found.retain(|record| document(doing, record).is_some());
        let mut marks = HashMap::with_capacity(found.len());
        for record in &found {
            let Sighting { id, mark } = read_fields("sighting", record)?;
            marks.insert(id, mark);
        }
        Ok(keys.iter().map(|key| marks.get(key).cloned()).collect())
    }
}
