//! Sends many writes as few raw commands of up to a thousand statements, two in flight.
//!
//! A command with an unknown outcome is sent again as a whole, so every statement must be
//! repeatable; `resent` marks the affected results. Statements are unordered. A reply that is `ok`
//! may contain write errors or a write concern error. The server stops a slow command before the
//! client gives up; it is then sent again in halves. Start with [`Mongo::write`].

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bson::{Bson, Document, RawDocumentBuf, doc};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use mongodb::options::FindOptions;
use serde::Serialize;

use super::codec::{STATEMENTS, Writer};
use super::patience::{DUPLICATE, Failure, TOO_SLOW};
use super::{MAJORITY, Mongo, Replacement};
use crate::domain::Defect;
use crate::store::record::write_bson;
use crate::store::{Error, Result};

/// The maximum total weight of a command with several statements: see [`Mongo::bulk`].
pub(super) const WEIGHT: u64 = 2_000_000;
/// The size at which a command ends, unless a single statement is larger.
const BYTES: usize = 8 << 20;
/// The maximum size of a command, which is that of a MongoDB document.
const LIMIT: usize = 16 << 20;
/// Commands in flight: one is encoded and sent while the server executes the other.
const IN_FLIGHT: usize = 2;

/// The kind of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// Statements are `{q, u, …}`.
    Update,
    /// Statements are documents.
    Insert,
    /// Statements are `{q, limit}`.
    Delete,
}

impl Verb {
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Update => ("update", "updates"),
            Self::Insert => ("insert", "documents"),
            Self::Delete => ("delete", "deletes"),
        }
    }
}

/// An update statement.
#[derive(Serialize)]
pub(super) struct Write<U> {
    pub q: Document,
    pub u: U,
    /// Whether to create a missing document.
    pub upsert: bool,
}

/// Returns a statement that deletes one matching document.
pub(super) fn delete_one(q: Document) -> Document {
    doc! {"q": q, "limit": 1}
}

/// Encodes statements as BSON.
pub(super) fn encode(
    doing: &str,
    statements: impl IntoIterator<Item: Serialize>,
) -> Result<Vec<RawDocumentBuf>> {
    let statements = statements.into_iter();
    statements.map(|one| write_bson(doing, &one)).collect()
}

/// The combined result of all statements.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The number of documents matched, inserted or deleted by the last attempt of each command.
    pub n: u64,
    /// The number of these that an upsert created.
    pub created: usize,
    /// Whether any command was sent more than once.
    pub resent: bool,
    /// The statements that the server rejected.
    pub refused: Vec<Refused>,
}

/// A rejected statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    pub item: usize,
    /// Whether an earlier attempt at the statement may have been applied.
    pub resent: bool,
    pub failure: Failure,
}

impl Refused {
    pub(super) fn duplicate(&self) -> bool {
        self.failure.code == Some(DUPLICATE)
    }
}

impl Outcome {
    /// Reads the reply to a command. A transient failure of one statement is a failure of the whole
    /// command.
    fn read(reply: &Document, items: &[usize], resent: bool) -> std::result::Result<Self, Failure> {
        let failure = |document: &Document| {
            let code = document.get_i32("code").unwrap_or_default();
            Failure::answered(code, document.get_str("errmsg").unwrap_or_default())
        };
        let mut refused = Vec::new();
        let errors = reply.get_array("writeErrors").into_iter().flatten();
        for error in errors.filter_map(|error| error.as_document()) {
            let failure = failure(error);
            if failure.passing {
                return Err(failure);
            }
            let item = items[error.get_i32("index").unwrap_or_default() as usize];
            refused.push(Refused {
                item,
                resent,
                failure,
            });
        }
        if let Ok(error) = reply.get_document("writeConcernError") {
            return Err(failure(error));
        }
        Ok(Self {
            n: reply.get_i32("n").unwrap_or_default() as u64,
            created: reply.get_array("upserted").map_or(0, Vec::len),
            resent,
            refused,
        })
    }

    /// Returns an error if any statement was rejected.
    pub(super) fn complete(self, doing: &str) -> Result<Self> {
        match self.refused.first() {
            None => Ok(self),
            Some(refused) => Err(Error::database(doing, refused.failure.clone())),
        }
    }

    /// Returns the rejected statements if all are duplicates, and otherwise an error.
    pub(super) fn duplicates(self, doing: &str) -> Result<Vec<Refused>> {
        match self.refused.iter().find(|refused| !refused.duplicate()) {
            None => Ok(self.refused),
            Some(refused) => Err(Error::database(doing, refused.failure.clone())),
        }
    }
}

/// The beginning of the server's description of a duplicate `_id`.
const OUR_KEY: &str = "dup key: { _id:";

/// Returns the document's defect, if that caused the failure.
pub(super) fn defect(failure: &Failure) -> Option<Defect> {
    let no_list = ["non-array", "must be an array"];
    match failure.code? {
        2 if no_list.iter().any(|words| failure.why.contains(words)) => Some(Defect::NoList),
        10334 | 17419 | 17420 => Some(Defect::NoRoom),
        121 => Some(Defect::Refused),
        // Another key: an operator created a unique index.
        DUPLICATE if failure.why.contains("dup key") && !failure.why.contains(OUR_KEY) => {
            Some(Defect::Refused)
        }
        _ => None,
    }
}

