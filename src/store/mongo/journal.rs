//! The journal of accepted events.
//!
//! The rule: accepting is one durable insert, and the unique key decides who was first. Where a
//! write is conditional, each statement leaves the revision of its call in the document, so that
//! after a lost answer a read tells what was done.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use bson::oid::ObjectId as Oid;
use bson::{Bson, Document, RawBsonRef, RawDocumentBuf, doc};
use chrono::{DateTime, Utc};
use mongodb::options::FindOptions;

use super::audiences::parts;
use super::bulk::Verb;
use super::record::{Record, date, geo_json, oid, put};
use super::{FANOUTS, Mongo};
use crate::domain::lease::furthest;
use crate::domain::{
    Audience, ChosenKey, Counts, Day, Event, EventType, Fanout, FanoutState, FollowKey, Id,
    ObjectId, Progress, Selector, UserId,
};
use crate::store::{Accepted, BadFanout, Claimed, Error, Journal, Result};

#[async_trait]
impl Journal for Mongo {
    async fn accept(&self, fanouts: &[Fanout]) -> Result<Vec<Accepted>> {
        let doing = "journalling events";
        let mut keys = HashSet::new();
        let first: Vec<usize> = (0..fanouts.len())
            .filter(|item| keys.insert(fanouts[*item].key.as_str()))
            .collect();
        let mut taken: HashSet<usize> = (0..fanouts.len()).collect();
        for item in &first {
            taken.remove(item);
        }
        let encoded = encode(doing, fanouts.iter().map(record_of))?;
        self.put_audiences(doing, first.iter().map(|item| &fanouts[*item]))
            .await?;
        let targets = vec![(FANOUTS.to_owned(), first)];
        let inserted = self.bulk(doing, Verb::Insert, targets, |writer, item| {
            writer.fields(encoded[item].as_bytes());
        });
        let refused = inserted.await?.duplicates(doing)?;
        // Refused when it was sent again: then it may be our own that is in the way.
        let doubtful: HashSet<usize> = refused
            .iter()
            .filter(|refused| refused.resent)
            .map(|refused| refused.item)
            .collect();
        taken.extend(refused.iter().map(|refused| refused.item));
        let wanted: Vec<&str> = taken
            .iter()
            .map(|item| fanouts[*item].key.as_str())
            .collect();
        let standing = self.by_key(doing, &wanted).await?;
        let left: Vec<Id> = refused
            .iter()
            .map(|refused| &fanouts[refused.item])
            .filter(|fanout| {
                standing
                    .get(&fanout.key)
                    .is_some_and(|known| known.id != fanout.id)
            })
            .filter(|fanout| !parts(fanout).is_empty())
            .map(|fanout| fanout.id)
            .collect();
        self.drop_audiences(doing, &left).await?;
        let answer = |(item, fanout): (usize, &Fanout)| {
            if !taken.contains(&item) {
                return Ok(Accepted::New);
            }
            match standing.get(&fanout.key) {
                Some(known) if doubtful.contains(&item) && known.id == fanout.id => {
                    Ok(Accepted::New)
                }
                Some(known) => Ok(Accepted::Known(Box::new(known.clone()))),
                None => Err(Error::Conflict {
                    what: format!("fan-out {}", fanout.id),
                }),
            }
        };
        fanouts.iter().enumerate().map(answer).collect()
    }

    async fn claim_fanouts(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
        limit: usize,
    ) -> Result<Claimed> {
        let doing = "claiming fan-outs";
        let free = doc! {
            "state": PENDING,
            "$or": [
                {"lease.until": Bson::Null},
                {"lease.until": {"$lte": date(now)}},
                {"lease.until": {"$gt": date(furthest(now))}},
            ],
        };
        let lease = doc! {"owner": owner, "until": date(until)};
        let order = doc! {"_id": 1};
        let claimed = self
            .claim_raw(doing, FANOUTS, &free, order, lease, limit)
            .await?;
        self.claimed_of(doing, &claimed).await
    }

