//! Change notices for feeds: documents in a capped collection that every process tails.
//!
//! A notice is written after its change is acknowledged, and must cost no more than a moment. So it
//! waits for no majority, and a notice that cannot be written is dropped. Tailing costs the server
//! a fraction of a change stream, which reads the whole oplog.

use std::time::Duration;

use async_trait::async_trait;
use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Bson, RawDocument, RawDocumentBuf, doc};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use mongodb::options::{Acknowledgment, CollectionOptions, CursorType, ReadConcern, WriteConcern};
use mongodb::{ClientSession, SessionCursor};

use super::bulk::Verb;
use super::patience::{Failure, NAMESPACE_EXISTS};
use super::{CHANGE_NOTICES, Mongo};
use crate::domain::ChangeNotice;
use crate::store::{ChangeNotices, Error, Result};

/// The size of the collection in bytes: room for the notices of some thousand pages of fan-outs.
const BYTES: u64 = 64 << 20;
/// How long the server waits for new notices before it returns none.
const AWAIT: Duration = Duration::from_secs(1);
/// How far in the past a reader starts, in seconds. Clocks differ by less than this.
const PAST: i64 = 600;
/// The time limit for writing a notice.
const MOMENT: Duration = Duration::from_secs(2);

impl Mongo {
    /// Prepares the collection for tailable cursors, which need it to be capped and not empty. A
    /// failure is only logged: without notices, processes see each other's changes later.
    pub(super) async fn prepare_notices(&self) {
        if let Err(error) = self.create_notices().await {
            let error = error.to_string();
            tracing::warn!(error, "processes cannot send each other change notices");
        }
    }

    async fn create_notices(&self) -> Result<()> {
        let listed = self.find_collections(doc! {"name": CHANGE_NOTICES}).await?;
        let options = listed
            .first()
            .and_then(|of| of.get_document("options").ok());
        let is_capped = options.is_some_and(|of| of.get_bool("capped").unwrap_or_default());
        let size = BYTES as i64;
        if listed.is_empty() {
            let create = doc! {"create": CHANGE_NOTICES, "capped": true, "size": size};
            drop(self.run(&self.0.db, create, &[NAMESPACE_EXISTS]).await?);
        } else if !is_capped {
            let convert = doc! {"convertToCapped": CHANGE_NOTICES, "size": size};
            drop(self.run(&self.0.db, convert, &[]).await?);
        }
        let first = self.find(CHANGE_NOTICES, doc! {}).limit(1);
        if first.ids().await?.is_empty() {
            let first = doc! {"k": "first", "u": bytes(Vec::new())};
            let inserted = self.write(Verb::Insert, CHANGE_NOTICES, [first]);
            inserted.await?.complete()?;
        }
        Ok(())
    }

    /// Sends a change notice to all processes. A failure is only logged.
    pub(super) async fn notify(&self, notice: ChangeNotice) {
        let (about, keys) = notice.kept();
        let one_node = WriteConcern::builder().w(Acknowledgment::Nodes(1)).build();
        let notices = self.collection(CHANGE_NOTICES);
        let insert = notices
            .insert_one(doc! {"k": about, "u": bytes(keys)})
            .write_concern(one_node);
        let error = match tokio::time::timeout(MOMENT, insert.into_future()).await {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {MOMENT:?}"),
        };
        tracing::warn!(
            error,
            "a change notice was not sent; other processes see the change later"
        );
    }
}

#[async_trait]
impl ChangeNotices for Mongo {
    async fn change_notices(&self) -> Result<BoxStream<'static, Result<ChangeNotice>>> {
        let doing = "subscribing to change notices";
        self.prepare_notices().await;
        let latest = CollectionOptions::builder()
            .read_concern(ReadConcern::local())
            .build();
        let notices = self
            .database()
            .collection_with_options::<RawDocumentBuf>(CHANGE_NOTICES, latest);
        // An ObjectId starts with its time in seconds.
        let now = ObjectId::new().timestamp().timestamp_millis() / 1_000;
        let second = u32::try_from(now - PAST).unwrap_or_default();
        let since = ObjectId::from_parts(second, [0; 5], [0; 3]);
        let cursor = notices
            .find(doc! {"_id": {"$gte": since}})
            .cursor_type(CursorType::TailableAwait)
            .max_await_time(AWAIT);
        // It does not raise the cluster time, because the server's time says nothing about a
        // majority.
        let failed = move |failure: Failure| Error::database(doing, failure);
        let mut session = self.session().await.map_err(failed)?;
        let cursor = cursor.session(&mut session).await;
        let cursor = cursor.map_err(|error| failed(error.into()))?;
        let next = move |(mut cursor, mut session): (SessionCursor<_>, ClientSession)| async move {
            let found = cursor.stream(&mut session).next().await.transpose();
            let found: Option<RawDocumentBuf> = found.map_err(|error| failed(error.into()))?;
            Ok(found.map(|found| (read(&found), (cursor, session))))
        };
        let notices = stream::try_unfold((cursor, session), next);
        Ok(stream::once(async { Ok(ChangeNotice::All) })
            .chain(notices)
            .boxed())
    }
}

fn read(notice: &RawDocument) -> ChangeNotice {
    match (notice.get_str("k"), notice.get_binary("u")) {
        (Ok("first"), _) => ChangeNotice::People(Vec::new()),
        (Ok(about), Ok(keys)) => ChangeNotice::stored(about, keys.bytes),
        _ => ChangeNotice::All,
    }
}

fn bytes(bytes: Vec<u8>) -> Bson {
    Bson::Binary(bson::Binary {
        subtype: BinarySubtype::Generic,
        bytes,
    })
}
