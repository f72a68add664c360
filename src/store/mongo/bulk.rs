//! Sends many writes as few raw commands of up to a thousand statements, two in flight.
//!
//! A command with an unknown outcome is sent again as a whole, so every statement must be
//! repeatable; `is_resent` marks the affected results. Statements are unordered. A reply that is
//! `ok` may contain write errors or a write concern error. The server stops a slow command before
//! the client gives up; it is then sent again in halves. Start with [`Mongo::write`].

use std::collections::VecDeque;

use bson::raw::{RawArrayBuf, cstr};
use bson::{Bson, Document, RawDocumentBuf, doc, rawdoc};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde::Serialize;

use super::patience::{AttemptFailure, DUPLICATE, TOO_SLOW};
use super::{MAJORITY_TIMEOUT, Mongo};
use crate::domain::Defect;
use crate::store::record::write_bson;
use crate::store::{Error, Result};

/// The maximum number of statements per command. More are not faster.
pub(super) const MAX_STATEMENTS: usize = 1_000;
/// The maximum total weight of a command with several statements: see [`Mongo::send_all`].
pub(super) const MAX_WEIGHT: u64 = 2_000_000;
/// The size in bytes at which a command ends, unless a single statement is larger.
const END_BYTES: usize = 8 << 20;
/// The maximum size of a command, which is that of a MongoDB document.
const MAX_BYTES: usize = 16 << 20;
/// One command is encoded and sent while the server executes the other.
const MAX_COMMANDS_IN_FLIGHT: usize = 2;

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
        Self { q, u, upsert: false }
    }

    /// Creates a missing document.
    pub(super) fn upsert(q: Document, u: U) -> Self {
        Self { q, u, upsert: true }
    }
}

/// A record that replaces the one with the old revision. Without one, no record with a revision may
/// exist.
pub(super) struct Replacement<R> {
    pub id: Bson,
    pub old_revision: Option<Bson>,
    pub new_revision: Bson,
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
    pub is_resent: bool,
    pub rejected: Vec<RejectedStatement>,
}

/// A rejected statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RejectedStatement {
    /// The index of the statement.
    pub item: usize,
    /// Whether an earlier attempt at the statement may have been applied.
    pub is_resent: bool,
    pub failure: AttemptFailure,
}

impl RejectedStatement {
    pub(super) fn is_duplicate(&self) -> bool {
        self.failure.code == Some(DUPLICATE)
    }
}

impl BulkOutcome {
    /// Reads the reply to a command. A transient failure of one statement is a failure of the whole
    /// command.
    fn read(
        reply: &Document,
        items: &[usize],
        is_resent: bool,
    ) -> std::result::Result<Self, AttemptFailure> {
        let failure = |document: &Document| {
            let code = document.get_i32("code").unwrap_or_default();
            AttemptFailure::from_code(code, document.get_str("errmsg").unwrap_or_default())
        };
        let mut rejected = Vec::new();
        let errors = reply.get_array("writeErrors").into_iter().flatten();
        for error in errors.filter_map(|error| error.as_document()) {
            let failure = failure(error);
            if failure.is_transient {
                return Err(failure);
            }
            let item = items[error.get_i32("index").unwrap_or_default() as usize];
            rejected.push(RejectedStatement { item, is_resent, failure });
        }
        if let Ok(error) = reply.get_document("writeConcernError") {
            return Err(failure(error));
        }
        Ok(Self {
            n: reply.get_i32("n").unwrap_or_default() as u64,
            created: reply.get_array("upserted").map_or(0, Vec::len),
            is_resent,
            rejected,
            ..Self::default()
        })
    }

    /// Returns the rejected statements if all have this failure, and otherwise an error. It is no
    /// outage if a document is the cause: then other documents may still be written.
    pub(super) fn rejected_if(
        self,
        is_expected: impl Fn(&RejectedStatement) -> bool,
    ) -> Result<Vec<RejectedStatement>> {
        match self.rejected.iter().find(|rejected| !is_expected(rejected)) {
            None => Ok(self.rejected),
            Some(RejectedStatement { failure, .. }) if defect(failure).is_some() => {
                Err(Error::Unsupported(format!("{}: {failure}", self.doing)))
            }
            Some(rejected) => Err(Error::database(self.doing, rejected.failure.clone())),
        }
    }

