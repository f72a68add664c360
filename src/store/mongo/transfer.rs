//! Exports collections as lines and imports lines, for a whole store.

use bson::{Bson, RawDocument, RawDocumentBuf, doc};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::batches::accumulator_id;
use super::bulk::Write;
use super::directory::revised;
use super::journal::parts;
use super::{Mongo, objects};
use crate::store::record::batch::{AccumulatorRecord, BatchRecord};
use crate::store::record::delivery::DeliveryRecord;
use crate::store::record::fanout::FanoutRecord;
use crate::store::record::fields::{As, Oid};
use crate::store::record::small::{InboxRecord, SuppressionRecord};
use crate::store::record::{read_bson, write_bson};
use crate::store::transfer::{NO_REVISION, with_record};
use crate::store::{AnyRecord, Error, Kind, Page, Result, extjson};

impl Mongo {
    /// Exports the records of a kind.
    pub(super) fn export_records(&self, kind: Kind) -> BoxStream<'_, Result<Page>> {
        // An audience may be as large as a page of other records.
        let size = match kind {
            Kind::Fanouts => 1,
            _ => 1_000,
        };
        let doing = format!("exporting {}", kind.as_str());
        let batches = self.lines(doing, kind.collection().to_owned());
        let pages = batches.map_ok(move |batch| {
            let pages: Vec<_> = batch.chunks(size).map(<[String]>::to_vec).collect();
            stream::iter(pages).map(Ok)
        });
        let pages = pages.try_flatten();
        pages.and_then(move |page| self.page_of(kind, page)).boxed()
    }

    /// Imports records of a kind.
    pub(super) async fn import_records(&self, kind: Kind, lines: &[String]) -> Result<()> {
        let doing = format!("importing {}", kind.as_str());
        let records = lines.iter().map(|line| AnyRecord::read(kind, line));
        let records: Vec<AnyRecord> = records.collect::<Result<_>>()?;
        let fanouts = records.iter().filter_map(|record| match record {
            AnyRecord::Fanout(fanout) => Some(&**fanout),
            _ => None,
        });
        self.put_audiences(&doing, fanouts).await?;
        let statements = records.iter().map(|record| {
            let u = document(&doing, record)?;
            let id = match record {
                AnyRecord::Accumulator(accumulator) => Some(accumulator_id(&accumulator.id).into()),
                _ => {
                    let id = u.get("_id").ok().flatten().map(Bson::try_from);
                    id.transpose().map_err(|why| Error::database(&doing, why))?
                }
            };
            let (q, upsert) = (doc! {"_id": id}, true);
            Ok(Write { q, u, upsert })
        });
        let statements: Vec<Write<RawDocumentBuf>> = statements.collect::<Result<_>>()?;
        self.upsert(&doing, kind.collection(), statements).await
    }
}

impl Mongo {
    async fn page_of(&self, kind: Kind, documents: Vec<String>) -> Result<Page> {
        let mut page = Page::default();
        for line in documents {
            let read = match extjson::from_line(&line) {
                Ok(raw) if kind == Kind::Fanouts => {
                    self.whole_fanout(&raw).await.map(AnyRecord::from)
                }
                Ok(raw) => read_record(kind, &raw),
                Err(why) => Err(Error::corrupt(format!("one of {}", kind.as_str()), why)),
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

fn read_record(kind: Kind, raw: &RawDocument) -> Result<AnyRecord> {
    match kind {
        Kind::Objects => Ok(objects::object_of(raw)?.into()),
        Kind::Retractions => Ok(objects::read_retraction(raw)?.into()),
        kind => with_record!(kind, R => Ok(read_bson::<R>(raw)?.into())),
    }
}

fn document(doing: &str, record: &AnyRecord) -> Result<RawDocumentBuf> {
    match record {
        AnyRecord::User(user) => Ok(revised(doing, user)?.0),
        AnyRecord::Follow(follow) => write_bson(doing, follow),
        AnyRecord::Object(object) => objects::record_of(doing, object),
        AnyRecord::Inbox(inbox) => {
            let mut record = InboxRecord::from_value(inbox);
            record.revision = record.revision.or(Some(Oid(NO_REVISION)));
            write_bson(doing, &record)
        }
        AnyRecord::Retraction(retraction) => {
            write_bson(doing, &objects::retraction_record(retraction))
        }
        AnyRecord::Suppression(kept) => write_bson(doing, &SuppressionRecord::exactly(kept)),
        AnyRecord::SoftBounce(bounce) => write_bson(doing, bounce),
        AnyRecord::Sighting(sighting) => write_bson(doing, sighting),
        AnyRecord::Fanout(fanout) => {
            write_bson(doing, &FanoutRecord::whole(fanout, parts(fanout).len()))
        }
        AnyRecord::Accumulator(accumulator) => {
            let revision = accumulator.revision.unwrap_or(NO_REVISION);
            write_bson(doing, &AccumulatorRecord::document(accumulator, revision))
        }
        AnyRecord::Batch(batch) => write_bson(doing, &BatchRecord::filed(batch)),
        AnyRecord::Delivery(delivery) => write_bson(doing, &DeliveryRecord::document(delivery)),
        AnyRecord::Note(note) => write_bson(doing, note),
    }
}
