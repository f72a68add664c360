//! The database as something that can be moved, or moved into.
//!
//! The rule: documents are walked in the order of their `_id`s, a batch of the server's at a time.
//! One whose `_id` is of another type than tidings writes belongs to nobody, and is told. MongoDB
//! has nothing that would hold back whoever has it open: a source is read again at the end instead.

use std::collections::HashMap;

use async_trait::async_trait;
use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use compact_str::CompactString;
use futures::StreamExt;
use serde::{Deserialize, Serialize};

use super::additions::accumulator_id;
use super::audiences::parts;
use super::bulk::Write;
use super::directory::{Follow, revised};
use super::patience;
use super::values::{date, oid};
use super::{
    ACCUMULATORS, BATCHES, DELIVERIES, FANOUTS, FOLLOWS, INBOXES, Mongo, NOTES, OBJECTS,
    RETRACTIONS, SIGHTINGS, SOFT_BOUNCES, SUPPRESSIONS, USERS, objects, retractions,
};
use crate::domain::{
    Address, DeliveryId, EventType, Fanout, FollowKey, Id, ObjectId, Retraction, UserId,
};
use crate::store::moving::{NOTE, RECORDS};
use crate::store::record::batch::{AccumulatorRecord, BatchRecord};
use crate::store::record::delivery::DeliveryRecord;
use crate::store::record::fanout::FanoutRecord;
use crate::store::record::fields::{As, Oid, Time};
use crate::store::record::inbox::InboxRecord;
use crate::store::record::suppression::SuppressionRecord;
use crate::store::record::user::UserRecord;
use crate::store::record::{read_bson, read_fields, write_bson};
use crate::store::{Error, Kept, Kind, Moving, Portion, Result, extjson};

#[async_trait]
impl Moving for Mongo {
    async fn tally(&self, kind: Kind) -> Result<u64> {
        let doing = format!("counting {}", kind.as_str());
        self.matching(&doing, collection(kind), &all(kind)).await
    }

    async fn portion(&self, kind: Kind, after: Option<&str>) -> Result<Portion> {
        let doing = format!("reading {}", kind.as_str());
        let mut filter = all(kind);
        let mut portion = Portion::default();
        let typed = doc! {"$type": id_type(kind)};
        match after.map(cursor).transpose()? {
            None => {
                let others = doc! {"_id": {"$not": typed.clone()}};
                let others = self.matching(&doing, collection(kind), &others).await?;
                if others > 0 {
                    let what = kind.as_str();
                    portion.bad.push(format!(
                        "{others} documents of {what} whose _id is not of ours"
                    ));
                }
                filter = doc! {"$and": [filter, {"_id": typed}]};
            }
            // What is compared with is of this type, and so is what is found.
            Some(after) => filter = doc! {"$and": [filter, {"_id": {"$gt": after}}]},
        }
        let found = self.batch(&doing, collection(kind), filter).await?;
        let read = match kind {
            Kind::Fanouts => self.read_fanouts(&doing, &found, &mut portion).await?,
            kind => {
                read_all(kind, &found, &mut portion);
                found.len()
            }
        };
        // After the last of all nothing is found.
        let last = read.checked_sub(1).map(|last| key_of(&found[last]));
        portion.next = last.transpose()?;
        Ok(portion)
    }

    async fn put(&self, kind: Kind, kept: &[Kept]) -> Result<()> {
        let doing = format!("putting {}", kind.as_str());
        let fanouts = kept.iter().filter_map(|kept| match kept {
            Kept::Fanout(fanout) => Some(&**fanout),
            _ => None,
        });
        self.put_audiences(&doing, fanouts).await?;
        let statements = kept.iter().map(|kept| {
            let (id, u) = document(&doing, kept)?;
            let q = doc! {"_id": id};
            let upsert = true;
            Ok(Write { q, u, upsert })
        });
        let statements: Vec<Write<RawDocumentBuf>> = statements.collect::<Result<_>>()?;
        self.upsert(&doing, collection(kind), statements).await
    }

    async fn seal(&self, _why: &str) -> Result<bool> {
        Ok(false)
    }

    async fn unseal(&self) -> Result<()> {
        Ok(())
    }
}

fn collection(kind: Kind) -> &'static str {
    match kind {
        Kind::Users => USERS,
        Kind::Follows => FOLLOWS,
        Kind::Objects => OBJECTS,
        Kind::Inboxes => INBOXES,
        Kind::Retractions => RETRACTIONS,
        Kind::Suppressions => SUPPRESSIONS,
        Kind::SoftBounces => SOFT_BOUNCES,
        Kind::Sightings => SIGHTINGS,
        Kind::Fanouts => FANOUTS,
        Kind::Accumulators => ACCUMULATORS,
        Kind::Batches => BATCHES,
        Kind::Deliveries => DELIVERIES,
        Kind::Notes => NOTES,
    }
}