    async fn save_fanouts(
        &self,
        owner: &str,
        until: DateTime<Utc>,
        progress: &[(Id, Progress)],
    ) -> Result<Vec<bool>> {
        let statement = |(id, progress): &(Id, Progress), revision: Oid| {
            let mut set = doc! {"counts": counts_of(progress.counts), "stamp": revision};
            put(
                &mut set,
                "cursor",
                progress.cursor.as_ref().map(UserId::as_str),
            );
            let update = match progress.done {
                true => {
                    set.insert("state", DONE);
                    doc! {"$set": set, "$unset": {"lease": ""}}
                }
                false => {
                    set.insert("lease.until", date(until));
                    doc! {"$set": set}
                }
            };
            let query = doc! {"_id": oid(*id), "state": PENDING, "lease.owner": owner};
            (oid(*id), query, update)
        };
        self.update_each("saving fan-outs", FANOUTS, progress, statement)
            .await
    }

    async fn release_fanouts(&self, owner: &str) -> Result<()> {
        self.patiently("releasing fan-outs", || {
            let fanouts = self.collection(FANOUTS);
            let held = doc! {"state": PENDING, "lease.owner": owner};
            let release = doc! {"$unset": {"lease": ""}};
            async move { Ok(fanouts.update_many(held, release).await.map(drop)?) }
        })
        .await
    }

    async fn fanout(&self, id: Id) -> Result<Option<Fanout>> {
        let found = self.patiently("reading a fan-out", || {
            let fanouts = self.collection(FANOUTS);
            async move { self.one_of(fanouts.find_one(doc! {"_id": oid(id)})).await }
        });
        let found: Vec<Document> = found.await?.into_iter().collect();
        let fanouts = self.fanouts_of("reading a fan-out", &found).await?;
        Ok(fanouts.into_iter().next())
    }

    async fn newest(&self, limit: usize) -> Result<Vec<Vec<Event>>> {
        let options = FindOptions::builder()
            .sort(doc! {"_id": -1})
            .limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .projection(doc! {"type": 1, "objects": 1})
            .build();
        let doing = "reading the newest events";
        let found = self.find_all(doing, FANOUTS, &doc! {}, options).await?;
        let events = |record: &Document| {
            let fanout = Record::new("fan-out", record);
            let i = fanout.needs("_id", fanout.id("_id")?)?;
            let t = EventType::stored(fanout.needs("type", fanout.text("type")?)?);
            let event = |o| Event {
                t: t.clone(),
                o: ObjectId::stored(o),
                i: Some(i),
            };
            fanout.needs("objects", fanout.texts("objects", event)?)
        };
        let read = |record| if_readable(events(record));
        Ok(found.iter().filter_map(read).collect())
    }

    async fn busy_days(&self) -> Result<Vec<Day>> {
        // All from the index: see `prepare`.
        let pipeline = vec![
            doc! {"$match": {"state": PENDING}},
            doc! {"$project": {"_id": 0, "day": 1}},
            doc! {"$group": {"_id": "$day"}},
        ];
        let found: Vec<Document> = self
            .patiently("looking for busy days", || {
                let (fanouts, pipeline) = (self.collection(FANOUTS), pipeline.clone());
                async move { self.all_from(&fanouts, pipeline).await }
            })
            .await?;
        let day = |found: &Document| {
            let group = Record::new("a fan-out's day", found);
            group.needs("_id", group.parsed("_id")?)
        };
        let read = |found| if_readable(day(found));
        let mut days: Vec<Day> = found.iter().filter_map(read).collect();
        days.sort_unstable();
        Ok(days)
    }
}

pub(super) const PENDING: &str = "pending";
pub(super) const DONE: &str = "done";

impl Mongo {
    async fn by_key(&self, doing: &str, keys: &[&str]) -> Result<HashMap<String, Fanout>> {
        if keys.is_empty() {
            return Ok(HashMap::new());
        }
        let filter = doc! {"key": {"$in": keys}};
        let found = self
            .find_all(doing, FANOUTS, &filter, FindOptions::default())
            .await?;
        let fanouts = self.fanouts_of(doing, &found).await?.into_iter();
        Ok(fanouts.map(|fanout| (fanout.key.clone(), fanout)).collect())
    }

