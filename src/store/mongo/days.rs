//! Days as wholes: listing, dropping, exporting and restoring them.
//!
//! The rule: a day leaves and comes back exactly as it stands, whoever wrote it and whatever is in
//! it; nothing is interpreted here.

use async_trait::async_trait;
use bson::{Bson, Document, RawDocumentBuf, doc};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::bulk::Verb;
use super::patience::Failure;
use super::{Mongo, at_once};
use crate::domain::Day;
use crate::domain::day::COLLECTION_PREFIX;
use crate::store::{DayInfo, Days, Error, RawStack, Result, extjson};

/// Documents a chunk of an export.
const CHUNK: u32 = 1_000;
/// Documents that are compared at the same time.
const CHECKED: usize = 8;
/// Days that are counted at the same time.
const COUNTED: usize = 2;

#[async_trait]
impl Days for Mongo {
    async fn days(&self) -> Result<Vec<DayInfo>> {
        let filter = doc! {"name": {"$regex": format!("^{COLLECTION_PREFIX}[0-9]{{8}}$")}, "type": {"$ne": "view"}};
        let listed: Vec<_> = self
            .patiently("listing day collections", || {
                let filter = filter.clone();
                async move {
                    let listed = self.0.db.list_collections().filter(filter).await?;
                    Ok(listed.try_collect().await?)
                }
            })
            .await?;
        let mut days: Vec<Day> = listed
            .iter()
            .filter_map(|collection| Day::of_collection(&collection.name))
            .collect();
        days.sort_unstable();
        let counts = days.into_iter().map(|day| self.count(day));
        stream::iter(counts).buffered(COUNTED).try_collect().await
    }

    async fn drop_day(&self, day: Day) -> Result<()> {
        self.forget(day);
        let name = day.collection();
        self.patiently(&format!("dropping {name}"), || {
            let collection = self.collection(&name);
            async move { Ok(collection.drop().await?) }
        })
        .await
    }

    fn export_day(&self, day: Day) -> BoxStream<'_, Result<Vec<RawStack>>> {
        let batches = async move {
            let doing = format!("exporting {day}");
            let cursor = self
                .patiently(&doing, || {
                    let days = self.collection(&day.collection());
                    async move {
                        let find = days.find(doc! {}).sort(doc! {"_id": 1});
                        Ok(find.batch_size(CHUNK).batch().await?)
                    }
                })
                .await?;
            let lines = move |batch: mongodb::error::Result<_>| {
                let failed = |error| Error::database(&doing, Failure::from(error));
                let batch: mongodb::raw_batch_cursor::RawBatch = batch.map_err(failed)?;
                let documents = batch.doc_slices().map_err(failed)?;
                let line = |document: bson::error::Result<bson::RawBsonRef<'_>>| {
                    let document = document?
                        .as_document()
                        .ok_or("a batch holds documents only")?;
                    extjson::to_line(document)
                };
                let corrupt = |error| Error::corrupt(format!("a stack of {day}"), error);
                documents
                    .into_iter()
                    .map(|document| line(document).map_err(corrupt))
                    .collect()
            };
            Ok(cursor.map(lines))
        };
        stream::once(batches)
            .try_flatten()
            .try_filter(|lines: &Vec<RawStack>| std::future::ready(!lines.is_empty()))
            .boxed()
    }

    async fn restore_day(&self, day: Day, stacks: &[RawStack]) -> Result<()> {
        let doing = format!("restoring {day}");
        let unreadable = |error| Error::corrupt(format!("a line of {day}"), error);
        let mut documents: Vec<Document> = Vec::with_capacity(stacks.len());
        let mut encoded: Vec<RawDocumentBuf> = Vec::with_capacity(stacks.len());
        for line in stacks {
            let document = extjson::from_line(line).map_err(unreadable)?;
            if !document.contains_key("_id") {
                return Err(unreadable("it has no _id".into()));
            }
            let raw =
                RawDocumentBuf::try_from(&document).map_err(|error| unreadable(error.into()))?;
            documents.push(document);
            encoded.push(raw);
        }
        self.create_day(day).await?;
        let targets = vec![(day.collection(), (0..encoded.len()).collect())];
        let inserted = self.bulk(&doing, Verb::Insert, targets, |writer, item| {
            writer.fields(encoded[item].as_bytes());
        });
        let refused = inserted.await?.duplicates(&doing)?;
        let taken: Vec<usize> = refused.into_iter().map(|refused| refused.item).collect();
        let check = |item: usize| self.same(day, &documents[item], &encoded[item]);
        at_once(CHECKED, taken, check, drop).await
    }
}

impl Mongo {
    /// Counts by reading: what the server keeps as a count may be wrong after a crash.
    async fn count(&self, day: Day) -> Result<DayInfo> {
        let doing = format!("counting the stacks of {day}");
        let stacks = self.patiently(&doing, || {
            let days = self.collection(&day.collection());
            async move { Ok(days.count_documents(doc! {}).await?) }
        });
        let stacks = stacks.await?;
        Ok(DayInfo { day, stacks })
    }

    /// An error unless the document that stands in the day is the same as this one.
    async fn same(&self, day: Day, document: &Document, encoded: &RawDocumentBuf) -> Result<()> {
        let id = document.get("_id").cloned().unwrap_or(Bson::Null);
        let doing = format!("comparing with what stands in {day}");
        let standing = self.patiently(&doing, || {
            let days = self.0.db.collection::<RawDocumentBuf>(&day.collection());
            let find = doc! {"_id": {"$eq": id.clone()}};
            async move { Ok(days.find_one(find).await?) }
        });
        // Compared as lines: these tell apart all that documents can differ in.
        let line = |raw: &RawDocumentBuf| {
            let corrupt = |error| Error::corrupt(format!("a stack of {day}"), error);
            extjson::to_line(raw).map_err(corrupt)
        };
        let same = match standing.await? {
            Some(standing) => line(&standing)? == line(encoded)?,
            None => false,
        };
        if same {
            return Ok(());
        }
        let user = match &id {
            Bson::String(text) => text.clone(),
            other => other.to_string(),
        };
        let what = format!("the stack of {user} on {day}");
        Err(Error::Conflict { what })
    }
}