    /// Returns the statements that defective documents rejected, and an error if any other was.
    pub(super) fn defects(self) -> Result<Vec<(usize, Defect)>> {
        let rejected = self.rejected_if(|rejected| defect(&rejected.failure).is_some())?;
        let defect_of = |one: &RejectedStatement| Some((one.item, defect(&one.failure)?));
        Ok(rejected.iter().filter_map(defect_of).collect())
    }

    /// Returns the number of affected documents, and an error if any statement was rejected.
    pub(super) fn complete(self) -> Result<u64> {
        let n = self.n;
        self.rejected_if(|_| false).map(|_| n)
    }

    /// Returns the rejected statements if all are duplicates, and otherwise an error.
    pub(super) fn duplicates(self) -> Result<Vec<RejectedStatement>> {
        self.rejected_if(RejectedStatement::is_duplicate)
    }
}

/// The beginning of the server's description of a duplicate `_id`.
const DUPLICATE_ID: &str = "dup key: { _id:";

/// Returns the document's defect, if that caused the failure.
pub(super) fn defect(failure: &AttemptFailure) -> Option<Defect> {
    let no_list = ["non-array", "must be an array"];
    match failure.code? {
        2 if no_list.iter().any(|words| failure.why.contains(words)) => Some(Defect::NoList),
        10334 | 17419 | 17420 => Some(Defect::NoRoom),
        121 => Some(Defect::Refused),
        // Another key: an operator created a unique index.
        DUPLICATE if failure.why.contains("dup key") && !failure.why.contains(DUPLICATE_ID) => {
            Some(Defect::Refused)
        }
        _ => None,
    }
}

impl Mongo {
    /// Sends these statements.
    pub(super) async fn write(
        &self,
        kind: CommandKind,
        collection: &str,
        statements: impl IntoIterator<Item: Serialize>,
    ) -> Result<BulkOutcome> {
        let encoded = self.encode(kind, collection, statements)?;
        let items = (0..encoded.len()).collect();
        self.send_all(kind, collection, items, |item| (encoded[item].clone(), 1)).await
    }

    /// Encodes statements as BSON.
    pub(super) fn encode(
        &self,
        kind: CommandKind,
        collection: &str,
        statements: impl IntoIterator<Item: Serialize>,
    ) -> Result<Vec<RawDocumentBuf>> {
        let doing = kind.doing(collection);
        statements.into_iter().map(|statement| write_bson(&doing, &statement)).collect()
    }