    /// The fan-outs of these documents, with all their people.
    async fn fanouts_of(&self, doing: &str, records: &[Document]) -> Result<Vec<Fanout>> {
        let mut counted = HashMap::new();
        let counted_of = |record| counted_fanout_of(record, &mut counted);
        let mut fanouts = records.iter().map(counted_of).collect::<Result<Vec<_>>>()?;
        let lost = self.fill_audiences(doing, &mut fanouts, &counted).await?;
        match lost.into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(fanouts),
        }
    }

    /// The same of those that can be read, and why the others cannot be.
    async fn claimed_of(&self, doing: &str, records: &[RawDocumentBuf]) -> Result<Claimed> {
        let (mut claimed, mut counted) = (Claimed::default(), HashMap::new());
        for raw in records {
            let read = match Document::try_from(&**raw) {
                Ok(record) => counted_fanout_of(&record, &mut counted),
                Err(error) => Err(Error::corrupt("its document", error)),
            };
            match read {
                Ok(fanout) => claimed.fanouts.push(fanout),
                Err(error) => claimed.bad.push(BadFanout {
                    id: shown_id(raw),
                    reason: error.to_string(),
                }),
            }
        }
        let fanouts = &mut claimed.fanouts;
        for (id, error) in self.fill_audiences(doing, fanouts, &counted).await? {
            fanouts.retain(|fanout| fanout.id != id);
            claimed.bad.push(BadFanout {
                id: id.to_string(),
                reason: error.to_string(),
            });
        }
        Ok(claimed)
    }
}

/// The `_id` of a document that may be anybody's.
fn shown_id(raw: &RawDocumentBuf) -> String {
    match raw.get("_id").ok().flatten() {
        Some(RawBsonRef::ObjectId(id)) => id.to_string(),
        Some(RawBsonRef::String(text)) => text.to_owned(),
        Some(other) => format!("{other:?}"),
        None => "whose _id cannot be read".to_owned(),
    }
}

/// What was read, or nothing where it cannot be: one bad record must not hide all others.
fn if_readable<T>(read: Result<T>) -> Option<T> {
    read.inspect_err(|error| tracing::warn!(%error, "a fan-out is passed over"))
        .ok()
}

/// A fan-out, whose parts are noted where its people are apart: see [`Mongo::fill_audiences`].
fn counted_fanout_of(record: &Document, counted: &mut HashMap<Id, usize>) -> Result<Fanout> {
    let fanout = fanout_of(record)?;
    if let Some(parts) = parts_of(&Record::new("fan-out", record))? {
        counted.insert(fanout.id, parts);
    }
    Ok(fanout)
}

/// Documents as bytes.
pub(super) fn encode(
    doing: &str,
    records: impl Iterator<Item = Document>,
) -> Result<Vec<RawDocumentBuf>> {
    records
        .map(|record| RawDocumentBuf::try_from(&record))
        .collect::<bson::error::Result<_>>()
        .map_err(|error| Error::Unsupported(format!("{doing}: {error}")))
}

fn counts_of(counts: Counts) -> Document {
    // BSON's integers are signed; nobody counts that far.
    let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    doc! {"people": count(counts.people), "pushed": count(counts.pushed), "capped": count(counts.capped)}
}

fn names<'a, T: 'a>(names: &'a [T], text: impl Fn(&'a T) -> &'a str) -> Vec<&'a str> {
    names.iter().map(text).collect()
}

fn record_of(fanout: &Fanout) -> Document {
    let audience = match (&fanout.audience.to, parts(fanout).len()) {
        (_, parts @ 1..) => doc! {"parts": parts as i32},
        (Selector::Users(users), _) => doc! {"users": names(users, UserId::as_str)},
        (Selector::FollowersOf(keys), _) => doc! {"followers_of": names(keys, FollowKey::as_str)},
        (Selector::Near { point, km }, _) => doc! {"near": {"point": geo_json(*point), "km": km}},
    };
    let mut record = doc! {
        "_id": oid(fanout.id),
        "key": &fanout.key,
        "type": fanout.kind.as_str(),
        "objects": names(&fanout.objects, ObjectId::as_str),
        "audience": audience,
        "except": names(&fanout.audience.except, UserId::as_str),
        "day": fanout.day.to_string(),
        "at": date(fanout.at),
        "state": match fanout.state {
            FanoutState::Pending => PENDING,
            FanoutState::Done => DONE,
        },
        "counts": counts_of(fanout.progress.counts),
    };
    put(
        &mut record,
        "cursor",
        fanout.progress.cursor.as_ref().map(UserId::as_str),
    );
    put(
        &mut record,
        "batch_key",
        fanout.batch_key.as_ref().map(ChosenKey::as_str),
    );
    if let Some(lease) = &fanout.lease {
        record.insert("lease", super::record::lease(Some(lease)));
    }
    record
}

