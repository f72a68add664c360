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
            tracing::warn!(error, "processes cannot tell each other that feeds changed");
        }
    }

    async fn create_notices(&self) -> Result<()> {
        let listed = self.find_collections(doc! {"name": CHANGE_NOTICES}).await?;
        let options = listed
            .first()
            .and_then(|of| of.get_document("options").ok());
        let is_capped = options.is_some_and(|of| of.get_bool("capped").unwrap_or_default());
        let db = &self.0.db;
        let notices = self.collection(CHANGE_NOTICES);
        self.patiently("creating the collection of change notices", || async {
            if listed.is_empty() {
                let created = db
                    .create_collection(CHANGE_NOTICES)
                    .capped(true)
                    .size(BYTES);
                match created.await.map_err(Failure::from) {
                    Err(failure) if failure.code == Some(NAMESPACE_EXISTS) => {}
                    created => created?,
                }
            } else if !is_capped {
                let convert = doc! {"convertToCapped": CHANGE_NOTICES, "size": BYTES as i64};
                db.run_command(convert).await?;
            }
            if notices.find_one(doc! {}).await?.is_none() {
                notices
                    .insert_one(doc! {"k": "first", "u": bytes(Vec::new())})
                    .await?;
            }
            Ok(())
        })
        .await
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
            "other processes were not told that feeds changed, and notice later"
        );
    }
}

#[async_trait]
impl ChangeNotices for Mongo {
    async fn change_notices(&self) -> Result<BoxStream<'static, Result<ChangeNotice>>> {
        let doing = "listening for what changes in feeds";
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
        let [a, b, c, d] = second.to_be_bytes();
        let since = ObjectId::from_bytes([a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0]);
        let cursor = notices
            .find(doc! {"_id": {"$gte": since}})
            .cursor_type(CursorType::TailableAwait)
            .max_await_time(AWAIT);
        let failed =
            move |error: mongodb::error::Error| Error::database(doing, Failure::from(error));
        let followed = self.follow(cursor).await;
        let followed = followed.map_err(|failure| Error::database(doing, failure))?;
        let notices = followed.map(move |raw| raw.map(|raw| read(&raw)).map_err(failed));
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