impl Mongo {
    /// Sends these statements.
    pub(super) async fn write(
        &self,
        doing: &str,
        verb: Verb,
        collection: &str,
        statements: impl IntoIterator<Item: Serialize>,
    ) -> Result<Outcome> {
        let encoded = encode(doing, statements)?;
        let all = (0..encoded.len()).collect();
        self.write_some(doing, verb, collection, &encoded, all)
            .await
    }

    /// Sends some of these statements, by their index.
    pub(super) async fn write_some(
        &self,
        doing: &str,
        verb: Verb,
        collection: &str,
        encoded: &[RawDocumentBuf],
        items: Vec<usize>,
    ) -> Result<Outcome> {
        let encode = |writer: &mut Writer, item: usize| writer.fields(encoded[item].as_bytes());
        self.bulk(doing, verb, collection, items, |_| 1, encode)
            .await
    }

    /// Sends updates by `_id` that create missing documents.
    pub(super) async fn upsert(
        &self,
        doing: &str,
        collection: &str,
        statements: impl IntoIterator<Item: Serialize>,
    ) -> Result<()> {
        let (verb, encoded) = (Verb::Update, encode(doing, statements)?);
        let all = (0..encoded.len()).collect();
        let written = self.write_some(doing, verb, collection, &encoded, all);
        let refused = written.await?.duplicates(doing)?.into_iter();
        let existing: Vec<usize> = refused.map(|refused| refused.item).collect();
        // Other processes created these documents at the same moment. Now the updates match.
        let written = self.write_some(doing, verb, collection, &encoded, existing);
        written.await?.complete(doing).map(drop)
    }

    /// Replaces records whose revision is still the one that was read. Returns which are stored
    /// under their new revision, which is in this field.
    pub(super) async fn replace_each(
        &self,
        doing: &str,
        collection: &str,
        field: &str,
        records: &[Replacement],
    ) -> Result<Vec<bool>> {
        let statements = records.iter().map(|record| record.statement.clone());
        let statements: Vec<RawDocumentBuf> = statements.collect();
        let all = (0..records.len()).collect();
        let outcome = self.write_some(doing, Verb::Update, collection, &statements, all);
        let outcome = outcome.await?;
        let is_whole = outcome.n == records.len() as u64;
        if outcome.duplicates(doing)?.is_empty() && is_whole {
            return Ok(vec![true; records.len()]);
        }
        // Some records have changed since they were read, or a reply was lost.
        let ids: Vec<Bson> = records.iter().map(|record| record.id.clone()).collect();
        let (mut filter, mut options) = (doc! {"_id": {"$in": ids}}, FindOptions::default());
        if let Some(first) = records.first()
            && records.iter().all(|one| one.revision == first.revision)
        {
            // Many of the records may be those of other writers.
            filter.insert(field, first.revision.clone());
        }
        options.projection = Some(doc! {"_id": 1, field: 1});
        let stored = self.find_raw(doing, collection, &filter, options).await?;
        let value = |stored: &RawDocumentBuf, field| Bson::try_from(stored.get(field).ok()??).ok();
        let stored: HashMap<String, Option<Bson>> = stored
            .iter()
            .filter_map(|stored| Some((value(stored, "_id")?.to_string(), value(stored, field))))
            .collect();
        let is_stored = |record: &Replacement| {
            let revision = stored.get(&record.id.to_string());
            revision.is_some_and(|stored| stored.as_ref() == Some(&record.revision))
        };
        Ok(records.iter().map(is_stored).collect())
    }

    /// Sends statements. `encode` writes each one into a document that is open already. A weight is
    /// the approximate number of list entries that the server has to move or compare. It can
    /// process [`WEIGHT`] in about a second.
    pub(super) async fn bulk(
        &self,
        doing: &str,
        verb: Verb,
        collection: &str,
        items: Vec<usize>,
        weigh: impl Fn(usize) -> u64 + Send,
        encode: impl Fn(&mut Writer, usize) + Send,
    ) -> Result<Outcome> {
        let parts = items.chunks(STATEMENTS);
        let mut commands = Commands {
            verb,
            collection,
            queue: parts.map(|items| (items.to_vec(), false)).collect(),
            statements: STATEMENTS,
            limit: self.time_limit(),
            weigh,
            encode,
        };
        let mut outcome = Outcome::default();
        let mut in_flight = FuturesUnordered::new();
        loop {
            while in_flight.len() < IN_FLIGHT
                && let Some(command) = commands.next().transpose()?
            {
                in_flight.push(self.send(doing, command));
            }
            match in_flight.next().await.transpose()? {
                None => return Ok(outcome),
                Some((command, None)) => commands.halve(&command.items),
                Some((_, Some(part))) => {
                    outcome.n += part.n;
                    outcome.created += part.created;
                    outcome.resent |= part.resent;
                    outcome.refused.extend(part.refused);
                }
            }
        }
    }

