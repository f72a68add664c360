//! Leases, small named texts, and change notices for feeds.
//!
//! One conditional write takes a lease, so there is no gap between check and write. Notices are
//! documents in a capped collection that every process tails, which costs the server a fraction of
//! a change stream. A notice must cost no more than a moment, so it waits for no majority, and one
//! that cannot be written is dropped.

use std::time::Duration;

use async_trait::async_trait;
use bson::oid::ObjectId as Oid;
use bson::spec::BinarySubtype;
use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use chrono::{DateTime, Utc};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use mongodb::options::{Acknowledgment, CollectionOptions, CursorType, ReadConcern, WriteConcern};
use mongodb::{ClientSession, SessionCursor};

use super::bulk::{CommandKind, Update, delete_one};
use super::grouped_updates::Change;
use super::journal::PENDING;
use super::patience::{AttemptFailure, NAMESPACE_EXISTS};
use super::{CHANGE_NOTICES, DELIVERIES, FANOUTS, LEASES, Mongo, NOTES, date, lease_document};
use crate::domain::coordination::latest_valid_expiry;
use crate::domain::{ChangeNotice, DeliveryState, Lease};
use crate::store::record::read_bson;
use crate::store::record::small::Note;
use crate::store::{ChangeNotices, Error, LeasesToEnd, NoteFilter, Notes, Result};

/// How often to search again if other workers claimed all the free records first.
const MAX_SEARCHES: usize = 5;

impl Mongo {
    async fn release_deliveries(&self, rows: Document) -> Result<()> {
        let release = doc! {"$set": {"lease": lease_document(None)}};
        self.update_matching(DELIVERIES, rows, release).await
    }

    /// Leases the records that `find` returns, and returns them undecoded, even unreadable ones.
    /// The revision of a record shows whether it was leased, even if the reply was lost.
    pub(super) async fn claim_raw<F: Future<Output = Result<Vec<Bson>>>>(
        &self,
        collection: &str,
        free: &Document,
        order: Document,
        lease: &Lease,
        find: impl Fn() -> F,
    ) -> Result<Vec<RawDocumentBuf>> {
        for _ in 0..MAX_SEARCHES {
            let ids = find().await?;
            if ids.is_empty() {
                break;
            }
            let claim = |id: &Bson, revision: Oid| {
                let change = Change {
                    when: free.clone(),
                    set: doc! {"lease": lease_document(Some(lease)), "stamp": revision},
                    ..Change::default()
                };
                (id.clone(), change)
            };
            let is_claimed = self.change_each(collection, &ids, claim).await?;
            let claimed = ids.into_iter().zip(is_claimed).filter(|(_, is_claimed)| *is_claimed);
            let claimed_ids: Vec<Bson> = claimed.map(|(id, _)| id).collect();
            if !claimed_ids.is_empty() {
                return self.find_by_id(collection, claimed_ids).sort(order).raw().await;
            }
        }
        Ok(Vec::new())
    }
}

#[async_trait]
impl Notes for Mongo {
    async fn lease(&self, name: &str, lease: &Lease, now: DateTime<Utc>) -> Result<bool> {
        let free = doc! {
            "_id": name,
            "$or": [
                {"owner": &lease.owner},
                {"until": {"$lte": date(now)}},
                {"until": {"$gt": date(latest_valid_expiry(name, now))}},
            ],
        };
        let claim = doc! {"$set": {"owner": &lease.owner, "until": date(lease.until)}};
        let update = [Update::upsert(free, claim)];
        let outcome = self.write(CommandKind::Update, LEASES, update).await?;
        // A duplicate shows that another owner has the lease.
        Ok(outcome.duplicates()?.is_empty())
    }

    async fn release(&self, which: &LeasesToEnd<'_>) -> Result<()> {
        match *which {
            LeasesToEnd::Lease { name, owner } => {
                let own = doc! {"_id": name, "owner": owner};
                self.delete_matching(LEASES, own).await.map(drop)
            }
            LeasesToEnd::Fanouts(owner) => {
                let leased = doc! {"state": PENDING, "lease.owner": owner};
                let release = doc! {"$unset": {"lease": ""}};
                self.update_matching(FANOUTS, leased, release).await
            }
            LeasesToEnd::Deliveries(owner) => {
                // The first condition makes the sparse index usable, which has open rows only.
                let earliest = date(DateTime::UNIX_EPOCH);
                let rows = doc! {"lease.until": {"$gte": earliest}, "lease.owner": owner};
                self.release_deliveries(rows).await
            }
            LeasesToEnd::Deferred(now) => {
                let rows = doc! {
                    "lease.until": {"$gt": date(now)}, "lease.owner": {"$exists": false},
                    "state": DeliveryState::Pending.as_str(),
                };
                self.release_deliveries(rows).await
            }
        }
    }

    async fn swap_note(&self, name: &str, old: Option<&str>, new: Option<&str>) -> Result<bool> {
        let current = doc! {"_id": name, "text": old};
        let outcome = match (old, new) {
            (None, None) => return Ok(false),
            (None, Some(text)) => {
                let note = doc! {"_id": name, "text": text};
                let outcome = self.write(CommandKind::Insert, NOTES, [note]).await?;
                return Ok(outcome.duplicates()?.is_empty());
            }
            (Some(_), Some(text)) => {
                let change = Update::new(current, doc! {"$set": {"text": text}});
                self.write(CommandKind::Update, NOTES, [change]).await?
            }
            (Some(_), None) => {
                self.write(CommandKind::Delete, NOTES, [delete_one(current)]).await?
            }
        };
        Ok(outcome.complete()? == 1)
    }

