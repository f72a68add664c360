//! Objects and retractions: one row each. Mapped models are in the application's MongoDB
//! and exist only there. The time of a retraction only grows, under any race.

use async_trait::async_trait;
use rusqlite::{Row, Transaction};

use super::Sqlite;
use super::notes::notify;
use super::rows::{Fields, RowTable, Statements as _, fields, json};
use crate::domain::{ChangeNotice, Event, Id, Json, Object, ObjectKey, Retraction};
use crate::store::record::small::ObjectRecord;
use crate::store::record::values::As;
use crate::store::{Objects, Result};

pub(super) const OBJECTS: RowTable = RowTable {
    name: "objects",
    columns: "id=_id notifiable:flag title url image by at lng=place.lng lat=place.lat data",
};

#[async_trait]
impl Objects for Sqlite {
    async fn put_objects(&self, objects: &[Object]) -> Result<()> {
        if objects.is_empty() {
            return Ok(());
        }
        let objects = objects.to_vec();
        self.write(move |transaction| {
            for object in &objects {
                put_object(transaction, object)?;
            }
            let names = objects.iter().map(|object| object.key.as_str());
            notify(transaction, &ChangeNotice::objects(names))
        })
        .await
    }

    async fn objects(&self, keys: &[ObjectKey]) -> Result<Vec<Option<Object>>> {
        self.read_each(keys, |transaction, key| {
            match find_object(transaction, key) {
                // One unreadable record must not block the emails of all users, so it counts as not
                // notifiable.
                Err(error) if !error.is_outage() => {
                    tracing::warn!(%error, "an object cannot be read, and does not apply");
                    let mut object = Object::bare(key.clone());
                    object.notifiable = false;
                    Ok(Some(object))
                }
                found => found,
            }
        })
        .await
    }

    async fn retract(&self, retractions: &[Retraction], about: &ChangeNotice) -> Result<()> {
        if retractions.is_empty() {
            return Ok(());
        }
        let (retractions, about) = (retractions.to_vec(), about.clone());
        self.write(move |transaction| {
            for Retraction { t, o, at } in &retractions {
                let sql = "INSERT INTO retractions (type, object, at) VALUES (?1, ?2, ?3)
                           ON CONFLICT DO UPDATE SET at = excluded.at WHERE at < excluded.at";
                transaction.run(sql, (t.as_str(), o.as_str(), at.to_string()))?;
            }
            notify(transaction, &about)
        })
        .await
    }

    async fn retractions(&self, events: &[Event]) -> Result<Vec<Option<Id>>> {
        self.read_each(events, |transaction, Event { t, o, .. }| {
            let sql = "SELECT at FROM retractions WHERE type = ?1 AND object = ?2";
            let at = transaction.first(sql, (t.as_str(), o.as_str()), |row| row.get(0))?;
            Ok(at.map(|at: String| {
                at.parse().unwrap_or_else(|_| {
                    tracing::warn!(%t, %o, "a retraction cannot be read, and reaches everything");
                    Id::LAST
                })
            }))
        })
        .await
    }
}

pub(super) fn put_object(transaction: &Transaction<'_>, object: &Object) -> Result<()> {
    let mut fields =
        fields(&ObjectRecord::from_value(&Object { data: Json::default(), ..object.clone() }))?;
    // The text of the JSON keeps the order of its fields.
    if !object.data.is_null() {
        fields.insert("data".to_owned(), object.data.text().into());
    }
    OBJECTS.replace(transaction, &fields)
}

fn find_object(transaction: &Transaction<'_>, key: &ObjectKey) -> Result<Option<Object>> {
    let mut statement = transaction.prepare_cached("SELECT * FROM objects WHERE id = ?1")?;
    let mut rows = statement.query([key.as_str()])?;
    rows.next()?.map(read_object).transpose()
}

pub(super) fn read_object(row: &Row<'_>) -> Result<Object> {
    let object = OBJECTS.read::<ObjectRecord>(row, Fields::new())?;
    let data = match object.data.is_null() {
        true => Json::default(),
        false => json(row, "data", "object")?,
    };
    Ok(Object { data, ..object })
}
