//! Upgrades databases of earlier versions to the current schema. Start with [`Mongo::prepare`].
//!
//! Every step can be interrupted, repeated, and run while earlier versions use the database. New
//! indexes come first; obsolete ones are dropped last. Readers understand both schemas, because
//! read-only commands do not upgrade. The note `schema` stores which programs can use the database.

use bson::{Bson, Document, doc};
use mongodb::options::FindOptions;
use serde::{Deserialize, Serialize};

use super::patience::Failure;
use super::{DELIVERIES, Mongo};
use crate::domain::DeliveryId;
use crate::store::{Error, Notes, Result, Schema};

/// The schema that databases are upgraded to.
pub const VERSION: u32 = 2;
/// The oldest schema version whose programs can use a database of this version.
const FOR: u32 = 1;

const NOTE: &str = "schema";

/// Describes each step; the first one upgrades schema 1.
const STEPS: [&str; VERSION as usize - 1] = [
    "gives earlier deliveries the tag that providers name them by; drops the index deliveries(state)",
];

/// The number of documents that are updated at once.
const CHUNK: usize = 1_000;

/// The content of the note.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Standing {
    version: u32,
    /// Programs with this schema version or a newer one can use the database.
    #[serde(rename = "for")]
    least: u32,
}

impl Standing {
    /// The schema of a database without a note.
    const FIRST: Self = Self {
        version: 1,
        least: 1,
    };
    const PRESENT: Self = Self {
        version: VERSION,
        least: FOR,
    };
}

impl Mongo {
    /// Returns the schema of the database. It is an error if the database needs a newer program.
    pub async fn schema(&self) -> Result<Schema> {
        let standing = self.standing_schema().await?.unwrap_or(Standing::FIRST);
        let done = standing.version.saturating_sub(1) as usize;
        let steps = STEPS.iter().skip(done);
        Ok(Schema {
            version: standing.version,
            known: VERSION,
            steps: steps.map(|step| (*step).to_owned()).collect(),
        })
    }

    async fn standing_schema(&self) -> Result<Option<Standing>> {
        let Some(text) = Notes::note(self, NOTE).await? else {
            return Ok(None);
        };
        let standing: Standing = serde_json::from_str(&text)
            .map_err(|error| Error::corrupt("the note schema", error.to_string()))?;
        if standing.least > VERSION {
            return Err(Error::Unsupported(format!(
                "the database was written by a newer version of tidings: its schema is number {}, and this one knows {VERSION}; \
                 use that version, or a newer one",
                standing.version
            )));
        }
        Ok(Some(standing))
    }

    /// Creates missing indexes and upgrades data from earlier versions. Safe to repeat, and to run
    /// while other processes work.
    pub async fn prepare(&self) -> Result<()> {
        let standing = self.standing_schema().await?;
        self.create_indexes().await?;
        self.prepare_pokes().await;
        if standing.is_some_and(|standing| standing.version >= VERSION) {
            return Ok(());
        }
        if standing.unwrap_or(Standing::FIRST).version < 2 {
            self.tag_deliveries().await?;
        }
        self.drop_obsolete_indexes().await?;
        let present = serde_json::to_string(&Standing::PRESENT).unwrap_or_default();
        let read = Notes::note(self, NOTE).await?;
        // A faster process wrote the same schema, or a newer one.
        let written = self.swap_note(NOTE, read.as_deref(), Some(&present));
        written.await.map(drop)
    }

    /// Adds the tag to deliveries that lack one. Reads all of them in `_id` order, because no index
    /// covers a missing field.
    async fn tag_deliveries(&self) -> Result<()> {
        let doing = "giving deliveries their tags";
        let mut after = Bson::MinKey;
        loop {
            let page = doc! {"_id": {"$gt": after}};
            let options = FindOptions::builder()
                .sort(doc! {"_id": 1})
                .projection(doc! {"tag": 1})
                .limit(CHUNK as i64)
                .build();
            let found = self.find_all(doing, DELIVERIES, &page, options).await?;
            let Some(last) = found.last().and_then(|row| row.get("_id")) else {
                return Ok(());
            };
            after = last.clone();
            let untagged = found.iter().filter(|row| !row.contains_key("tag"));
            let updates: Vec<Document> = untagged.filter_map(tagging).collect();
            if updates.is_empty() {
                continue;
            }
            self.patiently(doing, || {
                let command = doc! {"update": DELIVERIES, "updates": &updates, "ordered": false,
                "writeConcern": {"w": "majority", "j": true}};
                let db = self.database().clone();
                async move {
                    let answer = db.run_command(command).await?;
                    match answer.get_document("writeConcernError") {
                        Ok(concern) => Err(Failure::answered(
                            concern.get_i32("code").unwrap_or_default(),
                            concern.get_str("errmsg").unwrap_or_default(),
                        )),
                        Err(_) => Ok(()),
                    }
                }
            })
            .await?;
        }
    }
}

/// Returns the statement that adds the tag to a delivery.
fn tagging(row: &Document) -> Option<Document> {
    let id = row.get_str("_id").ok()?;
    let tag = DeliveryId::stored(id).tag();
    let untagged = doc! {"_id": id, "tag": {"$exists": false}};
    Some(doc! {"q": untagged, "u": {"$set": {"tag": tag.as_str()}}})
}
