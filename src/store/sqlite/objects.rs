//! Objects and retractions: one row each. Mapped models are in the application's MongoDB and exist
//! only there. Concurrent writes never move a retraction back in time.

use async_trait::async_trait;
use rusqlite::{Row, Transaction};

use super::Sqlite;
use super::coordination::notify;
use super::rows::{Fields, RowTable, Statements as _, read_json_column, to_fields};
use crate::domain::{ChangeNotice, Event, Id, Json, Object, ObjectKey, Retraction};
use crate::store::record::small::ObjectRecord;
use crate::store::record::values::StoredForm;
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
            let keys = objects.iter().map(|object| object.key.as_str());
            notify(transaction, &ChangeNotice::objects(keys))
        })
        .await
    }

    async fn objects(&self, keys: &[ObjectKey]) -> Result<Vec<Option<Object>>> {
        self.read_each(keys, |transaction, key| {
            match find_object(transaction, key) {
                // One unreadable record must not block the emails of all users. It counts as not
                // notifiable.
                Err(error) if !error.is_outage() => {
                    tracing::warn!(%error, "an object cannot be read, and counts as not notifiable");
                    Ok(Some(Object { notifiable: false, ..Object::without_data(key.clone()) }))
                }
                result => result,
            }
        })
        .await
    }

    async fn retract(&self, retractions: &[Retraction], notice: &ChangeNotice) -> Result<()> {
        if retractions.is_empty() {
            return Ok(());
        }
        let (retractions, notice) = (retractions.to_vec(), notice.clone());
        self.write(move |transaction| {
            for Retraction { kind, object, at } in &retractions {
                let sql = "INSERT INTO retractions (type, object, at) VALUES (?1, ?2, ?3)
                           ON CONFLICT DO UPDATE SET at = excluded.at WHERE at < excluded.at";
                transaction.run(sql, (kind.as_str(), object.as_str(), at.to_string()))?;
            }
            notify(transaction, &notice)
        })
        .await
    }

    async fn retractions(&self, events: &[Event]) -> Result<Vec<Option<Id>>> {
        self.read_each(events, |transaction, Event { kind: t, object: o, .. }| {
            let sql = "SELECT at FROM retractions WHERE type = ?1 AND object = ?2";
            let at = transaction.query_first(sql, (t.as_str(), o.as_str()), |row| row.get(0))?;
            Ok(at.map(|at: String| {
                at.parse().unwrap_or_else(|_| {
                    tracing::warn!(%t, %o, "a retraction cannot be read, and applies to all events");
                    Id::MAX
                })
            }))
        })
        .await
    }
}

pub(super) fn put_object(transaction: &Transaction<'_>, object: &Object) -> Result<()> {
    let without_data = Object { data: Json::default(), ..object.clone() };
    let mut fields = to_fields(&ObjectRecord::from_value(&without_data))?;
    // As text, the JSON keeps the order of its fields.
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
    if object.data.is_null() {
        return Ok(object);
    }
    Ok(Object { data: read_json_column(row, "data", "object")?, ..object })
}
