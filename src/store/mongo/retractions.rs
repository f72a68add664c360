//! Stores retractions: one document per type and object, `{_id: "type\0object", at}`.
//!
//! `at` only grows, in any order of writes.

use std::collections::HashMap;

use async_trait::async_trait;
use bson::{RawDocument, doc};
use mongodb::options::FindOptions;
use serde::{Deserialize, Serialize};

use super::bulk::Write;
use super::values::oid;
use super::{Mongo, RETRACTIONS};
use crate::domain::{ChangeNotice, Event, EventType, Id, ObjectId, Retraction};
use crate::store::record::fields::Oid;
use crate::store::record::read_fields;
use crate::store::{Error, Result, Retractions};

#[derive(Serialize, Deserialize)]
pub(super) struct Kept {
    #[serde(rename = "_id")]
    id: String,
    at: Oid,
}

/// Returns the `_id` of a retraction. Types and object ids contain no NUL.
pub(super) fn name(t: &EventType, o: &ObjectId) -> String {
    format!("{t}\0{o}")
}

/// Reads a retraction.
pub(super) fn read(raw: &RawDocument) -> Result<Retraction> {
    let Kept { id, at } = read_fields("retraction", raw)?;
    let names = id.split_once('\0');
    let (t, o) = names.ok_or_else(|| Error::corrupt("a retraction", "it names no object"))?;
    let (t, o, at) = (EventType::stored(t), ObjectId::stored(o), at.0);
    Ok(Retraction { t, o, at })
}

/// The document of a retraction.
pub(super) fn document(Retraction { t, o, at }: &Retraction) -> Kept {
    let (id, at) = (name(t, o), Oid(*at));
    Kept { id, at }
}

#[async_trait]
impl Retractions for Mongo {
    async fn retract(&self, retractions: &[Retraction], about: &ChangeNotice) -> Result<()> {
        let statement = |retraction: &Retraction| Write {
            q: doc! {"_id": name(&retraction.t, &retraction.o)},
            u: doc! {"$max": {"at": oid(retraction.at)}},
            upsert: true,
        };
        let statements = retractions.iter().map(statement);
        self.upsert("taking events back", RETRACTIONS, statements)
            .await?;
        self.poke(about.clone()).await;
        Ok(())
    }

    async fn retractions(&self, events: &[Event]) -> Result<Vec<Option<Id>>> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<String> = events
            .iter()
            .map(|event| name(&event.t, &event.o))
            .collect();
        let (filter, options) = (doc! {"_id": {"$in": &names}}, FindOptions::default());
        let doing = "reading what was taken back";
        let found = self.find_raw(doing, RETRACTIONS, &filter, options).await?;
        let mut at: HashMap<String, Id> = HashMap::with_capacity(found.len());
        for raw in &found {
            match read_fields::<Kept>("retraction", raw) {
                Ok(kept) => drop(at.insert(kept.id, kept.at.0)),
                Err(error) => {
                    tracing::warn!(%error, "a retraction cannot be read, and reaches everything");
                    let id = raw.get_str("_id").unwrap_or_default();
                    at.insert(id.to_owned(), Id::LAST);
                }
            }
        }
        Ok(names.iter().map(|name| at.get(name).copied()).collect())
    }
}
