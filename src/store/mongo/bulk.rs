//! Sends many writes as few raw commands of up to a thousand statements, two in flight.
//!
//! A command with an unknown outcome is sent again as a whole, so every statement must be
//! repeatable; `resent` marks the affected results. Statements are unordered. A reply that is `ok`
//! may contain write errors or a write concern error. The server stops a slow command before the
//! client gives up; it is then sent again in halves. Start with [`Mongo::write`].

use std::collections::VecDeque;

use bson::raw::{RawArrayBuf, cstr};
use bson::{Bson, Document, RawDocumentBuf, doc, rawdoc};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde::Serialize;

use super::patience::{DUPLICATE, LastFailure, TOO_SLOW};
use super::{MAJORITY, Mongo};
use crate::domain::Defect;
use crate::store::record::write_bson;
use crate::store::{Error, Result};

/// The maximum number of statements per command. More are not faster.
pub(super) const STATEMENTS: usize = 1_000;
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
pub(super) enum CommandKind {
    /// Statements are `{q, u, …}`.
    Update,
    /// Statements are documents.
    Insert,
    /// Statements are `{q, limit}`.
    Delete,
}

impl CommandKind {
    fn doing(self, collection: &str) -> String {
        match self {
            Self::Update => format!("updating {collection}"),
            Self::Insert => format!("inserting into {collection}"),
            Self::Delete => format!("deleting from {collection}"),
        }
    }
}

/// An update statement.
#[derive(Serialize)]
pub(super) struct Update<U> {
    q: Document,
    u: U,
    upsert: bool,
}

impl<U> Update<U> {
    pub(super) fn new(q: Document, u: U) -> Self {
        let upsert = false;
        Self { q, u, upsert }
    }

    /// Creates a missing document.
    pub(super) fn upsert(q: Document, u: U) -> Self {
        let upsert = true;
        Self { q, u, upsert }
    }
}

/// A record that replaces the one with the revision that was read. If none was read, no record with
/// a revision may exist.
pub(super) struct Replacement<R> {
    pub id: Bson,
    pub read: Option<Bson>,
    /// The new revision.
    pub revision: Bson,
    pub record: R,
}

/// Returns a statement that deletes one matching document.
pub(super) fn delete_one(q: Document) -> Document {
    doc! {"q": q, "limit": 1}
}

/// The combined result of all statements.
#[derive(Debug, Default)]
pub(super) struct BulkOutcome {
    pub doing: String,
    /// The number of documents matched, inserted or deleted by the last attempt of each command.
    pub n: u64,
    /// The number of these that an upsert created.
    pub created: usize,
    /// Whether any command was sent more than once.
    pub resent: bool,
    /// The statements that the server rejected.
    pub refused: Vec<RejectedStatement>,
}

/// A rejected statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RejectedStatement {
    pub item: usize,
    /// Whether an earlier attempt at the statement may have been applied.
    pub resent: bool,
    pub failure: LastFailure,
}

impl RejectedStatement {
    pub(super) fn duplicate(&self) -> bool {
        self.failure.code == Some(DUPLICATE)
    }
}

impl BulkOutcome {
    /// Reads the reply to a command. A transient failure of one statement is a failure of the whole
    /// command.
    fn read(
        reply: &Document,
        items: &[usize],
        resent: bool,
    ) -> std::result::Result<Self, LastFailure> {
        let failure = |document: &Document| {
            let code = document.get_i32("code").unwrap_or_default();
            LastFailure::answered(code, document.get_str("errmsg").unwrap_or_default())
        };
        let mut refused = Vec::new();
        let errors = reply.get_array("writeErrors").into_iter().flatten();
        for error in errors.filter_map(|error| error.as_document()) {
            let failure = failure(error);
            if failure.passing {
                return Err(failure);
            }
            let item = items[error.get_i32("index").unwrap_or_default() as usize];
            refused.push(RejectedStatement { item, resent, failure });
        }
        if let Ok(error) = reply.get_document("writeConcernError") {
            return Err(failure(error));
        }
        Ok(Self {
            n: reply.get_i32("n").unwrap_or_default() as u64,
            created: reply.get_array("upserted").map_or(0, Vec::len),
            resent,
            refused,
            ..Self::default()
        })
    }

