//! Exports collections as lines and imports lines, for a whole store.

use bson::{RawDocument, RawDocumentBuf, doc};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::batches::accumulator_id;
use super::bulk::Update;
use super::journal::parts_of;
use super::reads::id_of;
use super::users::revised;
use super::{Mongo, objects};
use crate::store::record::batch::AccumulatorRecord;
use crate::store::record::delivery::DeliveryRecord;
use crate::store::record::small::InboxRecord;
use crate::store::record::values::{As, Oid};
use crate::store::record::{Record, read_bson, write_bson};
use crate::store::transfer::{NO_REVISION, RecordSource};
use crate::store::{AnyRecord, Error, Kind, Page, Result};

/// The largest document to import. MongoDB's limit is 16 MiB for it and the rest of the command.
const LARGEST: usize = (16 << 20) - (64 << 10);

impl Mongo {
    /// Exports the records of a kind.
    pub(super) fn export_records(&self, kind: Kind) -> BoxStream<'_, Result<Page>> {
        let batches = self.all_of(kind.as_str().to_owned());
        let pages = batches.map_ok(|batch| stream::iter(split(batch)).map(Ok::<_, Error>));
        pages
            .try_flatten()
            .and_then(move |batch| self.page_of(kind, batch))
            .boxed()
    }

    /// Imports records of a kind.
    pub(super) async fn put_records(&self, kind: Kind, lines: &[String]) -> Result<()> {
        let records = lines.iter().map(|line| AnyRecord::read(kind, line));
        let records: Vec<AnyRecord> = records.collect::<Result<_>>()?;
        let statements = records.iter().map(|record| {
            let u = document(record)?;
            let id = match record {
                AnyRecord::Accumulator(accumulator) => Some(accumulator_id(&accumulator.id).into()),
                _ => id_of(&u),
            };
            Ok(Update::upsert(doc! {"_id": id}, u))
        });
        let statements: Vec<_> = statements.collect::<Result<_>>()?;
        self.upsert(kind.as_str(), statements).await
    }

    async fn page_of(&self, kind: Kind, documents: Vec<RawDocumentBuf>) -> Result<Page> {
        let mut page = Page::default();
        for raw in documents {
            let read = match kind {
                Kind::Fanouts => self.whole_fanout(&raw).await.map(AnyRecord::from),
                kind => read_record(kind, &raw),
            };
            match read {
                Ok(record) => page.push(&record)?,
                Err(error) if error.is_outage() => return Err(error),
                Err(error) => page.bad.push(error.to_string()),
            }
        }
        Ok(page)
    }
}

/// Splits a batch into pages. A fan-out with parts is alone, because its parts may be long.
fn split(batch: Vec<RawDocumentBuf>) -> Vec<Vec<RawDocumentBuf>> {
    match batch.iter().any(|raw| parts_of(raw).is_some()) {
        true => batch.into_iter().map(|one| vec![one]).collect(),
        false => vec![batch],
    }
}

fn read_record(kind: Kind, raw: &RawDocument) -> Result<AnyRecord> {
    match kind {
        Kind::Objects => Ok(objects::object_of(raw)?.into()),
        Kind::Retractions => Ok(objects::read_retraction(raw)?.into()),
        kind => AnyRecord::read_from(kind, raw),
    }
}

impl RecordSource for &RawDocument {
    fn read<R: Record>(self) -> Result<R::Value> {
        read_bson::<R>(self)
    }
}

fn document(record: &AnyRecord) -> Result<RawDocumentBuf> {
    let doing = "importing records";
    match record {
        AnyRecord::User(user) => Ok(revised(user)?.0),
        AnyRecord::Object(object) => objects::record_of(object),
        AnyRecord::Inbox(inbox) => {
            let mut record = InboxRecord::from_value(inbox);
            record.revision = Some(Oid(NO_REVISION));
            write_bson(doing, &record)
        }
        AnyRecord::Retraction(one) => Ok(objects::retraction_document(one)),
        AnyRecord::Accumulator(accumulator) => write_bson(
            doing,
            &AccumulatorRecord::document(accumulator, NO_REVISION),
        ),
        AnyRecord::Delivery(delivery) => write_bson(doing, &DeliveryRecord::document(delivery)),
        AnyRecord::Fanout(fanout) => {
            let document = write_bson(doing, record)?;
            match document.as_bytes().len() > LARGEST {
                true => Err(Error::Unsupported(format!(
                    "event {} names more users than fit into one document; wait until the \
                     version that accepted it has pushed it to all of them, and export again",
                    fanout.id
                ))),
                false => Ok(document),
            }
        }
        record => write_bson(doing, record),
    }
}