/// The type of the `_id`s that tidings writes.
fn id_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Fanouts | Kind::Batches => "objectId",
        Kind::Follows | Kind::SoftBounces | Kind::Accumulators => "object",
        Kind::Users
        | Kind::Objects
        | Kind::Inboxes
        | Kind::Retractions
        | Kind::Suppressions
        | Kind::Sightings
        | Kind::Deliveries
        | Kind::Notes => "string",
    }
}

/// All documents of a kind.
fn all(kind: Kind) -> Document {
    match kind {
        Kind::Notes => doc! {"_id": {"$nin": [NOTE, "schema"]}},
        _ => doc! {},
    }
}

/// The `_id` that a portion ended with.
fn cursor(text: &str) -> Result<Bson> {
    let corrupt = |why: String| Error::corrupt("how far a move has come", why);
    let line = extjson::from_line(text).map_err(|why| corrupt(why.to_string()))?;
    let mut document = Document::try_from(line).map_err(|why| corrupt(why.to_string()))?;
    document
        .remove("_id")
        .ok_or_else(|| corrupt(format!("it is {text:?}")))
}

fn key_of(raw: &RawDocument) -> Result<String> {
    let id = raw.get("_id").ok().flatten();
    let id = id.ok_or_else(|| Error::corrupt("a document", "it has no _id"))?;
    let mut key = RawDocumentBuf::new();
    key.append(bson::raw::cstr!("_id"), id);
    Ok(extjson::to_line(&key))
}

impl Mongo {
    /// The first documents of what is found, in the order of their `_id`s, as many as the server
    /// sends at once.
    async fn batch(
        &self,
        doing: &str,
        collection: &str,
        filter: Document,
    ) -> Result<Vec<RawDocumentBuf>> {
        let limit = patience::limit(self.0.options.attempt);
        let batch = self.patiently(doing, || {
            let (documents, filter) = (self.collection(collection), filter.clone());
            async move {
                let find = documents.find(filter).sort(doc! {"_id": 1});
                let find = find.limit(RECORDS as i64).batch_size(RECORDS as u32);
                let mut batches = self.batches_of(find.max_time(limit)).await?;
                Ok(batches.next().await.transpose()?)
            }
        });
        let Some(batch) = batch.await? else {
            return Ok(Vec::new());
        };
        let corrupt = || Error::corrupt(format!("a batch of {collection}"), "it is no BSON");
        let documents = batch.doc_slices().map_err(|_| corrupt())?.into_iter();
        let owned = documents.map(|document| {
            let document = document.ok().and_then(|document| document.as_document());
            document.map(RawDocument::to_owned).ok_or_else(corrupt)
        });
        owned.collect()
    }

    /// Reads fan-outs up to the first whose people are in parts; answers how many that are.
    async fn read_fanouts(
        &self,
        doing: &str,
        found: &[RawDocumentBuf],
        portion: &mut Portion,
    ) -> Result<usize> {
        for (place, raw) in found.iter().enumerate() {
            let (fanout, parts) = match read_bson::<FanoutRecord>(raw) {
                Ok(read) => read,
                Err(error) => {
                    portion.bad.push(error.to_string());
                    continue;
                }
            };
            let mut fanout = [fanout];
            let counted: HashMap<Id, usize> =
                parts.map(|n| (fanout[0].id, n)).into_iter().collect();
            let lost = self.fill_audiences(doing, &mut fanout, &counted).await?;
            match lost.into_iter().next() {
                Some((_, error)) => portion.bad.push(error.to_string()),
                None => portion
                    .kept
                    .extend(fanout.map(|one| Kept::Fanout(Box::new(one)))),
            }
            if parts.is_some() {
                return Ok(place + 1);
            }
        }
        Ok(found.len())
    }
}

/// What documents say.
fn read_all(kind: Kind, found: &[RawDocumentBuf], portion: &mut Portion) {
    for raw in found {
        match kept(kind, raw) {
            Ok(kept) => portion.kept.push(kept),
            Err(error) => portion.bad.push(error.to_string()),
        }
    }
}

/// A document that is all `_id`, of two texts.
#[derive(Deserialize)]
struct Follows {
    #[serde(rename = "_id")]
    id: FollowsId,
}

#[derive(Deserialize)]
struct FollowsId {
    k: CompactString,
    u: CompactString,
}

#[derive(Deserialize)]
struct Retracted {
    #[serde(rename = "_id")]
    id: String,
    at: Oid,
}

#[derive(Serialize, Deserialize)]
struct SoftBounce {
    #[serde(rename = "_id")]
    id: SoftBounceId,
    at: Time,
}

#[derive(Serialize, Deserialize)]
struct SoftBounceId {
    a: String,
    d: String,
}

#[derive(Serialize, Deserialize)]
struct Sighting {
    #[serde(rename = "_id")]
    key: String,
    mark: String,
    until: Time,
}

#[derive(Serialize, Deserialize)]
struct Note {
    #[serde(rename = "_id")]
    name: String,
    text: String,
}