    /// Sends a command. The outcome is `None` if the server stopped it at its time limit; then it
    /// may have applied some statements.
    async fn send(&self, doing: &str, command: Command) -> Result<(Command, Option<Outcome>)> {
        let mut attempts = 0;
        let outcome = self.patiently(doing, || {
            attempts += 1;
            let resent = command.resent || attempts > 1;
            let (run, items) = (
                self.0.db.run_raw_command(command.body.clone()),
                &command.items,
            );
            async move {
                let outcome = run.await.map_err(Failure::from).and_then(|reply| {
                    let outcome = Outcome::read(&reply, items, resent)?;
                    self.note_write(&reply);
                    Ok(outcome)
                });
                match outcome {
                    // A repetition would reach the server's time limit again.
                    Err(failure) if items.len() > 1 && failure.code == Some(TOO_SLOW) => Ok(None),
                    outcome => outcome.map(Some),
                }
            }
        });
        let outcome = outcome.await?;
        Ok((command, outcome))
    }

    /// Deletes all matching documents. Returns their number.
    pub(super) async fn delete_matching(
        &self,
        doing: &str,
        collection: &str,
        filter: &Document,
    ) -> Result<u64> {
        let collection = self.collection(collection);
        self.patiently(doing, || async {
            let deleted = collection.delete_many(filter.clone()).await?;
            Ok(deleted.deleted_count)
        })
        .await
    }

    /// Updates all matching documents.
    pub(super) async fn update_matching(
        &self,
        doing: &str,
        collection: &str,
        filter: &Document,
        update: &Document,
    ) -> Result<()> {
        let collection = self.collection(collection);
        self.patiently(doing, || async {
            let updated = collection.update_many(filter.clone(), update.clone());
            Ok(updated.await.map(drop)?)
        })
        .await
    }

    /// Updates one document, or creates it. Returns the number of matching documents; `None` if
    /// another document has the same key.
    pub(super) async fn update_one(
        &self,
        doing: &str,
        collection: &str,
        filter: &Document,
        update: &Document,
        upsert: bool,
    ) -> Result<Option<u64>> {
        let collection = self.collection(collection);
        self.patiently(doing, || async {
            let updated = collection.update_one(filter.clone(), update.clone());
            match updated.upsert(upsert).await.map_err(Failure::from) {
                Err(failure) if failure.code == Some(DUPLICATE) => Ok(None),
                updated => Ok(Some(updated?.matched_count)),
            }
        })
        .await
    }
}

struct Command {
    body: RawDocumentBuf,
    /// The item of each statement.
    items: Vec<usize>,
    /// Whether an earlier command may have applied some of the statements.
    resent: bool,
}

/// Encodes commands one at a time, when they are needed.
struct Commands<'a, W, F> {
    verb: Verb,
    collection: &'a str,
    /// The items that are not in commands yet, in parts, and whether they were sent before.
    queue: VecDeque<(Vec<usize>, bool)>,
    /// The maximum number of statements per command.
    statements: usize,
    /// The server's time limit for a command.
    limit: Duration,
    weigh: W,
    encode: F,
}

impl<W: Fn(usize) -> u64, F: Fn(&mut Writer, usize)> Commands<'_, W, F> {
    /// Queues items again in two halves, and makes no later command larger than a half.
    fn halve(&mut self, items: &[usize]) {
        let half = items.len().div_ceil(2);
        self.statements = self.statements.min(half).max(1);
        for items in items.chunks(half).rev() {
            self.queue.push_front((items.to_vec(), true));
        }
    }

    fn next(&mut self) -> Option<Result<Command>> {
        let (mut items, resent) = self.queue.pop_front()?;
        let (name, array) = self.verb.names();
        let mut writer = Writer::new();
        writer.text(name, self.collection);
        writer.flag("ordered", false);
        writer.long("maxTimeMS", self.limit.as_millis() as i64);
        writer.document("writeConcern");
        writer.text("w", "majority");
        writer.flag("j", true);
        writer.int("wtimeout", MAJORITY.as_millis() as i32);
        writer.close();
        writer.array(array);
        let (mut count, mut weight) = (0, 0);
        for item in items.iter().take(self.statements) {
            weight += (self.weigh)(*item);
            let before = writer.len();
            writer.document(count);
            (self.encode)(&mut writer, *item);
            writer.close();
            if (writer.len() > BYTES || weight > WEIGHT) && count > 0 {
                writer.truncate(before);
                break;
            }
            count += 1;
        }
        let left = items.split_off(count);
        if !left.is_empty() {
            self.queue.push_front((left, resent));
        }
        if writer.len() > LIMIT {
            let what = format!(
                "a document for {} is larger than MongoDB's 16 MB",
                self.collection
            );
            return Some(Err(Error::Unsupported(what)));
        }
        let body = writer.finish();
        Some(Ok(Command {
            body,
            items,
            resent,
        }))
    }
}

#[cfg(test)]
#[path = "bulk_tests.rs"]
mod tests;
