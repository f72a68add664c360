//! Lists, drops, exports and restores whole days.
//!
//! A day is exported and restored exactly as it is, including documents of other writers.
//! [`super::aside`] drops a day. [`super::behind`] merges a restored document with a stored one.

use async_trait::async_trait;
use bson::{Bson, Document, RawDocumentBuf, doc};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use mongodb::raw_batch_cursor::RawBatch;

use super::aside::{ASIDE, asides_of};
use super::bulk::{DUPLICATE, Verb};
use super::patience::Failure;
use super::scan::{Batches, REOPENED};
use super::{Mongo, at_once};
use crate::domain::Day;
use crate::domain::day::COLLECTION_PREFIX;
use crate::store::{DaySum, Days, Error, Meeting, RawStack, Result, Summing, extjson};

/// Documents per chunk of an export.
const CHUNK: u32 = 1_000;
/// The number of documents that are compared at the same time.
const CHECKED: usize = 8;
/// MongoDB 6.0 reports a duplicate with this error code if the `_id` is a number with a fraction in
/// a clustered collection.
const UNSPEAKABLE: i32 = 50810;

#[async_trait]
impl Days for Mongo {
    async fn days(&self) -> Result<Vec<Day>> {
        // Includes days whose drop was interrupted.
        let pattern = format!("^({ASIDE})?{COLLECTION_PREFIX}[0-9]{{8}}(_[0-9a-f]{{24}})?$");
        let names = self.collections(&pattern).await?;
        let day = |name: &String| {
            let name = name.strip_prefix(ASIDE).unwrap_or(name);
            Day::of_collection(name.get(..COLLECTION_PREFIX.len() + 8)?)
        };
        let mut days: Vec<Day> = names.iter().filter_map(day).collect();
        days.sort_unstable();
        days.dedup();
        Ok(days)
    }

    async fn drop_day(&self, day: Day, sum: &DaySum) -> Result<bool> {
        self.drop_if(day, sum).await
    }

    async fn fix_day(&self, day: Day) -> Result<()> {
        for aside in self.collections(&asides_of(day)).await? {
            self.put_back(day, &aside).await?;
        }
        Ok(())
    }

    fn export_day(&self, day: Day) -> BoxStream<'_, Result<Vec<RawStack>>> {
        self.lines(format!("exporting {day}"), day.collection())
    }

    async fn restore_day(&self, day: Day, stacks: &[RawStack], meeting: Meeting) -> Result<()> {
        let unreadable = |error| Error::corrupt(format!("a line of {day}"), error);
        let mut documents: Vec<RawDocumentBuf> = Vec::with_capacity(stacks.len());
        for line in stacks {
            let document = extjson::from_line(line).map_err(unreadable)?;
            documents.push(extjson::id_first(document).map_err(unreadable)?);
        }
        self.create_day(day).await?;
        let taken = self.insert_into(day, &documents).await?;
        let meet = |item: usize| self.meet(day, &documents[item], meeting);
        at_once(CHECKED, taken, meet, drop).await
    }
}

impl Mongo {
    /// Counts by reading the documents: the server's metadata may be wrong after a crash.
    pub(super) async fn count_stacks(&self, day: Day) -> Result<u64> {
        let doing = format!("counting the stacks of {day}");
        let mut names = self.collections(&asides_of(day)).await?;
        names.push(day.collection());
        let mut stacks = 0;
        for name in names {
            stacks += self.matching(&doing, &name, &doc! {}).await?;
        }
        Ok(stacks)
    }

    /// Inserts documents into a day. Returns the items whose `_id` is already stored.
    pub(super) async fn insert_into(
        &self,
        day: Day,
        documents: &[RawDocumentBuf],
    ) -> Result<Vec<usize>> {
        let doing = format!("restoring {day}");
        let targets = vec![(day.collection(), (0..documents.len()).collect())];
        let inserted = self.bulk(&doing, Verb::Insert, targets, |writer, item| {
            writer.fields(documents[item].as_bytes());
        });
        let refused = inserted.await?.refused.into_iter();
        let taken = refused.map(|refused| match refused.failure.code {
            Some(DUPLICATE | UNSPEAKABLE) => Ok(refused.item),
            _ => Err(Error::database(&doing, refused.failure)),
        });
        taken.collect()
    }