    /// Sends updates by `_id` that create missing documents.
    pub(super) async fn upsert(
        &self,
        collection: &str,
        statements: impl IntoIterator<Item: Serialize>,
    ) -> Result<()> {
        let statements = self.encode(CommandKind::Update, collection, statements)?;
        let outcome = self.write(CommandKind::Update, collection, &statements).await?;
        let duplicates = outcome.duplicates()?;
        // Other processes created these documents at the same moment. Now the updates match.
        let repeated = duplicates.iter().map(|duplicate| &statements[duplicate.item]);
        self.write(CommandKind::Update, collection, repeated).await?.complete().map(drop)
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
            q: doc! {
                "_id": &one.id, field: {"$in": [one.old_revision.clone(), &one.new_revision]},
            },
            u: &one.record,
            // A record that was deleted since it was read must not be recreated.
            upsert: one.old_revision.is_none(),
        });
        let outcome = self.write(CommandKind::Update, collection, statements).await?;
        let is_complete = outcome.n == records.len() as u64;
        if outcome.duplicates()?.is_empty() && is_complete {
            return Ok(vec![true; records.len()]);
        }
        // Some records have changed since they were read, or a reply was lost.
        let revisions = records.iter().map(|record| (&record.id, &record.new_revision)).collect();
        self.are_stored(collection, field, revisions).await
    }

    /// Sends the statements of these items, which are encoded when they are needed. The weight of a
    /// statement is the approximate number of list entries that the server has to move or compare.
    /// It can process [`MAX_WEIGHT`] in about a second.
    pub(super) async fn send_all(
        &self,
        kind: CommandKind,
        collection: &str,
        items: Vec<usize>,
        statement: impl Fn(usize) -> (RawDocumentBuf, u64) + Send,
    ) -> Result<BulkOutcome> {
        let mut outcome = BulkOutcome { doing: kind.doing(collection), ..BulkOutcome::default() };
        // The items of later commands, and whether an earlier one may have applied some of them.
        let mut queue = VecDeque::from([(items, false)]);
        let mut in_flight = FuturesUnordered::new();
        let mut max_statements = MAX_STATEMENTS;
        loop {
            while in_flight.len() < MAX_COMMANDS_IN_FLIGHT
                && let Some((mut items, is_resent)) = queue.pop_front()
            {
                let statements = encode_fitting(&items, max_statements, &statement);
                let rest = items.split_off(statements.len());
                if !rest.is_empty() {
                    queue.push_front((rest, is_resent));
                }
                if !items.is_empty() {
                    let body = self.command(kind, collection, &statements)?;
                    in_flight.push(self.send(outcome.doing.clone(), body, items, is_resent));
                }
            }
            match in_flight.next().await.transpose()? {
                None => return Ok(outcome),
                Some((items, None)) => {
                    // Later commands would be too slow as well.
                    max_statements = max_statements.min(items.len().div_ceil(2));
                    queue.push_front((items, true));
                }
                Some((_, Some(partial))) => {
                    outcome.n += partial.n;
                    outcome.created += partial.created;
                    outcome.is_resent |= partial.is_resent;
                    outcome.rejected.extend(partial.rejected);
                }
            }
        }
    }

    fn command(
        &self,
        kind: CommandKind,
        collection: &str,
        statements: &[RawDocumentBuf],
    ) -> Result<RawDocumentBuf> {
        let (name, list) = match kind {
            CommandKind::Update => (cstr!("update"), cstr!("updates")),
            CommandKind::Insert => (cstr!("insert"), cstr!("documents")),
            CommandKind::Delete => (cstr!("delete"), cstr!("deletes")),
        };
        let mut command = RawDocumentBuf::new();
        command.append(name, collection);
        command.append(cstr!("ordered"), false);
        command.append(cstr!("maxTimeMS"), self.time_limit().as_millis() as i64);
        let timeout = MAJORITY_TIMEOUT.as_millis() as i64;
        let majority = rawdoc! {"w": "majority", "j": true, "wtimeout": timeout};
        command.append(cstr!("writeConcern"), majority);
        command.append(list, RawArrayBuf::from_iter(statements));
        if command.as_bytes().len() <= MAX_BYTES {
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
        is_resent: bool,
    ) -> Result<(Vec<usize>, Option<BulkOutcome>)> {
        let mut attempts = 0;
        let outcome = self.retry(&doing, || {
            attempts += 1;
            let is_resent = is_resent || attempts > 1;
            let (command, items) = (self.0.db.run_raw_command(body.clone()), &items);
            async move {
                let outcome = command.await.map_err(AttemptFailure::from).and_then(|reply| {
                    let outcome = BulkOutcome::read(&reply, items, is_resent)?;
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
        self.write(CommandKind::Delete, collection, [doc! {"q": q, "limit": 0}]).await?.complete()
    }

    /// Updates all matching documents.
    pub(super) async fn update_matching(
        &self,
        collection: &str,
        q: Document,
        u: Document,
    ) -> Result<()> {
        let update = [doc! {"q": q, "u": u, "multi": true}];
        self.write(CommandKind::Update, collection, update).await?.complete().map(drop)
    }
}

/// Encodes the statements of the first items, as many as fit into a command, at most `limit`.
fn encode_fitting(
    items: &[usize],
    limit: usize,
    statement: impl Fn(usize) -> (RawDocumentBuf, u64),
) -> Vec<RawDocumentBuf> {
    let (mut statements, mut total_bytes, mut total_weight) = (Vec::new(), 0, 0);
    for item in items.iter().take(limit) {
        let (statement, weight) = statement(*item);
        total_bytes += statement.as_bytes().len();
        total_weight += weight;
        if (total_bytes > END_BYTES || total_weight > MAX_WEIGHT) && !statements.is_empty() {
            break;
        }
        statements.push(statement);
    }
    statements
}

#[cfg(test)]
#[path = "bulk_tests.rs"]
mod tests;