    /// Returns the rejected statements if all have this failure, and otherwise an error. It is no
    /// outage if a document is the cause: then other documents may still be written.
    pub(super) fn only(
        self,
        is_expected: impl Fn(&RejectedStatement) -> bool,
    ) -> Result<Vec<RejectedStatement>> {
        match self.refused.iter().find(|refused| !is_expected(refused)) {
            None => Ok(self.refused),
            Some(RejectedStatement { failure, .. }) if defect(failure).is_some() => {
                Err(Error::Unsupported(format!("{}: {failure}", self.doing)))
            }
            Some(refused) => Err(Error::database(self.doing, refused.failure.clone())),
        }
    }

    /// Returns the statements that defective documents rejected, and an error if any other was.
    pub(super) fn defects(self) -> Result<Vec<(usize, Defect)>> {
        let refused = self.only(|refused| defect(&refused.failure).is_some())?;
        let defect_of = |one: &RejectedStatement| Some((one.item, defect(&one.failure)?));
        Ok(refused.iter().filter_map(defect_of).collect())
    }

    /// Returns the number of affected documents, and an error if any statement was rejected.
    pub(super) fn complete(self) -> Result<u64> {
        let n = self.n;
        self.only(|_| false).map(|_| n)
    }

    /// Returns the rejected statements if all are duplicates, and otherwise an error.
    pub(super) fn duplicates(self) -> Result<Vec<RejectedStatement>> {
        self.only(RejectedStatement::duplicate)
    }
}

/// The beginning of the server's description of a duplicate `_id`.
const OUR_KEY: &str = "dup key: { _id:";

