//! Drops a day: renames its collection, compares it, and drops it or renames it back.
//!
//! Writers cannot reach the renamed collection; new entries for the day create a new one. The
//! content must match the expected sum to the byte. After a crash, `fix_day` renames the collection
//! back before other work on the day. Each attempt has its own name, so a slow one cannot drop
//! another's.

use bson::oid::ObjectId;
use bson::{Document, RawDocumentBuf, doc};
use futures::TryStreamExt;

use super::Mongo;
use super::bulk::Verb;
use super::decode::{Elements, Field};
use super::encode::Writer;
use super::patience::Failure;
use super::stacks::NAMESPACE_EXISTS;
use crate::domain::Day;
use crate::store::{DaySum, Error, Result, extjson};

/// The name prefix of a day that is being dropped. A suffix identifies the attempt.
pub(super) const ASIDE: &str = "leaving_";

/// Server error code: the collection does not exist.
const NAMESPACE_NOT_FOUND: i32 = 26;

/// Returns a pattern for the names of this day's renamed collections.
pub(super) fn asides_of(day: Day) -> String {
    format!("^{ASIDE}{}_[0-9a-f]{{24}}$", day.collection())
}

/// The result of a rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Renamed {
    Yes,
    /// There is no collection with the old name.
    Nothing,
    /// There already is a collection with the new name.
    Taken,
}

impl Mongo {
    pub(super) async fn drop_if(&self, day: Day, sum: &DaySum) -> Result<bool> {
        let name = day.collection();
        let aside = format!("{ASIDE}{name}_{}", ObjectId::new());
        self.forget(day);
        // If the name is taken or the source is missing, an earlier attempt may have succeeded.
        let renamed = self.rename(&name, &aside).await?;
        if renamed == Renamed::Nothing && !self.stands(&aside).await? {
            return Ok(sum.stacks == 0);
        }
        if self.sum_of(day, &aside).await? != *sum {
            self.put_back(day, &aside).await?;
            return Ok(false);
        }
        self.drop_collection(&aside).await?;
        Ok(true)
    }

    /// Renames a collection back. If the day has a new collection by now, the old entries go before
    /// the new ones, document by document. It can be repeated after a crash: each entry is added
    /// only once.
    pub(super) async fn put_back(&self, day: Day, aside: &str) -> Result<()> {
        self.forget(day);
        if self.rename(aside, &day.collection()).await? != Renamed::Taken {
            return Ok(());
        }
        let mut chunks = self.lines(format!("restoring {day}"), aside.to_owned());
        while let Some(lines) = chunks.try_next().await? {
            let unreadable = |error| Error::corrupt(format!("a stack of {day}"), error);
            let documents = lines.iter().map(|line| extjson::from_line(line));
            let documents: Vec<RawDocumentBuf> = documents
                .collect::<std::result::Result<_, _>>()
                .map_err(unreadable)?;
            let taken = self.insert_into(day, &documents).await?;
            self.put_before(day, &documents, taken).await?;
        }
        drop(chunks);
        self.drop_collection(aside).await
    }

    /// Puts the entries of these documents before the stored ones, unless they already come first.
    async fn put_before(
        &self,
        day: Day,
        documents: &[RawDocumentBuf],
        items: Vec<usize>,
    ) -> Result<()> {
        let doing = format!("putting {day} together again");
        let targets = vec![(day.collection(), items)];
        let update = self.bulk(&doing, Verb::Update, targets, |writer, item| {
            let document = documents[item].as_bytes();
            let (mut id, mut events, mut count) = (None, None, 0);
            for element in Elements::of(document) {
                match element.name {
                    b"_id" => id = Some(element),
                    b"events" => {
                        count = Elements::of(element.value).count();
                        events = Some(element);
                    }
                    _ => {}
                }
            }
            writer.document("q");
            if let Some(id) = id {
                writer.document("_id");
                writer.element("$eq", id);
                writer.close();
            }
            writer.close();
            writer.array("u");
            writer.document(0);
            writer.document("$replaceWith");
            writer.array("$mergeObjects");
            writer.document(0);
            writer.encoded("$literal", document);
            writer.close();
            writer.text(1, "$$ROOT");
            if let Some(events) = events.filter(|_| count > 0) {
                writer.document(2);
                writer.document("events");
                merged(writer, events, count);
                writer.close();
                writer.close();
            }
            writer.close();
            writer.close();
            writer.close();
            writer.close();
        });
        update.await?.complete(&doing).map(drop)
    }

    async fn rename(&self, from: &str, to: &str) -> Result<Renamed> {
        let db = self.0.db.name();
        let command = doc! {
            "renameCollection": format!("{db}.{from}"),
            "to": format!("{db}.{to}"),
            "writeConcern": {"w": "majority"},
        };
        self.patiently(&format!("renaming {from}"), || {
            let (admin, command) = (self.0.client.database("admin"), command.clone());
            async move {
                let run = admin.run_command(command);
                match run.await.map_err(Failure::from) {
                    Ok(_) => Ok(Renamed::Yes),
                    Err(failure) => match failure.code {
                        Some(NAMESPACE_NOT_FOUND) => Ok(Renamed::Nothing),
                        Some(NAMESPACE_EXISTS) => Ok(Renamed::Taken),
                        _ => Err(failure),
                    },
                }
            }
        })
        .await
    }

    async fn stands(&self, name: &str) -> Result<bool> {
        Ok(!self.collections(&format!("^{name}$")).await?.is_empty())
    }

    /// Returns the names of the collections that match a pattern, without views.
    pub(super) async fn collections(&self, pattern: &str) -> Result<Vec<String>> {
        let filter = doc! {"name": {"$regex": pattern}, "type": {"$ne": "view"}};
        let listed = self.patiently("listing day collections", || self.listed(filter.clone()));
        let name = |listed: &Document| listed.get_str("name").ok().map(str::to_owned);
        Ok(listed.await?.iter().filter_map(name).collect())
    }

    pub(super) async fn drop_collection(&self, name: &str) -> Result<()> {
        self.patiently(&format!("dropping {name}"), || {
            let collection = self.collection(name);
            async move { Ok(collection.drop().await?) }
        })
        .await
    }
}

/// Writes an expression that puts these entries before the stored ones, unless the stored ones
/// already start with them.
fn merged(writer: &mut Writer, events: Field<'_>, count: usize) {
    let standing = |writer: &mut Writer, name: usize| {
        writer.document(name);
        writer.array("$ifNull");
        writer.text(0, "$events");
        writer.array(1);
        writer.close();
        writer.close();
        writer.close();
    };
    let ours = |writer: &mut Writer, name: usize| {
        writer.document(name);
        writer.element("$literal", events);
        writer.close();
    };
    writer.document("$cond");
    writer.document("if");
    writer.array("$eq");
    writer.document(0);
    writer.array("$slice");
    standing(writer, 0);
    writer.int(1, count as i32);
    writer.close();
    writer.close();
    ours(writer, 1);
    writer.close();
    writer.close();
    writer.text("then", "$events");
    writer.document("else");
    writer.array("$concatArrays");
    ours(writer, 0);
    standing(writer, 1);
    writer.close();
    writer.close();
    writer.close();
}
