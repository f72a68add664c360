//! Objects: one row each. Mapped models are in the application's MongoDB and exist only there.

use async_trait::async_trait;
use rusqlite::{Row, Transaction};

use super::Sqlite;
use super::answer::Answer;
use super::codec::{Record, millis};
use super::pokes::poke;
use crate::domain::{ChangeNotice, Json, Object, ObjectKey};
use crate::store::{Objects, Result};

#[async_trait]
impl Objects for Sqlite {
    async fn put_objects(&self, objects: &[Object]) -> Result<()> {
        if objects.is_empty() {
            return Ok(());
        }
        let objects = objects.to_vec();
        let put = move |transaction: &Transaction<'_>| {
            objects
                .iter()
                .try_for_each(|object| put(transaction, object))?;
            let names = objects.iter().map(|object| object.key.as_str());
            poke(transaction, &ChangeNotice::objects(names))
        };
        self.connections.write("putting objects", put).await
    }

    async fn objects(&self, keys: &[ObjectKey]) -> Result<Vec<Option<Object>>> {
        let find = |transaction: &Transaction<'_>, key: &ObjectKey| match find(transaction, key) {
            // One unreadable record must not block the emails of all users, so it counts as not
            // notifiable.
            Err(failure) if failure.is_unreadable() => {
                let error = failure.while_doing("reading an object");
                tracing::warn!(%error, "an object cannot be read, and does not apply");
                Ok(Some(Object {
                    notifiable: false,
                    ..Object::bare(key.clone())
                }))
            }
            found => found,
        };
        self.read_each("reading objects", keys, find).await
    }
}

pub(super) fn put(transaction: &Transaction<'_>, object: &Object) -> Answer<()> {
    let sql =
        "INSERT OR REPLACE INTO objects (id, notifiable, title, url, image, by, at, lng, lat, data)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    let data = (!object.data.is_null()).then(|| object.data.text());
    transaction.prepare_cached(sql)?.execute((
        object.key.as_str(),
        object.notifiable,
        &object.title,
        &object.url,
        &object.image,
        &object.by,
        object.at.map(millis),
        object.place.map(|place| place.lng()),
        object.place.map(|place| place.lat()),
        data,
    ))?;
    Ok(())
}

fn find(transaction: &Transaction<'_>, key: &ObjectKey) -> Answer<Option<Object>> {
    let mut statement = transaction.prepare_cached("SELECT * FROM objects WHERE id = ?1")?;
    let mut rows = statement.query([key.as_str()])?;
    rows.next()?.map(read).transpose()
}

pub(super) fn read(row: &Row<'_>) -> Answer<Object> {
    let record = Record {
        what: "object",
        row,
    };
    let data: Option<String> = record.get("data")?;
    Ok(Object {
        key: ObjectKey::stored(record.text("id")?),
        notifiable: record.get("notifiable")?,
        title: record.get("title")?,
        url: record.get("url")?,
        image: record.get("image")?,
        by: record.get("by")?,
        at: record.maybe_time("at")?,
        place: record.place()?,
        data: if data.is_some() {
            record.json("data")?
        } else {
            Json::default()
        },
    })
}