/// What a document says.
fn kept(kind: Kind, raw: &RawDocument) -> Result<Kept> {
    Ok(match kind {
        Kind::Users => Kept::User(Box::new(read_bson::<UserRecord>(raw)?)),
        Kind::Follows => {
            let FollowsId { k, u } = read_fields::<Follows>("follow", raw)?.id;
            Kept::Follow(FollowKey::stored(k), UserId::stored(u))
        }
        Kind::Objects => Kept::Object(Box::new(objects::object_of(raw)?)),
        Kind::Inboxes => Kept::Inbox(Box::new(read_bson::<InboxRecord>(raw)?)),
        Kind::Retractions => {
            let Retracted { id, at } = read_fields("retraction", raw)?;
            let name = id.split_once('\0');
            let (t, o) =
                name.ok_or_else(|| Error::corrupt("a retraction", "it names no object"))?;
            let (t, o, at) = (EventType::stored(t), ObjectId::stored(o), at.0);
            Kept::Retraction(Retraction { t, o, at })
        }
        Kind::Suppressions => Kept::Suppression(read_bson::<SuppressionRecord>(raw)?),
        Kind::SoftBounces => {
            let SoftBounce { id, at } = read_fields("soft bounce", raw)?;
            let address = Address::stored(id.a)
                .map_err(|why| Error::corrupt("the address of a soft bounce", why))?;
            let (delivery, at) = (DeliveryId::stored(id.d), at.0);
            Kept::SoftBounce {
                address,
                delivery,
                at,
            }
        }
        Kind::Sightings => {
            let Sighting { key, mark, until } = read_fields("sighting", raw)?;
            let until = until.0;
            Kept::Sighting { key, mark, until }
        }
        Kind::Fanouts => {
            let (fanout, _): (Fanout, _) = read_bson::<FanoutRecord>(raw)?;
            Kept::Fanout(Box::new(fanout))
        }
        Kind::Accumulators => Kept::Accumulator(Box::new(read_bson::<AccumulatorRecord>(raw)?)),
        Kind::Batches => Kept::Batch(Box::new(read_bson::<BatchRecord>(raw)?)),
        Kind::Deliveries => Kept::Delivery(Box::new(read_bson::<DeliveryRecord>(raw)?)),
        Kind::Notes => {
            let Note { name, text } = read_fields("note", raw)?;
            Kept::Note { name, text }
        }
    })
}

/// A record as its `_id` and what is to stand under it.
fn document(doing: &str, kept: &Kept) -> Result<(Bson, RawDocumentBuf)> {
    let write = |id: Bson, record: RawDocumentBuf| Ok((id, record));
    match kept {
        Kept::User(user) => write(user.id.as_str().into(), revised(doing, user)?.0),
        Kept::Follow(key, user) => write(
            doc! {"k": key.as_str(), "u": user.as_str()}.into(),
            write_bson(doing, &Follow::of(key, user))?,
        ),
        Kept::Object(object) => write(object.key.as_str().into(), objects::record_of(object)),
        Kept::Inbox(inbox) => {
            let mut record = InboxRecord::keep(inbox);
            record.revision = record.revision.or(Some(Oid(FIRST)));
            write(inbox.user.as_str().into(), write_bson(doing, &record)?)
        }
        Kept::Retraction(Retraction { t, o, at }) => {
            let id = retractions::name(t, o);
            let record = doc! {"_id": &id, "at": oid(*at)};
            write(id.into(), write_bson(doing, &record)?)
        }
        Kept::Suppression(suppression) => write(
            suppression.address.reveal().into(),
            write_bson(doing, &SuppressionRecord::exactly(suppression))?,
        ),
        Kept::SoftBounce {
            address,
            delivery,
            at,
        } => {
            let id = doc! {"a": address.reveal(), "d": delivery.as_str()};
            let record = doc! {"_id": &id, "at": date(*at)};
            write(id.into(), write_bson(doing, &record)?)
        }
        Kept::Sighting { key, mark, until } => {
            let record = doc! {"_id": key, "mark": mark, "until": date(*until)};
            write(key.as_str().into(), write_bson(doing, &record)?)
        }
        Kept::Fanout(fanout) => write(
            oid(fanout.id),
            write_bson(doing, &FanoutRecord::whole(fanout, parts(fanout).len()))?,
        ),
        Kept::Accumulator(accumulator) => {
            let revision = accumulator.revision.unwrap_or(FIRST);
            let record = AccumulatorRecord::document(accumulator, revision);
            let id = accumulator_id(&accumulator.id);
            write(id.into(), write_bson(doing, &record)?)
        }
        Kept::Batch(batch) => write(
            oid(batch.id),
            write_bson(doing, &BatchRecord::filed(batch))?,
        ),
        Kept::Delivery(delivery) => write(
            delivery.id.as_str().into(),
            write_bson(doing, &DeliveryRecord::document(delivery))?,
        ),
        Kept::Note { name, text } => {
            let record = doc! {"_id": name, "text": text};
            write(name.as_str().into(), write_bson(doing, &record)?)
        }
    }
}

/// The revision of a record that had none.
const FIRST: Id = Id::from_bytes([0; 12]);
