//! Exports records as lines and imports lines, to transfer a whole store.

use bson::{RawDocument, RawDocumentBuf, doc};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::batches::accumulator_id;
use super::bulk::Update;
use super::journal::part_count;
use super::reads::id_of;
use super::users::encode_user;
use super::{Mongo, objects};
use crate::store::record::batch::AccumulatorRecord;
use crate::store::record::delivery::DeliveryRecord;
use crate::store::record::small::InboxRecord;
use crate::store::record::values::{StoredForm, StoredId};
use crate::store::record::{Record, read_bson, write_bson};
use crate::store::record_lines::{NO_REVISION, RecordSource};
use crate::store::{AnyRecord, Error, RecordKind, RecordPage, Result};

/// The maximum size of a document to import. MongoDB's limit is 16 MiB for it and the rest of the
/// command.
const MAX_IMPORTED_BYTES: usize = (16 << 20) - (64 << 10);

impl Mongo {
    /// Streams all records of a kind, as lines.
    pub(super) fn export_records(&self, kind: RecordKind) -> BoxStream<'_, Result<RecordPage>> {
        let chunks = self.all_documents(kind.as_str().to_owned());
        let pages = chunks.map_ok(|chunk| stream::iter(split(chunk)).map(Ok::<_, Error>));
        pages.try_flatten().and_then(move |page| self.record_page(kind, page)).boxed()
    }

    /// Writes the records of these lines.
    pub(super) async fn import_lines(&self, kind: RecordKind, lines: &[String]) -> Result<()> {
        let records: Vec<AnyRecord> =
            lines.iter().map(|line| AnyRecord::from_line(kind, line)).collect::<Result<_>>()?;
        let statement = |record: &AnyRecord| {
            let document = encode_record(record)?;
            let id = match record {
                AnyRecord::Accumulator(accumulator) => Some(accumulator_id(&accumulator.id).into()),
                _ => id_of(&document),
            };
            Ok(Update::upsert(doc! {"_id": id}, document))
        };
        let statements: Vec<_> = records.iter().map(statement).collect::<Result<_>>()?;
        self.upsert(kind.as_str(), statements).await
    }

    async fn record_page(
        &self,
        kind: RecordKind,
        documents: Vec<RawDocumentBuf>,
    ) -> Result<RecordPage> {
        let mut page = RecordPage::default();
        for raw in documents {
            let record = match kind {
                RecordKind::Fanouts => self.read_fanout(&raw).await.map(AnyRecord::from),
                kind => read_record(kind, &raw),
            };
            match record {
                Ok(record) => page.push(&record)?,
                Err(error) if error.is_outage() => return Err(error),
                Err(error) => page.unreadable.push(error.to_string()),
            }
        }
        Ok(page)
    }
}

/// Splits a chunk into pages of one document each if it has a fan-out with parts, because the parts
/// may be long.
fn split(chunk: Vec<RawDocumentBuf>) -> Vec<Vec<RawDocumentBuf>> {
    if chunk.iter().any(|raw| part_count(raw).is_some()) {
        chunk.into_iter().map(|raw| vec![raw]).collect()
    } else {
        vec![chunk]
    }
}

fn read_record(kind: RecordKind, raw: &RawDocument) -> Result<AnyRecord> {
    match kind {
        RecordKind::Objects => Ok(objects::read_object(raw)?.into()),
        RecordKind::Retractions => Ok(objects::read_retraction(raw)?.into()),
        kind => AnyRecord::read_from(kind, raw),
    }
}

impl RecordSource for &RawDocument {
    fn read<R: Record>(self) -> Result<R::Value> {
        read_bson::<R>(self)
    }
}

fn encode_record(record: &AnyRecord) -> Result<RawDocumentBuf> {
    let doing = "importing records";
    match record {
        AnyRecord::User(user) => Ok(encode_user(user)?.0),
        AnyRecord::Object(object) => objects::encode_object(object),
        AnyRecord::Inbox(inbox) => {
            let mut record = InboxRecord::from_value(inbox);
            record.revision = Some(StoredId(NO_REVISION));
            write_bson(doing, &record)
        }
        AnyRecord::Retraction(retraction) => Ok(objects::encode_retraction(retraction)),
        AnyRecord::Accumulator(accumulator) => {
            write_bson(doing, &AccumulatorRecord::for_document(accumulator, NO_REVISION))
        }
        AnyRecord::Delivery(delivery) => write_bson(doing, &DeliveryRecord::for_document(delivery)),
        AnyRecord::Fanout(fanout) => {
            let document = write_bson(doing, record)?;
            if document.as_bytes().len() > MAX_IMPORTED_BYTES {
                return Err(Error::Unsupported(format!(
                    "event {} names more users than fit into one document; wait until the \
                     version that accepted it has pushed it to all of them, and export again",
                    fanout.id
                )));
            }
            Ok(document)
        }
        record => write_bson(doing, record),
    }
}