    async fn notes(&self, which: NoteFilter<'_>) -> Result<Vec<(String, String)>> {
        let names = match which {
            NoteFilter::Named(names) => doc! {"$in": names},
            NoteFilter::Prefix(prefix) => {
                doc! {"$gte": prefix, "$lt": format!("{prefix}{}", char::MAX)}
            }
        };
        let find = self.find(NOTES, doc! {"_id": names}).sort(doc! {"_id": 1});
        let read = |raw: &RawDocumentBuf| {
            let note: Note = read_bson::<Note>(raw)?;
            Ok((note.name, note.text))
        };
        find.raw().await?.iter().map(read).collect()
    }
}

/// The size of the collection in bytes: room for the notices of some thousand pages of fan-outs.
const COLLECTION_BYTES: u64 = 64 << 20;
/// How long the server waits for new notices before it returns none.
const MAX_AWAIT_TIME: Duration = Duration::from_secs(1);
/// How far in the past a reader starts, in seconds. Clocks differ by less than this.
const START_BEFORE_NOW: i64 = 600;
/// The time limit for writing a notice.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

impl Mongo {
    /// Prepares the collection for tailable cursors, which need it to be capped and not empty. A
    /// failure is only logged: without notices, processes see each other's changes later.
    pub(super) async fn prepare_notices(&self) {
        if let Err(error) = self.create_notices().await {
            tracing::warn!(%error, "processes cannot send each other change notices");
        }
    }

    async fn create_notices(&self) -> Result<()> {
        let listed = self.find_collections(doc! {"name": CHANGE_NOTICES}).await?;
        let options = listed.first().and_then(|listed| listed.get_document("options").ok());
        let is_capped =
            options.is_some_and(|options| options.get_bool("capped").unwrap_or_default());
        let size = COLLECTION_BYTES as i64;
        if listed.is_empty() {
            let create = doc! {"create": CHANGE_NOTICES, "capped": true, "size": size};
            drop(self.run(&self.0.db, create, &[NAMESPACE_EXISTS]).await?);
        } else if !is_capped {
            let convert = doc! {"convertToCapped": CHANGE_NOTICES, "size": size};
            drop(self.run(&self.0.db, convert, &[]).await?);
        }
        if self.find(CHANGE_NOTICES, doc! {}).limit(1).ids().await?.is_empty() {
            let first = [doc! {"k": "first", "u": binary(Vec::new())}];
            self.write(CommandKind::Insert, CHANGE_NOTICES, first).await?.complete()?;
        }
        Ok(())
    }

    /// Sends a change notice to all processes. A failure is only logged.
    pub(super) async fn notify(&self, notice: ChangeNotice) {
        let (kind, keys) = notice.to_stored();
        let one_node = WriteConcern::builder().w(Acknowledgment::Nodes(1)).build();
        let notices = self.collection(CHANGE_NOTICES);
        let document = doc! {"k": kind, "u": binary(keys)};
        let insert = notices.insert_one(document).write_concern(one_node);
        let error = match tokio::time::timeout(WRITE_TIMEOUT, insert.into_future()).await {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {WRITE_TIMEOUT:?}"),
        };
        tracing::warn!(error, "a change notice was not sent; other processes see the change later");
    }
}

#[async_trait]
impl ChangeNotices for Mongo {
    async fn change_notices(&self) -> Result<BoxStream<'static, Result<ChangeNotice>>> {
        let doing = "subscribing to change notices";
        self.prepare_notices().await;
        let latest = CollectionOptions::builder().read_concern(ReadConcern::local()).build();
        let db = &self.0.db;
        let notices = db.collection_with_options::<RawDocumentBuf>(CHANGE_NOTICES, latest);
        // An ObjectId starts with its time in seconds.
        let now = Oid::new().timestamp().timestamp_millis() / 1_000;
        let second = u32::try_from(now - START_BEFORE_NOW).unwrap_or_default();
        let start = Oid::from_parts(second, [0; 5], [0; 3]);
        let find = notices
            .find(doc! {"_id": {"$gte": start}})
            .cursor_type(CursorType::TailableAwait)
            .max_await_time(MAX_AWAIT_TIME);
        // It does not raise the cluster time, because the server's time says nothing about a
        // majority.
        let error = move |failure: AttemptFailure| Error::database(doing, failure);
        let mut session = self.session().await.map_err(error)?;
        let cursor = find.session(&mut session).await.map_err(|cause| error(cause.into()))?;
        let next = move |(mut cursor, mut session): (SessionCursor<_>, ClientSession)| async move {
            let result = cursor.stream(&mut session).next().await.transpose();
            let notice: Option<RawDocumentBuf> = result.map_err(|cause| error(cause.into()))?;
            Ok(notice.map(|notice| (read_notice(&notice), (cursor, session))))
        };
        let notices = stream::try_unfold((cursor, session), next);
        Ok(stream::once(async { Ok(ChangeNotice::All) }).chain(notices).boxed())
    }
}

fn read_notice(notice: &RawDocument) -> ChangeNotice {
    match (notice.get_str("k"), notice.get_binary("u")) {
        (Ok("first"), _) => ChangeNotice::Users(Vec::new()),
        (Ok(kind), Ok(keys)) => ChangeNotice::from_stored(kind, keys.bytes),
        _ => ChangeNotice::All,
    }
}

fn binary(bytes: Vec<u8>) -> Bson {
    Bson::Binary(bson::Binary { subtype: BinarySubtype::Generic, bytes })
}