/// Returns the document's defect, if that caused the failure.
pub(super) fn defect(failure: &LastFailure) -> Option<Defect> {
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
        verb: CommandKind,
        collection: &str,
        statements: impl IntoIterator<Item: Serialize>,
    ) -> Result<BulkOutcome> {
        let encoded = self.encode(verb, collection, statements)?;
        let all = (0..encoded.len()).collect();
        let statement = |item: usize| (encoded[item].clone(), 1);
        self.bulk(verb, collection, all, statement).await
    }

    /// Encodes statements as BSON.
    pub(super) fn encode(
        &self,
        verb: CommandKind,
        collection: &str,
        statements: impl IntoIterator<Item: Serialize>,
    ) -> Result<Vec<RawDocumentBuf>> {
        let doing = verb.doing(collection);
        let statements = statements.into_iter();
        statements.map(|one| write_bson(&doing, &one)).collect()
    }

    /// Sends updates by `_id` that create missing documents.
    pub(super) async fn upsert(
        &self,
        collection: &str,
        statements: impl IntoIterator<Item: Serialize>,
    ) -> Result<()> {
        let statements = self.encode(CommandKind::Update, collection, statements)?;
        let written = self.write(CommandKind::Update, collection, &statements).await?;
        let existing = written.duplicates()?;
        // Other processes created these documents at the same moment. Now the updates match.
        let existing = existing.iter().map(|one| &statements[one.item]);
        let written = self.write(CommandKind::Update, collection, existing);
        written.await?.complete().map(drop)
    }

    /// Replaces records. Returns which are stored under their new revision, which is in this field.
    pub(super) async fn replace_each<R: Serialize>(
        &self,
        collection: &str,
        field: &str,
        records: Vec<Replacement<R>>,
    ) -> Result<Vec<bool>> {
        let statements = records.iter().map(|one| Update {
            // An attempt whose reply was lost may already have written the new revision.
            q: doc! {"_id": &one.id, field: {"$in": [one.read.clone(), &one.revision]}},
            u: &one.record,
            // A record that was deleted since it was read must not be recreated.
            upsert: one.read.is_none(),
        });
        let outcome = self.write(CommandKind::Update, collection, statements).await?;
        let is_whole = outcome.n == records.len() as u64;
        if outcome.duplicates()?.is_empty() && is_whole {
            return Ok(vec![true; records.len()]);
        }
        // Some records have changed since they were read, or a reply was lost.
        let records = records.iter().map(|record| (&record.id, &record.revision));
        self.are_stored(collection, field, records.collect()).await
    }

    /// Sends the statements of these items, which are encoded when they are needed. The weight of a
    /// statement is the approximate number of list entries that the server has to move or compare.
    /// It can process [`WEIGHT`] in about a second.
    pub(super) async fn bulk(
        &self,
        verb: CommandKind,
        collection: &str,
        items: Vec<usize>,
        statement: impl Fn(usize) -> (RawDocumentBuf, u64) + Send,
    ) -> Result<BulkOutcome> {
        let mut outcome = BulkOutcome { doing: verb.doing(collection), ..BulkOutcome::default() };
        // The items of later commands, and whether an earlier one may have applied some of them.
        let mut queue = VecDeque::from([(items, false)]);
        let mut in_flight = FuturesUnordered::new();
        let mut most = STATEMENTS;
        loop {
            while in_flight.len() < IN_FLIGHT
                && let Some((mut items, resent)) = queue.pop_front()
            {
                let statements = fill(&items, most, &statement);
                let rest = items.split_off(statements.len());
                if !rest.is_empty() {
                    queue.push_front((rest, resent));
                }
                if !items.is_empty() {
                    let body = self.command(verb, collection, &statements)?;
                    in_flight.push(self.send(outcome.doing.clone(), body, items, resent));
                }
            }
            match in_flight.next().await.transpose()? {
                None => return Ok(outcome),
                Some((items, None)) => {
                    // Later commands would be too slow as well.
                    most = most.min(items.len().div_ceil(2));
                    queue.push_front((items, true));
                }
                Some((_, Some(part))) => {
                    outcome.n += part.n;
                    outcome.created += part.created;
                    outcome.resent |= part.resent;
                    outcome.refused.extend(part.refused);
                }
            }
        }
    }

    fn command(
        &self,
        verb: CommandKind,
        collection: &str,
        statements: &[RawDocumentBuf],
    ) -> Result<RawDocumentBuf> {
        let (name, list) = match verb {
            CommandKind::Update => (cstr!("update"), cstr!("updates")),
            CommandKind::Insert => (cstr!("insert"), cstr!("documents")),
            CommandKind::Delete => (cstr!("delete"), cstr!("deletes")),
        };
        let mut command = RawDocumentBuf::new();
        command.append(name, collection);
        command.append(cstr!("ordered"), false);
        command.append(cstr!("maxTimeMS"), self.time_limit().as_millis() as i64);
        let wait = MAJORITY.as_millis() as i64;
        let majority = rawdoc! {"w": "majority", "j": true, "wtimeout": wait};
        command.append(cstr!("writeConcern"), majority);
        command.append(list, RawArrayBuf::from_iter(statements));
        if command.as_bytes().len() <= LIMIT {
            return Ok(command);
        }
        let why = format!("a document for {collection} is larger than MongoDB's 16 MB");
        Err(Error::Unsupported(why))
    }

    /// Sends a command. The outcome is `None` if the server stopped it at its time limit; then it
    /// may have applied some statements.
    async fn send(
        &self,
        doing: String,
        body: RawDocumentBuf,
        items: Vec<usize>,
        resent: bool,
    ) -> Result<(Vec<usize>, Option<BulkOutcome>)> {
        let mut attempts = 0;
        let outcome = self.patiently(&doing, || {
            attempts += 1;
            let resent = resent || attempts > 1;
            let (run, items) = (self.0.db.run_raw_command(body.clone()), &items);
            async move {
                let outcome = run.await.map_err(LastFailure::from).and_then(|reply| {
                    let outcome = BulkOutcome::read(&reply, items, resent)?;
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
        Ok((items, outcome))
    }

    /// Deletes all matching documents. Returns their number.
    pub(super) async fn delete_matching(&self, collection: &str, q: Document) -> Result<u64> {
        let delete = [doc! {"q": q, "limit": 0}];
        let deleted = self.write(CommandKind::Delete, collection, delete);
        deleted.await?.complete()
    }

    /// Updates all matching documents.
    pub(super) async fn update_matching(
        &self,
        collection: &str,
        q: Document,
        u: Document,
    ) -> Result<()> {
        let update = [doc! {"q": q, "u": u, "multi": true}];
        let updated = self.write(CommandKind::Update, collection, update);
        updated.await?.complete().map(drop)
    }
}

/// Encodes the statements of the first items, as many as fit into a command, at most `most`.
fn fill(
    items: &[usize],
    most: usize,
    statement: impl Fn(usize) -> (RawDocumentBuf, u64),
) -> Vec<RawDocumentBuf> {
    let (mut statements, mut bytes, mut total) = (Vec::new(), 0, 0);
    for item in items.iter().take(most) {
        let (statement, weight) = statement(*item);
        bytes += statement.as_bytes().len();
        total += weight;
        if (bytes > BYTES || total > WEIGHT) && !statements.is_empty() {
            break;
        }
        statements.push(statement);
    }
    statements
}

#[cfg(test)]
#[path = "bulk_tests.rs"]
mod tests;