fn fanout_of(record: &Document) -> Result<Fanout> {
    let fanout = Record::new("fan-out", record);
    let state = match fanout.text("state")? {
        Some(PENDING) => FanoutState::Pending,
        Some(DONE) => FanoutState::Done,
        _ => return Err(fanout.corrupt("state", "it is neither pending nor done")),
    };
    let counts = match fanout.record("counts")? {
        None => Counts::default(),
        Some(counts) => Counts {
            people: counts.count("people")?.unwrap_or(0),
            pushed: counts.count("pushed")?.unwrap_or(0),
            capped: counts.count("capped")?.unwrap_or(0),
        },
    };
    Ok(Fanout {
        id: fanout.needs("_id", fanout.id("_id")?)?,
        key: fanout.needs("key", fanout.text("key")?)?.to_owned(),
        kind: EventType::stored(fanout.needs("type", fanout.text("type")?)?),
        objects: fanout.needs("objects", fanout.texts("objects", ObjectId::stored)?)?,
        audience: Audience {
            to: selector_of(&fanout)?,
            except: fanout.texts("except", UserId::stored)?.unwrap_or_default(),
        },
        batch_key: fanout.parsed("batch_key")?,
        day: fanout.needs("day", fanout.parsed("day")?)?,
        at: fanout.needs("at", fanout.time("at")?)?,
        state,
        progress: Progress {
            cursor: fanout.text("cursor")?.map(UserId::stored),
            counts,
            done: state == FanoutState::Done,
        },
        lease: fanout.lease("lease")?,
    })
}

/// How many parts its audience has; none where it is in the document itself.
fn parts_of(fanout: &Record<'_>) -> Result<Option<usize>> {
    let audience = fanout.needs("audience", fanout.record("audience")?)?;
    Ok(audience.count32("parts")?.map(|parts| parts as usize))
}

/// Without its people where these are in parts: see [`Mongo::fill_audiences`].
fn selector_of(fanout: &Record<'_>) -> Result<Selector> {
    let audience = fanout.needs("audience", fanout.record("audience")?)?;
    if parts_of(fanout)?.is_some() {
        return Ok(Selector::Users(Vec::new()));
    }
    if let Some(users) = audience.texts("users", UserId::stored)? {
        return Ok(Selector::Users(users));
    }
    if let Some(keys) = audience.texts("followers_of", FollowKey::stored)? {
        return Ok(Selector::FollowersOf(keys));
    }
    let near = audience.needs("near", audience.record("near")?)?;
    Ok(Selector::Near {
        point: near.needs("point", near.place("point")?)?,
        km: near.needs("km", near.number("km")?)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Lease, Point};

    #[test]
    fn a_fan_out_is_read_as_written() {
        let at = DateTime::from_timestamp(1_398_124_800, 0).unwrap();
        let user = UserId::stored("$alice");
        let audiences = [
            Audience::users([user.clone(), UserId::stored("b")])
                .unwrap()
                .except([user.clone()]),
            Audience::followers_of([FollowKey::stored("artist:558")]).unwrap(),
            Audience::near(Point::new(13.4, 52.5).unwrap(), 0.5).unwrap(),
        ];
        for audience in audiences {
            let objects = vec![ObjectId::stored("1"), ObjectId::stored("0")];
            let id = Id::at(at, [1; 8]);
            let new = Fanout::new(id, None, EventType::stored("T"), objects, audience).unwrap();
            assert_eq!(fanout_of(&record_of(&new)).unwrap(), new);
            assert!(!record_of(&new).contains_key("batch_key"));
            let new = new.with_batch_key("$a.b".parse().ok());
            assert_eq!(fanout_of(&record_of(&new)).unwrap(), new);
            let counts = Counts {
                people: 3,
                pushed: u64::from(u32::MAX) + 1,
                capped: 1,
            };
            let owner = "me".to_owned();
            let held = Fanout {
                progress: Progress {
                    cursor: Some(user.clone()),
                    counts,
                    done: true,
                },
                state: FanoutState::Done,
                lease: Some(Lease { owner, until: at }),
                ..new
            };
            assert_eq!(fanout_of(&record_of(&held)).unwrap(), held);
        }
    }
}