    /// Streams the documents of a collection as lines, in the order of their `_id`s.
    pub(super) fn lines(
        &self,
        doing: String,
        name: String,
    ) -> BoxStream<'_, Result<Vec<RawStack>>> {
        let reader = LineReader {
            store: self,
            doing,
            name,
            cursor: None,
            rest: Some(doc! {}),
            reopened: 0,
        };
        stream::try_unfold(reader, LineReader::next).boxed()
    }

    async fn open_lines(&self, doing: &str, name: &str, rest: Document) -> Result<Batches> {
        let open = self.patiently(doing, || {
            let (documents, rest) = (self.collection(name), rest.clone());
            async move {
                let find = documents.find(rest).sort(doc! {"_id": 1});
                self.batches_of(find.batch_size(CHUNK)).await
            }
        });
        open.await
    }

    pub(super) async fn sum_of(&self, day: Day, name: &str) -> Result<DaySum> {
        let mut summing = Summing::default();
        let mut chunks = self.lines(format!("comparing {day}"), name.to_owned());
        while let Some(chunk) = chunks.try_next().await? {
            chunk.iter().for_each(|line| summing.add(line));
        }
        Ok(summing.end())
    }
}

/// Reads a day's documents as lines. Reopens a lost cursor after the last document.
struct LineReader<'a> {
    store: &'a Mongo,
    doing: String,
    name: String,
    cursor: Option<Batches>,
    /// A filter for the documents that were not read yet; `None` if the last `_id` cannot be
    /// compared.
    rest: Option<Document>,
    /// The number of times the cursor was reopened since it last returned a document.
    reopened: u32,
}

impl LineReader<'_> {
    async fn next(mut self) -> Result<Option<(Vec<RawStack>, Self)>> {
        loop {
            let mut cursor = match self.cursor.take() {
                Some(cursor) => cursor,
                None => {
                    let rest = self.rest.clone().unwrap_or_default();
                    self.store.open_lines(&self.doing, &self.name, rest).await?
                }
            };
            let failure = match self.store.next_batch(&mut cursor).await {
                Ok(None) => return Ok(None),
                Ok(Some(batch)) => {
                    let lines = self.read(&batch)?;
                    self.cursor = Some(cursor);
                    if lines.is_empty() {
                        continue;
                    }
                    self.reopened = 0;
                    return Ok(Some((lines, self)));
                }
                Err(failure) => failure,
            };
            self.reopened += 1;
            if !failure.passing || self.rest.is_none() || self.reopened > REOPENED {
                return Err(Error::database(&self.doing, failure));
            }
        }
    }

    fn read(&mut self, batch: &RawBatch) -> Result<Vec<RawStack>> {
        let corrupt = || Error::corrupt(format!("a batch of {}", self.name), "it is no BSON");
        let documents = batch
            .doc_slices()
            .map_err(|error| Error::database(&self.doing, Failure::from(error)))?;
        let (mut lines, mut last) = (Vec::new(), None);
        for document in documents {
            let document = document.map_err(|_| corrupt())?;
            let document = document.as_document().ok_or_else(corrupt)?;
            lines.push(extjson::to_line(document));
            last = Some(document);
        }
        if let Some(last) = last {
            let id = last.get("_id").ok().flatten();
            let id = id.and_then(|id| Bson::try_from(id).ok());
            // `$gt` alone compares values of one type only.
            let behind = |id| doc! {"$expr": {"$gt": ["$_id", {"$literal": id}]}};
            self.rest = id.map(behind);
        }
        Ok(lines)
    }
}
