//! Change notices for feeds: documents in a capped collection that every process tails.
//!
//! A notice is written after its change is acknowledged, and must cost no more than a moment. So it
//! waits for no majority, and a notice that cannot be written is dropped. Tailing costs the server
//! a fraction of a change stream, which reads the whole oplog.

use std::time::Duration;

use async_trait::async_trait;
use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use mongodb::options::{Acknowledgment, CollectionOptions, CursorType, ReadConcern, WriteConcern};

use super::patience::Failure;
use super::{Mongo, POKES};
use crate::domain::ChangeNotice;
use crate::store::{Error, Pokes, Result};

/// The size of the collection in bytes: room for the notices of some thousand pages of fan-outs.
const BYTES: u64 = 64 << 20;
/// Server error code: the collection already exists.
const NAMESPACE_EXISTS: i32 = 48;
/// How long the server waits for new notices before it returns none.
const AWAIT: Duration = Duration::from_secs(1);
/// How far in the past a reader starts, in seconds. Clocks differ by less than this.
const PAST: i64 = 600;
/// The time limit for writing a notice.
const MOMENT: Duration = Duration::from_secs(2);

impl Mongo {
    /// Prepares the collection for tailable cursors, which need it to be capped and not empty. A
    /// failure is only logged: without notices, processes see each other's changes later.
    pub(super) async fn prepare_pokes(&self) {
        let ready = self.patiently("creating the collection of pokes", || {
            let db = self.database().clone();
            async move {
                let listed = self.listed(doc! {"name": POKES}).await?;
                let options = listed
                    .first()
                    .and_then(|of| of.get_document("options").ok());
                let capped = options.map(|options| options.get_bool("capped").unwrap_or_default());
                if listed.is_empty() {
                    let created = db.create_collection(POKES).capped(true).size(BYTES).await;
                    match created.map_err(Failure::from) {
                        Err(failure) if failure.code == Some(NAMESPACE_EXISTS) => {}
                        created => created?,
                    }
                } else if capped != Some(true) {
                    let made = doc! {"convertToCapped": POKES, "size": BYTES as i64};
                    db.run_command(made).await?;
                }
                let pokes = db.collection::<Document>(POKES);
                if pokes.find_one(doc! {}).await?.is_none() {
                    let first = doc! {"k": "first", "u": bytes(Vec::new())};
                    pokes.insert_one(first).await?;
                }
                Ok(())
            }
        });
        if let Err(error) = ready.await {
            let error = error.to_string();
            tracing::warn!(error, "processes cannot tell each other that feeds changed");
        }
    }

    /// Sends a change notice to all processes. A failure is only logged.
    pub(super) async fn poke(&self, poke: ChangeNotice) {
        let (about, keys) = poke.kept();
        let at_once = WriteConcern::builder().w(Acknowledgment::Nodes(1)).build();
        let pokes = self.collection(POKES);
        let insert = pokes
            .insert_one(doc! {"k": about, "u": bytes(keys)})
            .write_concern(at_once);
        let told = tokio::time::timeout(MOMENT, insert.into_future()).await;
        let error = match told {
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
impl Pokes for Mongo {
    async fn pokes(&self) -> Result<BoxStream<'static, Result<ChangeNotice>>> {
        let doing = "listening for what changes in feeds";
        self.prepare_pokes().await;
        let latest = CollectionOptions::builder()
            .read_concern(ReadConcern::local())
            .build();
        let pokes = self
            .database()
            .collection_with_options::<RawDocumentBuf>(POKES, latest);
        // An ObjectId starts with its time in seconds.
        let now = ObjectId::new().timestamp().timestamp_millis() / 1_000;
        let second = u32::try_from(now - PAST).unwrap_or_default();
        let [a, b, c, d] = second.to_be_bytes();
        let since = ObjectId::from_bytes([a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0]);
        let cursor = pokes
            .find(doc! {"_id": {"$gte": since}})
            .cursor_type(CursorType::TailableAwait)
            .max_await_time(AWAIT);
        let failed =
            move |error: mongodb::error::Error| Error::database(doing, Failure::from(error));
        let followed = self.followed(cursor).await;
        let followed = followed.map_err(|failure| Error::database(doing, failure))?;
        let told = followed.map(move |poke| poke.map(|poke| read(&poke)).map_err(failed));
        Ok(stream::once(async { Ok(ChangeNotice::All) })
            .chain(told)
            .boxed())
    }
}

fn read(poke: &RawDocument) -> ChangeNotice {
    match (poke.get_str("k"), poke.get_binary("u")) {
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
